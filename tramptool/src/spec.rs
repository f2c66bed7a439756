//! Descriptions of trampolines to generate.

use codegen::ask::spec::{Clock as Time, Events as Recorded, Form as Inner};
use codegen::words::error::Result;

use crate::internal::asked::{AROUND, Asked, DIRECT, LIVE_ALL, PROGRAMS, RECORD, SLED};
use crate::internal::request::{Request, trampoline};
use crate::target::Target;

/// The form of a trampoline around a function: what it keeps while the function runs, and what its handlers get.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Form {
    /// The entry handler gets the arguments, the exit handler the results.
    Frame,
    /// The entry handler gets the arguments of the profile's callback, the exit handler a structure with the results.
    Fregs,
    /// As [`Form::Fregs`], but nothing stays on the stack while the function runs: the entry handler keeps the return address,
    /// and the exit handler returns it.
    Shadow,
}

/// The events that a trampoline of [`Spec::record`] records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Events {
    /// No records: each entry adds one to a counter of the thread.
    Count,
    /// A record at each entry.
    Entry,
    /// A record at each entry, and one at each return. It needs [`Spec::sig`].
    Both,
}

/// The source of the time in records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Clock {
    /// No clock: the time is 0.
    None,
    /// The CPU's clock: RDTSC, CNTVCT_EL0, `rdtime`.
    Tsc,
    /// The CPU's clock, read for one record in each 128 bytes.
    Stamp8,
    /// A variable, which the profile names.
    Word,
}

