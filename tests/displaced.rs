//! Detours: copies of displaced instructions do what these did, and what is called before them loses nothing.

use std::fmt::Write as _;
use std::fs;

use common::{Bench, arches, core};
use serde_json::Value;

mod common;

/// The members of a detour's frame, in words.
fn members(arch: &str) -> Vec<String> {
    let numbered = |prefix: &str, first: usize| (first..=30).map(|n| format!("{prefix}{n}")).collect();
    match arch {
        "x86_64" => {
            let names = "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig ip cs flags";
            names.split(' ').map(str::to_owned).collect()
        }
        "arm64" => numbered("x", 0),
        _ => {
            let names =
                "zero ra sp gp tp t0 t1 t2 s0 s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6";
            names.split(' ').map(str::to_owned).collect()
        }
    }
}

/// A detour, linked where it would be, and the instructions that stood in the place of the jump to it.
struct Detour {
    bench: Bench,
    arch: &'static str,
    base: String,
    contract: String,
}

impl Detour {
    /// With some parts of the source replaced where they come last.
    fn changed((arch, tools): (&'static str, &'static str), changes: &[(&str, &str)]) -> Detour {
        let bench = Bench::new();
        let mut source =
            fs::read_to_string(format!("{}/tests/displaced/{arch}.S", env!("CARGO_MANIFEST_DIR"))).unwrap();
        for (from, to) in changes {
            let at = source.rfind(from).unwrap_or_else(|| panic!("{arch}: no {from}"));
            source.replace_range(at..at + from.len(), to);
        }
        fs::write(bench.path("detour.S"), source).unwrap();
        bench.tool(&format!("{tools}gcc"), &["-c", "detour.S", "-o", "detour.o"]);
        let symbol = |file: &str, name: &str| {
            let all = bench.tool(&format!("{tools}nm"), &[file]);
            let line = all.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap().to_owned();
            u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap()
        };
        let [base, site, handler, counter, op] = ["base", "at.site", "at.handler", "at.counter", "op"]
            .map(|name| format!("{:#x}", symbol("detour.o", name)));
        let defined = [("site", &site), ("handler", &handler), ("counter", &counter)];
        let defined = defined.map(|(name, at)| format!("--defsym={name}={at}"));
        let placed = format!("--section-start=.site={site}");
        let link = ["-Ttext", &base, "-e", &base, &placed, "detour.o", "-o", "detour.elf"];
        bench.tool(&format!("{tools}ld"), &[&link[..], &defined.each_ref().map(String::as_str)].concat());
        for (section, file) in [(".text", "detour.bin"), (".site", "site.bin")] {
            bench.tool(&format!("{tools}objcopy"), &["-O", "binary", "-j", section, "detour.elf", file]);
        }
        let copies = symbol("detour.elf", "copies") - symbol("detour.elf", "detour");
        let stood: String = fs::read(bench.path("site.bin")).unwrap().iter().map(|b| format!("{b:02x}")).collect();
        let names = members(arch);
        let mut contract = format!(
            "arch = {arch:?}\nprofile = \"linux-7.3\"\nabout = \"a detour\"\n\n[frame.regs]\nstruct = \"regs\"\n"
        );
        let _ = writeln!(contract, "size = {}\n", 8 * names.len());
        let skipped = ["orig", "ip", "cs", "zero", "sp"];
        for (n, name) in names.iter().enumerate().filter(|(_, name)| !skipped.contains(&name.as_str())) {
            let _ = writeln!(contract, "[[frame.regs.field]]\nmember = {name:?}\noffset = {}\nholds = {name:?}", 8 * n);
            // The platform's are not loaded again.
            let takes_effect = !["x18", "gp", "tp"].contains(&name.as_str());
            contract.push_str(if takes_effect { "stores = \"take-effect\"\n\n" } else { "\n" });
        }
        let align = tool::default_target(tool::backend(arch).unwrap()).unwrap().stack_align;
        let _ = writeln!(contract, "[[trampoline]]\nsymbol = \"detour\"\nkind = \"displaced\"\ncalls = {handler:?}");
        let _ = writeln!(contract, "arguments = [\"&{op}\", \"frame\"]\nframe = \"regs\"\nstack-align = {align}");
        let _ = writeln!(contract, "handlers = \"general\"\npromises = \"transparent\"");
        let _ = writeln!(contract, "displaced = {{ at = {site:?}, instructions = {stood:?}, copies = {copies} }}");
        Detour { bench, arch, base, contract }
    }

