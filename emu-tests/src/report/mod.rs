//! Verdicts: arch x trampoline x clause, with what led to them.

pub mod place;
pub mod reason;
pub mod view;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::reason::Reason;
use crate::report::view::View;

/// The subject of a clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// The trampoline's code. Mutants of a trampoline are judged by these clauses alone.
    Trampoline,
    /// The site that goes to it.
    Site,
    /// The place of the trampoline's code, and its size.
    Place,
    /// The cases that were run.
    Cases,
}

/// One row per clause: its name in reports, what it is about, what it demands; and why nothing was there to check, where
/// the reason is always the same.
macro_rules! clauses {
    ($($clause:ident $name:literal, of: $of:ident, $about:literal $(, unchecked: $unchecked:ident)?;)*) => {
        /// A property of `bug-corpus.md`, section 6, as far as it is checked here.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
        #[allow(missing_docs, reason = "each variant's meaning is in `about`")]
        pub enum Clause {
            $(#[serde(rename = $name)] $clause,)*
        }

        impl Clause {
            /// All of them.
            pub const ALL: [Clause; [$($name),*].len()] = [$(Clause::$clause),*];

            /// The name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Clause::$clause => $name,)*
                }
            }

            /// The subject of the clause.
            pub fn of(self) -> Of {
                match self {
                    $(Clause::$clause => Of::$of,)*
                }
            }

            /// The demand of the clause.
            pub fn about(self) -> &'static str {
                match self {
                    $(Clause::$clause => $about,)*
                }
            }

            /// Why it was not checked, for trampolines of most kinds.
            pub(crate) fn unchecked(self) -> Reason {
                match self {
                    $(Clause::$clause => [$(Reason::$unchecked,)? Reason::NotInCases][0],)*
                }
            }
        }
    };
}

clauses! {
    P1 "P1", of: Trampoline, "argument registers when the traced function goes on";
    P2 "P2", of: Trampoline, "vector registers when the traced function goes on";
    Wide "P2-wide", of: Trampoline, "vector state that only some engines have";
    P3 "P3", of: Trampoline, "result registers when the parent goes on";
    P4 "P4", of: Trampoline, "scratch registers, where the contract keeps every register",
        unchecked: ScratchGoes;
    P5 "P5", of: Trampoline, "callee-saved and platform registers on every way out";
    P6 "P6", of: Trampoline, "flags where promised, control words always";
    P7 "P7", of: Trampoline, "stack pointer, and memory outside the frame";
    P8 "P8", of: Trampoline, "stack alignment at each call, and where memory is accessed by SP";
    P9 "P9", of: Trampoline, "return address and next hop on every way out";
    P10 "P10", of: Trampoline, "what the callback is given";
    P11 "P11", of: Trampoline, "what the callback decided takes effect";
    P12 "P12", of: Trampoline, "unwind table at every instruction, frame records in callbacks",
        unchecked: Undescribed;
    P13 "P13", of: Trampoline, "landing pads and types fit the branches that reach them",
        unchecked: NoPads;
    P14 "P14", of: Trampoline, "calls and returns are paired";
    P15 "P15", of: Trampoline, "traps where only speculation goes",
        unchecked: NoUnpairedReturn;
    P16 "P16", of: Place, "the same with the trampoline far from the site";
    P17 "P17", of: Site, "the bytes that patching changes";
    P18 "P18", of: Site, "CPUs in a site while it is patched";
    P19 "P19", of: Place, "as many bytes as the symbol says, at every address";
    P23 "P23", of: Trampoline, "an exception out of the function lands, is recorded, and goes on",
        unchecked: NoExceptions;
    P24 "P24", of: Trampoline, "what is in the thread's buffer, and what lies beside it",
        unchecked: RecordsNothing;
    P25 "P25", of: Trampoline, "a signal before each instruction, whose handler is traced too",
        unchecked: NotInterrupted;
    P26 "P26", of: Trampoline, "no protection stops it, but where its contract says so",
        unchecked: NotEnforced;
    P27 "P27", of: Trampoline, "marks of protection are true, and all that are true are there",
        unchecked: NoMarks;
    P28 "P28", of: Trampoline, "the return address is guarded in memory, where its contract says so",
        unchecked: NotGuarded;
    Coverage "coverage", of: Cases, "every instruction was executed";
}

impl std::fmt::Display for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The outcome of one clause for one trampoline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The clause held every time it was checked.
    Pass,
    /// The clause failed.
    Fail,
    /// The clause does not hold, which the contract expects for a reason.
    Deviates,
    /// It was not checked, for the reason given. Never counted as a pass.
    Skip,
    /// Runs that would decide it were left out, because another trampoline fails in them, or its trampoline is in none of the
    /// objects. A check with such a clause fails.
    Open,
}

/// One failed check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The clause.
    pub clause: Clause,
    /// The register, slot or place.
    pub place: String,
    /// Its name in contracts and expectations, which stays when `place` gets better words.
    #[serde(default)]
    pub place_id: String,
    /// What should have been there.
    pub expected: String,
    /// What was there.
    pub found: String,
    /// Where the check was made, as symbol+offset.
    pub at: String,
    /// The last instruction that wrote the register, as symbol+offset and text; empty if none did.
    pub last_writer: String,
    /// Lines of code around the last writer, or around the place of the check.
    pub context: Vec<String>,
    /// The command that runs exactly this case again.
    pub replay: String,
}

