//! What a trampoline does, learnt from running it: no contract says what it should.
//!
//! It is run once with a value of its own in each register and each word of memory, and once more for each thing that could
//! matter: a word that it read is 0, a function that it called stores a word of its frame. Where that leads it elsewhere, all is
//! tried again from there.

mod code;
mod differ;
mod difference;
mod fields;
mod grouped;
mod observed;
mod roles;
mod run;
mod says;
mod tokens;
mod ways;

use std::sync::Arc;

use codegen::arch::machine::IndirectBranch;
use codegen::backend::Backend;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use link::{Access, Image, Input, SymbolKind, backend_of, examine, relocatable};

use self::code::Code;
pub use self::differ::differences;
pub use self::difference::{Difference, Severity};
pub use self::observed::{Call, Leave, Line, Observed, Store, Unwound, Way};
pub use self::roles::roles_of;
use self::run::{But, End, Seen, Subject};
use self::says::Sayer;
use self::tokens::Names;
use crate::engine::cpu::Registers;

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
    let image = examine(backend, &Input { bytes: &linkable, ..*object }, backend.machine().ret)?;
    let found = chosen(&image, object, symbol)?;
    let registers = Registers::of(backend.machine(), &backend.facts().abi)?;
    let code = Arc::new(Code::of(&image, found, backend, registers, orc).map_err(|e| e.at(object.name))?);
    let subject = Subject { backend, image: &image, names: Names::of(&image), registers, code };
    Observer { subject }.observe(found.name.clone())
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
        let says = Sayer::new(&self.subject);
        let (mut path, mut variants, mut store, mut seen) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut open: Vec<(Vec<But>, String)> = vec![(Vec::new(), "plainly".to_owned())];
        let mut runs = 0;
        while let Some((buts, when)) = open.pop() {
            let base = self.subject.run(&buts)?;
            let lower = self.lower(&buts)?;
            let way = says.way(when.clone(), &base, lower.as_ref());
            path.push(way.clone());
            seen.push(base.steps.clone());
            let (mut next, mut plain) = (Vec::new(), None);
            for (but, what) in self.variants(&says, &base, &buts) {
                if runs == MOST {
                    break;
                }
                runs += 1;
                let all = [&buts[..], std::slice::from_ref(&but)].concat();
                let run = self.subject.run(&all)?;
                let when = if buts.is_empty() { what } else { format!("{when}, and {what}") };
                let mut other = says.way(when.clone(), &run, None);
                other.by_store = matches!(but, But::Stores(..) | But::Clears(..));
                // The lowest bit of what is stored is one of the flags: they are loaded from there.
                match but {
                    But::Stores(call, at, 0) => plain = Some((call, at, other.leave.flag_bits)),
                    But::Stores(call, at, 1) => {
                        other.leave.flags_follow = plain == Some((call, at, other.leave.flag_bits ^ 1));
                    }
                    _ => {}
                }
                if let But::Stores(call, at, 0) = but {
                    says.forget(&mut other, call, at, &run);
                    let shows = says.shows(&other);
                    if !shows.is_empty() && buts.is_empty() {
                        store.push(Store { call, frame: says.place(&base, call, at), shows });
                    }
                }
                let ends = matches!(run.end, End::At(..));
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
            lines: code.lines.iter().map(|l| says.line(l)).collect(),
        })
    }

    /// The same with SP as it may be too, where there is more than one way.
    fn lower(&self, buts: &[But]) -> Result<Option<Seen>> {
        let allowed = self.subject.backend.machine().entry_sp;
        let other = allowed.iter().find(|sp| **sp != allowed[0]);
        let lower = |by: &u64| self.subject.run(&[buts, &[But::Lower(by.abs_diff(allowed[0]))]].concat());
        other.map(lower).transpose()
    }

    /// What could matter, and how it is called.
    fn variants(&self, says: &Sayer, base: &Seen, buts: &[But]) -> Vec<(But, String)> {
        let abi = self.subject.registers.abi;
        let mut all = Vec::new();
        all.extend(base.reads.iter().map(|name| (But::Word(name.clone()), format!("{name} is 0"))));
        for (call, n) in base.calls.iter().zip(1..) {
            all.push((But::Returns(n), format!("call {n} returns 0")));
            for at in says.given(base, call) {
                let place = says.place(base, n, at);
                all.push((But::Stores(n, at, 0), format!("call {n} stores to {place}")));
                all.push((But::Stores(n, at, 1), format!("call {n} stores an odd number to {place}")));
                all.push((But::Clears(n, at), format!("call {n} clears {place}")));
            }
        }
        let registers = (0..abi.regs.len() as u8).map(Reg).filter(|r| *r != abi.sp && Some(*r) != abi.zero);
        all.extend(registers.map(|r| (But::Register(r), format!("{} is 0", abi.name(r)))));
        all.retain(|(but, _)| !buts.contains(but));
        all
    }
}
