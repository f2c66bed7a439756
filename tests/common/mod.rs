//! The built binary, as its users have it, in a directory of its own.
#![allow(dead_code, reason = "each test file has its own copy, and not every one needs all of it")]

pub mod expected;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The contract of a direct-call trampoline, `my_tramp`.
pub const CONTRACT: &str = include_str!("../../emu-tests/tests/direct.toml");

/// Compare a file that is written by the tests themselves, from the root of the repository; `cargo xtask bless` sets BLESS, and
/// it is written instead.
pub fn blessed(path: &str, text: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        return;
    }
    let was = fs::read_to_string(&file).unwrap_or_default();
    let lines = was.lines().map(Some).chain([None]).zip(text.lines().map(Some).chain([None]));
    if let Some((i, (was, is))) = lines.enumerate().find(|(_, (was, is))| was != is) {
        let [was, is] = [was, is].map(|line| line.unwrap_or("the end"));
        panic!("{path}:{}: was, and is:\n{was}\n{is}\nRun `cargo xtask bless`, and read what changed.", i + 1);
    }
    assert_eq!(was, text, "{path}");
}

/// The same of a part of a file: what is between a line and the next `<!-- end -->`.
pub fn blessed_block(path: &str, begin: &str, text: &str) {
    let file = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (before, rest) = file.split_once(begin).unwrap_or_else(|| panic!("{path}: no {begin}"));
    let (_, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{path}: no end of {begin}"));
    blessed(path, &format!("{before}{begin}\n{text}<!-- end -->{after}"));
}

/// An architecture under every set of options that each profile offers.
pub fn targets(backend: &dyn codegen::backend::Backend) -> Vec<codegen::profile::target::Target> {
    let profiles = profiles::names().into_iter().map(|name| tool::profile(name).unwrap());
    let conventions: Vec<_> = profiles.filter_map(|p| p.convention(backend.facts().name).ok()).collect();
    let mut all = Vec::new();
    for convention in conventions {
        let each = convention.combinations(|_| true).into_iter();
        all.extend(each.map(|choices| backend.target(convention, choices).unwrap()));
    }
    all
}

/// The name of an architecture, where any will do.
pub fn any() -> &'static str {
    tool::BACKENDS[0].facts().name
}

/// What chooses what is in this directory, for the tool: objects, or bytes in a file that is named after their address.
pub fn chosen(directory: &std::path::Path) -> Vec<String> {
    let files = fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut files: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
    // In the order of the shell's, which is that of the objects in the image.
    files.sort();
    let path = |file: &PathBuf| file.display().to_string();
    match &files[..] {
        [dump] if dump.extension().is_some_and(|e| e == "bin") => {
            let at = dump.file_stem().unwrap().to_str().unwrap().to_owned();
            ["--raw".to_owned(), path(dump), "--base".to_owned(), at.clone(), "--entry".to_owned(), at].into()
        }
        _ => ["--object".to_owned()].into_iter().chain(files.iter().map(path)).collect(),
    }
}

/// A direct trampoline with a register that it forgets, as an object with its contract.
pub fn broken(b: &Bench) {
    b.ok(&[
        "gen",
        "direct",
        "--args",
        "2",
        "--call",
        "my_handler",
        "--arch",
        "arm64",
        "--stem",
        "broken",
        "--fault",
        "my_handler_tramp:DROP_RESTORE(x1)@0x24",
        "--emit",
        "obj,contract",
    ]);
}

/// Judges it.
pub const CHECK_BROKEN: [&str; 5] = ["check", "--object", "broken.o", "--contract", "broken.toml"];

