//! What happens while a function runs: the site, the callback, the resumption, each checked where it happens.
//!
//! The boundaries are those of `bug-corpus.md`, section 0: T0 the patched instruction, T1 the callback's first
//! instruction, T3 the resumption, T4 the traced function's return, T5 the exit callback, T6 the parent.

use std::rc::Rc;
use std::sync::Arc;

use codegen::abi::{Loc, Reg, RegSet};
use codegen::contract::Contract;
use codegen::frame::{Back, Content};
use codegen::live::{Live, Word};
use codegen::machine::Branch;
use codegen::spec::{Around, Attach, Direct, Form, Kind, Programs};

use crate::case::{Case, Handler};
use crate::cpu::{EXIT, Registers, STACK_SIZE, STACK_TOP, Snapshot, Uc, put_word, word, words};
use crate::flow::{ReturnStack, Taken};
use crate::report::Clause;
use crate::rng::Rng;
use crate::unwind::Table;

/// Instructions after which a run is called a loop.
const BUDGET: u64 = 200_000;
/// Bytes below SP that a callback overwrites.
const SCRIBBLE: u64 = 512;

/// Failures that are kept of one run: one that went astray can fail with every instruction.
const FAILURES: usize = 100;
/// Trampolines that can be told apart in one image: one bit each in [`Trace::entered`].
pub(crate) const MOST: usize = u64::BITS as usize;

/// Where an address belongs.
pub(crate) const ELSEWHERE: u8 = 0;
pub(crate) const FUNCTION: u8 = 1;
pub(crate) const TRAMPOLINE: u8 = 2;

/// What an address is, besides.
pub(crate) const SITE: u8 = 1;
pub(crate) const CALLBACK: u8 = 2;
pub(crate) const EXIT_HANDLER: u8 = 4;
pub(crate) const DIRECT_FUNC: u8 = 8;
pub(crate) const ENTRY: u8 = 16;
pub(crate) const PROGRAM: u8 = 32;

/// An address of the image.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cell {
    pub region: u8,
    pub marks: u8,
    /// An instruction was executed here.
    pub visited: bool,
    /// A branch of a trampoline, with its size in bytes.
    pub branch: Option<(Branch, u8)>,
}

/// What is known of the addresses of one image, or of two.
#[derive(Clone, Default, Debug)]
pub(crate) struct Cells {
    /// The first address of each image, and where its cells begin.
    spans: [(u64, usize); 2],
    cells: Vec<Cell>,
}

impl Cells {
    /// Room for the addresses of one more image: from `base` on, so many of them.
    pub fn add(&mut self, base: u64, size: usize) {
        let from = self.cells.len();
        if from == 0 {
            self.spans[0] = (base, 0);
        }
        self.spans[1] = (base, from);
        self.cells.resize(from + size, Cell::default());
    }

    fn index(&self, at: u64) -> usize {
        let [(first, _), (second, from)] = self.spans;
        let index = at.wrapping_sub(first) as usize;
        // Without a second image, what is not in the first is nowhere.
        if from == 0 || index < from { index } else { (at.wrapping_sub(second) as usize).saturating_add(from) }
    }

    pub fn get(&self, at: u64) -> Option<&Cell> {
        self.cells.get(self.index(at))
    }

    #[inline]
    pub fn get_mut(&mut self, at: u64) -> Option<&mut Cell> {
        let index = self.index(at);
        self.cells.get_mut(index)
    }

    /// The cells of `size` addresses in one image.
    pub fn range_mut(&mut self, at: u64, size: u64) -> Option<&mut [Cell]> {
        let index = self.index(at);
        self.cells.get_mut(index..index.saturating_add(size as usize))
    }
}

/// A name in parts, put together only if a check fails.
pub(crate) struct Joined<'n>(pub &'static str, pub &'n str, pub &'static str);

impl From<Joined<'_>> for String {
    fn from(j: Joined) -> String {
        [j.0, j.1, j.2].concat()
    }
}

/// A check that failed, before it is put into words.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub clause: Clause,
    pub trampoline: usize,
    pub place: String,
    pub register: Option<Reg>,
    pub expected: u64,
    pub found: u64,
    pub pc: u64,
}

/// Between a site and the resumption.
#[derive(Debug)]
pub(crate) struct Activation {
    /// State at the site, with what the callback changed put in.
    pub expect: Snapshot,
    pub sp: u64,
    pub pc: u64,
    pub parent: u64,
    /// Where the function must go on, and with which return address.
    pub resume: u64,
    pub returns_to: u64,
    kept: RegSet,
    flags_kept: bool,
    redirected: bool,
    /// A direct trampoline was entered on the way.
    dispatched: bool,
    /// Callbacks and functions of direct trampolines that were called.
    calls: u64,
}

/// A return address that a callback replaced.
#[derive(Debug)]
pub(crate) struct Hooked {
    parent: u64,
    sp: u64,
}

/// A paired trampoline while the function that it called runs.
#[derive(Debug)]
pub(crate) struct Pending {
    index: usize,
    parent: u64,
    resume: u64,
    /// SP and frame pointer at the site.
    sp: u64,
    fp: u64,
    /// Where the function returns to, and SP then.
    back: u64,
    back_sp: u64,
    epoch: u32,
    returns: ReturnStack,
    /// The arguments, as programs are shown them.
    words: Vec<u64>,
}

/// Between the end of the traced function, where a trampoline is told of it, and the parent.
#[derive(Debug)]
pub(crate) struct Exiting {
    pub expect: Snapshot,
    pub parent: u64,
    /// Where the traced function went on behind its site; 0 if the trampoline does not know it.
    pub resume: u64,
    /// SP in the parent.
    pub sp: u64,
    calls: u64,
    /// The arguments, as programs are shown them.
    words: Vec<u64>,
}

/// Addresses that the checks need.
#[derive(Clone, Default, Debug)]
pub(crate) struct Places {
    pub op: u64,
    /// The trampoline that a hooked return goes to.
    pub exit: u64,
    /// The direct trampoline that a callback or op may choose.
    pub direct: u64,
    /// Where a redirected function goes on.
    pub livepatch: u64,
}

/// Data of the hooks.
#[derive(Default)]
pub(crate) struct Trace {
    pub registers: Option<Registers>,
    pub site: Option<&'static codegen::abi::Site>,
    pub contracts: Vec<Rc<Contract>>,
    /// Where the functions begin that each trampoline calls by name; 0 if its contract names none.
    pub callees: Vec<Vec<u64>>,
    /// What is known of each byte of the image.
    pub cells: Cells,
    pub places: Places,
    pub case: Arc<Case>,
    /// What callbacks overwrite the stack below them with.
    pub garbage: Vec<u8>,
    pub enabled: bool,
    /// Handlers keep the parent of the function.
    pub(crate) shadow: bool,
    pub(crate) parents: Vec<u64>,

