// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: those that must succeed, and those whose end is the question.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::verdict::Ended;
use crate::failure::Failure;
use crate::tools::read;

pub const CLANG: &str = "clang-19";
pub const LLVM_XRAY: &str = "llvm-xray-19";

/// What each program of a tool is in, as Debian 12 calls it.
pub const PACKAGES: [(&str, &str); 7] = [
    ("gcc", "gcc"),
    ("g++", "g++"),
    (CLANG, "clang-19 libclang-rt-19-dev"),
    ("clang++-19", "clang-19 libclang-rt-19-dev"),
    (LLVM_XRAY, "llvm-19"),
    ("uftrace", "uftrace"),
    ("python3", "python3-venv"),
];

/// How long a run may take, of those that take a second.
const LIMIT: Duration = Duration::from_secs(20);

/// What a program prints.
pub fn told(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map_or("what it is in", |(_, package)| package);
    let run = command.output();
    let run =
        run.map_err(|e| Failure::new(&program, e.to_string(), format!("on Debian: apt-get install {package}")))?;
    match run.status.success() {
        true => Ok(String::from_utf8_lossy(&run.stdout).into_owned()),
        false => Err(Failure::new(program, String::from_utf8_lossy(&run.stderr).trim(), "mend that, and try again")),
    }
}

/// Kill what runs of the programs in a directory: frida starts them in sessions of their own.
fn kill_all_in(dir: &Path) {
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let here = std::fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe.starts_with(dir));
        let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let (true, Some(pid)) = (here, pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Run it to its end, or for so long; what it wrote to stdout and to stderr. Whatever it has started is killed.
pub fn bounded(command: &mut Command, dir: &Path) -> Result<(Ended, String, String), Failure> {
    let program = PathBuf::from(command.get_program());
    let refused = |e: std::io::Error| Failure::at(&program, e, "see what it wants");
    let files = ["out", "err"].map(|name| dir.join(name));
    let [out, err] = files.each_ref().map(File::create);
    command.stdin(Stdio::null()).stdout(out.map_err(refused)?).stderr(err.map_err(refused)?).process_group(0);
    let mut child = command.current_dir(dir).spawn().map_err(refused)?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(refused)? {
            None if begun.elapsed() > LIMIT => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
            ended => break ended,
        }
    };
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Nothing is left of most.
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait().map_err(refused)?;
    kill_all_in(dir);
    let ended = match status {
        None => Ended::TimedOut,
        Some(status) => status.signal().map_or(Ended::Code(status.code().unwrap_or(0)), Ended::Signal),
    };
    let [out, err] = files.each_ref().map(|file| read(file));
    Ok((ended, out?, err?))
}
