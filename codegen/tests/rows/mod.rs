//! Every row of an instruction set, with random operands, against a foreign decoder: what it reads in the bytes must be
//! the row's text, and what it says of registers, memory, SP and control must be the row's effects.
//!
//! An architecture gives the rows and what is spelled differently; the rest is here, once.

use capstone::{Capstone, Endian, ExtraMode, NO_EXTRA_MODE};
use codegen::ask::frame::FrameLayout;
use codegen::effect::action::{Action, Cell, Stored};
use codegen::effect::effects::{Effects, Flow, Moves, Slots, SpEffect};
use codegen::effect::register_use::Touched;
use codegen::listing::SymRef;
use codegen::listing::code::{CodeBuf, Ref};
use codegen::listing::isa::{Instruction, Isa};
use codegen::listing::names::Names;
use codegen::profile::target::Target;
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::step::{Disp, ExitPath, Local, Name, Sym};

/// Times that each row is tried.
const TIMES: usize = 400;

/// Where the instruction stands.
pub const BASE: u64 = 0x4000_0000;
/// Bytes before it.
const BEFORE: usize = 1024;

/// Random operands. The same ones in each run.
pub struct Rng {
    state: u64,
    /// Operands that no instruction can hold, in place of those that it can.
    pub illegal: bool,
    /// There was such an operand.
    pub was_illegal: bool,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed, illegal: false, was_illegal: false }
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A multiple of `unit` from `least` to `most`, mostly near the ends; outside of them if an illegal operand is wanted.
    pub fn number(&mut self, least: i64, most: i64, unit: i64) -> i32 {
        if self.illegal {
            let above = (most + unit <= i64::from(i32::MAX)).then_some(most + unit);
            let below = (least - unit >= i64::from(i32::MIN)).then_some(least - unit);
            let between = (unit > 1).then_some(least + 1);
            let all: Vec<i64> = [above, below, between].into_iter().flatten().collect();
            if !all.is_empty() {
                self.was_illegal = true;
                return self.pick(&all) as i32;
            }
        }
        let special =
            [least, least + unit, most, most - unit, 0, unit, -unit, 8, -8, 127, 128, -128, -129, 2047, -2048];
        let near: Vec<i64> = special.into_iter().filter(|n| (least..=most).contains(n) && n % unit == 0).collect();
        if self.below(2) == 0 {
            return self.pick(&near) as i32;
        }
        let steps = ((most - least) / unit) as u64 + 1;
        (least + unit * self.below(steps) as i64) as i32
    }

    /// A register's number below `count`, or one that there is not.
    pub fn index(&mut self, count: u8) -> u8 {
        if self.illegal {
            self.was_illegal = true;
            return self.pick(&[count, count + 1, 63, 255]);
        }
        self.below(count.into()) as u8
    }

    /// The symbol.
    pub fn sym(&mut self) -> Sym {
        Sym(0)
    }

    /// The label.
    pub fn local(&mut self) -> Local {
        Local::Path(ExitPath::Direct)
    }
}

/// A number without a name.
pub fn off(value: i32) -> Disp {
    Disp { value, name: Name::None }
}

/// A row's name, and a random instruction of it.
pub type Row<I> = (&'static str, fn(&mut Rng) -> I);

/// The rows of a type of instructions, and the names for what this makes of them: how each row gets random operands. A row
/// that is not listed does not compile.
#[macro_export]
macro_rules! every_row {
    ($insn:ident $rows:ident $row:ident; $($name:ident $({ $($field:ident: $value:expr),* })?;)*) => {
        /// Name and random instruction of each row.
        const $rows: &[$crate::rows::Row<$insn>] = &[
            $((stringify!($name), |_rng| $insn::$name $({ $($field: $value(_rng)),* })?)),*
        ];

        /// The row that an instruction is of.
        fn $row(insn: &$insn) -> &'static str {
            match insn { $($insn::$name { .. } => stringify!($name)),* }
        }
    };
}

