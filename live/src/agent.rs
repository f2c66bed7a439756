//! The library that is loaded into the traced process.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use codegen::words::error::{Error, Result};

/// For the machine that this is compiled for.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtramptool_trace.so"));

/// Names another library, for programs of another machine under an emulator.
pub const VARIABLE: &str = "TRAMPTOOL_TRACE_LIBRARY";

/// The library as a file that a process can load.
pub struct Agent {
    path: PathBuf,
    _file: Option<OwnedFd>,
}

impl Agent {
    /// Make it: the file that [`VARIABLE`] names, or a file in memory, which needs no directory to write to.
    ///
    /// # Errors
    /// The system gives no memory; the file that the variable names is not there.
    pub fn new() -> Result<Agent> {
        if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
            let meta = fs::metadata(&path);
            return match meta.is_ok_and(|m| m.is_file()) {
                true => Ok(Agent { path, _file: None }),
                false => Err(Error::new(format!("{VARIABLE}: {} is no file", path.display()))),
            };
        }
        let failed = |e: std::io::Error| Error::new(format!("the library for the program: {e}"));
        // Whoever executes something else keeps it: its processes load it by this name.
        let file = rustix::fs::memfd_create("libtramptool_trace.so", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|e| failed(e.into()))?);
        (&file).write_all(LIBRARY).map_err(failed)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Agent { path, _file: Some(file.into()) })
    }

    /// What processes load it by.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }
}
