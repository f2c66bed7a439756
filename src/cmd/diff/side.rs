//! A trampoline to be generated, as a side of a comparison names it.

use codegen::ask::spec::Form;
use codegen::backend::Backend;
use codegen::out::diff::Side;
use codegen::out::obj;
use codegen::out::text::TextListing;
use codegen::profile::Profile;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use tool::asked::Asked;
use tool::request;
use tool::settings::{self, parse_u64};

/// A trampoline that is generated.
pub struct Subject {
    /// What it is called.
    pub title: String,
    /// By which profile.
    #[cfg_attr(not(feature = "judge"), allow(dead_code, reason = "only what runs code has a use for it"))]
    pub profile: &'static Profile,
    /// Of which target.
    pub target: Target,
    /// Its text.
    pub listing: TextListing,
    /// Its symbol in an object, and that object.
    #[cfg_attr(not(feature = "judge"), allow(dead_code, reason = "only what runs code has a use for it"))]
    pub object: (String, Vec<u8>),
}

impl Subject {
    /// For comparing listings.
    pub fn side(&self) -> Side<'_> {
        Side { target: &self.target, listing: &self.listing }
    }
}

const FORM: &str = "ARCH:TRAMPOLINE[,OPTION=VALUE...], such as x86_64:ftrace_caller,unwinder=fp";

/// Does it begin with the name of an architecture?
pub fn is_generated(text: &str) -> bool {
    text.split_once(':').is_some_and(|(arch, _)| tool::backend(arch).is_ok())
}

/// Is it everything of a profile on an architecture?
pub fn is_profile(text: &str) -> bool {
    let name = text.split_once(':').and_then(|(_, rest)| rest.split(',').next());
    name.is_some_and(|name| profiles::names().contains(&name))
}

/// A generated trampoline as it is asked for, apart from architecture and profile.
#[derive(Clone)]
pub struct Wanted<'t> {
    name: &'t str,
    asked: Asked,
    settings: Vec<(&'t str, &'t str)>,
    profile: Option<&'static Profile>,
}

impl<'t> Wanted<'t> {
    /// Read `TRAMPOLINE,...`, a part of `text`.
    ///
    /// # Errors
    /// An option without a value, or with one that it cannot have.
    pub fn parse(rest: &'t str, text: &str) -> Result<Wanted<'t>> {
        let mut parts = parts(rest).into_iter();
        let name = parts.next().unwrap_or_default();
        let (mut asked, mut settings, mut profile) = (Asked::default(), Vec::new(), None);
        for part in parts {
            let list = |value: &str| value.split('+').map(str::to_owned).collect::<Vec<_>>();
            match part.split_once('=') {
                None if part == "ip" => asked.ip = true,
                None if part == "jump" => asked.jump = true,
                None if part == "own-form" => asked.own_form = true,
                None => return Err(Error::new(format!("'{part}' in '{text}' has no value; valid: {FORM}"))),
                Some(("args", n)) => {
                    let n = parse_u64(n).ok().and_then(|n| u8::try_from(n).ok());
                    asked.args = Some(n.ok_or_else(|| Error::new(format!("'{part}' in '{text}'; valid: args=N")))?);
                }
                Some(("call", symbol)) => asked.call = Some(symbol.to_owned()),
                Some(("profile", name)) => profile = Some(tool::profile(name)?),
                Some(("name", symbol)) => asked.name = Some(symbol.to_owned()),
                Some(("sig", prototype)) => asked.sig = Some(prototype.to_owned()),
                Some(("live", what)) => asked.live.extend(list(what)),
                Some(("handler", file)) => asked.handler = Some(file.into()),
                Some(("form", name)) => asked.form = Some(Form::named(name)?),
                Some(("function", symbol)) => asked.function = Some(symbol.to_owned()),
                Some(("exit", symbol)) => asked.exit = Some(symbol.to_owned()),
                Some(("fentry", symbol)) => asked.fentry.push(symbol.to_owned()),
                Some(("fmod-ret", symbol)) => asked.fmod_ret.push(symbol.to_owned()),
                Some(("fexit", symbol)) => asked.fexit.push(symbol.to_owned()),
                Some(("fsession", symbol)) => asked.fsession.push(symbol.to_owned()),
                Some(("around", functions)) => asked.around.extend(list(functions)),
                Some(("around-all", functions)) => asked.around_all.extend(list(functions)),
                Some(("flags", flags)) => asked.flags.extend(list(flags)),
                Some(setting) => settings.push(setting),
            }
        }
        Ok(Wanted { name, asked, settings, profile })
    }

    /// The same of another trampoline.
    #[cfg(feature = "judge")]
    #[must_use]
    pub fn named(self, name: &'t str) -> Wanted<'t> {
        Wanted { name, ..self }
    }

    /// Generate it; `text` is what messages call it, `profile` that of one that names none.
    ///
    /// # Errors
    /// It does not exist or cannot be generated.
    pub fn generate(&self, backend: &dyn Backend, text: &str, profile: Option<&'static Profile>) -> Result<Subject> {
        let profile = self.profile.or(profile).map_or_else(|| tool::profile(profiles::DEFAULT), Ok)?;
        self.asked.refuse_without(&[self.name.to_owned()]).map_err(|e| Error::new(format!("'{text}': {e}")))?;
        let target = settings::target(backend, profile.convention(backend.facts().name)?, &self.settings)?;
        let request = request::trampoline(self.name, &self.asked, &target)?;
        let spec = request.spec();
        let mut artifact = backend.generate(&[spec], &target)?;
        let object = obj::write(&artifact.assembly, &target)?;
        let listing = artifact.listings.pop().ok_or_else(|| Error::new(format!("'{text}' has no listing")))?;
        let object = (spec.name.to_owned(), object);
        let rest = text.split_once(':').map_or(text, |(_, rest)| rest);
        let title = format!("{}:{rest} ({})", target.facts.name, target.describe());
        Ok(Subject { title, profile, target, listing, object })
    }
}

/// Read `ARCH:TRAMPOLINE,...`; `profile` is that of one that names none.
///
/// # Errors
/// It does not exist or cannot be generated.
pub fn subject(text: &str, profile: Option<&'static Profile>) -> Result<Subject> {
    let Some((arch, rest)) = text.split_once(':') else {
        return Err(Error::new(format!("'{text}' names no architecture; valid: {FORM}")));
    };
    let backend = tool::backend(arch)?;
    Wanted::parse(rest, text)?.generate(backend, text, profile)
}

/// The parts between commas; those inside of parentheses and braces are a prototype's own.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                all.extend(text.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    all.extend(text.get(from..));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_of_a_prototype_are_its_own() {
        assert_eq!(parts("direct,sig=int f(int a, char *b),call=g"), ["direct", "sig=int f(int a, char *b)", "call=g"]);
        assert_eq!(parts(""), [""]);
        assert_eq!(parts("a),b"), ["a)", "b"]);
    }
}
