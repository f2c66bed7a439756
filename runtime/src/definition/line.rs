//! A definition's line.

use core::fmt;

use super::argument::{Argument, Base, Context, is_identifier, number, signed};
use super::machine::{Machine, Symbol, words};
use super::problem::{Problem, Refused};

/// The most arguments of a probe.
const ARGS: usize = 128;
/// The most characters of an event's or a group's name.
const NAME: usize = 63;
/// The most pending returns.
const MAXACTIVE: u64 = 4096;
/// The most arguments that an exit probe can save at the entry: a word each of its 120 bytes of data.
const KEPT: u32 = 15;

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// `p`: at an instruction.
    Kprobe,
    /// `r`: at the returns of a function, with the most pending returns, if given.
    Kretprobe(Option<u64>),
    /// `f`: at entries of a function.
    FprobeEntry,
    /// `f` with `%return`, or with `$retval`: at the returns of a function.
    FprobeExit,
}

impl ProbeKind {
    /// Is the probe at returns?
    #[must_use]
    pub const fn returns(self) -> bool {
        matches!(self, Self::Kretprobe(_) | Self::FprobeExit)
    }

    const fn is_fprobe(self) -> bool {
        matches!(self, Self::FprobeEntry | Self::FprobeExit)
    }
}

/// A name that was given, or was made from the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME],
    len: usize,
}

impl Name {
    const fn empty() -> Self {
        Self { bytes: [0; NAME], len: 0 }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }

    fn of(text: &str) -> Self {
        let mut name = Self::empty();
        let _ = fmt::Write::write_str(&mut name, text);
        name
    }
}

/// Other characters than letters, digits and `_` become `_`, and long names are cut, as for names that the kernel makes.
impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes().take(NAME - self.len) {
            self.bytes[self.len] = if byte.is_ascii_alphanumeric() || byte == b'-' { byte } else { b'_' };
            self.len += 1;
        }
        Ok(())
    }
}

/// A probe as it was defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition<'d> {
    /// Entry, return or instruction.
    pub kind: ProbeKind,
    /// The group of its event.
    pub group: Name,
    /// The name of the event.
    pub event: Name,
    /// The function's name, if it was given by name.
    pub symbol: Option<&'d str>,
    /// Bytes from the function's beginning.
    pub offset: i64,
    /// The address of the place.
    pub address: u64,
    line: &'d str,
}

