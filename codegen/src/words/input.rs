//! Input files, read with a size limit: an endless file, such as a device or a pipe, is refused before it exhausts memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The most bytes of a file, and of an expanded compressed file: more than a module with all its debug information has.
pub const MOST: u64 = 1 << 29;

/// The contents of a file.
///
/// # Errors
/// It cannot be read, or has more than [`MOST`] bytes.
pub fn bytes(path: &Path) -> Result<Vec<u8>> {
    all(File::open(path)?)
}

/// The text of a file.
///
/// # Errors
/// As [`bytes`], and it is no UTF-8.
pub fn text(path: &Path) -> Result<String> {
    String::from_utf8(bytes(path)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no UTF-8"))
}

/// Read everything from `from`.
///
/// # Errors
/// As [`bytes`].
pub fn all(from: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    append(from, &mut bytes)?;
    Ok(bytes)
}

/// Append everything read from `from`.
///
/// # Errors
/// It cannot be read, or there would be more than [`MOST`] bytes.
pub fn append(from: impl Read, bytes: &mut Vec<u8>) -> Result<()> {
    up_to(MOST, from, bytes)
}

fn up_to(most: u64, from: impl Read, bytes: &mut Vec<u8>) -> Result<()> {
    // Read one byte more than allowed, to detect a file that is too large.
    let room = (most + 1).saturating_sub(bytes.len() as u64);
    from.take(room).read_to_end(bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::other(format!("more than {most} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let mut bytes = b"ab".to_vec();
        up_to(10, std::io::repeat(0).take(8), &mut bytes).unwrap();
        assert_eq!(bytes.len(), 10);
        let e = up_to(10, std::io::repeat(0), &mut bytes).unwrap_err();
        assert_eq!((e.to_string().as_str(), bytes.len()), ("more than 10 bytes", 11));
    }
}
