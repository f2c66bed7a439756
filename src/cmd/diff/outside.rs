//! What other programs give a side of a comparison: the assembler, and git. What they give has the same bounds as a file.

use std::fs;
use std::io::Read;
use std::path::{Component, Path};
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use codegen::words::input;
use tempfile::TempDir;

/// What GNU as makes of a source.
///
/// # Errors
/// It takes it for none, or makes too much of it.
pub fn assembled(name: &str, source: &[u8], backend: &dyn Backend) -> Result<Vec<u8>> {
    /// Files that it writes have no more; the shell counts in these.
    const BLOCK: u64 = 512;
    let assembler = backend.facts().assembler;
    let fail = |what: String| Error::new(format!("{name}: {assembler}: {what}; valid: what GNU as takes without cpp"));
    let dir = tempfile::tempdir().map_err(|e| fail(e.to_string()))?;
    let (from, to) = (dir.path().join("side.s"), dir.path().join("side.o"));
    fs::write(&from, source).map_err(|e| fail(e.to_string()))?;
    let limit = format!("ulimit -f {}", input::MOST / BLOCK);
    // Whoever has a lower limit has it already.
    let limited = format!("({limit}) 2>/dev/null && {limit}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh", assembler]).arg(&from).arg("-o").arg(&to);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let (status, said) = run(&mut command, |_, stderr| stderr).map_err(|e| fail(e.to_string()))?;
    if status.success() {
        return input::bytes(&to).map_err(|e| fail(e.to_string()));
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    let place = from.display().to_string();
    let first = said.lines().find(|line| line.contains("Error")).or(said.lines().last());
    Err(fail(first.map_or_else(|| status.to_string(), |first| first.replace(&place, "line"))))
}

/// What git prints.
///
/// # Errors
/// It fails, or prints too much.
pub fn git(args: &[&str]) -> Result<Vec<u8>> {
    let fail = |why: &dyn std::fmt::Display| Error::new(format!("git {}: {why}", args.join(" ")));
    let mut command = Command::new("git");
    let printed = run(command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()), |stdout, _| stdout);
    match printed.map_err(|e| fail(&e))? {
        (status, out) if status.success() => Ok(out),
        (status, _) => Err(fail(&status)),
    }
}

/// What is read of a directory besides objects: what says that it is a kernel's build tree, and of which kernel.
const OF_A_TREE: [&str; 3] = [".config", "Makefile", "include/config/kernel.release"];

/// A directory with the objects that git has in one at a revision, named `REVISION:PATH`. What a symbolic link of the commit
/// leads to may be no part of it, so there are none.
///
/// # Errors
/// git has no such directory; a file that is too large, or cannot be written.
pub fn checked_out(tree: &str) -> Result<TempDir> {
    let fail = |e: &dyn std::fmt::Display| Error::new(format!("{tree}: {e}"));
    let dir = tempfile::tempdir().map_err(|e| fail(&e))?;
    let listed = git(&["ls-tree", "-r", "-z", "--full-tree", tree])?;
    for entry in listed.split(|byte| *byte == 0).map(String::from_utf8_lossy) {
        let Some((what, path)) = entry.split_once('\t').filter(|(what, _)| what.starts_with("100")) else { continue };
        let blob = what.rsplit(' ').next().unwrap_or_default();
        if !path.ends_with(".o") && !OF_A_TREE.contains(&path) {
            continue;
        }
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(fail(&format!("'{path}' leads out of it")));
        }
        let (to, contents) = (dir.path().join(path), git(&["cat-file", "blob", blob])?);
        let made = to.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&to, contents)).map_err(|e| fail(&e))?;
    }
    Ok(dir)
}

/// Run a program to its end, and read what it writes to one of the streams that it was given.
fn run<R: Read>(
    command: &mut Command,
    stream: impl FnOnce(Option<ChildStdout>, Option<ChildStderr>) -> Option<R>,
) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = command.stdin(Stdio::null()).spawn()?;
    let written = stream(child.stdout.take(), child.stderr.take()).map_or(Ok(Vec::new()), input::all);
    if written.is_err() {
        // It may have ended by itself.
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((status, written?))
}
