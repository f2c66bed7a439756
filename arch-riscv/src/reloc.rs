//! Relocations (RISC-V ABIs Specification, ELF psABI, 8.4).

use codegen::arch::patch::Relocation;
use codegen::words::error::{Error, Result};
use codegen::words::field::{get, known_type, out_of_reach, put, reach, too_large};

/// Distance to the word of the global offset table, the upper 20 bits.
pub const GOT_HI20: u32 = 20;
/// No relocation.
pub const NONE: u32 = 0;
/// Absolute address, 32 bits.
pub const ABS32: u32 = 1;
/// Absolute address, 64 bits.
pub const ABS64: u32 = 2;
/// Distance, in a conditional branch.
pub const BRANCH: u32 = 16;
/// Distance, in JAL.
pub const JAL: u32 = 17;
/// Distance, in AUIPC and JALR.
pub const CALL: u32 = 18;
/// Distance to a function, in AUIPC and JALR; a jump table entry may stand in for the function.
pub const CALL_PLT: u32 = 19;
/// High part of a distance, in AUIPC.
pub const PCREL_HI20: u32 = 23;
/// Low part of a distance, in a load or ADDI.
pub const PCREL_LO12_I: u32 = 24;
/// Low part of a distance, in a store.
pub const PCREL_LO12_S: u32 = 25;
/// High part of an address, in LUI.
pub const HI20: u32 = 26;
/// Low part of an address, in a load or ADDI.
pub const LO12_I: u32 = 27;
/// Low part of an address, in a store.
pub const LO12_S: u32 = 28;
/// High part of the offset from the thread pointer, in LUI.
pub const TPREL_HI20: u32 = 29;
/// Low part of it, in a load or ADDI.
pub const TPREL_LO12_I: u32 = 30;
/// Low part of it, in a store.
pub const TPREL_LO12_S: u32 = 31;
/// The thread pointer is added: nothing to do.
pub const TPREL_ADD: u32 = 32;
/// Add, 8 bits.
pub const ADD8: u32 = 33;
/// Add, 16 bits.
pub const ADD16: u32 = 34;
/// Add, 32 bits.
pub const ADD32: u32 = 35;
/// Add, 64 bits.
pub const ADD64: u32 = 36;
/// Subtract, 8 bits.
pub const SUB8: u32 = 37;
/// Subtract, 16 bits.
pub const SUB16: u32 = 38;
/// Subtract, 32 bits.
pub const SUB32: u32 = 39;
/// Subtract, 64 bits.
pub const SUB64: u32 = 40;
/// Padding that a relaxing linker shortens.
pub const ALIGN: u32 = 43;
/// Distance, in a compressed conditional branch.
pub const RVC_BRANCH: u32 = 44;
/// Distance, in a compressed jump.
pub const RVC_JUMP: u32 = 45;
/// The instruction may be shortened.
pub const RELAX: u32 = 51;
/// Subtract, the low 6 bits of a byte.
pub const SUB6: u32 = 52;
/// Set, the low 6 bits of a byte.
pub const SET6: u32 = 53;
/// Set, 8 bits.
pub const SET8: u32 = 54;
/// Set, 16 bits.
pub const SET16: u32 = 55;
/// Set, 32 bits.
pub const SET32: u32 = 56;
/// Distance, 32 bits.
pub const PCREL32: u32 = 57;

