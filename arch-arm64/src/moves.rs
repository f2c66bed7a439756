//! What instructions do to the stack pointer and to return addresses, from Capstone's mnemonic and operands. Arm ARM C6.2.

use codegen::arch::moves::{Key, Modifier, Move, Seal, number};
use codegen::words::abi::Reg;

use crate::regs::{SP, TABLE, X18, X30};

/// Instructions that write no general register.
const WRITES_NOTHING: &[&str] = &[
    "cmp", "cmn", "tst", "ccmp", "ccmn", "b", "bl", "blr", "br", "cbz", "cbnz", "tbz", "tbnz", "ret", "nop", "prfm",
    "prfum", "msr", "dmb", "dsb", "isb", "svc", "hint", "yield", "wfe", "sys", "dc", "ic", "bti", "fcmp", "fcmpe",
];

/// Loads of all eight bytes of each register.
const LOADS: &[&str] = &["ldr", "ldur", "ldp", "ldnp"];

/// The moves of an instruction.
pub fn moves(mnemonic: &str, operands: &str) -> Vec<Move> {
    let (values, address) = operands.split_once('[').map_or((operands, None), |(values, rest)| (values, Some(rest)));
    let values: Vec<&str> = values.split(", ").map(str::trim).filter(|o| !o.is_empty()).collect();
    let (first, second) = (values.first().copied().unwrap_or(""), values.get(1).copied().unwrap_or(""));
    match (mnemonic, register(first), register(second)) {
        ("paciasp" | "pacibsp" | "paciaz" | "pacibz", ..) => vec![Move::Sign(X30, seal(mnemonic))],
        ("autiasp" | "autibsp" | "autiaz" | "autibz" | "retaa" | "retab", ..) => {
            vec![Move::Authenticate(X30, seal(mnemonic))]
        }
        ("pacia" | "pacib", Some(X30), by) => vec![Move::Sign(X30, sealed_by(mnemonic, by))],
        ("autia" | "autib", Some(X30), by) => vec![Move::Authenticate(X30, sealed_by(mnemonic, by))],
        ("xpaclri", ..) => vec![Move::Lose(X30)],
        ("gcspushm" | "gcspopm" | "gcsss1" | "gcsss2" | "gcsstr", ..) => vec![Move::ShadowPointer],
        // GCSPUSHM, GCSSS1 and the others, where they have no names.
        ("sys" | "sysl", ..) if operands.replace(' ', "").contains("c7,c7") => vec![Move::ShadowPointer],
        ("msr", ..) if operands.to_lowercase().contains("gcspr") => vec![Move::ShadowPointer],
        ("mrs", ..) if operands.to_lowercase().contains("gcspr") => vec![Move::ShadowRead],
        ("brk" | "udf" | "hlt", ..) => vec![Move::Stop],
        ("mov", Some(to), Some(from)) => vec![Move::Add { to, from, plus: 0 }],
        ("mov" | "movz", Some(to), None) if values.len() == 2 => {
            number(second).map_or(vec![Move::Lose(to)], |value| vec![Move::Number { to, value }])
        }
        ("add" | "sub", Some(to), Some(from)) => sum(mnemonic == "sub", to, from, &values),
        ("and", Some(to), _) if to == SP => vec![Move::Align(to)],
        _ => address.map_or_else(|| others(mnemonic, &values), |address| access(mnemonic, &values, address)),
    }
}

/// What the name of an instruction says of the signature: PACIBSP, AUTIAZ, RETAB.
fn seal(mnemonic: &str) -> Seal {
    let stem = mnemonic.trim_end_matches("sp").trim_end_matches('z');
    let modifier = if mnemonic.ends_with('z') { Modifier::Zero } else { Modifier::Sp };
    Seal { key: if stem.ends_with('b') { Key::B } else { Key::A }, modifier }
}

/// The same of an instruction that names the register with the modifier.
fn sealed_by(mnemonic: &str, by: Option<Reg>) -> Seal {
    let key = if mnemonic.ends_with('b') { Key::B } else { Key::A };
    Seal { key, modifier: if by == Some(SP) { Modifier::Sp } else { Modifier::Register } }
}

/// An addition or a subtraction, of a number or a register.
fn sum(minus: bool, to: Reg, from: Reg, values: &[&str]) -> Vec<Move> {
    let by = values.get(2).copied().unwrap_or("");
    let left = |shift: &&str| {
        shift.split_once('#').filter(|(kind, _)| kind.trim_end() == "lsl").and_then(|(_, by)| number(by))
    };
    let shift = match values.get(3).map(left) {
        None => 0,
        Some(Some(by @ 0..=12)) => by,
        Some(_) => return vec![Move::Lose(to)],
    };
    match (number(by), register(by)) {
        (Some(n), _) => {
            let plus = n << shift;
            vec![Move::Add { to, from, plus: if minus { -plus } else { plus } }]
        }
        (None, Some(by)) if shift == 0 => vec![Move::Sum { to, from, by, minus }],
        _ => vec![Move::Lose(to)],
    }
}

