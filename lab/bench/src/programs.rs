//! Whole programs of others that are recorded: SQLite and Lua, whose C comes in crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::took::told;

/// A program whose every function is recorded.
pub struct Program {
    pub name: &'static str,
    /// The crate that brings its C, and where that is in the crate.
    package: &'static str,
    folder: &'static str,
    /// Its sources there; all that there are if none is named.
    sources: &'static [&'static str],
    workload: &'static str,
    flags: &'static [&'static str],
    /// Whether uftrace records all of its calls, which it does not where there is a longjmp.
    pub uftrace: bool,
}

pub const PROGRAMS: [Program; 2] = [
    Program {
        name: "sqlite",
        package: "libsqlite3-sys",
        folder: "sqlite3",
        sources: &["sqlite3.c"],
        workload: "sqlite.c",
        flags: &["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION"],
        uftrace: true,
    },
    Program {
        name: "lua",
        package: "lua-src",
        folder: "lua-5.4.8",
        sources: &[],
        workload: "lua.c",
        flags: &["-DLUA_USE_LINUX"],
        uftrace: false,
    },
];

/// With it clang counts each call (`live/calls.c`).
pub const HOOKS: &str = "-finstrument-functions-after-inlining";

impl Program {
    /// Where the crate's C is: cargo fetches it.
    fn sources(&self) -> Result<PathBuf, String> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("live/Cargo.toml");
        let mut cargo = Command::new("cargo");
        let (text, _) =
            told(cargo.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]).arg(manifest))?;
        let all: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let packages = all["packages"].as_array().into_iter().flatten();
        let mine = packages.into_iter().find(|p| p["name"] == self.package);
        let manifest = mine.and_then(|p| p["manifest_path"].as_str()).map(Path::new).and_then(Path::parent);
        Ok(manifest.ok_or_else(|| format!("no crate {}", self.package))?.join(self.folder))
    }

    /// Compile it with its workload, and with what counts calls if the flags ask for that.
    pub fn build(&self, compiler: &str, flags: &[&str], to: &Path) -> Result<(), String> {
        let folder = self.sources()?;
        let mut sources: Vec<PathBuf> = self.sources.iter().map(|name| folder.join(name)).collect();
        if sources.is_empty() {
            let all = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            sources = all.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "c")).collect();
            sources.sort();
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("live");
        sources.push(here.join(self.workload));
        sources.extend(flags.contains(&HOOKS).then(|| here.join("calls.c")));
        let mut command = Command::new(compiler);
        command.arg("-w").args(flags).args(self.flags).arg("-I").arg(&folder).args(&sources);
        told(command.args(["-lm", "-ldl", "-o"]).arg(to)).map(drop)
    }
}

/// The calls that a program has counted, by what it wrote to stderr.
pub fn entered(stderr: &str) -> Option<u64> {
    stderr.lines().find_map(|line| line.strip_prefix("entered ")?.parse().ok())
}

/// The calls in a recording, of which nothing may be lost.
pub fn calls_in(tool: &Path, recording: &Path) -> Result<u64, String> {
    let (text, _) = told(Command::new(tool).args(["trace", "report", "--format", "json"]).arg(recording))?;
    let all: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    if all["lost"].as_object().is_none_or(|lost| !lost.is_empty()) {
        return Err(format!("{}: records are lost: {}", recording.display(), all["lost"]));
    }
    all["calls"].as_u64().ok_or_else(|| format!("{}: the report has no number of calls", recording.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows, and turns of the script.
    const SIZE: &str = "1000";

    /// The program does what it does alone, and each call that the compiler's hooks count is recorded.
    fn each_call_is_recorded(program: &Program) {
        let dir = tempfile::tempdir().unwrap();
        let tool = std::env::current_exe().unwrap().parent().unwrap().with_file_name("tramptool");
        let recording = dir.path().join("recording");
        let [sites, plain] = ["sites", "plain"].map(|kind| dir.path().join(format!("{}-{kind}", program.name)));
        std::thread::scope(|threads| {
            let site = "-fpatchable-function-entry=5";
            threads.spawn(|| program.build("clang-14", &["-O1", site, HOOKS], &sites).unwrap());
            threads.spawn(|| program.build("clang-14", &["-O1", HOOKS], &plain).unwrap());
        });
        // The hooks are no functions that they count.
        let any = ["--any", "-N", "__cyg_*", "-N", "told"];
        for (built, options) in [(&sites, &[][..]), (&plain, &any)] {
            let alone = told(Command::new(built).arg(SIZE)).unwrap();
            let mut trace = Command::new(&tool);
            trace.args(["trace", "-q", "-o"]).arg(&recording).args(options).arg("--").arg(built).arg(SIZE);
            // Lua hashes by addresses: no run has as many calls as another.
            let (said, counted) = told(&mut trace).unwrap();
            assert_eq!((said, counted.lines().count()), (alone.0, alone.1.lines().count()), "{options:?}: {counted}");
            let counted = entered(&counted);
            assert!(counted.is_some_and(|calls| calls > 10_000), "{counted:?}");
            assert_eq!(Some(calls_in(&tool, &recording).unwrap()), counted, "{options:?}");
        }
    }

    #[test]
    fn each_call_of_a_rust_program_is_recorded_where_panics_pass() {
        let dir = tempfile::tempdir().unwrap();
        let tool = std::env::current_exe().unwrap().parent().unwrap().with_file_name("tramptool");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("live/panics.rs");
        let [program, recording] = ["panics", "recording"].map(|name| dir.path().join(name));
        told(Command::new("rustc").args(["-O", "--edition=2024"]).arg(source).arg("-o").arg(&program)).unwrap();
        let run = |command: &mut Command| {
            let run = command.output().unwrap();
            (run.status.code(), String::from_utf8(run.stdout).unwrap())
        };
        let alone = run(&mut Command::new(&program));
        let mut trace = Command::new(&tool);
        trace.args(["trace", "-q", "--any", "-o"]).arg(&recording).arg("--").arg(&program);
        assert_eq!((run(&mut trace), alone.0), (alone.clone(), Some(3)));
        let (text, _) = told(Command::new(&tool).args(["trace", "report", "--format=json"]).arg(&recording)).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["lost"], serde_json::json!({}));
        let row = |name: &str| report["rows"].as_array().unwrap().iter().find(|row| row["function"] == name).cloned();
        for line in alone.1.lines().skip(1) {
            let (name, calls) = line.split_once(' ').unwrap();
            let row = row(name).unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(row["calls"].to_string(), calls, "{name}");
            // Each thread's panics have left as many calls, of these two.
            assert_eq!(row["left"].as_u64().unwrap() > 0, name != "own_leaf", "{row}");
        }
    }

    #[test]
    fn each_call_of_sqlite_is_recorded() {
        each_call_is_recorded(&PROGRAMS[0]);
    }

    #[test]
    fn each_call_of_lua_is_recorded() {
        each_call_is_recorded(&PROGRAMS[1]);
    }
}
