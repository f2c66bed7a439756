//! The difference of two observed behaviours.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use codegen::words::abi::Abi;
use codegen::words::term::{Part, Root};

use super::case::{Case, Variation};
use super::difference::{Difference, Found, Severity};
use super::fields::{Fields, elsewhere, moved, only_longer, together, words_of};
use super::merge::merged;
use super::observed::{By, Call, End, Kind, Leave, Observed, Unwound, Vectors, Way};
use super::reading::scratch;
use super::spot::{CallOf, CallSpot, Spot};
use super::value::{Offset, Value};
use super::ways::{Apart, apart};

/// Instructions on both sides.
type Places = (Option<u64>, Option<u64>);

/// What the right one does differently, the worst first, each once. Both are of one architecture, whose psABI this is.
pub fn differences(left: &Observed, right: &Observed, abi: &'static Abi) -> Vec<Difference> {
    match apart(left, right) {
        None => merged(each_difference(left, right, abi, BTreeSet::new())),
        Some(Apart { right: is_right, observed, taken, difference }) => {
            let (left, right) = if is_right { (left, &observed) } else { (&observed, right) };
            let rest = merged(each_difference(left, right, abi, taken));
            std::iter::once(difference).chain(rest).collect()
        }
    }
}

/// The same of two that have the same ways, but for the cases that are `done` already.
fn each_difference(left: &Observed, right: &Observed, abi: &'static Abi, mut done: BTreeSet<Case>) -> Vec<Difference> {
    let fields = Fields::of(left, right);
    let mut all = Differ { abi, fields: &fields, told: BTreeSet::new(), whole_way: false, when: None, all: Vec::new() };
    let sides = [left, right].map(|o| Ways { paths: by_case(&o.path), variants: by_case(&o.variants) });
    // Cases in which the two go to different places: what comes on top of that is different because of it.
    let mut parted: Vec<Case> = Vec::new();
    let ways = |o: &'_ Observed| o.path.iter().chain(&o.variants).map(|w| w.when.clone()).collect::<Vec<_>>();
    for when in ways(left).into_iter().chain(ways(right)) {
        if !done.insert(when.clone()) || parted.iter().any(|case| when.is_beyond(case)) {
            continue;
        }
        // A store to a field that lies elsewhere is compared with one to where it lies.
        let Some(there) = fields.there(&when) else { continue };
        let (Some(l), Some(r)) = (sides[0].find(&when), sides[1].find(&there)) else { continue };
        let by_store = l.when.is_by_store() || r.when.is_by_store();
        // A store to a word that has moved is one to another word.
        let from = l.call.first().zip(r.call.first()).and_then(|(l, r)| moved(l, r)).filter(|_| by_store);
        if from.zip(when.field()).is_some_and(|(from, (_, at))| at >= from) {
            continue;
        }
        let costs = sides.iter().all(|side| side.paths.contains_key(&when));
        if !when.is_plain() && l.parts_from(r) {
            parted.push(when.clone());
        }
        all.when = Some(Under { case: when, by_store });
        all.way(l, r, costs);
    }
    all.whole(left, right);
    let mut all = all.all;
    all.sort_by_key(|d| (d.severity, d.better));
    all
}

/// The ways of a side, by what makes it go there.
struct Ways<'o> {
    paths: BTreeMap<&'o Case, &'o Way>,
    variants: BTreeMap<&'o Case, &'o Way>,
}

impl<'o> Ways<'o> {
    /// What it does in a case: who does not look at a thing does what it does without.
    fn find(&self, when: &Case) -> Option<&'o Way> {
        let of = |case: &Case| self.paths.get(case).or_else(|| self.variants.get(case)).copied();
        let mut key = when.clone();
        loop {
            if let Some(way) = of(&key) {
                return Some(way);
            }
            // The same word, where a layout has another number for it.
            let others = self.paths.keys().chain(self.variants.keys()).filter(|other| other.is_alike(&key));
            let others: BTreeSet<&&Case> = others.collect();
            if let (Some(other), 1) = (others.first(), others.len()) {
                return of(other);
            }
            key = key.base()?;
        }
    }
}

