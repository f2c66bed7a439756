//! Entries of functions compiled without a site: JAL, or AUIPC and JALR if JAL does not reach, and the overwritten instructions.

use codegen::arch::entry::{Class, Code, Entry, Flow, Insn, Making, Room};
use codegen::arch::patch::{Branch, Relocation};
use codegen::words::error::{Error, Result};

use crate::reloc::{self, relocate};

/// The branches that are written: JAL, which reaches 1 MiB, or the pair, which reaches 2 GiB.
const ROOMS: [Room; 2] =
    [Room { branch: Branch::Past, bytes: 4, align: 4 }, Room { branch: Branch::SiteJump, bytes: 8, align: 8 }];
/// Saves and restores registers for others, who call it with the return address in t0.
const MILLICODE: [&str; 2] = ["__riscv_save_", "__riscv_restore_"];
/// Registers that carry nothing at a function's entry: t1, t3 to t6.
const FREE: [u32; 5] = [6, 28, 29, 30, 31];
const RA: u32 = 1;

const AUIPC: u32 = 0x17;
const JALR: u32 = 0x67;
const JAL: u32 = 0x6f;
const BRANCH: u32 = 0x63;
/// `ld x0, 0(x0)`.
const LD: u32 = 0x3003;
const ADDI: u32 = 0x13;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// AUIPC of a register: the value.
    Address {
        rd: u32,
        value: u64,
    },
    /// JAL; with a register, it links.
    Jump {
        rd: u32,
        target: u64,
    },
    /// JALR.
    Indirect {
        rd: u32,
        rs1: u32,
        offset: u32,
    },
    /// A branch that may not be taken, as it would be without a distance.
    Branch {
        insn: u32,
        target: u64,
    },
    Stays(&'static str),
    Padding,
    Other,
}

/// Bits of a compressed instruction's distance: from which bit, how many, to which bit.
type Bits = &'static [(u32, u32, u32)];
const CJ: Bits = &[(3, 3, 1), (11, 1, 4), (2, 1, 5), (7, 1, 6), (6, 1, 7), (9, 2, 8), (8, 1, 10), (12, 1, 11)];
const CB: Bits = &[(3, 2, 1), (10, 2, 3), (2, 1, 5), (5, 2, 6), (12, 1, 8)];
const J: Bits = &[(21, 10, 1), (20, 1, 11), (12, 8, 12), (31, 1, 20)];
const B: Bits = &[(8, 4, 1), (25, 6, 5), (7, 1, 11), (31, 1, 12)];

/// A distance: its highest bit, which is the last, is its sign.
fn distance(insn: u32, bits: Bits) -> i64 {
    let value = bits.iter().fold(0, |all, (from, count, to)| all | (insn >> from & ((1 << count) - 1)) << to);
    let unused = 31 - bits.last().map_or(31, |(_, _, to)| *to);
    i64::from((value << unused).cast_signed() >> unused)
}

/// The instruction's bytes, and what it is.
fn read(bytes: &[u8], at: u64) -> Option<(usize, u32, Kind)> {
    let short = u32::from(u16::from_le_bytes(*bytes.first_chunk()?));
    if short & 3 != 3 {
        return Some((2, short, compressed(short, at)));
    }
    let insn = u32::from_le_bytes(*bytes.first_chunk()?);
    let (rd, rs1) = (insn >> 7 & 31, insn >> 15 & 31);
    let to = |bits| at.wrapping_add_signed(distance(insn, bits));
    let kind = match insn & 0x7f {
        // Longer ones.
        opcode if opcode & 0x1f == 0x1f => return None,
        AUIPC if rd != 0 => {
            Kind::Address { rd, value: at.wrapping_add_signed((insn & 0xffff_f000).cast_signed().into()) }
        }
        JAL => Kind::Jump { rd, target: to(J) },
        JALR => Kind::Indirect { rd, rs1, offset: insn >> 20 },
        BRANCH => Kind::Branch { insn: insn & 0x01ff_f07f, target: to(B) },
        // LR and SC: between both, nothing may branch.
        0x2f if insn >> 28 == 1 => Kind::Stays("an exclusive access"),
        _ if insn == ADDI => Kind::Padding,
        _ => Kind::Other,
    };
    Some((4, insn, kind))
}

fn compressed(insn: u32, at: u64) -> Kind {
    let to = |bits| at.wrapping_add_signed(distance(insn, bits));
    let register = insn >> 7 & 31;
    match (insn & 3, insn >> 13) {
        _ if insn <= 1 => Kind::Padding,
        (1, 5) => Kind::Jump { rd: 0, target: to(CJ) },
        (1, which @ (6 | 7)) => {
            let rs1 = 8 + (insn >> 7 & 7);
            Kind::Branch { insn: BRANCH | (which & 1) << 12 | rs1 << 15, target: to(CB) }
        }
        // Without a second register. EBREAK has no first one either.
        (2, 4) if insn >> 2 & 31 == 0 && register != 0 => {
            Kind::Indirect { rd: RA * (insn >> 12 & 1), rs1: register, offset: 0 }
        }
        _ => Kind::Other,
    }
}

