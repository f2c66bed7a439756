//! Trampolines as a kernel writes them for programs: judged from a dump by a contract, and from a kernel's memory by what they call.

use std::collections::BTreeMap;
use std::fs;

use common::{Bench, arches, core};
use serde_json::Value;

mod common;

/// What the kernel calls it: of type 3 in its own type information.
const NAME: &str = "bpf_trampoline_6442450947";

/// A trampoline, assembled and linked where it would be.
struct Image {
    bench: Bench,
    arch: &'static str,
    symbols: BTreeMap<String, u64>,
}

/// What is there, and what is there instead.
type Changes<'c> = &'c [(&'c str, &'c str)];

impl Image {
    fn new(arch: &'static str, tools: &str) -> Image {
        Image::changed(arch, tools, &[])
    }

    /// With some parts of the source replaced, wherever they are.
    fn changed(arch: &'static str, tools: &str, changes: Changes) -> Image {
        Image::built(arch, tools, &format!("{arch}.S"), changes)
    }

    /// That in place of a function, with some parts of the source replaced.
    fn struct_ops(arch: &'static str, tools: &str, changes: Changes) -> Image {
        Image::built(arch, tools, &format!("struct_ops-{arch}.S"), changes)
    }

    fn built(arch: &'static str, tools: &str, file: &str, changes: Changes) -> Image {
        let bench = Bench::new();
        let mut source = fs::read_to_string(format!("{}/tests/written/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        for (from, to) in changes {
            assert!(source.contains(from), "{arch}: no {from}");
            source = source.replace(from, to);
        }
        fs::write(bench.path("image.S"), source).unwrap();
        bench.tool(&format!("{tools}gcc"), &["-c", "image.S", "-o", "image.o"]);
        let nm = |file: &str| -> BTreeMap<String, u64> {
            let text = bench.tool(&format!("{tools}nm"), &[file]);
            let symbol = |line: &str| {
                let mut words = line.split_whitespace();
                let at = u64::from_str_radix(words.next()?, 16).ok()?;
                Some((words.nth(1)?.to_owned(), at))
            };
            text.lines().filter_map(symbol).collect()
        };
        let known = nm("image.o");
        let base = format!("{:#x}", known["base"]);
        // The kernel's functions are where the source says.
        let at = |(name, at): (&String, &u64)| Some(format!("--defsym={}={at:#x}", name.strip_prefix("at.")?));
        let defined: Vec<String> = known.iter().filter_map(at).collect();
        let defined: Vec<&str> = defined.iter().map(String::as_str).collect();
        let link = ["-Ttext", &base, "-e", NAME, "image.o", "-o", "image.elf"];
        bench.tool(&format!("{tools}ld"), &[&link[..], &defined].concat());
        bench.tool(&format!("{tools}objcopy"), &["-O", "binary", "-j", ".text", "image.elf", "image.bin"]);
        let symbols = nm("image.elf");
        Image { bench, arch, symbols }
    }

    fn at(&self, name: &str) -> String {
        format!("{:#x}", self.symbols[name])
    }

    /// Its contract, with these lines more.
    fn contract(&self, more: &str) {
        let path = format!("{}/tests/written/contract.toml", env!("CARGO_MANIFEST_DIR"));
        let mut text = fs::read_to_string(path).unwrap();
        for name in self.symbols.keys() {
            text = text.replace(&format!("@{name}@"), &self.at(name));
        }
        let backend = tool::backend(self.arch).unwrap();
        let (abi, convention) =
            (&backend.facts().abi, tool::profile("linux-7.3").unwrap().convention(self.arch).unwrap());
        let names = |regs: &mut dyn Iterator<Item = &str>| format!("{:?}", regs.collect::<Vec<_>>());
        let words = names(&mut abi.args.iter().take(2).map(|reg| abi.name(*reg)));
        let calls = abi.link.is_some();
        let flags = if calls { r#"["CALL_ORIG", "SKIP_FRAME"]"# } else { r#"["CALL_ORIG"]"# };
        let written = convention.programs.written;
        let align = tool::default_target(backend).unwrap().stack_align.to_string();
        for (from, to) in [
            ("ARCH", self.arch),
            ("ALIGN", &align),
            ("FLAGS", flags),
            ("WORDS", &words),
            ("RESULT", abi.name(abi.rets[0])),
        ] {
            text = text.replace(from, to);
        }
        text += &format!("holds-own = {}\n", names(&mut written.own.iter().map(|reg| abi.name(reg))));
        text += &format!("function-by-return = {}\n", written.body_by_return);
        text += &written.body_align.map(|align| format!("function-align = {align}\n")).unwrap_or_default();
        text += &format!("resume = {}\n{more}", if calls { 8 } else { 5 });
        if calls {
            text += "records = [\"pc\", \"parent-ip\"]\n";
        }
        fs::write(self.bench.path("image.toml"), text).unwrap();
    }

    /// The contract of that in place of a function, with these lines more.
    fn function_contract(&self, more: &str) {
        let path = format!("{}/tests/written/struct_ops.toml", env!("CARGO_MANIFEST_DIR"));
        let mut text = fs::read_to_string(path).unwrap();
        let backend = tool::backend(self.arch).unwrap();
        let abi = &backend.facts().abi;
        let words = format!("{:?}", abi.args.iter().take(2).map(|reg| abi.name(*reg)).collect::<Vec<_>>());
        let align = tool::default_target(backend).unwrap().stack_align.to_string();
        let thunk = self.symbols.get("at.__x86_return_thunk").map(|at| format!("__x86_return_thunk = \"{at:#x}\""));
        let named = ["the_program = \"@bpf_prog_1@\"".to_owned()].into_iter().chain(thunk);
        let addresses = format!("addresses = {{ {} }}", named.collect::<Vec<_>>().join(", "));
        for (from, to) in [
            ("ARCH", self.arch),
            ("ALIGN", &align),
            ("WORDS", &words),
            ("RESULT", abi.name(abi.rets[0])),
            ("WHOLE", if self.arch == "riscv64" { ", register = \"a5\"" } else { "" }),
            ("ADDRESSES", &addresses),
        ] {
            text = text.replace(from, to);
        }
        for name in self.symbols.keys() {
            text = text.replace(&format!("@{name}@"), &self.at(name));
        }
        text += if abi.link.is_some() { "records = [\"parent-ip\"]\n" } else { "" };
        text += if self.arch == "riscv64" { "" } else { "landing-pad = true\n" };
        fs::write(self.bench.path("image.toml"), text + more).unwrap();
    }

    fn words<'w>(&'w self, base: &'w str, command: &'w str) -> Vec<&'w str> {
        vec![
            command,
            "--raw",
            "image.bin",
            "--arch",
            self.arch,
            "--base",
            base,
            "--entry",
            base,
            "--contract",
            "image.toml",
        ]
    }

