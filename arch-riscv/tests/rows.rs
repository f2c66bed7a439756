//! Every row of [`Insn`] through Capstone, compressed and not.
//!
//! Capstone does not say which registers a RISC-V instruction reads and writes. A table from the manual says it here, by
//! mnemonic, for the operands that Capstone prints.

#[path = "../../codegen/tests/rows/mod.rs"]
mod rows;

use std::path::Path;
use std::process::Command;

use capstone::Capstone;
use codegen::ask::frame::FrameLayout;
use codegen::ask::option::{Choice, Choices};
use codegen::effect::effects::SpEffect;
use codegen::effect::register_use::Touched;
use codegen::listing::code::CodeBuf;
use codegen::listing::isa::{Architecture, Instruction};
use codegen::listing::names::Names;
use codegen::profile::target::Target;
use codegen::words::abi::Reg;
use codegen::words::step::{Disp, Local};
use rows::{BASE, Control, Ours, Rng, Seen, normal, off, parts, touch};
use tramptool_riscv::Riscv64;
use tramptool_riscv::faulty::Faulty;
use tramptool_riscv::insn::Insn;
use tramptool_riscv::option::Rvc;
use tramptool_riscv::regs::{SP, T0};

fn bit(rng: &mut Rng) -> Disp {
    off(rng.number(0, 63, 1))
}

fn reg(rng: &mut Rng) -> Reg {
    Reg(rng.index(32))
}

/// A decoder cannot tell the low part of an address that is added to SP from any other number.
fn not_sp(rng: &mut Rng) -> Reg {
    let reg = reg(rng);
    if reg == SP { T0 } else { reg }
}

fn float(rng: &mut Rng) -> u8 {
    rng.index(32)
}

fn simm12(rng: &mut Rng) -> Disp {
    off(signed(rng))
}

fn signed(rng: &mut Rng) -> i32 {
    // Half of them are what compressed instructions hold.
    if !rng.illegal && rng.below(2) == 0 { rng.number(-512, 1016, 8) } else { rng.number(-2048, 2047, 1) }
}

fn upper(rng: &mut Rng) -> i32 {
    if !rng.illegal && rng.below(2) == 0 { rng.number(-33, 33, 1) } else { rng.number(-0x8_0000, 0xf_ffff, 1) }
}

fn shift(rng: &mut Rng) -> u8 {
    rng.index(64)
}

fn anchor(_: &mut Rng) -> Local {
    Local::Anchor
}

/// More ones than a compressed instruction holds.
fn bits(rng: &mut Rng) -> u8 {
    rng.number(6, 11, 1) as u8
}

every_row! {
    Insn ROWS row;
    Sd { src: reg, at: simm12 };
    Ld { dst: reg, at: simm12 };
    Fsd { src: float, at: simm12 };
    Fld { dst: float, at: simm12 };
    Mv { dst: reg, src: reg };
    Addi { dst: reg, src: reg, imm: simm12 };
    AuipcHi { dst: reg, sym: Rng::sym };
    LuiTls { dst: reg, sym: Rng::sym };
    AddiTls { dst: not_sp, sym: Rng::sym };
    AddTo { dst: not_sp, add: reg };
    LdLo { dst: reg, anchor: anchor };
    LdReg { dst: reg, base: reg, at: simm12 };
    AddiLo { dst: not_sp, anchor: anchor };
    Bnez { reg: reg, to: Rng::local };
    Beqz { reg: reg, to: Rng::local };
    Call { sym: Rng::sym };
    Jr { reg: reg };
    Jalr { reg: reg };
    JalLocal { to: Rng::local };
    J { to: Rng::local };
    SlliUp { dst: reg, src: reg, bit: bit };
    Bltz { reg: reg, to: Rng::local };
    Ebreak;
    Lui { dst: reg, imm: upper };
    Addiw { dst: reg, imm: signed };
    LuiWide { dst: reg, imm: upper };
    AddiwWide { dst: reg, imm: signed };
    Slli { dst: reg, by: shift };
    Nop;
    Lpad;
    SdScs { src: reg };
    LdScs { dst: reg };
    SspushRa;
    SspopchkRa;
    Nop4;
    AmoaddD { dst: not_sp, add: reg, base: reg };
    Bgeu { reg: reg, with: reg, to: Rng::local };
    Bne { reg: reg, with: reg, to: Rng::local };
    SdReg { src: reg, base: reg, at: simm12 };
    Tail { sym: Rng::sym };
    Rdtime { dst: not_sp };
    AndLow { dst: not_sp, src: reg, bits: bits };
}

