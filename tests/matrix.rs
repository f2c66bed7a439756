//! The whole matrix: every trampoline, architecture and option is run, every clause holds, and which of them were checked
//! is what tests/matrix says. docs/supported.md has the short form.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use codegen::arch::bare::Guard;
use codegen::arch::facts::Promise;
use codegen::arch::harden::ReturnGuard;
use codegen::backend::Backend;
use codegen::profile::target::{Returns, Target};
use common::{blessed, blessed_block};
use emu_tests::{Clause, Filter, Row, Verdict};

mod common;

/// What stands in a cell for a reason not to check a clause, by the reason's id. Others do not occur where all cases are run.
const MARKS: [(&str, &str); 16] = [
    ("-c", "as-callback"),
    ("-s", "no-site"),
    ("-a", "after-function"),
    ("-r", "before-function"),
    ("-k", "scratch-goes"),
    ("-u", "undescribed"),
    ("-l", "no-pads"),
    ("-t", "no-unpaired-return"),
    ("-n", "calls-nothing"),
    ("-x", "no-exceptions"),
    ("-m", "no-marks"),
    ("-g", "not-guarded"),
    ("-d", "decides-nothing"),
    ("-e", "engine-lacks"),
    ("-w", "way-not-taken"),
    ("-0", "not-in-cases"),
];

/// The mark of a reason, and its sentence.
fn marked(row: &Row) -> (&'static str, &'static str) {
    let reason = row.reason_id.unwrap_or_else(|| panic!("no id: {}", row.reason));
    let mark = MARKS.iter().find(|(_, id)| *id == reason.id());
    (mark.unwrap_or_else(|| panic!("a whole run leaves a clause unchecked: {}", reason.id())).0, reason.about())
}

fn cell(row: &Row) -> &'static str {
    match row.verdict {
        Verdict::Pass => "ok",
        Verdict::Deviates => "dev",
        Verdict::Fail => "fail",
        Verdict::Open => panic!("a whole run left open: {}", row.reason),
        Verdict::Skip => marked(row).0,
    }
}

/// The profile, and those options that have not their default in it.
fn under(backend: &dyn Backend, options: &str) -> (String, BTreeSet<String>) {
    let (profile, _) = tool::settings::of_options(options).unwrap();
    let convention = profile.convention(backend.facts().name).unwrap();
    let default = convention.describe(convention.defaults());
    let default: BTreeSet<&str> = default.split(' ').collect();
    let others = options.split(' ').filter(|o| !default.contains(o) && !o.starts_with("profile="));
    (profile.name.to_owned(), others.map(str::to_owned).collect())
}

/// What stands in the cells of a trampoline under some options: of those clauses that are asked of it.
type Cells = BTreeMap<Clause, &'static str>;

/// The verdicts on a trampoline in a profile: under the fewest options that it takes, and what options change of that.
#[derive(PartialEq)]
struct Verdicts {
    /// These options: none, unless the trampoline is there under others only.
    fewest: BTreeSet<String>,
    base: Cells,
    /// By the number of options: what these change, beyond what each part of them does.
    changes: Vec<(BTreeSet<String>, Cells)>,
    /// Sets of options.
    sets: usize,
}

impl Verdicts {
    fn of(sets: &BTreeMap<BTreeSet<String>, Cells>) -> Verdicts {
        let mut ordered: Vec<_> = sets.iter().collect();
        ordered.sort_by_key(|(options, _)| options.len());
        let (fewest, base) = (ordered[0].0.clone(), ordered[0].1.clone());
        let mut of = Verdicts { fewest, base, changes: Vec::new(), sets: sets.len() };
        for (options, cells) in ordered {
            let expected = of.under(options);
            let other = cells.iter().filter(|(clause, cell)| expected.get(clause) != Some(cell));
            let other: Cells = other.map(|(clause, cell)| (*clause, *cell)).collect();
            assert_eq!(cells.len(), expected.len(), "{options:?} ask for other clauses");
            if !other.is_empty() {
                of.changes.push((options.clone(), other));
            }
        }
        of
    }

    /// The cells under these options, as the base and the changes so far have it.
    fn under(&self, options: &BTreeSet<String>) -> Cells {
        let mut cells = self.base.clone();
        for (_, change) in self.changes.iter().filter(|(changed, _)| changed.is_subset(options)) {
            cells.extend(change);
        }
        cells
    }
}