    fn words(&self) -> [&str; 10] {
        fs::write(self.bench.path("detour.toml"), &self.contract).unwrap();
        let Detour { arch, base, .. } = self;
        ["check", "--raw", "detour.bin", "--arch", arch, "--base", base, "--entry", base, "--contract=detour.toml"]
    }

    /// What fails, as clause and place.
    fn failures(&self) -> Vec<String> {
        let run = self.bench.run(&[&self.words()[..], &["--format", "json"]].concat());
        let report: Value =
            serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&run.stderr)));
        let failed = report["results"]
            .as_array()
            .unwrap_or_else(|| panic!("{report}"))
            .iter()
            .filter(|result| result["verdict"] == "fail");
        let places = failed.flat_map(|result| {
            let clause = result["clause"].as_str().unwrap();
            let places = result["failures"].as_array().map_or(&[][..], |all| all).iter();
            let places: Vec<&str> = places.map(|failure| failure["place_id"].as_str().unwrap()).collect();
            // Not executed is no place.
            let places = if places.is_empty() { vec!["everywhere"] } else { places };
            places.into_iter().map(move |place| format!("{clause} {place}"))
        });
        places.collect()
    }
}

#[test]
fn a_detour_holds() {
    for target in arches() {
        let detour = Detour::changed(target, &[]);
        let run = detour.bench.run(&detour.words());
        let report = String::from_utf8_lossy(&run.stdout);
        assert_eq!(run.status.code(), Some(0), "{}: {report}", target.0);
    }
}

/// What is changed, and what must fail then: a clause and a place.
type Faults = &'static [(&'static str, &'static [(&'static str, &'static str)], &'static str)];

const X86: Faults = &[
    ("alignment checks stay on", &[("        clac\n", "")], "P6 clear-flags"),
    ("the direction flag is not cleared", &[("        cld\n", "")], "P6 clear-flags"),
    ("flags are lost", &[("lea     16(%rsp), %rsp", "add     $16, %rsp")], "P6 rflags"),
    ("two registers are exchanged", &[("rcx, rdx, rsi, rdi", "rdx, rcx, rsi, rdi")], "P1 rcx"),
    ("one is shown as another", &[("rdi, rsi, rdx, rcx,", "rdi, rsi, rcx, rdx,")], "P10 slot:rcx"),
    ("another probe is named", &[("movabs  $op", "movabs  $op + 8")], "P10 given:rdi"),
    ("the stack has moved", &[("lea     16(%rsp)", "lea     8(%rsp)")], "P7 sp"),
    ("an address counts from the copy", &[("lea     counter(", "lea     counter + 1(")], "P16 copies:rcx"),
    ("another word is counted", &[("incl    counter(", "incl    counter + 4(")], "P16 copies:memory"),
    ("carry is not taken along", &[("adc     8", "add     8")], "P16 copies:rcx"),
    ("an instruction is left out", &[("        mov     %rsp, %rbp\n", "")], "P16 copies:rbp"),
    ("more is pushed than was", &[("push    %rbp", "push    %rbx")], "P16 copies:memory"),
    ("the last is done twice", &[("site + length", "site + length - 5")], "P16 copies:end"),
];

const ARM: Faults = &[
    ("flags are lost", &[("        msr     nzcv, x2\n", "")], "P6 nzcv"),
    ("a handler's change is lost", &[("27, 28, 29", "27, 29")], "P5 x28"),
    ("the link register is lost", &[("27, 28, 29, 30", "27, 28, 29")], "P4 x30"),
    ("a page counts from the copy", &[("adrp    x1, counter", "adrp    x1, counter + 4096")], "P16 copies:x1"),
    ("carry is not taken along", &[("adcs    x0", "adds    x0")], "P16 copies:x0"),
    ("it is stored elsewhere", &[("[x3, #8]!", "[x3, #16]!")], "P16 copies:x3"),
    ("the last is done twice", &[("site + length", "site + length - 4")], "P16 copies:end"),
];

