//! Instruction patterns as in the encoding tables of manuals, for foreign code, which has no listing.

use crate::contract::Contract;
use crate::effect::effects::{Effects, Flow, Moves, SpEffect};
use crate::effect::faults::{Faults, Operand, Operator};
use crate::words::abi::Reg;
use crate::words::step::Local;

/// An architecture's patterns for instructions of foreign code.
#[derive(Debug)]
pub struct PatternTable {
    /// The patterns. If several fit, the first one holds.
    pub list: &'static [InsnPattern],
    /// Instructions that do nothing, the longest first.
    pub nops: &'static [&'static [u8]],
    /// Instructions that make a constant in a register.
    pub steps: &'static [Step],
    /// Instructions that load the address of a symbol, each with the type, place and addend of its relocation.
    pub load: &'static [(InsnPattern, (u32, usize, i64))],
}

impl PatternTable {
    /// The table of an architecture without patterns.
    pub const NONE: PatternTable = PatternTable { list: &[], nops: &[], steps: &[], load: &[] };

    /// NOPs of `room` bytes together.
    pub fn fill(&self, mut room: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for nop in self.nops {
            while let Some(rest) = room.checked_sub(nop.len()) {
                bytes.extend_from_slice(nop);
                room = rest;
            }
        }
        (room == 0).then_some(bytes)
    }
}

/// An instruction that puts a constant into `a`, or that changes the constant in `a` and maybe `b`.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The instruction.
    pub form: InsnPattern,
    /// The position of the instruction in a sequence.
    pub place: Place,
    /// The new value of the register, from its old value, the fields, and the instruction's address.
    pub value: fn(u64, &Fields, u64) -> u64,
}

/// A [`Step`].
pub const fn step(place: Place, form: InsnPattern, value: fn(u64, &Fields, u64) -> u64) -> Step {
    Step { form, place, value }
}

/// The position of an instruction in the sequence that makes a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The instruction begins a sequence.
    First,
    /// The instruction continues a sequence.
    Next,
    /// Right behind the first one, it uses the constant plus its immediate: a jump, or a load.
    Last,
}

/// A constant that a sequence of instructions makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constant {
    /// The register with the constant.
    pub register: Reg,
    /// The constant.
    pub value: u64,
    /// Bytes of the sequence.
    pub size: usize,
    /// The offset of the last instruction, if it contains a part of the constant and uses the whole.
    pub last: Option<usize>,
}

impl Constant {
    /// The constants that `code`, at an address, begins with: a constant, and each one that continues the one before.
    pub fn read(patterns: &PatternTable, code: &[u8], at: u64) -> Vec<Constant> {
        let next = |now: Option<&Constant>, wanted: &[Place]| {
            let (register, before, from) = now.map_or((None, 0, 0), |c| (Some(c.register), c.value, c.size));
            let rest = code.get(from..)?;
            patterns.steps.iter().filter(|step| wanted.contains(&step.place)).find_map(|step| {
                let fields = step.form.read(rest)?;
                let same = !step.form.has(b"bB") || fields.b == fields.a;
                let goes_on = register.is_none_or(|register| register == fields.a && same);
                let value = (step.value)(before, &fields, at.wrapping_add(from as u64));
                let last = (step.place == Place::Last).then_some(from);
                let size = from + step.form.size();
                goes_on.then_some(Constant { register: fields.a, value, size, last })
            })
        };
        let first = next(None, &[Place::First]);
        let last = first.as_ref().and_then(|first| next(Some(first), &[Place::Last]));
        std::iter::successors(first, |now| next(Some(now), &[Place::Next])).chain(last).collect()
    }
}

