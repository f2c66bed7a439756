//! The command line as its users have it: the built binary, its exit codes, its messages and its files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::Value;

use common::Bench;

mod common;

/// Architecture, prefix of its binutils.
const ARCHES: [(&str, &str); 3] =
    [("x86_64", "x86_64-linux-gnu-"), ("arm64", "aarch64-linux-gnu-"), ("riscv64", "riscv64-linux-gnu-")];

/// An object that gcc made.
fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("emu-tests/fixtures").join(name);
    path.into_os_string().into_string().unwrap()
}

/// The functions of an architecture in their plainest form, and their callbacks.
fn fixtures(arch: &str) -> (String, String) {
    let functions = if arch == "riscv64" { "rvc" } else { "plain" };
    (fixture(&format!("{arch}/{functions}.o")), fixture(&format!("{arch}/callbacks.o")))
}

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
    assert_eq!(architectures.len(), tramptool::BACKENDS.len());
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
fn gen_writes_what_was_asked_for() {
    for (arch, _) in ARCHES {
        let b = Bench::new();
        b.ok(&["gen", "--all", "--arch", arch, "--emit", "asm,obj,bin,json", "-o", "out"]);
        let names = ["S", "bin", "json", "o"].map(|ext| format!("{arch}.{ext}"));
        let read = |name: &str| fs::read(b.path("out").join(name)).unwrap();
        let mut found: Vec<String> =
            fs::read_dir(b.path("out")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        found.sort();
        assert_eq!(found, names);

        // Another run, to another place: the same bytes.
        b.ok(&["gen", "--all", "--arch", arch, "--emit", "json,bin,obj,asm", "-o", ".", "--stem", arch]);
        for name in &names {
            assert_eq!(fs::read(b.path(name)).unwrap(), read(name), "{name}");
        }

        let object = read(&format!("{arch}.o"));
        let object = object::File::parse(&*object).unwrap();
        let text = object.section_by_name(".text").unwrap();
        assert_eq!(text.data().unwrap(), read(&format!("{arch}.bin")), "{arch}");

        let manifest: Value = serde_json::from_slice(&read(&format!("{arch}.json"))).unwrap();
        assert_eq!(manifest["arch"], arch);
        assert_eq!(manifest["profile"], "linux-6.12");
        let list = |key: &str| manifest[key].as_array().unwrap().clone();
        for key in ["symbols", "labels"] {
            for entry in list(key).iter().filter(|e| e["global"] != false) {
                let name = entry["name"].as_str().unwrap();
                let symbol = object.symbols().find(|s| s.name() == Ok(name)).unwrap();
                assert_eq!(entry["offset"], symbol.address(), "{name}");
                assert_eq!(entry["size"].as_u64().unwrap_or(0), symbol.size(), "{name}");
            }
        }
        assert_eq!(list("symbols").len(), 6);
        assert!(list("labels").iter().any(|l| l["name"] == "ftrace_regs_call"));
        let relocations = list("relocations");
        assert_eq!(relocations.len(), text.relocations().count());
        for (ours, (at, r)) in relocations.iter().zip(text.relocations()) {
            let object::RelocationFlags::Elf { r_type } = r.flags() else { panic!("not ELF") };
            assert_eq!((&ours["offset"], &ours["type"]), (&at.into(), &r_type.0.into()));
            assert_eq!(ours["addend"], r.addend());
            assert!(ours["name"].as_str().unwrap().starts_with("R_"), "{ours}");
            assert!(!ours["symbol"].as_str().unwrap().is_empty(), "{ours}");
        }
        for trampoline in list("trampolines") {
            assert!(trampoline["contract"]["kept"].is_array(), "{trampoline}");
            assert!(trampoline["contract"]["frame"].is_array(), "{trampoline}");
            assert!(trampoline["contract"]["not_filled"].is_array(), "{trampoline}");
            assert!(trampoline["cost"]["bytes"].as_u64() > Some(0), "{trampoline}");
        }
    }
}

#[test]
fn gen_to_stdout_and_to_stems() {
    let b = Bench::new();
    let asm = b.ok(&["gen", "ftrace_caller", "--arch", "arm64"]);
    assert!(asm.contains(".globl\tftrace_caller"));
    assert_eq!(b.files(), [""; 0]);
    let object = b.run(&["gen", "ftrace_caller", "--arch", "arm64", "--emit", "obj", "-o", "-"]);
    assert!(object.stdout.starts_with(b"\x7fELF"));
    b.ok(&["gen", "ftrace_caller", "--arch", "arm64", "--emit", "obj,asm", "--stem", "mine"]);
    assert_eq!(b.files(), ["mine.S", "mine.o"]);
    assert_eq!(fs::read(b.path("mine.o")).unwrap(), object.stdout);
}

#[test]
fn gen_direct() {
    for (arch, most) in [("x86_64", 6), ("arm64", 8), ("riscv64", 8)] {
        let b = Bench::new();
        for args in 0..=most {
            let n = args.to_string();
            let asm = b.ok(&["gen", "direct", "--args", &n, "--call", "my_func", "--arch", arch]);
            assert!(asm.contains("my_func_tramp:"), "{asm}");
            if args < most {
                b.ok(&["gen", "direct", "--args", &n, "--call", "f", "--name", "t", "--ip", "--arch", arch]);
            }
        }
        b.ok(&["gen", "ftrace_stub", "direct", "--args", "1", "--call", "ftrace_stub", "--arch", arch]);
        let too_many = (most + 1).to_string();
        let most = most.to_string();
        b.refuses(&["gen", "direct", "--args", &too_many, "--call", "f", "--arch", arch], &[arch, "0 to"]);
        b.refuses(&["gen", "direct", "--args", "9", "--call", "f", "--arch", arch], &[arch, "9", "0 to"]);
        b.refuses(&["gen", "direct", "--args", &most, "--call", "f", "--ip", "--arch", arch], &["--ip", "0 to"]);
        b.refuses(&["gen", "direct", "--call", "f", "--arch", arch], &["--args", &most]);
        b.refuses(&["gen", "direct", "--args", "1", "--arch", arch], &["--call"]);
        for symbol in ["", "a b", "1a", ".La", "a\nb", "a;b", "ARG0", "FRAME_SIZE"] {
            let call = format!("--call={symbol}");
            b.refuses(&["gen", "direct", "--args", "1", &call, "--arch", arch], &["--call"]);
        }
        b.refuses(&["gen", "direct", "--args", "1", "--call", "f", "--name", "f", "--arch", arch], &["--name"]);
        b.refuses(&["gen", "ftrace_caller", "--call", "f", "--arch", arch], &["--call", "direct"]);
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
    for (arch, _) in ARCHES {
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

#[test]
fn binutils_accept_every_object() {
    for (arch, prefix) in ARCHES {
        let settings = match arch {
            "riscv64" => &["rvc=on", "rvc=off", "abi=lp64d"][..],
            "arm64" => &["call-ops=on", "call-ops=off"],
            _ => &["unwinder=orc", "unwinder=fp", "stack-align=16"],
        };
        for set in settings {
            let b = Bench::new();
            b.ok(&["gen", "--all", "--arch", arch, "--set", set, "--emit", "obj,json"]);
            b.ok(&[
                "gen", "direct", "--args", "3", "--call", "f", "--arch", arch, "--set", set, "--emit", "obj", "--stem",
                "direct",
            ]);
            let name = format!("{arch}.o");
            for object in [name.as_str(), "direct.o"] {
                b.tool(&format!("{prefix}readelf"), &["-aW", object]);
                b.tool(&format!("{prefix}readelf"), &["--debug-dump=frames", object]);
                b.tool(&format!("{prefix}objdump"), &["-d", "-r", "-t", object]);
            }
            b.tool(&format!("{prefix}ld"), &["--fatal-warnings", "-r", &name, "direct.o", "-o", "both.o"]);
            let manifest: Value = serde_json::from_slice(&fs::read(b.path(&format!("{arch}.json"))).unwrap()).unwrap();
            let undefined = manifest["undefined"].as_array().unwrap().iter().map(|u| u.as_str().unwrap());
            let symbols: Vec<String> = undefined.chain(["f"]).map(|name| format!("--defsym={name}=0x20000")).collect();
            let mut args = vec!["--fatal-warnings", "-e", "ftrace_caller", "-Ttext=0x10000", "both.o", "-o", "image"];
            args.extend(symbols.iter().map(String::as_str));
            b.tool(&format!("{prefix}ld"), &args);
        }
    }
}

#[test]
fn link_makes_an_image() {
    for (arch, prefix) in ARCHES {
        let b = Bench::new();
        let mut generate = vec!["gen", "--all", "--arch", arch, "--emit", "obj"];
        if arch == "arm64" {
            generate.extend(["--set", "call-ops=off"]);
        }
        b.ok(&generate);
        let object = format!("{arch}.o");
        let (functions, callbacks) = fixtures(arch);
        let link = ["link", &object, &functions, &callbacks, "-o"];
        b.ok(&[&link[..], &["plain"]].concat());
        let patches = ["--patch", "args3=ftrace_caller", "--call", "ftrace_call=callback", "--base", "0x80000000"];
        b.ok(&[&link[..], &["patched"], &patches].concat());
        b.ok(&[&link[..], &["again"], &patches].concat());
        assert_eq!(fs::read(b.path("patched")).unwrap(), fs::read(b.path("again")).unwrap());
        for image in ["plain", "patched"] {
            b.tool(&format!("{prefix}readelf"), &["-aW", image]);
            b.tool(&format!("{prefix}objdump"), &["-d", "-t", image]);
        }
        let headers = b.tool(&format!("{prefix}readelf"), &["-lW", "patched"]);
        assert!(headers.contains("LOAD") && headers.contains("0x0000000080000000"), "{headers}");
        let code = |image: &str, symbol: &str| {
            b.tool(&format!("{prefix}objdump"), &["-d", &format!("--disassemble={symbol}"), image])
        };
        let enabled = code("patched", "args3");
        assert_ne!(code("plain", "args3"), enabled);
        // On riscv64 the pair of instructions is not resolved by objdump.
        if arch != "riscv64" {
            assert!(enabled.contains("<ftrace_caller>"), "{enabled}");
            let entry = code("patched", "ftrace_caller");
            assert!(entry.contains("<callback>"), "{entry}");
        }

        let handlers = ["--call", "direct_func", "--exit", "ftrace_return_to_handler", "--name", "paired"];
        let around = ["gen", "around", "--args", "3", "--function", "args3", "--arch", arch, "--emit", "obj", "--stem"];
        b.ok(&[&around[..], &["paired"], &handlers].concat());
        b.ok(&["link", "paired.o", &functions, &callbacks, "-o", "jumped", "--jump", "args3=paired"]);
        // Where it does not call, no link register is written, and no call is decoded.
        let jumped = code("jumped", "args3");
        let branch = match arch {
            "x86_64" => "\tjmp ",
            "arm64" => "\tb\t",
            _ => "\tjr\t",
        };
        assert!(jumped.lines().any(|l| l.contains(branch)), "{jumped}");

        let bad = |more: &[&str], parts: &[&str]| b.refuses(&[&link[..], &["image"], more].concat(), parts);
        bad(&["--patch", "nonsense=ftrace_caller"], &["nonsense", "args3"]);
        bad(&["--patch", "args3=nonsense"], &["nonsense", "args3"]);
        bad(&["--patch", "args3"], &["args3", "valid"]);
        bad(&["--call", "nonsense=callback"], &["nonsense"]);
        bad(&["--call", "ftrace_call=nonsense"], &["nonsense", "ftrace_call"]);
        bad(&["--base", "0x80000001"], &["0x80000001", "0x1000"]);
        bad(&["--base", "x"], &["--base", "x"]);
        // The name of the object and of the symbol.
        b.refuses(&["link", &object, "-o", "image"], &["function_trace_op", &object]);
        b.refuses(&[&link[..3], &[&callbacks, "-o", "image"], &[&object]].concat(), &["ftrace_stub", &object]);
        b.refuses(&["link", "missing.o", "-o", "image"], &["missing.o", "valid"]);
        b.refuses(&["link", &object, &functions, &callbacks, "-o", "missing/image"], &["missing/image", "valid"]);
        fs::create_dir(b.path("dir")).unwrap();
        b.refuses(&["link", &object, &functions, &callbacks, "-o", "dir"], &["dir", "directory"]);
        b.refuses(&["link", &object], &["-o"]);
        b.refuses(&["link", "-o", "image"], &["OBJ"]);
    }
}

#[test]
fn link_refuses_what_does_not_go_together() {
    let b = Bench::new();
    for (arch, _) in ARCHES {
        b.ok(&["gen", "--all", "--arch", arch, "--emit", "obj"]);
    }
    b.refuses(&["link", "x86_64.o", "arm64.o", "-o", "image"], &["arm64.o", "x86_64", "183"]);
    b.refuses(&["link", "riscv64.o", &fixture("x86_64/plain.o"), "-o", "image"], &["plain.o", "riscv64.o", "62"]);
    let (soft, double) = (fixture("riscv64/rvc.o"), fixture("riscv64/rvc-lp64d.o"));
    b.refuses(&["link", &soft, &double, "-o", "image"], &["rvc.o", "rvc-lp64d.o", "soft", "double"]);
    b.refuses(&["link", "riscv64.o", &double, "-o", "image"], &["riscv64.o", "rvc-lp64d.o", "abi"]);

    // An absolute 32-bit field, and an image above 4 GiB.
    fs::write(b.path("abs.S"), ".globl far\nfar: movl $ftrace_stub, %eax\nret\n.globl ftrace_stub\nftrace_stub: ret\n")
        .unwrap();
    b.tool("x86_64-linux-gnu-as", &["abs.S", "-o", "abs.o"]);
    b.ok(&["link", "abs.o", "-o", "image"]);
    fs::remove_file(b.path("image")).unwrap();
    b.refuses(&["link", "abs.o", "-o", "image", "--base", "0x100000000"], &["abs.o", "ftrace_stub", "0x10000000"]);
}

#[test]
fn link_survives_damaged_files() {
    let b = Bench::new();
    let good = fs::read(fixture("x86_64/plain.o")).unwrap();
    let refuse = |name: &str, bytes: &[u8], parts: &[&str]| {
        fs::write(b.path(name), bytes).unwrap();
        b.refuses(&["link", name, "-o", "image"], &[&[name], parts].concat());
    };
    refuse("empty.o", b"", &["ELF64"]);
    refuse("random.o", &[0x5a; 4096], &["ELF64"]);
    refuse("text.o", b"#!/bin/sh\n", &["ELF64"]);
    refuse("magic.o", b"\x7fELF", &["ELF64"]);
    let mut changed = good.clone();
    changed[4] = 1;
    refuse("elf32.o", &changed, &["ELF32"]);
    changed[4..6].copy_from_slice(&[2, 2]);
    refuse("big.o", &changed, &["big-endian"]);
    let mut changed = good.clone();
    changed[18..20].copy_from_slice(&8_u16.to_le_bytes());
    refuse("mips.o", &changed, &["machine 8", "x86_64 (62)"]);
    let mut changed = good.clone();
    changed[16] = 2;
    refuse("image.o", &changed, &["relocatable"]);
    for len in (5..good.len()).step_by(1 + good.len() / 50) {
        refuse("cut.o", &good[..len], &[]);
    }
    // Damage anywhere: an image or a message, and never a panic.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..150 {
        let mut changed = good.clone();
        for _ in 0..4 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of it in the section headers, where it hurts.
            let range = if seed & 1 == 0 { changed.len() - 64 * 20..changed.len() } else { 0..changed.len() };
            let at = range.start + (seed >> 33) as usize % range.len();
            changed[at] ^= (seed >> 8) as u8 | 1;
        }
        fs::write(b.path("changed.o"), &changed).unwrap();
        let out = b.run(&["link", "changed.o", &fixture("x86_64/callbacks.o"), "-o", "image"]);
        let message = String::from_utf8_lossy(&out.stderr);
        assert!(matches!(out.status.code(), Some(0 | 2)), "{message}");
        assert!(message.lines().count() <= 1, "{message}");
        assert_eq!(b.path("image").exists(), out.status.success(), "{message}");
        let _ = fs::remove_file(b.path("image"));
    }
}

/// What is refused in a prototype has its place marked below the message.
#[test]
fn prototypes_are_refused_with_a_mark() {
    let b = Bench::new();
    for (sig, message, mark) in [
        ("int printk(const char *fmt, ...)", "variable number", "                              ^"),
        ("void f(sk_buff_t skb)", "unknown type 'sk_buff_t'", "         ^"),
        ("void f(int a, struct s { long a[3]; } b)", "24 bytes; valid: up to 16", "                ^"),
        ("long double f(void)", "valid: double", "  ^"),
    ] {
        let out = b.run(&["gen", "direct", "--sig", sig, "--call", "f", "--arch", "x86_64"]);
        let stderr = String::from_utf8(out.stderr).unwrap();
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!((out.status.code(), out.stdout.len(), lines.len()), (Some(2), 0, 3), "{stderr}");
        assert!(lines[0].starts_with("tramptool: --sig: ") && lines[0].contains(message), "{stderr}");
        assert_eq!((lines[1], lines[2]), (format!("  {sig}").as_str(), mark), "{stderr}");
    }
    let gen_ = ["gen", "direct", "--call", "f", "--arch", "x86_64"];
    b.refuses(&[&gen_[..], &["--sig", "void f(void)", "--args", "1"]].concat(), &["--args", "--sig"]);
    b.refuses(&[&gen_[..], &["--sig", "void f(void)", "--ip"]].concat(), &["--ip", "--sig"]);
    b.refuses(&[&gen_[..], &["--args", "1", "--handler", "x.o"]].concat(), &["--sig"]);
    b.refuses(&[&gen_[..], &["--sig", "void f(void)", "--handler", "x.o"]].concat(), &["x.o", "valid"]);
    b.refuses(&["gen", "ftrace_caller", "--sig", "void f(void)", "--arch", "arm64"], &["--sig", "direct"]);
}

/// A paired trampoline of a prototype is that of as many argument registers; what its frame or its handlers would take
/// from the function is refused at its place.
#[test]
fn paired_trampolines_have_prototypes() {
    let b = Bench::new();
    fs::write(b.path("general.c"), "long n; void entry(long a) { n += a; } void leave(long r) { n -= r; }").unwrap();
    fs::write(b.path("vector.c"), "double n; void entry(long a) { } void leave(long r) { n += r; }").unwrap();
    for (arch, prefix) in ARCHES {
        let hard: &[&str] = if arch == "riscv64" { &["--set", "abi=lp64d"] } else { &[] };
        // Otherwise the kernel's x86-64 has a stack for general registers only.
        let aligned: &[&str] = if arch == "x86_64" { &["--set", "stack-align=16"] } else { &[] };
        let what = ["gen", "around", "--arch", arch, "--function", "f", "--call", "entry", "--exit", "leave"];
        let around = [&what[..], hard].concat();
        for name in ["general", "vector"] {
            let (source, object) = (format!("{name}.c"), format!("{name}.o"));
            b.tool(&format!("{prefix}gcc"), &["-O2", "-c", &source, "-o", &object]);
        }
        let words = ["long a", "struct { long a, b; } p", "char c"];
        for (args, sig) in [
            ("0", "void f(void)".to_owned()),
            ("2", "int f(long a, void *p)".to_owned()),
            ("4", format!("struct pair {{ 16, 8 }} f({})", words.join(", "))),
            // Where the result's address is in an argument register, that is one.
            (if arch == "arm64" { "1" } else { "2" }, "struct big { 40, 8 } f(int a)".to_owned()),
        ] {
            let typed = b.ok(&[&around[..], &["--sig", &sig]].concat());
            assert_eq!(typed, b.ok(&[&around[..], &["--args", args]].concat()), "{arch} {sig}");
            for form in ["fregs", "shadow"] {
                let whole = |more: &[&str]| b.ok(&[&around[..], &["--form", form], more].concat());
                assert_eq!(whole(&["--sig", &sig]), whole(&[]), "{arch} {sig}");
            }
        }
        let most = if arch == "x86_64" { 6 } else { 8 };
        let longs: Vec<String> = (0..=most).map(|i| format!("long a{i}")).collect();
        let vector = "void f(long a, double x)";
        let proven = |sig, handler| b.run(&[&around[..], &["--sig", sig, "--handler", handler]].concat());
        assert!(proven(vector, "general.o").status.success(), "{arch}");
        assert!(proven("double f(long a)", "general.o").status.success(), "{arch}");
        let refused = |forms: &[&str], more: &[&str], sig: &str, parts: &[&str], marked: &str| {
            for form in forms {
                let out = b.run(&[&around[..], &["--form", form, "--sig", sig], more].concat());
                let stderr = String::from_utf8(out.stderr).unwrap();
                let lines: Vec<&str> = stderr.lines().collect();
                assert_eq!((out.status.code(), out.stdout.len(), lines.len()), (Some(2), 0, 3), "{stderr}");
                assert!(parts.iter().all(|part| lines[0].contains(part)) && lines[1].ends_with(sig), "{stderr}");
                assert_eq!(lines[2].find('^'), lines[1].find(marked), "{stderr}");
            }
        };
        let (all, framed, stack) =
            (["frame", "fregs", "shadow"], ["frame", "fregs"], format!("void f({})", longs.join(", ")));
        refused(&framed, &[], &stack, &["on the stack", "shadow", "`programs`"], &longs[most]);
        b.ok(&[&around[..], &["--form", "shadow", "--sig", &stack]].concat());
        refused(&all, &[], vector, &["vector register", "`programs`", "--handler"], "double");
        refused(&all, &[], "double f(long a)", &["vector register", "--handler"], "double");
        refused(
            &framed,
            &[&["--handler", "vector.o"], aligned].concat(),
            vector,
            &["vector register", "--handler"],
            "double",
        );
        b.refuses(&[&around[..], &["--args", "1", "--handler", "general.o"]].concat(), &["around", "--sig"]);
        b.refuses(&around, &["--args", "--sig"]);
        b.refuses(&[&around[..], &["--args", "1", "--sig", "void f(void)"]].concat(), &["--args", "--sig"]);
    }
}

/// Programs that gcc compiled link with their trampoline, and what cannot be is refused.
#[test]
fn programs_are_attached_to_one_function() {
    let b = Bench::new();
    let source = "typedef unsigned long u64;\n\
        u64 before(u64 *context, u64 *cookie) { return context[0] + *cookie; }\n\
        u64 after(u64 *context, u64 *cookie) { return context[context[-1]]; }\n\
        int f(long a, void *p) { return a != 0; }\n";
    fs::write(b.path("programs.c"), source).unwrap();
    for (arch, prefix) in ARCHES {
        let what = ["gen", "programs", "--arch", arch, "--sig", "int f(long a, void *p)"];
        let list = ["--fentry", "before:7", "--fmod-ret", "before", "--fexit", "after,before:0x7fffffff"];
        b.ok(&[&what[..], &list, &["--function", "f", "--emit", "obj", "--stem", "programs"]].concat());
        let soft: &[&str] = if arch == "riscv64" { &["-mabi=lp64", "-march=rv64imac"] } else { &[] };
        b.tool(&format!("{prefix}gcc"), &[&["-O2", "-c", "programs.c", "-o", "c.o"], soft].concat());
        b.tool(&format!("{prefix}ld"), &["-r", "programs.o", "c.o", "-o", "linked.o"]);
        let symbols = b.tool(&format!("{prefix}nm"), &["linked.o"]);
        for defined in ["T before_tramp", "T before_tramp_after_call", "T before_tramp_epilogue"] {
            assert!(symbols.contains(defined), "{symbols}");
        }
        assert!(!symbols.contains(" U "), "{symbols}");
        let code = b.tool(&format!("{prefix}objdump"), &["-dr", "programs.o"]);
        let calls: Vec<&str> = ["before", "f+0x", "after"]
            .into_iter()
            .flat_map(|callee| code.lines().filter(move |l| l.contains("R_") && l.contains(&format!("\t{callee}"))))
            .collect();
        assert!(calls.len() >= 5, "{code}");

        let bad = |more: &[&str], parts: &[&str]| b.refuses(&[&what[..], more].concat(), parts);
        bad(&[], &["there is none", "--fentry"]);
        bad(&["--fexit", "after"], &["--function", "valid"]);
        bad(&["--fentry", "before", "--function", "f"], &["--function", "CALL_ORIG"]);
        bad(&["--fentry", "before:0x80000000"], &["0x80000000", "0x7fffffff"]);
        bad(&["--fentry", "before", "--flags", "SKIP_FRAME"], &["SKIP_FRAME", "CALL_ORIG"]);
        bad(&["--fexit", "after", "--function", "f", "--flags", "RESTORE_REGS"], &["RESTORE_REGS", "CALL_ORIG"]);
        bad(&["--fentry", "before", "--flags", "TAIL_CALL_CTX"], &["TAIL_CALL_CTX", "BPF programs", "IP_ARG"]);
        bad(&["--fentry", "before", "--flags", "NONSENSE"], &["NONSENSE", "IP_ARG"]);
        bad(&["--fentry", "9", "--name", "n"], &["--fentry", "9"]);
        let many = ["a"; 39].join(",");
        bad(&["--fentry", &many], &["39", "38"]);
        let typed = |sig, more: &[&str], parts: &[&str]| {
            let out = b.run(&[&["gen", "programs", "--arch", arch, "--sig", sig][..], more].concat());
            let stderr = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(2), "{stderr}");
            assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
        };
        typed("void f(int a)", &["--fmod-ret", "m", "--function", "f"], &["--fmod-ret", "void f(int a)"]);
        typed("struct big { 40, 8 } f(int a)", &["--fentry", "e"], &["in memory", "valid"]);
    }
    b.refuses(&["gen", "ftrace_caller", "--fentry", "f", "--arch", "arm64"], &["--fentry", "programs"]);
}

/// A handler that is proven to touch no vector register gets none saved; any other gets those that are live.
#[test]
fn handlers_are_scanned() {
    let sources = [
        ("general", "void h(long a, double x) { static volatile long n; n += a; }", false),
        ("vector", "void h(long a, double x) { static volatile double n; n += x; }", true),
        ("beside", "volatile double n; void g(void) { n += 1; } void h(long a, double x) { }", true),
        ("calls", "void other(void); void h(long a, double x) { other(); }", true),
        ("pointer", "void (*other)(void); void h(long a, double x) { other(); }", true),
    ];
    for (arch, prefix, set, abi, vector) in [
        ("x86_64", "x86_64-linux-gnu-", "stack-align=16", "-mno-avx", "movups"),
        ("arm64", "aarch64-linux-gnu-", "call-ops=on", "-mabi=lp64", "q0"),
        ("riscv64", "riscv64-linux-gnu-", "abi=lp64d", "-mabi=lp64d", "fsd"),
    ] {
        let b = Bench::new();
        let show = |file: &str| {
            let args = ["--sig", "void h(long a, double x)", "--call", "h", "--handler", file];
            [&["show", "direct", "--arch", arch, "--set", set][..], &args].concat().join("\u{1f}")
        };
        for (name, source, saves) in sources {
            let (c, o) = (format!("{name}.c"), format!("{name}.o"));
            fs::write(b.path(&c), source).unwrap();
            b.tool(&format!("{prefix}gcc"), &["-O1", "-fno-pic", "-ffreestanding", abi, "-c", &c, "-o", &o]);
            let text = show(&o);
            let text = b.ok(&text.split('\u{1f}').collect::<Vec<_>>());
            assert_eq!(text.contains(vector), saves, "{arch} {name}: {text}");
        }
        let refused = |more: &[&str], parts: &[&str]| {
            let all = [&["show", "direct", "--arch", arch, "--sig", "void h(long a, double x)"][..], more].concat();
            b.refuses(&all, parts);
        };
        refused(&["--call", "k", "--handler", "general.o", "--set", set], &["unknown handler", "'k'", "h"]);
        match arch {
            "x86_64" => refused(&["--call", "h", "--handler", "vector.o"], &["vector.o", ".text+0x", "stack-align=16"]),
            "riscv64" => refused(&["--call", "h", "--handler", "general.o"], &["float ABI", "valid"]),
            _ => {}
        }
    }
}

/// The bound is where the issue puts it, and nothing is above it without a reason.
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
    for (arch, _) in ARCHES {
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