    pub(crate) budget: u64,
    pub(crate) current: Option<usize>,
    pub(crate) current_region: u8,
    pub(crate) activations: Vec<Activation>,
    pub(crate) hooked: Vec<Hooked>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) exiting: Option<Exiting>,
    pub(crate) callbacks: u32,
    pub(crate) frame_top: u64,
    pub(crate) written: Vec<u32>,
    pub(crate) epoch: u32,
    pub(crate) epochs: u32,
    pub(crate) lowest_store: Option<u64>,
    /// Trampolines entered, as bits.
    pub entered: u64,
    pub sites_seen: u32,
    pub checks: Vec<[u64; Clause::ALL.len()]>,
    pub fates: Vec<[(u64, u64); 32]>,
    pub vectors_lost: Vec<u64>,
    pub findings: Vec<Finding>,
    /// What the unwind table says.
    pub table: Option<Rc<Table>>,
    pub(crate) returns: ReturnStack,
    pub(crate) taken: Option<Taken>,
    /// Set for a diagnosis: every instruction in a trampoline with the registers before it.
    pub recording: Option<Vec<(u64, [u64; 32])>>,
}

impl Trace {
    /// Forget the last run, keep what was counted.
    pub fn begin(&mut self, case: &Arc<Case>, enabled: bool) {
        self.case = Arc::clone(case);
        self.enabled = enabled;
        self.shadow = self.kind(case.attach).is_some_and(Kind::is_shadow);
        self.parents.clear();
        self.budget = BUDGET;
        self.current = None;
        self.current_region = ELSEWHERE;
        self.activations.clear();
        self.hooked.clear();
        self.pending.clear();
        self.exiting = None;
        self.callbacks = 0;
        self.lowest_store = None;
        self.entered = 0;
        self.sites_seen = 0;
        self.taken = None;
        self.written.resize((STACK_SIZE / 8) as usize, 0);
        let contracts = self.contracts.len();
        self.checks.resize(contracts, [0; Clause::ALL.len()]);
        self.fates.resize(contracts, [(0, 0); 32]);
        self.vectors_lost.resize(contracts, 0);
    }

    pub(crate) fn trampoline(&self) -> usize {
        self.current.unwrap_or(self.case.attach)
    }

    /// The region of an address.
    pub(crate) fn region(&self, at: u64) -> u8 {
        self.cells.get(at).map_or(ELSEWHERE, |c| c.region)
    }

    fn fail(&mut self, clause: Clause, place: impl Into<String>, register: Option<Reg>, pair: (u64, u64), pc: u64) {
        self.fail_of(self.trampoline(), clause, place, register, pair, pc);
    }

    fn fail_of(
        &mut self,
        trampoline: usize,
        clause: Clause,
        place: impl Into<String>,
        register: Option<Reg>,
        (expected, found): (u64, u64),
        pc: u64,
    ) {
        if self.findings.len() < FAILURES {
            self.findings.push(Finding { clause, trampoline, place: place.into(), register, expected, found, pc });
        }
    }

    pub(crate) fn check(&mut self, clause: Clause, place: impl Into<String>, expected: u64, found: u64, pc: u64) {
        self.check_of(self.trampoline(), clause, place, expected, found, pc);
    }

    /// A check of another trampoline than the one at work.
    pub(crate) fn check_of(
        &mut self,
        trampoline: usize,
        clause: Clause,
        place: impl Into<String>,
        expected: u64,
        found: u64,
        pc: u64,
    ) {
        if let Some(counts) = self.checks.get_mut(trampoline) {
            counts[clause as usize] += 1;
        }
        if expected != found {
            self.fail_of(trampoline, clause, place, None, (expected, found), pc);
        }
    }

    /// The run ended without reaching the exit.
    pub fn stopped(&mut self, pc: u64, why: &str) {
        self.fail(Clause::P9, why.to_owned(), None, (EXIT, pc), pc);
    }

    /// The run went where no code is.
    pub fn astray(&mut self, to: u64) {
        let behind = self.taken.map_or(to, |branch| branch.next);
        let place =
            "the jump or call before this place goes where no code is; give the object, or the dump, that has it";
        self.fail(Clause::P9, place, None, (EXIT, to), behind);
    }

    /// A memory access by an instruction, before it takes effect.
    fn access(&mut self, at: u64, size: usize, is_write: bool) {
        let Some(i) = at.checked_sub(STACK_TOP - STACK_SIZE).map(|d| (d / 8) as usize) else { return };
        let slots = i..i + size.div_ceil(8);
        if is_write {
            for slot in slots {
                if let Some(w) = self.written.get_mut(slot) {
                    *w = self.epoch;
                }
            }
        }
        if self.current_region < TRAMPOLINE || self.frame_top == 0 {
            return;
        }
        let trampoline = self.trampoline();
        if let Some(counts) = self.checks.get_mut(trampoline) {
            counts[Clause::P7 as usize] += 1;
        }
        if is_write {
            if at + size as u64 > self.frame_top {
                self.fail(Clause::P7, "store above sp at the site", None, (self.frame_top, at), 0);
            }
            self.lowest_store = Some(self.lowest_store.map_or(at, |l| l.min(at)));
        } else if at < self.frame_top && self.written.get(i).is_some_and(|w| *w != self.epoch) {
            self.fail(
                Clause::P7,
                format!("load of a slot never written, {} bytes below sp at the site", self.frame_top - at),
                None,
                (0, at),
                0,
            );
        }
    }
}

/// The hook on every access to the stack.
pub(crate) fn accessed(uc: &mut Uc, at: u64, size: usize, is_write: bool) -> bool {
    if let Some(trace) = uc.get_data_mut() {
        trace.access(at, size, is_write);
    }
    true
}

/// The hook on every instruction of the image.
pub(crate) fn instruction(uc: &mut Uc, pc: u64) {
    let Some(t) = uc.get_data_mut() else { return };
    t.budget = t.budget.saturating_sub(1);
    if t.budget == 0 {
        t.stopped(pc, "loop: instruction budget used up");
        let _ = uc.emu_stop();
        return;
    }
    let mut outside = Cell::default();
    let cell = t.cells.get_mut(pc).unwrap_or(&mut outside);
    cell.visited = true;
    let (region, mark) = (cell.region, cell.marks);
    let taken = cell.branch.map(|(branch, size)| Taken { branch, next: pc + u64::from(size) });
    let by = std::mem::replace(&mut t.taken, taken);
    let event = (t.current.is_some() && region == FUNCTION)
        || (t.enabled && by.is_some())
        || ((t.enabled || t.shadow) && mark != 0)
        || (region >= TRAMPOLINE && (region != t.current_region || t.case.closely || t.recording.is_some()));
    let came_from = std::mem::replace(&mut t.current_region, region);
    // A store is judged at the next instruction, when SP is what the storing one made it.
    if let (Some(low), Some(registers)) = (t.lowest_store.take(), t.registers) {
        let sp = registers.sp(uc);
        if low < sp
            && let Some(t) = uc.get_data_mut()
        {
            t.fail(Clause::P7, "store below sp", None, (sp, low), pc);
        }
    }
    if event && let Some(mut trace) = uc.get_data_mut().take() {
        trace.event(uc, pc, by, (came_from, region), mark);
        *uc.get_data_mut() = Some(trace);
    }
}

