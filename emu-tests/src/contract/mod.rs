//! Contracts in files, and the trampolines of others that they are of.

mod boundary;
pub(crate) mod config;
pub mod draft;
pub mod file;
pub mod foreign;
mod nul;
pub mod places;
pub mod read;
mod slots;
pub mod stated;
pub mod text;
pub(crate) mod written;
