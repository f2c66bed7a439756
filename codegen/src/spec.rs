//! What is asked for: a trampoline.

use std::borrow::Cow;

use crate::live::{Live, MOST_WORDS, Word};

/// The kinds of trampoline. Kernel 6.12 is the source of each kind's contract.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `ftrace_stub`: the callback that does nothing.
    Stub,
    /// `ftrace_stub_graph`: the same under a second name, because kCFI gives it another type.
    StubGraph,
    /// `ftrace_stub_direct_tramp`: the smallest correct direct-call trampoline.
    StubDirect,
    /// `ftrace_caller` or `ftrace_regs_caller`: calls `func(ip, parent_ip, op, fregs)`.
    Entry(Regs),
    /// `return_to_handler`: entered by a return that a callback redirected.
    Return,
    /// A direct-call trampoline: calls one named function with the traced function's arguments.
    Direct(Direct),
    /// A paired trampoline: the site jumps to it, it calls the traced function's body, and returns to the parent, so that
    /// every return belongs to a call.
    Around(Around),
    /// A trampoline for one function, which calls a list of programs with a context array, as BPF does.
    Programs(Programs),
}

/// How much of the machine an entry trampoline shows to its callback.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Regs {
    /// The argument registers and what redirection needs.
    Args,
    /// A full `struct pt_regs`.
    All,
}

/// What a direct-call trampoline passes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Direct {
    /// Argument registers of the traced function that are kept and passed on: the first so many, or those up to the last
    /// that is live.
    pub args: u8,
    /// Pass the function's ip before them.
    pub ip: bool,
    /// What is live at the function's entry, where its prototype is known; the callee has the same one.
    pub live: Option<Live>,
}

/// What a trampoline that calls programs keeps, shows them, and does with the function. The flags are those of the
/// kernel's `BPF_TRAMP_F_*` (kernel include/linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Programs {
    /// What is live at the function's entry.
    pub live: Live,
    /// The words of its arguments, in their order. What is in vector registers is kept, but no word of the context.
    pub words: [Option<Word>; MOST_WORDS],
    /// The registers of its result.
    pub result: Live,
    /// `CALL_ORIG`: the function is called from here. Without it (`RESTORE_REGS`) it goes on behind its site.
    pub call_orig: bool,
    /// `SKIP_FRAME`: the site calls, and what it pushed is dropped. Without it a site jumps to a trampoline that calls the
    /// function.
    pub skip_frame: bool,
    /// `IP_ARG`: the function's ip is in the context.
    pub ip_arg: bool,
}

/// When a program is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attach {
    /// Before the function.
    Fentry,
    /// Before the function, and instead of it if the program returns anything but 0: that becomes the result.
    FmodRet,
    /// After the function.
    Fexit,
}

impl Attach {
    /// The option of the command line that names such a program.
    pub fn option(self) -> &'static str {
        match self {
            Attach::Fentry => "--fentry",
            Attach::FmodRet => "--fmod-ret",
            Attach::Fexit => "--fexit",
        }
    }
}

impl Programs {
    /// The flags that are set, under the kernel's names.
    pub fn flags(&self) -> Vec<&'static str> {
        let set = [self.call_orig, self.skip_frame, self.ip_arg, !self.call_orig];
        FLAGS.into_iter().zip(set).filter(|(_, set)| *set).map(|(name, _)| name).collect()
    }
}

/// The names of the flags of [`Programs`].
pub const FLAGS: [&str; 4] = ["CALL_ORIG", "SKIP_FRAME", "IP_ARG", "RESTORE_REGS"];

impl std::fmt::Display for Program {
    /// As on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.attach.option(), self.symbol)?;
        if self.cookie == 0 { Ok(()) } else { write!(f, ":{:#x}", self.cookie) }
    }
}

/// A C function that is called with a context: `u64 program(u64 *context, u64 *cookie)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// When.
    pub attach: Attach,
    /// The symbol.
    pub symbol: Cow<'static, str>,
    /// What is at `cookie` while it runs: 31 bits, which every architecture can store in two instructions.
    pub cookie: i32,
}

