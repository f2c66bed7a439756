//! The functions of a file's symbol tables: those that call a profiler first, and those for which no compiler has left room.

use std::collections::{BTreeMap, BTreeSet};

use codegen::arch::entry::{Class, Code, Entry, Lead, To};
use codegen::arch::facts::Promise;
use codegen::arch::patch::Patch;
use object::read::elf::{Rela as _, SectionHeader as _, SectionTable, Sym as _};
use object::{Endianness, elf};

use crate::function::{Function, Refused};

type Header = elf::FileHeader64<Endianness>;

/// Farther behind a function's beginning, a branch into it is in nobody's way.
const LONGEST: u64 = 32;

/// What stands between the name of a function and the number of one of its parts that is no function.
const COLD: &str = ".cold";

/// What functions call first that gcc and clang have compiled with `-pg -mfentry`. Where nobody profiles, it returns at once.
pub const PROFILER: [&[u8]; 1] = [b"__fentry__"];

/// The function that functions with `-pg` alone call soon.
pub const LATER: [&[u8]; 2] = [b"mcount", b"_mcount"];

/// The greatest offset of that call, in bytes.
const SOON: usize = 64;

/// Before the stubs of arm64 and riscv64 comes one for the loader, of so many bytes.
const STUB: usize = 32;

/// They return twice, or on another stack than they were called on.
const TWICE: [&str; 10] = [
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "vfork",
    "__vfork",
    "getcontext",
    "setcontext",
    "swapcontext",
];

/// What `session/preload/preload.c` calls while there is no room for a record.
const OURS: [&str; 6] = ["memset", "memcpy", "memcmp", "clock_gettime", "__clock_gettime", "pthread_setspecific"];

/// What V8 compiles for JavaScript, and embeds as functions. They take their callers' arguments off the stack, so that a trampoline does
/// not find the stack pointer of the call when one returns.
const BUILTINS: &str = "Builtins_";

/// A file, as far as it is needed here.
pub struct File<'a> {
    /// Its header.
    pub header: &'a Header,
    /// Its sections.
    pub sections: &'a SectionTable<'a, Header>,
    /// All of it.
    pub bytes: &'a [u8],
    /// The order of its bytes.
    pub endian: Endianness,
}

/// A section with code.
struct Section<'a> {
    at: u64,
    code: &'a [u8],
    /// It has the linker's stubs for calls of other objects: these are the words that the loader gives their addresses.
    stubs: Vec<u64>,
}

/// The content of the symbol tables.
#[derive(Default)]
struct Symbols<'a> {
    /// Functions, by their address: name and size.
    functions: BTreeMap<u64, (&'a str, u64)>,
    /// Whatever begins somewhere in code.
    marks: BTreeSet<u64>,
    /// Of these, what chooses a function while the loader works.
    choosers: BTreeSet<u64>,
}

impl<'a> File<'a> {
    /// Functions that can be patched at their entries, and those that cannot: `wanted` ones, by their addresses. Those of a `guarded`
    /// file keep their landing pads.
    pub fn functions(
        &self,
        wanted: &dyn Fn(u64) -> bool,
        guarded: bool,
        backend: &dyn Patch,
    ) -> (Vec<Function>, Vec<Refused>) {
        let sections = self.code();
        let symbols = self.symbols();
        let leads = symbols.leads(&sections, backend);
        let begins = self.header.e_entry.get(self.endian);
        let (mut functions, mut refused) = (Vec::new(), Vec::new());
        let mut covered = 0;
        for (&address, &(name, size)) in &symbols.functions {
            let inside = address < covered;
            covered = covered.max(address.saturating_add(size));
            let Some(bytes) = symbols.bytes(address, size, &sections).filter(|_| wanted(address)) else {
                continue;
            };
            let size = (size as usize).min(bytes.len());
            let code = Code { name, address, bytes, size, leads: &leads, guarded };
            let unfit = unfit(name, address == begins, inside || symbols.choosers.contains(&address));
            let found = unfit.map_or_else(|| patched(&code, backend), |why| Err((Class::Refused, why)));
            match found {
                Ok(function) => functions.push(function),
                Err((class, why)) => {
                    let (name, code) = (name.to_owned(), Some((address, size as u64)));
                    refused.push(Refused { name, code, class: Some(class), why });
                }
            }
        }
        (functions, refused)
    }

    /// Functions whose call of a profiler at their entry can be overwritten: a compiler has left it there for whoever traces.
    pub fn profiled(&self, backend: &dyn Patch) -> Vec<Function> {
        let profiler = self.profiler(&PROFILER);
        if profiler.is_empty() {
            return Vec::new();
        }
        let (sections, symbols) = (self.code(), self.symbols());
        let profiles = |to: To| self.leads_to(to, &profiler, &sections, backend);
        let function = |(&address, &(name, size)): (&u64, &(&str, u64))| {
            let bytes = symbols.bytes(address, size, &sections)?;
            let first = backend.first(bytes, address).filter(|first| profiles(first.to))?;
            Some(Function {
                name: name.to_owned(),
                address,
                size,
                site: address.wrapping_add(first.at as u64),
                bytes: bytes.get(first.at..first.at + first.len)?.to_vec(),
                entries: Vec::new(),
                signature: None,
            })
        };
        symbols.functions.iter().filter_map(function).collect()
    }

