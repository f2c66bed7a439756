//! P17 and P18: the bytes of a patched site, and what a CPU makes of them that is in it while they change.

use std::ops::Range;
use std::sync::Arc;

use codegen::arch::patch::{Poke, SiteState};
use codegen::words::error::Result;
use link::SiteEntry;

use crate::engine::cpu::EXIT;
use crate::engine::disasm::{decode, decode_function};
use crate::engine::interface::Ended;
use crate::judge::checks::compare::agree;
use crate::judge::rig::Rig;
use crate::judge::tally::Tally;
use crate::judge::trace::{At, Finding, Value};
use crate::report::Clause;
use crate::report::place::{Place, SiteBytes, SiteOffset};
use crate::run::case::{Case, Outcome};

/// The bytes of all functions, in their order.
pub(crate) type Code = Vec<Vec<u8>>;

/// How often one run may meet the breakpoint.
const MOST_TRAPS: usize = 100;

/// What a site is switched to.
#[derive(Clone, Copy)]
struct Switch {
    name: &'static str,
    from: SiteState,
    to: SiteState,
}

/// A traced function and its site.
pub(crate) struct Layout {
    site: SiteEntry,
    /// The function.
    body: Range<u64>,
    /// The bytes of it that patching may change.
    window: Range<u64>,
    /// The window ends where an instruction does.
    ends: bool,
    /// Where a branch of the function leads into the window.
    lands: Option<u64>,
}

/// Every function with its site; `None` for those that have none.
pub(crate) fn layouts(rig: &Rig) -> Result<Vec<Option<Layout>>> {
    rig.functions.iter().map(|f| layout(rig, &f.name)).collect()
}

fn layout(rig: &Rig, function: &str) -> Result<Option<Layout>> {
    let Some(symbol) = rig.traced().symbol(function) else { return Ok(None) };
    let Some(site) = rig.traced().sites.iter().find(|s| s.start == symbol.address) else { return Ok(None) };
    let body = symbol.address..symbol.address + symbol.size;
    // Of whatever it goes to, the places of the writes are the same.
    let spot = rig.spot(site);
    let on = SiteState::Enabled { target: spot.toward.unwrap_or(site.ip), op: Some(0), jump: false };
    let writes = rig.suite.writes(spot, on)?;
    // The word for `op` lies before the function.
    let inside = || writes.iter().filter(|w| w.at >= site.start);
    let start = inside().map(|w| w.at).min().unwrap_or(site.ip);
    let window = start..inside().map(|w| w.at + w.bytes.len() as u64).max().unwrap_or(site.ip);
    let code = decode_function(rig.registers.machine, rig.traced(), (body.start, symbol.size))?;
    Ok(Some(Layout {
        site: site.clone(),
        ends: code.iter().any(|i| i.at + u64::from(i.size) == window.end),
        lands: code.iter().filter_map(|i| i.target).find(|t| window.start < *t && *t < window.end),
        body,
        window,
    }))
}

/// The functions as they are in memory.
pub(crate) fn code(rig: &Rig, layouts: &[Option<Layout>]) -> Code {
    let bytes = |layout: &Option<Layout>| {
        let body = layout.as_ref().map_or(0..0, |l| l.body.clone());
        let mut bytes = vec![0; (body.end - body.start) as usize];
        rig.uc.load(body.start, &mut bytes);
        bytes
    };
    layouts.iter().map(bytes).collect()
}

/// P17 and P18 of the trampoline that these cases attached. The functions were as `before`, then as `during`, with the
/// site of function `only` enabled, or those of all.
pub(crate) fn judge_site(
    rig: &mut Rig,
    cases: &[Arc<Case>],
    expected: &[Outcome],
    layouts: &[Option<Layout>],
    [before, during]: [&Code; 2],
    only: Option<usize>,
    tally: &mut Tally,
) -> Result<()> {
    let plain = || cases.iter().zip(expected).filter(|(c, _)| c.is_plain());
    let Some((case, expected)) = plain().next() else { return Ok(()) };
    let after = code(rig, layouts);
    for (function, layout) in layouts.iter().enumerate() {
        if let Some(layout) = layout {
            let bytes = [before, during, &after].map(|code| &code[function][..]);
            // A case of the function itself shows it again.
            let case = plain().find(|(c, _)| c.function == function).map_or(case, |(c, _)| c);
            judge_bytes(case, layout, bytes, only.is_none_or(|only| function == only), tally);
        }
    }
    match layouts.get(case.function) {
        Some(Some(layout)) if case.closely => judge_pokes(rig, case, layout, expected, tally),
        _ => Ok(()),
    }
}

