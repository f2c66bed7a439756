//! Demands: the moment, the place and the value of each promise of a trampoline. [`Contract::demands`] is the one list of them.
//!
//! The symbolic checker and the emulator's judge both read the list, and each determines the actual values by itself.
//! Terms refer to the traced function's state at its site, or to the state at the entry if no site leads there. If a
//! handler's store to a member of the frame takes effect, the stored value replaces that member's value from then on.

use std::fmt;

use crate::arch::harden::{ReturnGuard, scs};
use crate::ask::frame::{Content, Field};
use crate::ask::kind::{Calls, Gives, Keeps, Kind};
use crate::ask::live::Live;
use crate::contract::Contract;
use crate::words::abi::{Abi, Reg, RegSet};
use crate::words::program::{Attach, called};
use crate::words::step::ExitPath;
use crate::words::term::{Root, Term};

/// A call that a contract demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    /// The callback of an entry trampoline.
    Callback,
    /// The function that a direct-call trampoline is for, or the entry handler of a paired one.
    Named,
    /// The program with this number.
    Program(usize),
    /// The function before the program with this number, or, with the number behind the last one, that before all.
    Before(usize),
    /// The function after it.
    After(usize),
    /// The traced function.
    Body,
    /// The exit handler of a paired trampoline.
    Exit,
    /// The exit handler of a redirected return.
    ExitHandler,
    /// The kernel, by a system call.
    Kernel,
    /// The context that a switch goes to, until that switches back.
    Context,
}

/// The moment at which a demand must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// The call with this index in [`Contract::calls`].
    Call(usize),
    /// The way out.
    Leave(ExitPath),
}

/// The register or memory that a demand is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// A general register.
    Reg(Reg),
    /// A vector register, by its number.
    Vector(u8),
    /// The flags register.
    Flags,
    /// The slot of the frame with this index in the contract's layout.
    Slot(usize),
    /// The 8 bytes that this register points to.
    Pointee(Reg),
    /// The cookie in the run context that the function before a program is given.
    RunContext,
    /// A word of the callee's stack arguments.
    StackArgument(u8),
    /// SP; for a call of the traced function, SP at the function's entry.
    Sp,
    /// The address at which execution continues.
    Next,
    /// The return address of the function that goes on: the link register, or the word at SP.
    ReturnAddress,
    /// The place where a patched site leaves pc for its trampoline.
    Pc,
    /// The place where a patched site leaves parent_ip for its trampoline.
    ParentIp,
}

/// The value required at a spot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holds {
    /// This value.
    Is(Term),
    /// Any value that the trampoline wrote.
    Written,
    /// A multiple of this many bytes; for the traced function, its distance from its caller's SP is such a multiple.
    Multiple(u32),
}

/// One promise of a contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The moment.
    pub moment: Moment,
    /// The place.
    pub spot: Spot,
    /// The required value.
    pub holds: Holds,
}

impl Demand {
    /// The demand's name, stable between versions: `call1.rdi`, `call1.slot:pc`, `function.rbx`, `parent.next`. A slot has
    /// the name of its member, or the name in the assembly text if no struct has it.
    pub fn id<'d>(&'d self, contract: &'d Contract) -> impl fmt::Display + 'd {
        Id { demand: self, contract }
    }
}

struct Id<'d> {
    demand: &'d Demand,
    contract: &'d Contract,
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Id { demand: Demand { moment, spot, holds }, contract } = self;
        let abi = &contract.facts.abi;
        match moment {
            Moment::Call(n) => write!(f, "call{}.", n + 1)?,
            Moment::Leave(way) => write!(f, "{}.", way.name())?,
        }
        match spot {
            Spot::Reg(reg) => f.write_str(abi.name(*reg)),
            Spot::Vector(n) => write!(f, "vector{n}"),
            Spot::Flags => f.write_str("flags"),
            Spot::Slot(n) => write!(f, "slot:{}", contract.frame.fields.get(*n).map_or("", Field::name)),
            Spot::Pointee(reg) => write!(f, "[{}]", abi.name(*reg)),
            Spot::RunContext => f.write_str("run-context"),
            Spot::StackArgument(n) => write!(f, "argument:stack{n}"),
            Spot::Sp if matches!(holds, Holds::Multiple(_)) => f.write_str("sp-align"),
            Spot::Sp => f.write_str("sp"),
            Spot::Next => f.write_str("next"),
            Spot::ReturnAddress => f.write_str("return-address"),
            Spot::Pc => f.write_str("pc"),
            Spot::ParentIp => f.write_str("parent_ip"),
        }
    }
}