/// A form of an instruction: constant bits and fields.
///
/// In its pattern `0` and `1` are constant, `a` and `b` registers, `p` one of the registers 8 to 15 in `a`'s place, `i`
/// the immediate, `x` whatever else there is; each highest bit first. `A` and `B` are a register's topmost bit wherever
/// it stands, `2` to `9` the bits of the immediate with these numbers. `x{26}` is a letter that often, `*4` at the end
/// the unit of the immediate. Blanks part words for the eye. In the pattern of a faulty form `^` is an `x` inverted.
#[derive(Clone, Copy, Debug)]
pub struct InsnPattern {
    pattern: &'static str,
    letters: Letters,
    /// The mask of constant bits, and their values.
    constant: (u128, u128),
    /// The pattern is a sequence of bytes, not a little-endian word.
    bytes: bool,
    effects: fn(&Fields) -> Effects,
    /// The operator that changes the immediate, and whether the immediate is signed.
    imm: Option<(Operator, bool)>,
    missing: Option<Operator>,
    wrong: Option<(Operator, &'static str)>,
}

/// The letter of each bit of a pattern. No instruction has more than 15 bytes.
#[derive(Clone, Copy, Debug)]
struct Letters {
    all: [u8; 128],
    count: usize,
}

impl Letters {
    const fn of(pattern: &str) -> Letters {
        let text = pattern.as_bytes();
        let (mut letters, mut at) = (Letters { all: [0; 128], count: 0 }, 0);
        while at < text.len() && text[at] != b'*' {
            let (start, mut times) = (at, 1);
            while at < text.len() && !matches!(text[at], b' ' | b'{' | b'*') {
                at += 1;
            }
            let end = at;
            if at < text.len() && text[at] == b'{' {
                (at, times) = (at + 1, 0);
                while text[at] != b'}' {
                    (at, times) = (at + 1, times * 10 + (text[at] - b'0') as usize);
                }
                at += 1;
            }
            let mut n = 0;
            while n < times * (end - start) {
                letters.all[letters.count] = text[start + n % (end - start)];
                (n, letters.count) = (n + 1, letters.count + 1);
            }
            if at < text.len() && text[at] == b' ' {
                at += 1;
            }
        }
        letters
    }

    /// The mask of constant bits, and their values, which distinguish most instructions.
    const fn constant(&self, bytes: bool) -> (u128, u128) {
        let (mut mask, mut value, mut n) = (0, 0, 0);
        while n < self.count {
            if matches!(self.all[n], b'0' | b'1') {
                let bit = if bytes { n / 8 * 8 + 7 - n % 8 } else { self.count - 1 - n };
                mask |= 1 << bit;
                value |= ((self.all[n] - b'0') as u128) << bit;
            }
            n += 1;
        }
        (mask, value)
    }
}

/// The values of a form's fields; 0 for fields that it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// A register: the one that is written, stored or branched to.
    pub a: Reg,
    /// Another register.
    pub b: Reg,
    /// The immediate, in bytes.
    pub imm: i32,
    /// All other bits.
    pub rest: u64,
}

/// Touches registers only.
pub fn plain(_: &Fields) -> Effects {
    Effects::PLAIN
}

/// Stores `a` in the frame.
pub fn store(f: &Fields) -> Effects {
    Effects::store(f.a, f.imm)
}

/// Loads `a` from the frame.
pub fn load(f: &Fields) -> Effects {
    Effects::load(f.a, f.imm)
}

/// Loads from memory, wherever that is.
pub fn read(_: &Fields) -> Effects {
    Effects { loads: 1, ..Effects::PLAIN }
}

/// Stores to memory, wherever that is.
pub fn write(_: &Fields) -> Effects {
    Effects { stores: 1, ..Effects::PLAIN }
}

/// Copies `b` to `a`.
pub fn copy(f: &Fields) -> Effects {
    Effects::copy(f.a, f.b)
}

/// Moves SP by the immediate.
pub fn move_sp(f: &Fields) -> Effects {
    Effects::sp(SpEffect::Move(f.imm))
}

/// `a` becomes SP plus the immediate.
pub fn from_sp(f: &Fields) -> Effects {
    Effects::sp(SpEffect::CopyTo(f.a, f.imm))
}

/// SP becomes `b` plus the immediate.
pub fn to_sp(f: &Fields) -> Effects {
    Effects::sp(SpEffect::CopyFrom(f.b, f.imm))
}

/// Calls.
pub fn call(_: &Fields) -> Effects {
    Effects::flow(Flow::Call)
}

/// Jumps inside the code. There are no labels here.
pub fn jump(_: &Fields) -> Effects {
    Effects::flow(Flow::Jump(Local::Anchor))
}

/// Jumps or not.
pub fn branch(_: &Fields) -> Effects {
    Effects::flow(Flow::Branch(Local::Anchor))
}

/// Leaves.
pub fn leave(_: &Fields) -> Effects {
    Effects::flow(Flow::Leave)
}

/// Stops speculation.
pub fn trap(_: &Fields) -> Effects {
    Effects::flow(Flow::Trap)
}

impl Fields {
    /// The fields of a form without any.
    pub const NONE: Fields = Fields { a: Reg(0), b: Reg(0), imm: 0, rest: 0 };
}

impl InsnPattern {
    /// The pattern of instructions that no form fits: mutants can only remove them.
    pub const UNKNOWN: InsnPattern = InsnPattern::word("", plain);