/// A trampoline, and its profiles with what holds in them.
type Judged<'r> = (&'r str, Vec<(String, Verdicts)>);

fn judged<'r>(backend: &dyn Backend, rows: &[&'r Row]) -> Vec<Judged<'r>> {
    let mut all: Vec<Judged> = Vec::new();
    let mut sets: BTreeMap<(&str, String), BTreeMap<BTreeSet<String>, Cells>> = BTreeMap::new();
    let mut known: BTreeMap<&str, (String, BTreeSet<String>)> = BTreeMap::new();
    for row in rows {
        let (profile, options) = known.entry(&row.options).or_insert_with(|| under(backend, &row.options)).clone();
        if !all.iter().any(|(name, _)| *name == row.trampoline) {
            all.push((&row.trampoline, Vec::new()));
        }
        let cells = sets.entry((&row.trampoline, profile)).or_default().entry(options).or_default();
        assert_eq!(cells.insert(row.clause, cell(row)), None, "{row:?} twice");
    }
    for ((trampoline, profile), sets) in &sets {
        let at = all.iter_mut().find(|(name, _)| name == trampoline).unwrap();
        at.1.push((profile.clone(), Verdicts::of(sets)));
    }
    all
}

/// The clauses that the engine which is built in can decide. What an engine that enforces decides is in `tests/enforced.rs`.
fn columns() -> impl Iterator<Item = Clause> {
    Clause::ALL.into_iter().filter(|clause| *clause != Clause::P26)
}

fn heading(clause: Clause) -> &'static str {
    match clause {
        Clause::Wide => "wide",
        Clause::Coverage => "cov",
        clause => clause.name(),
    }
}

/// A row a trampoline with its default options, a column a clause; below it, what options change.
fn table(arch: &str, rows: &[&Row], judged: &[Judged]) -> String {
    let mut out = format!(
        "{arch}: the verdict of each clause on each trampoline. A row has the verdicts under the default options of\n\
         the profiles behind it, and how many sets of options were run; a line below it names options, and the verdicts\n\
         that they change. All other sets have the same verdicts. Written by `cargo xtask bless matrix`.\n\n\
         ok   it held, and was checked at least once\n\
         dev  it does not hold, as the contract says with a reason\n"
    );
    let skipped: BTreeMap<&str, &str> = rows.iter().filter(|r| r.verdict == Verdict::Skip).map(|r| marked(r)).collect();
    for (mark, _) in MARKS {
        if let Some(about) = skipped.get(mark) {
            writeln!(out, "{mark}   {about}").unwrap();
        }
    }
    out.push('\n');
    columns().for_each(|clause| write!(out, "{:>5}", heading(clause)).unwrap());
    out.push('\n');
    for (trampoline, profiles) in judged {
        writeln!(out, "\n{trampoline}").unwrap();
        let mut told: Vec<&Verdicts> = Vec::new();
        for (_, verdicts) in profiles {
            if told.contains(&verdicts) {
                continue;
            }
            told.push(verdicts);
            let same = profiles.iter().filter(|(_, others)| others == verdicts).map(|(profile, _)| profile.as_str());
            for clause in columns() {
                write!(out, "{:>5}", verdicts.base.get(&clause).unwrap_or(&"")).unwrap();
            }
            let fewest = verdicts.fewest.iter().map(|option| format!(", {option}")).collect::<String>();
            writeln!(out, "   {}{fewest}: {}", same.collect::<Vec<_>>().join(", "), verdicts.sets).unwrap();
            for (options, cells) in &verdicts.changes {
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                let cells: Vec<String> = cells.iter().map(|(c, cell)| format!("{} {cell}", heading(*c))).collect();
                writeln!(out, "      {}: {}", options.join(" "), cells.join(", ")).unwrap();
            }
        }
    }
    out
}

/// The trampolines that `tramptool list` has under one name.
fn family(trampoline: &str) -> &str {
    let (first, _) = trampoline.split_once('_').unwrap_or((trampoline, ""));
    if ["direct", "around", "programs", "record"].contains(&first) { first } else { trampoline }
}

/// All that is judged of the trampolines of one name.
#[derive(Default)]
struct Family<'r> {
    cells: BTreeMap<Clause, BTreeSet<&'static str>>,
    forms: BTreeSet<&'r str>,
}

