//! Entries of functions that were compiled without a site: whether a branch can be written there, and how the overwritten
//! instructions are moved.

use crate::arch::branch::Branch;
use crate::words::error::Result;

/// How a function's entry can be patched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A branch overwrites one instruction: no thread can be in the middle.
    Word,
    /// A branch overwrites several instructions: no thread may be in the middle while it is written.
    Short,
    /// Only a breakpoint fits.
    TrapOnly,
    /// Nothing may be written to the entry.
    Refused,
}

impl Class {
    /// The class as one word.
    pub fn name(self) -> &'static str {
        match self {
            Class::Word => "word",
            Class::Short => "short",
            Class::TrapOnly => "trap",
            Class::Refused => "refused",
        }
    }
}

/// The properties of an instruction that determine whether it can be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Insn {
    /// The length in bytes.
    pub len: usize,
    /// The instruction's effect on the flow of control.
    pub flow: Flow,
    /// The target of its direct branch, if it is one.
    pub target: Option<u64>,
}

/// The effect of an instruction on the flow of control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// The next instruction may follow.
    On,
    /// The next instruction never follows.
    Away,
    /// The instruction stores a return address.
    Call,
    /// Padding between functions: the instruction does nothing, or traps.
    Padding,
    /// The instruction cannot be moved, for this reason.
    Stays(&'static str),
}

/// A direct branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lead {
    /// The target of the branch.
    pub to: u64,
    /// The address of the branch.
    pub from: u64,
    /// The branch is a call.
    pub call: bool,
}

/// The call or jump with which code begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct First {
    /// The offset of the instruction: behind a landing pad, if there is one.
    pub at: usize,
    /// The size of the instruction in bytes.
    pub len: usize,
    /// The target of the call or jump.
    pub to: To,
}

/// The target of a call or a jump.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum To {
    /// This address.
    Address(u64),
    /// The address in the word at this address.
    Word(u64),
}

/// A function in its object.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// The name in the symbol table.
    pub name: &'a str,
    /// The address of the function.
    pub address: u64,
    /// The bytes of the function, and those behind it up to the next function.
    pub bytes: &'a [u8],
    /// The number of bytes that belong to the function.
    pub size: usize,
    /// The direct branches of the object, in order.
    pub leads: &'a [Lead],
    /// The object is marked as having landing pads for all indirect branches, so the processor may require them.
    pub guarded: bool,
}

/// Instructions with which functions sign their return address, and what undoes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signing {
    /// The instruction that signs the return address.
    pub sign: &'static [u8],
    /// The instruction that authenticates it.
    pub authenticate: &'static [u8],
}

/// How an entry is patched by one kind of branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How the entry can be patched.
    pub class: Class,
    /// The reason why it cannot be patched better; empty if there is none.
    pub why: &'static str,
    /// The kind of branch.
    pub branch: Branch,
    /// The offset of the branch from the function's beginning.
    pub at: usize,
    /// The size in bytes of the instructions that the branch overwrites, at least in part.
    pub covers: usize,
    /// The branch follows the instruction that signs the return address.
    pub signed: Option<Signing>,
}

/// A branch for an entry.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The kind of branch.
    pub branch: Branch,
    /// The size of the branch in bytes.
    pub bytes: usize,
    /// The alignment at which one instruction of this many bytes can be replaced by one store.
    pub align: u64,
}

/// A function that decodes the instruction at an address; `None` if the bytes are no known instruction.
pub type Decode<'a> = &'a dyn Fn(&[u8], u64) -> Option<Insn>;

/// All direct branches of code that begins at `at`. Bytes that are no instruction are skipped, `unit` at a time.
pub fn leads(code: &[u8], at: u64, unit: usize, decode: Decode) -> Vec<Lead> {
    let mut all = Vec::new();
    let mut rest = code;
    while !rest.is_empty() {
        let from = at.wrapping_add((code.len() - rest.len()) as u64);
        let insn = decode(rest, from);
        if let Some((insn, to)) = insn.and_then(|insn| Some((insn, insn.target?))) {
            all.push(Lead { to, from, call: insn.flow == Flow::Call });
        }
        rest = rest.get(insn.map_or(unit, |insn| insn.len.max(unit))..).unwrap_or_default();
    }
    all
}

