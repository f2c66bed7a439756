//! What a trampoline does, learnt from running it: no contract says what it should.
//!
//! It is run once with a value of its own in each register and each word of memory, and once more for each thing that could
//! matter: a word that it read is 0, a function that it called stores a word of its frame. Where that leads it elsewhere, all is
//! tried again from there.

mod case;
mod code;
mod differ;
mod difference;
mod fields;
mod merge;
mod observed;
mod reading;
mod roles;
mod run;
mod sentence;
mod spot;
mod tokens;
mod value;
mod ways;

use std::sync::Arc;

use codegen::arch::pads::IndirectBranch;
use codegen::backend::Backend;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use link::{Access, Image, Input, Options, SymbolKind, backend_of, examine, link, relocatable};

pub use self::case::Case;
use self::case::Variation;
use self::code::Code;
pub use self::differ::differences;
pub use self::difference::{At, Difference, Found, Severity};
pub use self::observed::{Call, End, Leave, Line, Observed, Store, Unwound, Vectors, Way};
use self::reading::Reader;
pub use self::roles::roles_of;
use self::run::{Change, Seen, Subject};
pub use self::spot::{Spot, is_id};
use self::tokens::{CODE, Names};
pub use self::value::{Offset, Value};
use crate::engine::registers::Registers;

/// Runs after which no more are tried.
const MOST: usize = 1500;
/// So many things are different at once at most.
const DEPTH: usize = 3;

/// Run a function of an object and report what it does; `orc` names the form of an `.orc_unwind` that does not show it.
///
/// # Errors
/// An object that does not link by itself, or has no such function.
pub fn observe(
    object: &Input,
    symbol: Option<&str>,
    backends: &[&'static dyn Backend],
    orc: Option<&str>,
) -> Result<Observed> {
    let backend = backend_of(object, backends)?;
    let linkable = relocatable(backend, object)?;
    let image = above(backend, &Input { bytes: &linkable, ..*object })?;
    let found = chosen(&image, object, symbol)?;
    let registers = Registers::of(backend.machine(), &backend.facts().abi)?;
    let code = Arc::new(Code::of(&image, found, backend, registers, orc).map_err(|e| e.at(object.name))?);
    let subject = Subject { backend, image: &image, names: Names::of(&image), registers, code };
    Observer { subject }.observe(found.name.clone())
}

/// An object by itself, above 4 GiB: an address that is cut to 32 bits leads elsewhere.
fn above(backend: &dyn Backend, object: &Input) -> Result<Image> {
    let ret = backend.machine().ret;
    let options = Options { base: CODE, stub: Some(ret), references: true, ..Options::default() };
    // Code for the lowest or the highest 2 GiB does not reach so far up.
    link(backend, &[*object], &options).or_else(|_| examine(backend, object, ret))
}

/// The functions of an object that can be observed, by their names.
///
/// # Errors
/// An object that does not link by itself.
pub fn observable(object: &Input, backend: &'static dyn Backend) -> Result<Vec<String>> {
    let linkable = relocatable(backend, object)?;
    let image = examine(backend, &Input { bytes: &linkable, ..*object }, backend.machine().ret)?;
    // Assembly does not always say that a symbol is a function's.
    let code =
        |at: u64| image.sections.iter().any(|s| s.access == Access::Execute && at.wrapping_sub(s.address) < s.size);
    let unnamed = |s: &link::Symbol| s.kind == SymbolKind::NoType && !s.local && s.size > 0 && code(s.address);
    let functions =
        image.symbols.iter().filter(|s| s.input.is_some() && (s.kind == SymbolKind::Function || unnamed(s)));
    Ok(functions.map(|s| s.name.clone()).collect())
}

/// The function that is asked for, or the only one.
fn chosen<'i>(image: &'i Image, object: &Input, symbol: Option<&str>) -> Result<&'i link::Symbol> {
    let functions = || image.symbols.iter().filter(|s| s.kind == SymbolKind::Function && s.input.is_some());
    let names = || functions().map(|s| s.name.as_str());
    match symbol {
        Some(name) => {
            let found = image.symbol(name).filter(|s| s.input.is_some());
            found.ok_or_else(|| Error::unknown("symbol", name, names()).at(object.name))
        }
        None => {
            let mut all = functions();
            match (all.next(), all.next()) {
                (Some(only), None) => Ok(only),
                (None, _) => Err(Error::new(format!("{}: it has no function; valid: FILE:SYMBOL", object.name))),
                _ => {
                    let names: Vec<&str> = names().collect();
                    let (name, names) = (object.name, names.join(", "));
                    Err(Error::new(format!("{name}: several functions; valid: {name}:SYMBOL, with one of {names}")))
                }
            }
        }
    }
}

struct Observer<'a> {
    subject: Subject<'a>,
}

