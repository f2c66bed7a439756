//! P16: entry trampolines as the copies that a kernel makes of them.

use std::ops::Range;

use codegen::patch::{Parts, Patch, Relocation};
use codegen::step::KernelLabel;
use link::{Access, Image, PAGE, Section, Segment};

use crate::fixture::OPS;
use crate::suite::Suite;

/// Put copies of the entry trampolines behind the image, and let their names mean the copies. Returns whether there are
/// any.
pub(crate) fn put_copies(suite: &Suite, image: &mut Image) -> bool {
    let mut any = false;
    let op = image.symbol(OPS).map_or(0, |s| s.address);
    let Some(copies) = &suite.convention.copies else { return false };
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
        let code = moved(suite.backend, image, start..start.saturating_add(end as u64), at);
        let copy = code.and_then(|code| copies.make(suite.backend, &code, &parts, op));
        let Some(bytes) = copy.filter(|_| suite.slots.contains(&slot)) else { continue };
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
    any
}

/// Code as it is elsewhere: it refers to what it did (`text_poke_apply_relocation` in the kernel). What does not reach from
/// there stays as it was, and is met where it is run; the call of the callback is patched anyway.
fn moved(arch: &dyn Patch, image: &Image, code: Range<u64>, to: u64) -> Option<Vec<u8>> {
    let mut copy = image.bytes(code.start, (code.end - code.start) as usize)?.to_vec();
    for reference in image.references.iter().filter(|r| code.contains(&r.place)) {
        let offset = reference.place - code.start;
        let relocation =
            Relocation { r_type: reference.r_type, place: to.wrapping_add(offset), value: reference.value, high: 0 };
        let _ = arch.relocate(&relocation, copy.get_mut(offset as usize..)?);
    }
    Some(copy)
}
