//! Faults, injected into listings one at a time, to judge a checker by.
//!
//! What can be told from an instruction's
//! [`Effects`] is done here for every architecture; what takes an instruction of the architecture's own comes from
//! [`Mutable::faults`] and [`Mutable::with_registers`].

use std::fmt;

use crate::arch::facts::{Feature, Promise};
use crate::arch::harden::ReturnGuard;
use crate::ask::spec::Spec;
use crate::contract::Contract;
use crate::effect::action::Action;
use crate::effect::effects::{Effects, Flow, Moves, Slots, SpEffect};
use crate::effect::faults::{Either, Faults, Misstated, Mistyped, Operand, Operator};
use crate::listing::code::CodeBuf;
use crate::listing::generate::generate;
use crate::listing::isa::{Instruction, Isa, Lower};
use crate::listing::names::Names;
use crate::listing::pattern::PatternTable;
use crate::listing::{Line, Listing};
use crate::out::assembly::Assembly;
use crate::out::shape::Shape;
use crate::plan::Plan;
use crate::profile::target::{Returns, Target};
use crate::words::abi::{Abi, Reg, RegSet};
use crate::words::error::{Error, Result};
use crate::words::step::{Disp, ExitPath, Local, Name};

/// An instruction set whose trampolines can be made wrong. What it does not say cannot be wrong: then instructions are
/// dropped, doubled and moved only.
pub trait Mutable: Isa {
    /// Instructions that only mutants have, so that no lowering can emit them.
    type Faulty: Instruction;

    /// The instruction with other registers for those that it names.
    fn with_registers(insn: Self::Insn, _r: &mut dyn FnMut(Reg) -> Reg) -> Self::Insn {
        insn
    }

    /// The instruction with other displacements for those that it names, as bytes above SP.
    fn with_displacement(insn: Self::Insn, _d: &mut dyn FnMut(Disp) -> Disp) -> Self::Insn {
        insn
    }

    /// Faulty forms of the instruction, besides those that its effects tell.
    fn faults(_insn: Self::Insn, _out: &mut Faults<MutantInsn<Self>>) {}

    /// What stands in the place of an instruction that changes a word of memory in one step: a load, an addition, a store.
    fn torn(_before: Option<Self::Insn>, _insn: Self::Insn) -> Vec<MutantInsn<Self>> {
        Vec::new()
    }

    /// What stands in the place of a branch or a landing pad, each with its operator: it leads to the same place in another way.
    fn rerouted(_insn: Self::Insn) -> Vec<(Operator, Vec<MutantInsn<Self>>)> {
        Vec::new()
    }

    /// Registers by which ways out jump, each with another for which landing pads are of another kind, or with which none is needed.
    const JUMPS_BY: &[(Reg, Reg)] = &[];

    /// Instructions that change what every trampoline leaves alone.
    const STRAYS: &[(Operator, MutantInsn<Self>)] = &[];

    /// The branch that compares with a sign what this one compares without; `None` if it compares nothing so.
    fn signed(_insn: Self::Insn) -> Option<MutantInsn<Self>> {
        None
    }

    /// The instruction that leaves in a register what an instruction of 32 bits would have left there; `None` where there is none.
    fn cut(_reg: Reg) -> Option<MutantInsn<Self>> {
        None
    }

    /// Instructions of trampolines that others wrote.
    const PATTERNS: PatternTable = PatternTable::NONE;
}

/// An instruction of a mutant of this architecture.
pub type MutantInsn<I> = Either<<I as Lower>::Insn, <I as Mutable>::Faulty>;

impl<I: Instruction, F: Instruction> Instruction for Either<I, F> {
    fn encode(self, target: &Target, out: &mut CodeBuf) -> Result<()> {
        match self {
            Either::Sound(insn) => insn.encode(target, out),
            Either::Faulty(insn) => insn.encode(target, out),
        }
    }

    fn text(self, names: &Names, out: &mut dyn fmt::Write) -> fmt::Result {
        match self {
            Either::Sound(insn) => insn.text(names, out),
            Either::Faulty(insn) => insn.text(names, out),
        }
    }

    fn effects(self) -> Effects {
        match self {
            Either::Sound(insn) => insn.effects(),
            Either::Faulty(insn) => insn.effects(),
        }
    }
}

