//! What tests expect of each architecture: tests/arch/NAME.toml.

use std::collections::BTreeMap;

use codegen::backend::Backend;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expected {
    pub shadow_call_stack: Option<ShadowCallStack>,
    pub accesses: Accesses,
    pub layout: Layout,
    pub kernel: Kernel,
    pub report: Report,
    pub by_hand: ByHand,
    pub cost: Cost,
    pub typed: Typing,
    pub unprepared: Unprepared,
    pub replaced: Replaced,
    pub written: Written,
    pub constant: Vec<Constant>,
    pub sites: Sites,
    pub handler: Handler,
    pub process: Process,
    pub cflags: Cflags,
    pub linked: Linked,
    pub kernel_type: Vec<KernelType>,
    pub patched: Patched,
    pub review: Review,
    pub place: Vec<Place>,
}

/// Instructions of which an engine says what they load and store.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Accesses {
    /// What GNU as is told.
    pub flags: Vec<String>,
    /// Registers that have no address.
    pub small: Vec<(String, i64)>,
    /// One a line.
    pub text: String,
    /// Those that Unicorn does not have.
    #[serde(default)]
    pub by_manual: Vec<ByManual>,
    /// Those that nobody knows here: words.
    #[serde(default)]
    pub unknown: Vec<u32>,
    /// One of them, as GNU as takes it.
    pub unheard: Option<String>,
}

/// A word, the register with its address, and its accesses: offsets from that, bytes, and whether they are stores.
pub type ByManual = (u32, String, Vec<(u64, usize, bool)>);

/// The struct of `<asm/ptrace.h>` that begins, or is, the kernel's `struct pt_regs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub r#struct: String,
    /// The kernel's own members, which come after, of every profile of a kernel.
    pub private: Vec<Vec<String>>,
    /// The header's names of members that are called otherwise there.
    #[serde(default)]
    names: BTreeMap<String, String>,
    /// A prefix of members that are elements of an array there, and the array.
    numbered: Option<(String, String)>,
}

impl Layout {
    /// The header's name of a member of `struct pt_regs`.
    pub fn member(&self, name: &str) -> String {
        let element = || {
            let (prefix, array) = self.numbered.as_ref()?;
            Some(format!("{array}[{}]", name.strip_prefix(prefix.as_str())?))
        };
        self.names.get(name).cloned().or_else(element).unwrap_or_else(|| name.to_owned())
    }
}

/// Patches of `ftrace_caller`, by lines of its assembly text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Review {
    /// A line that loads a register, and what a patch leaves of it.
    pub lost: (String, String),
    /// That register.
    pub register: String,
    /// A save, and the line behind which a patch puts it.
    pub moved: (String, String),
    /// The line that passes `parent_ip`, and the one behind which a patch puts it.
    pub told: (String, String),
}

/// What its configuration means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kernel {
    /// What is set in every configuration for it.
    pub config: String,
    /// Lines of asm-offsets.h.
    pub numbers: Vec<String>,
    /// A configuration under which it needs all of them.
    #[serde(default)]
    pub needs_all: Vec<String>,
    /// A setting that is given by hand beside the configuration.
    pub by_hand: Option<String>,
    /// How gcc compiles for it.
    pub gcc: Vec<String>,
    pub case: Vec<Case>,
}

/// A configuration, its numbers, and what must come of both, as `--set` says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub config: Vec<String>,
    pub offsets: Vec<String>,
    pub settings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// A setting that the command of a report must repeat.
    pub set: (String, String),
}

/// A direct-call trampoline of two arguments that somebody wrote by hand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ByHand {
    pub align: u32,
    /// A register that it need not keep.
    pub scratch: String,
    /// An argument goes into the variable `stash`, and comes back.
    pub kept: String,
    pub text: String,
    /// The mnemonic of its call, when it is disassembled.
    pub call: String,
    /// The same as it is written.
    pub calls: String,
    /// What a compiler would put between its instructions, where compilers do.
    pub literal: Option<Literal>,
    /// Instructions that never come back.
    pub stops: Vec<String>,
    pub behind: Vec<Behind>,
    #[serde(default)]
    pub platform: Vec<Platform>,
}

impl ByHand {
    /// The text with this behind the call.
    pub fn with(&self, code: &str) -> String {
        self.around("", code)
    }

    /// The text with this before the call, and that behind it.
    pub fn around(&self, before: &str, behind: &str) -> String {
        let call = format!("{} direct_func\n", self.calls);
        assert!(self.text.contains(&call), "{}", self.text);
        self.text.replacen(&call, &format!("{before}\n{call}{behind}\n"), 1)
    }
}

