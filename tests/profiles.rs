//! Kernels and tracers as data: the page that says how to write one is followed, mistakes in one are told with their line,
//! and what needs no kernel needs nothing but its handlers.

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use codegen::ask::spec::{Kind, Spec};
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::profile::target::Target;
use common::Bench;
use object::{Object, ObjectSection, ObjectSymbol};
use profiles::Source;
use tool::BACKENDS;

const PAGE: &str = include_str!("../docs/adding-a-profile.md");

/// The block of the page in this language.
fn block(language: &str) -> &'static str {
    let from = PAGE.split_once(&format!("```{language}\n")).expect("the block").1;
    from.split_once("```").expect("its end").0
}

#[test]
fn the_page_is_true() {
    let bench = Bench::new();
    std::fs::write(bench.path("mine.toml"), block("toml")).unwrap();
    for command in block("sh").lines() {
        let arguments: Vec<&str> = command.strip_prefix("tramptool ").unwrap().split(' ').collect();
        let out = bench.ends(0, &arguments);
        match arguments[0] {
            "list" => assert!(out.contains("on_event(regs, caller, ip)") && out.contains("my_regs_entry"), "{out}"),
            "check" => assert!(out.contains(" 0 fail"), "{out}"),
            _ => {}
        }
    }
    let text = std::fs::read_to_string(bench.path("out/riscv64.S")).unwrap();
    for expected in ["my_entry:", "EVENT_CALLER", "on_event", "on_event(regs, caller, ip)", "profile mine"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let shown = bench.ends(0, &["show", "my_entry", "--arch", "riscv64", "--profile", "mine.toml"]);
    assert!(shown.contains("EVENT_CALLER"), "{shown}");
    // Another order of the arguments and another frame are differences.
    let other = bench.ends(1, &["diff", "riscv64:my_entry,profile=mine.toml", "riscv64:trace_caller,profile=bare"]);
    assert!(other.contains("argument 0"), "{other}");
}

/// A kernel has its threads' memory by another register than a program, and who uses that of the other is noticed.
#[test]
fn a_profile_says_which_register_is_the_thread_pointer() {
    let bench = Bench::new();
    std::fs::write(bench.path("el1.toml"), "extends = \"bare\"\n[arch.arm64]\nthread = \"tpidr_el1\"\n").unwrap();
    let gen_record = |profile: &str, out: &str| {
        let record =
            ["gen", "record", "--arch", "arm64", "--function", "f", "--sig", "long f(long)", "--events", "both"];
        let kinds = ["--clock", "none", "--emit", "asm,obj,contract", "--stem", "r"];
        bench.ends(0, &[&record[..], &kinds, &["--profile", profile, "-o", out]].concat());
        std::fs::read_to_string(bench.path(&format!("{out}/r.S"))).unwrap()
    };
    let [program, kernel] = [gen_record("bare", "program"), gen_record("el1.toml", "kernel")];
    assert_eq!(program.replace("tpidr_el0", "tpidr_el1"), kernel);
    let mut gas = Command::new("aarch64-linux-gnu-as");
    assert!(gas.args(["r.S", "-o", "gas.o"]).current_dir(bench.path("kernel")).status().unwrap().success());
    let text = |name: &str| {
        let bytes = std::fs::read(bench.path(&format!("kernel/{name}"))).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        file.section_by_name(".text").unwrap().data().unwrap().to_vec()
    };
    assert_eq!(text("gas.o"), text("r.o"), "GNU as says otherwise");
    let everything = bench.ends(0, &["check", "record_*", "--arch", "arm64", "--profile", "el1.toml"]);
    assert!(everything.contains(" 0 fail"), "{everything}");
    let judged = ["check", "--contract", "kernel/r.toml", "--profile", "el1.toml", "--object"];
    bench.ends(0, &[&judged[..], &["kernel/r.o"]].concat());
    bench.ends(1, &[&judged[..], &["program/r.o"]].concat());
    let unknown = "extends = \"bare\"\n[arch.arm64]\nthread = \"tp\"\n";
    std::fs::write(bench.path("unknown.toml"), unknown).unwrap();
    bench.refuses(&["list", "--profile", "unknown.toml"], &["unknown.toml:3", "'tp'; valid: tpidr_el0, tpidr_el1"]);
}

/// The replay of a failure names the profile.
#[test]
fn a_failure_under_a_profile_is_seen_again() {
    let profile = tool::profile("bare").unwrap();
    for backend in BACKENDS {
        let convention = profile.convention(backend.facts().name).unwrap();
        let target = backend.target(convention, convention.defaults()).unwrap();
        let suite = tool::suite::suite(*backend, &target).unwrap();
        assert!(suite.options.starts_with("profile=bare "), "{}", suite.options);
        let (again, settings) = tool::settings::of_options(&suite.options).unwrap();
        let again = again.convention(backend.facts().name).unwrap();
        assert_eq!(tool::settings::target(*backend, again, &settings).unwrap().choices, target.choices);
    }
}

/// Whatever handlers do, no trampoline loses a vector register with an argument or a result where vector registers are saved; and
/// each does where they are not.
#[test]
fn bare_trampolines_keep_vector_registers() {
    let bench = Bench::new();
    for backend in BACKENDS {
        let what = ["check", "trace_caller", "trace_regs_caller", "trace_return", "direct_1", "direct_0_ip"];
        let around = ["around_frame_1", "around_fregs", "--arch", backend.facts().name, "--profile", "bare"];
        // Where the ABI has them in use.
        let abi = backend.facts().options.iter().any(|option| option.values.contains(&"lp64d"));
        let abi = if abi { &["--set", "abi=lp64d"][..] } else { &[] };
        let judge = |set: &str| bench.ok(&[&what[..], &around, abi, &["--set", set, "--format", "json"]].concat());
        let lost = |report: &str| report.matches("\"vectors-lost\"").count();
        let [saved, none] = ["vectors=save", "vectors=none"].map(judge);
        assert_eq!((lost(&saved), saved.matches("\"vector-results-lost\"").count()), (0, 0), "{saved}");
        assert!(lost(&none) > 6 && none.contains("\"vector-results-lost\""), "{none}");
    }
}

/// A trampoline of kretprobes has no room for vector registers, and one whose ABI has none in use needs none.
#[test]
fn what_saves_no_vector_registers_says_so() {
    let bench = Bench::new();
    let text = "name = \"kret\"\nabout = \"with kretprobes\"\nextends = \"linux-7.3\"\n\
                [arch.x86_64.option.vectors]\n[arch.riscv64.option.vectors]\n[arch.riscv64.option.abi]\nfixed = false\n";
    std::fs::write(bench.path("kret.toml"), text).unwrap();
    for arch in ["x86_64", "riscv64"] {
        let name = tool::profile("linux-7.3").unwrap().convention(arch).unwrap().symbol(Kind::Rethook).unwrap();
        let made = ["gen", name, "--arch", arch, "--profile", "kret.toml", "-o", "out"];
        bench.ok(&made);
        let mut saved = made.to_vec();
        saved.extend(["--set", "vectors=save", "--set", "abi=lp64d"].iter().take(if arch == "riscv64" {
            4
        } else {
            2
        }));
        bench.refuses(&saved, &[name, "kretprobes", "no room for vector registers", "valid: without the option"]);
    }
    let known = ["gen", "ftrace_caller", "--arch", "x86_64", "--set", "vectors=save", "-o", "out"];
    bench.refuses(&known, &["option 'vectors' of x86_64 has one value in profile linux-7.3"]);
    let soft = ["gen", "trace_caller", "--arch", "riscv64", "--profile", "bare", "--set", "abi=lp64", "-o", "-"];
    assert!(!bench.ok(&soft).contains("VEC0"));
}

#[test]
fn bare_objects_need_nothing_but_their_handlers() {
    let bench = Bench::new();
    for backend in BACKENDS {
        let arch = backend.facts().name;
        bench.ends(0, &["gen", "--all", "--arch", arch, "--profile", "bare", "--emit", "obj", "-o", "out"]);
        let bytes = std::fs::read(bench.path(&format!("out/{arch}.o"))).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let mut missing: Vec<&str> =
            file.symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).collect();
        missing.retain(|name| !name.is_empty());
        missing.sort_unstable();
        assert_eq!(missing, ["trace_entry", "trace_exit"], "{arch}");
        // GNU ld agrees, where nothing but the two is given.
        let linker = backend.facts().assembler.replace("-as", "-ld");
        let object = bench.path(&format!("out/{arch}.o"));
        let handlers = ["--defsym=trace_entry=0x10000", "--defsym=trace_exit=0x10000", "-e", "0"];
        let mut ld = Command::new(&linker);
        ld.args(handlers).args(["-Ttext=0x11000", "-o"]).arg(bench.path("image")).arg(object);
        let ld = ld.output().unwrap();
        assert!(ld.status.success(), "{linker}: {}", String::from_utf8_lossy(&ld.stderr));
    }
}

