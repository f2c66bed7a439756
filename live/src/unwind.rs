//! Unwind tables of trampolines: the rows of the generated one, for each copy, registered with the unwinders of the process.
#![allow(unsafe_code, reason = "unwinders are found by name, and read what they are given at any later time")]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use gimli::write::{
    Address, CallFrameInstruction as Rule, CommonInformationEntry, EhFrame, EndianVec, Expression,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{
    BaseAddresses, CallFrameInstruction as Read, CieOrFde, Encoding, Format, LittleEndian, Register, UnwindSection,
};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::error::{Error, Result};
use crate::memory::{self, Loads};
use crate::objects;

/// How far CFA of a trampoline is above that of the function which returns to it, and leaves nothing on the stack in between: unwinders
/// tell frames from each other by it.
const APART: i32 = 8;

/// The rows of a trampoline's unwind table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    code_align: u8,
    data_align: i8,
    return_column: Register,
    /// What holds at its first byte.
    initial: Vec<Rule>,
    /// By the offset from which they hold.
    rules: Vec<(u32, Rule)>,
}

/// An unwinder takes tables in one of these ways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Takes {
    /// A section, which ends with a zero word: libgcc.
    Section(usize),
    /// The entry of one function: LLVM's libunwind.
    Entry(usize),
}

/// The names by which unwinders take tables. LLVM's has that of libgcc too, for another purpose.
const ENTRY: &CStr = c"__unw_add_dynamic_fde";
const SECTION: &CStr = c"__register_frame";

impl Rows {
    /// The rows of the one trampoline in this object.
    ///
    /// # Errors
    /// It has no unwind table.
    pub fn of(object: &[u8]) -> Result<Rows> {
        let missing = |what: String| Error::Missing {
            what: format!("the unwind table of a trampoline: {what}"),
            remedy: "a profile whose trampolines have one",
        };
        let file = ElfFile64::<object::LittleEndian>::parse(object).map_err(|e| missing(e.to_string()))?;
        let section = file.section_by_name(".eh_frame").ok_or_else(|| missing("none".to_owned()))?;
        let table = section.data().map_err(|e| missing(e.to_string()))?;
        read(table).map_err(missing)
    }

    /// From which offset on the return address is lost: from there the function is called.
    pub fn lost_from(&self) -> Option<u32> {
        self.rules.iter().find(|(_, rule)| self.is_lost(rule)).map(|(offset, _)| *offset)
    }

    /// How far below CFA the frame begins in which the return address is lost.
    pub fn depth(&self) -> u64 {
        let lost = self.lost_from().unwrap_or(u32::MAX);
        let offsets = self.rules.iter().filter(|(offset, _)| *offset >= lost).map(|(_, rule)| match rule {
            Rule::Cfa(_, above) | Rule::CfaOffset(above) => u64::try_from(*above).unwrap_or_default(),
            _ => 0,
        });
        offsets.max().unwrap_or_default()
    }

    /// Raise CFA where the return address is lost.
    fn raise(&mut self, stack_pointer: Register) {
        let lost = self.lost_from().unwrap_or(u32::MAX);
        for (_, rule) in self.rules.iter_mut().filter(|(offset, _)| *offset >= lost) {
            match rule {
                Rule::Cfa(_, above) | Rule::CfaOffset(above) => *above += APART,
                Rule::Offset(_, above) => *above -= APART,
                _ => {}
            }
        }
        if let Some(n) = self.rules.iter().position(|(_, rule)| self.is_lost(rule)) {
            // As an expression: LLVM's libunwind knows no DW_CFA_val_offset.
            let mut own = Expression::new();
            own.op_constu(APART as u64);
            own.op(gimli::DW_OP_minus);
            self.rules.insert(n, (lost, Rule::ValExpression(stack_pointer, own)));
        }
    }

    fn is_lost(&self, rule: &Rule) -> bool {
        *rule == Rule::Undefined(self.return_column)
    }

    /// Tell the unwinders of this process about a copy of the trampoline that begins at `at`. Where the table says that the return
    /// address is lost, `caller` finds it.
    ///
    /// # Errors
    /// A row does not fit.
    pub fn register(&self, (at, bytes): (u64, usize), caller: &Expression) -> Result<()> {
        let (section, entry) = self.table((at, bytes as u32), caller).map_err(|e| Error::Missing {
            what: format!("an unwind table of a trampoline: {e}"),
            remedy: "a profile whose trampolines have one",
        })?;
        UNWINDERS.lock().unwrap_or_else(PoisonError::into_inner).add(Table { section, entry });
        Ok(())
    }

    /// A section with an entry, a zero word behind it, and where the entry is.
    fn table(&self, (at, bytes): (u64, u32), caller: &Expression) -> gimli::write::Result<(&'static [u8], usize)> {
        let encoding = Encoding { format: Format::Dwarf32, version: 1, address_size: 8 };
        let mut common = CommonInformationEntry::new(encoding, self.code_align, self.data_align, self.return_column);
        self.initial.iter().for_each(|rule| common.add_instruction(rule.clone()));
        let mut entry = FrameDescriptionEntry::new(Address::Constant(at), bytes);
        for (offset, rule) in &self.rules {
            let found = || Rule::ValExpression(self.return_column, caller.clone());
            entry.add_instruction(*offset, if self.is_lost(rule) { found() } else { rule.clone() });
        }
        let mut all = FrameTable::default();
        let common = all.add_cie(common);
        all.add_fde(common, entry);
        let mut section = EhFrame(EndianVec::new(LittleEndian));
        all.write_eh_frame(&mut section)?;
        let mut section = section.0.into_vec();
        let common = section.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize + 4);
        section.extend([0; 4]);
        Ok((section.leak(), common))
    }
}

