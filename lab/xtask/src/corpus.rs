// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask audit-corpus`: audits Debian's packages that have assembly, as `audit-corpus.toml` lists them.
//!
//! Packages are downloaded into the cache, through apt's own lists there. `results/audit.md` has what was found, and what came of
//! reading it. With `--kept DIR`, the reports are kept there, and a run that was broken off goes on with those that it lacks.

mod confirm;
mod control;
mod fixed;
mod list;
mod page;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

pub use list::{Corpus, fetched};

use crate::failure::Failure;
use crate::tools::{on_each_cpu, root, write};
use crate::verb::Outcome;
use report::{audited, kept_in};

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let corpus = Corpus::read()?;
    let (kept, arches) = match args {
        [option, dir, arches @ ..] if option == "--kept" => (Some(Path::new(dir)), arches),
        arches => (None, arches),
    };
    let mut packages = Vec::new();
    for (arch, suite) in corpus.suites.iter().filter(|(arch, _)| arches.is_empty() || arches.contains(arch)) {
        let fetched = fetched(&(&corpus.packages | &corpus.libraries), arch, suite)?;
        packages.extend(fetched.into_iter().map(|(package, file)| (arch.as_str(), package, file)));
    }
    let said = Mutex::new(BTreeMap::new());
    let left = Mutex::new(packages.iter().enumerate());
    on_each_cpu(|| {
        // What a worker that panicked holds is of no use to anybody: the panic ends this.
        let next = || left.lock().ok()?.next();
        while let Some((at, (arch, package, file))) = next() {
            let row = audited(package, arch, &kept_in(kept, package, arch, || corpus.files(package, file))?);
            if let Ok(mut said) = said.lock() {
                said.insert(at, row);
            }
        }
        Ok(())
    })?;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for ((arch, package, _), row) in packages.iter().zip(said.into_inner().unwrap_or_default().into_values()) {
        match row {
            Ok(row) => rows.extend(Some(row).filter(|row| row.has_assembly(&corpus))),
            Err(why) => refused.push(format!("{package} ({arch}): {why}")),
        }
    }
    let text = page::page(&corpus, &rows, &refused, arches)?;
    if arches.is_empty() {
        write(&root().join("results/audit.md"), text.as_bytes())?;
    } else {
        print!("{text}");
    }
    Ok(Outcome::Good)
}
