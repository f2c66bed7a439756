//! What two engines say of the same.

use emu_tests::{Clause, Report, Row, Verdict};

/// Let each row fail on which they disagree: the verdict, the number of checks, or the places.
pub(super) fn agree(report: &mut Report, other: &Report) {
    let same = |one: &Row, two: &Row| {
        (&one.arch, &one.trampoline, &one.options, one.clause) == (&two.arch, &two.trampoline, &two.options, two.clause)
    };
    for row in &mut report.results {
        let Some(second) = other.results.iter().find(|second| same(row, second)) else { continue };
        // What only one of them has, only one of them executes: the other reads the code.
        let fails = |row: &Row| row.verdict == Verdict::Fail;
        let is_read = row.clause == Clause::Wide && fails(row) == fails(second);
        if is_read || (row.verdict, row.checks, &row.places) == (second.verdict, second.checks, &second.places) {
            continue;
        }
        let said = |engine: &str, row: &Row| format!("{engine}: {}, {} checks", word(row.verdict), row.checks);
        row.reason = format!("{}; {}", said(&report.engine, row), said(&other.engine, second));
        row.failures.extend(second.failures.iter().cloned());
        (row.verdict, row.reason_id) = (Verdict::Fail, None);
    }
    report.engine = format!("{} and {}", report.engine, other.engine);
    report.recount();
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Deviates => "deviates",
        Verdict::Skip => "not checked",
        Verdict::Open => "not decided",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdict: Verdict, checks: u64) -> Row {
        Row {
            arch: "any".to_owned(),
            trampoline: "t".to_owned(),
            options: String::new(),
            clause: Clause::P1,
            verdict,
            reason: String::new(),
            reason_id: None,
            checks,
            failures: Vec::new(),
            places: Vec::new(),
            missed: Vec::new(),
            elsewhere: Vec::new(),
            missed_elsewhere: Vec::new(),
        }
    }

    #[test]
    fn what_engines_disagree_on_fails() {
        let of = |engine: &str, row| Report { engine: engine.to_owned(), results: vec![row], ..Report::empty(1) };
        let both = |one, two| {
            let mut report = of("A 1", one);
            agree(&mut report, &of("B 2", two));
            assert_eq!(report.engine, "A 1 and B 2");
            (report.summary.fail, report.results[0].reason.clone())
        };
        let pass = || row(Verdict::Pass, 7);
        assert_eq!(both(pass(), pass()).0, 0);
        let said = "A 1: pass, 7 checks; B 2: fail, 7 checks";
        assert_eq!(both(pass(), row(Verdict::Fail, 7)), (1, said.to_owned()));
        assert_eq!(both(pass(), row(Verdict::Pass, 6)).0, 1);
        assert_eq!(both(row(Verdict::Skip, 0), pass()).0, 1);
        // Of what one reads and the other executes, only a failure of one of them.
        let wide = |verdict, checks| Row { clause: Clause::Wide, ..row(verdict, checks) };
        assert_eq!(both(wide(Verdict::Skip, 9), wide(Verdict::Pass, 700)).0, 0);
        assert_eq!(both(wide(Verdict::Pass, 9), wide(Verdict::Fail, 700)).0, 1);
        assert_eq!(both(wide(Verdict::Fail, 9), wide(Verdict::Fail, 700)), (1, String::new()));
    }
}
