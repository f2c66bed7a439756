//! What tests expect of each architecture: tests/arch/NAME.toml.

use std::collections::BTreeMap;

use codegen::backend::Backend;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expected {
    pub layout: Layout,
    pub kernel: Kernel,
    pub report: Report,
    pub by_hand: ByHand,
}

/// The struct of `<asm/ptrace.h>` that begins, or is, the kernel's `struct pt_regs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    pub r#struct: String,
    /// The kernel's own members, which come after, of every profile of a kernel.
    pub private: Vec<Vec<String>>,
    /// The header's names of members that are called otherwise there.
    #[serde(default)]
    names: BTreeMap<String, String>,
    /// A prefix of members that are elements of an array there, and the array.
    numbered: Option<(String, String)>,
}

impl Layout {
    /// The header's name of a member of `struct pt_regs`.
    pub fn member(&self, name: &str) -> String {
        let element = || {
            let (prefix, array) = self.numbered.as_ref()?;
            Some(format!("{array}[{}]", name.strip_prefix(prefix.as_str())?))
        };
        self.names.get(name).cloned().or_else(element).unwrap_or_else(|| name.to_owned())
    }
}

/// What its configuration means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kernel {
    /// What is set in every configuration for it.
    pub config: String,
    /// Lines of asm-offsets.h.
    pub numbers: Vec<String>,
    /// A configuration under which it needs all of them.
    #[serde(default)]
    pub needs_all: Vec<String>,
    /// A setting that is given by hand beside the configuration.
    pub by_hand: Option<String>,
    /// How gcc compiles for it.
    pub gcc: Vec<String>,
    pub case: Vec<Case>,
}

/// A configuration, its numbers, and what must come of both, as `--set` says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub config: Vec<String>,
    pub offsets: Vec<String>,
    pub settings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// A setting that the command of a report must repeat.
    pub set: (String, String),
}

/// A direct-call trampoline of two arguments that somebody wrote by hand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByHand {
    pub align: u32,
    /// A register that it need not keep.
    pub scratch: String,
    pub text: String,
    /// The mnemonic of its call, when it is disassembled.
    pub call: String,
}

/// What is expected of this one.
pub fn expected(backend: &dyn Backend) -> Expected {
    let path = format!("{}/tests/arch/{}.toml", env!("CARGO_MANIFEST_DIR"), backend.facts().name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    toml::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The prefix of its GNU tools.
pub fn tools(backend: &dyn Backend) -> &'static str {
    backend.facts().assembler.strip_suffix("as").unwrap()
}
