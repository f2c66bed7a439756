//! One architecture under one set of choices: everything that planning and lowering may depend on.

use std::borrow::Cow;

use crate::arch::facts::{Facts, Number, NumberOf, Promise};
use crate::arch::harden::{Harden, ReturnGuard, TypeWord, scs};
use crate::ask::frame::{Content, FrameLayout};
use crate::ask::live::{Carriers, Live};
use crate::ask::option::{Choice, Choices, Pad};
use crate::ask::place::Placement;
use crate::ask::spec::{Around, Direct, Events, Form, Kind, Programs, Recorder, Regs};
use crate::profile::{Convention, FrameUse};
use crate::words::abi::{Reg, RegSet};
use crate::words::error::{Error, Result};
use crate::words::proto::Prototype;

/// An architecture with its options and profile resolved.
#[derive(Clone, Debug)]
pub struct Target {
    /// The architecture.
    pub facts: &'static Facts,
    /// The options chosen.
    pub choices: Choices,
    /// The profile's choices for this architecture.
    pub convention: &'static Convention,
    /// Directives that a `.S` begins with.
    pub prologue: Vec<String>,
    /// `e_flags` of the ELF header.
    pub e_flags: u32,
    /// `.riscv.attributes` or the like: section name, type and bytes.
    pub attributes: Option<(&'static str, u32, Vec<u8>)>,
    /// Hardening against misuse and speculation.
    pub harden: Harden,
    /// `op` comes from the literal before the traced function, and may carry a direct-call target.
    pub op_from_site: bool,
    /// `ftrace_regs_caller` pushes the flags before its frame.
    pub pushes_flags: bool,
    /// `ftrace_regs_caller` restores the flags.
    pub restores_flags: bool,
    /// Bytes to which the trampoline realigns the stack around the callback, whatever the site's alignment.
    pub realign: Option<u32>,
    /// Vector registers that carry arguments and results are saved around handlers.
    pub saves_vectors: bool,
    /// The frame pointer during a full save is the address of pt_regs with bit 0 set.
    pub marks_regs: bool,
    /// The register in which the direct-call cell is tested.
    pub direct_test: Reg,
    /// The register that the jump to a direct trampoline clobbers.
    pub direct_jump: Option<Reg>,
    /// The alignment of SP that a callback may rely on, if the site's own stack was aligned for the kernel.
    pub stack_align: u32,
    /// Bytes from a function's start to behind its site, as compilers lay it out for such a kernel.
    pub resume: i32,
    /// Bytes of a landing pad that only some functions have before their sites; 0 if none has one, or all have.
    pub pad: i32,
    /// The text has annotations for the kernel's objtool ([`crate::out::objtool`]).
    pub objtool: bool,
    /// Bytes and text before a trampoline to which functions return, as many bytes as its alignment.
    pub lead: (&'static [u8], &'static [&'static str]),
    /// Objects have an `.eh_frame`. Kernels have none, and their linkers warn of one.
    pub unwind_tables: bool,
    /// The numbers of the profile, with their values under this target.
    pub numbers: Vec<Number>,
    /// The frames that C code knows as a structure. Where one is missing, the trampoline does not exist.
    pub frames: Vec<(FrameUse, FrameLayout)>,
    /// Frames of direct-call trampolines, by number of argument registers.
    pub direct_frames: Vec<FrameLayout>,
    /// Frames of paired trampolines that keep no `struct ftrace_regs`, by number of argument registers.
    pub around_frames: Vec<FrameLayout>,
    /// The other frames that the architecture lays out itself.
    pub layouts: Layouts,
    /// The implementation of [`Target::place`] for the psABI, if it is known.
    pub places: Option<Places>,
}

/// The returns of all code of an object.
#[derive(Clone, Copy, Debug)]
pub struct Returns {
    /// Each goes behind the call that it belongs to.
    pub paired: bool,
    /// The addresses that are stored for them are signed.
    pub signed: bool,
}

/// A function that returns where the psABI puts the arguments and the result of a function, or why that is unknown.
pub type Places = fn(&Target, &Prototype) -> Result<Placement>;

/// The values that each architecture must choose, because no default is right for all.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// [`Target::e_flags`].
    pub e_flags: u32,
    /// [`Target::harden`].
    pub harden: Harden,
    /// [`Target::direct_test`].
    pub direct_test: Reg,
    /// [`Target::stack_align`].
    pub stack_align: u32,
    /// [`Target::resume`].
    pub resume: i32,
    /// [`Target::pad`].
    pub pad: i32,
    /// [`Target::lead`].
    pub lead: (&'static [u8], &'static [&'static str]),
    /// [`Target::layouts`].
    pub layouts: Layouts,
    /// [`Target::places`].
    pub places: Option<Places>,
}

/// The frames that no C code knows as a structure. Trampolines whose layout is `None` are refused.
#[derive(Clone, Copy, Debug)]
pub struct Layouts {
    /// The frame of a direct-call trampoline that preserves the given live registers.
    pub direct: fn(&Live, Choices) -> FrameLayout,
    /// The frame of a paired trampoline without `struct ftrace_regs`, by number of argument registers and others live at sites.
    pub around: Option<fn(usize, RegSet) -> FrameLayout>,
    /// The frame of a trampoline that calls programs.
    pub programs: Option<fn(&Programs) -> FrameLayout>,
    /// The frame of a trampoline that records entries and returns: one frame record.
    pub record: Option<fn(&Recorder) -> FrameLayout>,
    /// The frame of a sled, with slots for every register that C functions may clobber.
    pub sled: Option<fn(Choices) -> FrameLayout>,
    /// The vector registers that C functions may use under these options, and that a sled preserves, as a bit mask of numbers.
    pub vectors: fn(Choices) -> u32,
}

impl Layouts {
    /// The layouts of an architecture with direct-call trampolines only.
    pub fn direct(direct: fn(&Live, Choices) -> FrameLayout) -> Layouts {
        Layouts { direct, around: None, programs: None, record: None, sled: None, vectors: |_| 0 }
    }
}

impl Target {
    /// Of these registers, live at the entry of functions, those that a trampoline saves which guards its return address: compilers
    /// have nothing else in the register with the shadow call stack.
    pub fn live_where_guarded(&self, live: RegSet) -> RegSet {
        live.minus(RegSet::from_iter(scs(self.harden.guard, &self.facts.abi)))
    }

    /// A target with the architecture's values, the profile's choices and nothing else: without steps that only some architectures
    /// have, and with objects like those of programs.
    pub fn plain(convention: &'static Convention, choices: Choices, own: Own) -> Target {
        let Own { e_flags, harden, direct_test, stack_align, resume, pad, lead, layouts, places } = own;
        let (abi, live) = (&convention.facts.abi, convention.site.live);
        let counts = 0..=abi.args.len();
        Target {
            facts: convention.facts,
            choices,
            convention,
            prologue: Vec::new(),
            e_flags,
            attributes: None,
            harden,
            op_from_site: false,
            pushes_flags: false,
            restores_flags: false,
            realign: None,
            saves_vectors: false,
            marks_regs: false,
            direct_test,
            direct_jump: None,
            stack_align,
            resume,
            pad,
            objtool: false,
            lead,
            unwind_tables: true,
            numbers: convention.numbers.clone(),
            frames: convention.frames(choices),
            direct_frames: counts.clone().map(|n| (layouts.direct)(&Live::first(n, abi, live), choices)).collect(),
            around_frames: layouts.around.map_or(Vec::new(), |frame| counts.map(|n| frame(n, live)).collect()),
            layouts,
            places,
        }
    }

    /// Where the arguments and the result of a function are.
    ///
    /// # Errors
    /// A type whose passing rules are not known here.
    pub fn place(&self, proto: &Prototype) -> Result<Placement> {
        match self.places {
            Some(places) => places(self, proto),
            None => Err(proto.refuse(None, &format!("calling conventions of {} are not known", self.facts.name))),
        }
    }

    /// The contents of `.note.gnu.property` of code with such returns. Code that is linked without a bit turns that protection off for
    /// the whole program. Kernels have no such notes.
    pub fn property_note(&self, returns: Returns) -> Option<[u32; 8]> {
        /// NT_GNU_PROPERTY_TYPE_0.
        const PROPERTIES: u32 = 5;
        let marks = self.facts.marks.as_ref()?;
        let holds = |promise| match promise {
            Promise::Pads => self.harden.landing.is_some(),
            Promise::Paired => returns.paired,
            // Those that put nothing there break nothing. Where it must be asked for, the pads ask.
            Promise::Guarded => self.harden.landing.is_some() || self.harden.guard == Some(ReturnGuard::Pushed),
            Promise::Signed => returns.signed,
        };
        let bits = marks.features.iter().filter(|f| holds(f.promise)).fold(0, |bits, feature| bits | feature.bit);
        // Bytes of name, contents, type; name; property, bytes of its value, value, padding.
        (bits != 0 && self.unwind_tables).then_some([
            4,
            16,
            PROPERTIES,
            u32::from_le_bytes(*b"GNU\0"),
            marks.property,
            4,
            bits,
            0,
        ])
    }

    /// The landing pad with which a trampoline of this kind begins, if any.
    pub fn landing(&self, kind: Kind) -> Option<&'static str> {
        self.harden.landing.filter(|_| self.convention.pad(kind) == Pad::First)
    }

    /// How a trampoline of this kind guards the return address that it stores, if it does.
    pub fn guards(&self, kind: Kind) -> Option<ReturnGuard> {
        self.harden.guard.filter(|_| kind.stores_return())
    }

    /// The kCFI type before a trampoline of this kind, if it is called through pointers and callers check the type.
    pub fn typed(&self, kind: Kind) -> Option<TypeWord> {
        self.harden.typed.filter(|_| kind.is_callback())
    }

    /// Bytes and text before a trampoline, covered by its unwind table. If functions return to a trampoline, an unwinder looks
    /// up the address before its first instruction.
    pub fn lead(&self, kind: Kind) -> (&'static [u8], &'static [&'static str]) {
        if kind.returned_to() && self.unwind_tables { self.lead } else { (&[], &[]) }
    }

    /// The frame of this kind of trampoline.
    ///
    /// # Errors
    /// There is none under this profile.
    pub fn frame(&self, kind: Kind) -> Result<Cow<'_, FrameLayout>> {
        let mut frame = self.whole_frame(kind)?;
        // Whoever overwrites the frame must not have a say in where the shadow call stack is.
        let scs = scs(self.guards(kind), &self.facts.abi);
        if frame.fields.iter().any(|field| scs.is_some_and(|scs| field.content == Content::Reg(scs))) {
            frame.to_mut().fields.retain(|field| scs.is_none_or(|scs| field.content != Content::Reg(scs)));
        }
        Ok(frame)
    }

    fn whole_frame(&self, kind: Kind) -> Result<Cow<'_, FrameLayout>> {
        if let Kind::Direct(direct @ Direct { jumped: true, .. }) = kind {
            let mut frame = self.whole_frame(Kind::Direct(Direct { jumped: false, ..direct }))?.into_owned();
            // No site pushed `pc`, so the record has the parent's address.
            frame.records.iter_mut().for_each(|record| record.ret = Content::ParentIp);
            return Ok(Cow::Owned(frame));
        }
        let known = match kind {
            Kind::Stub | Kind::StubGraph | Kind::StubDirect => return Ok(Cow::Owned(FrameLayout::empty())),
            Kind::Programs(programs) => {
                let frame =
                    self.layouts.programs.ok_or_else(|| self.no_layout("a frame with a context of programs"))?;
                return Ok(Cow::Owned(frame(&programs)));
            }
            Kind::Record(
                recorder @ (Recorder { events: Events::Both, shadow: false, .. } | Recorder { keeps_all: true, .. }),
            ) => {
                let frame = self.layouts.record.ok_or_else(|| self.no_layout("a frame of trampolines that record"))?;
                return Ok(Cow::Owned(frame(&recorder)));
            }
            Kind::Record(_) => return Ok(Cow::Owned(FrameLayout::empty())),
            Kind::Direct(Direct { live: Some(live), .. }) => {
                return Ok(Cow::Owned((self.layouts.direct)(&live, self.choices)));
            }
            Kind::Direct(Direct { args, ip, .. }) => {
                let room = self.facts.abi.args.len() as u8;
                let most = room - ip as u8;
                if args > most {
                    let what = if ip { "argument registers beside --ip" } else { "argument registers" };
                    return Err(Error::new(format!(
                        "direct on {}: {args} {what} asked for; valid: 0 to {most}",
                        self.facts.name
                    )));
                }
                &self.direct_frames[args as usize]
            }
            Kind::Around(Around { form: Form::Frame, args, .. }) => {
                if self.layouts.around.is_none() {
                    return Err(self.no_layout("a frame of paired trampolines"));
                }
                self.around_frames.get(usize::from(args)).ok_or_else(|| {
                    Error::new(format!(
                        "around on {}: {args} argument registers asked for; valid: 0 to {}",
                        self.facts.name,
                        self.facts.abi.args.len()
                    ))
                })?
            }
            Kind::Around(Around { form: Form::Fregs, .. }) => self.structure(FrameUse::AroundFregs)?,
            Kind::Around(Around { form: Form::Shadow, .. }) => self.structure(FrameUse::AroundShadow)?,
            Kind::Entry(Regs::Args) => self.structure(FrameUse::Args)?,
            Kind::Entry(Regs::All) => self.structure(FrameUse::Regs)?,
            Kind::Return => self.structure(FrameUse::Exit)?,
            Kind::Rethook if self.saves_vectors => {
                return Err(Error::Absent {
                    profile: self.convention.profile.to_owned(),
                    what: format!(
                        "room for vector registers in a trampoline of kretprobes on {}, where unwinders know how its frame ends",
                        self.facts.name
                    ),
                    valid: "without the option that saves them, with handlers that use general registers only"
                        .to_owned(),
                });
            }
            Kind::Rethook => self.structure(FrameUse::Rethook)?,
            Kind::Closure | Kind::Callback | Kind::Syscall(_) | Kind::Switch | Kind::Displaced => {
                return Err(not_generated(kind));
            }
            Kind::Sled => {
                let frame = self.layouts.sled.ok_or_else(|| self.no_layout("a frame with every register"))?;
                return Ok(Cow::Owned(frame(self.choices)));
            }
        };
        match self.carriers(kind) {
            none if none == Carriers::default() => Ok(Cow::Borrowed(known)),
            carriers => Ok(Cow::Owned(known.clone().with_vectors(carriers, self.facts.abi.vector_bytes as i32))),
        }
    }

    /// The vector registers that a trampoline of this kind saves around its handlers without a prototype.
    pub fn carriers(&self, kind: Kind) -> Carriers {
        if !self.saves_vectors || !kind.may_lose_vectors() {
            return Carriers::default();
        }
        let abi = &self.facts.abi;
        match kind.returned_to() {
            true => Carriers { entered: abi.vector_rets, returned: &[] },
            false if kind.calls_body() => Carriers { entered: abi.vector_args, returned: abi.vector_rets },
            false => Carriers { entered: abi.vector_args, returned: &[] },
        }
    }

    fn no_layout(&self, what: &str) -> Error {
        let (arch, profile) = (self.facts.name, self.convention.profile.to_owned());
        Error::Unsupported { arch, profile, what: what.to_owned() }
    }

    /// The frame that C code knows as a structure.
    ///
    /// # Errors
    /// The profile has none for this use; the message says under which options it has.
    fn structure(&self, of: FrameUse) -> Result<&FrameLayout> {
        if let Some((_, frame)) = self.frames.iter().find(|(u, _)| *u == of) {
            return Ok(frame);
        }
        let facts = self.facts;
        let known = self.convention.frames.iter().find(|(u, _)| *u == of);
        let remedy = match known {
            // The option values under which the frame does not exist.
            Some((_, table)) => {
                let taken = table.variants.iter().filter(|v| v.absent && v.holds(self.choices));
                let others = taken.flat_map(|v| &v.when).filter_map(|(option, value)| {
                    let option = facts.options.get(*option)?;
                    let others = option.values.iter().enumerate().filter(|(i, _)| i != value);
                    let others: Vec<&str> = others.map(|(_, value)| *value).collect();
                    Some(format!("{}={}", option.name, others.join("|")))
                });
                format!("with {}", others.collect::<Vec<_>>().join(" "))
            }
            None => format!("a profile with [arch.{}.frame.{}]", facts.name, of.key()),
        };
        Err(Error::Absent {
            profile: self.convention.profile.to_owned(),
            what: format!("frame `{}` for {} with {}", of.key(), facts.name, self.describe()),
            valid: remedy,
        })
    }

    /// The value chosen for an option of the architecture.
    pub fn option<C: Choice>(&self) -> C {
        self.choices.option()
    }

    /// `name=value` for each option.
    pub fn describe(&self) -> String {
        self.convention.describe(self.choices)
    }

    /// The value of a number of the profile.
    ///
    /// # Errors
    /// The profile has none for this.
    pub fn number(&self, of: NumberOf) -> Result<i32> {
        let found = self.numbers.iter().find(|n| n.of == of).map(|n| n.value);
        found.ok_or_else(|| Error::Absent {
            profile: self.convention.profile.to_owned(),
            what: format!("number `{}` for {}", of.key(), self.facts.name),
            valid: format!("one with it in [arch.{}.numbers]", self.facts.name),
        })
    }

    /// A number or a frame offset of the profile.
    pub fn value(&self, symbol: &str) -> Option<i32> {
        let numbers = self.numbers.iter().map(|n| (n.symbol, n.value));
        let mut all = numbers.chain(self.struct_frames().flat_map(|f| f.fields.iter().map(|f| (f.symbol, f.offset))));
        all.find(|(s, _)| *s == symbol).map(|(_, value)| value)
    }

    /// Give a number or a frame offset of the profile another value.
    ///
    /// # Errors
    /// An unknown symbol (the message lists those that exist), or a value that would let two slots overlap.
    pub fn set_number(&mut self, symbol: &str, value: i32) -> Result<()> {
        if let Some(n) = self.numbers.iter_mut().find(|n| n.symbol == symbol) {
            n.value = value;
            return Ok(());
        }
        let mut found = false;
        let name = self.facts.name;
        for frame in self.struct_frames_mut() {
            // A register's slot may be its result's too.
            for field in frame.fields.iter_mut().filter(|f| f.symbol == symbol && !f.member.is_empty()) {
                found = true;
                if value < 0 || value % 8 != 0 || value > frame.c_size - 8 {
                    return Err(Error::new(format!(
                        "{symbol}={value} on {name}: valid: a multiple of 8 from 0 to {} ({} has {} bytes)",
                        frame.c_size - 8,
                        frame.c_struct,
                        frame.c_size
                    )));
                }
                field.offset = value;
            }
        }
        if found {
            return Ok(());
        }
        Err(Error::unknown(&format!("number of profile {}", self.convention.profile), symbol, self.symbols()))
    }

    /// Two slots of one frame at the same offset: the error names them.
    pub fn check_frames(&mut self) -> Result<()> {
        let name = self.facts.name;
        for frame in self.struct_frames_mut() {
            // Results come after registers, whose slots they have.
            frame.fields.sort_by_key(|f| (matches!(f.content, Content::Result(_)), f.offset));
            if let Some(w) = frame.fields.windows(2).find(|w| w[0].offset == w[1].offset) {
                return Err(Error::new(format!(
                    "{} and {} on {name} are both at {}: give each slot an offset of its own",
                    w[0].symbol, w[1].symbol, w[0].offset
                )));
            }
        }
        Ok(())
    }

    /// The frames with a C struct, whose offsets are numbers of the profile.
    pub fn struct_frames(&self) -> impl Iterator<Item = &FrameLayout> {
        self.frames.iter().map(|(_, frame)| frame)
    }

    fn struct_frames_mut(&mut self) -> impl Iterator<Item = &mut FrameLayout> {
        self.frames.iter_mut().map(|(_, frame)| frame)
    }

    /// The names of all numbers that [`set_number`](Target::set_number) knows.
    pub fn symbols(&self) -> Vec<&'static str> {
        let fields =
            self.struct_frames().flat_map(|f| f.fields.iter().filter(|f| !f.member.is_empty()).map(|f| f.symbol));
        let mut all: Vec<&str> = self.numbers.iter().map(|n| n.symbol).chain(fields).collect();
        let mut seen = std::collections::HashSet::new();
        all.retain(|s| seen.insert(*s));
        all
    }
}

/// The error for kinds that only contracts in files state.
fn not_generated(kind: Kind) -> Error {
    Error::new(format!(
        "kind {}: nothing generates it; valid: in a contract, of code that others wrote",
        kind.traits().word
    ))
}
