//! Makes `traced_entry`, under the names of `profile.toml`, and links it.

use std::error::Error;
use std::path::PathBuf;

use tramptool::{Spec, Target, generate};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=profile.toml");
    let target = Target::with_profile(&std::env::var("CARGO_CFG_TARGET_ARCH")?, "profile.toml")?;
    let made = generate(&target, &[Spec::named("traced_entry")])?;

    let object = PathBuf::from(std::env::var("OUT_DIR")?).join("trampolines.o");
    std::fs::write(&object, made.object()?)?;
    println!("cargo::rustc-link-arg={}", object.display());
    for arg in ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none"] {
        println!("cargo::rustc-link-arg={arg}");
    }

    // Where the handler finds the argument, and how the trampoline is to be used.
    let contract = made.contract("traced_entry")?;
    let slot = contract.frame.iter().find(|slot| slot.member == "rdi").ok_or("no slot for rdi")?;
    println!("cargo::rustc-env=ARGUMENT_OFFSET={}", slot.offset);
    Ok(())
}
