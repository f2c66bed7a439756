//! Instructions of which only the operands are known: AVX to AVX-512, SHA and GFNI, which the engine lacks or takes for others.
//!
//! Moves are exact in the low half of a YMM register. Any other instruction computes a number that depends on all that it reads.
//! So a run shows where code goes, which general registers and which memory it changes, and what depends on what; it does not show
//! what code computes. Of a register, the bits above 128 follow from those below.

use codegen::arch::machine::{Lent, LentCpu, LentTo};
use codegen::words::abi::Reg;
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfo, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, UsedMemory, UsedRegister,
};

use crate::regs::VECTORS;

/// The emulation of these instructions.
pub(crate) const OPAQUE: Lent = Lent { size, run };

/// The engine's number of RFLAGS, and the flags that arithmetic sets.
const RFLAGS: i32 = 253;
const ARITHMETIC: u64 = 0x8d5;

/// The bytes of the largest vector register.
const LARGEST: usize = 64;

fn size(code: &[u8]) -> Option<usize> {
    let instruction = decoded(code, 0)?;
    let vector = |n: u32| {
        let register = instruction.op_register(n);
        instruction.op_kind(n) == OpKind::Register && (register.is_vector_register() || register.is_k())
    };
    let wide = instruction.encoding() != EncodingKind::Legacy;
    let no_operand = instruction.op_count() == 0;
    let vectors = no_operand || (0..instruction.op_count()).any(vector);
    let new = instruction.cpuid_features().iter().any(|f| matches!(f, CpuidFeature::SHA | CpuidFeature::GFNI));
    // BMI has the same prefix, and the engine has it.
    (wide && vectors || new).then(|| instruction.len())
}

fn decoded(code: &[u8], ip: u64) -> Option<Instruction> {
    let instruction = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Run it.
///
/// # Errors
/// Memory is not there.
fn run(code: &[u8], next: u64, cpu: &mut dyn LentCpu) -> Result<LentTo, &'static str> {
    let Some(instruction) = decoded(code, next.wrapping_sub(code.len() as u64)) else { return Ok(LentTo::Engine) };
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    if is_move(instruction.mnemonic()) && instruction.op_count() == 2 && !instruction.has_op_mask() {
        let mut bytes = operand(&instruction, info, 1, cpu)?;
        bytes.truncate(match instruction.mnemonic() {
            Mnemonic::Vmovd => 4,
            Mnemonic::Vmovq => 8,
            _ => LARGEST,
        });
        store(&instruction, info, &bytes, cpu)?;
    } else if !matches!(instruction.mnemonic(), Mnemonic::Vzeroupper) {
        compute(&instruction, info, cpu)?;
    }
    Ok(LentTo::Us)
}

/// Does it copy its second operand, whole or as much as the first takes?
fn is_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Vlddqu, Vmovapd, Vmovaps, Vmovd, Vmovdqa, Vmovdqa32, Vmovdqa64, Vmovdqu, Vmovdqu8, Vmovdqu16, Vmovdqu32,
        Vmovdqu64, Vmovntdq, Vmovntdqa, Vmovntpd, Vmovntps, Vmovq, Vmovupd, Vmovups,
    };
    let copies = [
        Vlddqu, Vmovapd, Vmovaps, Vmovd, Vmovdqa, Vmovdqa32, Vmovdqa64, Vmovdqu, Vmovdqu8, Vmovdqu16, Vmovdqu32,
        Vmovdqu64, Vmovntdq, Vmovntdqa, Vmovntpd, Vmovntps, Vmovq, Vmovupd, Vmovups,
    ];
    copies.contains(&mnemonic)
}

/// A number, and all that it goes on to.
struct Spread(u64);

impl Spread {
    fn take(&mut self, bytes: &[u8]) {
        // FNV-1a.
        self.0 = bytes.iter().fold(self.0, |all, byte| (all ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            self.0 = (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1);
            part.copy_from_slice(&self.0.to_le_bytes()[..part.len()]);
        }
    }
}

/// A general register's number, if it is one.
fn general(register: Register) -> Option<Reg> {
    register.is_gpr().then(|| Reg(register.full_register().number() as u8))
}

/// A register, as far as it is known.
fn value(register: Register, cpu: &dyn LentCpu) -> Vec<u8> {
    if let Some(reg) = general(register) {
        return cpu.general(reg).to_le_bytes()[..register.size()].to_vec();
    }
    let mut bytes = vec![0; if register.is_vector_register() { LARGEST } else { 0 }];
    if let Some(known) = VECTORS.get(register.number()).filter(|_| !bytes.is_empty()) {
        let (low, high) = bytes.split_at_mut(16);
        cpu.get(known.id, low);
        let mut spread = Spread(0xcbf2_9ce4_8422_2325);
        spread.take(low);
        spread.fill(high);
        bytes.truncate(register.size());
    }
    bytes
}

/// Addresses of the memory that the instruction uses, with bytes of each, and how. What is gathered or scattered is left out: nobody
/// knows where it is.
fn places(info: &InstructionInfo, cpu: &dyn LentCpu) -> Vec<(u64, usize, OpAccess)> {
    let register = |register: Register, _, _| {
        let bytes = if register.is_segment_register() { Vec::new() } else { value(register, cpu) };
        Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    };
    let known = info.used_memory().iter().filter(|memory| !memory.index().is_vector_register());
    let place = |memory: &UsedMemory| {
        Some((memory.virtual_address(0, register)?, memory.memory_size().size(), memory.access()))
    };
    known.filter_map(place).collect()
}

fn reads(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Does it write for sure? What a mask may leave as it is stays.
fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite)
}

