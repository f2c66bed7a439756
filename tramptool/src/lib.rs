//! Trampolines of function tracing for x86_64, arm64 and riscv64, from one description.

#[doc(hidden)]
pub mod internal;
