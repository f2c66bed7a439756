//! What is decided and recorded outside of the machine: a case is told to functions act by act, and what they and handlers
//! say becomes the log.

use std::collections::VecDeque;
use std::sync::Arc;

use codegen::arch::patch::SiteState;
use codegen::words::abi::RegSet;
use compose::{Act, Call, Callers, Case, Event, Seen, User, What};

use super::places::Places;
use super::unwinding::{Backtrace, Unwinder};
use crate::engine::cpu::{put_word, word};
use crate::engine::interface::Cpu;
use crate::engine::registers::{Registers, Snapshot};

pub(super) type Uc<'a> = Cpu<'a, Box<State>>;

/// Words of the mail: `guest.h`.
pub(super) const FUNCTION: u64 = 0;
pub(super) const SEED: u64 = 1;
pub(super) const GOT: u64 = 2;
pub(super) const SERVICE: u64 = 3;
pub(super) const ANSWER: u64 = 4;
pub(super) const CURRENT: u64 = 5;
pub(super) const SEEN: u64 = 6;
pub(super) const ARGS: u64 = 13;
pub(super) const DATA: u64 = ARGS + 8;
pub(super) const TARGETS: u64 = DATA + 40;
pub(super) const USER: u64 = TARGETS + 8;
pub(super) const ASKED: u64 = USER + 32;

/// What is done next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Act(Act),
    /// A function is called that does not return for now.
    Stay(Call),
    /// An operation for a user who is in no list.
    Control(u64, User),
    Balanced,
}

/// What was done last, which is not over yet.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    Nothing,
    Call,
    Control(Act),
    Idle,
    Balanced,
}

/// Acts that one C function goes through.
pub(super) struct Level {
    pub steps: VecDeque<Step>,
    pub waiting: Waiting,
    /// The CPU when it asked, and the word at SP.
    pub asked: Option<(Snapshot, u64)>,
    /// Behind the last one, the third thread waits.
    pub stays: bool,
}

/// A call that has not returned.
pub(super) struct Frame {
    /// Left by a jump.
    pub jumps: bool,
    /// Behind the acts of its first body, the third thread waits.
    pub stays: bool,
    pub seed: u64,
    /// The function that is entered, and what is in it; then what it calls last.
    pub now: Call,
    /// The function that was entered last, the number of that entry, and whether its body did not run yet.
    pub at: u64,
    pub n: u64,
    pub open: bool,
    pub entered: Snapshot,
    /// Those whose bodies ran.
    pub chain: Vec<(u64, u64)>,
    pub replaced: bool,
    pub value: u64,
}

/// The third thread while it waits; while it runs, those who wait for it.
#[derive(Default)]
pub(super) struct Third {
    pub runs: bool,
    pub levels: Vec<Level>,
    pub frames: Vec<Frame>,
    /// The number of the thread that runs while it waits.
    pub other: u64,
}

/// What the engine has to do before it goes on.
pub(super) enum Todo {
    /// Sites of the family's functions change.
    Patch(Vec<(usize, SiteState)>),
    /// The CPU is as it was.
    Resume(Box<(Snapshot, u64)>),
    /// The third thread begins, with a call of this.
    Start(u64),
}

/// General registers that have their values again behind a site: if it called a trampoline, and in a paired one.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub called: RegSet,
    pub paired: RegSet,
}

/// A case while it runs.
pub(super) struct State {
    pub places: Arc<Places>,
    pub registers: Registers,
    pub kept: Kept,
    pub family: usize,
    pub case: Case,
    pub jumps: bool,
    pub levels: Vec<Level>,
    pub frames: Vec<Frame>,
    pub third: Third,
    pub handlers: Vec<(Option<User>, u64)>,
    pub calls: u64,
    pub fired: u64,
    pub idle: u64,
    /// Those who fill tables.
    pub crowd: Vec<User>,
    pub objects: Vec<((u64, u8), usize)>,
    /// Direct trampolines that are given out, and those that record: for which of the model's.
    pub directs: [Vec<u64>; 2],
    /// The direct trampoline that was entered last.
    pub direct: Option<usize>,
    /// The backtrace that waits for the core's answer, and the last one that is whole.
    pub asked: Option<Backtrace>,
    pub backtrace: Option<Backtrace>,
    pub unwinder: Unwinder,
    /// What sites call, as the core has it.
    pub targets: [u64; 8],
    /// Where functions return to in their paired trampolines, if they ran in them.
    pub called: [Option<u64>; 8],
    pub log: Vec<Event>,
    pub todo: Option<Todo>,
    /// The hook at this address has done its work.
    pub done: u64,
    /// Pieces of code that ran.
    pub blocks: u64,
}