/// A trampoline with one fault, described.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// The operator.
    pub operator: Operator,
    /// What it was applied with, as text; may be empty.
    pub operand: String,
    /// Offset of the first changed instruction in the trampoline without a fault.
    pub offset: usize,
    /// The symbol from which that counts, if it is not the trampoline's.
    pub symbol: String,
    /// The changed lines: `-` or `+`, the offset, the instruction.
    pub diff: Vec<String>,
    /// For a listing: the number of the edit, from which the backend makes the code again.
    pub number: usize,
    /// For an object: changed bytes, at offsets in its file.
    pub patch: Vec<(usize, Vec<u8>)>,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operator.name())?;
        if !self.operand.is_empty() {
            write!(f, "({})", self.operand)?;
        }
        match self.symbol.as_str() {
            "" => write!(f, "@{:#x}", self.offset),
            symbol => write!(f, "@{symbol}+{:#x}", self.offset),
        }
    }
}

/// Lines that are taken out, and instructions that are put in before a line.
#[derive(Debug)]
pub struct Edit<I> {
    /// The operator.
    pub operator: Operator,
    /// The register or number that the operator takes.
    pub operand: Operand,
    /// The lines that are taken out.
    pub out: Vec<usize>,
    /// What is put in: before which line, and the instruction.
    pub put: Vec<(usize, I)>,
    /// Before this line, the unwind table goes wrong.
    pub misstate: Option<(usize, Misstated)>,
}

impl<I: Instruction + Copy> Edit<I> {
    /// Assemble what it makes of a trampoline.
    fn add<A: Mutable>(
        &self,
        spec: &Spec,
        target: &Target,
        listing: &Listing<A::Insn>,
        assembly: &mut Assembly,
    ) -> Result<()>
    where
        A::Insn: Into<I>,
    {
        let (mut shape, listing) = (Shape::default(), self.apply(listing));
        shape.encode::<A>(spec, target, &listing, self.misstate)?;
        assembly.add(spec, target, &listing.symbols, &shape)
    }
}

impl<I: Copy> Edit<I> {
    fn new(operator: Operator, operand: Operand, out: Vec<usize>, put: Vec<(usize, I)>) -> Edit<I> {
        Edit { operator, operand, out, put, misstate: None }
    }

    fn apply<'a, J: Copy + Into<I>>(&self, listing: &Listing<'a, J>) -> Listing<'a, I> {
        let mut lines = Vec::with_capacity(listing.lines.len() + self.put.len());
        for at in 0..=listing.lines.len() {
            lines.extend(self.put.iter().filter(|(before, _)| *before == at).map(|&(_, insn)| Line::Insn(insn, "")));
            lines.extend(listing.lines.get(at).filter(|_| !self.out.contains(&at)).map(|line| line.map(J::into)));
        }
        Listing { lines, symbols: listing.symbols.clone() }
    }

    /// The first line that it changes.
    pub fn first(&self) -> usize {
        self.out
            .iter()
            .copied()
            .chain(self.put.iter().map(|p| p.0))
            .chain(self.misstate.map(|m| m.0))
            .min()
            .unwrap_or(0)
    }
}

/// One instruction with its line.
#[derive(Debug)]
pub struct At<I> {
    /// The line's number.
    pub line: usize,
    /// The instruction.
    pub insn: I,
    /// What it does.
    pub effects: Effects,
}

/// What is asked of instructions, besides their effects: see [`Mutable::with_registers`] and [`Mutable::faults`].
#[derive(Debug)]
pub struct Ways<I> {
    /// The instruction with other registers.
    pub with_registers: fn(I, &mut dyn FnMut(Reg) -> Reg) -> I,
    /// The instruction with other displacements.
    pub with_displacement: fn(I, &mut dyn FnMut(Disp) -> Disp) -> I,
    /// Its faulty forms.
    pub faults: fn(I, &Contract, &mut Faults<I>),
}

impl<I: Copy> Ways<I> {
    /// The instruction with one register for another; `None` if it does not name that register.
    fn rename(&self, insn: I, from: Reg, to: Reg) -> Option<I> {
        let mut found = false;
        let renamed = (self.with_registers)(insn, &mut |reg| {
            found |= reg == from;
            if reg == from { to } else { reg }
        });
        found.then_some(renamed)
    }
}

