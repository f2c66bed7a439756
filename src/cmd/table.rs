//! `cost --table`: the kernel's own trampolines beside those of ours that promise the same, as docs/cost.md has them.

use std::path::Path;

use codegen::abi::RegSet;
use codegen::error::{Error, Result};
use codegen::live::Live;
use codegen::profile::Profile;
use codegen::spec::{Around, Direct, Form, Kind, Regs};
use codegen::target::Target;
use emu_tests::Suite;
use tramptool::BACKENDS;
use tramptool::settings::{setting, target};
use tramptool::spending::{Way, distinct, kernels, ours, ways};

/// Objects of the kernel, by their contract.
struct Group {
    contract: &'static str,
    /// Options with which ours promise the same.
    settings: &'static [&'static str],
    pairs: &'static [Pair],
}

/// A trampoline of ours, and what does the same in the kernel.
struct Pair {
    ours: Ours,
    /// Object and symbol: one, or two of which both run for each call.
    theirs: &'static [(&'static str, &'static str)],
    /// Why ours spends more somewhere; empty if it does not.
    why: &'static str,
}

enum Ours {
    Named(Kind),
    /// `around` with this form.
    Graph(Form),
    /// `direct --sig`, of a function with so many arguments of one register.
    Tailored(usize),
    /// `direct --ip --args`.
    Ip(u8),
}

const STUB: Ours = Ours::Named(Kind::StubDirect);
const CALLER: Ours = Ours::Named(Kind::Entry(Regs::Args));
const REGS_CALLER: Ours = Ours::Named(Kind::Entry(Regs::All));
const RETURN: Ours = Ours::Named(Kind::Return);

const KEEPS_R11: &str = "r11 is loaded again; the kernel's loses it";
const WRITES_CS: &str = "`cs` is written; the kernel's leaves there what the stack held";
const KEEPS_FRAME: &str = "the frame stays while the function runs, with records that keep it in stack traces";
const ALIGNS: &str = "sp is aligned to 16 bytes, as C may expect; the kernel's is not";

const fn pair(ours: Ours, theirs: &'static [(&'static str, &'static str)], why: &'static str) -> Pair {
    Pair { ours, theirs, why }
}

const fn x86_64(graph: &'static str) -> [Pair; 6] {
    [
        pair(STUB, &[("ftrace_64", "ftrace_stub_direct_tramp")], ""),
        pair(CALLER, &[("ftrace_64", "ftrace_caller")], ""),
        pair(REGS_CALLER, &[("ftrace_64", "ftrace_regs_caller")], KEEPS_R11),
        pair(RETURN, &[("ftrace_64", "return_to_handler")], WRITES_CS),
        pair(Ours::Graph(Form::Fregs), X86_64_GRAPH, graph),
        pair(Ours::Graph(Form::Shadow), X86_64_GRAPH, ""),
    ]
}

const X86_64_GRAPH: &[(&str, &str)] = &[("ftrace_64", "ftrace_caller"), ("ftrace_64", "return_to_handler")];
const ARM64_GRAPH: &[(&str, &str)] = &[("entry-ftrace", "ftrace_caller"), ("entry-ftrace", "return_to_handler")];
const RISCV64_GRAPH: &[(&str, &str)] = &[("mcount-dyn", "ftrace_caller"), ("mcount", "return_to_handler")];

const ARM64: [Pair; 4] = [
    pair(CALLER, &[("entry-ftrace", "ftrace_caller")], ""),
    pair(RETURN, &[("entry-ftrace", "return_to_handler")], ""),
    pair(Ours::Graph(Form::Fregs), ARM64_GRAPH, ""),
    pair(Ours::Graph(Form::Shadow), ARM64_GRAPH, ""),
];

const RISCV64: [Pair; 5] = [
    pair(STUB, &[("mcount", "ftrace_stub_direct_tramp")], ""),
    pair(CALLER, &[("mcount-dyn", "ftrace_caller")], ""),
    pair(RETURN, &[("mcount", "return_to_handler")], ""),
    pair(Ours::Graph(Form::Fregs), RISCV64_GRAPH, KEEPS_FRAME),
    pair(Ours::Graph(Form::Shadow), RISCV64_GRAPH, ""),
];

