//! Listing to code, in one pass: the code of a trampoline that has no name and no place yet.

use crate::ask::spec::{Event, Kind, Spec};
use crate::effect::effects::CfiEntry;
use crate::effect::faults::Misstated;
use crate::listing::code::{CodeBuf, Fixup, Ref};
use crate::listing::isa::{Architecture, Instruction, Labels};
use crate::listing::{Line, Listing, unbound};
use crate::out::cfi::{StoredReturn, Tracker};
use crate::out::eh_frame::Rules;
use crate::out::objtool::{Notes, Told};
use crate::profile::target::Target;
use crate::words::error::Result;
use crate::words::step::{KernelLabel, Local};

/// The code of a listing. Offsets count from its first byte, that of what the unwind table describes in front of the
/// trampoline.
#[derive(Default, Debug)]
pub(crate) struct Shape {
    code: CodeBuf,
    /// The offset at which the trampoline begins.
    pub start: usize,
    /// How unwinding starts.
    pub entry: CfiEntry,
    /// How it goes on.
    pub rules: Rules,
    /// Labels inside the trampoline, by [`Local::index`].
    pub labels: Vec<Option<usize>>,
    /// Labels that the tracer's C code knows.
    pub kernel_labels: Vec<(usize, KernelLabel)>,
    /// Instructions that have the number of the function, and of which event.
    pub numbers: Vec<(usize, Event)>,
    /// Annotations for objtool.
    pub notes: Vec<(usize, Told)>,
    /// What became of the return address on its way to memory.
    pub stored: StoredReturn,
    /// The fault in the whole unwind table, for a mutant.
    pub misstated: Option<Misstated>,
    /// What followed the last listing: the next is mostly of the same kind.
    tracker: Option<(Kind, Box<Tracker>)>,
}

impl Shape {
    /// The bytes.
    pub(crate) fn code(&self) -> &[u8] {
        &self.code.bytes
    }

    /// The fields that wait for addresses which follow from the place.
    pub(crate) fn fixups(&self) -> &[Fixup] {
        &self.code.fixups
    }

    /// The offset at which the range of the unwind table begins.
    pub(crate) fn described(&self) -> usize {
        if self.misstated == Some(Misstated::Late) { self.start } else { 0 }
    }

    /// Encode a listing in place of what was encoded before. Of a mutant, the unwind table goes wrong before the line that is
    /// misstated.
    pub(crate) fn encode<I: Architecture + Labels>(
        &mut self,
        spec: &Spec,
        target: &Target,
        listing: &Listing<impl Instruction>,
        misstated: Option<(usize, Misstated)>,
    ) -> Result<()> {
        self.misstated = misstated.filter(|(before, _)| *before == 0).map(|(_, wrong)| wrong);
        self.entry = I::cfi_entry(spec.kind);
        let mut tracker = self.tracker(spec.kind, target)?;
        let (mut notes, at_start) = Notes::new(spec.kind, target, &self.entry);
        self.entry.signal &= self.misstated != Some(Misstated::Called);
        self.code.bytes.clear();
        self.code.fixups.clear();
        self.code.bytes.extend_from_slice(target.lead(spec.kind).0);
        self.start = self.code.bytes.len();
        self.rules.begin(self.described() as u32, &self.entry, self.misstated);
        self.labels.clear();
        self.labels.resize(Local::COUNT, None);
        self.kernel_labels.clear();
        self.numbers.clear();
        self.notes.clear();
        self.notes.extend(at_start.into_iter().map(|note| (self.start, note)));
        tracker.start(spec);
        self.rules.change(self.start as u32, &mut tracker.ops, target);
        let mut opaque_from = 0;
        for (at, line) in listing.lines.iter().enumerate() {
            let offset = self.code.bytes.len();
            if let Some((_, wrong)) = misstated.filter(|(before, _)| *before == at) {
                tracker.misstate(wrong);
                self.rules.change(offset as u32, &mut tracker.ops, target);
            }
            match *line {
                Line::Insn(insn, _) => {
                    let effects = insn.effects();
                    self.notes.extend(notes.before(&effects).map(|note| (offset, note)));
                    insn.encode(target, &mut self.code)?;
                    if self.code.fixups.len() > opaque_from {
                        opaque_from = self.code.fixups.len();
                        if self.code.fixups.last().is_some_and(|f| I::opaque_after(f.r_type)) {
                            self.rules.opaque();
                        }
                    }
                    tracker.after(&effects);
                }
                Line::Local(local) => {
                    self.labels[local.index()] = Some(offset);
                    tracker.at_label(local);
                }
                Line::KernelLabel(label) => {
                    self.notes.extend(notes.at_label().map(|note| (offset, note)));
                    self.kernel_labels.push((offset, label));
                }
                Line::Block(..) => {}
                Line::ReturnLost => tracker.lose_return(),
                Line::ReturnFound => tracker.find_return(),
                Line::Numbered(event) => self.numbers.push((offset, event)),
            }
            if !tracker.ops.is_empty() {
                self.rules.change(self.code.bytes.len() as u32, &mut tracker.ops, target);
            }
        }
        self.stored = tracker.stored;
        self.tracker = Some((spec.kind, tracker));
        self.patch::<I>(spec)
    }

    /// What follows a listing of this kind: that which followed the last, if it was of the same.
    fn tracker(&mut self, kind: Kind, target: &Target) -> Result<Box<Tracker>> {
        match self.tracker.take() {
            Some((of, mut tracker)) if of == kind => {
                tracker.restart();
                Ok(tracker)
            }
            _ => Ok(Box::new(Tracker::new(&self.entry, target)?)),
        }
    }

    /// Put distances to labels into instructions. The fixups that stay are those for which GNU as leaves a relocation.
    fn patch<I: Labels>(&mut self, spec: &Spec) -> Result<()> {
        let CodeBuf { bytes, fixups } = &mut self.code;
        let mut stay = 0;
        for i in 0..fixups.len() {
            let fixup = fixups[i];
            if let Ref::Local(local) = fixup.to {
                let label = self.labels[local.index()].ok_or_else(|| unbound(local, spec))?;
                if !I::patch_local(fixup.r_type, bytes, fixup.at, label)? {
                    continue;
                }
            }
            fixups[stay] = fixup;
            stay += 1;
        }
        fixups.truncate(stay);
        Ok(())
    }
}
