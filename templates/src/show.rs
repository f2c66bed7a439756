//! The annotated listing: addresses, bytes, the frame as a picture, the cost.

use askama::Template;
use codegen::arch::harden::Harden;
use codegen::ask::frame::{Content, Stores};
use codegen::contract::Contract;
use codegen::out::text::{LineKind, TextListing};
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};

const NOTE_COLUMN: usize = 66;

#[derive(Template)]
#[template(path = "show.txt")]
struct Show {
    title: String,
    contract: Vec<String>,
    lines: Vec<String>,
    picture: Vec<String>,
    harden: Vec<String>,
    cost: Vec<String>,
}

/// Render one trampoline for reading.
///
/// # Errors
/// The template engine's; there is no input that causes one.
pub fn show(listing: &TextListing, target: &Target) -> Result<String> {
    let (facts, cost) = (target.facts, &listing.cost);
    // Before the first instruction, which has a blank line above it anyway, there is nothing to set apart.
    let first = listing.lines.iter().position(|l| l.kind == LineKind::Insn).unwrap_or(0);
    let lines = listing
        .lines
        .iter()
        .enumerate()
        .filter_map(|(i, line)| match line.kind {
            LineKind::Insn => {
                let bytes: Vec<String> = line.bytes.iter().map(|b| format!("{b:02x}")).collect();
                let text = line.text.replacen('\t', " ", 1);
                let text = text.split_once(' ').map_or(text.clone(), |(m, o)| format!("{m:<7} {o}"));
                let left = format!("{:5x}  {:<24} {text}", line.offset, bytes.join(" "));
                Some(if line.note.is_empty() {
                    left
                } else {
                    format!("{left:<NOTE_COLUMN$} {} {}", facts.comment, line.note)
                })
            }
            LineKind::Cfi => None,
            LineKind::Label | LineKind::Global => Some(format!("       {}:", line.text)),
            LineKind::Heading if i < first => None,
            LineKind::Heading if line.text.is_empty() => Some(String::new()),
            LineKind::Heading => Some(format!("\n       {} {}", facts.comment, line.text)),
        })
        .collect();
    let mut paths = Vec::new();
    for p in &cost.paths {
        paths.push(format!(
            "       {:<13} {:>3} instructions executed, {:>2} loads, {:>2} stores",
            p.path, p.executed, p.loads, p.stores
        ));
    }
    let mut text =
        vec![format!("cost   {} bytes, {} instructions, {} bytes of stack", cost.bytes, cost.instructions, cost.stack)];
    text.extend(paths);
    let (mut harden, kind) = (Vec::new(), listing.contract.kind);
    let parts = Harden { landing: target.landing(kind), typed: target.typed(kind), ..target.harden };
    for (part, what) in parts.parts() {
        let head = if harden.is_empty() { "harden" } else { "" };
        harden.push(format!("{head:<6} {part:<13} {what}"));
    }
    let show = Show {
        title: format!("{} {}, profile {}, {}", facts.name, listing.name, target.convention.profile, target.describe()),
        contract: listing.contract.sentences().iter().flat_map(|s| crate::asm::wrap(s)).collect(),
        lines,
        picture: picture(&listing.contract, target),
        harden,
        cost: text,
    };
    show.render().map_err(|e| Error::new(format!("show.txt: {e}")))
}

