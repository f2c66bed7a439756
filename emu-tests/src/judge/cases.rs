//! Which cases there are: functions, situations, handlers and stacks.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use codegen::ask::frame::{Content, Stores};
use codegen::ask::live::{Live, Word};
use codegen::ask::spec::{Form, Programs};
use codegen::contract::Contract;
use codegen::contract::stated::{Held, Next, Sum};
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::recorder::{Clock, Event, Recorder};
use codegen::words::term::{EntryState, Root};

use link::Image;

use crate::engine::cpu::{EXIT, STACK_TOP};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::judge::fixture::{Function, LIVEPATCH, fixtures, spanned};
use crate::judge::rig::Rig;
use crate::run::block::{BLOCK, OTHER_STACK};
use crate::run::case::{Case, Handler, Initial};
use crate::run::filter::Filter;
use crate::run::replay::Source;
use crate::run::scs;
use crate::run::situation::Situation;
use crate::run::thread::POINTER;

/// Bytes above SP that hold stack arguments and canaries.
pub(crate) const ABOVE: u64 = 256;

/// Are the trampolines there that this situation needs?
fn can(rig: &Rig, situation: Situation) -> bool {
    (!situation.parent() || rig.exit(situation).is_some())
        && situation.stub().is_none_or(|stub| rig.suite.contracts.iter().any(|c| c.kind == stub))
}

/// What the exit handler makes of the results: of each register that the contract lets it change.
fn new_results(rig: &Rig, case: &Case, rng: &mut Rng) -> Vec<(Reg, u64)> {
    let situation = case.situation;
    let own = &rig.suite.contracts[case.attach];
    if own.kind.is_function() && !situation.skips() {
        // No program makes a result.
        return Vec::new();
    }
    if let (Some(result), Some(programs)) = (own.stated.program_result, own.kind.programs()) {
        let value = case.canary(rng);
        // Where nothing is said of the upper bits, the sign is clear too: then it is all the same how a program widens it.
        let narrow = || value << (65 - 8 * u32::from(result.bytes)) >> (65 - 8 * u32::from(result.bytes));
        let expected = result.widened(value, rig.registers.abi).unwrap_or_else(narrow);
        return programs.result.regs.iter().take(1).map(|reg| (reg, expected)).collect();
    }
    let around = Some(case.attach).filter(|i| rig.suite.contracts[*i].kind.calls_body());
    let contract = around.or_else(|| rig.exit(situation)).filter(|_| situation.results() || situation.skips());
    let contract = contract.map(|i| &rig.suite.contracts[i]);
    let written = contract.into_iter().flat_map(|c| &c.frame.fields).filter(|f| f.stores == Stores::TakeEffect);
    let mut register = |f: &codegen::ask::frame::Field| match f.content {
        Content::Reg(r) if around.is_none() => Some((r, case.canary(rng))),
        // What a program decides counts as a whole.
        Content::Result(r) if situation.skips() => Some((r, case.canary(rng) << 32 | 1 << 32)),
        Content::Result(r) => Some((r, case.canary(rng))),
        _ => None,
    };
    written.filter_map(&mut register).collect()
}

/// The function whose result depends on the most argument registers: what a signal's handler does to one call shows in it.
fn telling(functions: &[(usize, &Function)], abi: &Abi) -> Option<usize> {
    let of_registers = |(_, f): &&(usize, &Function)| !f.sret && f.args <= abi.args.len();
    let told = functions.iter().rev().filter(of_registers).max_by_key(|(_, f)| f.args);
    told.or(functions.first()).map(|(function, _)| *function)
}

