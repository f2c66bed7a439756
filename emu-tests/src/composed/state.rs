//! What is decided and recorded outside of the machine: a case is told to functions act by act, and what they and handlers
//! say becomes the log.

use std::collections::VecDeque;
use std::sync::Arc;

use codegen::abi::RegSet;
use codegen::patch::SiteState;
use compose::{Act, Call, Callers, Case, DIRECT, Event, REPLACEMENT, Seen, UNCALLED, User, What, mix};

use super::places::{Places, SIGNATURES};
use super::unwinding::{Backtrace, Unwinder};
use crate::cpu::{Cpu, Registers, Snapshot, put_word, word};

pub(super) type Uc<'a> = Cpu<'a, Box<State>>;

/// Words of the mail: `guest.h`.
const FUNCTION: u64 = 0;
const SEED: u64 = 1;
const GOT: u64 = 2;
const SERVICE: u64 = 3;
const ANSWER: u64 = 4;
pub(super) const SEEN: u64 = 6;
pub(super) const ARGS: u64 = 13;
pub(super) const DATA: u64 = ARGS + 8;
const TARGETS: u64 = DATA + 40;
const USER: u64 = TARGETS + 8;
pub(super) const ASKED: u64 = USER + 32;

/// What `NEXT` answers, and the services.
const END: u64 = 0;
const CALL: u64 = 1;
const SERVE: u64 = 2;
const INTERRUPT: u64 = 1;
const SWITCH: u64 = 2;
const CONTROL: u64 = 3;
const BALANCED: u64 = 4;

/// The object of users that trace nothing which is called.
const IDLE: u64 = 0x800;

/// What is done next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Act(Act),
    /// An operation for a user who is in no list.
    Control(u64, User),
    Balanced,
}

/// What was done last, which is not over yet.
#[derive(Clone, Debug)]
enum Waiting {
    Nothing,
    Call,
    Control(Act),
    Idle,
    Balanced,
}

/// Acts that one C function goes through.
struct Level {
    steps: VecDeque<Step>,
    waiting: Waiting,
    /// The CPU when it asked, and the word at SP.
    asked: Option<(Snapshot, u64)>,
}

/// A call that has not returned.
pub(super) struct Frame {
    /// Left by a jump.
    jumps: bool,
    seed: u64,
    /// The function that is entered, and what is in it; then what it calls last.
    now: Call,
    /// The function that was entered last, the number of that entry, and whether its body did not run yet.
    at: u64,
    n: u64,
    open: bool,
    pub entered: Snapshot,
    /// Those whose bodies ran.
    chain: Vec<(u64, u64)>,
    replaced: bool,
    value: u64,
}

/// What the engine has to do before it goes on.
pub(super) enum Todo {
    /// Sites of the family's functions change.
    Patch(Vec<(usize, SiteState)>),
    /// The CPU is as it was.
    Resume(Box<(Snapshot, u64)>),
}

/// A case while it runs.
pub(super) struct State {
    pub places: Arc<Places>,
    pub registers: Registers,
    /// General registers that have their values again behind a site.
    pub kept: RegSet,
    pub family: usize,
    pub case: Case,
    pub jumps: bool,
    levels: Vec<Level>,
    pub frames: Vec<Frame>,
    pub handlers: Vec<(Option<User>, u64)>,
    calls: u64,
    pub fired: u64,
    idle: u64,
    /// Those who fill tables.
    crowd: Vec<User>,
    pub objects: Vec<((u64, u8), usize)>,
    /// Direct trampolines that are given out: to which object, and which of its two.
    directs: Vec<u64>,
    /// The direct trampoline that was entered last.
    pub direct: Option<usize>,
    /// The backtrace that waits for the core's answer, and the last one that is whole.
    pub asked: Option<Backtrace>,
    pub backtrace: Option<Backtrace>,
    pub unwinder: Unwinder,
    /// What sites call, as the core has it.
    targets: [u64; 8],
    pub log: Vec<Event>,
    pub todo: Option<Todo>,
    /// The hook at this address has done its work.
    pub done: u64,
    /// Pieces of code that ran.
    pub blocks: u64,
}