impl State {
    pub fn new(places: Arc<Places>, registers: Registers, kept: Kept) -> State {
        State {
            places,
            registers,
            kept,
            family: 0,
            case: Case::default(),
            jumps: false,
            levels: vec![],
            frames: vec![],
            third: Third::default(),
            handlers: vec![],
            calls: 0,
            fired: 0,
            idle: 0,
            crowd: vec![],
            objects: vec![],
            directs: Default::default(),
            direct: None,
            asked: None,
            backtrace: None,
            unwinder: Unwinder::default(),
            targets: [0; 8],
            called: [None; 8],
            log: vec![],
            todo: None,
            done: 0,
            blocks: 0,
        }
    }

    /// Begin a case.
    pub fn begin(&mut self, case: &Case, family: usize) {
        let fresh = State::new(Arc::clone(&self.places), self.registers, self.kept);
        let unwinder = std::mem::take(&mut self.unwinder);
        *self = State { family, case: case.clone(), jumps: case.jumps(), unwinder, ..fresh };
        let end = [Step::Act(Act::End), Step::Balanced];
        let steps = case.acts.iter().cloned().map(Step::Act).chain(end).collect();
        self.level(steps);
    }

    pub fn level(&mut self, steps: VecDeque<Step>) {
        self.levels.push(Level { steps, waiting: Waiting::Nothing, asked: None, stays: false });
    }

    pub fn see(&mut self, event: Event) {
        self.log.push(event);
    }

    /// Something has not come through.
    pub fn lost(&mut self, what: &'static str, f: u64, value: u64) {
        self.see(Event { f, value, ..Event::of(Seen::Lost(what)) });
    }

    /// Who was found up the stack, the last time that somebody looked.
    pub fn callers(&self) -> Callers {
        self.backtrace.as_ref().map_or(Callers::default(), Backtrace::callers)
    }

    /// Whose paired trampoline shows an entry and will return here: that function runs, though nothing on the stack is its own.
    pub fn entered_from(&self, pc: u64) -> Option<u64> {
        let around = self.places.families[self.family].around.iter().zip(self.called).zip(0..);
        let mut entered = around.filter(|(((start, size), called), _)| {
            pc.wrapping_sub(*start) < called.map_or(*size, |called| called - start)
        });
        entered.next().map(|(_, f)| compose::address(f) + 0x100)
    }

    pub fn argument_index(&self) -> usize {
        let abi = self.registers.abi;
        usize::from(self.places.families[self.family].signature == "big" && abi.args.contains(&abi.sret))
    }
}

pub(super) fn mail(uc: &Uc, at: u64) -> u64 {
    word(uc, uc.data().places.mail + 8 * at)
}

pub(super) fn post(uc: &mut Uc, at: u64, value: u64) {
    let mail = uc.data().places.mail;
    put_word(uc, mail + 8 * at, value);
}

impl State {
    pub fn wait(&mut self, waiting: Waiting) {
        if let Some(level) = self.levels.last_mut() {
            level.waiting = waiting;
        }
    }

    pub fn soon(&mut self, steps: impl DoubleEndedIterator<Item = Step>) {
        if let Some(level) = self.levels.last_mut() {
            steps.rev().for_each(|step| level.steps.push_front(step));
        }
    }

    /// The direct trampoline that stands for one of the model's.
    pub fn direct(&mut self, of: u64) -> u64 {
        let kind = usize::from(What::records(of));
        let given = &mut self.directs[kind];
        let index = given.iter().position(|d| *d == of).unwrap_or_else(|| {
            given.push(of);
            given.len() - 1
        });
        self.places.directs[kind].get(index).copied().unwrap_or(0)
    }

    /// Which of the model's it stands for.
    pub fn known(&self, at: u64) -> u64 {
        let each = self.places.directs.iter().zip(&self.directs).flat_map(|(places, given)| places.iter().zip(given));
        let mut each = each.filter(|(place, _)| **place == at);
        each.next().map_or(at, |(_, of)| *of)
    }
}
