//! JSON as all commands write it, and text of others as it is shown to people: symbols, sections and file names can have
//! any bytes, and terminals obey some.

use codegen::words::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// `text` with control characters, and those that change the direction of writing, as escapes.
pub fn printable(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
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
    use super::printable;

    #[test]
    fn terminals_have_nothing_to_obey() {
        assert_eq!(printable("a b\u{1b}[2J\n\u{202e}é"), "a b\\u{1b}[2J\\n\\u{202e}é");
    }
}
