//! Cases: all subsets of twelve users with each shape of call at each moment, and random ones by seed.

use crate::case::{Act, Answer, Call, Case, Table, UNCALLED, User, What, When, mix};

/// Names of the twelve users, by which `--users` chooses.
pub const USERS: [&str; 12] = [
    "args",
    "args2",
    "regs",
    "direct",
    "hijack",
    "graph",
    "graph2",
    "fprobe-entry",
    "fprobe-exit",
    "fprobe",
    "kretprobe",
    "recorder",
];

/// Shapes of calls.
pub const SHAPES: [&str; 9] =
    ["leaf", "caller", "recursion", "tail", "interrupt", "threads", "jump", "outlives", "ends"];

/// When the last user of a subset comes or goes.
pub const MOMENTS: [&str; 9] =
    ["there", "added", "removed", "reused", "full", "handler", "cycled", "crowded", "reordered"];

const TABLES: [Table; 3] = [Table::Ops, Table::Fprobes, Table::Kretprobes];

/// How many cases all subsets make.
pub const SUBSETS: u64 = (1 << USERS.len()) * SHAPES.len() as u64 * MOMENTS.len() as u64;

const fn leaf(f: u64) -> Call {
    Call { f, body: vec![], tail: None, jumps: false }
}

fn call(f: u64, body: Vec<Act>) -> Call {
    Call { f, body, tail: None, jumps: false }
}

fn user(what: What, on: &[u64], object: u64) -> User {
    User { what, on: on.to_vec(), not: vec![], answer: Answer::Always, words: 0, then: None, object }
}

/// The user at this place of the list.
fn listed(index: usize) -> User {
    let object = 8 * (index as u64 + 1) + index as u64 % 7;
    match index {
        0 => user(What::Op { regs: false }, &[0, 2], object),
        1 => User { not: vec![1], ..user(What::Op { regs: false }, &[], object) },
        2 => user(What::Op { regs: true }, &[0, 1], object),
        3 => user(What::Direct { share: true }, &[0, 1], object),
        4 => user(What::Hijack, &[0], object),
        5 => User { words: 2, ..user(What::Graph, &[0, 1, 2], object) },
        6 => User { words: 3, answer: Answer::Odd, ..user(What::Graph, &[1, 2], object) },
        7 => user(What::Fprobe { exit: false }, &[0, 2], object),
        8 => User { words: 1, ..user(What::Fprobe { exit: true }, &[0, 1], object) },
        9 => User { words: 2, answer: Answer::Odd, ..user(What::Fprobe { exit: true }, &[0, 2], object) },
        10 => User { words: 1, ..user(What::Kretprobe { most: 2 }, &[0], object) },
        _ => user(What::Recorder, &[0, 2], object),
    }
}

/// So many users in the order of registering. Another one for a shape is the opposite one of two, and one of many of more.
fn order(users: usize, another: Option<u64>) -> Vec<usize> {
    let mut all: Vec<usize> = (0..users).collect();
    if let Some(shape) = another {
        all.sort_by_key(|user| if users == 2 { u64::MAX - *user as u64 } else { mix(shape, *user as u64) });
    }
    all
}

