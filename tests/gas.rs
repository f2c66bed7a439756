//! GNU as, given our text, must produce our object: the same section bytes and the same relocations, for every
//! trampoline, architecture and option, and for numbers at which instructions change; and the sizes that we tell are its
//! own. There is no list of exceptions.

use common::expected::{KernelType, expected};

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use codegen::ask::spec::{Body, Kind, Spec};
use codegen::backend::{Artifact, Backend};
use codegen::out::obj;
use codegen::profile::target::Target;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};
use tool::{BACKENDS, suite};

/// Section contents and relocations, with local symbols as section and offset.
type Picture = BTreeMap<String, (Vec<u8>, Vec<String>)>;

fn picture(bytes: &[u8]) -> Picture {
    let file = object::File::parse(bytes).expect("an object");
    let mut sections = Picture::new();
    for section in file.sections() {
        let name = section.name().unwrap().to_owned();
        let linker_only = [".symtab", ".strtab", ".shstrtab"].contains(&name.as_str()) || name.starts_with(".rela");
        let data = section.data().unwrap();
        // GNU as always makes these, empty.
        if linker_only || (data.is_empty() && [".text", ".data", ".bss"].contains(&name.as_str())) {
            continue;
        }
        let mut relocations: Vec<_> = section.relocations().collect();
        // GNU as writes those of jumps last.
        relocations.sort_by_key(|(at, _)| *at);
        let relocations = relocations.into_iter().map(|(at, r)| {
            let to = match r.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = file.symbol_by_index(index).unwrap();
                    if symbol.is_local() {
                        let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
                        format!("{}+{:#x} {:+}", section.name().unwrap(), symbol.address(), r.addend())
                    } else {
                        format!("{} {:+}", symbol.name().unwrap(), r.addend())
                    }
                }
                other => format!("{other:?}"),
            };
            format!("{at:#x} {:?} {to}", r.flags())
        });
        sections.insert(name, (data.to_vec(), relocations.collect()));
    }
    sections
}

/// Those that other files see, and functions that only this one has.
fn symbols(bytes: &[u8]) -> Vec<String> {
    let file = object::File::parse(bytes).expect("an object");
    let seen =
        file.symbols().filter(|s| s.is_global() || s.kind() == SymbolKind::Text && !s.name().unwrap().is_empty());
    // What marks code and data is of no kind. GNU as for x86-64 adds a name where anything is of threads.
    let added = |name: &str| name == "_GLOBAL_OFFSET_TABLE_";
    let named = seen.filter(|s| (s.is_global() || s.size() > 0) && !s.name().is_ok_and(added));
    let mut list: Vec<String> = named
        .map(|s| {
            let (name, kind, undefined) = (s.name().unwrap(), s.kind(), s.is_undefined());
            format!("{name} {:#x} {} {kind:?} {undefined} {:?}", s.address(), s.size(), s.flags())
        })
        .collect();
    list.sort();
    list
}

/// Where data begins in code, and code behind it, by the symbols that mark them.
fn marks(bytes: &[u8]) -> Vec<(u64, bool)> {
    let file = object::File::parse(bytes).expect("an object");
    let text = file.section_by_name(".text").unwrap().index();
    let marks = file.symbols().filter(|s| s.section_index() == Some(text));
    let mut all: Vec<_> = marks
        .filter_map(|s| match s.name().unwrap().as_bytes() {
            [b'$', b'd', ..] => Some((s.address(), true)),
            [b'$', b'x', ..] => Some((s.address(), false)),
            _ => None,
        })
        .collect();
    all.sort();
    all
}

fn flags(bytes: &[u8]) -> object::FileFlags {
    object::File::parse(bytes).expect("an object").flags()
}

