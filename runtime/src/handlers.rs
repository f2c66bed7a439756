//! Whom the core calls, and what they are shown.

use core::cell::Cell;

use crate::task::{FRAME, Task, length, reference};
use crate::word::Data;

/// Registers and hooks at a traced entry or return. The layer that knows the machine fills it and applies what changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regs {
    /// Where the function goes on, or where the return goes to.
    pub ip: u64,
    /// The cell with the return address.
    pub parent: u64,
    /// Where that cell lies: it tells frames apart whose functions were left without returning.
    pub retp: u64,
    /// Arguments at an entry.
    pub args: [u64; 8],
    /// The result at a return.
    pub retval: u64,
    /// A direct trampoline to go through, or 0.
    pub direct: u64,
}

/// One call of a traced function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub ip: u64,
    /// Whom it returns to: the true caller, also where other hooks replaced the address, or it leads to a paired trampoline.
    pub parent_ip: u64,
    /// How many hooked functions the thread is in, from 0.
    pub depth: u64,
}

/// What runs for users. They are named by the addresses of their objects; `true` from an entry handler asks for the return.
///
/// A handler may call traced functions (they are not traced then), be interrupted by traced code, and register and
/// unregister whomever it likes, itself too.
pub trait Handlers {
    /// Whom a function returns to in the end whose return address is `parent` and lies at `retp`. A function that jumps to another
    /// one from within a paired trampoline leaves it a return address there: the layer has the caller of the one that jumped.
    fn caller(&self, parent: u64, _retp: u64) -> u64 {
        parent
    }

    /// An ops' callback. Only those with IPMODIFY change `regs.ip`.
    fn callback(&self, _ops: u64, _private: u64, _call: &Call, _regs: &mut Regs) {}

    /// A user of the function graph sees an entry, and may reserve data for the return.
    fn graph_entry(&self, _user: u64, _call: &Call, _regs: &Regs, _room: &Room) -> bool {
        false
    }

    /// And the return that it asked for.
    fn graph_return(&self, _user: u64, _call: &Call, _regs: &mut Regs, _data: Option<Data>) {}

    /// A probe sees an entry. One without exit handler has no data, and its answer means nothing.
    fn fprobe_entry(&self, _probe: u64, _call: &Call, _regs: &Regs, _data: Option<Data>) -> bool {
        true
    }

    /// And the return.
    fn fprobe_exit(&self, _probe: u64, _call: &Call, _regs: &mut Regs, _data: Option<Data>) {}

    /// A kretprobe sees an entry.
    fn kretprobe_entry(&self, _probe: u64, _call: &Call, _regs: &Regs, _data: Data) -> bool {
        true
    }

    /// And the return.
    fn kretprobe_return(&self, _probe: u64, _call: &Call, _regs: &mut Regs, _data: Data) {}
}

/// Room for a user's data on the shadow stack, during its entry handler.
#[derive(Debug)]
pub struct Room<'t> {
    task: &'t Task,
    /// Where the frame begins.
    frame: usize,
    /// Its words, with what is reserved.
    length: Cell<usize>,
    /// What the reference word of the data begins with: whose they are, and how long the frame was before them.
    reference: Cell<u64>,
}

impl<'t> Room<'t> {
    /// Behind the frame that begins there, and that has no data yet.
    pub(crate) fn new(task: &'t Task, frame: usize) -> Self {
        Self { task, frame, length: Cell::new(FRAME), reference: Cell::new(0) }
    }

    /// From now on for the user in this slot.
    pub(crate) fn give(&self, owner: usize) {
        self.reference.set(reference(owner, self.length.get()));
    }

    /// The user does not want the return: its data go.
    pub(crate) fn take_back(&self) {
        let before = length(self.reference.get());
        self.length.set(before);
        self.task.cut(self.frame + before);
    }

    /// Where the frame begins.
    pub(crate) fn frame(&self) -> usize {
        self.frame
    }

    /// The kernel's `fgraph_reserve_data`: so many bytes, rounded up to words and cleared, until the function returns.
    ///
    /// None if there is no room, for 0 and for more than 256 bytes, and from the second time on in one entry.
    pub fn reserve_data(&self, bytes: usize) -> Option<Data<'t>> {
        // Words that others have pushed since would come between the frame and its data.
        let reference = self.reference.get();
        let before = length(reference);
        let start = self.frame + before;
        if self.length.get() != before || self.task.mark() != start {
            return None;
        }
        let data = self.task.reserve(start, reference, bytes.div_ceil(8))?;
        self.length.set(before + data.len() + 1);
        Some(data)
    }
}
