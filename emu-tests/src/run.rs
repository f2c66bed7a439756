//! Which cases are run, and how: each function unpatched, enabled and disabled, and what must agree.

mod cost;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use codegen::abi::{Abi, Loc, Reg, RegSet};
use codegen::contract::Contract;
use codegen::error::{Error, Result};
use codegen::frame::{Back, Content};
use codegen::link::{Access, Image, Input, Options, STUBS, SymbolKind, link};
use codegen::live::Live;
use codegen::patch::{SiteState, Write};
use codegen::spec::{Form, Kind, Programs};
use codegen::step::Inner;
use rayon::prelude::*;
use unicorn_engine::{Context, HookType, uc_error};

pub use cost::{Spent, spent};

use crate::case::{Case, Handler, Initial, Outcome, Situation};
use crate::copy::put_copies;
use crate::cpu::{EXIT, Registers, STACK_SIZE, STACK_TOP, Snapshot, Uc, load, put_word, write_code};
use crate::disasm::{Decoded, decode};
use crate::filter::Filter;
use crate::fixture::{FIXTURES, Fixture, Function, functions};
use crate::report::{Clause, Failure, RegisterFate, Report, Row, Survival, Verdict};
use crate::rng::Rng;
use crate::suite::Suite;
use crate::trace::{
    self, CALLBACK, Cell, Cells, DIRECT_FUNC, ENTRY, EXIT_HANDLER, FUNCTION, Finding, PROGRAM, SITE, TRAMPOLINE, Trace,
};
use crate::unwind::Table;

/// Where images are linked: the upper halves of addresses change behind the first page, so that a half that was not
/// carried along shows.
const BASE: u64 = 0x7f_ffff_f000;
/// Images begin on a page of their own.
pub(crate) const PAGE: u64 = 0x1000;
/// Bytes above SP that hold stack arguments and canaries.
const ABOVE: u64 = 256;
/// Bytes below SP that hold garbage.
const BELOW: u64 = 4096;
/// Bytes for a result returned in memory.
const RESULT: u64 = 64;
/// How the functions are called that others are redirected to.
const LIVEPATCH: &str = "_livepatch";

/// Called with the number of finished and of all groups.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A linked image on an engine.
pub(crate) struct Bench<'s> {
    pub(crate) suite: &'s Suite,
    pub(crate) fixture: &'static Fixture,
    pub(crate) functions: &'s [Function],
    seed: u64,
    /// The trampolines, and all that they refer to.
    pub(crate) image: Image,
    /// The traced functions, if they are elsewhere.
    away: Option<Away<'s>>,
    pub(crate) registers: Registers,
    pub(crate) uc: Uc<'static>,
    /// The CPU as it was before anything ran: a run that went astray may have changed any of it.
    fresh: Context,
    /// The last run may have left more behind than the next one sets.
    dirty: bool,
    /// The callback in the call slots and in `op`, and the direct trampoline in `op`.
    prepared: Option<(u64, u64)>,
    /// Registers of the fresh CPU, and garbage for the stack.
    clean: Snapshot,
    garbage: Vec<u8>,
    pub(crate) places: trace::Places,
    scratch: u64,
    callback: u64,
    slots: Vec<u64>,
    op_cell: (u64, u64),
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// The same image once more, with the functions that are traced.
struct Away<'s> {
    functions: Image,
    /// From there to the trampolines, in bytes.
    distance: i64,
    /// The entry trampolines are copies, as the kernel makes them for an `ftrace_ops`.
    copied: bool,
    /// What came out beside the trampolines.
    beside: &'s Part,
}

/// Run all cases of all suites that pass the filter.
///
/// # Errors
/// An object that does not link with the fixtures, or an engine that does not start; never a failed check.
pub fn check(suites: &[Suite], filter: &Filter, seed: u64, progress: Progress) -> Result<Report> {
    let functions = functions()?;
    validate(suites, filter, &functions)?;
    let groups: Vec<(usize, &'static Fixture)> =
        suites.iter().enumerate().flat_map(|(i, suite)| fixtures(suite, filter).map(move |f| (i, f))).collect();
    if groups.is_empty() {
        return Err(Error::new("no fixture fits these options: see emu-tests/fixtures/fixtures.toml"));
    }
    let run = |i: usize, fixture: &'static Fixture| {
        // One fixture is enough to tell what distance does.
        let once = fixtures(&suites[i], filter).next().is_some_and(|first| std::ptr::eq(first, fixture));
        judge(&suites[i], fixture, &functions, seed, filter, once && filter.judges(Clause::P16))
    };
    if filter.first_failure {
        let mut merged: Vec<Part> = suites.iter().map(Part::new).collect();
        for (i, fixture) in groups {
            if !merged[i].fails() {
                merged[i].absorb(run(i, fixture)?);
            }
        }
        return Ok(report(suites, &merged, filter, seed));
    }
    let (done, all) = (AtomicU64::new(0), groups.len() as u64);
    let parts: Vec<Result<(usize, Part)>> = groups
        .par_iter()
        .map(|&(i, fixture)| {
            let part = run(i, fixture)?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
            Ok((i, part))
        })
        .collect();
    let mut merged: Vec<Part> = suites.iter().map(Part::new).collect();
    for part in parts {
        let (i, part) = part?;
        merged[i].absorb(part);
    }
    Ok(report(suites, &merged, filter, seed))
}

/// Run a suite on the functions of a fixture; and, if it is to be `moved`, once more from as far away as its sites reach.
fn judge(
    suite: &Suite,
    fixture: &'static Fixture,
    functions: &[Function],
    seed: u64,
    filter: &Filter,
    moved: bool,
) -> Result<Part> {
    let bench = Bench::new(suite, fixture, functions, seed)?;
    let image = bench.image.clone();
    let mut part = bench.run(filter)?;
    let start = image.segments.first().map_or(0, |s| s.address);
    let end = image.segments.last().map_or(0, |s| s.address + s.mem_size);
    let size = (end - start).next_multiple_of(PAGE) as i64;
    let reach = suite.backend.facts().site.reach;
    for direction in [1, -1].into_iter().filter(|_| moved) {
        // Code with addresses of 32 bits cannot be everywhere.
        for distance in [reach - 2 * size, reach / 2] {
            let distance = direction * distance;
            let away = |copied| Away { functions: image.clone(), distance, copied, beside: &part };
            let benches = [false, true].map(|copied| Bench::moved(suite, fixture, functions, seed, away(copied)));
            let mut found = Vec::new();
            for bench in benches {
                found.extend(bench?.map(|bench| bench.run(filter)).transpose()?);
            }
            let done = !found.is_empty();
            found.into_iter().for_each(|there| part.absorb_moved(there));
            if done {
                break;
            }
        }
    }
    Ok(part)
}

/// What one scenario costs.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioCost {
    /// Reset, run with all checks, compare.
    pub scenario: Duration,
    /// The same instructions in the engine without hooks; the callback is the compiled function that does nothing.
    pub bare: Duration,
}

/// Time one scenario of a trampoline on a function, and the engine's share in it.
///
/// # Errors
/// An unknown trampoline or function, or an engine that does not start.
pub fn measure(suite: &Suite, trampoline: &str, function: &str) -> Result<ScenarioCost> {
    const RUNS: u32 = 2000;
    let functions = functions()?;
    let filter = Filter { function: Some(function.into()), situation: Some("plain".into()), ..Filter::default() };
    let fixture = fixtures(suite, &filter).next().ok_or_else(|| Error::new("no fixture fits these options"))?;
    let attach = suite.contracts.iter().position(|c| c.name == trampoline);
    let attach = attach
        .ok_or_else(|| Error::unknown("trampoline", trampoline, suite.contracts.iter().map(|c| c.name.as_str())))?;
    let mut best = ScenarioCost { scenario: Duration::MAX, bare: Duration::MAX };
    for hooks in [true, false] {
        let mut bench = Bench::with_hooks(suite, fixture, &functions, 1, hooks)?;
        let cases = bench.cases(attach, &suite.contracts[attach], &filter);
        let case = cases
            .first()
            .ok_or_else(|| Error::unknown("function", function, functions.iter().map(|f| f.name.as_str())))?;
        // As all functions but the first are run.
        let case = &Arc::new(Case { closely: false, ..Case::clone(case) });
        bench.patch_all(SiteState::Disabled, None)?;
        let expected = bench.reference(case)?;
        bench.patch_all(bench.on(attach), None)?;
        bench.prepare(case)?;
        let sp = case.initial.sp;
        let start = bench.function(function);
        let mut part = Part::new(suite);
        for _ in 0..5 {
            let clock = Instant::now();
            for _ in 0..RUNS {
                if hooks {
                    bench.enabled(case, &expected, &mut part)?;
                } else {
                    // The least that makes the run come back: SP, and the return address where the psABI has it.
                    bench.registers.set(&mut bench.uc, bench.registers.abi.sp, sp);
                    match bench.registers.abi.link {
                        Some(link) => bench.registers.set(&mut bench.uc, link, EXIT),
                        None => drop(put_word(&mut bench.uc, sp, EXIT)),
                    }
                    let _ = bench.uc.emu_start(start, EXIT, 0, 0);
                }
            }
            let each = clock.elapsed() / RUNS;
            let best = if hooks { &mut best.scenario } else { &mut best.bare };
            *best = each.min(*best);
        }
        if let Some((finding, ..)) = part.findings.iter().find(|(f, ..)| bench.known(f).is_none()) {
            return Err(Error::new(format!("{trampoline} fails {}: {}", finding.clause.name(), finding.place)));
        }
    }
    Ok(best)
}