/// The cases with this trampoline at the site.
pub(crate) fn cases(rig: &Rig, attach: usize, filter: &Filter) -> Vec<Arc<Case>> {
    let mut contract = rig.suite.contracts[attach].clone();
    if rig.copied() {
        // A per-ops copy serves one handler, so the kernel omits its direct path.
        (contract.direct, contract.direct_jumps) = (false, false);
    }
    // What handlers overwrite and how the stack is aligned has nothing to do with distance. A stack that is misaligned for
    // the psABI is for code that says it can live with it.
    let (handlers, stacks) = match rig.away {
        None => (&Handler::ALL[..], rig.registers.machine.entry_sp),
        Some(_) => {
            (&[Handler::General][..], &rig.registers.machine.entry_sp[..rig.registers.machine.entry_sp.len().min(1)])
        }
    };
    let handlers = handlers.iter().filter(|h| filter.handler.is_none_or(|wanted| **h == wanted));
    let stacks = stacks.iter().filter(|sp| filter.entry_sp.is_none_or(|wanted| **sp == wanted));
    let stacks = stacks.filter(|sp| stands(rig, &contract, **sp));
    let situations: Vec<Situation> = Situation::all(&contract)
        .into_iter()
        .filter(|s| filter.situation.is_none_or(|wanted| *s == wanted))
        .filter(|s| can(rig, *s) && filter.concerns(&rig.suite.contracts, &contract, *s))
        .collect();
    let named = |f: &Function| filter.function.as_ref().is_none_or(|name| *name == f.name);
    let stated = !matches!(rig.suite.chosen.source, Source::Generated { .. });
    let fit = |(_, f): &(usize, &Function)| {
        named(f) && fits(&contract, f, rig.registers.abi) && !(stated && comes_back(rig, &contract, f))
    };
    // What is called as it stands is for any function; two of them have the flags in both states.
    let most = if contract.kind.is_called() { 2 } else { usize::MAX };
    let fitting: Vec<(usize, &Function)> = rig.functions.iter().enumerate().filter(fit).take(most).collect();
    let telling = telling(&fitting, rig.registers.abi);
    // Of what records nothing, one fixture and one stack tell as much of signals as all.
    let records = contract.kind.recorder().is_some();
    let first = fixtures(rig.suite, filter).next().is_some_and(|first| std::ptr::eq(first, rig.fixture));
    let once = stacks.clone().next().filter(|_| first);
    // Farther away all checks are one clause's, and as many by each engine.
    let no_wide = !contract.leaves_vectors() || rig.away.is_some() || stores_vectors(rig, attach);
    let (mut cases, mut seen) = (Vec::new(), BTreeSet::new());
    for (nth, (function, f)) in fitting.into_iter().enumerate() {
        let redirected = contract.kind.programs().is_some_and(|programs| programs.orig_stack) || f.livepatch.is_some();
        for &situation in situations.iter().filter(|s| !s.ip() || redirected) {
            for &handler in handlers.clone() {
                for (&entry_sp, slot) in
                    stacks.clone().flat_map(|sp| slots(&contract, nth, situation).map(move |at| (sp, at)))
                {
                    let usual = alike(&contract, slot)
                        && handler == Handler::General
                        && !situation.args()
                        && rig.away.is_none();
                    let new = usual && nth == 0;
                    let signals = usual
                        && Some(function) == telling
                        && (records || situation == Situation::PLAIN && once == Some(&entry_sp));
                    let seed = Rng::new(rig.seed, (function as u64) << 8 | entry_sp).next();
                    let closely = filter.closely.unwrap_or(new);
                    let (sret, rest) = (f.sret, Case::default());
                    // Where a trampoline reads and stores does not depend on what is in the function: the first of each shape
                    // tells. What comes out is compared for all.
                    let on_stack = f.args > rig.registers.abi.args.len();
                    let watched = seen.insert((situation, handler, entry_sp, sret, on_stack)) || closely;
                    let wide = watched && handler == Handler::General && !no_wide;
                    let rest = Case { wide, watched, sret, slot, ..rest };
                    let case = Case { attach, function, situation, closely, signals, handler, entry_sp, seed, ..rest };
                    cases.push(Arc::new(filled(rig, &contract, case)));
                }
            }
        }
    }
    // Those for which trampolines are patched alike run one after the other: each change of code is translated anew.
    cases.sort_by_key(|case| {
        let situation = case.situation;
        (situation.stub().is_some() || situation.early()).then_some(situation)
    });
    cases
}

/// Does it store vectors at full width? Whoever does is for handlers that use them, and not every engine has the instructions.
fn stores_vectors(rig: &Rig, attach: usize) -> bool {
    let stores = rig.registers.machine.wide.stores;
    let insns = rig.decode(attach).unwrap_or_default();
    insns.iter().filter(|insn| !insn.filler).any(|insn| stores(insn.parts().0, insn.parts().1))
}

/// The words of a block in which the first record begins, in one case each: which records have the time depends on it.
fn slots(contract: &Contract, nth: usize, situation: Situation) -> Range<u64> {
    let some = contract.kind.recorder().is_some_and(|recorder| recorder.clock == Clock::Stamp8);
    if some && nth == 0 && situation == Situation::PLAIN { 0..Recorder::BLOCK as u64 / 8 } else { 0..1 }
}

