//! Instructions that the engine lacks, or whose results it has from outside, done in its place: where somebody asks for it, and
//! nowhere else.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use link::Image;

use crate::engine::cpu::{Cpu, Registers};

/// The data of hooks, as such instructions need it.
pub(crate) trait Lends: Sized + 'static {
    /// The registers, once something runs.
    fn registers(&self) -> Option<Registers>;
    /// What the CPU's clock says.
    fn clock(&self) -> u64;
    /// Memory is accessed, in 8 bytes or less, as the engine's own instructions make their hooks say.
    fn accessed(uc: &mut Cpu<'_, Self>, at: u64, bytes: usize, is_write: bool);
    /// A CPU would raise this fault.
    fn faulted(&mut self, pc: u64, fault: &'static str);
}

/// The longest that an instruction can be.
const LONGEST: usize = 15;

/// Look for them at `instructions`, and let each be run by us.
///
/// # Errors
/// The engine takes no hook.
pub(crate) fn attach<D: Lends>(
    uc: &mut Cpu<'static, D>,
    lent: Lent,
    image: &Image,
    instructions: impl IntoIterator<Item = u64>,
) -> Result<()> {
    for at in instructions {
        let code = (1..=LONGEST).rev().find_map(|size| image.bytes(at, size)).unwrap_or_default();
        let Some(code) = (lent.size)(code).and_then(|size| code.get(..size)).map(<[u8]>::to_vec) else { continue };
        uc.add_code_hook(at, at, move |uc, pc, _| run(uc, pc, lent, &code))
            .map_err(|e| Error::new(format!("emulator: hook: {e:?}")))?;
    }
    Ok(())
}

/// The hook on one of them.
fn run<D: Lends>(uc: &mut Cpu<'_, D>, pc: u64, lent: Lent, code: &[u8]) {
    let next = pc.wrapping_add(code.len() as u64);
    let _ = match (lent.run)(code, next, &mut Borrowed { uc }) {
        Ok(LentTo::Us) => uc.set_pc(next),
        Ok(LentTo::Engine) => Ok(()),
        Err(fault) => {
            uc.get_data_mut().faulted(pc, fault);
            uc.emu_stop()
        }
    };
}

/// The CPU, and the accesses that the engine's own instructions would be asked about.
struct Borrowed<'h, 'u, D> {
    uc: &'h mut Cpu<'u, D>,
}

impl<D: Lends> Borrowed<'_, '_, D> {
    /// Words of 8 bytes, as the engine makes them.
    fn accesses(&mut self, at: u64, bytes: usize, is_write: bool) {
        for from in (0..bytes as u64).step_by(8) {
            D::accessed(self.uc, at.wrapping_add(from), bytes.saturating_sub(from as usize).min(8), is_write);
        }
    }
}

impl<D: Lends> LentCpu for Borrowed<'_, '_, D> {
    fn general(&self, reg: Reg) -> u64 {
        self.uc.get_data().registers().map_or(0, |registers| registers.get(self.uc, reg))
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
        if let Some(registers) = self.uc.get_data().registers() {
            registers.set(self.uc, reg, value);
        }
    }

    fn clock(&self) -> u64 {
        self.uc.get_data().clock()
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
