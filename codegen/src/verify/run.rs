//! Following a listing: what each instruction makes of registers, stack and way.

use super::records::with_offset_low;
use super::value::{Half, Root, State, Value, Why};
use super::{Checker, Code, Property};
use crate::contract::demand::Called;
use crate::effect::action::{Action, Cell, Part, Stored};
use crate::effect::effects::{Effects, Flow, Moves, SpEffect};
use crate::words::abi::Reg;
use crate::words::recorder::Recorder;
use crate::words::step::{ExitPath, Local, Mark, Sym};

/// The question that a branch tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Did a callback choose a direct trampoline?
    Direct,
    /// Is it one that the site jumps to?
    Jump,
    /// Does the `ftrace_ops` name one?
    Early,
    /// Did this call return anything but 0?
    Skip(u8),
    /// Did this call say that the program behind it is to be called?
    Enter(u8),
    /// Is there no room for this slot?
    Full(u8),
    /// Has the record in this slot no time?
    Untimed(u8),
    /// Is the shadow stack full?
    NoRoomToReturn,
    /// Is the entry so many bytes from the top another function's?
    AnotherEntry(i64),
    /// Is there one below such an entry?
    EntryBelow,
    /// What was put there on this way.
    Known(bool),
}

/// Where it goes on.
enum Then {
    Next,
    At(usize),
    /// On these ways, if any.
    Ways(Vec<(usize, State)>),
}

/// What is wrong where an entry is taken that is not there.
const EMPTY: &str = "the shadow stack is popped, which has nothing of this function";

