//! Trampolines in one section: each gets its place and its names, and with them symbols, relocations and unwind table.

use std::ops::Range;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::arch::harden::TypeWord;
use crate::ask::kind::Kind;
use crate::ask::spec::{Event, Spec};
use crate::contract::pairing::Pairing;
use crate::effect::faults::{Misstated, Mistyped};
use crate::listing::code::{Fixup, Ref};
use crate::listing::{SymRef, unbound};
use crate::out::cfi::StoredReturn;
use crate::out::eh_frame::{EhFrame, Fde, Table};
use crate::out::objtool::{self, Told};
use crate::out::shape::Shape;
use crate::profile::Offer;
use crate::profile::lsda::{PERSONALITY, Tables};
use crate::profile::target::{Returns, Target};
use crate::words::error::{Error, Result};
use crate::words::reloc::{Reloc, RelocTarget};
use crate::words::step::{Local, Mark};

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
    /// Each thread has its own.
    pub tls: bool,
}

/// A field with the number of a function: its value is the number in bits 8 and above, and `low` below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberField {
    /// Offset in `.text`.
    pub at: u32,
    /// The ELF relocation type that puts a value there.
    pub r_type: u32,
    /// The bits below the number.
    pub low: i32,
}

/// Code of any number of trampolines, with all that an object file needs.
#[derive(Default, Debug)]
pub struct Assembly {
    text: Vec<u8>,
    names: String,
    /// The numbers of `globals`, by name.
    index: HashTable<u32>,
    /// Relocations of `.text`, by offset.
    pub relocs: Vec<Reloc>,
    /// Symbols with global binding, in the order of their first mention.
    pub globals: Vec<Symbol>,
    /// Labels that relocations need, and functions that only hold the type of another.
    pub locals: Vec<Symbol>,
    /// The words in `.text` that are data: for disassemblers, where the psABI has symbols that say so.
    pub data: Vec<u32>,
    /// The places of function numbers in `.text`. Objects have no relocations for them, as the numbers are known.
    pub numbers: Vec<NumberField>,
    /// The unwind table.
    pub eh_frame: EhFrame,
    /// The tables of call sites, for exceptions.
    pub tables: Tables,
    /// The function that unwinders ask about that, if they ask one.
    pub personality: Option<u32>,
    /// The words of `.export_symbol`, one every [`Assembly::EXPORT`] bytes, and the label of each entry.
    pub exports: Vec<(Symbol, Reloc)>,
    /// Annotations for objtool: contents and relocations of each of [`objtool::SECTIONS`].
    pub notes: [(Vec<u8>, Vec<Reloc>); objtool::SECTIONS.len()],
    /// A return is not paired with a call, in a trampoline that is here.
    pub unpaired: bool,
    /// What became of the return addresses on their way to memory, in the trampolines that are here.
    pub(crate) stored: StoredReturn,
    /// Bits that the note lacks, and bits that it has besides: a mutant's fault.
    pub marks: (u32, u32),
    /// The kind of the last trampoline.
    last: Option<Kind>,
    /// The places to which the listing refers: number of the symbol, and bytes behind it.
    listed: Vec<(u32, i32)>,
}

/// FNV-1a: the parts of a name have the hash of the whole.
fn hash(parts: &[&str]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    hash_on(BASIS, parts)
}

/// The hash of a name of which the first parts have this one, and these are the others.
fn hash_on(hash: u64, parts: &[&str]) -> u64 {
    const PRIME: u64 = 0x100_0000_01b3;
    let bytes =
        |hash: u64, part: &&str| part.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    parts.iter().fold(hash, bytes)
}

fn named<'n>(names: &'n str, symbol: &Symbol) -> &'n str {
    &names[symbol.name.start as usize..symbol.name.end as usize]
}

impl Assembly {
    /// Bytes of an entry of `.export_symbol` (kernel include/linux/export.h): a licence and a namespace, both empty
    /// strings, and the address at a multiple of 8.
    pub const EXPORT: usize = 16;

