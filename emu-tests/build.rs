//! Compiles what the processes of other engines load, for the machine that the tool is compiled for.

use std::env;
use std::path::PathBuf;

fn main() {
    let Some(out) = env::var_os("OUT_DIR") else { return };
    println!("cargo::rerun-if-changed=src/engine/process/shared.h");
    for name in ["plugin", "preload", "wall"] {
        let source = format!("src/engine/process/{name}.c");
        println!("cargo::rerun-if-changed={source}");
        let object = PathBuf::from(&out).join(name).with_extension("so");
        if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
            // These processes are started on Linux alone.
            if let Err(e) = std::fs::write(object, "") {
                println!("cargo::error={e}");
            }
            continue;
        }
        let mut build = cc::Build::new();
        build.std("gnu11").opt_level(2).warnings(true).pic(true).flag("-fvisibility=hidden");
        let mut command = build.get_compiler().to_command();
        let done = command.args(["-shared", "-o"]).arg(object).arg(&source).status();
        if !done.as_ref().is_ok_and(std::process::ExitStatus::success) {
            println!("cargo::error=cannot compile {source} ({done:?}); install gcc and libc6-dev, or set CC");
        }
    }
}
