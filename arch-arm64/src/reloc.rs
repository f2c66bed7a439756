//! Relocations (ELF for the Arm 64-bit Architecture, 5.7).

use codegen::arch::patch::Relocation;
use codegen::words::error::{Error, Result};
use codegen::words::field::{get, known_type, put, reach, too_large};

/// Page of the word of the global offset table, and its offset in the page, which a load of 64 bits has.
pub const GOT: [(u32, u32); 2] = [(311, ADR_PREL_PG_HI21), (312, LDST64_ABS_LO12_NC)];
/// No relocation.
pub const NONE: u32 = 0;
/// Absolute address, 64 bits.
pub const ABS64: u32 = 257;
/// Absolute address, 32 bits.
pub const ABS32: u32 = 258;
/// Distance, 64 bits.
pub const PREL64: u32 = 260;
/// Distance, 32 bits.
pub const PREL32: u32 = 261;
/// Bits 0 to 15 of an address of at most 16 bits, in MOVZ.
pub const MOVW_UABS_G0: u32 = 263;
/// Bits 0 to 15, in MOVK.
pub const MOVW_UABS_G0_NC: u32 = 264;
/// Bits 16 to 31 of an address of at most 32 bits, in MOVZ.
pub const MOVW_UABS_G1: u32 = 265;
/// Bits 16 to 31, in MOVK.
pub const MOVW_UABS_G1_NC: u32 = 266;
/// Bits 32 to 47 of an address of at most 48 bits, in MOVZ.
pub const MOVW_UABS_G2: u32 = 267;
/// Bits 32 to 47, in MOVK.
pub const MOVW_UABS_G2_NC: u32 = 268;
/// Bits 48 to 63, in MOVZ or MOVK.
pub const MOVW_UABS_G3: u32 = 269;
/// Distance in pages, in ADRP.
pub const ADR_PREL_PG_HI21: u32 = 275;
/// Offset in the page, in ADD.
pub const ADD_ABS_LO12_NC: u32 = 277;
/// Offset in the page, in a load or store of a byte.
pub const LDST8_ABS_LO12_NC: u32 = 278;
/// Distance, in TBZ and TBNZ.
pub const TSTBR14: u32 = 279;
/// Distance, in a conditional branch.
pub const CONDBR19: u32 = 280;
/// Distance, in B.
pub const JUMP26: u32 = 282;
/// Distance, in BL.
pub const CALL26: u32 = 283;
/// Offset in the page, in a load or store of 2 bytes.
pub const LDST16_ABS_LO12_NC: u32 = 284;
/// Offset in the page, in a load or store of 4 bytes.
pub const LDST32_ABS_LO12_NC: u32 = 285;
/// Offset in the page, in a load or store of 8 bytes.
pub const LDST64_ABS_LO12_NC: u32 = 286;
/// Offset in the page, in a load or store of 16 bytes.
pub const LDST128_ABS_LO12_NC: u32 = 299;
/// Bits 12 to 23 of the offset from the thread pointer, which is below 16 MiB, in ADD.
pub const TLSLE_ADD_TPREL_HI12: u32 = 549;
/// Bits 0 to 11 of it, in ADD.
pub const TLSLE_ADD_TPREL_LO12_NC: u32 = 551;

/// The types known here, as readelf names them after `R_AARCH64_`.
pub const NAMES: &[(u32, &str)] = &[
    (NONE, "NONE"),
    (ABS64, "ABS64"),
    (ABS32, "ABS32"),
    (PREL64, "PREL64"),
    (PREL32, "PREL32"),
    (MOVW_UABS_G0, "MOVW_UABS_G0"),
    (MOVW_UABS_G0_NC, "MOVW_UABS_G0_NC"),
    (MOVW_UABS_G1, "MOVW_UABS_G1"),
    (MOVW_UABS_G1_NC, "MOVW_UABS_G1_NC"),
    (MOVW_UABS_G2, "MOVW_UABS_G2"),
    (MOVW_UABS_G2_NC, "MOVW_UABS_G2_NC"),
    (MOVW_UABS_G3, "MOVW_UABS_G3"),
    (ADR_PREL_PG_HI21, "ADR_PREL_PG_HI21"),
    (ADD_ABS_LO12_NC, "ADD_ABS_LO12_NC"),
    (LDST8_ABS_LO12_NC, "LDST8_ABS_LO12_NC"),
    (TSTBR14, "TSTBR14"),
    (CONDBR19, "CONDBR19"),
    (JUMP26, "JUMP26"),
    (CALL26, "CALL26"),
    (LDST16_ABS_LO12_NC, "LDST16_ABS_LO12_NC"),
    (LDST32_ABS_LO12_NC, "LDST32_ABS_LO12_NC"),
    (LDST64_ABS_LO12_NC, "LDST64_ABS_LO12_NC"),
    (LDST128_ABS_LO12_NC, "LDST128_ABS_LO12_NC"),
    (TLSLE_ADD_TPREL_HI12, "TLSLE_ADD_TPREL_HI12"),
    (TLSLE_ADD_TPREL_LO12_NC, "TLSLE_ADD_TPREL_LO12_NC"),
];

