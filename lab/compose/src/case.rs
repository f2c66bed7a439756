//! A case: users of the runtime, and a thread that calls functions and registers and unregisters them.

use std::fmt;

/// Functions that can be traced. The last one is the replacement of redirected functions.
pub const FUNCTIONS: u64 = 8;
/// The replacement, which calls the original.
pub const REPLACEMENT: u64 = FUNCTIONS - 1;
/// A function that nobody calls.
pub const UNCALLED: u64 = FUNCTIONS - 2;
/// Whom the outermost functions return to.
pub const OUTSIDE: u64 = 0x10_0000;
/// Whom functions return to that handlers call.
pub const HANDLER: u64 = 0x20_0000;
/// The direct trampolines of a user: that with which it is registered and that to which it is modified.
const DIRECT: [u64; 2] = [0x30_0000, 0x30_1000];
/// Those that record.
const RECORDER: [u64; 2] = [0x50_0000, 0x50_1000];

/// The address of a function.
#[must_use]
pub const fn address(function: u64) -> u64 {
    (function + 1) << 12
}

/// What a user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An ops with a callback; with all registers or without.
    Op {
        /// All registers.
        regs: bool,
    },
    /// An IPMODIFY ops that redirects to the replacement.
    Hijack,
    /// A direct call.
    Direct {
        /// It shares functions with IPMODIFY.
        share: bool,
    },
    /// A direct call of a trampoline that records entries. It goes on where the site says, and so shares with IPMODIFY.
    Recorder,
    /// A user of the function graph.
    Graph,
    /// An fprobe.
    Fprobe {
        /// With exit handler.
        exit: bool,
    },
    /// A kretprobe: with so many pending calls, or as many as there is room for.
    Kretprobe {
        /// The bound; 0 is none.
        most: usize,
    },
}

impl What {
    /// Users of one family are told apart by their objects' addresses.
    #[must_use]
    pub const fn family(self) -> u8 {
        match self {
            Self::Op { .. } | Self::Hijack | Self::Direct { .. } | Self::Recorder => 0,
            Self::Graph => 1,
            Self::Fprobe { .. } => 2,
            Self::Kretprobe { .. } => 3,
        }
    }

    /// Of a direct call: does it share functions with IPMODIFY?
    #[must_use]
    pub const fn direct(self) -> Option<bool> {
        match self {
            Self::Direct { share } => Some(share),
            Self::Recorder => Some(true),
            _ => None,
        }
    }

    /// The direct trampoline of a user with this object: that with which it is registered, or the second one.
    #[must_use]
    pub const fn trampoline(self, object: u64, second: bool) -> u64 {
        let both = if matches!(self, Self::Recorder) { RECORDER } else { DIRECT };
        both[second as usize] + object
    }

    /// Does the direct trampoline there record?
    #[must_use]
    pub const fn records(trampoline: u64) -> bool {
        trampoline >= RECORDER[0]
    }
}

/// What an entry handler answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It wants each return.
    Always,
    /// It wants none.
    Never,
    /// It wants those of calls with an odd number.
    Odd,
}

/// When a handler does something of its own, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At an entry.
    Entry,
    /// At a return.
    Return,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What it is.
    pub what: What,
    /// Its functions; none is all.
    pub on: Vec<u64>,
    /// Functions that it does not want.
    pub not: Vec<u64>,
    /// What its entry handler answers.
    pub answer: Answer,
    /// Words of data from the entry to the return.
    pub words: usize,
    /// What a handler does besides.
    pub then: Option<(When, Box<Act>)>,
    /// The address of its object, as a number. Two users may have one memory, one after the other.
    pub object: u64,
}

impl User {
    /// The address of its object.
    #[must_use]
    pub const fn key(&self) -> u64 {
        0xf000_0000_0000_0000 + self.object
    }

    /// Does it want the return of call `n`?
    #[must_use]
    pub const fn wants(&self, n: u64) -> bool {
        match self.answer {
            Answer::Always => true,
            Answer::Never => false,
            Answer::Odd => n % 2 == 1,
        }
    }

