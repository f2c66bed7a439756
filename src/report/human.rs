//! For reading: one screen with the verdict, failures, deviations by clause, and what to do next; on request, everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Result, Write};

use emu_tests::{Clause, Reason, Report, Row, Verdict};

use super::grid::{self, Cell, Column};
use super::lines::{command, cut, paragraph};
use super::promises;
use super::rows::{counts, groups, unique, what, worst, writer};

/// Terminal colours, or none.
#[derive(Clone, Copy)]
pub struct Palette {
    /// Use them.
    pub colour: bool,
}

/// A good result, a bad one, one to know of, what need not be read, a title.
const GOOD: &str = "32";
const BAD: &str = "1;31";
const NOTABLE: &str = "33";
const QUIET: &str = "2";
const TITLE: &str = "1";

impl Palette {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// So many trampolines are named one by one.
const FEW: usize = 3;

/// Where and how the report is written.
struct Writer<'r, 'o> {
    report: &'r Report,
    palette: Palette,
    width: usize,
    out: &'o mut String,
}

/// Write the report in lines of so many columns; all of it if it is `verbose`.
pub fn write(report: &Report, palette: Palette, width: usize, verbose: bool, out: &mut String) -> Result {
    let mut to = Writer { report, palette, width, out };
    if verbose {
        to.rows()?;
    }
    to.verdict()?;
    let undefined = |r: &&Row| r.reason_id == Some(Reason::NotDefined) && r.verdict != Verdict::Open;
    let missing = report.results.iter().filter(undefined);
    let missing = unique(missing.map(|r| r.trampoline.as_str()));
    if !missing.is_empty() {
        to.text(&format!("not judged, because none of the objects defines it: {}", missing.join(", ")))?;
    }
    to.failures(verbose)?;
    let arches = unique(report.results.iter().map(|r| r.arch.as_str()));
    for arch in &arches {
        to.clauses(arch, verbose)?;
        if verbose {
            to.registers(arch)?;
        }
    }
    if verbose && !arches.is_empty() {
        to.legend()?;
    }
    if !report.alternatives.is_empty() {
        let places = report.alternatives.join(", ");
        to.text(&format!(
            "alternatives: not run (--alternatives runs them), but may be patched in when the kernel boots, at {places}"
        ))?;
    }
    if !report.alternatives_in_place.is_empty() {
        to.text(&format!("alternatives: in place, and run, at {}", report.alternatives_in_place.join(", ")))?;
    }
    if !report.stubs.is_empty() {
        to.text(&format!("undefined: a function that returns at once stands in for {}", report.stubs.join(", ")))?;
    }
    if !report.in_place_of_engine.is_empty() {
        let (engine, all) = (&report.engine, report.in_place_of_engine.join(", "));
        to.text(&format!("not run by {engine}, which lacks them or is told their results, but by the checker: {all}"))?;
    }
    to.deviations(verbose)?;
    let counts = format!(
        "{}; {} scenarios, each function run unpatched, enabled and disabled; seed {}, {}",
        counts(report.summary),
        report.scenarios,
        report.seed,
        report.engine
    );
    to.out.write_str(&paragraph(&counts, width, "", ""))?;
    if verbose || arches.is_empty() { Ok(()) } else { to.next() }
}

/// How the trampolines of an architecture fare: how many there are, and of these, how many have this for the worst.
#[derive(Clone, Copy, Default)]
struct Fares {
    trampolines: usize,
    /// Sets of options under which they were judged.
    options: usize,
    scenarios: u64,
    hold: usize,
    deviate: usize,
    fail: usize,
    /// Clauses that are left open.
    open: usize,
}

fn fares(report: &Report, arch: &str) -> Fares {
    let rows = || report.results.iter().filter(|r| r.arch == arch);
    let options = unique(rows().map(|r| r.options.as_str())).len();
    let scenarios = report.scenarios_by_arch.get(arch).copied().unwrap_or_default();
    let open = rows().filter(|r| r.verdict == Verdict::Open).count();
    let mut fares = Fares { options, scenarios, open, ..Fares::default() };
    let judged = rows().filter(|r| r.reason_id != Some(Reason::NotDefined));
    for trampoline in unique(judged.map(|r| r.trampoline.as_str())) {
        fares.trampolines += 1;
        match worst(rows().filter(|r| r.trampoline == trampoline)) {
            Some(Verdict::Fail) => fares.fail += 1,
            Some(Verdict::Deviates) => fares.deviate += 1,
            Some(Verdict::Pass) => fares.hold += 1,
            // Nothing was decided, or not all.
            Some(Verdict::Skip | Verdict::Open) | None => {}
        }
    }
    fares
}

impl Writer<'_, '_> {
    fn text(&mut self, text: &str) -> Result {
        writeln!(self.out, "{}", paragraph(text, self.width, "", "  "))
    }

