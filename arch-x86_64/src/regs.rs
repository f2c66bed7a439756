//! The register table: name, DWARF number (x86-64 psABI, figure 3.36), emulator number.

use codegen::arch::machine::EmuReg;
use codegen::words::abi::{Reg, RegInfo};

macro_rules! registers {
    ($($index:literal $constant:ident $name:literal $dwarf:literal $emu:literal;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: Reg = Reg($index);)*
        /// The table; the order is that of the instruction encoding.
        pub const TABLE: &[RegInfo] = &[$(RegInfo { name: $name, dwarf: $dwarf, emu: $emu }),*];
    };
}

registers! {
    0 RAX "rax" 0 35;
    1 RCX "rcx" 2 38;
    2 RDX "rdx" 1 40;
    3 RBX "rbx" 3 37;
    4 RSP "rsp" 7 44;
    5 RBP "rbp" 6 36;
    6 RSI "rsi" 4 43;
    7 RDI "rdi" 5 39;
    8 R8 "r8" 8 106;
    9 R9 "r9" 9 107;
    10 R10 "r10" 10 108;
    11 R11 "r11" 11 109;
    12 R12 "r12" 12 110;
    13 R13 "r13" 13 111;
    14 R14 "r14" 14 112;
    15 R15 "r15" 15 113;
}

macro_rules! vectors {
    ($($name:literal $emu:literal),*) => { &[$(EmuReg { name: $name, id: $emu }),*] };
}

/// The vector registers, as far as the emulator executes them: 128 bits each.
pub const VECTORS: &[EmuReg] = vectors![
    "xmm0" 122, "xmm1" 123, "xmm2" 124, "xmm3" 125, "xmm4" 126, "xmm5" 127, "xmm6" 128, "xmm7" 129,
    "xmm8" 130, "xmm9" 131, "xmm10" 132, "xmm11" 133, "xmm12" 134, "xmm13" 135, "xmm14" 136, "xmm15" 137
];