impl<'d> Definition<'d> {
    /// The arguments of the probe, in order.
    pub fn arguments(&self, machine: &dyn Machine) -> impl Iterator<Item = Argument<'d>> {
        let context = self.context(machine);
        positions(self.line).skip(2).filter_map(move |(text, at)| Argument::parse(text, at, &context).ok())
    }

    fn context<'c>(&self, machine: &'c dyn Machine) -> Context<'c> {
        let inside = self.offset != 0 && !self.kind.returns();
        Context { machine, returns: self.kind.returns(), registers: !self.kind.is_fprobe(), inside }
    }

    /// The words of the line that are arguments, with their columns.
    pub(super) fn argument_words(&self) -> impl Iterator<Item = (&'d str, usize)> {
        positions(self.line).skip(2)
    }

    /// Read a line that defines a probe.
    pub(super) fn parse(line: &'d str, machine: &dyn Machine) -> Result<Self, Refused> {
        let refused = |problem, column| Err(Refused { problem, column });
        let mut rest = positions(line);
        let (head, _) = rest.next().ok_or(Refused { problem: Problem::NoType, column: 0 })?;
        let (kind, names) = match head.split_once(':') {
            Some((kind, names)) => (kind, Some((names, kind.len() + 1))),
            None => (head, None),
        };
        let mut kind = parse_prefix(kind)?;
        let (group, event) = names.map_or(Ok((None, None)), |(names, at)| parse_names(names, at))?;
        let Some((place, at)) = rest.next() else { return refused(Problem::BadProbeAddr, head.len()) };
        let place = match place.split_once('%') {
            Some((place, "return")) => {
                kind = if kind.is_fprobe() { ProbeKind::FprobeExit } else { kind };
                kind = if kind == ProbeKind::Kprobe { ProbeKind::Kretprobe(None) } else { kind };
                place
            }
            Some((before, _)) => return refused(Problem::BadAddrSuffix, at + before.len()),
            None => place,
        };
        let (symbol, offset, address) =
            parse_place(place, kind, machine).map_err(|problem| Refused { problem, column: at })?;
        if kind == ProbeKind::FprobeEntry && rest.clone().any(|(text, _)| text.contains("$retval")) {
            kind = ProbeKind::FprobeExit;
        }
        let group = group.unwrap_or_else(|| Name::of(if kind.is_fprobe() { "fprobes" } else { "kprobes" }));
        let event = event.unwrap_or_else(|| default_name(kind, symbol, offset, address));
        let definition = Self { kind, group, event, symbol, offset, address, line };
        definition.check_arguments(machine)?;
        Ok(definition)
    }

    fn check_arguments(&self, machine: &dyn Machine) -> Result<(), Refused> {
        let context = self.context(machine);
        let mut kept = [0_u64; 33];
        let first = self.argument_words().next().map_or(0, |(_, at)| at);
        for (index, (text, column)) in self.argument_words().enumerate() {
            if index == ARGS {
                return Err(Refused { problem: Problem::TooManyArgs, column: first });
            }
            let argument = Argument::parse(text, column, &context)?;
            let reserved = |name: &str| RESERVED.contains(&name);
            let mut before = self.argument_words().take(index).enumerate();
            let mut used = |name: &str| before.any(|(at, (text, _))| is_named(text, at, name));
            if argument.name.is_some_and(|name| reserved(name) || used(name)) {
                return Err(Refused { problem: Problem::UsedArgName, column });
            }
            if let Base::Arg(n) = argument.base {
                kept[n as usize / 64] |= 1 << (n % 64);
            }
        }
        let count: u32 = kept.iter().map(|w| w.count_ones()).sum();
        match self.kind == ProbeKind::FprobeExit && count > KEPT {
            true => Err(Refused { problem: Problem::TooManyEargs, column: first }),
            false => Ok(()),
        }
    }
}

/// Names that every event has.
const RESERVED: [&str; 8] = [
    "common_type",
    "common_flags",
    "common_preempt_count",
    "common_pid",
    "common_tgid",
    "__probe_ip",
    "__probe_ret_ip",
    "__probe_func",
];

/// Does the argument at `index` (from 0) have the name `name`, given or by default?
fn is_named(text: &str, index: usize, name: &str) -> bool {
    match text.split_once('=') {
        Some((given, _)) => given == name,
        None => name.strip_prefix("arg").and_then(number) == Some(index as u64 + 1),
    }
}

/// The words of a line, with their columns when single blanks join them.
fn positions(line: &str) -> impl Iterator<Item = (&str, usize)> + Clone {
    words(line).scan(0, |at, word| {
        let column = *at;
        *at += word.len() + 1;
        Some((word, column))
    })
}

fn parse_prefix(text: &str) -> Result<ProbeKind, Refused> {
    let refused = |problem, column| Err(Refused { problem, column });
    let (kind, count) = text.split_at_checked(1).unwrap_or((text, ""));
    match (kind, count) {
        ("p", "") => Ok(ProbeKind::Kprobe),
        ("p", _) => refused(Problem::BadMaxactType, 1),
        ("r", "") => Ok(ProbeKind::Kretprobe(None)),
        ("r", digits) => match number(digits) {
            None | Some(0) => refused(Problem::BadMaxact, 1),
            Some(n) if n > MAXACTIVE => refused(Problem::MaxactTooBig, 1),
            n => Ok(ProbeKind::Kretprobe(n)),
        },
        ("f", "") => Ok(ProbeKind::FprobeEntry),
        ("f", _) => refused(Problem::BadMaxact, 1),
        _ => refused(Problem::NoType, 0),
    }
}