/// Does either the first record begin a block, or the second?
fn alike(contract: &Contract, slot: u64) -> bool {
    let entry = contract.kind.recorder().map_or(0, |recorder| recorder.bytes(Event::Entry) as u64);
    (8 * slot).is_multiple_of(Recorder::BLOCK as u64) || (8 * slot + entry).is_multiple_of(Recorder::BLOCK as u64)
}

/// May SP be this at a function's entry, besides a multiple of 16? At a sled, it is what SP is there.
fn stands(rig: &Rig, contract: &Contract, entry_sp: u64) -> bool {
    let pushes = contract.kind.attaches() && !contract.kind.jumped_to();
    let pushed = if pushes { rig.suite.convention.site.pushed } else { 0 };
    let stated = &contract.stated.sp;
    stated.is_empty() || stated.contains(&(entry_sp.wrapping_sub(pushed as u64) % 16))
}

/// A case with its values.
fn filled(rig: &Rig, contract: &Contract, case: Case) -> Case {
    let mut rng = Rng::new(case.seed, 3);
    Case {
        new_registers: std::array::from_fn(|_| case.canary(&mut rng)),
        new_results: new_results(rig, &case, &mut rng),
        initial: initial(rig, contract, &case),
        ..case
    }
}

/// Would a trampoline for this function lead to its site again, and so to itself?
fn comes_back(rig: &Rig, contract: &Contract, f: &Function) -> bool {
    let Some(traced) = &contract.traced else { return false };
    let behind = rig.body(&f.name);
    let site = behind.wrapping_add_signed(-i64::from(rig.suite.convention.site.ip_offset));
    (site..behind).contains(&rig.function(&f.name).wrapping_add_signed(traced.resume.into()))
}

/// Is this a function that such a trampoline can be for?
fn fits(contract: &Contract, f: &Function, abi: &Abi) -> bool {
    let in_registers = f.args + usize::from(f.sret && abi.args.contains(&abi.sret));
    // As many argument registers as it keeps.
    let direct = contract.kind.direct().is_none_or(|d| usize::from(d.args) == in_registers.min(abi.args.len()));
    // Arguments on the stack are out of reach where a frame stays below them.
    let around = contract.kind.around().is_none_or(|around| match around.form {
        Form::Frame => in_registers <= around.args.into(),
        Form::Fregs => in_registers <= abi.args.len(),
        Form::Shadow => true,
    });
    let shown = |programs: Programs| !f.sret && spanned(&programs, abi) == f.args;
    // So are they where records of both are written.
    let both = contract.kind.recorder().is_some() && contract.kind.calls_body() && !contract.kind.is_shadow();
    let around = around && (!both || in_registers <= abi.args.len());
    let programs = contract.kind.programs().is_none_or(shown);
    let live = contract.kind.live().is_none_or(|live| takes(f, live, in_registers, abi));
    direct && around && programs && live && !f.name.ends_with(LIVEPATCH)
}

/// The argument registers that are free before the last argument: a function with these arguments does not read them.
pub(crate) fn free(programs: &Programs, abi: &Abi) -> RegSet {
    let words = programs.words.iter().flatten();
    let taken: Vec<Reg> = words.filter_map(|word| if let Word::Reg(reg) = word { Some(*reg) } else { None }).collect();
    let before = &abi.args[..spanned(programs, abi).min(abi.args.len())];
    RegSet::of(before).minus(RegSet::of(&taken)).minus(programs.live.regs)
}

/// The registers of a site before it is arranged: nothing else is known there.
struct AtSite<'a>(&'a Snapshot, &'a Image);

impl EntryState for AtSite<'_> {
    fn reg(&self, reg: Reg) -> u64 {
        self.0[reg]
    }

    fn word(&self, _: u64) -> Option<u64> {
        None
    }

    fn other(&self, root: &Root) -> Option<u64> {
        match root {
            Root::Block => Some(BLOCK),
            Root::OtherStack => Some(OTHER_STACK),
            Root::Symbol(name) => self.1.symbol(name).map(|symbol| symbol.address),
            _ => None,
        }
    }
}

