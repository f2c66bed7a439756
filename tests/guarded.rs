//! Return addresses that are guarded while they are in memory: P28, and that faults in it are noticed.

use codegen::arch::harden::ReturnGuard;
use common::Bench;
use common::expected::{ShadowCallStack, expected};
use serde_json::Value;

mod common;

/// What goes wrong with a guard, and where: not everywhere is SP a part of it, or an entry in memory.
const FAULTS: [(&str, &[&str]); 10] = [
    ("GUARD_MISSING", &["signed", "pushed", "scs"]),
    ("CHECK_MISSING", &["signed", "pushed", "scs"]),
    ("UNGUARDED", &["signed", "pushed", "scs"]),
    ("CHECK_EARLY", &["signed", "pushed", "scs"]),
    ("GUARD_OTHER", &["signed", "pushed", "scs"]),
    ("CHECK_OTHER", &["signed", "pushed", "scs"]),
    ("GUARD_LATE", &["signed"]),
    ("CHECK_SP", &["signed"]),
    ("GUARD_UNTOLD", &["signed"]),
    ("SCS_ENTRY", &["scs"]),
];

/// Each guard of each architecture: the architecture's name, the setting, and the guard's name.
fn guarded() -> Vec<(&'static str, String, &'static str)> {
    let of = |backend: &&'static dyn codegen::backend::Backend| {
        let (arch, expected) = (backend.facts().name, expected(*backend));
        let own = backend.facts().guards.iter().map(|guard| guard.name());
        let (scs, others): (Vec<_>, Vec<_>) = own.partition(|name| *name == ReturnGuard::Scs.name());
        let settings = [
            (expected.process.guarded.clone(), others),
            (expected.shadow_call_stack.as_ref().map(|scs| scs.set.clone()), scs),
        ];
        settings.into_iter().flat_map(move |(setting, guards)| {
            guards.into_iter().map(move |guard| (arch, setting.clone().unwrap(), guard))
        })
    };
    tool::BACKENDS.iter().flat_map(of).collect()
}

#[test]
fn every_fault_of_a_guard_is_noticed() {
    let mut guards = 0;
    for (arch, setting, guard) in guarded() {
        guards += 1;
        let bench = Bench::new();
        for (operator, _) in FAULTS.iter().filter(|(_, of)| of.contains(&guard)) {
            let args = ["mutate", "--profile", "bare", "--arch", arch, "--set", &setting, "--only", operator];
            let report: Value = serde_json::from_str(&bench.ok(&[&args[..], &["--format", "json"]].concat())).unwrap();
            let results = report["results"].as_array().unwrap();
            // Those that call functions and have a frame meanwhile.
            assert!(results.len() > 15, "{arch} {guard} {operator}: {}", results.len());
            for result in results {
                let clauses = result["clauses"].as_array().unwrap();
                assert!(result["outcome"] == "killed" && clauses.contains(&"P28".into()), "{arch}: {result:#}");
            }
        }
    }
    assert_eq!(guards, 4);
}

/// The arguments of `gen` for a trampoline that calls a function.
const AROUND: [&str; 12] =
    ["gen", "around", "--call", "enter", "--exit", "leave", "--function", "f+8", "--args", "2", "--profile", "bare"];

/// A trampoline without a guard under a contract that asks for one, and the other way round.
#[test]
fn a_contract_that_asks_for_a_guard_gets_one() {
    for (arch, setting, guard) in guarded() {
        let bench = Bench::new();
        let gen_ = |stem: &str, more: &[&str]| {
            let rest = ["--arch", arch, "--stem", stem, "--emit", "obj,contract"];
            bench.ok(&[&AROUND[..], &rest, more].concat());
        };
        gen_("plain", &[]);
        gen_("guarded", &["--set", &setting]);
        let facts = tool::backend(arch).unwrap().facts();
        let other = ReturnGuard::ALL.into_iter().find(|other| !facts.guards.contains(other)).unwrap().name();
        let text = std::fs::read_to_string(bench.path("guarded.toml")).unwrap();
        let key = format!("guard = \"{guard}\"\n");
        assert!(text.contains(&key), "{text}");
        let verdicts = |object: &str, contract: &str, code: i32| -> Vec<Value> {
            let args = ["check", "--object", object, "--contract", contract, "--format", "json"];
            let report: Value = serde_json::from_str(&bench.ends(code, &args)).unwrap();
            let rows = report["results"].as_array().unwrap().clone();
            rows.into_iter().filter(|row| row["clause"] == "P28").collect()
        };
        assert_eq!(verdicts("guarded.o", "guarded.toml", 0)[0]["verdict"], "pass", "{arch}");
        assert_eq!(verdicts("plain.o", "plain.toml", 0)[0]["reason_id"], "not-guarded", "{arch}");
        let broken = &verdicts("plain.o", "guarded.toml", 1)[0];
        assert_eq!(broken["verdict"], "fail", "{arch}");
        let wrong = text.replace(&key, &format!("guard = \"{other}\"\n"));
        std::fs::write(bench.path("wrong.toml"), wrong).unwrap();
        let check = ["check", "--object", "guarded.o", "--contract", "wrong.toml"];
        bench.refuses(&check, &["wrong.toml", "guard: ", guard]);
    }
}