    /// What it stores for call `n`.
    #[must_use]
    pub fn data(&self, n: u64) -> Vec<u64> {
        let value = |i: u64| match mix(self.object + 1, n.wrapping_mul(64).wrapping_add(i)) {
            // What may look like a header on the shadow stack: a small number of a registration, and a slot.
            x if x % 3 == 0 => (((x >> 8) % 16) << 12) | (((x >> 16) % 2) << 4),
            x => x,
        };
        (0..self.words as u64).map(value).collect()
    }
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub f: u64,
    /// What happens in it.
    pub body: Vec<Act>,
    /// What it calls last, as a jump.
    pub tail: Option<Box<Call>>,
    /// It is left by a jump to its caller.
    pub jumps: bool,
}

/// A table of the core, of which each place is one user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Of ops: each mechanism takes a place, too.
    Ops,
    /// Of fprobes.
    Fprobes,
    /// Of kretprobes.
    Kretprobes,
}

impl Table {
    /// Its places.
    #[must_use]
    pub const fn room(self) -> u64 {
        match self {
            Self::Ops => 24,
            Self::Fprobes => 32,
            Self::Kretprobes => 16,
        }
    }

    /// Who is in it, number `n` of those that trace nothing which is called.
    #[must_use]
    pub fn user(self, n: u64) -> User {
        let (what, object) = match self {
            Self::Ops => (What::Op { regs: false }, 0x1000),
            Self::Fprobes => (What::Fprobe { exit: false }, 0x2000),
            Self::Kretprobes => (What::Kretprobe { most: 0 }, 0x3000),
        };
        let (on, not) = (vec![UNCALLED], vec![]);
        User { what, on, not, answer: Answer::Always, words: 0, then: None, object: object + 8 * n }
    }
}

/// Who runs, the innermost first: at most sixteen of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callers(u64);

impl Callers {
    /// How many are kept.
    pub const MOST: usize = 16;

    /// Those with these addresses, as parents of events have them.
    pub fn of(all: impl IntoIterator<Item = u64>) -> Self {
        let told = all.into_iter().take(Self::MOST).enumerate();
        Self(told.fold(0, |packed, (at, address)| packed | Self::number(address) << (4 * at)))
    }

    /// Functions count from 1; then a handler, the outside caller, and 15 for an unknown address.
    const fn number(address: u64) -> u64 {
        match address {
            HANDLER => FUNCTIONS + 1,
            OUTSIDE => FUNCTIONS + 2,
            at if at & 0xfff == 0x100 && at >> 12 >= 1 && at >> 12 <= FUNCTIONS => at >> 12,
            _ => 15,
        }
    }
}

impl fmt::Display for Callers {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        const HANDLERS: u64 = FUNCTIONS + 1;
        const NOBODY: u64 = FUNCTIONS + 2;
        for at in (0..Self::MOST).take_while(|at| self.0 >> (4 * at) != 0) {
            f.write_str(if at == 0 { ", within " } else { " in " })?;
            match self.0 >> (4 * at) & 15 {
                HANDLERS => f.write_str("a handler")?,
                NOBODY => f.write_str("the outside caller")?,
                number @ 1..=FUNCTIONS => write!(f, "f{}", number - 1)?,
                _ => f.write_str("?")?,
            }
        }
        Ok(())
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A user is registered.
    Register(usize),
    /// A user is unregistered.
    Unregister(usize),
    /// A direct call goes to its second trampoline.
    Modify(usize),
    /// A probe is disabled or enabled.
    Disable(usize, bool),
    /// A function is put into the filter of an ops, or taken out.
    Filter(usize, u64, bool),
    /// A function is called.
    Call(Call),
    /// An interrupt comes, and its handler calls a function.
    Interrupt(Call),
    /// Another thread runs, and calls a function.
    Switch(Call),
    /// A third thread calls a function and stays in it, while others run. What it does itself of this and the next two is
    /// nothing.
    Enter(Call),
    /// The function in which it stays returns.
    Leave,
    /// It ends, in whatever functions it is: they never return. The next one begins.
    End,
    /// So many graph users come that trace nothing which is called.
    Fill(u64),
    /// So many users come that trace nothing which is called, until a table of the core is full.
    Crowd(Table, u64),
    /// And they go.
    Drain,
    /// One of them comes and goes, so many times.
    Churn(u64),
    /// Somebody looks what a function's site calls.
    Look(u64),
    /// Somebody looks how many calls a probe missed.
    Missed(usize),
}

