//! One architecture under one set of choices: everything that planning and lowering may depend on.

use std::borrow::Cow;

use crate::abi::{Abi, Reg, Site};
use crate::error::{Error, Result};
use crate::frame::{Content, FrameLayout};
use crate::live::Live;
use crate::option::{Choices, OptionInfo};
use crate::spec::{Around, Direct, Form, Kind, Programs, Regs};
use crate::step::Inner;

/// The profiles that can be named.
pub const PROFILES: &[&str] = &["linux-6.12"];

/// What is true of an architecture under every choice.
#[derive(Debug)]
pub struct Facts {
    /// The name in files and reports.
    pub name: &'static str,
    /// Other names that people use: the kernel's, uname's, LLVM's.
    pub aliases: &'static [&'static str],
    /// `e_machine`.
    pub machine: u16,
    /// What the bits of `e_flags` are.
    pub e_flags: EFlags,
    /// What starts a comment in GNU as.
    pub comment: &'static str,
    /// What marks a symbol as a function for GNU as: `@function` or `%function`.
    pub function_type: &'static str,
    /// What marks the note section's type for GNU as.
    pub progbits: &'static str,
    /// What stands before a register's name in GNU as.
    pub reg_prefix: &'static str,
    /// The GNU assembler for this architecture, as Debian calls it.
    pub assembler: &'static str,
    /// Bytes to which a trampoline's start is aligned.
    pub align: u32,
    /// What fills the space before an aligned start, as GNU as has it, and the operand that asks for it.
    pub fill: (&'static [u8], &'static str),
    /// GNU as fills a code section up to its alignment.
    pub fill_end: bool,
    /// The options that it offers.
    pub options: &'static [OptionInfo],
    /// Registers and conventions.
    pub abi: Abi,
    /// How a patched site arrives.
    pub site: Site,
    /// What the patched site executed, for the contract's text.
    pub site_text: &'static str,
    /// How the exit trampoline is entered, for the contract's text.
    pub exit_text: &'static str,
    /// Returns of the exit trampoline without a call on the return-address stack: 1 where only a return may go to an
    /// address without a landing pad, and the redirected return has used up the call.
    pub exit_unpaired: u32,
    /// Returns that are predicted wrong when a return is redirected to the exit trampoline: the traced function's own, and
    /// that to the parent, unless it is a jump.
    pub exit_mispredicted: u32,
    /// Flag registers that a full save keeps; empty where the architecture has none.
    pub flags: &'static str,
    /// The global inner labels that the kernel C code of this architecture knows.
    pub inner: &'static [Inner],
    /// The prefix of the psABI's names of relocation types, and the names of those that are known here.
    pub relocations: (&'static str, &'static [(u32, &'static str)]),
    /// Relocations of shared libraries: the address of a symbol, of a place in the library, of a symbol
    /// for the global offset table, of a function for the linkage table.
    pub dynamic: [u32; 4],
    /// The symbol that marks code for disassemblers; empty if the psABI has none.
    pub mapping: &'static str,
    /// Relocations for lengths in unwind tables, where the linker may change them.
    pub lengths: Option<&'static LengthRelocs>,
    /// What a kernel's configuration says of it.
    pub kernel: Kernel,
    /// DWARF: the code alignment factor, data alignment factor and version of a CIE as GNU as writes it.
    pub cie: Cie,
}

/// What a linker must know of `e_flags`.
#[derive(Debug)]
pub struct EFlags {
    /// Bits that say what code uses: of objects that are linked they add up. In all others objects must agree.
    pub adds_up: u32,
    /// What the others say, in words.
    pub words: fn(u32) -> String,
    /// What makes objects agree.
    pub remedy: &'static str,
}

impl EFlags {
    /// The psABI gives none a meaning.
    pub const NONE: EFlags = EFlags {
        adds_up: 0,
        words: |e_flags| format!("e_flags {e_flags:#x}"),
        remedy: "the psABI knows no such flags; compile both for this architecture",
    };
}

impl Facts {
    /// The psABI's name of a relocation type.
    pub fn relocation(&self, r_type: u32) -> Option<String> {
        let (prefix, names) = self.relocations;
        names.iter().find(|(t, _)| *t == r_type).map(|(_, name)| format!("{prefix}{name}"))
    }
}

/// Options of a kernel's configuration, without `CONFIG_`.
#[derive(Debug)]
pub struct Kernel {
    /// What is set for this architecture and no other.
    pub arch: &'static str,
    /// What must be set, and what it is for.
    pub needs: &'static [(&'static str, &'static str)],
    /// Its asm-offsets.h has all the numbers of `ftrace_caller`; else it has none.
    pub numbers: bool,
    /// Relocations of objtool's annotations, where that checks objects: an address, a distance, both of 32 bits.
    pub objtool: Option<(u32, u32)>,
    /// What must not be set, and why.
    pub refuses: &'static [(&'static str, &'static str)],
    /// What changes nothing here, and what that means.
    pub ignores: &'static [(&'static str, &'static str)],
}

/// Relocation types for lengths that the linker may change (RISC-V): (add or set, subtract).
#[derive(Debug)]
pub struct LengthRelocs {
    /// For the 32-bit length of an FDE.
    pub range: (u32, u32),
    /// For advances of 6, 8 and 16 bits.
    pub advance: [(u32, u32); 3],
}

/// The parts of a CIE that GNU as fixes for each architecture.
#[derive(Debug)]
pub struct Cie {
    /// Version number.
    pub version: u8,
    /// The return address column of a C function.
    pub column: u16,
    /// Code alignment factor.
    pub code_align: u8,
    /// Data alignment factor.
    pub data_align: i8,
    /// The rules before the first instruction, as encoded bytes: CFA, and return address where a call pushes it.
    pub initial: &'static [u8],
    /// CFA minus SP at a function's entry.
    pub cfa_offset: i32,
    /// Relocation type of an FDE's start.
    pub pcrel32: u32,
}

/// Where a free register for testing the direct-call cell is found on the way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectTest {
    /// Before the restores, in an argument register; each path restores by itself.
    BeforeRestore,
    /// After the restores, before pc and parent_ip go to the registers that this way out wants.
    BeforeSite,
    /// After the frame is gone.
    AfterFree,
}

/// A number that depends on the kernel's configuration, under the name that the assembly text gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// The symbol.
    pub symbol: &'static str,
    /// The value, in bytes.
    pub value: i32,
}

