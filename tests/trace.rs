//! `tramptool trace`, of recordings that the test writes itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use trace::file::{Clock, Events, Function, Functions, Object, Process, Session, Task, Writer};

/// `main` calls `work` so many times; a tick each.
fn recording(dir: &Path, calls: u64) -> PathBuf {
    let path = dir.join("trace.tramptool");
    let mut writer = Writer::new(fs::File::create(&path).unwrap()).unwrap();
    let command = vec!["program".to_owned()];
    let session = Session {
        version: "0".to_owned(),
        arch: "any".to_owned(),
        machine: 0,
        command,
        clock: Clock::Tsc,
        events: Events::Both,
        started: 0,
    };
    writer.session(&session).unwrap();
    writer.process(&Process { pid: 7, parent: None, exe: "/bin/program".to_owned(), started: 0 }).unwrap();
    writer.object(&Object { id: 0, path: "/bin/program".to_owned(), build_id: String::new() }).unwrap();
    let function = |(i, name): (u64, &str)| Function {
        offset: 64 * i,
        size: 64,
        name: name.to_owned(),
        site: 64 * i,
        entry_only: false,
        parameters: Vec::new(),
        result: None,
    };
    let functions = (0..).zip(["main", "work"]).map(function).collect();
    writer.functions(&Functions { object: 0, first: 0, functions }).unwrap();
    writer.task(&Task { pid: 7, tid: 7, name: "program".to_owned(), started: 0 }).unwrap();
    let work = (0..calls).flat_map(|_| [1 << 8 | 1, 1 << 8 | 2]);
    let records = (1_u64..).zip([1].into_iter().chain(work).chain([2]));
    let records: Vec<u8> = records.flat_map(|(time, what)| [time, what]).flat_map(u64::to_le_bytes).collect();
    writer.records(7, 7, 0, &records).unwrap();
    path
}

fn tool(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tramptool")).arg("trace").args(args).current_dir(dir).output().unwrap()
}

fn ok(dir: &Path, args: &[&str]) -> String {
    let run = tool(dir, args);
    assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

fn refused(dir: &Path, args: &[&str], says: &str) {
    let run = tool(dir, args);
    let message = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), message.lines().count()), (Some(2), 1), "{args:?}: {message}");
    assert!(message.contains(says), "{args:?}: {message}");
}

#[test]
fn a_recording_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    recording(dir, 3);
    let report = ok(dir, &["report", "--sort", "calls"]);
    let rows: Vec<Vec<&str>> = report.lines().skip(1).take(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["3", "3", "3", "work"], ["7", "4", "1", "main"]]);
    assert!(report.contains("# times are ticks"), "{report}");
    let json: serde_json::Value =
        serde_json::from_str(&ok(dir, &["report", "--format", "json", "-f", "work"])).unwrap();
    assert_eq!((json["unit"].as_str(), json["rows"][0]["calls"].as_u64()), (Some("ticks"), Some(3)));
    assert_eq!(ok(dir, &["replay", "-D", "1", "trace.tramptool"]).lines().count(), 2);
    assert_eq!(ok(dir, &["graph"]).lines().count(), 3);
    assert_eq!(ok(dir, &["export", "--format", "folded"]), "main 4\nmain;work 3\n");
}

/// What a browser makes of the page is what `report` has: a bar for each function, as each is called from one place here, and a row.
#[test]
#[ignore = "needs chromium; `./x test` runs it where that is installed"]
fn the_page_has_the_report_in_chromium() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    recording(dir, 1234);
    ok(dir, &["export", "--format", "html", "-o", "flame.html"]);
    let report: serde_json::Value = serde_json::from_str(&ok(dir, &["report", "--format", "json"])).unwrap();
    let page = format!("file://{}", dir.join("flame.html").display());
    let mut browser = Command::new("chromium");
    // Root has no sandbox to give.
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900", "--dump-dom", &page]);
    let run = browser.env("HOME", dir).output().unwrap();
    let page = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let labels: Vec<&str> =
        page.split("aria-label=\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(label, _)| label).collect();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{report}");
    let number = |row: &serde_json::Value, key: &str| {
        let digits = row[key].as_u64().unwrap().to_string();
        if digits.len() > 3 {
            format!("{},{}", &digits[..digits.len() - 3], &digits[digits.len() - 3..])
        } else {
            digits
        }
    };
    for row in rows {
        let [calls, total, own] = ["calls", "total", "self"].map(|key| number(row, key));
        let plural = if calls == "1" { "call" } else { "calls" };
        let name = row["function"].as_str().unwrap();
        let bar = format!("{name}: {calls} {plural}, total {total} ticks, self {own} ticks, ");
        assert_eq!(labels.iter().filter(|label| label.starts_with(&bar)).count(), 1, "{bar}: {labels:?}");
        let cell =
            format!("<td class=\"number\">{}</td><td><button class=\"name\" type=\"button\">{name}<", row["calls"]);
        assert_eq!(page.matches(&cell).count(), 1, "{cell}: {page}");
    }
    // These, and what calls all.
    assert_eq!(page.matches("role=\"treeitem\"").count(), 3, "{labels:?}");
}

