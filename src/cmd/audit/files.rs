//! What is audited: objects, archives, shared libraries, packages and folders of them.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::Path;

use codegen::words::error::{Error, Result};
use codegen::words::input::append;
use link::archive::{is_archive, members};
use link::{Input, backend_of};
use tar::Archive;

use crate::cmd::shared::{compressed, input};

/// Objects that belong together: an archive's, or those that were given alone; of one architecture.
pub struct Unit {
    /// The archive; empty for objects that were given alone.
    pub name: String,
    /// What was given: the archive, the object, or the package or folder that it is in.
    pub given: String,
    /// Name and contents of each object.
    pub objects: Vec<(String, Vec<u8>)>,
}

/// All that was given.
#[derive(Default)]
pub struct Files {
    units: BTreeMap<(String, &'static str), Unit>,
    /// The one that is being read.
    given: String,
    /// The words of all headers.
    pub declared: HashSet<String>,
    /// Archives and objects for machines that are not known here.
    pub foreign: Vec<String>,
}

impl Files {
    /// Read what was given.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or is none of these.
    pub fn of(paths: &[impl AsRef<Path>]) -> Result<Files> {
        let mut files = Files::default();
        for path in paths.iter().map(AsRef::as_ref) {
            files.given = path.display().to_string();
            if path.is_dir() {
                files.folder(path)?;
            } else {
                let bytes =
                    input::bytes(path).map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))?;
                files.file(&path.display().to_string(), bytes, true)?;
            }
        }
        Ok(files)
    }

    /// The units.
    pub fn units(self) -> impl Iterator<Item = Unit> {
        self.units.into_values()
    }

    /// All files below a folder that are for this.
    fn folder(&mut self, dir: &Path) -> Result<()> {
        let refused = |e: std::io::Error| Error::new(format!("cannot read {}: {e}", dir.display()));
        let mut entries =
            std::fs::read_dir(dir).map_err(refused)?.collect::<std::io::Result<Vec<_>>>().map_err(refused)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type().map_err(refused)?);
            if kind.is_dir() {
                self.folder(&path)?;
            } else if kind.is_file() && is_wanted(&path) {
                let bytes = input::bytes(&path).map_err(refused)?;
                self.file(&path.display().to_string(), bytes, false)?;
            }
        }
        Ok(())
    }

    /// One file; what was named itself must be of use.
    fn file(&mut self, name: &str, bytes: Vec<u8>, named: bool) -> Result<()> {
        let archive = is_archive(&bytes);
        if archive && bytes.get(8..21) == Some(b"debian-binary") {
            return self.package(name, &bytes);
        }
        if archive {
            for (member, bytes) in members(&Input { name, bytes: &bytes })? {
                self.object(name, &member, bytes, false)?;
            }
            return Ok(());
        }
        if name.ends_with(".h") || name.ends_with(".hpp") {
            self.header(&String::from_utf8_lossy(&bytes));
            return Ok(());
        }
        let bytes = compressed::expanded(name, &bytes)?.unwrap_or(bytes);
        let unit = if name.ends_with(".o") { "" } else { name };
        self.object(unit, name, &bytes, named)
    }

    fn object(&mut self, unit: &str, name: &str, bytes: &[u8], named: bool) -> Result<()> {
        match backend_of(&Input { name, bytes }, tool::BACKENDS) {
            Ok(backend) => {
                let new = || Unit { name: unit.to_owned(), given: self.given.clone(), objects: Vec::new() };
                let unit = self.units.entry((unit.to_owned(), backend.facts().name)).or_insert_with(new);
                unit.objects.push((name.to_owned(), bytes.to_vec()));
                Ok(())
            }
            Err(why) if named => Err(why),
            Err(_) => {
                self.foreign.push(name.to_owned());
                Ok(())
            }
        }
    }

    /// A Debian package: an archive of two archives (deb(5)).
    fn package(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let all = members(&Input { name, bytes })?;
        let data = all.iter().find(|(member, _)| member.starts_with("data.tar"));
        let (member, data) = data.ok_or_else(|| Error::new(format!("{name}: a package without data.tar")))?;
        let expanded = compressed::expanded(&format!("{name}:{member}"), data)?;
        let fail = |e: std::io::Error| Error::new(format!("{name}: {member}: {e}"));
        let mut archive = Archive::new(expanded.as_deref().unwrap_or(data));
        for entry in archive.entries().map_err(fail)? {
            let mut entry = entry.map_err(fail)?;
            let path = entry.path().map_err(fail)?.into_owned();
            if !entry.header().entry_type().is_file() || !is_wanted(&path) {
                continue;
            }
            let mut bytes = Vec::new();
            append(entry.by_ref(), &mut bytes).map_err(fail)?;
            let inside = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.file(&inside, bytes, false)?;
        }
        Ok(())
    }

    /// The words of a header: a function whose name is one of them is declared there, for all that is known.
    fn header(&mut self, text: &str) {
        let words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
        self.declared.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
}

/// By its name, is it an object, an archive of them, or a header?
fn is_wanted(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    matches!(end, Some("o" | "a" | "ko" | "h" | "hpp" | "deb"))
}