/// Each slot of a register that a trampoline must give back is missed where it is missing: with its line, and the cure.
fn frames_keep_what_is_live(facts: &[&'static codegen::arch::facts::Facts]) {
    let bare = include_str!("../profiles/bare.toml");
    let lines: Vec<&str> = bare.lines().collect();
    let mut missed = 0;
    for (n, line) in lines.iter().enumerate() {
        let Some((_, holds)) = line.split_once("holds = \"") else { continue };
        let (reg, rest) = holds.split_once('"').unwrap();
        let frame = lines[..n].iter().rposition(|l| l.starts_with("field = [")).unwrap();
        let header = lines[..n].iter().rfind(|l| l.starts_with("[arch.")).unwrap();
        let arch = header["[arch.".len()..].split('.').next().unwrap();
        let abi = &facts.iter().find(|f| f.name == arch).unwrap().abi;
        let lost = tool::profile("bare").unwrap().convention(arch).unwrap().site.lost;
        let due = |reg| abi.caller_saved.contains(reg) && !lost.contains(reg);
        let kept = rest.contains("stores") && abi.find(reg).is_some_and(due);
        // Of those around functions, results have members too.
        if !kept || header.contains("around") || lines[frame..n].contains(&"]") {
            continue;
        }
        let text = [&lines[..n], &lines[n + 1..]].concat().join("\n").replacen("name = \"bare\"", "name = \"mine\"", 1);
        let e = profiles::load(Source { name: "mine.toml", text: &text }, facts).expect_err(line).to_string();
        let live = if header.ends_with(".exit]") { "returns" } else { "sites" };
        let told = format!("mine.toml:{}: {reg} is live at {live}, and no slot keeps it; valid: ", frame + 1);
        assert!(e.starts_with(&told), "{line}: {e}");
        missed += 1;
    }
    assert!(missed > 70, "{missed}");
}

/// A mistake, and what the message has of it.
#[test]
fn mistakes_are_told_with_their_line() {
    let good = block("toml");
    let cases = [
        (
            "extends = \"bare\"",
            "extends = \"bear\"",
            "mine.toml:3: unknown profile 'bear'; valid: linux-6.12, linux-7.2, linux-7.3, bare",
        ),
        (
            "\"parent-ip\", \"ip\"]",
            "\"parent_ip\", \"ip\"]",
            "mine.toml:8: unknown argument 'parent_ip'; valid: ip, parent-ip",
        ),
        ("symbol = \"my_exit\"", "symbol = \"my exit\"", "mine.toml:18: 'my exit' is no symbol"),
        ("[trampoline.return]", "[trampoline.exit]", "mine.toml:17: unknown trampoline 'exit'; valid: stub,"),
        ("holds = \"a7\"", "holds = \"a8\"", "mine.toml:35: unknown content 'a8'"),
        ("offset = 88", "offset = 89", "mine.toml:36: offset = 89; valid: a multiple of 8 from 0 to 104"),
        ("offset = 88", "offset = 80", "mine.toml:36: EVENT_S0 is where EVENT_A7 is"),
        (
            "    { symbol = \"EVENT_CHAIN\", offset = 96, holds = \"t2\", stores = \"cannot-happen\" },\n",
            "",
            "mine.toml:24: t2 is live at sites, and no slot keeps it; valid: a field with `holds = \"t2\"`",
        ),
        (
            "    { symbol = \"EVENT_A6\", member = \"a6\", offset = 72, holds = \"a6\", stores = \"take-effect\" },\n",
            "",
            "mine.toml:24: a6 is live at sites, and no slot keeps it; valid: a field with `holds = \"a6\"`",
        ),
        (
            "holds = \"a7\", stores = \"take-effect\"",
            "holds = \"a7\", stores = \"cannot-happen\"",
            "mine.toml:35: EVENT_A7 is a member",
        ),
        ("size = 96", "size = 97", "mine.toml:22: size = 97"),
        ("[arch.riscv64.", "[arch.riscv.", "mine.toml:20: unknown architecture 'riscv'; valid: x86_64, arm64, riscv64"),
        ("about = ", "abut = ", "mine.toml:2: unknown field `abut`"),
        ("[\"fregs\", ", "[\"op\", ", "mine.toml:6: `op` is missing: the variable for the argument `op`"),
        ("name = \"mine\"", "name = mine", "mine.toml:1: "),
    ];
    let facts: Vec<_> = BACKENDS.iter().map(|b| b.facts()).collect();
    profiles::load(Source { name: "mine.toml", text: good }, &facts).unwrap();
    for (right, wrong, message) in cases {
        assert!(good.contains(right), "{right}");
        let text = good.replacen(right, wrong, 1);
        let e = profiles::load(Source { name: "mine.toml", text: &text }, &facts).expect_err(wrong).to_string();
        assert!(e.starts_with(message), "{wrong}: {e}");
    }
    frames_keep_what_is_live(&facts);
    let itself = "extends = \"x.toml\"";
    assert!(profiles::load(Source { name: "x.toml", text: itself }, &facts).is_err());
    let bench = Bench::new();
    bench.refuses(
        &["list", "--profile", "nothing"],
        &["unknown profile 'nothing'; valid: linux-6.12, linux-7.2, linux-7.3, bare, a file"],
    );
    bench.refuses(&["list", "--profile", "none.toml"], &["cannot read profile none.toml"]);
}

/// What was asked for is judged; what the profile cannot have is absent.
#[test]
fn a_trampoline_is_judged_whatever_others_the_profile_cannot_have() {
    const NO_PARENT: &str = "\
extends = \"bare\"
[callback]
arguments = [\"ip\", \"fregs\"]
prototype = \"func(ip, regs)\"
";
    let bench = Bench::new();
    std::fs::write(bench.path("parentless.toml"), NO_PARENT).unwrap();
    // A thread pointer, and no number that says where in its memory the records are.
    for backend in BACKENDS {
        let arch = backend.facts().name;
        let thread = tool::profile("bare").unwrap().convention(arch).unwrap().thread.unwrap();
        let own = format!("extends = \"linux-7.3\"\n[arch.{arch}]\nthread = \"{thread}\"\n");
        std::fs::write(bench.path("numberless.toml"), own).unwrap();
        for (profile, name, others) in
            [("parentless.toml", "trace_caller", "around_shadow"), ("numberless.toml", "ftrace_caller", "record_count")]
        {
            let check = ["check", "--arch", arch, "--profile", profile, "--function", "args2"];
            let out = bench.ends(0, &[&check[..], &[name]].concat());
            assert!(out.starts_with("holds: 1 trampoline"), "{arch} {profile}: {out}");
            bench.refuses(&[&check[..], &[others]].concat(), &[&format!("unknown trampoline '{others}'")]);
        }
    }
}

/// An option that a profile fixes is no choice.
#[test]
fn what_a_profile_does_not_offer_is_refused() {
    let bench = Bench::new();
    let command = ["gen", "trace_caller", "--arch", "arm64", "--profile", "bare", "-o", "out"];
    bench.refuses(
        &[&command[..], &["--set", "call-ops=on"]].concat(),
        &["option 'call-ops' of arm64 has one value in profile bare"],
    );
    bench.refuses(
        &["gen", "ftrace_caller", "--arch", "arm64", "--profile", "bare", "-o", "out"],
        &["unknown trampoline 'ftrace_caller'; valid: trace_caller"],
    );
}

/// The schema has the entries that the profiles of the repository use.
#[test]
fn profiles_fit_their_schema() {
    let bench = Bench::new();
    let schema: serde_json::Value = serde_json::from_str(&bench.ends(0, &["report", "schema", "profile"])).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let texts = profiles::BUILT_IN.iter().map(|(_, text)| *text).chain([block("toml")]);
    for text in texts {
        let table: toml::Table = toml::from_str(text).unwrap();
        let value = serde_json::to_value(&table).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    let wrong = serde_json::json!({ "nme": "x" });
    assert!(!validator.is_valid(&wrong));
}

/// Where asm-offsets.h of a build of 7.3.4 says that things are (Debian's linux-source-7.3, arm64, with CALL_OPS and without).
const OFFSETS_7_3: &str = "S_X0 0, S_X2 16, S_X4 32, S_X6 48, S_X8 64, S_X10 80, S_X12 96, S_X14 112, S_X16 128, \
    S_X18 144, S_X20 160, S_X22 176, S_X24 192, S_X26 208, S_X28 224, S_FP 232, S_LR 240, S_SP 248, S_PC 256, S_PSTATE 264, \
    S_SYSCALLNO 280, S_SDEI_TTBR1 288, S_STACKFRAME 296, S_STACKFRAME_TYPE 312, PT_REGS_SIZE 320, FREGS_X0 0, FREGS_X2 16, \
    FREGS_X4 32, FREGS_X6 48, FREGS_X8 64, FREGS_FP 80, FREGS_LR 88, FREGS_SP 96, FREGS_PC 104, FREGS_DIRECT_TRAMP 72, \
    FREGS_SIZE 112, FTRACE_OPS_FUNC 0, FTRACE_OPS_DIRECT_CALL 192";

/// The same of builds for riscv64: by gcc, by clang, and by clang with CFI, which is without CALL_OPS. Symbols that the first
/// has not, the others have.
const RISCV64_7_3: [(&str, &str, &str, &str); 3] = [
    (
        "on",
        "gcc",
        "FTRACE_OPS_FUNC 0, FTRACE_OPS_DIRECT_CALL 192, FREGS_SIZE_ON_STACK 112, FREGS_EPC 0, FREGS_RA 8, FREGS_SP 16, \
         FREGS_S0 24, FREGS_T1 32, FREGS_A0 48, FREGS_A1 56, FREGS_A2 64, FREGS_A3 72, FREGS_A4 80, FREGS_A5 88, \
         FREGS_A6 96, FREGS_A7 104",
        "FREGS_T2",
    ),
    (
        "on",
        "clang",
        "FTRACE_OPS_FUNC 0, FTRACE_OPS_DIRECT_CALL 192, FREGS_SIZE_ON_STACK 160, FREGS_EPC 0, FREGS_RA 8, FREGS_SP 16, \
         FREGS_S0 24, FREGS_T1 32, FREGS_T2 112, FREGS_T3 120, FREGS_T4 128, FREGS_T5 136, FREGS_T6 144, FREGS_A0 48, \
         FREGS_A1 56, FREGS_A2 64, FREGS_A3 72, FREGS_A4 80, FREGS_A5 88, FREGS_A6 96, FREGS_A7 104",
        "FREGS_T0",
    ),
    (
        "off",
        "clang",
        "FTRACE_OPS_FUNC 0, FREGS_SIZE_ON_STACK 144, FREGS_EPC 0, FREGS_RA 8, FREGS_SP 16, FREGS_S0 24, FREGS_T1 32, \
         FREGS_T2 104, FREGS_T3 112, FREGS_T4 120, FREGS_T5 128, FREGS_T6 136, FREGS_A0 40, FREGS_A1 48, FREGS_A2 56, \
         FREGS_A3 64, FREGS_A4 72, FREGS_A5 80, FREGS_A6 88, FREGS_A7 96",
        "FREGS_T0",
    ),
];

#[test]
fn linux_7_3_is_laid_out_on_riscv64_as_its_builds_say() {
    let riscv64 = tool::backend("riscv64").unwrap();
    let convention = tool::profile("linux-7.3").unwrap().convention("riscv64").unwrap();
    for (call_ops, compiler, offsets, absent) in RISCV64_7_3 {
        let mut choices = convention.defaults();
        for (name, value) in [("call-ops", call_ops), ("compiler", compiler)] {
            choices.set("riscv64", riscv64.facts().options, name, value).unwrap();
        }
        let target = riscv64.target(convention, choices).unwrap();
        for row in offsets.split(", ") {
            let (symbol, value) = row.split_once(' ').unwrap();
            let value = value.parse().unwrap();
            if symbol == "FREGS_SIZE_ON_STACK" {
                let stacks: Vec<i32> = ["ftrace_caller", "return_to_handler"]
                    .map(|name| target.frame(convention.kind(name).unwrap()).unwrap().size)
                    .to_vec();
                assert_eq!(stacks, [value, value], "{compiler}, call-ops={call_ops}");
                continue;
            }
            // t1 and s0 are no names of ours where nobody is told of them.
            assert_eq!(target.value(symbol), Some(value), "{symbol}, {compiler}, call-ops={call_ops}");
        }
        assert_eq!(target.value(absent), None, "{absent}, {compiler}, call-ops={call_ops}");
    }
}

#[test]
fn linux_7_3_is_laid_out_as_its_build_says() {
    let arm64 = tool::backend("arm64").unwrap();
    let convention = tool::profile("linux-7.3").unwrap().convention("arm64").unwrap();
    for choices in convention.combinations(|_| true) {
        let target = arm64.target(convention, choices).unwrap();
        let size = |name| target.struct_frames().find(|f| f.c_struct == name).map(|f| f.c_size);
        for row in OFFSETS_7_3.split(", ") {
            let (symbol, value) = row.split_once(' ').unwrap();
            let ours = match symbol {
                "PT_REGS_SIZE" => size("struct pt_regs"),
                "FREGS_SIZE" => size("struct ftrace_regs"),
                _ => target.value(symbol),
            };
            assert_eq!(ours, Some(value.parse().unwrap()), "{symbol}, {}", target.describe());
        }
    }
}

/// An object, and the sentences of the contract.
type Made = (Vec<u8>, Vec<String>);

/// What is made of each trampoline; nothing of one that these options do not allow.
fn made(backend: &dyn Backend, target: &Target) -> BTreeMap<String, Option<Made>> {
    let one = |spec: &Spec| {
        let assembly = backend.assemble(std::slice::from_ref(spec), target).ok()?;
        Some((codegen::out::obj::write(&assembly, target).unwrap(), Contract::of(spec, target).unwrap().sentences()))
    };
    let trampolines = tool::suite::trampolines(target).unwrap();
    tool::suite::specs(&trampolines).iter().map(|spec| (spec.name.to_owned(), one(spec))).collect()
}

/// What 7.3 brings is a direct call without CALL_OPS on arm64, and the tail call counter on riscv64.
#[test]
fn linux_7_2_is_7_3_but_for_two_things() {
    let [newer, older] = ["linux-7.3", "linux-7.2"].map(|name| tool::profile(name).unwrap());
    let (mut same, mut other) = (0, vec![]);
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let [newer, older] = [newer, older].map(|profile| profile.convention(arch).unwrap());
        for choices in newer.combinations(|_| true) {
            let [newer, older] = [newer, older].map(|convention| backend.target(convention, choices).unwrap());
            let (mut newer_made, older_made) = (made(*backend, &newer), made(*backend, &older));
            newer_made.retain(|name, _| older_made.contains_key(name) || !name.contains("tail_call"));
            if newer_made == older_made { same += 1 } else { other.push(format!("{arch} {}", newer.describe())) }
        }
    }
    assert!(same > 10 && !other.is_empty(), "{same}, {other:?}");
    assert!(other.iter().all(|choices| choices.starts_with("arm64 ") && choices.contains("call-ops=off")), "{other:?}");
    let counter = ["linux-7.2", "linux-7.3"].map(|name| {
        let of = |arch| tool::profile(name).unwrap().convention(arch).unwrap().programs.tail_call.is_some();
        ["x86_64", "riscv64"].map(of)
    });
    assert_eq!(counter, [[true, false], [true, true]]);
}

/// On riscv64 the compiler decides what is saved, and CALL_OPS what is called.
#[test]
fn linux_7_3_is_configured_on_riscv64() {
    let bench = Bench::new();
    let needed = ["ARCH_RV64I", "FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_ARGS"];
    for (call_ops, compiler, offsets, _) in RISCV64_7_3 {
        let offsets: String = offsets.split(", ").map(|row| format!("#define {row}\n")).collect();
        std::fs::write(bench.path("asm-offsets.h"), offsets).unwrap();
        let more: &[&str] = if call_ops == "on" { &["DYNAMIC_FTRACE_WITH_CALL_OPS"] } else { &[] };
        let of_compiler = if compiler == "clang" { "CC_IS_CLANG" } else { "CC_IS_GCC" };
        let set: String = needed.iter().chain(more).chain([&of_compiler]).map(|n| format!("CONFIG_{n}=y\n")).collect();
        std::fs::write(bench.path("config"), format!("#\n#\n# Linux/riscv 7.3.4 Kernel Configuration\n#\n{set}"))
            .unwrap();
        let gen_config = ["gen", "--config", "config", "--asm-offsets", "asm-offsets.h", "--all", "-o", "out"];
        let run = bench.run(&[&gen_config[..], &["--profile", "linux-7.3"]].concat());
        let decided = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.success(), "{decided}");
        for option in [format!("call-ops={call_ops}"), format!("compiler={compiler}"), "rvc=off".to_owned()] {
            assert!(decided.contains(&option), "{option} is not in {decided}");
        }
    }
}

/// A paired trampoline wants a site that jumps, and a site of which one instruction changes has no room for it.
#[test]
fn what_a_site_would_jump_to_is_refused_where_none_does() {
    let bench = Bench::new();
    let arch = ["--arch", "riscv64", "--profile", "linux-7.3", "-o", "out"];
    let around = ["gen", "around", "--form", "fregs", "--function", "f+8", "--call", "g", "--exit", "h", "--name", "a"];
    bench.refuses(&[&around[..], &arch].concat(), &["sites of riscv64 in profile linux-7.3 do not jump"]);
    let programs = ["gen", "programs", "--sig", "int f(int a)", "--fexit", "p", "--function", "f+8", "--name", "t"];
    let refused = bench.run(&[&programs[..], &arch, &["--flags", "CALL_ORIG"]].concat());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("valid: the flag SKIP_FRAME"));
    bench.ends(0, &[&programs[..], &arch, &["--flags", "CALL_ORIG,SKIP_FRAME"]].concat());
}

