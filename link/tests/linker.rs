//! Where sections are put, who defines a name, what does not reach, and what patching refuses: objects of a few bytes.
//! That images are those of GNU ld, the root package's `tests/link.rs` says.

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};
use object::write::{Object, Relocation, SectionId, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf,
};
use tramptool_link::{Access, Image, Input, Options, link};

const X86: (&dyn Patch, Architecture) = (&arch_x86_64::X86_64, Architecture::X86_64);
const ARM64: (&dyn Patch, Architecture) = (&arch_arm64::Arm64, Architecture::Aarch64);
const RISCV: (&dyn Patch, Architecture) = (&arch_riscv::Riscv64, Architecture::Riscv64);
const BASE: u64 = 0x1_0000;

/// An object to be.
struct Sketch(Object<'static>);

impl Sketch {
    fn new((_, architecture): (&dyn Patch, Architecture)) -> Sketch {
        Sketch(Object::new(BinaryFormat::Elf, architecture, Endianness::Little))
    }

    fn section(&mut self, name: &str, kind: SectionKind, bytes: &[u8], align: u64) -> SectionId {
        let id = self.0.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        self.0.append_section_data(id, bytes, align);
        id
    }

    fn text(&mut self, bytes: &[u8]) -> SectionId {
        self.section(".text", SectionKind::Text, bytes, 16)
    }

    fn symbol(&mut self, name: &str, at: Option<(SectionId, u64)>, scope: SymbolScope, weak: bool) -> SymbolId {
        self.0.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: at.map_or(0, |(_, value)| value),
            size: 0,
            kind: if at.is_some() { SymbolKind::Text } else { SymbolKind::Unknown },
            scope,
            weak,
            section: at.map_or(SymbolSection::Undefined, |(section, _)| SymbolSection::Section(section)),
            flags: SymbolFlags::None,
        })
    }

    fn function(&mut self, name: &str, section: SectionId, value: u64) -> SymbolId {
        self.symbol(name, Some((section, value)), SymbolScope::Dynamic, false)
    }

    fn undefined(&mut self, name: &str) -> SymbolId {
        self.symbol(name, None, SymbolScope::Unknown, false)
    }

    fn refer(&mut self, section: SectionId, offset: u64, r_type: u32, symbol: SymbolId, addend: i64) {
        let flags = RelocationFlags::Elf { r_type: elf::RelocationType(r_type) };
        self.0.add_relocation(section, Relocation { offset, symbol, addend, flags }).unwrap();
    }

    /// A word of data with the address of a symbol.
    fn word(&mut self, symbol: SymbolId) {
        let data = self.section(".data", SectionKind::Data, &[0; 8], 8);
        self.refer(data, 0, arch_x86_64::reloc::ABS64, symbol, 0);
    }

    fn done(self) -> Vec<u8> {
        self.0.write().unwrap()
    }
}

/// Link objects called a.o, b.o and so on.
fn linked((backend, _): (&dyn Patch, Architecture), objects: &[Vec<u8>], options: Options) -> Result<Image> {
    let inputs: Vec<Input> =
        objects.iter().zip(["a.o", "b.o", "c.o"]).map(|(bytes, name)| Input { name, bytes }).collect();
    let site = Some(&profiles::default_convention(backend.facts())?.site);
    link(backend, &inputs, &Options { base: BASE, site, ..options })
}

/// The error's kind, if its text has these parts.
fn refused(arch: (&dyn Patch, Architecture), objects: &[Vec<u8>], options: Options, parts: &[&str]) -> Error {
    let e = linked(arch, objects, options).unwrap_err();
    let text = e.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    e.kind().clone()
}

fn word(image: &Image) -> u64 {
    let data = image.sections.iter().find(|s| s.name == ".data").unwrap();
    u64::from_le_bytes(image.bytes(data.address, 8).unwrap().try_into().unwrap())
}