/// Every edit of a listing. Some cannot be encoded, and some change nothing.
fn listed<I: Mutable>(listing: &Listing<I::Insn>, contract: &Contract, target: &Target) -> Vec<Edit<MutantInsn<I>>> {
    let insn = |(line, l): (usize, &Line<I::Insn>)| match *l {
        Line::Insn(insn, _) => Some(At { line, insn: insn.into(), effects: insn.effects() }),
        _ => None,
    };
    let code: Vec<At<MutantInsn<I>>> = listing.lines.iter().enumerate().filter_map(insn).collect();
    let ways = Ways {
        with_registers: |insn, r| match insn {
            Either::Sound(insn) => I::with_registers(insn, r).into(),
            Either::Faulty(_) => insn,
        },
        with_displacement: |insn, d| match insn {
            Either::Sound(insn) => I::with_displacement(insn, d).into(),
            Either::Faulty(_) => insn,
        },
        faults: |insn, _, out| {
            if let Either::Sound(insn) = insn {
                I::faults(insn, out);
            }
        },
    };
    let mut all = edits(&code, contract, &ways);
    all.extend(torn::<I>(listing));
    all.extend(signed::<I>(listing, contract));
    all.extend(code.iter().flat_map(|c| narrowed::<I>(c, &contract.facts.abi)));
    all.extend(code.iter().flat_map(|c| rerouted::<I>(c)));
    all.extend(jumps_by::<I>(&code, &ways).into_iter().filter(|_| contract.landing_pad));
    all.extend(strays::<I>(&code));
    all.extend(pad_late(&code));
    all.extend(guards(&code, contract));
    all.extend(marks(contract, target));
    all
}

/// A branch that leads to the same place in another way, or another way to a landing pad.
fn rerouted<I: Mutable>(c: &At<MutantInsn<I>>) -> Vec<Edit<MutantInsn<I>>> {
    let Either::Sound(insn) = c.insn else { return Vec::new() };
    let edit = |(operator, insns): (Operator, Vec<MutantInsn<I>>)| {
        let put = insns.into_iter().map(|insn| (c.line, insn)).collect();
        Edit::new(operator, Operand::None, vec![c.line], put)
    };
    I::rerouted(insn).into_iter().map(edit).collect()
}

/// Ways out by other registers.
fn jumps_by<I: Mutable>(code: &[At<MutantInsn<I>>], ways: &Ways<MutantInsn<I>>) -> Vec<Edit<MutantInsn<I>>> {
    let leaves = |by: Reg| code.iter().any(|c| matches!(c.effects.action, Action::LeaveBy { reg, .. } if reg == by));
    let used: Vec<&At<MutantInsn<I>>> = code.iter().collect();
    let wrong = I::JUMPS_BY.iter().filter(|(from, _)| leaves(*from));
    wrong.map(|&(from, to)| Edit { operator: Operator::JumpReg, ..renamed(&used, from, to, ways) }).collect()
}

/// Instructions that change what is not the trampoline's, behind its first one.
fn strays<I: Mutable>(code: &[At<MutantInsn<I>>]) -> Vec<Edit<MutantInsn<I>>> {
    let Some(first) = code.first().filter(|first| first.effects.flow == Flow::Next) else { return Vec::new() };
    let put = |&(operator, insn): &(Operator, MutantInsn<I>)| {
        Edit::new(operator, Operand::None, Vec::new(), vec![(first.line + 1, insn)])
    };
    I::STRAYS.iter().map(put).collect()
}

/// The landing pad behind the instruction that follows it.
fn pad_late<I: Copy>(code: &[At<I>]) -> Option<Edit<I>> {
    let [pad, next, ..] = code else { return None };
    let is_pad = pad.effects.action == Action::LandingPad && next.effects.flow == Flow::Next;
    is_pad.then(|| Edit::new(Operator::PadLate, Operand::None, vec![pad.line], vec![(next.line + 1, pad.insn)]))
}

