//! The instructions of two functions of objects, aligned by what they do: a save that has moved is a move, and not one that is
//! gone and another one that is new.

use std::collections::BTreeMap;

use codegen::abi::Abi;
use codegen::diff::{Row, align};
use codegen::effects::Moves;
use codegen::error::Result;
use emu_tests::disassemble;
use link::Input;
use link::object_mutants::{Function, Refers};
use schemars::JsonSchema;
use serde::Serialize;

/// An instruction of an object, before a linker has filled in anything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Insn {
    /// Its offset in the function.
    pub at: usize,
    /// As text; what it refers to stands behind `->`, where its operands do not say it.
    pub text: String,
    /// The registers that it saves on the stack or loads from there, as `saves rdi`; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// Without the place in the function that it goes to.
    #[serde(skip)]
    key: String,
    /// Without any number.
    #[serde(skip)]
    loose: String,
    /// The place in the function that it goes to.
    #[serde(skip)]
    target: Option<usize>,
}

/// How two instructions compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// The same.
    Same,
    /// The same with another number: a displacement, a constant, another place to go to.
    Changed,
    /// It does the same, before or behind others.
    Moved,
    /// The left side only.
    Left,
    /// The right side only.
    Right,
}

/// Instructions side by side. Those that have moved stand on rows of their own, in the order of each side.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Pair {
    /// The number of the left one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// The number of the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right: Option<usize>,
    /// How they compare.
    pub mark: Mark,
    /// Of one that has moved: the number of its partner on the other side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<usize>,
}

/// The instructions of a function, and the symbols in it by their offsets; none if the object does not define it.
///
/// # Errors
/// A damaged object.
pub fn code(object: &Input, symbol: &str) -> Result<(Vec<Insn>, BTreeMap<String, usize>)> {
    let backend = crate::backend_of(object)?;
    let Some(function) = Function::find(object, symbol)? else { return Ok(Default::default()) };
    let lines = function.lines(&|code, offset| disassemble(backend.machine(), code, offset))?;
    let abi = &backend.facts().abi;
    let each = lines.into_iter().filter(|line| !line.nop).map(|line| {
        let inside = line.offset..line.offset + line.size;
        let refers = function.references.iter().find(|(place, _)| inside.contains(place)).map(|(_, what)| what);
        let written = line.target.map(|to| format!("{to:#x}"));
        // Where the linker fills it in, the operand says nothing.
        let place = |text: &str, with: &str| match &written {
            Some(number) if text.ends_with(number.as_str()) => {
                text.strip_suffix(number.as_str()).unwrap_or(text).to_owned() + with
            }
            _ => format!("{text} -> {with}"),
        };
        let (text, key, target) = match refers {
            Some(Refers::To(symbol)) => (place(&line.text, symbol), place(&line.text, symbol), None),
            Some(Refers::Own(to)) => (place(&line.text, &format!("+{to:#x}")), place(&line.text, ""), Some(*to)),
            None if line.target.is_some() => {
                let to = line.target.unwrap_or_default();
                (place(&line.text, &format!("+{to:#x}")), place(&line.text, ""), Some(to))
            }
            None => (line.text.clone(), line.text.clone(), None),
        };
        let effect = effect(function.effects(backend.patterns(), &line).moves, abi);
        Insn { at: line.offset, loose: without_numbers(&key), text, effect, key, target }
    });
    let insns = each.collect();
    // Assemblers mark with the others where code and data begin.
    let named = function.labels.into_iter().filter(|(name, _)| !name.starts_with(['$', '.']));
    Ok((insns, named.collect()))
}

impl Insn {
    /// It differs in a number at most, or saves or loads the same registers: PUSH, or a store.
    fn does_as(&self, other: &Insn) -> bool {
        self.loose == other.loose || !self.effect.is_empty() && self.effect == other.effect
    }
}

/// What it saves or loads.
fn effect(moves: Moves, abi: &Abi) -> String {
    let (what, slots) = match moves {
        Moves::Store(slots) => ("saves", slots),
        Moves::Load(slots) => ("loads", slots),
        Moves::None | Moves::Copy { .. } => return String::new(),
    };
    let names: Vec<&str> = slots.iter().map(|(reg, _)| abi.name(reg)).collect();
    format!("{what} {}", names.join(" "))
}

/// Numbers that are no part of a name become `#`.
fn without_numbers(text: &str) -> String {
    let (mut out, mut before) = (String::new(), ' ');
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let number = c.is_ascii_digit() && !before.is_alphanumeric() && before != '_' && before != '.';
        let length =
            if number { rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len()) } else { c.len_utf8() };
        let (piece, behind) = rest.split_at(length);
        out.push_str(if number { "#" } else { piece });
        (before, rest) = (c, behind);
    }
    // A displacement of 0 is often not written.
    out.replace("-#", "#").replace("#(", "(")
}

