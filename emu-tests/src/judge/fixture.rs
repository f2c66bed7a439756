//! The functions that are traced: objects of our own C, made by `cargo xtask fixtures`, described in
//! `fixtures/fixtures.toml`.

use std::sync::LazyLock;

use codegen::ask::live::Word;
use codegen::ask::spec::Programs;
use codegen::contract::Contract;
use codegen::words::abi::Abi;
use codegen::words::error::{Error, Result};
use codegen::words::step::ExitPath;
use serde::Deserialize;

use crate::judge::suite::Suite;
use crate::run::filter::Filter;

/// A function of `functions.c` or `wide.c`.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// Its symbol.
    pub name: String,
    /// Integer argument words, including those on the stack.
    pub args: usize,
    /// It returns a struct through memory.
    #[serde(default)]
    pub sret: bool,
    /// Another function with the same signature, to redirect to.
    pub livepatch: Option<String>,
}

/// The ending of the names of functions that others are redirected to, as a live patch does.
pub(crate) const LIVEPATCH: &str = "_livepatch";

#[derive(Deserialize)]
struct Table {
    function: Vec<Function>,
    wide: Vec<Function>,
}

/// The functions of `functions.c`, and all.
struct Functions {
    usual: usize,
    all: Vec<Function>,
}

impl Functions {
    fn read() -> Result<&'static Functions> {
        static READ: LazyLock<std::result::Result<Functions, toml::de::Error>> = LazyLock::new(|| {
            let Table { function, wide } = toml::from_str(include_str!("../../fixtures/fixtures.toml"))?;
            Ok(Functions { usual: function.len(), all: [function, wide].concat() })
        });
        READ.as_ref().map_err(|e| Error::new(format!("fixtures.toml: {e}")))
    }
}

/// The functions that suites are run on, in the order of the table: those of `wide.c` only if a trampoline is for such a function.
///
/// # Errors
/// The table does not parse.
pub fn functions<'s>(suites: impl IntoIterator<Item = &'s Suite>) -> Result<&'static [Function]> {
    let Functions { usual, all } = Functions::read()?;
    let wide = suites.into_iter().any(is_wide);
    Ok(if wide { all } else { &all[..*usual] })
}

/// The words of arguments that a function of `functions.c` has at most.
const USUAL: usize = 12;

/// Is one of its trampolines for functions with more words of arguments than those of `functions.c`?
pub(crate) fn is_wide(suite: &Suite) -> bool {
    let abi = &suite.backend.facts().abi;
    let words = |contract: &Contract| match (contract.kind.programs(), contract.kind.live()) {
        (Some(programs), _) => spanned(&programs, abi),
        (None, Some(live)) if live.stack > 0 => abi.args.len() + usize::from(live.stack),
        _ => 0,
    };
    suite.contracts.iter().any(|contract| words(contract) > USUAL)
}

/// Words from the first argument to the last, those included that no argument is in: the psABI may leave a register free.
pub(crate) fn spanned(programs: &Programs, abi: &Abi) -> usize {
    let place = |word: &Word| match *word {
        Word::Reg(reg) => abi.args.iter().position(|arg| *arg == reg),
        Word::Stack(n) => Some(abi.args.len() + usize::from(n)),
    };
    programs.words.iter().flatten().filter_map(place).max().map_or(0, |last| last + 1)
}

/// The `ftrace_ops` of `callbacks.c`.
pub(crate) const OPS: &str = "ops";

/// The one that does nothing.
pub(crate) const NOP_OPS: &str = "ops_nop";

/// A function there that does nothing.
pub(crate) const NOTHING: &str = "callback2";

/// The fixtures' variable with the address of [`OPS`].
pub(crate) const OP: &str = "function_trace_op";

/// The fixtures' variable that points to what is called, where trampolines call through one.
pub(crate) const CALLEE: &str = "callee";

/// The fixtures' variable in the place of a clock: nothing else uses it.
pub(crate) const CLOCK: &str = "ops_list";

/// The fixtures' function in the place of a tracer's callback.
pub const CALLBACK: &str = "callback";

/// The fixtures' function in the place of a tracer's exit handler.
pub const EXIT_HANDLER: &str = "ftrace_return_to_handler";

