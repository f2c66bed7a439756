//! The command that runs one case again.

use std::fmt;

use codegen::words::shell::shell;

use crate::engine::emulator::Emulator;
use crate::run::case::{Distance, Handler};
use crate::run::raw::Dump;
use crate::run::situation::Situation;

/// The arguments that choose a suite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// The profile.
    pub profile: &'static str,
    /// The origin of the trampolines.
    pub source: Source,
}

/// The origin of trampolines.
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
        /// The contract: its name, or a file.
        contract: String,
        /// With every alternative in its place.
        alternatives: bool,
    },
    /// A trampoline in a dump of memory.
    Dump {
        /// The dump.
        paths: Vec<String>,
        /// The addresses that it covers.
        dump: Dump,
        /// The architecture.
        arch: &'static str,
        /// The contract.
        contract: String,
    },
    /// A trampoline in a kernel's memory.
    Kernel {
        /// The arguments that name memory, symbols and types.
        words: Vec<String>,
        /// The contract's name: that of the trampoline.
        contract: String,
    },
}

impl Chosen {
    /// The arguments one by one, as a program gets them.
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
            Source::Objects { paths, contract, alternatives } => {
                let replaced = alternatives.then(|| "--alternatives".to_owned());
                files("--object", paths).into_iter().chain(given("--contract", contract)).chain(replaced).collect()
            }
            Source::Dump { paths, dump, arch, contract } => {
                let base = given("--base", &format!("{:#x}", dump.base));
                let entry = |(name, at): &(String, u64)| match name.as_str() {
                    "" => given("--entry", &format!("{at:#x}")),
                    name => given("--entry", &format!("{name}={at:#x}")),
                };
                let place = [base].into_iter().chain(dump.entries.iter().map(entry));
                let end = dump.end.map(|end| given("--end", &format!("{end:#x}")));
                let what = [given("--arch", arch), given("--contract", contract)];
                files("--raw", paths).into_iter().chain(place.chain(end).chain(what).flatten()).collect()
            }
            Source::Kernel { words, .. } => return words.clone(),
        };
        given("--profile", self.profile).into_iter().chain(source).collect()
    }

    /// Are the alternatives of the objects in their places?
    pub fn alternatives(&self) -> bool {
        matches!(self.source, Source::Objects { alternatives: true, .. })
    }

    /// The contract of what others wrote.
    pub fn contract(&self) -> Option<&str> {
        match &self.source {
            Source::Generated { .. } => None,
            Source::Objects { contract, .. } | Source::Dump { contract, .. } | Source::Kernel { contract, .. } => {
                Some(contract)
            }
        }
    }
}

/// A case. Displayed it is the command that runs this case alone, ready for a shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The arguments that choose the suite.
    pub chosen: Chosen,
    /// The trampoline that is judged.
    pub trampoline: String,
    /// The one at the site.
    pub attached: String,
    /// The variant of the fixture.
    pub fixture: String,
    /// The traced function.
    pub function: String,
    /// The situation.
    pub situation: Situation,
    /// The registers that handlers overwrite.
    pub handler: Handler,
    /// SP modulo 16 at the function's entry.
    pub entry_sp: u64,
    /// The distance of the trampolines.
    pub distance: Distance,
    /// Is it looked at before every instruction?
    pub closely: bool,
    /// The seed of all random values.
    pub seed: u64,
    /// What runs it.
    pub engine: Emulator,
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
        let engine = self.engine.words().iter().map(|word| (*word).to_owned());
        first.into_iter().chain(self.chosen.words()).chain(engine).chain(case).collect()
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tramptool {}", shell(&self.words()))
    }
}
