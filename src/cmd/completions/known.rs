//! What is known of the values of options, for completion scripts: by the names that the values have in help.

use std::collections::BTreeSet;

use clap::Command;
use clap::builder::{PossibleValuesParser, ValueParser};
use codegen::ask::spec::{Clock, Events, Form};
use codegen::profile::Convention;
use codegen::words::error::Result;
use tool::asked::{AROUND, DIRECT, PROGRAMS, RECORD, SLED};

/// The definition of the command line, with all values that are known for completion. It is for scripts alone: other values,
/// such as files, globs and numbers, are valid too.
///
/// # Errors
/// None that an installed tool has.
pub fn with_known_values(definition: Command) -> Result<Command> {
    let mut commands = Vec::new();
    for command in definition.get_subcommands() {
        let name = command.get_name().to_owned();
        let mut known = Vec::new();
        for arg in command.get_arguments() {
            let Some([value, ..]) = arg.get_value_names() else { continue };
            let values = values(value, &name)?;
            if !values.is_empty() {
                known.push((arg.get_id().clone(), values));
            }
        }
        commands.push((name, known));
    }
    // clap wants names that live as long as the program, which ends when the script is printed.
    let parser = |values: BTreeSet<String>| {
        let values = values.into_iter().map(|value| &*value.leak());
        ValueParser::from(PossibleValuesParser::new(values.collect::<Vec<&'static str>>()))
    };
    Ok(commands.into_iter().fold(definition, |definition, (name, known)| {
        definition.mut_subcommand(name, |command| {
            known.into_iter().fold(command, |command, (id, values)| {
                command.mut_arg(id, |arg| arg.value_parser(parser(values)).value_delimiter(None))
            })
        })
    }))
}

/// What there is for values that help calls `name`, in `command`; nothing where anything goes.
fn values(name: &str, command: &str) -> Result<BTreeSet<String>> {
    let all = ["check", "mutate", "cost"].contains(&command);
    Ok(match name {
        "ARCH" => arches().chain(all.then(|| "all".to_owned())).collect(),
        "NAME|FILE.toml" => profiles::names().into_iter().map(str::to_owned).collect(),
        "TRAMPOLINE" if command == "mutate" => trampolines()?.into_iter().chain(bugs()?).collect(),
        "TRAMPOLINE" => trampolines()?,
        "FORM" => names(&Form::ALL.map(Form::name)),
        "EVENTS" => names(&Events::ALL.map(Events::name)),
        "CLOCK" => names(&Clock::ALL.map(Clock::name)),
        "CLAUSE" => clauses()?.into_iter().chain(bugs()?).collect(),
        "OPTION=VALUE" => {
            let options = conventions()?.into_iter().flat_map(|c| c.offered().map(|(_, option)| option));
            options.flat_map(|o| o.values.iter().map(move |value| format!("{}={value}", o.name))).collect()
        }
        "LEFT" | "RIGHT" => {
            let trampolines = trampolines()?;
            arches().flat_map(|arch| trampolines.iter().map(move |t| format!("{arch}:{t}"))).collect()
        }
        _ => BTreeSet::new(),
    })
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn arches() -> impl Iterator<Item = String> {
    tool::BACKENDS.iter().map(|backend| backend.facts().name.to_owned())
}

/// Every profile on every architecture that it has.
fn conventions() -> Result<Vec<&'static Convention>> {
    let mut all = Vec::new();
    for name in profiles::names() {
        all.extend(&tool::profile(name)?.conventions);
    }
    Ok(all)
}

fn trampolines() -> Result<BTreeSet<String>> {
    let named = conventions()?.into_iter().flat_map(|c| c.trampolines.iter().map(|t| t.symbol));
    Ok(named.chain([DIRECT, AROUND, PROGRAMS, RECORD, SLED]).map(str::to_owned).collect())
}

#[cfg(feature = "judge")]
fn clauses() -> Result<Vec<String>> {
    Ok(tool::explain::pages()?.into_iter().map(|page| page.name).collect())
}

#[cfg(feature = "judge")]
fn bugs() -> Result<Vec<String>> {
    let ids = tool::mutate::bugs::find("all")?.into_iter().map(|bug| bug.id.as_str()).chain(["all"]);
    Ok(ids.map(|id| format!("{}{id}", tool::mutate::bugs::BUG)).collect())
}

#[cfg(not(feature = "judge"))]
fn clauses() -> Result<Vec<String>> {
    Ok(Vec::new())
}

#[cfg(not(feature = "judge"))]
fn bugs() -> Result<Vec<String>> {
    Ok(Vec::new())
}
