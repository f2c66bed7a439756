//! Where in a traced call a run is.

use codegen::abi::RegSet;
use codegen::spec::Kind;

use super::Trace;
use crate::cpu::{STACK_SIZE, STACK_TOP, Snapshot};
use crate::flow::ReturnStack;

/// Between a site and the resumption.
#[derive(Debug)]
pub(crate) struct Activation {
    /// State at the site, with what the callback changed put in.
    pub expect: Snapshot,
    pub sp: u64,
    pub pc: u64,
    pub parent: u64,
    /// Where the function must go on, and with which return address.
    pub resume: u64,
    pub returns_to: u64,
    pub(super) kept: RegSet,
    pub(super) flags_kept: bool,
    pub(super) redirected: bool,
    /// A direct trampoline was entered on the way.
    pub(super) dispatched: bool,
    /// Callbacks and functions of direct trampolines that were called.
    pub(super) calls: u64,
}

/// A return address that a callback replaced.
#[derive(Debug)]
pub(crate) struct Hooked {
    pub(super) parent: u64,
    pub(super) sp: u64,
}

/// A paired trampoline while the function that it called runs.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) index: usize,
    pub(super) parent: u64,
    pub(super) resume: u64,
    /// SP and frame pointer at the site.
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// Where the function returns to, and SP then.
    pub(super) back: u64,
    pub(super) back_sp: u64,
    pub(super) epoch: u32,
    pub(super) returns: ReturnStack,
    /// The arguments, as programs are shown them.
    pub(super) words: Vec<u64>,
}

/// Between the end of the traced function, where a trampoline is told of it, and the parent.
#[derive(Debug)]
pub(crate) struct Exiting {
    pub expect: Snapshot,
    pub parent: u64,
    /// Where the traced function went on behind its site; 0 if the trampoline does not know it.
    pub resume: u64,
    /// SP in the parent.
    pub sp: u64,
    pub(super) calls: u64,
    /// The arguments, as programs are shown them.
    pub(super) words: Vec<u64>,
}

impl Trace {
    pub(super) fn begin_activation(&mut self, expect: Snapshot, sp: u64, resume: u64, parent: u64, index: usize) {
        self.sites_seen += 1;
        self.next_epoch();
        self.frame_top = sp;
        if let (Some(registers), true) = (self.registers, self.kind(index).is_some_and(Kind::is_shadow)) {
            // It has the return address to itself, which a call may have written there.
            self.frame_top = sp.wrapping_add(registers.abi.return_bytes());
            let slot = sp.wrapping_sub(STACK_TOP - STACK_SIZE) / 8;
            self.written.get_mut(slot as usize).into_iter().for_each(|written| *written = self.epoch);
        }
        self.activations.push(Activation {
            expect,
            sp,
            pc: resume,
            parent,
            resume,
            returns_to: parent,
            kept: RegSet::EMPTY,
            flags_kept: true,
            redirected: false,
            dispatched: false,
            calls: 0,
        });
        self.current = Some(index);
        // The last call was that at the site, or, if the site jumped, that of the function.
        self.returns.begin(Some(if self.jumped_to() { parent } else { resume }));
        self.entered |= 1 << index;
        if let (Some(a), Some(c)) = (self.activations.last_mut(), self.contracts.get(index)) {
            (a.kept, a.flags_kept) = (c.kept, c.flags_kept);
        }
    }

    pub(super) fn next_epoch(&mut self) {
        self.epochs += 1;
        self.epoch = self.epochs;
    }

    /// What this trampoline does.
    pub(super) fn kind(&self, index: usize) -> Option<Kind> {
        self.contracts.get(index).map(|c| c.kind)
    }

    /// Does the trampoline at work call the traced function?
    pub(crate) fn calls_body(&self) -> bool {
        self.kind(self.trampoline()).is_some_and(Kind::calls_body)
    }

    /// Does the site jump to the trampoline at work?
    pub(crate) fn jumped_to(&self) -> bool {
        self.kind(self.trampoline()).is_some_and(Kind::jumped_to)
    }
}
