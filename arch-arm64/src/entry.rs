//! Entries of functions compiled without a site: one B, and the instruction that it overwrites.

use codegen::arch::entry::{Class, Code, Entry, Flow, Insn, Making, Room, Signing};
use codegen::arch::patch::{Branch, Relocation};
use codegen::words::error::{Error, Result};
use codegen::words::field::get;

use crate::reloc::{self, relocate};

/// The branch that is written.
const B: Room = Room { branch: Branch::SiteJump, bytes: 4, align: 4 };
/// `b .`.
const B_INSN: u32 = 0x1400_0000;
/// `br x16`: through this register, a jump may reach the landing pad of a call.
const BR_X16: u32 = 0xd61f_0200;
const NOP: u32 = 0xd503_201f;
/// `paciasp` and `pacibsp`, which are landing pads too; `autiasp` and `autibsp`.
const SIGNINGS: [Signing; 2] = [
    Signing { sign: &[0x3f, 0x23, 0x03, 0xd5], authenticate: &[0xbf, 0x23, 0x03, 0xd5] },
    Signing { sign: &[0x7f, 0x23, 0x03, 0xd5], authenticate: &[0xff, 0x23, 0x03, 0xd5] },
];
/// The registers of the psABI's linkage code, and of calls.
const X16: u32 = 16;
const X30: u32 = 30;
/// Atomic operations out of line, which keep nearly all registers.
const ATOMICS: &str = "__aarch64_";

/// Direct branches and what else refers to addresses: the bits that say so, and the field.
const KINDS: &[(u32, u32, Kind)] = &[
    (0xfc00_0000, B_INSN, Kind::Jump),
    (0xfc00_0000, 0x9400_0000, Kind::Call),
    (0xff00_0000, 0x5400_0000, Kind::Branch(19, reloc::CONDBR19)),
    (0x7e00_0000, 0x3400_0000, Kind::Branch(19, reloc::CONDBR19)),
    (0x7e00_0000, 0x3600_0000, Kind::Branch(14, reloc::TSTBR14)),
    (0x9f00_0000, 0x1000_0000, Kind::Address(0)),
    (0x9f00_0000, 0x9000_0000, Kind::Address(12)),
    (0x3b00_0000, 0x1800_0000, Kind::Load),
    // BLR and its relatives with authentication.
    (0xfe60_0000, 0xd620_0000, Kind::Stays("an indirect call")),
    (0xfe00_0000, 0xd600_0000, Kind::Away),
    // BRK.
    (0xffe0_001f, 0xd420_0000, Kind::Away),
    // LDXR, STXR and their relatives: between both, nothing may branch.
    (0x3f80_0000, 0x0800_0000, Kind::Stays("an exclusive access")),
    // Compare and branch (FEAT_CMPBR).
    (0x7e00_0000, 0x7400_0000, Kind::Stays("a branch of a kind that is not moved")),
    // UDF.
    (0xffff_0000, 0, Kind::Padding),
    (0xffff_ffff, NOP, Kind::Padding),
];

