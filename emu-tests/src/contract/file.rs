//! Contracts in files: what may stand in them. `docs/contracts.md` describes the format.

use std::collections::BTreeMap;

use codegen::ask::spec::{Attach, Form};
use codegen::words::error::{Error, Result};
use codegen::words::step::ExitPath;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;
use toml::Spanned;

use crate::contract::config::{Condition, Configuration, Switch};
use crate::contract::nul::nul;
use crate::contract::places::Places;

/// What trampolines that others wrote promise. See docs/contracts.md.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "tramptool contract")]
pub(crate) struct FileIn {
    /// The architecture by its name in `tramptool list`.
    #[schemars(with = "String")]
    pub(crate) arch: Spanned<String>,
    /// The profile under which they are judged, by its name in `tramptool list`, or as a file; `linux-7.3` where none is
    /// named.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) profile: Option<Spanned<String>>,
    /// What this is the contract of, in a sentence.
    #[serde(rename = "about")]
    _about: String,
    /// The objects, as a kernel's build tree has them, from its root.
    #[serde(default, rename = "objects")]
    _objects: Vec<String>,
    /// The options of a kernel's configuration with which the objects are as this says; `!` before one that is not set. By them
    /// `--kernel-build` chooses among contracts.
    #[serde(default, rename = "config")]
    #[schemars(with = "Vec<String>")]
    _config: Vec<Condition>,
    /// The trampolines are of several objects, of which one may be given without the others: what the given ones do not have is
    /// told, and not judged. Without it, all trampolines must be there.
    #[serde(default)]
    pub(crate) several_objects: bool,
    /// In a dump: the addresses, as `0x...`, of symbols outside of it. Others are called by their address.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) addresses: BTreeMap<String, Spanned<String>>,
    /// Where the trampolines find what they need in `struct ftrace_ops`.
    pub(crate) ftrace_ops: Option<OpsIn>,
    /// Layouts of what callbacks are given a pointer to, by name.
    #[serde(default)]
    pub(crate) frame: BTreeMap<String, FrameIn>,
    /// The trampolines, in the order of the report.
    pub(crate) trampoline: Vec<TrampolineIn>,
}

/// Offsets of members of `struct ftrace_ops`, in bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpsIn {
    /// `ops->func`.
    pub(crate) func: u64,
    /// `ops->direct_call`.
    pub(crate) direct_call: u64,
}

/// A structure on the stack.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FrameIn {
    /// The C name.
    pub(crate) r#struct: String,
    /// `sizeof`, in bytes.
    #[schemars(with = "i32")]
    pub(crate) size: Spanned<i32>,
    /// The fields that a callback may rely on.
    pub(crate) field: Vec<FieldIn>,
}