impl State {
    pub fn new(places: Arc<Places>, registers: Registers, kept: RegSet) -> State {
        State {
            places,
            registers,
            kept,
            family: 0,
            case: Case::default(),
            jumps: false,
            levels: vec![],
            frames: vec![],
            handlers: vec![],
            calls: 0,
            fired: 0,
            idle: 0,
            crowd: vec![],
            objects: vec![],
            directs: vec![],
            direct: None,
            asked: None,
            backtrace: None,
            unwinder: Unwinder::default(),
            targets: [0; 8],
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
        let steps = case.acts.iter().cloned().map(Step::Act).chain([Step::Balanced]).collect();
        self.level(steps);
    }

    pub fn level(&mut self, steps: VecDeque<Step>) {
        self.levels.push(Level { steps, waiting: Waiting::Nothing, asked: None });
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

    pub fn argument_index(&self) -> usize {
        let abi = self.registers.abi;
        usize::from(SIGNATURES[self.family] == "big" && abi.args.contains(&abi.sret))
    }
}

/// What the arguments of a call with this seed come to: `CHECK` of the functions.
fn checked(seed: u64, signature: &str) -> u64 {
    let mixed = |h: u64, v: u64| (h ^ v).rotate_left(23).wrapping_mul(0x5bd1_e995);
    let argument = |i: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i);
    let last = if signature == "stack" { 10 } else { 3 };
    (2..=last).fold(mixed(0, seed), |h, i| mixed(h, argument(i)))
}

pub(super) fn mail(uc: &Uc, at: u64) -> u64 {
    word(uc, uc.get_data().places.mail + 8 * at)
}

pub(super) fn post(uc: &mut Uc, at: u64, value: u64) {
    let mail = uc.get_data().places.mail;
    put_word(uc, mail + 8 * at, value);
}

/// A function is entered: by a call, by a jump, or because calls are redirected to it.
pub(super) fn entry(uc: &mut Uc, f: u64) {
    let state = uc.get_data();
    let registers = state.registers;
    let n = state.calls;
    let reg = registers.abi.args[state.argument_index()];
    // Calls are redirected on the way from one function to another.
    if state.frames.last().is_some_and(|frame| frame.open) {
        compare(uc, f);
    }
    registers.set(uc, reg, n);
    let all = registers.snapshot(uc);
    let state = uc.get_data_mut();
    state.calls += 1;
    match state.frames.last_mut() {
        Some(frame) => (frame.at, frame.n, frame.open, frame.entered) = (f, n, true, all),
        None => state.lost("the way: nobody called it", f, 0),
    }
}

/// Everything is as it was at the entry.
fn compare(uc: &mut Uc, f: u64) {
    let registers = uc.get_data().registers;
    let now = registers.snapshot(uc);
    let state = uc.get_data_mut();
    let Some(frame) = state.frames.last() else { return };
    let kept = state.kept.iter().chain([registers.abi.sp]);
    let mut lost: Vec<(&'static str, u64)> =
        kept.filter(|reg| frame.entered[*reg] != now[*reg]).map(|reg| (registers.abi.name(reg), now[reg])).collect();
    if frame.entered.vectors != now.vectors {
        lost.push(("a vector register", 0));
    }
    for (what, value) in lost {
        state.lost(what, f, value);
    }
}

/// A function goes on behind its site.
pub(super) fn inside(uc: &mut Uc, f: u64) {
    compare(uc, f);
}

/// A direct trampoline calls.
pub(super) fn through(uc: &mut Uc) -> u64 {
    let state = uc.get_data_mut();
    let data = state.direct.take().and_then(|index| state.directs.get(index)).copied().unwrap_or(0);
    let Some(frame) = state.frames.last() else { return 0 };
    let (f, n, callers) = (frame.at, frame.n, state.callers());
    state.see(Event { f, n, data, callers, ..Event::of(Seen::Direct) });
    0
}

/// What is to be done now.
pub(super) fn next(uc: &mut Uc) -> u64 {
    let registers = uc.get_data().registers;
    let now = registers.general(uc);
    let at_sp = word(uc, now[registers.abi.sp]);
    let Some(level) = uc.get_data_mut().levels.last_mut() else { return END };
    let waiting = std::mem::replace(&mut level.waiting, Waiting::Nothing);
    let before = level.asked.replace((now.clone(), at_sp));
    over(uc, waiting, before.map(|(all, _)| all), &now);
    let Some(level) = uc.get_data_mut().levels.last_mut() else { return END };
    match level.steps.pop_front() {
        Some(step) => begin(uc, step),
        None => {
            uc.get_data_mut().levels.pop();
            END
        }
    }
}

/// What was done is over.
fn over(uc: &mut Uc, waiting: Waiting, before: Option<Snapshot>, now: &Snapshot) {
    let (answer, got) = (mail(uc, ANSWER), mail(uc, GOT));
    let state = uc.get_data_mut();
    let done = Event { value: answer, ..Event::of(Seen::Done) };
    match waiting {
        Waiting::Nothing => {}
        Waiting::Call => {
            let Some(frame) = state.frames.pop() else { return };
            let abi = state.registers.abi;
            let lost = |reg: &codegen::abi::Reg| before.as_ref().is_some_and(|before| before[*reg] != now[*reg]);
            if let Some(reg) = abi.callee_saved.iter().chain([abi.sp]).find(lost) {
                state.lost(abi.name(reg), frame.now.f, now[reg]);
            }
            // Who is left by a jump returns nothing.
            if got != frame.value && !frame.jumps {
                state.lost("the result", frame.now.f, got);
            }
        }
        Waiting::Control(act) => match act {
            Act::Register(u) => {
                if answer == 0 {
                    let user = &state.case.users[u];
                    state.objects.push(((user.key(), user.what.family()), u));
                }
                state.see(done);
            }
            Act::Missed(_) => state.see(Event { value: answer, ..Event::of(Seen::Missed) }),
            _ => state.see(done),
        },
        Waiting::Idle => state.see(done),
        Waiting::Balanced if answer == 0 && !state.jumps => state.see(Event::of(Seen::Unbalanced)),
        Waiting::Balanced => {}
    }
}

fn idle(n: u64) -> User {
    let answer = compose::Answer::Always;
    User { what: What::Graph, on: vec![UNCALLED], not: vec![], answer, words: 0, then: None, object: IDLE + 8 * n }
}

/// Do a step: what the C function is told.
fn begin(uc: &mut Uc, step: Step) -> u64 {
    let state = uc.get_data_mut();
    let act = match step {
        Step::Act(act) => act,
        Step::Control(operation, user) => {
            state.wait(Waiting::Idle);
            return control(uc, operation, &user, 0);
        }
        Step::Balanced => {
            state.wait(Waiting::Balanced);
            post(uc, SERVICE, BALANCED);
            return SERVE;
        }
    };
    match act {
        Act::Call(call) => {
            state.wait(Waiting::Call);
            let seed = mix(state.calls, 0x5eed);
            let f = call.f as usize;
            let start = state.places.families[state.family].starts[f];
            let entered = Snapshot::default();
            state.frames.push(Frame {
                jumps: call.jumps,
                seed,
                now: call,
                at: u64::MAX,
                n: u64::MAX,
                open: false,
                entered,
                chain: vec![],
                replaced: false,
                value: 0,
            });
            post(uc, FUNCTION, start);
            post(uc, SEED, seed);
            CALL
        }
        Act::Interrupt(call) => beside(uc, call, INTERRUPT),
        Act::Switch(call) => beside(uc, call, SWITCH),
        Act::Look(f) => {
            let data = state.targets[f as usize];
            state.see(Event { f, data, ..Event::of(Seen::Site) });
            again(uc)
        }
        Act::Fill(n) => {
            let from = state.idle;
            state.idle += n;
            state.soon((from..from + n).map(|n| Step::Control(0, idle(n))));
            again(uc)
        }
        Act::Crowd(table, n) => {
            let users: Vec<User> = (0..n).map(|n| table.user(n)).collect();
            state.crowd.extend(users.iter().cloned());
            state.soon(users.into_iter().map(|user| Step::Control(0, user)));
            again(uc)
        }
        Act::Drain => {
            let crowd = std::mem::take(&mut state.crowd);
            let all = std::mem::take(&mut state.idle);
            let graph = (0..all).rev().map(|n| Step::Control(1, idle(n)));
            state.soon(crowd.into_iter().rev().map(|user| Step::Control(1, user)).chain(graph));
            again(uc)
        }
        Act::Churn(n) => {
            state.soon((0..n).flat_map(|_| [Step::Control(0, idle(99)), Step::Control(1, idle(99))]));
            again(uc)
        }
        Act::Register(u) => operate(uc, &act, 0, u, 0),
        Act::Unregister(u) => operate(uc, &act, 1, u, 0),
        Act::Modify(u) => operate(uc, &act, 2, u, 0),
        Act::Disable(u, disable) => operate(uc, &act, 3, u, u64::from(disable)),
        Act::Filter(u, ..) => operate(uc, &act, 4, u, 0),
        Act::Missed(u) => operate(uc, &act, 5, u, 0),
    }
}

/// The next step at once.
fn again(uc: &mut Uc) -> u64 {
    match uc.get_data_mut().levels.last_mut().and_then(|level| level.steps.pop_front()) {
        Some(step) => begin(uc, step),
        None => {
            uc.get_data_mut().levels.pop();
            END
        }
    }
}

/// A call that nobody makes who can be traced.
fn beside(uc: &mut Uc, call: Call, service: u64) -> u64 {
    uc.get_data_mut().level(VecDeque::from([Step::Act(Act::Call(call))]));
    post(uc, SERVICE, service);
    SERVE
}

impl State {
    fn wait(&mut self, waiting: Waiting) {
        if let Some(level) = self.levels.last_mut() {
            level.waiting = waiting;
        }
    }

    fn soon(&mut self, steps: impl DoubleEndedIterator<Item = Step>) {
        if let Some(level) = self.levels.last_mut() {
            steps.rev().for_each(|step| level.steps.push_front(step));
        }
    }

    /// The direct trampoline that stands for one of the model's.
    fn direct(&mut self, of: u64) -> u64 {
        let index = self.directs.iter().position(|d| *d == of).unwrap_or_else(|| {
            self.directs.push(of);
            self.directs.len() - 1
        });
        self.places.directs.get(index).copied().unwrap_or(0)
    }
}

fn operate(uc: &mut Uc, act: &Act, operation: u64, user: usize, more: u64) -> u64 {
    let state = uc.get_data_mut();
    state.wait(Waiting::Control(act.clone()));
    let mut user = state.case.users[user].clone();
    if let Act::Filter(_, f, _) = act {
        user.on = vec![*f];
    }
    let more = match (act, user.what) {
        (Act::Register(_), What::Direct { .. }) => state.direct(DIRECT[0] + user.object),
        (Act::Modify(_), _) => state.direct(DIRECT[1] + user.object),
        (Act::Filter(_, _, remove), _) => u64::from(*remove),
        (Act::Register(_), What::Hijack) => state.places.families[state.family].starts[REPLACEMENT as usize],
        (Act::Register(_), What::Kretprobe { most }) => most as u64,
        (Act::Register(_), _) => user.object,
        _ => more,
    };
    control(uc, operation, &user, more)
}

fn control(uc: &mut Uc, operation: u64, user: &User, more: u64) -> u64 {
    let what = match user.what {
        What::Op { regs } => u64::from(regs),
        What::Hijack => 2,
        What::Direct { share } => 3 + u64::from(share),
        What::Graph => 5,
        What::Fprobe { exit } => 6 + u64::from(exit),
        What::Kretprobe { .. } => 8,
    };
    let places = Arc::clone(&uc.get_data().places);
    let family = &places.families[uc.get_data().family];
    let last = if user.what == What::Hijack { family.ends[REPLACEMENT as usize] } else { user.words as u64 };
    let head = [operation, what, user.key(), more, last];
    head.into_iter().zip(0..).for_each(|(value, at)| post(uc, USER + at, value));
    for (list, at) in [(&user.on, USER + 8), (&user.not, USER + 17)] {
        post(uc, at, list.len() as u64);
        list.iter().zip(at + 1..).for_each(|(f, at)| post(uc, at, family.sites[*f as usize].ip));
    }
    post(uc, SERVICE, CONTROL);
    SERVE
}

/// Sites call something else from now on.
pub(super) fn changed(uc: &mut Uc) -> u64 {
    let wanted: Vec<u64> = (0..8).map(|f| mail(uc, TARGETS + f)).collect();
    let state = uc.get_data_mut();
    let places = Arc::clone(&state.places);
    let mut writes = vec![];
    for (f, wanted) in wanted.into_iter().enumerate() {
        let (known, target) = match wanted {
            0 => (0, None),
            1 => (1, Some(places.caller)),
            2 => (2, Some(places.regs_caller)),
            at => {
                let index = places.directs.iter().position(|d| *d == at);
                (index.and_then(|i| state.directs.get(i)).copied().unwrap_or(at), Some(at))
            }
        };
        if std::mem::replace(&mut state.targets[f], known) != known {
            let op = Some(places.ops);
            let enabled = |target| SiteState::Enabled { target, op, jump: false };
            writes.push((f, target.map_or(SiteState::Disabled, enabled)));
        }
    }
    if !writes.is_empty() {
        state.todo = Some(Todo::Patch(writes));
    }
    0
}

/// The body of a function begins.
pub(super) fn body(uc: &mut Uc, number: u64, n: u64, check: u64) -> u64 {
    let state = uc.get_data_mut();
    let signature = SIGNATURES[state.family];
    let Some(frame) = state.frames.last_mut() else { return 0 };
    let (good, entered) = (check == checked(frame.seed, signature), frame.n);
    frame.chain.push((number, n));
    frame.open = false;
    frame.replaced = number == REPLACEMENT && frame.now.f != REPLACEMENT;
    let acts = match frame.replaced {
        true => vec![Act::Call(Call { jumps: false, ..frame.now.clone() })],
        false => frame.now.body.clone(),
    };
    if !good {
        state.lost("an argument", number, check);
    }
    if n != entered {
        state.lost("the first argument", number, n);
    }
    state.see(Event { f: number, n, ..Event::of(Seen::Body) });
    state.level(acts.into_iter().map(Step::Act).collect());
    0
}

/// What it calls last, as a jump.
pub(super) fn tail(uc: &mut Uc) -> u64 {
    let state = uc.get_data_mut();
    let seed = mix(state.calls, 0x7a11);
    let Some(frame) = state.frames.last_mut() else { return 0 };
    let Some(tail) = frame.now.tail.clone().filter(|_| !frame.replaced) else { return 0 };
    frame.now = *tail;
    frame.seed = seed;
    let start = state.places.families[state.family].starts[frame.now.f as usize];
    post(uc, SEED, seed);
    start
}

/// It returns.
pub(super) fn result(uc: &mut Uc, number: u64, n: u64) -> u64 {
    let state = uc.get_data_mut();
    let value = mix(number, n);
    let Some(frame) = state.frames.last_mut() else { return value };
    frame.value = value;
    let (chain, jumps) = (frame.chain.clone(), frame.jumps);
    for (f, n) in chain.into_iter().rev() {
        state.see(Event { f, n, value, ..Event::of(Seen::Result) });
    }
    if jumps && let Some(asked) = state.levels.last().and_then(|level| level.asked.clone()) {
        state.todo = Some(Todo::Resume(Box::new(asked)));
    }
    value
}