/// Registers and words at a call: what a contract says that they hold, put into what they held before.
pub(crate) fn arrange<'h>(
    image: &Image,
    holds: impl Iterator<Item = &'h (Held, Sum)>,
    registers: &mut Snapshot,
    (above, block): (&mut [u8], &mut Vec<(u64, u64)>),
) {
    let before = registers.clone();
    for (held, sum) in holds {
        let Some(value) = sum.eval(&AtSite(&before, image)) else { continue };
        match *held {
            Held::Reg(reg) => registers[reg] = value,
            Held::Word(offset) => above[offset as usize..][..8].copy_from_slice(&value.to_le_bytes()),
            Held::Block(offset) => block.push((offset, value)),
        }
    }
}

fn initial(rig: &Rig, contract: &Contract, case: &Case) -> Initial {
    let abi = rig.registers.abi;
    let mut rng = Rng::new(case.seed, 1);
    // Whatever the seed is, there are both.
    let mut all = Snapshot { flags: if case.function.is_multiple_of(2) { 0 } else { u64::MAX }, ..rig.clean.clone() };
    for reg in abi.callee_saved.union(abi.caller_saved).union(abi.platform).iter() {
        all.gpr[reg.0 as usize] = case.canary(&mut rng);
    }
    if case.sparse() {
        // What stands in for a function returns what is there; nothing may hang on that being 0.
        for reg in abi.caller_saved.minus(RegSet::of(abi.args)).minus(RegSet::of(abi.rets)).minus(abi.hidden).iter() {
            all.gpr[reg.0 as usize] = 0;
        }
    }
    all.flags &= !contract.stated.clear_flags.unwrap_or(rig.registers.machine.clear_flags());
    let sp = STACK_TOP - 2 * ABOVE - 16 + case.entry_sp;
    all.gpr[abi.sp.0 as usize] = sp;
    let mut above: Vec<u8> = (0..ABOVE / 8).flat_map(|_| rng.canary().to_le_bytes()).collect();
    if let Next::Behind(bytes) = contract.stated.next {
        let back = EXIT.wrapping_sub(bytes as u64);
        match abi.link {
            Some(link) => all.gpr[link.0 as usize] = back,
            None => above[..8].copy_from_slice(&back.to_le_bytes()),
        }
    }
    clear_unused(contract, abi, &mut above);
    if case.sret {
        all.gpr[abi.sret.0 as usize] = rig.scratch;
    }
    let uncalled = contract.stated.uncalled.iter().filter(|_| case.situation == Situation::Null);
    let result = case.situation.result().and_then(|n| contract.stated.results.get(n));
    let holds = contract.stated.holds.iter().chain(uncalled.flat_map(|u| &u.holds));
    let mut thread = contract.stated.thread.as_ref().and_then(|sum| sum.eval(&AtSite(&all, &rig.image)));
    let mut block = Vec::new();
    arrange(&rig.image, holds.chain(result.into_iter().flat_map(|r| &r.holds)), &mut all, (&mut above, &mut block));
    if contract.kind.recorder().is_some() {
        match contract.convention.thread.and_then(|name| abi.find(name)) {
            Some(reg) => all[reg] = POINTER,
            None => thread = Some(POINTER),
        }
    }
    if let Some(reg) = contract.scs() {
        all[reg] = scs::POINTER;
    }
    Initial { registers: all, sp, above, thread, block }
}

/// Bytes of stack arguments that do not count are 0 for a start: what a trampoline makes of them shows nowhere.
fn clear_unused(contract: &Contract, abi: &Abi, above: &mut [u8]) {
    let words = contract.kind.programs().map_or(Vec::new(), |programs| programs.words.into_iter().flatten().collect());
    for (word, bytes) in words.iter().zip(&contract.stated.word_bytes) {
        let Word::Stack(n) = word else { continue };
        let from = abi.return_bytes() as usize + 8 * usize::from(*n);
        let rest = above.get_mut(from..from + 8).and_then(|word| word.get_mut((*bytes).into()..));
        rest.into_iter().flatten().for_each(|byte| *byte = 0);
    }
}

/// Is this what is live at the entry of `f`? Vector registers are not looked at: `f` leaves them alone.
fn takes(f: &Function, live: Live, in_registers: usize, abi: &Abi) -> bool {
    usize::from(live.stack) == in_registers.saturating_sub(abi.args.len())
        && abi.hidden_for_direct().iter().all(|hidden| live.regs.contains(hidden) == f.sret)
}
