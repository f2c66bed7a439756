//! What stands on a side of a comparison: a trampoline to be generated, or a file.

use std::path::{Path, PathBuf};

use codegen::diff::Side;
use codegen::error::{Error, Result};
use codegen::obj;
use codegen::target::Target;
use codegen::text::TextListing;
use tool::asked::{Asked, DIRECT};
use tool::request;
use tool::settings::{self, parse_u64};

/// A trampoline that is generated.
pub struct Subject {
    /// What it is called.
    pub title: String,
    /// Of which target.
    pub target: Target,
    /// Its text.
    pub listing: TextListing,
    /// Its symbol in an object.
    pub name: String,
    /// That object.
    pub object: Vec<u8>,
}

impl Subject {
    /// For comparing listings.
    pub fn side(&self) -> Side<'_> {
        Side { target: &self.target, listing: &self.listing }
    }
}

/// FILE or FILE:SYMBOL, if there is such a file.
pub fn file(text: &str) -> Option<(PathBuf, Option<&str>)> {
    if Path::new(text).is_file() {
        return Some((text.into(), None));
    }
    let (file, symbol) = text.rsplit_once(':')?;
    Path::new(file).is_file().then(|| (file.into(), Some(symbol)))
}

/// Read `ARCH:TRAMPOLINE,...`.
///
/// # Errors
/// It does not exist or cannot be generated.
pub fn subject(text: &str) -> Result<Subject> {
    let form = "ARCH:TRAMPOLINE[,OPTION=VALUE...], such as x86_64:ftrace_caller,unwinder=fp";
    let Some((arch, rest)) = text.split_once(':') else {
        return Err(Error::new(format!("'{text}' names no architecture; valid: {form}")));
    };
    let backend = tool::backend(arch)?;
    let mut parts = rest.split(',');
    let name = parts.next().unwrap_or_default();
    let mut direct = Asked::default();
    let mut settings = Vec::new();
    let mut profile = tool::profile(profiles::DEFAULT)?;
    for part in parts {
        match part.split_once('=') {
            None if part == "ip" => direct.ip = true,
            None => return Err(Error::new(format!("'{part}' in '{text}' has no value; valid: {form}"))),
            Some(("args", n)) => {
                let n = parse_u64(n).ok().and_then(|n| u8::try_from(n).ok());
                direct.args = Some(n.ok_or_else(|| Error::new(format!("'{part}' in '{text}'; valid: args=N")))?);
            }
            Some(("call", symbol)) => direct.call = Some(symbol.to_owned()),
            Some(("profile", name)) => profile = tool::profile(name)?,
            Some(("name", symbol)) => direct.name = Some(symbol.to_owned()),
            Some(setting) => settings.push(setting),
        }
    }
    direct.refuse_without(&[name.to_owned()]).map_err(|_| {
        Error::new(format!(
            "'{text}': args, call, name and ip are for direct-call trampolines; valid: {arch}:{DIRECT},..."
        ))
    })?;
    let target = settings::target(backend, profile.convention(backend.facts().name)?, &settings)?;
    let request = request::trampoline(name, &direct, &target)?;
    let spec = request.spec();
    let mut artifact = backend.generate(&[spec], &target)?;
    let object = obj::write(&artifact.assembly, &target)?;
    let listing = artifact.listings.pop().ok_or_else(|| Error::new(format!("'{text}' has no listing")))?;
    let name = spec.name.to_owned();
    let options = target.describe();
    Ok(Subject { title: format!("{}:{rest} ({options})", target.facts.name), target, listing, name, object })
}
