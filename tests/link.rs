//! The linker against GNU ld, byte for byte, and its images before GNU's readers.

use std::path::Path;
use std::process::Command;

use codegen::ask::spec::{Kind, Spec};
use codegen::backend::Backend;
use codegen::out::obj;
use codegen::profile::Convention;
use link::{Access, Image, Input, Options, link};
use object::{Object, ObjectSection, ObjectSymbol};
use tool::BACKENDS;

/// Bytes around a site that the linker patches and GNU ld does not: the room for op before it, the longest patch.
const PATCHED: (u64, u64) = (12, 8);

fn tool(backend: &dyn Backend, name: &str) -> String {
    backend.facts().assembler.replace("-as", &format!("-{name}"))
}

/// That of a kernel in which entry trampolines call a symbol, and not through a variable: all that fixtures define.
fn convention(backend: &dyn Backend) -> &'static Convention {
    tool::profile("linux-6.12").unwrap().convention(backend.facts().name).unwrap()
}

/// Every object of functions, with the callbacks and trampolines that go with it: (name, bytes) each.
fn links(backend: &dyn Backend) -> Vec<[(String, Vec<u8>); 3]> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("emu-tests/fixtures").join(backend.facts().name);
    let read = |name: &str| (name.to_owned(), std::fs::read(dir.join(name)).unwrap());
    let mut names: Vec<String> =
        std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| !n.starts_with("callbacks") && !n.ends_with("-wide.o"));
    names.sort();
    let convention = convention(backend);
    // The callbacks have no function for that of kretprobes.
    let specs: Vec<Spec> = convention.specs().filter(|spec| spec.kind != Kind::Rethook).collect();
    let link = |name: String| {
        let double = name.contains("lp64d");
        let choices = convention.combinations(|o| o.name == "abi");
        let target = choices
            .into_iter()
            .map(|c| backend.target(convention, c).unwrap())
            .find(|t| (t.e_flags & 6 != 0) == double)
            .unwrap();
        let trampolines = obj::write(&backend.assemble(&specs, &target).unwrap(), &target).unwrap();
        let callbacks = if double { "callbacks-lp64d.o" } else { "callbacks.o" };
        [read(&name), read(callbacks), ("trampolines.o".to_owned(), trampolines)]
    };
    names.into_iter().map(link).collect()
}

fn inputs(objects: &[(String, Vec<u8>)]) -> Vec<Input<'_>> {
    objects.iter().map(|(name, bytes)| Input { name, bytes }).collect()
}

/// The same objects linked by GNU ld with every section where our image has it.
fn gnu_ld(backend: &dyn Backend, objects: &[(String, Vec<u8>)], image: &Image) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let place = |s: &link::Section| format!("{0} {1:#x} : {{ *({0}) }}\n", s.name, s.address);
    let sections: String = image.sections.iter().map(place).collect();
    let dropped = "/DISCARD/ : { *(.note.*) *(.riscv.attributes) *(.comment) }";
    std::fs::write(dir.path().join("t.ld"), format!("SECTIONS {{\n{sections}{dropped}\n}}\n")).unwrap();
    let mut ld = Command::new(tool(backend, "ld"));
    ld.current_dir(&dir).args(["--no-relax", "--traditional-format", "-e", "0", "-T", "t.ld", "-o", "theirs"]);
    for (name, bytes) in objects {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        ld.arg(name);
    }
    let run = ld.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(dir.path().join("theirs")).unwrap()
}

#[test]
fn gnu_ld_gives_the_same_bytes() {
    for backend in BACKENDS {
        for objects in links(*backend) {
            let what = format!("{} {}", backend.facts().name, objects[0].0);
            let image = link(*backend, &inputs(&objects), &Options::default()).unwrap();
            let theirs = gnu_ld(*backend, &objects, &image);
            let theirs = object::File::parse(&*theirs).unwrap();
            let mut compared = 0;
            for section in image.sections.iter().filter(|s| !s.zeroed) {
                let their = theirs.section_by_name(&section.name).unwrap();
                assert_eq!((their.address(), their.size()), (section.address, section.size), "{what} {}", section.name);
                let ours = image.bytes(section.address, section.size as usize).unwrap();
                for (at, (a, b)) in (section.address..).zip(ours.iter().zip(their.data().unwrap())) {
                    let near = |ip: u64| (ip - PATCHED.0..ip + PATCHED.1).contains(&at);
                    // Between functions each linker fills as it likes.
                    let used = |s: &link::Symbol| (s.address..s.address + s.size).contains(&at);
                    let code = section.access == Access::Execute;
                    if !image.sites.iter().any(|s| near(s.ip)) && (!code || image.symbols.iter().any(used)) {
                        assert_eq!(a, b, "{what}: {} at {at:#x}", section.name);
                        compared += 1;
                    }
                }
            }
            assert!(compared > 3000, "{what}: {compared} bytes compared");
            for symbol in theirs.symbols().filter(|s| s.is_global() && s.is_definition()) {
                let ours = image.symbol(symbol.name().unwrap()).map(|s| (s.address, s.size));
                assert_eq!(ours, Some((symbol.address(), symbol.size())), "{what}: {}", symbol.name().unwrap());
            }
        }
    }
}

#[test]
fn gnu_readers_understand_an_image() {
    for backend in BACKENDS {
        let objects = links(*backend).swap_remove(0);
        let what = format!("{} {}", backend.facts().name, objects[0].0);
        let patch = vec![("args3".to_owned(), "ftrace_caller".to_owned())];
        let site = Some(&convention(*backend).site);
        let options = Options { patch, ops: Some("ops".to_owned()), site, ..Options::default() };
        let image = link(*backend, &inputs(&objects), &options).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, image.to_elf().unwrap()).unwrap();
        for (reader, option) in [("readelf", "-aW"), ("objdump", "-dx"), ("nm", "-n")] {
            let run = Command::new(tool(*backend, reader)).arg(option).arg(&path).output().unwrap();
            let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
            assert!(run.status.success() && err.is_empty() && !out.contains("arning"), "{what} {reader}: {err}");
        }
        let site = image.sites.iter().find(|s| s.function == "args3").unwrap();
        let trampoline = image.symbol("ftrace_caller").unwrap().address;
        let run = Command::new("gdb-multiarch")
            .args([
                "-nx",
                "-batch",
                "-ex",
                "info symbol ftrace_caller",
                "-ex",
                &format!("info symbol {:#x}", site.start),
            ])
            .args(["-ex", &format!("x/i {trampoline:#x}"), "-ex", "disassemble args3"])
            .arg(&path)
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success() && err.is_empty(), "{what} gdb: {err}");
        for wanted in
            ["ftrace_caller in section .text", "args3 in section .text", "<ftrace_caller>:", "End of assembler"]
        {
            assert!(out.contains(wanted), "{what} gdb: no '{wanted}' in\n{out}");
        }
    }
}
