//! JSON as all commands write it, and text of others as it is shown to people: symbols, sections and file names can have
//! any bytes, and terminals obey some.

use std::borrow::Cow;

use codegen::words::error::{Error, Result};
use codegen::words::shown::is_mark;
pub use codegen::words::shown::printable;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A whole text of ours, in which names of others are: line breaks and colours stay, and what changes the direction of writing is
/// escaped as JSON, TOML and C do.
pub fn unmarked(text: &str) -> Cow<'_, str> {
    if !text.contains(is_mark) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_mark(c) { shown += &format!("\\u{:04x}", u32::from(c)) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// `text` in a sentence of Markdown: what it would obey is escaped.
pub fn markdown(text: &str) -> String {
    let text = printable(text);
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // Within a word it emphasises nothing.
        let within = before.is_alphanumeric() && chars.peek().is_some_and(|next| next.is_alphanumeric());
        match c {
            '<' => shown += "&lt;",
            '>' => shown += "&gt;",
            '&' => shown += "&amp;",
            // It would be the name of a user, who is told.
            '@' => shown += "&#64;",
            '_' if within => shown.push(c),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' | '#' => shown.extend(['\\', c]),
            _ => shown.push(c),
        }
        before = c;
    }
    shown
}

/// `text` in a sentence of Markdown, or of a text for terminals and mails.
pub fn words(text: &str, is_markdown: bool) -> String {
    if is_markdown { markdown(text) } else { printable(text) }
}

/// `text` as code within a sentence of Markdown, whatever is in it.
pub fn code_span(text: &str) -> String {
    let text = printable(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    // Within a table, it would end the cell.
    format!("{fence}{space}{}{space}{fence}", text.replace('|', "\\|"))
}

/// The report with every text of it [`printable`].
///
/// # Errors
/// None that a report of ours can cause.
pub fn cleaned<T: Serialize + DeserializeOwned>(report: &T) -> Result<T> {
    let refused = |e| Error::new(format!("cannot render the report: {e}"));
    let mut value = serde_json::to_value(report).map_err(refused)?;
    clean(&mut value);
    serde_json::from_value(value).map_err(refused)
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(all) => all.iter_mut().for_each(clean),
        Value::Object(all) => all.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON as all our commands write it.
///
/// # Errors
/// None that a report of ours can cause.
pub fn json(report: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(report);
    text.map(|t| t + "\n").map_err(|e| Error::new(format!("JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::{code_span, markdown, printable, unmarked};

    #[test]
    fn terminals_have_nothing_to_obey() {
        assert_eq!(printable("a b\u{1b}[2J\n\u{202e}é"), "a b\\u{1b}[2J\\n\\u{202e}é");
        assert_eq!(unmarked("a\n\u{202e}\u{61c}\u{1b}[1mé"), "a\n\\u202e\\u061c\u{1b}[1mé");
    }

    #[test]
    fn markdown_has_nothing_to_obey() {
        let text = "a_b _c_ `d` | <e> @f\n[g](h) ![i] *j*";
        assert_eq!(markdown(text), r"a_b \_c\_ \`d\` \| &lt;e&gt; &#64;f\\n\[g\](h) \!\[i\] \*j\*");
        assert_eq!(code_span("a``b\n"), r"```a``b\n```");
        assert_eq!(code_span("`a"), "`` `a ``");
        assert_eq!(code_span("plain"), "`plain`");
    }
}
