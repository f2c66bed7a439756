//! Files are read in one place, which has a bound: no other reads them.

use crate::excuses::{Excuses, judge};
use crate::names::{shared, words_of};
use crate::sources::{root, rust_files, shown};

/// The reader.
const READER: &Excuses = &[
    ("codegen/src/words/input.rs", "it is the reader"),
    ("session/src/program.rs", "the first bytes of a program"),
    ("src/cmd/shared/input.rs", "recordings, which are read block by block"),
];

/// Words that read all of something, one after the other.
const READS: [&[&str]; 4] = [&["fs", "read"], &["File", "open"], &["read_to_string"], &["read_to_end"]];

/// Lines that read.
fn reads(text: &str) -> Vec<usize> {
    let words = words_of(text);
    let named = |at: usize, names: &[&str]| {
        let here = words.get(at..at + names.len()).unwrap_or_default();
        here.len() == names.len() && here.iter().zip(names).all(|(word, name)| !word.string && word.text == **name)
    };
    let reads = |at: &usize| READS.iter().any(|names| named(*at, names));
    (0..words.len()).filter(reads).map(|at| words[at].line).collect()
}

#[test]
fn no_file_is_read_without_a_bound() {
    let product = shared().into_iter().filter(|dir| !shown(dir).starts_with("lab/") && !shown(dir).starts_with("fuzz"));
    let files = product.chain(["arch-x86_64", "arch-arm64", "arch-riscv"].map(|dir| root().join(dir).join("src")));
    let wrong = files.flat_map(|dir| rust_files(&dir)).flat_map(|path| {
        let file = shown(&path);
        let found = reads(&std::fs::read_to_string(&path).unwrap());
        found
            .into_iter()
            .map(move |line| (file.clone(), format!("{file}:{line} reads a file; codegen::words::input does")))
    });
    judge("files that are read without a bound", wrong.collect(), READER);
}

#[test]
fn what_reads_is_seen() {
    for text in ["std::fs::read(p)", "fs::read_to_string(p)", "File::open(p)", "stdin().take(9).read_to_end(&mut b)"] {
        assert_eq!(reads(text).len(), 1, "{text}");
    }
    for text in ["fs::read_dir(p)", "input::bytes(p)", "// fs::read(p)", "say(\"File open\")", "fs::write(p, read)"] {
        assert_eq!(reads(text).len(), 0, "{text}");
    }
}