fn by_case(ways: &[Way]) -> BTreeMap<&Case, &Way> {
    ways.iter().map(|way| (&way.when, way)).collect()
}

/// The case that is compared.
struct Under {
    case: Case,
    /// A called function brings it about, by a store, on one side at least.
    by_store: bool,
}

struct Differ<'a> {
    abi: &'static Abi,
    fields: &'a Fields,
    /// Fields of which it is told that they lie elsewhere.
    told: BTreeSet<(Offset, Offset)>,
    /// The case is a way of its own on both sides.
    whole_way: bool,
    when: Option<Under>,
    all: Vec<Difference>,
}

impl Differ<'_> {
    fn say(
        &mut self,
        severity: Severity,
        better: bool,
        places: Places,
        about: impl Into<About>,
        was: Found,
        is: Found,
    ) {
        let About(spots) = about.into();
        // What shows in any case is no handler's fault; and where a thing is 0 or stored, its name is another.
        let by_store = self.by_store();
        let renamed = by_store || self.when.as_ref().is_some_and(|under| under.case.is_zero());
        let plain = (was.without_the_bit(), is.without_the_bit());
        let same = |d: &&mut Difference| {
            d.spots == spots
                && (d.severity == severity || by_store)
                && ((d.was.without_the_bit(), d.is.without_the_bit()) == plain
                    || renamed && places != (None, None) && (d.left, d.right) == places)
        };
        let case = self.when.as_ref().map(|under| under.case.clone());
        if let Some(known) = self.all.iter_mut().find(same) {
            known.when.extend(case);
            return;
        }
        let (left, right) = places;
        self.all.push(Difference { spots, severity, better, when: case.into_iter().collect(), was, is, left, right });
    }

    fn by_store(&self) -> bool {
        self.when.as_ref().is_some_and(|under| under.by_store)
    }

    /// What concerns the traced code; where a handler's store has brought it about, the handler.
    fn traced(&self) -> Severity {
        if self.by_store() { Severity::BreaksHandlers } else { Severity::BreaksTracedCode }
    }

    fn whole(&mut self, left: &Observed, right: &Observed) {
        self.when = None;
        if left.landing_pad != right.landing_pad {
            let better = left.landing_pad.iter().all(|what| right.landing_pad.contains(what));
            let [was, is] = [left, right].map(|o| Found::Names(o.landing_pad.clone()));
            self.say(Severity::BreaksTracedCode, better, (Some(0), Some(0)), Spot::LandingPad, was, is);
        }
        if left.returned_to != right.returned_to {
            let [was, is] = [left, right].map(|o| Found::Is(o.returned_to));
            self.say(Severity::BreaksTools, right.returned_to, (None, None), Spot::ReturnedTo, was, is);
        }
        if left.bytes != right.bytes {
            let [was, is] = [left, right].map(|o| Found::Number(o.bytes));
            self.say(Severity::CostOnly, right.bytes < left.bytes, (None, None), Spot::Bytes, was, is);
        }
    }

    fn way(&mut self, left: &Way, right: &Way, costs: bool) {
        self.whole_way = costs;
        self.leave(&left.leave, &right.leave);
        if left.leave.ends() && right.leave.ends() {
            self.returns(left, right);
            self.calls(left, right);
            self.unwind(&left.unwind, &right.unwind);
        }
        for (spot, l, r) in [
            (Spot::Below, &left.below, &right.below),
            (Spot::Crooked, &left.crooked, &right.crooked),
            (Spot::Astray, &left.astray, &right.astray),
            (Spot::Wide, &left.wide, &right.wide),
            (Spot::Shadow, &left.shadow, &right.shadow),
        ] {
            if l.is_empty() != r.is_empty() {
                let places = (l.first().copied(), r.first().copied());
                let [was, is] = [l, r].map(|all| Found::Is(!all.is_empty()));
                self.say(Severity::BreaksTracedCode, r.is_empty(), places, spot, was, is);
            }
        }
        let numbers = [
            (Spot::Instructions, left.instructions as u64, right.instructions as u64),
            (Spot::Stack, left.stack, right.stack),
        ];
        for (spot, l, r) in numbers.into_iter().filter(|(_, l, r)| costs && l != r) {
            self.say(Severity::CostOnly, r < l, (None, None), spot, Found::Number(l), Found::Number(r));
        }
    }

    fn leave(&mut self, left: &Leave, right: &Leave) {
        let (traced, places) = (self.traced(), (Some(left.at), Some(right.at)));
        let (End::Goes { to: l, by: l_by }, End::Goes { to: r, by: r_by }) = (&left.end, &right.end) else {
            let found = |leave: &Leave| leave.to().map_or(Found::End(leave.end.clone()), |to| Found::Value(to.clone()));
            if left.ends() != right.ends() {
                self.say(traced, right.ends(), places, Spot::To, found(left), found(right));
            }
            return;
        };
        if l != r {
            self.say(traced, false, places, Spot::To, value(l), value(r));
        }
        if left.sp != right.sp {
            self.say(traced, false, places, Spot::Sp, value(&left.sp), value(&right.sp));
        }
        if l_by != r_by {
            self.say(traced, false, places, Spot::By, Found::By(*l_by), Found::By(*r_by));
        }
        if left.trap != right.trap {
            let [was, is] = [left, right].map(|leave| Found::Is(leave.trap));
            self.say(Severity::BreaksTracedCode, right.trap, places, Spot::Trap, was, is);
        }
        self.registers(left, right);
        if left.flags != right.flags {
            let [was, is] = [left, right].map(|leave| Found::Is(leave.flags));
            self.say(traced, right.flags, places, Spot::Flags, was, is);
        }
        if !left.flags && !right.flags && left.flags_follow != right.flags_follow {
            let [was, is] = [left, right].map(|leave| Found::Is(leave.flags_follow));
            self.say(traced, false, places, Spot::FlagsFollow, was, is);
        }
        self.vectors(left, right, places);
        for (l, r) in [(&left.control, &right.control), (&left.unclear, &right.unclear)] {
            for (names, better) in [(only(r, l), false), (only(l, r), true)] {
                self.kept(traced, better, places, names.into_iter().map(Spot::Kept).collect());
            }
        }
        each(&left.memory, &right.memory, |at, l, r| {
            self.say(traced, r == Found::Nothing, places, Spot::CallerWord(*at), l, r);
        });
        each(&left.elsewhere, &right.elsewhere, |at, l, r| {
            self.say(traced, r == Found::Nothing, places, Spot::Memory(at.clone()), l, r);
        });
    }

    /// What is lost of vector registers; where that is the same, what is if functions that are called use general registers only.
    fn vectors(&mut self, left: &Leave, right: &Leave, places: Places) {
        // Of the other runs it is not known.
        let general = |leave: &Leave| leave.general_only.clone().filter(|_| self.whole_way).unwrap_or_default();
        let mut all = left.vectors.changes(&right.vectors);
        let known: Vec<&str> = all.iter().map(|(name, ..)| *name).collect();
        let others = general(left).changes(&general(right)).into_iter().filter(|(name, ..)| !known.contains(name));
        all.extend(others.collect::<Vec<_>>());
        let mut alike: Vec<(bool, Vec<Spot>)> = Vec::new();
        for (_, spot, better) in all {
            let is_alike = |spots: &[Spot]| spots.first().map(discriminant) == Some(discriminant(&spot));
            match alike.iter_mut().find(|(other, spots)| *other == better && is_alike(spots)) {
                Some((_, spots)) => spots.push(spot),
                None => alike.push((better, vec![spot])),
            }
        }
        let traced = self.traced();
        alike.into_iter().for_each(|(better, spots)| self.kept(traced, better, places, spots));
    }

    /// What is kept, or not any more, of several alike; nothing, if there are none.
    fn kept(&mut self, severity: Severity, better: bool, places: Places, spots: Vec<Spot>) {
        if !spots.is_empty() {
            self.say(severity, better, places, About(spots), Found::Is(!better), Found::Is(better));
        }
    }

    fn registers(&mut self, left: &Leave, right: &Leave) {
        let (traced, scratch) = (self.traced(), scratch(self.abi));
        let names: BTreeSet<&'static str> = left.changed.keys().chain(right.changed.keys()).copied().collect();
        let zero = match self.when.as_ref().and_then(|under| under.case.last()) {
            Some(Variation::Zero(value)) => value.register(),
            _ => None,
        };
        // What was 0 at the entry may be so again by chance.
        for name in names.into_iter().filter(|name| zero != Some(*name)) {
            let places = (left.writers.get(name).copied(), right.writers.get(name).copied());
            let free = self.abi.find(name).is_none_or(|reg| scratch.contains(reg));
            let spot = Spot::Register(name);
            match (left.changed.get(name), right.changed.get(name)) {
                (None, Some(now)) => self.say(traced, false, places, spot, Found::Nothing, value(now)),
                (Some(was), None) => {
                    let better = !was.is_relied_on() || free || self.is_second_result(was);
                    self.say(traced, better, places, spot, value(was), Found::Nothing);
                }
                (Some(was), Some(now)) if was != now && was.is_relied_on() && !free => {
                    self.say(traced, false, places, spot, value(was), value(now));
                }
                _ => {}
            }
        }
    }

    /// A second result is what a call leaves, more often than not.
    fn is_second_result(&self, value: &Value) -> bool {
        let second = self.abi.rets.iter().skip(1);
        matches!(value.term().root, Root::Left(_, reg) if value.term().part == Part::All && second.copied().any(|r| r == reg))
    }

    /// Calls and returns that pair.
    fn returns(&mut self, left: &Way, right: &Way) {
        let (l, r) = (left.mispaired.len(), right.mispaired.len());
        let places = (left.mispaired.first().copied(), right.mispaired.first().copied());
        let [was, is] = [l, r].map(|n| Found::Number(n as u64));
        if l != r {
            self.say(Severity::BreaksTracedCode, r < l, places, Spot::Mispaired, was, is);
        }
        let places = (Some(left.leave.at), Some(right.leave.at));
        if left.beyond != right.beyond && left.leave.to() == right.leave.to() {
            let [was, is] = [left, right].map(|way| Found::Values(way.beyond.clone()));
            self.say(Severity::BreaksTracedCode, false, places, Spot::Beyond, was, is);
        }
        if left.unreturned != right.unreturned {
            let [was, is] = [left, right].map(|way| Found::Number(way.unreturned as u64));
            let better = right.unreturned < left.unreturned;
            self.say(Severity::BreaksTracedCode, better, places, Spot::Unreturned, was, is);
        }
    }

    fn calls(&mut self, left: &Way, right: &Way) {
        if left.call.len() != right.call.len() {
            let [was, is] =
                [left, right].map(|way| Found::Values(way.call.iter().map(|call| call.callee.clone()).collect()));
            return self.say(Severity::BreaksHandlers, false, (None, None), Spot::Calls, was, is);
        }
        let alone = left.call.len() == 1;
        for (number, (l, r)) in (1..).zip(left.call.iter().zip(&right.call)) {
            self.call(CallOf { number, alone }, l, r);
        }
    }

    fn call(&mut self, which: CallOf, left: &Call, right: &Call) {
        let handlers = Severity::BreaksHandlers;
        let places = (Some(left.at), Some(right.at));
        let of = |spot| Spot::Call(which, spot);
        if left.callee != right.callee {
            self.say(handlers, false, places, of(CallSpot::Callee), value(&left.callee), value(&right.callee));
        }
        if left.by != right.by {
            let better = right.by == By { kind: Kind::Call, inside: None };
            self.say(Severity::CostOnly, better, places, of(CallSpot::By), Found::By(left.by), Found::By(right.by));
        }
        for (spot, l, r) in [
            (CallSpot::Aligned, left.aligned, right.aligned),
            (CallSpot::UsuallyAligned, left.usually_aligned, right.usually_aligned),
        ] {
            // Of the other runs it is not known what it is with another SP.
            if l != r && self.whole_way {
                self.say(handlers, r > l, places, of(spot), Found::Number(l), Found::Number(r));
            }
        }
        let abi = self.abi;
        let scratch = scratch(abi);
        each(&left.argument, &right.argument, |reg, l, r| {
            let known = abi.find(reg);
            // Who gets a pointer to what was saved does not look at what is left in the registers behind the arguments.
            let given = |call: &Call| call.pointer.is_some() && !call.given(abi).contains(reg);
            if known.is_some_and(|reg| abi.args.contains(&reg)) && given(left) && given(right) {
                return;
            }
            // What is live at the entry of few functions is lost either way.
            if l != Found::Nothing && r != Found::Nothing && known.is_some_and(|reg| scratch.contains(reg)) {
                return;
            }
            let places = (left.writers.get(reg).copied().or(places.0), right.writers.get(reg).copied().or(places.1));
            self.say(handlers, false, places, of(CallSpot::Argument(reg)), l, r);
        });
        each(&left.stack, &right.stack, |at, l, r| {
            self.say(handlers, false, places, of(CallSpot::StackArgument(*at)), l, r);
        });
        type Named = fn(&'static str) -> CallSpot;
        let lists: [(_, _, Named); 2] =
            [(&left.vectors, &right.vectors, CallSpot::Vector), (&left.flags, &right.flags, CallSpot::Flag)];
        for (l, r, spot) in lists {
            for (names, better) in [(only(r, l), false), (only(l, r), true)] {
                self.kept(handlers, better, places, names.into_iter().map(|name| of(spot(name))).collect());
            }
        }
        if left.chain != right.chain {
            let better = right.chain.len() > left.chain.len();
            let [was, is] = [left, right].map(|call| Found::Chain(call.chain.clone()));
            self.say(Severity::BreaksTools, better, places, of(CallSpot::Chain), was, is);
        }
        if left.pointer.is_some() && right.pointer.is_some() {
            self.frame(which, left, right);
        }
    }

    /// What the callee finds in the words that it has a pointer to.
    fn frame(&mut self, which: CallOf, left: &Call, right: &Call) {
        if left.frame == right.frame {
            return;
        }
        let of = |spot| Spot::Call(which, spot);
        if only_longer(&words_of(left), &words_of(right)) {
            let [was, is] = [left, right].map(|call| Found::Number(words_of(call).len() as u64 * 8));
            return self.say(Severity::LayoutOnly, false, (None, None), of(CallSpot::FrameBytes), was, is);
        }
        let elsewhere: BTreeMap<Offset, Offset> =
            elsewhere(left, right).into_iter().filter(|moved| !self.told.contains(moved)).collect();
        for run in together(&elsewhere) {
            self.told.extend(&run);
            let words: Vec<Value> = run.iter().filter_map(|(l, _)| left.frame.get(l).cloned()).collect();
            let Some(&(l, r)) = run.first() else { continue };
            let places = (left.slots.get(&l).copied(), right.slots.get(&r).copied());
            let (was, is) = (Found::At(l, words.clone()), Found::At(r, words));
            let spots = run.iter().map(|(l, _)| of(CallSpot::Moved(*l))).collect();
            self.say(Severity::BreaksHandlers, false, places, About(spots), was, is);
        }
        each(&left.frame, &right.frame, |at, l, r| {
            // Said by name already.
            let (from, to) = self.fields.moved(*at);
            let [was, is] = [left, right].map(|call| call.frame.get(at));
            if from || to && !was.is_some_and(Value::is_relied_on) {
                return;
            }
            let older = |word: Option<&Value>| word.is_some_and(Value::is_older);
            let severity = if was.is_none() || older(was) { Severity::LayoutOnly } else { Severity::BreaksHandlers };
            if was.is_none() && older(is) {
                return;
            }
            let places = (left.slots.get(at).copied(), right.slots.get(at).copied());
            self.say(severity, false, places, of(CallSpot::Word(*at)), l, r);
        });
    }

    /// What an unwinder finds, in the order of execution.
    fn unwind(&mut self, left: &[Unwound], right: &[Unwound]) {
        let tools = Severity::BreaksTools;
        if left.is_empty() && right.is_empty() {
            return;
        }
        if left.is_empty() != right.is_empty() {
            let [was, is] = [left, right].map(|all| Found::Is(!all.is_empty()));
            return self.say(tools, left.is_empty(), (None, None), Spot::UnwindTable, was, is);
        }
        let [l, r] = [left, right].map(|all| all.iter().map(Unwound::state).collect::<Vec<_>>());
        if l == r {
            return;
        }
        let (mut worse, mut better) = (false, false);
        for u in right.iter().filter(|u| !l.contains(&u.state())) {
            worse = true;
            self.say(tools, false, (None, Some(u.from)), Spot::Unwind, Found::Nothing, Found::Unwound(u.clone()));
        }
        for u in left.iter().filter(|u| !worse && !r.contains(&u.state())) {
            better = true;
            self.say(tools, true, (Some(u.from), None), Spot::Unwind, Found::Unwound(u.clone()), Found::Nothing);
        }
        if !worse && !better {
            let at =
                right.iter().zip(left).find(|(r, l)| r.state() != l.state()).map(|(r, l)| (Some(l.from), Some(r.from)));
            self.say(tools, false, at.unwrap_or_default(), Spot::Unwind, Found::Nothing, Found::Nothing);
        }
    }
}