/// The group and the event behind `:`.
pub(super) fn parse_names(text: &str, column: usize) -> Result<(Option<Name>, Option<Name>), Refused> {
    let refused = |problem, column| Err(Refused { problem, column });
    let is_group = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c))
    };
    let (group, event) = match text.split_once('/').or_else(|| text.split_once('.')) {
        Some(("", _)) => return refused(Problem::NoGroupName, column),
        Some((group, _)) if group.len() > NAME => return refused(Problem::GroupTooLong, column),
        Some((group, _)) if !is_group(group) => return refused(Problem::BadGroupName, column),
        Some((group, event)) => (Some(group), event),
        None => (None, text),
    };
    let column = column + group.map_or(0, |g| g.len() + 1);
    let event = match event {
        "" if group.is_some() => None,
        "" => return refused(Problem::NoEventName, column),
        _ if event.len() > NAME => return refused(Problem::EventTooLong, column),
        _ if !is_identifier(event) => return refused(Problem::BadEventName, column),
        _ => Some(Name::of(event)),
    };
    Ok((group.map(Name::of), event))
}

/// The symbol, the offset and the address of a place.
fn parse_place<'d>(
    place: &'d str,
    kind: ProbeKind,
    machine: &dyn Machine,
) -> Result<(Option<&'d str>, i64, u64), Problem> {
    if let (Some(address), false) = (number(place), kind.is_fprobe()) {
        return match (kind.returns(), machine.is_function(address), machine.is_instruction(address)) {
            (true, false, _) => Err(Problem::BadRetprobe),
            (false, _, false) => Err(Problem::BadInsnBndry),
            _ => Ok((None, 0, address)),
        };
    }
    let end = if kind.is_fprobe() { None } else { place.find(['+', '-']) };
    let (name, offset) = place.split_at(end.unwrap_or(place.len()));
    let offset = if offset.is_empty() { Some(0) } else { signed(offset) }.ok_or(Problem::BadProbeAddr)?;
    let address = match machine.symbol(name) {
        Symbol::One(address) => address,
        Symbol::Many => return Err(Problem::NonUniqSymbol),
        Symbol::None => return Err(Problem::BadProbeAddr),
    };
    let place = address.wrapping_add_signed(offset);
    if kind.is_fprobe() && !machine.is_traceable(address) {
        return Err(Problem::BadProbeAddr);
    }
    if kind.returns() && offset != 0 {
        return Err(Problem::BadRetprobe);
    }
    if !machine.is_instruction(place) {
        return Err(Problem::BadInsnBndry);
    }
    Ok((Some(name), offset, place))
}

fn default_name(kind: ProbeKind, symbol: Option<&str>, offset: i64, address: u64) -> Name {
    use fmt::Write;
    let mut name = Name::empty();
    let letter = if kind.returns() { 'r' } else { 'p' };
    // Writing a `Name` cannot fail: it cuts long text.
    let _ = match (symbol, kind) {
        (Some(symbol), ProbeKind::FprobeEntry) => write!(name, "{symbol}__entry"),
        (Some(symbol), ProbeKind::FprobeExit) => write!(name, "{symbol}__exit"),
        (Some(symbol), _) => write!(name, "{letter}_{symbol}_{offset}"),
        (None, _) => write!(name, "{letter}_0x{address:x}"),
    };
    name
}

/// As the kernel lists it: `p:GROUP/EVENT PLACE NAME=FETCH ...`.
impl fmt::Display for Definition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.kind {
            ProbeKind::Kprobe => f.write_str("p")?,
            ProbeKind::Kretprobe(None) => f.write_str("r")?,
            ProbeKind::Kretprobe(Some(most)) => write!(f, "r{most}")?,
            ProbeKind::FprobeEntry | ProbeKind::FprobeExit => f.write_str("f")?,
        }
        write!(f, ":{}/{} ", self.group.as_str(), self.event.as_str())?;
        match (self.symbol, self.offset) {
            (None, _) => write!(f, "{:#x}", self.address)?,
            (Some(symbol), 0) => f.write_str(symbol)?,
            (Some(symbol), offset) => write!(f, "{symbol}{offset:+}")?,
        }
        if self.kind == ProbeKind::FprobeExit {
            f.write_str("%return")?;
        }
        for (index, (text, _)) in self.argument_words().enumerate() {
            match text.contains('=') {
                true => write!(f, " {text}")?,
                false => write!(f, " arg{}={text}", index + 1)?,
            }
        }
        Ok(())
    }
}
