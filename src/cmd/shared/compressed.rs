//! Files that distributions compress, such as kernel modules.

use std::path::Path;

use codegen::words::error::{Error, Result};
use codegen::words::input::append;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::input;

/// KiB of memory for an xz dictionary: what `xz -9` wants.
const DICTIONARY: u32 = 1 << 17;

/// Appends what these bytes expand to.
type Expand = fn(&[u8], &mut Vec<u8>) -> std::io::Result<()>;

/// How a file is compressed, by its first bytes: gzip (RFC 1952), xz (its specification, 2.1.1.1), Zstandard (RFC 8878).
const FORMATS: [(&[u8], &str, Expand); 3] = [
    (&[0x1f, 0x8b], "gzip", gzip),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", xz),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", zstd),
];

/// The contents of a file, expanded if it is compressed.
///
/// # Errors
/// It cannot be read, is damaged, or is too large.
pub fn contents(path: &Path) -> Result<Vec<u8>> {
    let name = path.display();
    let bytes = input::bytes(path)
        .map_err(|e| Error::new(format!("cannot read {name}: {e}; valid: a little-endian ELF64 file")))?;
    Ok(expanded(&name.to_string(), &bytes)?.unwrap_or(bytes))
}

/// What these bytes expand to; `None` if they are not compressed.
///
/// # Errors
/// They are damaged, or expand to too much.
pub fn expanded(name: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some((_, format, expand)) = FORMATS.iter().find(|(magic, ..)| bytes.starts_with(magic)) else {
        return Ok(None);
    };
    let mut expanded = Vec::new();
    expand(bytes, &mut expanded)
        .map_err(|e| Error::new(format!("{name}: {format}: {e}; valid: a whole file that {format} made")))?;
    Ok(Some(expanded))
}

fn gzip(bytes: &[u8], into: &mut Vec<u8>) -> std::io::Result<()> {
    append(MultiGzDecoder::new(bytes), into)
}

fn xz(bytes: &[u8], into: &mut Vec<u8>) -> std::io::Result<()> {
    append(XzReader::new_mem_limit(bytes, true, DICTIONARY), into)
}

fn zstd(mut bytes: &[u8], into: &mut Vec<u8>) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let mut decoder = StreamingDecoder::new(&mut bytes).map_err(std::io::Error::other)?;
        append(&mut decoder, into)?;
        // The decoder computes a checksum, and leaves it to its caller to compare.
        let decoder = decoder.into_frame_decoder();
        let (wanted, found) = (decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
        if wanted.is_some() && wanted != found {
            return Err(std::io::Error::other("the checksum is wrong"));
        }
    }
    Ok(())
}
