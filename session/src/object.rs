//! A file that a process has loaded: its functions that have a site of a compiler at their entry, or room for a branch there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use codegen::words::input;
use link::Input;
use link::sites::ListedSite;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _, SymbolTable};
use object::{Endianness, elf};

use crate::entries;
use crate::function::{Function, Refused};

type Header = elf::FileHeader64<Endianness>;

/// What lists of sites call those at entries.
const ENTRIES: [&str; 2] = ["entry", "entry with arguments"];

/// The content of a file.
#[derive(Debug)]
pub struct Object {
    /// The path of the file.
    pub path: PathBuf,
    /// The linker's number of it, in hexadecimal; empty if it has none.
    pub build_id: String,
    /// The lowest address that a segment of it asks for, at the start of a page.
    pub lowest: u64,
    /// The functions that can be traced, by ascending address.
    pub functions: Vec<Function>,
    /// The functions with a site that cannot be traced.
    pub refused: Vec<Refused>,
    /// Why no return address of a process that loads it may be on a shadow stack, if there is a reason: what the object has or does.
    pub entries_alone: Option<&'static str>,
    /// It promises that indirect branches find landing pads: the loader lets the processor look.
    pub guarded: bool,
}

/// Exceptions may pass its functions by an unwinder that does not ask us for the frames of trampolines.
const UNWINDER: &str = "has an unwinder of its own (libgcc linked into it, or LLVM's), which stops at trampolines";
/// The entries of a shadow stack are in the order of calls on one stack.
const STACKS: &str = "has a function that switches stacks by its own instructions";

/// Whether this is the name of a function that switches stacks: of Boost.Context, whose copies have a name before that, libco, Tencent's
/// libco, libaco, minicoro, libcoro, Ruby, greenlet, QEMU, PHP, D and OCaml.
fn switches(name: &[u8]) -> bool {
    match name {
        b"co_switch"
        | b"coctx_swap"
        | b"acosw"
        | b"_mco_switch"
        | b"coro_transfer"
        | b"coroutine_transfer"
        | b"slp_switch"
        | b"qemu_coroutine_switch"
        | b"zend_fiber_switch_context"
        | b"fiber_switchContext"
        | b"caml_perform" => true,
        _ => name.ends_with(b"_fcontext") && (name.ends_with(b"jump_fcontext") || name.ends_with(b"ontop_fcontext")),
    }
}

/// What the names of a file's symbols say of it, so that they are read once.
#[derive(Default)]
struct Names {
    /// It defines an unwinder.
    unwinds: bool,
    /// It takes an unwinder from another.
    unwound: bool,
    /// It takes from another what throws.
    throws: bool,
    /// It defines a function that switches stacks.
    switches: bool,
    /// It has symbols of profilers that functions call first.
    profiles: bool,
    /// It has symbols of profilers that functions call later.
    profiles_later: bool,
}

impl Names {
    fn add(&mut self, name: &[u8], defined: bool) {
        let unwinder = matches!(name, b"_Unwind_RaiseException" | b"_Unwind_Resume");
        self.unwinds |= unwinder && defined;
        self.unwound |= unwinder && !defined;
        self.throws |= !defined && (name.starts_with(b"__cxa_throw") || name.starts_with(b"__gxx_personality"));
        self.switches |= defined && switches(name);
        self.profiles |= entries::PROFILER.contains(&name);
        self.profiles_later |= entries::LATER.contains(&name);
    }

    /// Whether the file has an unwinder. One that is `stripped` and has `tables` for exceptions shows that it has none by what it takes
    /// from another.
    fn own_unwinder(&self, tables: bool, stripped: bool) -> bool {
        self.unwinds || tables && !self.unwound && (stripped || !self.throws)
    }
}

/// What every reader of a file needs.
struct Parts<'a> {
    header: &'a Header,
    endian: Endianness,
    sections: SectionTable<'a, Header>,
    symbols: SymbolTable<'a, Header>,
    lowest: u64,
    build_id: String,
    names: Names,
    entries_alone: Option<&'static str>,
}

impl<'a> Parts<'a> {
    fn of(name: &str, bytes: &'a [u8], backend: &dyn Patch) -> Result<Parts<'a>> {
        let damaged = |e: object::read::Error| Error::new(format!("{name}: damaged: {e}"));
        let header = Header::parse(bytes).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        if header.e_machine(endian).0 != backend.facts().machine {
            return Err(Error::new(format!("{name}: for another machine; valid: one for {}", backend.facts().name)));
        }
        let segments = header.program_headers(endian, bytes).map_err(damaged)?;
        let loaded = || segments.iter().filter(|s| s.p_type(endian) == elf::PT_LOAD);
        let lowest = loaded().map(|s| s.p_vaddr(endian) & !0xfff).min().unwrap_or_default();
        let sections = header.sections(endian, bytes).map_err(damaged)?;
        let mut build_id = String::new();
        let tables = sections.iter().any(|s| sections.section_name(endian, s).is_ok_and(|n| n == b".gcc_except_table"));
        for section in sections.iter() {
            if let Some(mut notes) = section.notes(endian, bytes).map_err(damaged)? {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                        build_id = note.desc().iter().map(|b| format!("{b:02x}")).collect();
                    }
                }
            }
        }
        let imported = sections.symbols(endian, bytes, elf::SHT_DYNSYM).map_err(damaged)?;
        let symbols = sections.symbols(endian, bytes, elf::SHT_SYMTAB).map_err(damaged)?;
        let mut names = Names::default();
        for table in [&imported, &symbols] {
            for symbol in table.iter() {
                table.symbol_name(endian, symbol).into_iter().for_each(|n| names.add(n, !symbol.is_undefined(endian)));
            }
        }
        let unwinder = names.own_unwinder(tables, symbols.is_empty()).then_some(UNWINDER);
        let entries_alone = unwinder.or_else(|| names.switches.then_some(STACKS));
        Ok(Parts { header, endian, sections, symbols, lowest, build_id, names, entries_alone })
    }
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    input::bytes(path).map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))
}

