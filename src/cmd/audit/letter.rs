//! A finding as a text that can be sent to those who wrote the assembly.

use codegen::words::error::{Error, Result};
use emu_tests::Confidence;
use tool::printed::printable;

use super::finding::Finding;
use super::lines::Line;
use crate::cmd::shared::files::Origin;
use crate::cmd::shared::ui::wrap;

/// Columns that mails have.
const COLUMNS: usize = 72;

/// The text for a finding, of these.
///
/// # Errors
/// There is none of that name.
pub fn text(name: &str, origins: &[Origin], findings: &[Finding]) -> Result<String> {
    let Some(finding) = findings.iter().find(|finding| finding.finding == name) else {
        let known = findings.iter().map(|finding| format!("'{}'", printable(&finding.finding))).collect::<Vec<_>>();
        let known = if known.is_empty() { "none, as nothing was found".to_owned() } else { known.join(", ") };
        return Err(Error::new(format!("--report {name}: there is no such finding; valid: {known}")));
    };
    let file = |origin: &&Origin| [finding.given, finding.file, finding.object].contains(&origin.file.as_str());
    let origin = origins.iter().find(file);
    let (mut letter, claim) = (Letter::default(), finding.claim);
    letter.line(&format!("Subject: {}: {}", finding.about(), claim.kind.about()));
    letter.line("");
    if let Some(origin) = origin {
        letter.field("Package", origin.package.as_deref());
        letter.field("Version", origin.version.as_deref());
        letter.field("File", Some(&origin.file));
        letter.field("SHA-256", Some(&origin.sha256));
    }
    letter.field("Object", Some(&finding.place()));
    letter.field("Function", finding.function);
    letter.field("Source", finding.line.map(Line::shown).as_deref());
    letter.line("");
    let alike = if claim.instructions > 1 {
        format!(" It is so at {} instructions; this is the first.", claim.instructions)
    } else {
        String::new()
    };
    letter.paragraph(&format!("{claim}.{alike}"));
    letter.paragraph(&format!("Who relies on it: {}.", claim.kind.relies()));
    if let Some(Confidence { true_ones, read }) = claim.kind.confidence() {
        letter.paragraph(&format!(
            "How sure that is: of {read} findings of this kind in Debian's packages, {true_ones} were true when their code was read."
        ));
    }
    if !claim.context.is_empty() {
        letter.indented(claim.context.iter().map(String::as_str));
    }
    if !claim.path.is_empty() {
        let way: Vec<String> = claim.path.iter().map(|offset| format!("+{offset:#x}")).collect();
        letter.paragraph(&format!("The run that shows it goes through the code at {}.", way.join(", ")));
    }
    letter.paragraph(&format!("What would mend it: {}.", claim.kind.mend()));
    letter.paragraph("To see it again:");
    letter.indented([finding.again().as_str()]);
    letter.paragraph(
        "Not shown: that a program reaches this state. The function ran in an emulator, with arguments and memory that the tool \
         chose, and with callees that change every register that the psABI lets them change.",
    );
    Ok(letter.0.trim_end().to_owned() + "\n")
}

/// The text, so far.
#[derive(Default)]
struct Letter(String);

impl Letter {
    fn line(&mut self, text: &str) {
        self.0 += text;
        self.0.push('\n');
    }

    fn field(&mut self, name: &str, value: Option<&str>) {
        value.into_iter().for_each(|value| self.line(&format!("{name}: {}", printable(value))));
    }

    fn paragraph(&mut self, text: &str) {
        wrap(&printable(text), COLUMNS).iter().for_each(|text| self.line(text));
        self.line("");
    }

    fn indented<'t>(&mut self, lines: impl IntoIterator<Item = &'t str>) {
        lines.into_iter().for_each(|text| self.line(&format!("    {}", printable(text))));
        self.line("");
    }
}
