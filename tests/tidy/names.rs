//! No architecture by name where all are served alike: what differs is data of their crates.
//!
//! Looked at are names in the code, and strings without a blank: those with one are text for people, which has examples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use crate::excuses::{Excuses, judge};
use crate::sources::{root, rust_files, shown};

/// Crates that may name one: their own, the list of them, and chores with kernels that are built for one.
const OF_ONE: [&str; 5] = ["arch-x86_64", "arch-arm64", "arch-riscv", "arch", "lab/xtask"];

/// The sources that serve all architectures alike: of every crate but those.
pub fn shared() -> Vec<PathBuf> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
    let members: Vec<&str> =
        manifest["workspace"]["members"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect();
    assert!(OF_ONE.iter().all(|name| members.contains(name)), "{members:?}");
    let shared = members.into_iter().filter(|name| !OF_ONE.contains(name)).chain([".", "fuzz"]);
    shared.map(|name| root().join(name).join("src")).collect()
}

/// What is in names that say which architecture is meant.
const ARCHITECTURES: [&str; 5] = ["x86", "amd64", "arm64", "aarch64", "riscv"];

/// Files in which one is named.
pub const FILES: &Excuses = &[
    ("emu-tests/src/engine/unwind.rs", "what a reader of DWARF calls those who say that an address is signed"),
    ("lab/bench/src/generate.rs", "the object crate has names of its own for machines"),
    ("lab/bench/src/live.rs", "native figures are of programs for one architecture"),
    ("lab/bench/src/native/mod.rs", "native figures are of programs for one architecture"),
    ("lab/bench/src/native/parts.rs", "native figures are of programs for one architecture"),
    ("lab/compose/src/cross.rs", "the list of machines: an architecture is a row of it"),
    ("emu-tests/src/judge/fixture.rs", "the list of fixtures: an architecture is a row of it"),
    ("live/src/machine.rs", "the list of machines: an architecture is a row of it"),
    ("session/src/clock.rs", "the instruction that reads the clock: an architecture is a row of it"),
    ("src/contracts.rs", "the list of contracts, which are of one architecture each"),
];

/// A word in the code of a file, with its line.
pub struct Word {
    pub text: String,
    pub line: usize,
    /// It is a string, not a name.
    pub string: bool,
}

/// The names and strings of a file, but for comments and for what exists in tests only.
fn words(tokens: TokenStream, found: &mut Vec<Word>) {
    let mut skip = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let line = token.span().start().line;
        match token {
            TokenTree::Punct(p) if p.as_char() == '#' => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '!') {
                    tokens.next();
                }
                if let Some(TokenTree::Group(attribute)) = tokens.next() {
                    let text = attribute.stream().to_string().replace(' ', "");
                    skip |= text == "cfg(test)";
                    if !text.starts_with("doc=") {
                        words(attribute.stream(), found);
                    }
                }
            }
            // What the attribute is of ends with its body, or without one.
            TokenTree::Group(group) if skip => skip = group.delimiter() != proc_macro2::Delimiter::Brace,
            TokenTree::Punct(p) if skip => skip = p.as_char() != ';',
            _ if skip => {}
            TokenTree::Group(group) => words(group.stream(), found),
            TokenTree::Ident(ident) => found.push(Word { text: ident.to_string(), line, string: false }),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if let Some(text) = text.strip_suffix('"').and_then(|t| t.split_once('"')).map(|(_, t)| t) {
                    found.push(Word { text: text.to_owned(), line, string: true });
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// The names and strings of a file's text.
pub fn words_of(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    words(TokenStream::from_str(text).unwrap_or_default(), &mut found);
    found
}

/// The names of registers that only one architecture has.
fn registers() -> BTreeSet<&'static str> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for backend in tool::BACKENDS {
        backend.facts().abi.regs.iter().for_each(|r| *owners.entry(r.name).or_default() += 1);
    }
    owners.into_iter().filter(|(_, of)| *of == 1).map(|(name, _)| name).collect()
}

/// Does this word say which architecture is meant?
fn names_one(word: &Word, registers: &BTreeSet<&str>) -> bool {
    let text = word.text.to_lowercase();
    let named = ARCHITECTURES.iter().any(|name| text.contains(name));
    match word.string {
        false => named,
        true if text.contains(char::is_whitespace) => false,
        true => named || registers.contains(&*word.text) || word.text == "$x",
    }
}

#[test]
fn no_architecture_is_named_where_all_are_served() {
    let registers = registers();
    assert!(["rdi", "x8", "a0"].iter().all(|name| registers.contains(name)), "{registers:?}");
    let files = shared().into_iter().flat_map(|dir| rust_files(&dir));
    let wrong = files.flat_map(|path| {
        let file = shown(&path);
        let found = words_of(&std::fs::read_to_string(&path).unwrap());
        assert!(!found.is_empty(), "{file}: nothing in it");
        let found: Vec<Word> = found.into_iter().filter(|word| names_one(word, &registers)).collect();
        found.into_iter().map(move |w| (file.clone(), format!("{file}:{}: {}", w.line, w.text)))
    });
    judge("architectures by name", wrong.collect(), FILES);
}

