//! A comparison as a page for a browser.

use codegen::words::error::Result;
use emu_tests::{Difference, Observed};
use templates::page::{Arrow, Diff, DiffGroup, DiffLine, DiffPair, DiffRow, Link, Verdict, page as whole, part};
use tool::aligned::{Insn, Mark};
use tool::report::printable;
use tool::review::Verdicts;

use super::comparison::{Comparison, Instructions, Pair, case, instructions_of};

/// Pixels of a row: page.css has it too.
const ROW: usize = 20;

/// The page.
///
/// # Errors
/// None that a comparison causes.
pub fn page(all: &Comparison) -> Result<String> {
    let worse = all.by_contract.as_ref().is_some_and(Verdicts::is_worse) || all.pairs.iter().any(Pair::is_worse);
    let verdict = match (all.differs, worse) {
        _ if !all.pairs.iter().all(Pair::is_compared) => {
            Verdict { class: "fail", sign: "?", word: "not compared:", text: counted(all) }
        }
        (false, _) => Verdict { class: "pass", sign: "✓", word: "the same in behaviour:", text: counted(all) },
        (true, true) => Verdict { class: "fail", sign: "✗", word: "different:", text: counted(all) },
        (true, false) => Verdict { class: "deviates", sign: "≠", word: "different:", text: counted(all) },
    };
    let only = [("left", &all.only_left), ("right", &all.only_right)];
    let only = only.into_iter().filter(|(_, names)| !names.is_empty());
    let text = |verdicts| tool::review::verdicts([&all.left, &all.right], verdicts, false);
    let diff = Diff {
        verdict,
        left: printable(&all.left),
        right: printable(&all.right),
        only: only.map(|(side, names)| printable(&format!("Only on the {side}: {}", names.join(", ")))).collect(),
        contract: all.by_contract.as_ref().map_or_else(String::new, text),
        pairs: all.pairs.iter().enumerate().map(|(n, p)| pair(n, p)).collect(),
    };
    whole("What is different", &[] as &[Link], &[part(&diff)?])
}

fn counted(all: &Comparison) -> String {
    let differ = all.pairs.iter().filter(|pair| pair.differs(false)).count();
    match (differ, all.pairs.len()) {
        (1, 1) => all.pairs.iter().map(Pair::verdict).collect(),
        (0, 1) => all.pairs.iter().map(|pair| format!("{} and {} runs", pair.left.runs, pair.right.runs)).collect(),
        (n, of) => format!("{n} of {of} trampolines differ in behaviour"),
    }
}

fn pair(n: usize, pair: &Pair) -> DiffPair {
    let mut groups = Vec::new();
    for (severity, better, these) in pair.groups() {
        let lines = these.into_iter().map(|d| line(d, [&pair.left, &pair.right])).collect();
        let title = if better { severity.concerns() } else { severity.words() }.to_owned();
        let class = match (better, severity.is_behaviour()) {
            (true, true) => "good",
            (false, true) => "bad",
            (_, false) => "quiet",
        };
        groups.push(DiffGroup { class, title, lines });
    }
    if !pair.assumed.is_empty() {
        let lines = pair.assumed.iter().map(|line| words(line)).collect();
        groups.push(DiffGroup { class: "quiet", title: "assumed".to_owned(), lines });
    }
    for role in &pair.roles {
        let sides = [(&pair.left.arch, &role.left), (&pair.right.arch, &role.right)];
        let told = sides.into_iter().filter(|(_, lines)| !lines.is_empty());
        let lines = told.map(|(arch, lines)| format!("{arch}: {}", lines.join("; ")));
        let lines = lines.map(|line| words(&line)).collect();
        groups.push(DiffGroup { class: "quiet", title: role.role.clone(), lines });
    }
    let (summary, rows, arrows) = pair.code.as_ref().map_or_else(Default::default, side_by_side);
    let name = if pair.name.is_empty() { &pair.right.symbol } else { &pair.name };
    DiffPair {
        id: format!("d{n}"),
        name: printable(name),
        class: match (pair.differs(false), pair.is_worse()) {
            (false, _) => "good",
            (true, true) => "bad",
            (true, false) => "note",
        },
        verdict: pair.verdict(),
        groups,
        summary,
        height: ROW * rows.len(),
        rows,
        arrows,
    }
}

/// A difference, with where it shows.
fn line(d: &Difference, observed: [&Observed; 2]) -> DiffLine {
    let code = instructions_of(d, observed).iter().map(|text| printable(text)).collect();
    DiffLine { ids: d.ids().join(" "), text: printable(&d.to_string()), case: printable(&case(d)), code }
}

/// Words alone.
fn words(text: &str) -> DiffLine {
    DiffLine { ids: String::new(), text: printable(text), case: String::new(), code: Vec::new() }
}

/// What there is of each kind, the rows, and arrows from where something was to where it is.
fn side_by_side(code: &Instructions) -> (String, Vec<DiffRow>, Vec<Arrow>) {
    let show = |all: &[Insn], n: Option<usize>| {
        let insn = n.and_then(|n| all.get(n));
        insn.map_or_else(Default::default, |insn| (format!("{:x}", insn.at), printable(&insn.text)))
    };
    let mut rows = Vec::new();
    let mut arrows = Vec::new();
    let middle = |row: usize| row * ROW + ROW / 2;
    for (n, row) in code.rows.iter().enumerate() {
        let ((left_at, left), (right_at, right)) = (show(&code.left, row.left), show(&code.right, row.right));
        let at = |all: &[Insn]| row.partner.and_then(|n| all.get(n)).map_or(0, |insn| insn.at);
        let (class, how) = match (row.mark, row.left) {
            (Mark::Same, _) => ("same", String::new()),
            (Mark::Changed, _) => ("changed", "changed".to_owned()),
            (Mark::Moved, Some(_)) => ("moved", format!("moved to {:x}", at(&code.right))),
            (Mark::Moved, None) => ("moved", format!("moved from {:x}", at(&code.left))),
            (Mark::Together, Some(_)) => ("moved", format!("together at {:x}", at(&code.right))),
            (Mark::Together, None) => ("moved", format!("together, was at {:x}", at(&code.left))),
            (Mark::Left, _) => ("gone", "gone".to_owned()),
            (Mark::Right, _) => ("new", "new".to_owned()),
        };
        if row.mark == Mark::Moved && row.left.is_some() {
            let to = code.rows.iter().position(|other| other.left.is_none() && other.right == row.partner);
            arrows.extend(to.map(|to| Arrow { from: middle(n), to: middle(to) }));
        }
        // Each of several has an arrow of its own.
        if row.mark == Mark::Together && row.left.is_some() {
            let to = code.rows.iter().enumerate().filter(|(_, other)| {
                other.mark == Mark::Together
                    && other.right.is_some()
                    && (other.partner == row.left || other.right == row.partner)
            });
            arrows.extend(to.map(|(to, _)| Arrow { from: middle(n), to: middle(to) }));
        }
        rows.push(DiffRow { class, left_at, left, right_at, right, how });
    }
    let count = |mark: Mark| code.rows.iter().filter(|row| row.mark == mark).count();
    let mut summary = format!(
        "{} the same, {} changed, {} moved, {} new, {} gone",
        count(Mark::Same),
        count(Mark::Changed),
        count(Mark::Moved) / 2,
        count(Mark::Right),
        count(Mark::Left)
    );
    for (side, names) in [("left", &code.only_left), ("right", &code.only_right)] {
        if !names.is_empty() {
            summary += &printable(&format!("; symbols only on the {side}: {}", names.join(", ")));
        }
    }
    (summary, rows, arrows)
}
