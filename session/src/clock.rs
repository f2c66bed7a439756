//! The processor's clock, beside the system's.

use rustix::time::{ClockId, clock_gettime};

use crate::protocol::Moment;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Both clocks of this machine, now.
pub fn now() -> Moment {
    Moment { ticks: ticks(), monotonic: monotonic() }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "an instruction that reads a clock has no other way in")]
fn ticks() -> u64 {
    // SAFETY: RDTSC changes nothing but its result.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code, reason = "an instruction that reads a clock has no other way in")]
fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: it changes nothing but its result.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(target_arch = "riscv64")]
#[allow(unsafe_code, reason = "an instruction that reads a clock has no other way in")]
fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: it changes nothing but its result.
    unsafe { core::arch::asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
    ticks
}
