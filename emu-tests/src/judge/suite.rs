//! What is judged: objects, their contracts, and what is known not to hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use codegen::arch::patch::{Patch, Poke, SiteState, Write};
use codegen::arch::site::{Site, Spot};
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::profile::Convention;
use codegen::words::error::Result;
use codegen::words::step::ExitPath;
use wildmatch::WildMatch;

use crate::engine::disasm::Decoded;
use crate::engine::emulator::Emulator;
use crate::judge::trace::Finding;
use crate::report::Clause;
use crate::report::place::Place;
use crate::report::reason::Reason;
use crate::run::replay::Chosen;

/// The trampolines of one architecture under one set of options, to be judged.
#[derive(Clone)]
pub struct Suite {
    /// The architecture.
    pub backend: &'static dyn Backend,
    /// What the profile says of it.
    pub convention: &'static Convention,
    /// The objects that define the trampolines, with their names.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Their contracts, one per trampoline.
    pub contracts: Vec<Contract>,
    /// Trampolines of the same contract that none of the objects defines.
    pub missing: Vec<Missing>,
    /// What is known not to hold.
    pub deviations: Vec<Deviation>,
    /// Labels of the call slots that the kernel patches.
    pub slots: Vec<String>,
    /// What the objects leave undefined becomes functions that return at once.
    pub stubs: bool,
    /// Places in the trampolines that the kernel may patch when it boots. The objects have them as assembled, unless `chosen` says
    /// that they are replaced.
    pub alternatives: Vec<String>,
    /// `name=value` for every option.
    pub options: String,
    /// What makes the command line choose this suite again.
    pub chosen: Chosen,
    /// Offsets in what `op` points to, of the function to call and of the direct trampoline; where a trampoline reads them.
    pub op_offsets: Option<(u64, u64)>,
    /// Notes by symbol and offset, for the lines around a failure.
    pub notes: BTreeMap<(String, u64), String>,
    /// What instructions read where they were found, by symbol and offset, if they are run elsewhere.
    pub written: BTreeMap<(String, u64), Arc<str>>,
    /// What runs them.
    pub engine: Emulator,
    /// How sites are patched: [`BY_THE_PROFILE`], or what a test puts in its place.
    pub poke: Poker,
}

/// A trampoline that a contract has, and none of the objects that were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Its symbol.
    pub symbol: String,
    /// The contract says that its trampolines are of several objects, so that this one is none of those that were meant.
    pub elsewhere: bool,
    /// What may help to find it, to be put behind a sentence; it may be empty.
    pub hint: String,
    /// Why it is not judged.
    pub reason: Reason,
}

impl Missing {
    /// A trampoline that is there, and cannot be judged.
    pub fn unjudged(symbol: String, why: &str) -> Missing {
        Missing { symbol, elsewhere: false, hint: format!(": {why}"), reason: Reason::CannotBeJudged }
    }
}

/// Switches a site, as [`Site::poke`].
pub type Poker = fn(&Site, &dyn Patch, Spot, SiteState) -> Result<Vec<Poke>>;

/// As the profile says.
pub const BY_THE_PROFILE: Poker = |site, arch, spot, state| site.poke(arch, spot, state);

impl Suite {
    /// How many objects come before ours when they are linked: those that others wrote.
    pub(crate) fn first(&self) -> usize {
        if self.stubs { self.objects.len() } else { 0 }
    }

    /// The writes that put a site into a state, while CPUs run.
    pub(crate) fn pokes(&self, spot: Spot, state: SiteState) -> Result<Vec<Poke>> {
        (self.poke)(&self.convention.site, self.backend, spot, state)
    }

    /// All writes that put a site into a state.
    pub(crate) fn writes(&self, spot: Spot, state: SiteState) -> Result<Vec<Write>> {
        let mut all = self.convention.site.initial(self.backend, spot, state)?;
        all.extend(self.pokes(spot, state)?.into_iter().map(|poke| poke.write));
        Ok(all)
    }
}

/// The places of a CPU that is in a site, and not at its first instruction.
const INSIDE_A_SITE: &str = "cpu:ip+*";

/// A clause that does not hold, as the contract says with a reason.
#[derive(Clone, Debug)]
pub struct Deviation {
    /// Number of the contract.
    pub trampoline: usize,
    /// The clause.
    pub clause: Clause,
    /// The place by its id, with or without `@` and the instruction; `*` stands for any text, `?` for a character.
    pub place: String,
    /// Only on this way out.
    pub way: Option<ExitPath>,
    /// Only if so much more is found than is expected.
    pub by: Option<i64>,
    /// Only in this stretch of the trampoline.
    pub stretch: Option<Stretch>,
    /// Only in some configurations of the kernel, and which it is is not known.
    pub perhaps: bool,
    /// Why it does not hold.
    pub reason: String,
}

