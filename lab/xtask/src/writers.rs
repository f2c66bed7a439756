// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask writers`: has the JITs of Linux write trampolines for random functions and programs, and the tool judge each; and has its
//! other writers write, in programs that say themselves what is wrong.
//!
//! The writers are compiled unmodified from Debian's sources and linked with our stand-ins (`kernel/writers/`) into programs in the
//! cache. `writers.toml` says how. `results/writers.md` has what came of it. With `--fixes`, one public fix of them is taken back at
//! a time.

mod contract;
mod fix;
mod fixes;
mod harness;
mod judge;
mod link;
mod machine;
mod manifest;
mod memory;
mod model;
mod native;
mod refusals;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::damage::Rng;
use crate::document::{spent, today};
use crate::failure::Failure;
use crate::tools::{read, root, write};
use crate::tree::{cache, source};
use crate::verb::Outcome;
use contract::Placed;
use fix::Fix;
use fixes::Taken;
use harness::Harness;
use judge::{Image, Judge, Question, Verdict, excused};
use machine::{Known, Machine};
use manifest::Manifest;
use model::Model;
use native::Ran;
use shape::{Shapes, is_sampled, unlike};

/// What was asked for.
struct Asked {
    images: usize,
    /// Images into which single faults are put.
    faults: usize,
    seed: u64,
    names: Vec<String>,
    /// Take fixes back, in place of judging what there is: those whose subjects have this.
    fixes: Option<String>,
}

impl Asked {
    fn of(args: &[String]) -> Result<Asked, Failure> {
        let mut asked = Asked { images: 2000, faults: 20, seed: 1, names: Vec::new(), fixes: None };
        let refused = |what: String| Failure::new("cargo xtask writers", what, "see `cargo xtask help`");
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().and_then(|value| value.parse().ok());
                value.ok_or_else(|| refused(format!("{word}: a number is missing")))
            };
            match word.as_str() {
                "--images" => asked.images = number()? as usize,
                "--faults" => asked.faults = number()? as usize,
                "--seed" => asked.seed = number()?,
                "--fixes" => asked.fixes = Some(asked.fixes.unwrap_or_default()),
                "--subject" => {
                    let text = words.next().cloned();
                    asked.fixes = Some(text.ok_or_else(|| refused(format!("{word}: a text is missing")))?);
                }
                option if option.starts_with('-') => return Err(refused(format!("unknown option {option}"))),
                name => asked.names.push(name.to_owned()),
            }
        }
        Ok(asked)
    }
}

