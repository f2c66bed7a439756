//! `report`: write saved reports in other formats, describe them; and how a report is written, for every command that makes one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use codegen::words::error::{Error, Result};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use tool::mutate::report::Report as Mutants;
use tool::report::page::{apart, sheets, together};
use tool::report::{COLUMNS, Document, Format, Palette, Saved, Style, refuse_skips, render};

use super::shared::exit::{DONE, complain, note};
use super::shared::output;
use super::shared::ui::{self, Ui, Written};
use super::shared::values::one_of;

/// Exit code: a clause fails.
const FAILS: u8 = 1;
/// Exit codes of the kernel's selftests, where 2 would be an expected failure.
const KSFT_FAIL: u8 = 1;
const KSFT_SKIP: u8 = 4;

/// Where the report goes, and in which form.
#[derive(Args)]
pub struct ReportArgs {
    /// The report's format
    #[arg(long, value_parser = one_of(Format::ALL), default_value = "human")]
    format: Format,
    /// Write the report to a file instead of stdout
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show everything: each clause one by one, all matrices, registers, what clauses demand
    #[arg(short, long)]
    verbose: bool,
    /// Count clauses that were not checked as failed
    #[arg(long)]
    strict: bool,
    /// Use the exit codes of the kernel's selftests
    #[arg(long)]
    kselftest: bool,
}

impl ReportArgs {
    /// Do `work`, which ends with a report. Returns the exit code.
    ///
    /// # Errors
    /// The report cannot be made or written; with the codes of selftests, the message is out and this is a failure.
    pub fn finish(&self, work: impl FnOnce() -> Result<u8>) -> Result<u8> {
        let writable = self.output.as_deref().map_or(Ok(()), output::probe);
        match writable.and_then(|()| work()) {
            Err(e) if self.kselftest => {
                complain(&e.to_string());
                Ok(KSFT_FAIL)
            }
            code => code,
        }
    }

    /// The file that it goes to, if not to stdout.
    pub fn output(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Is it a page for a browser?
    pub fn is_page(&self) -> bool {
        self.format == Format::Html
    }

    /// Write the report. Returns the exit code.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn deliver(&self, mut document: Document, ui: &Ui) -> Result<u8> {
        if self.strict {
            refuse_skips(&mut document.report);
        }
        for warning in &document.report.warnings {
            note(&format!("warning: {warning}"));
        }
        let palette = Palette { colour: self.output.is_none() && ui.colour() };
        let width = if self.output.is_none() { ui.columns() } else { COLUMNS };
        let text = render(&document, self.format, Style { palette, width, verbose: self.verbose })?;
        output::report(text, self.output.as_deref(), ui)?;
        let summary = document.report.summary;
        Ok(match () {
            () if summary.fail + summary.open > 0 => FAILS,
            () if self.kselftest && summary.pass + summary.deviates == 0 => KSFT_SKIP,
            () if summary.pass + summary.deviates == 0 => FAILS,
            () => DONE,
        })
    }

    /// The format, of two: the others are for reports of `check`.
    ///
    /// # Errors
    /// One of those, or an option that is for them.
    pub fn plain(&self, what: &str) -> Result<ui::Format> {
        if self.verbose || self.strict || self.kselftest {
            return Err(Error::new(format!("this report is of {what}; valid: no --verbose, --strict or --kselftest")));
        }
        match self.format {
            Format::Human => Ok(ui::Format::Human),
            Format::Json => Ok(ui::Format::Json),
            Format::Junit | Format::Ktap | Format::Sarif | Format::Html => {
                Err(Error::new(format!("this report is of {what}; valid: --format human or json")))
            }
        }
    }

    /// Write what another command makes.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, text: String, ui: &Ui) -> Result<()> {
        output::report(text, self.output.as_deref(), ui)
    }

    /// Write a report of `mutate`. Returns the exit code.
    fn deliver_mutants(&self, report: &Mutants, ui: &Ui) -> Result<u8> {
        let format = match self.format {
            Format::Human => Written::Human,
            Format::Json => Written::Json,
            Format::Html => Written::Html,
            Format::Junit | Format::Ktap | Format::Sarif => {
                return Err(Error::new("these reports are of `mutate`; valid: --format human, json or html"));
            }
        };
        if self.verbose || self.strict || self.kselftest {
            return Err(Error::new("these reports are of `mutate`; valid: no --verbose, --strict or --kselftest"));
        }
        super::mutate::deliver(report, format, self.output.as_deref(), ui)
    }
}

