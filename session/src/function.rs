//! A function of a file: what is written to trace it, or why it is not traced.

use codegen::arch::entry::{Class, Entry};

use crate::signature::Signature;

/// A function that can be traced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// The name in the symbol table; empty if that has none for the function.
    pub name: String,
    /// The address in the file.
    pub address: u64,
    /// The size in bytes, 0 if unknown.
    pub size: u64,
    /// Address in the file of the branch that is written.
    pub site: u64,
    /// The site's bytes from there on.
    pub bytes: Vec<u8>,
    /// The branches that fit there, the shortest first; none where a compiler has left room.
    pub entries: Vec<Entry>,
    /// What is known of its arguments and its result; `None` if nobody has looked ([`crate::prototypes::read`]).
    pub signature: Option<Signature>,
}

/// A function that cannot be traced, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The function's name, or empty.
    pub name: String,
    /// Its address in the file, and how many bytes it has, if no compiler has left room there.
    pub code: Option<(u64, u64)>,
    /// How its entry could be patched, if no compiler has left room there.
    pub class: Option<Class>,
    /// The reason.
    pub why: &'static str,
}