impl Trace {
    fn event(&mut self, uc: &mut Uc, pc: u64, by: Option<Taken>, (came_from, region): (u8, u8), mark: u8) {
        let Some(registers) = self.registers else { return };
        if self.recording.is_some() && region >= TRAMPOLINE {
            let gpr = registers.snapshot(uc).gpr;
            self.recording.get_or_insert_default().push((pc, gpr));
        }
        if self.enabled {
            self.arrived(uc, pc, by, (came_from, region));
        }
        if self.enabled && region == FUNCTION && came_from != FUNCTION && self.current.is_some() {
            self.resumed(uc, pc);
        }
        if self.enabled && mark & SITE != 0 && region == FUNCTION {
            self.at_site(uc, pc);
        }
        if self.enabled && region >= TRAMPOLINE {
            let index = (region - TRAMPOLINE) as usize;
            if self.exiting.is_some() && pc == self.places.exit {
                // A tail call was hooked too: its parent is the exit trampoline once more.
                self.parent_resumed(uc, pc);
                self.enter(uc, pc, index, mark);
            } else if region != came_from && self.current != Some(index) {
                self.enter(uc, pc, index, mark);
            }
            if region != came_from && mark & ENTRY != 0 {
                self.check_entry(uc, pc, index);
            }
            if self.case.closely && self.current.is_some() {
                self.interrupt(uc, registers, pc);
            }
            if self.case.closely && self.current == Some(index) {
                self.unwind(uc, pc);
            }
        }
        if self.shadow && !self.enabled {
            self.keep_parent(uc, registers, mark);
        }
        let kind = self.kind(self.trampoline());
        if self.enabled && self.current.is_some() {
            if let (Some(Kind::Programs(programs)), true) = (kind, mark & PROGRAM != 0) {
                self.program(uc, pc, &programs);
                return;
            }
            match mark & (CALLBACK | EXIT_HANDLER | DIRECT_FUNC) {
                CALLBACK => self.callback(uc, pc),
                EXIT_HANDLER => self.exit_handler(uc, pc),
                DIRECT_FUNC => self.direct_func(uc, pc),
                _ => {}
            }
        }
    }

    /// What handlers must do that alone know the parent, where nothing is checked.
    fn keep_parent(&mut self, uc: &mut Uc, registers: Registers, mark: u8) {
        if mark & CALLBACK != 0 {
            self.parents.push(registers.get(uc, registers.abi.args[1]));
        } else if mark & EXIT_HANDLER != 0
            && let Some(parent) = self.parents.pop()
        {
            registers.set(uc, registers.abi.rets[0], parent);
        }
    }

    fn parent_here(&self, uc: &Uc, registers: Registers, sp: u64) -> u64 {
        match registers.abi.link {
            Some(link) => registers.get(uc, link),
            None => word(uc, sp),
        }
    }

    /// T0.
    fn at_site(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        let expect = registers.snapshot(uc);
        let sp = registers.sp(uc);
        let parent = self.parent_here(uc, registers, sp);
        let resume = pc.wrapping_add(site.ip_offset as u64);
        self.begin_activation(expect, sp, resume, parent, self.case.attach);
    }

    fn begin_activation(&mut self, expect: Snapshot, sp: u64, resume: u64, parent: u64, index: usize) {
        self.sites_seen += 1;
        self.next_epoch();
        self.frame_top = sp;
        if let (Some(registers), true) = (self.registers, self.kind(index).is_some_and(Kind::is_shadow)) {
            // It has the return address to itself, which a call may have written there.
            self.frame_top = sp.wrapping_add(registers.abi.return_bytes());
            let slot = sp.wrapping_sub(STACK_TOP - STACK_SIZE) / 8;
            self.written.get_mut(slot as usize).into_iter().for_each(|written| *written = self.epoch);
        }
        self.activations.push(Activation {
            expect,
            sp,
            pc: resume,
            parent,
            resume,
            returns_to: parent,
            kept: RegSet::EMPTY,
            flags_kept: true,
            redirected: false,
            dispatched: false,
            calls: 0,
        });
        self.current = Some(index);
        // The last call was that at the site, or, if the site jumped, that of the function.
        self.returns.begin(Some(if self.jumped_to() { parent } else { resume }));
        self.entered |= 1 << index;
        if let (Some(a), Some(c)) = (self.activations.last_mut(), self.contracts.get(index)) {
            (a.kept, a.flags_kept) = (c.kept, c.flags_kept);
        }
    }

    fn next_epoch(&mut self) {
        self.epochs += 1;
        self.epoch = self.epochs;
    }

    /// What this trampoline does.
    fn kind(&self, index: usize) -> Option<Kind> {
        self.contracts.get(index).map(|c| c.kind)
    }

    /// Does the trampoline at work call the traced function?
    pub(crate) fn calls_body(&self) -> bool {
        self.kind(self.trampoline()).is_some_and(Kind::calls_body)
    }

    /// Does the site jump to the trampoline at work?
    pub(crate) fn jumped_to(&self) -> bool {
        self.kind(self.trampoline()).is_some_and(Kind::jumped_to)
    }

    /// T0 where no site is patched: the trampoline was called.
    fn at_sled(&mut self, uc: &Uc, registers: Registers, index: usize) {
        let entry_sp = registers.sp(uc);
        let (sp, resume, parent) = match registers.abi.link {
            Some(link) => (entry_sp, registers.get(uc, link), registers.get(uc, link)),
            None => (entry_sp.wrapping_add(8), word(uc, entry_sp), word(uc, entry_sp.wrapping_add(8))),
        };
        self.begin_activation(registers.snapshot(uc), sp, resume, parent, index);
        self.frame_top = entry_sp;
    }