/// What the foreign decoder says.
#[derive(Debug)]
pub struct Seen {
    /// Mnemonic and operands, normalised.
    pub text: String,
    /// What it reads and writes.
    pub reads: Touched,
    pub writes: Touched,
    /// What it does to SP.
    pub sp: SpEffect,
    /// Words of 8 bytes, or less, that are loaded and stored.
    pub loads: u16,
    pub stores: u16,
    pub flow: Control,
    /// Bytes.
    pub size: usize,
}

/// Where control goes, as far as a decoder can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    Next,
    Branch,
    Call,
    /// A jump to a label, or a call of the next instructions.
    Jump,
    Leave,
    Trap,
}

/// A row with operands, as bytes and as what we say of it.
pub struct Ours {
    pub text: String,
    pub code: Vec<u8>,
    pub effects: Effects,
    /// Where each of its fixups goes to.
    pub targets: Vec<u64>,
}

/// Encode with fixups that go to random places.
fn ours<I: Isa>(isa: &I, insn: impl Instruction, target: &Target, rng: &mut Rng) -> Option<Ours> {
    let mut buffer = CodeBuf { bytes: vec![0; BEFORE], ..CodeBuf::default() };
    insn.encode(target, &mut buffer).ok()?;
    let mut targets = Vec::new();
    let start = BASE - BEFORE as u64;
    for fixup in std::mem::take(&mut buffer.fixups) {
        let place = start + fixup.at as u64;
        let local = match fixup.to {
            Ref::Local(_) if !isa.refers_to_high(fixup.r_type) => true,
            Ref::Local(_) | Ref::Symbol(_) => false,
        };
        if local {
            let to = (BEFORE as i32 + rng.number(-120, 120, 4)) as usize;
            I::patch_local(fixup.r_type, &mut buffer.bytes, fixup.at, to).unwrap();
            targets.push(start + to as u64);
            continue;
        }
        let away = i64::from(rng.number(0x1000, 0x10_0000, 8));
        let to = place.wrapping_add_signed(rng.pick(&[away, -away])) & !7;
        let mut relocate = |to: u64| {
            let value = to.wrapping_add_signed(fixup.addend);
            let relocation = codegen::arch::patch::Relocation { r_type: fixup.r_type, place, value, high: place };
            isa.relocate(&relocation, &mut buffer.bytes[fixup.at..]).map(|()| to)
        };
        // What has no room for an address is an offset from somewhere.
        targets.push(relocate(to).or_else(|_| relocate(away.cast_unsigned())).unwrap());
    }
    let code = buffer.bytes.split_off(BEFORE);
    let symbols = [SymRef { name: "SYMBOL", add: 0 }];
    let frame = FrameLayout::empty();
    let names = Names { frame: &frame, numbers: &[], symbols: &symbols, function: "f" };
    let mut text = String::new();
    insn.text(&names, &mut text).unwrap();
    Some(Ours { text, code, effects: insn.effects(), targets })
}

/// Try every row: `decode` gives what the foreign decoder says, `spell` our text as that would have it.
pub fn try_rows<I: Isa, N: Instruction>(
    isa: &I,
    rows: &[Row<N>],
    row: fn(&N) -> &'static str,
    targets: &[Target],
    decode: &dyn Fn(&[u8]) -> Seen,
    spell: &dyn Fn(&Ours) -> String,
) {
    let abi = &I::FACTS.abi;
    let mut wrong = Vec::new();
    for (n, &(name, random)) in rows.iter().enumerate() {
        for (round, target) in (0..TIMES).flat_map(|round| targets.iter().map(move |t| (round, t))) {
            let mut rng = Rng::new((n << 32 | round) as u64);
            let insn = random(&mut rng);
            assert_eq!(row(&insn), name);
            let Some(ours) = ours(isa, insn, target, &mut rng) else {
                wrong.push(format!("{insn:?} is refused"));
                continue;
            };
            let seen = decode(&ours.code);
            for (what, ours, theirs) in differences(&ours, &seen, spell(&ours), abi) {
                wrong.push(format!("{insn:?}: {what}: ours {ours}, the decoder's {theirs}; {}", seen.text));
            }
        }
    }
    let all = wrong.len();
    // A few of each row.
    wrong.sort();
    wrong.dedup();
    wrong.chunk_by_mut(|a, b| a.split(' ').next() == b.split(' ').next()).for_each(|row| {
        row.iter_mut().skip(4).for_each(String::clear);
    });
    wrong.retain(|line| !line.is_empty());
    assert!(wrong.is_empty(), "{all} differences, such as\n{}", wrong.join("\n"));
}

