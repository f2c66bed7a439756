//! Trampolines in real processes: natively on x86_64, under qemu's user mode for the others.

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod case;
mod chance;
mod copied;
mod flags;
mod in_place;
mod machine;
mod paired;
mod place;
mod program;
mod recorded;
mod refilled;
mod signed;
mod template;
mod types;
mod unwind;
