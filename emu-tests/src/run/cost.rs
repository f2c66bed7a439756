//! What a trampoline spends, counted while it runs: for those that others wrote, whose listings are not known.

use std::cell::Cell;
use std::rc::Rc;

use super::*;

/// One way through a trampoline. What it calls is not counted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Spent {
    /// The situation, as `check --situation` names it.
    pub situation: String,
    /// Instructions executed.
    pub executed: u32,
    /// 8-byte slots read, including a return's pop.
    pub loads: u32,
    /// 8-byte slots written, including a call's push.
    pub stores: u32,
    /// Most bytes of stack below SP at its entry.
    pub stack: u32,
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
    let functions = functions()?;
    let names = suite.contracts.iter().map(|c| c.name.as_str());
    let this = suite.contracts.iter().position(|c| c.name == trampoline);
    let this = this.ok_or_else(|| Error::unknown("trampoline", trampoline, names))?;
    let contract = &suite.contracts[this];
    // A return is hooked by an entry trampoline.
    let attach = match contract.kind {
        Kind::Return => suite.contracts.iter().position(|c| matches!(c.kind, Kind::Entry(_))),
        _ => Some(this).filter(|_| contract.kind.attaches()),
    };
    let fixture = fixtures(suite, &Filter::default()).next();
    let (Some(attach), Some(fixture)) = (attach, fixture) else {
        return Ok((0, Vec::new()));
    };
    let mut bench = Bench::with_hooks(suite, fixture, &functions, 1, true)?;
    let cases = bench.cases(attach, &suite.contracts[attach], &Filter::default());
    let count = Rc::new(Cell::new(Count::default()));
    bench.count_into(this, &count)?;
    let mut all: Vec<Spent> = Vec::new();
    for case in &cases {
        let situation = case.situation.name();
        let hooked = case.situation.parent && case.situation.rethook == contract.rethook;
        let concerns = contract.kind != Kind::Return || hooked;
        if !concerns || all.iter().any(|s| s.situation == situation) || case.function != cases[0].function {
            continue;
        }
        let case = &Arc::new(Case { closely: false, ..Case::clone(case) });
        bench.patch_all(SiteState::Disabled, None)?;
        let expected = bench.reference(case)?;
        let only = contract.kind.for_one_function().then_some(case.function);
        bench.aim(attach, case.function)?;
        bench.patch_all(bench.on(attach), only)?;
        count.set(Count::default());
        bench.enabled(case, &expected, &mut Part::new(suite))?;
        let Count { executed, loads, stores, entry, lowest, .. } = count.get();
        all.push(Spent { situation, executed, loads, stores, stack: entry.saturating_sub(lowest) as u32 });
    }
    Ok((bench.ranges[this].1, all))
}

impl Bench<'_> {
    /// Count what one trampoline does from now on.
    fn count_into(&mut self, trampoline: usize, count: &Rc<Cell<Count>>) -> Result<()> {
        let (start, size) = self.ranges[trampoline];
        let registers = self.registers;
        let hook = |e: uc_error| Error::new(format!("emulator: hook: {e:?}"));
        let here = Rc::clone(count);
        self.uc
            .add_code_hook(1, 0, move |uc, pc, _| {
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
            })
            .map_err(hook)?;
        let stack = STACK_TOP - STACK_SIZE..STACK_TOP;
        for (kind, is_store) in [(HookType::MEM_READ, false), (HookType::MEM_WRITE, true)] {
            let (here, stack) = (Rc::clone(count), stack.clone());
            self.uc
                .add_mem_hook(kind, 1, 0, move |_, _, at, bytes, _| {
                    let mut c = here.get();
                    if c.inside {
                        let words = bytes.div_ceil(8) as u32;
                        *if is_store { &mut c.stores } else { &mut c.loads } += words;
                        if is_store && stack.contains(&at) {
                            c.lowest = c.lowest.min(at);
                        }
                    }
                    here.set(c);
                    true
                })
                .map_err(hook)?;
        }
        Ok(())
    }
}