impl Contract {
    /// The demanded calls, in order.
    pub fn calls(&self) -> Vec<Called> {
        let body = self.kind.calls_body().then_some(Called::Body);
        match self.kind.traits().calls {
            Calls::Nothing => body.into_iter().collect(),
            Calls::Callback => vec![Called::Callback],
            Calls::ExitHandler => vec![Called::ExitHandler],
            Calls::Kernel => vec![Called::Kernel],
            Calls::Context => vec![Called::Context],
            Calls::Named => vec![Called::Named],
            Calls::Handlers => vec![Called::Named, Called::Body, Called::Exit],
            Calls::Programs => {
                let (each, all) = (&self.stated.around_programs, &self.stated.around_function);
                let around =
                    |n: usize, there: bool| [Called::Before(n), Called::After(n)].map(|call| there.then_some(call));
                let of = |at| {
                    called(&self.programs, at).flat_map(|n| {
                        let [before, after] = around(n, n < each.len());
                        [before, Some(Called::Program(n)), after]
                    })
                };
                let [first, last] = around(each.len(), all.is_some());
                let before = [first].into_iter().chain(of(Attach::BEFORE)).chain([body]);
                before.chain(of(Attach::AFTER)).chain([last]).flatten().collect()
            }
        }
    }

    /// All promises about values, at each call and on each way out.
    pub fn demands(&self) -> Vec<Demand> {
        let calls = self.calls();
        let body = calls.iter().position(|call| *call == Called::Body);
        let mut list = List { contract: self, moment: Moment::Call(0), demands: Vec::new() };
        for (n, call) in calls.iter().enumerate() {
            list.moment = Moment::Call(n);
            match call {
                Called::Body => list.body(),
                Called::Kernel => list.kernel(),
                Called::Context => list.context(),
                call => list.handler(*call, body.is_some_and(|body| n > body)),
            }
        }
        for way in ExitPath::ALL {
            list.moment = Moment::Leave(way);
            list.way(way);
        }
        list.demands
    }

    /// Is this one of its ways out?
    pub fn leaves_by(&self, way: ExitPath) -> bool {
        let leaves = self.kind.traits().leaves;
        match way {
            ExitPath::Direct => self.direct,
            ExitPath::DirectJump => self.direct_jumps,
            ExitPath::EarlyDirect => self.early_direct,
            ExitPath::Skipped if self.kind.is_function() => true,
            ExitPath::Skipped => self.kind.calls_body() && self.programs.iter().any(|p| p.attach == Attach::FmodRet),
            // For whoever called it, a sled is a C function.
            ExitPath::Caller => self.kind.is_called() || leaves == way,
            // If the shadow stack has no room, the function goes on untraced.
            ExitPath::Function => {
                (leaves == way || self.kind.recorder().is_some_and(|r| r.shadow)) && !self.kind.is_called()
            }
            ExitPath::Parent => leaves == way,
        }
    }

    /// The register with the shadow call stack, if the trampoline returns by it.
    pub fn scs(&self) -> Option<Reg> {
        scs(self.guard, &self.facts.abi)
    }

    /// The registers that C functions preserve which the trampoline calls.
    pub fn c_keeps(&self) -> RegSet {
        self.convention.site.c_keeps(&self.facts.abi).union(RegSet::from_iter(self.scs()))
    }

    /// The registers that its callees may clobber.
    pub fn c_loses(&self) -> RegSet {
        if let Some(kept) = self.stated.callee_keeps {
            let abi = &self.facts.abi;
            return abi.callee_saved.union(abi.caller_saved).minus(kept);
        }
        self.convention.site.c_loses(&self.facts.abi).minus(RegSet::from_iter(self.scs()))
    }

    /// The general registers that are preserved on a way out, or when the traced function is called.
    pub fn kept_on(&self, way: ExitPath) -> RegSet {
        match way {
            ExitPath::Direct | ExitPath::DirectJump => self.kept.minus(self.direct_lost),
            ExitPath::Parent | ExitPath::Skipped if !self.kind.returned_to() => self.c_keeps(),
            _ => self.kept,
        }
    }

