//! `diff` by what code does: as it was observed by running it, without a contract.

use std::collections::BTreeMap;
use std::fmt::Write;

use codegen::words::error::{Error, Result};
use emu_tests::{Difference, Observed};
use rayon::prelude::*;
use serde_json::Value;
use tool::accepted::{Baseline, Ids, written};
use tool::printed::{code_span, printable, words};
use tool::review::Verdicts;

use super::comparison::{Comparison, Pair, case, instructions_of};
use super::how::{Form, How};
use super::page::page;
use super::sides::{Code, Given, Side, one, side};
use crate::cmd::review::{foreign, sided};
use crate::cmd::shared::args::ProfileArg;
use crate::cmd::shared::exit::{DIFFERS, DONE, TROUBLE};
use crate::cmd::shared::foreign::contract_text;
use crate::cmd::shared::input;
use crate::cmd::shared::ui::{Style, Ui, wrap};

/// Compare.
///
/// # Errors
/// A side that is nothing, or cannot be run.
pub fn run(texts: [&str; 2], how: &How, ui: &Ui) -> Result<u8> {
    let contract = how.contract.map(|name| Ok::<_, Error>((name, contract_text(name)?))).transpose()?;
    // A contract may say whose conventions it takes for granted.
    let named = contract.as_ref().and_then(|(_, text)| emu_tests::contract_profile(text));
    let profile = how.profile.or(named.as_deref()).map(tool::profile).transpose()?;
    let given = Given { arch: how.arch, profile };
    let [left, right] = texts.map(|text| side(text, given));
    let sides = match (left?, right?) {
        (Side::Report(left), Side::Report(right)) => return reports(texts, &left, &right, ui),
        (Side::Report(_), _) | (_, Side::Report(_)) => {
            return Err(Error::new(
                "a report is compared with a report; valid: two of `tramptool check --format json`",
            ));
        }
        (left, right) => [left, right],
    };
    let accepted = how.baseline.inspect(|path| input::note(path)).map(Baseline::of_file).transpose()?;
    let judged = contract.as_ref().map(|(name, text)| {
        let foreign = foreign(name, text, &ProfileArg::named(how.profile))?;
        Ok::<_, Error>((foreign, [sided(texts[0], given)?, sided(texts[1], given)?]))
    });
    let judged = judged.transpose()?;
    let _threads = how.sandbox.enter(None)?;
    let comparison = choose(compare(texts, sides)?, how, accepted)?;
    let by_contract = judged.map(|(foreign, [left, right])| Verdicts::of([&left, &right], [&foreign; 2], SEED));
    let by_contract = by_contract.transpose()?;
    let worse = by_contract.as_ref().is_some_and(Verdicts::is_worse);
    let differs = worse || !comparison.gone.is_empty() || comparison.pairs.iter().any(|pair| pair.differs(how.exact));
    let comparison = Comparison { differs, by_contract, ..comparison };
    let out = match how.format {
        Form::Json => tool::report::json(&comparison)?,
        Form::Html => page(&comparison)?,
        Form::Baseline => baseline(&comparison)?,
        form => text(&comparison, how, form, ui),
    };
    ui.out(out)?;
    Ok(match comparison.differs {
        _ if comparison.pairs.iter().any(|pair| !pair.is_compared()) => TROUBLE,
        true => DIFFERS,
        false => DONE,
    })
}

/// Leave out what is not asked for, and what is accepted.
///
/// # Errors
/// An id that no difference can have; ids of two architectures.
fn choose(mut comparison: Comparison, how: &How, mut accepted: Option<Baseline>) -> Result<Comparison> {
    let (only, ignore) = (Ids::of(how.only)?, Ids::of(how.ignore)?);
    let asked = !only.is_empty() || !ignore.is_empty() || accepted.is_some();
    if asked && comparison.pairs.iter().any(|pair| pair.left.arch != pair.right.arch) {
        return Err(Error::new("differences of two architectures have no ids; valid: sides of one architecture"));
    }
    for pair in &mut comparison.pairs {
        for d in &mut pair.differences {
            let before = d.spots.len();
            d.retain(|at| (only.is_empty() || only.name(&at.id)) && !ignore.name(&at.id));
            comparison.left_out += before - d.spots.len();
        }
        pair.differences.retain(|d| !d.spots.is_empty());
        let name = pair.trampoline().to_owned();
        if let Some(accepted) = &mut accepted {
            comparison.accepted += accepted.take(&name, &mut pair.differences);
        }
    }
    comparison.gone = accepted.map_or_else(Vec::new, Baseline::gone);
    Ok(comparison)
}

