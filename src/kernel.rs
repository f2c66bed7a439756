//! What to generate for a kernel, from its configuration: `.config`, and the numbers in `asm-offsets.h`.

use std::collections::HashSet;

use codegen::ask::spec::{Kind, Regs};
use codegen::backend::Backend;
use codegen::profile::{Convention, Kernel, Profile};
use codegen::words::error::{Error, Result};

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

/// A version of Linux: its two first numbers.
type Version = (u32, u32);

fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The version in the heading of a configuration, `# Linux/x86 7.3.4 Kernel Configuration`.
fn in_heading(config: &str) -> Option<&str> {
    config.lines().take(4).find_map(|l| l.strip_prefix("# Linux/")?.split_whitespace().nth(1))
}

/// The version of a build tree: in `include/config/kernel.release`, else in its `Makefile`.
pub fn of_tree(release: Option<&str>, makefile: Option<&str>) -> Option<String> {
    let given = release.map(|text| text.trim().to_owned()).filter(|text| version(text).is_some());
    given.or_else(|| {
        let number = |name: &str| {
            let line = makefile?.lines().find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix('='))?;
            Some(line.trim().to_owned())
        };
        Some(format!("{}.{}.{}", number("VERSION")?, number("PATCHLEVEL")?, number("SUBLEVEL")?))
    })
}

/// What a build tree is.
pub struct Tree<'t> {
    /// The configuration: a name for messages, and the text.
    pub config: (&'t str, &'t str),
    /// The version of the tree, if there is one around the configuration.
    pub version: Option<String>,
}

impl Tree<'_> {
    /// The version, as it is written.
    fn version(&self) -> Result<&str> {
        let (name, config) = self.config;
        let fail = |what: String| Error::new(format!("{name}: {what}"));
        let heading = in_heading(config).filter(|text| version(text).is_some());
        let heading = heading.ok_or_else(|| {
            fail("no kernel version in its heading; valid: a configuration as `make config` writes it".to_owned())
        })?;
        match self.version.as_deref() {
            Some(tree) if version(tree) != version(heading) => {
                Err(fail(format!("written by {heading}, and the tree is {tree}; valid: after `make olddefconfig`")))
            }
            tree => Ok(tree.unwrap_or(heading)),
        }
    }

    /// What a profile says of its architecture.
    ///
    /// # Errors
    /// It says nothing of it; of which it does.
    pub fn convention(&self, profile: &'static Profile) -> Result<&'static Convention> {
        let (name, config) = self.config;
        Ok(architecture(profile, &built_in(config)).map_err(|e| e.at(name))?.0)
    }

    /// The profile that comes with the tool for this kernel: that of its version, or of the last one before.
    ///
    /// # Errors
    /// The kernel is older than all of them, or its version is nowhere.
    pub fn profile(&self) -> Result<&'static Profile> {
        let found = self.version()?;
        let mut known = Vec::new();
        for name in profiles::names() {
            let profile = crate::profile(name)?;
            known.extend(profile.kernels.iter().filter_map(|of| Some((version(of)?, *of, profile))));
        }
        known.sort_by_key(|(of, ..)| *of);
        let best = known.iter().rfind(|(of, ..)| version(found).is_some_and(|found| *of <= found));
        best.map(|(.., profile)| *profile).ok_or_else(|| {
            let valid: Vec<&str> = known.iter().map(|(_, of, _)| *of).collect();
            Error::new(format!("{}: Linux {found}; valid: {}, or a later one", self.config.0, valid.join(", ")))
        })
    }
}

/// The options of a configuration that are built in.
fn built_in(config: &str) -> HashSet<&str> {
    config.lines().filter_map(|l| l.strip_prefix("CONFIG_")?.strip_suffix("=y")).collect()
}

/// What a profile says of the architecture that a configuration is for.
///
/// # Errors
/// It says nothing of it; of which it does.
fn architecture(profile: &'static Profile, set: &HashSet<&str>) -> Result<(&'static Convention, &'static Kernel)> {
    let each = || profile.conventions.iter().filter_map(|c| Some((c, c.kernel.as_ref()?)));
    each().find(|(_, kernel)| set.contains(kernel.arch)).ok_or_else(|| {
        let valid: Vec<String> = each().map(|(_, kernel)| format!("CONFIG_{}", kernel.arch)).collect();
        Error::new(format!("for another architecture; valid: one with {}", valid.join(", ")))
    })
}

/// What a profile says of a kernel of this version, if it was not written for it.
fn for_another(profile: &Profile, convention: &Convention, found: &str) -> Option<String> {
    if profile.kernels.iter().any(|of| version(of) == version(found)) {
        return None;
    }
    let last = profile.kernels.iter().rfind(|of| version(of) < version(found))?;
    let sources = &convention.kernel.as_ref()?.sources;
    let compare = match sources.as_slice() {
        [] => String::new(),
        sources => format!("; compare in both kernels: {}", sources.join(", ")),
    };
    Some(format!(
        "warning: Linux {found} is later than {last}, for which profile {} was written{compare}",
        profile.name
    ))
}

/// What a configuration decides, and `offsets`: the name of `asm-offsets.h`, and its text.
///
/// # Errors
/// An older kernel than the profile is for, another architecture, an option that is missing or cannot be obeyed; the message
/// has its name.
pub fn configured(profile: &'static Profile, tree: &Tree, offsets: (&str, &str)) -> Result<Configured> {
    let ((config_name, config), (offsets_name, offsets)) = (tree.config, offsets);
    let fail = |what: String| Error::new(format!("{config_name}: {what}"));
    let found = tree.version()?;
    if !profile.kernels.iter().any(|of| version(of) <= version(found)) {
        return Err(fail(match profile.kernels.as_slice() {
            [] => format!("{found}; profile {} is for no kernel", profile.name),
            kernels => format!("{found}; valid: the configuration of a kernel {} or later", kernels.join(" or ")),
        }));
    }
    let set = built_in(config);
    let (convention, kernel) = architecture(profile, &set).map_err(|e| e.at(config_name))?;
    let facts = convention.facts;
    let backend = crate::backend(facts.name)?;
    if let Some((needed, _)) = kernel.needs.iter().find(|(n, _)| !set.contains(n)) {
        return Err(fail(format!("CONFIG_{needed} is not set; valid: a kernel with it")));
    }
    if let Some((refused, why)) = kernel.refuses.iter().find(|(n, _)| set.contains(n)) {
        return Err(fail(format!("CONFIG_{refused}=y is not supported: {why}; valid: a kernel without it")));
    }

    let mut settings: Vec<(String, String)> = Vec::new();
    let mut decisions = vec![format!("profile {} for Linux {found}", profile.name)];
    decisions.extend(for_another(profile, convention, found));
    decisions.push(format!("{} for CONFIG_{}=y", facts.name, kernel.arch));
    decisions.extend(kernel.needs.iter().map(|(name, what)| format!("{what} for CONFIG_{name}=y")));
    for (option, value, why) in chosen(convention, &set) {
        decisions.push(format!("{option}={value} {why}"));
        settings.push((option.to_owned(), value.to_owned()));
    }
    let ignored = kernel.ignores.iter().filter(|(name, _)| set.contains(name));
    decisions.extend(ignored.map(|(name, why)| format!("CONFIG_{name}=y has no effect: {why}")));
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