/// The types known here, as readelf names them after `R_RISCV_`.
pub const NAMES: &[(u32, &str)] = &[
    (NONE, "NONE"),
    (ABS32, "32"),
    (ABS64, "64"),
    (BRANCH, "BRANCH"),
    (JAL, "JAL"),
    (CALL, "CALL"),
    (CALL_PLT, "CALL_PLT"),
    (PCREL_HI20, "PCREL_HI20"),
    (PCREL_LO12_I, "PCREL_LO12_I"),
    (PCREL_LO12_S, "PCREL_LO12_S"),
    (HI20, "HI20"),
    (LO12_I, "LO12_I"),
    (LO12_S, "LO12_S"),
    (TPREL_HI20, "TPREL_HI20"),
    (TPREL_LO12_I, "TPREL_LO12_I"),
    (TPREL_LO12_S, "TPREL_LO12_S"),
    (TPREL_ADD, "TPREL_ADD"),
    (ADD8, "ADD8"),
    (ADD16, "ADD16"),
    (ADD32, "ADD32"),
    (ADD64, "ADD64"),
    (SUB8, "SUB8"),
    (SUB16, "SUB16"),
    (SUB32, "SUB32"),
    (SUB64, "SUB64"),
    (RVC_BRANCH, "RVC_BRANCH"),
    (RVC_JUMP, "RVC_JUMP"),
    (RELAX, "RELAX"),
    (SUB6, "SUB6"),
    (SET6, "SET6"),
    (SET8, "SET8"),
    (SET16, "SET16"),
    (SET32, "SET32"),
    (PCREL32, "32_PCREL"),
];

/// Is `value` of this relocation type the address of another relocated instruction (`%pcrel_lo`)?
pub fn refers_to_high(r_type: u32) -> bool {
    matches!(r_type, PCREL_LO12_I | PCREL_LO12_S)
}

/// Apply a relocation to the bytes at its place.
///
/// # Errors
/// An unknown type, a value out of the field's range, or a field that is cut off.
pub fn relocate(rel: &Relocation, field: &mut [u8]) -> Result<()> {
    if rel.r_type == ALIGN {
        return Err(Error::new("ALIGN asks the linker to move code, which this one does not; compile with -mno-relax"));
    }
    let name = known_type(rel.r_type, NAMES)?;
    let value = rel.value;
    let distance = value.wrapping_sub(rel.place);
    match rel.r_type {
        ABS64 => put(field, &value.to_le_bytes()),
        ABS32 => {
            // Signed or unsigned: the field does not tell how it is read.
            let signed = i32::try_from(value.cast_signed()).map(i32::cast_unsigned);
            let value = signed.or_else(|_| value.try_into()).map_err(|_| too_large(name, value))?;
            put(field, &value.to_le_bytes())
        }
        PCREL32 => {
            let distance = reach(name, distance, 32, 1)?;
            put(field, &(distance as i32).to_le_bytes())
        }
        BRANCH => insert(field, B, reach(name, distance, 13, 2)?),
        JAL => insert(field, J, reach(name, distance, 21, 2)?),
        RVC_BRANCH => insert_short(field, CB, reach(name, distance, 9, 2)?),
        RVC_JUMP => insert_short(field, CJ, reach(name, distance, 12, 2)?),
        CALL | CALL_PLT => {
            let distance = pair(name, distance)?;
            let second = field.get_mut(4..).unwrap_or_default();
            insert(second, I, distance)?;
            insert(field, U, high(distance))
        }
        PCREL_HI20 => insert(field, U, high(pair(name, distance)?)),
        PCREL_LO12_I => insert(field, I, pair(name, value.wrapping_sub(rel.high))?),
        PCREL_LO12_S => insert(field, S, pair(name, value.wrapping_sub(rel.high))?),
        // LUI sign-extends: what it reaches is within 2 GiB of address 0, either way.
        HI20 | TPREL_HI20 => {
            let address = pair(name, value).map_err(|_| too_large(name, value))?;
            insert(field, U, high(address))
        }
        LO12_I | TPREL_LO12_I => insert(field, I, value.cast_signed()),
        LO12_S | TPREL_LO12_S => insert(field, S, value.cast_signed()),
        // The two halves of a difference may overflow each by itself.
        ADD8 => put(field, &u8::from_le_bytes(get(field)?).wrapping_add(value as u8).to_le_bytes()),
        ADD16 => put(field, &u16::from_le_bytes(get(field)?).wrapping_add(value as u16).to_le_bytes()),
        ADD32 => put(field, &u32::from_le_bytes(get(field)?).wrapping_add(value as u32).to_le_bytes()),
        ADD64 => put(field, &u64::from_le_bytes(get(field)?).wrapping_add(value).to_le_bytes()),
        SUB8 => put(field, &u8::from_le_bytes(get(field)?).wrapping_sub(value as u8).to_le_bytes()),
        SUB16 => put(field, &u16::from_le_bytes(get(field)?).wrapping_sub(value as u16).to_le_bytes()),
        SUB32 => put(field, &u32::from_le_bytes(get(field)?).wrapping_sub(value as u32).to_le_bytes()),
        SUB64 => put(field, &u64::from_le_bytes(get(field)?).wrapping_sub(value).to_le_bytes()),
        SUB6 => {
            let [old] = get(field)?;
            put(field, &[old & 0xc0 | old.wrapping_sub(value as u8) & 0x3f])
        }
        SET6 => {
            let [old] = get(field)?;
            put(field, &[old & 0xc0 | value as u8 & 0x3f])
        }
        SET8 => put(field, &[value as u8]),
        SET16 => put(field, &(value as u16).to_le_bytes()),
        SET32 => put(field, &(value as u32).to_le_bytes()),
        _ => Ok(()),
    }
}