    /// The report of `check`: what fails, as clause and place.
    fn failures(&self, code: i32) -> Vec<String> {
        let base = self.at("base");
        let text = self.bench.ends(code, &[&self.words(&base, "check")[..], &["--format", "json"]].concat());
        failures(&text)
    }

    /// Memory, symbols and types of a kernel that has it.
    fn kernel(&self) {
        let machine = tool::backend(self.arch).unwrap().facts().machine;
        let code = fs::read(self.bench.path("image.bin")).unwrap();
        let core = core(machine, &[(self.symbols["base"], code)]);
        fs::write(self.bench.path("kcore"), core).unwrap();
        let kernels = |name: &&String| name.starts_with("bpf_") || name.starts_with("__bpf_") || *name == "traced";
        let line = |name: &String| format!("{:x} t {name}\n", self.symbols[name]);
        let mut text: String = self.symbols.keys().filter(kernels).map(line).collect();
        text += &format!("{:x} t ftrace_trampoline\t[__builtin__ftrace]\n", self.symbols["base"] + 0x10_0000);
        fs::write(self.bench.path("kallsyms"), text).unwrap();
        fs::write(self.bench.path("btf"), types()).unwrap();
    }

    fn running<'w>(&self, more: &[&'w str]) -> Vec<&'w str> {
        [&["check", "--kcore", "kcore", "--kallsyms", "kallsyms", "--btf", "btf", "--format", "json"], more].concat()
    }
}

fn results(report: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    report["results"].as_array().unwrap().clone()
}

fn failures(report: &str) -> Vec<String> {
    let mut all = Vec::new();
    for result in results(report).iter().filter(|result| result["verdict"] == "fail") {
        let clause = result["clause"].as_str().unwrap();
        let places = result["failures"].as_array().unwrap().iter().map(|f| f["place_id"].as_str().unwrap());
        all.extend(places.map(|place| format!("{clause} {place}")));
    }
    all.sort();
    all.dedup();
    all
}

