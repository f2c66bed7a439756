//! The recording that a command reads, and which of its calls are asked for.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use codegen::words::error::{Error, Result};
use trace::filter::{Filter, Pattern, Wanted};
use trace::recording::Recording;

use crate::cmd::shared::input;

/// A recording in a file.
pub type Recorded = Recording<BufReader<File>>;

/// The file and the filters.
#[derive(Args)]
pub struct RecordedArgs {
    /// The recording
    #[arg(value_name = "FILE", default_value = trace::file::DEFAULT)]
    file: PathBuf,
    /// Only these functions and what they call: a glob, /regex/, or OBJECT:PATTERN
    #[arg(short = 'F', long, value_name = "PATTERN", value_parser = Pattern::new)]
    only: Vec<Pattern>,
    /// Neither these functions nor what they call
    #[arg(short = 'N', long, value_name = "PATTERN", value_parser = Pattern::new)]
    never: Vec<Pattern>,
    /// Only these functions, without what they call
    #[arg(short = 'f', long, value_name = "PATTERN", value_parser = Pattern::new)]
    just: Vec<Pattern>,
    /// Only so many levels, from the functions of -F on
    #[arg(short = 'D', long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// No calls that took less: 500, 500ns, 10us, 1.5ms, 2s
    #[arg(short = 't', long, value_name = "TIME", default_value = "0", value_parser = time)]
    least: u64,
}

impl RecordedArgs {
    /// Open the recording, and find the functions.
    ///
    /// # Errors
    /// The file cannot be read or is no recording, or a pattern fits no function.
    pub fn open(&self) -> Result<(Recorded, Filter)> {
        let recording = open(&self.file)?;
        let wanted = Wanted {
            only: self.only.clone(),
            never: self.never.clone(),
            just: self.just.clone(),
            depth: self.depth,
            least: self.least,
        };
        let filter = Filter::new(&wanted, &recording)?;
        Ok((recording, filter))
    }
}

/// Open a recording.
///
/// # Errors
/// The file cannot be read or is no recording.
pub fn open(path: &Path) -> Result<Recorded> {
    let name = path.display();
    let file = input::file(path).map_err(|e| {
        Error::new(format!("cannot read {name}: {e}; valid: a file that `tramptool trace` has written"))
    })?;
    Recording::open(BufReader::new(file)).map_err(|e| e.at(name))
}

/// A time in nanoseconds.
fn time(text: &str) -> Result<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[number.len()..] {
        "" | "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    let valid = |value: &f64| value.is_finite() && *value >= 0.0;
    let value = scale.and_then(|scale| Some(number.parse::<f64>().ok()? * scale)).filter(valid);
    let refused = || Error::new(format!("'{text}' is no time; valid: 500, 500ns, 10us, 1.5ms, 2s"));
    value.map(|value| value as u64).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_have_units() {
        let times = ["0", "7", "500ns", "10us", "1.5ms", "2s"].map(|text| time(text).ok());
        assert_eq!(times, [0, 7, 500, 10_000, 1_500_000, 2_000_000_000].map(Some));
        for wrong in ["", "us", "-1", "1h", "1 s", "nan", "infs", "1e999"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
