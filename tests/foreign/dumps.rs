//! Code out of a running kernel, as hexadecimal text.

use crate::case::{ARCH, Case, TRAMPOLINE, flat};
use crate::common::expected::{Written, contract, expected, tools};
use crate::common::{CONTRACT, arches};

/// What was dumped from memory: the trampoline behind other bytes, its calls going elsewhere.
#[test]
fn a_dump_is_judged_as_an_object_and_its_calls_go_to_stubs() {
    let case = Case::new("", &CONTRACT.replace("\"direct_func\"", "\"0xffffffffa000114a\""));
    let dump = |text: &str| {
        let lead = "    .org    0x40, 0xcc\n";
        case.assemble("t", &(lead.to_owned() + &text.replace("my_direct_func", ". + 0x1004")));
        let (code, _, err) = case.run("x86_64-linux-gnu-objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"]);
        assert_eq!(code, Some(0), "{err}");
    };
    let check = |entry, arch| {
        let place = ["--base", "0xffffffffa0000100", "--entry", entry, "--arch", arch];
        case.tool(&[&["check", "--raw", "t.bin", "--contract", "t.toml"], &place[..]].concat())
    };
    let local = TRAMPOLINE.replace("    call    other_helper\n", "");
    dump(&local);
    let (code, out, err) = check("0xffffffffa0000140", ARCH);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("stands in for 0xffffffffa000114a"), "{out}");
    dump(&(local.replace("    pop     %rsi\n", "    add     $8, %rsp\n    call    9f\n") + "9:  ret\n"));
    let (code, out, _) = check("0xffffffffa0000140", ARCH);
    assert_eq!(code, Some(1));
    // What it calls is where it is in the dump.
    assert!(out.contains("call    0xffffffffa00001"), "{out}");
    assert!(out.contains("\n  rsi: expected") && flat(&out).contains("--raw t.bin --base 0xffffffffa0000100"), "{out}");
    let refused = |entry, arch, part: &str| {
        let (code, _, err) = check(entry, arch);
        assert!(code == Some(2) && err.contains(part), "{err}");
    };
    refused("0x40", ARCH, "--entry 0x40 is not in the dump; valid: 0xffffffffa0000100 to 0x");
    let other = arches().into_iter().map(|(arch, _)| arch).find(|arch| *arch != ARCH).unwrap();
    refused("0xffffffffa0000140", other, &format!("t.toml:2: is for {ARCH}; give --arch {ARCH}"));
    let (code, _, err) = case.tool(&["check", "--raw", "t.bin", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("--base"), "{err}");
    let (code, _, err) = case.tool(&["check", "--contract", "t.toml"]);
    assert!(code == Some(2) && err.contains("give --object FILE or --raw FILE"), "{err}");
}

