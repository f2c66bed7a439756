//! What `cost --format json` writes as a part of a page.

use codegen::words::error::{Error, Result};
use serde::Deserialize;
use templates::page::{CostArch, CostGroup, CostRow, Costs, part as rendered};

/// A trampoline: a generated one, or one of others.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    arch: String,
    trampoline: String,
    #[serde(default)]
    contract: String,
    ways: Vec<Way>,
    #[serde(default)]
    kernel: Vec<Entry>,
}

#[derive(Deserialize)]
struct Way {
    way: String,
    executed: u32,
    loads: i64,
    stores: i64,
    stack: Option<i64>,
}

/// Title, and the part itself, whose ids begin with `id`.
///
/// # Errors
/// It is not what `cost` writes.
pub fn part(entries: serde_json::Value, id: &str) -> Result<(String, String)> {
    let refused = |e| Error::new(format!("{e}; valid: what `tramptool cost --format json` writes"));
    let entries: Vec<Entry> = serde_json::from_value(entries).map_err(refused)?;
    let all = entries.iter().flat_map(|e| std::iter::once(e).chain(&e.kernel));
    let most = all.flat_map(|e| &e.ways).map(|w| w.executed.into()).max().unwrap_or(1).max(1);
    let mut arches: Vec<CostArch> = Vec::new();
    for entry in &entries {
        let name = if entry.arch.is_empty() { "of others" } else { &entry.arch };
        let known = arches.iter().position(|a| a.name == name).unwrap_or_else(|| {
            arches.push(CostArch { name: name.to_owned(), groups: Vec::new() });
            arches.len() - 1
        });
        // What nobody ran has no ways.
        let all = std::iter::once(entry).chain(&entry.kernel).filter(|entry| !entry.ways.is_empty());
        arches[known].groups.extend(all.map(|entry| group(entry, most)));
    }
    let theirs = entries.iter().any(|e| !e.kernel.is_empty());
    let beside = match theirs {
        true => "The kernel's own trampolines are beside those that promise the same.",
        false => "The kernel's objects were not there: nothing is beside them.",
    };
    let title = "What trampolines spend".to_owned();
    let text = format!(
        "Instructions executed, words loaded and stored, bytes of stack; what is called is not counted. {beside}"
    );
    let costs = Costs { id: id.to_owned(), heading: "Ways through".to_owned(), text, arches };
    Ok((title, rendered(&costs)?))
}

fn group(entry: &Entry, most: i64) -> CostGroup {
    let row = |w: &Way| CostRow {
        way: w.way.clone(),
        executed: w.executed.into(),
        width: 100 * i64::from(w.executed) / most,
        loads: w.loads,
        stores: w.stores,
        stack: w.stack.map_or("–".to_owned(), |n| n.to_string()),
    };
    CostGroup {
        name: entry.trampoline.clone(),
        theirs: entry.contract.clone(),
        rows: entry.ways.iter().map(row).collect(),
    }
}