#[test]
fn sections_of_one_name_are_together_code_first_zeroed_memory_last() {
    let mut a = Sketch::new(X86);
    let bss = a.0.add_section(Vec::new(), b".bss".to_vec(), SectionKind::UninitializedData);
    a.0.append_section_bss(bss, 16, 8);
    a.section(".data", SectionKind::Data, &[1; 4], 4);
    a.section(".rodata", SectionKind::ReadOnlyData, &[2; 5], 1);
    a.text(&[3; 3]);
    let mut b = Sketch::new(X86);
    b.text(&[4; 2]);
    let image = linked(X86, &[a.done(), b.done()], Options::default()).unwrap();
    let sections: Vec<_> = image.sections.iter().map(|s| (s.name.as_str(), s.address, s.size, s.zeroed)).collect();
    let expected = [
        // 3 bytes, and 2 bytes at the next multiple of 16.
        (".text", 0x1_0000, 0x12, false),
        (".rodata", 0x1_1000, 5, false),
        (".data", 0x1_2000, 4, false),
        (".bss", 0x1_2008, 16, true),
    ];
    assert_eq!(sections, expected);
    assert_eq!(image.bytes(0x1_0000, 0x12).unwrap(), [&[3; 3][..], &[0; 13], &[4; 2]].concat());
    let segments: Vec<_> = image.segments.iter().map(|s| (s.access, s.address, s.bytes.len(), s.mem_size)).collect();
    let expected =
        [(Access::Execute, 0x1_0000, 0x12, 0x12), (Access::Read, 0x1_1000, 5, 5), (Access::Write, 0x1_2000, 4, 0x18)];
    assert_eq!(segments, expected);
}

#[test]
fn what_has_no_place_is_refused() {
    let mut a = Sketch::new(X86);
    let bss = a.0.add_section(Vec::new(), b".bss".to_vec(), SectionKind::UninitializedData);
    a.0.append_section_bss(bss, 256 << 20, 8);
    let mut b = Sketch::new(X86);
    b.text(&[0xc3]);
    let objects = [a.done(), b.done()];
    assert!(linked(X86, &objects[..1], Options::default()).is_ok());
    refused(X86, &objects, Options::default(), &["a.o: section .bss", "256 MiB"]);
    let input = Input { name: "b.o", bytes: &objects[1] };
    let e = link(X86.0, &[input], &Options { base: 0x1_0001, ..Options::default() }).unwrap_err();
    assert!(e.to_string().contains("0x10001; valid: a multiple of 0x1000"), "{e}");
    // The last byte of the address space has an address, but an end has none.
    let e = link(X86.0, &[input], &Options { base: u64::MAX - 0xfff, ..Options::default() });
    assert!(e.is_ok(), "{e:?}");
}

/// An object that defines `f` at an offset of its .text, and one that has a word with the address of `f`.
fn defines(value: u64, weak: bool) -> Vec<u8> {
    let mut sketch = Sketch::new(X86);
    let text = sketch.text(&[0; 16]);
    sketch.symbol("f", Some((text, value)), SymbolScope::Dynamic, weak);
    sketch.done()
}

fn uses(weak: bool) -> Vec<u8> {
    let mut sketch = Sketch::new(X86);
    let f = sketch.symbol("f", None, SymbolScope::Unknown, weak);
    sketch.word(f);
    sketch.done()
}

#[test]
fn a_name_has_one_definition() {
    // a.o has its .text at BASE, b.o at BASE + 16.
    let (first, second) = (BASE + 1, BASE + 16 + 2);
    for (a, b, expected) in [(false, true, first), (true, false, second), (true, true, first)] {
        let image = linked(X86, &[defines(1, a), defines(2, b), uses(false)], Options::default()).unwrap();
        assert_eq!(word(&image), expected);
        assert_eq!(image.symbols.iter().filter(|s| s.name == "f").count(), 1, "the one that lost is not there");
    }
    let strong = [defines(1, false), defines(2, false), uses(false)];
    let kind = refused(X86, &strong, Options::default(), &["symbol f is defined in a.o and in b.o"]);
    assert!(matches!(kind, Error::Duplicate { symbol, .. } if symbol == "f"));
    let image = linked(X86, &strong, Options { first: 1, ..Options::default() }).unwrap();
    assert_eq!(word(&image), first);
    // What is defined from outside is so only where no object does it.
    let define = vec![("f".to_owned(), 0x1234)];
    let options = Options { define, ..Options::default() };
    assert_eq!(word(&linked(X86, &[uses(false)], options.clone()).unwrap()), 0x1234);
    assert_eq!(word(&linked(X86, &[defines(1, true), uses(false)], options).unwrap()), first);
}

