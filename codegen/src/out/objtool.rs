//! Annotations for the kernel's objtool, for facts that the code of a trampoline does not show (kernel
//! tools/objtool/Documentation/objtool.txt, include/linux/objtool_types.h).

use crate::ask::kind::Kind;
use crate::effect::effects::{CfiEntry, Effects, Flow};
use crate::profile::Objtool;
use crate::profile::target::Target;

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

/// A section of what objtool is told.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The name, and that of its relocations.
    pub name: (&'static str, &'static str),
    /// In bytes.
    pub align: u64,
    /// Bytes of an entry, where the section says so: linkers may take two that are alike for one.
    pub entry: u64,
}

/// The sections, in the order of [`Note::section`].
pub const SECTIONS: [Section; 4] = [
    Section { name: (".discard.noendbr", ".rela.discard.noendbr"), align: 1, entry: 0 },
    Section { name: (".discard.intra_function_calls", ".rela.discard.intra_function_calls"), align: 1, entry: 0 },
    Section { name: (".discard.annotate_insn", ".rela.discard.annotate_insn"), align: 1, entry: 8 },
    Section { name: (".discard.unwind_hints", ".rela.discard.unwind_hints"), align: 4, entry: 0 },
];

/// The types of hints, as objtool numbers them.
const CALL: u8 = 2;
const FUNC: u8 = 5;

impl Note {
    /// Number of its section in [`SECTIONS`].
    pub fn section(self, form: Objtool) -> usize {
        match (self, form.types) {
            (Note::NoLandingPad, None) => 0,
            (Note::IntraCall, None) => 1,
            (Note::NoLandingPad | Note::IntraCall, Some(_)) => 2,
            (Note::Cfa(_) | Note::AsAtEntry, _) => 3,
        }
    }

    /// The type number, if one section has several types.
    fn called(self, form: Objtool) -> Option<u32> {
        let [no_landing_pad, intra_call] = form.types?;
        match self {
            Note::NoLandingPad => Some(no_landing_pad),
            Note::IntraCall => Some(intra_call),
            Note::Cfa(_) | Note::AsAtEntry => None,
        }
    }

    /// The word of the place is a distance, and no address.
    pub fn is_distance(self, form: Objtool) -> bool {
        self.hint().is_some() || form.types.is_some()
    }

    /// The bytes behind the four bytes of the place: an offset from SP and a type.
    fn hint(self) -> Option<(i16, u8)> {
        match self {
            Note::NoLandingPad | Note::IntraCall => None,
            Note::Cfa(offset) => Some((offset, CALL)),
            Note::AsAtEntry => Some((8, FUNC)),
        }
    }

    /// The entry, its word still to be relocated: place, offset, register, type, no signal frame, padding.
    pub fn bytes(self, form: Objtool) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        if let Some((offset, kind)) = self.hint() {
            bytes.extend(offset.to_le_bytes());
            bytes.extend([form.sp, kind, 0, 0, 0, 0]);
        }
        bytes.extend(self.called(form).into_iter().flat_map(u32::to_le_bytes));
        bytes
    }

    /// The annotation as text for GNU as; the label `911` follows it.
    pub fn text(self, form: Objtool) -> Vec<String> {
        let Section { name: (name, _), entry, .. } = SECTIONS[self.section(form)];
        let flags = if entry == 0 { String::new() } else { format!(", \"M\", @progbits, {entry}") };
        let mut lines = vec![format!(".pushsection {name}{flags}")];
        match (self.hint(), self.called(form)) {
            (None, None) => lines.push(".long\t911f".to_owned()),
            (None, Some(called)) => lines.push(format!(".long\t911f - ., {called}")),
            (Some((offset, kind)), _) => lines.extend([
                ".balign\t4".to_owned(),
                ".long\t911f - .".to_owned(),
                format!(".short\t{offset}"),
                format!(".byte\t{}, {kind}, 0, 0, 0, 0", form.sp),
            ]),
        }
        lines.push(".popsection".to_owned());
        lines
    }
}

/// An annotation, and its form.
pub type Told = (Note, Objtool);

/// Finds what must be said, line by line of a listing.
pub struct Notes {
    wanted: Option<Objtool>,
    rebalanced: bool,
}

impl Notes {
    /// For one trampoline of this kind, with what stands at its start.
    pub fn new(kind: Kind, target: &Target, entry: &CfiEntry) -> (Notes, Vec<Told>) {
        let form = target.convention.kernel.as_ref().and_then(|kernel| kernel.objtool);
        let notes = Notes { wanted: form.filter(|_| target.objtool), rebalanced: false };
        let mut start = Vec::new();
        if entry.undefined || target.convention.no_landing_pad.contains(&kind) {
            start.extend(notes.told(Note::NoLandingPad));
        }
        if entry.undefined {
            start.extend(notes.told(Note::Cfa(entry.cfa_offset as i16)));
        }
        (notes, start)
    }

    fn told(&self, note: Note) -> Option<Told> {
        self.wanted.map(|form| (note, form))
    }

    /// At a global label.
    pub fn at_label(&self) -> Option<Told> {
        self.told(Note::NoLandingPad)
    }

    /// Before an instruction with these effects.
    pub fn before(&mut self, effects: &Effects) -> Option<Told> {
        let note = match effects.flow {
            Flow::Jump(_) if effects.stores > 0 => Note::IntraCall,
            // Where it goes is not where a function returns to.
            Flow::Leave if self.rebalanced => Note::AsAtEntry,
            _ => return None,
        };
        self.rebalanced = note == Note::IntraCall;
        self.told(note)
    }
}
