//! One function: its runs, and the claims that come of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use codegen::arch::bare::Guard;
use codegen::arch::facts::Promise;
use codegen::backend::Backend;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use link::STUBS;
use schemars::JsonSchema;
use serde::Serialize;

use super::asked::Asked;
use super::claim::{Claim, Kind, TOGETHER, Tier};
use super::habits::Habits;
use super::look::{Lines, Look, Place, low};
use super::machine::{Called, Callee, End, Machine, Part, Poke, Ran, Subject, parts};
use super::members::{Boundary, Function, Linked};
use super::state::{MASKS, SYSTEMATIC};
use crate::engine::cpu::EXIT;
use crate::engine::disasm::{Decoded, decode_function};
use crate::engine::registers::Registers;
use crate::engine::unwind::Table;
use crate::judge::cells::extent;
use crate::marks::pads::has_pad;

/// Runs that return, of which fewer are too few.
const FEW: usize = 3;
/// Runs that are looked at in each instruction, as they come to new code or lose something.
const LOOKS: usize = 6;
/// And so many at least if it calls: an argument that is a small number does not show that it is saved.
const LEAST: usize = 4;
/// Instructions before and behind the one of a claim that are shown with it.
const AROUND: usize = 3;
/// The most instructions of an end: registers that are restored, SP and the return.
const END: usize = 32;
/// Runs that must be alike before a difference to another is told.
const ALIKE: usize = 8;

/// Where processes and threads begin, which nobody calls.
const BEGINNINGS: [&str; 5] = ["_start", "__start", "_start_c", "__clone", "clone"];
/// What changes control words on purpose (C11, 7.6), behind underscores.
const CONTROLS: [&str; 9] = [
    "feclearexcept",
    "fedisableexcept",
    "feenableexcept",
    "feholdexcept",
    "fesetenv",
    "fesetexceptflag",
    "fesetmode",
    "fesetround",
    "feupdateenv",
];

/// The end of the names of what moves SP for its caller.
const ROOM: &str = "alloca";
/// What sets the thread pointer on purpose.
const THREAD: &str = "__set_thread_area";

/// What came of a function.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Judged {
    /// The object.
    pub member: String,
    /// Its name.
    pub symbol: String,
    /// Why C's convention binds it.
    pub boundary: Boundary,
    /// Bytes of its code.
    pub bytes: u64,
    /// Those that some run executed.
    pub executed: usize,
    /// Runs.
    pub runs: usize,
    /// Those that returned.
    pub returned: usize,
    /// Why nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// What is claimed.
    pub claims: Vec<Claim>,
    /// What it does with registers that C lets it change.
    #[serde(skip)]
    pub(super) habits: Habits,
}

impl Judged {
    /// Before anything is known of it.
    fn of(function: &Function, bytes: u64) -> Judged {
        Judged {
            member: function.member.clone(),
            symbol: function.symbol.name.clone(),
            boundary: function.boundary,
            bytes,
            executed: 0,
            runs: 0,
            returned: 0,
            not_judged: None,
            claims: Vec::new(),
            habits: Habits::default(),
        }
    }
}

/// What of a run must not depend on registers that callees may change.
struct Outcome {
    calls: Vec<Called>,
    end: End,
    memory: u64,
}

/// Runs of a function, and what is collected of them.
struct Judge<'a> {
    subject: &'a Subject<'a>,
    lines: BTreeMap<u64, Decoded>,
    claims: BTreeMap<(Kind, String), Claim>,
    /// Calls of functions that are not in the image: where, and of which.
    outward: BTreeMap<u64, String>,
    /// What callees may change and it depends on, with the run.
    depends: Vec<(Part, u64)>,
    /// Does the object's note say that it goes with a protection?
    promised: &'a dyn Fn(Promise) -> bool,
}

