//! In how many places something is named that is one of many: what adding another one takes. docs/adding-*.md say the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::excuses::{Excuses, judge};
use crate::names::{FILES, shared, words_of};
use crate::sources::{root, rust_files, shown};

/// Where clauses are checked.
const CHECKS: [&str; 2] = ["trace/", "checks/"];

/// Other files that name clauses. A new clause needs a line there only if the reason is one for it too.
const CLAUSES: &Excuses = &[
    ("emu-tests/src/judge/check.rs", "what is not run at all where these are not judged"),
    ("emu-tests/src/judge/explain.rs", "all clauses come together in P16, far from the sites"),
    ("emu-tests/src/judge/suite.rs", "what the sites of an architecture cannot help"),
    ("emu-tests/src/judge/tally.rs", "all clauses come together in P16, far from the sites"),
    ("emu-tests/src/judge/verdict.rs", "which must be decided on each way out, and why a kind has nothing to check"),
    ("src/cmd/contract.rs", "a way back that is lost tells too many arguments"),
    ("src/review/mod.rs", "what code does in memory that has gone astray follows from what led it there"),
];

/// File and line of each word of the sources that serve all architectures; text, and whether it is a string.
fn all_words() -> Vec<(String, usize, String, bool)> {
    let files = shared().into_iter().flat_map(|dir| rust_files(&dir));
    let words = files.flat_map(|path| {
        let words = words_of(&std::fs::read_to_string(&path).unwrap());
        words.into_iter().map(move |w| (shown(&path), w.line, w.text, w.string))
    });
    words.collect()
}

/// Adding a clause: one row and its check.
#[test]
fn a_clause_is_a_row_and_its_check() {
    const ROWS: &str = "emu-tests/src/report/mod.rs";
    let is_clause = |text: &str| text.strip_prefix('P').is_some_and(|n| !n.is_empty() && n.parse::<u8>().is_ok());
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for (file, _, text, _) in all_words().into_iter().filter(|(_, _, text, string)| !string && is_clause(text)) {
        match file == ROWS {
            true => *rows.entry(text).or_default() += 1,
            false => drop(places.entry(text).or_default().insert(file)),
        }
    }
    let names: Vec<&str> = emu_tests::Clause::ALL.iter().map(|c| c.name()).filter(|name| is_clause(name)).collect();
    assert!(names.len() > 15, "{names:?}");
    let pages = std::fs::read_to_string(root().join("src/explain/clauses.toml")).unwrap();
    let checks = |file: &String| CHECKS.iter().any(|check| file.contains(&format!("emu-tests/src/judge/{check}")));
    let mut others = Vec::new();
    for name in &names {
        assert_eq!(rows.get(*name), Some(&1), "{name}: rows");
        assert_eq!(pages.matches(&format!("\nname = \"{name}\"\n")).count(), 1, "{name}: pages");
        let files = places.remove(*name).unwrap_or_default();
        // P16 is all the others, far from the sites.
        assert!(*name == "P16" || files.iter().any(checks), "{name} is checked nowhere: {files:?}");
        others.extend(files.into_iter().filter(|f| !checks(f)).map(|file| (file.clone(), format!("{file}: {name}"))));
    }
    assert!(places.is_empty(), "clauses without a row: {places:?}");
    // The last one that came is a row and its check, and nothing else.
    for toy in ["P13", "P15", "P19"] {
        assert!(!others.iter().any(|(_, what)| what.ends_with(&format!(" {toy}"))), "{toy}: {others:?}");
    }
    judge("clauses beside row and check", others, CLAUSES);
}

