// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bless`: write the golden listings again. The test that compares them also writes them, so that both
//! mean the same files.

use std::process::Command;

use crate::failure::Failure;
use crate::verb::Outcome;

/// Run that test with `BLESS` set. Read what changed before it is committed: `git diff emu-tests/golden`.
pub fn run(_: &[String]) -> Result<Outcome, Failure> {
    let status = Command::new("cargo")
        .args(["test", "--quiet", "--package", "tramptool", "--test", "repository", "golden"])
        .env("BLESS", "1")
        .current_dir(crate::tools::root())
        .status();
    match status {
        Ok(status) if status.success() => Ok(Outcome::Good),
        Ok(_) => Ok(Outcome::Bad),
        Err(e) => Err(Failure::new("cargo", e.to_string(), "put cargo on the PATH")),
    }
}
