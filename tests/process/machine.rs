//! What real processes of an architecture are compiled, linked and run with: `[process]` of tests/arch/NAME.toml.

use std::sync::LazyLock;

use crate::common::expected::{Process, expected, tools};
use crate::place::Isa;

pub struct Arch {
    pub name: &'static str,
    /// The prefix of its GNU tools.
    pub prefix: &'static str,
    pub isa: Isa,
    pub with: Process,
}

/// Every architecture.
pub static ARCHES: LazyLock<Vec<Arch>> = LazyLock::new(|| {
    let arch = |backend: &&'static dyn codegen::backend::Backend| {
        let with = expected(*backend).process;
        let isa = Isa::named(&with.isa);
        Arch { name: backend.facts().name, prefix: tools(*backend), isa, with }
    };
    tool::BACKENDS.iter().map(arch).collect()
});

/// The one whose processes run here without an emulator.
pub fn native() -> &'static Arch {
    ARCHES.iter().find(|arch| arch.with.runner.is_empty()).unwrap()
}

/// Do this for all of them at once.
pub fn for_each(work: impl Fn(&Arch) + Sync) {
    std::thread::scope(|scope| {
        for arch in ARCHES.iter() {
            scope.spawn(|| work(arch));
        }
    });
}

impl Arch {
    /// A tool of its GNU tools, or its gcc.
    pub fn tool(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// gcc's and clang's compilers of C++.
    pub fn compilers(&self) -> [Vec<String>; 2] {
        let flags = self.with.flags.iter().cloned();
        [vec![self.tool("g++")], [&["clang++-14".to_owned()][..], &self.with.clang].concat()]
            .map(|command| command.into_iter().chain(flags.clone()).collect())
    }
}
