//! `gen` for a kernel: from its configuration, with symbols for modules, with a fault.

use std::fs;
use std::process::Command;

use common::Bench;
use common::expected::{expected, tools, words};

mod common;

const OFFSETS: &str = "asm-offsets.h";

const NEEDED: [&str; 3] = ["FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_ARGS", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"];

fn config(version: &str, options: &[&str]) -> String {
    let set: String = options.iter().map(|o| format!("CONFIG_{o}=y\n")).collect();
    format!(
        "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x {version} Kernel Configuration\n#\n{set}# CONFIG_NO is not set\n"
    )
}

/// The numbers of such a kernel, but for those that are given.
fn offsets(config: &[&str], given: &[&str]) -> String {
    let kernels = tool::BACKENDS.iter().map(|backend| expected(*backend).kernel);
    let all = kernels.filter(|kernel| config.contains(&kernel.config.as_str())).flat_map(|kernel| kernel.numbers);
    let all: Vec<String> = all.collect();
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let others = all.iter().filter(|line| given.iter().all(|g| name(g) != name(line)));
    others.map(String::as_str).chain(given.iter().copied()).map(|l| format!("#define {l} /* sizeof(x) */\n")).collect()
}

fn write(b: &Bench, config: &str, offsets: &str) {
    fs::write(b.path(".config"), config).unwrap();
    fs::create_dir_all(b.path("include/generated")).unwrap();
    fs::write(b.path("include/generated").join(OFFSETS), offsets).unwrap();
}

#[test]
fn a_configuration_decides_as_the_same_options_would() {
    let cases = tool::BACKENDS.iter().flat_map(|backend| {
        let kernel = expected(*backend).kernel;
        kernel.case.into_iter().map(move |case| (*backend, kernel.by_hand.clone(), case))
    });
    for (backend, other, case) in cases {
        let b = Bench::new();
        let [config_of, offsets_of, settings] = [&case.config, &case.offsets, &case.settings].map(|all| words(all));
        let arch = backend.facts().name;
        let what = format!("{arch} {settings:?}");
        write(&b, &config("6.12.117", &[&config_of[..], &NEEDED].concat()), &offsets(&config_of, &offsets_of));
        let set: Vec<&str> = settings.iter().flat_map(|s| ["--set", s]).collect();
        let convention = tool::convention(backend).unwrap();
        let all: Vec<&str> = convention.specs().map(|spec| spec.name).collect();
        // That of kretprobes begins in the same way, and is in no kernel's file beside the others.
        let named = all.into_iter().filter(|name| *name != "arch_rethook_trampoline");
        let (exit, others): (Vec<&str>, Vec<&str>) = named.partition(|name| *name == "return_to_handler");
        let generate = |names: &[&str], stem: &str, from: &[&str]| {
            let command = [&["gen"], names, &["--emit", "bin,json,obj", "--stem", stem], from].concat();
            let out = b.run(&command);
            let told = String::from_utf8(out.stderr).unwrap();
            assert!(out.status.success(), "{told}");
            let files = [".bin", ".json"].map(|end| fs::read(b.path(&format!("{stem}{end}"))).unwrap());
            (files, told)
        };
        let by_hand = [&["--arch", arch, "--profile", "linux-6.12"], &set[..]].concat();
        let (wanted, _) = generate(&others, "set", &by_hand);
        let ([wanted_exit, _], _) = generate(&exit, "set-exit", &by_hand);
        let files = format!("include/generated/{OFFSETS}");
        for from in [&["--kernel-build", "."][..], &["--config", ".config", "--asm-offsets", &files]] {
            let (found, told) = generate(&others, "config", from);
            assert!(found == wanted, "{what}");
            // A kernel has no unwind tables, and so no use for the instruction before it that is in one.
            let ([found, _], _) = generate(&exit, "config-exit", from);
            assert!(wanted_exit.len() > found.len() && wanted_exit.ends_with(&found), "{what}");
            // It says what it took, and from where.
            for setting in &settings {
                assert!(told.contains(setting), "{setting} in {told}");
            }
            assert!(told.contains(OFFSETS) && told.contains(&format!("CONFIG_{}=y", config_of[0])), "{told}");
        }
        // What is given by hand goes before.
        let by_hand = ["--kernel-build", ".", "--set"];
        if let Some(other) = other.as_deref() {
            let (found, _) = generate(&others, "hand", &[&by_hand[..], &[other]].concat());
            let same = found == wanted;
            // A kernel's linker warns of unwind tables.
            assert!(!b.tool("readelf", &["-SW", "hand.o"]).contains("eh_frame"));
            assert_eq!(same, settings.contains(&other), "{what}");
        }
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let b = Bench::new();
    let refused = |version: &str, options: &[&str], numbers: &[&str], parts: &[&str]| {
        write(&b, &config(version, options), &offsets(options, numbers));
        b.refuses(&["gen", "--all", "--kernel-build", "."], parts);
    };
    let with = |more: &[&'static str]| [&["RISCV_ISA_C"][..], &NEEDED[..], more].concat();
    let (riscv, number) = (with(&["ARCH_RV64I"]), []);
    refused("6.1.170", &riscv, &number, &["6.1.170", "6.12, 7.2, 7.3, or a later one"]);
    refused("seven", &riscv, &number, &["no kernel version in its heading"]);
    refused("6.12.1", &with(&["S390"]), &number, &["CONFIG_X86_64", "CONFIG_ARM64", "CONFIG_ARCH_RV64I"]);
    refused("6.12.1", &["ARCH_RV64I", "FUNCTION_TRACER"], &number, &["CONFIG_DYNAMIC_FTRACE_WITH_ARGS is not set"]);
    let without = [&["X86_64"][..], &NEEDED[..2]].concat();
    refused("6.12.1", &without, &[], &["CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS is not set"]);
    let mut numbers = 0;
    for kernel in tool::BACKENDS.iter().map(|backend| expected(*backend).kernel) {
        let options = [&words(&kernel.needs_all)[..], &["RISCV_ISA_C"], &NEEDED].concat();
        for name in kernel.numbers.iter().filter_map(|line| line.split(' ').next()) {
            let all = offsets(&options, &[]);
            write(&b, &config("6.12.1", &options), &all.replace(&format!("#define {name} "), "#define OTHER "));
            b.refuses(&["gen", "--all", "--kernel-build", "."], &[OFFSETS, &format!("no {name};")]);
            numbers += 1;
        }
    }
    assert!(numbers > 20, "{numbers}");
    refused("6.12.1", &riscv, &["FREGS_A1 40"], &["FREGS_A0", "FREGS_A1", "both at 40"]);
    let aligned = ["CONFIG_FUNCTION_ALIGNMENT_64B=y is not supported", "room before them"];
    refused("6.12.1", &with(&["X86_64", "FUNCTION_ALIGNMENT_64B"]), &[], &aligned);
    refused("6.12.1", &with(&["X86_64", "STACK_VALIDATION"]), &[], &["CONFIG_STACK_VALIDATION=y is not supported"]);
    b.refuses(&["gen", "--all", "--kernel-build", "nowhere"], &["nowhere/.config", "make prepare"]);
    b.refuses(&["gen", "--all", "--kernel-build", ".", "--arch", "arm64"], &["--arch"]);
    b.refuses(&["gen", "--all", "--config", ".config"], &["--asm-offsets"]);
    b.refuses(&["gen", "--all"], &["--arch"]);
}

/// The profile is that of the tree, whoever wrote the configuration; of a kernel that no profile was written for, it is that of
/// the last one before, and a warning says what to compare.
#[test]
fn the_profile_follows_from_the_tree() {
    let b = Bench::new();
    let options = [&["ARM64", "DYNAMIC_FTRACE_WITH_CALL_OPS"][..], &NEEDED].concat();
    let numbers = &offsets(&options, &[]);
    let gen_known = ["gen", "ftrace_stub", "--kernel-build", ".", "--emit", "json", "--stem", "k"];
    let told = |version: &str, more: &[&str]| {
        write(&b, &config(version, &options), numbers);
        let out = b.run(&[&gen_known[..], more].concat());
        let told = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.success(), "{version}: {told}");
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(b.path("k.json")).unwrap()).unwrap();
        (manifest["profile"].as_str().unwrap().to_owned(), told)
    };
    for (version, profile, known) in [
        ("6.12.117", "linux-6.12", true),
        ("7.2.13", "linux-7.2", true),
        ("7.3.4", "linux-7.3", true),
        ("6.13.1", "linux-6.12", false),
        ("6.120.1", "linux-6.12", false),
        ("7.1.9", "linux-6.12", false),
        ("7.30.1", "linux-7.3", false),
        ("8.0.0-rc1", "linux-7.3", false),
    ] {
        let (found, told) = told(version, &[]);
        assert_eq!(found, profile, "{version}");
        assert_eq!(!told.contains("warning"), known, "{version}: {told}");
        if !known {
            let compare = ["compare", "arch/arm64/kernel/entry-ftrace.S", "kernel/trace/ftrace.c", version, profile];
            assert!(compare.iter().all(|part| told.contains(part)), "{told}");
        }
    }
    // What is said by name holds, for later kernels with the same warning.
    let (found, told) = told("7.3.4", &["--profile", "linux-6.12"]);
    assert!(found == "linux-6.12" && told.contains("warning: Linux 7.3.4 is later than 6.12"), "{told}");
    write(&b, &config("6.12.1", &options), numbers);
    b.refuses(&[&gen_known[..], &["--profile", "linux-7.3"]].concat(), &["6.12.1", "a kernel 7.3 or later"]);
    b.refuses(&[&gen_known[..], &["--profile", "bare"]].concat(), &["profile bare is for no kernel"]);
    // The tree knows better than the heading, and both must mean one kernel.
    fs::create_dir_all(b.path("include/config")).unwrap();
    for (file, text) in [
        ("Makefile", "# SPDX\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n"),
        ("include/config/kernel.release", "7.3.4-mine\n"),
    ] {
        fs::write(b.path(file), text).unwrap();
        b.refuses(&gen_known, &["written by 6.12.1", "the tree is 7.3.4", "make olddefconfig"]);
        write(&b, &config("7.3.1", &options), numbers);
        let run = b.run(&gen_known);
        let told = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.success() && told.contains("profile linux-7.3 for Linux 7.3.4"), "{told}");
        write(&b, &config("6.12.1", &options), numbers);
    }
}

