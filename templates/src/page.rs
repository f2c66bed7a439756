//! Pages for a browser, each one self-contained file. The caller supplies all texts.

use askama::Template;
use codegen::words::error::{Error, Result};

/// The page around its parts.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'p> {
    title: &'p str,
    links: &'p [Link],
    bodies: &'p [String],
    style: &'static str,
    script: &'static str,
}

/// A link to a part of the page, or to another page.
pub struct Link {
    /// The address, relative to the page.
    pub href: String,
    /// Its name.
    pub text: String,
}

/// A page with these parts.
///
/// # Errors
/// The template engine's; there is no input that causes one.
pub fn page(title: &str, links: &[Link], bodies: &[String]) -> Result<String> {
    let (style, script) = (include_str!("../templates/page.css"), include_str!("../templates/page.js"));
    part(&Page { title, links, bodies, style, script })
}

/// A part of a page as text.
///
/// # Errors
/// The template engine's; there is no input that causes one.
pub fn part(template: &impl Template) -> Result<String> {
    template.render().map_err(|e| Error::new(format!("page: {e}")))
}

/// The overall result, as a word with a sign and a colour, and as a sentence.
pub struct Verdict {
    /// The colour.
    pub class: &'static str,
    /// The sign, for those who see no colours.
    pub sign: &'static str,
    /// The word.
    pub word: &'static str,
    /// The rest of the sentence.
    pub text: String,
}

/// A row of counts for an architecture: trampolines by their worst result.
#[allow(missing_docs, reason = "the columns' names")]
pub struct ArchRow {
    pub name: String,
    pub trampolines: usize,
    pub hold: usize,
    pub deviate: usize,
    pub fail: usize,
}

/// A clause that fails.
#[allow(missing_docs, reason = "as in the report")]
pub struct FailedClause {
    pub clause: String,
    pub about: &'static str,
    pub arch: String,
    pub trampoline: String,
    /// The part of the page about the trampoline.
    pub target: String,
    pub options: String,
    pub reason: String,
    pub each: Vec<Single>,
    /// Other sets of options under which it fails.
    pub others: Vec<String>,
}

/// A check that fails.
#[allow(missing_docs, reason = "as in the report")]
pub struct Single {
    pub place: String,
    pub expected: String,
    pub found: String,
    pub at: String,
    pub writer: String,
    pub context: Vec<String>,
    pub replay: String,
}

