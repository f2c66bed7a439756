//! The register table: name, DWARF number (AADWARF64, section 4.1), emulator number.

use codegen::arch::machine::EmuReg;
use codegen::words::abi::{Reg, RegInfo};

macro_rules! registers {
    ($($index:literal $constant:ident $name:literal $emu:literal;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: Reg = Reg($index);)*
        /// The table; the order is that of the instruction encoding and of DWARF.
        pub const TABLE: &[RegInfo] = &[$(RegInfo { name: $name, dwarf: $index, emu: $emu }),*];
    };
}

registers! {
    0 X0 "x0" 199;
    1 X1 "x1" 200;
    2 X2 "x2" 201;
    3 X3 "x3" 202;
    4 X4 "x4" 203;
    5 X5 "x5" 204;
    6 X6 "x6" 205;
    7 X7 "x7" 206;
    8 X8 "x8" 207;
    9 X9 "x9" 208;
    10 X10 "x10" 209;
    11 X11 "x11" 210;
    12 X12 "x12" 211;
    13 X13 "x13" 212;
    14 X14 "x14" 213;
    15 X15 "x15" 214;
    16 X16 "x16" 215;
    17 X17 "x17" 216;
    18 X18 "x18" 217;
    19 X19 "x19" 218;
    20 X20 "x20" 219;
    21 X21 "x21" 220;
    22 X22 "x22" 221;
    23 X23 "x23" 222;
    24 X24 "x24" 223;
    25 X25 "x25" 224;
    26 X26 "x26" 225;
    27 X27 "x27" 226;
    28 X28 "x28" 227;
    29 X29 "x29" 1;
    30 X30 "x30" 2;
    31 SP "sp" 4;
}

/// The registers of which one is the thread pointer. Their encodings are in the Arm ARM under their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thread {
    /// The thread pointer of programs.
    El0,
    /// The thread pointer of kernels.
    El1,
}

impl Thread {
    /// Both.
    pub const ALL: [Thread; 2] = [Thread::El0, Thread::El1];

    /// The manual's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::El0 => "tpidr_el0",
            Self::El1 => "tpidr_el1",
        }
    }

    /// MRS of it to X0: dynasm has no name for these registers.
    pub const fn mrs(self) -> u32 {
        match self {
            Self::El0 => 0xd53b_d040,
            Self::El1 => 0xd538_d080,
        }
    }
}

macro_rules! vectors {
    ($($name:literal $emu:literal),*) => { &[$(EmuReg { name: $name, id: $emu }),*] };
}

/// The vector registers: 128 bits each.
pub const VECTORS: &[EmuReg] = vectors![
    "v0" 228, "v1" 229, "v2" 230, "v3" 231, "v4" 232, "v5" 233, "v6" 234, "v7" 235, "v8" 236, "v9" 237, "v10" 238,
    "v11" 239, "v12" 240, "v13" 241, "v14" 242, "v15" 243, "v16" 244, "v17" 245, "v18" 246, "v19" 247, "v20" 248,
    "v21" 249, "v22" 250, "v23" 251, "v24" 252, "v25" 253, "v26" 254, "v27" 255, "v28" 256, "v29" 257, "v30" 258,
    "v31" 259
];
