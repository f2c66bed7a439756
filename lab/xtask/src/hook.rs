// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generated modules, built by a kernel's own build, with just the object that was generated.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::kernels::Kernel;
use crate::tools::{call, copy, read, root, tramptool, write};

/// A module and what it traces: see `kernel/init.c`.
pub struct Hook<'h> {
    /// The traced function.
    pub sig: &'static str,
    /// The module, which is also the name of the function that is called.
    pub name: &'static str,
    /// The site jumps to the trampoline, and that on to here.
    jump: Option<&'h str>,
}

/// The module whose trampoline is called.
pub const CALLED: Hook = Hook {
    sig: "ssize_t comm_write(struct file *file, const char __user *buf, size_t count, loff_t *offset)",
    name: "trace_comm_write",
    jump: None,
};

/// The module whose trampoline is jumped to, where a kernel has such sites. What it jumps to must be exported.
pub fn jumped(kernel: &Kernel) -> Option<Hook<'_>> {
    let sig = "ssize_t seq_read(struct file *file, char __user *buf, size_t size, loff_t *ppos)";
    Some(Hook { sig, name: "trace_seq_read", jump: Some(kernel.jump.as_deref()?) })
}

/// What came of a build.
pub struct Built {
    /// The module's file and its name.
    pub file: (String, Vec<u8>),
    /// Why it is not as it should be.
    pub wrong: Option<&'static str>,
}

/// Generate a module and build it for the kernel that was built in, or has its headers in, `headers`, with more variables for make.
pub fn build(kernel: &Kernel, headers: &Path, more: &[String], hook: &Hook) -> Result<Built, Failure> {
    let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
    let source = dir.path().join("module");
    let Hook { sig, name, jump } = hook;
    let mut tool = tramptool();
    tool.args(["gen", "direct", "--sig", sig, "--call", name, "--emit", "kmod", "--profile", &kernel.profile]);
    tool.args(jump.iter().flat_map(|to| ["--jump", "--function", to]));
    call(tool.arg("--kernel-build").arg(headers).arg("-o").arg(&source))?;
    // A call leaves nothing where arguments were.
    let main = source.join(format!("{name}_main.c"));
    let (count, left) = ("\tWRITE_ONCE(calls, calls + 1);\n", "\tstatic char left[32];\n\n");
    let hostile = format!("{left}{count}\tsnprintf(left, sizeof(left), \"%lu\", calls);\n");
    let text = read(&main)?;
    if !text.contains(count) {
        return Err(Failure::at(&main, "does not count calls as before", "mend what is put in its place here"));
    }
    write(&main, text.replace(count, &hostile).as_bytes())?;
    let said = make(kernel, headers, more, &source)?;
    let bytes = |file: String| {
        let path = source.join(file);
        fs::read(&path).map_err(|e| Failure::at(&path, e, "see what make said"))
    };
    let ours = bytes(format!("{name}_tramp.o"))? == bytes(format!("{name}_tramp.o_shipped"))?;
    let warned = !said.trim().is_empty();
    if warned {
        eprintln!("{said}");
    }
    let wrong = match (warned, ours) {
        (true, _) => Some("NO: something was said while it was built"),
        (_, false) => Some("NO: kbuild made another object"),
        (false, true) => None,
    };
    Ok(Built { file: (format!("{name}.ko"), bytes(format!("{name}.ko"))?), wrong })
}

/// A module of `lab/xtask/kernel`, which needs nothing generated.
pub fn plain(kernel: &Kernel, headers: &Path, more: &[String], name: &str) -> Result<(String, Vec<u8>), Failure> {
    let dir = tempfile::tempdir().map_err(|e| Failure::new("temporary directory", e.to_string(), "set TMPDIR"))?;
    let file = |ending: &str| format!("{name}.{ending}");
    copy(&root().join("lab/xtask/kernel").join(file("c")), &dir.path().join(file("c")))?;
    write(&dir.path().join("Kbuild"), format!("obj-m := {}\n", file("o")).as_bytes())?;
    make(kernel, headers, more, dir.path())?;
    let path = dir.path().join(file("ko"));
    let bytes = fs::read(&path).map_err(|e| Failure::at(&path, e, "see what make said"))?;
    Ok((file("ko"), bytes))
}

/// Build the modules of a directory; returns what make had to say.
fn make(kernel: &Kernel, headers: &Path, more: &[String], source: &Path) -> Result<String, Failure> {
    let mut make = Command::new("make");
    make.arg("-sC").arg(headers).arg(format!("M={}", source.display()));
    make.args([format!("ARCH={}", kernel.on.arch), format!("CROSS_COMPILE={}", kernel.on.cross)]);
    Ok(call(make.args(more).arg("modules"))?.err)
}
