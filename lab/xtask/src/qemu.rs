// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels under QEMU: booted with our program, listened to, and stopped.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::failure::Failure;
use crate::tools::{PACKAGES, call, root};

/// What our program prints when the kernel has come that far and its own checks are good.
const WELL: &str = "init: all is well";

/// How a line of `kernel/findings.c` begins.
pub const FINDING: &str = "finding: ";

/// How lines of `kernel/running.c` begin.
const TOLD: [&str; 7] = ["memory: ", "traced: ", "kprobe: ", "link: ", "symbol: ", "release: ", "running: "];

/// What runs in a kernel, and how long that is waited for.
pub struct Trial<'t> {
    /// What the kernel unpacks and runs.
    pub initramfs: &'t Path,
    /// A kernel that says nothing for so long never will.
    pub silence: Duration,
    /// Nor will one end that has not ended by then.
    pub limit: Duration,
}

impl Trial<'_> {
    /// A trial of a kernel of which it is not known how long it may be silent.
    pub fn new(initramfs: &Path) -> Trial<'_> {
        Trial { initramfs, silence: Duration::from_secs(120), limit: Duration::from_secs(480) }
    }
}

/// A kernel that says so much repeats itself.
const MOST: u64 = 4 << 20;

/// A machine.
#[derive(Debug, Deserialize)]
pub struct Machine {
    /// QEMU, with what makes it this machine.
    qemu: Vec<String>,
    /// The kernel's options about its console.
    console: String,
}

/// A boot that has ended, one way or another.
pub struct Boot {
    /// How, in words.
    pub end: String,
    /// What the tests said, without what differs from run to run.
    pub tests: Vec<String>,
    /// The last lines of the log.
    pub last: Vec<String>,
    /// Sites that the kernel says that it has.
    pub sites: Option<String>,
    /// What `kernel/running.c` told.
    pub told: Vec<String>,
    pub took: Duration,
    /// How long it said nothing, at most.
    pub silent: Duration,
}

impl Boot {
    /// Did our program find nothing wrong?
    pub fn well(&self) -> bool {
        self.tests.iter().any(|line| line == WELL)
    }

    /// An error if it did, in the kernel that is called so.
    pub fn must_be_well(&self, kernel: &str) -> Result<(), Failure> {
        if self.well() {
            return Ok(());
        }
        let log = self.last.join("\n    ");
        Err(Failure::new(kernel, self.end.clone(), format!("its log ends:\n    {log}")))
    }

    /// How many startup tests passed.
    pub fn passed(&self) -> usize {
        self.tests.iter().filter(|line| line.ends_with("PASSED")).count()
    }
}

