//! `cost`: what trampolines spend, beside the least that their contracts allow and what the kernel's own spend.

mod table;

use std::path::PathBuf;

use clap::Args;
use codegen::ask::frame::Content;
use codegen::ask::spec::{Kind, Spec};
use codegen::backend::Backend;
use codegen::contract::Contract;
use codegen::out::cost::{Bound, Cost, PathCost};
use codegen::out::text::TextListing;
use codegen::profile::target::Target;
use codegen::words::abi::Loc;
use codegen::words::error::{Error, Result};
use emu_tests::Suite;
use serde::Serialize;
use tool::asked::DIRECT;
use tool::report::page::of_costs;
use tool::report::{COLUMNS, paragraph, printable};
use tool::request::{all, trampoline};
use tool::settings::{backends, setting, settings_of, target};
use tool::spending::{Way, distinct, kernels, ours, ways};

use crate::cmd::shared::args::{DirectArgs, ProfileArg};
use crate::cmd::shared::exit::DONE;
use crate::cmd::shared::foreign::{ForeignArgs, no_files};
use crate::cmd::shared::output;
use crate::cmd::shared::sandbox::SandboxArg;
use crate::cmd::shared::ui::{Style, Ui, Written};

/// Arguments of `cost`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CostArgs {
    /// Trampolines by name, or `direct`, `around`, `programs`, `record` or `sled` [default: all that have a name; `direct` with --call]
    #[arg(value_name = "TRAMPOLINE")]
    trampolines: Vec<String>,
    /// Architecture, or `all`
    #[arg(long, value_name = "ARCH", default_value = "all")]
    arch: String,
    /// Set an option, or a number of the profile
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    profile: ProfileArg,
    #[command(flatten)]
    direct: DirectArgs,
    #[command(flatten)]
    foreign: ForeignArgs,
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Write the table of results/cost.md: each of the kernel's trampolines beside ours with the same contract
    #[arg(long, exclusive = true)]
    table: bool,
    /// The output's format
    #[arg(long, value_enum, default_value = "human")]
    format: Written,
    /// Write it to a file instead of stdout
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
The emulator runs each path and counts; called functions are not counted. Returns are those of the whole traced call: \
the mispredicted ones, and the entries left on the return-address stack. The bound follows from the contract alone: every \
preserved register passes through memory once, and the callback's struct is filled once. The kernel's own code is \
counted if `cargo xtask kernel-objects` has built it.

Examples:
  tramptool cost
  tramptool cost ftrace_caller --arch arm64 --format json
  tramptool cost --sig 'void kfree_skb(struct sk_buff *skb)' --call my_func --arch x86_64
  tramptool cost --object my.o --contract my.toml
  tramptool cost --table";

/// A trampoline that others wrote.
#[derive(Serialize)]
struct Others {
    contract: String,
    trampoline: String,
    bytes: u64,
    ways: Vec<Way>,
}

/// A generated one.
#[derive(Serialize)]
struct Entry {
    arch: &'static str,
    trampoline: String,
    options: String,
    cost: Cost,
    bound: Bound,
    ways: Vec<Way>,
    /// Bytes and what they are for.
    stack: Vec<String>,
    above_bound: Vec<String>,
    kernel: Vec<Others>,
}

