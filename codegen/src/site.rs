//! How a patched function entry reaches a trampoline, and how it is written: data of a profile.

use crate::abi::{Loc, Reg, RegSet};
use crate::error::{Error, Result};
use crate::patch::{Branch, Patch, Poke, SiteState, Write};

/// How a patched function entry reaches a trampoline.
#[derive(Debug)]
pub struct Site {
    /// How a trampoline is reached, for the contract's text.
    pub arrives: &'static str,
    /// The address in the traced function after the site: where the function goes on.
    pub pc: Loc,
    /// The return address of the traced function into its caller.
    pub parent_ip: Loc,
    /// Bytes that the site's call pushed: SP at the site minus SP at the trampoline's entry.
    pub pushed: i32,
    /// `pc` minus the address that a callback gets as `ip`.
    pub ip_offset: i32,
    /// Registers that the site itself overwrites or that are free at a function's entry.
    pub scratch: RegSet,
    /// Registers besides those for arguments that may be live at a function's entry.
    pub live: RegSet,
    /// The registers that return the traced function into itself and to its parent when a trampoline resumes it,
    /// where they are not those of entry: arm64 swaps `x9` and `x30`.
    pub resume: Option<(Reg, Reg)>,
    /// Registers that even a full save cannot give back to the traced function: they carry it there.
    pub lost: RegSet,
    /// The register that holds a direct trampoline's address on the way there.
    pub direct: Option<Reg>,
    /// How far a trampoline may be from the site, in bytes either way.
    pub reach: i64,
    /// Why no CPU may be between two instructions of a site while it is patched; `None` if one may.
    pub between: Option<&'static str>,
    /// How it is written.
    pub protocol: Protocol,
}

/// The writes that put a site into a state, in the order in which the tracer makes them.
#[derive(Debug)]
pub struct Protocol {
    /// Where the word with the `ftrace_ops` is; `None` if functions have none.
    pub literal: Option<OpLiteral>,
    /// Tracing off.
    pub disabled: Vec<SiteWrite>,
    /// The site calls a trampoline.
    pub call: Vec<SiteWrite>,
    /// The site jumps to one, which leaves the return address alone.
    pub jump: Vec<SiteWrite>,
    /// A breakpoint that stands at the site while the rest of it is written.
    pub breakpoint: Option<Vec<u8>>,
}

/// A word before a function: at the multiple of `align` at or below `ip - before`.
#[derive(Clone, Copy, Debug)]
pub struct OpLiteral {
    /// Bytes before `ip`.
    pub before: u64,
    /// A power of two, in bytes.
    pub align: u64,
}

impl OpLiteral {
    /// Its address, for the site at `ip`.
    pub fn address(self, ip: u64) -> u64 {
        ip.wrapping_sub(self.before) & !(self.align - 1)
    }
}

/// One write to a site.
#[derive(Debug)]
pub struct SiteWrite {
    /// Bytes from `ip`. The literal has its own place.
    pub at: i64,
    /// What is written.
    pub what: What,
}

/// What a write has.
#[derive(Debug)]
pub enum What {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A call of the trampoline.
    Call,
    /// A jump to it.
    Jump,
    /// The address of the `ftrace_ops`, for functions with room for it.
    Op,
}

impl Site {
    /// The bytes that put the site at `ip` into a state, in the order in which the tracer writes them. `has_op` says that the
    /// function was compiled with room for `op` before its entry.
    ///
    /// # Errors
    /// The trampoline is out of reach.
    pub fn patch(&self, arch: &dyn Patch, ip: u64, state: SiteState, has_op: bool) -> Result<Vec<Write>> {
        let (writes, target, op) = match state {
            SiteState::Disabled => (&self.protocol.disabled, 0, None),
            SiteState::Enabled { target, op, jump: false } => (&self.protocol.call, target, op),
            SiteState::Enabled { target, op, jump: true } => (&self.protocol.jump, target, op),
        };
        let mut all = Vec::with_capacity(writes.len());
        for write in writes {
            let at = ip.wrapping_add_signed(write.at);
            all.push(match &write.what {
                What::Bytes(bytes) => Write { at, bytes: bytes.clone() },
                What::Call => Write { at, bytes: arch.branch(Branch::SiteCall, at, target)? },
                What::Jump => Write { at, bytes: arch.branch(Branch::SiteJump, at, target)? },
                What::Op => match self.protocol.literal.filter(|_| has_op) {
                    Some(literal) => {
                        let op = op.ok_or_else(|| {
                            Error::new(
                                "the function carries the address of an ftrace_ops, and none is named; name the variable, \
                                 as `link --ops` does",
                            )
                        })?;
                        Write { at: literal.address(ip), bytes: op.to_le_bytes().to_vec() }
                    }
                    None => continue,
                },
            });
        }
        Ok(all)
    }

    /// The same while CPUs run. Under a breakpoint protocol the kernel writes the breakpoint, all but the first byte, then
    /// the first byte (arch/x86/kernel/alternative.c, `text_poke_bp_batch`).
    ///
    /// # Errors
    /// As [`Site::patch`].
    pub fn poke(&self, arch: &dyn Patch, ip: u64, state: SiteState, has_op: bool) -> Result<Vec<Poke>> {
        let writes = self.patch(arch, ip, state, has_op)?;
        let Some(breakpoint) = &self.protocol.breakpoint else {
            return Ok(writes.into_iter().map(|write| Poke { write, traps: false }).collect());
        };
        let mut pokes = Vec::new();
        for Write { at, bytes } in writes {
            let (first, rest) = bytes.split_at(breakpoint.len().min(bytes.len()));
            let behind = at.wrapping_add(first.len() as u64);
            pokes.push(Poke { write: Write { at, bytes: breakpoint.clone() }, traps: true });
            pokes.push(Poke { write: Write { at: behind, bytes: rest.to_vec() }, traps: true });
            pokes.push(Poke { write: Write { at, bytes: first.to_vec() }, traps: false });
        }
        Ok(pokes)
    }
}