/// An object with the functions, compiled in one way, and the object with the callbacks that links with it.
#[derive(Debug)]
pub struct Fixture {
    /// The architecture's name.
    pub arch: &'static str,
    /// How it was compiled.
    pub variant: &'static str,
    /// The functions of `functions.c`.
    pub functions: &'static [u8],
    /// Those of `wide.c`.
    pub wide: &'static [u8],
    /// The callbacks.
    pub callbacks: &'static [u8],
    /// Before the entry of each function is a word for `op`.
    pub before_entry: bool,
}

/// A suite with what it is run on.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'s> {
    pub(crate) suite: &'s Suite,
    pub(crate) fixture: &'static Fixture,
    pub(crate) functions: &'s [Function],
    /// Of all random values.
    pub(crate) seed: u64,
}

macro_rules! fixtures {
    ($($arch:literal $variant:literal with $callbacks:literal, before_entry: $before_entry:literal;)*) => {
        /// All fixtures.
        pub(crate) const FIXTURES: &[Fixture] = &[$(Fixture {
            arch: $arch,
            variant: $variant,
            functions: include_bytes!(concat!("../../fixtures/", $arch, "/", $variant, ".o")),
            wide: include_bytes!(concat!("../../fixtures/", $arch, "/", $variant, "-wide.o")),
            callbacks: include_bytes!(concat!("../../fixtures/", $arch, "/", $callbacks, ".o")),
            before_entry: $before_entry,
        }),*];
    };
}

fixtures! {
    "x86_64" "plain" with "callbacks", before_entry: false;
    "x86_64" "ibt" with "callbacks", before_entry: false;
    "x86_64" "padding" with "callbacks", before_entry: false;
    "x86_64" "nop" with "callbacks", before_entry: false;
    "x86_64" "stack8" with "callbacks", before_entry: false;
    "arm64" "plain" with "callbacks", before_entry: false;
    "arm64" "bti" with "callbacks", before_entry: false;
    "arm64" "callops" with "callbacks", before_entry: true;
    "arm64" "callops-bti" with "callbacks", before_entry: true;
    "riscv64" "rvc" with "callbacks", before_entry: false;
    "riscv64" "norvc" with "callbacks", before_entry: false;
    "riscv64" "fp" with "callbacks", before_entry: false;
    "riscv64" "rvc-lp64d" with "callbacks-lp64d", before_entry: false;
    "riscv64" "callops" with "callbacks", before_entry: true;
    "riscv64" "callops-norvc" with "callbacks", before_entry: true;
    "riscv64" "callops-clang" with "callbacks", before_entry: true;
}

/// The fixtures that can run with a suite: for its machine, with its float ABI, and with a word for op before
/// each function where its trampolines look for one, or without where the profile's functions have none.
pub(crate) fn fixtures<'f>(suite: &'f Suite, filter: &'f Filter) -> impl Iterator<Item = &'static Fixture> + 'f {
    let mask = suite.backend.machine().e_flags_abi;
    let wants_op = suite.contracts.iter().any(|c| c.leaves_by(ExitPath::EarlyDirect));
    let may_have_op = suite.convention.site.protocol.literal.is_some();
    FIXTURES.iter().filter(move |f| {
        e_machine(f.functions) == suite.backend.facts().machine
            && suite.objects.iter().all(|(_, o)| e_flags(f.functions) & mask == e_flags(o) & mask)
            && if f.before_entry { may_have_op } else { !wants_op }
            && filter.fixture.as_ref().is_none_or(|v| f.variant == v)
    })
}

/// `e_machine` of an ELF object.
fn e_machine(object: &[u8]) -> u16 {
    object.get(18..20).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// `e_flags` of an ELF64 object; the linker checks the rest.
fn e_flags(object: &[u8]) -> u32 {
    object.get(48..52).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_wide_c_have_more_words() {
        let Functions { usual, all } = Functions::read().unwrap();
        assert_eq!(all[..*usual].iter().map(|f| f.args).max(), Some(USUAL));
        assert!(all[*usual..].iter().map(|f| f.args).eq(USUAL + 1..=2 * USUAL));
    }
}
