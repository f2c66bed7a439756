//! Choices of a kernel version, another tracer, or no kernel at all: names of symbols, the callback's arguments, which
//! trampolines exist, their frames, how a site is written, how returns are hooked, what a kernel's configuration means.
//!
//! Profiles are data: the crate `profiles` reads them from `profiles/*.toml`. Planning, lowering and contracts know no versions.

pub mod lsda;
pub mod target;

use crate::arch::facts::{Facts, Number};
use crate::arch::patch::AlternativeEntry;
use crate::arch::site::{Copies, Site};
use crate::ask::frame::{Content, Field, FrameLayout, Record};
use crate::ask::option::{Choices, OptionInfo, Pad};
use crate::ask::spec::{Around, Form, Kind, Program, Regs, Spec, TailCall};
use crate::words::abi::RegSet;
use crate::words::error::{Error, Result};
use crate::words::step::{KernelLabel, Value};

/// A profile: choices common to all architectures, and a [`Convention`] for each.
#[derive(Debug)]
pub struct Profile {
    /// The name on the command line.
    pub name: &'static str,
    /// A sentence that describes the profile.
    pub about: &'static str,
    /// Versions of Linux that the profile describes, as `MAJOR.MINOR`; none for other tracers.
    pub kernels: Vec<&'static str>,
    /// One for each architecture that the profile has.
    pub conventions: Vec<Convention>,
    /// Architectures that the profile does not offer, and why.
    pub refused: Vec<(&'static str, &'static str)>,
}

