//! Trampolines that others wrote: the arguments that name their files and what they promise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use codegen::words::error::{Error, Result};
use emu_tests::{Configuration, Dump, Foreign, Suite};
use tool::report::{ContractFile, lines_of};
use tool::settings::parse_u64;

use super::args::{BuildTree, ProfileArg};
use super::input;

/// Where trampolines are that are not generated.
#[derive(Args)]
pub struct ForeignArgs {
    /// Take the trampolines from these objects instead of generating them
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "contract", conflicts_with = "set")]
    object: Vec<PathBuf>,
    /// Put every alternative of the objects (`.altinstructions`) in its place first, as a kernel does when it boots
    #[arg(long, requires = "object")]
    alternatives: bool,
    /// Take the trampolines from a dump of memory: raw bytes
    #[arg(long, value_name = "FILE", requires_all = ["contract", "base", "entry"], conflicts_with_all = ["object", "set"])]
    raw: Option<PathBuf>,
    /// The address of the dump's first byte
    #[arg(long, value_name = "ADDR", value_parser = parse_u64, requires = "raw")]
    base: Option<u64>,
    /// The address of the contract's trampoline in the dump; SYMBOL= if the contract has several
    #[arg(long, value_name = "[SYMBOL=]ADDR", value_parser = parse_entry, requires = "raw")]
    entry: Vec<(String, u64)>,
    /// The address at which the code in the dump ends [default: that of the dump]
    #[arg(long, value_name = "ADDR", value_parser = parse_u64, requires = "raw")]
    end: Option<u64>,
    /// Their contract: one that comes with the tool, or a file. A profile that it names overrides the default
    #[arg(long, value_name = "NAME|FILE")]
    contract: Option<String>,
    /// Take the trampolines of a kernel from its build tree, as far as they are built; its configuration decides their contract
    #[arg(long, value_name = "DIR", conflicts_with_all = ["object", "raw", "contract", "set"])]
    kernel_build: Option<PathBuf>,
}

/// An address, and before `=` the symbol of what is there.
fn parse_entry(text: &str) -> std::result::Result<(String, u64), String> {
    let (name, address) = text.split_once('=').unwrap_or(("", text));
    parse_u64(address).map(|address| (name.to_owned(), address)).map_err(|e| e.to_string())
}

/// What files promise.
pub struct Contract {
    /// As it was given.
    name: String,
    /// The file to look at: the contract, or the object if the contract comes with the tool.
    file: String,
    /// It is the user's own file.
    own: bool,
    text: String,
    /// Of a kernel's build tree: what it has to judge.
    build: Option<Build>,
}

/// What a kernel's build tree has to judge.
struct Build {
    config: Configuration,
    objects: Vec<PathBuf>,
}

impl Contract {
    /// Where the promises of the suite with these options are written.
    pub fn of(&self, options: &str) -> ContractFile {
        let lines = if self.own { lines_of(&self.text) } else { BTreeMap::new() };
        ContractFile { options: options.to_owned(), file: self.file.clone(), lines }
    }
}

/// Refuse the name of a file where that of a trampoline is expected.
///
/// # Errors
/// There is one.
pub fn no_files(names: &[String]) -> Result<()> {
    let is_file = |name: &&String| name.ends_with(".o") || (name.contains(['.', '/']) && Path::new(name).is_file());
    match names.iter().find(is_file) {
        None => Ok(()),
        Some(name) => Err(Error::new(format!(
            "'{name}' is a file's name and no trampoline's; valid: --object {name} --contract NAME|FILE"
        ))),
    }
}

/// A contract that comes with the tool.
fn shipped(name: &str) -> Option<&'static str> {
    tool::contracts::CONTRACTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The text of a contract: one that comes with the tool, or a file.
///
/// # Errors
/// It is neither.
pub fn contract_text(contract: &str) -> Result<String> {
    match shipped(contract) {
        Some(text) => Ok(text.to_owned()),
        None => input::text(Path::new(contract)).map_err(|e| {
            Error::new(format!("contract {contract}: {e}; valid: a file, or a name of `tramptool list --contracts`"))
        }),
    }
}

