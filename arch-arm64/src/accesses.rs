//! Loads and stores of an instruction: Arm ARM C4.1, "Loads and stores".

use codegen::arch::bare::Decoded;
use codegen::words::error::{Error, Result};

/// Bytes of an instruction.
const SIZE: usize = 4;

/// What an instruction does.
///
/// # Errors
/// It loads or stores, and is none of those that are known here.
pub fn decode(bytes: &[u8], at: u64, register: &dyn Fn(&str) -> u64) -> Result<Decoded> {
    // What lies across the end of memory is not fetched.
    let Ok(word) = bytes[..bytes.len().min(SIZE)].try_into().map(u32::from_le_bytes) else {
        return Ok(Decoded::default());
    };
    let insn = Insn { word, at, register };
    match insn.accesses() {
        Some(accesses) => Ok(Decoded { bytes: SIZE, accesses }),
        None => Err(Error::new(format!("what .inst {word:#010x} at {at:#x} loads or stores is not known here"))),
    }
}

/// Address, bytes, whether it is a store.
type Accesses = Vec<(u64, usize, bool)>;

/// What is done with memory.
#[derive(Clone, Copy)]
enum Does {
    Load,
    Store,
    Both,
}

/// An instruction where registers have values.
#[derive(Clone, Copy)]
struct Insn<'a> {
    word: u32,
    at: u64,
    register: &'a dyn Fn(&str) -> u64,
}