impl Profile {
    /// The profile on the architecture called `arch`.
    ///
    /// # Errors
    /// The profile says nothing about it, or why it does not offer it; the message lists the architectures of the profile.
    pub fn convention(&'static self, arch: &str) -> Result<&'static Convention> {
        let valid = self.conventions.iter().map(|c| c.facts.name);
        if let Some((_, why)) = self.refused.iter().find(|(name, _)| *name == arch) {
            let valid = valid.collect::<Vec<_>>().join(", ");
            return Err(Error::new(format!("profile {} does not offer {arch}: {why}; valid: {valid}", self.name)));
        }
        let found = self.conventions.iter().find(|c| c.facts.name == arch);
        found.ok_or_else(|| Error::unknown(&format!("architecture of profile {}", self.name), arch, valid))
    }
}

/// A profile on one architecture.
#[derive(Debug)]
pub struct Convention {
    /// The profile's name.
    pub profile: &'static str,
    /// The argument of `--profile` for the profile: a name, or a file.
    pub argument: &'static str,
    /// The architecture.
    pub facts: &'static Facts,
    /// The callback of entry trampolines.
    pub callback: Callback,
    /// The C function that the exit trampoline calls.
    pub exit_handler: &'static str,
    /// The C function that the trampoline of kretprobes calls.
    pub rethook_handler: &'static str,
    /// The trampolines that exist under a name of their own, in the order in which `--all` emits them.
    pub trampolines: Vec<Offer>,
    /// The trampolines that sites reach by direct branches only, and that begin with no landing pad.
    pub no_landing_pad: Vec<Kind>,
    /// The labels inside trampolines that the tracer's C code knows.
    pub labels: Vec<KernelLabel>,
    /// The variable that points to the function which entry trampolines call; `None` where their call itself is patched.
    pub calls_through: Option<&'static str>,
    /// How a patched site arrives, and how it is written.
    pub site: Site,
    /// How returns are hooked.
    pub exit: ExitConvention,
    /// The limits and forms of programs that are attached to functions.
    pub programs: ProgramsConvention,
    /// How the tracer makes a copy of an entry trampoline for each `ftrace_ops`, if it does.
    pub copies: Option<Copies>,
    /// The layout of the list from which the kernel replaces instructions when it boots; `None` if the profile gives none.
    pub alternatives: Option<AlternativeEntry>,
    /// With frame records, the frame pointer of a full save is the frame's address with bit 0 set. Linux's unwinder recognizes
    /// `struct pt_regs` by that bit.
    pub marks_regs: bool,
    /// The form in which objtool writes `.orc_unwind`: a name of [`Machine::orc`](crate::arch::machine::Machine::orc).
    pub orc: Option<&'static str>,
    /// The thread pointer, from which trampolines that record find the thread's words; `None` if threads have no words.
    pub thread: Option<&'static str>,
    /// The variable that `record --clock word` takes the time from.
    pub clock: Option<&'static str>,
    /// Numbers that the code needs, with their usual values.
    pub numbers: Vec<Number>,
    /// The meaning of a kernel's configuration; `None` where no kernel is configured.
    pub kernel: Option<Kernel>,
    /// The architecture's options that exist here, by index into its table.
    pub options: Vec<OptionRule>,
    /// The frames that callbacks get a pointer to.
    pub frames: Vec<(FrameUse, FrameTable)>,
}

/// The callback of entry trampolines.
#[derive(Debug)]
pub struct Callback {
    /// The symbol that is called until a tracer puts its own function there.
    pub symbol: &'static str,
    /// Its arguments, in order: [`Value::Ip`], [`Value::ParentIp`], [`Value::Op`] and [`Value::Fregs`], each at most once.
    pub arguments: Vec<Value>,
    /// The variable with the `ftrace_ops`; `None` where no argument comes from one.
    pub op: Option<&'static str>,
    /// The call as C has it: `func(ip, parent_ip, op, fregs)`.
    pub prototype: &'static str,
    /// The call of a paired trampoline's entry handler as C has it.
    pub entry: &'static str,
    /// The call of an entry handler that keeps `parent_ip`, as C has it.
    pub entry_that_keeps: &'static str,
}

impl Callback {
    /// The index of the argument that is `value`.
    pub fn position(&self, value: Value) -> Option<usize> {
        self.arguments.iter().position(|v| *v == value)
    }
}

/// The limits and forms of programs that are attached to functions.
#[derive(Debug)]
pub struct ProgramsConvention {
    /// The most programs for one function; a session counts as two.
    pub most: usize,
    /// Programs can be sessions, and the word before a context's first word has more than the number of words.
    pub sessions: bool,
    /// How BPF programs count tail calls; `None` if the traced function cannot be a BPF program.
    pub tail_call: Option<TailCall>,
    /// The form of the kernel's own trampolines of this kind: generated ones have it too where functions are called around programs.
    pub written: WrittenPrograms,
}

/// The form of the trampolines that a kernel writes for programs.
#[derive(Clone, Copy, Default, Debug)]
pub struct WrittenPrograms {
    /// Callee-saved registers that hold the trampoline's own values while the traced function runs; none if the profile has no such
    /// form.
    pub own: RegSet,
    /// The alignment that the traced function's SP keeps, in bytes; `None` if it is that of the psABI.
    pub body_align: Option<u32>,
    /// The traced function is gone to by a return.
    pub body_by_return: bool,
}

impl Default for ProgramsConvention {
    fn default() -> ProgramsConvention {
        ProgramsConvention {
            most: Program::MOST,
            sessions: false,
            tail_call: None,
            written: WrittenPrograms::default(),
        }
    }
}

/// A trampoline that exists under a name of its own.
#[derive(Debug)]
pub struct Offer {
    /// The kind of trampoline.
    pub kind: Kind,
    /// The trampoline's symbol.
    pub symbol: &'static str,
    /// The labels inside the trampoline that have names of their own.
    pub labels: Vec<(KernelLabel, &'static str)>,
}

/// How returns are hooked, and what that costs on the return-address stack.
#[derive(Debug)]
pub struct ExitConvention {
    /// How the exit trampoline is entered, for the contract's text.
    pub arrives: &'static str,
    /// Unpaired returns in the exit trampoline: 1 where a landing-pad rule forbids a branch to the parent, and the
    /// redirected return already popped the call.
    pub unpaired: u32,
    /// Mispredicted returns: the traced function's own, and the return to the parent, unless it is a jump.
    pub mispredicted: u32,
}

/// Options of a kernel's configuration, without `CONFIG_`.
#[derive(Debug)]
pub struct Kernel {
    /// The option that is set for this architecture and no other.
    pub arch: &'static str,
    /// Options that must be set, and the purpose of each.
    pub needs: Vec<(&'static str, &'static str)>,
    /// The kernel's asm-offsets.h has all the numbers of the entry trampoline; else it has none.
    pub numbers: bool,
    /// The option that lets modules register direct-call trampolines.
    pub direct_calls: Option<&'static str>,
    /// The form of annotations for objtool, if objtool checks the kernel's objects.
    pub objtool: Option<Objtool>,
    /// The files that the profile was written from.
    pub sources: Vec<&'static str>,
    /// Options that must not be set, and why.
    pub refuses: Vec<(&'static str, &'static str)>,
    /// Options without effect on generated code, and what that means.
    pub ignores: Vec<(&'static str, &'static str)>,
}

/// The form of annotations that a kernel's objtool reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objtool {
    /// The number of SP in objtool's register numbering.
    pub sp: u8,
    /// Type numbers of "no landing pad needed" and "call that only pushes", if one section has both; `None` if each has its own.
    pub types: Option<[u32; 2]>,
}

/// An option of the architecture, as this profile has it.
#[derive(Debug)]
pub struct OptionRule {
    /// Index into the architecture's table.
    pub index: usize,
    /// The value without `--set`: an index into the option's values.
    pub default: usize,
    /// The user cannot choose another value.
    pub fixed: bool,
    /// How a kernel's configuration chooses the value: the first one whose options, without `CONFIG_`, are all set.
    pub config: Vec<(&'static str, Vec<&'static str>)>,
    /// How the flags of a compiler choose it: the first one of whose flags one is given. Of several flags of one name, the last counts;
    /// a flag without a value stands for any of that name, and a value for one of the parts that `+` joins.
    pub cflags: Vec<(&'static str, Vec<&'static str>)>,
}

/// The trampolines whose frame is a structure that C code knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUse {
    /// The entry trampoline with the argument registers.
    Args,
    /// The entry trampoline with every register.
    Regs,
    /// The exit trampoline.
    Exit,
    /// The trampoline of kretprobes.
    Rethook,
    /// A paired trampoline whose structure stays on the stack.
    AroundFregs,
    /// A paired trampoline that leaves nothing on the stack.
    AroundShadow,
}

