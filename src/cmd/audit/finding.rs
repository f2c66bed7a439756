//! Claims with their places.

use emu_tests::{Audited, Claim};
use serde::Serialize;
use tool::printed::printable;

/// A claim with its place.
#[derive(Serialize)]
pub struct Finding<'a> {
    /// What a baseline calls it: the claim, architecture, file, object, function and place, and nothing that another build changes.
    pub finding: String,
    pub given: &'a str,
    pub file: &'a str,
    pub object: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<&'a str>,
    #[serde(flatten)]
    pub claim: &'a Claim,
    pub accepted: bool,
}

/// A unit, and what came of it.
pub struct Done {
    pub name: String,
    pub given: String,
    pub audited: Audited,
}

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
        let Done { name: file, given, audited } = done;
        let last = |path: &'a str| path.rsplit('/').next().unwrap_or(path);
        let place = if file.is_empty() { last(object).to_owned() } else { format!("{}:{}", last(file), last(object)) };
        let of = function.map_or_else(String::new, |function| format!(" {function}"));
        let finding = format!("{} {} {place}{of} {}", claim.kind, audited.arch, claim.place);
        Finding { finding, given, file, object, function, claim, accepted: false }
    }

    /// The object, and the archive that it is in.
    pub fn place(&self) -> String {
        if self.file.is_empty() { printable(self.object) } else { printable(&format!("{}:{}", self.file, self.object)) }
    }
}