impl Checker<'_> {
    /// Follow every way from the start.
    pub(super) fn run(&mut self) {
        self.landing_pad();
        let mut reached = vec![false; self.code.len()];
        let mut ways = vec![(0, self.start.clone())];
        let (mut followed, most) = (0, super::most_ways(self.contract));
        while let Some((mut at, mut state)) = ways.pop() {
            followed += 1;
            if followed > most {
                self.fault(at, Property::Control, "ways go round in a circle, and part there");
                break;
            }
            // No way is longer, if it is no circle.
            for _ in 0..=2 * self.code.len() {
                reached.get_mut(at).into_iter().for_each(|r| *r = true);
                let then = match self.code.get(at) {
                    None => {
                        self.fault(at, Property::Control, "a way runs on behind the end");
                        Then::Ways(Vec::new())
                    }
                    Some(Code::Insn(effects)) => self.step(at, *effects, &mut state),
                    Some(Code::Label(Local::Mark(Mark::Called))) => {
                        ways.extend(self.thrown(at, &state));
                        Then::Next
                    }
                    Some(_) => Then::Next,
                };
                match then {
                    Then::Next => at += 1,
                    Then::At(line) => at = line,
                    Then::Ways(more) => {
                        ways.extend(more);
                        at = usize::MAX;
                        break;
                    }
                }
            }
            if at != usize::MAX {
                self.fault(at, Property::Control, "a way goes round in a circle");
            }
        }
        // A fault ends its way: what is behind it says nothing then.
        for at in (0..self.code.len()).filter(|_| self.faults.is_empty()) {
            if let (Code::Insn(effects), false) = (self.code[at], reached[at])
                && effects.flow != Flow::Trap
            {
                self.fault(at, Property::Control, "no way comes to this instruction");
                break;
            }
        }
    }

    /// An indirect branch may come to the first instruction, unless only returns and direct branches do.
    fn landing_pad(&mut self) {
        let wanted = self.contract.entry_pad;
        let first = self.code.iter().find_map(|c| if let Code::Insn(e) = c { Some(e.action) } else { None });
        // What signs is a landing pad for calls too: Arm ARM, PACIASP.
        if wanted && !matches!(first, Some(Action::LandingPad | Action::Sign { .. })) {
            self.fault(0, Property::Pad, "the first instruction is no landing pad for calls");
        }
    }

    fn step(&mut self, at: usize, effects: Effects, state: &mut State) -> Then {
        let end = || Then::Ways(Vec::new());
        let Some(before) = state.get(self.abi.sp).on_stack() else { return end() };
        // What is read is read before SP moves, what is stored is stored after.
        let loaded = self.loads(at, effects, before, state);
        let Some(sp) = self.sp_after(at, effects, before, state) else { return end() };
        if let SpEffect::CopyTo(dst, by) = effects.sp {
            self.write(dst, Value::stack(before.wrapping_add(by)), state);
        }
        if sp != before {
            state.set(self.abi.sp, Value::stack(sp));
            state.memory.forget_below(sp);
            state.area.take_if(|area| area.from < sp);
        }
        let taken = self.record_action(at, effects.action, loaded[0], state);
        self.stores(at, effects, sp, loaded, state);
        self.writes(at, effects, before, loaded, state);
        if let (Action::AtomicAdd { dst, .. }, Some(value)) = (effects.action, taken) {
            self.write(dst, value, state);
        }
        self.guards(at, effects.action, state);
        if let (Moves::Load(slots), Some(scs)) = (effects.moves, self.contract.scs())
            && slots.iter().any(|(reg, _)| reg == scs)
        {
            self.fault(at, Property::Guard, "the pointer of the shadow call stack is loaded from the stack");
        }
        if effects.action == Action::Control {
            self.fault(at, Property::Flags, "a control word changes, or a flag that is clear where C code begins");
        }
        if effects.changes_flags {
            (state.flags, state.tested, state.compared) = (Value::lost(Why::Computed), None, None);
        }
        match effects.flow {
            Flow::Next => Then::Next,
            Flow::Jump(local) => self.label(at, local).map_or_else(end, Then::At),
            Flow::Branch(local) => Then::Ways(self.branch(at, local, effects.action, state)),
            Flow::Call if state.thrown.is_some() && !self.refills(effects.action) => {
                self.resumes(at, effects.action, state);
                end()
            }
            Flow::Call => {
                self.call(at, effects.action, state);
                Then::Next
            }
            Flow::Leave => {
                self.leave(at, effects.action, state);
                end()
            }
            Flow::Trap if state.shadow.below == Some(false) => end(),
            Flow::Trap => {
                self.fault(at, Property::Control, "a way ends in a trap");
                end()
            }
        }
    }

    /// What is pushed onto the CPU's shadow stack or onto the shadow call stack, and popped.
    fn guards(&mut self, at: usize, action: Action, state: &mut State) {
        match action {
            Action::PushGuard { reg } => state.pushed.push(self.read(reg, state)),
            Action::PopGuard { reg } => {
                let (pushed, found) = (state.pushed.pop(), self.read(reg, state));
                match pushed {
                    Some(pushed) => {
                        self.same(at, Property::Guard, "what is compared with the shadow stack", pushed, found)
                    }
                    None => self.fault(at, Property::Guard, EMPTY),
                }
            }
            Action::PushScs { reg, by } => {
                let below = if by == 0 { -8 } else { 0 };
                self.entry_of_scs(at, below, state);
                state.pushed.push(self.read(reg, state));
                self.move_scs(by, state);
            }
            Action::PopScs { reg, by } => {
                let popped = state.pushed.pop();
                self.entry_of_scs(at, -8, state);
                match popped {
                    Some(value) => self.write(reg, value, state),
                    None => self.fault(at, Property::Guard, EMPTY),
                }
                self.move_scs(by, state);
            }
            _ => {}
        }
    }

    /// The next free entry of the shadow call stack must be so many bytes from where its register points.
    fn entry_of_scs(&mut self, at: usize, below: i32, state: &State) {
        let Some(pointer) = self.abi.scs else { return };
        let due = self.start.get(pointer).plus(8 * state.pushed.len() as i64);
        let found = state.get(pointer).plus(i64::from(below));
        self.same(at, Property::Guard, "the entry of the shadow call stack", due, found);
    }

    fn move_scs(&self, by: i32, state: &mut State) {
        if let Some(pointer) = self.abi.scs {
            state.set(pointer, state.get(pointer).plus(i64::from(by)));
        }
    }

    fn sp_after(&mut self, at: usize, effects: Effects, before: i32, state: &State) -> Option<i32> {
        let sp = match (effects.sp, effects.action) {
            (SpEffect::None | SpEffect::CopyTo(..), _) => Some(before),
            (SpEffect::Move(by), _) => before.checked_add(by),
            (SpEffect::CopyFrom(src, by), _) => self.read(src, state).on_stack().and_then(|sp| sp.checked_add(by)),
            (SpEffect::Realign, Action::RoundDown { dst, src, to }) if dst == self.abi.sp && src == self.abi.sp => {
                let to = i32::from(to);
                let absolute = self.entry_sp + before;
                Some(absolute - absolute.rem_euclid(to.max(1)) - self.entry_sp)
            }
            (SpEffect::Realign, _) => None,
        };
        if sp.is_none() {
            self.fault(at, Property::Stack, "sp becomes something that is no place in the stack");
        }
        sp
    }

    /// A register as an operand that is moved, or computed with.
    pub(super) fn read(&self, reg: Reg, state: &State) -> Value {
        if self.abi.zero == Some(reg) { Value::number(0) } else { state.get(reg) }
    }

    fn write(&self, reg: Reg, value: Value, state: &mut State) {
        if self.abi.zero != Some(reg) {
            state.set(reg, value);
        }
    }

    /// A word of the stack.
    pub(super) fn load(&mut self, line: usize, offset: i32, sp: i32, state: &State) -> Value {
        let value = state.memory.load(offset);
        // What lies below SP is unwritten, whatever it was.
        if value == Value::lost(Why::Unwritten) {
            self.fault(
                line,
                Property::Slots,
                format!("a load of a slot that nothing was stored to, at sp{:+}", offset - sp),
            );
        }
        value
    }

    fn store(&mut self, line: usize, offset: i32, sp: i32, value: Value, state: &mut State) {
        if offset < sp {
            self.fault(line, Property::Memory, format!("a store {} bytes below sp", sp - offset));
            return;
        }
        if offset + 8 > self.top {
            self.fault(line, Property::Memory, format!("a store above sp at the site, at sp{:+}", offset - sp));
        }
        state.memory.store(offset, value);
        state.area.take_if(|area| area.from < offset + 8 && offset < area.to);
    }

    /// The values that the instruction loads, in the order of its destinations.
    fn loads(&mut self, at: usize, effects: Effects, sp: i32, state: &State) -> [Option<Value>; 4] {
        let mut loaded = [None; 4];
        if let Moves::Load(slots) = effects.moves {
            for (to, (_, offset)) in loaded.iter_mut().zip(slots.iter()) {
                *to = Some(self.load(at, sp.wrapping_add(offset), sp, state));
            }
        }
        match effects.action {
            Action::LoadVectors { second, at: offset, .. } => {
                let words = self.words() * if second.is_some() { 2 } else { 1 };
                for (n, to) in loaded.iter_mut().take(words).enumerate() {
                    *to = Some(self.load(at, sp.wrapping_add(offset + 8 * n as i32), sp, state));
                }
            }
            Action::PopFlags | Action::PopOver | Action::StoreAt { stored: Stored::Popped, .. } => {
                loaded[0] = Some(self.load(at, sp, sp, state))
            }
            Action::PushAt { base, at: offset } => {
                loaded[0] = Some(match state.get(base).on_stack() {
                    Some(base) => self.load(at, base.wrapping_add(offset), sp, state),
                    None => {
                        self.kept_word(state.get(base).plus(offset.into()), state).unwrap_or(Value::lost(Why::Computed))
                    }
                });
            }
            _ => {}
        }
        loaded
    }

    /// Words of 8 bytes of a vector register.
    pub(super) fn words(&self) -> usize {
        (self.abi.vector_bytes / 8).clamp(1, 2)
    }

    fn stores(&mut self, at: usize, effects: Effects, sp: i32, loaded: [Option<Value>; 4], state: &mut State) {
        if let Moves::Store(slots) = effects.moves {
            let half = effects.action == Action::StoreHalf;
            for (reg, offset) in slots.iter() {
                let value = if half { Value::lost(Why::Computed) } else { self.pushed(reg, effects, sp, state) };
                self.store(at, sp.wrapping_add(offset), sp, value, state);
            }
        }
        match effects.action {
            Action::StoreNumber { number, at: offset } => {
                self.store(at, sp.wrapping_add(offset), sp, Value::number(number.into()), state);
            }
            Action::StoreVectors { first, second, at: offset } => {
                let words = self.words();
                for (n, vector) in std::iter::once(first).chain(second).enumerate() {
                    for (half, value) in state.vector(vector).into_iter().take(words).enumerate() {
                        let place = sp.wrapping_add(offset + 8 * (n * words + half) as i32);
                        self.store(at, place, sp, value, state);
                    }
                }
            }
            Action::StoreState(area) => self.store_area(at, area, sp, state),
            Action::PushFlags => self.store(at, sp, sp, state.flags, state),
            Action::PushSymbol { sym } => self.store(at, sp, sp, Value::of(Root::Content(sym)), state),
            Action::PushNext => self.store(at, sp, sp, Value::of(Root::Next(at as u16)), state),
            Action::PushAt { .. } | Action::PopOver => {
                self.store(at, sp, sp, loaded[0].unwrap_or(Value::lost(Why::Computed)), state);
            }
            _ => {}
        }
    }

    /// A register on its way to memory: a push of SP pushes what it was.
    fn pushed(&self, reg: Reg, effects: Effects, sp: i32, state: &State) -> Value {
        match effects.sp {
            SpEffect::Move(by) if reg == self.abi.sp && self.abi.zero != Some(reg) => Value::stack(sp.wrapping_sub(by)),
            _ => self.read(reg, state),
        }
    }

    fn writes(&mut self, at: usize, effects: Effects, before: i32, loaded: [Option<Value>; 4], state: &mut State) {
        let computed = Value::lost(Why::Computed);
        match effects.moves {
            Moves::Load(slots) => {
                for ((reg, _), value) in slots.iter().zip(loaded) {
                    self.write(reg, value.unwrap_or(computed), state);
                }
            }
            Moves::Copy { dst, src } if effects.sp == SpEffect::None => self.write(dst, self.read(src, state), state),
            Moves::None | Moves::Store(_) | Moves::Copy { .. } => {}
        }
        match effects.action {
            Action::LoadVectors { first, second, .. } => {
                let words = self.words();
                for (n, vector) in std::iter::once(first).chain(second).enumerate() {
                    let value = |half: usize| loaded.get(n * words + half).copied().flatten().unwrap_or(computed);
                    let to = state.vectors.get_mut(usize::from(vector));
                    // What is behind eight bytes there is not.
                    to.into_iter().for_each(|to| (0..words).for_each(|half| to[half] = value(half)));
                }
            }
            Action::LoadState(area) => self.load_area(at, area, before, state),
            Action::CompareCell { reg, cell } => {
                let word = self.of_thread(cell, state).map_or(computed, |at| Value::of(Root::ThreadWord(at)));
                (state.flags, state.tested, state.compared) = (computed, None, Some((self.read(reg, state), word)));
            }
            Action::CompareAt { reg, base, at: offset } => {
                let word = self.kept_word(state.get(base).plus(offset.into()), state).unwrap_or(computed);
                let reg = self.read(reg, state);
                (state.flags, state.tested, state.compared) = (computed, None, Some((reg, word)));
            }
            Action::TestAt { base, at: offset } => {
                let word = self.kept_word(state.get(base).plus(offset.into()), state).unwrap_or(computed);
                (state.flags, state.tested, state.compared) = (computed, Some(word), None);
            }
            Action::Compare { reg, with } => {
                let both = (self.read(reg, state), self.read(with, state));
                (state.flags, state.tested, state.compared) = (computed, None, Some(both));
            }
            Action::CompareNumber { reg, number } => {
                let both = (self.read(reg, state), Value::number(number.into()));
                (state.flags, state.tested, state.compared) = (computed, None, Some(both));
            }
            Action::ReadClock { high: Some(high), .. } => {
                self.write(high, Value::of(Root::Clock(state.slots.len() as u8, Some(Half::High))), state);
            }
            Action::PopFlags => {
                (state.flags, state.tested, state.compared) = (loaded[0].unwrap_or(computed), None, None)
            }
            Action::Test { reg } => {
                (state.flags, state.tested, state.compared) = (computed, Some(self.read(reg, state)), None);
            }
            Action::TestBit { reg, bit } => {
                let bit = self.bit(self.read(reg, state), bit);
                (state.flags, state.tested, state.compared) = (computed, Some(bit), None);
            }
            Action::TestLowBit { reg } => {
                let bit = match self.read(reg, state) {
                    Value { root: Root::Left(at, call), add: 0 } => Value::of(Root::LowBit(at, call)),
                    _ => computed,
                };
                (state.flags, state.tested, state.compared) = (computed, Some(bit), None);
            }
            _ => {}
        }
        if let Some((dst, value)) = self.computed(at, effects.action, before, state) {
            // SP was set before.
            if dst != self.abi.sp {
                self.write(dst, value, state);
            }
        }
    }

    /// The register that an action computes, and its value.
    fn computed(&mut self, at: usize, action: Action, sp: i32, state: &State) -> Option<(Reg, Value)> {
        let operand = |reg: Reg| self.read(reg, state);
        let lost = Value::lost(Why::Computed);
        Some(match action {
            Action::Add { dst, src, add } => (dst, operand(src).plus(add.into())),
            Action::RoundDown { dst, src, to } => {
                let pc = operand(src) == Value::of(Root::Pc) && to == 8;
                (dst, if pc { Value::of(Root::Rounded) } else { lost })
            }
            Action::Authenticate { reg } => {
                let fits = operand(reg).is(Value::of(Root::Signed)) && sp == self.site_sp;
                (reg, if fits { Value::of(Root::Parent) } else { lost })
            }
            Action::Sign { reg } => {
                let fits = operand(reg).is(Value::of(Root::Parent)) && sp == self.site_sp;
                (reg, if fits { Value::of(Root::Signed) } else { lost })
            }
            Action::Set { dst, number } => (dst, Value::number(number.into())),
            Action::LoadThread { dst, at } => (dst, self.word(Cell::Thread(at), state)),
            Action::AddRegs { dst, src, add } => (dst, self.sum(operand(src), operand(add))),
            Action::OffsetHigh { dst, src, sym } => (dst, self.with_offset_high(operand(src), sym)),
            Action::OffsetLow { dst, src, sym } => (dst, with_offset_low(operand(src), sym)),
            Action::ReadClock { low, high } => {
                (low, Value::of(Root::Clock(state.slots.len() as u8, high.map(|_| Half::Low))))
            }
            Action::LowBits { dst, src, bits } => {
                let value = match operand(src) {
                    Value { root: Root::Slot(n), add } if 1_i64 << bits == Recorder::BLOCK.into() => {
                        Value::of(Root::InBlock(n, add as i32))
                    }
                    _ => lost,
                };
                (dst, value)
            }
            Action::BitToSign { dst, src, bit } => (dst, self.bit(operand(src), bit)),
            Action::ThreadPointer { dst, of } => {
                let is_its = self.contract.convention.thread == Some(of);
                (dst, if is_its { Value::of(Root::Thread) } else { Value::lost(Why::Computed) })
            }
            Action::SetWide { dst, number } => (dst, Value::number(number)),
            Action::SetBits { dst, bits, from } => {
                (dst, number(state.get(dst), |n| n & !(0xffff << from) | i64::from(bits) << from))
            }
            Action::ShiftLeft { dst, by } => (dst, number(state.get(dst), |n| n.wrapping_shl(by.into()))),
            Action::AddWord { dst, add } => (dst, number(state.get(dst), |n| i64::from((n as i32).wrapping_add(add)))),
            Action::Address { dst, sym } => (dst, Value::of(Root::Symbol(sym))),
            Action::LinkNext { dst } => (dst, Value::of(Root::Next(at as u16))),
            Action::High { dst, sym } => (dst, Value::of(Root::High(sym, at as u16))),
            Action::Low { dst, base, of } => {
                let sym = self.completed(operand(base), of);
                (dst, sym.map_or(lost, |sym| Value::of(Root::Symbol(sym))))
            }
            Action::LoadSymbol { dst, sym } => (dst, Value::of(Root::Content(sym))),
            Action::LoadLow { dst, base, of } => {
                let sym = self.completed(operand(base), of);
                (dst, sym.map_or(lost, |sym| Value::of(Root::Content(sym))))
            }
            Action::LoadAt { dst, base, at: offset } => {
                let base = operand(base).plus(offset.into());
                let value = match (base.root, base.on_stack()) {
                    (_, Some(place)) => self.load(at, place, sp, state),
                    _ if self.thread_offset(base).is_some() => {
                        self.thread_word(self.thread_offset(base).unwrap_or_default(), state)
                    }
                    (Root::Top, _) => self.kept_word(base, state).unwrap_or(lost),
                    (root, _) if root == self.op.root => Value::of(Root::OpField(base.add as i32)),
                    (Root::Rounded, _) if Some(base.add) == self.literal => Value::of(Root::Literal),
                    (Root::Pc, _) if Some(base.add) == self.literal && !self.contract.landing_pad => {
                        Value::of(Root::Literal)
                    }
                    _ => lost,
                };
                (dst, value)
            }
            _ => return None,
        })
    }

    /// The symbol whose address a low part completes.
    fn completed(&self, base: Value, of: Part) -> Option<Sym> {
        let Value { root: Root::High(sym, line), add: 0 } = base else { return None };
        let fits = match of {
            Part::Symbol(low) => low == sym,
            Part::Anchor(local) => {
                let label = self.position(local)?;
                let insn = self.code.iter().skip(label).position(|c| matches!(c, Code::Insn(_)))?;
                label + insn == usize::from(line)
            }
        };
        fits.then_some(sym)
    }

    fn position(&self, local: Local) -> Option<usize> {
        self.code.iter().position(|c| matches!(c, Code::Label(l) if *l == local))
    }

    pub(super) fn label(&mut self, at: usize, local: Local) -> Option<usize> {
        let found = self.position(local);
        if found.is_none() {
            self.fault(at, Property::Control, format!("label {} is nowhere", local.suffix()));
        }
        found
    }

    /// Both ways on from a branch, each knowing the answer.
    fn branch(&mut self, at: usize, local: Local, action: Action, state: &State) -> Vec<(usize, State)> {
        let compared = match action {
            Action::BranchIfNotBelow => state.compared,
            Action::BranchIfRegNotBelow { reg, with } => Some((self.read(reg, state), self.read(with, state))),
            _ => None,
        };
        let asks = |(reg, with)| {
            let full = self.asks_for_room(reg, with, state).map(Question::Full);
            full.or_else(|| self.asks_for_time(reg, with, state).map(Question::Untimed))
        };
        let of_record = compared.and_then(asks);
        let (asked, zero) = match action {
            Action::BranchIf { reg, zero } => (Some(self.read(reg, state)), zero),
            Action::BranchIfFlags { zero } => (state.tested, zero),
            Action::BranchIfBit { reg, bit } => (Some(self.bit(self.read(reg, state), bit)), false),
            Action::BranchIfNegative { reg } => (Some(self.read(reg, state)), false),
            _ => (None, false),
        };
        let of_shadow = self.asks_of_shadow(action, state);
        let zero = of_shadow.map_or(zero, |(_, zero)| zero);
        let of_record = of_record.or(of_shadow.map(|(question, _)| question));
        let question = of_record.or_else(|| asked.and_then(|value| self.question(value, state)));
        let (Some(question), Some(label)) = (question, self.label(at, local)) else {
            let what = asked.map_or("something unknown".to_owned(), |value| self.tell(value));
            self.fault(at, Property::Control, format!("a branch asks whether {what} is 0, which decides nothing here"));
            return Vec::new();
        };
        [true, false]
            .into_iter()
            .filter_map(|answer| {
                let mut state = state.clone();
                state.decided = true;
                let goes_on = self.answered(question, answer, &mut state);
                goes_on.then_some((if answer != zero { label } else { at + 1 }, state))
            })
            .collect()
    }

    /// Store the answer of a branch. Returns whether this way was not followed before.
    fn answered(&self, question: Question, answer: bool, state: &mut State) -> bool {
        match (question, answer) {
            (Question::Direct, _) => state.direct = Some(answer),
            (Question::Jump, _) => state.jump = Some(answer),
            (Question::Early, _) => state.early = Some(answer),
            (Question::Full(slot), _) => {
                state.slots.get_mut(usize::from(slot)).into_iter().for_each(|slot| slot.full = Some(answer));
            }
            (Question::Untimed(slot), _) => {
                state.slots.get_mut(usize::from(slot)).into_iter().for_each(|slot| slot.timed = Some(!answer));
            }
            (Question::Skip(call), true) => {
                state.skipped_by = Some(call);
                // The traced function is passed over, and what would come before it.
                let body = self.calls.iter().position(|c| *c == Called::Body);
                state.calls = body.map_or(state.calls, |body| body + 1);
            }
            (Question::Skip(call), false) => state.replace(Value::of(Root::Returned(call)), Value::number(0)),
            (Question::Enter(_), true) => {}
            (Question::Enter(call), false) => {
                // One on each way: with all combinations, ways would be without number.
                let first = state.refused.is_none();
                (state.refused, state.calls) = (Some(call), state.calls + 1);
                return first;
            }
            (Question::NoRoomToReturn, _) => state.shadow.full = Some(answer),
            (Question::AnotherEntry(_), true) => {
                (state.shadow.passed, state.shadow.below) = (state.shadow.passed + 1, None);
                // From the second one on, each is passed over as the first was.
                return state.shadow.passed < 2;
            }
            (Question::AnotherEntry(at), false) => state.shadow.own = Some(at),
            (Question::EntryBelow, _) => state.shadow.below = Some(answer),
            (Question::Known(known), _) => return known == answer,
        }
        true
    }

    fn question(&self, value: Value, state: &State) -> Option<Question> {
        match value.root {
            Root::OpField(at) if value.add == 0 && state.early.is_none() => {
                self.early.is_some_and(|op| op.direct_call == at).then_some(Question::Early)
            }
            Root::Left(..) if self.contract.leaves_by(ExitPath::Direct) && state.direct.is_none() => {
                value.is(self.left(crate::ask::frame::Content::Direct, state)?).then_some(Question::Direct)
            }
            Root::LowBit(at, call) if self.contract.leaves_by(ExitPath::DirectJump) && state.jump.is_none() => {
                let cell = self.left(crate::ask::frame::Content::Direct, state)?;
                Value::of(Root::Left(at, call)).is(cell).then_some(Question::Jump)
            }
            Root::Full(n) if value.add == 0 => {
                state.slots.get(usize::from(n)).is_some_and(|slot| slot.full.is_none()).then_some(Question::Full(n))
            }
            // The result that stays where a program is not called that may decide it.
            Root::Number if self.thread.is_some_and(|places| places.recorder.pair) || state.refused.is_some() => {
                Some(Question::Known(value.add != 0))
            }
            Root::Returned(call) if value.add == 0 && self.undecided(state) == Some(call) => {
                let enters = matches!(self.calls.get(usize::from(call)), Some(Called::Before(_)));
                Some(if enters { Question::Enter(call) } else { Question::Skip(call) })
            }
            _ => None,
        }
    }
}

fn number(value: Value, f: impl Fn(i64) -> i64) -> Value {
    if value.root == Root::Number { Value::number(f(value.add)) } else { Value::lost(Why::Computed) }
}
