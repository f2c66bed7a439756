//! `trace preload`: the library that starts a recording in whatever program loads it.

use std::path::PathBuf;

use clap::Args;
use codegen::words::error::Result;
use session::agent::LIBRARY;

use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::output::{self, Contents, File};

/// Arguments of `trace preload`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PreloadArgs {
    /// The library's file
    #[arg(value_name = "FILE")]
    output: PathBuf,
}

const EXAMPLES: &str = "\
A program that is run with LD_PRELOAD=FILE starts `tramptool trace` for itself, or the command in the variable TRAMPTOOL_TRACE. If that \
does not start, the program runs unrecorded.

Examples:
  tramptool trace preload ./libtramptool_trace.so
  LD_PRELOAD=./libtramptool_trace.so ./program
  LD_PRELOAD=./libtramptool_trace.so TRAMPTOOL_TRACE='tramptool trace --any -o out' ./program";

/// Write it.
///
/// # Errors
/// The file cannot be written.
pub fn run(args: &PreloadArgs) -> Result<u8> {
    let contents = Contents::Bytes(LIBRARY.to_vec());
    output::write(&[File { path: args.output.clone(), contents, executable: false }])?;
    Ok(DONE)
}
