//! Differences that are one change: the same thing of several registers or words.

use codegen::words::abi::Abi;

use super::difference::Difference;

/// Stands for what a difference is about.
const IT: &str = "\u{b7}";

/// Each change once. What is said of several registers or words alike names them all.
pub(super) fn grouped(all: Vec<Difference>, abi: &Abi) -> Vec<Difference> {
    let mut groups: Vec<(Difference, String, Vec<String>)> = Vec::new();
    for d in all {
        let Some(subject) = subject(&d.text, abi) else {
            groups.push((d, String::new(), Vec::new()));
            continue;
        };
        let said = said(&d.text, &subject);
        let alike = |(other, text, names): &&mut (Difference, String, Vec<String>)| {
            *text == said
                && (other.severity, other.better) == (d.severity, d.better)
                && names.first().is_some_and(|name| cases(other, name) == cases(&d, &subject))
        };
        match groups.iter_mut().find(alike) {
            Some((_, _, names)) => names.push(subject),
            None => groups.push((d, said, vec![subject])),
        }
    }
    let each = groups.into_iter().map(|(d, said, names)| match names.as_slice() {
        [] | [_] => d,
        names => Difference { text: of_all(&said, &names.join(" ")), ..d },
    });
    each.collect()
}

/// What is said of one, of all of them.
fn of_all(said: &str, names: &str) -> String {
    let all = match said.strip_prefix("the caller's word ") {
        Some(rest) => rest.replacen(IT, &format!("each of the caller's words {names}"), 1),
        None => said.replacen(IT, &format!("each of {names}"), 1),
    };
    all.replace(IT, "it")
}

/// The register or the word that a text is about.
fn subject(text: &str, abi: &Abi) -> Option<String> {
    let words = || text.split(' ').map(|word| word.trim_end_matches([':', ';', ',']));
    let about = |word: &&str| abi.find(word).is_some() || word.starts_with("[stack+") && word.ends_with(']');
    words().take(4).find(about).map(str::to_owned)
}

/// The text without what it is about. What is said of a register that a call left is no other thing for each.
fn said(text: &str, subject: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([':', ';', ',']);
        if bare == subject { word.replacen(bare, IT, 1) } else { word.to_owned() }
    };
    let words: Vec<String> = text.split(' ').map(word).collect();
    let mut text = words.join(" ");
    // It stands behind the call that left it.
    if let Some((before, rest)) = text.clone().split_once(&format!("{IT} as call "))
        && let Some((call, rest)) = rest.split_once(" left it")
    {
        text = format!("{before}what call {call} left in {IT}{rest}");
    }
    text
}

/// The cases in which it shows, whichever word of the frame they are about.
fn cases(d: &Difference, subject: &str) -> Vec<String> {
    let case = |case: &String| {
        let mut words: Vec<&str> = case.split(' ').collect();
        for word in &mut words {
            if word.starts_with("frame+") || word.starts_with("[stack+") || *word == subject {
                *word = IT;
            }
        }
        words.join(" ")
    };
    d.when.iter().map(case).collect()
}
