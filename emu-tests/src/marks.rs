//! What each address of a linked image is.

use codegen::contract::Contract;
use codegen::error::{Error, Result};
use codegen::spec::{Form, Kind};
use link::{Access, Image, STUBS, SymbolKind};

use crate::trace::{CALLBACK, DIRECT_FUNC, EXIT_HANDLER, PROGRAM};

/// The bytes of a function: what its symbol says, or up to the next symbol or the section's end.
pub(crate) fn extent(image: &Image, symbol: &link::Symbol) -> u64 {
    let section = image.sections.iter().find(|s| (s.address..s.address + s.size).contains(&symbol.address));
    let end = section.map_or(symbol.address, |s| s.address + s.size);
    let next = image.symbols.iter().map(|s| s.address).filter(|a| *a > symbol.address).min().unwrap_or(end);
    if symbol.size > 0 { symbol.size.min(end - symbol.address) } else { end.min(next) - symbol.address }
}

/// Where the C functions begin that a trampoline calls by name, and what they are; 0 if its contract leaves one open.
pub(crate) fn callees(image: &Image, contract: &Contract) -> Result<Vec<(u64, u8)>> {
    let address = |name: &str| match image.symbol(name) {
        _ if name.is_empty() => Ok(0),
        Some(symbol) => Ok(symbol.address),
        None => Err(Error::new(format!(
            "{} calls {name}, says the contract; no object defines or calls it: see `calls` in docs/contracts.md",
            contract.name
        ))),
    };
    let mark = match contract.kind {
        Kind::Return => EXIT_HANDLER,
        Kind::Direct(_) => DIRECT_FUNC,
        Kind::Around(around) if around.form == Form::Frame => DIRECT_FUNC,
        Kind::Around(_) => CALLBACK,
        Kind::Programs(_) => return contract.programs.iter().map(|p| Ok((address(&p.symbol)?, PROGRAM))).collect(),
        Kind::Stub | Kind::StubGraph | Kind::StubDirect | Kind::Entry(_) => return Ok(Vec::new()),
    };
    let exit = contract.traced.as_ref().map_or(Ok(0), |traced| address(&traced.exit))?;
    Ok(vec![(address(&contract.callee)?, mark), (exit, EXIT_HANDLER)])
}

/// Code that belongs to no function: each stub, and sections to which the first so many objects alone contribute.
pub(crate) fn fragments(image: &Image, judged: usize) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for section in image.sections.iter().filter(|s| s.access == Access::Execute) {
        let inside = image.symbols.iter().filter(|s| s.address.wrapping_sub(section.address) < section.size);
        if section.name == STUBS {
            all.extend(inside.map(|s| (s.address, s.size)));
        } else if !inside.clone().any(|s| s.kind == SymbolKind::Function || s.input.is_none_or(|i| i >= judged)) {
            all.push((section.address, section.size));
        }
    }
    all
}