/// What is different alike.
struct About(Vec<Spot>);

impl From<Spot> for About {
    fn from(spot: Spot) -> About {
        About(vec![spot])
    }
}

fn value(value: &Value) -> Found {
    Found::Value(value.clone())
}

/// What differs in two tables.
fn each<K: Ord>(left: &BTreeMap<K, Value>, right: &BTreeMap<K, Value>, mut say: impl FnMut(&K, Found, Found)) {
    let keys: BTreeSet<&K> = left.keys().chain(right.keys()).collect();
    for key in keys {
        let (l, r) = (left.get(key), right.get(key));
        if l != r {
            let [was, is] = [l, r].map(|side| side.map_or(Found::Nothing, value));
            say(key, was, is);
        }
    }
}

impl Way {
    /// Does it go elsewhere than the other one, or call another number of functions?
    fn parts_from(&self, other: &Way) -> bool {
        let [l, r] = [self, other].map(|way| (way.leave.to(), &way.leave.sp, way.call.len()));
        l != r
    }
}

impl Call {
    /// The argument registers up to the last one that was given something.
    fn given(&self, abi: &Abi) -> Vec<&'static str> {
        let names: Vec<&'static str> = abi.args.iter().map(|reg| abi.name(*reg)).collect();
        let meant = |value: &Value| value.is_relied_on() || value.term().is_small();
        let last = names.iter().rposition(|name| self.argument.get(name).is_some_and(meant));
        names.into_iter().take(last.map_or(0, |last| last + 1)).collect()
    }
}

impl Vectors {
    /// The registers of which the other one loses more or less: which, what of it, and whether it is kept there.
    fn changes(&self, other: &Vectors) -> Vec<(&'static str, Spot, bool)> {
        let all = [self, other].into_iter().flat_map(|side| side.vectors.iter().chain(&side.upper_halves));
        let mut names: Vec<&'static str> = Vec::new();
        for name in all {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let change = |name: &'static str| {
            let [l, r] = [self, other].map(|side| side.vectors.contains(&name));
            let [l_upper, r_upper] =
                [self, other].map(|side| side.vectors.contains(&name) || side.upper_halves.contains(&name));
            match (l != r, l_upper != r_upper) {
                (true, true) => Some((name, Spot::Kept(name), l)),
                (true, false) => Some((name, Spot::LowerHalf(name), l)),
                (false, true) => Some((name, Spot::UpperHalf(name), l_upper)),
                (false, false) => None,
            }
        };
        names.into_iter().filter_map(change).collect()
    }
}

fn only(these: &[&'static str], those: &[&'static str]) -> Vec<&'static str> {
    these.iter().filter(|name| !those.contains(name)).copied().collect()
}
