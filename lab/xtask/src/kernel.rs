// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask kernel`: real kernels, with their own trampolines and with generated ones, judged by their own tests.
//!
//! A kernel is built once, in the cache, or with `--anew` in an empty one. It is booted as it is, for the baseline: what
//! its startup tests say. Then its trampoline objects are replaced by generated ones, it is linked again, and must say the
//! same, line by line, and our program in it that all is well. Objects with a fault must not get that far.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::boot::{Bench, Linked, live_sites, place};
use crate::document::{Begun, KERNELS, SELFTESTS, folded, record, record_time, today};
use crate::failure::Failure;
use crate::hook;
use crate::kernels::{Kernel, kernels, profile_in};
use crate::modules;
use crate::qemu::{Boot, FINDING, Trial, initramfs};
use crate::selftests;
use crate::tree::{cache, source};
use crate::verb::Outcome;

/// What is asked of a kernel.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Whole,
    /// One variant and one fault.
    Quick,
    /// The ftrace selftests of its tree, with its trampolines and with generated ones.
    Selftests,
}

impl How {
    /// The option that asks for it.
    fn flag(self) -> &'static str {
        match self {
            How::Whole => "",
            How::Quick => "--quick ",
            How::Selftests => "--selftests ",
        }
    }
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let (profile, args) = profile_in(args)?;
    let kernels = kernels(profile)?;
    let names: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
    let usage = || {
        let remedy = format!(
            "give one of {}, all, with --profile NAME, --quick, --selftests, --anew or --linux DIR",
            names.join(", ")
        );
        let given: Vec<&str> = args.iter().map(|arg| arg.as_str()).collect();
        let what =
            if given.is_empty() { "no kernel is named".to_owned() } else { format!("what is {}?", given.join(" ")) };
        Failure::new("cargo xtask kernel", what, remedy)
    };
    let (mut how, mut anew, mut linux, mut name) = (How::Whole, false, None, None);
    let mut rest = args.iter().copied();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--quick" => how = How::Quick,
            "--selftests" => how = How::Selftests,
            "--anew" => anew = true,
            "--linux" => linux = Some(PathBuf::from(rest.next().ok_or_else(usage)?)),
            _ if name.is_none() => name = Some(arg),
            _ => return Err(usage()),
        }
    }
    let all = name.is_some_and(|name| name == "all");
    let chosen: Vec<&Kernel> = kernels.iter().filter(|k| if all { k.first() } else { Some(&k.name) == name }).collect();
    let Some(first) = chosen.first() else {
        return Err(usage());
    };
    let start = Begun::now();
    let cache = cache()?;
    let empty = anew.then(|| tempfile::Builder::new().prefix("anew-").tempdir_in(&cache)).transpose();
    let empty = empty.map_err(|e| Failure::at(&cache, e, "make room for the cache, or make it writable"))?;
    let cache = empty.as_ref().map_or(&*cache, |dir| dir.path());
    // The document is about Debian's.
    let recorded = linux.is_none();
    let given = linux.clone();
    let linux = source(linux, &first.version, cache)?;
    let mut good = true;
    for kernel in &chosen {
        good &= try_one(kernel, &linux, cache, how, recorded)?;
    }
    if all && how != How::Selftests {
        good &= modules::all(&kernels, given, cache)?;
        if good && recorded {
            let flags = [how.flag(), if anew { "--anew " } else { "" }];
            record_time(&format!("`./x kernel --profile {} {}all`", first.profile, flags.concat()), start)?;
        }
    }
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// Build it if need be, judge it, and write down what came of it.
fn try_one(kernel: &Kernel, linux: &Path, cache: &Path, how: How, recorded: bool) -> Result<bool, Failure> {
    let dir = place(kernel, cache);
    let bench = Bench::new(kernel, linux, &dir);
    let start = Begun::now();
    let built = bench.build()?;
    let judged =
        if how == How::Selftests { selftests::judge(&bench, linux, cache) } else { judge(&bench, how == How::Quick) };
    let restored = bench.restore();
    let (report, good) = judged?;
    restored?;
    print!("{report}");
    if !good || !recorded {
        return Ok(good);
    }
    let heading = format!("{}, Linux {}", kernel.name, kernel.version);
    match how {
        How::Whole => record(KERNELS, &heading, &report)?,
        How::Quick => {}
        How::Selftests => record(SELFTESTS, &heading, &report)?,
    }
    let (flag, from) = (how.flag(), if built { ", the kernel not built yet" } else { "" });
    record_time(&format!("`./x kernel --profile {} {flag}{}`{from}", kernel.profile, kernel.name), start)?;
    Ok(good)
}