/// Judge a function.
///
/// # Errors
/// No engine can be made.
pub(super) fn judged(
    backend: &'static dyn Backend,
    Linked { image, ends, never, zeros }: &Linked,
    function: &Function,
    asked: &Asked,
) -> Result<Judged> {
    let registers = Registers::of(backend.machine(), &backend.facts().abi)?;
    let (start, size) = (function.symbol.address, extent(image, &function.symbol));
    let stubs = image.sections.iter().find(|s| s.name == STUBS).map_or(0..0, |s| s.address..s.address + s.size);
    let names = image.symbols.iter().filter(|s| stubs.contains(&s.address));
    let elsewhere = Arc::new(names.map(|s| (s.address, s.name.clone())).collect());
    let lines: BTreeMap<u64, Decoded> =
        decode_function(backend.machine(), image, (start, size))?.into_iter().map(|line| (line.at, line)).collect();
    let table = Arc::new(Table::read(image, registers, None, lines.keys().copied())?);
    let never = function.compiled.then_some(never);
    let subject =
        Subject { backend, image, ends, never, zeros, registers, start, size, elsewhere, stubs, engine: asked.engine };
    let mut judged = Judged::of(function, size);
    if let Some(why) = no_function_of_c(&judged.symbol, backend.machine().millicode) {
        judged.not_judged = Some(why.to_owned());
        return Ok(judged);
    }
    let promised =
        |promise| backend.facts().marks.as_ref().is_some_and(|marks| marks.bits(promise) & function.marks != 0);
    let mut judge = Judge {
        subject: &subject,
        lines,
        claims: BTreeMap::new(),
        outward: BTreeMap::new(),
        depends: Vec::new(),
        promised: &promised,
    };
    let Runs { ends, to_look, to_pair } = judge.runs(asked, &mut judged)?;
    if function.boundary == Boundary::Exported && judge.takes_what_c_does_not_give()? {
        judged.not_judged = Some("it takes values in registers in which C gives none".to_owned());
        return Ok(judged);
    }
    let look = Look::new(registers, start..start + size, table, judge.by_what_they_do());
    let mut slow = Machine::new(&subject, Some(look.clone()))?;
    for number in &to_look {
        slow.run(*number, Callee::Hostile)?;
        judge.blame(&mut slow, *number);
    }
    if function.compiled {
        judge.without_strays(&mut slow);
    }
    if slow.look().is_some_and(|look| look.wrong.contains_key(&(start, Place::Cfa))) {
        judged.not_judged = Some("its unwind table says that it is entered otherwise than by a call".to_owned());
        return Ok(judged);
    }
    if let Some(seen) = slow.look().filter(|seen| !seen.dead.is_empty() || !seen.above.is_empty()) {
        confirm(seen, Machine::new(&subject, Some(look.clone()))?)?;
    }
    judge.looked(&mut slow);
    if !to_pair.is_empty() {
        let mut machine = Machine::new(&subject, Some(look))?;
        to_pair.into_iter().try_for_each(|number| judge.pair(&mut machine, number))?;
        judge.depended(machine)?;
    }
    judge.guarded(&mut slow);
    judged.habits = judge.habits(&mut slow);
    judge.without_purpose(function);
    if judged.returned == 0 {
        let most = ends.into_iter().max_by(|(a, n), (b, m)| n.cmp(m).then(b.cmp(a)));
        judged.not_judged = Some(most.map_or_else(|| "no run was asked for".to_owned(), |(why, _)| why));
        // Where it calls, and what the table says of that, was seen all the same.
        judge.claims.retain(|(kind, _), _| matches!(kind, Kind::C2 | Kind::C4 | Kind::C6 | Kind::C11));
    }
    judge.without_followers();
    judge.explain(&mut slow)?;
    judged.claims = judge.claims.into_values().collect();
    Ok(judged)
}

/// Of accesses to what is not the function's, keep those that do not follow from what its callees return.
fn confirm(look: &mut Look, mut other: Machine) -> Result<()> {
    let numbers: BTreeSet<u64> = look.dead.values().chain(look.above.values()).map(|word| word.number).collect();
    for number in numbers {
        other.run(number, Callee::Other)?;
        other.look().into_iter().for_each(|other| look.confirm(number, other));
    }
    Ok(())
}

/// What came of the runs.
struct Runs {
    /// How those ended that did not return, by how many did.
    ends: HashMap<String, usize>,
    /// Those to look at in each instruction.
    to_look: Vec<u64>,
    /// Those to repeat with other callees.
    to_pair: Vec<u64>,
}

/// By its name, why C's convention is not for a function.
fn no_function_of_c(symbol: &str, millicode: &[&str]) -> Option<&'static str> {
    if BEGINNINGS.contains(&symbol) {
        return Some("nobody calls it: a process or a thread begins there");
    }
    let compilers = millicode.iter().any(|begin| symbol.starts_with(begin));
    compilers.then_some("compilers call it in a way of their own")
}

/// What a protection is called, the promise of it, and what it stops.
fn of_guard(guard: Guard) -> (&'static str, Promise, &'static str) {
    match guard {
        Guard::LandingPad => {
            ("landing pad", Promise::Pads, "An indirect branch comes here, and no landing pad is here")
        }
        Guard::ShadowStack => ("shadow stack", Promise::Paired, "It returns to elsewhere than behind its call"),
        Guard::Checked => ("checked return", Promise::Guarded, "The return address is not the one that was pushed"),
        Guard::Signed => ("signature", Promise::Signed, "The return address is not as it was signed"),
    }
}

