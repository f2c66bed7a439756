//! Requests for trampolines for one function, as options of the commands.

use std::path::PathBuf;

use codegen::arch::facts::Facts;
use codegen::ask::spec::{Clock, Events, Form};
use codegen::profile::target::Target;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};

/// A request for a trampoline for one function: a value for each option of the commands.
#[derive(Clone, Default, Debug)]
pub struct Asked {
    /// For `direct` and `around`: the number of argument registers that are preserved and passed on.
    pub args: Option<u8>,
    /// The traced function's prototype.
    pub sig: Option<String>,
    /// Other values that are live at the function's entry.
    pub live: Vec<String>,
    /// The object with the called functions.
    pub handler: Option<PathBuf>,
    /// The C function that is called, or the entry handler.
    pub call: Option<String>,
    /// The symbol that is defined.
    pub name: Option<String>,
    /// The traced function's ip is passed before its arguments.
    pub ip: bool,
    /// For `direct`: the site jumps to the trampoline.
    pub jump: bool,
    /// The form of `around`, which determines what its handlers get.
    pub form: Option<Form>,
    /// The traced function, and maybe bytes from its start to behind its site.
    pub function: Option<String>,
    /// The function begins with a landing pad, and its site is behind the pad.
    pub landing_pad: bool,
    /// The return address is already signed, and the function given by name signs it once more.
    pub signed: bool,
    /// The exit handler.
    pub exit: Option<String>,
    /// The events that `record` records.
    pub events: Option<Events>,
    /// The source of the time in records.
    pub clock: Option<Clock>,
    /// The number of the function in records.
    pub id: Option<u32>,
    /// Results are recorded.
    pub result: bool,
    /// Exceptions that leave the function are recorded.
    pub unwind: bool,
    /// One slot is taken for both records of a call.
    pub pair: bool,
    /// The routine that `record` calls if its buffer has no room.
    pub refill: Option<String>,
    /// The thread-local variable with the words of the thread.
    pub tls: Option<String>,
    /// Programs before the function, maybe each with a cookie behind a colon.
    pub fentry: Vec<String>,
    /// Programs that may decide the function's result.
    pub fmod_ret: Vec<String>,
    /// Programs after the function.
    pub fexit: Vec<String>,
    /// Programs before and after the function.
    pub fsession: Vec<String>,
    /// Programs are called directly, under a profile too whose kernel calls functions around them.
    pub own_form: bool,
    /// The two functions around each program.
    pub around: Vec<String>,
    /// The two functions around all programs and the traced function.
    pub around_all: Vec<String>,
    /// Flags of the trampoline, by their names without `BPF_TRAMP_F_`.
    pub flags: Vec<String>,
}

impl Asked {
    /// The registers live at the function's entry besides arguments: by the profile, and by `--live`.
    ///
    /// # Errors
    /// A word of `--live` that the architecture does not know.
    pub(crate) fn live_besides(&self, target: &Target) -> Result<RegSet> {
        let Facts { name: arch, abi, .. } = target.facts;
        self.live.iter().try_fold(target.convention.site.live, |all, what| {
            let known = abi.live.iter().find(|(name, _)| name == what);
            let regs = known.map(|(_, regs)| all.union(*regs));
            let valid = abi.live.iter().map(|(name, _)| *name);
            regs.ok_or_else(|| Error::unknown(&format!("--live on {arch}"), what, valid))
        })
    }

    /// Refuse options that only trampolines for one function use, if `names` has no such trampoline.
    ///
    /// # Errors
    /// Such an option is given without its trampoline.
    pub fn refuse_without(&self, names: &[String]) -> Result<()> {
        const CALLING: &[&str] = &[DIRECT, AROUND, RECORD];
        let given: [(&str, bool, &[&str]); 29] = [
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
            ("--own-form", self.own_form, &[PROGRAMS]),
            ("--around", !self.around.is_empty(), &[PROGRAMS]),
            ("--around-all", !self.around_all.is_empty(), &[PROGRAMS]),
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

/// The name of direct-call trampolines on the command line.
pub const DIRECT: &str = "direct";

/// The name of paired trampolines on the command line.
pub const AROUND: &str = "around";

/// The name of trampolines that call programs on the command line.
pub const PROGRAMS: &str = "programs";

/// The name of trampolines that write records on the command line.
pub const RECORD: &str = "record";

/// The name of sleds, which are called in the middle of a function, on the command line.
pub const SLED: &str = "sled";

/// The word of `--live` for [`RECORD`] that makes all registers live, as the caller may know which ones the function leaves alone.
pub(crate) const LIVE_ALL: &str = "all";

/// The trampolines that are made for one function, or that call one.
pub(crate) const FOR_ONE: &[&str] = &[DIRECT, AROUND, PROGRAMS, RECORD, SLED];

/// The trampolines of [`FOR_ONE`] that can have the function's prototype.
const WITH_PROTOTYPE: &[&str] = &[DIRECT, AROUND, PROGRAMS, RECORD];

/// The value of an option that a trampoline needs.
pub(crate) fn wanted(what: &str, option: &str, value: Option<&String>, valid: &str) -> Result<String> {
    let given = value.filter(|v| !v.is_empty()).cloned();
    given.ok_or_else(|| Error::new(format!("{what}: --{option} is missing; valid: --{option} {valid}")))
}
