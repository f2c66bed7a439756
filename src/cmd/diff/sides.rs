//! What can stand on a side of a comparison: code that is generated or in a file, or many at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use codegen::backend::Backend;
use codegen::profile::{Convention, Profile};
use codegen::words::error::{Error, Result};
use emu_tests::{Observed, observable, observe};
use link::Input;
use serde_json::Value;
use tool::aligned::{Insn, Stores, code};
use tool::kernel::{Tree, of_tree};
use tool::settings::parse_u64;

use super::outside::{assembled, checked_out, git};
use super::side::{Subject, Wanted, is_generated, subject};
use crate::cmd::shared::compressed::contents;
use crate::cmd::shared::input;

/// Trampolines of kernels that no profile generates by these names: those of the samples.
const OTHERS: [&str; 3] = ["my_tramp", "my_tramp1", "my_tramp2"];

/// One trampoline.
pub struct Code {
    /// What messages call its object.
    name: String,
    /// That of many functions is there once.
    bytes: Arc<[u8]>,
    symbol: Option<String>,
    /// Whose conventions it has: of what is generated, those by which it was; of a file, those that somebody stated.
    profile: Option<&'static Profile>,
}

/// What holds of sides that do not say it themselves.
#[derive(Clone, Copy, Default)]
pub struct Given<'a> {
    /// The architecture of sources and dumps.
    pub arch: Option<&'a str>,
    /// The profile, if one is stated.
    pub profile: Option<&'static Profile>,
}

/// A side.
pub enum Side {
    /// One trampoline.
    One(Box<Code>),
    /// Many, each by `ARCH:SYMBOL`.
    Many(BTreeMap<String, Code>),
    /// A report of `check`.
    Report(Value),
}

impl Code {
    /// Run it.
    ///
    /// # Errors
    /// It has no such symbol, does not link by itself; the form of its `.orc_unwind` is open, and nobody stated a profile.
    pub fn observed(&self) -> Result<Observed> {
        let object = Input { name: &self.name, bytes: &self.bytes };
        let backend = tool::backend_of(&object)?;
        let orc = self.profile.map(|profile| profile.convention(backend.facts().name)).transpose()?;
        observe(&object, self.symbol.as_deref(), tool::BACKENDS, orc.and_then(|convention| convention.orc))
    }

    /// The conventions of its sites; the profile that holds by default, where nobody stated one.
    ///
    /// # Errors
    /// The profile has nothing for the architecture.
    pub fn convention(&self, backend: &dyn Backend) -> Result<&'static Convention> {
        self.profile.map_or_else(|| tool::convention(backend), |profile| profile.convention(backend.facts().name))
    }

    /// What nobody said: it was taken to have the conventions of the profile that holds by default.
    pub fn assumed(&self) -> Option<String> {
        let why = "pc and parent_ip are taken to be where";
        let text = || format!("Of {}, {why} {} has them; --profile names another", self.name, profiles::DEFAULT);
        self.profile.is_none().then(text)
    }

    /// The instructions of its function before a linker has filled in anything, and the symbols in it.
    ///
    /// # Errors
    /// A damaged object.
    pub fn instructions(&self, symbol: &str, stores: &Stores) -> Result<(Vec<Insn>, BTreeMap<String, usize>)> {
        code(&Input { name: &self.name, bytes: &self.bytes }, symbol, stores)
    }
}

