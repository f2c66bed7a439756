//! The `.S` file.

use askama::Template;
use codegen::arch::facts::{Facts, Promise};
use codegen::arch::harden::TypeWord;
use codegen::out::cfi::StoredReturn;
use codegen::out::text::{LineKind, TextLine, TextListing};
use codegen::profile::lsda;
use codegen::profile::target::{Returns, Target};
use codegen::words::error::{Error, Result};

/// Where the text of a contract breaks.
const WIDTH: usize = 100;
/// Where right-hand comments start, if the instruction leaves room: a column, with tabs of 8.
const NOTE_COLUMN: usize = 40;

#[derive(Template)]
#[template(path = "listing.S")]
struct Asm<'a> {
    c: &'a str,
    version: &'a str,
    title: String,
    profile: &'a str,
    options: String,
    made_by: String,
    exports: bool,
    /// A function has a landing pad for exceptions: the section with the pointer to whom unwinders ask, its label, and he.
    personality: Option<[&'static str; 3]>,
    /// The section with tables of call sites.
    tables: &'static str,
    /// The words of `.note.gnu.property` behind its name, and what they say.
    properties: Option<(String, String)>,
    prologue: &'a [String],
    align: u32,
    fill: &'a str,
    padding: &'static [u8],
    function_type: &'a str,
    progbits: &'a str,
    functions: Vec<Function<'a>>,
}

struct Function<'a> {
    name: &'a str,
    export: &'a str,
    protected: &'a [String],
    declaration: String,
    consts: Vec<String>,
    contract: Vec<String>,
    cfi_entry: &'a [String],
    /// Its type, where callers look for one.
    typed: Vec<String>,
    /// What stands before its label and is in its unwind table.
    lead: &'static [&'static str],
    lines: Vec<String>,
    table: &'a [String],
}

/// Render trampolines as one file that GNU as accepts as it stands.
///
/// # Errors
/// The template engine's; there is no input that causes one.
pub fn asm(listings: &[TextListing], target: &Target, stem: &str) -> Result<String> {
    let facts = target.facts;
    let gcc = match (facts.e_flags.gcc)(target.e_flags) {
        "" => String::new(),
        options => {
            let gcc = facts.assembler.strip_suffix("as").unwrap_or_default();
            format!(", or {gcc}gcc {options} -c {stem}.S")
        }
    };
    let made_by = format!("Assemble with: {} {stem}.S -o {stem}.o{gcc}", facts.assembler);
    let mut prologue = target.prologue.clone();
    if !target.unwind_tables {
        // None.
        prologue.push(".cfi_sections".to_owned());
    }
    render(listings, target, facts.comment, made_by, &prologue)
}

/// Render trampolines as one file that kbuild accepts: the C preprocessor goes over it, to which `#` would be a directive.
/// Unwind tables are for debuggers only, as in all of a kernel.
///
/// # Errors
/// As [`asm`].
pub fn preprocessed(listings: &[TextListing], target: &Target) -> Result<String> {
    let mut prologue = target.prologue.clone();
    prologue.push(".cfi_sections .debug_frame".to_owned());
    render(listings, target, "//", "Assembled by kbuild".to_owned(), &prologue)
}

fn render(
    listings: &[TextListing],
    target: &Target,
    comment: &str,
    made_by: String,
    prologue: &[String],
) -> Result<String> {
    let facts = target.facts;
    let functions = listings
        .iter()
        .map(|listing| Function {
            name: &listing.name,
            export: &listing.export,
            protected: &listing.protected,
            declaration: format!("void {}(void)", listing.name),
            consts: consts(listing, comment),
            contract: listing.contract.sentences().iter().flat_map(|s| wrap(s)).collect(),
            cfi_entry: &listing.cfi_entry,
            typed: target.typed(listing.contract.kind).map_or(Vec::new(), |word| typed(word, &listing.name, facts)),
            lead: target.lead(listing.contract.kind).1,
            lines: lines(&listing.lines, comment),
            table: &listing.table,
        })
        .collect();
    let title = match listings {
        [one] => format!("{} {}", facts.name, one.name),
        _ => format!("{}, {} trampolines", facts.name, listings.len()),
    };
    let asm = Asm {
        c: comment,
        version: env!("CARGO_PKG_VERSION"),
        title,
        profile: target.convention.profile,
        options: target.describe(),
        made_by,
        properties: properties(listings, target),
        personality: listings.iter().any(|l| !l.table.is_empty()).then_some([
            lsda::POINTER,
            lsda::POINTER_LABEL,
            lsda::PERSONALITY,
        ]),
        tables: lsda::TABLES,
        exports: listings.iter().any(|l| !l.export.is_empty()),
        prologue,
        align: facts.align,
        fill: facts.fill.1,
        padding: target.harden.padding,
        function_type: facts.function_type,
        progbits: facts.progbits,
        functions,
    };
    asm.render().map_err(|e| Error::new(format!("listing.S: {e}")))
}