fn compare(backend: &dyn Backend, target: &Target, specs: &[Spec], dir: &Path) {
    let what = format!("{} {} ({})", target.facts.name, specs[0].name, target.describe());
    let Artifact { assembly, listings } = backend.generate(specs, target).unwrap();
    let ours = obj::write(&assembly, target).unwrap();
    let (source, object) = (dir.join("t.S"), dir.join("t.o"));
    std::fs::write(&source, templates::asm(&listings, target, "t").unwrap()).unwrap();
    let run = Command::new(target.facts.assembler).arg("--fatal-warnings").arg(&source).arg("-o").arg(&object).output();
    let run =
        run.unwrap_or_else(|e| panic!("{}: {e}: install the binutils for this architecture", target.facts.assembler));
    assert!(run.status.success(), "{what}: {}", String::from_utf8_lossy(&run.stderr));
    let theirs = std::fs::read(&object).unwrap();
    let (ours_by_section, theirs_by_section) = (picture(&ours), picture(&theirs));
    let names = |p: &Picture| p.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours_by_section), names(&theirs_by_section), "{what}: sections");
    for (name, (bytes, relocations)) in &theirs_by_section {
        let (our_bytes, our_relocations) = &ours_by_section[name];
        assert_eq!(our_relocations, relocations, "{what}: relocations of {name} (left: ours)");
        let differs = our_bytes.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(bytes.len().min(our_bytes.len()));
        assert!(
            our_bytes == bytes,
            "{what}: {name} differs at {differs:#x}\nours   {our_bytes:02x?}\ntheirs {bytes:02x?}"
        );
    }
    assert_eq!(symbols(&ours), symbols(&theirs), "{what}: symbols");
    assert_eq!(marks(&ours), marks(&theirs), "{what}: symbols that mark code and data");
    for listing in &listings {
        let name = &*listing.name;
        let theirs = object::File::parse(&*theirs).unwrap().symbol_by_name(name).unwrap().size();
        assert_eq!(u64::from(listing.cost.bytes), theirs, "{what}: size of {name}");
    }
    assert_eq!(flags(&ours), flags(&theirs), "{what}: e_flags");
}

#[test]
fn gnu_as_agrees_on_every_trampoline() {
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        for target in common::targets(*backend) {
            let named: Vec<Spec> = target.convention.specs().collect();
            for spec in &named {
                compare(*backend, &target, &[*spec], dir.path());
            }
            compare(*backend, &target, &named, dir.path());
            let exported = |s: &Spec<'static>| match s.kind {
                Kind::Stub => Spec { export: "_mcount", ..*s },
                Kind::Return => Spec { export: "another", ..*s },
                _ => *s,
            };
            let objtool = Target { objtool: true, unwind_tables: false, ..target.clone() };
            compare(*backend, &objtool, &named.iter().map(exported).collect::<Vec<_>>(), dir.path());
            for spec in suite::specs(&suite::trampolines(&target).unwrap()) {
                if spec.kind.for_one_function() {
                    compare(*backend, &target, &[spec], dir.path());
                }
            }
        }
    }
}

/// Where return addresses come signed, unwinders are told until they are authenticated.
#[test]
fn gnu_as_agrees_where_return_addresses_come_signed() {
    let mut signed = 0;
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let target = common::targets(*backend).into_iter().find(|target| target.convention.thread.is_some()).unwrap();
        let trampolines = suite::trampolines(&target).unwrap();
        for spec in suite::specs(&trampolines) {
            let spec = Spec { body: Body { signed: true, ..spec.body }, ..spec };
            if !spec.kind.jumped_to() || !spec.kind.names_body() || backend.generate(&[spec], &target).is_err() {
                continue;
            }
            compare(*backend, &target, &[spec], dir.path());
            let text = templates::asm(&backend.generate(&[spec], &target).unwrap().listings, &target, "t").unwrap();
            assert_eq!(text.matches(".cfi_negate_ra_state").count(), 2, "{text}");
            signed += 1;
        }
    }
    assert!(signed > 10, "{signed}");
}

/// They share their code. Text and code are made together, so that each text must be that of the trampoline alone.
#[test]
fn gnu_as_agrees_on_trampolines_that_differ_in_their_name_alone() {
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let target = tool::default_target(*backend).unwrap();
        let objtool = Target { objtool: true, unwind_tables: false, ..target.clone() };
        let trampolines = suite::trampolines(&target).unwrap();
        let mut other: Option<Spec> = None;
        for spec in suite::specs(&trampolines) {
            let alike = ["first", spec.name, "third"].map(|name| Spec { name, ..spec });
            // Behind others that are alike, and before more of those.
            let others = ["a", "b", "c", "d"].map(|name| Spec { name, ..other.unwrap_or(spec) });
            let mixed = [&others[..2], &alike, &others[2..]].concat();
            for target in [&target, &objtool] {
                compare(*backend, target, &alike, dir.path());
                compare(*backend, target, &mixed, dir.path());
            }
            other = Some(spec);
            let text = |specs: &[Spec]| format!("{:#?}", backend.generate(specs, &target).unwrap().listings);
            let alone: Vec<_> = alike.iter().flat_map(|s| backend.generate(&[*s], &target).unwrap().listings).collect();
            let what = format!("{} {} and two under other names", backend.facts().name, spec.name);
            assert_eq!(text(&alike), format!("{alone:#?}"), "{what}");
        }
    }
}

