//! How a patched function entry reaches a trampoline, and how it is written: data of a profile.

use crate::arch::patch::{Branch, Half, Parts, Patch, Poke, SiteState, Write};
use crate::words::abi::{Abi, Loc, Reg, RegSet};
use crate::words::error::{Error, Result};

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
    /// Bit 0 of a direct trampoline's address says that the site jumps there, and does not call.
    pub direct_jumps: bool,
    /// How far a trampoline may be from the site, in bytes either way.
    pub reach: i64,
    /// Why no CPU may be between two instructions of a site while it is patched; `None` if one may.
    pub between: Option<&'static str>,
    /// Bytes from the address that the compiler's list of sites means to the one that the tracer records.
    pub recorded: u64,
    /// The symbol of the entry trampoline, if there is one.
    pub entry: Option<&'static str>,
    /// How it is written.
    pub protocol: Protocol,
}

/// The writes that put a site into a state, in the order in which the tracer makes them.
#[derive(Debug)]
pub struct Protocol {
    /// Where the word with the `ftrace_ops` is; `None` if functions have none.
    pub literal: Option<OpLiteral>,
    /// Before all others, and never again.
    pub initial: Vec<SiteWrite>,
    /// Tracing off.
    pub disabled: Vec<SiteWrite>,
    /// The site calls a trampoline.
    pub call: Vec<SiteWrite>,
    /// The site jumps to one, which leaves the return address alone.
    pub jump: Vec<SiteWrite>,
    /// A trampoline that is further from the entry trampoline, in bytes, is reached through that one, which finds it in the
    /// `ftrace_ops`; one that is as near too, if what is written but once does not lead to it.
    pub near: Option<u64>,
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
    /// A branch to the trampoline.
    Branch(Branch),
    /// Of a branch of two instructions, one. The first goes towards the entry trampoline, the second to where the site goes.
    Half(Branch, Half),
    /// The address of the `ftrace_ops`, for functions with room for it.
    Op,
    /// The address of the one of this name, which does nothing.
    NopOp(&'static str),
}

/// A site in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The address that the tracer records for it.
    pub ip: u64,
    /// The function was compiled with room for `op` before its entry.
    pub has_op: bool,
    /// The address of the entry trampoline; `None` if there is none: then it is whatever the site goes to.
    pub toward: Option<u64>,
    /// The address of the `ftrace_ops` that does nothing; `None` if there is none: then the function keeps what it carries.
    pub nop_op: Option<u64>,
}

impl Site {
    /// What C functions keep: a platform's register that is live at sites is scratch to them.
    pub fn c_keeps(&self, abi: &Abi) -> RegSet {
        abi.callee_saved.union(abi.platform.minus(self.live))
    }

    /// What C functions may overwrite.
    pub fn c_loses(&self, abi: &Abi) -> RegSet {
        abi.callee_saved.union(abi.caller_saved).union(abi.platform).minus(self.c_keeps(abi))
    }

    /// Where the word with the `ftrace_ops` is, in bytes from pc down to a multiple of 8, if functions have one.
    pub fn literal(&self) -> Option<i64> {
        const IP: u64 = 0x4000_0004;
        let at = self.protocol.literal?.address(IP);
        let pc = IP.wrapping_add_signed(self.ip_offset.into());
        Some(at.wrapping_sub(pc & !7).cast_signed())
    }