impl Observer<'_> {
    fn observe(&self, symbol: String) -> Result<Observed> {
        let Subject { code, backend, image, .. } = &self.subject;
        let reader = Reader::new(&self.subject);
        let (mut path, mut variants, mut store, mut seen) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut open: Vec<(Vec<Change>, Case)> = vec![Default::default()];
        let mut runs = 0;
        while let Some((changes, when)) = open.pop() {
            let base = self.subject.run(&changes)?;
            let lower = self.lower(&changes)?;
            let general = self.general_only(&changes)?;
            path.push(reader.way(when.clone(), &base, lower.as_ref(), general.as_ref()));
            seen.push(base.steps.clone());
            let (mut next, mut plain) = (Vec::new(), None);
            for (change, variation) in self.variants(&reader, &base, &changes) {
                if runs == MOST {
                    break;
                }
                runs += 1;
                let all = [&changes[..], std::slice::from_ref(&change)].concat();
                let run = self.subject.run(&all)?;
                let when = when.and(variation);
                let mut other = reader.way(when.clone(), &run, None, None);
                // The lowest bit of what is stored is one of the flags: they are loaded from there.
                match change {
                    Change::Stores(call, at, 0) => plain = Some((call, at, other.leave.flag_bits)),
                    Change::Stores(call, at, 1) => {
                        other.leave.flags_follow = plain == Some((call, at, other.leave.flag_bits ^ 1));
                    }
                    _ => {}
                }
                if let Change::Stores(call, at, 0) = change {
                    reader.forget(&mut other, call, at, &run);
                    let shows = reader.shows(&other);
                    let seen = base.calls.get(usize::from(call).wrapping_sub(1));
                    if let Some(seen) = seen.filter(|_| !shows.is_empty() && changes.is_empty()) {
                        store.push(Store { call: call.into(), word: reader.place(&base, seen, at), shows });
                    }
                }
                let ends = matches!(run.end, run::End::At(..));
                if ends && !seen.contains(&run.steps) && all.len() <= DEPTH {
                    seen.push(run.steps.clone());
                    next.push((all, when));
                }
                variants.push(other);
            }
            next.reverse();
            open.extend(next);
        }
        let reached = |at: u64| seen.iter().flatten().any(|step| *step == at);
        let own = |at: &u64| at.wrapping_sub(code.start) < code.size;
        let unreached = code.lines.iter().map(|l| l.at).filter(|at| own(at) && !reached(*at));
        let first = |bytes: &[u8]| image.bytes(code.start, bytes.len()) == Some(bytes);
        let lets = backend.machine().pads.iter().filter(|pad| first(pad.bytes)).flat_map(|pad| pad.lets);
        let lets = lets.map(|what| match what {
            IndirectBranch::Call => "calls",
            IndirectBranch::Jump => "jumps",
            IndirectBranch::Veneer => "veneers",
        });
        Ok(Observed {
            arch: backend.facts().name,
            symbol,
            bytes: code.size,
            landing_pad: lets.collect(),
            returned_to: code.returned_to(),
            runs,
            unreached: unreached.map(|at| at - code.start).collect(),
            path,
            store,
            variants,
            lines: code.lines.iter().map(|l| reader.line(l)).collect(),
        })
    }

    /// The same with SP as it may be too, where there is more than one way.
    fn lower(&self, changes: &[Change]) -> Result<Option<Seen>> {
        let allowed = self.subject.backend.machine().entry_sp;
        let other = allowed.iter().find(|sp| **sp != allowed[0]);
        let lower = |by: &u64| self.subject.run(&[changes, &[Change::Lower(by.abs_diff(allowed[0]))]].concat());
        other.map(lower).transpose()
    }

    /// The same with functions that use general registers only, where that makes a difference.
    fn general_only(&self, changes: &[Change]) -> Result<Option<Seen>> {
        let run = || self.subject.run(&[changes, &[Change::GeneralOnly]].concat());
        self.subject.code.uses_vectors.then(run).transpose()
    }

    /// What could matter, and how it is told.
    fn variants(&self, reader: &Reader, base: &Seen, changes: &[Change]) -> Vec<(Change, Variation)> {
        let abi = self.subject.registers.abi;
        let mut all = Vec::new();
        all.extend(base.reads.iter().map(|at| (Change::Word(at.clone()), Variation::Zero(reader.content(at)))));
        for (call, n) in base.calls.iter().zip(1..) {
            all.push((Change::Returns(n), Variation::Returns(n)));
            for at in reader.given(base, call) {
                let place = reader.place(base, call, at);
                all.push((Change::Stores(n, at, 0), Variation::Stores(n, place, false)));
                all.push((Change::Stores(n, at, 1), Variation::Stores(n, place, true)));
                all.push((Change::Clears(n, at), Variation::Clears(n, place)));
            }
        }
        let registers = (0..abi.regs.len() as u8).map(Reg).filter(|r| *r != abi.sp && Some(*r) != abi.zero);
        all.extend(registers.map(|reg| (Change::Register(reg), Variation::Zero(reader.register(reg)))));
        all.retain(|(change, _)| !changes.contains(change));
        all
    }
}
