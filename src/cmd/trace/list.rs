//! `trace list`: what of a program can be traced, and how.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use codegen::arch::entry::Class;
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
    /// List functions without a site of a compiler too, which `trace --any` records
    #[arg(long)]
    any: bool,
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
}

const SITE: &str = "site";
const RETURNS: &str = "a site of a compiler";
const ENTRIES: &str = "a site of a compiler; an exception may pass the function, so its return is not recorded";
const ANY: &str = "no site, but a branch fits";
const ANY_ENTRIES: &str =
    "no site, but a branch fits; an exception may pass the function, so its return is not recorded";

/// List.
///
/// # Errors
/// The file cannot be read, is damaged or for another machine.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<u8> {
    let name = args.file.display().to_string();
    let bytes = input::bytes(&args.file).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
    let backend = tool::backend_of(&link::Input { name: &name, bytes: &bytes })?;
    let object = Object::read(&args.file, args.any, backend)?;
    let (form, site, any) = if object.unwinds { ("entry", ENTRIES, ANY_ENTRIES) } else { ("shadow", RETURNS, ANY) };
    let traced = object.functions.iter().map(|f| {
        let entry = f.entries.first().map(|entry| entry.class.name());
        let reason = if entry.is_some() { any } else { site };
        Row { function: &f.name, address: f.address, bytes: f.size, class: entry.unwrap_or(SITE), form, reason }
    });
    let refused = object.refused.iter().map(|r| {
        let class = r.class.map_or(SITE, Class::name);
        Row { function: &r.name, address: 0, bytes: 0, class, form: "none", reason: r.why }
    });
    let rows: Vec<Row> = traced.chain(refused).collect();
    match args.format {
        Format::Human => ui.out(human(&rows, args.any))?,
        Format::Json => ui.out(printed::json(&rows)?)?,
    }
    Ok(DONE)
}

fn human(rows: &[Row], any: bool) -> String {
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
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}{:<7} {:>8}  {name}{why}", class(row.class), row.form, row.bytes);
    }
    let traced = rows.iter().filter(|row| row.form != "none").count();
    let _ = writeln!(text, "{traced} of {} functions can be traced", rows.len());
    if rows.iter().any(|row| row.form == "entry") {
        let _ = writeln!(text, "entries alone: an exception may pass the functions, so their returns are not recorded");
    }
    text
}
