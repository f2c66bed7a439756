//! One check scenario (reset, run, compare) against the bare emulator running the same instructions without hooks.

use codegen::spec::Choices;

use crate::table::{Row, print};

/// Measure and print.
pub fn run(json: bool) -> Result<(), String> {
    let mut rows = Vec::new();
    for backend in tramptool::BACKENDS {
        let suite =
            tramptool::suite::suite(*backend, &backend.target(Choices::default())).map_err(|e| e.to_string())?;
        let cost = emu_tests::measure(&suite, "ftrace_caller", "args6").map_err(|e| e.to_string())?;
        rows.push(Row::new(
            format!("{} bare emulator, us", backend.facts().name),
            cost.bare.as_secs_f64() * 1e6,
            "scenario with all checks, us",
            cost.scenario.as_secs_f64() * 1e6,
        ));
    }
    print(&rows, json)
}
