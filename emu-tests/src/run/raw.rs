//! A dump of memory as an object: its calls to the outside become calls of symbols that are named by their address.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use codegen::arch::patch::Relocation;
use codegen::backend::Backend;
use codegen::listing::pattern::{Constant, Fields, PatternTable};
use codegen::words::error::{Error, Result};
use link::PAGE;
use link::raw::{Call, Raw, object};

use crate::engine::disasm::{Decoded, branched_to, constants, followed};

/// The addresses that a dump covers, and those of the trampolines in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dump {
    /// Address of the first byte.
    pub base: u64,
    /// Addresses of trampolines, each with the symbol that the contract has for it; none is needed where there is one.
    pub entries: Vec<(String, u64)>,
    /// The address where their code ends, if it is not where the dump does.
    pub end: Option<u64>,
    /// Names of addresses outside of it. Others are called by their address.
    pub names: BTreeMap<u64, String>,
}

/// Make an object of a dump with one function, which has this name and address.
///
/// # Errors
/// The address is not in the dump, or not that of an instruction.
pub fn dumped(backend: &dyn Backend, code: &[u8], base: u64, (symbol, entry): (&str, u64)) -> Result<Vec<u8>> {
    let dump = Dump { base, entries: Vec::new(), end: None, names: BTreeMap::new() };
    wrap(backend, &dump, code, &[(symbol, entry)], &Named::default())
}

/// What a contract for a dump names by its address.
#[derive(Default)]
pub(crate) struct Named<'c> {
    /// Addresses in the dump as `0x...`, by which it names them too.
    pub labels: Vec<&'c str>,
    /// Other names of addresses in the dump.
    pub places: Vec<(String, u64)>,
    /// Functions outside, as `0x...`: what refers to their first [`FUNCTION`] bytes refers to them.
    pub functions: Vec<&'c str>,
}

