//! What each address of a linked image is.

use std::collections::BTreeMap;

use codegen::arch::harden::TypeWord;
use codegen::arch::machine::{Branch, Machine};
use codegen::ask::kind::{Calls, Gives};
use codegen::ask::spec::Bracket;
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::contract::stated::Next;
use codegen::words::error::{Error, Result};
use link::{Access, Image, STUBS, SymbolKind, mark};

use crate::engine::disasm::{Decoded, constants, decode_function, followed};
use crate::judge::fixture::{CALLBACK, Fixture, Setup};
use crate::judge::suite::Suite;
use crate::judge::trace::{Cell, Cells, MOST, Mark, Region};
use crate::run::raw::address_of;

/// What each trampoline calls by name: where that begins, and what it is.
pub(crate) type Callees = Vec<Vec<(u64, Mark)>>;

/// What is known of the addresses of an image, or of two, before anything runs.
pub(crate) struct Marks {
    pub(crate) cells: Cells,
    /// First address and bytes of each trampoline.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Code outside of each trampoline that it jumps to.
    pub(crate) tails: Vec<Vec<Decoded>>,
    /// The instructions of all trampolines.
    pub(crate) instructions: Vec<u64>,
}

impl Marks {
    /// Change the cells of what has this name; an object may say of a symbol what it likes.
    fn each(
        &mut self,
        fixture: &Fixture,
        name: &str,
        (from, len): (u64, u64),
        change: impl Fn(&mut Cell),
    ) -> Result<()> {
        let place = self.cells.range_mut(from, len).ok_or_else(|| {
            let fixture = fixture.variant;
            Error::new(format!("{fixture}: {name} at {from:#x}, with {len} bytes, is not inside the linked image"))
        })?;
        place.iter_mut().for_each(change);
        Ok(())
    }
}

/// Sets of trampolines are words with a bit for each.
fn bounded(suite: &Suite) -> Result<()> {
    let (what, trampolines) = (&suite.options, suite.contracts.len());
    if trampolines > MOST {
        return Err(Error::new(format!("{what}: {trampolines} trampolines; valid: at most {MOST}")));
    }
    Ok(())
}

/// Tell the cells what they are: functions, those in `traced` if they are elsewhere, and trampolines with what they
/// branch to and call.
pub(crate) fn mark_cells(
    setup: Setup,
    linked: &Image,
    image: &Image,
    traced: Option<&Image>,
    called: &Callees,
) -> Result<Marks> {
    let Setup { suite, fixture, functions, .. } = setup;
    bounded(suite)?;
    let machine = suite.backend.machine();
    let memory = |image: &Image| {
        let memory = image.segments.iter().map(|s| (s.address, s.address + s.mem_size));
        memory.fold((u64::MAX, 0), |(a, b), (c, d)| (a.min(c), b.max(d)))
    };
    let mut marks = Marks { cells: Cells::default(), ranges: Vec::new(), tails: Vec::new(), instructions: Vec::new() };
    for (base, end) in traced.into_iter().chain([image]).map(memory) {
        marks.cells.add(base, (end - base) as usize);
    }
    for f in functions {
        let symbol = traced.unwrap_or(image).symbol(&f.name);
        let symbol = symbol.ok_or_else(|| Error::new(format!("no function {}", f.name)))?;
        marks.each(fixture, &f.name, (symbol.address, symbol.size), |c| c.region = Region::Function)?;
    }
    for (i, contract) in suite.contracts.iter().enumerate() {
        let symbol = image.symbol(&contract.name).ok_or_else(|| {
            Error::new(format!("the object does not define {0}; valid: one that defines {0}", contract.name))
        })?;
        let range = (symbol.address, extent(image, symbol));
        marks.each(fixture, &contract.name, range, |c| c.region = Region::Trampoline(i as u8))?;
        marks.ranges.push(range);
    }
    for (contract, (start, size)) in suite.contracts.iter().zip(marks.ranges.clone()) {
        marks.each(fixture, &contract.name, (start, 1), |c| c.marks.set(Mark::ENTRY, true))?;
        for insn in decode_function(machine, image, (start, size))? {
            let told = what(machine, &insn);
            marks.each(fixture, &contract.name, (insn.at, 1), |c| (c.branch, c.by_sp) = told)?;
            marks.instructions.push(insn.at);
        }
    }
    // Returns are paired through what stands in for functions or returns, and through parts of the code in sections of
    // their own.
    let thunk = image.symbol(machine.return_thunk).map(|s| (s.address, s.size));
    let judged = if suite.stubs { suite.first() } else { usize::MAX };
    for (start, size) in fragments(linked, judged).into_iter().chain(thunk) {
        for insn in decode_function(machine, image, (start, size))? {
            // What is no branch is told too: otherwise the next place would seem to be one where C returned to.
            let branch = (insn.branch.unwrap_or_default(), insn.size);
            marks.each(fixture, "code", (insn.at, 1), |c| c.branch = Some(branch))?;
        }
    }
    let callback = image.symbol(CALLBACK);
    let callback =
        callback.ok_or_else(|| Error::new(format!("{}: the linked image has no symbol callback", fixture.variant)))?;
    marks.each(fixture, CALLBACK, (callback.address, 1), |c| c.marks.set(Mark::CALLBACK, true))?;
    for (contract, called) in suite.contracts.iter().zip(called) {
        for &(at, mark) in called.iter().filter(|(at, _)| *at != 0) {
            marks.each(fixture, &contract.callee, (at, 1), |c| c.marks.set(mark, true))?;
        }
    }
    let thunk = |at: u64| thunk.is_some_and(|(start, size)| at.wrapping_sub(start) < size);
    for &(start, size) in &marks.ranges.clone() {
        // Wherever an object of theirs has code that is nobody else's.
        let theirs = |at: u64| {
            let cell = marks.cells.get(at).copied().unwrap_or_default();
            let free = matches!(cell.region, Region::Elsewhere | Region::Shared) && cell.marks == Mark::NONE;
            free && !thunk(at) && suite.stubs && is_named(linked, judged, at)
        };
        let tail = tail(suite.backend, image, (start, size), &theirs)?;
        for insn in &tail {
            let (branch, by_sp) = what(machine, insn);
            let change = |c: &mut Cell| (c.region, c.branch, c.by_sp) = (Region::Shared, branch, by_sp);
            marks.each(fixture, "code", (insn.at, insn.size.into()), change)?;
            marks.instructions.push(insn.at);
        }
        marks.tails.push(tail);
    }
    mark_system_calls(suite, fixture, image, &mut marks)?;
    mark_copies(suite, fixture, &mut marks)?;
    Ok(marks)
}