    fn title(&mut self, text: &str) -> Result {
        writeln!(self.out, "{}", self.palette.paint(TITLE, text))
    }

    fn verdict(&mut self) -> Result {
        let report = self.report;
        let arches = unique(report.results.iter().map(|r| r.arch.as_str()));
        if arches.is_empty() {
            return writeln!(self.out, "nothing was checked\n");
        }
        let all: Vec<(&str, Fares)> = arches.into_iter().map(|arch| (arch, fares(report, arch))).collect();
        let sum = |of: fn(&Fares) -> usize| all.iter().map(|(_, f)| of(f)).sum::<usize>();
        let (trampolines, fail, deviate) = (sum(|f| f.trampolines), sum(|f| f.fail), sum(|f| f.deviate));
        let open = sum(|f| f.open);
        let (word, code) = match (fail, sum(|f| f.hold) + deviate) {
            (0, _) if open > 0 => ("not decided", BAD),
            (0, 0) => ("nothing was decided", NOTABLE),
            (0, _) => ("holds", GOOD),
            _ => ("fails", BAD),
        };
        let how = match (fail, deviate) {
            (0, _) if open > 0 => format!(", {open} clause{} not decided", if open == 1 { "" } else { "s" }),
            (0, 0) => String::new(),
            (0, _) => format!(", {deviate} with deviations that the contracts name"),
            _ => format!(", {fail} with clauses that fail"),
        };
        let s = if trampolines == 1 { "" } else { "s" };
        writeln!(self.out, "{}: {trampolines} trampoline{s}{how}", self.palette.paint(code, word))?;
        let [has, how] = [["trampolines", "options", "scenarios"], ["hold", "deviate", "fail"]];
        self.title(&format!(
            "{:10}{:>12}{:>9}{:>11}{:>9}{:>9}{:>9}",
            "", has[0], has[1], has[2], how[0], how[1], how[2]
        ))?;
        for (arch, Fares { trampolines, options, scenarios, hold, deviate, fail, .. }) in all {
            let fail_code = if fail > 0 { BAD } else { QUIET };
            let fail = self.palette.paint(fail_code, &format!("{fail:>9}"));
            writeln!(self.out, "{arch:<10}{trampolines:>12}{options:>9}{scenarios:>11}{hold:>9}{deviate:>9}{fail}")?;
        }
        writeln!(self.out)
    }

    fn rows(&mut self) -> Result {
        for row in &self.report.results {
            let (word, code) = worded(Some(row.verdict));
            let verdict = self.palette.paint(code, &format!("{word:>4}"));
            let mut text = format!("{:<8} {} {} [{}]", row.clause, row.arch, row.trampoline, row.options);
            if row.checks > 0 {
                text += &format!(", {} checks", row.checks);
            }
            if !row.reason.is_empty() {
                text += &format!(": {}", row.reason);
            }
            let text = paragraph(&text, self.width - 5, "", "         ");
            for (i, line) in text.lines().enumerate() {
                writeln!(self.out, "{} {line}", if i == 0 { &verdict } else { "    " })?;
            }
        }
        writeln!(self.out)
    }

    /// The clauses of an architecture's trampolines: if not all, those that fail anywhere, of the trampolines that fail.
    fn clauses(&mut self, arch: &str, all: bool) -> Result {
        let rows: Vec<&Row> = self.report.results.iter().filter(|r| r.arch == arch).collect();
        let remarkable = |r: &&&Row| all || r.verdict == Verdict::Fail;
        let shown: Vec<&&Row> = rows.iter().filter(remarkable).collect();
        if shown.is_empty() {
            return Ok(());
        }
        let clauses: Vec<Clause> = Clause::ALL.into_iter().filter(|c| shown.iter().any(|r| r.clause == *c)).collect();
        let sets = unique(rows.iter().map(|r| r.options.as_str())).len();
        let s = if sets == 1 { "" } else { "s" };
        let which = if all { "clauses" } else { "clauses that fail" };
        self.title(&format!("{arch}: {which}, over {sets} set{s} of options"))?;
        let columns: Vec<Column> = clauses.iter().map(|c| Column { name: heading(*c), short: short(*c) }).collect();
        let cell = |trampoline: &str, clause: Clause| {
            let of = rows.iter().filter(|r| r.trampoline == trampoline && r.clause == clause).copied();
            let verdict = worst(of);
            let (word, code) = worded(verdict);
            Cell { word: word.to_owned(), short: glyph(verdict), code }
        };
        let lines: Vec<(&str, Vec<Cell>)> = unique(shown.iter().map(|r| r.trampoline.as_str()))
            .into_iter()
            .map(|name| (name, clauses.iter().map(|c| cell(name, *c)).collect()))
            .collect();
        let palette = self.palette;
        let short = grid::write(&columns, &lines, self.width, &|code, text| palette.paint(code, text), self.out)?;
        writeln!(self.out)?;
        if short {
            writeln!(self.out, "  + holds   d deviates   F fails   - not applicable or not decided\n")?;
        }
        Ok(())
    }

