//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::error::Result;
use codegen::isa::{SiteState, Write};

use crate::reloc::{high, pair};

/// `nop`, of 4 bytes also where compressed ones exist: the kernel rewrites them at boot.
const NOP: u32 = 0x0000_0013;
/// `auipc x0, 0`.
const AUIPC: u32 = 0x0000_0017;
/// `jalr x0, 0(x0)`.
const JALR: u32 = 0x0000_0067;
/// The register that links to a trampoline.
const T0: u32 = 5;
/// The register that links to a function.
const RA: u32 = 1;

/// From an entry of the site list to the address that the kernel records: the list has it as it is.
pub fn site_ip(entry: u64, _word: &dyn Fn(u64) -> Option<u32>) -> u64 {
    entry
}

/// The bytes that put a site into a state. No function has room for `op`: it is found by the trampoline.
///
/// # Errors
/// The trampoline is out of reach.
pub fn patch_site(ip: u64, state: SiteState, _has_op: bool) -> Result<Vec<Write>> {
    let insns = match state {
        SiteState::Disabled => [NOP, NOP],
        SiteState::Enabled { target, .. } => call(ip, target, T0)?,
    };
    Ok(vec![write(ip, insns)])
}

/// The bytes that make a patchable call slot call `target`.
///
/// # Errors
/// The target is out of reach.
pub fn patch_call(slot: u64, target: u64) -> Result<Write> {
    Ok(write(slot, call(slot, target, RA)?))
}

/// `auipc link, high; jalr link, low(link)` at `at`.
fn call(at: u64, target: u64, link: u32) -> Result<[u32; 2]> {
    let distance = pair("AUIPC+JALR", target.wrapping_sub(at))?;
    let auipc = AUIPC | link << 7 | high(distance) as u32 & 0xffff_f000;
    let jalr = JALR | link << 7 | link << 15 | (distance as u32) << 20;
    Ok([auipc, jalr])
}

fn write(at: u64, insns: [u32; 2]) -> Write {
    Write {
        at,
        bytes: insns.iter().flat_map(|i| i.to_le_bytes()).collect(),
    }
}
