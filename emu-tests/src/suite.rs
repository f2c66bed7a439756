//! What is judged: objects, their contracts, and what is known not to hold.

use std::collections::BTreeMap;

use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::error::Result;
use codegen::patch::{Poke, SiteState, Write};
use link::SiteEntry;
use wildmatch::WildMatch;

use crate::report::Clause;
use crate::trace::Finding;

/// The trampolines of one architecture under one set of options, to be judged.
#[derive(Clone)]
pub struct Suite {
    /// The architecture.
    pub backend: &'static dyn Backend,
    /// The objects that define the trampolines, with their names.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Their contracts, one per trampoline.
    pub contracts: Vec<Contract>,
    /// What is known not to hold.
    pub deviations: Vec<Deviation>,
    /// Labels of the call slots that the kernel patches.
    pub slots: Vec<String>,
    /// Variables that hold the address of a function, with its name.
    pub pointers: Vec<(String, String)>,
    /// What the objects leave undefined becomes functions that return at once.
    pub stubs: bool,
    /// Places in the trampolines that the kernel may patch when it boots; the objects' own instructions are run.
    pub alternatives: Vec<String>,
    /// `name=value` for every option.
    pub options: String,
    /// What makes the command line choose these options again.
    pub replay: String,
    /// Offsets of `func` and `direct_call` in `struct ftrace_ops`.
    pub op_offsets: (u64, u64),
    /// Notes by symbol and offset, for the lines around a failure.
    pub notes: BTreeMap<(String, u64), String>,
    /// How sites are patched: [`BY_THE_BACKEND`], or what a test puts in its place.
    pub poke: Poker,
}

/// Switches the site at an address, as [`Backend::poke_site`].
pub type Poker = fn(&dyn Backend, u64, SiteState, bool) -> Result<Vec<Poke>>;

/// As the architecture's kernel does it.
pub const BY_THE_BACKEND: Poker = |backend, ip, state, has_op| backend.poke_site(ip, state, has_op);

impl Suite {
    /// How many objects come before ours when they are linked: those that others wrote.
    pub(crate) fn first(&self) -> usize {
        if self.stubs { self.objects.len() } else { 0 }
    }

    /// The writes that put a site into a state.
    pub(crate) fn writes(&self, site: &SiteEntry, state: SiteState) -> Result<Vec<Write>> {
        let pokes = (self.poke)(self.backend, site.ip, state, site.has_op)?;
        Ok(pokes.into_iter().map(|poke| poke.write).collect())
    }
}

/// A clause that does not hold, as the contract says with a reason.
#[derive(Clone, Debug)]
pub struct Deviation {
    /// Number of the contract.
    pub trampoline: usize,
    /// The clause.
    pub clause: Clause,
    /// The register, slot or place, with or without ` at ` and the instruction; `*` stands for any text.
    pub place: String,
    /// Why it does not hold.
    pub reason: String,
}

impl Deviation {
    /// What no trampoline can help: the sites of the architecture may not be patched while a CPU is in them.
    pub fn of_sites<'c>(
        backend: &dyn Backend,
        contracts: impl Iterator<Item = &'c Contract>,
    ) -> impl Iterator<Item = Deviation> {
        let reason = backend.facts().site.between;
        let all = contracts.enumerate().filter(move |(_, c)| c.kind.attaches() && !reason.is_empty());
        all.map(move |(trampoline, _)| Deviation {
            trampoline,
            clause: Clause::P18,
            place: "*CPU at ip+?*".to_owned(),
            reason: reason.to_owned(),
        })
    }

    pub(crate) fn covers(&self, finding: &Finding, at: &str) -> bool {
        let place = WildMatch::new(&self.place);
        let said = finding.place.to_string();
        (self.trampoline, self.clause) == (finding.trampoline, finding.clause)
            && (place.matches(&said) || place.matches(&format!("{said} at {at}")))
    }
}