#[test]
fn outputs_are_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let file = recording(dir, 3);
    for format in ["chrome", "perfetto", "firefox", "folded", "html"] {
        ok(dir, &["export", "--format", format, "-o", format]);
        assert_eq!(fs::read(dir.join(format)).unwrap(), tool(dir, &["export", "--format", format]).stdout, "{format}");
    }
    for format in ["uftrace", "ctf", "ctf2"] {
        ok(dir, &["export", "--format", format, "-o", format]);
        assert!(fs::read_dir(dir.join(format)).unwrap().count() > 1, "{format}");
        refused(
            dir,
            &["export", "--format", format, "-o", format],
            "it is there already; valid: a name that is not used",
        );
        refused(dir, &["export", "--format", format], "valid: -o with its name");
        refused(dir, &["export", "--format", format, "-o", "missing/deeper"], "cannot make directory missing/deeper");
    }
    let before = fs::read(&file).unwrap();
    refused(dir, &["export", "--format", "folded", "-o", "trace.tramptool"], "this command reads it");
    assert_eq!(fs::read(&file).unwrap(), before);
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with('.')).count(), 0);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path(), 100_000);
    for args in [&["replay"][..], &["export", "--format", "chrome"]] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        tool.arg("trace").args(args).current_dir(dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tool.spawn().unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(0), ""), "{args:?}");
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_tramptool"))
            .arg("trace")
            .args(args)
            .current_dir(dir.path())
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    refused(dir, &["report"], "cannot read trace.tramptool: ");
    fs::write(dir.join("other"), "no recording, of more than 16 bytes").unwrap();
    refused(dir, &["report", "other"], "other: this is no trace: ");
    recording(dir, 1);
    refused(dir, &["report", "-F", "nobody"], "no recorded function has this name; valid: ");
    refused(dir, &["replay", "-F", "/(/"], "'/(/' is no regular expression; valid: ");
    refused(dir, &["replay", "-t", "1h"], "'1h' is no time; valid: ");
    let whole = fs::read(dir.join("trace.tramptool")).unwrap();
    fs::write(dir.join("cut"), &whole[..whole.len() - 1]).unwrap();
    assert!(ok(dir, &["report", "cut"]).contains("# the file ends within a block"));
}