/// The type before a function, and the local function that is all of it, where there is one.
/// The property note of these.
fn properties(listings: &[TextListing], target: &Target) -> Option<(String, String)> {
    let paired = listings.iter().all(|l| l.contract.is_paired());
    let stored = listings.iter().fold(StoredReturn::default(), |all, l| all.and(l.stored));
    let returns = Returns { paired, signed: stored.all_signed() };
    let [.., property, size, bits, padding] = target.property_note(returns)?;
    let marks = target.facts.marks.as_ref()?;
    let has = |promise| bits & marks.bits(promise) != 0;
    let words = [
        (has(Promise::Pads), "has landing pads"),
        (has(Promise::Signed), "signs return addresses"),
        (has(Promise::Paired) || has(Promise::Guarded), "goes with a shadow stack"),
    ];
    let words: Vec<&str> = words.into_iter().filter(|(holds, _)| *holds).map(|(_, words)| words).collect();
    let said = match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{}, and {last}", first.join(", ")),
        words => words.concat(),
    };
    Some((format!("{property:#x}, {size}, {bits}, {padding}"), format!("all code {said}")))
}

fn typed(word: TypeWord, function: &str, facts: &Facts) -> Vec<String> {
    let TypeWord { before, after, labelled, .. } = word;
    let bytes = |bytes: &[u8]| -> Vec<String> {
        let runs = bytes.chunk_by(|a, b| a == b);
        runs.map(|run| match run {
            [one] => format!("\t.byte\t{one:#x}"),
            more => format!("\t.skip\t{}, {:#x}", more.len(), more[0]),
        })
        .collect()
    };
    let mut lines = Vec::new();
    let label = [TypeWord::LABEL, function].concat();
    if labelled {
        lines.extend([format!("\t.type\t{label}, {}", facts.function_type), format!("{label}:")]);
    }
    lines.extend(bytes(before));
    lines.push(format!("\t.4byte\t{}{function}", TypeWord::SYMBOL));
    lines.extend(bytes(after));
    if labelled {
        lines.push(format!("\t.size\t{label}, . - {label}"));
    }
    lines
}

/// The line, from 1, of the instruction at `offset` in `text`, which [`asm`] made of this listing.
pub fn line_of(text: &str, listing: &TextListing, target: &Target, offset: usize) -> Option<usize> {
    // Two instructions can be one line, as in riscv64's `call`.
    let instruction = |l: &TextLine| l.kind == LineKind::Insn && (l.offset..l.offset + l.bytes.len()).contains(&offset);
    let upto = listing.lines.get(..=listing.lines.iter().position(instruction)?)?;
    let label = text.lines().position(|l| l.strip_suffix(':') == Some(&listing.name))?;
    // Before or after the label come .cfi_startproc and what holds at the entry; then the lines.
    let lead = !target.lead(listing.contract.kind).1.is_empty();
    let entry = if lead { 0 } else { 1 + listing.cfi_entry.len() };
    Some(label + 1 + entry + lines(upto, target.facts.comment).len())
}

/// The names of offsets, and which C struct they are in.
fn consts(listing: &TextListing, comment: &str) -> Vec<String> {
    let frame = &listing.contract.frame;
    let in_struct = |name: &str| !frame.c_struct.is_empty() && frame.fields.iter().any(|f| f.symbol == name);
    let first = listing.consts.iter().position(|(name, _)| in_struct(name));
    let line = |(i, (name, value)): (usize, &(String, i32))| {
        let text = format!(".set\t{name}, {value}");
        let note = match () {
            () if Some(i) == first => format!("{}, {} bytes", frame.c_struct, frame.c_size),
            () if name == frame.size_symbol && !frame.c_struct.is_empty() => "with what lies above it".to_owned(),
            () => String::new(),
        };
        instruction(&text, &note, comment)
    };
    listing.consts.iter().enumerate().map(line).collect()
}

pub(crate) fn wrap(sentence: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn lines(lines: &[TextLine], comment: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in lines {
        match line.kind {
            LineKind::Insn => out.push(instruction(&line.text, line.note, comment)),
            LineKind::Cfi => out.push(format!("\t{}", line.text)),
            LineKind::Label => out.push(format!("{}:", line.text)),
            LineKind::Global => out.extend([format!("\t.globl\t{0}", line.text), format!("{}:", line.text)]),
            LineKind::Heading => {
                // Nothing to set apart before the first line.
                if !out.is_empty() {
                    out.push(String::new());
                }
                if !line.text.is_empty() {
                    out.push(format!("\t{comment} {}", line.text));
                }
            }
        }
    }
    out
}

/// `\tmnemonic\toperands`, with the note at its column.
fn instruction(text: &str, note: &str, comment: &str) -> String {
    let mut line = format!("\t{text}");
    if !note.is_empty() {
        let mut width = line.chars().fold(0, |at, c| if c == '\t' { (at / 8 + 1) * 8 } else { at + 1 });
        loop {
            line.push('\t');
            width = (width / 8 + 1) * 8;
            if width >= NOTE_COLUMN {
                break;
            }
        }
        line.push_str(comment);
        line.push(' ');
        line.push_str(note);
    }
    line
}
