//! Terms: the language in which contracts state values, and in which reports print observed values.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::words::abi::{Abi, Reg};
use crate::words::error::{Error, Result};
use crate::words::step::Value;

/// The origin of a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Root {
    /// Nothing: the value is a number.
    Number,
    /// A general register, as it was at the entry. For SP, it is an address in the stack.
    Reg(Reg),
    /// A vector register, by its number, as it was at the entry.
    Vector(u8),
    /// The flags register, as it was at the entry.
    Flags,
    /// A general register as the traced function, or the program in its place, left it.
    Body(Reg),
    /// A vector register as the traced function left it, by its number.
    BodyVector(u8),
    /// The address of the frame that a callee gets.
    Frame,
    /// The address behind the site's call.
    Pc,
    /// The first byte of the patched instruction.
    Ip,
    /// The address to which the traced function returns.
    ParentIp,
    /// The `ftrace_ops`.
    Op,
    /// The direct trampoline that a callback or the `ftrace_ops` names.
    Direct,
    /// The return value of the function that the trampoline calls.
    Result,
    /// The address that a symbol has.
    Symbol(Arc<str>),
    /// The 8 bytes at this address, as they were at the entry.
    Content(Arc<Term>),
    /// The value that the call with this number, from 1, left in a register: its result, or an undefined value.
    Left(u16, Reg),
    /// The value that the callee of the call with this number stored.
    Stored(u16),
    /// The address behind the call with this number.
    Behind(u16),
    /// The register with this number, from 1, by which a thread finds its memory, of those that are no general registers.
    Thread(u8),
    /// The CPU's clock when it was read first; each later read gives a greater value.
    Clock,
    /// Old contents of the stack below SP at the entry, not written since.
    Older,
    /// The address of memory that is no stack: a closure's data, a runtime's state, a saved context.
    Block,
    /// The end of a second stack, to which a trampoline may go.
    OtherStack,
    /// The value that the callee stored at the place with this number, from 1, of those that a contract names.
    StoredWord(u16),
    /// A general register as the context that a switch goes to had it when it was left.
    Entered(Reg),
}

/// The part of a value that is present.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// All 64 bits.
    All,
    /// The lower 32 bits; the upper 32 are zero.
    Low,
    /// The lower 32 bits, stored over old contents of the stack.
    LowOverOlder,
}

/// A value: its origin, and a number that is added.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    /// The origin of the value.
    pub root: Root,
    /// The number that is added, modulo 2 to the power of 64.
    pub add: i64,
    /// The part of the sum that is present.
    pub part: Part,
}

/// The state of the machine to which terms refer.
pub trait EntryState {
    /// The value of a general register.
    fn reg(&self, reg: Reg) -> u64;
    /// The 8 bytes at an address; `None` if unknown.
    fn word(&self, at: u64) -> Option<u64>;
    /// A value that is in no register and no word, such as the `ftrace_ops`; `None` if there is none.
    fn other(&self, root: &Root) -> Option<u64>;
}

/// The roots with a word of their own. `parent-ip` comes before `ip`, and is one word, not a difference.
const WORDS: [(&str, Root); 12] = [
    ("block", Root::Block),
    ("other-stack", Root::OtherStack),
    ("clock", Root::Clock),
    ("direct", Root::Direct),
    ("flags", Root::Flags),
    ("parent-ip", Root::ParentIp),
    ("frame", Root::Frame),
    ("ip", Root::Ip),
    ("op", Root::Op),
    ("pc", Root::Pc),
    ("result", Root::Result),
    ("older", Root::Older),
];

/// Values are read that have so many brackets at the most: whatever a file says, reading it ends.
const MOST_BRACKETS: usize = 16;

/// The limit up to which numbers are printed in decimal.
const SMALL: i64 = 0x1_0000;

impl Root {
    /// The root as a value that a profile can pass to callbacks; `None` for other roots.
    pub fn told(&self) -> Option<Value> {
        match self {
            Root::Ip => Some(Value::Ip),
            Root::ParentIp => Some(Value::ParentIp),
            Root::Op => Some(Value::Op),
            Root::Frame => Some(Value::Fregs),
            _ => None,
        }
    }

    /// The value in `state`; `None` if the state does not have it.
    pub fn eval(&self, state: &impl EntryState) -> Option<u64> {
        match self {
            Root::Number => Some(0),
            Root::Reg(reg) => Some(state.reg(*reg)),
            Root::Content(at) => state.word(at.eval(state)?),
            other => state.other(other),
        }
    }

