//! What a run does besides calling: what callbacks and programs decide, and how the return is hooked.

use std::fmt;
use std::str::FromStr;

use codegen::ask::frame::{Content, Stores};
use codegen::ask::kind::{Calls, Gives, Kind};
use codegen::contract::Contract;
use codegen::words::abi::RegSet;
use codegen::words::error::Error;
use codegen::words::program::{Attach, called};
use codegen::words::step::{ExitPath, KernelLabel};

/// A situation; its name is what `check --situation` takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Situation {
    /// A callback or handler may rewrite arguments, redirect the function, choose a direct trampoline, and hook the return.
    Calls {
        /// The callback rewrites the arguments.
        args: bool,
        /// The callback redirects the function.
        ip: bool,
        /// The callback chooses a direct trampoline.
        direct: Chosen,
        /// The callback replaces the parent by the trampoline of function graphs.
        parent: bool,
    },
    /// The return is hooked for function graphs, and the exit handler changes the results.
    ParentResults,
    /// The return is hooked as for a kretprobe.
    Rethook {
        /// The exit handler changes the results.
        results: bool,
    },
    /// The direct trampoline in `op` is gone to before anything is called.
    EarlyDirect,
    /// The first variable by which the callee is found is NULL: the second one has it.
    Second,
    /// Nothing is called: all variables by which the callee is found are NULL, or the site holds what the contract says.
    Null,
    /// No callback is attached: the slot calls `ftrace_stub`.
    Stub,
    /// As `Stub`, with `ftrace_stub_graph`.
    StubGraph,
    /// The exit handler or the last program changes the results.
    Results,
    /// The first fmod_ret program skips the function.
    Skip,
    /// The last fmod_ret program skips the function.
    SkipLast,
    /// Behind the traced function stands a jump past the programs that come after it.
    Retired,
    /// There is no room for a record.
    Full,
    /// There is room for one record, which begins right below the limit.
    LastSlot,
    /// There is no room for a record until the routine is called that makes some.
    Refilled,
    /// There is room for one record; for the next, the routine makes some.
    LastRefilled,
    /// The thread's shadow stack has no room.
    ShadowFull,
    /// The function calls others that do not return, and whose entries stay on the shadow stack.
    LeftBehind,
    /// The thread is new: it has no buffer and no shadow stack.
    First(First),
    /// Every other program is detached: a jump past its call stands before it.
    Detached {
        /// The second is the first of them.
        others: bool,
    },
    /// The function before each program says that it is not to be called.
    Unentered,
    /// The boundary's result with this number, from 0, of those that its contract states.
    Result(u8),
    /// The context that a switch goes to has not run yet.
    Fresh,
    /// It has not, and its function returns.
    Ended,
}

/// Results of a boundary that can be told apart.
pub(crate) const MOST_RESULTS: u8 = 32;

/// The fate of a thread's first record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum First {
    /// The routine that makes room makes buffer and shadow stack. The words say until then that there is no room for a record, and
    /// some on the shadow stack.
    Made,
    /// Nobody makes a buffer: the words are 0, and nothing is stored.
    Dropped,
    /// Nobody makes a shadow stack: the words are 0, and the function is left alone.
    Untraced,
}

/// The callback's choice of a direct trampoline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Chosen {
    /// There is none.
    No,
    /// A direct trampoline that the site calls.
    Called,
    /// A direct trampoline that the site jumps to.
    Jumped,
}

