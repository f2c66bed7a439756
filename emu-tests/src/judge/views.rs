//! Looks into trampolines while they run: which instruction leaves what in which register and which word of the stack.

use std::collections::BTreeMap;
use std::sync::Arc;

use codegen::words::abi::{Reg, RegSet};
use codegen::words::error::Result;

use crate::engine::cpu::{EXIT, STACK_SIZE, STACK_TOP};
use crate::engine::disasm::Decoded;
use crate::engine::registers::Snapshot;
use crate::judge::cases::cases;
use crate::judge::explain::recorded;
use crate::judge::fixture::{Setup, fixtures, functions};
use crate::judge::rig::Rig;
use crate::judge::suite::Suite;
use crate::judge::trace::{Culprit, Finding, Step};
use crate::report::Failure;
use crate::report::view::{Line, Path, Track, View, Word};
use crate::run::case::{Case, Handler};
use crate::run::filter::Filter;

/// Runs of one trampoline without failures, and with.
const PATHS: usize = 8;
const FAILING: usize = 3;
/// Numbers below it are no addresses and no values that a run gives to registers: equal ones say nothing.
const SMALL: u64 = 0x1000;

/// Look into trampolines of a suite, given by number, each with failures of it whose runs are to be shown.
///
/// # Errors
/// Objects that do not link with the functions, or an engine that does not start.
pub fn views(suite: &Suite, wanted: &[(usize, Vec<&Failure>)], filter: &Filter, seed: u64) -> Result<Vec<View>> {
    let functions = functions([suite])?;
    let mut all: Vec<View> = Vec::new();
    for (nth, fixture) in fixtures(suite, filter).enumerate() {
        let missing = |(_, failures): &(usize, Vec<&Failure>)| !failures.is_empty();
        if nth > 0 && !wanted.iter().any(missing) {
            break;
        }
        let mut rig = Rig::new(Setup { suite, fixture, functions, seed }, true)?;
        for (i, (trampoline, failures)) in wanted.iter().enumerate() {
            if nth == 0 {
                let view = listed(&rig, *trampoline)?;
                all.push(view);
            }
            let paths = paths(&mut rig, *trampoline, failures, nth == 0)?;
            let Some(view) = all.get_mut(i) else { continue };
            for path in paths {
                let failing = view.paths.iter().filter(|p| !p.failures.is_empty()).count();
                if path.failures.is_empty() || failing < FAILING {
                    view.paths.push(path);
                }
            }
        }
    }
    // What fails is what one looks for.
    all.iter_mut().for_each(|view| view.paths.sort_by_key(|p| p.failures.is_empty()));
    Ok(all)
}

/// The instructions of a trampoline and of what it jumps to.
fn code(rig: &Rig, trampoline: usize) -> Result<Vec<Decoded>> {
    Ok(rig.decode(trampoline)?.into_iter().chain(rig.tails[trampoline].iter().cloned()).collect())
}

/// Without any run.
fn listed(rig: &Rig, trampoline: usize) -> Result<View> {
    let contract = &rig.suite.contracts[trampoline];
    let (start, size) = rig.ranges[trampoline];
    let line = |d: Decoded| {
        let offset = d.at.wrapping_sub(start);
        let bytes = rig.image.bytes(d.at, d.size.into()).unwrap_or_default();
        Line {
            at: if offset < size { format!("{offset:x}") } else { rig.symbolic(d.at) },
            bytes: bytes.iter().map(|b| format!("{b:02x}")).collect(),
            text: d.text.to_string(),
            note: rig.suite.notes.get(&(contract.name.clone(), offset)).cloned().unwrap_or_default(),
            filler: d.filler,
        }
    };
    Ok(View {
        arch: contract.facts.name.to_owned(),
        trampoline: contract.name.clone(),
        options: rig.suite.options.clone(),
        listing: code(rig, trampoline)?.into_iter().map(line).collect(),
        paths: Vec::new(),
    })
}

