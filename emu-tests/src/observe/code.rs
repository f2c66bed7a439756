//! The code that is run: where it is, its branches, what the unwind table says of it.

use std::ops::Range;

use codegen::arch::machine::Branch;
use codegen::arch::moves::Move;
use codegen::arch::pads::IndirectBranch;
use codegen::backend::Backend;
use codegen::words::error::Result;
use link::{Access, Image, STUBS, SymbolKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::observed::Kind;
use crate::engine::disasm::{Decoded, decode_function};
use crate::engine::registers::Registers;
use crate::engine::unwind::Table;
use crate::judge::cells::{extent, tail};

/// A branch that was taken, and the address behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub branch: Branch,
    pub next: u64,
    /// There was none: the code ends before it goes elsewhere.
    pub falls: bool,
}

/// The code of an observed function, as the engine's hooks look it up: addresses, branches and unwind table.
pub(super) struct Code {
    pub start: u64,
    /// Bytes of the function.
    pub size: u64,
    /// The function, what it jumps to in the same object, and what stands for a return.
    pub ranges: Vec<Range<u64>>,
    /// What stands for a return.
    pub thunk: Option<Range<u64>>,
    pub branches: FxHashMap<u64, Taken>,
    /// Instructions by which programs call the kernel.
    pub system_calls: FxHashSet<u64>,
    /// Instructions that access memory by SP, where the hardware wants it aligned.
    pub by_sp: FxHashSet<u64>,
    /// Instructions that may change vector state that the engine does not have.
    pub wide: FxHashSet<u64>,
    /// Instructions that move the CPU's shadow stack.
    pub shadow: FxHashSet<u64>,
    /// Some use vector registers.
    pub uses_vectors: bool,
    /// The unwind table, if there is one that is understood.
    pub table: Option<Table>,
    /// The instructions of the function and of what it jumps to; not those that do nothing.
    pub lines: Vec<Decoded>,
}

impl Code {
    /// That of a function.
    ///
    /// # Errors
    /// A disassembler that does not start, an unwind table in an unknown form.
    pub fn of(
        image: &Image,
        found: &link::Symbol,
        backend: &dyn Backend,
        registers: Registers,
        orc: Option<&str>,
    ) -> Result<Code> {
        let machine = registers.machine;
        let (start, size) = (found.address, extent(image, found));
        let stubs = image.sections.iter().find(|s| s.name == STUBS);
        let stub = |at: u64| stubs.is_some_and(|s| at.wrapping_sub(s.address) < s.size);
        let begins = |at: u64| {
            image.symbols.iter().any(|s| s.address == at && s.kind == SymbolKind::Function && s.input.is_some())
        };
        let code = |at: u64| {
            let mut executable = image.segments.iter().filter(|s| s.access == Access::Execute);
            executable.any(|s| at.wrapping_sub(s.address) < s.mem_size)
        };
        let mut lines = decode_function(machine, image, (start, size))?;
        // What it jumps to is its own, but where another function begins.
        let tails = tail(backend, image, (start, size), &|at| code(at) && !stub(at) && !begins(at))?;
        let mut ranges: Vec<Range<u64>> = std::iter::once(start..start + size).collect();
        ranges.extend(tails.iter().map(|line| line.at..line.at + u64::from(line.size)));
        lines.extend(tails);
        let thunk = image.symbol(machine.return_thunk).map(|s| s.address..s.address + s.size);
        let mut all = lines.clone();
        if let Some(thunk) = &thunk {
            ranges.push(thunk.clone());
            all.extend(decode_function(machine, image, (thunk.start, thunk.end - thunk.start))?);
        }
        let branch = |l: &Decoded| {
            // A jump that has nothing to do with return addresses is one still.
            let branch = l.branch.or(l.target.map(|_| Branch::default()))?;
            Some((l.at, Taken { branch, next: l.at + u64::from(l.size), falls: false }))
        };
        let which = |is: &dyn Fn(&str, &str) -> bool| -> FxHashSet<u64> {
            let those = all.iter().filter(|l| {
                let (mnemonic, operands) = l.parts();
                is(mnemonic, operands)
            });
            those.map(|l| l.at).collect()
        };
        let by_sp = which(&|_, operands| machine.sp_access_align > 1 && (machine.accesses_by_sp)(operands));
        let wide = which(&machine.wide.changes);
        let shadow = which(&|mnemonic, operands| (machine.moves)(mnemonic, operands).contains(&Move::ShadowPointer));
        let uses_vectors = !which(&machine.is_vector).is_empty();
        let branches = all.iter().filter_map(branch).collect();
        lines.retain(|l| !l.filler && !l.text.starts_with("nop"));
        // Unwinders look up a return address one byte before it.
        let addresses = std::iter::once(start.wrapping_sub(1)).chain(lines.iter().map(|l| l.at));
        let table = Table::read(image, registers, orc, addresses)?;
        let table = Some(table).filter(|table| lines.iter().any(|l| table.row(l.at).is_some()));
        let call = machine.system_call.bytes;
        let calls = |at: &u64| !call.is_empty() && image.bytes(*at, call.len()) == Some(call);
        let system_calls = all.iter().map(|line| line.at).filter(calls).collect();
        Ok(Code { start, size, ranges, thunk, branches, system_calls, by_sp, wide, shadow, uses_vectors, table, lines })
    }
}

impl Code {
    /// The table has no caller for what is right before the code.
    pub fn returned_to(&self) -> bool {
        let before = self.table.as_ref().and_then(|table| table.row(self.start.wrapping_sub(1)));
        before.is_some_and(|row| row.returns.is_none())
    }
}

impl Taken {
    /// What kind of branch it is.
    pub fn kind(self) -> Kind {
        match self.branch {
            _ if self.falls => Kind::FallThrough,
            Branch { pops: true, pushes: false, .. } => Kind::Return,
            Branch { indirect: Some(IndirectBranch::Call), .. } => Kind::IndirectCall,
            Branch { indirect: Some(IndirectBranch::Jump), .. } => Kind::IndirectJump,
            Branch { indirect: Some(IndirectBranch::Veneer), .. } => Kind::Veneer,
            Branch { pushes: true, .. } => Kind::Call,
            _ => Kind::Jump,
        }
    }
}
