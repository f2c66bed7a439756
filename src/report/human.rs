//! For reading: the matrix of clauses, the matrix of registers, deviations, failures.

use std::fmt::Write;

use emu_tests::{Clause, Report, Row, Verdict};

use super::rows::{details, unique};

/// Terminal colours, or none.
#[derive(Clone, Copy)]
pub struct Palette {
    /// Use them.
    pub colour: bool,
}

impl Palette {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn verdict(self, verdict: Option<Verdict>, width: usize) -> String {
        let (word, code) = match verdict {
            Some(Verdict::Pass) => ("ok", "32"),
            Some(Verdict::Fail) => ("FAIL", "1;31"),
            Some(Verdict::Deviates) => ("dev", "33"),
            Some(Verdict::Skip) | None => ("-", "2"),
        };
        self.paint(code, &format!("{word:>width$}"))
    }
}

/// The worst verdict of several option sets: a failure anywhere is a failure.
fn worst<'r>(rows: impl Iterator<Item = &'r Row>) -> Option<Verdict> {
    let rank = |v: &Verdict| match v {
        Verdict::Fail => 3,
        Verdict::Deviates => 2,
        Verdict::Pass => 1,
        Verdict::Skip => 0,
    };
    rows.map(|r| r.verdict).max_by_key(rank)
}

/// Write the whole report; `verbose` shows every row too.
pub fn write(report: &Report, palette: Palette, verbose: bool, out: &mut String) -> std::fmt::Result {
    if verbose {
        rows(report, palette, out)?;
    }
    if report.results.is_empty() {
        writeln!(out, "nothing was checked: no suite is in this share\n")?;
    }
    for arch in unique(report.results.iter().map(|r| r.arch.as_str())) {
        clauses(report, arch, palette, out)?;
        registers(report, arch, palette, out)?;
    }
    legend(report, out)?;
    if !report.alternatives.is_empty() {
        let places = report.alternatives.join(", ");
        writeln!(out, "alternatives: not run, but may be patched in when the kernel boots, at {places}\n")?;
    }
    if !report.stubs.is_empty() {
        writeln!(out, "undefined: a function that returns at once stands in for {}\n", report.stubs.join(", "))?;
    }
    deviations(report, out)?;
    failures(report, palette, out)?;
    let s = report.summary;
    writeln!(
        out,
        "{} pass, {} fail, {} deviate, {} not applicable; {} scenarios, each function run unpatched, enabled and \
         disabled; seed {}, {}",
        s.pass, s.fail, s.deviates, s.skip, report.scenarios, report.seed, report.engine
    )
}

