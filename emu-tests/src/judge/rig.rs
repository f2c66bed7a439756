//! A linked image on an engine: loaded, patched and run.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use codegen::arch::patch::{SiteState, Write};
use codegen::arch::site::{Site, Spot};
use codegen::ask::spec::{Direct, Kind};
use codegen::contract::Contract;
use codegen::contract::stated::{Given, Next, Stated};
use codegen::words::error::{Error, Result};
use codegen::words::step::ExitPath;
use codegen::words::term::Root;
use link::{Image, Options};
use rustc_hash::FxHashMap;

use crate::engine::cpu::{EXIT, SPARSE_DIRECT, SPARSE_LIVEPATCH, put_word, word};
use crate::engine::disasm::{Decoded, decode_function};
use crate::engine::interface::{Ended, Saved, Trap, Why};
use crate::engine::lent;
use crate::engine::load::{self, load_on, map_sparse};
use crate::engine::memory::Memory;
use crate::engine::registers::{Registers, Snapshot};
use crate::engine::rng::Rng;
use crate::engine::unwind::Table;
use crate::judge::cells::{arguments, mark_cells};
use crate::judge::checks::retire::jumps;
use crate::judge::copy::put_copies;
use crate::judge::fixture::{CALLBACK, CALLEE, CLOCK, Fixture, Function, LIVEPATCH, NOP_OPS, NOTHING, OPS, Setup};
use crate::judge::hooks::Hooks;
use crate::judge::image::{link_at, loadable, starts};
use crate::judge::suite::{Deviation, Suite};
use crate::judge::tally::Tally;
use crate::judge::trace::{self, Finding, Goal, Left, Mark, Places, Trace, Uc};
use crate::judge::variables::Variables;
use crate::report::place::Place;
use crate::run::block::{self, Before};
use crate::run::case::{Case, Distance, Initial, Outcome, RESULT, Unpatched};
use crate::run::raw::address_of;
use crate::run::replay::Replay;
use crate::run::scs;
use crate::run::situation::Situation;
use crate::run::thread::{self, Words};

/// Where images are linked: the upper halves of addresses change behind the first page, so that a half that was not
/// carried along shows.
const BASE: u64 = 0x7f_ffff_f000;
/// Bytes below SP that hold garbage.
const BELOW: u64 = 4096;

/// A linked image on an engine.
pub(crate) struct Rig<'s> {
    pub(crate) suite: &'s Suite,
    roles: Roles,
    pub(crate) fixture: &'static Fixture,
    pub(crate) functions: &'s [Function],
    pub(crate) seed: u64,
    /// The trampolines, and all that they refer to.
    pub(crate) image: Image,
    /// Where the traced functions begin, by name.
    starts: FxHashMap<String, u64>,
    /// The same, in the order of the functions; and where those begin that they are redirected to.
    entries: Vec<(u64, Option<u64>)>,
    /// What came out of functions that were run unpatched.
    pub(crate) unpatched: Vec<Unpatched>,
    /// The traced functions, if they are elsewhere.
    pub(crate) away: Option<Away<'s>>,
    pub(crate) registers: Registers,
    pub(crate) uc: Box<Uc<'static>>,
    hooks: Hooks,
    /// The CPU as it was before anything ran: a run that went astray may have changed any of it.
    fresh: Saved,
    /// The last run may have left more behind than the next one sets.
    pub(crate) dirty: bool,
    /// The last run ended where it was to return to.
    pub(crate) came_back: bool,
    /// The callback in the call slots and in `op`, and the direct trampoline in `op`.
    pub(crate) prepared: Option<(u64, u64)>,
    /// Registers of the fresh CPU.
    pub(crate) clean: Snapshot,
    /// What is on the stack when a function is called: garbage below SP, and what the last case had above it.
    stack: Vec<u8>,
    /// That of the engine.
    memory: Rc<Memory>,
    /// Where results in memory go, the last run left nothing.
    result_clear: bool,
    /// Of an outcome that is judged: the next one has its room.
    pub(crate) room: Vec<u8>,
    pub(crate) places: Places,
    pub(crate) scratch: u64,
    pub(crate) callback: u64,
    pub(crate) slots: Vec<u64>,
    variables: Variables,
    /// The variable that entry trampolines call through.
    pub(crate) callee: Option<u64>,
    pub(crate) op_cell: Option<(u64, u64)>,
    /// The `ftrace_ops` that functions carry while tracing is off, if they carry one.
    nop_op: Option<u64>,
    /// The function that is called for that one.
    nothing: u64,
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Code outside of each trampoline that it jumps to.
    pub(crate) tails: Vec<Vec<Decoded>>,
    /// The entry trampoline, for sites that are laid out towards it.
    pub(crate) toward: Option<u64>,
    /// The one function whose site reaches the trampolines; `None` if all do.
    pub(crate) alone: Option<usize>,
}