/// A decision by its name, and whether it is taken.
type Decision = (&'static str, fn(Situation) -> bool);

/// The decisions that make up a name, in the order in which they stand there.
const DECISIONS: [Decision; 29] = [
    ("args", Situation::args),
    ("ip", Situation::ip),
    ("direct", Situation::direct),
    ("direct-jump", Situation::direct_jump),
    ("early-direct", Situation::early),
    ("parent", |s| s.parent() && !s.rethook()),
    ("rethook", Situation::rethook),
    ("results", Situation::results),
    ("skip", |s| s == Situation::Skip),
    ("skip-last", |s| s == Situation::SkipLast),
    ("retired", Situation::retired),
    ("detached", |s| s == Situation::Detached { others: false }),
    ("detached-others", |s| s == Situation::Detached { others: true }),
    ("unentered", |s| s == Situation::Unentered),
    ("stub", |s| s == Situation::Stub),
    ("stub-graph", |s| s == Situation::StubGraph),
    ("second", |s| s == Situation::Second),
    ("null", |s| s == Situation::Null),
    ("full", |s| s == Situation::Full),
    ("last-slot", |s| s == Situation::LastSlot),
    ("refilled", |s| s == Situation::Refilled),
    ("last-refilled", |s| s == Situation::LastRefilled),
    ("shadow-full", |s| s == Situation::ShadowFull),
    ("left-behind", |s| s == Situation::LeftBehind),
    ("first", |s| s == Situation::First(First::Made)),
    ("first-dropped", |s| s == Situation::First(First::Dropped)),
    ("first-untraced", |s| s == Situation::First(First::Untraced)),
    ("fresh", |s| s == Situation::Fresh),
    ("ended", |s| s == Situation::Ended),
];

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(n) = self.result() {
            return f.pad(&format!("result-{}", n + 1));
        }
        let on: Vec<&str> = DECISIONS.iter().filter(|(_, on)| on(*self)).map(|(name, _)| *name).collect();
        f.pad(&if on.is_empty() { "plain".to_owned() } else { on.join("+") })
    }
}

impl FromStr for Situation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Situation, Error> {
        let named = |s: &Situation| s.to_string() == name;
        Situation::every().find(named).ok_or_else(|| {
            let known: Vec<String> = Situation::every().map(|s| s.to_string()).collect();
            Error::unknown("situation", name, known.iter().map(String::as_str))
        })
    }
}

impl Situation {
    /// The called functions only overwrite registers.
    pub const PLAIN: Situation = Situation::Calls { args: false, ip: false, direct: Chosen::No, parent: false };

    /// The arguments are rewritten, and nothing else.
    const ARGS: Situation = Situation::Calls { args: true, ip: false, direct: Chosen::No, parent: false };

    /// The function is redirected, and nothing else.
    const IP: Situation = Situation::Calls { args: false, ip: true, direct: Chosen::No, parent: false };

    /// The return is hooked, and nothing else.
    const PARENT: Situation = Situation::Calls { args: false, ip: false, direct: Chosen::No, parent: true };

    /// All there are, what an entry trampoline can be in first, in the order in which they are run.
    pub fn every() -> impl Iterator<Item = Situation> {
        let calls = (0..16).map(|bits| Situation::Calls {
            args: bits & 1 != 0,
            ip: bits & 2 != 0,
            direct: if bits & 4 == 0 { Chosen::No } else { Chosen::Called },
            parent: bits & 8 != 0,
        });
        let jumps = (0..8).map(|bits| Situation::Calls {
            args: bits & 1 != 0,
            ip: bits & 2 != 0,
            direct: Chosen::Jumped,
            parent: bits & 4 != 0,
        });
        calls
            .chain(jumps)
            .chain([
                Situation::ParentResults,
                Situation::Rethook { results: false },
                Situation::Rethook { results: true },
                Situation::Stub,
                Situation::StubGraph,
                Situation::EarlyDirect,
                Situation::Skip,
                Situation::SkipLast,
                Situation::Retired,
                Situation::Detached { others: false },
                Situation::Detached { others: true },
                Situation::Unentered,
                Situation::Results,
                Situation::Second,
                Situation::Null,
                Situation::Full,
                Situation::LastSlot,
                Situation::Refilled,
                Situation::LastRefilled,
                Situation::ShadowFull,
                Situation::LeftBehind,
                Situation::First(First::Made),
                Situation::First(First::Dropped),
                Situation::First(First::Untraced),
                Situation::Fresh,
                Situation::Ended,
            ])
            .chain((0..MOST_RESULTS).map(Situation::Result))
    }

