//! `contract`: write a first contract, to be edited.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use codegen::profile::Profile;
use codegen::words::error::{Error, Result};
use emu_tests::{Clause, Draft, End, Filter, Foreign, Observed};
use link::Input;
use tool::report::COLUMNS;
use tool::settings::parse_u64;

use super::diff::sides::{Given, one};
use super::shared::args::ProfileArg;
use super::shared::exit::{DONE, note};
use super::shared::input;
use super::shared::output;
use super::shared::sandbox::SandboxArg;
use super::shared::ui::Ui;

/// Arguments of `contract`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ContractCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Write a first contract for a trampoline, from what its object shows
    #[command(after_help = EXAMPLES)]
    Init(InitArgs),
    /// Run code without any contract, and tell what it does
    #[command(after_help = OBSERVE)]
    Observe(ObserveArgs),
}

/// Arguments of `contract observe`.
#[derive(Args)]
struct ObserveArgs {
    /// FILE[:SYMBOL] of an object, module, shared library or source, FILE@BASE:ENTRY, REVISION:PATH, or
    /// ARCH:TRAMPOLINE[,OPTION=VALUE...]
    code: String,
    /// The architecture of a source or a dump
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    #[command(flatten)]
    profile: ProfileArg,
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Print only this case, as JSON of `tramptool diff` names it: rdi=0, call1.frame+0x78=stored
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const OBSERVE: &str = "\
It is run with a value of its own in each register and each word of memory, and once more for each thing that may matter: \
a word that it reads is 0, a function that it calls stores a word of its frame. TOML tells each way through it: what it \
calls with which arguments, what the frame holds, where it goes, what is kept and changed.

Examples:
  tramptool contract observe ftrace_64.o:ftrace_caller
  tramptool contract observe arm64:ftrace_caller";

/// Arguments of `contract init`.
#[derive(Args)]
struct InitArgs {
    /// The object that has the trampoline
    #[arg(long, value_name = "FILE", required_unless_present = "raw")]
    object: Option<PathBuf>,
    /// A dump of memory that has it: raw bytes
    #[arg(long, value_name = "FILE", requires_all = ["base", "entry", "arch"], conflicts_with = "object")]
    raw: Option<PathBuf>,
    /// The address of the dump's first byte
    #[arg(long, value_name = "ADDR", value_parser = parse_u64, requires = "raw")]
    base: Option<u64>,
    /// The address of the trampoline in the dump
    #[arg(long, value_name = "ADDR", value_parser = parse_u64, requires = "raw")]
    entry: Option<u64>,
    /// The architecture of the dump
    #[arg(long, value_name = "ARCH", requires = "raw")]
    arch: Option<String>,
    /// Where the trampoline begins; of one in a dump, what the contract calls it
    #[arg(long, value_name = "NAME")]
    symbol: String,
    #[command(flatten)]
    profile: ProfileArg,
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
The kind is guessed from names and calls, the number of arguments and the alignment from runs; argument registers that change are \
listed as a question. `tramptool check --contract` takes the \
result once the question is answered; what the trampoline promises beyond it, and its frame, is for you to add.

Exit code: 0 the contract is written, 1 the code never comes back, and there is nothing to promise, 2 trouble.

Examples:
  tramptool contract init --object my.o --symbol my_tramp -o my.toml
  tramptool check --object my.o --contract my.toml
  tramptool contract init --raw dump.bin --base 0xa000000 --entry 0xa000040 --arch x86_64 --symbol my_tramp -o my.toml
  tramptool check --raw dump.bin --base 0xa000000 --entry 0xa000040 --arch x86_64 --contract my.toml";

/// Exit code: the code never comes back.
const ENDLESS: u8 = 1;

impl InitArgs {
    /// The code, as an object, and what messages call it.
    fn code(&self) -> Result<(String, Vec<u8>)> {
        let path = self.object.as_ref().or(self.raw.as_ref()).ok_or_else(|| Error::new("no --object and no --raw"))?;
        let name = path.display().to_string();
        let bytes = input::bytes(path).map_err(|e| Error::new(format!("cannot read {name}: {e}")))?;
        let (Some(base), Some(entry), Some(arch)) = (self.base, self.entry, &self.arch) else {
            return Ok((name, bytes));
        };
        let object = emu_tests::dumped(tool::backend(arch)?, &bytes, base, (&self.symbol, entry));
        object.map_err(|e| e.at(&name)).map(|object| (name, object))
    }
}

/// The value of a word that the code has not written.
const OLDER: &str = "\"older\"";

/// What was observed in one case.
fn only(observed: Observed, case: &str) -> Result<Observed> {
    let all = observed.path.iter().chain(&observed.variants);
    let found = all.clone().find(|way| format!("{:#}", way.when) == case).cloned();
    let found = found.ok_or_else(|| {
        let ids: Vec<String> = all.map(|way| format!("{:#}", way.when)).collect();
        Error::unknown("case", case, ids.iter().map(String::as_str))
    })?;
    Ok(Observed { path: vec![found], store: Vec::new(), ..observed })
}

/// Run `contract`.
///
/// # Errors
/// The object cannot be read or linked, has no such symbol, or the contract cannot be written.
pub fn run(command: &ContractCommand, ui: &Ui) -> Result<u8> {
    match &command.action {
        Action::Init(args) => init(args, ui),
        Action::Observe(args) => tell(args, ui),
    }
}

fn tell(args: &ObserveArgs, ui: &Ui) -> Result<u8> {
    let given = Given { arch: args.arch.as_deref(), profile: args.profile.stated()? };
    let code = one(&args.code, given)?;
    let _threads = args.sandbox.enter(args.output.as_deref())?;
    let observed = code.observed()?;
    let observed = match &args.case {
        None => observed,
        Some(case) => only(observed, case)?,
    };
    let text = toml::to_string(&observed).map_err(|e| Error::new(format!("what was observed: {e}")))?;
    let width = if args.output.is_none() { ui.columns() } else { COLUMNS };
    let mut text: String = text.lines().map(|line| fitted(line, width) + "\n").collect();
    if let Some(at) = text.find(OLDER) {
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        text.insert_str(line, "# older: what lay there before, which the code has not written\n");
    }
    output::report(text, args.output.as_deref(), ui)?;
    Ok(DONE)
}

/// A line of TOML in lines of so many columns, if it is an array.
fn fitted(line: &str, width: usize) -> String {
    let array = line.split_once(" = [").and_then(|(key, rest)| Some((key, rest.strip_suffix(']')?)));
    let Some((key, elements)) = array.filter(|_| line.chars().count() > width) else { return line.to_owned() };
    let (mut quoted, mut escaped) = (false, false);
    let elements = elements.split_inclusive(|c: char| {
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        c == ',' && !quoted
    });
    let mut lines = vec![format!("{key} = [")];
    let mut open = String::new();
    for element in elements.map(str::trim) {
        if !open.is_empty() && open.chars().count() + 1 + element.chars().count() > width {
            lines.push(std::mem::take(&mut open));
        }
        open += if open.is_empty() { "    " } else { " " };
        open += element;
    }
    lines.extend([open, "]".to_owned()]);
    lines.join("\n")
}

fn init(args: &InitArgs, ui: &Ui) -> Result<u8> {
    let profile = args.profile.find()?;
    let (name, bytes) = args.code()?;
    let object = Input { name: &name, bytes: &bytes };
    let draft = emu_tests::draft(&object, &args.symbol, profile, tool::BACKENDS)?;
    let stated = args.profile.stated()?.map(|profile| profile.convention(draft.arch)).transpose()?;
    let orc = stated.and_then(|convention| convention.orc);
    let _threads = args.sandbox.enter(args.output.as_deref())?;
    let observed = emu_tests::observe(&object, Some(&args.symbol), tool::BACKENDS, orc)?;
    // What is wrong is no promise.
    if let Some(why) = endless(&draft, &observed) {
        note(&format!("{name}: {} never comes back: {why}; valid: code that does", args.symbol));
        return Ok(ENDLESS);
    }
    let most = (0..=draft.args.len())
        .rev()
        .find(|&n| draft.kind == "direct" && holds((&draft, &observed), args, profile, &name, &bytes, n));
    output::report(
        text(&draft, &observed, &args.symbol, most.unwrap_or(draft.args.len()), Arguments::Asked),
        args.output.as_deref(),
        ui,
    )?;
    Ok(DONE)
}

/// Why the code never comes back, if it does not: on no way, or where nothing is unusual. Where nothing is, what runs behind a
/// function finds no caller to go back to.
fn endless<'o>(draft: &Draft, observed: &'o Observed) -> Option<&'o str> {
    let plain = &observed.path.first()?.leave;
    let itself = |to: &emu_tests::Value| to.is_symbol(&observed.symbol);
    let mut ways = observed.path.iter().chain(&observed.variants);
    let comes_back = match draft.kind {
        "direct" => plain.to().is_some_and(|to| !itself(to)),
        _ => ways.any(|way| way.leave.to().is_some_and(|to| !itself(to))),
    };
    match &plain.end {
        _ if comes_back => None,
        End::Never { never } => Some(never),
        _ => Some("it goes to its own beginning"),
    }
}

