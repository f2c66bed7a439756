//! P12: at every instruction, what the unwind table says against what the CPU holds; and the walk of frame records that
//! an unwinder makes from a callback.
//!
//! gimli reads the linked `.eh_frame`; nothing here knows how it was made.

use std::collections::HashMap;

use codegen::abi::{Abi, Reg};
use codegen::contract::Contract;
use codegen::frame::Content;
use codegen::link::Image;
use codegen::spec::Kind;
use gimli::{BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection};

use crate::cpu::{Registers, Snapshot, Uc, word};
use crate::report::Clause;
use crate::trace::{Joined, Trace};

/// Where a column's value is. Bytes are relative to CFA.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// In memory.
    At(i64),
    /// In a register.
    In(Reg),
    /// The value itself.
    Is(i64),
}

/// What the table says of one instruction.
#[derive(Debug)]
struct Row {
    /// CFA is this register plus so many bytes.
    cfa: (Reg, i64),
    /// The return address; a register without a rule has its value still.
    returns: Option<Rule>,
    /// The return address is in the link register's own column.
    in_link: bool,
    rules: Vec<(Reg, Rule)>,
}

/// The unwind table of the trampolines, by address. What it says in DWARF expressions is left out.
#[derive(Default, Debug)]
pub(crate) struct Table(HashMap<u64, Row>);

impl Table {
    /// Read what the image says of these addresses.
    pub fn read(image: &Image, abi: &Abi, addresses: impl Iterator<Item = u64>) -> Table {
        let mut table = Table::default();
        let Some(section) = image.sections.iter().find(|s| s.name == ".eh_frame") else { return table };
        let bytes = image.bytes(section.address, section.size as usize);
        let frames = EhFrame::new(bytes.unwrap_or_default(), LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(section.address);
        let mut context = UnwindContext::new();
        for pc in addresses {
            table.0.extend(row(&frames, &bases, &mut context, abi, pc).map(|row| (pc, row)));
        }
        table
    }
}

/// How many of these addresses the unwind table of `image` describes. Whatever is in it, there is an answer, soon.
pub fn described(image: &Image, abi: &Abi, addresses: impl Iterator<Item = u64>) -> usize {
    Table::read(image, abi, addresses).0.len()
}

fn row(
    frames: &EhFrame<gimli::EndianSlice<'_, LittleEndian>>,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    abi: &Abi,
    pc: u64,
) -> Option<Row> {
    let column = |n: gimli::Register| abi.regs.iter().position(|r| r.dwarf == n.0).map(|i| Reg(i as u8));
    let fde = frames.fde_for_address(bases, pc, EhFrame::cie_from_offset).ok()?;
    let returns_in = fde.cie().return_address_register();
    let row = fde.unwind_info_for_address(frames, bases, context, pc).ok()?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
    let mut found = Row {
        cfa: (column(register)?, offset),
        returns: None,
        in_link: column(returns_in) == abi.link && abi.link.is_some(),
        rules: Vec::new(),
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

impl Trace {
    /// Before each instruction of the trampoline that is at work.
    pub(crate) fn unwind(&mut self, uc: &mut Uc, pc: u64) {
        let (Some(registers), Some(table)) = (self.registers, self.table.clone()) else { return };
        let Some(row) = table.0.get(&pc) else { return };
        let now = registers.general(uc);
        let cfa = now.gpr[row.cfa.0.0 as usize].wrapping_add_signed(row.cfa.1);
        let value = |rule: Rule| match rule {
            Rule::At(offset) => word(uc, cfa.wrapping_add_signed(offset)),
            Rule::In(reg) => now.gpr[reg.0 as usize],
            Rule::Is(offset) => cfa.wrapping_add_signed(offset),
        };
        let kept = |at: &Snapshot, reg: Reg| {
            let rule = row.rules.iter().find(|(r, _)| *r == reg).map_or(Rule::In(reg), |(_, rule)| *rule);
            (reg, at.gpr[reg.0 as usize], value(rule))
        };
        let mut columns = Vec::new();
        let saved = || registers.abi.callee_saved.iter().filter(|&r| Some(r) != registers.abi.link);
        let sp = match (&self.exiting, self.activations.last()) {
            (Some(e), _) => {
                columns.extend(saved().map(|r| kept(&e.expect, r)));
                e.sp
            }
            (None, Some(a)) => {
                columns.extend(saved().map(|r| kept(&a.expect, r)));
                a.sp
            }
            (None, None) => return,
        };
        let mut returns = Vec::new();
        if let (None, Some(a)) = (&self.exiting, self.activations.last()) {
            if let Some(rule) = row.returns {
                returns.push(("return address by the unwind table", a.resume, a.pc, value(rule)));
            }
            if let Some(link) = registers.abi.link.filter(|_| !row.in_link) {
                let (_, _, found) = kept(&a.expect, link);
                returns.push(("link register by the unwind table", a.returns_to, a.parent, found));
            }
        }
        self.check(Clause::P12, "CFA by the unwind table", sp, cfa, pc);
        for (reg, want, found) in columns {
            self.check(Clause::P12, Joined("", registers.abi.name(reg), " by the unwind table"), want, found, pc);
        }
        // What a callback changed is changed in its slot, and not in a record beside it.
        for (what, changed, first, found) in returns {
            self.check(Clause::P12, what, if found == first { first } else { changed }, found, pc);
        }
    }

    /// In a callback: the records that lie between it and the traced function's caller.
    pub(crate) fn check_records(&mut self, uc: &mut Uc, registers: Registers, contract: &Contract, pc: u64) {
        let (at, resume, parent) = match (&self.exiting, self.activations.last()) {
            (Some(e), _) => (&e.expect, 0, e.parent),
            // What a callback changed on the way here counts for the records that are made after it.
            (None, Some(a)) => (&a.expect, a.resume, a.returns_to),
            (None, None) => return,
        };
        let (abi, before) = (registers.abi, at.gpr[registers.abi.fp.0 as usize]);
        let mut fp = registers.get(uc, abi.fp);
        if contract.marks_regs && matches!(contract.kind, Kind::Entry(_)) {
            let fregs = registers.get(uc, abi.args[3]);
            self.check(Clause::P12, "frame pointer: address of pt_regs with bit 0 set", fregs | 1, fp, pc);
            return;
        }
        if contract.frame.records.is_empty() {
            return;
        }
        for (n, record) in contract.frame.records.iter().rev().enumerate() {
            let place = fp.wrapping_add_signed(registers.machine.record);
            let want = if record.ret == Content::Pc { resume } else { parent };
            let found = word(uc, place.wrapping_add(8));
            self.check(Clause::P12, format!("return address in frame record {n}"), want, found, pc);
            fp = word(uc, place);
        }
        self.check(Clause::P12, "frame pointer behind the records", before, fp, pc);
    }
}
