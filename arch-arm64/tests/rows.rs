//! Every row of [`Insn`] through Capstone.

#[path = "../../codegen/tests/rows/mod.rs"]
mod rows;

use capstone::Capstone;
use codegen::ask::option::Choices;
use codegen::effect::effects::SpEffect;
use codegen::listing::isa::{Architecture, Instruction};
use codegen::profile::target::Target;
use codegen::words::abi::Reg;
use codegen::words::step::Disp;
use rows::{BASE, Control, Ours, Rng, Seen, normal, off, parts, touch};
use tramptool_arm64::Arm64;
use tramptool_arm64::faulty::Faulty;
use tramptool_arm64::insn::Insn;
use tramptool_arm64::regs::*;

/// x0 to x30.
fn x(rng: &mut Rng) -> Reg {
    Reg(rng.index(31))
}

/// Those that can be stored: the zero register, number 31, too.
fn stored(rng: &mut Rng) -> Reg {
    Reg(rng.index(32))
}

/// An even one and an odd one, so that a pair is never one register twice.
fn even(rng: &mut Rng) -> Reg {
    if rng.illegal { x(rng) } else { Reg(2 * rng.index(15)) }
}

fn odd(rng: &mut Rng) -> Reg {
    if rng.illegal { x(rng) } else { Reg(2 * rng.index(15) + 1) }
}

/// The base of an address that the instruction writes back is no other operand.
fn not_x18(rng: &mut Rng) -> Reg {
    let reg = x(rng);
    if reg == X18 && !rng.illegal { X0 } else { reg }
}

fn q(rng: &mut Rng) -> u8 {
    rng.index(32)
}

fn even_q(rng: &mut Rng) -> u8 {
    if rng.illegal { q(rng) } else { 2 * rng.index(16) }
}

fn odd_q(rng: &mut Rng) -> u8 {
    if rng.illegal { q(rng) } else { 2 * rng.index(16) + 1 }
}

fn single(rng: &mut Rng) -> Disp {
    off(rng.number(0, 32760, 8))
}

fn low_bits(rng: &mut Rng) -> u8 {
    rng.number(1, 63, 1) as u8
}

fn pair(rng: &mut Rng) -> Disp {
    off(rng.number(0, 504, 8))
}

fn single_q(rng: &mut Rng) -> Disp {
    off(rng.number(0, 65520, 16))
}

fn pair_q(rng: &mut Rng) -> Disp {
    off(rng.number(0, 1008, 16))
}

fn half(rng: &mut Rng) -> Disp {
    off(rng.number(0, 16380, 4))
}

fn unscaled(rng: &mut Rng) -> i32 {
    rng.number(-256, 255, 1)
}

fn added(rng: &mut Rng) -> Disp {
    off(rng.number(0, 4095, 1))
}

fn subtracted(rng: &mut Rng) -> u32 {
    rng.number(0, 4095, 1).cast_unsigned()
}

fn thread(rng: &mut Rng) -> Thread {
    rng.pick(&Thread::ALL)
}

fn bit(rng: &mut Rng) -> Disp {
    off(rng.number(0, 63, 1))
}

fn upper(rng: &mut Rng) -> u8 {
    rng.number(16, 48, 16) as u8
}

fn bits(rng: &mut Rng) -> u16 {
    rng.next() as u16
}

every_row! {
    Insn ROWS row;
    BtiC;
    BtiJ;
    StrScs { src: not_x18 };
    LdrScs { dst: not_x18 };
    Paciasp;
    Autiasp;
    Str { src: stored, at: single };
    Stp { a: stored, b: stored, at: pair };
    Ldr { dst: x, at: single };
    Ldp { a: even, b: odd, at: pair };
    StrQ { src: q, at: single_q };
    StpQ { a: q, b: q, at: pair_q };
    LdrQ { dst: q, at: single_q };
    LdpQ { a: even_q, b: odd_q, at: pair_q };
    LdrReg { dst: x, base: x, at: single };
    LdurReg { dst: x, base: x, at: unscaled };
    Mov { dst: x, src: x };
    MovFromSp { dst: x };
    AddSp { dst: stored, imm: added };
    SubSp { imm: added };
    Sub { dst: x, src: x, imm: subtracted };
    AlignDown { dst: x, src: x };
    Adrp { dst: x, sym: Rng::sym };
    LdrLo12 { dst: x, base: x, sym: Rng::sym };
    Movz { dst: x, imm: bits };
    Movk { dst: x, imm: bits, shift: upper };
    Nop;
    Cbnz { reg: x, to: Rng::local };
    Cbz { reg: x, to: Rng::local };
    Bl { sym: Rng::sym };
    Blr { reg: x };
    Br { reg: x };
    Ret { reg: x };
    AddLo12 { dst: x, base: x, sym: Rng::sym };
    AddTlsHigh { dst: x, src: x, sym: Rng::sym };
    AddTlsLow { dst: x, src: x, sym: Rng::sym };
    MrsThread { dst: x, of: thread };
    Add { dst: x, src: x, imm: added };
    Ldadd { add: x, dst: x, base: x };
    Cmp { reg: x, with: x };
    BHs { to: Rng::local };
    BNe { to: Rng::local };
    Brk;
    BLocal { to: Rng::local };
    Tbnz { reg: x, bit: bit, to: Rng::local };
    StrReg { src: stored, base: x, at: single };
    B { sym: Rng::sym };
    MrsClock { dst: x };
    AndLow { dst: x, src: x, bits: low_bits };
}