/// Read a side.
///
/// # Errors
/// There is nothing of that name, or it cannot be read.
pub fn side(text: &str, given: Given) -> Result<Side> {
    let stdin = text.strip_prefix("/dev/stdin").or(text.strip_prefix('-'));
    if let Some(symbol) = stdin.filter(|rest| rest.is_empty() || rest.starts_with(':')) {
        return of_bytes("stdin", stdin_bytes()?, symbol.strip_prefix(':'), given);
    }
    if Path::new(text).is_dir() {
        return directory(Path::new(text), given);
    }
    if let Some((path, symbol)) = file(text) {
        return of_bytes(&path.display().to_string(), contents(&path)?, symbol, given);
    }
    if let Some(dump) = dump(text, given)? {
        return Ok(dump);
    }
    if profiles::names().contains(&text) {
        return profile(text, tool::BACKENDS, "");
    }
    if let Some((arch, rest)) = text.split_once(':') {
        let (name, options) = rest.split_once(',').unwrap_or((rest, ""));
        if profiles::names().contains(&name) {
            return profile(name, &[tool::backend(arch)?], options);
        }
    }
    if !is_generated(text)
        && let Some((revision, rest)) = text.split_once(':')
    {
        let kind = |name: &str| {
            let kind = git(&["cat-file", "-t", name]).ok()?;
            Some(String::from_utf8_lossy(&kind).trim().to_owned())
        };
        if let Some(kind) = kind(text) {
            return revisioned(revision, (rest, None), &kind, given);
        }
        let symbol = rest.rsplit_once(':').map(|(path, symbol)| (path, Some(symbol)));
        if let Some(path) = symbol.filter(|(path, _)| kind(&format!("{revision}:{path}")).as_deref() == Some("blob")) {
            return revisioned(revision, path, "blob", given);
        }
        let names: Vec<&str> = tool::BACKENDS.iter().map(|b| b.facts().name).collect();
        return Err(Error::new(format!(
            "'{text}': '{revision}' is no file and no architecture, and git has no such path; valid: {}, or what git has",
            names.join(", ")
        )));
    }
    if !text.contains(':') {
        let valid = "FILE[:SYMBOL], FILE@BASE:ENTRY, a directory of objects, a profile, ARCH:PROFILE, REVISION:PATH, ARCH:TRAMPOLINE[,...] or -";
        return Err(Error::new(format!("'{text}' names no file and no architecture; valid: {valid}")));
    }
    subject(text, given.profile).map(|subject| Side::One(Box::new(generated(text.to_owned(), subject))))
}

/// What comes on stdin: a contract's judge asks for it once more.
fn stdin_bytes() -> Result<Vec<u8>> {
    static READ: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(bytes) = READ.get() {
        return Ok(bytes.clone());
    }
    let read = codegen::words::input::all(std::io::stdin().lock());
    let bytes = read.map_err(|e| Error::new(format!("stdin: {e}; valid: an object")))?;
    Ok(READ.get_or_init(|| bytes).clone())
}

/// One trampoline, for commands that take no more.
///
/// # Errors
/// As [`side`]; it is more than one.
pub fn one(text: &str, given: Given) -> Result<Code> {
    match side(text, given)? {
        Side::One(code) => Ok(*code),
        Side::Many(_) | Side::Report(_) => {
            Err(Error::new(format!("'{text}' is more than one trampoline; valid: FILE:SYMBOL or ARCH:TRAMPOLINE")))
        }
    }
}

/// The objects of a side, with their names, each once.
///
/// # Errors
/// As [`side`]; it is a report.
pub fn objects(text: &str, given: Given) -> Result<Vec<(String, Vec<u8>)>> {
    let all = match side(text, given)? {
        Side::One(code) => vec![*code],
        Side::Many(all) => all.into_values().collect(),
        Side::Report(_) => {
            return Err(Error::new(format!("'{text}' is a report; valid: an object, or a directory of objects")));
        }
    };
    let once: BTreeMap<String, Arc<[u8]>> = all.into_iter().map(|code| (code.name, code.bytes)).collect();
    Ok(once.into_iter().map(|(name, bytes)| (name, bytes.to_vec())).collect())
}

fn generated(text: String, subject: Subject) -> Code {
    let Subject { object: (symbol, bytes), profile, .. } = subject;
    Code { name: text, bytes: bytes.into(), symbol: Some(symbol), profile: Some(profile) }
}

