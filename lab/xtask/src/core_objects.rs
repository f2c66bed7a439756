// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask core-objects`: compiles the runtime core for machines without an operating system, with functions to trace, for
//! `tramptool compose --arch`.

use std::fs;
use std::path::PathBuf;

use compose::cross::{CROSS, directory};

use crate::failure::Failure;
use crate::tools::root;
use crate::verb::Outcome;

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let dir = match args {
        [] => directory().ok_or_else(|| Failure::new("core-objects", "there is no $HOME", "give a directory"))?,
        [dir] => PathBuf::from(dir),
        _ => return Err(Failure::new("core-objects", "too many arguments", "give a directory, or nothing")),
    };
    fs::create_dir_all(&dir).map_err(|e| Failure::at(&dir, e, "give a directory that can be written"))?;
    let mut outcome = Outcome::Good;
    for cross in CROSS {
        match cross.objects(&root(), &dir) {
            Ok(objects) => objects.iter().for_each(|(path, _)| println!("{path}")),
            Err(why) => {
                println!("{}: skipped: {why}", cross.arch);
                outcome = Outcome::Bad;
            }
        }
    }
    Ok(outcome)
}