/// Print costs.
///
/// # Errors
/// A trampoline that cannot be generated, an object that cannot be run.
pub fn run(args: &CostArgs, ui: &Ui) -> Result<u8> {
    if args.table {
        return ui.out(table::table()?).map(|()| DONE);
    }
    if let Some(suites) =
        args.foreign.suites(args.foreign.contract(&args.profile)?.as_ref(), &args.arch, &args.profile)?
    {
        let name = "given";
        let _threads = args.sandbox.enter(args.output.as_deref())?;
        let all = suites.iter().map(|s| s.contracts.iter().map(|c| others(s, c, name)).collect::<Result<Vec<_>>>());
        let all: Vec<Others> = all.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let text = match args.format {
            Written::Json => tool::report::json(&all)?,
            Written::Html => of_costs(value(&all)?)?,
            Written::Human => {
                let table = Table { width: columns(args, ui) };
                table.heading() + &all.iter().map(|others| table.others(others)).collect::<String>()
            }
        };
        return output::report(text, args.output.as_deref(), ui).map(|()| DONE);
    }
    let names: Vec<String> =
        match (args.trampolines.is_empty(), args.direct.call.is_some() || args.direct.sig.is_some()) {
            (true, true) => vec![DIRECT.to_owned()],
            _ => args.trampolines.clone(),
        };
    no_files(&args.trampolines)?;
    let asked = args.direct.asked();
    asked.refuse_without(&names)?;
    let profile = args.profile.find()?;
    let backends = backends(&args.arch, profile)?;
    let settings = args.set.iter().map(|s| setting(s)).collect::<Result<Vec<_>>>()?;
    let mut entries = Vec::new();
    for &backend in &backends {
        let convention = profile.convention(backend.facts().name)?;
        let target = target(backend, convention, &settings_of(profile, backend, &backends, &settings))?;
        let kernel = kernels(backend, profile)?;
        let requests = match names.is_empty() {
            true => all(&target),
            false => names.iter().map(|n| trampoline(n, &asked, &target)).collect::<Result<Vec<_>>>()?,
        };
        for request in &requests {
            entries.push(entry(backend, &target, &request.spec(), &kernel)?);
        }
    }
    let text = match args.format {
        Written::Json => tool::report::json(&entries)?,
        Written::Html => of_costs(value(&entries)?)?,
        Written::Human => {
            let table = Table { width: columns(args, ui) };
            entries.iter().map(|e| table.human(e, ui)).collect::<Vec<_>>().join("\n")
        }
    };
    output::report(text, args.output.as_deref(), ui).map(|()| DONE)
}

fn value(all: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(all).map_err(|e| Error::new(format!("JSON: {e}")))
}

fn entry(backend: &dyn Backend, target: &Target, spec: &Spec, kernel: &[(String, Suite)]) -> Result<Entry> {
    let TextListing { cost, contract, .. } = backend.text(spec, target)?;
    let bound = Bound::of(&contract, target);
    let same = |c: &Contract| match (c.kind, spec.kind) {
        // As many arguments; that theirs are known to be of one function makes no difference.
        (Kind::Direct(theirs), Kind::Direct(ours)) => (theirs.args, theirs.ip) == (ours.args, ours.ip),
        (theirs, ours) => theirs == ours,
    };
    let mut found = Vec::new();
    for (name, suite) in kernel {
        for theirs in suite.contracts.iter().filter(|c| same(c)) {
            found.push(others(suite, theirs, name)?);
        }
    }
    Ok(Entry {
        arch: target.facts.name,
        trampoline: spec.name.to_owned(),
        options: target.describe(),
        stack: stack(&cost, &contract),
        above_bound: above(&cost, &bound, &contract, target),
        ways: all_ways(spec, target, &cost)?,
        cost,
        bound,
        kernel: found,
    })
}

/// Why the plain way spends more than it must.
fn above(cost: &Cost, bound: &Bound, contract: &Contract, target: &Target) -> Vec<String> {
    let mut reasons = Vec::new();
    let Some(plain) = cost.paths.first() else { return reasons };
    let site = &target.convention.site;
    let mut tell = |spent: u32, least: u32, what: &str, why: &[(bool, &str)]| {
        if spent > least {
            let why: Vec<&str> = why.iter().filter(|(holds, _)| *holds).map(|(_, why)| *why).collect();
            let n = spent - least;
            let what = if n == 1 { what.trim_end_matches('s') } else { what };
            reasons.push(format!("{n} more {what} than the bound: {}", why.join("; ")));
        }
    };
    let on_stack = |loc| matches!(loc, Loc::Stack(_));
    let in_struct = !contract.frame.c_struct.is_empty();
    let pushed = in_struct && contract.kind.attaches() && !contract.kind.jumped_to() && on_stack(site.parent_ip);
    tell(
        plain.loads,
        bound.loads,
        "loads",
        &[
            (in_struct && !contract.kind.returned_to(), "pointers for the callback are read from memory"),
            (pushed, "what the site pushed passes through a register on its way to the struct and back"),
            (contract.kind.returned_to(), "the parent's address passes through memory, to be returned to"),
        ],
    );
    tell(
        plain.stores,
        bound.stores,
        "stores",
        &[
            (pushed, "what the site pushed is written back"),
            (contract.kind.returned_to(), "the parent's address passes through memory, to be returned to"),
        ],
    );
    tell(
        cost.stack.max(0) as u32,
        bound.stack.max(0) as u32,
        "bytes of stack",
        &[
            (contract.kind.live().is_some_and(|l| l.saved_vectors() > 0), "vector registers have aligned slots"),
            (contract.kind.returned_to(), "the call that the return is paired with"),
            (contract.realigned, "sp is aligned for the call"),
        ],
    );
    reasons
}