/// A case.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Case {
    /// The users, registered by acts.
    pub users: Vec<User>,
    /// What happens.
    pub acts: Vec<Act>,
}

impl Case {
    /// Is a function left by a jump to its caller anywhere?
    #[must_use]
    pub fn jumps(&self) -> bool {
        self.any_call(&|call| call.jumps)
    }

    /// Does a function call another last, as a jump?
    #[must_use]
    pub fn jumps_last(&self) -> bool {
        self.any_call(&|call| call.tail.is_some())
    }

    fn any_call(&self, test: &dyn Fn(&Call) -> bool) -> bool {
        fn within(call: &Call, test: &dyn Fn(&Call) -> bool) -> bool {
            let tail = call.tail.as_deref().is_some_and(|tail| within(tail, test));
            test(call) || tail || call.body.iter().any(|a| act(a, test))
        }
        fn act(a: &Act, test: &dyn Fn(&Call) -> bool) -> bool {
            matches!(a, Act::Call(c) | Act::Interrupt(c) | Act::Switch(c) | Act::Enter(c) if within(c, test))
        }
        let handlers = self.users.iter().filter_map(|u| u.then.as_ref()).map(|(_, a)| &**a);
        self.acts.iter().chain(handlers).any(|a| act(a, test))
    }
}

/// One of many values, by two numbers.
#[must_use]
pub const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0x2545_f491_4f6c_dd1d);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
}

/// What is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// An ops' callback.
    Op,
    /// The direct trampoline with the address in `data`.
    Direct,
    /// A record that it wrote.
    Recorded,
    /// A graph user's entry, or return.
    GraphEntry,
    /// Its return.
    GraphReturn,
    /// An fprobe's entry.
    ProbeEntry,
    /// Its exit.
    ProbeExit,
    /// A kretprobe's entry.
    KretEntry,
    /// Its return.
    KretReturn,
    /// A function's body.
    Body,
    /// A function's result, in `value`.
    Result,
    /// A return to an address that is not the caller's: it is in `data`.
    WrongReturn,
    /// What an operation returned, in `value`.
    Done,
    /// What a site calls, in `data`.
    Site,
    /// Missed calls, in `value`.
    Missed,
    /// At the end something is pending on a thread.
    Unbalanced,
    /// A machine does not keep this; what is there instead is in `value`.
    Lost(&'static str),
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What is seen.
    pub seen: Seen,
    /// The user, by the number of its object.
    pub user: u64,
    /// The function.
    pub f: u64,
    /// The number of the call.
    pub n: u64,
    /// Whom it returns to.
    pub parent: u64,
    /// A result.
    pub value: u64,
    /// Data from the entry, folded to a word.
    pub data: u64,
    /// Hooked functions around it.
    pub depth: u64,
    /// Whom an unwinder finds there.
    pub callers: Callers,
}

impl Event {
    /// Nothing but what is seen.
    #[must_use]
    pub const fn of(seen: Seen) -> Self {
        Self { seen, user: 0, f: 0, n: 0, parent: 0, value: 0, data: 0, depth: 0, callers: Callers(0) }
    }
}

/// Data folded to a word.
#[must_use]
pub fn fold(data: Option<&[u64]>) -> u64 {
    data.map_or(0, |words| words.iter().fold(words.len() as u64, |a, w| mix(a, *w)))
}

