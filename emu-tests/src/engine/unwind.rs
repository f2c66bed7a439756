//! What an image's unwind table says of each instruction.
//!
//! gimli reads the linked `.eh_frame`; where there is none, ORC is read. Nothing here knows how they were made.

use std::collections::{HashMap, HashSet};

use codegen::arch::machine::{Machine, Orc, OrcFp};
use codegen::backend::Backend;
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::error::{Error, Result};
use gimli::{
    AArch64, BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Operation,
    RegisterRule, UnwindContext, UnwindSection, Vendor,
};
use link::{Image, SymbolKind};

use crate::engine::registers::Registers;

/// Where a column's value is. Bytes are relative to CFA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// In memory.
    At(i64),
    /// In a register.
    In(Reg),
    /// The value itself.
    Is(i64),
    /// What is in a register, plus so many bytes.
    Of(Reg, i64),
}

/// What the table says of one instruction.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Row {
    /// CFA is this register plus so many bytes.
    cfa: (Reg, i64),
    /// The return address; a register without a rule has its value still.
    pub returns: Option<Rule>,
    /// The return address has a column that unwinders know; `None` where it has none, as in ORC.
    pub known_column: Option<bool>,
    /// The return address is in the link register's own column.
    pub in_link: bool,
    /// Unwinders authenticate the return address, with CFA: it is signed.
    pub signed: bool,
    /// Unwinders look up the return address itself: it is behind no call of the function that it lies in.
    pub signal: bool,
    rules: Vec<(Reg, Rule)>,
    /// Where vector registers are that are elsewhere than they were.
    pub vectors: Vec<(u8, Rule)>,
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
            Rule::Of(reg, by) => Rule::In(reg).value(cfa, gpr, memory).wrapping_add_signed(by),
        }
    }
}

impl Row {
    /// CFA, on a CPU with these registers.
    pub fn cfa(&self, gpr: &[u64]) -> u64 {
        Rule::In(self.cfa.0).value(0, gpr, |_| 0).wrapping_add_signed(self.cfa.1)
    }

    /// The return address that unwinders make of the value of its column. They look at no signature here.
    pub fn return_address(&self, machine: &Machine, found: u64) -> u64 {
        if self.signed { (machine.stripped)(found) } else { found }
    }

    /// Where a register's value is: without a rule, where it was.
    pub fn rule(&self, reg: Reg) -> Rule {
        self.rules.iter().find(|(r, _)| *r == reg).map_or(Rule::In(reg), |(_, rule)| *rule)
    }
}

/// The unwind table of the trampolines, by address. Of DWARF expressions it has those that add a number to a register.
#[derive(Default, Debug)]
pub(crate) struct Table {
    rows: HashMap<u64, Row>,
    /// Addresses that it describes, in a way that cannot be compared.
    untold: HashSet<u64>,
}

impl Table {
    /// Read what the image says of these addresses. `orc` names the form of `.orc_unwind` where the image does not show it.
    ///
    /// # Errors
    /// An `.orc_unwind` in a form that is not known.
    pub fn read(
        image: &Image,
        registers: Registers,
        orc: Option<&str>,
        addresses: impl Iterator<Item = u64>,
    ) -> Result<Table> {
        let abi = registers.abi;
        let (frames_at, frames) = contents(image, ".eh_frame");
        let frames = with_signatures(frames);
        let bases = BaseAddresses::default().set_eh_frame(frames_at);
        let mut context = UnwindContext::new();
        let orc = orc_form(image, registers, orc)?.map(|orc| OrcTable::read(image, orc));
        let entries = entries(&frames, &bases);
        // Most addresses are in the entry of the one before.
        let mut last = None;
        let mut table = Table::default();
        for pc in addresses {
            last = last.filter(|fde: &&Entry| fde.contains(pc)).or_else(|| entries.iter().find(|fde| fde.contains(pc)));
            let found = last.and_then(|fde| row(fde, &frames, &bases, &mut context, abi, pc));
            let entry = orc.as_ref().and_then(|orc| orc.entry(pc));
            match found.or_else(|| orc.as_ref()?.row(abi, entry?)) {
                Some(row) => drop(table.rows.insert(pc, row)),
                None if last.is_some() || entry.is_some() => drop(table.untold.insert(pc)),
                None => {}
            }
        }
        Ok(table)
    }

