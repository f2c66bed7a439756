//! The contract of a copy of `ftrace_caller` or `ftrace_regs_caller`, which a kernel makes for an `ftrace_ops`: that of the original,
//! but for what a copy does not have (kernel arch/x86/kernel/ftrace.c, create_trampoline).

use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::error::{Error, Result};
use emu_tests::{CopiedCalls, copied_calls};
use toml::{Table, Value};

use crate::contracts::{CONTRACTS, shipped};

use super::kernel::Kernel;
use super::symbols::Symbol;

/// What copies are made of.
const ORIGINALS: [&str; 2] = ["ftrace_caller", "ftrace_regs_caller"];

/// Bytes that a copy has in common with its original at least: those of landing pad and frame.
const ALIKE: usize = 16;

/// The contract of a copy, the symbol that it gets there, and the bytes of the copy's code.
pub fn contract(
    kernel: &Kernel,
    backend: &dyn Backend,
    profile: &Profile,
    (symbol, code): (&Symbol, &[u8]),
) -> Result<(String, CopiedCalls)> {
    let calls = copied_calls(backend, (code, symbol.address))?;
    let original = original(kernel, code)?;
    let word = |at: u64| {
        let at = usize::try_from(at.wrapping_sub(symbol.address)).ok()?;
        Some(u64::from_le_bytes(code.get(at..)?.first_chunk().copied()?))
    };
    let mut words = calls.reads.iter().filter_map(|at| word(*at));
    let (Some(op), None) = (words.next(), words.next()) else {
        return Err(Error::new("it does not read one word behind its code, the address of its ftrace_ops"));
    };
    Ok((adapted(&table(backend, profile, original)?, original, &calls, op)?, calls))
}

/// Whose code it begins with.
fn original(kernel: &Kernel, code: &[u8]) -> Result<&'static str> {
    let alike = |name: &'static str| {
        let symbol = kernel.symbols.one(name).ok()?;
        let theirs = kernel.memory.read(symbol.address, code.len() as u64).ok()?;
        Some((theirs.iter().zip(code).take_while(|(a, b)| a == b).count(), name))
    };
    let best = ORIGINALS.into_iter().filter_map(alike).max().filter(|(same, _)| *same >= ALIKE);
    best.map(|(_, name)| name).ok_or_else(|| {
        Error::new(format!("it does not begin as {} do in the kernel's memory", ORIGINALS.join(" and ")))
    })
}

/// The contract that comes with the tool for the original.
fn table(backend: &dyn Backend, profile: &Profile, original: &str) -> Result<Table> {
    let arch = backend.facts().name;
    let has = |name: &str| {
        let of =
            |c: &crate::contracts::Shipped| c.trampolines.iter().any(|t| t.symbol == original && t.object.is_none());
        let of_kernel = |c: &crate::contracts::Shipped| (c.arch.as_str(), c.profile.as_str()) == (arch, profile.name);
        shipped().is_ok_and(|all| all.iter().any(|c| c.name == name && of(c) && of_kernel(c)))
    };
    let (name, text) = CONTRACTS.iter().find(|(name, _)| has(name)).ok_or_else(|| {
        Error::new(format!("no contract that comes with the tool is for {original} of {} on {arch}", profile.name))
    })?;
    text.parse().map_err(|e: toml::de::Error| Error::new(e.to_string().trim_end()).at(name))
}

/// The contract of the original as that of a copy with this call: its own place of it, its own `ftrace_ops`, and no way to a direct
/// trampoline. Nothing is told of unwinding: no table describes a copy.
fn adapted(table: &Table, original: &str, calls: &CopiedCalls, op: u64) -> Result<String> {
    let odd = || Error::new(format!("the contract of {original} has another form"));
    let list = table.get("trampoline").and_then(Value::as_array).ok_or_else(odd)?;
    let is_original = |t: &&Table| t.get("symbol").and_then(Value::as_str) == Some(original);
    let mut mine = list.iter().filter_map(Value::as_table).find(is_original).ok_or_else(odd)?.clone();
    mine.retain(|key, _| !key.starts_with("direct") && !key.starts_with("early-direct"));
    mine.insert("slot".to_owned(), format!("{:#x}", calls.call.0).into());
    let arguments = ["ip", "parent-ip", &format!("{op:#x}"), "frame"];
    mine.insert("arguments".to_owned(), arguments.map(Value::from).to_vec().into());
    if let Some(deviations) = mine.get_mut("deviation").and_then(Value::as_array_mut) {
        let text = |d: &Value, key: &str| d.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        deviations.retain(|d| text(d, "clause") != "P12" && !text(d, "way").starts_with("direct"));
    }
    let mut all = table.clone();
    for frame in all.get_mut("frame").and_then(Value::as_table_mut).ok_or_else(odd)?.iter_mut().map(|(_, frame)| frame)
    {
        for field in frame.get_mut("field").and_then(Value::as_array_mut).ok_or_else(odd)? {
            if let Some(field) =
                field.as_table_mut().filter(|f| f.get("holds").and_then(Value::as_str) == Some("direct"))
            {
                field.remove("stores");
            }
        }
    }
    all.retain(|key, _| !["objects", "config", "several-objects"].contains(&key));
    all.insert("trampoline".to_owned(), vec![Value::from(mine)].into());
    toml::to_string(&all).map_err(|e| Error::new(e.to_string()))
}
