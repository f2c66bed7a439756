//! The register table: name, DWARF number (RISC-V psABI, "DWARF Register Numbers"), emulator number.

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
    0 ZERO "zero" 1;
    1 RA "ra" 2;
    2 SP "sp" 3;
    3 GP "gp" 4;
    4 TP "tp" 5;
    5 T0 "t0" 6;
    6 T1 "t1" 7;
    7 T2 "t2" 8;
    8 S0 "s0" 9;
    9 S1 "s1" 10;
    10 A0 "a0" 11;
    11 A1 "a1" 12;
    12 A2 "a2" 13;
    13 A3 "a3" 14;
    14 A4 "a4" 15;
    15 A5 "a5" 16;
    16 A6 "a6" 17;
    17 A7 "a7" 18;
    18 S2 "s2" 19;
    19 S3 "s3" 20;
    20 S4 "s4" 21;
    21 S5 "s5" 22;
    22 S6 "s6" 23;
    23 S7 "s7" 24;
    24 S8 "s8" 25;
    25 S9 "s9" 26;
    26 S10 "s10" 27;
    27 S11 "s11" 28;
    28 T3 "t3" 29;
    29 T4 "t4" 30;
    30 T5 "t5" 31;
    31 T6 "t6" 32;
}

macro_rules! vectors {
    ($($name:literal $emu:literal),*) => { &[$(EmuReg { name: $name, id: $emu }),*] };
}

/// The floating-point registers: 64 bits each.
pub const VECTORS: &[EmuReg] = vectors![
    "ft0" 158, "ft1" 159, "ft2" 160, "ft3" 161, "ft4" 162, "ft5" 163, "ft6" 164, "ft7" 165, "fs0" 166, "fs1" 167, "fa0" 168, "fa1" 169, "fa2" 170, "fa3" 171, "fa4" 172, "fa5" 173, "fa6" 174, "fa7" 175, "fs2" 176, "fs3" 177, "fs4" 178, "fs5" 179, "fs6" 180, "fs7" 181, "fs8" 182, "fs9" 183, "fs10" 184, "fs11" 185, "ft8" 186, "ft9" 187, "ft10" 188, "ft11" 189
];
