//! The machines: what of an instruction set the protocol of patching has to know. An architecture is a row.

use libc::ucontext_t;

/// The properties of one machine.
pub struct Machine {
    /// The breakpoint, in one store.
    pub trap: &'static [u8],
    /// The distance in bytes from a breakpoint's first byte to the program counter that its handler sees.
    pub trap_behind: u64,
    /// Bytes of an aligned instruction that may be stored over another one while threads execute it; 0 where none may be.
    pub word: usize,
    /// What stands at a site with nothing but NOPs while nobody is attached, once it has been patched: no thread can be in the
    /// middle of it, but for those that the jump to the trampoline has brought there too.
    pub idle: fn(&[u8]) -> Vec<u8>,
    /// The fewest bytes of a NOP.
    pub nop: usize,
    /// Bytes of each instruction of a jump, and of what is there while nobody is attached.
    pub piece: usize,
    /// Registers with arguments; they come first in the structure that handlers get.
    pub arguments: usize,
    /// The member that has the result.
    pub result: &'static str,
    /// The member that says where the function goes on. Trampolines write it, and do not read it.
    pub pc: &'static str,
    /// Bytes of the call of a function in a trampoline.
    pub call: u64,
    /// Options for trampolines that leave the stack as it is.
    pub in_place: &'static [(&'static str, &'static str)],
    /// The bit in the protection of pages that indirect branches enter at landing pads alone; 0 if the processor does not look.
    pub guard: fn() -> i32,
}

#[cfg(target_arch = "x86_64")]
mod row {
    use super::{Machine, ucontext_t};

    pub const MACHINE: Machine = Machine {
        trap: &[0xcc],
        trap_behind: 1,
        word: 0,
        idle: |_| vec![0x0f, 0x1f, 0x44, 0, 0],
        nop: 1,
        piece: 5,
        arguments: 6,
        result: "rax",
        pc: "rip",
        call: 5,
        // At a function's entry the frame's size is what makes its end a multiple of 16.
        in_place: &[("stack-align", "8")],
        guard: || 0,
    };

    pub fn turn(cell: u64) -> Vec<u8> {
        // movabs $cell, %r11; jmp *(%r11)
        [0x49, 0xbb].into_iter().chain(cell.to_le_bytes()).chain([0x41, 0xff, 0x23]).collect()
    }

    pub fn pc(context: &mut ucontext_t) -> &mut i64 {
        &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
    }

    pub fn sp(context: &ucontext_t) -> i64 {
        context.uc_mcontext.gregs[libc::REG_RSP as usize]
    }

    pub fn flush(_at: u64, _len: usize) {}
}

#[cfg(target_arch = "aarch64")]
mod row {
    use super::{Machine, ucontext_t};

    pub const MACHINE: Machine = Machine {
        trap: &[0, 0, 0x20, 0xd4],
        trap_behind: 0,
        word: 4,
        idle: |_| vec![0x1f, 0x20, 0x03, 0xd5],
        nop: 4,
        piece: 4,
        arguments: 8,
        result: "x0",
        pc: "pc",
        call: 4,
        in_place: &[],
        guard: || if std::arch::is_aarch64_feature_detected!("bti") { 0x10 } else { 0 },
    };

    pub fn turn(cell: u64) -> Vec<u8> {
        // ldr x16, .+16; ldr x16, [x16]; br x16; nop
        let code = [0x5800_0090_u32, 0xf940_0210, 0xd61f_0200, 0xd503_201f];
        code.iter().flat_map(|word| word.to_le_bytes()).chain(cell.to_le_bytes()).collect()
    }

    pub fn pc(context: &mut ucontext_t) -> &mut u64 {
        &mut context.uc_mcontext.pc
    }

    pub fn sp(context: &ucontext_t) -> u64 {
        context.uc_mcontext.sp
    }

    #[allow(unsafe_code, reason = "the instruction cache has no other way in")]
    pub fn flush(at: u64, len: usize) {
        unsafe extern "C" {
            fn __clear_cache(from: *mut u8, to: *mut u8);
        }
        // SAFETY: it changes no memory. Whoever calls it has written to these bytes.
        unsafe { __clear_cache(at as *mut u8, (at as *mut u8).wrapping_add(len)) };
    }
}

#[cfg(target_arch = "riscv64")]
mod row {
    use super::{Machine, ucontext_t};

    pub const MACHINE: Machine = Machine {
        trap: &[0x02, 0x90],
        trap_behind: 0,
        word: 4,
        // The first half of the jump stays.
        idle: |jump| jump.iter().take(4).copied().chain([0x13, 0, 0, 0]).collect(),
        nop: 2,
        piece: 4,
        arguments: 8,
        result: "a0",
        pc: "pc",
        call: 8,
        in_place: &[],
        guard: || 0,
    };

    pub fn turn(cell: u64) -> Vec<u8> {
        // auipc t1, 0; ld t1, 16(t1); ld t1, 0(t1); jr t1
        let code = [0x0000_0317_u32, 0x0103_3303, 0x0003_3303, 0x0003_0067];
        code.iter().flat_map(|word| word.to_le_bytes()).chain(cell.to_le_bytes()).collect()
    }

    pub fn pc(context: &mut ucontext_t) -> &mut u64 {
        &mut context.uc_mcontext.__gregs[0]
    }

    pub fn sp(context: &ucontext_t) -> u64 {
        context.uc_mcontext.__gregs[2]
    }

    #[allow(unsafe_code, reason = "the instruction cache has no other way in")]
    pub fn flush(at: u64, len: usize) {
        /// `riscv_flush_icache`, for all threads of the process.
        const FLUSH: libc::c_long = 259;
        // SAFETY: it changes no memory.
        unsafe { libc::syscall(FLUSH, at, at + len as u64, 0) };
    }
}

/// The machine that this is compiled for.
pub use row::MACHINE;

/// Let instructions that were stored there be fetched.
pub fn flush(at: u64, len: usize) {
    row::flush(at, len);
}

/// Code that goes to the address that this cell has then. It changes a register that calls between objects change.
pub fn turn(cell: u64) -> Vec<u8> {
    row::turn(cell)
}

/// The program counter of an interrupted thread.
pub fn pc(context: &mut ucontext_t) -> u64 {
    *row::pc(context) as u64
}

/// Let an interrupted thread go on there.
pub fn set_pc(context: &mut ucontext_t, to: u64) {
    *row::pc(context) = to as _;
}

/// The stack pointer of an interrupted thread.
pub fn sp(context: &ucontext_t) -> u64 {
    row::sp(context) as u64
}
