//! How `diff` compares and writes, with the emulator or without.

use std::path::Path;

#[cfg(feature = "judge")]
use crate::cmd::shared::sandbox::SandboxArg;

/// How a comparison is made and written.
#[cfg_attr(not(feature = "judge"), expect(dead_code, reason = "nothing compares by it without the emulator"))]
pub struct How<'a> {
    /// The architecture of files that do not say it.
    pub arch: Option<&'a str>,
    /// The profile of sides that do not name one, if one is stated.
    pub profile: Option<&'a str>,
    /// Cost and layout count too.
    pub exact: bool,
    /// One line a trampoline.
    pub brief: bool,
    /// In which form.
    pub format: Form,
    /// The contract by which both sides are judged too.
    pub contract: Option<&'a str>,
    /// Ids of what is compared; all, if there are none.
    pub only: &'a [String],
    /// Ids of what is left out.
    pub ignore: &'a [String],
    /// The file of what is accepted.
    pub baseline: Option<&'a Path>,
    /// Ids are printed.
    pub ids: bool,
    /// Whether there are walls around the process while code runs.
    #[cfg(feature = "judge")]
    pub sandbox: &'a SandboxArg,
}

/// In which form a comparison is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For reading.
    Human,
    /// For a mail or a pull request.
    Markdown,
    /// For programs.
    Json,
    /// A page for a browser.
    Html,
    /// A file that accepts all of it.
    Baseline,
}

impl Form {
    /// Those of a text; with their names on the command line and what they are.
    #[cfg(feature = "judge")]
    pub const OF_A_TEXT: [(&'static str, &'static str, Form); 3] = [
        ("human", "For reading, in 75 columns", Form::Human),
        ("markdown", "For a mail or a pull request", Form::Markdown),
        ("json", "For programs; `tramptool report schema review` describes it", Form::Json),
    ];

    /// All of them, with their names on the command line and what they are.
    pub const ALL: [(&'static str, &'static str, Form); 5] = [
        ("human", "For reading", Form::Human),
        ("markdown", "For a mail or a pull request", Form::Markdown),
        ("json", "For programs; `tramptool report schema diff` describes it", Form::Json),
        ("html", "A page for a browser, in one file: the instructions side by side", Form::Html),
        (
            "baseline",
            "A file for --baseline that accepts what differs, once you have given the reasons",
            Form::Baseline,
        ),
    ];
}