impl Insn<'_> {
    /// So many bits, from this one on.
    fn bits(self, from: u32, count: u32) -> u32 {
        self.word >> from & ((1 << count) - 1)
    }

    fn bit(self, at: u32) -> bool {
        self.bits(at, 1) == 1
    }

    /// The same, signed.
    fn signed(self, from: u32, count: u32) -> u64 {
        let high = self.word << (32 - from - count);
        (high as i32 >> (32 - count)) as u64
    }

    /// The address in Rn, or SP.
    fn base(self) -> u64 {
        match self.bits(5, 5) {
            31 => (self.register)("sp"),
            n => (self.register)(&format!("x{n}")),
        }
    }

    fn accesses(self) -> Option<Accesses> {
        // Bits 28 to 25 are x1x0.
        if !self.bit(27) || self.bit(25) {
            // Those of SVE, and of several of its vectors.
            let is_sve = self.bit(31) && matches!(self.bits(25, 4), 0b0000 | 0b0010);
            // DC ZVA, GVA and GZVA.
            let zeroes = [0xd50b_7420, 0xd50b_7460, 0xd50b_7480].contains(&(self.word & 0xffff_ffe0));
            return (!is_sve && !zeroes).then(Vec::new);
        }
        match self.bits(28, 2) {
            0b00 if self.bit(26) => self.structures(),
            0b00 => self.exclusive(),
            0b01 if self.bit(24) => self.ordered(),
            0b01 => self.literal(),
            0b10 => self.pair(),
            _ => self.one(),
        }
    }

    fn does(self, what: Does, at: u64, bytes: usize) -> Accesses {
        let (load, store) = ((at, bytes, false), (at, bytes, true));
        match what {
            Does::Load => vec![load],
            Does::Store => vec![store],
            Does::Both => vec![load, store],
        }
    }

    /// "Advanced SIMD load/store multiple structures", "single structure".
    fn structures(self) -> Option<Accesses> {
        let what = if self.bit(22) { Does::Load } else { Does::Store };
        if self.bit(31) {
            return None;
        }
        let bytes = if self.bit(24) {
            let count = 1 + 2 * self.bits(13, 1) + self.bits(21, 1);
            let size = match self.bits(14, 2) {
                0b10 if self.bit(10) => 8,
                0b10 => 4,
                0b11 => 1 << self.bits(10, 2),
                scale => 1 << scale,
            };
            count * size
        } else {
            let registers = match self.bits(12, 4) {
                0b0000 | 0b0010 => 4,
                0b0100 | 0b0110 => 3,
                0b1000 | 0b1010 => 2,
                0b0111 => 1,
                _ => return None,
            };
            registers * (8 << self.bits(30, 1))
        };
        Some(self.does(what, self.base(), bytes as usize))
    }

    /// "Load/store exclusive", "ordered", "Compare and swap". A store that is exclusive may come to nothing.
    fn exclusive(self) -> Option<Accesses> {
        if self.bit(24) {
            return None;
        }
        let (size, loads) = (self.bits(30, 2), if self.bit(22) { Does::Load } else { Does::Store });
        let (what, bytes) = match (self.bit(23), self.bit(21)) {
            (false, false) | (true, false) => (loads, 1 << size),
            (false, true) if size >= 2 => (loads, 2 << size),
            (false, true) => (Does::Both, 8 << size),
            (true, true) => (Does::Both, 1 << size),
        };
        Some(self.does(what, self.base(), bytes))
    }

    /// "LDAPR/STLR (unscaled immediate)". Tags, copies of memory, and the guarded control stack are others.
    fn ordered(self) -> Option<Accesses> {
        if self.bit(26) || self.bit(21) || self.bits(10, 2) != 0 {
            return None;
        }
        let what = if self.bits(22, 2) == 0 { Does::Store } else { Does::Load };
        Some(self.does(what, self.base().wrapping_add(self.signed(12, 9)), 1 << self.bits(30, 2)))
    }

    /// "Load register (literal)".
    fn literal(self) -> Option<Accesses> {
        let bytes = match (self.bit(26), self.bits(30, 2)) {
            (true, 0b11) => return None,
            (true, opc) => 4 << opc,
            (false, 0b01) => 8,
            // PRFM.
            (false, 0b11) => return Some(Vec::new()),
            (false, _) => 4,
        };
        Some(self.does(Does::Load, self.at.wrapping_add(self.signed(5, 19) << 2), bytes))
    }

    /// "Load/store register pair".
    fn pair(self) -> Option<Accesses> {
        let is_load = self.bit(22);
        let each = match (self.bit(26), self.bits(30, 2)) {
            (true, 0b11) => return None,
            (true, opc) => 4 << opc,
            (false, 0b00) => 4,
            (false, 0b01) if is_load && self.bits(23, 2) != 0 => 4,
            (false, 0b10) => 8,
            _ => return None,
        };
        let moved = self.signed(15, 7).wrapping_mul(each as u64);
        // Post-indexed is 01.
        let at = if self.bits(23, 2) == 0b01 { self.base() } else { self.base().wrapping_add(moved) };
        Some(self.does(if is_load { Does::Load } else { Does::Store }, at, 2 * each))
    }

    /// "Load/store register", in all its forms, and "Atomic memory operations".
    fn one(self) -> Option<Accesses> {
        let (is_vector, opc) = (self.bit(26), self.bits(22, 2));
        let shift = match is_vector {
            true => self.bits(30, 2) | (opc >> 1) << 2,
            false => self.bits(30, 2),
        };
        if !self.bit(24) && self.bit(21) && self.bits(10, 2) != 0b10 {
            return self.atomic();
        }
        let what = match (is_vector, opc, shift) {
            (true, ..) if shift > 4 => return None,
            (true, ..) if opc & 1 == 0 => Does::Store,
            (false, 0, _) => Does::Store,
            // PRFM.
            (false, 2, 3) => return Some(Vec::new()),
            _ => Does::Load,
        };
        let moved = if self.bit(24) {
            u64::from(self.bits(10, 12)) << shift
        } else if self.bit(21) {
            self.index()? << if self.bit(12) { shift } else { 0 }
        } else if self.bits(10, 2) == 0b01 {
            // Post-indexed.
            0
        } else {
            self.signed(12, 9)
        };
        Some(self.does(what, self.base().wrapping_add(moved), 1 << shift))
    }

    /// Rm, extended.
    fn index(self) -> Option<u64> {
        let value = match self.bits(16, 5) {
            31 => 0,
            n => (self.register)(&format!("x{n}")),
        };
        match self.bits(13, 3) {
            0b010 => Some(value & 0xffff_ffff),
            0b011 | 0b111 => Some(value),
            0b110 => Some(value as i32 as u64),
            _ => None,
        }
    }

    /// LDADD to SWP, and LDAPR. Those of 64 bytes, and loads by signed addresses, are others.
    fn atomic(self) -> Option<Accesses> {
        let what = match (self.bit(15), self.bits(12, 3)) {
            _ if self.bit(26) || self.bits(10, 2) != 0 => return None,
            (false, _) | (true, 0) => Does::Both,
            (true, 0b100) if self.bits(22, 2) == 0b10 => Does::Load,
            _ => return None,
        };
        Some(self.does(what, self.base(), 1 << self.bits(30, 2)))
    }
}
