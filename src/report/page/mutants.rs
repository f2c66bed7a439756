//! A report of `mutate` as a part of a page.

use codegen::words::error::Result;
use templates::page::{Mutants, Score, Survivor, Verdict, part as rendered};

use super::words::{line, pasted};
use crate::mutate::report::Report;

/// Title, verdict in a line, and the part itself, whose ids begin with `id`.
pub fn part(report: &Report, id: &str) -> Result<(String, String, String)> {
    let of = report.mutants - report.equivalent;
    let (class, sign, word) = match of {
        0 => ("note", "–", "nothing was judged:"),
        _ if report.killed == of => ("pass", "✓", "all are noticed:"),
        _ => ("fail", "✗", "some are not noticed:"),
    };
    let text =
        format!("{} of {of} faults; {} more change nothing that can be observed", report.killed, report.equivalent);
    let verdict = Verdict { class, sign, word, text };
    let told = line(&verdict);
    let survivor = |j: &crate::mutate::report::Judged| Survivor {
        mutant: j.mutant.clone(),
        trampoline: j.trampoline.clone(),
        arch: j.arch.clone(),
        reason: j.reason.clone(),
        diff: j.diff.clone(),
        replay: pasted(&j.replay),
    };
    let score = |s: &crate::mutate::report::Score| {
        let of = s.mutants - s.equivalent;
        let mut by: Vec<(&String, &usize)> = s.by.iter().collect();
        by.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let by: Vec<String> = by.into_iter().take(4).map(|(clause, n)| format!("{clause} {n}")).collect();
        let width = (100 * s.killed).checked_div(of).unwrap_or(0);
        Score { operator: s.operator.clone(), arch: s.arch.clone(), killed: s.killed, of, width, by: by.join(", ") }
    };
    let mutants = Mutants {
        id: id.to_owned(),
        heading: "Faults put in, one at a time".to_owned(),
        verdict,
        meta: format!("{}; judged by {}; seed {}, {}", report.request, report.by, report.seed, report.engine),
        survivors: report.survivors().map(survivor).collect(),
        scores: report.scores.iter().map(score).collect(),
    };
    Ok(("Which faults the checks notice".to_owned(), told, rendered(&mutants)?))
}
