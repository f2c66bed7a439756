//! Faults in the core, one at a time: bugs that kernels had first, then whatever else can be got wrong. The oracle must notice
//! each. A mutant is compiled with the oracle, without cargo, and judged by `driver.rs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What it is, the file, what stands there, and what a mutant has instead.
type Mutant = (&'static str, &'static str, &'static str, &'static str);

include!("mutants/list.rs");
include!("mutants/order.rs");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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
    command.args(["--edition=2024", "-Copt-level=1", "--cap-lints=allow", "--crate-name", name]);
    match kind {
        "test" => command.arg("--test"),
        _ => command.args(["--crate-type", kind]),
    };
    command.arg("--out-dir").arg(dir).arg("-L").arg(dir).arg(source);
    for (name, file) in externs {
        command.arg("--extern").arg(format!("{name}={}", dir.join(format!("lib{file}.rlib")).display()));
    }
    command.stdin(Stdio::null()).output().unwrap().status.success()
}

/// The core's files with a fault, or without.
fn faulty(dir: &Path, mutant: Option<&Mutant>) -> PathBuf {
    let source = dir.join("src");
    copy(&root().join("runtime/src"), &source);
    if let Some((name, file, from, to)) = mutant {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{name}: {file} has it so often: {from}");
        std::fs::write(source.join(file), text.replace(from, to)).unwrap();
    }
    source
}

/// Does it fail? None: it is no program.
fn fails(built: bool, program: &Path) -> Option<bool> {
    let run = built.then(|| Command::new(program).output().unwrap())?;
    Some(!run.status.success())
}

/// Does the oracle notice?
fn by_the_oracle(dir: &Path, mutant: Option<&Mutant>) -> Option<bool> {
    let source = faulty(dir, mutant);
    let (compose, driver) = (root().join("lab/compose/src/lib.rs"), root().join("lab/compose/tests/mutants/driver.rs"));
    let (runtime, judge) = (("runtime", "tramptool_runtime"), ("tramptool_compose", "tramptool_compose"));
    let built = compile(dir, "rlib", "tramptool_runtime", &source.join("lib.rs"), &[])
        && compile(dir, "rlib", "tramptool_compose", &compose, &[runtime])
        && compile(dir, "bin", "driver", &driver, &[judge, runtime]);
    fails(built, &dir.join("driver"))
}

/// Do interrupts between the core's accesses?
fn by_interrupts(dir: &Path, mutant: Option<&Mutant>) -> Option<bool> {
    faulty(dir, mutant);
    let test = dir.join("tests/interrupted");
    copy(&root().join("runtime/tests/interrupted"), &test);
    fails(compile(dir, "test", "interrupted", &test.join("main.rs"), &[]), &dir.join("interrupted"))
}

fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn judge(name: &str, mutants: &[Mutant], killed: fn(&Path, Option<&Mutant>) -> Option<bool>) {
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
    // All of them, or those with `$TRAMPTOOL_FAULT` in their names.
    let named = std::env::var("TRAMPTOOL_FAULT").unwrap_or_default();
    let some: Vec<Mutant> = MUTANTS.iter().filter(|mutant| mutant.0.contains(&named)).copied().collect();
    judge("all", &some, by_the_oracle);
}

/// The bugs of kernels, on every run.
#[test]
fn some_mutants_are_killed() {
    judge("some", &MUTANTS[..3], by_the_oracle);
}

/// What only somebody who interrupts can notice.
#[test]
fn faults_of_order_are_noticed_by_interrupts() {
    judge("order", ORDER, by_interrupts);
}