    /// The general registers, besides callee-saved ones, that have the traced function's values when its caller goes on.
    pub fn results(&self) -> RegSet {
        let abi = &self.facts.abi;
        match (self.kind.programs(), self.kind.traits().keeps) {
            (Some(programs), _) => programs.result.regs,
            (_, Keeps::AllButLinkage) => self.kept.minus(self.c_keeps()),
            _ => RegSet::of(abi.rets),
        }
    }

    /// Must callees leave vector registers alone? Yes if nothing is known of the function and none is saved for it, or if they were
    /// proven to.
    pub fn leaves_vectors(&self) -> bool {
        self.vectors_kept == 0 && self.kind.live().is_none_or(|live| live.general_callee) && !self.kind.is_boundary()
    }

    /// The vector registers that must be preserved: all, if handlers leave them alone; else the first `saved` of `carriers`, and
    /// those of the bit mask `named`.
    fn due(&self, carriers: &[u8], saved: u8, named: u32) -> Vec<u8> {
        let (all, some) = (self.leaves_vectors(), &carriers[..carriers.len().min(saved.into())]);
        let every = 0..self.facts.abi.vectors;
        every.filter(|vector| all || some.contains(vector) || named >> vector & 1 == 1).collect()
    }

    /// The moment at which this is called: `over`, behind the traced function.
    pub fn moment(&self, called: Called, over: bool) -> Option<Moment> {
        let calls = self.calls();
        let body = calls.iter().position(|call| *call == Called::Body).filter(|_| over);
        let behind = body.map_or(0, |body| body + 1);
        let found = calls.iter().skip(behind).position(|call| *call == called);
        found.map(|n| Moment::Call(behind + n))
    }

    /// The offset in the frame of the context that programs get, in bytes.
    pub fn context(&self) -> i32 {
        let count = self.frame.fields.iter().find(|field| matches!(field.content, Content::Const(_)));
        count.map_or(0, |field| field.offset + 8)
    }
}

struct List<'c> {
    contract: &'c Contract,
    moment: Moment,
    demands: Vec<Demand>,
}

