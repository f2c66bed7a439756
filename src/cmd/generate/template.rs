//! `gen --emit template`: the files of a template.

use std::collections::BTreeMap;

use codegen::arch::facts::Facts;
use codegen::out::template::{FixUp, Piece, Template};
use codegen::profile::target::Target;
use codegen::words::error::Result;
use serde::Serialize;

#[derive(Serialize)]
struct TemplateOut<'a> {
    version: &'static str,
    arch: &'static str,
    machine: u16,
    profile: &'static str,
    options: BTreeMap<&'static str, &'static str>,
    numbers: BTreeMap<&'static str, i32>,
    name: &'a str,
    align: u32,
    entry: u32,
    #[serde(flatten)]
    code: PieceOut,
    /// A CIE and an FDE of a copy.
    unwind: PieceOut,
}

#[derive(Serialize)]
struct PieceOut {
    bytes: String,
    fixups: Vec<FixUpOut>,
}

impl PieceOut {
    fn new(piece: &Piece, facts: &Facts) -> PieceOut {
        let fix_up = |f: &FixUp| FixUpOut {
            offset: f.at,
            r_type: f.r_type,
            name: facts.relocation(f.r_type),
            symbol: f.of.name(),
            place: f.place,
            addend: f.addend,
        };
        let bytes = piece.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        PieceOut { bytes, fixups: piece.fix_ups.iter().map(fix_up).collect() }
    }
}

#[derive(Serialize)]
struct FixUpOut {
    offset: u32,
    #[serde(rename = "type")]
    r_type: u32,
    name: Option<String>,
    symbol: &'static str,
    place: u32,
    addend: i64,
}

/// The files, by their names: the template as JSON and as a C header.
pub(super) fn files(template: &Template, target: &Target, stem: &str) -> Result<[(String, Vec<u8>); 2]> {
    let facts = target.facts;
    let json = TemplateOut {
        version: env!("CARGO_PKG_VERSION"),
        arch: facts.name,
        machine: facts.machine,
        profile: target.convention.profile,
        options: target.convention.chosen(target.choices).collect(),
        numbers: target.numbers.iter().map(|n| (n.symbol, n.value)).collect(),
        name: template.name,
        align: facts.align,
        entry: template.entry,
        code: PieceOut::new(&template.code, facts),
        unwind: PieceOut::new(&template.unwind, facts),
    };
    Ok([
        (format!("{stem}.template.json"), tool::printed::json(&json)?.into_bytes()),
        (format!("{stem}.template.h"), templates::template(template, target)?.into_bytes()),
    ])
}
