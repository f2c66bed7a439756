//! `diff` by what code does: as it was observed by running it, without a contract.

use std::collections::BTreeMap;
use std::fmt::Write;

use codegen::error::{Error, Result};
use emu_tests::{Difference, Observed, Severity, differences, roles_of};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::exit::{DIFFERS, DONE};
use super::how::{Form, How};
use super::sides::{Code, Side, one, side};
use super::ui::{Style, Ui, wrap};

/// What a report for programs has.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "tramptool diff")]
pub struct Comparison {
    /// The format's version.
    version: u32,
    /// The left side, as it was given.
    left: String,
    /// The right side.
    right: String,
    /// Some pair differs in behaviour.
    differs: bool,
    /// What both have.
    pairs: Vec<Pair>,
    /// What only the left side has.
    only_left: Vec<String>,
    /// What only the right side has.
    only_right: Vec<String>,
}

/// Two trampolines.
#[derive(Serialize, JsonSchema)]
struct Pair {
    /// What they are called, if there are several pairs.
    name: String,
    /// What the left one does.
    left: Observed,
    /// What the right one does.
    right: Observed,
    /// What the right one does differently; of two architectures, nothing.
    differences: Vec<Difference>,
    /// Of two architectures: what only one gives, in which role.
    roles: Vec<Role>,
}

/// What two architectures do in one role.
#[derive(Serialize, JsonSchema)]
struct Role {
    /// The role.
    role: String,
    /// What only the left one does.
    left: Vec<String>,
    /// What only the right one does.
    right: Vec<String>,
}

impl Pair {
    fn of(name: &str, left: &Code, right: &Code) -> Result<Pair> {
        let (left, right) = (left.observed()?, right.observed()?);
        let [l, r] = [left.arch, right.arch].map(tool::backend);
        let (l, r) = (l?, r?);
        let (mut all, mut roles) = (Vec::new(), Vec::new());
        if left.arch == right.arch {
            all = differences(&left, &right, &l.facts().abi);
        } else {
            let site = |backend| tool::convention(backend).map(|convention| &convention.site);
            let theirs = roles_of(&right, &r.facts().abi, site(r)?);
            for ((role, ours), (_, theirs)) in roles_of(&left, &l.facts().abi, site(l)?).into_iter().zip(theirs) {
                let only = |these: &[String], those: &[String]| -> Vec<String> {
                    these.iter().filter(|line| !those.contains(line)).cloned().collect()
                };
                let (left, right) = (only(&ours, &theirs), only(&theirs, &ours));
                if !left.is_empty() || !right.is_empty() {
                    roles.push(Role { role: role.to_owned(), left, right });
                }
            }
        }
        Ok(Pair { name: name.to_owned(), left, right, differences: all, roles })
    }

    fn differs(&self, exact: bool) -> bool {
        !self.roles.is_empty() || self.differences.iter().any(|d| exact || d.severity.is_behaviour())
    }

    /// One line: the same in behaviour or not, and how often it was run.
    fn verdict(&self) -> String {
        let count = |better: bool| {
            let these = self.differences.iter().filter(|d| d.severity.is_behaviour() && d.better == better);
            these.count()
        };
        let runs = format!("{} and {} runs", self.left.runs, self.right.runs);
        if self.left.arch != self.right.arch {
            let roles = self.roles.len();
            return format!("{} against {}: {roles} roles differ, in {runs}", self.left.arch, self.right.arch);
        }
        let better = match count(true) {
            0 => String::new(),
            n => format!(", {n} for the better"),
        };
        match count(false) + count(true) {
            0 if self.differences.is_empty() => format!("the same, in {runs}"),
            0 => format!("the same in behaviour, in {runs}"),
            1 => format!("1 difference of behaviour{better}, in {runs}"),
            n => format!("{n} differences of behaviour{better}, in {runs}"),
        }
    }
}

/// Compare.
///
/// # Errors
/// A side that is nothing, or cannot be run.
pub fn run(texts: [&str; 2], how: &How, ui: &Ui) -> Result<u8> {
    let [left, right] = texts.map(|text| side(text, how.arch));
    let comparison = match (left?, right?) {
        (Side::Report(left), Side::Report(right)) => return reports(texts, &left, &right, ui),
        (Side::Report(_), _) | (_, Side::Report(_)) => {
            return Err(Error::new(
                "a report is compared with a report; valid: two of `tramptool check --format json`",
            ));
        }
        (left, right) => compare(texts, left, right)?,
    };
    let comparison = Comparison { differs: comparison.pairs.iter().any(|pair| pair.differs(how.exact)), ..comparison };
    let out = match how.format {
        Form::Json => tool::report::json(&comparison)?,
        form => text(&comparison, form, how.brief, ui),
    };
    ui.out(out)?;
    Ok(if comparison.differs { DIFFERS } else { DONE })
}