every_row! {
    Faulty FAULTY_ROWS faulty_row;
    BtiJ;
    Pacibsp;
    Autibsp;
    BGe { to: Rng::local };
    StrW { src: stored, at: half };
    AddRegs { dst: x, src: x, add: x };
    MovWsp;
    MsrFpcr;
    MovVector;
    Wrffr;
    SmstartSm;
    MsrFpmr;
    Gcspopm;
    AdrLink;
}

/// Our text: addresses in place of names, and the names that the manual prefers.
fn spell(ours: &Ours) -> String {
    let mut text = normal(&ours.text);
    for target in &ours.targets {
        let page = if text.starts_with("adrp") { target & !0xfff } else { *target };
        text = text.replace(":lo12:symbol", &(target & 0xfff).to_string());
        text = text.replace(":tprel_hi12:symbol", &(target >> 12 & 0xfff).to_string());
        text = text.replace(":tprel_lo12_nc:symbol", &(target & 0xfff).to_string());
        text = text.replace("symbol", &page.to_string()).replace(".lf_direct", &target.to_string());
    }
    alias(&text)
}

/// ARM ARM, C6.2: MOV (to or from SP) and MOV (wide immediate) are the preferred forms; BTI is a hint.
fn alias(text: &str) -> String {
    let text = text.replace(",0]", "]");
    let (mnemonic, operands) = parts(&text);
    match (mnemonic, &operands[..]) {
        ("add", [to, "sp", "0"]) => format!("mov {to},sp"),
        ("add", ["sp", from, "0"]) => format!("mov sp,{from}"),
        ("movz", [to, number]) => format!("mov {to},{number}"),
        ("movk", [to, number, "lsl16"]) => format!("movk {to},{number},lsl 16"),
        ("movk", [to, number, "lsl48"]) => format!("movk {to},{number},lsl 48"),
        // LDADD as a number (C6.2): size 11, V 0, A and R 0, opc 000.
        (".inst", [word]) => {
            let word: u32 = word.parse().unwrap();
            assert_eq!(word & !0x1f_03ff, 0xf820_0000, "{text}");
            let [add, dst, base] = [16, 0, 5].map(|bit| match word >> bit & 31 {
                31 if bit == 5 => "sp".to_owned(),
                n => format!("x{n}"),
            });
            format!("ldadd {add},{dst},[{base}]")
        }
        ("add", [to, from, number, "lsl12"]) => format!("add {to},{from},{number},lsl 12"),
        ("hint", ["34"]) => "bti c".to_owned(),
        ("hint", ["36"]) => "bti j".to_owned(),
        ("hint", ["25"]) => "paciasp".to_owned(),
        ("hint", ["27"]) => "pacibsp".to_owned(),
        ("hint", ["29"]) => "autiasp".to_owned(),
        ("hint", ["31"]) => "autibsp".to_owned(),
        // A logical immediate is printed without a sign.
        ("and", [to, from, mask]) => format!("and {to},{from},{}", mask.parse::<i64>().unwrap()),
        // Registers have one name each.
        ("ret", ["x30"]) => "ret".to_owned(),
        ("adr", [to, ".+8"]) => format!("adr {to},{}", BASE + 8),
        _ => text.clone(),
    }
}

fn sp_effect(text: &str) -> SpEffect {
    let (mnemonic, operands) = parts(text);
    let number = || rows::numbers(operands[2])[0] as i32;
    let reg = |at: usize| Arm64::FACTS.abi.find(operands[at]).unwrap();
    match (mnemonic, &operands[..]) {
        ("add", ["sp", "sp", _]) => SpEffect::Move(number()),
        ("sub", ["sp", "sp", _]) => SpEffect::Move(-number()),
        ("mov", ["sp", "sp"]) => SpEffect::Move(0),
        ("add", [_, "sp", _]) => SpEffect::CopyTo(reg(0), number()),
        ("mov", [_, "sp"]) => SpEffect::CopyTo(reg(0), 0),
        ("mov", ["wsp", _]) => SpEffect::Realign,
        _ => SpEffect::None,
    }
}

