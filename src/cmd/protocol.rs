//! `check --sites`: how sites are written, judged by itself.

use std::fmt::Write as _;

use codegen::error::Result;
use emu_tests::judge_sites;
use tool::settings;

use super::args::ProfileArg;
use super::exit::DONE;
use super::ui::Ui;

/// Exit code: a sequence leads elsewhere.
const FAILED: u8 = 1;

/// Judge the sites of these architectures.
///
/// # Errors
/// An unknown name, or an engine that does not start.
pub fn run(arch: &str, profile: &ProfileArg, ui: &Ui) -> Result<u8> {
    let profile = profile.find()?;
    let (mut out, mut failed) = (String::new(), false);
    for backend in settings::backends(arch, profile)? {
        let name = backend.facts().name;
        let convention = profile.convention(name)?;
        let sites = judge_sites(backend, convention)?;
        failed |= sites.failed > 0;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{name}, profile {}: {} places of site, entry trampoline and target, {} of them out of reach; {} sequences, {} lead \
             elsewhere",
            profile.name, sites.places, sites.refused, sites.sequences, sites.failed
        );
        for astray in &sites.astray {
            let bytes: Vec<String> = astray.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let may: Vec<String> = astray.expected.iter().map(|at| format!("{at:#x}")).collect();
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
    }
    ui.out(out)?;
    Ok(if failed { FAILED } else { DONE })
}
