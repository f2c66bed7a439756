// SPDX-License-Identifier: GPL-2.0-only
//! Judges images of memory as `tramptool check --raw` does, one after the other. A line of stdin is an image with its contract, a line of
//! stdout what came out: rows as in the tool's report, or why it was not judged.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _, stdin, stdout};

use codegen::words::error::Result;
use emu_tests::{Dump, Filter, Foreign, Row};
use serde::{Deserialize, Serialize};

/// An image.
#[derive(Deserialize)]
struct Asked {
    profile: String,
    /// Where it begins, and is entered.
    base: u64,
    code: Vec<u8>,
    contract: String,
    /// On the functions of one fixture alone.
    one_fixture: bool,
}

/// What came out.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Results(Vec<Row>),
    Refused(String),
}

fn main() -> std::io::Result<()> {
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let said = match serde_json::from_str::<Asked>(&line?) {
            Ok(asked) => judged(asked).map_or_else(|e| Said::Refused(e.to_string()), Said::Results),
            Err(e) => Said::Refused(e.to_string()),
        };
        serde_json::to_writer(&mut out, &said)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

fn judged(asked: Asked) -> Result<Vec<Row>> {
    let facts: Vec<_> = arch::BACKENDS.iter().map(|backend| backend.facts()).collect();
    let profile = profiles::find(&asked.profile, &facts)?;
    let dump = Dump { base: asked.base, entries: vec![(String::new(), asked.base)], end: None, names: BTreeMap::new() };
    let objects = vec![("image".to_owned(), asked.code)];
    let foreign = Foreign { dump: Some(dump), ..Foreign::new("contract", &asked.contract, objects, profile) };
    let suites = emu_tests::foreign_suites(&foreign, arch::BACKENDS)?;
    let filter = Filter { one_fixture: asked.one_fixture, ..Filter::default() };
    Ok(emu_tests::check(&suites, &filter, 1, &|_, _| {})?.results)
}
