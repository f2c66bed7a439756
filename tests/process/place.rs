//! Where values are in a call, by the psABIs of System V for x86-64, of Arm for 64-bit (AAPCS64), and of RISC-V (LP64D). This is
//! the tests' own: nothing of the generator is in it, and what compilers do is compared with it on every run.

use crate::types::{Class, Prototype, Scalar, Type};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    X86,
    Arm,
    Riscv,
}

impl Isa {
    pub fn named(name: &str) -> Isa {
        let all = [("x86", Isa::X86), ("arm", Isa::Arm), ("riscv", Isa::Riscv)];
        all.into_iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}: places unknown")).1
    }
}

/// Bytes of a value in one place, as `struct piece` of harness.h has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// `g`, `v`, or `s`, by the byte on the stack.
    pub place: char,
    pub index: usize,
    pub of: usize,
    pub offset: usize,
    pub size: usize,
    /// How it fills its word, or `-`.
    pub extend: char,
}

pub struct Placed {
    pub args: Vec<Piece>,
    pub result: Vec<Piece>,
    /// The register with the address of a result in memory.
    pub memory: Option<usize>,
    pub stack: usize,
}

/// What is free.
struct Free {
    isa: Isa,
    general: Vec<usize>,
    vectors: Vec<usize>,
    stack: usize,
    placed: Vec<Piece>,
}

impl Free {
    fn args(isa: Isa) -> Free {
        let general = match isa {
            Isa::X86 => vec![7, 6, 2, 1, 8, 9],
            Isa::Arm => (0..8).collect(),
            Isa::Riscv => (10..18).collect(),
        };
        let first = if isa == Isa::Riscv { 10 } else { 0 };
        Free { isa, general, vectors: (first..first + 8).collect(), stack: 0, placed: Vec::new() }
    }

    fn results(isa: Isa) -> Free {
        let (general, vectors) = match isa {
            Isa::X86 => (vec![0, 2], vec![0, 1]),
            Isa::Arm => (vec![0, 1], vec![0, 1, 2, 3]),
            Isa::Riscv => (vec![10, 11], vec![10, 11]),
        };
        Free { isa, general, vectors, stack: 0, placed: Vec::new() }
    }

    fn put(&mut self, place: char, index: usize, (of, offset, size): (usize, usize, usize), extend: char) {
        self.placed.push(Piece { place, index, of, offset, size, extend });
    }

    fn on_stack(&mut self, of: usize, t: &Type, offset: usize, extend: char) {
        let at = self.stack.next_multiple_of(if offset == 0 { t.align().max(8) } else { 8 });
        self.stack = at + (t.size() - offset).next_multiple_of(8);
        self.put('s', at, (of, offset, t.size() - offset), extend);
    }

    fn general(&mut self, of: usize, offset: usize, size: usize, extend: char) {
        let reg = self.general.remove(0);
        self.put('g', reg, (of, offset, size), extend);
    }

    fn vector(&mut self, of: usize, offset: usize, size: usize, extend: char) {
        let reg = self.vectors.remove(0);
        self.put('v', reg, (of, offset, size), extend);
    }

    /// In general registers as a whole, word by word.
    fn words(&mut self, of: usize, t: &Type, extend: char) {
        for offset in (0..t.size()).step_by(8) {
            self.general(of, offset, (t.size() - offset).min(8), extend);
        }
    }

    fn value(&mut self, of: usize, t: &Type) {
        match self.isa {
            Isa::X86 => self.x86(of, t),
            Isa::Arm => self.arm(of, t),
            Isa::Riscv => self.riscv(of, t),
        }
    }

    /// Psabi 3.2.3: each eightbyte has a class; all fit in registers, or the value is in memory.
    fn x86(&mut self, of: usize, t: &Type) {
        let flat = t.flat();
        let words: Vec<bool> = (0..t.size())
            .step_by(8)
            .map(|w| flat.iter().filter(|(at, s)| *at < w + 8 && at + s.size > w).all(|(_, s)| is_float(s)))
            .collect();
        let vectors = words.iter().filter(|v| **v).count();
        let extend = extension(t, |s| s.size < 4, ['s', 'u'], Class::Signed);
        if vectors > self.vectors.len() || words.len() - vectors > self.general.len() {
            return self.on_stack(of, t, 0, extend);
        }
        for (w, vector) in words.iter().enumerate() {
            let size = (t.size() - 8 * w).min(8);
            match vector {
                true => self.vector(of, 8 * w, size, '-'),
                false => self.general(of, 8 * w, size, extend),
            }
        }
    }