    /// The number of decisions in this situation.
    pub fn decisions(self) -> usize {
        DECISIONS.iter().filter(|(_, on)| on(self)).count() + usize::from(self.result().is_some())
    }

    pub(crate) fn args(self) -> bool {
        matches!(self, Situation::Calls { args: true, .. })
    }

    pub(crate) fn ip(self) -> bool {
        matches!(self, Situation::Calls { ip: true, .. })
    }

    /// The function goes on where the callback says. A direct trampoline that the site jumps to knows the function by itself: what a
    /// callback makes of pc is not for it.
    pub(crate) fn redirects(self) -> bool {
        self.ip() && !self.direct_jump()
    }

    /// A callback chooses a direct trampoline that the site calls.
    pub fn direct(self) -> bool {
        matches!(self, Situation::Calls { direct: Chosen::Called, .. })
    }

    /// A callback chooses a direct trampoline that the site jumps to.
    pub fn direct_jump(self) -> bool {
        matches!(self, Situation::Calls { direct: Chosen::Jumped, .. })
    }

    /// The number of the boundary's result, from 0.
    pub(crate) fn result(self) -> Option<usize> {
        if let Situation::Result(n) = self { Some(n.into()) } else { None }
    }

    pub(crate) fn early(self) -> bool {
        self == Situation::EarlyDirect
    }

    /// The return is hooked, in whatever way.
    pub fn parent(self) -> bool {
        matches!(self, Situation::Calls { parent: true, .. } | Situation::ParentResults) || self.rethook()
    }

    /// The return is hooked as for a kretprobe.
    pub fn rethook(self) -> bool {
        matches!(self, Situation::Rethook { .. })
    }

    /// The kind of trampoline that a hooked return goes to.
    pub(crate) fn exit(self) -> Option<Kind> {
        self.parent().then_some(if self.rethook() { Kind::Rethook } else { Kind::Return })
    }

    /// A direct trampoline that sites call is chosen, by a callback or by `op`.
    pub(crate) fn sends(self) -> bool {
        self.direct() || self.early()
    }

    pub(crate) fn results(self) -> bool {
        matches!(self, Situation::ParentResults | Situation::Rethook { results: true } | Situation::Results)
    }

    /// The traced function does not run.
    pub(crate) fn skips(self) -> bool {
        matches!(self, Situation::Skip | Situation::SkipLast)
    }

    pub(crate) fn retired(self) -> bool {
        self == Situation::Retired
    }

    /// A jump stands before the call of a program with this number.
    pub(crate) fn detached(self, call: u8) -> bool {
        matches!(self, Situation::Detached { others } if others != call.is_multiple_of(2))
    }

    /// Words of 8 bytes in which records may begin, if they are few.
    pub(crate) fn room(self) -> Option<u64> {
        match self {
            Situation::Full | Situation::Refilled | Situation::First(First::Made | First::Dropped) => Some(0),
            Situation::LastSlot | Situation::LastRefilled => Some(1),
            _ => None,
        }
    }

    /// The routine that may make room for records makes some.
    pub(crate) fn refills(self) -> bool {
        matches!(self, Situation::Refilled | Situation::LastRefilled | Situation::First(First::Made))
    }

    /// A recorder leaves the function alone.
    pub(crate) fn untraced(self) -> bool {
        matches!(self, Situation::ShadowFull | Situation::First(First::Untraced))
    }

    /// The stub that the slot calls in place of a callback.
    pub(crate) fn stub(self) -> Option<Kind> {
        match self {
            Situation::Stub => Some(Kind::Stub),
            Situation::StubGraph => Some(Kind::StubGraph),
            _ => None,
        }
    }

    /// The index of the first variable that is not NULL, of those through which the callee is called.
    pub(crate) fn variable(self) -> usize {
        match self {
            Situation::Second => 1,
            Situation::Null => usize::MAX,
            _ => 0,
        }
    }

