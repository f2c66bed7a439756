//! Names of others as they are shown to people: symbols, sections and files can have any bytes, and terminals obey some.

/// Does it change the direction of writing, or end a line, or is it what no XML may have?
pub fn is_mark(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// `text` with control characters, and those that change the direction of writing, as escapes.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_mark(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}
