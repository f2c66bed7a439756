//! Statements that contracts in files have, and of generated trampolines at most those that call functions around programs: how a trampoline in the middle of a
//! function is reached, what its callee gets, and how the trampoline finds its callee.

use crate::words::abi::{Abi, Reg, RegSet};
use crate::words::error::{Error, Result};
use crate::words::program::Bracket;
use crate::words::term::{EntryState, Part, Root, Term, number};

/// A sum: a number, and multiples of roots.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// The number.
    pub number: i64,
    /// The roots, each with its factor.
    pub terms: Vec<(i64, Root)>,
}

impl Sum {
    /// The root, if the sum is one root alone.
    pub fn alone(&self) -> Option<&Root> {
        match (&self.terms[..], self.number) {
            ([(1, root)], 0) => Some(root),
            _ => None,
        }
    }

    /// The value in `state`; `None` if the state lacks a part of the sum.
    pub fn eval(&self, state: &impl EntryState) -> Option<u64> {
        let term = |(times, root): &(i64, Root)| Some((*times as u64).wrapping_mul(root.eval(state)?));
        self.terms.iter().map(term).try_fold(self.number as u64, |sum, term| Some(sum.wrapping_add(term?)))
    }

    /// Parse a sum such as `rdi`, `[sp+8]`, `pc - 5`, `3*[sp] - 3*x16 - 24`.
    ///
    /// # Errors
    /// The text is no sum, or names a register that does not exist.
    pub fn parse(text: &str, abi: &Abi) -> Result<Sum> {
        let wrong = || Error::new(format!("'{text}' is no sum of registers, words as [sp+8], numbers, {}", told()));
        let (mut sum, mut rest, mut first) = (Sum::default(), text.trim(), true);
        while first || !rest.is_empty() {
            let minus = rest.starts_with('-');
            let signed = rest.strip_prefix(['+', '-']);
            let behind = match (signed, first) {
                (Some(behind), _) => behind.trim_start(),
                (None, true) => rest,
                (None, false) => return Err(wrong()),
            };
            let sign = if minus { -1 } else { 1 };
            let (number, after) = number(behind).map_or((None, behind), |(n, after)| (Some(n), after.trim_start()));
            let times = after.strip_prefix('*').map(str::trim_start);
            rest = match (number, times) {
                (Some(n), None) => {
                    sum.number = sum.number.wrapping_add(n.wrapping_mul(sign));
                    after
                }
                (None, Some(_)) => return Err(wrong()),
                (n, times) => {
                    let found = Root::read(times.unwrap_or(after), abi);
                    let (found, after) = found.filter(|(root, _)| is_stated(root)).ok_or_else(wrong)?;
                    sum.terms.push((n.unwrap_or(1).wrapping_mul(sign), found));
                    after
                }
            };
            (rest, first) = (rest.trim_start(), false);
        }
        Ok(sum)
    }
}

/// Can a contract use this root? It can use registers of the site, memory that they point to, and values for callbacks.
fn is_stated(root: &Root) -> bool {
    match root {
        Root::Reg(_) | Root::Pc | Root::Result | Root::Block | Root::OtherStack | Root::StoredWord(_) => true,
        Root::Symbol(_) | Root::Left(1, _) => true,
        Root::Content(at) => matches!(at.root, Root::Reg(_) | Root::Block | Root::OtherStack) && at.part == Part::All,
        root => root.told().is_some(),
    }
}

fn told() -> String {
    Root::words().filter(|(_, root)| is_stated(root)).map(|(word, _)| word).collect::<Vec<_>>().join(", ")
}

/// An argument of a callee.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// The value.
    pub value: Sum,
    /// The number of significant bits, from the lowest.
    pub bits: u32,
}

/// A program as Linux calls it: between two functions, with its cookie in a run context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bracketed {
    /// The functions, `__bpf_prog_enter` and `__bpf_prog_exit`.
    pub around: Bracket,
    /// The cookie, of 64 bits; `None` if any will do.
    pub cookie: Option<i64>,
}

/// A variable that holds the address of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its symbol.
    pub name: String,
    /// The symbol of the function.
    pub callee: String,
}

/// A place with a stated value when the trampoline is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// A register.
    Reg(Reg),
    /// The 8 bytes at this offset above SP.
    Word(u64),
    /// The 8 bytes at this offset in the block.
    Block(u64),
}