/// Where copies of displaced instructions begin.
fn mark_copies(suite: &Suite, fixture: &Fixture, marks: &mut Marks) -> Result<()> {
    for (contract, (start, _)) in suite.contracts.iter().zip(marks.ranges.clone()) {
        if let Next::Copies(bytes) = contract.stated.next {
            let change = |c: &mut Cell| c.marks.set(Mark::COPIES, true);
            marks.each(fixture, &contract.name, (start.saturating_add(bytes), 1), change)?;
        }
    }
    Ok(())
}

/// Where stubs call the kernel.
fn mark_system_calls(suite: &Suite, fixture: &Fixture, image: &Image, marks: &mut Marks) -> Result<()> {
    let call = suite.backend.machine().system_call.bytes;
    if !suite.contracts.iter().any(|contract| contract.kind.syscall().is_some()) {
        return Ok(());
    }
    for at in marks.instructions.clone().into_iter().filter(|at| image.bytes(*at, call.len()) == Some(call)) {
        marks.each(fixture, "code", (at, 1), |c| c.marks.set(Mark::SYSTEM_CALL, true))?;
    }
    Ok(())
}

/// Is this inside a symbol of the first so many objects? Parts of the code in sections of their own have none. What only holds the
/// type of a function is no code, though its symbol says so.
fn is_named(linked: &Image, judged: usize, at: u64) -> bool {
    let code = |name: &str| mark(name).is_none() && !name.starts_with(TypeWord::LABEL);
    let named = |s: &&link::Symbol| s.input.is_some_and(|input| input < judged) && code(&s.name);
    linked.symbols.iter().filter(named).any(|s| at.wrapping_sub(s.address) < extent(linked, s))
}

/// A branch, and whether it accesses memory by SP where that must be aligned.
fn what(machine: &Machine, insn: &Decoded) -> (Option<(Branch, u8)>, bool) {
    let operands = insn.text.split_once(' ').map_or("", |(_, operands)| operands);
    let by_sp = machine.sp_access_align > 1 && (machine.accesses_by_sp)(operands);
    (insn.branch.map(|branch| (branch, insn.size)), by_sp)
}

/// The code that a function jumps to outside of itself, where `theirs` holds. What it calls is none of it.
pub(crate) fn tail(
    backend: &dyn Backend,
    image: &Image,
    (start, size): (u64, u64),
    theirs: &dyn Fn(u64) -> bool,
) -> Result<Vec<Decoded>> {
    let calls = |line: &Decoded| line.branch.is_some_and(|branch| branch.pushes);
    let own = decode_function(backend.machine(), image, (start, size))?;
    let own: BTreeMap<u64, Decoded> = own.into_iter().map(|line| (line.at, line)).collect();
    let made = own.keys().flat_map(|at| {
        let code = image.bytes(*at, start.wrapping_add(size).wrapping_sub(*at) as usize);
        constants(backend, &own, code.unwrap_or_default(), *at)
    });
    let jumps = own.values().filter_map(|line| Some((line, line.target?))).chain(made);
    let outside = |at: &u64| at.wrapping_sub(start) >= size && theirs(*at);
    let entries: Vec<u64> = jumps.filter(|(line, to)| !calls(line) && outside(to)).map(|(_, to)| to).collect();
    let mut all = BTreeMap::new();
    for segment in image.segments.iter().filter(|s| s.access == Access::Execute) {
        let inside = |at: &&u64| at.wrapping_sub(segment.address) < segment.bytes.len() as u64;
        let here = entries.iter().filter(inside).copied().collect();
        let code = (segment.bytes.as_slice(), segment.address);
        // What is called is none of it, also where that is what comes next.
        let behind = |line: &Decoded| line.at.wrapping_add(line.size.into());
        let goes_on = |line: &Decoded, next: u64| !calls(line) || (next == behind(line) && line.target != Some(next));
        let follows = |line: &Decoded, next: u64| outside(&next) && goes_on(line, next);
        all.append(&mut followed(backend, code, here, &follows)?);
    }
    Ok(all.into_values().collect())
}