    /// The contents of its property note, if it has one.
    pub fn property_note(&self, target: &Target) -> Option<[u32; 8]> {
        target.property_note(Returns { paired: !self.unpaired, signed: self.stored.all_signed() })
    }

    /// The bytes of `.text`.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// A symbol's name.
    pub fn name(&self, symbol: &Symbol) -> &str {
        named(&self.names, symbol)
    }

    /// The names of all symbols, each ended by a NUL, behind an empty one: a string table as ELF has it.
    pub(crate) fn string_table(&self) -> &str {
        &self.names
    }

    /// Offset of a symbol's name in the string table.
    pub(crate) fn name_offset(&self, symbol: &Symbol) -> u32 {
        symbol.name.start
    }

    /// Append a name that comes in parts.
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

    /// The number of the symbol with this name, which comes in parts. The parts are hashed and compared, and not
    /// the name just appended: reading that back stalls.
    fn global(&mut self, parts: &[&str]) -> u32 {
        self.global_of(hash(parts), parts)
    }

    /// The same of a name with this hash.
    fn global_of(&mut self, hashed: u64, parts: &[&str]) -> u32 {
        let (names, globals) = (&self.names, &self.globals);
        let name = |i: u32| globals.get(i as usize).map_or("", |symbol| named(names, symbol));
        let same = |i: u32| parts.iter().try_fold(name(i), |rest, part| rest.strip_prefix(part)) == Some("");
        let i = self.globals.len() as u32;
        match self.index.entry(hashed, |&i| same(i), |&i| hash(&[name(i)])) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(free) => free.insert(i),
        };
        let name = self.intern(parts);
        self.globals.push(Symbol { name, offset: None, size: 0, function: false, protected: false, tls: false });
        i
    }

    /// Define a symbol, whose name comes in parts and has this hash.
    fn define(&mut self, hashed: u64, name: &[&str], offset: usize, size: usize, function: bool) -> Result<()> {
        let i = self.global_of(hashed, name) as usize;
        let symbol = &mut self.globals[i];
        if symbol.offset.is_some() {
            return Err(Error::Duplicate {
                symbol: name.concat(),
                places: "twice; give one of the trampolines another name with --name".to_owned(),
            });
        }
        (symbol.offset, symbol.size, symbol.function) = (Some(offset as u32), size as u32, function);
        Ok(())
    }

    /// Make room for `count` trampolines like the ones that are here.
    pub(crate) fn reserve(&mut self, count: usize, target: &Target) {
        fn grow<T>(vec: &mut Vec<T>, count: usize) {
            vec.reserve(vec.len() * count);
        }
        self.text.reserve(self.text.len().next_multiple_of(target.facts.align as usize) * count);
        grow(&mut self.relocs, count);
        grow(&mut self.globals, count);
        grow(&mut self.locals, count);
        self.eh_frame.reserve(count);
        self.names.reserve(self.names.len() * count);
        let (names, globals) = (&self.names, &self.globals);
        let name = |i: u32| globals.get(i as usize).map_or("", |symbol| named(names, symbol));
        let own = globals.iter().filter(|s| s.offset.is_some()).count();
        self.index.reserve(own * count, |&i| hash(&[name(i)]));
    }

    /// Append one trampoline: code of its listing, which refers to these symbols.
    pub(crate) fn add(&mut self, spec: &Spec, target: &Target, symbols: &[SymRef], shape: &Shape) -> Result<()> {
        if self.last != Some(spec.kind) {
            self.last = Some(spec.kind);
            self.unpaired |= !Pairing::of(spec.kind, &*target.frame(spec.kind)?, target).is_paired();
        }
        self.stored = self.stored.and(shape.stored);
        self.align(target);
        self.text.extend(target.harden.padding);
        let wrong = shape.misstated;
        match wrong {
            Some(Misstated::Unmarked(bits)) => self.marks.0 |= bits,
            Some(Misstated::Marked(bits)) => self.marks.1 |= bits,
            _ => {}
        }
        if let Some(word) = target.typed(spec.kind) {
            let wrong = if let Some(Misstated::Type(wrong)) = wrong { Some(wrong) } else { None };
            self.type_word(word, spec.name, target, wrong);
        }
        let base = self.text.len();
        self.text.extend(shape.code());
        let (start, end) = (base + shape.start, self.text.len());
        shape.notes.iter().for_each(|&(at, note)| self.note(base + at, note, target));
        let offer = target.convention.offer(spec.name, spec.kind);
        let own = hash(&[spec.name]);
        for &(at, label) in &shape.kernel_labels {
            let name @ [first, rest @ ..] = Offer::label(offer, label, spec.name);
            let hashed = if std::ptr::eq(first, spec.name) { hash_on(own, &rest) } else { hash(&name) };
            self.define(hashed, &name, base + at, 0, false)?;
        }
        shape.numbers.iter().for_each(|&(at, event)| self.number(base + at, event, spec, target));
        self.define(own, &[spec.name], start, end - start, true)?;
        if !spec.export.is_empty() {
            self.define(hash(&[spec.export]), &[spec.export], start, end - start, true)?;
            self.export(spec.export, target.facts.dynamic[0]);
        }
        let described = (base + shape.described()) as u32;
        let table = self.table(spec);
        let fde =
            Fde { start: described, end: end as u32, base: base as u32, entry: &shape.entry, rules: &shape.rules };
        self.eh_frame.add(&fde, (table, wrong), target);
        let locals = self.resolve(spec, symbols, shape, base)?;
        self.exceptions(spec, (&shape.labels, base, locals), wrong, target)?;
        if !spec.tls.is_empty() {
            let i = self.global(&[spec.tls]) as usize;
            self.globals[i].tls = true;
        }
        for name in spec.own_symbols() {
            let i = self.global(&[name]) as usize;
            self.globals[i].protected = true;
        }
        Ok(())
    }

    /// The instructions from here on have the number of a function.
    fn number(&mut self, start: usize, event: Event, spec: &Spec, target: &Target) {
        let Some(recorder) = spec.kind.recorder() else { return };
        let low = recorder.what(event) & 0xff;
        let field = |&(at, r_type): &(u32, u32)| NumberField { at: start as u32 + at, r_type, low };
        self.numbers.extend(target.facts.number.iter().map(field));
    }

    /// Append the type of the function that follows; for a mutant, a wrong one.
    fn type_word(&mut self, word: TypeWord, function: &str, target: &Target, wrong: Option<Mistyped>) {
        if wrong == Some(Mistyped::Missing) {
            return;
        }
        let start = self.text.len();
        self.text.extend(word.before);
        let at = self.text.len() as u32;
        let to = self.global(&[TypeWord::SYMBOL, function]);
        let addend = i64::from(wrong == Some(Mistyped::Other));
        self.relocs.push(Reloc { at, r_type: word.r_type, to: RelocTarget::Global(to), addend });
        self.data.push(at);
        self.text.extend(&[0; TypeWord::BYTES]);
        self.text.extend(word.after);
        if wrong == Some(Mistyped::Place) {
            self.text.extend(&target.facts.fill.0.repeat(TypeWord::BYTES));
        }
        if word.labelled {
            let name = self.intern(&[TypeWord::LABEL, function]);
            let size = (self.text.len() - start) as u32;
            self.locals.push(Symbol {
                name,
                offset: Some(start as u32),
                size,
                function: true,
                protected: false,
                tls: false,
            });
        }
    }

    /// Append an entry of `.export_symbol`, whose address has a relocation of this type.
    fn export(&mut self, symbol: &str, r_type: u32) {
        let (at, to) = (self.exports.len() * Self::EXPORT, RelocTarget::Global(self.global(&[symbol])));
        let name = self.intern(&["__export_symbol_", symbol]);
        let label = Symbol { name, offset: Some(at as u32), size: 0, function: false, protected: false, tls: false };
        self.exports.push((label, Reloc { at: at as u32 + 8, r_type, to, addend: 0 }));
    }

    /// Tell objtool something about this place.
    fn note(&mut self, place: usize, (note, form): Told, target: &Target) {
        let (Some((address, distance)), Some((bytes, relocs))) =
            (target.facts.objtool, self.notes.get_mut(note.section(form)))
        else {
            return;
        };
        let r_type = if note.is_distance(form) { distance } else { address };
        let (at, addend) = (bytes.len() as u32, place as i64);
        relocs.push(Reloc { at, r_type, to: RelocTarget::Text, addend });
        bytes.extend(note.bytes(form));
    }

    /// Relocations for what the code refers to. Returns the symbols of labels, where they have one.
    fn resolve(&mut self, spec: &Spec, symbols: &[SymRef], shape: &Shape, base: usize) -> Result<[u32; Local::COUNT]> {
        self.listed.truncate(symbols.len());
        for (n, referred) in symbols.iter().enumerate() {
            // Mostly what the last trampoline refers to.
            let is = |i: u32| self.globals.get(i as usize).is_some_and(|symbol| self.name(symbol) == referred.name);
            let known = self.listed.get(n).map(|(i, _)| *i).filter(|i| is(*i));
            let i = known.unwrap_or_else(|| self.global(&[referred.name]));
            match self.listed.get_mut(n) {
                Some(listed) => *listed = (i, referred.add),
                None => self.listed.push((i, referred.add)),
            }
        }
        let mut local_symbols = [u32::MAX; Local::COUNT];
        for &Fixup { at, r_type, to, mut addend } in shape.fixups() {
            let to = match to {
                Ref::Symbol(sym) => {
                    let (symbol, add) = *self.listed.get(sym.0 as usize).ok_or_else(|| {
                        Error::unencodable(format_args!("symbol {} of a listing with {}", sym.0, self.listed.len()))
                    })?;
                    addend += i64::from(add);
                    RelocTarget::Global(symbol)
                }
                Ref::Local(local) => {
                    let label = shape.labels[local.index()].ok_or_else(|| unbound(local, spec))?;
                    let known = local_symbols[local.index()];
                    if known == u32::MAX {
                        local_symbols[local.index()] = self.local(spec, local, (base + label) as u32);
                    }
                    RelocTarget::Local(local_symbols[local.index()])
                }
            };
            self.relocs.push(Reloc { at: (base + at) as u32, r_type, to, addend });
        }
        Ok(local_symbols)
    }

    /// A symbol for a label. Its number.
    fn local(&mut self, spec: &Spec, local: Local, offset: u32) -> u32 {
        let name = self.intern(&[".L", spec.name, "_", local.suffix(), local.number()]);
        self.locals.push(Symbol { name, offset: Some(offset), size: 0, function: false, protected: false, tls: false });
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
        (labels, base, mut symbols): (&[Option<usize>], usize, [u32; Local::COUNT]),
        misstated: Option<Misstated>,
        target: &Target,
    ) -> Result<()> {
        if spec.kind.recorder().is_none_or(|recorder| !recorder.unwind) {
            return Ok(());
        }
        let mut places = [None; Mark::ALL.len()];
        for (mark, place) in Mark::ALL.into_iter().zip(&mut places) {
            let local = Local::Mark(mark);
            let Some(label) = labels.get(local.index()).copied().flatten() else { return Err(unbound(local, spec)) };
            let offset = base + label;
            let symbol = &mut symbols[local.index()];
            // Where no linker moves them, distances are known.
            if target.facts.lengths.is_some() && *symbol == u32::MAX {
                *symbol = self.local(spec, local, offset as u32);
            }
            *place = Some((offset as u32, RelocTarget::Local(*symbol)));
        }
        self.personality = Some(self.global(&[PERSONALITY]));
        self.tables.write(|mark| places[mark as usize], misstated, target)
    }

    fn align(&mut self, target: &Target) {
        let missing = self.text.len().next_multiple_of(target.facts.align as usize) - self.text.len();
        self.text.extend(target.facts.fill.0.iter().cycle().take(missing));
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
