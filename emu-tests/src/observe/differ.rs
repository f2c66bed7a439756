//! The difference of two observed behaviours, in words.

use std::collections::{BTreeMap, BTreeSet};

use codegen::words::abi::Abi;

use super::difference::{Difference, Severity};
use super::fields::{Fields, elsewhere, moved, only_longer, relied, together, words_of};
use super::grouped::grouped;
use super::observed::{Call, Leave, Observed, Unwound, Way};
use super::says::{each, hex, scratch};
use super::tokens::OLDER;
use super::ways::{Apart, apart};

/// Instructions on both sides.
type Places = (Option<u64>, Option<u64>);

/// What the right one does differently, the worst first, each once. Both are of one architecture, whose psABI this is.
pub fn differences(left: &Observed, right: &Observed, abi: &'static Abi) -> Vec<Difference> {
    match apart(left, right) {
        None => grouped(each_difference(left, right, abi, BTreeSet::new()), abi),
        Some(Apart { right: is_right, observed, taken, difference }) => {
            let (left, right) = if is_right { (left, &observed) } else { (&observed, right) };
            let rest = grouped(each_difference(left, right, abi, taken), abi);
            std::iter::once(difference).chain(rest).collect()
        }
    }
}

/// The same of two that have the same ways, but for the cases that are `done` already.
fn each_difference(
    left: &Observed,
    right: &Observed,
    abi: &'static Abi,
    mut done: BTreeSet<String>,
) -> Vec<Difference> {
    let fields = Fields::of(left, right);
    let told = BTreeSet::new();
    let mut all =
        Differ { abi, fields: &fields, told, whole_way: false, when: String::new(), by_store: false, all: Vec::new() };
    let sides = [left, right].map(|o| (by_name(&o.path), by_name(&o.variants)));
    // Cases in which the two go to different places: what comes on top of that is different because of it.
    let mut parted: Vec<String> = Vec::new();
    let ways = |o: &'_ Observed| o.path.iter().chain(&o.variants).map(|w| w.when.clone()).collect::<Vec<_>>();
    for when in ways(left).into_iter().chain(ways(right)) {
        if !done.insert(when.clone()) || parted.iter().any(|case| when.starts_with(case.as_str())) {
            continue;
        }
        // Who does not look at a thing does what it does without.
        let find = |(paths, variants): &(BTreeMap<&str, &Way>, BTreeMap<&str, &Way>), when: &str| -> Option<Way> {
            let mut key = when;
            loop {
                if let Some(way) = paths.get(key).or_else(|| variants.get(key)) {
                    return Some((*way).clone());
                }
                // The same word, where a layout has another number for it.
                let alike = |other: &&&str| place_of(other) == place_of(key) && place_of(key).contains('[');
                let others: BTreeSet<&&str> = paths.keys().chain(variants.keys()).filter(alike).collect();
                if let (Some(other), 1) = (others.first(), others.len()) {
                    return paths.get(**other).or_else(|| variants.get(**other)).map(|way| (*way).clone());
                }
                match key.rsplit_once(", and ") {
                    Some((base, _)) => key = base,
                    None => return paths.get("plainly").map(|way| (*way).clone()),
                }
            }
        };
        // A store to a field that lies elsewhere is compared with one to where it lies.
        let Some(there) = fields.there(&when) else { continue };
        let (Some(l), Some(r)) = (find(&sides[0], &when), find(&sides[1], &there)) else { continue };
        // A store to a word that has moved is one to another word.
        let store = when.rsplit_once("frame+0x").and_then(|(_, at)| u64::from_str_radix(at, 16).ok());
        let calls = l.call.first().zip(r.call.first());
        let from = calls.and_then(|(l, r)| moved(l, r)).filter(|_| l.by_store || r.by_store);
        if from.zip(store).is_some_and(|(from, at)| at >= from) {
            continue;
        }
        let costs = sides.iter().all(|(paths, _)| paths.contains_key(when.as_str()));
        if when != PLAINLY && l.parts_from(&r) {
            parted.push(format!("{when}, and "));
        }
        (all.when, all.by_store) = (when, l.by_store || r.by_store);
        all.way(&l, &r, costs);
    }
    all.whole(left, right);
    let mut all = all.all;
    all.sort_by_key(|d| (d.severity, d.better));
    all
}

