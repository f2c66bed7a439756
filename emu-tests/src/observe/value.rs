//! Values, as they were observed.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use codegen::words::abi::Abi;
use codegen::words::term::{Part, Plus, Root, Term};

/// A value: for people it is a text, with `{:#}` and for programs it is in the language of contracts.
#[derive(Clone, Debug)]
pub struct Value {
    term: Term,
    abi: &'static Abi,
}

/// Serializing and describing what `{:#}` writes.
macro_rules! text {
    ($($type:ty),*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(&format_args!("{self:#}"))
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                String::schema_name()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }

            fn inline_schema() -> bool {
                true
            }
        }
    )*};
}
pub(super) use text;

text!(Value, Offset);

impl Value {
    pub(super) fn new(term: Term, abi: &'static Abi) -> Value {
        Value { term, abi }
    }

    /// What it is, without the names of registers.
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// A called function has stored it, or the address where it was.
    pub fn is_stored(&self) -> bool {
        fn stored(term: &Term) -> bool {
            match &term.root {
                Root::Stored(_) => true,
                Root::Content(at) => stored(at),
                _ => false,
            }
        }
        stored(&self.term)
    }

    /// Where it is an address of code, it may be behind the beginning of a function: something is added on the way to it.
    pub fn is_behind(&self) -> bool {
        fn behind(term: &Term, abi: &Abi) -> bool {
            let inside = |at: &Term| at.root == Root::Reg(abi.sp) || behind(at, abi);
            term.add > 0 || matches!(&term.root, Root::Content(at) if inside(at))
        }
        behind(&self.term, self.abi)
    }

    /// It is a word that was above SP at the entry.
    pub fn is_on_stack(&self) -> bool {
        matches!(&self.term.root, Root::Content(at) if at.root == Root::Reg(self.abi.sp))
    }

    /// It is the address of this symbol.
    pub fn is_symbol(&self, name: &str) -> bool {
        self.term.add == 0 && matches!(&self.term.root, Root::Symbol(symbol) if **symbol == *name)
    }

    /// The register that held it at the entry.
    pub fn register(&self) -> Option<&'static str> {
        match self.term {
            Term { root: Root::Reg(reg), add: 0, part: Part::All } => Some(self.abi.name(reg)),
            _ => None,
        }
    }

    /// The call that left it in a register, as it is, and that register.
    pub fn left_by(&self) -> Option<(u16, &'static str)> {
        match self.term {
            Term { root: Root::Left(call, reg), add: 0, part: Part::All } => Some((call, self.abi.name(reg))),
            _ => None,
        }
    }

    /// The same of another register, where it is what a call left in one.
    pub(super) fn left_in(&self, name: &str) -> Option<Value> {
        match (self.term.root.clone(), self.abi.find(name)?) {
            (Root::Left(call, _), reg) => Some(Value::new(Root::Left(call, reg).into(), self.abi)),
            _ => None,
        }
    }

    /// Nobody has written it.
    pub fn is_older(&self) -> bool {
        self.term.root == Root::Older
    }

    /// Does somebody rely on it? Not on what a call has left, nor on an address in the stack or a small number.
    pub fn is_relied_on(&self) -> bool {
        fn relied(term: &Term, abi: &Abi) -> bool {
            match &term.root {
                Root::Left(_, reg) => abi.rets.contains(reg),
                Root::Reg(reg) => *reg != abi.sp,
                Root::Content(at) => at.root == Root::Reg(abi.sp) || relied(at, abi),
                Root::Older => false,
                Root::Number => !term.is_small(),
                _ => true,
            }
        }
        relied(&self.term, self.abi)
    }

    /// The same without the lowest bit of what was stored: that is set for what tests it.
    pub(super) fn without_the_bit(&self) -> Cow<'_, Value> {
        match self.term {
            Term { root: Root::Stored(_), add: 1, .. } => {
                Cow::Owned(Value::new(self.term.root.clone().into(), self.abi))
            }
            _ => Cow::Borrowed(self),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.term.show(self.abi), f)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.term == other.term
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        self.term.cmp(&other.term)
    }
}

/// Bytes from where something begins, such as a frame: `0x078`, `-0x008`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Offset(pub i64);

impl Offset {
    /// How far `at` is from `base`.
    pub(super) fn between(base: u64, at: u64) -> Offset {
        Offset(at.wrapping_sub(base) as i64)
    }

    /// In the words that have this name.
    pub(super) fn of(self, name: &str) -> String {
        format!("{name}{}{self}", if self.0 < 0 { "" } else { "+" })
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:#05x}", if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs())
    }
}

/// Where a word is that a called function stores to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// In what it has a pointer to.
    Frame(Offset),
    /// So many bytes from where SP was at the entry.
    Stack(i64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, f.alternate()) {
            (Place::Frame(at), false) => f.write_str(&at.of("frame")),
            (Place::Frame(at), true) => write!(f, "frame{}", Plus(at.0)),
            (Place::Stack(at), false) => write!(f, "[stack+{at:#x}]"),
            (Place::Stack(at), true) => write!(f, "[sp{}]", Plus(*at)),
        }
    }
}

text!(Place);
