//! What to generate for a kernel, from its configuration: `.config`, and the numbers in `asm-offsets.h`.

use std::collections::HashSet;

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::spec::{Kind, Regs, Spec};

use crate::BACKENDS;
use crate::settings::target;

/// The version that a configuration of [`codegen::target::PROFILES`]'s first has in its heading.
const VERSION: &str = "6.12";

/// What a configuration decides.
pub struct Configured {
    /// The architecture.
    pub backend: &'static dyn Backend,
    /// Options and numbers, as `--set` takes them.
    pub settings: Vec<(String, String)>,
    /// The kernel's objtool checks its objects.
    pub objtool: bool,
    /// Modules can register direct-call trampolines.
    pub direct_calls: bool,
    /// Where each comes from, in words.
    pub decisions: Vec<String>,
}

/// What a configuration decides. Each file is a name for messages and a text.
///
/// # Errors
/// Another kernel version, another architecture, an option that is missing or cannot be obeyed; the message has its name.
pub fn configured((config_name, config): (&str, &str), (offsets_name, offsets): (&str, &str)) -> Result<Configured> {
    let fail = |what: String| Error::new(format!("{config_name}: {what}"));
    let version = config.lines().take(4).find_map(|l| l.strip_prefix("# Linux/")?.split_whitespace().nth(1));
    let same = |v: &&str| v.strip_prefix(VERSION).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    if version.filter(same).is_none() {
        let version = version.unwrap_or("no kernel version in its heading");
        return Err(fail(format!("{version}; valid: the configuration of a kernel {VERSION}")));
    }
    let set: HashSet<&str> = config.lines().filter_map(|l| l.strip_prefix("CONFIG_")?.strip_suffix("=y")).collect();
    let backend = BACKENDS.iter().find(|b| set.contains(b.facts().kernel.arch)).ok_or_else(|| {
        let valid: Vec<String> = BACKENDS.iter().map(|b| format!("CONFIG_{}", b.facts().kernel.arch)).collect();
        fail(format!("for another architecture; valid: one with {}", valid.join(", ")))
    })?;
    let facts = backend.facts();
    if let Some((needed, _)) = facts.kernel.needs.iter().find(|(n, _)| !set.contains(n)) {
        return Err(fail(format!("CONFIG_{needed} is not set; valid: a kernel with it")));
    }
    if let Some((refused, why)) = facts.kernel.refuses.iter().find(|(n, _)| set.contains(n)) {
        return Err(fail(format!("CONFIG_{refused}=y is not supported: {why}; valid: a kernel without it")));
    }

    let mut settings: Vec<(String, String)> = Vec::new();
    let mut decisions = vec![format!("{} for CONFIG_{}=y", facts.name, facts.kernel.arch)];
    decisions.extend(facts.kernel.needs.iter().map(|(name, what)| format!("{what} for CONFIG_{name}=y")));
    for option in facts.options {
        let Some((value, names)) = option.config.iter().find(|(_, names)| names.iter().all(|n| set.contains(n))) else {
            continue;
        };
        let missing = option.config.iter().flat_map(|(_, names)| *names).find(|n| !set.contains(**n));
        let why = match (names, missing) {
            ([], None) => "as in every kernel".to_owned(),
            ([], Some(name)) => format!("because CONFIG_{name} is not set"),
            (names, _) => {
                format!("for {}", names.iter().map(|n| format!("CONFIG_{n}=y")).collect::<Vec<_>>().join(" "))
            }
        };
        decisions.push(format!("{}={value} {why}", option.name));
        settings.push((option.name.to_owned(), (*value).to_owned()));
    }
    let ignored = facts.kernel.ignores.iter().filter(|(name, _)| set.contains(name));
    decisions.extend(ignored.map(|(name, why)| format!("nothing for CONFIG_{name}=y: {why}")));
    let options: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let target = target(*backend, &options)?;
    let symbols = target.symbols();
    let mut needed: Vec<String> = Vec::new();
    if facts.kernel.numbers {
        let consts = backend.text(&Spec::named(Kind::Entry(Regs::Args)), &target)?.consts;
        needed.extend(consts.into_iter().map(|(name, _)| name).filter(|name| symbols.contains(&name.as_str())));
    }
    let mut numbers = Vec::new();
    for line in offsets.lines() {
        if let ["#define", name, value, ..] = *line.split_whitespace().collect::<Vec<_>>()
            && symbols.contains(&name)
        {
            numbers.push(format!("{name}={value}"));
            settings.push((name.to_owned(), value.to_owned()));
        }
    }
    if let Some(missing) = needed.iter().find(|n| !settings.iter().any(|(name, _)| name == *n)) {
        return Err(Error::new(format!("{offsets_name}: no {missing}; valid: the asm-offsets.h of the same build")));
    }
    match numbers.as_slice() {
        [] => decisions.push(format!("no numbers are needed from {offsets_name}")),
        _ => decisions.push(format!("{} from {offsets_name}", numbers.join(" "))),
    }
    decisions.push("no .eh_frame, as in every kernel".to_owned());
    let objtool = facts.kernel.objtool.is_some() && set.contains("OBJTOOL");
    if objtool {
        decisions.push("annotations for objtool for CONFIG_OBJTOOL=y".to_owned());
    }
    let direct_calls = set.contains("DYNAMIC_FTRACE_WITH_DIRECT_CALLS");
    Ok(Configured { backend: *backend, settings, objtool, direct_calls, decisions })
}