    /// One row a trampoline, one letter a register.
    fn registers(&mut self, arch: &str) -> Result {
        let report = self.report;
        let ran = |s: &&emu_tests::Survival| s.arch == arch && s.registers.values().any(|f| f.kept + f.changed > 0);
        let all: Vec<_> = report.registers.iter().filter(ran).filter(|s| !s.trampoline.ends_with("_ip")).collect();
        let Some(first) = all.first() else { return Ok(()) };
        self.title(&format!("{arch}: registers, from the site until the function goes on"))?;
        let names = sorted(first.registers.keys().collect());
        let columns: Vec<Column> =
            names.iter().map(|name| Column { name: (*name).clone(), short: (*name).clone() }).collect();
        let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut lines = Vec::new();
        for survival in &all {
            let mut cells = Vec::new();
            for name in &names {
                let fate = survival.registers.get(*name).copied().unwrap_or_default();
                let letter = promises::letter(report, survival, name, fate);
                if letter == promises::SOMETIMES {
                    let note = format!("{}: {}", survival.trampoline, promises::when(survival, name));
                    notes.entry(note).or_default().push((*name).clone());
                }
                let code = match letter {
                    promises::LOST => BAD,
                    promises::DEVIATES => NOTABLE,
                    promises::KEPT | promises::SOMETIMES => GOOD,
                    _ => QUIET,
                };
                cells.push(Cell { word: letter.to_string(), short: letter, code });
            }
            lines.push((survival.trampoline.as_str(), cells));
        }
        let palette = self.palette;
        grid::letters(&columns, &lines, self.width, &|code, text| palette.paint(code, text), self.out)?;
        writeln!(self.out)?;
        for (note, names) in notes {
            let (trampoline, when) = note.split_once(": ").unwrap_or((&note, ""));
            let text = format!("{trampoline}: {} promised {when}", names.join(" "));
            self.out.write_str(&paragraph(&text, self.width, "  o ", "    "))?;
        }
        writeln!(self.out)
    }

    fn legend(&mut self) -> Result {
        if !self.report.registers.is_empty() {
            for (letter, what) in promises::LEGEND {
                writeln!(self.out, "  {letter} {what}")?;
            }
            writeln!(self.out)?;
        }
        for clause in Clause::ALL {
            writeln!(self.out, "{:<9} {}", clause.name(), clause.about())?;
        }
        writeln!(self.out, "not decided here")?;
        for undecided in &self.report.undecided {
            let first = format!("{:<9} ", undecided.clause);
            self.out.write_str(&paragraph(&undecided.reason, self.width, &first, "          "))?;
        }
        writeln!(self.out)
    }

    /// Why clauses deviate. If not all is asked for, a clause with many trampolines has one line.
    fn deviations(&mut self, all: bool) -> Result {
        let report = self.report;
        let deviating: Vec<&Row> = report.results.iter().filter(|r| r.verdict == Verdict::Deviates).collect();
        if deviating.is_empty() {
            return Ok(());
        }
        let trampolines = |rows: &[&Row]| rows.iter().map(|r| (&r.arch, &r.trampoline)).collect::<BTreeSet<_>>().len();
        let judged = trampolines(&report.results.iter().collect::<Vec<_>>());
        self.title("deviations that the contracts state")?;
        for clause in Clause::ALL {
            let rows: Vec<&Row> = deviating.iter().filter(|r| r.clause == clause).copied().collect();
            let reasons = unique(rows.iter().flat_map(|r| r.reason.lines()));
            let (first, n) = (format!("  {clause:<4} "), trampolines(&rows));
            if !all && n > FEW {
                let others =
                    if reasons.len() > 1 { format!(" (and {} more)", reasons.len() - 1) } else { String::new() };
                let text = format!("{first}{n} of {judged}: {}", reasons.first().copied().unwrap_or_default());
                let text = cut(&text, self.width.saturating_sub(others.len()));
                writeln!(self.out, "{text}{others}")?;
                continue;
            }
            for reason in reasons {
                let has = |r: &&&Row| r.reason.lines().any(|l| l == reason);
                let whose = unique(rows.iter().filter(has).map(|r| r.trampoline.as_str()));
                // What holds of most is a rule, not a peculiarity of those that happen to be in the report.
                let whose = if whose.len() > FEW { String::new() } else { format!("{}: ", whose.join(", ")) };
                self.out.write_str(&paragraph(&format!("{whose}{reason}"), self.width, &first, "       "))?;
            }
        }
        writeln!(self.out)
    }

