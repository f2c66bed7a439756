//! A trampoline from inside, as a part of a page.

use emu_tests::{Clause, Row, Verdict};
use templates::page::{Line, Path, Track, View, Word};

use super::words::pasted;

/// Pixels of the longest bar, of a word in the drawing, of a letter.
const BAR: usize = 240;
const WORD: usize = 22;
const LETTER: usize = 8;
/// Where the text beside a word begins.
const BESIDE: usize = 292;

/// A view with the rows of the same trampoline under the same options. Bars are relative to `longest` instructions.
pub fn view(view: &emu_tests::View, rows: &[&Row], longest: usize, id: &str) -> View {
    let coverage = rows.iter().find(|r| r.clause == Clause::Coverage);
    let line = |(number, line): (usize, &emu_tests::Line)| {
        let here = symbolic(view, line);
        let missed = coverage.is_some_and(|row| is_missed(row, line, &here));
        let counted = coverage.is_some_and(|row| row.verdict != Verdict::Skip || !row.missed.is_empty());
        let mut failures = Vec::new();
        for f in rows.iter().flat_map(|r| &r.failures) {
            if f.at == here {
                failures.push(format!("{} {}", f.clause, f.place));
            }
            if f.last_writer.split_once(": ").is_some_and(|(at, _)| at == here) {
                failures.push(format!("{} last writer of {}", f.clause, f.place));
            }
        }
        failures.dedup();
        let (class, ran) = match () {
            () if !failures.is_empty() => ("bad", if missed { "○" } else { "●" }),
            () if line.filler || !counted => ("", ""),
            () if missed => ("missed", "○"),
            () => ("", "●"),
        };
        let (at, bytes, text, note) = (line.at.clone(), line.bytes.clone(), line.text.clone(), line.note.clone());
        Line { id: format!("{id}-i{number}"), class, ran, at, bytes, text, note, failures }
    };
    View {
        options: view.options.clone(),
        lines: view.listing.iter().enumerate().map(line).collect(),
        paths: view.paths.iter().map(|p| path(view, p, longest)).collect(),
    }
}

/// The instruction's place, as failures name it.
fn symbolic(view: &emu_tests::View, line: &emu_tests::Line) -> String {
    if line.at.contains('+') { line.at.clone() } else { format!("{}+0x{}", view.trampoline, line.at) }
}

fn is_missed(coverage: &Row, line: &emu_tests::Line, here: &String) -> bool {
    let never = coverage.verdict == Verdict::Fail && coverage.missed.is_empty() && coverage.missed_elsewhere.is_empty();
    let offset = u64::from_str_radix(&line.at, 16).ok();
    never || offset.is_some_and(|at| coverage.missed.contains(&at)) || coverage.missed_elsewhere.contains(here)
}

fn path(view: &emu_tests::View, path: &emu_tests::Path, longest: usize) -> Path {
    let touched = |t: &&emu_tests::Track| t.lost || t.states.chars().any(|c| c != 'l');
    let name = path.registers.iter().map(|t| t.register.len()).max().unwrap_or(0).max("calls".len()) + 1;
    let untouched: Vec<&str> = path.registers.iter().filter(|t| !touched(t)).map(|t| t.register.as_str()).collect();
    let at = |number: &usize| view.listing.get(*number).map_or("?", |line| line.at.as_str());
    let mut ruler = format!("{:<name$}", "at");
    for (column, number) in path.steps.iter().enumerate() {
        let used = ruler.chars().count();
        if used == name || used < name + column {
            ruler += &" ".repeat(name + column - used);
            ruler += at(number);
        }
    }
    let call = |column: usize| if path.calls.contains(&column) { '^' } else { ' ' };
    let calls: String = (0..path.steps.len()).map(call).collect();
    let frame: Vec<Word> = path.frame.iter().enumerate().map(|(n, w)| word(view, n, w)).collect();
    let summary: Vec<String> = path.frame.iter().map(|w| format!("{:+} {}", w.offset, w.holds)).collect();
    let beside = frame.iter().map(|w| w.by.chars().count()).max().unwrap_or(0);
    Path {
        title: format!("{}, in {}", path.situation, path.function),
        failures: path.failures.join(", "),
        executed: path.steps.len(),
        stack: path.stack,
        width: path.steps.len() * BAR / longest.max(1),
        ruler,
        calls: format!("{:<name$}{calls}", "calls"),
        tracks: path.registers.iter().filter(touched).map(|t| track(t, name)).collect(),
        untouched: untouched.join(" "),
        height: frame.len() * WORD + 2,
        drawn: BESIDE + beside * LETTER,
        frame,
        summary: summary.join(", "),
        replay: pasted(&path.replay),
    }
}

