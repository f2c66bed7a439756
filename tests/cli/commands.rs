//! What all commands share, and those that show something.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Bench, arches};

#[test]
fn help_version_completions_and_man() {
    let b = Bench::new();
    assert!(b.ok(&["--version"]).starts_with("tramptool "));
    assert!(b.ok(&["--help"]).contains("Examples:"));
    for command in [
        "list",
        "gen",
        "link",
        "sites",
        "check",
        "contract",
        "cost",
        "mutate",
        "report",
        "explain",
        "show",
        "diff",
        "completions",
        "man",
    ] {
        assert!(b.ok(&[command, "--help"]).contains("Examples:"), "{command}");
        let page = b.ok(&["man", command]);
        assert!(page.contains(&format!(".TH tramptool-{command} 1")), "{command}: {page}");
    }
    assert!(b.ok(&["man"]).contains(".TH tramptool 1"));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(b.ok(&["completions", shell]).contains("tramptool"), "{shell}");
    }
}

#[test]
fn list_names_everything() {
    let b = Bench::new();
    let human = b.ok(&["list"]);
    let json: Value = serde_json::from_str(&b.ok(&["list", "--format", "json"])).unwrap();
    assert_eq!(json["profiles"][0], "linux-6.12");
    let architectures = json["architectures"].as_array().unwrap();
    assert_eq!(architectures.len(), tool::BACKENDS.len());
    for architecture in architectures {
        let name = architecture["name"].as_str().unwrap();
        assert!(human.contains(name), "{name}");
        for list in ["trampolines", "options"] {
            for entry in architecture[list].as_array().unwrap() {
                assert!(human.contains(entry["name"].as_str().unwrap()), "{entry}");
            }
        }
        assert!(!architecture["numbers"].as_array().unwrap().is_empty(), "{name}");
        let one: Value = serde_json::from_str(&b.ok(&["list", "--arch", name, "--format", "json"])).unwrap();
        assert_eq!(one["architectures"].as_array().unwrap(), std::slice::from_ref(architecture));
    }
    for (arch, of) in [("arm64", "call-ops"), ("riscv64", "fp-test"), ("x86_64", "unwinder")] {
        assert!(b.ok(&["list", "--arch", arch]).contains(of), "{arch}");
    }
}

#[test]
fn architectures_answer_to_their_names() {
    let b = Bench::new();
    for (arch, names) in [
        ("x86_64", ["x86", "X86-64", "amd64"]),
        ("arm64", ["ARM64", "aarch64", "AArch64"]),
        ("riscv64", ["riscv", "RISCV", "RiscV64"]),
    ] {
        let expected = b.ok(&["gen", "ftrace_caller", "--arch", arch]);
        for name in names {
            assert_eq!(b.ok(&["gen", "ftrace_caller", "--arch", name]), expected, "{name}");
        }
    }
}

#[test]
fn settings() {
    let b = Bench::new();
    let gen_caller = |arch, set: &[&str]| {
        let mut args = vec!["gen", "ftrace_caller", "--arch", arch];
        set.iter().for_each(|s| args.extend(["--set", s]));
        b.ok(&args)
    };
    assert!(gen_caller("arm64", &["FTRACE_OPS_DIRECT_CALL=272"]).contains("FTRACE_OPS_DIRECT_CALL, 272"));
    let swapped = gen_caller("riscv64", &["FREGS_T1=0x28", "FREGS_A0=32", "rvc=off"]);
    assert!(swapped.contains("FREGS_T1, 40") && swapped.contains("FREGS_A0, 32"), "{swapped}");
    // An option that this trampoline has no use for.
    assert!(gen_caller("arm64", &["frame-records=off"]).contains("frame-records=off"));

    for (arch, set, parts) in [
        ("arm64", "rvc=off", &["rvc", "riscv64", "call-ops=on|off"][..]),
        ("x86_64", "call-ops=on", &["call-ops", "arm64", "unwinder=orc|fp"]),
        ("riscv64", "nonsense=1", &["nonsense", "rvc=on|off", "list"]),
        ("riscv64", "rvc=maybe", &["rvc", "maybe", "on, off"]),
        ("riscv64", "rvc", &["rvc", "OPTION=VALUE"]),
        ("riscv64", "FREGS_T1=abc", &["FREGS_T1", "abc", "0x"]),
        ("riscv64", "FREGS_T1=99999999999", &["FREGS_T1", "99999999999"]),
        ("riscv64", "FREGS_T1=0", &["FREGS_T1", "FREGS_EPC", "both"]),
        ("riscv64", "FREGS_T1=4096", &["FREGS_T1", "4096", "multiple of 8"]),
        ("arm64", "FTRACE_OPS_FUNC=32768", &["32768", "32760"]),
        ("arm64", "FTRACE_OPS_FUNC=-8", &["-8", "32760"]),
        ("arm64", "FTRACE_OPS_FUNC=4", &["4", "multiple of 8"]),
    ] {
        b.refuses(&["gen", "ftrace_caller", "--arch", arch, "--set", set], parts);
    }
}