/// A field of the structure, of eight bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FieldIn {
    /// The C name.
    pub(crate) member: String,
    /// `offsetof`, in bytes: a multiple of 8.
    #[schemars(with = "i32")]
    pub(crate) offset: Spanned<i32>,
    /// A register, `pc` (the ip that ftrace reports), `parent-ip`, `site-sp` (SP before the site was executed), `exit-sp`
    /// (SP when the function has returned), `flags`, `direct` (where to go on, 0 for the function), a number as `0x...`, or
    /// `nothing` (a word that must not be relied on). `closure`: also a vector register, whose low 8 bytes it is.
    #[schemars(with = "String")]
    pub(crate) holds: Spanned<String>,
    /// What becomes of a store by the callback.
    #[serde(default)]
    pub(crate) stores: Stores,
    /// `around`: the result register that it holds for the exit handler, whose stores to it take effect.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) result: Option<Spanned<String>>,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stores {
    /// The register, the next hop or the return address is what was stored.
    TakeEffect,
    /// It is lost.
    #[default]
    AreIgnored,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TrampolineIn {
    /// The file that has it, where several files define the same symbol: each such file is judged by itself.
    #[serde(default)]
    pub(crate) object: Option<String>,
    /// Where it begins.
    pub(crate) symbol: String,
    /// How it is entered and left.
    pub(crate) kind: KindIn,
    /// `direct`: how many argument registers the traced function has. `around` with the form `frame`: how many are kept and
    /// passed on. `record`: of an entry. `syscall`: how many the system call has.
    #[serde(default)]
    #[schemars(with = "Option<u8>")]
    pub(crate) args: Option<Spanned<u8>>,
    /// `direct`: the called function is given the address of the traced one, before the arguments.
    #[serde(default)]
    pub(crate) ip: bool,
    /// `direct`: the site jumps to it, and it jumps to `function`. Without it the site calls, and it returns there.
    #[serde(default)]
    pub(crate) jump: bool,
    /// `direct`, `programs`: what is live when the traced function is entered, where its prototype is known. What is called
    /// finds all of it.
    #[serde(default)]
    #[schemars(with = "Option<LiveIn>")]
    pub(crate) live: Option<Spanned<LiveIn>>,
    /// `direct`, `programs`: what is called is known to leave vector registers alone, so that they need not be saved.
    #[serde(default)]
    pub(crate) general_handlers: bool,
    /// `record`: `count`, `entry` or `both`.
    #[schemars(with = "Option<String>")]
    pub(crate) events: Option<Spanned<String>>,
    /// `record`: `none`, `tsc`, `stamp8` or `word`; without it, `none`.
    #[schemars(with = "Option<String>")]
    pub(crate) clock: Option<Spanned<String>>,
    /// `record`: the number of the function in its records; without it, 0.
    #[schemars(with = "Option<u32>")]
    pub(crate) id: Option<Spanned<u32>>,
    /// `record`: the record of a return has the first result register.
    #[serde(default)]
    pub(crate) with_result: bool,
    /// `record`: one slot is taken at the entry for both records of a call.
    #[serde(default)]
    pub(crate) pair: bool,
    /// `record`: registers that C functions may overwrite are kept too, at the entry and at the return.
    #[serde(default)]
    pub(crate) every_register: bool,
    /// `record`: the thread-local variable that has the thread's words, at the profile's numbers `tls-cursor` and so on.
    #[schemars(with = "Option<String>")]
    pub(crate) tls: Option<Spanned<String>>,
    /// `record`: an exception that leaves the function is recorded.
    #[serde(default)]
    pub(crate) unwind: bool,
    /// `around`: what is kept beside the function while it runs, and what the handlers get. `record`: `frame`, or `shadow` where the
    /// return address is on a shadow stack of the thread and nothing on the function's.
    #[serde(default)]
    #[schemars(with = "Option<FormIn>")]
    pub(crate) form: Option<Spanned<FormIn>>,
    /// `programs`: the words of the function's arguments as the context has them, each a register or `stack+0`, `stack+8` ...; or
    /// `{ at, bytes }` where an argument has fewer than 8 bytes and the trampoline may change the others.
    #[serde(default)]
    #[schemars(with = "Option<Vec<WordIn>>")]
    pub(crate) words: Option<Spanned<Vec<Spanned<WordIn>>>>,
    /// `programs`: where the function's result is.
    #[serde(default)]
    #[schemars(with = "Option<LiveIn>")]
    pub(crate) result: Option<Spanned<LiveIn>>,
    /// `programs`: whom it calls, in the order of each kind.
    #[serde(default)]
    #[schemars(with = "Option<Vec<ProgramIn>>")]
    pub(crate) programs: Option<Spanned<Vec<ProgramIn>>>,
    /// `programs`: `CALL_ORIG` (the function is called from here), `SKIP_FRAME` (the site calls, and what it pushed is
    /// dropped), `IP_ARG` (the function's ip is in the context), `RESTORE_REGS` (the function is not called), `TAIL_CALL_CTX` (the
    /// function counts tail calls), `INDIRECT` (there is no other function), `RET_FENTRY_RET` (the program's result is returned),
    /// `ORIG_STACK` (the function is called where the site's call would return to).
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) flags: Option<Spanned<Vec<Spanned<String>>>>,
    /// `programs`, with `CALL_ORIG`: the functions that are called around all programs and the traced function.
    #[serde(default)]
    #[schemars(with = "Option<BracketIn>")]
    pub(crate) around: Option<Spanned<BracketIn>>,
    /// `programs`, with `CALL_ORIG`: callee-saved registers that are the trampoline's own while the traced function runs.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) holds_own: Vec<Spanned<String>>,
    /// `programs`, with `CALL_ORIG`: what SP of the traced function is a multiple of against its caller's, in bytes; without it,
    /// what the psABI says.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pub(crate) function_align: Option<Spanned<u32>>,
    /// `programs`, with `CALL_ORIG`: the function is gone to by a return, so that its own return belongs to no call.
    #[serde(default)]
    pub(crate) function_by_return: bool,
    /// `programs`: some of those before and after the function are sessions without a word of their own, each told as `fentry` and as
    /// `fexit`. After the function, bit 63 of the word before the context is set; before it, the result is 0.
    #[serde(default)]
    pub(crate) wordless_sessions: bool,
    /// `programs`, with `INDIRECT`: which type the result has, and where a program leaves it.
    #[serde(default)]
    #[schemars(with = "Option<ProgramResultIn>")]
    pub(crate) program_result: Option<Spanned<ProgramResultIn>>,
    /// `programs`, with `IP_ARG`: the ip is the address of `function`, as Linux has it, and not that of its site.
    #[serde(default)]
    pub(crate) ip_is_start: bool,
    /// `programs`: addresses in a dump, by the name that an object has for them behind the trampoline's: `skip_0`, `skipped_0`,
    /// `after_call`, `epilogue`.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// The traced function, where it is called or jumped to from here: the symbol by which the object refers to it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) function: Option<Spanned<String>>,
    /// Bytes from that function's start to behind its site, where it is called or jumped to. `sled`: from behind the call that reached the
    /// trampoline to where it goes on; 0 where nothing is said.
    #[serde(default)]
    #[schemars(with = "Option<i32>")]
    pub(crate) resume: Option<Spanned<i32>>,
    /// The return address comes signed for the stack pointer at the site, where the function is called or jumped to: it gets it as it
    /// was before.
    #[serde(default)]
    pub(crate) signed: bool,
    /// `around`: the C function that is called when the function has returned.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) exit: Option<Spanned<String>>,
    /// A call instruction that the kernel patches when tracing is switched on: the symbol of its address. Several, where the
    /// callback is called as often.
    #[serde(default)]
    pub(crate) slot: Option<SlotIn>,
    /// The C function that it calls. `record`: the routine that it calls where the buffer has no room; without it, what finds none
    /// is dropped.
    #[serde(default)]
    pub(crate) calls: String,
    /// The variable in which it finds that function's address: it is put there before anything runs. Two, where it calls by
    /// the first that is not NULL.
    #[serde(default)]
    #[schemars(with = "Option<ThroughIn>")]
    pub(crate) calls_through: Option<Spanned<ThroughIn>>,
    /// All of these may be NULL. Then it calls nothing.
    #[serde(default)]
    pub(crate) may_be_null: bool,
    /// What the function is given that it calls, in the order of its parameters, where the kind and the profile do not say it,
    /// or not rightly.
    #[serde(default)]
    #[schemars(with = "Option<Vec<ArgumentIn>>")]
    pub(crate) arguments: Option<Spanned<Vec<Spanned<ArgumentIn>>>>,
    /// What is known of the place from which it is reached.
    #[serde(default)]
    #[schemars(with = "Option<SiteIn>")]
    pub(crate) site: Option<Spanned<SiteIn>>,
    /// `sled`: where it goes on.
    #[serde(default)]
    #[schemars(with = "Option<GoesToIn>")]
    pub(crate) goes_to: Option<Spanned<GoesToIn>>,
    /// `sled`, `closure`, `callback`, `syscall`: what registers hold when it goes on, each a sum as an argument; `result` is what the
    /// function returned that it calls. Of boundaries, also the low 8 bytes of vector registers, and words as `[block+8]`,
    /// `[other-stack-8]` or `[&symbol]`; and `call1.rax` is what that function left in a register.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArgumentIn>")]
    pub(crate) gives: BTreeMap<String, Spanned<ArgumentIn>>,
    /// `displaced`: the instructions, and where their copies are.
    #[serde(default)]
    #[schemars(with = "Option<DisplacedIn>")]
    pub(crate) displaced: Option<Spanned<DisplacedIn>>,
    /// `closure`, `callback`: what can come of it, case by case.
    #[serde(default)]
    pub(crate) results: Vec<ResultIn>,
    /// `closure`, `callback`, `switch`: what registers hold, besides arguments, and words as `[block+8]`, `[other-stack-8]` and
    /// `[sp-8]`, where the function begins that it calls or where another context goes on: each a sum as an argument.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArgumentIn>")]
    pub(crate) passes: BTreeMap<String, Spanned<ArgumentIn>>,
    /// `callback`: the registers that the function keeps which it calls, if that is no C function.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) callee_keeps: Option<Vec<Spanned<String>>>,
    /// `syscall`: the number of the system call.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pub(crate) number: Option<Spanned<u32>>,
    /// `syscall`: the variable, an `int`, to which it stores an error, where it returns -1. Without it, it returns what the kernel
    /// returns.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) errno: Option<Spanned<String>>,
    /// `switch`: what names the context that is left: a sum as an argument, by registers as they are at the call and by memory as it is
    /// when the context has been left.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) from: Option<Spanned<String>>,
    /// `switch`: the register that has that when the other context goes on, if `from` cannot say it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) from_register: Option<Spanned<String>>,
    /// `switch`: the register that names the context that is entered.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) to: Option<Spanned<String>>,
    /// `switch`: each context has control words of its own, such as the rounding mode.
    #[serde(default)]
    pub(crate) switches_control: bool,
    /// `switch`: how a context is made whose function, `calls`, has not run.
    #[serde(default)]
    #[schemars(with = "Option<FreshIn>")]
    pub(crate) fresh: Option<Spanned<FreshIn>>,
    /// `sled`: when it calls nothing, if there is such a way through it.
    #[serde(default)]
    #[schemars(with = "Option<UncalledIn>")]
    pub(crate) uncalled: Option<Spanned<UncalledIn>>,
    /// What it finds in memory, by symbol, with `+` and an offset or without: words of 8 bytes.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, u64>")]
    pub(crate) memory: BTreeMap<String, Spanned<u64>>,
    /// What the functions that it calls may do to vector registers.
    #[serde(default)]
    #[schemars(with = "Option<HandlersIn>")]
    pub(crate) handlers: Option<Spanned<HandlersIn>>,
    /// What the callback is given a pointer to: a name under `frame`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) frame: Option<Spanned<String>>,
    /// Which registers survive.
    #[serde(default)]
    pub(crate) promises: Promise,
    /// Registers that survive besides, vector registers whatever a handler does: each by its name, or those that matter to
    /// `static-chain`, `varargs`, `sret` or
    /// `fastcc`, where the architecture has them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) keeps: Vec<Spanned<String>>,
    /// Registers and control words that do not, all the same.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) loses: Vec<Spanned<String>>,
    /// The flags survive.
    #[serde(default)]
    pub(crate) keeps_flags: bool,
    /// A direct trampoline that is named by the site is entered before any callback (arm64 CALL_OPS).
    #[serde(default)]
    pub(crate) early_direct: bool,
    /// `entry`, `regs`: bit 0 of a direct trampoline's address says that the site would jump there.
    #[serde(default)]
    pub(crate) direct_jumps: bool,
    /// `entry`, `regs`: registers that have any value in a direct trampoline, though they survive otherwise.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) direct_loses: Vec<Spanned<String>>,
    /// What SP is a multiple of where C code is called, in bytes.
    #[schemars(with = "u32")]
    pub(crate) stack_align: Spanned<u32>,
    /// Indirect branches must reach landing pads. The entry is one, unless only returns come here. Of a kernel, a list of the options
    /// of its configuration with which it is so; where that is not known (`--kernel-build`), it is not demanded.
    #[serde(default)]
    pub(crate) landing_pad: Switch,
    /// The entry is none all the same: only direct branches of sites come here.
    #[serde(default)]
    pub(crate) no_entry_pad: bool,
    /// Who calls it through a pointer compares the word so many bytes before the entry with the type of the pointer (kCFI): it is
    /// the value of `__kcfi_typeid_` with the symbol behind it.
    #[serde(default)]
    #[schemars(with = "Option<u32>")]
    pub(crate) type_before: Option<Spanned<u32>>,
    /// Where its return address is guarded while the frame has it: `signed` (arm64, PACIASP), or `pushed` onto the CPU's shadow stack
    /// too (riscv64, SSPUSH).
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) guard: Option<Spanned<String>>,
    /// How it returns, if not by the return instruction alone (x86_64): `trap` has a breakpoint behind each, `thunk` has a jump to the
    /// kernel's function for returns in place of each.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) returns: Option<Spanned<String>>,
    /// Returns on the way out that have no call on the return-address stack.
    #[serde(default)]
    pub(crate) unpaired: u32,
    /// Returns on the way to a direct trampoline that do not go behind their call: one, where that way is a return.
    #[serde(default)]
    pub(crate) direct_mispredicted: u32,
    /// The return addresses that a walk of frame records from the callback finds before those of the traced function's
    /// caller: `pc`, `parent-ip`.
    #[serde(default)]
    pub(crate) records: Vec<RecordIn>,
    /// In the callback the frame pointer is the frame's address with bit 0 set.
    #[serde(default)]
    pub(crate) marks_regs: bool,
    /// What is known not to hold.
    #[serde(default)]
    pub(crate) deviation: Vec<DeviationIn>,
}

