//! Exit codes, and the one message before the code of trouble.

use std::io::Write;

use tool::printed::unmarked;

/// Exit code: everything as asked for; of `diff`, both are the same.
pub const DONE: u8 = 0;
/// Exit code of trouble: bad input, or output that could not be written. There is one message on stderr.
pub const TROUBLE: u8 = 2;

/// Print one line to stderr. That stderr is closed is no reason for another message.
pub fn note(message: &str) {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(std::io::stderr(), "tramptool: {}", unmarked(&line));
}

/// The message before the code of trouble.
pub fn complain(message: &str) -> u8 {
    note(message);
    TROUBLE
}

/// Two sides of a comparison differ.
pub const DIFFERS: u8 = 1;