/// A file that accepts all differences of behaviour.
fn baseline(comparison: &Comparison) -> Result<String> {
    let all = comparison.pairs.iter().flat_map(|pair| pair.differences.iter().map(|d| (pair.trampoline(), d)));
    written(all.filter(|(_, d)| d.severity.is_behaviour()))
}

/// The seed of a judge that nobody gives another one.
const SEED: u64 = 1;

/// What two that are generated do differently, before their plans. Returns whether they do the same.
///
/// # Errors
/// One of them cannot be run.
pub fn behaviour(texts: [&str; 2], how: &How, ui: &Ui, out: &mut String) -> Result<Option<bool>> {
    let profile = how.profile.map(tool::profile).transpose()?;
    let [left, right] = texts.map(|text| one(text, Given { arch: None, profile }));
    let pair = Pair::of("", (&left?, &right?))?;
    let _ = writeln!(out, "{}", pair.verdict());
    body(&pair, false, how.ids, ui, out);
    out.push('\n');
    // What was not run is compared by its plan alone.
    Ok(pair.is_compared().then(|| !pair.differs(how.exact)))
}

/// Observe both sides, as pairs.
fn compare(texts: [&str; 2], [left, right]: [Side; 2]) -> Result<Comparison> {
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
    let pairs = both.into_par_iter().map(|(name, left, right)| Pair::of(name, (left, right))).collect::<Result<_>>()?;
    let [left, right] = texts.map(str::to_owned);
    Ok(Comparison {
        version: 2,
        left,
        right,
        differs: false,
        by_contract: None,
        left_out: 0,
        accepted: 0,
        gone: Vec::new(),
        pairs,
        only_left,
        only_right,
    })
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
fn text(all: &Comparison, how: &How, form: Form, ui: &Ui) -> String {
    let (markdown, brief) = (form == Form::Markdown, how.brief);
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = if markdown {
        writeln!(out, "- left: {}\n- right: {}\n", code_span(&all.left), code_span(&all.right))
    } else {
        let (left, right) = (format!("- {}", printable(&all.left)), format!("+ {}", printable(&all.right)));
        writeln!(out, "{}\n{}\n", ui.paint(Style::Left, &left), ui.paint(Style::Right, &right))
    };
    if let Some(verdicts) = &all.by_contract {
        out += &tool::review::verdicts([&all.left, &all.right], verdicts, markdown);
        out.push('\n');
    }
    let width = all.pairs.iter().map(|pair| printable(&pair.name).chars().count()).max().unwrap_or(0);
    for pair in &all.pairs {
        let (verdict, short) = (words(&pair.verdict(), markdown), words(&pair.brief(), markdown));
        let name = printable(&pair.name);
        let _ = match (brief, markdown) {
            _ if pair.name.is_empty() && markdown => writeln!(out, "**{verdict}**"),
            _ if pair.name.is_empty() => writeln!(out, "{verdict}"),
            (true, false) => writeln!(out, "{name:width$}  {short}"),
            (_, true) => writeln!(out, "{}{}: {verdict}", if brief { "- " } else { "### " }, code_span(&pair.name)),
            (false, false) => writeln!(out, "{}: {short}", ui.paint(Style::Heading, &name)),
        };
        if !brief {
            body(pair, markdown, how.ids, ui, &mut out);
            if pair.name.is_empty() {
                instructions(pair, markdown, ui, &mut out);
            }
            let _ = if pair.name.is_empty() { Ok(()) } else { writeln!(out) };
        }
    }
    if all.left_out + all.accepted > 0 {
        let (ignored, accepted) = (all.left_out, all.accepted);
        let _ = writeln!(out, "not counted: {ignored} by --only and --ignore, {accepted} that the baseline accepts");
    }
    for entry in &all.gone {
        let _ = writeln!(out, "{}", wrap(&words(&entry.is_gone(), markdown), 78).join("\n  "));
    }
    for (side, names) in [("left", &all.only_left), ("right", &all.only_right)] {
        if !names.is_empty() {
            let lines = wrap(&format!("only on the {side}: {}", words(&names.join(", "), markdown)), 78);
            let _ = writeln!(out, "{}", lines.join("\n"));
        }
    }
    out
}

/// The differences by whom they concern, or by role.
fn body(pair: &Pair, markdown: bool, ids: bool, ui: &Ui, out: &mut String) {
    for (severity, better, these) in pair.groups() {
        heading(if better { severity.concerns() } else { severity.words() }, markdown, ui, out);
        let more = these.len().saturating_sub(SHOWN);
        for d in these.into_iter().take(SHOWN) {
            difference(d, [&pair.left, &pair.right], markdown, ui, out);
            if ids {
                let _ = writeln!(
                    out,
                    "{}",
                    ui.paint(Style::Quiet, &format!("    {}", words(&d.ids().join(" "), markdown)))
                );
            }
        }
        if more > 0 {
            let _ = writeln!(out, "{}and {more} more, which --format json has", if markdown { "- " } else { "  " });
        }
    }
    for assumed in &pair.assumed {
        let lines = wrap(&words(assumed, markdown), 78).join("\n");
        let _ = writeln!(out, "{}{}", if markdown { "\n" } else { "" }, ui.paint(Style::Quiet, &lines));
    }
    for role in &pair.roles {
        heading(&role.role, markdown, ui, out);
        for (mark, style, lines) in [('-', Style::Left, &role.left), ('+', Style::Right, &role.right)] {
            if lines.is_empty() {
                continue;
            }
            let lines = wrap(&words(&lines.join("; "), markdown), 74);
            let text = if markdown {
                let arch = if mark == '-' { &pair.left.arch } else { &pair.right.arch };
                format!("- {arch}: {}", lines.join("\n  "))
            } else {
                ui.paint(style, &format!("  {mark} {}", lines.join("\n    ")))
            };
            let _ = writeln!(out, "{text}");
        }
    }
}

/// The instructions and symbols that differ.
fn instructions(pair: &Pair, markdown: bool, ui: &Ui, out: &mut String) {
    let Some(code) = &pair.code else { return };
    let changed = code.changed();
    if changed.is_empty() && code.only_left.is_empty() && code.only_right.is_empty() {
        return;
    }
    heading("instructions that differ; < and > have moved", markdown, ui, out);
    if markdown {
        out.push_str("```diff\n");
    }
    for line in changed.iter().map(|line| printable(line)) {
        let style = if line.starts_with(['-', '<']) { Style::Left } else { Style::Right };
        let _ = writeln!(out, "{}", if markdown { line.clone() } else { ui.paint(style, &format!("  {line}")) });
    }
    for (sign, style, names) in [('-', Style::Left, &code.only_left), ('+', Style::Right, &code.only_right)] {
        for name in names {
            let line = printable(&format!("{sign}symbol {name}"));
            let _ = writeln!(out, "{}", if markdown { line } else { ui.paint(style, &format!("  {line}")) });
        }
    }
    if markdown {
        out.push_str("```\n");
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
    let case = case(d);
    let bullet = if markdown { "- " } else { "  " };
    let _ = writeln!(out, "{bullet}{}", wrap(&words(&d.to_string(), markdown), 74).join("\n  "));
    if !case.is_empty() {
        let lines = wrap(&words(&case, markdown), 70).join(if markdown { "\n  " } else { "\n      " });
        let _ = writeln!(
            out,
            "{}",
            if markdown { format!("  ({lines})") } else { ui.paint(Style::Quiet, &format!("      {lines}")) }
        );
    }
    for text in instructions_of(d, observed) {
        let style = if text.starts_with('-') { Style::Left } else { Style::Right };
        let _ = if markdown {
            writeln!(out, "  {}", code_span(&text))
        } else {
            writeln!(out, "{}", ui.paint(style, &format!("    {}", printable(&text))))
        };
    }
}

/// Differences of one kind that are shown; a frame with another layout has dozens.
const SHOWN: usize = 10;
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
    let mut out = format!("- {}\n+ {}\n\n", printable(texts[0]), printable(texts[1]));
    let mut count = 0;
    let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let [was, is] = [&left, &right].map(|side| side.get(key).map_or("not judged", String::as_str));
        if was != is {
            count += 1;
            let style = if is == "fail" { Style::Left } else { Style::Right };
            let line = wrap(&printable(&format!("{key}: {is}; it was {was}")), 78).join("\n    ");
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
