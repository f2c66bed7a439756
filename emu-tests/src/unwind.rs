//! What an image's unwind table says of each instruction.
//!
//! gimli reads the linked `.eh_frame`; where there is none, ORC is read. Nothing here knows how they were made.

use std::collections::HashMap;

use codegen::abi::{Abi, Reg, RegSet};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection,
};
use link::Image;

/// Where a column's value is. Bytes are relative to CFA.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// In memory.
    At(i64),
    /// In a register.
    In(Reg),
    /// The value itself.
    Is(i64),
}

/// What the table says of one instruction.
#[derive(Debug)]
pub(crate) struct Row {
    /// CFA is this register plus so many bytes.
    cfa: (Reg, i64),
    /// The return address; a register without a rule has its value still.
    pub returns: Option<Rule>,
    /// The return address is in the link register's own column.
    pub in_link: bool,
    rules: Vec<(Reg, Rule)>,
    /// The registers of which it says where they are: by a rule, or that they have their value still.
    pub tells: RegSet,
}

impl Rule {
    /// The value, on a CPU with these registers.
    pub fn value(self, cfa: u64, gpr: &[u64], memory: impl Fn(u64) -> u64) -> u64 {
        match self {
            Rule::At(offset) => memory(cfa.wrapping_add_signed(offset)),
            Rule::In(reg) => gpr.get(usize::from(reg.0)).copied().unwrap_or(0),
            Rule::Is(offset) => cfa.wrapping_add_signed(offset),
        }
    }
}

impl Row {
    /// CFA, on a CPU with these registers.
    pub fn cfa(&self, gpr: &[u64]) -> u64 {
        Rule::In(self.cfa.0).value(0, gpr, |_| 0).wrapping_add_signed(self.cfa.1)
    }

    /// Where a register's value is: without a rule, where it was.
    pub fn rule(&self, reg: Reg) -> Rule {
        self.rules.iter().find(|(r, _)| *r == reg).map_or(Rule::In(reg), |(_, rule)| *rule)
    }
}

/// The unwind table of the trampolines, by address. What it says in DWARF expressions is left out.
#[derive(Default, Debug)]
pub(crate) struct Table(HashMap<u64, Row>);

impl Table {
    /// Read what the image says of these addresses.
    pub fn read(image: &Image, abi: &Abi, addresses: impl Iterator<Item = u64>) -> Table {
        let (frames_at, frames) = contents(image, ".eh_frame");
        let frames = EhFrame::new(frames, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(frames_at);
        let mut context = UnwindContext::new();
        let orc = Orc::read(image);
        // The table is searched from its start; most addresses are in the entry of the one before.
        let mut last = None;
        let mut row = |pc| {
            last = last.take().filter(|fde: &Entry| fde.contains(pc));
            last = last.take().or_else(|| frames.fde_for_address(&bases, pc, EhFrame::cie_from_offset).ok());
            let found = last.as_ref().and_then(|fde| row(fde, &frames, &bases, &mut context, abi, pc));
            found.or_else(|| orc.row(abi, pc))
        };
        Table(addresses.filter_map(|pc| Some((pc, row(pc)?))).collect())
    }

    /// What it says of an instruction.
    pub fn row(&self, pc: u64) -> Option<&Row> {
        self.0.get(&pc)
    }
}

/// Address and bytes of a section; none if there is no such section.
fn contents<'i>(image: &'i Image, name: &str) -> (u64, &'i [u8]) {
    let section = image.sections.iter().find(|s| s.name == name);
    let bytes = section.and_then(|s| Some((s.address, image.bytes(s.address, s.size as usize)?)));
    bytes.unwrap_or_default()
}

/// The table that objtool gives to x86 kernels: entries of `struct orc_entry` (kernel arch/x86/include/asm/orc_types.h) by
/// the address from which each holds.
struct Orc(Vec<(u64, [u8; 6])>);

