// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask checker`: what can be removed from those who judge, and no fault in a trampoline is missed for it.
//!
//! A copy of the repository gets a switch at each condition and each statement of the checkers, and is compiled once. Commands, which
//! put faults into trampolines, and tests are run once each, to see which switches they come to; then, for each switch, those that
//! come to it. What changes nothing that they say is printed: it needs another fault, a test, or is of no use. `checker.toml` lists
//! what saves time alone, or tells a failure better.

mod copy;
mod points;
mod rows;
mod show;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::Deserialize;

use crate::failure::Failure;
use crate::tools::{call, on_each_cpu, read, root};
use crate::verb::Outcome;
use copy::switched;
use points::Point;
use rows::{CHECKERS, Checker};
use show::Show;

/// What was asked for.
struct Asked {
    checker: &'static Checker,
    sample: usize,
    /// A part of the names of the files.
    file: String,
    /// What an earlier run printed: the switches that it names are tried again.
    again: Option<String>,
    /// The first switch, and how far it is to the next one.
    from: usize,
    step: usize,
}

impl Asked {
    fn of(args: &[String]) -> Result<Asked, Failure> {
        let refused = |what: String| {
            let names = CHECKERS.map(|checker| checker.name).join(", ");
            let remedy =
                format!("give one of {names}, then [--file PART] [--again FILE] [--sample N] [--from N] [--step N]");
            Failure::new("cargo xtask checker", what, remedy)
        };
        let name = args.first().map_or("", String::as_str);
        let checker = CHECKERS.iter().find(|checker| checker.name == name);
        let checker = checker.ok_or_else(|| refused(format!("no checker is called '{name}'")))?;
        let mut asked = Asked { checker, sample: 3, file: String::new(), again: None, from: 0, step: 1 };
        let mut words = args.iter().skip(1);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| refused(format!("{word} has no value")))?;
            let number = || value.parse().map_err(|_| refused(format!("{value} is no number")));
            match word.as_str() {
                "--file" => asked.file.clone_from(value),
                "--again" => asked.again = Some(read(Path::new(value))?),
                "--sample" => asked.sample = number()?,
                "--from" => asked.from = number()?,
                "--step" => asked.step = number()?.max(1),
                _ => return Err(refused(format!("unknown argument {word}"))),
            }
        }
        Ok(asked)
    }

    fn is_about(&self, point: &Point) -> bool {
        // As it is printed; the line may be another one by now.
        let told = |line: &str| line.starts_with(&point.file) && line.contains(&format!(": {}: ", point.text));
        point.file.contains(&self.file) && self.again.as_ref().is_none_or(|again| again.lines().any(told))
    }
}

/// Do it, on each CPU.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let asked = Asked::of(args)?;
    let copy = root().join("target/checker");
    let all = switched(&copy)?;
    let mut cargo = Command::new("cargo");
    call(cargo.args(["build", "--locked", "--quiet", "--bin", "tramptool"]).current_dir(&copy))?;
    let known: Known =
        toml::from_str(&read(&root().join(KNOWN))?).map_err(|e| Failure::new(KNOWN, e.to_string(), "mend it"))?;
    if let Some(gone) = known.unneeded.iter().find(|of| !all.iter().any(|point| of.is(point))) {
        let what = format!("{}: {}: is not there", gone.file, gone.text);
        return Err(Failure::new(KNOWN, what, "take it off the list, or say where it is now"));
    }
    let shows = Show::all(asked.checker, asked.sample, &copy)?;
    let name = asked.checker.name;
    let mine = all.iter().enumerate().filter(|(_, point)| point.checker == name && asked.is_about(point));
    let tried: Vec<(usize, &Point)> = mine.skip(asked.from).step_by(asked.step).collect();
    let (next, told, unnoticed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let one = || -> Result<(), Failure> {
        while let Some((n, point)) = tried.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(why) = missed(*n, &shows)? else { continue };
            if let Some(entry) = known.unneeded.iter().find(|of| of.is(point)) {
                entry.fits.store(true, Ordering::Relaxed);
                told.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            println!("{}:{}: {}: {why}", point.file, point.line, point.text);
            unnoticed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    on_each_cpu(one)?;
    let (told, mut unnoticed) = (told.into_inner(), unnoticed.into_inner());
    let noticed = |of: &&Unneeded| !of.fits.load(Ordering::Relaxed) && tried.iter().any(|(_, point)| of.is(point));
    for Unneeded { file, text, reason, .. } in known.unneeded.iter().filter(noticed) {
        println!("{file}: {text}: noticed, though {KNOWN} says that it {reason}");
        unnoticed += 1;
    }
    println!("{name}: {} tried, {told} of {KNOWN}, {unnoticed} unnoticed", tried.len());
    Ok(if unnoticed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Why nobody notices that this is left out, if nobody does.
fn missed(switch: usize, shows: &[Show]) -> Result<Option<&'static str>, Failure> {
    let mut why = "nothing comes to it";
    for show in shows.iter().filter(|show| show.reached.contains(&switch)) {
        if show.notices(switch)? {
            return Ok(None);
        }
        why = "unnoticed";
    }
    Ok(Some(why))
}

/// What changes no verdict, with the reason.
#[derive(Deserialize)]
struct Known {
    unneeded: Vec<Unneeded>,
}

#[derive(Deserialize)]
struct Unneeded {
    file: String,
    /// Nothing: all of the file.
    #[serde(default)]
    text: String,
    /// What it does.
    reason: String,
    /// It was left out unnoticed. The same text may stand in a place where it is needed.
    #[serde(skip)]
    fits: AtomicBool,
}

impl Unneeded {
    fn is(&self, point: &Point) -> bool {
        self.file == point.file && (self.text.is_empty() || self.text == point.text)
    }
}

/// Where it is listed.
const KNOWN: &str = "lab/xtask/checker.toml";
