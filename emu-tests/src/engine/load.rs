//! Engines with code in them.

use std::rc::Rc;

use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use link::{Image, PAGE};

use super::cpu::{EXIT, SPARSE_BACK, SPARSE_DIRECT, SPARSE_JUMP, SPARSE_LIVEPATCH, SPARSE_OTHER};
use super::emulator::Emulator;
use super::interface::{Cpu, Holds};
use super::memory::Memory;
use super::process::Machine;
use super::{process, unicorn};

/// An engine without any memory.
///
/// # Errors
/// It does not have the architecture.
pub fn engine<D: 'static>(backend: &dyn Backend, data: D) -> Result<Box<Cpu<'static, D>>> {
    Ok(Box::new(unicorn::open(backend, &Memory::none(), data)?))
}

/// Memory for these images and a stack, that an engine works on.
///
/// # Errors
/// The engine does not run the architecture, or is not there.
pub(crate) fn memory<'i>(
    backend: &dyn Backend,
    images: impl Iterator<Item = &'i Image>,
    engine: Emulator,
) -> Result<Rc<Memory>> {
    match engine {
        Emulator::Unicorn => Ok(Memory::of(images)),
        engine => Memory::there(images, Machine::start(engine.bare(backend)?, engine.mode())?),
    }
}

/// Make an engine with the images and a stack in it.
pub(crate) fn load<'i, D: 'static>(
    backend: &dyn Backend,
    images: impl Iterator<Item = &'i Image>,
    data: D,
) -> Result<Box<Cpu<'static, D>>> {
    let images: Vec<&Image> = images.collect();
    load_on(backend, images.iter().copied(), &Memory::of(images.iter().copied()), data)
}

/// The same, in the memory that was made for them.
pub(crate) fn load_on<'i, D: 'static>(
    backend: &dyn Backend,
    images: impl Iterator<Item = &'i Image>,
    memory: &Rc<Memory>,
    data: D,
) -> Result<Box<Cpu<'static, D>>> {
    let mut uc: Box<Cpu<'static, D>> = match memory.machine() {
        Some(machine) => Box::new(process::open(backend, machine, data)?),
        None => Box::new(unicorn::open(backend, memory, data)?),
    };
    for segment in images.flat_map(|image| &image.segments) {
        put(&mut *uc, segment.address, &segment.bytes)?;
    }
    uc.map(EXIT, PAGE, Holds::Code)?;
    Ok(uc)
}

fn put<D>(uc: &mut Cpu<'_, D>, at: u64, bytes: &[u8]) -> Result<()> {
    if uc.store(at, bytes) { Ok(()) } else { Err(Error::new(format!("emulator: no memory for code at {at:#x}"))) }
}

/// Let there be code at the addresses with one bit: no more than the hook on every instruction ever reaches it.
pub(crate) fn map_sparse<D>(uc: &mut Cpu<'_, D>, ret: &[u8]) -> Result<()> {
    for at in [SPARSE_DIRECT, SPARSE_LIVEPATCH] {
        uc.map(at, PAGE, Holds::Code)?;
        put(uc, at, ret)?;
    }
    // No instruction is ever executed there, so none that would count as a return may stand there.
    [SPARSE_JUMP, SPARSE_BACK, SPARSE_OTHER].into_iter().try_for_each(|at| uc.map(at, PAGE, Holds::Code))
}
