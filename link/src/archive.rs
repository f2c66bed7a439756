//! Archives of objects, as `ar` makes them.

use codegen::words::error::{Error, Result};
use object::read::archive::{ArchiveFile, ArchiveMember};

use crate::elf::{Input, beginning, damaged};

/// The first bytes of an archive, and of one that only names its members' files.
const MAGIC: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];

/// Is it an archive?
pub fn is_archive(bytes: &[u8]) -> bool {
    MAGIC.iter().any(|magic| bytes.starts_with(magic))
}

/// The members of an archive, by name, in order; the archive's own tables are none.
///
/// # Errors
/// A damaged archive, or one whose members are in other files.
pub fn members<'a>(input: &Input<'a>) -> Result<Vec<(String, &'a [u8])>> {
    if is_thin(input.bytes) {
        let name = input.name;
        return Err(Error::new(format!("{name}: a thin archive only names files; valid: these files, or `ar rcs`")));
    }
    each(input, |name, member| Ok((name, member.data(input.bytes).map_err(damaged(input.name))?)))
}

/// Does the archive only name its members' files?
pub fn is_thin(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC[1])
}

/// The files that a thin archive names, from where it lies.
///
/// # Errors
/// A damaged archive.
pub fn named_files(input: &Input) -> Result<Vec<String>> {
    each(input, |name, _| Ok(name))
}

fn each<'a, T>(input: &Input<'a>, of: impl Fn(String, ArchiveMember<'a>) -> Result<T>) -> Result<Vec<T>> {
    let archive = ArchiveFile::parse(input.bytes).map_err(damaged(input.name))?;
    let mut all = Vec::new();
    for member in archive.members() {
        let member = member.map_err(damaged(input.name))?;
        all.push(of(beginning(member.name()).to_owned(), member)?);
    }
    Ok(all)
}
