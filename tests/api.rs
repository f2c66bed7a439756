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
