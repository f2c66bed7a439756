//! Loads and stores of an instruction: Intel SDM volume 2, as iced-x86 has it.

use codegen::arch::bare::Decoded;
use codegen::words::error::Result;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, MemorySize, OpAccess, Register};

use crate::emulated::pieces;

/// Bytes of an XSAVE area with x87 and SSE.
const XSAVE_BYTES: usize = 576;

/// What an instruction does.
///
/// # Errors
/// None.
pub fn decode(bytes: &[u8], at: u64, register: &dyn Fn(&str) -> u64) -> Result<Decoded> {
    let insn = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    let value = |reg: Register, _, _| match reg {
        Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
        Register::FS | Register::GS => Some(register(&format!("{reg:?}").to_lowercase())),
        _ => {
            let whole = register(&format!("{:?}", reg.full_register()).to_lowercase());
            Some(if reg.is_gpr32() { whole & 0xffff_ffff } else { whole })
        }
    };
    let mut accesses = Vec::new();
    let mut factory = InstructionInfoFactory::new();
    for used in factory.info(&insn).used_memory() {
        let Some(from) = used.virtual_address(0, value) else { continue };
        if matches!(used.memory_size(), MemorySize::Xsave | MemorySize::Xsave64) {
            let asked = register("rax") & 0xffff_ffff | register("rdx") << 32;
            // Of other forms, all that the area may have.
            let (saves, pieces) =
                pieces(bytes, asked).unwrap_or((used.access() == OpAccess::Write, vec![(0, XSAVE_BYTES)]));
            accesses.extend(pieces.into_iter().map(|(at, size)| (from.wrapping_add(at), size, saves)));
            continue;
        }
        let size = used.memory_size().size();
        if size == 0 {
            continue;
        }
        let (reads, writes) = match used.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            OpAccess::None | OpAccess::NoMemAccess => (false, false),
        };
        accesses.extend(reads.then_some((from, size, false)));
        accesses.extend(writes.then_some((from, size, true)));
    }
    Ok(Decoded { bytes: insn.len(), accesses })
}
