//! Reading ELF files: checks that refuse a file at once, and their messages.

use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader as _, SectionTable};

/// The largest size of an image in bytes. Without it, a damaged section size could exhaust memory.
pub(crate) const LIMIT: u64 = 256 << 20;

/// The longest name in bytes: names of types in Go's libraries have over 1,000. Symbols may share the bytes of a name, so without
/// a limit a small file could require any amount of memory.
const LONGEST: usize = 4096;

/// The section with the list of patchable entries of `-mrecord-mcount`. An object with it may also have [`PATCHABLE`], which
/// then lists places for padding, not sites.
pub(crate) const MCOUNT_LOC: &str = "__mcount_loc";

/// The section with the list of patchable entries of `-fpatchable-function-entry`.
pub(crate) const PATCHABLE: &str = "__patchable_function_entries";

pub(crate) const LE: LittleEndian = LittleEndian;

pub(crate) type Header = elf::FileHeader64<LittleEndian>;

/// A file to link.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The file's name in error messages.
    pub name: &'a str,
    /// Its contents.
    pub bytes: &'a [u8],
}

/// The backend of these that can link an object.
///
/// # Errors
/// Not a little-endian ELF64 file, or a file for an unknown machine; the message lists the known ones.
pub fn backend_of(input: &Input, backends: &[&'static dyn Backend]) -> Result<&'static dyn Backend> {
    let machine = header(input)?.e_machine(LE).0;
    backends.iter().find(|b| b.facts().machine == machine).copied().ok_or_else(|| {
        let known = backends.iter().map(|b| format!("{} ({})", b.facts().name, b.facts().machine));
        let known: Vec<String> = known.collect();
        Error::new(format!("{}: for ELF machine {machine}; valid: {}", input.name, known.join(", ")))
    })
}

/// The header of a little-endian ELF64 file.
pub(crate) fn header<'a>(input: &Input<'a>) -> Result<&'a Header> {
    let wrong = |what: &str| {
        let name = input.name;
        Err(Error::new(format!("{name}: {what}; valid: a little-endian ELF64 file")))
    };
    match *input.bytes {
        [0x7f, b'E', b'L', b'F', 2, 1, 1, ..] => {}
        [0x7f, b'E', b'L', b'F', 1, ..] => return wrong("ELF32"),
        [0x7f, b'E', b'L', b'F', 2, 2, ..] => return wrong("big-endian ELF64"),
        [b'B', b'C', 0xc0, 0xde, ..] => return wrong("LLVM bitcode; compile without -flto"),
        [0x7f, b'E', b'L', b'F', ..] => return wrong("ELF of an unknown class, order or version"),
        [] => return wrong("empty"),
        _ => return wrong("not ELF"),
    }
    Header::parse(input.bytes).map_err(damaged(input.name))
}

/// Turn a reader's error into ours.
pub(crate) fn damaged(name: &str) -> impl Fn(object::read::Error) -> Error {
    move |e| Error::damaged(e).at(name)
}

/// Reject a file whose sections add up to more than its size: overlapping sections could expand to many times as much
/// memory.
pub(crate) fn parts_fit_file(input: &Input, sizes: impl Iterator<Item = u64>) -> Result<()> {
    let file = input.bytes.len() as u64;
    let parts = sizes.fold(0, u64::saturating_add);
    if parts <= file {
        return Ok(());
    }
    let what = format!("its parts have {parts} bytes together, but it has {file}");
    Err(Error::damaged(what).at(input.name))
}

pub(crate) fn utf8<'a>(name: &'a [u8], what: &str) -> Result<&'a str> {
    if name.len() > LONGEST {
        return Err(Error::new(format!("the name of a {what} has {} bytes; valid: at most {LONGEST}", name.len())));
    }
    std::str::from_utf8(name).map_err(|_| {
        let name = String::from_utf8_lossy(name);
        Error::new(format!("{what} {name:?} is not UTF-8"))
    })
}

/// The printable beginning of a name of any length: as far as it is UTF-8 and no longer than a valid name.
pub(crate) fn beginning(name: &[u8]) -> &str {
    let name = &name[..name.len().min(LONGEST)];
    match std::str::from_utf8(name) {
        Ok(name) => name,
        Err(e) => std::str::from_utf8(&name[..e.valid_up_to()]).unwrap_or_default(),
    }
}

pub(crate) fn section_name<'a>(
    sections: &SectionTable<'a, Header>,
    section: &elf::SectionHeader64<LittleEndian>,
) -> Result<&'a str> {
    let name = sections.section_name(LE, section).map_err(Error::damaged)?;
    utf8(name, "section")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_names_are_no_larger_than_files_can_have_them() {
        let input = Input { name: "a.o", bytes: &[0; 8] };
        assert!(parts_fit_file(&input, [3, 5].into_iter()).is_ok());
        let e = parts_fit_file(&input, [4, 5].into_iter()).unwrap_err();
        assert!(e.to_string().starts_with("a.o: its parts have 9 bytes together, but it has 8"), "{e}");
        assert!(parts_fit_file(&input, [u64::MAX, u64::MAX].into_iter()).is_err());
        assert!(utf8(&[b'a'; LONGEST], "symbol").is_ok());
        assert!(utf8(&[b'a'; LONGEST + 1], "symbol").is_err());
        assert_eq!(beginning(&[b'a'; LONGEST + 1]).len(), LONGEST);
        assert_eq!(beginning(b"caf\xc3\xa9\xff"), "caf\u{e9}");
    }
}
