// SPDX-License-Identifier: MIT OR Apache-2.0
//! What some writers of a kernel refuse and others do not: the same models, put to each.

use std::collections::BTreeMap;

use super::harness::Harness;
use super::model::{Can, Model};
use crate::damage::Rng;
use crate::failure::Failure;

/// The writers' errors for a model, in their order; `None` of one that takes it.
type Errors = Vec<Option<i32>>;

/// Put so many models to all of these, and say of each set of refusals how often it comes, and for which model at least.
pub fn compared(writers: &[(&str, &Harness)], count: usize, seed: u64) -> Result<Vec<String>, Failure> {
    // What not all can is no reason to refuse.
    let can = Can { sessions: false, tail_calls: false, redirects: false, far: false };
    let mut rng = Rng(seed);
    let models: Vec<Model> = (0..count).map(|_| Model::draw(&mut rng, can)).collect();
    let mut found: BTreeMap<Errors, (usize, &Model)> = BTreeMap::new();
    for (errors, model) in errors(writers, &models)?.into_iter().zip(&models) {
        if errors.iter().any(Option::is_some) {
            found.entry(errors).or_insert((0, model)).0 += 1;
        }
    }
    let line = |(errors, (times, model)): (Errors, (usize, &Model))| {
        let smallest = smallest(writers, model, &errors)?;
        let named =
            writers.iter().zip(&errors).filter_map(|((name, _), error)| Some(format!("{name} ({})", (*error)?)));
        let named: Vec<String> = named.collect();
        let all = if named.len() == writers.len() { ", which are all" } else { "" };
        Ok(format!("{times} of {count} are refused by {}{all}, at least {smallest}", named.join(", ")))
    };
    found.into_iter().map(line).collect()
}

/// What each writer says of each model.
fn errors(writers: &[(&str, &Harness)], models: &[Model]) -> Result<Vec<Errors>, Failure> {
    let mut all = vec![Errors::new(); models.len()];
    for (_, writer) in writers {
        for (errors, written) in all.iter_mut().zip(writer.write(models)?) {
            errors.push(written.err());
        }
    }
    Ok(all)
}

/// The smallest model found of which the writers say the same.
fn smallest(writers: &[(&str, &Harness)], model: &Model, wanted: &Errors) -> Result<Model, Failure> {
    let mut best = model.clone();
    loop {
        let smaller = best.smaller();
        let same = errors(writers, &smaller)?.into_iter().position(|errors| errors == *wanted);
        match same.and_then(|n| smaller.into_iter().nth(n)) {
            Some(model) => best = model,
            None => return Ok(best),
        }
    }
}
