//! What the kernel's own tests cannot notice, as data.

use codegen::words::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

/// A check that failed: of which trampoline, the clause, the place's id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Failed {
    /// The trampoline.
    pub trampoline: String,
    /// The clause.
    pub clause: String,
    /// The id of the place, without the instruction.
    pub place: String,
}

/// What these tests do not look at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unnoticed {
    #[serde(default = "any")]
    arch: String,
    #[serde(default = "any")]
    trampoline: String,
    clause: String,
    place: Vec<String>,
    /// Of these places, those that they do look at.
    #[serde(default)]
    but: Vec<String>,
    reason: String,
}

/// What is known of the kernel's own tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The trampolines that they run.
    runs: Vec<String>,
    unnoticed: Vec<Unnoticed>,
}

fn any() -> String {
    "*".to_owned()
}

fn table() -> Result<&'static Table> {
    static TABLE: std::sync::OnceLock<std::result::Result<Table, String>> = std::sync::OnceLock::new();
    let parsed = TABLE.get_or_init(|| toml::from_str(include_str!("../selftests.toml")).map_err(|e| e.to_string()));
    parsed.as_ref().map_err(|e| Error::new(format!("src/selftests.toml: {e}")))
}

impl Unnoticed {
    fn fits(&self, arch: &str, failed: &Failed) -> bool {
        let fits = |pattern: &str, text: &str| WildMatch::new(pattern).matches(text);
        let named = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, &failed.place));
        fits(&self.arch, arch)
            && fits(&self.trampoline, &failed.trampoline)
            && self.clause == failed.clause
            && named(&self.place)
            && !named(&self.but)
    }
}

/// Why the kernel's own tests do not notice a fault that fails in all of these places; none if they may.
///
/// # Errors
/// None: a test reads the table.
pub fn unnoticed(arch: &str, failed: &[Failed]) -> Result<Option<Vec<&'static str>>> {
    let table = table()?;
    let mut reasons = Vec::new();
    for place in failed {
        let reason = if table.runs.contains(&place.trampoline) {
            let row = table.unnoticed.iter().find(|row| row.fits(arch, place));
            let Some(row) = row else { return Ok(None) };
            row.reason.as_str()
        } else {
            "they do not run this trampoline"
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Ok((!reasons.is_empty()).then_some(reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(trampoline: &str, clause: &str, place: &str) -> Failed {
        Failed { trampoline: trampoline.to_owned(), clause: clause.to_owned(), place: place.to_owned() }
    }

    /// One place that they look at is enough.
    #[test]
    fn a_fault_is_unnoticed_if_all_of_it_is() {
        let of = |all: &[Failed]| unnoticed("x86_64", all).unwrap();
        let (flags, argument) = (failed("ftrace_caller", "P6", "flags"), failed("ftrace_caller", "P1", "rdi"));
        assert_eq!(of(std::slice::from_ref(&flags)).unwrap().len(), 1);
        assert_eq!(of(&[flags, argument.clone()]), None);
        assert_eq!(of(&[]), None);
        let elsewhere = Failed { trampoline: "my_tramp".to_owned(), ..argument };
        assert_eq!(of(&[elsewhere]).unwrap(), ["they do not run this trampoline"]);
    }

    #[test]
    fn a_place_that_they_look_at_is_none_of_the_others() {
        let of =
            |member: &str| unnoticed("arm64", &[failed("ftrace_caller", "P10", &format!("slot:{member}"))]).unwrap();
        assert!(of("regs[0]").is_none() && of("lr").is_none() && of("regs[7]").is_some());
    }

    /// Each row speaks of a clause that there is.
    #[test]
    fn the_table_names_what_there_is() {
        let table = table().unwrap();
        for row in &table.unnoticed {
            assert!(emu_tests::Clause::ALL.iter().any(|clause| clause.name() == row.clause), "{row:?}");
        }
    }
}
