//! `probe`: functions of an object are called with probes on them, in the emulator.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use codegen::words::error::{Error, Result};
use emu_tests::{ProbeForm, probe};
use link::Input;
use tool::printed::printable;

use super::shared::exit::DONE;
use super::shared::input;
use super::shared::sandbox::SandboxArg;
use super::shared::ui::Ui;

/// Arguments of `probe`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ProbeArgs {
    /// An object of a compiler that defines the functions and everything they refer to
    #[arg(long, value_name = "FILE")]
    object: PathBuf,
    /// Probe definitions, one a line; `#` begins a comment
    #[arg(long, value_name = "FILE")]
    events: PathBuf,
    /// A call with integer arguments: 'f(1, 2)'. Several run one after the other
    #[arg(long, value_name = "CALL", required = true)]
    call: Vec<String>,
    /// Refuse an object for another architecture
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// The format of events: that of today's Linux, or the interface's first version
    #[arg(long, value_enum, default_value = "today")]
    form: Form,
    #[command(flatten)]
    sandbox: SandboxArg,
}

/// How events are written.
#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// `sym: @sym+0`, `caller: <-sym+0`
    First,
    /// `EVENT: (sym+0x0/0x10) arg1=0x1`
    Today,
}

const EXAMPLES: &str = "\
Definitions are those of kprobe_events: p SYM[+offs|-offs]|ADDR, r SYM, f SYM[%return], -:EVENT. Arguments are $argN, \
$retval, $stackN, %reg, @SYM, +offs(ARG), each with a type. The trace shows the result of each call as a comment.

Examples:
  tramptool probe --object f.o --events probes --call 'f(1, 2)'
  tramptool probe --object f.o --events probes --call 'f(1)' --call 'g(-1)' --form first --arch arm64";

/// Run the calls.
///
/// # Errors
/// A file cannot be read, a definition is refused, a function goes astray.
pub fn run(args: &ProbeArgs, ui: &Ui) -> Result<u8> {
    let read = |path: &Path| {
        input::bytes(path).map_err(|e| Error::new(format!("cannot read {}: {e}; valid: a file", path.display())))
    };
    let (object, events) = (read(&args.object)?, read(&args.events)?);
    let (name, file) = (args.object.display().to_string(), args.events.display().to_string());
    let events = String::from_utf8(events).map_err(|_| Error::new(format!("{file} is no text; valid: UTF-8")))?;
    let input = Input { name: &name, bytes: &object };
    let backend = tool::backend_of(&input)?;
    if let Some(arch) = &args.arch
        && backend.facts().name != tool::backend(arch)?.facts().name
    {
        return Err(Error::new(format!("{name} is for {}, not {arch}; valid: --arch {0}", backend.facts().name)));
    }
    let form = match args.form {
        Form::First => ProbeForm::First,
        Form::Today => ProbeForm::Today,
    };
    let _threads = args.sandbox.enter(None)?;
    let trace = probe(backend, &input, (&file, &events), &args.call, form)?;
    ui.out(trace.iter().map(|line| printable(line) + "\n").collect::<String>())?;
    Ok(DONE)
}
