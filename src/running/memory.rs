//! A kernel's memory: `/proc/kcore` of a running one, or an ELF core file of it, of which only parts are read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use codegen::words::error::{Error, Result};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};

/// Bytes of the headers, and of a note segment, that are read.
const HEAD: usize = 1 << 16;

/// Memory that is in a file.
struct Segment {
    address: u64,
    size: u64,
    offset: u64,
}

/// A kernel's memory.
pub struct Memory {
    file: File,
    segments: Vec<Segment>,
    machine: u16,
    release: Option<String>,
}

impl Memory {
    /// Open the file, and read its headers.
    ///
    /// # Errors
    /// It cannot be read, or is no ELF core file of 64 bits, little-endian.
    pub fn open(path: &Path) -> Result<Memory> {
        let place = |e: &dyn std::fmt::Display| Error::new(format!("{}: {e}", path.display()));
        let file = File::open(path).map_err(|e| place(&e))?;
        let mut head = vec![0; HEAD];
        let read = file.read_at(&mut head, 0).map_err(|e| place(&e))?;
        head.truncate(read);
        let parse = || {
            let header = FileHeader64::<LittleEndian>::parse(head.as_slice())?;
            let endian = header.endian()?;
            Ok::<_, object::Error>((header, endian, header.program_headers(endian, head.as_slice())?))
        };
        let (header, endian, programs) = parse().map_err(|e| place(&format!("no ELF core file: {e}")))?;
        let (mut segments, mut release) = (Vec::new(), None);
        for program in programs {
            let (offset, size) = (program.p_offset(endian), program.p_filesz(endian));
            match program.p_type(endian) {
                PT_LOAD => segments.push(Segment { address: program.p_vaddr(endian), size, offset }),
                PT_NOTE => {
                    let mut notes = vec![0; HEAD.min(usize::try_from(size).unwrap_or(HEAD))];
                    let read = file.read_at(&mut notes, offset).map_err(|e| place(&e))?;
                    release = release.or(released(&String::from_utf8_lossy(&notes[..read])));
                }
                _ => {}
            }
        }
        Ok(Memory { file, segments, machine: header.e_machine(endian).0, release })
    }

    /// `e_machine`.
    pub fn machine(&self) -> u16 {
        self.machine
    }

    /// The kernel's version, as `uname -r` has it.
    pub fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }

    /// Up to `size` bytes at an address; fewer where the file has no more.
    ///
    /// # Errors
    /// The file has none of it, or cannot be read.
    pub fn read(&self, at: u64, size: u64) -> Result<Vec<u8>> {
        let inside = |segment: &&Segment| at.wrapping_sub(segment.address) < segment.size;
        // Of those that overlap, the one that has most.
        let left = |segment: &&Segment| segment.size - (at - segment.address);
        let segment = self.segments.iter().filter(inside).max_by_key(left);
        let segment =
            segment.ok_or_else(|| Error::new(format!("the file does not have the kernel's memory at {at:#x}")))?;
        let from = at - segment.address;
        let mut bytes = vec![0; size.min(segment.size - from) as usize];
        let offset = segment.offset.checked_add(from);
        let offset = offset.ok_or_else(|| Error::new(format!("the file's header is damaged at {at:#x}")))?;
        let read = self.file.read_at(&mut bytes, offset);
        let read = read.map_err(|e| Error::new(format!("the kernel's memory at {at:#x} cannot be read: {e}")))?;
        bytes.truncate(read);
        if bytes.is_empty() {
            return Err(Error::new(format!("the file ends before the kernel's memory at {at:#x}")));
        }
        Ok(bytes)
    }
}

/// The version in the note VMCOREINFO (kernel kernel/vmcore_info.c).
fn released(notes: &str) -> Option<String> {
    let (_, rest) = notes.split_once("OSRELEASE=")?;
    rest.lines().next().map(|line| line.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_among_the_notes() {
        assert_eq!(
            released("CORE\0x\0VMCOREINFO\0OSRELEASE=6.12.48+deb13\nPAGESIZE=4096\n").as_deref(),
            Some("6.12.48+deb13")
        );
        assert_eq!(released("CORE\0"), None);
    }

    #[test]
    fn what_is_no_core_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        assert!(Memory::open(&path).is_err());
        std::fs::write(&path, b"\x7fELF").unwrap();
        assert!(Memory::open(&path).is_err());
    }
}