/// The description of a trampoline to generate.
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

    /// Calls the traced function itself, between the handlers `entry` and `exit`. With [`Form::Frame`], it needs
    /// [`Spec::args`] or [`Spec::sig`]. `function` may be `SYMBOL+N`, where N is the offset of the instruction behind the
    /// site.
    pub fn around(function: &str, entry: &str, exit: &str) -> Spec {
        let [function, call, exit] = [function, entry, exit].map(|symbol| Some(symbol.to_owned()));
        Spec::of(AROUND, Asked { function, call, exit, ..Asked::default() })
    }

    /// Calls programs, as BPF does: [`Spec::fentry`], [`Spec::fmod_ret`], [`Spec::fexit`] and [`Spec::fsession`] name them.
    /// `sig` is the traced function's prototype.
    pub fn programs(sig: &str) -> Spec {
        Spec::of(PROGRAMS, Asked { sig: Some(sig.to_owned()), ..Asked::default() })
    }

    /// Writes records of `function` to a buffer of the thread, and calls nothing else. With [`Events::Entry`] and
    /// [`Events::Both`], it needs [`Spec::clock`]. `function` may be `SYMBOL+N`, as in [`Spec::around`].
    pub fn record(function: &str, events: Events) -> Spec {
        let events = match events {
            Events::Count => Recorded::Count,
            Events::Entry => Recorded::Entry,
            Events::Both => Recorded::Both,
        };
        Spec::of(RECORD, Asked { function: Some(function.to_owned()), events: Some(events), ..Asked::default() })
    }

    /// A sled, called in the middle of a function, where every register is live: calls the C function `call`, and preserves all
    /// registers but flags and link register, also vector registers at their full width. [`Spec::refill`] can call it.
    pub fn sled(call: &str) -> Spec {
        Spec::of(SLED, Asked { call: Some(call.to_owned()), ..Asked::default() })
    }

    /// For [`Spec::record`]: the source of the time.
    pub fn clock(mut self, clock: Clock) -> Spec {
        self.asked.clock = Some(match clock {
            Clock::None => Time::None,
            Clock::Tsc => Time::Tsc,
            Clock::Stamp8 => Time::Stamp8,
            Clock::Word => Time::Word,
        });
        self
    }

    /// For [`Spec::record`]: the function's number in its records.
    pub fn id(mut self, id: u32) -> Spec {
        self.asked.id = Some(id);
        self
    }

    /// For [`Spec::record`]: put the first result register into the record of a return.
    pub fn result(mut self) -> Spec {
        self.asked.result = true;
        self
    }

    /// For [`Spec::record`] with [`Events::Both`]: record exceptions and forced unwinds that leave the function.
    pub fn unwind(mut self) -> Spec {
        self.asked.unwind = true;
        self
    }

    /// For [`Spec::record`] with [`Events::Both`]: take one slot at the entry, for the entry's record and the return's behind it.
    pub fn pair(mut self) -> Spec {
        self.asked.pair = true;
        self
    }

    /// For [`Spec::record`]: preserve every register, at the entry and at the return, for functions whose callers may rely on
    /// registers that the function does not use. It needs [`Events::Entry`] or [`Form::Shadow`].
    pub fn live_all(self) -> Spec {
        self.live(LIVE_ALL)
    }

    /// For [`Spec::record`]: the routine to call when the buffer has no room. It may make room, and must preserve every register
    /// but the one that its own call clobbers, as a [`Spec::sled`] does.
    pub fn refill(mut self, routine: &str) -> Spec {
        self.asked.refill = Some(routine.to_owned());
        self
    }

    /// For [`Spec::record`]: the thread-local variable with the thread's words, at the offsets `TLS_CURSOR` and the like, which
    /// [`Target::set`] can change. Linkers fill in its address by the psABI's local-exec relocations; in a template, its user does.
    pub fn tls(mut self, variable: &str) -> Spec {
        self.asked.tls = Some(variable.to_owned());
        self
    }

    /// The number of argument registers that are preserved and passed on; for [`Spec::record`], the number in an entry's record.
    pub fn args(mut self, count: u8) -> Spec {
        self.asked.args = Some(count);
        self
    }

    /// The traced function's prototype in C: exactly the registers that are live at its entry are preserved and passed on.
    pub fn sig(mut self, prototype: &str) -> Spec {
        self.asked.sig = Some(prototype.to_owned());
        self
    }

    /// The symbol to define. The default is the name of the first called function, with `_tramp` appended.
    pub fn name(mut self, symbol: &str) -> Spec {
        self.asked.name = Some(symbol.to_owned());
        self
    }

    /// For [`Spec::direct`]: pass the traced function's address before its arguments.
    pub fn ip(mut self) -> Spec {
        self.asked.ip = true;
        self
    }

    /// For [`Spec::direct`]: the site jumps to the trampoline, which jumps to [`Spec::function`]. The profile must have such sites.
    pub fn jump(mut self) -> Spec {
        self.asked.jump = true;
        self
    }

    /// For [`Spec::direct`] with a prototype: other values live at the function's entry, such as `static-chain`. For
    /// [`Spec::record`]: `all`, as [`Spec::live_all`].
    pub fn live(mut self, what: &str) -> Spec {
        self.asked.live.push(what.to_owned());
        self
    }

    /// For [`Spec::around`]: what is kept, and what the handlers get. For [`Spec::record`]: [`Form::Frame`], or [`Form::Shadow`]
    /// for functions with stack arguments or an unknown prototype.
    pub fn form(mut self, form: Form) -> Spec {
        self.asked.form = Some(match form {
            Form::Frame => Inner::Frame,
            Form::Fregs => Inner::Fregs,
            Form::Shadow => Inner::Shadow,
        });
        self
    }

    /// For [`Spec::programs`] that call the function, and for [`Spec::jump`]: the traced function, as in [`Spec::around`].
    pub fn function(mut self, symbol: &str) -> Spec {
        self.asked.function = Some(symbol.to_owned());
        self
    }

    /// The return address is already signed: the site is behind `paciasp`, on arm64. The function's name that you give is then that
    /// of a copy of the function's beginning, from that instruction on, which the trampoline calls or jumps to.
    pub fn signed(mut self) -> Spec {
        self.asked.signed = true;
        self
    }

    /// The traced function begins with a landing pad, and its site is behind the pad: `bti c` on arm64. Not for x86-64, where the
    /// option `endbr` decides for all functions.
    pub fn landing_pad(mut self) -> Spec {
        self.asked.landing_pad = true;
        self
    }

    /// For [`Spec::programs`]: a program that is called before the function, and its cookie: up to `0x7fff_ffff` where programs are called
    /// directly.
    pub fn fentry(mut self, symbol: &str, cookie: u64) -> Spec {
        self.asked.fentry.push(format!("{symbol}:{cookie}"));
        self
    }

    /// A program that may replace the function: the first such program that does not return 0 decides the result.
    pub fn fmod_ret(mut self, symbol: &str, cookie: u64) -> Spec {
        self.asked.fmod_ret.push(format!("{symbol}:{cookie}"));
        self
    }

    /// A program that is called after the function.
    pub fn fexit(mut self, symbol: &str, cookie: u64) -> Spec {
        self.asked.fexit.push(format!("{symbol}:{cookie}"));
        self
    }

    /// A program that is called before the function and after it, with a word of its own kept from the first call to the
    /// second. Not every profile has such programs.
    pub fn fsession(mut self, symbol: &str, cookie: u64) -> Spec {
        self.asked.fsession.push(format!("{symbol}:{cookie}"));
        self
    }

    /// For [`Spec::programs`]: call each program directly, `u64 program(u64 *context, u64 *cookie)`, under the profiles of kernels too. Without
    /// this, these call `__bpf_prog_enter` and `__bpf_prog_exit` around each program, and `__bpf_tramp_enter` and `__bpf_tramp_exit` around
    /// all if the function is called, which the user defines, and with them the symbols that they are given: that of each program with
    /// `_prog` behind it, and that of the trampoline with `_image`.
    pub fn own_form(mut self) -> Spec {
        self.asked.own_form = true;
        self
    }

    /// For [`Spec::programs`] under the profiles of kernels: other functions around each program than `__bpf_prog_enter` and
    /// `__bpf_prog_exit`, as in [`Spec::own_form`].
    pub fn around_each(mut self, enter: &str, exit: &str) -> Spec {
        self.asked.around = vec![enter.to_owned(), exit.to_owned()];
        self
    }

    /// For [`Spec::programs`] under the profiles of kernels: other functions around all programs and the traced function than
    /// `__bpf_tramp_enter` and `__bpf_tramp_exit`.
    pub fn around_all(mut self, enter: &str, exit: &str) -> Spec {
        self.asked.around_all = vec![enter.to_owned(), exit.to_owned()];
        self
    }

    /// For [`Spec::programs`]: set a flag of the kernel, named without `BPF_TRAMP_F_`.
    pub fn flag(mut self, name: &str) -> Spec {
        self.asked.flags.push(name.to_owned());
        self
    }

    /// The request to the generator.
    pub(crate) fn request(&self, target: &Target) -> Result<Request> {
        self.asked.refuse_without(std::slice::from_ref(&self.what))?;
        trampoline(&self.what, &self.asked, target.resolved())
    }

    /// The prototype, if the called functions have the same one.
    pub(crate) fn prototype(&self) -> Option<&str> {
        self.asked.sig.as_deref().filter(|_| self.what == DIRECT)
    }
}
