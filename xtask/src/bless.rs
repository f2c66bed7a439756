// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bless`: write again what the tests compare with what is generated now. The tests that compare also write, so
//! that both mean the same files.

use std::process::Command;

use crate::failure::Failure;
use crate::verb::Outcome;

/// What can be written again: its name, the file of the test and the test.
const BLESSED: [(&str, &str, &str); 5] = [
    ("golden", "golden", "the_stories_are_true"),
    ("matrix", "matrix", "every_clause_holds_for_every_trampoline"),
    ("api", "api", "the_api_is_what_is_listed"),
    ("book", "book", "the_pages_are_true"),
    // All of them are run, which takes minutes.
    ("mutants", "mutate", "every_mutant_is_killed"),
];

/// Run those tests with `BLESS` set. Read what changed before it is committed: `git diff`.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    if let Some(unknown) = args.iter().find(|arg| !BLESSED.iter().any(|(name, ..)| name == arg)) {
        let valid: Vec<&str> = BLESSED.iter().map(|(name, ..)| *name).collect();
        let remedy = format!("give {}, or nothing for all of them", valid.join(", "));
        return Err(Failure::new("bless", format!("nothing blessed is called '{unknown}'"), remedy));
    }
    let mut outcome = Outcome::Good;
    for (name, file, test) in BLESSED {
        if !args.is_empty() && !args.iter().any(|arg| arg == name) {
            continue;
        }
        let status = Command::new("cargo")
            .args(["test", "--quiet", "--workspace", "--test", file, "--", "--exact", test])
            .env("BLESS", "1")
            .current_dir(crate::tools::root())
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => outcome = Outcome::Bad,
            Err(e) => return Err(Failure::new("cargo", e.to_string(), "put cargo on the PATH")),
        }
    }
    Ok(outcome)
}