/// Compile a program with sites for this machine.
fn compile(dir: &Path, compiler: &str, name: &str, source: &str) {
    fs::write(dir.join(name), source).unwrap();
    let (compiler, options) = compiler.split_once(' ').unwrap_or((compiler, ""));
    let args = ["-O1", "-fpatchable-function-entry=5", "-pthread", name, "-o", "program"];
    let run = Command::new(compiler).args(args).args(options.split_whitespace()).current_dir(dir).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// The prefix of an architecture's compilers, the room for a site, and the words of its emulator.
const MACHINES: [(&str, &str, &str, &str); 3] = [
    ("x86_64", "x86_64-linux-gnu-", "5", ""),
    ("arm64", "aarch64-linux-gnu-", "2", "qemu-aarch64 -L /usr/aarch64-linux-gnu"),
    ("riscv64", "riscv64-linux-gnu-", "4", "qemu-riscv64 -L /usr/riscv64-linux-gnu"),
];

const CLANG: &str = "clang-14";

/// The program says what its functions are called with, and so must we. What is in no register of its own is left out.
#[test]
fn arguments_and_results_are_those_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("tests/trace/arguments.c");
    let preload = root.join("session/preload/preload.c");
    let (source, preload) = (source.to_str().unwrap(), preload.to_str().unwrap());
    for (arch, prefix, room, emulator) in MACHINES {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let gcc = |compiler: &str, args: &[&str]| {
            let prefix = if compiler == CLANG { "" } else { prefix };
            let status = Command::new(format!("{prefix}{compiler}")).args(args).current_dir(dir).status();
            assert!(status.is_ok_and(|status| status.success()), "{prefix}{compiler} {args:?}");
        };
        gcc("gcc", &["-O2", "-fPIC", "-shared", preload, "-o", "library.so"]);
        let site = format!("-fpatchable-function-entry={room}");
        let under = ["--arch", arch, "--emulator", emulator, "--preload", "library.so"];
        let under = if emulator.is_empty() { &[][..] } else { &under };
        let sites = ["-O2", "-g", &site];
        for (compiler, options, any) in [
            ("gcc", &sites[..], &[][..]),
            ("g++", &["-xc++", "-O1", "-g", &site], &[]),
            ("gcc", &["-O0", "-g", "-gdwarf-4"], &["--any"]),
            (CLANG, &sites, &[]),
        ] {
            // It compiles for this machine.
            if compiler == CLANG && !emulator.is_empty() {
                continue;
            }
            gcc(compiler, &[options, &["-w", source, "-o", "program"]].concat());
            let recorded = ["-q", "--args", "--result", "-N", "main", "-N", "_start"];
            let run = tool(dir, &[&recorded[..], any, under, &["--", "./program"]].concat());
            let (says, wrong) = (String::from_utf8(run.stdout).unwrap(), String::from_utf8_lossy(&run.stderr));
            assert_eq!((run.status.code(), &*wrong), (Some(0), ""), "{arch} {compiler}");
            let replayed = ok(
                dir,
                &[
                    "replay",
                    "-f",
                    "/^(twice|many|scale|passed|made|behind|united|wide|variable|nothing|owned|owns|old)$/",
                ],
            );
            let calls: Vec<&str> =
                replayed.lines().skip(1).map(|line| line.split_once(" | ").unwrap().1.trim()).collect();
            let said: Vec<&str> = says.lines().collect();
            assert!(said.len() > 10, "{arch}: {says}");
            assert_eq!(calls, said, "{arch} {compiler} {options:?}");
        }
        // What the loader does not load records nothing.
        if !emulator.is_empty() {
            let other = ["-q", "--arch", arch, "--emulator", emulator, "--preload", "program", "--", "./program"];
            let wrong = String::from_utf8_lossy(&tool(dir, &other).stderr).into_owned();
            assert!(wrong.contains("has not loaded the library that records"), "{arch}: {wrong}");
        }
        // Without debug information nothing is known.
        gcc("gcc", &["-O2", &site, "-w", source, "-o", "program"]);
        assert!(
            ok(dir, &["list", "--args", "program"])
                .contains(" twice(- no debug information: compile with -g) = - no debug ")
        );
    }
}

/// `work` is called 1,000 times by each of two threads. Then the program does what it is told.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) long work(long n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline)) void *many(void *n) { for (int i = 0; i < 1000; i++) n = (void *)work((long)n); return n; }
int main(int argc, char **argv) {
    pthread_t other;
    void *result;
    pthread_create(&other, 0, many, 0);
    long all = (long)many(0);
    pthread_join(other, &result);
    printf("%ld\n", all + (long)result);
    fflush(stdout);
    if (argc > 2) raise(atoi(argv[2]));
    return atoi(argv[1]);
}
"#;