    /// The words of the language, and the root of each.
    pub fn words() -> impl Iterator<Item = (&'static str, Root)> {
        WORDS.into_iter()
    }

    /// The root at the beginning of a text, and the rest of the text.
    pub fn read<'t>(text: &'t str, abi: &Abi) -> Option<(Root, &'t str)> {
        if text.starts_with('[') {
            let (inside, behind) = enclosed(text, ('[', ']'))?;
            return Some((Root::Content(Arc::new(Term::parse(inside, abi).ok()?)), behind));
        }
        if let Some(symbol) = text.strip_prefix('&') {
            let end = symbol.find(|c: char| !(c.is_alphanumeric() || "_.$@".contains(c))).unwrap_or(symbol.len());
            let (name, behind) = symbol.split_at(end);
            return Some((Root::Symbol(name.into()), behind)).filter(|_| !name.is_empty());
        }
        let ends = |behind: &str| !behind.starts_with(|c: char| c.is_ascii_alphanumeric());
        if let Some((word, found)) = WORDS.iter().find(|(word, _)| text.starts_with(word)) {
            return Some((found.clone(), &text[word.len()..])).filter(|(_, behind)| ends(behind));
        }
        let name = |text: &'t str| text.split_at(text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len()));
        let (first, behind) = name(text);
        if let (Some(call), Some(rest)) = (first.strip_prefix("call"), behind.strip_prefix('.')) {
            let (call, (what, behind)) = (call.parse().ok()?, name(rest));
            let root = match what {
                "stored" => Root::Stored(call),
                "end" => Root::Behind(call),
                reg => Root::Left(call, abi.find(reg)?),
            };
            return Some((root, behind));
        }
        let numbered = |text: &str, word: &str| text.strip_prefix(word)?.parse::<u8>().ok();
        if let Some(number) = numbered(first, "stored") {
            return Some((Root::StoredWord(number.into()), behind));
        }
        if let Some(number) = numbered(first, "thread") {
            return Some((Root::Thread(number), behind));
        }
        if let Some(number) = numbered(first, "vector") {
            return Some((Root::Vector(number), behind));
        }
        if let ("entered", Some(rest)) = (first, behind.strip_prefix('.')) {
            let (what, behind) = name(rest);
            return Some((Root::Entered(abi.find(what)?), behind));
        }
        if let ("function", Some(rest)) = (first, behind.strip_prefix('.')) {
            let (what, behind) = name(rest);
            let vector = numbered(what, "vector").map(Root::BodyVector);
            return Some((vector.or_else(|| abi.find(what).map(Root::Body))?, behind));
        }
        let reg = if first == "sp" { Some(abi.sp) } else { abi.find(first) };
        Some((Root::Reg(reg?), behind))
    }
}

/// The text between a bracket and its counterpart, and the rest behind it.
fn enclosed(text: &str, (open, close): (char, char)) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        depth = if c == open { depth + 1 } else { depth.saturating_sub(usize::from(c == close)) };
        if depth == 0 {
            return Some((text.get(open.len_utf8()..at)?, text.get(at + close.len_utf8()..)?));
        }
    }
    None
}

/// The number at the beginning of a text, and the rest of the text.
pub(crate) fn number(text: &str) -> Option<(i64, &str)> {
    let digits = text.strip_prefix("0x");
    let (radix, digits) = digits.map_or((10, text), |digits| (16, digits));
    let end = digits.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
    let (number, behind) = digits.split_at(end);
    let number = if radix == 16 { u64::from_str_radix(number, 16).ok()? as i64 } else { number.parse().ok()? };
    Some((number, behind))
}

impl From<Root> for Term {
    fn from(root: Root) -> Term {
        Term { root, add: 0, part: Part::All }
    }
}

impl Term {
    /// A number.
    pub fn number(n: i64) -> Term {
        Term { add: n, ..Root::Number.into() }
    }

    /// The 8 bytes at this address.
    pub fn content(self) -> Term {
        Root::Content(Arc::new(self)).into()
    }

    /// Is it a number near 0?
    pub fn is_small(&self) -> bool {
        self.root == Root::Number && (-SMALL..=SMALL).contains(&self.add)
    }

    /// The term plus `more`.
    pub fn plus(self, more: i64) -> Term {
        Term { add: self.add.wrapping_add(more), ..self }
    }

