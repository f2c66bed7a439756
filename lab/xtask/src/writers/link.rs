// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a program is made of a kernel's objects, a half of ours that is compiled as they are, and a half in plain C.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::Machine;
use crate::failure::Failure;
use crate::tools::{call, name, read, root, write};

/// A program in the directory of a kernel's objects.
pub struct Program<'p> {
    pub machine: &'p Machine,
    pub dir: &'p Path,
    pub name: &'p str,
    /// Our half for the kernel's headers, if there is one, and the object whose command compiles it.
    pub kernel: Option<(&'p str, &'p str)>,
    pub user: &'p str,
    /// The kernel's objects.
    pub theirs: &'p [PathBuf],
    /// More for the compiler of the plain half, and for the linker.
    pub flags: &'p [&'p str],
    pub link: &'p [&'p str],
}

impl Program<'_> {
    /// Compile our halves and link them with the kernel's objects.
    pub fn linked(&self) -> Result<PathBuf, Failure> {
        let (ours, program) = (root().join("lab/xtask/kernel/writers"), self.dir.join(self.name));
        let include = format!("-I{}", ours.display());
        let silent = ["-Wno-missing-prototypes", "-Wno-missing-declarations", &include];
        let half = |(source, like)| compiled(self.dir, Path::new(like), &ours.join(source), &silent);
        let mut objects: Vec<PathBuf> = self.kernel.into_iter().map(half).collect::<Result<_, _>>()?;
        for from in self.theirs {
            let copy = self.dir.join(format!("{}-{}", self.name, name(from)));
            fs::copy(from, &copy).map_err(|e| Failure::at(from, e, "see what make said"))?;
            objects.push(copy);
        }
        objects.iter().try_for_each(|object| self.marked(object))?;
        let compiler = format!("{}gcc", self.machine.cross);
        let user = self.dir.join(format!("{}-user.o", self.name));
        let flags = ["-O2", "-Wall", "-Wextra", "-fno-pie", "-fno-builtin", &include];
        call(
            Command::new(&compiler)
                .args(flags)
                .args(self.flags)
                .args(["-c", "-o"])
                .arg(&user)
                .arg(ours.join(self.user)),
        )?;
        objects.push(user);
        // What is still undefined is zeros: a call there ends with a signal.
        let zeros = self.dir.join(format!("{}-zeros.c", self.name));
        let zero = |symbol: &String| format!("char {symbol}[4096] __attribute__((aligned(64)));\n");
        let missing = missing(&compiler, &objects, self.dir)?;
        write(&zeros, missing.iter().map(zero).collect::<String>().as_bytes())?;
        let link = ["-static", "-no-pie", "-fno-pie", "-fno-builtin", "-w"];
        let mut linker = Command::new(&compiler);
        call(linker.args(link).args(self.link).arg("-o").arg(&program).args(&objects).arg(&zeros))?;
        Ok(program)
    }

    /// Give an object the bits of the C library's.
    fn marked(&self, object: &Path) -> Result<(), Failure> {
        let Some([at, bits]) = self.machine.flags else { return Ok(()) };
        let mut bytes = fs::read(object).map_err(|e| Failure::at(object, e, "see what the compiler said"))?;
        if let Some(byte) = bytes.get_mut(at) {
            *byte |= bits as u8;
        }
        write(object, &bytes)
    }
}

/// What runs a program of this machine.
pub fn command(machine: &Machine, program: &Path) -> Command {
    match machine.run.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A source compiled in the kernel's tree, by the command that compiled this object of it and with these flags.
pub fn compiled(dir: &Path, object: &Path, source: &Path, more: &[&str]) -> Result<PathBuf, Failure> {
    let kept = dir.join(object).with_file_name(format!(".{}.cmd", name(object)));
    let text = read(&kept)?;
    let line = text.lines().next().and_then(|line| line.split_once(":= ")).map(|(_, command)| command);
    let flags = line.and_then(|line| line.split_once(" -c -o ")).map(|(flags, _)| flags);
    let flags = flags.ok_or_else(|| Failure::at(&kept, "says no command", "remove the directory"))?;
    let flags: Vec<&str> = flags.split(' ').filter(|word| !word.starts_with("-Wp,-MMD,")).collect();
    let made = dir.join(format!("made-{}", name(&source.with_extension("o"))));
    let (flags, more) = (flags.join(" "), more.join(" "));
    let command = format!("{flags} {more} -c -o {} {}", made.display(), source.display());
    // It has quoted words.
    call(Command::new("sh").arg("-c").arg(command).current_dir(dir))?;
    Ok(made)
}

/// The symbols that nobody defines.
fn missing(compiler: &str, objects: &[PathBuf], dir: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut link = Command::new(compiler);
    link.args(["-static", "-no-pie", "-o"]).arg(dir.join("writers-trial")).args(objects);
    let run = link.output().map_err(|e| Failure::new(compiler, e.to_string(), "install it"))?;
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    let named = |line: &str| {
        line.split_once("undefined reference to `").map(|(_, name)| name.trim_end_matches('\'').to_owned())
    };
    Ok(text.lines().filter_map(named).collect())
}