/// For docs/supported.md: a row a kind of trampoline, over all its forms, profiles and options.
fn short(arch: &str, rows: &[&Row]) -> String {
    let mut families: Vec<(&str, Family)> = Vec::new();
    for row in rows {
        let name = family(&row.trampoline);
        if !families.iter().any(|(known, _)| *known == name) {
            families.push((name, Family::default()));
        }
        let family = families.iter_mut().find(|(known, _)| *known == name).unwrap();
        family.1.cells.entry(row.clause).or_default().insert(cell(row));
        family.1.forms.insert(&row.trampoline);
    }
    let names: Vec<&str> = columns().map(heading).collect();
    let mut out = format!("| {arch} | forms | {} |\n|---|--:|{}\n", names.join(" | "), ":-:|".repeat(names.len()));
    for (name, Family { cells: clauses, forms }) in families {
        let cells = columns().map(|clause| {
            let has = |cell: &str| clauses.get(&clause).is_some_and(|cells| cells.contains(cell));
            // A clause that deviates under one set of options is not one to rely on.
            if has("dev") {
                "d"
            } else if has("ok") {
                "✓"
            } else {
                ""
            }
        });
        writeln!(out, "| `{name}` | {} | {} |", forms.len(), cells.collect::<Vec<_>>().join(" | ")).unwrap();
    }
    out
}