impl List<'_> {
    fn add(&mut self, spot: Spot, holds: Holds) {
        self.demands.push(Demand { moment: self.moment, spot, holds });
    }

    fn is(&mut self, spot: Spot, value: impl Into<Term>) {
        self.add(spot, Holds::Is(value.into()));
    }

    fn abi(&self) -> &'static Abi {
        &self.contract.facts.abi
    }

    /// Demand a handler's arguments, and the slots of its frame. `over`: the traced function has returned.
    fn handler(&mut self, call: Called, over: bool) {
        self.add(Spot::Sp, Holds::Multiple(self.contract.stack_align));
        let (abi, kind) = (self.abi(), self.contract.kind);
        let given = |n: usize| abi.args.get(n).copied();
        let gives = kind.traits().gives;
        match (gives, call) {
            (Gives::Frame, Called::Callback | Called::Named) => {
                for value in [Root::Ip, Root::ParentIp, Root::Op, Root::Frame] {
                    let position = value.told().and_then(|told| self.contract.position(told));
                    position.and_then(given).into_iter().for_each(|reg| self.is(Spot::Reg(reg), value.clone()));
                }
            }
            (Gives::Frame, _) => abi.args.iter().take(1).for_each(|reg| self.is(Spot::Reg(*reg), Root::Frame)),
            (_, Called::Program(n)) => {
                let context = Term::from(Root::Frame).plus(self.contract.context().into());
                given(0).into_iter().for_each(|reg| self.is(Spot::Reg(reg), context.clone()));
                if self.contract.stated.around_programs.is_empty() {
                    let cookie = self.contract.programs.get(n).map_or(0, |program| program.cookie);
                    given(1).into_iter().for_each(|reg| self.is(Spot::Pointee(reg), Term::number(cookie)));
                }
            }
            (_, Called::Before(n) | Called::After(n)) => return self.around(n, matches!(call, Called::After(_))),
            (_, Called::Exit) => {
                for (&reg, &ret) in abi.args.iter().zip(abi.rets) {
                    self.is(Spot::Reg(reg), Root::Body(ret));
                }
            }
            _ => self.passed(),
        }
        if gives != Gives::Arguments {
            self.slots(call, over);
        }
    }

    /// Demand what the functions around program `n`, or around all, are given: `last`, what the first has returned, too.
    fn around(&mut self, n: usize, last: bool) {
        let Some(around) = self.contract.stated.brackets().nth(n).flatten() else { return };
        let (abi, program) = (self.abi(), self.contract.stated.around_programs.get(n));
        let argument = around.argument.as_ref().map(|name| Root::Symbol((**name).into()));
        argument.into_iter().zip(abi.args).for_each(|(name, reg)| self.is(Spot::Reg(*reg), name));
        if !last {
            let cookie = program.and_then(|program| program.cookie);
            cookie.into_iter().for_each(|cookie| self.is(Spot::RunContext, Term::number(cookie)));
            return;
        }
        let (Some(_), Moment::Call(call), Some(reg)) = (program, self.moment, abi.args.get(1)) else { return };
        // Behind the function before the program comes the program, then this one.
        let start = abi.rets.first().map(|ret| Root::Left(call.saturating_sub(1) as u16, *ret));
        start.into_iter().for_each(|start| self.is(Spot::Reg(*reg), start));
    }

    /// Demand that a C function gets the traced function's own arguments, behind ip if it wants ip.
    fn passed(&mut self) {
        let (abi, direct) = (self.abi(), self.contract.kind.passes().unwrap_or_default());
        let ip = direct.ip.then_some(Root::Ip);
        let own = abi.args.iter().take(direct.args.into()).map(|reg| Root::Reg(*reg));
        for (root, reg) in ip.into_iter().chain(own).zip(abi.args) {
            self.is(Spot::Reg(*reg), root);
        }
        let Some(live) = direct.live else { return };
        for reg in live.regs.minus(RegSet::of(abi.args)).iter() {
            self.is(Spot::Reg(reg), Root::Reg(reg));
        }
        for &vector in abi.vector_args.iter().take(live.vectors.into()) {
            self.is(Spot::Vector(vector), Root::Vector(vector));
        }
        self.stack_arguments(live.stack.into());
    }

    fn stack_arguments(&mut self, words: i32) {
        let sp = Term::from(Root::Reg(self.abi().sp)).plus(self.abi().return_bytes() as i64);
        for word in 0..words {
            self.is(Spot::StackArgument(word as u8), sp.clone().plus(i64::from(8 * word)).content());
        }
    }

    fn slots(&mut self, call: Called, over: bool) {
        let contract = self.contract;
        for (n, field) in contract.frame.fields.iter().enumerate() {
            if let Some(holds) = self.slot(field, call, over) {
                self.add(Spot::Slot(n), holds);
            }
        }
    }

    /// The value required in a slot of a handler's frame.
    fn slot(&self, field: &Field, call: Called, over: bool) -> Option<Holds> {
        let (abi, kind) = (self.abi(), self.contract.kind);
        let is = |root: Root| Some(Holds::Is(root.into()));
        let around = over && kind.around().is_some();
        match field.content {
            Content::Result(reg) if abi.rets.contains(&reg) => self.result(reg, call, over),
            // The slot has the tail call counter that the program returned.
            Content::Reg(reg) if over && kind.programs().and_then(|p| p.tail_call).is_some_and(|c| c.reg == reg) => {
                None
            }
            Content::Vector(vector) if kind == Kind::Closure => is(Root::Vector(vector)),
            Content::Result(_)
            | Content::Own(_)
            | Content::Vector(_)
            | Content::VectorResult(_)
            | Content::Cookie
            | Content::Unfilled => None,
            // The value was released with the frame.
            _ if around && kind.is_shadow() => None,
            // The value from before the function is still in the slot.
            _ if around => Some(Holds::Written),
            Content::Pc if kind == Kind::Rethook => is(Root::Symbol(self.contract.name.as_str().into())),
            // Tracers differ in the values of these after the function's end.
            Content::Pc | Content::ParentIp | Content::SiteSp | Content::Direct if kind.returned_to() => {
                Some(Holds::Written)
            }
            Content::Reg(reg) => is(Root::Reg(reg)),
            Content::StackWord(n) => {
                let sp = Term::from(Root::Reg(abi.sp)).plus(abi.return_bytes() as i64 + 8 * i64::from(n));
                Some(Holds::Is(sp.content()))
            }
            Content::Ip => match self.contract.traced.as_ref().filter(|_| self.contract.stated.ip_is_start) {
                Some(traced) => Some(Holds::Is(Term::from(Root::Pc).plus(-i64::from(traced.resume)))),
                None => is(Root::Ip),
            },
            Content::Pc => is(Root::Pc),
            // No term is a signature. Whoever looks at records takes it away.
            Content::ParentIp if field.in_record && self.contract.guard == Some(ReturnGuard::Signed) => None,
            Content::ParentIp => is(Root::ParentIp),
            Content::SiteSp | Content::ExitSp => is(Root::Reg(abi.sp)),
            Content::Flags => is(Root::Flags),
            Content::Const(n) => Some(Holds::Is(Term::number(self.meta().unwrap_or(n.into())))),
            Content::Direct | Content::Session(_) => Some(Holds::Is(Term::number(0))),
        }
    }

    /// The value required of a result: the function's, and before its call 0, for programs that may decide it and for sessions.
    fn result(&self, reg: Reg, call: Called, over: bool) -> Option<Holds> {
        if over || self.contract.kind.returned_to() {
            return Some(Holds::Is(Root::Body(reg).into()));
        }
        let programs = self.contract.kind.programs()?;
        let Called::Program(n) = call else { return None };
        let decides = self.contract.programs.get(n).is_some_and(|p| p.attach == Attach::FmodRet);
        let first = self.abi().rets.first() == Some(&reg);
        (programs.has_sessions() || decides && first).then(|| Holds::Is(Term::number(0)))
    }

    /// The value of the word before a context when this program is called.
    fn meta(&self) -> Option<i64> {
        let (programs, calls) = (self.contract.kind.programs()?, self.contract.calls());
        let Moment::Call(n) = self.moment else { return None };
        let (at, from) = match calls.iter().position(|call| *call == Called::Body) {
            Some(body) if n > body => (Attach::AFTER, body),
            _ => (Attach::BEFORE, 0),
        };
        let before = calls.get(from..n).unwrap_or_default().iter();
        let call = before.filter(|call| matches!(call, Called::Program(_))).count();
        Some(programs.meta_of(&self.contract.programs, at, call))
    }

    /// Demand that the traced function gets the state of its site.
    fn body(&mut self) {
        self.add(Spot::Sp, Holds::Multiple(self.contract.stated.body_align.unwrap_or(self.abi().sp_align)));
        if self.contract.kind.is_shadow() {
            self.is(Spot::Sp, Root::Reg(self.abi().sp));
        }
        let scs = self.contract.scs();
        self.kept(self.contract.kept.minus(self.contract.stated.own).minus(RegSet::from_iter(scs)));
        // Its last entry is the trampoline's.
        scs.into_iter().for_each(|reg| self.is(Spot::Reg(reg), Term::from(Root::Reg(reg)).plus(8)));
        self.vectors();
        self.stack_arguments(self.contract.kind.copied_words());
    }

    /// Demand that the kernel gets the number of the call and its arguments.
    fn kernel(&mut self) {
        let Some(syscall) = self.contract.kind.syscall() else { return };
        let abi = self.abi();
        self.is(Spot::Reg(abi.syscall.number), Term::number(syscall.number.into()));
        for (reg, arg) in abi.syscall.args.iter().zip(abi.args).take(syscall.args.into()) {
            self.is(Spot::Reg(*reg), Root::Reg(*arg));
        }
    }

    /// Demand that the other context goes on as it was left.
    fn context(&mut self) {
        let abi = self.abi();
        let sp = Term::from(Root::Entered(abi.sp));
        let parent = abi.link.map_or_else(|| sp.clone().content(), |link| Root::Entered(link).into());
        self.is(Spot::Next, parent);
        self.is(Spot::Sp, sp.plus(abi.return_bytes() as i64));
        for reg in self.contract.kept.iter() {
            self.is(Spot::Reg(reg), Root::Entered(reg));
        }
    }

    fn kept(&mut self, kept: RegSet) {
        for reg in kept.iter() {
            self.is(Spot::Reg(reg), Root::Reg(reg));
        }
    }

    /// Demand that vector registers are preserved.
    fn vectors(&mut self) {
        let contract = self.contract;
        if contract.kind.is_boundary() {
            let all = 0..self.abi().vectors;
            all.filter(|vector| contract.vectors_kept >> vector & 1 == 1)
                .for_each(|vector| self.is(Spot::Vector(vector), Root::Vector(vector)));
            return;
        }
        let saved = contract.kind.live().map_or(0, Live::saved_vectors);
        for vector in contract.due(self.abi().vector_args, saved, contract.vectors_kept) {
            self.is(Spot::Vector(vector), Root::Vector(vector));
        }
    }

    fn way(&mut self, way: ExitPath) {
        let contract = self.contract;
        if !contract.leaves_by(way) {
            return;
        }
        self.goes_on(way);
        self.kept(contract.kept_on(way));
        if matches!(way, ExitPath::Parent | ExitPath::Skipped) && !contract.kind.returned_to() {
            self.results(way);
            return;
        }
        if let (Some(_), Some(ret)) = (contract.kind.syscall(), self.abi().rets.first()) {
            // Where that is no error.
            self.is(Spot::Reg(*ret), Root::Left(1, *ret));
        }
        if contract.flags_kept && !matches!(way, ExitPath::Caller | ExitPath::EarlyDirect) {
            self.is(Spot::Flags, Root::Flags);
        }
        self.vectors();
    }

    /// Demand the address at which execution continues, SP and the return address.
    fn goes_on(&mut self, way: ExitPath) {
        let (abi, contract) = (self.abi(), self.contract);
        let sp = Term::from(Root::Reg(abi.sp));
        let behind_return = sp.clone().plus(abi.return_bytes() as i64);
        let called = sp.clone().plus(-i64::from(contract.convention.site.pushed));
        let direct = Term::from(Root::Direct);
        match way {
            ExitPath::Function => {
                self.is(Spot::Next, Root::Pc);
                self.is(Spot::Sp, sp);
                self.is(Spot::ReturnAddress, Root::ParentIp);
            }
            ExitPath::Direct | ExitPath::EarlyDirect => {
                self.is(Spot::Next, direct);
                self.is(Spot::Sp, called);
                self.is(Spot::Pc, Root::Pc);
                self.is(Spot::ParentIp, Root::ParentIp);
            }
            // Bit 0 of the address means that the site would jump.
            ExitPath::DirectJump => {
                self.is(Spot::Next, direct.plus(-1));
                self.is(Spot::Sp, sp);
                self.is(Spot::ReturnAddress, Root::ParentIp);
            }
            ExitPath::Parent | ExitPath::Skipped => {
                let parent = self.parent();
                self.is(Spot::Next, parent.clone());
                self.is(Spot::Sp, if contract.kind.returned_to() { sp } else { behind_return });
                abi.link.into_iter().for_each(|link| self.is(Spot::Reg(link), parent.clone()));
            }
            ExitPath::Caller => {
                self.is(Spot::Next, Root::ParentIp);
                self.is(Spot::Sp, behind_return);
            }
        }
    }

    /// The origin of `parent_ip`: the exit handler's return value if the handlers keep it, else the stack.
    fn parent(&self) -> Root {
        let (kind, calls) = (self.contract.kind, self.contract.calls());
        let kept = kind.is_shadow() && calls.last() == Some(&Called::Exit);
        match self.abi().rets.first() {
            Some(ret) if kept || kind.returned_to() => Root::Left(calls.len() as u16, *ret),
            _ => Root::ParentIp,
        }
    }

    /// Demand the traced function's results, as the last handler left them.
    fn results(&mut self, way: ExitPath) {
        let (abi, kind) = (self.abi(), self.contract.kind);
        let programs = kind.programs();
        // If the function was skipped, a program's result is in the first register.
        let made = |reg: &Reg| way != ExitPath::Skipped || abi.rets.first() == Some(reg);
        for reg in self.contract.results().iter().filter(made) {
            self.is(Spot::Reg(reg), Root::Body(reg));
        }
        if let Some(counted) = programs.and_then(|programs| programs.tail_call).filter(|counted| counted.returned) {
            // If the function ran, it has updated the counter.
            let root = if way == ExitPath::Skipped { Root::Reg(counted.reg) } else { Root::Body(counted.reg) };
            self.is(Spot::Reg(counted.reg), root);
        }
        if way == ExitPath::Skipped {
            return;
        }
        let some = programs.map_or(0, |programs| programs.result.vectors);
        let named = abi.vector_rets.iter().fold(0, |bits, vector| bits | 1 << vector) & self.contract.vectors_kept;
        for vector in self.contract.due(abi.vector_rets, some, named) {
            self.is(Spot::Vector(vector), Root::BodyVector(vector));
        }
    }
}
