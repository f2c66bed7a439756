//! Listing to lines of text. Only this module and [`Isa::text`] make strings, and only when somebody asks.

use std::collections::HashSet;

use crate::cfi::{CfiOp, Tracker, entry_ops};
use crate::code::CodeBuf;
use crate::contract::Contract;
use crate::error::Result;
use crate::frame::Content;
use crate::isa::Isa;
use crate::listing::{Line, Listing};
use crate::names::Names;
use crate::objtool::{Note, Notes};
use crate::plan::Plan;
use crate::spec::Spec;
use crate::step::{Role, Step};
use crate::target::Target;

/// What a line is.
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

/// One line.
#[derive(Clone, Debug)]
pub struct TextLine {
    /// What it is.
    pub kind: LineKind,
    /// Instruction, label, heading or directive.
    pub text: String,
    /// What the instruction's value is to the C side.
    pub note: &'static str,
    /// Offset in the function.
    pub offset: usize,
    /// The instruction's bytes, relocated fields zero.
    pub bytes: Vec<u8>,
    /// What the line is for.
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
    }
}

pub(crate) fn render<I: Isa>(
    spec: &Spec,
    target: &Target,
    plan: &Plan,
    listing: &Listing<I::Insn>,
) -> Result<TextListing> {
    let frame = target.frame(spec.kind)?;
    let names = Names { frame: &frame, numbers: &target.numbers, symbols: &listing.symbols, function: spec.name };
    let entry = I::cfi_entry(spec.kind);
    let mut tracker = Tracker::new(&entry, target);
    let mut code = CodeBuf::default();
    let mut lines: Vec<TextLine> = Vec::new();
    let mut role = Role::Entry;
    let (mut notes, at_start) = Notes::new(target, &entry);
    let told = |note: Note, offset, role, lines: &mut Vec<TextLine>| {
        let mut line = |kind, text| lines.push(TextLine { kind, text, note: "", offset, bytes: Vec::new(), role });
        note.text().into_iter().for_each(|text| line(LineKind::Cfi, text));
        line(LineKind::Label, "911".to_owned());
    };
    at_start.into_iter().for_each(|note| told(note, 0, role, &mut lines));
    for line in &listing.lines {
        let offset = code.bytes.len();
        let about = match *line {
            Line::Insn(insn, _) => notes.before(&I::effects(insn)),
            Line::Inner(_) => notes.at_label(),
            _ => None,
        };
        about.into_iter().for_each(|note| told(note, offset, role, &mut lines));
        let (kind, text, note) = match *line {
            Line::Insn(insn, note) => {
                I::encode(insn, target, &mut code)?;
                tracker.after(&I::effects(insn));
                let mut text = String::new();
                // Writing to a String cannot fail.
                let _ = I::text(insn, &names, &mut text);
                (LineKind::Insn, text, note)
            }
            Line::Local(local) => {
                tracker.at_label(local);
                (LineKind::Label, format!(".L{}_{}", spec.name, local.suffix()), "")
            }
            Line::Inner(inner) => (LineKind::Global, target.convention.label(inner, spec.name, spec.kind).concat(), ""),
            Line::Misstate(_) => continue,
            Line::ReturnLost => {
                tracker.lose_return();
                continue;
            }
            Line::Block(new, heading) => {
                role = new;
                (LineKind::Heading, heading.to_owned(), "")
            }
        };
        let bytes = code.bytes[offset..].to_vec();
        lines.push(TextLine { kind, text, note, offset, bytes, role });
        let offset = code.bytes.len();
        lines.extend(tracker.ops.drain(..).map(|op| TextLine {
            kind: LineKind::Cfi,
            text: directive(op, target),
            note: "",
            offset,
            bytes: Vec::new(),
            role,
        }));
    }

    let mut cfi_entry: Vec<String> = Vec::new();
    if entry.column != target.facts.cie.column {
        cfi_entry.push(format!(".cfi_return_column {}", entry.column));
    }
    cfi_entry.extend(entry_ops(&entry, target).map(|op| directive(op, target)));

    let mut consts: Vec<(String, i32)> = target.numbers.iter().map(|n| (n.symbol.to_owned(), n.value)).collect();
    let used_fields = frame.fields.iter().filter(|f| f.content != Content::Unfilled);
    consts.extend(used_fields.map(|f| (f.symbol.to_owned(), f.offset)));
    consts.extend(frame.records.iter().map(|r| (r.symbol.to_owned(), r.offset)));
    consts.push((frame.size_symbol.to_owned(), frame.size));
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let uses = |name: &str| lines.iter().any(|l| l.text.split(|c| !word(c)).any(|w| w == name));
    let mut seen = HashSet::new();
    // A register's slot may be its result's too.
    consts.retain(|(name, _)| !name.is_empty() && uses(name) && seen.insert(name.clone()));

    Ok(TextListing {
        name: spec.name.to_owned(),
        export: spec.export.to_owned(),
        contract: Contract::of(spec, target)?,
        consts,
        cfi_entry,
        lines,
        steps: plan.steps.clone(),
        size: code.bytes.len(),
    })
}
