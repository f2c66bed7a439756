//! What happens while a function runs: the site, the callback, the resumption, each checked where it happens.
//!
//! The boundaries are those of `bug-corpus.md`, section 0: T0 the patched instruction, T1 the callback's first
//! instruction, T3 the resumption, T4 the traced function's return, T5 the exit callback, T6 the parent.

mod boundaries;
mod cells;
mod compare;
mod finding;
mod memory;
mod state;
mod world;

use std::rc::Rc;
use std::sync::Arc;

use codegen::contract::Contract;
use codegen::spec::Kind;

pub(crate) use cells::{
    CALLBACK, Cell, Cells, DIRECT_FUNC, ELSEWHERE, ENTRY, EXIT_HANDLER, FUNCTION, PROGRAM, SITE, TRAMPOLINE,
};
pub(crate) use finding::{Finding, Joined};
pub(crate) use memory::accessed;
use state::{Activation, Exiting, Hooked, Pending};

use crate::case::Case;
use crate::cpu::{EXIT, Registers, STACK_SIZE, Uc};
use crate::flow::{ReturnStack, Taken};
use crate::report::Clause;
use crate::unwind::Table;

/// Instructions after which a run is called a loop.
const BUDGET: u64 = 200_000;

/// Trampolines that can be told apart in one image: one bit each in [`Trace::entered`].
pub(crate) const MOST: usize = u64::BITS as usize;

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
}
