//! What a comparison found, as data.

use std::collections::BTreeMap;

use codegen::error::Result;
use emu_tests::{Difference, Observed, differences, roles_of};
use schemars::JsonSchema;
use serde::Serialize;
use tool::aligned::{self, Insn, Stores};
use tool::review::Verdicts;

use super::sides::Code;

/// What a report for programs has.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "tramptool diff")]
pub struct Comparison {
    /// The format's version.
    pub version: u32,
    /// The left side, as it was given.
    pub left: String,
    /// The right side.
    pub right: String,
    /// Some pair differs in behaviour, or loses what the contract promises.
    pub differs: bool,
    /// What a contract says of both sides, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_contract: Option<Verdicts>,
    /// What both have.
    pub pairs: Vec<Pair>,
    /// What only the left side has.
    pub only_left: Vec<String>,
    /// What only the right side has.
    pub only_right: Vec<String>,
}

/// Two trampolines.
#[derive(Serialize, JsonSchema)]
pub struct Pair {
    /// What they are called, if there are several pairs.
    pub name: String,
    /// What the left one does.
    pub left: Observed,
    /// What the right one does.
    pub right: Observed,
    /// What the right one does differently; of two architectures, nothing.
    pub differences: Vec<Difference>,
    /// Of two architectures: what only one gives, in which role.
    pub roles: Vec<Role>,
    /// Of one architecture: the instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Instructions>,
}

/// The instructions of both, aligned by what they do.
#[derive(Serialize, JsonSchema)]
pub struct Instructions {
    /// The left one's.
    pub left: Vec<Insn>,
    /// The right one's.
    pub right: Vec<Insn>,
    /// Side by side.
    pub rows: Vec<aligned::Pair>,
    /// Symbols that only the left one has.
    pub only_left: Vec<String>,
    /// Symbols that only the right one has.
    pub only_right: Vec<String>,
}

impl Instructions {
    fn of(left: (&Code, &Observed), right: (&Code, &Observed)) -> Result<Instructions> {
        let of = |(code, observed): (&Code, &Observed)| code.instructions(&observed.symbol, &stores(observed));
        let (mut l, mut r) = (of(left)?, of(right)?);
        // What a function is called is no difference of its code.
        l.1.remove(&left.1.symbol);
        r.1.remove(&right.1.symbol);
        let ((left, l), (right, r)) = (l, r);
        let only = |these: &BTreeMap<String, usize>, those: &BTreeMap<String, usize>| -> Vec<String> {
            these.keys().filter(|name| !those.contains_key(*name)).cloned().collect()
        };
        Ok(Instructions {
            rows: aligned::aligned(&left, &right),
            only_left: only(&l, &r),
            only_right: only(&r, &l),
            left,
            right,
        })
    }

    /// Those that differ, each in a line.
    pub fn changed(&self) -> Vec<String> {
        aligned::changed(&self.left, &self.right, &self.rows)
    }
}

/// What each instruction stores in frames, as it was seen. Nobody sees what a register holds that is nobody's.
fn stores(observed: &Observed) -> Stores {
    let mut all = Stores::new();
    for call in observed.path.iter().flat_map(|way| &way.call) {
        for (place, at) in &call.slots {
            let word = call.frame.get(place).filter(|word| !word.starts_with("older"));
            all.entry(*at).or_default().extend(word.map(|word| format!("{word} at {place}")));
        }
    }
    all.retain(|_, words| !words.is_empty());
    all
}

/// What two architectures do in one role.
#[derive(Serialize, JsonSchema)]
pub struct Role {
    /// The role.
    pub role: String,
    /// What only the left one does.
    pub left: Vec<String>,
    /// What only the right one does.
    pub right: Vec<String>,
}

impl Pair {
    /// Run both.
    ///
    /// # Errors
    /// One of them cannot be run.
    pub fn of(name: &str, codes: (&Code, &Code)) -> Result<Pair> {
        let (left, right) = (codes.0.observed(Some(codes.1))?, codes.1.observed(Some(codes.0))?);
        let [l, r] = [left.arch, right.arch].map(tool::backend);
        let (l, r) = (l?, r?);
        let (mut all, mut roles) = (Vec::new(), Vec::new());
        if left.arch == right.arch {
            all = differences(&left, &right, &l.facts().abi);
        } else {
            let site = |backend| tool::convention(backend).map(|convention| &convention.site);
            let theirs = roles_of(&right, &r.facts().abi, site(r)?);
            for ((role, ours), (_, theirs)) in roles_of(&left, &l.facts().abi, site(l)?).into_iter().zip(theirs) {
                let only = |these: &[String], those: &[String]| -> Vec<String> {
                    these.iter().filter(|line| !those.contains(line)).cloned().collect()
                };
                let (left, right) = (only(&ours, &theirs), only(&theirs, &ours));
                if !left.is_empty() || !right.is_empty() {
                    roles.push(Role { role: role.to_owned(), left, right });
                }
            }
        }
        let one_arch = left.arch == right.arch;
        let code = one_arch.then(|| Instructions::of((codes.0, &left), (codes.1, &right))).transpose()?;
        Ok(Pair { name: name.to_owned(), left, right, differences: all, roles, code })
    }

    /// In behaviour; or if that is `exact`, in anything.
    pub fn differs(&self, exact: bool) -> bool {
        !self.roles.is_empty() || self.differences.iter().any(|d| exact || d.severity.is_behaviour())
    }

    /// One line: the same in behaviour or not, and how often it was run.
    pub fn verdict(&self) -> String {
        let count = |better: bool| {
            let these = self.differences.iter().filter(|d| d.severity.is_behaviour() && d.better == better);
            these.count()
        };
        let runs = format!("{} and {} runs", self.left.runs, self.right.runs);
        if self.left.arch != self.right.arch {
            let roles = self.roles.len();
            return format!("{} against {}: {roles} roles differ, in {runs}", self.left.arch, self.right.arch);
        }
        let better = match count(true) {
            0 => String::new(),
            n => format!(", {n} for the better"),
        };
        match count(false) + count(true) {
            0 if self.differences.is_empty() => format!("the same, in {runs}"),
            0 => format!("the same in behaviour, in {runs}"),
            1 => format!("1 difference of behaviour{better}, in {runs}"),
            n => format!("{n} differences of behaviour{better}, in {runs}"),
        }
    }
}
