//! What is asked for: a trampoline.

use std::borrow::Cow;

pub use crate::kind::{Around, Direct, FLAGS, Form, Kind, Programs, Regs};

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

impl Program {
    /// The most for one function, as the kernel's `BPF_MAX_TRAMP_LINKS` (include/linux/bpf.h).
    pub const MOST: usize = 38;
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
        let live = self.kind.live().is_some_and(|live| live.general_callee);
        let proven = live || self.kind.around().is_some_and(|around| around.general_handlers);
        let handlers = [self.callee, self.body.exit].into_iter().chain(self.programs.iter().map(|p| &*p.symbol));
        let function = self.kind.calls_body().then_some(self.body.function);
        function.into_iter().chain(handlers.filter(move |_| proven)).filter(|name| !name.is_empty())
    }

    /// A direct-call trampoline.
    pub fn direct(name: &'a str, direct: Direct, callee: &'a str) -> Spec<'a> {
        Spec { name, kind: Kind::Direct(direct), callee, body: Body::default(), programs: &[], export: "" }
    }
}