/// A load or a store: `address` is what stands behind the bracket.
fn access(mnemonic: &str, values: &[&str], address: &str) -> Vec<Move> {
    let Some((inside, behind)) = address.split_once(']') else { return others(mnemonic, values) };
    let (base, plus) = inside.split_once(", ").map_or((inside, Some(0)), |(base, plus)| (base, number(plus)));
    let (Some(at), Some(plus)) = (register(base), plus) else { return others(mnemonic, values) };
    let after = behind.strip_prefix(", ").and_then(number);
    // Clang's ShadowCallStack: str x30, [x18], #8 and ldr x30, [x18, #-8]!
    match (mnemonic, values, after, behind) {
        ("str", &["x30"], Some(8), _) if at == X18 => return vec![Move::PushScs(X30)],
        ("ldr", &["x30"], None, "!") if at == X18 && plus == -8 => return vec![Move::PopScs(X30)],
        _ => {}
    }
    let before = behind.starts_with('!');
    let mut moves = Vec::new();
    if before {
        moves.push(Move::Add { to: at, from: at, plus });
    }
    let plus = if before { 0 } else { plus };
    let stores = mnemonic.starts_with("st");
    let mut offset = plus;
    for value in values.iter().filter(|value| !value.starts_with('#')) {
        let bytes = size(mnemonic, value);
        let whole = register(value).filter(|_| bytes == 8);
        match whole {
            _ if stores => moves.push(Move::Store { what: whole, at, plus: offset, bytes }),
            Some(to) if LOADS.contains(&mnemonic) => moves.push(Move::Load { to, at, plus: offset }),
            _ => moves.extend(part(value).map(Move::Lose)),
        }
        offset += i64::from(bytes);
    }
    moves.extend(after.map(|plus| Move::Add { to: at, from: at, plus }));
    moves
}

/// Those that are not followed.
fn others(mnemonic: &str, values: &[&str]) -> Vec<Move> {
    let name = mnemonic.split('.').next().unwrap_or(mnemonic);
    if WRITES_NOTHING.contains(&name) {
        return Vec::new();
    }
    // A pair is loaded.
    let count = if mnemonic.starts_with("ld") { 2 } else { 1 };
    values.iter().take(count).filter_map(|value| part(value)).map(Move::Lose).collect()
}

/// Bytes that one register of an access has.
fn size(mnemonic: &str, value: &str) -> u8 {
    match value.as_bytes().first() {
        _ if mnemonic.ends_with('b') => 1,
        _ if mnemonic.ends_with('h') => 2,
        Some(b'w' | b's') if value != "sp" => 4,
        Some(b'q' | b'v' | b'{') => 16,
        _ => 8,
    }
}

/// The whole register of this name.
fn register(name: &str) -> Option<Reg> {
    let name = match name.trim_start_matches('{').trim_end_matches('}') {
        "fp" => "x29",
        "lr" => "x30",
        name => name,
    };
    TABLE.iter().position(|r| r.name == name).map(|n| Reg(n as u8))
}

/// The register of which this name is all or the lower half.
fn part(name: &str) -> Option<Reg> {
    register(name).or_else(|| register(&format!("x{}", name.strip_prefix('w')?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::{X0, X1, X29};

    #[test]
    fn a_frame_is_made_and_left() {
        let store = |what, plus| Move::Store { what: Some(what), at: SP, plus, bytes: 8 };
        let add = |plus| Move::Add { to: SP, from: SP, plus };
        assert_eq!(moves("stp", "x29, x30, [sp, #-0x20]!"), [add(-0x20), store(X29, 0), store(X30, 8)]);
        let load = |to, plus| Move::Load { to, at: SP, plus };
        assert_eq!(moves("ldp", "x29, x30, [sp], #0x20"), [load(X29, 0), load(X30, 8), add(0x20)]);
        assert_eq!(moves("sub", "sp, sp, #1, lsl #12"), [add(-4096)]);
    }

    #[test]
    fn what_is_not_followed_is_lost() {
        assert_eq!(moves("ldr", "w1, [x0]"), [Move::Lose(X1)]);
        assert_eq!(moves("ldr", "x0, [x1, x0, lsl #3]"), [Move::Lose(X0)]);
        assert_eq!(moves("mul", "x0, x1, x1"), [Move::Lose(X0)]);
        assert_eq!(moves("cmp", "x0, x1"), []);
        assert_eq!(moves("b.eq", "#0x10"), []);
    }
}
