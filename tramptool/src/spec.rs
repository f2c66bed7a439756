//! A trampoline that is wanted.

use codegen::ask::spec::{Clock as Time, Events as Recorded, Form as Inner};
use codegen::words::error::Result;

use crate::internal::asked::{AROUND, Asked, DIRECT, LIVE_ALL, PROGRAMS, RECORD, SLED};
use crate::internal::request::{Request, trampoline};
use crate::target::Target;

/// What a trampoline around a function keeps while the function runs, and what its handlers get.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Form {
    /// The entry handler gets the arguments, the exit handler the results.
    Frame,
    /// The handlers get what the profile's entry trampoline gives, then a structure with the results.
    Fregs,
    /// The same, but nothing stays on the stack while the function runs: the first handler keeps the return address, the
    /// second returns it.
    Shadow,
}

/// What a trampoline of [`Spec::record`] records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Events {
    /// A counter of the thread goes up by one at each entry. There is no record.
    Count,
    /// A record at each entry.
    Entry,
    /// A record at each entry, and one at each return. It needs [`Spec::sig`].
    Both,
}

/// Where the time in records comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Clock {
    /// It is 0.
    None,
    /// The CPU's clock: RDTSC, CNTVCT_EL0, `rdtime`.
    Tsc,
    /// The same, in one record of each 128 bytes.
    Stamp8,
    /// A variable, which the profile names.
    Word,
}

/// A trampoline that is wanted.
#[derive(Clone, Debug)]
pub struct Spec {
    what: String,
    asked: Asked,
}

impl Spec {
    fn of(what: &str, asked: Asked) -> Spec {
        Spec { what: what.to_owned(), asked }
    }

    /// A trampoline of the profile: one of [`Target::trampolines`].
    pub fn named(name: &str) -> Spec {
        Spec::of(name, Asked::default())
    }

    /// Calls the C function `call` with the traced function's arguments, then goes on in the traced function. It needs
    /// [`Spec::args`] or [`Spec::sig`].
    pub fn direct(call: &str) -> Spec {
        Spec::of(DIRECT, Asked { call: Some(call.to_owned()), ..Asked::default() })
    }

    /// Calls the traced function itself, between the handlers `entry` and `exit`. Of [`Form::Frame`], it needs
    /// [`Spec::args`] or [`Spec::sig`]. `function` may be `SYMBOL+N`, where N is how many bytes are before the instruction
    /// behind the site.
    pub fn around(function: &str, entry: &str, exit: &str) -> Spec {
        let [function, call, exit] = [function, entry, exit].map(|symbol| Some(symbol.to_owned()));
        Spec::of(AROUND, Asked { function, call, exit, ..Asked::default() })
    }

    /// Calls programs, as BPF does: [`Spec::fentry`], [`Spec::fmod_ret`], [`Spec::fexit`] and [`Spec::fsession`] name them.
    /// `sig` is the traced function's prototype.
    pub fn programs(sig: &str) -> Spec {
        Spec::of(PROGRAMS, Asked { sig: Some(sig.to_owned()), ..Asked::default() })
    }

    /// Writes records of `function` to a buffer of the thread, and calls nothing else. Of [`Events::Entry`] and
    /// [`Events::Both`], it needs [`Spec::clock`]. The name of the function is as in [`Spec::around`].
    pub fn record(function: &str, events: Events) -> Spec {
        let events = match events {
            Events::Count => Recorded::Count,
            Events::Entry => Recorded::Entry,
            Events::Both => Recorded::Both,
        };
        Spec::of(RECORD, Asked { function: Some(function.to_owned()), events: Some(events), ..Asked::default() })
    }

    /// Called in the middle of a function, with every register live: calls the C function `call`, and keeps all registers but
    /// flags and link register, vector registers at their full width among them. [`Spec::refill`] has a use for it.
    pub fn sled(call: &str) -> Spec {
        Spec::of(SLED, Asked { call: Some(call.to_owned()), ..Asked::default() })
    }

    /// Of [`Spec::record`]: where the time comes from.
    pub fn clock(mut self, clock: Clock) -> Spec {
        self.asked.clock = Some(match clock {
            Clock::None => Time::None,
            Clock::Tsc => Time::Tsc,
            Clock::Stamp8 => Time::Stamp8,
            Clock::Word => Time::Word,
        });
        self
    }

    /// Of [`Spec::record`]: the function's number in its records.
    pub fn id(mut self, id: u32) -> Spec {
        self.asked.id = Some(id);
        self
    }

    /// Of [`Spec::record`]: the first result register is in the record of a return.
    pub fn result(mut self) -> Spec {
        self.asked.result = true;
        self
    }

    /// Of [`Spec::record`] with [`Events::Both`]: exceptions and forced unwinds that leave the function are recorded.
    pub fn unwind(mut self) -> Spec {
        self.asked.unwind = true;
        self
    }

    /// Of [`Spec::record`] with both events: one slot is taken at the entry. The record of the return lies behind that of the entry.
    pub fn pair(mut self) -> Spec {
        self.asked.pair = true;
        self
    }