    /// What it says of an instruction.
    pub fn row(&self, pc: u64) -> Option<&Row> {
        self.rows.get(&pc)
    }

    /// Does it say something of an instruction that cannot be compared?
    pub fn is_untold(&self, pc: u64) -> bool {
        self.untold.contains(&pc)
    }

    /// The same, of a table that is read for this one.
    pub fn take(mut self, pc: u64) -> Option<Row> {
        self.rows.remove(&pc)
    }

    /// What it says of these instructions, taken together.
    pub fn says(&self, (start, size): (u64, u64)) -> Said {
        let inside = |pc: &u64| pc.wrapping_sub(start) < size;
        match (self.rows.keys().any(inside), self.untold.iter().any(inside)) {
            (true, _) => Said::Rows,
            (false, true) => Said::Untold,
            (false, false) => Said::Nothing,
        }
    }
}

/// A table that may say where return addresses are signed: in a way that no other architecture uses.
fn with_signatures(bytes: &[u8]) -> EhFrame<EndianSlice<'_, LittleEndian>> {
    let mut frames = EhFrame::new(bytes, LittleEndian);
    frames.set_vendor(Vendor::AArch64);
    frames
}

/// Where the function's caller is, from somewhere in the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// CFA is this register plus so many bytes.
    pub cfa: (Reg, i64),
    /// Bytes from CFA to the link register's value; `None` if it is in the register.
    pub link: Option<i64>,
    /// The return address is signed.
    pub signed: bool,
}

/// What `.eh_frame` says of the frame at these addresses.
pub(crate) fn frames(image: &Image, abi: &Abi, addresses: impl Iterator<Item = u64>) -> HashMap<u64, Frame> {
    let (at, bytes) = contents(image, ".eh_frame");
    let frames = with_signatures(bytes);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let mut context = UnwindContext::new();
    let entries = entries(&frames, &bases);
    let mut last: Option<&Entry> = None;
    let mut all = HashMap::new();
    for pc in addresses {
        last = last.filter(|fde| fde.contains(pc)).or_else(|| entries.iter().find(|fde| fde.contains(pc)));
        let row = last.and_then(|fde| fde.unwind_info_for_address(&frames, &bases, &mut context, pc).ok());
        let Some(row) = row else { continue };
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { continue };
        let reg = abi.regs.iter().position(|r| r.dwarf == register.0).map(|n| Reg(n as u8));
        let column =
            abi.link.and_then(|link| abi.regs.get(usize::from(link.0))).map(|link| gimli::Register(link.dwarf));
        let link = column.and_then(|column| match row.register(column) {
            Some(RegisterRule::Offset(offset)) => Some(offset),
            _ => None,
        });
        let signed = matches!(row.register(AArch64::RA_SIGN_STATE), Some(RegisterRule::Constant(1)));
        all.extend(reg.map(|reg| (pc, Frame { cfa: (reg, offset), link, signed })));
    }
    all
}

/// What an unwind table says of a trampoline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Said {
    /// It has no entry for it, or there is no table.
    #[default]
    Nothing,
    /// It has an entry, of which nothing can be compared: an expression, the end of all stacks.
    Untold,
    /// It has rules.
    Rows,
}

/// Address and bytes of a section, or of a table in a library; none if there is no such.
pub(crate) fn contents<'i>(image: &'i Image, name: &str) -> (u64, &'i [u8]) {
    let section = image.sections.iter().find(|s| s.name == name).map(|s| (s.address, s.size));
    let table = image.symbol(name).filter(|s| s.kind == SymbolKind::Object).map(|s| (s.address, s.size));
    let bytes = section.or(table).and_then(|(at, size)| Some((at, image.bytes(at, size as usize)?)));
    bytes.unwrap_or_default()
}

