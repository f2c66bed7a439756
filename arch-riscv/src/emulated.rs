//! Instructions that the checker runs in the engine's place: `rdtime`, and those of the shadow stack, which do nothing where there is
//! none (unprivileged specification, Zimop). The engine raises an illegal instruction.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;

use crate::regs::ZERO;

/// CSRRS of TIME and nothing, into x0 (unprivileged specification, Zicntr).
pub(crate) const RDTIME: u32 = 0xc010_2073;

/// SSPUSH of ra (Zicfiss).
pub(crate) const SSPUSH_RA: u32 = 0xce10_4073;
/// SSPOPCHK of ra.
pub(crate) const SSPOPCHK_RA: u32 = 0xcdc0_c073;

/// The emulation of these instructions.
pub(crate) const LENT: Lent = Lent { size, run };

/// The register that it writes; `None` of another instruction.
fn written(code: &[u8]) -> Option<Reg> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    (word & !(31 << 7) == RDTIME).then_some(Reg((word >> 7 & 31) as u8))
}

/// Does it push onto the shadow stack, or compare with what is there? Of ra or t0, as no others can be.
fn guards(code: &[u8]) -> bool {
    /// The same of t0.
    const SSPUSH_T0: u32 = 0xce50_4073;
    const SSPOPCHK_T0: u32 = 0xcdc2_c073;
    let word = code.first_chunk().map(|word| u32::from_le_bytes(*word));
    word.is_some_and(|word| [SSPUSH_RA, SSPOPCHK_RA, SSPUSH_T0, SSPOPCHK_T0].contains(&word))
}

fn size(code: &[u8]) -> Option<usize> {
    (written(code).is_some() || guards(code)).then_some(4)
}

fn run(code: &[u8], _: u64, cpu: &mut dyn LentCpu) -> Result<LentTo, &'static str> {
    if let Some(dst) = written(code).filter(|reg| *reg != ZERO) {
        let now = cpu.clock();
        cpu.set_general(dst, now);
    }
    Ok(LentTo::Us)
}
