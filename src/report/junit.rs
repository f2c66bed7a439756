//! JUnit's XML, as continuous integration reads it: a suite per set of options, a case per trampoline and clause.

use emu_tests::{Report, Row, Verdict};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::rows::{details, groups};

/// The report as XML. JUnit knows no expected failures: what deviates is skipped, with `deviates` as its type.
pub fn document(report: &Report) -> quick_junit::Report {
    let mut document = quick_junit::Report::new("tramptool check");
    for group in groups(report.results.iter().collect(), |r| format!("{} {}", r.arch, r.options)) {
        let mut suite = TestSuite::new(group.name);
        suite.add_property(("seed", report.seed.to_string().as_str()));
        suite.add_property(("engine", report.engine.as_str()));
        suite.add_test_cases(group.rows.into_iter().map(case));
        document.add_test_suite(suite);
    }
    document
}

fn case(row: &Row) -> TestCase {
    let skipped = |kind: &str| {
        let mut status = TestCaseStatus::skipped();
        status.set_type(kind).set_message(&row.reason);
        status
    };
    let mut status = match row.verdict {
        Verdict::Pass => TestCaseStatus::success(),
        Verdict::Skip => skipped("skip"),
        Verdict::Deviates => skipped("deviates"),
        Verdict::Fail => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type(row.clause.name()).set_message(&row.reason);
            status
        }
        Verdict::Open => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type("open").set_message(&row.reason);
            status
        }
    };
    let details: Vec<String> = details(row).collect();
    if !details.is_empty() {
        status.set_description(details.join("\n"));
    }
    let mut case = TestCase::new(row.clause.name(), status);
    case.set_classname(&row.trampoline).set_assertions(usize::try_from(row.checks).unwrap_or(usize::MAX));
    case
}