every_row! {
    Faulty FAULTY_ROWS faulty_row;
    Sw { src: reg, at: simm12 };
    Bge { reg: reg, with: reg, to: Rng::local };
    AddRegs { dst: not_sp, src: reg, add: reg };
    LpadOther;
    SspushT0;
    SspopchkT0;
    FsrmZero;
    VmvVI;
    VmsetM;
    Vsetivli;
    CsrwiVxrm;
    CsrwiSsp;
}

/// The parts of an address, by the psABI: 20 bits above, 12 with a sign below.
fn halves(target: u64) -> (i64, i64) {
    let distance = target.wrapping_sub(BASE).cast_signed();
    let high = (distance + 0x800) >> 12;
    (high & 0xf_ffff, distance - (high << 12))
}

/// Our text: parts of addresses in place of names.
fn spell(ours: &Ours) -> String {
    let mut text = normal(&ours.text).replace("vxrm", "10");
    for target in &ours.targets {
        let (high, low) = halves(*target);
        let distance = target.wrapping_sub(BASE).cast_signed();
        let above = (target.cast_signed() + 0x800) >> 12;
        text = text.replace("tprel_hi(symbol)", &(above & 0xf_ffff).to_string());
        text = text.replace("tprel_lo(symbol)", &(target.cast_signed() - (above << 12)).to_string());
        text = text.replace("pcrel_hi(symbol)", &high.to_string());
        text = text.replace("pcrel_lo(.lf_op)", &low.to_string());
        text = text.replace("symbol", &target.to_string()).replace(".lf_direct", &distance.to_string());
    }
    plain(&text)
}

/// The instruction itself, for its compressed form or for a pseudo-instruction (RISC-V unprivileged specification,
/// chapters "C" and "RISC-V Assembly Programmer's Handbook").
fn plain(text: &str) -> String {
    let (mnemonic, operands) = parts(text);
    let upper = |n: &str| (n.parse::<i64>().unwrap() & 0xf_ffff).to_string();
    match (mnemonic.strip_prefix("c.").unwrap_or(mnemonic), &operands[..]) {
        ("sdsp", [r, m]) => format!("sd {r},{m}"),
        ("ldsp", [r, m]) => format!("ld {r},{m}"),
        ("fsdsp", [r, m]) => format!("fsd {r},{m}"),
        ("fldsp", [r, m]) => format!("fld {r},{m}"),
        ("swsp", [r, m]) => format!("sw {r},{m}"),
        ("mv", [d, s]) => format!("addi {d},{s},0"),
        ("addi16sp" | "addi", ["sp", n]) => format!("addi sp,sp,{n}"),
        ("addi4spn", [d, "sp", n]) => format!("addi {d},sp,{n}"),
        ("addi", [d, n]) => format!("addi {d},{d},{n}"),
        ("li", [d, n]) => format!("addi {d},zero,{n}"),
        ("jal", [to]) => format!("jal ra,{to}"),
        ("j", [to]) | (".insn", ["j0x6f", "zero", to]) => format!("jal zero,{to}"),
        ("bltz", [s, to]) => format!("blt {s},zero,{to}"),
        ("nop", []) => "addi zero,zero,0".to_owned(),
        (".insn", ["23"]) => "auipc zero,0".to_owned(),
        (".insn", ["4119"]) => "auipc zero,1".to_owned(),
        (".insn", ["i0x13", ..]) => "addi zero,zero,0".to_owned(),
        // AMOADD.D ("A" extension): opcode AMO, 64 bits, no ordering.
        (".insn", ["r0x2f", "3", "0", d, base, s]) => format!("amoadd.d {d},{s},({base})"),
        // CSRRS of TIME ("Zicntr") with x0: Capstone has the pseudo-instruction.
        (".insn", ["u0x37", d, imm]) => format!("lui {d},{imm}"),
        (".insn", ["i0x1b", "0", d, s, imm]) => format!("addiw {d},{s},{imm}"),
        (".insn", ["i0x73", "2", d, "zero", "-1023"]) => format!("rdtime {d}"),
        ("slli", [d, s, n]) if n.starts_with("63-") => {
            plain(&format!("slli {d},{s},{}", 63 - n[3..].parse::<i32>().unwrap()))
        }
        ("slli", [d, n]) => format!("slli {d},{d},{n}"),
        ("add", [d, s]) => format!("add {d},{d},{s}"),
        ("addiw", [d, n]) => format!("addiw {d},{d},{n}"),
        ("sext.w", [d, s]) => format!("addiw {d},{s},0"),
        ("lui", [d, n]) => format!("lui {d},{}", upper(n)),
        ("auipc", [d, n]) => format!("auipc {d},{}", upper(n)),
        ("ret", []) => "jalr zero,0(ra)".to_owned(),
        ("jr", [s]) => format!("jalr zero,0({s})"),
        ("jalr", [s]) if s.contains('(') => format!("jalr ra,{s}"),
        ("jalr", [s]) => format!("jalr ra,0({s})"),
        ("jalr", [d, s]) if !s.contains('(') => format!("jalr {d},0({s})"),
        ("jalr", [d, s, n]) => format!("jalr {d},{n}({s})"),
        ("beqz", [s, to]) => format!("beq {s},zero,{to}"),
        ("bnez", [s, to]) => format!("bne {s},zero,{to}"),
        ("bgez", [s, to]) => format!("bge {s},zero,{to}"),
        ("blez", [s, to]) => format!("bge zero,{s},{to}"),
        (mnemonic, operands) => format!("{mnemonic} {}", operands.join(",")),
    }
}