/// What is wrong with the guard of the return address, besides its instructions.
fn guards<I: Copy>(code: &[At<I>], contract: &Contract) -> Vec<Edit<I>> {
    let guards = |c: &&At<I>| {
        matches!(c.effects.action, Action::Sign { .. } | Action::PushGuard { .. } | Action::PushScs { .. })
    };
    let checks = |c: &&At<I>| {
        matches!(c.effects.action, Action::Authenticate { .. } | Action::PopGuard { .. } | Action::PopScs { .. })
    };
    let (Some(guard), Some(link)) = (code.iter().find(guards), contract.facts.abi.link) else { return Vec::new() };
    let behind = || code.iter().filter(|c| c.line > guard.line);
    let Some(check) = behind().find(checks) else { return Vec::new() };
    let named = |slots: Slots| slots.iter().any(|(reg, _)| reg == link);
    let stored = behind().find(|c| matches!(c.effects.moves, Moves::Store(slots) if named(slots)));
    let before = || code.iter().filter(|c| c.line < check.line);
    let loaded = before().rfind(|c| matches!(c.effects.moves, Moves::Load(slots) if named(slots)));
    let released = before().rfind(|c| matches!(c.effects.sp, SpEffect::Move(_)));
    let moved =
        |operator, what: &At<I>, to: usize| Edit::new(operator, Operand::None, vec![what.line], vec![(to, what.insn)]);
    let mut all = vec![Edit::new(Operator::Unguarded, Operand::None, vec![guard.line, check.line], Vec::new())];
    all.extend(loaded.map(|loaded| moved(Operator::CheckEarly, check, loaded.line)));
    if contract.guard == Some(ReturnGuard::Signed) {
        all.extend(stored.map(|stored| moved(Operator::GuardLate, guard, stored.line + 1)));
        all.extend(released.map(|released| moved(Operator::CheckSp, check, released.line)));
        let untold = Edit::new(Operator::GuardUntold, Operand::None, Vec::new(), Vec::new());
        all.push(Edit { misstate: Some((guard.line + 1, Misstated::Signed)), ..untold });
    }
    all
}

/// What is wrong with the note that says which protection the object goes with, where somebody reads it.
fn marks<I: Copy>(contract: &Contract, target: &Target) -> Vec<Edit<I>> {
    let paired = contract.is_paired();
    let read = target.convention.kernel.is_none();
    let returns = Returns { paired, signed: contract.guard == Some(ReturnGuard::Signed) };
    let noted = target.property_note(returns).filter(|_| read).and_then(|note| note.get(6).copied());
    let (Some(marks), Some(noted)) = (&target.facts.marks, noted) else { return Vec::new() };
    let wrong = |feature: &Feature| match feature.promise {
        // No trampoline has anything to do with it.
        Promise::Guarded => None,
        _ if noted & feature.bit != 0 => Some((Operator::MarkMissing, Misstated::Unmarked(feature.bit))),
        Promise::Paired if !paired => Some((Operator::MarkFalse, Misstated::Marked(feature.bit))),
        _ => None,
    };
    let edit = |(operator, misstated)| Edit {
        misstate: Some((0, misstated)),
        ..Edit::new(operator, Operand::None, Vec::new(), Vec::new())
    };
    marks.features.iter().filter_map(wrong).map(edit).collect()
}

/// The results of an instruction in 32 bits, where they may be addresses: each is cut behind it.
fn narrowed<I: Mutable>(c: &At<MutantInsn<I>>, abi: &Abi) -> Vec<Edit<MutantInsn<I>>> {
    let moves = matches!(c.effects.moves, Moves::Load(_) | Moves::Copy { .. });
    let computes = matches!(
        c.effects.action,
        Action::Add { .. }
            | Action::Address { .. }
            | Action::Low { .. }
            | Action::LoadSymbol { .. }
            | Action::LoadLow { .. }
            | Action::LoadAt { .. }
            | Action::LoadThread { .. }
            | Action::OffsetLow { .. }
            | Action::ThreadPointer { .. }
    );
    let of_sp = matches!(c.effects.sp, SpEffect::Move(_) | SpEffect::CopyTo(..) | SpEffect::CopyFrom(..));
    if c.effects.flow != Flow::Next || !(moves || computes || of_sp) {
        return Vec::new();
    }
    // What pushes and pops moves SP, in whatever width its operand is.
    let stays = |reg: Reg| reg == abi.sp && c.effects.loads + c.effects.stores > 0;
    let (_, writes) = c.effects.touched(abi);
    let cut = |reg: Reg| {
        let put = vec![(c.line, c.insn), (c.line + 1, I::cut(reg)?)];
        Some(Edit::new(Operator::NarrowResult, Operand::Reg(reg), vec![c.line], put))
    };
    writes.general.iter().filter(|reg| !stays(*reg)).filter_map(cut).collect()
}

/// The question whether the shadow stack has room, asked of numbers with a sign: where a routine makes one for a new thread, the
/// limit is the largest address until then.
fn signed<I: Mutable>(listing: &Listing<I::Insn>, contract: &Contract) -> Option<Edit<MutantInsn<I>>> {
    contract.kind.recorder().filter(|recorder| recorder.shadow && recorder.refill)?;
    listing.lines.iter().enumerate().find_map(|(line, l)| match *l {
        Line::Insn(insn, _) if insn.effects().flow == Flow::Branch(Local::Path(ExitPath::Function)) => {
            Some(Edit::new(Operator::SignedCond, Operand::None, vec![line], vec![(line, I::signed(insn)?)]))
        }
        _ => None,
    })
}

