// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs, and how they are compiled.

use std::path::PathBuf;

use super::run::CLANG;
use crate::failure::Failure;
use crate::tools::{read, root};

/// A program, whose source says what it does.
pub struct Program {
    pub name: &'static str,
    pub source: &'static str,
    pub flags: &'static [&'static str],
}

const fn program(name: &'static str, source: &'static str, flags: &'static [&'static str]) -> Program {
    Program { name, source, flags }
}

pub const PROGRAMS: [Program; 11] = [
    program("threads", "threads.c", &[]),
    program("signals", "signals.c", &[]),
    program("exceptions", "exceptions.cc", &[]),
    program("longjmp", "longjmp.c", &[]),
    program("coroutines, swapcontext", "coroutines.c", &[]),
    program("coroutines, own switch", "coroutines.c", &["-DOWN"]),
    program("dlclose", "dlclose.c", &[]),
    program("fork", "fork.c", &[]),
    program("recursion", "recursion.c", &[]),
    program("tail calls", "tail.c", &[]),
    // One behind the other, as they are with -Os.
    program("short functions", "short.c", &["-falign-functions=1"]),
];

/// How programs are compiled: with gcc unless another compiler is named, with -O2 and these flags.
pub struct Build {
    pub compilers: [&'static str; 2],
    pub flags: &'static [&'static str],
}

const GCC: [&str; 2] = ["gcc", "g++"];
pub const PLAIN: Build = Build { compilers: GCC, flags: &[] };
pub const SITES: Build = Build { compilers: GCC, flags: &["-fpatchable-function-entry=5"] };
pub const MCOUNT: Build = Build { compilers: GCC, flags: &["-pg"] };
pub const SLEDS: Build =
    Build { compilers: [CLANG, "clang++-19"], flags: &["-fxray-instrument", "-fxray-instruction-threshold=1"] };

/// Callers do not rely on registers that a function happens to leave alone.
pub const KEPT: Build = Build { compilers: GCC, flags: &["-fno-ipa-ra"] };

/// What the source says that the program does.
pub fn about(program: &Program) -> Result<String, Failure> {
    let text = read(&sources().join(program.source))?;
    let comment =
        text.split("/* ").skip(1).find(|comment| !comment.contains("SPDX")).and_then(|rest| rest.split(" */").next());
    Ok(comment.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Where the sources are.
pub fn sources() -> PathBuf {
    root().join("lab/xtask/peers")
}
