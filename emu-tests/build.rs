//! Compiles the plugin that QEMU loads, for the machine that the tool is compiled for.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=src/engine/qemu/plugin.c");
    let Some(out) = env::var_os("OUT_DIR") else { return };
    let plugin = PathBuf::from(out).join("plugin.so");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        // QEMU's processes are started on Linux alone.
        if let Err(e) = std::fs::write(plugin, "") {
            println!("cargo::error={e}");
        }
        return;
    }
    let mut build = cc::Build::new();
    build.std("gnu11").opt_level(2).warnings(true).pic(true).flag("-fvisibility=hidden");
    let mut command = build.get_compiler().to_command();
    let done = command.args(["-shared", "-o"]).arg(plugin).arg("src/engine/qemu/plugin.c").status();
    if !done.as_ref().is_ok_and(std::process::ExitStatus::success) {
        println!(
            "cargo::error=cannot compile src/engine/qemu/plugin.c ({done:?}); install gcc and libc6-dev, or set CC"
        );
    }
}
