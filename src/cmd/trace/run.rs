//! `trace -- PROGRAM`: a program runs, and its calls are recorded.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, ValueEnum};
use codegen::words::error::{Error, Result};
use codegen::words::input;
use rustix::process::{Pid, Signal, kill_process};
use session::agent::Agent;
use session::forms;
use session::objects::Choice;
use session::pool::{Mode, Pool};
use session::program::{Program, Refused, code};
use session::run::{self, Options, Outcome, Subject};
use session::sink::Sink as _;
use trace::file::{self, Events, Session, Writer};
use trace::filter::{Filter, Pattern, Wanted};
use trace::view::{Key, Report};

use super::recorded;
use super::sink::ToFile;
use crate::cmd::shared::exit::{DONE, note};

/// Nothing could be traced; the program could not be run; it was not there: as `env` and `timeout` have them.
const NOT_TRACED: u8 = 125;
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Bytes of the file that are written at once: a file system takes half as long for them as for blocks of records one by one.
const WRITTEN: usize = 1 << 18;
/// Functions of the report at the end.
const SHOWN: usize = 10;

/// What is run, and what is recorded of it.
#[derive(Args)]
pub struct RunArgs {
    /// The recording; one that is there becomes FILE.old
    #[arg(short, value_name = "FILE", default_value = file::DEFAULT)]
    output: PathBuf,
    /// Record only these functions: a glob, /regex/, or OBJECT:PATTERN
    #[arg(short = 'f', long, value_name = "PATTERN", value_parser = Pattern::new)]
    just: Vec<Pattern>,
    /// Do not record these functions
    #[arg(short = 'N', long, value_name = "PATTERN", value_parser = Pattern::new)]
    never: Vec<Pattern>,
    /// Record functions of these libraries too, by a glob for the file's name
    #[arg(short = 'L', long = "library", value_name = "LIBRARY", value_parser = Pattern::new)]
    libraries: Vec<Pattern>,
    /// Record functions without a site of a compiler too: programs and libraries as they are
    #[arg(long)]
    any: bool,
    /// Record no function of fewer bytes
    #[arg(short = 'Z', long, value_name = "BYTES", default_value_t = 0)]
    size: u64,
    /// Where times come from
    #[arg(long, value_enum, default_value = "tsc")]
    clock: Clock,
    /// Record entries and returns, or entries alone
    #[arg(long, value_enum, default_value = "both")]
    events: What,
    /// Record arguments too: integers and pointers in registers, where debug information has a prototype
    #[arg(long)]
    args: bool,
    /// Record results too: integers and pointers, where debug information has a prototype
    #[arg(long, conflicts_with = "events")]
    result: bool,
    /// What happens when the recording is slower than the program
    #[arg(long, value_enum, default_value = "block")]
    on_full: OnFull,
    /// Keep only the last records of each thread: so many buffers of 64 KiB, up to 8
    #[arg(long, value_name = "BUFFERS", num_args = 0..=1, default_missing_value = "8",
        value_parser = clap::value_parser!(u32).range(1..=8))]
    flight: Option<u32>,
    /// The recording ends where one of these functions is called; the program runs on
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    trigger: Vec<Pattern>,
    /// Buffers of 64 KiB, for all threads together
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = buffers)]
    buffers: usize,
    /// Do not record processes that the program starts
    #[arg(long)]
    no_children: bool,
    /// The program is for another machine: its architecture
    #[arg(long, value_name = "ARCH", requires = "elsewhere")]
    arch: Option<String>,
    /// With --arch: run it by this command of qemu's user mode, whose words are separated by blanks
    #[arg(long, value_name = "COMMAND", requires = "preload", group = "elsewhere")]
    emulator: Option<String>,
    /// With --emulator: session/preload/preload.c, compiled for that machine
    #[arg(long, value_name = "LIBRARY", requires = "arch")]
    preload: Option<PathBuf>,
    /// Say nothing, unless something is wrong
    #[arg(short, long)]
    quiet: bool,
    /// The process that has loaded the library of `trace preload`, and started this
    #[arg(long, value_name = "PID", group = "elsewhere", hide = true)]
    process: Option<u32>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", last = true, required_unless_present = "process")]
    program: Vec<OsString>,
}

/// Where times come from.
#[derive(Clone, Copy, ValueEnum)]
enum Clock {
    /// The processor's clock, in each record
    Tsc,
    /// The processor's clock, in every eighth record: half as expensive
    Stamp8,
    /// Nowhere: the order alone is known
    None,
}

/// What is recorded of a call.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Entry and return
    Both,
    /// The entry
    Entry,
}

/// What happens when no buffer is free.
#[derive(Clone, Copy, ValueEnum)]
enum OnFull {
    /// The program waits
    Block,
    /// Records are lost, and counted
    Drop,
}

fn buffers(text: &str) -> Result<usize> {
    let number = text.parse().ok().filter(|n| (1..=Pool::MOST).contains(n));
    number.ok_or_else(|| Error::new(format!("'{text}' is no number of buffers; valid: 1 to {}", Pool::MOST)))
}

