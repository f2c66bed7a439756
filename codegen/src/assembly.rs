//! Listing to code: bytes, fixups, symbols, relocations and unwind tables, in one pass.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::cfi::Tracker;
use crate::code::{CodeBuf, Fixup, Ref};
use crate::effects::CfiEntry;
use crate::eh_frame::{EhFrame, Table};
use crate::error::{Error, Result};
use crate::faults::{Misstated, Mistyped};
use crate::harden::TypeWord;
use crate::isa::{Architecture, Instruction, Labels};
use crate::listing::{Line, Listing, unbound};
use crate::lsda::{PERSONALITY, Tables};
use crate::objtool::{self, Notes, Told};
use crate::reloc::{Reloc, RelocTarget};
use crate::spec::{Kind, Spec};
use crate::step::{Local, Mark};
use crate::target::Target;

/// A symbol that is defined here, or only referred to.
#[derive(Clone, Debug)]
pub struct Symbol {
    name: Range<u32>,
    /// Offset in `.text`; `None` if it is not defined here.
    pub offset: Option<u32>,
    /// Bytes, for functions.
    pub size: u32,
    /// A function, as opposed to a label.
    pub function: bool,
    /// No other program or shared object may define it.
    pub protected: bool,
}

/// Code of any number of trampolines, with all that an object file needs.
#[derive(Default, Debug)]
pub struct Assembly {
    code: CodeBuf,
    names: String,
    /// (hash of the name, number) of each of `globals`.
    index: HashTable<(u64, u32)>,
    /// Relocations of `.text`, by offset.
    pub relocs: Vec<Reloc>,
    /// Symbols with global binding, in the order of their first mention.
    pub globals: Vec<Symbol>,
    /// Labels that relocations need, and functions that only hold the type of another.
    pub locals: Vec<Symbol>,
    /// The words in `.text` that are data: for disassemblers, where the psABI has symbols that say so.
    pub data: Vec<u32>,
    /// The unwind table.
    pub eh_frame: EhFrame,
    /// Where exceptions go.
    pub tables: Tables,
    /// The function that unwinders ask about that, if they ask one.
    pub personality: Option<u32>,
    /// The words of `.export_symbol`, one every [`Assembly::EXPORT`] bytes, and the label of each entry.
    pub exports: Vec<(Symbol, Reloc)>,
    /// What objtool is told: contents and relocations of each of [`objtool::SECTIONS`].
    pub notes: [(Vec<u8>, Vec<Reloc>); objtool::SECTIONS.len()],
    /// What the listing refers to: number of the symbol, and bytes behind it.
    listed: Vec<(u32, i32)>,
    label: String,
    /// The follower of the last trampoline: the next is mostly of the same kind.
    tracker: Option<(Kind, Box<Tracker>)>,
}

impl Assembly {
    /// Bytes of an entry of `.export_symbol` (kernel include/linux/export.h): a licence and a namespace, both empty
    /// strings, and the address at a multiple of 8.
    pub const EXPORT: usize = 16;

    /// The bytes of `.text`.
    pub fn text(&self) -> &[u8] {
        &self.code.bytes
    }

    /// A symbol's name.
    pub fn name(&self, symbol: &Symbol) -> &str {
        &self.names[symbol.name.start as usize..symbol.name.end as usize]
    }

    /// The names of all symbols, each ended by a NUL, behind an empty one: a string table as ELF has it.
    pub(crate) fn string_table(&self) -> &str {
        &self.names
    }

    /// Offset of a symbol's name in the string table.
    pub(crate) fn name_offset(&self, symbol: &Symbol) -> u32 {
        symbol.name.start
    }

    fn intern(&mut self, parts: &[&str]) -> Range<u32> {
        if self.names.is_empty() {
            self.names.push('\0');
        }
        let start = self.names.len() as u32;
        parts.iter().for_each(|p| self.names.push_str(p));
        let end = self.names.len() as u32;
        self.names.push('\0');
        start..end
    }

