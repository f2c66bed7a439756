//! The request for one trampoline.

pub use crate::ask::kind::{Around, Direct, FLAGS, Form, Kind, Programs, Regs, TailCall};
pub use crate::words::program::{Attach, Bracket, Program, called};
pub use crate::words::recorder::{Clock, Event, Events, Recorder};

/// The traced function that a trampoline is for, and the handler of its return.
#[derive(Clone, Copy, Default, Debug)]
pub struct Body<'a> {
    /// The traced function.
    pub function: &'a str,
    /// Bytes from its start to behind its site.
    pub resume: i32,
    /// The C function that is called when the traced function has returned.
    pub exit: &'a str,
    /// The return address is already signed, with the stack pointer at the site. `function` begins with the instruction that signs
    /// it.
    pub signed: bool,
}

/// One trampoline to generate.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// The symbol to define.
    pub name: &'a str,
    /// The kind of trampoline.
    pub kind: Kind,
    /// The C function that a direct-call trampoline calls, or the entry handler of a paired one.
    pub callee: &'a str,
    /// The thread-local variable with the thread's words, for a trampoline that records.
    pub tls: &'a str,
    /// The traced function and exit handler, for a trampoline that names them.
    pub body: Body<'a>,
    /// The programs of a trampoline that calls some, in the order of the command line.
    pub programs: &'a [Program],
    /// The functions around each program, in the same order, and behind them those around all; empty if none are called.
    pub brackets: &'a [Bracket],
    /// A second symbol of the trampoline, to which a kernel's modules may link; empty for none.
    pub export: &'a str,
}

impl<'a> Spec<'a> {
    /// A trampoline with only a name and a kind.
    pub fn of(name: &'a str, kind: Kind) -> Spec<'a> {
        Spec { name, kind, callee: "", tls: "", body: Body::default(), programs: &[], brackets: &[], export: "" }
    }

    /// Is a program called at this point?
    pub fn has(&self, attach: Attach) -> bool {
        self.programs.iter().any(|p| p.attach == attach)
    }

    /// The symbols that must resolve to definitions in the program or shared object into which the trampoline is linked,
    /// whatever their visibility: the function called or entered behind its site, which a PLT cannot reach, and handlers
    /// about which something was proven.
    pub fn own_symbols(&self) -> impl Iterator<Item = &'a str> {
        let live = self.kind.live().is_some_and(|live| live.general_callee);
        let proven = live || self.kind.around().is_some_and(|around| around.general_handlers);
        let handlers = [self.callee, self.body.exit].into_iter().chain(self.programs.iter().map(|p| &*p.symbol));
        let handlers = handlers.chain(self.brackets.iter().flat_map(|b| [&*b.enter, &*b.exit]));
        let function = self.kind.names_body().then_some(self.body.function);
        function.into_iter().chain(handlers.filter(move |_| proven)).filter(|name| !name.is_empty())
    }

    /// A direct-call trampoline.
    pub fn direct(name: &'a str, direct: Direct, callee: &'a str) -> Spec<'a> {
        Spec { callee, ..Spec::of(name, Kind::Direct(direct)) }
    }
}
