// SPDX-License-Identifier: GPL-2.0-only
//! Judges images of memory as `tramptool check --raw` does, one after the other. A line of stdin is an image with its contract, a line of
//! stdout what came out: rows as in the tool's report, or what a call costs, or why neither is known.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _, stdin, stdout};

use codegen::words::error::{Error, Result};
use emu_tests::{Dump, Filter, Foreign, Row, Suite};
use serde::{Deserialize, Serialize};

/// An image.
#[derive(Deserialize)]
struct Asked {
    profile: String,
    /// Where it begins, and is entered.
    base: u64,
    code: Vec<u8>,
    contract: String,
    question: Question,
}

/// What is asked of an image.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Question {
    /// Does it hold, on all functions that it can be for?
    All,
    /// Does it hold on those of one fixture?
    OfOneFixture,
    /// What does a plain call cost?
    Cost,
}

/// What came out.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Results(Vec<Row>),
    /// Instructions, 8-byte loads and stores, bytes of stack.
    Costs([u32; 4]),
    Refused(String),
}

fn main() -> std::io::Result<()> {
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let said = match serde_json::from_str::<Asked>(&line?) {
            Ok(asked) => answer(asked).unwrap_or_else(|e| Said::Refused(e.to_string())),
            Err(e) => Said::Refused(e.to_string()),
        };
        serde_json::to_writer(&mut out, &said)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(asked: Asked) -> Result<Said> {
    let facts: Vec<_> = arch::BACKENDS.iter().map(|backend| backend.facts()).collect();
    let profile = profiles::find(&asked.profile, &facts)?;
    let dump = Dump { base: asked.base, entries: vec![(String::new(), asked.base)], end: None, names: BTreeMap::new() };
    let objects = vec![("image".to_owned(), asked.code)];
    let foreign = Foreign { dump: Some(dump), ..Foreign::new("contract", &asked.contract, objects, profile) };
    let suites = emu_tests::foreign_suites(&foreign, arch::BACKENDS)?;
    if asked.question == Question::Cost {
        return costs(&suites);
    }
    let filter = Filter { one_fixture: asked.question == Question::OfOneFixture, ..Filter::default() };
    Ok(Said::Results(emu_tests::check(&suites, &filter, 1, &|_, _| {})?.results))
}

fn costs(suites: &[Suite]) -> Result<Said> {
    let suite = suites.first().ok_or_else(|| Error::new("nothing to run"))?;
    let name = suite.contracts.first().map_or("", |contract| &contract.name);
    let (_, ways) = emu_tests::spent(suite, name)?;
    let plain = ways.first().filter(|way| way.ended).ok_or_else(|| Error::new("no call of it ends"))?;
    Ok(Said::Costs([plain.executed, plain.loads, plain.stores, plain.stack]))
}