/// What can come of a boundary's call.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultIn {
    /// What registers and words hold when it is called, besides.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) holds: BTreeMap<String, Spanned<String>>,
    /// What the function returns that it calls, as a `long`; anything, where nothing is said.
    pub(crate) returns: Option<i64>,
    /// The words that this function stores, as `[rcx+8]`, by registers as they are when it begins: `stored1`, `stored2` and so on.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) stores: Vec<Spanned<String>>,
    /// What registers and words hold in the end.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArgumentIn>")]
    pub(crate) gives: BTreeMap<String, Spanned<ArgumentIn>>,
}

/// How a context is made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FreshIn {
    /// The function that makes it, and returns what names it.
    #[schemars(with = "String")]
    pub(crate) made_by: Spanned<String>,
    /// What registers and words hold when that is called.
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) holds: BTreeMap<String, Spanned<String>>,
    /// What registers and words hold when the context's function begins.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArgumentIn>")]
    pub(crate) passes: BTreeMap<String, Spanned<ArgumentIn>>,
    /// The register that has what names the context that is left when the function begins; without it, that of the switch.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) from_register: Option<Spanned<String>>,
    /// What is called when the context's function returns. Without it, that may not return.
    #[serde(default)]
    pub(crate) ends_in: Option<String>,
}

