//! Calls that never return, of compiled code, by its unwind table.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use codegen::backend::Backend;
use codegen::words::error::Result;
use link::{Image, SymbolKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::engine::disasm::{Decoded, decode_function};
use crate::engine::registers::Registers;
use crate::engine::unwind::Table;

/// What is known of an image's functions, by where they begin: behind which calls nothing comes back.
///
/// A call changes no row of the table. Where other rows hold behind it than at it, what is behind it is other code.
#[derive(Debug, Default)]
pub(super) struct Never {
    /// Where functions begin and end, in order.
    functions: Vec<(u64, u64)>,
    known: Mutex<FxHashMap<u64, FxHashSet<u64>>>,
}

impl Never {
    pub fn of(image: &Image) -> Never {
        let functions = image.symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Function && symbol.size > 0);
        let mut functions: Vec<_> =
            functions.map(|symbol| (symbol.address, symbol.address.saturating_add(symbol.size))).collect();
        functions.sort_unstable();
        Never { functions, known: Mutex::default() }
    }

    /// Does the call before `back` return? Of code that cannot be read, nobody knows that it does not.
    pub fn comes_back(&self, backend: &'static dyn Backend, image: &Image, back: u64) -> bool {
        let after = self.functions.partition_point(|(start, _)| *start < back);
        let Some((start, end)) = after.checked_sub(1).and_then(|n| self.functions.get(n)) else { return true };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || behind(backend, image, (*start, end - start)).unwrap_or_default();
        !known.entry(*start).or_insert_with(read).contains(&back)
    }
}

/// Behind which calls of a function other rows hold than at them.
fn behind(backend: &'static dyn Backend, image: &Image, function: (u64, u64)) -> Result<FxHashSet<u64>> {
    let registers = Registers::of(backend.machine(), &backend.facts().abi)?;
    let lines: BTreeMap<u64, Decoded> =
        decode_function(backend.machine(), image, function)?.into_iter().map(|line| (line.at, line)).collect();
    let table = Table::read(image, registers, None, lines.keys().copied())?;
    let behind = |line: &Decoded| line.at + u64::from(line.size);
    let differs = |line: &&Decoded| match (table.row(line.at), table.row(behind(line))) {
        (Some(at), Some(behind)) => at != behind,
        _ => false,
    };
    Ok(lines.values().filter(|line| line.is_call()).filter(differs).map(behind).collect())
}
