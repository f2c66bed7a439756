//! Files that a command reads: none of its outputs replaces one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use codegen::words::input;

/// What was read so far, behind all links.
static READ: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Remember a file that others read for the command.
pub fn note(path: &Path) {
    if let Ok(path) = path.canonicalize() {
        READ.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }
}

/// A file that is read in parts: it may have more bytes than others may.
///
/// # Errors
/// It cannot be opened.
pub fn file(path: &Path) -> io::Result<File> {
    note(path);
    File::open(path)
}

/// The contents of a file.
///
/// # Errors
/// It cannot be read, or has more bytes than a file may have.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    note(path);
    input::bytes(path)
}

/// The text of a file.
///
/// # Errors
/// As [`bytes`], or it is no text.
pub fn text(path: &Path) -> io::Result<String> {
    note(path);
    input::text(path)
}

/// Has the command read this file?
pub fn is_one(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    READ.lock().unwrap_or_else(PoisonError::into_inner).contains(&path)
}