/// Do functions with that many arguments find them again, and the way back?
fn holds(
    (draft, observed): (&Draft, &Observed),
    args: &InitArgs,
    profile: &'static Profile,
    name: &str,
    bytes: &[u8],
    n: usize,
) -> bool {
    let contract = text(draft, observed, &args.symbol, n, Arguments::Stated);
    let objects = vec![(name.to_owned(), bytes.to_vec())];
    let foreign = Foreign::new("draft", &contract, objects, profile);
    let suites = emu_tests::foreign_suites(&foreign, tool::BACKENDS);
    let report = suites.and_then(|suites| emu_tests::check(&suites, &Filter::default(), 1, &|_, _| ()));
    report.is_ok_and(|report| {
        let mut failures = report.results.iter().flat_map(|row| &row.failures);
        !failures.any(|f| f.clause == Clause::P9 || draft.args.iter().take(n).any(|arg| f.place_id == *arg))
    })
}

/// Who says how many arguments there are, where argument registers change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    /// The contract does.
    Stated,
    /// Whoever edits it: until then, nothing is judged by it.
    Asked,
}

/// The contract.
fn text(draft: &Draft, observed: &Observed, symbol: &str, args: usize, who: Arguments) -> String {
    let quoted = |s: &str| toml::Value::from(s).to_string();
    let mut lines = vec![
        "# Written by tramptool contract init: see docs/contracts.md for what else it may say.".to_owned(),
        format!("arch = {}", quoted(draft.arch)),
        format!("about = {}", quoted(&format!("{symbol}, to be described"))),
    ];
    let mut say = |line: &str| lines.push(line.to_owned());
    say("");
    let with_frame = matches!(draft.kind, "entry" | "regs" | "return" | "rethook");
    if with_frame {
        say("# What the callback is given a pointer to. Uncomment it, name all fields, and name it below.");
        say("# [frame.regs]\n# struct = \"ftrace_regs\"\n# size = 8\n# field = [");
        say("#     { member = \"ip\", offset = 0, holds = \"pc\", stores = \"take-effect\" },\n# ]\n");
    }
    if matches!(draft.kind, "return" | "rethook") {
        say(
            "# Returns are hooked by callbacks: it runs together with a trampoline of kind entry or regs, to be added here.",
        );
    }
    say("[[trampoline]]");
    say(&format!("symbol = {}", quoted(symbol)));
    say(&format!("kind = {}  # guessed from its name and calls", quoted(draft.kind)));
    if draft.kind == "direct" {
        let ends = observed.path.iter().filter(|way| way.leave.ends());
        let mut lost: Vec<&str> = ends.flat_map(|way| way.leave.changed.keys().copied()).collect();
        lost.retain(|name| draft.args.contains(name));
        lost.sort_unstable();
        lost.dedup();
        let stated = format!("args = {args}  # of the traced function; as many are kept");
        if lost.is_empty() || who == Arguments::Stated {
            say(&stated);
        } else {
            say(&format!("# Argument registers that change: {}.", lost.join(" ")));
            say("# May the traced function have arguments in them? If it may not, uncomment the next line.");
            say("# If it may, write how many arguments it has: `check` then reports those that are lost.");
            say(&format!("# {stated}"));
        }
    }
    if let (Some(slot), "entry" | "regs") = (&draft.slot, draft.kind) {
        say(&format!("slot = {}  # the call that is patched", quoted(slot)));
    }
    if let (Some(callee), "direct" | "return" | "rethook") = (draft.calls.first(), draft.kind) {
        say(&format!("calls = {}", quoted(callee)));
    }
    if draft.calls.len() > 1 {
        say(&format!("# All that it calls: {}.", draft.calls.join(", ").escape_default()));
    }
    if with_frame {
        say("# frame = \"regs\"");
    }
    let calls = observed.path.iter().flat_map(|way| &way.call);
    let aligned = calls.map(|call| call.aligned).min();
    match aligned {
        Some(1) => say("# Its calls find SP at no multiple of 8. What may they rely on?\n# stack-align = 8"),
        Some(aligned) => {
            say(&format!("stack-align = {aligned}  # as its calls find it, whatever the site's stack was"))
        }
        None => say(&format!("stack-align = {}  # of the psABI: no call was seen", draft.stack_align)),
    }
    say("# deviation = [{ clause = \"P1\", place = \"*\", reason = \"why it is known not to hold\" }]");
    lines.join("\n") + "\n"
}
