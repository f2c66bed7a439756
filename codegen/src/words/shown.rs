//! Printable forms of foreign names: symbols, sections and files can have any bytes, and some are commands to terminals.

/// Does the character change the direction of writing, end a line, or is it forbidden in XML?
pub fn is_mark(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// `text` with escapes for control characters, and for characters that change the direction of writing.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_mark(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}
