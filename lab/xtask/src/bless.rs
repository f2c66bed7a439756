// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask bless`: write again what the tests compare with what is generated now. The tests that compare also write, so
//! that both mean the same files.

use std::process::Command;

use crate::failure::Failure;
use crate::verb::Outcome;

/// What can be written again.
struct Blessed {
    name: &'static str,
    /// The file of the test.
    file: &'static str,
    test: &'static str,
    /// It needs the kernel's objects (`cargo xtask kernel-objects`), and is written only where it is named.
    objects: bool,
}

const fn blessed(name: &'static str, file: &'static str, test: &'static str) -> Blessed {
    Blessed { name, file, test, objects: false }
}

const BLESSED: [Blessed; 10] = [
    blessed("golden", "golden", "the_stories_are_true"),
    blessed("matrix", "matrix", "every_clause_holds_for_every_trampoline"),
    blessed("api", "api", "the_api_is_what_is_listed"),
    blessed("book", "book", "the_pages_are_true"),
    // All of them are run, which takes minutes.
    blessed("mutants", "mutate", "every_mutant_is_killed"),
    blessed("places", "mutate", "a_sample_of_the_mutants_is_killed"),
    blessed("verify", "verify", "as_many_faults_are_found_as_before"),
    blessed("runtime", "compose_on", "the_page_has_the_faults"),
    Blessed { name: "kernels", file: "observe", test: "ours_and_the_kernels_compare_as_the_page_says", objects: true },
    Blessed { name: "observed", file: "mutate", test: "diff_sees_what_check_notices", objects: true },
];

/// Run those tests with `BLESS` set. Read what changed before it is committed: `git diff`.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    if let Some(unknown) = args.iter().find(|arg| !BLESSED.iter().any(|blessed| blessed.name == *arg)) {
        let valid: Vec<&str> = BLESSED.iter().map(|blessed| blessed.name).collect();
        let remedy = format!("give {}, or nothing for all that need no kernel's objects", valid.join(", "));
        return Err(Failure::new("bless", format!("nothing blessed is called '{unknown}'"), remedy));
    }
    let mut outcome = Outcome::Good;
    for Blessed { name, file, test, objects } in BLESSED {
        if if args.is_empty() { objects } else { !args.iter().any(|arg| arg == name) } {
            continue;
        }
        let status = Command::new("cargo")
            .args(["test", "--quiet", "--workspace", "--test", file, "--", "--include-ignored", "--exact", test])
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