    /// The situations that this trampoline can be in.
    pub(crate) fn all(contract: &Contract) -> Vec<Situation> {
        let mut all = Situation::of_kind(contract);
        let null = contract.stated.may_be_null || contract.stated.uncalled.is_some();
        let second = (contract.stated.through.len() > 1).then_some(Situation::Second);
        all.extend(second.into_iter().chain(null.then_some(Situation::Null)));
        all
    }

    fn of_kind(contract: &Contract) -> Vec<Situation> {
        let row = contract.kind.traits();
        match (row.calls, row.gives, contract.kind.programs()) {
            (Calls::Callback, ..) => Situation::every().filter(|s| s.fits_entry(contract)).collect(),
            (Calls::Named, Gives::Frame, _) if contract.kind == Kind::Displaced && contract.frame.has_effect() => {
                vec![Situation::PLAIN, Situation::ARGS]
            }
            (Calls::Handlers, Gives::Frame, _) => vec![Situation::PLAIN, Situation::ARGS, Situation::Results],
            (Calls::ExitHandler, ..) if contract.kind == Kind::Rethook => {
                [false, true].map(|results| Situation::Rethook { results }).to_vec()
            }
            (Calls::ExitHandler, ..) => vec![Situation::PARENT, Situation::ParentResults],
            (Calls::Context, ..) => {
                let fresh = contract.stated.contexts.as_ref().and_then(|contexts| contexts.fresh.as_ref());
                let ends = fresh.filter(|fresh| fresh.ends_in.is_some()).map(|_| Situation::Ended);
                [Situation::PLAIN].into_iter().chain(fresh.map(|_| Situation::Fresh)).chain(ends).collect()
            }
            _ if !contract.stated.results.is_empty() => {
                (0..MOST_RESULTS).take(contract.stated.results.len()).map(Situation::Result).collect()
            }
            _ if contract.kind.is_callback() => {
                Situation::every().filter(|s| s.stub() == Some(contract.kind)).collect()
            }
            // The result of the program is that of the function.
            (.., Some(programs)) if programs.indirect => {
                let refused = contract.stated.may_refuse().then_some(Situation::Unentered);
                [Situation::Skip].into_iter().chain(refused).collect()
            }
            (.., Some(programs)) => {
                let attached = |attach| contract.programs.iter().filter(|p| p.attach == attach).count();
                let calls = |at| called(&contract.programs, at).count();
                let (before, after) = (calls(Attach::BEFORE), calls(Attach::AFTER));
                let result = after > 0 && programs.result.regs != RegSet::EMPTY;
                let labels = &contract.convention;
                let detaches = labels.has_label(KernelLabel::Skip(0));
                let can = [
                    (true, Situation::PLAIN),
                    (programs.orig_stack, Situation::IP),
                    (before > 0, Situation::ARGS),
                    (attached(Attach::FmodRet) > 0, Situation::Skip),
                    (attached(Attach::FmodRet) > 1, Situation::SkipLast),
                    (programs.call_orig && labels.has_label(KernelLabel::AfterCall), Situation::Retired),
                    (detaches, Situation::Detached { others: false }),
                    (detaches && before + after > 1, Situation::Detached { others: true }),
                    (contract.stated.may_refuse(), Situation::Unentered),
                    (result, Situation::Results),
                ];
                can.into_iter().filter(|(can, _)| *can).map(|(_, situation)| situation).collect()
            }
            _ if contract.kind.recorder().is_some_and(|recorder| !recorder.recorded().is_empty()) => {
                let refill = contract.kind.recorder().is_some_and(|recorder| recorder.refill);
                let all = [Situation::PLAIN, Situation::Full, Situation::LastSlot];
                let more = [Situation::Refilled, Situation::LastRefilled].into_iter().filter(|_| refill);
                let shadow = contract.kind.recorder().is_some_and(|recorder| recorder.shadow);
                let stacked = [Situation::ShadowFull, Situation::LeftBehind].into_iter().filter(|_| shadow);
                let first = match (refill, shadow) {
                    (true, _) => First::Made,
                    (false, false) => First::Dropped,
                    (false, true) => First::Untraced,
                };
                all.into_iter().chain(more).chain(stacked).chain([Situation::First(first)]).collect()
            }
            _ => vec![Situation::PLAIN],
        }
    }