    /// The symbol of the `ftrace_ops` that functions carry while tracing is off, if the tracer puts one there.
    pub fn nop_op(&self) -> Option<&'static str> {
        self.protocol
            .disabled
            .iter()
            .find_map(|write| if let What::NopOp(name) = write.what { Some(name) } else { None })
    }

    /// All bytes that put a site into a state, in the order in which the tracer writes them, those included that it writes but
    /// once.
    ///
    /// # Errors
    /// The trampoline is out of reach.
    pub fn patch(&self, arch: &dyn Patch, spot: Spot, state: SiteState) -> Result<Vec<Write>> {
        let mut all = self.initial(arch, spot, state)?;
        all.extend(self.switch(arch, spot, state)?);
        Ok(all)
    }

    /// What the tracer writes but once, before a site is in this or any other state.
    ///
    /// # Errors
    /// As [`Site::patch`].
    pub fn initial(&self, arch: &dyn Patch, spot: Spot, state: SiteState) -> Result<Vec<Write>> {
        self.put(arch, spot, state, &self.protocol.initial)
    }

    fn switch(&self, arch: &dyn Patch, spot: Spot, state: SiteState) -> Result<Vec<Write>> {
        let writes = match state {
            SiteState::Disabled => &self.protocol.disabled,
            SiteState::Enabled { jump: false, .. } => &self.protocol.call,
            SiteState::Enabled { jump: true, .. } => &self.protocol.jump,
        };
        if let (true, SiteState::Enabled { jump, .. }) = (writes.is_empty(), state) {
            let how = if jump { "jump" } else { "call" };
            let arch = arch.facts().name;
            return Err(Error::new(format!(
                "the sites of this profile do not {how}; valid: a profile with `{how}` in [arch.{arch}.site]"
            )));
        }
        self.put(arch, spot, state, writes)
    }

    fn put(&self, arch: &dyn Patch, spot: Spot, state: SiteState, writes: &[SiteWrite]) -> Result<Vec<Write>> {
        let (target, op) = match state {
            SiteState::Disabled => (None, None),
            SiteState::Enabled { target, op, .. } => (Some(self.goes_to(arch, spot, target)), op),
        };
        let toward = spot.toward.or(target);
        let mut all = Vec::with_capacity(writes.len());
        for write in writes {
            let at = spot.ip.wrapping_add_signed(write.at);
            let bytes = match (&write.what, toward, target) {
                (What::Bytes(bytes), ..) => bytes.clone(),
                (What::Branch(how), _, Some(target)) => arch.branch(*how, at, target)?,
                (What::Half(how, Half::First), Some(toward), _) => {
                    arch.half_branch(*how, Half::First, at, toward, toward)?
                }
                (What::Half(how, half), Some(toward), Some(target)) => {
                    arch.half_branch(*how, *half, at, toward, target)?
                }
                (What::Op, ..) => {
                    let Some(literal) = self.protocol.literal.filter(|_| spot.has_op) else { continue };
                    all.push(Write {
                        at: literal.address(spot.ip),
                        bytes: op.ok_or_else(unnamed)?.to_le_bytes().to_vec(),
                    });
                    continue;
                }
                (What::NopOp(_), ..) => {
                    let literal = self.protocol.literal.filter(|_| spot.has_op);
                    let (Some(literal), Some(op)) = (literal, spot.nop_op) else { continue };
                    all.push(Write { at: literal.address(spot.ip), bytes: op.to_le_bytes().to_vec() });
                    continue;
                }
                // The reader of profiles lets no such write be where a site goes nowhere. Without an entry trampoline what
                // goes towards it is written when it is known where the site goes.
                (What::Branch(_) | What::Half(..), ..) => continue,
            };
            all.push(Write { at, bytes });
        }
        Ok(all)
    }

    /// Where the site goes for this trampoline: there, or to the entry trampoline, if that one is too far from it, or if the
    /// instruction that is already there does not lead to it.
    pub fn goes_to(&self, arch: &dyn Patch, spot: Spot, target: u64) -> u64 {
        let (Some(near), Some(toward)) = (self.protocol.near, spot.toward) else { return target };
        let leads = |write: &SiteWrite| match write.what {
            What::Half(how, Half::Second) => {
                let at = spot.ip.wrapping_add_signed(write.at);
                arch.half_branch(how, Half::Second, at, toward, target).is_ok()
            }
            _ => true,
        };
        let near = toward.abs_diff(target) <= near && self.protocol.call.iter().all(leads);
        if near { target } else { toward }
    }

    /// What switches a site while CPUs run. Under a breakpoint protocol the kernel writes the breakpoint, all but the first
    /// byte, then the first byte (arch/x86/kernel/alternative.c, `text_poke_bp_batch`).
    ///
    /// # Errors
    /// As [`Site::patch`].
    pub fn poke(&self, arch: &dyn Patch, spot: Spot, state: SiteState) -> Result<Vec<Poke>> {
        let writes = self.switch(arch, spot, state)?;
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

fn unnamed() -> Error {
    Error::new(
        "the function carries the address of an ftrace_ops, and none is named; name the variable, as `link --ops` does",
    )
}

/// How a tracer makes a copy of an entry trampoline for each `ftrace_ops`.
#[derive(Debug)]
pub struct Copies {
    /// What the instruction at the label `jmp` begins with, where the copy has it, and what takes its place.
    pub jmp: Option<(Vec<u8>, Vec<u8>)>,
    /// Behind the copied code, and before the word with the `ftrace_ops`.
    pub end: Vec<u8>,
}

impl Copies {
    /// The copy for `op`; its call is still to be patched. `None` if none can be made of such code.
    pub fn make(&self, arch: &dyn Patch, code: &[u8], parts: &Parts, op: u64) -> Option<Vec<u8>> {
        let mut copy = code.get(..parts.end)?.to_vec();
        if let (Some(at), Some((was, becomes))) = (parts.jmp, &self.jmp) {
            let insn = copy.get_mut(at..at.checked_add(becomes.len())?)?;
            insn.starts_with(was).then(|| insn.copy_from_slice(becomes))?;
        }
        arch.aim_load(&mut copy, parts.op_ptr, parts.end + self.end.len())?;
        copy.extend(&self.end);
        copy.extend(op.to_le_bytes());
        Some(copy)
    }
}
