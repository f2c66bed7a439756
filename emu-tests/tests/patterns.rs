//! The forms of other people's instructions: Capstone must read what our tables write.

use arch::BACKENDS;
use codegen::backend::Backend;
use codegen::effect::effects::{Flow, Moves, SpEffect};
use codegen::effect::faults::Operator;
use codegen::listing::pattern::{Fields, InsnPattern};
use codegen::words::abi::Reg;
use tramptool_emu_tests::disassemble;

/// The one instruction that Capstone sees, as text.
fn text(backend: &dyn Backend, form: &InsnPattern, fields: &Fields) -> String {
    let code = form.encode(fields).unwrap_or_else(|| panic!("{form:?} does not hold {fields:?}"));
    let lines = disassemble(backend.machine(), &code, 0).unwrap();
    assert!(lines.len() == 1 && lines[0].size == form.size(), "{form:?} {fields:?}: {code:x?}: {lines:?}");
    lines[0].text.clone()
}

/// Mnemonics, without the mark of compressed instructions, of instructions that do this.
fn mnemonics(form: &InsnPattern, fields: &Fields) -> &'static [&'static str] {
    let effects = form.effects(fields);
    match (effects.moves, effects.flow, effects.sp) {
        (Moves::Store(_), ..) => &["mov", "push", "str", "stp", "sd", "sdsp"],
        (Moves::Load(_), ..) => &["mov", "pop", "ldr", "ldp", "ld", "ldsp"],
        (Moves::Copy { .. }, ..) => &["mov", "mv"],
        (_, Flow::Call, _) => &["call", "bl", "blr", "jal", "jalr"],
        (_, Flow::Jump(_), _) => &["jmp", "b", "j"],
        (_, Flow::Leave, _) => &["ret", "br", "jmp", "jr", "jalr"],
        (_, Flow::Trap, _) => &["int3", "ebreak"],
        (_, Flow::Branch(_), _) => {
            &["jo", "jns", "jle", "cbz", "cbnz", "tbz", "tbnz", "b.eq", "b.ls", "beqz", "bnez", "beq", "bne"]
        }
        (.., SpEffect::Move(by)) if by > 0 => &["add", "addi", "addi16sp", "lea", "pop", "popfq", "sub"],
        (.., SpEffect::Move(_)) => &["sub", "add", "addi", "addi16sp", "lea", "pushfq", "push"],
        (.., SpEffect::CopyTo(..) | SpEffect::CopyFrom(..)) => {
            &["lea", "leave", "mov", "add", "addi", "addi4spn", "mv"]
        }
        (.., SpEffect::Realign) => &["and"],
        _ if effects.loads > 0 => &["mov", "ldr", "ldur", "ld"],
        _ if effects.stores > 0 => &["mov", "str"],
        _ => &["add", "sub", "and", "addi", "lea", "test", "adrp", "auipc", "bti", "endbr64"],
    }
}

/// Names and numbers, each as a whole.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|word| !word.is_empty())
}

/// The numbers, with their signs.
fn numbers(text: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for word in words(text) {
        // Capstone has a negative offset behind the brackets as 64 bits.
        let hex = word.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).map(|n| n as i64).ok());
        let number = hex.unwrap_or_else(|| word.parse().ok());
        let Some(number) = number else { continue };
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        let minus = text[..at].trim_end().ends_with('-');
        all.push(if minus { -number } else { number });
    }
    all
}

/// By how much the instruction moves SP, as its text says.
fn moved(text: &str) -> i64 {
    let number = || *numbers(text).last().unwrap_or_else(|| panic!("no number: {text}"));
    match words(text).next().unwrap().trim_start_matches("c.") {
        "push" | "pushfq" => -8,
        "pop" | "popfq" => 8,
        "sub" => -number(),
        // Of a store or load that moves SP: behind a comma, or inside the brackets with `!`.
        "add" | "addi" | "addi16sp" | "lea" | "str" | "stp" | "ldr" | "ldp" => number(),
        other => panic!("{other} moves SP: {text}"),
    }
}

#[test]
fn capstone_reads_what_the_forms_say() {
    for &backend in BACKENDS {
        let abi = &backend.facts().abi;
        for form in backend.patterns().list {
            let registers =
                if form.has(b"p") || !form.has(b"AB") && form.size() != 4 && form.has(b"a") && abi.link.is_none() {
                    [(10, 0), (15, 0)].map(|(a, b)| if form.has(b"p") { (a, b) } else { (a - 8, b) })
                } else {
                    [(6, 7), (12, 14)]
                };
            let limit = if form.has(b"i") && form.size() == 2 { 16 } else { 64 };
            let imms = if form.has(b"i23456789") { vec![limit, -limit] } else { vec![0] };
            let rests = if form.has(b"x") { vec![0, 9] } else { vec![0] };
            let every = registers.iter().flat_map(|r| rests.iter().map(move |rest| (*r, *rest)));
            for (((a, b), rest), imm) in every.flat_map(|one| imms.iter().map(move |imm| (one, *imm))) {
                let a = if form.has(b"aAp") { Reg(a) } else { Reg(0) };
                let b = if form.has(b"bB") { Reg(b) } else { Reg(0) };
                let fields = Fields { a, b, imm, rest };
                if imm < 0 && form.encode(&fields).is_none() {
                    // Of those without a sign.
                    continue;
                }
                let said = text(backend, form, &fields);
                let mnemonic = words(&said).next().unwrap();
                let valid = mnemonics(form, &fields);
                assert!(valid.contains(&mnemonic.trim_start_matches("c.")), "{said}: {form:?}");
                assert_eq!(form.read(&form.encode(&fields).unwrap()), Some(fields), "{said}");
                if let SpEffect::Move(by) = form.effects(&fields).sp {
                    assert_eq!(moved(&said), i64::from(by), "{said}: {form:?}");
                }
                // arm64 calls the lower half of a register by another name.
                let half = |name: &str| name.strip_prefix('x').map_or(name.to_owned(), |number| format!("w{number}"));
                let named = |reg| words(&said).any(|w| w == abi.name(reg) || w == half(abi.name(reg)));
                assert!(!form.has(b"aAp") || named(a), "{said}: no {}", abi.name(a));
                assert!(!form.has(b"bB") || named(b), "{said}: no {}", abi.name(b));
                assert!(imm == 0 || numbers(&said).contains(&imm.into()), "{said}: no {imm}");
                let Some((operator, faulty)) = form.faulty() else { continue };
                let other = text(backend, &faulty, &fields);
                assert!(faulty.size() <= form.size() && other != said, "{said}");
                let operands = |text: &str| text.split_once(' ').map(|(_, o)| o.trim().to_owned());
                assert!(operator != Operator::InvertCond || operands(&other) == operands(&said), "{said}; {other}");
            }
        }
    }
}
