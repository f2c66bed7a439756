//! How a patched function entry reaches a trampoline, and how a tracer writes it, as data of a profile.

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
    /// Registers that the site itself clobbers, or that are free at a function's entry.
    pub scratch: RegSet,
    /// Registers besides those for arguments that may be live at a function's entry.
    pub live: RegSet,
    /// The registers that return the traced function into itself and to its parent when a trampoline resumes it,
    /// where they are not those of entry: arm64 swaps `x9` and `x30`.
    pub resume: Option<(Reg, Reg)>,
    /// Registers that even a full save cannot preserve for the traced function, as the way back uses them.
    pub lost: RegSet,
    /// The register that holds a direct trampoline's address during the jump to it.
    pub direct: Option<Reg>,
    /// Bit 0 of a direct trampoline's address means that the site jumps to it instead of calling it.
    pub direct_jumps: bool,
    /// The greatest distance of a trampoline from the site, in bytes in either direction.
    pub reach: i64,
    /// The reason why no CPU may be between two instructions of a site while it is patched; `None` if that is allowed.
    pub between: Option<&'static str>,
    /// Bytes from the address in the compiler's list of sites to the address that the tracer records.
    pub recorded: u64,
    /// The symbol of the entry trampoline, if there is one.
    pub entry: Option<&'static str>,
    /// How the site is written.
    pub protocol: Protocol,
}

/// The writes that put a site into a state, in the order in which the tracer makes them.
#[derive(Debug)]
pub struct Protocol {
    /// The place of the word with the `ftrace_ops`; `None` if functions have none.
    pub literal: Option<OpLiteral>,
    /// The writes before all others, done only once.
    pub initial: Vec<SiteWrite>,
    /// The writes that turn tracing off.
    pub disabled: Vec<SiteWrite>,
    /// The writes that make the site call a trampoline.
    pub call: Vec<SiteWrite>,
    /// The writes that make the site jump to a trampoline, without a return address.
    pub jump: Vec<SiteWrite>,
    /// The greatest distance of a trampoline from the entry trampoline, in bytes, for a direct branch from the site. A site
    /// reaches more distant ones, and those to which its initial write does not lead, through the entry trampoline and `op`.
    pub near: Option<u64>,
    /// A breakpoint that stands at the site while the rest of it is written.
    pub breakpoint: Option<Vec<u8>>,
}

/// A word before a function: at the multiple of `align` at or below `ip - before`.
#[derive(Clone, Copy, Debug)]
pub struct OpLiteral {
    /// Bytes before `ip`.
    pub before: u64,
    /// The alignment in bytes, a power of two.
    pub align: u64,
}

impl OpLiteral {
    /// The address of the word, for the site at `ip`.
    pub fn address(self, ip: u64) -> u64 {
        ip.wrapping_sub(self.before) & !(self.align - 1)
    }
}

/// One write to a site.
#[derive(Debug)]
pub struct SiteWrite {
    /// The offset from `ip` in bytes. Not used for the literal.
    pub at: i64,
    /// The contents of the write.
    pub what: What,
}

/// The contents of a write.
#[derive(Debug)]
pub enum What {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A branch to the trampoline.
    Branch(Branch),
    /// One instruction of a two-instruction branch. The first is for the entry trampoline, the second for the site's target.
    Half(Branch, Half),
    /// The address of the `ftrace_ops`, for functions with room for it.
    Op,
    /// The address of the `ftrace_ops` of this name, which does nothing.
    NopOp(&'static str),
}

/// A site in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The address that the tracer records for it.
    pub ip: u64,
    /// The function was compiled with room for `op` before its entry.
    pub has_op: bool,
    /// The address of the entry trampoline; `None` if there is none: then the site's target takes its place.
    pub toward: Option<u64>,
    /// The address of the `ftrace_ops` that does nothing; `None` if there is none: then the function's word is not changed.
    pub nop_op: Option<u64>,
}

impl Site {
    /// The most bytes from ip to pc.
    pub const MOST_IP_OFFSET: i32 = 64;

    /// The registers that C functions preserve. A platform's register that is live at sites is not among them.
    pub fn c_keeps(&self, abi: &Abi) -> RegSet {
        abi.callee_saved.union(abi.platform.minus(self.live))
    }

    /// The registers that C functions may clobber.
    pub fn c_loses(&self, abi: &Abi) -> RegSet {
        abi.callee_saved.union(abi.caller_saved).union(abi.platform).minus(self.c_keeps(abi))
    }

    /// The distance of the word with the `ftrace_ops`, in bytes from pc down to a multiple of 8, if functions have one.
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

    /// All writes that put a site into a state, in the order of the tracer, including the initial writes.
    ///
    /// # Errors
    /// The trampoline is out of reach.
    pub fn patch(&self, arch: &dyn Patch, spot: Spot, state: SiteState) -> Result<Vec<Write>> {
        let mut all = self.initial(arch, spot, state)?;
        all.extend(self.switch(arch, spot, state)?);
        Ok(all)
    }

    /// The initial writes, which the tracer does once, before a site is in any state.
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

    /// The branch target of the site for this trampoline: `target`, or the entry trampoline, if `target` is too far from it, or if
    /// the instruction already at the site does not lead to `target`.
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

    /// The writes that switch a site while CPUs run. Under a breakpoint protocol the kernel writes the breakpoint, all but the
    /// first byte, then the first byte (arch/x86/kernel/alternative.c, `text_poke_bp_batch`).
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
    /// The first bytes of the instruction at the label `jmp` in a copy, and their replacement.
    pub jmp: Option<(Vec<u8>, Vec<u8>)>,
    /// The bytes behind the copied code, and before the word with the `ftrace_ops`.
    pub end: Vec<u8>,
}

impl Copies {
    /// The copy for `op`, with its call not patched yet. `None` if the code cannot be copied.
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
