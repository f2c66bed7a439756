//! Demands of the contract, at a call or on a way out: what is there, against what must be.

use super::value::{Root, State, Value, Why};
use super::{Broken, Checker, Fault, Property};
use crate::ask::frame::{Content, Field, Stores};
use crate::ask::kind::Gives;
use crate::contract::demand::{Called, Demand, Holds, Moment, Spot};
use crate::words::abi::{Loc, Reg};
use crate::words::program::Attach;
use crate::words::step::{ExitPath, Sym};
use crate::words::term::{Root as TermRoot, Term};

/// The moment, with SP and the address at which it goes on.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub moment: Moment,
    pub sp: i32,
    pub goes_to: Value,
}

impl At {
    /// The call with this number.
    pub fn call(n: usize, sp: i32) -> At {
        At { moment: Moment::Call(n), sp, goes_to: Value::lost(Why::Computed) }
    }
}

impl Checker<'_> {
    /// Every demand of this moment holds. Returns where the frame is that a handler is shown, if it is shown one.
    pub(super) fn holds(&mut self, line: usize, at: At, state: &State) -> Option<i32> {
        let demands = std::mem::take(&mut self.demands);
        let here = || demands.iter().filter(|demand| demand.moment == at.moment);
        let frame = here().find_map(|demand| Some((demand, self.frame_of(demand, state)?)));
        let base = frame.and_then(|(demand, value)| {
            let base = value.on_stack();
            if base.is_none() {
                self.breaks(line, Property::Arguments, demand, value);
            }
            base
        });
        for demand in here() {
            self.demand(line, demand, base, at, state);
        }
        self.demands = demands;
        base
    }

    /// The address that a handler is given as that of its frame, where the demand is of one.
    fn frame_of(&self, demand: &Demand, state: &State) -> Option<Value> {
        match (&demand.holds, demand.spot) {
            (Holds::Is(Term { root: TermRoot::Frame, add, .. }), Spot::Reg(reg)) => Some(state.get(reg).plus(-add)),
            _ => None,
        }
    }

    fn breaks(&mut self, line: usize, property: Property, demand: &Demand, found: Value) {
        let (spot, there) = (demand.id(self.contract), self.tell(found));
        let what = match &demand.holds {
            Holds::Is(wanted) => format!("{spot} is {there}, not {}", wanted.show(self.abi)),
            Holds::Written => format!("{spot} was never stored"),
            Holds::Multiple(align) => format!("{spot} is {there}, which is no multiple of {align}"),
        };
        let broken = Some(Box::new(Broken { demand: demand.clone(), found: self.term(found) }));
        self.faults.push(Fault { line, property, broken, what });
    }

    fn demand(&mut self, line: usize, demand: &Demand, base: Option<i32>, at: At, state: &State) {
        let property = self.property(demand);
        if let (Spot::Vector(n), Holds::Is(term)) = (demand.spot, &demand.holds) {
            let (found, wanted) = (state.vector(n), self.vector(&term.root));
            if let Some(half) = (0..self.words()).find(|half| !found[*half].is(wanted[*half])) {
                self.breaks(line, property, demand, found[half]);
            }
            return;
        }
        let slot = self.slot(demand.spot, base);
        let Some(found) = self.found(demand.spot, slot, at, state) else { return };
        let holds = match &demand.holds {
            Holds::Is(Term { root: TermRoot::Frame, .. }) => true,
            Holds::Is(term) => {
                let stored = slot.and_then(|(field, place)| self.stored_by(field, place, found, state));
                let wanted = stored.or_else(|| self.value(term, at.moment, slot, state));
                // What a callback made of pc is for those who go on in the function: a direct trampoline may find either.
                let direct = demand.spot == Spot::Pc && found.is(self.pc);
                direct
                    || match wanted {
                        Some(wanted) => found.is(wanted),
                        // The listing does not name the symbol: whether anything was stored can be asked.
                        None if matches!(term.root, TermRoot::Symbol(_)) => found != Value::lost(Why::Unwritten),
                        None => true,
                    }
            }
            Holds::Written => found != Value::lost(Why::Unwritten),
            Holds::Multiple(align) => self.is_multiple(*align, found, at),
        };
        if !holds {
            self.breaks(line, property, demand, found);
        }
    }

    /// The value at a spot, as the callee or the code that goes on finds it; `None` if the place is not known.
    fn found(&self, spot: Spot, slot: Option<(&Field, i32)>, at: At, state: &State) -> Option<Value> {
        let placed = |loc: Loc| match loc {
            Loc::Reg(reg) => state.get(reg),
            Loc::Stack(offset) => state.memory.load(at.sp + offset),
        };
        Some(match spot {
            Spot::Reg(reg) => state.get(reg),
            Spot::Flags => state.flags,
            Spot::StackArgument(n) => state.memory.load(at.sp + 8 * i32::from(n)),
            Spot::Pointee(reg) => self.pointee(state.get(reg), state),
            Spot::RunContext => self.pointee(self.argument(1, state), state),
            Spot::Slot(_) => state.memory.load(slot?.1),
            Spot::Sp if self.is_body(at.moment) => Value::stack(at.sp - self.abi.return_bytes() as i32),
            Spot::Sp => Value::stack(at.sp),
            Spot::Next => at.goes_to,
            Spot::ReturnAddress => placed(self.abi.link.map_or(Loc::Stack(0), Loc::Reg)),
            Spot::Pc => placed(self.site.pc),
            Spot::ParentIp => placed(self.site.parent_ip),
            Spot::Vector(_) => return None,
        })
    }

    fn pointee(&self, pointer: Value, state: &State) -> Value {
        pointer.on_stack().map_or(Value::lost(Why::Computed), |place| state.memory.load(place))
    }

    fn slot(&self, spot: Spot, base: Option<i32>) -> Option<(&'_ Field, i32)> {
        let Spot::Slot(n) = spot else { return None };
        let field = self.contract.frame.fields.get(n)?;
        Some((field, base? + field.offset))
    }

    fn is_body(&self, moment: Moment) -> bool {
        matches!(moment, Moment::Call(n) if self.calls.get(n) == Some(&Called::Body))
    }

    /// The function's caller knows where its stack is: a call must be as far from there as any other of its calls.
    fn is_multiple(&self, align: u32, found: Value, at: At) -> bool {
        let off =
            found.on_stack().map(|sp| if self.is_body(at.moment) { self.site_sp - sp } else { self.entry_sp + sp });
        off.is_some_and(|off| off.rem_euclid(align.max(1) as i32) == 0)
    }

    fn property(&self, demand: &Demand) -> Property {
        match (demand.moment, demand.spot) {
            (_, Spot::Sp) if matches!(demand.holds, Holds::Multiple(_)) => Property::Alignment,
            (_, Spot::Sp) => Property::Stack,
            (_, Spot::Next | Spot::ReturnAddress | Spot::Pc | Spot::ParentIp) => Property::Way,
            (Moment::Call(_), Spot::Slot(_)) => Property::Frame,
            (moment, Spot::Reg(_) | Spot::Vector(_)) if self.is_body(moment) => Property::Registers,
            (Moment::Call(_), _) => Property::Arguments,
            (Moment::Leave(_), Spot::Flags) => Property::Flags,
            (Moment::Leave(_), _) => Property::Registers,
        }
    }

    /// The value that an earlier handler may have stored to the slot.
    fn stored_by(&self, field: &Field, place: i32, found: Value, state: &State) -> Option<Value> {
        if let Content::Result(_) = field.content {
            // Before there is a result, a program that may decide it, or one beside a session, may store one.
            let stored = |call: u8| self.has_sessions() || self.may_decide(call.into());
            let early = !state.returned && state.skipped_by.is_none();
            let by_program = matches!(found.root, Root::Left(at, call) if at == place && stored(call));
            return (early && by_program).then_some(found);
        }
        let (_, call) = state.shown.filter(|_| takes_effect(field))?;
        Some(Value::of(Root::Left(place, call)))
    }

    fn vector(&self, root: &TermRoot) -> [Value; 2] {
        match *root {
            TermRoot::Vector(n) => self.start.vector(n),
            TermRoot::BodyVector(n) => [0, 1].map(|half| Value::of(Root::BodyVector(n, half))),
            _ => [Value::lost(Why::Computed); 2],
        }
    }

    /// The value of a term at this moment; `None` if it is unknown on this way.
    fn value(&self, term: &Term, moment: Moment, slot: Option<(&Field, i32)>, state: &State) -> Option<Value> {
        let abi = self.abi;
        let to_parent = matches!(moment, Moment::Leave(ExitPath::Parent | ExitPath::Skipped));
        let value = match &term.root {
            TermRoot::Number => Value::number(0),
            TermRoot::Reg(reg) if *reg == abi.sp => Value::stack(self.site_sp),
            // For the parent, a handler's store to what C keeps has no effect.
            TermRoot::Reg(reg) if to_parent && self.contract.kind.calls_body() => self.start.get(*reg),
            TermRoot::Reg(reg) => self.left(Content::Reg(*reg), state).unwrap_or(self.start.get(*reg)),
            TermRoot::Flags => self.left(Content::Flags, state).unwrap_or(Value::of(Root::Flags)),
            TermRoot::Body(reg) => self.result(*reg, moment, slot, state)?,
            TermRoot::Pc => self.left(Content::Pc, state).unwrap_or(self.pc),
            TermRoot::Ip => self.pc.plus(-i64::from(self.site.ip_offset)),
            TermRoot::ParentIp => self.left(Content::ParentIp, state).unwrap_or(Value::of(Root::Parent)),
            TermRoot::Op => self.op,
            TermRoot::Direct if moment == Moment::Leave(ExitPath::EarlyDirect) => {
                self.early.map_or(Value::lost(Why::Computed), |op| Value::of(Root::OpField(op.direct_call)))
            }
            TermRoot::Direct => self.left(Content::Direct, state)?,
            TermRoot::Symbol(name) => {
                let known = self.symbols.iter().position(|s| s.name == &**name && s.add == 0);
                Value::of(Root::Symbol(Sym(known? as u8)))
            }
            TermRoot::Left(call, _) => Value::of(Root::Returned(call.saturating_sub(1) as u8)),
            TermRoot::Content(at) if at.root == TermRoot::Reg(abi.sp) => {
                Value::of(Root::Word(self.site_sp + i32::try_from(at.add).ok()?))
            }
            _ => Value::lost(Why::Computed),
        };
        Some(value.plus(term.add))
    }

    /// A result register, as the function left it, the program that stands for it, or the last handler that was shown it.
    fn result(&self, reg: Reg, moment: Moment, slot: Option<(&Field, i32)>, state: &State) -> Option<Value> {
        let (abi, kind) = (self.abi, self.contract.kind);
        if !abi.rets.contains(&reg) {
            return Some(Value::of(Root::Body(reg)));
        }
        let instead = |call| (abi.rets.first() == Some(&reg)).then_some(Value::of(Root::Returned(call)));
        let shown = match (moment, kind.traits().gives) {
            (Moment::Call(_), _) => state.results.is_some() && slot.is_some(),
            (_, Gives::Context) => self.calls.last().is_some_and(|c| *c != Called::Body) && state.results.is_some(),
            (_, Gives::Frame) => true,
            (_, Gives::Arguments) => false,
        };
        match (shown, slot, state.skipped_by) {
            (true, Some((_, place)), _) => state.results.map(|call| Value::of(Root::Left(place, call))),
            (true, None, _) => self.left(Content::Result(reg), state),
            (false, _, None) => Some(Value::of(Root::Body(reg))),
            (false, _, Some(call)) => instead(call),
        }
    }

    /// What a handler stored to the frame takes effect where that is promised; its cookie is its own.
    pub(super) fn stored(&mut self, base: i32, call: u8, state: &mut State) {
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
        self.contract.kind.programs().is_some_and(|programs| programs.has_sessions())
    }

    /// Is this call that of a program whose result may stand for that of the traced function?
    pub(super) fn may_decide(&self, call: usize) -> bool {
        let Some(&Called::Program(n)) = self.calls.get(call) else { return false };
        self.contract.programs.get(n).is_some_and(|p| p.attach == Attach::FmodRet)
    }
}

/// Does a handler's store to the slot take effect? Handlers never get slots of vector registers and frame records.
fn takes_effect(field: &Field) -> bool {
    let shown = !matches!(
        field.content,
        Content::Vector(_) | Content::VectorResult(_) | Content::Unfilled | Content::Const(_) | Content::Cookie
    );
    shown && !field.in_record && field.stores == Stores::TakeEffect
}
