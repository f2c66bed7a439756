// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers that are judged by running what they wrote on this machine: a program of ours, linked with the kernel's object, calls the
//! writer and then its code.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::failure::Failure;
use crate::tools::{call, root};

/// A writer of one object of the kernel.
#[derive(Deserialize)]
pub struct Native {
    /// What it writes.
    pub name: String,
    /// The machines in whose trees the object is.
    pub machines: Vec<String>,
    pub object: String,
    /// The program, beside the other halves.
    source: String,
}

/// Where it is made.
pub struct Place<'m> {
    /// The kernel's objects.
    pub dir: &'m Path,
    /// What compilers' names begin with.
    pub cross: &'m str,
    /// Returns go through a thunk.
    pub rethunk: bool,
}

/// What a program says.
pub struct Ran {
    /// Its last line.
    pub said: String,
    /// What does something else than was asked for.
    pub wrong: Vec<String>,
}

impl Native {
    /// Is it the writer of this object's source, in the tree of this machine?
    pub fn writes(&self, source: &str, machine: &str) -> bool {
        self.of(machine) && Path::new(source).with_extension("o") == Path::new(&self.object)
    }

    pub fn of(&self, machine: &str) -> bool {
        self.machines.iter().any(|name| name == machine)
    }

    /// Run it with the kernel's object, or with one that was made otherwise.
    pub fn run(&self, place: &Place, object: Option<&Path>) -> Result<Ran, Failure> {
        let program = self.linked(place, object)?;
        let run = Command::new(&program).output().map_err(|e| Failure::at(&program, e, "remove it"))?;
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        match run.status.code() {
            Some(0 | 1) => {
                let said = lines.pop().unwrap_or_default();
                Ok(Ran { said, wrong: lines })
            }
            _ => Ok(Ran { said: String::new(), wrong: lines.into_iter().chain([run.status.to_string()]).collect() }),
        }
    }

    fn linked(&self, place: &Place, object: Option<&Path>) -> Result<PathBuf, Failure> {
        let program = place.dir.join(format!("native-{}", self.source.trim_end_matches(".c")));
        let object = object.map_or_else(|| place.dir.join(&self.object), Path::to_path_buf);
        let rethunk = format!("-DRETHUNK={}", u8::from(place.rethunk));
        let flags = ["-O2", "-Wall", "-Wextra", "-fno-pie", "-no-pie", "-static", "-mno-red-zone", &rethunk];
        let source = root().join("lab/xtask/kernel/writers").join(&self.source);
        let mut compiler = Command::new(format!("{}gcc", place.cross));
        call(compiler.args(flags).arg(source).arg(object).args(["-Wl,--no-warnings", "-o"]).arg(&program))?;
        Ok(program)
    }
}
