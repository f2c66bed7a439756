//! Trampolines that others wrote: text of our own, assembled by GNU as, and the kernel's objects where they were built.

mod agreed;
mod boundaries;
mod case;
mod changed;
#[path = "../common/mod.rs"]
mod common;
mod dumps;
mod emulated;
mod endless;
mod files;
mod judged;
mod kernels;
mod literals;
mod overwritten;
mod places;
mod records;
mod reentered;
mod returns;
mod shadow;
mod sleds;
mod stated;
mod stubs;
mod tables;
mod tails;
mod unprepared;
mod values;
mod ways;