/// The address that a contract for a dump has in the place of a symbol.
pub(crate) fn address_of(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// A trampoline goes on so many bytes behind the start of a function at most: pads, and a site.
const FUNCTION: u64 = 64;

/// Make an object of `code`, in which each trampoline has the name that comes with its address in `entries`; of the labels in
/// `named`, those that are addresses in the dump name these.
///
/// # Errors
/// An entry or another place is not in the dump, or an entry not an instruction.
pub(crate) fn wrap(
    backend: &dyn Backend,
    dump: &Dump,
    code: &[u8],
    entries: &[(&str, u64)],
    named: &Named,
) -> Result<Vec<u8>> {
    let base = dump.base;
    let end = base.saturating_add(code.len() as u64);
    let inside = |at: u64| (base..end).contains(&at);
    let last = dump.end.unwrap_or(end);
    if !inside(last.wrapping_sub(1)) {
        return Err(Error::new(format!(
            "--end {last:#x} is not in the dump; valid: {:#x} to {end:#x}",
            base.saturating_add(1)
        )));
    }
    if let Some((_, entry)) = entries.iter().find(|(_, entry)| !(base..last).contains(entry)) {
        let valid = format!("{base:#x} to {:#x}", last.saturating_sub(1));
        return Err(Error::new(format!("--entry {entry:#x} is not in the dump; valid: {valid}")));
    }
    let lines = reached(backend, dump, code, entries)?;
    if let Some((_, entry)) = entries.iter().find(|(_, entry)| !lines.contains_key(entry)) {
        return Err(Error::new(format!("no instruction at --entry {entry:#x}; valid: where one of --arch begins")));
    }
    // Their ends are not told: what is reached is theirs.
    let is_entry = |at: u64| entries.iter().any(|(_, other)| *other == at);
    let size = |entry: u64| extent(backend, (code, base), &lines, entry, is_entry);
    let mut wrapping = Wrapping::of(backend, code, base);
    let known = |name: &str| dump.names.iter().find(|(_, known)| *known == name).map(|(at, _)| *at);
    let function = |name: &&str| Some((address_of(name).or_else(|| known(name))?, (*name).to_owned()));
    wrapping.outside = named.functions.iter().filter_map(function).collect();
    wrapping.names = dump.names.clone();
    if let Some((name, at)) = named.places.iter().find(|(_, at)| !inside(*at)) {
        return Err(Error::new(format!("{name} = {at:#x} is not in the dump; valid: {base:#x} to {:#x}", end - 1)));
    }
    for (name, at) in &named.places {
        wrapping.label(name.clone(), wrapping.place(*at));
    }
    for &(symbol, entry) in entries {
        wrapping.functions.insert(symbol.to_owned(), (wrapping.place(entry), size(entry)));
    }
    wrapping.instructions(&lines)?;
    wrapping.words(&lines);
    for label in &named.labels {
        if let Some(at) = address_of(label).filter(|at| inside(*at)) {
            wrapping.label((*label).to_owned(), wrapping.place(at));
        }
    }
    wrapping.object()
}

/// The instructions that run from these entries, by their addresses.
fn reached(backend: &dyn Backend, dump: &Dump, code: &[u8], entries: &[(&str, u64)]) -> Result<BTreeMap<u64, Decoded>> {
    let size = dump.end.and_then(|end| usize::try_from(end.checked_sub(dump.base)?).ok());
    let theirs = size.and_then(|size| code.get(..size)).unwrap_or(code);
    followed(backend, (theirs, dump.base), entries.iter().map(|(_, entry)| *entry).collect(), &|_, _| true)
}

/// The instructions as they read in the dump, by symbol and offset: where they are run, their addresses are others.
///
/// # Errors
/// There is too much code.
pub(crate) fn texts(
    backend: &dyn Backend,
    dump: &Dump,
    code: &[u8],
    entries: &[(&str, u64)],
) -> Result<BTreeMap<(String, u64), Arc<str>>> {
    let lines = reached(backend, dump, code, entries)?;
    let mut all = BTreeMap::new();
    for &(symbol, entry) in entries {
        let text = |(at, line): (&u64, &Decoded)| ((symbol.to_owned(), at - entry), Arc::clone(&line.text));
        all.extend(lines.range(entry..).map(text));
    }
    Ok(all)
}

/// A dump while it becomes an object.
struct Wrapping<'a> {
    backend: &'a dyn Backend,
    base: u64,
    end: u64,
    /// Bytes before it: parts of a page count for addresses that are made of pages.
    lead: u64,
    code: Vec<u8>,
    /// Each name is there once: a pointer may lead to where a function begins that is called by its address.
    functions: BTreeMap<String, (u64, u64)>,
    labels: BTreeMap<String, u64>,
    calls: Vec<Call>,
    /// Functions outside, by their addresses.
    outside: Vec<(u64, String)>,
    /// Names of other addresses outside.
    names: BTreeMap<u64, String>,
}

