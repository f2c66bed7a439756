//! What is observed of code without a contract: it agrees with the contracts of what is generated, knows the same behaviour in
//! another text, and notices faults.

mod common;

use codegen::ask::frame::{Content, Field};
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::contract::demand::{Holds, Moment, Spot};
use codegen::words::abi::Loc;
use codegen::words::step::ExitPath;
use codegen::words::term::{Root, Term};
use common::{Bench, arches, tools_of};
use emu_tests::{Call, Foreign, Observed, Offset, Value, Way};
use link::Input;

/// A term of a demand, as the observer says it: it finds what was at the entry in the places of pc and parent_ip. `None` for what it has another word for.
fn at_entry(term: &Term, contract: &Contract) -> Option<Term> {
    let (abi, site) = (&contract.facts.abi, &contract.convention.site);
    let sp = Term::from(Root::Reg(abi.sp));
    let at = |loc: Loc| match loc {
        Loc::Reg(reg) => Root::Reg(reg).into(),
        Loc::Stack(offset) => sp.clone().plus(offset.into()).content(),
    };
    let (pc, parent_ip) = match &contract.traced {
        // A site that jumps leaves neither: the trampoline names the function, and parent_ip is where calls leave it.
        Some(traced) if contract.kind.jumped_to() => {
            let function = Term::from(Root::Symbol(traced.function.as_str().into()));
            (function.plus(traced.resume.into()), at(abi.link.map_or(Loc::Stack(0), Loc::Reg)))
        }
        _ => (at(site.pc), at(site.parent_ip)),
    };
    let root = match &term.root {
        Root::Number => Term::number(0),
        Root::Reg(reg) if *reg != abi.sp => Root::Reg(*reg).into(),
        Root::Pc => pc,
        Root::Ip => pc.plus(-i64::from(site.ip_offset)),
        Root::ParentIp => parent_ip,
        _ => return None,
    };
    Some(root.plus(term.add))
}

/// The demands of a call that the observer finds not met, and how many it could look at.
fn unmet_at(call: &Call, n: usize, contract: &Contract) -> (Vec<String>, usize) {
    let (abi, mut wrong, mut seen) = (&contract.facts.abi, Vec::new(), 0);
    for demand in contract.demands().iter().filter(|demand| demand.moment == Moment::Call(n)) {
        let Holds::Is(term) = &demand.holds else { continue };
        let Some(want) = at_entry(term, contract) else { continue };
        let found = match demand.spot {
            Spot::Reg(reg) => match call.argument.get(abi.name(reg)) {
                Some(value) => Some(value.term().clone()),
                None => Some(Root::Reg(reg).into()),
            },
            // The frame pointer may be at a record by then, and the site changes the link register.
            Spot::Slot(n) => match contract.frame.fields[n] {
                Field { member: "", .. } => continue,
                Field { content: Content::Reg(reg), .. } if reg == abi.fp || Some(reg) == abi.link => continue,
                Field { offset, .. } => call.frame.get(&Offset(offset.into())).map(|value| value.term().clone()),
            },
            _ => continue,
        };
        seen += 1;
        if found.as_ref() != Some(&want) {
            let found = found.map_or("nothing".to_owned(), |found| found.show(abi).to_string());
            wrong.push(format!("{} is {found}, and not {}", demand.id(contract), want.show(abi)));
        }
    }
    (wrong, seen)
}

/// The registers that a way out must keep, and does not. What a handler chose is not lost.
fn unkept(way: &Way, out: ExitPath, contract: &Contract) -> (Vec<String>, usize) {
    let abi = &contract.facts.abi;
    let demands = contract.demands();
    let kept = demands.iter().filter_map(|demand| match (demand.spot, &demand.holds) {
        (Spot::Reg(reg), Holds::Is(term)) if demand.moment == Moment::Leave(out) && term.root == Root::Reg(reg) => {
            Some(abi.name(reg))
        }
        _ => None,
    });
    let kept: Vec<&str> = kept.collect();
    let lost = kept.iter().filter(|name| !way.leave.kept.contains(name));
    let lost = lost.filter(|name| !way.leave.changed.get(*name).is_some_and(|value| value.is_stored()));
    (lost.map(|name| format!("{}.{name} is not kept", out.name())).collect(), kept.len())
}

