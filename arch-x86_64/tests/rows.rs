//! Every row of [`Insn`] through iced-x86 and through Capstone.

#[path = "../../codegen/tests/rows/mod.rs"]
mod rows;

use capstone::{Capstone, Syntax};
use codegen::ask::option::Choices;
use codegen::effect::effects::SpEffect;
use codegen::listing::isa::Architecture;
use codegen::profile::target::Target;
use codegen::words::abi::Reg;
use codegen::words::step::Disp;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, RflagsBits,
};
use rows::{BASE, Control, Ours, Rng, Seen, normal, off, parts, touch};
use tramptool_x86_64::X86_64;
use tramptool_x86_64::faulty::Faulty;
use tramptool_x86_64::insn::Insn;
use tramptool_x86_64::regs::*;

fn bit(rng: &mut Rng) -> Disp {
    off(rng.number(0, 63, 1))
}

fn reg(rng: &mut Rng) -> Reg {
    Reg(rng.index(16))
}

fn vector(rng: &mut Rng) -> u8 {
    rng.index(16)
}

/// Any displacement fits.
fn disp(rng: &mut Rng) -> Disp {
    off(displacement(rng))
}

/// No trampoline makes a number of SP.
fn not_sp(rng: &mut Rng) -> Reg {
    match reg(rng) {
        RSP => R11,
        other => other,
    }
}

fn positive(rng: &mut Rng) -> i32 {
    rng.number(0, i32::MAX.into(), 1)
}

fn displacement(rng: &mut Rng) -> i32 {
    rng.number(i32::MIN.into(), i32::MAX.into(), 1)
}

fn wide(rng: &mut Rng) -> i64 {
    rng.next().cast_signed()
}

fn small(rng: &mut Rng) -> i8 {
    if rng.illegal { 0 } else { rng.number(-128, 127, 1) as i8 }
}

fn power(rng: &mut Rng) -> i8 {
    if rng.illegal {
        rng.was_illegal = true;
        return rng.pick(&[0, 16, -3, 127]);
    }
    (-1_i8) << rng.below(8)
}

/// What SP is moved by: never so much that it cannot be negated.
fn moved(rng: &mut Rng) -> Disp {
    if rng.illegal { off(0) } else { off(rng.number(-i64::from(i32::MAX), i32::MAX.into(), 1)) }
}

fn compared(rng: &mut Rng) -> i8 {
    rng.number(0, 127, 1).max(-1) as i8
}

/// So many ones fit a byte with a sign.
fn bits(rng: &mut Rng) -> u8 {
    rng.number(1, 7, 1) as u8
}

every_row! {
    Insn ROWS row;
    Endbr64;
    Pushfq;
    Popfq;
    Ret;
    JmpReturn { sym: Rng::sym };
    Int3;
    Push { reg: reg };
    Pop { reg: reg };
    PushBp { at: displacement };
    StoreVector { src: vector, at: disp };
    LoadVector { dst: vector, at: disp };
    Mov { dst: reg, src: reg };
    Store { src: reg, at: disp };
    StoreImm { imm: displacement, at: disp };
    MovAbs { dst: reg, imm: wide };
    Load { dst: reg, at: disp };
    LoadSym { dst: reg, sym: Rng::sym };
    Lea { dst: reg, at: disp };
    LeaSpFromBp { at: disp };
    SubSp { imm: moved };
    AddSp { imm: moved };
    AndSp { imm: power };
    Sub { dst: reg, imm: small };
    Add { dst: reg, imm: small };
    TestAx;
    TestAl;
    PopOver;
    Jnz { to: Rng::local };
    Jz { to: Rng::local };
    Nop5;
    JnzFar { to: Rng::local };
    Xsavec;
    Xrstor;
    Bt { reg: reg, bit: bit };
    JcFar { to: Rng::local };
    JmpFar { to: Rng::local };
    JmpR11;
    CallBody { sym: Rng::sym };
    JmpBody { sym: Rng::sym };
    LeaSym { dst: reg, sym: Rng::sym };
    Call { sym: Rng::sym };
    CallLocal { to: Rng::local };
    MovImm { dst: not_sp, imm: positive };
    XaddThread { reg: not_sp, at: disp };
    CmpThread { reg: reg, at: disp };
    IncThread { at: disp };
    LoadThread { dst: not_sp, at: disp };
    StoreThread { src: reg, at: disp };
    Jae { to: Rng::local };
    JaeFar { to: Rng::local };
    CmpSlot { reg: reg, at: displacement };
    CmpSlotZero { at: displacement };
    PushSlot { at: displacement };
    LoadSlot { dst: not_sp, at: displacement };
    StoreSlotImm { imm: displacement, at: displacement };
    PopSlot { at: displacement };
    PushSym { sym: Rng::sym };
    Rdtsc;
    StoreSlot { src: reg, at: displacement };
    StoreSlotHalf { src: reg, at: displacement };
    AndLow { dst: not_sp, bits: bits };
    CmpImm { reg: reg, imm: compared };
}