fn list(f: &mut fmt::Formatter, functions: &[u64]) -> fmt::Result {
    let names: Vec<String> = functions.iter().map(|f| format!("f{f}")).collect();
    f.write_str(&names.join(","))
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.what {
            What::Op { regs: false } => f.write_str("args op")?,
            What::Op { regs: true } => f.write_str("regs op")?,
            What::Hijack => f.write_str("hijack")?,
            What::Direct { share: false } => f.write_str("direct call")?,
            What::Direct { share: true } => f.write_str("sharing direct call")?,
            What::Recorder => f.write_str("recorder")?,
            What::Graph => f.write_str("graph user")?,
            What::Fprobe { exit: false } => f.write_str("fprobe, entry only")?,
            What::Fprobe { exit: true } => f.write_str("fprobe")?,
            What::Kretprobe { most: 0 } => f.write_str("kretprobe")?,
            What::Kretprobe { most } => write!(f, "kretprobe of {most}")?,
        }
        f.write_str(" on ")?;
        match &*self.on {
            [] => f.write_str("all")?,
            on => list(f, on)?,
        }
        if !self.not.is_empty() {
            f.write_str(" but ")?;
            list(f, &self.not)?;
        }
        match self.answer {
            Answer::Always => {}
            Answer::Never => f.write_str(", wants no return")?,
            Answer::Odd => f.write_str(", wants returns of odd calls")?,
        }
        if self.words > 0 {
            write!(f, ", {} words of data", self.words)?;
        }
        if let Some((when, act)) = &self.then {
            let when = if *when == When::Entry { "entry" } else { "return" };
            write!(f, ", at its first {when}: {act}")?;
        }
        write!(f, ", object {}", self.object)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "f{}", self.f)?;
        if !self.body.is_empty() {
            let body: Vec<String> = self.body.iter().map(ToString::to_string).collect();
            write!(f, " {{ {} }}", body.join("; "))?;
        }
        if let Some(tail) = &self.tail {
            write!(f, " -> {tail}")?;
        }
        if self.jumps { f.write_str(" (left by a jump)") } else { Ok(()) }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Register(u) => write!(f, "register u{u}"),
            Self::Unregister(u) => write!(f, "unregister u{u}"),
            Self::Modify(u) => write!(f, "modify u{u}"),
            Self::Disable(u, true) => write!(f, "disable u{u}"),
            Self::Disable(u, false) => write!(f, "enable u{u}"),
            Self::Filter(u, function, true) => write!(f, "take f{function} from u{u}"),
            Self::Filter(u, function, false) => write!(f, "give f{function} to u{u}"),
            Self::Call(call) => call.fmt(f),
            Self::Interrupt(call) => write!(f, "interrupt: {call}"),
            Self::Switch(call) => write!(f, "other thread: {call}"),
            Self::Enter(call) => write!(f, "third thread stays in {call}"),
            Self::Leave => f.write_str("third thread returns"),
            Self::End => f.write_str("third thread ends"),
            Self::Fill(n) => write!(f, "{n} graph users come"),
            Self::Crowd(table, n) => {
                let whats = match table {
                    Table::Ops => "ops",
                    Table::Fprobes => "fprobes",
                    Table::Kretprobes => "kretprobes",
                };
                write!(f, "{n} {whats} come")
            }
            Self::Drain => f.write_str("they go"),
            Self::Churn(n) => write!(f, "a graph user comes and goes {n} times"),
            Self::Look(function) => write!(f, "look at the site of f{function}"),
            Self::Missed(u) => write!(f, "look what u{u} missed"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, user) in self.users.iter().enumerate() {
            writeln!(f, "  u{index}: {user}")?;
        }
        for act in &self.acts {
            writeln!(f, "  {act}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { seen, user, f: function, n, parent, value, data, depth, callers } = self;
        match seen {
            Seen::Done => write!(f, "an operation returns {}", *value as i64),
            Seen::Missed => write!(f, "{} calls missed", *value as i64),
            Seen::Site => write!(f, "the site of f{function} calls {data:#x}"),
            Seen::Body => write!(f, "f{function} runs, call {n}"),
            Seen::Result => write!(f, "f{function} returns {value:#x}, call {n}"),
            Seen::Direct => {
                write!(f, "f{function} goes through the direct trampoline {data:#x}, call {n}{callers}")
            }
            Seen::Recorded => write!(f, "the trampoline {data:#x} records f{function}, call {n}"),
            Seen::WrongReturn => write!(f, "f{function} returns to {data:#x}"),
            Seen::Unbalanced => f.write_str("something is pending at the end"),
            Seen::Lost(what) => write!(f, "{what} is lost in f{function}: {value:#x}"),
            _ => {
                let handler = match seen {
                    Seen::Op => "callback",
                    Seen::GraphEntry | Seen::ProbeEntry | Seen::KretEntry => "entry handler",
                    _ => "return handler",
                };
                write!(f, "{handler} of object {user} for f{function}, call {n}, caller {parent:#x}, depth {depth}")?;
                write!(f, ", value {value:#x}, data {data:#x}{callers}")
            }
        }
    }
}
