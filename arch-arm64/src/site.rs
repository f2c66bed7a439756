//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::error::{Error, Result};
use codegen::field::reach;
use codegen::patch::{Patch, Relocation, SiteForm, SiteState, Write};
use codegen::target::Facts;

use crate::{Arm64, FACTS, reloc};

/// `nop`.
const NOP: u32 = 0xd503_201f;
/// `mov x9, x30`: keeps the return address of the traced function while BL takes its register.
const MOV_X9_X30: u32 = 0xaa1e_03e9;
/// `bl .`.
const BL: u32 = 0x9400_0000;
/// `b .`.
const B: u32 = 0x1400_0000;

/// What gcc and clang leave at sites, and what is written there; the kernel records the second instruction. XRay's sleds
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
    SiteForm { about, sled: false, before: 4, bytes, refused: "" }
}

impl Patch for Arm64 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        reloc::relocate(rel, field)
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

    // `op` first, then the instructions. A site that is disabled keeps the first one; the kernel puts it there at boot and
    // leaves it. It keeps `op` too, for the CPUs that are on the way to reading it.
    fn patch_site(&self, ip: u64, state: SiteState, has_op: bool) -> Result<Vec<Write>> {
        let mut writes = Vec::new();
        let insn = match state {
            SiteState::Disabled => NOP,
            SiteState::Enabled { target, op, jump } => {
                if has_op {
                    let op = op.ok_or_else(|| {
                        Error::new(
                            "the function carries the address of an ftrace_ops, and none is named; name the variable, as \
                             `link --ops` does",
                        )
                    })?;
                    writes.push(write(ip.wrapping_sub(12) & !7, &op.to_le_bytes()));
                }
                branch(if jump { B } else { BL }, ip, target)?
            }
        };
        writes.push(write(ip.wrapping_sub(4), &MOV_X9_X30.to_le_bytes()));
        writes.push(write(ip, &insn.to_le_bytes()));
        Ok(writes)
    }

    fn patch_call(&self, slot: u64, target: u64) -> Result<Write> {
        Ok(write(slot, &branch(BL, slot, target)?.to_le_bytes()))
    }
}

/// `bl target` or `b target` at `at`.
fn branch(opcode: u32, at: u64, target: u64) -> Result<u32> {
    let distance = reach("BL", target.wrapping_sub(at), 28, 4)?;
    Ok(opcode | (distance >> 2) as u32 & 0x03ff_ffff)
}

fn write(at: u64, bytes: &[u8]) -> Write {
    Write { at, bytes: bytes.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What GNU as and ld 2.40 make of `mov x9, x30; bl f` with `-Ttext=0x401000 --defsym=f=0x3ff000`.
    const MOV: [u8; 4] = 0xaa1e_03e9_u32.to_le_bytes();
    const CALL: [u8; 4] = 0x97ff_f7ff_u32.to_le_bytes();

    #[test]
    fn sites_are_patched_as_the_kernel_does() {
        let ip = 0x40_1004;
        let mov = || write(0x40_1000, &MOV);
        let on = SiteState::Enabled { target: 0x3f_f000, op: Some(0x1234), jump: false };
        let writes = Arm64.patch_site(ip, on, false).unwrap();
        assert_eq!(writes, [mov(), write(ip, &CALL)]);
        let writes = Arm64.patch_site(ip, on, true).unwrap();
        let op = write(0x40_0ff8, &[0x34, 0x12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(writes, [op, mov(), write(ip, &CALL)]);

        // Without a name for what it carries, such a site would have the trampoline read address 0.
        let unnamed = SiteState::Enabled { target: 0x3f_f000, op: None, jump: false };
        assert_eq!(Arm64.patch_site(ip, unnamed, false).unwrap(), [mov(), write(ip, &CALL)]);
        assert!(Arm64.patch_site(ip, unnamed, true).unwrap_err().to_string().contains("--ops"));

        let nop = || write(ip, &0xd503_201f_u32.to_le_bytes());
        for has_op in [false, true] {
            let writes = Arm64.patch_site(ip, SiteState::Disabled, has_op).unwrap();
            assert_eq!(writes, [mov(), nop()]);
        }
        assert_eq!(Arm64.patch_call(ip, 0x3f_f000).unwrap(), write(ip, &CALL));
    }

    #[test]
    fn room_for_op_is_before_the_function_with_or_without_landing_pad() {
        // The function is at 0x401000; its site is at + 4, or at + 8 after a landing pad.
        for ip in [0x40_1004, 0x40_1008] {
            let writes =
                Arm64.patch_site(ip, SiteState::Enabled { target: ip, op: Some(0), jump: false }, true).unwrap();
            assert_eq!(writes.first(), Some(&write(0x40_0ff8, &[0; 8])));
        }
    }

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
