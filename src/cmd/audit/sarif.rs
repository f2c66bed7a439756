//! An audit as SARIF 2.1.0: a rule per claim, a result per finding.

use std::collections::HashMap;

use emu_tests::{ClaimKind, Tier};
use serde_json::json;
use serde_sarif::sarif;
use tool::report::sarif::parts::{
    Artifacts, Fingerprints, Source, accepted, line_of, log, logical, physical, properties, relative, rule,
};

use super::finding::Finding;

/// The report. A result's place is the line of the source, where the object tells; else the file that was given. The
/// instructions around it are a related location.
pub fn document(findings: &[Finding], reasons: &HashMap<&str, &str>) -> sarif::Sarif {
    let (mut artifacts, mut same) = (Artifacts::default(), Fingerprints::default());
    let results = findings.iter().map(|finding| result(finding, reasons, &mut same, &mut artifacts)).collect();
    let rules = ClaimKind::ALL.map(|kind| rule(&kind.to_string(), kind.about(), &format!("{}.", kind.mend())));
    log(rules.to_vec(), results, artifacts, [])
}

fn result(
    finding: &Finding,
    reasons: &HashMap<&str, &str>,
    same: &mut Fingerprints,
    artifacts: &mut Artifacts,
) -> sarif::Result {
    let claim = finding.claim;
    let level = match claim.tier {
        Tier::Error => sarif::ResultLevel::Error,
        Tier::Warning => sarif::ResultLevel::Warning,
        Tier::Note => sarif::ResultLevel::Note,
    };
    let place = finding.spot();
    let line = finding.line.as_ref().map_or_else(
        || line_of(relative(finding.given), 1),
        |line| line_of(relative(&line.file.to_string_lossy()), usize::try_from(line.number).unwrap_or(1)),
    );
    let location = sarif::Location::builder().logical_locations(vec![logical(&place)]).physical_location(line).build();
    let message = format!("{} of {}: {claim}.", claim.kind, finding.about());
    let mut result = sarif::Result::builder()
        .rule_id(claim.kind.to_string())
        .rule_index(claim.kind as i64)
        .kind(sarif::ResultKind::Fail)
        .level(level)
        .message(sarif::Message::builder().text(message).build())
        .locations(vec![location])
        .partial_fingerprints(same.of(&finding.finding))
        .properties(properties([
            ("finding", json!(finding.finding)),
            ("object", json!(finding.object)),
            ("confidence", json!(finding.confidence)),
        ]))
        .build();
    if let Some(source) = instructions(finding) {
        let about = sarif::Message::builder().text(source.about.as_str()).build();
        let physical = physical(source, &place, artifacts);
        let related = sarif::Location::builder().id(1).physical_location(physical).message(about).build();
        result.related_locations = Some(vec![related]);
    }
    if finding.accepted {
        let reason = reasons.get(finding.finding.as_str()).copied().unwrap_or_default();
        result.suppressions = Some(vec![accepted(reason)]);
    }
    result
}

/// The instructions around the claim's, as a file of the report.
fn instructions(finding: &Finding) -> Option<Source> {
    let context = &finding.claim.context;
    let line = context.iter().position(|line| line.starts_with("=>"))? + 1;
    let path = vec![finding.object.to_owned(), format!("{}.{}.txt", finding.spot(), finding.claim.kind)];
    let about = format!("instructions around {}", finding.spot());
    Some(Source { path, about, text: context.join("\n") + "\n", line })
}