/// Instructions of a trampoline, by the text of those around them.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// They come behind the last instruction that begins so.
    pub behind: String,
    /// The last of them is the first that begins so; without it, that at the end.
    pub until: Option<String>,
}

impl Stretch {
    /// Is the instruction at this address among them?
    pub(crate) fn has(&self, lines: &[Decoded], at: u64) -> bool {
        let Some(first) = lines.iter().rposition(|line| line.text.starts_with(&self.behind)) else { return false };
        let behind = &lines[first + 1..];
        let last = self.until.as_ref().and_then(|until| behind.iter().position(|line| line.text.starts_with(until)));
        behind[..last.map_or(behind.len(), |last| last + 1)].iter().any(|line| line.at == at)
    }
}

impl Deviation {
    /// What no trampoline can help: the sites of the architecture may not be patched while a CPU is in them.
    pub fn of_sites<'c>(
        convention: &Convention,
        contracts: impl Iterator<Item = &'c Contract>,
    ) -> impl Iterator<Item = Deviation> {
        let reason = convention.site.between;
        let all = contracts.enumerate().filter(|(_, c)| c.kind.attaches() && !c.kind.is_led_to());
        let each = move |(trampoline, _)| Some((trampoline, reason?));
        all.filter_map(each).map(|(trampoline, reason): (usize, &str)| Deviation {
            trampoline,
            clause: Clause::P18,
            place: INSIDE_A_SITE.to_owned(),
            way: None,
            by: None,
            stretch: None,
            perhaps: false,
            reason: reason.to_owned(),
        })
    }

    /// Is it about what an unwind table says?
    pub(crate) fn is_of_table(&self) -> bool {
        self.clause == Clause::P12 && self.place.starts_with("unwind:")
    }

    /// Is this finding expected? At the instruction `at`, if the place names one.
    pub(crate) fn covers(&self, finding: &Finding, at: &str) -> bool {
        self.names(finding, at).is_some()
    }

    /// How the place of an expected finding is named.
    pub(crate) fn names(&self, finding: &Finding, at: &str) -> Option<Naming> {
        if (self.trampoline, self.clause) != (finding.trampoline, finding.clause) {
            return None;
        }
        let elsewhere = self.way.is_some() && self.way != finding.way;
        if elsewhere || (self.by.is_some() && self.by != finding.difference()) {
            return None;
        }
        self.names_place(&finding.place, at)
    }

    /// The same, of a place at the instruction `at`, whatever is found there.
    pub(crate) fn names_place(&self, place: &Place, at: &str) -> Option<Naming> {
        let pattern = WildMatch::new(&self.place);
        let id = place.id();
        if pattern.matches(&id) {
            return Some(Naming::ById);
        }
        let (id_at, said) = (format!("{id}@{at}"), place.to_string());
        if pattern.matches(&id_at) {
            Some(Naming::ById)
        } else if pattern.matches(&said) {
            Some(Naming::BySentence { id })
        } else {
            pattern.matches(&format!("{said} at {at}")).then_some(Naming::BySentence { id: id_at })
        }
    }
}

/// How a deviation names a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Naming {
    ById,
    /// By the sentence of reports, as contracts did before there were ids. Understood for one release.
    BySentence {
        /// What it should say.
        id: String,
    },
}

#[cfg(test)]
mod tests {
    use codegen::arch::machine::Goes;

    use super::*;
    use crate::judge::trace::At;
    use crate::report::place::Slot;

    fn deviation(clause: Clause, place: &str) -> Deviation {
        let (place, reason) = (place.to_owned(), "known".to_owned());
        Deviation { trampoline: 1, clause, place, way: None, by: None, stretch: None, perhaps: false, reason }
    }

    fn finding(clause: Clause, place: impl Into<Place>) -> Finding {
        Finding::new(At { clause, trampoline: 1, pc: 0x1012 }, place, 1, 0)
    }

    fn by_sentence(id: &str) -> Option<Naming> {
        Some(Naming::BySentence { id: id.to_owned() })
    }

