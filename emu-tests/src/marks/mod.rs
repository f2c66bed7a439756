//! Marks of protection: what an object's property note promises, held against its code, without a run.
//!
//! A linker keeps the bits that all objects have, and a loader turns on what is left. So a bit that is there and is not true ends
//! programs, and one that is true and is not there turns the protection of a whole program off. x86-64 psABI 4.1.2; ELF for the
//! Arm 64-bit Architecture, 6; RISC-V ELF psABI, "Program Property".

mod code;
pub(crate) mod pads;
mod paths;
mod values;
mod why;

use std::collections::{BTreeMap, HashMap, HashSet};

use codegen::arch::facts::{Feature, Promise};
use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use link::origin::{noted, origin};
use link::{Image, Input, glance};
use schemars::JsonSchema;
use serde::Serialize;

use self::code::{Code, Function};
use self::paths::{Followed, Problem, follow};
use self::why::Why;

/// What `check --marks --format json` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "tramptool check --marks")]
pub struct MarksReport {
    /// The version of this format.
    pub schema: &'static str,
    /// Archives, or objects that were given alone.
    pub units: Vec<MarkedUnit>,
}

/// Objects that belong together.
#[derive(Serialize, JsonSchema)]
pub struct MarkedUnit {
    /// The archive; empty for objects that were given alone.
    pub file: String,
    /// Its objects.
    pub objects: Vec<MarkedObject>,
}

/// An object, and each bit of its note.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MarkedObject {
    /// The object.
    pub object: String,
    /// The architecture.
    pub arch: &'static str,
    /// It has a note with these bits, true or not.
    pub noted: Option<u32>,
    /// Functions that were followed.
    pub functions: usize,
    /// Each bit that the psABI has.
    pub marks: Vec<Mark>,
}

/// One bit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Mark {
    /// The protection.
    pub name: &'static str,
    /// The note has the bit.
    pub noted: bool,
    /// Is what the bit promises true of the code?
    pub holds: Holds,
    /// What follows for the note.
    pub verdict: MarkVerdict,
    /// What speaks against it, or leaves it open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

/// Is what a bit promises true of the code?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// Yes.
    Yes,
    /// Yes, but nothing in the object has anything to do with it.
    Idly,
    /// No.
    No,
    /// It was not decided.
    Open,
}

/// What follows for the note.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MarkVerdict {
    /// The bit is there, and true; or it is not, and need not be.
    Right,
    /// The bit is there, and not true.
    False,
    /// The bit is true, and not there.
    Missing,
    /// The bit is there, and nobody knows whether it is true.
    NotDecided,
}

/// A place in the code that speaks against a bit, or leaves it open.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reason {
    /// The function; empty where there is none.
    pub function: String,
    /// Bytes from its start.
    pub offset: u64,
    /// The instruction there.
    pub instruction: String,
    /// It is certain.
    pub certain: bool,
    /// What happens there.
    pub what: String,
}

/// Hold the notes of objects against their code. They belong together: each may take the addresses of the others' functions.
///
/// # Errors
/// A damaged object; one that no linker takes; an architecture whose psABI has no note.
pub fn marks(inputs: &[Input], backend: &'static dyn Backend) -> Result<Vec<MarkedObject>> {
    let facts = backend.facts();
    let marks = facts.marks.as_ref().ok_or_else(|| Error::new(format!("{} has no marks of protection", facts.name)))?;
    let mut taken = HashSet::new();
    for input in inputs {
        taken.extend(origin(backend, input)?.references.into_iter().filter(|r| r.is_address).map(|r| r.symbol));
    }
    let mut all = Vec::new();
    for input in inputs {
        let bits = noted(marks, input)?;
        let image = glance(backend, input, backend.machine().ret);
        let judged = image.and_then(|image| object(input.name, backend, (&image, bits), marks.features, &taken));
        all.push(judged.unwrap_or_else(|why| unexamined(input.name, backend, bits, marks.features, &why)));
    }
    let others = all.iter().fold(0, |bits, object| bits | object.noted.unwrap_or(0));
    for object in &mut all {
        for (mark, feature) in object.marks.iter_mut().zip(marks.features) {
            mark.verdict = verdict(mark.noted, mark.holds, others & feature.bit != 0);
        }
    }
    Ok(all)
}

/// `elsewhere`: some object of these has the bit.
fn verdict(noted: bool, holds: Holds, elsewhere: bool) -> MarkVerdict {
    match (noted, holds) {
        (true, Holds::Yes | Holds::Idly) | (false, Holds::No | Holds::Open) => MarkVerdict::Right,
        (true, Holds::No) => MarkVerdict::False,
        (true, Holds::Open) => MarkVerdict::NotDecided,
        (false, Holds::Idly) if !elsewhere => MarkVerdict::Right,
        (false, Holds::Yes | Holds::Idly) => MarkVerdict::Missing,
    }
}