fn others(suite: &Suite, contract: &Contract, name: &str) -> Result<Others> {
    let (bytes, spent) = emu_tests::spent(suite, &contract.name)?;
    if contract.kind.is_called() && spent.is_empty() {
        let (symbol, kind) = (&contract.name, contract.kind.traits().word);
        return Err(Error::new(format!(
            "{symbol}, of kind {kind}: no traced function leads to it, and its costs are not counted"
        )));
    }
    let (contract, trampoline) = (name.to_owned(), contract.name.clone());
    Ok(Others { contract, trampoline, bytes, ways: distinct(ways(spent)) })
}

/// The ways through a generated trampoline, of which a label leads to each.
fn all_ways(spec: &Spec, target: &Target, cost: &Cost) -> Result<Vec<Way>> {
    let found = ours(spec.kind, spec.programs, target)?;
    if !found.is_empty() {
        return Ok(distinct(found));
    }
    // Nothing goes through it here: it is a callback, or for functions such as there are none.
    let way = |p: &PathCost| Way {
        way: p.path.to_owned(),
        executed: p.executed,
        loads: p.loads,
        stores: p.stores,
        stack: None,
        mispredicted_returns: None,
        return_stack_imbalance: None,
        ended: true,
    };
    Ok(cost.paths.iter().map(way).collect())
}

const HEADING: &str = "executed  loads stores  stack  saved  bytes mispredicted  imbalance";
/// Columns of a name: where there is room, and where there is little.
const NAME: [usize; 2] = [58, 9];

/// Columns of a line, of a terminal or of a file.
fn columns(args: &CostArgs, ui: &Ui) -> usize {
    if args.output.is_none() { ui.columns() } else { COLUMNS }
}

/// Costs in lines of so many columns.
struct Table {
    width: usize,
}

impl Table {
    /// Columns of a name.
    fn name(&self) -> usize {
        let [most, least] = NAME;
        self.width.saturating_sub(HEADING.len() + 2).clamp(least, most)
    }

    fn heading(&self) -> String {
        format!("{HEADING:>0$}\n", HEADING.len() + 2 + self.name())
    }

    /// A name that has no room beside the figures stands above them.
    fn figures(&self, name: &str, figures: &str) -> String {
        let width = self.name();
        match name.chars().count() <= width {
            true => format!("  {name:<width$}{figures}\n"),
            false => paragraph(name, self.width, "  ", "    ") + &format!("  {:width$}{figures}\n", ""),
        }
    }

    fn row(&self, name: &str, p: &Way, saved: Option<u32>, bytes: Option<u64>) -> String {
        let cell = |c: Option<i64>| c.map_or("-".to_owned(), |n| n.to_string());
        let (saved, bytes, stack) = (saved.map(i64::from), bytes.map(|b| b as i64), p.stack.map(i64::from));
        let [saved, bytes, stack, wrong] = [saved, bytes, stack, p.mispredicted_returns.map(i64::from)].map(cell);
        let left = cell(p.return_stack_imbalance.map(i64::from));
        let Way { executed, loads, stores, .. } = p;
        let name = printable(name) + if p.ended { "" } else { ": did not come back" };
        self.figures(
            &name,
            &format!("{executed:>8} {loads:>6} {stores:>6} {stack:>6} {saved:>6} {bytes:>6} {wrong:>12} {left:>10}"),
        )
    }