/// What is said of a trampoline with these changes, by the clauses that fail: their places.
fn failing(arch: &str, scs: &ShadowCallStack, changes: &[[String; 2]]) -> Vec<(String, String)> {
    let b = Bench::new();
    let rest = ["--arch", arch, "--set", &scs.set, "--emit", "asm,contract", "--stem", "t"];
    b.ok(&[&AROUND[..], &rest].concat());
    let text = std::fs::read_to_string(b.path("t.S")).unwrap();
    let changed = changes.iter().fold(text, |text, [from, to]| {
        assert_eq!(text.matches(from).count(), 1, "{arch}: {from:?} in {text}");
        text.replace(from, to)
    });
    std::fs::write(b.path("t.S"), changed).unwrap();
    b.tool(&format!("{}gcc", common::tools_of(arch)), &["-c", "t.S", "-o", "t.o"]);
    let check = ["check", "--object", "t.o", "--contract", "t.toml", "--format", "json"];
    let report: Value = serde_json::from_slice(&b.run(&check).stdout).unwrap();
    let rows = report["results"].as_array().unwrap().iter().filter(|row| row["verdict"] == "fail");
    rows.map(|row| (row["clause"].as_str().unwrap().to_owned(), row["places"].to_string())).collect()
}

/// A function that does not call itself again comes back from that all the same. Neither does a register differ where the pointer
/// was in memory.
#[test]
fn what_is_on_the_shadow_call_stack_and_where_it_is_is_left_alone() {
    for backend in tool::BACKENDS {
        let (arch, expected) = (backend.facts().name, expected(*backend));
        let Some(scs) = &expected.shadow_call_stack else { continue };
        assert_eq!(failing(arch, scs, &[]), [], "{arch}");
        let below = failing(arch, scs, &scs.below);
        assert!(
            below.iter().any(|(clause, places)| clause == "P28" && places.contains("guard:scs")),
            "{arch}: {below:?}"
        );
        let spilled = failing(arch, scs, &scs.spilled);
        assert!(spilled.iter().any(|(clause, _)| clause == "P28"), "{arch}: {spilled:?}");
    }
}

/// The pointer may be wrong only in the end.
#[test]
fn a_pointer_that_does_not_move_with_its_entry_is_noticed() {
    for (arch, setting, _) in guarded().iter().filter(|(.., guard)| *guard == ReturnGuard::Scs.name()) {
        let args = ["mutate", "--profile", "bare", "--arch", arch, "--set", setting, "--only", "SCS_POINTER"];
        let report: Value =
            serde_json::from_str(&Bench::new().ok(&[&args[..], &["--format", "json"]].concat())).unwrap();
        let results = report["results"].as_array().unwrap();
        assert!(
            results.len() > 15 && results.iter().all(|result| result["outcome"] == "killed"),
            "{arch}: {results:#?}"
        );
    }
}

/// A program in which handlers overwrite the return address that the trampoline has in its frame.
const ATTACK: &str = "
unsigned long entries[64];
long main(void);
void caught(void);
long traced(long) __asm__(\"mine\");

__attribute__((noinline)) static void attack(unsigned long *word)
{
    for (int n = 0; n < 64; n++)
        if (word[n] - (unsigned long)main < 4096)
            word[n] = (unsigned long)caught;
}

void enter(long a) { attack(__builtin_frame_address(0)); }
void leave(long result) { attack(__builtin_frame_address(0)); }
__attribute__((noinline)) long twice(long a) { __asm__ volatile(\"\"); return 2 * a; }
__attribute__((noinline)) long go_on(long a) { return twice(a) + 1; }

/* Alone on its pages, so that an address there is its own. */
__attribute__((aligned(4096))) long main(void) { return traced(20) == 41 ? 0 : 1; }
";

/// A real program of a real compiler: whoever overwrites what is in the frame goes astray without the guard, and does not matter
/// with it.
#[test]
fn a_return_address_that_is_overwritten_is_not_returned_to() {
    let mut programs = 0;
    for backend in tool::BACKENDS {
        let (arch, expected) = (backend.facts().name, expected(*backend));
        let Some(scs) = &expected.shadow_call_stack else { continue };
        let (tools, with) = (common::tools_of(arch), &expected.process);
        let b = Bench::new();
        std::fs::write(b.path("start.s"), &scs.start).unwrap();
        std::fs::write(b.path("attack.c"), ATTACK).unwrap();
        for (setting, code) in [("guard-return=off", 7), (&*scs.set, 0)] {
            let made = ["gen", "around", "--name", "mine", "--call", "enter", "--exit", "leave", "--function", "f+8"];
            let rest = ["--args", "1", "--profile", "bare", "--arch", arch, "--emit", "obj", "--stem", "mine"];
            b.ok(&[&made[..], &rest, &["--set", setting]].concat());
            let flags: Vec<&str> = with.flags.iter().chain(&scs.flags).map(String::as_str).collect();
            let how = ["-O1", "-fno-toplevel-reorder", "-fno-omit-frame-pointer", "-static", "-nostdlib"];
            let files = ["start.s", "mine.o", "attack.c", "-o", "program"];
            b.tool(&format!("{tools}gcc"), &[&flags[..], &how, &files].concat());
            let ended = std::process::Command::new(&with.runner[0]).arg(b.path("program")).status().unwrap();
            assert_eq!(ended.code(), Some(code), "{arch} {setting}");
        }
        programs += 1;
    }
    assert_eq!(programs, 2);
}

/// Whatever an architecture can do is in reach of an option, and nothing else is.
#[test]
fn each_guard_has_its_option() {
    for backend in tool::BACKENDS {
        let targets = common::targets(*backend);
        let offered: Vec<ReturnGuard> = targets.iter().filter_map(|target| target.harden.guard).collect();
        for guard in ReturnGuard::ALL {
            let can = backend.facts().guards.contains(&guard);
            assert_eq!(offered.contains(&guard), can, "{} {}", backend.facts().name, guard.name());
        }
    }
}
