//! The types in a prototype, as far as calling conventions distinguish them.

use std::ops::Range;

use super::lex::{Token, tokens};
use crate::words::error::Error;

/// The most arguments that a function may have, as for the kernel's own tailored trampolines.
pub const MOST_ARGS: usize = 12;
/// The most bytes of one argument.
pub const MOST_BYTES: u32 = 16;

/// The class of a scalar, as far as calling conventions distinguish it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// An integer, or bytes that are passed like one.
    Integer,
    /// A pointer: beside a floating-point number, compilers for RISC-V do not pass it like an integer.
    Pointer,
    /// A floating-point number.
    Float,
}

/// A number or a pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scalar {
    /// The size in bytes, which is also the alignment.
    pub size: u32,
    /// The class of the scalar.
    pub class: Class,
}

impl Scalar {
    /// Is it a floating-point number?
    pub fn is_float(self) -> bool {
        self.class == Class::Float
    }
}

/// A struct by value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Struct {
    /// Bytes.
    pub size: u32,
    /// Bytes to which it is aligned.
    pub align: u32,
    /// The members with their offsets; structs and arrays are split into scalars. Empty if only the size was given, or if
    /// there are too many to matter.
    pub members: Vec<(u32, Scalar)>,
}

/// A type that can be passed or returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// A number or a pointer.
    Scalar(Scalar),
    /// A struct by value.
    Struct(Struct),
}

impl Type {
    /// Bytes.
    pub fn size(&self) -> u32 {
        match self {
            Type::Scalar(s) => s.size,
            Type::Struct(s) => s.size,
        }
    }

    /// Bytes to which it is aligned.
    pub fn align(&self) -> u32 {
        match self {
            Type::Scalar(s) => s.size,
            Type::Struct(s) => s.align,
        }
    }

    /// Its members, or the scalar itself.
    pub fn members(&self) -> Vec<(u32, Scalar)> {
        match self {
            Type::Scalar(s) => vec![(0, *s)],
            Type::Struct(s) => s.members.clone(),
        }
    }
}

/// A pointer.
pub(super) const POINTER: Type = Type::Scalar(Scalar { size: 8, class: Class::Pointer });

/// A prototype.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prototype {
    /// The function's name.
    pub name: String,
    /// The type of the result; `None` for `void`.
    pub result: Option<Type>,
    /// The types of the arguments.
    pub args: Vec<Type>,
    pub(super) text: String,
    /// The offset of each argument in the text, and then that of the result.
    pub(super) places: Vec<usize>,
    /// The range of the parameters in the text, with their parentheses.
    pub(super) params: Range<usize>,
}

impl Prototype {
    /// A prototype without text: errors have only the function's name.
    pub fn of(name: &str, result: Option<Type>, args: Vec<Type>) -> Prototype {
        Prototype { name: name.to_owned(), result, args, text: name.to_owned(), places: Vec::new(), params: 0..0 }
    }

    /// An error about argument number `arg`, or about the result.
    pub fn refuse(&self, arg: Option<usize>, message: &str) -> Error {
        let at = self.places.get(arg.unwrap_or(self.args.len())).copied().unwrap_or(0);
        Error::marked(message, &self.text, at)
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parameters as they were given, with their parentheses.
    pub fn params(&self) -> &str {
        self.text.get(self.params.clone()).unwrap_or_default()
    }

    /// The tags behind `keyword`, which is `struct`, `union` or `enum`, in the parameters, each once.
    pub fn tags(&self, keyword: &str) -> Vec<&str> {
        let tokens = tokens(self.params()).unwrap_or_default();
        let mut tags: Vec<&str> = Vec::new();
        for pair in tokens.windows(2) {
            if let [(Token::Word(word), _), (Token::Word(tag), _)] = *pair
                && word == keyword
                && !tags.contains(&tag)
            {
                tags.push(tag);
            }
        }
        tags
    }
}
