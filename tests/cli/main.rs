//! The command line as its users have it: the built binary, its exit codes, its messages and its files.

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod generate;
mod handler;
mod inputs;
mod link;
mod output;
mod terminal;