/// What takes one step in several.
fn torn<I: Mutable>(listing: &Listing<I::Insn>) -> Vec<Edit<MutantInsn<I>>> {
    let insn =
        |(line, l): (usize, &Line<I::Insn>)| if let Line::Insn(insn, _) = *l { Some((line, insn)) } else { None };
    let code: Vec<(usize, I::Insn)> = listing.lines.iter().enumerate().filter_map(insn).collect();
    let mut all = Vec::new();
    for (n, &(line, insn)) in code.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| code[n].1);
        let put: Vec<_> = I::torn(before, insn).into_iter().map(|insn| (line, insn)).collect();
        if !put.is_empty() {
            all.push(Edit::new(Operator::Torn, Operand::None, vec![line], put));
        }
    }
    all
}

/// Every edit of a trampoline's instructions.
pub fn edits<I: Copy>(code: &[At<I>], contract: &Contract, ways: &Ways<I>) -> Vec<Edit<I>> {
    let uses = |reg: Reg| code.iter().any(|c| ways.rename(c.insn, reg, reg).is_some());
    let call = code.iter().position(|c| c.effects.flow == Flow::Call);
    // Two registers that the contract keeps and nothing else in the trampoline keeps: one of each class.
    let untouched = |set: RegSet| set.iter().filter(|&r| !uses(r)).last();
    let c_keeps = contract.facts.abi.callee_saved;
    let live = [untouched(contract.kept.minus(c_keeps)), untouched(contract.kept.minus(contract.kept.minus(c_keeps)))];
    let live: Vec<Reg> = live.into_iter().flatten().collect();

    let mut all: Vec<Edit<I>> = Vec::new();
    let mut sizes: Vec<Edit<I>> = Vec::new();
    for (n, c) in code.iter().enumerate() {
        let mut named = false;
        (ways.faults)(
            c.insn,
            contract,
            &mut Faults(&mut |fault| {
                named |= fault.insn.is_none();
                let put: Vec<_> = fault.insn.map(|insn| (c.line, insn)).into_iter().collect();
                let mut operator = fault.operator;
                if operator == Operator::FrameSize {
                    // On both sides it is a frame of another size; on one, a mismatch.
                    operator = Operator::TeardownMismatch;
                    match sizes.iter_mut().find(|s| s.operand == fault.operand) {
                        Some(both) => {
                            both.out.push(c.line);
                            both.put.extend(&put);
                        }
                        None => {
                            sizes.push(Edit::new(Operator::FrameSize, fault.operand, vec![c.line], put.clone()));
                        }
                    }
                }
                all.push(Edit::new(operator, fault.operand, vec![c.line], put));
            }),
        );
        if !named {
            let (operator, operand) = missing(&c.effects, code.iter().map(|c| &c.effects));
            all.push(Edit::new(operator, operand, vec![c.line], Vec::new()));
        }
        if matches!(c.effects.sp, SpEffect::Move(_)) || c.effects.flow == Flow::Call {
            let put = vec![(c.line + 1, c.insn)];
            all.push(Edit::new(Operator::Duplicate, Operand::None, Vec::new(), put));
        }
        all.extend(other_saves(code, n, call));
        if let Some(next) = code.get(n + 1).filter(|next| next.line == c.line + 1) {
            all.extend(swapped(c, next, ways));
            all.extend(other_temporary(c, next, &live, ways));
        }
    }
    let goes_on = |c: &&At<I>| matches!(c.effects.flow, Flow::Next | Flow::Call | Flow::Branch(_));
    for c in code.iter().filter(goes_on).filter(|c| !matches!(c.effects.sp, SpEffect::None | SpEffect::CopyTo(..))) {
        let wrong = Edit::new(Operator::CfiOffby, Operand::By(8), Vec::new(), Vec::new());
        all.push(Edit { misstate: Some((c.line + 1, Misstated::Cfa(8))), ..wrong });
    }
    for s in contract.clobbered.iter().filter(|&s| uses(s)) {
        for &r in &live {
            all.push(renamed(&code.iter().collect::<Vec<_>>(), s, r, ways));
        }
    }
    all.extend(sizes);
    all.extend(records_swapped(code, contract, ways));
    all.extend(misstated(contract));
    all.extend(exceptions(code, contract));
    all
}

