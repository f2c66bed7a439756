//! `list`: what there is to choose from.

use std::fmt::Write;

use clap::Args;
use codegen::backend::Backend;
use codegen::error::Result;
use codegen::option::{Choices, OptionInfo};
use codegen::spec::{Around, Direct, Form, Kind, NAMED};
use codegen::step::Inner;
use codegen::target::{PROFILES, Target};
use serde::Serialize;
use tramptool::args::{AROUND, DIRECT, PROGRAMS};
use tramptool::settings::option;

use super::exit::DONE;
use super::ui::{Format, Style, Ui};

/// Arguments of `list`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Only this architecture
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// How it is written
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  tramptool list
  tramptool list --arch aarch64 --format json";

#[derive(Serialize)]
struct List {
    version: &'static str,
    profiles: &'static [&'static str],
    architectures: Vec<Architecture>,
}

#[derive(Serialize)]
struct Architecture {
    name: &'static str,
    aliases: &'static [&'static str],
    machine: u16,
    argument_registers: Vec<&'static str>,
    trampolines: Vec<Trampoline>,
    options: Vec<OptionOut>,
    numbers: Vec<Number>,
}

#[derive(Serialize)]
struct Trampoline {
    name: &'static str,
    about: &'static str,
    labels: Vec<String>,
    options: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_arguments: Option<usize>,
}

#[derive(Serialize)]
struct OptionOut {
    name: &'static str,
    default: &'static str,
    values: &'static [&'static str],
    about: &'static str,
    trampolines: Vec<&'static str>,
}

#[derive(Serialize)]
struct Number {
    name: &'static str,
    value: i32,
}

const ANY_DIRECT: Kind = Kind::Direct(Direct { args: 0, ip: false, live: None });
const ANY_AROUND: Kind = Kind::Around(Around { form: Form::Frame, args: 0 });
const ANY_PROGRAMS: Kind = Kind::Programs(tramptool::suite::CALL_ORIG);

/// List.
///
/// # Errors
/// An unknown architecture.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<u8> {
    let backends = match &args.arch {
        Some(name) => vec![tramptool::backend(name)?],
        None => tramptool::BACKENDS.to_vec(),
    };
    match args.format {
        Format::Human => ui.out(human(&backends, ui))?,
        Format::Json => ui.out(tramptool::report::json(&List {
            version: env!("CARGO_PKG_VERSION"),
            profiles: PROFILES,
            architectures: backends.iter().map(|b| architecture(*b)).collect(),
        })?)?,
    }
    Ok(DONE)
}

fn kinds() -> impl Iterator<Item = Kind> {
    NAMED.iter().copied().chain([ANY_DIRECT, ANY_AROUND, ANY_PROGRAMS])
}

fn options_of(kind: Kind, options: &'static [OptionInfo]) -> Vec<&'static str> {
    options.iter().filter(|o| (o.applies)(kind)).map(|o| o.name).collect()
}

fn architecture(backend: &dyn Backend) -> Architecture {
    let facts = backend.facts();
    let target = backend.target(Choices::default());
    let trampoline = |kind: Kind| Trampoline {
        name: kind.symbol(),
        about: kind.about(),
        labels: labels(kind, &target),
        options: options_of(kind, facts.options),
        most_arguments: [ANY_DIRECT, ANY_AROUND].contains(&kind).then_some(facts.abi.args.len()),
    };
    let option = |o: &OptionInfo| OptionOut {
        name: o.name,
        default: o.values.first().copied().unwrap_or_default(),
        values: o.values,
        about: o.about,
        trampolines: kinds().filter(|&k| (o.applies)(k)).map(Kind::symbol).collect(),
    };
    Architecture {
        name: facts.name,
        aliases: facts.aliases,
        machine: facts.machine,
        argument_registers: facts.abi.args.iter().map(|&r| facts.abi.name(r)).collect(),
        trampolines: kinds().map(trampoline).collect(),
        options: facts.options.iter().map(option).collect(),
        numbers: target.symbols().into_iter().map(|name| Number { name, value: value(name, &target) }).collect(),
    }
}

/// The global labels inside this kind of trampoline.
fn labels(kind: Kind, target: &Target) -> Vec<String> {
    let mut plan = codegen::plan::Plan::default();
    let spec = codegen::spec::Spec::named(kind);
    if plan.make(&spec, target).is_err() {
        return Vec::new();
    }
    let inner = plan.steps.iter().filter_map(|s| match s {
        codegen::step::Step::Inner(inner) if target.facts.inner.contains(inner) => Some(*inner),
        _ => None,
    });
    let mut names: Vec<String> = inner.map(|i: Inner| i.symbol(kind.symbol(), kind).concat()).collect();
    names.dedup();
    names
}

/// The value of a number, or the offset of the frame slot of that name.
fn value(name: &str, target: &Target) -> i32 {
    let frames = [&target.args_frame, &target.all_frame, &target.exit_frame];
    let mut fields = frames.iter().flat_map(|f| &f.fields);
    fields.find(|f| f.symbol == name).map_or_else(|| target.number(name), |f| f.offset)
}

fn human(backends: &[&dyn Backend], ui: &Ui) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line(format!("{} {}", ui.paint(Style::Heading, "profiles"), PROFILES.join(", ")));
    line(String::new());
    line(ui.paint(Style::Heading, "trampolines"));
    let width = kinds().map(|k| k.symbol().len()).max().unwrap_or(0);
    for kind in kinds() {
        line(format!("  {:<width$}  {}", kind.symbol(), kind.about()));
    }
    for backend in backends {
        let facts = backend.facts();
        line(String::new());
        line(format!("{}, also {}", ui.paint(Style::Heading, facts.name), facts.aliases.join(", ")));
        line(format!(
            "  {DIRECT}, {AROUND}: --args 0 to {}; {DIRECT}, {AROUND}, {PROGRAMS}: --sig with a C prototype",
            facts.abi.args.len()
        ));
        let width = facts.options.iter().map(|o| option(o).len()).max().unwrap_or(0);
        for o in facts.options {
            line(format!("  {:<width$}  {}", option(o), o.about));
            let changed: Vec<&str> = kinds().filter(|&k| (o.applies)(k)).map(Kind::symbol).collect();
            let all = kinds().count();
            let changed = if changed.len() == all { "every trampoline".to_owned() } else { changed.join(", ") };
            line(ui.paint(Style::Quiet, &format!("  {:<width$}  changes {changed}", "")));
        }
        let target = backend.target(Choices::default());
        if !target.numbers.is_empty() {
            let numbers: Vec<String> = target.numbers.iter().map(|n| format!("{}={}", n.symbol, n.value)).collect();
            line(format!("  {}", numbers.join(", ")));
        }
    }
    line(String::new());
    line(
        "--set takes options (default first) and numbers; frame offsets are numbers too: see --format json.".to_owned(),
    );
    out
}
