//! What can stand on a side of a comparison: code that is generated or in a file, or many at once.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::profile::Convention;
use emu_tests::{Observed, observable, observe};
use link::Input;
use serde_json::Value;
use tool::aligned::{Insn, Stores, code};
use tool::settings::parse_u64;

use super::compressed::contents;
use super::side::{Subject, is_generated, subject};

/// Bytes of an object on stdin.
const MOST: u64 = 1 << 28;

/// Trampolines of kernels that no profile generates by these names: those of the samples, and of rethook.
const OTHERS: [&str; 4] = ["my_tramp", "my_tramp1", "my_tramp2", "arch_rethook_trampoline"];

/// One trampoline.
pub struct Code {
    /// What messages call its object.
    name: String,
    bytes: Vec<u8>,
    symbol: Option<String>,
    /// Of what is generated: what its profile says.
    convention: Option<&'static Convention>,
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
    /// Run it. An object that does not say in which form its `.orc_unwind` is has that of what it is compared with.
    ///
    /// # Errors
    /// It has no such symbol, does not link by itself.
    pub fn observed(&self, beside: Option<&Code>) -> Result<Observed> {
        let object = Input { name: &self.name, bytes: &self.bytes };
        let backend = tool::backend_of(&object)?;
        let known = self.convention.or(beside.and_then(|code| code.convention));
        let known = known.filter(|convention| convention.facts.name == backend.facts().name);
        let orc = known.map_or_else(|| tool::convention(backend), Ok)?.orc;
        observe(&object, self.symbol.as_deref(), tool::BACKENDS, orc)
    }
}

impl Code {
    /// The instructions of its function before a linker has filled in anything, and the symbols in it.
    ///
    /// # Errors
    /// A damaged object.
    pub fn instructions(&self, symbol: &str, stores: &Stores) -> Result<(Vec<Insn>, BTreeMap<String, usize>)> {
        code(&Input { name: &self.name, bytes: &self.bytes }, symbol, stores)
    }
}