/// The numbers of the runs.
fn numbers(asked: &Asked) -> Vec<u64> {
    match asked.seed {
        Some(seed) => vec![seed],
        None => (0..asked.runs).chain(SYSTEMATIC..SYSTEMATIC + MASKS).collect(),
    }
}

fn outcome(machine: &mut Machine, number: u64, callee: Callee) -> Result<Outcome> {
    let Ran { calls, end, .. } = machine.run(number, callee)?;
    Ok(Outcome { calls, end, memory: machine.memory() })
}

impl Subject<'_> {
    /// An instruction, with the name of what it goes to.
    fn shown(&self, line: &Decoded) -> String {
        let own = |to: u64| (to.wrapping_sub(self.start) < self.size).then(|| format!("+{:#x}", to - self.start));
        let name = line.target.and_then(|to| self.elsewhere.get(&to).cloned().or_else(|| own(to)));
        match (name, line.text.rfind([' ', ',', '#'])) {
            (Some(name), Some(end)) => format!("{}{name}", line.text[..=end].trim_end_matches('#')),
            _ => line.text.to_string(),
        }
    }
}

impl Judge<'_> {
    fn by_what_they_do(&self) -> Lines {
        let all = || self.lines.values();
        let which = |does: &dyn Fn(&Decoded) -> bool| all().filter(|line| does(line)).map(|line| line.at).collect();
        Lines {
            next: all().map(|line| (line.at, line.at + u64::from(line.size))).collect(),
            calls: which(&Decoded::is_call),
            returns: which(&|line| line.branch.is_some_and(|branch| branch.pops)),
            // A call comes back from a function of others without having been seen there.
            indirect: which(&|line| line.branch.is_some_and(|branch| branch.indirect.is_some() && !branch.pushes)),
        }
    }

    /// The runs; returns how those ended that did not return, and which are to be looked at in each instruction.
    fn runs(&mut self, asked: &Asked, judged: &mut Judged) -> Result<Runs> {
        let mut fast = Machine::new(self.subject, None)?;
        let (mut ends, mut to_look, mut to_pair) = (HashMap::<String, usize>::new(), Vec::new(), Vec::new());
        let mut telling = 0;
        for number in numbers(asked) {
            if number >= SYSTEMATIC && asked.seed.is_none() && judged.returned >= FEW {
                break;
            }
            let ran = fast.run(number, Callee::Hostile)?;
            judged.runs += 1;
            let lost = self.returned(&ran, number);
            self.called(&ran, number);
            self.stopped(&ran, number);
            let why = match &ran.end {
                End::Returned => None,
                End::Ended => Some("it ends in a function that does not return".to_owned()),
                End::Switched => Some("it goes to another stack".to_owned()),
                End::Guarded => Some("the check of its return address stops it".to_owned()),
                End::Stopped(why) => Some(why.clone()),
            };
            judged.returned += usize::from(why.is_none());
            why.into_iter().for_each(|why| *ends.entry(why).or_default() += 1);
            // One that did not return may have been given what nobody gives it, and has overwritten its own frame.
            let least = if ran.calls.is_empty() { 1 } else { LEAST };
            let is_telling = fast.is_new() || lost;
            let wanted = if is_telling { telling < LOOKS } else { to_look.len() < least };
            if ran.end == End::Returned && wanted {
                to_look.push(number);
                telling += usize::from(is_telling);
                fast.know();
                if !ran.calls.is_empty() {
                    to_pair.push(number);
                }
            }
        }
        // What is lost is looked at.
        let losing = self.claims.values().filter(|claim| claim.kind == Kind::C1).filter_map(|claim| claim.seed);
        to_look.extend(losing.filter(|number| !to_look.contains(number)).collect::<BTreeSet<_>>());
        judged.executed = fast.covered();
        Ok(Runs { ends, to_look, to_pair })
    }

    /// Does a run that loses registers do something else for a caller that has other values in those that carry no argument? Then
    /// nobody calls it by C's convention. Moving these values about is no such thing, nor is changing one in its place.
    fn takes_what_c_does_not_give(&self) -> Result<bool> {
        let abi = self.subject.registers.abi;
        let claims = || self.claims.values().filter(|claim| claim.kind == Kind::C1);
        let lost: Vec<Reg> = claims().filter_map(|claim| abi.find(&claim.place)).filter(|reg| *reg != abi.sp).collect();
        let mut runs: BTreeSet<u64> = claims().filter_map(|claim| claim.seed).collect();
        if runs.is_empty() {
            return Ok(false);
        }
        runs.extend(0..LOOKS as u64);
        let mut machine = Machine::new(self.subject, None)?;
        for number in runs {
            let one = machine.run(number, Callee::Hostile)?;
            // It takes a link register off the stack that its caller has pushed for it.
            let pops_link = abi.link.is_some_and(|link| one.after[link] != EXIT);
            if one.end == End::Returned && pops_link && one.after[abi.sp] > one.before[abi.sp] {
                return Ok(true);
            }
            let way = machine.pieces().clone();
            let made = |ran: &Ran, reg: Reg| !ran.before.gpr.contains(&ran.after[reg]);
            let differs =
                |other: &Ran, reg: Reg| one.after[reg] != other.after[reg] && made(&one, reg) && made(other, reg);
            let unlike = |machine: &Machine, other: &Ran, given: &[Reg]| {
                way != *machine.pieces() || one.end != other.end || given.iter().any(|reg| differs(other, *reg))
            };
            let given = [abi.rets, &lost].concat();
            // Some do something else each time, as by RDRAND.
            let mut again = 0..ALIKE;
            let is_steady = again.try_fold(true, |steady, _| {
                let ran = machine.run(number, Callee::Hostile)?;
                Ok::<_, Error>(steady && !unlike(&machine, &ran, &given))
            })?;
            if !is_steady {
                continue;
            }
            let other = machine.for_another(number, None)?;
            if unlike(&machine, &other, abi.rets) {
                return Ok(true);
            }
            for reg in &lost {
                let other = machine.for_another(number, Some(*reg))?;
                if unlike(&machine, &other, &[*reg]) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Drop what a function is for, by its name, rows that no object has, and what is no fault of compilers.
    fn without_purpose(&mut self, function: &Function) {
        let (symbol, wants_rows, compiled) = (function.symbol.name.as_str(), function.wants_rows, function.compiled);
        let abi = self.subject.registers.abi;
        let (room, sp) = (symbol.ends_with(ROOM), abi.name(abi.sp));
        let of_platform = self.subject.registers.machine.kept_by_platform;
        let threads: Vec<String> = of_platform.iter().map(|reg| abi.name(reg).to_owned()).collect();
        let controls = CONTROLS.contains(&symbol.trim_start_matches('_'));
        self.claims.retain(|(kind, place), claim| match kind {
            // What needs it lies in a function that it calls.
            Kind::C3 if compiled => claim.offset.is_some() || place == TOGETHER,
            // Compilers save what they like; in a library, a person may have done it.
            Kind::C12 if compiled => function.boundary != Boundary::Called,
            Kind::C1 => !(room && place == sp || symbol == THREAD && threads.contains(place)),
            Kind::C6 => wants_rows,
            Kind::C9 => !controls,
            _ => true,
        });
    }

    /// Claim something; of the same place again only that there is more.
    fn claim(&mut self, claim: Claim) {
        let key = (claim.kind, claim.place.clone());
        let known = self.claims.entry(key).or_insert(Claim { runs: 0, ..claim });
        known.runs += 1;
    }

    /// A claim, at an instruction of the function.
    fn at(&self, at: u64, claim: Claim) -> Claim {
        let line = self.lines.get(&at);
        let instruction = line.map_or_else(String::new, |line| self.subject.shown(line));
        Claim { offset: line.map(|_| at - self.subject.start), instruction, ..claim }
    }

    /// What its caller finds at the return. Was anything lost?
    fn returned(&mut self, ran: &Ran, number: u64) -> bool {
        if ran.end != End::Returned {
            return false;
        }
        let Registers { machine, abi } = self.subject.registers;
        let before = self.claims.len();
        let lost = |name: &str, want: u64, got: u64| (name.to_owned(), format!("{want:#x}"), format!("{got:#x}"));
        let mut found = Vec::new();
        let kept = abi.callee_saved.union(machine.kept_by_platform);
        for reg in kept.iter().filter(|reg| *reg != abi.sp && ran.before[*reg] != ran.after[*reg]) {
            found.push(lost(abi.name(reg), ran.before[reg], ran.after[reg]));
        }
        let sp = ran.before[abi.sp] + abi.return_bytes();
        if ran.after[abi.sp] != sp {
            found.push(lost(abi.name(abi.sp), sp, ran.after[abi.sp]));
        }
        for i in abi.vector_callee_saved.iter().map(|i| usize::from(*i)) {
            let (want, got) = (low(&ran.before.vectors[i]), low(&ran.after.vectors[i]));
            if want != got {
                found.push(lost(machine.vectors[i].name, want, got));
            }
        }
        let any = !found.is_empty();
        for (place, want, got) in found {
            let claim = Claim::of(Kind::C1, Tier::Error, &place, (want, got), number);
            self.claim(claim);
        }
        for (word, (was, is)) in machine.control.iter().zip(ran.before.control.iter().zip(ran.after.control)) {
            if (was ^ is) & !word.status != 0 {
                let values = (format!("{was:#x}"), format!("{is:#x}"));
                let claim = Claim::of(Kind::C9, Tier::Error, word.reg.name, values, number);
                self.claim(claim);
            }
        }
        for (name, _) in machine.clear_flags.iter().filter(|(_, bit)| ran.unclear & bit != 0) {
            let claim = Claim::of(Kind::C9, Tier::Error, name, ("0".to_owned(), "1".to_owned()), number);
            self.claim(claim);
        }
        any || self.claims.len() > before
    }

    /// Where it calls.
    fn called(&mut self, ran: &Ran, number: u64) {
        if ran.end == End::Switched {
            return;
        }
        let align = self.subject.registers.abi.sp_align;
        let own = self.subject.start..self.subject.start + self.subject.size;
        let calls: Vec<_> = ran.calls.iter().filter(|call| own.contains(&call.back.wrapping_sub(1))).collect();
        let outward = calls.iter().filter(|call| !call.ends).map(|call| (self.call_before(call.back), call.to.clone()));
        let outward: Vec<_> = outward.filter(|(at, _)| self.lines.get(at).is_some_and(Decoded::is_call)).collect();
        self.outward.extend(outward);
        for call in calls.into_iter().filter(|call| call.off != 0) {
            let tier = if call.ends { Tier::Note } else { Tier::Error };
            let values = (align.to_string(), call.off.to_string());
            let claim = Claim::of(Kind::C2, tier, &call.to, values, number);
            let claim = self.at(self.call_before(call.back), Claim { callee: call.to.clone(), ..claim });
            self.claim(claim);
        }
    }

    /// What an engine that enforces stops.
    fn stopped(&mut self, ran: &Ran, number: u64) {
        // One that goes astray is stopped for it.
        if matches!(ran.end, End::Stopped(_)) {
            return;
        }
        let own = self.subject.start..self.subject.start + self.subject.size;
        for (guard, at) in ran.stops.iter().filter(|(_, at)| own.contains(at)) {
            let (place, promise, what) = of_guard(*guard);
            let (tier, said) = match (self.promised)(promise) {
                true => (Tier::Error, "The object's note says that this protection lets it pass"),
                false => (Tier::Note, "The object's note does not say that this protection lets it pass"),
            };
            let claim = Claim::of(Kind::C11, tier, place, (said.to_owned(), what.to_owned()), number);
            let claim = self.at(*at, claim);
            self.claim(claim);
        }
    }

    /// The instruction that a return address is behind.
    fn call_before(&self, back: u64) -> u64 {
        self.lines.range(..back).next_back().map_or(back, |(at, _)| *at)
    }

    /// The same run with callees that keep what they may change: nothing but scratch registers may differ.
    fn pair(&mut self, machine: &mut Machine, number: u64) -> Result<()> {
        let hostile = outcome(machine, number, Callee::Hostile)?;
        let gentle = outcome(machine, number, Callee::Gentle)?;
        if hostile.is_like(&gentle) {
            return Ok(());
        }
        // Some do something else each time, as by RDRAND; one bit of that is alike in all of these once in 256 times.
        for _ in 0..ALIKE {
            if !outcome(machine, number, Callee::Hostile)?.is_like(&hostile) {
                return Ok(());
            }
        }
        let mut alone = Vec::new();
        for part in parts(self.subject.registers) {
            if !outcome(machine, number, Callee::One(part))?.is_like(&gentle) {
                alone.push(part);
            }
        }
        if alone.is_empty() {
            let claim = Claim::of(Kind::C3, Tier::Error, TOGETHER, gentle.unlike(&hostile), number);
            let callee = hostile.calls.first().map(|call| call.to.clone()).unwrap_or_default();
            self.claim(Claim { callee, ..claim });
        }
        for part in alone {
            let name = part.name(self.subject.registers);
            if !self.claims.contains_key(&(Kind::C3, name.to_owned())) {
                self.depends.push((part, number));
            }
            // Which instruction needs it is found where it can be seen.
            let values = ("what it was".to_owned(), "something else".to_owned());
            self.claim(Claim::of(Kind::C3, Tier::Error, name, values, number));
        }
        Ok(())
    }

    /// Find behind which call it needs what the callee may have changed, and which instruction is the last before which a change
    /// matters: that one needs it.
    fn depended(&mut self, mut machine: Machine) -> Result<()> {
        for (part, number) in std::mem::take(&mut self.depends) {
            let gentle = outcome(&mut machine, number, Callee::Gentle)?;
            let (steps, returns) = machine.steps();
            let returns = returns.to_vec();
            let mut matters = |call: u64, step: usize| -> Result<_> {
                let (ran, poked) = machine.poked(number, Poke { step, part, call })?;
                let now = Outcome { calls: ran.calls, end: ran.end, memory: machine.memory() };
                let differs = !now.is_like(&gentle);
                Ok(poked.filter(|_| differs))
            };
            for (call, mut first) in (0..).zip(returns) {
                let Some(mut poked) = matters(call, first)? else { continue };
                // What it has written itself is its own from there on. Later calls keep what is there.
                let mut end = poked.until.unwrap_or(steps);
                while first + 1 < end {
                    let middle = first.midpoint(end);
                    match matters(call, middle)? {
                        Some(later) => (first, poked) = (middle, later),
                        None => end = middle,
                    }
                }
                let callee = gentle.calls.get(call as usize).map(|call| call.to.clone()).unwrap_or_default();
                let key = (Kind::C3, part.name(self.subject.registers).to_owned());
                if let Some(claim) = self.claims.remove(&key) {
                    let (want, got) = (format!("{:#x}", poked.was), format!("{:#x}", poked.is));
                    let claim = self.at(poked.at, Claim { want, got, callee, ..claim });
                    self.claims.insert(key, claim);
                }
                break;
            }
        }
        Ok(())
    }

    /// Say of what was lost in this run which instruction changed it last.
    fn blame(&mut self, machine: &mut Machine, number: u64) {
        let Registers { machine: facts, abi } = self.subject.registers;
        let Some(look) = machine.look() else { return };
        let writers = &look.writers;
        let general = |name: &str| abi.find(name).map(|reg| writers.gpr[usize::from(reg.0)]);
        let vector = |name: &str| facts.vectors.iter().position(|of| of.name == name).map(|i| writers.vectors[i]);
        let control = |name: &str| facts.control.iter().position(|of| of.reg.name == name).map(|i| writers.control[i]);
        let flag = |name: &str| facts.clear_flags.iter().find(|(of, _)| *of == name).map(|_| writers.flags);
        let writer =
            |name: &str| general(name).or_else(|| vector(name)).or_else(|| control(name)).or_else(|| flag(name));
        let blamed: Vec<_> = self
            .claims
            .iter()
            .filter(|((kind, _), claim)| matches!(kind, Kind::C1 | Kind::C9) && claim.seed == Some(number))
            .filter_map(|(key, _)| Some((key.clone(), writer(&key.1)?)))
            .collect();
        for (key, at) in blamed {
            if let Some(claim) = self.claims.remove(&key) {
                self.claims.insert(key, self.at(at, claim));
            }
        }
    }

    /// Compilers do not lay out a frame so that its parts overlap: drop what an index or a length did that nobody gives.
    fn without_strays(&mut self, machine: &mut Machine) {
        let Subject { backend, image, registers, .. } = *self.subject;
        let has_pads = (self.promised)(Promise::Pads);
        let Some(look) = machine.look() else { return };
        let is_lost = look.without_strays(|to| !has_pads || has_pad(backend, image, to));
        let of = |claim: &Claim| Some((claim.seed?, registers.abi.find(&claim.place)?));
        let is_stray = |claim: &Claim| of(claim).is_some_and(|(number, reg)| is_lost(number, reg));
        self.claims.retain(|(kind, _), claim| *kind != Kind::C1 || !is_stray(claim));
    }

    /// What was seen at each instruction.
    fn looked(&mut self, machine: &mut Machine) {
        let Some(look) = machine.look() else { return };
        let calls = |at: &u64| self.lines.get(at).is_some_and(Decoded::is_call);
        // What only assembly calls may keep more, and throws nothing.
        let through = look.through.iter().filter(|(key, _)| self.outward.contains_key(&key.0));
        let through = through.filter(|(key, _)| !look.wrong.contains_key(key));
        let mut rows: Vec<_> = look.wrong.iter().chain(through).map(|(key, wrong)| (*key, *wrong)).collect();
        rows.sort_by_key(|((at, _), _)| *at);
        let mut found: Vec<Claim> = Vec::new();
        for is_call in [true, false] {
            let mut places: BTreeMap<String, Vec<_>> = BTreeMap::new();
            for ((at, place), wrong) in rows.iter().filter(|((at, _), _)| calls(at) == is_call) {
                places.entry(place.name(self.subject.registers)).or_default().push((*at, *wrong));
            }
            for (place, all) in places {
                let Some((at, wrong)) = all.first() else { continue };
                let (kind, tier) = match (is_call, all.len()) {
                    (true, _) => (Kind::C4, Tier::Error),
                    (false, 1) => (Kind::C5, Tier::Note),
                    (false, _) => (Kind::C5, Tier::Warning),
                };
                let values = (format!("{:#x}", wrong.want), format!("{:#x}", wrong.got));
                let claim = Claim::of(kind, tier, &place, values, wrong.number);
                let at_end = all.iter().all(|(at, _)| self.is_at_end(*at));
                found.push(self.at(*at, Claim { instructions: all.len(), at_end, ..claim }));
            }
        }
        let without = self.outward.iter().filter_map(|(at, callee)| Some((*at, callee, *look.without.get(at)?)));
        let without: Vec<_> = without.collect();
        if let Some((at, callee, number)) = without.first() {
            let values = ("a row".to_owned(), "none".to_owned());
            let claim = Claim::of(Kind::C6, Tier::Warning, "a call", values, *number);
            let (instructions, callee) = (without.len(), (*callee).clone());
            found.push(self.at(*at, Claim { instructions, callee, ..claim }));
        }
        for (reg, (at, wrong)) in &look.dropped {
            let values = (format!("{:#x}", wrong.want), format!("{:#x}", wrong.got));
            let name = self.subject.registers.abi.name(*reg);
            found.push(self.at(*at, Claim::of(Kind::C12, Tier::Note, name, values, wrong.number)));
        }
        let words = [(Kind::C7, "a word below SP", &look.dead), (Kind::C10, "the caller's frame", &look.above)];
        for (kind, place, words) in words {
            if let Some((at, word)) = words.iter().min_by_key(|(at, _)| **at) {
                let values = (word.off.to_string(), format!("{:#x}", word.word));
                let claim = Claim::of(kind, Tier::Error, place, values, word.number);
                found.push(self.at(*at, Claim { instructions: words.len(), ..claim }));
            }
        }
        found.into_iter().for_each(|claim| self.claim(claim));
    }

    /// Is nothing between an instruction and the end of the function but what restores registers?
    fn is_at_end(&self, at: u64) -> bool {
        let mut lines = self.lines.range(at..).map(|(_, line)| line).take(END);
        lines.find(|line| line.branch.is_some() || line.last).is_some_and(|line| line.last)
    }

    /// What it does with registers that C lets it change.
    fn habits(&self, machine: &mut Machine) -> Habits {
        let Some(look) = machine.look() else { return Habits::default() };
        let (abi, keeps) = (self.subject.registers.abi, look.scratch.keeps);
        let changes = look.scratch.changes.iter().filter(|(reg, _)| !keeps.contains(**reg));
        let changes = changes.map(|(reg, (at, wrong))| {
            let values = (format!("{:#x}", wrong.want), format!("{:#x}", wrong.got));
            let claim = Claim::of(Kind::C13, Tier::Note, abi.name(*reg), values, wrong.number);
            let way = look.ways.get(&wrong.number).into_iter().flatten();
            let path = way.map(|at| at - self.subject.start).collect();
            (abi.name(*reg), self.with_context(self.at(*at, Claim { path, ..claim })))
        });
        Habits { keeps: keeps.iter().map(|reg| abi.name(reg)).collect(), changes: changes.collect() }
    }

    /// What protections would stop that the object's note promises to pass.
    fn guarded(&mut self, machine: &mut Machine) {
        let Some(look) = machine.look() else { return };
        let Subject { backend, image, start, size, .. } = *self.subject;
        let unpaired = look.unpaired.iter().map(|(at, number)| (*at, *number)).min();
        if let Some((at, number)) = unpaired.filter(|_| (self.promised)(Promise::Paired)) {
            let values = ("a return to its call".to_owned(), "another".to_owned());
            let claim = Claim::of(Kind::C8, Tier::Error, "the shadow stack", values, number);
            let claim = self.at(at, claim);
            self.claim(claim);
        }
        let astray = |to: u64| to.wrapping_sub(start) < size && !has_pad(backend, image, to);
        let indirect = look.indirect.iter().filter(|((_, to), _)| astray(*to));
        let indirect = indirect.map(|(branch, number)| (*branch, *number)).min();
        if let Some(((at, to), number)) = indirect.filter(|_| (self.promised)(Promise::Pads)) {
            let values = ("a landing pad".to_owned(), format!("+{:#x}", to - start));
            let claim = Claim::of(Kind::C8, Tier::Error, "a landing pad inside", values, number);
            let claim = self.at(at, claim);
            self.claim(claim);
        }
    }

    /// Say of each claim which way its run went, and what is around its instruction.
    fn explain(&mut self, machine: &mut Machine) -> Result<()> {
        let start = self.subject.start;
        for (key, claim) in std::mem::take(&mut self.claims) {
            let claim = self.with_context(claim);
            self.claims.insert(key, claim);
        }
        for claim in self.claims.values_mut() {
            let Some(number) = claim.seed else { continue };
            if !machine.look().is_some_and(|look| look.ways.contains_key(&number)) {
                machine.run(number, Callee::Hostile)?;
            }
            let way = machine.look().and_then(|look| look.ways.get(&number).cloned()).unwrap_or_default();
            claim.path = way.iter().map(|at| at - start).collect();
        }
        Ok(())
    }

    /// With the instructions around its own.
    fn with_context(&self, claim: Claim) -> Claim {
        let Some(offset) = claim.offset else { return claim };
        let (subject, start) = (self.subject, self.subject.start);
        let before = self.lines.range(..start + offset).rev().take(AROUND).map(|(_, line)| line);
        let mut around: Vec<&Decoded> = before.collect();
        around.reverse();
        around.extend(self.lines.range(start + offset..).take(AROUND + 1).map(|(_, line)| line));
        let text = |line: &&Decoded| {
            let off = line.at - start;
            format!("{} {off:4x}  {}", if off == offset { "=>" } else { "  " }, subject.shown(line))
        };
        Claim { context: around.iter().map(text).collect(), ..claim }
    }

    /// Drop what follows from another claim: of a register that is lost, the rows behind its loss; of a wrong CFA, the return
    /// address that is looked up by it; of a row that is wrong at a call, the rows beside it.
    fn without_followers(&mut self) {
        let has = |claims: &BTreeMap<(Kind, String), Claim>, kind, place: &str| {
            claims.contains_key(&(kind, place.to_owned()))
        };
        let all = self.claims.clone();
        self.claims.retain(|(kind, place), _| match kind {
            Kind::C4 | Kind::C5 if has(&all, Kind::C1, place) => false,
            Kind::C4 | Kind::C5 if *place == Place::RETURN && has(&all, *kind, Place::CFA) => false,
            Kind::C5 => !(has(&all, Kind::C4, place) || *place == Place::RETURN && has(&all, Kind::C4, Place::CFA)),
            _ => true,
        });
    }
}

impl Place {
    const CFA: &str = "CFA";
    const RETURN: &str = "the return address";

    fn name(self, registers: Registers) -> String {
        let name = match self {
            Place::Cfa => Place::CFA,
            Place::Return => Place::RETURN,
            Place::Register(reg) => registers.abi.name(reg),
            Place::Vector(i) => registers.machine.vectors.get(usize::from(i)).map_or("?", |vector| vector.name),
        };
        name.to_owned()
    }
}

impl Outcome {
    fn is_like(&self, other: &Outcome) -> bool {
        let calls =
            self.calls.len() == other.calls.len() && self.calls.iter().zip(&other.calls).all(|(a, b)| a.is_like(b));
        calls && self.end == other.end && self.memory == other.memory
    }

    /// What differs, of this one and of another, in a few words.
    fn unlike(&self, other: &Outcome) -> (String, String) {
        let calls = |of: &Outcome| of.calls.iter().map(|call| call.to.clone()).collect::<Vec<_>>().join(", ");
        if calls(self) != calls(other) {
            (format!("calls of {}", calls(self)), format!("calls of {}", calls(other)))
        } else if self.end != other.end {
            (format!("{:?}", self.end), format!("{:?}", other.end))
        } else if self.memory != other.memory {
            ("one content of memory".to_owned(), "another".to_owned())
        } else {
            ("some arguments".to_owned(), "others".to_owned())
        }
    }
}
