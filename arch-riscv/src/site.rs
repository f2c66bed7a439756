//! Patchable function entries and call slots, in the bytes that the kernel writes.

use codegen::arch::entry::{Code, Entry, Lead};
use codegen::arch::facts::Facts;
use codegen::arch::patch::{Branch, Half, Patch, Relocation, SiteForm};
use codegen::words::error::{Error, Result};

use crate::reloc::{self, high, pair};
use crate::{FACTS, Riscv64, entry};

/// `auipc x0, 0`.
const AUIPC: u32 = 0x0000_0017;
/// `jalr x0, 0(x0)`.
const JALR: u32 = 0x0000_0067;
/// `jal x0, 0`.
const JAL: u32 = 0x0000_006f;
/// The register that links to a trampoline.
const T0: u32 = 5;
/// The register that jumps to a trampoline: a jump through x1 or x5 is a return, and takes an entry off the return-address
/// stack (RISC-V unprivileged ISA, "Return-address prediction hints"). It is free at a function's entry.
const T1: u32 = 6;
/// The register that links to nothing.
const ZERO: u32 = 0;
/// The register that links to a function.
const RA: u32 = 1;

/// `auipc t1, 0`, `ld t1, 16(t1)`, `jr t1` and a NOP: to the address behind them.
const FAR: [u32; 4] = [0x0000_0317, 0x0103_3303, 0x0003_0067, 0x0000_0013];

/// What gcc and clang leave at sites, and what is written there: 8 bytes, in compressed instructions or not.
const FORMS: &[SiteForm] = &[
    SiteForm::entry("nops", "13 00 00 00 13 00 00 00"),
    SiteForm::entry("compressed nops", "01 00 01 00 01 00 01 00"),
    SiteForm::entry("call", "97 ?? ?? ?? e7 82 ?? ??"),
    // Of which the second instruction is the only one that changes.
    SiteForm::entry("disabled", "97 ?? ?? ?? 13 00 00 00"),
];

impl Patch for Riscv64 {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn relocate(&self, rel: &Relocation, field: &mut [u8]) -> Result<()> {
        reloc::relocate(rel, field)
    }

    fn through_got(&self, r_type: u32) -> Option<u32> {
        (r_type == reloc::GOT_HI20).then_some(reloc::PCREL_HI20)
    }

    fn refers_to_high(&self, r_type: u32) -> bool {
        reloc::refers_to_high(r_type)
    }

    fn is_padding(&self, r_type: u32) -> bool {
        r_type == reloc::ALIGN
    }

    // The first instruction of the function. The entry is that, or the room for `op` before the function.
    fn site_ip(&self, entry: u64, word: &dyn Fn(u64) -> Option<u32>) -> u64 {
        let function = entry.wrapping_add(8);
        if word(function).is_some() { function } else { entry }
    }

    fn site_forms(&self) -> &'static [SiteForm] {
        FORMS
    }

    fn branch(&self, how: Branch, at: u64, target: u64) -> Result<Vec<u8>> {
        if how == Branch::Far {
            return Ok(FAR.iter().flat_map(|i| i.to_le_bytes()).chain(target.to_le_bytes()).collect());
        }
        if how == Branch::Past {
            let mut jump = JAL.to_le_bytes();
            reloc::relocate(&Relocation { r_type: reloc::JAL, place: at, value: target, high: 0 }, &mut jump)?;
            return Ok(jump.to_vec());
        }
        let distance = pair("AUIPC+JALR", target.wrapping_sub(at))?;
        let pair = [auipc(how, distance), jalr(how, distance)];
        Ok(pair.iter().flat_map(|i| i.to_le_bytes()).collect())
    }

    fn entries(&self, code: &Code) -> Vec<Entry> {
        entry::entries(code)
    }

    fn leads(&self, code: &[u8], at: u64) -> Vec<Lead> {
        codegen::arch::entry::leads(code, at, 2, &entry::decode)
    }

    fn moved(&self, code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
        entry::moved(code, from, to)
    }

    fn half_branch(&self, how: Branch, half: Half, at: u64, toward: u64, target: u64) -> Result<Vec<u8>> {
        let first = if half == Half::First { at } else { at.wrapping_sub(4) };
        let [there, wanted] = [toward, target].map(|to| pair("AUIPC+JALR", to.wrapping_sub(first)));
        let (there, wanted) = (there?, wanted?);
        match half {
            Half::First => Ok(auipc(how, there).to_le_bytes().to_vec()),
            Half::Second if (high(there) ^ high(wanted)) & !0xfff == 0 => Ok(jalr(how, wanted).to_le_bytes().to_vec()),
            Half::Second => Err(Error::new(format!(
                "the AUIPC at {first:#x}, written for {toward:#x}, has no JALR that leads to {target:#x}; valid: a target in \
                 the same 4 KiB as that, counted from 2 KiB before the AUIPC"
            ))),
        }
    }
}

/// The register by which the pair goes, and that which it links to.
fn registers(how: Branch) -> (u32, u32) {
    match how {
        Branch::SiteCall => (T0, T0),
        Branch::SiteJump | Branch::Past | Branch::Far => (T1, ZERO),
        Branch::Slot => (RA, RA),
    }
}

fn auipc(how: Branch, distance: i64) -> u32 {
    AUIPC | registers(how).0 << 7 | high(distance) as u32 & 0xffff_f000
}

fn jalr(how: Branch, distance: i64) -> u32 {
    let (base, link) = registers(how);
    JALR | link << 7 | base << 15 | (distance as u32) << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_holds_the_site_itself() {
        assert_eq!(Riscv64.site_ip(0x40_1004, &|_| None), 0x40_1004);
        // `-fpatchable-function-entry=4,2`: two NOPs before the function, and its first two.
        assert_eq!(Riscv64.site_ip(0x40_1000, &|at| (at >= 0x40_1008).then_some(0x13)), 0x40_1008);
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