#[test]
fn a_program_runs_as_it_does_alone_and_its_calls_are_recorded() {
    use std::os::unix::process::ExitStatusExt;
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    compile(dir, "gcc", "program.c", PROGRAM);
    let run = tool(dir, &["--", "./program", "3"]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), &*run.stdout), (Some(3), &b"2000\n"[..]), "{told}");
    assert!(told.contains("traced 3 of 3 functions") && told.contains("2,003 calls in"), "{told}");
    let report = ok(dir, &["report", "--sort", "calls"]);
    let (table, clock) = report.split_once("# the CPU's clock: ").unwrap();
    let calls: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().rev().take(2).collect()).collect();
    assert_eq!(calls[1..], [["work", "2000"], ["many", "2"], ["main", "1"]], "{report}");
    let megahertz: f64 = clock.strip_suffix(" MHz\n").unwrap().parse().unwrap();
    assert!((1.0..10_000.0).contains(&megahertz), "{clock}");
    // A signal that ends it ends us too, and what was recorded is there. The recording before is kept.
    fs::rename(dir.join("trace.tramptool"), dir.join("first")).unwrap();
    for signal in [9, 11, 7, 6, 4, 15, 24, 29, 34] {
        fs::copy(dir.join("first"), dir.join("trace.tramptool")).unwrap();
        let killed = tool(dir, &["-q", "-f", "work", "--", "./program", "0", &signal.to_string()]);
        assert_eq!(
            (killed.status.signal(), &*killed.stdout, &*killed.stderr),
            (Some(signal), &b"2000\n"[..], &b""[..])
        );
        assert!(ok(dir, &["report"]).contains("      2000  work\n"));
        assert!(ok(dir, &["report", "trace.tramptool.old"]).contains(" many\n"));
    }
    assert!(ok(dir, &["list", "program"]).contains("3 of 3 functions can be traced"));
}

#[test]
fn exceptions_pass_functions_that_are_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let source = "int deep(int n) { if (n == 0) throw 7; return deep(n - 1) + 1; }\n\
                  int main() { try { return deep(9); } catch (int e) { return e; } }\n";
    compile(dir, "g++", "program.cc", source);
    let run = tool(dir, &["--", "./program"]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(7), "{told}");
    assert!(!told.contains("entries alone"), "{told}");
    let report = ok(dir, &["report", "--sort", "calls"]);
    assert!(report.contains("        10  deep(int)\n") && report.contains("left without a return"), "{report}");
    assert!(ok(dir, &["list", "program"]).contains("shadow "));
    // Its own unwinder does not know of trampolines: no return address is taken away from it.
    compile(dir, "g++ -static-libgcc -static-libstdc++", "program.cc", source);
    for strip in [false, true] {
        if strip {
            assert!(Command::new("strip").arg("program").current_dir(dir).status().unwrap().success());
        }
        let run = tool(dir, &["--", "./program"]);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(7), "{told}");
        assert!(told.contains("entries alone are recorded: an object has an unwinder of its own"), "{told}");
        assert!(ok(dir, &["list", "program"]).contains("entries alone"));
    }
}

/// Where no page may be both written and executed (PR_SET_MDWE), code is written another way.
#[test]
fn code_that_may_not_be_written_is_written_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let execute = "#include <sys/prctl.h>\n#include <unistd.h>\n\
                   int main(int n, char **args) { return prctl(65, 1, 0, 0, 0) || n < 2 || execv(args[1], args + 1); }\n";
    fs::write(dir.join("strict.c"), execute).unwrap();
    let gcc = Command::new("gcc").args(["strict.c", "-o", "strict"]).current_dir(dir).status();
    assert!(gcc.unwrap().success());
    compile(dir, "gcc", "program.c", PROGRAM);
    let run = tool(dir, &["--", "./strict", "./program", "5"]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    // 1: the kernel has no such rule (before Linux 6.3).
    if run.status.code() != Some(1) {
        assert_eq!((run.status.code(), &*run.stdout), (Some(5), &b"2000\n"[..]), "{told}");
        assert!(told.contains("2,003 calls in"), "{told}");
    }
}

