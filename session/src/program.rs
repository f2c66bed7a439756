//! The program that is run under trace.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use codegen::words::error::{Error, Result};
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

/// The variable by which the library finds this process.
pub const SOCKET: &str = "TRAMPTOOL_TRACE_SOCKET";

/// The program to run.
pub struct Program {
    /// The file.
    pub path: PathBuf,
    command: Vec<OsString>,
}

/// Why a program is not run.
#[derive(Debug)]
pub enum Refused {
    /// The program does not exist.
    NotFound(Error),
    /// The program exists, but cannot be run.
    NotRun(Error),
    /// The program could be run, but not traced.
    NotTraced(Error),
}

impl Program {
    /// Find a program as a shell does.
    ///
    /// # Errors
    /// It is not there, or may not be executed, or nothing can be loaded into it.
    pub fn find(command: &[OsString], machine: &dyn Fn(u16) -> bool) -> std::result::Result<Program, Refused> {
        let Some(name) = command.first() else {
            return Err(Refused::NotFound(Error::new("no program; valid: tramptool trace -- PROGRAM ARGS")));
        };
        let path = search(name).ok_or_else(|| {
            Refused::NotFound(Error::new(format!(
                "{}: no such program; valid: a path, or a name in PATH",
                name.display()
            )))
        })?;
        let meta = fs::metadata(&path).map_err(|e| Refused::NotRun(Error::new(format!("{}: {e}", path.display()))))?;
        let mode = meta.permissions().mode();
        if !meta.is_file() || mode & 0o111 == 0 {
            return Err(Refused::NotRun(Error::new(format!("{}: not an executable file", path.display()))));
        }
        let not_traced = |what: &str| Refused::NotTraced(Error::new(format!("{}: {what}", path.display())));
        if mode & 0o6000 != 0 {
            return Err(not_traced("runs with other rights (setuid or setgid), so nothing may be loaded into it"));
        }
        match loads(&path, machine) {
            Ok(()) => Ok(Program { command: command.to_vec(), path }),
            Err(why) => Err(not_traced(why)),
        }
    }

    /// Start it, with the library loaded into it and into what it starts.
    ///
    /// # Errors
    /// The system does not start it.
    pub fn start(&self, library: &Path, socket: &str, emulator: &[OsString]) -> Result<Child> {
        let failed = |e: std::io::Error| Error::new(format!("{}: {e}", self.path.display()));
        let preloaded = prepended(library, env::var_os("LD_PRELOAD").as_deref());
        let mut command;
        if let [under, args @ ..] = emulator {
            // It gives these to the program, and does not load the library itself.
            let mut set = OsString::from("LD_PRELOAD=");
            set.push(&preloaded);
            set.push(format!(",{SOCKET}={socket}"));
            command = Command::new(under);
            command.args(args).arg(&self.path).env("QEMU_SET_ENV", set);
        } else {
            command = Command::new(&self.path);
            if let Some(name) = self.command.first() {
                std::os::unix::process::CommandExt::arg0(&mut command, name);
            }
            command.env("LD_PRELOAD", preloaded).env(SOCKET, socket);
        }
        command.args(self.command.iter().skip(1)).spawn().map_err(failed)
    }
}

fn prepended(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|o| !o.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

fn search(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|p| p.exists());
    }
    let may_run = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(may_run)
}

/// Does the system's loader load a library into this program? A script has an interpreter, which is looked at when it begins.
fn loads(path: &Path, machine: &dyn Fn(u16) -> bool) -> std::result::Result<(), &'static str> {
    const HEADERS: u64 = 1 << 16;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADERS).read_to_end(&mut bytes));
    if read.is_err() {
        return Err("cannot be read, so it is not known what can be traced; run it as it is");
    }
    if bytes.starts_with(b"#!") {
        return Ok(());
    }
    if bytes.get(..5) == Some(b"\x7fELF\x01") {
        return Err("a 32-bit program; valid: one of 64 bits");
    }
    let Ok(header) = elf::FileHeader64::<object::Endianness>::parse(&*bytes) else {
        return Err("neither a program in ELF nor a script");
    };
    let Ok(endian) = header.endian() else { return Err("neither little nor big endian") };
    if !machine(header.e_machine(endian).0) {
        return Err("for another machine; valid: a program of this one, or --emulator");
    }
    let Ok(segments) = header.program_headers(endian, &*bytes) else { return Err("its program headers are damaged") };
    match segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP) {
        true => Ok(()),
        false => Err("linked statically, so no loader takes the library; link it dynamically to trace it"),
    }
}

/// What the tool ends with after the program has ended: its exit code, or as if the same signal had ended us.
pub fn code(status: ExitStatus) -> std::result::Result<u8, i32> {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(code as u8),
        (None, Some(signal)) => Err(signal),
        (None, None) => Ok(1),
    }
}