    fn human(&self, e: &Entry, ui: &Ui) -> String {
        let title = paragraph(&format!("{} {}, {}", e.arch, e.trampoline, e.options), self.width, "", "  ");
        let mut out = title.lines().map(|line| ui.paint(Style::Heading, line) + "\n").collect::<String>();
        out += &self.heading();
        for (i, p) in e.ways.iter().enumerate() {
            let once = |n: u32| Some(n).filter(|_| i == 0);
            out += &self.row(&p.way, p, once(e.cost.saved), once(e.cost.bytes).map(u64::from));
        }
        if let Some(times) = e.cost.paths.first().map(|p| p.clock).filter(|times| *times > 0) {
            out += &format!("  readings of the CPU's clock on the plain way: {times}\n");
        }
        let Bound { saved, stack, loads, stores } = e.bound;
        let bound = format!("{:>8} {loads:>6} {stores:>6} {stack:>6} {saved:>6}", "-");
        out += &self.figures("at least, by the contract", &bound);
        e.kernel.iter().for_each(|k| out += &self.others(k));
        if !e.stack.is_empty() {
            out += &paragraph(&format!("stack: {}", e.stack.join(", ")), self.width, "  ", "    ");
        }
        for why in &e.above_bound {
            let why = paragraph(why, self.width, "  ", "    ");
            out += &why.lines().map(|line| ui.paint(Style::Quiet, line) + "\n").collect::<String>();
        }
        out
    }

    fn others(&self, others: &Others) -> String {
        let row_of = |(i, p): (usize, &Way)| {
            let name = format!("{} {}, {}", others.contract, others.trampoline, p.way);
            self.row(&name, p, None, Some(others.bytes).filter(|_| i == 0))
        };
        others.ways.iter().enumerate().map(row_of).collect()
    }
}

/// Where the bytes of stack go.
fn stack(cost: &Cost, contract: &Contract) -> Vec<String> {
    let (frame, abi) = (&contract.frame, &contract.facts.abi);
    let calls = !contract.callee.is_empty() || !contract.programs.is_empty();
    // What two have, at different times, is the first one's. A record may end where the site pushed the rest of it.
    let mut taken = vec![false; frame.size.max(0) as usize / 8];
    let mut take = |from: i32, bytes: i32| {
        let words = taken.iter_mut().skip(from as usize / 8).take(bytes as usize / 8);
        8 * words.map(|word| i32::from(!std::mem::replace(word, true))).sum::<i32>()
    };
    let mut parts = vec![(take(0, frame.c_size), frame.c_struct)];
    for record in &frame.records {
        parts.push((take(record.offset, 16), "frame records, for stack traces"));
    }
    for field in frame.fields.iter().filter(|f| !f.in_record) {
        let what = match field.content {
            Content::Reg(_) => "registers",
            Content::Result(_) => "results",
            Content::Vector(_) | Content::VectorResult(_) => "vector registers",
            Content::StackWord(_) => "stack arguments, to be read",
            Content::Pc | Content::ParentIp => "the way back",
            _ => "what else is in the context",
        };
        parts.push((take(field.offset, field.bytes(contract.facts.abi.vector_bytes as i32)), what));
    }
    parts.push((take(0, 8 * contract.kind.copied_words()), "stack arguments once more"));
    parts.push((if contract.flags_kept { 8 } else { 0 }, "flags"));
    parts.push((if abi.link.is_none() && calls { 8 } else { 0 }, "the call's return address"));
    let known: i32 = parts.iter().map(|(bytes, _)| bytes).sum();
    parts.push((cost.stack - known, "alignment"));
    let mut sums: Vec<(i32, &str)> = Vec::new();
    for (bytes, what) in parts.into_iter().filter(|(bytes, _)| *bytes > 0) {
        match sums.iter_mut().find(|(_, other)| *other == what) {
            Some((sum, _)) => *sum += bytes,
            None => sums.push((bytes, what)),
        }
    }
    sums.into_iter().map(|(bytes, what)| format!("{bytes} {what}")).collect()
}