#[test]
fn what_cannot_be_traced_is_told_before_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    compile(dir, "gcc", "program.c", PROGRAM);
    let fixed = Command::new("gcc").args(["-static", "program.c", "-pthread", "-o", "fixed"]).current_dir(dir).status();
    assert!(fixed.unwrap().success());
    fs::write(dir.join("text"), "text").unwrap();
    for (name, mode) in [("other_user", 0o4755), ("other_group", 0o2755)] {
        fs::copy(dir.join("program"), dir.join(name)).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    // The class, and the machine: of this file nothing but its header is looked at.
    for (name, at, byte) in [("small", 4, 1), ("foreign", 18, 0x28)] {
        let mut bytes = fs::read(dir.join("program")).unwrap();
        bytes[at] = byte;
        fs::write(dir.join(name), bytes).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (program, code, says) in [
        ("./fixed", 125, "linked statically"),
        ("./other_user", 125, "setuid"),
        ("./other_group", 125, "setgid"),
        ("./small", 125, "32-bit"),
        ("./foreign", 125, "another machine"),
        ("./text", 126, "not an executable file"),
        ("./none", 127, "no such program"),
        ("no-such-program", 127, "no such program"),
    ] {
        let run = tool(dir, &["--", program, "0"]);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!((run.status.code(), told.lines().count(), &*run.stdout), (Some(code), 1, &b""[..]), "{told}");
        assert!(told.contains(says), "{told}");
    }
    // What cannot be written does not change how it ends.
    let run = tool(dir, &["-o", "/dev/full", "--", "./program", "4"]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), &*run.stdout), (Some(4), &b"2000\n"[..]), "{told}");
    assert!(told.contains("is not whole: No space left on device"), "{told}");
    // A place that cannot be written to is told before the program runs.
    let run = tool(dir, &["-o", "none/trace", "--", "./program", "4"]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), told.lines().count(), &*run.stdout), (Some(125), 1, &b""[..]), "{told}");
    // Without sites it runs as it is.
    let run = tool(dir, &["--", "true"]);
    assert_eq!(run.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&run.stderr).contains("no sites were seen"));
}

/// A filter of system calls takes the sockets from a program: it runs as it is, and says why nothing is recorded of it.
#[test]
fn what_a_filter_keeps_from_the_recorder_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let filter = "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <errno.h>\n#include <stddef.h>\n\
                  #include <stdlib.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
                  int main(int n, char **args) {\n\
                    unsigned refused[] = { SYS_socket, SYS_connect, SYS_recvmsg };\n\
                    struct sock_filter lines[] = {\n\
                      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[atoi(args[1])], 0, 1),\n\
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),\n\
                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };\n\
                    struct sock_fprog program = { 4, lines };\n\
                    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;\n\
                    return execv(args[2], args + 2);\n\
                  }\n";
    fs::write(dir.join("filter.c"), filter).unwrap();
    let gcc = Command::new("gcc").args(["filter.c", "-o", "filter"]).current_dir(dir).status();
    assert!(gcc.unwrap().success());
    compile(dir, "gcc", "program.c", PROGRAM);
    for call in ["0", "1", "2"] {
        let run = tool(dir, &["--", "./filter", call, "./program", "5"]);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!((run.status.code(), &*run.stdout), (Some(5), &b"2000\n"[..]), "{told}");
        assert_eq!(told.matches("refuses it a socket, as a filter (seccomp) does").count(), 1, "{told}");
    }
}

/// A program that loads the library itself starts a recorder, which records what it starts too. Without one it runs as it is.
#[test]
fn programs_start_their_own_recorder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let preload = root.join("session/preload/preload.c");
    let tool = concat!(env!("CARGO_BIN_EXE_tramptool"), " trace -o own.trace");
    for (_, prefix, room, emulator) in MACHINES {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let gcc = |args: &[&str]| {
            let status = Command::new(format!("{prefix}gcc")).args(args).current_dir(dir).status();
            assert!(status.is_ok_and(|status| status.success()), "{prefix}gcc {args:?}");
        };
        fs::write(dir.join("program.c"), PROGRAM).unwrap();
        gcc(&["-O1", &format!("-fpatchable-function-entry={room}"), "-pthread", "program.c", "-o", "program"]);
        match emulator {
            "" => drop(ok(dir, &["preload", "library.so"])),
            _ => gcc(&["-O2", "-fPIC", "-shared", preload.to_str().unwrap(), "-o", "library.so"]),
        }
        let run = |recorder: &str, program: &[&str]| {
            let set = ["LD_PRELOAD=./library.so".to_owned(), format!("TRAMPTOOL_TRACE={recorder}")];
            let mut command: Vec<&str> = emulator.split_whitespace().collect();
            match command.is_empty() {
                true => command.extend(["env", &set[0], &set[1]]),
                false => command.extend(["-E", &set[0], "-E", &set[1]]),
            }
            command.extend(program);
            // The recorder has stderr until it has written all.
            let run = Command::new(command[0]).args(&command[1..]).current_dir(dir).output().unwrap();
            (run.status.code(), String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap())
        };
        let (code, said, told) = run(tool, &["./program", "3"]);
        assert_eq!((code, &*said), (Some(3), "2000\n"), "{prefix} {told}");
        assert!(told.contains("2,003 calls in"), "{prefix} {told}");
        assert!(ok(dir, &["report", "own.trace"]).contains("      2000  work\n"), "{prefix}");
        for none in ["./none", "", &format!("{tool} --nonsense")] {
            let (code, said, told) = run(none, &["./program", "4"]);
            assert_eq!((code, &*said), (Some(4), "2000\n"), "{prefix} {told}");
            assert!(told.contains(" is not recorded: "), "{prefix} {told}");
        }
        if emulator.is_empty() {
            let (code, said, told) = run(tool, &["sh", "-c", "./program 1; ./program 2"]);
            assert_eq!((code, &*said), (Some(2), "2000\n2000\n"), "{told}");
            assert!(told.contains("4,006 calls in"), "{told}");
            // Whatever the name of the library is, it does not record itself.
            let (code, said, told) = run(&format!("{tool} --any -L *"), &["./program", "3"]);
            assert_eq!((code, &*said), (Some(3), "2000\n"), "{told}");
            assert!(told.contains(" calls in"), "{told}");
        }
    }
}

