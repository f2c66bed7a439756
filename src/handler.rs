//! Handlers, as objects: what a trampoline must save for them.

use std::path::Path;

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::target::Target;
use emu_tests::disassemble;
use link::{Access, Image, Input, Options, STUBS, link};

/// Is it proven of all these functions of the object at `path` that they leave vector registers alone?
///
/// # Errors
/// It cannot be read, or as [`general_registers_only`].
pub fn all_general(path: Option<&Path>, callees: &[&str], target: &Target) -> Result<bool> {
    let Some(path) = path else { return Ok(false) };
    let backend = crate::backend(target.facts.name)?;
    let name = path.display().to_string();
    let bytes =
        std::fs::read(path).map_err(|e| Error::new(format!("cannot read {name}: {e}; valid: an object file")))?;
    let input = Input { name: &name, bytes: &bytes };
    for callee in callees {
        if !general_registers_only(backend, target, &input, callee)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Is it proven that nothing that `symbol` of this object may run touches a vector register? All code of the object
/// counts, and what it calls elsewhere, or through a pointer, proves nothing.
///
/// # Errors
/// A file that is no object for `target`, without `symbol`, or with code that may not run on the stack it will have.
pub fn general_registers_only(backend: &dyn Backend, target: &Target, input: &Input, symbol: &str) -> Result<bool> {
    let machine = backend.machine();
    let stub = Some(machine.ret);
    let image = link(backend, &[*input], &Options { stub, ..Options::default() })?;
    if (image.e_flags ^ target.e_flags) & machine.e_flags_abi != 0 {
        return Err(Error::new(format!(
            "{}: compiled for another float ABI than {}; valid: an object for these options",
            input.name,
            target.choices.describe(target.facts.options)
        )));
    }
    let stubs = image.sections.iter().find(|s| s.name == STUBS);
    let is_stub = |at: u64| stubs.is_some_and(|s| (s.address..s.address + s.size).contains(&at));
    if image.symbol(symbol).is_none_or(|s| is_stub(s.address)) {
        let functions = image.symbols.iter().filter(|s| s.kind == link::SymbolKind::Function);
        return Err(Error::unknown(
            &format!("handler in {}", input.name),
            symbol,
            functions.filter(|s| !is_stub(s.address)).map(|s| s.name.as_str()),
        ));
    }
    let Code { vector, unknown } = code(backend, &image)?;
    if let Some(at) = &vector
        && target.stack_align < target.facts.abi.sp_align
    {
        return Err(Error::new(format!(
            "{}: {at} uses a vector register, and the stack is aligned to {} bytes only; valid: options for a stack of \
             {} bytes, such as stack-align=16, or a handler compiled for general registers only",
            input.name, target.stack_align, target.facts.abi.sp_align
        )));
    }
    Ok(vector.is_none() && !unknown && stubs.is_none_or(|s| s.size == 0))
}

/// What was found in code.
struct Code {
    /// An instruction that has to do with vector registers, with its section.
    vector: Option<String>,
    /// It goes to where an address in a register says, or is not all instructions.
    unknown: bool,
}

fn code(backend: &dyn Backend, image: &Image) -> Result<Code> {
    let machine = backend.machine();
    let mut found = Code { vector: None, unknown: false };
    for section in image.sections.iter().filter(|s| s.access == Access::Execute && s.name != STUBS) {
        let bytes = image.bytes(section.address, section.size as usize).unwrap_or_default();
        let lines = disassemble(machine, bytes, 0)?;
        let end = lines.last().map_or(0, |l| l.offset + l.size);
        found.unknown |= end != bytes.len();
        for line in lines {
            let (mnemonic, operands) = line.text.split_once(' ').unwrap_or((&line.text, ""));
            let operands = operands.trim_start();
            if (machine.is_vector)(mnemonic, operands) && found.vector.is_none() {
                found.vector = Some(format!("`{mnemonic} {operands}` at {}+{:#x}", section.name, line.offset));
            }
            found.unknown |= (machine.branch)(mnemonic, operands).is_some_and(|b| b.lands.is_some());
        }
    }
    Ok(found)
}
