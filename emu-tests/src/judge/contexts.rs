//! Runs of what is called as it stands. A switch needs another context to go to: it is left by the switch itself, or made, and the run
//! begins with what that has left in memory.

use std::sync::Arc;

use codegen::contract::stated::{Fresh, Handle, Held};
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::term::{EntryState, Root};

use crate::engine::cpu::{EXIT, SPARSE_OTHER, put_word, word};
use crate::engine::registers::Snapshot;
use crate::engine::rng::Rng;
use crate::judge::cases::arrange;
use crate::judge::rig::Rig;
use crate::judge::trace::Suspended;
use crate::run::block::{self, BLOCK, BYTES, Before, HALF, OTHER_STACK};
use crate::run::case::Case;
use crate::run::situation::Situation;

/// Words of the block, each with its offset.
type Words = Vec<(u64, u64)>;

/// A context that nobody has left: all that can be loaded from there is one address.
const BLANK: u64 = OTHER_STACK - 0x8000;
/// Bytes on each side of it.
const AROUND: u64 = 0x800;
/// Bytes of the second stack that whoever switches there has in use.
const USED: u64 = 0x200;

/// Run a case of a trampoline that is called as it stands.
///
/// # Errors
/// What its contract says makes a context does not.
pub(crate) fn run_once(rig: &mut Rig, case: &Arc<Case>) -> Result<()> {
    let contract = rig.suite.contracts[case.attach].clone();
    let Some(contexts) = &contract.stated.contexts else {
        rig.run(case, rig.start(case), &case.initial.registers, true);
        return Ok(());
    };
    let (handle, other) = match (&contexts.fresh, case.situation) {
        (Some(fresh), Situation::Fresh | Situation::Ended) => made(rig, case, fresh)?,
        _ => left(rig, case, &contexts.from, contexts.control)?,
    };
    let memory = block::take(&*rig.uc);
    let mut initial = case.initial.registers.clone();
    initial[contexts.to] = handle;
    rig.dirty = true;
    rig.load_case(case, &initial, true);
    block::put(&mut *rig.uc, &memory);
    put_words(rig, &case.initial.block, 0);
    let before = Before::of(&*rig.uc, [].into_iter());
    rig.trace().before = before;
    rig.trace().state.other = Some(other);
    let ended = rig.uc.run(rig.start(case), EXIT);
    rig.collect(case, ended);
    rig.dirty = true;
    Ok(())
}

