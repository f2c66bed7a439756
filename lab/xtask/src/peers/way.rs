// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a program is run under each tool, and where the calls are that the tool has.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::lab::Lab;
use super::programs::{Build, KEPT, MCOUNT, PLAIN, Program, SITES, SLEDS, sources};
use super::run::{LLVM_XRAY, bounded, told};
use super::verdict::{Alone, Calls, Ended, Verdict};
use crate::failure::Failure;
use crate::tools::{below, remove, write};

/// A tool, and programs as it wants them.
pub struct Way {
    pub name: &'static str,
    pub build: &'static Build,
    pub how: How,
    /// What the tool's documentation has for programs that it does not go with otherwise, in words, and programs for that.
    pub second: Option<(&'static str, &'static Build)>,
}

/// A program under a tool.
pub struct Trial<'a> {
    pub lab: &'a Lab,
    pub program: &'a Program,
    /// What the program does alone.
    pub alone: &'a Alone,
    /// In the tool's second way.
    pub second: bool,
    /// Hooks come and go meanwhile.
    pub hammered: bool,
}

/// The tools, with options.
pub enum How {
    Trace(&'static [&'static str]),
    Live,
    Uftrace(&'static [&'static str]),
    XRay,
    Retour,
    Frida,
}

const ENTRIES: &str = "entries alone";

/// What interceptor.py says if frida has taken the program's status: so the run says nothing.
const UNSEEN: &str = "peers: unseen";
const MOST_TRIES: usize = 20;

const LIVE: Way =
    Way { name: "`tramptool-live`", build: &SITES, how: How::Live, second: Some(("with prototypes", &SITES)) };
const LIVE_PLAIN: Way = Way {
    name: "`tramptool-live`, no sites",
    build: &PLAIN,
    how: How::Live,
    second: Some(("with prototypes and -fno-ipa-ra", &KEPT)),
};
const RETOUR: Way = Way { name: "retour", build: &PLAIN, how: How::Retour, second: None };
const FRIDA: Way = Way { name: "frida", build: &PLAIN, how: How::Frida, second: Some((ENTRIES, &PLAIN)) };

const fn trace(name: &'static str, build: &'static Build, options: &'static [&'static str]) -> Way {
    Way { name, build, how: How::Trace(options), second: Some((ENTRIES, build)) }
}

const fn uftrace(name: &'static str, build: &'static Build, options: &'static [&'static str]) -> Way {
    Way { name, build, how: How::Uftrace(options), second: Some((ENTRIES, build)) }
}

/// Those that record or count calls.
pub const RECORDED: [Way; 10] = [
    trace("`tramptool trace`", &SITES, &[]),
    trace("`tramptool trace --any`", &PLAIN, &["--any"]),
    LIVE,
    LIVE_PLAIN,
    uftrace("uftrace, -pg", &MCOUNT, &[]),
    uftrace("`uftrace -P .`", &SITES, &["-P", "."]),
    uftrace("`uftrace -P .`, no sites", &PLAIN, &["-P", "."]),
    Way { name: "XRay", build: &SLEDS, how: How::XRay, second: None },
    RETOUR,
    FRIDA,
];

/// Those whose hooks can come and go.
pub const HAMMERED: [Way; 4] = [LIVE, LIVE_PLAIN, RETOUR, FRIDA];

impl Way {
    /// What comes of one run, of which it is known how it ended.
    pub fn verdict(&self, trial: &Trial) -> Result<Verdict, Failure> {
        for _ in 0..MOST_TRIES {
            if let Some(verdict) = self.once(trial)? {
                return Ok(verdict);
            }
        }
        Err(Failure::new(self.name, "does not say how the program has ended", "try again"))
    }

    fn once(&self, trial: &Trial) -> Result<Option<Verdict>, Failure> {
        let &Trial { lab, program, alone, second, hammered } = trial;
        let build = self.second.filter(|_| second).map_or(self.build, |(_, build)| build);
        let file = lab.program(build, program)?;
        let to = lab.path("recording");
        match to.is_dir() {
            true => fs::remove_dir_all(&to).map_err(|e| Failure::at(&to, e, "remove it"))?,
            false => remove(&to)?,
        }
        let counts = lab.path("counts");
        write(&counts, &[0; 4096])?;
        let names: Vec<&str> = alone.text.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
        let mut command = self.command(lab, &file, (&to, &counts), &names.join(":"), second, hammered)?;
        let (ended, text, err) = bounded(command.arg(&file), &lab.path(""))?;
        if err.contains(UNSEEN) {
            return Ok(None);
        }
        // Of uftrace, which ends by itself.
        let killed =
            err.split("child terminated by signal: ").nth(1).and_then(|rest| rest.split(':').next()?.parse().ok());
        let ended = killed.map_or(ended, Ended::Signal);
        let calls = match ended {
            Ended::Code(0) if !hammered && text == alone.text => Some(self.calls(lab, &file, &to, &names)?),
            _ => None,
        };
        let verdict = Verdict::of(alone, ended, &text, calls.as_ref(), &self.refused(lab, &file, &err)?);
        let idle = hammered && self.calls(lab, &file, &to, &names)?.values().all(|calls| *calls == 0);
        Ok(Some(if idle { verdict.max(Verdict::Idle) } else { verdict }))
    }