/// Tests in which an architecture is named. What is expected of each stands in tests/arch.
const TESTS: &Excuses = &[
    ("emu-tests/tests/engine.rs", "the names that the engine gives registers"),
    ("emu-tests/tests/protocol.rs", "how one profile writes the sites of one architecture, and where that is wrong"),
    ("emu-tests/tests/site.rs", "faults in the bytes of sites, by hand"),
    ("profiles/tests/sites.rs", "the bytes that Linux writes, by hand"),
    (
        "tests/compose_on/main.rs",
        "where one architecture has return addresses, and the ABI with vector registers of another",
    ),
    ("tests/compose_on/mutants/unnoticed.rs", "faults that one machine cannot have, and others can"),
    ("tests/compose_on/on.rs", "the one architecture of which Linux has no trampoline for kretprobes"),
    ("tests/audit.rs", "the one architecture whose line tables a linker completes"),
    ("tests/cli/link.rs", "objects that do not go together"),
    ("tests/mended.rs", "faults of foreign code, each of its architecture, and its note on landing pads"),
    ("tests/observe.rs", "stubs of system calls by hand, one of each architecture"),
    ("tests/foreign/boundaries.rs", "stubs by hand, one of each architecture: each has its own system calls"),
    ("tests/foreign/case.rs", "trampolines by hand, all of one architecture"),
    ("tests/foreign/kernels.rs", "kernels by name, where some have a trampoline that others have not"),
    ("tests/enforced.rs", "the architectures that another engine enforces, and what each enforces"),
    ("tests/displaced.rs", "detours by hand, one of each architecture, and the one whose kernels have some"),
    ("tests/written.rs", "the one architecture whose kernels copy entry trampolines"),
    ("tests/foreign/overwritten.rs", "the one architecture whose sites are laid out anew for each trampoline"),
    ("tests/foreign/stated.rs", "a sled whose call has data behind it"),
    ("tests/cli/commands.rs", "what a shell completes"),
    ("tests/cli/terminal.rs", "reports as somebody sees them, of one trampoline each"),
    ("tests/common/mod.rs", "the failing check that the README shows"),
    ("tests/entries.rs", "instructions of each architecture, by hand: an architecture is a row of them"),
    ("tests/examples.rs", "what somebody types"),
    ("tests/kernel.rs", "bytes, relocations and configurations of one kernel, by hand"),
    ("tests/minimise.rs", "a trampoline by hand"),
    ("tests/mutate.rs", "faults in the text of unwind tables, by hand"),
    ("tests/page.rs", "a fault at its instruction, and commands under few sets of options"),
    ("tests/probe.rs", "registers as events name them, and where the kernel's source has their table"),
    ("tests/profiles.rs", "the tutorial as it is typed, and profiles that leave an architecture out"),
    ("tests/review.rs", "two fields of a frame, by their names"),
    ("tests/report.rs", "a command under few sets of options, and what it prints"),
    ("tests/sites.rs", "a module for whose code xz has a filter"),
    ("tests/tidy/names.rs", "the names that are looked for"),
    ("tests/trace.rs", "compilers and emulators: an architecture is a row of them"),
];

/// Tests go through the registry: one that is added is tested by what is there.
#[test]
fn tests_name_an_architecture_where_they_must() {
    let named = |word: &Word| word.string && tool::BACKENDS.iter().any(|b| b.facts().name == word.text);
    let folders = ["tests", "emu-tests/tests", "link/tests", "profiles/tests", "codegen/tests"];
    let files = folders.iter().flat_map(|dir| rust_files(&root().join(dir)));
    let wrong = files.flat_map(|path| {
        let file = shown(&path);
        let found = words_of(&std::fs::read_to_string(&path).unwrap());
        let found: Vec<Word> = found.into_iter().filter(named).collect();
        found.into_iter().map(move |w| (file.clone(), format!("{file}:{}: {}", w.line, w.text)))
    });
    judge("architectures by name in tests", wrong.collect(), TESTS);
}

#[test]
fn names_are_seen_in_code_only() {
    let registers = registers();
    let found = |text: &str| words_of(text).into_iter().filter(|w| names_one(w, &registers)).count();
    let seen =
        ["f(\"arm64\")", "if arch == \"rdx\" {}", "use arch_x86_64::X;", "#[cfg(target_arch = \"riscv64\")] fn f() {}"];
    for text in seen.iter().chain(&["const E: u32 = EF_RISCV_RVC;", "name == \"$x\"", "assert!(x == b\"aarch64\")"]) {
        assert_ne!(found(text), 0, "{text}");
    }
    let hidden = ["// arm64", "/// As on arm64.\nfn f() {}", "\"an example: --arch arm64\"", "\"sp\"", "let rdi = 1;"];
    for text in hidden.iter().chain(&["#[cfg(test)]\nmod tests { const A: &str = \"arm64\"; }"]) {
        assert_eq!(found(text), 0, "{text}");
    }
}