/// Registers and memory when a context has been left.
struct Left<'a, 's>(&'a Snapshot, &'a Rig<'s>);

impl EntryState for Left<'_, '_> {
    fn reg(&self, reg: Reg) -> u64 {
        self.0[reg]
    }

    fn word(&self, at: u64) -> Option<u64> {
        Some(word(&*self.1.uc, at))
    }

    fn other(&self, root: &Root) -> Option<u64> {
        match root {
            Root::Block => Some(BLOCK + HALF),
            Root::OtherStack => Some(OTHER_STACK),
            _ => None,
        }
    }
}

/// A context that the switch has left: it goes on in one that nobody has left. Where it gets to shows in a register what names it, and
/// where that is in memory, it does not matter whether it gets anywhere. Returns what names it.
fn left(rig: &mut Rig, case: &Arc<Case>, from: &Handle, control: bool) -> Result<(u64, Suspended)> {
    let (abi, registers) = (rig.registers.abi, rig.registers);
    let contract = &rig.suite.contracts[case.attach];
    let to = contract.stated.contexts.as_ref().map(|contexts| contexts.to);
    let mut rng = Rng::new(case.seed, 0x900);
    let mut other = case.initial.registers.clone();
    for reg in abi.callee_saved.union(abi.caller_saved).iter() {
        other[reg] = case.canary(&mut rng);
    }
    let (holds, words) = holds(rig, case);
    holds.iter().for_each(|(reg, value)| other[*reg] = *value);
    to.into_iter().for_each(|reg| other[reg] = BLANK);
    let called = case.initial.sp % u64::from(abi.sp_align);
    other[abi.sp] = OTHER_STACK - USED - u64::from(abi.sp_align) + called;
    rig.dirty = true;
    rig.load_case(case, &case.initial.registers, false);
    put_words(rig, &words, HALF);
    for vector in 0..registers.machine.vectors.len() {
        registers.set_vector(&mut *rig.uc, vector, &rng.vector());
    }
    for word in registers.machine.control.iter().filter(|_| control) {
        // The engine has the register: its number is compared with the engine's own in a test.
        let _ = rig.uc.write(word.reg.id, word.other);
    }
    match abi.link {
        Some(link) => other[link] = SPARSE_OTHER,
        None => {
            put_word(&mut *rig.uc, other[abi.sp], SPARSE_OTHER);
        }
    }
    let all = abi.callee_saved.union(abi.caller_saved).iter().chain([abi.sp]).chain(abi.link);
    registers.set_all(&mut *rig.uc, all.map(|reg| (reg, other[reg])));
    let before = registers.snapshot(&*rig.uc);
    let blank: Vec<u8> = (0..2 * AROUND / 8).flat_map(|_| SPARSE_OTHER.to_le_bytes()).collect();
    rig.uc.store(BLANK - AROUND, &blank);
    let _ = rig.uc.run(rig.start(case), EXIT);
    let handle = match from {
        Handle::In(reg) => registers.get(&*rig.uc, *reg),
        Handle::At(sum) => sum.eval(&Left(&before, rig)).ok_or_else(|| Error::new("from: no run has that value"))?,
    };
    Ok((handle, Suspended { left: Some(before), holds }))
}

/// Put words into the block, or into one of its halves.
fn put_words(rig: &mut Rig, words: &[(u64, u64)], half: u64) {
    for (offset, value) in words.iter().filter(|(offset, _)| *offset < BYTES - half) {
        put_word(&mut *rig.uc, BLOCK + half + offset, *value);
    }
}

/// What registers and words of its block hold when the other context switches: what the contract says, with the second half of the block
/// in place of the first.
fn holds(rig: &Rig, case: &Case) -> (Vec<(Reg, u64)>, Words) {
    let contract = &rig.suite.contracts[case.attach];
    let mut all = case.initial.registers.clone();
    let (mut above, mut words) = (case.initial.above.clone(), Vec::new());
    arrange(&rig.image, contract.stated.holds.iter(), &mut all, (&mut above, &mut words));
    let named = contract.stated.holds.iter().filter_map(|(held, _)| match held {
        Held::Reg(reg) => Some(*reg),
        _ => None,
    });
    let own = |value: u64| if value.wrapping_sub(BLOCK) < HALF { value + HALF } else { value };
    (named.map(|reg| (reg, own(all[reg]))).collect(), words.into_iter().map(|(at, value)| (at, own(value))).collect())
}

/// A context that a function made, and that has not run. Returns what names it.
fn made(rig: &mut Rig, case: &Arc<Case>, fresh: &Fresh) -> Result<(u64, Suspended)> {
    let (holds, own) = holds(rig, case);
    let mut registers = case.initial.registers.clone();
    let (mut above, mut words) = (case.initial.above.clone(), Vec::new());
    arrange(&rig.image, fresh.holds.iter(), &mut registers, (&mut above, &mut words));
    let Some(maker) = rig.image.symbol(&fresh.made_by).map(|symbol| symbol.address) else {
        return Err(Error::new(format!("{} makes contexts, says the contract; no object has it", fresh.made_by)));
    };
    rig.dirty = true;
    rig.load_case(case, &registers, false);
    put_words(rig, &own, HALF);
    put_words(rig, &words, 0);
    rig.uc.store(case.initial.sp, &above);
    let ended = rig.uc.run(maker, EXIT);
    match (ended, rig.uc.pc()) {
        (Ok(()), EXIT) => {}
        _ => {
            return Err(Error::new(format!("{} makes contexts, says the contract; it does not return", fresh.made_by)));
        }
    }
    let handle = rig.registers.abi.rets.first().map_or(0, |ret| rig.registers.get(&*rig.uc, *ret));
    Ok((handle, Suspended { left: None, holds }))
}
