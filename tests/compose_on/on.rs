//! A machine under test, and where its objects are.

use std::fs;
use std::path::{Path, PathBuf};

use compose::cross::Cross;

/// All users but kretprobes.
pub const WITHOUT_KRETPROBES: &str =
    "args,args2,regs,direct,hijack,graph,graph2,fprobe-entry,fprobe-exit,fprobe,recorder";
/// Kretprobes too, for which arm64 has no trampoline.
pub const WITH_KRETPROBES: &str =
    "args,args2,regs,direct,hijack,graph,graph2,fprobe-entry,fprobe-exit,fprobe,kretprobe,recorder";

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Rust's library is compiled once; the rest takes a second.
pub fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

pub struct On {
    pub cross: Cross,
    pub dir: String,
}

impl On {
    pub fn users(&self) -> &'static str {
        if self.cross.arch == "arm64" { WITHOUT_KRETPROBES } else { WITH_KRETPROBES }
    }

    /// Of functions: with paired trampolines where sites jump.
    pub fn signatures(&self) -> &'static [&'static str] {
        const ALL: &[&str] = &["word", "stack", "pair", "big", "word-paired", "pair-paired", "big-paired"];
        if self.cross.arch == "riscv64" { &ALL[..4] } else { ALL }
    }

    pub fn compose<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["compose", "--arch", self.cross.arch, "--objects", &self.dir][..], more].concat()
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}
