//! The text of a profile, as `serde` reads it and as the JSON schema describes it. Everything may come from the profile that
//! another one extends, so nothing is required here; [`crate::read`] asks for what must be there.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// What a kernel version, another tracer, or no kernel at all decides. See docs/adding-a-profile.md.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(title = "tramptool profile")]
pub(crate) struct ProfileIn {
    /// The name for `--profile`.
    pub name: Option<String>,
    /// What it is, in a sentence.
    pub about: Option<String>,
    /// A profile whose entries hold where this one has none. Tables are merged, everything else is replaced.
    pub extends: Option<String>,
    /// Versions of Linux that it speaks for, as `6.12`; none for a tracer of its own.
    pub kernels: Vec<String>,
    /// What entry trampolines call.
    pub callback: CallbackIn,
    /// The C function that the exit trampoline calls with the address of its frame.
    pub exit_handler: Option<String>,
    /// That which the trampoline of kretprobes calls.
    pub rethook_handler: Option<String>,
    /// The trampolines that exist under names of their own: `stub`, `stub-graph`, `stub-direct`, `args`, `regs`, `return`, and
    /// `rethook` on architectures with a frame for it.
    pub trampoline: BTreeMap<String, OfferIn>,
    /// What depends on the architecture, by its name in `tramptool list`.
    pub arch: BTreeMap<String, ArchIn>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct CallbackIn {
    /// The symbol that is called until a tracer puts its own function there.
    pub symbol: Option<String>,
    /// Its arguments, in order: `ip`, `parent-ip`, `op`, `fregs`.
    pub arguments: Vec<String>,
    /// The variable with the `ftrace_ops`, for the argument `op`.
    pub op: Option<String>,
    /// What the text calls the function, its `ip`, `parent_ip`, `op` and `fregs`.
    pub prototype: Option<String>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct OfferIn {
    /// Its symbol.
    pub symbol: Option<String>,
    /// Labels inside it with names of their own: `op-ptr`, `call`, `jmp`, `end`. Others are the symbol and a suffix.
    pub labels: BTreeMap<String, String>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct ArchIn {
    /// Why the profile does not offer the architecture, though one that it extends does: nothing else here counts then. Offered
    /// if it is empty.
    pub refused: Option<String>,
    /// Trampolines, as in `trampoline`, that begin with no landing pad where others do: sites reach them by direct branches, and
    /// nothing else branches there.
    pub no_landing_pad: Vec<String>,
    /// The labels that the tracer's C code knows: `op-ptr`, `call`, `jmp`, `end`; of trampolines that call programs,
    /// `after-call` and `epilogue`, between which they can be cut short, or `skip` and `skipped` around each program.
    pub labels: Vec<String>,
    /// The variable that points to the function which entry trampolines call, where nothing inside them is patched.
    pub calls_through: Option<String>,
    /// How a patched site arrives, and how it is written.
    pub site: SiteIn,
    /// How returns are hooked.
    pub exit: ExitIn,
    /// What programs that are attached to functions can be.
    pub programs: ProgramsIn,
    /// How the tracer makes a copy of an entry trampoline for each `ftrace_ops`; without it, it makes none.
    pub copies: Option<CopiesIn>,
    /// How the list of alternatives is laid out, from which a kernel replaces instructions when it boots; without it, nobody
    /// says.
    pub alternatives: Option<AlternativesIn>,
    /// Where there are frame records, the frame pointer of a full save is the frame's address with bit 0 set.
    pub marks_regs: bool,
    /// The form in which objtool writes `.orc_unwind`, by the kernel that had it first, as `6.12`: for objects without
    /// `.orc_header` whose entries do not show it.
    pub orc: Option<String>,
    /// The register by which trampolines that record find what is the thread's: `fs`, `tpidr_el0`, `tpidr_el1` or `tp`.
    /// Without it, there are none.
    pub thread: Option<String>,
    /// The variable that `record --clock word` takes the time from.
    pub clock: Option<String>,
    /// Numbers that the code needs, by what they are: `op-func` and `op-direct-call`, offsets in what `op` points to;
    /// `record-cursor`, `record-limit` and `record-count`, offsets from the thread pointer to words for `record`; `record-full`, the
    /// number of the bit of a record's address that says that there is no room for it, for `record --refill`. The name that
    /// the text gives one, and its usual value.
    pub numbers: BTreeMap<String, (String, i32)>,
    /// What a kernel's configuration means.
    pub kernel: Option<KernelIn>,
    /// The architecture's options that exist here. An option without an entry keeps its first value.
    pub option: BTreeMap<String, OptionIn>,
    /// The frames that callbacks get a pointer to: `args`, `regs`, `exit`, `around-fregs`, `around-shadow`.
    pub frame: BTreeMap<String, FrameIn>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct SiteIn {
    /// How a trampoline is reached, for the contract's text.
    pub arrives: Option<String>,
    /// Where the address behind the site is: a register, or `sp+N`.
    pub pc: Option<String>,
    /// Where the return address of the traced function is: a register, or `sp+N`.
    pub parent_ip: Option<String>,
    /// Bytes that the site's call pushed.
    pub pushed: i32,
    /// `pc` minus the address that a callback gets as `ip`.
    pub ip_offset: Option<i32>,
    /// Registers that the site itself overwrites or that are free at a function's entry.
    pub scratch: Vec<String>,
    /// Registers besides those for arguments that may be live at a function's entry: what is made for one function keeps
    /// them.
    pub live: Vec<String>,
    /// The registers that return the traced function into itself and to its parent when a trampoline resumes it, where
    /// they are not those of entry.
    pub resume: Vec<String>,
    /// Registers that even a full save cannot give back: they carry the function there.
    pub lost: Vec<String>,
    /// The register that holds a direct trampoline's address on the way there.
    pub direct: Option<String>,
    /// Bit 0 of a direct trampoline's address says that the site jumps there, and does not call.
    pub direct_jumps: bool,
    /// How far a trampoline may be from the site, in bytes either way.
    pub reach: Option<i64>,
    /// Why no CPU may be between two instructions of a site while it is patched; without it, or if it is empty, one
    /// may.
    pub between: Option<String>,
    /// Where the word with the `ftrace_ops` is, if functions have one before their entry.
    pub op_literal: Option<LiteralIn>,
    /// Bytes from the address that the compiler's list of sites means to the one that the tracer records.
    pub recorded: u64,
    /// A trampoline that is further than so many bytes from the entry trampoline is reached through that one, which finds its
    /// address in the `ftrace_ops`.
    pub near: Option<u64>,
    /// The writes that the tracer makes once, before all others, in order.
    pub initial: Vec<WriteIn>,
    /// The writes that switch tracing off, in order.
    pub disabled: Vec<WriteIn>,
    /// The writes that make the site call a trampoline, in order.
    pub call: Vec<WriteIn>,
    /// The writes that make the site jump to a trampoline, in order.
    pub jump: Vec<WriteIn>,
    /// A breakpoint, where the tracer puts one at the site while it writes the rest: an instruction, as in writes.
    pub breakpoint: Option<String>,
}

/// A word before a function's entry: at the multiple of `align` at or below `ip - before`.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiteralIn {
    pub before: u64,
    pub align: u64,
}

/// One write to a site: instructions, a branch to the trampoline, or the literal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct WriteIn {
    /// Bytes from `ip`.
    #[serde(default)]
    pub at: i64,
    /// These instructions, by the names that the architecture has for those that are written at sites.
    #[serde(default)]
    pub insns: Vec<String>,
    /// `call` or `jump`.
    pub branch: Option<String>,
    /// Of a branch of two instructions only one: the `first`, towards the entry trampoline, or the `second`, with which it goes
    /// to the trampoline.
    pub half: Option<String>,
    /// The address of the `ftrace_ops`, at `op-literal`.
    #[serde(default)]
    pub op: bool,
    /// The address of the `ftrace_ops` of this name there: one that does nothing, for `disabled`. Where there is none of that
    /// name, the word stays as it is.
    pub nop_op: Option<String>,
}

/// The copy of an entry trampoline: its code up to the label `end`, with the load at the label `op-ptr` aimed at a word
/// behind the copy, where the address of the `ftrace_ops` is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CopiesIn {
    /// What becomes of the instruction at the label `jmp`, where the copy has it.
    pub jmp: Option<ReplaceIn>,
    /// The instructions behind the copied code, before the word.
    pub end: Vec<String>,
}

/// An entry of `.altinstructions`: where instructions are replaced and by which, four bytes each, and then more.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AlternativesIn {
    /// Bytes of an entry.
    pub size: usize,
    /// Where it says how many bytes are replaced.
    pub length: EntryFieldIn,
    /// Where it says by how many.
    pub replacement_length: EntryFieldIn,
    /// Where it says that the kernel computes what it writes.
    pub special: Option<SpecialIn>,
}

