//! The command line: see `tramptool --help`.

mod cmd;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::main()
}