/// A place whose value is stated when the trampoline leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given {
    /// A register.
    Reg(Reg),
    /// The low 8 bytes of a vector register, by its number.
    Vector(u8),
    /// The 8 bytes at this address: at a symbol, in the block, on the other stack, or, by SP as it was at the call, on the caller's.
    Word(Term),
}

impl Given {
    /// The vector register, by its number as a bit; 0 of other places.
    pub fn vector(&self) -> u32 {
        if let Given::Vector(n) = self { 1 << n } else { 0 }
    }
}

/// A value that a trampoline leaves somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gives {
    /// Where.
    pub place: Given,
    /// What.
    pub value: Argument,
}

/// One of the results that a boundary can have.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StatedResult {
    /// Values when it is called that differ from [`Stated::holds`].
    pub holds: Vec<(Held, Sum)>,
    /// What its callee, or the kernel, returns; `None` for any value.
    pub returns: Option<u64>,
    /// Where the callee stores words: addresses, by registers as they are when the callee begins.
    pub stores: Vec<Term>,
    /// The values that it leaves.
    pub gives: Vec<Gives>,
}

/// How a switch tells one context of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contexts {
    /// What names the context that is left.
    pub from: Handle,
    /// The register with what names the context that is entered.
    pub to: Reg,
    /// Control words have values of their own in each context. Otherwise they stay as they are.
    pub control: bool,
    /// How a context is made that has not run.
    pub fresh: Option<Fresh>,
}

/// What names a context that is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Handle {
    /// This, of the registers at the call and of memory when the context has been left.
    At(Sum),
    /// What is in this register when the other context is entered.
    In(Reg),
}

/// A function that makes a context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fresh {
    /// Its symbol. It returns what names the context.
    pub made_by: String,
    /// Values when it is called.
    pub holds: Vec<(Held, Sum)>,
    /// Values when the context's function begins.
    pub passes: Vec<Gives>,
    /// The register with what names the context that is left, when the function begins; `None` if it is where [`Contexts::from`] says.
    pub from: Option<Reg>,
    /// The symbol of what is called when the context's function returns; `None` if it may not return.
    pub ends_in: Option<String>,
}

/// A word of memory with an initial value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// The symbol before it.
    pub symbol: String,
    /// Bytes behind the symbol.
    pub offset: u64,
    /// The value.
    pub value: u64,
}

/// Statements for runs in which the trampoline calls nothing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Uncalled {
    /// Values at the site that differ from [`Stated::holds`].
    pub holds: Vec<(Held, Sum)>,
    /// Values of registers when the trampoline leaves.
    pub gives: Vec<Gives>,
}

/// The address at which a trampoline in the middle of a function leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This many bytes behind the call that reached the trampoline.
    Behind(i64),
    /// The address that the callee returns, as if the site had gone there.
    Result,
    /// So many bytes behind its first instruction, where the copies of displaced instructions begin.
    Copies(u64),
}

/// Instructions that a jump or a breakpoint has taken the place of, and their copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Displaced {
    /// The address where they stood.
    pub at: u64,
    /// Their bytes.
    pub instructions: Vec<u8>,
    /// The bytes of their copies, and what follows these.
    pub copies: Vec<u8>,
    /// The address of the copies.
    pub copied_to: u64,
    /// The breakpoint behind the copies. If there is none, they end in a jump behind where the instructions stood.
    pub breakpoint: Vec<u8>,
}

/// The result of a program in place of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramResult {
    /// The register with all 64 bits. The psABI's then has only the lower 32, widened by bit 31.
    pub whole: Option<Reg>,
    /// Bytes of the function's result: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Is it signed?
    pub signed: bool,
}

impl ProgramResult {
    /// What the function's caller must find, if the program has left this. `None`: of some of it, the upper bits are undefined.
    pub fn widened(&self, value: u64, abi: &Abi) -> Option<u64> {
        let shift = 64_u32.saturating_sub(8 * u32::from(self.bytes));
        let signed = (value << shift).cast_signed() >> shift;
        match self.bytes {
            8 => Some(value),
            _ if !abi.widens => None,
            4 => Some(signed.cast_unsigned()),
            _ if self.signed => Some(signed.cast_unsigned()),
            _ => Some(value << shift >> shift),
        }
    }
}