/// A number in an entry: 1 or 2 bytes at an offset.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryFieldIn {
    pub at: usize,
    pub bytes: usize,
}

/// Bits in an entry: those in `mask`, of a number of 1 or 2 bytes at an offset.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecialIn {
    pub at: usize,
    pub bytes: usize,
    pub mask: usize,
}

/// An instruction, by how it begins, and those that take its place.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplaceIn {
    pub was: String,
    pub becomes: Vec<String>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExitIn {
    /// How the exit trampoline is entered, for the contract's text.
    pub arrives: Option<String>,
    /// Returns in the exit trampoline that have no call on the return-address stack.
    pub unpaired: u32,
    /// Returns that the return-address stack predicts wrong.
    pub mispredicted: u32,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct ProgramsIn {
    /// The most for one function, where a session counts as two; without it, 38.
    pub most: Option<usize>,
    /// One can be a session. The word before a context's first then says more than how many there are.
    pub sessions: bool,
    /// How a BPF program that is the traced function knows how many tail calls were made.
    pub tail_call: Option<TailCallIn>,
    /// How the kernel's own trampolines call them, where it is not how ours do.
    pub written: WrittenIn,
}

/// The trampolines that a kernel writes for programs.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct WrittenIn {
    /// Callee-saved registers that are theirs while the traced function runs.
    pub own: Vec<String>,
    /// What SP of the traced function is a multiple of, in bytes, against its caller's; without it, what the psABI says.
    pub function_align: Option<u32>,
    /// They go to the traced function by a return.
    pub function_by_return: bool,
}

