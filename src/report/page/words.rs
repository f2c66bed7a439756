//! Words that several parts of pages have.

use templates::page::Verdict;

use super::super::lines::{COLUMNS, command};

/// A verdict as one line.
pub fn line(verdict: &Verdict) -> String {
    format!("{} {}", verdict.word, verdict.text).trim_end().to_owned()
}

/// A command in lines that can be pasted.
pub fn pasted(replay: &str) -> String {
    command(replay, COLUMNS, "", "  ").trim_end().to_owned()
}