/// How a paired trampoline goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Around {
    /// What is kept beside the function while it runs, and what the handlers get.
    pub form: Form,
    /// Argument registers of the traced function that are kept and passed on.
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
    /// The same with `struct ftrace_regs`: the handlers get what `ftrace_caller` gives, then `fregs` with the results.
    Fregs,
    /// Nothing stays on the stack: the entry handler gets what `ftrace_caller` gives and keeps `parent_ip`, the function runs
    /// with its stack arguments in place, the exit handler gets `fregs` with the results and returns `parent_ip`.
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
}

/// The traced function that a paired trampoline is for, and who learns of its return.
#[derive(Clone, Copy, Default, Debug)]
pub struct Body<'a> {
    /// The traced function.
    pub function: &'a str,
    /// Bytes from its start to behind its site.
    pub resume: i32,
    /// The C function that is called when it has returned.
    pub exit: &'a str,
}

impl Kind {
    /// Can a patched site go to it?
    pub fn attaches(self) -> bool {
        matches!(self, Kind::Entry(_) | Kind::StubDirect) || self.for_one_function()
    }

    /// Is it made for one function, or for those with the same arguments?
    pub fn for_one_function(self) -> bool {
        matches!(self, Kind::Direct(_) | Kind::Around(_) | Kind::Programs(_))
    }

    /// What is live at the traced function's entry, if that is known.
    pub fn live(self) -> Option<Live> {
        match self {
            Kind::Direct(direct) => direct.live,
            Kind::Programs(programs) => Some(programs.live),
            _ => None,
        }
    }

    /// Words of stack arguments that lie once more at SP, for what it calls.
    pub fn copied_words(self) -> i32 {
        match self {
            Kind::Programs(programs) if !programs.call_orig => 0,
            _ => self.live().map_or(0, |live| live.stack.into()),
        }
    }

    /// Does the site jump to it, instead of calling it?
    pub fn jumped_to(self) -> bool {
        self.calls_body() && !matches!(self, Kind::Programs(Programs { skip_frame: true, .. }))
    }

    /// Does it call the traced function, which so returns to it?
    pub fn calls_body(self) -> bool {
        matches!(self, Kind::Around(_) | Kind::Programs(Programs { call_orig: true, .. }))
    }

    /// Is the way back to the parent kept by the handlers, and not on the stack, while the function runs?
    pub fn is_shadow(self) -> bool {
        matches!(self, Kind::Around(Around { form: Form::Shadow, .. }))
    }
}

/// One trampoline to generate.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// The symbol to define.
    pub name: &'a str,
    /// What it does.
    pub kind: Kind,
    /// The C function that a direct-call trampoline calls, or the entry handler of a paired one.
    pub callee: &'a str,
    /// What a paired trampoline is for.
    pub body: Body<'a>,
    /// The programs of a trampoline that calls some, in the order of the command line.
    pub programs: &'a [Program],
    /// Another name for it, which a kernel's modules may link to; empty for none.
    pub export: &'a str,
}

impl<'a> Spec<'a> {
    /// A trampoline that needs no more to be known.
    pub fn of(name: &'a str, kind: Kind) -> Spec<'a> {
        Spec { name, kind, callee: "", body: Body::default(), programs: &[], export: "" }
    }

    /// The numbers of the programs that are called at this point, in the order in which they were given.
    pub fn programs_at(&self, attach: Attach) -> impl Iterator<Item = u8> + use<'a> {
        let programs = self.programs.iter().enumerate();
        programs.filter(move |(_, p)| p.attach == attach).map(|(i, _)| i as u8)
    }

    /// The symbols that must be those of the program or shared object that this is linked into, whatever their visibility:
    /// the function that is called behind its site, which a linkage table does not lead to, and handlers of which
    /// something was proven.
    pub fn own_symbols(&self) -> impl Iterator<Item = &'a str> {
        let proven = match self.kind {
            Kind::Around(around) => around.general_handlers,
            kind => kind.live().is_some_and(|live| live.general_callee),
        };
        let handlers = [self.callee, self.body.exit].into_iter().chain(self.programs.iter().map(|p| &*p.symbol));
        let function = self.kind.calls_body().then_some(self.body.function);
        function.into_iter().chain(handlers.filter(move |_| proven)).filter(|name| !name.is_empty())
    }

    /// A direct-call trampoline.
    pub fn direct(name: &'a str, direct: Direct, callee: &'a str) -> Spec<'a> {
        Spec { name, kind: Kind::Direct(direct), callee, body: Body::default(), programs: &[], export: "" }
    }
}