/// How a BPF program knows how many tail calls were made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TailCallIn {
    /// The register that says it, or where it stands.
    pub register: String,
    /// The program gives it back with its own calls counted.
    #[serde(default)]
    pub returned: bool,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct KernelIn {
    /// The option, without `CONFIG_`, that is set for this architecture and no other.
    pub symbol: Option<String>,
    /// Its `asm-offsets.h` has all the numbers of the entry trampoline.
    pub numbers: bool,
    /// The option, without `CONFIG_`, that lets modules register direct-call trampolines.
    pub direct_calls: Option<String>,
    /// How objtool wants to be told what it cannot see, if it checks objects.
    pub objtool: Option<ObjtoolIn>,
    /// The files of the kernel that this table and those beside it were written from: what to compare with another kernel's.
    pub sources: Vec<String>,
    /// What must be set, and what it is for.
    pub needs: Vec<(String, String)>,
    /// What must not be set, and why.
    pub refuses: Vec<(String, String)>,
    /// What changes nothing here, and what that means.
    pub ignores: Vec<(String, String)>,
}

/// Numbers of objtool (include/linux/objtool_types.h, arch/x86/include/asm/orc_types.h).
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ObjtoolIn {
    /// `ORC_REG_SP`.
    pub sp: u8,
    /// `ANNOTYPE_NOENDBR` and `ANNOTYPE_INTRA_FUNCTION_CALL` in `.discard.annotate_insn`; without them, each has a section of
    /// its own.
    pub types: Option<[u32; 2]>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OptionIn {
    /// The value without `--set`; without it, the option's first.
    pub default: Option<String>,
    /// No other value can be chosen.
    pub fixed: bool,
    /// The first value whose options, without `CONFIG_`, are all set is what a configuration means.
    pub config: Vec<ConfigIn>,
    /// The first value of whose flags a compiler is given one is what those flags mean. `-fcf-protection` is any flag of that name, and
    /// `-mbranch-protection=pac-ret` one with that among the parts of its value, which `+` joins.
    pub cflags: Vec<CflagsIn>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CflagsIn {
    /// The option's value.
    pub value: String,
    /// Flags of which one is given.
    pub flags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigIn {
    /// The option's value.
    pub value: String,
    /// What must be set for it.
    #[serde(default)]
    pub set: Vec<String>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct FrameIn {
    /// The C name of the structure.
    pub r#struct: Option<String>,
    /// `sizeof`, in bytes.
    pub size: Option<i32>,
    /// Bytes on the stack; without it, `size`.
    pub stack: Option<i32>,
    /// The name of the size in the text.
    pub size_symbol: Option<String>,
    /// Its slots, in the order in which they are saved.
    pub field: Vec<FieldIn>,
    /// Members that hold result registers when the function has returned.
    pub results: BTreeMap<String, String>,
    /// Frame records, the caller's first.
    pub record: Vec<RecordIn>,
    /// What other values of options change.
    pub when: Vec<WhenIn>,
}

/// Eight bytes of a frame.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FieldIn {
    /// The name in the text.
    pub symbol: String,
    /// The C name; without it, the slot lies outside the structure.
    #[serde(default)]
    pub member: String,
    /// Bytes above SP: a multiple of 8.
    pub offset: i32,
    /// As in contracts: a register, `pc`, `parent-ip`, `site-sp`, `exit-sp`, `flags`, `direct`, `0x...`, `nothing`.
    pub holds: String,
    /// What becomes of a store by the callback.
    #[serde(default)]
    pub stores: StoresIn,
}

/// What becomes of a store by the callback.
#[derive(Deserialize, JsonSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoresIn {
    /// The register, the next hop or the return address is what was stored.
    TakeEffect,
    /// It is lost.
    #[default]
    AreIgnored,
    /// No callback knows the slot, which is outside the structure. The trampoline reloads it.
    CannotHappen,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordIn {
    /// The name of its offset in the text.
    pub symbol: String,
    /// Bytes above SP.
    pub offset: i32,
    /// The return address in it: `pc` or `parent-ip`.
    pub returns: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhenIn {
    /// The option of the architecture.
    pub option: String,
    /// Its value.
    pub value: String,
    /// Other options with their values, which must hold too.
    #[serde(default)]
    pub and: BTreeMap<String, String>,
    /// The trampoline does not exist then.
    #[serde(default)]
    pub absent: bool,
    /// Another size of the structure.
    pub size: Option<i32>,
    /// Another size on the stack.
    pub stack: Option<i32>,
    /// Slots that hold something else, by their symbol, or come on top.
    #[serde(default)]
    pub field: Vec<FieldIn>,
    /// Other frame records.
    pub record: Option<Vec<RecordIn>>,
}
