//! P16: entry trampolines as the copies that a kernel makes of them.

use codegen::arch::patch::{Parts, Patch, Relocation};
use codegen::words::error::Result;
use codegen::words::step::KernelLabel;
use link::{Access, Image, PAGE, Section, Segment};

use crate::judge::fixture::OPS;
use crate::judge::suite::Suite;

/// Put copies of the entry trampolines behind the image, and let their names mean the copies. Returns whether there are
/// any.
///
/// # Errors
/// What a trampoline refers to is out of its copy's reach.
pub(crate) fn put_copies(suite: &Suite, image: &mut Image) -> Result<bool> {
    let mut any = false;
    let op = image.symbol(OPS).map_or(0, |s| s.address);
    let Some(copies) = &suite.convention.copies else { return Ok(false) };
    for contract in suite.contracts.iter().filter(|c| c.kind.calls_back()) {
        let label = |which: KernelLabel| contract.convention.label(which, &contract.name, contract.kind).concat();
        let address = |name: &str| image.symbol(name).map(|s| s.address);
        let Some(start) = address(&contract.name) else { continue };
        let part = |which| address(&label(which)).and_then(|at| at.checked_sub(start)).map(|at| at as usize);
        let slot = label(KernelLabel::Call);
        let (Some(end), Some(op_ptr), Some(call)) =
            (part(KernelLabel::End), part(KernelLabel::OpPtr), part(KernelLabel::Call))
        else {
            continue;
        };
        let parts = Parts { end, op_ptr, jmp: part(KernelLabel::Jmp).filter(|jmp| *jmp < end) };
        let last = image.segments.last().map_or(0, |s| s.address + s.mem_size);
        let at = last.next_multiple_of(PAGE);
        if !suite.slots.contains(&slot) {
            continue;
        }
        let mut code = image.bytes(start, end).unwrap_or_default().to_vec();
        // Its call is patched anyway.
        let patched = suite.backend.patch_call(start, start)?.bytes.len() as u64;
        let call_at = start + call as u64;
        let others = image.references.iter().filter(|r| !(call_at..call_at + patched).contains(&r.place));
        refer(suite.backend, others, (&mut code, start), at).map_err(|e| e.at(&contract.name))?;
        let Some(bytes) = copies.make(suite.backend, &code, &parts, op) else { continue };
        let (access, mem_size, size) = (Access::Execute, bytes.len() as u64, bytes.len() as u64 - 8);
        image.segments.push(Segment { address: at, bytes, mem_size, access });
        let name = ".copies".to_owned();
        image.sections.push(Section { name, address: at, size, align: PAGE, access, zeroed: false });
        for symbol in &mut image.symbols {
            if symbol.name == contract.name {
                (symbol.address, symbol.size) = (at, size);
            } else if symbol.name == slot {
                symbol.address = at + call as u64;
            }
        }
        any = true;
    }
    Ok(any)
}

/// Let code that was at `start` and is now at `to` refer to what it did (`text_poke_apply_relocation` in the kernel).
fn refer<'r>(
    arch: &dyn Patch,
    references: impl Iterator<Item = &'r Relocation>,
    (code, start): (&mut [u8], u64),
    to: u64,
) -> Result<()> {
    let moved = |place: u64| place.wrapping_sub(start).wrapping_add(to);
    for reference in references {
        let Some(field) = code.get_mut(reference.place.wrapping_sub(start) as usize..) else { continue };
        let high = if reference.high == 0 { 0 } else { moved(reference.high) };
        arch.relocate(&Relocation { place: moved(reference.place), high, ..*reference }, field)?;
    }
    Ok(())
}
