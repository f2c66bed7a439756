//! Entries of functions compiled without a site: a jump of five bytes, and the instructions that it overwrites.

use codegen::arch::entry::{Class, Code, Entry, First, Flow, Insn, Room, To};
use codegen::arch::patch::Branch;
use codegen::words::error::{Error, Result};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code as Opcode, Decoder, DecoderOptions, FlowControl, IcedError, Instruction,
    InstructionBlock, MemoryOperand, Mnemonic, OpKind, Register,
};

/// The jump that is written.
const JUMP: Room = Room { branch: Branch::SiteJump, bytes: 5, align: 1 };
/// `endbr64`.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Thunks, which are called with any register live.
const THUNKS: &str = "__x86_";
const NOT_MOVED: &str = "cannot be moved; valid: an entry that is said to be patchable";

/// The instruction at an address.
pub fn decode(bytes: &[u8], at: u64) -> Option<Insn> {
    let insn = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    let target = matches!(insn.op0_kind(), OpKind::NearBranch64).then(|| insn.near_branch_target());
    let through_stack = || {
        let operand = if insn.op0_kind() == OpKind::Register { insn.op0_register() } else { insn.memory_base() };
        operand == Register::RSP
    };
    let flow = match (insn.mnemonic(), insn.flow_control()) {
        (Mnemonic::INVALID, _) => return None,
        (Mnemonic::Nop | Mnemonic::Int3, _) => Flow::Padding,
        (Mnemonic::Syscall | Mnemonic::Sysenter, _) => Flow::Stays("a system call"),
        // FPU instructions leave their address to these.
        (Mnemonic::Fnstenv | Mnemonic::Fnsave | Mnemonic::Fxsave | Mnemonic::Fxsave64, _) => {
            Flow::Stays("saves the address of an instruction")
        }
        (_, FlowControl::IndirectCall) if through_stack() => Flow::Stays("a call by a word of the stack"),
        (_, FlowControl::Call | FlowControl::IndirectCall) => Flow::Call,
        (_, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return) => Flow::Away,
        (_, FlowControl::Exception) => Flow::Away,
        (_, FlowControl::XbeginXabortXend) => Flow::Stays("a transaction"),
        _ => Flow::On,
    };
    Some(Insn { len: insn.len(), flow, target })
}

/// The call or jump with which code begins.
pub fn first(code: &[u8], at: u64) -> Option<First> {
    let pad = if code.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    let insn = Decoder::with_ip(64, code.get(pad..)?, at.wrapping_add(pad as u64), DecoderOptions::NONE).decode();
    let to = match insn.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch if insn.op0_kind() == OpKind::NearBranch64 => {
            To::Address(insn.near_branch_target())
        }
        FlowControl::IndirectCall | FlowControl::IndirectBranch if insn.is_ip_rel_memory_operand() => {
            To::Word(insn.ip_rel_memory_address())
        }
        _ => return None,
    };
    Some(First { at: pad, len: insn.len(), to })
}

/// How an entry is patched: behind its landing pad, if it has one.
pub fn entries(code: &Code) -> Vec<Entry> {
    if code.name.starts_with(THUNKS) {
        return vec![code.refused(JUMP.branch, Class::Refused, "a thunk, called in a way of its own")];
    }
    let at = if code.bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
    vec![code.entry(at, JUMP, &decode)]
}

/// Instructions at another place, with the same effect.
///
/// # Errors
/// One cannot be moved, or what it refers to is out of reach.
pub fn moved(code: &[u8], from: u64, to: u64) -> Result<Vec<u8>> {
    let refused = |e: IcedError| Error::new(format!("the instructions at {from:#x} are not moved to {to:#x}: {e}"));
    let behind = from.wrapping_add(code.len() as u64);
    let (mut all, mut new) = (Vec::new(), Vec::new());
    for insn in &mut Decoder::with_ip(64, code, from, DecoderOptions::NONE) {
        let bytes = code.get((insn.ip() - from) as usize..).unwrap_or_default();
        match decode(bytes, insn.ip()).map(|insn| insn.flow) {
            flow if matches!(flow, None | Some(Flow::Stays(_))) || !new.is_empty() => {
                return Err(Error::new(format!("{:?} at {:#x} {NOT_MOVED}", insn.mnemonic(), insn.ip())));
            }
            Some(Flow::Call) => new.extend(call(&insn).map_err(refused)?),
            _ => all.push(insn),
        }
    }
    new.push(Instruction::with_branch(Opcode::Jmp_rel32_64, behind).map_err(refused)?);
    all.append(&mut new);
    // What refers to the address of an instruction here would follow it, as a function that compares with its own address: nothing
    // refers to these.
    (1..).zip(&mut all).for_each(|(n, insn)| insn.set_ip(0_u64.wrapping_sub(n)));
    let block = InstructionBlock::new(&all, to);
    Ok(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map_err(refused)?.code_buffer)
}

/// A call that leaves the return address that it has where it stands.
fn call(insn: &Instruction) -> std::result::Result<Vec<Instruction>, IcedError> {
    let back = insn.next_ip();
    let top = MemoryOperand::with_base_displ(Register::RSP, 4);
    let mut jump = *insn;
    match insn.op0_kind() {
        OpKind::NearBranch64 => jump = Instruction::with_branch(Opcode::Jmp_rel32_64, insn.near_branch_target())?,
        _ => jump.set_code(Opcode::Jmp_rm64),
    }
    Ok(vec![
        Instruction::with1(Opcode::Pushq_imm32, back as i32)?,
        Instruction::with2(Opcode::Mov_rm32_imm32, top, (back >> 32) as i32)?,
        jump,
    ])
}