impl Wrapping<'_> {
    fn of<'a>(backend: &'a dyn Backend, code: &[u8], base: u64) -> Wrapping<'a> {
        let lead = base % PAGE;
        let end = base.saturating_add(code.len() as u64);
        let code = [vec![0; lead as usize], code.to_vec()].concat();
        Wrapping {
            backend,
            base,
            end,
            lead,
            code,
            functions: BTreeMap::new(),
            labels: BTreeMap::new(),
            calls: Vec::new(),
            outside: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    fn inside(&self, at: u64) -> bool {
        (self.base..self.end).contains(&at)
    }

    /// The offset of an address in the object.
    fn place(&self, at: u64) -> u64 {
        at.wrapping_sub(self.base).wrapping_add(self.lead)
    }

    fn label(&mut self, name: String, place: u64) {
        if !self.functions.contains_key(&name) {
            self.labels.insert(name, place);
        }
    }

    /// The name of an address, which has one from now on if it is in the dump, and bytes from there to the address.
    fn named(&mut self, at: u64) -> (String, i64) {
        let function = self.outside.iter().find(|(function, _)| at.wrapping_sub(*function) < FUNCTION);
        if let Some((function, name)) = function.filter(|_| !self.inside(at)) {
            return (name.clone(), at.wrapping_sub(*function).cast_signed());
        }
        if let Some(name) = self.names.get(&at).filter(|_| !self.inside(at)) {
            return (name.clone(), 0);
        }
        let name = format!("{at:#x}");
        if self.inside(at) {
            self.label(name.clone(), self.place(at));
        }
        (name, 0)
    }

    /// Let the instructions refer to names, where they call what is outside or make an address.
    fn instructions(&mut self, lines: &BTreeMap<u64, Decoded>) -> Result<()> {
        let mut done = self.base;
        for line in lines.values() {
            let from = self.place(line.at) as usize;
            let insn = self.code.get(from..).unwrap_or_default();
            if let Some(target) = line.target.filter(|target| !self.inside(*target)) {
                let Some((r_type, at, addend)) = call(self.backend, line, insn, target) else {
                    return Err(out_of_dump(line, target, (self.base, self.end)));
                };
                let (target, more) = self.named(target);
                self.calls.push(Call { offset: (from + at) as u64, r_type, addend: addend + more, target });
            }
            if line.at >= done {
                done = self.constant(lines, line.at).unwrap_or(done);
            }
        }
        Ok(())
    }

    /// Make the longest sequence at `at` that makes an address, and can load another one, load that of a name. Returns where it
    /// ends.
    fn constant(&mut self, lines: &BTreeMap<u64, Decoded>, at: u64) -> Option<u64> {
        let (patterns, from) = (self.backend.patterns(), self.place(at) as usize);
        let insn = self.code.get(from..)?;
        let constants = Constant::read(patterns, insn, at);
        let (link, longest) = (self.backend.facts().abi.link, constants.iter().map(|c| c.size).max());
        let addresses = constants.iter().rev().filter(|constant| {
            let value = constant.value;
            // What goes on is only a part of another number.
            let whole = constant.last.is_some() || Some(constant.size) == longest;
            self.inside(value) || whole && address(value) || branched_to(lines, at, constant, link).is_some()
        });
        let (constant, (new, relocations)) =
            addresses.filter_map(|constant| Some((*constant, load(patterns, constant, insn)?))).next()?;
        let (target, more) = self.named(constant.value);
        // Whoever names places passes over those that begin so.
        let high = format!(".load of {target} at {at:#x}");
        for (at, r_type, addend) in relocations {
            let of_high = self.backend.refers_to_high(r_type);
            let (target, more) = if of_high { (&high, 0) } else { (&target, more) };
            self.calls.push(Call { offset: (from + at) as u64, r_type, addend: addend + more, target: target.clone() });
        }
        self.label(high, from as u64);
        self.code.get_mut(from..from + constant.size)?.copy_from_slice(&new);
        Some(at + constant.size as u64)
    }

    /// Let words between the instructions refer to names, where they point into the dump.
    fn words(&mut self, lines: &BTreeMap<u64, Decoded>) {
        let [word, ..] = self.backend.facts().dynamic;
        for from in (self.lead.next_multiple_of(8)..self.code.len() as u64).step_by(8) {
            let bytes = self.code.get(from as usize..).and_then(|rest| rest.first_chunk());
            // Small numbers are numbers, wherever the dump is.
            let value =
                bytes.map(|bytes| u64::from_le_bytes(*bytes)).filter(|value| *value >= PAGE && self.inside(*value));
            let at = self.base + (from - self.lead);
            let before = lines.range(..at.saturating_add(8)).next_back();
            let free = before.is_none_or(|(_, line)| line.at + u64::from(line.size) <= at);
            if let Some(value) = value.filter(|_| free) {
                let (target, more) = self.named(value);
                self.calls.push(Call { offset: from, r_type: word, addend: more, target });
            }
        }
    }

    fn object(self) -> Result<Vec<u8>> {
        let functions = self.functions.into_iter().map(|(name, (place, size))| (name, place, size));
        object(&Raw {
            machine: self.backend.facts().machine,
            code: &self.code,
            align: PAGE,
            symbols: functions.collect(),
            labels: self.labels.into_iter().collect(),
            calls: self.calls,
            ..Raw::default()
        })
    }
}

