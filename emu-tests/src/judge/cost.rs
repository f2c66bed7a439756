//! What a trampoline spends, counted while it runs: for those that others wrote, whose listings are not known.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use codegen::arch::machine::Branch;
use codegen::arch::patch::SiteState;
use codegen::words::error::{Error, Result};

use crate::engine::cpu::{EXIT, STACK_SIZE, STACK_TOP};
use crate::engine::disasm::decode;
use crate::engine::flow::{ReturnStack, Taken};
use crate::engine::interface::{Access, Accesses, EVERYWHERE};
use crate::engine::registers::Registers;
use crate::judge::cases::cases;
use crate::judge::checks::compare::{enabled, reference};
use crate::judge::fixture::{Setup, fixtures, functions};
use crate::judge::rig::Rig;
use crate::judge::suite::Suite;
use crate::judge::tally::Tally;
use crate::judge::trace::Uc;
use crate::run::case::Case;
use crate::run::filter::Filter;
use crate::run::situation::Situation;

/// One way through a trampoline. What it calls is not counted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Spent {
    /// The situation.
    pub situation: Situation,
    /// Instructions executed.
    pub executed: u32,
    /// 8-byte slots read, including a return's pop.
    pub loads: u32,
    /// 8-byte slots written, including a call's push.
    pub stores: u32,
    /// Most bytes of stack below SP at its entry.
    pub stack: u32,
    /// Returns that went elsewhere than the return-address stack said, from the call of the traced function until it
    /// is back at its parent.
    pub mispredicted: u32,
    /// What the traced call leaves on the return-address stack; below zero, what it took from its callers.
    pub imbalance: i32,
    /// It came back to the parent. Otherwise the counts are of what ran until the engine stopped.
    pub ended: bool,
}

/// The return-address stack during one traced call, with every call and return in it.
#[derive(Default)]
struct Returns {
    stack: ReturnStack,
    /// The branch that was executed last.
    taken: Option<Taken>,
    /// What instructions are, by their bytes.
    known: HashMap<Vec<u8>, Option<Branch>>,
}

impl Returns {
    /// The parent has called the traced function.
    fn begin(&mut self) {
        self.stack.begin(Some(EXIT));
        self.taken = None;
    }

    fn arrived(&mut self, pc: u64) {
        if let Some(taken) = self.taken.take() {
            self.stack.step(pc, taken);
        }
    }

    /// Returns that went elsewhere than predicted. Those that found the stack empty had the callers' predictions.
    fn mispredicted(&self) -> u32 {
        (self.stack.mispredicted() + self.stack.unpaired()) as u32
    }

    /// Calls that are left, without the callers' that are gone.
    fn imbalance(&self) -> i32 {
        self.stack.unreturned() as i32 - self.stack.unpaired() as i32
    }

    fn executed(&mut self, registers: Registers, uc: &Uc, pc: u64, size: usize) {
        /// Of any architecture's instructions; the engine gives more where it knows none.
        const LONGEST: usize = 16;
        self.arrived(pc);
        if size > LONGEST {
            return;
        }
        let mut bytes = vec![0; size];
        if !uc.load(pc, &mut bytes) {
            return;
        }
        let branch = *self.known.entry(bytes).or_insert_with_key(|bytes| {
            let decoded = decode(registers.machine, bytes, pc).unwrap_or_default();
            decoded.first().and_then(|insn| insn.branch)
        });
        self.taken = branch.map(|branch| Taken { branch, next: pc + size as u64 });
    }
}

/// What happened so far.
#[derive(Clone, Copy, Default)]
struct Count {
    inside: bool,
    executed: u32,
    loads: u32,
    stores: u32,
    entry: u64,
    lowest: u64,
}