    /// The command; the program's own argument follows.
    fn command(
        &self,
        lab: &Lab,
        file: &Path,
        (to, counts): (&Path, &Path),
        names: &str,
        second: bool,
        hammered: bool,
    ) -> Result<Command, Failure> {
        let preloaded = |library: &Path| {
            let mut command = Command::new(file);
            command.env("LD_PRELOAD", library).env("PEERS_COUNTS", counts).env("PEERS_FUNCTIONS", names);
            command.envs(second.then_some(("PEERS_SECOND", "1"))).envs(hammered.then_some(("PEERS_HAMMERED", "1")));
            command
        };
        Ok(match &self.how {
            How::Trace(options) => {
                let mut command = Command::new(&lab.tramptool);
                command.args(["trace", "-q", "-L", "dlclose*"]).args(*options);
                command.args(second.then_some("--events=entry")).arg("-o").arg(to).arg("--").arg(file);
                command
            }
            How::Uftrace(options) => {
                let mut command = Command::new("uftrace");
                // The most that it takes.
                command.args(["record", "--no-event", "--max-stack", "65535"]).args(*options);
                command.args(second.then_some("--estimate-return")).arg("-d").arg(to).arg(file);
                command
            }
            How::XRay => {
                let mut command = Command::new(file);
                fs::create_dir(to).map_err(|e| Failure::at(to, e, "set TMPDIR"))?;
                let options = "patch_premain=true xray_mode=xray-basic verbosity=0 xray_logfile_base=";
                command.env("XRAY_OPTIONS", format!("{options}{}/log.", to.display()));
                // Without these it leaves out calls that take less than 5 us, and those below 64 others.
                command.env("XRAY_BASIC_OPTIONS", "func_duration_threshold_us=0 max_stack_depth=1000000");
                command
            }
            How::Live => preloaded(&lab.live),
            How::Retour => preloaded(&lab.retour),
            How::Frida => {
                let mut command = Command::new(&lab.python);
                command.arg(sources().join("interceptor.py")).arg(counts).arg(names);
                command.args([u8::from(second).to_string(), u8::from(hammered).to_string()]).arg(file);
                command
            }
        })
    }

    /// The calls that the tool has.
    fn calls(&self, lab: &Lab, file: &Path, to: &Path, names: &[&str]) -> Result<Calls, Failure> {
        match self.how {
            How::Trace(_) => {
                let text = told(Command::new(&lab.tramptool).args(["trace", "report", "--format", "json"]).arg(to))?;
                let report: serde_json::Value =
                    serde_json::from_str(&text).map_err(|e| Failure::at(to, e, "read it"))?;
                let row =
                    |row: &serde_json::Value| Some((row["function"].as_str()?.to_owned(), row["calls"].as_u64()?));
                Ok(report["rows"].as_array().into_iter().flatten().filter_map(row).collect())
            }
            How::Uftrace(_) => {
                let mut report = Command::new("uftrace");
                let text = told(report.args(["report", "--no-pager", "-f", "call", "-s", "call", "-d"]).arg(to))?;
                let row = |line: &str| {
                    let (calls, name) = line.trim().split_once(' ')?;
                    Some((name.trim().to_owned(), calls.parse().ok()?))
                };
                Ok(text.lines().filter_map(row).collect())
            }
            How::XRay => {
                let mut calls = Calls::new();
                for log in below(to)? {
                    xray(file, &log, &mut calls)?;
                }
                Ok(calls)
            }
            How::Live | How::Retour | How::Frida => {
                let counts = lab.path("counts");
                let bytes = fs::read(&counts).map_err(|e| Failure::at(&counts, e, "set TMPDIR"))?;
                let all = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
                Ok(names.iter().map(|name| (*name).to_owned()).zip(all).collect())
            }
        }
    }

    /// The functions that the tool says it leaves out, and why.
    fn refused(&self, lab: &Lab, file: &Path, err: &str) -> Result<BTreeMap<String, String>, Failure> {
        let listed = match self.how {
            How::Trace(options) => {
                let text = told(Command::new(&lab.tramptool).args(["trace", "list"]).args(options).arg(file))?;
                let row = |line: &str| Some(line.split_once("none  ")?.1.trim_start().split_once("  ")?.1.to_owned());
                text.lines().filter_map(row).collect()
            }
            _ => err
                .lines()
                .filter_map(|line| line.strip_prefix("peers: refused ").map(str::to_owned))
                .collect::<Vec<_>>(),
        };
        let split = |line: &String| {
            let (name, why) = line.split_once(": ")?;
            // Of what more there is to say, the page has no use.
            let why = why.trim_start_matches(&format!("{name}: ")).split([';', '(']).next()?;
            Some((name.to_owned(), why.trim().to_owned()))
        };
        Ok(listed.iter().filter_map(split).collect())
    }
}

/// Add the entries of a log of XRay.
fn xray(file: &Path, log: &Path, calls: &mut Calls) -> Result<(), Failure> {
    let mut convert = Command::new(LLVM_XRAY);
    convert
        .args(["convert", "-symbolize", "-output-format=yaml"])
        .arg(format!("-instr_map={}", file.display()))
        .arg(log);
    let mut convert =
        convert.stdout(Stdio::piped()).spawn().map_err(|e| Failure::new(LLVM_XRAY, e.to_string(), "install it"))?;
    let lines = convert.stdout.take().into_iter().flat_map(|out| BufReader::new(out).split(b'\n'));
    for line in lines {
        let line = line.map_err(|e| Failure::at(log, e, "read it"))?;
        let line = String::from_utf8_lossy(&line);
        let name = line.split("function: ").nth(1).and_then(|rest| rest.split(',').next());
        if let Some(name) = name.filter(|_| line.contains("kind: function-enter,")) {
            *calls.entry(name.trim_matches('\'').to_owned()).or_default() += 1;
        }
    }
    let status = convert.wait().map_err(|e| Failure::at(log, e, "read it"))?;
    if status.success() { Ok(()) } else { Err(Failure::at(log, format!("{LLVM_XRAY}: {status}"), "read it")) }
}