impl FrameUse {
    /// All uses, with their names in a profile.
    pub const ALL: [(&'static str, FrameUse); 6] = [
        ("args", FrameUse::Args),
        ("regs", FrameUse::Regs),
        ("exit", FrameUse::Exit),
        ("around-fregs", FrameUse::AroundFregs),
        ("around-shadow", FrameUse::AroundShadow),
        ("rethook", FrameUse::Rethook),
    ];

    /// The key in a profile.
    pub fn key(self) -> &'static str {
        FrameUse::ALL.iter().find(|(_, of)| *of == self).map_or("", |(key, _)| key)
    }

    /// The kind of trampoline with this frame.
    pub fn kind(self) -> Kind {
        let around = |form| Kind::Around(Around { form, args: 0, general_handlers: false });
        match self {
            FrameUse::Args => Kind::Entry(Regs::Args),
            FrameUse::Regs => Kind::Entry(Regs::All),
            FrameUse::Exit => Kind::Return,
            FrameUse::Rethook => Kind::Rethook,
            FrameUse::AroundFregs => around(Form::Fregs),
            FrameUse::AroundShadow => around(Form::Shadow),
        }
    }

    /// The frame that a trampoline under a name of its own needs, with its key in a profile.
    pub fn of(kind: Kind) -> Option<(&'static str, FrameUse)> {
        match kind {
            Kind::Entry(Regs::Args) => Some(FrameUse::ALL[0]),
            Kind::Entry(Regs::All) => Some(FrameUse::ALL[1]),
            Kind::Return => Some(FrameUse::ALL[2]),
            Kind::Rethook => Some(FrameUse::ALL[5]),
            _ => None,
        }
    }
}

/// A frame under the default options, and its changes under other values.
#[derive(Debug)]
pub struct FrameTable {
    /// The frame under default options.
    pub layout: FrameLayout,
    /// Changes, applied in order where their options have their values.
    pub variants: Vec<FrameVariant>,
}

/// The changes to a frame where options have certain values.
#[derive(Debug)]
pub struct FrameVariant {
    /// Conditions that must all hold: index of an option in the architecture's table, and index of its value.
    pub when: Vec<(usize, usize)>,
    /// The trampoline does not exist under these values.
    pub absent: bool,
    /// The structure's size, if it is another one.
    pub c_size: Option<i32>,
    /// The size on the stack, if it is another one.
    pub size: Option<i32>,
    /// Slots with other contents, and additional slots.
    pub fields: Vec<Field>,
    /// The frame records, if they are other ones.
    pub records: Option<Vec<Record>>,
}

impl FrameVariant {
    /// Do the conditions hold under these choices?
    pub fn holds(&self, choices: Choices) -> bool {
        self.when.iter().all(|(option, value)| choices.get(*option) == *value)
    }
}