/// Case number `index` of all subsets, of those users whose bit is set in `allowed`. None: the subset is another's.
#[must_use]
pub fn subset(index: u64, allowed: u64) -> Option<Case> {
    let (set, rest) = (index % (1 << USERS.len()), index >> USERS.len());
    let (shape, moment) = (rest % SHAPES.len() as u64, rest / SHAPES.len() as u64);
    if set & !allowed != 0 {
        return None;
    }
    let mut case = Case { users: (0..USERS.len()).filter(|i| set >> i & 1 == 1).map(listed).collect(), acts: vec![] };
    let last = case.users.len().checked_sub(1);
    let early = if moment == 1 { last.unwrap_or(0) } else { case.users.len() };
    if moment == 4 {
        case.acts.push(Act::Fill(16));
    }
    if moment == 7 {
        let table = TABLES[(shape % 3) as usize];
        case.acts.push(Act::Crowd(table, table.room() - set.count_ones() as u64 / 2));
    }
    case.acts.extend(order(early, (moment == 8).then_some(shape)).into_iter().map(Act::Register));
    let mut inside = vec![];
    match (moment, last) {
        (1, Some(last)) => inside.push(Act::Register(last)),
        (2, Some(last)) => inside.push(Act::Unregister(last)),
        (3, Some(last)) => {
            // Other functions and another answer, in the same memory.
            let old = case.users[last].clone();
            let words = if old.words == 0 { 0 } else { old.words + 1 };
            case.users.push(User { on: vec![1, 2], words, ..old });
            inside.extend([Act::Unregister(last), Act::Register(last + 1)]);
        }
        (6, Some(last)) => {
            // The slots of the graph are given out until that of the last user comes again.
            let new = User { object: 200, ..case.users[last].clone() };
            case.users.push(new);
            let exits = |w: What| w == What::Fprobe { exit: true };
            let left = &case.users[..last];
            let taken = left.iter().filter(|u| u.what == What::Graph).count();
            let taken = taken + usize::from(left.iter().any(|u| exits(u.what)));
            inside.extend([Act::Unregister(last), Act::Churn(15 - taken as u64), Act::Register(last + 1)]);
        }
        // Whoever was refused comes in once there is room.
        (7, Some(last)) => inside.extend([Act::Drain, Act::Register(last)]),
        (5, Some(last)) => {
            let then = [
                (0, Act::Unregister(last)),
                (0, Act::Call(leaf(1))),
                (0, Act::Interrupt(leaf(2))),
                (0, Act::Unregister(0)),
                (last, Act::Unregister(last)),
            ];
            let (who, act) = then[index as usize % then.len()].clone();
            case.users[who].then = Some((When::Entry, Box::new(act)));
        }
        _ => {}
    }
    let shaped = match shape {
        0 => call(0, inside),
        1 => call(0, [inside, vec![Act::Call(leaf(1)), Act::Call(leaf(2))]].concat()),
        2 => call(0, vec![Act::Call(call(0, [inside, vec![Act::Call(leaf(0))]].concat()))]),
        3 => Call { tail: Some(Box::new(Call { tail: Some(Box::new(leaf(2))), ..leaf(1) })), ..call(0, inside) },
        4 => call(0, [vec![Act::Interrupt(leaf(1))], inside, vec![Act::Interrupt(leaf(0))]].concat()),
        5 => call(0, [vec![Act::Switch(call(0, inside))], vec![Act::Switch(leaf(0))]].concat()),
        6 => call(1, [vec![Act::Call(Call { jumps: true, ..call(0, inside) })], vec![Act::Call(leaf(0))]].concat()),
        // A thread of which one function returns before the one that runs, and one after it.
        7 => call(0, [vec![Act::Enter(leaf(1))], inside, vec![Act::Leave]].concat()),
        // One that ends inside.
        _ => call(0, [vec![Act::Enter(leaf(1))], inside, vec![Act::End]].concat()),
    };
    if shape >= 7 {
        case.acts.push(Act::Enter(leaf(0)));
    }
    case.acts.push(Act::Call(shaped));
    if shape >= 7 {
        case.acts.extend([Act::Leave, Act::Enter(leaf(0)), Act::Leave]);
    }
    case.acts.extend([Act::Look(0), Act::Call(leaf(0)), Act::Call(call(1, vec![Act::Call(leaf(2))]))]);
    case.acts.extend((0..case.users.len()).rev().map(Act::Unregister));
    case.acts.extend([Act::Look(0), Act::Call(leaf(0))]);
    Some(case)
}