impl Object {
    /// Read a file of the backend's machine: its functions with a site, or `any`.
    ///
    /// # Errors
    /// It cannot be read, is no little-endian ELF64 file of this machine, or is damaged.
    pub fn read(path: &Path, any: bool, backend: &dyn Patch) -> Result<Object> {
        Object::parse(path, &contents(path)?, any, backend)
    }

    /// The [`Object::entries_alone`] of a file, without its functions.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn read_entries_alone(path: &Path, backend: &dyn Patch) -> Result<Option<&'static str>> {
        Ok(Parts::of(&path.display().to_string(), &contents(path)?, backend)?.entries_alone)
    }

    /// The [`Object::guarded`] of a file with these bytes; false if it is damaged.
    pub fn is_guarded(bytes: &[u8], backend: &dyn Patch) -> bool {
        let parsed = Header::parse(bytes).and_then(|header| {
            let endian = header.endian()?;
            Ok((header, endian, header.sections(endian, bytes)?))
        });
        parsed.is_ok_and(|(header, endian, sections)| {
            entries::File { header, sections: &sections, bytes, endian }.guarded(backend)
        })
    }

    fn parse(path: &Path, bytes: &[u8], any: bool, backend: &dyn Patch) -> Result<Object> {
        let name = path.display().to_string();
        let Parts { header, endian, sections, symbols, lowest, build_id, names, entries_alone } =
            Parts::of(&name, bytes, backend)?;
        // Of several symbols at an address, the last one says how long a function is.
        let mut sizes: Vec<(u64, u64)> = symbols
            .iter()
            .filter(|s| s.st_type() == elf::STT_FUNC)
            .map(|s| (s.st_value(endian), s.st_size(endian)))
            .collect();
        sizes.sort_by_key(|(address, _)| *address);
        let input = Input { name: &name, bytes };
        // A file without a list of sites is an error of those who ask for the list alone.
        let sites = link::sites::sites(backend, &input).unwrap_or_default();
        let file = entries::File { header, sections: &sections, bytes, endian };
        let guarded = file.guarded(backend);
        let mut object = Object {
            path: path.to_owned(),
            build_id,
            lowest,
            functions: Vec::new(),
            refused: Vec::new(),
            entries_alone,
            guarded,
        };
        if names.profiles {
            object.functions = file.profiled(backend);
        }
        let profiled: BTreeSet<u64> = object.functions.iter().map(|f| f.site).collect();
        let entries = sites.into_iter().filter(|s| ENTRIES.contains(&s.kind) && !profiled.contains(&s.address));
        object.functions.reserve(entries.size_hint().1.unwrap_or_default());
        for site in entries {
            match site.refused {
                Some(why) => {
                    object.refused.push(Refused { name: site.function.to_owned(), code: None, class: None, why })
                }
                None => object.functions.push(listed(site, &sizes, backend)),
            }
        }
        let later = if names.profiles_later { file.profiled_later(backend) } else { BTreeSet::new() };
        if any || !later.is_empty() {
            let known: BTreeSet<u64> = object.functions.iter().map(|f| f.address).collect();
            let wanted = |address| !known.contains(&address) && (any || later.contains(&address));
            let (functions, refused) = file.functions(&wanted, guarded, backend);
            object.functions.extend(functions);
            object.refused.extend(refused);
        }
        object.functions.sort_by_key(|f| f.site);
        object.functions.dedup_by_key(|f| f.site);
        Ok(object)
    }
}

/// The function with a site that a list has.
/// `sizes` has addresses and sizes of functions, by ascending address.
fn listed(site: ListedSite, sizes: &[(u64, u64)], backend: &dyn Patch) -> Function {
    let address = site.address - site.offset;
    let after = sizes.partition_point(|(at, _)| *at <= address);
    let size = after.checked_sub(1).and_then(|n| sizes.get(n)).filter(|(at, _)| *at == address).map(|(_, size)| *size);
    let form = backend.site_forms().iter().find(|form| form.about == site.form && form.fits(&site.bytes));
    let before = form.map_or(0, |form| form.before as usize);
    Function {
        name: site.function.to_owned(),
        address,
        size: size.unwrap_or_default(),
        site: site.address,
        bytes: if before == 0 { site.bytes } else { site.bytes.get(before..).unwrap_or_default().to_vec() },
        entries: Vec::new(),
        signature: None,
    }
}