impl FrameTable {
    /// The frame under these choices; `None` where the trampoline does not exist.
    pub fn layout(&self, choices: Choices) -> Option<FrameLayout> {
        let mut layout = self.layout.clone();
        for variant in self.variants.iter().filter(|v| v.holds(choices)) {
            if variant.absent {
                return None;
            }
            layout.size = variant.size.unwrap_or(layout.size);
            layout.c_size = variant.c_size.unwrap_or(layout.c_size);
            for field in &variant.fields {
                let same = |f: &&mut Field| f.symbol == field.symbol && !matches!(f.content, Content::Result(_));
                match layout.fields.iter_mut().find(same) {
                    Some(known) => *known = *field,
                    None => layout.fields.push(*field),
                }
            }
            if let Some(records) = &variant.records {
                layout.records.clone_from(records);
            }
        }
        Some(layout)
    }
}

impl Convention {
    /// The error for sites that arrive as no trampoline of the architecture expects; `valid` is what trampolines expect.
    pub fn refuse_site(&self, valid: &str) -> Error {
        let (profile, arch) = (self.profile, self.facts.name);
        Error::new(format!(
            "profile {profile}: sites of {arch} arrive in another way; valid: in [arch.{arch}.site], {valid}"
        ))
    }

    /// The C function that a trampoline of this kind calls when a traced function returns.
    pub fn return_handler(&self, kind: Kind) -> &'static str {
        if kind == Kind::Rethook { self.rethook_handler } else { self.exit_handler }
    }

    /// The symbol of the trampoline of this kind; `None` if the profile has none under a name of its own.
    pub fn symbol(&self, kind: Kind) -> Option<&'static str> {
        self.trampolines.iter().find(|t| t.kind == kind).map(|t| t.symbol)
    }

    /// The kind of the trampoline with this symbol.
    pub fn kind(&self, symbol: &str) -> Option<Kind> {
        self.trampolines.iter().find(|t| t.symbol == symbol).map(|t| t.kind)
    }

    /// Does the tracer's C code know this label?
    pub fn has_label(&self, label: KernelLabel) -> bool {
        self.labels.contains(&label.first())
    }

    /// The specs of trampolines under names of their own, in the order in which `--all` emits them.
    pub fn specs(&self) -> impl Iterator<Item = Spec<'static>> {
        self.trampolines.iter().map(|offer| Spec::of(offer.symbol, offer.kind))
    }

    /// A line that describes the trampoline of this kind.
    pub fn about(&self, kind: Kind) -> String {
        match kind {
            Kind::Stub => "callback that does nothing".to_owned(),
            Kind::StubGraph => "graph callback that does nothing".to_owned(),
            Kind::StubDirect => "direct-call trampoline that does nothing".to_owned(),
            Kind::Entry(Regs::Args) => format!("calls {} with the argument registers", self.callback.prototype),
            Kind::Entry(Regs::All) => {
                format!("calls {} with a full {}", self.callback.prototype, self.c_struct(FrameUse::Regs))
            }
            Kind::Return => format!("calls {}(fregs) when a traced function returns", self.exit_handler),
            Kind::Rethook => format!(
                "calls {}(regs) when a traced function returns, with every register, as for a kretprobe",
                self.rethook_handler
            ),
            Kind::Direct(_) => "calls one C function with the traced function's arguments".to_owned(),
            Kind::Sled => "calls one C function in the middle of a function".to_owned(),
            Kind::Displaced => "has copies of displaced instructions".to_owned(),
            Kind::Closure => "shows its arguments to one C function".to_owned(),
            Kind::Callback => "leads from C into code with a convention of its own, or back".to_owned(),
            Kind::Syscall(_) => "makes a system call".to_owned(),
            Kind::Switch => "goes on in another context".to_owned(),
            Kind::Around(_) => "calls the traced function itself, between an entry and an exit handler".to_owned(),
            Kind::Record(_) => "writes records of one function's calls to a buffer of the thread".to_owned(),
            Kind::Programs(_) => {
                "calls programs before, instead of and after one function, with its arguments in an array".to_owned()
            }
        }
    }

    /// The C name of a frame.
    fn c_struct(&self, of: FrameUse) -> &'static str {
        self.frames.iter().find(|(u, _)| *u == of).map_or("frame", |(_, table)| table.layout.c_struct)
    }

    /// All frames under these choices.
    pub fn frames(&self, choices: Choices) -> Vec<(FrameUse, FrameLayout)> {
        self.frames.iter().filter_map(|(of, table)| Some((*of, table.layout(choices)?))).collect()
    }

    /// The frame for this use under these choices.
    pub fn frame(&self, of: FrameUse, choices: Choices) -> Option<FrameLayout> {
        self.frames.iter().find(|(u, _)| *u == of)?.1.layout(choices)
    }

    /// The rule of the option with this index; `None` where the profile does not offer it.
    pub fn option(&self, index: usize) -> Option<&OptionRule> {
        self.options.iter().find(|o| o.index == index)
    }

    /// The values of all options without `--set`.
    pub fn defaults(&self) -> Choices {
        self.options.iter().fold(Choices::default(), |all, o| all.with(o.index, o.default))
    }

    /// The options for which the user can choose a value.
    pub fn offered(&self) -> impl Iterator<Item = (&OptionRule, &'static OptionInfo)> {
        let offered = self.options.iter().filter(|rule| !rule.fixed);
        offered.filter_map(|rule| Some((rule, self.facts.options.get(rule.index)?)))
    }

    /// Can this option change the code of a trampoline of this kind?
    pub fn changes(&self, option: &OptionInfo, kind: Kind) -> bool {
        (option.applies)(kind, self.pad(kind))
    }

    /// How a trampoline of this kind begins. Trampolines that are reached only by returns have no landing pad. Those reached
    /// only by branches of sites have none if the profile says so.
    pub fn pad(&self, kind: Kind) -> Pad {
        if kind.returned_to() || self.no_landing_pad.contains(&kind) { Pad::None } else { Pad::First }
    }

    /// `name=value` for each option that can be chosen.
    pub fn chosen(&self, choices: Choices) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.offered().filter_map(move |(rule, o)| Some((o.name, *o.values.get(choices.get(rule.index))?)))
    }

    /// `name=value` for each option that can be chosen, in one line.
    pub fn describe(&self, choices: Choices) -> String {
        self.chosen(choices).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// Every combination of values of the options for which `vary` holds, and each value of an option that is
    /// [`apart`](OptionInfo::apart). Other options keep their default.
    pub fn combinations(&self, vary: impl Fn(&OptionInfo) -> bool) -> Vec<Choices> {
        let defaults = self.defaults();
        let mut all = vec![defaults];
        let varied = self.offered().filter(|(_, o)| vary(o));
        let (apart, together): (Vec<_>, Vec<_>) = varied.partition(|(_, o)| o.apart);
        for (rule, option) in together {
            // The default first.
            let values = (0..option.values.len()).map(|n| (n + rule.default) % option.values.len());
            all = values.flat_map(|v| all.iter().map(move |c| c.with(rule.index, v))).collect();
        }
        for (rule, option) in apart {
            let others = (0..option.values.len()).filter(|v| *v != rule.default);
            all.extend(others.map(|v| defaults.with(rule.index, v)));
        }
        all
    }

    /// The trampoline of this name and kind, if the profile has it under that name.
    pub(crate) fn offer(&self, name: &str, kind: Kind) -> Option<&Offer> {
        self.trampolines.iter().find(|t| t.symbol == name && t.kind == kind)
    }

    /// The name of a label inside the trampoline called `name`: that of the profile, for a trampoline under the profile's
    /// name; else the trampoline's and a suffix. The name comes in parts, so that none must be allocated.
    pub fn label<'n>(&self, label: KernelLabel, name: &'n str, kind: Kind) -> [&'n str; 3] {
        Offer::label(self.offer(name, kind), label, name)
    }
}

impl Offer {
    /// See [`Convention::label`].
    pub(crate) fn label<'n>(offer: Option<&Offer>, label: KernelLabel, name: &'n str) -> [&'n str; 3] {
        let named = offer.and_then(|t| t.labels.iter().find(|(l, _)| *l == label));
        match named {
            Some((_, symbol)) => [symbol, "", ""],
            None => [name, label.suffix(), label.number()],
        }
    }
}

/// The keys of the trampolines in a profile.
pub const KINDS: [(&str, Kind); 7] = [
    ("stub", Kind::Stub),
    ("stub-graph", Kind::StubGraph),
    ("stub-direct", Kind::StubDirect),
    ("args", Kind::Entry(Regs::Args)),
    ("regs", Kind::Entry(Regs::All)),
    ("return", Kind::Return),
    ("rethook", Kind::Rethook),
];