/// Apply a relocation to the bytes at its place.
///
/// # Errors
/// An unknown type, a value out of the field's range, or a field that is cut off.
pub fn relocate(rel: &Relocation, field: &mut [u8]) -> Result<()> {
    let name = known_type(rel.r_type, NAMES)?;
    let value = rel.value;
    let distance = value.wrapping_sub(rel.place);
    match rel.r_type {
        ABS64 => put(field, &value.to_le_bytes()),
        PREL64 => put(field, &distance.to_le_bytes()),
        PREL32 => {
            let distance = reach(name, distance, 32, 1)?;
            put(field, &(distance as i32).to_le_bytes())
        }
        ABS32 => {
            // Signed or unsigned: the ABI allows either reading.
            let signed = i32::try_from(value.cast_signed()).map(i32::cast_unsigned);
            let value = signed.or_else(|_| value.try_into()).map_err(|_| too_large(name, value))?;
            put(field, &value.to_le_bytes())
        }
        JUMP26 | CALL26 => insert(field, reach(name, distance, 28, 4)? >> 2, 26, 0),
        CONDBR19 => insert(field, reach(name, distance, 21, 4)? >> 2, 19, 5),
        TSTBR14 => insert(field, reach(name, distance, 16, 4)? >> 2, 14, 5),
        ADR_PREL_PG_HI21 => {
            let pages = (value & !0xfff).wrapping_sub(rel.place & !0xfff);
            let pages = reach(name, pages, 33, 4096)? >> 12;
            insert(field, pages, 2, 29)?;
            insert(field, pages >> 2, 19, 5)
        }
        ADD_ABS_LO12_NC | LDST8_ABS_LO12_NC | TLSLE_ADD_TPREL_LO12_NC => low12(name, value, field, 0),
        LDST16_ABS_LO12_NC => low12(name, value, field, 1),
        LDST32_ABS_LO12_NC => low12(name, value, field, 2),
        LDST64_ABS_LO12_NC => low12(name, value, field, 3),
        LDST128_ABS_LO12_NC => low12(name, value, field, 4),
        TLSLE_ADD_TPREL_HI12 if value >> 24 == 0 => insert(field, (value >> 12).cast_signed(), 12, 10),
        TLSLE_ADD_TPREL_HI12 => Err(too_large(name, value)),
        MOVW_UABS_G0 => half(name, value, field, 0, true),
        MOVW_UABS_G0_NC => half(name, value, field, 0, false),
        MOVW_UABS_G1 => half(name, value, field, 1, true),
        MOVW_UABS_G1_NC => half(name, value, field, 1, false),
        MOVW_UABS_G2 => half(name, value, field, 2, true),
        MOVW_UABS_G2_NC => half(name, value, field, 2, false),
        MOVW_UABS_G3 => half(name, value, field, 3, false),
        _ => Ok(()),
    }
}

/// Replace `bits` bits from bit `at` of the instruction.
fn insert(field: &mut [u8], value: i64, bits: u32, at: u32) -> Result<()> {
    let mask = ((1 << bits) - 1) << at;
    let word = u32::from_le_bytes(get(field)?) & !mask | (value as u32) << at & mask;
    put(field, &word.to_le_bytes())
}