every_row! {
    Faulty FAULTY_ROWS faulty_row;
    Endbr32;
    Store32 { src: reg, at: disp };
    JzFar { to: Rng::local };
    JgeFar { to: Rng::local };
    Mov32 { reg: reg };
    Fninit;
    Std;
    Vzeroupper;
    Kxnorw;
    Incsspq;
    LeaBehindJmp;
}

/// Our text: addresses in place of names, one name for each condition, no displacement of 0.
fn spell(ours: &Ours) -> String {
    let mut text = normal(&ours.text);
    for target in &ours.targets {
        text = text.replace("symbol", &target.to_string()).replace(".lf_direct", &target.to_string());
    }
    // Decoders print the address.
    text = text.replace("lea 7(rip)", &format!("lea {}(rip)", BASE + 7 + 7));
    alias(&text)
}

fn alias(text: &str) -> String {
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let mnemonic = match mnemonic {
        "jnz" => "jne",
        "jz" => "je",
        "jc" => "jb",
        "nopl" => "nop",
        "pushf" => "pushfq",
        "popf" => "popfq",
        "movabsq" => "movabs",
        other => other,
    };
    // What a size is told by already: a register, or that there is one only.
    let suffixed = [
        "movq", "movl", "testb", "pushq", "popq", "callq", "retq", "leaq", "subq", "addq", "andq", "testq", "jmpq",
        "cmpq", "xaddq", "andl", "cmpl", "btq",
    ];
    let mnemonic = if suffixed.contains(&mnemonic) { &mnemonic[..mnemonic.len() - 1] } else { mnemonic };
    let operands = operands.strip_prefix("0(").map_or(operands.to_owned(), |rest| format!("({rest}"));
    format!("{mnemonic} {}", operands.replace(",0(", ",(")).trim().to_owned()
}

/// What the text says of SP. Written without a number to go by, it is lost.
fn sp_effect(text: &str, writes_sp: bool) -> SpEffect {
    let (mnemonic, operands) = parts(text);
    let number = |at: usize| rows::numbers(operands[at])[0] as i32;
    let reg = |name: &str| X86_64::FACTS.abi.find(name);
    let disp = |operand: &str| operand.split('(').next().unwrap().parse().unwrap_or(0);
    match (mnemonic, &operands[..]) {
        ("push" | "pushfq", _) => SpEffect::Move(-8),
        ("popfq", _) => SpEffect::Move(8),
        ("pop", [to]) if *to != "rsp" => SpEffect::Move(8),
        ("add", [_, "rsp"]) => SpEffect::Move(number(0)),
        ("sub", [_, "rsp"]) => SpEffect::Move(-number(0)),
        ("lea", [from, "rsp"]) if from.ends_with("(rsp)") => SpEffect::Move(disp(from)),
        ("lea", [from, to]) if from.ends_with("(rsp)") => SpEffect::CopyTo(reg(to).unwrap(), disp(from)),
        ("lea", [from, "rsp"]) if from.ends_with("(rbp)") => SpEffect::CopyFrom(RBP, disp(from)),
        ("mov", [from, "rsp"]) if reg(from).is_some() => SpEffect::CopyFrom(reg(from).unwrap(), 0),
        ("mov", ["rsp", to]) if reg(to).is_some() => SpEffect::CopyTo(reg(to).unwrap(), 0),
        // What a call pushes its return pops, and what a return pops was pushed by the call that it belongs to.
        ("call" | "ret", _) => SpEffect::None,
        _ if writes_sp => SpEffect::Realign,
        _ => SpEffect::None,
    }
}

/// What touches nothing that rows have: of vectors what is above 128 bits, and masks; the CPU's shadow stack.
const BESIDE_ROWS: &[&str] = &["vzeroupper", "kxnorw k1,k1,k1", "incsspq rax"];

