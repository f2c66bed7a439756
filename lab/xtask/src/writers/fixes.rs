// SPDX-License-Identifier: MIT OR Apache-2.0
//! Public fixes of the writers, each taken back alone: does the judge notice?

use std::path::{Path, PathBuf};

use super::contract::Placed;
use super::fix::{Fix, edited};
use super::harness::Harness;
use super::judge::{Judge, Verdict, excused};
use super::machine::{Known, Machine};
use super::model::Model;
use crate::damage::Rng;
use crate::failure::Failure;
use crate::tools::read;

/// What came of one.
pub struct Taken {
    /// So many images are others without the fix.
    pub differ: usize,
    /// What fails first without it, and did not before; nothing if nobody notices.
    pub noticed: Option<String>,
}

/// So many images that differ are judged, at most.
const MOST: usize = 60;

/// The object without a fix.
pub fn object(fix: &Fix, harness: &Harness, linux: &Path) -> Result<PathBuf, Failure> {
    let source = linux.join(&fix.file);
    let text = edited(&read(&source)?, &fix.edits);
    let text = text.map_err(|what| Failure::at(&source, what, "say in writers.toml where the line is now"))?;
    harness.object(&fix.file, &text, linux)
}

/// Have images judged that are others with this object, which is without the fix.
pub fn taken_back(
    fix: &Fix,
    (harness, object): (&Harness, &Path),
    (machine, known): (&Machine, &[&Known]),
    (images, seed): (usize, u64),
) -> Result<Taken, Failure> {
    let without = harness.with(&fix.file, object)?;
    let (judge, mut placed) = (Judge::new(harness)?, Placed::new(machine, &harness.version));
    let mut rng = Rng(seed);
    let models: Vec<Model> = (0..images).map(|_| Model::draw(&mut rng, harness.can())).collect();
    let mut taken = Taken { differ: 0, noticed: None };
    let (mut changed, mut fixed) = (Vec::new(), Vec::new());
    for ((model, with), without) in models.iter().zip(harness.write(&models)?).zip(without.write(&models)?) {
        match (with, without) {
            (Ok(with), Ok(without)) if with.code != without.code => {
                taken.differ += 1;
                if changed.len() < MOST {
                    let contract = placed.contract(model, &with)?;
                    fixed.push((model.clone(), with, contract));
                    let contract = placed.contract(model, &without)?;
                    changed.push((model.clone(), without, contract));
                }
            }
            (Ok(_), Err(errno)) => {
                taken.differ += 1;
                taken.noticed.get_or_insert_with(|| format!("refused with error {errno}: {model}"));
            }
            _ => {}
        }
    }
    let verdicts = judge.all(&fixed)?.into_iter().zip(judge.all(&changed)?);
    for ((model, _, contract), (before, after)) in changed.iter().zip(verdicts) {
        let [before, after] = [before, after].map(|verdict| excused(verdict, (model, contract), known));
        if let (Verdict::Holds | Verdict::Known, Verdict::Fails(clauses)) = (before, after) {
            taken.noticed.get_or_insert_with(|| format!("{}: {model}", clauses.join("; ")));
        }
    }
    Ok(taken)
}
