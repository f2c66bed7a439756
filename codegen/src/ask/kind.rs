//! The kinds of trampoline, with one row of traits for each kind.

use crate::ask::live::{Live, MOST_WORDS, Word};
use crate::words::abi::{Abi, Reg, RegSet};
use crate::words::error::{Error, Result};
use crate::words::program::{Attach, Program, called};
use crate::words::recorder::{Events, Recorder};
use crate::words::step::ExitPath;

/// The kinds of trampoline. [`Kind::traits`] has a row for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `ftrace_stub`: the callback that does nothing.
    Stub,
    /// `ftrace_stub_graph`: `ftrace_stub` under a second name, because kCFI gives it another type.
    StubGraph,
    /// `ftrace_stub_direct_tramp`: the smallest correct direct-call trampoline.
    StubDirect,
    /// `ftrace_caller` or `ftrace_regs_caller`: calls `func(ip, parent_ip, op, fregs)`.
    Entry(Regs),
    /// `return_to_handler`: entered by a return that a callback redirected.
    Return,
    /// `arch_rethook_trampoline`: entered by a return that a kretprobe redirected; its handlers get every register.
    Rethook,
    /// A direct-call trampoline: calls one named function with the traced function's arguments.
    Direct(Direct),
    /// A trampoline that is called in the middle of a function, where all registers are live, and calls one C function.
    Sled,
    /// Code that a jump or a breakpoint in the middle of a function leads to: it has copies of the instructions that stood there, and
    /// may call one C function before them.
    Displaced,
    /// A paired trampoline: the site jumps to it, it calls the traced function's body, and returns to the parent, so that
    /// every return belongs to a call.
    Around(Around),
    /// A trampoline for one function, which calls a list of programs with a context array, as BPF does.
    Programs(Programs),
    /// A trampoline for one function that writes records into a buffer of the thread and calls nothing.
    Record(Recorder),
    /// A function of any prototype, which C makes at run time: it shows its arguments to one C function, and returns what that
    /// stores.
    Closure,
    /// The way from C into code with a convention of its own, or back: state in registers, and perhaps another stack.
    Callback,
    /// A stub of C that makes a system call of Linux.
    Syscall(Syscall),
    /// A switch from one context with a stack of its own to another one.
    Switch,
}

/// The system call that a stub makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Syscall {
    /// Its number.
    pub number: u32,
    /// The number of its arguments, which are those of the stub.
    pub args: u8,
}

/// The registers that an entry trampoline saves for its callback.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Regs {
    /// The argument registers and what redirection needs.
    Args,
    /// A full `struct pt_regs`.
    All,
}

/// The values that a direct-call trampoline passes on to its callee.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Direct {
    /// Argument registers of the traced function that are kept and passed on: the first so many, or those up to the last
    /// that is live.
    pub args: u8,
    /// Pass the function's ip before the arguments.
    pub ip: bool,
    /// The registers and stack words live at the function's entry, if its prototype is known; the callee has the same one.
    pub live: Option<Live>,
    /// The site jumps to the trampoline, and the trampoline jumps to the function, so it serves only that function.
    pub jumped: bool,
}

/// What a trampoline that calls programs saves, passes to them, and does with the function. The flags are the kernel's
/// `BPF_TRAMP_F_*` (kernel include/linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Programs {
    /// The registers and stack words live at the function's entry.
    pub live: Live,
    /// The words of the function's arguments, in order. Vector registers are preserved, but are no words of the context.
    pub words: [Option<Word>; MOST_WORDS],
    /// The registers of the function's result.
    pub result: Live,
    /// `CALL_ORIG`: the trampoline calls the function. Without it (`RESTORE_REGS`) the function goes on behind its site.
    pub call_orig: bool,
    /// `SKIP_FRAME`: the site calls, and the trampoline drops the return address that the call pushed. Without it a site
    /// jumps to a trampoline that calls the function.
    pub skip_frame: bool,
    /// `IP_ARG`: the function's ip is in the context.
    pub ip_arg: bool,
    /// `ORIG_STACK`: the function that is called begins where the site's call would return to, which another handler may have changed.
    pub orig_stack: bool,
    /// `INDIRECT`: there is no other function. C calls the trampoline through a pointer, and the result is its program's
    /// (`struct_ops`).
    pub indirect: bool,
    /// The number of programs that are sessions.
    pub sessions: u8,
    /// No other program is called before the first session.
    pub sessions_first: bool,
    /// There are sessions without a word of their own: programs that are called before the function and after it.
    pub wordless_sessions: bool,
    /// `TAIL_CALL_CTX`: the function is a BPF program, whose tail calls are counted.
    pub tail_call: Option<TailCall>,
    /// Callee-saved registers that the trampoline uses from before a program until after it, because it calls functions around each
    /// program; empty if it does not. The last one holds what the first of these functions returned.
    pub own: RegSet,
}