/// Of `ftrace-direct-too`, how many arguments are saved.
const fn samples(too: usize, [none, one, more, ip]: [&'static str; 4]) -> [Pair; 4] {
    [
        pair(Ours::Tailored(0), &[("ftrace-direct-modify", "my_tramp1")], none),
        pair(Ours::Tailored(1), &[("ftrace-direct", "my_tramp")], one),
        pair(Ours::Tailored(too), &[("ftrace-direct-too", "my_tramp")], more),
        pair(Ours::Ip(1), &[("ftrace-direct-multi", "my_tramp")], ip),
    ]
}

const X86_64_SAMPLES: [&str; 4] = ["", "", "", "ip is passed, and the argument; the kernel's passes pc alone"];
const ARM64_SAMPLES: [&str; 4] =
    ["", "", "", "ip is passed, and the argument, and x8 is kept; the kernel's passes pc alone"];
const RISCV64_SAMPLES: [&str; 4] =
    ["", ALIGNS, ALIGNS, "ip is passed, and the argument, with sp aligned; the kernel's passes pc alone"];

const GROUPS: &[Group] = &[
    Group { contract: "linux-6.12-x86_64-orc", settings: &["endbr=off"], pairs: &x86_64(KEEPS_FRAME) },
    Group { contract: "linux-6.12-x86_64-fp", settings: &["endbr=off", "unwinder=fp"], pairs: &x86_64("") },
    Group { contract: "linux-6.12-samples-x86_64", settings: &["endbr=off"], pairs: &samples(4, X86_64_SAMPLES) },
    Group { contract: "linux-6.12-arm64", settings: &["call-ops=off"], pairs: &ARM64 },
    Group { contract: "linux-6.12-arm64-call-ops", settings: &[], pairs: &ARM64 },
    Group { contract: "linux-6.12-samples-arm64", settings: &["frame-records=off"], pairs: &samples(4, ARM64_SAMPLES) },
    Group { contract: "linux-6.12-riscv64", settings: &[], pairs: &RISCV64 },
    Group { contract: "linux-6.12-riscv64-norvc", settings: &["rvc=off"], pairs: &RISCV64 },
    Group { contract: "linux-6.12-samples-riscv64", settings: &[], pairs: &samples(3, RISCV64_SAMPLES) },
];

impl Ours {
    fn kind(&self, target: &Target) -> Kind {
        let abi = &target.facts.abi;
        match *self {
            Ours::Named(kind) => kind,
            Ours::Graph(form) => Kind::Around(Around { form, args: abi.args.len() as u8 }),
            Ours::Tailored(args) => {
                let regs = RegSet::of(abi.args.get(..args).unwrap_or(abi.args));
                Kind::Direct(Direct { args: args as u8, ip: false, live: Some(Live { regs, ..Live::default() }) })
            }
            Ours::Ip(args) => Kind::Direct(Direct { args, ip: true, live: None }),
        }
    }

    fn name(&self, target: &Target) -> String {
        match self {
            Ours::Named(kind) => format!("`{}`", target.convention.symbol(*kind).unwrap_or_default()),
            Ours::Graph(form) => format!("`around --form {}`", form.name()),
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

/// The profile whose name the name of a contract begins with.
fn profile_of(contract: &str) -> Result<&'static Profile> {
    let name = profiles::names().into_iter().find(|name| contract.starts_with(name));
    tramptool::profile(name.unwrap_or(profiles::DEFAULT))
}

/// The table, with the kernel's rows as far as its objects are there.
///
/// # Errors
/// A trampoline that cannot be generated, an object that cannot be run.
pub fn table() -> Result<String> {
    let mut out = HEAD.to_owned();
    for group in GROUPS {
        let backend = BACKENDS.iter().copied().find(|b| group.contract.contains(b.facts().name));
        let backend = backend.ok_or_else(|| Error::new(format!("{}: no such architecture", group.contract)))?;
        let settings = group.settings.iter().map(|s| setting(s)).collect::<Result<Vec<_>>>()?;
        let profile = profile_of(group.contract)?;
        let target = target(backend, profile.convention(backend.facts().name)?, &settings)?;
        let with =
            if settings.is_empty() { String::new() } else { format!(", ours with {}", group.settings.join(" ")) };
        out += &format!("\n## {}{with}\n\n", group.contract);
        out += "| | way | executed | loads | stores | stack | mispredicted | calls left | why more |\n";
        out += "|---|---|--:|--:|--:|--:|--:|--:|---|\n";
        let suites: Vec<Suite> = kernels(backend, profile)?
            .into_iter()
            .filter(|(name, _)| name == group.contract)
            .map(|(_, suite)| suite)
            .collect();
        for pair in group.pairs {
            let kernel = kernel(&suites, pair)?;
            let name: Vec<String> = pair.theirs.iter().map(|(_, symbol)| format!("`{symbol}`")).collect();
            for way in &distinct(ours(pair.ours.kind(&target), &[], &target)?) {
                // Where the return is hooked, it is so in that situation only.
                let same = |p: &&Way| p.way == way.way || (p.way == HOOKED && way.way == PLAIN);
                if let Some(theirs) = kernel.iter().find(same) {
                    out += &line(&format!("kernel's {}", name.join(", ")), &way.way, theirs, "");
                }
                out += &line(&pair.ours.name(&target), &way.way, way, pair.why);
            }
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
    for (object, symbol) in pair.theirs {
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