const RISCV: Faults = &[
    ("t0 is lost", &[("1, 5, 6", "1, 6")], "P4 t0"),
    ("a handler's change is lost", &[("26, 27, 28", "26, 28")], "P5 s11"),
    ("ra is lost", &[(".irp n, 1, 5", ".irp n, 5")], "P4 ra"),
    ("an address counts from the copy", &[("lla     t0, counter", "lla     t0, counter + 8")], "P16 copies:t0"),
    ("a word is taken for a half", &[("lw      a2", "lh      a2")], "P16 copies:a0"),
    ("it is stored elsewhere", &[("sd      a0, 8(a3)", "sd      a0, 16(a3)")], "P16 copies:memory"),
    ("it goes on too far", &[("site + 20", "site + 22")], "P16 copies:end"),
];

#[test]
fn each_fault_of_a_detour_is_noticed() {
    for target in arches() {
        let faults = match target.0 {
            "x86_64" => X86,
            "arm64" => ARM,
            _ => RISCV,
        };
        for (what, changes, wanted) in faults {
            let failures = Detour::changed(target, changes).failures();
            assert!(failures.iter().any(|failure| failure == wanted), "{}: {what}: {failures:?}", target.0);
        }
    }
}

/// What stood somewhere, its copy, the breakpoint behind that if there is one, and what must fail.
type Pair = (&'static str, &'static str, &'static str, &'static str);

const X86_PAIRS: &[Pair] = &[
    ("rep movsq", "rep movsq", "", ""),
    ("rdtsc", "rdtsc", "", ""),
    ("stac", "stac", "", ""),
    ("push %rbp", "push %rbp\n int3", "cc", ""),
    ("lea target(%rip), %rax", "lea target(%rip), %rax\n int3", "cc", ""),
    ("test %rdi, %rdi\n je target", "test %rdi, %rdi\n je target", "", ""),
    ("test %rdi, %rdi\n je target", "test %rdi, %rdi\n je target + 8", "", "copies:end"),
    ("test %edi, %edi\n js target", "test %edi, %edi", "", "copies:end"),
    ("cmp %rsi, %rdi\n jl target", "cmp %rsi, %rdi\n jb target", "", "copies:end"),
    ("sar $3, %rax", "shr $3, %rax", "", "copies:rax"),
    ("movslq %edi, %rax", "mov %edi, %eax", "", "copies:rax"),
    ("movzwl %ax, %eax", "mov %eax, %eax", "", "copies:rax"),
    ("and $7, %rdx", "and $15, %rdx", "", "copies:rdx"),
    ("bt $0, %rdx", "bt $40, %rdx", "", "copies:rflags"),
    ("mov %rax, (%rdi)\n mov (%rsi), %rcx", "mov (%rsi), %rcx\n mov %rax, (%rdi)", "", "copies:rcx"),
    ("mov %rcx, (%rdi)", "mov %rcx, (%rdi)\n cmp %al, 0x2000(%rdi)", "", "copies:rflags"),
    ("mov (%rdi), %rcx", "mov 0x2000(%rdi), %rcx\n mov (%rdi), %rcx", "", "copies:read"),
    ("movaps %xmm1, %xmm2", "movaps %xmm2, %xmm1", "", "copies:xmm1"),
    ("push %rbp", "push %rbp\n ud2", "cc", "copies:left"),
    ("push %rbp", "push %rbp\n int $0x80", "cc", "copies:left"),
    ("push %rbp", "push %rbp\n nop\n int3", "cc", "copies:end"),
    ("push %rbp", "push %rbp\n ud2", "", "copies:left"),
    ("hlt\n ud2", "hlt\n ud2", "", "copies:ran"),
];

const ARM_PAIRS: &[Pair] = &[
    ("paciasp", "paciasp\n brk #6", "c00020d4", ""),
    ("str x1, [x2], #8", "str x1, [x2], #8\n brk #6", "c00020d4", ""),
    ("nop", "nop\n brk #6", "c00020d4", ""),
    ("cbz x0, target", "cbz x0, target", "", ""),
    ("cbz x0, target", "nop", "", "copies:end"),
    ("tbnz x0, #63, target", "nop", "", "copies:end"),
    ("sxtw x0, w1", "uxtw x0, w1", "", "copies:x0"),
    ("str x1, [x2]\n ldr x3, [x4]", "ldr x3, [x4]\n str x1, [x2]", "", "copies:x3"),
    ("mov x0, x1", "mov x0, x1\n brk #0x800", "c00020d4", "copies:left"),
    ("mov x0, x1", "mov x0, x1\n svc #0", "c00020d4", "copies:left"),
];

