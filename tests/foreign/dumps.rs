//! Code out of a running kernel, as hexadecimal text.

use crate::case::{Case, TRAMPOLINE};
use crate::common::CONTRACT;

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
    let (code, out, err) = check("0xffffffffa0000140", "x86_64");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("stands in for 0xffffffffa000114a"), "{out}");
    dump(&local.replace("    pop     %rsi\n", "    add     $8, %rsp\n"));
    let (code, out, _) = check("0xffffffffa0000140", "x86_64");
    assert_eq!(code, Some(1));
    assert!(out.contains("\n  rsi: expected") && out.contains("--raw t.bin --base 0xffffffffa0000100"), "{out}");
    let refused = |entry, arch, part: &str| {
        let (code, _, err) = check(entry, arch);
        assert!(code == Some(2) && err.contains(part), "{err}");
    };
    refused("0x40", "x86_64", "--entry 0x40 is not in the dump; valid: 0xffffffffa0000100 to 0x");
    refused("0xffffffffa0000140", "arm64", "t.toml:2: is for x86_64; give --arch x86_64");
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
        let place =
            ["check", "--raw", "t.bin", "--contract", "t.toml", "--base", "0xffffffffa0000000", "--arch", "x86_64"];
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
    assert!(out.lines().any(|l| l.trim_start().starts_with("other_tramp ")), "{out}");
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