/// The offset in the page, in units of `1 << scale` bytes.
fn low12(name: &str, value: u64, field: &mut [u8], scale: u32) -> Result<()> {
    let unit = 1_u64 << scale;
    if !value.is_multiple_of(unit) {
        return Err(Error::Misaligned { field: name.to_owned(), value, unit });
    }
    insert(field, (value & 0xfff) as i64 >> scale, 12, 10)
}

/// 16 bits of an address; `last` says that there must be nothing above.
fn half(name: &str, value: u64, field: &mut [u8], index: u32, last: bool) -> Result<()> {
    let rest = value >> (16 * index);
    if last && rest > 0xffff {
        return Err(too_large(name, value));
    }
    insert(field, rest as i64, 16, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(r_type: u32, place: u64, value: u64, field: &[u8]) -> Result<Vec<u8>> {
        let mut field = field.to_vec();
        let rel = Relocation { r_type, place, value, high: 0 };
        relocate(&rel, &mut field).map(|()| field)
    }

    /// Instructions from GNU ld 2.40, for the lines
    ///
    /// ```text
    /// .text
    /// bl f; b f; cbz x0, f; tbz x0, #3, g
    /// add x10, x10, #:tprel_hi12:w, lsl #12; add x10, x10, #:tprel_lo12_nc:w
    /// adrp x0, d; add x0, x0, :lo12:d
    /// ldrb w0, [x0, :lo12:d]; ldrh w0, [x0, :lo12:d]; ldr w0, [x0, :lo12:d]
    /// ldr x0, [x0, :lo12:d]; ldr q0, [x0, :lo12:d]
    /// movz x0, #:abs_g0:s; movk x0, #:abs_g0_nc:big; movz x0, #:abs_g1:d; movk x0, #:abs_g1_nc:big
    /// movz x0, #:abs_g2:big48; movk x0, #:abs_g2_nc:big; movz x0, #:abs_g3:big
    /// .section .tbss,"awT",%nobits
    /// .skip 0x12fe0 // behind the 16 bytes that the thread pointer points to
    /// w: .skip 8
    /// .data
    /// .skip 0x4b0
    /// d: .quad f; .word f; .xword f - .; .word f - .
    /// ```
    ///
    /// `ld -Ttext=0x401000 -Tdata=0x40f000 --defsym=f=0x4ff124 --defsym=g=0x3ff128 --defsym=s=0x1234
    /// --defsym=big=0x123456789abcdef0 --defsym=big48=0xfedc89abcdef -e 0 a.o -o a; objdump -d -s a`; the words
    /// before are those of a.o.
    #[test]
    fn fields_are_those_of_gnu_ld() {
        let (f, g, d, s, w) = (0x4f_f124, 0x3f_f128, 0x40_f4b0, 0x1234, 0x1_2ff0);
        let (big, big48) = (0x1234_5678_9abc_def0, 0xfedc_89ab_cdef);
        let text = [
            (CALL26, f, 0x9400_0000_u32, 0x9403_f849_u32),
            (JUMP26, f, 0x1400_0000, 0x1403_f848),
            (CONDBR19, f, 0xb400_0000, 0xb47f_08e0),
            (TSTBR14, g, 0x3618_0000, 0x361f_08e0),
            (ADR_PREL_PG_HI21, d, 0x9000_0000, 0xd000_0060),
            (ADD_ABS_LO12_NC, d, 0x9100_0000, 0x9112_c000),
            (LDST8_ABS_LO12_NC, d, 0x3940_0000, 0x3952_c000),
            (LDST16_ABS_LO12_NC, d, 0x7940_0000, 0x7949_6000),
            (LDST32_ABS_LO12_NC, d, 0xb940_0000, 0xb944_b000),
            (LDST64_ABS_LO12_NC, d, 0xf940_0000, 0xf942_5800),
            (LDST128_ABS_LO12_NC, d, 0x3dc0_0000, 0x3dc1_2c00),
            (MOVW_UABS_G0, s, 0xd280_0000, 0xd282_4680),
            (MOVW_UABS_G0_NC, big, 0xf280_0000, 0xf29b_de00),
            (MOVW_UABS_G1, d, 0xd2a0_0000, 0xd2a0_0800),
            (MOVW_UABS_G1_NC, big, 0xf2a0_0000, 0xf2b3_5780),
            (MOVW_UABS_G2, big48, 0xd2c0_0000, 0xd2df_db80),
            (MOVW_UABS_G2_NC, big, 0xf2c0_0000, 0xf2ca_cf00),
            (MOVW_UABS_G3, big, 0xd2e0_0000, 0xd2e2_4680),
            (TLSLE_ADD_TPREL_HI12, w, 0x9140_014a, 0x9140_494a),
            (TLSLE_ADD_TPREL_LO12_NC, w, 0x9100_014a, 0x913f_c14a),
        ];
        for (place, (r_type, value, before, after)) in (0x40_1000..).step_by(4).zip(text) {
            let got = applied(r_type, place, value, &before.to_le_bytes()).unwrap();
            assert_eq!(got, after.to_le_bytes(), "type {r_type}");
            // What the field held before does not matter.
            let again = applied(r_type, place, value, &after.to_le_bytes()).unwrap();
            assert_eq!(got, again, "type {r_type}");
        }
        let data: &[(u32, u64, &[u8])] = &[
            (ABS64, d, &[0x24, 0xf1, 0x4f, 0, 0, 0, 0, 0]),
            (ABS32, d + 8, &[0x24, 0xf1, 0x4f, 0]),
            (PREL64, d + 12, &[0x68, 0xfc, 0x0e, 0, 0, 0, 0, 0]),
            (PREL32, d + 20, &[0x60, 0xfc, 0x0e, 0]),
        ];
        for &(r_type, place, expected) in data {
            let zero = vec![0; expected.len()];
            let got = applied(r_type, place, f, &zero).unwrap();
            assert_eq!(got, expected, "type {r_type}");
        }
    }

    #[test]
    fn reach_ends_where_the_field_does() {
        let at = 0x8_0000_0000_u64;
        for (r_type, reach) in [
            (CALL26, 128_u64 << 20),
            (JUMP26, 128 << 20),
            (CONDBR19, 1 << 20),
            (TSTBR14, 32 << 10),
            (ADR_PREL_PG_HI21, 4 << 30),
        ] {
            let step = if r_type == ADR_PREL_PG_HI21 { 4096 } else { 4 };
            let ok = |value| applied(r_type, at, value, &[0; 4]).is_ok();
            assert!(ok(at + reach - step), "type {r_type}");
            assert!(!ok(at + reach), "type {r_type}");
            assert!(ok(at - reach), "type {r_type}");
            assert!(!ok(at - reach - step), "type {r_type}");
        }
        let e = applied(CALL26, at, at + (128 << 20), &[0; 4]).unwrap_err();
        assert_eq!(e.to_string(), "CALL26 reaches 128 MiB either way; the target is 134217728 bytes away");
        for (r_type, value, valid) in [
            (CALL26, at + 2, false),
            (LDST64_ABS_LO12_NC, at + 4, false),
            (MOVW_UABS_G0, 0x1_0000, false),
            (MOVW_UABS_G1, 1 << 32, false),
            (MOVW_UABS_G2, 1 << 48, false),
            (ABS32, 0xffff_ffff, true),
            (ABS32, 0xffff_ffff_8000_0000, true),
            (ABS32, 0x1_0000_0000, false),
            (TLSLE_ADD_TPREL_HI12, 0xff_ffff, true),
            (TLSLE_ADD_TPREL_HI12, 0x100_0000, false),
            (TLSLE_ADD_TPREL_HI12, 0_u64.wrapping_sub(8), false),
        ] {
            let got = applied(r_type, at, value, &[0; 4]);
            assert_eq!(got.is_ok(), valid, "type {r_type}: {got:?}");
        }
    }

    #[test]
    fn bad_input_is_refused() {
        for &(r_type, name) in NAMES.iter().filter(|(r_type, _)| *r_type != NONE) {
            assert!(applied(r_type, 0, 0, &[]).is_err(), "{name}");
        }
        assert!(applied(NONE, 0, 1, &[]).unwrap().is_empty());
        let e = applied(42, 0, 0, &[0; 8]).unwrap_err().to_string();
        assert!(e.contains("type 42") && e.contains("CALL26"), "{e}");
    }
}
