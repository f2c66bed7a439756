//! An instruction that the checker runs in the engine's place: MRS of CNTVCT_EL0, whose time must be the checker's own. The
//! engine asks the machine that it runs on.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;

/// MRS of CNTVCT_EL0 into x0.
pub(crate) const MRS_CNTVCT_EL0: u32 = 0xd53b_e040;

/// The emulation of this instruction.
pub(crate) const LENT: Lent = Lent { size, run, ..Lent::NONE };

/// The register that it writes; `None` of another instruction.
fn written(code: &[u8]) -> Option<Reg> {
    let word = u32::from_le_bytes(*code.first_chunk()?);
    (word & !31 == MRS_CNTVCT_EL0).then_some(Reg((word & 31) as u8))
}

fn size(code: &[u8]) -> Option<usize> {
    written(code).map(|_| 4)
}

fn run(code: &[u8], _: u64, cpu: &mut dyn LentCpu) -> Result<LentTo, &'static str> {
    // 31 is xzr.
    if let Some(dst) = written(code).filter(|reg| reg.0 != 31) {
        let now = cpu.clock();
        cpu.set_general(dst, now);
    }
    Ok(LentTo::Us)
}
