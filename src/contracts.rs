//! The contracts that come with the tool, for trampolines that others wrote.

use codegen::profile::Profile;
use codegen::words::error::{Error, Result};
use emu_tests::{Condition, Configuration};
use serde::{Deserialize, Serialize};

use crate::kernel::Tree;

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
    /// The objects, as a kernel's build tree has them, from its root; none where they are of no kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// The options of the kernel's configuration with which they are so; `!` before one that is not set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<String>,
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

/// The contract for the objects of a kernel under this profile. Of several, that which says most of its configuration.
///
/// # Errors
/// There is none for its architecture or configuration; what there is.
pub fn for_kernel(kernel: &Tree, profile: &'static Profile) -> Result<Shipped> {
    let (name, config) = kernel.config;
    let (arch, config) = (kernel.convention(profile)?.facts.name, Configuration::of(config));
    let mut all = shipped()?;
    let of = (arch, profile.name);
    all.retain(|c| (c.arch.as_str(), c.profile.as_str()) == of && !c.objects.is_empty());
    let known: Vec<String> = all.iter().map(|c| format!("{} ({})", c.name, c.config.join(" "))).collect();
    let fits = |contract: &Shipped| {
        let conditions: std::result::Result<Vec<_>, _> =
            contract.config.iter().cloned().map(Condition::try_from).collect();
        conditions.is_ok_and(|conditions| config.fits(&conditions))
    };
    all.into_iter().filter(fits).max_by_key(|contract| contract.config.len()).ok_or_else(|| {
        let valid = if known.is_empty() { "none for it".to_owned() } else { known.join(", ") };
        Error::new(format!("no contract that comes with the tool is for this configuration on {arch}; valid: {valid}"))
            .at(name)
    })
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
    "glibc-2.36-tlsdesc-arm64",
    "libffi-3.4-x86_64",
    "libffi-3.4-arm64",
    "libffi-3.4-riscv64",
    "ocaml-5.3-x86_64",
    "ocaml-5.3-arm64",
    "ocaml-5.3-riscv64",
    "klibc-2.0.14-x86_64",
    "klibc-2.0.14-arm64",
    "klibc-2.0.14-riscv64",
    "boost-context-1.83-x86_64",
    "boost-context-1.83-arm64",
    "boost-context-1.83-riscv64"
);