/// Map what trampolines find besides the images.
fn map_memory(uc: &mut Uc, suite: &Suite, ret: &[u8]) -> Result<()> {
    map_sparse(uc, ret)?;
    thread::map_for(uc, &suite.contracts)?;
    block::map_for(uc, &suite.contracts)
}

/// Where the function of a context that has not run may return to: nobody knows before it is made.
fn returned_to<'i>(suite: &Suite, image: &'i Image) -> impl Iterator<Item = u64> + use<'i> {
    let fresh =
        |contract: &Contract| contract.stated.contexts.as_ref().is_some_and(|contexts| contexts.fresh.is_some());
    let asked = suite.contracts.iter().any(fresh);
    let code = image.segments.iter().filter(move |s| asked && s.access == link::Access::Execute);
    code.flat_map(|s| s.address..s.address + s.bytes.len() as u64)
}

/// Run what the engine lacks in its place. Runs end before copies of displaced instructions.
fn lend(uc: &mut Uc, suite: &Suite, image: &Image, (ranges, instructions): (&[(u64, u64)], &[u64])) -> Result<()> {
    let is_copy = |at: &u64| copies(suite, ranges).any(|(copy, _)| copy == *at);
    let own = instructions.iter().copied().filter(|at| !is_copy(at));
    lent::attach(uc, suite.backend.machine().lent, |at, size| image.bytes(at, size), own)
}

/// Where copies of displaced instructions begin, with the contracts of their trampolines, which have these ranges.
fn copies<'a>(suite: &'a Suite, ranges: &'a [(u64, u64)]) -> impl Iterator<Item = (u64, &'a Contract)> {
    suite.contracts.iter().zip(ranges).filter_map(|(contract, (start, _))| match contract.stated.next {
        Next::Copies(bytes) => Some((start.wrapping_add(bytes), contract)),
        Next::Behind(_) | Next::Result => None,
    })
}

/// The symbols that contracts name: of words that they state, and as values.
fn named_words(suite: &Suite, image: &Image) -> Result<Vec<(String, u64)>> {
    let of = |contract: &Contract| {
        let Stated { gives, passes, holds, results, uncalled, contexts, .. } = &contract.stated;
        let fresh = contexts.as_ref().and_then(|contexts| contexts.fresh.as_ref());
        let placed = [gives, passes]
            .into_iter()
            .chain(results.iter().map(|r| &r.gives))
            .chain(uncalled.iter().map(|u| &u.gives))
            .chain(fresh.iter().map(|f| &f.passes));
        let words = placed.flatten().filter_map(|g| match &g.place {
            Given::Word(at) => Some(&at.root),
            Given::Reg(_) | Given::Vector(_) => None,
        });
        let held = [holds].into_iter().chain(results.iter().map(|r| &r.holds)).chain(fresh.iter().map(|f| &f.holds));
        let given = contract.stated.arguments.iter().flatten().map(|argument| &argument.value);
        let sums = held.flatten().map(|(_, sum)| sum).chain(given);
        let values = sums.flat_map(|sum| &sum.terms).map(|(_, root)| root);
        let all = words.chain(values);
        all.filter_map(|root| if let Root::Symbol(name) = root { Some(name.to_string()) } else { None })
            .collect::<Vec<_>>()
    };
    let find = |name: String| match image.symbol(&name) {
        Some(symbol) => Ok((name, symbol.address)),
        // What a dump does not refer to has its own address, which nothing there can have.
        None => address_of(&name)
            .map(|at| (name.clone(), at))
            .ok_or_else(|| Error::new(format!("the contract names &{name}; the objects must refer to that"))),
    };
    suite.contracts.iter().flat_map(of).map(find).collect()
}

/// What the trampolines of a suite are to each other, which every run asks.
struct Roles {
    /// The entry trampoline of the profile.
    entry: Option<usize>,
    /// The one that callbacks and `op` choose. Every site is traced, inner functions too, so that must be the one that keeps
    /// all arguments.
    direct: Option<usize>,
    /// One of them may lose vector registers or control words.
    lets_go: bool,
}

