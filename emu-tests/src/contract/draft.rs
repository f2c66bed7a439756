//! A first contract for a trampoline, from what its object shows.

use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::error::{Error, Result};
use link::{Input, SymbolKind, backend_of, examine, relocatable};

use crate::engine::disasm::decode_function;
use crate::judge::cells::extent;
use crate::run::raw::call;

/// The facts about a trampoline before it has run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    /// The architecture's name.
    pub arch: &'static str,
    /// As a contract spells it.
    pub kind: &'static str,
    /// The functions that it calls or jumps to, in order.
    pub calls: Vec<String>,
    /// Its own name for the place of a call.
    pub slot: Option<String>,
    /// The names of the argument registers.
    pub args: Vec<&'static str>,
    /// To what the psABI aligns SP.
    pub stack_align: u32,
}

/// Look at a function of an object.
///
/// # Errors
/// An object that does not link by itself, or has no such symbol.
pub fn draft(
    object: &Input,
    symbol: &str,
    profile: &'static Profile,
    backends: &[&'static dyn Backend],
) -> Result<Draft> {
    let backend = backend_of(object, backends)?;
    let image = examine(backend, &Input { bytes: &relocatable(backend, object)?, ..*object }, backend.machine().ret)?;
    let found = image.symbol(symbol).filter(|s| s.input.is_some()).ok_or_else(|| {
        let functions = image.symbols.iter().filter(|s| s.kind == SymbolKind::Function);
        Error::unknown("symbol", symbol, functions.map(|s| s.name.as_str())).at(object.name)
    })?;
    let size = extent(&image, found);
    let inside = found.address..found.address + size;
    // Calls are told by their relocations, and where the assembler resolved them, by what they are.
    let mut jumps = Vec::new();
    for reference in image.references.iter().filter(|r| inside.contains(&r.place)) {
        for (_, at, addend) in backend.machine().calls.iter().filter(|(r_type, ..)| *r_type == reference.r_type) {
            jumps.push((reference.place.wrapping_sub(*at as u64), reference.value.wrapping_sub(*addend as u64)));
        }
    }
    let code = image.bytes(found.address, size as usize).unwrap_or_default();
    for line in decode_function(backend.machine(), &image, (found.address, size))? {
        let rest = code.get((line.at - found.address) as usize..).unwrap_or_default();
        jumps.extend(line.target.filter(|&t| call(backend, &line, rest, t).is_some()).map(|t| (line.at, t)));
    }
    jumps.sort_unstable();
    let (mut calls, mut slot) = (Vec::new(), None);
    for (start, target) in jumps.into_iter().filter(|(_, target)| !inside.contains(target)) {
        let at = |address: u64| image.symbols.iter().filter(move |s| s.address == address);
        let callee = at(target).min_by_key(|s| s.local).map(|s| s.name.clone());
        calls.extend(callee.filter(|name| !calls.contains(name)));
        let label = at(start).find(|s| start != found.address && s.input.is_some());
        slot = slot.or(label.map(|s| s.name.clone()));
    }
    let has = |part: &str| symbol.contains(part) || calls.iter().any(|c| c.contains(part));
    let kind = match profile.convention(backend.facts().name)?.kind(symbol) {
        Some(kind) => kind.traits().word,
        _ if has("rethook") || has("kretprobe") => "rethook",
        _ if has("return_to_handler") => "return",
        _ if slot.is_some() => {
            if symbol.contains("regs") {
                "regs"
            } else {
                "entry"
            }
        }
        _ => "direct",
    };
    let abi = &backend.facts().abi;
    Ok(Draft {
        arch: backend.facts().name,
        kind,
        calls,
        slot,
        args: abi.args.iter().map(|r| abi.name(*r)).collect(),
        stack_align: abi.sp_align,
    })
}