/// The section with the entries of ORC.
const ORC: &str = ".orc_unwind";

/// The form of the image's `.orc_unwind`: what `.orc_header` says, what the entries show, or `name`. There is none without
/// the section.
fn orc_form(image: &Image, registers: Registers, name: Option<&str>) -> Result<Option<&'static Orc>> {
    let forms = registers.machine.orc;
    let (_, entries) = contents(image, ORC);
    if forms.is_empty() || entries.is_empty() {
        return Ok(None);
    }
    let (_, header) = contents(image, ".orc_header");
    let names = || forms.iter().map(|form| form.name);
    let found = match (header, shown(entries, forms, registers.abi.sp), name) {
        ([], Some(form), _) => Ok(form),
        ([], None, None) => Err(Error::new(format!(
            "{ORC} has no .orc_header, and its entries fit more than one form or none; valid: --profile with a profile that \
             has orc = {}",
            names().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
        ))),
        ([], None, Some(name)) => {
            let found = forms.iter().find(|form| form.name == name);
            found.ok_or_else(|| Error::unknown(&format!("form of {ORC} in the profile"), name, names()))
        }
        (header, ..) => {
            forms.iter().find(|form| form.header.is_some_and(|of| header.starts_with(&of))).ok_or_else(|| {
                let hash: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
                let known = forms.iter().filter(|form| form.header.is_some()).map(|form| form.name);
                let known = known.collect::<Vec<_>>().join(" and ");
                Error::new(format!(
                    "{ORC} has a form that is not known here: .orc_header says {hash}; known: those of Linux {known}"
                ))
            })
        }
    };
    found.map(Some)
}

/// The one form that the entries can have; none if that stays open. For objtool, a function begins where its call left it: CFA
/// is SP and the return address (`arch_initial_func_cfi_state`, tools/objtool/arch/x86/decode.c). So there are such entries in
/// each table, and the forms have different numbers for SP, or for calls.
fn shown(entries: &[u8], forms: &'static [Orc], sp: Reg) -> Option<&'static Orc> {
    let read = |form: &Orc| entries.chunks_exact(form.bytes).map(form.read).collect::<Vec<_>>();
    let begins = |form: &&Orc| read(form).iter().flatten().any(|entry| entry.cfa == (sp, -entry.returns));
    let mut fit = forms.iter().filter(begins);
    match (fit.next(), fit.next()) {
        (Some(form), None) => Some(form),
        (None, _) => {
            // Of forms that say the same, any will do, also where none says anything.
            let mut saying = forms.iter().filter(|form| read(form).iter().any(Option::is_some));
            let first = saying.next().or(forms.first())?;
            saying.all(|form| read(form) == read(first)).then_some(first)
        }
        _ => None,
    }
}

/// The table that objtool makes: its entries, by the address from which each holds.
struct OrcTable<'i> {
    orc: &'static Orc,
    entries: Vec<(u64, &'i [u8])>,
}

impl<'i> OrcTable<'i> {
    fn read(image: &'i Image, orc: &'static Orc) -> OrcTable<'i> {
        let (at, addresses) = contents(image, ".orc_unwind_ip");
        let (_, entries) = contents(image, ORC);
        let places = (at..).step_by(4).zip(addresses.as_chunks().0);
        let from = places.map(|(place, distance)| place.wrapping_add_signed(i32::from_le_bytes(*distance).into()));
        let mut entries: Vec<_> = from.zip(entries.chunks_exact(orc.bytes)).collect();
        entries.sort_by_key(|(from, _)| *from);
        OrcTable { orc, entries }
    }

    /// The entry that holds at an address.
    fn entry(&self, pc: u64) -> Option<&'i [u8]> {
        let behind = self.entries.partition_point(|(from, _)| *from <= pc);
        self.entries.get(behind.checked_sub(1)?).map(|(_, entry)| *entry)
    }

    fn row(&self, abi: &Abi, entry: &[u8]) -> Option<Row> {
        let entry = (self.orc.read)(entry)?;
        let (rules, tells) = match entry.fp {
            OrcFp::Kept => (Vec::new(), RegSet::of(&[abi.fp])),
            OrcFp::At(offset) => (vec![(abi.fp, Rule::At(offset))], RegSet::of(&[abi.fp])),
            OrcFp::Elsewhere => (Vec::new(), RegSet::EMPTY),
        };
        Some(Row {
            cfa: entry.cfa,
            returns: Some(Rule::At(entry.returns)),
            known_column: None,
            in_link: false,
            signed: false,
            signal: false,
            rules,
            vectors: Vec::new(),
            tells,
        })
    }
}