impl Roles {
    fn of(suite: &Suite) -> Roles {
        let Suite { contracts, convention, .. } = suite;
        let most = suite.backend.facts().abi.args.len();
        let all = |d: Direct| usize::from(d.args) == most && !d.ip && !d.jumped;
        let direct = contracts.iter().position(|c| c.kind.direct().is_some_and(all));
        Roles {
            entry: convention.site.entry.and_then(|entry| contracts.iter().position(|c| c.name == entry)),
            direct: direct.or_else(|| contracts.iter().position(|c| c.kind == Kind::StubDirect)),
            lets_go: contracts.iter().any(|c| c.vectors_lost != 0 || c.control_lost != 0),
        }
    }
}

/// The same image once more, with the functions that are traced.
pub(crate) struct Away<'s> {
    pub(crate) functions: Image,
    /// From there to the trampolines.
    pub(crate) bytes: i64,
    /// The entry trampolines are copies, as the kernel makes them for an `ftrace_ops`.
    pub(crate) copied: bool,
    /// What code there is aligned to, if not as the objects say.
    pub(crate) code_align: Option<u64>,
    /// What came out beside the trampolines.
    pub(crate) beside: &'s Tally,
}

impl<'s> Rig<'s> {
    /// The functions and the trampolines in one image; without `hooks`, nothing is checked while it runs.
    pub(crate) fn new(setup: Setup<'s>, hooks: bool) -> Result<Rig<'s>> {
        // Code for the lowest or the highest 2 GiB has addresses of 32 bits: it does not reach far up.
        let low = Options::default().base;
        let Setup { suite, fixture, .. } = setup;
        let linked = link_at(suite, fixture, BASE, BASE, None).or_else(|_| link_at(suite, fixture, low, low, None))?;
        Rig::around(setup, &linked, None, hooks)
    }

    /// A rig with the functions where those of `beside` are, and everything else so many bytes away; `None` if the
    /// objects cannot be linked there.
    pub(crate) fn moved(setup: Setup<'s>, away: Away<'s>) -> Result<Option<Rig<'s>>> {
        let base = away.functions.segments.first().map_or(BASE, |s| s.address);
        let there = base.checked_add_signed(away.bytes).filter(|at| *at > 0);
        let Some(base) = there else { return Ok(None) };
        let mut linked = match link_at(setup.suite, setup.fixture, base, base, away.code_align) {
            Ok(linked) => linked,
            Err(e) if matches!(e.kind(), Error::OutOfReach { .. } | Error::TooLarge { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        if away.copied && !put_copies(setup.suite, &mut linked)? {
            return Ok(None);
        }
        Rig::around(setup, &linked, Some(away), true).map(Some)
    }

    fn around(setup: Setup<'s>, linked: &Image, away: Option<Away<'s>>, hooks: bool) -> Result<Rig<'s>> {
        let Setup { suite, fixture, functions, seed } = setup;
        let (image, called) = loadable(suite, linked)?;
        let address = |symbol: &str| {
            let found = image.symbol(symbol).map(|s| s.address);
            found.ok_or_else(|| Error::new(format!("{}: the linked image has no symbol {symbol}", fixture.variant)))
        };
        let registers = Registers::of(suite.backend.machine(), &suite.backend.facts().abi)?;
        let traced = away.as_ref().map(|a| &a.functions);
        let marks = mark_cells(setup, linked, &image, traced, &called)?;
        // Where functions return to a trampoline, unwinders look up the address before it.
        let before = marks.ranges.iter().map(|(start, _)| start.wrapping_sub(1));
        let told = before.chain(marks.instructions.iter().copied()).chain(returned_to(suite, &image));
        let table = Table::read(&image, registers, suite.convention.orc, told)?;
        let slots = suite.slots.iter().map(|s| address(s)).collect::<Result<_>>()?;
        let op = address(OPS)?;
        let mut rng = Rng::new(seed, 2);
        let garbage: Vec<u8> = (0..BELOW / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        let images = || traced.into_iter().chain([&image]);
        let memory = load::memory(suite.backend, images(), suite.engine)?;
        let trace = Trace {
            registers: Some(registers),
            convention: Some(suite.convention),
            callees: called.iter().map(|of| of.iter().map(|(callee, _)| *callee).collect()).collect(),
            arguments: suite.contracts.iter().map(|c| arguments(&image, c)).collect::<Result<_>>()?,
            cells: marks.cells,
            memory: Some(Rc::clone(&memory)),
            clock: Some(address(CLOCK)?),
            named: named_words(suite, &image)?,
            garbage: garbage.clone(),
            table: Some(Rc::new(table)),
            ..Trace::of(&suite.contracts)
        };
        let mut uc = load_on(suite.backend, images(), &memory, Some(Box::new(trace)))?;
        map_memory(&mut *uc, suite, registers.machine.ret)?;
        trace::guard(&mut *uc)?;
        let hooks = if hooks { Hooks::all(&mut *uc)? } else { Hooks::none() };
        lend(&mut *uc, suite, &image, (&marks.ranges, &marks.instructions))?;
        (0..registers.machine.vectors.len()).for_each(|i| registers.set_vector(&mut *uc, i, &rng.vector()));
        registers.set_control(&mut *uc)?;
        let fresh = uc.save()?;
        let (starts, entries) = starts(functions, traced.unwrap_or(&image));
        Ok(Rig {
            starts,
            entries,
            unpatched: Vec::new(),
            suite,
            roles: Roles::of(suite),
            fixture,
            functions,
            seed,
            toward: suite.convention.site.entry.and_then(|name| image.symbol(name)).map(|s| s.address),
            alone: None,
            callback: address(CALLBACK)?,
            scratch: address("scratch")?,
            variables: Variables::of(suite, &image)?,
            callee: suite.convention.calls_through.map(|_| address(CALLEE)).transpose()?,
            nop_op: suite.convention.site.nop_op().map(|_| address(NOP_OPS)).transpose()?,
            nothing: address(NOTHING)?,
            op_cell: suite.op_offsets.map(|(func, direct)| (op.wrapping_add(func), op.wrapping_add(direct))),
            image,
            away,
            registers,
            clean: registers.snapshot(&*uc),
            fresh,
            stack: garbage,
            memory,
            result_clear: false,
            room: Vec::new(),
            dirty: true,
            came_back: false,
            prepared: None,
            uc,
            hooks,
            places: Places { op, ..Places::default() },
            slots,
            ranges: marks.ranges,
            tails: marks.tails,
        })
    }

    /// Look at accesses to the stack from now on.
    pub(crate) fn watch(&mut self) -> Result<()> {
        self.hooks.watch(&mut *self.uc)
    }

    /// Note from now on what trampolines leave to others.
    pub(crate) fn note_left(&mut self) -> Result<()> {
        self.trace().left = Some(Left::default());
        Hooks::elsewhere(&mut *self.uc)
    }

    /// No longer look at them, in so many runs.
    pub(crate) fn unwatch(&mut self, runs: usize) -> Result<()> {
        self.hooks.unwatch(&mut *self.uc, runs)
    }

    pub(crate) fn trace(&mut self) -> &mut Trace {
        self.uc.data_mut().get_or_insert_default()
    }

    /// What the last run must leave in registers, if this is what an unpatched one leaves.
    pub(crate) fn expected<'u>(&self, unpatched: &'u Snapshot) -> Cow<'u, Snapshot> {
        self.uc.data().as_ref().map_or(Cow::Borrowed(unpatched), |trace| trace.state.since_moved(unpatched))
    }

    pub(crate) fn address(&self, symbol: &str) -> u64 {
        self.image.symbol(symbol).map_or(0, |s| s.address)
    }

    /// The image with the functions that are traced.
    pub(crate) fn traced(&self) -> &Image {
        self.away.as_ref().map_or(&self.image, |a| &a.functions)
    }

    /// Are the entry trampolines copies?
    pub(crate) fn copied(&self) -> bool {
        self.away.as_ref().is_some_and(|a| a.copied)
    }

    /// Where the trampolines are.
    pub(crate) fn distance(&self) -> Distance {
        self.away.as_ref().map_or(Distance::Near, |a| Distance::Far { bytes: a.bytes, copied: a.copied })
    }

    /// The command that runs this case again, and judges this trampoline.
    pub(crate) fn replay(&self, case: &Case, trampoline: usize) -> Replay {
        let name = |i: usize| self.suite.contracts[i].name.clone();
        Replay {
            engine: self.suite.engine,
            chosen: self.suite.chosen.clone(),
            trampoline: name(trampoline),
            attached: name(case.attach),
            fixture: self.fixture.variant.to_owned(),
            function: self.functions[case.function].name.clone(),
            situation: case.situation,
            handler: case.handler,
            entry_sp: case.entry_sp,
            distance: self.distance(),
            closely: case.closely,
            seed: self.seed,
        }
    }

    /// The address of a traced function.
    pub(crate) fn function(&self, name: &str) -> u64 {
        self.starts.get(name).copied().unwrap_or(0)
    }

    /// The address of the traced function of a case.
    pub(crate) fn entry(&self, case: &Case) -> u64 {
        self.entries.get(case.function).map_or(0, |(start, _)| *start)
    }

    /// Where it goes on behind its site.
    pub(crate) fn body(&self, name: &str) -> u64 {
        let start = self.function(name);
        let site = self.traced().sites.iter().find(|s| s.start == start).map_or(start, |s| s.ip);
        site.wrapping_add_signed(self.suite.convention.site.ip_offset.into())
    }

    /// The unwind table of the trampolines.
    pub(crate) fn table(&self) -> Option<Rc<Table>> {
        self.uc.data().as_ref()?.table.clone()
    }

    /// A site, for whoever writes to it.
    pub(crate) fn spot(&self, site: &link::SiteEntry) -> Spot {
        site.spot(self.toward, self.nop_op)
    }

    /// Before a trampoline is attached: where there is no entry trampoline that passes a CPU on to it, sites are laid out as if
    /// it were that.
    pub(crate) fn lay_out(&mut self, attach: usize) -> Result<()> {
        if self.suite.convention.site.protocol.initial.is_empty() {
            return Ok(());
        }
        self.toward = self.laid_out(attach);
        self.unpatched.clear();
        self.patch_all(SiteState::Disabled, None)
    }

    /// What sites are laid out towards, for this trampoline.
    pub(crate) fn laid_out(&self, attach: usize) -> Option<u64> {
        let through = self.roles.entry.filter(|entry| *entry == attach || self.passes_on(*entry));
        self.ranges.get(through.unwrap_or(attach)).map(|(at, _)| *at)
    }

    /// May this trampoline go on to the direct one of an `ftrace_ops`, before it saves anything?
    fn passes_on(&self, trampoline: usize) -> bool {
        self.suite.contracts[trampoline].leaves_by(ExitPath::EarlyDirect)
    }

    /// The entry trampoline, if sites may go to this one through it.
    fn through(&self, attach: usize) -> Option<usize> {
        let Site { protocol, .. } = &self.suite.convention.site;
        let entry = self.roles.entry.filter(|entry| *entry != attach && self.passes_on(*entry));
        entry.filter(|_| !protocol.initial.is_empty() && protocol.near.is_some())
    }

    /// Let the sites go to a trampoline, that of one function or all. To what no site goes, the hook on each site leads.
    pub(crate) fn attach(&mut self, attach: usize, only: Option<usize>) -> Result<()> {
        if !self.suite.contracts[attach].kind.is_led_to() {
            return self.patch_all(self.on(attach), only);
        }
        let sites = &self.away.as_ref().map_or(&self.image, |a| &a.functions).sites;
        let trace = self.uc.data_mut().get_or_insert_default();
        for site in sites.iter().filter(|site| !site.function.ends_with(LIVEPATCH)) {
            if let Some(cell) = trace.cells.get_mut(site.ip) {
                cell.marks.set(Mark::SITE, true);
            }
        }
        Ok(())
    }

    /// The state of a site that goes to a trampoline.
    pub(crate) fn on(&self, attach: usize) -> SiteState {
        let jump = self.suite.contracts[attach].kind.jumped_to();
        SiteState::Enabled { target: self.ranges[attach].0, op: Some(self.places.op), jump }
    }

    /// Make a trampoline that names the traced function one for this function: it is linked again, with another address of the body.
    pub(crate) fn aim(&mut self, attach: usize, function: usize) -> Result<()> {
        if self.suite.contracts[attach].traced.is_none() {
            return Ok(());
        }
        let body = self.body(&self.functions[function].name);
        let from = self.traced().segments.first().map_or(0, |s| s.address);
        let base = from.wrapping_add_signed(self.away.as_ref().map_or(0, |a| a.bytes));
        let linked = link_at(self.suite, self.fixture, base, body, self.away.as_ref().and_then(|a| a.code_align))?;
        let (at, size) = self.ranges[attach];
        let write = Write { at, bytes: linked.bytes(at, size as usize).unwrap_or_default().to_vec() };
        self.image.write(&write)?;
        self.uc.write_code(&[write])
    }

    /// The trampoline that a hooked return goes to.
    pub(crate) fn exit(&self, situation: Situation) -> Option<usize> {
        let wanted = situation.exit()?;
        self.suite.contracts.iter().position(|c| c.kind == wanted)
    }

    /// The trampoline that callbacks and `op` choose; if there is none, what stands for one.
    fn direct_target(&self) -> u64 {
        self.roles.direct.map_or(SPARSE_DIRECT, |i| self.ranges[i].0)
    }

    /// Run a case from `start`, where everything is as it is when the function is called.
    pub(crate) fn run(&mut self, case: &Arc<Case>, start: u64, initial: &Snapshot, enabled: bool) -> Outcome {
        self.load_case(case, initial, enabled);
        let ended = self.uc.run(start, EXIT);
        self.collect(case, ended)
    }

    /// Memory and registers as they are when the function is called.
    pub(crate) fn load_case(&mut self, case: &Arc<Case>, initial: &Snapshot, enabled: bool) {
        let Initial { sp, above, .. } = &case.initial;
        let (places, through) = (self.places.clone(), self.through(case.attach));
        let trace = self.trace();
        trace.places = places;
        trace.through = through;
        trace.begin(case, enabled);
        if self.dirty {
            self.uc.restore(&self.fresh);
        }
        let name = &self.suite.contracts[case.attach].name;
        // Whoever asks next learns that the engine is gone.
        let _ = self.uc.set_wide(case.wide.then(|| case.wide_seed(name, self.fixture.variant)));
        let flags = self.registers.load_over(&mut *self.uc, initial, self.clean.flags);
        let as_case = std::ptr::eq(initial, &case.initial.registers) && case.initial.thread.is_none();
        self.trace().loaded = as_case.then_some(flags);
        let contract = &self.suite.contracts[case.attach];
        if let Some(at) = case.initial.thread {
            // The engine has the register: its number is compared with the engine's own in a test.
            let _ = thread::point(&mut *self.uc, self.registers, contract.convention.thread, at);
        }
        if let Some(words) = Words::of(contract) {
            let clock = self.trace().clock;
            words.prepare(case, clock, &mut *self.uc);
        }
        if contract.scs().is_some() {
            scs::prepare(case, &mut *self.uc);
        }
        if contract.kind.is_boundary() {
            block::fill(&mut *self.uc, case.seed, &case.initial.block);
            let errno = contract.stated.errno.as_ref().and_then(|name| self.image.symbol(name)).map(|s| s.address);
            if let Some(at) = errno {
                // Whoever stores more than the 4 bytes of an int, or without an error, overwrites something.
                put_word(&mut *self.uc, at, Rng::new(case.seed, 0x602).canary());
            }
            let before = Before::of(&*self.uc, errno.into_iter().map(|at| (at, 16)));
            self.trace().before = before;
        }
        self.stack.truncate(BELOW as usize);
        self.stack.extend_from_slice(above);
        self.memory.write(sp - BELOW, &self.stack);
        if !std::mem::take(&mut self.result_clear) {
            self.memory.write(self.scratch, &[0; RESULT]);
        }
    }

    /// What the run left, and whether it reached the exit.
    pub(crate) fn collect(&mut self, case: &Arc<Case>, ended: Ended) -> Outcome {
        let Initial { sp, above, .. } = &case.initial;
        let pc = self.uc.pc();
        self.came_back = pc == EXIT;
        let mut trace = self.uc.data_mut().take().unwrap_or_default();
        match ended {
            Ok(()) if pc == EXIT => {
                if let Some(bytes) =
                    self.uc.pushed().filter(|_| trace.enabled && self.suite.contracts[case.attach].guard.is_some())
                {
                    trace.check_pushed(self.ranges[case.attach].0, bytes);
                }
                if trace.enabled && self.suite.contracts[case.attach].scs().is_some() {
                    trace.check_scs(self.ranges[case.attach].0, scs::changed(case, &*self.uc));
                }
                trace.finished(&mut *self.uc);
            }
            Ok(()) => trace.stopped(pc, Place::Stopped),
            Err(Trap { why: Why::NoCode, .. }) => trace.astray(pc),
            Err(Trap { why: Why::NoMemory, .. }) => trace.stopped(pc, Place::UnmappedAccess),
            Err(trap) => trace.stopped(pc, Place::Engine { error: trap.said }),
        }
        // Besides general registers and flags, which each run sets, only handlers of any kind, a fault or what a contract lets
        // go changes any. Where trampolines are not judged, nobody has seen whether they keep vector registers.
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.resize(above.len(), 0);
        let mut outcome = Outcome { registers: Snapshot::default(), above: room, result: [0; RESULT] };
        let moved = if trace.enabled {
            // Flags are judged where a trampoline is through, and no more.
            self.registers.only_general(&*self.uc, &mut outcome.registers);
            !trace.state.untouched
        } else {
            outcome.registers = self.registers.snapshot(&*self.uc);
            let vectors = std::mem::take(&mut outcome.registers.vectors);
            vectors != self.clean.vectors || outcome.registers.control != self.clean.control
        };
        self.dirty = moved || case.initial.thread.is_some() || self.roles.lets_go || !trace.checks.findings.is_empty();
        *self.uc.data_mut() = Some(trace);
        self.memory.read(*sp, &mut outcome.above);
        let read = self.memory.read(self.scratch, &mut outcome.result);
        self.result_clear = read && outcome.result == [0; RESULT];
        outcome
    }

    /// Load the image again, as it was linked, with all sites disabled.
    pub(crate) fn reload(&mut self) -> Result<()> {
        let whole = |s: &link::Segment| {
            let mut bytes = s.bytes.clone();
            bytes.resize(s.mem_size as usize, 0);
            Write { at: s.address, bytes }
        };
        let away = self.away.iter().flat_map(|a| &a.functions.segments);
        let writes: Vec<Write> = self.image.segments.iter().chain(away).map(whole).collect();
        self.uc.write_code(&writes)?;
        self.prepared = None;
        self.patch_all(SiteState::Disabled, None)
    }

    /// Where the run of a case begins.
    pub(crate) fn start(&self, case: &Case) -> u64 {
        match self.suite.contracts[case.attach].kind.is_called() {
            true => self.ranges[case.attach].0,
            false => self.entry(case),
        }
    }

    /// The deviation that the contract expects here.
    pub(crate) fn known(&self, finding: &Finding) -> Option<usize> {
        let at = self.symbolic(finding.pc);
        let lies = |d: &Deviation| {
            let Some(stretch) = &d.stretch else { return true };
            self.decode(d.trampoline).is_ok_and(|lines| stretch.has(&lines, finding.pc))
        };
        self.suite.deviations.iter().position(|d| d.covers(finding, &at) && lies(d))
    }

    /// Set what is patched or stored before this case runs.
    pub(crate) fn prepare(&mut self, case: &Case) -> Result<()> {
        let goal = |at: Option<u64>, sparse| match at {
            Some(at) => Goal { at, named: if case.sparse() { sparse } else { at } },
            None => Goal::default(),
        };
        self.places.direct = goal(Some(self.direct_target()), SPARSE_DIRECT);
        self.places.exit = self.exit(case.situation).map_or(0, |i| self.ranges[i].0);
        self.places.attached = self.ranges[case.attach].0;
        let livepatch = self.entries.get(case.function).and_then(|(_, livepatch)| *livepatch);
        self.places.livepatch = match livepatch {
            // To its own body, by an address that only whoever redirects it knows.
            None if case.situation.ip() => {
                let body = self.functions.get(case.function).map_or(0, |f| self.body(&f.name));
                Goal { at: body, named: SPARSE_LIVEPATCH }
            }
            _ => goal(livepatch, SPARSE_LIVEPATCH),
        };
        let func = match case.situation.stub() {
            Some(kind) => self.suite.convention.symbol(kind).map_or(0, |symbol| self.address(symbol)),
            None => self.callback,
        };
        let jumps = jumps(self.suite, &self.image, case)?;
        self.uc.write_code(&jumps)?;
        self.variables.set(self.suite, &mut *self.uc, case, func)?;
        let early = match (case.situation.early(), self.through(case.attach)) {
            (true, _) => self.places.direct.named,
            (false, Some(_)) => self.ranges[case.attach].0,
            (false, None) => 0,
        };
        if self.prepared == Some((func, early)) {
            return Ok(());
        }
        if self.suite.contracts.iter().any(|c| c.leaves_by(ExitPath::EarlyDirect)) {
            let Some((func_at, early_at)) = self.op_cell else {
                return Err(Error::new(
                    "a trampoline reads `op` itself, and nobody says where in it; valid: with offsets",
                ));
            };
            put_word(&mut *self.uc, func_at, func);
            put_word(&mut *self.uc, early_at, early);
            if let Some(nop_op) = self.nop_op {
                // It names no direct trampoline.
                put_word(&mut *self.uc, func_at.wrapping_sub(self.places.op).wrapping_add(nop_op), self.nothing);
            }
        }
        if let Some(callee) = self.callee {
            put_word(&mut *self.uc, callee, func);
        }
        for &slot in &self.slots {
            let mut call = self.suite.backend.patch_call(slot, func)?;
            if case.situation.stub() == Some(Kind::Stub) && !self.copied() {
                // As it was linked, before the kernel wrote to it. To a copy the kernel writes at once.
                call.bytes = self.image.bytes(slot, call.bytes.len()).unwrap_or_default().to_vec();
            }
            self.uc.write_code(&[call])?;
        }
        self.prepared = Some((func, early));
        Ok(())
    }

    /// Patch the site of one function, or all.
    pub(crate) fn patch_all(&mut self, state: SiteState, only: Option<usize>) -> Result<()> {
        let Site { protocol, .. } = &self.suite.convention.site;
        // Switched off, a site need reach what it is laid out towards only.
        let reaches = state != SiteState::Disabled || !protocol.initial.is_empty();
        let only = only.or(self.alone.filter(|_| reaches));
        if let (SiteState::Enabled { target, .. }, false) = (state, protocol.initial.is_empty()) {
            let attach = self.ranges.iter().position(|(at, _)| *at == target);
            self.toward = attach.map_or(Some(target), |attach| self.laid_out(attach));
        }
        let start = only.map(|i| self.function(&self.functions[i].name));
        let mut writes = Vec::new();
        let sites = &self.away.as_ref().map_or(&self.image, |a| &a.functions).sites;
        let trace = self.uc.data_mut().get_or_insert_default();
        // Functions that others are redirected to stay untraced.
        let wanted = |s: &&link::SiteEntry| match start {
            Some(start) => s.start == start,
            None => !s.function.ends_with(LIVEPATCH) || state == SiteState::Disabled,
        };
        for site in sites.iter().filter(wanted) {
            writes.extend(self.suite.writes(site.spot(self.toward, self.nop_op), state)?);
            if let Some(cell) = trace.cells.get_mut(site.ip) {
                cell.marks.set(Mark::SITE, state != SiteState::Disabled);
            }
        }
        self.uc.write_code(&writes)
    }

    pub(crate) fn decode(&self, i: usize) -> Result<Vec<Decoded>> {
        let (start, size) = self.ranges[i];
        let mut lines = decode_function(self.registers.machine, &self.image, (start, size))?;
        for line in &mut lines {
            let place = (self.suite.contracts[i].name.clone(), line.at.wrapping_sub(start));
            if let Some(text) = self.suite.written.get(&place) {
                line.text = Arc::clone(text);
                continue;
            }
            // A call or jump to a function reads better by its name.
            let (Some(address), Some((rest, _))) = (line.target, line.text.rsplit_once("0x")) else { continue };
            if let Some(target) = self.image.symbols.iter().find(|s| s.address == address && s.size > 0) {
                line.text = format!("{}{}", rest.trim_end_matches('#'), target.name).into();
            }
        }
        Ok(lines)
    }

    /// A word of memory, as it is.
    pub(crate) fn word(&self, at: u64) -> u64 {
        word(&*self.uc, at)
    }

    pub(crate) fn symbolic(&self, pc: u64) -> String {
        let inside = |s: &&link::Symbol| pc.wrapping_sub(s.address) < s.size;
        if pc == EXIT {
            return "the caller".into();
        }
        if let Some(s) = self.image.symbols.iter().chain(&self.traced().symbols).find(inside) {
            return format!("{}+{:#x}", s.name, pc.wrapping_sub(s.address));
        }
        match copies(self.suite, &self.ranges).find(|(at, _)| *at == pc) {
            Some((_, contract)) => format!("the copies of {}", contract.name),
            None => format!("{pc:#x}"),
        }
    }
}
