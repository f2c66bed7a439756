//! Faults in the core, one at a time: bugs that kernels had first, then whatever else can be got wrong. The oracle must notice
//! each. A mutant is compiled with the oracle, without cargo, and judged by `driver.rs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What it is, the file, what stands there, and what a mutant has instead.
type Mutant = (&'static str, &'static str, &'static str, &'static str);

include!("mutants/list.rs");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn compile(dir: &Path, kind: &str, name: &str, source: &Path, externs: &[(&str, &str)]) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "-Copt-level=1", "--cap-lints=allow", "--crate-type", kind, "--crate-name", name]);
    command.arg("--out-dir").arg(dir).arg("-L").arg(dir).arg(source);
    for (name, file) in externs {
        command.arg("--extern").arg(format!("{name}={}", dir.join(format!("lib{file}.rlib")).display()));
    }
    command.stdin(Stdio::null()).output().unwrap().status.success()
}

/// Does the oracle notice? None: the mutant is no program.
fn killed(dir: &Path, mutant: Option<&Mutant>) -> Option<bool> {
    let source = dir.join("src");
    copy(&root().join("runtime/src"), &source);
    if let Some((name, file, from, to)) = mutant {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{name}: {file} has it so often: {from}");
        std::fs::write(source.join(file), text.replace(from, to)).unwrap();
    }
    let built = compile(dir, "rlib", "tramptool_runtime", &source.join("lib.rs"), &[])
        && compile(
            dir,
            "rlib",
            "tramptool_compose",
            &root().join("compose/src/lib.rs"),
            &[("runtime", "tramptool_runtime")],
        )
        && compile(
            dir,
            "bin",
            "driver",
            &root().join("compose/tests/mutants/driver.rs"),
            &[("tramptool_compose", "tramptool_compose"), ("runtime", "tramptool_runtime")],
        );
    let run = built.then(|| Command::new(dir.join("driver")).output().unwrap())?;
    Some(!run.status.success())
}

fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn judge(name: &str, mutants: &[Mutant]) {
    let dir = directory(name);
    assert_eq!(killed(&dir, None), Some(false), "the core itself fails");
    let wrong: Vec<String> = mutants
        .iter()
        .filter_map(|mutant| match killed(&dir, Some(mutant)) {
            Some(true) => None,
            Some(false) => Some(format!("survives: {}", mutant.0)),
            None => Some(format!("does not compile: {}", mutant.0)),
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_are_enough() {
    assert!(MUTANTS.len() >= 40, "{}", MUTANTS.len());
}

#[test]
#[ignore = "compiles the core once for each of its mutants: five minutes on 2 idle cores"]
fn every_mutant_is_killed() {
    judge("all", MUTANTS);
}

/// The bugs of kernels, on every run.
#[test]
fn some_mutants_are_killed() {
    judge("some", &MUTANTS[..3]);
}
