//! The handlers that the core calls, and their arguments.

use crate::data::Data;
use crate::task::Task;

/// The destination of a call that enters a traced function. The machine's layer fills it in, and then acts on the core's
/// answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The function; in the answer, the address at which to go on.
    pub ip: u64,
    /// The return address.
    pub parent: u64,
    /// The address of the return address. With it the core finds frames whose functions were left without returning.
    pub retp: u64,
    /// A direct trampoline to go through, or 0.
    pub direct: u64,
}

/// One call of a traced function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub ip: u64,
    /// The true caller, even if other hooks replaced the return address, or if it leads to a paired trampoline.
    pub parent_ip: u64,
    /// The number of hooked functions that the thread is in, from 0.
    pub depth: u64,
}

/// The handlers of users. Users are named by the addresses of their objects; `true` from an entry handler asks for the return.
///
/// A handler may call traced functions (these calls are not traced), be interrupted by traced code, and register and
/// unregister whomever it likes, itself too.
pub trait Handlers {
    /// The layer's type for registers, which the core only passes on: the kernel's `struct ftrace_regs`.
    type Regs;

    /// The true caller of a function whose return address is `parent` and lies at `retp`. A traced function that jumps to another
    /// one leaves it a return address in a paired trampoline: the layer then returns the caller of the function that jumped.
    fn caller(&self, parent: u64, _retp: u64) -> u64 {
        parent
    }

    /// The callback of an ops. The function goes on at `ip`, or, if the ops has IPMODIFY, at the returned address.
    fn callback(&self, _ops: u64, _private: u64, _call: &Call, _regs: &mut Self::Regs, ip: u64) -> u64 {
        ip
    }

    /// The entry handler of a user of the function graph, which may reserve data for the return.
    fn graph_entry(&self, _user: u64, _call: &Call, _regs: &Self::Regs, _room: &Room) -> bool {
        false
    }

    /// The return handler of a user of the function graph that asked for the return.
    fn graph_return(&self, _user: u64, _call: &Call, _regs: &mut Self::Regs, _data: Option<Data>) {}

    /// The entry handler of an fprobe. If it has no exit handler, there are no data, and the answer has no effect.
    fn fprobe_entry(&self, _probe: u64, _call: &Call, _regs: &Self::Regs, _data: Option<Data>) -> bool {
        true
    }

    /// The exit handler of an fprobe.
    fn fprobe_exit(&self, _probe: u64, _call: &Call, _regs: &mut Self::Regs, _data: Option<Data>) {}

    /// The entry handler of a kretprobe.
    fn kretprobe_entry(&self, _probe: u64, _call: &Call, _regs: &Self::Regs, _data: Data) -> bool {
        true
    }

    /// The return handler of a kretprobe.
    fn kretprobe_return(&self, _probe: u64, _call: &Call, _regs: &mut Self::Regs, _data: Data) {}
}

/// Room for a user's data on the shadow stack, during its entry handler.
#[derive(Debug)]
pub struct Room<'t> {
    task: &'t Task,
    /// The end of the words in use before the user's data.
    end: usize,
    owner: usize,
}

impl<'t> Room<'t> {
    /// Room for the user in this slot, behind all words in use.
    pub(crate) fn new(task: &'t Task, owner: usize) -> Self {
        Self { task, end: task.mark(), owner }
    }

    /// Drop the user's data, because it does not want the return.
    pub(crate) fn take_back(&self) {
        self.task.cut(self.end);
    }

    /// Reserve `bytes` bytes, rounded up to words and cleared, until the function returns: the kernel's `fgraph_reserve_data`.
    ///
    /// Returns `None` if there is no room, for 0 and for more than 256 bytes, and for a second reservation at one entry.
    pub fn reserve_data(&self, bytes: usize) -> Option<Data<'t>> {
        // Words pushed since then would lie between the frame and its data.
        if self.task.mark() != self.end {
            return None;
        }
        self.task.reserve(self.end, self.owner, bytes.div_ceil(8))
    }
}
