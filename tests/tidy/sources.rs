//! The source files of the repository, and the modules of its crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The name of a file in messages and tables: its path below the root.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All Rust files below `dir` but those that cargo makes.
pub fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            all.extend(rust_files(&path));
        } else if name.ends_with(".rs") {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// A file, parsed.
pub fn parsed(path: &Path) -> syn::File {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A module in a file of its own.
pub struct Module {
    /// Where.
    pub file: PathBuf,
    /// Its items.
    pub items: Vec<Item>,
}

/// The modules of a crate that have files, by their path from the crate's root, which is the empty one.
pub type Modules = BTreeMap<Vec<String>, Module>;

/// The files that are roots of crates: libraries, programs and tests of several files.
pub fn crate_roots() -> Vec<PathBuf> {
    let is_root = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        let parent = path.parent().unwrap_or(path);
        let of_tests = name == "main.rs" && parent.parent().is_some_and(|p| p.ends_with("tests"));
        of_tests || (parent.ends_with("src") && (name == "lib.rs" || name == "main.rs"))
    };
    rust_files(&root()).into_iter().filter(is_root).collect()
}

/// The modules below the root of a crate.
pub fn modules(root: &Path) -> Modules {
    let mut all = Modules::new();
    let dir = root.parent().unwrap_or(root);
    collect(Vec::new(), root.to_path_buf(), dir, &mut all);
    all
}

/// One module and those below it, whose files are in `dir`.
fn collect(path: Vec<String>, file: PathBuf, dir: &Path, all: &mut Modules) {
    let items = parsed(&file).items;
    for item in &items {
        let Item::Mod(module) = item else { continue };
        if module.content.is_some() || for_tests(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        let below = dir.join(&name);
        let given = module.attrs.iter().find(|a| a.path().is_ident("path")).and_then(text);
        let candidates = match given {
            Some(given) => vec![file.parent().unwrap_or(dir).join(given)],
            None => vec![dir.join(format!("{name}.rs")), below.join("mod.rs")],
        };
        let found = candidates.into_iter().find(|c| c.exists());
        let found = found.unwrap_or_else(|| panic!("{}: no file for mod {name}", file.display()));
        // What is below a mod.rs is beside it, wherever that is.
        let below = if found.ends_with("mod.rs") { found.parent().unwrap_or(&below).to_path_buf() } else { below };
        collect([&path[..], &[name]].concat(), found, &below, all);
    }
    all.insert(path, Module { file, items });
}

/// Does something with these attributes exist in tests only?
pub fn for_tests(attrs: &[Attribute]) -> bool {
    let test = |list: &syn::MetaList| list.tokens.to_string() == "test";
    attrs.iter().any(|a| a.path().is_ident("cfg") && matches!(&a.meta, Meta::List(list) if test(list)))
}

/// The text of `#[name = "text"]`.
fn text(attr: &Attribute) -> Option<String> {
    match &attr.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}