impl Orc {
    fn read(image: &Image) -> Orc {
        let (at, addresses) = contents(image, ".orc_unwind_ip");
        let (_, entries) = contents(image, ".orc_unwind");
        let places = (at..).step_by(4).zip(addresses.as_chunks().0);
        let from = places.map(|(place, distance)| place.wrapping_add_signed(i32::from_le_bytes(*distance).into()));
        let mut all: Vec<_> = from.zip(entries.as_chunks().0.iter().copied()).collect();
        all.sort_by_key(|(from, _)| *from);
        Orc(all)
    }

    /// Entries of the type for calls. The others lead to a saved `pt_regs`, or to nothing.
    fn row(&self, abi: &Abi, pc: u64) -> Option<Row> {
        const CALL: u8 = 2;
        const UNDEFINED: u8 = 0;
        const PREV_SP: u8 = 1;
        /// The registers that can be a base, by their numbers there.
        const BASES: [(u8, &str); 6] = [(2, "rdx"), (3, "rdi"), (4, "rbp"), (5, "rsp"), (6, "r10"), (7, "r13")];
        let behind = self.0.partition_point(|(from, _)| *from <= pc);
        let (_, [sp_low, sp_high, bp_low, bp_high, bases, kind]) = *self.0.get(behind.checked_sub(1)?)?;
        let (_, base) = BASES.into_iter().find(|(n, _)| *n == bases & 15)?;
        let offset = |low, high| i64::from(i16::from_le_bytes([low, high]));
        let (saved, tells) = match bases >> 4 {
            UNDEFINED => (None, RegSet::of(&[abi.fp])),
            PREV_SP => (Some((abi.fp, Rule::At(offset(bp_low, bp_high)))), RegSet::of(&[abi.fp])),
            _ => (None, RegSet::EMPTY),
        };
        (kind & 7 == CALL).then_some(Row {
            cfa: (abi.find(base)?, offset(sp_low, sp_high)),
            // Where the call pushed it.
            returns: Some(Rule::At(-8)),
            in_link: false,
            rules: saved.into_iter().collect(),
            tells,
        })
    }
}

/// How many of these addresses the unwind table of `image` describes. Whatever is in it, there is an answer, soon.
pub fn described(image: &Image, abi: &Abi, addresses: impl Iterator<Item = u64>) -> usize {
    Table::read(image, abi, addresses).0.len()
}

type Entry<'i> = FrameDescriptionEntry<EndianSlice<'i, LittleEndian>>;

fn row(
    fde: &Entry,
    frames: &EhFrame<EndianSlice<LittleEndian>>,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    abi: &Abi,
    pc: u64,
) -> Option<Row> {
    let column = |n: gimli::Register| abi.regs.iter().position(|r| r.dwarf == n.0).map(|i| Reg(i as u8));
    let returns_in = fde.cie().return_address_register();
    let row = fde.unwind_info_for_address(frames, bases, context, pc).ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
    let mut found = Row {
        cfa: (column(register)?, offset),
        returns: None,
        in_link: column(returns_in) == abi.link && abi.link.is_some(),
        rules: Vec::new(),
        tells: abi.callee_saved,
    };
    let mut undefined = false;
    for &(n, ref rule) in row.registers() {
        let rule = match *rule {
            RegisterRule::Offset(offset) => Rule::At(offset),
            RegisterRule::ValOffset(offset) => Rule::Is(offset),
            RegisterRule::Register(r) => Rule::In(column(r)?),
            RegisterRule::SameValue => Rule::In(column(n)?),
            RegisterRule::Undefined => {
                undefined |= n == returns_in;
                continue;
            }
            _ => return None,
        };
        if n == returns_in {
            found.returns = Some(rule);
        }
        found.rules.extend(column(n).map(|reg| (reg, rule)));
    }
    if found.returns.is_none() && !undefined {
        found.returns = column(returns_in).map(Rule::In);
    }
    Some(found)
}
