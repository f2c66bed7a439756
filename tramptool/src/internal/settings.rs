//! Options and numbers: from `name=value` to a target.

use codegen::ask::option::{Choices, OptionInfo};
use codegen::backend::Backend;
use codegen::profile::target::Target;
use codegen::profile::{Convention, OptionRule, Profile};
use codegen::words::error::{Error, Result};

/// Split `name=value` into name and value.
///
/// # Errors
/// The text has no `=`.
pub fn setting(text: &str) -> Result<(&str, &str)> {
    text.split_once('=')
        .ok_or_else(|| Error::new(format!("setting '{text}' has no value; valid: OPTION=VALUE, such as rvc=off")))
}

/// Parse the output of [`super::suite::options`]: the profile, and the options and numbers.
///
/// # Errors
/// A profile that does not exist, an option without a value.
pub fn of_options(text: &str) -> Result<(&'static Profile, Vec<(&str, &str)>)> {
    let all = text.split(' ').filter(|s| !s.is_empty()).map(setting).collect::<Result<Vec<_>>>()?;
    let (profile, settings): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| *name == PROFILE);
    Ok((super::profile(profile.first().map_or(profiles::DEFAULT, |(_, name)| name))?, settings))
}

/// The name of the profile among options.
pub const PROFILE: &str = "profile";

