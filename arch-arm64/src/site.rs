//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::error::Result;
use codegen::isa::{SiteState, Write};
use codegen::link::reach;

/// `nop`.
const NOP: u32 = 0xd503_201f;
/// `mov x9, x30`: keeps the return address of the traced function while BL takes its register.
const MOV_X9_X30: u32 = 0xaa1e_03e9;
/// `bl .`.
const BL: u32 = 0x9400_0000;

/// From an entry of the site list to the address that the kernel records: that of the second NOP at the function's
/// start. The entry is the first NOP, or the room for `op` before the function, which a landing pad may follow.
pub fn site_ip(entry: u64, word: &dyn Fn(u64) -> Option<u32>) -> u64 {
    // BTI with any operand.
    let is_bti = |insn: u32| insn & !0xc0 == 0xd503_241f;
    let at = |offset| word(entry.wrapping_add(offset));
    let offset = match (at(8), at(12)) {
        (Some(pad), _) if is_bti(pad) => 16,
        (Some(NOP), Some(NOP)) => 12,
        _ => 4,
    };
    entry.wrapping_add(offset)
}

/// The bytes that put a site into a state: `op` first, then the instructions. A site that is disabled keeps the
/// first one; the kernel puts it there at boot and leaves it.
///
/// # Errors
/// The trampoline is out of reach.
pub fn patch_site(ip: u64, state: SiteState, has_op: bool) -> Result<Vec<Write>> {
    // Disabled, the kernel has the address of an empty `ftrace_ops` there. Nothing reads it, so here it is zero.
    let (op, insn) = match state {
        SiteState::Disabled => (0, NOP),
        SiteState::Enabled { target, op } => (op, call(ip, target)?),
    };
    let mut writes = Vec::new();
    if has_op {
        writes.push(write(ip.wrapping_sub(12) & !7, &op.to_le_bytes()));
    }
    writes.push(write(ip.wrapping_sub(4), &MOV_X9_X30.to_le_bytes()));
    writes.push(write(ip, &insn.to_le_bytes()));
    Ok(writes)
}

/// The bytes that make a patchable call slot call `target`.
///
/// # Errors
/// The target is out of reach.
pub fn patch_call(slot: u64, target: u64) -> Result<Write> {
    Ok(write(slot, &call(slot, target)?.to_le_bytes()))
}

/// `bl target` at `at`.
fn call(at: u64, target: u64) -> Result<u32> {
    let distance = reach("BL", target.wrapping_sub(at), 28, 4)?;
    Ok(BL | (distance >> 2) as u32 & 0x03ff_ffff)
}

fn write(at: u64, bytes: &[u8]) -> Write {
    Write {
        at,
        bytes: bytes.to_vec(),
    }
}
