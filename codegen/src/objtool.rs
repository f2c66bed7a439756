//! What the kernel's objtool must be told of a trampoline, because the code does not show it (kernel
//! tools/objtool/Documentation/objtool.txt, include/linux/objtool_types.h).

use crate::effects::{CfiEntry, Effects, Flow};
use crate::target::Target;

/// Something about the place where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// The address is taken, but nobody branches here: it needs no landing pad.
    NoLandingPad,
    /// This call is there for what it pushes.
    IntraCall,
    /// CFA is so many bytes above SP.
    Cfa(i16),
    /// The stack is as objtool wants it where a function returns.
    AsAtEntry,
}

/// The sections, in the order of [`Note::section`], each with its alignment.
pub const SECTIONS: [(&str, &str, u64); 3] = [
    (".discard.noendbr", ".rela.discard.noendbr", 1),
    (".discard.intra_function_calls", ".rela.discard.intra_function_calls", 1),
    (".discard.unwind_hints", ".rela.discard.unwind_hints", 4),
];

/// SP, and the types of hints, as objtool numbers them.
const SP: u8 = 5;
const CALL: u8 = 2;
const FUNC: u8 = 5;

impl Note {
    /// Number of its section in [`SECTIONS`].
    pub fn section(self) -> usize {
        match self {
            Note::NoLandingPad => 0,
            Note::IntraCall => 1,
            Note::Cfa(_) | Note::AsAtEntry => 2,
        }
    }

    /// What follows the four bytes of the place, and makes that word a distance: an offset from SP and a type.
    pub fn hint(self) -> Option<(i16, u8)> {
        match self {
            Note::NoLandingPad | Note::IntraCall => None,
            Note::Cfa(offset) => Some((offset, CALL)),
            Note::AsAtEntry => Some((8, FUNC)),
        }
    }

    /// The entry, its word still to be relocated: place, offset, register, type, no signal frame, padding.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        if let Some((offset, kind)) = self.hint() {
            bytes.extend(offset.to_le_bytes());
            bytes.extend([SP, kind, 0, 0, 0, 0]);
        }
        bytes
    }

    /// The same for GNU as; the label `911` follows it.
    pub fn text(self) -> Vec<String> {
        let (section, ..) = SECTIONS[self.section()];
        let mut lines = vec![format!(".pushsection {section}")];
        match self.hint() {
            None => lines.push(".long\t911f".to_owned()),
            Some((offset, kind)) => lines.extend([
                ".balign\t4".to_owned(),
                ".long\t911f - .".to_owned(),
                format!(".short\t{offset}"),
                format!(".byte\t{SP}, {kind}, 0, 0, 0, 0"),
            ]),
        }
        lines.push(".popsection".to_owned());
        lines
    }
}

/// Finds what must be said, line by line of a listing.
pub struct Notes {
    wanted: bool,
    rebalanced: bool,
}

impl Notes {
    /// For one trampoline, with what stands at its start.
    pub fn new(target: &Target, entry: &CfiEntry) -> (Notes, Vec<Note>) {
        let wanted = target.objtool && target.facts.objtool.is_some();
        let mut start = Vec::new();
        if wanted && entry.undefined {
            start.extend([Note::NoLandingPad, Note::Cfa(entry.cfa_offset as i16)]);
        }
        (Notes { wanted, rebalanced: false }, start)
    }

    /// At a global label.
    pub fn at_label(&self) -> Option<Note> {
        self.wanted.then_some(Note::NoLandingPad)
    }

    /// Before an instruction with these effects.
    pub fn before(&mut self, effects: &Effects) -> Option<Note> {
        let note = match effects.flow {
            Flow::Jump(_) if effects.stores > 0 => Note::IntraCall,
            // Where it goes is not where a function returns to.
            Flow::Leave if self.rebalanced => Note::AsAtEntry,
            _ => return None,
        };
        self.rebalanced = note == Note::IntraCall;
        self.wanted.then_some(note)
    }
}