    /// The first instruction of a trampoline other than the one before.
    fn enter(&mut self, uc: &mut Uc, pc: u64, index: usize, mark: u8) {
        let Some(registers) = self.registers else { return };
        self.entered |= 1 << index;
        if self.current.is_none() && self.contracts.get(index).is_some_and(|c| c.sled) {
            self.at_sled(uc, registers, index);
            return;
        }
        if self.current.is_none() && mark & ENTRY == 0 && self.pending.last().is_some_and(|p| p.index == index) {
            self.body_returned(uc, pc, registers);
            return;
        }
        let kind = self.kind(index);
        if kind == Some(Kind::Return) && self.current.is_none() {
            self.current = Some(index);
            let expect = registers.snapshot(uc);
            let sp = registers.sp(uc);
            self.next_epoch();
            self.frame_top = sp;
            // x86: the return slot that RET popped is below SP now, and the trampoline may use it.
            let hooked = self.hooked.pop();
            let (parent, hooked_sp) = hooked.map_or((0, 0), |h| (h.parent, h.sp));
            let popped = if registers.abi.link.is_none() { 8 } else { 0 };
            self.check(Clause::P9, "sp when the hooked return arrived", hooked_sp.wrapping_add(popped), sp, pc);
            self.exiting = Some(Exiting { expect, parent, resume: 0, sp, calls: 0, words: Vec::new() });
            self.returns.begin(None);
            return;
        }
        let situation = self.case.situation;
        let sent = match kind {
            Some(Kind::Stub | Kind::StubGraph) => situation.stub == kind,
            Some(Kind::Direct(_) | Kind::StubDirect) => situation.direct || situation.early,
            _ => false,
        };
        if !sent || mark & ENTRY == 0 || self.activations.is_empty() {
            self.fail(Clause::P9, "a trampoline that nothing sent it to", None, (0, pc), pc);
            return;
        }
        if matches!(kind, Some(Kind::Direct(_) | Kind::StubDirect)) {
            self.direct_entry(uc, pc);
            if let (Some(a), Some(c)) = (self.activations.last_mut(), self.contracts.get(index)) {
                let both = a.kept.minus(a.kept.minus(c.kept));
                (a.kept, a.flags_kept) = (both, false);
            }
            self.current = Some(index);
        }
        // A stub called as the callback stays part of the trampoline that called it.
    }

    /// A trampoline handed over to a direct trampoline: the state must be that of the site.
    fn direct_entry(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        let lost = self.contracts.get(self.trampoline()).map_or(RegSet::EMPTY, |c| c.direct_lost);
        let Some(a) = self.activations.last_mut() else { return };
        a.dispatched = true;
        a.kept = a.kept.minus(lost);
        let (resume, parent, sp) = (a.resume, a.returns_to, a.sp);
        let at = |uc: &Uc, loc: Loc| match loc {
            Loc::Reg(r) => registers.get(uc, r),
            Loc::Stack(offset) => word(uc, registers.sp(uc).wrapping_add(offset as u64)),
        };
        self.check(Clause::P9, "direct trampoline", self.places.direct, pc, pc);
        self.check(Clause::P9, "pc for the direct trampoline", resume, at(uc, site.pc), pc);
        self.check(Clause::P9, "parent_ip for the direct trampoline", parent, at(uc, site.parent_ip), pc);
        self.check(Clause::P7, "sp", sp.wrapping_sub(site.pushed as u64), registers.sp(uc), pc);
        self.compare_registers(uc, pc, registers);
        // What was lost so far is told; from here on the direct trampoline answers for what it was given.
        let now = registers.general(uc);
        if let Some(a) = self.activations.last_mut() {
            (a.expect.gpr, a.expect.flags) = (now.gpr, now.flags);
        }
    }

    /// T3.
    fn resumed(&mut self, uc: &mut Uc, pc: u64) {
        if self.exiting.is_some() {
            self.parent_resumed(uc, pc);
            return;
        }
        let Some(registers) = self.registers else { return };
        if self.calls_body() {
            self.body_called(uc, pc, registers);
            return;
        }
        let Some(a) = self.activations.last() else { return };
        let (resume, returns_to, sp, redirected) = (a.resume, a.returns_to, a.sp, a.redirected);
        let (calls, dispatched) = (a.calls, a.dispatched);
        self.check(Clause::P9, "pc", resume, pc, pc);
        let sp_now = registers.sp(uc);
        self.check(Clause::P7, "sp", sp, sp_now, pc);
        let parent = self.parent_here(uc, registers, sp_now);
        self.check(Clause::P9, "return address", returns_to, parent, pc);
        if redirected || returns_to != self.activations.last().map_or(0, |a| a.parent) {
            self.check(Clause::P11, "way on", resume, pc, pc);
        }
        self.compare_registers(uc, pc, registers);
        let (situation, kind) = (self.case.situation, |i: usize| self.kind(i));
        let called_back =
            matches!(kind(self.case.attach), Some(Kind::Entry(_))) && situation.stub.is_none() && !situation.early;
        let t = self.trampoline();
        // A contract need not say what a direct trampoline calls.
        let named = self.callees.get(t).map_or(&[][..], |all| all).iter().filter(|callee| **callee != 0);
        let named = if matches!(kind(t), Some(Kind::Direct(_) | Kind::Programs(_))) { named.count() as u64 } else { 0 };
        let called = u64::from(called_back) + named;
        self.check(Clause::P10, "calls of the callback", called, calls, pc);
        if !dispatched && !redirected {
            self.check_returns(pc);
        }
        if situation.direct || situation.early {
            self.check(Clause::P11, "direct trampoline entered", 1, u64::from(dispatched), pc);
        }
        self.activations.pop();
        self.current = None;
        self.frame_top = 0;
    }

    /// T3 of a paired trampoline: it has called the traced function.
    fn body_called(&mut self, uc: &mut Uc, pc: u64, registers: Registers) {
        let Some(contract) = self.contracts.get(self.trampoline()).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let Some(a) = self.activations.last() else { return };
        let (resume, parent, sp, calls) = (a.resume, a.parent, a.sp, a.calls);
        let fp = a.expect.gpr[registers.abi.fp.0 as usize];
        let sp_now = registers.sp(uc);
        let back = self.parent_here(uc, registers, sp_now);
        let index = self.trampoline();
        self.check(Clause::P9, "pc", resume, pc, pc);
        let inside = usize::from(self.region(back)) == usize::from(TRAMPOLINE) + index;
        self.check(Clause::P9, "the function returns to the trampoline", 1, inside.into(), pc);
        self.check(
            Clause::P14,
            "return address of the function, and its call",
            self.returns.top().unwrap_or(0),
            back,
            pc,
        );
        let moved = sp.wrapping_sub(sp_now) % u64::from(registers.abi.sp_align);
        self.check(Clause::P8, "sp of the function against its caller's, modulo the psABI's alignment", 0, moved, pc);
        if contract.kind.is_shadow() {
            self.check(Clause::P7, "sp of the function, where its stack arguments are", sp, sp_now, pc);
        }
        let before = contract.programs.iter().filter(|p| p.attach != Attach::Fexit).count() as u64;
        let wanted = if let Kind::Programs(_) = contract.kind { before } else { 1 };
        self.check(Clause::P10, "calls before the function", wanted, calls, pc);
        self.compare_registers(uc, pc, registers);
        let mut words = Vec::new();
        if let (Kind::Programs(programs), Some(a)) = (contract.kind, self.activations.last()) {
            words = shown(uc, registers, &programs, &a.expect, sp);
            let expect = a.expect.clone();
            self.check_passed(uc, registers, programs.live, &expect, sp, pc);
        }
        let back_sp = sp_now.wrapping_add(registers.abi.return_bytes());
        let returns = std::mem::take(&mut self.returns);
        self.pending.push(Pending { index, parent, resume, sp, fp, back, back_sp, epoch: self.epoch, returns, words });
        self.activations.pop();
        self.current = None;
        self.frame_top = 0;
    }