#[test]
fn symbols_for_modules() {
    let b = Bench::new();
    b.ok(&["gen", "--all", "--arch", "riscv64", "--emit", "obj,asm", "--export", "_mcount=ftrace_stub"]);
    let symbols = b.tool("riscv64-linux-gnu-nm", &["riscv64.o"]);
    let address = |name: &str| {
        let line = symbols.lines().find(|l| l.ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("no {name}"));
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(address("_mcount"), address("ftrace_stub"));
    assert_eq!(address("__export_symbol__mcount"), "0000000000000000");
    // As include/linux/export.h says: a licence, a namespace, and the address at a multiple of 8.
    let relocations = b.tool("riscv64-linux-gnu-objdump", &["-r", "-j", ".export_symbol", "riscv64.o"]);
    assert!(relocations.lines().any(|l| l.contains("0000000000000008 R_RISCV_64") && l.ends_with("_mcount")));
    let refused = |export: &str, parts: &[&str]| {
        b.refuses(&["gen", "ftrace_stub", "--arch", "riscv64", "--export", export], parts);
    };
    refused("_mcount", &["no pair", "SYMBOL=TRAMPOLINE"]);
    refused("_mcount=ftrace_caller", &["unknown trampoline", "valid: ftrace_stub"]);
    refused("a b=ftrace_stub", &["'a b' is no symbol"]);
    refused("ftrace_stub=ftrace_stub", &["defined twice"]);
}

#[test]
fn the_source_of_a_module() {
    let b = Bench::new();
    let gen_direct = ["gen", "direct", "--call", "seen", "--emit", "kmod", "--sig"];
    let sig = "static ssize_t comm_write(struct file *file, const char __user *buf, union u *u, struct file *other)";
    for backend in tool::BACKENDS {
        let (arch, prefix, flags) = (backend.facts().name, tools(*backend), expected(*backend).kernel.gcc);
        let flags = words(&flags);
        b.ok(&[&gen_direct[..], &[sig, "--arch", arch, "-o", arch]].concat());
        let read = |name: &str| fs::read_to_string(b.path(arch).join(name)).unwrap();
        let main = read("seen_main.c");
        let params = "(struct file *file, const char __user *buf, union u *u, struct file *other)";
        for part in [
            "\nstruct file;\nunion u;\n\n",
            &format!("\nvoid seen{params};\n"),
            &format!("\nvoid seen{params}\n{{\n"),
            "function[] = \"comm_write\"",
            "#define DIRECT ((unsigned long)seen_tramp)\n",
            "register_ftrace_direct(&direct, DIRECT)",
        ] {
            assert!(main.contains(part), "{part} in {main}");
        }
        assert!(read("Kbuild").contains("obj-m := seen.o\nseen-y := seen_main.o seen_tramp.o\n"));
        assert!(read("Makefile").contains("M=$(CURDIR)"));
        assert!(!b.path(arch).join("seen_tramp.o_shipped").exists());
        // The C preprocessor sees no directive, and the code is that of the object.
        let text = read("seen_tramp.S");
        assert!(!text.lines().any(|l| l.trim_start().starts_with('#')), "{text}");
        b.ok(&["gen", "direct", "--call", "seen", "--sig", sig, "--arch", arch, "--emit", "bin", "--stem", arch]);
        let source = format!("{arch}/seen_tramp.S");
        b.tool(&format!("{prefix}gcc"), &[&flags[..], &["-c", &source, "-o", "seen.o"]].concat());
        b.tool(&format!("{prefix}objcopy"), &["-O", "binary", "-j", ".text", "seen.o", "seen.bin"]);
        let (ours, theirs) = (fs::read(b.path(&format!("{arch}.bin"))).unwrap(), fs::read(b.path("seen.bin")).unwrap());
        assert!(ours == theirs, "{arch}: {ours:02x?} {theirs:02x?}");
    }
    // What is jumped to says so in its address.
    let jump = ["--arch", "x86_64", "--profile", "linux-7.3", "--jump", "--function", "comm_write+9", "-o", "jumped"];
    b.ok(&[&gen_direct[..], &[sig], &jump].concat());
    let main = fs::read_to_string(b.path("jumped/seen_main.c")).unwrap();
    for part in
        ["#define DIRECT ftrace_jmp_set((unsigned long)seen_tramp)\n", "#ifndef CONFIG_DYNAMIC_FTRACE_WITH_JMP\n"]
    {
        assert!(main.contains(part), "{part} in {main}");
    }
    // For a kernel that is known: the object too.
    write(&b, &config("6.12.117", &[&NEEDED[..], &["ARCH_RV64I"]].concat()), &offsets(&["ARCH_RV64I"], &[]));
    assert!(b.run(&[&gen_direct[..], &[sig, "--kernel-build", ".", "-o", "known"]].concat()).status.success());
    let object = ["gen", "direct", "--call", "seen", "--emit", "obj", "--stem", "known", "--sig", sig];
    assert!(b.run(&[&object[..], &["--kernel-build", "."]].concat()).status.success());
    let shipped = fs::read(b.path("known/seen_tramp.o_shipped")).unwrap();
    assert!(shipped == fs::read(b.path("known.o")).unwrap());
    let kbuild = fs::read_to_string(b.path("known/Kbuild")).unwrap();
    assert!(kbuild.contains("$(obj)/seen_tramp.o: $(src)/seen_tramp.o_shipped FORCE\n\t$(call if_changed,copy)\n"));
    let refused = |sig: &str, more: &[&str], parts: &[&str]| {
        b.refuses(&[&gen_direct[..], &[sig, "--arch", "arm64"], more].concat(), parts);
    };
    refused("void f(double x)", &[], &["floating-point"]);
    refused("struct big { 40, 8 } f(int x)", &[], &["in memory"]);
    refused("void f(struct s { 16, 8 } x)", &[], &["does not know", "pointers"]);
    refused("void f(enum e x)", &[], &["does not know", "int for an enum"]);
    refused("void f(int x)", &["--stem", "a-b"], &["'a-b' is no name", "--stem"]);
    refused("void f(int x)", &["-o", "-"], &["-o -", "4"]);
    b.refuses(
        &["gen", "direct", "--call", "f", "--args", "1", "--emit", "kmod", "--arch", "arm64"],
        &["prototype", "--sig"],
    );
    b.refuses(&["gen", "ftrace_stub", "--emit", "kmod", "--arch", "arm64"], &["prototype"]);
    let other = ["--emit", "kmod", "--arch", "arm64", "--sig", "int f(long a)"];
    b.refuses(
        &[&["gen", "around", "--call", "e", "--exit", "x", "--function", "f"], &other[..]].concat(),
        &["one direct-call"],
    );
    write(&b, &config("6.12.117", &["ARM64", NEEDED[0], NEEDED[1]]), &offsets(&["ARM64"], &[]));
    b.refuses(&[&gen_direct[..], &["void f(int x)", "--kernel-build", "."]].concat(), &[NEEDED[2], "registers"]);
    b.refuses(&[&["gen", "programs", "--fentry", "e"], &other[..]].concat(), &["one direct-call"]);
    b.refuses(&[&["gen", "direct", "--call", "calls"], &other[..]].concat(), &["called calls", "--call"]);
    b.refuses(&[&["gen", "direct", "--call", "a.b", "--stem", "m"], &other[..]].concat(), &["'a.b'", "as C has names"]);
}

#[test]
fn an_object_with_a_fault() {
    let b = Bench::new();
    let of = ["--arch", "riscv64", "--profile", "linux-6.12"];
    let args = [&["gen", "ftrace_stub", "ftrace_caller"], &of[..], &["--emit", "bin", "--stem"]].concat();
    b.ok(&[&args[..], &["good"]].concat());
    b.ok(&[&args[..], &["bad", "--fault", "ftrace_caller:DROP_RESTORE(a1)"]].concat());
    let (good, bad) = (fs::read(b.path("good.bin")).unwrap(), fs::read(b.path("bad.bin")).unwrap());
    // `ld a1, 48(sp)`, compressed, as GNU as has it: it is there once, and then it is gone.
    let load = [0xc2, 0x75];
    let at = good.windows(2).position(|w| w == load).expect("the load");
    let without = [&good[..at], &good[at + 2..]].concat();
    // What fills the end up to a multiple of 4 is needed no more.
    assert_eq!(without, [&bad[..], &[0x01, 0x00]].concat());
    let refused = |fault: &str, emit: &str, parts: &[&str]| {
        b.refuses(&[&["gen", "ftrace_caller", "--emit", emit, "--fault", fault], &of[..]].concat(), parts);
    };
    refused("ftrace_caller:DROP_RESTORE(a1)", "asm", &["--emit obj"]);
    refused("DROP_RESTORE(a1)", "obj", &["TRAMPOLINE:MUTANT"]);
    refused("ftrace_stub:DROP_RESTORE(a1)", "obj", &["unknown trampoline", "valid: ftrace_caller"]);
    refused("ftrace_caller:DROP_RESTORE", "obj", &["unknown mutant", "valid: DROP_RESTORE(", "@"]);
    refused("ftrace_caller:DROP_RESTORE(s1)", "obj", &["unknown mutant", "DROP_RESTORE(a1)@"]);
}

#[test]
#[ignore = "needs what `cargo xtask kernel-objects` builds; `./x test` runs it where that is there"]
fn kernels_own_objtool_wants_nothing_more() {
    // 7.3 names only what is before functions that a compiler listed.
    for (version, release, regs_call, names) in [("6.12", "6.12.117", "0x1a9", true), ("7.3", "7.3.4", "0x1ad", false)]
    {
        objtool_wants_nothing_more(version, release, regs_call, names);
    }
}

/// The objtool of this version; where in `ftrace_regs_caller` a call is that only pushes; whether it names what is before a
/// trampoline.
fn objtool_wants_nothing_more(version: &str, release: &str, regs_call: &str, names: bool) {
    let built = format!("build/linux-{version}-x86_64-orc/tools/objtool/objtool");
    let objtool = kernel_cache::directory().unwrap().join(built);
    let said = |b: &Bench, flags: &[&str], object: &str| {
        let args = ["--orc", "--static-call", "--link", object];
        let run = Command::new(&objtool).args(flags).args(args).current_dir(b.path("")).output();
        let run = run.unwrap_or_else(|e| panic!("{}: {e}", objtool.display()));
        String::from_utf8_lossy(&run.stderr).into_owned()
    };
    let no_notes = format!("ftrace_regs_caller+{regs_call}: unannotated intra-function call");
    let no_notes = no_notes.as_str();
    let profile = format!("linux-{version}");
    // For each configuration, what the kernel gives objtool, and what that says of code for another.
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&[], &[], no_notes),
        (&["X86_KERNEL_IBT"], &["--ibt"], no_notes),
        (&["MITIGATION_SLS"], &["--sls"], "missing int3 after ret"),
        (&["MITIGATION_RETHUNK", "X86_KERNEL_IBT"], &["--ibt", "--retpoline", "--rethunk"], "'naked' return found"),
    ];
    for (options, flags, otherwise) in cases {
        let b = Bench::new();
        let all = [options, &NEEDED[..], &["X86_64", "OBJTOOL"]].concat();
        write(&b, &config(release, &all), "");
        let args =
            ["gen", "--all", "--export", "__fentry__=ftrace_stub", "--emit", "obj", "--profile", &profile, "--stem"];
        assert!(b.run(&[&args[..], &["ours", "--kernel-build", "."]].concat()).status.success());
        assert_eq!(said(&b, flags, "ours.o"), "", "{options:?}");
        // It has looked: there is an unwind table, and other code would not pass.
        assert!(b.tool("readelf", &["-SW", "ours.o"]).contains(" .orc_unwind "));
        let other: &[&str] = match otherwise {
            text if text == no_notes => &["--arch", "x86_64"],
            _ => &["--kernel-build", ".", "--set", "return=ret"],
        };
        assert!(b.run(&[&args[..], &["other"], other].concat()).status.success());
        let of_other = said(&b, flags, "other.o");
        assert!(of_other.contains(otherwise), "{options:?}: {of_other}");
    }
    // It may name what is before a function, if that is as long as before the kernel's own, and nothing but NOPs.
    let b = Bench::new();
    write(&b, &config(release, &[&NEEDED[..], &["X86_64", "OBJTOOL", "CALL_PADDING"]].concat()), "");
    for (padding, named) in [(&[][..], names), (&["--set", "call-padding=off"], false)] {
        let args = ["gen", "--all", "--emit", "obj", "--profile", &profile, "--stem", "ours", "--kernel-build", "."];
        assert!(b.run(&[&args[..], padding].concat()).status.success());
        assert_eq!(said(&b, &["--prefix=16"], "ours.o"), "");
        let symbols = b.tool("x86_64-linux-gnu-nm", &["ours.o"]);
        let before = |name: &&str| symbols.contains(&format!(" __pfx_{name}\n"));
        assert!(
            ["ftrace_caller", "ftrace_regs_caller", "return_to_handler"].iter().all(|n| before(n) == named),
            "{symbols}"
        );
    }
}