const RISCV_PAIRS: &[Pair] = &[
    ("sd a0, 0(a1)", "sd a0, 0(a1)\n .word 0x100073", "73001000", ""),
    ("srai a0, a1, 3", "srli a0, a1, 3", "", "copies:a0"),
    ("beqz a0, target", "beqz a0, target", "", ""),
    ("beqz a0, target", "nop", "", "copies:end"),
    ("bgtu a0, a1, target", "bgt a0, a1, target", "", "copies:end"),
    ("mv a0, a1", "mv a0, a1\n ecall", "73001000", "copies:left"),
    ("mv a0, a1", "mv a0, a1\n .word 0xffffffff", "73001000", "copies:left"),
];

/// A copy without code before it; what stood there reaches to the end of a page, or over it.
fn pair((arch, tools): (&'static str, &'static str), &(original, copy, breakpoint, _): &Pair) -> Detour {
    let (base, site, target, jump) = match arch {
        "x86_64" => ("0xffffffffc0200ff0", "0xffffffff81234ffa", "0xffffffff81235200", "jmp"),
        "arm64" => ("0xffff800081200000", "0xffff800081234ffc", "0xffff800081235200", "b"),
        _ => ("0xffffffff80100000", "0xffffffff80100ffc", "0xffffffff80100d00", "j"),
    };
    let bench = Bench::new();
    let back = if breakpoint.is_empty() { format!("{jump} back") } else { String::new() };
    let source =
        format!(".option_norelax\n.section .site, \"ax\"\n{original}\n.globl back\nback:\n.text\n{copy}\n{back}\n");
    let option = if arch == "riscv64" { ".option norelax" } else { "" };
    fs::write(bench.path("pair.S"), source.replace(".option_norelax", option)).unwrap();
    let march = if arch == "arm64" { "-march=armv8.3-a" } else { "-O" };
    bench.tool(&format!("{tools}gcc"), &["-c", march, "pair.S", "-o", "pair.o"]);
    let (placed, defined) = (format!("--section-start=.site={site}"), format!("--defsym=target={target}"));
    let link = ["-Ttext", base, "-e", base, &placed, &defined, "pair.o", "-o", "pair.elf"];
    bench.tool(&format!("{tools}ld"), &link);
    for (section, file) in [(".text", "detour.bin"), (".site", "site.bin")] {
        bench.tool(&format!("{tools}objcopy"), &["-O", "binary", "-j", section, "pair.elf", file]);
    }
    let stood: String = fs::read(bench.path("site.bin")).unwrap().iter().map(|b| format!("{b:02x}")).collect();
    let contract = format!(
        "arch = {arch:?}\nprofile = \"linux-7.3\"\nabout = \"a copy\"\n\n[[trampoline]]\nsymbol = \"copy\"\nkind = \"displaced\"\n\
         stack-align = 1\nhandlers = \"general\"\npromises = \"transparent\"\n\
         displaced = {{ at = {site:?}, instructions = {stood:?}, breakpoint = {breakpoint:?} }}\n"
    );
    Detour { bench, arch, base: base.to_owned(), contract }
}

#[test]
fn copies_are_compared_with_what_they_are_copies_of() {
    for target in arches() {
        let pairs = match target.0 {
            "x86_64" => X86_PAIRS,
            "arm64" => ARM_PAIRS,
            _ => RISCV_PAIRS,
        };
        for of in pairs {
            let failures = pair(target, of).failures();
            let wanted = if of.3.is_empty() { vec![] } else { vec![format!("P16 {}", of.3)] };
            // Flags and registers may differ in more than one.
            let right = if wanted.is_empty() { failures.is_empty() } else { failures.contains(&wanted[0]) };
            assert!(right && failures.iter().all(|f| f.starts_with("P16 ")), "{}: {of:?}: {failures:?}", target.0);
        }
    }
}