/// Runs of a trampoline: those of the failures, and, if it is to be `whole`, one for each sequence of its instructions.
fn paths(rig: &mut Rig, trampoline: usize, failures: &[&Failure], whole: bool) -> Result<Vec<Path>> {
    let kind = rig.suite.contracts[trampoline].kind;
    // A return is hooked by an entry trampoline.
    let attach = match kind.returned_to() {
        true => rig.suite.contracts.iter().position(|c| c.kind.calls_back()).or(Some(trampoline)),
        false => Some(trampoline).filter(|_| kind.attaches() || kind.is_called()),
    };
    let Some(attach) = attach else { return Ok(Vec::new()) };
    let numbers: BTreeMap<u64, usize> = code(rig, trampoline)?.iter().enumerate().map(|(i, d)| (d.at, i)).collect();
    rig.lay_out(attach)?;
    let cases = cases(rig, attach, &Filter::default());
    let mut paths: Vec<Path> = Vec::new();
    let mut situations = Vec::new();
    for case in &cases {
        let replay = rig.replay(case, trampoline).to_string();
        let fails = failures.iter().any(|f| f.replay == replay);
        let concerns = !kind.returned_to() || case.situation.exit() == Some(kind);
        let plain = case.function == cases[0].function && case.handler == Handler::General;
        let new = whole && concerns && plain && !situations.contains(&case.situation);
        if !fails && (!new || paths.len() >= PATHS) {
            continue;
        }
        situations.push(case.situation);
        let quiet = Arc::new(Case { closely: false, ..Case::clone(case) });
        let path = run(rig, trampoline, &quiet, &numbers, replay)?;
        let known = paths.iter().any(|p| p.steps == path.steps && p.failures == path.failures);
        if !path.steps.is_empty() && !known {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// The steps of one activation of a trampoline, and what came behind each.
struct Activation<'s> {
    /// At its instructions, by their numbers.
    steps: Vec<(usize, &'s Step)>,
    /// Behind each: at the next instruction of it, or where it went.
    after: Vec<&'s Step>,
    /// By number of the step: where it called something, the callee's first instruction.
    called: BTreeMap<usize, &'s Step>,
}

impl Activation<'_> {
    fn of<'s>(all: &'s [Step], start: u64, numbers: &BTreeMap<u64, usize>) -> Activation<'s> {
        let number = |step: &Step| numbers.get(&step.pc).copied().filter(|_| step.inside);
        let first = all.iter().position(|s| s.pc == start).or_else(|| all.iter().position(|s| number(s).is_some()));
        let mut activation = Activation { steps: Vec::new(), after: Vec::new(), called: BTreeMap::new() };
        let mut behind: Option<usize> = None;
        for at in first.unwrap_or(all.len())..all.len() {
            let Some(n) = number(&all[at]) else { continue };
            if let Some(last) = behind {
                if all[at].pc == start {
                    break;
                }
                activation.after.push(&all[at]);
                if last + 1 < at {
                    activation.called.insert(activation.steps.len() - 1, &all[last + 1]);
                }
            }
            activation.steps.push((n, &all[at]));
            behind = Some(at);
        }
        let last = behind.and_then(|last| all.get(last + 1).or(all.get(last)));
        activation.after.extend(last);
        activation
    }
}

/// A case once more, seen from inside.
fn run(
    rig: &mut Rig,
    trampoline: usize,
    case: &Arc<Case>,
    numbers: &BTreeMap<u64, usize>,
    replay: String,
) -> Result<Path> {
    let start = rig.ranges[trampoline].0;
    if let Some(ways) = rig.trace().checks.promised.get_mut(trampoline) {
        *ways = Default::default();
    }
    let (mut all, findings) = recorded(rig, case)?;
    if all.last().is_some_and(|s| s.inside) {
        // Where nothing is looked at any more: at the end of the run.
        let end = Step { pc: EXIT, inside: false, registers: rig.registers.snapshot(&*rig.uc), stack: Vec::new() };
        all.push(end);
    }
    let ways = rig.trace().checks.promised.get(trampoline).copied().unwrap_or_default();
    let promised = ways.into_iter().fold(RegSet::EMPTY, RegSet::union);
    let ours = |f: &&Finding| f.trampoline == trampoline && rig.known(f).is_none();
    let findings: Vec<&Finding> = findings.iter().filter(ours).collect();
    let mut failures: Vec<String> = findings.iter().map(|f| format!("{} {}", f.clause, f.place.id())).collect();
    failures.dedup();
    let activation = Activation::of(&all, start, numbers);
    let sp = rig.registers.abi.sp;
    let entry = activation.steps.first().map(|(_, step)| &step.registers);
    let lowest = activation.steps.iter().map(|(_, s)| s.registers[sp]).min().unwrap_or(0);
    let lost = |reg: Reg| findings.iter().any(|f| f.by == Culprit::Register(reg));
    Ok(Path {
        situation: case.situation.to_string(),
        function: rig.functions[case.function].name.clone(),
        failures,
        steps: activation.steps.iter().map(|(n, _)| *n).collect(),
        calls: activation.called.keys().copied().collect(),
        stack: entry.map_or(0, |entry| entry[sp].saturating_sub(lowest)),
        registers: tracks(rig, &activation, numbers, promised, lost),
        frame: entry.map_or(Vec::new(), |entry| frame(rig, &activation, numbers, (case, entry))),
        replay,
    })
}

/// The registers along the way.
fn tracks(
    rig: &Rig,
    activation: &Activation,
    numbers: &BTreeMap<u64, usize>,
    promised: RegSet,
    lost: impl Fn(Reg) -> bool,
) -> Vec<Track> {
    let abi = rig.registers.abi;
    let Some((_, first)) = activation.steps.first() else { return Vec::new() };
    let all = abi.callee_saved.union(abi.caller_saved).union(abi.platform);
    let track = |reg: Reg| {
        let mut own = first.registers[reg];
        let (mut states, mut differed, mut given) = (String::new(), false, Vec::new());
        for (i, after) in activation.after.iter().enumerate() {
            if activation.called.contains_key(&i) {
                let stored = after.stack.iter().filter(|w| !numbers.contains_key(&w.writer));
                given.extend(stored.map(|w| w.value).filter(|value| *value >= SMALL));
            }
            let now = after.registers[reg];
            // The callee's thread has come to another CPU: what that one has there is the register's own from here on.
            if abi.platform.contains(reg) && activation.called.contains_key(&i) && !states.ends_with(['x', 'c', 'h']) {
                own = now;
            }
            let saved = || after.stack.iter().any(|word| word.value == own);
            let moved = || all.iter().any(|other| other != reg && after.registers[other] == own);
            states.push(match now == own {
                true if differed => 'r',
                true if saved() => 's',
                true => 'l',
                false if given.contains(&now) => 'h',
                false if saved() || moved() => 'c',
                false => 'x',
            });
            differed |= now != own;
        }
        Track { register: abi.name(reg).to_owned(), promised: promised.contains(reg), lost: lost(reg), states }
    };
    all.iter().map(track).collect()
}

