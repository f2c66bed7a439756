//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::arch::entry::{Code, Entry, Lead};
use codegen::arch::facts::Facts;
use codegen::arch::patch::{Branch, Patch, Relocation, SiteForm};
use codegen::words::error::Result;
use codegen::words::field::reach;

use crate::{Arm64, FACTS, entry, reloc};

/// `nop`.
const NOP: u32 = 0xd503_201f;
/// `bl .`.
const BL: u32 = 0x9400_0000;
/// `b .`.
const B: u32 = 0x1400_0000;
/// `ldr x16, .+8` and `br x16`: to the address behind them.
const FAR: [u32; 2] = [0x5800_0050, 0xd61f_0200];

/// The code of gcc and clang at sites, and the code of tracers; the kernel records the second instruction. XRay's sleds
/// have a branch over the rest.
const FORMS: &[SiteForm] = &[
    entry("nops", "1f 20 03 d5 1f 20 03 d5"),
    entry("disabled", "e9 03 1e aa 1f 20 03 d5"),
    entry("call", "e9 03 1e aa ?? ?? ?? 94"),
    entry("call", "e9 03 1e aa ?? ?? ?? 95"),
    entry("call", "e9 03 1e aa ?? ?? ?? 96"),
    entry("call", "e9 03 1e aa ?? ?? ?? 97"),
    SiteForm {
        about: "branch",
        sled: true,
        before: 0,
        bytes: "08 00 00 14 1f 20 03 d5 1f 20 03 d5 1f 20 03 d5 1f 20 03 d5 1f 20 03 d5 1f 20 03 d5 1f 20 03 d5",
        refused: "",
    },
];

const fn entry(about: &'static str, bytes: &'static str) -> SiteForm {
    SiteForm { before: 4, ..SiteForm::entry(about, bytes) }
}

/// A return.
const EMPTY: &[SiteForm] = &[
    SiteForm::entry("ret", "c0 03 5f d6"),
    SiteForm { before: 4, ..SiteForm::entry("bti c, ret", "5f 24 03 d5 c0 03 5f d6") },
];

impl Patch for Arm64 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        reloc::relocate(rel, field)
    }

    fn through_got(&self, r_type: u32) -> Option<u32> {
        reloc::GOT.iter().find(|(through, _)| *through == r_type).map(|(_, direct)| *direct)
    }

    // The second NOP at the function's start. The entry is the first NOP, or the room for `op` before the function, which
    // a landing pad may follow.
    fn site_ip(&self, entry: u64, word: &dyn Fn(u64) -> Option<u32>) -> u64 {
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

    fn site_forms(&self) -> &'static [SiteForm] {
        FORMS
    }

    fn empty_functions(&self) -> &'static [SiteForm] {
        EMPTY
    }

    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>> {
        if how == Branch::Far {
            return Ok(FAR.iter().flat_map(|i| i.to_le_bytes()).chain(target.to_le_bytes()).collect());
        }
        let opcode = if matches!(how, Branch::SiteJump | Branch::Past) { B } else { BL };
        let distance = reach("BL", target.wrapping_sub(at), 28, 4)?;
        Ok((opcode | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes().to_vec())
    }

    fn entries(&self, code: &Code) -> Vec<Entry> {
        entry::entries(code)
    }

    fn leads(&self, code: &[u8], at: u64) -> Vec<Lead> {
        codegen::arch::entry::leads(code, at, 4, &entry::decode)
    }

    fn moved(&self, code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
        entry::moved(code, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What gcc makes of `-fpatchable-function-entry=2` and `=4,2`, with and without `-mbranch-protection=bti`; the
    /// words are those of GNU as.
    #[test]
    fn the_site_is_the_second_nop_of_the_function() {
        let (nop, paciasp, ret, entry) = (0xd503_201f, 0xd503_233f, 0xd65f_03c0, 0x40_0ff8);
        let ip = |words: &[u32]| {
            let word = |at: u64| words.get((at - entry) as usize / 4).copied();
            Arm64.site_ip(entry, &word) - entry
        };
        assert_eq!(ip(&[nop, nop, ret]), 4);
        assert_eq!(ip(&[nop, nop, paciasp, nop, ret]), 4);
        assert_eq!(ip(&[nop, nop, nop, nop, ret]), 12);
        for bti in [0xd503_241f, 0xd503_245f, 0xd503_249f, 0xd503_24df] {
            assert_eq!(ip(&[nop, nop, bti, nop, nop, ret]), 16);
        }
        assert_eq!(Arm64.site_ip(entry, &|_| None), entry + 4);
    }

    #[test]
    fn a_target_out_of_reach_is_refused() {
        let at = 0x1_0000_0000_u64;
        assert!(Arm64.patch_call(at, at + (128 << 20) - 4).is_ok());
        assert!(Arm64.patch_call(at, at - (128 << 20)).is_ok());
        assert!(Arm64.patch_call(at, at - (128 << 20) - 4).is_err());
        assert!(Arm64.patch_call(at, at + 2).is_err());
        let e = Arm64.patch_call(at, at + (128 << 20)).unwrap_err();
        assert_eq!(e.to_string(), "BL reaches 128 MiB either way; the target is 134217728 bytes away");
    }
}
