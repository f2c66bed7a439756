// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `kernel/kernels.toml` says: which kernels are built, where they run, and what is replaced in them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use crate::failure::Failure;
use crate::qemu::Machine;
use crate::tools::{read, root};

/// The whole file.
#[derive(Debug, Deserialize)]
struct Manifest {
    /// The profile where none is named.
    profile: String,
    machine: Vec<Entry>,
}

/// A machine and its kernels.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(flatten)]
    platform: Platform,
    kernel: Vec<Build>,
}

/// A machine, and what all kernels for it have in common.
#[derive(Debug, Deserialize)]
pub struct Platform {
    /// What it is called here.
    pub name: String,
    /// `ARCH` for make.
    pub arch: String,
    /// `CROSS_COMPILE` for make; also the prefix of the compiler for our program.
    pub cross: String,
    /// Debian's suite and architecture of the shell in which the kernel's selftests run.
    pub shell: (String, String),
    /// `e_machine` of its ELF files.
    pub elf_machine: u16,
    /// What QEMU boots, relative to the kernel's tree.
    pub image: PathBuf,
    /// Where it runs.
    #[serde(flatten)]
    pub machine: Machine,
    /// The flavour of Debian's kernels for it.
    pub debian: String,
    /// Modules are loaded into Debian's kernel, else into one of ours.
    #[serde(default)]
    pub loads_into_debian: bool,
    /// What is replaced.
    pub swap: Vec<Swap>,
}

/// An object of the kernel, and what goes into its place.
#[derive(Debug, Deserialize)]
pub struct Swap {
    /// Relative to the kernel's tree.
    pub object: PathBuf,
    /// What is generated.
    pub trampolines: Vec<String>,
    /// Names that it exports, as `gen --export` takes them.
    pub export: Vec<String>,
}

/// A configuration of a kernel.
#[derive(Debug, Deserialize)]
struct Build {
    /// What follows the machine's name, if it is not the first of its profile.
    variant: Option<String>,
    profile: String,
    compiler: Option<String>,
    config: Vec<String>,
    jump: Option<String>,
    #[serde(default)]
    indirect: bool,
    #[serde(default)]
    without: Vec<(String, String)>,
    fault: Vec<(String, String)>,
    #[serde(default)]
    ours: Vec<(String, String)>,
}

/// A kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// What it is called here.
    pub name: String,
    /// The profile that it is generated for.
    pub profile: String,
    /// The version for which that profile speaks, as `6.12`.
    pub version: String,
    /// `CC` for make, where it is not GCC.
    pub compiler: Option<String>,
    /// The files of `lab/xtask/kernel` with its configuration, without `.config`.
    pub config: Vec<String>,
    /// Where `seq_read` goes on behind its site, where sites jump to direct trampolines.
    pub jump: Option<String>,
    /// `ftrace_stub` is called through a pointer, too: calls look for its type.
    pub indirect: bool,
    /// Files of its ftrace selftests that are left out, and why.
    pub without: Vec<(String, String)>,
    /// Faults: in words, and as `gen --fault` takes them; last those that only our modules notice.
    pub fault: Vec<(String, String)>,
    /// Where it runs.
    pub on: Arc<Platform>,
}

impl Kernel {
    /// Is it the one that is meant by its machine alone?
    pub fn first(&self) -> bool {
        self.name == self.on.name
    }
}

/// The kernels of `kernel/kernels.toml` for a profile; without one, for that which the file names.
pub fn kernels(profile: Option<&str>) -> Result<Vec<Kernel>, Failure> {
    let path = root().join("lab/xtask/kernel/kernels.toml");
    let manifest: Manifest = toml::from_str(&read(&path)?).map_err(|e| Failure::at(&path, e, "mend it"))?;
    let wanted = profile.unwrap_or(&manifest.profile);
    let facts: Vec<_> = arch::BACKENDS.iter().map(|backend| backend.facts()).collect();
    let found = profiles::find(wanted, &facts).map_err(|e| Failure::at(&path, e, "name a profile"))?;
    let version = found.kernels.last();
    let version = version.ok_or_else(|| Failure::at(&path, "its profile is for no kernel", "name one that is"))?;
    let mut kernels = Vec::new();
    for Entry { platform, kernel } in manifest.machine {
        let on = Arc::new(platform);
        kernels.extend(kernel.into_iter().filter(|build| build.profile == wanted).map(|build| Kernel {
            name: build.variant.map_or_else(|| on.name.clone(), |variant| format!("{}-{variant}", on.name)),
            profile: build.profile,
            version: (*version).to_owned(),
            compiler: build.compiler,
            config: build.config,
            jump: build.jump,
            indirect: build.indirect,
            without: build.without,
            fault: build.fault.into_iter().chain(build.ours).collect(),
            on: Arc::clone(&on),
        }));
    }
    if kernels.is_empty() {
        return Err(Failure::at(&path, format!("has no kernel for {wanted}"), "name a profile that has one there"));
    }
    Ok(kernels)
}

/// Take `--profile NAME` out of the arguments.
pub fn profile_in(args: &[String]) -> Result<(Option<&str>, Vec<&String>), Failure> {
    let Some(at) = args.iter().position(|arg| arg == "--profile") else {
        return Ok((None, args.iter().collect()));
    };
    let name =
        args.get(at + 1).ok_or_else(|| Failure::new("--profile", "of which kernel?", "give a profile's name"))?;
    Ok((Some(name), args.iter().enumerate().filter(|(i, _)| *i != at && *i != at + 1).map(|(_, arg)| arg).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_configuration_and_faults() {
        let place = root().join("lab/xtask/kernel");
        let mut machines = Vec::new();
        for profile in ["linux-6.12", "linux-7.3"] {
            let all = kernels(Some(profile)).unwrap();
            machines.push(all.iter().filter(|k| k.first()).map(|k| k.name.clone()).collect::<Vec<_>>());
            for kernel in all {
                assert!(kernel.config.iter().all(|name| place.join(format!("{name}.config")).exists()));
                assert!(kernel.fault.len() >= 3, "{}", kernel.name);
                let trampolines: Vec<&String> = kernel.on.swap.iter().flat_map(|s| &s.trampolines).collect();
                for (_, fault) in &kernel.fault {
                    assert!(trampolines.iter().any(|t| fault.starts_with(&format!("{t}:"))), "{fault}");
                }
            }
        }
        assert_eq!(machines, vec![vec!["riscv64", "arm64", "x86_64"]; 2]);
    }

    #[test]
    fn an_unknown_profile_is_refused() {
        for name in ["linux-2.4", "bare"] {
            assert!(kernels(Some(name)).is_err(), "{name}");
        }
    }
}
