//! The programs of engines: where they are, their versions, and how each is started.

use std::env;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use codegen::arch::bare::{Bare, Bochs, Program, Qemu};
use codegen::words::error::{Error, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::FdFlags;

/// What QEMU loads, what is loaded before QEMU without that, and what before Bochs.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));
const WALL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wall.so"));
const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));
/// The directories with programs.
const QEMU: &str = "TRAMPTOOL_QEMU";
const BOCHS: &str = "TRAMPTOOL_BOCHS";
/// Bytes in place of Bochs's firmware, the last below 4 GiB, and of that for a display.
const ROM: usize = 1 << 16;
const DISPLAY_ROM: usize = 512;

/// What a machine is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// To run code.
    Free,
    /// The same, where what protects branches and returns is on.
    Enforced,
    /// To run code, of which the program's stub for GDB tells.
    Stepped,
}

/// The memory that the process shares with ours: messages, and the guest's.
pub(super) struct Files {
    /// Messages.
    pub message: OwnedFd,
    /// The guest's memory.
    pub ram: OwnedFd,
}

/// The program: in the directory that the environment names, or anywhere.
fn path(program: &Program) -> PathBuf {
    let (name, dir) = match program {
        Program::Qemu(qemu) => (qemu.program, QEMU),
        Program::Bochs(_) => ("bochs", BOCHS),
    };
    env::var_os(dir).map_or_else(|| PathBuf::from(name), |dir| PathBuf::from(dir).join(name))
}

/// Why the program cannot be had, and what helps.
pub(super) fn missing(program: &Program, why: &str) -> Error {
    let (wanted, dir) = match program {
        Program::Qemu(_) => ("QEMU 11.1 or later with plugins", QEMU),
        Program::Bochs(_) => ("Bochs 2.7 or later with plugins", BOCHS),
    };
    Error::new(format!(
        "{}: {why}; {wanted} is wanted: `cargo xtask engines` fetches Debian's, and {dir} is to name its directory",
        path(program).display()
    ))
}

/// The version of the program.
///
/// # Errors
/// It is not there.
pub(crate) fn version(program: &Program) -> Result<String> {
    let (asks, before) = match program {
        Program::Qemu(_) => ("--version", "version"),
        // It has none for its version alone.
        Program::Bochs(_) => ("--help", "Emulator"),
    };
    let run = Command::new(path(program)).arg(asks).stdin(Stdio::null()).output();
    let run = run.map_err(|e| missing(program, &e.to_string()))?;
    let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    let version = said.split_whitespace().skip_while(|word| *word != before).nth(1);
    version.map(str::to_owned).ok_or_else(|| missing(program, "does not say its version"))
}

/// Start the process, which inherits these files.
///
/// # Errors
/// The program is not there, or the system has no room for what it is told.
pub(super) fn spawn(bare: &'static Bare, mode: Mode, files: &Files) -> Result<Child> {
    let (mut command, own) = match &bare.program {
        Program::Qemu(qemu) => of_qemu(bare, qemu, mode, files)?,
        Program::Bochs(bochs) => of_bochs(bare, bochs, files)?,
    };
    let stdio = || if mode == Mode::Stepped { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdio()).stdout(stdio()).stderr(Stdio::piped());
    let inherit = |flags: FdFlags| {
        let failed = |e: rustix::io::Errno| Error::new(format!("emulator: files of an engine: {e}"));
        let mut all = own.iter().chain([&files.message, &files.ram]);
        all.try_for_each(|file| rustix::io::fcntl_setfd(file, flags).map_err(failed))
    };
    inherit(FdFlags::empty())?;
    let child = command.spawn().map_err(|e| missing(&bare.program, &e.to_string()));
    inherit(FdFlags::CLOEXEC)?;
    child
}