/// How a called BPF program gets the number of tail calls made so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TailCall {
    /// The register with the number, or with its address.
    pub reg: Reg,
    /// The program returns the number with its own tail calls counted.
    pub returned: bool,
}

impl Programs {
    /// The value without any flag: only programs before the function.
    pub const RESTORE_REGS: Programs = Programs {
        live: Live::NOTHING,
        words: [None; MOST_WORDS],
        result: Live::NOTHING,
        call_orig: false,
        skip_frame: false,
        ip_arg: false,
        orig_stack: false,
        indirect: false,
        sessions: 0,
        sessions_first: false,
        wordless_sessions: false,
        tail_call: None,
        own: RegSet::EMPTY,
    };
    /// The value with only `CALL_ORIG` set: the trampoline calls the function.
    pub const CALL_ORIG: Programs = Programs { call_orig: true, ..Programs::RESTORE_REGS };

    /// The flags that are set, under the kernel's names.
    pub fn flags(&self) -> Vec<&'static str> {
        let restores = !self.call_orig && !self.indirect;
        let result = self.indirect && self.result != Live::NOTHING;
        let counted = self.tail_call.is_some();
        let [called, skips, ip, stack] = [self.call_orig, self.skip_frame, self.ip_arg, self.orig_stack];
        let set = [called, skips, ip, restores, counted, self.indirect, result, stack];
        FLAGS.into_iter().zip(set).filter(|(_, set)| *set).map(|(name, _)| name).collect()
    }

    /// Set the fields about sessions for these programs.
    pub fn attached(self, programs: &[Program]) -> Programs {
        let sessions = programs.iter().filter(|p| p.attach == Attach::Fsession).count() as u8;
        let first = called(programs, &[Attach::Fentry, Attach::Fsession]).next().and_then(|n| programs.get(n));
        let sessions_first = first.is_some_and(|p| p.attach == Attach::Fsession);
        Programs { sessions, sessions_first, ..self }
    }

    /// Functions are called around each program, and around all if the traced function is called: the form of Linux.
    pub fn bracketed(&self) -> bool {
        self.own != RegSet::EMPTY
    }

    /// There are sessions. Then programs before the function find 0 as its result.
    pub fn has_sessions(&self) -> bool {
        self.sessions > 0 || self.wordless_sessions
    }

    /// The initial value of the word before a context.
    pub fn meta_at_first(&self) -> i64 {
        self.meta(self.sessions_first.then_some(0), false)
    }

    /// The value of the word before a context's first word: the number of words; for a session, the index of its own word,
    /// counted down from the first; and whether the function has returned (kernel include/linux/bpf.h,
    /// `BPF_TRAMP_COOKIE_INDEX_SHIFT`, `BPF_TRAMP_IS_RETURN_SHIFT`).
    pub fn meta(&self, session: Option<u8>, over: bool) -> i64 {
        let words = self.words.iter().flatten().count() as i64;
        let index = session.map_or(0, |n| 1 + i64::from(self.ip_arg) + i64::from(self.sessions) - i64::from(n));
        words | index << 8 | i64::from(over) << 63
    }

    /// The value of [`Programs::meta`] at the call of program number `call` of those at `at`. A program that is no session
    /// finds the value of the last session before it.
    pub fn meta_of(&self, programs: &[Program], at: &[Attach], call: usize) -> i64 {
        let is_session = |n: &usize| programs.get(*n).is_some_and(|p| p.attach == Attach::Fsession);
        let before = called(programs, at).take(call + 1).filter(is_session).count() as u8;
        self.meta(before.checked_sub(1), at == Attach::AFTER && self.has_sessions())
    }
}

/// The names of the flags of [`Programs`].
pub const FLAGS: [&str; 8] =
    ["CALL_ORIG", "SKIP_FRAME", "IP_ARG", "RESTORE_REGS", "TAIL_CALL_CTX", "INDIRECT", "RET_FENTRY_RET", "ORIG_STACK"];

