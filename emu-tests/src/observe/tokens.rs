//! Values that tell where they come from: each register and each word of memory begins with one of its own.

use std::sync::Arc;

use codegen::words::abi::Abi;
use codegen::words::term::{Part, Root, Term};
use link::Image;
use rustc_hash::FxHashMap;

use crate::engine::cpu::{STACK_SIZE, STACK_TOP};

/// The first such value, and from one to the next. They are far from images and stack, and pages can be put there. Where code
/// goes to memory that holds one, RISC-V decodes it before any hook: the low half is c.lw s0, 0(s0).
const FIRST: u64 = 0x51_0000_4000;
const STEP: u64 = 0x2_0000;
/// Where images begin that reach so far up: far from such values too, with bits in both halves.
pub(super) const CODE: u64 = 0x5d_36c0_0000;
/// What nobody has written yet differs in the upper half from all else: half a store shows.
const STALE: u64 = 0x100_0000_0000;
/// What is so near to one is that one plus something.
const NEAR: i64 = 0x8000;

/// All such values of a run.
pub(super) struct Tokens {
    abi: &'static Abi,
    all: Vec<Root>,
}

impl Tokens {
    /// None yet.
    pub(super) fn none(abi: &'static Abi) -> Tokens {
        Tokens { abi, all: Vec::new() }
    }

    /// One more.
    pub(super) fn of(&mut self, root: Root) -> u64 {
        let stale = if root == Root::Older { STALE } else { 0 };
        self.all.push(root);
        FIRST + stale + (self.all.len() as u64 - 1) * STEP
    }

    /// Where a value comes from, and how far it is from what was there.
    fn origin(&self, value: u64) -> Option<(&Root, i64)> {
        let index = value.wrapping_add(NEAR as u64).checked_sub(FIRST)? / STEP;
        let origin = self.all.get(usize::try_from(index).ok()?)?;
        let delta = value.wrapping_sub(FIRST + index * STEP) as i64;
        (-NEAR..NEAR).contains(&delta).then_some((origin, delta))
    }

    /// What a value is; `sp` is where SP was at the entry.
    pub(super) fn term(&self, value: u64, image: &Names, sp: u64) -> Term {
        let number = Term::number(value as i64);
        if number.is_small() {
            return number;
        }
        if value.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE {
            return Term::from(Root::Reg(self.abi.sp)).plus(value.wrapping_sub(sp) as i64);
        }
        let of = |(root, delta): (&Root, i64), part| Term { root: root.clone(), add: delta, part };
        if let Some(origin) = self.origin(value) {
            return of(origin, Part::All);
        }
        if let Some(term) = image.term(value) {
            return term;
        }
        // Half a word was stored over what nobody had written.
        if let Some(origin) = value.checked_sub(STALE).and_then(|value| self.origin(value)) {
            return if *origin.0 == Root::Older { Root::Older.into() } else { of(origin, Part::LowOverOlder) };
        }
        let whole = value | STACK_TOP & !u64::from(u32::MAX);
        if value <= u64::from(u32::MAX) && whole.wrapping_sub(STACK_TOP - STACK_SIZE) < STACK_SIZE {
            return of((&Root::Reg(self.abi.sp), whole.wrapping_sub(sp) as i64), Part::Low);
        }
        let symbol = image.term(value | CODE & !u64::from(u32::MAX));
        if let Some(symbol) = symbol.filter(|_| value <= u64::from(u32::MAX)) {
            return Term { part: Part::Low, ..symbol };
        }
        // No token is below 4 GiB.
        match self.origin(value & u64::from(u32::MAX) | FIRST >> 32 << 32) {
            Some((root, 0)) if value <= u64::from(u32::MAX) => of((root, 0), Part::Low),
            _ => number,
        }
    }
}

/// What stands for the kernel, where a program calls it: no image has the address.
pub(super) const KERNEL: u64 = 0x66_6b65_0000;

/// What the addresses of an image are called.
pub(super) struct Names {
    exact: FxHashMap<u64, Arc<str>>,
    sized: Vec<(u64, u64, Arc<str>)>,
}

impl Names {
    pub(super) fn of(image: &Image) -> Names {
        let named = || image.symbols.iter().filter(|s| !s.name.is_empty() && !s.name.starts_with(['.', '$']));
        // Symbols are ordered: a global name comes after a local one, and wins.
        let kernel = std::iter::once((KERNEL, Arc::from("kernel")));
        let exact = named().map(|s| (s.address, s.name.as_str().into())).chain(kernel).collect();
        let sized = named().filter(|s| s.size > 0).map(|s| (s.address, s.size, s.name.as_str().into())).collect();
        Names { exact, sized }
    }

    /// Those of no image.
    pub(super) fn none() -> Names {
        Names { exact: FxHashMap::default(), sized: Vec::new() }
    }

    /// The symbol that an address belongs to, and the bytes behind it.
    pub(super) fn term(&self, address: u64) -> Option<Term> {
        if let Some(name) = self.exact.get(&address) {
            return Some(Root::Symbol(name.clone()).into());
        }
        let (start, _, name) = self.sized.iter().find(|(start, size, _)| address.wrapping_sub(*start) < *size)?;
        Some(Term::from(Root::Symbol(name.clone())).plus(address.wrapping_sub(*start) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told() {
        let abi = &arch::BACKENDS.iter().find(|b| b.facts().name == "x86_64").unwrap().facts().abi;
        let names = Names { exact: FxHashMap::default(), sized: vec![(0x7000_0000, 16, "f".into())] };
        let mut tokens = Tokens::none(abi);
        let rdi = tokens.of(Root::Reg(abi.args[0]));
        let word = tokens.of(Term::from(Root::Reg(abi.sp)).plus(8).content().root);
        let sp = STACK_TOP - 0x1000;
        let older = tokens.of(Root::Older);
        let name = |value| tokens.term(value, &names, sp).show(abi).to_string();
        assert_eq!(name(rdi), "rdi");
        assert_eq!(name(rdi + 8), "rdi+0x8");
        assert_eq!(name(word - 1), "[stack+0x8]-0x1");
        assert_eq!(name(word & u64::from(u32::MAX)), "low half of [stack+0x8]");
        assert_eq!(name(older), "older");
        assert_eq!(name(older & !u64::from(u32::MAX) | rdi & u64::from(u32::MAX)), "half of rdi");
        assert_eq!(name(sp - 16), "&stack-0x10");
        assert_eq!(name((sp - 16) & u64::from(u32::MAX)), "low half of &stack-0x10");
        assert_eq!(name(0x7000_0004), "f+0x4");
        assert_eq!(name(3_u64.wrapping_neg()), "-3");
        assert_eq!(name(0x1234_5678_9abc), "0x123456789abc");
        assert_eq!(name(older + STEP), format!("{:#x}", older + STEP));
    }
}