/// FILE or FILE:SYMBOL, if there is such a file.
fn file(text: &str) -> Option<(PathBuf, Option<&str>)> {
    if Path::new(text).is_file() {
        return Some((text.into(), None));
    }
    let (file, symbol) = text.rsplit_once(':')?;
    Path::new(file).is_file().then(|| (file.into(), Some(symbol)))
}

/// An object, a source, or a report.
fn of_bytes(name: &str, bytes: Vec<u8>, symbol: Option<&str>, given: Given) -> Result<Side> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        let report: Value = serde_json::from_slice(&bytes)
            .map_err(|e| Error::new(format!("{name}: {e}; valid: a report of `tramptool check --format json`")))?;
        return Ok(Side::Report(report));
    }
    if bytes.starts_with(b"!<arch>\n") {
        return Err(Error::new(format!("{name}: an archive; valid: one of its objects, which `ar x` takes out")));
    }
    let source = Path::new(name).extension().is_some_and(|extension| extension == "S" || extension == "s");
    let bytes = if source { assembled(name, &bytes, backend(name, given.arch)?)? } else { bytes };
    let symbol = symbol.map(str::to_owned);
    Ok(Side::One(Box::new(Code { name: name.to_owned(), bytes: bytes.into(), symbol, profile: given.profile })))
}

fn backend(what: &str, arch: Option<&str>) -> Result<&'static dyn Backend> {
    let arch = arch.ok_or_else(|| {
        let names: Vec<&str> = tool::BACKENDS.iter().map(|b| b.facts().name).collect();
        Error::new(format!(
            "{what} does not say for which architecture it is; valid: --arch {}",
            names.join(" or --arch ")
        ))
    })?;
    tool::backend(arch)
}

/// FILE@BASE:ENTRY, if there is such a file.
fn dump(text: &str, given: Given) -> Result<Option<Side>> {
    let Some((path, place)) = text.rsplit_once('@').filter(|(path, _)| Path::new(path).is_file()) else {
        return Ok(None);
    };
    let Some((base, entry)) = place.split_once(':') else {
        return Err(Error::new(format!("'{text}': '{place}' is no place; valid: FILE@BASE:ENTRY, both addresses")));
    };
    let (base, entry) = (parse_u64(base)?, parse_u64(entry)?);
    let bytes = input::bytes(Path::new(path)).map_err(|e| Error::new(format!("cannot read {path}: {e}")))?;
    let symbol = format!("{entry:#x}");
    let bytes =
        emu_tests::dumped(backend(path, given.arch)?, &bytes, base, (&symbol, entry)).map_err(|e| e.at(path))?;
    let code = Code { name: path.to_owned(), bytes: bytes.into(), symbol: Some(symbol), profile: given.profile };
    Ok(Some(Side::One(Box::new(code))))
}

/// Everything that a profile has for these, with its defaults but for these options.
fn profile(name: &str, backends: &[&'static dyn Backend], options: &str) -> Result<Side> {
    let behind = if options.is_empty() { String::new() } else { format!(",{options}") };
    let wanted = Wanted::parse(&behind, options)?;
    let profile = tool::profile(name)?;
    let mut all = BTreeMap::new();
    for backend in backends {
        let arch = backend.facts().name;
        let Ok(convention) = profile.convention(arch) else { continue };
        for spec in convention.specs() {
            let key = format!("{arch}:{}", spec.name);
            let name = format!("{key}{behind}");
            let made = wanted.clone().named(spec.name).generate(*backend, &name, Some(profile))?;
            all.insert(key, generated(name, made));
        }
    }
    if all.is_empty() {
        return Err(Error::new(format!("profile {name} has nothing for that architecture")));
    }
    Ok(Side::Many(all))
}

/// The functions of all objects in a directory. Of a kernel's build tree, those that a profile has a name for.
fn directory(dir: &Path, given: Given) -> Result<Side> {
    let tree = dir.join(".config").is_file();
    // A build tree says of which kernel it is.
    let profile = match given.profile {
        None if tree => built_for(dir),
        stated => stated,
    };
    let mut all = BTreeMap::new();
    let mut open = vec![(dir.to_owned(), if tree { 4 } else { 1 })];
    while let Some((dir, depth)) = open.pop() {
        let entries = dir.read_dir().map_err(|e| Error::new(format!("cannot read {}: {e}", dir.display())))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() && depth > 1 {
                open.push((path, depth - 1));
            } else if path.extension().is_some_and(|extension| extension == "o") {
                functions(&path, tree, profile, &mut all)?;
            }
        }
    }
    if all.is_empty() {
        return Err(Error::new(format!("{}: no object with a function; valid: a directory of objects", dir.display())));
    }
    Ok(Side::Many(all))
}