/// P17: what tracing does to a function's bytes; its own site was enabled if it is `traced`.
fn judge_bytes(
    case: &Arc<Case>,
    layout: &Layout,
    [before, during, after]: [&[u8]; 3],
    traced: bool,
    tally: &mut Tally,
) {
    let Layout { site, body, window, ends, lands } = layout;
    let differs = |bytes: &[u8], free: &Range<u64>| {
        let mut pairs = before.iter().zip(bytes).zip(body.clone());
        pairs.find(|((a, b), at)| a != b && !free.contains(at)).map(|(_, at)| at)
    };
    let free = if traced { window } else { &(0..0) };
    let (nowhere, found) = (body.start, |at: Option<u64>| at.unwrap_or(body.start));
    let checks = [
        (SiteBytes::Begins, body.start, body.start.min(window.start)),
        (SiteBytes::Ends, body.end, body.end.max(window.end)),
        (SiteBytes::EndsInstruction, 1, u64::from(*ends)),
        (SiteBytes::Branch, nowhere, found(*lands)),
        (SiteBytes::Outside, nowhere, found(differs(during, free))),
        (SiteBytes::After, nowhere, found(differs(after, &(0..0)))),
    ];
    for (what, expected, found) in checks {
        let place = Place::Site { function: site.function.clone(), what };
        let at = At { clause: Clause::P17, trampoline: case.attach, pc: body.start };
        tally.judged(case, Finding::new(at, place, expected, found));
    }
}

/// P18: switch the site of this case's function on and off; at each step, for a CPU at each instruction of the site.
fn judge_pokes(rig: &mut Rig, case: &Arc<Case>, layout: &Layout, expected: &Outcome, tally: &mut Tally) -> Result<()> {
    let Layout { site, window, .. } = layout;
    let on = rig.on(case.attach);
    rig.prepare(case)?;
    rig.aim(case.attach, case.function)?;
    put(rig, site, on)?;
    rig.load_case(case, &case.initial.registers, false);
    let ended = rig.uc.run(rig.function(&rig.functions[case.function].name), EXIT);
    let traced = rig.collect(case, ended);
    if !std::mem::take(&mut rig.trace().checks.findings).is_empty() {
        // What is wrong without a switch is told by other clauses.
        return put(rig, site, SiteState::Disabled);
    }
    for switch in [
        Switch { name: "switched on", from: SiteState::Disabled, to: on },
        Switch { name: "switched off", from: on, to: SiteState::Disabled },
    ] {
        let steps = rig.suite.pokes(rig.spot(site), switch.to)?;
        for seen in 0..=steps.len() {
            stand(rig, site, switch, &steps, seen)?;
            // Who met a breakpoint is in its handler, not in the site.
            let inside = if trapping(&steps, seen) { vec![window.start] } else { boundaries(rig, window)? };
            for done in seen.max(1)..=steps.len() {
                for &at in &inside {
                    let moment = Moment { site, switch, steps: &steps, seen, done, at };
                    judge_moment(rig, case, [expected, &traced], &moment, tally)?;
                }
            }
        }
    }
    put(rig, site, SiteState::Disabled)
}

/// The addresses of the instructions in `window`.
fn boundaries(rig: &Rig, window: &Range<u64>) -> Result<Vec<u64>> {
    let mut bytes = vec![0; (window.end - window.start) as usize];
    rig.uc.load(window.start, &mut bytes);
    Ok(decode(rig.registers.machine, &bytes, window.start)?.iter().map(|i| i.at).collect())
}