const NOT_THERE: &str = "it uses an address that no memory can have";

/// The bytes of an operand of a move.
fn operand(
    instruction: &Instruction,
    info: &InstructionInfo,
    n: u32,
    cpu: &mut dyn LentCpu,
) -> Result<Vec<u8>, &'static str> {
    if instruction.op_kind(n) == OpKind::Register {
        return Ok(value(instruction.op_register(n), cpu));
    }
    let Some((at, size, _)) = places(info, cpu).into_iter().next() else { return Ok(Vec::new()) };
    let mut bytes = vec![0; size];
    if cpu.read(at, &mut bytes) { Ok(bytes) } else { Err(NOT_THERE) }
}

/// Put bytes into the first operand of a move; what they do not fill of a register is 0.
fn store(
    instruction: &Instruction,
    info: &InstructionInfo,
    bytes: &[u8],
    cpu: &mut dyn LentCpu,
) -> Result<(), &'static str> {
    if instruction.op_kind(0) == OpKind::Register {
        put(instruction.op_register(0), bytes, cpu);
        return Ok(());
    }
    let Some((at, size, _)) = places(info, cpu).into_iter().next() else { return Ok(()) };
    let bytes = bytes.get(..size).unwrap_or(bytes);
    if cpu.write(at, bytes) { Ok(()) } else { Err(NOT_THERE) }
}

fn put(register: Register, bytes: &[u8], cpu: &mut dyn LentCpu) {
    let mut low = [0; 16];
    let size = bytes.len().min(if general(register).is_some() { register.size().min(8) } else { 16 });
    low[..size].copy_from_slice(&bytes[..size]);
    if let Some(reg) = general(register) {
        let value = low[..8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        cpu.set_general(reg, value);
    } else if let Some(known) = VECTORS.get(register.number()).filter(|_| register.is_vector_register()) {
        cpu.set(known.id, &low);
    }
}

/// An exclusive or of a register with itself is 0, whatever was in it; a difference and a comparison are constants too.
fn is_constant(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Vpcmpeqb, Vpcmpeqd, Vpcmpeqq, Vpcmpeqw, Vpsubb, Vpsubd, Vpsubq, Vpsubw, Vpxor, Vpxord, Vpxorq, Vxorpd, Vxorps,
    };
    let all =
        [Vpcmpeqb, Vpcmpeqd, Vpcmpeqq, Vpcmpeqw, Vpsubb, Vpsubd, Vpsubq, Vpsubw, Vpxor, Vpxord, Vpxorq, Vxorpd, Vxorps];
    let [one, other] = [1, 2].map(|n| instruction.op_kind(n) == OpKind::Register);
    let is_same = one && other && instruction.op_register(1) == instruction.op_register(2);
    instruction.op_count() == 3 && is_same && all.contains(&instruction.mnemonic())
}

/// Anything else: what it writes depends on all that it reads.
fn compute(instruction: &Instruction, info: &InstructionInfo, cpu: &mut dyn LentCpu) -> Result<(), &'static str> {
    let mut spread = Spread(instruction.code() as u64 + 1);
    spread.take(&instruction.immediate8().to_le_bytes());
    let used = info.used_registers();
    let same = is_constant(instruction);
    for register in used.iter().filter(|used| reads(used.access()) && !same).map(UsedRegister::register) {
        spread.take(&value(register, cpu));
    }
    let places = places(info, cpu);
    for (at, size, _) in places.iter().filter(|(.., access)| reads(*access)) {
        let mut bytes = vec![0; *size];
        if !cpu.read(*at, &mut bytes) {
            return Err(NOT_THERE);
        }
        spread.take(&bytes);
    }
    for (at, size, _) in places.iter().filter(|(.., access)| writes(*access)) {
        let mut bytes = vec![0; *size];
        spread.fill(&mut bytes);
        if !cpu.write(*at, &bytes) {
            return Err(NOT_THERE);
        }
    }
    let written = used.iter().filter(|used| writes(used.access()) || used.access() == OpAccess::ReadCondWrite);
    for register in written.map(UsedRegister::register) {
        // Masks and lengths of some bits come out of vectors, and no addresses.
        let mut bytes = [0; 16];
        let size = if general(register).is_some() { 2 } else { 16 };
        spread.fill(&mut bytes[..size]);
        put(register, &bytes, cpu);
    }
    if instruction.rflags_modified() != 0 {
        let mut flags = [0; 8];
        cpu.get(RFLAGS, &mut flags);
        let mut new = [0; 8];
        spread.fill(&mut new);
        let flags = u64::from_le_bytes(flags) & !ARITHMETIC | u64::from_le_bytes(new) & ARITHMETIC;
        cpu.set(RFLAGS, &flags.to_le_bytes());
    }
    Ok(())
}