/// The parameters of a paired trampoline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Around {
    /// What stays on the stack while the function runs, and what the handlers get.
    pub form: Form,
    /// The number of argument registers of the traced function that are preserved and passed on.
    pub args: u8,
    /// The handlers were proven to leave vector registers alone.
    pub general_handlers: bool,
}

/// The forms of paired trampolines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// A frame stays on the stack, with a return address of the traced function in a record of its own. The handlers get
    /// the function's arguments, then its results. What is on the stack for the function is out of its reach.
    Frame,
    /// A frame with `struct ftrace_regs`: the entry handler gets the arguments that `ftrace_caller` passes, then the exit
    /// handler gets `fregs` with the results.
    Fregs,
    /// Nothing stays on the stack. The entry handler gets the arguments that `ftrace_caller` passes, and keeps `parent_ip`.
    /// The function runs with its stack arguments in place. The exit handler gets `fregs` with the results and returns
    /// `parent_ip`.
    Shadow,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 3] = [Form::Frame, Form::Fregs, Form::Shadow];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Frame => "frame",
            Form::Fregs => "fregs",
            Form::Shadow => "shadow",
        }
    }

    /// The form with this name.
    ///
    /// # Errors
    /// No form has this name; the message lists the forms.
    pub fn named(name: &str) -> Result<Form> {
        let found = Form::ALL.into_iter().find(|form| form.name() == name);
        found.ok_or_else(|| Error::unknown("form", name, Form::ALL.map(Form::name)))
    }
}

/// How control comes to a trampoline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// The code that calls callbacks calls it as one.
    AsCallback,
    /// A patched site calls it.
    BySiteCall,
    /// A patched site jumps to it.
    BySiteJump,
    /// C calls it through a pointer, as the function that it is.
    AsFunction,
    /// A traced function returns to it.
    ByReturn,
    /// Code in the middle of a function calls it.
    InTheMiddle,
    /// Code in the middle of a function goes to it, by a jump or by a breakpoint.
    InItsPlace,
    /// C calls it, and no site is patched; or code with a convention of its own does, which the contract states.
    Called,
}

/// The functions that a trampoline calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// Nothing.
    Nothing,
    /// The profile's callback, through a slot that is patched or through `op`.
    Callback,
    /// The profile's exit handler.
    ExitHandler,
    /// One C function by its name.
    Named,
    /// An entry handler by its name, the traced function, and an exit handler.
    Handlers,
    /// Programs, and the traced function if it is called from here.
    Programs,
    /// The kernel.
    Kernel,
    /// Nothing, but another context goes on until that switches back.
    Context,
}

/// The arguments that a trampoline passes to the C functions that it calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// The arguments of the traced function, or none.
    Arguments,
    /// The arguments of the profile's handlers. One is a pointer to the frame, to which they may store.
    Frame,
    /// A context array and a cookie.
    Context,
}

/// The registers that are preserved when the traced function goes on, besides the callee-saved ones. SP and the
/// registers with return addresses belong to none of these sets: the site's convention decides their values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// All registers that may carry arguments, by the psABI and beyond.
    AnyArguments,
    /// The registers that carry the arguments of [`Kind::passed`].
    ItsArguments,
    /// The result registers.
    Results,
    /// None: it is a C function.
    Nothing,
    /// All registers that the site does not clobber.
    AllButLost,
    /// All registers but the site's scratch registers.
    AllButScratch,
    /// All registers but those clobbered on the way to any function.
    AllButLinkage,
    /// All registers.
    All,
}

/// Whether and how a trampoline calls the traced function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Not called: it goes on by itself, or has returned.
    NotCalled,
    /// There is none: the trampoline is the function.
    Itself,
    /// Called from a frame that stays on the stack.
    BelowFrame,
    /// Called with the stack as its caller left it: the handlers keep `parent_ip`, or it is on a shadow stack.
    InPlace,
}

/// The traits of a kind of trampoline.
#[derive(Debug)]
pub struct KindTraits {
    /// The name in contract files.
    pub word: &'static str,
    /// How control comes to the trampoline.
    pub entered: Entered,
    /// The functions that the trampoline calls.
    pub calls: Calls,
    /// The arguments that the trampoline passes to these functions.
    pub gives: Gives,
    /// The way out, if neither a callback nor a program chooses another.
    pub leaves: ExitPath,
    /// Whether and how the trampoline calls the traced function.
    pub body: Body,
    /// The registers that the trampoline preserves.
    pub keeps: Keeps,
    /// The trampoline is made for one function, or for functions with the same arguments.
    pub for_one_function: bool,
    /// A callback, or `op`, may choose this trampoline as the direct trampoline.
    pub chosen: bool,
}