/// The two frame records in each other's place.
fn records_swapped<I: Copy>(code: &[At<I>], contract: &Contract, ways: &Ways<I>) -> Option<Edit<I>> {
    let [first, second] = contract.frame.records.as_slice() else { return None };
    let apart = second.offset - first.offset;
    let mut put = Vec::new();
    for c in code {
        let mut found = false;
        let insn = (ways.with_displacement)(c.insn, &mut |at| {
            let by = match at.name {
                Name::Record(0) => apart,
                Name::Record(_) => -apart,
                _ => return at,
            };
            found = true;
            at.moved(by)
        });
        put.extend(found.then_some((c.line, insn)));
    }
    let out = put.iter().map(|p| p.0).collect();
    (!put.is_empty()).then(|| Edit::new(Operator::RecordOrder, Operand::None, out, put))
}

/// What is wrong with the whole unwind table, and with the type before the function.
fn misstated<I: Copy>(contract: &Contract) -> impl Iterator<Item = Edit<I>> {
    // The first behind those that are known: on arm64 it was used once.
    let abi = &contract.facts.abi;
    let known = abi.regs.iter().map(|reg| reg.dwarf).chain(abi.return_columns.iter().copied());
    let unknown = known.max().map_or(0, |last| last + 1);
    let typed = [
        (Operator::TypeMissing, Misstated::Type(Mistyped::Missing)),
        (Operator::TypeOther, Misstated::Type(Mistyped::Other)),
        (Operator::TypePlace, Misstated::Type(Mistyped::Place)),
    ];
    let all = [
        (Operator::CfiColumn, Misstated::Column(unknown)),
        (Operator::CfiSignal, Misstated::Called),
        (Operator::CfiStart, Misstated::Late),
    ];
    let typed = typed.into_iter().filter(|_| contract.type_before.is_some());
    all.into_iter().chain(typed).map(|(operator, misstated)| {
        let wrong = Edit::new(operator, Operand::None, Vec::new(), Vec::new());
        Edit { misstate: Some((0, misstated)), ..wrong }
    })
}

/// What is wrong with the way of an exception, in the unwind table and in the table of call sites.
fn exceptions<I: Copy>(code: &[At<I>], contract: &Contract) -> Vec<Edit<I>> {
    if contract.kind.recorder().is_none_or(|recorder| !recorder.unwind) {
        return Vec::new();
    }
    let call = code.iter().find(|c| c.effects.flow == Flow::Call).map_or(0, |c| c.line);
    let step = contract.facts.fill.0.len() as i32;
    let all = [
        (Operator::CfiSlot, call, Misstated::Slot(8)),
        (Operator::CfiSlot, call, Misstated::Slot(-8)),
        (Operator::NoPersonality, 0, Misstated::NoPersonality),
        (Operator::SiteShort, 0, Misstated::Short),
        (Operator::PadOff, 0, Misstated::Pad(step)),
        (Operator::PadOff, 0, Misstated::Pad(-step)),
        (Operator::PadOff, 0, Misstated::NoPad),
        (Operator::PadAgain, 0, Misstated::PadAgain),
    ];
    let edit = |(operator, before, misstated)| {
        let operand =
            if let Misstated::Slot(by) | Misstated::Pad(by) = misstated { Operand::By(by) } else { Operand::None };
        let wrong = Edit::new(operator, operand, Vec::new(), Vec::new());
        Edit { misstate: Some((before, misstated)), ..wrong }
    };
    all.into_iter().map(edit).collect()
}

/// A save at line `n` of the code that comes after the call, or is left out with what reloads it.
fn other_saves<I: Copy>(code: &[At<I>], n: usize, call: Option<usize>) -> Vec<Edit<I>> {
    let (c, mut all) = (&code[n], Vec::new());
    if let (Moves::Store(slots), Some(call)) = (c.effects.moves, call)
        && n < call
    {
        let put = vec![(code[call].line + 1, c.insn)];
        all.push(Edit::new(Operator::StoreAfterCall, registers(slots), vec![c.line], put));
    }
    if let Moves::Store(Slots { first, second: None, .. }) = c.effects.moves {
        let reloads = |other: &&At<I>| other.effects.moves == loaded(c.effects.moves);
        let mut out: Vec<usize> = code.iter().filter(reloads).map(|c| c.line).collect();
        if c.effects.sp != SpEffect::None {
            out = popped(&code[n..], first);
        }
        if !out.is_empty() {
            out.push(c.line);
            all.push(Edit::new(Operator::SkipSave, Operand::Reg(first), out, Vec::new()));
        }
    }
    all
}