/// The stack at the last call, or where SP was lowest.
fn frame(
    rig: &Rig,
    activation: &Activation,
    numbers: &BTreeMap<u64, usize>,
    (case, entry): (&Case, &Snapshot),
) -> Vec<Word> {
    let abi = rig.registers.abi;
    let deepest = || activation.steps.iter().map(|(_, s)| *s).min_by_key(|s| s.registers[abi.sp]);
    let Some(moment) = activation.called.values().next_back().copied().or_else(deepest) else { return Vec::new() };
    let (bottom, base) = (moment.registers[abi.sp], entry[abi.sp]);
    // What calls pushed stands above.
    let top = base.max(case.initial.sp).wrapping_add(abi.return_bytes());
    if bottom >= top || top - bottom > STACK_SIZE {
        return Vec::new();
    }
    let word = |at: u64| {
        let offset = at.wrapping_sub(base) as i64;
        let Some(known) = moment.stack.iter().find(|w| w.at == at) else {
            let holds = if at >= base { named(rig, rig.word(at), entry) } else { String::new() };
            return Word { offset, holds, writer: None, loaded: Vec::new() };
        };
        let writer = numbers.get(&known.writer).copied();
        let mut holds = named(rig, known.value, entry);
        if holds.starts_with("0x") {
            // A value that was made on the way: it is called by the register that it came from.
            let before = activation.steps.iter().rev().find(|(_, s)| s.pc == known.writer);
            let carried = before.and_then(|(_, s)| abi_register(rig, &s.registers, known.value));
            holds = carried.map_or(holds, |name| format!("{name} as it was then"));
        }
        let loads = activation.steps.iter().zip(&activation.after).enumerate();
        let loads = loads.filter(|(i, _)| !activation.called.contains_key(i) && known.value >= SMALL);
        let loaded = loads.flat_map(|(_, ((n, before), after))| {
            let reg = all_registers(rig)
                .iter()
                .find(|reg| before.registers[*reg] != known.value && after.registers[*reg] == known.value);
            let still = after.stack.iter().chain(&before.stack).any(|w| w.at == at && w.value == known.value);
            reg.filter(|_| still).map(|reg| (*n, abi.name(reg).to_owned()))
        });
        Word { offset, holds, writer, loaded: loaded.collect() }
    };
    let words = (top - bottom) / 8;
    (0..words).rev().map(|i| word(bottom + 8 * i)).collect()
}

fn all_registers(rig: &Rig) -> RegSet {
    let abi = rig.registers.abi;
    abi.callee_saved.union(abi.caller_saved).union(abi.platform)
}

/// The register that has this value.
fn abi_register(rig: &Rig, registers: &Snapshot, value: u64) -> Option<&'static str> {
    let found = all_registers(rig).iter().find(|reg| registers[*reg] == value && value >= SMALL);
    found.map(|reg| rig.registers.abi.name(reg))
}

/// What a value is: a register at the trampoline's entry, a place in code, on the stack, or a number.
fn named(rig: &Rig, value: u64, entry: &Snapshot) -> String {
    let (abi, machine) = (rig.registers.abi, rig.registers.machine);
    let halves = |i: usize| entry.vectors[i].chunks(8).any(|half| half == value.to_le_bytes());
    let vector = || (0..machine.vectors.len()).find(|i| value >= SMALL && halves(*i)).map(|i| machine.vectors[i].name);
    let flags = || machine.flags.filter(|(_, mask)| *mask != 0 && value != 0 && value & mask == entry.flags & mask);
    let base = entry[abi.sp];
    if let Some(name) = abi_register(rig, entry, value) {
        return name.to_owned();
    }
    if (STACK_TOP - STACK_SIZE..STACK_TOP).contains(&value) {
        let offset = value.wrapping_sub(base) as i64;
        return if offset == 0 { "sp".to_owned() } else { format!("sp{offset:+}") };
    }
    if value == EXIT || rig.image.segments.iter().any(|s| (s.address..s.address + s.mem_size).contains(&value)) {
        return rig.symbolic(value);
    }
    let flags = flags().filter(|_| value < u64::from(u32::MAX)).map(|(reg, _)| reg.name);
    vector().or(flags).map_or_else(|| format!("{value:#x}"), str::to_owned)
}
