// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask hostile`: the commands as their users have them, with inputs that are nearly right.
//!
//! Each input has 20 s of CPU and 1 GiB. A command that takes more, or ends with another code than 0, 1 and 2, is a finding: its
//! input stays in `target/hostile`.

mod seeds;
mod surface;

use std::fs::{self, File};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::damage::Rng;
use crate::failure::Failure;
use crate::tools::{self, bounded, root};
use crate::verb::Outcome;
use seeds::Seeds;
use surface::{ENFORCED, SURFACES, Surface};

/// Seconds of CPU for an input.
const SECONDS: u64 = 20;
/// KiB of memory that an input may take, at most and at once.
const KIB: u64 = 1 << 20;
/// Bytes of addresses: the engine reserves more than it uses.
const ADDRESSES: u64 = 8 << 30;

/// What was asked for.
struct Asked {
    inputs: usize,
    /// The number of the first.
    from: usize,
    seed: u64,
    surfaces: Vec<&'static Surface>,
}

/// What came of the inputs for a surface.
#[derive(Default)]
struct Tally {
    /// How often each code came.
    codes: [usize; 3],
    findings: usize,
    /// Most KiB of memory that one took.
    peak: u64,
    time: Duration,
}

/// How a command ended.
struct Ended {
    status: ExitStatus,
    peak: u64,
    time: Duration,
}