/// The instructions that differ, each in a line: a sign, its offset, its text. `<` and `>` are those that have moved.
pub fn changed(left: &[Insn], right: &[Insn], pairs: &[Pair]) -> Vec<String> {
    let line = |sign: char, insn: &Insn| format!("{sign}{:4x}  {}", insn.at, insn.text);
    let mut changed = Vec::new();
    for Pair { left: l, right: r, mark, .. } in pairs.iter().filter(|pair| pair.mark != Mark::Same) {
        let signs = if *mark == Mark::Moved { ('<', '>') } else { ('-', '+') };
        changed.extend(l.and_then(|l| left.get(l)).map(|insn| line(signs.0, insn)));
        changed.extend(r.and_then(|r| right.get(r)).map(|insn| line(signs.1, insn)));
    }
    changed
}

/// Two functions side by side.
pub fn aligned(left: &[Insn], right: &[Insn]) -> Vec<Pair> {
    let numbers = |all: &[Insn]| (0..all.len()).collect::<Vec<_>>();
    let rows = align(numbers(left), numbers(right), |l, r| left[*l].does_as(&right[*r]));
    let mut partners: BTreeMap<usize, usize> = BTreeMap::new();
    for row in &rows {
        if let Row::Both(l, r) = row {
            partners.insert(*l, *r);
        }
    }
    let moved = moved(&rows, left, right);
    let there = |l: usize, r: usize| {
        let goes = |all: &[Insn], to: Option<usize>| to.map(|to| all.iter().position(|insn| insn.at == to));
        match (goes(left, left[l].target), goes(right, right[r].target)) {
            (None, None) => true,
            (Some(Some(l)), Some(Some(r))) => partners.get(&l) == Some(&r) || moved.contains(&(l, r)),
            (l, r) => l == r,
        }
    };
    let pair = |row: Row<usize>| match row {
        Row::Both(l, r) => {
            let same = left[l].key == right[r].key && there(l, r);
            Pair { left: Some(l), right: Some(r), mark: if same { Mark::Same } else { Mark::Changed }, partner: None }
        }
        Row::Left(l) => {
            let partner = moved.iter().find(|(from, _)| *from == l).map(|(_, to)| *to);
            let mark = if partner.is_some() { Mark::Moved } else { Mark::Left };
            Pair { left: Some(l), right: None, mark, partner }
        }
        Row::Right(r) => {
            let partner = moved.iter().find(|(_, to)| *to == r).map(|(from, _)| *from);
            let mark = if partner.is_some() { Mark::Moved } else { Mark::Right };
            Pair { left: None, right: Some(r), mark, partner }
        }
    };
    rows.into_iter().map(pair).collect()
}

/// Of those that are on one side only: the ones that do the same elsewhere, each once.
fn moved(rows: &[Row<usize>], left: &[Insn], right: &[Insn]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let like: [fn(&Insn, &Insn) -> bool; 2] = [|l, r| l.key == r.key, Insn::does_as];
    for alike in like {
        for l in rows.iter().filter_map(|row| if let Row::Left(l) = row { Some(*l) } else { None }) {
            if pairs.iter().any(|(from, _)| *from == l) {
                continue;
            }
            let free = rows.iter().filter_map(|row| if let Row::Right(r) = row { Some(*r) } else { None });
            let free = free.filter(|r| pairs.iter().all(|(_, to)| to != r));
            if let Some(r) = free.into_iter().find(|r| alike(&left[l], &right[*r])) {
                pairs.push((l, r));
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions of these texts, 4 bytes each.
    fn insns(texts: &[(&str, &str)]) -> Vec<Insn> {
        let one = |(n, (text, effect)): (usize, &(&str, &str))| Insn {
            at: 4 * n,
            text: (*text).to_owned(),
            effect: (*effect).to_owned(),
            key: (*text).to_owned(),
            loose: without_numbers(text),
            target: None,
        };
        texts.iter().enumerate().map(one).collect()
    }

    #[test]
    fn numbers_are_taken_out_and_names_are_not() {
        assert_eq!(without_numbers("mov %r11, -0x8(%rsp)"), "mov %r11, (%rsp)");
        assert_eq!(without_numbers("stp x0, x1, [sp, #16]"), "stp x0, x1, [sp, ##]");
        assert_eq!(without_numbers("sd a0, 0(sp)"), "sd a0, (sp)");
    }

    #[test]
    fn a_save_that_moved_is_one() {
        let left = insns(&[("push a", "saves a"), ("push b", "saves b"), ("call f", ""), ("ret", "")]);
        let right = insns(&[("push b", "saves b"), ("store a", "saves a"), ("call f", ""), ("trap", ""), ("ret", "")]);
        let marks: Vec<_> = aligned(&left, &right).iter().map(|p| (p.left, p.right, p.mark, p.partner)).collect();
        let expected = [
            (Some(0), None, Mark::Moved, Some(1)),
            (Some(1), Some(0), Mark::Same, None),
            (None, Some(1), Mark::Moved, Some(0)),
            (Some(2), Some(2), Mark::Same, None),
            (None, Some(3), Mark::Right, None),
            (Some(3), Some(4), Mark::Same, None),
        ];
        assert_eq!(marks, expected);
    }

    #[test]
    fn another_number_is_a_change() {
        let left = insns(&[("sub $8, %rsp", ""), ("ret", "")]);
        let right = insns(&[("sub $16, %rsp", ""), ("ret", "")]);
        assert_eq!(aligned(&left, &right)[0].mark, Mark::Changed);
    }
}
