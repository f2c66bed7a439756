//! Trampolines that others wrote: the arguments that name their files and what they promise.

use std::path::PathBuf;

use clap::Args;
use codegen::error::{Error, Result};
use emu_tests::{Dump, Foreign, Suite};
use tramptool::args::ProfileArg;
use tramptool::settings::parse_u64;

/// Where trampolines are that are not generated.
#[derive(Args)]
pub struct ForeignArgs {
    /// Take the trampolines of these objects instead of generated ones
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "contract", conflicts_with = "set")]
    object: Vec<PathBuf>,
    /// Take a trampoline in a dump of memory: its bytes, without a file format
    #[arg(long, value_name = "FILE", requires_all = ["contract", "base", "entry"], conflicts_with_all = ["object", "set"])]
    raw: Option<PathBuf>,
    /// The address of the dump's first byte
    #[arg(long, value_name = "ADDR", value_parser = parse_u64, requires = "raw")]
    base: Option<u64>,
    /// The address in the dump where the contract's trampoline begins
    #[arg(long, value_name = "ADDR", value_parser = parse_u64, requires = "raw")]
    entry: Option<u64>,
    /// What they promise: the name of a contract that comes with the tool, or a file. If it names a profile, that holds
    #[arg(long, value_name = "NAME|FILE")]
    contract: Option<String>,
}

impl ForeignArgs {
    /// The files with their contract, put before the judge; `None` if none are given. `arch` is an architecture's name,
    /// or `all`.
    ///
    /// # Errors
    /// A file that cannot be read, or does not fit its contract.
    pub fn suites(&self, arch: &str, profile: &ProfileArg) -> Result<Option<Vec<Suite>>> {
        let Some(contract) = &self.contract else { return Ok(None) };
        let files: Vec<&PathBuf> = self.object.iter().chain(&self.raw).collect();
        if files.is_empty() {
            return Err(Error::new("--contract says what a file promises; give --object FILE or --raw FILE"));
        }
        let known = tramptool::contracts::CONTRACTS.iter().find(|(name, _)| *name == contract);
        let text = match known {
            Some((_, text)) => (*text).to_owned(),
            None => std::fs::read_to_string(contract).map_err(|e| {
                let known: Vec<&str> = tramptool::contracts::CONTRACTS.iter().map(|(name, _)| *name).collect();
                Error::new(format!("contract {contract}: {e}; valid: a file, or one of {}", known.join(", ")))
            })?,
        };
        let mut objects = Vec::new();
        for path in files {
            let name = path.display().to_string();
            let bytes = std::fs::read(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
            objects.push((name, bytes));
        }
        let arch = match arch {
            "all" => None,
            name => Some(tramptool::backend(name)?.facts().name),
        };
        let dump = self.base.zip(self.entry).map(|(base, entry)| Dump { base, entry });
        let profile = profile.of_contract(&text).map_err(|e| e.at(contract))?;
        let foreign = Foreign { contract_name: contract, contract: &text, objects, arch, profile, dump };
        emu_tests::foreign_suites(&foreign, tramptool::BACKENDS).map(Some)
    }

    /// As they are given, each after a space.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.object.iter().for_each(|path| text += &format!(" --object {}", path.display()));
        self.raw.iter().for_each(|path| text += &format!(" --raw {}", path.display()));
        self.base.iter().for_each(|base| text += &format!(" --base {base:#x}"));
        self.entry.iter().for_each(|entry| text += &format!(" --entry {entry:#x}"));
        self.contract.iter().for_each(|contract| text += &format!(" --contract {contract}"));
        text
    }
}