    /// The value in `state`; `None` if the state does not have it, or if it is a part over unknown contents.
    pub fn eval(&self, state: &impl EntryState) -> Option<u64> {
        let all = self.root.eval(state)?.wrapping_add(self.add as u64);
        match self.part {
            Part::All => Some(all),
            Part::Low => Some(all & u64::from(u32::MAX)),
            Part::LowOverOlder => None,
        }
    }

    /// Displays the term with the psABI's register names: as text for people, or with `{:#}` in the language of contracts.
    pub fn show<'t>(&'t self, abi: &'t Abi) -> impl fmt::Display + 't {
        Shown { term: self, abi }
    }

    /// Parse a term such as `rdi`, `[sp+8]`, `pc - 5`, `call1.rax`, `&my_callback`, `low(rdi)`.
    ///
    /// # Errors
    /// The text is no term, or names a register that does not exist.
    pub fn parse(text: &str, abi: &Abi) -> Result<Term> {
        let wrong = || {
            let words = WORDS.map(|(word, _)| word).join(", ");
            let valid = format!("a register, a word as [sp+8], a number, &SYMBOL, call1.REGISTER, {words}");
            Error::new(format!("'{text}' is no value; valid: {valid}"))
        };
        let whole = text.trim();
        if whole.matches(['[', '(']).count() > MOST_BRACKETS {
            return Err(Error::new(format!("a value with more than {MOST_BRACKETS} brackets")));
        }
        for (word, part) in [("low", Part::Low), ("half", Part::LowOverOlder)] {
            if let Some(rest) = whole.strip_prefix(word).filter(|rest| rest.starts_with('(')) {
                let (inside, behind) = enclosed(rest, ('(', ')')).ok_or_else(wrong)?;
                let term = Term::parse(inside, abi)?;
                return if behind.is_empty() && term.part == Part::All {
                    Ok(Term { part, ..term })
                } else {
                    Err(wrong())
                };
            }
        }
        let (minus, digits) = whole.strip_prefix('-').map_or((false, whole), |rest| (true, rest));
        if let Some((n, "")) = number(digits) {
            return Ok(Term::number(if minus { n.wrapping_neg() } else { n }));
        }
        let (root, rest) = Root::read(whole, abi).ok_or_else(wrong)?;
        let rest = rest.trim_start();
        let add = match rest.chars().next() {
            None => 0,
            Some(sign @ ('+' | '-')) => match number(rest[1..].trim_start()) {
                Some((n, "")) => {
                    if sign == '-' {
                        n.wrapping_neg()
                    } else {
                        n
                    }
                }
                _ => return Err(wrong()),
            },
            Some(_) => return Err(wrong()),
        };
        Ok(Term { root, add, part: Part::All })
    }
}

struct Shown<'t> {
    term: &'t Term,
    abi: &'t Abi,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { term: Term { root, add, part }, abi } = self;
        let exact = f.alternate();
        let (before, behind) = match (part, exact) {
            (Part::All, _) => ("", ""),
            (Part::Low, true) => ("low(", ")"),
            (Part::Low, false) => ("low half of ", ""),
            (Part::LowOverOlder, true) => ("half(", ")"),
            (Part::LowOverOlder, false) => ("half of ", ""),
        };
        f.write_str(before)?;
        match root {
            Root::Number if (-SMALL..=SMALL).contains(add) => return write!(f, "{add}{behind}"),
            Root::Number => return write!(f, "{add:#x}{behind}"),
            _ => root.write(f, abi)?,
        }
        write!(f, "{}{behind}", Plus(*add))
    }
}

/// An addend as text: nothing for 0, `+0x8`, `-0x8`.
#[derive(Clone, Copy, Debug)]
pub struct Plus(pub i64);

impl fmt::Display for Plus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1.. => write!(f, "+{:#x}", self.0),
            _ => write!(f, "-{:#x}", self.0.unsigned_abs()),
        }
    }
}

