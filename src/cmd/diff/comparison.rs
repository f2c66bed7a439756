//! What a comparison found, as data.

use std::collections::BTreeMap;

use codegen::words::error::Result;
use emu_tests::{Difference, End, Observed, Severity, differences, roles_of};
use schemars::JsonSchema;
use serde::Serialize;
use tool::accepted::Entry;
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
    /// How much was left out by --only and --ignore, by ids.
    pub left_out: usize,
    /// How much the baseline accepts, by ids.
    pub accepted: usize,
    /// What the baseline accepts, and is gone.
    pub gone: Vec<Entry>,
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
    /// Why they are not compared, if neither comes to an end when nothing is unusual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_compared: Option<String>,
    /// What the right one does differently; of two architectures, nothing.
    pub differences: Vec<Difference>,
    /// Of two architectures: what only one gives, in which role.
    pub roles: Vec<Role>,
    /// Of two architectures: what nobody said of a side, and was assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
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
            let word = call.frame.get(place).filter(|word| !word.is_older());
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
        let (left, right) = (codes.0.observed()?, codes.1.observed()?);
        let [l, r] = [left.arch, right.arch].map(tool::backend);
        let (l, r) = (l?, r?);
        let (mut all, mut roles) = (Vec::new(), Vec::new());
        if left.arch == right.arch {
            all = differences(&left, &right, &l.facts().abi);
        } else {
            let theirs = roles_of(&right, &r.facts().abi, &codes.1.convention(r)?.site);
            let ours = roles_of(&left, &l.facts().abi, &codes.0.convention(l)?.site);
            for ((role, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
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
        let assumed = [codes.0, codes.1].into_iter().filter(|_| !one_arch).filter_map(Code::assumed).collect();
        let not_compared = not_compared(&left, &right);
        Ok(Pair { name: name.to_owned(), left, right, not_compared, differences: all, roles, assumed, code })
    }

    /// Both come to an end when nothing is unusual, or one of them does: then that is a difference.
    pub fn is_compared(&self) -> bool {
        self.not_compared.is_none()
    }

    /// What ids and baselines call it.
    pub fn trampoline(&self) -> &str {
        if self.name.is_empty() { &self.right.symbol } else { &self.name }
    }

    /// In behaviour; or if that is `exact`, in anything.
    pub fn differs(&self, exact: bool) -> bool {
        !self.roles.is_empty() || self.differences.iter().any(|d| exact || d.severity.is_behaviour())
    }

    /// The differences by whom they concern: what runs otherwise before what only costs or lies elsewhere, and what is better
    /// apart.
    pub fn groups(&self) -> impl Iterator<Item = (Severity, bool, Vec<&Difference>)> {
        let kinds = [(true, false), (true, true), (false, false), (false, true)];
        let all = kinds.into_iter().flat_map(|(behaviour, better)| {
            let these = Severity::ALL.into_iter().filter(move |severity| severity.is_behaviour() == behaviour);
            these.map(move |severity| (severity, better))
        });
        all.filter_map(|(severity, better)| {
            let these = self.differences.iter().filter(|d| (d.severity, d.better) == (severity, better));
            let these: Vec<&Difference> = these.collect();
            (!these.is_empty()).then_some((severity, better, these))
        })
    }

    /// Something that it does is not as good as before, or of another architecture.
    pub fn is_worse(&self) -> bool {
        !self.roles.is_empty() || self.differences.iter().any(|d| !d.better && d.severity.is_behaviour())
    }

    /// One line: the same in behaviour or not, and how often it was run.
    pub fn verdict(&self) -> String {
        format!("{}, in {} and {} runs", self.brief(), self.left.runs, self.right.runs)
    }

    /// The same in behaviour or not.
    pub fn brief(&self) -> String {
        if let Some(why) = &self.not_compared {
            return format!("not compared: {why}");
        }
        let count = |better: bool| {
            let these = self.differences.iter().filter(|d| d.severity.is_behaviour() && d.better == better);
            these.count()
        };
        if self.left.arch != self.right.arch {
            let roles = match self.roles.len() {
                1 => "1 role differs".to_owned(),
                n => format!("{n} roles differ"),
            };
            return format!("{} against {}: {roles}", self.left.arch, self.right.arch);
        }
        let better = match count(true) {
            0 => String::new(),
            n => format!(", {n} for the better"),
        };
        match count(false) + count(true) {
            0 if self.differences.is_empty() => "the same".to_owned(),
            0 => "the same in behaviour".to_owned(),
            1 => format!("1 difference of behaviour{better}"),
            n => format!("{n} differences of behaviour{better}"),
        }
    }
}

/// Why two are not compared: what ran into an end that is none of theirs tells nothing of what they do.
fn not_compared(left: &Observed, right: &Observed) -> Option<String> {
    let end = |o: &Observed| match o.path.first().map(|way| &way.leave.end) {
        Some(End::Never { never }) => Some(never.clone()),
        _ => None,
    };
    match (end(left)?, end(right)?) {
        (l, r) if l == r => Some(format!("on both sides, {l}")),
        (l, r) => Some(format!("on the left, {l}; on the right, {r}")),
    }
}

/// In which cases it shows: the first, and how many more.
pub fn case(d: &Difference) -> String {
    match d.when.as_slice() {
        [] => String::new(),
        [only] if only.is_plain() => String::new(),
        [only] => format!("if {only}"),
        [first, rest @ ..] => {
            let first = if first.is_plain() { "always".to_owned() } else { format!("if {first}") };
            format!("{first}, and in {} more case{}", rest.len(), if rest.len() == 1 { "" } else { "s" })
        }
    }
}

/// The instruction on each side, if there is one: a sign, its offset, its text.
pub fn instructions_of(d: &Difference, observed: [&Observed; 2]) -> Vec<String> {
    let sides = [('-', d.left, observed[0]), ('+', d.right, observed[1])];
    let line = |(sign, at, observed): (char, Option<u64>, &Observed)| {
        let line = observed.lines.iter().find(|line| Some(line.at) == at)?;
        Some(format!("{sign} {:4x}  {}", line.at, line.text))
    };
    sides.into_iter().filter_map(line).collect()
}