/// The functions that the arguments choose.
struct Chosen<'a>(&'a RunArgs);

/// What the library that records calls, or the loader: their functions would call themselves without an end.
const OWN: [&str; 3] = ["libc.so", "libpthread.so", "ld-linux"];

impl Choice for Chosen<'_> {
    fn object(&self, path: &Path, program: bool) -> bool {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let own = OWN.iter().any(|own| name.starts_with(own));
        !own && (program || self.0.libraries.iter().any(|wanted| wanted.is("", [&name, &name])))
    }

    fn function(&self, object: &Path, name: &str, size: u64) -> bool {
        let object = object.to_string_lossy();
        let fits = |pattern: &Pattern| pattern.is(&object, [name, name]);
        let args = self.0;
        (args.just.is_empty() || args.just.iter().any(fits)) && !args.never.iter().any(fits) && size >= args.size
    }

    fn last(&self, object: &Path, name: &str) -> bool {
        self.0.trigger.iter().any(|pattern| pattern.is(&object.to_string_lossy(), [name, name]))
    }

    fn later(&self) -> bool {
        !self.0.libraries.is_empty()
    }

    fn any(&self) -> bool {
        self.0.any
    }
}

impl RunArgs {
    fn what(&self) -> forms::What {
        let clock = match self.clock {
            Clock::Tsc => tramptool::Clock::Tsc,
            Clock::Stamp8 => tramptool::Clock::Stamp8,
            Clock::None => tramptool::Clock::None,
        };
        forms::What { returns: self.events == What::Both, clock, args: self.args, result: self.result }
    }

    fn mode(&self) -> Mode {
        match (self.flight, self.on_full) {
            (Some(buffers), _) => Mode::Flight(buffers),
            (None, OnFull::Block) => Mode::Block,
            (None, OnFull::Drop) => Mode::Drop,
        }
    }

    /// The first block of the recording.
    fn session(&self, arch: &'static str, machine: u16) -> Session {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Session {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            arch: arch.to_owned(),
            machine,
            command: self.command(),
            clock: match self.clock {
                Clock::Tsc => file::Clock::Tsc,
                Clock::Stamp8 => file::Clock::Stamp8,
                Clock::None => file::Clock::None,
            },
            events: if self.events == What::Both { Events::Both } else { Events::Entry },
            started: since.as_nanos() as u64,
        }
    }

    /// The words of the program.
    fn command(&self) -> Vec<String> {
        let Some(pid) = self.process else {
            return self.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        };
        let all = input::bytes(Path::new(&format!("/proc/{pid}/cmdline"))).unwrap_or_default();
        String::from_utf8_lossy(&all).split_terminator('\0').map(str::to_owned).collect()
    }

    /// The file. One that is there is kept under another name.
    fn create(&self) -> Result<fs::File> {
        let path = &self.output;
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
            let mut old = path.clone().into_os_string();
            old.push(".old");
            fs::rename(path, &old).map_err(|e| Error::new(format!("cannot rename {}: {e}", path.display())))?;
        }
        let refused = |e| Error::new(format!("cannot write {}: {e}; valid: -o with a file of yours", path.display()));
        fs::File::create(path).map_err(refused)
    }
}

/// Run the program. The exit code is the program's.
///
/// # Errors
/// None: what is wrong with tracing is told, with an exit code of its own.
pub fn run(args: &RunArgs) -> u8 {
    let outcome = traced(args).unwrap_or_else(|refused| {
        let (code, why) = match refused {
            Refused::NotFound(why) => (NOT_FOUND, why),
            Refused::NotRun(why) => (NOT_RUN, why),
            Refused::NotTraced(why) => (NOT_TRACED, why),
        };
        note(&why.to_string());
        Err(code)
    });
    let code = match outcome {
        Ok(outcome) => outcome.status.map_or(Ok(DONE), code),
        Err(code) => Ok(code),
    };
    code.unwrap_or_else(|signal| {
        // Whoever waits for us sees what has ended the program. Its core is enough.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        // Rust handles SIGSEGV and SIGBUS, so their default action must be restored. `raise` is for signals that this function does not know.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        let _ = signal_hook::low_level::raise(signal);
        128_u8.wrapping_add(signal as u8)
    })
}

