//! Relocations (System V ABI, AMD64 supplement, 4.4.1).

use codegen::arch::patch::Relocation;
use codegen::words::error::Result;
use codegen::words::field::{known_type, put, reach, too_large};

/// No relocation.
pub const NONE: u32 = 0;
/// Absolute address, 64 bits.
pub const ABS64: u32 = 1;
/// Distance, 32 bits.
pub const PC32: u32 = 2;
/// Distance to a function, 32 bits; a jump table entry may stand in for the function.
pub const PLT32: u32 = 4;
/// Absolute address, 32 bits, zero-extended.
pub const ABS32: u32 = 10;
/// Absolute address, 32 bits, sign-extended.
pub const ABS32S: u32 = 11;
/// Distance, 8 bits: to a label, which no object needs a relocation for.
pub const PC8: u32 = 15;
/// Offset from the thread pointer, 32 bits, sign-extended.
pub const TPOFF32: u32 = 23;
/// Distance to the word of the global offset table (psABI, 4.4.1); in the two others, the load may become one without it.
pub const GOTPCREL: [u32; 3] = [9, 41, 42];
/// Distance, 64 bits.
pub const PC64: u32 = 24;

/// The types known here, as readelf names them after `R_X86_64_`.
pub const NAMES: &[(u32, &str)] = &[
    (NONE, "NONE"),
    (ABS64, "64"),
    (PC32, "PC32"),
    (PLT32, "PLT32"),
    (ABS32, "32"),
    (ABS32S, "32S"),
    (TPOFF32, "TPOFF32"),
    (PC64, "PC64"),
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
        PC64 => put(field, &distance.to_le_bytes()),
        PC32 | PLT32 => {
            let distance = reach(name, distance, 32, 1)?;
            put(field, &(distance as i32).to_le_bytes())
        }
        ABS32 => {
            let value = u32::try_from(value).map_err(|_| too_large(name, value))?;
            put(field, &value.to_le_bytes())
        }
        ABS32S | TPOFF32 => {
            let value = i32::try_from(value.cast_signed()).map_err(|_| too_large(name, value))?;
            put(field, &value.to_le_bytes())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(r_type: u32, place: u64, value: u64, field: &[u8]) -> Result<Vec<u8>> {
        let mut field = field.to_vec();
        let rel = Relocation { r_type, place, value, high: 0 };
        relocate(&rel, &mut field).map(|()| field)
    }

    /// Values from GNU ld 2.40, for the lines
    ///
    /// ```text
    /// .text
    /// call f; movq $f, %rax; mov $f, %eax; mov d(%rip), %eax
    /// .data
    /// d: .quad f; .quad f - .; .long f - .
    /// ```
    ///
    /// `ld -Ttext=0x401000 -Tdata=0x403000 --defsym=f=0x400123 -e 0 x.o -o x; objdump -s x`
    #[test]
    fn fields_are_those_of_gnu_ld() {
        let (f, d): (u64, u64) = (0x40_0123, 0x40_3000);
        let all: &[(u32, u64, u64, &[u8])] = &[
            (PLT32, 0x40_1001, f - 4, &[0x1e, 0xf1, 0xff, 0xff]),
            (ABS32S, 0x40_1008, f, &[0x23, 0x01, 0x40, 0x00]),
            (ABS32, 0x40_100d, f, &[0x23, 0x01, 0x40, 0x00]),
            (PC32, 0x40_1013, d - 4, &[0xe9, 0x1f, 0x00, 0x00]),
            (ABS64, d, f, &[0x23, 0x01, 0x40, 0, 0, 0, 0, 0]),
            (PC64, d + 8, f, &[0x1b, 0xd1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (PC32, d + 16, f, &[0x13, 0xd1, 0xff, 0xff]),
            (TPOFF32, 0x40_1005, 0_u64.wrapping_sub(8), &[0xf8, 0xff, 0xff, 0xff]),
        ];
        for &(r_type, place, value, expected) in all {
            let zero = vec![0; expected.len()];
            let got = applied(r_type, place, value, &zero).unwrap();
            assert_eq!(got, expected, "type {r_type}");
        }
    }

    #[test]
    fn reach_ends_where_the_field_does() {
        let at = 0x1_0000_0000;
        for r_type in [PC32, PLT32] {
            assert!(applied(r_type, at, at + 0x7fff_ffff, &[0; 4]).is_ok());
            assert!(applied(r_type, at, at - 0x8000_0000, &[0; 4]).is_ok());
            assert!(applied(r_type, at, at - 0x8000_0001, &[0; 4]).is_err());
        }
        let e = applied(PLT32, at, at + 0x8000_0000, &[0; 4]).unwrap_err();
        assert_eq!(e.to_string(), "PLT32 reaches 2 GiB either way; the target is 2147483648 bytes away");
        assert!(applied(ABS32, 0, 0xffff_ffff, &[0; 4]).is_ok());
        assert!(applied(ABS32, 0, 0x1_0000_0000, &[0; 4]).is_err());
        assert!(applied(ABS32S, 0, 0x7fff_ffff, &[0; 4]).is_ok());
        assert!(applied(ABS32S, 0, 0xffff_ffff_8000_0000, &[0; 4]).is_ok());
        assert!(applied(ABS32S, 0, 0x8000_0000, &[0; 4]).is_err());
    }

    #[test]
    fn bad_input_is_refused() {
        for &(r_type, name) in NAMES.iter().filter(|(r_type, _)| *r_type != NONE) {
            assert!(applied(r_type, 0, 0, &[]).is_err(), "{name}");
        }
        assert!(applied(NONE, 0, 1, &[]).unwrap().is_empty());
        let e = applied(42, 0, 0, &[0; 8]).unwrap_err().to_string();
        assert!(e.contains("type 42") && e.contains("PLT32"), "{e}");
    }
}
