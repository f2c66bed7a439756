//! The objects of `emu-tests/fixtures`.

use std::path::Path;

/// An object that gcc made.
pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("emu-tests/fixtures").join(name);
    path.into_os_string().into_string().unwrap()
}

/// The functions of an architecture in their plainest form, and their callbacks.
pub fn fixtures(arch: &str) -> (String, String) {
    let list = include_str!("../../emu-tests/fixtures/fixtures.toml").parse::<toml::Table>().unwrap();
    let of_arch = list["arch"].as_array().unwrap().iter().find(|a| a["name"].as_str() == Some(arch)).unwrap();
    let first = &of_arch["object"][0]["output"];
    (fixture(first.as_str().unwrap()), fixture(&format!("{arch}/callbacks.o")))
}