/// A case without the numbers in brackets.
fn place_of(case: &str) -> String {
    let (mut out, mut depth, mut rest) = (String::new(), 0_usize, case);
    while let Some(c) = rest.chars().next() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let number = rest.strip_prefix("0x").filter(|_| depth > 0);
        rest = match number {
            Some(digits) => digits.trim_start_matches(|c: char| c.is_ascii_hexdigit()),
            None => {
                out.push(c);
                rest.get(c.len_utf8()..).unwrap_or_default()
            }
        };
    }
    out
}

/// Ways by what makes them go there.
fn by_name(ways: &[Way]) -> BTreeMap<&str, &Way> {
    ways.iter().map(|way| (way.when.as_str(), way)).collect()
}

struct Differ<'a> {
    abi: &'static Abi,
    fields: &'a Fields,
    /// Fields of which it is told that they lie elsewhere.
    told: BTreeSet<(u64, u64)>,
    /// The case is a way of its own on both sides.
    whole_way: bool,
    when: String,
    by_store: bool,
    all: Vec<Difference>,
}

impl Differ<'_> {
    fn say(&mut self, severity: Severity, better: bool, (left, right): Places, text: String) {
        // What shows in any case is no handler's fault; and where a thing is 0 or stored, its name is another.
        let (by_store, zero) = (self.by_store, self.when.ends_with(" is 0") || self.when.ends_with(" returns 0"));
        // A bit that is set is for what tests it.
        let plain = |text: &str| text.replace("stored+0x1", "stored");
        let said = plain(&text);
        let same = |d: &&mut Difference| {
            (d.severity == severity || by_store)
                && (plain(&d.text) == said
                    || (zero || by_store) && (d.left, d.right) == (left, right) && subject(&d.text) == subject(&text))
        };
        if let Some(known) = self.all.iter_mut().find(same) {
            known.when.push(self.when.clone());
            return;
        }
        let when = if self.when.is_empty() { Vec::new() } else { vec![self.when.clone()] };
        self.all.push(Difference { severity, better, when, text, left, right });
    }

    /// What concerns the traced code; where a handler's store has brought it about, the handler.
    fn traced(&self) -> Severity {
        if self.by_store { Severity::BreaksHandlers } else { Severity::BreaksTracedCode }
    }

    fn whole(&mut self, left: &Observed, right: &Observed) {
        self.when.clear();
        if left.landing_pad != right.landing_pad {
            let list = |all: &[&str]| match all {
                [] => "no landing pad".to_owned(),
                all => format!("a landing pad for {}", all.join(" and ")),
            };
            let text = format!("begins with {}; it was {}", list(&right.landing_pad), list(&left.landing_pad));
            let better = left.landing_pad.iter().all(|what| right.landing_pad.contains(what));
            self.say(Severity::BreaksTracedCode, better, (Some(0), Some(0)), text);
        }
        if left.returned_to != right.returned_to {
            let fate = if right.returned_to { "ends there now" } else { "goes on with what lies before it" };
            let text = format!("an unwinder that takes its start for a return address {fate}");
            self.say(Severity::BreaksTools, right.returned_to, (None, None), text);
        }
        if left.bytes != right.bytes {
            let text = format!("{} bytes of code; it was {}", right.bytes, left.bytes);
            self.say(Severity::CostOnly, right.bytes < left.bytes, (None, None), text);
        }
    }

    fn way(&mut self, left: &Way, right: &Way, costs: bool) {
        self.whole_way = costs;
        self.leave(&left.leave, &right.leave);
        if left.leave.ends && right.leave.ends {
            self.returns(left, right);
            self.calls(left, right);
            self.unwind(&left.unwind, &right.unwind);
        }
        for (what, l, r) in [
            ("use memory below SP, which an interrupt may overwrite", &left.below, &right.below),
            ("use memory by an SP that the hardware refuses", &left.crooked, &right.crooked),
            ("are executed by mistake behind a call that does not return there", &left.astray, &right.astray),
        ] {
            if l.is_empty() != r.is_empty() {
                let some = if r.is_empty() { "no instructions" } else { "instructions" };
                let places = (l.first().copied(), r.first().copied());
                self.say(Severity::BreaksTracedCode, r.is_empty(), places, format!("{some} {what}"));
            }
        }
        let numbers = [
            ("instructions executed", left.instructions as u64, right.instructions as u64),
            ("bytes of stack", left.stack, right.stack),
        ];
        for (what, l, r) in numbers.into_iter().filter(|(_, l, r)| costs && l != r) {
            self.say(Severity::CostOnly, r < l, (None, None), format!("{r} {what}; it was {l}"));
        }
    }

    fn leave(&mut self, left: &Leave, right: &Leave) {
        let (traced, places) = (self.traced(), (Some(left.at), Some(right.at)));
        match (left.ends, right.ends) {
            (true, false) => return self.say(traced, false, places, format!("does not come back: {}", right.to)),
            (false, true) => return self.say(traced, true, places, format!("comes back now, to {}", right.to)),
            (false, false) => return,
            (true, true) => {}
        }
        if left.to != right.to {
            self.say(traced, false, places, format!("goes to {}; it went to {}", right.to, left.to));
        }
        if left.sp != right.sp {
            self.say(traced, false, places, format!("leaves SP at {}; it was {}", right.sp, left.sp));
        }
        if left.by != right.by {
            self.say(traced, false, places, format!("leaves by {}; it was {}", right.by, left.by));
        }
        if left.trap != right.trap {
            let text =
                if right.trap { "a trap follows the last branch now" } else { "no trap follows the last branch now" };
            self.say(Severity::BreaksTracedCode, right.trap, places, text.to_owned());
        }
        self.registers(left, right);
        if left.flags != right.flags {
            self.say(
                traced,
                right.flags,
                places,
                format!("flags are {} now", if right.flags { "kept" } else { "lost" }),
            );
        }
        if !left.flags && !right.flags && left.flags_follow != right.flags_follow {
            let some = if right.flags_follow { "now" } else { "not any more" };
            self.say(traced, false, places, format!("flags are what the call stored, {some}"));
        }
        let lists = [(&left.vectors, &right.vectors), (&left.control, &right.control), (&left.unclear, &right.unclear)];
        for (l, r) in lists {
            let (lost, kept) = (only(r, l), only(l, r));
            for (names, fate, better) in [(lost, "lost", false), (kept, "kept", true)] {
                if !names.is_empty() {
                    self.say(traced, better, places, format!("{} {fate} now", names.join(" ")));
                }
            }
        }
        each(&left.memory, &right.memory, "as it was", |at, l, r| {
            self.say(traced, r == "as it was", places, format!("the caller's word [stack+{at}] is {r}; it was {l}"));
        });
        each(&left.elsewhere, &right.elsewhere, "left alone", |at, l, r| {
            self.say(traced, r == "left alone", places, format!("memory: {at} is {r}; it was {l}"));
        });
    }

    fn registers(&mut self, left: &Leave, right: &Leave) {
        let (traced, scratch) = (self.traced(), scratch(self.abi));
        let names: BTreeSet<&'static str> = left.changed.keys().chain(right.changed.keys()).copied().collect();
        let zero = self.when.strip_suffix(" is 0").and_then(|when| when.rsplit(", and ").next().map(str::to_owned));
        // What was 0 at the entry may be so again by chance.
        for name in names.into_iter().filter(|name| zero.as_deref() != Some(*name)) {
            let places = (left.writers.get(name).copied(), right.writers.get(name).copied());
            let free = self.abi.find(name).is_none_or(|reg| scratch.contains(reg));
            match (left.changed.get(name), right.changed.get(name)) {
                (None, Some(now)) => {
                    self.say(traced, false, places, format!("{name} is lost now: it holds {now}"));
                }
                (Some(was), None) => {
                    // A second result is what a call leaves, more often than not.
                    let second = self
                        .abi
                        .rets
                        .iter()
                        .skip(1)
                        .any(|reg| was.starts_with(&format!("{} of call", self.abi.name(*reg))));
                    let better = !relied(was) || free || second;
                    self.say(traced, better, places, format!("{name} is as it was at the entry now; it held {was}"));
                }
                (Some(was), Some(now)) if was != now && relied(was) && !free => {
                    self.say(traced, false, places, format!("{name} holds {now}; it held {was}"));
                }
                _ => {}
            }
        }
    }

    /// Calls and returns that pair.
    fn returns(&mut self, left: &Way, right: &Way) {
        let (l, r) = (left.mispaired.len(), right.mispaired.len());
        let places = (left.mispaired.first().copied(), right.mispaired.first().copied());
        if l != r {
            let text = format!("returns elsewhere than behind their call: {r}; it was {l}");
            self.say(Severity::BreaksTracedCode, r < l, places, text);
        }
        let list = |all: &[String]| if all.is_empty() { "nowhere".to_owned() } else { all.join(", then ") };
        let places = (Some(left.leave.at), Some(right.leave.at));
        if left.beyond != right.beyond && left.leave.to == right.leave.to {
            let text = format!(
                "returns for calls from before the entry go to {}; they went to {}",
                list(&right.beyond),
                list(&left.beyond)
            );
            self.say(Severity::BreaksTracedCode, false, places, text);
        }
        if left.unreturned != right.unreturned {
            let text = format!("calls without a return: {}; it was {}", right.unreturned, left.unreturned);
            self.say(Severity::BreaksTracedCode, right.unreturned < left.unreturned, places, text);
        }
    }

    fn calls(&mut self, left: &Way, right: &Way) {
        if left.call.len() != right.call.len() {
            let names = |w: &Way| w.call.iter().map(|c| c.callee.as_str()).collect::<Vec<_>>().join(", ");
            let names = |w: &Way| if w.call.is_empty() { "nothing".to_owned() } else { names(w) };
            let text = format!("calls {}; it called {}", names(right), names(left));
            return self.say(Severity::BreaksHandlers, false, (None, None), text);
        }
        for (n, (l, r)) in (1..).zip(left.call.iter().zip(&right.call)) {
            self.call(&if left.call.len() == 1 { "the call".to_owned() } else { format!("call {n}") }, l, r);
        }
    }

    fn call(&mut self, which: &str, left: &Call, right: &Call) {
        let handlers = Severity::BreaksHandlers;
        let places = (Some(left.at), Some(right.at));
        if left.callee != right.callee {
            self.say(handlers, false, places, format!("{which} is of {}; it was of {}", right.callee, left.callee));
        }
        if left.by != right.by {
            self.say(
                Severity::CostOnly,
                right.by == "a call",
                places,
                format!("{which} is {}; it was {}", right.by, left.by),
            );
        }
        for (l, r, whatever) in [
            (left.aligned, right.aligned, "whatever it was at the site"),
            (left.usually_aligned, right.usually_aligned, "where the caller aligns it as C does"),
        ] {
            // Of the other runs it is not known what it is with another SP.
            if l != r && self.whole_way {
                let text = format!("at {which} SP is a multiple of {r}, {whatever}; it was one of {l}");
                self.say(handlers, r > l, places, text);
            }
        }
        each(&left.argument, &right.argument, AS_IT_WAS, |reg, l, r| {
            // Who gets a pointer to what was saved does not look at what is left in the registers behind the arguments.
            let given = |call: &Call| call.pointer.is_some() && !call.given(self.abi).contains(&reg);
            if given(left) && given(right) {
                return;
            }
            let places = (left.writers.get(reg).copied().or(places.0), right.writers.get(reg).copied().or(places.1));
            self.say(handlers, false, places, format!("{which} gets {r} in {reg}; it got {l}"));
        });
        each(&left.stack, &right.stack, "nothing of the caller's", |at, l, r| {
            self.say(handlers, false, places, format!("{which} gets {r} at [sp+{at}]; it got {l}"));
        });
        for (l, r, what) in [
            (&left.vectors, &right.vectors, "an argument lost"),
            (&left.flags, &right.flags, "set, which C wants clear"),
        ] {
            let (worse, better) = (only(r, l), only(l, r));
            if !worse.is_empty() {
                self.say(handlers, false, places, format!("at {which} {} {what}", worse.join(" ")));
            }
            if !better.is_empty() {
                self.say(handlers, true, places, format!("at {which} {} no longer {what}", better.join(" ")));
            }
        }
        if left.chain != right.chain {
            let text = format!(
                "frame pointers at {which} lead to {}; they led to {}",
                right.chain.join(", "),
                left.chain.join(", ")
            );
            self.say(Severity::BreaksTools, right.chain.len() > left.chain.len(), places, text);
        }
        if left.pointer.is_some() && right.pointer.is_some() {
            self.frame(which, left, right);
        }
    }

    /// What the callee finds in the words that it has a pointer to.
    fn frame(&mut self, which: &str, left: &Call, right: &Call) {
        if left.frame == right.frame {
            return;
        }
        let words = words_of;
        if only_longer(&words(left), &words(right)) {
            let (l, r) = (words(left).len() * 8, words(right).len() * 8);
            let text = format!("the words of {which} up to the caller's are {r} bytes; they were {l}");
            return self.say(Severity::LayoutOnly, false, (None, None), text);
        }
        let elsewhere: BTreeMap<u64, u64> =
            elsewhere(left, right).into_iter().filter(|moved| !self.told.contains(moved)).collect();
        for run in together(&elsewhere) {
            self.told.extend(&run);
            let names: Vec<&str> =
                run.iter().map(|(l, _)| left.frame.get(&hex(*l)).map_or("", String::as_str)).collect();
            let Some((l, r)) = run.first().map(|(l, r)| (hex(*l), hex(*r))) else { continue };
            let places = (left.slots.get(&l).copied(), right.slots.get(&r).copied());
            let text = match names.as_slice() {
                [name] => format!("{name} is at frame+{r} at {which}; it was at frame+{l}"),
                all => {
                    format!("{} are from frame+{r} on at {which}; they were from frame+{l} on", all.join(" "))
                }
            };
            self.say(Severity::BreaksHandlers, false, places, text);
        }
        each(&left.frame, &right.frame, NOT_ITS, |at, l, r| {
            // Said by name already.
            let (from, to) = self.fields.moved(at);
            if from || to && !relied(l) {
                return;
            }
            let severity = if l == OLDER || l == NOT_ITS { Severity::LayoutOnly } else { Severity::BreaksHandlers };
            if (l, r) == (NOT_ITS, OLDER) {
                return;
            }
            let places = (left.slots.get(at).copied(), right.slots.get(at).copied());
            let place = if at.starts_with('-') { format!("frame{at}") } else { format!("frame+{at}") };
            self.say(severity, false, places, format!("{place} at {which} is {r}; it was {l}"));
        });
    }

    /// What an unwinder finds, in the order of execution.
    fn unwind(&mut self, left: &[Unwound], right: &[Unwound]) {
        let tools = Severity::BreaksTools;
        if left.is_empty() && right.is_empty() {
            return;
        }
        if left.is_empty() != right.is_empty() {
            let text = if right.is_empty() { "there is no unwind table now" } else { "there is an unwind table now" };
            return self.say(tools, left.is_empty(), (None, None), text.to_owned());
        }
        let [l, r] = [left, right].map(|all| all.iter().map(Unwound::state).collect::<Vec<_>>());
        if l == r {
            return;
        }
        let (mut worse, mut better) = (false, false);
        for u in right.iter().filter(|u| !l.contains(&u.state())) {
            worse = true;
            self.say(
                tools,
                false,
                (None, Some(u.from)),
                format!("an interrupt at {} is unwound {}", range(u), found(u)),
            );
        }
        for u in left.iter().filter(|u| !worse && !r.contains(&u.state())) {
            better = true;
            let text = format!("no interrupt is unwound {} any more; at {} it was", found(u), range(u));
            self.say(tools, true, (Some(u.from), None), text);
        }
        if !worse && !better {
            let at =
                right.iter().zip(left).find(|(r, l)| r.state() != l.state()).map(|(r, l)| (Some(l.from), Some(r.from)));
            let places = at.unwrap_or_default();
            self.say(tools, false, places, "what an interrupt is unwound to changes elsewhere".to_owned());
        }
    }
}