    fn global(&mut self, name: &str) -> u32 {
        let hash = FxBuildHasher.hash_one(name);
        let same = |&(h, i): &(u64, u32)| h == hash && self.name(&self.globals[i as usize]) == name;
        if let Some(&(_, i)) = self.index.find(hash, same) {
            return i;
        }
        let i = self.globals.len() as u32;
        self.index.insert_unique(hash, (hash, i), |&(hash, _)| hash);
        let range = self.intern(&[name]);
        self.globals.push(Symbol { name: range, offset: None, size: 0, function: false, protected: false });
        i
    }

    fn define(&mut self, name: &str, offset: usize, size: usize, function: bool) -> Result<()> {
        let i = self.global(name) as usize;
        let symbol = &mut self.globals[i];
        if symbol.offset.is_some() {
            return Err(Error::Duplicate {
                symbol: name.to_owned(),
                places: "twice; give one of the trampolines another name with --name".to_owned(),
            });
        }
        (symbol.offset, symbol.size, symbol.function) = (Some(offset as u32), size as u32, function);
        Ok(())
    }

    /// Make room for `count` trampolines like the ones that are here.
    pub(crate) fn reserve(&mut self, count: usize) {
        fn grow<T>(vec: &mut Vec<T>, count: usize) {
            vec.reserve(vec.len() * count);
        }
        grow(&mut self.code.bytes, count);
        grow(&mut self.relocs, count);
        grow(&mut self.globals, count);
        grow(&mut self.locals, count);
        grow(&mut self.eh_frame.bytes, count);
        grow(&mut self.eh_frame.relocs, count);
        grow(&mut self.eh_frame.labels, count);
        self.names.reserve(self.names.len() * count);
        self.index.reserve(self.index.len() * count, |&(hash, _)| hash);
    }

    /// Append one trampoline.
    pub(crate) fn add<I: Architecture + Labels>(
        &mut self,
        spec: &Spec,
        target: &Target,
        listing: &Listing<impl Instruction>,
    ) -> Result<()> {
        self.add_misstated::<I>(spec, target, listing, None)
    }

    /// The same, of a mutant: before this line, the unwind table goes wrong.
    pub(crate) fn add_misstated<I: Architecture + Labels>(
        &mut self,
        spec: &Spec,
        target: &Target,
        listing: &Listing<impl Instruction>,
        misstated: Option<(usize, Misstated)>,
    ) -> Result<()> {
        self.align(target);
        self.code.bytes.extend_from_slice(target.harden.padding);
        let whole = misstated.filter(|(before, _)| *before == 0).map(|(_, wrong)| wrong);
        if let Some(word) = target.typed(spec.kind) {
            let wrong = if let Some(Misstated::Type(wrong)) = whole { Some(wrong) } else { None };
            self.type_word(word, spec.name, target, wrong);
        }
        let described = self.code.bytes.len();
        self.code.bytes.extend_from_slice(target.lead(spec.kind).0);
        let (start, mut labels) = (self.code.bytes.len(), [None; Local::COUNT]);
        let mut entry = I::cfi_entry(spec.kind);
        let mut tracker = self.tracker(spec.kind, &entry, target)?;
        self.code.fixups.clear();
        entry.signal &= whole != Some(Misstated::Called);
        let described = if whole == Some(Misstated::Late) { start } else { described };
        let table = self.table(spec);
        self.eh_frame.open(described as u32, &entry, (table, whole), target);
        let mut opaque_from = 0;
        let (mut notes, at_start) = Notes::new(spec.kind, target, &entry);
        at_start.into_iter().for_each(|note| self.note(note, target));
        for (at, line) in listing.lines.iter().enumerate() {
            if let Some((_, wrong)) = misstated.filter(|(before, _)| *before == at) {
                tracker.misstate(wrong);
                self.eh_frame.rules(self.code.bytes.len() as u32, &mut tracker.ops, target);
            }
            match *line {
                Line::Insn(insn, _) => {
                    let effects = insn.effects();
                    notes.before(&effects).into_iter().for_each(|note| self.note(note, target));
                    insn.encode(target, &mut self.code)?;
                    if self.code.fixups.len() > opaque_from {
                        opaque_from = self.code.fixups.len();
                        if self.code.fixups.last().is_some_and(|f| I::opaque_after(f.r_type)) {
                            self.eh_frame.opaque();
                        }
                    }
                    tracker.after(&effects);
                }
                Line::Local(local) => {
                    labels[local.index()] = Some(self.code.bytes.len());
                    tracker.at_label(local);
                }
                Line::KernelLabel(label) => {
                    notes.at_label().into_iter().for_each(|note| self.note(note, target));
                    self.kernel_label(target.convention.label(label, spec.name, spec.kind))?;
                }
                Line::Block(..) => {}
                Line::ReturnLost => tracker.lose_return(),
            }
            if !tracker.ops.is_empty() {
                self.eh_frame.rules(self.code.bytes.len() as u32, &mut tracker.ops, target);
            }
        }
        self.tracker = Some((spec.kind, tracker));
        let end = self.code.bytes.len();
        self.eh_frame.close(end as u32, target);
        self.define(spec.name, start, end - start, true)?;
        if !spec.export.is_empty() {
            self.define(spec.export, start, end - start, true)?;
            self.export(spec.export, I::FACTS.dynamic[0]);
        }
        let locals = self.resolve::<I>(spec, listing, &labels)?;
        self.exceptions(spec, (&labels, locals), whole, target)?;
        for name in spec.own_symbols() {
            let i = self.global(name) as usize;
            self.globals[i].protected = true;
        }
        Ok(())
    }

