//! Rows of results, for reading or as JSON.

use serde::Serialize;

/// One measured thing and what it is compared with.
#[derive(Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Its value, in the unit of the name.
    pub value: f64,
    /// What it is compared with.
    pub to: String,
    /// That one's value, in the same unit.
    pub reference: f64,
    /// Reference over value: how many times better.
    pub ratio: f64,
}

impl Row {
    /// A row.
    pub fn new(name: impl Into<String>, value: f64, to: impl Into<String>, reference: f64) -> Row {
        Row { name: name.into(), value, to: to.into(), reference, ratio: reference / value }
    }
}

/// Print rows.
pub fn print(rows: &[Row], json: bool) -> Result<(), String> {
    if json {
        let text = serde_json::to_string_pretty(rows).map_err(|e| e.to_string())?;
        println!("{text}");
        return Ok(());
    }
    for r in rows {
        println!("{:<46} {:>12.3}   {:<34} {:>12.3}   ratio {:>8.2}", r.name, r.value, r.to, r.reference, r.ratio);
    }
    Ok(())
}
