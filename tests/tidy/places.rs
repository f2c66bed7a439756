//! What stands in one place: files are read by one reader, which has a bound, and one file names the engine.

use std::path::PathBuf;

use crate::excuses::{Excuses, judge};
use crate::names::{shared, words_of};
use crate::sources::{root, rust_files, shown};

/// The reader.
const READER: &Excuses = &[
    ("codegen/src/words/input.rs", "it is the reader"),
    ("session/src/program.rs", "the first bytes of a program"),
    ("src/running/memory.rs", "a kernel's memory, of which trampolines are read, each with a bound"),
    ("src/cmd/shared/input.rs", "recordings, which are read block by block"),
];

/// Words that read all of something, one after the other.
const READS: &[&[&str]] = &[&["fs", "read"], &["File", "open"], &["read_to_string"], &["read_to_end"]];

/// What implements the engine's trait.
const ENGINE: &Excuses = &[
    ("emu-tests/src/engine/unicorn.rs", "it is the engine"),
    ("emu-tests/tests/engine.rs", "our numbers of registers are compared with its own"),
];

/// Words by which the engine is named.
const NAMES: &[&[&str]] = &[&["unicorn_engine"]];

/// Lines that have these words.
fn lines(text: &str, sought: &[&[&str]]) -> Vec<usize> {
    let words = words_of(text);
    let named = |at: usize, names: &[&str]| {
        let here = words.get(at..at + names.len()).unwrap_or_default();
        here.len() == names.len() && here.iter().zip(names).all(|(word, name)| !word.string && word.text == **name)
    };
    let has = |at: &usize| sought.iter().any(|names| named(*at, names));
    (0..words.len()).filter(has).map(|at| words[at].line).collect()
}

/// Fail with the files below these folders that have the words, and should not.
fn only_in(what: &str, dirs: impl Iterator<Item = PathBuf>, sought: &[&[&str]], excuses: &Excuses, instead: &str) {
    let wrong = dirs.flat_map(|dir| rust_files(&dir)).flat_map(|path| {
        let file = shown(&path);
        let found = lines(&std::fs::read_to_string(&path).unwrap(), sought);
        found.into_iter().map(move |line| (file.clone(), format!("{file}:{line} {instead}")))
    });
    judge(what, wrong.collect(), excuses);
}

#[test]
fn no_file_is_read_without_a_bound() {
    let product = shared().into_iter().filter(|dir| !shown(dir).starts_with("lab/") && !shown(dir).starts_with("fuzz"));
    let all = product.chain(["arch-x86_64", "arch-arm64", "arch-riscv"].map(|dir| root().join(dir).join("src")));
    let instead = "reads a file; codegen::words::input does";
    only_in("files that are read without a bound", all, READS, READER, instead);
}

#[test]
fn one_file_names_the_engine() {
    let instead = "names Unicorn; ask an emu_tests::Engine";
    only_in("files that name the engine", std::iter::once(root()), NAMES, ENGINE, instead);
}

#[test]
fn words_are_seen() {
    for text in ["std::fs::read(p)", "fs::read_to_string(p)", "File::open(p)", "stdin().take(9).read_to_end(&mut b)"] {
        assert_eq!(lines(text, READS).len(), 1, "{text}");
    }
    for text in ["fs::read_dir(p)", "input::bytes(p)", "// fs::read(p)", "say(\"File open\")", "fs::write(p, read)"] {
        assert_eq!(lines(text, READS).len(), 0, "{text}");
    }
    assert_eq!(lines("use unicorn_engine::Unicorn;", NAMES), [1]);
}