/// Trampolines as BPF's compilers write them into memory: every call and every pointer is a constant. By architecture:
/// assembler's prefix, alignment, how the last argument comes back, what is outside, a call that cannot be followed.
type Written = (&'static str, &'static str, &'static str, &'static str, &'static str, (&'static str, &'static str));

const BPF: [(Written, &str); 3] = [
    (
        (
            "x86_64",
            "x86_64-linux-gnu-",
            "8",
            "mov -8(%rbp), %rsi",
            "0xffffc90000123000 0xffffffffc0001000 0xffffffffa0",
            ("call *%rax", "btc $45, %rax\n call *%rax"),
        ),
        "push %rbp
         mov %rsp, %rbp
         sub $48, %rsp
         mov %rbx, -32(%rbp)
         movq $2, -24(%rbp)
         mov %rdi, -16(%rbp)
         mov %rsi, -8(%rbp)
         movabs $0xffffc90000123000, %rdi
         movabs $0xffffffffa0000000, %rdx
         lea -48(%rbp), %rsi
         call . + 0x100000
         mov %rax, %rbx
         test %rax, %rax
         je 1f
         lea -16(%rbp), %rdi
         movabs $0xffffffffc0001000, %rax
         call *%rax
     1:  movabs $0xffffc90000123000, %rdi
         mov %rbx, %rsi
         lea -48(%rbp), %rdx
         call . + 0x200000
         mov -16(%rbp), %rdi
         mov -8(%rbp), %rsi
         mov -32(%rbp), %rbx
         leave
         ret",
    ),
    (
        (
            "arm64",
            "aarch64-linux-gnu-",
            "16",
            "ldp x0, x1, [sp, #24]",
            "0xffff800080123000 0xffff800080001000 0xffffffffc0001000",
            ("blr x10\n         mov x20", "eor x10, x10, #1 << 45\n blr x10\n mov x20"),
        ),
        "stp x29, x9, [sp, #-16]!
         mov x29, sp
         stp x29, x30, [sp, #-16]!
         mov x29, sp
         sub sp, sp, #64
         mov x10, #2
         str x10, [sp, #16]
         stp x0, x1, [sp, #24]
         stp x19, x20, [sp, #40]
         movn x19, #0xcfff
         movk x19, #0x8012, lsl #16
         movk x19, #0x8000, lsl #32
         mov x0, x19
         mov x1, sp
         movn x10, #0xefff
         movk x10, #0x8000, lsl #16
         movk x10, #0x8000, lsl #32
         blr x10
         mov x20, x0
         cbz x0, 1f
         add x0, sp, #24
         movz x10, #0x1000
         movk x10, #0xc000, lsl #16
         movk x10, #0xffff, lsl #32
         movk x10, #0xffff, lsl #48
         blr x10
     1:  bl . + 0x100000
         ldp x0, x1, [sp, #24]
         ldp x19, x20, [sp, #40]
         mov sp, x29
         ldp x29, x30, [sp], #16
         ldp x29, x9, [sp], #16
         mov x10, x30
         mov x30, x9
         ret x10",
    ),
    (
        (
            "riscv64",
            "riscv64-linux-gnu-",
            "16",
            "ld a1, -24(s0)",
            "0xff60000001234000 0xffffffffc0001000 0xffffffff81234560 0xffffffffa0",
            ("jalr ra, 0x20(t1)", "sub t1, t1, sp\n jalr ra, 0x20(t1)"),
        ),
        "addi sp, sp, -16
         sd ra, 8(sp)
         sd s0, 0(sp)
         addi s0, sp, 16
         addi sp, sp, -64
         sd t0, 56(sp)
         sd s0, 48(sp)
         addi s0, sp, 64
         sd s1, 0(sp)
         sd a0, -32(s0)
         sd a1, -24(s0)
         li a0, 0xff60000001234000
         addi a1, sp, 8
         auipc ra, 0x100
         jalr ra, 0x10(ra)
         mv s1, a0
         beqz a0, 1f
         addi a0, s0, -32
         li t1, 0xffffffffc0001000
         jalr t1
     1:  lui a0, 0x81234
         addiw a0, a0, 0x560
         auipc t1, 0x200
         jalr ra, 0x20(t1)
         ld a0, -32(s0)
         ld a1, -24(s0)
         ld s1, 0(sp)
         ld t0, 56(sp)
         ld s0, 48(sp)
         addi sp, sp, 64
         ld ra, 8(sp)
         ld s0, 0(sp)
         addi sp, sp, 16
         jr t0",
    ),
];

#[test]
fn dumps_that_call_and_point_by_constants_are_followed() {
    for ((arch, prefix, align, reload, targets, jump), body) in BPF {
        let contract = CONTRACT
            .replace("x86_64", arch)
            .replace("\"direct_func\"", "\"0xffffffffc0001000\"")
            .replace("stack-align = 8", &format!("stack-align = {align}"));
        let lost = if arch == "arm64" { "loses = [\"x8\"]\n" } else { "" };
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
        if arch == "riscv64" {
            // Below 4 GiB too, and by JAL.
            for (near, target) in [("auipc ra, 0x100\n jalr ra, 0x10(ra)", " 0x1110"), ("jal . + 0x20000", " 0x310")] {
                let low = body.replace("auipc ra, 0x100\n         jalr ra, 0x10(ra)", near);
                assert!(low.contains(near), "{low}");
                let (_, out, _) = check_at(&low, "0x11000");
                assert!(out.contains("stands in for") && out.contains(target), "{near}: {out}");
            }
        }
        let (code, out, err) = check(body);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arch}: {out}");
        for target in targets.split(' ') {
            assert!(out.contains(target), "{arch}: nothing stands in for {target}: {out}");
        }
        // What the function behind the constant destroys, the trampoline must bring back.
        assert!(body.contains(reload));
        let (code, out, _) = check(&body.replace(reload, "nop"));
        assert!(code == Some(1) && out.contains("FAIL P1 "), "{arch}: {out}");
        // An address that no constant has: the run ends, and the place is told.
        let (code, out, err) = check(&body.replace(jump.0, jump.1));
        assert!(
            body.contains(jump.0) && code == Some(1) && out.contains("goes where no code is"),
            "{arch}: {out}{err}"
        );
        assert!(out.lines().any(|line| line.contains("=>")), "{arch}: {out}");
    }
}

/// What GNU as makes of a constant, our tables read as that constant.
#[test]
fn constants_are_read_as_gnu_as_writes_them() {
    let values =
        [0xff60_0000_0123_4000_u64, 0xffff_ffff_8123_4567, 0xffff_ffd8_1234_5678, 0x1f, 0x7fff_f000, 0x12_3456_789a];
    let li = |v: u64| format!("li a0, {v:#x}");
    let movs = |v: u64| {
        let part = |n: u64| format!("movk x0, #{}, lsl #{}", v >> (16 * n) & 0xffff, 16 * n);
        format!("movz x0, #{}\n{}\n{}\n{}", v & 0xffff, part(1), part(2), part(3))
    };
    type Text<'t> = &'t dyn Fn(u64) -> String;
    let cases: [(&str, &str, &str, Text); 4] = [
        ("riscv64", "riscv64-linux-gnu-", "-march=rv64g", &li),
        ("riscv64", "riscv64-linux-gnu-", "-march=rv64gc", &li),
        ("arm64", "aarch64-linux-gnu-", "-march=armv8-a", &movs),
        ("x86_64", "x86_64-linux-gnu-", "--64", &|v| format!("movabs ${v:#x}, %r10")),
    ];
    let case = Case::new("", "");
    for (arch, prefix, option, text) in cases {
        let backend = tool::backend(arch).unwrap();
        for value in values {
            std::fs::write(case.dir.path().join("t.S"), text(value) + "\n").unwrap();
            for (tool, args) in [
                ("as", &["t.S", option, "-o", "t.o"][..]),
                ("objcopy", &["-O", "binary", "-j", ".text", "t.o", "t.bin"][..]),
            ] {
                let (code, _, err) = case.run(&format!("{prefix}{tool}"), args);
                assert_eq!(code, Some(0), "{err}");
            }
            let code = std::fs::read(case.dir.path().join("t.bin")).unwrap();
            let read = codegen::pattern::Constant::read(backend.patterns(), &code, 0x1000);
            let last = read.last().map(|c| (c.value, c.size));
            assert_eq!(last, Some((value, code.len())), "{arch} {option}: {value:#x}: {code:x?}");
        }
    }
}
