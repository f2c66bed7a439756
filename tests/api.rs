//! The public API of the library is what tramptool/api.txt lists: who changes it sees it in that file.

mod common;

use std::path::{Path, PathBuf};

use proc_macro2::Span;
use syn::{Attribute, Fields, ImplItem, Item, UseTree, Visibility};

use common::blessed;

/// A file of the library, to be quoted.
struct Source {
    lines: Vec<String>,
    items: Vec<Item>,
}

impl Source {
    fn read(path: &Path) -> Source {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let items = syn::parse_file(&text).unwrap().items;
        Source { lines: text.lines().map(str::to_owned).collect(), items }
    }

    /// What stands between two places, without line breaks.
    fn between(&self, from: Span, to: Span) -> String {
        let (from, to) = (from.start(), to.start());
        let mut text = String::new();
        for n in from.line..=to.line {
            let line = &self.lines[n - 1];
            let start = if n == from.line { from.column } else { 0 };
            let end = if n == to.line { to.column } else { line.len() };
            text.push_str(line[start..end].trim());
            text.push(' ');
        }
        text.trim().replace("( ", "(").replace(", )", ")")
    }

    /// The public items, each in a line or more.
    fn api(&self, out: &mut Vec<String>) {
        for item in &self.items {
            match item {
                Item::Fn(f) if public(&f.vis) => {
                    out.push(format!("pub {}", self.between(f.sig.fn_token.span, f.block.brace_token.span.open())));
                }
                Item::Struct(s) if public(&s.vis) => {
                    out.push(format!("{}pub struct {}", grows(&s.attrs), s.ident));
                    if let Fields::Named(fields) = &s.fields {
                        for pair in fields.named.pairs().filter(|p| public(&p.value().vis)) {
                            let (field, comma) = (pair.value(), pair.punct().expect("rustfmt puts one").spans[0]);
                            let name = field.ident.as_ref().unwrap();
                            out.push(format!("pub {}.{}", s.ident, self.between(name.span(), comma)));
                        }
                    }
                }
                Item::Enum(e) if public(&e.vis) => {
                    let variants: Vec<String> = e.variants.iter().map(|v| v.ident.to_string()).collect();
                    out.push(format!("{}pub enum {} {{ {} }}", grows(&e.attrs), e.ident, variants.join(", ")));
                }
                Item::Impl(i) => {
                    let of = self.between(i.impl_token.span, i.brace_token.span.open());
                    if i.trait_.is_some() {
                        out.push(of);
                        continue;
                    }
                    for item in &i.items {
                        if let ImplItem::Fn(f) = item
                            && public(&f.vis)
                        {
                            let sig = self.between(f.sig.fn_token.span, f.block.brace_token.span.open());
                            out.push(format!("{of}: pub {sig}"));
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn grows(attrs: &[Attribute]) -> &'static str {
    if attrs.iter().any(|a| a.path().is_ident("non_exhaustive")) { "#[non_exhaustive] " } else { "" }
}

/// The names that a `use` gives away, each with its path.
fn given(tree: &UseTree, path: &str, out: &mut Vec<String>) {
    match tree {
        UseTree::Path(p) => given(&p.tree, &format!("{path}{}::", p.ident), out),
        UseTree::Name(name) => out.push(format!("pub use {path}{}", name.ident)),
        UseTree::Group(group) => group.items.iter().for_each(|item| given(item, path, out)),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("say what is public by its own name"),
    }
}

#[test]
fn the_api_is_what_is_listed() {
    let src = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tramptool/src");
    let root = Source::read(&src.join("lib.rs"));
    let mut out = Vec::new();
    for item in &root.items {
        match item {
            Item::Use(u) if public(&u.vis) => given(&u.tree, "", &mut out),
            Item::Mod(m) if public(&m.vis) => {
                let hidden = root.lines[m.mod_token.span.start().line - 2] == "#[doc(hidden)]";
                assert!(hidden && m.ident == "internal", "{} is a public module", m.ident);
            }
            Item::Mod(m) => Source::read(&src.join(format!("{}.rs", m.ident))).api(&mut out),
            _ => panic!("an item in lib.rs"),
        }
    }
    assert!(out.len() > 40, "{out:?}");
    out.sort();
    blessed("tramptool/api.txt", &(out.join("\n") + "\n"));
}

/// What the library makes is what the tool makes, and its numbers are those of the manifest.
#[test]
fn the_library_and_the_tool_agree() {
    let b = common::Bench::new();
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let target = tramptool::Target::with_profile(arch, "bare").unwrap();
        let spec = tramptool::Spec::direct("g").sig("long f(long a, double b)");
        let made = tramptool::generate(&target, &[spec]).unwrap();
        let args = ["gen", "direct", "--sig", "long f(long a, double b)", "--call", "g", "--arch", arch];
        let emit = |kind: &str| {
            let more = ["--profile", "bare", "--emit", kind, "-o", "out"];
            b.ok(&[&args[..], &more].concat());
            std::fs::read(b.path(&format!("out/{arch}.{kind}").replace(".asm", ".S").replace(".obj", ".o"))).unwrap()
        };
        assert_eq!(made.text().unwrap().into_bytes(), emit("asm"));
        assert_eq!(made.object().unwrap(), emit("obj"));
        assert_eq!(made.bytes(), emit("bin"));
        assert_eq!(made.header().unwrap().into_bytes(), emit("h"));
        let manifest: serde_json::Value = serde_json::from_slice(&emit("json")).unwrap();
        let told = &manifest["trampolines"][0];
        let (contract, cost) = (made.contract("g_tramp").unwrap(), made.cost("g_tramp").unwrap());
        assert_eq!(serde_json::json!(contract.kept), told["contract"]["kept"]);
        assert_eq!(serde_json::json!(cost.stack), told["cost"]["stack"]);
        assert_eq!(serde_json::json!(cost.paths[0].executed), told["cost"]["paths"][0]["executed"]);
        assert!(made.contract("f").unwrap_err().to_string().contains("valid: g_tramp"));
        let refused = target.clone().set("perhaps", "on").unwrap_err();
        assert!(refused.to_string().contains("valid: "), "{refused}");
        let verdict = made.judge().unwrap();
        assert!(verdict.failures.is_empty() && verdict.passed >= 10, "{verdict:?}");
    }
}

/// Of programs, the library has Linux's form, with functions around them that the user names.
#[test]
fn the_library_and_the_tool_agree_on_what_is_called_around_programs() {
    let b = common::Bench::new();
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let target = tramptool::Target::with_profile(arch, "linux-7.3").unwrap();
        let spec = tramptool::Spec::programs("long f(long a)").function("f").fentry("p", u64::MAX).fexit("q", 7);
        let spec = spec.around_each("enter", "exit").around_all("first", "last");
        let made = tramptool::generate(&target, &[spec]).unwrap();
        let what = ["gen", "programs", "--sig", "long f(long a)", "--function", "f", "--arch", arch, "--emit", "bin"];
        let list = ["--fentry", "p:0xffffffffffffffff", "--fexit", "q:7"];
        let around = ["--around", "enter,exit", "--around-all", "first,last", "--profile", "linux-7.3", "-o", "out"];
        b.ok(&[&what[..], &list, &around].concat());
        assert_eq!(made.bytes(), std::fs::read(b.path(&format!("out/{arch}.bin"))).unwrap());
        let relocations = made.relocations().unwrap();
        let to = |name: &str| relocations.iter().any(|r| r.to == tramptool::Referent::Symbol(name.to_owned()));
        assert!(["enter", "exit", "first", "last"].into_iter().all(to), "{relocations:?}");
    }
}

/// A template is what `gen --emit template` writes, and relocations are those of the object.
#[test]
fn templates_and_relocations_are_those_of_the_tool() {
    use object::{Object, ObjectSection, RelocationFlags};
    let b = common::Bench::new();
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let target = tramptool::Target::with_profile(arch, "bare").unwrap();
        let spec = tramptool::Spec::record("f", tramptool::Events::Both).clock(tramptool::Clock::Word).id(7);
        let made = tramptool::generate(&target, &[spec.sig("long f(long a)").result()]).unwrap();
        let record = ["gen", "record", "--events", "both", "--clock", "word", "--id", "7", "--function", "f"];
        let how = ["--sig", "long f(long a)", "--result", "--profile", "bare", "--arch", arch, "--stem", "t"];
        b.ok(&[&record[..], &how, &["--emit", "template,obj"]].concat());
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(b.path("t.template.json")).unwrap()).unwrap();
        let template = made.template().unwrap();
        let hex: String = template.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((json["bytes"].as_str(), json["entry"].as_u64()), (Some(&*hex), Some(template.entry.into())));
        assert_eq!(
            (json["name"].as_str(), json["align"].as_u64()),
            (Some(&*template.name), Some(template.align.into()))
        );
        let told = |fixups: &[tramptool::FixUp]| {
            let one = |f: &tramptool::FixUp| {
                let symbol = format!("{:?}", f.symbol).to_lowercase();
                let (at, r_type, place, addend) = (f.offset, f.r_type, f.place, f.addend);
                serde_json::json!({ "offset": at, "type": r_type, "name": f.name, "symbol": symbol, "place": place, "addend": addend })
            };
            fixups.iter().map(one).collect::<Vec<_>>()
        };
        let fields = told(&template.fixups);
        assert!(fields.len() > 3 && json["fixups"] == serde_json::json!(fields), "{arch}: {fields:?}");
        let hex: String = template.unwind.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let unwind = serde_json::json!({ "bytes": hex, "fixups": told(&template.unwind.fixups) });
        assert_eq!(json["unwind"], unwind, "{arch}");

        let bytes = std::fs::read(b.path("t.o")).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let mut wanted: Vec<(u64, u32)> = text
            .relocations()
            .map(|(at, reloc)| match reloc.flags() {
                RelocationFlags::Elf { r_type } => (at, r_type.0),
                other => panic!("{other:?}"),
            })
            .collect();
        wanted.sort_unstable();
        let relocations = made.relocations().unwrap();
        let mut found: Vec<(u64, u32)> = relocations.iter().map(|r| (r.offset.into(), r.r_type)).collect();
        found.sort_unstable();
        assert_eq!(found, wanted, "{arch}");
        let to = |name: &str| relocations.iter().any(|r| r.to == tramptool::Referent::Symbol(name.to_owned()));
        assert!(to("f") && to("trace_clock"), "{relocations:?}");

        let direct = tramptool::generate(&target, &[tramptool::Spec::direct("g").args(1)]).unwrap();
        assert!(direct.template().unwrap_err().to_string().contains("g_tramp neither records nor is a sled"));

        // A copy has in each field what belongs there, or there is none.
        let template = made.template().unwrap();
        let mut copy = vec![0; template.bytes.len()];
        let near = |id| tramptool::Filling { id, function: 0x1_0000, clock: 0x1_8000, ..Default::default() };
        template.copy_to(&target, 0x2_0000, &near(7), &mut copy).unwrap();
        assert_ne!(copy, template.bytes, "{arch}");
        let refused = |at, filling: &_, bytes: usize| {
            template.copy_to(&target, at, filling, &mut vec![0; bytes]).unwrap_err().to_string()
        };
        let whole = template.bytes.len();
        assert!(refused(0x2_0000, &near(7), whole - 1).contains("valid: as much room"));
        assert!(refused(0x2_0000, &near(tramptool::Filling::IDS), whole).contains("valid: 0 to 8388"));
        assert!(refused(1 << 40, &near(7), whole).contains(" reach"), "{arch}");
    }
}

/// A table has an entry for each copy, and an end. What is out of reach changes nothing.
#[test]
fn unwind_tables_grow_with_the_arena() {
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let target = tramptool::Target::with_profile(arch, "bare").unwrap();
        let spec = tramptool::Spec::record("f", tramptool::Events::Both).clock(tramptool::Clock::None).unwind();
        let template = tramptool::generate(&target, &[spec.sig("long f(long a)")]).unwrap().template().unwrap();
        let mut table = tramptool::UnwindTable::new(0x3_0000);
        let lengths = |table: &tramptool::UnwindTable| {
            let (mut at, mut all, bytes) = (0, Vec::new(), table.bytes());
            while let Some(length) = bytes.get(at..at + 4) {
                all.push(u32::from_le_bytes(length.try_into().unwrap()));
                at += 4 + all[all.len() - 1] as usize;
            }
            assert_eq!(at, bytes.len(), "{arch}");
            all
        };
        assert_eq!(lengths(&table), [0], "{arch}");
        table.add(&target, &template, 0x2_0000).unwrap();
        table.add(&target, &template, 0x2_1000).unwrap();
        let [cie, fde, second_cie, second_fde, 0] = lengths(&table)[..] else { panic!("{arch}: {table:?}") };
        assert_eq!((cie, fde), (second_cie, second_fde), "{arch}");
        // S + A - P.
        let from = 4 + cie as usize + 8;
        let distance = i32::from_le_bytes(table.bytes()[from..from + 4].try_into().unwrap());
        assert_eq!(distance, 0x2_0000 - (0x3_0000 + from as i32), "{arch}");
        let before = table.clone();
        assert!(table.add(&target, &template, 1 << 40).is_err() && table == before, "{arch}");
    }
}