impl ForeignArgs {
    /// The contract; `None` if none is given.
    ///
    /// # Errors
    /// It cannot be read, or no file is given of which it speaks.
    pub fn contract(&self, profile: &ProfileArg) -> Result<Option<Contract>> {
        if let Some(dir) = &self.kernel_build {
            return of_build(dir, profile).map(Some);
        }
        let Some(contract) = &self.contract else { return Ok(None) };
        let Some(file) = self.object.iter().chain(&self.raw).next() else {
            return Err(Error::new("--contract says what a file promises; give --object FILE or --raw FILE"));
        };
        let own = shipped(contract).is_none();
        let file = if own { contract.clone() } else { file.display().to_string() };
        Ok(Some(Contract { name: contract.clone(), file, own, text: contract_text(contract)?, build: None }))
    }

    /// The files with their contract, put before the judge; `None` if none are given. `arch` is an architecture's name,
    /// or `all`.
    ///
    /// # Errors
    /// A file that cannot be read, or does not fit its contract.
    pub fn suites(&self, contract: Option<&Contract>, arch: &str, profile: &ProfileArg) -> Result<Option<Vec<Suite>>> {
        let Some(contract) = contract else { return Ok(None) };
        let mut objects = Vec::new();
        let built = contract.build.iter().flat_map(|build| &build.objects);
        for path in self.object.iter().chain(&self.raw).chain(built) {
            let name = path.display().to_string();
            let bytes = input::bytes(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
            objects.push((name, bytes));
        }
        let arch = match arch {
            "all" => None,
            name => Some(tool::backend(name)?.facts().name),
        };
        let dump = self.base.filter(|_| self.raw.is_some());
        let dump = dump.map(|base| Dump { base, entries: self.entry.clone(), end: self.end, names: BTreeMap::new() });
        let profile = profile.of_contract(&contract.text).map_err(|e| e.at(&contract.name))?;
        let foreign = Foreign {
            arch,
            dump,
            alternatives: self.alternatives,
            config: contract.build.as_ref().map(|build| &build.config),
            again: self.kernel_build.is_some().then(|| self.words()),
            ..Foreign::new(&contract.name, &contract.text, objects, profile)
        };
        emu_tests::foreign_suites(&foreign, tool::BACKENDS).map(Some)
    }

    /// As they are given.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut push = |option: &str, value: String| words.extend([option.to_owned(), value]);
        self.object.iter().for_each(|path| push("--object", path.display().to_string()));
        self.raw.iter().for_each(|path| push("--raw", path.display().to_string()));
        self.base.iter().for_each(|base| push("--base", format!("{base:#x}")));
        self.entry.iter().for_each(|(name, at)| match name.as_str() {
            "" => push("--entry", format!("{at:#x}")),
            name => push("--entry", format!("{name}={at:#x}")),
        });
        self.end.iter().for_each(|end| push("--end", format!("{end:#x}")));
        self.contract.iter().for_each(|contract| push("--contract", contract.clone()));
        self.kernel_build.iter().for_each(|dir| push("--kernel-build", dir.display().to_string()));
        words.extend(self.alternatives.then(|| "--alternatives".to_owned()));
        words
    }
}

/// The contract for the trampolines of a kernel's build tree.
fn of_build(dir: &Path, profile: &ProfileArg) -> Result<Contract> {
    let tree = BuildTree::read(dir)?;
    let contract = tool::contracts::for_kernel(&tree.tree(), tree.profile(profile)?)?;
    let there = contract.objects.iter().map(|object| dir.join(object)).filter(|object| object.exists());
    let objects: Vec<PathBuf> = there.collect();
    let Some(first) = objects.first() else {
        let (make, dir) = (contract.objects.join(" "), dir.display());
        return Err(Error::new(format!("{dir} has no objects of trampolines yet; valid: after `make {make}` there")));
    };
    let (file, text) = (first.display().to_string(), contract_text(&contract.name)?);
    let build = Some(Build { config: Configuration::of(&tree.config), objects });
    Ok(Contract { name: contract.name, file, own: false, text, build })
}
