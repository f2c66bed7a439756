//! `trace list`: what of a program can be traced, and how.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use codegen::words::error::{Error, Result};
use session::object::Object;
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
    /// The output's format
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

#[derive(serde::Serialize)]
struct Row<'a> {
    function: &'a str,
    address: u64,
    bytes: u64,
    /// `shadow`, `entry` or `none`.
    form: &'static str,
    reason: &'a str,
}

const RETURNS: &str = "a site of a compiler";
const ENTRIES: &str = "a site of a compiler; the object has an unwinder of its own, which stops at trampolines";

/// List.
///
/// # Errors
/// The file cannot be read, is damaged or for another machine.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<u8> {
    let name = args.file.display().to_string();
    let bytes = input::bytes(&args.file).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
    let backend = tool::backend_of(&link::Input { name: &name, bytes: &bytes })?;
    let object = Object::read(&args.file, backend)?;
    let (form, reason) = if object.own_unwinder { ("entry", ENTRIES) } else { ("shadow", RETURNS) };
    let traced =
        object.functions.iter().map(|f| Row { function: &f.name, address: f.address, bytes: f.size, form, reason });
    let refused =
        object.refused.iter().map(|r| Row { function: &r.name, address: 0, bytes: 0, form: "none", reason: r.why });
    let rows: Vec<Row> = traced.chain(refused).collect();
    match args.format {
        Format::Human => ui.out(human(&rows))?,
        Format::Json => ui.out(printed::json(&rows)?)?,
    }
    Ok(DONE)
}

fn human(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no sites: compile with -fpatchable-function-entry=5 (gcc, clang)\n".to_owned();
    }
    let mut text = format!("{:<7} {:>8}  {}\n", "Form", "Bytes", "Function");
    for row in rows {
        let name =
            if row.function.is_empty() { format!("{:#x}", row.address) } else { printable(row.function).to_string() };
        let why = if row.form == "none" { format!(": {}", row.reason) } else { String::new() };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<7} {:>8}  {name}{why}", row.form, row.bytes);
    }
    let traced = rows.iter().filter(|row| row.form != "none").count();
    let _ = writeln!(text, "{traced} of {} functions can be traced", rows.len());
    if rows.iter().any(|row| row.form == "entry") {
        let _ = writeln!(text, "entries alone: the object has an unwinder of its own, which stops at trampolines");
    }
    text
}
