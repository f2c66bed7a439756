//! Whom the core calls, and what they are shown.

use crate::data::Data;
use crate::task::Task;

/// Where a call goes that enters a traced function. The layer that knows the machine says what is so, and does what the core
/// answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The function; in the answer, where it goes on.
    pub ip: u64,
    /// The return address.
    pub parent: u64,
    /// Where the return address lies: it tells frames apart whose functions were left without returning.
    pub retp: u64,
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
    /// Registers as the layer has them, which the core hands through: the kernel's `struct ftrace_regs`.
    type Regs;

    /// Whom a function returns to in the end whose return address is `parent` and lies at `retp`. A function that jumps to another
    /// one from within a paired trampoline leaves it a return address there: the layer has the caller of the one that jumped.
    fn caller(&self, parent: u64, _retp: u64) -> u64 {
        parent
    }

    /// An ops' callback. The function goes on at `ip`, or, if the ops has IPMODIFY, where the answer says.
    fn callback(&self, _ops: u64, _private: u64, _call: &Call, _regs: &mut Self::Regs, ip: u64) -> u64 {
        ip
    }

    /// A user of the function graph sees an entry, and may reserve data for the return.
    fn graph_entry(&self, _user: u64, _call: &Call, _regs: &Self::Regs, _room: &Room) -> bool {
        false
    }

    /// And the return that it asked for.
    fn graph_return(&self, _user: u64, _call: &Call, _regs: &mut Self::Regs, _data: Option<Data>) {}

    /// A probe sees an entry. One without exit handler has no data, and its answer means nothing.
    fn fprobe_entry(&self, _probe: u64, _call: &Call, _regs: &Self::Regs, _data: Option<Data>) -> bool {
        true
    }

    /// And the return.
    fn fprobe_exit(&self, _probe: u64, _call: &Call, _regs: &mut Self::Regs, _data: Option<Data>) {}

    /// A kretprobe sees an entry.
    fn kretprobe_entry(&self, _probe: u64, _call: &Call, _regs: &Self::Regs, _data: Data) -> bool {
        true
    }

    /// And the return.
    fn kretprobe_return(&self, _probe: u64, _call: &Call, _regs: &mut Self::Regs, _data: Data) {}
}

/// Room for a user's data on the shadow stack, during its entry handler.
#[derive(Debug)]
pub struct Room<'t> {
    task: &'t Task,
    /// Where the words in use ended before the user's.
    end: usize,
    owner: usize,
}

impl<'t> Room<'t> {
    /// For the user in this slot, behind what is there.
    pub(crate) fn new(task: &'t Task, owner: usize) -> Self {
        Self { task, end: task.mark(), owner }
    }

    /// The user does not want the return: its data go.
    pub(crate) fn take_back(&self) {
        self.task.cut(self.end);
    }

    /// The kernel's `fgraph_reserve_data`: so many bytes, rounded up to words and cleared, until the function returns.
    ///
    /// None if there is no room, for 0 and for more than 256 bytes, and from the second time on in one entry.
    pub fn reserve_data(&self, bytes: usize) -> Option<Data<'t>> {
        // Words that others have pushed since would come between the frame and its data.
        if self.task.mark() != self.end {
            return None;
        }
        self.task.reserve(self.end, self.owner, bytes.div_ceil(8))
    }
}
