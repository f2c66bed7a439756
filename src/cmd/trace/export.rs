//! `trace export`: the recording in the format of another tool.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use codegen::words::error::{Error, Result};
use trace::export::{self, Files, Version};
use trace::filter::Filter;
use trace::tree::Tree;
use trace::view::{Key, Report};

use super::recorded::{Recorded, RecordedArgs};
use crate::cmd::shared::exit::{DONE, note};
use crate::cmd::shared::output::{self, Contents, File};
use crate::cmd::shared::ui::Ui;

/// Arguments of `trace export`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    recorded: RecordedArgs,
    /// The format
    #[arg(long, value_enum)]
    format: ExportFormat,
    /// The file, or the directory for uftrace and ctf; without it, files go to stdout
    #[arg(short, value_name = "OUT")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  tramptool trace export --format html -o trace.html
  tramptool trace export --format uftrace -o uftrace.data && uftrace replay -d uftrace.data
  tramptool trace export --format folded | flamegraph.pl >flame.svg";

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A directory for uftrace
    Uftrace,
    /// JSON for chrome://tracing, Perfetto and speedscope
    Chrome,
    /// Protocol buffers for ui.perfetto.dev
    Perfetto,
    /// A line for each stack, with its time in nanoseconds
    Folded,
    /// A directory in the Common Trace Format 1.8
    Ctf,
    /// A directory in the Common Trace Format 2
    Ctf2,
    /// JSON for profiler.firefox.com
    Firefox,
    /// A page with a flame graph
    Html,
}

/// Write.
///
/// # Errors
/// The recording cannot be read, a filter is none, or the output cannot be written.
pub fn run(args: &ExportArgs, ui: &Ui) -> Result<u8> {
    let (recording, filter) = args.recorded.open()?;
    let file = |out: &mut dyn Write| write_file(args.format, &recording, &filter, out);
    match (&args.output, is_directory(args.format)) {
        (None, true) => {
            return Err(Error::new("--format uftrace, ctf and ctf2 write a directory; valid: -o with its name"));
        }
        (None, false) => ui.stream(file)?,
        (Some(path), true) => {
            output::directory_of(path, |dir| write_directory(args.format, &recording, &filter, dir))?;
        }
        (Some(path), false) => {
            output::write(&[File { path: path.clone(), contents: Contents::Made(&file), executable: false }])?;
        }
    }
    Ok(DONE)
}

fn is_directory(format: ExportFormat) -> bool {
    matches!(format, ExportFormat::Uftrace | ExportFormat::Ctf | ExportFormat::Ctf2)
}

fn write_file(format: ExportFormat, recording: &Recorded, filter: &Filter, out: &mut dyn Write) -> Result<()> {
    match format {
        ExportFormat::Chrome => export::chrome(recording, filter, out),
        ExportFormat::Perfetto => export::perfetto(recording, filter, out),
        ExportFormat::Firefox => export::firefox(recording, filter, out),
        ExportFormat::Folded => export::folded(recording, &Tree::of(recording, filter)?, out),
        ExportFormat::Html => {
            let report = Report::new(recording, filter, false, Key::Own)?;
            export::html(recording, &Tree::of(recording, filter)?, &report, out)
        }
        ExportFormat::Uftrace | ExportFormat::Ctf | ExportFormat::Ctf2 => Ok(()),
    }
}

fn write_directory(format: ExportFormat, recording: &Recorded, filter: &Filter, dir: &Path) -> Result<()> {
    let mut files = Directory(dir);
    match format {
        ExportFormat::Ctf => export::ctf(recording, filter, Version::One, &mut files),
        ExportFormat::Ctf2 => export::ctf(recording, filter, Version::Two, &mut files),
        _ => {
            let deeper = export::uftrace(recording, filter, &mut files)?;
            if deeper > 0 {
                note(&format!("{deeper} calls lie deeper than 1024 levels: uftrace's format has no room for them"));
            }
            Ok(())
        }
    }
}

/// Files in a directory.
struct Directory<'d>(&'d Path);

impl Files for Directory<'_> {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(BufWriter::new(fs::File::create(self.0.join(name))?)))
    }
}
