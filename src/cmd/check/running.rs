//! The trampolines that a kernel wrote, for `check`.

use std::path::{Path, PathBuf};

use clap::Args;
use codegen::words::error::{Error, Result};
use emu_tests::{Missing, Suite};
use tool::running::{Found, Kernel, Memory, Symbols, Types, find};

use crate::cmd::shared::input;

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
        self.kernel()?.map(|kernel| found(&kernel)).transpose()
    }

    /// The kernel whose own trampolines are asked for.
    ///
    /// # Errors
    /// Its memory, symbols or types cannot be read.
    fn kernel(&self) -> Result<Option<Kernel>> {
        let proc = [Path::new("/proc/kcore"), Path::new("/proc/kallsyms"), Path::new("/sys/kernel/btf/vmlinux")];
        let (kcore, kallsyms, btf) = match (&self.kcore, &self.kallsyms) {
            (Some(kcore), Some(kallsyms)) => (kcore.as_path(), kallsyms.as_path(), self.btf.as_deref()),
            _ if self.running => (proc[0], proc[1], Some(proc[2]).filter(|btf| btf.exists())),
            _ => return Ok(None),
        };
        let place = |path: &Path, e: &dyn std::fmt::Display| Error::new(format!("{}: {e}", path.display()));
        let symbols = input::text(kallsyms).map_err(|e| place(kallsyms, &e))?;
        let types = btf.map(|btf| {
            let bytes = input::bytes(btf).map_err(|e| place(btf, &e))?;
            Types::parse(bytes).map_err(|e| e.at(btf.display()))
        });
        let given = [("--kcore", Some(kcore)), ("--kallsyms", Some(kallsyms)), ("--btf", btf)];
        let word =
            |(option, path): &(&str, Option<&Path>)| Some([(*option).to_owned(), path.as_ref()?.display().to_string()]);
        let words = given.iter().filter(|_| !self.running).filter_map(word).flatten();
        Ok(Some(Kernel {
            memory: Memory::open(kcore).map_err(|e| match self.running {
                true => Error::new(format!("{e}; valid: as root, on a kernel with CONFIG_PROC_KCORE")),
                false => e,
            })?,
            symbols: Symbols::parse(&symbols).map_err(|e| e.at(kallsyms.display()))?,
            types: types.transpose()?,
            words: words.chain(self.running.then(|| "--running".to_owned())).collect(),
        }))
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
