// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool as a judge of images.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::harness::{Harness, Written};
use super::machine::{Known, Machine};
use super::model::Model;
use crate::failure::Failure;
use crate::tools::{tramptool, write};

/// What came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Holds,
    /// Only what is known does not hold.
    Known,
    /// By these clauses, each with its places.
    Fails(Vec<String>),
    /// It was not judged, or not all of it.
    LeftOut(String),
}

/// How images are judged.
pub struct Judge<'m> {
    machine: &'m Machine,
    profile: String,
    dir: tempfile::TempDir,
}

impl<'m> Judge<'m> {
    pub fn new(harness: &Harness, machine: &'m Machine) -> Result<Judge<'m>, Failure> {
        let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
        Ok(Judge { machine, profile: format!("linux-{}", harness.version), dir })
    }

    /// Judge all of these, on all cores.
    pub fn all(&self, images: &[(Model, Written, String)]) -> Result<Vec<Verdict>, Failure> {
        let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, usize::from));
        let verdicts = Mutex::new(vec![Verdict::Holds; images.len()]);
        std::thread::scope(|scope| {
            let work = |thread: usize| {
                let (next, verdicts) = (&next, &verdicts);
                scope.spawn(move || -> Result<(), Failure> {
                    while let Some((n, (_, written, contract))) =
                        images.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let verdict = self.check(thread, written, contract)?;
                        if let Some(place) = verdicts.lock().ok().as_mut().and_then(|all| all.get_mut(n)) {
                            *place = verdict;
                        }
                    }
                    Ok(())
                })
            };
            let threads: Vec<_> = (0..threads).map(work).collect();
            let ended = |thread: std::thread::ScopedJoinHandle<Result<(), Failure>>| {
                thread.join().unwrap_or_else(|_| Err(Failure::new("judge", "a thread has ended", "report it")))
            };
            threads.into_iter().try_for_each(ended)
        })?;
        verdicts.into_inner().map_err(|_| Failure::new("judge", "a thread has ended", "report it"))
    }

    fn check(&self, thread: usize, written: &Written, contract: &str) -> Result<Verdict, Failure> {
        let place = |end: &str| self.dir.path().join(format!("{thread}.{end}"));
        let (image, toml) = (place("bin"), place("toml"));
        write(&image, &written.code)?;
        write(&toml, contract.as_bytes())?;
        let base = format!("{:#x}", written.at);
        let mut tool = tramptool();
        tool.args(["check", "--format", "json", "--arch", &self.machine.arch, "--profile", &self.profile]);
        tool.args(["--base", &base, "--entry", &base, "--raw"]).arg(&image).arg("--contract").arg(&toml);
        let run = tool.output().map_err(|e| Failure::at(Path::new("tramptool"), e, "set TRAMPTOOL"))?;
        match run.status.code() {
            Some(0 | 1) => Ok(verdict(&run.stdout)),
            _ => {
                let said = String::from_utf8_lossy(&run.stderr);
                let line = said.lines().next().unwrap_or("it says nothing");
                Ok(Verdict::LeftOut(line.replace(&*image.to_string_lossy(), "the image")))
            }
        }
    }
}

/// What a report says.
fn verdict(report: &[u8]) -> Verdict {
    let report: Value = serde_json::from_slice(report).unwrap_or_default();
    let results = report["results"].as_array().map_or(&[][..], |all| all);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut wrong, mut known) = (BTreeSet::new(), false);
    for result in results {
        match result["verdict"].as_str() {
            Some("fail") => {
                let failures = result["failures"].as_array().map_or(&[][..], |all| all);
                let places: BTreeSet<String> = failures.iter().map(|failure| text(&failure["place_id"])).collect();
                let places: Vec<String> = places.into_iter().collect();
                wrong.insert(format!("{} {}", text(&result["clause"]), places.join(" ")));
            }
            Some("deviates") => known = true,
            Some("pass" | "skip") => {}
            _ => return Verdict::LeftOut(format!("{} is open", text(&result["clause"]))),
        }
    }
    match (results.is_empty(), wrong.is_empty()) {
        (true, _) => Verdict::LeftOut("the report has no result".to_owned()),
        // No function of the fixtures has such a prototype: then nothing deviates either, and no place is named.
        (_, false)
            if wrong.iter().any(|line| line.starts_with("coverage "))
                && wrong.iter().all(|line| line.ends_with(' ')) =>
        {
            Verdict::LeftOut("no function of this prototype runs it".to_owned())
        }
        (_, false) => Verdict::Fails(wrong.into_iter().collect()),
        _ if known => Verdict::Known,
        _ => Verdict::Holds,
    }
}

/// What is known fails for a reason that is told.
pub fn excused(verdict: Verdict, (model, contract): (&Model, &str), known: &[&Known]) -> Verdict {
    let Verdict::Fails(clauses) = verdict else { return verdict };
    let fitting: Vec<&&Known> = known.iter().filter(|known| known.fits(model, contract)).collect();
    let told = |clause: &String| fitting.iter().any(|known| known.names(clause));
    let others: Vec<String> = clauses.iter().filter(|clause| !told(clause)).cloned().collect();
    if others.is_empty() { Verdict::Known } else { Verdict::Fails(others) }
}
