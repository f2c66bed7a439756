//! `gen`: files, trampolines for one function, prototypes and handlers.

use std::fs;

use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::{Value, json};

use crate::common::expected::{expected, words};
use crate::common::{Bench, any, arches};

#[test]
fn gen_writes_what_was_asked_for() {
    for (arch, _) in arches() {
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
        assert_eq!(manifest["profile"], profiles::DEFAULT);
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
        // Where entry trampolines call through a variable, no call of theirs is patched.
        let patched = tool::convention(tool::backend(arch).unwrap()).unwrap().calls_through.is_none();
        assert_eq!(list("labels").iter().any(|l| l["name"] == "ftrace_regs_call"), patched, "{arch}");
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
    let asm = b.ok(&["gen", "ftrace_caller", "--arch", any()]);
    assert!(asm.contains(".globl\tftrace_caller"));
    assert_eq!(b.files(), [""; 0]);
    let object = b.run(&["gen", "ftrace_caller", "--arch", any(), "--emit", "obj", "-o", "-"]);
    assert!(object.stdout.starts_with(b"\x7fELF"));
    b.ok(&["gen", "ftrace_caller", "--arch", any(), "--emit", "obj,asm", "--stem", "mine"]);
    assert_eq!(b.files(), ["mine.S", "mine.o"]);
    assert_eq!(fs::read(b.path("mine.o")).unwrap(), object.stdout);
}

#[test]
fn gen_direct() {
    for backend in tool::BACKENDS {
        let (arch, most) = (backend.facts().name, backend.facts().abi.args.len());
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
        let out = b.run(&["gen", "direct", "--sig", sig, "--call", "f", "--arch", any()]);
        let stderr = String::from_utf8(out.stderr).unwrap();
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!((out.status.code(), out.stdout.len(), lines.len()), (Some(2), 0, 3), "{stderr}");
        assert!(lines[0].starts_with("tramptool: --sig: ") && lines[0].contains(message), "{stderr}");
        assert_eq!((lines[1], lines[2]), (format!("  {sig}").as_str(), mark), "{stderr}");
    }
    let gen_ = ["gen", "direct", "--call", "f", "--arch", any()];
    b.refuses(&[&gen_[..], &["--sig", "void f(void)", "--args", "1"]].concat(), &["--args", "--sig"]);
    b.refuses(&[&gen_[..], &["--sig", "void f(void)", "--ip"]].concat(), &["--ip", "--sig"]);
    b.refuses(&[&gen_[..], &["--args", "1", "--handler", "x.o"]].concat(), &["--sig"]);
    b.refuses(&[&gen_[..], &["--sig", "void f(void)", "--handler", "x.o"]].concat(), &["x.o", "valid"]);
    b.refuses(&["gen", "ftrace_caller", "--sig", "void f(void)", "--arch", any()], &["--sig", "direct"]);
}

/// A paired trampoline of a prototype is that of as many argument registers; what its frame or its handlers would take
/// from the function is refused at its place.
#[test]
fn paired_trampolines_have_prototypes() {
    let b = Bench::new();
    fs::write(b.path("general.c"), "long n; void entry(long a) { n += a; } void leave(long r) { n -= r; }").unwrap();
    fs::write(b.path("vector.c"), "double n; void entry(long a) { } void leave(long r) { n += r; }").unwrap();
    for (arch, prefix) in arches() {
        let backend = tool::backend(arch).unwrap();
        let (handler, abi) = (expected(backend).handler, &backend.facts().abi);
        let vectors = ["--set", &handler.set];
        // Where it is an ABI, all of them must have it; else a trampoline for general registers only need not.
        let (hard, aligned) = if handler.everywhere { (&vectors[..], &[][..]) } else { (&[][..], &vectors[..]) };
        let what = ["gen", "around", "--profile", "linux-6.12", "--arch", arch, "--function", "f", "--call", "entry"];
        let what = [&what[..], &["--exit", "leave"]].concat();
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
            (if abi.args.contains(&abi.sret) { "2" } else { "1" }, "struct big { 40, 8 } f(int a)".to_owned()),
        ] {
            let typed = b.ok(&[&around[..], &["--sig", &sig]].concat());
            assert_eq!(typed, b.ok(&[&around[..], &["--args", args]].concat()), "{arch} {sig}");
            for form in ["fregs", "shadow"] {
                let whole = |more: &[&str]| b.ok(&[&around[..], &["--form", form], more].concat());
                assert_eq!(whole(&["--sig", &sig]), whole(&[]), "{arch} {sig}");
            }
        }
        let most = abi.args.len();
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
    for (arch, prefix) in arches() {
        let what = ["gen", "programs", "--arch", arch, "--profile", "linux-6.12", "--sig", "int f(long a, void *p)"];
        let what = [&what[..], &["--own-form"]].concat();
        let list = ["--fentry", "before:7", "--fmod-ret", "before", "--fexit", "after,before:0x7fffffff"];
        b.ok(&[&what[..], &list, &["--function", "f", "--emit", "obj", "--stem", "programs"]].concat());
        let flags = expected(tool::backend(arch).unwrap()).kernel.gcc;
        b.tool(&format!("{prefix}gcc"), &[&["-O2", "-c", "programs.c", "-o", "c.o"], &words(&flags)[..]].concat());
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
        bad(&[], &["a program is missing", "--fentry"]);
        bad(&["--fexit", "after"], &["--function", "valid"]);
        bad(&["--fentry", "before", "--function", "f"], &["--function", "CALL_ORIG"]);
        bad(&["--fentry", "before:0x80000000"], &["0x80000000", "0x7fffffff"]);
        bad(&["--fentry", "before", "--flags", "SKIP_FRAME"], &["SKIP_FRAME", "CALL_ORIG"]);
        bad(&["--fexit", "after", "--function", "f", "--flags", "RESTORE_REGS"], &["RESTORE_REGS", "CALL_ORIG"]);
        bad(&["--fentry", "before", "--flags", "TAIL_CALL_CTX"], &["TAIL_CALL_CTX", "BPF programs", "IP_ARG"]);
        bad(&["--fsession", "before", "--function", "f"], &["--fsession", "linux-6.12", "sessions"]);
        bad(&["--fentry", "before", "--flags", "NONSENSE"], &["NONSENSE", "IP_ARG"]);
        bad(&["--fentry", "9", "--name", "n"], &["--fentry", "9"]);
        let many = ["a"; 39].join(",");
        bad(&["--fentry", &many], &["39", "38"]);
        let typed = |sig, more: &[&str], parts: &[&str]| {
            let out = b.run(&[&what[..6], &["--sig", sig], more].concat());
            let stderr = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(2), "{stderr}");
            assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
        };
        typed("void f(int a)", &["--fmod-ret", "m", "--function", "f"], &["--fmod-ret", "void f(int a)"]);
        typed("struct big { 40, 8 } f(int a)", &["--fentry", "e"], &["in memory", "valid"]);
    }
    b.refuses(&["gen", "ftrace_caller", "--fentry", "f", "--arch", any()], &["--fentry", "programs"]);
}