/// The profile for a build tree's kernel; none if that is older than all.
fn built_for(dir: &Path) -> Option<&'static Profile> {
    let text = |name: &str| input::text(&dir.join(name)).ok();
    let version = of_tree(text("include/config/kernel.release").as_deref(), text("Makefile").as_deref());
    let config = text(".config")?;
    Tree { config: (".config", &config), version }.profile().ok()
}

/// The functions of an object.
fn functions(
    path: &Path,
    tree: bool,
    profile: Option<&'static Profile>,
    all: &mut BTreeMap<String, Code>,
) -> Result<()> {
    let name = path.display().to_string();
    let bytes = input::bytes(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
    let bytes: Arc<[u8]> = bytes.into();
    let object = Input { name: &name, bytes: &bytes };
    // A build tree has more objects than those of its target.
    let Ok(backend) = tool::backend_of(&object) else {
        return if tree { Ok(()) } else { tool::backend_of(&object).map(|_| ()) };
    };
    let convention =
        profile.map_or_else(|| tool::convention(backend), |profile| profile.convention(backend.facts().name))?;
    let known: Vec<&str> = convention.trampolines.iter().map(|t| t.symbol).chain(OTHERS).collect();
    let text = |symbol: &str| bytes.windows(symbol.len()).any(|window| window == symbol.as_bytes());
    if tree && !known.iter().any(|symbol| text(symbol)) {
        return Ok(());
    }
    let symbols = match observable(&object, backend) {
        Ok(symbols) => symbols,
        Err(_) if tree => return Ok(()),
        Err(e) => return Err(e),
    };
    for symbol in symbols.into_iter().filter(|symbol| !tree || known.contains(&symbol.as_str())) {
        let file = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let mut key = format!("{}:{symbol}", backend.facts().name);
        if all.contains_key(&key) {
            key = format!("{key} ({file})");
        }
        let code = Code { name: name.clone(), bytes: Arc::clone(&bytes), symbol: Some(symbol), profile };
        all.insert(key, code);
    }
    Ok(())
}

/// What git has of a path at a revision.
fn revisioned(revision: &str, (path, symbol): (&str, Option<&str>), kind: &str, given: Given) -> Result<Side> {
    let name = format!("{revision}:{path}");
    if kind != "tree" {
        return of_bytes(&name, git(&["cat-file", "blob", &name])?, symbol, given);
    }
    let dir = checked_out(&name)?;
    let there = dir.path().display().to_string();
    directory(dir.path(), given).map_err(|e| Error::new(e.to_string().replace(&there, &name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many functions an object has.
    #[test]
    fn functions_of_an_object_share_it() {
        let backend = tool::BACKENDS[0];
        let target = tool::default_target(backend).unwrap();
        let (_, object) = tool::suite::suite(backend, &target).unwrap().objects.remove(0);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("all.o"), object).unwrap();
        let Side::Many(all) = directory(dir.path(), Given::default()).unwrap() else { panic!() };
        let mut codes = all.values();
        let first = codes.next().unwrap();
        assert!(all.len() > 2 && codes.all(|code| Arc::ptr_eq(&code.bytes, &first.bytes)), "{}", all.len());
    }
}