    /// T4 of a paired trampoline.
    fn body_returned(&mut self, uc: &mut Uc, pc: u64, registers: Registers) {
        let Some(pending) = self.pending.pop() else { return };
        self.current = Some(pending.index);
        (self.epoch, self.frame_top, self.returns) = (pending.epoch, pending.sp, pending.returns);
        if self.kind(pending.index).is_some_and(Kind::is_shadow) {
            self.frame_top = pending.sp.wrapping_add(registers.abi.return_bytes());
        }
        self.predict(uc, pc);
        self.check(Clause::P9, "where the function returns to", pending.back, pc, pc);
        self.check(Clause::P7, "sp when the function returns", pending.back_sp, registers.sp(uc), pc);
        self.finish_body(uc, registers);
        let mut expect = registers.snapshot(uc);
        expect.gpr[registers.abi.fp.0 as usize] = pending.fp;
        let sp = pending.sp.wrapping_add(registers.abi.return_bytes());
        let Pending { parent, resume, words, .. } = pending;
        self.exiting = Some(Exiting { expect, parent, resume, sp, calls: 0, words });
    }

    /// What a function of any body may leave behind: anything where no result is, and results in vector registers, which
    /// those of the fixtures do not touch.
    fn finish_body(&mut self, uc: &mut Uc, registers: Registers) {
        let mut rng = Rng::new(self.case.seed, 0x200);
        let abi = registers.abi;
        for reg in abi.caller_saved.minus(RegSet::of(abi.exit_rets)).iter().filter(|&r| Some(r) != abi.link) {
            let value = rng.canary();
            registers.set(uc, reg, value);
        }
        let kind = self.kind(self.trampoline());
        let vectors = if let Some(Kind::Programs(programs)) = kind { programs.result.vectors } else { 0 };
        for &i in registers.machine.vector_rets.iter().take(vectors.into()) {
            let value = rng.vector();
            registers.set_vector(uc, i.into(), &value);
        }
    }