#[test]
fn bad_arguments() {
    let b = Bench::new();
    let six = ["ftrace_stub", "ftrace_stub_graph", "ftrace_stub_direct_tramp", "ftrace_caller", "direct"];
    b.refuses(&["gen", "nonsense", "--arch", "arm64"], &six);
    b.refuses(&["show", "nonsense", "--arch", "arm64"], &six);
    let arches = ["mips", "x86_64", "arm64", "riscv64"];
    b.refuses(&["gen", "ftrace_caller", "--arch", "mips"], &arches);
    b.refuses(&["list", "--arch", "mips"], &arches);
    b.refuses(&["show", "ftrace_caller", "--arch", "mips"], &arches);
    b.refuses(&["gen", "--all", "--arch", "arm64", "--profile", "linux-7"], &["linux-7", "linux-6.12"]);
    b.refuses(&["gen", "ftrace_stub", "ftrace_stub", "--arch", "arm64"], &["ftrace_stub", "twice"]);
    b.refuses(&["gen", "direct", "direct", "--args", "1", "--call", "f", "--arch", "arm64"], &["f_tramp", "twice"]);
    let clash = ["gen", "ftrace_stub", "direct", "--args", "1", "--call", "f", "--name", "ftrace_stub"];
    b.refuses(&[&clash[..], &["--arch", "arm64"]].concat(), &["ftrace_stub", "twice"]);
    b.refuses(&["gen", "--all", "--arch", "arm64", "--emit", "asm,obj", "-o", "-"], &["-o -"]);
    b.refuses(&["gen", "--all", "--arch", "arm64", "--emit", "pdf"], &["pdf", "asm", "json"]);
    b.refuses(&["gen", "--all", "--arch", "arm64", "--emit", "obj", "--stem", "a/b"], &["--stem", "a/b"]);
    b.refuses(&["gen", "--all", "ftrace_stub", "--arch", "arm64"], &["--all"]);
    b.refuses(&["gen", "--arch", "arm64"], &["TRAMPOLINE"]);
    b.refuses(&["gen", "--all"], &["--arch"]);
    b.refuses(&["gen", "direct", "--args", "x", "--call", "f", "--arch", "arm64"], &["--args", "x"]);
    b.refuses(&["gen", "direct", "--args", "300", "--call", "f", "--arch", "arm64"], &["--args", "300"]);
    b.refuses(&["list", "--format", "xml"], &["xml", "human", "json"]);
    b.refuses(&["nonsense"], &["nonsense"]);
    b.refuses(&[], &["list", "gen", "diff"]);
    b.refuses(&["man", "nonsense"], &["nonsense", "list"]);
    b.refuses(&["completions", "tcsh"], &["tcsh", "bash"]);
    b.refuses(&["diff", "arm64:ftrace_caller"], &["RIGHT"]);
    for side in [
        "ftrace_caller",
        "mips:ftrace_caller",
        "arm64:nonsense",
        "arm64:",
        "arm64:ftrace_caller,rvc=on",
        "arm64:ftrace_caller,call-ops",
        "arm64:ftrace_caller,call-ops=maybe",
        "arm64:ftrace_caller,args=1",
        "arm64:direct,args=1",
        "arm64:direct,args=9,call=f",
        "arm64:direct,args=x,call=f",
    ] {
        b.refuses(&["diff", side, "arm64:ftrace_caller"], &["valid"]);
        b.refuses(&["diff", "arm64:ftrace_caller", side], &["valid"]);
    }
}

