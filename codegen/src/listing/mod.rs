//! The listing: the one source of truth. Text, bytes, relocations, CFI, cost and contract text come from it.

pub mod code;
pub(crate) mod generate;
pub mod isa;
pub mod names;
pub mod pattern;

use crate::arch::facts::{NumberOf, ThreadWord};
use crate::ask::frame::{Content, FrameLayout};
use crate::ask::spec::{Bracket, Clock, Event, Recorder, Spec};
use crate::profile::Convention;
use crate::profile::lsda;
use crate::profile::target::Target;
use crate::words::abi::Reg;
use crate::words::error::{Error, Result};
use crate::words::step::{Callee, Disp, KernelLabel, Local, Name, Role, Step, Sym};

/// A place to which instructions refer: a symbol plus an offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymRef<'a> {
    /// The symbol.
    pub name: &'a str,
    /// Bytes behind the symbol.
    pub add: i32,
}

impl std::fmt::Display for SymRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        if self.add == 0 { Ok(()) } else { write!(f, "+{}", self.add) }
    }
}

/// One line of a listing.
#[derive(Clone, Copy, Debug)]
pub enum Line<I> {
    /// An instruction, and a note on the meaning of its value in C.
    Insn(I, &'static str),
    /// A label inside the trampoline.
    Local(Local),
    /// A global label that the kernel's C code knows.
    KernelLabel(KernelLabel),
    /// The beginning of a block, with a heading or an empty one.
    Block(Role, &'static str),
    /// From here on, the unwind table does not know the return address.
    ReturnLost,
    /// From here on, the unwind table knows the return address again: it is where it was at the entry.
    ReturnFound,
    /// The next instructions have the number of the function, where [`Facts::number`](crate::arch::facts::Facts::number) says.
    Numbered(Event),
}

impl<I> Line<I> {
    /// The line with what `change` makes of its instruction.
    pub(crate) fn map<J>(self, change: impl FnOnce(I) -> J) -> Line<J> {
        match self {
            Line::Insn(insn, note) => Line::Insn(change(insn), note),
            Line::Local(local) => Line::Local(local),
            Line::KernelLabel(label) => Line::KernelLabel(label),
            Line::Block(role, heading) => Line::Block(role, heading),
            Line::ReturnLost => Line::ReturnLost,
            Line::ReturnFound => Line::ReturnFound,
            Line::Numbered(event) => Line::Numbered(event),
        }
    }
}

/// The instructions of one trampoline, with labels and notes.
#[derive(Clone, Debug)]
pub struct Listing<'a, I> {
    /// In order of emission.
    pub lines: Vec<Line<I>>,
    /// The symbols to which the lines refer.
    pub symbols: Vec<SymRef<'a>>,
}

impl<I> Listing<'_, I> {
    /// The line of a label.
    ///
    /// # Errors
    /// The label is in no line.
    pub(crate) fn label(&self, local: Local, spec: &Spec) -> Result<usize> {
        let found = self.lines.iter().position(|line| matches!(line, Line::Local(l) if *l == local));
        found.ok_or_else(|| unbound(local, spec))
    }
}

/// The error for a label that is referred to, but is in no line.
pub(crate) fn unbound(local: Local, spec: &Spec) -> Error {
    Error::Unbound { label: format!(".L{}_{}{}", spec.name, local.suffix(), local.number()) }
}

impl<I> Default for Listing<'_, I> {
    fn default() -> Self {
        Listing { lines: Vec::new(), symbols: Vec::new() }
    }
}

/// The state of lowering: the listing so far, the target, and the positions of SP and frame pointer.
pub struct Lowering<'t, 'a, 'l, I> {
    /// Options and layouts.
    pub target: &'t Target,
    /// The spec of the trampoline.
    pub spec: &'t Spec<'a>,
    /// The frame of this trampoline.
    pub frame: &'t FrameLayout,
    /// The listing to append to.
    pub listing: &'l mut Listing<'a, I>,
    /// Bytes that SP is below its value at entry.
    pub depth: i32,
    /// Frame pointer minus SP, once the frame pointer has been pointed into the frame.
    pub anchor: Option<Disp>,
    /// The argument register for pc holds it already.
    pub pc_loaded: bool,
}

impl<'a, I> Lowering<'_, 'a, '_, I> {
    /// Append an instruction.
    pub fn insn(&mut self, insn: I) {
        self.noted(insn, "");
    }

    /// Append an instruction with a note on the meaning of its value in C.
    pub fn noted(&mut self, insn: I, note: &'static str) {
        self.listing.lines.push(Line::Insn(insn, note));
    }

    /// Append a label.
    pub fn local(&mut self, local: Local) {
        self.listing.lines.push(Line::Local(local));
    }

    /// Mark that from here on unwinders do not know the return address.
    pub fn return_lost(&mut self) {
        self.listing.lines.push(Line::ReturnLost);
    }