/// Boot the kernel as it is, with generated objects, and with faulty ones. Returns the report, and whether all is as
/// it should be.
fn judge(bench: &Bench, quick: bool) -> Result<(String, bool), Failure> {
    let files = bench.stock.join("initramfs");
    let jumped = hook::jumped(bench.kernel)
        .map(|hook| hook::build(bench.kernel, &bench.built(""), &bench.compiled_by(), &hook))
        .transpose()?;
    if let Some(wrong) = jumped.as_ref().and_then(|built| built.wrong) {
        return Err(Failure::new("a module with a trampoline that is jumped to", wrong, "see what make said"));
    }
    let mut modules: Vec<_> = jumped.into_iter().map(|built| built.file).collect();
    for name in bench.kernel.indirect.then_some("indirect").into_iter().chain(["findings"]) {
        modules.push(hook::plain(bench.kernel, &bench.built(""), &bench.compiled_by(), name)?);
    }
    initramfs(&bench.kernel.on.cross, &modules, &files)?;
    let faults = bench.kernel.fault.get(..if quick { 1 } else { bench.kernel.fault.len() }).unwrap_or_default();
    let (baseline, booted) = boots(bench, &files, faults)?;
    let (variant, controls) = booted.split_first().ok_or_else(|| Failure::new("boots", "there is none", "mend it"))?;
    let listed = live_sites(&bench.stock.join("vmlinux"))?;
    let same_sites = baseline.sites.as_ref() == Some(&listed);
    let version = bench.version()?;
    let config: Vec<String> = bench.kernel.config.iter().map(|name| format!("`{name}.config`")).collect();
    let mut rows = vec![
        format!("Linux {version}, {}, {}.", today(), bench.kernel.on.machine.version()?),
        format!(
            "Compiled by {}. Configuration: tinyconfig, {} of `lab/xtask/kernel`.\n",
            bench.compiler()?,
            config.join(", ")
        ),
        "| variant | ended | tests passed | as the baseline | generate and link, seconds | boot, seconds |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
        row("the kernel's own", &baseline, "-", None),
    ];
    let mut good = same_sites;
    let differs = difference(&baseline.tests, &variant.boot.tests);
    rows.push(row("generated", &variant.boot, differs.as_deref().map_or("yes", |_| "NO"), Some(variant.linked)));
    let mut logs = Vec::new();
    if let Some(line) = differs {
        good = false;
        logs.push(format!("\n    {line}\n\n    {}", variant.boot.last.join("\n    ")));
    }
    for ((about, fault), Booted { boot: control, linked }) in faults.iter().zip(controls) {
        // It came as far as to set its sites up; what never runs would notice anything.
        let noticed = !control.well() && control.sites == baseline.sites;
        good &= noticed;
        rows.push(row(
            &format!("fault: {about} (`{fault}`)"),
            control,
            if noticed { "no, as it must be" } else { "the fault did NOT show" },
            Some(*linked),
        ));
    }
    rows.append(&mut logs);
    let sites = baseline.sites.as_deref().unwrap_or("an unknown number of");
    let agree = if same_sites { "as many as" } else { "NOT as many as" };
    rows.push(format!(
        "\nThe kernel allocates {sites} entries for ftrace, {agree} `tramptool sites` finds: {listed}.\n"
    ));
    let (findings, all_shown) = findings(&baseline);
    good &= all_shown;
    rows.push(findings);
    rows.push("What `tramptool gen --kernel-build` takes from the configuration:\n".to_owned());
    rows.extend(bench.options()?.iter().map(|line| folded(line)));
    rows.push("\nWhat the tests say, on all that are like the baseline:\n".to_owned());
    rows.extend(baseline.tests.iter().map(|line| folded(line)));
    Ok((rows.join("\n") + "\n", good))
}

/// What our module says of the findings, and whether it shows all.
fn findings(baseline: &Boot) -> (String, bool) {
    let all: Vec<&String> = baseline.tests.iter().filter(|line| line.starts_with(FINDING)).collect();
    let shown = all.iter().filter(|line| line.ends_with(": shown")).count();
    let good = shown > 0 && shown == all.len();
    let verdict = if good { "" } else { " NOT all, though the page says so of them" };
    (format!("Of the runtime's [findings](findings.md), {shown} of {} are shown here.{verdict}\n", all.len()), good)
}

/// A variant that was booted, and how long it took to generate and link it.
struct Booted {
    boot: Boot,
    linked: Duration,
}

/// Boot the kernel as it is, as generated and with each fault. While one boots, the next is linked.
fn boots(bench: &Bench, files: &Path, faults: &[(String, String)]) -> Result<(Boot, Vec<Booted>), Failure> {
    let first = Trial::new(files);
    let (baseline, mut linked) =
        together(|| bench.boot(&bench.stock, "baseline", &first), || bench.link(None).map(Some))?;
    baseline.must_be_well("the kernel as it is")?;
    let trial = Trial { silence: first.silence.min(4 * baseline.silent + Duration::from_secs(20)), ..first };
    let (mut booted, mut faults) = (Vec::new(), faults.iter());
    while let Some(Linked { dir, what, took }) = linked {
        let (boot, next) = together(
            || bench.boot(dir.path(), &what, &trial),
            || faults.next().map(|(_, fault)| bench.link(Some(fault))).transpose(),
        )?;
        booted.push(Booted { boot, linked: took });
        linked = next;
    }
    Ok((baseline, booted))
}

/// Do one on a thread of its own, and the other.
fn together<A: Send, B>(
    one: impl FnOnce() -> Result<A, Failure> + Send,
    other: impl FnOnce() -> Result<B, Failure>,
) -> Result<(A, B), Failure> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((one?, other?))
    })
}

/// The first line in which they differ.
fn difference(baseline: &[String], other: &[String]) -> Option<String> {
    let none = "(nothing more)".to_owned();
    let at = baseline.iter().zip(other).position(|(a, b)| a != b).unwrap_or(baseline.len().min(other.len()));
    if baseline.len() == other.len() && at == baseline.len() {
        return None;
    }
    let line = |of: &[String]| of.get(at).unwrap_or(&none).clone();
    Some(format!("baseline: {}; here: {}", line(baseline), line(other)))
}

fn row(variant: &str, boot: &Boot, same: &str, linked: Option<Duration>) -> String {
    let linked = linked.map_or("-".to_owned(), |took| format!("{:.1}", took.as_secs_f64()));
    let took = boot.took.as_secs_f64();
    format!("| {variant} | {} | {} | {same} | {linked} | {took:.1} |", boot.end, boot.passed())
}
