//! Relocations (ELF for the Arm 64-bit Architecture, 5.7).

use codegen::error::{Error, Result};
use codegen::isa::Relocation;
use codegen::link::{get, put, reach, too_large, unknown_type};

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
];

/// Apply a relocation to the bytes at its place.
///
/// # Errors
/// An unknown type, a value out of the field's range, or a field that is cut off.
pub fn relocate(rel: &Relocation, field: &mut [u8]) -> Result<()> {
    let Some(&(_, name)) = NAMES.iter().find(|(r_type, _)| *r_type == rel.r_type) else {
        return Err(unknown_type(rel.r_type, NAMES));
    };
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
            let value = signed
                .or_else(|_| value.try_into())
                .map_err(|_| too_large(name, value))?;
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
        ADD_ABS_LO12_NC | LDST8_ABS_LO12_NC => low12(name, value, field, 0),
        LDST16_ABS_LO12_NC => low12(name, value, field, 1),
        LDST32_ABS_LO12_NC => low12(name, value, field, 2),
        LDST64_ABS_LO12_NC => low12(name, value, field, 3),
        LDST128_ABS_LO12_NC => low12(name, value, field, 4),
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
        return Err(Error::new(format!(
            "{name} reaches multiples of {unit} bytes; the target {value:#x} is not one: align it"
        )));
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
