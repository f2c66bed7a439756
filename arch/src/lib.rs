//! The architectures, in one list. What serves all of them alike takes them from here.

use codegen::backend::Backend;
use codegen::words::error::{Error, Result};

/// The architectures. Adding one is writing its crate and its line here.
pub static BACKENDS: &[&dyn Backend] = &[&arch_x86_64::X86_64, &arch_arm64::Arm64, &arch_riscv::Riscv64];

/// The architecture called `name` by the kernel, by uname or by LLVM.
///
/// # Errors
/// No architecture has that name; the message lists those that there are.
pub fn backend(name: &str) -> Result<&'static dyn Backend> {
    let wanted = name.to_ascii_lowercase();
    let named = |b: &&&'static dyn Backend| {
        b.facts().name == wanted || b.facts().aliases.iter().any(|a| a.eq_ignore_ascii_case(&wanted))
    };
    BACKENDS
        .iter()
        .find(named)
        .copied()
        .ok_or_else(|| Error::unknown("architecture", name, BACKENDS.iter().map(|b| b.facts().name)))
}
