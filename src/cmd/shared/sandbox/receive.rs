//! The process that writes the report of one that has walls around it. It runs no code of others.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use codegen::words::error::{Error, Result};
use codegen::words::input;

use crate::cmd::shared::exit::{DONE, TROUBLE};
use crate::cmd::shared::output::{self, Contents, File};

/// Arguments of the process.
#[derive(Args)]
pub struct ReceiveArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    output: PathBuf,
}

/// Be that process: write what comes on stdin.
///
/// # Errors
/// stdin is no socket of [`start`]'s.
pub fn receive(args: &ReceiveArgs) -> Result<u8> {
    let refused =
        |e: std::io::Error| Error::new(format!("stdin: {e}; valid: a command with -o, which starts this one"));
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(refused)?);
    let mut report = input::all(&socket).map_err(refused)?;
    let Some((length, _)) = report.split_first_chunk().filter(|(n, rest)| u64::from_le_bytes(**n) == rest.len() as u64)
    else {
        return Ok(TROUBLE);
    };
    let contents = Contents::Bytes(report.split_off(length.len()));
    match output::write(&[File { path: args.output.clone(), contents, executable: false }]) {
        Ok(()) => Ok(DONE),
        Err(e) => socket.write_all(e.to_string().as_bytes()).map_err(refused).map(|()| TROUBLE),
    }
}