fn by_iced(code: &[u8]) -> Seen {
    let mut decoder = Decoder::with_ip(64, code, BASE, DecoderOptions::NONE);
    let insn = decoder.decode();
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.format(&insn, &mut text);
    let mut text = alias(&normal(&text));
    if insn.is_ip_rel_memory_operand() {
        // It prints the address, without the register that it is relative to.
        let address = insn.ip_rel_memory_address().to_string();
        text = text.replacen(&address, &format!("{address}(rip)"), 1);
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&insn);
    let (mut reads, mut writes) = Default::default();
    for used in info.used_registers() {
        let name = format!("{:?}", used.register().full_register()).to_lowercase().replace("zmm", "xmm");
        if BESIDE_ROWS.contains(&text.trim()) {
            continue;
        }
        let name = name.replace("ymm", "xmm");
        if reads_it(used.access()) {
            touch::<X86_64>(&mut reads, &name);
        }
        if writes_it(used.access()) {
            touch::<X86_64>(&mut writes, &name);
        }
    }
    reads.flags = insn.rflags_read() != 0;
    // The condition codes of x87 are no flags of RFLAGS.
    let x87 = RflagsBits::C0 | RflagsBits::C1 | RflagsBits::C2 | RflagsBits::C3;
    writes.flags = insn.rflags_modified() & !x87 != 0;
    let slots = |wanted: fn(OpAccess) -> bool| {
        let used = info.used_memory().iter().filter(|m| wanted(m.access()));
        used.map(|m| m.memory_size().size().div_ceil(8) as u16).sum()
    };
    let (loads, stores) = of_area(text.split(' ').next()).unwrap_or((slots(reads_it), slots(writes_it)));
    Seen {
        sp: sp_effect_of_iced(&insn, &text, writes.general.contains(RSP)),
        loads,
        stores,
        reads,
        writes,
        flow: match insn.flow_control() {
            FlowControl::Next => Control::Next,
            FlowControl::ConditionalBranch => Control::Branch,
            FlowControl::Call => Control::Call,
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => Control::Leave,
            FlowControl::Interrupt => Control::Trap,
            other => panic!("{other:?}"),
        },
        size: insn.len(),
        text,
    }
}

/// What XSAVEC stores and XRSTOR loads, of which no decoder knows how many components are asked for: Intel SDM volume 1, 13.4 and
/// 13.5, of those that C functions may overwrite.
fn of_area(mnemonic: Option<&str>) -> Option<(u16, u16)> {
    const LEGACY_AND_HEADER: u16 = 512 + 64;
    const COMPONENTS: [u16; 4] = [16 * 16, 8 * 8, 16 * 32, 16 * 64];
    let words = (LEGACY_AND_HEADER + COMPONENTS.iter().sum::<u16>()) / 8;
    match mnemonic? {
        "xsavec64" => Some((0, words)),
        "xrstor64" => Some((words, 0)),
        _ => None,
    }
}

/// The text tells; what iced counts must agree.
fn sp_effect_of_iced(insn: &Instruction, text: &str, writes_sp: bool) -> SpEffect {
    let told = sp_effect(text, writes_sp);
    let counted = insn.stack_pointer_increment();
    match (told, insn.mnemonic()) {
        (_, Mnemonic::Call) => assert_eq!(counted, -8),
        (_, Mnemonic::Ret) => assert_eq!(counted, 8),
        (SpEffect::Move(by), Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq) => {
            assert_eq!(counted, by);
        }
        _ => {}
    }
    told
}