/// It waits behind the function with which the recording ends, or where somebody ends it.
const WAITS: &str = r#"
#include <stdio.h>
__attribute__((noinline)) long work(long n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline)) long later(long n) { __asm__ volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline)) void marks(void) { __asm__ volatile(""); }
int main(int argc, char **argv) {
    (void)argv;
    long n = 0;
    for (int i = 0; i < 100000; i++) n = work(n);
    if (argc > 1) marks();
    for (int i = 0; i < 100000; i++) n = later(n);
    int read = getchar();
    printf("%ld\n", n);
    return read == 'x' ? 6 : 7;
}
"#;

/// How often a function was called, as soon as a recording that may not be there yet has it.
fn calls_of(dir: &Path, function: &str) -> u64 {
    for _ in 0..200 {
        let report = tool(dir, &["report", "--sort", "calls"]);
        let text = String::from_utf8_lossy(&report.stdout).into_owned();
        let mut rows = text.lines().map(|line| line.split_whitespace().rev().collect::<Vec<_>>());
        if let Some(row) = rows.find(|row| row.first() == Some(&function)) {
            return row[1].parse().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no call of {function} is recorded")
}

/// What was recorded up to a call, or to a signal, is in the file while the program runs on.
#[test]
fn recordings_end_where_they_are_told_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let preload = root.join("session/preload/preload.c");
    for (arch, prefix, room, emulator) in MACHINES {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let gcc = |args: &[&str]| {
            let status = Command::new(format!("{prefix}gcc")).args(args).current_dir(dir).status();
            assert!(status.is_ok_and(|status| status.success()), "{prefix}gcc {args:?}");
        };
        fs::write(dir.join("program.c"), WAITS).unwrap();
        gcc(&["-O1", &format!("-fpatchable-function-entry={room}"), "program.c", "-o", "program"]);
        gcc(&["-O2", "-fPIC", "-shared", preload.to_str().unwrap(), "-o", "library.so"]);
        let under = ["--arch", arch, "--emulator", emulator, "--preload", "library.so"];
        let under = if emulator.is_empty() { &[][..] } else { &under };
        let start = |args: &[&str]| {
            let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
            tool.arg("trace").args(under).args(args).current_dir(dir);
            tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let finish = |mut child: std::process::Child| {
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"x").unwrap();
            let run = child.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&run.stderr).into_owned();
            assert_eq!((run.status.code(), &*run.stdout), (Some(6), &b"200000\n"[..]), "{arch} {told}");
            told
        };
        for events in ["both", "entry"] {
            let child = start(&["--flight", "2", "--trigger", "marks", "--events", events, "--", "./program", "marks"]);
            // A buffer has 4,096 records: one is full, and one holds what came last.
            let (marks, work) = (calls_of(dir, "marks"), calls_of(dir, "work"));
            assert!(marks == 1 && (1000..8192).contains(&work), "{arch} {marks} {work}");
            let later = calls_of(dir, "later");
            finish(child);
            assert!(later < 4096 && calls_of(dir, "later") == later && calls_of(dir, "work") == work, "{arch} {later}");
        }
        let child = start(&["--trigger", "other", "--", "./program"]);
        assert!(finish(child).contains("has a name of --trigger"), "{arch}");
        assert_eq!((calls_of(dir, "work"), calls_of(dir, "later")), (100_000, 100_000), "{arch}");
        fs::remove_file(dir.join("trace.tramptool")).unwrap();
        let child = start(&["--flight", "--", "./program"]);
        // The program must be there first.
        std::thread::sleep(std::time::Duration::from_secs(2));
        assert!(Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap().success());
        let later = calls_of(dir, "later");
        finish(child);
        assert!(later > 4096 && calls_of(dir, "later") == later, "{arch} {later}");
    }
}

