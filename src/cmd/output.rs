//! Files that are written whole or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use codegen::error::{Error, Result};
use tempfile::{Builder, NamedTempFile};

use super::ui::Ui;

/// A file to write.
pub struct File {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub bytes: Vec<u8>,
    /// It can be run.
    pub executable: bool,
}

/// The text of a file.
///
/// # Errors
/// There is none, or it is not text.
pub fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path);
    text.map_err(|e| Error::new(format!("cannot read {}: {e}; valid: a text file", path.display())))
}

/// A report goes to a file, or to stdout.
///
/// # Errors
/// It cannot be written.
pub fn report(text: String, path: Option<&Path>, ui: &Ui) -> Result<()> {
    match path {
        Some(path) => write(&[File { path: path.to_owned(), bytes: text.into_bytes(), executable: false }]),
        None => ui.out(text),
    }
}

/// Write all of `files` into `dir`, which is made if only it is missing.
///
/// # Errors
/// As [`write`]; a directory that was made is gone again.
pub fn write_into(dir: &Path, files: &[File]) -> Result<()> {
    let made = directory(dir)?;
    write(files).inspect_err(|_| {
        if made {
            // Best effort, as in `write`.
            let _ = fs::remove_dir(dir);
        }
    })
}

/// Make sure that `dir` exists. Returns whether it was made; what is above it must exist.
fn directory(dir: &Path) -> Result<bool> {
    if dir.is_dir() {
        return Ok(false);
    }
    let refused = |why: &dyn std::fmt::Display| {
        Error::new(format!("cannot make directory {}: {why}; valid: a directory that can be written to", dir.display()))
    };
    if dir.exists() {
        return Err(refused(&"it is a file"));
    }
    fs::create_dir(dir).map_err(|e| refused(&e)).map(|()| true)
}

/// Could a file be written here? To be asked before long work.
///
/// # Errors
/// As [`write`].
pub fn probe(path: &Path) -> Result<()> {
    Staged::new(&File { path: path.to_owned(), bytes: Vec::new(), executable: false }).map(drop)
}

/// Write all of `files`. If one cannot be written, none is left that was not there before.
///
/// # Errors
/// The first that cannot be written.
pub fn write(files: &[File]) -> Result<()> {
    let staged = files.iter().map(Staged::new).collect::<Result<Vec<_>>>()?;
    let mut done: Vec<PathBuf> = Vec::new();
    for file in staged {
        match file.put() {
            Ok(path) => done.push(path),
            Err(e) => {
                // Best effort: what cannot be removed now could not be a moment later either.
                done.iter().for_each(|path| drop(fs::remove_file(path)));
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Contents on their way to their place.
enum Staged<'a> {
    /// Beside the place, under another name.
    Beside(NamedTempFile, PathBuf),
    /// A device or a pipe, which a file must not replace.
    Device(&'a File),
}

impl<'a> Staged<'a> {
    fn new(file: &'a File) -> Result<Staged<'a>> {
        let refused = |e: &dyn std::fmt::Display| refused(&file.path, e);
        // A link is followed, not replaced.
        let path = fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        if path.is_dir() {
            return Err(refused(&"it is a directory"));
        }
        if path.exists() && !path.is_file() {
            return Ok(Staged::Device(file));
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = Builder::new();
        builder.prefix(".tramptool");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = if file.executable { 0o777 } else { 0o666 };
            builder.permissions(fs::Permissions::from_mode(mode));
        }
        let mut beside = builder.tempfile_in(parent).map_err(|e| refused(&e.kind()))?;
        beside.write_all(&file.bytes).map_err(|e| refused(&e))?;
        Ok(Staged::Beside(beside, path))
    }

    fn put(self) -> Result<PathBuf> {
        match self {
            Staged::Beside(beside, path) => {
                beside.persist(&path).map_err(|e| refused(&path, &e.error))?;
                Ok(path)
            }
            Staged::Device(file) => {
                let written = fs::OpenOptions::new().write(true).open(&file.path);
                written.and_then(|mut to| to.write_all(&file.bytes)).map_err(|e| refused(&file.path, &e))?;
                Ok(PathBuf::new())
            }
        }
    }
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(format!("cannot write {}: {why}; valid: a file in a directory that can be written to", path.display()))
}
