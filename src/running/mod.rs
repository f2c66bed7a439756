//! The trampolines that a running kernel wrote: found by its symbols, read from its memory, each with the contract that follows
//! from what it calls and from the prototype of the function that it traces.
//!
//! BPF's are `bpf_trampoline_KEY`, where KEY says by which function's type it is (kernel include/linux/bpf_verifier.h,
//! bpf_trampoline_compute_key).

mod contract;
mod copy;
mod found;
mod kernel;
mod memory;
mod probe;
mod sites;
mod symbols;
mod types;

use std::collections::BTreeMap;

use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::error::{Error, Result};
use emu_tests::{Callee, Suite, written_calls};

pub use found::Found;
pub use kernel::Kernel;
pub use memory::Memory;
pub use sites::{RunningSite, State, sites};
pub use symbols::Symbols;
pub use types::Types;

use contract::Written;
use found::suite;
use kernel::FTRACE;
use probe::probes;
use symbols::Symbol;

/// Trampolines that are looked at.
const MOST_TRAMPOLINES: usize = 4096;

/// Bit 31 of a key: the number below is that of a type in a kernel's BTF.
const KERNEL_BTF: u64 = 1 << 31;

/// Find all trampolines, with what they are judged by.
///
/// # Errors
/// No profile is for this kernel, or it is of an unknown architecture.
pub fn find(kernel: &Kernel, backends: &[&'static dyn Backend]) -> Result<Vec<Found>> {
    let backend = kernel.backend(backends)?;
    let profile = kernel.profile()?;
    let mut all = Vec::new();
    let written: Vec<&Symbol> = kernel.symbols.all().filter(|symbol| is_written(&symbol.name)).collect();
    if written.len() > MOST_TRAMPOLINES {
        return Err(Error::new(format!(
            "the kernel has {} trampolines; valid: up to {MOST_TRAMPOLINES}",
            written.len()
        )));
    }
    for symbol in written {
        let judged = match symbol.name.strip_prefix("bpf_trampoline_") {
            Some(key) => bpf(kernel, backend, profile, (symbol, key)),
            None => copied(kernel, backend, profile, symbol),
        };
        all.push(Found { name: format!("{}@{:#x}", symbol.name, symbol.address), judged });
    }
    all.extend(probes(kernel, backend, profile));
    Ok(all)
}

/// Is it the name of one trampoline that a kernel wrote? Pages of kprobes have several.
fn is_written(name: &str) -> bool {
    name == FTRACE || name.starts_with("bpf_trampoline_")
}

/// A copy of `ftrace_caller` or `ftrace_regs_caller`.
fn copied(kernel: &Kernel, backend: &'static dyn Backend, profile: &'static Profile, symbol: &Symbol) -> Result<Suite> {
    let code = kernel.code(symbol)?;
    let (text, calls) = copy::contract(kernel, backend, profile, (symbol, &code))?;
    let end = calls.reads.iter().map(|at| at + 8).max().unwrap_or(0).max(symbol.address + calls.size);
    let code = code.get(..(end - symbol.address) as usize).unwrap_or(&code).to_vec();
    let mut names = BTreeMap::from([(calls.call.1, format!("{:#x}", calls.call.1))]);
    thunk(kernel, backend, &mut names);
    suite(kernel, (backend, profile), (symbol, code), (&text, names))
}

/// The name of what who returns through a thunk jumps to.
fn thunk(kernel: &Kernel, backend: &dyn Backend, names: &mut BTreeMap<u64, String>) {
    let thunk = backend.machine().return_thunk;
    if let Ok(symbol) = kernel.symbols.one(thunk) {
        names.insert(symbol.address, thunk.to_owned());
    }
}

/// A trampoline of BPF.
fn bpf(
    kernel: &Kernel,
    backend: &'static dyn Backend,
    profile: &'static Profile,
    (symbol, key): (&Symbol, &str),
) -> Result<Suite> {
    let symbols = &kernel.symbols;
    let key: u64 = key.parse().map_err(|_| Error::new("its name has no key"))?;
    if key & KERNEL_BTF == 0 {
        return Err(Error::new("it traces a BPF program, whose prototype is not in the kernel's BTF"));
    }
    if key >> 32 != 1 {
        return Err(Error::new("it traces a function of a module, whose types are not given"));
    }
    let types =
        kernel.types.as_ref().ok_or_else(|| Error::new("the kernel's types are not given; valid: --btf FILE"))?;
    let function = types.function((key & (KERNEL_BTF - 1)) as u32)?;
    let traced = symbols.one(&function.name)?;
    let code = kernel.code(symbol)?;
    let callee = |to: u64| match symbols.at(to).map(|symbol| symbol.name.as_str()) {
        Some("__bpf_tramp_enter") => Callee::TrampEnter,
        Some("__bpf_tramp_exit") => Callee::TrampExit,
        Some(name) if name.starts_with("__bpf_prog_enter") => Callee::ProgEnter,
        Some(name) if name.starts_with("__bpf_prog_exit") => Callee::ProgExit,
        _ if to.wrapping_sub(traced.address) < contract::SITE => Callee::Function,
        _ => Callee::Program,
    };
    let calls = written_calls(backend, (&code, symbol.address), &callee)?;
    let size = calls.size as usize;
    let written = Written { name: symbol.name.clone(), backend, profile, function, traced: traced.address, calls };
    let names = names(kernel, &written, backend)?;
    let text = written.contract(&names)?;
    let code = code.get(..size).unwrap_or(&code).to_vec();
    suite(kernel, (backend, profile), (symbol, code), (&text, names))
}

/// The names of what it calls, by address: those of which there is one.
fn names(kernel: &Kernel, written: &Written, backend: &dyn Backend) -> Result<BTreeMap<u64, String>> {
    let mut names = BTreeMap::new();
    for at in written.called() {
        let symbol = kernel.symbols.at(at).filter(|symbol| kernel.symbols.one(&symbol.name).is_ok());
        names.insert(at, symbol.map_or_else(|| format!("{at:#x}"), |symbol| symbol.name.clone()));
    }
    thunk(kernel, backend, &mut names);
    Ok(names)
}
