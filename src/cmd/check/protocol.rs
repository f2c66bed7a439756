//! `check --sites`: how sites are written, judged by itself.

use std::fmt::Write as _;

use codegen::words::error::Result;
use emu_tests::{Sites, judge_sites};
use serde::Serialize;
use tool::printed::json;
use tool::settings;

use crate::cmd::report::ReportArgs;
use crate::cmd::shared::args::ProfileArg;
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::{Format, Ui};

/// Exit code: a sequence leads elsewhere.
const FAILED: u8 = 1;

/// What came out for an architecture.
#[derive(Serialize)]
struct Judged {
    arch: &'static str,
    profile: &'static str,
    /// Of functions with room for an `ftrace_ops` before them (CALL_OPS), or of others.
    op: bool,
    #[serde(flatten)]
    sites: Sites,
}

/// Judge the sites of these architectures.
///
/// # Errors
/// An unknown name, or an engine that does not start.
pub fn run(arch: &str, profile: &ProfileArg, report: &ReportArgs, ui: &Ui) -> Result<u8> {
    let format = report.plain("the sites")?;
    let profile = profile.find()?;
    let mut all = Vec::new();
    for backend in settings::backends(arch, profile)? {
        let arch = backend.facts().name;
        let convention = profile.convention(arch)?;
        // A kernel is built with such room, or without: both are.
        let both = [false, true].into_iter().filter(|op| !op || convention.site.protocol.literal.is_some());
        for op in both {
            let sites = judge_sites(backend, convention, op)?;
            all.push(Judged { arch, profile: profile.name, op, sites });
        }
    }
    let text = match format {
        Format::Human => all.iter().map(human).collect(),
        Format::Json => json(&all)?,
    };
    report.write(text, ui)?;
    Ok(if all.iter().any(|judged| judged.sites.failed > 0) { FAILED } else { DONE })
}

fn human(Judged { arch, profile, op, sites }: &Judged) -> String {
    let with = if *op { ", with room for op before each function (CALL_OPS)" } else { "" };
    let mut out = format!(
        "{arch}, profile {profile}{with}: {} places of site, entry trampoline and target, {} of them out of reach; {} sequences, {} \
         lead elsewhere\n",
        sites.places, sites.refused, sites.sequences, sites.failed
    );
    for astray in &sites.astray {
        let bytes: Vec<String> = astray.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let may: Vec<String> = astray.expected.iter().map(|at| format!("{at:#x}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "FAIL entry trampoline {:+#x} bytes from ip, target {:+} from that: {}: {} leads to {:#x}, not {}",
            astray.entry,
            astray.target,
            astray.when,
            bytes.join(" "),
            astray.found,
            may.join(" or ")
        );
    }
    let shown = sites.astray.len() as u64;
    if sites.failed > shown {
        let _ = writeln!(out, "and {} more", sites.failed - shown);
    }
    out
}
