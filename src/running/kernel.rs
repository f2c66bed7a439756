//! What is read of a running kernel.

use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::error::{Error, Result};

use super::memory::Memory;
use super::symbols::{Symbol, Symbols};
use super::types::Types;

/// Bytes of a trampoline: the kernel writes at most a page (kernel kernel/bpf/trampoline.c).
const MOST: u64 = 4096;

/// The name of each copy of `ftrace_caller` or `ftrace_regs_caller`.
pub const FTRACE: &str = "ftrace_trampoline";

/// What to read.
pub struct Kernel {
    /// Its memory.
    pub memory: Memory,
    /// Its symbols.
    pub symbols: Symbols,
    /// Its types; without them, nothing is known of prototypes.
    pub types: Option<Types>,
    /// The arguments that name these again.
    pub words: Vec<String>,
}

impl Kernel {
    /// The architecture of a kernel.
    pub fn backend(&self, backends: &[&'static dyn Backend]) -> Result<&'static dyn Backend> {
        let machine = self.memory.machine();
        let backend = backends.iter().copied().find(|backend| backend.facts().machine == machine);
        backend.ok_or_else(|| Error::new(format!("the kernel's memory is of ELF machine {machine}")))
    }

    /// The profile for the kernel's version, or for the newest one before it.
    pub fn profile(&self) -> Result<&'static Profile> {
        let number = |version: &str| -> Option<(u32, u32)> {
            let mut parts = version.split(|c: char| !c.is_ascii_digit());
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        let release = self.memory.release().ok_or_else(|| {
            Error::new(
                "the kernel's memory has no note VMCOREINFO with OSRELEASE; valid: /proc/kcore, or a file made of it",
            )
        })?;
        let ours = number(release).ok_or_else(|| Error::new(format!("OSRELEASE={release} is no version")))?;
        let mut known = Vec::new();
        for name in profiles::names() {
            let profile = tramptool::internal::profile(name)?;
            known.extend(profile.kernels.iter().filter_map(|version| Some((number(version)?, profile))));
        }
        let before = known.iter().filter(|(version, _)| *version <= ours).max_by_key(|(version, _)| *version);
        let oldest = known.iter().map(|((major, minor), _)| format!("{major}.{minor}")).min().unwrap_or_default();
        before.map(|(_, profile)| *profile).ok_or_else(|| Error::new(format!("Linux {release} is older than {oldest}")))
    }

    /// The 8 bytes at an address.
    pub fn word(&self, at: u64) -> Result<u64> {
        let bytes = self.memory.read(at, 8)?;
        let whole = bytes.try_into().map_err(|_| Error::new(format!("the file ends inside of the word at {at:#x}")))?;
        Ok(u64::from_le_bytes(whole))
    }

    /// Up to a page of code that begins with a symbol, and ends where the next one begins.
    pub fn code(&self, symbol: &Symbol) -> Result<Vec<u8>> {
        let room = self.symbols.next(symbol.address).map_or(MOST, |next| (next - symbol.address).min(MOST));
        self.memory.read(symbol.address, room)
    }
}
