//! Compiles the part that is loaded into the traced process, for the machine that the tool is compiled for.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-env-changed=CC");
    let (Some(out), Ok(root)) = (env::var_os("OUT_DIR"), env::var("CARGO_MANIFEST_DIR")) else { return };
    let library = PathBuf::from(out).join("libtramptool_trace.so");
    let cc = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&cc);
    command.args([
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-Wl,-z,defs",
        "-o",
    ]);
    let done = command.arg(&library).arg(format!("{root}/preload/preload.c")).status();
    if !done.as_ref().is_ok_and(std::process::ExitStatus::success) {
        println!(
            "cargo::error={cc} cannot compile session/preload/preload.c ({done:?}); install gcc and libc6-dev, or set CC"
        );
    }
}
