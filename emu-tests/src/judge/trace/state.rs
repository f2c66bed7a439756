//! Where in a traced call a run is.

use std::borrow::Cow;
use std::cell::Cell;

use codegen::words::abi::{Reg, RegSet};

use super::cells::Region;
use super::finding::At;
use super::stack::Stack;
use crate::engine::flow::{ReturnStack, Taken};
use crate::engine::registers::Snapshot;
use crate::run::thread::Written;

/// Which part of a traced call runs.
#[derive(Default, Debug)]
pub(crate) enum Moment {
    /// No trampoline is at work: a traced function runs, or C around it.
    #[default]
    Body,
    /// From the site to the function: its site, this trampoline, or C that it called.
    Entry(usize),
    /// From the function's end to its parent: this trampoline, or C that it called.
    Exit(usize, Box<Exiting>),
}

/// Between a site and the resumption.
#[derive(Debug)]
pub(crate) struct Activation {
    /// State at the site, with what the callback changed put in.
    pub expect: Snapshot,
    pub sp: u64,
    /// The address behind the site.
    pub pc: u64,
    pub parent: u64,
    /// Where the function must go on, and with which return address.
    pub resume: u64,
    pub returns_to: u64,
    pub kept: RegSet,
    pub flags_kept: bool,
    pub redirected: bool,
    /// The direct trampoline that a callback chose; 0 if none did.
    pub direct: u64,
    /// What the last function returned that was called.
    pub result: u64,
    /// A direct trampoline was entered on the way.
    pub dispatched: bool,
    /// Callbacks and functions of direct trampolines that were called.
    pub calls: u64,
    /// What sessions stored to their words, by the number of the program.
    pub sessions: Vec<u64>,
    /// The calls around the function.
    pub around: Around,
}

/// A return address that a callback replaced.
#[derive(Debug)]
pub(crate) struct Hooked {
    pub parent: u64,
    pub sp: u64,
}

/// A paired trampoline while the function that it called runs.
#[derive(Debug)]
pub(crate) struct Pending {
    pub index: usize,
    pub parent: u64,
    pub pc: u64,
    pub resume: u64,
    /// SP and frame pointer at the site.
    pub sp: u64,
    pub fp: u64,
    /// What the registers held there that are the trampoline's own while the function runs.
    pub own: Vec<(Reg, u64)>,
    /// Where the function returns to, and SP then.
    pub back: u64,
    pub back_sp: u64,
    pub epoch: u32,
    pub returns: ReturnStack,
    /// The arguments, as programs are shown them.
    pub words: Vec<u64>,
    /// What sessions stored to their words.
    pub sessions: Vec<u64>,
    /// The calls around the function.
    pub around: Around,
}

/// Between the end of the traced function, where a trampoline is told of it, and the parent.
#[derive(Debug)]
pub(crate) struct Exiting {
    pub expect: Snapshot,
    pub parent: u64,
    /// The address behind its site.
    pub pc: u64,
    /// Where the traced function went on behind its site; 0 if the trampoline does not know it.
    pub resume: u64,
    /// SP in the parent.
    pub sp: u64,
    pub calls: u64,
    /// The arguments, as programs are shown them.
    pub words: Vec<u64>,
    /// What sessions stored to their words.
    pub sessions: Vec<u64>,
    /// The calls around the function.
    pub around: Around,
}

/// A program between the call before it and the call after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// Its number.
    pub n: usize,
    pub argument: u64,
    pub run_context: u64,
    /// What is kept there for the function after it.
    pub saved: u64,
    /// What the function before it returned: if that is 0, it is not called.
    pub start: u64,
    pub called: bool,
}

/// The calls around a function so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Around {
    pub argument: u64,
    pub entered: u64,
    pub left: u64,
}

/// A context that a switch goes to, as it was left, or one that has not run.
#[derive(Clone, Debug)]
pub(crate) struct Suspended {
    /// What the registers held when it switched; nothing of one that has not run.
    pub left: Option<Snapshot>,
    /// What registers hold when it switches back, besides the one that names the other context.
    pub holds: Vec<(Reg, u64)>,
}

