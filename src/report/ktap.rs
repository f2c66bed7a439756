//! KTAP version 1, as the kernel's tools read it: options, in them trampolines, in them clauses.

use std::fmt::{Result, Write};

use emu_tests::{Report, Row, Verdict};

use super::rows::{Group, details, groups};

/// Write the report. What deviates is an expected failure; what was skipped says so, and never looks like a pass.
pub fn write(report: &Report, out: &mut String) -> Result {
    let suites = groups(report.results.iter().collect(), |r| format!("{} {}", r.arch, r.options));
    writeln!(out, "KTAP version 1")?;
    if suites.is_empty() {
        return writeln!(out, "1..0 # SKIP nothing was run");
    }
    writeln!(out, "1..{}", suites.len())?;
    for (i, suite) in suites.into_iter().enumerate() {
        let trampolines = groups(suite.rows.clone(), |r| r.trampoline.clone());
        header(out, 1, &suite.name, trampolines.len())?;
        for (i, trampoline) in trampolines.iter().enumerate() {
            header(out, 2, &trampoline.name, trampoline.rows.len())?;
            for (i, row) in trampoline.rows.iter().enumerate() {
                clause(out, i + 1, row)?;
            }
            parent(out, 1, i + 1, trampoline)?;
        }
        parent(out, 0, i + 1, &suite)?;
    }
    Ok(())
}

fn header(out: &mut String, depth: usize, name: &str, tests: usize) -> Result {
    let indent = "  ".repeat(depth);
    writeln!(out, "{indent}KTAP version 1\n{indent}# Subtest: {}\n{indent}1..{tests}", description(name))
}

fn clause(out: &mut String, number: usize, row: &Row) -> Result {
    const INDENT: &str = "    ";
    for line in details(row) {
        // Further in than a name, so that no line can be taken for a `# Subtest:`.
        writeln!(out, "{INDENT}#   {}", one_line(&line))?;
    }
    let (result, directive) = match row.verdict {
        Verdict::Pass => ("ok", ""),
        Verdict::Fail | Verdict::Open => ("not ok", ""),
        Verdict::Deviates => ("ok", "XFAIL "),
        Verdict::Skip => ("ok", "SKIP "),
    };
    write!(out, "{INDENT}{result} {number} {}", row.clause)?;
    match one_line(&row.reason) {
        reason if directive.is_empty() && reason.is_empty() => writeln!(out),
        reason => writeln!(out, " # {}", format!("{directive}{reason}").trim_end()),
    }
}

/// The line of a test that has subtests: it fails if one of them does, and is skipped if all of them are.
fn parent(out: &mut String, depth: usize, number: usize, group: &Group) -> Result {
    let all = |verdict| group.rows.iter().all(|r| r.verdict == verdict);
    let result =
        if group.rows.iter().any(|r| matches!(r.verdict, Verdict::Fail | Verdict::Open)) { "not ok" } else { "ok" };
    let skipped = if all(Verdict::Skip) { " # SKIP no clause was checked" } else { "" };
    writeln!(out, "{}{result} {number} {}{skipped}", "  ".repeat(depth), description(&group.name))
}

/// A name as KTAP has it: without `#`, on one line.
fn description(name: &str) -> String {
    one_line(name).replace('#', "_")
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
