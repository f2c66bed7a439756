//! Tables that fit into a terminal, one row a trampoline.

use std::fmt::{Result, Write};

use super::lines::cut;

/// Of a cell: what it says, in a word and in a letter, and its colour.
pub struct Cell {
    /// Where there is room.
    pub word: String,
    /// Where there is none.
    pub short: char,
    /// The colour, as terminals know it.
    pub code: &'static str,
}

/// What stands above a column.
pub struct Column {
    /// Where there is room.
    pub name: String,
    /// Written downwards, where there is none.
    pub short: String,
}

/// How a text gets its colour.
pub type Paint<'p> = &'p dyn Fn(&str, &str) -> String;

/// Columns before a row's name.
const INDENT: usize = 2;
/// Columns of a cell with a word, at least.
const CELL: usize = 5;
/// Registers that stand together.
const GROUP: usize = 8;

/// Write a table in words if that fits, in letters otherwise. Returns whether it was in letters.
pub fn write(
    columns: &[Column],
    lines: &[(&str, Vec<Cell>)],
    width: usize,
    paint: Paint,
    out: &mut String,
) -> std::result::Result<bool, std::fmt::Error> {
    let widths: Vec<usize> = columns.iter().map(|c| (c.name.len() + 1).max(CELL)).collect();
    let name = longest(lines);
    if INDENT + name + widths.iter().sum::<usize>() > width {
        downwards(columns, lines, (width, 1), paint, out)?;
        return Ok(true);
    }
    write!(out, "{:1$}", "", INDENT + name)?;
    for (column, width) in columns.iter().zip(&widths) {
        write!(out, "{:>width$}", column.name)?;
    }
    writeln!(out)?;
    for (row, cells) in lines {
        write!(out, "{:INDENT$}{row:<name$}", "")?;
        for (cell, width) in cells.iter().zip(&widths) {
            write!(out, "{}", paint(cell.code, &format!("{:>width$}", cell.word)))?;
        }
        writeln!(out)?;
    }
    Ok(false)
}

/// Write a table with a letter in each cell, in groups.
pub fn letters(
    columns: &[Column],
    lines: &[(&str, Vec<Cell>)],
    width: usize,
    paint: Paint,
    out: &mut String,
) -> Result {
    downwards(columns, lines, (width, GROUP), paint, out)
}

fn longest(lines: &[(&str, Vec<Cell>)]) -> usize {
    lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0)
}

/// The names of the columns are written downwards, and a blank is left before each `group` of them.
fn downwards(
    columns: &[Column],
    lines: &[(&str, Vec<Cell>)],
    (width, group): (usize, usize),
    paint: Paint,
    out: &mut String,
) -> Result {
    let cells = columns.len() + columns.len().div_ceil(group);
    let name = longest(lines).min(width.saturating_sub(INDENT + cells));
    let gap = |i: usize| if i.is_multiple_of(group) { " " } else { "" };
    let height = columns.iter().map(|c| c.short.len()).max().unwrap_or(0);
    for line in 0..height {
        let mut text = " ".repeat(INDENT + name);
        for (i, column) in columns.iter().enumerate() {
            // The last letters of all names are in one line.
            let letter = (line + column.short.len()).checked_sub(height).and_then(|at| column.short.chars().nth(at));
            write!(text, "{}{}", gap(i), letter.unwrap_or(' '))?;
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    for (row, cells) in lines {
        write!(out, "{:INDENT$}{:<name$}", "", cut(row, name))?;
        for (i, cell) in cells.iter().enumerate() {
            write!(out, "{}{}", gap(i), paint(cell.code, &cell.short.to_string()))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
