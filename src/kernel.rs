//! What to generate for a kernel, from its configuration: `.config`, and the numbers in `asm-offsets.h`.

use std::collections::HashSet;

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::profile::{Convention, Profile};
use codegen::spec::{Kind, Regs};

use crate::settings::target;

/// What a configuration decides.
pub struct Configured {
    /// The architecture.
    pub backend: &'static dyn Backend,
    /// What the profile says of it.
    pub convention: &'static Convention,
    /// Options and numbers, as `--set` takes them.
    pub settings: Vec<(String, String)>,
    /// The kernel's objtool checks its objects.
    pub objtool: bool,
    /// The option that modules need to register direct-call trampolines, if it is not set.
    pub no_direct_calls: Option<&'static str>,
    /// Where each comes from, in words.
    pub decisions: Vec<String>,
}

/// What a configuration decides. Each file is a name for messages and a text.
///
/// # Errors
/// Another kernel version, another architecture, an option that is missing or cannot be obeyed; the message has its name.
pub fn configured(
    profile: &'static Profile,
    (config_name, config): (&str, &str),
    (offsets_name, offsets): (&str, &str),
) -> Result<Configured> {
    let fail = |what: String| Error::new(format!("{config_name}: {what}"));
    let version = config.lines().take(4).find_map(|l| l.strip_prefix("# Linux/")?.split_whitespace().nth(1));
    let is = |v: &str, of: &str| v.strip_prefix(of).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    let known = |v: &&str| profile.kernels.iter().any(|of| is(v, of));
    if version.filter(known).is_none() {
        let version = version.unwrap_or("no kernel version in its heading");
        return Err(fail(match profile.kernels.as_slice() {
            [] => format!("{version}; profile {} is for no kernel", profile.name),
            kernels => format!("{version}; valid: the configuration of a kernel {}", kernels.join(" or ")),
        }));
    }
    let set: HashSet<&str> = config.lines().filter_map(|l| l.strip_prefix("CONFIG_")?.strip_suffix("=y")).collect();
    let each = || profile.conventions.iter().filter_map(|c| Some((c, c.kernel.as_ref()?)));
    let (convention, kernel) = each().find(|(_, kernel)| set.contains(kernel.arch)).ok_or_else(|| {
        let valid: Vec<String> = each().map(|(_, kernel)| format!("CONFIG_{}", kernel.arch)).collect();
        fail(format!("for another architecture; valid: one with {}", valid.join(", ")))
    })?;
    let facts = convention.facts;
    let backend = crate::backend(facts.name)?;
    if let Some((needed, _)) = kernel.needs.iter().find(|(n, _)| !set.contains(n)) {
        return Err(fail(format!("CONFIG_{needed} is not set; valid: a kernel with it")));
    }
    if let Some((refused, why)) = kernel.refuses.iter().find(|(n, _)| set.contains(n)) {
        return Err(fail(format!("CONFIG_{refused}=y is not supported: {why}; valid: a kernel without it")));
    }

    let mut settings: Vec<(String, String)> = Vec::new();
    let mut decisions = vec![format!("{} for CONFIG_{}=y", facts.name, kernel.arch)];
    decisions.extend(kernel.needs.iter().map(|(name, what)| format!("{what} for CONFIG_{name}=y")));
    for (option, value, why) in chosen(convention, &set) {
        decisions.push(format!("{option}={value} {why}"));
        settings.push((option.to_owned(), value.to_owned()));
    }
    let ignored = kernel.ignores.iter().filter(|(name, _)| set.contains(name));
    decisions.extend(ignored.map(|(name, why)| format!("nothing for CONFIG_{name}=y: {why}")));
    let options: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let target = target(backend, convention, &options)?;
    let symbols = target.symbols();
    let mut needed: Vec<String> = Vec::new();
    if kernel.numbers {
        let entry = convention.specs().filter(|s| s.kind == Kind::Entry(Regs::Args));
        let consts = entry.map(|s| backend.text(&s, &target)).collect::<Result<Vec<_>>>()?;
        let consts = consts.into_iter().flat_map(|listing| listing.consts);
        needed.extend(consts.map(|(name, _)| name).filter(|name| symbols.contains(&name.as_str())));
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
    let objtool = kernel.objtool.is_some() && set.contains("OBJTOOL");
    if objtool {
        decisions.push("annotations for objtool for CONFIG_OBJTOOL=y".to_owned());
    }
    let no_direct_calls = kernel.direct_calls.filter(|name| !set.contains(name));
    Ok(Configured { backend, convention, settings, objtool, no_direct_calls, decisions })
}

/// The options that a configuration decides, with the values and why they have them.
fn chosen(convention: &Convention, set: &HashSet<&str>) -> Vec<(&'static str, &'static str, String)> {
    let mut all = Vec::new();
    for (rule, option) in convention.offered() {
        let Some((value, names)) = rule.config.iter().find(|(_, names)| names.iter().all(|n| set.contains(n))) else {
            continue;
        };
        let missing = rule.config.iter().flat_map(|(_, names)| names).find(|n| !set.contains(**n));
        let why = match (names.as_slice(), missing) {
            ([], None) => "as in every kernel".to_owned(),
            ([], Some(name)) => format!("because CONFIG_{name} is not set"),
            (names, _) => {
                format!("for {}", names.iter().map(|n| format!("CONFIG_{n}=y")).collect::<Vec<_>>().join(" "))
            }
        };
        all.push((option.name, *value, why));
    }
    all
}
