//! Instructions that the checker runs in an engine's place, which would raise an illegal instruction: `rdtime`, and those of the
//! shadow stack, which do nothing where that is off (unprivileged specification, Zimop).

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;

use crate::regs::ZERO;

/// CSRRS of TIME and nothing, into x0 (unprivileged specification, Zicntr).
pub(crate) const RDTIME: u32 = 0xc010_2073;

/// SSPUSH of ra (Zicfiss).
pub(crate) const SSPUSH_RA: u32 = 0xce10_4073;
/// SSPUSH of t0.
pub(crate) const SSPUSH_T0: u32 = 0xce50_4073;
/// SSPOPCHK of ra.
pub(crate) const SSPOPCHK_RA: u32 = 0xcdc0_c073;
/// SSPOPCHK of t0.
pub(crate) const SSPOPCHK_T0: u32 = 0xcdc2_c073;

/// The emulation of these instructions.
pub(crate) const LENT: Lent = Lent { size, run, of_shadow_stack, ..Lent::NONE };

/// The register that it writes; `None` of another instruction.
fn written(code: &[u8]) -> Option<Reg> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    (word & !(31 << 7) == RDTIME).then_some(Reg((word >> 7 & 31) as u8))
}

/// Of ra or t0, as no other registers can be pushed or compared.
fn of_shadow_stack(code: &[u8]) -> Option<usize> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    [SSPUSH_RA, SSPOPCHK_RA, SSPUSH_T0, SSPOPCHK_T0].contains(&word).then_some(4)
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
