//! Nodes for pending returns of kretprobes: one pool for all threads.

use crate::task::Task;
use crate::word::Word;

/// The number of nodes: the most returns pending on all threads together.
pub(crate) const NODES: usize = 64;
/// The number of data words in a node.
const DATA: usize = 8;
/// A pending return.
#[derive(Debug)]
pub(crate) struct Node {
    /// The id of the probe; 0 while the node is free.
    pub(crate) owner: Word,
    /// The function's original return address.
    pub(crate) ret: Word,
    pub(crate) ip: Word,
    /// The address at which the return address lay.
    pub(crate) retp: Word,
    /// The end of the thread's shadow stack at the entry: frames that begin below are older.
    pub(crate) top: Word,
    /// Index plus one of the node that was pending before.
    pub(crate) next: Word,
    pub(crate) data: [Word; DATA],
}

impl Node {
    const fn new() -> Self {
        let data = [const { Word::new(0) }; DATA];
        let [owner, ret, ip, retp, top, next] = [const { Word::new(0) }; 6];
        Self { owner, ret, ip, retp, top, next, data }
    }
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Pool([Node; NODES]);

impl Pool {
    pub(crate) const fn new() -> Self {
        Self([const { Node::new() }; NODES])
    }

    /// The pending returns of a thread, the latest first.
    pub(crate) fn pending(&self, task: &Task) -> impl Iterator<Item = &Node> {
        let mut at = task.pending.index();
        core::iter::from_fn(move || {
            let node = self.0.get(at.checked_sub(1)?)?;
            at = node.next.index();
            Some(node)
        })
    }

    pub(crate) fn is_free(&self) -> bool {
        self.0.iter().all(|n| n.owner.get() == 0)
    }

    /// Take a free node for a probe. Returns its index plus one, as in lists, and the node.
    pub(crate) fn take(&self, owner: u64, most: usize) -> Option<(u64, &Node)> {
        if self.0.iter().filter(|n| n.owner.get() == owner).count() >= most {
            return None;
        }
        let (index, node) = self.0.iter().enumerate().find(|(_, n)| n.owner.swap_if(0, owner))?;
        node.data.iter().for_each(|w| w.set(0));
        Some((index as u64 + 1, node))
    }
}