    /// AAPCS64 6.8.2, stages B and C. Nothing is extended for the function.
    fn arm(&mut self, of: usize, t: &Type) {
        let flat = t.flat();
        let alike = flat.iter().all(|(_, s)| is_float(s) && s.size == flat[0].1.size);
        if alike && flat.len() <= 4 {
            if flat.len() > self.vectors.len() {
                self.vectors.clear();
                return self.on_stack(of, t, 0, '-');
            }
            for (at, s) in flat {
                self.vector(of, at, s.size, '-');
            }
            return;
        }
        // C.10: what is aligned to 16 bytes begins at an even register.
        if t.align() == 16 && self.general.len() % 2 == 1 {
            self.general.remove(0);
        }
        if t.size().div_ceil(8) > self.general.len() {
            self.general.clear();
            return self.on_stack(of, t, 0, '-');
        }
        self.words(of, t, '-');
    }

    /// RISC-V calling conventions, "Hardware Floating-point Calling Convention", then the integer one.
    fn riscv(&mut self, of: usize, t: &Type) {
        let flat = t.flat();
        let float = |s: &Scalar| is_float(s) && s.size <= 8;
        let floats = flat.iter().filter(|(_, s)| float(s)).count();
        // A pointer is no integer here, to gcc and to clang.
        let is_integer = |s: &Scalar| !is_float(s) && s.class != Class::Pointer && s.size <= 8;
        let integers = flat.iter().filter(|(_, s)| is_integer(s)).count();
        let by_members = flat.len() <= 2 && floats >= 1 && floats + integers == flat.len();
        if by_members && floats <= self.vectors.len() && integers <= self.general.len() {
            for (at, s) in flat {
                match float(&s) {
                    true => self.vector(of, at, s.size, if s.size == 4 { 'n' } else { '-' }),
                    // An integer beside a float is extended as one alone.
                    false => self.general(
                        of,
                        at,
                        s.size,
                        extension(&Type::Plain(s), |s| s.size < 8, ['S', 'U'], Class::Bool),
                    ),
                }
            }
            return;
        }
        let extend = extension(t, |s| s.size < 8, ['S', 'U'], Class::Bool);
        if self.general.is_empty() {
            self.on_stack(of, t, 0, extend);
        } else if t.size() > 8 && self.general.len() == 1 {
            self.general(of, 0, 8, '-');
            self.on_stack(of, t, 8, '-');
        } else {
            self.words(of, t, extend);
        }
    }
}

fn is_float(s: &Scalar) -> bool {
    s.class == Class::Float
}

/// How an integer that is alone and narrow fills its word; `char` is signed if `char_is` says so.
fn extension(t: &Type, narrow: impl Fn(&Scalar) -> bool, [signed, unsigned]: [char; 2], char_is: Class) -> char {
    match t {
        Type::Plain(s) if !is_float(s) && narrow(s) => {
            let is_signed = s.class == Class::Signed || (s.class == Class::Char && char_is == Class::Signed);
            if is_signed { signed } else { unsigned }
        }
        _ => '-',
    }
}

/// Where a call of this prototype has everything.
pub fn place(isa: Isa, proto: &Prototype) -> Placed {
    let mut free = Free::args(isa);
    let (mut result, mut memory) = (Vec::new(), None);
    if let Some(t) = &proto.result {
        let flat = t.flat();
        let by_elements =
            isa == Isa::Arm && flat.len() <= 4 && flat.iter().all(|(_, s)| is_float(s) && s.size == flat[0].1.size);
        if t.size() > 16 && !by_elements {
            // On arm64 in a register of its own.
            memory = Some(if isa == Isa::Arm { 8 } else { free.general.remove(0) });
        } else {
            let mut results = Free::results(isa);
            results.value(0, t);
            result = results.placed;
        }
    }
    for (i, t) in proto.args.iter().enumerate() {
        free.value(i, t);
    }
    Placed { args: free.placed, result, memory, stack: free.stack }
}
