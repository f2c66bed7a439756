//! The instructions of two functions of objects, aligned by what they do: a save that has moved is a move, and not one that is
//! gone and another one that is new.

use std::collections::{BTreeMap, BTreeSet};

use codegen::backend::Backend;
use codegen::effect::effects::Moves;
use codegen::out::diff::{Row, align};
use codegen::words::abi::Abi;
use codegen::words::error::Result;
use emu_tests::disassemble;
use link::Input;
use link::object_mutants::{Function, Line, Refers};
use schemars::JsonSchema;
use serde::Serialize;

/// An instruction of an object, before a linker has filled in anything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Insn {
    /// Its offset in the function.
    pub at: usize,
    /// As text; what it refers to stands behind `->`, where its operands do not say it.
    pub text: String,
    /// The function that it is in, where that is another one to which the first jumps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// The types of its relocations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relocations: Vec<String>,
    /// The registers that it saves on the stack or loads from there, as `saves rdi`; where it was seen what it stores, that and
    /// the place in the frame, as `pc at 0x080`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub does: BTreeSet<String>,
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
    /// Several on the other side do the same together: two stores, and one of a pair.
    Together,
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
    /// Of one that has moved, and of one of several: the number of its partner on the other side, or of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<usize>,
}

/// What a store puts into a frame, by the offset of the instruction in its function, as it was seen.
pub type Stores = BTreeMap<u64, BTreeSet<String>>;

/// The instructions of a function and of those of its object that it jumps to, and the symbols in it by their offsets; none if
/// the object does not define it.
///
/// # Errors
/// A damaged object.
pub fn code(object: &Input, symbol: &str, stores: &Stores) -> Result<(Vec<Insn>, BTreeMap<String, usize>)> {
    let backend = crate::backend_of(object)?;
    let (mut insns, mut labels) = (Vec::new(), None);
    let (mut open, mut done) = (vec![symbol.to_owned()], BTreeSet::new());
    while let Some(name) = open.pop() {
        if !done.insert(name.clone()) {
            continue;
        }
        let Some(function) = Function::find(object, &name)? else { continue };
        let lines = function.lines(&|code, offset| disassemble(backend.machine(), code, offset))?;
        let tail = if name == symbol { "" } else { &name };
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| !line.nop) {
            let (insn, to) = insn(backend, &function, line, (tail, stores));
            // The first of two instructions of which the second goes there: AUIPC and JR.
            let first = lines.get(n + 1).is_some_and(|next| next.leaves) && calls(backend, &function, line);
            open.extend(to.filter(|_| line.jumps || first));
            insns.push(insn);
        }
        labels.get_or_insert(function.labels);
    }
    // Assemblers mark with the others where code and data begin.
    let named = labels.unwrap_or_default().into_iter().filter(|(name, _)| !name.starts_with(['$', '.']));
    Ok((insns, named.collect()))
}

/// Does a linker take it for a call or a jump?
fn calls(backend: &dyn Backend, function: &Function, line: &Line) -> bool {
    let inside = line.offset..line.offset + line.size;
    let mut types = function.references.iter().zip(&function.types).filter(|((at, _), _)| inside.contains(at));
    types.any(|(_, r_type)| backend.machine().calls.iter().any(|(call, ..)| call == r_type))
}