/// The additional statements of a contract in a file, or of a trampoline that calls functions around programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stated {
    /// The arguments of the callee; `None` if its kind and the profile define them.
    pub arguments: Option<Vec<Argument>>,
    /// The variables with the callee's address: the first that is not NULL counts.
    pub through: Vec<Variable>,
    /// All variables may be NULL. Then the trampoline calls nothing.
    pub may_be_null: bool,
    /// The callees are known to leave vector registers alone.
    pub general_handlers: bool,
    /// The number of calls of the callback.
    pub calls: u64,
    /// The possible values of SP modulo 16 at the first instruction; if empty, those of the architecture.
    pub sp: Vec<u64>,
    /// Bits of the flags register that are clear at the first instruction; `None` means those of the start of C code.
    pub clear_flags: Option<u64>,
    /// Bytes on the stack that the site pushed for the trampoline, which the trampoline pops.
    pub pushed: u64,
    /// Values when the trampoline is reached.
    pub holds: Vec<(Held, Sum)>,
    /// The address at which the trampoline leaves.
    pub next: Next,
    /// Registers with stated values when the trampoline leaves.
    pub gives: Vec<Gives>,
    /// Statements for runs without a call, if there are such runs.
    pub uncalled: Option<Uncalled>,
    /// The address in the register by which a thread finds its memory.
    pub thread: Option<Sum>,
    /// Bytes below SP that signals leave alone.
    pub red_zone: u64,
    /// Words of memory with initial values.
    pub memory: Vec<Word>,
    /// Registers of the platform that hold values of the function: the contract lists them as preserved.
    pub carries: RegSet,
    /// What each program is called with, by its number; empty if no functions are called around programs.
    pub around_programs: Vec<Bracketed>,
    /// The functions around all programs and the traced function.
    pub around_function: Option<Bracket>,
    /// Callee-saved registers that hold the trampoline's own values while the traced function runs.
    pub own: RegSet,
    /// The alignment that the traced function's SP keeps where it is called, in bytes; `None` if it is that of the psABI.
    pub body_align: Option<u32>,
    /// The traced function is gone to by a return: its own return belongs to no call.
    pub body_by_return: bool,
    /// Bytes that count of each word of the context, if not all: the rest is 0 when the function is called.
    pub word_bytes: Vec<u8>,
    /// For a trampoline that is the function: where its program leaves the result, and of which C type it is.
    pub program_result: Option<ProgramResult>,
    /// The ip in the context of programs is the address of the traced function, not that of its site.
    pub ip_is_start: bool,
    /// The results that a boundary can have; empty if there is nothing to tell them apart by.
    pub results: Vec<StatedResult>,
    /// Values when the callee begins, or when another context is entered.
    pub passes: Vec<Gives>,
    /// The registers that the callee preserves, if it is no C function.
    pub callee_keeps: Option<RegSet>,
    /// The symbol of the variable to which a stub stores the error of a system call; `None` if it returns what the kernel returns.
    pub errno: Option<String>,
    /// For a switch: the contexts.
    pub contexts: Option<Contexts>,
    /// For displaced instructions: these, and their copies.
    pub displaced: Option<Displaced>,
}

impl Stated {
    /// May what is called before a program say that the program is not to be called?
    pub fn may_refuse(&self) -> bool {
        self.around_programs.iter().any(|program| !program.around.always)
    }

    /// The functions around each program, then those around all.
    pub fn brackets(&self) -> impl Iterator<Item = Option<&Bracket>> {
        let programs = self.around_programs.iter().map(|program| Some(&program.around));
        programs.chain([self.around_function.as_ref()])
    }
}