fn put(rig: &mut Rig, site: &SiteEntry, state: SiteState) -> Result<()> {
    let writes = rig.suite.writes(rig.spot(site), state)?;
    rig.uc.write_code(&writes)
}

/// The site after so many of the steps.
fn stand(rig: &mut Rig, site: &SiteEntry, switch: Switch, steps: &[Poke], done: usize) -> Result<()> {
    put(rig, site, switch.from)?;
    let writes: Vec<_> = steps.iter().take(done).map(|s| s.write.clone()).collect();
    rig.uc.write_code(&writes)
}

/// It must mean the one or the other.
fn judge_moment(
    rig: &mut Rig,
    case: &Arc<Case>,
    means: [&Outcome; 2],
    moment: &Moment,
    tally: &mut Tally,
) -> Result<()> {
    let &Moment { site, switch, steps, seen, done, at } = moment;
    stand(rig, site, switch, steps, seen)?;
    rig.load_case(case, &case.initial.registers, false);
    let start = rig.function(&rig.functions[case.function].name);
    // Up to here, as the bytes were.
    let mut ended = if at == start { Ok(()) } else { rig.uc.run(start, at) };
    let arrived = ended.is_ok();
    stand(rig, site, switch, steps, done)?;
    let (mut trapped, mut pc) = (true, at);
    if arrived && trapping(steps, done) {
        trapped = step(rig, at).is_err();
        (ended, pc) = meet_trap(rig, moment)?;
    }
    if arrived && ended.is_ok() {
        ended = rig.uc.run(pc, EXIT);
        // A function that calls itself meets the breakpoint once more each time.
        for _ in 0..MOST_TRAPS {
            let behind = rig.uc.pc().wrapping_sub(at);
            let met = trapping(steps, done) && behind <= rig.registers.machine.trap.len() as u64;
            if ended.is_ok() || !met {
                break;
            }
            (ended, pc) = meet_trap(rig, moment)?;
            if ended.is_ok() {
                ended = rig.uc.run(pc, EXIT);
            }
        }
    }
    let outcome = rig.collect(case, ended);
    let mut findings = std::mem::take(&mut rig.trace().checks.findings);
    if findings.is_empty() {
        for expected in means {
            findings.clear();
            agree(rig, case, expected, &outcome, 1 << case.attach, &mut findings);
            if findings.is_empty() {
                break;
            }
        }
    }
    let wrong = findings.first();
    let ip = SiteOffset(at.wrapping_sub(site.ip) as i64);
    let pair: (Value, Value) = wrong.map_or((true.into(), trapped.into()), |f| (f.expected, f.found));
    let wrong = Box::new(wrong.map_or(Place::Breakpoint, |f| f.place.clone()));
    let place = Place::Cpu { switch: switch.name, done, of: steps.len(), ip, since: seen, wrong };
    let at = At { clause: Clause::P18, trampoline: case.attach, pc: at };
    tally.judged(case, Finding::new(at, place, pair.0, pair.1));
    Ok(())
}

/// One instruction. The engine can count them itself, but forgets all that it has translated when it no longer has to.
fn step(rig: &mut Rig, at: u64) -> Ended {
    rig.trace().step(true);
    let ended = rig.uc.run(at, EXIT);
    rig.trace().step(false);
    ended
}

/// The handler of the breakpoint does what the site will do; where it goes on.
fn meet_trap(rig: &mut Rig, moment: &Moment) -> Result<(Ended, u64)> {
    let &Moment { site, switch, steps, done, at, .. } = moment;
    put(rig, site, switch.to)?;
    let ended = step(rig, at);
    stand(rig, site, switch, steps, done)?;
    Ok((ended, rig.uc.pc()))
}

/// After so many steps, is the site's first instruction a breakpoint?
fn trapping(steps: &[Poke], done: usize) -> bool {
    done.checked_sub(1).and_then(|last| steps.get(last)).is_some_and(|s| s.traps)
}

/// A CPU came to `at` when `seen` steps were done, and goes on when `done` are.
struct Moment<'m> {
    site: &'m SiteEntry,
    switch: Switch,
    steps: &'m [Poke],
    seen: usize,
    done: usize,
    at: u64,
}
