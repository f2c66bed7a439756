//! Errors, times and names, as all output has them.

use codegen::words::error::{Error, Result};

use crate::recording::Unit;

/// The result of writing.
///
/// # Errors
/// The output has one.
pub fn written(result: std::io::Result<()>) -> Result<()> {
    result.map_err(|e| Error::new(format!("cannot write: {e}; free some space or write elsewhere")))
}

/// A time as people read it, 10 columns wide.
pub fn duration(time: u64, unit: Unit) -> String {
    let scaled = |by: u64, unit: &str| format!("{:7}.{:03} {unit}", time / by, time % by * 1000 / by);
    let text = match (unit, time) {
        (Unit::Order, _) => String::new(),
        (Unit::Ticks, _) => format!("{time}"),
        (Unit::Nanoseconds, 0..1_000_000) => return scaled(1000, "us"),
        (Unit::Nanoseconds, 1_000_000..1_000_000_000) => return scaled(1_000_000, "ms"),
        (Unit::Nanoseconds, _) => return scaled(1_000_000_000, "s "),
    };
    format!("{text:>14}")
}

/// Nanoseconds as microseconds with three digits behind the point.
pub fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}