/// An instruction of a function, and the function that it goes to, if that is another one.
fn insn(
    backend: &'static dyn Backend,
    function: &Function,
    line: &Line,
    (tail, stores): (&str, &Stores),
) -> (Insn, Option<String>) {
    let inside = line.offset..line.offset + line.size;
    let mut all = function.references.iter().zip(&function.types).filter(|((place, _), _)| inside.contains(place));
    let refers = all.clone().next().map(|((_, what), _)| what);
    // What a call's relocation adds is no part of what is called.
    let adds = all.clone().next().and_then(|(_, r_type)| backend.machine().calls.iter().find(|call| call.0 == *r_type));
    let adds = adds.map_or_else(String::new, |(.., adds)| format!("-{:#x}", adds.unsigned_abs()));
    let (prefix, names) = backend.facts().relocations;
    let named = |number: u32| match names.iter().find(|(n, _)| *n == number) {
        Some((_, name)) => format!("{prefix}{name}"),
        None => format!("{prefix}{number}"),
    };
    let relocations = all.by_ref().map(|(_, number)| named(*number)).collect();
    let written = line.target.map(|to| format!("{to:#x}"));
    // Where the linker fills it in, the operand says nothing.
    let place = |text: &str, with: &str| match &written {
        Some(number) if text.ends_with(number.as_str()) => {
            text.strip_suffix(number.as_str()).unwrap_or(text).to_owned() + with
        }
        _ => format!("{text} -> {with}"),
    };
    let (mut to, own) = (None, |at: &usize| function.lies_in(*at));
    let (text, key, target) = match (refers, line.target) {
        (Some(Refers::To(symbol)), _) => {
            let symbol = symbol.strip_suffix(&adds).unwrap_or(symbol);
            to = symbol.split('+').next().map(str::to_owned);
            (place(&line.text, symbol), place(&line.text, symbol), None)
        }
        (Some(Refers::Own(to)), _) => (place(&line.text, &format!("+{to:#x}")), place(&line.text, ""), Some(*to)),
        (None, Some(at)) if !own(&at) => {
            to = function.name_of(at);
            // Before the function, or behind it.
            let sign = if at.cast_signed() < 0 { '-' } else { '+' };
            let name = to.clone().unwrap_or_else(|| format!("{sign}{:#x}", at.cast_signed().unsigned_abs()));
            (place(&line.text, &name), place(&line.text, &name), None)
        }
        (None, Some(to)) => (place(&line.text, &format!("+{to:#x}")), place(&line.text, ""), Some(to)),
        (None, None) => (line.text.clone(), line.text.clone(), None),
    };
    let seen = stores.get(&(line.offset as u64)).filter(|_| tail.is_empty()).cloned();
    let does = seen.unwrap_or_else(|| effect(function.effects(backend.patterns(), line).moves, &backend.facts().abi));
    let loose = without_numbers(&key);
    (Insn { at: line.offset, loose, text, tail: tail.to_owned(), relocations, does, key, target }, to)
}

impl Insn {
    /// It differs in a number at most, or saves or loads the same: PUSH, or a store.
    fn does_as(&self, other: &Insn) -> bool {
        self.loose == other.loose || !self.does.is_empty() && self.does == other.does
    }

    /// The linker is told the same.
    fn links_as(&self, other: &Insn) -> bool {
        self.relocations == other.relocations
    }
}