    /// What follows a trampoline of this kind: that of the last, if it was of the same.
    fn tracker(&mut self, kind: Kind, entry: &CfiEntry, target: &Target) -> Result<Box<Tracker>> {
        match self.tracker.take() {
            Some((of, mut tracker)) if of == kind => {
                tracker.restart();
                Ok(tracker)
            }
            _ => Ok(Box::new(Tracker::new(entry, target)?)),
        }
    }

    /// Append the type of the function that follows; for a mutant, a wrong one.
    fn type_word(&mut self, word: TypeWord, function: &str, target: &Target, wrong: Option<Mistyped>) {
        if wrong == Some(Mistyped::Missing) {
            return;
        }
        let start = self.code.bytes.len();
        self.code.bytes.extend_from_slice(word.before);
        let at = self.code.bytes.len() as u32;
        let to = self.global(&[TypeWord::SYMBOL, function].concat());
        let addend = i64::from(wrong == Some(Mistyped::Other));
        self.relocs.push(Reloc { at, r_type: word.r_type, to: RelocTarget::Global(to), addend });
        self.data.push(at);
        self.code.bytes.extend_from_slice(&[0; TypeWord::BYTES]);
        self.code.bytes.extend_from_slice(word.after);
        if wrong == Some(Mistyped::Place) {
            self.code.bytes.extend_from_slice(&target.facts.fill.0.repeat(TypeWord::BYTES));
        }
        if word.labelled {
            let name = self.intern(&[TypeWord::LABEL, function]);
            let size = (self.code.bytes.len() - start) as u32;
            self.locals.push(Symbol { name, offset: Some(start as u32), size, function: true, protected: false });
        }
    }

    /// Define a label at the end of the code so far, whose name comes in two parts.
    fn kernel_label(&mut self, [name, suffix, number]: [&str; 3]) -> Result<()> {
        let at = self.code.bytes.len();
        if suffix.is_empty() {
            return self.define(name, at, 0, false);
        }
        let mut label = std::mem::take(&mut self.label);
        label.clear();
        label.push_str(name);
        label.push_str(suffix);
        label.push_str(number);
        self.define(&label, at, 0, false)?;
        self.label = label;
        Ok(())
    }

    /// Append an entry of `.export_symbol`, whose address has a relocation of this type.
    fn export(&mut self, symbol: &str, r_type: u32) {
        let (at, to) = (self.exports.len() * Self::EXPORT, RelocTarget::Global(self.global(symbol)));
        let name = self.intern(&["__export_symbol_", symbol]);
        let label = Symbol { name, offset: Some(at as u32), size: 0, function: false, protected: false };
        self.exports.push((label, Reloc { at: at as u32 + 8, r_type, to, addend: 0 }));
    }

