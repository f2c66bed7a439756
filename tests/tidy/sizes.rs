//! Functions can be read whole, and files that may be too long are known: what belongs together may stay together.

use std::io::Write;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use crate::excuses::{Excuses, judge};
use crate::sources::{parsed, root, rust_files, shown};

/// A file of more lines gets a warning.
const FILE: usize = 600;
/// The most lines of a function, from `fn` to its brace.
const FUNCTION: usize = 80;

/// Functions that are longer.
const FUNCTIONS: &Excuses = &[];

/// The functions of a file that are too long, with their lines.
#[derive(Default)]
struct Long(Vec<(String, usize)>);

impl Long {
    fn look(&mut self, signature: &Signature, body: &Block) {
        let lines = body.brace_token.span.close().end().line + 1 - signature.fn_token.span.start().line;
        if lines > FUNCTION {
            self.0.push((signature.ident.to_string(), lines));
        }
    }
}

impl<'ast> Visit<'ast> for Long {
    fn visit_item_fn(&mut self, f: &'ast ItemFn) {
        self.look(&f.sig, &f.block);
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast ImplItemFn) {
        self.look(&f.sig, &f.block);
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast TraitItemFn) {
        if let Some(body) = &f.default {
            self.look(&f.sig, body);
        }
        visit::visit_trait_item_fn(self, f);
    }
}

fn long_functions(file: &syn::File) -> Vec<(String, usize)> {
    let mut long = Long::default();
    long.visit_file(file);
    long.0
}

/// A warning for each file that is too long.
fn warnings(files: Vec<PathBuf>) -> Vec<String> {
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    let warning = |path: PathBuf| {
        let (name, lines) = (shown(&path), lines(&path));
        (lines > FILE).then(|| format!("warning: {name} has {lines} lines: does it hold more than one thing?"))
    };
    files.into_iter().filter_map(warning).collect()
}

#[test]
fn long_files_are_reported() {
    // Not `eprintln`, which tests that pass show to nobody.
    let mut stderr = std::io::stderr();
    for warning in warnings(rust_files(&root())) {
        writeln!(stderr, "{warning}").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, lines) in [("long.rs", FILE + 1), ("short.rs", FILE)] {
        std::fs::write(dir.path().join(name), "\n".repeat(lines)).unwrap();
    }
    let warnings = warnings(rust_files(dir.path()));
    assert!(matches!(&warnings[..], [one] if one.contains("long.rs has 601 lines")), "{warnings:?}");
}

#[test]
fn no_function_is_too_long() {
    let wrong = rust_files(&root()).into_iter().flat_map(|path| {
        let file = shown(&path);
        long_functions(&parsed(&path)).into_iter().map(move |(function, lines)| {
            let name = format!("{file}: {function}");
            (name.clone(), format!("{name} has {lines} lines; valid: up to {FUNCTION}"))
        })
    });
    judge("functions", wrong.collect(), FUNCTIONS);
}

#[test]
fn functions_are_measured_wherever_they_are() {
    let of = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
    let found = |text: &str| long_functions(&syn::parse_file(text).unwrap());
    assert_eq!(found(&of(FUNCTION)), []);
    let expected = ("f".to_owned(), FUNCTION + 1);
    let long = of(FUNCTION + 1);
    for around in ["", "impl T", "trait T", "mod m", "fn outer()"] {
        let text = if around.is_empty() { long.clone() } else { format!("{around} {{ {long} }}") };
        assert!(found(&text).contains(&expected), "{around}");
    }
    assert_eq!(found(&format!("/// {}\n{}", "doc\n/// ".repeat(FUNCTION), of(3))), [], "a comment is no code");
}