/// Where functions have types, with all else that stands before and at their entry: by the bytes that the kernel's own
/// `SYM_TYPED_FUNC_START` makes of the same configuration.
#[test]
fn types_stand_where_the_kernel_has_them() {
    for backend in tool::BACKENDS {
        for KernelType { set, before, at } in expected(*backend).kernel_type {
            let dir = tempfile::tempdir().unwrap();
            let mut target = tool::default_target(*backend).unwrap();
            for (name, value) in set.iter().filter_map(|setting| setting.split_once('=')) {
                target.choices.set(target.facts.name, target.facts.options, name, value).unwrap();
            }
            let target = backend.target(target.convention, target.choices).unwrap();
            let named: Vec<Spec> = target.convention.specs().collect();
            compare(*backend, &target, &named, dir.path());
            let typed = named.iter().filter(|s| target.typed(s.kind).is_some());
            let alike: Vec<Spec> = typed.flat_map(|s| [Spec { name: "first", ..*s }, *s]).take(2).collect();
            compare(*backend, &target, &alike, dir.path());
            let stub: Vec<Spec> = named.into_iter().filter(|s| s.kind == Kind::Stub).collect();
            compare(*backend, &target, &stub, dir.path());
            let object = obj::write(&backend.assemble(&stub, &target).unwrap(), &target).unwrap();
            let file = object::File::parse(&*object).unwrap();
            let start = file.symbol_by_name(stub[0].name).unwrap().address() as usize;
            let text = file.section_by_name(".text").unwrap();
            let word = text.relocations().next().unwrap().0 as usize;
            let bytes: Vec<String> = text.data().unwrap()[..start].iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!((bytes.join(" "), start - word), (before, at), "{} {set:?}", backend.facts().name);
        }
    }
}

/// At the edges of what instructions hold as an immediate: 7, 8, 9, 12 and 16 bits, with and without a sign.
const EDGES: [i32; 14] = [0, 1, 8, 120, 127, 128, 256, 504, 512, 2040, 2048, 4095, 32760, 65536];

#[test]
fn gnu_as_agrees_where_numbers_change_instructions() {
    let (mut compared, mut refused) = (0, 0);
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let sound = tool::default_target(*backend).unwrap();
        for symbol in sound.symbols() {
            for value in EDGES {
                let mut target = sound.clone();
                if target.set_number(symbol, value).and_then(|()| target.check_frames()).is_err() {
                    refused += 1;
                    continue;
                }
                let trampolines = suite::trampolines(&target).unwrap();
                for spec in suite::specs(&trampolines) {
                    let object = |target: &Target| {
                        let written = backend.assemble(std::slice::from_ref(&spec), target).ok()?;
                        Some(obj::write(&written, target).unwrap())
                    };
                    let Some(written) = object(&target) else {
                        let told = backend.text(&spec, &target);
                        assert!(told.is_err(), "{} {symbol}={value}: only one of the two is refused", spec.name);
                        refused += 1;
                        continue;
                    };
                    // What it does not change is compared above.
                    if object(&sound).is_none_or(|sound| sound != written) {
                        compare(*backend, &target, &[spec], dir.path());
                        compared += 1;
                    }
                }
            }
        }
    }
    eprintln!("{compared} compared, {refused} refused");
    assert!(compared > 10 && refused > 1000, "{compared} compared, {refused} refused");
}

#[test]
fn an_option_changes_what_it_says_and_nothing_else() {
    for backend in BACKENDS {
        let facts = backend.facts();
        let default = tool::default_target(*backend).unwrap();
        let trampolines = suite::trampolines(&default).unwrap();
        let object = |spec: &Spec, target: &Target| {
            // A note tells of all code whether it has landing pads.
            let target = &Target { unwind_tables: false, ..target.clone() };
            let assembly = backend.assemble(std::slice::from_ref(spec), target).ok()?;
            Some(obj::write(&assembly, target).unwrap())
        };
        for (spec, (_, kind)) in suite::specs(&trampolines).iter().zip(&trampolines) {
            for (rule, option) in default.convention.offered() {
                let other = |v| backend.target(default.convention, default.choices.with(rule.index, v)).unwrap();
                let others = (0..option.values.len()).filter(|v| *v != rule.default).map(other);
                // One that cannot be had under this value is none that it does not change.
                let changed = others.filter(|other| object(spec, other) != object(spec, &default)).count();
                let wanted = if default.convention.changes(option, *kind) { option.values.len() - 1 } else { 0 };
                assert_eq!(changed, wanted, "{} {}, {}", facts.name, spec.name, option.name);
            }
        }
    }
}