/// Trampolines by clauses.
pub struct Matrix {
    /// The id of the heading.
    pub id: String,
    /// The architecture.
    pub arch: String,
    /// The number of sets of options.
    pub sets: usize,
    /// Short names of clauses, and their demands.
    pub clauses: Vec<(String, &'static str)>,
    /// The rows, one for each trampoline.
    pub rows: Vec<MatrixRow>,
}

/// A trampoline by clauses.
pub struct MatrixRow {
    /// The trampoline.
    pub name: String,
    /// The part of the page about the trampoline.
    pub target: String,
    /// The cells, one for each clause.
    pub cells: Vec<MatrixCell>,
}

/// A trampoline and a clause.
pub struct MatrixCell {
    /// The colour.
    pub class: &'static str,
    /// The sign.
    pub sign: &'static str,
    /// The part of the page with the reasons.
    pub target: String,
    /// The cell's contents in words.
    pub label: String,
}

/// A report of `check`.
#[derive(Template)]
#[template(path = "check.html")]
pub struct Check {
    /// The prefix of ids in this part.
    pub id: String,
    /// The title.
    pub heading: String,
    /// The overall result.
    pub verdict: Verdict,
    /// By architecture.
    pub arches: Vec<ArchRow>,
    /// What ran.
    pub meta: String,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The clauses that fail.
    pub failures: Vec<FailedClause>,
    /// By architecture.
    pub matrices: Vec<Matrix>,
    /// Clause, whose, reason.
    pub deviations: Vec<(String, String, String)>,
    /// Does the report have views of trampolines' runs?
    pub seen: bool,
    /// Rendered [`Trampoline`]s.
    pub trampolines: Vec<String>,
    /// The clauses, and their demands.
    pub clauses: Vec<(&'static str, &'static str)>,
    /// Clauses that are not decided, and the reasons.
    pub undecided: Vec<(String, String)>,
}

/// A trampoline with everything about it.
#[derive(Template)]
#[template(path = "trampoline.html")]
#[allow(missing_docs, reason = "as in `Check`")]
pub struct Trampoline {
    pub id: String,
    pub name: String,
    pub arch: String,
    pub class: &'static str,
    pub sign: &'static str,
    pub word: &'static str,
    /// Shown at once.
    pub open: bool,
    pub clauses: Vec<ClauseRow>,
    pub views: Vec<View>,
}

/// A clause of a trampoline.
#[allow(missing_docs, reason = "as in `Check`")]
pub struct ClauseRow {
    pub id: String,
    pub name: &'static str,
    pub class: &'static str,
    pub sign: &'static str,
    pub word: &'static str,
    pub checks: u64,
    /// Reasons, each with the options under which it is one.
    pub why: Vec<String>,
}

/// A trampoline from inside.
pub struct View {
    /// The options.
    pub options: String,
    /// The listing.
    pub lines: Vec<Line>,
    /// Runs.
    pub paths: Vec<Path>,
}

/// An instruction.
#[allow(missing_docs, reason = "the columns' names")]
pub struct Line {
    pub id: String,
    pub class: &'static str,
    /// Was it executed, as a sign.
    pub ran: &'static str,
    pub at: String,
    pub bytes: String,
    pub text: String,
    pub note: String,
    /// What fails here, or was written here last.
    pub failures: Vec<String>,
}

/// A run.
pub struct Path {
    /// Situation and function.
    pub title: String,
    /// What fails in it.
    pub failures: String,
    /// The number of executed instructions.
    pub executed: usize,
    /// Bytes of stack.
    pub stack: u64,
    /// Pixels of the bar of instructions.
    pub width: usize,
    /// Offsets above the columns.
    pub ruler: String,
    /// Which columns are calls.
    pub calls: String,
    /// Registers with events in the run.
    pub tracks: Vec<Track>,
    /// Registers without events.
    pub untouched: String,
    /// Words of the stack.
    pub frame: Vec<Word>,
    /// Pixels of the drawing.
    pub height: usize,
    /// Pixels of the drawing's width.
    pub drawn: usize,
    /// The drawing in words.
    pub summary: String,
    /// The command that runs it again.
    pub replay: String,
}

/// A register along a run.
pub struct Track {
    /// Its name, as wide as those of the others.
    pub name: String,
    /// It is lost, and a clause fails.
    pub lost: bool,
    /// Colour and letters.
    pub runs: Vec<(&'static str, String)>,
    /// The register's state at the end.
    pub end: String,
}

/// A word of the stack in the drawing.
#[allow(missing_docs, reason = "coordinates and texts")]
pub struct Word {
    pub class: &'static str,
    pub y: usize,
    pub text_y: usize,
    pub offset: String,
    pub holds: String,
    pub by: String,
}

/// A report of `mutate`.
#[derive(Template)]
#[template(path = "mutants.html")]
#[allow(missing_docs, reason = "as in `Check`")]
pub struct Mutants {
    pub id: String,
    pub heading: String,
    pub verdict: Verdict,
    pub meta: String,
    pub survivors: Vec<Survivor>,
    pub scores: Vec<Score>,
}

/// A fault that nothing noticed.
#[allow(missing_docs, reason = "as in the report")]
pub struct Survivor {
    pub mutant: String,
    pub trampoline: String,
    pub arch: String,
    pub reason: String,
    pub diff: Vec<String>,
    pub replay: String,
}

/// The results of the faults of a kind.
#[allow(missing_docs, reason = "the columns' names")]
pub struct Score {
    pub operator: String,
    pub arch: String,
    pub killed: usize,
    pub of: usize,
    /// The width of the bar, in percent.
    pub width: usize,
    pub by: String,
}

/// A comparison.
#[derive(Template)]
#[template(path = "diff.html")]
#[allow(missing_docs, reason = "as in `Check`")]
pub struct Diff {
    pub verdict: Verdict,
    pub left: String,
    pub right: String,
    /// Items that only one side has, in sentences.
    pub only: Vec<String>,
    /// What a contract says, as text; empty without one.
    pub contract: String,
    pub pairs: Vec<DiffPair>,
}

/// Two trampolines.
#[allow(missing_docs, reason = "as in the report")]
pub struct DiffPair {
    pub id: String,
    pub name: String,
    pub class: &'static str,
    pub verdict: String,
    pub groups: Vec<DiffGroup>,
    /// How many instructions are the same, changed, moved, new, gone.
    pub summary: String,
    pub rows: Vec<DiffRow>,
    /// Pixels of the drawing of arrows.
    pub height: usize,
    pub arrows: Vec<Arrow>,
}

/// Differences that concern the same people.
#[allow(missing_docs, reason = "as in the report")]
pub struct DiffGroup {
    pub class: &'static str,
    pub title: String,
    pub lines: Vec<DiffLine>,
}

/// A difference: what it is, in which cases, and the instruction on each side.
#[allow(missing_docs, reason = "as in `Check`")]
pub struct DiffLine {
    pub ids: String,
    pub text: String,
    pub case: String,
    pub code: Vec<String>,
}

/// Instructions side by side.
#[allow(missing_docs, reason = "the columns' names")]
pub struct DiffRow {
    pub class: &'static str,
    pub left_at: String,
    pub left: String,
    pub right_at: String,
    pub right: String,
    pub how: String,
}

/// From a row to another, in pixels from the top.
#[allow(missing_docs, reason = "coordinates")]
pub struct Arrow {
    pub from: usize,
    pub to: usize,
}

/// The costs of trampolines.
#[derive(Template)]
#[template(path = "cost.html")]
#[allow(missing_docs, reason = "as in `Check`")]
pub struct Costs {
    pub id: String,
    pub heading: String,
    pub text: String,
    pub arches: Vec<CostArch>,
}

/// An architecture's trampolines.
#[allow(missing_docs, reason = "as in `Check`")]
pub struct CostArch {
    pub name: String,
    pub groups: Vec<CostGroup>,
}

/// A trampoline.
#[allow(missing_docs, reason = "as in `Check`")]
pub struct CostGroup {
    pub name: String,
    /// The contract of one that is the kernel's.
    pub theirs: String,
    pub rows: Vec<CostRow>,
}

/// A way through a trampoline.
#[allow(missing_docs, reason = "the columns' names")]
pub struct CostRow {
    pub way: String,
    pub executed: i64,
    /// The width of the bar, in percent.
    pub width: i64,
    pub loads: i64,
    pub stores: i64,
    pub stack: String,
}
