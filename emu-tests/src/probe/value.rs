//! What arguments of probes are when the CPU stops, and how they are written.

use std::fmt::Write;

use runtime::definition::{Argument, Base, Kind};

use super::breakpoint::Uc;
use crate::engine::registers::{Registers, Snapshot};

/// The longest string that is read.
const STRING: usize = 255;

/// Registers and memory, and what was kept from the entry: arguments by number.
pub(super) struct Values<'s> {
    pub(super) uc: &'s Uc<'s>,
    pub(super) registers: Registers,
    pub(super) all: &'s Snapshot,
    pub(super) kept: Vec<(u64, u64)>,
}

impl Values<'_> {
    fn load(&self, at: u64, bits: u32) -> Option<u64> {
        let mut bytes = [0; 8];
        self.uc.load(at, &mut bytes[..bits as usize / 8]).then(|| u64::from_le_bytes(bytes))
    }

    /// Argument number `n`, from 1, of a function that was just entered, or what was kept of it.
    pub(super) fn argument(&self, n: u64) -> Option<u64> {
        if let Some((_, value)) = self.kept.iter().find(|(number, _)| *number == n) {
            return Some(*value);
        }
        let abi = self.registers.abi;
        let index = usize::try_from(n).ok()?.checked_sub(1)?;
        match abi.args.get(index) {
            Some(reg) => Some(self.all[*reg]),
            None => {
                let above = abi.return_bytes() + 8 * (index - abi.args.len()) as u64;
                self.load(self.all[abi.sp].wrapping_add(above), 64)
            }
        }
    }

    /// Where a value is in memory, or what it is. None: a load fails.
    fn find(&self, argument: &Argument) -> Option<Found> {
        let abi = self.registers.abi;
        let sp = self.all[abi.sp];
        let mut found = match argument.base {
            Base::Arg(n) => Found::Is(self.argument(n)?),
            Base::Retval => Found::Is(self.all[abi.rets[0]]),
            Base::StackAddress => Found::Is(sp),
            Base::Stack(n) => Found::Is(self.load(sp.wrapping_add(8 * n), 64)?),
            Base::Register(name) => Found::Is(self.all[self.registers.machine.pt_reg(abi, name)?]),
            Base::Memory(at) => Found::At(at),
            Base::Immediate(value) => Found::Is(value as u64),
            Base::Comm | Base::Text(_) => return None,
        };
        for offset in argument.offsets() {
            let value = match found {
                Found::Is(value) => value,
                Found::At(at) => self.load(at, 64)?,
            };
            found = Found::At(value.wrapping_add_signed(*offset));
        }
        Some(found)
    }

    fn string(&self, at: u64) -> Option<String> {
        let mut text = String::new();
        for offset in 0..STRING as u64 {
            let byte = self.load(at.wrapping_add(offset), 8)? as u8;
            if byte == 0 {
                break;
            }
            // Whatever a terminal would act on is written as its number.
            text.extend(byte.escape_ascii().map(char::from));
        }
        Some(text)
    }
}

#[derive(Clone, Copy)]
enum Found {
    Is(u64),
    At(u64),
}

/// Bits that a value of this kind has in memory.
const fn width(kind: Kind) -> u32 {
    match kind {
        Kind::Unsigned(bits) | Kind::Signed(bits) | Kind::Hex(bits) | Kind::Bits(_, _, bits) => bits,
        Kind::Char => 8,
        Kind::Symbol | Kind::String => 64,
    }
}

/// An argument as the trace has it; `place` names an address.
pub(super) fn shown(argument: &Argument, values: &Values, place: &dyn Fn(u64) -> String) -> String {
    match argument.base {
        Base::Text(text) => return format!("\"{text}\""),
        Base::Comm => return "\"tramptool\"".to_owned(),
        _ => {}
    }
    let fault = || "(fault)".to_owned();
    let Some(found) = values.find(argument) else { return fault() };
    let bits = width(argument.kind);
    let one = |index: u64| match (argument.kind, found) {
        (Kind::String, Found::At(at)) => values.string(at).map(|text| format!("\"{text}\"")),
        (kind, Found::Is(value)) => Some(number(kind, value, place)),
        (kind, Found::At(at)) => {
            let at = at.wrapping_add(index * u64::from(bits / 8));
            values.load(at, bits).map(|value| number(kind, value, place))
        }
    };
    let Some(count) = argument.array else { return one(0).unwrap_or_else(fault) };
    let mut list = String::new();
    for index in 0..count {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(list, "{comma}{}", one(index).unwrap_or_else(fault));
    }
    format!("{{{list}}}")
}

fn number(kind: Kind, value: u64, place: &dyn Fn(u64) -> String) -> String {
    let cut = |bits: u32| value & (u64::MAX >> (64 - bits));
    match kind {
        Kind::Unsigned(bits) => cut(bits).to_string(),
        Kind::Signed(bits) => ((value << (64 - bits)) as i64 >> (64 - bits)).to_string(),
        Kind::Hex(bits) => format!("{:#x}", cut(bits)),
        Kind::Char => format!("'{}'", (value as u8).escape_ascii()),
        Kind::Symbol | Kind::String => place(value),
        Kind::Bits(width, offset, _) => (value >> offset & (u64::MAX >> (64 - width))).to_string(),
    }
}