static STUB: KindTraits = KindTraits {
    word: "stub",
    entered: Entered::AsCallback,
    calls: Calls::Nothing,
    gives: Gives::Arguments,
    leaves: ExitPath::Caller,
    body: Body::NotCalled,
    keeps: Keeps::All,
    for_one_function: false,
    chosen: false,
};

static STUB_GRAPH: KindTraits = KindTraits { word: "stub-graph", ..STUB };

static STUB_DIRECT: KindTraits = KindTraits {
    word: "stub-direct",
    entered: Entered::BySiteCall,
    leaves: ExitPath::Function,
    keeps: Keeps::AllButScratch,
    chosen: true,
    ..STUB
};

static ENTRY: KindTraits = KindTraits {
    word: "entry",
    entered: Entered::BySiteCall,
    calls: Calls::Callback,
    gives: Gives::Frame,
    leaves: ExitPath::Function,
    body: Body::NotCalled,
    keeps: Keeps::AnyArguments,
    for_one_function: false,
    chosen: false,
};

static REGS: KindTraits = KindTraits { word: "regs", keeps: Keeps::AllButLost, ..ENTRY };

static RETURN: KindTraits = KindTraits {
    word: "return",
    entered: Entered::ByReturn,
    calls: Calls::ExitHandler,
    gives: Gives::Frame,
    leaves: ExitPath::Parent,
    body: Body::NotCalled,
    keeps: Keeps::Results,
    for_one_function: false,
    chosen: false,
};

static RETHOOK: KindTraits = KindTraits { word: "rethook", keeps: Keeps::All, ..RETURN };

static DIRECT: KindTraits = KindTraits {
    word: "direct",
    entered: Entered::BySiteCall,
    calls: Calls::Named,
    gives: Gives::Arguments,
    leaves: ExitPath::Function,
    body: Body::NotCalled,
    keeps: Keeps::ItsArguments,
    for_one_function: true,
    chosen: true,
};

static DIRECT_JUMP: KindTraits = KindTraits { entered: Entered::BySiteJump, chosen: false, ..DIRECT };

static SLED: KindTraits = KindTraits {
    word: "sled",
    entered: Entered::InTheMiddle,
    keeps: Keeps::All,
    for_one_function: false,
    chosen: false,
    ..DIRECT
};

static DISPLACED: KindTraits =
    KindTraits { word: "displaced", entered: Entered::InItsPlace, gives: Gives::Frame, ..SLED };

static CLOSURE: KindTraits =
    KindTraits { word: "closure", entered: Entered::Called, gives: Gives::Frame, keeps: Keeps::Nothing, ..SLED };

static CALLBACK: KindTraits = KindTraits { word: "callback", gives: Gives::Arguments, ..CLOSURE };

static SYSCALL: KindTraits = KindTraits { word: "syscall", calls: Calls::Kernel, ..CALLBACK };

static SWITCH: KindTraits = KindTraits { word: "switch", calls: Calls::Context, ..CALLBACK };

static AROUND_FRAME: KindTraits = KindTraits {
    word: "around",
    entered: Entered::BySiteJump,
    calls: Calls::Handlers,
    gives: Gives::Arguments,
    leaves: ExitPath::Parent,
    body: Body::BelowFrame,
    keeps: Keeps::ItsArguments,
    for_one_function: true,
    chosen: false,
};

static AROUND_FREGS: KindTraits = KindTraits { gives: Gives::Frame, keeps: Keeps::AnyArguments, ..AROUND_FRAME };

static AROUND_SHADOW: KindTraits = KindTraits { body: Body::InPlace, ..AROUND_FREGS };

static PROGRAMS: KindTraits = KindTraits {
    word: "programs",
    entered: Entered::BySiteCall,
    calls: Calls::Programs,
    gives: Gives::Context,
    leaves: ExitPath::Function,
    body: Body::NotCalled,
    keeps: Keeps::ItsArguments,
    for_one_function: true,
    chosen: false,
};

static PROGRAMS_CALL_ORIG: KindTraits =
    KindTraits { entered: Entered::BySiteJump, leaves: ExitPath::Parent, body: Body::BelowFrame, ..PROGRAMS };

