//! `sites`: what in a file can be traced, and what is traced in a kernel.

#[cfg(feature = "judge")]
mod running;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use codegen::backend::Backend;
use codegen::words::error::Result;
use link::Input;
use link::sites::{DROPPED, ListedSite};
use serde::Serialize;
use tool::printed::printable;

use crate::cmd::shared::compressed;
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::ui::{Format, Style, Ui};

/// Arguments of `sites`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SitesArgs {
    /// A vmlinux, module, object, shared library or program, also compressed with gzip, xz or zstd
    #[cfg_attr(feature = "judge", arg(value_name = "FILE", required_unless_present_any = ["running", "kcore"]))]
    #[cfg_attr(not(feature = "judge"), arg(value_name = "FILE", required = true))]
    file: Option<PathBuf>,
    /// What each site does of the kernel whose memory this is: /proc/kcore, or an ELF core file made of it
    #[cfg(feature = "judge")]
    #[arg(long, value_name = "FILE", requires = "kallsyms", conflicts_with_all = ["file", "running"])]
    kcore: Option<PathBuf>,
    /// The symbols of that kernel: a copy of its /proc/kallsyms that shows addresses
    #[cfg(feature = "judge")]
    #[arg(long, value_name = "FILE", requires = "kcore")]
    kallsyms: Option<PathBuf>,
    /// The same for the kernel that runs here: root can read its memory. Nothing is written
    #[cfg(feature = "judge")]
    #[arg(long, conflicts_with = "file")]
    running: bool,
    /// The output's format
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

const EXAMPLES: &str = "\
Reads __mcount_loc, __patchable_function_entries and the XRay map. In a kernel without symbols (extract-vmlinux) \
it finds the list by its contents. `live` is the number that the kernel prints at boot: \"ftrace: allocating N entries\".

Examples:
  tramptool sites vmlinux
  tramptool sites ftrace-direct.ko.xz --format json
  tramptool sites --running";

#[derive(Serialize)]
struct Listing<'a> {
    version: &'static str,
    arch: &'static str,
    totals: Totals,
    sites: Vec<Listed<'a>>,
}

/// A site, and what becomes of it.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    site: ListedSite<'a>,
    /// Every call of the function executes it; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    executed: Option<bool>,
}

/// Does every call of its function come to this entry? The code before it must lead there, and nowhere else.
fn executed(backend: &dyn Backend, site: &ListedSite) -> Result<Option<bool>> {
    match (site.kind, site.offset) {
        _ if site.function.is_empty() => Ok(None),
        ("entry" | "entry with arguments", 0) => Ok(Some(true)),
        ("entry" | "entry with arguments", _) => leads_there(backend, site),
        _ => Ok(None),
    }
}

/// The code before the site is straight. Without the judge's disassembler, that is not known.
#[cfg(not(feature = "judge"))]
fn leads_there(_: &dyn Backend, _: &ListedSite) -> Result<Option<bool>> {
    Ok(None)
}

/// The code before the site is straight.
#[cfg(feature = "judge")]
fn leads_there(backend: &dyn Backend, site: &ListedSite) -> Result<Option<bool>> {
    let lines = emu_tests::disassemble(backend.machine(), site.ahead, 0)?;
    let straight = lines.iter().all(|line| !line.last && !line.jumps && !line.leaves);
    let end = lines.last().map(|line| line.offset + line.size);
    Ok(Some(straight && end == Some(site.ahead.len()) && site.ahead.len() as u64 == site.offset))
}

#[derive(Serialize)]
struct Totals {
    /// Entries of all lists.
    entries: usize,
    /// Those that are not 0.
    live: usize,
    /// Those that can be patched.
    patchable: usize,
    /// The others, by reason.
    refused: BTreeMap<&'static str, usize>,
}

/// List.
///
/// # Errors
/// The file cannot be read, is damaged or for another machine, or lists no sites.
pub fn run(args: &SitesArgs, ui: &Ui) -> Result<u8> {
    #[cfg(feature = "judge")]
    if let Some(kernel) = running::kernel(args.kcore.as_deref().zip(args.kallsyms.as_deref()), args.running)? {
        return running::run(&kernel, args.format, ui);
    }
    let file = args.file.as_deref().unwrap_or(Path::new(""));
    let name = file.display().to_string();
    let bytes = compressed::contents(file)?;
    let input = Input { name: &name, bytes: &bytes };
    let backend = tool::backend_of(&input)?;
    let sites = link::sites::sites(backend, &input)?;
    let mut refused = BTreeMap::new();
    for why in sites.iter().filter_map(|s| s.refused) {
        *refused.entry(why).or_insert(0) += 1;
    }
    let totals = Totals {
        entries: sites.len(),
        live: sites.len() - refused.get(DROPPED).unwrap_or(&0),
        patchable: sites.len() - refused.values().sum::<usize>(),
        refused,
    };
    let listed = |site| Ok(Listed { executed: executed(backend, &site)?, site });
    let sites: Vec<Listed> = sites.into_iter().map(listed).collect::<Result<_>>()?;
    match args.format {
        Format::Human => ui.out(human(&sites, &totals, ui))?,
        Format::Json => ui.out(tool::printed::json(&Listing {
            version: env!("CARGO_PKG_VERSION"),
            arch: backend.facts().name,
            totals,
            sites,
        })?)?,
    }
    Ok(DONE)
}

fn human(sites: &[Listed], totals: &Totals, ui: &Ui) -> String {
    let mut out = String::new();
    let mut list = "";
    // Writing to a String cannot fail.
    for Listed { site, executed } in sites {
        if site.list != list {
            list = site.list;
            let _ = writeln!(out, "{}", ui.paint(Style::Heading, list));
        }
        let place = match site.section {
            "" => format!("{:016x}", site.address),
            section => format!("{}+{:#x}", printable(section), site.address),
        };
        let function = match (site.function, site.offset) {
            ("", _) => "?".to_owned(),
            (name, 0) => printable(name),
            (name, offset) => format!("{}+{offset:#x}", printable(name)),
        };
        let bytes: Vec<String> = site.bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
        let more = if site.bytes.len() > bytes.len() { " ..." } else { "" };
        let mut why = site.refused.map_or(String::new(), |why| format!("; not patchable: {why}"));
        if *executed == Some(false) && site.refused.is_none() {
            why += "; not every call of the function comes here";
        }
        let what = if site.form.is_empty() { "?" } else { site.form };
        let _ = writeln!(out, "  {place:<16} {:<27} {function:<40} {}: {what}{why}", bytes.join(" ") + more, site.kind);
    }
    let Totals { entries, live, patchable, refused } = totals;
    let _ = writeln!(out, "{entries} entries, {live} live, {patchable} patchable");
    for (why, count) in refused {
        let _ = writeln!(out, "{count} not patchable: {why}");
    }
    out
}
