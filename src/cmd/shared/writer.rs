//! The process that writes the report of one that has walls around it, as that one knows it.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, PoisonError};

use codegen::words::error::{Error, Result};
use codegen::words::input;

/// The subcommand, whose name nobody types.
pub const COMMAND: &str = "receive";

/// Where the report of this process goes.
static WRITER: OnceLock<Mutex<Writer>> = OnceLock::new();

struct Writer {
    process: Child,
    socket: UnixStream,
}

/// Start it. Returns the descriptor of the socket to it.
///
/// # Errors
/// No process can be started.
pub fn start(output: &Path) -> Result<RawFd> {
    let refused =
        |e: std::io::Error| Error::new(format!("no process to write {}: {e}; valid: --sandbox off", output.display()));
    let (socket, others) = UnixStream::pair().map_err(refused)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(COMMAND).arg("--").arg(output).stdin(OwnedFd::from(others));
    let process = command.spawn().map_err(refused)?;
    let fd = socket.as_raw_fd();
    // A process runs one command.
    let _ = WRITER.set(Mutex::new(Writer { process, socket }));
    Ok(fd)
}

/// Have the report written, if this process does not do so itself.
pub fn hand_over(report: &[u8]) -> Option<Result<()>> {
    let mut writer = WRITER.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = writer.answer(report);
    Some(match answer {
        Ok(words) if words.is_empty() => Ok(()),
        Ok(words) => Err(Error::new(words)),
        Err(e) => Err(Error::new(format!("who writes the report has gone: {e}; valid: --sandbox off"))),
    })
}

impl Writer {
    /// What keeps it from writing the report.
    fn answer(&mut self, report: &[u8]) -> std::io::Result<String> {
        // The length comes first: a report that breaks off is not written.
        self.socket.write_all(&(report.len() as u64).to_le_bytes())?;
        self.socket.write_all(report)?;
        self.socket.shutdown(Shutdown::Write)?;
        let words = String::from_utf8_lossy(&input::all(&self.socket)?).into_owned();
        match self.process.wait()?.success() {
            false if words.is_empty() => Err(std::io::Error::other("it failed")),
            _ => Ok(words),
        }
    }
}