impl Code<'_> {
    /// The result for an entry at which no branch can be written.
    pub fn refused(&self, branch: Branch, class: Class, why: &'static str) -> Entry {
        Entry { class, why, branch, at: 0, covers: 0, signed: None }
    }

    /// How the entry can be patched by a branch `at` bytes from the function's beginning.
    pub fn entry(&self, at: usize, room: Room, decode: Decode) -> Entry {
        self.patched(at, at, room, decode)
    }

    /// How the entry can be patched behind the instruction that signs the return address, with which the function begins.
    pub fn signed(&self, signing: Signing, room: Room, decode: Decode) -> Entry {
        let entry = self.patched(0, signing.sign.len(), room, decode);
        Entry { signed: Some(signing), ..entry }
    }

    /// How the entry can be patched by a branch at this offset. Other branches may lead to `begins` alone.
    fn patched(&self, begins: usize, at: usize, room: Room, decode: Decode) -> Entry {
        let class = self.covered(at, room, decode).and_then(|(covers, class)| {
            self.led_into(begins, at + covers).map_or(Ok((covers, class)), |why| Err((Class::TrapOnly, why)))
        });
        match class {
            Ok((covers, class)) => Entry { class, why: "", branch: room.branch, at, covers, signed: None },
            Err((class, why)) => self.refused(room.branch, class, why),
        }
    }

    /// The bytes of instructions that the branch overwrites, or the reason why it must not.
    fn covered(
        &self,
        at: usize,
        room: Room,
        decode: Decode,
    ) -> std::result::Result<(usize, Class), (Class, &'static str)> {
        const SHORTER: (Class, &str) = (Class::TrapOnly, "shorter than a branch");
        let (mut covers, mut count, mut ended) = (0, 0, false);
        while covers < room.bytes {
            let here = at + covers;
            let rest = self.bytes.get(here..).filter(|rest| !rest.is_empty()).ok_or(SHORTER)?;
            let insn = decode(rest, self.address.wrapping_add(here as u64));
            let insn = insn.filter(|insn| insn.len > 0).ok_or((Class::Refused, "unknown instruction"))?;
            covers += insn.len;
            match insn.flow {
                Flow::Stays(why) if !ended => return Err((Class::Refused, why)),
                _ if here >= self.size && !ended => return Err(SHORTER),
                Flow::Padding if ended => {}
                _ if here >= self.size => return Err(SHORTER),
                _ if ended => return Err((Class::TrapOnly, "code behind a jump")),
                Flow::Call if covers < room.bytes => return Err((Class::TrapOnly, "a call in the middle")),
                flow => ended = flow == Flow::Away,
            }
            count += 1;
        }
        let aligned = self.address.wrapping_add(at as u64).is_multiple_of(room.align);
        Ok((covers, if count == 1 && aligned { Class::Word } else { Class::Short }))
    }

    /// The reason why the instructions between these offsets must stay, if other branches lead into them.
    fn led_into(&self, begins: usize, end: usize) -> Option<&'static str> {
        let [begins, end] = [begins, end].map(|offset| self.address.wrapping_add(offset as u64));
        let own = self.address..self.address.saturating_add(self.size as u64);
        let first = self.leads.partition_point(|lead| lead.to < self.address);
        let near = || self.leads.iter().skip(first).take_while(|lead| lead.to < end);
        if near().any(|lead| lead.to > begins) {
            return Some("a branch leads into it");
        }
        near().any(|lead| !lead.call && own.contains(&lead.from)).then_some("a loop begins there")
    }
}

/// A function that makes the instructions at the first address load from the second.
pub type Aim<'a> = &'a dyn Fn(&mut [u8], u64, u64) -> Result<()>;

/// Instructions under construction for an address, with words of memory behind them from which they load.
pub struct Making {
    at: u64,
    code: Vec<u8>,
    loads: Vec<(usize, u64)>,
}

impl Making {
    /// An empty sequence at address `at`.
    pub fn new(at: u64) -> Making {
        Making { at, code: Vec::new(), loads: Vec::new() }
    }

    /// The address of the next instruction.
    pub fn here(&self) -> u64 {
        self.at.wrapping_add(self.code.len() as u64)
    }

    /// Append instructions.
    pub fn push(&mut self, code: &[u8]) {
        self.code.extend(code);
    }

    /// Append instructions that load this value; [`Making::finish`] sets the address from which they load.
    pub fn load(&mut self, code: &[u8], value: u64) {
        self.loads.push((self.code.len(), value));
        self.push(code);
    }

