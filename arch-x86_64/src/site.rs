//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::arch::entry::{Code, Entry, First, Lead};
use codegen::arch::facts::Facts;
use codegen::arch::patch::{Branch, Patch, Relocation, SiteForm};
use codegen::words::error::Result;
use codegen::words::field::reach;

use crate::{FACTS, X86_64, entry, reloc};

/// `call rel32`.
const CALL: u8 = 0xe8;
/// `jmp rel32`.
const JMP: u8 = 0xe9;
/// `jmp *(%rip)`: to the address behind it.
const JMP_FAR: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];

/// The code of gcc and clang at sites, and the code of tracers. XRay's sleds have a jump over the rest, or a return.
const FORMS: &[SiteForm] = &[
    SiteForm::entry("call", "e8 ?? ?? ?? ??"),
    SiteForm::entry("nop", "0f 1f 44 00 00"),
    SiteForm::entry("nop of clang", "0f 1f 44 00 08"),
    SiteForm::entry("nops", "90 90 90 90 90"),
    SiteForm {
        refused: "6 bytes, of which patching would write 5: compile without -fPIC, or with -mnop-mcount",
        ..SiteForm::entry("call through a pointer", "ff 15 ?? ?? ?? ??")
    },
    SiteForm::sled("jump", "eb 09 66 0f 1f 84 00 00 02 00 00"),
    SiteForm::sled("return", "c3 2e 66 0f 1f 84 00 00 02 00 00"),
];

/// A return, and what assemblers put between functions.
const EMPTY: &[SiteForm] = &[
    SiteForm::entry("ret", "c3 66 ?? ?? ??"),
    SiteForm::entry("ret", "c3 0f 1f ?? ??"),
    SiteForm::entry("ret", "c3 90 90 90 90"),
    SiteForm::entry("ret", "c3 cc cc cc cc"),
    SiteForm { before: 4, ..SiteForm::entry("endbr64, ret", "f3 0f 1e fa c3 66 ?? ?? ??") },
    SiteForm { before: 4, ..SiteForm::entry("endbr64, ret", "f3 0f 1e fa c3 0f 1f ?? ??") },
];

impl Patch for X86_64 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        reloc::relocate(rel, field)
    }

    fn through_got(&self, r_type: u32) -> Option<u32> {
        reloc::GOTPCREL.contains(&r_type).then_some(reloc::PC32)
    }

    // From behind the field, which is the instruction's end.
    fn refers_to(&self, rel: &Relocation) -> u64 {
        if matches!(rel.r_type, reloc::PC32 | reloc::PLT32) { rel.value.wrapping_add(4) } else { rel.value }
    }

    fn site_forms(&self) -> &'static [SiteForm] {
        FORMS
    }

    fn empty_functions(&self) -> &'static [SiteForm] {
        EMPTY
    }

    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>> {
        if how == Branch::Far {
            return Ok(JMP_FAR.into_iter().chain(target.to_le_bytes()).collect());
        }
        let opcode = if matches!(how, Branch::SiteJump | Branch::Past) { JMP } else { CALL };
        let next = at.wrapping_add(5);
        let distance = reach("call", target.wrapping_sub(next), 32, 1)? as i32;
        Ok([opcode].into_iter().chain(distance.to_le_bytes()).collect())
    }

    fn entries(&self, code: &Code) -> Vec<Entry> {
        entry::entries(code)
    }

    fn leads(&self, code: &[u8], at: u64) -> Vec<Lead> {
        codegen::arch::entry::leads(code, at, 1, &entry::decode)
    }

    fn first(&self, code: &[u8], at: u64) -> Option<First> {
        entry::first(code, at)
    }

    fn moved(&self, code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
        entry::moved(code, from, to)
    }

    fn aim_load(&self, code: &mut [u8], at: usize, from: usize) -> Option<()> {
        /// `mov distance(%rip), %rdx`.
        const LOAD_OP: [u8; 3] = [0x48, 0x8b, 0x15];
        let field = at.checked_add(LOAD_OP.len())?;
        let next = field.checked_add(4)?;
        (code.get(at..field)? == LOAD_OP).then_some(())?;
        let distance = i32::try_from(from as i64 - next as i64).ok()?;
        code.get_mut(field..next)?.copy_from_slice(&distance.to_le_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_holds_the_site_itself() {
        assert_eq!(X86_64.site_ip(0x40_1004, &|_| None), 0x40_1004);
    }

    #[test]
    fn a_target_out_of_reach_is_refused() {
        let at = 0x1_0000_0000_u64;
        assert!(X86_64.patch_call(at, at + 5 + 0x7fff_ffff).is_ok());
        assert!(X86_64.patch_call(at, at + 5 - 0x8000_0000).is_ok());
        assert!(X86_64.patch_call(at, at + 5 - 0x8000_0001).is_err());
        let e = X86_64.patch_call(at, at + 5 + 0x8000_0000).unwrap_err();
        assert_eq!(e.to_string(), "call reaches 2 GiB either way; the target is 2147483648 bytes away");
    }
}
