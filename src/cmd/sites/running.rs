//! What the sites of a kernel do, from its memory.

use std::fmt::Write;
use std::path::Path;

use codegen::words::error::{Error, Result};
use serde::Serialize;
use tool::printed::printable;
use tool::running::{Kernel, RunningSite, State, sites};

use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::running::{self, Files};
use crate::cmd::shared::ui::{Format, Ui};

/// Exit code: a site is in no state that is known.
const STRANGE: u8 = 1;

#[derive(Serialize)]
struct Listing<'a> {
    version: &'static str,
    totals: Totals,
    /// Those that are not off.
    sites: Vec<&'a RunningSite>,
}

#[derive(Serialize)]
struct Totals {
    off: usize,
    on: usize,
    /// In any other state.
    strange: usize,
}

/// The kernel whose memory and symbols these are, or with `running` the one that runs here, if one is asked for.
///
/// # Errors
/// Its files cannot be read.
pub fn kernel(files: Option<(&Path, &Path)>, running: bool) -> Result<Option<Kernel>> {
    running::kernel(files.map(|(kcore, kallsyms)| Files { kcore, kallsyms, btf: None }), running)
}

/// List.
///
/// # Errors
/// The kernel's memory has no site.
pub fn run(kernel: &Kernel, format: Format, ui: &Ui) -> Result<u8> {
    let all = sites(kernel, tool::BACKENDS)?;
    if all.is_empty() {
        return Err(Error::new("no function in the kernel's memory begins with a site; valid: memory with its code"));
    }
    let count = |is: &dyn Fn(&State) -> bool| all.iter().filter(|site| is(&site.state)).count();
    let (off, on) = (count(&|state| *state == State::Off), count(&|state| matches!(state, State::On { .. })));
    let totals = Totals { off, on, strange: all.len() - off - on };
    let code = if totals.strange > 0 { STRANGE } else { DONE };
    let shown: Vec<&RunningSite> = all.iter().filter(|site| site.state != State::Off).collect();
    match format {
        Format::Human => ui.out(human(&shown, &totals))?,
        Format::Json => {
            ui.out(tool::printed::json(&Listing { version: env!("CARGO_PKG_VERSION"), totals, sites: shown })?)?;
        }
    }
    Ok(code)
}

fn human(sites: &[&RunningSite], totals: &Totals) -> String {
    let mut out = String::new();
    for site in sites {
        let does = match &site.state {
            State::Off => "off".to_owned(),
            State::On { target, jump, calls } => {
                let calls = calls.as_ref().map_or(String::new(), |calls| format!(", which calls {}", printable(calls)));
                format!("{} {}{calls}", if *jump { "jumps to" } else { "calls" }, printable(target))
            }
            State::BeingWritten => "is being written: a breakpoint stands there".to_owned(),
            State::Elsewhere { target } => {
                format!("goes to {}, which is no trampoline that the kernel names", printable(target))
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:016x} {:<24} {does}", site.ip, printable(&site.function));
    }
    let _ = writeln!(out, "{} sites on, {} off, {} in another state", totals.on, totals.off, totals.strange);
    out
}
