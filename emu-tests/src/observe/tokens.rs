//! Values that tell where they come from: each register and each word of memory begins with one of its own.

use std::fmt;

use link::Image;
use rustc_hash::FxHashMap;

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};

/// The first such value, and from one to the next. They are far from images and stack, and pages can be put there. Where code
/// goes to memory that holds one, RISC-V decodes it before any hook: the low half is c.lw s0, 0(s0).
const FIRST: u64 = 0x51_0000_4000;
const STEP: u64 = 0x2_0000;
/// What nobody has written yet differs in the upper half from all else: half a store shows.
const STALE: u64 = 0x100_0000_0000;
/// What is so near to one is that one plus something.
const NEAR: i64 = 0x8000;
/// Smaller numbers are constants.
const SMALL: u64 = 0x1_0000;

/// What nobody has written yet, in words.
pub(super) const OLDER: &str = "older";

/// Where a value was first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// In this register at the entry.
    Register(&'static str),
    /// In the stack, so many bytes above or below where SP was at the entry.
    Stack(i64),
    /// In this place of other memory.
    Memory(String),
    /// What the call with this number returned in this register.
    Returned(usize, &'static str),
    /// What that call left in it.
    Left(usize, &'static str),
    /// What that call stored.
    Stored(usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Register(name) => write!(f, "{name}"),
            Origin::Stack(at) if *at < 0 => write!(f, "{OLDER}"),
            Origin::Stack(at) => write!(f, "[stack+{at:#x}]"),
            Origin::Memory(place) => write!(f, "[{place}]"),
            Origin::Returned(call, name) => write!(f, "{name} of call {call}"),
            Origin::Left(call, name) => write!(f, "{name} as call {call} left it"),
            Origin::Stored(call) => write!(f, "what call {call} stored"),
        }
    }
}

/// All such values of a run.
#[derive(Default)]
pub(super) struct Tokens {
    all: Vec<Origin>,
}

impl Tokens {
    /// One more.
    pub(super) fn of(&mut self, origin: Origin) -> u64 {
        let stale = if matches!(origin, Origin::Stack(..0)) { STALE } else { 0 };
        self.all.push(origin);
        FIRST + stale + (self.all.len() as u64 - 1) * STEP
    }

    /// Where a value comes from, and how far it is from what was there.
    fn origin(&self, value: u64) -> Option<(&Origin, i64)> {
        let index = value.wrapping_add(NEAR as u64).checked_sub(FIRST)? / STEP;
        let origin = self.all.get(usize::try_from(index).ok()?)?;
        let delta = value.wrapping_sub(FIRST + index * STEP) as i64;
        (-NEAR..NEAR).contains(&delta).then_some((origin, delta))
    }

    /// What a value is, in words; `sp` is where SP was at the entry.
    pub(super) fn name(&self, value: u64, image: &Names, sp: u64) -> String {
        if value < SMALL || value > SMALL.wrapping_neg() {
            return format!("{}", value as i64);
        }
        if value.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE {
            return signed("&stack", value.wrapping_sub(sp) as i64);
        }
        if let Some((origin, delta)) = self.origin(value) {
            return signed(&origin.to_string(), delta);
        }
        if let Some(name) = image.name(value) {
            return name;
        }
        // Half a word was stored over what nobody had written.
        if let Some((origin, delta)) = value.checked_sub(STALE).and_then(|value| self.origin(value)) {
            let stale = matches!(origin, Origin::Stack(..0));
            return if stale { OLDER.to_owned() } else { format!("half of {}", signed(&origin.to_string(), delta)) };
        }
        // No token is below 4 GiB.
        match self.origin(value & u64::from(u32::MAX) | FIRST >> 32 << 32) {
            Some((origin, 0)) if value <= u64::from(u32::MAX) => format!("low half of {origin}"),
            _ => format!("{value:#x}"),
        }
    }
}

/// A name and bytes behind it.
fn signed(name: &str, by: i64) -> String {
    match by {
        0 => name.to_owned(),
        1.. => format!("{name}+{by:#x}"),
        _ => format!("{name}-{:#x}", by.unsigned_abs()),
    }
}

/// What the addresses of an image are called.
pub(super) struct Names {
    exact: FxHashMap<u64, String>,
    sized: Vec<(u64, u64, String)>,
}

impl Names {
    pub(super) fn of(image: &Image) -> Names {
        let named = || image.symbols.iter().filter(|s| !s.name.is_empty() && !s.name.starts_with(['.', '$']));
        // Symbols are ordered: a global name comes after a local one, and wins.
        let exact = named().map(|s| (s.address, s.name.clone())).collect();
        let sized = named().filter(|s| s.size > 0).map(|s| (s.address, s.size, s.name.clone())).collect();
        Names { exact, sized }
    }

    /// Those of no image.
    pub(super) fn none() -> Names {
        Names { exact: FxHashMap::default(), sized: Vec::new() }
    }

    pub(super) fn name(&self, address: u64) -> Option<String> {
        if let Some(name) = self.exact.get(&address) {
            return Some(name.clone());
        }
        let (start, _, name) = self.sized.iter().find(|(start, size, _)| address.wrapping_sub(*start) < *size)?;
        Some(signed(name, address.wrapping_sub(*start) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told() {
        let names = Names { exact: FxHashMap::default(), sized: vec![(0x7000_0000, 16, "f".to_owned())] };
        let mut tokens = Tokens::default();
        let (rdi, word) = (tokens.of(Origin::Register("rdi")), tokens.of(Origin::Stack(8)));
        let sp = STACK_TOP - 0x1000;
        let name = |value| tokens.name(value, &names, sp);
        assert_eq!(name(rdi), "rdi");
        assert_eq!(name(rdi + 8), "rdi+0x8");
        assert_eq!(name(word - 1), "[stack+0x8]-0x1");
        assert_eq!(name(word & u64::from(u32::MAX)), "low half of [stack+0x8]");
        let older = tokens.of(Origin::Stack(-8));
        let name = |value| tokens.name(value, &names, sp);
        assert_eq!(name(older), "older");
        assert_eq!(name(older & !u64::from(u32::MAX) | rdi & u64::from(u32::MAX)), "half of rdi");
        assert_eq!(name(sp - 16), "&stack-0x10");
        assert_eq!(name(0x7000_0004), "f+0x4");
        assert_eq!(name(3_u64.wrapping_neg()), "-3");
        assert_eq!(name(0x1234_5678_9abc), "0x123456789abc");
        assert_eq!(name(older + STEP), format!("{:#x}", older + STEP));
    }
}