/// Code behind the call of [`ByHand`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Behind {
    pub code: String,
    /// The clause that fails. Without one, all hold.
    pub fails: Option<String>,
    /// In the report.
    #[serde(default)]
    pub says: String,
}

/// A register of the platform, and what saves it before the call of [`ByHand`] and loads it again behind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    pub register: String,
    pub save: String,
    /// In place of the other, it loads nothing.
    pub leave: String,
    pub reload: String,
}

/// Of a direct-call trampoline for one argument, counted by hand: registers that it saves, and its bytes of stack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    pub saved: u32,
    pub stack: u32,
}

/// What somebody sets, and what `gen ftrace_caller` says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Typing {
    #[serde(default)]
    pub taken: Vec<Typed>,
    pub refused: Vec<Typed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Typed {
    pub set: Vec<String>,
    pub says: Vec<String>,
}

/// A trampoline as objects of kernels have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unprepared {
    /// `ALT` stands for the entry of an alternative to what label 661 names.
    pub text: String,
    /// Where that is.
    pub place: String,
    /// An access, and one that cannot be followed.
    pub astray: (String, String),
}

/// Alternatives of an instruction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// An entry of the list, behind its two references.
    pub entry: [String; 2],
    /// What stands for `FLAGS` where the kernel computes what it writes.
    pub computed: Option<String>,
    /// Bytes of what is replaced.
    pub size: usize,
    /// An instruction that may stand before the call of a direct-call trampoline, and its size.
    pub sound: (String, usize),
    /// One that may not.
    pub wrong: (String, usize),
}

/// A trampoline that a compiler writes into memory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    pub text: String,
    /// How the last argument comes back.
    pub reload: String,
    /// Addresses that it uses.
    pub outside: Vec<String>,
    /// Registers that it need not keep besides.
    #[serde(default)]
    pub loses: Vec<String>,
    /// A call, and one that cannot be followed.
    pub astray: (String, String),
    /// A call, what stands in its place below 4 GiB, and where that goes.
    #[serde(default)]
    pub near: Vec<(String, String, String)>,
    /// Branches that reach no further than the neighbourhood, and where they go from 0xffffffffa0000000.
    pub cut: Vec<(String, String)>,
}

/// How GNU as writes a constant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    pub option: String,
    text: String,
}

impl Constant {
    pub fn text(&self, value: u64) -> String {
        let whole = self.text.replace("WHOLE", &format!("{value:#x}"));
        (0..4).fold(whole, |text, n| text.replace(&format!("PART{n}"), &(value >> (16 * n) & 0xffff).to_string()))
    }
}

/// What compilers leave.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sites {
    pub kind: Vec<SiteKind>,
    pub refused: Vec<RefusedSites>,
    /// Bytes from an entry of the list to its site, in fixtures with such a name: the first holds.
    #[serde(default)]
    pub ahead: Vec<(String, u64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteKind {
    pub options: Vec<String>,
    pub list: String,
    /// Where the site is in its function.
    pub at: u64,
    pub form: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedSites {
    pub options: Vec<String>,
    pub why: String,
    /// Whether only those of functions that begin in the middle of 8 bytes, or only the others.
    pub odd: Option<bool>,
    /// Why those are refused that begin there in a program.
    pub linked: Option<String>,
}

/// What gcc makes of handlers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handler {
    /// An option under which one may use vector registers.
    pub set: String,
    /// It says how everything is compiled.
    #[serde(default)]
    pub everywhere: bool,
    /// How gcc is told which there are.
    pub abi: String,
    /// In the text of a trampoline that saves some.
    pub saves: String,
    /// A jump through a register that no call passes its target in.
    pub jump: String,
    /// What is refused without `set`.
    pub refused: Option<RefusedHandler>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedHandler {
    pub object: String,
    pub says: Vec<String>,
}

/// A word between instructions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Literal {
    /// What jumps over it.
    pub jump: String,
    /// It is a call when it is taken for an instruction.
    pub word: String,
    /// The directive by which it is one.
    pub insn: String,
}

/// How its linked images differ.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linked {
    /// Settings that its trampolines need there.
    #[serde(default)]
    pub set: Vec<String>,
    /// objdump names where a site goes.
    pub resolved: bool,
    /// In a site that jumps, as it is disassembled.
    pub jump: String,
}

/// Of tests that patch sites.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patched {
    /// The fixture whose sites have the most before them.
    pub fixture: String,
}

/// Flags of gcc that say how code is protected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cflags {
    /// Sets of flags, each in one text.
    pub flags: Vec<String>,
    /// Instructions that code has under some of them.
    #[serde(default)]
    pub shows: Vec<String>,
    /// One that stands behind returns under some.
    pub behind_return: Option<String>,
    /// A setting, and a flag that says otherwise.
    pub overridden: [String; 2],
}

