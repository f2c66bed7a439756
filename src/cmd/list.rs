//! `list`: what there is to choose from.

use std::fmt::Write;

use clap::Args;
use codegen::ask::option::OptionInfo;
use codegen::ask::spec::{Around, Clock, Direct, Events, Form, Kind, Programs, Recorder};
use codegen::backend::Backend;
use codegen::profile::target::Target;
use codegen::profile::{Convention, OptionRule, Profile};
use codegen::words::error::{Error, Result};
use serde::Serialize;
use tool::asked::{AROUND, DIRECT, PROGRAMS, RECORD, SLED};
use tool::settings::option;

use super::shared::args::ProfileArg;
use super::shared::exit::DONE;
use super::shared::ui::{Format, Style, Ui};

/// Arguments of `list`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Only this architecture
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    #[command(flatten)]
    profile: ProfileArg,
    /// The contracts that come with the tool: for which objects, of which configuration, with which trampolines
    #[cfg(feature = "judge")]
    #[arg(long, conflicts_with = "profile")]
    contracts: bool,
    /// The output's format
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  tramptool list
  tramptool list --contracts --arch x86_64
  tramptool list --arch aarch64 --format json";

#[derive(Serialize)]
struct List {
    version: &'static str,
    profiles: Vec<&'static str>,
    profile: &'static str,
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
    about: String,
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

const ANY_DIRECT: Kind = Kind::Direct(Direct { args: 0, ip: false, live: None, jumped: false });
const ANY_AROUND: Kind = Kind::Around(Around { form: Form::Frame, args: 0, general_handlers: false });
const ANY_RECORD: Kind = Kind::Record(Recorder::new(Events::Both, Clock::None, 0));

/// List.
///
/// # Errors
/// An unknown architecture.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<u8> {
    #[cfg(feature = "judge")]
    if args.contracts {
        return contracts(args, ui);
    }
    let profile = args.profile.find()?;
    let has = |b: &&dyn Backend| profile.convention(b.facts().name).is_ok();
    let backends = match &args.arch {
        Some(name) => vec![tool::backend(name)?],
        None => tool::BACKENDS.iter().copied().filter(|b| has(&&**b)).collect(),
    };
    let targets = backends.iter().map(|b| {
        let convention = profile.convention(b.facts().name)?;
        b.target(convention, convention.defaults())
    });
    let targets = targets.collect::<Result<Vec<_>>>()?;
    match args.format {
        Format::Human => ui.out(human(profile, &targets, ui))?,
        Format::Json => ui.out(tool::printed::json(&List {
            version: env!("CARGO_PKG_VERSION"),
            profiles: profiles::names(),
            profile: profile.name,
            architectures: targets.iter().map(architecture).collect::<Result<_>>()?,
        })?)?,
    }
    Ok(DONE)
}

/// List the contracts that come with the tool.
#[cfg(feature = "judge")]
fn contracts(args: &ListArgs, ui: &Ui) -> Result<u8> {
    let arch = args.arch.as_deref().map(tool::backend).transpose()?.map(|backend| backend.facts().name);
    let mut all = tool::contracts::shipped()?;
    all.retain(|contract| arch.is_none_or(|arch| contract.arch == arch));
    if args.format == Format::Json {
        return ui.out(tool::printed::json(&all)?).map(|()| DONE);
    }
    let mut out = String::new();
    for tool::contracts::Shipped { name, about, config, trampolines, .. } in &all {
        let mut symbols: Vec<&str> = trampolines.iter().map(|t| t.symbol.as_str()).collect();
        symbols.dedup();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", ui.paint(Style::Heading, name));
        let with = (!config.is_empty()).then(|| format!("chosen by --kernel-build with {}", config.join(" ")));
        for text in [Some(about.clone()), with, Some(symbols.join(", "))].into_iter().flatten() {
            out += &(described("", 0, &text).join("\n") + "\n");
        }
    }
    ui.out(out).map(|()| DONE)
}

/// The names and kinds of the trampolines of a profile.
fn kinds(convention: &Convention) -> impl Iterator<Item = (&'static str, Kind)> {
    let jumps = !convention.site.protocol.jump.is_empty();
    let programs = if jumps { Programs::CALL_ORIG } else { Programs { skip_frame: true, ..Programs::CALL_ORIG } };
    let programs = (PROGRAMS, Kind::Programs(programs));
    let for_one =
        [(DIRECT, ANY_DIRECT), (AROUND, ANY_AROUND), programs, (RECORD, ANY_RECORD), (SLED, Kind::Sled)].into_iter();
    // What a site jumps to is for sites that jump.
    let for_one = for_one.filter(move |(_, kind)| jumps || !kind.jumped_to());
    let for_one = for_one.filter(|(_, kind)| convention.thread.is_some() || !kind.is_in_the_middle());
    convention.specs().map(|s| (s.name, s.kind)).chain(for_one)
}

