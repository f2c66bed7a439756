//! Text in lines of a given width.

use textwrap::{Options, WordSplitter};

/// Columns where it is not known how many there are.
pub const COLUMNS: usize = 80;
/// No table can be written in fewer.
const LEAST: usize = 60;

/// The columns to write in, of a terminal that has so many.
pub fn columns(of_terminal: Option<u16>) -> usize {
    of_terminal.map_or(COLUMNS, usize::from).max(LEAST)
}

/// A paragraph in lines: the first is preceded by `first`, the others by `rest`. Words are never cut.
pub fn paragraph(text: &str, width: usize, first: &str, rest: &str) -> String {
    let options = Options::new(width).initial_indent(first).subsequent_indent(rest);
    let options = options.break_words(false).word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options) + "\n"
}

/// A command in lines that a shell takes for one, where it has a space between two words.
pub fn command(text: &str, width: usize, first: &str, rest: &str) -> String {
    let (mut out, mut line) = (String::new(), first.to_owned());
    let mut empty = true;
    for word in words(text) {
        if !empty && line.chars().count() + 1 + word.chars().count() + " \\".len() > width {
            out += &line;
            out += " \\\n";
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    out + &line + "\n"
}

/// The words of a command; a space between quotes separates none.
fn words(text: &str) -> Vec<&str> {
    let (mut quoted, mut from, mut all) = (false, 0, Vec::new());
    for (at, c) in text.char_indices() {
        if c == '\'' {
            quoted = !quoted;
        } else if c == ' ' && !quoted {
            all.push(&text[from..at]);
            from = at + 1;
        }
    }
    all.push(&text[from..]);
    all
}

/// `text`, or its beginning and `…` if it is longer.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_in_lines_is_the_same_command() {
        let text = "tramptool check 'my tramp' --object 'it'\\''s a file.o' --seed 1";
        for width in 10..70 {
            let lines = command(text, width, "again: ", "  ");
            assert_eq!(lines.replace(" \\\n ", "").trim_end(), format!("again: {text}"), "{lines}");
        }
        assert_eq!(command("a b c", 6, "", " "), "a b \\\n c\n");
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let text = "one two three four five six seven eight nine ten";
        for width in 12..40 {
            let lines = paragraph(text, width, "  P1   ", "       ");
            assert!(lines.lines().all(|l| l.len() <= width), "{width}: {lines}");
        }
        assert_eq!(paragraph("a-b", 3, "", ""), "a-b\n");
    }

    #[test]
    fn what_is_too_long_shows_that_it_goes_on() {
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        assert_eq!((columns(None), columns(Some(120)), columns(Some(3))), (80, 120, 60));
    }
}
