//! What has no end, or is too large, is refused in little memory; what is no part of a commit is not looked at.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use object::{Object, ObjectSection};

use crate::common::{Bench, any, arches};

/// Bytes that a file may have, in the messages.
const TOO_MUCH: &str = "more than 536870912 bytes";

/// Run in an address space of 2 GB: a file may have a quarter of that, and grows in memory by doubling.
fn limited(b: &Bench, args: &[&str]) -> (Option<i32>, String) {
    let words: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let tool = env!("CARGO_BIN_EXE_tramptool");
    let command = format!("ulimit -v 2000000; RAYON_NUM_THREADS=1 {tool} {}", words.join(" "));
    let zeros = fs::File::open("/dev/zero").unwrap();
    let out = Command::new("sh").args(["-c", &command]).stdin(zeros).current_dir(b.path("")).output().unwrap();
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

/// The commands' inputs, each in turn from a device that has no end.
#[test]
fn a_file_without_an_end_is_refused() {
    let b = Bench::new();
    let arch = any();
    symlink("/dev/zero", b.path("zero.toml")).unwrap();
    b.ok(&["gen", "direct", "--args", "1", "--call", "f", "--arch", arch, "--emit", "obj,contract", "--stem", "t"]);
    let object = ["--object", "t.o"];
    let commands: Vec<Vec<&str>> = vec![
        vec!["sites", "/dev/zero"],
        vec!["audit", "/dev/zero"],
        vec!["link", "/dev/zero", "-o", "image"],
        vec!["list", "--profile", "zero.toml"],
        vec!["gen", "direct", "--sig", "int g(int a)", "--call", "f", "--arch", arch, "--handler", "/dev/zero"],
        vec!["gen", "ftrace_stub", "--config", "/dev/zero", "--asm-offsets", "/dev/zero"],
        vec!["check", "--object", "/dev/zero", "--contract", "t.toml"],
        [&["check", "--contract", "zero.toml"], &object[..]].concat(),
        [&["check", "--contract", "t.toml", "--expect", "zero.toml"], &object[..]].concat(),
        vec!["probe", "--object", "/dev/zero", "--events", "t.toml", "--call", "f()"],
        vec!["report", "write", "/dev/zero"],
        vec!["contract", "init", "--object", "/dev/zero", "--symbol", "f_tramp"],
        vec!["diff", "t.o", "t.o", "--baseline", "zero.toml"],
        vec!["diff", "-", "t.o"],
    ];
    for command in commands {
        let (code, err) = limited(&b, &command);
        assert!(code == Some(2) && err.contains(TOO_MUCH), "{command:?}: {err}");
        assert_eq!(err.lines().count(), 1, "{command:?}: {err}");
    }
}

#[test]
fn what_an_assembler_makes_without_an_end_is_refused() {
    let b = Bench::new();
    let symbol = ".globl f\n.type f, %function\nf:\n";
    for (arch, _) in arches() {
        fs::write(b.path("huge.s"), format!("{symbol} .fill 0x40000000\n.size f, . - f\n")).unwrap();
        b.refuses(&["diff", "huge.s", "huge.s", "--arch", arch], &["huge.s: ", "as: signal: "]);
        fs::write(b.path("wrong.s"), "no such instruction\n").unwrap();
        b.refuses(&["diff", "wrong.s", "wrong.s", "--arch", arch], &["wrong.s: ", "Error: "]);
    }
}

/// Code that is far longer than a trampoline's.
#[test]
fn much_code_is_refused_in_little_memory() {
    let b = Bench::new();
    for (arch, prefix) in arches() {
        b.ok(&["gen", "direct", "--args", "1", "--call", "f", "--arch", arch, "--emit", "contract", "--stem", "t"]);
        fs::write(b.path("nop.s"), "nop\n").unwrap();
        b.tool(&format!("{prefix}as"), &["nop.s", "-o", "nop.o"]);
        let object = fs::read(b.path("nop.o")).unwrap();
        let nop = object::File::parse(&*object).unwrap().section_by_name(".text").unwrap().data().unwrap().to_vec();
        fs::write(b.path("nops.bin"), nop.repeat((20 << 20) / nop.len())).unwrap();
        let place = ["--base", "0x10000000", "--entry", "0x10000000", "--arch", arch];
        let judged = [&["check", "--raw", "nops.bin", "--contract", "t.toml"], &place[..]].concat();
        let drafted = [&["contract", "init", "--raw", "nops.bin", "--symbol", "f_tramp"], &place[..]].concat();
        let mut commands = vec![judged, drafted];
        // Elsewhere the assembler says that what it includes is data.
        if tool::backend(arch).unwrap().facts().mapping.is_empty() {
            let symbol = ".globl f_tramp\n.type f_tramp, %function\nf_tramp: .incbin \"nops.bin\"\n";
            fs::write(b.path("nops.s"), format!("{symbol} call f\n ret\n.size f_tramp, . - f_tramp\n")).unwrap();
            b.tool(&format!("{prefix}as"), &["nops.s", "-o", "nops.o"]);
            commands.push(vec!["check", "--object", "nops.o", "--contract", "t.toml"]);
            commands.push(vec!["diff", "nops.o", "nops.o"]);
        }
        for command in commands {
            let (code, err) = limited(&b, &command);
            assert!(code == Some(2) && err.contains("more than 1048576 bytes of code"), "{command:?}: {err}");
        }
    }
}

/// A symbolic link of a commit may lead anywhere, such as to what only its reader may see.
#[test]
fn a_revision_is_what_git_has_and_no_more() {
    let b = Bench::new();
    let arch = any();
    let git = |args: &[&str]| {
        let out = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t"])
            .args(args)
            .current_dir(b.path("repository"))
            .stdout(Stdio::null())
            .status();
        assert!(out.unwrap().success(), "{args:?}");
    };
    let made = |name: &str, to: &str| {
        b.ok(&["gen", "direct", "--args", "1", "--call", name, "--arch", arch, "-o", to]);
    };
    fs::create_dir_all(b.path("repository/objects")).unwrap();
    made("outside", "outside.o");
    made("inside", "repository/objects/inside.o");
    symlink(b.path("outside.o"), b.path("repository/objects/link.o")).unwrap();
    symlink(b.path(""), b.path("repository/objects/up")).unwrap();
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "objects"]);
    let out = Command::new(env!("CARGO_BIN_EXE_tramptool"))
        .args(["diff", "HEAD:objects", "HEAD:objects", "--brief"])
        .current_dir(b.path("repository"))
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("inside_tramp") && !text.contains("outside"), "{text}");
    // The directory itself has what it shows.
    let text = b.ok(&["diff", "repository/objects", "repository/objects", "--brief"]);
    assert!(text.contains("inside_tramp") && text.contains("outside_tramp"), "{text}");
}
