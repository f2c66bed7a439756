// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask prose [SEED]`: 40 doc comments and 40 sentences of the documents, drawn by a seed, to be read with fresh eyes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::tools::{read, root};
use crate::verb::Outcome;

/// How many of each are drawn.
const DRAWN: usize = 40;

/// A sentence, and where it begins.
struct Sentence {
    place: String,
    text: String,
}

/// Print them. The same seed draws the same sentences as long as they stay as they are, wherever they move.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let seed = match args {
        [] => 1,
        [seed] => seed.parse().map_err(|_| Failure::new("cargo xtask prose", "SEED is no number", "give a number"))?,
        _ => return Err(Failure::new("cargo xtask prose", "too many arguments", "give SEED, or nothing for 1")),
    };
    let (mut comments, mut documents) = (Vec::new(), Vec::new());
    for path in files(&root())? {
        let place = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => comments.extend(of_comments(&place, &read(&path)?)),
            // What results say is written by commands.
            Some("md") if !place.starts_with("results/") => documents.extend(of_document(&place, &read(&path)?)),
            _ => {}
        }
    }
    for (title, sentences) in [("doc comments", comments), ("sentences of documents", documents)] {
        println!("{DRAWN} of {} {title}, seed {seed}", sentences.len());
        for Sentence { place, text } in drawn(sentences, seed) {
            println!("  {place}: {text}");
        }
    }
    Ok(Outcome::Good)
}

/// The files below a directory, but those that git and cargo make.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refused = |e: std::io::Error| Failure::new(dir.display().to_string(), e.to_string(), "make it readable");
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || ["target", "node_modules", "out"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() { all.extend(files(&path)?) } else { all.push(path) }
    }
    Ok(all)
}

/// The first sentence of each doc comment.
fn of_comments(place: &str, text: &str) -> Vec<Sentence> {
    let mut all: Vec<Sentence> = Vec::new();
    let mut inside: Option<usize> = None;
    for (n, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim);
        match (comment, inside) {
            (Some(line), Some(at)) if !line.is_empty() => {
                all[at].text.push(' ');
                all[at].text.push_str(line);
            }
            (Some(line), None) if !line.is_empty() => {
                inside = Some(all.len());
                all.push(Sentence { place: format!("{place}:{}", n + 1), text: line.to_owned() });
            }
            // After an empty line of the comment comes no first sentence.
            (Some(_), _) => {}
            (None, _) => inside = None,
        }
    }
    for sentence in &mut all {
        let first = sentences(&sentence.text).next().unwrap_or_default().to_owned();
        sentence.text = first;
    }
    all
}

/// The sentences of paragraphs and lists: no headings, tables and blocks.
fn of_document(place: &str, text: &str) -> Vec<Sentence> {
    let (mut all, mut paragraph, mut begins, mut fenced) = (Vec::new(), String::new(), 0, false);
    for (n, line) in text.lines().chain([""]).enumerate() {
        let fence = line.starts_with("```");
        fenced ^= fence;
        let prose = !fenced && !fence && !line.starts_with(['#', '|', '<', '!']) && !line.starts_with("    ");
        let item = line.starts_with("- ");
        if line.is_empty() || !prose || item {
            let place = format!("{place}:{begins}");
            all.extend(sentences(&paragraph).map(|text| Sentence { place: place.clone(), text: text.to_owned() }));
            paragraph.clear();
        }
        if prose && !line.is_empty() {
            if paragraph.is_empty() {
                begins = n + 1;
            } else {
                paragraph.push(' ');
            }
            paragraph.push_str(line.trim_start_matches("- ").trim());
        }
    }
    all
}

/// A text in sentences.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(". ").map(str::trim).filter(|sentence| sentence.contains(' '))
}

/// Those whose hash with the seed is least.
fn drawn(mut all: Vec<Sentence>, seed: u64) -> Vec<Sentence> {
    // FNV-1a, which is the same on every machine and with every compiler.
    let hash = |text: &str| {
        let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    all.sort_by_cached_key(|sentence| (hash(&sentence.text), sentence.place.clone()));
    all.dedup_by(|one, other| one.text == other.text);
    all.truncate(DRAWN);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sentences_and_those_of_paragraphs_are_found() {
        let text = "//! A file. More.\n\n/// The one\n/// thing. More.\n///\n/// Other.\nfn f() {}\n    /// A field.\n";
        let found = of_comments("a.rs", text);
        let found: Vec<(&str, &str)> = found.iter().map(|s| (s.place.as_str(), s.text.as_str())).collect();
        assert_eq!(found, [("a.rs:1", "A file."), ("a.rs:3", "The one thing."), ("a.rs:8", "A field.")]);
        let text = "# Title\n\nOne sentence. Two\nsentences.\n- an item.\n- its sibling\n\n```sh\na command\n```\n| a | table |\n";
        let found: Vec<String> = of_document("a.md", text).into_iter().map(|s| s.text).collect();
        assert_eq!(found, ["One sentence.", "Two sentences.", "an item.", "its sibling"]);
    }

    #[test]
    fn a_seed_draws_the_same_again_and_another_others() {
        let all = || (0..500).map(|n| Sentence { place: String::new(), text: format!("sentence {n}") }).collect();
        let texts = |seed| drawn(all(), seed).into_iter().map(|s| s.text).collect::<Vec<_>>();
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
        assert_eq!(texts(1).len(), DRAWN);
    }
}
