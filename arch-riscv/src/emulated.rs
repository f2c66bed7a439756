//! An instruction that the checker runs in the engine's place: `rdtime`. The engine raises an illegal instruction.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;

use crate::regs::ZERO;

/// CSRRS of TIME and nothing, into x0 (unprivileged specification, Zicntr).
pub(crate) const RDTIME: u32 = 0xc010_2073;

/// The emulation of this instruction.
pub(crate) const LENT: Lent = Lent { size, run };

/// The register that it writes; `None` of another instruction.
fn written(code: &[u8]) -> Option<Reg> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    (word & !(31 << 7) == RDTIME).then_some(Reg((word >> 7 & 31) as u8))
}

fn size(code: &[u8]) -> Option<usize> {
    written(code).map(|_| 4)
}

fn run(code: &[u8], _: u64, cpu: &mut dyn LentCpu) -> Result<LentTo, &'static str> {
    if let Some(dst) = written(code).filter(|reg| *reg != ZERO) {
        let now = cpu.clock();
        cpu.set_general(dst, now);
    }
    Ok(LentTo::Us)
}