/// What it saves or loads, each by itself.
fn effect(moves: Moves, abi: &Abi) -> BTreeSet<String> {
    let (what, slots) = match moves {
        Moves::Store(slots) => ("saves", slots),
        Moves::Load(slots) => ("loads", slots),
        Moves::None | Moves::Copy { .. } => return BTreeSet::new(),
    };
    slots.iter().map(|(reg, _)| format!("{what} {}", abi.name(reg))).collect()
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
    let mut changed = Vec::new();
    for Pair { left: l, right: r, mark, .. } in pairs.iter().filter(|pair| pair.mark != Mark::Same) {
        let (l, r) = (l.and_then(|l| left.get(l)), r.and_then(|r| right.get(r)));
        // Of a pair, types are told where they are what differs.
        let types = l.zip(r).is_none_or(|(l, r)| !l.links_as(r));
        let line = |sign: char, insn: &Insn| {
            let types = if types { insn.relocations.join(" ") } else { String::new() };
            let types = if types.is_empty() { types } else { format!("  ({types})") };
            let tail = if insn.tail.is_empty() { String::new() } else { format!("{}: ", insn.tail) };
            format!("{sign}{:4x}  {tail}{}{types}", insn.at, insn.text)
        };
        let signs = match mark {
            Mark::Moved => ('<', '>'),
            Mark::Together => ('=', '='),
            _ => ('-', '+'),
        };
        changed.extend(l.map(|insn| line(signs.0, insn)));
        changed.extend(r.map(|insn| line(signs.1, insn)));
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
    let together = together(&rows, &moved, left, right);
    let there = |l: usize, r: usize| {
        let goes = |all: &[Insn], from: &Insn| {
            from.target.map(|to| all.iter().position(|insn| insn.at == to && insn.tail == from.tail))
        };
        match (goes(left, &left[l]), goes(right, &right[r])) {
            (None, None) => true,
            (Some(Some(l)), Some(Some(r))) => partners.get(&l) == Some(&r) || moved.contains(&(l, r)),
            (l, r) => l == r,
        }
    };
    let pair = |row: Row<usize>| match row {
        Row::Both(l, r) => {
            let same = left[l].key == right[r].key && left[l].links_as(&right[r]) && there(l, r);
            Pair { left: Some(l), right: Some(r), mark: if same { Mark::Same } else { Mark::Changed }, partner: None }
        }
        Row::Left(l) => {
            let found = |all: &[(usize, usize)]| all.iter().find(|(from, _)| *from == l).map(|(_, to)| *to);
            let (mark, partner) = marked(found(&moved), found(&together), Mark::Left);
            Pair { left: Some(l), right: None, mark, partner }
        }
        Row::Right(r) => {
            let found = |all: &[(usize, usize)]| all.iter().find(|(_, to)| *to == r).map(|(from, _)| *from);
            let (mark, partner) = marked(found(&moved), found(&together), Mark::Right);
            Pair { left: None, right: Some(r), mark, partner }
        }
    };
    rows.into_iter().map(pair).collect()
}

/// What became of one that stands on one side: it has moved, or others do the same together, or it is alone.
fn marked(moved: Option<usize>, together: Option<usize>, alone: Mark) -> (Mark, Option<usize>) {
    match (moved, together) {
        (Some(there), _) => (Mark::Moved, Some(there)),
        (None, Some(there)) => (Mark::Together, Some(there)),
        (None, None) => (alone, None),
    }
}

/// Of those that are on one side only and have not moved: the ones of which several do together what one on the other side does.
fn together(rows: &[Row<usize>], moved: &[(usize, usize)], left: &[Insn], right: &[Insn]) -> Vec<(usize, usize)> {
    let lefts = rows.iter().filter_map(|row| if let Row::Left(l) = row { Some(*l) } else { None });
    let rights = rows.iter().filter_map(|row| if let Row::Right(r) = row { Some(*r) } else { None });
    let lefts: Vec<usize> = lefts.filter(|l| moved.iter().all(|(from, _)| from != l)).collect();
    let rights: Vec<usize> = rights.filter(|r| moved.iter().all(|(_, to)| to != r)).collect();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for &l in &lefts {
        for part in parts(&left[l], &rights, right, &|r| pairs.iter().any(|(_, to)| *to == r)) {
            pairs.push((l, part));
        }
    }
    for &r in &rights {
        for part in parts(&right[r], &lefts, left, &|l| pairs.iter().any(|(from, _)| *from == l)) {
            pairs.push((part, r));
        }
    }
    pairs
}

/// Those of `others` that do together what `one` does; none if they leave something out.
fn parts(one: &Insn, others: &[usize], all: &[Insn], taken: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let (mut left, mut found) = (one.does.clone(), Vec::new());
    for &n in others.iter().filter(|n| !taken(**n)) {
        let does = &all[n].does;
        if !does.is_empty() && does.is_subset(&left) {
            left.retain(|what| !does.contains(what));
            found.push(n);
        }
    }
    if left.is_empty() { found } else { Vec::new() }
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
            tail: String::new(),
            relocations: Vec::new(),
            does: effect.split(", ").filter(|what| !what.is_empty()).map(str::to_owned).collect(),
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
    fn a_pair_of_stores_is_one_of_a_pair() {
        let left = insns(&[("stp a, b", "saves a, saves b"), ("ret", "")]);
        let right = insns(&[("str b", "saves b"), ("str a", "saves a"), ("str c", "saves c"), ("ret", "")]);
        let marks = |left: &[Insn], right: &[Insn]| -> Vec<_> {
            aligned(left, right).iter().map(|p| (p.left, p.right, p.mark, p.partner)).collect()
        };
        let expected = [
            (Some(0), None, Mark::Together, Some(0)),
            (None, Some(0), Mark::Together, Some(0)),
            (None, Some(1), Mark::Together, Some(0)),
            (None, Some(2), Mark::Right, None),
            (Some(1), Some(3), Mark::Same, None),
        ];
        assert_eq!(marks(&left, &right), expected);
        assert_eq!(marks(&right, &left).iter().filter(|(_, _, mark, _)| *mark == Mark::Together).count(), 3);
        // One of the two is not enough.
        assert!(marks(&left, &right[1..]).iter().all(|(_, _, mark, _)| *mark != Mark::Together));
    }

    #[test]
    fn another_type_of_relocation_is_a_change() {
        let (left, mut right) = (insns(&[("call f", "")]), insns(&[("call f", "")]));
        assert_eq!(aligned(&left, &right)[0].mark, Mark::Same);
        right[0].relocations = vec!["R_PLT32".to_owned()];
        let pairs = aligned(&left, &right);
        assert_eq!(pairs[0].mark, Mark::Changed);
        assert_eq!(changed(&left, &right, &pairs), ["-   0  call f", "+   0  call f  (R_PLT32)"]);
    }

    #[test]
    fn another_number_is_a_change() {
        let left = insns(&[("sub $8, %rsp", ""), ("ret", "")]);
        let right = insns(&[("sub $16, %rsp", ""), ("ret", "")]);
        assert_eq!(aligned(&left, &right)[0].mark, Mark::Changed);
    }
}