#[derive(Clone, Copy)]
enum Kind {
    /// B.
    Jump,
    /// BL.
    Call,
    /// A branch that may not be taken: the bits of its distance, and their relocation.
    Branch(u32, u32),
    /// ADR or ADRP, in units of so many bits.
    Address(u32),
    /// A load from a place relative to it.
    Load,
    Away,
    Stays(&'static str),
    Padding,
    Other,
}

fn kind(insn: u32) -> Kind {
    let fits = |(mask, is, _): &&(u32, u32, Kind)| insn & mask == *is;
    KINDS.iter().find(fits).map_or(Kind::Other, |(.., kind)| *kind)
}

/// A signed field of so many bits.
fn signed(insn: u32, at: u32, bits: u32) -> i64 {
    i64::from(((insn >> at) << (32 - bits)).cast_signed() >> (32 - bits))
}

/// The address to which the instruction at `at` refers.
fn refers(kind: Kind, insn: u32, at: u64) -> Option<u64> {
    let distance = match kind {
        Kind::Jump | Kind::Call => signed(insn, 0, 26) << 2,
        Kind::Branch(bits, _) => signed(insn, 5, bits) << 2,
        Kind::Load => signed(insn, 5, 19) << 2,
        Kind::Address(unit) => {
            let distance = signed(insn, 5, 19) << 2 | i64::from(insn >> 29 & 3);
            return Some((at >> unit << unit).wrapping_add_signed(distance << unit));
        }
        Kind::Away | Kind::Stays(_) | Kind::Padding | Kind::Other => return None,
    };
    Some(at.wrapping_add_signed(distance))
}

/// The instruction at an address.
pub fn decode(bytes: &[u8], at: u64) -> Option<Insn> {
    let insn = u32::from_le_bytes(*bytes.first_chunk()?);
    let kind = kind(insn);
    let (flow, branches) = match kind {
        Kind::Jump => (Flow::Away, true),
        Kind::Call => (Flow::Call, true),
        Kind::Branch(..) => (Flow::On, true),
        Kind::Address(_) | Kind::Load | Kind::Other => (Flow::On, false),
        Kind::Away => (Flow::Away, false),
        Kind::Stays(why) => (Flow::Stays(why), false),
        Kind::Padding => (Flow::Padding, false),
    };
    Some(Insn { len: 4, flow, target: refers(kind, insn, at).filter(|_| branches) })
}

/// How an entry is patched: behind its landing pad, if it has one.
pub fn entries(code: &Code) -> Vec<Entry> {
    let refused = |class, why| vec![code.refused(B.branch, class, why)];
    if code.name.starts_with(ATOMICS) {
        return refused(Class::Refused, "an atomic operation, called in a way of its own");
    }
    let Some(first) = code.bytes.first_chunk().map(|insn| u32::from_le_bytes(*insn)) else {
        return refused(Class::TrapOnly, "shorter than a branch");
    };
    let signs = |signing: &&Signing| code.guarded && code.bytes.starts_with(signing.sign);
    if let Some(signing) = SIGNINGS.iter().find(signs) {
        return vec![code.signed(*signing, B, &decode)];
    }
    // BTI with any operand.
    let at = if first & !0xc0 == 0xd503_241f { 4 } else { 0 };
    vec![code.entry(at, B, &decode)]
}

/// An instruction at another place, with the same effect.
///
/// # Errors
/// It cannot be moved.
pub fn moved(code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
    let insn = u32::from_le_bytes(get(code)?);
    let kind = kind(insn);
    let target = refers(kind, insn, from).unwrap_or_default();
    let behind = from.wrapping_add(4);
    let mut new = Making::new(to);
    match kind {
        _ if code.len() != 4 => {
            return Err(Error::new("more than one instruction; valid: the one that a branch overwrites"));
        }
        Kind::Stays(why) => {
            return Err(Error::new(format!("{why} at {from:#x} cannot be moved; valid: another entry")));
        }
        Kind::Jump => jump(&mut new, target),
        Kind::Call => {
            load(&mut new, X30, behind);
            jump(&mut new, target);
        }
        Kind::Branch(_, field) => branch(&mut new, insn, field, target)?,
        Kind::Address(_) => load(&mut new, insn & 31, target),
        Kind::Load => read(&mut new, insn, target),
        Kind::Away | Kind::Padding | Kind::Other => new.push(code),
    }
    jump(&mut new, behind);
    new.finish(&|code, at, word| {
        relocate(&Relocation { r_type: reloc::CONDBR19, place: at, value: word, high: 0 }, code)
    })
}

/// `ldr x, =value`.
fn load(new: &mut Making, register: u32, value: u64) {
    new.load(&(0x5800_0000 | register).to_le_bytes(), value);
}

fn jump(new: &mut Making, target: u64) {
    let mut near = B_INSN.to_le_bytes();
    let field = Relocation { r_type: reloc::JUMP26, place: new.here(), value: target, high: 0 };
    if relocate(&field, &mut near).is_ok() {
        return new.push(&near);
    }
    load(new, X16, target);
    new.push(&BR_X16.to_le_bytes());
}

/// The branch itself, to a jump to its target; and a jump past that.
fn branch(new: &mut Making, insn: u32, r_type: u32, target: u64) -> Result<()> {
    let mut short = insn.to_le_bytes();
    relocate(&Relocation { r_type, place: 0, value: 8, high: 0 }, &mut short)?;
    let mut far = Making::new(new.here() + 8);
    jump(&mut far, target);
    new.push(&short);
    let past = (far.here() - new.here()) as u32;
    new.push(&(B_INSN | past >> 2).to_le_bytes());
    jump(new, target);
    Ok(())
}

/// A load from this address.
fn read(new: &mut Making, insn: u32, address: u64) {
    let (register, vector, opcode) = (insn & 31, insn >> 26 & 1 == 1, insn >> 30);
    let load_insn: u32 = match (vector, opcode) {
        (false, 0) => 0xb940_0000,
        (false, 1) => 0xf940_0000,
        (false, 2) => 0xb980_0000,
        (true, 0) => 0xbd40_0000,
        (true, 1) => 0xfd40_0000,
        (true, _) => 0x3dc0_0000,
        // PRFM: a hint.
        (false, _) => return new.push(&NOP.to_le_bytes()),
    };
    // Register number 31 cannot hold an address.
    let base = if vector || register == 31 { X16 } else { register };
    load(new, base, address);
    new.push(&(load_insn | base << 5 | register).to_le_bytes());
}