/// What two that are generated do differently, before their plans. Returns whether they do the same.
///
/// # Errors
/// One of them cannot be run.
pub fn behaviour(texts: [&str; 2], exact: bool, ui: &Ui, out: &mut String) -> Result<Option<bool>> {
    let [left, right] = texts.map(|text| one(text, None));
    let pair = Pair::of("", &left?, &right?)?;
    let _ = writeln!(out, "{}", pair.verdict());
    body(&pair, false, ui, out);
    out.push('\n');
    Ok(Some(!pair.differs(exact)))
}

/// Observe both sides, as pairs.
fn compare(texts: [&str; 2], left: Side, right: Side) -> Result<Comparison> {
    let many = |side| match side {
        Side::One(code) => (true, BTreeMap::from([(String::new(), *code)])),
        Side::Many(all) => (false, all),
        Side::Report(_) => (false, BTreeMap::new()),
    };
    let ((one_left, mut left), (one_right, mut right)) = (many(left), many(right));
    // One against many is one against its namesake.
    if one_left != one_right {
        let (one, others) = if one_left { (&mut left, &mut right) } else { (&mut right, &mut left) };
        namesake(one, others)?;
    }
    // Of two architectures, those that have the same name.
    if !left.keys().any(|name| right.contains_key(name)) {
        let bare = |all: BTreeMap<String, Code>| -> BTreeMap<String, Code> {
            all.into_iter()
                .map(|(name, code)| (name.split_once(':').map_or(name.clone(), |n| n.1.to_owned()), code))
                .collect()
        };
        (left, right) = (bare(left), bare(right));
    }
    let only = |these: &BTreeMap<String, Code>, those: &BTreeMap<String, Code>| -> Vec<String> {
        these.keys().filter(|name| !those.contains_key(*name)).cloned().collect()
    };
    let (only_left, only_right) = (only(&left, &right), only(&right, &left));
    let both: Vec<(&String, &Code, &Code)> =
        left.iter().filter_map(|(name, code)| Some((name, code, right.get(name)?))).collect();
    if both.is_empty() {
        let [left, right] = texts;
        return Err(Error::new(format!(
            "{left} and {right} have no trampoline in common; valid: two with the same names"
        )));
    }
    let pairs = both.into_par_iter().map(|(name, left, right)| Pair::of(name, left, right)).collect::<Result<_>>()?;
    let [left, right] = texts.map(str::to_owned);
    Ok(Comparison { version: 1, left, right, differs: false, pairs, only_left, only_right })
}

/// Leave of the others the one that is called as this one.
fn namesake(one: &mut BTreeMap<String, Code>, others: &mut BTreeMap<String, Code>) -> Result<()> {
    let Some((_, code)) = one.pop_first() else { return Ok(()) };
    let observed = code.observed()?;
    let name = format!("{}:{}", observed.arch, observed.symbol);
    if !others.contains_key(&name) {
        return Err(Error::unknown("trampoline of the other side", &name, others.keys().map(String::as_str)));
    }
    others.retain(|other, _| *other == name);
    one.insert(name, code);
    Ok(())
}

/// For reading, or as Markdown.
fn text(all: &Comparison, form: Form, brief: bool, ui: &Ui) -> String {
    let markdown = form == Form::Markdown;
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = if markdown {
        writeln!(out, "- left: `{}`\n- right: `{}`\n", all.left, all.right)
    } else {
        let (left, right) = (format!("- {}", all.left), format!("+ {}", all.right));
        writeln!(out, "{}\n{}\n", ui.paint(Style::Left, &left), ui.paint(Style::Right, &right))
    };
    let width = all.pairs.iter().map(|pair| pair.name.len()).max().unwrap_or(0);
    for pair in &all.pairs {
        let verdict = pair.verdict();
        let _ = match (brief, markdown) {
            _ if pair.name.is_empty() && markdown => writeln!(out, "**{verdict}**"),
            _ if pair.name.is_empty() => writeln!(out, "{verdict}"),
            (true, false) => {
                let short = verdict.split(", in ").next().unwrap_or_default();
                writeln!(out, "{:width$}  {short}", pair.name)
            }
            (_, true) => writeln!(out, "{}`{}`: {verdict}", if brief { "- " } else { "### " }, pair.name),
            (false, false) => {
                let short = verdict.split(", in ").next().unwrap_or_default();
                writeln!(out, "{}: {short}", ui.paint(Style::Heading, &pair.name))
            }
        };
        if !brief {
            body(pair, markdown, ui, &mut out);
            let _ = if pair.name.is_empty() { Ok(()) } else { writeln!(out) };
        }
    }
    for (side, names) in [("left", &all.only_left), ("right", &all.only_right)] {
        if !names.is_empty() {
            let lines = wrap(&format!("only on the {side}: {}", names.join(", ")), 78);
            let _ = writeln!(out, "{}", lines.join("\n"));
        }
    }
    out
}

