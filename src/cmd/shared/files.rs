//! What is looked into: objects, archives, shared libraries, packages and folders of them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use codegen::words::error::{Error, Result};
use link::archive::{is_archive, is_thin, members, named_files};
use link::{Input, backend_of, is_executable};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::package;
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

/// Where a file is from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The user named it.
    Named,
    /// It is in a folder that the user named.
    Folder,
    /// It is in a package.
    Package,
}

/// A file that was read.
#[derive(Serialize, JsonSchema)]
pub struct Origin {
    pub file: String,
    pub sha256: String,
    /// Of a Debian package: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Origin {
    fn of(file: &str, bytes: &[u8]) -> Origin {
        let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Origin { file: file.to_owned(), sha256, package: None, version: None }
    }
}

/// Which files of folders and packages are looked into, by their paths.
pub type Wanted = fn(&Path) -> bool;

/// All that was given.
pub struct Files {
    wanted: Wanted,
    units: BTreeMap<(String, &'static str), Unit>,
    /// The one that is being read.
    given: String,
    /// The words of all headers.
    pub declared: HashSet<String>,
    /// Archives and objects for machines that are not known here.
    pub foreign: Vec<String>,
    /// The files that were read, of those that are not in packages.
    pub origins: Vec<Origin>,
}

impl Files {
    /// Read what was given.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or is none of these.
    pub fn of(paths: &[impl AsRef<Path>], wanted: Wanted) -> Result<Files> {
        let mut files = Files {
            wanted,
            units: BTreeMap::new(),
            given: String::new(),
            declared: HashSet::new(),
            foreign: Vec::new(),
            origins: Vec::new(),
        };
        for path in paths.iter().map(AsRef::as_ref) {
            files.given = path.display().to_string();
            if path.is_dir() {
                files.folder(path)?;
            } else {
                let bytes =
                    input::bytes(path).map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))?;
                files.origins.push(Origin::of(&files.given, &bytes));
                files.file(&path.display().to_string(), bytes, From::Named)?;
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
            } else if kind.is_file() && (self.wanted)(&path) {
                let bytes = input::bytes(&path).map_err(refused)?;
                self.origins.push(Origin::of(&path.display().to_string(), &bytes));
                self.file(&path.display().to_string(), bytes, From::Folder)?;
            }
        }
        Ok(())
    }

    /// One file; what was named itself must be of use.
    fn file(&mut self, name: &str, bytes: Vec<u8>, from: From) -> Result<()> {
        if name.ends_with(".h") || name.ends_with(".hpp") {
            self.header(&String::from_utf8_lossy(&bytes));
            return Ok(());
        }
        if package::is_package(&bytes) {
            return self.package(name, &bytes);
        }
        if is_thin(&bytes) && from != From::Package {
            return self.thin(name, &bytes);
        }
        if is_archive(&bytes) {
            for (member, bytes) in members(&Input { name, bytes: &bytes })? {
                self.object(name, &member, bytes, false)?;
            }
            return Ok(());
        }
        let bytes = compressed::expanded(name, &bytes)?.unwrap_or(bytes);
        let unit = if name.ends_with(".o") { "" } else { name };
        self.object(unit, name, &bytes, from == From::Named)
    }

    /// The files that a thin archive names.
    fn thin(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        for file in named_files(&Input { name, bytes })? {
            let path = Path::new(name).with_file_name(&file);
            let refused = |e: std::io::Error| Error::new(format!("{name}: cannot read its member {file}: {e}"));
            // A pipe or a device would be no object, and might never end.
            if !path.metadata().map_err(refused)?.is_file() {
                return Err(Error::new(format!("{name}: its member {file} is no plain file")));
            }
            let bytes = input::bytes(&path).map_err(refused)?;
            self.object(name, &file, &bytes, false)?;
        }
        Ok(())
    }

    fn object(&mut self, unit: &str, name: &str, bytes: &[u8], named: bool) -> Result<()> {
        let input = Input { name, bytes };
        match backend_of(&input, tool::BACKENDS) {
            // Some are called like libraries.
            Ok(_) if !named && is_executable(&input) => {
                self.foreign.push(name.to_owned());
                Ok(())
            }
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

    /// A Debian package, and what is in it.
    fn package(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let parts = package::parts(name, bytes)?;
        if let (Some(about), Some(origin)) = (package::about(name, &parts)?, self.origins.last_mut()) {
            (origin.package, origin.version) = (Some(about.name), Some(about.version));
        }
        let wanted = self.wanted;
        package::each_file(name, &parts, &wanted, |inside, bytes| self.file(inside, bytes, From::Package))
    }

    /// The words of a header: a function whose name is one of them is declared there, for all that is known.
    fn header(&mut self, text: &str) {
        let words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
        self.declared.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
}

/// By its name, is it an object, an archive of them, or a header?
pub fn is_object(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    matches!(end, Some("o" | "a" | "ko" | "h" | "hpp" | "deb"))
}

/// The same, or a shared library?
pub fn is_object_or_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    is_object(path) || name.ends_with(".so") || name.contains(".so.")
}