#[test]
fn what_a_contract_of_displaced_instructions_cannot_say_is_refused() {
    let detour = Detour::changed(arches()[0], &[]);
    let contract = &detour.contract;
    let key = contract.find("displaced = ").unwrap();
    for (more, parts) in [
        ("", &["give displaced"][..]),
        ("displaced = { at = \"site\", instructions = \"90\" }", &["at = \"site\"", "\"0x...\""]),
        ("displaced = { at = \"0x10\", instructions = \"9\" }", &["1 to 60 bytes"]),
        ("displaced = { at = \"0x10\", instructions = \"\" }", &["1 to 60 bytes"]),
        (
            "goes-to = \"result\"\ndisplaced = { at = \"0x10\", instructions = \"90\" }",
            &["goes-to is not for kind displaced"],
        ),
        ("site = { pushed = 8 }\ndisplaced = { at = \"0x10\", instructions = \"90\" }", &["pushed is for"]),
    ] {
        let changed = Detour { contract: format!("{}{more}\n", &contract[..key]), ..Detour::changed(arches()[0], &[]) };
        changed.bench.refuses(&changed.words(), parts);
    }
    let words = detour.words();
    detour
        .bench
        .refuses(&["check", "--object", "detour.o", "--contract=detour.toml"], &["kind displaced is for a dump"]);
    detour.bench.refuses(
        &[&words[..], &["--end", "0xffffffffc0200010"]].concat(),
        &["--end 0xffffffffc0200010", "where the copies begin"],
    );
}

/// A member of a struct: its name, its place in bytes, and its type, which is a number of bytes, or a struct.
type Member = (&'static str, u32, &'static str);

