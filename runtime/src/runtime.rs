//! The state of the core that all threads share.

use crate::errno::Result;
use crate::pool::Pool;
use crate::sites::{Site, Sites};
use crate::task::GRAPH_USERS;
use crate::users::Users;
use crate::word::Word;

/// The most ops, including the ops of the graph and of probes.
pub const OPS: usize = 24;
/// The most fprobes.
pub const FPROBES: usize = 32;
/// The most kretprobes.
pub const KRETPROBES: usize = 16;

/// The trampolines to which replaced return addresses lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trampolines {
    /// The address of the function graph's trampoline.
    pub return_to_handler: u64,
    /// The address of the kretprobes' trampoline.
    pub rethook: u64,
}

/// The state shared by all threads, for up to 64 × `W` functions. It allocates nothing.
///
/// Trampolines may enter it on any thread at any time. Callers that register and unregister hold a lock of the layer above.
#[derive(Debug)]
pub struct Runtime<'s, const W: usize> {
    pub(crate) sites: Sites<'s>,
    /// A cache of the functions' indices in the list, by a hash of their addresses.
    found: [[Word; 64]; W],
    pub(crate) trampolines: Trampolines,
    pub(crate) ops: Users<W, OPS>,
    /// The slot bit of the function graph's ops; 0 if there is none.
    pub(crate) of_graph: Word,
    pub(crate) graph: Users<W, GRAPH_USERS>,
    /// The slot bit of the graph user that stands for all fprobes with an exit handler; 0 if there is none.
    pub(crate) of_fprobes: Word,
    /// Slots of graph users in the order of their next use: a released slot comes last.
    pub(crate) turns: [Word; GRAPH_USERS],
    pub(crate) fprobes: Users<W, FPROBES>,
    pub(crate) kretprobes: Users<W, KRETPROBES>,
    pub(crate) pool: Pool,
    /// The number of registrations of any kind so far.
    clock: Word,
}

impl<'s, const W: usize> Runtime<'s, W> {
    /// A core that traces nothing yet.
    ///
    /// # Errors
    /// `EINVAL`: the sites are not sorted. `E2BIG`: there are more than 64 × `W` sites.
    pub fn new(sites: &'s [Site<'s>], trampolines: Trampolines) -> Result<Self> {
        Ok(Self {
            sites: Sites::new(sites, 64 * W)?,
            found: [const { [const { Word::new(0) }; 64] }; W],
            trampolines,
            ops: Users::new(),
            of_graph: Word::new(0),
            graph: Users::new(),
            of_fprobes: Word::new(0),
            turns: core::array::from_fn(|slot| Word::new(slot as u64)),
            fprobes: Users::new(),
            kretprobes: Users::new(),
            pool: Pool::new(),
            clock: Word::new(1),
        })
    }

    /// The functions that can be traced.
    #[must_use]
    pub const fn sites(&self) -> &Sites<'s> {
        &self.sites
    }

    /// The index of a function in the list. It is cached until another function takes its place in the table.
    pub(crate) fn site(&self, ip: u64) -> Option<usize> {
        // Fibonacci hashing: the upper bits differ if addresses differ. Use about as many bits as index the table.
        let hash = ip.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - (64 * W + 1).ilog2().max(1));
        let found = self.found.as_flattened().get(hash as usize)?;
        let site = found.index();
        if self.sites.all().get(site).is_some_and(|s| s.ip == ip) {
            return Some(site);
        }
        self.look_for(ip, found)
    }

    #[cold]
    fn look_for(&self, ip: u64, found: &Word) -> Option<usize> {
        self.sites.find(ip).inspect(|site| found.set(*site as u64))
    }

    /// The number of a new registration.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.add(1) + 1
    }

    /// The number of the latest registration.
    pub(crate) fn now(&self) -> u64 {
        self.clock.get()
    }
}
