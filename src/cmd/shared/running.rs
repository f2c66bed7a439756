//! The memory of a kernel, by the arguments that name it.

use std::path::Path;

use codegen::words::error::{Error, Result};
use tool::running::{Kernel, Memory, Symbols, Types};

use super::input;

/// The files of a kernel.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// Its memory.
    pub kcore: &'a Path,
    /// Its symbols.
    pub kallsyms: &'a Path,
    /// Its types.
    pub btf: Option<&'a Path>,
}

/// The kernel whose files were given, or with `running` the one that runs here; `None` if neither was asked for.
///
/// # Errors
/// Its memory, symbols or types cannot be read.
pub fn kernel(given: Option<Files>, running: bool) -> Result<Option<Kernel>> {
    let btf = Path::new("/sys/kernel/btf/vmlinux");
    let own = || Files {
        kcore: Path::new("/proc/kcore"),
        kallsyms: Path::new("/proc/kallsyms"),
        btf: Some(btf).filter(|btf| btf.exists()),
    };
    let Some(Files { kcore, kallsyms, btf }) = given.or_else(|| running.then(own)) else { return Ok(None) };
    let place = |path: &Path, e: &dyn std::fmt::Display| Error::new(format!("{}: {e}", path.display()));
    let symbols = input::text(kallsyms).map_err(|e| place(kallsyms, &e))?;
    let types = btf.map(|btf| {
        let bytes = input::bytes(btf).map_err(|e| place(btf, &e))?;
        Types::parse(bytes).map_err(|e| e.at(btf.display()))
    });
    let all = [("--kcore", Some(kcore)), ("--kallsyms", Some(kallsyms)), ("--btf", btf)];
    let word =
        |(option, path): &(&str, Option<&Path>)| Some([(*option).to_owned(), path.as_ref()?.display().to_string()]);
    let words = all.iter().filter(|_| !running).filter_map(word).flatten();
    Ok(Some(Kernel {
        memory: Memory::open(kcore).map_err(|e| match running {
            true => Error::new(format!("{e}; valid: as root, on a kernel with CONFIG_PROC_KCORE")),
            false => e,
        })?,
        symbols: Symbols::parse(&symbols).map_err(|e| e.at(kallsyms.display()))?,
        types: types.transpose()?,
        words: words.chain(running.then(|| "--running".to_owned())).collect(),
    }))
}