    /// Tell objtool something about the end of the code so far.
    fn note(&mut self, (note, form): Told, target: &Target) {
        let (Some((address, distance)), Some((bytes, relocs))) =
            (target.facts.objtool, self.notes.get_mut(note.section(form)))
        else {
            return;
        };
        let r_type = if note.is_distance(form) { distance } else { address };
        let (at, addend) = (bytes.len() as u32, self.code.bytes.len() as i64);
        relocs.push(Reloc { at, r_type, to: RelocTarget::Text, addend });
        bytes.extend(note.bytes(form));
    }

    fn resolve<I: Labels>(
        &mut self,
        spec: &Spec,
        listing: &Listing<impl Instruction>,
        labels: &[Option<usize>],
    ) -> Result<[u32; Local::COUNT]> {
        self.listed.clear();
        for referred in &listing.symbols {
            let i = self.global(referred.name);
            self.listed.push((i, referred.add));
        }
        let mut local_symbols = [u32::MAX; Local::COUNT];
        for i in 0..self.code.fixups.len() {
            let Fixup { at, r_type, to, mut addend } = self.code.fixups[i];
            let to = match to {
                Ref::Symbol(sym) => {
                    let (symbol, add) = *self.listed.get(sym.0 as usize).ok_or_else(|| {
                        Error::unencodable(format_args!("symbol {} of a listing with {}", sym.0, self.listed.len()))
                    })?;
                    addend += i64::from(add);
                    RelocTarget::Global(symbol)
                }
                Ref::Local(local) => {
                    let label = labels[local.index()].ok_or_else(|| unbound(local, spec))?;
                    if !I::patch_local(r_type, &mut self.code.bytes, at, label)? {
                        continue;
                    }
                    let known = local_symbols[local.index()];
                    if known == u32::MAX {
                        local_symbols[local.index()] = self.local(spec, local, label as u32);
                    }
                    RelocTarget::Local(local_symbols[local.index()])
                }
            };
            self.relocs.push(Reloc { at: at as u32, r_type, to, addend });
        }
        Ok(local_symbols)
    }

    /// A symbol for a label. Its number.
    fn local(&mut self, spec: &Spec, local: Local, offset: u32) -> u32 {
        let name = self.intern(&[".L", spec.name, "_", local.suffix()]);
        self.locals.push(Symbol { name, offset: Some(offset), size: 0, function: false, protected: false });
        self.locals.len() as u32 - 1
    }

    /// Begin the table of call sites of a trampoline with a landing pad for exceptions.
    fn table(&mut self, spec: &Spec) -> Option<Table> {
        let wanted = spec.kind.recorder().is_some_and(|recorder| recorder.unwind);
        wanted.then(|| Table { number: self.tables.open(), start: self.tables.bytes.len() as u32 })
    }

    /// The table of call sites, and whom unwinders ask.
    fn exceptions(
        &mut self,
        spec: &Spec,
        (labels, mut symbols): (&[Option<usize>], [u32; Local::COUNT]),
        misstated: Option<Misstated>,
        target: &Target,
    ) -> Result<()> {
        if spec.kind.recorder().is_none_or(|recorder| !recorder.unwind) {
            return Ok(());
        }
        let mut places = [None; Mark::ALL.len()];
        for (mark, place) in Mark::ALL.into_iter().zip(&mut places) {
            let local = Local::Mark(mark);
            let Some(offset) = labels.get(local.index()).copied().flatten() else { return Err(unbound(local, spec)) };
            let symbol = &mut symbols[local.index()];
            // Where no linker moves them, distances are known.
            if target.facts.lengths.is_some() && *symbol == u32::MAX {
                *symbol = self.local(spec, local, offset as u32);
            }
            *place = Some((offset as u32, RelocTarget::Local(*symbol)));
        }
        self.personality = Some(self.global(PERSONALITY));
        self.tables.write(|mark| places[mark as usize], misstated, target)
    }

    fn align(&mut self, target: &Target) {
        while !self.code.bytes.len().is_multiple_of(target.facts.align as usize) {
            self.code.bytes.extend_from_slice(target.facts.fill.0);
        }
    }

    pub(crate) fn finish(&mut self, target: &Target) {
        if target.facts.fill_end {
            self.align(target);
        }
        if target.unwind_tables {
            self.eh_frame.finish();
        } else {
            self.eh_frame = EhFrame::default();
        }
    }
}
