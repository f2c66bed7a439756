//! The other tests on other machines, in an emulator of programs.

use std::path::Path;
use std::process::Command;

/// What Rust calls a machine, and others do.
const MACHINES: [(&str, &str); 2] =
    [("aarch64-unknown-linux-gnu", "aarch64"), ("riscv64gc-unknown-linux-gnu", "riscv64")];

/// Those that run there.
const TESTS: [&str; 7] = ["attach", "record", "retour", "several", "traps", "unwind", "hammer"];

fn has_library(target: &str) -> bool {
    let asked = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output().unwrap();
    let directory = String::from_utf8(asked.stdout).unwrap();
    Path::new(directory.trim()).read_dir().is_ok_and(|mut files| files.next().is_some())
}

#[test]
#[ignore = "it compiles everything for two more machines, whose Rust library `rustup target add` brings"]
fn it_works_on_other_machines() {
    for (target, machine) in MACHINES {
        assert!(has_library(target), "rustup target add {target}");
        let gcc = format!("{machine}-linux-gnu-gcc");
        let runner = format!("qemu-{machine} -L /usr/{machine}-linux-gnu");
        let variable = |what: &str| format!("CARGO_TARGET_{}_{what}", target.to_uppercase().replace('-', "_"));
        let status = Command::new(env!("CARGO"))
            .args(["test", "-p", "tramptool-live", "--target", target])
            .args(TESTS.iter().flat_map(|test| ["--test", test]))
            .envs([(variable("LINKER"), gcc), (variable("RUNNER"), runner.clone())])
            .env("TRAMPTOOL_LIVE_RUNNER", runner)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.unwrap().success(), "{target}");
    }
}
