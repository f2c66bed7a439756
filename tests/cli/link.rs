//! `link`, beside the binutils.

use std::fs;

use serde_json::Value;

use crate::common::expected::expected;
use crate::common::{Bench, arches};
use crate::inputs::{fixture, fixtures};

#[test]
fn binutils_accept_every_object() {
    for (arch, prefix) in arches() {
        let options = tool::convention(tool::backend(arch).unwrap()).unwrap().offered();
        let settings = options.flat_map(|(_, o)| o.values.iter().map(|value| format!("{}={value}", o.name)));
        for set in settings {
            let b = Bench::new();
            b.ok(&["gen", "--all", "--arch", arch, "--set", &set, "--emit", "obj,json"]);
            b.ok(&[
                "gen", "direct", "--args", "3", "--call", "f", "--arch", arch, "--set", &set, "--emit", "obj",
                "--stem", "direct",
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
    for (arch, prefix) in arches() {
        let b = Bench::new();
        // Of 7.3, no call in an entry trampoline of riscv64 is patched, and its sites jump nowhere.
        let profile = ["--profile", "linux-6.12"];
        let mut generate = [&["gen", "--all", "--arch", arch, "--emit", "obj"], &profile[..]].concat();
        let linked = expected(tool::backend(arch).unwrap()).linked;
        generate.extend(linked.set.iter().flat_map(|set| ["--set", set]));
        b.ok(&generate);
        let object = format!("{arch}.o");
        let (functions, callbacks) = fixtures(arch);
        let link = [&["link"], &profile[..], &[&object, &functions, &callbacks, "-o"]].concat();
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
        if linked.resolved {
            assert!(enabled.contains("<ftrace_caller>"), "{enabled}");
            let entry = code("patched", "ftrace_caller");
            assert!(entry.contains("<callback>"), "{entry}");
        }

        let handlers = ["--call", "direct_func", "--exit", "ftrace_return_to_handler", "--name", "paired"];
        let function = format!("args3+{}", expected(tool::backend(arch).unwrap()).process.site);
        let around =
            ["gen", "around", "--args", "3", "--function", &function, "--arch", arch, "--emit", "obj", "--stem"];
        b.ok(&[&around[..], &["paired"], &handlers, &profile].concat());
        let jump = ["link", "paired.o", &functions, &callbacks, "-o", "jumped", "--jump", "args3=paired"];
        b.ok(&[&jump[..], &profile].concat());
        // Where it does not call, no link register is written, and no call is decoded.
        let jumped = code("jumped", "args3");
        assert!(jumped.lines().any(|l| l.contains(&linked.jump)), "{jumped}");

        let bad = |more: &[&str], parts: &[&str]| b.refuses(&[&link[..], &["image"], more].concat(), parts);
        bad(&["--patch", "nonsense=ftrace_caller"], &["nonsense", "args3"]);
        bad(&["--patch", "args3=nonsense"], &["nonsense", "args3"]);
        bad(&["--patch", "args3"], &["args3", "valid"]);
        bad(&["--call", "nonsense=callback"], &["nonsense"]);
        bad(&["--call", "ftrace_call=nonsense"], &["nonsense", "ftrace_call"]);
        bad(&["--patch", "args3=ftrace_caller", "--ops", "nonsense"], &["nonsense", "ftrace_ops"]);
        bad(&["--base", "0x80000001"], &["0x80000001", "0x1000"]);
        bad(&["--base", "x"], &["--base", "x"]);
        // The name of the object and of the symbol.
        b.refuses(&["link", &object, "-o", "image"], &["function_trace_op", &object]);
        b.refuses(&[&link[..5], &[&callbacks, "-o", "image"], &[&object]].concat(), &["ftrace_stub", &object]);
        b.refuses(&["link", "missing.o", "-o", "image"], &["missing.o", "valid"]);
        b.refuses(&["link", &object, &functions, &callbacks, "-o", "missing/image"], &["missing/image", "valid"]);
        fs::create_dir(b.path("dir")).unwrap();
        b.refuses(&["link", &object, &functions, &callbacks, "-o", "dir"], &["dir", "directory"]);
        b.refuses(&["link", &object], &["-o"]);
        b.refuses(&["link", "-o", "image"], &["OBJ"]);
    }
}

/// Trampolines of arm64 read their ftrace_ops from before the function.
#[test]
fn link_gives_a_function_its_ops() {
    let b = Bench::new();
    b.ok(&["gen", "--all", "--arch", "arm64", "--emit", "obj"]);
    let (functions, callbacks) = (fixture("arm64/callops.o"), fixture("arm64/callbacks.o"));
    let link = ["link", "arm64.o", &functions, &callbacks, "-o", "image", "--patch", "args3=ftrace_caller"];
    b.refuses(&link, &["args3", "--ops"]);
    b.ok(&[&link[..], &["--ops", "ops"]].concat());
    let symbols = b.tool("aarch64-linux-gnu-nm", &["image"]);
    let address = |name: &str| {
        let line = symbols.lines().find(|l| l.split(' ').next_back() == Some(name)).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let image = link::Image::from_elf(&fs::read(b.path("image")).unwrap()).unwrap();
    assert_eq!(image.bytes(address("args3") - 8, 8).unwrap(), address("ops").to_le_bytes());
}

#[test]
fn link_refuses_what_does_not_go_together() {
    let b = Bench::new();
    for (arch, _) in arches() {
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

/// Where a function begins with a landing pad, its site is behind that: a trampoline that knows nothing of it leads to the site again.
#[test]
fn a_way_on_that_is_not_behind_the_site_is_refused() {
    let (b, arch) = (Bench::new(), "arm64");
    let functions = fixture("arm64/bti.o");
    let (_, callbacks) = fixtures(arch);
    let record = [
        "gen",
        "record",
        "--events",
        "both",
        "--form",
        "shadow",
        "--clock",
        "none",
        "--profile",
        "bare",
        "--arch",
        arch,
    ];
    let link = ["link", "--profile", "bare", &functions, &callbacks, "-o", "image", "--jump", "args3=args3_tramp"];
    for (stem, more) in [("usual", None), ("behind", Some("--landing-pad"))] {
        let of = |function: &'static str, what| [&record[..], &["--function", function, "--emit", what]].concat();
        b.ok(&[of("args3", "obj"), vec!["--stem", stem], more.into_iter().collect()].concat());
        let judged = format!("judged_{stem}");
        if cfg!(feature = "judge") {
            b.ok(&[of("traced", "obj,contract"), vec!["--stem", &judged], more.into_iter().collect()].concat());
        }
    }
    b.refuses(
        &[&link[..], &["usual.o"]].concat(),
        &["args3_tramp goes on at args3+8, and the site there ends at +12; valid: a trampoline for --function args3+12"],
    );
    b.ok(&[&link[..], &["behind.o"]].concat());
    if cfg!(feature = "judge") {
        // It is judged with functions whose site is not where it leads.
        let check = |stem: &'static str| ["check", "--fixture", "bti", "--object", stem, "--contract"];
        b.refuses(&[&check("judged_usual.o")[..], &["judged_usual.toml"]].concat(), &["nothing is left to run"]);
        b.ok(&[&check("judged_behind.o")[..], &["judged_behind.toml"]].concat());
    }
}