fn reads_it(access: OpAccess) -> bool {
    use OpAccess::*;
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

fn writes_it(access: OpAccess) -> bool {
    use OpAccess::*;
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

fn by_capstone(capstone: &Capstone, code: &[u8]) -> Seen {
    let insns = capstone.disasm_count(code, BASE, 1).unwrap();
    let insn = &insns[0];
    let detail = capstone.insn_detail(insn).unwrap();
    let text = format!("{} {}", insn.mnemonic().unwrap(), insn.op_str().unwrap());
    let mut text = alias(&normal(&text));
    // It prints what the instruction has; we say where that is.
    if let Some((before, after)) = text.split_once("(rip)") {
        let (mnemonic, distance) = before.split_once(' ').unwrap();
        let distance: i64 = distance.parse().unwrap();
        let address = (BASE + insn.len() as u64).wrapping_add_signed(distance);
        text = format!("{mnemonic} {address}(rip){after}");
    }
    let (mut reads, mut writes) = Default::default();
    let full = |name: String| match name.as_str() {
        // The halves by which 32 bits are stored.
        "eax" | "ebx" | "ecx" | "edx" | "esi" | "edi" | "ebp" | "esp" => format!("r{}", &name[1..]),
        "al" => "rax".to_owned(),
        half if half.ends_with('d') => half.trim_end_matches('d').to_owned(),
        _ => name,
    };
    let name = |id| full(capstone.reg_name(id).unwrap());
    if !BESIDE_ROWS.contains(&text.trim()) {
        detail.regs_read().iter().for_each(|id| touch::<X86_64>(&mut reads, &name(*id)));
        detail.regs_write().iter().for_each(|id| touch::<X86_64>(&mut writes, &name(*id)));
    }
    let (mnemonic, operands) = parts(&text);
    let memory = |operand: Option<&&str>| operand.is_some_and(|o| o.contains('('));
    let words = if mnemonic == "movups" { 2_u16 } else { 1 };
    let (loads, stores) = match mnemonic {
        "call" | "pushfq" => (0, 1),
        "xadd" | "incq" => (1, 1),
        "cmp" => (u16::from(operands.iter().any(|o| o.starts_with("fs:") || memory(Some(o)))), 0),
        "mov" if text.contains("fs:") => {
            let loads = u16::from(operands[0].starts_with("fs:"));
            (loads, 1 - loads)
        }
        "ret" | "popfq" => (1, 0),
        "pop" => (1, u16::from(memory(operands.first()))),
        "push" => (u16::from(memory(operands.first())), 1),
        "lea" | "nop" => (0, 0),
        "xsavec64" | "xrstor64" => of_area(Some(mnemonic)).unwrap(),
        _ => (words * u16::from(memory(operands.first())), words * u16::from(memory(operands.get(1)))),
    };
    if mnemonic == "xadd" {
        // Capstone does not say so. Intel SDM, volume 2: the flags are those of the addition.
        writes.flags = true;
    }
    if mnemonic == "nop" {
        // The registers of its operand are in the bytes, and nothing is done with them.
        (reads, writes) = Default::default();
    }
    Seen {
        sp: sp_effect(&text, writes.general.contains(RSP)),
        loads,
        stores,
        reads,
        writes,
        flow: match mnemonic {
            "call" => Control::Call,
            "ret" | "jmp" => Control::Leave,
            "je" | "jne" | "jae" | "jge" | "jb" => Control::Branch,
            "int3" => Control::Trap,
            _ => Control::Next,
        },
        size: insn.len(),
        text,
    }
}

/// A call of the next instructions, and a jump inside a trampoline, are such as no decoder can tell from others.
fn of_label(seen: Seen, code: &[u8]) -> Seen {
    let near = |opcode: u8| code[0] == opcode && i32::from_le_bytes(code[1..5].try_into().unwrap()).abs() < 256;
    match (near(0xe8), near(0xe9)) {
        (true, _) => Seen { flow: Control::Jump, sp: SpEffect::Move(-8), ..seen },
        (_, true) => Seen { flow: Control::Jump, ..seen },
        _ => seen,
    }
}

/// Under the profile that holds where none is named.
fn target(choices: Choices) -> Target {
    let convention = profiles::default_convention(&tramptool_x86_64::FACTS).unwrap();
    X86_64::target(convention, choices).unwrap()
}

#[test]
fn iced_reads_every_row() {
    let targets = [target(Choices::default())];
    let decode = |code: &[u8]| of_label(by_iced(code), code);
    rows::try_rows(&X86_64, ROWS, row, &targets, &decode, &spell);
    rows::try_rows(&X86_64, FAULTY_ROWS, faulty_row, &targets, &decode, &spell);
}

#[test]
fn capstone_reads_every_row() {
    let mut capstone = rows::capstone::<X86_64>();
    capstone.set_syntax(Syntax::Att).unwrap();
    let targets = [target(Choices::default())];
    let decode = |code: &[u8]| of_label(by_capstone(&capstone, code), code);
    rows::try_rows(&X86_64, ROWS, row, &targets, &decode, &spell);
    rows::try_rows(&X86_64, FAULTY_ROWS, faulty_row, &targets, &decode, &spell);
}

#[test]
fn what_a_row_cannot_hold_is_refused() {
    let targets = [target(Choices::default())];
    let refused = rows::refuse_rows(ROWS, &targets) + rows::refuse_rows(FAULTY_ROWS, &targets);
    assert!(refused > 200, "{refused}");
}
