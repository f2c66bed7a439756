//! `cost --table`: the kernel's own trampolines beside those of ours that promise the same, as results/cost.md has them.

use std::path::Path;

use codegen::ask::live::Live;
use codegen::ask::spec::{Around, Direct, Form, Kind};
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::profile::target::Target;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};
use emu_tests::Suite;
use serde::Deserialize;
use tool::backend;
use tool::settings::{setting, target};
use tool::spending::{Way, distinct, kernels, ours, ways};

/// What is compared, as data.
const TABLE: &str = include_str!("table.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    group: Vec<Group>,
}

/// Objects of the kernel that are compared alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// The kernel that the objects are of.
    profile: String,
    arch: String,
    contracts: Vec<Theirs>,
    pairs: Vec<Pair>,
}

/// A contract of theirs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Theirs {
    name: String,
    /// Options with which ours promise the same.
    #[serde(default)]
    settings: Vec<String>,
}

/// A trampoline of ours, and what does the same in the kernel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Pair {
    ours: Ours,
    /// Object and symbol: one, or two of which both run for each call.
    theirs: Vec<(String, String)>,
    /// Why ours spends more somewhere; empty if it does not.
    #[serde(default)]
    why: String,
    /// The contract with which it does, if only with one.
    why_with: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ours {
    Named(String),
    /// `around` with this form.
    Graph(String),
    /// `direct --sig`, of a function with so many arguments of one register.
    Tailored(usize),
    /// `direct --ip --args`.
    Ip(u8),
}

impl Ours {
    fn kind(&self, target: &Target) -> Result<Kind> {
        let abi = &target.facts.abi;
        Ok(match self {
            Ours::Named(name) => {
                let valid = || target.convention.specs().map(|spec| spec.name);
                target.convention.kind(name).ok_or_else(|| Error::unknown("trampoline in table.toml", name, valid()))?
            }
            Ours::Graph(name) => {
                let form = Form::named(name).map_err(|e| e.at("table.toml"))?;
                Kind::Around(Around { form, args: abi.args.len() as u8, general_handlers: false })
            }
            &Ours::Tailored(args) => {
                let regs = RegSet::of(abi.args.get(..args).unwrap_or(abi.args));
                let live = Some(Live { regs, ..Live::default() });
                Kind::Direct(Direct { args: args as u8, live, ..Direct::default() })
            }
            &Ours::Ip(args) => Kind::Direct(Direct { args, ip: true, ..Direct::default() }),
        })
    }

    fn name(&self) -> String {
        match self {
            Ours::Named(name) => format!("`{name}`"),
            Ours::Graph(form) => format!("`around --form {form}`"),
            Ours::Tailored(args) => format!("`direct --sig`, {args} argument{}", if *args == 1 { "" } else { "s" }),
            Ours::Ip(args) => format!("`direct --args {args} --ip`"),
        }
    }
}

const HEAD: &str = "\
# What trampolines spend

What `tramptool cost --table` prints: the kernel's own (`cargo xtask kernel-objects`), and below each that of ours which
promises the same, counted while they run in the emulator. Executed instructions, loads and stores (8-byte slots) and bytes
of stack are those of the trampoline; what it calls is not counted. Mispredicted returns, and calls less returns, are those
of the whole traced call, on a model of the return-address stack: a call that is left over, or one too many taken,
makes the returns of all callers above go wrong.
";

/// The table, with the kernel's rows as far as its objects are there.
///
/// # Errors
/// A trampoline that cannot be generated, an object that cannot be run.
pub fn table() -> Result<String> {
    let table: Table = toml::from_str(TABLE).map_err(|e| Error::new(format!("src/cmd/cost/table.toml: {e}")))?;
    let mut out = HEAD.to_owned();
    for group in &table.group {
        let profile = tool::profile(&group.profile)?;
        for contract in &group.contracts {
            out += &section(backend(&group.arch)?, profile, contract, &group.pairs)?;
        }
    }
    Ok(out)
}

/// The rows of one contract of theirs.
fn section(
    backend: &'static dyn Backend,
    profile: &'static Profile,
    contract: &Theirs,
    pairs: &[Pair],
) -> Result<String> {
    let settings = contract.settings.iter().map(|s| setting(s)).collect::<Result<Vec<_>>>()?;
    let target = target(backend, profile.convention(backend.facts().name)?, &settings)?;
    let with = if settings.is_empty() { String::new() } else { format!(", ours with {}", contract.settings.join(" ")) };
    let mut out = format!("\n## {}{with}\n\n", contract.name);
    out += "| | way | executed | loads | stores | stack | mispredicted | calls left | why more |\n";
    out += "|---|---|--:|--:|--:|--:|--:|--:|---|\n";
    let suites: Vec<Suite> = kernels(backend, profile)?
        .into_iter()
        .filter(|(name, _)| *name == contract.name)
        .map(|(_, suite)| suite)
        .collect();
    for pair in pairs {
        let kernel = kernel(&suites, pair)?;
        let name: Vec<String> = pair.theirs.iter().map(|(_, symbol)| format!("`{symbol}`")).collect();
        let why = if pair.why_with.as_ref().is_none_or(|with| *with == contract.name) { &pair.why } else { "" };
        for way in &distinct(ours(pair.ours.kind(&target)?, &[], &target)?) {
            // Where the return is hooked, it is so in that situation only.
            let same = |p: &&Way| p.way == way.way || (p.way == HOOKED && way.way == PLAIN);
            if let Some(theirs) = kernel.iter().find(same) {
                out += &line(&format!("kernel's {}", name.join(", ")), &way.way, theirs, "");
            }
            out += &line(&pair.ours.name(), &way.way, way, why);
        }
    }
    Ok(out)
}

const PLAIN: &str = "plain";
const HOOKED: &str = "parent";

/// What the kernel's side of a pair spends in each situation; nothing without its objects.
fn kernel(suites: &[Suite], pair: &Pair) -> Result<Vec<Way>> {
    let mut sum: Option<Vec<Way>> = None;
    let is_file = |path: &str, object: &str| Path::new(path).file_stem().is_some_and(|stem| stem == object);
    for (object, symbol) in &pair.theirs {
        let of = |s: &&Suite| {
            s.contracts.iter().any(|c| c.name == *symbol) && s.objects.iter().any(|(path, _)| is_file(path, object))
        };
        let Some(suite) = suites.iter().find(of) else { return Ok(Vec::new()) };
        let found = ways(emu_tests::spent(suite, symbol)?.1);
        sum = Some(match sum {
            None => found,
            Some(before) => {
                let entry = before.iter().find(|p| p.way == HOOKED);
                let both = entry.into_iter().zip(found).map(|(entry, exit)| Way {
                    executed: entry.executed + exit.executed,
                    loads: entry.loads + exit.loads,
                    stores: entry.stores + exit.stores,
                    stack: entry.stack.max(exit.stack),
                    ..exit
                });
                both.collect()
            }
        });
    }
    Ok(sum.unwrap_or_default())
}

fn line(name: &str, way: &str, p: &Way, why: &str) -> String {
    let cell = |n: Option<i64>| n.map_or("-".to_owned(), |n| n.to_string());
    let (stack, mispredicted) = (cell(p.stack.map(i64::from)), cell(p.mispredicted_returns.map(i64::from)));
    let left = cell(p.return_stack_imbalance.map(i64::from));
    let Way { executed, loads, stores, .. } = p;
    format!("| {name} | {way} | {executed} | {loads} | {stores} | {stack} | {mispredicted} | {left} | {why} |\n")
}
