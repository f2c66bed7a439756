//! What instructions do to the stack pointer and to return addresses, from Capstone's mnemonic and operands. RISC-V unprivileged
//! manual, 2 and 27.

use codegen::arch::moves::{Move, number};
use codegen::words::abi::Reg;

use crate::regs::{GP, RA, TABLE, ZERO};

/// Beginnings of the names of instructions that write no general register.
const WRITES_NOTHING: &[&str] = &["b", "j", "ret", "nop", "ecall", "fence", "fs", "sb", "sh", "sw", "sd", "lpad"];

/// Bytes of what an instruction stores.
const STORES: &[(&str, u8)] = &[("sd", 8), ("sw", 4), ("sh", 2), ("sb", 1), ("fsd", 8), ("fsw", 4)];

/// The control and status register that an instruction names: behind the register that gets its value, where there is one (RISC-V
/// unprivileged manual, "Zicsr").
pub fn csr<'o>(mnemonic: &str, operands: &'o str) -> Option<&'o str> {
    let place = if mnemonic.starts_with("csrr") { 1 } else { 0 };
    operands.split(", ").nth(place).filter(|_| mnemonic.starts_with("csr"))
}

/// The moves of an instruction.
pub fn moves(mnemonic: &str, operands: &str) -> Vec<Move> {
    // Those that address by SP have no other form.
    let name = mnemonic.trim_start_matches("c.");
    let name = ["addi16sp", "addi4spn", "sdsp", "ldsp", "swsp", "lwsp", "fsdsp", "fldsp"]
        .into_iter()
        .find(|short| *short == name)
        .map_or(name, |short| if short.starts_with("addi") { "addi" } else { short.trim_end_matches("sp") });
    let all: Vec<&str> = operands.split(", ").collect();
    let get = |n: usize| all.get(n).copied().unwrap_or("");
    let (first, second, third) = (register(get(0)), register(get(1)), register(get(2)));
    let stored = STORES.iter().find(|(store, _)| *store == name);
    match (name, first, memory(get(1))) {
        ("sspush", Some(reg), _) => vec![Move::Push(reg)],
        ("sspopchk", Some(reg), _) => vec![Move::PopCheck(reg)],
        ("ssamoswap.w" | "ssamoswap.d", ..) => vec![Move::ShadowPointer],
        ("ssrdp", ..) => vec![Move::ShadowRead],
        // Capstone has the number.
        _ if csr(mnemonic, operands).is_some_and(|csr| ["ssp", "17", "0x11"].contains(&csr)) => {
            vec![if mnemonic == "csrr" { Move::ShadowRead } else { Move::ShadowPointer }]
        }
        // Clang's ShadowCallStack.
        ("sd", Some(RA), Some((GP, -8))) => vec![Move::PushScs(RA)],
        ("ld", Some(RA), Some((GP, -8))) => vec![Move::PopScs(RA)],
        ("unimp" | "ebreak", ..) => vec![Move::Stop],
        ("ld", Some(to), Some((at, plus))) if to != ZERO => vec![Move::Load { to, at, plus }],
        (_, what, Some((at, plus))) if stored.is_some() => {
            let bytes = stored.map_or(8, |(_, bytes)| *bytes);
            vec![Move::Store { what: what.filter(|_| name == "sd"), at, plus, bytes }]
        }
        (_, None | Some(ZERO), _) => Vec::new(),
        ("mv", Some(to), _) => second.map_or(vec![Move::Lose(to)], |from| vec![Move::Add { to, from, plus: 0 }]),
        ("li", Some(to), _) => number(get(1)).map_or(vec![Move::Lose(to)], |value| vec![Move::Number { to, value }]),
        ("lui", Some(to), _) => upper(to, get(1)),
        // Short forms name the register that they read and write once.
        ("addi", Some(to), _) => match (second, number(get(1)), number(get(2))) {
            (None, Some(plus), _) => vec![Move::Add { to, from: to, plus }],
            (Some(from), _, Some(plus)) => vec![Move::Add { to, from, plus }],
            _ => vec![Move::Lose(to)],
        },
        ("add" | "sub", Some(to), _) => match (second, third) {
            (Some(by), None) => vec![Move::Sum { to, from: to, by, minus: name == "sub" }],
            (Some(from), Some(by)) => vec![Move::Sum { to, from, by, minus: name == "sub" }],
            _ => vec![Move::Lose(to)],
        },
        ("andi", Some(to), _) if number(get(2)).or(number(get(1))).is_some_and(i64::is_negative) => {
            vec![Move::Align(to)]
        }
        (_, Some(to), _) if !WRITES_NOTHING.iter().any(|start| name.starts_with(start)) => vec![Move::Lose(to)],
        _ => Vec::new(),
    }
}

/// LUI: a number of 20 bits in the upper part of the lower half, whose sign goes on.
fn upper(to: Reg, text: &str) -> Vec<Move> {
    let value = number(text).map(|n| i64::from((n << 12) as i32));
    value.map_or(vec![Move::Lose(to)], |value| vec![Move::Number { to, value }])
}

/// The register of this name.
fn register(name: &str) -> Option<Reg> {
    let name = if name == "fp" { "s0" } else { name };
    TABLE.iter().position(|r| r.name == name).map(|n| Reg(n as u8))
}

/// `8(sp)`.
fn memory(operand: &str) -> Option<(Reg, i64)> {
    let (plus, base) = operand.strip_suffix(')')?.split_once('(')?;
    Some((register(base)?, number(plus)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::{A0, RA, S0, SP, T0};

    #[test]
    fn a_frame_is_made_and_left() {
        let add = |to, from, plus| [Move::Add { to, from, plus }];
        assert_eq!(moves("c.addi16sp", "sp, -0x20"), add(SP, SP, -32));
        assert_eq!(moves("addi", "sp, sp, -0x20"), add(SP, SP, -32));
        assert_eq!(moves("c.addi4spn", "s0, sp, 0x20"), add(S0, SP, 32));
        assert_eq!(moves("c.addi", "sp, -0x10"), add(SP, SP, -16));
        assert_eq!(moves("c.sdsp", "ra, 0x18(sp)"), [Move::Store { what: Some(RA), at: SP, plus: 24, bytes: 8 }]);
        assert_eq!(moves("ld", "ra, 0x18(sp)"), [Move::Load { to: RA, at: SP, plus: 24 }]);
        assert_eq!(moves("lui", "t0, 0xfffff"), [Move::Number { to: T0, value: -4096 }]);
        assert_eq!(moves("c.add", "sp, t0"), [Move::Sum { to: SP, from: SP, by: T0, minus: false }]);
    }

    #[test]
    fn what_is_not_followed_is_lost() {
        assert_eq!(moves("lw", "a0, 0(sp)"), [Move::Lose(A0)]);
        assert_eq!(moves("mul", "a0, a0, a0"), [Move::Lose(A0)]);
        assert_eq!(moves("beq", "a0, zero, 8"), []);
        assert_eq!(moves("sw", "a0, 4(sp)"), [Move::Store { what: None, at: SP, plus: 4, bytes: 4 }]);
    }
}
