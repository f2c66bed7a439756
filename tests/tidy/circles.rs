//! Imports between the files of a crate go one way: who reads a file need not have read those that use it.
//!
//! What counts is a path in the source, also in the tokens of a macro's call: `use crate::a::B`, `super::b::f()`, `child::C`.
//! A name that a module only passes on (`pub use`) leads to the file that has it. Methods are called without a path, so a
//! child that adds methods to a type of its parent is no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

use crate::excuses::{Excuses, judge};
use crate::sources::{Modules, crate_roots, for_tests, modules, root, shown};

/// Crates, by their root, in which files do.
const CIRCLES: &Excuses = &[];

/// A path as it stands in the source.
type Segments = Vec<String>;

/// All paths of a module, but those in tests and those that it passes on.
#[derive(Default)]
struct Paths {
    found: Vec<Segments>,
    /// Modules inside of the file around what is visited.
    inside: usize,
}

impl Paths {
    /// A path inside of `mod m { .. }` begins there.
    fn add(&mut self, mut path: Segments) {
        for _ in 0..self.inside {
            match path.first().map(String::as_str) {
                Some("super") => drop(path.remove(0)),
                Some("self") => return,
                _ => break,
            }
        }
        // What is in the file itself.
        if path.len() > 1 {
            self.found.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        let attrs = match item {
            Item::Mod(m) => &m.attrs,
            Item::Fn(f) => &f.attrs,
            Item::Use(u) => &u.attrs,
            Item::Impl(i) => &i.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !for_tests(attrs) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_some() {
            self.inside += 1;
            visit::visit_item_mod(self, module);
            self.inside -= 1;
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let passed_on = !matches!(item.vis, Visibility::Inherited);
        for (path, _) in flat(&item.tree) {
            let all = path.last().is_some_and(|last| last == "*");
            if !passed_on || all {
                self.add(path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.add(path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        in_tokens(call.tokens.clone(), &mut |path| self.add(path));
    }
}

/// The paths in tokens that nobody parsed.
fn in_tokens(tokens: TokenStream, found: &mut impl FnMut(Segments)) {
    let mut path: Segments = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if path.is_empty() || colons == 2 => {
                path.push(ident.to_string());
                colons = 0;
                continue;
            }
            TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() && colons < 2 => {
                colons += 1;
                continue;
            }
            TokenTree::Ident(ident) => {
                found(std::mem::replace(&mut path, vec![ident.to_string()]));
                colons = 0;
                continue;
            }
            TokenTree::Group(group) => in_tokens(group.stream(), found),
            _ => {}
        }
        found(std::mem::take(&mut path));
        colons = 0;
    }
    found(path);
}

/// The paths of a `use`, each with the name that it gets; `*` for all.
fn flat(tree: &UseTree) -> Vec<(Segments, String)> {
    let one = |name: String, renamed: String| vec![(vec![name], renamed)];
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let below = flat(&path.tree).into_iter().map(|(rest, name)| match rest.as_slice() {
                [only] if only == "self" => (vec![first.clone()], if name == "self" { first.clone() } else { name }),
                _ => ([vec![first.clone()], rest].concat(), name),
            });
            below.collect()
        }
        UseTree::Name(name) => one(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(r) => one(r.ident.to_string(), r.rename.to_string()),
        UseTree::Glob(_) => one("*".to_owned(), "*".to_owned()),
        UseTree::Group(group) => group.items.iter().flat_map(flat).collect(),
    }
}

/// What a module passes on: names, with where they come from.
fn passed_on(items: &[Item]) -> Vec<(Segments, String)> {
    let uses = items.iter().filter_map(|item| match item {
        Item::Use(u) if !matches!(u.vis, Visibility::Inherited) => Some(flat(&u.tree)),
        _ => None,
    });
    uses.flatten().collect()
}

/// The module that a path in module `from` leads to; nothing if that is in another crate.
fn resolve(all: &Modules, from: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
    let mut at = from.to_vec();
    let mut rest = path;
    let mut begun = false;
    while let Some(first) = rest.first() {
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()?),
            _ => break,
        }
        begun = true;
        rest = &rest[1..];
    }
    while let Some(name) = rest.first() {
        let below = [&at[..], std::slice::from_ref(name)].concat();
        if !all.contains_key(&below) {
            break;
        }
        (at, rest, begun) = (below, &rest[1..], true);
    }
    if !begun {
        return None;
    }
    let elsewhere = |name: &String| passed_on(&all.get(&at)?.items).into_iter().find(|(_, n)| n == name);
    match rest.first().and_then(elsewhere) {
        Some((source, _)) if depth > 0 => resolve(all, &at, &source, depth - 1).or(Some(at)),
        _ => Some(at),
    }
}

/// Which module imports which.
fn imports(all: &Modules) -> BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> {
    let of = |path: &Vec<String>, items: &[Item]| {
        let mut paths = Paths::default();
        items.iter().for_each(|item| paths.visit_item(item));
        let found = paths.found.iter().filter_map(|p| resolve(all, path, p, 8));
        found.filter(|to| to != path && all.contains_key(to)).collect()
    };
    all.iter().map(|(path, module)| (path, of(path, &module.items))).collect()
}

/// The shortest way from a module back to itself.
fn circle<'m>(
    of: &'m Vec<String>,
    imports: &'m BTreeMap<&Vec<String>, BTreeSet<Vec<String>>>,
) -> Option<Vec<&'m Vec<String>>> {
    let mut ways = vec![vec![of]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                if next == of {
                    return Some(way);
                }
                if seen.insert(next) {
                    longer.push([&way[..], &[next]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

/// The circles of the crate below this directory.
fn circles(all: &Modules) -> Vec<String> {
    let imports = imports(all);
    let mut found = BTreeMap::new();
    for way in all.keys().filter_map(|path| circle(path, &imports)) {
        let names: Vec<String> = way.iter().map(|path| shown(&all[*path].file)).collect();
        let message = format!("{} -> {}", names.join(" -> "), names[0]);
        found.entry(names.into_iter().collect::<BTreeSet<_>>()).or_insert(message);
    }
    found.into_values().collect()
}

#[test]
fn no_files_import_each_other() {
    let roots = crate_roots();
    assert!(roots.len() > 10, "{roots:?}");
    let wrong = roots.iter().flat_map(|root| circles(&modules(root)).into_iter().map(move |c| (shown(root), c)));
    judge("circles of imports", wrong.collect(), CIRCLES);
}

/// Crates whose folders are layers.
const LAYERED: [&str; 2] = ["codegen", "emu-tests"];

/// The layers of a crate, as the numbered list in the documentation of its root has them.
fn layers(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("//! ")?.split_once(". `"));
    let numbered = lines.filter(|(number, _)| number.chars().all(|c| c.is_ascii_digit()));
    numbered.map(|(_, rest)| rest.split('`').next().unwrap_or_default().to_owned()).collect()
}

/// The imports that lead to a later layer, and the modules that are in none.
fn against_the_layers(all: &Modules, layers: &[String]) -> Vec<String> {
    let layer = |module: &[String]| layers.iter().position(|layer| module.first() == Some(layer));
    let below: Vec<_> = imports(all).into_iter().filter(|(module, _)| !module.is_empty()).collect();
    let astray = below.iter().filter(|(module, _)| layer(module).is_none());
    let astray = astray.map(|(module, _)| format!("{} is in no layer", shown(&all[*module].file)));
    let up = below.iter().flat_map(|(module, used)| {
        let later = used.iter().filter(|used| !used.is_empty() && layer(module) < layer(used));
        later.map(|used| format!("{} uses {} of a later layer", shown(&all[*module].file), shown(&all[used].file)))
    });
    astray.chain(up).collect()
}

#[test]
fn folders_use_those_before_them() {
    for name in LAYERED {
        let root = root().join(name).join("src/lib.rs");
        let (all, layers) = (modules(&root), layers(&root));
        assert!(layers.len() > 7, "{name}: {layers:?}");
        let gone: Vec<_> = layers.iter().filter(|layer| !all.contains_key(std::slice::from_ref(*layer))).collect();
        assert!(gone.is_empty(), "{name}: layers without a folder: {gone:?}");
        let wrong = against_the_layers(&all, &layers);
        assert!(wrong.is_empty(), "{name}:\n  {}", wrong.join("\n  "));
    }
}

#[test]
fn an_import_of_a_later_layer_is_seen() {
    let judged = |a: &str, b: &str, layers: [&str; 2]| {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("src");
        let files = [("lib.rs", "mod a;\nmod b;\n"), ("a/mod.rs", "pub mod x;"), ("a/x.rs", a), ("b/mod.rs", b)];
        for (name, text) in files {
            let path = src.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        against_the_layers(&modules(&src.join("lib.rs")), &layers.map(str::to_owned)).len()
    };
    assert_eq!(judged("use crate::b::B;", "pub struct B;", ["a", "b"]), 1);
    assert_eq!(judged("use crate::b::B;", "pub struct B;", ["b", "a"]), 0);
    assert_eq!(judged("pub struct A;", "use crate::a::x::A;", ["a", "b"]), 0);
    assert_eq!(judged("pub struct A;", "", ["a", "other"]), 1, "a folder that is in no layer");
}

/// Crates of two or three files, and whether two of them import each other.
#[test]
fn circles_are_seen_however_they_are_written() {
    let judged = |files: [(&str, &str); 3]| {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join("src").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        circles(&modules(&dir.path().join("src/lib.rs"))).len()
    };
    let two = |a: &str, b: &str| judged([("lib.rs", "mod a;\nmod b;\n"), ("a.rs", a), ("b.rs", b)]);
    assert_eq!(two("use crate::b::B;", "pub struct B;"), 0);
    for a in [
        "use crate::b::B;",
        "use super::b::{self, B};",
        "use crate::{b};",
        "fn f() { crate::b::g() }",
        "fn f() { let _: Vec<super::b::B> = vec![]; }",
        "fn f() { println!(\"{}\", crate::b::g()) }",
        "mod inside { use super::super::b::B; }",
        "use crate::b::*;",
    ] {
        assert_eq!(two(a, "use crate::a::A;"), 1, "{a}");
    }
    assert_eq!(two("#[cfg(test)]\nmod tests { use crate::b::B; }", "use crate::a::A;"), 0, "a test");
    assert_eq!(two("mod inside { use super::A; }", "use crate::a::A;"), 0, "of the file itself");
    assert_eq!(two("use other::b::B;", "use crate::a::A;"), 0, "of another crate");
    // A name that the root passes on is that of the file that has it.
    let root = "mod a;\nmod b;\npub use a::A;\npub use b::B;\n";
    assert_eq!(judged([("lib.rs", root), ("a.rs", "use crate::B;"), ("b.rs", "use crate::A;")]), 1);
    assert_eq!(judged([("lib.rs", root), ("a.rs", "use crate::B;"), ("b.rs", "")]), 0);
    // A parent that uses its child, and the child its parent.
    let parent = "mod b;\nfn f() { b::g() }\npub struct P;\n";
    assert_eq!(judged([("lib.rs", "mod a;"), ("a/mod.rs", parent), ("a/b.rs", "use super::P;")]), 1);
    assert_eq!(judged([("lib.rs", "mod a;"), ("a/mod.rs", parent), ("a/b.rs", "pub fn g() {}")]), 0);
}
