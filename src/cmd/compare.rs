//! `diff` where a side is a file: what the two do differently, as it was observed by running them.

use std::fmt::Write;

use codegen::error::{Error, Result};
use emu_tests::{Difference, Observed, Severity, differences, observe};
use link::Input;
use serde::Serialize;

use super::exit::{DIFFERS, DONE};
use super::side::{Subject, file, subject};
use super::ui::{Format, Style, Ui};

/// Run a file's code, or code that is generated.
///
/// # Errors
/// There is none, or it cannot be run.
pub fn observed(text: &str) -> Result<Observed> {
    match file(text) {
        Some((path, symbol)) => {
            let bytes = std::fs::read(&path).map_err(|e| Error::new(format!("cannot read {text}: {e}")))?;
            of_object(&Input { name: &path.display().to_string(), bytes: &bytes }, symbol)
        }
        None => {
            let Subject { name, object, .. } = subject(text)?;
            of_object(&Input { name: text, bytes: &object }, Some(&name))
        }
    }
}

fn of_object(object: &Input, symbol: Option<&str>) -> Result<Observed> {
    let orc = tool::convention(tool::backend_of(object)?)?.orc;
    observe(object, symbol, tool::BACKENDS, orc)
}

/// What a report for programs has.
#[derive(Serialize)]
struct Document {
    left: Observed,
    right: Observed,
    differences: Vec<Difference>,
}

/// Compare by what the two do; `exact` asks for the same cost and layout too.
///
/// # Errors
/// A side cannot be run, or they are of two architectures.
pub fn run(texts: [&str; 2], exact: bool, format: Format, ui: &Ui) -> Result<u8> {
    let [left, right] = texts;
    let (left, right) = (observed(left)?, observed(right)?);
    if left.arch != right.arch {
        let message = format!("{} is for {}, {} for {}", texts[0], left.arch, texts[1], right.arch);
        return Err(Error::new(format!("{message}; valid: two of one architecture, or two that are generated")));
    }
    let all = differences(&left, &right, &tool::backend(left.arch)?.facts().abi);
    let same = !all.iter().any(|d| exact || d.severity.is_behaviour());
    let out = match format {
        Format::Human => human(texts, [&left, &right], &all, ui),
        Format::Json => tool::report::json(&Document { left, right, differences: all })?,
    };
    ui.out(out)?;
    Ok(if same { DONE } else { DIFFERS })
}

/// The verdict, then the differences by whom they concern.
fn human(texts: [&str; 2], observed: [&Observed; 2], all: &[Difference], ui: &Ui) -> String {
    let mut out = format!(
        "{}\n{}\n\n",
        ui.paint(Style::Left, &format!("- {}", texts[0])),
        ui.paint(Style::Right, &format!("+ {}", texts[1]))
    );
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "{}", verdict(observed, all));
    for better in [false, true] {
        for severity in Severity::ALL {
            let these: Vec<&Difference> = all.iter().filter(|d| (d.severity, d.better) == (severity, better)).collect();
            if these.is_empty() {
                continue;
            }
            let title = if better { severity.concerns() } else { severity.words() };
            let _ = writeln!(out, "\n{}", ui.paint(Style::Heading, title));
            for d in these {
                difference(d, observed, ui, &mut out);
            }
        }
    }
    out
}

/// One line: the same in behaviour or not, and how often it was run.
fn verdict(observed: [&Observed; 2], all: &[Difference]) -> String {
    let behaviour = all.iter().filter(|d| d.severity.is_behaviour()).count();
    let verdict = match behaviour {
        0 if all.is_empty() => "the same".to_owned(),
        0 => "the same in behaviour".to_owned(),
        1 => "1 difference of behaviour".to_owned(),
        n => format!("{n} differences of behaviour"),
    };
    format!("{verdict}, in {} and {} runs", observed[0].runs, observed[1].runs)
}

/// What it is, in which case, and the instructions.
fn difference(d: &Difference, observed: [&Observed; 2], ui: &Ui, out: &mut String) {
    for line in wrap(&d.text, 76) {
        let _ = writeln!(out, "  {line}");
    }
    let case = match d.when.as_slice() {
        [] => String::new(),
        [only] if only == PLAINLY => String::new(),
        [only] => format!("if {only}"),
        [first, rest @ ..] if first == PLAINLY => format!("always, and in {} more cases", rest.len()),
        [first, rest @ ..] => format!("if {first}, and in {} more cases", rest.len()),
    };
    for line in wrap(&case, 72).iter().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "      {}", ui.paint(Style::Quiet, line));
    }
    for (mark, style, at, observed) in
        [('-', Style::Left, d.left, observed[0]), ('+', Style::Right, d.right, observed[1])]
    {
        if let Some(line) = at.and_then(|at| observed.lines.iter().find(|line| line.at == at)) {
            let text = format!("    {mark} {:4x}  {}", line.at, line.text);
            let _ = writeln!(out, "{}", ui.paint(style, &text));
        }
    }
}

/// The run in which nothing is unusual.
const PLAINLY: &str = "plainly";

/// Lines of so many characters at most.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.len() + 1 + word.len() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
