//! What a trampoline for one function is asked to do.

use std::path::PathBuf;

use codegen::arch::facts::Facts;
use codegen::ask::spec::{Clock, Events, Form};
use codegen::profile::target::Target;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};

/// What a trampoline for one function is asked to do: a value for each option of the commands.
#[derive(Clone, Default, Debug)]
pub struct Asked {
    /// Of `direct` and `around`: argument registers that are kept and passed on.
    pub args: Option<u8>,
    /// The traced function's prototype.
    pub sig: Option<String>,
    /// What else is live at the function's entry.
    pub live: Vec<String>,
    /// The object with the called functions.
    pub handler: Option<PathBuf>,
    /// The C function that is called, or the entry handler.
    pub call: Option<String>,
    /// The symbol that is defined.
    pub name: Option<String>,
    /// The traced function's ip is passed before its arguments.
    pub ip: bool,
    /// Of `direct`: the site jumps to it.
    pub jump: bool,
    /// What the handlers of `around` get.
    pub form: Option<Form>,
    /// The traced function, and maybe bytes from its start to behind its site.
    pub function: Option<String>,
    /// The function begins with a landing pad, and its site is behind that.
    pub landing_pad: bool,
    /// The return address comes signed, and the function that is named signs it once more.
    pub signed: bool,
    /// The exit handler.
    pub exit: Option<String>,
    /// What `record` records.
    pub events: Option<Events>,
    /// Where its records have the time from.
    pub clock: Option<Clock>,
    /// The number of the function in its records.
    pub id: Option<u32>,
    /// Results are recorded.
    pub result: bool,
    /// Exceptions that leave the function are recorded.
    pub unwind: bool,
    /// One slot is taken for both records of a call.
    pub pair: bool,
    /// What `record` calls where its buffer has no room.
    pub refill: Option<String>,
    /// The thread-local variable with the words of the thread.
    pub tls: Option<String>,
    /// Programs before the function, maybe each with a cookie behind a colon.
    pub fentry: Vec<String>,
    /// Programs that may decide its result.
    pub fmod_ret: Vec<String>,
    /// Programs after it.
    pub fexit: Vec<String>,
    /// Programs before and after it.
    pub fsession: Vec<String>,
    /// Flags of the trampoline, by their names without `BPF_TRAMP_F_`.
    pub flags: Vec<String>,
}

impl Asked {
    /// What is live at the function's entry besides arguments: by the profile, and by `--live`.
    ///
    /// # Errors
    /// A word that the architecture has no meaning for.
    pub(crate) fn live_besides(&self, target: &Target) -> Result<RegSet> {
        let Facts { name: arch, abi, .. } = target.facts;
        self.live.iter().try_fold(target.convention.site.live, |all, what| {
            let known = abi.live.iter().find(|(name, _)| name == what);
            let regs = known.map(|(_, regs)| all.union(*regs));
            let valid = abi.live.iter().map(|(name, _)| *name);
            regs.ok_or_else(|| Error::unknown(&format!("--live on {arch}"), what, valid))
        })
    }

    /// Refuse what only `direct` and `around` have a use for if it is not for those of `names`.
    ///
    /// # Errors
    /// It is not.
    pub fn refuse_without(&self, names: &[String]) -> Result<()> {
        const CALLING: &[&str] = &[DIRECT, AROUND, RECORD];
        let given: [(&str, bool, &[&str]); 26] = [
            ("--args", self.args.is_some(), CALLING),
            ("--call", self.call.is_some(), &[DIRECT, AROUND, SLED]),
            ("--name", self.name.is_some(), FOR_ONE),
            ("--sig", self.sig.is_some(), WITH_PROTOTYPE),
            ("--handler", self.handler.is_some(), &[DIRECT, AROUND, PROGRAMS]),
            ("--ip", self.ip, &[DIRECT]),
            ("--jump", self.jump, &[DIRECT]),
            ("--live", !self.live.is_empty(), &[DIRECT, PROGRAMS, RECORD]),
            ("--form", self.form.is_some(), &[AROUND, RECORD]),
            ("--function", self.function.is_some(), WITH_PROTOTYPE),
            ("--landing-pad", self.landing_pad, WITH_PROTOTYPE),
            ("--signed", self.signed, WITH_PROTOTYPE),
            ("--events", self.events.is_some(), &[RECORD]),
            ("--clock", self.clock.is_some(), &[RECORD]),
            ("--id", self.id.is_some(), &[RECORD]),
            ("--result", self.result, &[RECORD]),
            ("--unwind", self.unwind, &[RECORD]),
            ("--pair", self.pair, &[RECORD]),
            ("--refill", self.refill.is_some(), &[RECORD]),
            ("--tls", self.tls.is_some(), &[RECORD]),
            ("--exit", self.exit.is_some(), &[AROUND]),
            ("--fentry", !self.fentry.is_empty(), &[PROGRAMS]),
            ("--fmod-ret", !self.fmod_ret.is_empty(), &[PROGRAMS]),
            ("--fexit", !self.fexit.is_empty(), &[PROGRAMS]),
            ("--fsession", !self.fsession.is_empty(), &[PROGRAMS]),
            ("--flags", !self.flags.is_empty(), &[PROGRAMS]),
        ];
        match given.iter().find(|(_, given, of)| *given && !names.iter().any(|n| of.contains(&n.as_str()))) {
            Some((option, _, of)) => {
                let valid = of.join("` or `");
                Err(Error::new(format!("`{option}` needs another trampoline; valid: `{valid}`")))
            }
            None => Ok(()),
        }
    }
}

/// What direct-call trampolines are called on the command line.
pub const DIRECT: &str = "direct";

/// What paired trampolines are called on the command line.
pub const AROUND: &str = "around";

/// What trampolines are called on the command line that call programs.
pub const PROGRAMS: &str = "programs";

/// What trampolines are called on the command line that write records.
pub const RECORD: &str = "record";

/// What trampolines are called on the command line that are called in the middle of a function.
pub const SLED: &str = "sled";

/// What is live at a function whose caller may know which registers it leaves alone: `--live` of [`RECORD`].
pub(crate) const LIVE_ALL: &str = "all";

/// The trampolines that are made for one function, or that call one.
pub(crate) const FOR_ONE: &[&str] = &[DIRECT, AROUND, PROGRAMS, RECORD, SLED];

/// Those of them that know its prototype.
const WITH_PROTOTYPE: &[&str] = &[DIRECT, AROUND, PROGRAMS, RECORD];

/// The value of an option that a trampoline cannot do without.
pub(crate) fn wanted(what: &str, option: &str, value: Option<&String>, valid: &str) -> Result<String> {
    let given = value.filter(|v| !v.is_empty()).cloned();
    given.ok_or_else(|| Error::new(format!("{what}: --{option} is missing; valid: --{option} {valid}")))
}