    /// Can an entry trampoline with this contract be in it?
    fn fits_entry(self, contract: &Contract) -> bool {
        let stores =
            |content| contract.frame.fields.iter().any(|f| (f.content, f.stores) == (content, Stores::TakeEffect));
        // Without a link register, the return address lies where callbacks find it without the frame's help.
        let hooks = stores(Content::ParentIp) || contract.facts.abi.link.is_none();
        match self {
            Situation::Calls { ip, direct, parent, .. } => {
                let way = match direct {
                    Chosen::No => true,
                    Chosen::Called => contract.leaves_by(ExitPath::Direct),
                    Chosen::Jumped => contract.leaves_by(ExitPath::DirectJump),
                };
                (!ip || stores(Content::Pc)) && way && (!parent || hooks)
            }
            Situation::ParentResults | Situation::Rethook { .. } => hooks,
            Situation::Stub | Situation::StubGraph => true,
            Situation::EarlyDirect => contract.leaves_by(ExitPath::EarlyDirect),
            Situation::Results | Situation::Skip | Situation::SkipLast | Situation::Retired => false,
            Situation::Detached { .. } | Situation::Unentered => false,
            Situation::Second | Situation::Null | Situation::Full | Situation::LastSlot => false,
            Situation::Refilled | Situation::LastRefilled => false,
            Situation::ShadowFull | Situation::LeftBehind | Situation::First(_) => false,
            Situation::Result(_) | Situation::Fresh | Situation::Ended => false,
        }
    }
}

impl Default for Situation {
    fn default() -> Situation {
        Situation::PLAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are in reports, and people type them: these are all there have been.
    const NAMES: [&str; 82] = [
        "plain",
        "args",
        "ip",
        "args+ip",
        "direct",
        "args+direct",
        "ip+direct",
        "args+ip+direct",
        "parent",
        "args+parent",
        "ip+parent",
        "args+ip+parent",
        "direct+parent",
        "args+direct+parent",
        "ip+direct+parent",
        "args+ip+direct+parent",
        "direct-jump",
        "args+direct-jump",
        "ip+direct-jump",
        "args+ip+direct-jump",
        "direct-jump+parent",
        "args+direct-jump+parent",
        "ip+direct-jump+parent",
        "args+ip+direct-jump+parent",
        "parent+results",
        "rethook",
        "rethook+results",
        "stub",
        "stub-graph",
        "early-direct",
        "skip",
        "skip-last",
        "retired",
        "detached",
        "detached-others",
        "unentered",
        "results",
        "second",
        "null",
        "full",
        "last-slot",
        "refilled",
        "last-refilled",
        "shadow-full",
        "left-behind",
        "first",
        "first-dropped",
        "first-untraced",
        "fresh",
        "ended",
        "result-1",
        "result-2",
        "result-3",
        "result-4",
        "result-5",
        "result-6",
        "result-7",
        "result-8",
        "result-9",
        "result-10",
        "result-11",
        "result-12",
        "result-13",
        "result-14",
        "result-15",
        "result-16",
        "result-17",
        "result-18",
        "result-19",
        "result-20",
        "result-21",
        "result-22",
        "result-23",
        "result-24",
        "result-25",
        "result-26",
        "result-27",
        "result-28",
        "result-29",
        "result-30",
        "result-31",
        "result-32",
    ];

    #[test]
    fn names_are_what_they_were_and_are_read_back() {
        let names: Vec<String> = Situation::every().map(|s| s.to_string()).collect();
        assert_eq!(names, NAMES);
        for situation in Situation::every() {
            assert_eq!(situation.to_string().parse::<Situation>().unwrap(), situation);
        }
    }

    #[test]
    fn what_cannot_be_has_no_name() {
        for name in ["", "stub+args", "ip+args", "early-direct+parent", "args+results", "plain+args"] {
            assert!(name.parse::<Situation>().is_err(), "{name}");
        }
    }
}
