//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::error::Result;
use codegen::patch::{Patch, Relocation, SiteForm, SiteState, Write};
use codegen::target::Facts;

use crate::reloc::{self, high, pair};
use crate::{FACTS, Riscv64};

/// `nop`, of 4 bytes also where compressed ones exist: the kernel rewrites them at boot.
const NOP: u32 = 0x0000_0013;
/// `auipc x0, 0`.
const AUIPC: u32 = 0x0000_0017;
/// `jalr x0, 0(x0)`.
const JALR: u32 = 0x0000_0067;
/// The register that links to a trampoline.
const T0: u32 = 5;
/// The register that jumps to a trampoline: a jump through x1 or x5 is a return, and takes an entry off the return-address
/// stack (RISC-V unprivileged ISA, "Return-address prediction hints"). It is free at a function's entry.
const T1: u32 = 6;
/// The register that links to nothing.
const ZERO: u32 = 0;
/// The register that links to a function.
const RA: u32 = 1;

/// What gcc and clang leave at sites, and what is written there: 8 bytes, in compressed instructions or not.
const FORMS: &[SiteForm] = &[
    entry("nops", "13 00 00 00 13 00 00 00"),
    entry("compressed nops", "01 00 01 00 01 00 01 00"),
    entry("call", "97 ?? ?? ?? e7 82 ?? ??"),
];

const fn entry(about: &'static str, bytes: &'static str) -> SiteForm {
    SiteForm { about, sled: false, before: 0, bytes, refused: "" }
}

impl Patch for Riscv64 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        reloc::relocate(rel, field)
    }

    fn refers_to_high(&self, r_type: u32) -> bool {
        reloc::refers_to_high(r_type)
    }

    fn is_padding(&self, r_type: u32) -> bool {
        r_type == reloc::ALIGN
    }

    fn site_forms(&self) -> &'static [SiteForm] {
        FORMS
    }

    // No function has room for `op`: it is found by the trampoline.
    fn patch_site(&self, ip: u64, state: SiteState, _has_op: bool) -> Result<Vec<Write>> {
        let insns = match state {
            SiteState::Disabled => [NOP, NOP],
            SiteState::Enabled { target, jump: false, .. } => branch(ip, target, T0, T0)?,
            SiteState::Enabled { target, jump: true, .. } => branch(ip, target, T1, ZERO)?,
        };
        Ok(vec![write(ip, insns)])
    }

    fn patch_call(&self, slot: u64, target: u64) -> Result<Write> {
        Ok(write(slot, branch(slot, target, RA, RA)?))
    }
}

/// `auipc base, high; jalr link, low(base)` at `at`.
fn branch(at: u64, target: u64, base: u32, link: u32) -> Result<[u32; 2]> {
    let distance = pair("AUIPC+JALR", target.wrapping_sub(at))?;
    let auipc = AUIPC | base << 7 | high(distance) as u32 & 0xffff_f000;
    let jalr = JALR | link << 7 | base << 15 | (distance as u32) << 20;
    Ok([auipc, jalr])
}

fn write(at: u64, insns: [u32; 2]) -> Write {
    Write { at, bytes: insns.iter().flat_map(|i| i.to_le_bytes()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What GNU as and ld 2.40 make of `1: auipc t0, %pcrel_hi(f); jalr t0, %pcrel_lo(1b)(t0)` at 0x401004 with
    /// `--defsym=f=0x480ffe`, and of the same with ra at 0x40100c and `f=0x3ff000`.
    const SITE: [u32; 2] = [0x0008_0297, 0xffa2_82e7];
    const SLOT: [u32; 2] = [0xffff_e097, 0xff40_80e7];

    #[test]
    fn sites_are_patched_as_the_kernel_does() {
        let ip = 0x40_1004;
        let on = SiteState::Enabled { target: 0x48_0ffe, op: Some(0x1234), jump: false };
        for has_op in [false, true] {
            let writes = Riscv64.patch_site(ip, on, has_op).unwrap();
            assert_eq!(writes, [write(ip, SITE)]);
            let writes = Riscv64.patch_site(ip, SiteState::Disabled, has_op).unwrap();
            assert_eq!(writes, [write(ip, [0x0000_0013, 0x0000_0013])]);
        }
        let slot = 0x40_100c;
        assert_eq!(Riscv64.patch_call(slot, 0x3f_f000).unwrap(), write(slot, SLOT));
        let bytes = [0x97, 0xe0, 0xff, 0xff, 0xe7, 0x80, 0x40, 0xff];
        assert_eq!(write(slot, SLOT).bytes, bytes);
    }

    #[test]
    fn the_list_holds_the_site_itself() {
        assert_eq!(Riscv64.site_ip(0x40_1004, &|_| None), 0x40_1004);
    }

    #[test]
    fn a_target_out_of_reach_is_refused() {
        let at = 0x1_0000_0000_u64;
        assert!(Riscv64.patch_call(at, at + 0x7fff_f7ff).is_ok());
        assert!(Riscv64.patch_call(at, at - 0x8000_0800).is_ok());
        assert!(Riscv64.patch_call(at, at - 0x8000_0801).is_err());
        let e = Riscv64.patch_call(at, at + 0x7fff_f800).unwrap_err();
        assert_eq!(e.to_string(), "AUIPC+JALR reaches 2 GiB either way; the target is 2147481600 bytes away");
    }
}
