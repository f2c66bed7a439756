//! Arguments of a probe: `[NAME=]FETCH[:TYPE]`.

use super::machine::{Machine, Symbol};
use super::problem::{Problem, Refused};

/// The most levels of `+OFFSET(...)`.
pub const NESTED: usize = 8;
/// The most characters of an argument's name.
const NAME: usize = 32;
const TEXT: usize = 255;
/// The most elements of an array.
const ARRAY: u64 = 64;
/// Words of a kernel stack, which bound `$stackN` and `$argN`.
const STACK: u64 = 2048;

/// The kinds of values that are available to a probe's arguments.
pub(super) struct Context<'c> {
    pub(super) machine: &'c dyn Machine,
    /// Results are available.
    pub(super) returns: bool,
    /// Registers are available.
    pub(super) registers: bool,
    /// The probe is behind the function's beginning.
    pub(super) inside: bool,
}

/// The start of a fetch: the value to which offsets and loads apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base<'d> {
    /// `$argN`, from 1.
    Arg(u64),
    /// `$retval`.
    Retval,
    /// `$stack`: the stack pointer.
    StackAddress,
    /// `$stackN`.
    Stack(u64),
    /// `%reg`.
    Register(&'d str),
    /// `$comm`.
    Comm,
    /// `@ADDR`, or `@SYM` with its offset: the word at this address.
    Memory(u64),
    /// `\IMM`.
    Immediate(i64),
    /// `\"text"`.
    Text(&'d str),
}

/// The format in which a value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned decimal number of this many bits.
    Unsigned(u32),
    /// A signed decimal number of this many bits.
    Signed(u32),
    /// A hexadecimal number of this many bits.
    Hex(u32),
    /// One character.
    Char,
    /// The symbol whose address the value is.
    Symbol,
    /// A string in memory.
    String,
    /// A bit field of a word: its width, its offset, and the word's width.
    Bits(u32, u32, u32),
}

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'d> {
    /// The argument's name, if one is given.
    pub name: Option<&'d str>,
    /// The text behind `=`.
    pub text: &'d str,
    /// The value to which the first offset is added.
    pub base: Base<'d>,
    offsets: [i64; NESTED],
    levels: usize,
    /// The format in which the value is printed.
    pub kind: Kind,
    /// The number of elements, if the value is an array.
    pub array: Option<u64>,
}

impl<'d> Argument<'d> {
    /// Offsets to add, each followed by a load, the innermost first.
    #[must_use]
    pub fn offsets(&self) -> &[i64] {
        &self.offsets[..self.levels]
    }

    /// Is the value in memory?
    fn in_memory(&self) -> bool {
        self.levels > 0 || matches!(self.base, Base::Memory(_))
    }

    /// Read an argument that begins at `column`.
    pub(super) fn parse(text: &'d str, column: usize, context: &Context<'_>) -> Result<Self, Refused> {
        let refused = |problem, at| Err(Refused { problem, column: column + at });
        let (name, body, at) = match text.split_once('=') {
            Some(("", _)) => return refused(Problem::NoArgName, 0),
            Some((name, _)) if name.len() > NAME => return refused(Problem::ArgNameTooLong, 0),
            Some((name, _)) if !is_identifier(name) => return refused(Problem::BadArgName, 0),
            Some((name, body)) => (Some(name), body, name.len() + 1),
            None => (None, text, 0),
        };
        if body.len() > TEXT {
            return refused(Problem::ArgTooLong, at);
        }
        if body.is_empty() {
            return refused(Problem::NoArgBody, at);
        }
        let (fetch, kind) = match body.split_once(':') {
            Some((fetch, kind)) => (fetch, Some((kind, column + at + fetch.len() + 1))),
            None => (body, None),
        };
        let (kind, array) = kind.map_or(Ok((Kind::Hex(64), None)), |(kind, at)| parse_kind(kind, at))?;
        let empty = Self { name, text: body, base: Base::Retval, offsets: [0; NESTED], levels: 0, kind, array };
        let mut parsed = Fetch { argument: empty, context };
        parsed.read(fetch, column + at, 0)?;
        let mut argument = parsed.argument;
        let kind_at = at + fetch.len() + 1;
        match argument.base {
            Base::Text(_) | Base::Comm => argument.kind = Kind::String,
            _ if kind == Kind::String && !argument.in_memory() => return refused(Problem::BadString, kind_at),
            _ if array.is_some() && !argument.in_memory() => return refused(Problem::BadArraySuffix, kind_at),
            _ => {}
        }
        Ok(argument)
    }
}