/// BTF (kernel Documentation/bpf/btf.rst) of `long traced(long, long)`: an integer, the prototype, the function.
fn types() -> Vec<u8> {
    let strings = b"\0long\0traced\0";
    let types = [1_u32, 1 << 24, 8, 0x0100_0040, 0, 13 << 24 | 2, 1, 0, 1, 0, 1, 6, 12 << 24, 2];
    let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = [0x0001_eb9f, 24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
    [header.iter().flat_map(|word: &u32| word.to_le_bytes()).collect(), types, strings.to_vec()].concat()
}

#[test]
fn the_kernels_form_holds_and_faults_in_it_are_noticed() {
    for (arch, tools) in arches() {
        let image = Image::new(arch, tools);
        image.contract("");
        assert_eq!(image.failures(0), Vec::<String>::new(), "{arch}");
        let base = image.at("base");
        let words = [&image.words(&base, "mutate")[..], &["--format", "json"]].concat();
        let report = String::from_utf8(image.bench.run(&words).stdout).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        let [mutants, killed] = ["mutants", "killed"].map(|key| report[key].as_u64().unwrap());
        assert!(mutants > 100 && 100 * killed >= 95 * mutants, "{arch}: {killed} of {mutants}");
    }
}

/// Each on an architecture, with what must be said of it.
const FAULTS: &[(&str, Changes, &str)] = &[
    (
        "x86_64",
        &[("__bpf_prog_enter\n        mov     %rax, %rbx", "__bpf_prog_enter\n        mov     %rcx, %rbx")],
        "P10 program:start",
    ),
    ("x86_64", &[("mov     %rbx, %rsi", "mov     %rax, %rsi")], "P10 program:start"),
    ("x86_64", &[("lea     -0x38(%rbp), %rdx", "lea     -0x30(%rbp), %rdx")], "P10 run-context:again"),
    ("x86_64", &[("lea     -0x38(%rbp), %rsi", "lea     8(%rbp), %rsi")], "P10 run-context"),
    ("x86_64", &[("movq    $7, -0x38", "movq    $8, -0x38")], "P10 cookie"),
    ("x86_64", &[("0x123456789abcdef0", "0x9abcdef0")], "P10 cookie"),
    ("x86_64", &[("        jz      1f\n", "")], "P10 program:let"),
    ("x86_64", &[("        call    bpf_prog_1\n", "")], "P10 program:called"),
    ("x86_64", &[("call    bpf_prog_1", "call    bpf_prog_2")], "P10 program"),
    ("x86_64", &[("1:      movabs  $first", "1:      movabs  $second")], "P10 program:argument"),
    ("x86_64", &[("movabs  $image_of, %rdi\n        call    __bpf_tramp_exit", "nop")], "P10 around:left"),
    ("x86_64", &[("movabs  $image_of, %rdi\n        call    __bpf_tramp_enter", "nop")], "P10 around:entered"),
    (
        "x86_64",
        &[("skipped_1:\n        movabs  $image_of", "skipped_1:\n        movabs  $first")],
        "P10 around:argument",
    ),
    ("x86_64", &[("        mov     -0x28(%rbp), %rbx\n", "")], "P5 rbx"),
    ("x86_64", &[("        call    __bpf_prog_exit\nskipped_0:", "skipped_0:")], "P10 program:ends"),
    ("x86_64", &[("call    __bpf_prog_enter_sleepable", "call    __bpf_prog_enter")], "P10 program:before"),
    ("x86_64", &[("call    __bpf_prog_exit_sleepable", "call    __bpf_prog_exit")], "P10 program:after"),
    ("x86_64", &[("        call    __bpf_prog_enter\n", "")], "P10 program:began"),
    ("x86_64", &[("1:      movabs", "1:      movq    $0, -0x30(%rbp)\n        movabs")], "P10 run-context:saved"),
    ("x86_64", &[("movabs  $image_of, %rdi\n        call    __bpf_tramp_enter", "nop")], "P10 around:open"),
    (
        "x86_64",
        &[("skipped_0:\n", "skipped_0:\n        movabs  $image_of, %rdi\n        call    __bpf_tramp_enter\n")],
        "P10 around:first",
    ),
    ("x86_64", &[("skip_1:", "movabs $image_of, %rdi; call __bpf_tramp_exit\nskip_1:")], "P10 around:last"),
    ("x86_64", &[("        call    traced + 5", "        call    traced + 6")], "P9 pc"),
    ("x86_64", &[("$first, %rdi", "$second, %rdi")], "P10 program:argument"),
    ("x86_64", &[("$image_of, %rdi", "$first, %rdi")], "P10 around:argument"),
    (
        "x86_64",
        &[(
            "call    __bpf_prog_enter\n",
            "call __bpf_prog_enter\nmovabs $first, %rdi; lea -0x38(%rbp), %rsi\ncall __bpf_prog_enter\n",
        )],
        "P10 program:ends",
    ),
    // Behind the last program comes another one.
    (
        "x86_64",
        &[(
            "skipped_1:\n",
            "movabs $second, %rdi; lea -0x38(%rbp), %rsi; call __bpf_prog_enter_sleepable\nskipped_1:\n",
        )],
        "P10 calls:programs",
    ),
    // In a register that the called function may change.
    (
        "x86_64",
        &[
            ("call    __bpf_prog_enter\n", "lea -0x18(%rbp), %r11; call __bpf_prog_enter\n"),
            ("lea     -0x18(%rbp), %rdi\n        call    bpf_prog_1", "mov %r11, %rdi; call bpf_prog_1"),
        ],
        "P10 context:word",
    ),
    (
        "x86_64",
        &[("call    __bpf_prog_exit\n", "mov -0x18(%rbp), %r11; call __bpf_prog_exit; mov %r11, -0x18(%rbp)\n")],
        "P1 rdi",
    ),
    // In the run context, which is theirs.
    (
        "x86_64",
        &[(
            "call    __bpf_prog_exit\n",
            "mov -0x18(%rbp), %rcx; mov %rcx, -0x38(%rbp); call __bpf_prog_exit; mov -0x38(%rbp), %rcx; mov %rcx, -0x18(%rbp)\n",
        )],
        "P1 rdi",
    ),
    (
        "x86_64",
        &[(
            "movabs  $image_of, %rdi\n        call    __bpf_tramp_enter\n",
            "mov %rdi, %r11; movabs $image_of, %rdi; call __bpf_tramp_enter; mov %r11, -0x18(%rbp)\n",
        )],
        "P1 rdi",
    ),
    (
        "x86_64",
        &[(
            "call    __bpf_tramp_exit\n        mov     -8(%rbp), %rax\n",
            "mov -8(%rbp), %r11; call __bpf_tramp_exit; mov %r11, %rax\n",
        )],
        "P3 rax",
    ),
    ("x86_64", &[("skip_0:", "movabs $image_of, %rdi; call __bpf_tramp_exit\nskip_0:")], "P10 around:last"),
    ("x86_64", &[("        call    __bpf_prog_exit_sleepable\n", "")], "P10 program:ends"),
    ("x86_64", &[("call    __bpf_prog_exit\n", "std; call __bpf_prog_exit; cld\n")], "P6 clear-flags"),
    (
        "arm64",
        &[("bl      __bpf_prog_exit\n", "mov x20, x29; mov x29, sp; bl __bpf_prog_exit; mov x29, x20\n")],
        "P12 frame-record:0",
    ),
];

#[test]
fn each_rule_of_the_calls_around_programs_is_judged() {
    for (arch, tools) in arches() {
        for (_, changes, wanted) in FAULTS.iter().filter(|(of, ..)| *of == arch) {
            let image = Image::changed(arch, tools, changes);
            image.contract("");
            let found = image.failures(1);
            assert!(found.iter().any(|failure| failure == wanted), "{changes:?}: {wanted}: {found:?}");
        }
    }
}

#[test]
fn what_the_functions_around_programs_are_given_may_be_a_number_that_is_no_kernels_address() {
    let kernels = ["0xffff888012340000", "0xffff000012340000", "0xffffffd812340000"];
    for ((arch, tools), image_of) in arches().into_iter().zip(kernels) {
        let image = Image::changed(arch, tools, &[(image_of, "0x12340000")]);
        image.contract("");
        assert_eq!(image.failures(0), Vec::<String>::new(), "{arch}");
    }
}

/// What the kernel did before it had detached programs: behind the call of the function it writes a jump, over all programs.
#[test]
fn one_that_is_retired_while_its_function_runs_calls_no_program_more() {
    let (arch, tools) = arches()[0];
    let labels = |image: &Image| {
        image.contract("");
        let path = image.bench.path("image.toml");
        let text = fs::read_to_string(&path).unwrap();
        let (before, _) = text.split_once("labels = ").unwrap();
        let (_, behind) = text.split_once("\nholds-own").unwrap();
        let labels =
            format!("labels = {{ after_call = \"{}\", epilogue = \"{}\" }}", image.at("skip_1"), image.at("skipped_1"));
        let text = format!("{before}{labels}\nholds-own{behind}").replace("linux-7.3", "linux-6.12");
        fs::write(path, text).unwrap();
    };
    let image = Image::new(arch, tools);
    labels(&image);
    assert_eq!(image.failures(0), Vec::<String>::new());
    let (exit, label) = ("        movabs  $image_of, %rdi\n        call    __bpf_tramp_exit\n", "skipped_1:\n");
    let image = Image::changed(arch, tools, &[(&format!("{label}{exit}"), &format!("{exit}{label}"))]);
    labels(&image);
    assert_eq!(image.failures(1), ["P10 around:left"]);
}

/// It returns to the site, and calls nothing around all programs.
#[test]
fn one_that_does_not_call_the_function_lets_each_program_end() {
    let (arch, tools) = arches()[0];
    let source = fs::read_to_string(format!("{}/tests/written/{arch}.S", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let between = |from: &str, to: &str| {
        let (_, rest) = source.split_once(from).unwrap();
        format!("{from}{}", rest.split_once(to).unwrap().0)
    };
    let around = "        movabs  $image_of, %rdi\n        call    __bpf_tramp_enter\n";
    let behind = between("        call    traced + 5\n", "        mov     -0x28(%rbp), %rbx");
    let dropped = [(around, ""), (&behind, ""), (", skip_1, skipped_1", "")];
    let contract = |image: &Image| {
        image.contract("");
        let path = image.bench.path("image.toml");
        let text = fs::read_to_string(&path).unwrap().replace("\"CALL_ORIG\"", "\"RESTORE_REGS\"");
        let ours = |line: &&str| {
            !["    { attach = \"fexit\"", "around = ", "function", "holds-own"].iter().any(|of| line.starts_with(of))
        };
        let text: String = text.split_inclusive('\n').filter(ours).collect();
        let (before, labels) = text.split_once(", skip_1 = ").unwrap();
        let (_, behind) = labels.split_once('\n').unwrap();
        fs::write(path, format!("{before} }}\n{behind}")).unwrap();
    };
    let image = Image::changed(arch, tools, &dropped);
    contract(&image);
    assert_eq!(image.failures(0), Vec::<String>::new());
    let exit = ("        call    __bpf_prog_exit\n", "");
    let image = Image::changed(arch, tools, &[&dropped[..], &[exit]].concat());
    contract(&image);
    let found = image.failures(1);
    assert!(found.contains(&"P10 program:ends".to_owned()), "{found:?}");
}

/// The run context is as the function behind the program before left it.
#[test]
fn a_cookie_that_is_there_by_chance_was_not_stored() {
    let (arch, tools) = arches()[0];
    let failures = |image: &Image, code: i32| {
        image.contract("");
        let path = image.bench.path("image.toml");
        let text = fs::read_to_string(&path).unwrap().replace("cookie = 7", "cookie = -1");
        fs::write(path, text).unwrap();
        image.failures(code)
    };
    let stored = ("movq    $7, -0x38(%rbp)", "movq $-1, -0x38(%rbp)");
    assert_eq!(failures(&Image::changed(arch, tools, &[stored]), 0), Vec::<String>::new());
    let image = Image::changed(arch, tools, &[(stored.0, "")]);
    let found = failures(&image, 1);
    assert!(found.contains(&"P10 slot:cookie:written".to_owned()), "{found:?}");
}

/// Of those in place of a function: each with what must be said of it.
const FAULTS_IN_FUNCTIONS: [(&str, &str, &str, &str); 12] = [
    ("x86_64", "        endbr64\n", "", "P13 landing-pad:entry"),
    ("x86_64", "        mov     %rax, -8(%rbp)\n", "", "P11 result:rax"),
    ("x86_64", "        movq    $0, -8(%rbp)\n", "", "P7 load:never-written-16"),
    ("x86_64", "        mov     -0x28(%rbp), %rbx\n", "", "P5 rbx"),
    ("x86_64", "        jz      1f\n", "", "P10 program:let"),
    ("x86_64", "        call    bpf_prog_1\n", "", "P10 program:called"),
    ("arm64", "str     x1, [sp, #32]", "str     x2, [sp, #32]", "P10 context:word"),
    ("arm64", "stp     x29, x30", "stp     x29, x9", "P12 frame-record:0"),
    ("arm64", "ldr     x20, [sp, #56]", "nop", "P5 x20"),
    ("riscv64", "        sext.w  a0, a0\n", "", "P11 result:a0"),
    ("riscv64", "sd      a5, 40(sp)", "sd      a4, 40(sp)", "P11 result:a0"),
    ("riscv64", "li      t1, 2\n", "li      t1, 3\n", "P10 context:count"),
];

#[test]
fn a_trampoline_in_place_of_a_function_is_judged_as_that_function() {
    for (arch, tools) in arches() {
        let image = Image::struct_ops(arch, tools, &[]);
        image.function_contract("");
        assert_eq!(image.failures(0), Vec::<String>::new(), "{arch}");
        for (_, from, to, wanted) in FAULTS_IN_FUNCTIONS.iter().filter(|(of, ..)| *of == arch) {
            let image = Image::struct_ops(arch, tools, &[(from, to)]);
            image.function_contract("");
            let found = image.failures(1);
            assert!(found.iter().any(|failure| failure == wanted), "{arch}: {from}: {found:?}");
        }
    }
}

/// Besides the register with all of a program's result, C's has what C reads of it: 32 bits.
#[test]
fn a_trampoline_in_place_of_a_function_may_hand_on_the_result_of_c() {
    let (arch, tools) = arches().into_iter().find(|(arch, _)| *arch == "riscv64").unwrap();
    let image = Image::struct_ops(arch, tools, &[("sd      a5, 40(sp)", "sd      a0, 40(sp)")]);
    image.function_contract("");
    assert_eq!(image.failures(0), Vec::<String>::new());
    for (stored, code, wanted) in [("a5", 0, None), ("a0", 1, Some("P11 result:a0"))] {
        let stores = format!("sd      {stored}, 40(sp)");
        let changes = [("sd      a5, 40(sp)", &*stores), ("        sext.w  a0, a0\n", "")];
        let image = Image::struct_ops(arch, tools, &changes);
        image.function_contract("");
        let path = image.bench.path("image.toml");
        let text = fs::read_to_string(&path).unwrap();
        let long = text.replacen("bytes = 4, signed = true", "bytes = 8, signed = false", 1);
        fs::write(&path, long).unwrap();
        let found = image.failures(code);
        let told = wanted.is_none_or(|wanted| found.iter().any(|failure| failure == wanted));
        assert!(told && found.is_empty() == (code == 0), "{stored}: {found:?}");
    }
}

#[test]
fn what_a_trampoline_in_place_of_a_function_cannot_have_is_refused() {
    let (arch, tools) = arches()[0];
    let image = Image::struct_ops(arch, tools, &[]);
    let base = image.at("base");
    let refuses = |from: &str, to: &str, what: &str| {
        image.function_contract("");
        let path = image.bench.path("image.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replace(from, to)).unwrap();
        image.bench.refuses(&image.words(&base, "check"), &[what]);
    };
    refuses("\"INDIRECT\", ", "", "valid: one of CALL_ORIG, RESTORE_REGS and INDIRECT");
    refuses("\"INDIRECT\", ", "\"INDIRECT\", \"SKIP_FRAME\", ", "valid with INDIRECT: RET_FENTRY_RET");
    refuses("\"fentry\"", "\"fexit\"", "one program, attached as fentry");
    refuses(", \"RET_FENTRY_RET\"", "", "valid: RET_FENTRY_RET with INDIRECT, `result` and `program-result`");
    refuses("bytes = 4", "bytes = 3", "bytes = 3; valid: 1, 2, 4, 8");
    refuses(
        "the_program = \"",
        "the_program = \"x",
        "addresses of the_program: \"x0xffffffffc0300000\"; valid: an address",
    );
    // Its function before it always lets it be called: then nothing is loaded that nobody stored.
    let image = Image::struct_ops(arch, tools, &[("        movq    $0, -8(%rbp)\n", "")]);
    image.function_contract("");
    let path = image.bench.path("image.toml");
    let text = fs::read_to_string(&path).unwrap().replace(" } },", ", always = true } },");
    fs::write(&path, text).unwrap();
    assert_eq!(image.failures(0), Vec::<String>::new());
}

#[test]
fn a_function_that_another_handler_redirects_is_called_where_it_was_redirected_to() {
    // Its address is on the stack; and, instead, known to the code: without redirection nobody would notice.
    let from_stack = ("call    traced + 5", "mov 8(%rbp), %rbx; call *%rbx");
    let called = ("        leave\n        ret", "        leave\n        add $8, %rsp\n        ret");
    let known = ("ldr     x10, [x29, #8]", "number  x10, (at.traced + 8)");
    let each: [(&str, Changes, Changes); 2] = [("x86_64", &[from_stack, called], &[called]), ("arm64", &[], &[known])];
    for (arch, tools) in arches() {
        for (_, sound, faulty) in each.iter().filter(|(of, ..)| *of == arch) {
            let contract = |image: &Image, redirected: bool| {
                image.contract("");
                let path = image.bench.path("image.toml");
                let flags = if redirected {
                    r#"["CALL_ORIG", "SKIP_FRAME", "ORIG_STACK"]"#
                } else {
                    r#"["CALL_ORIG", "SKIP_FRAME"]"#
                };
                let text = fs::read_to_string(&path).unwrap();
                let (before, behind) = text.split_once("flags = ").unwrap();
                let (_, behind) = behind.split_once('\n').unwrap();
                fs::write(&path, format!("{before}flags = {flags}\n{behind}")).unwrap();
            };
            let image = Image::changed(arch, tools, sound);
            contract(&image, true);
            assert_eq!(image.failures(0), Vec::<String>::new());
            let image = Image::changed(arch, tools, faulty);
            contract(&image, false);
            assert_eq!(image.failures(0), Vec::<String>::new());
            contract(&image, true);
            let found = image.failures(1);
            assert!(found.iter().any(|failure| failure == "P9 pc"), "{found:?}");
        }
    }
}

#[test]
fn a_function_may_leave_a_register_free_before_its_last_argument() {
    // No register is left for all of the struct, so it is on the stack (System V psABI, AAPCS64).
    for (arch, longs) in [("x86_64", 5), ("arm64", 7)] {
        let b = Bench::new();
        let args: Vec<String> = (0..longs).map(|n| format!("long a{n}")).collect();
        let sig = format!("long f({}, struct s {{ 16, 8 }} last)", args.join(", "));
        let made = ["gen", "programs", "--arch", arch, "--sig", &sig, "--fentry", "p"];
        let made = [&made[..], &["--emit", "obj,contract", "--stem", "t"]].concat();
        let object = ["--object", "t.o", "--contract", "t.toml"];
        // One that does not call the function, and one that does.
        for more in [&[][..], &["--fexit", "q", "--function", "f"]] {
            b.ok(&[&made, more].concat());
            b.ok(&[&["check"], &object[..]].concat());
        }
        let report = b.ok(&[&["mutate", "--format", "json"], &object[..]].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        let [mutants, killed] = ["mutants", "killed"].map(|key| report[key].as_u64().unwrap());
        assert!(mutants > 100 && 100 * killed >= 95 * mutants, "{arch}: {killed} of {mutants}");
    }
}

#[test]
fn a_kernels_memory_is_searched_for_trampolines() {
    for (arch, tools) in arches() {
        let image = Image::new(arch, tools);
        image.kernel();
        // The other one is not judged, so not all is decided.
        let report = image.bench.ends(1, &image.running(&[]));
        assert_eq!(failures(&report), Vec::<String>::new(), "{arch}");
        let results = results(&report);
        let passed = results.iter().filter(|r| r["trampoline"] == NAME && r["verdict"] == "pass").count();
        let open: Vec<&Value> = results.iter().filter(|r| r["verdict"] == "open").collect();
        assert!(passed > 8 && open.len() == 1, "{arch}: {results:?}");
        assert!(open[0]["trampoline"].as_str().unwrap().starts_with("ftrace_trampoline@"), "{arch}: {open:?}");
        image.bench.ok(&image.running(&[NAME]));
    }
}

#[test]
fn a_fault_in_a_kernels_memory_is_found_and_can_be_repeated() {
    let (arch, tools) = arches()[0];
    let image = Image::changed(arch, tools, &[("        mov     -0x28(%rbp), %rbx\n", "")]);
    image.kernel();
    let report = image.bench.ends(1, &image.running(&[NAME]));
    assert_eq!(failures(&report), ["P5 rbx"]);
    let failing = results(&report).into_iter().find(|result| result["verdict"] == "fail").unwrap();
    let again = failing["failures"][0]["replay"].as_str().unwrap();
    let again = image.bench.shell(1, again);
    assert!(again.contains("FAIL P5"), "{again}");
}

#[test]
fn what_is_not_a_kernels_is_refused_with_the_cure() {
    let (arch, tools) = arches()[0];
    let image = Image::new(arch, tools);
    image.kernel();
    let file = |name: &str| fs::read(image.bench.path(name)).unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(image.bench.path(name), bytes).unwrap();
    let all = image.running(&[NAME]);
    let (kcore, kallsyms, btf) = (file("kcore"), file("kallsyms"), file("btf"));
    put("kallsyms", String::from_utf8(kallsyms.clone()).unwrap().replace(&image.at("base")[2..], "0").as_bytes());
    image.bench.refuses(&all, &["the file does not have the kernel's memory at 0x0"]);
    put("kallsyms", b"0000000000000000 t _text\n");
    image.bench.refuses(&all, &["kallsyms", "shows no addresses", "kptr_restrict"]);
    put("kallsyms", &kallsyms);
    put("btf", b"none");
    image.bench.refuses(&all, &["btf", "no BTF"]);
    put("btf", &btf);
    put("kcore", b"none");
    image.bench.refuses(&all, &["kcore", "no ELF core file"]);
    // The last instruction is missing.
    put("kcore", &kcore[..kcore.len() - 1]);
    image.bench.refuses(&all, &["what was read ends there"]);
    put("kcore", &String::from_utf8_lossy(&kcore).replace("OSRELEASE", "ORELEASES").into_bytes());
    assert!(image.bench.run(&all).status.code() == Some(2));
    put("kcore", &kcore);
    image.bench.ok(&all);
    let without = ["check", "--kcore", "kcore", "--kallsyms", "kallsyms"];
    image.bench.refuses(&without, &["the kernel's types are not given"]);
    image.bench.refuses(&["check", "--kcore", "kcore"], &["--kallsyms"]);
}

/// A kernel's memory with a copy of a generated `ftrace_caller`, changed so, behind which its `ftrace_ops` is named; and the original.
fn copy(from: &str, to: &str) -> Bench {
    const AT: u64 = 0xffff_ffff_c060_0000;
    let b = Bench::new();
    b.ok(&["gen", "ftrace_caller", "--arch", "x86_64", "--profile", "linux-7.3", "--stem", "copy", "--emit", "asm"]);
    let text = fs::read_to_string(b.path("copy.S")).unwrap();
    assert!(text.contains(from), "{text}");
    let build = |text: &str, end: u64| {
        fs::write(b.path("t.S"), text).unwrap();
        b.tool("x86_64-linux-gnu-gcc", &["-c", "t.S", "-o", "t.o"]);
        let (at, op) = (format!("-Ttext={AT:#x}"), format!("--defsym=function_trace_op={:#x}", AT + end));
        let stub = format!("--defsym=ftrace_stub={:#x}", AT + 0x10_0000);
        b.tool("x86_64-linux-gnu-ld", &[&at, &op, &stub, "-e", "0", "t.o", "-o", "t"]);
        b.tool("x86_64-linux-gnu-objcopy", &["-O", "binary", "-j", ".text", "t", "t.bin"]);
        fs::read(b.path("t.bin")).unwrap()
    };
    let size = build(&text, 0x400).len() as u64;
    let (original, copy) = (build(&text, size), build(&text.replace(from, to), size));
    assert_eq!((copy.len() as u64, copy == original), (size, from == to));
    let mut memory = [copy, 0xffff_8881_0204_5600_u64.to_le_bytes().to_vec()].concat();
    let behind = AT + memory.len() as u64;
    memory.extend(original);
    let mut symbols = format!("{AT:016x} t ftrace_trampoline [__builtin__ftrace]\n{behind:016x} T ftrace_caller\n");
    // Functions: behind ENDBR64 a call of the copy, off, written just now, a call of a module's trampoline, a call that is no
    // site's, and none with a site.
    let call = |at: u64, to: u64| [&[0xe8][..], &(to.wrapping_sub(at + 5) as u32).to_le_bytes()].concat();
    let start = behind + size;
    let functions: [(&str, Vec<u8>); 6] = [
        ("traced", [vec![0xf3, 0x0f, 0x1e, 0xfa], call(start + 4, AT)].concat()),
        ("off", vec![0x0f, 0x1f, 0x44, 0, 0]),
        ("written", vec![0xcc, 0x1f, 0x44, 0, 0]),
        ("astray", call(start + 3 * 32, start + 5 * 32)),
        ("cold", call(start + 4 * 32, start + 32)),
        ("my_tramp [module]", vec![0x55, 0x48, 0x89, 0xe5, 0xc3]),
    ];
    for (n, (name, code)) in functions.iter().enumerate() {
        symbols += &format!("{:016x} T {name}\n", start + 32 * n as u64);
        memory.extend(code);
        memory.resize((start - AT) as usize + 32 * (n + 1), 0xcc);
    }
    fs::write(b.path("kcore"), core(62, &[(AT, memory)])).unwrap();
    fs::write(b.path("kallsyms"), symbols).unwrap();
    b
}

/// What a report says fails: clauses, and places.
fn of_copy(b: &Bench) -> Vec<String> {
    let run = b.run(&["check", "--kcore", "kcore", "--kallsyms", "kallsyms", "--format", "json"]);
    let report = String::from_utf8(run.stdout).unwrap();
    assert!(!report.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    failures(&report)
}

#[test]
fn copies_of_entry_trampolines_are_judged_by_the_contract_of_the_original() {
    assert_eq!(of_copy(&copy("ret", "ret")), Vec::<String>::new());
    let faults = [
        ("function_trace_op(%rip), %rdx", "function_trace_op(%rip), %rbx", "P10 given:rdx"),
        ("FRAME_SIZE + 8(%rsp), %rsi", "FRAME_SIZE + 0(%rsp), %rsi", "P10 parent_ip"),
        ("PT_R9(%rsp), %r9", "PT_R8(%rsp), %r9", "P1 r9"),
    ];
    for (from, to, place) in faults {
        let found = of_copy(&copy(from, to));
        assert!(found.iter().any(|f| f == place), "{from}: {found:?}");
    }
}

#[test]
fn the_sites_of_a_kernel_are_told_by_their_bytes() {
    let b = copy("ret", "ret");
    let text = b.ends(1, &["sites", "--kcore", "kcore", "--kallsyms", "kallsyms", "--format", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let sites = report["sites"].as_array().unwrap().iter();
    let text = |site: &Value, key: &str| site[key].as_str().unwrap_or("-").to_owned();
    let found: Vec<[String; 3]> =
        sites.map(|site| ["function", "state", "target"].map(|key| text(site, key))).collect();
    let expected =
        [["traced", "on", "ftrace_trampoline"], ["written", "being-written", "-"], ["astray", "elsewhere", "my_tramp"]];
    assert_eq!(found, expected.map(|site| site.map(str::to_owned)));
    assert_eq!([&report["totals"]["off"], &report["totals"]["on"], &report["totals"]["strange"]], [1, 1, 2]);
    b.refuses(&["sites", "--kcore", "kcore"], &["--kallsyms"]);
    b.refuses(&["sites"], &["<FILE>"]);
}

/// A kernel whose functions have sites of two instructions: the entry trampoline, one that is on, the same with a kprobe's breakpoint
/// first, one that is off with such a breakpoint, and one that has no site. Far before them is a trampoline of BPF.
fn of_two_instructions(machine: u16) -> Bench {
    const AT: u64 = 0xffff_ffff_8060_0000;
    let b = Bench::new();
    let (entry, mut memory) = (AT, vec![0_u32; 16]);
    let mut symbols = format!("{:016x} t bpf_trampoline_1 [bpf]\n{entry:016x} T ftrace_caller\n", AT - (1 << 28));
    for (n, name) in ["traced", "probed", "idle", "none"].iter().enumerate() {
        let at = AT + 64 * (n as u64 + 1);
        let back = entry.wrapping_sub(at);
        // Move the link register away, or what leads to the entry trampoline; a call; a breakpoint; nothing.
        let [first, call, trap, nop] = match machine {
            183 => {
                [0xaa1e_03e9, 0x9400_0000 | (back.wrapping_sub(4) as u32 >> 2 & 0x03ff_ffff), 0xd420_0080, 0xd503_201f]
            }
            _ => [0x0000_0297, (back as u32) << 20 | 0x0002_82e7, 0x0010_0073, 0x0000_0013],
        };
        memory.extend(match *name {
            "traced" => [first, call],
            "probed" => [trap, call],
            "idle" => [trap, nop],
            _ => [trap, first],
        });
        memory.resize(16 * (n + 2), 0);
        symbols += &format!("{at:016x} T {name}\n");
    }
    let memory: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(b.path("kcore"), core(machine, &[(AT, memory)])).unwrap();
    fs::write(b.path("kallsyms"), symbols).unwrap();
    b
}

#[test]
fn a_site_is_told_with_a_kprobe_in_it_and_by_the_entry_trampoline() {
    for machine in [183, 243] {
        let b = of_two_instructions(machine);
        let text = b.ok(&["sites", "--kcore", "kcore", "--kallsyms", "kallsyms", "--format", "json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let sites = report["sites"].as_array().unwrap().iter();
        let found: Vec<_> = sites.map(|site| ["function", "state", "target"].map(|key| site[key].clone())).collect();
        assert_eq!(found, [["traced", "on", "ftrace_caller"], ["probed", "on", "ftrace_caller"]], "{machine}");
        assert_eq!(report["totals"]["off"], 1, "{machine}");
    }
}

/// Programs before the function see 0 as its result, and after it bit 63 is set before the context: of an image that has no session,
/// both are missing.
#[test]
fn what_sessions_without_words_demand_is_judged() {
    for (arch, tools) in arches() {
        let image = Image::new(arch, tools);
        image.contract("wordless-sessions = true\n");
        let found = image.failures(1);
        assert!(found.iter().any(|failure| failure == "P10 context:count"), "{arch}: {found:?}");
    }
}

/// Programs are called in the order of the contract's list: of plain ones and sessions before the function, and of sessions and others
/// after it, each can be the first.
#[test]
fn programs_are_called_in_the_order_of_the_list() {
    for (arch, _) in arches() {
        let b = Bench::new();
        let list =
            ["--function", "f", "--sig", "long f(long a)", "--fentry", "one", "--fsession", "two", "--fexit", "three"];
        let how = ["gen", "programs", "--arch", arch, "--profile", "linux-7.3"];
        b.ok(&[&how[..], &list, &["--emit", "obj,contract", "--stem", "t"]].concat());
        let check = ["check", "--arch", arch, "--profile", "linux-7.3", "--object", "t.o", "--contract", "t.toml"];
        b.ok(&check);
        let contract = fs::read_to_string(b.path("t.toml")).unwrap();
        let line = |name: &str| contract.lines().find(|line| line.contains(&format!("\"{name}\""))).unwrap();
        for [first, second] in [["one", "two"], ["two", "three"]] {
            let (a, b_) = (line(first), line(second));
            let swapped = contract.replace(a, "@").replace(b_, a).replace('@', b_);
            fs::write(b.path("t.toml"), swapped).unwrap();
            let report = b.run(&check);
            let said = String::from_utf8_lossy(&report.stdout);
            assert!(report.status.code() == Some(1) && said.contains("P10"), "{arch} {first} {second}: {said}");
        }
    }
}