    /// Of [`Spec::record`]: keeps every register, at the entry and at the return, for functions whose callers may know which of them
    /// they leave alone. It needs [`Events::Entry`] or [`Form::Shadow`].
    pub fn live_all(self) -> Spec {
        self.live(LIVE_ALL)
    }

    /// Of [`Spec::record`]: what is called where the buffer has no room. It may make some, and keeps every register but the one
    /// that its own call overwrites: a [`Spec::sled`] does.
    pub fn refill(mut self, routine: &str) -> Spec {
        self.asked.refill = Some(routine.to_owned());
        self
    }

    /// Of [`Spec::record`]: the thread's words are in this thread-local variable, at the offsets `TLS_CURSOR` and the like in it, which
    /// [`Target::set`] moves. Linkers fill in where it is, by the psABI's relocations of local-exec code, and whoever copies a template does.
    pub fn tls(mut self, variable: &str) -> Spec {
        self.asked.tls = Some(variable.to_owned());
        self
    }

    /// How many argument registers are kept and passed on; of [`Spec::record`], how many the record of an entry has.
    pub fn args(mut self, count: u8) -> Spec {
        self.asked.args = Some(count);
        self
    }

    /// The traced function's prototype in C: what is live at its entry is kept and passed on, and nothing else.
    pub fn sig(mut self, prototype: &str) -> Spec {
        self.asked.sig = Some(prototype.to_owned());
        self
    }

    /// The symbol to define. Without it, that is the name of the first function that is called, and `_tramp`.
    pub fn name(mut self, symbol: &str) -> Spec {
        self.asked.name = Some(symbol.to_owned());
        self
    }

    /// Of [`Spec::direct`]: pass the traced function's address before its arguments.
    pub fn ip(mut self) -> Spec {
        self.asked.ip = true;
        self
    }

    /// Of [`Spec::direct`]: the site jumps to it, and it jumps to [`Spec::function`]. Profiles say whether sites do.
    pub fn jump(mut self) -> Spec {
        self.asked.jump = true;
        self
    }

    /// Of [`Spec::direct`] with a prototype: what else is live at the function's entry, such as `static-chain`. Of [`Spec::record`]:
    /// [`Spec::live_all`].
    pub fn live(mut self, what: &str) -> Spec {
        self.asked.live.push(what.to_owned());
        self
    }

    /// Of [`Spec::around`]: what is kept, and what the handlers get. Of [`Spec::record`]: [`Form::Frame`], or [`Form::Shadow`] for
    /// functions with arguments on the stack and those whose prototype nobody knows.
    pub fn form(mut self, form: Form) -> Spec {
        self.asked.form = Some(match form {
            Form::Frame => Inner::Frame,
            Form::Fregs => Inner::Fregs,
            Form::Shadow => Inner::Shadow,
        });
        self
    }

    /// Of [`Spec::programs`], if it calls the function, and of [`Spec::jump`]: the traced function, as in [`Spec::around`].
    pub fn function(mut self, symbol: &str) -> Spec {
        self.asked.function = Some(symbol.to_owned());
        self
    }

    /// The return address comes signed: the site is behind `paciasp`, on arm64. What is called or jumped to is a copy of the function's
    /// beginning, from that instruction on: it has the name that is given for the function.
    pub fn signed(mut self) -> Spec {
        self.asked.signed = true;
        self
    }

    /// The traced function begins with a landing pad, and its site is behind that: `bti c` on arm64. Not for x86-64, where the option
    /// `endbr` says it of all functions.
    pub fn landing_pad(mut self) -> Spec {
        self.asked.landing_pad = true;
        self
    }

    /// Of [`Spec::programs`]: a program that is called before the function, and its cookie.
    pub fn fentry(mut self, symbol: &str, cookie: u32) -> Spec {
        self.asked.fentry.push(format!("{symbol}:{cookie}"));
        self
    }

    /// A program that is called then: the first that does not return 0 decides the result in the function's place.
    pub fn fmod_ret(mut self, symbol: &str, cookie: u32) -> Spec {
        self.asked.fmod_ret.push(format!("{symbol}:{cookie}"));
        self
    }

    /// A program that is called after the function.
    pub fn fexit(mut self, symbol: &str, cookie: u32) -> Spec {
        self.asked.fexit.push(format!("{symbol}:{cookie}"));
        self
    }

    /// A program that is called before the function and after it, and has a word of its own from one to the other. Not every
    /// profile has them.
    pub fn fsession(mut self, symbol: &str, cookie: u32) -> Spec {
        self.asked.fsession.push(format!("{symbol}:{cookie}"));
        self
    }

    /// Of [`Spec::programs`]: a flag of the kernel, without `BPF_TRAMP_F_`.
    pub fn flag(mut self, name: &str) -> Spec {
        self.asked.flags.push(name.to_owned());
        self
    }

    /// For what generates.
    pub(crate) fn request(&self, target: &Target) -> Result<Request> {
        self.asked.refuse_without(std::slice::from_ref(&self.what))?;
        trampoline(&self.what, &self.asked, target.resolved())
    }

    /// The prototype, if the functions that are called have the same one.
    pub(crate) fn prototype(&self) -> Option<&str> {
        self.asked.sig.as_deref().filter(|_| self.what == DIRECT)
    }
}
