//! What all commands share, and those that show something.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::expected::{Cost, Typed, expected, words};
use crate::common::{Bench, any, arches};

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
        "audit",
        "contract",
        "cost",
        "mutate",
        "report",
        "explain",
        "show",
        "diff",
        "review",
        "trace",
        "completions",
        "man",
    ] {
        assert!(b.ok(&[command, "--help"]).contains("Examples:"), "{command}");
        let page = b.ok(&["man", command]);
        assert!(page.contains(&format!(".TH tramptool-{command} 1")), "{command}: {page}");
    }
    assert!(b.ok(&["man"]).contains(".TH tramptool 1"));
    assert!(b.ok(&["man", "contract", "init"]).contains(".TH tramptool-contract-init 1"));
    b.refuses(&["man", "contract", "start"], &["valid: init"]);
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(b.ok(&["completions", shell]).contains("tramptool"), "{shell}");
    }
}

/// bash itself completes what is known: it is given the script and half a command.
#[test]
fn a_shell_completes_what_is_known() {
    let b = Bench::new();
    std::fs::write(b.path("tramptool.bash"), b.ok(&["completions", "bash"])).unwrap();
    let offered = |words: &[&str]| -> Vec<String> {
        let line: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
        let (line, last) = (line.join(" "), words.len() - 1);
        let script = format!(
            "source ./tramptool.bash; COMP_WORDS=({line}); COMP_CWORD={last}; _tramptool tramptool '{}' '{}'; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words[last],
            words[last - 1]
        );
        let bash = Command::new("bash").args(["--norc", "-c", &script]).current_dir(b.path("")).output().unwrap();
        String::from_utf8(bash.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(offered(&["tramptool", "expl"]), ["explain"]);
    assert_eq!(offered(&["tramptool", "show", "--arch", "ris"]), ["riscv64"]);
    assert_eq!(offered(&["tramptool", "check", "--arch", "a"]), ["all", "arm64"]);
    assert_eq!(offered(&["tramptool", "gen", "--profile", "b"]), ["bare"]);
    assert_eq!(offered(&["tramptool", "gen", "ftrace_r"]), ["ftrace_regs_caller"]);
    assert_eq!(offered(&["tramptool", "explain", "P19"]), ["P19"]);
    assert_eq!(offered(&["tramptool", "gen", "around", "--form", ""]), ["frame", "fregs", "shadow"]);
    assert_eq!(offered(&["tramptool", "gen", "record", "--events", "b"]), ["both"]);
    assert!(offered(&["tramptool", "explain", "bug:F1"]).contains(&"bug:F1".to_owned()));
    assert!(offered(&["tramptool", "gen", "--set", "rvc"]).contains(&"rvc=off".to_owned()));
}

#[test]
fn list_names_everything() {
    let b = Bench::new();
    let human = b.ok(&["list"]);
    let json: Value = serde_json::from_str(&b.ok(&["list", "--format", "json"])).unwrap();
    assert_eq!((&json["profiles"][2], &json["profile"]), (&"linux-7.3".into(), &"linux-7.3".into()));
    let architectures = json["architectures"].as_array().unwrap();
    assert_eq!(architectures.len(), tool::BACKENDS.len());
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
    // In others there is less: where no site jumps, nothing that is jumped to.
    for profile in json["profiles"].as_array().unwrap() {
        let asked = ["list", "--profile", profile.as_str().unwrap()];
        let human = b.ok(&asked);
        let json: Value = serde_json::from_str(&b.ok(&[&asked[..], &["--format", "json"]].concat())).unwrap();
        for architecture in json["architectures"].as_array().unwrap() {
            for entry in architecture["trampolines"].as_array().unwrap() {
                assert!(human.contains(entry["name"].as_str().unwrap()), "{profile}: {entry}");
            }
        }
    }
    for backend in tool::BACKENDS {
        let (arch, offered) = (backend.facts().name, tool::convention(*backend).unwrap().offered());
        let listed = b.ok(&["list", "--arch", arch]);
        offered.for_each(|(_, option)| assert!(listed.contains(option.name), "{arch}: {}", option.name));
    }
}

#[test]
fn architectures_answer_to_their_names() {
    let b = Bench::new();
    for backend in tool::BACKENDS {
        let facts = backend.facts();
        let expected = b.ok(&["gen", "ftrace_caller", "--arch", facts.name]);
        assert!(!facts.aliases.is_empty(), "{}", facts.name);
        for name in facts.aliases.iter().chain([&facts.name]) {
            for name in [(*name).to_owned(), name.to_uppercase()] {
                assert_eq!(b.ok(&["gen", "ftrace_caller", "--arch", &name]), expected, "{name}");
            }
        }
    }
}

#[test]
fn settings() {
    let b = Bench::new();
    for backend in tool::BACKENDS {
        let (arch, typed) = (backend.facts().name, expected(*backend).typed);
        for Typed { set, says } in &typed.taken {
            let set: Vec<&str> = set.iter().flat_map(|s| ["--set", s]).collect();
            let text = b.ok(&[&["gen", "ftrace_caller", "--arch", arch][..], &set].concat());
            assert!(says.iter().all(|part| text.contains(part)), "{arch} {set:?}: {text}");
        }
        for Typed { set, says } in &typed.refused {
            let set: Vec<&str> = set.iter().flat_map(|s| ["--set", s]).collect();
            b.refuses(&[&["gen", "ftrace_caller", "--arch", arch][..], &set].concat(), &words(says));
        }
        b.refuses(&["gen", "ftrace_caller", "--arch", arch, "--set", "nonsense=1"], &["nonsense", "list"]);
    }
}

#[test]
fn bad_arguments() {
    let b = Bench::new();
    let six = ["ftrace_stub", "ftrace_stub_graph", "ftrace_stub_direct_tramp", "ftrace_caller", "direct"];
    b.refuses(&["gen", "nonsense", "--arch", any()], &six);
    b.refuses(&["show", "nonsense", "--arch", any()], &six);
    let arches: Vec<&str> = tool::BACKENDS.iter().map(|b| b.facts().name).chain(["mips"]).collect();
    b.refuses(&["gen", "ftrace_caller", "--arch", "mips"], &arches);
    b.refuses(&["list", "--arch", "mips"], &arches);
    b.refuses(&["show", "ftrace_caller", "--arch", "mips"], &arches);
    b.refuses(&["gen", "--all", "--arch", any(), "--profile", "linux-7"], &["linux-7", "linux-6.12"]);
    b.refuses(&["gen", "ftrace_stub", "ftrace_stub", "--arch", any()], &["ftrace_stub", "twice"]);
    b.refuses(&["gen", "direct", "direct", "--args", "1", "--call", "f", "--arch", any()], &["f_tramp", "twice"]);
    let clash = ["gen", "ftrace_stub", "direct", "--args", "1", "--call", "f", "--name", "ftrace_stub"];
    b.refuses(&[&clash[..], &["--arch", any()]].concat(), &["ftrace_stub", "twice"]);
    b.refuses(&["gen", "--all", "--arch", any(), "--emit", "asm,obj", "-o", "-"], &["-o -"]);
    b.refuses(&["gen", "--all", "--arch", any(), "--emit", "pdf"], &["pdf", "asm", "json"]);
    b.refuses(&["gen", "--all", "--arch", any(), "--emit", "obj", "--stem", "a/b"], &["--stem", "a/b"]);
    b.refuses(&["gen", "--all", "ftrace_stub", "--arch", any()], &["--all"]);
    b.refuses(&["gen", "--arch", any()], &["TRAMPOLINE"]);
    b.refuses(&["gen", "--all"], &["--arch"]);
    b.refuses(&["gen", "direct", "--args", "x", "--call", "f", "--arch", any()], &["--args", "x"]);
    b.refuses(&["gen", "direct", "--args", "300", "--call", "f", "--arch", any()], &["--args", "300"]);
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

/// What newcomers type: one line that says what is wrong and what would be right, and nothing in clap's own words.
#[test]
fn wrong_command_lines_have_a_remedy() {
    let b = Bench::new();
    let one = any();
    for (line, says) in [
        ("gen around", "--arch <ARCH> is missing; valid: --arch with one of "),
        ("gen", "--arch <ARCH> and <TRAMPOLINE>... are missing; valid: --arch with one of "),
        ("gen around --arch ARCH", "around: --call, --exit, --function and --args are missing; valid: --call SYMBOL, "),
        (
            "gen around --args 2 --call f --arch ARCH",
            "around: --exit and --function are missing; valid: --exit SYMBOL, ",
        ),
        ("gen direct --arch ARCH", "direct: --call and --args are missing; valid: --call SYMBOL, "),
        ("gen direct --call f --arch ARCH", "direct: --args is missing; valid: --args 0 to --args "),
        ("gen direct --args two --arch ARCH", "invalid value 'two' for '--args <N>'; valid: a number"),
        ("gen programs --arch ARCH", "programs: a program and --sig are missing; valid: --fentry, "),
        (
            "gen record --arch ARCH",
            "record: --events, --clock and --function are missing; valid: --events with one of count, entry, both; ",
        ),
        ("gen record --events count --arch ARCH", "record: --function is missing; valid: --function SYMBOL, "),
        (
            "gen record --events both --function f --arch ARCH",
            "record: --clock and --sig are missing; valid: --clock with one of none, tsc, stamp8, word; --sig ",
        ),
        ("gen --al --arch ARCH", "unknown argument '--al'; there is --all; see `tramptool gen --help`"),
        ("gen ftrace_caller --option x --arch ARCH", "unknown argument '--option'; see `tramptool gen --help`"),
        ("gen ftrace_caler --arch ARCH", "unknown trampoline 'ftrace_caler'; valid: ftrace_stub, "),
        ("frobnicate", "unknown command 'frobnicate'; valid: list, gen, "),
        ("report", "no command given; valid: write, "),
        ("report frobnicate", "unknown command 'frobnicate'; valid: write, "),
        ("contract", "no command given; valid: init"),
        ("contract init", "--symbol <NAME> and --object <FILE> are missing; see `tramptool contract init --help`"),
        ("mutate --sample 0", "invalid value '0' for '--sample <N>'; valid: a number from 1"),
        ("mutate --sample many", "invalid value 'many' for '--sample <N>'; valid: a number"),
        ("show ftrace_caller", "--arch <ARCH> is missing; valid: --arch with one of "),
        ("diff ftrace_caller", "<RIGHT> is missing; see `tramptool diff --help`"),
        ("link a.o", "-o <FILE> is missing; see `tramptool link --help`"),
        ("sites", "<FILE> is missing; see `tramptool sites --help`"),
        ("explain", "<CLAUSE> is missing; see `tramptool explain --help`"),
    ] {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "ARCH" { one } else { word }).collect();
        b.refuses(&words, &[says]);
    }
}

#[test]
fn places_that_cannot_be_written_to() {
    let b = Bench::new();
    fs::write(b.path("file"), "kept").unwrap();
    let all = ["gen", "--all", "--arch", any(), "--emit", "asm,obj,bin,json", "-o"];
    let to = |dir| [&all[..], &[dir]].concat();
    b.refuses(&to("file"), &["file", "valid"]);
    b.refuses(&to("missing/deeper"), &["missing/deeper", "valid"]);
    b.refuses(&to("/proc/tramptool"), &["/proc/tramptool", "valid"]);
    // The last of four files cannot be written: none is.
    let last = format!("{}.json", any());
    fs::create_dir_all(b.path("out").join(&last)).unwrap();
    b.refuses(&to("out"), &[&last, "directory"]);
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
}

#[test]
fn what_is_missing_or_elsewhere_is_pointed_at() {
    let b = Bench::new();
    b.refuses(
        &["gen", "--arch", any()],
        &["<TRAMPOLINE>... is missing; valid: names of `tramptool list`, or --all; see"],
    );
    fs::write(b.path("my.bin"), "").unwrap();
    for name in ["my.o", "./my.bin"] {
        for command in ["check", "mutate", "cost"] {
            b.refuses(&[command, name], &[&format!("'{name}' is a file's name"), &format!("valid: --object {name}")]);
        }
    }
}

/// A pipe has 80 columns, and what is wider than that is broken where words or elements end.
#[test]
fn what_is_to_be_read_fits_eighty_columns() {
    let b = Bench::new();
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut add = |words: &[&str]| commands.push(words.iter().map(|word| (*word).to_owned()).collect());
    for (arch, _) in arches() {
        for name in ["ftrace_stub", "ftrace_caller", "ftrace_regs_caller", "return_to_handler"] {
            add(&["show", name, "--arch", arch]);
            add(&["cost", name, "--arch", arch]);
        }
        add(&["contract", "observe", &format!("{arch}:ftrace_regs_caller")]);
    }
    let topics = tool::explain::pages().unwrap().into_iter().map(|page| page.name);
    for topic in topics.chain(["bug:all".to_owned(), "bug:F1".to_owned()]) {
        add(&["explain", &topic]);
    }
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let text = b.ok(&words);
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert_eq!(wide, [""; 0], "{command:?}");
        if command[0] == "contract" {
            text.parse::<toml::Table>().unwrap_or_else(|e| panic!("{e}: {text}"));
        }
    }
    let help = b.ok(&["explain", "--help"]);
    for topic in ["P1 to P28", "P2-wide", "coverage", "bug:all"] {
        assert!(help.contains(topic), "{help}");
    }
}

#[test]
fn a_full_device_is_an_error_whatever_is_written() {
    let commands: [&[&str]; 10] = [
        &["list"],
        &["--help"],
        &["--version"],
        &["gen", "--help"],
        &["help", "check"],
        &["man"],
        &["completions", "bash"],
        &["gen", "--all", "--arch=x86"],
        &["gen", "--all", "--arch=x86", "-o", "/dev/full"],
        &["gen", "--all", "--arch=x86", "--emit", "obj", "-o", "-"],
    ];
    for args in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_tramptool")).args(args).stdout(full).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&out.stderr).lines().count(), 1, "{args:?}");
    }
}