#[test]
fn a_name_without_definition_is_told_with_its_place() {
    let kind = refused(X86, &[uses(false)], Options::default(), &["undefined: f (used by a.o at .data+0x0)"]);
    assert_eq!(kind, Error::Undefined { symbols: vec![("f".to_owned(), "a.o at .data+0x0".to_owned())] });
    assert_eq!(word(&linked(X86, &[uses(true)], Options::default()).unwrap()), 0);
    let image = linked(X86, &[uses(false)], Options { stub: Some(&[0xc3]), ..Options::default() }).unwrap();
    assert_eq!(image.bytes(word(&image), 1).unwrap(), [0xc3]);
}

#[test]
fn local_names_are_their_objects_own() {
    let object = |value| {
        let mut sketch = Sketch::new(X86);
        let text = sketch.text(&[0; 16]);
        let f = sketch.symbol("f", Some((text, value)), SymbolScope::Compilation, false);
        sketch.symbol(".Llabel", Some((text, 0)), SymbolScope::Compilation, false);
        sketch.word(f);
        sketch.done()
    };
    let image = linked(X86, &[object(1), object(2), defines(3, false)], Options::default()).unwrap();
    let data = image.sections.iter().find(|s| s.name == ".data").unwrap().address;
    let words: Vec<u64> = image.bytes(data, 16).unwrap().chunks(8).map(|w| u64::from(w[0])).collect();
    assert_eq!(words, [1, 16 + 2]);
    assert_eq!(image.symbol("f").unwrap().address, BASE + 32 + 3, "the global one");
    assert!(image.symbol(".Llabel").is_none());
}

#[test]
fn a_call_reaches_2_gib_and_no_more() {
    let mut sketch = Sketch::new(X86);
    let text = sketch.text(&[0xe8, 0, 0, 0, 0]);
    let f = sketch.undefined("f");
    sketch.refer(text, 1, arch_x86_64::reloc::PLT32, f, -4);
    let objects = [sketch.done()];
    let to = |address| Options { define: vec![("f".to_owned(), address)], ..Options::default() };
    let next = BASE + 5;
    let image = linked(X86, &objects, to(next + 0x7fff_ffff)).unwrap();
    assert_eq!(image.bytes(BASE, 5).unwrap(), [0xe8, 0xff, 0xff, 0xff, 0x7f]);
    let reach = ["a.o: .text+0x1: f: ", "reaches 2 GiB either way", "2147483648 bytes away"];
    let kind = refused(X86, &objects, to(next + 0x8000_0000), &reach);
    assert_eq!(kind, Error::OutOfReach { field: "PLT32".to_owned(), distance: 0x8000_0000, bits: 32 });
}

#[test]
fn a_field_must_be_in_its_section_and_a_low_part_must_have_a_high_one() {
    let mut sketch = Sketch::new(X86);
    let text = sketch.text(&[0; 8]);
    let f = sketch.function("f", text, 0);
    sketch.refer(text, 5, arch_x86_64::reloc::PC32, f, 0);
    refused(X86, &[sketch.done()], Options::default(), &["a.o: .text+0x5: f: ", "ends 3 bytes after"]);
    let mut sketch = Sketch::new(X86);
    let text = sketch.text(&[0; 8]);
    let f = sketch.function("f", text, 0);
    sketch.refer(text, 9, arch_x86_64::reloc::PC32, f, 0);
    let kind = refused(X86, &[sketch.done()], Options::default(), &["a.o: a relocation at .text+0x9", "damaged"]);
    assert!(matches!(kind, Error::Damaged { .. }), "{kind:?}");

    let mut sketch = Sketch::new(RISCV);
    let text = sketch.text(&[0; 8]);
    let label = sketch.function("label", text, 0);
    sketch.refer(text, 4, arch_riscv::reloc::PCREL_LO12_I, label, 0);
    let parts = ["a.o: .text+0x4: label: ", "no high part", "%pcrel_hi"];
    let kind = refused(RISCV, &[sketch.done()], Options::default(), &parts);
    assert_eq!(kind, Error::Unpaired { high: BASE });
}

/// Two functions with sites, and a trampoline. The list has an entry that a linker has dropped.
fn traced() -> Vec<u8> {
    let mut sketch = Sketch::new(X86);
    let text = sketch.text(&[0x90; 48]);
    let [f, g] = [("f", 0), ("g", 16)].map(|(name, at)| sketch.function(name, text, at));
    sketch.function("tramp", text, 32);
    let list = sketch.section("__patchable_function_entries", SectionKind::Data, &[0; 24], 8);
    sketch.refer(list, 0, arch_x86_64::reloc::ABS64, g, 0);
    sketch.refer(list, 8, arch_x86_64::reloc::ABS64, f, 0);
    sketch.done()
}

