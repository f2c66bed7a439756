// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask peers`: runs small hostile programs (`lab/xtask/peers`) under several tracers and hooking libraries, and writes what came
//! of each into `results/peers.md`. Each program counts its own calls.

mod lab;
mod programs;
mod run;
mod verdict;
mod way;

use std::fmt::Write as _;

use crate::failure::Failure;
use crate::tools::{root, write};
use crate::verb::Outcome;
use lab::Lab;
use programs::{PROGRAMS, Program, about};
use verdict::Verdict;
use way::{HAMMERED, RECORDED, Trial, Way};

/// How often each program is run in each way.
const RUNS: usize = 5;

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let wanted = |program: &&Program| args.is_empty() || args.iter().any(|arg| arg == program.name);
    let programs: Vec<&Program> = PROGRAMS.iter().filter(wanted).collect();
    let known = |arg: &&String| PROGRAMS.iter().any(|program| program.name == **arg);
    if !args.iter().all(|arg| known(&arg)) || !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        let names = PROGRAMS.map(|program| program.name).join("`, `");
        let remedy = format!("on x86-64 Linux, give one of `{names}`, or nothing");
        return Err(Failure::new("cargo xtask peers", "an unknown program, or another machine", remedy));
    }
    let lab = Lab::new()?;
    let mut page = lab.head()?;
    // Writing to a String cannot fail.
    for program in &programs {
        let _ = writeln!(page, "| {} | {} |", program.name, about(program)?);
    }
    for (text, ways, hammered) in [(RECORDED_TEXT, &RECORDED[..], false), (HAMMERED_TEXT, &HAMMERED[..], true)] {
        let _ = write!(page, "{text}\n| program |{}\n|---|", cells(ways.iter().map(|way| way.name)));
        let _ = writeln!(page, "{}", "---|".repeat(ways.len()));
        for program in &programs {
            let row = ways.iter().map(|way| cell(&lab, way, program, hammered)).collect::<Result<Vec<_>, _>>()?;
            let _ = writeln!(page, "| {} |{}", program.name, cells(row.iter().map(String::as_str)));
        }
    }
    if args.is_empty() {
        write(&root().join("results/peers.md"), page.as_bytes())?;
    } else {
        println!("{page}");
    }
    Ok(Outcome::Good)
}

fn cells<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.map(|cell| format!(" {cell} |")).collect()
}

/// What came of a program: the worst of all runs; and if the second way of a tool gives something else.
fn cell(lab: &Lab, way: &Way, program: &Program, hammered: bool) -> Result<String, Failure> {
    eprintln!("{}: {}{}", program.name, way.name, if hammered { ", hammered" } else { "" });
    let alone = lab.alone(way.build, program)?;
    let worst = |second: bool| -> Result<Verdict, Failure> {
        let mut worst = Verdict::Right;
        for _ in 0..RUNS {
            worst = worst.max(way.verdict(&Trial { lab, program, alone: &alone, second, hammered })?);
            if worst.is_fatal() {
                break;
            }
        }
        Ok(worst)
    };
    let first = worst(false)?;
    let mut text = first.to_string();
    if let Some((name, _)) = way.second.filter(|_| first != Verdict::Right) {
        let second = worst(true)?;
        if second != first {
            let _ = write!(text, "; {name}: {second}");
        }
    }
    eprintln!("    {text}");
    Ok(text)
}

const RECORDED_TEXT: &str = "
## Each call recorded

A tool hooks the entries and returns of all functions that a program counts; the numbers of entries are compared. `right` means that the program printed the same
and ended as it does alone, and that the tool has each function's entries. Each cell is the worst of 5 runs of at most 20 s each. A crash
or a hang ends the series. If a tool is not right, it was tried again as its documentation has it for such programs; XRay and retour have no such way. The table shows that
where the verdict differs. With *entries alone*, a tool leaves return addresses as they are; *with prototypes*, `tramptool-live` keeps them in
a frame on the stack.

- `tramptool trace`, `tramptool-live` and `uftrace -P .` run programs that gcc compiled with `-fpatchable-function-entry=5`. Without sites,
  and for retour and frida, programs are as gcc makes them with `-O2`.
- XRay knows only the sleds that clang leaves with `-fxray-instrument`. In LLVM 19, libraries have none that work.
- For retour, a program needs a hook of each function's prototype. Here all functions have the same one. A hook calls the function: no return
  address is replaced, and each call takes more stack.
- If a signal's handler calls a function while a handler of `tramptool-live` runs, no handler is called; `Live::missed` counts such calls.
- gcc's `-fipa-ra`, part of `-O2`, lets callers use registers that a function happens to leave alone. Handlers of `tramptool-live` change
  some of them. So can hooks of retour; those of these runs change few.
- `tramptool-live` and retour attach before `main`. The program tells them when it has loaded a library and when it will unload one. frida
  sees that by itself.
- frida's handlers are in C (`CModule`).
- uftrace gets the greatest depth that it takes, `--max-stack 65535`.
- `tramptool trace` has room for 524,000 calls of a thread that have not returned. A function that ends in a jump to the next one has not.
  Deeper calls are neither recorded nor counted as lost.
";

const HAMMERED_TEXT: &str = "
## Hooks that come and go

A thread of the library, in frida a timer of 1 ms, switches all hooks off and on again, while the program runs for some tenths of a second:
few races are met in that time. `right` means that the program printed the same and ended as it does alone, and that a hook was called. The
number of calls is not compared. The other tools have no such functions.
";