/// What is different, ours, and the decoder's.
fn differences(ours: &Ours, seen: &Seen, text: String, abi: &Abi) -> Vec<(&'static str, String, String)> {
    let mut all = Vec::new();
    let mut same = |what, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
        let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
        if ours != theirs {
            all.push((what, ours, theirs));
        }
    };
    let effects = &ours.effects;
    let (reads, writes) = effects.touched(abi);
    same("bytes", &ours.code.len(), &seen.size);
    same("text", &text, &seen.text);
    same("registers read", &reads, &seen.reads);
    same("registers written", &writes, &seen.writes);
    same("SP", &effects.sp, &seen.sp);
    same("loads and stores", &(effects.loads, effects.stores), &(seen.loads, seen.stores));
    let flow = match effects.flow {
        Flow::Next => Control::Next,
        Flow::Branch(_) => Control::Branch,
        Flow::Call => Control::Call,
        Flow::Jump(_) => Control::Jump,
        Flow::Leave => Control::Leave,
        Flow::Trap => Control::Trap,
    };
    same("control", &flow, &seen.flow);
    let (mnemonic, printed) = parts(&seen.text);
    let in_order = in_order(effects, abi);
    let first: Vec<&str> = printed.iter().copied().take(in_order.len()).collect();
    same("order of registers", &in_order, &first);
    let said = numbers(&seen.text);
    for number in told(effects) {
        let held = match mnemonic {
            "sub" => -number,
            "lui" => number >> 12 & 0xf_ffff,
            _ => number,
        };
        if held != 0 && !said.contains(&held) {
            same("number", &number, &said);
        }
    }
    all
}

/// Operands that no instruction can hold are refused. How many were.
pub fn refuse_rows<N: Instruction>(rows: &[Row<N>], targets: &[Target]) -> usize {
    let mut refused = 0;
    for (n, &(name, random)) in rows.iter().enumerate() {
        for (round, target) in (0..20).flat_map(|round| targets.iter().map(move |t| (round, t))) {
            let mut rng = Rng { illegal: true, ..Rng::new((n << 32 | round) as u64) };
            let insn = random(&mut rng);
            if rng.was_illegal {
                let mut buffer = CodeBuf::default();
                assert!(insn.encode(target, &mut buffer).is_err(), "{name}: {insn:?} is taken: {:x?}", buffer.bytes);
                refused += 1;
            }
        }
    }
    refused
}

/// Of two registers that are stored or loaded together, which is the first one: sets do not tell.
fn in_order(effects: &Effects, abi: &Abi) -> Vec<String> {
    match (effects.moves, effects.action) {
        (Moves::Store(Slots { first, second: Some(second), .. }), _)
        | (Moves::Load(Slots { first, second: Some(second), .. }), _) => {
            let name = |reg| if abi.zero == Some(reg) { "xzr".to_owned() } else { abi.name(reg).to_owned() };
            vec![name(first), name(second)]
        }
        (_, Action::StoreVectors { first, second: Some(second), .. })
        | (_, Action::LoadVectors { first, second: Some(second), .. }) => {
            vec![format!("q{first}"), format!("q{second}")]
        }
        _ => Vec::new(),
    }
}