/// The run in which nothing is unusual.
const PLAINLY: &str = "plainly";

const NOT_ITS: &str = "not the frame's";

const AS_IT_WAS: &str = "what it held before";

impl Way {
    /// Does it go elsewhere than the other one, or call another number of functions?
    fn parts_from(&self, other: &Way) -> bool {
        let [l, r] = [self, other].map(|way| (&way.leave.to, &way.leave.sp, way.leave.ends, way.call.len()));
        l != r
    }
}

impl Call {
    /// The argument registers up to the last one that was given something.
    fn given(&self, abi: &Abi) -> Vec<&'static str> {
        let names: Vec<&'static str> = abi.args.iter().map(|reg| abi.name(*reg)).collect();
        let meant = |value: &String| relied(value) || value.starts_with("&frame") || value.parse::<i64>().is_ok();
        let last = names.iter().rposition(|name| self.argument.get(name).is_some_and(meant));
        names.into_iter().take(last.map_or(0, |last| last + 1)).collect()
    }
}

/// What a sentence is about: its words but for the values.
fn subject(text: &str) -> &str {
    let ends = [" is ", " gets ", " holds ", " goes to ", " lead to ", ": it holds "];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

fn range(u: &Unwound) -> String {
    if u.from == u.to { format!("+{:#x}", u.from) } else { format!("+{:#x} .. +{:#x}", u.from, u.to) }
}

fn found(u: &Unwound) -> String {
    let lost = if u.lost.is_empty() { String::new() } else { format!(", with another {}", u.lost.join(" ")) };
    match u.returns.as_str() {
        "nothing" => "by no entry of the table".to_owned(),
        returns => {
            let column = if u.known_column { "" } else { ", which is in a column that unwinders lack" };
            let call = if u.looked_up { ", itself" } else { ", behind a call" };
            format!("to {returns}{call}{column}, with CFA at {}{lost}", u.cfa)
        }
    }
}

fn only(these: &[&'static str], those: &[&'static str]) -> Vec<&'static str> {
    these.iter().filter(|name| !those.contains(name)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_layout_and_a_moved_word_is_not() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(only_longer(&words("rdi rsi pc"), &words("rdi rsi older older pc")));
        assert!(only_longer(&words("rdi rsi older pc"), &words("rdi rsi pc")));
        assert!(!only_longer(&words("rdi rsi pc"), &words("rdi older rsi pc x")));
        assert!(!only_longer(&words("rdi rsi"), &words("rdi rbp")));
        assert!(!only_longer(&words("older rdi pc"), &words("rdi pc")));
    }

    #[test]
    fn cases_are_alike_but_for_numbers_in_brackets() {
        assert_eq!(place_of("[[x30-0x10]+0xd0] is 0"), place_of("[[x30-0x8]+0xc0] is 0"));
        assert_ne!(place_of("call 1 stores to frame+0x048"), place_of("call 1 stores to frame+0x040"));
    }

    #[test]
    fn nobody_relies_on_what_a_call_left() {
        for value in ["r10 as call 1 left it", "&stack-0x10", "older", "-3"] {
            assert!(!relied(value), "{value}");
        }
        for value in ["rdi", "[stack+0x8]", "rax of call 1", "what call 1 stored"] {
            assert!(relied(value), "{value}");
        }
    }
}
