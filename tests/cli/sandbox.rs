//! What breaks out of the engine: gdb stops the tool where the engine begins to run code, and calls there what such code would.

use std::fs;
use std::process::Command;

use crate::common::{Bench, any};

/// What gdb prints of each call: a system call that is refused says so by -1.
const TRIED: [(&str, &str); 9] = [
    ("creates a file", "((int (*)(const char *, int))creat)(\"stolen\", 0644)"),
    ("reads a file", "((int (*)(const char *, int))open)(\"/etc/passwd\", 0)"),
    ("removes a file", "((int (*)(const char *))unlink)(\"t.toml\")"),
    ("names a file otherwise", "((int (*)(const char *, const char *))rename)(\"t.toml\", \"stolen\")"),
    ("makes a socket", "((int (*)(int, int, int))socket)(2, 1, 0)"),
    ("starts a process", "((int (*)(void))fork)()"),
    ("becomes another program", "((int (*)(const char *, char **, char **))execve)(\"/bin/true\", 0, 0)"),
    ("ends others", "((int (*)(int, int))kill)(1, 0)"),
    ("copies a descriptor", "((int (*)(int))dup)(1)"),
];

/// Run `check` with its report in a file, stopped where the engine starts. Returns what each call came to.
fn tried(b: &Bench, sandbox: &str, calls: &[(&str, &str)]) -> Vec<i32> {
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set breakpoint pending on"]);
    gdb.args(["-ex", "set startup-with-shell off", "-ex", "break uc_emu_start", "-ex", "run", "-ex", "delete"]);
    for (_, call) in calls {
        gdb.args(["-ex", &format!("print {call}")]);
    }
    gdb.args(["-ex", "continue", "--args", env!("CARGO_BIN_EXE_tramptool"), "check", "--object", "t.o"]);
    gdb.args(["--contract", "t.toml", "--function", "args2", "--sandbox", sandbox, "-o", "report.txt"]);
    let out = gdb.current_dir(b.path("")).output().expect("install gdb-multiarch");
    let text = String::from_utf8_lossy(&out.stdout);
    let values = text.lines().filter_map(|line| line.strip_prefix('$')?.split_once(" = ")?.1.trim().parse().ok());
    let values: Vec<i32> = values.collect();
    assert_eq!(values.len(), calls.len(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    values
}

#[test]
fn what_breaks_out_of_the_engine_can_write_nothing() {
    let b = Bench::new();
    b.ok(&["gen", "direct", "--args", "2", "--call", "f", "--arch", any(), "--emit", "obj,contract", "--stem", "t"]);
    let contract = fs::read(b.path("t.toml")).unwrap();
    for ((what, _), value) in TRIED.iter().zip(tried(&b, "on", &TRIED)) {
        assert_eq!(value, -1, "it {what}");
    }
    // And the judge's own work is done as ever.
    assert!(fs::read_to_string(b.path("report.txt")).unwrap().contains("holds"));
    assert_eq!(fs::read(b.path("t.toml")).unwrap(), contract);
    assert!(!b.path("stolen").exists());
    // Without walls it is gdb's word that counts.
    assert!(tried(&b, "off", &TRIED[..1])[0] >= 0 && b.path("stolen").exists());
}

/// Whatever runs code does so behind the walls, and its report is the same.
#[test]
fn reports_are_the_same_behind_walls() {
    let b = Bench::new();
    b.ok(&["gen", "direct", "--args", "2", "--call", "f", "--arch", any(), "--emit", "obj,contract", "--stem", "t"]);
    let object = ["--object", "t.o", "--contract", "t.toml"];
    let commands: [&[&str]; 6] = [
        &[&["check", "--function", "args2"], &object[..]].concat(),
        &[&["mutate", "--sample", "1", "--only", "DROP_SAVE"], &object[..]].concat(),
        &[&["cost"], &object[..]].concat(),
        &["diff", "t.o", "t.o", "--contract", "t.toml"],
        &["contract", "observe", "t.o"],
        &["review", "t.o", "t.o", "--contract", "t.toml"],
    ];
    for command in commands {
        let [with, without] = ["on", "off"].map(|walls| b.run(&[command, &["--sandbox", walls]].concat()));
        assert_eq!(with, without, "{command:?}");
    }
}