/// How an immediate is spread over an instruction: (bit of the value, number of bits, bit of the instruction).
type Format = &'static [(u32, u32, u32)];

const I: Format = &[(0, 12, 20)];
const S: Format = &[(5, 7, 25), (0, 5, 7)];
const B: Format = &[(12, 1, 31), (5, 6, 25), (1, 4, 8), (11, 1, 7)];
const U: Format = &[(12, 20, 12)];
const J: Format = &[(20, 1, 31), (1, 10, 21), (11, 1, 20), (12, 8, 12)];
const CB: Format = &[(8, 1, 12), (3, 2, 10), (6, 2, 5), (1, 2, 3), (5, 1, 2)];
const CJ: Format = &[(11, 1, 12), (4, 1, 11), (8, 2, 9), (10, 1, 8), (6, 1, 7), (7, 1, 6), (1, 3, 3), (5, 1, 2)];

/// Put `value` into the immediate of an instruction.
fn spread(mut insn: u32, format: Format, value: i64) -> u32 {
    for &(from, bits, to) in format {
        let mask = (1 << bits) - 1;
        insn = insn & !(mask << to) | ((value >> from) as u32 & mask) << to;
    }
    insn
}

fn insert(field: &mut [u8], format: Format, value: i64) -> Result<()> {
    let insn = spread(u32::from_le_bytes(get(field)?), format, value);
    put(field, &insn.to_le_bytes())
}

fn insert_short(field: &mut [u8], format: Format, value: i64) -> Result<()> {
    let insn = spread(u16::from_le_bytes(get(field)?).into(), format, value);
    put(field, &(insn as u16).to_le_bytes())
}

/// The high part of a value whose low part is sign-extended.
pub(crate) fn high(value: i64) -> i64 {
    value.wrapping_add(0x800)
}

