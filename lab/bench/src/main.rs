//! Ratios, measured in one run: the generator against GNU as on the same text, the checker against the bare emulator.
//!
//! `bench generate [--format json]` and `bench check [--format json]`; `./x bench` runs both. `bench native` measures
//! what traced calls cost on this machine, `bench live` what recording whole programs costs, `bench against REVISION` generating and checking beside another revision.
//! `bench scenarios TIMES` is for profilers: the checker's scenarios alone, so many times as long.

mod against;
mod attach;
#[cfg(feature = "check")]
mod check;
mod generate;
mod kernel;
mod live;
mod native;
mod programs;
mod table;
mod took;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.windows(2).any(|w| w[0] == "--format" && w[1] == "json");
    let arg = |i: usize| args.get(i).map_or("", String::as_str);
    let result = match args.first().map(String::as_str) {
        Some("generate") => generate::run(json),
        // What `generate` starts to measure a process of its own.
        Some("generate-one") => generate::one(arg(1), arg(2), arg(3)),
        Some("against") => against::run(args.get(1).map_or("HEAD", String::as_str), json),
        Some("native") => native::run(json),
        Some("live") => live::run(json),
        Some("tailored-one") => generate::tailored_one(arg(1), arg(2)),
        #[cfg(feature = "check")]
        Some("check") => check::run(json),
        #[cfg(feature = "check")]
        Some("scenarios") => check::scenarios(args.get(1).map_or("1", String::as_str), json),
        #[cfg(feature = "check")]
        Some("check-all") => check::all(),
        other => Err(format!(
            "unknown benchmark '{}'; valid: generate, native, live, against, check, scenarios",
            other.unwrap_or("")
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::from(2)
        }
    }
}
