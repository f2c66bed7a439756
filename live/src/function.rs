//! Functions of the process.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use codegen::arch::entry::Class;
use codegen::arch::entry::Entry as Branch;

/// A function of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    pub(crate) name: String,
    pub(crate) object: Arc<Path>,
    pub(crate) range: Range<u64>,
    pub(crate) class: Class,
    pub(crate) reason: &'static str,
    pub(crate) entry: Entry,
    pub(crate) prototype: Option<String>,
}

/// The place at which a function is patched, and its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The address that is written to.
    pub at: u64,
    /// The bytes in the file.
    pub bytes: Vec<u8>,
    /// The bytes that are written there.
    pub room: Room,
}

/// The kind of patch that fits at an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// A compiler has left it, for a branch: the function goes on behind all bytes.
    Left,
    /// Instructions have to be moved. The branches that fit, the shortest first.
    Moved(Vec<Branch>),
    /// A breakpoint in place of the first instruction, and no branch.
    Trap,
}

impl Function {
    /// The name in the symbol table; empty if the function has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that it was loaded from.
    pub fn object(&self) -> PathBuf {
        self.object.to_path_buf()
    }

    /// Where it lies. The end is its start where the symbol table has no size.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The kind of patch that fits at its entry.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Why it is of that class.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// The same with its prototype in C. Handlers are then put around it with a frame on the stack in between, and nothing that belongs
    /// to the thread: contexts that change stacks work, and stack traces by frame pointers. Arguments on the stack do not go with that.
    #[must_use]
    pub fn with_prototype(mut self, prototype: &str) -> Function {
        self.prototype = Some(prototype.to_owned());
        self
    }
}