    /// Mark that from here on the return address is where it was at the entry.
    pub fn return_found(&mut self) {
        self.listing.lines.push(Line::ReturnFound);
    }

    /// Append a label that the kernel's C code knows, where this architecture's C code does.
    pub fn kernel_label(&mut self, label: KernelLabel) {
        if self.target.convention.has_label(label) {
            self.listing.lines.push(Line::KernelLabel(label));
        }
    }

    /// Refer to a symbol.
    pub fn symbol(&mut self, name: &'a str) -> Sym {
        self.refer(SymRef { name, add: 0 })
    }

    /// Refer to the variable with the `ftrace_ops`. A profile has one if its callback gets `op`.
    ///
    /// # Errors
    /// The profile has none.
    pub fn op(&mut self) -> Result<Sym> {
        let op = self.target.convention.callback.op.ok_or_else(|| Error::Absent {
            profile: self.target.convention.profile.to_owned(),
            what: "variable `op`".to_owned(),
            valid: "one with it".to_owned(),
        })?;
        Ok(self.symbol(op))
    }

    /// The parameters of a trampoline that records.
    ///
    /// # Errors
    /// Nothing is.
    pub fn recorder(&self) -> Result<Recorder> {
        self.spec.kind.recorder().ok_or_else(|| Error::new("nothing is recorded; valid: of kind record"))
    }