fn traced(args: &RunArgs) -> std::result::Result<std::result::Result<Outcome, u8>, Refused> {
    let here = std::env::consts::ARCH;
    let backend = tramptool::internal::backend(args.arch.as_deref().unwrap_or(here)).map_err(Refused::NotTraced)?;
    let facts = backend.facts();
    let program;
    let subject = match args.process {
        Some(pid) => Subject::Process { pid, listening: &say },
        None => {
            program = Program::find(&args.program, &|machine| machine == facts.machine)?;
            Subject::Program(&program)
        }
    };
    let words = args.emulator.as_deref().unwrap_or_default().split_whitespace();
    let emulator: Vec<OsString> = words.map(OsString::from).collect();
    let out = args.create().map_err(Refused::NotTraced)?;
    let failed = |e: io::Error| Refused::NotTraced(Error::new(format!("cannot write {}: {e}", args.output.display())));
    let mut writer = Writer::new(BufWriter::with_capacity(WRITTEN, out)).map_err(failed)?;
    writer.session(&args.session(facts.name, facts.machine)).map_err(failed)?;
    let mut sink = ToFile::new(writer, args.what());
    let agent = args.preload.clone().map_or_else(Agent::new, Agent::of).map_err(Refused::NotTraced)?;
    let (child, over, stop) = (AtomicU32::new(0), AtomicBool::new(false), Arc::default());
    let started = |pid| child.store(pid, Ordering::SeqCst);
    let options = Options {
        what: args.what(),
        mode: args.mode(),
        buffers: args.buffers,
        follow: !args.no_children,
        stop: &stop,
        started: &started,
        choice: &Chosen(args),
        backend,
        emulator: &emulator,
        same_clocks: args.arch.is_none()
            || emulator.is_empty()
                && tramptool::internal::backend(here).is_ok_and(|own| own.facts().machine == facts.machine),
        agent: &agent,
    };
    let began = Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| pass_on(&child, &over, &stop));
        let outcome = run::run(subject, &options, &mut sink);
        over.store(true, Ordering::SeqCst);
        outcome
    });
    let outcome = outcome.map_err(Refused::NotRun)?;
    // The program has run: what is wrong from now on does not change how it ended.
    if let Err(e) = sink.flush() {
        note(&format!("{} is not whole: {e}", args.output.display()));
    }
    outcome.complaints.iter().for_each(|complaint| note(&complaint.to_string()));
    if !args.quiet {
        tell(args, &outcome, sink.size(), began.elapsed());
    }
    Ok(Ok(outcome))
}

/// Tell the process that has started us where we listen.
fn say(socket: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{socket}").and_then(|()| out.flush())
}

/// Signals from the terminal go to the program too, which decides. Those that are sent to us alone are passed on.
/// SIGUSR1 is for us.
fn pass_on(child: &AtomicU32, over: &AtomicBool, stop: &Arc<AtomicBool>) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
    let _ = signal_hook::flag::register(SIGUSR1, stop.clone());
    let watched = |signal: i32| {
        let came = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal, came.clone());
        came
    };
    let _terminal = [SIGINT, SIGQUIT].map(watched);
    let ours = [(Signal::TERM, watched(SIGTERM)), (Signal::HUP, watched(SIGHUP))];
    while !over.load(Ordering::SeqCst) {
        for (signal, came) in &ours {
            let pid = Pid::from_raw(child.load(Ordering::SeqCst).cast_signed());
            if let Some(pid) = pid.filter(|_| came.swap(false, Ordering::SeqCst)) {
                let _ = kill_process(pid, *signal);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// 5,274,000.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.char_indices() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What was recorded, on stderr: stdout is the program's.
fn tell(args: &RunArgs, outcome: &Outcome, (threads, bytes): (usize, u64), took: Duration) {
    let (traced, sites) = outcome.functions;
    if sites == 0 && args.any {
        note("no symbol table has functions of the program, so nothing is recorded; name a library by -L");
        return;
    }
    if sites == 0 {
        note(
            "no sites were seen, so nothing is recorded; compile the program with -fpatchable-function-entry=5 (gcc, clang), \
             name a library that has them by -L, or try --any",
        );
        return;
    }
    let left =
        if traced < sites { format!(" ({} left out: tramptool trace list)", sites - traced) } else { String::new() };
    note(&format!("traced {traced} of {sites} functions{left}"));
    if let Some(why) = outcome.why.filter(|_| args.events == What::Both) {
        note(&format!("entries alone are recorded: an object {why}"));
    }
    let calls = thousands(outcome.seen.entries);
    let plural = if threads == 1 { "" } else { "s" };
    let lost = thousands(outcome.lost.0);
    note(&format!("{calls} calls in {:.2} s, {threads} thread{plural}; lost {lost}", took.as_secs_f64()));
    if !args.trigger.is_empty() && !outcome.last {
        note("no function that is recorded has a name of --trigger; valid: a name that `tramptool trace list` shows");
    }
    if outcome.lost.1 > 0 {
        note(&format!("{} threads are recorded without callees, for want of memory", outcome.lost.1));
    }
    note(&format!("{}: {} bytes", args.output.display(), thousands(bytes)));
    // What cannot be shown here can be asked for.
    let key = if outcome.how == Some(forms::How::Entry) { Key::Calls } else { Key::Own };
    let Ok(text) = busiest(&args.output, key) else { return };
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The first functions of the report.
fn busiest(path: &Path, key: Key) -> Result<String> {
    let recording = recorded::open(path)?;
    let filter = Filter::new(&Wanted::default(), &recording)?;
    let mut text = Vec::new();
    Report::new(&recording, &filter, false, key)?.text(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().take(SHOWN + 1).map(|line| format!("{line}\n")).collect())
}