/// The numbers in our effects that the text must have too.
fn told(effects: &Effects) -> Vec<i64> {
    let mut all = Vec::new();
    if let Moves::Store(slots) | Moves::Load(slots) = effects.moves {
        all.push(i64::from(slots.at));
    }
    match effects.action {
        Action::Add { add, .. } | Action::AddWord { add, .. } => all.push(i64::from(add)),
        Action::Set { number, .. } | Action::CompareNumber { number, .. } => all.push(i64::from(number)),
        Action::SetWide { number, .. } => all.push(number),
        Action::SetBits { bits, .. } => all.push(i64::from(bits)),
        Action::ShiftLeft { by, .. } => all.push(i64::from(by)),
        Action::LoadAt { at, .. } => all.push(i64::from(at)),
        Action::PushAt { at, .. } | Action::CompareAt { at, .. } | Action::TestAt { at, .. } => {
            all.extend((at != 0).then_some(i64::from(at)));
        }
        Action::StoreNumber { number, at } => all.extend([i64::from(number), i64::from(at)]),
        Action::StoreVectors { at, .. } | Action::LoadVectors { at, .. } => all.push(i64::from(at)),
        Action::RoundDown { to, .. } => all.push(-i64::from(to)),
        Action::AtomicAdd { cell: Cell::Thread(at), .. }
        | Action::AddToMemory { cell: Cell::Thread(at), .. }
        | Action::CompareCell { cell: Cell::Thread(at), .. } => all.push(i64::from(at.value)),
        Action::LoadThread { at, .. } | Action::StoreThread { at, .. } => all.push(i64::from(at.value)),
        // The name of a register's half says it.
        Action::LowBits { bits: 32, .. } => {}
        Action::LowBits { bits, .. } => all.push(i64::MAX >> (63 - bits)),
        Action::TestBit { bit, .. } | Action::BranchIfBit { bit, .. } => all.push(i64::from(bit)),
        Action::BitToSign { bit, .. } => all.push(63 - i64::from(bit)),
        Action::StoreHalfAt { at, .. } => all.extend((at != 0).then_some(i64::from(at))),
        Action::StoreAt { at, stored, .. } => {
            all.extend((at != 0).then_some(i64::from(at)));
            if let Stored::Number(number) = stored {
                all.push(i64::from(number));
            }
        }
        Action::Authenticate { .. } | Action::Sign { .. } | Action::PushGuard { .. } | Action::PopGuard { .. } => {}
        Action::PushScs { by, .. } | Action::PopScs { by, .. } => all.push(if by > 0 { 8 } else { -8 }),
        Action::None
        | Action::StoreHalf
        | Action::LandingPad
        | Action::Control
        | Action::Address { .. }
        | Action::High { .. }
        | Action::Low { .. }
        | Action::LoadSymbol { .. }
        | Action::LoadLow { .. }
        | Action::OffsetHigh { .. }
        | Action::OffsetLow { .. }
        | Action::StoreState(_)
        | Action::LoadState(_)
        | Action::BranchIfNegative { .. }
        | Action::PushFlags
        | Action::PopFlags
        | Action::PopOver
        | Action::Test { .. }
        | Action::TestLowBit { .. }
        | Action::BranchIf { .. }
        | Action::BranchIfFlags { .. }
        | Action::PushNext
        | Action::LinkNext { .. }
        | Action::PushSymbol { .. }
        | Action::ThreadPointer { .. }
        | Action::ReadClock { .. }
        | Action::AddRegs { .. }
        | Action::AtomicAdd { .. }
        | Action::AddToMemory { .. }
        | Action::CompareCell { .. }
        | Action::Compare { .. }
        | Action::BranchIfNotBelow
        | Action::BranchIfRegNotBelow { .. }
        | Action::BranchIfSigned
        | Action::BranchIfRegSigned { .. }
        | Action::BranchIfRegsDiffer { .. }
        | Action::LeaveFor { .. }
        | Action::CallSymbol { .. }
        | Action::CallRegister { .. }
        | Action::LeaveBy { .. }
        | Action::Return { .. } => {}
    }
    all
}