/// The path of a file that the process inherits.
fn inherited(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A file with these bytes, of no directory.
fn file_of(name: &str, mut bytes: &[u8]) -> Result<OwnedFd> {
    let failed = |e: rustix::io::Errno| Error::new(format!("emulator: {name}: {e}"));
    let file = memfd_create(name, MemfdFlags::CLOEXEC).map_err(failed)?;
    while !bytes.is_empty() {
        let written = rustix::io::write(&file, bytes).map_err(failed)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(file)
}

/// QEMU, with the plugin, or with its stub for GDB at stdin and stdout.
fn of_qemu(bare: &Bare, qemu: &Qemu, mode: Mode, files: &Files) -> Result<(Command, Vec<OwnedFd>)> {
    let loaded = match mode {
        Mode::Stepped => file_of("tramptool-wall", WALL)?,
        Mode::Free | Mode::Enforced => file_of("tramptool-plugin", PLUGIN)?,
    };
    let [message, ram, library] = [&files.message, &files.ram, &loaded].map(inherited);
    let mut command = Command::new(path(&bare.program));
    command.args(qemu.arguments).args(["-machine", "memory-backend=ram", "-m"]).arg(format!("{}M", bare.memory >> 20));
    command.arg("-object").arg(format!("memory-backend-file,id=ram,size={},mem-path={ram},share=on", bare.memory));
    command.args(["-nodefaults", "-net", "none", "-display", "none", "-monitor", "none", "-serial", "none"]);
    match mode {
        Mode::Stepped => {
            command.args(["-S", "-gdb", "stdio"]).env("LD_PRELOAD", library).env("TRAMPTOOL_SHARED", message);
        }
        Mode::Free | Mode::Enforced => {
            command.arg("-plugin").arg(format!("{library},shared={message}"));
        }
    }
    if !qemu.starts_there {
        command.arg("-device").arg(format!("loader,addr={:#x},cpu-num=0", bare.start));
    }
    Ok((command, vec![loaded]))
}

/// Bochs, behind `preload.c`. Its debugger, which Debian's has, is told to let it run.
fn of_bochs(bare: &Bare, bochs: &Bochs, files: &Files) -> Result<(Command, Vec<OwnedFd>)> {
    let mut rom = vec![0; ROM];
    for (at, code) in bochs.rom {
        rom.iter_mut().skip(*at as usize).zip(code.bytes()).for_each(|(to, byte)| *to = byte);
    }
    let rom = file_of("tramptool-rom", &rom)?;
    let display_rom = file_of("tramptool-display-rom", &[0; DISPLAY_ROM])?;
    let preload = file_of("tramptool-preload", PRELOAD)?;
    let commands = file_of("tramptool-commands", b"c\n")?;
    let config = format!(
        "plugin_ctrl: unmapped=1, biosdev=0, speaker=0, extfpuirq=0, parallel=0, serial=0, iodebug=0, gameport=0\n\
         config_interface: textconfig\n\
         display_library: rfb, options=\"timeout=0\"\n\
         memory: guest={0}, host={0}\n\
         romimage: file={1}\n\
         vgaromimage: file={2}\n\
         cpu: model={3}, ips=100000000, reset_on_triple_fault=0\n\
         clock: sync=none\n\
         port_e9_hack: enabled=1\n\
         panic: action=fatal\n\
         error: action=ignore\n\
         info: action=ignore\n\
         log: /dev/stderr\n",
        (bare.ram + bare.memory) >> 20,
        inherited(&rom),
        inherited(&display_rom),
        bochs.model
    );
    let config = file_of("tramptool-config", config.as_bytes())?;
    let mut command = Command::new(path(&bare.program));
    command.args(["-q", "-f", &inherited(&config), "-rc", &inherited(&commands)]);
    command.env("LD_PRELOAD", inherited(&preload)).env("TRAMPTOOL_SHARED", inherited(&files.message));
    command.env("TRAMPTOOL_RAM", inherited(&files.ram)).env("TRAMPTOOL_RAM_SIZE", bare.memory.to_string());
    Ok((command, vec![rom, display_rom, preload, commands, config]))
}
