//! The trampolines that a kernel wrote, for `check`.

use std::path::PathBuf;

use clap::Args;
use codegen::words::error::{Error, Result};
use emu_tests::{Missing, Suite};
use tool::running::{Found, Kernel, find};

use crate::cmd::shared::running::{Files, kernel};

/// Whose memory is searched.
#[derive(Args)]
pub struct RunningArgs {
    /// Take the trampolines that a kernel wrote from its memory: /proc/kcore, or an ELF core file made of it
    #[arg(long, value_name = "FILE", requires = "kallsyms", conflicts_with_all = ["object", "raw", "contract", "set", "running"])]
    kcore: Option<PathBuf>,
    /// The symbols of that kernel: a copy of its /proc/kallsyms that shows addresses
    #[arg(long, value_name = "FILE", requires = "kcore")]
    kallsyms: Option<PathBuf>,
    /// The types of that kernel: a copy of its /sys/kernel/btf/vmlinux
    #[arg(long, value_name = "FILE", requires = "kcore")]
    btf: Option<PathBuf>,
    /// The same for the kernel that runs here: root can read its memory. Nothing is written
    #[arg(long, conflicts_with_all = ["object", "raw", "contract", "set"])]
    running: bool,
}

impl RunningArgs {
    /// The trampolines of the kernel that is asked for.
    ///
    /// # Errors
    /// Its files cannot be read, or have no trampoline that can be judged.
    pub fn suites(&self) -> Result<Option<Vec<Suite>>> {
        let files = self.kcore.as_deref().zip(self.kallsyms.as_deref());
        let files = files.map(|(kcore, kallsyms)| Files { kcore, kallsyms, btf: self.btf.as_deref() });
        kernel(files, self.running)?.map(|kernel| found(&kernel)).transpose()
    }
}

/// The trampolines that a kernel wrote. Those that cannot be judged are told with the first one that can.
fn found(kernel: &Kernel) -> Result<Vec<Suite>> {
    let found = find(kernel, tool::BACKENDS)?;
    if found.is_empty() {
        return Err(Error::new(
            "the kernel has no trampolines of its own: nothing is traced, or its symbols are not all given",
        ));
    }
    let (mut suites, mut missing) = (Vec::new(), Vec::new());
    for Found { name, judged } in found {
        match judged {
            Ok(suite) => suites.push(suite),
            Err(why) => missing.push((name, why)),
        }
    }
    if suites.is_empty() {
        let all = missing.iter().map(|(name, why)| format!("{name}: {why}"));
        return Err(Error::new(format!("no trampoline can be judged: {}", all.collect::<Vec<_>>().join("; "))));
    }
    if let Some(first) = suites.first_mut() {
        first.missing.extend(missing.into_iter().map(|(name, why)| Missing::unjudged(name, &why.to_string())));
    }
    Ok(suites)
}
