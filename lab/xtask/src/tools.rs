// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that are run and files that are read and written, with errors that say what to do.

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::failure::Failure;

/// What Debian calls what compiling a kernel needs.
pub const PACKAGES: &str = "make flex bison bc libelf-dev libssl-dev gcc-x86-64-linux-gnu \
                        gcc-aarch64-linux-gnu gcc-riscv64-linux-gnu";

/// What a program wrote.
pub struct Said {
    /// To stdout.
    pub out: String,
    /// To stderr.
    pub err: String,
}

/// Run a program to its end.
pub fn call(command: &mut Command) -> Result<Said, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let install = format!("on Debian: apt-get install -y --no-install-recommends {PACKAGES}");
    let run = command.stdin(Stdio::null()).output().map_err(|e| Failure::new(&program, e.to_string(), install))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = Said { out: text(&run.stdout), err: text(&run.stderr) };
    if run.status.success() {
        return Ok(said);
    }
    // make tells of an error again and again, last where it is of no use.
    let mut lines = said.err.lines().filter(|line| !line.trim().is_empty());
    let line = lines.clone().find(|line| line.to_lowercase().contains("error")).or(lines.next_back());
    let what = format!("{}: {}", run.status, line.unwrap_or("it says nothing"));
    Err(Failure::new(program, what, "mend that, and try again"))
}

/// The tool of this repository: what `$TRAMPTOOL` names, or else it is compiled first. Alone it is compiled anew, with fewer features of
/// its libraries than beside the tests.
pub fn tramptool() -> Command {
    if let Some(built) = std::env::var_os("TRAMPTOOL") {
        return Command::new(built);
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--locked", "--package", "tramptool-cli", "--manifest-path"]);
    cargo.arg(root().join("Cargo.toml")).arg("--");
    cargo
}

/// The last part of a path.
pub fn name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| Failure::at(path, e, "restore it from git, or build the kernel again"))
}

/// All files below a directory.
pub fn below(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|e| Failure::at(dir, e, "give or build it again"))?;
    let mut files = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        // A link leads out of what was unpacked.
        if path.is_dir() && !path.is_symlink() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Write a file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|e| Failure::at(path, e, "make room, or make it writable"))
}

/// Remove a file, if there is one.
pub fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::at(path, e, "remove it")),
        _ => Ok(()),
    }
}

/// Have this done on each CPU.
///
/// # Errors
/// One of them fails.
pub fn on_each_cpu(work: impl Fn() -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    // A worker that panics ends this, too.
    std::thread::scope(|scope| {
        let begun: Vec<_> = (0..workers).map(|_| scope.spawn(&work)).collect();
        begun.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
    })
}

/// Copy a file; the copy is younger than everything, so that make keeps it.
pub fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let bytes = fs::read(from).map_err(|e| Failure::at(from, e, "see what make said"))?;
    write(to, &bytes)
}

/// Give a process, and what it starts, so many seconds of CPU and bytes of addresses each. One that has ended needs no bounds.
pub fn bounded(child: &Child, seconds: u64, addresses: u64) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (resource, most) in [(Resource::Cpu, seconds), (Resource::As, addresses), (Resource::Core, 0)] {
        let _ = prlimit(pid, resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}

/// Most KiB of memory that a process had so far; 0 if it has ended.
pub fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The root of the repository, two directories above this package.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}