/// Who has what of a protection: by the trampolines that are generated, the rows of the report, and what the other engine enforces.
fn protection(backend: &dyn Backend, promise: Promise, rows: &[&Row]) -> String {
    let (facts, machine) = (backend.facts(), backend.machine());
    let Some(feature) = facts.marks.iter().flat_map(|marks| marks.features).find(|f| f.promise == promise) else {
        return String::new();
    };
    let (clauses, guard, of_returns) = match promise {
        Promise::Pads => ([Clause::P13, Clause::P27], Guard::LandingPad, None),
        Promise::Paired => ([Clause::P14, Clause::P27], Guard::ShadowStack, None),
        Promise::Guarded => ([Clause::P27, Clause::P28], Guard::Checked, Some(ReturnGuard::Pushed)),
        Promise::Signed => ([Clause::P27, Clause::P28], Guard::Signed, Some(ReturnGuard::Signed)),
    };
    let noted = |target: &Target| {
        let returns = Returns { paired: true, signed: target.harden.guard == Some(ReturnGuard::Signed) };
        target.property_note(returns).is_some_and(|note| note[6] & feature.bit != 0)
    };
    let has = |target: &Target| noted(target) && (of_returns.is_none() || target.harden.guard == of_returns);
    let generated = common::targets(backend).iter().any(has);
    let held = |clause: &&Clause| rows.iter().any(|row| row.clause == **clause && row.verdict == Verdict::Pass);
    let judged: Vec<&str> = clauses.iter().filter(held).map(|clause| clause.name()).collect();
    let enforced = machine.bare.is_some_and(|bare| bare.enforces.contains(&guard));
    let words = [
        generated.then(|| "generated".to_owned()),
        (!judged.is_empty()).then(|| format!("judged ({})", judged.join(", "))),
        generated.then(|| "executed".to_owned()),
        (generated && enforced).then(|| "enforced".to_owned()),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    format!("{}: {}", feature.name, words.join(", "))
}

/// Who returns by the shadow call stack, which no note tells and no engine need enforce: its register.
fn shadow_call_stack(backend: &dyn Backend, rows: &[&Row]) -> String {
    let abi = &backend.facts().abi;
    let generated = common::targets(backend).iter().any(|target| target.harden.guard == Some(ReturnGuard::Scs));
    let of_scs = |row: &&&Row| row.clause == Clause::P28 && row.options.ends_with("guard-return=scs");
    let held = rows.iter().filter(of_scs).any(|row| row.verdict == Verdict::Pass);
    match abi.scs.filter(|_| generated && held) {
        Some(reg) => format!("by {}: generated, judged (P28), executed", abi.name(reg)),
        None => String::new(),
    }
}

/// What is generated, judged, executed and enforced of each protection, and of vector registers.
fn protections(results: &[Row]) -> String {
    let names: Vec<&str> = tool::BACKENDS.iter().map(|backend| backend.facts().name).collect();
    let mut out = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let mut line = |title: &str, cell: &dyn Fn(&dyn Backend) -> String| {
        let cells: Vec<String> = tool::BACKENDS.iter().map(|backend| cell(*backend)).collect();
        writeln!(out, "| {title} | {} |", cells.join(" | ")).unwrap();
    };
    let of = |backend: &dyn Backend| results.iter().filter(|r| r.arch == backend.facts().name).collect::<Vec<&Row>>();
    for (title, promise) in [
        ("landing pads", Promise::Pads),
        ("shadow stack, which checks each return", Promise::Paired),
        ("shadow stack, where code asks", Promise::Guarded),
        ("signed return addresses", Promise::Signed),
    ] {
        line(title, &|backend| protection(backend, promise, &of(backend)));
    }
    line("shadow call stack", &|backend| shadow_call_stack(backend, &of(backend)));
    line("vector registers", &|backend| {
        let (machine, abi) = (backend.machine(), &backend.facts().abi);
        let executed = format!("{} of {} bytes: executed (P2)", machine.vectors.len(), abi.vector_bytes);
        let by = machine.bare.filter(|bare| !bare.wide.is_empty());
        let by = by.map_or(String::new(), |bare| format!(", executed by {}", bare.program.name()));
        format!("{executed}; {}: static{by} (P2-wide)", machine.wide.name)
    });
    out
}

#[test]
fn changes_of_options_are_put_together() {
    let set = |options: &[&str]| options.iter().map(|o| (*o).to_owned()).collect::<BTreeSet<_>>();
    let cells = |p1, p2| Cells::from([(Clause::P1, p1), (Clause::P2, p2)]);
    let sets = BTreeMap::from([
        (set(&[]), cells("ok", "ok")),
        (set(&["a"]), cells("-k", "ok")),
        (set(&["b"]), cells("ok", "dev")),
        (set(&["a", "b"]), cells("-k", "dev")),
        (set(&["c"]), cells("ok", "ok")),
        (set(&["a", "c"]), cells("ok", "ok")),
    ]);
    let verdicts = Verdicts::of(&sets);
    assert!(sets.iter().all(|(options, cells)| verdicts.under(options) == *cells), "nothing is lost");
    let changes: Vec<usize> = verdicts.changes.iter().map(|(options, _)| options.len()).collect();
    assert_eq!(changes, [1, 1, 2], "a, b, and what c takes back of a");
}

#[test]
fn every_clause_holds_for_every_trampoline() {
    let mut suites = Vec::new();
    for backend in tool::BACKENDS {
        for target in common::targets(*backend) {
            let trampolines = tool::suite::trampolines_affected_by(&target, |_| false).unwrap();
            suites.push(tool::suite::suite_of(*backend, &target, &trampolines).unwrap());
        }
    }
    let report = emu_tests::check(&suites, &Filter::default(), 1, &|_, _| {}).unwrap();
    eprintln!("{:?} {} scenarios", report.summary, report.scenarios);
    let failed: Vec<_> = report.results.iter().filter(|r| r.verdict == Verdict::Fail).collect();
    let mut seen = BTreeSet::new();
    for row in failed.iter().filter(|r| seen.insert((r.arch.clone(), r.trampoline.clone(), r.clause))) {
        eprintln!("{} {} [{}] {}: {}", row.arch, row.trampoline, row.options, row.clause, row.reason);
        for f in row.failures.iter().take(1) {
            eprintln!("    {}: expected {}, found {} at {}; {}", f.place, f.expected, f.found, f.at, f.last_writer);
            eprintln!("    {}", f.replay);
        }
    }
    assert!(failed.is_empty(), "{} rows fail", failed.len());
    let unfounded = report.results.iter().find(|r| r.verdict != Verdict::Skip && r.checks == 0);
    assert!(unfounded.is_none(), "a verdict that no check led to: {unfounded:#?}");
    let mut tables = String::new();
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let (rows, others): (Vec<&Row>, Vec<&Row>) =
            report.results.iter().filter(|r| r.arch == arch).partition(|r| columns().any(|clause| clause == r.clause));
        assert!(others.iter().all(|row| row.verdict == Verdict::Skip), "{arch}");
        blessed(&format!("tests/matrix/{arch}.expected"), &table(arch, &rows, &judged(*backend, &rows)));
        writeln!(tables, "\n{}", short(arch, &rows).trim_end()).unwrap();
    }
    blessed_block("docs/supported.md", "<!-- begin matrix -->", &format!("{tables}\n"));
    blessed_block("docs/supported.md", "<!-- begin protections -->", &format!("\n{}\n", protections(&report.results)));
}
