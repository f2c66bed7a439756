//! What is not as it should be, with the reason. An excuse that nothing needs any more fails too.

use std::collections::BTreeSet;

/// What is excused, and why.
pub type Excuses = [(&'static str, &'static str)];

/// Fail with what is wrong and not excused, and with excuses for what is well. Each of `wrong` is what an excuse names, and
/// the message.
pub fn judge(what: &str, wrong: Vec<(String, String)>, excuses: &Excuses) {
    let found: BTreeSet<&str> = wrong.iter().map(|(name, _)| name.as_str()).collect();
    let excused = |name: &str| excuses.iter().any(|(excuse, _)| *excuse == name);
    let mut messages: Vec<String> =
        wrong.iter().filter(|(name, _)| !excused(name)).map(|(_, message)| message.clone()).collect();
    let stale = excuses.iter().filter(|(name, _)| !found.contains(name));
    messages.extend(stale.map(|(name, _)| format!("{name} is excused and needs it no more: take the excuse away")));
    assert!(excuses.iter().all(|(_, reason)| !reason.is_empty()), "{what}: an excuse without a reason");
    assert!(messages.is_empty(), "{what}:\n  {}", messages.join("\n  "));
}

#[test]
fn what_is_wrong_and_what_is_excused_for_nothing_is_named() {
    let wrong = || vec![("a".to_owned(), "a is long".to_owned())];
    let fails = |wrong, excuses: &'static Excuses| std::panic::catch_unwind(|| judge("test", wrong, excuses)).is_err();
    assert!(fails(wrong(), &[]));
    assert!(fails(vec![], &[("a", "because")]));
    assert!(fails(wrong(), &[("a", "")]));
    assert!(!fails(wrong(), &[("a", "because")]));
}