/// Where gcc places arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Place {
    #[serde(default)]
    pub set: Vec<String>,
    /// A long double is placed as a type of its own.
    #[serde(default)]
    pub long_double: bool,
    pub gcc: Vec<String>,
}

/// How real processes are compiled, linked and run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Process {
    /// Whose places of arguments and results they have.
    pub isa: String,
    /// clang's options for it.
    pub clang: Vec<String>,
    /// Both compilers' options.
    pub flags: Vec<String>,
    /// What runs a program of it.
    pub runner: Vec<String>,
    /// Microseconds for the calls of a case, and between signals.
    pub time: [String; 2],
    /// Linkers for shared objects: GNU's by gcc, the others by clang.
    pub linkers: Vec<String>,
    /// Settings with which its trampolines run in user space.
    pub set: Vec<String>,
    /// Bytes of the site, at the function's start.
    pub site: u64,
    /// The setting that gives frame records, and the object whose trampolines need it.
    pub records: String,
    pub records_of: String,
    /// The trampolines without records of the function and of its caller.
    pub recordless: Vec<String>,
    /// The register that a nested function finds its caller's variables by.
    pub static_chain: String,
    /// How a direct trampoline is gone to, in the harness's names.
    pub ways: Vec<String>,
    pub landing_pads: Option<LandingPads>,
    /// The setting under which objects say with which protection they go, if they do not always.
    pub protected: Option<String>,
    /// The setting under which trampolines guard the return address that they store, and the operators of faults in that.
    pub guarded: Option<String>,
    /// The emulator of its programs has what guards it.
    #[serde(default)]
    pub runs_guards: bool,
    /// What is otherwise in gdb's traces.
    #[serde(default)]
    pub gdb: Vec<Gdb>,
}

/// A program whose functions return by the shadow call stack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowCallStack {
    /// The setting under which trampolines do.
    pub set: String,
    /// What is there, and what is there instead where the stack's pointer is in memory while a handler runs.
    pub spilled: Vec<[String; 2]>,
    /// What is there, and what is there instead where a trampoline stores over the entry of its caller.
    pub below: Vec<[String; 2]>,
    /// The flag that asks for another guard.
    pub refused_with: String,
    /// The compiler's options; its functions keep the register at least.
    pub flags: Vec<String>,
    /// The program's first instructions; `caught`, which ends it with exit code 7; `f`, which goes on at `go_on` behind a site.
    pub start: String,
}

/// What the kernel has before a function that is called through pointers, where callers look for its type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelType {
    /// The settings.
    pub set: Vec<String>,
    /// The bytes, from where functions are aligned.
    pub before: String,
    /// How many bytes before the function the type is.
    pub at: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LandingPads {
    /// The compilers' option for them.
    pub flag: String,
    /// What readelf calls the note.
    pub property: String,
    /// The setting without them.
    pub without: Option<String>,
    /// The same for them and a shadow stack, where compilers have an option for both.
    pub full: Option<Protection>,
}

/// A compiler's option for protection, and the note that comes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protection {
    /// The option.
    pub flag: String,
    /// What readelf calls the note.
    pub property: String,
}

/// In the trace of a handler that is called from a function's entry.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gdb {
    /// The trampoline is a signal handler's.
    SignalFrame,
    /// The function is missing.
    NoFunction,
}

/// What is expected of this one.
pub fn expected(backend: &dyn Backend) -> Expected {
    let name = format!("tests/arch/{}.toml", backend.facts().name);
    // From the root, whichever package's test this is.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let path = root.map(|dir| dir.join(&name)).find(|path| path.exists()).unwrap_or_else(|| panic!("no {name}"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
    toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The contract of a direct-call trampoline of two arguments, `my_tramp`, of this one.
pub fn contract(backend: &dyn Backend) -> String {
    let (facts, align) = (backend.facts(), expected(backend).by_hand.align);
    let line = |line: &str| match line.split(" = ").next() {
        Some("arch") => format!("arch = \"{}\"\n", facts.name),
        Some("stack-align") => format!("stack-align = {align}\n"),
        _ => format!("{line}\n"),
    };
    super::CONTRACT.lines().map(line).collect()
}

/// `my_tramp` with this body, as GNU as reads it.
pub fn my_tramp(body: &str) -> String {
    let head = ".globl my_tramp\n.type my_tramp, %function\nmy_tramp:\n";
    format!("{head}{body}\n.size my_tramp, . - my_tramp\n")
}

/// As arguments.
pub fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// The prefix of its GNU tools.
pub fn tools(backend: &dyn Backend) -> &'static str {
    backend.facts().assembler.strip_suffix("as").unwrap()
}
