//! A dump of memory as an object: its calls to the outside become calls of symbols that are named by their address.

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::patch::Relocation;
use codegen::pattern::{Constant, Fields, PatternTable};
use link::PAGE;
use link::raw::{Call, Raw, object};

use crate::disasm::{Decoded, decode};

/// What a dump covers, and where the trampoline in it begins.
#[derive(Clone, Copy, Debug)]
pub struct Dump {
    /// Address of the first byte.
    pub base: u64,
    /// Address of the trampoline.
    pub entry: u64,
}

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
    // Parts of a page count for addresses that are made of pages.
    let lead = base % PAGE;
    let mut code = [vec![0; lead as usize], code.to_vec()].concat();
    let place = |at: u64| at.wrapping_sub(base).wrapping_add(lead);
    // Its end is not told: what decodes is it.
    let mut symbols = vec![(symbol.to_owned(), place(entry), end - entry)];
    let mut calls = Vec::new();
    let mut done = entry;
    for line in &lines {
        let from = place(line.at) as usize;
        let insn = code.get(from..).unwrap_or_default();
        if let Some(target) = line.target().filter(|target| !inside(*target))
            && let Some((r_type, at, addend)) = call(backend, line.at, insn, target)
        {
            calls.push(Call { offset: (from + at) as u64, r_type, addend, target: format!("{target:#x}") });
        }
        if line.at < done {
            continue;
        }
        // The longest sequence that makes an address, and can be made to load another one.
        for constant in Constant::read(backend.patterns(), insn, line.at).iter().rev() {
            let Constant { value, size, .. } = *constant;
            let branches =
                |d: &Decoded| d.at == line.at + size as u64 && d.branch.is_some_and(|b| b.indirect.is_some());
            if !inside(value) && !address(value) && !lines.iter().any(branches) {
                continue;
            }
            let Some((new, relocations)) = load(backend.patterns(), constant, insn) else { continue };
            let target = format!("{value:#x}");
            let high = format!("load of {target} at {:#x}", line.at);
            for (at, r_type, addend) in relocations {
                let target = if backend.refers_to_high(r_type) { &high } else { &target }.clone();
                calls.push(Call { offset: (from + at) as u64, r_type, addend, target });
            }
            symbols.push((high, from as u64, 0));
            if inside(value) {
                symbols.push((target, place(value), 0));
            }
            if let Some(old) = code.get_mut(from..from + size) {
                old.copy_from_slice(&new);
            }
            done = line.at + size as u64;
            break;
        }
    }
    for label in labels {
        let at = label.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if let Some(at) = at.filter(|at| inside(*at)) {
            symbols.push(((*label).to_owned(), place(at), 0));
        }
    }
    symbols.sort();
    symbols.dedup();
    object(&Raw { machine: backend.facts().machine, e_flags: 0, code: &code, align: PAGE, symbols, calls })
}

/// Does a constant look like an address, whatever is done with it? Small numbers, also negative ones, do not; nor does
/// what no page table can hold.
fn address(value: u64) -> bool {
    let top = value >> 56;
    (1 << 32..0_u64.wrapping_sub(1 << 20)).contains(&value) && (top == 0 || top == u64::MAX >> 56)
}

/// A relocation: where it is, its type, what it adds.
type Field = (usize, u32, i64);

/// Instructions that load the address of a symbol, in the place of a constant, with their relocations. `None` if there
/// is no room.
fn load(patterns: &PatternTable, constant: &Constant, code: &[u8]) -> Option<(Vec<u8>, Vec<Field>)> {
    let (mut bytes, mut relocations) = (Vec::new(), Vec::new());
    for (n, (form, (r_type, at, addend))) in patterns.load.iter().enumerate() {
        let mut insn = form.encode(&Fields { a: constant.register, ..Fields::NONE });
        if form.has(b"bB") {
            insn = form.encode(&Fields { a: constant.register, b: constant.register, ..Fields::NONE });
        }
        // What uses the address has the last part of it.
        if let Some(last) = constant.last.filter(|_| n + 1 == patterns.load.len()) {
            bytes.extend(patterns.fill(last.checked_sub(bytes.len())?)?);
            insn = code.get(last..constant.size).map(<[u8]>::to_vec);
        }
        relocations.push((bytes.len() + at, *r_type, *addend));
        bytes.extend(insn?);
    }
    bytes.extend(patterns.fill(constant.size.checked_sub(bytes.len())?)?);
    Some((bytes, relocations))
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
