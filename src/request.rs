//! From arguments to a target and to specs. All commands read architectures, options and trampolines here.

use std::path::PathBuf;

use clap::Args;
use codegen::error::{Error, Result};
use codegen::frame::FrameLayout;
use codegen::isa::Backend;
use codegen::link::Input;
use codegen::proto::Prototype;
use codegen::spec::{Choices, Direct, Kind, NAMED, OptionInfo, Spec};
use codegen::target::{PROFILES, Target};
use wildmatch::WildMatch;

use crate::handler::general_registers_only;

/// For which architecture and kernel, with which options.
#[derive(Args)]
pub struct TargetArgs {
    /// Architecture: x86_64, arm64 or riscv64, also by its other names
    #[arg(long, value_name = "ARCH")]
    arch: String,
    /// Kernel whose conventions hold
    #[arg(long, value_name = "PROFILE", default_value = PROFILES[0])]
    profile: String,
    /// Choose an option's value, or give a number of the profile another one (see `tramptool list`)
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
}

impl TargetArgs {
    /// The architecture with its options resolved.
    ///
    /// # Errors
    /// An unknown architecture, profile, option or value.
    pub fn resolve(&self) -> Result<(&'static dyn Backend, Target)> {
        let backend = crate::backend(&self.arch)?;
        check_profile(&self.profile)?;
        let settings = self.set.iter().map(|s| setting(s)).collect::<Result<Vec<_>>>()?;
        Ok((backend, target(backend, &settings)?))
    }
}

const SIG_HELP: &str = "\
direct: the traced function's prototype, which is the called function's too; what is live is kept and passed on. \
Up to 12 arguments of up to 16 bytes: C's own types, pointers, enums, the kernel's typedefs, and structs by value, as \
`struct pair { long a; double b; } p` or by size and alignment alone, `struct pair { 16, 8 } p`";

/// What a direct-call trampoline is asked to do.
#[derive(Args, Default)]
pub struct DirectArgs {
    /// direct: argument registers that are kept and passed on
    #[arg(long, value_name = "N", help_heading = "Direct-call trampolines")]
    pub args: Option<u8>,
    /// direct: the traced function's prototype, which is the called function's too; what is live is kept and passed on
    #[arg(long, value_name = "PROTOTYPE", help_heading = "Direct-call trampolines", long_help = SIG_HELP)]
    #[arg(conflicts_with_all = ["args", "ip"])]
    pub sig: Option<String>,
    /// direct: the object with the called function; without vector registers in it, none is saved
    #[arg(long, value_name = "FILE", help_heading = "Direct-call trampolines")]
    pub handler: Option<PathBuf>,
    /// direct: the C function that is called
    #[arg(long, value_name = "SYMBOL", help_heading = "Direct-call trampolines")]
    pub call: Option<String>,
    /// direct: the symbol that is defined [default: that of --call, and _tramp]
    #[arg(long, value_name = "SYMBOL", help_heading = "Direct-call trampolines")]
    pub name: Option<String>,
    /// direct: pass the traced function's ip before its arguments
    #[arg(long, help_heading = "Direct-call trampolines")]
    pub ip: bool,
}

impl DirectArgs {
    /// Refuse what only `direct` has a use for if it is not among `names`.
    ///
    /// # Errors
    /// It is not.
    pub fn refuse_without(&self, names: &[String]) -> Result<()> {
        let given = [
            ("--args", self.args.is_some()),
            ("--sig", self.sig.is_some()),
            ("--handler", self.handler.is_some()),
            ("--call", self.call.is_some()),
            ("--name", self.name.is_some()),
            ("--ip", self.ip),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) if !names.iter().any(|n| n == DIRECT) => {
                Err(Error::new(format!("{option} is given, but no direct-call trampoline; valid: with `{DIRECT}`")))
            }
            _ => Ok(()),
        }
    }
}

/// One trampoline that was asked for.
pub struct Request {
    name: String,
    kind: Kind,
    callee: String,
}

impl Request {
    /// As the generator wants it.
    pub fn spec(&self) -> Spec<'_> {
        Spec { name: &self.name, kind: self.kind, callee: &self.callee }
    }
}

/// All trampolines that need no parameter.
pub fn all() -> Vec<Request> {
    NAMED.iter().map(|&kind| named(kind)).collect()
}

fn named(kind: Kind) -> Request {
    Request { name: kind.symbol().to_owned(), kind, callee: String::new() }
}