impl Root {
    fn write(&self, f: &mut fmt::Formatter<'_>, abi: &Abi) -> fmt::Result {
        let exact = f.alternate();
        if let Some((word, _)) = WORDS.iter().find(|(_, root)| root == self) {
            return f.write_str(if *self == Root::Frame && !exact { "&frame" } else { word });
        }
        match self {
            Root::Reg(reg) if *reg == abi.sp => f.write_str(if exact { "sp" } else { "&stack" }),
            Root::Reg(reg) => f.write_str(abi.name(*reg)),
            Root::Symbol(name) => write!(f, "{}{name}", if exact { "&" } else { "" }),
            Root::Content(at) => {
                f.write_char('[')?;
                match (&at.root, exact) {
                    // An address in the stack, not the value of a register.
                    (Root::Reg(reg), false) if *reg == abi.sp => write!(f, "stack+{:#x}", at.add)?,
                    (_, false) => write!(f, "{}", at.show(abi))?,
                    (_, true) => write!(f, "{:#}", at.show(abi))?,
                }
                f.write_char(']')
            }
            Root::Left(call, reg) if exact => write!(f, "call{call}.{}", abi.name(*reg)),
            Root::Left(call, reg) if abi.rets.contains(reg) => write!(f, "{} of call {call}", abi.name(*reg)),
            Root::Left(call, reg) => write!(f, "{} as call {call} left it", abi.name(*reg)),
            Root::Stored(call) if exact => write!(f, "call{call}.stored"),
            Root::Stored(call) => write!(f, "what call {call} stored"),
            Root::StoredWord(number) => write!(f, "stored{number}"),
            Root::Entered(reg) if exact => write!(f, "entered.{}", abi.name(*reg)),
            Root::Entered(reg) => write!(f, "{} of the context that is entered", abi.name(*reg)),
            Root::Thread(number) => write!(f, "thread{number}"),
            Root::Vector(number) => write!(f, "vector{number}"),
            Root::Body(reg) if exact => write!(f, "function.{}", abi.name(*reg)),
            Root::Body(reg) => write!(f, "{} of the function", abi.name(*reg)),
            Root::BodyVector(number) if exact => write!(f, "function.vector{number}"),
            Root::BodyVector(number) => write!(f, "vector{number} of the function"),
            Root::Behind(call) if exact => write!(f, "call{call}.end"),
            Root::Behind(call) => write!(f, "behind call {call}"),
            // These roots have words of their own.
            Root::Clock
            | Root::Direct
            | Root::Flags
            | Root::Number
            | Root::Frame
            | Root::Pc
            | Root::Ip
            | Root::ParentIp
            | Root::Op
            | Root::Result
            | Root::Block
            | Root::OtherStack
            | Root::Older => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::stated::tests::ABI;

    #[test]
    fn what_is_written_is_read_again() {
        for (exact, plain) in [
            ("x0", "x0"),
            ("x0+0x8", "x0+0x8"),
            ("sp-0x10", "&stack-0x10"),
            ("[sp+0x8]", "[stack+0x8]"),
            ("[sp]-0x1", "[stack+0x0]-0x1"),
            ("[[x16-0x8]+0xd0]", "[[x16-0x8]+0xd0]"),
            ("frame+0x8", "&frame+0x8"),
            ("parent-ip", "parent-ip"),
            ("&my_callback.cold+0x4", "my_callback.cold+0x4"),
            ("call1.x0", "x0 of call 1"),
            ("call12.x16", "x16 as call 12 left it"),
            ("call1.stored+0x1", "what call 1 stored+0x1"),
            ("call2.end", "behind call 2"),
            ("low(x0+0x4)", "low half of x0+0x4"),
            ("half([sp+0x8])", "half of [stack+0x8]"),
            ("older", "older"),
            ("[thread1-0x8]", "[thread1-0x8]"),
            ("clock+0x1", "clock+0x1"),
            ("direct-0x1", "direct-0x1"),
            ("flags", "flags"),
            ("vector3", "vector3"),
            ("function.x0", "x0 of the function"),
            ("function.vector0", "vector0 of the function"),
            ("-3", "-3"),
            ("65535", "65535"),
            ("0x123456789abc", "0x123456789abc"),
            ("0xffff800000000000", "0xffff800000000000"),
        ] {
            let term = Term::parse(exact, &ABI).unwrap();
            assert_eq!((format!("{:#}", term.show(&ABI)), term.show(&ABI).to_string()), (exact.into(), plain.into()));
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for text in
            ["", "&", "x1", "x0+x0", "2*x0", "[x0", "low(x0", "low(low(x0))", "call.x0", "call1.x1", "ipx", "x0-"]
        {
            assert!(Term::parse(text, &ABI).is_err(), "{text}");
        }
        for (open, close) in [("[", "]"), ("low(", ")")] {
            let deep = format!("{}x0{}", open.repeat(1 << 20), close.repeat(1 << 20));
            assert!(Term::parse(&deep, &ABI).is_err());
        }
    }
}