/// How many of these addresses the unwind table of `image` describes. Whatever is in it, there is an answer, soon.
pub fn described(image: &Image, backend: &dyn Backend, addresses: impl Iterator<Item = u64>) -> usize {
    let registers = Registers::of(backend.machine(), &backend.facts().abi);
    let table = registers.and_then(|registers| Table::read(image, registers, None, addresses));
    table.map_or(0, |table| table.rows.len())
}

type Entry<'i> = FrameDescriptionEntry<EndianSlice<'i, LittleEndian>>;

/// Where functions begin that an image's `.eh_frame` describes, and their bytes.
pub(crate) fn functions(image: &Image) -> Vec<(u64, u64)> {
    let (at, frames) = contents(image, ".eh_frame");
    let frames = with_signatures(frames);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let entries = entries(&frames, &bases);
    entries.iter().filter(|fde| fde.len() > 0).map(|fde| (fde.initial_address(), fde.len())).collect()
}

/// The entries of a table, as far as they can be read.
fn entries<'i>(frames: &EhFrame<EndianSlice<'i, LittleEndian>>, bases: &BaseAddresses) -> Vec<Entry<'i>> {
    let (mut all, mut each) = (Vec::new(), frames.entries(bases));
    while let Ok(Some(entry)) = each.next() {
        match entry {
            CieOrFde::Cie(_) => {}
            CieOrFde::Fde(partial) => match partial.parse(EhFrame::cie_from_offset) {
                Ok(fde) => all.push(fde),
                Err(_) => break,
            },
        }
    }
    all
}

