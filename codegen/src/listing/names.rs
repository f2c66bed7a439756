//! Names that replace numbers in the text of instructions.

use std::fmt;

use crate::arch::facts::Number;
use crate::ask::frame::FrameLayout;
use crate::listing::SymRef;
use crate::words::step::{Disp, Local, Name, Sym};

/// The names that an instruction's text needs.
pub struct Names<'n> {
    /// The frame's slots and size.
    pub frame: &'n FrameLayout,
    /// The profile's numbers.
    pub numbers: &'n [Number],
    /// The symbols of the listing.
    pub symbols: &'n [SymRef<'n>],
    /// The trampoline's name, for local labels.
    pub function: &'n str,
}

impl Names<'_> {
    /// An offset as text: a name, a name and a number, or a number.
    pub fn disp(&self, disp: Disp) -> DispText<'_> {
        let named = match disp.name {
            Name::None => None,
            Name::Field(i) => self.frame.fields.get(i as usize).map(|f| (f.symbol, f.offset)),
            Name::Record(i) => self.frame.records.get(i as usize).map(|r| (r.symbol, r.offset)),
            Name::FrameSize => Some((self.frame.size_symbol, self.frame.size)),
            Name::Number(i) | Name::Tls(_, i) => self.numbers.get(i as usize).map(|n| (n.symbol, n.value)),
        };
        DispText { value: disp.value, named }
    }

    /// The place to which a symbol index refers.
    pub fn sym(&self, sym: Sym) -> SymRef<'_> {
        self.symbols.get(sym.0 as usize).copied().unwrap_or(SymRef { name: "?", add: 0 })
    }

    /// A local label's name.
    pub fn local(&self, local: Local) -> LocalText<'_> {
        LocalText { function: self.function, local }
    }
}

/// Prints an [`Disp`].
pub struct DispText<'n> {
    value: i32,
    named: Option<(&'n str, i32)>,
}

impl fmt::Display for DispText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.named {
            None => write!(f, "{}", self.value),
            Some((name, base)) if base == self.value => f.write_str(name),
            Some((name, base)) if base < self.value => write!(f, "{name} + {}", self.value - base),
            // A negated name: what brings SP down by the frame.
            Some((name, base)) if base == -self.value => write!(f, "-{name}"),
            Some((name, base)) => write!(f, "{name} - {}", base - self.value),
        }
    }
}

/// Prints a local label.
pub struct LocalText<'n> {
    function: &'n str,
    local: Local,
}

impl fmt::Display for LocalText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".L{}_{}{}", self.function, self.local.suffix(), self.local.number())
    }
}
