//! One thing that is different, and whom it concerns.

use schemars::JsonSchema;
use serde::Serialize;

/// Whom a difference concerns; the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The code that is traced, and its callers.
    BreaksTracedCode,
    /// Functions that are called.
    BreaksHandlers,
    /// Unwinders, profilers, debuggers.
    BreaksTools,
    /// Nobody: it takes longer, or more room.
    CostOnly,
    /// Nobody but who reads frames by number.
    LayoutOnly,
}

impl Severity {
    /// All, the worst first.
    pub const ALL: [Severity; 5] = [
        Severity::BreaksTracedCode,
        Severity::BreaksHandlers,
        Severity::BreaksTools,
        Severity::CostOnly,
        Severity::LayoutOnly,
    ];

    /// As reports have it.
    pub fn words(self) -> &'static str {
        match self {
            Severity::BreaksTracedCode => "breaks traced code",
            Severity::BreaksHandlers => "breaks handlers",
            Severity::BreaksTools => "breaks tools",
            Severity::CostOnly => "cost only",
            Severity::LayoutOnly => "layout only",
        }
    }

    /// Whom it concerns, where it is for the better.
    pub fn concerns(self) -> &'static str {
        match self {
            Severity::BreaksTracedCode => "better for traced code",
            Severity::BreaksHandlers => "better for handlers",
            Severity::BreaksTools => "better for tools",
            Severity::CostOnly => "costs less",
            Severity::LayoutOnly => "layout only",
        }
    }

    /// Is it a difference of behaviour?
    pub fn is_behaviour(self) -> bool {
        !matches!(self, Severity::CostOnly | Severity::LayoutOnly)
    }
}

/// One thing that is different.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Difference {
    /// Whom it concerns.
    pub severity: Severity,
    /// The right one does it better: what it keeps or promises is more.
    pub better: bool,
    /// The cases in which it shows.
    pub when: Vec<String>,
    /// What it is.
    pub text: String,
    /// The offset of the left one's instruction, where there is one.
    pub left: Option<u64>,
    /// The offset of the right one's instruction.
    pub right: Option<u64>,
}
