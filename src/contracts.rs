//! The contracts that come with the tool, for trampolines that others wrote.

use codegen::words::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a contract is of.
#[derive(Deserialize, Serialize)]
pub struct Shipped {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The architecture.
    pub arch: String,
    /// The profile whose sites lead to the trampolines.
    pub profile: String,
    /// The objects, and the configuration that they are built with.
    pub about: String,
    /// The trampolines.
    #[serde(rename(deserialize = "trampoline", serialize = "trampolines"))]
    pub trampolines: Vec<Promised>,
}

/// A trampoline of a contract.
#[derive(Deserialize, Serialize)]
pub struct Promised {
    /// Its symbol.
    pub symbol: String,
    /// The object that is judged by itself, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// What each of [`CONTRACTS`] is of.
///
/// # Errors
/// None: a test reads them.
pub fn shipped() -> Result<Vec<Shipped>> {
    let of = |(name, text): &(&str, &str)| match toml::from_str::<Shipped>(text) {
        Ok(contract) => Ok(Shipped { name: (*name).to_owned(), ..contract }),
        Err(e) => Err(Error::new(e.to_string().trim_end()).at(name)),
    };
    CONTRACTS.iter().map(of).collect()
}

macro_rules! contracts {
    ($($name:literal),*) => {
        /// Name and text of each.
        pub const CONTRACTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../contracts/", $name, ".toml")))),*];
    };
}

contracts!(
    "linux-6.12-x86_64-orc",
    "linux-6.12-x86_64-fp",
    "linux-6.12-x86_64-debian",
    "linux-6.12-arm64",
    "linux-6.12-arm64-call-ops",
    "linux-6.12-riscv64",
    "linux-6.12-riscv64-norvc",
    "linux-6.12-riscv64-debian",
    "linux-6.12-samples-x86_64",
    "linux-6.12-samples-arm64",
    "linux-6.12-samples-riscv64",
    "linux-7.3-x86_64-orc",
    "linux-7.3-x86_64-fp",
    "linux-7.3-arm64",
    "linux-7.3-arm64-call-ops",
    "linux-7.3-riscv64-norvc",
    "linux-7.3-riscv64-clang",
    "linux-7.3-riscv64-cfi",
    "linux-7.3-arm64-cfi",
    "linux-7.3-x86_64-cfi",
    "linux-7.3-samples-x86_64",
    "linux-7.3-samples-arm64",
    "linux-7.3-samples-riscv64",
    "xray-19-x86_64",
    "xray-19-arm64",
    "glibc-2.36-x86_64",
    "glibc-2.36-arm64",
    "glibc-2.36-riscv64",
    "glibc-2.36-tlsdesc-x86_64",
    "glibc-2.36-tlsdesc-arm64"
);