/// The instruction at an address.
pub fn decode(bytes: &[u8], at: u64) -> Option<Insn> {
    let (len, _, kind) = read(bytes, at)?;
    let (flow, target) = match kind {
        Kind::Jump { rd: 0, target } => (Flow::Away, Some(target)),
        Kind::Jump { target, .. } => (Flow::Call, Some(target)),
        Kind::Indirect { rd: 0, .. } => (Flow::Away, None),
        Kind::Indirect { .. } => (Flow::Call, None),
        Kind::Branch { target, .. } => (Flow::On, Some(target)),
        Kind::Stays(why) => (Flow::Stays(why), None),
        Kind::Padding => (Flow::Padding, None),
        Kind::Address { .. } | Kind::Other => (Flow::On, None),
    };
    Some(Insn { len, flow, target })
}

/// How an entry is patched: behind its landing pad, if it has one.
pub fn entries(code: &Code) -> Vec<Entry> {
    if MILLICODE.iter().any(|name| code.name.starts_with(name)) {
        let refused = |room: Room| code.refused(room.branch, Class::Refused, "called in a way of its own");
        return ROOMS.map(refused).to_vec();
    }
    // LPAD is an AUIPC without a register.
    let pad = code.bytes.first_chunk().is_some_and(|insn| u32::from_le_bytes(*insn) & 0xfff == AUIPC);
    let at = if pad { 4 } else { 0 };
    ROOMS.map(|room| code.entry(at, room, &decode)).to_vec()
}

/// Instructions at another place, with the same effect.
///
/// # Errors
/// One cannot be moved, or no register is free for a far jump.
pub fn moved(code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
    let mut new = Making::new(to);
    let scratch = scratch(code)
        .ok_or_else(|| Error::new(format!("{from:#x}: all t-registers are in use; valid: another entry")))?;
    let mut rest = code;
    while !rest.is_empty() {
        let at = from.wrapping_add((code.len() - rest.len()) as u64);
        let unknown = || Error::new(format!("{at:#x}: unknown instruction; valid: whole instructions"));
        let (len, _, kind) = read(rest, at).ok_or_else(unknown)?;
        let (this, next) = rest.split_at_checked(len).ok_or_else(unknown)?;
        let behind = at.wrapping_add(len as u64);
        match kind {
            Kind::Stays(why) => {
                return Err(Error::new(format!("{why} at {at:#x} cannot be moved; valid: another entry")));
            }
            Kind::Address { rd, value } => load(&mut new, rd, value),
            Kind::Jump { rd, target } => {
                link(&mut new, rd, behind);
                jump(&mut new, scratch, target);
            }
            Kind::Indirect { rd, rs1, offset } if rd != 0 => {
                new.push(&(ADDI | scratch << 7 | rs1 << 15 | offset << 20).to_le_bytes());
                link(&mut new, rd, behind);
                new.push(&(JALR | scratch << 15).to_le_bytes());
            }
            Kind::Branch { insn, target } => branch(&mut new, insn, scratch, target)?,
            Kind::Indirect { .. } | Kind::Padding | Kind::Other => new.push(this),
        }
        rest = next;
    }
    jump(&mut new, scratch, from.wrapping_add(code.len() as u64));
    new.finish(&|code, at, word| {
        let field = |r_type, place| Relocation { r_type, place, value: word, high: at };
        relocate(&field(reloc::PCREL_HI20, at), code)?;
        relocate(&field(reloc::PCREL_LO12_I, at + 4), code.get_mut(4..).unwrap_or_default())
    })
}

/// A register that is free at the entry and that these instructions do not touch. Whatever may be a register's number is taken
/// for one.
fn scratch(code: &[u8]) -> Option<u32> {
    let mut used = 0_u32;
    let mut rest = code;
    while let Some((len, insn, _)) = read(rest, 0) {
        let fields: &[u32] = if len == 2 { &[2, 7] } else { &[7, 15, 20, 27] };
        used = fields.iter().fold(used, |used, at| used | 1 << (insn >> at & 31));
        rest = rest.get(len..).unwrap_or_default();
    }
    FREE.into_iter().find(|register| used >> register & 1 == 0)
}

/// `auipc rd` and `ld rd`: a value of 64 bits.
fn load(new: &mut Making, rd: u32, value: u64) {
    let pair = [AUIPC | rd << 7, LD | rd << 7 | rd << 15];
    new.load(&pair.map(u32::to_le_bytes).concat(), value);
}

fn link(new: &mut Making, rd: u32, back: u64) {
    if rd != 0 {
        load(new, rd, back);
    }
}

fn jump(new: &mut Making, scratch: u32, target: u64) {
    let field = |r_type| Relocation { r_type, place: new.here(), value: target, high: 0 };
    let (mut near, mut pair) =
        (JAL.to_le_bytes(), [AUIPC | scratch << 7, JALR | scratch << 15].map(u32::to_le_bytes).concat());
    if relocate(&field(reloc::JAL), &mut near).is_ok() {
        new.push(&near);
    } else if relocate(&field(reloc::CALL), &mut pair).is_ok() {
        new.push(&pair);
    } else {
        load(new, scratch, target);
        new.push(&(JALR | scratch << 15).to_le_bytes());
    }
}

/// The branch, to a jump to its target; and a jump past that.
fn branch(new: &mut Making, insn: u32, scratch: u32, target: u64) -> Result<()> {
    let mut short = insn.to_le_bytes();
    relocate(&Relocation { r_type: reloc::BRANCH, place: 0, value: 8, high: 0 }, &mut short)?;
    let mut far = Making::new(new.here() + 8);
    jump(&mut far, scratch, target);
    new.push(&short);
    jump(new, scratch, far.here());
    jump(new, scratch, target);
    Ok(())
}
