//! What is written, and what is left alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use codegen::ask::spec::{Around, Form, Kind};
use codegen::words::error::Error;

use super::common::expected::{contract, expected, my_tramp};
use super::common::{Bench, any, targets};

/// Into two files, called [`STEM`].
const GEN: [&str; 8] = ["gen", "ftrace_stub", "--stem", STEM, "--emit", "asm,obj", "-o", "out"];
const STEM: &str = "stem";

/// For some architecture.
fn generate() -> Vec<&'static str> {
    [&GEN[..], &["--arch", any()]].concat()
}

fn names(b: &Bench, directory: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(b.path(directory))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_there_is_there_when_another_file_fails() {
    for failing in ["/dev/full", "a directory"] {
        let b = Bench::new();
        fs::create_dir(b.path("out")).unwrap();
        fs::write(b.path("out/stem.S"), "older").unwrap();
        match failing {
            "/dev/full" => symlink(failing, b.path("out/stem.o")).unwrap(),
            _ => fs::create_dir(b.path("out/stem.o")).unwrap(),
        }
        b.refuses(&generate(), &["stem.o"]);
        assert_eq!(fs::read_to_string(b.path("out/stem.S")).unwrap(), "older", "{failing}");
        assert_eq!(names(&b, "out"), ["stem.S", "stem.o"], "{failing}");
    }
}

#[test]
fn links_are_followed_and_modes_kept() {
    let b = Bench::new();
    fs::create_dir(b.path("out")).unwrap();
    // To what is there, by way of another link, and to what is not.
    symlink("../stem.S", b.path("out/stem.S")).unwrap();
    symlink("real.S", b.path("stem.S")).unwrap();
    symlink("../new.o", b.path("out/stem.o")).unwrap();
    fs::write(b.path("real.S"), "older").unwrap();
    fs::set_permissions(b.path("real.S"), fs::Permissions::from_mode(0o640)).unwrap();
    b.ok(&generate());
    for link in ["out/stem.S", "stem.S", "out/stem.o"] {
        assert!(fs::symlink_metadata(b.path(link)).unwrap().is_symlink(), "{link}");
    }
    assert!(fs::read_to_string(b.path("real.S")).unwrap().contains("ftrace_stub:"));
    assert!(fs::read(b.path("new.o")).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(fs::metadata(b.path("real.S")).unwrap().permissions().mode() & 0o777, 0o640);
    // A circle goes nowhere.
    symlink("circle.S", b.path("circle.S")).unwrap();
    b.refuses(&["gen", "ftrace_stub", "--arch", any(), "-o", "circle.S"], &["circle.S"]);
}

/// The signal comes while a pipe has no reader, and in the middle of a file.
#[test]
fn signals_leave_no_temporary_files() {
    let b = Bench::new();
    fs::create_dir(b.path("out")).unwrap();
    b.tool("mkfifo", &["out/stem.o"]);
    let tramptool = env!("CARGO_BIN_EXE_tramptool");
    let mut child = Command::new(tramptool).args(generate()).current_dir(b.path("")).spawn().unwrap();
    // It has come to the pipe when nothing but opening it is left to do, which is a matter of milliseconds.
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "it does not wait for a reader");
    b.tool("kill", &["-TERM", &child.id().to_string()]);
    let clock = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(clock.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(names(&b, "out"), ["stem.o"]);
    fs::remove_file(b.path("out/stem.o")).unwrap();
    let limited = format!("ulimit -f 0; exec '{tramptool}' {}", generate().join(" "));
    let out = Command::new("sh").args(["-c", &limited]).current_dir(b.path("")).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("cannot write"), "{out:?}");
    assert_eq!(names(&b, "out"), [""; 0]);
}

#[test]
fn one_file_has_the_name_that_is_given() {
    let b = Bench::new();
    let generate = ["gen", "ftrace_stub", "--arch", any()];
    let with = |more: &[&'static str]| [&generate[..], more].concat();
    b.ok(&with(&["-o", "my.S"]));
    b.ok(&with(&["--emit", "obj", "-o", "my.o"]));
    b.ok(&with(&["-o", "other.o"]));
    b.ok(&["gen", "direct", "--args", "1", "--call", "f", "--arch", any(), "-o", "my.toml"]);
    assert_eq!(names(&b, "."), ["my.S", "my.o", "my.toml", "other.o"]);
    let assembler = tool::backend(any()).unwrap().facts().assembler;
    b.tool(assembler, &["my.S", "-o", "as.o"]);
    assert!(fs::read_to_string(b.path("my.S")).unwrap().contains(&format!("{assembler} my.S -o my.o")));
    assert_eq!(fs::read(b.path("my.o")).unwrap(), fs::read(b.path("other.o")).unwrap());
    b.refuses(&with(&["--emit", "obj", "-o", "my.S"]), &["my.S", "--emit"]);
    b.refuses(&with(&["--emit", "obj,asm", "-o", "my.S"]), &["my.S", "--emit"]);
    b.refuses(&with(&["--stem", "x", "-o", "my.S"]), &["--stem"]);
    fs::create_dir(b.path("dir.S")).unwrap();
    b.ok(&with(&["-o", "dir.S"]));
    assert_eq!(names(&b, "dir.S"), [format!("{}.S", any())]);
}

/// The name stands in a comment of the text, as a command.
#[test]
fn a_stem_is_a_name_and_no_text() {
    let b = Bench::new();
    let generate = ["gen", "ftrace_stub", "--arch", any(), "--emit", "asm", "--stem"];
    for stem in ["a\n.globl evil\nevil:", "a\r", "a\\"] {
        b.refuses(&[&generate[..], &[stem]].concat(), &["--stem"]);
    }
    b.refuses(&["gen", "ftrace_stub", "--arch", any(), "-o", "a\n.globl evil.S"], &["-o"]);
    b.ok(&[&generate[..], &["it's mine"]].concat());
    let text = fs::read_to_string(b.path("it's mine.S")).unwrap();
    let command = text.lines().find_map(|line| line.split_once("Assemble with: ")).unwrap().1;
    b.tool("sh", &["-c", command.trim_end_matches("*/")]);
    assert!(fs::read(b.path("it's mine.o")).unwrap().starts_with(b"\x7fELF"));
}

#[test]
fn a_module_is_not_written_over_what_somebody_changed() {
    let b = Bench::new();
    let module = |more: &[&'static str]| {
        let sig = ["--sig", "int f(long a)", "--emit", "kmod", "--arch", any(), "-o", "module"];
        [&["gen", "direct", "--call", "seen"], &sig[..], more].concat()
    };
    b.ok(&module(&[]));
    let files = names(&b, "module");
    // The same again, and with other code.
    b.ok(&module(&[]));
    b.ok(&module(&["--set", "endbr=off"]));
    assert_eq!(names(&b, "module"), files);
    for file in &files {
        let path = b.path(&format!("module/{file}"));
        let was = fs::read(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        b.refuses(&module(&[]), &["--emit kmod", file]);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::write(&path, was).unwrap();
    }
}

/// What never comes back has no costs, and says so.
#[test]
fn cost_says_what_did_not_come_back() {
    let cases = tool::BACKENDS
        .iter()
        .flat_map(|&backend| expected(backend).by_hand.stops.into_iter().map(move |s| (backend, s)));
    for (backend, stop) in cases {
        let (b, arch) = (Bench::new(), backend.facts().name);
        fs::write(b.path("t.toml"), contract(backend)).unwrap();
        let call = expected(backend).by_hand.calls;
        fs::write(b.path("t.S"), my_tramp(&format!("{stop}\n{call} direct_func\nret"))).unwrap();
        b.tool(backend.facts().assembler, &["t.S", "-o", "t.o"]);
        let cost = ["cost", "--object", "t.o", "--contract", "t.toml"];
        assert!(b.ok(&cost).contains("did not come back"), "{arch} {stop}");
        assert!(b.ok(&[&cost[..], &["--format", "json"]].concat()).contains("\"ended\": false"), "{arch} {stop}");
    }
}

/// Under each single option and each profile that take a form away, the message has what brings it back.
#[test]
fn a_form_that_an_option_takes_away_says_which_and_what_else() {
    let around = Kind::Around(Around { form: Form::Shadow, args: 0, general_handlers: false });
    let mut taken = 0;
    for backend in tool::BACKENDS {
        for target in targets(*backend) {
            let (convention, arch) = (target.convention, backend.facts().name);
            let changed = convention.offered().filter(|(rule, _)| target.choices.get(rule.index) != rule.default);
            let (changed, profile) = (changed.count(), convention.argument);
            let Some(e) = target.frame(around).err().filter(|e| matches!(e.kind(), Error::Absent { .. })) else {
                continue;
            };
            let message = e.to_string();
            // A profile without the form has no option for it.
            let Some((_, remedy)) = message.rsplit_once("valid: with ").filter(|_| changed <= 1) else { continue };
            let (option, other) = remedy.split_once(", or ").unwrap_or((remedy, ""));
            let b = Bench::new();
            let shadow = ["gen", "around", "--call", "a", "--exit", "e", "--function", "f", "--arch", arch];
            let shadow = [&shadow[..], &["--profile", profile, "--form", "shadow"]].concat();
            let settings = tool::suite::settings(*backend, &target);
            let settings: Vec<&str> = settings.iter().flat_map(|s| ["--set", s]).collect();
            b.refuses(&[&shadow[..], &settings].concat(), &["around-shadow", &format!("with {remedy}")]);
            // And that is true.
            let name = option.split('=').next().unwrap();
            let kept = settings.chunks(2).filter(|s| s[1].split('=').next() != Some(name));
            let kept: Vec<&str> = kept.flatten().copied().chain(["--set", option]).collect();
            b.ok(&[&shadow[..], &kept].concat());
            if let Some(form) = other.strip_prefix("--form ") {
                let other = [&shadow[..shadow.len() - 1], &[form]].concat();
                b.ok(&[&other[..], &settings].concat());
            }
            taken += 1;
        }
    }
    assert!(taken > 1, "{taken}");
}

/// No output replaces what the same command has read, by whatever name.
#[test]
fn an_input_is_not_replaced() {
    let b = Bench::new();
    let arch = any();
    let stem = |what: &[&str], stem: &str| {
        b.ok(&[&["gen"], what, &["--arch", arch, "--emit", "obj,contract", "--stem", stem]].concat());
    };
    stem(&["ftrace_stub"], "s");
    stem(&["direct", "--args", "2", "--call", "f"], "t");
    fs::write(b.path("hv.toml"), include_str!("../../profiles/bare.toml")).unwrap();
    let check = ["check", "--object", "t.o", "--contract", "t.toml"];
    fs::write(b.path("r.json"), b.ok(&[&check[..], &["--format", "json"]].concat())).unwrap();
    symlink("s.o", b.path("link.o")).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (
            &[
                "gen",
                "direct",
                "--args",
                "2",
                "--call",
                "f",
                "--arch",
                arch,
                "--profile",
                "hv.toml",
                "--stem",
                "hv",
                "--emit",
                "contract",
            ],
            "hv.toml",
        ),
        (&["link", "s.o", "-o", "s.o"], "s.o"),
        (&["link", "s.o", "-o", "link.o"], "s.o"),
        (&["link", "link.o", "-o", "./s.o"], "s.o"),
        (&[&check[..], &["-o", "t.o"]].concat(), "t.o"),
        (&[&check[..], &["-o", "t.toml"]].concat(), "t.toml"),
        (&["report", "write", "r.json", "-o", "r.json"], "r.json"),
        (&["contract", "init", "--object", "t.o", "--symbol", "f_tramp", "-o", "t.o"], "t.o"),
        (&["contract", "observe", "t.o:f_tramp", "-o", "t.o"], "t.o"),
        (&["review", "t.o", "t.o", "--contract", "t.toml", "-o", "t.toml"], "t.toml"),
    ];
    for (command, input) in cases {
        let before = fs::read(b.path(input)).unwrap();
        b.refuses(command, &["cannot write ", ": this command reads it; valid: another name"]);
        assert_eq!(fs::read(b.path(input)).unwrap(), before, "{command:?}");
    }
}
