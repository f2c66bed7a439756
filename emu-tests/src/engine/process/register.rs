//! Where an engine has the registers of our tables.

use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use rustc_hash::FxHashMap;

use super::machine::Machine;

/// How a register of ours is had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The engine's number.
    pub number: u32,
    /// As many as ours has.
    pub bytes: usize,
    /// The bits of it that are ours, if not all.
    pub mask: Option<u64>,
    /// Where code is that sets it: the engine does not.
    pub setter: Option<u64>,
}

/// The engine's place of a register.
pub(super) fn place(machine: &Machine, name: &str, bytes: usize) -> Result<Place> {
    let part = machine.bare.parts.iter().find(|(ours, ..)| *ours == name);
    let renamed = machine.bare.names.iter().find(|(ours, _)| *ours == name);
    let theirs = part.map(|(_, whole, _)| *whole).or(renamed.map(|(_, theirs)| *theirs)).unwrap_or(name);
    let number = machine.number(theirs);
    let number = number
        .ok_or_else(|| Error::new(format!("emulator: {} has no register {theirs}", machine.bare.program.name())))?;
    let setter = machine.bare.setters.iter().find(|(set, _)| *set == name).map(|(_, at)| *at);
    Ok(Place { number, bytes, mask: part.map(|(.., mask)| *mask), setter })
}

/// The engine's places of our registers, by the numbers of our tables.
pub(super) fn places(backend: &dyn Backend, machine: &Machine) -> Result<FxHashMap<i32, Place>> {
    let (abi, all) = (&backend.facts().abi, backend.machine());
    let general = abi.regs.iter().map(|reg| (reg.name, reg.emu, 8));
    let vectors = all.vectors.iter().map(|reg| (reg.name, reg.id, abi.vector_bytes));
    let words = all.control.iter().map(|word| word.reg).chain(all.flags.map(|(reg, _)| reg));
    let words = words.chain(all.threads.iter().copied()).map(|reg| (reg.name, reg.id, 8));
    let all = general.chain(vectors).chain(words);
    all.map(|(name, id, bytes)| Ok((id, place(machine, name, bytes)?))).collect()
}
