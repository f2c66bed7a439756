//! Claims with their places.

use std::collections::HashMap;

use emu_tests::{Audited, Claim, ClaimKind, Confidence};
use schemars::JsonSchema;
use serde::Serialize;
use tool::printed::printable;

use super::lines::Line;

/// A claim with its place.
#[derive(Serialize, JsonSchema)]
pub struct Finding<'a> {
    /// What a baseline calls it: the claim, architecture, file, object, function and place, and nothing that another build changes.
    pub finding: String,
    pub given: &'a str,
    /// All files that were given.
    #[serde(skip)]
    pub all: &'a str,
    pub file: &'a str,
    pub object: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<&'a str>,
    /// The line of the source, where the object tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<&'a Line>,
    #[serde(flatten)]
    pub claim: &'a Claim,
    /// How many claims of its kind were true when their code was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    pub accepted: bool,
}

/// A unit, and what came of it.
pub struct Done {
    pub name: String,
    pub given: String,
    /// All files that were given.
    pub all: String,
    pub audited: Audited,
    /// Lines of sources, by object, function and offset.
    pub lines: HashMap<Spot, Line>,
}

/// An object, a function in it, and bytes into that.
pub type Spot = (String, String, u64);

impl Done {
    /// Its findings.
    pub fn findings(&self) -> impl Iterator<Item = Finding<'_>> {
        let of_functions = self.audited.functions.iter();
        let of_functions = of_functions
            .flat_map(|f| f.claims.iter().map(|claim| Finding::of(self, (&f.member, Some(&f.symbol)), claim)));
        let marks = self.audited.marks.iter();
        of_functions.chain(marks.map(|marked| Finding::of(self, (&marked.member, None), &marked.claim)))
    }
}

impl<'a> Finding<'a> {
    fn of(done: &'a Done, (object, function): (&'a str, Option<&'a str>), claim: &'a Claim) -> Finding<'a> {
        let Done { name: file, given, all, audited, lines } = done;
        let last = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
        // A library is its only object.
        let file = if file == object { "" } else { file };
        let place = if file.is_empty() { last(object).to_owned() } else { format!("{}:{}", last(file), last(object)) };
        let of = function.map_or_else(String::new, |function| format!(" {function}"));
        let finding = format!("{} {} {place}{of} {}", claim.kind, audited.arch, claim.place);
        let spot = function.map(|function| (object.to_owned(), function.to_owned(), claim.offset.unwrap_or(0)));
        let (line, confidence) = (spot.and_then(|spot| lines.get(&spot)), claim.kind.confidence());
        Finding { finding, given, all, file, object, function, line, claim, confidence, accepted: false }
    }

    /// The function or the object that it is about.
    pub fn about(&self) -> String {
        self.function.map_or_else(|| self.place(), printable)
    }

    /// The function and the offset of the instruction, or the object.
    pub fn spot(&self) -> String {
        let offset = self.claim.offset.map_or_else(String::new, |offset| format!("+{offset:#x}"));
        format!("{}{offset}", self.about())
    }

    /// The command that shows it again.
    pub fn again(&self) -> String {
        // What is claimed beside others is seen beside them alone.
        let alone = self.function.zip(self.claim.seed).filter(|_| self.claim.kind != ClaimKind::C13);
        let mut command = match alone {
            Some((function, seed)) => {
                format!("tramptool audit {} --function {} --seed {seed}", printable(self.given), printable(function))
            }
            None => format!("tramptool audit {}", printable(self.all)),
        };
        if self.claim.kind == ClaimKind::C11 {
            command += " --enforce";
        }
        command
    }

    /// The object, and the archive that it is in.
    pub fn place(&self) -> String {
        if self.file.is_empty() { printable(self.object) } else { printable(&format!("{}:{}", self.file, self.object)) }
    }
}
