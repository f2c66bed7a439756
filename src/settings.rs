//! Options and numbers: from `name=value` to a target.

use codegen::backend::Backend;
use codegen::error::{Error, Result};
use codegen::option::{Choices, OptionInfo};
use codegen::target::{PROFILES, Target};

/// Refuse a profile that does not exist.
///
/// # Errors
/// It does not; the message lists those that do.
pub fn check_profile(name: &str) -> Result<()> {
    if PROFILES.contains(&name) {
        return Ok(());
    }
    Err(Error::unknown("profile", name, PROFILES.iter().copied()))
}

/// `name=value` in two.
///
/// # Errors
/// There is no `=`.
pub fn setting(text: &str) -> Result<(&str, &str)> {
    text.split_once('=')
        .ok_or_else(|| Error::new(format!("setting '{text}' has no value; valid: OPTION=VALUE, such as rvc=off")))
}

/// The architectures called `name`, which may be `all`.
///
/// # Errors
/// There is none of that name.
pub fn backends(name: &str) -> Result<Vec<&'static dyn Backend>> {
    let all = name.eq_ignore_ascii_case("all");
    if all { Ok(crate::BACKENDS.to_vec()) } else { Ok(vec![crate::backend(name)?]) }
}

/// Of several architectures, a setting is for those that know it; what none knows is for each of them to refuse.
pub fn settings_of<'s>(
    backend: &dyn Backend,
    backends: &[&'static dyn Backend],
    settings: &[(&'s str, &'s str)],
) -> Vec<(&'s str, &'s str)> {
    let knows = |backend: &dyn Backend, name: &str| {
        backend.facts().options.iter().any(|o| o.name == name)
            || backend.target(Choices::default()).symbols().contains(&name)
    };
    let wanted = |name: &str| knows(backend, name) || !backends.iter().any(|b| knows(*b, name));
    settings.iter().copied().filter(|(name, _)| wanted(name)).collect()
}

/// The target of `backend` with these options and numbers.
///
/// # Errors
/// An unknown name or value, or two slots of a frame at one offset.
pub fn target(backend: &dyn Backend, settings: &[(&str, &str)]) -> Result<Target> {
    let facts = backend.facts();
    let is_option = |name: &str| facts.options.iter().any(|o| o.name == name);
    let mut choices = Choices::default();
    for (name, value) in settings.iter().filter(|(name, _)| is_option(name)) {
        choices.set(facts.name, facts.options, name, value)?;
    }
    let mut target = backend.target(choices);
    for (name, value) in settings.iter().filter(|(name, _)| !is_option(name)) {
        if !target.symbols().contains(name) {
            return Err(unknown_setting(name, &target));
        }
        let number = parse_i32(value).map_err(|e| e.at(format_args!("{name} of {}", facts.name)))?;
        target.set_number(name, number)?;
    }
    target.check_frames()?;
    Ok(target)
}

fn unknown_setting(name: &str, target: &Target) -> Error {
    let facts = target.facts;
    let valid: Vec<String> = facts.options.iter().map(option).collect();
    let numbers = format!("and the numbers that `tramptool list --arch {} --format json` names", facts.name);
    let others: Vec<&str> = crate::BACKENDS
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
pub fn option(option: &OptionInfo) -> String {
    format!("{}={}", option.name, option.values.join("|"))
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