#[test]
fn show_and_diff() {
    let b = Bench::new();
    for (arch, _) in arches() {
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
    // The same behaviour, other bytes.
    let stub = "riscv64:ftrace_stub,profile=linux-6.12";
    for other in ["rvc=off", "abi=lp64d"].map(|set| format!("{stub},{set}")) {
        b.ends(0, &["diff", stub, &other]);
        b.ends(1, &["diff", stub, &other, "--exact"]);
    }
    b.ends(1, &["diff", "arm64:ftrace_caller", "arm64:ftrace_caller,FTRACE_OPS_FUNC=16"]);
    b.ends(0, &["diff", "arm64:ftrace_caller", "aarch64:ftrace_caller,frame-records=off"]);
    // The same plan.
    b.ends(0, &["diff", "arm64:ftrace_stub", "x86_64:ftrace_stub"]);
    b.ends(1, &["diff", "arm64:direct,args=2,call=f", "arm64:direct,args=2,call=f,ip"]);
    b.ends(1, &["diff", "x86_64:direct,args=3,call=foo", "x86_64:direct,args=3,call=bar,name=t"]);
}

/// The bound is where the issue puts it, and nothing is above it without a reason.
/// One function is enough for a verdict, also one that calls itself while its site is switched.
#[test]
fn what_the_user_leaves_out_fails_nothing() {
    let b = Bench::new();
    for (trampoline, function) in
        [("ftrace_caller", "recurse"), ("ftrace_regs_caller", "args12"), ("direct_3", "args3")]
    {
        let backend = tool::backend(any()).unwrap();
        let settings = tool::suite::settings(backend, &tool::default_target(backend).unwrap());
        let set: Vec<&str> = settings.iter().flat_map(|s| ["--set", s]).collect();
        b.ok(&[&["check", trampoline, "--arch", any(), "--function", function][..], &set].concat());
    }
}

/// Some trampolines are in none of the cases that a filter leaves.
#[test]
fn what_a_filter_leaves_out_was_not_to_be_executed() {
    let b = Bench::new();
    let few = ["check", "direct_3", "direct_words"];
    // Not every set of options has functions of this fixture.
    for filter in [["--function", "leaf"], ["--fixture", "plain"]] {
        let out = b.ok(&[&few[..], &filter].concat());
        assert!(out.starts_with("holds: "), "{filter:?}: {out}");
    }
    // What others are redirected to is not traced.
    b.refuses(
        &["check", "direct_3", "--arch", any(), "--function", "leaf_livepatch"],
        &["nothing is left to run; valid: "],
    );
    // Near its own functions there is no place for the image.
    let near = ["check", "direct_3", "--arch", "riscv64", "--distance"];
    b.refuses(&[&near[..], &["4096"]].concat(), &["in each other's way; valid: 0, or "]);
    assert!(b.ok(&[&near[..], &["1000000"]].concat()).starts_with("holds: "));
}

/// How sites are written is judged by itself: every other option is refused, and none is dropped without a word.
#[test]
fn check_sites_has_no_other_options() {
    let b = Bench::new();
    let help = b.ok(&["check", "--help"]);
    let words = help.split_whitespace().filter(|word| word.starts_with("--"));
    let options: BTreeSet<&str> = words.map(|word| word.trim_end_matches(|c: char| !c.is_ascii_lowercase())).collect();
    let taken = ["--sites", "--arch", "--profile", "--format", "--help", "--version"];
    let mut refused = 0;
    for option in options.into_iter().filter(|option| !taken.contains(option)) {
        // Whatever value it wants, one of these is one.
        let told = ["", "1", "yes", "json", "on", "qemu"].map(|value| {
            let args = ["check", "--sites", option, value];
            String::from_utf8(b.run(&args[..3 + usize::from(!value.is_empty())]).stderr).unwrap()
        });
        let conflict = format!("cannot be used with '{option}");
        let needs = |told: &String| told.contains(&conflict) || told.contains(" missing; ");
        assert!(told.iter().any(needs), "{option}: {told:?}");
        refused += 1;
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn cost_is_beside_its_bound() {
    let b = Bench::new();
    for backend in tool::BACKENDS {
        let (arch, Cost { saved, stack }) = (backend.facts().name, expected(*backend).cost);
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
    for (arch, _) in arches() {
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

/// How sites are written is told to programs too, with what goes astray; what only other reports have is refused.
#[test]
fn sites_are_judged_in_json() {
    let b = Bench::new();
    let check = ["check", "--sites", "--profile", "linux-7.3"];
    let text = b.ends(1, &check);
    let all: Value = serde_json::from_str(&b.ends(1, &[&check[..], &["--format", "json"]].concat())).unwrap();
    let all = all.as_array().unwrap();
    // Where functions can have room for an op before them, sites are judged with it and without.
    let arches: std::collections::BTreeSet<&str> = all.iter().map(|judged| judged["arch"].as_str().unwrap()).collect();
    assert!(arches.len() == tool::BACKENDS.len() && all.iter().any(|judged| judged["op"] == true), "{text}");
    for judged in all {
        let [places, sequences, failed] = ["places", "sequences", "failed"].map(|key| judged[key].as_u64().unwrap());
        let arch = judged["arch"].as_str().unwrap();
        let with = if judged["op"] == true { ", with room for op before each function (CALL_OPS)" } else { "" };
        assert!(text.contains(&format!("{arch}, profile linux-7.3{with}: {places} places")), "{text}");
        assert!(text.contains(&format!("{sequences} sequences, {failed} lead elsewhere")), "{text}");
        assert_eq!(judged["astray"].as_array().unwrap().is_empty(), failed == 0, "{judged}");
    }
    let astray = all.iter().find_map(|judged| judged["astray"].get(0)).unwrap();
    assert!(astray["bytes"].is_array() && astray["expected"].is_array() && astray["found"].is_u64(), "{astray}");
    b.refuses(&[&check[..], &["--format", "sarif"]].concat(), &["--format human or json"]);
    b.refuses(&[&check[..], &["--verbose"]].concat(), &["--verbose"]);
}

#[cfg(feature = "judge")]
#[test]
fn a_word_of_observations_is_explained_where_it_stands() {
    let b = Bench::new();
    let out = b.ok(&["contract", "observe", &format!("{}:ftrace_caller", any())]);
    let first = out.lines().position(|line| line.contains("\"older\"")).unwrap();
    assert!(out.lines().nth(first - 1).unwrap().starts_with("# older: "), "{out}");
}