/// Adding an option: one row and the arm where it acts, in the crate of its architecture.
#[test]
fn an_option_is_known_to_its_architecture_alone() {
    // Files that may name an architecture may name what it has.
    let of_one = |file: &str| FILES.iter().any(|(excused, _)| *excused == file);
    let words: Vec<_> = all_words().into_iter().filter(|(file, ..)| !of_one(file)).collect();
    let mut seen = 0;
    for backend in tool::BACKENDS {
        for option in backend.facts().options {
            // Words of other languages too: a kind of trampoline, keys of contracts and of tables.
            if ["return", "abi", "stack-align", "vectors"].contains(&option.name) {
                continue;
            }
            let named = words.iter().find(|(.., text, string)| *string && text == option.name);
            assert!(named.is_none(), "{}: {named:?}", option.name);
            seen += 1;
        }
    }
    assert!(seen > 6, "{seen}");
    // That of the toy: its row, and the one line where it acts.
    let toy = std::fs::read_to_string(root().join("tests/toy_backend.rs")).unwrap();
    let named = toy.lines().filter(|line| line.contains("Slack"));
    assert_eq!(named.count(), 2, "tests/toy_backend.rs: Slack");
}

/// Adding a profile: one file, and a line if it comes with the tool. Adding an architecture: one crate, one line.
#[test]
fn profiles_and_architectures_are_a_line_each() {
    const LIST: &str = "profiles/src/lib.rs";
    for name in profiles::names() {
        let is_name = |(.., text, string): &&(String, usize, String, bool)| *string && text == name;
        let found = all_words();
        let elsewhere: Vec<_> = found.iter().filter(is_name).filter(|(file, ..)| file != LIST).collect();
        assert!(elsewhere.is_empty(), "{name}: {elsewhere:?}");
        let lines: BTreeSet<usize> = found.iter().filter(is_name).map(|(_, line, ..)| *line).collect();
        assert_eq!(lines.len(), 1 + usize::from(name == profiles::DEFAULT || name == profiles::USER), "{LIST}: {name}");
        assert!(root().join(format!("profiles/{name}.toml")).exists(), "{name}");
    }
    let list = std::fs::read_to_string(root().join("arch/src/lib.rs")).unwrap();
    let crates = std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates: Vec<String> = crates.filter(|name| name.starts_with("arch-")).collect();
    assert_eq!(crates.len(), tool::BACKENDS.len(), "{crates:?}");
    for name in crates {
        let lines = list.lines().filter(|line| line.contains(&name.replace('-', "_"))).count();
        assert_eq!(lines, 1, "arch/src/lib.rs: {name}");
    }
}

/// What trampolines are made of is what lowering emits. What else mutants are made of has a type of its own, of which
/// lowering knows nothing.
#[test]
fn instructions_are_emitted_or_faulty() {
    for dir in std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("arch-") {
            continue;
        }
        let words = |file: &str| {
            let words = words_of(&std::fs::read_to_string(dir.join("src").join(file)).unwrap());
            words.into_iter().filter(|w| !w.string).map(|w| w.text).collect::<BTreeSet<_>>()
        };
        let variants = |file: &str| {
            let text = std::fs::read_to_string(dir.join("src").join(file)).unwrap();
            let body = text.split_once("pub enum ").unwrap().1.split_once("\n}").unwrap().0.to_owned();
            let line = |line: &str| line.strip_prefix("    ").is_some_and(|l| l.starts_with(char::is_uppercase));
            let name = |line: &str| line.trim().split([' ', ',']).next().unwrap().to_owned();
            body.lines().filter(|l| line(l)).map(name).collect::<BTreeSet<_>>()
        };
        let (mut lower, mutate) = (words("lower.rs"), words("mutate.rs"));
        // What some trampolines do alone is lowered apart.
        for apart in ["record.rs", "rethook.rs", "shadow.rs"].iter().filter(|file| dir.join("src").join(file).exists())
        {
            lower.extend(words(apart));
        }
        let (sound, faulty) = (variants("insn.rs"), variants("faulty.rs"));
        assert!(sound.len() > 10 && faulty.len() > 1, "{name}: {sound:?} {faulty:?}");
        assert_eq!(sound.difference(&lower).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}: never emitted");
        assert_eq!(faulty.difference(&mutate).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}: in no mutant");
        assert!(!lower.contains("Faulty"), "{name}");
    }
}