/// What passes from `c` to `next` through a register, through each of those that are live.
fn other_temporary<I: Copy>(c: &At<I>, next: &At<I>, live: &[Reg], ways: &Ways<I>) -> Vec<Edit<I>> {
    let temporary = match (c.effects.moves, c.effects.sp, next.effects.moves) {
        (Moves::Load(a), _, Moves::Store(b)) if a.first == b.first => Some(a.first),
        (_, SpEffect::CopyTo(reg, _), Moves::Store(b)) if reg == b.first => Some(reg),
        _ => None,
    };
    temporary.map_or(Vec::new(), |s| live.iter().map(|&r| renamed(&[c, next], s, r, ways)).collect())
}

/// The name of the fault that an instruction is missing.
fn missing<'e>(effects: &Effects, mut others: impl Iterator<Item = &'e Effects>) -> (Operator, Operand) {
    let operator = match (effects.moves, effects.flow, effects.sp) {
        (Moves::Store(slots), ..) => return (Operator::DropSave, registers(slots)),
        (Moves::Load(slots), ..) => {
            let elsewhere = |e: &Effects| e.moves == effects.moves && !std::ptr::eq(e, effects);
            let operator = if others.any(elsewhere) { Operator::RestoreOnePathOnly } else { Operator::DropRestore };
            return (operator, registers(slots));
        }
        (_, Flow::Call, _) => Operator::DropCall,
        (_, Flow::Branch(_), _) => Operator::DropCond,
        (_, Flow::Jump(_), _) => Operator::DropJump,
        (_, Flow::Leave, _) => Operator::DropLeave,
        (_, Flow::Trap, _) => Operator::DropInt3,
        (_, _, SpEffect::Move(by)) if by < 0 => Operator::DropAlloc,
        (_, _, SpEffect::Move(_) | SpEffect::CopyFrom(..)) => Operator::TeardownMissing,
        (_, _, SpEffect::Realign) => Operator::DropAlign,
        _ => Operator::Drop,
    };
    (operator, Operand::None)
}

fn registers(slots: Slots) -> Operand {
    slots.second.map_or(Operand::Reg(slots.first), |second| Operand::Regs(slots.first, second))
}

/// What loads again what this stores.
fn loaded(moves: Moves) -> Moves {
    match moves {
        Moves::Store(slots) => Moves::Load(slots),
        other => other,
    }
}

/// The line that pops what was pushed: the last load of the register that moves SP.
fn popped<I>(code: &[At<I>], reg: Reg) -> Vec<usize> {
    let pops =
        |c: &&At<I>| c.effects.sp != SpEffect::None && matches!(c.effects.moves, Moves::Load(s) if s.first == reg);
    code.iter().rev().find(pops).map(|c| c.line).into_iter().collect()
}

/// Two neighbours: with each other's register, or in the other order.
fn swapped<I: Copy>(a: &At<I>, b: &At<I>, ways: &Ways<I>) -> Option<Edit<I>> {
    let out = vec![a.line, b.line];
    let both = match (a.effects.moves, b.effects.moves) {
        (Moves::Store(x), Moves::Store(y)) => Some((Operator::SwapSave, x, y)),
        (Moves::Load(x), Moves::Load(y)) => Some((Operator::SwapRestore, x, y)),
        _ => None,
    };
    if let Some((operator, x, y)) = both
        && let (None, None) = (x.second, y.second)
        && let (Some(first), Some(second)) =
            (ways.rename(a.insn, x.first, y.first), ways.rename(b.insn, y.first, x.first))
    {
        let put = vec![(a.line, first), (b.line, second)];
        return Some(Edit::new(operator, Operand::Regs(x.first, y.first), out, put));
    }
    let moves_sp = |c: &At<I>| !matches!(c.effects.sp, SpEffect::None | SpEffect::CopyTo(..));
    (moves_sp(a) && moves_sp(b))
        .then(|| Edit::new(Operator::Swap, Operand::None, out, vec![(a.line, b.insn), (b.line, a.insn)]))
}

/// `from` is `to` in these instructions.
fn renamed<I: Copy>(code: &[&At<I>], from: Reg, to: Reg, ways: &Ways<I>) -> Edit<I> {
    let put: Vec<_> = code.iter().filter_map(|c| Some((c.line, ways.rename(c.insn, from, to)?))).collect();
    let out = put.iter().map(|p| p.0).collect();
    Edit::new(Operator::ScratchIs, Operand::Regs(to, from), out, put)
}