fn validate(suites: &[Suite], filter: &Filter, functions: &[Function]) -> Result<()> {
    if let Some(suite) = suites.iter().find(|s| s.contracts.len() > trace::MOST) {
        let (what, n) = (&suite.options, suite.contracts.len());
        return Err(Error::new(format!("{what}: {n} trampolines; valid: at most {}", trace::MOST)));
    }
    if let Some(wanted) = &filter.function
        && !functions.iter().any(|f| f.name == *wanted)
    {
        return Err(Error::unknown("function", wanted, functions.iter().map(|f| f.name.as_str())));
    }
    if let Some(wanted) = &filter.situation {
        let known = situations(suites);
        if !known.contains(wanted) {
            return Err(Error::unknown("situation", wanted, known.iter().map(String::as_str)));
        }
    }
    if let Some(wanted) = &filter.fixture
        && !FIXTURES.iter().any(|f| f.variant == wanted)
    {
        return Err(Error::unknown("fixture", wanted, FIXTURES.iter().map(|f| f.variant)));
    }
    Ok(())
}

/// The names of the situations that the trampolines can be in.
pub fn situations(suites: &[Suite]) -> Vec<String> {
    let mut known = Vec::new();
    for name in suites.iter().flat_map(|s| &s.contracts).flat_map(Situation::all).map(Situation::name) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

/// The bytes of a function: what its symbol says, or up to the next symbol or the section's end.
pub(crate) fn extent(image: &Image, symbol: &codegen::link::Symbol) -> u64 {
    let section = image.sections.iter().find(|s| (s.address..s.address + s.size).contains(&symbol.address));
    let end = section.map_or(symbol.address, |s| s.address + s.size);
    let next = image.symbols.iter().map(|s| s.address).filter(|a| *a > symbol.address).min().unwrap_or(end);
    if symbol.size > 0 { symbol.size.min(end - symbol.address) } else { end.min(next) - symbol.address }
}

/// Where the C functions begin that a trampoline calls by name, and what they are; 0 if its contract leaves one open.
fn callees(image: &Image, contract: &Contract) -> Result<Vec<(u64, u8)>> {
    let address = |name: &str| match image.symbol(name) {
        _ if name.is_empty() => Ok(0),
        Some(symbol) => Ok(symbol.address),
        None => Err(Error::new(format!(
            "{} calls {name}, says the contract; no object defines or calls it: see `calls` in docs/contracts.md",
            contract.name
        ))),
    };
    let mark = match contract.kind {
        Kind::Return => EXIT_HANDLER,
        Kind::Direct(_) => DIRECT_FUNC,
        Kind::Around(around) if around.form == Form::Frame => DIRECT_FUNC,
        Kind::Around(_) => CALLBACK,
        Kind::Programs(_) => return contract.programs.iter().map(|p| Ok((address(&p.symbol)?, PROGRAM))).collect(),
        Kind::Stub | Kind::StubGraph | Kind::StubDirect | Kind::Entry(_) => return Ok(Vec::new()),
    };
    let exit = contract.traced.as_ref().map_or(Ok(0), |traced| address(&traced.exit))?;
    Ok(vec![(address(&contract.callee)?, mark), (exit, EXIT_HANDLER)])
}

/// Code that belongs to no function: each stub, and sections to which the first so many objects alone contribute.
fn fragments(image: &Image, judged: usize) -> Vec<(u64, u64)> {
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

/// The fixtures that can run with a suite: of its architecture, with its float ABI, and with a word for op before
/// each function where its trampolines look for one.
fn fixtures<'f>(suite: &'f Suite, filter: &'f Filter) -> impl Iterator<Item = &'static Fixture> + 'f {
    let mask = suite.backend.machine().e_flags_abi;
    let wants_op = suite.contracts.iter().any(|c| c.early_direct);
    FIXTURES.iter().filter(move |f| {
        f.arch == suite.backend.facts().name
            && suite.objects.iter().all(|(_, o)| e_flags(f.functions) & mask == e_flags(o) & mask)
            && (!wants_op || f.variant.starts_with("callops"))
            && filter.fixture.as_ref().is_none_or(|v| f.variant == v)
    })
}

/// `e_flags` of an ELF64 object; the linker checks the rest.
fn e_flags(object: &[u8]) -> u32 {
    object.get(48..52).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// What was found and counted, per trampoline.
pub(crate) struct Part {
    pub(crate) findings: Vec<(Finding, Arc<Case>, String, &'static str)>,
    pub(crate) checks: Vec<[u64; Clause::ALL.len()]>,
    fates: Vec<[(u64, u64); 32]>,
    vectors_lost: Vec<u64>,
    vector_runs: Vec<u64>,
    /// Offsets of instructions never executed, by trampoline; `None` until something ran.
    missed: Vec<Option<Vec<u64>>>,
    instructions: Vec<usize>,
    /// An instruction that may change vector state that the engine does not have, by trampoline.
    wide: Vec<Option<String>>,
    /// Bytes, by trampoline.
    sizes: Vec<u64>,
    failed: Vec<[u64; Clause::ALL.len()]>,
    failures: Vec<Vec<Failure>>,
    /// How often each expected deviation was found.
    deviated: Vec<u64>,
    /// Functions that stand in for what the objects leave undefined.
    stubs: Vec<String>,
    scenarios: u64,
}

impl Part {
    fn new(suite: &Suite) -> Part {
        let n = suite.contracts.len();
        Part {
            deviated: vec![0; suite.deviations.len()],
            stubs: Vec::new(),
            findings: Vec::new(),
            checks: vec![[0; Clause::ALL.len()]; n],
            fates: vec![[(0, 0); 32]; n],
            vectors_lost: vec![0; n],
            vector_runs: vec![0; n],
            missed: vec![None; n],
            instructions: vec![0; n],
            wide: vec![None; n],
            sizes: Vec::new(),
            failed: vec![[0; Clause::ALL.len()]; n],
            failures: vec![Vec::new(); n],
            scenarios: 0,
        }
    }

    /// Count a check that was made outside of a run; it failed if what was expected was not found.
    pub(crate) fn judged(&mut self, case: &Arc<Case>, finding: Finding, bench: &Bench) {
        if let Some(checks) = self.checks.get_mut(finding.trampoline) {
            checks[finding.clause as usize] += 1;
        }
        if finding.expected != finding.found {
            let function = bench.functions[case.function].name.clone();
            self.findings.push((finding, case.clone(), function, bench.fixture.variant));
        }
    }

    /// What was found far away is one clause here.
    fn absorb_moved(&mut self, there: Part) {
        const P16: usize = Clause::P16 as usize;
        for i in 0..self.checks.len() {
            self.checks[i][P16] += there.checks[i].iter().sum::<u64>();
            self.failed[i][P16] += there.failed[i][P16];
            self.failures[i].extend_from_slice(&there.failures[i]);
        }
    }

    /// Does a clause fail?
    fn fails(&self) -> bool {
        self.failed.as_flattened().iter().any(|n| *n > 0)
    }

    fn absorb(&mut self, other: Part) {
        for i in 0..self.checks.len() {
            for c in 0..Clause::ALL.len() {
                self.checks[i][c] += other.checks[i][c];
                self.failed[i][c] += other.failed[i][c];
            }
            for r in 0..32 {
                self.fates[i][r].0 += other.fates[i][r].0;
                self.fates[i][r].1 += other.fates[i][r].1;
            }
            self.vectors_lost[i] += other.vectors_lost[i];
            self.vector_runs[i] += other.vector_runs[i];
            self.instructions[i] = self.instructions[i].max(other.instructions[i]);
            if self.wide[i].is_none() {
                self.wide[i].clone_from(&other.wide[i]);
            }
            for failure in &other.failures[i] {
                let same = |f: &Failure| (f.clause, &f.place, &f.at) == (failure.clause, &failure.place, &failure.at);
                if !self.failures[i].iter().any(same) {
                    self.failures[i].push(failure.clone());
                }
            }
            self.missed[i] = match (self.missed[i].take(), &other.missed[i]) {
                (Some(a), Some(b)) => Some(a.into_iter().filter(|o| b.contains(o)).collect()),
                (a, b) => a.or_else(|| b.clone()),
            };
        }
        self.deviated.iter_mut().zip(&other.deviated).for_each(|(n, m)| *n += m);
        self.scenarios += other.scenarios;
        self.stubs = other.stubs;
    }
}

/// Link a suite's objects with a fixture's functions and callbacks; the body of the function that paired trampolines are
/// for begins at `body`.
fn link_at(suite: &Suite, fixture: &Fixture, base: u64, body: u64) -> Result<Image> {
    let name = |what: &str| format!("{}/{}/{what}", fixture.arch, fixture.variant);
    let (functions_name, callbacks_name) = (name("functions.o"), name("callbacks.o"));
    let judged = suite.objects.iter().map(|(name, bytes)| Input { name, bytes });
    let ours = [(&functions_name, fixture.functions), (&callbacks_name, fixture.callbacks)];
    let ours = ours.map(|(name, bytes)| Input { name, bytes });
    // What others wrote comes first, and so wins where both define something. Ours comes last: the first symbols of
    // code and data must not have the same offset in their pages.
    let inputs: Vec<Input> =
        if suite.stubs { judged.chain(ours).collect() } else { ours.into_iter().chain(judged).collect() };
    let stub = suite.stubs.then_some(suite.backend.machine().ret);
    let traced = suite.contracts.iter().filter_map(|c| c.traced.as_ref());
    let define = traced.map(|t| (t.function.clone(), body.wrapping_add_signed(-i64::from(t.resume)))).collect();
    link(suite.backend, &inputs, &Options { base, define, first: suite.first(), stub, ..Options::default() })
}

impl<'s> Bench<'s> {
    fn new(suite: &'s Suite, fixture: &'static Fixture, functions: &'s [Function], seed: u64) -> Result<Bench<'s>> {
        Bench::with_hooks(suite, fixture, functions, seed, true)
    }

    fn with_hooks(
        suite: &'s Suite,
        fixture: &'static Fixture,
        functions: &'s [Function],
        seed: u64,
        hooks: bool,
    ) -> Result<Bench<'s>> {
        // Code for the lowest or the highest 2 GiB has addresses of 32 bits: it does not reach far up.
        let low = Options::default().base;
        let linked = link_at(suite, fixture, BASE, BASE).or_else(|_| link_at(suite, fixture, low, low))?;
        Bench::around(suite, fixture, functions, seed, linked, None, hooks)
    }

    /// A bench with the functions where those of `beside` are, and everything else so many bytes away; `None` if the
    /// objects cannot be linked there.
    fn moved(
        suite: &'s Suite,
        fixture: &'static Fixture,
        functions: &'s [Function],
        seed: u64,
        away: Away<'s>,
    ) -> Result<Option<Bench<'s>>> {
        let base = away.functions.segments.first().map_or(BASE, |s| s.address);
        let there = base.checked_add_signed(away.distance).filter(|at| *at > 0);
        let Some(Ok(mut linked)) = there.map(|base| link_at(suite, fixture, base, base)) else { return Ok(None) };
        if away.copied && !put_copies(suite, &mut linked) {
            return Ok(None);
        }
        Bench::around(suite, fixture, functions, seed, linked, Some(away), true).map(Some)
    }

    fn around(
        suite: &'s Suite,
        fixture: &'static Fixture,
        functions: &'s [Function],
        seed: u64,
        linked: Image,
        away: Option<Away<'s>>,
        hooks: bool,
    ) -> Result<Bench<'s>> {
        let mut image = Image::from_elf(&linked.to_elf()?)?;
        let first = suite.first();
        let judged = |at: u64| linked.symbols.iter().any(|s| s.address == at && s.input.is_some_and(|i| i < first));
        // The functions that are traced are ours. Those that others wrote only give their trampolines something to call.
        image.sites.retain(|site| !judged(site.start));
        let mut called = Vec::new();
        for contract in &suite.contracts {
            called.push(callees(&image, contract)?);
            for (at, _) in called.iter().flatten().filter(|(at, _)| *at != 0 && judged(*at)) {
                // Its body would want a kernel around it. What it may do, the hook on its first instruction does.
                image.write(&Write { at: *at, bytes: suite.backend.machine().ret.to_vec() })?;
            }
        }
        for (variable, function) in &suite.pointers {
            let [at, to] = [variable, function].map(|name| image.symbol(name).map(|s| s.address));
            let (Some(at), Some(to)) = (at, to) else {
                return Err(Error::new(format!(
                    "{function} is called through {variable}, says the contract; the objects must refer to both"
                )));
            };
            image.write(&Write { at, bytes: to.to_le_bytes().to_vec() })?;
        }
        let address = |symbol: &str| {
            let found = image.symbol(symbol).map(|s| s.address);
            found.ok_or_else(|| Error::new(format!("{}: the linked image has no symbol {symbol}", fixture.variant)))
        };
        let registers = Registers { machine: suite.backend.machine(), abi: &suite.backend.facts().abi };

        let images = || away.iter().map(|a| &a.functions).chain([&image]);
        let extents: Vec<(u64, u64)> = images()
            .map(|image| {
                let memory = image.segments.iter().map(|s| (s.address, s.address + s.mem_size));
                memory.fold((u64::MAX, 0), |(a, b), (c, d)| (a.min(c), b.max(d)))
            })
            .collect();
        let mut cells = Cells::default();
        extents.iter().for_each(|&(base, end)| cells.add(base, (end - base) as usize));
        // An object may say of a symbol what it likes.
        let mut each = |name: &str, from: u64, len: u64, change: &dyn Fn(&mut Cell)| {
            let place = cells.range_mut(from, len).ok_or_else(|| {
                let fixture = fixture.variant;
                Error::new(format!("{fixture}: {name} at {from:#x}, with {len} bytes, is not inside the linked image"))
            })?;
            place.iter_mut().for_each(change);
            Ok(())
        };
        for f in functions {
            let symbol = away.as_ref().map_or(&image, |a| &a.functions).symbol(&f.name);
            let symbol = symbol.ok_or_else(|| Error::new(format!("no function {}", f.name)))?;
            each(&f.name, symbol.address, symbol.size, &|c| c.region = FUNCTION)?;
        }
        let mut ranges = Vec::new();
        for (i, contract) in suite.contracts.iter().enumerate() {
            let symbol = image
                .symbol(&contract.name)
                .ok_or_else(|| Error::new(format!("the object does not define {}", contract.name)))?;
            let size = extent(&image, symbol);
            each(&contract.name, symbol.address, size, &|c| c.region = TRAMPOLINE + i as u8)?;
            ranges.push((symbol.address, size));
        }
        let mut instructions = Vec::new();
        for (contract, (start, size)) in suite.contracts.iter().zip(&ranges) {
            each(&contract.name, *start, 1, &|c| c.marks |= ENTRY)?;
            for insn in decode(registers.machine, image.bytes(*start, *size as usize).unwrap_or_default(), *start)? {
                each(&contract.name, insn.at, 1, &|c| c.branch = insn.branch.map(|b| (b, insn.size)))?;
                instructions.push(insn.at);
            }
        }
        // Returns are paired through what stands in for functions or returns, and through parts of the code in sections of
        // their own.
        let thunk = image.symbol(registers.machine.return_thunk).map(|s| (s.address, s.size));
        for (start, size) in fragments(&linked, if suite.stubs { first } else { usize::MAX }).into_iter().chain(thunk) {
            for insn in decode(registers.machine, image.bytes(start, size as usize).unwrap_or_default(), start)? {
                // What is no branch is told too: otherwise the next place would seem to be one where C returned to.
                each("code", insn.at, 1, &|c| c.branch = Some((insn.branch.unwrap_or_default(), insn.size)))?;
            }
        }
        let table = Table::read(&image, registers.abi, instructions.into_iter());
        each("callback", address("callback")?, 1, &|c| c.marks |= CALLBACK)?;
        for (contract, called) in suite.contracts.iter().zip(&called) {
            for &(at, mark) in called.iter().filter(|(at, _)| *at != 0) {
                each(&contract.callee, at, 1, &|c| c.marks |= mark)?;
            }
        }
        let slots = suite.slots.iter().map(|s| address(s)).collect::<Result<_>>()?;
        let op = address("ops")?;
        let places = trace::Places { op, ..Default::default() };
        let mut rng = Rng::new(seed, 2);
        let garbage: Vec<u8> = (0..BELOW / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        let trace = Trace {
            registers: Some(registers),
            site: Some(&suite.backend.facts().site),
            contracts: suite.contracts.iter().cloned().map(Rc::new).collect(),
            callees: called.iter().map(|of| of.iter().map(|(callee, _)| *callee).collect()).collect(),
            cells,
            garbage: garbage.clone(),
            table: Some(Rc::new(table)),
            ..Trace::default()
        };
        let mut uc = load(suite.backend, images(), trace)?;
        let hook = |e| Error::new(format!("emulator: hook: {e:?}"));
        if hooks {
            for (base, end) in extents {
                uc.add_code_hook(base, end - 1, |uc, pc, _| trace::instruction(uc, pc)).map_err(hook)?;
            }
            let stack = (STACK_TOP - STACK_SIZE, STACK_TOP - 1);
            uc.add_mem_hook(HookType::MEM_WRITE, stack.0, stack.1, |uc, _, at, size, _| {
                trace::accessed(uc, at, size, true)
            })
            .map_err(hook)?;
            uc.add_mem_hook(HookType::MEM_READ, stack.0, stack.1, |uc, _, at, size, _| {
                trace::accessed(uc, at, size, false)
            })
            .map_err(hook)?;
        }
        for i in 0..registers.machine.vectors.len() {
            registers.set_vector(&mut uc, i, &rng.vector());
        }
        let fresh = uc.context_init().map_err(hook)?;
        Ok(Bench {
            suite,
            fixture,
            functions,
            seed,
            callback: address("callback")?,
            scratch: address("scratch")?,
            op_cell: (op.wrapping_add(suite.op_offsets.0), op.wrapping_add(suite.op_offsets.1)),
            image,
            away,
            registers,
            clean: registers.snapshot(&uc),
            fresh,
            garbage,
            dirty: true,
            prepared: None,
            uc,
            places,
            slots,
            ranges,
        })
    }

    pub(crate) fn trace(&mut self) -> &mut Trace {
        self.uc.get_data_mut().get_or_insert_default()
    }

    fn address(&self, symbol: &str) -> u64 {
        self.image.symbol(symbol).map_or(0, |s| s.address)
    }

    /// The image with the functions that are traced.
    pub(crate) fn traced(&self) -> &Image {
        self.away.as_ref().map_or(&self.image, |a| &a.functions)
    }

    /// Are the entry trampolines copies?
    fn copied(&self) -> bool {
        self.away.as_ref().is_some_and(|a| a.copied)
    }

    /// The address of a traced function.
    pub(crate) fn function(&self, name: &str) -> u64 {
        self.traced().symbol(name).map_or(0, |s| s.address)
    }

    fn run(mut self, filter: &Filter) -> Result<Part> {
        let mut part = Part::new(self.suite);
        self.patch_all(SiteState::Disabled, None)?;
        let mut example = None;
        let layouts = if !filter.judges(Clause::P17) || self.away.is_some() { Vec::new() } else { self.layouts()? };
        'all: for attach in 0..self.suite.contracts.len() {
            let mut contract = self.suite.contracts[attach].clone();
            if self.copied() {
                // Who has a copy to itself has no use for other handlers, so it has no way to a direct trampoline.
                contract.direct = false;
            }
            let wanted = filter.trampolines.is_empty()
                || filter.trampolines.contains(&contract.name)
                || matches!(contract.kind, Kind::Entry(_));
            if !contract.kind.attaches() || !wanted {
                continue;
            }
            let cases = self.cases(attach, &contract, filter);
            let Some(first) = cases.first() else { continue };
            example.get_or_insert_with(|| first.clone());
            self.judge_gap(first, attach, &mut part)?;
            if contract.sled {
                for case in &cases {
                    self.sled(case, &mut part)?;
                    if filter.first_failure && !part.findings.is_empty() {
                        break 'all;
                    }
                }
                part.scenarios += cases.len() as u64;
                continue;
            }
            // Unpatched: what must come out. Enabled. Disabled again: as if nothing had been.
            let mut expected = Vec::with_capacity(cases.len());
            for case in &cases {
                expected.push(self.reference(case)?);
            }
            let one = contract.kind.for_one_function();
            let before = self.code(&layouts);
            if !one {
                self.patch_all(self.on(attach), None)?;
            }
            let mut patched = None;
            for (case, expected) in cases.iter().zip(&expected) {
                if one && patched != Some(case.function) {
                    self.patch_all(SiteState::Disabled, patched)?;
                    patched = Some(case.function);
                    self.aim(attach, case.function)?;
                    self.patch_all(self.on(attach), patched)?;
                }
                let before = part.findings.len();
                let came_back = self.enabled(case, expected, &mut part)?;
                let mut new = part.findings.iter().skip(before);
                if filter.first_failure && new.any(|(f, ..)| self.known(f).is_none()) {
                    break 'all;
                }
                if !came_back {
                    // A run that went astray may have written anywhere.
                    self.reload()?;
                    self.patch_all(self.on(attach), patched)?;
                }
            }
            let during = self.code(&layouts);
            self.patch_all(SiteState::Disabled, None)?;
            self.judge_site(&cases, &expected, &layouts, [&before, &during], patched, &mut part)?;
            for (case, expected) in cases.iter().zip(&expected) {
                if case.is_plain() {
                    self.disabled(case, expected, &mut part);
                }
            }
            part.scenarios += cases.len() as u64;
        }
        let stubs = self.image.sections.iter().find(|s| s.name == STUBS);
        let inside = |a: u64| stubs.is_some_and(|s| (s.address..s.address + s.size).contains(&a));
        part.stubs = self.image.symbols.iter().filter(|s| inside(s.address)).map(|s| s.name.clone()).collect();
        if let Some(case) = example.filter(|_| filter.judges(Clause::Coverage)) {
            self.count(&mut part)?;
            self.judge_sizes(&case, &mut part)?;
        }
        self.explain(&mut part, filter)?;
        Ok(part)
    }

    /// The state of a site that goes to a trampoline.
    pub(crate) fn on(&self, attach: usize) -> SiteState {
        let jump = self.suite.contracts[attach].kind.jumped_to();
        SiteState::Enabled { target: self.ranges[attach].0, op: self.places.op, jump }
    }

    /// Make a paired trampoline one for this function: it is linked again, with another address of the body.
    pub(crate) fn aim(&mut self, attach: usize, function: usize) -> Result<()> {
        if self.suite.contracts[attach].traced.is_none() {
            return Ok(());
        }
        let start = self.function(&self.functions[function].name);
        let site = self.traced().sites.iter().find(|s| s.start == start).map_or(start, |s| s.ip);
        let body = site.wrapping_add_signed(self.suite.backend.facts().site.ip_offset.into());
        let base = self.image.segments.first().map_or(0, |s| s.address);
        let linked = link_at(self.suite, self.fixture, base, body)?;
        let (at, size) = self.ranges[attach];
        let write = Write { at, bytes: linked.bytes(at, size as usize).unwrap_or_default().to_vec() };
        self.image.write(&write)?;
        write_code(&mut self.uc, &[write])
    }

    /// Are the trampolines there that this situation needs?
    fn can(&self, situation: Situation) -> bool {
        let has = |wanted: fn(Kind, Option<Kind>) -> bool| {
            self.suite.contracts.iter().any(|c| wanted(c.kind, situation.stub))
        };
        let sent = situation.direct || situation.early;
        (!sent || self.direct_target().is_some())
            && (!situation.parent || self.exit(situation).is_some())
            && (situation.stub.is_none() || has(|kind, stub| Some(kind) == stub))
    }

    /// The trampoline that a hooked return goes to.
    fn exit(&self, situation: Situation) -> Option<usize> {
        self.suite.contracts.iter().position(|c| c.kind == Kind::Return && c.rethook == situation.rethook)
    }

    /// What the exit handler makes of the results: of each register that the contract lets it change.
    fn new_results(&self, attach: usize, situation: Situation, rng: &mut Rng) -> Vec<(Reg, u64)> {
        let around = Some(attach).filter(|i| self.suite.contracts[*i].kind.calls_body());
        let contract = around.or_else(|| self.exit(situation)).filter(|_| situation.results || situation.skips());
        let contract = contract.map(|i| &self.suite.contracts[i]);
        let written = contract.into_iter().flat_map(|c| &c.frame.fields).filter(|f| f.back == Back::Written);
        let register = |f: &codegen::frame::Field| match f.content {
            Content::Reg(r) if around.is_none() => Some((r, rng.canary())),
            Content::Result(r) => Some((r, rng.canary())),
            _ => None,
        };
        written.filter_map(register).collect()
    }

    /// The trampoline that callbacks and `op` choose. Every site is traced, inner functions too, so that must be the
    /// one that keeps all arguments.
    fn direct_target(&self) -> Option<u64> {
        let most = self.registers.abi.args.len();
        let find = |wanted: &dyn Fn(Kind) -> bool| self.suite.contracts.iter().position(|c| wanted(c.kind));
        let direct = find(&|kind| matches!(kind, Kind::Direct(d) if d.args as usize == most && !d.ip));
        direct.or_else(|| find(&|kind| kind == Kind::StubDirect)).map(|i| self.ranges[i].0)
    }

    fn cases(&self, attach: usize, contract: &Contract, filter: &Filter) -> Vec<Arc<Case>> {
        let abi = self.registers.abi;
        let (mut cases, mut first) = (Vec::new(), None);
        for (i, f) in self.functions.iter().enumerate() {
            if filter.function.as_ref().is_some_and(|name| *name != f.name) || f.name.ends_with(LIVEPATCH) {
                continue;
            }
            // A direct-call trampoline is for functions with as many argument registers as it keeps.
            let in_registers = f.args + usize::from(f.sret && abi.args.contains(&abi.sret));
            // A sled is in the middle of any.
            if contract.sled && first.is_some() {
                break;
            }
            if let Kind::Direct(d) = contract.kind
                && !contract.sled
                && (d.args as usize != in_registers.min(abi.args.len())
                    || d.live.is_some_and(|live| !takes(f, live, in_registers, abi)))
            {
                continue;
            }
            if let Kind::Programs(programs) = contract.kind
                && (f.sret
                    || programs.words.iter().flatten().count() != f.args
                    || !takes(f, programs.live, in_registers, abi))
            {
                continue;
            }
            // Arguments on the stack are out of reach where a frame stays below them.
            if let Kind::Around(around) = contract.kind
                && in_registers
                    > match around.form {
                        Form::Frame => around.args.into(),
                        Form::Fregs => abi.args.len(),
                        Form::Shadow => usize::MAX,
                    }
            {
                continue;
            }
            let first = *first.get_or_insert(i);
            for situation in Situation::all(contract).into_iter().filter(|s| self.can(*s)) {
                let name = situation.name();
                if filter.situation.as_ref().is_some_and(|s| *s != name) || (situation.ip && f.livepatch.is_none()) {
                    continue;
                }
                if !filter.concerns(&self.suite.contracts, contract, situation) {
                    continue;
                }
                // What handlers overwrite and how the stack is aligned has nothing to do with distance.
                let (handlers, stacks) = match self.away {
                    None => (&[Handler::General, Handler::Any][..], usize::MAX),
                    Some(_) => (&[Handler::General][..], 1),
                };
                for &handler in handlers {
                    for &sp in self.registers.machine.entry_sp.iter().take(stacks) {
                        // A stack that is misaligned for the psABI is for code that says it can live with it.
                        let case_seed = Rng::new(self.seed, (i as u64) << 8 | sp).next();
                        let mut rng = Rng::new(case_seed, 3);
                        cases.push(Arc::new(Case {
                            attach,
                            function: i,
                            situation,
                            closely: i == first
                                && handler == Handler::General
                                && !situation.args
                                && self.away.is_none(),
                            handler,
                            seed: case_seed,
                            sret: f.sret,
                            new_registers: std::array::from_fn(|_| rng.canary()),
                            new_results: self.new_results(attach, situation, &mut rng),
                            initial: self.initial(contract, case_seed, f.sret, sp),
                        }));
                    }
                }
            }
        }
        cases
    }

    fn initial(&self, contract: &Contract, seed: u64, sret: bool, sp_low: u64) -> Initial {
        let abi = self.registers.abi;
        let mut rng = Rng::new(seed, 1);
        let mut all = Snapshot { flags: if seed & 1 == 0 { 0 } else { u64::MAX }, ..self.clean.clone() };
        for reg in abi.callee_saved.union(abi.caller_saved).union(abi.platform).iter() {
            all.gpr[reg.0 as usize] = rng.canary();
        }
        if !contract.sled {
            all.flags &= !self.registers.machine.clear_flags;
        }
        let sp = STACK_TOP - 2 * ABOVE - 16 + sp_low;
        all.gpr[abi.sp.0 as usize] = sp;
        let mut above: Vec<u8> = (0..ABOVE / 8).flat_map(|_| rng.canary().to_le_bytes()).collect();
        match abi.link {
            Some(link) => all.gpr[link.0 as usize] = EXIT,
            None => above[..8].copy_from_slice(&EXIT.to_le_bytes()),
        }
        if sret {
            all.gpr[abi.sret.0 as usize] = self.scratch;
        }
        Initial { registers: all, sp, above }
    }

    fn go(&mut self, case: &Arc<Case>, start: u64, initial: &Snapshot, enabled: bool) -> Outcome {
        self.set_out(case, initial, enabled);
        let ended = self.uc.emu_start(start, EXIT, 0, 0);
        self.come_back(case, ended)
    }

    /// Memory and registers as they are when the function is called.
    pub(crate) fn set_out(&mut self, case: &Arc<Case>, initial: &Snapshot, enabled: bool) {
        let Initial { sp, above, .. } = &case.initial;
        let places = self.places.clone();
        let trace = self.trace();
        trace.places = places;
        trace.begin(case, enabled);
        if self.dirty {
            let _ = self.uc.context_restore(&self.fresh);
        }
        self.registers.load(&mut self.uc, initial);
        let _ = self.uc.mem_write(sp - BELOW, &self.garbage);
        let _ = self.uc.mem_write(*sp, above);
        let _ = self.uc.mem_write(self.scratch, &[0; RESULT as usize]);
    }

    /// What the run left, and whether it reached the exit.
    pub(crate) fn come_back(&mut self, case: &Arc<Case>, ended: std::result::Result<(), uc_error>) -> Outcome {
        let Initial { sp, above, .. } = &case.initial;
        let pc = self.uc.pc_read().unwrap_or(0);
        let mut trace = self.uc.get_data_mut().take().unwrap_or_default();
        match ended {
            Ok(()) if pc == EXIT => trace.finished(&mut self.uc),
            Ok(()) => trace.stopped(pc, "stopped before the exit"),
            Err(uc_error::FETCH_UNMAPPED) => trace.astray(pc),
            Err(uc_error::READ_UNMAPPED | uc_error::WRITE_UNMAPPED) => {
                trace.stopped(
                    pc,
                    "an access to memory that no object has: give the object; data per CPU or thread is none",
                );
            }
            Err(e) => trace.stopped(pc, &format!("emulator: {e:?}")),
        }
        // Besides general registers and flags, which each run sets, only such a handler or a fault changes any.
        self.dirty = case.handler == Handler::Any || !trace.findings.is_empty();
        *self.uc.get_data_mut() = Some(trace);
        let mut outcome = Outcome {
            registers: self.registers.general(&self.uc),
            above: vec![0; above.len()],
            result: vec![0; RESULT as usize],
        };
        let _ = self.uc.mem_read(*sp, &mut outcome.above);
        let _ = self.uc.mem_read(self.scratch, &mut outcome.result);
        outcome
    }

    /// The same function with the arguments that the callback will substitute, or the function that it redirects to.
    fn reference(&mut self, case: &Arc<Case>) -> Result<Outcome> {
        let mut initial = case.initial.registers.clone();
        let f = &self.functions[case.function];
        if case.situation.args {
            for (reg, value) in case.rewritten(&self.suite.contracts[case.attach], self.registers.abi) {
                initial.gpr[reg.0 as usize] = value;
            }
        }
        let name = match (&f.livepatch, case.situation.ip) {
            (Some(other), true) => other,
            _ => &f.name,
        };
        let start = self.function(name);
        let mut outcome = if case.situation.skips() {
            // Nothing runs: the call is over.
            let sp = &mut initial.gpr[self.registers.abi.sp.0 as usize];
            *sp = sp.wrapping_add(self.registers.abi.return_bytes());
            let result = vec![0; RESULT as usize];
            Outcome { registers: initial, above: case.initial.above.clone(), result }
        } else {
            self.go(case, start, &initial, false)
        };
        if let Some(finding) = self.trace().findings.pop() {
            return Err(Error::new(format!(
                "{}: {} does not run unpatched: {} at {:#x}",
                self.fixture.variant, name, finding.place, finding.pc
            )));
        }
        for &(reg, value) in &case.new_results {
            outcome.registers.gpr[reg.0 as usize] = value;
        }
        Ok(outcome)
    }

    /// Load the image again, as it was linked, with all sites disabled.
    fn reload(&mut self) -> Result<()> {
        let whole = |s: &codegen::link::Segment| {
            let mut bytes = s.bytes.clone();
            bytes.resize(s.mem_size as usize, 0);
            Write { at: s.address, bytes }
        };
        let away = self.away.iter().flat_map(|a| &a.functions.segments);
        let writes: Vec<Write> = self.image.segments.iter().chain(away).map(whole).collect();
        write_code(&mut self.uc, &writes)?;
        self.prepared = None;
        self.patch_all(SiteState::Disabled, None)
    }

    /// Run with the site enabled and compare. Returns whether the run came back.
    fn enabled(&mut self, case: &Arc<Case>, expected: &Outcome, part: &mut Part) -> Result<bool> {
        self.prepare(case)?;
        let start = self.function(&self.functions[case.function].name);
        let outcome = self.go(case, start, &case.initial.registers, true);
        let trace = self.trace();
        let seen = trace.sites_seen;
        let entered = trace.entered;
        let mut findings = std::mem::take(&mut trace.findings);
        // What was lost on the way shows in the results too: told once is enough.
        let harmless = |f: &Finding| matches!(f.clause, Clause::P2 | Clause::P6 | Clause::P8 | Clause::P10);
        if findings.iter().all(|f| harmless(f) && self.known(f).is_some()) {
            self.agree(case, expected, &outcome, entered, &mut findings);
        }
        if seen == 0 {
            findings.push(Finding {
                clause: Clause::P9,
                trampoline: case.attach,
                place: "the site was never reached".into(),
                register: None,
                expected: 1,
                found: 0,
                pc: start,
            });
        }
        let abi_vectors = case.handler == Handler::Any;
        if abi_vectors && case.situation.stub.is_none() && !case.situation.early {
            part.vector_runs[case.attach] += 1;
        }
        let came_back = self.uc.pc_read().is_ok_and(|pc| pc == EXIT);
        let function = &self.functions[case.function].name;
        part.findings.extend(findings.into_iter().map(|f| (f, case.clone(), function.clone(), self.fixture.variant)));
        Ok(came_back)
    }

    /// Run a trampoline as it is called in the middle of a function: there is nothing to patch, and nothing to compare
    /// with but what was there before.
    fn sled(&mut self, case: &Arc<Case>, part: &mut Part) -> Result<()> {
        self.prepare(case)?;
        self.go(case, self.start(case), &case.initial.registers, true);
        let name = self.functions[case.function].name.clone();
        let findings = std::mem::take(&mut self.trace().findings);
        part.findings.extend(findings.into_iter().map(|f| (f, case.clone(), name.clone(), self.fixture.variant)));
        if self.uc.pc_read().is_ok_and(|pc| pc != EXIT) {
            self.reload()?;
        }
        Ok(())
    }

    /// Where the run of a case begins.
    fn start(&self, case: &Case) -> u64 {
        match self.suite.contracts[case.attach].sled {
            true => self.ranges[case.attach].0,
            false => self.function(&self.functions[case.function].name),
        }
    }

    /// The deviation that the contract expects here.
    fn known(&self, finding: &Finding) -> Option<usize> {
        let at = self.symbolic(finding.pc);
        self.suite.deviations.iter().position(|d| d.covers(finding, &at))
    }

    /// Set what is patched or stored before this case runs.
    pub(crate) fn prepare(&mut self, case: &Case) -> Result<()> {
        let f = &self.functions[case.function];
        self.places.direct = self.direct_target().unwrap_or(0);
        self.places.exit = self.exit(case.situation).map_or(0, |i| self.ranges[i].0);
        self.places.livepatch = f.livepatch.as_ref().map_or(0, |name| self.function(name));
        let func = match case.situation.stub {
            Some(kind) => self.address(kind.symbol()),
            None => self.callback,
        };
        self.retire(case)?;
        let early = if case.situation.early { self.places.direct } else { 0 };
        if self.prepared == Some((func, early)) {
            return Ok(());
        }
        if self.suite.contracts.iter().any(|c| c.early_direct) {
            put_word(&mut self.uc, self.op_cell.0, func);
            put_word(&mut self.uc, self.op_cell.1, early);
        }
        for &slot in &self.slots {
            let mut call = self.suite.backend.patch_call(slot, func)?;
            if case.situation.stub == Some(Kind::Stub) && !self.copied() {
                // As it was linked, before the kernel wrote to it. To a copy the kernel writes at once.
                call.bytes = self.image.bytes(slot, call.bytes.len()).unwrap_or_default().to_vec();
            }
            write_code(&mut self.uc, &[call])?;
        }
        self.prepared = Some((func, early));
        Ok(())
    }

    /// The jump past the programs that come after the function, from the gap behind its call; nothing if the trampoline at
    /// the site has no such gap.
    fn retirement(&self, trampoline: usize) -> Result<Vec<Write>> {
        let contract = &self.suite.contracts[trampoline];
        let place = |inner: Inner| self.image.symbol(&inner.symbol(&contract.name, contract.kind).concat());
        let (Kind::Programs(_), Some(gap), Some(to)) = (contract.kind, place(Inner::AfterCall), place(Inner::Epilogue))
        else {
            return Ok(Vec::new());
        };
        let jump = SiteState::Enabled { target: to.address, op: 0, jump: true };
        let writes = self.suite.backend.poke_site(gap.address, jump, false)?.into_iter().map(|poke| poke.write);
        // A site may begin with an instruction before its branch.
        Ok(writes.filter(|w| w.at >= gap.address).collect())
    }

    /// Put that jump into its gap, or what was there before.
    fn retire(&mut self, case: &Case) -> Result<()> {
        let mut writes = self.retirement(case.attach)?;
        if !case.situation.retired {
            for write in &mut writes {
                write.bytes = self.image.bytes(write.at, write.bytes.len()).unwrap_or_default().to_vec();
            }
        }
        write_code(&mut self.uc, &writes)
    }

    /// P9: where the function is called, there is a gap behind it and a place to go on, and nothing is in the gap that the
    /// jump would overwrite.
    fn judge_gap(&self, case: &Arc<Case>, trampoline: usize, part: &mut Part) -> Result<()> {
        let writes = self.retirement(trampoline)?;
        let ends = || writes.iter().map(|w| w.at + w.bytes.len() as u64);
        let (Some(start), Some(end)) = (writes.iter().map(|w| w.at).min(), ends().max()) else {
            if matches!(self.suite.contracts[trampoline].kind, Kind::Programs(p) if p.call_orig) {
                let place = "labels for code that is retired: the gap behind the traced function, and the epilogue";
                let pc = self.image.symbol(&self.suite.contracts[trampoline].name).map_or(0, |s| s.address);
                let place = place.to_owned();
                let finding =
                    Finding { clause: Clause::P9, trampoline, place, register: None, expected: 2, found: 0, pc };
                part.judged(case, finding, self);
            }
            return Ok(());
        };
        let code = decode(self.registers.machine, self.image.bytes(start, 16).unwrap_or_default(), start)?;
        let nothing =
            code.iter().take_while(|d| d.text.split(' ').next().is_some_and(|mnemonic| mnemonic.ends_with("nop")));
        let finding = Finding {
            clause: Clause::P9,
            trampoline,
            place: "end of the gap behind the traced function".to_owned(),
            register: None,
            expected: end,
            found: nothing.map(|d| d.at + u64::from(d.size)).last().unwrap_or(start).min(end),
            pc: start,
        };
        part.judged(case, finding, self);
        Ok(())
    }

    /// Enabled against unpatched: everything but what a contract declares clobbered.
    pub(crate) fn agree(
        &self,
        case: &Case,
        expected: &Outcome,
        found: &Outcome,
        entered: u64,
        findings: &mut Vec<Finding>,
    ) {
        let (abi, site) = (self.registers.abi, &self.suite.backend.facts().site);
        let mut free = RegSet::EMPTY;
        for (i, contract) in self.suite.contracts.iter().enumerate() {
            if entered >> i & 1 == 1 {
                free = free.union(contract.clobbered);
                if contract.kind.calls_body() {
                    // The exit handler was the last to run.
                    free = free.union(abi.caller_saved);
                }
            }
        }
        for loc in [site.pc, site.parent_ip] {
            if let Loc::Reg(reg) = loc {
                free = free.union(RegSet::of(&[reg]));
            }
        }
        // A result register that the function did not write carries no result.
        let is_result =
            |r: &&codegen::abi::Reg| case.initial.registers.gpr[r.0 as usize] != expected.registers.gpr[r.0 as usize];
        let kept = |r: &&codegen::abi::Reg| match self.suite.contracts[case.attach].kind {
            Kind::Programs(programs) if programs.call_orig => programs.result.regs.contains(**r),
            _ => true,
        };
        let results: Vec<codegen::abi::Reg> = abi.rets.iter().filter(is_result).filter(kept).copied().collect();
        let always = RegSet::of(&results).union(abi.callee_saved).union(abi.platform);
        let free = free.minus(always).union(site.lost);
        let finding = |clause, place: String, register, expected, found| Finding {
            clause,
            trampoline: case.attach,
            place,
            register,
            expected,
            found,
            pc: EXIT,
        };
        for reg in always.union(abi.caller_saved).minus(free).union(RegSet::of(&[abi.sp])).iter() {
            let (want, have) = (expected.registers.gpr[reg.0 as usize], found.registers.gpr[reg.0 as usize]);
            if want != have {
                let clause = if abi.rets.contains(&reg) { Clause::P11 } else { Clause::P5 };
                let place = format!("{} after the function, against the unpatched run", abi.name(reg));
                findings.push(finding(clause, place, Some(reg), want, have));
            }
        }
        let pairs = [(&expected.above, &found.above, "stack"), (&expected.result, &found.result, "result in memory")];
        for (want, have, what) in pairs {
            if want != have
                && let Some(i) = want.iter().zip(have.iter()).position(|(a, b)| a != b)
            {
                let place = format!("{what}+{i:#x}, against the unpatched run");
                findings.push(finding(Clause::P7, place, None, u64::from(want[i]), u64::from(have[i])));
            }
        }
    }

    fn disabled(&mut self, case: &Arc<Case>, expected: &Outcome, part: &mut Part) {
        let outcome = self.reference(case);
        if outcome.as_ref().ok() != Some(expected) {
            let result = |o: &Outcome| o.registers.gpr[self.registers.abi.rets[0].0 as usize];
            let finding = Finding {
                clause: Clause::P9,
                trampoline: case.attach,
                place: "disabled again, the function behaves differently".into(),
                register: None,
                expected: result(expected),
                found: outcome.as_ref().map_or(0, result),
                pc: EXIT,
            };
            let name = self.functions[case.function].name.clone();
            part.findings.push((finding, case.clone(), name, self.fixture.variant));
        }
    }

    /// Patch the site of one function, or all.
    fn patch_all(&mut self, state: SiteState, only: Option<usize>) -> Result<()> {
        let start = only.map(|i| self.function(&self.functions[i].name));
        let mut writes = Vec::new();
        let sites = &self.away.as_ref().map_or(&self.image, |a| &a.functions).sites;
        let trace = self.uc.get_data_mut().get_or_insert_default();
        // Functions that others are redirected to stay untraced.
        let wanted = |s: &&codegen::link::SiteEntry| match start {
            Some(start) => s.start == start,
            None => !s.function.ends_with(LIVEPATCH) || state == SiteState::Disabled,
        };
        for site in sites.iter().filter(wanted) {
            writes.extend(self.suite.writes(site, state)?);
            if let Some(cell) = trace.cells.get_mut(site.ip) {
                cell.marks = if state == SiteState::Disabled { cell.marks & !SITE } else { cell.marks | SITE };
            }
        }
        write_code(&mut self.uc, &writes)
    }

    /// Counters and coverage.
    fn count(&mut self, part: &mut Part) -> Result<()> {
        let trace = self.trace();
        let cells = trace.cells.clone();
        for (sum, checks) in part.checks.iter_mut().zip(&trace.checks) {
            sum.iter_mut().zip(checks).for_each(|(n, m)| *n += m);
        }
        part.fates.clone_from(&trace.fates);
        part.vectors_lost.clone_from(&trace.vectors_lost);
        let n = self.suite.contracts.len();
        part.fates.resize(n, [(0, 0); 32]);
        part.vectors_lost.resize(n, 0);
        for i in 0..n {
            let decoded: Vec<Decoded> = self.decode(i)?.into_iter().filter(|d| !d.filler).collect();
            let missed: Vec<u64> = decoded
                .iter()
                .filter(|d| !cells.get(d.at).is_some_and(|c| c.visited))
                .map(|d| d.at - self.ranges[i].0)
                .collect();
            part.instructions[i] = decoded.len();
            let changes = self.registers.machine.wide.1;
            let wide = decoded.iter().find(|d| {
                let (mnemonic, operands) = d.text.split_once(' ').unwrap_or((&d.text, ""));
                changes(mnemonic, operands)
            });
            part.wide[i] = wide.map(|d| format!("{} at +{:#x}", d.text, d.at - self.ranges[i].0));
            if missed.len() < decoded.len() {
                part.missed[i] = Some(missed);
            }
        }
        Ok(())
    }

    /// P19: a trampoline has the bytes that its symbol says, and as many wherever it is.
    fn judge_sizes(&self, case: &Arc<Case>, part: &mut Part) -> Result<()> {
        for (trampoline, &(start, size)) in self.ranges.iter().enumerate() {
            part.sizes.push(size);
            // Not every symbol says how many.
            let says = self.image.symbol(&self.suite.contracts[trampoline].name).is_some_and(|s| s.size > 0);
            let end = self.decode(trampoline)?.last().map_or(start, |last| last.at + u64::from(last.size));
            let decoded = if says { end - start } else { size };
            let beside = self.away.as_ref().filter(|a| !a.copied).and_then(|a| a.beside.sizes.get(trampoline));
            let checks = [
                ("bytes by the symbol, and those of its instructions", size, decoded),
                ("bytes, and those at another address", *beside.unwrap_or(&size), size),
            ];
            for (place, expected, found) in checks {
                let finding = Finding {
                    clause: Clause::P19,
                    trampoline,
                    place: place.to_owned(),
                    register: None,
                    expected,
                    found,
                    pc: start,
                };
                part.judged(case, finding, self);
            }
        }
        Ok(())
    }

    fn decode(&self, i: usize) -> Result<Vec<Decoded>> {
        let (start, size) = self.ranges[i];
        let code = self.image.bytes(start, size as usize).unwrap_or_default();
        let mut lines = decode(self.registers.machine, code, start)?;
        for line in &mut lines {
            // A call or jump to a function reads better by its name.
            let (Some(address), Some((rest, _))) = (line.target(), line.text.rsplit_once("0x")) else { continue };
            if let Some(target) = self.image.symbols.iter().find(|s| s.address == address && s.size > 0) {
                line.text = format!("{}{}", rest.trim_end_matches('#'), target.name);
            }
        }
        Ok(lines)
    }

    fn symbolic(&self, pc: u64) -> String {
        let inside = |s: &&codegen::link::Symbol| pc.wrapping_sub(s.address) < s.size;
        if pc == EXIT {
            return "the caller".into();
        }
        match self.image.symbols.iter().chain(&self.traced().symbols).find(inside) {
            Some(s) => format!("{}+{:#x}", s.name, pc.wrapping_sub(s.address)),
            None => format!("{pc:#x}"),
        }
    }

    /// Put findings into words: for the first of each kind, run it again and see who wrote the register last.
    fn explain(&mut self, part: &mut Part, filter: &Filter) -> Result<()> {
        let findings = std::mem::take(&mut part.findings);
        for (finding, case, function, fixture) in findings {
            let t = finding.trampoline;
            if let Some(known) = self.known(&finding) {
                part.deviated[known] += 1;
                continue;
            }
            let finding = match &self.away {
                None => finding,
                // What fails without a distance is told there.
                Some(away) if away.beside.failed[t][finding.clause as usize] > 0 => continue,
                Some(away) => Finding {
                    clause: Clause::P16,
                    place: format!(
                        "{}{} MiB from the site, {}: {}",
                        if away.copied { "copy, " } else { "" },
                        away.distance >> 20,
                        finding.clause,
                        finding.place
                    ),
                    ..finding
                },
            };
            part.failed[t][finding.clause as usize] += 1;
            let found_at = self.symbolic(finding.pc);
            let same = part.failures[t].iter().filter(|f| f.clause == finding.clause);
            if same.clone().count() >= filter.kept_failures()
                || same.clone().any(|f| (&f.place, &f.at) == (&finding.place, &found_at))
            {
                continue;
            }
            let writer = match finding.register {
                Some(reg) if !filter.first_failure => self.last_writer(&case, reg.0 as usize, finding.found)?,
                _ => None,
            };
            let around = writer.unwrap_or(finding.pc);
            let owner = self.ranges.iter().position(|(a, n)| (*a..a + n).contains(&around)).unwrap_or(t);
            let lines = self.decode(owner)?;
            let at = lines.iter().position(|d| d.at == around);
            let text = |d: &Decoded| {
                let offset = d.at - self.ranges[owner].0;
                let note = self.suite.notes.get(&(self.suite.contracts[owner].name.clone(), offset));
                let note = note.map_or(String::new(), |n| format!("  {} {n}", self.suite.backend.facts().comment));
                let marker = if d.at == around { "=>" } else { "  " };
                format!("{marker} {offset:4x}  {}{note}", d.text)
            };
            let context = match at {
                Some(i) => lines[i.saturating_sub(3)..(i + 3).min(lines.len())].iter().map(text).collect(),
                None => Vec::new(),
            };
            let last_writer = match (writer, at) {
                (Some(pc), Some(i)) => format!("{}: {}", self.symbolic(pc), lines[i].text),
                _ => String::new(),
            };
            let situation = case.situation.name();
            let attached = &self.suite.contracts[case.attach].name;
            // What is not at the site itself is only reported on if it is asked for.
            let names = if case.attach == t {
                attached.clone()
            } else {
                format!("{attached} {}", self.suite.contracts[t].name)
            };
            part.failures[t].push(Failure {
                clause: finding.clause,
                place: finding.place,
                expected: format!("{:#x}", finding.expected),
                found: format!("{:#x}", finding.found),
                at: found_at,
                last_writer,
                context,
                replay: format!(
                    "{} --fixture {fixture} --function {function} --situation {situation} --seed {}",
                    self.suite.replay.replace("TRAMPOLINE", &names),
                    self.seed
                ),
            });
        }
        Ok(())
    }

    /// The trampoline instruction that gave a register its final value, if one did.
    fn last_writer(&mut self, case: &Arc<Case>, reg: usize, value: u64) -> Result<Option<u64>> {
        let kind = self.suite.contracts[case.attach].kind;
        let only = kind.for_one_function().then_some(case.function);
        self.aim(case.attach, case.function)?;
        self.patch_all(self.on(case.attach), only)?;
        self.trace().recording = Some(Vec::new());
        self.prepare(case)?;
        self.go(case, self.start(case), &case.initial.registers, true);
        if self.uc.pc_read().is_ok_and(|pc| pc != EXIT) {
            self.reload()?;
        }
        let recorded = self.trace().recording.take().unwrap_or_default();
        self.trace().findings.clear();
        self.patch_all(SiteState::Disabled, None)?;
        let changed = recorded.windows(2).rev().find(|w| w[0].1[reg] != w[1].1[reg] && w[1].1[reg] == value);
        Ok(changed.map(|w| w[0].0).or_else(|| recorded.last().filter(|r| r.1[reg] != value).map(|r| r.0)))
    }
}

fn report(suites: &[Suite], parts: &[Part], filter: &Filter, seed: u64) -> Report {
    let mut results = Vec::new();
    // Suites need not have the same trampolines.
    let mut registers: Vec<Survival> = Vec::new();
    for (suite, part) in suites.iter().zip(parts) {
        for (i, contract) in suite.contracts.iter().enumerate() {
            let shown = filter.trampolines.is_empty() || filter.trampolines.contains(&contract.name);
            if !shown {
                continue;
            }
            for clause in Clause::ALL {
                results.push(row(suite, part, contract, i, clause, filter));
            }
            let abi = &suite.backend.facts().abi;
            let arch = suite.backend.facts().name;
            let known = registers.iter().position(|s| s.arch == arch && s.trampoline == contract.name);
            if known.is_none() {
                let (arch, trampoline) = (arch.to_owned(), contract.name.clone());
                registers.push(Survival { arch, trampoline, registers: BTreeMap::new() });
            }
            let last = registers.len() - 1;
            let survival = &mut registers[known.unwrap_or(last)];
            for reg in abi.callee_saved.union(abi.caller_saved).union(abi.platform).iter() {
                let (kept, changed) = part.fates[i][reg.0 as usize];
                let fate: &mut RegisterFate = survival.registers.entry(abi.name(reg).to_owned()).or_default();
                fate.kept += kept;
                fate.changed += changed;
                fate.promised |= contract.kept.contains(reg);
            }
        }
    }
    let mut report = Report {
        scenarios: parts.iter().map(|p| p.scenarios).sum(),
        stubs: parts.iter().flat_map(|p| p.stubs.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect(),
        alternatives: suites.iter().flat_map(|s| s.alternatives.iter().cloned()).collect(),
        results,
        registers,
        ..Report::empty(seed)
    };
    report.recount();
    report
}

fn row(suite: &Suite, part: &Part, contract: &Contract, i: usize, clause: Clause, filter: &Filter) -> Row {
    let c = clause as usize;
    let (checks, failed) = (part.checks[i][c], part.failed[i][c]);
    let row = |verdict, reason: String| Row {
        arch: suite.backend.facts().name.to_owned(),
        trampoline: contract.name.clone(),
        options: suite.options.clone(),
        clause,
        verdict,
        reason,
        checks,
        failures: part.failures[i]
            .iter()
            .filter(|f| f.clause == clause)
            .take(filter.kept_failures())
            .cloned()
            .collect(),
        missed: part.missed[i].clone().filter(|_| clause == Clause::Coverage).unwrap_or_default(),
    };
    if clause == Clause::Wide {
        let lacks = suite.backend.machine().wide.0;
        return match (&part.wide[i], part.instructions[i]) {
            (_, 0) => row(Verdict::Skip, "its instructions were not looked at".into()),
            (Some(at), _) => row(Verdict::Skip, format!("engine lacks {lacks}, and {at} may change them")),
            (None, n) => row(Verdict::Pass, format!("engine lacks {lacks}, but none of {n} instructions changes them")),
        };
    }
    if clause == Clause::Coverage {
        let total = part.instructions[i];
        return match &part.missed[i] {
            _ if !filter.judges(clause) => row(Verdict::Skip, "ended with the first failure".into()),
            None => row(Verdict::Fail, "never executed".into()),
            Some(missed) if missed.is_empty() => row(Verdict::Pass, format!("{total} of {total} instructions")),
            Some(_) if filter.function.is_some() || filter.situation.is_some() || filter.concerning.is_some() => {
                row(Verdict::Skip, "not all cases were run".into())
            }
            Some(missed) => {
                let at: Vec<String> = missed.iter().map(|o| format!("{o:#x}")).collect();
                let n = total - missed.len();
                row(Verdict::Fail, format!("{n} of {total} instructions; not executed: {}", at.join(" ")))
            }
        };
    }
    if failed > 0 {
        return row(Verdict::Fail, format!("{failed} failures"));
    }
    let expected = suite.deviations.iter().zip(&part.deviated).filter(|(d, _)| (d.trampoline, d.clause) == (i, clause));
    let (found, lost): (Vec<_>, Vec<_>) = expected.partition(|(_, n)| **n > 0);
    let selected = [&filter.function, &filter.situation, &filter.fixture, &filter.concerning];
    let ended = filter.first_failure && part.fails();
    let complete = selected.iter().all(|s| s.is_none()) && filter.judges(clause) && !ended;
    if let Some((d, _)) = lost.first().filter(|_| complete) {
        return row(Verdict::Fail, format!("{} was expected to deviate and does not: {}", d.place, d.reason));
    }
    if !found.is_empty() {
        // Places with the same reason are told together.
        let mut reasons: Vec<(String, &str)> = Vec::new();
        for (d, _) in found {
            match reasons.last_mut().filter(|(_, reason)| *reason == d.reason) {
                Some((places, _)) => *places = format!("{places}, {}", d.place),
                None => reasons.push((d.place.clone(), &d.reason)),
            }
        }
        let reasons = reasons.iter().map(|(places, reason)| format!("{places}: {reason}"));
        let reasons: Vec<String> = reasons.collect();
        return row(Verdict::Deviates, reasons.join("; "));
    }
    if clause == Clause::P2 && part.vectors_lost[i] > 0 {
        return row(
            Verdict::Deviates,
            "holds for handlers that use general registers only, as the contract says; others lose vector registers"
                .into(),
        );
    }
    if clause == Clause::P3 && part.vectors_lost[i] > 0 && contract.kind == Kind::Return {
        return row(
            Verdict::Deviates,
            "integer results hold; vector results hold for handlers that use general registers only".into(),
        );
    }
    if checks == 0 {
        return row(Verdict::Skip, not_applicable(contract, clause).into());
    }
    row(Verdict::Pass, String::new())
}

/// Is this what is live at the entry of `f`? Vector registers are not looked at: `f` leaves them alone.
fn takes(f: &Function, live: Live, in_registers: usize, abi: &Abi) -> bool {
    usize::from(live.stack) == in_registers.saturating_sub(abi.args.len())
        && abi.hidden_for_direct().iter().all(|hidden| live.regs.contains(hidden) == f.sret)
}

fn not_applicable(contract: &Contract, clause: Clause) -> &'static str {
    match (contract.kind, clause) {
        (Kind::Stub | Kind::StubGraph, _) => "runs as the callback of the entry trampolines, and is judged with them",
        (Kind::Return, Clause::P17 | Clause::P18) => "no site goes to it",
        (Kind::Return, Clause::P1 | Clause::P2) => "runs after the function: no arguments are live",
        (
            Kind::Entry(_) | Kind::Direct(_) | Kind::StubDirect | Kind::Programs(Programs { call_orig: false, .. }),
            Clause::P3,
        ) => "runs before the function: no results yet",
        (_, Clause::P4) => "its contract lets scratch registers go",
        (_, Clause::P12) => "it has no unwind table, and its contract no frame records",
        (_, Clause::P13) => "its contract asks for no landing pads",
        (_, Clause::P15) => "no return of it is predicted to go where none goes, or a trap there means nothing",
        (Kind::StubDirect, Clause::P8 | Clause::P10 | Clause::P11) => "calls nothing",
        (Kind::Direct(_), Clause::P11) => "its callee decides nothing",
        _ => "nothing of this kind in the cases run",
    }
}
