// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a writer wrote into the memory of its program, judged as the tool judges a running kernel's.

use crate::failure::Failure;
use crate::running::{core, verdicts};
use crate::tools::write;

/// The number of x86-64 in ELF headers (psABI): no other writer prints memory.
const MACHINE: u16 = 62;

/// Have the tool judge what a program printed, `count` of them: lines of what fails, and what the program itself says.
pub fn judged(version: &str, lines: &[String], count: &str) -> Result<Vec<String>, Failure> {
    let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
    let told = |start: &str| -> Vec<&str> { lines.iter().filter_map(|line| line.strip_prefix(start)).collect() };
    let (kcore, kallsyms) = (dir.path().join("kcore"), dir.path().join("kallsyms"));
    write(&kcore, &core(("the writer", MACHINE), &format!("{version}.0"), &told("memory: "))?)?;
    write(&kallsyms, (told("symbol: ").join("\n") + "\n").as_bytes())?;
    let (verdicts, said) = verdicts(&kcore, &kallsyms, None)?;
    let failing = verdicts.iter().filter(|(_, (verdict, _))| verdict != "holds");
    let mut out: Vec<String> = failing.map(|(name, (verdict, more))| format!("{verdict}: {name}{more}")).collect();
    out.extend(told("wrong: ").into_iter().map(str::to_owned));
    if count.split(' ').next() != Some(&verdicts.len().to_string()) {
        out.push(format!("{} in the report, of {count}: {said}", verdicts.len()));
    }
    Ok(out)
}
