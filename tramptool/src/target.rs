//! An architecture under a profile, with its options.

use std::fmt;

use codegen::backend::Backend;
use codegen::profile::Convention;
use codegen::profile::target::Target as Resolved;
use codegen::words::error::Result;
use profiles::Source;

use crate::internal::settings;

/// The target of generation: an architecture under a profile, with its options.
#[derive(Clone)]
pub struct Target {
    backend: &'static dyn Backend,
    convention: &'static Convention,
    set: Vec<(String, String)>,
    resolved: Resolved,
}

impl Target {
    /// The architecture called `arch` under Linux 7.3. Names of the kernel, uname and LLVM are accepted: `x86_64`, `amd64`,
    /// `arm64`, `aarch64`, `riscv64` ...
    ///
    /// # Errors
    /// No architecture has that name.
    pub fn new(arch: &str) -> Result<Target> {
        Target::with_profile(arch, profiles::DEFAULT)
    }

    /// The architecture called `arch` under a profile: `linux-6.12`, `bare`, or the path of a file that ends in `.toml`.
    ///
    /// # Errors
    /// There is no such architecture or profile, or the profile does not support the architecture.
    pub fn with_profile(arch: &str, profile: &str) -> Result<Target> {
        let backend = crate::internal::backend(arch)?;
        Target::of(backend, crate::internal::profile(profile)?.convention(backend.facts().name)?)
    }

    /// The architecture called `arch` under the profile in `text`, which errors call `name`.
    ///
    /// # Errors
    /// As [`Target::with_profile`].
    pub fn with_profile_text(arch: &str, name: &str, text: &str) -> Result<Target> {
        let facts: Vec<_> = crate::internal::BACKENDS.iter().map(|b| b.facts()).collect();
        let backend = crate::internal::backend(arch)?;
        Target::of(backend, profiles::load(Source { name, text }, &facts)?.convention(backend.facts().name)?)
    }

    fn of(backend: &'static dyn Backend, convention: &'static Convention) -> Result<Target> {
        let resolved = settings::target(backend, convention, &[])?;
        Ok(Target { backend, convention, set: Vec::new(), resolved })
    }

    /// Choose the value of an option, a number or a frame offset of the profile. `tramptool list` lists them.
    ///
    /// # Errors
    /// There is no such option, number or value, or two slots of a frame would overlap.
    pub fn set(mut self, name: &str, value: &str) -> Result<Target> {
        self.set.push((name.to_owned(), value.to_owned()));
        let all: Vec<(&str, &str)> = self.set.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.resolved = settings::target(self.backend, self.convention, &all)?;
        Ok(self)
    }

    /// Choose options as these flags of a compiler say, with which the traced program is made: `-mbranch-protection=standard`,
    /// `-fcf-protection`. Flags that decide nothing are passed over.
    ///
    /// # Errors
    /// The profile has no option that flags of a compiler decide.
    pub fn compiled_with(self, flags: &str) -> Result<Target> {
        let decided = settings::of_compiler(self.convention, flags, &[])?;
        decided.into_iter().try_fold(self, |target, (name, value)| target.set(name, value))
    }

    /// The kernel's name of the architecture.
    pub fn arch(&self) -> &'static str {
        self.convention.facts.name
    }

    /// The names of the profile's trampolines, for [`Spec::named`](crate::Spec::named).
    pub fn trampolines(&self) -> Vec<&'static str> {
        self.convention.specs().map(|spec| spec.name).collect()
    }

    /// For what generates.
    pub(crate) fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// For what generates.
    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }
}

impl fmt::Display for Target {
    /// Architecture, profile and options, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, profile {}, {}", self.arch(), self.convention.profile, self.resolved.describe())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}
