//! Fields of instructions and data that a relocation or a patch fills in, with checks of bounds and of range.

use crate::words::error::{Error, Result};

/// The first `N` bytes of a relocated field.
///
/// # Errors
/// The section ends before the field does.
pub fn get<const N: usize>(field: &[u8]) -> Result<[u8; N]> {
    field.first_chunk().copied().ok_or_else(|| cut(field.len(), N))
}

/// Put `bytes` at the start of a relocated field.
///
/// # Errors
/// The section ends before the field does.
pub fn put(field: &mut [u8], bytes: &[u8]) -> Result<()> {
    let room = field.len();
    field.get_mut(..bytes.len()).ok_or_else(|| cut(room, bytes.len()))?.copy_from_slice(bytes);
    Ok(())
}

fn cut(room: usize, needed: usize) -> Error {
    Error::damaged(format_args!("the section ends {room} bytes after the start of a field of {needed}"))
}

/// `distance`, if a signed field of `bits` can hold it and it is a multiple of `align`. `what` is the field's name.
///
/// # Errors
/// The field cannot hold it; the message gives the field's range.
pub fn reach(what: &str, distance: u64, bits: u32, align: u64) -> Result<i64> {
    let distance = distance.cast_signed();
    if distance >> (bits - 1) != distance >> 63 {
        return Err(out_of_reach(what, distance, bits));
    }
    if !distance.unsigned_abs().is_multiple_of(align) {
        return Err(Error::unencodable(format_args!(
            "{what} reaches multiples of {align} bytes; the target is {distance} bytes away"
        )));
    }
    Ok(distance)
}

/// The error of a signed field of `bits` that cannot hold `distance`.
pub fn out_of_reach(what: &str, distance: i64, bits: u32) -> Error {
    Error::OutOfReach { field: what.to_owned(), distance, bits }
}

/// The error of a field that cannot hold the absolute `value`.
pub fn too_large(what: &str, value: u64) -> Error {
    Error::TooLarge { field: what.to_owned(), value }
}

/// The name of a relocation type.
///
/// # Errors
/// The type is not in `names`.
pub fn known_type(r_type: u32, names: &[(u32, &'static str)]) -> Result<&'static str> {
    names.iter().find(|(known, _)| *known == r_type).map(|(_, name)| *name).ok_or_else(|| {
        let valid: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
        Error::new(format!(
            "relocation type {r_type} is not known here; compile with -fno-pic, without thread-local data; valid: {}",
            valid.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_that_of_a_signed_field() {
        for (bits, low, high) in [(8, -128, 127), (26, -(1 << 25), (1 << 25) - 1)] {
            let reached = |distance: i64| reach("X", distance.cast_unsigned(), bits, 1).is_ok();
            assert!(reached(low) && reached(0) && reached(high));
            assert!(!reached(low - 1) && !reached(high + 1));
        }
        assert_eq!(reach("X", u64::MAX, 64, 1).unwrap(), -1);
    }

    #[test]
    fn errors_tell_reach_and_distance() {
        for (bits, reach) in [(9, "256 bytes"), (12, "2 KiB"), (28, "128 MiB"), (32, "2 GiB"), (44, "8192 GiB")] {
            assert_eq!(
                out_of_reach("X", -5, bits).to_string(),
                format!("X reaches {reach} either way; the target is -5 bytes away")
            );
        }
        let e = reach("X", 6, 28, 4).unwrap_err();
        assert_eq!(e.to_string(), "X reaches multiples of 4 bytes; the target is 6 bytes away");
    }

    #[test]
    fn a_field_ends_with_its_section() {
        assert_eq!(get::<2>(&[1, 2, 3]).unwrap(), [1, 2]);
        assert!(get::<4>(&[1, 2, 3]).is_err());
        let mut field = [1, 2, 3];
        assert!(put(&mut field, &[0; 4]).is_err());
        assert_eq!(field, [1, 2, 3]);
        put(&mut field, &[8, 9]).unwrap();
        assert_eq!(field, [8, 9, 3]);
    }
}
