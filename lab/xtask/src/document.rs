// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commands write into files of `results`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::failure::Failure;
use crate::tools::{read, root, write};

/// The results of kernels that were booted.
pub const KERNELS: &str = "results/real-kernels.md";

/// The results of the ftrace selftests of their trees.
pub const SELFTESTS: &str = "results/ftrace-selftests.md";

/// Replace the section of one kernel in a file.
pub fn record(page: &str, name: &str, report: &str) -> Result<(), Failure> {
    let path = root().join(page);
    let old = read(&path)?;
    let heading = format!("## {name}\n");
    let (before, rest) = old.split_once(&heading).unwrap_or((&old, ""));
    let after = rest.find("\n## ").and_then(|at| rest.get(at..)).unwrap_or_default();
    write(&path, format!("{}\n\n{heading}\n{report}{after}", before.trim_end()).as_bytes())
}

/// When something began, and what this program had used of the CPU by then.
#[derive(Clone, Copy)]
pub struct Begun {
    at: Instant,
    spent: Option<u64>,
}

impl Begun {
    pub fn now() -> Begun {
        Begun { at: Instant::now(), spent: spent() }
    }
}

/// How long a command took, for the document, and how much of the CPU, which other work on the machine hardly changes.
pub fn record_time(command: &str, start: Begun) -> Result<(), Failure> {
    let old = read(&root().join(KERNELS))?;
    let section = old.split_once("## Times\n").and_then(|(_, rest)| rest.split("\n## ").next()).unwrap_or_default();
    let this = format!("| {command} |");
    let mut rows: Vec<String> =
        section.lines().filter(|l| l.starts_with("| `") && !l.starts_with(&this)).map(str::to_owned).collect();
    let spent = spent().zip(start.spent).map_or("-".to_owned(), |(now, before)| (now - before).to_string());
    rows.push(format!("{this} {} | {:.0} | {spent} |", today(), start.at.elapsed().as_secs_f64()));
    rows.sort();
    let head = "| command | date | seconds | seconds of CPU |\n|---|---|---|---|";
    record(KERNELS, "Times", &format!("{head}\n{}\n", rows.join("\n")))
}

/// How many seconds of CPU this program has used, and those that it waited for (proc_pid_stat(5): utime to cstime).
pub fn spent() -> Option<u64> {
    let stat = read(Path::new("/proc/self/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ticks = fields.skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    // The kernel's unit for programs, on every architecture that Debian has.
    Some(ticks / 100)
}

/// A line of a log, indented, in as many lines as a terminal of 80 columns needs.
pub fn folded(line: &str) -> String {
    let (mut out, mut column) = ("   ".to_owned(), 3);
    for word in line.split(' ') {
        let width = word.chars().count();
        if column + 1 + width > 80 && column > 3 {
            out.push_str("\n       ");
            column = 7;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + width;
    }
    out
}

/// The date.
pub fn today() -> String {
    let run = Command::new("date").arg("+%Y-%m-%d").output();
    run.map_or_else(|_| "unknown date".to_owned(), |run| String::from_utf8_lossy(&run.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_for_counts_too() {
        let before = spent().unwrap();
        let busy = "i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done";
        // It counts whole seconds.
        let later = (0..40).find_map(|_| {
            assert!(Command::new("sh").args(["-c", busy]).status().unwrap().success());
            spent().filter(|now| *now > before)
        });
        assert!(later.is_some_and(|after| after < before + 60), "{before} {later:?}");
    }
}