fn row(
    fde: &Entry,
    frames: &EhFrame<EndianSlice<LittleEndian>>,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    abi: &Abi,
    pc: u64,
) -> Option<Row> {
    let column = |n: gimli::Register| abi.regs.iter().position(|r| r.dwarf == n.0).map(|i| Reg(i as u8));
    let vector = |n: gimli::Register| n.0.checked_sub(abi.vector_column).filter(|i| *i < u16::from(abi.vectors));
    let returns_in = fde.cie().return_address_register();
    let row = fde.unwind_info_for_address(frames, bases, context, pc).ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
    let mut found = Row {
        cfa: (column(register)?, offset),
        returns: None,
        known_column: Some(column(returns_in).is_some() || abi.return_columns.contains(&returns_in.0)),
        in_link: column(returns_in) == abi.link && abi.link.is_some(),
        signed: false,
        signal: fde.cie().is_signal_trampoline(),
        rules: Vec::new(),
        vectors: Vec::new(),
        tells: abi.callee_saved,
    };
    let mut undefined = false;
    for &(n, ref rule) in row.registers() {
        if let (AArch64::RA_SIGN_STATE, RegisterRule::Constant(state)) = (n, rule) {
            found.signed = *state == 1;
            continue;
        }
        let rule = match *rule {
            RegisterRule::Offset(offset) => Rule::At(offset),
            RegisterRule::ValOffset(offset) => Rule::Is(offset),
            RegisterRule::Register(r) => Rule::In(column(r)?),
            RegisterRule::SameValue if vector(n).is_some() => continue,
            RegisterRule::SameValue => Rule::In(column(n)?),
            RegisterRule::ValExpression(ref expression) => {
                let mut all = expression.get(frames).ok()?.operations(fde.cie().encoding());
                let Operation::RegisterOffset { register, offset, .. } = all.next().ok()?? else { return None };
                Rule::Of(column(register).filter(|_| matches!(all.next(), Ok(None)))?, offset)
            }
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
        found.vectors.extend(vector(n).map(|i| (i as u8, rule)));
    }
    if found.returns.is_none() && !undefined {
        found.returns = column(returns_in).map(Rule::In);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use link::{Access, Section, Segment};

    use super::*;

    const CODE: u64 = 0x1000;
    const FRAMES: u64 = 0x2000;

    fn registers(arch: &str) -> Registers {
        let backend = arch::backend(arch).unwrap();
        Registers::of(backend.machine(), &backend.facts().abi).unwrap()
    }

    fn image(sections: &[(&str, u64, &[u8])]) -> Image {
        let access = Access::Read;
        let segment = |&(_, address, bytes): &(&str, u64, &[u8])| {
            let (bytes, mem_size) = (bytes.to_vec(), bytes.len() as u64);
            Segment { address, bytes, mem_size, access }
        };
        let section = |&(name, address, bytes): &(&str, u64, &[u8])| {
            let (name, size) = (name.to_owned(), bytes.len() as u64);
            Section { name, address, size, align: 1, access, zeroed: false }
        };
        Image {
            machine: 0,
            e_flags: 0,
            segments: sections.iter().map(segment).collect(),
            sections: sections.iter().map(section).collect(),
            symbols: Vec::new(),
            sites: Vec::new(),
            references: Vec::new(),
        }
    }

    /// A CIE and an FDE of 0x20 bytes of code at [`CODE`] (LSB, section `.eh_frame`), with these instructions.
    fn frames(returns_in: u8, data_align: u8, initial: [u8; 7], rest: &[u8]) -> Vec<u8> {
        let cie = [&[0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, data_align, returns_in, 1, 0x1b], &initial[..]];
        let mut all = cie.concat();
        // Its field for the start of the code lies 8 bytes behind its own start.
        let distance = (CODE as i64 - (FRAMES + all.len() as u64 + 8) as i64) as i32;
        let to_cie = all.len() as u32 + 4;
        let mut fde = [&to_cie.to_le_bytes(), &distance.to_le_bytes(), &[0x20, 0, 0, 0][..], &[0], rest].concat();
        fde.resize(fde.len().next_multiple_of(4), 0);
        all.extend((fde.len() as u32).to_le_bytes());
        all.extend(fde);
        all.extend([0; 4]);
        all
    }

    /// Registers by name, as far as they matter.
    fn gpr(abi: &Abi, values: &[(&str, u64)]) -> [u64; 32] {
        let mut all = [0; 32];
        for (name, value) in values {
            all[usize::from(abi.find(name).unwrap().0)] = *value;
        }
        all
    }

    /// CFA, the return address and the frame pointer, where memory holds at each address that address plus 1.
    fn unwound(row: &Row, abi: &Abi, gpr: &[u64]) -> (u64, Option<u64>, u64) {
        let cfa = row.cfa(gpr);
        let value = |rule: Rule| rule.value(cfa, gpr, |at| at + 1);
        (cfa, row.returns.map(value), value(row.rule(abi.fp)))
    }

    /// push %rbp; mov %rsp, %rbp; ...; leave
    #[test]
    fn rows_of_eh_frame_follow_the_instructions() {
        let registers = registers("x86_64");
        let abi = registers.abi;
        // CFA is r7 + 8, r16 is at CFA - 8.
        let initial = [0x0c, 7, 8, 0x90, 1, 0, 0];
        // Behind 1 byte, CFA is r7 + 16 and r6 at CFA - 16; behind 3 more, CFA is r6 + 16; behind 8 more, r7 + 8.
        let rest = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x48, 0x0c, 7, 8];
        let frames = frames(16, 0x78, initial, &rest);
        let table = Table::read(&image(&[(".eh_frame", FRAMES, &frames)]), registers, None, CODE..CODE + 0x30).unwrap();
        let gpr = gpr(abi, &[("rsp", 0x500), ("rbp", 0x700)]);
        let at = |pc: u64| unwound(table.row(pc).unwrap(), abi, &gpr);
        assert_eq!(at(CODE), (0x508, Some(0x501), 0x700));
        assert_eq!(at(CODE + 1), (0x510, Some(0x509), 0x501));
        assert_eq!(at(CODE + 4), (0x710, Some(0x709), 0x701));
        assert_eq!(at(CODE + 12), (0x508, Some(0x501), 0x4f9));
        assert!(table.row(CODE + 0x20).is_none(), "behind the function");
        assert!(!table.row(CODE).unwrap().in_link);
        assert_eq!(table.row(CODE).unwrap().tells, abi.callee_saved);
    }

    #[test]
    fn without_a_rule_the_link_register_has_the_return_address_still() {
        let registers = registers("arm64");
        let abi = registers.abi;
        // CFA is r31 + 0; behind 4 bytes, r31 + 16, with r29 at CFA - 16 and r30 at CFA - 8.
        let frames = frames(30, 0x78, [0x0c, 31, 0, 0, 0, 0, 0], &[0x44, 0x0e, 16, 0x9d, 2, 0x9e, 1]);
        let table = Table::read(&image(&[(".eh_frame", FRAMES, &frames)]), registers, None, CODE..CODE + 8).unwrap();
        let gpr = gpr(abi, &[("sp", 0x500), ("x29", 0x700), ("x30", 0x900)]);
        let at = |pc: u64| unwound(table.row(pc).unwrap(), abi, &gpr);
        assert_eq!(at(CODE), (0x500, Some(0x900), 0x700));
        assert_eq!(at(CODE + 4), (0x510, Some(0x509), 0x501));
        assert!(table.row(CODE).unwrap().in_link);
    }

    #[test]
    fn orc_is_read_where_there_is_no_eh_frame() {
        let registers = registers("x86_64");
        let abi = registers.abi;
        let (ips, entries) = (0x3000, 0x4000);
        // From the function's start, behind its first byte, and behind its end.
        let from = [CODE, CODE + 1, CODE + 0x10];
        let distances: Vec<u8> =
            (ips..).step_by(4).zip(from).flat_map(|(at, to)| (to as i32 - at).to_le_bytes()).collect();
        let said = [[8, 0, 0, 0, 0x05, 2], [16, 0, 0xf0, 0xff, 0x15, 2], [0; 6]].concat();
        let image = image(&[(".orc_unwind_ip", ips as u64, &distances), (".orc_unwind", entries, &said)]);
        let gpr = gpr(abi, &[("rsp", 0x500), ("rbp", 0x700)]);
        let table = Table::read(&image, registers, None, CODE - 1..CODE + 0x20).unwrap();
        let at = |pc: u64| table.row(pc).map(|row| unwound(row, abi, &gpr));
        assert_eq!(at(CODE - 1), None);
        assert_eq!(at(CODE), Some((0x508, Some(0x501), 0x700)));
        assert_eq!(at(CODE + 1), Some((0x510, Some(0x509), 0x501)));
        assert_eq!(at(CODE + 0xf), at(CODE + 1));
        assert_eq!(at(CODE + 0x10), None, "an entry that says nothing");
        // Other architectures have no such table.
        let other = self::registers("riscv64");
        assert!(Table::read(&image, other, None, CODE..CODE + 1).unwrap().row(CODE).is_none());
    }

    /// Entries say in which form they are if exactly one has a function's beginning, SP and 8 bytes: else somebody has to say.
    #[test]
    fn entries_show_the_form_of_orc_or_leave_it_open() {
        let registers = registers("x86_64");
        let ips = 0x3000;
        let distance = (CODE as i32 - ips).to_le_bytes();
        let read = |said: &[[u8; 6]], name| {
            let said = said.concat();
            let sections = [(".orc_unwind_ip", ips as u64, &distance[..]), (".orc_unwind", 0x4000, &said)];
            let table = Table::read(&image(&sections), registers, name, CODE..CODE + 1)?;
            Ok::<_, Error>(table.row(CODE).map(|row| row.cfa(&gpr(registers.abi, &[("rsp", 0x500), ("rdi", 0x900)]))))
        };
        let (old, new, open) = ([8, 0, 0, 0, 5, 2], [8, 0, 0, 0, 3, 2], [16, 0, 0, 0, 5, 2]);
        for name in [None, Some("6.12"), Some("7.3")] {
            assert_eq!(read(&[old], name), Ok(Some(0x508)));
            assert_eq!(read(&[new], name), Ok(Some(0x508)));
            // The same in both: CFA is r10, rbp is where it was.
            assert_eq!(read(&[[8, 0, 0, 0, 6, 2]], name).unwrap(), Some(8));
        }
        // 6.1 has another number for calls, which is none for the others.
        let oldest = [8, 0, 0, 0, 5, 0];
        for name in [None, Some("6.12"), Some("7.3"), Some("6.1")] {
            assert_eq!(read(&[oldest], name), Ok(Some(0x508)));
            assert_eq!(read(&[[0x10, 0, 0, 0, 5, 0]], name), Ok(Some(0x510)));
        }
        assert!(read(&[old, oldest], None).is_err());
        assert_eq!(read(&[[16, 0, 0, 0, 5, 2], old, oldest], Some("6.1")), Ok(None));
        for said in [&[open][..], &[open, old, new]] {
            assert!(
                read(said, None)
                    .unwrap_err()
                    .to_string()
                    .contains("--profile with a profile that has orc = \"6.12\" or")
            );
            assert!(read(said, Some("5.4")).unwrap_err().to_string().contains("'5.4'; valid: 6.12, "));
            assert_eq!((read(said, Some("6.12")), read(said, Some("7.3"))), (Ok(Some(0x510)), Ok(Some(0x910))));
        }
    }

    /// The same CFA, SP and 8 bytes, as 6.12 and as 7.3 write it.
    #[test]
    fn the_header_says_which_form_orc_has() {
        let registers = registers("x86_64");
        let forms = registers.machine.orc;
        let (ips, entries, headers) = (0x3000, 0x4000, 0x5000);
        let distance = (CODE as i32 - ips).to_le_bytes();
        let mut cfa = Vec::new();
        for (number, header) in [(5, forms[0].header.unwrap()), (3, forms[1].header.unwrap()), (5, [0x12; 20])] {
            let said = [8, 0, 0, 0, number, 2];
            let sections = [
                (".orc_unwind_ip", ips as u64, &distance[..]),
                (".orc_unwind", entries, &said),
                (".orc_header", headers, &header),
            ];
            // What the profile says counts only where there is no header.
            let table = Table::read(&image(&sections), registers, Some("none"), CODE..CODE + 1);
            cfa.push(table.map(|table| table.row(CODE).unwrap().cfa(&gpr(registers.abi, &[("rsp", 0x500)]))));
        }
        assert_eq!(cfa[..2], [Ok(0x508), Ok(0x508)]);
        let unknown = cfa[2].as_ref().unwrap_err().to_string();
        assert!(unknown.contains(&format!(".orc_header says {}", "12".repeat(20))), "{unknown}");
    }
}
