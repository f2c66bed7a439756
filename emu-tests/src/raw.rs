//! A dump of memory as an object: its calls to the outside become calls of symbols that are named by their address.

use codegen::error::{Error, Result};
use codegen::isa::{Backend, Relocation};
use codegen::raw::{Call, Raw, object};

use crate::disasm::decode;

/// What a dump covers, and where the trampoline in it begins.
#[derive(Clone, Copy, Debug)]
pub struct Dump {
    /// Address of the first byte.
    pub base: u64,
    /// Address of the trampoline.
    pub entry: u64,
}

/// Parts of a page count for addresses that are made of pages.
const PAGE: u64 = 0x1000;

/// Make an object of `code` in which the trampoline is called `symbol`; of `labels`, those that are addresses in the
/// dump name these.
///
/// # Errors
/// The entry is not in the dump, or not an instruction.
pub(crate) fn wrap(backend: &dyn Backend, dump: Dump, code: &[u8], symbol: &str, labels: &[&str]) -> Result<Vec<u8>> {
    let Dump { base, entry } = dump;
    let end = base.saturating_add(code.len() as u64);
    let inside = |at: u64| (base..end).contains(&at);
    let from = usize::try_from(entry.wrapping_sub(base)).ok().filter(|_| inside(entry));
    let from = from.and_then(|from| code.get(from..)).ok_or_else(|| {
        Error::new(format!("--entry {entry:#x} is not in the dump; valid: {base:#x} to {:#x}", end.saturating_sub(1)))
    })?;
    let lines = decode(backend.machine(), from, entry)?;
    if lines.is_empty() {
        return Err(Error::new(format!("no instruction at --entry {entry:#x}; valid: where one of --arch begins")));
    }
    let lead = base % PAGE;
    let mut calls = Vec::new();
    for line in lines {
        let Some(target) = line.target().filter(|target| !inside(*target)) else { continue };
        let insn = from.get((line.at - entry) as usize..).unwrap_or_default();
        if let Some((r_type, at, addend)) = call(backend, line.at, insn, target) {
            let offset = line.at - base + at as u64 + lead;
            calls.push(Call { offset, r_type, addend, target: format!("{target:#x}") });
        }
    }
    let mut symbols = vec![(symbol.to_owned(), entry - base + lead, 0)];
    for label in labels {
        let at = label.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if let Some(at) = at.filter(|at| inside(*at)) {
            symbols.push(((*label).to_owned(), at - base + lead, 0));
        }
    }
    let code = [vec![0; lead as usize], code.to_vec()].concat();
    object(&Raw { machine: backend.facts().machine, e_flags: 0, code: &code, align: PAGE, symbols, calls })
}

/// Is the instruction at `at` a call of `target`, or a jump there? It is if relocating it changes nothing. Returns the
/// relocation: its type, where the field is, and what it adds to the target.
pub(crate) fn call(backend: &dyn Backend, at: u64, insn: &[u8], target: u64) -> Option<(u32, usize, i64)> {
    backend.machine().calls.iter().copied().find(|&(r_type, offset, addend)| {
        let Some(before) = insn.get(offset..) else { return false };
        let (place, value) = (at.wrapping_add(offset as u64), target.wrapping_add_signed(addend));
        let mut after = before.to_vec();
        let made = backend.relocate(&Relocation { r_type, place, value, high: 0 }, &mut after);
        made.is_ok() && after == before
    })
}
