// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fixtures`: compiles the objects of `emu-tests/fixtures` as `fixtures.toml` says.
//!
//! The objects are committed, so that the tests need no cross compiler. With `--check` nothing in
//! the repository changes: each object is compiled into a temporary directory and compared.

use std::fs;
use std::io;
use std::iter;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::failure::Failure;
use crate::tools::root;
use crate::verb::Outcome;

/// What `fixtures.toml` says about making the objects; the rest of it is for the tests.
#[derive(Debug, Deserialize)]
struct Manifest {
    /// Flags for all compilers.
    flags: Vec<String>,
    /// The architectures.
    arch: Vec<Arch>,
}

/// One architecture and its compiler.
#[derive(Debug, Deserialize)]
struct Arch {
    /// The program to run.
    compiler: String,
    /// The first line of its `--version` when the committed objects were made.
    version: String,
    /// The Debian package that has it.
    package: String,
    /// Flags for all objects of the architecture.
    flags: Vec<String>,
    /// The objects.
    object: Vec<Object>,
}

/// One object file.
#[derive(Debug, Deserialize)]
struct Object {
    /// The C file, relative to the directory of the fixtures.
    source: PathBuf,
    /// The object file, relative to the directory of the fixtures.
    output: PathBuf,
    /// What `wide.c` becomes with the same flags.
    wide: Option<PathBuf>,
    /// Flags for this object only.
    flags: Vec<String>,
}

impl Object {
    /// What is compiled, and what it becomes.
    fn files(&self) -> impl Iterator<Item = (&Path, &Path)> {
        let wide = self.wide.iter().map(|output| (Path::new(WIDE), output.as_path()));
        iter::once((self.source.as_path(), self.output.as_path())).chain(wide)
    }
}

/// The functions with many arguments.
const WIDE: &str = "wide.c";

/// Whether compiled fixtures are written or compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Write them into the repository.
    Rebuild,
    /// Compare them with those in the repository.
    Check,
}

/// Reads the arguments, then makes or compares all objects.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let mode = mode(args)?;
    let directory = root().join("emu-tests").join("fixtures");
    let manifest = read_manifest(&directory.join("fixtures.toml"))?;
    let scratch = tempfile::tempdir().map_err(|error| {
        Failure::at(
            &std::env::temp_dir(),
            format!("cannot make a temporary directory: {error}"),
            "set TMPDIR to a directory with a few free megabytes",
        )
    })?;

    let mut outcome = Outcome::Good;
    for arch in &manifest.arch {
        let skipped = reason_to_skip(arch)?;
        for (object, (source, output)) in arch.object.iter().flat_map(|object| object.files().map(move |f| (object, f)))
        {
            let verdict = match &skipped {
                Some(reason) => Verdict::Skipped(reason.clone()),
                None => {
                    let fresh = scratch.path().join(output);
                    compile(&directory, (&manifest.flags, arch, object), source, &fresh)?;
                    settle(mode, &fresh, &directory.join(output))?
                }
            };
            println!("{}: {verdict}", output.display());
            // A comparison that cannot be made is no difference; an object that cannot be made
            // again is not what was asked for.
            match (&verdict, mode) {
                (Verdict::Differs(_), _) | (Verdict::Skipped(_), Mode::Rebuild) => {
                    outcome = Outcome::Bad;
                }
                _ => {}
            }
        }
    }
    Ok(outcome)
}

/// Reads the arguments.
fn mode(args: &[String]) -> Result<Mode, Failure> {
    match args {
        [] => Ok(Mode::Rebuild),
        [flag] if flag == "--check" => Ok(Mode::Check),
        [first, ..] => Err(Failure::new(
            "fixtures",
            format!("cannot make sense of the arguments from `{first}` on"),
            "give no argument to make the objects again, or only --check to compare them",
        )),
    }
}

/// Reads and judges `fixtures.toml`.
fn read_manifest(path: &Path) -> Result<Manifest, Failure> {
    let text =
        fs::read_to_string(path).map_err(|error| Failure::at(path, error, "restore the file from the repository"))?;
    let manifest: Manifest =
        toml::from_str(&text).map_err(|error| Failure::at(path, error, "correct the file at the line named above"))?;
    for object in manifest.arch.iter().flat_map(|arch| &arch.object) {
        for inner in object.files().flat_map(|(source, output)| [source, output]) {
            let inside = inner.components().all(|part| matches!(part, Component::Normal(_)));
            if !inside || inner.as_os_str().is_empty() {
                return Err(Failure::at(
                    path,
                    format!("`{}` does not stay in this directory", inner.display()),
                    "name files relative to the directory, without `..`",
                ));
            }
        }
    }
    Ok(manifest)
}

/// Why the objects of an architecture cannot be made here as they were made, if so.
fn reason_to_skip(arch: &Arch) -> Result<Option<String>, Failure> {
    let compiler = &arch.compiler;
    let output = match Command::new(compiler).arg("--version").env("LC_ALL", "C").output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(format!("{compiler} is not installed (apt-get install {})", arch.package)));
        }
        Err(error) => {
            return Err(Failure::new(
                compiler,
                format!("cannot be run: {error}"),
                format!("install it again: apt-get install {}", arch.package),
            ));
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().next().unwrap_or_default().trim();
    if found == arch.version {
        return Ok(None);
    }
    Ok(Some(format!(
        "the compiler is `{found}`, the objects were made with `{}`; to change over, set `version` \
         in fixtures.toml and make them again",
        arch.version
    )))
}

