//! Verdicts: arch x trampoline x clause, with what led to them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A property of `bug-corpus.md`, section 6, as far as it is checked here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "each variant's meaning is in `about`")]
pub enum Clause {
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    P7,
    P8,
    P9,
    P10,
    P11,
    P12,
    P13,
    P14,
    P15,
    P16,
    P17,
    P18,
    P19,
    #[serde(rename = "coverage")]
    Coverage,
}

impl std::fmt::Display for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Clause {
    /// All of them.
    pub const ALL: [Clause; 20] = [
        Clause::P1,
        Clause::P2,
        Clause::P3,
        Clause::P4,
        Clause::P5,
        Clause::P6,
        Clause::P7,
        Clause::P8,
        Clause::P9,
        Clause::P10,
        Clause::P11,
        Clause::P12,
        Clause::P13,
        Clause::P14,
        Clause::P15,
        Clause::P16,
        Clause::P17,
        Clause::P18,
        Clause::P19,
        Clause::Coverage,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Clause::P1 => "P1",
            Clause::P2 => "P2",
            Clause::P3 => "P3",
            Clause::P4 => "P4",
            Clause::P5 => "P5",
            Clause::P6 => "P6",
            Clause::P7 => "P7",
            Clause::P8 => "P8",
            Clause::P9 => "P9",
            Clause::P10 => "P10",
            Clause::P11 => "P11",
            Clause::P12 => "P12",
            Clause::P13 => "P13",
            Clause::P14 => "P14",
            Clause::P15 => "P15",
            Clause::P16 => "P16",
            Clause::P17 => "P17",
            Clause::P18 => "P18",
            Clause::P19 => "P19",
            Clause::Coverage => "coverage",
        }
    }

    /// What it demands.
    pub fn about(self) -> &'static str {
        match self {
            Clause::P1 => "argument registers when the traced function goes on",
            Clause::P2 => "vector registers when the traced function goes on",
            Clause::P3 => "result registers when the parent goes on",
            Clause::P4 => "scratch registers, where the contract keeps every register",
            Clause::P5 => "callee-saved and platform registers on every way out",
            Clause::P6 => "flags where promised, control words always",
            Clause::P7 => "stack pointer, and memory outside the frame",
            Clause::P8 => "stack alignment at each call",
            Clause::P9 => "return address and next hop on every way out",
            Clause::P10 => "what the callback is given",
            Clause::P11 => "what the callback decided takes effect",
            Clause::P12 => "unwind table at every instruction, frame records in callbacks",
            Clause::P13 => "landing pads fit the branches that reach them",
            Clause::P14 => "calls and returns are paired",
            Clause::P15 => "traps where only speculation goes",
            Clause::P16 => "the same with the trampoline far from the site",
            Clause::P17 => "the bytes that patching changes",
            Clause::P18 => "CPUs in a site while it is patched",
            Clause::P19 => "as many bytes as the symbol says, at every address",
            Clause::Coverage => "every instruction was executed",
        }
    }
}

/// The outcome of one clause for one trampoline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It held every time it was checked.
    Pass,
    /// It failed.
    Fail,
    /// It does not hold, as the contract says with a reason.
    Deviates,
    /// It was not checked, for the reason given. Never counted as a pass.
    Skip,
}

/// One failed check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The clause.
    pub clause: Clause,
    /// The register, slot or place.
    pub place: String,
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
    /// How many single comparisons led to it.
    pub checks: u64,
    /// The first failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Of coverage: offsets of the instructions that were never executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<u64>,
}

/// Counts of verdicts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the verdicts' names")]
pub struct Summary {
    pub pass: usize,
    pub fail: usize,
    pub deviates: usize,
    pub skip: usize,
}

/// What became of a register between site and resumption, over all runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RegisterFate {
    /// It had its value again.
    pub kept: u64,
    /// It had another one.
    pub changed: u64,
    /// The contract promises it.
    pub promised: bool,
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
}

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
    /// What the judged objects leave undefined: functions that return at once stood in for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stubs: Vec<String>,
    /// One row per arch, trampoline, options and clause.
    pub results: Vec<Row>,
    /// Register by register, over all options.
    pub registers: Vec<Survival>,
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
            results: Vec::new(),
            registers: Vec::new(),
            stubs: Vec::new(),
        }
    }

    /// Recount `summary`.
    pub fn recount(&mut self) {
        let count = |v| self.results.iter().filter(|r| r.verdict == v).count();
        self.summary = Summary {
            pass: count(Verdict::Pass),
            fail: count(Verdict::Fail),
            deviates: count(Verdict::Deviates),
            skip: count(Verdict::Skip),
        };
    }
}
