//! Files and functions can be read whole.

use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use crate::excuses::{Excuses, judge};
use crate::sources::{parsed, root, rust_files, shown};

/// The most lines of a file.
const FILE: usize = 600;
/// The most lines of a function, from `fn` to its brace.
const FUNCTION: usize = 80;

/// Files that are longer.
const FILES: &Excuses = &[];

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

#[test]
fn no_file_is_too_long() {
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    let wrong = rust_files(&root()).into_iter().filter_map(|path| {
        let (name, lines) = (shown(&path), lines(&path));
        (lines > FILE).then(|| (name.clone(), format!("{name} has {lines} lines; valid: up to {FILE}")))
    });
    judge("files", wrong.collect(), FILES);
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