/// The trampoline called `name`; `direct` is for those that call one C function.
///
/// # Errors
/// There is none of that name, or a direct-call trampoline cannot be what was asked for.
pub fn trampoline(name: &str, direct: &DirectArgs, target: &Target) -> Result<Request> {
    if name != DIRECT {
        let valid = NAMED.iter().map(|k| k.symbol()).chain([DIRECT]);
        return Kind::named(name).map(named).ok_or_else(|| Error::unknown("trampoline", name, valid));
    }
    let Some(callee) = direct.call.clone() else {
        return Err(Error::new("direct: --call is missing; valid: --call SYMBOL, the C function to call"));
    };
    let name = direct.name.clone().unwrap_or_else(|| format!("{callee}_tramp"));
    let kind = Kind::Direct(what_is_passed(direct, &callee, target)?);
    let frame = target.frame(kind)?;
    for (option, symbol) in [("call", &callee), ("name", &name)] {
        check_symbol(option, symbol, &frame, target)?;
    }
    if name == callee {
        return Err(Error::new(format!(
            "direct: --name {name} is what it calls; valid: any other name, such as {name}_tramp"
        )));
    }
    Ok(Request { name, kind, callee })
}

/// So many arguments, or those of a prototype.
fn what_is_passed(direct: &DirectArgs, callee: &str, target: &Target) -> Result<Direct> {
    let facts = target.facts;
    let Some(sig) = &direct.sig else {
        if direct.handler.is_some() {
            return Err(Error::new("direct: --handler is given without a prototype; valid: with --sig"));
        }
        let most = facts.abi.args.len() - usize::from(direct.ip);
        let args = direct.args.ok_or_else(|| {
            Error::new(format!(
                "direct: --args is missing; valid: --args 0 to --args {most} on {}, or --sig with a prototype",
                facts.name
            ))
        })?;
        return Ok(Direct { args, ip: direct.ip, live: None });
    };
    let backend = crate::backend(facts.name)?;
    let placement = Prototype::parse(sig).and_then(|p| backend.place(target, &p)).map_err(|e| e.at("--sig"))?;
    let general = match &direct.handler {
        None => false,
        Some(path) => {
            let name = path.display().to_string();
            let bytes = std::fs::read(path)
                .map_err(|e| Error::new(format!("cannot read {name}: {e}; valid: an object file")))?;
            general_registers_only(backend, target, &Input { name: &name, bytes: &bytes }, callee)?
        }
    };
    Ok(placement.direct(facts, backend.machine(), general))
}

/// What direct-call trampolines are called on the command line.
pub const DIRECT: &str = "direct";

/// Names that C can have, so that no assembler takes them for something else.
fn check_symbol(option: &str, symbol: &str, frame: &FrameLayout, target: &Target) -> Result<()> {
    let mut chars = symbol.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')) {
        return Err(Error::new(format!(
            "direct: --{option} '{symbol}' is no symbol; valid: a letter or _, then letters, digits, _ . $"
        )));
    }
    // The listing gives these names to numbers.
    let frames = [frame, &target.args_frame, &target.all_frame, &target.exit_frame];
    let frames = frames.into_iter().chain(&target.direct_frames);
    let mut reserved = target.numbers.iter().map(|n| n.symbol).chain(frames.flat_map(|f| {
        let slots = f.fields.iter().map(|f| f.symbol).chain(f.records.iter().map(|r| r.symbol));
        slots.chain([f.size_symbol])
    }));
    if reserved.any(|r| r == symbol) {
        return Err(Error::new(format!(
            "direct: --{option} {symbol} is the name of a frame offset in the text for {}; valid: any other",
            target.facts.name
        )));
    }
    Ok(())
}

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

/// Names out of `known`; globs are resolved, and `direct` stands for all direct-call trampolines.
///
/// # Errors
/// A name that is not known.
pub fn known_trampolines<'k>(wanted: &[String], known: impl Iterator<Item = &'k str> + Clone) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in wanted {
        let matches = |n: &str| WildMatch::new(name).matches(n) || (name == DIRECT && n.starts_with("direct_"));
        let found: Vec<String> = known.clone().filter(|n| matches(n)).map(str::to_owned).collect();
        if found.is_empty() {
            let valid = NAMED.iter().map(|k| k.symbol()).chain(["direct", "direct_0", "direct_0_ip", "...", "globs"]);
            return Err(Error::unknown("trampoline", name, valid));
        }
        names.extend(found);
    }
    names.sort();
    names.dedup();
    Ok(names)
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
