// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy of the repository, whose checkers have switches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::points::{Point, points};
use super::rows::{CHECKERS, Checker};
use crate::failure::Failure;
use crate::tools::{below, call, read, root, write};

/// What reads the switch, a number in the environment, and writes which switches were reached, each once for a process.
const SWITCH: &str = r#"
/// A statement that is left out.
#[allow(missing_docs, reason = "of `cargo xtask checker`")]
pub mod removed {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static REACHED: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

    pub fn is(n: u32) -> bool {
        static N: OnceLock<u32> = OnceLock::new();
        let bit = 1 << (n % 64);
        if REACHED[n as usize / 64].load(Relaxed) & bit == 0 {
            first(n, bit);
        }
        *N.get_or_init(|| std::env::var("TRAMPTOOL_REMOVED").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX)) == n
    }

    #[cold]
    fn first(n: u32, bit: u64) {
        REACHED[n as usize / 64].fetch_or(bit, Relaxed);
        let Some(path) = std::env::var_os("TRAMPTOOL_REACHED") else { return };
        let file = std::fs::File::options().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{n}\n").as_bytes())).expect("it is written which switch was reached");
    }
}
"#;

/// Where the walls around the judge are chosen, which keep it from writing what it reached; and what is chosen.
const WALLS: (&str, &str, &str) =
    ("src/cmd/shared/sandbox/mod.rs", "default_value = \"auto\"", "default_value = \"off\"");

/// Make the copy: what git has in the work tree, with switches.
pub fn switched(copy: &Path) -> Result<Vec<Point>, Failure> {
    let listed = call(Command::new("git").args(["ls-files"]).current_dir(root()))?.out;
    for file in listed.lines().filter(|file| !is_changed(file)) {
        let (from, to) = (root().join(file), copy.join(file));
        let refused = |e: std::io::Error| Failure::at(&to, e, "make room");
        fs::create_dir_all(to.parent().unwrap_or(copy)).map_err(refused)?;
        let bytes = fs::read(&from).map_err(|e| Failure::at(&from, e, "restore it from git"))?;
        // What is as it was is not compiled again.
        if fs::read(&to).ok().as_deref() != Some(&bytes) {
            write(&to, &bytes)?;
        }
    }
    let mut all = Vec::new();
    for Checker { name: checker, files: dirs, root: lib, .. } in CHECKERS {
        for dir in dirs {
            let mut files: Vec<PathBuf> = below(&root().join(dir))?;
            files.sort();
            for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
                let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
                let text = points(checker, &name, &read(file)?, &mut all)?;
                changed(&copy.join(&name), &text)?;
            }
        }
        changed(&copy.join(lib), &(read(&root().join(lib))? + SWITCH))?;
    }
    let (walls, from, to) = WALLS;
    let text = read(&root().join(walls))?;
    if !text.contains(from) {
        return Err(Failure::new(walls, format!("no `{from}`"), "say in checker/copy.rs how walls are chosen"));
    }
    changed(&copy.join(walls), &text.replace(from, to))?;
    Ok(all)
}

/// Is the file another one in the copy?
fn is_changed(file: &str) -> bool {
    file == WALLS.0 || CHECKERS.iter().any(|c| c.root == file || c.files.iter().any(|dir| file.starts_with(dir)))
}

/// Write a file, if it is another one.
fn changed(path: &Path, text: &str) -> Result<(), Failure> {
    let refused = |e: std::io::Error| Failure::at(path, e, "make room");
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(refused)?;
    if fs::read_to_string(path).ok().as_deref() == Some(text) { Ok(()) } else { write(path, text.as_bytes()) }
}