impl Default for Stated {
    fn default() -> Stated {
        Stated {
            arguments: None,
            through: Vec::new(),
            may_be_null: false,
            general_handlers: false,
            calls: 1,
            sp: Vec::new(),
            clear_flags: None,
            pushed: 0,
            holds: Vec::new(),
            next: Next::Behind(0),
            gives: Vec::new(),
            uncalled: None,
            thread: None,
            red_zone: 0,
            memory: Vec::new(),
            carries: RegSet::EMPTY,
            around_programs: Vec::new(),
            around_function: None,
            own: RegSet::EMPTY,
            body_align: None,
            body_by_return: false,
            word_bytes: Vec::new(),
            program_result: None,
            ip_is_start: false,
            results: Vec::new(),
            passes: Vec::new(),
            callee_keeps: None,
            errno: None,
            contexts: None,
            displaced: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::words::abi::{RegInfo, SyscallRegs};

    const fn reg(name: &'static str) -> RegInfo {
        RegInfo { name, dwarf: 0, emu: 0 }
    }

    pub(crate) const ABI: Abi = Abi {
        regs: &[reg("x0"), reg("x16"), reg("stack")],
        args: &[Reg(0)],
        rets: &[Reg(0)],
        syscall: SyscallRegs { number: Reg(0), args: &[] },
        exit_rets: &[],
        sret: Reg(0),
        hidden: RegSet::EMPTY,
        live: &[],
        callee_saved: RegSet::EMPTY,
        caller_saved: RegSet::EMPTY,
        linkage: RegSet::EMPTY,
        platform: RegSet::EMPTY,
        zero: None,
        sp: Reg(2),
        fp: Reg(1),
        link: None,
        vectors: 32,
        vector_bytes: 16,
        vector_column: 0,
        vector_args: &[],
        vector_rets: &[],
        vector_callee_saved: &[],
        vector_function_saved: &[],
        sp_align: 16,
        widens: false,
        scs: None,
        return_columns: &[],
    };

    /// A machine whose words tell where they are.
    struct Site;

    impl EntryState for Site {
        fn reg(&self, reg: Reg) -> u64 {
            1000 * (1 + u64::from(reg.0))
        }
        fn word(&self, at: u64) -> Option<u64> {
            Some(at.wrapping_mul(2))
        }
        fn other(&self, root: &Root) -> Option<u64> {
            Some(match root {
                Root::Pc => 5,
                Root::Result => 4,
                _ => 3,
            })
        }
    }

    fn value(text: &str) -> Option<u64> {
        Sum::parse(text, &ABI).ok()?.eval(&Site)
    }

    #[test]
    fn results_are_widened_as_the_psabi_says() {
        let (plain, widening) = (ABI, Abi { widens: true, ..ABI });
        let result = |bytes, signed| ProgramResult { whole: None, bytes, signed };
        let value = 0x1234_5678_9abc_def0;
        // RISC-V psABI, Integer Calling Convention: by the type's own sign to 32 bits, then by bit 31.
        for (bytes, signed, wanted) in [
            (8, false, value),
            (4, true, 0xffff_ffff_9abc_def0),
            (4, false, 0xffff_ffff_9abc_def0),
            (2, true, 0xffff_ffff_ffff_def0),
            (2, false, 0xdef0),
            (1, true, 0xffff_ffff_ffff_fff0),
            (1, false, 0xf0),
        ] {
            assert_eq!(result(bytes, signed).widened(value, &widening), Some(wanted), "{bytes} {signed}");
            assert_eq!(result(bytes, signed).widened(value, &plain), Some(value).filter(|_| bytes == 8));
        }
    }

    #[test]
    fn sums_are_read_as_they_are_written() {
        for (text, expected) in [
            ("x0", 1000),
            ("12", 12),
            ("0x10", 16),
            ("-1", u64::MAX),
            ("sp+8", 3008),
            ("[x16-8]", 3984),
            ("[sp]", 6000),
            ("parent-ip", 3),
            ("pc - 5", 0),
            ("3*[sp] - 3*x0 + 2 - -1 + 1", 0),
        ] {
            let expected = if text.contains("- -") { None } else { Some(expected) };
            assert_eq!(value(text), expected, "{text}");
        }
        assert_eq!(value("3*[sp]-2*x0+2000-24"), Some(17976));
    }

    #[test]
    fn what_is_no_sum_is_refused() {
        for text in ["", "+", "x0 x16", "x1", "2*", "*x0", "[8]", "[2*x0]", "[x0", "[[x0]]", "ipx", "0xg", "5x0", "x0-"]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn one_thing_alone_is_told_from_a_sum() {
        let alone = |text: &str| Sum::parse(text, &ABI).unwrap().alone().cloned();
        assert_eq!(alone("frame"), Some(Root::Frame));
        assert_eq!(alone("frame+8"), None);
        assert_eq!(alone("2*x0"), None);
        assert_eq!(alone("7"), None);
    }
}
