//! The tool without the feature `judge`: what it does, and what it refuses with the remedy.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Built as `./x demo` builds it: beside the tool with everything, whose place it does not take.
fn tool(args: &[&str]) -> Output {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let tool = BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--locked",
            "--quiet",
            "--no-default-features",
            "--bin",
            "tramptool",
            "--profile",
            "quick",
        ]);
        cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success());
        target.join("quick/tramptool")
    });
    Command::new(tool).args(args).output().unwrap()
}

#[test]
fn what_needs_no_emulator_is_there() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/emu-tests/fixtures/x86_64");
    let object = std::fs::read_dir(fixture).unwrap().next().unwrap().unwrap().path();
    let any = arch::BACKENDS[0].facts().name;
    let commands: [&[&str]; 8] = [
        &["list"],
        &["gen", "--all", "--arch", any],
        &["gen", "direct", "--sig", "void f(long a)", "--call", "g", "--arch", any, "--emit", "obj", "-o", "-"],
        &["gen", "ftrace_caller", "--arch", any, "--emit", "json", "-o", "-"],
        &["show", "ftrace_caller", "--arch", any],
        &["sites", object.to_str().unwrap()],
        &["completions", "bash"],
        &["man"],
    ];
    for command in commands {
        let run = tool(command);
        assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
        assert!(!run.stdout.is_empty(), "{command:?}");
    }
    // They differ.
    assert_eq!(tool(&["diff", "x86_64:ftrace_caller", "arm64:ftrace_caller"]).status.code(), Some(1));
}

#[test]
fn what_needs_it_is_refused_with_the_remedy() {
    let any = arch::BACKENDS[0].facts().name;
    let commands: [&[&str]; 9] = [
        &["check"],
        &["check", "--help"],
        &["check", "ftrace_caller", "--arch", any],
        &["contract", "init", "--object", "x.o"],
        &["cost", "--table"],
        &["explain", "P7"],
        &["mutate", "--sample", "3"],
        &["report", "write", "a"],
        &["gen", "ftrace_caller", "--arch", any, "--emit", "contract", "-o", "-"],
    ];
    for command in commands {
        let run = tool(command);
        let message = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{command:?}: {message}");
        assert!(message.contains("needs the judge") && message.contains("valid: "), "{command:?}: {message}");
        assert!(run.stdout.is_empty(), "{command:?}");
    }
    let sig = ["gen", "direct", "--sig", "double f(double x)", "--call", "g", "--arch", any, "--handler", "my.o"];
    let message = String::from_utf8(tool(&sig).stderr).unwrap();
    assert!(message.contains("no disassembler") && message.contains("valid: "), "{message}");
}
