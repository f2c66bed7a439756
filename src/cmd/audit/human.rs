//! An audit, as people read it.

use std::collections::BTreeMap;
use std::fmt::Write;

use emu_tests::{Claim, ClaimKind, Tier};
use tool::printed::printable;

use super::finding::{Done, Finding};
use crate::cmd::shared::ui::{Style, Ui, wrap};

/// The text.
pub fn text(done: &[Done], findings: &[Finding], gone: &[&str], foreign: &[String], ui: &Ui) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    for alike in grouped(findings).values() {
        block(alike, ui, &mut out);
    }
    for finding in gone {
        let _ = writeln!(out, "{} {}", ui.paint(Style::Heading, "gone"), printable(finding));
    }
    if !gone.is_empty() {
        let _ = writeln!(out, "  the baseline accepts these findings, and they are not there: remove their entries\n");
    }
    done.iter().for_each(|done| summary(done, &mut out));
    if !foreign.is_empty() {
        let _ =
            writeln!(out, "{} files are executables, or no objects for a machine that is known here", foreign.len());
    }
    let open = |tier: Tier| findings.iter().filter(|f| !f.accepted && f.claim.tier == tier).count();
    let accepted = findings.iter().filter(|finding| finding.accepted).count();
    let _ = writeln!(
        out,
        "{} errors, {} warnings, {} notes; {accepted} accepted",
        open(Tier::Error),
        open(Tier::Warning),
        open(Tier::Note)
    );
    out
}

/// Those that are not accepted, by claim, object and place: one cause has often made several.
fn grouped<'f>(
    findings: &'f [Finding<'f>],
) -> BTreeMap<(Tier, ClaimKind, &'f str, &'f str, &'f str), Vec<&'f Finding<'f>>> {
    let mut groups: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
    for finding in findings.iter().filter(|finding| !finding.accepted) {
        let Claim { tier, kind, place, .. } = finding.claim;
        let object = if *kind == ClaimKind::C8 { "" } else { finding.object };
        groups.entry((*tier, *kind, finding.file, object, place.as_str())).or_default().push(finding);
    }
    groups
}

/// One finding, and how many more are alike.
fn block(alike: &[&Finding], ui: &Ui, out: &mut String) {
    let Some(finding) = alike.first() else { return };
    let Claim { kind, tier, instruction, instructions, .. } = finding.claim;
    let style = if *tier == Tier::Note { Style::Quiet } else { Style::Heading };
    let function = finding.function.map_or_else(String::new, |_| format!(" {}", finding.spot()));
    let _ = writeln!(out, "{} {}{function}", ui.paint(style, &kind.to_string()), finding.place());
    if !instruction.is_empty() {
        let line = finding.line.map_or_else(String::new, |line| format!("  ({})", line.shown()));
        let _ = writeln!(out, "      {}{line}", printable(instruction));
    }
    let more = if *instructions > 1 {
        format!(", and the same at {} instructions more", instructions - 1)
    } else {
        String::new()
    };
    paragraph(&format!("{}{more}", finding.claim), ui, out);
    paragraph(&format!("Who relies on it: {}", kind.relies()), ui, out);
    if alike.len() > 1 {
        let names: Vec<String> = alike.iter().skip(1).map(|f| printable(f.function.unwrap_or(f.object))).collect();
        let shown = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > 5 { ", ..." } else { "" };
        paragraph(&format!("The same in {} more: {shown}{more}", names.len()), ui, out);
    }
    let _ = writeln!(out, "  again: {}\n", finding.again());
}

/// Lines that fit, two blanks in.
fn paragraph(text: &str, ui: &Ui, out: &mut String) {
    for line in wrap(&printable(text), ui.columns().saturating_sub(2)) {
        let _ = writeln!(out, "  {line}");
    }
}

/// What was judged of a file, and why the rest was not.
fn summary(Done { name, given, audited, .. }: &Done, out: &mut String) {
    let name = if name.is_empty() { given } else { name };
    let functions = &audited.functions;
    let judged = functions.iter().filter(|f| f.not_judged.is_none());
    let (bytes, executed) = judged.clone().fold((0, 0), |(a, b), f| (a + f.bytes, b + f.executed as u64));
    let share = executed * 100 / bytes.max(1);
    let _ = writeln!(out, "{} ({}, by {})", printable(name), audited.arch, audited.engine);
    let by_hand: usize = audited.by_hand.values().sum();
    if audited.objects > audited.libraries {
        let _ = writeln!(out, "{by_hand:>6} of {} objects are written by hand", audited.objects - audited.libraries);
    }
    if audited.libraries > 0 {
        let _ = writeln!(out, "       a shared library: what it exports is judged, whoever wrote it");
    }
    if audited.of_others > 0 {
        let _ = writeln!(out, "{:>6} not judged: a compiler with a convention of its own made them", audited.of_others);
    }
    let _ = writeln!(
        out,
        "{:>6} of {} functions judged, {share} % of their bytes executed",
        judged.count(),
        functions.len()
    );
    if audited.other_compiler {
        let _ = writeln!(out, "       not judged: so many by hand are another compiler's work; --all judges them");
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for why in functions.iter().filter_map(|f| f.not_judged.as_deref()) {
        *reasons.entry(why).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(why, count)| (std::cmp::Reverse(*count), *why));
    for (why, count) in reasons {
        let _ = writeln!(out, "{count:>6} not judged: {}", printable(why));
    }
    if audited.wrong_ends > 0 {
        let count = audited.wrong_ends;
        let _ = writeln!(
            out,
            "{count:>6} have wrong unwind rows where they end, as their compiler makes them: not claimed"
        );
    }
    for (count, why) in [
        (audited.private, "only assembly refers to it"),
        (audited.address_taken, "C takes its address, and does not call it"),
    ] {
        if count > 0 {
            let _ = writeln!(out, "{count:>6} not asked for: {why}");
        }
    }
    for (object, why) in &audited.unlinked {
        let _ = writeln!(out, "       not judged: {}: {}", printable(object), printable(why));
    }
}