/// A coroutine is shown as a thread is, by `swapcontext`. Who switches stacks in another way has entries alone recorded: by the name of
/// the function that switches, or if asked to.
#[test]
fn coroutines_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let source = r#"
#include <stdlib.h>
#include <ucontext.h>
static ucontext_t back, other;
#ifdef BY_HAND
static void *stacks[2];
#define NAME_OF(f) #f
#define NAME(f) NAME_OF(f)
void BY_HAND(void **from, void *to);
__asm__(NAME(BY_HAND) ": push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; mov %rsp, (%rdi); mov %rsi, %rsp;"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret");
#define GO_ON() BY_HAND(stacks, stacks[1])
#define YIELD() BY_HAND(stacks + 1, stacks[0])
#else
#define GO_ON() swapcontext(&back, &other)
#define YIELD() swapcontext(&other, &back)
#endif
__attribute__((noinline)) void yields(void) { YIELD(); }
__attribute__((noinline)) void body(void) { for (;;) yields(); }
__attribute__((noinline)) void resumes(void) { GO_ON(); }
int main(void) {
    char *stack = malloc(1 << 16);
#ifdef BY_HAND
    void **top = (void **)(stack + (1 << 16)) - 8;
    top[6] = body, stacks[1] = top;
#else
    getcontext(&other);
    other.uc_stack.ss_sp = stack, other.uc_stack.ss_size = 1 << 16;
    makecontext(&other, body, 0);
#endif
    for (int i = 0; i < 3; i++) resumes();
    return 5;
}
"#;
    for (options, args, tasks) in [
        ("gcc", &[][..], 2),
        ("gcc -DBY_HAND=jump", &["--events", "entry"], 1),
        ("gcc -DBY_HAND=boosts_jump_fcontext", &[], 1),
        ("gcc -DBY_HAND=co_switch", &[], 1),
    ] {
        compile(dir, options, "program.c", source);
        let run = tool(dir, &[args, &["--", "./program"]].concat());
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(5), "{told}");
        assert!(told.contains("8 calls in") && told.contains("lost 0"), "{told}");
        let why = "entries alone are recorded: an object has a function that switches stacks by its own instructions";
        assert_eq!(told.contains(why), tasks == 1 && args.is_empty(), "{told}");
        let replayed = ok(dir, &["replay"]);
        let seen = |name: &str| {
            replayed.matches(&format!("| {name}(")).count() + replayed.matches(&format!("  {name}(")).count()
        };
        assert_eq!(["main", "resumes", "body", "yields"].map(seen), [1, 3, 1, 3], "{replayed}");
        // None began before it was recorded, and what never returns is running at the end.
        let running = replayed.matches("running").count();
        assert_eq!((replayed.contains("begun before"), running), (false, if tasks == 2 { 2 } else { 0 }), "{replayed}");
        let threads: std::collections::BTreeSet<&str> =
            replayed.lines().skip(1).filter_map(|line| line.split(['[', ']']).nth(1)).collect();
        assert_eq!(threads.len(), tasks, "{replayed}");
    }
}

