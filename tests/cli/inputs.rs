//! Architectures, and the objects that gcc made for them.

use std::path::Path;

/// Architecture, prefix of its binutils.
pub const ARCHES: [(&str, &str); 3] =
    [("x86_64", "x86_64-linux-gnu-"), ("arm64", "aarch64-linux-gnu-"), ("riscv64", "riscv64-linux-gnu-")];

/// An object that gcc made.
pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("emu-tests/fixtures").join(name);
    path.into_os_string().into_string().unwrap()
}

/// The functions of an architecture in their plainest form, and their callbacks.
pub fn fixtures(arch: &str) -> (String, String) {
    let functions = if arch == "riscv64" { "rvc" } else { "plain" };
    (fixture(&format!("{arch}/{functions}.o")), fixture(&format!("{arch}/callbacks.o")))
}
