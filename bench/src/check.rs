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
        // Here the reference is the floor: the ratio says how much of a scenario is the emulator's own time.
        rows.push(Row::new(
            format!("{} scenario, us", backend.facts().name),
            cost.scenario.as_secs_f64() * 1e6,
            "bare emulator, us",
            cost.bare.as_secs_f64() * 1e6,
        ));
    }
    print(&rows, json)
}
