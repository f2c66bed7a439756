//! Copies of a template with a landing pad: exceptions and the end of a thread pass them, and are recorded, where the unwinder is
//! given the copies' own table.

use std::fs;

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::{Arch, for_each};

/// 100 of 300 calls throw, and the thread ends in `inner`: entries are returns and exceptions.
const WANTED: &str = "two: 100 caught, 600 cleanups, 0 threads; 300 = 200 + 100; 300 = 200 + 100; 0 = 0 + 0\n\
                      three: 100 caught, 600 cleanups, 0 threads; 300 = 200 + 100; 300 = 200 + 100; 300 = 200 + 100\n\
                      thread: 0 caught, 2 cleanups, 1 threads; 1 = 0 + 1; 1 = 0 + 1; 1 = 0 + 1\n";

fn build(b: &Bench, arch: &Arch) {
    let sources = [
        ("copied.cc", include_str!("copied.cc")),
        ("site.h", include_str!("site.h")),
        ("fixups.h", include_str!("fixups.h")),
    ];
    sources.iter().for_each(|(name, text)| fs::write(b.path(name), text).unwrap());
    let function = format!("f+{}", arch.with.site);
    let what =
        ["record", "--events", "both", "--clock", "none", "--unwind", "--tls", "words", "--sig", "long f(long a)"];
    let how = ["--function", &function, "--name", "both", "--profile", "bare", "--arch", arch.name, "--stem", "both"];
    let abi = arch.with.set.iter().filter(|s| s.starts_with("abi=")).flat_map(|s| ["--set", s]);
    b.ok(&[&["gen"], &what[..], &how, &["--emit", "template"], &abi.collect::<Vec<_>>()].concat());
    let mut command: Vec<&str> = arch.with.flags.iter().map(String::as_str).collect();
    command.extend(["-O1", "-static", "-pthread", "-Wl,--no-relax", "copied.cc", "-o", "program"]);
    b.tool(&arch.tool("g++"), &command);
}

#[test]
fn exceptions_pass_copies_that_have_a_table_of_their_own() {
    for_each(|arch| {
        let b = Bench::new();
        build(&b, arch);
        let program = b.path("program").display().to_string();
        let out = b.tool("timeout", &[&["100"], &words(&arch.with.runner)[..], &[&*program]].concat());
        assert_eq!(out, WANTED, "{}", arch.name);
    });
}