fn track(track: &emu_tests::Track, name: usize) -> Track {
    let has = |letter: char| matches!(letter, 'l' | 's' | 'r');
    // From where on it is lost.
    let lost = track.states.trim_end_matches(|c| !has(c) && c != 'h').chars().count();
    let mut runs: Vec<(&'static str, String)> = Vec::new();
    for (column, letter) in track.states.chars().enumerate() {
        let (class, letter) = match letter {
            _ if track.lost && column >= lost => ("w", 'L'),
            'l' => ("l", '·'),
            's' => ("s", 's'),
            'c' => ("c", 'c'),
            'r' => ("r", 'r'),
            'h' => ("h", 'h'),
            _ => ("x", 'x'),
        };
        match runs.last_mut().filter(|(c, _)| *c == class) {
            Some((_, letters)) => letters.push(letter),
            None => runs.push((class, letter.to_string())),
        }
    }
    let last = track.states.chars().next_back().unwrap_or('l');
    let end = match (track.lost, track.promised, last) {
        (true, ..) => "✗ promised, and lost",
        (_, true, 'h') => "as a handler stored it",
        (_, true, letter) if has(letter) => "kept",
        (_, true, _) => "changed, as it may here",
        (_, false, letter) if has(letter) => "let go, the same",
        (_, false, _) => "let go",
    };
    Track { name: format!("{:<name$}", track.register), lost: track.lost, runs, end: end.to_owned() }
}

/// A word of the stack, the nth from the top.
fn word(view: &emu_tests::View, n: usize, word: &emu_tests::Word) -> Word {
    let at = |number: usize| view.listing.get(number).map_or("?", |line| line.at.as_str());
    let text = |number: usize| view.listing.get(number).map_or("", |line| line.text.as_str());
    let short = |number: usize| text(number).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut by = match (word.writer, word.offset) {
        (Some(writer), _) => format!("+{} {}", at(writer), short(writer)),
        (None, 0..) => "there before".to_owned(),
        (None, _) if word.holds.is_empty() => String::new(),
        (None, _) => "written by what was called".to_owned(),
    };
    let loads: Vec<String> = word.loaded.iter().map(|(number, reg)| format!("+{} {reg}", at(*number))).collect();
    if !loads.is_empty() {
        by += &format!("   → {}", loads.join(", "));
    }
    let class = match (word.writer, word.offset) {
        (Some(_), _) => "own",
        (None, 0..) => "site",
        (None, _) if word.holds.is_empty() => "",
        (None, _) => "callee",
    };
    let holds = if word.holds.is_empty() { "not written".to_owned() } else { word.holds.clone() };
    Word { class, y: 1 + n * WORD, text_y: 15 + n * WORD, offset: format!("{:+}", word.offset), holds, by }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(states: &str, promised: bool, lost: bool) -> Track {
        track(&emu_tests::Track { register: "x1".to_owned(), promised, lost, states: states.to_owned() }, 4)
    }

    #[test]
    fn a_lost_register_is_marked_from_where_it_is_lost() {
        let lost = of("llsscx", true, true);
        let shown: Vec<(&str, &str)> = lost.runs.iter().map(|(c, l)| (*c, l.as_str())).collect();
        assert_eq!(shown, [("l", "··"), ("s", "ss"), ("w", "LL")]);
        assert!(lost.end.starts_with('✗'));
    }

    #[test]
    fn what_was_not_lost_is_not_called_so() {
        for (states, promised, end) in [
            ("lsccr", true, "kept"),
            ("lscch", true, "as a handler stored it"),
            ("lx", false, "let go"),
            ("ll", false, "let go, the same"),
            ("lx", true, "changed, as it may here"),
        ] {
            let shown = of(states, promised, false);
            assert_eq!(shown.end, end, "{states}");
            assert!(shown.runs.iter().all(|(class, _)| *class != "w"), "{states}");
        }
    }
}
