//! `check --marks`: what objects promise of their protection, held against their code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use codegen::words::error::{Error, Result};
use emu_tests::{Mark, MarkReason, MarkVerdict, MarkedObject, MarkedUnit, MarksReport, marks};
use link::{Input, backend_of};
use rayon::prelude::*;
use tool::printed::{json, printable};

use crate::cmd::report::ReportArgs;
use crate::cmd::shared::exit::{DIFFERS, DONE};
use crate::cmd::shared::files::{Files, Unit, is_object};
use crate::cmd::shared::sandbox::SandboxArg;
use crate::cmd::shared::ui::{Format, Style, Ui, wrap};

/// Reasons of one mark that people are shown; JSON has all.
const SHOWN: usize = 3;

/// Judge the notes of these files.
///
/// # Errors
/// A file cannot be read, is damaged, or has no object for a known machine.
pub fn run(paths: &[PathBuf], sandbox: &SandboxArg, report: &ReportArgs, ui: &Ui) -> Result<u8> {
    let format = report.plain("marks")?;
    let units: Vec<Unit> = Files::of(paths, is_object)?.units().collect();
    if units.is_empty() {
        return Err(Error::new(
            "no object for a machine that is known here; valid: objects (.o), archives (.a), .deb, or folders of them",
        ));
    }
    let _threads = sandbox.enter(report.output())?;
    let units = units.into_par_iter().map(judged).collect::<Result<Vec<_>>>()?;
    let wrong = units.iter().flat_map(marks_of).any(|mark| mark.verdict != MarkVerdict::Right);
    let text = match format {
        Format::Human => human(&units, ui),
        Format::Json => json(&MarksReport { schema: "marks-1", units })?,
    };
    report.write(text, ui)?;
    Ok(if wrong { DIFFERS } else { DONE })
}

fn judged(unit: Unit) -> Result<MarkedUnit> {
    let inputs: Vec<Input> = unit.objects.iter().map(|(name, bytes)| Input { name, bytes }).collect();
    let first = inputs.first().ok_or_else(|| Error::new(format!("{}: it has no object", unit.name)))?;
    let objects = marks(&inputs, backend_of(first, tool::BACKENDS)?)?;
    Ok(MarkedUnit { file: unit.name, objects })
}

/// What stands before the names of a unit's objects.
fn prefix(unit: &MarkedUnit) -> String {
    if unit.file.is_empty() { String::new() } else { format!("{}: ", printable(&unit.file)) }
}

fn marks_of(unit: &MarkedUnit) -> impl Iterator<Item = &Mark> {
    unit.objects.iter().flat_map(|object| &object.marks)
}

fn human(units: &[MarkedUnit], ui: &Ui) -> String {
    let mut out = String::new();
    for unit in units {
        for object in &unit.objects {
            let wrong = |mark: &&Mark| matches!(mark.verdict, MarkVerdict::False | MarkVerdict::NotDecided);
            if object.marks.iter().any(|mark| wrong(&mark)) {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{}{} ({})", prefix(unit), printable(&object.object), object.arch);
            }
            object.marks.iter().filter(wrong).for_each(|mark| wrongly(mark, ui, &mut out));
        }
        missing(unit, ui, &mut out);
    }
    let objects: Vec<&MarkedObject> = units.iter().flat_map(|unit| &unit.objects).collect();
    let right = objects.iter().filter(|o| o.marks.iter().all(|mark| mark.verdict == MarkVerdict::Right)).count();
    let count = |verdict| units.iter().flat_map(marks_of).filter(|mark| mark.verdict == verdict).count();
    let [wrong, missing, open] = [MarkVerdict::False, MarkVerdict::Missing, MarkVerdict::NotDecided].map(count);
    let _ = writeln!(
        out,
        "{} objects, {right} of them with the right marks; of the others' marks {wrong} are false, {missing} missing, {open} not decided",
        objects.len()
    );
    out
}

/// A mark that is there, and false or not decided.
fn wrongly(mark: &Mark, ui: &Ui, out: &mut String) {
    let (style, word) = match mark.verdict {
        MarkVerdict::False => (Style::Left, "is promised, and not true"),
        _ => (Style::Heading, "is promised; whether it is true was not decided"),
    };
    let _ = writeln!(out, "  {} {word}", ui.paint(style, mark.name));
    // What is certain comes first; what leaves it open besides is of no interest then.
    let certain: Vec<&MarkReason> = mark.reasons.iter().filter(|reason| reason.certain).collect();
    let reasons = if certain.is_empty() { mark.reasons.iter().collect() } else { certain };
    let mut said = "";
    for reason in reasons.iter().take(SHOWN) {
        if said != reason.what {
            paragraph(&reason.what, "    ", ui, out);
        }
        said = &reason.what;
        if !reason.function.is_empty() {
            let place = format!("{}+{:#x}", printable(&reason.function), reason.offset);
            let _ = writeln!(out, "      {}", format!("{place}  {}", printable(&reason.instruction)).trim_end());
        }
    }
    if reasons.len() > SHOWN {
        let _ = writeln!(out, "      and {} more", reasons.len() - SHOWN);
    }
}

/// The marks that a unit's objects could have and have not, by mark.
fn missing(unit: &MarkedUnit, ui: &Ui, out: &mut String) {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for object in &unit.objects {
        for mark in object.marks.iter().filter(|mark| mark.verdict == MarkVerdict::Missing) {
            names.entry(mark.name).or_default().push(&object.object);
        }
    }
    for (mark, objects) in names {
        let unit = if unit.file.is_empty() { String::new() } else { format!("{} ", printable(&unit.file)) };
        let _ = writeln!(out, "{unit}{} is true, and not promised", ui.paint(Style::Heading, mark));
        paragraph("a program that these objects are linked into loses it", "    ", ui, out);
        let shown = objects.iter().take(SHOWN).map(|name| printable(name)).collect::<Vec<_>>().join(", ");
        let more = if objects.len() > SHOWN { format!(", and {} more", objects.len() - SHOWN) } else { String::new() };
        paragraph(&format!("{shown}{more}"), "      ", ui, out);
    }
}

/// Lines that fit, behind these blanks.
fn paragraph(text: &str, blanks: &str, ui: &Ui, out: &mut String) {
    for line in wrap(&printable(text), ui.columns().saturating_sub(blanks.len())) {
        let _ = writeln!(out, "{blanks}{line}");
    }
}
