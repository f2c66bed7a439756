//! Instructions that the engine lacks, or whose results it has from outside, done in its place: at the trampolines' own, and nowhere else.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use link::Image;

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};
use crate::judge::trace::{Uc, accessed};
use crate::report::place::Place;

/// The longest that an instruction can be.
const LONGEST: usize = 15;

/// Look for them at `instructions`, and let each be run by us.
pub(crate) fn attach(uc: &mut Uc<'static>, lent: Lent, image: &Image, instructions: &[u64]) -> Result<()> {
    for &at in instructions {
        let code = (1..=LONGEST).rev().find_map(|size| image.bytes(at, size)).unwrap_or_default();
        let Some(code) = (lent.size)(code).and_then(|size| code.get(..size)).map(<[u8]>::to_vec) else { continue };
        uc.add_code_hook(at, at, move |uc, pc, _| run(uc, pc, lent, &code))
            .map_err(|e| Error::new(format!("emulator: hook: {e:?}")))?;
    }
    Ok(())
}

/// The hook on one of them.
fn run(uc: &mut Uc, pc: u64, lent: Lent, code: &[u8]) {
    let next = pc.wrapping_add(code.len() as u64);
    let _ = match (lent.run)(code, next, &mut Cpu { uc }) {
        Ok(LentTo::Us) => uc.set_pc(next),
        Ok(LentTo::Engine) => Ok(()),
        Err(fault) => {
            if let Some(trace) = uc.get_data_mut() {
                trace.stopped(pc, Place::Fault { fault });
            }
            uc.emu_stop()
        }
    };
}

/// The CPU, and the accesses to the stack that the engine's own instructions would be asked about.
struct Cpu<'h, 'u> {
    uc: &'h mut Uc<'u>,
}

impl Cpu<'_, '_> {
    /// Words of 8 bytes, as the engine makes them.
    fn accesses(&mut self, at: u64, bytes: usize, is_write: bool) {
        for from in (0..bytes as u64).step_by(8) {
            let word = at.wrapping_add(from);
            if word.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE {
                accessed(self.uc, word, bytes.saturating_sub(from as usize).min(8), is_write);
            }
        }
    }
}

impl LentCpu for Cpu<'_, '_> {
    fn general(&self, reg: Reg) -> u64 {
        let registers = self.uc.get_data().as_ref().and_then(|trace| trace.registers);
        registers.map_or(0, |registers| registers.get(self.uc, reg))
    }

    fn get(&self, id: i32, value: &mut [u8]) {
        // The engine has the register: its number is compared with the engine's own in a test.
        let found = match value.len() {
            ..=8 => self.uc.reg_read(id).map(|word| word.to_le_bytes().to_vec()),
            _ => self.uc.reg_read_long(id).map(<[u8]>::into_vec),
        };
        value.iter_mut().zip(found.unwrap_or_default()).for_each(|(to, from)| *to = from);
    }

    fn set(&mut self, id: i32, value: &[u8]) {
        let mut word = [0; 8];
        let _ = match word.get_mut(..value.len()) {
            Some(low) => {
                low.copy_from_slice(value);
                self.uc.reg_write(id, u64::from_le_bytes(word))
            }
            None => self.uc.reg_write_long(id, value),
        };
    }

    fn set_general(&mut self, reg: Reg, value: u64) {
        if let Some(registers) = self.uc.get_data().as_ref().and_then(|trace| trace.registers) {
            registers.set(self.uc, reg, value);
        }
    }

    fn clock(&self) -> u64 {
        self.uc.get_data().as_ref().map_or(0, |trace| trace.now())
    }

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> bool {
        self.accesses(at, bytes.len(), false);
        self.uc.mem_read(at, bytes).is_ok()
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.accesses(at, bytes.len(), true);
        self.uc.mem_write(at, bytes).is_ok()
    }
}
