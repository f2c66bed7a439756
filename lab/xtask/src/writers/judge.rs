// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool as a judge of images.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::harness::{Harness, Written};
use super::machine::Known;
use super::model::Model;
use crate::failure::Failure;
use crate::tools::{on_each_cpu, root};

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

/// An image: what it was written for, and its contract.
pub type Image = (Model, Written, String);

/// How images are judged.
pub struct Judge {
    profile: String,
}

impl Judge {
    /// One that has its program: it is compiled first, if need be.
    pub fn new(harness: &Harness) -> Result<Judge, Failure> {
        Program::start()?.end()?;
        Ok(Judge { profile: format!("linux-{}", harness.version) })
    }

    /// Judge all of these, as the tool judges a dump.
    pub fn all(&self, images: &[Image]) -> Result<Vec<Verdict>, Failure> {
        self.judged(&images.iter().collect::<Vec<_>>(), Question::All)
    }

    /// What a call costs: instructions, 8-byte loads and stores, bytes of stack.
    pub fn cost(&self, image: &Image) -> Result<[u64; 4], Failure> {
        self.numbers(image, Question::Cost, "costs")
    }

    /// Single faults in an image: those that were put in, those that change nothing, those that are noticed.
    pub fn faults(&self, image: &Image) -> Result<[usize; 3], Failure> {
        self.numbers(image, Question::Faults, "faults")
    }

    fn numbers<N: DeserializeOwned>(&self, image: &Image, question: Question, named: &str) -> Result<N, Failure> {
        let Answer::Said(program, said) = Program::start()?.asked(&self.request(image, question))? else {
            return Err(trouble("has ended"));
        };
        program.end()?;
        serde_json::from_value(said[named].clone()).map_err(|_| trouble(format!("{}: {said}", image.0)))
    }

    /// Judge these on all cores, by a program for each that is started once.
    pub fn judged(&self, images: &[&Image], question: Question) -> Result<Vec<Verdict>, Failure> {
        let next = AtomicUsize::new(0);
        let verdicts = Mutex::new(vec![Verdict::LeftOut("nobody has judged it".to_owned()); images.len()]);
        on_each_cpu(|| {
            let mut running = None;
            while let Some((n, image)) = images.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                let program = match running.take() {
                    Some(program) => program,
                    None => Program::start()?,
                };
                let verdict = match program.asked(&self.request(image, question))? {
                    Answer::Said(program, report) => {
                        running = Some(program);
                        verdict(&report)
                    }
                    Answer::Ended(how) => Verdict::LeftOut(format!("the judge has ended: {how}")),
                };
                if let Some(place) = verdicts.lock().ok().as_mut().and_then(|all| all.get_mut(n)) {
                    *place = verdict;
                }
            }
            running.map_or(Ok(()), Program::end)
        })?;
        verdicts.into_inner().map_err(|_| Failure::new("judge", "a thread has ended", "report it"))
    }

    fn request<'i>(&'i self, (_, written, contract): &'i Image, question: Question) -> Request<'i> {
        Request { profile: &self.profile, base: written.at, code: &written.code, contract, question }
    }
}

/// What the program that judges is asked.
#[derive(Serialize)]
struct Request<'i> {
    profile: &'i str,
    base: u64,
    code: &'i [u8],
    contract: &'i str,
    question: Question,
}

/// What is asked of an image.
#[derive(Clone, Copy, Serialize)]
pub enum Question {
    /// Does it hold, on all functions that it can be for, compiled in every way, also far from them?
    All,
    /// Does it hold on those that are compiled in one way?
    OfOneFixture,
    /// What does a call cost?
    Cost,
    /// Which single faults are noticed?
    Faults,
}

/// The program that judges (`lab/images`).
struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// What comes back.
enum Answer {
    Said(Program, Value),
    /// It was ended by what it ran.
    Ended(String),
}

impl Program {
    fn start() -> Result<Program, Failure> {
        let mut command = match std::env::var_os("TRAMPTOOL_IMAGES") {
            Some(built) => Command::new(built),
            None => {
                let mut cargo = Command::new("cargo");
                cargo.args(["run", "--quiet", "--locked", "--package", "tramptool-images", "--manifest-path"]);
                cargo.arg(root().join("Cargo.toml"));
                cargo
            }
        };
        // There is one for each CPU.
        let child = command.env("RAYON_NUM_THREADS", "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(trouble)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Program { child, to, from: BufReader::new(from) }),
            _ => Err(trouble("has no stdin and stdout")),
        }
    }

    /// Ask, and wait for the answer.
    fn asked(mut self, request: &Request) -> Result<Answer, Failure> {
        let line = serde_json::to_string(request).map_err(trouble)?;
        let mut answer = String::new();
        let sent = writeln!(self.to, "{line}");
        let got = sent.and_then(|()| self.from.read_line(&mut answer));
        match got {
            Ok(bytes) if bytes > 0 => Ok(Answer::Said(self, serde_json::from_str(&answer).map_err(trouble)?)),
            _ => Ok(Answer::Ended(self.child.wait().map_err(trouble)?.to_string())),
        }
    }

    fn end(self) -> Result<(), Failure> {
        let Program { mut child, to, from } = self;
        drop((to, from));
        let status = child.wait().map_err(trouble)?;
        if status.success() { Ok(()) } else { Err(trouble(status)) }
    }
}

fn trouble(e: impl ToString) -> Failure {
    Failure::new("tramptool-images", e.to_string(), "see that it compiles, or set TRAMPTOOL_IMAGES")
}

/// What a report says.
fn verdict(report: &Value) -> Verdict {
    if let Some(why) = report["refused"].as_str() {
        return Verdict::LeftOut(why.to_owned());
    }
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
