//! The library that is loaded into the traced process.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use codegen::words::error::{Error, Result};

/// The library for the machine that this is compiled for.
pub static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtramptool_trace.so"));

/// The library as a file that a process can load.
pub struct Agent {
    path: PathBuf,
    _file: Option<OwnedFd>,
}

impl Agent {
    /// A library in a file: for programs of another machine under an emulator.
    ///
    /// # Errors
    /// There is no such file.
    pub fn of(path: PathBuf) -> Result<Agent> {
        match fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
            // A name without a directory is looked for elsewhere.
            true => Ok(Agent { path: std::path::absolute(&path).unwrap_or(path), _file: None }),
            false => Err(Error::new(format!(
                "{}: no such file; valid: session/preload/preload.c, compiled as a shared library",
                path.display()
            ))),
        }
    }

    /// The one for this machine, as a file in memory, which needs no directory to write to.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new() -> Result<Agent> {
        let failed = |e: std::io::Error| Error::new(format!("the library for the program: {e}"));
        // Whoever executes something else keeps it: its processes load it by this name.
        let file = rustix::fs::memfd_create("libtramptool_trace.so", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|e| failed(e.into()))?);
        (&file).write_all(LIBRARY).map_err(failed)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        Ok(Agent { path, _file: Some(file.into()) })
    }

    /// The path by which processes load it.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }
}