/// What lies behind the trampoline is none of its own, however long it is; and of two trampolines each begins at its entry.
#[test]
fn a_dump_is_followed_as_far_as_its_code_goes() {
    let contract = CONTRACT.replace("\"direct_func\"", "\"0xffffffffa0001004\"");
    let more = contract[contract.find("[[").unwrap()..].replace("my_tramp", "other_tramp");
    let case = Case::new("", &contract);
    let body = TRAMPOLINE.replace("    call    other_helper\n", "").replace("my_direct_func", "0x1004");
    let body = body.lines().filter(|l| !l.contains(".globl") && !l.contains(".type") && !l.contains(".size"));
    let body = body.collect::<Vec<_>>().join("\n");
    let second = body.replace("my_tramp", "other_tramp");
    // Loads of constants are what takes longest to look at.
    let behind = ".rept 20000\n movabs $0x1234567, %rax\n .endr";
    let dump = |text: &str| {
        case.assemble("t", &format!("    .org 0x40, 0xcc\n{text}\n{behind}\n"));
        let ld = ["-Ttext=0", "--defsym=_start=0", "t.o", "-o", "t.elf"];
        assert_eq!(case.run("x86_64-linux-gnu-ld", &ld).0, Some(0));
        let (code, _, err) = case.run("x86_64-linux-gnu-objcopy", &["-O", "binary", "-j", ".text", "t.elf", "t.bin"]);
        assert_eq!(code, Some(0), "{err}");
    };
    let check = |more: &[&str]| {
        let place = ["check", "--raw", "t.bin", "--contract", "t.toml", "--base", "0xffffffffa0000000", "--arch", ARCH];
        case.tool(&[&place[..], more].concat())
    };
    dump(&body);
    let (code, out, err) = check(&["--entry", "0xffffffffa0000040"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    // Two, the second right behind the first, whose length nobody tells.
    dump(&format!("{body}\n{second}"));
    case.contract(&format!("{contract}{more}"));
    let size = second_at(&case);
    let entries =
        ["my_tramp=0xffffffffa0000040".to_owned(), format!("other_tramp={:#x}", 0xffff_ffff_a000_0000_u64 + size)];
    let both = ["--entry", &entries[0], "--entry", &entries[1]];
    let (code, out, err) = check(&both);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains(" my_tramp, other_tramp: "), "{out}");
    let refused = |more: &[&str], part: &str| {
        let (code, _, err) = check(more);
        assert!(code == Some(2) && err.contains(part), "{err}");
    };
    refused(&both[..2], "0 entries for other_tramp; valid: one --entry other_tramp=ADDR");
    refused(&["--entry", "their_tramp=0xffffffffa0000040"], "unknown trampoline in --entry SYMBOL=ADDR 'their_tramp'");
    refused(&[&both[..], &["--end", "0x10"]].concat(), "--end 0x10 is not in the dump");
    refused(
        &[&both[..], &["--end", "0xffffffffa0000041"]].concat(),
        "is not in the dump; valid: 0xffffffffa0000000 to",
    );
    // Cut off in the middle of the second, its rest is none of it: it runs on into what is not there.
    let end = format!("{:#x}", 0xffff_ffff_a000_0000_u64 + size + 1);
    let (code, out, _) = check(&[&both[..], &["--end", &end]].concat());
    assert!(code == Some(1) && out.contains("--end "), "{out}");
}

/// Where `other_tramp` is in `t.elf`.
fn second_at(case: &Case) -> u64 {
    let (_, symbols, _) = case.run("x86_64-linux-gnu-nm", &["t.elf"]);
    let line = symbols.lines().find(|l| l.ends_with(" other_tramp")).unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

/// Trampolines as BPF's compilers write them into memory: every call and every pointer is a constant.
#[test]
fn dumps_that_call_and_point_by_constants_are_followed() {
    for &backend in tool::BACKENDS {
        let (arch, prefix) = (backend.facts().name, tools(backend));
        let written = expected(backend).written;
        let Written { text: body, reload, outside, loses, astray, .. } = &written;
        let contract = contract(backend).replace("\"direct_func\"", "\"0xffffffffc0001000\"");
        let lost = format!("loses = {loses:?}\n");
        let given = "deviation = [{ clause = \"P10\", place = \"argument*\", reason = \"it is given a context\" }]\n";
        let case = Case::new("", &format!("{contract}{lost}{given}"));
        let check_at = |text: &str, base: &str| {
            std::fs::write(case.dir.path().join("t.S"), format!("{text}\n")).unwrap();
            for (tool, args) in
                [("as", &["t.S", "-o", "t.o"][..]), ("objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"][..])]
            {
                let (code, _, err) = case.run(&format!("{prefix}{tool}"), args);
                assert_eq!(code, Some(0), "{err}");
            }
            let place = ["--base", base, "--entry", base, "--arch", arch, "--contract", "t.toml"];
            case.tool(&[&["check", "--raw", "t.bin"], &place[..]].concat())
        };
        let check = |text: &str| check_at(text, "0xffffffffa0000000");
        for (far, near, target) in &written.near {
            assert!(body.contains(far), "{body}");
            let (_, out, _) = check_at(&body.replace(far, near), "0x11000");
            assert!(out.contains("stands in for") && out.contains(target), "{near}: {out}");
            assert!(!out.contains("emulator: "), "{near}: {out}");
        }
        let (code, out, err) = check(body);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        for target in outside {
            assert!(out.contains(target), "{arch}: nothing stands in for {target}: {out}");
        }
        // What is so near that nothing can stand in for it is named, with the dump that would do.
        for (insn, target) in &written.cut {
            let (code, _, err) = check_at(&format!("{insn}\n{body}"), "0xffffffffa0000000");
            let mnemonic = insn.rsplit("; ").next().and_then(|insn| insn.split(' ').next()).unwrap();
            let named =
                format!(" at 0xffffffffa0000000 goes to {target}, out of the dump, from 0xffffffffa0000000 to 0x");
            assert!(code == Some(2) && err.contains(mnemonic) && err.contains(&named), "{arch}, {insn}: {err}");
        }
        // What the function behind the constant destroys, the trampoline must bring back.
        assert!(body.contains(reload));
        let (code, out, _) = check(&body.replace(reload, "nop"));
        assert!(code == Some(1) && out.contains("FAIL P1 "), "{arch}: {out}");
        // An address that no constant has: the run ends, and the place is told.
        let (code, out, err) = check(&body.replace(&astray.0, &astray.1));
        assert!(
            body.contains(&astray.0) && code == Some(1) && out.contains("goes where no code is"),
            "{arch}: {out}{err}"
        );
        assert!(out.lines().any(|line| line.contains("=>")), "{arch}: {out}");
    }
}

/// Closures have their own address as a constant, and a word between their instructions that points to the code.
#[test]
fn pointers_that_lead_into_a_dump_are_followed() {
    for &backend in tool::BACKENDS {
        let (arch, prefix) = (backend.facts().name, tools(backend));
        let source = format!("{}/tests/observe/{arch}/closure.s", env!("CARGO_MANIFEST_DIR"));
        let case = Case::new("", "");
        for (tool, args) in
            [("as", &[source.as_str(), "-o", "t.o"][..]), ("objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"])]
        {
            let (code, _, err) = case.run(&format!("{prefix}{tool}"), args);
            assert_eq!(code, Some(0), "{err}");
        }
        let side = "t.bin@0x7f1200000000:0x7f1200000000";
        let (code, out, err) = case.tool(&["contract", "observe", side, "--arch", arch]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        for pointer in [" = \"&0x7f1200000000\"", "to = \"&0x7f1200000020\""] {
            assert!(out.contains(pointer), "{arch}: no {pointer} in {out}");
        }
        let (code, out, err) = case.tool(&["diff", side, side, "--arch", arch]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
    }
}

/// What GNU as makes of a constant, our tables read as that constant.
#[test]
fn constants_are_read_as_gnu_as_writes_them() {
    let values =
        [0xff60_0000_0123_4000_u64, 0xffff_ffff_8123_4567, 0xffff_ffd8_1234_5678, 0x1f, 0x7fff_f000, 0x12_3456_789a];
    let case = Case::new("", "");
    let cases =
        tool::BACKENDS.iter().flat_map(|&backend| expected(backend).constant.into_iter().map(move |c| (backend, c)));
    for (backend, constant) in cases {
        let (arch, prefix, option) = (backend.facts().name, tools(backend), &*constant.option);
        for value in values {
            std::fs::write(case.dir.path().join("t.S"), constant.text(value) + "\n").unwrap();
            for (tool, args) in [
                ("as", &["t.S", option, "-o", "t.o"][..]),
                ("objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"][..]),
            ] {
                let (code, _, err) = case.run(&format!("{prefix}{tool}"), args);
                assert_eq!(code, Some(0), "{err}");
            }
            let code = std::fs::read(case.dir.path().join("t.bin")).unwrap();
            let read = codegen::listing::pattern::Constant::read(backend.patterns(), &code, 0x1000);
            let last = read.last().map(|c| (c.value, c.size));
            assert_eq!(last, Some((value, code.len())), "{arch} {option}: {value:#x}: {code:x?}");
        }
    }
}
