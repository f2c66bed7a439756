//! The command that runs one case again.

use std::fmt;

use crate::case::{Distance, Handler};
use crate::situation::Situation;

/// The arguments that choose a suite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// The profile.
    pub profile: &'static str,
    /// Where the trampolines come from.
    pub source: Source,
}

/// Where trampolines come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Generated trampolines.
    Generated {
        /// The architecture.
        arch: &'static str,
        /// `name=value` of each option that is given, and of each number that the profile has otherwise.
        settings: Vec<String>,
    },
    /// Trampolines in objects.
    Objects {
        /// The objects.
        paths: Vec<String>,
        /// What they promise: the name of a contract, or a file.
        contract: String,
    },
    /// A trampoline in a dump of memory.
    Dump {
        /// The dump.
        paths: Vec<String>,
        /// The address of its first byte.
        base: u64,
        /// Where the trampoline begins.
        entry: u64,
        /// The architecture.
        arch: &'static str,
        /// What it promises.
        contract: String,
    },
}

impl Chosen {
    /// One by one, as a program gets them.
    pub fn words(&self) -> Vec<String> {
        let given = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
        let files = |option: &str, paths: &[String]| -> Vec<String> {
            std::iter::once(option).chain(paths.iter().map(String::as_str)).map(str::to_owned).collect()
        };
        let source: Vec<String> = match &self.source {
            Source::Generated { arch, settings } => {
                let settings = settings.iter().flat_map(|s| given("--set", s));
                given("--arch", arch).into_iter().chain(settings).collect()
            }
            Source::Objects { paths, contract } => {
                files("--object", paths).into_iter().chain(given("--contract", contract)).collect()
            }
            Source::Dump { paths, base, entry, arch, contract } => {
                let place = [given("--base", &format!("{base:#x}")), given("--entry", &format!("{entry:#x}"))];
                let what = [given("--arch", arch), given("--contract", contract)];
                files("--raw", paths).into_iter().chain(place.into_iter().chain(what).flatten()).collect()
            }
        };
        given("--profile", self.profile).into_iter().chain(source).collect()
    }

    /// The contract of what others wrote.
    pub fn contract(&self) -> Option<&str> {
        match &self.source {
            Source::Generated { .. } => None,
            Source::Objects { contract, .. } | Source::Dump { contract, .. } => Some(contract),
        }
    }
}

/// One case. It is written as the command that runs this one and no other, ready for a shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// What chooses the suite.
    pub chosen: Chosen,
    /// The trampoline that is judged.
    pub trampoline: String,
    /// The one at the site.
    pub attached: String,
    /// How the functions were compiled.
    pub fixture: String,
    /// The traced function.
    pub function: String,
    /// What happens in it.
    pub situation: Situation,
    /// What handlers overwrite.
    pub handler: Handler,
    /// What SP is at the function's entry, besides a multiple of 16.
    pub entry_sp: u64,
    /// Where the trampolines are.
    pub distance: Distance,
    /// Is it looked at before every instruction?
    pub closely: bool,
    /// The seed of all random values.
    pub seed: u64,
}

impl Replay {
    /// The arguments of `tramptool`, one by one.
    pub fn words(&self) -> Vec<String> {
        let case = [
            ("--attached", self.attached.clone()),
            ("--fixture", self.fixture.clone()),
            ("--function", self.function.clone()),
            ("--situation", self.situation.to_string()),
            ("--handler", self.handler.to_string()),
            ("--entry-sp", self.entry_sp.to_string()),
            ("--distance", self.distance.to_string()),
            ("--closely", if self.closely { "yes" } else { "no" }.to_owned()),
            ("--seed", self.seed.to_string()),
        ];
        let case = case.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let first = ["check".to_owned(), self.trampoline.clone()];
        first.into_iter().chain(self.chosen.words()).chain(case).collect()
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tramptool {}", shell(&self.words()))
    }
}

/// Words as a shell reads them: quoted where it would see more in one than its characters.
pub fn shell(words: &[impl AsRef<str>]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    let quotes = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let quoted = |word: &str| match word {
        _ if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        // What a terminal would obey is not for printing.
        _ if word.chars().any(char::is_control) => format!("\"$(printf %b {})\"", quotes(&octal(word))),
        _ => quotes(word),
    };
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Control characters as `printf %b` has them.
fn octal(word: &str) -> String {
    let each = |c: char| match c {
        '\\' => r"\\".to_owned(),
        c if c.is_control() => c.encode_utf8(&mut [0; 4]).bytes().map(|b| format!("\\0{b:o}")).collect(),
        c => c.to_string(),
    };
    word.chars().map(each).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The shell itself says what it reads.
    #[test]
    fn a_shell_reads_the_words_back() {
        let words = [
            "plain",
            "endbr=on",
            "",
            "a b",
            "it's",
            "*",
            "$HOME",
            "a\\b",
            "~",
            "x\ty",
            "é",
            "\x1b[31m it's \\n 7\u{85}7",
            "a;b",
            "#c",
            "\"q\"",
        ];
        let script = format!("printf '%s\\0' {}", shell(&words));
        let out = Command::new("sh").arg("-c").arg(&script).output().unwrap();
        let read = String::from_utf8(out.stdout).unwrap();
        assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words);
        assert!(!script.contains(char::is_control), "{script}");
        // What needs no quotes has none.
        assert_eq!(shell(&["check", "--set", "endbr=on", "copy-4096"]), "check --set endbr=on copy-4096");
    }
}
