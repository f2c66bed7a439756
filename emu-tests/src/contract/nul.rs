//! Strings that no symbol can have: ELF ends a name at its first NUL (gABI, String Table).

use toml::de::{DeTable, DeValue};

/// Where the first string or key of a TOML text begins that holds a NUL; `None` if there is none, or no TOML.
pub(crate) fn nul(text: &str) -> Option<usize> {
    in_table(DeTable::parse(text).ok()?.get_ref())
}

fn in_table(table: &DeTable) -> Option<usize> {
    let entries = table.iter().filter_map(|(key, value)| match key.get_ref().contains('\0') {
        true => Some(key.span().start),
        false => in_value(value.get_ref(), value.span().start),
    });
    entries.min()
}

fn in_value(value: &DeValue, at: usize) -> Option<usize> {
    match value {
        DeValue::String(text) => text.contains('\0').then_some(at),
        DeValue::Array(all) => all.iter().find_map(|value| in_value(value.get_ref(), value.span().start)),
        DeValue::Table(table) => in_table(table),
        _ => None,
    }
}