/// Chapters "RV32I", "RV64I" and "D" of the unprivileged specification: which operands are read, which are written.
fn registers(text: &str) -> (Touched, Touched) {
    let (mnemonic, operands) = parts(text);
    let (mut reads, mut writes) = (Touched::default(), Touched::default());
    let add = |set: &mut Touched, operand: &str| {
        let name = operand.split('(').next_back().unwrap().trim_end_matches(')');
        touch::<Riscv64>(set, name);
    };
    let (read, written): (&[usize], &[usize]) = match mnemonic {
        "sd" | "sw" | "fsd" => (&[0, 1], &[]),
        "ld" | "fld" | "addi" | "addiw" | "andi" | "slli" | "jalr" => (&[1], &[0]),
        "auipc" | "lui" | "rdtime" => (&[], &[0]),
        "jal" => (&[], &[0]),
        "beq" | "bne" | "bgeu" | "bge" | "blt" => (&[0, 1], &[]),
        "amoadd.d" | "add" => (&[1, 2], &[0]),
        "tail" => (&[], &[]),
        // frm is no register of the rows.
        "call" | "ebreak" | "fsrm" | "csrwi" => (&[], &[]),
        other => panic!("{other}"),
    };
    read.iter().for_each(|&i| add(&mut reads, operands[i]));
    written.iter().for_each(|&i| add(&mut writes, operands[i]));
    if mnemonic == "call" {
        add(&mut writes, "ra");
    }
    if mnemonic == "tail" {
        add(&mut writes, "t1");
    }
    (reads, writes)
}

fn sp_effect(text: &str, writes_sp: bool) -> SpEffect {
    let (mnemonic, operands) = parts(text);
    let number = || operands[2].parse().unwrap();
    let reg = |at: usize| Riscv64::FACTS.abi.find(operands[at]).unwrap();
    match (mnemonic, &operands[..]) {
        ("addi", ["sp", "sp", _]) => SpEffect::Move(number()),
        ("addi", [_, "sp", _]) => SpEffect::CopyTo(reg(0), number()),
        ("addi", ["sp", _, _]) => SpEffect::CopyFrom(reg(1), number()),
        _ if writes_sp => SpEffect::Realign,
        _ => SpEffect::None,
    }
}