/// The numbers in a text that [`normal`] has made.
pub fn numbers(text: &str) -> Vec<i64> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter_map(|w| w.parse().ok()).collect()
}

/// Lower case, one blank behind the mnemonic, none elsewhere, numbers decimal with their sign; marks of an assembler's
/// dialect left out.
pub fn normal(text: &str) -> String {
    let mut text = text.trim().to_lowercase().replace('\t', " ");
    if let (true, Some(end)) = (text.starts_with('{'), text.find('}')) {
        text = text[end + 1..].trim().to_owned();
    }
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((&text, ""));
    let mut out = format!("{mnemonic} ");
    let chars: Vec<char> = operands.chars().filter(|c| !" %$#".contains(*c)).collect();
    let mut i = 0;
    while i < chars.len() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let minus = chars[i] == '-' && (i == 0 || !word(chars[i - 1]));
        let from = i + usize::from(minus);
        let end = (from..chars.len()).find(|&j| !word(chars[j])).unwrap_or(chars.len());
        if end == from {
            out.push(chars[i]);
            i += 1;
            continue;
        }
        let token: String = chars[from..end].iter().collect();
        let number = match token.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok().map(u64::cast_signed),
            None => token.parse::<i64>().ok().or(token.parse::<u64>().ok().map(u64::cast_signed)),
        };
        match number {
            Some(n) => out += &(if minus { n.wrapping_neg() } else { n }).to_string(),
            None => out += &format!("{}{token}", if minus { "-" } else { "" }),
        }
        i = end;
    }
    out.trim().to_owned()
}

/// Where the operands of an instruction are.
pub fn parts(text: &str) -> (&str, Vec<&str>) {
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let mut all = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (i, c) in operands.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                all.push(&operands[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    if !operands.is_empty() {
        all.push(&operands[from..]);
    }
    (mnemonic, all)
}

/// The decoder for this architecture, with details.
pub fn capstone<I: Isa>() -> Capstone {
    let (arch, mode, extra) = I::MACHINE.disassembler;
    let extra: Vec<ExtraMode> = extra.iter().map(|e| e.parse().unwrap()).collect();
    let endian = Some(Endian::Little);
    let (arch, mode) = (arch.parse().unwrap(), mode.parse().unwrap());
    let built = match extra.is_empty() {
        true => Capstone::new_raw(arch, mode, NO_EXTRA_MODE, endian),
        false => Capstone::new_raw(arch, mode, extra.into_iter(), endian),
    };
    let mut capstone = built.unwrap();
    capstone.set_detail(true).unwrap();
    capstone
}

/// Sort a register that a decoder names into what is touched. The program counter and what is always zero are left out.
pub fn touch<I: Isa>(set: &mut Touched, name: &str) {
    let (class, number) = name.split_at(name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len()));
    let vectors = I::MACHINE.vectors;
    let abi = &I::FACTS.abi;
    let by_name = abi.find(name).filter(|r| Some(*r) != abi.zero || *r == abi.sp);
    if let Some(i) = vectors.iter().position(|v| v.name == name) {
        set.vectors = set.vectors.union(RegSet::of(&[Reg(i as u8)]));
    } else if let (true, Ok(n)) = (["q", "v", "xmm"].contains(&class), number.parse()) {
        set.vectors = set.vectors.union(RegSet::of(&[Reg(n)]));
    } else if ["rflags", "eflags", "nzcv"].contains(&name) {
        set.flags = true;
    } else if let Some(reg) = by_name {
        set.general = set.general.union(RegSet::of(&[reg]));
    } else {
        // Of control and status words, rows say that they change, and not which.
        assert!(
            ["rip", "zero", "xzr", "wzr", "pc", "fs", "fpsw", "fpcw", "fpcr", "frm"].contains(&name),
            "register {name}"
        );
    }
}