/// The demands of a contract that the observer finds not met, and how many it looked at.
fn unmet(observed: &Observed, contract: &Contract) -> (Vec<String>, usize) {
    let calls = contract.calls();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for way in observed.path.iter().filter(|way| way.leave.ends()) {
        let mut tell = |(what, count): (Vec<String>, usize)| {
            wrong.extend(what.iter().map(|what| format!("{what}, {}", way.when)));
            seen += count;
        };
        // On other ways some are not called.
        if way.call.len() == calls.len() {
            way.call.iter().enumerate().for_each(|(n, call)| tell(unmet_at(call, n, contract)));
        }
        let direct = way.leave.to().is_some_and(Value::is_stored) && contract.direct;
        let out = match contract.kind.traits().leaves {
            // A handler may have chosen another place: what is kept for a direct trampoline is kept on each of these ways.
            ExitPath::Function if direct => ExitPath::Direct,
            ExitPath::Function if way.call.is_empty() && contract.early_direct => ExitPath::EarlyDirect,
            out => out,
        };
        tell(unkept(way, out, contract));
    }
    (wrong, seen)
}

/// Everything that is generated with the defaults.
#[test]
fn what_is_observed_meets_the_demands() {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for backend in tool::BACKENDS {
        let target = tool::default_target(*backend).unwrap();
        let suite = tool::suite::suite(*backend, &target).unwrap();
        for contract in &suite.contracts {
            let observed = of_suite(*backend, &suite, contract);
            let (unmet, seen) = unmet(&observed, contract);
            all += seen;
            wrong.extend(unmet.iter().map(|what| format!("{} {}: {what}", contract.facts.name, contract.name)));
            let ends = observed.path.iter().any(|way| way.leave.ends());
            assert!(ends, "{} {}", contract.facts.name, contract.name);
        }
    }
    assert!(all > 3000, "{all} demands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn of_suite(backend: &'static dyn Backend, suite: &emu_tests::Suite, contract: &Contract) -> Observed {
    let (name, bytes) = &suite.objects[0];
    emu_tests::observe(&Input { name, bytes }, Some(&contract.name), &[backend], None).unwrap()
}

/// Stubs that make the system call 63 with three arguments, and what makes it the call 62.
const STUBS: [(&str, &str, (&str, &str)); 3] = [
    ("x86_64", "mov $63, %eax\n syscall\n ret", ("$63", "$62")),
    ("arm64", "mov x8, #63\n svc #0\n ret", ("#63", "#62")),
    ("riscv64", "li a7, 63\n ecall\n ret", ("63", "62")),
];

/// A system call is a call of `&kernel`, whose arguments are where the kernel wants them.
#[test]
fn what_is_observed_of_a_system_call_meets_its_demands() {
    for (arch, code, (right, wrong)) in STUBS {
        let contract = format!(
            "arch = \"{arch}\"\nprofile = \"bare\"\nabout = \"a stub\"\n\n[[trampoline]]\nsymbol = \"my_read\"\nkind = \"syscall\"\n\
             number = 63\nargs = 3\nstack-align = 16\n"
        );
        let found = |code: &str| {
            let bench = Bench::new();
            let text =
                format!(".globl my_read\n.type my_read, %function\nmy_read:\n {code}\n.size my_read, . - my_read\n");
            let bytes = std::fs::read(bench.path(&assemble(&bench, arch, "stub", &text))).unwrap();
            let profile = tool::profile("bare").unwrap();
            let foreign = Foreign::new("stub.toml", &contract, vec![("stub.o".to_owned(), bytes)], profile);
            let suites = emu_tests::foreign_suites(&foreign, tool::BACKENDS).unwrap();
            let observed = of_suite(suites[0].backend, &suites[0], &suites[0].contracts[0]);
            assert!(observed.path.iter().all(|way| way.call.len() == 1), "{arch}");
            unmet(&observed, &suites[0].contracts[0])
        };
        let (unmet, seen) = found(code);
        assert!(unmet.is_empty() && seen > 3, "{arch}: {seen}, {unmet:?}");
        let (unmet, _) = found(&code.replace(right, wrong));
        assert!(unmet.iter().any(|what| what.starts_with("call1.")), "{arch}: {unmet:?}");
    }
}

/// A bench with the objects of `tests/observe/ARCH`.
fn assembled(arch: &str) -> Bench {
    let bench = Bench::new();
    for name in ["first", "other", "lost"] {
        let source = format!("{}/tests/observe/{arch}/{name}.s", env!("CARGO_MANIFEST_DIR"));
        bench.tool(&format!("{}as", tools_of(arch)), &[&source, "-o", &format!("{name}.o")]);
    }
    bench
}

#[test]
fn other_text_that_does_the_same_is_the_same() {
    for (arch, _) in arches() {
        let bench = assembled(arch);
        for [left, right] in [["first.o", "other.o"], ["other.o", "first.o"]] {
            let text = bench.ok(&["diff", left, right]);
            assert!(text.contains("the same in behaviour"), "{arch}: {text}");
        }
        bench.ends(1, &["diff", "first.o", "other.o", "--exact"]);
        let text = bench.ok(&["diff", "first.o", "first.o", "--exact"]);
        assert!(text.contains("\nthe same, "), "{arch}: {text}");
    }
}

/// Each source with a fault says which difference must be found.
#[test]
fn a_lost_register_is_a_difference_with_both_instructions() {
    for (arch, _) in arches() {
        let bench = assembled(arch);
        let source = format!("{}/tests/observe/{arch}/lost.s", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(source).unwrap();
        let (_, expect) = source.lines().next().unwrap().split_once("expect: ").unwrap();
        for left in ["first.o", "other.o"] {
            let text = bench.ends(1, &["diff", left, "lost.o"]);
            let (_, worst) = text.split_once("\nbreaks traced code\n").unwrap_or_else(|| panic!("{arch}: {text}"));
            let mut lines = worst.lines();
            let first = lines.by_ref().find(|line| line.contains(expect));
            assert!(first.is_some(), "{arch}: no {expect:?} in {text}");
            assert!(lines.next().is_some_and(|line| line.contains("always")), "{arch}: {text}");
            for mark in ["    - ", "    + "] {
                assert!(lines.next().is_some_and(|line| line.starts_with(mark)), "{arch}: {mark}: {text}");
            }
            let better = bench.ends(1, &["diff", "lost.o", left]);
            assert!(better.contains("\nbetter for traced code\n"), "{arch}: {better}");
        }
    }
}

/// Assemble text under a name.
fn assemble(bench: &Bench, arch: &str, name: &str, text: &str) -> String {
    std::fs::write(bench.path("t.s"), text).unwrap();
    let object = format!("{name}.o");
    bench.tool(&format!("{}as", tools_of(arch)), &["t.s", "-o", &object]);
    object
}

/// A register that sites leave live, where the function is called: it is no argument.
#[test]
fn what_is_live_before_the_function_is_compared() {
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let bench = Bench::new();
        let made = |stem: &str, fault: &[&str]| {
            let around =
                ["gen", "around", "--form", "fregs", "--call", "on_entry", "--exit", "on_exit", "--name", "mine"];
            let of =
                ["--function", "f+8", "--arch", arch, "--profile", "bare", "--emit", "obj", "--stem", stem, "-o", "."];
            bench.ok(&[&around[..], &of, fault].concat());
            format!("{stem}.o")
        };
        let live = tool::profile("bare").unwrap().convention(arch).unwrap().site.live;
        let register = backend.facts().abi.name(live.iter().next().unwrap());
        let (whole, lost) = (made("whole", &[]), made("lost", &["--fault", &format!("mine:DROP_RESTORE({register})")]));
        let text = bench.ends(1, &["diff", &whole, &lost, "--ids"]);
        assert!(text.contains(&format!("call2.{register}")), "{arch}: {text}");
        // What both lose differently is nobody's.
        let id = format!("call2.{register}");
        bench.ok(&["diff", &whole, &lost, "--ignore", &id]);
    }
}

/// Vector registers by halves, what the code does to them by itself, and what the engine does not have of them.
#[test]
fn parts_of_vector_registers_are_compared() {
    for (arch, _) in arches() {
        let table: toml::Table = file_of(arch, "vectors.toml").parse().unwrap();
        let [text, whole] = ["text", "whole"].map(|key| table[key].as_str().unwrap());
        let bench = Bench::new();
        let left = assemble(&bench, arch, "left", &text.replace("RESTORE", whole));
        for case in table["case"].as_array().unwrap() {
            let [restore, id, says] = ["restore", "id", "says"].map(|key| case[key].as_str().unwrap());
            let right = assemble(&bench, arch, "right", &text.replace("RESTORE", restore));
            let text = bench.ends(1, &["diff", &left, &right, "--ids"]);
            assert!(text.contains(says) && text.split_whitespace().any(|word| word == id), "{arch}: no {id} in {text}");
            // Wider registers than the engine has may be lost with it.
            bench.ok(&["diff", &left, &right, "--ignore", id, "--ignore", "leave.wide-vectors"]);
            let text = bench.ends(1, &["diff", &right, &left]);
            assert!(text.contains("better for traced code"), "{arch}: {text}");
        }
    }
}

/// One fault of each kind.
#[test]
fn faults_are_noticed_without_a_contract() {
    let bench = Bench::new();
    let text = bench.ok(&["mutate", "--by", "observe", "--sample", "1"]);
    assert!(text.contains(" 100.0 %"), "{text}");
}

/// What a check notices is equivalent to nothing, whoever is asked: the line that says so fits others too.
#[test]
fn what_a_check_notices_is_not_equivalent() {
    let bench = Bench::new();
    let run = |by: &str| -> serde_json::Value {
        let args = ["mutate", "direct_*", "--only", "FRAME_SIZE(+8)", "--by", by, "--format", "json"];
        serde_json::from_str(&bench.ok(&args)).unwrap()
    };
    let (checked, observed) = (run("emulator"), run("observe"));
    for count in ["mutants", "equivalent", "killed"] {
        assert_eq!(checked[count], observed[count], "{count}");
        assert!(checked[count].as_u64().unwrap() > 0, "{count}");
    }
    // Nobody noticed what is left out.
    let by = observed["scores"].as_array().unwrap().iter().flat_map(|score| score["by"].as_object().unwrap().values());
    assert!(by.max_by_key(|n| n.as_u64()).unwrap().as_u64() <= observed["killed"].as_u64(), "{}", observed["scores"]);
}

/// What can stand on a side, against the object of the same source.
#[test]
fn sources_dumps_stdin_directories_and_revisions_are_sides() {
    for (arch, _) in arches() {
        let bench = assembled(arch);
        let source = format!("{}/tests/observe/{arch}/first.s", env!("CARGO_MANIFEST_DIR"));
        std::fs::copy(&source, bench.path("first.s")).unwrap();
        bench.ok(&["diff", "first.s", "first.o:t", "--arch", arch, "--exact"]);
        bench.refuses(&["diff", "first.s", "first.o"], &["first.s", "--arch"]);
        std::fs::write(bench.path("bad.s"), "t: no_such_instruction\n").unwrap();
        bench.refuses(&["diff", "bad.s", "first.o", "--arch", arch], &["bad.s", "no_such_instruction"]);
        let objcopy = format!("{}objcopy", tools_of(arch));
        bench.ok(&["gen", "ftrace_stub", "--arch", arch, "--emit", "obj", "--stem", "stub"]);
        bench.tool(&objcopy, &["-O", "binary", "-j", ".text", "stub.o", "first.bin"]);
        let stub = format!("{arch}:ftrace_stub");
        let text = bench.ends(1, &["diff", "first.bin@0x400000:0x400000", &stub, "--arch", arch]);
        // A dump has no unwind table.
        assert!(text.contains("1 difference of behaviour, 1 for the better"), "{text}");
        bench.refuses(&["diff", "first.bin@0x400000", "first.o", "--arch", arch], &["FILE@BASE:ENTRY"]);
        let piped = bench.shell(0, "cat first.o | tramptool diff - first.o");
        assert!(piped.contains("\nthe same, "), "{piped}");
        let piped = bench.shell(0, "cat first.o | tramptool diff first.o -:t --exact");
        assert!(piped.contains("\nthe same, "), "{piped}");
        // Directories have names in common.
        for (dir, object) in [("old", "first.o"), ("new", "lost.o")] {
            std::fs::create_dir(bench.path(dir)).unwrap();
            std::fs::copy(bench.path(object), bench.path(dir).join("t.o")).unwrap();
        }
        let brief = bench.ends(1, &["diff", "old", "new", "--brief"]);
        assert!(brief.ends_with(&format!("{arch}:t  1 difference of behaviour\n")), "{brief}");
        let namesake = bench.ends(1, &["diff", "old", "lost.o"]);
        assert!(namesake.contains(&format!("{arch}:t: 1 difference")), "{namesake}");
        bench.refuses(&["diff", "old", &format!("{arch}:ftrace_caller")], &["unknown trampoline of the other side"]);
        let git = "git init -q . && git add old && git -c user.name=n -c user.email=e commit -qm old";
        bench.shell(0, &format!("{git} && tramptool diff HEAD:old old --exact && tramptool diff HEAD:old/t.o first.o"));
    }
}

/// Both are generated, or in one file and generated, or of two architectures.
#[test]
fn pairs_of_every_kind_are_compared() {
    let bench = Bench::new();
    let all = arches();
    for (n, (arch, _)) in all.iter().enumerate() {
        let direct =
            ["gen", "direct", "--args", "2", "--call", "f", "--arch", arch, "--emit", "obj", "--stem", "f_tramp"];
        bench.ok(&direct);
        let ours = format!("{arch}:direct,args=2,call=f");
        let text = bench.ok(&["diff", "f_tramp.o", &ours]);
        assert!(text.contains("\nthe same, "), "{text}");
        let sig = format!("{arch}:direct,sig=int g(int a, char *b, long c),call=f");
        let text = bench.ends(1, &["diff", &ours, &sig]);
        assert!(text.contains("better for traced code") && text.contains("saves"), "{text}");
        assert!(bench.ends(1, &["diff", &sig, &ours, "--brief"]).contains(" of behaviour"));
        let (other, _) = all[(n + 1) % all.len()];
        let text = bench.ends(1, &["diff", "f_tramp.o", &format!("{other}:direct,args=3,call=f")]);
        assert!(text.contains(&format!("{arch} against {other}: ")) && text.contains("argument 2"), "{text}");
        let text = bench.ends(1, &["diff", &ours, &sig, "--format", "markdown"]);
        assert!(text.contains("**better for traced code**"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80 || line.starts_with("- ")), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&bench.ends(1, &["diff", &ours, &sig, "--format", "json"])).unwrap();
        let schema = serde_json::from_str(&bench.ok(&["report", "schema", "diff"])).unwrap();
        jsonschema::validate(&schema, &json).unwrap();
        let found = json["pairs"][0]["differences"].as_array().unwrap();
        assert!(found.iter().any(|d| d["better"] == true && d["severity"] == "breaks-traced-code"), "{json}");
        // The case that shows it, again.
        let case = found.iter().flat_map(|d| d["when"].as_array().unwrap()).find(|case| *case != "plainly").unwrap();
        let again = bench.ok(&["contract", "observe", &ours, "--case", case.as_str().unwrap()]);
        assert!(again.contains(&format!("when = {case}")), "{again}");
    }
    let two = bench.ok(&["diff", "linux-6.12", "linux-6.12", "--brief"]);
    assert!(two.matches("  the same\n").count() > 10, "{two}");
}

/// A field that lies elsewhere is one difference, and stores to it take effect as before.
#[test]
fn a_field_that_moved_is_told_by_its_name() {
    let bench = Bench::new();
    // Of one architecture, whose numbers have these names.
    let sides = arches()
        .into_iter()
        .map(|(arch, _)| [format!("{arch}:ftrace_caller"), format!("{arch}:ftrace_caller,FREGS_A0=56,FREGS_A1=48")]);
    let json = sides.map(|[left, right]| bench.run(&["diff", &left, &right, "--format", "json"]));
    let json = json.filter(|out| out.status.code() == Some(1)).map(|out| String::from_utf8(out.stdout).unwrap());
    let [json] = <[String; 1]>::try_from(json.collect::<Vec<_>>()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found = json["pairs"][0]["differences"].as_array().unwrap();
    let told: Vec<_> = found.iter().flat_map(|d| d["at"].as_array().unwrap()).cloned().collect();
    let field = |id: &str, name: &str, was: &str, is: &str| serde_json::json!({ "id": id, "was": [was, [name]], "is": [is, [name]] });
    let fields = [field("call1.frame+0x30", "a0", "0x030", "0x038"), field("call1.frame+0x38", "a1", "0x038", "0x030")];
    assert_eq!(told, fields);
    let text = bench.ends(
        1,
        &["diff", "riscv64:ftrace_caller", "riscv64:ftrace_caller,FREGS_A0=56,FREGS_A1=48", "--format", "markdown"],
    );
    assert!(text.contains("- a0 is at frame+0x038 at the call; it was at frame+0x030\n"), "{text}");
}

/// Ids choose what counts; a baseline accepts it, with a reason, for as long as it is there.
#[test]
fn differences_are_chosen_by_ids_and_accepted_with_reasons() {
    let bench = assembled(common::any());
    let sides = ["diff", "first.o", "lost.o"];
    let ids = |more: &[&str]| -> Vec<String> {
        let out = bench.run(&[&sides, more, &["--format", "json"]].concat());
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let all = json["pairs"][0]["differences"].as_array().unwrap().iter().flat_map(|d| d["at"].as_array().unwrap());
        all.map(|at| at["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids(&[]);
    let lost = all.iter().find(|id| id.starts_with("leave.")).unwrap();
    assert!(all.iter().any(|id| id.starts_with("cost.")), "{all:?}");
    assert_eq!(ids(&["--only", lost]), std::slice::from_ref(lost));
    assert!(ids(&["--ignore", "cost"]).iter().all(|id| !id.starts_with("cost")));
    let heads: Vec<&str> = all.iter().flat_map(|id| ["--ignore", id.split('.').next().unwrap()]).collect();
    let text = bench.ok(&[&sides[..], &heads].concat());
    assert!(text.contains("\nthe same, ") && text.contains(&format!("not counted: {} by", all.len())), "{text}");
    let text = bench.ends(1, &[&sides[..], &["--ids"]].concat());
    assert!(text.lines().any(|line| line.trim() == lost), "{text}");
    bench.refuses(&[&sides[..], &["--only", "leave.rxa"]].concat(), &["leave.rxa", "--ids"]);

    let accepted = bench.ends(1, &[&sides[..], &["--format", "baseline"]].concat());
    std::fs::write(bench.path("accepted.toml"), &accepted).unwrap();
    let with_baseline = |right| ["diff", "first.o", right, "--baseline", "accepted.toml"];
    bench.refuses(&with_baseline("lost.o"), &[lost, "has no reason"]);
    let reasons = accepted.replace("reason = \"\"", "reason = \"tried\"");
    std::fs::write(bench.path("accepted.toml"), &reasons).unwrap();
    let text = bench.ok(&with_baseline("lost.o"));
    assert!(text.contains("that the baseline accepts"), "{text}");
    // Who accepted one value did not accept another.
    let text = bench.ends(1, &with_baseline("other.o"));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("{lost} of ")) && words.contains("is accepted and is gone"), "{text}");
    let now = format!("{}\nnow = 1", reasons.split_once("\nnow").unwrap().0);
    std::fs::write(bench.path("accepted.toml"), format!("{now}\nreason = \"tried\"\n")).unwrap();
    let text = bench.ends(1, &with_baseline("lost.o"));
    assert!(text.contains("is accepted and is gone"), "{text}");
}

/// A file of `tests/observe/ARCH`.
fn file_of(arch: &str, name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/observe/{arch}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// An address in half a register is another address: where data lies, both halves count.
#[test]
fn an_address_that_is_cut_to_32_bits_is_seen() {
    for (arch, _) in arches() {
        let bench = Bench::new();
        let cut: toml::Table = file_of(arch, "cut.toml").parse().unwrap();
        let [whole, cut] = ["whole", "cut"].map(|key| cut[key].as_str().unwrap());
        bench.ok(&["gen", "ftrace_caller", "--arch", arch, "--emit", "asm,contract", "--stem", "old"]);
        let old = std::fs::read_to_string(bench.path("old.S")).unwrap();
        assert_eq!(old.matches(whole).count(), 1, "{old}");
        std::fs::write(bench.path("new.S"), old.replace(whole, cut)).unwrap();
        let text = bench.ends(1, &["diff", "old.S:ftrace_caller", "new.S:ftrace_caller", "--arch", arch]);
        assert!(text.contains(" of behaviour"), "{text}");
        let text = bench.ends(1, &["review", "old.S", "new.S", "--arch", arch, "--contract", "old.toml"]);
        assert!(text.starts_with("new.S is worse"), "{text}");
    }
}

/// The same of an address of code.
#[test]
fn an_address_of_code_that_is_cut_to_32_bits_is_seen() {
    for (arch, _) in arches() {
        let bench = Bench::new();
        let table: toml::Table = file_of(arch, "cut.toml").parse().unwrap();
        let [text, cut, register] = ["text", "cut", "register"].map(|key| table["code"][key].as_str().unwrap());
        let [left, right] =
            [("left", ""), ("right", cut)].map(|(name, cut)| assemble(&bench, arch, name, &text.replace("CUT", cut)));
        let text = bench.ends(1, &["diff", &left, &right, "--ids"]);
        let id = format!("call1.{register}");
        assert!(text.split_whitespace().any(|word| word == id), "{arch}: no {id} in {text}");
        // Half of a symbol's address is told as that.
        let told = bench.ok(&["contract", "observe", &format!("{right}:f")]);
        assert!(told.contains("low(&f)"), "{arch}: {told}");
    }
}

/// What neither side runs to an end says nothing of either: code without one, and calls on a stack that is none.
#[test]
fn what_is_not_run_to_an_end_is_not_compared() {
    for (arch, _) in arches() {
        for (name, why) in [("endless.s", "it does not end within"), ("elsewhere.s", "SP is not in the stack")] {
            let bench = Bench::new();
            std::fs::write(bench.path(name), file_of(arch, name)).unwrap();
            let text = bench.ends(2, &["diff", name, name, "--arch", arch]);
            assert!(text.contains("not compared: on both sides, ") && text.contains(why), "{text}");
            let text = bench.ends(2, &["diff", name, name, "--arch", arch, "--format", "html"]);
            assert!(text.contains("not compared"), "{text}");
        }
    }
}

/// What holds in one report and not in the other.
#[test]
fn reports_are_compared_by_verdicts() {
    let bench = Bench::new();
    let arch = common::any();
    bench.ok(&["check", "ftrace_stub", "--arch", arch, "--format", "json", "-o", "a.json"]);
    let text = bench.ok(&["diff", "a.json", "a.json"]);
    assert!(text.contains("the same verdicts"), "{text}");
    let report = std::fs::read_to_string(bench.path("a.json")).unwrap();
    std::fs::write(bench.path("b.json"), report.replacen("\"verdict\": \"pass\"", "\"verdict\": \"fail\"", 1)).unwrap();
    let text = bench.ends(1, &["diff", "a.json", "b.json"]);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").ends_with("fail; it was pass 1 verdict differs"), "{text}");
    bench.refuses(&["diff", "a.json", &format!("{arch}:ftrace_stub")], &["a report is compared with a report"]);
    std::fs::write(bench.path("c.json"), "{").unwrap();
    bench.refuses(&["diff", "a.json", "c.json"], &["c.json"]);
}

/// What the build of Linux 6.12 makes, and the options by which ours are made so.
const OBJECTS: [(&str, &str); 6] = [
    ("linux-6.12-x86_64-orc", "x86_64:linux-6.12"),
    ("linux-6.12-x86_64-fp", "x86_64:linux-6.12,unwinder=fp"),
    ("linux-6.12-arm64", "arm64:linux-6.12,call-ops=off"),
    ("linux-6.12-arm64-call-ops", "arm64:linux-6.12"),
    ("linux-6.12-riscv64", "riscv64:linux-6.12"),
    ("linux-6.12-riscv64-norvc", "riscv64:linux-6.12,rvc=off"),
];

/// results/ours-and-the-kernels.md is what `diff` says of the kernel's objects and ours.
#[test]
#[ignore = "needs the kernel's objects: cargo xtask kernel-objects"]
fn ours_and_the_kernels_compare_as_the_page_says() {
    let run = |args: [&str; 5]| {
        let mut tool = std::process::Command::new(env!("CARGO_BIN_EXE_tramptool"));
        let out = tool.args(args).current_dir(kernel_cache::directory().unwrap()).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let (mut verdicts, mut details) = (String::new(), String::new());
    for (objects, ours) in OBJECTS {
        let brief = run(["diff", objects, ours, "--brief", "--format=human"]);
        let (_, rows) = brief.split_once("\n\n").unwrap();
        for row in rows.lines().take_while(|line| !line.starts_with("only ")) {
            let (name, verdict) = row.split_once("  ").unwrap();
            let name = name.split_once(':').unwrap().1;
            verdicts += &format!("| `{objects}` | `{name}` | {} |\n", verdict.trim());
        }
        let text = run(["diff", objects, ours, "--format", "markdown"]);
        let (_, pairs) = text.split_once("\n\n").unwrap();
        details += &format!("## {objects}\n\nOurs: `{ours}`.\n\n{}\n\n", pairs.trim());
    }
    let text = format!(
        "# Ours against the kernel's objects\n\nWhat Linux 6.12's build makes, and what profile `linux-6.12` makes with the same \
         options, were run without a contract\nand compared. What is better or worse is so of ours. \
         [Where ours differ](../docs/differences.md) says why it is so.\n\n\
         | objects | trampoline | ours |\n|---|---|---|\n{verdicts}\n{}\n",
        details.trim()
    );
    common::blessed("results/ours-and-the-kernels.md", &text);
}
