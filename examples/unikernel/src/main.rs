//! A kernel of one program, for x86_64, which traces one of its own functions: nothing is below it, so it patches the
//! function by plain stores. `cargo build` makes it, and tests/unikernel.rs of this repository runs it in an emulator.
#![no_std]
#![no_main]

use core::arch::global_asm;
use core::ptr::{addr_of_mut, write_unaligned};

// The site is five bytes of NOP, as compilers leave it with -fpatchable-function-entry=5. No compiler that is stable does
// for Rust.
global_asm!(
    ".pushsection .text.traced, \"awx\"",
    ".globl work",
    ".type work, @function",
    "work:",
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "lea rax, [rdi + 2*rdi]",
    "ret",
    ".size work, . - work",
    ".popsection",
);

unsafe extern "C" {
    fn work(argument: u64) -> u64;
    fn traced_entry();
    fn stopped() -> !;
}

/// How often the handler was called, and the sum of the arguments that it saw.
#[unsafe(no_mangle)]
static mut CALLS: u64 = 0;
#[unsafe(no_mangle)]
static mut SUM: u64 = 0;
/// What `work` returned: untraced, and with its argument replaced by the handler.
#[unsafe(no_mangle)]
static mut RESULTS: [u64; 2] = [0; 2];

/// The handler: counts, and changes the argument, which takes effect.
#[unsafe(no_mangle)]
extern "C" fn on_call(_ip: u64, _parent_ip: u64, regs: *mut u8) {
    const OFFSET: usize = parse(env!("ARGUMENT_OFFSET"));
    // SAFETY: the trampoline passes its own frame, where the profile has the argument at this offset.
    unsafe {
        let argument = regs.add(OFFSET).cast::<u64>();
        CALLS += 1;
        SUM += *argument;
        *argument = 100;
    }
}

const fn parse(digits: &str) -> usize {
    let (mut value, mut at) = (0, 0);
    while at < digits.len() {
        value = value * 10 + (digits.as_bytes()[at] - b'0') as usize;
        at += 1;
    }
    value
}

/// Put a CALL of the trampoline into the site of `function`.
unsafe fn trace(function: *mut u8) {
    let next = function as i64 + 5;
    let distance = (traced_entry as *const () as i64 - next) as i32;
    // SAFETY: the site is five bytes of writable memory, and nothing else runs.
    unsafe {
        function.write(0xe8);
        write_unaligned(function.add(1).cast::<i32>(), distance);
    }
}

/// Where it starts, and where it stops.
#[unsafe(no_mangle)]
extern "C" fn kernel() -> ! {
    // SAFETY: there is one CPU and no interrupt.
    unsafe {
        let results = addr_of_mut!(RESULTS).cast::<u64>();
        results.write(work(7));
        trace(work as *mut u8);
        results.add(1).write(work(7));
        stopped()
    }
}

// The stack is where the loader put it; a function is entered with SP 8 below a multiple of 16.
global_asm!(
    ".globl _start",
    "_start: and rsp, -16",
    "call {kernel}",
    ".globl stopped",
    "stopped: hlt",
    "jmp stopped",
    kernel = sym kernel,
);

/// Nothing is unwound; the core library refers to it all the same.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}