/// Bit 0 of a direct trampoline's address means something to one architecture of one profile.
#[test]
fn a_direct_trampoline_to_jump_to_is_refused_where_no_site_does() {
    let bench = Bench::new();
    let direct = ["show", "direct", "--args", "2", "--call", "g"];
    let to =
        |arch, profile, more: &[&'static str]| [&direct, &["--arch", arch, "--profile", profile][..], more].concat();
    let jump = ["--jump", "--function", "f+9"];
    let shown = bench.ends(0, &to("x86_64", "linux-7.3", &jump));
    assert!(shown.contains("jmp     f+9") && shown.contains("Then jumps to f behind its site"), "{shown}");
    for (arch, profile) in [("x86_64", "linux-6.12"), ("arm64", "linux-7.3"), ("riscv64", "linux-7.3")] {
        bench.refuses(
            &to(arch, profile, &["--jump", "--function", "f+8"]),
            &["call direct trampolines; valid: without --jump"],
        );
    }
    bench.refuses(&to("x86_64", "linux-7.3", &jump[..1]), &["--function is missing"]);
    bench.refuses(&to("x86_64", "linux-7.3", &jump[1..]), &["valid: without --function, or with --jump"]);
}

/// A configuration of 7.3 with and without CALL_OPS, one that is refused, and the numbers of its build.
#[test]
fn linux_7_3_is_configured() {
    let bench = Bench::new();
    let offsets: Vec<String> =
        OFFSETS_7_3.split(", ").filter(|row| !row.contains("_SIZE ")).map(|row| format!("#define {row}\n")).collect();
    std::fs::write(bench.path("asm-offsets.h"), offsets.concat()).unwrap();
    let config = |more: &[&str]| {
        let needed = ["ARM64", "FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_ARGS", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"];
        let set: String = needed.iter().chain(more).map(|name| format!("CONFIG_{name}=y\n")).collect();
        std::fs::write(bench.path("config"), format!("#\n#\n# Linux/arm64 7.3.4 Kernel Configuration\n#\n{set}"))
            .unwrap();
    };
    let gen_config = ["gen", "--config", "config", "--asm-offsets", "asm-offsets.h", "--all", "-o", "out"];
    for (more, chosen) in [(&["DYNAMIC_FTRACE_WITH_CALL_OPS"][..], "on"), (&[], "off")] {
        config(more);
        let run = bench.run(&gen_config);
        let decided = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.success() && decided.contains(&format!("call-ops={chosen}")), "{decided}");
    }
    config(&["CFI"]);
    let decided = String::from_utf8(bench.run(&gen_config).stderr).unwrap();
    assert!(decided.contains("call-ops=off") && decided.contains("cfi=kcfi for CONFIG_CFI=y"), "{decided}");
}

#[test]
fn an_architecture_that_a_profile_does_not_offer_is_refused_by_name() {
    let bench = Bench::new();
    let mine = "extends = \"linux-7.3\"\nname = \"mine\"\n[arch.riscv64]\nrefused = \"nobody has tried it\"\n";
    std::fs::write(bench.path("mine.toml"), mine).unwrap();
    let profile = ["--profile", "mine.toml"];
    let refused = ["profile mine does not offer riscv64: nobody has tried it; valid: arm64, x86_64"];
    for command in ["show", "check", "cost"] {
        bench.refuses(&[&[command, "ftrace_caller", "--arch", "riscv64"][..], &profile].concat(), &refused);
    }
    bench.refuses(&[&["list", "--arch", "riscv64"][..], &profile].concat(), &refused);
    // Where none is named, all that it offers are meant.
    let listed = bench.ends(0, &[&["list"][..], &profile].concat());
    assert!(listed.contains("\narm64") && listed.contains("\nx86_64") && !listed.contains("riscv64"), "{listed}");
    let checked = bench.ends(0, &[&["check", "ftrace_stub"][..], &profile].concat());
    assert!(checked.contains("\narm64 ") && checked.contains("\nx86_64 ") && checked.contains(" 0 fail"), "{checked}");
    assert!(!checked.contains("riscv64"), "{checked}");
}

/// What is done against speculation, as a distribution chooses it. What ITS asks for is done by the return thunk, which is one of
/// several when the kernel has booted.
#[test]
fn linux_7_3_is_hardened_as_configured() {
    let bench = Bench::new();
    std::fs::write(bench.path("asm-offsets.h"), "").unwrap();
    let config = |more: &[&str]| {
        let needed = ["X86_64", "FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_ARGS", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"];
        let set: String = needed.iter().chain(more).map(|name| format!("CONFIG_{name}=y\n")).collect();
        let text = format!("#\n#\n# Linux/x86 7.3.4 Kernel Configuration\n#\n{set}");
        std::fs::write(bench.path("config"), text).unwrap();
    };
    let all =
        ["gen", "--config", "config", "--asm-offsets", "asm-offsets.h", "--all", "-o", "out", "--profile", "linux-7.3"];
    let hardened = ["X86_KERNEL_IBT", "MITIGATION_RETHUNK", "MITIGATION_ITS", "MITIGATION_SLS", "CALL_PADDING"];
    for (set, chosen) in [
        (&hardened[..], ["endbr=on", "return=thunk", "call-padding=on"]),
        (&["MITIGATION_SLS"], ["endbr=off", "return=int3", "call-padding=off"]),
        (&[], ["endbr=off", "return=ret", "call-padding=off"]),
    ] {
        config(set);
        let run = bench.run(&all);
        let decided = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.success() && chosen.iter().all(|c| decided.contains(c)), "{set:?}: {decided}");
    }
}

/// What is called through pointers has its type: in 6.12 by the option's old name. FineIBT is made of it when the kernel boots,
/// from the functions that objtool finds by their names (tools/objtool/check.c, `create_cfi_sections`).
#[test]
fn types_follow_from_the_configuration() {
    let bench = Bench::new();
    std::fs::write(bench.path("asm-offsets.h"), "").unwrap();
    let decided = |version: &str, more: &[&str]| {
        let needed = ["X86_64", "FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_ARGS", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"];
        let set: String = needed.iter().chain(more).map(|name| format!("CONFIG_{name}=y\n")).collect();
        let text = format!("#\n#\n# Linux/x86 {version} Kernel Configuration\n#\n{set}");
        std::fs::write(bench.path("config"), text).unwrap();
        let all = [
            "gen",
            "--config",
            "config",
            "--asm-offsets",
            "asm-offsets.h",
            "--all",
            "-o",
            "out",
            "--stem",
            "t",
            "--emit",
            "obj",
        ];
        let run = bench.run(&all);
        let decided = String::from_utf8(run.stderr).unwrap();
        assert!(run.status.success(), "{decided}");
        (decided, bench.tool("x86_64-linux-gnu-readelf", &["-rsW", "out/t.o"]))
    };
    for (version, named, other) in
        [("6.12.1", "CFI_CLANG", "CFI"), ("7.2.1", "CFI", "CFI_CLANG"), ("7.3.4", "CFI", "CFI_CLANG")]
    {
        let (told, object) = decided(version, &[named, "FINEIBT", "X86_KERNEL_IBT", "CALL_PADDING"]);
        assert!(told.contains(&format!("cfi=kcfi for CONFIG_{named}=y")), "{told}");
        for stub in ["ftrace_stub", "ftrace_stub_graph"] {
            let has = |parts: &[&str]| object.lines().any(|line| parts.iter().all(|part| line.contains(part)));
            assert!(has(&["R_X86_64_32 ", &format!(" __kcfi_typeid_{stub} ")]), "{version} {stub}: {object}");
            assert!(has(&["    16 FUNC    LOCAL ", &format!(" __cfi_{stub}")]), "{version} {stub}: {object}");
        }
        assert!(!object.contains("__kcfi_typeid_ftrace_caller"), "{object}");
        let (told, object) = decided(version, &[other]);
        assert!(told.contains("cfi=off") && !object.contains("kcfi"), "{told}");
    }
}

/// Where 7.3 has ENDBR with CONFIG_X86_KERNEL_IBT (arch/x86/kernel/ftrace_64.S): SYM_TYPED_FUNC_START puts one, SYM_FUNC_START
/// no longer does.
#[test]
fn linux_7_3_has_landing_pads_only_where_something_branches_indirectly() {
    let bench = Bench::new();
    let of_both = [("ftrace_stub", true), ("ftrace_stub_graph", true), ("return_to_handler", false)];
    let direct = ["ftrace_caller", "ftrace_regs_caller", "ftrace_stub_direct_tramp"];
    for (profile, directly) in [("linux-6.12", true), ("linux-7.3", false)] {
        let all = of_both.into_iter().chain(direct.map(|name| (name, directly)));
        for (name, padded) in all {
            let shown = bench.ends(0, &["show", name, "--arch", "x86_64", "--profile", profile, "--set", "endbr=on"]);
            assert_eq!(shown.contains("endbr64\n"), padded, "{profile} {name}");
            let told = if padded { "entry         ENDBR64" } else { "entry         no landing pad" };
            assert!(shown.contains(told), "{profile} {name}: {shown}");
        }
    }
}

/// Without a register for the address, and with a bit of it that says something: only a return is left.
#[test]
fn x86_64_has_one_way_to_direct_trampolines_where_sites_may_jump() {
    let bench = Bench::new();
    let jmp = ["--arch", "x86_64", "--set", "direct-way=jmp"];
    let show = [&["show", "ftrace_regs_caller"][..], &jmp].concat();
    bench
        .refuses(&[&show[..], &["--profile", "linux-7.3"]].concat(), &["direct-way", "one value in profile linux-7.3"]);
    let mine = "extends = \"linux-7.3\"\nname = \"mine\"\n[arch.x86_64.option.direct-way]\nfixed = false\n";
    std::fs::write(bench.path("mine.toml"), mine).unwrap();
    bench.refuses(&[&show[..], &["--profile", "mine.toml"]].concat(), &["direct-jumps", "valid: direct-way=ret"]);
}

/// The kernel's own trampolines keep what ours promise, under both configurations. Its exit trampoline leaves words of its
/// frame as they are, as that of 6.12 does.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn linux_7_3_keeps_the_contract_of_its_profile() {
    let bench = Bench::new();
    for (variant, call_ops) in [("linux-7.3-arm64-call-ops", "call-ops=on"), ("linux-7.3-arm64", "call-ops=off")] {
        let object = kernel_cache::directory().unwrap().join(variant).join("entry-ftrace.o");
        let object = object.to_str().unwrap();
        let profile = ["--profile", "linux-7.3"];
        let trampolines = ["ftrace_caller", "ftrace_stub", "ftrace_stub_direct_tramp", "ftrace_stub_graph"];
        let options = ["--arch", "arm64", "--set", call_ops, "--emit", "contract", "--stem", "t", "-o", "."];
        bench.ends(0, &[&["gen"][..], &trampolines, &options, &profile].concat());
        let checked = bench.ends(0, &[&["check", "--object", object, "--contract", "t.toml"][..], &profile].concat());
        assert!(checked.contains(" 0 fail"), "{variant}: {checked}");
    }
}