/// The end of an indirect branch, where an engine enforces pads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// It is asked whether there is a pad; here there is one, or there is none.
    Due(At, bool),
    /// The engine stopped the CPU at this instruction.
    At(u64),
}

/// One run, so far.
#[derive(Default, Debug)]
pub(crate) struct State {
    pub moment: Moment,
    /// The instruction that is executed.
    pub pc: u64,
    /// Where the last instruction was.
    pub region: Region,
    /// Where instructions that are nothing in particular need no look: nothing is to be judged at the next one.
    pub quiet: Option<Region>,
    /// The branch that was executed last.
    pub taken: Option<Taken>,
    /// Sites that were reached, and whose functions did not go on yet: the innermost last.
    pub activations: Vec<Activation>,
    pub hooked: Vec<Hooked>,
    pub pending: Vec<Pending>,
    /// Handlers keep the parent of the function.
    pub parents: Vec<u64>,
    pub callbacks: u32,
    pub stack: Stack,
    pub returns: ReturnStack,
    /// An indirect branch came where a pad is asked for, or an engine stopped one.
    pub pad: Option<Stop>,
    /// The address that stands for the next one.
    pub came_by: Option<u64>,
    /// Instructions that are left until the run is called a loop.
    pub budget: u64,
    /// The run ends by itself when none are left.
    pub one: bool,
    /// The run ended without reaching the exit.
    pub stopped: bool,
    /// Trampolines entered, as bits.
    pub entered: u64,
    pub sites_seen: u32,
    /// Where their functions return to.
    pub sites_from: Vec<u64>,
    /// Vector registers and control words hold what the run began with: nobody who may change them did, and no trampoline was
    /// found to have.
    pub untouched: bool,
    /// The records that must have been written, and how often the counter must have been counted up.
    pub written: Vec<Written>,
    /// Of those, the numbers of the ones that have room for a return which is still to come.
    pub open: Vec<usize>,
    pub counted: u64,
    /// Where the entries of the shadow stack end that the functions of this run had.
    pub kept_to: u64,
    /// Calls of the routine that makes room for records.
    pub refills: u64,
    /// Events that were to be recorded so far: the time goes on at each.
    pub events: u64,
    /// How often the CPU's clock was read since the last one.
    pub clock_reads: Cell<u64>,
    /// The vector state that no table has, as the trampoline found it. Nothing where the engine lacks it, or the case is not about it.
    pub wide: Vec<(&'static str, Vec<u8>)>,
    /// What registers of the platform hold since the thread was last moved to another CPU.
    pub moved: Vec<(Reg, u64)>,
    /// The program around which functions are called now.
    pub begun: Option<Begun>,
    /// The words that the callee of a boundary stored.
    pub stored: Vec<u64>,
    /// The registers as the callee of a boundary left them.
    pub left: Option<Snapshot>,
    /// The context that a switch goes to.
    pub other: Option<Suspended>,
    /// The call of a switch by the context that is the case's own, while another one runs.
    pub switched: Option<Activation>,
    /// A context's function has returned, and what is called then was called.
    pub ended: bool,
}

impl State {
    /// Forget the last run, but keep the room that it took. Nothing is moved: this is done for every run.
    pub fn begin(&mut self, budget: u64) {
        // All of it is named: a field that is new has to be reset.
        let State {
            moment,
            pc,
            region,
            quiet,
            taken,
            activations,
            hooked,
            pending,
            parents,
            callbacks,
            stack,
            returns,
            pad,
            came_by,
            budget: left,
            one,
            stopped,
            entered,
            sites_seen,
            sites_from,
            untouched,
            written,
            open,
            counted,
            kept_to,
            refills,
            events,
            clock_reads,
            wide,
            moved,
            begun,
            stored,
            left: as_left,
            other,
            switched,
            ended,
        } = self;
        stored.clear();
        (*as_left, *other, *switched, *ended) = (None, None, None, false);
        sites_from.clear();
        open.clear();
        moved.clear();
        wide.clear();
        activations.clear();
        hooked.clear();
        pending.clear();
        parents.clear();
        written.clear();
        stack.clear();
        returns.begin(None);
        (*moment, *pc, *region, *quiet, *taken) = (Moment::Body, 0, Region::default(), None, None);
        (*callbacks, *came_by, *left, *one, *stopped, *entered, *sites_seen) = (0, None, budget, false, false, 0, 0);
        (*untouched, *counted, *kept_to, *refills, *events) = (false, 0, 0, 0, 0);
        clock_reads.set(0);
        (*begun, *pad) = (None, None);
    }