/// Do it, on each CPU.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let asked = Asked::of(args)?;
    let tool = std::env::var_os("TRAMPTOOL").map_or_else(|| root().join("target/debug/tramptool"), PathBuf::from);
    println!("hostile {} --from {} --seed {}", asked.inputs, asked.from, asked.seed);
    // A worker sleeps between looks at its command.
    let workers = 2 * std::thread::available_parallelism().map_or(1, NonZero::get);
    let parts: Vec<Result<Vec<Tally>, Failure>> = std::thread::scope(|scope| {
        let (asked, tool) = (&asked, &tool);
        let begun: Vec<_> = (0..workers).map(|n| scope.spawn(move || part(asked, tool, n, workers))).collect();
        begun.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let mut tallies: Vec<Tally> = asked.surfaces.iter().map(|_| Tally::default()).collect();
    for part in parts {
        tallies.iter_mut().zip(&part?).for_each(|(tally, part)| tally.add(part));
    }
    println!("{:<16} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}", "surface", "0", "1", "2", "findings", "most MiB", "ms each");
    for (surface, tally) in asked.surfaces.iter().zip(&tallies) {
        let [done, differs, trouble] = tally.codes;
        let each = tally.time.as_millis() as usize / tally.inputs().max(1);
        let (name, peak) = (surface.name, tally.peak >> 10);
        println!("{name:<16} {done:>8} {differs:>8} {trouble:>8} {:>8} {peak:>9} {each:>9}", tally.findings);
    }
    let findings: usize = tallies.iter().map(|tally| tally.findings).sum();
    let done: usize = tallies.iter().map(Tally::inputs).sum();
    println!("{done} inputs, {findings} findings");
    Ok(if findings == 0 && done == asked.inputs { Outcome::Good } else { Outcome::Bad })
}

/// One input of `workers`, from the one with this number on, in a directory of its own.
fn part(asked: &Asked, tool: &Path, first: usize, workers: usize) -> Result<Vec<Tally>, Failure> {
    let dir = root().join("target/hostile").join(first.to_string());
    fs::create_dir_all(&dir).map_err(|e| Failure::at(&dir, e, "make room"))?;
    let seeds = Seeds::made(tool, &dir)?;
    let mut tallies: Vec<Tally> = asked.surfaces.iter().map(|_| Tally::default()).collect();
    for n in (asked.from..asked.from + asked.inputs).skip(first).step_by(workers) {
        let which = n % asked.surfaces.len();
        let mut rng = Rng(asked.seed ^ (n as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let words = asked.surfaces[which].words(&seeds, &mut rng, &dir)?;
        let ended = ended(tool, &words, &dir)?;
        let tally = &mut tallies[which];
        tally.peak = tally.peak.max(ended.peak);
        tally.time += ended.time;
        match (ended.status.code(), ended.peak <= KIB) {
            (Some(code @ 0..=2), true) => tally.codes[code as usize] += 1,
            _ => {
                tally.findings += 1;
                report(asked, n, &words, &ended, &dir)?;
            }
        }
    }
    Ok(tallies)
}

impl Tally {
    fn inputs(&self) -> usize {
        self.codes.iter().sum::<usize>() + self.findings
    }

    fn add(&mut self, part: &Tally) {
        self.codes.iter_mut().zip(part.codes).for_each(|(all, of)| *all += of);
        self.findings += part.findings;
        self.peak = self.peak.max(part.peak);
        self.time += part.time;
    }
}

impl Asked {
    fn of(args: &[String]) -> Result<Asked, Failure> {
        let refused = |what: &str| {
            let names: Vec<&str> = SURFACES.iter().chain(ENFORCED).map(|surface| surface.name).collect();
            let remedy = format!("give [N] [--from N] [--seed S] [--surface NAME], of {}", names.join(", "));
            Failure::new("cargo xtask hostile", what.to_owned(), remedy)
        };
        let mut asked = Asked { inputs: 1_000_000, from: 0, seed: 1, surfaces: SURFACES.iter().collect() };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| refused(&format!("{word} has no value")));
            let number = |text: &str| text.parse().map_err(|_| refused(&format!("{text} is no number")));
            match word.as_str() {
                "--seed" => asked.seed = number(value()?)?,
                "--from" => asked.from = usize::try_from(number(value()?)?).map_err(|_| refused("too many"))?,
                "--surface" => {
                    let name = value()?;
                    asked.surfaces = SURFACES.iter().chain(ENFORCED).filter(|surface| surface.name == name).collect();
                }
                count => asked.inputs = usize::try_from(number(count)?).map_err(|_| refused("too many"))?,
            }
        }
        if asked.surfaces.is_empty() { Err(refused("no such surface")) } else { Ok(asked) }
    }
}

/// Run a command within its bounds.
fn ended(tool: &Path, words: &[String], dir: &Path) -> Result<Ended, Failure> {
    let err = dir.join("stderr");
    let refused = |e: std::io::Error| Failure::at(tool, e, "build it");
    let begun = Instant::now();
    let mut command = Command::new(tool);
    command.args(words).current_dir(dir).env("RAYON_NUM_THREADS", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&err).map_err(refused)?);
    let mut child = command.spawn().map_err(refused)?;
    bounded(&child, SECONDS, ADDRESSES);
    let mut peak = 0;
    loop {
        peak = peak.max(tools::peak(&child));
        if let Some(status) = child.try_wait().map_err(refused)? {
            return Ok(Ended { status, peak, time: begun.elapsed() });
        }
        // One that waits for something takes no CPU.
        if peak > KIB || begun.elapsed() > Duration::from_secs(30 * SECONDS) {
            child.kill().map_err(refused)?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Print a finding, and keep its inputs.
fn report(asked: &Asked, n: usize, words: &[String], ended: &Ended, dir: &Path) -> Result<(), Failure> {
    let kept = root().join("target/hostile").join(format!("finding-{}-{n}", asked.seed));
    let refused = |e: std::io::Error| Failure::at(&kept, e, "make room");
    fs::create_dir_all(&kept).map_err(refused)?;
    let inputs: Vec<PathBuf> = words.iter().map(|word| dir.join(word)).filter(|path| path.is_file()).collect();
    for path in inputs.iter().chain([&dir.join("stderr")]) {
        fs::copy(path, kept.join(path.file_name().unwrap_or_default())).map_err(refused)?;
    }
    let text = format!("{words:?}\n{}, {} MiB, {:?}\n", ended.status, ended.peak >> 10, ended.time);
    fs::write(kept.join("command"), &text).map_err(refused)?;
    println!("{}: {text}", kept.display());
    Ok(())
}