/// Cases that chance seldom makes.
#[must_use]
pub fn rare() -> Vec<Case> {
    let probe = |f, object| user(What::Fprobe { exit: true }, &[f], object);
    // Of two probes one unregisters itself at an entry. There is no hook then: the depth of the next call shows it.
    let itself = (When::Entry, Box::new(Act::Unregister(0)));
    let users = vec![User { then: Some(itself), ..probe(0, 8) }, probe(1, 16)];
    let acts = vec![Act::Register(0), Act::Register(1), Act::Call(call(0, vec![Act::Call(leaf(1))]))];
    let unregisters = Case { users, acts };
    // A function is left by a jump, and one around it returns: the inner kretprobe has no return.
    let kretprobe = |f, object| user(What::Kretprobe { most: 0 }, &[f], object);
    let jumps = call(1, vec![Act::Call(Call { jumps: true, ..leaf(0) })]);
    let acts = vec![Act::Register(0), Act::Register(1), Act::Call(jumps)];
    let jumped = Case { users: vec![kretprobe(0, 8), kretprobe(1, 16)], acts };
    // Of an ops with one function, that one is taken away.
    let op = |f, object| user(What::Op { regs: false }, &[f], object);
    let acts = vec![Act::Register(0), Act::Filter(0, 0, true), Act::Call(leaf(0)), Act::Call(leaf(1))];
    let nothing = Case { users: vec![op(0, 8)], acts };
    // A handler calls a function that is redirected.
    let hijack = user(What::Hijack, &[0], 8);
    let calls = User { then: Some((When::Entry, Box::new(Act::Call(leaf(0))))), ..op(1, 16) };
    let acts = vec![Act::Register(0), Act::Register(1), Act::Call(leaf(1))];
    let in_handler = Case { users: vec![hijack.clone(), calls], acts };
    // Who comes second to a function that a redirection and a direct call do not share is refused.
    let users = vec![hijack, user(What::Direct { share: false }, &[0], 16)];
    let refused = [[0, 1], [1, 0]]
        .map(|order| Case { users: users.clone(), acts: order.into_iter().map(Act::Register).collect() });
    // Of two functions, of which one jumps to the other, a kretprobe replaces the second's return alone.
    let users = vec![user(What::Graph, &[0], 8), kretprobe(1, 16), user(What::Op { regs: true }, &[1], 24)];
    let tail = Call { tail: Some(Box::new(leaf(1))), ..leaf(0) };
    let acts = (0..3).map(Act::Register).chain([Act::Call(tail)]).collect();
    let between = Case { users, acts };
    // An interrupt of an entry leaves a function by a jump: what the next user stores of that entry is kept all the same.
    let left = Act::Interrupt(call(1, vec![Act::Call(Call { jumps: true, ..leaf(2) })]));
    let graph = |on: &[u64], object| User { words: 2, ..user(What::Graph, on, object) };
    let users = vec![User { then: Some((When::Entry, Box::new(left))), ..graph(&[0, 2], 8) }, graph(&[0], 16)];
    let acts = vec![Act::Register(0), Act::Register(1), Act::Call(leaf(0)), Act::Call(leaf(0))];
    let behind = Case { users, acts };
    [unregisters, jumped, nothing, in_handler, between, behind].into_iter().chain(refused).collect()
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    const fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0, 77) % sides
    }

    const fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

/// Draw a random case, with the users that `allowed` has as bits.
#[must_use]
pub fn random(seed: u64, allowed: u64) -> Case {
    let mut dice = Dice(mix(seed, 0x5eed));
    let mut case = Case::default();
    let kinds: Vec<usize> = (0..USERS.len()).filter(|i| allowed >> i & 1 == 1).collect();
    if kinds.is_empty() {
        return case;
    }
    let count = 1 + dice.roll(6);
    for n in 0..count {
        let mut user = listed(kinds[dice.roll(kinds.len() as u64) as usize]);
        // Two users share an object at times, one after the other.
        user.object = if n > 0 && dice.one_in(4) { case.users[0].object } else { 8 * (n + 1) + n };
        vary(&mut user, &mut dice);
        case.users.push(user);
    }
    for index in 0..case.users.len() {
        if dice.one_in(5) {
            let when = if dice.one_in(2) { When::Entry } else { When::Return };
            let act = match dice.roll(4) {
                0 => Act::Unregister(index),
                1 => Act::Unregister(dice.roll(count) as usize),
                2 => Act::Interrupt(calls(&mut dice, 1, count)),
                _ => Act::Call(calls(&mut dice, 1, count)),
            };
            case.users[index].then = Some((when, Box::new(act)));
        }
    }
    if dice.one_in(12) {
        case.acts.push(Act::Fill(14 + dice.roll(3)));
    } else if dice.one_in(12) {
        case.acts.push(Act::Churn(dice.roll(20)));
    } else if dice.one_in(12) && case.users.iter().all(|u| u.then.is_none()) {
        // While a handler runs, places are freed and not given out again.
        let table = TABLES[dice.roll(3) as usize];
        case.acts.push(Act::Crowd(table, table.room() - dice.roll(4)));
    }
    for _ in 0..3 + dice.roll(8) {
        let act = match dice.roll(20) {
            0..6 => Act::Call(calls(&mut dice, 3, count)),
            6 => Act::Enter(calls(&mut dice, 1, count)),
            7 => Act::Leave,
            _ => control(&mut dice, count),
        };
        case.acts.push(act);
    }
    if dice.one_in(40) {
        // Deeper than the stack: not traced, and nothing worse.
        // Of two users with data, one wants every other return: what it stored must not take the other's room.
        let f = 1 + dice.roll(2);
        for (kind, object) in [(5, 400), (6, 408)].into_iter().filter(|(kind, _)| kinds.contains(kind)) {
            case.acts.push(Act::Register(case.users.len()));
            case.users.push(User { object, ..listed(kind) });
        }
        let mut deep = calls(&mut dice, 1, count);
        for _ in 0..100 + dice.roll(60) {
            deep = call(f, vec![Act::Call(deep)]);
        }
        case.acts.push(Act::Call(deep));
    }
    case.acts.extend((0..count as usize).map(Act::Missed));
    case.acts.push(Act::Call(calls(&mut dice, 2, count)));
    case
}

