//! Where the kernel's objects are that `cargo xtask kernel-objects` builds: a cache outside the repository.

use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;

/// `$TRAMPTOOL_KERNEL_CACHE`, or a directory in the user's cache. There is none without `$HOME`.
pub fn directory() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/tramptool/kernel-objects"));
    std::env::var_os("TRAMPTOOL_KERNEL_CACHE").map(PathBuf::from).or_else(home)
}

/// Path and bytes of each object, in order of their paths.
pub type Objects = Vec<(String, Vec<u8>)>;

/// The objects of a contract. There are none if nobody has built them here.
///
/// # Errors
/// A file that cannot be read; the message begins with its path.
pub fn objects(contract: &str) -> Result<Option<Objects>> {
    let Some(dir) = directory().map(|cache| cache.join(contract)) else { return Ok(None) };
    let entries = match dir.read_dir() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|e| Error::new(e.kind(), format!("{}: {e}", dir.display())))?,
    };
    let mut objects = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "o") {
            let bytes = std::fs::read(&path).map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            objects.push((path.display().to_string(), bytes));
        }
    }
    objects.sort();
    Ok(Some(objects))
}