/// The outcome of one clause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The architecture.
    pub arch: String,
    /// The symbol.
    pub trampoline: String,
    /// `name=value` for every option.
    pub options: String,
    /// The clause.
    pub clause: Clause,
    /// The outcome.
    pub verdict: Verdict,
    /// Why, if it is not a plain pass.
    pub reason: String,
    /// The same for programs. Failures, and what users expect, have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_id: Option<Reason>,
    /// How many single comparisons led to it.
    pub checks: u64,
    /// The first failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// All places where it failed, by their ids, each with `@` and the instruction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
    /// Of coverage: offsets of the instructions that were never executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<u64>,
    /// Of coverage: instructions of other symbols that belong to the trampoline, as it jumps there: symbol+offset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
    /// Of these, those that were never executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed_elsewhere: Vec<String>,
}

/// Counts of verdicts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the verdicts' names")]
pub struct Summary {
    pub pass: usize,
    pub fail: usize,
    pub deviates: usize,
    pub skip: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub open: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// What became of a register between site and resumption, over all runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RegisterFate {
    /// It had its value again.
    pub kept: u64,
    /// It had another one.
    pub changed: u64,
    /// The contract promises it, under some options or all, on some way out or all.
    pub promised: bool,
    /// It had another one where the contract promises it.
    #[serde(default)]
    pub lost: u64,
}

/// The fates of one trampoline's registers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Survival {
    /// The architecture.
    pub arch: String,
    /// The symbol.
    pub trampoline: String,
    /// By register.
    pub registers: BTreeMap<String, RegisterFate>,
    /// The promised registers of each way out, under each set of options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<Promise>,
}

/// The registers that a trampoline promises on a way out, under some sets of options.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Promise {
    /// The way out, by its target: the traced function, the parent or a direct trampoline.
    pub way: String,
    /// The registers, with a space between two.
    pub registers: String,
    /// The sets of options for which it is exactly these.
    pub options: Vec<String>,
}

impl Survival {
    /// Note a promise, which may be known under other options. They are in the order of their words, whoever came first.
    pub fn promise(&mut self, new: Promise) {
        let key = |p: &Promise| (p.way.clone(), p.registers.clone());
        match self.promises.binary_search_by_key(&key(&new), key) {
            Ok(known) => self.promises[known].options.extend(new.options),
            Err(place) => self.promises.insert(place, new),
        }
    }
}

/// A property that is not decided here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Undecided {
    /// Its name.
    pub clause: String,
    /// Why.
    pub reason: String,
}

/// The properties of `bug-corpus.md`, section 6, that are not among [`Clause::ALL`], or not judged of all trampolines.
const UNDECIDED: [(&str, &str); 4] = [
    ("P20", "hidden side channels: a contract has no field for them"),
    ("P21", "lifetime of the code's memory: the program that owns it decides"),
    ("P22", "instruction cache: not modelled; writing trampolines is the tracer's job"),
    (
        "P23",
        "exceptions where there is no landing pad, longjmp, callees that pop arguments: docs/unwinding.md; recursion is run, \
         interrupts are P7",
    ),
];

/// Everything that a check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The format's version.
    pub version: u32,
    /// Counts over `results`.
    pub summary: Summary,
    /// The seed of all random values.
    pub seed: u64,
    /// The engine and its version.
    pub engine: String,
    /// Functions run: each one unpatched, enabled and disabled.
    pub scenarios: u64,
    /// The same, by architecture.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scenarios_by_arch: BTreeMap<String, u64>,
    /// What the judged objects leave undefined: functions that return at once stood in for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stubs: Vec<String>,
    /// Instructions of judged trampolines that the checker itself runs, by architecture and mnemonic: the engine lacks them, or has
    /// their results from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_place_of_engine: Vec<String>,
    /// Places in judged trampolines that have alternatives, which the kernel patches in when it boots. They were not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// The same of those that were put in their places first, and run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives_in_place: Vec<String>,
    /// What was understood, and should be written in another way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One row per arch, trampoline, options and clause.
    pub results: Vec<Row>,
    /// Register by register, over all options.
    pub registers: Vec<Survival>,
    /// Trampolines seen from inside, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// What was not asked.
    #[serde(default)]
    pub undecided: Vec<Undecided>,
}

impl Report {
    /// The version of the format: it changes when a field goes or gets another meaning, not when one is added.
    pub const VERSION: u32 = 1;

    /// A report of a run without cases.
    pub fn empty(seed: u64) -> Report {
        let (major, minor) = crate::engine_version();
        Report {
            version: Report::VERSION,
            summary: Summary::default(),
            seed,
            engine: format!("Unicorn {major}.{minor}"),
            scenarios: 0,
            scenarios_by_arch: BTreeMap::new(),
            results: Vec::new(),
            registers: Vec::new(),
            stubs: Vec::new(),
            in_place_of_engine: Vec::new(),
            alternatives: Vec::new(),
            alternatives_in_place: Vec::new(),
            warnings: Vec::new(),
            views: Vec::new(),
            undecided: UNDECIDED
                .map(|(clause, reason)| Undecided { clause: clause.to_owned(), reason: reason.to_owned() })
                .into(),
        }
    }

    /// Recount `summary`.
    pub fn recount(&mut self) {
        self.summary = self.counted();
    }

    /// Is `summary` what `results` hold?
    pub fn adds_up(&self) -> bool {
        self.summary == self.counted()
    }

    fn counted(&self) -> Summary {
        let count = |v| self.results.iter().filter(|r| r.verdict == v).count();
        Summary {
            pass: count(Verdict::Pass),
            fail: count(Verdict::Fail),
            deviates: count(Verdict::Deviates),
            skip: count(Verdict::Skip),
            open: count(Verdict::Open),
        }
    }
}