/// What touches nothing that rows have: of vectors what is above 128 bits, and how they are used.
const BESIDE_ROWS: &[&str] = &["mov v31.16b,v31.16b", "wrffr p0.b", "smstart sm"];

fn by_capstone(capstone: &Capstone, code: &[u8]) -> Seen {
    let insns = capstone.disasm_count(code, BASE, 1).unwrap();
    let insn = &insns[0];
    let detail = capstone.insn_detail(insn).unwrap();
    let text = alias(&normal(&format!("{} {}", insn.mnemonic().unwrap(), insn.op_str().unwrap())));
    let (mut reads, mut writes) = Default::default();
    let full = |name: String| match name.as_str() {
        "fp" => "x29".to_owned(),
        "lr" => "x30".to_owned(),
        "wsp" => "sp".to_owned(),
        half if half.starts_with('w') && half != "wzr" => half.replace('w', "x"),
        _ => name,
    };
    let name = |id| full(capstone.reg_name(id).unwrap());
    detail.regs_read().iter().for_each(|id| touch::<Arm64>(&mut reads, &name(*id)));
    detail.regs_write().iter().for_each(|id| touch::<Arm64>(&mut writes, &name(*id)));
    let (mnemonic, operands) = parts(&text);
    if ["cbz", "cbnz"].contains(&mnemonic) {
        // Capstone says that they read the flags. ARM ARM, C6.2: they compare a register, and leave the flags alone.
        reads.flags = false;
    }
    if BESIDE_ROWS.contains(&&*text) {
        // The part of the register that rows have stays as it is.
        (reads, writes) = Default::default();
    }
    if text == "ret" {
        // Without an operand it is that of x30.
        touch::<Arm64>(&mut reads, "x30");
    }
    if ["cmp", "ldadd"].contains(&mnemonic) {
        // Capstone takes the first operand for the result. ARM ARM, C6.2: CMP has none, that of LDADD is the second.
        let flags = writes.flags;
        (reads, writes) = Default::default();
        (writes.flags, reads.flags) = (flags, false);
        let base = |operand: &str| operand.trim_matches(['[', ']']).to_owned();
        let result = (mnemonic == "ldadd").then_some(1);
        for (n, operand) in operands.iter().enumerate() {
            touch::<Arm64>(if result == Some(n) { &mut writes } else { &mut reads }, &base(operand));
        }
    }
    // Words of 8 bytes in the registers before the memory operand.
    let words: u16 =
        operands.iter().take_while(|o| !o.starts_with('[')).map(|o| if o.starts_with('q') { 2 } else { 1 }).sum();
    let (loads, stores) = match mnemonic {
        "ldr" | "ldur" | "ldp" => (words, 0),
        "str" | "stp" => (0, words),
        "ldadd" => (1, 1),
        _ => (0, 0),
    };
    Seen {
        sp: sp_effect(&text),
        loads,
        stores,
        reads,
        writes,
        flow: match mnemonic {
            "bl" | "blr" => Control::Call,
            // No decoder can tell a jump inside a trampoline from others.
            "b" if operands[0].parse::<u64>().unwrap().abs_diff(BASE) < 256 => Control::Jump,
            "ret" | "br" | "b" => Control::Leave,
            "cbz" | "cbnz" | "tbnz" | "b.hs" | "b.ge" | "b.ne" => Control::Branch,
            "brk" => Control::Trap,
            _ => Control::Next,
        },
        size: insn.len(),
        text,
    }
}

/// Under the profile that holds where none is named.
fn target(choices: Choices) -> Target {
    let convention = profiles::default_convention(&tramptool_arm64::FACTS).unwrap();
    Arm64::target(convention, choices).unwrap()
}

#[test]
fn capstone_reads_every_row() {
    let capstone = rows::capstone::<Arm64>();
    let targets = [target(Choices::default())];
    let decode = |code: &[u8]| by_capstone(&capstone, code);
    rows::try_rows(&Arm64, ROWS, row, &targets, &decode, &spell);
    rows::try_rows(&Arm64, FAULTY_ROWS, faulty_row, &targets, &decode, &spell);
}

#[test]
fn what_a_row_cannot_hold_is_refused() {
    let targets = [target(Choices::default())];
    let refused = rows::refuse_rows(ROWS, &targets) + rows::refuse_rows(FAULTY_ROWS, &targets);
    assert!(refused > 200, "{refused}");
}

/// What two loads into one register leave there, the manual does not tell.
#[test]
fn a_pair_is_two_registers() {
    let target = target(Choices::default());
    let mut buffer = codegen::listing::code::CodeBuf::default();
    let twice = Insn::Ldp { a: X3, b: X3, at: off(0) };
    assert!(twice.encode(&target, &mut buffer).is_err());
}