/// The result of a program in place of a function.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramResultIn {
    /// Its bytes: 1, 2, 4 or 8.
    pub(crate) bytes: u8,
    /// It is signed.
    #[serde(default)]
    pub(crate) signed: bool,
    /// The register in which a program leaves 64 bits, if that is not the psABI's. The psABI's then has the lower 32, widened by bit 31.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) register: Option<Spanned<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a place, or { at, bytes }")]
pub(crate) enum WordIn {
    /// All of it.
    Whole(String),
    /// So many bytes from the lowest, of a word on the stack.
    Part { at: String, bytes: u8 },
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a label, or a list of labels")]
pub(crate) enum SlotIn {
    One(String),
    Each(Vec<String>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a variable, or a list of { variable, calls }")]
pub(crate) enum ThroughIn {
    /// The variable has the address of what `calls` names.
    One(String),
    /// Each has that of its own function.
    Each(Vec<VariableIn>),
}

/// A variable that holds the address of a function.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariableIn {
    /// The variable's symbol.
    pub(crate) variable: String,
    /// The function's.
    pub(crate) calls: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a value, or { value, bits }")]
pub(crate) enum ArgumentIn {
    /// All 64 bits of it count: a sum of registers, words as `[sp+8]`, numbers, `pc` (the address behind the call that the
    /// site made), `ip`, `parent-ip`, `op`; or `frame`, the address of the structure.
    Whole(String),
    /// So many bits of it count, from the lowest.
    Part {
        /// As above.
        value: String,
        /// How many.
        bits: u32,
    },
}

/// The protocol of a site: what is so when the trampoline's first instruction is reached.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SiteIn {
    /// What SP may be modulo 16.
    #[serde(default)]
    #[schemars(with = "Vec<u64>")]
    pub(crate) sp: Vec<Spanned<u64>>,
    /// `sled`: flags that are clear.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) clear_flags: Vec<Spanned<String>>,
    /// `sled`: bytes that the site has pushed, and that are gone when the trampoline goes on.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub(crate) pushed: Option<Spanned<u64>>,
    /// What registers and words of the stack, as `[sp+8]`, hold: a number, `sp+N`, an address in the stack of the function, or what
    /// another register holds. Of boundaries also words of `block`, memory that is no stack, as `[block+8]`; and `block+N`,
    /// `other-stack-N`, below the end of another stack, and `&symbol`. For the kinds that no site goes to.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) holds: BTreeMap<String, Spanned<String>>,
    /// `sled`: what the register holds by which a thread finds its memory: `sp+N`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) thread: Option<Spanned<String>>,
    /// Bytes below SP that belong to whoever runs, as in user space on x86_64: signals leave them alone.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    pub(crate) red_zone: Option<Spanned<u64>>,
}

/// Instructions that a jump or a breakpoint has taken the place of.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct DisplacedIn {
    /// The address where they stood, as `0x...`.
    pub(crate) at: String,
    /// Their bytes, in hexadecimal digits.
    pub(crate) instructions: String,
    /// Bytes from the trampoline's first instruction to their copies: 0 if nothing is called before them.
    #[serde(default)]
    pub(crate) copies: u64,
    /// The breakpoint behind the copies, with which the kernel goes on, in hexadecimal digits. Without this, they end in a jump behind
    /// where the instructions stood.
    #[serde(default)]
    pub(crate) breakpoint: String,
}

/// What is otherwise where a sled calls nothing.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UncalledIn {
    /// What registers and words of the stack hold, besides.
    #[schemars(with = "BTreeMap<String, String>")]
    pub(crate) holds: BTreeMap<String, Spanned<String>>,
    /// What registers hold in the end.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArgumentIn>")]
    pub(crate) gives: BTreeMap<String, Spanned<ArgumentIn>>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GoesToIn {
    /// Behind the call that reached it, plus `resume`.
    Site,
    /// Where the function says that it calls, with the stack as it was before the site pushed.
    Result,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HandlersIn {
    /// They leave all of them alone.
    General,
    /// They change what C may. Those that carry arguments survive all the same; where the function has returned, those that
    /// carry its results.
    Any,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KindIn {
    /// `ftrace_caller`: calls back with the argument registers.
    Entry,
    /// `ftrace_regs_caller`: calls back with every register.
    Regs,
    /// A direct-call trampoline.
    Direct,
    /// `return_to_handler`: entered when the traced function returns.
    Return,
    /// `arch_rethook_trampoline`: the same for kretprobes, with every register.
    Rethook,
    /// Jumped to by the site: calls an entry handler, the traced function, and an exit handler.
    Around,
    /// Calls a list of programs with a context array, as BPF does, and perhaps the traced function.
    Programs,
    /// Jumped to by the site: writes records to a buffer of the thread, and calls or goes on to the traced function.
    Record,
    /// Called by a sled in the middle of a function, at its tail call or its return: everything is live.
    Sled,
    /// Gone to by a jump or a breakpoint in the middle of a function: it has copies of the instructions that stood there, and may
    /// call one C function before them.
    Displaced,
    /// `ftrace_stub`.
    Stub,
    /// `ftrace_stub_graph`.
    StubGraph,
    /// `ftrace_stub_direct_tramp`.
    StubDirect,
    /// A function that is made at run time: it shows its arguments to one C function, and returns what that stores.
    Closure,
    /// From C into code with a convention of its own, or back.
    Callback,
    /// A stub of C that makes a system call of Linux.
    Syscall,
    /// A switch to another context with a stack of its own.
    Switch,
}

/// What a call passes in, or what comes back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct LiveIn {
    /// General registers.
    #[schemars(with = "Vec<String>")]
    pub(crate) registers: Vec<Spanned<String>>,
    /// Vector registers: the first so many of those that carry arguments, or results.
    #[serde(default)]
    pub(crate) vectors: u8,
    /// Words of 8 bytes on the stack.
    #[serde(default)]
    pub(crate) stack: u8,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FormIn {
    /// A frame stays on the stack. The handlers get the function's arguments, then its results.
    Frame,
    /// The same; the handlers get what `entry` gives, then a pointer to the frame with the results.
    Fregs,
    /// Nothing stays on the stack; the handlers get the same, and keep the return address.
    Shadow,
}

impl FormIn {
    pub(crate) fn form(self) -> Form {
        match self {
            FormIn::Frame => Form::Frame,
            FormIn::Fregs => Form::Fregs,
            FormIn::Shadow => Form::Shadow,
        }
    }
}

/// A C function `u64 program(u64 *context, u64 *cookie)`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramIn {
    /// When it is called.
    pub(crate) attach: AttachIn,
    /// The symbol.
    pub(crate) calls: String,
    /// What is at `cookie`, of 31 bits, or 0; with `around`, what is in the run context, of 64, or anything.
    #[serde(default)]
    #[schemars(with = "Option<i64>")]
    pub(crate) cookie: Option<Spanned<i64>>,
    /// The functions that are called before and after it, as Linux has them. Then it has no second argument. All programs of a
    /// trampoline have them, or none.
    #[serde(default)]
    pub(crate) around: Option<BracketIn>,
}

/// Two functions that are called around another one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BracketIn {
    /// The symbol of the first: `__bpf_prog_enter(program, run_context)`, which returns 0 where the program is not to be called, or
    /// `__bpf_tramp_enter(image)`.
    pub(crate) enter: String,
    /// The symbol of the second: `__bpf_prog_exit(program, what the first returned, run_context)`, or `__bpf_tramp_exit(image)`.
    pub(crate) exit: String,
    /// What both are given first: a symbol, or an address as `0x...`. Without it any will do that both get.
    #[serde(default)]
    pub(crate) argument: Option<String>,
    /// Of a program: the first always lets it be called.
    #[serde(default)]
    pub(crate) always: bool,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AttachIn {
    /// Before the function.
    Fentry,
    /// Before it, and instead of it if the program does not return 0.
    FmodRet,
    /// After it.
    Fexit,
    /// Before it and after it.
    Fsession,
}

impl AttachIn {
    pub(crate) fn attach(self) -> Attach {
        match self {
            AttachIn::Fentry => Attach::Fentry,
            AttachIn::FmodRet => Attach::FmodRet,
            AttachIn::Fexit => Attach::Fexit,
            AttachIn::Fsession => Attach::Fsession,
        }
    }
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecordIn {
    /// The address where the traced function goes on.
    Pc,
    /// The return address of the traced function.
    ParentIp,
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Promise {
    /// Arguments and callee-saved registers, as at a call.
    #[default]
    Abi,
    /// Every general register but those that the site itself destroys.
    Transparent,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviationIn {
    /// P1 to P25, as in `tramptool check --list-clauses`.
    #[schemars(with = "String")]
    pub(crate) clause: Spanned<String>,
    /// A place as `tramptool check --list-places` names it, or a list of them, each with or without `@` and the instruction
    /// as symbol+offset; `*` and `?` are wildcards.
    pub(crate) place: Places,
    /// Only on this way out of the trampoline; on every way, where none is named.
    #[serde(default)]
    pub(crate) way: Option<WayIn>,
    /// Only where the value is so much more than the expected one; with any value, where nothing is said.
    #[serde(default)]
    pub(crate) by: Option<i64>,
    /// Only behind the last instruction whose text begins so, as the disassembler writes it: `popf`. Where a place would name an
    /// instruction by its address, which differs from build to build.
    #[serde(default)]
    pub(crate) behind: Option<String>,
    /// With `behind`: up to the next instruction whose text begins so, and with it; without this key, up to the end.
    #[serde(default)]
    pub(crate) until: Option<String>,
    /// Only with these options of the kernel's configuration; `!` before one that is not set. Where the configuration is not known
    /// (`--kernel-build`), it may be there or not.
    #[serde(default)]
    pub(crate) config: Vec<Condition>,
    /// Why.
    pub(crate) reason: String,
}

/// A way out of a trampoline.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WayIn {
    /// Back into the traced function.
    Function,
    /// To a direct trampoline that a callback chose.
    Direct,
    /// To one as if the site jumped there.
    DirectJump,
    /// To the direct trampoline of the `ftrace_ops`.
    EarlyDirect,
    /// To the parent.
    Parent,
    /// Past the traced function.
    Skipped,
}

impl WayIn {
    pub(crate) fn path(self) -> ExitPath {
        match self {
            WayIn::Function => ExitPath::Function,
            WayIn::Direct => ExitPath::Direct,
            WayIn::DirectJump => ExitPath::DirectJump,
            WayIn::EarlyDirect => ExitPath::EarlyDirect,
            WayIn::Parent => ExitPath::Parent,
            WayIn::Skipped => ExitPath::Skipped,
        }
    }
}

/// The JSON schema of contracts.
pub fn contract_schema() -> Schema {
    schema_for!(FileIn)
}

/// A contract file: its name, for messages, and its text.
pub(crate) struct Reader<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    /// The configuration of the kernel, if it is known.
    pub(crate) config: Option<&'a Configuration>,
}

impl Reader<'_> {
    /// A mistake at an offset of the text.
    pub(crate) fn at(&self, offset: usize, message: impl Into<Error>) -> Error {
        let line = self.text.get(..offset).unwrap_or(self.text).matches('\n').count() + 1;
        message.into().at(format_args!("{}:{line}", self.name))
    }

    /// What the file says.
    ///
    /// # Errors
    /// It is no TOML, or not of this form, or a string holds a NUL.
    pub(crate) fn file(&self) -> Result<FileIn> {
        if let Some(at) = nul(self.text) {
            return Err(self.at(at, "a NUL ends every name; valid: strings without"));
        }
        toml::from_str(self.text).map_err(|e| {
            let message = e.message().replace('\n', " ");
            self.at(e.span().map_or(0, |s| s.start), message)
        })
    }
}
