//! The command line as its users have it: the built binary, its exit codes, its messages and its files.

#[cfg(feature = "judge")]
mod bounds;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod generate;
mod handler;
mod inputs;
mod link;
mod output;
#[cfg(feature = "judge")]
mod sandbox;
#[cfg(feature = "judge")]
mod several;
mod terminal;
