//! The calls that tracers patch: each label must be that of a call.

use codegen::backend::Backend;
use codegen::words::error::Result;
use link::{Input, examine};

use crate::contract::file::{Reader, TrampolineIn};
use crate::engine::disasm::{Decoded, decode_function};
use crate::judge::cells::extent;

/// The labels of all slots of these trampolines.
///
/// # Errors
/// None of the objects has the label, or no call begins there.
pub(crate) fn slots(
    reader: &Reader,
    backend: &dyn Backend,
    objects: &[(String, Vec<u8>)],
    trampolines: &[&TrampolineIn],
) -> Result<Vec<String>> {
    let mut images = Vec::new();
    for (name, bytes) in objects {
        images.push(examine(backend, &Input { name, bytes }, backend.machine().ret)?);
    }
    for (t, slot) in trampolines.iter().flat_map(|t| t.slots().iter().map(move |slot| (t, slot))) {
        let of = |name: &str| {
            images.iter().find_map(|image| Some((image, image.symbol(name).filter(|s| s.input.is_some())?)))
        };
        let wrong =
            |what: String| reader.at(t.stack_align.span().start, format!("slot = {slot:?} of {}: {what}", t.symbol));
        let Some((image, symbol)) = of(&t.symbol) else { continue };
        let lines = decode_function(backend.machine(), image, (symbol.address, extent(image, symbol)))?;
        let calls = calls(&lines);
        let at = |call: &&Decoded| format!("{}+{:#x}", t.symbol, call.at - symbol.address);
        let valid = || calls.iter().map(at).collect::<Vec<_>>().join(", ");
        let Some((_, label)) = of(slot) else {
            return Err(wrong(format!("no object has this label; valid: that of a call, which are at {}", valid())));
        };
        let begins = |line: &Decoded| line.at == label.address;
        // What is no call yet may become one.
        let empty = lines.iter().any(|line| begins(line) && line.text.starts_with("nop"));
        if !empty && !calls.iter().any(|call| begins(call)) {
            return Err(wrong(format!("no call begins there; valid: the label of a call, which are at {}", valid())));
        }
    }
    Ok(trampolines.iter().flat_map(|t| t.slots().iter().cloned()).collect())
}

/// Where calls begin: each that calls, and one before it if that makes the address.
fn calls(lines: &[Decoded]) -> Vec<&Decoded> {
    let pushes = |line: &Decoded| line.branch.is_some_and(|branch| branch.pushes);
    let first = |n: usize| {
        let before = n.checked_sub(1).and_then(|n| lines.get(n));
        let long = lines[n].target.is_none();
        before.filter(|_| long).unwrap_or(&lines[n])
    };
    (0..lines.len()).filter(|n| pushes(&lines[*n])).map(first).collect()
}
