//! Listing to lines of text. Only this module and [`Instruction::text`] make strings, and only when somebody asks.

use std::collections::HashSet;

use crate::ask::frame::{Content, FrameLayout};
use crate::ask::spec::Spec;
use crate::contract::Contract;
use crate::effect::effects::CfiEntry;
use crate::listing::code::{CodeBuf, Ref};
use crate::listing::isa::{Architecture, Instruction};
use crate::listing::names::Names;
use crate::listing::{Line, Listing};
use crate::out::cfi::{CfiOp, StoredReturn, Tracker, entry_ops};
use crate::out::cost::{self, Cost};
use crate::out::eh_frame::moved;
use crate::out::objtool::{Notes, Told};
use crate::plan::Plan;
use crate::profile::lsda;
use crate::profile::target::Target;
use crate::words::error::Result;
use crate::words::step::{Role, Step};

/// The kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineKind {
    /// An instruction.
    Insn,
    /// A label inside the function.
    Label,
    /// A global label.
    Global,
    /// A block's heading; its text may be empty.
    Heading,
    /// A `.cfi_` directive.
    Cfi,
}

/// One line of the text.
#[derive(Clone, Debug)]
pub struct TextLine {
    /// The kind of the line.
    pub kind: LineKind,
    /// Instruction, label, heading or directive.
    pub text: String,
    /// A note on the meaning of the instruction's value in C.
    pub note: &'static str,
    /// Offset in the function.
    pub offset: usize,
    /// The instruction's bytes, relocated fields zero.
    pub bytes: Vec<u8>,
    /// The purpose of the line.
    pub role: Role,
}

/// One trampoline as text.
#[derive(Clone, Debug)]
pub struct TextListing {
    /// The symbol.
    pub name: String,
    /// Another name for it, which a kernel's modules may link to; empty for none.
    pub export: String,
    /// The contract.
    pub contract: Contract,
    /// What became of its return address on its way to memory.
    pub stored: StoredReturn,
    /// The cost of the trampoline.
    pub cost: Cost,
    /// The names of offsets that the lines use, with their values.
    pub consts: Vec<(String, i32)>,
    /// Directives that follow `.cfi_startproc`.
    pub cfi_entry: Vec<String>,
    /// The lines.
    pub lines: Vec<TextLine>,
    /// The plan that they come from.
    pub steps: Vec<Step>,
    /// Bytes of code.
    pub size: usize,
    /// The table of call sites, as lines; empty if it has no landing pad for exceptions.
    pub table: Vec<String>,
    /// Symbols that no other program or shared object may define.
    pub protected: Vec<String>,
}

fn column(target: &Target, number: u16) -> String {
    let prefix = target.facts.reg_prefix;
    match target.facts.abi.regs.iter().find(|r| r.dwarf == number) {
        Some(reg) => format!("{prefix}{}", reg.name),
        None => number.to_string(),
    }
}

