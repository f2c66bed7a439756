//! Archives of objects, as `ar` makes them.

use codegen::words::error::{Error, Result};
use object::read::archive::ArchiveFile;

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
    let fail = damaged(input.name);
    let archive = ArchiveFile::parse(input.bytes).map_err(&fail)?;
    if archive.is_thin() {
        let name = input.name;
        return Err(Error::new(format!("{name}: a thin archive only names files; valid: these files, or `ar rcs`")));
    }
    let mut all = Vec::new();
    for member in archive.members() {
        let member = member.map_err(&fail)?;
        let bytes = member.data(input.bytes).map_err(&fail)?;
        all.push((beginning(member.name()).to_owned(), bytes));
    }
    Ok(all)
}
