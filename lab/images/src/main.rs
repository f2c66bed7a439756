// SPDX-License-Identifier: GPL-2.0-only
//! Judges images of memory as `tramptool check --raw` does, one after the other. A line of stdin is an image with its contract, a line of
//! stdout what came out: rows as in the tool's report, or what a call costs, or which single faults are noticed, or why none of that
//! is known.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _, stdin, stdout};

use codegen::words::error::{Error, Result};
use emu_tests::{Dump, Filter, Foreign, Row, Suite};
use serde::{Deserialize, Serialize};
use tool::mutate::by::By;
use tool::mutate::report::Report;
use tool::mutate::run::judge;
use tool::mutate::subject::MutationSubject;

/// Of all random values.
const SEED: u64 = 1;

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
#[derive(Clone, Copy, Deserialize)]
enum Question {
    /// Does it hold, on all functions that it can be for?
    All,
    /// Does it hold on those of one fixture?
    OfOneFixture,
    /// What does a plain call cost?
    Cost,
    /// Which single faults are noticed?
    Faults,
}

/// What came out.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    Results(Vec<Row>),
    /// Instructions, 8-byte loads and stores, bytes of stack.
    Costs([u32; 4]),
    /// Those that were put in, those that change nothing, those that are noticed.
    Faults([usize; 3]),
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
    let rows = |filter| Ok(Said::Results(emu_tests::check(&suites, &filter, SEED, &|_, _| {})?.results));
    match asked.question {
        Question::All => rows(Filter::default()),
        Question::OfOneFixture => rows(Filter { one_fixture: true, ..Filter::default() }),
        Question::Cost => costs(&suites),
        Question::Faults => faults(suites),
    }
}

fn costs(suites: &[Suite]) -> Result<Said> {
    let suite = suites.first().ok_or_else(|| Error::new("nothing to run"))?;
    let name = suite.contracts.first().map_or("", |contract| &contract.name);
    let (_, ways) = emu_tests::spent(suite, name)?;
    let plain = ways.first().filter(|way| way.ended).ok_or_else(|| Error::new("no call of it ends"))?;
    Ok(Said::Costs([plain.executed, plain.loads, plain.stores, plain.stack]))
}

fn faults(suites: Vec<Suite>) -> Result<Said> {
    let mut sum = [0; 3];
    for suite in suites {
        let subject = MutationSubject::objects(suite, SEED, &|_, _| {})?;
        let all: Vec<_> = subject.mutants(|_| true)?.into_iter().enumerate().collect();
        let judged = judge(&all, By::Emulator, SEED, &|_, _| {})?;
        let report = Report::empty(By::Emulator, SEED, String::new(), all.len()).with(judged);
        sum = [sum[0] + report.mutants, sum[1] + report.equivalent, sum[2] + report.killed];
    }
    Ok(Said::Faults(sum))
}