/// The architecture called `name`, or for `all` each architecture of the profile.
///
/// # Errors
/// No architecture has this name.
pub fn backends(name: &str, profile: &'static Profile) -> Result<Vec<&'static dyn Backend>> {
    if !name.eq_ignore_ascii_case("all") {
        return Ok(vec![super::backend(name)?]);
    }
    let has = |b: &&'static dyn Backend| profile.convention(b.facts().name).is_ok();
    Ok(super::BACKENDS.iter().copied().filter(has).collect())
}

/// The settings for one of several architectures: those that it knows, and those that no architecture knows, for it to refuse.
pub fn settings_of<'s>(
    profile: &'static Profile,
    backend: &dyn Backend,
    backends: &[&'static dyn Backend],
    settings: &[(&'s str, &'s str)],
) -> Vec<(&'s str, &'s str)> {
    let knows = |backend: &dyn Backend, name: &str| {
        profile.convention(backend.facts().name).is_ok_and(|convention| {
            convention.offered().any(|(_, o)| o.name == name)
                || backend.target(convention, convention.defaults()).is_ok_and(|t| t.symbols().contains(&name))
        })
    };
    let wanted = |name: &str| knows(backend, name) || !backends.iter().any(|b| knows(*b, name));
    settings.iter().copied().filter(|(name, _)| wanted(name)).collect()
}

/// The target of `backend` with these options and numbers.
///
/// # Errors
/// An unknown name or value, or two slots of a frame at one offset.
pub fn target(backend: &dyn Backend, convention: &'static Convention, settings: &[(&str, &str)]) -> Result<Target> {
    with_numbers(backend, convention, choices(backend, convention, settings)?, settings)
}

/// The options among these settings; other settings are left to [`with_numbers`].
///
/// # Errors
/// A value that an option does not have.
pub fn choices(backend: &dyn Backend, convention: &Convention, settings: &[(&str, &str)]) -> Result<Choices> {
    let facts = backend.facts();
    let mut choices = convention.defaults();
    for (name, value) in settings.iter().filter(|(name, _)| is_option(convention, name)) {
        choices.set(facts.name, facts.options, name, value)?;
    }
    Ok(choices)
}

/// The target with these options, and with the numbers among these settings.
///
/// # Errors
/// A name that is neither an option nor a number, a number that does not fit, or two slots of a frame at one offset.
pub fn with_numbers(
    backend: &dyn Backend,
    convention: &'static Convention,
    choices: Choices,
    settings: &[(&str, &str)],
) -> Result<Target> {
    let mut target = backend.target(convention, choices)?;
    for (name, value) in settings.iter().filter(|(name, _)| !is_option(convention, name)) {
        if !target.symbols().contains(name) {
            return Err(unknown_setting(name, &target));
        }
        let number = parse_i32(value).map_err(|e| e.at(format_args!("{name} of {}", target.facts.name)))?;
        target.set_number(name, number)?;
    }
    target.check_frames()?;
    Ok(target)
}

/// The options that the flags of a compiler decide, as `gcc` and `clang` read them: of several flags of one name, the last counts,
/// but sanitizers are added up. Nothing is asked of those that are `set` otherwise.
///
/// # Errors
/// A profile without an option that such flags decide; flags that ask for two values of one.
pub fn of_compiler(convention: &Convention, flags: &str, set: &[&str]) -> Result<Vec<(&'static str, &'static str)>> {
    let given: Vec<(&str, &str)> =
        flags.split_whitespace().map(|flag| flag.split_once('=').unwrap_or((flag, ""))).collect();
    let is_given = |flag: &&str| {
        let (name, part) = flag.split_once('=').map_or((*flag, None), |(name, part)| (name, Some(part)));
        let has = |value: &str| part.is_none_or(|part| parts(value).contains(&part));
        if name == ADDED {
            let all = |value: &str| parts(value).contains(&"all");
            let counts = |(other, value): &&(&str, &str)| match *other {
                ADDED => has(value),
                TAKEN_AWAY => has(value) || all(value),
                _ => false,
            };
            let last = given.iter().rfind(counts);
            return last.is_some_and(|(other, _)| *other == ADDED);
        }
        given.iter().rfind(|(other, _)| *other == name).is_some_and(|(_, value)| has(value))
    };
    let deciding: Vec<_> = convention.offered().filter(|(rule, _)| !rule.cflags.is_empty()).collect();
    if deciding.is_empty() {
        return Err(Error::Absent {
            profile: convention.profile.to_owned(),
            what: format!("option of {} that flags of a compiler decide", convention.facts.name),
            valid: "--profile bare, or of a kernel --kernel-build with its tree".to_owned(),
        });
    }
    let mut decided = Vec::new();
    for (rule, option) in deciding.into_iter().filter(|(_, option)| !set.contains(&option.name)) {
        // What a flag says whatever its value is counts where no other has said anything.
        let by = |flags: &[&'static str]| flags.iter().copied().find(is_given);
        let mut all = rule.cflags.iter().filter_map(|(value, flags)| Some((*value, by(flags)?)));
        let Some((value, flag)) = all.next() else { continue };
        if let Some((_, other)) =
            all.find(|(_, other)| other.split('=').next() != flag.split('=').next() && other.contains('='))
        {
            let what = format!("--cflags: {flag} and {other} ask for two values of {}", option.name);
            return Err(Error::new(format!(
                "{what}, of which a trampoline has one; valid: without one of them, or with --set {}=...",
                option.name
            )));
        }
        decided.push((option.name, value));
    }
    Ok(decided)
}

/// The flag that adds a sanitizer.
const ADDED: &str = "-fsanitize";
/// The flag that takes it away again.
const TAKEN_AWAY: &str = "-fno-sanitize";

/// What a flag's value has: a list with `+` or commas, or extensions of an instruction set, `rv64imac_zba` and `rv64i2p0_c2p0`, by their names
/// with and without versions (RISC-V unprivileged manual, "ISA Extension Naming Conventions").
fn parts(value: &str) -> Vec<&str> {
    let mut all: Vec<&str> = value.split(['+', '_', ',']).collect();
    let versions = |c: char| c.is_ascii_digit() || c == 'p';
    all.extend(value.split('_').skip(1).map(|extension| extension.trim_end_matches(versions)));
    if let Some(base) = all[0].strip_prefix("rv").map(|base| base.trim_start_matches(|c: char| c.is_ascii_digit())) {
        all.extend(base.split("").filter(|letter| !letter.is_empty()));
    }
    all
}

fn is_option(convention: &Convention, name: &str) -> bool {
    convention.offered().any(|(_, o)| o.name == name)
}

fn unknown_setting(name: &str, target: &Target) -> Error {
    let facts = target.facts;
    let offered: Vec<_> = target.convention.offered().collect();
    let valid: Vec<String> = offered.iter().map(|(rule, o)| option(rule, o)).collect();
    if facts.options.iter().any(|o| o.name == name) {
        let profile = target.convention.profile;
        let valid = if valid.is_empty() { "no option".to_owned() } else { valid.join(", ") };
        return Error::new(format!(
            "option '{name}' of {} has one value in profile {profile}; valid: {valid}",
            facts.name
        ));
    }
    let numbers = format!("and the numbers that `tramptool list --arch {} --format json` names", facts.name);
    let others: Vec<&str> = super::BACKENDS
        .iter()
        .map(|b| b.facts())
        .filter(|f| f.options.iter().any(|o| o.name == name))
        .map(|f| f.name)
        .collect();
    let what = if others.is_empty() {
        format!("unknown option '{name}' of {}", facts.name)
    } else {
        format!("option '{name}' is one of {}, not of {}", others.join(" and "), facts.name)
    };
    Error::new(format!("{what}; valid: {}, {numbers}", valid.join(", ")))
}

/// `name=one|other`, default first.
pub fn option(rule: &OptionRule, option: &OptionInfo) -> String {
    let mut values = option.values.to_vec();
    let before = rule.default.min(values.len());
    values.rotate_left(before);
    format!("{}={}", option.name, values.join("|"))
}

fn parse_i32(text: &str) -> Result<i32> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |rest| (rest, -1));
    let value = parse_u64(digits).ok().and_then(|v| i64::try_from(v).ok());
    value
        .and_then(|v| i32::try_from(sign * v).ok())
        .ok_or_else(|| Error::new(format!("'{text}' is no number; valid: up to {}, decimal or 0x...", i32::MAX)))
}

/// A number as people write it: decimal, or hexadecimal after `0x`.
///
/// # Errors
/// It is neither, or does not fit 64 bits.
pub fn parse_u64(text: &str) -> std::result::Result<u64, String> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = hex.unwrap_or(text);
    let radix = if hex.is_some() { 16 } else { 10 };
    // from_str_radix would take a sign.
    let plain = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    let value = if plain { u64::from_str_radix(digits, radix).ok() } else { None };
    value.ok_or_else(|| "valid: a 64-bit number, decimal or 0x...".to_owned())
}
