//! A review as a short text: for a mail, or as Markdown.

use std::fmt::Write;

use super::{Change, Fault, Review, Verdicts};
use crate::printed::{code_span, printable, words};
use crate::report::paragraph;

/// Columns of a mail.
pub const WIDTH: usize = 75;
/// Lines of one kind that are shown; JSON has all.
const SHOWN: usize = 8;

/// For a mail, in lines of 75 columns, or as Markdown.
pub fn text(review: &Review, markdown: bool) -> String {
    let mut to = Writer { markdown, out: String::new() };
    to.verdicts([&review.old, &review.new], &review.verdicts);
    to.behaviour(review);
    to.code(review);
    to.faults(review);
    to.out
}

/// Write the verdicts of a contract on both sides, as lines of the review.
pub fn verdicts(names: [&str; 2], verdicts: &Verdicts, markdown: bool) -> String {
    let mut to = Writer { markdown, out: String::new() };
    to.verdicts(names, verdicts);
    to.out
}

struct Writer {
    markdown: bool,
    out: String,
}

impl Writer {
    fn title(&mut self, text: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = if self.markdown { writeln!(self.out, "\n#### {text}\n") } else { writeln!(self.out, "\n{text}") };
    }

    fn item(&mut self, text: &str) {
        let (first, rest) = if self.markdown { ("- ", "  ") } else { ("  ", "    ") };
        self.out += &paragraph(text, WIDTH, first, rest);
    }

    /// Lines of code, which are never broken.
    fn lines(&mut self, lines: &[String]) {
        if self.markdown {
            self.out += "  ```diff\n";
        }
        let shown = if lines.len() > 2 * SHOWN { SHOWN } else { lines.len() };
        for line in &lines[..shown] {
            let _ = writeln!(self.out, "{}{}", if self.markdown { "  " } else { "    " }, printable(line));
        }
        if self.markdown {
            self.out += "  ```\n";
        }
        self.more(lines.len() - shown);
    }

    fn more(&mut self, n: usize) {
        if n > 0 {
            self.item(&format!("and {n} more, which --format json has"));
        }
    }

    /// A name in the text.
    fn code_of(&self, text: &str) -> String {
        if self.markdown { code_span(text) } else { printable(text) }
    }

    /// Words in the text that may have names of others in them.
    fn words(&self, text: &str) -> String {
        words(text, self.markdown)
    }

    fn verdicts(&mut self, [old, new]: [&str; 2], verdicts: &Verdicts) {
        let [was, is] = verdicts.clauses;
        let verdict = match (verdicts.worse.len(), is.fail) {
            (0, 0) => "holds: nothing that the contract promises is lost".to_owned(),
            (0, 1) => "is no worse: 1 clause fails, as it did before".to_owned(),
            (0, n) => format!("is no worse: {n} clauses fail, as they did before"),
            (1, _) => "is worse: something that held does not".to_owned(),
            (n, _) => format!("is worse: {n} things that held do not"),
        };
        let name = self.code_of(new);
        let text = if self.markdown { format!("**{name} {verdict}.**") } else { format!("{name} {verdict}.") };
        self.out += &paragraph(&text, WIDTH, "", "  ");
        if self.markdown {
            self.out.push('\n');
        }
        for (side, name, counts) in [("before", old, was), ("now", new, is)] {
            let name = self.code_of(name);
            self.item(&format!(
                "{side}, {name}: {} clauses hold, {} deviate, {} fail",
                counts.hold, counts.deviate, counts.fail
            ));
        }
        let contract = self.code_of(&verdicts.contract);
        self.item(&match &verdicts.contract_before {
            None => format!("by the contract {contract}, seed {}", verdicts.seed),
            Some(before) => {
                let before = self.code_of(before);
                format!("before by the contract {before}, now by {contract}, seed {}", verdicts.seed)
            }
        });
        self.changes("Worse", &verdicts.worse);
        self.changes("Better", &verdicts.better);
    }