    /// The last instruction was no branch, stored nothing that is still to be judged, and came from where it is; and in a
    /// function, no trampoline is at work that it goes on from. `each` is to be looked at in trampolines.
    pub fn rest(&mut self, each: bool) {
        let resumes = self.region == Region::Function && self.trampoline().is_some();
        let flows = self.taken.is_none() && self.came_by.is_none() && self.stack.lowest.is_none() && !resumes;
        let looked_at = each && self.region.trampoline().is_some();
        self.quiet = Some(self.region).filter(|_| flows && !looked_at);
    }

    /// What is expected of registers that were as in `before`, after all that callees did.
    pub fn since_moved<'s>(&self, before: &'s Snapshot) -> Cow<'s, Snapshot> {
        let mut expect = Cow::Borrowed(before);
        for &(reg, value) in &self.moved {
            expect.to_mut()[reg] = value;
        }
        expect
    }

    /// The trampoline at work.
    pub fn trampoline(&self) -> Option<usize> {
        match self.moment {
            Moment::Body => None,
            Moment::Entry(index) | Moment::Exit(index, _) => Some(index),
        }
    }

    /// From now on this trampoline is at work, on the same part of the way.
    pub fn work(&mut self, index: usize) {
        self.moment = match std::mem::take(&mut self.moment) {
            Moment::Body | Moment::Entry(_) => Moment::Entry(index),
            Moment::Exit(_, exiting) => Moment::Exit(index, exiting),
        };
    }

    /// The traced function, or its parent, goes on: no trampoline is at work.
    pub fn go_on(&mut self) {
        self.moment = Moment::Body;
        self.stack.leave();
    }

    pub fn exiting(&self) -> Option<&Exiting> {
        match &self.moment {
            Moment::Exit(_, exiting) => Some(exiting),
            Moment::Body | Moment::Entry(_) => None,
        }
    }

    /// The traced function has ended: this trampoline is told of it.
    pub fn end(&mut self, index: usize, exiting: Exiting) {
        self.moment = Moment::Exit(index, Box::new(exiting));
    }

    /// What the exit expects, when its end is judged. The trampoline is still at work.
    pub fn take_exiting(&mut self) -> Option<Box<Exiting>> {
        match std::mem::take(&mut self.moment) {
            Moment::Exit(index, exiting) => {
                self.moment = Moment::Entry(index);
                Some(exiting)
            }
            other => {
                self.moment = other;
                None
            }
        }
    }

    pub fn exiting_mut(&mut self) -> Option<&mut Exiting> {
        match &mut self.moment {
            Moment::Exit(_, exiting) => Some(exiting),
            Moment::Body | Moment::Entry(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exiting() -> Exiting {
        let expect = Snapshot::default();
        Exiting {
            expect,
            parent: 7,
            pc: 0,
            resume: 0,
            sp: 0,
            calls: 0,
            words: Vec::new(),
            sessions: Vec::new(),
            around: Around::default(),
        }
    }

    #[test]
    fn another_trampoline_at_work_does_not_change_the_part_of_the_way() {
        let mut state = State::default();
        assert_eq!(state.trampoline(), None);
        state.work(3);
        assert_eq!((state.trampoline(), state.exiting().is_some()), (Some(3), false));
        state.work(4);
        assert_eq!((state.trampoline(), state.exiting().is_some()), (Some(4), false));
        state.end(4, exiting());
        state.work(5);
        assert_eq!((state.trampoline(), state.exiting().map(|e| e.parent)), (Some(5), Some(7)));
        state.go_on();
        assert_eq!((state.trampoline(), state.exiting().is_some()), (None, false));
    }
}
