//! Calls by the calls that they lie in: each way to a function, with its times.

use std::io::{Read, Seek};

use codegen::words::error::Result;
use rustc_hash::FxHashMap;

use crate::calls::Step;
use crate::filter::{Filter, Shown};
use crate::recording::Recording;
use crate::steps::Steps;

/// A way to a function.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Node {
    /// The function's number.
    pub function: u32,
    /// The number of calls that surround it.
    pub depth: usize,
    /// The number of calls that went this way.
    pub calls: u64,
    /// The time of these calls.
    pub total: u64,
    /// The time of these calls outside of callees.
    pub own: u64,
    /// The nodes of functions that they called, in the order of the first call.
    pub callees: Vec<usize>,
}

/// All ways.
#[derive(Default)]
pub struct Tree {
    /// The ways, callers before callees.
    pub nodes: Vec<Node>,
    /// Those that begin.
    pub roots: Vec<usize>,
    /// Calls that lay deeper than [`Tree::DEEPEST`]. The calls around them have their time as their own.
    pub deeper: u64,
    by_caller: FxHashMap<(Option<usize>, u32), usize>,
}

impl Tree {
    /// The greatest depth of ways. Recursion may go on for millions.
    pub const DEEPEST: usize = 1000;

    /// The ways of all threads.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of<R: Read + Seek>(recording: &Recording<R>, filter: &Filter) -> Result<Tree> {
        let mut tree = Tree::default();
        for thread in &recording.threads {
            tree.add(Steps::new(recording, thread, filter))?;
        }
        Ok(tree)
    }

    /// The node of a function, as this one calls it.
    pub fn callee(&self, caller: Option<usize>, function: u32) -> Option<usize> {
        self.by_caller.get(&(caller, function)).copied()
    }

    /// Add the ways of a thread.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn add<R: Read + Seek>(&mut self, mut steps: Steps<R>) -> Result<()> {
        let mut open: Vec<usize> = Vec::new();
        while let Some(Shown { step, own }) = steps.next_step()? {
            match step {
                Step::Begin(call) if call.depth >= Tree::DEEPEST => self.deeper += 1,
                Step::Begin(call) => open.push(self.node(open.last().copied(), call.function, call.depth)),
                Step::End(call) if call.depth >= Tree::DEEPEST => {}
                Step::End(call) => {
                    let Some(node) = open.pop().and_then(|node| self.nodes.get_mut(node)) else { continue };
                    node.calls += 1;
                    node.total = node.total.saturating_add(call.total());
                    let cuts_off = call.depth + 1 == Tree::DEEPEST;
                    node.own = node.own.saturating_add(if cuts_off { call.total() } else { own });
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, caller: Option<usize>, function: u32, depth: usize) -> usize {
        let Tree { nodes, roots, by_caller, .. } = self;
        *by_caller.entry((caller, function)).or_insert_with(|| {
            let index = nodes.len();
            nodes.push(Node { function, depth, ..Node::default() });
            match caller.and_then(|caller| nodes.get_mut(caller)) {
                Some(caller) => caller.callees.push(index),
                None => roots.push(index),
            }
            index
        })
    }

    /// The nodes, callers before callees, those of the most time first.
    pub fn walk(&self) -> Vec<usize> {
        let sorted = |nodes: &[usize]| {
            let mut nodes = nodes.to_vec();
            // The last is taken first.
            nodes.sort_by_key(|node| self.nodes[*node].total);
            nodes
        };
        let (mut todo, mut order) = (sorted(&self.roots), Vec::with_capacity(self.nodes.len()));
        while let Some(node) = todo.pop() {
            order.push(node);
            todo.extend(sorted(&self.nodes[node].callees));
        }
        order
    }
}