/// What is so near that an instruction reaches it without a long distance is part of the same code, and nothing can stand in for it.
fn out_of_dump(line: &Decoded, target: u64, (base, end): (u64, u64)) -> Error {
    let valid = (base.min(target), end.max(target.saturating_add(1)));
    let insn = line.text.split_whitespace().next().unwrap_or_default();
    Error::new(format!(
        "{insn} at {:#x} goes to {target:#x}, out of the dump, from {base:#x} to {end:#x}, and nothing can stand in so near; valid: \
         a dump from {:#x} to {:#x} at least",
        line.at, valid.0, valid.1
    ))
}

/// How many bytes a trampoline has: those of the instructions that it reaches without a call, up to where another one begins.
fn extent(
    backend: &dyn Backend,
    (code, base): (&[u8], u64),
    lines: &BTreeMap<u64, Decoded>,
    entry: u64,
    is_entry: impl Fn(u64) -> bool,
) -> u64 {
    let calls = |line: &Decoded| line.branch.is_some_and(|branch| branch.pushes);
    let (mut seen, mut open, mut end) = (BTreeSet::new(), vec![entry], entry);
    while let Some(at) = open.pop() {
        let Some(line) = lines.get(&at).filter(|_| at == entry || !is_entry(at)) else { continue };
        if !seen.insert(at) {
            continue;
        }
        let next = at + u64::from(line.size);
        end = end.max(next);
        let insn = code.get(at.wrapping_sub(base) as usize..).unwrap_or_default();
        let made = constants(backend, lines, insn, at);
        open.extend(line.target.filter(|_| !calls(line)));
        open.extend(made.filter(|(user, _)| !calls(user)).map(|(_, to)| to));
        open.extend((!line.last).then_some(next));
    }
    let next = lines.keys().copied().find(|at| *at > entry && is_entry(*at));
    end.min(next.unwrap_or(end)) - entry
}

/// Does a constant look like an address, whatever is done with it? Small numbers, also negative ones, do not; nor does
/// what no page table can hold.
fn address(value: u64) -> bool {
    let top = value >> 56;
    (1 << 32..0_u64.wrapping_sub(1 << 20)).contains(&value) && (top == 0 || top == u64::MAX >> 56)
}

/// A relocation: where it is, its type, what it adds.
type Field = (usize, u32, i64);

/// Instructions that load the address of a symbol, in the place of a constant, with their relocations. `None` if there
/// is no room.
fn load(patterns: &PatternTable, constant: &Constant, code: &[u8]) -> Option<(Vec<u8>, Vec<Field>)> {
    let (mut bytes, mut relocations) = (Vec::new(), Vec::new());
    for (n, (form, (r_type, at, addend))) in patterns.load.iter().enumerate() {
        let mut insn = form.encode(&Fields { a: constant.register, ..Fields::NONE });
        if form.has(b"bB") {
            insn = form.encode(&Fields { a: constant.register, b: constant.register, ..Fields::NONE });
        }
        // What uses the address has the last part of it.
        if let Some(last) = constant.last.filter(|_| n + 1 == patterns.load.len()) {
            bytes.extend(patterns.fill(last.checked_sub(bytes.len())?)?);
            insn = code.get(last..constant.size).map(<[u8]>::to_vec);
        }
        relocations.push((bytes.len() + at, *r_type, *addend));
        bytes.extend(insn?);
    }
    bytes.extend(patterns.fill(constant.size.checked_sub(bytes.len())?)?);
    Some((bytes, relocations))
}

/// Is an instruction, with which `code` begins, a call of `target`, or a jump there? It is if relocating it changes nothing.
/// Returns the relocation: its type, where the field is, and what it adds to the target.
pub(crate) fn call(backend: &dyn Backend, line: &Decoded, code: &[u8], target: u64) -> Option<(u32, usize, i64)> {
    // With the next one it might pass for another call, which has two.
    let insn = code.get(..line.size.into())?;
    backend.machine().calls.iter().copied().find(|&(r_type, offset, addend)| {
        let Some(before) = insn.get(offset..) else { return false };
        let (place, value) = (line.at.wrapping_add(offset as u64), target.wrapping_add_signed(addend));
        let mut after = before.to_vec();
        let made = backend.relocate(&Relocation { r_type, place, value, high: 0 }, &mut after);
        made.is_ok() && after == before
    })
}
