//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::error::Result;
use codegen::facts::Facts;
use codegen::field::reach;
use codegen::patch::{Branch, Parts, Patch, Relocation, SiteForm};

use crate::{FACTS, X86_64, reloc};

/// `int3`.
const INT3: u8 = 0xcc;
/// `call rel32`.
const CALL: u8 = 0xe8;
/// `jmp rel32`.
const JMP: u8 = 0xe9;

/// What gcc and clang leave at sites, and what is written there. XRay's sleds have a jump over the rest, or a return.
const FORMS: &[SiteForm] = &[
    SiteForm::entry("call", "e8 ?? ?? ?? ??"),
    SiteForm::entry("nop", "0f 1f 44 00 00"),
    SiteForm::entry("nops", "90 90 90 90 90"),
    SiteForm {
        refused: "6 bytes, of which patching would write 5: compile without -fPIC, or with -mnop-mcount",
        ..SiteForm::entry("call through a pointer", "ff 15 ?? ?? ?? ??")
    },
    SiteForm::sled("jump", "eb 09 66 0f 1f 84 00 00 02 00 00"),
    SiteForm::sled("return", "c3 2e 66 0f 1f 84 00 00 02 00 00"),
];

impl Patch for X86_64 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        reloc::relocate(rel, field)
    }

    fn site_forms(&self) -> &'static [SiteForm] {
        FORMS
    }

    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>> {
        let opcode = if how == Branch::SiteJump { JMP } else { CALL };
        let next = at.wrapping_add(5);
        let distance = reach("call", target.wrapping_sub(next), 32, 1)? as i32;
        Ok([opcode].into_iter().chain(distance.to_le_bytes()).collect())
    }

    // As kernel arch/x86/kernel/ftrace.c, `create_trampoline`: it ends in a return, has no way to a direct trampoline,
    // and loads `op` from behind its end.
    fn copy(&self, code: &[u8], parts: &Parts, op: u64) -> Option<Vec<u8>> {
        /// `jnz` with a distance of 8 bits; `nop` of two bytes.
        const JNZ: u8 = 0x75;
        const NOP2: [u8; 2] = [0x66, 0x90];
        /// `mov distance(%rip), %rdx`.
        const LOAD_OP: [u8; 3] = [0x48, 0x8b, 0x15];
        const RET_INT3: [u8; 2] = [0xc3, INT3];
        let mut copy = code.get(..parts.end)?.to_vec();
        if let Some(jmp) = parts.jmp {
            let branch = copy.get_mut(jmp..jmp.checked_add(NOP2.len())?)?;
            (branch.first() == Some(&JNZ)).then(|| branch.copy_from_slice(&NOP2))?;
        }
        let load = parts.op_ptr.checked_add(LOAD_OP.len())?;
        (copy.get(parts.op_ptr..load)? == LOAD_OP).then_some(())?;
        let distance = parts.end + RET_INT3.len() - load.checked_add(4)?;
        copy.get_mut(load..load + 4)?.copy_from_slice(&(distance as i32).to_le_bytes());
        copy.extend(RET_INT3);
        copy.extend(op.to_le_bytes());
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_its_own_op_and_no_direct_path() {
        // GNU as 2.40: 1: mov 0x100(%rip), %rdx; jnz 1b; nop
        let code = [0x48, 0x8b, 0x15, 0x00, 0x01, 0, 0, 0x75, 0xf7, 0x90, 0xcc];
        let parts = Parts { end: 10, op_ptr: 0, jmp: Some(7) };
        let made = X86_64.copy(&code, &parts, 0x1122).unwrap();
        // And: mov 5(%rip), %rdx; xchg %ax, %ax; nop; ret; int3; .quad 0x1122
        let expected = [0x48, 0x8b, 0x15, 5, 0, 0, 0, 0x66, 0x90, 0x90, 0xc3, 0xcc, 0x22, 0x11, 0, 0, 0, 0, 0, 0];
        assert_eq!(made, expected);
        for wrong in [
            Parts { end: 12, ..parts },
            Parts { op_ptr: 1, ..parts },
            Parts { op_ptr: usize::MAX, ..parts },
            Parts { jmp: Some(8), ..parts },
            Parts { end: 5, jmp: None, ..parts },
        ] {
            assert_eq!(X86_64.copy(&code, &wrong, 0), None, "{wrong:?}");
        }
    }

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
