//! A machine under test, and where its objects are.

use std::fs;
use std::path::{Path, PathBuf};

use codegen::profile::Convention;
use compose::cross::Cross;
use emu_tests::Suite;
use tool::suite::suite_of_composed;

/// All users but kretprobes.
pub const WITHOUT_KRETPROBES: &str =
    "args,args2,regs,direct,hijack,graph,graph2,fprobe-entry,fprobe-exit,fprobe,recorder";
/// Kretprobes too, for which arm64 has no trampoline.
pub const WITH_KRETPROBES: &str =
    "args,args2,regs,direct,hijack,graph,graph2,fprobe-entry,fprobe-exit,fprobe,kretprobe,recorder";

/// Of functions; the last three are paired.
pub const SIGNATURES: &[&str] = &["word", "stack", "pair", "big", "word-paired", "pair-paired", "big-paired"];

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Rust's library is compiled once; the rest takes a second.
pub fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Do functions have the address of an `ftrace_ops` before them?
fn op(convention: &Convention) -> bool {
    convention.site.protocol.literal.is_some()
}

pub struct On {
    pub cross: Cross,
    pub dir: String,
}

impl On {
    pub fn users(&self) -> &'static str {
        if self.cross.arch == "arm64" { WITHOUT_KRETPROBES } else { WITH_KRETPROBES }
    }

    /// The profile of the latest kernel whose sites jump, so that functions have paired trampolines.
    pub fn jumps(&self) -> &'static str {
        if self.cross.arch == "riscv64" { "linux-6.12" } else { profiles::DEFAULT }
    }

    /// Of functions, under the default profile.
    pub fn signatures(&self) -> &'static [&'static str] {
        if self.jumps() == profiles::DEFAULT { SIGNATURES } else { &SIGNATURES[..4] }
    }

    /// The objects in a directory that go with the trampolines of a profile.
    pub fn objects(&self, profile: &str, dir: &Path) -> Vec<(String, Vec<u8>)> {
        self.cross.read(op(self.convention(profile)), dir).unwrap()
    }

    fn convention(&self, profile: &str) -> &'static Convention {
        tool::profile(profile).unwrap().convention(self.cross.arch).unwrap()
    }

    /// The trampolines of a profile.
    pub fn suite(&self, profile: &str) -> Suite {
        let backend = tool::backend(self.cross.arch).unwrap();
        let convention = self.convention(profile);
        let target = backend.target(convention, convention.defaults()).unwrap();
        suite_of_composed(backend, &target, self.cross.resume(op(convention))).unwrap()
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