static PROGRAMS_SKIP_FRAME: KindTraits = KindTraits { entered: Entered::BySiteCall, ..PROGRAMS_CALL_ORIG };

static PROGRAMS_INDIRECT: KindTraits =
    KindTraits { entered: Entered::AsFunction, leaves: ExitPath::Skipped, body: Body::Itself, ..PROGRAMS };

static RECORD: KindTraits = KindTraits {
    word: "record",
    entered: Entered::BySiteJump,
    calls: Calls::Nothing,
    gives: Gives::Arguments,
    leaves: ExitPath::Function,
    body: Body::NotCalled,
    keeps: Keeps::AnyArguments,
    for_one_function: true,
    chosen: false,
};

static RECORD_BOTH: KindTraits = KindTraits { leaves: ExitPath::Parent, body: Body::BelowFrame, ..RECORD };

static RECORD_SHADOW: KindTraits = KindTraits { body: Body::InPlace, ..RECORD_BOTH };

static RECORD_ALL: KindTraits = KindTraits { keeps: Keeps::AllButLinkage, ..RECORD };

static RECORD_SHADOW_ALL: KindTraits = KindTraits { keeps: Keeps::AllButLinkage, ..RECORD_SHADOW };

impl Kind {
    /// The row of this kind.
    pub fn traits(self) -> &'static KindTraits {
        match self {
            Kind::Stub => &STUB,
            Kind::StubGraph => &STUB_GRAPH,
            Kind::StubDirect => &STUB_DIRECT,
            Kind::Entry(Regs::Args) => &ENTRY,
            Kind::Entry(Regs::All) => &REGS,
            Kind::Return => &RETURN,
            Kind::Rethook => &RETHOOK,
            Kind::Direct(Direct { jumped: false, .. }) => &DIRECT,
            Kind::Direct(_) => &DIRECT_JUMP,
            Kind::Sled => &SLED,
            Kind::Displaced => &DISPLACED,
            Kind::Around(Around { form: Form::Frame, .. }) => &AROUND_FRAME,
            Kind::Around(Around { form: Form::Fregs, .. }) => &AROUND_FREGS,
            Kind::Around(Around { form: Form::Shadow, .. }) => &AROUND_SHADOW,
            Kind::Programs(Programs { indirect: true, .. }) => &PROGRAMS_INDIRECT,
            Kind::Programs(Programs { call_orig: false, .. }) => &PROGRAMS,
            Kind::Programs(Programs { skip_frame: false, .. }) => &PROGRAMS_CALL_ORIG,
            Kind::Programs(_) => &PROGRAMS_SKIP_FRAME,
            Kind::Record(Recorder { keeps_all: true, shadow: true, .. }) => &RECORD_SHADOW_ALL,
            Kind::Record(Recorder { keeps_all: true, .. }) => &RECORD_ALL,
            Kind::Record(Recorder { events: Events::Both, shadow: true, .. }) => &RECORD_SHADOW,
            Kind::Record(Recorder { events: Events::Both, .. }) => &RECORD_BOTH,
            Kind::Record(_) => &RECORD,
            Kind::Closure => &CLOSURE,
            Kind::Callback => &CALLBACK,
            Kind::Syscall(_) => &SYSCALL,
            Kind::Switch => &SWITCH,
        }
    }

    /// Does control come to it where a function begins?
    pub fn attaches(self) -> bool {
        matches!(self.traits().entered, Entered::BySiteCall | Entered::BySiteJump | Entered::AsFunction)
    }

    /// Is its caller the function's own, because the site jumps to it or there is no site?
    pub fn jumped_to(self) -> bool {
        matches!(self.traits().entered, Entered::BySiteJump | Entered::AsFunction)
    }

    /// Does a traced function return to it, without having been called from it?
    pub fn returned_to(self) -> bool {
        self.traits().entered == Entered::ByReturn
    }

    /// Is it called in place of a callback?
    pub fn is_callback(self) -> bool {
        self.traits().entered == Entered::AsCallback
    }

    /// Does no site go to it?
    pub fn is_led_to(self) -> bool {
        self.returned_to() || self.is_callback() || self.is_function()
    }

    /// Is it reached in the middle of a function, and from no site that a compiler made?
    pub fn is_in_the_middle(self) -> bool {
        matches!(self.traits().entered, Entered::InTheMiddle | Entered::InItsPlace)
    }

    /// Is it called as it stands, with no site and no traced function: a sled, or a boundary of C?
    pub fn is_called(self) -> bool {
        self.is_in_the_middle() || self.is_boundary()
    }

    /// Is it a boundary of C? Contracts in files state these kinds, and nothing of them is generated.
    pub fn is_boundary(self) -> bool {
        self.traits().entered == Entered::Called
    }

    /// The system call of a stub; `None` for other kinds.
    pub fn syscall(self) -> Option<Syscall> {
        if let Kind::Syscall(syscall) = self { Some(syscall) } else { None }
    }

    /// Does it call the profile's callback?
    pub fn calls_back(self) -> bool {
        self.traits().calls == Calls::Callback
    }

    /// Does it call the traced function, so that the function returns to it?
    pub fn calls_body(self) -> bool {
        !matches!(self.traits().body, Body::NotCalled | Body::Itself)
    }

    /// Is it the function, so that there is no other?
    pub fn is_function(self) -> bool {
        self.traits().body == Body::Itself
    }

    /// Does its code name the traced function's body, to call it or to jump there?
    pub fn names_body(self) -> bool {
        self.calls_body() || self.jumped_to() && !self.is_function()
    }

    /// Is the traced function known: because its code calls it or jumps there, or because its address is told?
    pub fn names_function(self) -> bool {
        self.names_body() || self.programs().is_some_and(|programs| programs.ip_arg && programs.bracketed())
    }

    /// Is `parent_ip` kept elsewhere than on the stack while the function runs?
    pub fn is_shadow(self) -> bool {
        self.traits().body == Body::InPlace
    }

    /// Does it store its own return address as a C function does, and return to it, whatever the functions that it calls do?
    pub fn stores_return(self) -> bool {
        self.is_called() || self.jumped_to() && self.calls_body() && !self.is_shadow()
    }

    /// Is it made for one function, or for those with the same arguments?
    pub fn for_one_function(self) -> bool {
        self.traits().for_one_function
    }

    /// The parameters of a direct-call trampoline; `None` for other kinds.
    pub fn direct(self) -> Option<Direct> {
        if let Kind::Direct(direct) = self { Some(direct) } else { None }
    }

    /// The parameters of a paired trampoline; `None` for other kinds.
    pub fn around(self) -> Option<Around> {
        if let Kind::Around(around) = self { Some(around) } else { None }
    }

    /// The parameters of a trampoline that calls programs; `None` for other kinds.
    pub fn programs(self) -> Option<Programs> {
        if let Kind::Programs(programs) = self { Some(programs) } else { None }
    }

    /// The parameters of a trampoline that records; `None` for other kinds.
    pub fn recorder(self) -> Option<Recorder> {
        if let Kind::Record(recorder) = self { Some(recorder) } else { None }
    }

    /// The traced function's arguments that are passed to a C function called by name.
    pub fn passes(self) -> Option<Direct> {
        match self {
            Kind::Direct(direct) => Some(direct),
            Kind::Sled | Kind::Displaced | Kind::Closure | Kind::Callback => Some(Direct::default()),
            Kind::Around(Around { form: Form::Frame, args, .. }) => Some(Direct { args, ..Direct::default() }),
            _ => None,
        }
    }

    /// The registers and stack words that carry the arguments. Without a prototype, `others` are live at every entry too.
    pub fn passed(self, abi: &Abi, others: RegSet) -> Live {
        let first = |direct: Direct| Live::first(direct.args.into(), abi, others);
        self.live().or_else(|| self.passes().map(first)).unwrap_or_default()
    }

    /// The registers and stack words live at the traced function's entry, if known.
    pub fn live(self) -> Option<Live> {
        self.programs().map(|programs| programs.live).or_else(|| self.direct()?.live)
    }

    /// Does it call handlers that may clobber live vector registers of a function whose prototype is unknown?
    pub fn may_lose_vectors(self) -> bool {
        match self {
            Kind::Entry(_) | Kind::Return | Kind::Rethook | Kind::Direct(Direct { live: None, .. }) => true,
            Kind::Around(around) => !around.general_handlers,
            _ => false,
        }
    }

    /// The number of stack argument words that the trampoline copies to SP for its callee.
    pub fn copied_words(self) -> i32 {
        match self.programs() {
            Some(programs) if !programs.call_orig => 0,
            _ => self.live().map_or(0, |live| live.stack.into()),
        }
    }
}
