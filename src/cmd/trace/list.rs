//! `trace list`: what of a program can be traced, and how.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use codegen::arch::entry::Class;
use codegen::words::error::{Error, Result};
use session::debug_info::{Kind, Number};
use session::object::Object;
use session::prototypes;
use session::signature::Signature;
use tool::printed::{self, printable};

use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::input;
use crate::cmd::shared::ui::{Format, Ui};

/// Arguments of `trace list`.
#[derive(Args)]
pub struct ListArgs {
    /// A program or a shared library
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// List functions without a site of a compiler too, which `trace --any` records
    #[arg(long)]
    any: bool,
    /// Show the arguments and the result that `trace --args --result` records of each function, and why others are left out
    #[arg(long)]
    args: bool,
    /// The output's format
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

#[derive(serde::Serialize)]
struct Row<'a> {
    function: &'a str,
    address: u64,
    bytes: u64,
    /// `site`, or what may be written at an entry for which no compiler has left room: `word`, `short`, `trap` or `refused`.
    class: &'static str,
    /// `shadow`, `entry` or `none`.
    form: &'static str,
    reason: &'a str,
    /// What is recorded of its arguments and its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Values<'a>>,
}

/// The values that are recorded of a function, with their kinds, and what is left out, with the reason.
#[derive(serde::Serialize)]
struct Values<'a> {
    arguments: Vec<Shown<'a>>,
    result: Shown<'a>,
}

/// A value.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    /// What is recorded: `signed 4`, `pointer 8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<String>,
    /// Why nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<&'static str>,
}

impl<'a> Shown<'a> {
    fn new(name: &'a str, number: std::result::Result<Number, &'static str>) -> Shown<'a> {
        let kind = |number: Number| match number.kind {
            Kind::Signed => "signed",
            Kind::Unsigned => "unsigned",
            Kind::Pointer => "pointer",
            Kind::Boolean => "boolean",
        };
        let recorded = number.ok().map(|number| format!("{} {}", kind(number), number.bytes));
        Shown { name, recorded, left_out: number.err() }
    }

    fn text(&self) -> String {
        let what = match (&self.recorded, self.left_out) {
            (Some(recorded), _) => recorded.clone(),
            (None, why) => format!("- {}", why.unwrap_or_default()),
        };
        if self.name.is_empty() { what } else { format!("{}: {what}", printable(self.name)) }
    }
}

impl<'a> Values<'a> {
    fn new(signature: &'a Signature) -> Values<'a> {
        let arguments = match &signature.parameters {
            Ok(all) => all.iter().map(|p| Shown::new(&p.name, p.word.map(|(_, number)| number))).collect(),
            Err(why) => vec![Shown::new("", Err(*why))],
        };
        Values { arguments, result: Shown::new("", signature.result) }
    }

    fn text(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(Shown::text).collect();
        format!("({}) = {}", arguments.join(", "), self.result.text())
    }
}

const SITE: &str = "site";
const RETURNS: &str = "a site of a compiler";
const ANY: &str = "no site, but a branch fits";

/// List.
///
/// # Errors
/// The file cannot be read, is damaged or for another machine.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<u8> {
    let name = args.file.display().to_string();
    let bytes = input::bytes(&args.file).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
    let backend = tool::backend_of(&link::Input { name: &name, bytes: &bytes })?;
    let mut object = Object::read(&args.file, args.any, backend)?;
    if args.args {
        prototypes::read(&mut object, backend)?;
    }
    let why = object.entries_alone.map_or(String::new(), |why| format!("; the object {why}"));
    let form = if why.is_empty() { "shadow" } else { "entry" };
    let (site, any) = (format!("{RETURNS}{why}"), format!("{ANY}{why}"));
    let traced = object.functions.iter().map(|f| {
        let entry = f.entries.first().map(|entry| entry.class.name());
        let reason = if entry.is_some() { &any } else { &site };
        let values = f.signature.as_ref().map(Values::new);
        Row { function: &f.name, address: f.address, bytes: f.size, class: entry.unwrap_or(SITE), form, reason, values }
    });
    let refused = object.refused.iter().map(|r| {
        let class = r.class.map_or(SITE, Class::name);
        Row { function: &r.name, address: 0, bytes: 0, class, form: "none", reason: r.why, values: None }
    });
    let rows: Vec<Row> = traced.chain(refused).collect();
    match args.format {
        Format::Human => ui.out(human(&rows, args.any, object.entries_alone))?,
        Format::Json => ui.out(printed::json(&rows)?)?,
    }
    Ok(DONE)
}

fn human(rows: &[Row], any: bool, entries_alone: Option<&str>) -> String {
    if rows.is_empty() && any {
        return "no functions: the file has no symbol table, or none of code\n".to_owned();
    }
    if rows.is_empty() {
        return "no sites: compile with -fpatchable-function-entry=5 (gcc, clang), or try --any\n".to_owned();
    }
    let class = |class: &str| if any { format!("{class:<8} ") } else { String::new() };
    let mut text = format!("{}{:<7} {:>8}  {}\n", class("Class"), "Form", "Bytes", "Function");
    for row in rows {
        let name =
            if row.function.is_empty() { format!("{:#x}", row.address) } else { printable(row.function).to_string() };
        let why = if row.form == "none" { format!(": {}", row.reason) } else { String::new() };
        let values = row.values.as_ref().map_or(String::new(), Values::text);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}{:<7} {:>8}  {name}{values}{why}", class(row.class), row.form, row.bytes);
    }
    let traced = rows.iter().filter(|row| row.form != "none").count();
    let _ = writeln!(text, "{traced} of {} functions can be traced", rows.len());
    if let Some(why) = entries_alone.filter(|_| traced > 0) {
        let _ = writeln!(text, "entries alone: the object {why}");
    }
    text
}