/// Arguments of `report`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Write a saved report in another format
    #[command(after_help = EXAMPLES)]
    Write(WriteArgs),
    /// Write reports as pages for a browser: one file, or a directory with one for each
    #[command(after_help = EXAMPLES)]
    Html(HtmlArgs),
    /// Print the JSON schema of a report, a contract or a profile
    #[command(after_help = EXAMPLES)]
    Schema(SchemaArgs),
}

/// Arguments of `report html`.
#[derive(Args)]
struct HtmlArgs {
    /// Reports, as `check`, `mutate` or `cost` wrote them with --format json
    #[arg(value_name = "REPORT", required = true)]
    reports: Vec<PathBuf>,
    /// Write one page, if this ends with .html, and a directory of pages otherwise
    #[arg(short, value_name = "FILE.html|DIR")]
    output: PathBuf,
}

/// Arguments of `report schema`.
#[derive(Args)]
struct SchemaArgs {
    /// Of what
    #[arg(value_enum)]
    of: Described,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Described {
    /// What `check --format json` writes.
    Report,
    /// What `mutate --format json` writes.
    Mutants,
    /// What `diff --format json` writes.
    Diff,
    /// What `review --format json` writes.
    Review,
    /// What `check --marks --format json` writes.
    Marks,
    /// What `audit --format json` writes.
    Audit,
    /// What `check --contract` reads, in TOML.
    Contract,
    /// What `--profile` reads, in TOML.
    Profile,
}

/// Arguments of `report write`.
#[derive(Args)]
struct WriteArgs {
    /// A report, as `check --format json` or `mutate --format json` wrote it
    #[arg(value_name = "REPORT")]
    saved: PathBuf,
    #[command(flatten)]
    report: ReportArgs,
}

const EXAMPLES: &str = "\
`report write` ends with the exit code of `check` or `mutate`, whose report it is.

Examples:
  tramptool report write report.json --format sarif -o report.sarif
  tramptool report html check.json mutants.json cost.json -o run/
  tramptool report html check.json -o check.html
  tramptool report schema contract
  tramptool report schema profile";

/// Write pages.
fn html(args: &HtmlArgs, ui: &Ui) -> Result<()> {
    let name = |path: &PathBuf| path.display().to_string();
    let files = args.reports.iter().map(|path| Ok((name(path), output::read(path)?))).collect::<Result<Vec<_>>>()?;
    let sheets = sheets(&files)?;
    if args.output.extension().is_some_and(|e| e == "html") {
        return output::report(together(&sheets)?, Some(&args.output), ui);
    }
    let files = apart(sheets)?;
    let file = |f: tool::report::page::PageFile| output::File {
        path: args.output.join(&f.name),
        contents: output::Contents::Bytes(f.text.into_bytes()),
        executable: false,
    };
    output::write_into(&args.output, &files.into_iter().map(file).collect::<Vec<_>>())
}

/// The schema of what is written, and never read again.
fn written<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// Run `report`.
///
/// # Errors
/// A report cannot be read, does not go with the others, or cannot be written.
pub fn run(command: &ReportCommand, ui: &Ui) -> Result<u8> {
    let args = match &command.action {
        Action::Write(args) => args,
        Action::Html(args) => return html(args, ui).map(|()| DONE),
        Action::Schema(args) => {
            let schema = match args.of {
                Described::Report => schemars::schema_for!(Document),
                Described::Mutants => schemars::schema_for!(Mutants),
                Described::Diff => schemars::schema_for!(super::diff::comparison::Comparison),
                Described::Review => schemars::schema_for!(tool::review::Review),
                Described::Marks => written::<emu_tests::MarksReport>(),
                Described::Audit => written::<super::audit::Report>(),
                Described::Contract => emu_tests::contract_schema(),
                Described::Profile => profiles::schema(),
            };
            return ui.out(tool::report::json(&schema)?).map(|()| DONE);
        }
    };
    args.report.finish(|| {
        let name = args.saved.display().to_string();
        match Saved::parse(&output::read(&args.saved)?).map_err(|e| e.at(&name))? {
            Saved::Check(document) => args.report.deliver(document, ui),
            Saved::Mutants(report) => args.report.deliver_mutants(&report, ui),
        }
    })
}