/// Compiles one file to `fresh`.
fn compile(
    directory: &Path,
    (flags, arch, object): (&[String], &Arch, &Object),
    source: &Path,
    fresh: &Path,
) -> Result<(), Failure> {
    make_parent(fresh)?;
    let mut command = Command::new(&arch.compiler);
    // The working directory and the relative source keep the paths of this machine out of the
    // object.
    command
        .current_dir(directory)
        .env("LC_ALL", "C")
        .args(flags)
        .args(&arch.flags)
        .args(&object.flags)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(fresh);
    for variable in ["CPATH", "C_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH"] {
        command.env_remove(variable);
    }
    let output = command.output().map_err(|error| {
        Failure::new(
            &arch.compiler,
            format!("cannot be run: {error}"),
            format!("install it again: apt-get install {}", arch.package),
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::at(
        &directory.join(source),
        format!(
            "{} failed ({}) while making {}:\n{}",
            arch.compiler,
            output.status,
            fresh.file_name().unwrap_or_default().to_string_lossy(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        ),
        "correct the source, or the flags of this object in fixtures.toml",
    ))
}

/// What became of one object.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The committed object is what the compiler makes.
    Same,
    /// The object was written, and its bytes are new.
    Written,
    /// The committed object is not what the compiler makes; says how.
    Differs(String),
    /// Not compiled; says why.
    Skipped(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same => write!(f, "same"),
            Self::Written => write!(f, "written"),
            Self::Differs(how) => write!(f, "differs: {how}; run `cargo xtask fixtures`"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

/// Compares the fresh object with the committed one, and replaces that if asked to.
fn settle(mode: Mode, fresh: &Path, committed: &Path) -> Result<Verdict, Failure> {
    let new = fs::read(fresh)
        .map_err(|error| Failure::at(fresh, error, "see whether the disk is full, or set TMPDIR to another one"))?;
    let old = match fs::read(committed) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(Failure::at(committed, error, "make the file readable"));
        }
    };
    let Some(how) = difference(old.as_deref(), &new) else {
        return Ok(Verdict::Same);
    };
    match mode {
        Mode::Check => Ok(Verdict::Differs(how)),
        Mode::Rebuild => {
            make_parent(committed)?;
            fs::write(committed, &new).map_err(|error| Failure::at(committed, error, "make the file writable"))?;
            Ok(Verdict::Written)
        }
    }
}

/// How the committed bytes differ from the new ones, if they do.
fn difference(old: Option<&[u8]>, new: &[u8]) -> Option<String> {
    let Some(old) = old else {
        return Some(String::from("the object is not in the repository"));
    };
    let offset = old.iter().zip(new).position(|(a, b)| a != b);
    match offset {
        Some(offset) => Some(format!("first at byte {offset:#x}")),
        None if old.len() != new.len() => {
            Some(format!("{} bytes in the repository, {} bytes now", old.len(), new.len()))
        }
        None => None,
    }
}

/// Makes the directory that a file is to be in.
fn make_parent(file: &Path) -> Result<(), Failure> {
    let Some(parent) = file.parent() else {
        return Ok(());
    };
    fs::create_dir_all(parent).map_err(|error| Failure::at(parent, error, "make the directory above it writable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_check_is_an_argument() {
        assert_eq!(mode(&[]), Ok(Mode::Rebuild));
        assert_eq!(mode(&["--check".into()]), Ok(Mode::Check));
        assert!(mode(&["--chekc".into()]).is_err());
        assert!(mode(&["--check".into(), "--check".into()]).is_err());
    }

    #[test]
    fn differences_are_located() {
        assert_eq!(difference(Some(b"abc"), b"abc"), None);
        assert_eq!(difference(Some(b"abc"), b"axc").as_deref(), Some("first at byte 0x1"));
        assert_eq!(difference(Some(b"ab"), b"abc").as_deref(), Some("2 bytes in the repository, 3 bytes now"));
        assert!(difference(None, b"abc").is_some());
    }

    #[test]
    fn the_committed_manifest_is_accepted() {
        let path = root().join("emu-tests/fixtures/fixtures.toml");
        let manifest = read_manifest(&path).expect("fixtures.toml");
        // riscv64 has two compilers.
        assert_eq!(manifest.arch.len(), 4);
    }

    #[test]
    fn a_path_out_of_the_directory_is_refused() {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let path = scratch.path().join("fixtures.toml");
        let text = "flags = []\n[[arch]]\ncompiler = 'cc'\nversion = ''\npackage = ''\nflags = []\n\
                    [[arch.object]]\nsource = 'a.c'\noutput = '../a.o'\nflags = []\n";
        fs::write(&path, text).expect("write");
        let failure = read_manifest(&path).expect_err("must be refused");
        assert!(failure.what.contains("../a.o"), "{failure}");
    }

    #[test]
    fn a_missing_compiler_names_its_package() {
        let arch = Arch {
            compiler: "no-such-compiler-gcc".into(),
            version: String::new(),
            package: "gcc-no-such".into(),
            flags: Vec::new(),
            object: Vec::new(),
        };
        assert_eq!(
            reason_to_skip(&arch),
            Ok(Some("no-such-compiler-gcc is not installed (apt-get install gcc-no-such)".into()))
        );
    }
}
