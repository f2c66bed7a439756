//! The CPU on which a thread of the judge and the engines' processes that it has take turns.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Mutex;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

thread_local! {
    /// That of the machines that this thread has.
    static PINNED: RefCell<Weak<Pinned>> = const { RefCell::new(Weak::new()) };
}

/// The CPUs that threads are pinned to, each as often as it is.
static TAKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// This thread, and what it starts, have one CPU: only one of them has something to do at a time, and to hand over the turn is to
/// yield. On two CPUs each would take one from other pairs while it waits.
pub(super) struct Pinned {
    cpu: usize,
    /// The CPUs that the thread had before.
    before: CpuSet,
}

impl Pinned {
    /// To a CPU that few are pinned to, until all that have this are gone. Where the system refuses it, turns only take longer.
    pub fn here() -> Option<Rc<Pinned>> {
        PINNED.with_borrow_mut(|kept| {
            let pinned = kept.upgrade().or_else(|| Pinned::new().map(Rc::new))?;
            *kept = Rc::downgrade(&pinned);
            Some(pinned)
        })
    }

    /// Another process takes turns with this thread.
    pub fn take(&self, process: Pid) {
        // Elsewhere it only takes longer.
        let _ = sched_setaffinity(Some(process), &only(self.cpu));
    }

    fn new() -> Option<Pinned> {
        let before = sched_getaffinity(None).ok()?;
        let mut taken = TAKEN.lock().ok()?;
        let here = sched_getcpu();
        let free = |cpu: &usize| (taken.iter().filter(|other| *other == cpu).count(), *cpu != here);
        let cpu = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).min_by_key(free)?;
        sched_setaffinity(None, &only(cpu)).ok()?;
        taken.push(cpu);
        Some(Pinned { cpu, before })
    }
}

fn only(cpu: usize) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(cpu);
    one
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // What it could have before it may have again.
        let _ = sched_setaffinity(None, &self.before);
        if let Ok(mut taken) = TAKEN.lock()
            && let Some(at) = taken.iter().position(|cpu| *cpu == self.cpu)
        {
            taken.swap_remove(at);
        }
    }
}