fn rows(report: &Report, palette: Palette, out: &mut String) -> std::fmt::Result {
    for row in &report.results {
        let verdict = palette.verdict(Some(row.verdict), 4);
        write!(out, "{verdict} {:<8} {} {} [{}]", row.clause, row.arch, row.trampoline, row.options)?;
        if row.checks > 0 {
            write!(out, ", {} checks", row.checks)?;
        }
        if !row.reason.is_empty() {
            write!(out, ": {}", row.reason)?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

fn clauses(report: &Report, arch: &str, palette: Palette, out: &mut String) -> std::fmt::Result {
    let rows: Vec<&Row> = report.results.iter().filter(|r| r.arch == arch).collect();
    let sets = unique(rows.iter().map(|r| r.options.as_str())).len();
    let title = format!("{arch}: clauses, over {sets} sets of options");
    writeln!(out, "{}", palette.paint("1", &title))?;
    write!(out, "  {:<26}", "")?;
    for clause in Clause::ALL {
        write!(out, "{:>1$}", heading(clause), width(clause))?;
    }
    writeln!(out)?;
    for trampoline in unique(rows.iter().map(|r| r.trampoline.as_str())) {
        write!(out, "  {trampoline:<26}")?;
        for clause in Clause::ALL {
            let of = rows.iter().filter(|r| r.trampoline == trampoline && r.clause == clause).copied();
            write!(out, "{}", palette.verdict(worst(of), width(clause)))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// What stands above the column of a clause.
fn heading(clause: Clause) -> &'static str {
    if clause == Clause::Coverage { "cover" } else { clause.name() }
}

/// Columns of a clause.
fn width(clause: Clause) -> usize {
    (heading(clause).len() + 1).max(5)
}

fn registers(report: &Report, arch: &str, palette: Palette, out: &mut String) -> std::fmt::Result {
    let ran = |s: &&emu_tests::Survival| s.arch == arch && s.registers.values().any(|f| f.kept + f.changed > 0);
    let columns: Vec<_> = report.registers.iter().filter(ran).filter(|s| !s.trampoline.ends_with("_ip")).collect();
    if columns.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", palette.paint("1", &format!("{arch}: registers, from the site until the function goes on")))?;
    for (i, column) in columns.iter().enumerate() {
        writeln!(out, "  {:>6} {}", format!("({})", i + 1), column.trampoline)?;
    }
    write!(out, "  {:<6}", "")?;
    for i in 0..columns.len() {
        write!(out, "{:>6}", format!("({})", i + 1))?;
    }
    writeln!(out)?;
    let order: Vec<&String> = columns[0].registers.keys().collect();
    for name in sorted(order) {
        write!(out, "  {name:<6}")?;
        for column in &columns {
            let fate = column.registers.get(name).copied().unwrap_or_default();
            let (word, code) = match (fate.promised, fate.changed > 0, fate.kept > 0) {
                (_, false, false) => ("", "2"),
                (true, true, _) if fate.lost > 0 => ("LOST", "1;31"),
                (true, true, _) => ("opt", "32"),
                (true, false, _) => ("kept", "32"),
                (false, true, _) => (".", "2"),
                (false, false, _) => ("same", "0"),
            };
            write!(out, "{}", palette.paint(code, &format!("{word:>6}")))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// `x2` before `x10`.
fn sorted(mut names: Vec<&String>) -> Vec<&String> {
    names.sort_by_key(|n| {
        let digits = n.find(|c: char| c.is_ascii_digit()).unwrap_or(n.len());
        (n[..digits].to_owned(), n[digits..].parse::<u32>().unwrap_or(0))
    });
    names
}

fn legend(report: &Report, out: &mut String) -> std::fmt::Result {
    if report.registers.is_empty() {
        return Ok(());
    }
    writeln!(out, "kept: promised, and had its value every time    LOST: promised and lost")?;
    writeln!(out, ".: the contract lets it go, and it changed       same: not promised, and not changed")?;
    if report.registers.iter().flat_map(|s| s.registers.values()).any(|f| f.promised && f.changed > 0 && f.lost == 0) {
        writeln!(out, "opt: kept under those options for which it is promised")?;
    }
    writeln!(out)?;
    for clause in Clause::ALL {
        writeln!(out, "{:<9} {}", clause.name(), clause.about())?;
    }
    writeln!(out, "not decided here")?;
    for undecided in &report.undecided {
        writeln!(out, "{:<9} {}", undecided.clause, undecided.reason)?;
    }
    writeln!(out)
}

fn deviations(report: &Report, out: &mut String) -> std::fmt::Result {
    let deviating: Vec<&Row> = report.results.iter().filter(|r| r.verdict == Verdict::Deviates).collect();
    if deviating.is_empty() {
        return Ok(());
    }
    writeln!(out, "deviations, as the contracts say")?;
    for clause in Clause::ALL {
        let rows = || deviating.iter().filter(|r| r.clause == clause);
        for reason in unique(rows().flat_map(|r| r.reason.lines())) {
            let whose = unique(rows().filter(|r| r.reason.lines().any(|l| l == reason)).map(|r| r.trampoline.as_str()));
            // What holds of most is a rule, not a peculiarity of those that happen to be in the report.
            let whose = if whose.len() > 3 { String::new() } else { format!("{}: ", whose.join(", ")) };
            writeln!(out, "  {clause:<4} {whose}{reason}")?;
        }
    }
    writeln!(out)
}

fn failures(report: &Report, palette: Palette, out: &mut String) -> std::fmt::Result {
    for row in report.results.iter().filter(|r| r.verdict == Verdict::Fail) {
        let title = format!(
            "{} {} of {} {}",
            Palette { colour: false }.verdict(Some(row.verdict), 0),
            row.clause,
            row.arch,
            row.trampoline
        );
        writeln!(out, "{} ({}): {}", palette.paint("1;31", &title), row.options, row.reason)?;
        for line in details(row) {
            writeln!(out, "  {line}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