    fn changes(&mut self, title: &str, all: &[Change]) {
        if all.is_empty() {
            return;
        }
        self.title(title);
        for change in all.iter().take(SHOWN) {
            let place = if change.place.is_empty() { String::new() } else { format!(", {}", change.place) };
            let found = match (title, change.found.as_str()) {
                (_, "") => String::new(),
                ("Better", _) => String::new(),
                (_, found) => format!(": {found}"),
            };
            let writer = match change.writer.as_str() {
                "" => String::new(),
                _ if title == "Better" => String::new(),
                writer => format!("; last written by {writer}"),
            };
            let name = self.code_of(&change.trampoline);
            let what = self.words(&format!("{} ({}){place}{found}{writer}", change.clause, change.about));
            self.item(&format!("{name} {what}"));
        }
        self.more(all.len().saturating_sub(SHOWN));
        if let Some(change) = all.iter().find(|change| !change.replay.is_empty()) {
            let command = self.code_of(&change.replay);
            self.item(&format!("The first again: {command}"));
        }
    }

    fn behaviour(&mut self, review: &Review) {
        let all = review.trampolines.iter().flat_map(|t| t.differences.iter().map(move |d| (t, d)));
        let all: Vec<_> = all.collect();
        let accepted = format!("{} more that the baseline accepts", review.accepted);
        for entry in &review.gone {
            self.item(&self.words(&entry.is_gone()));
        }
        if all.is_empty() {
            self.title("What they do");
            return self.item(match review.accepted {
                0 => "the same, without any contract too",
                _ => "the same, but for what the baseline accepts",
            });
        }
        self.title("What it does differently, without any contract");
        for (trampoline, d) in all.iter().take(SHOWN) {
            let concerns = if d.better { d.severity.concerns() } else { d.severity.words() };
            let name = self.code_of(&trampoline.trampoline);
            self.item(&format!("{name}: {} ({concerns})", self.words(&d.to_string())));
        }
        self.more(all.len().saturating_sub(SHOWN));
        if review.accepted > 0 {
            self.item(&accepted);
        }
    }

    fn code(&mut self, review: &Review) {
        for t in review.trampolines.iter().filter(|t| !t.changed.is_empty()) {
            let name = self.code_of(&t.trampoline);
            self.title(&format!("Instructions of {name} that are new, gone or moved"));
            self.lines(&t.changed);
        }
    }

    fn faults(&mut self, review: &Review) {
        let faults = &review.faults;
        self.title("Faults in the changed instructions");
        if !faults.reason.is_empty() {
            return self.item(&format!("none were tried: {}", self.words(&faults.reason)));
        }
        let unnoticed = faults.unnoticed.len();
        let tried = if faults.run == 1 {
            "1 was tried".to_owned()
        } else {
            format!("{} were tried, one at a time", faults.run)
        };
        self.item(&format!(
            "{tried}; the checks notice {}; the kernel's own startup and KUnit tests would not notice {unnoticed}",
            faults.noticed
        ));
        for fault in faults.survivors.iter().take(SHOWN) {
            let name = self.code_of(&format!("{} {}", fault.trampoline, fault.mutant));
            self.item(&format!("nothing notices {name}"));
        }
        self.more(faults.survivors.len().saturating_sub(SHOWN));
        // Those with one reason together.
        let mut reasons: Vec<(&[String], Vec<&Fault>)> = Vec::new();
        for fault in &faults.unnoticed {
            match reasons.iter_mut().find(|(known, _)| *known == fault.reasons) {
                Some((_, all)) => all.push(fault),
                None => reasons.push((&fault.reasons, vec![fault])),
            }
        }
        for (why, all) in reasons {
            let shown = all.iter().take(SHOWN).map(|fault| {
                let name = self.code_of(&format!("{} {}", fault.trampoline, fault.mutant));
                format!("{name} ({})", self.words(&fault.fails.join(", ")))
            });
            let shown: Vec<String> = shown.collect();
            let more = match all.len().saturating_sub(SHOWN) {
                0 => String::new(),
                n => format!(", and {n} more"),
            };
            self.item(&format!("{}, so not {}{more}", self.words(&why.join("; ")), shown.join(", ")));
        }
    }
}