/// Types of a kernel that has these structs, each with those of its members before it.
fn types(structs: &[(&str, &[Member])]) -> Vec<u8> {
    let (mut strings, mut words, mut names) = (vec![0_u8], Vec::new(), vec!["void".to_owned()]);
    let mut string = |text: &str| {
        let at = strings.len() as u32;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    // Kinds 1 and 4 are integers and structs (kernel include/uapi/linux/btf.h).
    for bytes in [1_u32, 4, 8] {
        words.extend([string("number"), 1 << 24, bytes, 8 * bytes]);
        names.push(bytes.to_string());
    }
    for (name, members) in structs {
        words.extend([string(name), 4 << 24 | members.len() as u32, 256]);
        for (member, at, of) in *members {
            words.extend([string(member), names.iter().position(|name| name == of).unwrap() as u32, 8 * at]);
        }
        names.push((*name).to_owned());
    }
    let types: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = [0x0001_eb9f, 24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
    [header.iter().flat_map(|word: &u32| word.to_le_bytes()).collect(), types, strings].concat()
}

/// A kernel with one probe, whose instruction is copied, and which a jump to a detour has taken the place of.
fn kernel(detour: &Detour, change: impl Fn(&mut [(u64, Vec<u8>)])) {
    let bytes = |file: &str| fs::read(detour.bench.path(file)).unwrap();
    let (code, stood) = (bytes("detour.bin"), bytes("site.bin"));
    let [site, op, page, slot, table] = [
        0xffff_ffff_8123_4568_u64,
        0xffff_8880_1234_5678,
        0xffff_ffff_c020_0000,
        0xffff_ffff_c020_1010,
        0xffff_ffff_8300_0000,
    ];
    let own = code.len() as u64 - stood.len() as u64 - 5;
    let mut probe = vec![0_u8; 192];
    let mut put = |at: usize, word: u64| probe[at..at + 8].copy_from_slice(&word.to_le_bytes());
    put(8, site);
    put(24, slot);
    put(56, page);
    put(64, stood.len() as u64);
    (probe[16], probe[32]) = (stood[0], 4);
    probe[48..52].copy_from_slice(&stood[1..5]);
    let mut patched = stood.clone();
    let jump = (page.wrapping_sub(site + 5) as u32).to_le_bytes();
    patched[..5].copy_from_slice(&[&[0xe9][..], &jump].concat());
    patched.resize(64, 0x90);
    // The copy counts from where it is.
    let counter = 0xffff_ffff_8200_0010_u64.wrapping_sub(slot + 6) as u32;
    let copy = [&[0xff, 0x05][..], &counter.to_le_bytes(), &[0xcc]].concat();
    let mut memory = [
        (page, code),
        (slot, copy),
        (site, patched),
        (op, probe),
        (table, [&op.to_le_bytes()[..], &[0; 504]].concat()),
    ];
    change(&mut memory);
    fs::write(detour.bench.path("kcore"), core(62, &memory)).unwrap();
    let symbols = [
        (site - 0x18, "vfs_unlink"),
        (0xffff_ffff_8130_0000, "optimized_callback"),
        (0xffff_ffff_8240_0000, "optprobe_template_entry"),
        (0xffff_ffff_8240_0000 + own, "optprobe_template_end"),
        (table, "kprobe_table"),
        (page, "kprobe_optinsn_page"),
        (page + 0x1000, "kprobe_insn_page"),
    ];
    let lines: String = symbols.iter().map(|(at, name)| format!("{at:x} t {name}\n")).collect();
    fs::write(detour.bench.path("kallsyms"), lines).unwrap();
    let table = types(&[
        ("arch_specific_insn", &[("insn", 0, "8")]),
        (
            "kprobe",
            &[
                ("hlist", 0, "8"),
                ("addr", 8, "8"),
                ("opcode", 16, "1"),
                ("ainsn", 24, "arch_specific_insn"),
                ("flags", 32, "4"),
            ],
        ),
        ("arch_optimized_insn", &[("copied_insn", 0, "4"), ("insn", 8, "8"), ("size", 16, "8")]),
        ("optimized_kprobe", &[("kp", 0, "kprobe"), ("optinsn", 48, "arch_optimized_insn")]),
    ]);
    fs::write(detour.bench.path("btf"), table).unwrap();
}

const KERNEL: [&str; 7] = ["check", "--kcore", "kcore", "--kallsyms", "kallsyms", "--btf", "btf"];

#[test]
fn a_kernels_probes_are_judged() {
    let detour = Detour::changed(("x86_64", common::tools_of("x86_64")), &[]);
    kernel(&detour, |_| {});
    let report = detour.bench.ok(&[&KERNEL[..], &["-v"]].concat());
    for name in ["kprobe:vfs_unlink+0x18", "optprobe:vfs_unlink+0x18"] {
        assert!(report.contains(name), "{name}: {report}");
    }
    // What stands there now, and what the copies do; what is pushed; who is called for which probe.
    type Change = fn(&mut [(u64, Vec<u8>)]);
    let faults: [(&str, Change); 5] = [
        ("P16", |memory| memory[0].1[0x56 + 2] ^= 8),
        ("P16", |memory| memory[1].1[2] ^= 8),
        ("P16", |memory| memory[3].1[49] ^= 8),
        ("P16", |memory| memory[1].1[6] = 0x90),
        ("P10", |memory| memory[0].1[0x22 + 2] ^= 8),
    ];
    for (clause, change) in faults {
        kernel(&detour, change);
        let report = detour.bench.ends(1, &KERNEL);
        assert!(report.contains(&format!("FAIL {clause} ")), "{clause}: {report}");
    }
    // The jump is only queued: what stands there is a breakpoint, and the rest as it was.
    kernel(&detour, |memory| {
        memory[2].1[..5].copy_from_slice(&[0xcc, 0x05, 0xa2, 0xba, 0xdc]);
        memory[3].1[48..52].fill(0);
    });
    let report = detour.bench.ends(1, &[&KERNEL[..], &["--format", "json"]].concat());
    assert!(!report.contains("optprobe:") && report.contains("\"kprobe:vfs_unlink+0x18"), "{report}");
    // The table leads nowhere, and to nothing.
    kernel(&detour, |memory| memory[4].1[0] = 0);
    detour.bench.refuses(&KERNEL, &["does not have the kernel's memory at 0xffff888012345600"]);
    kernel(&detour, |memory| memory[4].1[..8].fill(0));
    detour.bench.refuses(
        &KERNEL,
        &["kprobe_insn_page@0xffffffffc0201000: no probe of the kernel's table runs anything in this page now"],
    );
}