    /// Functions that call a profiler behind their first instructions, by their addresses.
    pub fn profiled_later(&self, backend: &dyn Patch) -> BTreeSet<u64> {
        let profiler = self.profiler(&LATER);
        if profiler.is_empty() {
            return BTreeSet::new();
        }
        let (sections, symbols) = (self.code(), self.symbols());
        let profiles = |to: To| self.leads_to(to, &profiler, &sections, backend);
        let calls = |(&address, &(_, size)): (&u64, &(&str, u64))| {
            let code = symbols.bytes(address, size.min(SOON as u64), &sections)?;
            let direct = backend.leads(code, address).into_iter().find(|lead| lead.call);
            let first = |at: usize| backend.first(code.get(at..)?, address.wrapping_add(at as u64));
            let found = direct.is_some_and(|lead| profiles(To::Address(lead.to)))
                || (0..code.len()).filter_map(first).any(|first| matches!(first.to, To::Word(_)) && profiles(first.to));
            found.then_some(address)
        };
        symbols.functions.iter().filter_map(calls).collect()
    }

    /// Does a branch to there lead to one of these, by a stub of the linker if need be? Of architectures that say nothing of their stubs,
    /// they are as long as each other, and come in the order of their words.
    fn leads_to(&self, to: To, profiler: &BTreeSet<To>, sections: &[Section], backend: &dyn Patch) -> bool {
        let To::Address(at) = to else { return profiler.contains(&to) };
        let holds = |s: &&Section| (s.at..s.at.saturating_add(s.code.len() as u64)).contains(&at);
        let stub = || {
            let section = sections.iter().find(holds)?;
            let offset = (at - section.at) as usize;
            if let Some(first) = backend.first(section.code.get(offset..)?, at) {
                return Some(first.to);
            }
            let each = section.code.len().checked_sub(STUB)?.checked_div(section.stubs.len())?;
            section.stubs.get(offset.checked_sub(STUB)?.checked_div(each)?).map(|word| To::Word(*word))
        };
        profiler.contains(&to) || stub().is_some_and(|to| profiler.contains(&to))
    }

    /// Where a profiler of these names is, and the words that the loader gives its address.
    fn profiler(&self, names: &[&[u8]]) -> BTreeSet<To> {
        let mut all = BTreeSet::new();
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(table) = self.sections.symbols(self.endian, self.bytes, kind) else { continue };
            let named =
                |s: &elf::Sym64<Endianness>| table.symbol_name(self.endian, s).is_ok_and(|name| names.contains(&name));
            let defined = table.iter().filter(|s| !s.is_undefined(self.endian) && named(s));
            all.extend(defined.map(|s| To::Address(s.st_value(self.endian))));
            for section in self.sections.iter() {
                let Ok(Some((relocations, of))) = section.rela(self.endian, self.bytes) else { continue };
                if of != table.section() {
                    continue;
                }
                let symbol = |r: &elf::Rela64<Endianness>| table.symbol(r.symbol(self.endian, false)?).ok();
                let words = relocations.iter().filter(|r| symbol(r).is_some_and(named));
                all.extend(words.map(|r| To::Word(r.r_offset(self.endian))));
            }
        }
        all
    }

    fn code(&self) -> Vec<Section<'a>> {
        let code = self.sections.iter().filter(|s| s.sh_flags.get(self.endian).contains(elf::SHF_EXECINSTR));
        let section = |s: &elf::SectionHeader64<Endianness>| {
            let stubs = self.sections.section_name(self.endian, s).is_ok_and(|name| name == b".plt");
            let stubs = if stubs { self.stubs() } else { Vec::new() };
            Some(Section { at: s.sh_addr(self.endian), code: s.data(self.endian, self.bytes).ok()?, stubs })
        };
        code.filter_map(section).collect()
    }

    fn stubs(&self) -> Vec<u64> {
        let found = self.sections.section_by_name(self.endian, b".rela.plt");
        let relocations = found.and_then(|(_, s)| s.rela(self.endian, self.bytes).ok()?).map(|(all, _)| all);
        relocations.unwrap_or_default().iter().map(|r| r.r_offset(self.endian)).collect()
    }

    fn symbols(&self) -> Symbols<'a> {
        let mut all = Symbols::default();
        for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(table) = self.sections.symbols(self.endian, self.bytes, table) else { continue };
            for symbol in table.iter().filter(|s| !s.is_undefined(self.endian)) {
                let name = table.symbol_name(self.endian, symbol).map(std::str::from_utf8);
                let Ok(Ok(name)) = name else { continue };
                // Marks of an assembler, which say what is code.
                if !name.starts_with('$') {
                    all.add(name, symbol.st_type(), symbol.st_value(self.endian), symbol.st_size(self.endian));
                }
            }
        }
        all
    }

    /// Does the file say that what is branched to has a landing pad?
    pub fn guarded(&self, backend: &dyn Patch) -> bool {
        let Some(marks) = &backend.facts().marks else { return false };
        let notes = self.sections.iter().filter_map(|s| s.notes(self.endian, self.bytes).ok()?);
        let says = |note: &object::read::elf::Note<Header>| {
            let mut properties = note.gnu_properties(self.endian)?;
            while let Ok(Some(property)) = properties.next() {
                if property.pr_type().0 == marks.property {
                    return Some(property.data_u32(self.endian).ok()? & marks.bits(Promise::Pads) != 0);
                }
            }
            None
        };
        notes
            .into_iter()
            .any(|mut notes| std::iter::from_fn(|| notes.next().ok().flatten()).any(|note| says(&note) == Some(true)))
    }
}