/// Programs of the distribution, which have no sites: with the library of which functions are recorded, if it is not the program.
const AS_THEY_ARE: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "bash",
            "-c",
            "for i in 1 2 3; do echo $((i * i)); done; echo a b | while read x y; do echo $y; done; exit 7",
        ],
    ),
    ("libz*", &["python3", "-c", "import zlib; print(zlib.crc32(zlib.compress(b'a' * 9999)))"]),
    ("libcrypto*", &["openssl", "sha256", "program.c"]),
    ("libperl*", &["perl", "-e", "print join ' ', sort { $a <=> $b } 3, 1, 2; exit 3"]),
    ("*", &["gzip", "-c", "program.c"]),
    ("*", &["sort", "-r", "program.c"]),
    ("*", &["gcc", "-c", "program.c", "-o", "-", "-S"]),
];

#[test]
fn programs_are_recorded_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    fs::write(dir.join("program.c"), PROGRAM).unwrap();
    let mut recorded = 0;
    for (library, command) in AS_THEY_ARE {
        let Ok(alone) = Command::new(command[0]).args(&command[1..]).current_dir(dir).output() else { continue };
        let mut args = vec!["--any"];
        if !library.is_empty() {
            args.extend(["-L", *library]);
        }
        args.push("--");
        args.extend(*command);
        let run = tool(dir, &args);
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!((run.status.code(), run.stdout), (alone.status.code(), alone.stdout), "{command:?}: {told}");
        let calls = told.lines().find_map(|line| line.strip_prefix("tramptool: ")?.split_once(" calls in"));
        recorded += usize::from(calls.is_some_and(|(calls, _)| calls != "0"));
    }
    assert!(recorded >= 2, "{recorded}: bash at least, and the compiler, have functions in their symbol tables");
}

/// V8's own functions take arguments off the stack when they return.
#[test]
#[ignore = "needs node; `./x test` runs it where that is installed"]
fn code_of_v8_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let program = ["node", "-e", "console.log([3, 1, 2].sort().map(n => n * n).join())"];
    let run = tool(directory.path(), &[&["-q", "--any", "-f", "Builtins_*", "--"][..], &program].concat());
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!((run.status.code(), &*run.stdout, &*told), (Some(0), &b"1,4,9\n"[..], ""));
}

/// Another thread could be in the middle of what is overwritten.
#[test]
fn functions_without_sites_are_left_alone_where_threads_run_already() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let busy = "#include <pthread.h>\n#include <unistd.h>\n\
                static void *wait(void *none) { sleep(60); return none; }\n\
                __attribute__((constructor)) static void begin(void) { pthread_t t; pthread_create(&t, 0, wait, 0); }\n";
    fs::write(dir.join("busy.c"), busy).unwrap();
    fs::write(dir.join("program.c"), PROGRAM).unwrap();
    for args in [&["-shared", "-fPIC", "busy.c", "-o", "busy.so"][..], &["-O1", "program.c", "-o", "program"]] {
        assert!(Command::new("gcc").args(args).current_dir(dir).status().unwrap().success());
    }
    for (library, traced) in [("", "2,003 calls in"), ("./busy.so", "traced 0 of ")] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        let args = ["trace", "--any", "-N", "_*", "--", "./program", "3"];
        let run = tool.args(args).env("LD_PRELOAD", library).current_dir(dir).output().unwrap();
        let told = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!((run.status.code(), &*run.stdout), (Some(3), &b"2000\n"[..]), "{told}");
        assert!(told.contains(traced), "{told}");
    }
}

#[test]
fn functions_without_sites_are_listed_with_their_class() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let source = "long one(void) { return 1; }\nlong Builtins_Two(void) { return 2; }\nint main(void) { return 0; }\n\
                  __asm__(\".type two, @function\\ntwo: nop\\n1: dec %edi\\njnz 1b\\nret\\n.size two, .-two\");\n";
    fs::write(dir.join("program.c"), source).unwrap();
    let gcc = Command::new("gcc").args(["-O1", "program.c", "-o", "program"]).current_dir(dir).status();
    assert!(gcc.unwrap().success());
    assert!(ok(dir, &["list", "program"]).starts_with("no sites: "));
    let list = ok(dir, &["list", "--any", "program"]);
    for line in [
        "word     shadow         6  one",
        "trap     none           0  two: a branch leads into it",
        "refused  none           0  Builtins_Two: its return takes arguments off the stack: code of V8",
        "refused  none           0  _start: nobody calls it: the program begins there",
    ] {
        assert!(list.contains(line), "{list}");
    }
}
