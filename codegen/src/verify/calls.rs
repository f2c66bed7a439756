//! Calls: what is called, with which arguments, on which stack, and what it leaves behind.

use super::value::{Root, State, Value, Why};
use super::{Called, Checker, Property};
use crate::ask::frame::{Content, Field, Stores};
use crate::ask::kind::{Gives, Kind};
use crate::ask::live::Live;
use crate::effect::action::Action;
use crate::words::abi::{Reg, RegSet};
use crate::words::program::Attach;
use crate::words::step::{Sym, Value as Argument};

impl Checker<'_> {
    /// A call, from what is demanded to what it leaves behind.
    pub(super) fn call(&mut self, line: usize, action: Action, state: &mut State) {
        if self.refills(action) {
            self.refilled(line, state);
            return;
        }
        self.decided(line, state);
        state.decided = false;
        let Some(&called) = self.calls.get(state.calls) else {
            self.fault(line, Property::Calls, "nothing more is to be called here");
            self.clobber(None, state);
            return;
        };
        self.callee(line, called, action, state);
        let sp = state.get(self.abi.sp).on_stack().unwrap_or(0);
        self.alignment(line, called, sp);
        self.records(line, state);
        match called {
            Called::Body => self.body(line, sp, state),
            _ => self.handler(line, called, sp, state),
        }
        state.calls += 1;
    }

    fn callee(&mut self, line: usize, called: Called, action: Action, state: &State) {
        let contract = self.contract;
        let traced = contract.traced.as_ref();
        if let (Called::Callback, Some(op)) = (called, self.early) {
            let found = match action {
                Action::CallRegister { reg } => state.get(reg),
                _ => Value::lost(Why::Computed),
            };
            self.same(line, Property::Calls, "what is called", Value::of(Root::OpField(op.func)), found);
            return;
        }
        let convention = contract.convention;
        if let (Called::Callback, Some(variable)) = (called, convention.calls_through) {
            let known = self.symbols.iter().position(|s| s.name == variable && s.add == 0);
            let wanted = known.map_or(Value::lost(Why::Computed), |sym| Value::of(Root::Content(Sym(sym as u8))));
            let found = match action {
                Action::CallRegister { reg } => state.get(reg),
                _ => Value::lost(Why::Computed),
            };
            self.same(line, Property::Calls, "what is called", wanted, found);
            return;
        }
        let (name, add) = match called {
            Called::Callback | Called::Named | Called::ExitHandler => (contract.callee.as_str(), 0),
            Called::Program(n) => (contract.programs.get(n).map_or("", |p| &p.symbol), 0),
            Called::Body => traced.map_or(("", 0), |t| (t.function.as_str(), t.resume)),
            Called::Exit => traced.map_or(("", 0), |t| (t.exit.as_str(), 0)),
        };
        let found = match action {
            Action::CallSymbol { sym } => self.symbols.get(usize::from(sym.0)),
            _ => None,
        };
        if found.is_none_or(|s| s.name != name || s.add != add) {
            let found = found.map_or("something else".to_owned(), |s| s.to_string());
            self.fault(line, Property::Calls, format!("{found} is called, not {name}{add:+}"));
        }
    }

    fn alignment(&mut self, line: usize, called: Called, sp: i32) {
        let (align, off) = match called {
            // Its own caller knows where its stack is: it must be as far from there as any other call's.
            Called::Body => (self.abi.sp_align as i32, self.site_sp - (sp - self.abi.return_bytes() as i32)),
            _ => (self.contract.stack_align as i32, self.entry_sp + sp),
        };
        if off.rem_euclid(align.max(1)) != 0 {
            self.fault(
                line,
                Property::Alignment,
                format!("sp is {} behind a multiple of {align}", off.rem_euclid(align)),
            );
        }
    }

    /// The chain that an unwinder follows from the frame pointer.
    fn records(&mut self, line: usize, state: &State) {
        let (abi, contract) = (self.abi, self.contract);
        let (fp, parent) = (state.get(abi.fp), Value::of(Root::Parent));
        let records = &contract.frame.records;
        if contract.marks_regs && (contract.kind.calls_back() || contract.kind == Kind::Rethook) {
            let fregs = if contract.kind == Kind::Rethook {
                Some(0)
            } else {
                contract.convention.callback.position(Argument::Fregs)
            };
            let fregs = fregs.map_or(Value::lost(Why::Computed), |n| self.argument(n, state));
            self.same(line, Property::Records, "the frame pointer", fregs.plus(1), fp);
            // The records lie above the frame, where the unwinder knows them to be.
            let Some(base) = fregs.on_stack() else { return };
            let mut before = self.start.get(abi.fp);
            for record in records {
                let ret = if record.ret == Content::Pc { self.pc } else { parent };
                let place = base + record.offset;
                self.same(line, Property::Records, "fp in a frame record", before, state.memory.load(place));
                self.same(
                    line,
                    Property::Records,
                    "return address in a frame record",
                    ret,
                    state.memory.load(place + 8),
                );
                before = Value::stack(place);
            }
            return;
        }
        if records.is_empty() {
            if !contract.realigned {
                self.same(line, Property::Records, "the frame pointer", self.start.get(abi.fp), fp);
            }
            return;
        }
        let (mut fp, mut last) = (fp, None);
        for record in records.iter().rev() {
            let ret = if record.ret == Content::Pc { self.pc } else { parent };
            let Some(place) = fp.on_stack().map(|fp| fp + self.machine.record as i32) else {
                let found = self.tell(fp);
                self.fault(line, Property::Records, format!("the frame pointer is {found}, which is no frame record"));
                return;
            };
            self.same(line, Property::Records, "return address in a frame record", ret, state.memory.load(place + 8));
            if last.is_some_and(|last| place <= last) {
                self.fault(line, Property::Records, "a frame record does not lie above the one before".to_owned());
            }
            last = Some(place);
            fp = state.memory.load(place);
        }
        self.same(line, Property::Records, "fp in the last frame record", self.start.get(abi.fp), fp);
    }

    /// A handler: arguments, what it is shown, and what it may do.
    fn handler(&mut self, line: usize, called: Called, sp: i32, state: &mut State) {
        let kind = self.contract.kind;
        let base = match (kind.traits().gives, called) {
            (Gives::Frame, Called::Callback | Called::Named) => self.site_arguments(line, state),
            (Gives::Frame, _) => self.frame_at(line, "the first argument", self.argument(0, state)),
            (_, Called::Program(n)) => self.program(line, n, state),
            (_, Called::Exit) => {
                for (n, &ret) in self.abi.rets.iter().enumerate() {
                    let wanted = Value::of(Root::Body(ret));
                    self.same(line, Property::Arguments, "a result", wanted, self.argument(n, state));
                }
                None
            }
            _ => {
                let direct = kind.passes().unwrap_or_default();
                if direct.ip {
                    let ip = self.pc.plus(-i64::from(self.site.ip_offset));
                    self.same(line, Property::Arguments, "ip", ip, self.argument(0, state));
                }
                self.passed(line, usize::from(direct.ip), direct.args, state);
                direct.live.iter().for_each(|live| self.as_called(line, *live, sp, state));
                None
            }
        };
        let call = state.calls as u8;
        if let Some(base) = base {
            self.inside(line, base, sp);
            self.told(line, base, state);
        }
        let copied = if called == Called::Named { kind.copied_words() } else { 0 };
        self.clobber(Some(copied), state);
        if let Some(&ret) = self.abi.rets.first() {
            state.set(ret, Value::of(Root::Returned(call)));
        }
        if let (Some(base), true) = (base, self.shows()) {
            self.stored(base, call, state);
        }
    }

    pub(super) fn argument(&self, n: usize, state: &State) -> Value {
        self.abi.args.get(n).map_or(Value::lost(Why::Computed), |reg| state.get(*reg))
    }

    /// What the convention says that a callback gets. Returns where the frame is that it is shown, if it is shown one.
    fn site_arguments(&mut self, line: usize, state: &State) -> Option<i32> {
        let mut base = None;
        for (n, value) in self.contract.convention.callback.arguments.iter().enumerate() {
            let found = self.argument(n, state);
            let (what, wanted) = match value {
                Argument::Ip => ("ip", self.pc.plus(-i64::from(self.site.ip_offset))),
                Argument::ParentIp => ("parent_ip", Value::of(Root::Parent)),
                Argument::Op => ("op", self.op),
                Argument::Fregs => {
                    base = self.frame_at(line, "fregs", found);
                    continue;
                }
                Argument::Argument(_) | Argument::Result(_) | Argument::Context | Argument::Cookie => continue,
            };
            self.same(line, Property::Arguments, what, wanted, found);
        }
        base
    }

    fn frame_at(&mut self, line: usize, what: &str, value: Value) -> Option<i32> {
        let base = value.on_stack();
        if base.is_none() {
            let found = self.tell(value);
            self.fault(line, Property::Arguments, format!("{what} is {found}, which is no frame"));
        }
        base
    }

    /// The traced function's own first arguments, from argument register number `first` on.
    fn passed(&mut self, line: usize, first: usize, count: u8, state: &State) {
        for (n, &reg) in self.abi.args.iter().take(count.into()).enumerate() {
            let wanted = self.start.get(reg);
            self.same(line, Property::Arguments, "an argument", wanted, self.argument(first + n, state));
        }
    }

    /// A function of the traced function's prototype finds all that the function would find.
    fn as_called(&mut self, line: usize, live: Live, sp: i32, state: &State) {
        for reg in live.regs.minus(RegSet::of(self.abi.args)).iter() {
            self.same(line, Property::Arguments, self.abi.name(reg), self.start.get(reg), state.get(reg));
        }
        let abi = self.abi;
        for &vector in abi.vector_args.iter().take(live.vectors.into()) {
            self.same_vector(line, Property::Arguments, vector, self.start.vector(vector), state);
        }
        for word in 0..i32::from(live.stack) {
            let wanted = Value::of(Root::Word(self.stack_argument(word)));
            let found = state.memory.load(sp + 8 * word);
            self.same(line, Property::Arguments, "an argument on the stack", wanted, found);
        }
    }

    /// Where the caller of the traced function put a word of its stack arguments.
    fn stack_argument(&self, word: i32) -> i32 {
        self.site_sp + self.abi.return_bytes() as i32 + 8 * word
    }

    pub(super) fn same_vector(
        &mut self,
        line: usize,
        property: Property,
        vector: u8,
        wanted: [Value; 2],
        state: &State,
    ) {
        let found = state.vector(vector);
        for half in 0..self.words() {
            self.same(line, property, "a vector register", wanted[half], found[half]);
        }
    }

    /// `(context, cookie)`.
    fn program(&mut self, line: usize, n: usize, state: &State) -> Option<i32> {
        let frame = &self.contract.frame;
        let count = frame.fields.iter().find(|f| matches!(f.content, Content::Const(_)));
        let first = count.map_or(0, |f| f.offset + 8);
        let base = self.frame_at(line, "context", self.argument(0, state)).map(|context| context - first);
        let number = self.contract.programs.get(n).map_or(0, |p| p.cookie);
        if let Some(cookie) = self.frame_at(line, "the address of the cookie", self.argument(1, state)) {
            let found = state.memory.load(cookie);
            self.same(line, Property::Arguments, "the cookie", Value::number(number.into()), found);
        }
        base
    }

    /// The frame lies between SP and what the site's caller has.
    fn inside(&mut self, line: usize, base: i32, sp: i32) {
        let size = self.contract.frame.c_size;
        if base < sp || base + size > self.top {
            self.fault(
                line,
                Property::Frame,
                format!("the frame at sp{:+} is not on our part of the stack", base - sp),
            );
        }
    }

    /// Every member of the frame holds what the contract says of it.
    fn told(&mut self, line: usize, base: i32, state: &State) {
        let contract = self.contract;
        for field in &contract.frame.fields {
            let found = state.memory.load(base + field.offset);
            let what = if field.member.is_empty() { field.symbol } else { field.member };
            if let Content::Result(reg) = field.content {
                self.result_told(line, reg, base + field.offset, state);
                continue;
            }
            let counted = contract.kind.programs().and_then(|programs| programs.tail_call);
            if state.returned && counted.is_some_and(|counted| field.content == Content::Reg(counted.reg)) {
                // What the function gave back has its place.
                continue;
            }
            if state.returned && contract.kind.around().is_some() {
                // What was there before the function is there still, but for a frame that went with it.
                let kept = !contract.kind.is_shadow() && self.wanted(field, state).is_some();
                if kept && found == Value::lost(Why::Unwritten) {
                    self.fault(line, Property::Frame, format!("{what} was never stored"));
                }
                continue;
            }
            if contract.kind.returned_to() && field.content == Content::Pc {
                // Our own address, or where the parent goes on: no two tracers agree.
                if found == Value::lost(Why::Unwritten) {
                    self.fault(line, Property::Frame, format!("{what} was never stored"));
                }
                continue;
            }
            if let Some(wanted) = self.wanted(field, state) {
                self.same(line, Property::Frame, what, wanted, found);
            }
        }
    }

    /// What a slot must hold when a handler is called; `None` if nothing is said of it.
    fn wanted(&self, field: &Field, state: &State) -> Option<Value> {
        if let (Some((base, call)), true) = (state.shown, takes_effect(field)) {
            return Some(Value::of(Root::Left(base + field.offset, call)));
        }
        Some(match field.content {
            Content::Reg(reg) => self.start.get(reg),
            Content::StackWord(n) => Value::of(Root::Word(self.stack_argument(n.into()))),
            Content::Ip => self.pc.plus(-i64::from(self.site.ip_offset)),
            Content::Pc => self.pc,
            Content::ParentIp => Value::of(Root::Parent),
            Content::SiteSp => Value::stack(self.site_sp),
            Content::ExitSp => Value::stack(0),
            Content::Flags => Value::of(Root::Flags),
            Content::Const(n) => Value::number(self.meta(state).unwrap_or(n.into())),
            Content::Direct | Content::Session(_) => Value::number(0),
            Content::Result(_)
            | Content::Vector(_)
            | Content::VectorResult(_)
            | Content::Cookie
            | Content::Unfilled => return None,
        })
    }

    /// What a context says of itself when the next program is called.
    fn meta(&self, state: &State) -> Option<i64> {
        let (programs, body) = (self.contract.kind.programs()?, self.calls.iter().position(|c| *c == Called::Body));
        let (at, call) = match body {
            Some(body) if state.calls > body => (Attach::AFTER, state.calls - body - 1),
            _ => (Attach::BEFORE, state.calls),
        };
        Some(programs.meta_of(&self.contract.programs, at, call))
    }

    fn result_told(&mut self, line: usize, reg: Reg, place: i32, state: &State) {
        let found = state.memory.load(place);
        let first = self.abi.rets.first() == Some(&reg);
        if !self.abi.rets.contains(&reg) {
            // What no program is shown.
            return;
        }
        if !state.returned && state.skipped_by.is_none() {
            // There is none yet: 0 where a session or a program that may decide it is to come, or what one before stored.
            let (sessions, decides) = (self.has_sessions(), self.may_decide(state.calls) && first);
            let stored = |at, call: u8| at == place && (sessions || self.may_decide(call.into()));
            if (sessions || decides) && !matches!(found.root, Root::Left(at, call) if stored(at, call)) {
                self.same(line, Property::Frame, "the result", Value::number(0), found);
            }
            return;
        }
        let wanted = match (state.results, state.skipped_by) {
            (Some(call), _) => Root::Left(place, call),
            (None, None) => Root::Body(reg),
            (None, Some(call)) if first => Root::Returned(call),
            (None, Some(_)) => return,
        };
        self.same(line, Property::Frame, "a result", Value::of(wanted), found);
    }

    /// What a handler stored to the frame takes effect where that is promised; its cookie is its own.
    fn stored(&mut self, base: i32, call: u8, state: &mut State) {
        for field in &self.contract.frame.fields {
            let place = base + field.offset;
            match field.content {
                Content::Cookie => state.memory.store(place, Value::lost(Why::Clobbered)),
                _ if takes_effect(field) => state.memory.store(place, Value::of(Root::Left(place, call))),
                _ => {}
            }
        }
        state.shown = Some((base, call));
        if state.returned || state.skipped_by.is_some() {
            state.results = Some(call);
        }
    }

    /// The slot's content as the last handler left it, if what it stored there takes effect.
    pub(super) fn left(&self, content: Content, state: &State) -> Option<Value> {
        let (base, call) = state.shown?;
        let field = self.contract.frame.fields.iter().find(|f| f.content == content && takes_effect(f))?;
        Some(Value::of(Root::Left(base + field.offset, call)))
    }

    fn has_sessions(&self) -> bool {
        self.contract.kind.programs().is_some_and(|programs| programs.sessions > 0)
    }

    /// Is this call that of a program whose result may stand for that of the traced function?
    fn may_decide(&self, call: usize) -> bool {
        let Some(&Called::Program(n)) = self.calls.get(call) else { return false };
        self.contract.programs.get(n).is_some_and(|p| p.attach == Attach::FmodRet)
    }

    /// Did it return something that nobody has looked at yet?
    pub(super) fn undecided(&self, call: u8, state: &State) -> bool {
        usize::from(call) + 1 == state.calls && !state.decided && self.may_decide(call.into())
    }

    /// Somebody must have looked at what the last call returned, where that decides the way.
    pub(super) fn decided(&mut self, line: usize, state: &State) {
        if state.calls.checked_sub(1).is_some_and(|call| self.undecided(call as u8, state)) {
            self.fault(line, Property::Control, "nobody asked what the program before returned");
        }
    }

    /// The traced function: its state is that of the site, and it returns here.
    fn body(&mut self, line: usize, sp: i32, state: &mut State) {
        self.recorded(line, false, state);
        self.kept(line, state);
        self.keeps(line, self.contract.kept, state);
        self.keeps_vectors(line, state);
        let at_function = sp - self.abi.return_bytes() as i32;
        if self.contract.kind.is_shadow() && at_function != self.site_sp {
            self.fault(line, Property::Stack, format!("sp of the function is off by {:+}", at_function - self.site_sp));
        }
        let copied = self.contract.kind.copied_words();
        for word in 0..copied {
            let wanted = Value::of(Root::Word(self.stack_argument(word)));
            let found = state.memory.load(sp + 8 * word);
            self.same(line, Property::Arguments, "an argument on the stack", wanted, found);
        }
        self.clobber(Some(copied), state);
        for reg in self.abi.rets.iter().chain(self.abi.exit_rets) {
            state.set(*reg, Value::of(Root::Body(*reg)));
        }
        if let Some(counted) = self.contract.kind.programs().and_then(|programs| programs.tail_call) {
            state.set(counted.reg, Value::of(Root::Body(counted.reg)));
        }
        for (n, vector) in state.vectors.iter_mut().enumerate() {
            *vector = [0, 1].map(|half| Value::of(Root::BodyVector(n as u8, half)));
        }
        state.returned = true;
    }

    /// What a C function may overwrite, has any value. `copied` words of arguments on the stack are its own.
    fn clobber(&mut self, copied: Option<i32>, state: &mut State) {
        let abi = self.abi;
        let lost = Value::lost(Why::Clobbered);
        self.site.c_loses(abi).iter().chain(abi.link).for_each(|reg| state.set(reg, lost));
        (state.flags, state.tested, state.compared) = (lost, None, None);
        let sp = state.get(abi.sp).on_stack().unwrap_or(0);
        state.memory.forget_below(sp);
        (0..copied.unwrap_or(0)).for_each(|word| state.memory.store(sp + 8 * word, lost));
        if !self.general_only() {
            for (n, vector) in state.vectors.iter_mut().enumerate() {
                // Of those that it must keep, arm64 has the lower half only.
                let kept = if abi.vector_callee_saved.contains(&(n as u8)) { 1 } else { 0 };
                vector[kept..].fill(lost);
            }
        }
    }

    /// Handlers leave vector registers alone: nothing is known of the function and none is kept for it, or they were proven to.
    pub(super) fn general_only(&self) -> bool {
        self.contract.vectors_kept == 0 && self.contract.kind.live().is_none_or(|live| live.general_callee)
    }

    /// General registers hold what they held at the site, or what a handler stored for them.
    pub(super) fn keeps(&mut self, line: usize, kept: RegSet, state: &State) {
        for reg in kept.iter() {
            let wanted = self.left(Content::Reg(reg), state).unwrap_or(self.start.get(reg));
            self.same(line, Property::Registers, self.abi.name(reg), wanted, state.get(reg));
        }
    }

    /// Vector registers hold what they held at the site: all of them, or those that carry arguments.
    pub(super) fn keeps_vectors(&mut self, line: usize, state: &State) {
        let saved = self.contract.kind.live().map_or(0, Live::saved_vectors);
        for vector in self.due(self.abi.vector_args, saved.into(), self.contract.vectors_kept) {
            self.same_vector(line, Property::Registers, vector, self.start.vector(vector), state);
        }
    }

    /// The vector registers that must have their value: all, where handlers use general registers only; else the first so many
    /// of `carriers`, and `named` ones, by their numbers as bits.
    pub(super) fn due(&self, carriers: &[u8], saved: usize, named: u32) -> Vec<u8> {
        let (all, some) = (self.general_only(), &carriers[..saved.min(carriers.len())]);
        let every = 0..self.machine.vectors.len() as u8;
        every.filter(|vector| all || some.contains(vector) || named >> vector & 1 == 1).collect()
    }
}

/// What a handler stores here takes effect: slots of vector registers and frame records are never shown.
fn takes_effect(field: &Field) -> bool {
    let told = !matches!(
        field.content,
        Content::Vector(_) | Content::VectorResult(_) | Content::Unfilled | Content::Const(_) | Content::Cookie
    );
    told && !field.in_record && field.stores == Stores::TakeEffect
}