/// The bytes of a trampoline of the suite, and what it spends in each situation that it can be in.
///
/// # Errors
/// An unknown trampoline, or an engine that does not start.
pub fn spent(suite: &Suite, trampoline: &str) -> Result<(u64, Vec<Spent>)> {
    let functions = functions([suite])?;
    let names = suite.contracts.iter().map(|c| c.name.as_str());
    let this = suite.contracts.iter().position(|c| c.name == trampoline);
    let this = this.ok_or_else(|| Error::unknown("trampoline", trampoline, names))?;
    let contract = &suite.contracts[this];
    // A return is hooked by an entry trampoline.
    let attach = match contract.kind.returned_to() {
        true => suite.contracts.iter().position(|c| c.kind.calls_back()).or(Some(this)),
        false => Some(this).filter(|_| contract.kind.attaches()),
    };
    let fixture = fixtures(suite, &Filter::default()).next();
    let (Some(attach), Some(fixture)) = (attach, fixture) else {
        return Ok((0, Vec::new()));
    };
    let mut rig = Rig::new(Setup { suite, fixture, functions, seed: 1 }, true)?;
    let cases = cases(&rig, attach, &Filter::default());
    let count = Rc::new(Cell::new(Count::default()));
    let returns = Rc::new(RefCell::new(Returns::default()));
    count_into(&mut rig, this, &count, &returns)?;
    let mut all: Vec<Spent> = Vec::new();
    for case in &cases {
        let situation = case.situation;
        let concerns = !contract.kind.returned_to() || case.situation.exit() == Some(contract.kind);
        if !concerns
            || case.slot == 0 && all.iter().any(|s| s.situation == situation)
            || case.function != cases[0].function
        {
            continue;
        }
        let case = &Arc::new(Case { closely: false, wide: false, ..Case::clone(case) });
        rig.patch_all(SiteState::Disabled, None)?;
        let expected = reference(&mut rig, case)?;
        let only = contract.kind.for_one_function().then_some(case.function);
        rig.aim(attach, case.function)?;
        rig.attach(attach, only)?;
        count.set(Count::default());
        returns.borrow_mut().begin();
        let ended = enabled(&mut rig, case, &expected, &mut Tally::new(suite))?;
        if !ended {
            rig.reload()?;
        }
        let mut returns = returns.borrow_mut();
        returns.arrived(EXIT);
        let Count { executed, loads, stores, entry, lowest, .. } = count.get();
        let spent = Spent {
            situation,
            executed,
            loads,
            stores,
            stack: entry.saturating_sub(lowest) as u32,
            mispredicted: returns.mispredicted(),
            imbalance: returns.imbalance(),
            ended,
        };
        // Where the first record begins says nothing but which of them have the time.
        if !all.contains(&spent) {
            all.push(spent);
        }
    }
    Ok((rig.ranges[this].1, all))
}

/// Count what one trampoline does from now on, and how calls and returns fit.
fn count_into(rig: &mut Rig, trampoline: usize, count: &Rc<Cell<Count>>, returns: &Rc<RefCell<Returns>>) -> Result<()> {
    let (start, size) = rig.ranges[trampoline];
    let registers = rig.registers;
    let here = Rc::clone(count);
    let returns = Rc::clone(returns);
    let executes = move |uc: &mut Uc, pc, bytes| {
        returns.borrow_mut().executed(registers, uc, pc, bytes);
        let mut c = here.get();
        c.inside = pc.wrapping_sub(start) < size;
        if c.inside {
            let sp = registers.sp(uc);
            if c.executed == 0 {
                (c.entry, c.lowest) = (sp, sp);
            }
            c.executed += 1;
            c.lowest = c.lowest.min(sp);
        }
        here.set(c);
    };
    rig.uc.on_instructions(EVERYWHERE, Box::new(executes))?;
    let stack = STACK_TOP - STACK_SIZE..STACK_TOP;
    let here = Rc::clone(count);
    let accesses = move |_: &mut Uc, access: Access| {
        let mut c = here.get();
        if c.inside {
            let words = access.bytes.div_ceil(8) as u32;
            *if access.is_write { &mut c.stores } else { &mut c.loads } += words;
            if access.is_write && stack.contains(&access.at) {
                c.lowest = c.lowest.min(access.at);
            }
        }
        here.set(c);
    };
    rig.uc.on_accesses(Accesses::All, EVERYWHERE, Box::new(accesses)).map(drop)
}