    /// What a reader may want to see after this.
    fn next(&mut self) -> Result {
        let rows = &self.report.results;
        let first =
            |verdict| Clause::ALL.into_iter().find(|c| rows.iter().any(|r| (r.clause, r.verdict) == (*c, verdict)));
        writeln!(self.out)?;
        self.title("next")?;
        writeln!(self.out, "  the same with -v: every clause, set of options and register")?;
        writeln!(self.out, "  the same with --format html -o report.html: a page with listings and frames")?;
        if let Some(clause) = first(Verdict::Fail).or(first(Verdict::Deviates)) {
            let name = clause.name();
            writeln!(self.out, "  tramptool explain {name}: what {name} demands, and how it is decided")?;
        }
        Ok(())
    }

    /// What is not decided, by its cause.
    fn open(&mut self) -> Result {
        let rows = self.report.results.iter().filter(|r| r.verdict == Verdict::Open).collect();
        let of = |r: &Row| format!("{} {} ({}): {}", r.arch, r.trampoline, r.options, r.reason);
        let all = groups(rows, of);
        for group in &all {
            let names: Vec<&str> = group.rows.iter().map(|r| r.clause.name()).collect();
            let text = format!("NOT DECIDED of {}: {}", group.name, names.join(" "));
            let text = paragraph(&text, self.width, "", "  ");
            self.out.write_str(&text.replacen("NOT DECIDED", &self.palette.paint(BAD, "NOT DECIDED"), 1))?;
        }
        if all.is_empty() { Ok(()) } else { writeln!(self.out) }
    }

    /// The code around an instruction may be cut where the line ends, if not all is asked for.
    fn failures(&mut self, verbose: bool) -> Result {
        for row in self.report.results.iter().filter(|r| r.verdict == Verdict::Fail) {
            let title = format!("FAIL {} of {} {}", row.clause, row.arch, row.trampoline);
            let text = paragraph(&format!("{title} ({}): {}", row.options, row.reason), self.width, "", "  ");
            self.out.write_str(&text.replacen(&title, &self.palette.paint(BAD, &title), 1))?;
            for f in &row.failures {
                self.out.write_str(&paragraph(&what(f), self.width, "  ", "    "))?;
                if let Some(writer) = writer(f) {
                    self.out.write_str(&paragraph(&writer, self.width, "  ", "    "))?;
                }
                for line in &f.context {
                    let line = format!("    {line}");
                    writeln!(self.out, "{}", if verbose { line } else { cut(&line, self.width) })?;
                }
                self.out.write_str(&command(&f.replay, self.width, "  again: ", "      "))?;
            }
            writeln!(self.out)?;
        }
        self.open()
    }
}

/// A verdict as a word, and its colour.
fn worded(verdict: Option<Verdict>) -> (&'static str, &'static str) {
    match verdict {
        Some(Verdict::Pass) => ("ok", GOOD),
        Some(Verdict::Fail) => ("FAIL", BAD),
        Some(Verdict::Deviates) => ("dev", NOTABLE),
        Some(Verdict::Open) => ("?", BAD),
        Some(Verdict::Skip) | None => ("-", QUIET),
    }
}

/// A verdict as a letter.
fn glyph(verdict: Option<Verdict>) -> char {
    match verdict {
        Some(Verdict::Pass) => '+',
        Some(Verdict::Fail) => 'F',
        Some(Verdict::Deviates) => 'd',
        Some(Verdict::Open) => '?',
        Some(Verdict::Skip) | None => '-',
    }
}

/// What stands above the column of a clause.
fn heading(clause: Clause) -> String {
    if clause == Clause::Coverage { "cover".to_owned() } else { clause.name().to_owned() }
}

/// The same, where a letter has to do.
fn short(clause: Clause) -> String {
    match clause {
        Clause::Coverage => "c".to_owned(),
        Clause::Wide => "2w".to_owned(),
        _ => clause.name().trim_start_matches('P').to_owned(),
    }
}

/// `x2` before `x10`.
fn sorted(mut names: Vec<&String>) -> Vec<&String> {
    names.sort_by_key(|n| {
        let digits = n.find(|c: char| c.is_ascii_digit()).unwrap_or(n.len());
        (n[..digits].to_owned(), n[digits..].parse::<u32>().unwrap_or(0))
    });
    names
}
