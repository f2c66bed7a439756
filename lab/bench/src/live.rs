//! What recording whole programs costs: the program alone, recorded by `tramptool trace`, and by uftrace, in turns. Every
//! call is recorded, by both and by the count of the compiler's own hooks, or there are no figures. And what it takes to attach.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::attach;
use crate::programs::{HOOKS, PROGRAMS, Program, calls_in, entered};
use crate::table::{Demand, Row, print};
use crate::took::{ROUNDS, told, took};

/// Ways to record a program, as options of `tramptool trace`, and the most that each may cost as a part of uftrace's cost.
const WAYS: [(&str, &[&str], Option<f64>); 5] = [
    ("saved", &[], Some(0.25)),
    ("saved, stamp8", &["--clock", "stamp8"], None),
    ("saved, without a clock", &["--clock", "none"], None),
    ("flight", &["--flight"], Some(0.15)),
    ("flight, without a clock", &["--flight", "--clock", "none"], Some(0.05)),
];

/// Build, compare the counts, measure, print.
pub fn run(json: bool) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("figures are of x86_64 programs; this machine runs none".into());
    }
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let tool = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("tramptool");
    let twice = clock_twice(dir.path())?;
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        let bench = Bench { dir: dir.path(), tool: &tool, program };
        bench.build()?;
        let calls = bench.counts()?;
        eprintln!("bench: {}: {calls} calls, by our recording and by the compiler's hooks", program.name);
        rows.extend(bench.measure(calls, twice)?);
    }
    rows.extend(attach::run(dir.path(), &tool)?);
    print(&rows, json)
}

/// What a call costs that reads the clock twice, in ns, without the call itself.
fn clock_twice(dir: &Path) -> Result<f64, String> {
    const CALLS: &str = "20000000";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("live/clock.c");
    let program = dir.join("clock");
    told(Command::new("gcc").arg("-O2").arg(source).arg("-o").arg(&program))?;
    let least = |args: &[&str]| -> Result<f64, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let all = (0..ROUNDS).map(|_| Ok(took(&program, &args, 1)?.cpu)).collect::<Result<Vec<_>, String>>()?;
        Ok(all.into_iter().fold(f64::INFINITY, f64::min))
    };
    Ok((least(&[CALLS])? - least(&[CALLS, "none"])?) / 20.0)
}

struct Bench<'a> {
    dir: &'a Path,
    tool: &'a Path,
    program: &'a Program,
}

impl Bench<'_> {
    fn path(&self, kind: &str) -> PathBuf {
        self.dir.join(format!("{}-{kind}", self.program.name))
    }

    /// The program with sites, without, and with the compiler's hooks too.
    fn build(&self) -> Result<(), String> {
        let site = "-fpatchable-function-entry=5";
        self.program.build("gcc", &["-O2"], &self.path("plain"))?;
        self.program.build("gcc", &["-O2", site], &self.path("sites"))?;
        self.program.build("clang-14", &["-O2", site, HOOKS], &self.path("hooks"))
    }

    fn trace(&self, kind: &str, options: &[&str]) -> Vec<String> {
        let file = self.path("recording").display().to_string();
        let (program, options) = (self.path(kind).display().to_string(), options.iter().map(|o| (*o).to_owned()));
        let fixed = ["trace".to_owned(), "-q".to_owned(), "-o".to_owned(), file];
        fixed.into_iter().chain(options).chain(["--".to_owned(), program]).collect()
    }

    /// How many calls a run has: as many are recorded as the compiler's hooks count.
    fn counts(&self) -> Result<u64, String> {
        let (_, text) = told(Command::new(self.tool).args(self.trace("hooks", &[])))?;
        let counted = entered(&text);
        let recorded = calls_in(self.tool, &self.path("recording"))?;
        if counted != Some(recorded) {
            return Err(format!("{}: {recorded} calls recorded of {counted:?}", self.program.name));
        }
        told(Command::new(self.tool).args(self.trace("sites", &[])))?;
        let recorded = calls_in(self.tool, &self.path("recording"))?;
        let theirs = if self.program.uftrace { self.uftrace_calls()? } else { recorded };
        match theirs == recorded {
            true => Ok(recorded),
            false => Err(format!("{}: {recorded} calls recorded, {theirs} by uftrace", self.program.name)),
        }
    }

    fn uftrace(&self) -> Vec<String> {
        let words = ["record", "--no-libcall", "--no-event", "--max-stack", "65535", "-P", ".", "-d"];
        let paths = [self.path("uftrace"), self.path("sites")].map(|path| path.display().to_string());
        words.into_iter().map(str::to_owned).chain(paths).collect()
    }

    fn uftrace_calls(&self) -> Result<u64, String> {
        told(Command::new("uftrace").args(self.uftrace()))?;
        let mut report = Command::new("uftrace");
        let (text, _) = told(report.args(["report", "--no-pager", "-f", "call", "-d"]).arg(self.path("uftrace")))?;
        Ok(text.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok()).sum())
    }

    fn measure(&self, calls: u64, twice: f64) -> Result<Vec<Row>, String> {
        let (plain, sites) = (self.path("plain"), self.path("sites"));
        let mut runs: Vec<(PathBuf, Vec<String>)> = vec![(plain, vec![]), (sites, vec![])];
        runs.extend(WAYS.iter().map(|(_, options, _)| (self.tool.to_owned(), self.trace("sites", options))));
        runs.push(("uftrace".into(), self.uftrace()));
        let mut least = vec![f64::INFINITY; runs.len()];
        for _ in 0..ROUNDS {
            for (least, (program, args)) in least.iter_mut().zip(&runs) {
                *least = least.min(took(program, args, 2)?.cpu);
            }
        }
        let [alone, sites, ours @ .., theirs] = &*least else { return Err("no runs".to_owned()) };
        let name = self.program.name;
        let ns = |ms: f64| (ms - alone) * 1e6 / calls as f64;
        let mut rows = vec![
            Row::new(format!("{name} with sites that are off, ms"), *sites, "without sites, ms", *alone)
                .demanded(Demand::AtLeast(1.0 / 1.05)),
        ];
        for ((way, _, part), took) in WAYS.iter().zip(ours) {
            let row =
                Row::new(format!("{name} {way}, ns above alone a call"), ns(*took), "uftrace, ns a call", ns(*theirs));
            rows.push(match part {
                Some(part) => row.demanded(Demand::AtLeast(1.0 / part)),
                None => row,
            });
        }
        for (way, took, most) in [("saved", ours.first(), 1.6), ("flight", ours.get(3), 1.1)] {
            let row = Row::new(
                format!("{name} {way}, ns a call"),
                ns(*took.unwrap_or(alone)),
                "two readings of the clock, ns",
                twice,
            );
            rows.push(row.demanded(Demand::AtLeast(1.0 / most)));
        }
        Ok(rows)
    }
}