/// The differences by whom they concern, or by role.
fn body(pair: &Pair, markdown: bool, ui: &Ui, out: &mut String) {
    for better in [false, true] {
        for severity in Severity::ALL {
            let these = pair.differences.iter().filter(|d| (d.severity, d.better) == (severity, better));
            let these: Vec<&Difference> = these.collect();
            if these.is_empty() {
                continue;
            }
            heading(if better { severity.concerns() } else { severity.words() }, markdown, ui, out);
            let more = these.len().saturating_sub(SHOWN);
            for d in these.into_iter().take(SHOWN) {
                difference(d, [&pair.left, &pair.right], markdown, ui, out);
            }
            if more > 0 {
                let _ = writeln!(out, "{}and {more} more, which --format json has", if markdown { "- " } else { "  " });
            }
        }
    }
    for role in &pair.roles {
        heading(&role.role, markdown, ui, out);
        for (mark, style, lines) in [('-', Style::Left, &role.left), ('+', Style::Right, &role.right)] {
            for line in lines {
                let lines = wrap(line, 74);
                let text = if markdown {
                    format!(
                        "- {}: {}",
                        if mark == '-' { &pair.left.arch } else { &pair.right.arch },
                        lines.join("\n  ")
                    )
                } else {
                    ui.paint(style, &format!("  {mark} {}", lines.join("\n    ")))
                };
                let _ = writeln!(out, "{text}");
            }
        }
    }
}

fn heading(title: &str, markdown: bool, ui: &Ui, out: &mut String) {
    let _ = if markdown {
        writeln!(out, "\n**{title}**\n")
    } else {
        writeln!(out, "\n{}", ui.paint(Style::Heading, title))
    };
}

/// What it is, in which case, and the instructions.
fn difference(d: &Difference, observed: [&Observed; 2], markdown: bool, ui: &Ui, out: &mut String) {
    let case = match d.when.as_slice() {
        [] => String::new(),
        [only] if only == PLAINLY => String::new(),
        [only] => format!("if {only}"),
        [first, rest @ ..] => {
            let first = if first == PLAINLY { "always".to_owned() } else { format!("if {first}") };
            format!("{first}, and in {} more case{}", rest.len(), if rest.len() == 1 { "" } else { "s" })
        }
    };
    let bullet = if markdown { "- " } else { "  " };
    let _ = writeln!(out, "{bullet}{}", wrap(&d.text, 74).join("\n  "));
    if !case.is_empty() {
        let lines = wrap(&case, 70).join(if markdown { "\n  " } else { "\n      " });
        let _ = writeln!(
            out,
            "{}",
            if markdown { format!("  ({lines})") } else { ui.paint(Style::Quiet, &format!("      {lines}")) }
        );
    }
    let sides = [('-', Style::Left, d.left, observed[0]), ('+', Style::Right, d.right, observed[1])];
    for (mark, style, at, observed) in sides {
        if let Some(line) = at.and_then(|at| observed.lines.iter().find(|line| line.at == at)) {
            let text = format!("{mark} {:4x}  {}", line.at, line.text);
            let _ = if markdown {
                writeln!(out, "  `{text}`")
            } else {
                writeln!(out, "{}", ui.paint(style, &format!("    {text}")))
            };
        }
    }
}

/// Differences of one kind that are shown; a frame with another layout has dozens.
const SHOWN: usize = 10;
/// The run in which nothing is unusual.
const PLAINLY: &str = "plainly";

/// What holds in one report of `check` and not in the other.
fn reports(texts: [&str; 2], left: &Value, right: &Value, ui: &Ui) -> Result<u8> {
    let verdicts = |report: &Value, name: &str| -> Result<BTreeMap<String, String>> {
        let rows = report["results"].as_array().ok_or_else(|| {
            Error::new(format!("{name}: no results; valid: a report of `tramptool check --format json`"))
        })?;
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let row = |row: &Value| {
            let [arch, trampoline, clause, options] = ["arch", "trampoline", "clause", "options"].map(|f| text(row, f));
            (format!("{arch} {trampoline} {clause} ({options})"), text(row, "verdict"))
        };
        Ok(rows.iter().map(row).collect())
    };
    let (left, right) = (verdicts(left, texts[0])?, verdicts(right, texts[1])?);
    let mut out = format!("- {}\n+ {}\n\n", texts[0], texts[1]);
    let mut count = 0;
    let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let [was, is] = [&left, &right].map(|side| side.get(key).map_or("not judged", String::as_str));
        if was != is {
            count += 1;
            let style = if is == "fail" { Style::Left } else { Style::Right };
            let line = wrap(&format!("{key}: {is}; it was {was}"), 78).join("\n    ");
            let _ = writeln!(out, "{}", ui.paint(style, &line));
        }
    }
    let _ = match count {
        0 => writeln!(out, "the same verdicts, of {} clauses", left.len()),
        1 => writeln!(out, "\n1 verdict differs"),
        n => writeln!(out, "\n{n} verdicts differ"),
    };
    ui.out(out)?;
    Ok(if count == 0 { DONE } else { DIFFERS })
}