#[test]
fn places_that_cannot_be_written_to() {
    let b = Bench::new();
    fs::write(b.path("file"), "kept").unwrap();
    let all = ["gen", "--all", "--arch", "arm64", "--emit", "asm,obj,bin,json", "-o"];
    let to = |dir| [&all[..], &[dir]].concat();
    b.refuses(&to("file"), &["file", "valid"]);
    b.refuses(&to("missing/deeper"), &["missing/deeper", "valid"]);
    b.refuses(&to("/proc/tramptool"), &["/proc/tramptool", "valid"]);
    // The last of four files cannot be written: none is.
    fs::create_dir_all(b.path("out/arm64.json")).unwrap();
    b.refuses(&to("out"), &["arm64.json", "directory"]);
    assert_eq!(fs::read_dir(b.path("out")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(b.path("file")).unwrap(), "kept");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in
        [&["list"][..], &["list", "--help"], &["man"], &["completions", "bash"], &["gen", "--all", "--arch=x86"]]
    {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tramptool"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{args:?}");
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_tramptool")).arg("list").stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&out.stderr).lines().count(), 1);
}

#[test]
fn show_and_diff() {
    let b = Bench::new();
    for (arch, _) in arches() {
        for name in
            ["ftrace_stub", "ftrace_stub_direct_tramp", "ftrace_caller", "ftrace_regs_caller", "return_to_handler"]
        {
            let text = b.ok(&["show", name, "--arch", arch]);
            assert!(text.contains("cost ") && text.starts_with(&format!("{arch} {name},")), "{text}");
        }
        let text = b.ok(&["show", "direct", "--args", "2", "--call", "f", "--arch", arch]);
        assert!(text.contains("entry sp ->"), "{text}");
        let caller = format!("{arch}:ftrace_caller");
        assert!(b.ends(0, &["diff", &caller, &caller]).contains("same"));
        b.ends(1, &["diff", &caller, &format!("{arch}:ftrace_regs_caller")]);
    }
    let text = b.ends(1, &["diff", "x86_64:ftrace_caller", "x86:ftrace_caller,unwinder=fp"]);
    for part in ["frame record", "FRAME_SIZE", "RECORD_PC", "saves", "argument set-up"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = b.ends(1, &["diff", "riscv64:ftrace_caller", "arm64:ftrace_caller,call-ops=off"]);
    for part in ["plans", "result address", "dispatch", "exit"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The same text, other bytes.
    b.ends(1, &["diff", "riscv64:ftrace_stub", "riscv64:ftrace_stub,rvc=off"]);
    b.ends(1, &["diff", "riscv64:ftrace_stub", "riscv64:ftrace_stub,abi=lp64d"]);
    b.ends(1, &["diff", "arm64:ftrace_caller", "arm64:ftrace_caller,FTRACE_OPS_FUNC=16"]);
    b.ends(0, &["diff", "arm64:ftrace_caller", "aarch64:ftrace_caller,frame-records=off"]);
    // The same plan.
    b.ends(0, &["diff", "arm64:ftrace_stub", "x86_64:ftrace_stub"]);
    b.ends(1, &["diff", "arm64:direct,args=2,call=f", "arm64:direct,args=2,call=f,ip"]);
    b.ends(1, &["diff", "x86_64:direct,args=3,call=foo", "x86_64:direct,args=3,call=bar,name=t"]);
}

/// The bound is where the issue puts it, and nothing is above it without a reason.
/// One function is enough for a verdict, also one that calls itself while its site is switched.
#[test]
fn what_the_user_leaves_out_fails_nothing() {
    let b = Bench::new();
    for (trampoline, function) in
        [("ftrace_caller", "recurse"), ("ftrace_regs_caller", "args12"), ("direct_3", "args3")]
    {
        let set = ["--set", "unwinder=orc", "--set", "endbr=on"];
        b.ok(&[&["check", trampoline, "--arch", "x86_64", "--function", function][..], &set].concat());
    }
}

#[test]
fn cost_is_beside_its_bound() {
    let b = Bench::new();
    for (arch, saved, stack) in [("x86_64", 2, 24), ("arm64", 4, 48), ("riscv64", 3, 32)] {
        let sig = ["--sig", "void kfree_skb(struct sk_buff *skb)", "--call", "f"];
        let text = b.ok(&[&["cost", "--arch", arch, "--format", "json"][..], &sig].concat());
        let rows: Value = serde_json::from_str(&text).unwrap();
        let row = &rows[0];
        assert_eq!((&row["cost"]["saved"], &row["cost"]["stack"]), (&saved.into(), &stack.into()), "{text}");
        for what in ["saved", "stack"] {
            assert_eq!(row["cost"][what], row["bound"][what], "{arch} {what}: {text}");
        }
        for what in ["loads", "stores"] {
            assert_eq!(row["cost"]["paths"][0][what], row["bound"][what], "{arch} {what}: {text}");
        }
        assert_eq!(row["above_bound"].as_array().unwrap().len(), 0, "{text}");
        let all: Value = serde_json::from_str(&b.ok(&["cost", "--arch", arch, "--format", "json"])).unwrap();
        for row in all.as_array().unwrap() {
            for reason in row["above_bound"].as_array().unwrap() {
                assert!(!reason.as_str().unwrap().ends_with(": "), "no reason: {row}");
            }
        }
        assert!(b.ok(&["cost", "--arch", arch]).contains("at least, by the contract"));
    }
    // As many programs as were asked for, not as many as a trampoline of the same kind has that is judged.
    for (arch, _) in arches() {
        let one = ["--sig", "int f(long a)", "--function", "f", "--fexit", "after"];
        let ways = |more: &[&str]| -> Value {
            let json = ["cost", "programs", "--arch", arch, "--format", "json"];
            let text = b.ok(&[&json[..], &one, more].concat());
            let rows: Value = serde_json::from_str(&text).unwrap();
            let (way, bound) = (&rows[0]["ways"][0], &rows[0]["bound"]);
            assert_eq!((&way["way"], &way["stores"]), (&"plain".into(), &bound["stores"]), "{text}");
            way.clone()
        };
        let (one, two) = (ways(&[]), ways(&["--fentry", "before"]));
        assert!(one["executed"].as_u64() < two["executed"].as_u64(), "{one} {two}");
    }
    b.refuses(&["cost", "nonsense"], &["nonsense", "ftrace_caller"]);
}
