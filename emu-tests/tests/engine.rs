//! The engine that runs is the bundled, pinned one, and our register numbers are its own.

use codegen::isa::Backend;
use unicorn_engine::{RegisterARM64, RegisterRISCV, RegisterX86};

#[test]
fn the_engine_is_the_pinned_one() {
    assert_eq!(emu_tests::engine_version(), (2, 1), "another libunicorn was linked: is UNICORN_NO_PKG_CONFIG unset?");
}

/// Every register of the table by the engine's name for it.
fn named(backend: &dyn Backend, find: impl Fn(&str) -> Option<i32>) {
    let machine = backend.machine();
    let general = backend.facts().abi.regs.iter().map(|r| (r.name, r.emu));
    let other = machine.vectors.iter().chain(machine.control).chain(machine.flags.as_ref().map(|(r, _)| r));
    for (name, id) in general.chain(other.map(|r| (r.name, r.id))) {
        assert_eq!(find(&name.to_uppercase()), Some(id), "{} {name}", backend.facts().name);
    }
    assert_eq!(find("PC").or_else(|| find("RIP")), Some(machine.pc), "{} pc", backend.facts().name);
}

/// The variants of an enum of the binding, by the names that Debug prints.
macro_rules! finder {
    ($enum:ty, $($alias:literal => $real:literal),*) => {
        |name: &str| {
            let name = match name { $($alias => $real,)* other => other };
            (0..600).filter_map(|i| <$enum>::try_from(i).ok().map(|r| (i, r))).find(|(_, r)| format!("{r:?}") == name).map(|(i, _)| i)
        }
    };
}

#[test]
fn register_numbers_are_the_engines() {
    named(&arch_x86_64::X86_64, finder!(RegisterX86, "" => ""));
    named(&arch_arm64::Arm64, finder!(RegisterARM64, "" => ""));
    named(&arch_riscv::Riscv64, finder!(RegisterRISCV, "" => ""));
}
