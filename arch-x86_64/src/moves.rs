//! What instructions do to the stack pointer and to return addresses, from Capstone's mnemonic and operands. Intel SDM volume 2.

use codegen::arch::moves::{Move, number};
use codegen::words::abi::Reg;

use crate::regs::{R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, TABLE};

/// Bytes of a word of the stack.
const WORD: i64 = 8;

/// Instructions that write no general register and no memory that they name first, besides those whose names begin so.
const WRITES_NOTHING: &[&str] =
    &["cmp", "test", "nop", "bt", "call", "jmp", "ret", "prefetch", "comis", "ucomis", "endbr", "vptest", "ptest"];

/// Instructions that write registers which they do not name.
const IMPLICIT: &[(&str, &[Reg])] = &[
    ("mul", &[RAX, RDX]),
    ("div", &[RAX, RDX]),
    ("idiv", &[RAX, RDX]),
    ("cqo", &[RDX]),
    ("cdq", &[RDX]),
    ("cdqe", &[RAX]),
    ("cwde", &[RAX]),
    ("cpuid", &[RAX, RBX, RCX, RDX]),
    ("xgetbv", &[RAX, RDX]),
    ("rdtsc", &[RAX, RDX]),
    ("rdtscp", &[RAX, RCX, RDX]),
    ("syscall", &[RAX, RCX, R11]),
    ("cmpxchg", &[RAX]),
    ("cmpxchg16b", &[RAX, RDX]),
];

/// Instructions on strings, which count in three registers.
const STRINGS: &[&str] = &["movs", "stos", "lods", "scas", "cmps"];

/// The moves of an instruction.
pub fn moves(mnemonic: &str, operands: &str) -> Vec<Move> {
    let mnemonic = mnemonic.rsplit(' ').next().unwrap_or(mnemonic);
    let all: Vec<&str> = operands.split(", ").collect();
    let (first, second) = (all.first().copied().unwrap_or(""), all.get(1).copied().unwrap_or(""));
    match (mnemonic, register(first), register(second)) {
        ("push" | "pushfq", from, _) => vec![down(), Move::Store { what: from, at: RSP, plus: 0, bytes: 8 }],
        ("pop", Some(to), _) => {
            vec![Move::Load { to, at: RSP, plus: 0 }, up()].into_iter().filter(|m| to != RSP || *m != up()).collect()
        }
        ("pop" | "popfq", None, _) => store(first, None).into_iter().chain([up()]).collect(),
        ("leave", ..) => vec![add(RSP, RBP, 0), Move::Load { to: RBP, at: RSP, plus: 0 }, up()],
        ("mov", Some(to), Some(from)) => vec![add(to, from, 0)],
        ("mov" | "movabs", Some(to), None) => match (number(second), memory(second)) {
            (Some(value), _) => vec![Move::Number { to, value }],
            (None, Some((at, plus))) => vec![Move::Load { to, at, plus }],
            (None, None) => vec![Move::Lose(to)],
        },
        ("mov", None, from) if first.contains('[') => store(first, from),
        ("lea", Some(to), _) => match memory(second) {
            Some((at, plus)) => vec![add(to, at, plus)],
            None => vec![Move::Lose(to)],
        },
        ("xor" | "sub", Some(to), Some(from)) if to == from => vec![Move::Number { to, value: 0 }],
        ("add" | "sub", Some(to), by) => {
            let minus = mnemonic == "sub";
            match (by, number(second)) {
                (Some(by), _) => vec![Move::Sum { to, from: to, by, minus }],
                (None, Some(n)) => vec![add(to, to, if minus { n.wrapping_neg() } else { n })],
                (None, None) => vec![Move::Lose(to)],
            }
        }
        // The stack is touched, and stays as it is.
        ("or" | "add" | "sub" | "xor", None, _) if number(second) == Some(0) => Vec::new(),
        ("inc", Some(to), _) => vec![add(to, to, 1)],
        ("dec", Some(to), _) => vec![add(to, to, -1)],
        ("and", Some(to), None) if number(second).is_some_and(i64::is_negative) => vec![Move::Align(to)],
        ("xchg", Some(a), Some(b)) => vec![Move::Swap(a, b)],
        ("ud2" | "hlt" | "int3", ..) => vec![Move::Stop],
        ("incsspq" | "incsspd" | "rstorssp" | "saveprevssp" | "setssbsy" | "clrssbsy" | "wrssq" | "wrussq", ..) => {
            vec![Move::ShadowPointer]
        }
        ("rdsspq" | "rdsspd", Some(to), _) => vec![Move::ShadowRead, Move::Lose(to)],
        _ => others(mnemonic, &all),
    }
}