    /// The complete bytes. `aim` makes the instructions at its first address load from its second.
    ///
    /// # Errors
    /// As `aim`.
    pub fn finish(mut self, aim: Aim) -> Result<Vec<u8>> {
        if !self.loads.is_empty() {
            let words = self.here().next_multiple_of(8);
            self.code.resize(words.wrapping_sub(self.at) as usize, 0);
        }
        for (from, value) in std::mem::take(&mut self.loads) {
            let word = self.here();
            aim(self.code.get_mut(from..).unwrap_or_default(), self.at.wrapping_add(from as u64), word)?;
            self.push(&value.to_le_bytes());
        }
        Ok(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of one-byte instructions: the byte is what it does.
    fn decode(bytes: &[u8], at: u64) -> Option<Insn> {
        let (flow, target) = match bytes.first()? {
            b'.' => (Flow::On, None),
            b'r' => (Flow::Away, None),
            b'c' => (Flow::Call, Some(at + 64)),
            b'l' => (Flow::On, Some(at - 2)),
            b'p' => (Flow::Padding, None),
            b's' => (Flow::Stays("stays"), None),
            _ => return None,
        };
        Some(Insn { len: 1, flow, target })
    }

    fn class(bytes: &str, size: usize, leads: &[Lead]) -> (Class, &'static str) {
        let code = Code { name: "f", address: 16, bytes: bytes.as_bytes(), size, leads, guarded: false };
        let entry = code.entry(0, Room { branch: Branch::SiteJump, bytes: 3, align: 1 }, &decode);
        (entry.class, entry.why)
    }

    #[test]
    fn what_fits_is_patched() {
        assert_eq!(class("....", 4, &[]), (Class::Short, ""));
        assert_eq!(class("..c.", 4, &[]), (Class::Short, ""));
        assert_eq!(class(".c..", 4, &[]), (Class::TrapOnly, "a call in the middle"));
        assert_eq!(class(".rpp", 2, &[]), (Class::Short, ""));
        assert_eq!(class(".rs.", 2, &[]), (Class::TrapOnly, "shorter than a branch"));
        assert_eq!(class(".r", 2, &[]), (Class::TrapOnly, "shorter than a branch"));
        assert_eq!(class("..pp", 2, &[]), (Class::TrapOnly, "shorter than a branch"));
        assert_eq!(class(".r..", 4, &[]), (Class::TrapOnly, "code behind a jump"));
        assert_eq!(class("s...", 4, &[]), (Class::Refused, "stays"));
        assert_eq!(class("?...", 4, &[]), (Class::Refused, "unknown instruction"));
    }

    #[test]
    fn no_branch_leads_past_what_signs() {
        let class = |leads: &[Lead]| {
            let code = Code { name: "f", address: 16, bytes: b"....", size: 4, leads, guarded: true };
            let signing = Signing { sign: b"s", authenticate: b"a" };
            let entry = code.signed(signing, Room { branch: Branch::SiteJump, bytes: 1, align: 1 }, &decode);
            (entry.class, entry.at, entry.covers, entry.why)
        };
        let lead = |from, to, call| [Lead { to, from, call }];
        assert_eq!(class(&lead(99, 16, false)), (Class::Word, 1, 1, ""));
        assert_eq!(class(&lead(99, 18, false)), (Class::Word, 1, 1, ""));
        assert_eq!(class(&lead(99, 17, false)), (Class::TrapOnly, 0, 0, "a branch leads into it"));
        assert_eq!(class(&lead(99, 17, true)), (Class::TrapOnly, 0, 0, "a branch leads into it"));
        assert_eq!(class(&lead(18, 16, false)), (Class::TrapOnly, 0, 0, "a loop begins there"));
    }

    #[test]
    fn branches_into_it_are_seen() {
        let lead = |from, to, call| [Lead { to, from, call }];
        assert_eq!(class("....", 4, &lead(99, 17, false)).1, "a branch leads into it");
        assert_eq!(class("....", 4, &lead(99, 18, true)).1, "a branch leads into it");
        for (from, to, call) in [(99, 16, false), (18, 16, true), (99, 19, false), (99, 15, false)] {
            assert_eq!(class("....", 4, &lead(from, to, call)).1, "");
        }
        assert_eq!(class("....", 4, &lead(18, 16, false)).1, "a loop begins there");
        assert_eq!(
            leads(b".c?.l", 16, 1, &decode),
            [Lead { to: 81, from: 17, call: true }, Lead { to: 18, from: 20, call: false }]
        );
    }
}
