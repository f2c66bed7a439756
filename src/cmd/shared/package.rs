//! Debian packages: an archive of two archives, `control.tar` and `data.tar` (deb(5)).

use std::io::Read as _;
use std::path::Path;

use codegen::words::error::{Error, Result};
use codegen::words::input::append;
use link::Input;
use link::archive::{is_archive, members};
use tar::Archive;

use crate::cmd::shared::compressed;

/// A package's own words about itself.
pub struct About {
    pub name: String,
    pub version: String,
}

/// Is it one?
pub fn is_package(bytes: &[u8]) -> bool {
    is_archive(bytes) && bytes.get(8..21) == Some(b"debian-binary")
}

/// The archives of a package, by name.
///
/// # Errors
/// It is damaged.
pub fn parts<'b>(name: &'b str, bytes: &'b [u8]) -> Result<Vec<(String, &'b [u8])>> {
    members(&Input { name, bytes })
}

/// What it says of itself, if it says so.
///
/// # Errors
/// It is damaged.
pub fn about(name: &str, parts: &[(String, &[u8])]) -> Result<Option<About>> {
    let mut text = Vec::new();
    each(name, parts, "control.tar", |path, read| if path.ends_with("control") { read(&mut text) } else { Ok(()) })?;
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
    Ok(field("Package:").zip(field("Version:")).map(|(name, version)| About { name, version }))
}

/// Each file of a package that is wanted, by the last part of its name.
///
/// # Errors
/// It is damaged, has no files, or `of` refuses one.
pub fn each_file(
    name: &str,
    parts: &[(String, &[u8])],
    wanted: &dyn Fn(&Path) -> bool,
    mut of: impl FnMut(&str, Vec<u8>) -> Result<()>,
) -> Result<()> {
    if !parts.iter().any(|(part, _)| part.starts_with("data.tar")) {
        return Err(Error::new(format!("{name}: a package without data.tar")));
    }
    each(name, parts, "data.tar", |path, read| {
        if !wanted(path) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        read(&mut bytes)?;
        of(&path.file_name().unwrap_or_default().to_string_lossy(), bytes)
    })
}

/// Reads the contents of a file into a buffer.
type Reader<'r> = dyn FnMut(&mut Vec<u8>) -> Result<()> + 'r;

/// Each plain file of one of the archives.
fn each(
    name: &str,
    parts: &[(String, &[u8])],
    which: &str,
    mut of: impl FnMut(&Path, &mut Reader) -> Result<()>,
) -> Result<()> {
    let Some((part, bytes)) = parts.iter().find(|(part, _)| part.starts_with(which)) else { return Ok(()) };
    let expanded = compressed::expanded(&format!("{name}:{part}"), bytes)?;
    let fail = |e: std::io::Error| Error::new(format!("{name}: {part}: {e}"));
    let mut archive = Archive::new(expanded.as_deref().unwrap_or(bytes));
    for entry in archive.entries().map_err(fail)? {
        let mut entry = entry.map_err(fail)?;
        let path = entry.path().map_err(fail)?.into_owned();
        if entry.header().entry_type().is_file() {
            of(&path, &mut |into| append(entry.by_ref(), into).map(|_| ()).map_err(fail))?;
        }
    }
    Ok(())
}