fn by_capstone(capstone: &Capstone, code: &[u8]) -> Seen {
    let insns = capstone.disasm_all(code, BASE).unwrap();
    let texts: Vec<String> =
        insns.iter().map(|i| plain(&normal(&format!("{} {}", i.mnemonic().unwrap(), i.op_str().unwrap())))).collect();
    let mut text = texts[0].clone();
    if let [high, low] = &texts[..]
        && high.starts_with("auipc ra,")
    {
        // The two of a call: RISC-V psABI, R_RISCV_CALL_PLT.
        let high = high.strip_prefix("auipc ra,").unwrap().parse::<i64>().unwrap() << 44 >> 32;
        let low = low.strip_prefix("jalr ra,").unwrap().strip_suffix("(ra)").unwrap().parse::<i64>().unwrap();
        text = format!("call {}", BASE.wrapping_add_signed(high + low));
    }
    if let [high, low] = &texts[..]
        && high.starts_with("auipc t1,")
    {
        // The same of a tail call.
        let high = high.strip_prefix("auipc t1,").unwrap().parse::<i64>().unwrap() << 44 >> 32;
        let low = low.strip_prefix("jalr zero,").unwrap().strip_suffix("(t1)").unwrap().parse::<i64>().unwrap();
        text = format!("tail {}", BASE.wrapping_add_signed(high + low));
    }
    let (mnemonic, operands) = parts(&text);
    let (loads, stores) = match mnemonic {
        "amoadd.d" => (1, 1),
        "ld" | "fld" => (1, 0),
        "sd" | "sw" | "fsd" => (0, 1),
        _ => (0, 0),
    };
    let (reads, writes) = registers(&text);
    Seen {
        sp: sp_effect(&text, writes.general.contains(Riscv64::FACTS.abi.sp)),
        loads,
        stores,
        reads,
        writes,
        flow: match (mnemonic, operands.first()) {
            ("call", _) => Control::Call,
            ("jalr", Some(&"ra")) => Control::Call,
            ("jalr", _) => Control::Leave,
            ("beq" | "bne" | "bgeu" | "bge" | "blt", _) => Control::Branch,
            ("tail", _) => Control::Leave,
            ("jal", _) => Control::Jump,
            ("ebreak", _) => Control::Trap,
            _ => Control::Next,
        },
        size: insns.iter().map(|i| i.len()).sum(),
        text,
    }
}

fn targets() -> [Target; 2] {
    [0, 1].map(|value| target(Choices::default().with(Rvc::INDEX, value)))
}

/// Under the profile that holds where none is named.
fn target(choices: Choices) -> Target {
    let convention = profiles::default_convention(&tramptool_riscv::FACTS).unwrap();
    Riscv64::target(convention, choices).unwrap()
}

/// What Capstone 5 does not know: tests/enforced.rs has a CPU run them.
const UNKNOWN: &[&str] = &["SspushRa", "SspopchkRa", "SspushT0", "SspopchkT0"];

/// The same: GNU as reads them.
const VECTOR: &[&str] = &["VmvVI", "VmsetM", "Vsetivli"];

#[test]
fn capstone_reads_every_row() {
    let capstone = rows::capstone::<Riscv64>();
    let decode = |code: &[u8]| by_capstone(&capstone, code);
    let known: Vec<_> = ROWS.iter().copied().filter(|(name, _)| !UNKNOWN.contains(name)).collect();
    let read = |name: &&str| !UNKNOWN.contains(name) && !VECTOR.contains(name);
    let faulty: Vec<_> = FAULTY_ROWS.iter().copied().filter(|(name, _)| read(name)).collect();
    assert_eq!(known.len() + faulty.len() + UNKNOWN.len() + VECTOR.len(), ROWS.len() + FAULTY_ROWS.len());
    rows::try_rows(&Riscv64, &known, row, &targets(), &decode, &spell);
    rows::try_rows(&Riscv64, &faulty, faulty_row, &targets(), &decode, &spell);
}

#[test]
fn what_a_row_cannot_hold_is_refused() {
    let targets = targets();
    let refused = rows::refuse_rows(ROWS, &targets) + rows::refuse_rows(FAULTY_ROWS, &targets);
    assert!(refused > 200, "{refused}");
}

/// GNU as makes the same bytes of the text of those rows.
#[test]
fn gnu_as_reads_vector_rows() {
    let of_vectors: Vec<_> = FAULTY_ROWS.iter().copied().filter(|(name, _)| VECTOR.contains(name)).collect();
    assert_eq!(of_vectors.len(), VECTOR.len());
    let (target, frame, dir) = (target(Choices::default()), FrameLayout::empty(), env!("CARGO_TARGET_TMPDIR"));
    let names = Names { frame: &frame, numbers: &[], symbols: &[], function: "f" };
    let run = |tool: &str, words: &[&str]| {
        let status = Command::new(format!("riscv64-linux-gnu-{tool}")).args(words).current_dir(dir).status();
        assert!(status.unwrap().success(), "{tool} {words:?}");
    };
    for (name, insn) in of_vectors {
        let insn = insn(&mut Rng::new(0));
        let (mut code, mut text) = (CodeBuf::default(), String::new());
        insn.encode(&target, &mut code).unwrap();
        insn.text(&names, &mut text).unwrap();
        std::fs::write(Path::new(dir).join("vector.s"), text + "\n").unwrap();
        run("as", &["-march=rv64gcv", "vector.s", "-o", "vector.o"]);
        run("objcopy", &["-O", "binary", "vector.o", "vector.bin"]);
        assert_eq!(std::fs::read(Path::new(dir).join("vector.bin")).unwrap(), code.bytes, "{name}");
    }
}
