//! Where indirect branches may go, and whether a landing pad is there.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use codegen::arch::machine::Goes;
use codegen::backend::Backend;
use link::{Access, Image, SymbolKind};

use super::code::Code;
use super::paths::{Followed, Jump};
use super::why::Why;

/// Does code begin with a landing pad?
pub(crate) fn has_pad(backend: &dyn Backend, image: &Image, at: u64) -> bool {
    backend.machine().pads.iter().any(|pad| image.bytes(at, pad.bytes.len()) == Some(pad.bytes))
}

/// Places that lack a landing pad, each with the reason why one must be there; and does some place need one?
pub(super) fn missing(
    code: &Code,
    taken: &HashSet<String>,
    followed: &BTreeMap<u64, Followed>,
) -> (Vec<(u64, Why)>, bool) {
    let mut missing = BTreeSet::new();
    for function in code.functions.iter().filter(|function| !function.cut_off) {
        let symbol = function.symbol;
        let why = match symbol.kind {
            SymbolKind::Function if taken.contains(&symbol.name) => Why::AddressTaken,
            _ if taken.contains(&symbol.name) => Why::Label,
            _ if symbol.local || symbol.hidden => continue,
            SymbolKind::Function => Why::Exported,
            _ => Why::Label,
        };
        missing.insert((symbol.address, why));
    }
    for at in addresses(code) {
        // The tables of a switch name code inside of a function.
        let inside = code.begins(at).is_none();
        let jumps =
            code.around(at).filter(|_| inside).map(|function| followed.get(&function.range.start).and_then(|f| f.jump));
        let why = match jumps {
            Some(None) => continue,
            Some(Some(Jump::Inside)) => Why::JumpTable,
            Some(Some(Jump::Anywhere)) => Why::Hidden,
            None if code.begins(at).is_some_and(|f| f.symbol.kind != SymbolKind::Function) => Why::Label,
            None => Why::AddressTaken,
        };
        missing.insert((at, why));
    }
    for followed in followed.values().filter(|followed| followed.jump.is_some()) {
        missing.extend(followed.hidden.iter().map(|at| (*at, Why::Hidden)));
    }
    let some = !missing.is_empty();
    missing.retain(|(at, _)| !has_pad(code.backend, code.image, *at));
    // A certain reason before one that is not; one of each place.
    let mut seen = BTreeSet::new();
    let (certain, open): (Vec<_>, Vec<_>) = missing.into_iter().partition(|(_, why)| why.is_certain());
    (certain.into_iter().chain(open).filter(|(at, _)| seen.insert(*at)).collect(), some)
}

/// The code of the object whose address something takes.
fn addresses(code: &Code) -> BTreeSet<u64> {
    let machine = code.backend.machine();
    let facts = code.backend.facts();
    let section = |at: u64| code.image.section_at(at);
    let mut all = BTreeSet::new();
    for relocation in &code.image.references {
        let table = section(relocation.place)
            .is_some_and(|s| s.name == ".eh_frame" || s.name == ".gcc_except_table" || s.name.starts_with(".orc"));
        let call = machine.calls.iter().any(|(known, ..)| *known == relocation.r_type);
        // Of the two parts of an address, the first says it.
        let low = relocation.high != 0 || facts.low_parts.contains(&relocation.r_type);
        if table || call || low {
            continue;
        }
        // Pointers to functions have all bytes of an address; the tables of a switch have distances.
        let in_code = section(relocation.place).is_some_and(|s| s.access == Access::Execute);
        if !in_code && relocation.r_type != facts.dynamic[0] {
            continue;
        }
        let holder = code.around(relocation.place).map(|function| function.range.start);
        let insn = holder
            .and_then(|start| code.within(start..relocation.place + 1).last())
            .filter(|insn| insn.next > relocation.place);
        // What a direct branch names, it does not take; a distance in an instruction counts from behind it.
        let target = match insn {
            Some(insn) if insn.goes == Goes::To => continue,
            Some(insn) if facts.abi.link.is_none() => {
                relocation.value.wrapping_add(insn.next.wrapping_sub(relocation.place))
            }
            _ => relocation.value,
        };
        let targets = [target, relocation.value];
        let found = targets.into_iter().find(|at| code.begins(*at).is_some()).unwrap_or(target);
        if section(found).is_some_and(|s| s.access == Access::Execute) && code.insn(found).is_some() {
            all.insert(found);
        }
    }
    all
}