/// Those that an option changes.
fn changed(option: &OptionInfo, convention: &Convention) -> Vec<&'static str> {
    kinds(convention).filter(|(_, kind)| convention.changes(option, *kind)).map(|(name, _)| name).collect()
}

fn architecture(target: &Target) -> Result<Architecture> {
    let (facts, convention) = (target.facts, target.convention);
    let trampoline = |(name, kind): (&'static str, Kind)| {
        Ok(Trampoline {
            name,
            about: convention.about(kind),
            labels: labels(name, kind, target)?,
            options: convention.offered().filter(|(_, o)| convention.changes(o, kind)).map(|(_, o)| o.name).collect(),
            most_arguments: [ANY_DIRECT, ANY_AROUND].contains(&kind).then_some(facts.abi.args.len()),
        })
    };
    let option = |(rule, o): (&OptionRule, &'static OptionInfo)| OptionOut {
        name: o.name,
        default: o.values.get(rule.default).copied().unwrap_or_default(),
        values: o.values,
        about: o.about,
        trampolines: changed(o, convention),
    };
    Ok(Architecture {
        name: facts.name,
        aliases: facts.aliases,
        machine: facts.machine,
        argument_registers: facts.abi.args.iter().map(|&r| facts.abi.name(r)).collect(),
        trampolines: kinds(convention).map(trampoline).collect::<Result<_>>()?,
        options: convention.offered().map(option).collect(),
        numbers: target
            .symbols()
            .into_iter()
            .filter_map(|name| Some(Number { name, value: target.value(name)? }))
            .collect(),
    })
}

/// The global labels inside this kind of trampoline.
fn labels(name: &str, kind: Kind, target: &Target) -> Result<Vec<String>> {
    let mut plan = codegen::plan::Plan::default();
    let spec = codegen::ask::spec::Spec::of(name, kind);
    match plan.make(&spec, target) {
        Ok(()) => {}
        // The profile has no such trampoline under these options.
        Err(e) if matches!(e.kind(), Error::Absent { .. }) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    }
    let label = plan.steps.iter().filter_map(|s| match s {
        codegen::words::step::Step::KernelLabel(label) if target.convention.has_label(*label) => Some(*label),
        _ => None,
    });
    let mut names: Vec<String> = label.map(|i| target.convention.label(i, name, kind).concat()).collect();
    names.dedup();
    Ok(names)
}

fn human(profile: &Profile, targets: &[Target], ui: &Ui) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", text.trim_end());
    };
    let names: Vec<String> = profiles::names().into_iter().map(|n| marked(n, n == profile.name)).collect();
    line(format!("{} {}", ui.paint(Style::Heading, "profiles"), names.join(", ")));
    line(String::new());
    line(ui.paint(Style::Heading, "trampolines"));
    let Some(first) = targets.first() else { return out };
    let width = kinds(first.convention).map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, kind) in kinds(first.convention) {
        described(name, width, &first.convention.about(kind)).into_iter().for_each(&mut line);
    }
    for target in targets {
        let (facts, convention) = (target.facts, target.convention);
        line(String::new());
        line(format!("{}, also {}", ui.paint(Style::Heading, facts.name), facts.aliases.join(", ")));
        let those = |names: &[&str]| {
            let there = names.iter().filter(|name| kinds(convention).any(|(there, _)| there == **name));
            there.copied().collect::<Vec<_>>().join(", ")
        };
        line(format!("  {}: --args 0 to {}", those(&[DIRECT, AROUND]), facts.abi.args.len()));
        line(format!("  {}: --sig with a C prototype", those(&[DIRECT, AROUND, PROGRAMS, RECORD])));
        let width = convention.offered().map(|(rule, o)| option(rule, o).len()).max().unwrap_or(0);
        for (rule, o) in convention.offered() {
            described(&option(rule, o), width, o.about).into_iter().for_each(&mut line);
            let (changed, all) = (changed(o, convention), kinds(convention).count());
            let changed = if changed.len() == all { "every trampoline".to_owned() } else { changed.join(", ") };
            let lines = described("", width, &format!("changes {changed}"));
            lines.iter().for_each(|text| line(ui.paint(Style::Quiet, text)));
        }
        if !target.numbers.is_empty() {
            let numbers: Vec<String> = target.numbers.iter().map(|n| format!("{}={}", n.symbol, n.value)).collect();
            line(format!("  {}", numbers.join(", ")));
        }
    }
    line(String::new());
    line("--set takes options (default first) and numbers; frame offsets are numbers too:".to_owned());
    line("see --format json.".to_owned());
    out
}

/// Columns of a terminal.
const WIDTH: usize = 80;

/// A name in a column of `width`, and what it is, in as many lines as that needs.
fn described(name: &str, width: usize, text: &str) -> Vec<String> {
    let indent = width + 4;
    let mut lines = vec![format!("  {name:<width$} ")];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() < indent || line.chars().count() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines
}

/// The profile whose things are listed has brackets, where there are several.
fn marked(name: &str, this: bool) -> String {
    if this && profiles::names().len() > 1 { format!("[{name}]") } else { name.to_owned() }
}