/// An architecture with its options and profile resolved.
#[derive(Clone, Debug)]
pub struct Target {
    /// The architecture.
    pub facts: &'static Facts,
    /// The options chosen.
    pub choices: Choices,
    /// The kernel profile.
    pub profile: &'static str,
    /// Directives that a `.S` begins with.
    pub prologue: Vec<String>,
    /// `e_flags`.
    pub e_flags: u32,
    /// `.riscv.attributes` or the like: section name, type and bytes.
    pub attributes: Option<(&'static str, u32, Vec<u8>)>,
    /// Trampolines that something may branch to indirectly begin with a landing pad.
    pub landing_pad: bool,
    /// `op` comes from the literal before the traced function, and may carry a direct-call target.
    pub op_from_site: bool,
    /// `ftrace_regs_caller` pushes the flags before its frame.
    pub pushes_flags: bool,
    /// It gives them back.
    pub restores_flags: bool,
    /// The stack is realigned around the callback to this many bytes, whatever the site had.
    pub realign: Option<u32>,
    /// The frame pointer during a full save is the address of pt_regs with bit 0 set.
    pub marks_regs: bool,
    /// Where the direct-call cell is tested.
    pub direct_test: DirectTest,
    /// The way to a direct trampoline uses up this register.
    pub direct_jump: Option<Reg>,
    /// The alignment of SP that a callback may rely on, if the site's own stack was aligned for the kernel.
    pub stack_align: u32,
    /// Bytes from a function's start to behind its site, as compilers lay it out for such a kernel.
    pub resume: i32,
    /// The kernel's objtool is told what it must know ([`crate::objtool`]).
    pub objtool: bool,
    /// Bytes before each function, as many as its alignment or none.
    pub padding: &'static [u8],
    /// Objects have an `.eh_frame`. Kernels have none, and their linkers warn of one.
    pub unwind_tables: bool,
    /// Numbers of the profile.
    pub numbers: Vec<Number>,
    /// Frame of `ftrace_caller`.
    pub args_frame: FrameLayout,
    /// Frame of `ftrace_regs_caller`.
    pub all_frame: FrameLayout,
    /// Frame of `return_to_handler`.
    pub exit_frame: FrameLayout,
    /// Frames of direct-call trampolines, by number of argument registers.
    pub direct_frames: Vec<FrameLayout>,
    /// The frame of a direct-call trampoline for a function whose prototype is known.
    pub tailored_frame: fn(&Live, Choices) -> FrameLayout,
    /// Frames of paired trampolines that keep no `struct ftrace_regs`, by number of argument registers.
    pub around_frames: Vec<FrameLayout>,
    /// Frame of a paired trampoline with `struct ftrace_regs`.
    pub around_fregs: FrameLayout,
    /// Frame of a paired trampoline that leaves nothing on the stack; `None` where the stack has to be realigned, which
    /// takes a frame pointer that lasts.
    pub around_shadow: Option<FrameLayout>,
    /// The frame of a trampoline that calls programs.
    pub programs_frame: fn(&Programs) -> FrameLayout,
    /// The frame of a trampoline without one.
    pub no_frame: FrameLayout,
}

impl Target {
    /// The frame of this kind of trampoline.
    pub fn frame(&self, kind: Kind) -> Result<Cow<'_, FrameLayout>> {
        match kind {
            Kind::Programs(programs) => return Ok(Cow::Owned((self.programs_frame)(&programs))),
            Kind::Direct(Direct { live: Some(live), .. }) => {
                return Ok(Cow::Owned((self.tailored_frame)(&live, self.choices)));
            }
            _ => {}
        }
        Ok(Cow::Borrowed(match kind {
            Kind::Stub | Kind::StubGraph | Kind::StubDirect | Kind::Programs(_) => &self.no_frame,
            Kind::Entry(Regs::Args) => &self.args_frame,
            Kind::Entry(Regs::All) => &self.all_frame,
            Kind::Return => &self.exit_frame,
            Kind::Around(Around { form: Form::Fregs, .. }) => &self.around_fregs,
            Kind::Around(Around { form: Form::Shadow, .. }) => self.around_shadow.as_ref().ok_or_else(|| {
                Error::new(format!(
                    "around --form shadow on {}: no frame pointer lasts by which the stack could be realigned; valid: with \
                     the default of stack-align, or --form fregs",
                    self.facts.name
                ))
            })?,
            Kind::Around(Around { form: Form::Frame, args }) => {
                self.around_frames.get(usize::from(args)).ok_or_else(|| {
                    Error::new(format!(
                        "around on {}: {args} argument registers asked for; valid: 0 to {}",
                        self.facts.name,
                        self.facts.abi.args.len()
                    ))
                })?
            }
            Kind::Direct(d) => {
                let room = self.facts.abi.args.len() as u8;
                let most = room - d.ip as u8;
                if d.args > most {
                    let what = if d.ip { "argument registers beside --ip" } else { "argument registers" };
                    return Err(Error::new(format!(
                        "direct on {}: {} {what} asked for; valid: 0 to {most}",
                        self.facts.name, d.args
                    )));
                }
                &self.direct_frames[d.args as usize]
            }
        }))
    }

    /// The value of a number of the profile.
    pub fn number(&self, symbol: &str) -> i32 {
        self.numbers.iter().find(|n| n.symbol == symbol).map_or(0, |n| n.value)
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
        Err(Error::unknown(&format!("number of profile {}", self.profile), symbol, self.symbols()))
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
        let frames = [&self.args_frame, &self.all_frame, &self.exit_frame, &self.around_fregs];
        frames.into_iter().chain(&self.around_shadow)
    }

    fn struct_frames_mut(&mut self) -> impl Iterator<Item = &mut FrameLayout> {
        let frames = [&mut self.args_frame, &mut self.all_frame, &mut self.exit_frame, &mut self.around_fregs];
        frames.into_iter().chain(&mut self.around_shadow)
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