/// What came of one writer.
#[derive(Default)]
struct Tally {
    images: usize,
    distinct: usize,
    /// Those of them that were judged on all functions, not on those of one fixture alone; and of these, those of known shapes.
    wholly: usize,
    sampled: usize,
    /// By what came out, of those that differ.
    holds: usize,
    known: usize,
    /// Reasons, how many, and one of them.
    left_out: BTreeMap<String, (usize, String)>,
    refused: BTreeMap<i32, usize>,
    /// What fails, with the smallest model found.
    findings: Vec<String>,
    /// Seconds of CPU, of all programs.
    cpu: u64,
    /// What calls cost that are alike for all writers, by what is attached: instructions, loads, stores, bytes of stack.
    costs: Vec<(&'static str, [u64; 4])>,
    /// Single faults in some images that hold: those that were put in, those that change nothing, those that are noticed.
    faults: [usize; 3],
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let asked = Asked::of(args)?;
    let path = root().join("lab/xtask/writers.toml");
    let manifest: Manifest = toml::from_str(&read(&path)?).map_err(|e| Failure::at(&path, e, "mend it"))?;
    let known: BTreeSet<&String> =
        manifest.versions.iter().chain(manifest.machine.iter().map(|machine| &machine.name)).collect();
    if let Some(name) = asked.names.iter().find(|name| !known.contains(name)) {
        let valid = known.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(name, "is no version and no architecture", format!("give some of {valid}")));
    }
    let chosen = |all: Vec<&String>| -> Vec<String> {
        let some: Vec<_> = all.iter().filter(|name| asked.names.contains(name)).collect();
        let named = if some.is_empty() { all.iter().collect() } else { some };
        named.into_iter().map(|name| (*name).clone()).collect()
    };
    let versions = chosen(manifest.versions.iter().collect());
    let names = chosen(manifest.machine.iter().map(|machine| &machine.name).collect());
    if let Some(subject) = &asked.fixes {
        return taken_back(&manifest, (&versions, &names, subject), &asked);
    }
    let (mut rows, mut natives, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for version in &versions {
        let linux = source(None, version, &cache()?)?;
        let machines = manifest.machine.iter().filter(|machine| names.contains(&machine.name));
        let built = machines
            .map(|machine| Ok((machine, Harness::build(&manifest.common, machine, version, &linux, &cache()?)?)));
        let built: Vec<(&Machine, Harness)> = built.collect::<Result<_, Failure>>()?;
        let writers: Vec<_> = built.iter().map(|(machine, harness)| (machine.name.as_str(), harness)).collect();
        let lines = refusals::compared(&writers, asked.images.min(COMPARED), asked.seed)?;
        refused.extend(lines.into_iter().map(|line| format!("- Linux {version}: {line}.\n")));
        for (machine, harness) in &built {
            let deviations: Vec<&Known> = manifest.known_of(&machine.arch, version);
            rows.push((version.clone(), *machine, judged(harness, machine, &deviations, &asked)?));
            for native in manifest.native.iter().filter(|native| native.of(&machine.name)) {
                natives.push((
                    format!("{}, {version} {}", native.name, machine.name),
                    native.run(&harness.place(), None)?,
                ));
            }
        }
    }
    let refused = format!("\nThe same models, put to all writers of a kernel:\n\n{}", refused.concat());
    let text = report(&manifest, &rows, &asked) + &refused + &run_here(&natives);
    match asked.names.is_empty() {
        true => write(&root().join("results/writers.md"), text.as_bytes())?,
        false => print!("{text}"),
    }
    let good = |tally: &Tally| {
        let noticed = asked.faults == 0 || share_noticed(tally.faults) >= LEAST_NOTICED;
        tally.findings.is_empty() && tally.holds + tally.known > 0 && noticed
    };
    let good = rows.iter().all(|(.., tally)| good(tally));
    let good = good && natives.iter().all(|(_, ran)| ran.wrong.is_empty());
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Take back each fix of these writers.
fn taken_back(
    manifest: &Manifest,
    (versions, names, subject): (&[String], &[String], &str),
    asked: &Asked,
) -> Result<Outcome, Failure> {
    let mut out = "| fix | year | writer | differ | noticed by |\n|---|--:|---|--:|---|\n".to_owned();
    let mut good = true;
    let of_these =
        |fix: &&Fix| versions.contains(&fix.version) && names.contains(&fix.machine) && fix.subject.contains(subject);
    if !manifest.fix.iter().any(|fix| of_these(&fix)) {
        return Err(Failure::new(subject, "is in the subject of no fix of these writers", "see writers.toml"));
    }
    for fix in manifest.fix.iter().filter(of_these) {
        let machine = manifest.machine.iter().find(|machine| machine.name == fix.machine);
        let machine = machine.ok_or_else(|| Failure::new(&fix.machine, "is no writer", "mend writers.toml"))?;
        let linux = source(None, &fix.version, &cache()?)?;
        let harness = Harness::build(&manifest.common, machine, &fix.version, &linux, &cache()?)?;
        let known = manifest.known_of(&machine.arch, &fix.version);
        let object = fixes::object(fix, &harness, &linux)?;
        let natives: Vec<_> = manifest.native.iter().filter(|native| native.has(&fix.file, &machine.name)).collect();
        let taken = match natives.is_empty() {
            true => fixes::taken_back(fix, (&harness, &object), (machine, &known), (asked.images, asked.seed))?,
            false => {
                let mut noticed = Vec::new();
                for native in natives {
                    let before = native.run(&harness.place(), None)?.wrong;
                    let after = native.run(&harness.place(), Some((&fix.file, &object)))?.wrong;
                    noticed.extend(after.into_iter().filter(|line| !before.contains(line)));
                }
                Taken { differ: noticed.len(), noticed: noticed.into_iter().next() }
            }
        };
        good &= taken.noticed.is_some() != fix.unnoticed.is_some();
        let noticed = taken.noticed.or(fix.unnoticed.as_ref().map(|why| format!("nothing: {why}")));
        let noticed = noticed.unwrap_or_else(|| "**nothing**".to_owned());
        let (subject, year, version) = (&fix.subject, fix.year, &fix.version);
        let _ = writeln!(out, "| {subject} | {year} | {version} {} | {} | {noticed} |", fix.machine, taken.differ);
        eprintln!("{subject}: {noticed}");
    }
    print!("{out}");
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Models that are put to all writers of a kernel, at most.
const COMPARED: usize = 1000;

/// Images that the harness makes at once.
const AT_ONCE: usize = 5000;

/// Have images written, and each that differs judged.
fn judged(harness: &Harness, machine: &Machine, known: &[&Known], asked: &Asked) -> Result<Tally, Failure> {
    let judge = Judge::new(harness)?;
    let (mut tally, mut rng) = (Tally::default(), Rng(asked.seed));
    let (mut seen, mut placed) = (BTreeSet::new(), Placed::new(machine, &harness.version));
    let (mut shapes, mut sound) = ((Shapes::default(), Rng(asked.seed)), Vec::new());
    let start = spent();
    while tally.images < asked.images {
        let count = AT_ONCE.min(asked.images - tally.images);
        let models: Vec<Model> = (0..count).map(|_| Model::draw(&mut rng, harness.can())).collect();
        let mut new = Vec::new();
        for (model, written) in models.iter().zip(harness.write(&models)?) {
            tally.images += 1;
            match written {
                Err(errno) => *tally.refused.entry(errno).or_default() += 1,
                Ok(written) => {
                    let contract = placed.contract(model, &written)?;
                    let fresh = seen.insert((written.code.clone(), contract.clone()));
                    if fresh {
                        new.push((model.clone(), written, contract));
                    }
                }
            }
        }
        tally.distinct += new.len();
        let verdicts = verdicts(&judge, &new, known, &mut shapes, &mut tally)?;
        for (image, verdict) in new.iter().zip(verdicts) {
            if verdict == Verdict::Holds && sound.len() < asked.faults {
                sound.push(image.clone());
            }
            counted(&mut tally, &image.0, verdict, (&judge, &mut placed, harness))?;
        }
        eprintln!("{} of {} images, {} differ", tally.images, asked.images, tally.distinct);
    }
    tally.cpu = spent().zip(start).map_or(0, |(now, start)| now - start);
    for image in &sound {
        let more = judge.faults(image)?;
        tally.faults.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    for (name, model) in Model::compared(harness.can()) {
        let written = harness.write(std::slice::from_ref(&model))?.pop().unwrap_or(Err(0));
        let refused =
            |errno| Failure::new(name, format!("was refused, with error {errno}"), "see why the writer does that");
        let written = written.map_err(refused)?;
        let contract = placed.contract(&model, &written)?;
        tally.costs.push((name, judge.cost(&(model, written, contract))?));
    }
    Ok(tally)
}

/// Judge each on the functions of one fixture; and on all where that tells more, or may.
fn verdicts(
    judge: &Judge,
    images: &[Image],
    known: &[&Known],
    (shapes, rng): &mut (Shapes, Rng),
    tally: &mut Tally,
) -> Result<Vec<Verdict>, Failure> {
    let excuse = |verdict, (model, _, contract): &Image| excused(verdict, (model, contract), known);
    let every: Vec<&Image> = images.iter().collect();
    let one = judge.judged(&every, Question::OfOneFixture)?;
    let mut verdicts: Vec<Verdict> = one.into_iter().zip(images).map(|(one, image)| excuse(one, image)).collect();
    let mut wholly = Vec::new();
    for (n, (_, written, contract)) in images.iter().enumerate() {
        let (new, sampled) = (shapes.is_new(written, contract), is_sampled(rng));
        tally.sampled += usize::from(sampled && !new);
        if new || sampled || !matches!(verdicts[n], Verdict::Holds | Verdict::Known) {
            wholly.push(n);
        }
    }
    tally.wholly += wholly.len();
    let chosen: Vec<&Image> = wholly.iter().map(|n| every[*n]).collect();
    for (n, all) in wholly.iter().zip(judge.judged(&chosen, Question::All)?) {
        let all = excuse(all, every[*n]);
        // What fails on one fixture is told as all show it. What does not must not fail on another.
        if let (Verdict::Holds | Verdict::Known, Some(unlike)) = (&verdicts[*n], unlike(&verdicts[*n], &all)) {
            tally.findings.push(format!("{unlike}: {}", every[*n].0));
        }
        verdicts[*n] = all;
    }
    Ok(verdicts)
}

/// What minimising takes.
type Means<'m, 'p> = (&'m Judge, &'m mut Placed<'p>, &'m Harness<'m>);

/// Put a verdict where it belongs; of a failure, find the smallest model that fails alike.
fn counted(tally: &mut Tally, model: &Model, verdict: Verdict, means: Means) -> Result<(), Failure> {
    /// So many failures are made smaller; of the others the model is told as it was drawn.
    const SMALLER: usize = 5;
    match verdict {
        Verdict::Holds => tally.holds += 1,
        Verdict::Known => tally.known += 1,
        Verdict::LeftOut(why) => tally.left_out.entry(why).or_insert_with(|| (0, model.to_string())).0 += 1,
        Verdict::Fails(clauses) => {
            let smallest =
                if tally.findings.len() < SMALLER { smaller(model, &clauses, means)? } else { model.clone() };
            tally.findings.push(format!("{}: {smallest}", clauses.join("; ")));
        }
    }
    Ok(())
}

/// The smallest model that fails by the same clauses.
fn smaller(model: &Model, clauses: &[String], (judge, placed, harness): Means) -> Result<Model, Failure> {
    let mut best = model.clone();
    loop {
        let mut found = None;
        for candidate in best.smaller() {
            let written = harness.write(std::slice::from_ref(&candidate))?.pop();
            let Some(Ok(written)) = written else { continue };
            let contract = placed.contract(&candidate, &written)?;
            let verdict = judge.all(&[(candidate.clone(), written, contract)])?.pop();
            if matches!(verdict, Some(Verdict::Fails(same)) if same == clauses) {
                found = Some(candidate);
                break;
            }
        }
        match found {
            Some(candidate) => best = candidate,
            None => return Ok(best),
        }
    }
}

/// What came of writers whose code runs on this machine.
fn run_here(natives: &[(String, Ran)]) -> String {
    let mut out = String::new();
    for (name, ran) in natives {
        let lines = ran.wrong.iter().map(|line| format!("- fails: {line}\n"));
        let lines: String = lines.chain(ran.known.iter().map(|line| format!("- known: {line}\n"))).collect();
        let _ = match lines.is_empty() {
            true => writeln!(out, "\nRun here: {name}: {}, all do what was asked for.", ran.said),
            false => write!(out, "\nRun here: {name}: {}:\n\n{lines}", ran.said),
        };
    }
    out
}

/// The text of `results/writers.md`.
fn report(manifest: &Manifest, rows: &[(String, &Machine, Tally)], asked: &Asked) -> String {
    let mut out = format!(
        "# The kernel's writers, judged\n\n{}. `cargo xtask writers --images {} --seed {}`: BPF trampolines that Linux's own JITs \
         wrote for random functions and programs, each judged by its contract. Images of the same bytes under the same contract are \
         judged once: on functions of one fixture, and on all, also from far, if they fail there, are the first of a shape, or are of \
         the sample. Seconds are of CPU, of all programs.\n\n",
        today(),
        asked.images,
        asked.seed
    );
    out.push_str(
        "| Linux | architecture | images | differ | on all | sample | hold | known | not judged | fail | refused | seconds |\n",
    );
    out.push_str("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (version, machine, t) in rows {
        let (left, refused) =
            (t.left_out.values().map(|(count, _)| count).sum::<usize>(), t.refused.values().sum::<usize>());
        let _ = writeln!(
            out,
            "| {version} | {} | {} | {} | {} | {} | {} | {} | {left} | {} | {refused} | {} |",
            machine.name,
            t.images,
            t.distinct,
            t.wholly,
            t.sampled,
            t.holds,
            t.known,
            t.findings.len(),
            t.cpu
        );
    }
    out.push_str(&faults(rows, asked.faults));
    out.push_str(&costs(rows));
    out.push_str("\nKnown is what a profile says of sites (riscv64 of 6.12, P18), and:\n\n");
    for known in &manifest.known {
        let _ = writeln!(out, "- {}: {}.", known.machine.as_deref().unwrap_or("all"), known.reason);
    }
    for (version, machine, tally) in rows {
        let lines = tally.left_out.iter().map(|(why, (count, one))| format!("not judged, {count}: {why}, as of {one}"));
        let refused = tally.refused.iter().map(|(errno, count)| format!("refused, {count}: error {errno}"));
        let fails = tally.findings.iter().take(20).map(|finding| format!("fails: {finding}"));
        let lines: Vec<String> = lines.chain(refused).chain(fails).collect();
        if !lines.is_empty() {
            let _ = write!(out, "\nLinux {version}, {}:\n\n- {}\n", machine.name, lines.join("\n- "));
        }
    }
    out
}

/// Of a hundred single faults that change something, so many are to be noticed.
const LEAST_NOTICED: f64 = 95.0;

/// Of a hundred that change something, so many are noticed: none, where none were put in.
fn share_noticed([all, equivalent, noticed]: [usize; 3]) -> f64 {
    noticed as f64 * 100.0 / (all - equivalent).max(1) as f64
}

/// Single faults in images that hold, by writer.
fn faults(rows: &[(String, &Machine, Tally)], images: usize) -> String {
    let mut out = format!(
        "\nSingle faults put into the first {images} images that hold, as `tramptool mutate --raw` does, each judged in all runs:\n\n\
         | Linux | architecture | faults | change nothing | noticed | % |\n|---|---|--:|--:|--:|--:|\n"
    );
    for (version, machine, tally) in rows {
        let ([all, equivalent, noticed], share) = (tally.faults, share_noticed(tally.faults));
        let _ = writeln!(out, "| {version} | {} | {all} | {equivalent} | {noticed} | {share:.1} |", machine.name);
    }
    out
}

/// What a call costs, by writer.
fn costs(rows: &[(String, &Machine, Tally)]) -> String {
    let mut out = "\nWhat a call of `long f(long, long)` costs, without what is called: instructions / 8-byte loads / 8-byte stores / \
                   bytes of stack.\n\n"
        .to_owned();
    let all: BTreeSet<&str> = rows.iter().flat_map(|(.., tally)| tally.costs.iter().map(|(name, _)| *name)).collect();
    let names: Vec<&str> = all.into_iter().collect();
    let _ = writeln!(out, "| Linux | architecture | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|---|{}", "--:|".repeat(names.len()));
    for (version, machine, tally) in rows {
        let cost = |name: &&str| {
            let found = tally.costs.iter().find(|(other, _)| other == name);
            found.map_or(String::new(), |(_, cost)| cost.map(|n| n.to_string()).join(" / "))
        };
        let cells: Vec<String> = names.iter().map(cost).collect();
        let _ = writeln!(out, "| {version} | {} | {} |", machine.name, cells.join(" | "));
    }
    out
}