/// The rows of the first entry of a section.
fn read(table: &[u8]) -> std::result::Result<Rows, String> {
    let (section, bases) = (gimli::EhFrame::new(table, LittleEndian), BaseAddresses::default().set_eh_frame(0));
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next().map_err(text)? {
        let CieOrFde::Fde(entry) = entry else { continue };
        let entry = entry.parse(gimli::EhFrame::cie_from_offset).map_err(text)?;
        let common = entry.cie();
        let (code_align, data_align) = (common.code_alignment_factor() as u8, common.data_alignment_factor() as i8);
        let rules = |mut read: gimli::CallFrameInstructionIter<'_, _>| {
            let (mut at, mut rules) = (0, Vec::new());
            while let Some(instruction) = read.next().map_err(text)? {
                match instruction {
                    Read::Nop => {}
                    Read::AdvanceLoc { delta } => at += delta * u32::from(code_align),
                    other => rules.push((at, rule(&other, data_align)?)),
                }
            }
            Ok::<_, String>(rules)
        };
        let initial: Vec<Rule> =
            rules(common.instructions(&section, &bases))?.into_iter().map(|(_, rule)| rule).collect();
        let rules = rules(entry.instructions(&section, &bases))?;
        let stack_pointer = initial.iter().find_map(|rule| match rule {
            Rule::Cfa(register, _) | Rule::CfaRegister(register) => Some(*register),
            _ => None,
        });
        let stack_pointer = stack_pointer.ok_or("its frame begins at no register")?;
        let mut rows = Rows { code_align, data_align, return_column: common.return_address_register(), initial, rules };
        rows.raise(stack_pointer);
        return Ok(rows);
    }
    Err("it has no entry".to_owned())
}

fn text(error: gimli::Error) -> String {
    error.to_string()
}

/// A rule to write, of one that was read. Others are not generated.
fn rule(read: &Read<usize>, align: i8) -> std::result::Result<Rule, String> {
    Ok(match read {
        Read::DefCfa { register, offset } => Rule::Cfa(*register, *offset as i32),
        Read::DefCfaRegister { register } => Rule::CfaRegister(*register),
        Read::DefCfaOffset { offset } => Rule::CfaOffset(*offset as i32),
        Read::Offset { register, factored_offset } => {
            Rule::Offset(*register, *factored_offset as i32 * i32::from(align))
        }
        Read::Register { dest_register, src_register } => Rule::Register(*dest_register, *src_register),
        Read::Restore { register } => Rule::Restore(*register),
        Read::SameValue { register } => Rule::SameValue(*register),
        Read::Undefined { register } => Rule::Undefined(*register),
        other => return Err(format!("{other:?}")),
    })
}

/// A table that was registered, and its entry.
#[derive(Clone, Copy)]
struct Table {
    section: &'static [u8],
    entry: usize,
}

/// The unwinders that know the tables, and the tables that there are.
struct Unwinders {
    known: BTreeSet<Takes>,
    tables: Vec<Table>,
    /// What the loader had done when they were looked for.
    loads: Option<Loads>,
}

static UNWINDERS: Mutex<Unwinders> = Mutex::new(Unwinders { known: BTreeSet::new(), tables: Vec::new(), loads: None });

impl Unwinders {
    /// Tell all of them about one more.
    fn add(&mut self, table: Table) {
        self.look();
        self.known.iter().for_each(|unwinder| unwinder.take(table));
        self.tables.push(table);
    }

    /// Tell those that were loaded since then about all tables.
    fn look(&mut self) {
        let loads = memory::loads();
        if loads.is_some() && loads == self.loads {
            return;
        }
        self.loads = loads;
        let new: Vec<Takes> = unwinders().difference(&self.known).copied().collect();
        for unwinder in new {
            self.tables.iter().for_each(|table| unwinder.take(*table));
            self.known.insert(unwinder);
        }
    }
}

impl Takes {
    fn take(self, table: Table) {
        let (Takes::Section(function) | Takes::Entry(function)) = self;
        let from = if let Takes::Section(_) = self { 0 } else { table.entry };
        let Some(from) = table.section.get(from..) else { return };
        // SAFETY: both functions have this type, and the table stays for ever.
        let register: extern "C" fn(*const u8) = unsafe { std::mem::transmute(function) };
        register(from.as_ptr());
    }
}

/// The functions by which the unwinders that are loaded take tables. One that is linked into an object and hidden there is not found.
fn unwinders() -> BTreeSet<Takes> {
    let (mut entries, mut sections) = (BTreeSet::new(), BTreeSet::new());
    for object in objects::paths() {
        let path = CString::new(object).unwrap_or_default();
        let name = if path.is_empty() { ptr::null() } else { path.as_ptr() };
        // SAFETY: nothing is loaded that is not.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: the handle is valid, and names end with 0.
        let [entry, section] = [ENTRY, SECTION].map(|name| unsafe { libc::dlsym(handle, name.as_ptr()) } as usize);
        // SAFETY: the handle is given back once.
        unsafe { libc::dlclose(handle) };
        entries.extend(Some(entry).filter(|at| *at != 0));
        sections.extend(Some(section).filter(|at| *at != 0));
    }
    let bases: BTreeSet<usize> = entries.iter().map(|at| object_of(*at)).collect();
    sections.retain(|at| !bases.contains(&object_of(*at)));
    entries.into_iter().map(Takes::Entry).chain(sections.into_iter().map(Takes::Section)).collect()
}

/// Where the object begins that has this address.
fn object_of(at: usize) -> usize {
    // SAFETY: all bytes zero is a value of this type, and the call fills it or leaves it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(at as *const libc::c_void, &raw mut info);
        info.dli_fbase as usize
    }
}
