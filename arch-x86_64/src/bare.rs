//! x86_64 on a bare machine of QEMU: QEMU has neither shadow stacks nor landing pads of it.

use codegen::arch::bare::Bare;

/// No machine.
pub const BARE: Option<&Bare> = None;