impl<'a> Symbols<'a> {
    fn add(&mut self, name: &'a str, kind: elf::SymbolType, address: u64, size: u64) {
        match kind {
            elf::STT_FUNC if size > 0 && !name.contains(COLD) => {
                let entry = self.functions.entry(address).or_insert((name, size));
                entry.1 = entry.1.max(size);
            }
            elf::STT_GNU_IFUNC => drop(self.choosers.insert(address)),
            elf::STT_FUNC | elf::STT_NOTYPE => {}
            _ => return,
        }
        self.marks.insert(address);
    }

    /// The bytes from a function's beginning to whatever begins next.
    fn bytes(&self, address: u64, size: u64, sections: &[Section<'a>]) -> Option<&'a [u8]> {
        let section = sections.iter().find(|s| address.checked_sub(s.at).is_some_and(|n| n < s.code.len() as u64))?;
        let code = section.code.get((address - section.at) as usize..)?;
        let next = self.marks.range(address.checked_add(1)?..).next();
        // All of the section is too much: what is behind a function is of interest as far as a branch reaches.
        let end = next.map_or(u64::MAX, |next| next - address).min(size.saturating_add(LONGEST));
        code.get(..usize::try_from(end).ok()?.min(code.len()))
    }

    /// Branches to where functions begin.
    fn leads(&self, sections: &[Section], backend: &dyn Patch) -> Vec<Lead> {
        let near = |lead: &Lead| {
            let begins = self.functions.range(..=lead.to).next_back().map(|(begins, _)| lead.to - begins);
            begins.is_some_and(|n| n < LONGEST && !(n == 0 && lead.call))
        };
        let mut all = Vec::new();
        for Section { at, code, .. } in sections {
            // What an instruction is, is sure at the beginning of a function alone.
            let end = at.saturating_add(code.len() as u64);
            let begins = || self.functions.range(*at..end).map(|(begins, _)| *begins);
            for (from, to) in [*at].into_iter().chain(begins()).zip(begins().chain([end])) {
                let part = code.get((from - at) as usize..(to - at) as usize).unwrap_or_default();
                all.extend(backend.leads(part, from).into_iter().filter(near));
            }
        }
        all.sort_unstable();
        all
    }
}

/// Why a function is not patched, whatever its code is.
fn unfit(name: &str, begins: bool, other: bool) -> Option<&'static str> {
    match name {
        _ if begins => Some("nobody calls it: the program begins there"),
        _ if other => Some("a part of another function, or run by the loader"),
        _ if TWICE.contains(&name) => Some("returns twice, or on another stack"),
        _ if name.starts_with(BUILTINS) => Some("its return takes arguments off the stack: code of V8"),
        _ if OURS.contains(&name) => Some("what records calls it"),
        _ => None,
    }
}

fn patched(code: &Code, backend: &dyn Patch) -> Result<Function, (Class, &'static str)> {
    let (entries, others): (Vec<Entry>, Vec<Entry>) =
        backend.entries(code).into_iter().partition(|entry| matches!(entry.class, Class::Word | Class::Short));
    let other = || others.first().map_or((Class::Refused, "its machine's code is not known"), |e| (e.class, e.why));
    let first = entries.first().ok_or_else(other)?;
    let end = entries.iter().map(|e| e.at + e.covers).max().unwrap_or_default();
    Ok(Function {
        name: code.name.to_owned(),
        address: code.address,
        size: code.size as u64,
        site: code.address.wrapping_add(first.at as u64),
        bytes: code.bytes.get(first.at..end).unwrap_or_default().to_vec(),
        entries,
        signature: None,
    })
}