fn pair(a: &str, b: &str) -> Vec<(String, String)> {
    vec![(a.to_owned(), b.to_owned())]
}

#[test]
fn sites_are_disabled_but_for_those_that_are_asked_for() {
    let objects = [traced()];
    const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
    let image = linked(X86, &objects, Options::default()).unwrap();
    let sites: Vec<_> = image.sites.iter().map(|s| (s.ip, s.function.as_str(), s.start)).collect();
    assert_eq!(sites, [(BASE, "f", BASE), (BASE + 16, "g", BASE + 16)]);
    assert_eq!([image.bytes(BASE, 5).unwrap(), image.bytes(BASE + 16, 5).unwrap()], [NOP, NOP]);
    // From behind 5 bytes at f and g to the trampoline: 32 - 5, 16 - 5.
    let (patch, jump) = (pair("f", "tramp"), pair("g", "tramp"));
    let image = linked(X86, &objects, Options { patch, jump, ..Options::default() }).unwrap();
    assert_eq!(image.bytes(BASE, 5).unwrap(), [0xe8, 27, 0, 0, 0]);
    assert_eq!(image.bytes(BASE + 16, 5).unwrap(), [0xe9, 11, 0, 0, 0]);
}

/// A function behind so many RETs and two NOPs, and what stands before it once its site is disabled. The `ftrace_ops` that does
/// nothing is where the code begins.
fn disabled_behind(rets: usize) -> Vec<u8> {
    const RET: [u8; 4] = 0xd65f_03c0_u32.to_le_bytes();
    const NOP: [u8; 4] = 0xd503_201f_u32.to_le_bytes();
    let mut sketch = Sketch::new(ARM64);
    let text = sketch.text(&[vec![RET; rets], vec![NOP; 4], vec![RET]].concat().concat());
    let entry = 4 * rets as u64;
    sketch.function("ftrace_nop_ops", text, 0);
    let f = sketch.function("f", text, entry + 8);
    let list = sketch.section("__patchable_function_entries", SectionKind::Data, &[0; 8], 8);
    sketch.refer(list, 0, arch_arm64::reloc::ABS64, f, -8);
    let image = linked(ARM64, &[sketch.done()], Options::default()).unwrap();
    assert_eq!(image.sites.iter().map(|s| s.ip).collect::<Vec<_>>(), [BASE + entry + 12]);
    image.bytes(BASE, entry as usize + 8).unwrap().to_vec()
}

#[test]
fn a_disabled_site_names_an_op_only_where_there_is_an_aligned_word_for_it() {
    assert_eq!(disabled_behind(2)[8..], BASE.to_le_bytes());
    let [ret, nop] = [0xd65f_03c0_u32, 0xd503_201f].map(u32::to_le_bytes);
    assert_eq!(disabled_behind(1), [ret, nop, nop].concat());
    assert_eq!(disabled_behind(3), [ret, ret, ret, nop, nop].concat());
}

#[test]
fn what_cannot_be_patched_is_named() {
    let objects = [traced()];
    let patch = |a, b| Options { patch: pair(a, b), ..Options::default() };
    refused(X86, &objects, patch("h", "tramp"), &["patchable function 'h'", "f, g"]);
    refused(X86, &objects, patch("f", "nothing"), &["'nothing' for f to go to"]);
    refused(X86, &objects, Options { ops: Some("o".to_owned()), ..patch("f", "tramp") }, &["'o'", "ftrace_ops"]);
    refused(X86, &objects, Options { calls: pair("slot", "tramp"), ..Options::default() }, &["'slot' to patch"]);
    // The slot's call would reach behind the section.
    refused(X86, &[defines(14, false)], Options { calls: pair("f", "f"), ..Options::default() }, &["5 bytes to patch"]);
}

#[test]
fn an_image_is_read_back_as_it_was_written() {
    let image = linked(X86, &[traced(), uses(true)], Options { patch: pair("f", "tramp"), ..Options::default() });
    let mut image = image.unwrap();
    let file = image.to_elf().unwrap();
    image.symbols.iter_mut().for_each(|s| s.input = None);
    assert_eq!(Image::from_elf(&file).unwrap(), image);
    for cut in [64, file.len() / 2, file.len() - 1] {
        assert!(Image::from_elf(&file[..cut]).is_err(), "{cut} bytes of {}", file.len());
    }
}