fn object(
    name: &str,
    backend: &'static dyn Backend,
    (image, noted): (&Image, Option<u32>),
    features: &[Feature],
    taken: &HashSet<String>,
) -> Result<MarkedObject> {
    let code = Code::of(image, backend)?;
    let followed = followed(&code);
    let functions = followed.len();
    let marks = features.iter().map(|feature| {
        let (mut reasons, concerns) = match feature.promise {
            Promise::Pads => {
                let (mut missing, some) = pads::missing(&code, taken, &followed);
                missing.extend(of_paths(&followed, Promise::Pads));
                (missing, some)
            }
            Promise::Paired => (of_paths(&followed, Promise::Paired), functions > 0),
            promise => (of_paths(&followed, promise), followed.values().any(|f| f.guards)),
        };
        reasons.sort_by_key(|(at, why)| (!why.is_certain(), why.clone(), *at));
        let holds = match (reasons.iter().any(|(_, why)| why.is_certain()), reasons.is_empty()) {
            (true, _) => Holds::No,
            (false, false) => Holds::Open,
            (false, true) if !concerns => Holds::Idly,
            (false, true) => Holds::Yes,
        };
        let reasons = reasons.iter().map(|(at, why)| reason(&code, *at, why)).collect();
        let noted = noted.unwrap_or(0) & feature.bit != 0;
        Mark { name: feature.name, noted, holds, verdict: MarkVerdict::Right, reasons }
    });
    let marks = marks.collect();
    Ok(MarkedObject { object: name.to_owned(), arch: backend.facts().name, noted, functions, marks })
}

/// All functions of an object, by address, followed.
fn followed(code: &Code) -> BTreeMap<u64, Followed> {
    let alone = || code.functions.iter().filter(|function| !function.cut_off);
    let millicode = |name: &str| code.backend.machine().millicode.iter().any(|begin| name.starts_with(begin));
    let judged = |function: &Function| {
        let mut followed = follow(code, function);
        if millicode(&function.symbol.name) {
            followed.problems =
                vec![Problem { promise: Promise::Paired, at: function.range.start, why: Why::Millicode }];
        }
        (function.range.start, followed)
    };
    let mut followed: BTreeMap<u64, Followed> = alone().map(judged).collect();
    // What others go on in with their frames is no function of its own.
    let joined: HashSet<u64> = followed.values().flat_map(|followed| followed.joined.iter().copied()).collect();
    let local = |at: &u64| code.begins(*at).is_some_and(|function| function.symbol.local);
    followed.retain(|at, _| !(joined.contains(at) && local(at)));
    followed
}

/// How a function guards the return address that it stores. Places are bytes from the function's start.
pub(crate) struct Guarding {
    /// It signs it, or pushes it onto the shadow stack or the shadow call stack.
    pub guards: bool,
    /// Where the address is not guarded, or not checked as it was guarded; what follows for each: is it certain?
    pub problems: Vec<(u64, bool)>,
    /// Where the unwind table has it signed and it is not, or the other way round.
    pub misstated: Vec<u64>,
}

/// How the functions of an object guard their return addresses, by name.
///
/// # Errors
/// A damaged object; one that no linker takes.
pub(crate) fn guarding(input: &Input, backend: &'static dyn Backend) -> Result<HashMap<String, Guarding>> {
    let image = glance(backend, input, backend.machine().ret)?;
    let code = Code::of(&image, backend)?;
    let of = |(start, followed): (u64, Followed)| {
        let function = code.begins(start)?;
        let problems = followed.problems.into_iter().filter(|problem| problem.promise == Promise::Signed);
        let guarding = Guarding {
            guards: followed.guards || followed.scs,
            problems: problems
                .map(|problem| (problem.at, problem.why.is_certain()))
                .chain(followed.scs_faults)
                .map(|(at, certain)| (at.wrapping_sub(start), certain))
                .collect(),
            misstated: followed.misstated.into_iter().map(|at| at.wrapping_sub(start)).collect(),
        };
        Some((function.symbol.name.clone(), guarding))
    };
    Ok(followed(&code).into_iter().filter_map(of).collect())
}

/// An object of which nothing can be learnt.
fn unexamined(
    name: &str,
    backend: &dyn Backend,
    noted: Option<u32>,
    features: &[Feature],
    why: &Error,
) -> MarkedObject {
    let reason = Reason {
        function: String::new(),
        offset: 0,
        instruction: String::new(),
        certain: false,
        what: why.to_string(),
    };
    let mark = |feature: &Feature| Mark {
        name: feature.name,
        noted: noted.unwrap_or(0) & feature.bit != 0,
        holds: Holds::Open,
        verdict: MarkVerdict::Right,
        reasons: vec![reason.clone()],
    };
    let marks = features.iter().map(mark).collect();
    MarkedObject { object: name.to_owned(), arch: backend.facts().name, noted, functions: 0, marks }
}

fn of_paths(followed: &BTreeMap<u64, Followed>, promise: Promise) -> Vec<(u64, Why)> {
    let problems = followed.values().flat_map(|followed| &followed.problems);
    problems.filter(|problem| problem.promise == promise).map(|problem| (problem.at, problem.why.clone())).collect()
}

fn reason(code: &Code, at: u64, why: &Why) -> Reason {
    let function = code.around(at);
    Reason {
        function: function.map(|function| function.symbol.name.clone()).unwrap_or_default(),
        offset: function.map_or(0, |function| at - function.range.start),
        instruction: code.insn(at).map(|insn| insn.text.clone()).unwrap_or_default(),
        certain: why.is_certain(),
        what: why.to_string(),
    }
}