fn directive(op: CfiOp, target: &Target) -> String {
    let (prefix, abi) = (target.facts.reg_prefix, &target.facts.abi);
    match op {
        CfiOp::DefCfaOffset(offset) => format!(".cfi_def_cfa_offset {offset}"),
        CfiOp::DefCfa(reg, offset) => format!(".cfi_def_cfa {prefix}{}, {offset}", abi.name(reg)),
        CfiOp::DefCfaRegister(reg) => format!(".cfi_def_cfa_register {prefix}{}", abi.name(reg)),
        CfiOp::Offset(c, offset) => format!(".cfi_offset {}, {offset}", column(target, c)),
        CfiOp::Register(c, reg) => format!(".cfi_register {}, {prefix}{}", column(target, c), abi.name(reg)),
        CfiOp::Restore(c) => format!(".cfi_restore {}", column(target, c)),
        CfiOp::SameValue(c) => format!(".cfi_same_value {}", column(target, c)),
        CfiOp::Undefined(c) => format!(".cfi_undefined {}", column(target, c)),
        CfiOp::Signed => ".cfi_negate_ra_state".to_owned(),
        CfiOp::Moved(c, by) => {
            let bytes = moved(c, by).map(|byte| format!("{byte:#x}"));
            format!(".cfi_escape {}", bytes.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Lines so far, and where they are.
struct Lines<'t> {
    target: &'t Target,
    lines: Vec<TextLine>,
    role: Role,
    code: CodeBuf,
}

impl Lines<'_> {
    /// A line of what was encoded since `offset`.
    fn push(&mut self, kind: LineKind, text: String, note: &'static str, offset: usize) {
        let bytes = self.code.bytes.get(offset..).unwrap_or_default().to_vec();
        self.lines.push(TextLine { kind, text, note, offset, bytes, role: self.role });
    }

    /// Append objtool's annotations for this place.
    fn objtool(&mut self, (note, form): Told) {
        let offset = self.code.bytes.len();
        for text in note.text(form) {
            self.push(LineKind::Cfi, text, "", offset);
        }
        self.push(LineKind::Label, "911".to_owned(), "", offset);
    }

    /// The rules that hold from here on.
    fn rules(&mut self, tracker: &mut Tracker) {
        let offset = self.code.bytes.len();
        for op in tracker.ops.drain(..) {
            self.push(LineKind::Cfi, directive(op, self.target), "", offset);
        }
    }
}

pub(crate) fn render<I: Architecture>(
    spec: &Spec,
    target: &Target,
    plan: &Plan,
    listing: &Listing<impl Instruction>,
) -> Result<TextListing> {
    let frame = target.frame(spec.kind)?;
    let names = Names { frame: &frame, numbers: &target.numbers, symbols: &listing.symbols, function: spec.name };
    let entry = I::cfi_entry(spec.kind);
    let mut tracker = Tracker::new(&entry, target)?;
    let mut out = Lines { target, lines: Vec::new(), role: Role::Entry, code: CodeBuf::default() };
    let (mut notes, at_start) = Notes::new(spec.kind, target, &entry);
    at_start.into_iter().for_each(|note| out.objtool(note));
    tracker.start(spec);
    out.rules(&mut tracker);
    for line in &listing.lines {
        let offset = out.code.bytes.len();
        match *line {
            Line::Insn(insn, note) => {
                let effects = insn.effects();
                notes.before(&effects).into_iter().for_each(|note| out.objtool(note));
                insn.encode(target, &mut out.code)?;
                tracker.after(&effects);
                let mut text = String::new();
                // Writing to a String cannot fail.
                let _ = insn.text(&names, &mut text);
                out.push(LineKind::Insn, text, note, offset);
                out.rules(&mut tracker);
            }
            Line::Local(local) => {
                tracker.at_label(local);
                out.push(LineKind::Label, names.local(local).to_string(), "", offset);
                out.rules(&mut tracker);
            }
            Line::KernelLabel(label) => {
                notes.at_label().into_iter().for_each(|note| out.objtool(note));
                out.push(LineKind::Global, target.convention.label(label, spec.name, spec.kind).concat(), "", offset);
                out.rules(&mut tracker);
            }
            Line::Block(role, heading) => {
                out.role = role;
                out.push(LineKind::Heading, heading.to_owned(), "", offset);
                out.rules(&mut tracker);
            }
            Line::ReturnLost => {
                tracker.lose_return();
                out.rules(&mut tracker);
            }
            Line::ReturnFound => {
                tracker.find_return();
                out.rules(&mut tracker);
            }
            Line::Numbered(_) => {}
        }
    }
    let Lines { lines, code, .. } = out;
    for fixup in &code.fixups {
        if let Ref::Local(local) = fixup.to {
            listing.label(local, spec)?;
        }
    }
    Ok(TextListing {
        name: spec.name.to_owned(),
        export: spec.export.to_owned(),
        contract: Contract::of(spec, target)?,
        stored: tracker.stored,
        cost: cost::cost(spec, target, listing)?,
        consts: consts(&frame, target, &lines),
        cfi_entry: first_directives(spec, &entry, target),
        table: if has_table(spec) { lsda::text(spec.name) } else { Vec::new() },
        lines,
        steps: plan.steps.clone(),
        size: code.bytes.len(),
        protected: protected(spec),
    })
}

fn protected(spec: &Spec) -> Vec<String> {
    let mut all: Vec<String> = spec.own_symbols().map(str::to_owned).collect();
    all.sort();
    all.dedup();
    all
}

/// Does it have a landing pad for exceptions?
fn has_table(spec: &Spec) -> bool {
    spec.kind.recorder().is_some_and(|recorder| recorder.unwind)
}

/// The directives behind `.cfi_startproc`.
fn first_directives(spec: &Spec, entry: &CfiEntry, target: &Target) -> Vec<String> {
    let personality = [
        format!(".cfi_personality {:#x}, {}", lsda::PERSONALITY_ENCODING, lsda::POINTER_LABEL),
        format!(".cfi_lsda {:#x}, {}", lsda::TABLE_ENCODING, lsda::label(spec.name)),
    ];
    let personality = personality.into_iter().filter(|_| has_table(spec));
    let moved = entry.column != target.facts.cie.column;
    let column = moved.then(|| format!(".cfi_return_column {}", entry.column));
    let signal = entry.signal.then(|| ".cfi_signal_frame".to_owned());
    personality.chain(column).chain(signal).chain(entry_ops(entry, target).map(|op| directive(op, target))).collect()
}

/// The names of offsets that these lines use, with their values.
fn consts(frame: &FrameLayout, target: &Target, lines: &[TextLine]) -> Vec<(String, i32)> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let words: HashSet<&str> = lines.iter().flat_map(|l| l.text.split(|c| !word(c))).collect();
    let numbers = target.numbers.iter().map(|n| (n.symbol, n.value));
    let filled = frame.fields.iter().filter(|f| f.content != Content::Unfilled);
    let records = frame.records.iter().map(|r| (r.symbol, r.offset));
    let mut all: Vec<(&str, i32)> = numbers.chain(filled.map(|f| (f.symbol, f.offset))).chain(records).collect();
    all.push((frame.size_symbol, frame.size));
    let mut seen = HashSet::new();
    // A register's slot may be its result's too.
    all.retain(|(name, _)| !name.is_empty() && words.contains(name) && seen.insert(*name));
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
