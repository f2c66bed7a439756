//! Instructions that the engine lacks, or whose results it has from outside, done in its place: where somebody asks for it, and
//! nowhere else.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;
use codegen::words::error::Result;

use crate::engine::interface::{Access, Cpu};
use crate::engine::registers::Registers;

/// The data of hooks, as such instructions need it.
pub(crate) trait Lends: Sized + 'static {
    /// The registers, once something runs.
    fn registers(&self) -> Option<Registers>;
    /// What the CPU's clock says.
    fn clock(&self) -> u64;
    /// Memory is accessed, in 8 bytes or less, as the engine's own instructions make their hooks say.
    fn accessed(uc: &mut Cpu<'_, Self>, access: Access);
    /// A CPU would raise this fault.
    fn faulted(&mut self, pc: u64, fault: &'static str);
}

/// The longest that an instruction can be.
const LONGEST: usize = 15;

/// Look for them at `instructions`, and let each be run by us. `bytes` are so many bytes of code at an address, if there are as many.
///
/// # Errors
/// The engine takes no hook.
pub(crate) fn attach<'c, D: Lends>(
    uc: &mut Cpu<'_, D>,
    lent: Lent,
    bytes: impl Fn(u64, usize) -> Option<&'c [u8]>,
    instructions: impl IntoIterator<Item = u64>,
) -> Result<()> {
    for at in instructions {
        let code = (1..=LONGEST).rev().find_map(|size| bytes(at, size)).unwrap_or_default();
        if let Some(size) = skipped(lent, uc.has_all_instructions(), code) {
            uc.on_instructions(at..=at, Box::new(move |uc, pc, _| uc.go(pc.wrapping_add(size as u64))))?;
        }
        let size = run_by_us(lent, uc.has_all_instructions(), code);
        let Some(code) = size.and_then(|size| code.get(..size)).map(<[u8]>::to_vec) else { continue };
        uc.on_instructions(at..=at, Box::new(move |uc, pc, _| run(uc, pc, lent, &code)))?;
    }
    Ok(())
}

/// The size of an instruction that does nothing here, at the start of code.
fn skipped(lent: Lent, engine_has_all: bool, code: &[u8]) -> Option<usize> {
    (lent.of_shadow_stack)(code).filter(|_| !engine_has_all)
}

/// The size of one that we run.
fn run_by_us(lent: Lent, engine_has_all: bool, code: &[u8]) -> Option<usize> {
    (lent.size)(code).filter(|_| !engine_has_all || (lent.told)(code))
}

/// Is the instruction at the start of code not run by the engine?
pub(crate) fn is_lent(lent: Lent, engine_has_all: bool, code: &[u8]) -> bool {
    run_by_us(lent, engine_has_all, code).or(skipped(lent, engine_has_all, code)).is_some()
}

/// The hook on one of them.
fn run<D: Lends>(uc: &mut Cpu<'_, D>, pc: u64, lent: Lent, code: &[u8]) {
    let next = pc.wrapping_add(code.len() as u64);
    match (lent.run)(code, next, &mut Borrowed { uc }) {
        Ok(LentTo::Us) => uc.go(next),
        Ok(LentTo::Engine) => {}
        Err(fault) => {
            uc.data_mut().faulted(pc, fault);
            uc.stop();
        }
    }
}

/// The CPU, and the accesses that the engine's own instructions would be asked about.
struct Borrowed<'h, 'u, D> {
    uc: &'h mut Cpu<'u, D>,
}

impl<D: Lends> Borrowed<'_, '_, D> {
    /// Words of 8 bytes, as the engine makes them.
    fn accesses(&mut self, at: u64, bytes: usize, is_write: bool) {
        for from in (0..bytes as u64).step_by(8) {
            let bytes = bytes.saturating_sub(from as usize).min(8);
            D::accessed(self.uc, Access { at: at.wrapping_add(from), bytes, is_write });
        }
    }
}

impl<D: Lends> LentCpu for Borrowed<'_, '_, D> {
    fn general(&self, reg: Reg) -> u64 {
        self.uc.data().registers().map_or(0, |registers| registers.get(self.uc, reg))
    }

    fn get(&self, id: i32, value: &mut [u8]) {
        // The engine has the register: its number is compared with the engine's own in a test.
        let _ = self.uc.read_bytes(id, value);
    }

    fn set(&mut self, id: i32, value: &[u8]) {
        let _ = self.uc.write_bytes(id, value);
    }

    fn set_general(&mut self, reg: Reg, value: u64) {
        if let Some(registers) = self.uc.data().registers() {
            registers.set(self.uc, reg, value);
        }
    }

    fn clock(&self) -> u64 {
        self.uc.data().clock()
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> bool {
        self.accesses(at, bytes.len(), false);
        self.uc.load(at, bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.accesses(at, bytes.len(), true);
        self.uc.store(at, bytes)
    }
}