/// The moves of those that are not followed.
fn others(mnemonic: &str, operands: &[&str]) -> Vec<Move> {
    if STRINGS.iter().any(|start| mnemonic.starts_with(start)) && operands.iter().any(|o| o.contains('[')) {
        let written = operands.iter().filter(|o| !o.contains('[')).filter_map(|o| part(o));
        return written.chain([RCX, RSI, RDI]).map(Move::Lose).collect();
    }
    let (first, second) = (operands.first().copied().unwrap_or(""), operands.get(1).copied().unwrap_or(""));
    let mut moves: Vec<Move> = IMPLICIT
        .iter()
        .filter(|(name, _)| *name == mnemonic)
        .flat_map(|(_, lost)| lost.iter().copied().map(Move::Lose))
        .collect();
    let alone = mnemonic == "imul" && second.is_empty();
    if alone {
        moves.extend([RAX, RDX].map(Move::Lose));
    }
    let writes =
        !alone && !mnemonic.starts_with('j') && !WRITES_NOTHING.iter().any(|start| mnemonic.starts_with(start));
    if writes && !["mul", "div", "idiv"].contains(&mnemonic) {
        moves.extend(part(first).map(Move::Lose));
        moves.extend(store(first, None));
    }
    if ["xchg", "xadd"].contains(&mnemonic) {
        moves.extend(part(second).map(Move::Lose));
        moves.extend(store(second, None));
    }
    moves
}

fn add(to: Reg, from: Reg, plus: i64) -> Move {
    Move::Add { to, from, plus }
}

/// SP moves by a word.
fn down() -> Move {
    add(RSP, RSP, -WORD)
}

fn up() -> Move {
    add(RSP, RSP, WORD)
}

/// A store to what the operand names, if that is memory at a register and a number.
fn store(operand: &str, what: Option<Reg>) -> Vec<Move> {
    let (_, bytes) = [("byte", 1), ("word", 2), ("dword", 4), ("xmmword", 16), ("ymmword", 32), ("zmmword", 64)]
        .into_iter()
        .find(|(name, _)| operand.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))
        .unwrap_or(("qword", 8));
    memory(operand).map(|(at, plus)| Move::Store { what, at, plus, bytes }).into_iter().collect()
}

/// The whole register of this name.
fn register(name: &str) -> Option<Reg> {
    TABLE.iter().position(|r| r.name == name).map(|n| Reg(n as u8))
}

/// The register of which this name is all or a part.
fn part(name: &str) -> Option<Reg> {
    let numbered = || {
        let digits = name.strip_prefix('r')?.trim_end_matches(['d', 'w', 'b']);
        register(&format!("r{digits}"))
    };
    let lettered = || {
        let core = name.strip_prefix('e').unwrap_or(name);
        register(&format!("r{core}")).or_else(|| {
            let core = core.strip_suffix(['l', 'h'])?;
            register(&format!("r{core}x")).or_else(|| register(&format!("r{core}")))
        })
    };
    register(name).or_else(numbered).or_else(lettered)
}

/// The register and the number of an address that has no index and no segment.
fn memory(operand: &str) -> Option<(Reg, i64)> {
    let (before, inside) = operand.strip_suffix(']')?.split_once('[')?;
    if before.contains(':') {
        return None;
    }
    if let Some((base, plus)) = inside.split_once(" + ") {
        return Some((register(base)?, number(plus)?));
    }
    if let Some((base, less)) = inside.split_once(" - ") {
        return Some((register(base)?, number(less)?.wrapping_neg()));
    }
    Some((register(inside)?, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_register_and_a_number() {
        assert_eq!(memory("qword ptr [rsp + 0x10]"), Some((RSP, 16)));
        assert_eq!(memory("[rbp - 0x28]"), Some((RBP, -40)));
        assert_eq!(memory("qword ptr [rax]"), Some((RAX, 0)));
        for other in ["qword ptr fs:[0x28]", "[rsp + rax*8]", "[rsp + rax + 8]", "[rip + 8]", "rax", "8"] {
            assert_eq!(memory(other), None, "{other}");
        }
    }

    #[test]
    fn a_part_of_a_register_is_of_the_whole() {
        for (name, whole) in [
            ("eax", "rax"),
            ("al", "rax"),
            ("sil", "rsi"),
            ("bpl", "rbp"),
            ("r11d", "r11"),
            ("ah", "rax"),
            ("cx", "rcx"),
        ] {
            assert_eq!(part(name), register(whole), "{name}");
        }
        assert_eq!(part("xmm0"), None);
    }

    #[test]
    fn what_is_not_followed_is_lost() {
        assert_eq!(moves("imul", "rbx, rax, 8"), [Move::Lose(RBX)]);
        assert_eq!(moves("mov", "ebx, dword ptr [rsp]"), [Move::Lose(RBX)]);
        assert_eq!(moves("rep stosq", "qword ptr [rdi], rax"), [RAX, RCX, RSI, RDI].map(Move::Lose));
        assert_eq!(moves("mov", "dword ptr [rsp + 4], eax"), [Move::Store { what: None, at: RSP, plus: 4, bytes: 4 }]);
        assert_eq!(moves("cmp", "rbx, rax"), []);
        assert_eq!(moves("jne", "0x10"), []);
    }
}
