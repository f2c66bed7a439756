//! The C header of a template: its bytes, and the fields that a program fills in.

use askama::Template as _;
use codegen::out::template::{FixUp, Piece, Template};
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};

#[derive(askama::Template)]
#[template(path = "template.h", escape = "none")]
struct Header<'a> {
    version: &'static str,
    title: String,
    profile: &'static str,
    options: String,
    guard: String,
    name: &'a str,
    align: u32,
    entry: u32,
    /// The code, and the unwind entry.
    pieces: [Table; 2],
}

/// Bytes with fields, as two C arrays.
struct Table {
    name: String,
    lines: Vec<String>,
    size: usize,
    fix_ups_name: String,
    fix_ups: Vec<Row>,
}

impl Table {
    fn new(name: String, fix_ups_name: String, piece: &Piece, target: &Target) -> Table {
        let row = |f: &FixUp| Row {
            at: f.at,
            r_type: f.r_type,
            type_name: target.facts.relocation(f.r_type).unwrap_or_default(),
            symbol: format!("TRAMPTOOL_{}", f.of.name().to_uppercase()),
            place: f.place,
            addend: f.addend,
        };
        let line = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:#04x},")).collect::<Vec<_>>().join(" ");
        Table {
            name,
            lines: piece.bytes.chunks(12).map(line).collect(),
            size: piece.bytes.len(),
            fix_ups_name,
            fix_ups: piece.fix_ups.iter().map(row).collect(),
        }
    }

    /// C has no empty arrays.
    fn bytes_or_0(&self) -> &str {
        if self.size == 0 { "0" } else { &self.name }
    }

    fn fix_ups_or_0(&self) -> &str {
        if self.fix_ups.is_empty() { "0" } else { &self.fix_ups_name }
    }
}

/// A relocation of the template, as a row of its C table.
struct Row {
    at: u32,
    r_type: u32,
    type_name: String,
    symbol: String,
    place: u32,
    addend: i64,
}

/// Is it a name that C can have?
pub fn is_identifier(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(letter) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Render the header of a template.
///
/// # Errors
/// The trampoline's symbol is no name in C.
pub fn template(template: &Template, target: &Target) -> Result<String> {
    let name = template.name;
    if !is_identifier(name) {
        return Err(Error::new(format!(
            "--emit template: '{name}' is not a C identifier; valid: --name with letters, digits and _"
        )));
    }
    let table = |bytes: &str, fix_ups: &str, piece: &Piece| {
        Table::new(format!("{name}_{bytes}"), format!("{name}_{fix_ups}"), piece, target)
    };
    let header = Header {
        version: env!("CARGO_PKG_VERSION"),
        title: format!("{} {name}", target.facts.name),
        profile: target.convention.profile,
        options: target.describe(),
        guard: format!("TRAMPTOOL_{}_TEMPLATE_H", name.to_uppercase()),
        name,
        align: target.facts.align,
        entry: template.entry,
        pieces: [table("bytes", "fixups", &template.code), table("unwind", "unwind_fixups", &template.unwind)],
    };
    let text = header.render().map_err(|e| Error::new(format!("template.h: {e}")))?;
    Ok(text + "\n")
}