/// Does the text consist of letters, digits and `_`, without a digit first?
pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// A number as C writes it.
pub(super) fn number(text: &str) -> Option<u64> {
    let lower = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match lower {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    // `from_str_radix` would accept a sign.
    match digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        true => u64::from_str_radix(digits, radix).ok(),
        false => None,
    }
}

/// A number as C writes it, with an optional sign.
pub(super) fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => 0_i64.checked_sub_unsigned(number(digits)?),
        None => i64::try_from(number(text.strip_prefix('+').unwrap_or(text))?).ok(),
    }
}

struct Fetch<'d, 'c> {
    argument: Argument<'d>,
    context: &'c Context<'c>,
}

impl<'d> Fetch<'d, '_> {
    fn read(&mut self, text: &'d str, column: usize, level: usize) -> Result<(), Refused> {
        let refused = |problem| Err(Refused { problem, column });
        let mut rest = text.chars();
        let base = match rest.next() {
            Some('$') => self.variable(rest.as_str(), level),
            Some('%') if !self.context.registers => Err(Problem::BadVar),
            Some('%') if self.context.machine.is_register(rest.as_str()) => Ok(Base::Register(rest.as_str())),
            Some('%') => Err(Problem::BadRegName),
            Some('@') => self.memory(rest.as_str()),
            Some('+' | '-') => return self.dereference(text, column, level),
            Some('\\') => return self.immediate(rest.as_str(), column + 1),
            Some(c) if c.is_ascii_alphabetic() || c == '_' || c == '(' => Err(Problem::NosupBtfarg),
            _ => Err(Problem::BadFetchArg),
        };
        match base {
            Ok(base) => {
                self.argument.base = base;
                Ok(())
            }
            Err(problem) => refused(problem),
        }
    }

    fn variable(&self, name: &'d str, level: usize) -> Result<Base<'d>, Problem> {
        let of =
            |digits: &str| number(digits).filter(|n| *n <= STACK && digits.starts_with(|c: char| c.is_ascii_digit()));
        match name {
            "retval" if self.context.returns => Ok(Base::Retval),
            "retval" => Err(Problem::RetvalOnProbe),
            "stack" => Ok(Base::StackAddress),
            "comm" | "COMM" if level > 0 => Err(Problem::CommCantDeref),
            "comm" | "COMM" => Ok(Base::Comm),
            "arg*" => Err(Problem::NosupBtfarg),
            _ => {
                if let Some(digits) = name.strip_prefix("stack") {
                    return of(digits).map(Base::Stack).ok_or(Problem::BadStackNum);
                }
                let Some(digits) = name.strip_prefix("arg") else { return Err(Problem::BadVar) };
                let n = of(digits).filter(|n| *n > 0).ok_or(Problem::BadArgNum)?;
                if self.context.inside { Err(Problem::NoFentryArgs) } else { Ok(Base::Arg(n)) }
            }
        }
    }

    fn memory(&self, place: &'d str) -> Result<Base<'d>, Problem> {
        if place.starts_with('+') {
            return Err(Problem::FileOnKprobe);
        }
        if place.starts_with(|c: char| c.is_ascii_digit()) {
            return number(place).map(Base::Memory).ok_or(Problem::BadMemAddr);
        }
        let end = place.find(['+', '-']).unwrap_or(place.len());
        let (name, offset) = place.split_at(end);
        let offset = if offset.is_empty() { Some(0) } else { signed(offset) };
        match (self.context.machine.symbol(name), offset) {
            (Symbol::One(address), Some(offset)) => Ok(Base::Memory(address.wrapping_add_signed(offset))),
            _ => Err(Problem::BadMemAddr),
        }
    }

    fn dereference(&mut self, text: &'d str, column: usize, level: usize) -> Result<(), Refused> {
        let refused = |problem, at| Err(Refused { problem, column: column + at });
        if level == NESTED {
            return refused(Problem::TooManyNested, 0);
        }
        let Some(open) = text.find('(') else { return refused(Problem::DerefNeedBrace, 0) };
        // `+u8(...)` reads user memory, which this library does not distinguish from other memory.
        let digits = &text[1..open];
        let magnitude = number(digits.strip_prefix('u').unwrap_or(digits));
        let offset = magnitude.and_then(|n| i64::try_from(n).ok()).map(|n| if text.starts_with('-') { -n } else { n });
        let Some(offset) = offset else { return refused(Problem::BadDerefOffs, 0) };
        let Some(close) = text.rfind(')').filter(|close| *close > open) else {
            return refused(Problem::DerefOpenBrace, text.len());
        };
        self.read(&text[open + 1..close], column + open + 1, level + 1)?;
        self.argument.offsets[self.argument.levels] = offset;
        self.argument.levels += 1;
        Ok(())
    }

    fn immediate(&mut self, text: &'d str, column: usize) -> Result<(), Refused> {
        self.argument.base = match text.strip_prefix('"') {
            Some(rest) => match rest.strip_suffix('"') {
                Some(text) => Base::Text(text),
                None => return Err(Refused { problem: Problem::ImmstrNoClose, column: column + text.len() }),
            },
            None => Base::Immediate(signed(text).ok_or(Refused { problem: Problem::BadImm, column })?),
        };
        Ok(())
    }
}

fn parse_kind(text: &str, column: usize) -> Result<(Kind, Option<u64>), Refused> {
    let refused = |problem, at| Err(Refused { problem, column: column + at });
    let (name, array) = match text.split_once('[') {
        None => (text, None),
        Some((name, rest)) => {
            let Some((digits, behind)) = rest.split_once(']') else {
                return refused(Problem::ArrayNoClose, text.len());
            };
            if !behind.is_empty() {
                return refused(Problem::BadArraySuffix, text.len() - behind.len());
            }
            match number(digits) {
                None | Some(0) => return refused(Problem::BadArrayNum, name.len() + 1),
                Some(n) if n > ARRAY => return refused(Problem::ArrayTooBig, name.len() + 1),
                n => (name, n),
            }
        }
    };
    let width = |digits: &str| ["8", "16", "32", "64"].contains(&digits).then(|| digits.parse().unwrap_or(64));
    let kind = match (name, name.split_at_checked(1)) {
        ("char", _) => Some(Kind::Char),
        ("symbol", _) => Some(Kind::Symbol),
        ("string" | "ustring", _) => Some(Kind::String),
        (_, Some(("u", digits))) => width(digits).map(Kind::Unsigned),
        (_, Some(("s", digits))) => width(digits).map(Kind::Signed),
        (_, Some(("x", digits))) => width(digits).map(Kind::Hex),
        (_, Some(("b", rest))) if rest.starts_with(|c: char| c.is_ascii_digit()) => match bits(rest) {
            None => return refused(Problem::BadBitfield, 0),
            kind => kind,
        },
        _ => None,
    };
    kind.map_or_else(|| refused(Problem::BadType, 0), |kind| Ok((kind, array)))
}

fn bits(text: &str) -> Option<Kind> {
    let (width, rest) = text.split_once('@')?;
    let (offset, size) = rest.split_once('/')?;
    let of = |text: &str| number(text).filter(|n| *n <= 64).map(|n| n as u32);
    let (width, offset, size) = (of(width)?, of(offset)?, of(size)?);
    (width > 0 && [8, 16, 32, 64].contains(&size) && width + offset <= size).then_some(Kind::Bits(width, offset, size))
}
