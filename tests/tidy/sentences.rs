//! No sentence of ours is taken apart again: what is told in words was a type before, and is asked for as one.
//!
//! Looked at are strings with a letter beside a blank, right behind the name of what searches or cuts a text.

use crate::excuses::{Excuses, judge};
use crate::names::{Word, shared, words_of};
use crate::sources::{rust_files, shown};

/// What searches a text or cuts it.
const CUTTERS: [&str; 12] = [
    "contains",
    "ends_with",
    "find",
    "rfind",
    "rsplit_once",
    "split",
    "split_once",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
    "trim_end_matches",
    "trim_start_matches",
];

/// Files that take a sentence of others apart.
const OF_OTHERS: &Excuses = &[
    ("arch-x86_64/src/emu.rs", "prefixes, as the disassembler writes them"),
    ("emu-tests/src/contract/written.rs", "an operand, as the disassembler writes it"),
    ("src/cmd/generate/mod.rs", "the mark by which a file is known to be generated"),
    ("src/cmd/shared/refused.rs", "what the library for command lines says"),
];

/// The parts of sentences by which a text is searched or cut.
fn parts(text: &str) -> Vec<(usize, String)> {
    let words = words_of(text);
    let behind = |pair: &[Word]| {
        let [cutter, part] = pair else { return None };
        let cuts = !cutter.string && CUTTERS.contains(&cutter.text.as_str()) && part.string;
        (cuts && is_part_of_a_sentence(&part.text)).then(|| (part.line, part.text.clone()))
    };
    words.windows(2).filter_map(behind).collect()
}

fn is_part_of_a_sentence(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    chars.windows(2).any(|two| matches!(two, [a, ' '] | [' ', a] if a.is_ascii_lowercase()))
}

#[test]
fn no_sentence_of_ours_is_taken_apart() {
    let product = shared().into_iter().filter(|dir| !shown(dir).starts_with("lab/"));
    let files = product
        .chain(["arch-x86_64", "arch-arm64", "arch-riscv"].map(|dir| crate::sources::root().join(dir).join("src")));
    let wrong = files.flat_map(|dir| rust_files(&dir)).flat_map(|path| {
        let file = shown(&path);
        let found = parts(&std::fs::read_to_string(&path).unwrap());
        found.into_iter().map(move |(line, part)| (file.clone(), format!("{file}:{line}: {part:?}")))
    });
    judge("sentences that are taken apart", wrong.collect(), OF_OTHERS);
}

#[test]
fn parts_of_sentences_are_seen() {
    for text in [
        "when.ends_with(\" is 0\")",
        "d.text.split_once(\", and \")",
        "v.contains(\" left it\")",
        "s.strip_prefix(\"half of \")",
    ] {
        assert_eq!(parts(text).len(), 1, "{text}");
    }
    for text in [
        "name.split_once(\": \")",
        "f.contains(\"+0x\")",
        "// x.find(\" is \")",
        "say(\"it is so\")",
        "key.starts_with(\"call\")",
    ] {
        assert_eq!(parts(text).len(), 0, "{text}");
    }
}