/// The frame, highest address first.
fn picture(contract: &Contract, target: &Target) -> Vec<String> {
    let frame = &contract.frame;
    if frame.size == 0 {
        return Vec::new();
    }
    let facts = target.facts;
    let abi = &facts.abi;
    let mut rows: Vec<(i32, String, &str)> = Vec::new();
    let mut covered = vec![false; (frame.size / 8) as usize];
    let mut cover = |offset: i32| {
        if let Some(c) = covered.get_mut((offset / 8) as usize) {
            *c = true;
        }
    };
    for record in &frame.records {
        let ret = if record.ret == Content::Pc { "pc" } else { "parent_ip" };
        let site_pushed = frame.pushed;
        cover(record.offset);
        cover(record.offset + 8);
        rows.push((record.offset, format!("{}, {ret}", abi.name(abi.fp)), "frame record"));
        if site_pushed {
            let by = if contract.kind.jumped_to() { "pushed by the caller" } else { "pushed by the site" };
            rows.push((record.offset + 8, ret.to_owned(), by));
        }
    }
    for field in frame.fields.iter().filter(|f| !f.in_record) {
        (0..field.bytes(target.facts.abi.vector_bytes as i32)).step_by(8).for_each(|word| cover(field.offset + word));
        let name = if field.member.is_empty() { field.symbol } else { field.member };
        let note = match (field.content, field.stores) {
            (Content::Unfilled, _) => "not filled",
            (Content::Direct, Stores::TakeEffect) => "0; a direct trampoline's address stored here is honoured",
            (_, Stores::TakeEffect) => "written back",
            (_, Stores::Ignored) => "read only",
            (_, Stores::Hidden) => "outside the struct",
        };
        rows.push((field.offset, name.to_owned(), note));
    }
    for word in 0..contract.kind.copied_words() {
        cover(8 * word);
        rows.push((8 * word, format!("STACK{word}"), "a stack argument once more"));
    }
    for (i, _) in covered.iter().enumerate().filter(|(_, c)| !**c) {
        rows.push((8 * i as i32, "(pad)".to_owned(), ""));
    }
    let pushed = if contract.flags_kept { 8 } else { 0 };
    if contract.flags_kept {
        rows.push((frame.size, facts.flags.to_owned(), "as at the site, pushed first"));
    }
    rows.sort_by_key(|r| std::cmp::Reverse(r.0));
    rows.dedup_by(|a, b| a.0 == b.0 && a.2 == b.2);
    let rows = runs(rows);

    let width = rows.iter().map(|r| r.1.len()).max().unwrap_or(0).max(12);
    let sp = if frame.c_struct.is_empty() { "sp" } else { "fregs, sp" };
    let mut out = vec![format!("{:>13} +{}+ {}", "entry sp ->", "-".repeat(width + 2), frame.size + pushed)];
    let last = rows.len() - 1;
    for (i, (offset, name, note)) in rows.into_iter().enumerate() {
        let left = if i == last { format!("{sp} ->") } else { String::new() };
        out.push(format!("{left:>13} | {name:<width$} | {offset:>4}  {note}").trim_end().to_owned());
    }
    out.push(format!("{:>13} +{}+", "", "-".repeat(width + 2)));
    out
}

/// Neighbours such as `a7`, `a6`, `a5` that are treated alike become one row, `a7 .. a5`.
fn runs(rows: Vec<(i32, String, &str)>) -> Vec<(i32, String, &str)> {
    let numbered = |name: &str| {
        let at = name.find(|c: char| c.is_ascii_digit())?;
        Some((name[..at].to_owned(), name[at..].parse::<u32>().ok()?))
    };
    let follows = |upper: &str, lower: &str| match (numbered(upper), numbered(lower)) {
        (Some((p, n)), Some((q, m))) => p == q && n.abs_diff(m) == 1,
        _ => false,
    };
    // Offset of the lowest slot, name of the highest, name of the lowest, note.
    let mut runs: Vec<(i32, String, String, &str)> = Vec::new();
    for (offset, name, note) in rows {
        match runs.last_mut() {
            Some(run) if run.3 == note && run.0 == offset + 8 && follows(&run.2, &name) => {
                (run.0, run.2) = (offset, name);
            }
            _ => runs.push((offset, name.clone(), name, note)),
        }
    }
    let joined = |first: String, last: String| if first == last { first } else { format!("{first} .. {last}") };
    runs.into_iter().map(|(offset, first, last, note)| (offset, joined(first, last), note)).collect()
}