    /// A form of words.
    pub const fn word(pattern: &'static str, effects: fn(&Fields) -> Effects) -> InsnPattern {
        InsnPattern::of(pattern, false, effects)
    }

    /// A form of bytes.
    pub const fn bytes(pattern: &'static str, effects: fn(&Fields) -> Effects) -> InsnPattern {
        InsnPattern::of(pattern, true, effects)
    }

    const fn of(pattern: &'static str, bytes: bool, effects: fn(&Fields) -> Effects) -> InsnPattern {
        let letters = Letters::of(pattern);
        let constant = letters.constant(bytes);
        InsnPattern { pattern, letters, constant, bytes, effects, imm: None, missing: None, wrong: None }
    }

    /// The form with a signed immediate.
    pub const fn signed(self, wrong: Operator) -> InsnPattern {
        InsnPattern { imm: Some((wrong, true)), ..self }
    }

    /// The form with an unsigned immediate.
    pub const fn unsigned(self, wrong: Operator) -> InsnPattern {
        InsnPattern { imm: Some((wrong, false)), ..self }
    }

    /// The form with an operator of its own for its removal.
    pub const fn missing(self, operator: Operator) -> InsnPattern {
        InsnPattern { missing: Some(operator), ..self }
    }

    /// The form with a faulty pattern: the same fields, and no longer than this one.
    pub const fn wrong(self, operator: Operator, pattern: &'static str) -> InsnPattern {
        InsnPattern { wrong: Some((operator, pattern)), ..self }
    }

    /// The operator and the form of the faulty pattern, if there is one.
    pub fn faulty(&self) -> Option<(Operator, InsnPattern)> {
        self.wrong.map(|(operator, pattern)| {
            let InsnPattern { effects, imm, missing, .. } = *self;
            (operator, InsnPattern { imm, missing, ..InsnPattern::of(pattern, self.bytes, effects) })
        })
    }

    /// The effects of an instruction of this form.
    pub fn effects(&self, fields: &Fields) -> Effects {
        (self.effects)(fields)
    }

    /// The letter of each bit.
    fn letters(&self) -> &[u8] {
        self.letters.all.get(..self.letters.count).unwrap_or_default()
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.letters.count / 8
    }

    /// Does any of these letters stand in the pattern?
    pub fn has(&self, letters: &[u8]) -> bool {
        self.letters().iter().any(|c| letters.contains(c))
    }

    /// Each bit from the lowest up: its letter in the pattern, and its number in that field.
    fn cells(&self) -> Vec<(u8, u32)> {
        let mut cells = self.letters().to_vec();
        if self.bytes {
            cells.chunks_mut(8).for_each(<[u8]>::reverse);
        } else {
            cells.reverse();
        }
        let unit = self.pattern.split_once('*').and_then(|(_, unit)| unit.parse().ok()).map_or(0, u32::ilog2);
        let number = |n: usize, c: u8| {
            let below = |letters: [u8; 2]| cells.iter().take(n).filter(|c| letters.contains(c)).count() as u32;
            match c {
                b'A' | b'B' => cells.iter().filter(|other| **other == c.to_ascii_lowercase()).count() as u32,
                b'2'..=b'9' => u32::from(c - b'0'),
                b'i' => below([c; 2]) + unit,
                b'x' | b'^' => below([b'x', b'^']),
                _ => below([c; 2]),
            }
        };
        cells.iter().enumerate().map(|(n, c)| (*c, number(n, *c))).collect()
    }

    fn extract(&self, bits: u128) -> Fields {
        let (mut a, mut b, mut imm, mut rest, mut width) = (0, 0, 0_u64, 0_u64, 0);
        for (at, (c, n)) in self.cells().into_iter().enumerate() {
            let bit = (bits >> at & 1) as u64;
            match c {
                b'a' | b'A' | b'p' => a |= bit << n,
                b'b' | b'B' => b |= bit << n,
                b'i' | b'2'..=b'9' => (imm, width) = (imm | bit << n, width.max(n + 1)),
                b'x' => rest |= bit << n,
                b'^' => rest |= (bit ^ 1) << n,
                _ => {}
            }
        }
        if self.has(b"p") {
            a += 8;
        }
        let mut imm = imm.cast_signed();
        if width > 0 && self.imm.is_some_and(|(_, signed)| signed) && imm >> (width - 1) & 1 == 1 {
            imm -= 1 << width;
        }
        Fields { a: Reg(a as u8), b: Reg(b as u8), imm: imm as i32, rest }
    }