/// An ELF core file (gABI, ELF header and program header) with these pieces of memory, and the note that tells the version.
pub fn core(machine: u16, memory: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let note = b"VMCOREINFO\0\0OSRELEASE=7.3.4-test\n".to_vec();
    let pieces: Vec<_> =
        [(4_u32, 0, &note)].into_iter().chain(memory.iter().map(|(at, bytes)| (1, *at, bytes))).collect();
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([4_u16, machine].iter().flat_map(|half| half.to_le_bytes()));
    out.extend(1_u32.to_le_bytes());
    out.extend([0_u64, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    out.extend(0_u32.to_le_bytes());
    out.extend([64_u16, 56, pieces.len() as u16, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    let mut offset = 64 + 56 * pieces.len() as u64;
    for (kind, address, bytes) in &pieces {
        let size = bytes.len() as u64;
        out.extend([*kind, 7].iter().flat_map(|half| half.to_le_bytes()));
        out.extend([offset, *address, 0, size, size, 1].iter().flat_map(|word: &u64| word.to_le_bytes()));
        offset += size;
    }
    pieces.into_iter().for_each(|(.., bytes)| out.extend(bytes));
    out
}

/// Every architecture, with the prefix of its GNU tools.
pub fn arches() -> Vec<(&'static str, &'static str)> {
    let facts = tool::BACKENDS.iter().map(|b| b.facts());
    facts.map(|f| (f.name, f.assembler.strip_suffix("as").unwrap())).collect()
}

/// The prefix of the GNU tools of one.
pub fn tools_of(arch: &str) -> &'static str {
    arches().into_iter().find(|(name, _)| *name == arch).unwrap().1
}

/// What it wrote to stdout; it must have ended with this code and nothing on stderr.
fn ended(out: &Output, code: i32, what: &str) -> String {
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{what}: {stderr}");
    assert_eq!(stderr, "", "{what}");
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(!stdout.contains('\x1b'), "{what}: colour in a pipe");
    stdout
}

/// A directory of its own for a test.
pub struct Bench(tempfile::TempDir);

impl Bench {
    pub fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tramptool")).args(args).current_dir(self.0.path()).output().unwrap()
    }

    /// Must end with this code and nothing on stderr. Returns stdout.
    pub fn ends(&self, code: i32, args: &[&str]) -> String {
        ended(&self.run(args), code, &format!("{args:?}"))
    }

    /// The same of a command that a report printed, typed into a shell.
    pub fn shell(&self, code: i32, command: &str) -> String {
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_tramptool"));
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let out = Command::new("sh").args(["-c", command]).env("PATH", path).current_dir(self.0.path()).output();
        ended(&out.unwrap(), code, command)
    }

    pub fn ok(&self, args: &[&str]) -> String {
        self.ends(0, args)
    }

    /// Must end with code 2, one message that has all of `parts`, and no file more than before.
    pub fn refuses(&self, args: &[&str], parts: &[&str]) {
        let before = self.files();
        let out = self.run(args);
        let message = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {message}");
        assert!(out.stdout.is_empty(), "{args:?}: output on stdout");
        assert!(message.starts_with("tramptool: "), "{args:?}: {message}");
        assert_eq!(message.matches('\n').count(), 1, "{args:?}: {message}");
        assert!(message.ends_with('\n'), "{args:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{args:?}: no {part:?} in: {message}");
        }
        assert_eq!(self.files(), before, "{args:?}: files");
    }

    /// The option with which this gcc protects returns and indirect branches, if it has one.
    pub fn protection(&self, gcc: &str) -> Option<&'static str> {
        fs::write(self.path("try.c"), "int f(void) { return 0; }\n").unwrap();
        let takes = |flag: &&str| {
            let mut compile = Command::new(gcc);
            compile.args(["-c", "-o", "try.o", "try.c", flag]).current_dir(self.path("")).stderr(Stdio::null());
            compile.status().unwrap().success()
        };
        ["-fcf-protection=full", "-mbranch-protection=standard"].into_iter().find(takes)
    }

    /// Run a tool of the binutils; it must succeed and say nothing on stderr. Returns stdout.
    pub fn tool(&self, name: &str, args: &[&str]) -> String {
        let out = Command::new(name).args(args).current_dir(self.0.path()).output();
        let out = out.unwrap_or_else(|e| panic!("{name}: {e}: install the binutils for this architecture"));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{name} {args:?}: {stderr}");
        assert_eq!(stderr, "", "{name} {args:?}");
        let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(!stdout.contains("Warning") && !stdout.contains("(bad)"), "{name} {args:?}: {stdout}");
        stdout
    }
}