/// Linux's form links with the functions around programs, and with what these are given; what it cannot be combined with is refused.
#[test]
fn functions_are_called_around_programs_as_in_linux() {
    let b = Bench::new();
    let source = "typedef unsigned long u64;\n\
        struct bpf_prog { int active; } before_prog, after_prog;\n\
        struct bpf_tramp_image { int entered; } before_tramp_image;\n\
        u64 __bpf_prog_enter(struct bpf_prog *prog, u64 *run_context) { return ++prog->active == 1; }\n\
        void __bpf_prog_exit(struct bpf_prog *prog, u64 start, u64 *run_context) { prog->active--; }\n\
        void __bpf_tramp_enter(struct bpf_tramp_image *image) { image->entered++; }\n\
        void __bpf_tramp_exit(struct bpf_tramp_image *image) { image->entered--; }\n\
        u64 before(u64 *context) { return context[0]; }\n\
        u64 after(u64 *context) { return context[1]; }\n\
        int f(long a) { return a != 0; }\n";
    fs::write(b.path("programs.c"), source).unwrap();
    for (arch, prefix) in arches() {
        let what = ["gen", "programs", "--arch", arch, "--profile", "linux-7.3", "--sig", "int f(long a)"];
        let list = ["--fentry", "before:0xfedcba9876543210", "--fexit", "after", "--function", "f"];
        b.ok(&[&what[..], &list, &["--emit", "obj,contract,h,json", "--stem", "programs"]].concat());
        let manifest: Value = serde_json::from_str(&fs::read_to_string(b.path("programs.json")).unwrap()).unwrap();
        let told = |at: &str| manifest.pointer(&format!("/trampolines/0/contract/{at}")).unwrap().clone();
        assert_eq!(told("programs/0/cookie"), 0xfedc_ba98_7654_3210_u64);
        let around =
            |enter: &str, exit: &str, argument: &str| json!({"enter": enter, "exit": exit, "argument": argument});
        assert_eq!(told("programs/1/around"), around("__bpf_prog_enter", "__bpf_prog_exit", "after_prog"));
        assert_eq!(told("around_all"), around("__bpf_tramp_enter", "__bpf_tramp_exit", "before_tramp_image"));
        let flags = expected(tool::backend(arch).unwrap()).kernel.gcc;
        b.tool(&format!("{prefix}gcc"), &[&["-O2", "-c", "programs.c", "-o", "c.o"], &words(&flags)[..]].concat());
        b.tool(&format!("{prefix}ld"), &["-r", "programs.o", "c.o", "-o", "linked.o"]);
        let symbols = b.tool(&format!("{prefix}nm"), &["linked.o"]);
        assert!(!symbols.contains(" U "), "{symbols}");
        b.ok(&["check", "--object", "programs.o", "--contract", "programs.toml", "--situation", "plain"]);
        let bad = |more: &[&str], parts: &[&str]| b.refuses(&[&what[..], more].concat(), parts);
        bad(
            &["--fentry", "before", "--around", "one"],
            &["--around has 1 functions", "__bpf_prog_enter,__bpf_prog_exit"],
        );
        bad(&["--fentry", "before", "--around-all", "one,other"], &["--around-all", "CALL_ORIG"]);
        bad(
            &["--fentry", "before", "--own-form", "--around", "one,other"],
            &["--around", "--own-form", "one of the two"],
        );
        bad(&["--fentry", "before", "--around", "f,other"], &["f is the traced function"]);
        bad(&["--fentry", "before", "--around", "9,other"], &["--around", "9"]);
        bad(
            &["--fentry", "before,before_prog"],
            &["before_prog is a program, and what the functions around a program get"],
        );
        bad(&["--fentry", "before", "--name", "before_prog"], &["before_prog is the trampoline, and what"]);
        bad(&["--fentry", "before", "--around", "one,one"], &["one is called before a program, and called after"]);
        bad(
            &["--fexit", "after", "--function", "f", "--around", "one,two", "--around-all", "one,two"],
            &["one is called before a program, and called first"],
        );
        // As many as there may be, in each mixture: any of them may be the one that is not called, and any that decides.
        let many = |name: &str, n: usize| (0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(",");
        let (all, third) = (many("m", 36), ["a", "m", "z"].map(|name| many(name, 12)));
        b.ok(&[&what[..], &["--fmod-ret", &all, "--function", "f"]].concat());
        let mixed = ["--fentry", &third[0], "--fmod-ret", &third[1], "--fexit", &third[2], "--function", "f"];
        b.ok(&[&what[..], &mixed].concat());
        bad(&["--fentry", "before", "--flags", "IP_ARG"], &["--function is missing"]);
        bad(
            &["--fentry", "before", "--flags", "IP_ARG", "--function", "f+80"],
            &["IP_ARG", "64 bytes", "--function f+64"],
        );
        bad(&["--fentry", "before:0x10000000000000000"], &["no cookie", "0xffffffffffffffff"]);
        let bare =
            ["gen", "programs", "--arch", arch, "--profile", "bare", "--sig", "int f(long a)", "--fentry", "before"];
        b.refuses(&[&bare[..], &["--around", "one,other"]].concat(), &["--around", "bare", "own"]);
    }
    b.refuses(&["gen", "ftrace_caller", "--own-form", "--arch", any()], &["--own-form", "programs"]);
}

/// What 7.3 has besides, and how much of it.
#[test]
fn programs_of_7_3_have_sessions_and_are_detached() {
    let b = Bench::new();
    for (arch, prefix) in arches() {
        let what = ["gen", "programs", "--arch", arch, "--profile", "linux-7.3", "--sig", "int f(long a)"];
        let call = ["--function", "f", "--flags", "SKIP_FRAME,CALL_ORIG"];
        let list = ["--fsession", "s:7", "--fentry", "e", "--fexit", "x", "--emit", "obj", "--stem", "programs"];
        b.ok(&[&what[..], &list, &call].concat());
        let symbols = b.tool(&format!("{prefix}nm"), &["programs.o"]);
        // Two before the function, two after it.
        for n in 0..4 {
            assert!(symbols.contains(&format!("e_tramp_skip_{n}\n")), "{symbols}");
            assert!(symbols.contains(&format!("e_tramp_skipped_{n}\n")), "{symbols}");
        }
        assert!(!symbols.contains("skip_4") && !symbols.contains("after_call"), "{symbols}");
        let bad = |more: &[&str], parts: &[&str]| b.refuses(&[&what[..], more].concat(), parts);
        let many = ["s"; 20].join(",");
        bad(&[&["--fsession", &many][..], &call].concat(), &["40 programs", "counted as two", "valid: up to 3"]);
        bad(&["--fsession", "s"], &["--function"]);
        bad(&["--fentry", "e", "--flags", "ORIG_STACK"], &["ORIG_STACK", "livepatch"]);
        let counts = tool::profile("linux-7.3").unwrap().convention(arch).unwrap().programs.tail_call.is_some();
        let counted = ["--fentry", "e", "--flags", "TAIL_CALL_CTX"];
        match counts {
            true => {
                b.ok(&[&what[..], &counted].concat());
            }
            false => bad(&counted, &["TAIL_CALL_CTX", "tail-call"]),
        }
    }
}

/// A template's bytes are those of the object, and its table has what the object's relocations have: JSON and C say the same.
#[test]
fn templates_have_what_objects_have() {
    for (arch, _) in arches() {
        let b = Bench::new();
        let first = ["gen", "record", "--profile", "bare", "--arch", arch, "--function", "f", "--stem", "t"];
        let what = ["--events", "both", "--clock", "word", "--result", "--sig", "int f(long a)", "--id", "77"];
        b.ok(&[&first[..], &what, &["--emit", "template,bin,json"]].concat());
        assert_eq!(b.files(), ["t.bin", "t.json", "t.template.h", "t.template.json"], "{arch}");
        let read = |name: &str| std::fs::read_to_string(b.path(name)).unwrap();
        let json = |name: &str| serde_json::from_str::<serde_json::Value>(&read(name)).unwrap();
        let (template, manifest) = (json("t.template.json"), json("t.json"));
        let bytes: String = std::fs::read(b.path("t.bin")).unwrap().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(template["bytes"], bytes.as_str(), "{arch}");
        let all = |list: &serde_json::Value| list.as_array().unwrap().clone();
        let fields = all(&template["fixups"]);
        // Of a low part, the object names the label of its high part, and the template what that is for.
        let shown = |r: &serde_json::Value| {
            let local = r["symbol"].as_str().unwrap().starts_with(".L");
            !local || r["name"].as_str().unwrap().contains("LO12")
        };
        let mut wanted = 0;
        for relocation in all(&manifest["relocations"]).iter().filter(|r| shown(r)) {
            let field = fields.iter().find(|f| f["offset"] == relocation["offset"]);
            let field = field.unwrap_or_else(|| panic!("{arch}: {relocation}"));
            let of = if relocation["symbol"] == "f" { "function" } else { "clock" };
            assert_eq!((&field["type"], &field["symbol"]), (&relocation["type"], &of.into()), "{arch}");
            assert_eq!(field["addend"], relocation["addend"], "{arch}");
            wanted += 1;
        }
        let numbers = fields.iter().filter(|f| f["symbol"] == "id").count();
        assert_eq!(numbers + wanted, fields.len(), "{arch}");
        assert!(numbers >= 2 && wanted >= 3, "{arch}: {fields:?}");
        for f in &fields {
            let symbol = f["symbol"].as_str().unwrap().to_uppercase();
            let [at, kind, place, add] = ["offset", "type", "place", "addend"].map(|key| f[key].to_string());
            let row = format!("{{ {at}, {kind}, TRAMPTOOL_{symbol}, {place}, {add} }}");
            assert!(read("t.template.h").contains(&row), "{arch}: no {row}");
        }
        for (line, says) in [
            ("record --name f.1", "--emit template: 'f.1' is not a C identifier; valid: --name with letters"),
            ("record -o -", "-o - takes one file, --emit makes 2"),
        ] {
            let line: Vec<&str> = line.split(' ').collect();
            let command = [&["gen"], &line[..], &first[2..], &what[..], &["--emit", "template"]].concat();
            let stem = command.iter().position(|word| *word == "--stem").unwrap();
            b.refuses(&[&command[..stem], &command[stem + 2..]].concat(), &[says]);
        }
        let thunk = tool::backend(arch).unwrap().machine().return_thunk;
        if !thunk.is_empty() {
            let by = ["--set", "return=thunk", "--emit", "template"];
            let command = [&["gen", "record"], &first[2..], &what[..], &by].concat();
            b.refuses(&command, &[&format!("refers to {thunk}; valid: ")]);
        }
        let around = ["gen", "around", "--args", "1", "--call", "e", "--exit", "x", "--profile", "bare"];
        b.refuses(
            &[&around[..], &first[4..], &["--emit", "template"]].concat(),
            &["e_tramp neither records nor is a sled"],
        );
    }
}

/// A landing pad before the site of a function moves where it goes on, where no option says it of all functions.
#[test]
fn functions_that_begin_with_landing_pads_go_on_behind_them() {
    let b = Bench::new();
    for (arch, _) in arches() {
        let record = ["gen", "record", "--events", "entry", "--clock", "none", "--profile", "bare", "--arch", arch];
        let of = |function: &'static str| [&record[..], &["--landing-pad", "--function", function]].concat();
        let backend = tool::backend(arch).unwrap();
        let bare = tool::profile("bare").unwrap().convention(arch).unwrap();
        let target = backend.target(bare, bare.defaults()).unwrap();
        if target.pad == 0 {
            b.refuses(
                &of("f"),
                &["record: --landing-pad is given, but options say whether functions have landing pads"],
            );
            continue;
        }
        assert!(b.ok(&of("f")).contains(&format!("f+{}", target.resume + target.pad)));
        b.refuses(&of("f+12"), &["record: --landing-pad is given, but --function says where the site ends"]);
        // Where the site calls, another return address is in the place of the one that comes signed.
        let programs =
            ["gen", "programs", "--sig", "long f(long a)", "--fexit", "p", "--flags", "CALL_ORIG,SKIP_FRAME"];
        let signed = ["--signed", "--function", "f", "--profile", "bare", "--arch", arch];
        b.refuses(
            &[&programs[..], &signed].concat(),
            &["programs: --signed is given, but sites of ", "valid: without --signed"],
        );
    }
}

/// What a recording trampoline cannot be is refused with the option that is in the way, and the place in the prototype marked.
#[test]
fn records_that_cannot_be_are_refused() {
    let b = Bench::new();
    let first = ["gen", "record", "--profile", "bare", "--arch"];
    for (arch, _) in arches() {
        for (line, says) in [
            ("--events count --clock none", "record: --clock is given, but a counter has no time; valid: without it"),
            ("--events count --id 1", "record: --id is given, but a counter has none; valid: without it"),
            ("--events count --tls f", "record: --tls f is a function too; valid: a thread-local variable"),
            (
                "--events count --tls w --set TLS_COUNT=-8",
                "a word -8 bytes into the thread's variable, which begins behind it; valid: cursor",
            ),
            ("--events count --args 1", "record: --args is given, but a counter has no records; valid: without it"),
            ("--events entry --clock none --id 8388608", "record: --id 8388608; valid: 0 to 8388607"),
            ("--events entry --clock none --args 7", "record: --args 7; valid: 0 to 6"),
            (
                "--events both --clock none --form fregs --sig f()",
                "record: --form fregs does not exist; valid: --form frame or",
            ),
            (
                "--events entry --clock none --form shadow",
                "record --form shadow: --events entry keeps no return address",
            ),
            ("--events entry --clock none --pair", "record --pair: a call has one record alone; valid: --events both"),
            (
                "--events count --live all",
                "record --live all: a counter keeps no more than others; valid: --events entry",
            ),
            ("--events entry --clock none --live static-chain", "unknown --live of record 'static-chain'; valid: all"),
            ("--events both --clock none --form shadow --unwind", "record --form shadow: unwinders do not find the "),
            ("--events entry --clock none --result", "record: --result is given, but no return is recorded; valid: "),
            ("--events entry --clock none --unwind", "record --unwind: with --events entry no frame of the trampoline"),
            (
                "--events count --unwind",
                "record --unwind: with --events count no frame of the trampoline is on the stack",
            ),
            ("--events entry --clock none --call g", "`--call` needs another trampoline; valid: `direct` or `around`"),
            ("--events sometimes --clock none", "unknown events 'sometimes'; valid: count, entry, both"),
            ("--events entry --clock sometimes", "unknown clock 'sometimes'; valid: none, tsc, stamp8, word"),
        ] {
            let line: Vec<&str> = line.split(' ').collect();
            b.refuses(&[&first[..], &[arch, "--function", "f"], &line].concat(), &[says]);
        }
        for (more, sig, says, marked) in [
            (
                &[][..],
                "u64 f(u64 a, u64 b, u64 c, u64 d, u64 e, u64 g, u64 h, u64 i, u64 j)",
                "an argument on the stack",
                "",
            ),
            (&[], "int f(const char *text, ...)", "a variable number of arguments", "...)"),
            (&["--args", "2"], "int f(int a)", "1 general argument registers; valid: --args 0 to 1", "int a)"),
            (&["--result"], "void f(int a)", "no result in a general register; valid: without --result", "void f("),
        ] {
            let both = [arch, "--function", "f", "--events", "both", "--clock", "none", "--sig", sig];
            let out = b.run(&[&first[..], &both, more].concat());
            let told = String::from_utf8(out.stderr).unwrap();
            assert_eq!(out.status.code(), Some(2), "{arch}: {told}");
            assert!(told.starts_with("tramptool: --sig: ") && told.contains(says), "{arch}: {told}");
            let mut lines = told.lines().skip_while(|line| !line.contains(sig));
            let (text, mark) = (lines.next().unwrap(), lines.next().unwrap());
            let at = mark.find('^').unwrap_or_else(|| panic!("{told}"));
            assert!(text[at..].starts_with(marked), "{arch}: {told}");
        }
    }
    let framed = ["--events", "both", "--clock", "none", "--live", "all", "--sig", "void f(int a)", "--function", "f"];
    b.refuses(
        &[&first[..], &[any()], &framed].concat(),
        &["record --live all: a frame displaces the function's; valid: --form shadow"],
    );
    b.refuses(
        &["gen", "direct", "--call", "f", "--args", "1", "--arch", any(), "--unwind"],
        &["`--unwind` needs another"],
    );
    // The profiles of Linux say nothing of a thread.
    let linux = ["gen", "record", "--arch", any(), "--function", "f", "--events", "entry", "--clock", "none"];
    b.refuses(&linux, &["has no thread pointer for", "valid: one with `thread` in [arch."]);
}

/// The traced function is not called for itself.
#[test]
fn a_handler_is_another_function_than_the_traced_one() {
    let b = Bench::new();
    let common = ["--arch", any(), "--emit", "obj"];
    let jump = ["direct", "--args", "1", "--call", "f", "--jump", "--function", "f+8"];
    let around = ["around", "--args", "1", "--call", "f", "--exit", "g", "--function", "f"];
    let exits = ["around", "--args", "1", "--call", "g", "--exit", "f", "--function", "f"];
    let programs = ["programs", "--sig", "int f(int a)", "--fentry", "f"];
    for what in [&["direct", "--sig", "int f(int a)", "--call", "f"][..], &jump, &around, &exits, &programs] {
        b.refuses(&[&["gen"], what, &common].concat(), &["f is the traced function, and is what is called for it"]);
    }
    b.ok(&[&["gen", "direct", "--sig", "int f(int a)", "--call", "g"], &common[..]].concat());
}

#[test]
fn text_files_end_in_a_line() {
    let b = Bench::new();
    let shared = ["--sig", "long f(long)", "--function", "f", "--profile", "bare", "--arch", any(), "-o", "."];
    let direct = ["gen", "direct", "--sig", "void kfree_skb(struct sk_buff *skb)", "--call", "f", "--arch", any()];
    b.ok(&[&direct[..], &["--emit", "asm,h,json,contract,kmod", "-o", "."]].concat());
    let record = ["gen", "record", "--events", "both", "--clock", "none", "--emit", "template"];
    b.ok(&[&record[..], &shared].concat());
    let files = b.files();
    assert!(files.len() >= 8, "{files:?}");
    for name in files {
        let text = fs::read_to_string(b.path(&name)).unwrap();
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
    }
}

/// gcc takes its own ABI for that of a text, unless it is told; the comment says how.
#[test]
fn the_comment_says_how_gcc_assembles_it() {
    let b = Bench::new();
    for (arch, prefix) in arches() {
        b.ok(&["gen", "--all", "--arch", arch, "-o", "t.S"]);
        let text = fs::read_to_string(b.path("t.S")).unwrap();
        let told = text.lines().find_map(|line| line.split_once(", or ")).map(|(_, command)| command.to_owned());
        let command = told.unwrap_or_else(|| format!("{prefix}gcc -c t.S"));
        let words: Vec<&str> = command.split(' ').collect();
        b.tool(words[0], &words[1..]);
        assert!(b.path("t.o").exists(), "{command}");
        fs::remove_file(b.path("t.o")).unwrap();
    }
}

/// Who asks for a function with floating point and names no profile learns that kernels align stacks less than programs do.
#[test]
fn floating_point_asks_for_the_profile_of_programs() {
    let b = Bench::new();
    for (arch, _) in arches() {
        let told = |more: &[&str]| {
            let gen_hyp = ["gen", "direct", "--sig", "double hyp(double a, double b)", "--call", "h", "--arch", arch];
            let out = b.run(&[&gen_hyp[..], more].concat());
            assert!(out.status.success());
            String::from_utf8(out.stderr).unwrap().contains("--profile bare")
        };
        let backend = tool::backend(arch).unwrap();
        let target = tool::default_target(backend).unwrap();
        assert_eq!(told(&[]), target.stack_align < target.facts.abi.sp_align, "{arch}");
        assert!(!told(&["--profile", "bare"]) && !told(&["--profile", profiles::DEFAULT]), "{arch}");
    }
}
