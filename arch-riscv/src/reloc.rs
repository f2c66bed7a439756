//! Relocations (RISC-V ABIs Specification, ELF psABI, 8.4).

use codegen::error::{Error, Result};
use codegen::isa::Relocation;
use codegen::link::{get, out_of_reach, put, reach, too_large, unknown_type};

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
        return Err(Error::new(
            "ALIGN asks the linker to move code, which this one does not; compile with -mno-relax",
        ));
    }
    let Some(&(_, name)) = NAMES.iter().find(|(r_type, _)| *r_type == rel.r_type) else {
        return Err(unknown_type(rel.r_type, NAMES));
    };
    let value = rel.value;
    let distance = value.wrapping_sub(rel.place);
    match rel.r_type {
        ABS64 => put(field, &value.to_le_bytes()),
        ABS32 => {
            // Signed or unsigned: the field does not tell how it is read.
            let signed = i32::try_from(value.cast_signed()).map(i32::cast_unsigned);
            let value = signed
                .or_else(|_| value.try_into())
                .map_err(|_| too_large(name, value))?;
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
        HI20 => {
            let address = pair(name, value).map_err(|_| too_large(name, value))?;
            insert(field, U, high(address))
        }
        LO12_I => insert(field, I, value.cast_signed()),
        LO12_S => insert(field, S, value.cast_signed()),
        // The two halves of a difference may overflow each by itself.
        ADD8 => put(
            field,
            &u8::from_le_bytes(get(field)?)
                .wrapping_add(value as u8)
                .to_le_bytes(),
        ),
        ADD16 => put(
            field,
            &u16::from_le_bytes(get(field)?)
                .wrapping_add(value as u16)
                .to_le_bytes(),
        ),
        ADD32 => put(
            field,
            &u32::from_le_bytes(get(field)?)
                .wrapping_add(value as u32)
                .to_le_bytes(),
        ),
        ADD64 => put(
            field,
            &u64::from_le_bytes(get(field)?)
                .wrapping_add(value)
                .to_le_bytes(),
        ),
        SUB8 => put(
            field,
            &u8::from_le_bytes(get(field)?)
                .wrapping_sub(value as u8)
                .to_le_bytes(),
        ),
        SUB16 => put(
            field,
            &u16::from_le_bytes(get(field)?)
                .wrapping_sub(value as u16)
                .to_le_bytes(),
        ),
        SUB32 => put(
            field,
            &u32::from_le_bytes(get(field)?)
                .wrapping_sub(value as u32)
                .to_le_bytes(),
        ),
        SUB64 => put(
            field,
            &u64::from_le_bytes(get(field)?)
                .wrapping_sub(value)
                .to_le_bytes(),
        ),
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
const CJ: Format = &[
    (11, 1, 12),
    (4, 1, 11),
    (8, 2, 9),
    (10, 1, 8),
    (6, 1, 7),
    (7, 1, 6),
    (1, 3, 3),
    (5, 1, 2),
];

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
