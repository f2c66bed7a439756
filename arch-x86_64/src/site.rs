//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::error::Result;
use codegen::isa::{SiteState, Write};
use codegen::link::reach;

/// `nopl 0(%rax,%rax,1)`: five bytes that do nothing.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// From an entry of the site list to the address that the kernel records: the list has it as it is.
pub fn site_ip(entry: u64, _word: &dyn Fn(u64) -> Option<u32>) -> u64 {
    entry
}

/// The bytes that put a site into a state. No function has room for `op`: it is found by the trampoline.
///
/// # Errors
/// The trampoline is out of reach.
pub fn patch_site(ip: u64, state: SiteState, _has_op: bool) -> Result<Vec<Write>> {
    let insn = match state {
        SiteState::Disabled => NOP5,
        SiteState::Enabled { target, .. } => call(ip, target)?,
    };
    Ok(vec![write(ip, &insn)])
}

/// The bytes that make a patchable call slot call `target`.
///
/// # Errors
/// The target is out of reach.
pub fn patch_call(slot: u64, target: u64) -> Result<Write> {
    Ok(write(slot, &call(slot, target)?))
}

/// `call target` at `at`.
fn call(at: u64, target: u64) -> Result<[u8; 5]> {
    let next = at.wrapping_add(5);
    let [a, b, c, d] = (reach("call", target.wrapping_sub(next), 32, 1)? as i32).to_le_bytes();
    Ok([0xe8, a, b, c, d])
}

fn write(at: u64, bytes: &[u8]) -> Write {
    Write {
        at,
        bytes: bytes.to_vec(),
    }
}