/// Read a side; `arch` is that of files that do not say it.
///
/// # Errors
/// There is nothing of that name, or it cannot be read.
pub fn side(text: &str, arch: Option<&str>) -> Result<Side> {
    if let Some(symbol) = text.strip_prefix('-').filter(|rest| rest.is_empty() || rest.starts_with(':')) {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(MOST).read_to_end(&mut bytes);
        read.map_err(|e| Error::new(format!("stdin: {e}; valid: an object")))?;
        return of_bytes("stdin", bytes, symbol.strip_prefix(':'), arch);
    }
    if Path::new(text).is_dir() {
        return directory(Path::new(text));
    }
    if let Some((path, symbol)) = file(text) {
        return of_bytes(&path.display().to_string(), contents(&path)?, symbol, arch);
    }
    if let Some(dump) = dump(text, arch)? {
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
            return revisioned(revision, (rest, None), &kind, arch);
        }
        let symbol = rest.rsplit_once(':').map(|(path, symbol)| (path, Some(symbol)));
        if let Some(path) = symbol.filter(|(path, _)| kind(&format!("{revision}:{path}")).as_deref() == Some("blob")) {
            return revisioned(revision, path, "blob", arch);
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
    generated(text).map(|code| Side::One(Box::new(code)))
}

/// One trampoline, for commands that take no more.
///
/// # Errors
/// As [`side`]; it is more than one.
pub fn one(text: &str, arch: Option<&str>) -> Result<Code> {
    match side(text, arch)? {
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
pub fn objects(text: &str, arch: Option<&str>) -> Result<Vec<(String, Vec<u8>)>> {
    let all = match side(text, arch)? {
        Side::One(code) => vec![*code],
        Side::Many(all) => all.into_values().collect(),
        Side::Report(_) => {
            return Err(Error::new(format!("'{text}' is a report; valid: an object, or a directory of objects")));
        }
    };
    Ok(all.into_iter().map(|code| (code.name, code.bytes)).collect::<BTreeMap<_, _>>().into_iter().collect())
}

fn generated(text: &str) -> Result<Code> {
    let Subject { object: (symbol, bytes), target, .. } = subject(text)?;
    Ok(Code { name: text.to_owned(), bytes, symbol: Some(symbol), convention: Some(target.convention) })
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
fn of_bytes(name: &str, bytes: Vec<u8>, symbol: Option<&str>, arch: Option<&str>) -> Result<Side> {
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
    let bytes = if source { assembled(name, &bytes, backend(name, arch)?)? } else { bytes };
    Ok(Side::One(Box::new(Code { name: name.to_owned(), bytes, symbol: symbol.map(str::to_owned), convention: None })))
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

/// What GNU as makes of a source.
fn assembled(name: &str, source: &[u8], backend: &dyn Backend) -> Result<Vec<u8>> {
    let assembler = backend.facts().assembler;
    let fail = |what: String| Error::new(format!("{name}: {assembler}: {what}; valid: what GNU as takes without cpp"));
    let dir = tempfile::tempdir().map_err(|e| fail(e.to_string()))?;
    let (input, output) = (dir.path().join("side.s"), dir.path().join("side.o"));
    std::fs::write(&input, source).map_err(|e| fail(e.to_string()))?;
    let out = Command::new(assembler).arg(&input).arg("-o").arg(&output).output().map_err(|e| fail(e.to_string()))?;
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        let place = input.display().to_string();
        let first = stderr.lines().find(|line| line.contains("Error")).unwrap_or("it fails");
        return Err(fail(first.replace(&place, "line").to_owned()));
    }
    std::fs::read(&output).map_err(|e| fail(e.to_string()))
}

/// FILE@BASE:ENTRY, if there is such a file.
fn dump(text: &str, arch: Option<&str>) -> Result<Option<Side>> {
    let Some((path, place)) = text.rsplit_once('@').filter(|(path, _)| Path::new(path).is_file()) else {
        return Ok(None);
    };
    let Some((base, entry)) = place.split_once(':') else {
        return Err(Error::new(format!("'{text}': '{place}' is no place; valid: FILE@BASE:ENTRY, both addresses")));
    };
    let (base, entry) = (parse_u64(base)?, parse_u64(entry)?);
    let bytes = std::fs::read(path).map_err(|e| Error::new(format!("cannot read {path}: {e}")))?;
    let symbol = format!("{entry:#x}");
    let bytes = emu_tests::dumped(backend(path, arch)?, &bytes, base, (&symbol, entry)).map_err(|e| e.at(path))?;
    Ok(Some(Side::One(Box::new(Code { name: path.to_owned(), bytes, symbol: Some(symbol), convention: None }))))
}

/// Everything that a profile has for these, with its defaults but for these options.
fn profile(name: &str, backends: &[&'static dyn Backend], options: &str) -> Result<Side> {
    let options = if options.is_empty() { String::new() } else { format!(",{options}") };
    let profile = tool::profile(name)?;
    let mut all = BTreeMap::new();
    for backend in backends {
        let arch = backend.facts().name;
        let Ok(convention) = profile.convention(arch) else { continue };
        for spec in convention.specs() {
            let key = format!("{arch}:{}", spec.name);
            all.insert(key.clone(), generated(&format!("{key},profile={name}{options}"))?);
        }
    }
    if all.is_empty() {
        return Err(Error::new(format!("profile {name} has nothing for that architecture")));
    }
    Ok(Side::Many(all))
}

/// The functions of all objects in a directory. Of a kernel's build tree, those that a profile has a name for.
fn directory(dir: &Path) -> Result<Side> {
    let tree = dir.join(".config").is_file();
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
                functions(&path, tree, &mut all)?;
            }
        }
    }
    if all.is_empty() {
        return Err(Error::new(format!("{}: no object with a function; valid: a directory of objects", dir.display())));
    }
    Ok(Side::Many(all))
}

/// The functions of an object.
fn functions(path: &Path, tree: bool, all: &mut BTreeMap<String, Code>) -> Result<()> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
    let object = Input { name: &name, bytes: &bytes };
    // A build tree has more objects than those of its target.
    let Ok(backend) = tool::backend_of(&object) else {
        return if tree { Ok(()) } else { tool::backend_of(&object).map(|_| ()) };
    };
    let convention = tool::convention(backend)?;
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
        let code = Code { name: name.clone(), bytes: bytes.clone(), symbol: Some(symbol), convention: None };
        all.insert(key, code);
    }
    Ok(())
}

/// What git has of a path at a revision.
fn revisioned(revision: &str, (path, symbol): (&str, Option<&str>), kind: &str, arch: Option<&str>) -> Result<Side> {
    let name = format!("{revision}:{path}");
    if kind != "tree" {
        return of_bytes(&name, git(&["cat-file", "blob", &name])?, symbol, arch);
    }
    let dir = tempfile::tempdir().map_err(|e| Error::new(format!("{name}: {e}")))?;
    let archive = git(&["archive", "--format=tar", &name])?;
    let tar = Command::new("tar").args(["-x", "-C"]).arg(dir.path()).stdin(Stdio::piped()).spawn();
    let mut tar = tar.map_err(|e| Error::new(format!("tar: {e}")))?;
    if let Some(mut stdin) = tar.stdin.take() {
        use std::io::Write;
        stdin.write_all(&archive).map_err(|e| Error::new(format!("tar: {e}")))?;
    }
    match tar.wait() {
        Ok(status) if status.success() => {
            let there = dir.path().display().to_string();
            directory(dir.path()).map_err(|e| Error::new(e.to_string().replace(&there, &name)))
        }
        _ => Err(Error::new(format!("{name}: tar fails"))),
    }
}

fn git(args: &[&str]) -> Result<Vec<u8>> {
    let out =
        Command::new("git").args(args).stderr(Stdio::null()).output().map_err(|e| Error::new(format!("git: {e}")))?;
    if out.status.success() { Ok(out.stdout) } else { Err(Error::new(format!("git {} fails", args.join(" ")))) }
}