    #[test]
    fn a_place_is_named_by_its_id_with_or_without_the_instruction() {
        let slot = finding(Clause::P10, Slot("lr"));
        let named = |place: &str| deviation(Clause::P10, place).names(&slot, "my_tramp+0x12");
        for place in ["slot:lr", "slot:*", "*", "slot:lr@my_tramp+0x12", "slot:??@my_tramp+0x1?", "*@my_tramp+0x12"] {
            assert_eq!(named(place), Some(Naming::ById), "{place}");
        }
        for place in ["slot:l", "slot:lr:written", "slot:lr@my_tramp+0x13", "lr", "", "slot:lr at my_tramp+0x12"] {
            assert_eq!(named(place), None, "{place}");
        }
    }

    #[test]
    fn the_sentences_of_older_contracts_are_understood_and_told() {
        let slot = finding(Clause::P10, Slot("lr"));
        let named = |place: &str| deviation(Clause::P10, place).names(&slot, "my_tramp+0x12");
        assert_eq!(named("fregs->lr*"), by_sentence("slot:lr"));
        assert_eq!(named("fregs->lr at my_tramp+0x12"), by_sentence("slot:lr@my_tramp+0x12"));
        let modulo = finding(Clause::P8, Place::SpModulo);
        assert_eq!(deviation(Clause::P8, "sp modulo *").names(&modulo, ""), by_sentence("sp-align"));
    }

    #[test]
    fn a_stretch_begins_behind_the_last_instruction_and_has_its_end() {
        let texts = ["popf", "ret", "and x", "mov y", "popfq", "ret", "int3"];
        let line = |(n, text): (usize, &&str)| Decoded {
            at: n as u64,
            size: 1,
            text: (*text).into(),
            mnemonic: 0,
            branch: None,
            goes: Goes::On,
            target: None,
            last: false,
            filler: false,
        };
        let lines: Vec<Decoded> = texts.iter().enumerate().map(line).collect();
        let of = |behind: &str, until: Option<&str>| -> Vec<u64> {
            let stretch = Stretch { behind: behind.to_owned(), until: until.map(str::to_owned) };
            (0..9).filter(|at| stretch.has(&lines, *at)).collect()
        };
        assert_eq!(of("popf", None), [5, 6]);
        assert_eq!(of("and", Some("popf")), [3, 4]);
        assert_eq!(of("and", Some("jmp")), [3, 4, 5, 6], "there is no such end");
        assert_eq!(of("jmp", None), [0; 0], "there is no such beginning");
    }

    #[test]
    fn a_deviation_of_one_way_out_or_one_difference_excuses_no_other() {
        let on = |way| Finding { way, ..finding(Clause::P6, Place::Reg { name: "rflags" }) };
        let direct = Deviation { way: Some(ExitPath::Direct), ..deviation(Clause::P6, "rflags") };
        let ways = [Some(ExitPath::Direct), Some(ExitPath::Function), None];
        assert_eq!(ways.map(|way| direct.covers(&on(way), "")), [true, false, false]);
        assert!(deviation(Clause::P6, "rflags").covers(&on(None), ""));
        let ip = |found: u64| Finding::new(At { clause: Clause::P10, trampoline: 1, pc: 0 }, Place::Ip, 0x1000, found);
        let four = Deviation { by: Some(4), ..deviation(Clause::P10, "ip") };
        assert_eq!([0x1004, 0x1008, 0xffc].map(|found| four.covers(&ip(found), "")), [true, false, false]);
        let below = Deviation { by: Some(-4), ..four };
        assert!(below.covers(&ip(0xffc), ""));
    }

    #[test]
    fn another_clause_or_trampoline_is_not_covered() {
        let here = finding(Clause::P10, Place::Ip);
        assert!(deviation(Clause::P10, "*").covers(&here, ""));
        assert!(!deviation(Clause::P9, "*").covers(&here, ""));
        assert!(!Deviation { trampoline: 0, ..deviation(Clause::P10, "*") }.covers(&here, ""));
    }

    /// What the sites of an architecture cannot help concerns CPUs behind the site's first byte.
    #[test]
    fn only_a_cpu_inside_a_site_is_excused() {
        let cpu = |ip| Place::Cpu {
            switch: "switched on",
            done: 1,
            of: 2,
            ip: crate::report::place::SiteOffset(ip),
            since: 0,
            wrong: Box::new(Place::Breakpoint),
        };
        let excused = |ip| deviation(Clause::P18, INSIDE_A_SITE).covers(&finding(Clause::P18, cpu(ip)), "");
        assert_eq!([-4, 0, 4].map(excused), [false, false, true]);
    }
}