/// The bytes of a function: what its symbol says, or up to the next symbol or the section's end.
pub(crate) fn extent(image: &Image, symbol: &link::Symbol) -> u64 {
    let section = image.sections.iter().find(|s| (s.address..s.address + s.size).contains(&symbol.address));
    let end = section.map_or(symbol.address, |s| s.address + s.size);
    let named = image.symbols.iter().filter(|s| mark(&s.name).is_none());
    let next = named.map(|s| s.address).filter(|a| *a > symbol.address).min().unwrap_or(end);
    if symbol.size > 0 { symbol.size.min(end - symbol.address) } else { end.min(next) - symbol.address }
}

/// Where the C functions begin that a trampoline calls by name, and what they are; 0 if its contract leaves one open.
pub(crate) fn callees(image: &Image, contract: &Contract) -> Result<Vec<(u64, Mark)>> {
    let address = |name: &str| match image.symbol(name) {
        _ if name.is_empty() => Ok(0),
        Some(symbol) => Ok(symbol.address),
        None => Err(Error::new(format!("{}: the linked image has no symbol {name}", contract.name))),
    };
    let row = contract.kind.traits();
    if row.calls == Calls::Named && !contract.stated.through.is_empty() {
        let through = contract.stated.through.iter();
        return through.map(|v| Ok((address(&v.callee)?, Mark::DIRECT_FUNC))).collect();
    }
    let mark = match row.calls {
        Calls::ExitHandler => Mark::EXIT_HANDLER,
        Calls::Handlers if row.gives == Gives::Frame => Mark::CALLBACK,
        Calls::Named | Calls::Handlers => Mark::DIRECT_FUNC,
        Calls::Programs => {
            let programs = contract.programs.iter().map(|p| Ok((address(&p.symbol)?, Mark::PROGRAM)));
            let around = contract.stated.brackets().flat_map(|bracket| match bracket {
                Some(Bracket { enter, exit, .. }) => [&**enter, &**exit],
                None => [""; 2],
            });
            return programs.chain(around.map(|name| Ok((address(name)?, Mark::AROUND)))).collect();
        }
        Calls::Nothing if contract.kind.recorder().is_some_and(|recorder| recorder.refill) => {
            return Ok(vec![(address(&contract.callee)?, Mark::DIRECT_FUNC)]);
        }
        Calls::Context => {
            let ends = contract.stated.contexts.iter().filter_map(|c| c.fresh.as_ref()?.ends_in.as_deref());
            let ends = ends.map(|name| Ok((address(name)?, Mark::EXIT_HANDLER)));
            return [Ok((address(&contract.callee)?, Mark::DIRECT_FUNC))].into_iter().chain(ends).collect();
        }
        Calls::Nothing | Calls::Callback | Calls::Kernel => return Ok(Vec::new()),
    };
    let exit = contract.traced.as_ref().map_or(Ok(0), |traced| address(&traced.exit))?;
    Ok(vec![(address(&contract.callee)?, mark), (exit, Mark::EXIT_HANDLER)])
}

/// What the functions around each program are given first, then those around all, where their contract says it.
///
/// # Errors
/// It names what the image does not have.
pub(crate) fn arguments(image: &Image, contract: &Contract) -> Result<Vec<Option<u64>>> {
    let address = |name: &str| match image.symbol(name) {
        Some(symbol) => Ok(symbol.address),
        None => address_of(name).ok_or_else(|| Error::new(format!("{}: no symbol {name}", contract.name))),
    };
    let given = contract.stated.brackets().map(|bracket| bracket.and_then(|b| b.argument.as_deref()));
    given.map(|argument| argument.map(address).transpose()).collect()
}

/// Code that belongs to no function: each stub, and sections to which the first so many objects alone contribute.
pub(crate) fn fragments(image: &Image, judged: usize) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for section in image.sections.iter().filter(|s| s.access == Access::Execute) {
        let inside = image.symbols.iter().filter(|s| s.address.wrapping_sub(section.address) < section.size);
        if section.name == STUBS {
            all.extend(inside.map(|s| (s.address, s.size)));
        } else if !inside.clone().any(|s| s.kind == SymbolKind::Function || s.input.is_none_or(|i| i >= judged)) {
            all.push((section.address, section.size));
        }
    }
    all
}