    /// Registers now, against those at the site with the callback's changes.
    fn compare_registers(&mut self, uc: &mut Uc, pc: u64, registers: Registers) {
        let now = registers.snapshot(uc);
        let Some(a) = self.activations.last() else { return };
        let (expect, kept, flags_kept) = (a.expect.clone(), a.kept, a.flags_kept);
        let args = RegSet::of(registers.abi.args).union(registers.abi.hidden);
        let c_keeps = registers.abi.callee_saved.union(registers.abi.platform);
        let t = self.trampoline();
        for reg in registers.abi.callee_saved.union(registers.abi.caller_saved).union(registers.abi.platform).iter() {
            let (want, have) = (expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            if let Some(fates) = self.fates.get_mut(t) {
                let fate = &mut fates[reg.0 as usize];
                if want == have { fate.0 += 1 } else { fate.1 += 1 }
            }
            if kept.contains(reg) {
                let clause = match (args.contains(reg), c_keeps.contains(reg)) {
                    (true, _) => Clause::P1,
                    (false, true) => Clause::P5,
                    (false, false) => Clause::P4,
                };
                self.checks[t][clause as usize] += 1;
                if want != have {
                    self.fail(clause, registers.abi.name(reg), Some(reg), (want, have), pc);
                }
            }
        }
        let live = self.contracts.get(t).and_then(|c| c.kind.live());
        self.compare_state(&expect, &now, flags_kept, Clause::P2, registers.machine.vector_args, live, pc, registers);
    }

    #[allow(clippy::too_many_arguments, reason = "two states and what to compare of them")]
    fn compare_state(
        &mut self,
        expect: &Snapshot,
        now: &Snapshot,
        flags_kept: bool,
        clause: Clause,
        carriers: &[u8],
        live: Option<Live>,
        pc: u64,
        registers: Registers,
    ) {
        if let Some((reg, mask)) = registers.machine.flags.filter(|_| flags_kept) {
            let mask = mask | registers.machine.clear_flags;
            self.check(Clause::P6, reg.name, expect.flags & mask, now.flags & mask, pc);
        }
        for (i, reg) in registers.machine.control.iter().enumerate() {
            self.check(Clause::P6, reg.name, expect.control[i], now.control[i], pc);
        }
        // Where the prototype is known, so is what must survive any handler, and what nobody waits for.
        let most = carriers.len();
        let (saved, live) = live.map_or((0, most), |l| (l.saved_vectors().into(), l.vectors.into()));
        let (saved, open) = carriers.split_at(most.min(saved));
        let every: Vec<u8> = (0..registers.machine.vectors.len() as u8).collect();
        for &i in if self.case.handler == Handler::General { &every } else { saved } {
            self.check_vector(clause, i.into(), expect, now, pc, registers);
        }
        let mut lost = open.iter().take(live.saturating_sub(saved.len())).map(|&i| usize::from(i));
        if self.case.handler == Handler::Any && lost.any(|i| expect.vectors[i] != now.vectors[i]) {
            let t = self.trampoline();
            if let Some(n) = self.vectors_lost.get_mut(t) {
                *n += 1;
            }
        }
    }

    fn check_vector(
        &mut self,
        clause: Clause,
        i: usize,
        expect: &Snapshot,
        now: &Snapshot,
        pc: u64,
        registers: Registers,
    ) {
        let (want, have) = (expect.vectors[i], now.vectors[i]);
        let low = |v: &[u8; 16]| u64::from_le_bytes(v[..8].try_into().unwrap_or_default());
        let found = if want == have { low(&want) } else { low(&have) ^ u64::from(low(&want) == low(&have)) };
        self.check(clause, registers.machine.vectors[i].name, low(&want), found, pc);
    }

    /// A field that a handler may read was written by this activation.
    fn check_written(&mut self, place: u64, member: &'static str, pc: u64) {
        let slot = place.wrapping_sub(STACK_TOP - STACK_SIZE) / 8;
        let written = self.written.get(slot as usize).is_some_and(|w| *w == self.epoch);
        self.check(Clause::P10, Joined("fregs->", member, " was written"), 1, u64::from(written), pc);
    }

    /// Flags and SP at the first instruction of a called C function.
    fn check_call(&mut self, uc: &Uc, registers: Registers, pc: u64) {
        if registers.machine.clear_flags != 0 {
            self.check(Clause::P6, "flags that are clear where C code begins", 0, registers.unclear_flags(uc), pc);
        }
        let sp = registers.sp(uc);
        let Some(contract) = self.contracts.get(self.trampoline()) else { return };
        let align = u64::from(contract.stack_align);
        let at_call = if registers.abi.link.is_none() { sp.wrapping_add(8) } else { sp };
        self.check(Clause::P8, "sp modulo the promised alignment, at the call", 0, at_call % align, pc);
    }

    /// T1.
    fn callback(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        let sp = registers.sp(uc);
        self.check_call(uc, registers, pc);
        let Some(contract) = self.contracts.get(self.trampoline()).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let Some(a) = self.activations.last_mut() else { return };
        a.calls += 1;
        let (parent, resume, site_sp, at) = (a.parent, a.pc, a.sp, a.expect.clone());
        let arg = |uc: &Uc, i: usize| registers.get(uc, registers.abi.args[i]);
        self.check(Clause::P10, "ip", resume.wrapping_sub(site.ip_offset as u64), arg(uc, 0), pc);
        self.check(Clause::P10, "parent_ip", parent, arg(uc, 1), pc);
        self.check(Clause::P10, "op", self.places.op, arg(uc, 2), pc);
        let fregs = arg(uc, 3);
        if contract.frame.c_size > 0 {
            let inside = fregs >= sp && fregs.wrapping_add(contract.frame.c_size as u64) <= site_sp;
            self.check(Clause::P10, "fregs lies in the frame", 1, u64::from(inside), pc);
        }
        let frame = words(uc, fregs, contract.frame.c_size as usize);
        let held = |offset: i32| frame.get(offset as usize / 8).copied().unwrap_or(0);
        for field in contract.frame.fields.iter().filter(|f| !f.member.is_empty()) {
            let want = match field.content {
                Content::Reg(r) => at.gpr[r.0 as usize],
                Content::Pc => resume,
                Content::ParentIp => parent,
                Content::SiteSp => site_sp,
                Content::Flags => at.flags,
                Content::Const(n) => n as u64,
                Content::Direct => 0,
                Content::Result(_) | Content::ExitSp | Content::Unfilled => continue,
                // Of no struct.
                Content::Vector(_)
                | Content::VectorResult(_)
                | Content::StackWord(_)
                | Content::Cookie
                | Content::Ip => continue,
            };
            let place = fregs.wrapping_add(field.offset as u64);
            self.check(Clause::P10, Joined("fregs->", field.member, ""), want, held(field.offset), pc);
            self.check_written(place, field.member, pc);
        }
        self.callbacks += 1;
        self.moves(uc, registers, &contract, fregs);
        self.poison(uc, registers, 1 + u64::from(self.callbacks));
    }

    /// What the callback decides. Rewriting and redirecting are for the outermost function only, so that a plain run
    /// with other arguments, or of the other function, tells what must come out.
    fn moves(&mut self, uc: &mut Uc, registers: Registers, contract: &Contract, fregs: u64) {
        let case = Arc::clone(&self.case);
        let outermost = self.callbacks == 1;
        let written = |content: Content| {
            let found = contract.frame.fields.iter().find(|f| f.content == content && f.back == Back::Written);
            found.map(|f| fregs.wrapping_add(f.offset as u64))
        };
        let places = self.places.clone();
        let site_sp = self.activations.last().map_or(0, |a| a.sp);
        let mut stored = Vec::new();
        let Some(a) = self.activations.last_mut() else { return };
        if case.situation.args && outermost {
            for (reg, value) in case.rewritten(contract, registers.abi) {
                if let Some(at) = written(Content::Reg(reg)) {
                    stored.push((at, value));
                    a.expect.gpr[reg.0 as usize] = value;
                }
            }
            if let (Some(at), Some((_, mask))) = (written(Content::Flags), registers.machine.flags) {
                a.expect.flags ^= mask;
                stored.push((at, a.expect.flags));
            }
        }
        if let (true, true, Some(at)) = (case.situation.ip, outermost, written(Content::Pc)) {
            stored.push((at, places.livepatch));
            a.resume = places.livepatch;
            a.redirected = true;
        }
        if let (true, Some(at)) = (case.situation.direct, written(Content::Direct)) {
            stored.push((at, places.direct));
        }
        if case.situation.parent {
            let cell = written(Content::ParentIp).or(registers.abi.link.is_none().then_some(site_sp));
            if let Some(at) = cell {
                stored.push((at, places.exit));
                a.returns_to = places.exit;
                self.hooked.push(Hooked { parent: a.parent, sp: site_sp });
            }
        }
        for (at, value) in stored {
            if !put_word(uc, at, value) {
                self.fail(Clause::P11, "store through fregs", None, (value, at), 0);
            }
        }
    }

    /// An interrupt handler uses the stack below SP: nothing that is there is there afterwards.
    fn interrupt(&mut self, uc: &mut Uc, registers: Registers, pc: u64) {
        let sp = registers.sp(uc);
        // Another part of the garbage at each instruction.
        let from = 8 * (pc / 2 % 64) as usize;
        let below = self.garbage.get(from..from + SCRIBBLE as usize).unwrap_or_default();
        let _ = uc.mem_write(sp.wrapping_sub(SCRIBBLE), below);
        let slot = |at: u64| (at.wrapping_sub(STACK_TOP - STACK_SIZE) / 8) as usize;
        if let Some(gone) = self.written.get_mut(slot(sp.wrapping_sub(SCRIBBLE))..slot(sp)) {
            gone.fill(0);
        }
    }

    /// Overwrite all that a C function may, and the stack below it.
    fn poison(&mut self, uc: &mut Uc, registers: Registers, purpose: u64) {
        let mut rng = Rng::new(self.case.seed, 0x100 + purpose);
        for reg in registers.abi.caller_saved.iter().filter(|&r| Some(r) != registers.abi.link) {
            let value = rng.canary();
            registers.set(uc, reg, value);
        }
        let flags = if purpose.is_multiple_of(2) { u64::MAX } else { 0 };
        registers.set_flags(uc, flags);
        if self.case.handler == Handler::Any {
            for i in 0..registers.machine.vectors.len() {
                let value = rng.vector();
                if !registers.machine.vector_callee_saved.contains(&(i as u8)) {
                    registers.set_vector(uc, i, &value);
                }
            }
        }
        let sp = registers.sp(uc);
        // Another part of the garbage each time: what was there before is not there again.
        let from = 8 * (purpose as usize % 64 + 1);
        let below = self.garbage.get(from..from + SCRIBBLE as usize).unwrap_or_default();
        let _ = uc.mem_write(sp.wrapping_sub(SCRIBBLE), below);
    }

    /// The function that a direct trampoline calls.
    fn direct_func(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        self.check_call(uc, registers, pc);
        let t = self.trampoline();
        let Some(contract) = self.contracts.get(t).cloned() else { return };
        let direct = match contract.kind {
            Kind::Direct(direct) => direct,
            Kind::Around(Around { form: Form::Frame, args }) => Direct { args, ..Direct::default() },
            _ => return,
        };
        self.check_records(uc, registers, &contract, pc);
        let callee = self.callees.get(t).and_then(|all| all.first()).copied().unwrap_or(0);
        self.check(Clause::P10, "function that it calls", callee, pc, pc);
        let Some(a) = self.activations.last_mut() else { return };
        a.calls += 1;
        let (expect, resume, site_sp) = (a.expect.clone(), a.resume, a.sp);
        let mut slot = 0;
        if direct.ip {
            let found = registers.get(uc, registers.abi.args[0]);
            self.check(Clause::P10, "ip", resume.wrapping_sub(site.ip_offset as u64), found, pc);
            slot = 1;
        }
        for i in 0..direct.args as usize {
            let want = expect.gpr[registers.abi.args[i].0 as usize];
            let found = registers.get(uc, registers.abi.args[i + slot]);
            self.check(
                Clause::P10,
                Joined("argument in ", registers.abi.name(registers.abi.args[i]), ""),
                want,
                found,
                pc,
            );
        }
        if let Some(live) = direct.live {
            self.check_passed(uc, registers, live, &expect, site_sp, pc);
        }
        self.poison(uc, registers, 50 + self.callbacks as u64);
    }

    /// A callee of the traced function's own prototype finds all that the function finds.
    fn check_passed(&mut self, uc: &Uc, registers: Registers, live: Live, expect: &Snapshot, site_sp: u64, pc: u64) {
        let now = registers.snapshot(uc);
        for reg in live.regs.minus(RegSet::of(registers.abi.args)).iter() {
            let (want, have) = (expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            self.check(Clause::P10, registers.abi.name(reg), want, have, pc);
        }
        for &i in registers.machine.vector_args.iter().take(live.vectors.into()) {
            self.check_vector(Clause::P10, i.into(), expect, &now, pc, registers);
        }
        let return_address = if registers.abi.link.is_none() { 8 } else { 0 };
        let stack = |sp: u64| words(uc, sp.wrapping_add(return_address), 8 * usize::from(live.stack));
        for (want, have) in stack(site_sp).into_iter().zip(stack(registers.sp(uc))) {
            self.check(Clause::P10, "argument on the stack", want, have, pc);
        }
    }

    /// A program, before the function or after it.
    fn program(&mut self, uc: &mut Uc, pc: u64, programs: &Programs) {
        let (Some(registers), Some(site)) = (self.registers, self.site) else { return };
        self.check_call(uc, registers, pc);
        let t = self.trampoline();
        let Some(contract) = self.contracts.get(t).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let outermost = self.pending.is_empty() && self.activations.len() <= 1;
        let (calls, words, resume, results) = match (&mut self.exiting, self.activations.last_mut()) {
            (Some(e), _) => {
                e.calls += 1;
                let results = registers.abi.rets.iter().filter(|r| programs.result.regs.contains(**r));
                (e.calls, e.words.clone(), e.resume, results.map(|r| e.expect.gpr[r.0 as usize]).collect())
            }
            (None, Some(a)) => {
                a.calls += 1;
                (a.calls, shown(uc, registers, programs, &a.expect, a.sp), a.resume, vec![0])
            }
            (None, None) => return,
        };
        // Those before the function in the order of their kinds, then those after it.
        let of = |attach| contract.programs.iter().enumerate().filter(move |(_, p)| p.attach == attach);
        let mut due: Box<dyn Iterator<Item = _>> = match self.exiting {
            Some(_) => Box::new(of(Attach::Fexit)),
            None => Box::new(of(Attach::Fentry).chain(of(Attach::FmodRet))),
        };
        let Some((n, program)) = due.nth(calls as usize - 1) else {
            self.check(Clause::P10, "programs that are called here", calls - 1, calls, pc);
            return;
        };
        let expected = self.callees.get(t).and_then(|all| all.get(n)).copied().unwrap_or(0);
        self.check(Clause::P10, "program that it calls", expected, pc, pc);
        let [context, cookie] = [0, 1].map(|i| registers.get(uc, registers.abi.args[i]));
        self.check(Clause::P10, "cookie", program.cookie as u64, word(uc, cookie), pc);
        self.check_written(cookie, "cookie", pc);
        let above = |n: i64| context.wrapping_add_signed(8 * n);
        self.check(Clause::P10, "context[-1]: number of words", words.len() as u64, word(uc, above(-1)), pc);
        if programs.ip_arg {
            let ip = resume.wrapping_sub(site.ip_offset as u64);
            self.check(Clause::P10, "context[-2]: ip", ip, word(uc, above(-2)), pc);
        }
        for (n, want) in (0..).zip(&words) {
            self.check(Clause::P10, "word of the context", *want, word(uc, above(n)), pc);
        }
        let result = words.len() as i64;
        // Before the function there is a result only for those who may decide it.
        if program.attach != Attach::Fentry {
            for (n, want) in (result..).zip(&results) {
                self.check(Clause::P10, "result in the context", *want, word(uc, above(n)), pc);
            }
        }
        self.poison(uc, registers, 20 * u64::from(self.exiting.is_some()) + calls);
        let case = Arc::clone(&self.case);
        // Its own to use while it runs.
        let mut stored = vec![(cookie, u64::MAX)];
        if case.situation.args
            && outermost
            && calls == 1
            && self.exiting.is_none()
            && let Some(a) = self.activations.last_mut()
        {
            for (reg, value) in case.rewritten(&contract, registers.abi) {
                let n = programs.words.iter().position(|w| *w == Some(Word::Reg(reg)));
                stored.extend(n.map(|n| (above(n as i64), value)));
                a.expect.gpr[reg.0 as usize] = value;
            }
        }
        if program.attach == Attach::FmodRet {
            let last = contract.programs.iter().rposition(|p| p.attach == Attach::FmodRet) == Some(n);
            let skips = outermost && (case.situation.skip || (case.situation.skip_last && last));
            let value = case.new_results.first().map_or(0, |(_, value)| *value);
            registers.set(uc, registers.abi.rets[0], if skips { value } else { 0 });
            if skips && let Some(mut a) = self.activations.pop() {
                a.expect.gpr[registers.abi.rets[0].0 as usize] = value;
                let sp = a.sp.wrapping_add(registers.abi.return_bytes());
                let Activation { expect, parent, resume, .. } = a;
                self.exiting = Some(Exiting { expect, parent, resume, sp, calls: 0, words });
            }
        } else if case.situation.results
            && outermost
            && calls == 1
            && let Some(e) = &mut self.exiting
        {
            for (n, &(reg, value)) in (result..).zip(&case.new_results) {
                stored.push((above(n), value));
                e.expect.gpr[reg.0 as usize] = value;
            }
        }
        for (at, value) in stored {
            if !put_word(uc, at, value) {
                self.fail(Clause::P11, "store to the context", None, (value, at), 0);
            }
        }
    }

    /// T5.
    fn exit_handler(&mut self, uc: &mut Uc, pc: u64) {
        let Some(registers) = self.registers else { return };
        self.check_call(uc, registers, pc);
        let Some(contract) = self.contracts.get(self.trampoline()).cloned() else { return };
        self.check_records(uc, registers, &contract, pc);
        let Some(e) = &mut self.exiting else { return };
        e.calls += 1;
        let (parent, exit_sp, at) = (e.parent, e.sp, e.expect.clone());
        let fregs = registers.get(uc, registers.abi.args[0]);
        let around = contract.kind.jumped_to();
        if around && contract.frame.c_struct.is_empty() {
            for (&arg, &ret) in registers.abi.args.iter().zip(registers.abi.rets) {
                let place = Joined("result in ", registers.abi.name(ret), ", for the exit handler");
                self.check(Clause::P10, place, at.gpr[ret.0 as usize], registers.get(uc, arg), pc);
            }
        }
        // What was there before the function went with the frame.
        let told = |f: &&codegen::frame::Field| {
            !f.member.is_empty() && (!contract.kind.is_shadow() || matches!(f.content, Content::Result(_)))
        };
        for field in contract.frame.fields.iter().filter(told) {
            let place = fregs.wrapping_add(field.offset as u64);
            let want = match field.content {
                // A paired trampoline still has there what it saved before.
                Content::Reg(_) if around => None,
                Content::Reg(r) | Content::Result(r) => Some(at.gpr[r.0 as usize]),
                Content::ExitSp => Some(exit_sp),
                Content::Flags => Some(at.flags),
                Content::Const(n) => Some(n as u64),
                Content::Unfilled => continue,
                Content::Vector(_)
                | Content::VectorResult(_)
                | Content::StackWord(_)
                | Content::Cookie
                | Content::Ip => continue,
                // No two kernels agree on what these are after the function's end; that something is there is asked.
                Content::Pc | Content::ParentIp | Content::SiteSp | Content::Direct => None,
            };
            if let Some(want) = want {
                self.check(Clause::P10, Joined("fregs->", field.member, ""), want, word(uc, place), pc);
            }
            self.check_written(place, field.member, pc);
        }
        let stores = |content: Content| {
            let found = contract.frame.fields.iter().find(|f| f.content == content && f.back == Back::Written);
            found.map(|f| fregs.wrapping_add(f.offset as u64))
        };
        let way = stores(Content::ParentIp).filter(|_| !around);
        let mut stored: Vec<(u64, u64)> = way.map(|at| (at, parent)).into_iter().collect();
        let case = Arc::clone(&self.case);
        if case.situation.results
            && self.hooked.is_empty()
            && self.pending.is_empty()
            && let Some(e) = &mut self.exiting
        {
            for &(reg, value) in &case.new_results {
                let place = stores(Content::Result(reg)).or_else(|| stores(Content::Reg(reg)));
                stored.extend(place.map(|at| (at, value)));
                e.expect.gpr[reg.0 as usize] = value;
            }
            if let (Some(at), Some((_, mask))) = (stores(Content::Flags), registers.machine.flags) {
                e.expect.flags ^= mask;
                stored.push((at, e.expect.flags));
            }
        }
        for (at, value) in stored {
            if !put_word(uc, at, value) {
                self.fail(Clause::P11, "store through fregs", None, (value, at), 0);
            }
        }
        self.poison(uc, registers, 90 + (self.hooked.len() + self.pending.len()) as u64);
        // Where the way back is not a word of the frame, the handler returns it.
        if contract.kind.is_shadow() || (!around && stores(Content::ParentIp).is_none()) {
            registers.set(uc, registers.abi.rets[0], parent);
        }
    }

    /// T6 after a hooked return.
    fn parent_resumed(&mut self, uc: &mut Uc, pc: u64) {
        let Some(registers) = self.registers else { return };
        self.check_returns(pc);
        let Some(e) = self.exiting.take() else { return };
        self.check(Clause::P9, "pc in the parent", e.parent, pc, pc);
        let contract = self.contracts.get(self.trampoline());
        let retired = self.case.situation.retired;
        let after = contract
            .filter(|_| !retired)
            .map_or(0, |c| c.programs.iter().filter(|p| p.attach == Attach::Fexit).count() as u64);
        let wanted = if let Some(Kind::Programs(_)) = contract.map(|c| c.kind) { after } else { 1 };
        self.check(Clause::P10, "calls after the function", wanted, e.calls, pc);
        self.check(Clause::P7, "sp", e.sp, registers.sp(uc), pc);
        if let Some(link) = registers.abi.link {
            self.check(Clause::P9, "link register in the parent", e.parent, registers.get(uc, link), pc);
        }
        let now = registers.snapshot(uc);
        let t = self.trampoline();
        let rets = RegSet::of(registers.abi.exit_rets);
        let promised = self.contracts.get(t).map(|c| (c.kept, c.flags_kept));
        let (mut kept, flags_kept) = promised.unwrap_or((RegSet::EMPTY, false));
        let kind = self.kind(t);
        let programs = if let Some(Kind::Programs(programs)) = kind { Some(programs) } else { None };
        if self.calls_body() {
            let results = programs.map_or(RegSet::of(registers.abi.rets), |p| p.result.regs);
            kept = registers.abi.callee_saved.union(registers.abi.platform).union(results);
        }
        let all = registers.abi.callee_saved.union(registers.abi.platform).union(registers.abi.caller_saved);
        for reg in all.iter() {
            let (want, have) = (e.expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            // What a paired trampoline keeps besides, it keeps until the function begins.
            let told = kept.contains(reg) || !self.calls_body();
            let fates = self.fates.get_mut(t).filter(|_| told);
            if let Some(fates) = fates {
                let fate = &mut fates[reg.0 as usize];
                if want == have { fate.0 += 1 } else { fate.1 += 1 }
            }
            if !kept.contains(reg) {
                continue;
            }
            let clause = if rets.contains(reg) { Clause::P3 } else { Clause::P5 };
            self.checks[t][clause as usize] += 1;
            if want != have {
                self.fail(clause, registers.abi.name(reg), Some(reg), (want, have), pc);
            }
        }
        let case = Arc::clone(&self.case);
        for &(reg, _) in &case.new_results {
            let (want, have) = (e.expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            self.check(Clause::P11, Joined("result in ", registers.abi.name(reg), ""), want, have, pc);
        }
        let (carriers, results) = (registers.machine.vector_rets, programs.map(|p| p.result));
        self.compare_state(&e.expect, &now, flags_kept, Clause::P3, carriers, results, pc, registers);
        self.current = None;
        self.frame_top = 0;
    }

    /// The run reached the exit page.
    pub fn finished(&mut self, uc: &mut Uc) {
        if self.enabled && self.current.is_some() {
            let by = self.taken.take();
            self.arrived(uc, EXIT, by, (self.current_region, ELSEWHERE));
            self.resumed(uc, EXIT);
        }
        let (activations, hooked) = (self.activations.len() as u64, (self.hooked.len() + self.pending.len()) as u64);
        if self.enabled {
            self.check(Clause::P9, "sites entered and not left", 0, activations, EXIT);
            self.check(Clause::P9, "returns of which no trampoline was told", 0, hooked, EXIT);
        }
    }
}

/// The arguments of a function, as its programs are shown them.
fn shown(uc: &Uc, registers: Registers, programs: &Programs, at: &Snapshot, site_sp: u64) -> Vec<u64> {
    let stack = site_sp.wrapping_add(registers.abi.return_bytes());
    let word = |w: &Word| match *w {
        Word::Reg(reg) => at.gpr[reg.0 as usize],
        Word::Stack(n) => word(uc, stack.wrapping_add(8 * u64::from(n))),
    };
    programs.words.iter().flatten().map(word).collect()
}
