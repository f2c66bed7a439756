// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a source gets switches: at conditions, which are then false, and at statements that change something, which are then left out.

use proc_macro2::{LineColumn, Span};
use syn::visit::{self, Visit};
use syn::{Expr, ExprIf, ItemMod, Stmt};

use crate::failure::Failure;

/// A place with a switch; its number is that of its place in the list.
pub struct Point {
    /// Whose it is.
    pub checker: &'static str,
    /// The file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// What is removed.
    pub text: String,
}

/// Text that goes in before an offset.
struct Insertion {
    at: usize,
    text: String,
}

struct Finder<'a> {
    checker: &'static str,
    file: &'a str,
    source: &'a str,
    /// Offsets of the lines.
    lines: Vec<usize>,
    all: &'a mut Vec<Point>,
    insertions: Vec<Insertion>,
}

/// The source with switches, which are added to `all`.
pub fn points(checker: &'static str, file: &str, source: &str, all: &mut Vec<Point>) -> Result<String, Failure> {
    let parsed = syn::parse_file(source).map_err(|e| Failure::new(file, e.to_string(), "mend it"))?;
    let ends = source.match_indices('\n').map(|(end, _)| end + 1);
    let lines = [0].into_iter().chain(ends).collect();
    let mut finder = Finder { checker, file, source, lines, all, insertions: Vec::new() };
    finder.visit_file(&parsed);
    let mut insertions = finder.insertions;
    insertions.sort_by_key(|insertion| insertion.at);
    let mut text = source.to_owned();
    for insertion in insertions.iter().rev() {
        text.insert_str(insertion.at, &insertion.text);
    }
    Ok(text)
}

impl Finder<'_> {
    fn offset(&self, at: LineColumn) -> usize {
        let start = self.lines[at.line - 1];
        let line = &self.source[start..];
        start + line.char_indices().nth(at.column).map_or(line.len(), |(offset, _)| offset)
    }

    /// Put a switch around what is between two places, with these words before and behind it.
    fn switch(&mut self, (from, to): (LineColumn, LineColumn), before: &str, behind: &str) {
        let (start, end) = (self.offset(from), self.offset(to));
        let text = self.source[start..end].split_whitespace().collect::<Vec<_>>().join(" ");
        let before = before.replace('#', &self.all.len().to_string());
        self.insertions.push(Insertion { at: start, text: before });
        self.insertions.push(Insertion { at: end, text: behind.to_owned() });
        let (checker, file, line) = (self.checker, self.file.to_owned(), from.line);
        self.all.push(Point { checker, file, line, text });
    }
}

/// Does it bind something?
fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(both) => binds(&both.left) || binds(&both.right),
        _ => false,
    }
}

/// Where a call begins that begins with a name.
fn start(call: &Expr) -> Option<Span> {
    match call {
        Expr::MethodCall(call) => start(&call.receiver),
        Expr::Call(call) => start(&call.func),
        Expr::Field(field) => start(&field.base),
        Expr::Index(index) => start(&index.expr),
        Expr::Try(tried) => start(&tried.expr),
        Expr::Path(path) => path.path.segments.first().map(|segment| segment.ident.span()),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_if(&mut self, branch: &'ast ExprIf) {
        let (before, behind) = if binds(&branch.cond) {
            (" !crate::removed::is(#) &&", "")
        } else {
            (" !crate::removed::is(#) && (", ") ")
        };
        let place = (branch.if_token.span.end(), branch.then_branch.brace_token.span.open().start());
        self.switch(place, before, behind);
        visit::visit_expr_if(self, branch);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(call @ (Expr::MethodCall(_) | Expr::Call(_)), Some(semicolon)) = statement
            && let Some(start) = start(call)
        {
            self.switch((start.start(), semicolon.span.end()), "if !crate::removed::is(#) { ", " }");
        }
        visit::visit_stmt(self, statement);
    }
}
