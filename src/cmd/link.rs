//! `link`: objects to an image at fixed addresses, with its call sites patched.

use std::path::PathBuf;

use clap::Args;
use codegen::words::error::{Error, Result};
use link::{Input, Options};
use tool::settings::parse_u64;

use super::shared::args::ProfileArg;
use super::shared::exit::DONE;
use super::shared::input;
use super::shared::output::{self, Contents, File};
use super::shared::ui::Ui;

/// Arguments of `link`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct LinkArgs {
    /// Relocatable objects, all for one architecture
    #[arg(value_name = "OBJ", required = true)]
    objects: Vec<PathBuf>,
    /// The image
    #[arg(short, value_name = "FILE", required = true)]
    output: PathBuf,
    /// Let the patched entry of FUNC go to a trampoline; all other sites do nothing
    #[arg(long, value_name = "FUNC=TRAMPOLINE")]
    patch: Vec<String>,
    /// The same by a jump: for paired trampolines
    #[arg(long, value_name = "FUNC=TRAMPOLINE")]
    jump: Vec<String>,
    /// The ftrace_ops of these functions, for those that were compiled with room for its address
    #[arg(long, value_name = "SYMBOL")]
    ops: Option<String>,
    /// Let the patchable call at label SLOT call FUNC
    #[arg(long, value_name = "SLOT=FUNC")]
    call: Vec<String>,
    /// Address of the image, a multiple of 0x1000
    #[arg(long, value_name = "ADDR", default_value = "0x400000", value_parser = parse_u64)]
    base: u64,
    #[command(flatten)]
    profile: ProfileArg,
}

const EXAMPLES: &str = "\
Examples:
  tramptool link out/x86_64.o functions.o callbacks.o -o image
  tramptool link out/arm64.o functions.o callbacks.o -o image \\
    --patch args3=ftrace_caller --call ftrace_call=my_callback --base 0x80000000";

/// Link.
///
/// # Errors
/// What the linker refuses, an input that cannot be read, an output that cannot be written.
pub fn run(args: &LinkArgs, _ui: &Ui) -> Result<u8> {
    let mut read = Vec::new();
    for path in &args.objects {
        let name = path.display().to_string();
        let bytes = input::bytes(path)
            .map_err(|e| Error::new(format!("cannot read {name}: {e}; valid: a relocatable ELF64 object")))?;
        read.push((name, bytes));
    }
    let inputs: Vec<Input> = read.iter().map(|(name, bytes)| Input { name, bytes }).collect();
    let (patch, jump, calls) = (pairs("patch", &args.patch)?, pairs("jump", &args.jump)?, pairs("call", &args.call)?);

    let first = inputs.first().ok_or_else(|| Error::new("nothing to link; give at least one object"))?;
    let backend = tool::backend_of(first)?;
    let site = Some(&args.profile.find()?.convention(backend.facts().name)?.site);
    let options = Options { base: args.base, patch, jump, calls, ops: args.ops.clone(), site, ..Options::default() };
    let bytes = link::link(backend, &inputs, &options)?.to_elf()?;
    output::write(&[File { path: args.output.clone(), contents: Contents::Bytes(bytes), executable: true }])?;
    Ok(DONE)
}

fn pairs(option: &str, given: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok((a.to_owned(), b.to_owned())),
        _ => Err(Error::new(format!("--{option} '{text}' is no pair; valid: --{option} ONE=OTHER, two symbols"))),
    };
    given.iter().map(pair).collect()
}
