//! Two revisions side by side: how long each generates and checks, in turns in one run, so that other work on the machine
//! slows both.
//!
//! What is compared is CPU time of whole processes, which a busy machine changes less than the time on the clock.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::took::{quartiles, took};

/// How often each of the two has its turn.
const ROUNDS: usize = 15;
/// A revision that takes more times as long as the other is slower.
const LIMIT: f64 = 1.05;
/// How many trampolines are generated.
const GENERATED: &str = "20000";

/// A revision, built.
struct Side {
    /// The generator's benchmark, with all optimisation.
    bench: PathBuf,
    /// The tool, as everybody builds it.
    tool: PathBuf,
}

/// One thing that both do.
struct Work {
    name: String,
    program: fn(&Side) -> &Path,
    args: Vec<String>,
}

/// How the two did.
#[derive(Serialize)]
struct Pair {
    name: String,
    /// CPU time of a process, the median in ms: of the other revision, and of what is here.
    theirs: f64,
    ours: f64,
    /// Ours over theirs, round by round: the median, and between which the middle half lies.
    ratio: f64,
    low: f64,
    high: f64,
}

/// Build both, measure and print. An error too, if what is here is slower.
pub fn run(revision: &str, json: bool) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("this package is in no workspace")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let place = target.join("against");
    // One after the other in one place, so that the engine is compiled once; each is unpacked right before it is built,
    // because cargo tells by the times of files whether what it has built last is of them.
    let source = place.join("source");
    unpack(root, revision, &source)?;
    let theirs = build(&source, &target, &place.join("theirs"))?;
    let here = here(root)?;
    unpack(root, &here, &source)?;
    let ours = build(&source, &target, &place.join("ours"))?;
    let pairs = all_work().iter().map(|work| compare(work, &theirs, &ours)).collect::<Result<Vec<_>, String>>()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&pairs).map_err(|e| e.to_string())?);
    } else {
        println!("CPU time of a process, ms; ratio: here over {revision}, of {ROUNDS} rounds");
        for p in &pairs {
            let Pair { name, theirs, ours, ratio, low, high } = p;
            println!("{name:<44} {theirs:>9.1} {ours:>9.1}   ratio {ratio:>6.3}   middle half {low:.3} to {high:.3}");
        }
    }
    let slower: Vec<&str> = pairs.iter().filter(|p| p.ratio > LIMIT).map(|p| p.name.as_str()).collect();
    if slower.is_empty() { Ok(()) } else { Err(format!("slower than {revision}: {}", slower.join(", "))) }
}

fn all_work() -> Vec<Work> {
    let mut all = Vec::new();
    for backend in arch::BACKENDS {
        let facts = backend.facts();
        let arch = facts.name;
        all.push(Work {
            name: format!("{arch} generate and link {GENERATED}"),
            program: |side| &side.bench,
            args: ["tailored-one", arch, GENERATED].map(str::to_owned).into(),
        });
        // Both must hold under it, and it must take long enough to be measured.
        let set = facts.options.first().map(|o| format!("{}={}", o.name, o.values[0]));
        let set = set.iter().flat_map(|set| ["--set", set]);
        let check = ["check", "ftrace_*", "return_to_handler", "--arch", arch].into_iter().chain(set);
        all.push(Work {
            name: format!("{arch} check ftrace_* and return_to_handler"),
            program: |side| &side.tool,
            args: check.map(str::to_owned).collect(),
        });
    }
    all
}

/// What is here as git knows it, with changes that are not committed.
fn here(root: &Path) -> Result<String, String> {
    let out =
        Command::new("git").current_dir(root).args(["stash", "create"]).output().map_err(|e| format!("git: {e}"))?;
    let changed = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    match (out.status.success(), changed.is_empty()) {
        (true, true) => Ok("HEAD".to_owned()),
        (true, false) => Ok(changed),
        (false, _) => Err(format!("git stash create: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

/// The files of a revision, with the time of now.
fn unpack(root: &Path, revision: &str, to: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    let mut git = Command::new("git");
    git.current_dir(root).args(["archive", "--format=tar", revision, "--"]).stdout(Stdio::piped());
    let mut git = git.spawn().map_err(|e| format!("git: {e}"))?;
    let files = git.stdout.take().ok_or("git: no output")?;
    let tar = Command::new("tar").args(["-x", "-m", "-C"]).arg(to).stdin(files).status();
    let git = git.wait().map_err(|e| format!("git: {e}"))?;
    if !git.success() {
        return Err(format!("git knows no revision '{revision}'; see `git log --oneline`"));
    }
    match tar {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("tar: {status}")),
        Err(e) => Err(format!("tar: {e}")),
    }
}

/// Build a source tree into the target directory, and keep its programs.
fn build(source: &Path, target: &Path, keep: &Path) -> Result<Side, String> {
    std::fs::create_dir_all(keep).map_err(|e| format!("{}: {e}", keep.display()))?;
    let program = |package: &str, more: &[&str], name: &str| {
        eprintln!("bench: building {package} in {}", source.display());
        let built = built(source, package, target, more)?;
        let kept = keep.join(name);
        std::fs::copy(&built, &kept).map_err(|e| format!("{}: {e}", built.display()))?;
        Ok::<PathBuf, String>(kept)
    };
    Ok(Side {
        bench: program("tramptool-bench", &["--release", "--no-default-features"], "bench")?,
        tool: program("tramptool-cli", &[], "tramptool")?,
    })
}

/// The program that cargo says it has built.
fn built(source: &Path, package: &str, target: &Path, more: &[&str]) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--quiet", "--message-format=json-render-diagnostics", "--package", package]);
    cargo
        .arg("--manifest-path")
        .arg(source.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(more)
        .stderr(Stdio::inherit());
    let out = cargo.output().map_err(|e| format!("cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("{package} of {} does not build", source.display()));
    }
    let messages = String::from_utf8_lossy(&out.stdout);
    let programs = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let program = programs.filter_map(|m| m["executable"].as_str().map(PathBuf::from)).next_back();
    program.ok_or_else(|| format!("{package} has no program"))
}

fn compare(work: &Work, theirs: &Side, ours: &Side) -> Result<Pair, String> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Who is second finds the caches as the first has left them.
        if round % 2 == 0 {
            left.push(cpu_ms(work, theirs)?);
            right.push(cpu_ms(work, ours)?);
        } else {
            right.push(cpu_ms(work, ours)?);
            left.push(cpu_ms(work, theirs)?);
        }
    }
    let ratios = left.iter().zip(&right).map(|(theirs, ours)| ours / theirs).collect();
    let [low, ratio, high] = quartiles(ratios);
    let [[_, theirs, _], [_, ours, _]] = [left, right].map(quartiles);
    Ok(Pair { name: work.name.clone(), theirs, ours, ratio, low, high })
}

/// What a run costs. One thread: what two of them wait for each other is no work.
fn cpu_ms(work: &Work, side: &Side) -> Result<f64, String> {
    Ok(took((work.program)(side), &work.args, 1)?.cpu)
}

#[cfg(test)]
mod tests {
    #[test]
    fn quartiles_of_few_and_many() {
        assert_eq!(super::quartiles(vec![7.0]), [7.0; 3]);
        assert_eq!(super::quartiles((0..15).rev().map(f64::from).collect()), [3.0, 7.0, 11.0]);
    }
}