fn vary(user: &mut User, dice: &mut Dice) {
    let some: Vec<u64> = (0..UNCALLED).filter(|_| dice.one_in(2)).collect();
    // Who excludes others is on few functions, so that others are too.
    let exclusive = user.what.direct().is_some() || matches!(user.what, What::Hijack | What::Kretprobe { .. });
    user.on = if exclusive { vec![dice.roll(3)] } else { some };
    user.not =
        if dice.one_in(4) && matches!(user.what, What::Op { .. } | What::Graph) { vec![dice.roll(3)] } else { vec![] };
    if dice.one_in(2) && matches!(user.what, What::Graph | What::Fprobe { exit: true } | What::Kretprobe { .. }) {
        user.answer = [Answer::Always, Answer::Never, Answer::Odd][dice.roll(3) as usize];
    }
    match &mut user.what {
        What::Direct { share } => *share = !dice.one_in(3),
        What::Graph => user.words = [0, 1, 4, 32, 33, 2][dice.roll(6) as usize],
        What::Fprobe { exit: true } => user.words = [0, 1, 15, 16, 3, 2][dice.roll(6) as usize],
        What::Kretprobe { most } => (*most, user.words) = (dice.roll(3) as usize, dice.roll(9) as usize),
        _ => {}
    }
}

fn control(dice: &mut Dice, users: u64) -> Act {
    let user = dice.roll(users) as usize;
    match dice.roll(20) {
        0..9 => Act::Register(user),
        9..13 => Act::Unregister(user),
        13 => Act::Modify(user),
        14 => Act::Disable(user, dice.one_in(2)),
        15 => Act::Filter(user, dice.roll(3), dice.one_in(2)),
        16 => Act::Look(dice.roll(3)),
        17 => Act::Churn(1 + dice.roll(16)),
        18 => Act::Fill(1 + dice.roll(3)),
        _ => Act::Drain,
    }
}

fn calls(dice: &mut Dice, depth: u64, users: u64) -> Call {
    let mut made = leaf(dice.roll(4));
    if depth == 0 {
        return made;
    }
    for _ in 0..dice.roll(3) {
        made.body.push(match dice.roll(12) {
            0..3 => control(dice, users),
            3 => Act::Interrupt(calls(dice, depth - 1, users)),
            4 => Act::Switch(calls(dice, depth - 1, users)),
            5 => Act::Enter(calls(dice, depth - 1, users)),
            6 => {
                if dice.one_in(3) {
                    Act::End
                } else {
                    Act::Leave
                }
            }
            _ => Act::Call(calls(dice, depth - 1, users)),
        });
    }
    if dice.one_in(5) {
        made.tail = Some(Box::new(calls(dice, depth - 1, users)));
    }
    made.jumps = dice.one_in(25);
    made
}