/// `distance`, if AUIPC and a signed low part reach it together.
pub(crate) fn pair(name: &str, distance: u64) -> Result<i64> {
    let distance = distance.cast_signed();
    match i32::try_from(high(distance)) {
        Ok(_) => Ok(distance),
        Err(_) => Err(out_of_reach(name, distance, 32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(r_type: u32, place: u64, value: u64, field: &[u8]) -> Result<Vec<u8>> {
        let mut field = field.to_vec();
        let rel = Relocation { r_type, place, value, high: AUIPC };
        relocate(&rel, &mut field).map(|()| field)
    }

    /// The address of the AUIPC to which the low parts below refer.
    const AUIPC: u64 = 0x40_1014;

    fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// Instructions from GNU ld 2.40, for the lines
    ///
    /// ```text
    /// .option norelax
    /// .text
    /// .skip 12
    /// call f
    /// 1: auipc a0, %pcrel_hi(d); ld a0, %pcrel_lo(1b)(a0); sd a0, %pcrel_lo(1b)(a0)
    /// lui a0, %hi(d); addi a0, a0, %lo(d); sw a0, %lo(d)(a0)
    /// lui t4, %tprel_hi(w); add t4, t4, tp, %tprel_add(w); addi t4, t4, %tprel_lo(w); sd t4, %tprel_lo(w)(t4)
    /// .section .tbss,"awT",%nobits
    /// .skip 0x12ff0
    /// w: .skip 8
    /// .data
    /// .skip 0xbb0
    /// d: .quad f; .word f
    /// .byte 0x10; .reloc .-1, R_RISCV_ADD8, f
    /// ```
    ///
    /// and so on to 32_PCREL, linked with `ld -Ttext=0x401000 -Tdata=0x40f000 --defsym=f=0x4ff924 -e 0`. Likewise
    /// the branches, each a `.reloc` on a branch to itself. The bytes before are those of the object, the bytes
    /// after what `objdump -s` shows.
    #[test]
    fn fields_are_those_of_gnu_ld() {
        let (f, d, w) = (0x4f_f924, 0x40_fbb0, 0x1_2ff0);
        let text = [
            (PCREL_HI20, AUIPC, d, 0x0517, 0xf517),
            (PCREL_LO12_I, AUIPC + 4, d, 0x0005_3503, 0xb9c5_3503),
            (PCREL_LO12_S, AUIPC + 8, d, 0x00a5_3023, 0xb8a5_3e23),
            (HI20, AUIPC + 12, d, 0x0537, 0x0041_0537),
            (LO12_I, AUIPC + 16, d, 0x0005_0513, 0xbb05_0513),
            (LO12_S, AUIPC + 20, d, 0x00a5_2023, 0xbaa5_2823),
            (TPREL_HI20, 0, w, 0x0eb7, 0x0001_3eb7),
            (TPREL_ADD, 4, w, 0x004e_8eb3, 0x004e_8eb3),
            (TPREL_LO12_I, 8, w, 0x000e_8e93, 0xff0e_8e93),
            (TPREL_LO12_S, 12, w, 0x01de_b023, 0xffde_b823),
            (BRANCH, 0x40_1000, 0x40_0246, 0x00b5_0063, 0xa4b5_0363),
            (BRANCH, 0x40_1004, 0x40_1eba, 0x00b5_0063, 0x6ab5_0be3),
            (JAL, 0x40_1010, 0x40_0246, 0x006f, 0xa36f_f06f),
            (JAL, 0x40_1014, f, 0x00ef, 0x111f_e0ef),
        ];
        for (r_type, place, value, before, after) in text {
            let got = applied(r_type, place, value, &words([before])).unwrap();
            assert_eq!(got, words([after]), "type {r_type} at {place:#x}");
            // What the field held before does not matter.
            let again = applied(r_type, place, value, &got).unwrap();
            assert_eq!(again, got, "type {r_type} at {place:#x}");
        }
        let short = [
            (RVC_BRANCH, 0x40_1008, 0x40_109c, 0xc101_u16, 0xc951_u16),
            (RVC_BRANCH, 0x40_100a, 0x40_0f44, 0xc101, 0xdd0d),
            (RVC_JUMP, 0x40_100c, 0x40_0abc, 0xa001, 0xbc45),
            (RVC_JUMP, 0x40_100e, 0x40_175a, 0xa001, 0xa7b1),
        ];
        for (r_type, place, value, before, after) in short {
            let got = applied(r_type, place, value, &before.to_le_bytes()).unwrap();
            assert_eq!(got, after.to_le_bytes(), "type {r_type} at {place:#x}");
            let again = applied(r_type, place, value, &got).unwrap();
            assert_eq!(again, got, "type {r_type} at {place:#x}");
        }
        for r_type in [CALL, CALL_PLT] {
            let got = applied(r_type, 0x40_100c, f, &words([0x97, 0x80e7])).unwrap();
            assert_eq!(got, words([0x000f_f097, 0x9180_80e7]), "type {r_type}");
        }
        let data: &[(u32, u64, &[u8], &[u8])] = &[
            (ABS64, d, &[0; 8], &[0x24, 0xf9, 0x4f, 0, 0, 0, 0, 0]),
            (ABS32, d + 8, &[0; 4], &[0x24, 0xf9, 0x4f, 0]),
            (ADD8, 0, &[0x10], &[0x34]),
            (SUB8, 0, &[0x10], &[0xec]),
            (ADD16, 0, &[0x11; 2], &[0x35, 0x0a]),
            (SUB16, 0, &[0x11; 2], &[0xed, 0x17]),
            (ADD32, 0, &[0x11; 4], &[0x35, 0x0a, 0x61, 0x11]),
            (SUB32, 0, &[0x11; 4], &[0xed, 0x17, 0xc1, 0x10]),
            (ADD64, 0, &[0x11; 8], &[0x35, 0x0a, 0x61, 0x11, 0x11, 0x11, 0x11, 0x11]),
            (SUB64, 0, &[0x11; 8], &[0xed, 0x17, 0xc1, 0x10, 0x11, 0x11, 0x11, 0x11]),
            (SUB6, 0, &[0x90], &[0xac]),
            (SET6, 0, &[0x90], &[0xa4]),
            (SET8, 0, &[0x90], &[0x24]),
            (SET16, 0, &[0x11; 2], &[0x24, 0xf9]),
            (SET32, 0, &[0x11, 0x11, 0, 0], &[0x24, 0xf9, 0x4f, 0]),
            (PCREL32, d + 0x33, &[0; 4], &[0x41, 0xfd, 0x0e, 0]),
        ];
        for &(r_type, place, before, after) in data {
            let got = applied(r_type, place, f, before).unwrap();
            assert_eq!(got, after, "type {r_type}");
        }
    }

    #[test]
    fn reach_ends_where_the_field_does() {
        let at = 0x8_0000_0000_u64;
        for (r_type, up, down) in [
            (BRANCH, (4_u64 << 10) - 2, 4_u64 << 10),
            (JAL, (1 << 20) - 2, 1 << 20),
            (RVC_BRANCH, 254, 256),
            (RVC_JUMP, (2 << 10) - 2, 2 << 10),
            (CALL, 0x7fff_f7fe, 0x8000_0800),
            (CALL_PLT, 0x7fff_f7fe, 0x8000_0800),
            (PCREL_HI20, 0x7fff_f7fe, 0x8000_0800),
        ] {
            let ok = |value| applied(r_type, at, value, &[0; 8]).is_ok();
            assert!(ok(at + up), "type {r_type}");
            assert!(!ok(at + up + 2), "type {r_type}");
            assert!(ok(at - down), "type {r_type}");
            assert!(!ok(at - down - 2), "type {r_type}");
        }
        let e = applied(CALL_PLT, at, at + 0x8000_0000, &[0; 8]).unwrap_err();
        assert_eq!(e.to_string(), "CALL_PLT reaches 2 GiB either way; the target is 2147483648 bytes away");
        for (r_type, value, valid) in [
            (BRANCH, at + 1, false),
            (RVC_JUMP, at + 1, false),
            (HI20, 0x7fff_f7ff, true),
            (HI20, 0x7fff_f800, false),
            (HI20, 0xffff_ffff_8000_0000, true),
            (ABS32, 0xffff_ffff, true),
            (ABS32, 0xffff_ffff_8000_0000, true),
            (ABS32, 0x1_0000_0000, false),
        ] {
            let got = applied(r_type, at, value, &[0; 4]);
            assert_eq!(got.is_ok(), valid, "type {r_type}: {got:?}");
        }
    }

    #[test]
    fn bad_input_is_refused() {
        for &(r_type, name) in NAMES.iter().filter(|(t, _)| ![NONE, RELAX, TPREL_ADD].contains(t)) {
            assert!(applied(r_type, AUIPC, AUIPC, &[]).is_err(), "{name}");
        }
        // A call whose second instruction is cut off.
        assert!(applied(CALL, 0, 0, &[0; 7]).is_err());
        assert!(applied(NONE, 0, 1, &[]).unwrap().is_empty());
        let e = applied(ALIGN, 0, 0, &[0; 8]).unwrap_err().to_string();
        assert!(e.contains("-mno-relax"), "{e}");
        let e = applied(99, 0, 0, &[0; 8]).unwrap_err().to_string();
        assert!(e.contains("type 99") && e.contains("CALL_PLT"), "{e}");
    }
}