/// All mutants of a trampoline: edits that can be encoded, each with code that none before it has.
pub(crate) fn mutants<I: Mutable>(spec: &Spec, target: &Target) -> Result<Vec<Mutant>> {
    let frame = target.frame(spec.kind)?;
    let (mut plan, mut listing) = (Plan::default(), Listing::default());
    generate::<I>(spec, target, &mut plan, &mut listing)?;
    let contract = Contract::of(spec, target)?;
    let names = Names { frame: &frame, numbers: &target.numbers, symbols: &listing.symbols, function: spec.name };
    let offsets = offsets(&listing, target)?;
    let text = |insn: MutantInsn<I>| {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = insn.text(&names, &mut text);
        text.replace('\t', " ")
    };
    let mut original = Assembly::default();
    let mut shape = Shape::default();
    shape.encode::<I>(spec, target, &listing, None)?;
    original.add(spec, target, &listing.symbols, &shape)?;
    let code = |a: Assembly| {
        let tables = (a.tables.bytes.clone(), a.tables.relocs.clone());
        (a.text().to_vec(), a.relocs.clone(), a.eh_frame.bytes.clone(), (tables, a.marks))
    };
    let mut seen = vec![code(original)];
    let mut mutants = Vec::new();
    for (number, edit) in listed::<I>(&listing, &contract, target).into_iter().enumerate() {
        // What the encoder refuses is no mutant: nobody could have assembled it.
        let mut assembly = Assembly::default();
        match edit.add::<I>(spec, target, &listing, &mut assembly) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), Error::Unencodable { .. } | Error::OutOfReach { .. }) => continue,
            Err(e) => return Err(e.at(format_args!("{}: {}", spec.name, edit.operator.name()))),
        };
        let bytes = code(assembly);
        if seen.contains(&bytes) {
            continue;
        }
        seen.push(bytes);
        let mut diff = Vec::new();
        for (line, &offset) in offsets.iter().enumerate() {
            if let (true, Some(Line::Insn(insn, _))) = (edit.out.contains(&line), listing.lines.get(line)) {
                diff.push(format!("-{offset:4x}  {}", text((*insn).into())));
            }
            for (_, insn) in edit.put.iter().filter(|(before, _)| *before == line) {
                diff.push(format!("+{offset:4x}  {}", text(*insn)));
            }
            if let Some((_, misstated)) = edit.misstate.filter(|(before, _)| *before == line) {
                diff.push(format!("+{offset:4x}  ({misstated})"));
            }
        }
        mutants.push(Mutant {
            operator: edit.operator,
            operand: edit.operand.text(&I::FACTS.abi),
            offset: offsets.get(edit.first()).copied().unwrap_or(0),
            symbol: String::new(),
            diff,
            number,
            patch: Vec::new(),
        });
    }
    Ok(mutants)
}

/// The offset of every line, and of the end.
fn offsets(listing: &Listing<impl Instruction>, target: &Target) -> Result<Vec<usize>> {
    let mut buffer = CodeBuf::default();
    let mut offsets = vec![0];
    for line in &listing.lines {
        if let Line::Insn(insn, _) = *line {
            insn.encode(target, &mut buffer)?;
        }
        offsets.push(buffer.bytes.len());
    }
    Ok(offsets)
}

/// What a mutant changes in the listing of its trampoline.
fn edit<I: Mutable>(
    mutant: &Mutant,
    spec: &Spec,
    target: &Target,
    listing: &Listing<I::Insn>,
) -> Result<Edit<MutantInsn<I>>> {
    let mut all = listed::<I>(listing, &Contract::of(spec, target)?, target);
    if mutant.number >= all.len() {
        return Err(Error::new(format!("{}: no mutant {mutant}; valid: those of the same target", spec.name)));
    }
    Ok(all.swap_remove(mutant.number))
}

/// The listing with a mutant's fault, unless that is in the unwind table alone.
pub(crate) fn faulty<'a, I: Mutable>(
    mutant: &Mutant,
    spec: &Spec<'a>,
    target: &Target,
    listing: &Listing<'a, I::Insn>,
) -> Result<Listing<'a, MutantInsn<I>>> {
    Ok(edit::<I>(mutant, spec, target, listing)?.apply(listing))
}

/// Assemble the trampoline with a mutant's fault.
pub(crate) fn add<I: Mutable>(
    mutant: &Mutant,
    spec: &Spec,
    target: &Target,
    listing: &Listing<I::Insn>,
    assembly: &mut Assembly,
) -> Result<()> {
    edit::<I>(mutant, spec, target, listing)?.add::<I>(spec, target, listing, assembly)
}