    fn compose(&self, fields: &Fields) -> u128 {
        let a = if self.has(b"p") { fields.a.0.wrapping_sub(8) } else { fields.a.0 };
        let bit = |(c, n): (u8, u32)| match c {
            b'a' | b'A' | b'p' => u64::from(a) >> n & 1,
            b'b' | b'B' => u64::from(fields.b.0) >> n & 1,
            b'i' | b'2'..=b'9' => i64::from(fields.imm).cast_unsigned() >> n & 1,
            b'x' => fields.rest >> n & 1,
            b'^' => !fields.rest >> n & 1,
            constant => u64::from(constant == b'1'),
        };
        self.cells().into_iter().enumerate().fold(0, |bits, (at, cell)| bits | u128::from(bit(cell)) << at)
    }

    /// The fields of the instruction at the start of `code`, if it has this form.
    pub fn read(&self, code: &[u8]) -> Option<Fields> {
        let mut bytes = [0; 16];
        let size = self.size();
        bytes.get_mut(..size)?.copy_from_slice(code.get(..size)?);
        let bits = u128::from_le_bytes(bytes);
        let (mask, value) = self.constant;
        if bits & mask != value {
            return None;
        }
        let fields = self.extract(bits);
        (self.compose(&fields) == bits).then_some(fields)
    }

    /// The instruction with these fields, if the form can hold them.
    pub fn encode(&self, fields: &Fields) -> Option<Vec<u8>> {
        let bits = self.compose(fields);
        (self.extract(bits) == *fields).then(|| bits.to_le_bytes()[..self.size()].to_vec())
    }
}

/// An instruction with a known form.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The form of the instruction.
    pub form: InsnPattern,
    /// The values of the form's fields.
    pub fields: Fields,
    /// The linker fills in the immediate.
    pub relocated: bool,
}

impl Found {
    /// The effects of the instruction.
    pub fn effects(&self) -> Effects {
        self.form.effects(&self.fields)
    }

    /// The instruction with other registers for those that it names.
    pub fn with_registers(self, r: &mut dyn FnMut(Reg) -> Reg) -> Found {
        let Fields { mut a, mut b, .. } = self.fields;
        if self.form.has(b"aAp") {
            a = r(a);
        }
        if self.form.has(b"bB") {
            b = r(b);
        }
        Found { fields: Fields { a, b, ..self.fields }, ..self }
    }

    /// Add the faulty forms of the instruction, besides those that follow from its effects.
    pub fn faults(self, contract: &Contract, out: &mut Faults<Found>) {
        let (abi, site, effects) = (&contract.facts.abi, &contract.convention.site, self.effects());
        let Fields { a, b, imm, .. } = self.fields;
        let with = |fields| Found { fields, ..self };
        match (self.form.missing, effects.moves, effects.sp) {
            (Some(operator), ..) => out.drop(operator),
            (_, Moves::Copy { dst, .. }, _) if Some(dst) == abi.link => out.drop(Operator::DropLrFix),
            (_, Moves::Copy { dst, .. }, _) | (_, _, SpEffect::CopyTo(dst, _)) if abi.args.contains(&dst) => {
                out.drop(Operator::DropArg);
            }
            _ => {}
        }
        if let Some((wrong, _)) = self.form.imm.filter(|_| !self.relocated) {
            let by = if wrong == Operator::IpOffset { 4 } else { 8 };
            // A frame that is larger is larger downwards and upwards.
            let sign = if wrong == Operator::FrameSize { imm.signum() } else { 1 };
            out.off_by(wrong, by, |by| with(Fields { imm: imm.wrapping_add(by * sign), ..self.fields }));
        }
        let swapped = with(Fields { a: b, b: a, ..self.fields });
        match effects.moves {
            Moves::Store(slots) if slots.second.is_some() => {
                out.put(Operator::SwapSave, Operand::Regs(a, b), swapped);
            }
            Moves::Load(slots) if slots.second.is_some() => {
                out.put(Operator::SwapRestore, Operand::Regs(a, b), swapped);
            }
            _ => {}
        }
        if effects.flow == Flow::Leave && self.form.has(b"aAp") {
            let ways = [site.pc.reg(), site.parent_ip.reg(), abi.link];
            for way in ways.into_iter().flatten().filter(|way| *way != a) {
                out.put(Operator::WrongLink, Operand::Reg(way), with(Fields { a: way, ..self.fields }));
            }
        }
        let operand = if self.form.has(b"aAp") { Operand::Reg(a) } else { Operand::None };
        if let Some((operator, form)) = self.form.faulty() {
            out.put(operator, operand, Found { form, ..self });
        }
    }
}
