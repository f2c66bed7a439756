// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a public fix of a writer is, and the source without it. No text of the kernel is here: lines are told by names that are in them.

use serde::Deserialize;

/// A fix.
#[derive(Deserialize)]
pub struct Fix {
    /// What its commit is called.
    pub subject: String,
    pub year: u32,
    pub machine: String,
    pub version: String,
    /// The source, from the root of the tree.
    pub file: String,
    pub edits: Vec<Edit>,
    /// Why nobody can notice.
    pub unnoticed: Option<String>,
}

/// A change of a line, or of some that follow one another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The function.
    within: String,
    /// What is in the line.
    line: Vec<String>,
    /// Which of several such lines, from 0; without it there must be one.
    nth: Option<usize>,
    /// So many lines.
    #[serde(default = "one")]
    lines: usize,
    change: Change,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Change {
    Drop,
    /// One word by another, once.
    Replace([String; 2]),
    /// Put it behind the next line in which this is.
    MoveBehind(Vec<String>),
}

/// A text with the changes.
pub fn edited(text: &str, edits: &[Edit]) -> Result<String, String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for edit in edits {
        edit.apply(&mut lines)?;
    }
    Ok(lines.join("\n") + "\n")
}

impl Edit {
    fn apply(&self, lines: &mut Vec<String>) -> Result<(), String> {
        let has = |line: &String, all: &[String]| all.iter().all(|word| line.contains(word.as_str()));
        let call = format!("{}(", self.within);
        let begins =
            |line: &String| line.contains(&call) && !line.starts_with(char::is_whitespace) && !line.ends_with(';');
        let from = lines.iter().position(begins).ok_or_else(|| format!("no function {}", self.within))?;
        let until = lines.iter().skip(from).position(|line| line == "}").map_or(lines.len(), |n| from + n);
        let found: Vec<usize> = (from..until).filter(|n| has(&lines[*n], &self.line)).collect();
        let at = match (self.nth, &found[..]) {
            (None, [one]) => *one,
            (Some(nth), all) if nth < all.len() => all[nth],
            _ => return Err(format!("{} lines of {} have {:?}", found.len(), self.within, self.line)),
        };
        match &self.change {
            Change::Replace([from, _]) if !lines[at].contains(from) => Err(format!("no {from} in line {}", at + 1)),
            Change::Replace([from, to]) => {
                lines[at] = lines[at].replacen(from, to, 1);
                Ok(())
            }
            Change::Drop => {
                lines.drain(at..at + self.lines);
                Ok(())
            }
            Change::MoveBehind(target) => {
                let behind = (at + self.lines..until).find(|n| has(&lines[*n], target));
                let behind = behind.ok_or_else(|| format!("no later line of {} has {target:?}", self.within))?;
                lines[at..=behind].rotate_left(self.lines);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "static int f(int a)\n{\n\tone(a);\n\ttwo(a, B);\n\tthree(a);\n\ttwo(a, C);\n}\n\nint g(void)\n{\n\tone(0);\n}\n";

    fn edit(change: Change, line: &[&str]) -> Edit {
        let line = line.iter().map(|word| (*word).to_owned()).collect();
        Edit { within: "f".to_owned(), line, nth: None, lines: 1, change }
    }

    #[test]
    fn lines_are_found_by_names_within_a_function_and_changed() {
        let edits = [
            edit(Change::Drop, &["one"]),
            edit(Change::Replace(["B".to_owned(), "D".to_owned()]), &["two", "B"]),
            edit(Change::MoveBehind(vec!["two".to_owned(), "C".to_owned()]), &["three"]),
        ];
        let wanted = TEXT
            .replace("\tone(a);\n", "")
            .replace('B', "D")
            .replace("\tthree(a);\n\ttwo(a, C);\n", "\ttwo(a, C);\n\tthree(a);\n");
        assert_eq!(edited(TEXT, &edits).unwrap(), wanted);
    }

    #[test]
    fn what_is_there_twice_or_not_at_all_is_refused() {
        let refused = |edit| edited(TEXT, &[edit]).unwrap_err();
        assert_eq!(refused(edit(Change::Drop, &["two"])), "2 lines of f have [\"two\"]");
        assert_eq!(refused(edit(Change::Drop, &["four"])), "0 lines of f have [\"four\"]");
        assert_eq!(refused(Edit { within: "h".to_owned(), ..edit(Change::Drop, &["one"]) }), "no function h");
        let nowhere = Change::MoveBehind(vec!["one".to_owned()]);
        assert_eq!(refused(edit(nowhere, &["three"])), "no later line of f has [\"one\"]");
    }
}