    /// The profile's thread pointer.
    ///
    /// # Errors
    /// The profile has none.
    pub fn thread(&self) -> Result<&'static str> {
        let &Convention { thread, profile, facts, .. } = self.target.convention;
        thread.ok_or_else(|| Error::Absent {
            profile: profile.to_owned(),
            what: "thread pointer".to_owned(),
            valid: format!("a profile with `thread` in [arch.{}]", facts.name),
        })
    }

    /// Refer to the variable with the time.
    ///
    /// # Errors
    /// The profile has none.
    pub fn clock(&mut self) -> Result<Sym> {
        let &Convention { clock, profile, facts, .. } = self.target.convention;
        let clock = clock.ok_or_else(|| Error::Absent {
            profile: profile.to_owned(),
            what: "variable `clock` with the time".to_owned(),
            valid: format!("--clock {}, or a profile with `clock` in [arch.{}]", Clock::None.name(), facts.name),
        })?;
        Ok(self.symbol(clock))
    }

    /// Refer to the start of the traced function's body.
    pub fn body(&mut self) -> Sym {
        self.refer(SymRef { name: self.spec.body.function, add: self.spec.body.resume })
    }

    /// Refer to the function to which a landing pad hands an exception back.
    pub fn resume(&mut self) -> Sym {
        self.symbol(lsda::RESUME)
    }

    fn refer(&mut self, to: SymRef<'a>) -> Sym {
        let symbols = &mut self.listing.symbols;
        let i = symbols.iter().position(|s| *s == to).unwrap_or_else(|| {
            symbols.push(to);
            symbols.len() - 1
        });
        Sym(i as u8)
    }

    /// The offset of slot `i`.
    pub fn field(&self, i: usize) -> Disp {
        Disp { value: self.frame.fields[i].offset, name: Name::Field(i as u8) }
    }

    /// The offset of frame record `i`, plus `add`.
    pub fn record(&self, i: usize, add: i32) -> Disp {
        Disp { value: self.frame.records[i].offset + add, name: Name::Record(i as u8) }
    }

    /// The error for a step that the architecture does not support.
    pub fn unsupported(&self, step: Step) -> Error {
        let (arch, profile) = (self.target.facts.name, self.target.convention.profile.to_owned());
        Error::Unsupported { arch, profile, what: format!("{step:?}") }
    }

    /// The offset of the slot with this content.
    ///
    /// # Errors
    /// The frame has none.
    pub fn slot(&self, content: Content) -> Result<Disp> {
        let found = self.frame.find(content).map(|i| self.field(i));
        found.ok_or_else(|| Error::new(format!("the frame has no slot for {content:?}; valid: a frame with one")))
    }

    /// The offset of the first word of a context: behind the number of words.
    ///
    /// # Errors
    /// The frame has no context.
    pub fn context(&self) -> Result<Disp> {
        self.count().map(|at| at.moved(8))
    }

    /// The offset of the word before a context's first word, which describes the context.
    ///
    /// # Errors
    /// The frame has no context.
    pub fn count(&self) -> Result<Disp> {
        let count = self.frame.fields.iter().position(|f| matches!(f.content, Content::Const(_)));
        let found = count.map(|i| self.field(i));
        found.ok_or_else(|| Error::new("the frame has no context; valid: that of a trampoline with programs"))
    }

    /// The symbol to which a call refers. For a callback through `op`, it is the function there until a callback is attached.
    pub fn callee(&mut self, callee: Callee) -> Sym {
        let name = match callee {
            Callee::Patchable | Callee::OpFunc => self.target.convention.callback.symbol,
            // A profile has one where the planner calls through one.
            Callee::Variable => self.target.convention.calls_through.unwrap_or_default(),
            Callee::ExitHandler => self.target.convention.return_handler(self.spec.kind),
            Callee::Named => self.spec.callee,
            Callee::Exit => self.spec.body.exit,
            Callee::Program(n) => self.spec.programs.get(usize::from(n)).map_or("", |p| &p.symbol),
            Callee::Before(n) => self.bracket(n).map_or("", |bracket| &bracket.enter),
            Callee::After(n) => self.bracket(n).map_or("", |bracket| &bracket.exit),
            Callee::Body => return self.body(),
        };
        self.symbol(name)
    }

    fn bracket(&self, n: u8) -> Option<&'a Bracket> {
        self.spec.brackets.get(usize::from(n))
    }

    /// Refer to what the functions around a program are given, or those around all.
    pub fn bracketed(&mut self, n: u8) -> Sym {
        let argument = self.bracket(n).and_then(|bracket| bracket.argument.as_deref());
        self.symbol(argument.unwrap_or_default())
    }

    /// From pc to ip, up to [`Site::MOST_IP_OFFSET`](crate::arch::site::Site::MOST_IP_OFFSET) bytes: to the site, or to the start of a
    /// function if functions are called around programs.
    pub fn ip_offset(&self) -> i32 {
        if self.spec.brackets.is_empty() { self.target.convention.site.ip_offset } else { self.spec.body.resume }
    }

    /// The registers that the trampoline uses for itself, with their slots.
    pub fn own(&self) -> impl Iterator<Item = (Reg, Disp)> + use<I> {
        let slots = self.frame.fields.iter().enumerate().filter_map(|(i, f)| match f.content {
            Content::Own(reg) => Some((reg, self.field(i))),
            _ => None,
        });
        slots.collect::<Vec<_>>().into_iter()
    }

    /// The register with what the function before a program returned.
    ///
    /// # Errors
    /// The frame has no slot for one.
    pub fn start(&self) -> Result<Reg> {
        let last = self.own().last().map(|(reg, _)| reg);
        last.ok_or_else(|| {
            Error::new("no functions are called around programs; valid: a frame with a register for them")
        })
    }

    /// Store or load each result register.
    pub fn results(&mut self, insn: impl Fn(Reg, Disp) -> I, vector: impl Fn(u8, Disp) -> I) {
        for i in 0..self.frame.fields.len() {
            match self.frame.fields[i].content {
                Content::Result(reg) => self.insn(insn(reg, self.field(i))),
                Content::VectorResult(v) => self.insn(vector(v, self.field(i))),
                _ => {}
            }
        }
    }

    /// The register that counts tail calls, and the slot of the function's returned counter.
    ///
    /// # Errors
    /// The function returns no counter.
    pub fn counted(&self) -> Result<(Reg, Disp)> {
        let counted = self.spec.kind.programs().and_then(|programs| programs.tail_call);
        let reg = counted.ok_or_else(|| Error::new("no tail calls are counted; valid: with TAIL_CALL_CTX"))?.reg;
        Ok((reg, self.slot(Content::Result(reg))?))
    }

    /// The slots of results that programs get, and of a result that a program decides.
    pub fn shown_results(&self) -> impl Iterator<Item = (Reg, Disp)> + use<I> {
        let rets = self.target.facts.abi.rets;
        let slots = self.frame.fields.iter().enumerate().filter_map(|(i, f)| match f.content {
            Content::Result(reg) if rets.contains(&reg) => Some((reg, self.field(i))),
            _ => None,
        });
        slots.collect::<Vec<_>>().into_iter()
    }

    /// The size of the frame, plus `add`.
    pub fn frame_size(&self, add: i32) -> Disp {
        Disp { value: self.frame.size + add, name: Name::FrameSize }
    }

    /// A number of the profile.
    ///
    /// # Errors
    /// The profile has none for this.
    pub fn number(&self, of: NumberOf) -> Result<Disp> {
        let value = self.target.number(of)?;
        let index = self.target.numbers.iter().position(|n| n.of == of).unwrap_or_default();
        Ok(Disp { value, name: Name::Number(index as u8) })
    }

    /// The offset of a word of the thread: from the thread pointer, or in the variable of [`Lowering::tls`].
    ///
    /// # Errors
    /// The profile has no such number.
    pub fn word(&self, of: ThreadWord) -> Result<Disp> {
        self.number(of.number(self.recorder()?.tls))
    }

    /// Refer to the thread-local variable with the thread's words, if they are in one.
    ///
    /// # Errors
    /// Nothing is recorded.
    pub fn tls(&mut self) -> Result<Option<Sym>> {
        Ok(self.recorder()?.tls.then(|| self.symbol(self.spec.tls)))
    }
}