impl Machine {
    /// Boot an image.
    pub fn boot(&self, image: &Path, trial: &Trial) -> Result<Boot, Failure> {
        let log = tempfile::NamedTempFile::new()
            .map_err(|e| Failure::new("temporary file", e.to_string(), "set TMPDIR to another directory"))?;
        let to = |file: std::io::Result<File>| {
            file.map_err(|e| Failure::at(log.path(), e, "set TMPDIR to another directory"))
        };
        let (program, machine) = self.qemu.split_first().ok_or_else(|| Failure::new("qemu", "is empty", "name one"))?;
        let start = Instant::now();
        let mut qemu = Command::new(program)
            .args(machine)
            .args(["-m", "512", "-smp", "1", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-kernel"])
            .arg(image)
            .arg("-initrd")
            .arg(trial.initramfs)
            .args(["-append", &format!("{} panic=-1 oops=panic", self.console)])
            .stdin(Stdio::null())
            .stdout(to(log.reopen())?)
            .stderr(to(log.reopen())?)
            .spawn()
            .map_err(|e| Failure::new(program, e.to_string(), remedy()))?;
        let (mut size, mut heard, mut silent) = (0, start, Duration::ZERO);
        let end = loop {
            let ended = qemu.try_wait().map_err(|e| Failure::new(program, e.to_string(), remedy()))?;
            let now = log.as_file().metadata().map_or(0, |m| m.len());
            if now != size {
                silent = silent.max(heard.elapsed());
                (size, heard) = (now, Instant::now());
            }
            let stop = match () {
                () if ended.is_some() => break "by itself",
                () if heard.elapsed() > trial.silence => "silence",
                () if start.elapsed() > trial.limit => "no end",
                () if size > MOST => "endless messages",
                () => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            // It may have ended in this moment.
            let _ = qemu.kill();
            let _ = qemu.wait();
            break stop;
        };
        let bytes = fs::read(log.path()).map_err(|e| Failure::at(log.path(), e, "set TMPDIR to another directory"))?;
        Ok(Boot { silent, took: start.elapsed(), ..heard_in(&String::from_utf8_lossy(&bytes), end) })
    }

    /// What QEMU calls itself.
    pub fn version(&self) -> Result<String, Failure> {
        let program = self.qemu.first().map_or("", String::as_str);
        let run = Command::new(program).arg("--version").output();
        let run = run.map_err(|e| Failure::new(program, e.to_string(), remedy()))?;
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let words: Vec<&str> = text.split_whitespace().take(4).collect();
        Ok(words.join(" "))
    }
}

fn remedy() -> String {
    format!("apt-get install -y --no-install-recommends qemu-system-misc qemu-system-arm qemu-system-x86 {PACKAGES}")
}

/// What a log says.
fn heard_in(log: &str, end: &str) -> Boot {
    let mut tests = Vec::new();
    let mut test = "";
    // What begins so is the comment of a test on itself.
    for line in log.lines().map(without_time).filter(|line| !line.starts_with("# ")) {
        test = tested(line).unwrap_or(test);
        // The verdict may come on a line of its own, after what others said, or with numbers that vary.
        if line.ends_with("PASSED") || line.ends_with(": OK") || line == "OK" {
            tests.push(format!("{test}: {}", line.rsplit(' ').next().unwrap_or(line)));
        } else if line == WELL
            // A test runner begins.
            || line == "TAP version 13"
            || ["FAILED", "NG: ", "not ok "].iter().any(|part| line.contains(part))
            || ["ok ", "    ok ", "WARNING: ", "BUG: ", "init: enabled: ", FINDING].iter().any(|start| line.starts_with(start))
        {
            tests.push(line.to_owned());
        }
    }
    let panic = log.lines().map(without_time).find(|l| l.starts_with("Kernel panic"));
    let last: Vec<&str> = log.lines().collect();
    let from = last.len().saturating_sub(60);
    let end = match panic {
        Some(panic) => panic.to_owned(),
        None if tests.iter().any(|l| l == WELL) => "switched off".to_owned(),
        None => end.to_owned(),
    };
    let allocating = log.lines().find_map(|l| l.split_once("ftrace: allocating ")?.1.split_once(' '));
    Boot {
        end,
        tests,
        last: last.get(from..).unwrap_or_default().iter().map(|l| (*l).to_owned()).collect(),
        sites: allocating.map(|(n, _)| n.to_owned()),
        told: log.lines().filter(|line| TOLD.iter().any(|start| line.starts_with(start))).map(str::to_owned).collect(),
        took: Duration::ZERO,
        silent: Duration::ZERO,
    }
}

/// The test that a line is about: all before the colon.
fn tested(line: &str) -> Option<&str> {
    let about = line.find("Testing ")?;
    line.get(..about + line.get(about..)?.find(':')?)
}

/// A line of the log without its time.
fn without_time(line: &str) -> &str {
    line.trim_end().split_once("] ").filter(|(time, _)| time.starts_with('[')).map_or(line.trim_end(), |(_, rest)| rest)
}

/// Write an initramfs with our program and these files, by their paths.
pub fn initramfs(cross: &str, files: &[(String, Vec<u8>)], to: &Path) -> Result<(), Failure> {
    let program = program(cross, &root().join("lab/xtask/kernel/init.c"))?;
    let init = [("init".to_owned(), program)];
    fs::write(to, archive(init.iter().chain(files))).map_err(|e| Failure::at(to, e, "make room, or make it writable"))
}

/// Compile a program that needs nothing beside it.
pub fn program(cross: &str, source: &Path) -> Result<Vec<u8>, Failure> {
    let out = tempfile::NamedTempFile::new()
        .map_err(|e| Failure::new("temporary file", e.to_string(), "set TMPDIR to another directory"))?
        .into_temp_path();
    call(Command::new(format!("{cross}gcc")).args(["-O2", "-static", "-o"]).arg(&out).arg(source))?;
    fs::read(&out).map_err(|e| Failure::at(&out, e, "see what the compiler said"))
}

/// An archive of programs (kernel Documentation/driver-api/early-userspace/buffer-format.rst).
pub fn archive<'f>(files: impl Iterator<Item = &'f (String, Vec<u8>)>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut entry = |name: &str, mode: usize, data: &[u8]| {
        let fields = [1, mode, 0, 0, 1, 0, data.len(), 0, 0, 0, 0, name.len() + 1, 0];
        out.extend_from_slice(b"070701");
        fields.iter().for_each(|field| out.extend_from_slice(format!("{field:08x}").as_bytes()));
        for part in [&[name.as_bytes(), b"\0"].concat()[..], data] {
            out.extend_from_slice(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
    };
    let mut made = BTreeSet::new();
    for (name, data) in files {
        // A directory comes before what is in it.
        for dir in name.match_indices('/').filter_map(|(at, _)| name.get(..at)) {
            if made.insert(dir) {
                entry(dir, 0o040_755, &[]);
            }
        }
        entry(name, 0o100_755, data);
    }
    entry("TRAILER!!!", 0, &[]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_directories_before_what_is_in_them() {
        let files =
            ["init", "bin/sh", "lib/modules/x", "lib/modules/y"].map(|name| (name.to_owned(), b"text".to_vec()));
        let archive = archive(files.iter());
        let text = String::from_utf8_lossy(&archive).into_owned();
        let entries: Vec<(&str, &str)> = text
            .split("070701")
            .skip(1)
            .filter_map(|e| Some((e.get(8..16)?, e.get(104..)?.split('\0').next()?)))
            .collect();
        let (dir, file) = ("000041ed", "000081ed");
        let wanted = [
            (file, "init"),
            (dir, "bin"),
            (file, "bin/sh"),
            (dir, "lib"),
            (dir, "lib/modules"),
            (file, "lib/modules/x"),
            (file, "lib/modules/y"),
            ("00000000", "TRAILER!!!"),
        ];
        assert_eq!(entries, wanted);
    }

    /// As kernels say it: with the time, over two lines, with numbers that vary.
    const LOG: &str = "[    0.000000] ftrace: allocating 10997 entries in 43 pages\n\
                       [    0.095900] Testing tracer function: PASSED\n\
                       [    0.964309] Testing dynamic ftrace ops #1: \n\
                       [    0.970000] something else\n\
                       [    1.378498] (3 3 5 0 79340) PASSED\n\
                       [    1.400000] trace_kprobe: Testing kprobe tracing: \n\
                       [    1.410000] input: a keyboard\n\
                       [    1.420000] OK\n\
                       [    1.500000]     ok 1 test_kprobe\n\
                       init: all is well\n";

    #[test]
    fn what_varies_is_not_compared() {
        let boot = heard_in(LOG, "by itself");
        let wanted = [
            "Testing tracer function: PASSED",
            "Testing dynamic ftrace ops #1: PASSED",
            "trace_kprobe: Testing kprobe tracing: OK",
            "    ok 1 test_kprobe",
            "init: all is well",
        ];
        assert_eq!((boot.tests.as_slice(), boot.passed(), boot.well()), (&wanted.map(String::from)[..], 2, true));
        assert_eq!((boot.sites.as_deref(), boot.end.as_str()), (Some("10997"), "switched off"));
        let later = LOG.replace("79340", "12").replace("0.095900", "7.1");
        assert_eq!(boot.tests, heard_in(&later, "").tests);
        let together = LOG.replace(": \n[    0.970000] something else\n[    1.378498] ", ": ");
        assert!(together != LOG && boot.tests == heard_in(&together, "").tests);
        let talkative = LOG.replace("init: all", "# not ok 5 with a FAILED condition\ninit: all");
        assert!(talkative != LOG && boot.tests == heard_in(&talkative, "").tests);
        let worse = heard_in(&LOG.replace("function: PASSED", "function: FAILED!"), "");
        assert!(boot.tests != worse.tests);
        let hung = heard_in(LOG.split("    ok 1").next().unwrap_or_default(), "silence");
        assert_eq!((hung.well(), hung.end.as_str(), hung.last.len()), (false, "silence", 9));
        let dead = heard_in("[    0.1] Kernel panic - not syncing: Oops\n", "by itself");
        assert_eq!(dead.end, "Kernel panic - not syncing: Oops");
    }
}
