//! `review`: what a patch of a trampoline changes, as a text for a mail or a pull request.

use std::path::{Path, PathBuf};

use clap::Args;
use codegen::ask::spec::Spec;
use codegen::words::error::Result;
use emu_tests::Foreign;
use tool::accepted::Baseline;
use tool::review::{Review, Side, text};
use tool::settings::parse_u64;
use tool::suite::contract_file;

use super::diff::how::Form;
use super::diff::sides::{Given, objects};
use super::shared::args::{ProfileArg, target_of_tree};
use super::shared::exit::{DIFFERS, DONE};
use super::shared::foreign::contract_text;
use super::shared::sandbox::SandboxArg;
use super::shared::ui::Ui;
use super::shared::values::one_of;
use super::shared::{input, output};

/// Arguments of `review`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReviewArgs {
    /// What was before: an object, a source, a directory of all objects that the contract speaks of, or REVISION:PATH of one
    #[arg(value_name = "OLD")]
    old: String,
    /// What is now
    #[arg(value_name = "NEW")]
    new: String,
    /// The contract of both: one that comes with the tool, or a file
    #[arg(long, value_name = "NAME|FILE", required_unless_present_all = ["before", "after"])]
    contract: Option<String>,
    /// The contract of OLD alone; or a configured kernel's build tree, for what is promised there
    #[arg(long = "old", value_name = "NAME|FILE|DIR")]
    before: Option<String>,
    /// The contract of NEW alone, or a build tree
    #[arg(long = "new", value_name = "NAME|FILE|DIR")]
    after: Option<String>,
    /// The architecture of sources, which do not say it
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    #[command(flatten)]
    profile: ProfileArg,
    #[command(flatten)]
    sandbox: SandboxArg,
    /// The seed of all random values, decimal or 0x...
    #[arg(long, value_name = "N", value_parser = parse_u64, default_value = "1")]
    seed: u64,
    /// Leave out differences that this file accepts, as `tramptool diff --baseline`; one that is gone fails
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// How the review is written
    #[arg(long, value_parser = one_of(Form::OF_A_TEXT), default_value = "human")]
    format: Form,
    /// Write the review to a file instead of stdout
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Both are judged by the contract. Where a patch changes on purpose what is promised, such as the layout of a frame, --old and \
--new give each side its own. The review says what does not hold any more, what holds now, and what is different without \
any contract. Then every fault that `tramptool mutate` knows is put into the instructions that are new or changed, and those are \
named that the checks notice and the kernel's own startup and KUnit tests do not: src/selftests.toml says what these look at. \
The text has 75 columns, as a mail has; --format markdown is for a pull request.

Exit code: 0 nothing is worse, 1 something that the contract promises or the baseline accepts is gone, 2 trouble.

Examples:
  tramptool review old new --contract linux-6.12-x86_64-orc
  tramptool review old new --old ../linux-before --new ../linux
  tramptool review HEAD~1:my.o my.o --contract my.toml --format markdown -o review.md";

/// Review.
///
/// # Errors
/// A side that is nothing, or does not fit the contract.
pub fn run(args: &ReviewArgs, ui: &Ui) -> Result<u8> {
    args.output.as_deref().map_or(Ok(()), output::probe)?;
    let given = Given { arch: args.arch.as_deref(), profile: None };
    let (old, mut new) = (sided(&args.old, given)?, sided(&args.new, given)?);
    let both = args.contract.as_deref();
    let by =
        [&args.before, &args.after].map(|own| Promises::of(own.as_deref().or(both).unwrap_or_default(), &args.profile));
    let [was, is] = by;
    let (was, is) = (was?, is?);
    let by = [&was.foreign(&args.profile)?, &is.foreign(&args.profile)?];
    let baseline = args.baseline.as_deref().inspect(|path| input::note(path)).map(Baseline::of_file).transpose()?;
    // What a build tree promises is in no file.
    new.in_files &= !Path::new(is.name).is_dir();
    let _threads = args.sandbox.enter(args.output.as_deref())?;
    let review = Review::of([&old, &new], by, args.seed, baseline)?;
    let text = match args.format {
        Form::Json => tool::report::json(&review)?,
        form => text(&review, form == Form::Markdown),
    };
    output::report(text, args.output.as_deref(), ui)?;
    Ok(if review.verdicts.is_worse() || !review.gone.is_empty() { DIFFERS } else { DONE })
}

/// What is promised of a side.
struct Promises<'a> {
    name: &'a str,
    contract: String,
}

impl Promises<'_> {
    /// A contract, or what is promised where a kernel is configured as in a build tree.
    fn of<'a>(name: &'a str, profile: &ProfileArg) -> Result<Promises<'a>> {
        let tree = Path::new(name);
        if !tree.is_dir() {
            return contract_text(name).map(|contract| Promises { name, contract });
        }
        let (backend, target) = target_of_tree(tree, profile)?;
        let specs: Vec<Spec> = target.convention.specs().collect();
        let contract = contract_file(backend, &specs, &backend.assemble(&specs, &target)?, &target)?;
        // A kernel has its trampolines in several objects.
        Ok(Promises { name, contract: format!("several-objects = true\n{contract}") })
    }

    fn foreign(&self, profile: &ProfileArg) -> Result<Foreign<'_>> {
        foreign(self.name, &self.contract, profile)
    }
}

/// The objects of a side.
///
/// # Errors
/// There are none.
pub fn sided(name: &str, given: Given) -> Result<Side> {
    let objects = objects(name, given)?;
    let is_file = |(name, bytes): &(String, Vec<u8>)| input::bytes(Path::new(name)).is_ok_and(|file| file == *bytes);
    let in_files = objects.iter().all(is_file);
    Ok(Side { name: name.to_owned(), objects, in_files })
}

/// What judges the objects of a side.
///
/// # Errors
/// The profile that the contract names is unknown.
pub fn foreign<'a>(name: &'a str, text: &'a str, profile: &ProfileArg) -> Result<Foreign<'a>> {
    let profile = profile.of_contract(text).map_err(|e| e.at(name))?;
    Ok(Foreign::new(name, text, Vec::new(), profile))
}
