//! The arguments with which all commands choose an architecture, options and trampolines.

use std::path::{Path, PathBuf};

use clap::Args;
use codegen::ask::spec::{Clock, Events, Form};
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use tool::asked::Asked;
use tool::kernel::{Configured, Tree, configured, of_tree};
use tool::settings::{of_compiler, setting, target};

use super::input;

/// For which architecture and kernel, with which options.
#[derive(Args)]
pub struct TargetArgs {
    /// Architecture: x86_64, arm64 or riscv64, also by its other names
    #[arg(long, value_name = "ARCH", required_unless_present_any = ["kernel_build", "config"])]
    arch: Option<String>,
    #[command(flatten)]
    profile: ProfileArg,
    /// Set an option, or a number of the profile: `tramptool list` has both
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
    /// Take options from the flags with which a compiler makes the traced program, such as -mbranch-protection=standard or -fcf-protection;
    /// --set overrides them
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true, conflicts_with_all = ["kernel_build", "config"])]
    cflags: Option<String>,
    #[command(flatten)]
    kernel: KernelArgs,
}

impl TargetArgs {
    /// The kernel's build tree that was given.
    pub fn tree(&self) -> Option<&Path> {
        self.kernel.tree()
    }

    /// Was a profile given?
    pub fn names_profile(&self) -> bool {
        self.profile.is_given()
    }

    /// The architecture with its options resolved, and what a kernel's configuration decided.
    ///
    /// # Errors
    /// An unknown architecture, profile, option or value; a kernel for which nothing can be generated.
    pub fn resolve(&self) -> Result<(&'static dyn Backend, Target, Option<Configured>)> {
        let given = self.set.iter().map(|s| setting(s)).collect::<Result<Vec<_>>>()?;
        let Some(kernel) = self.kernel.read(&self.profile)? else {
            let profile = self.profile.find()?;
            let backend = tool::backend(self.arch.as_deref().unwrap_or_default())?;
            let convention = profile.convention(backend.facts().name)?;
            let set: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
            let of_flags = self.cflags.as_deref().map(|flags| of_compiler(convention, flags, &set));
            let mut settings = of_flags.unwrap_or(Ok(Vec::new()))?;
            settings.extend(given);
            return Ok((backend, target(backend, convention, &settings)?, None));
        };
        let target = target_of(&kernel, given)?;
        Ok((kernel.backend, target, Some(kernel)))
    }
}

/// The target that a kernel's configuration decides, with these options and numbers in place of its own.
fn target_of(kernel: &Configured, given: Vec<(&str, &str)>) -> Result<Target> {
    let decided = kernel.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let settings: Vec<_> = decided.chain(given).collect();
    let target = target(kernel.backend, kernel.convention, &settings)?;
    Ok(Target { objtool: kernel.objtool, unwind_tables: false, ..target })
}

/// What a configured kernel's build tree decides.
///
/// # Errors
/// It is none, or of a kernel for which nothing can be generated.
#[cfg(feature = "judge")]
pub fn target_of_tree(tree: &Path, profile: &ProfileArg) -> Result<(&'static dyn Backend, Target)> {
    let kernel = KernelArgs { kernel_build: Some(tree.to_owned()), config: None, asm_offsets: None };
    let none = || Error::new(format!("{} is no build tree", tree.display()));
    let kernel = kernel.read(profile)?.ok_or_else(none)?;
    Ok((kernel.backend, target_of(&kernel, Vec::new())?))
}

/// Whose conventions hold.
#[derive(Args, Clone, Default)]
pub struct ProfileArg {
    /// The kernel or tracer to generate for: a profile of `tramptool list`, or your own file [default: linux-7.3]
    #[arg(long, value_name = "NAME|FILE.toml")]
    profile: Option<String>,
}

impl ProfileArg {
    /// As it was given, if one was.
    #[cfg(feature = "judge")]
    pub fn name(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// What was given elsewhere.
    #[cfg(feature = "judge")]
    pub fn named(profile: Option<&str>) -> ProfileArg {
        ProfileArg { profile: profile.map(str::to_owned) }
    }

    /// The profile, if one was given.
    ///
    /// # Errors
    /// As [`ProfileArg::find`].
    #[cfg(feature = "judge")]
    pub fn stated(&self) -> Result<Option<&'static Profile>> {
        self.profile.as_deref().map(profile).transpose()
    }

    /// One was given.
    fn is_given(&self) -> bool {
        self.profile.is_some()
    }

    /// The profile.
    ///
    /// # Errors
    /// There is none of that name, or the file is none.
    pub fn find(&self) -> Result<&'static Profile> {
        profile(self.profile.as_deref().unwrap_or(profiles::DEFAULT))
    }

    /// The profile for a contract that may name one.
    ///
    /// # Errors
    /// As [`ProfileArg::find`].
    #[cfg(feature = "judge")]
    pub fn of_contract(&self, contract: &str) -> Result<&'static Profile> {
        match emu_tests::contract_profile(contract).filter(|_| self.profile.is_none()) {
            Some(named) => profile(&named),
            None => self.find(),
        }
    }
}

/// A profile of this name, or in the file of this name.
fn profile(name: &str) -> Result<&'static Profile> {
    input::note(Path::new(name));
    tool::profile(name)
}

/// Where a configured kernel is.
#[derive(Args)]
pub struct KernelArgs {
    /// Take profile, architecture, options and numbers from a configured kernel's build tree; --profile and --set override them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["arch", "config"])]
    kernel_build: Option<PathBuf>,
    /// Without the tree: its .config
    #[arg(long, value_name = "FILE", conflicts_with = "arch", requires = "asm_offsets")]
    config: Option<PathBuf>,
    /// Without the tree: its include/generated/asm-offsets.h
    #[arg(long, value_name = "FILE", requires = "config")]
    asm_offsets: Option<PathBuf>,
}

impl KernelArgs {
    /// The build tree that was given.
    pub fn tree(&self) -> Option<&Path> {
        self.kernel_build.as_deref()
    }

    /// What the configuration decides, if one is given; the profile too, if none is.
    ///
    /// # Errors
    /// A file that cannot be read, a kernel for which nothing can be generated.
    pub fn read(&self, profile: &ProfileArg) -> Result<Option<Configured>> {
        let (config, offsets) = match (&self.kernel_build, &self.config, &self.asm_offsets) {
            (Some(dir), ..) => (BuildTree::read(dir)?, dir.join("include/generated/asm-offsets.h")),
            (None, Some(config), Some(offsets)) => (BuildTree::of_config(config)?, offsets.clone()),
            _ => return Ok(None),
        };
        let tree = config.tree();
        let profile = config.profile(profile)?;
        let offsets = (offsets.display().to_string(), of_build(&offsets)?);
        configured(profile, &tree, (&offsets.0, &offsets.1)).map(Some)
    }
}

/// A file of a kernel's build tree.
fn of_build(path: &Path) -> Result<String> {
    input::text(path).map_err(|e| {
        let remedy = "valid: a kernel's build tree after `make prepare`";
        Error::new(format!("cannot read {}: {e}; {remedy}", path.display()))
    })
}

/// What a configured kernel says of itself.
pub struct BuildTree {
    name: String,
    /// Its `.config`.
    pub config: String,
    version: Option<String>,
}

impl BuildTree {
    /// What the build tree in this directory says.
    ///
    /// # Errors
    /// It has no `.config`.
    pub fn read(dir: &Path) -> Result<BuildTree> {
        let text = |name: &str| input::text(&dir.join(name)).ok();
        let (release, makefile) = (text("include/config/kernel.release"), text("Makefile"));
        let version = of_tree(release.as_deref(), makefile.as_deref());
        Ok(BuildTree { version, ..BuildTree::of_config(&dir.join(".config"))? })
    }

    fn of_config(config: &Path) -> Result<BuildTree> {
        Ok(BuildTree { name: config.display().to_string(), config: of_build(config)?, version: None })
    }

    /// As the rules of profiles and contracts read it.
    pub fn tree(&self) -> Tree<'_> {
        Tree { config: (&self.name, &self.config), version: self.version.clone() }
    }

    /// The profile that was given, or else that of the kernel's version.
    ///
    /// # Errors
    /// There is none.
    pub fn profile(&self, given: &ProfileArg) -> Result<&'static Profile> {
        if given.is_given() { given.find() } else { self.tree().profile() }
    }
}

const SIG_HELP: &str = "\
The traced function's prototype. It tells which registers are live. `direct` preserves them and passes them to a \
function of the same prototype, `programs` puts them into the context, `around` gives its entry handler the argument \
registers up to the last live one, `record --events both` refuses what is on the stack. Up to 12 arguments of up to 16 bytes: C's own types, pointers, enums, the kernel's \
typedefs, and structs by value, as `struct pair { long a; double b; } p` or by size and alignment alone, \
`struct pair { 16, 8 } p`";

/// What a trampoline for one function is asked to do.
#[derive(Args)]
pub struct DirectArgs {
    /// direct, around: how many argument registers to preserve and pass on; record: how many the record of an entry has, up to 6
    #[arg(long, value_name = "N", help_heading = "Direct-call trampolines")]
    pub args: Option<u8>,
    /// The traced function's prototype: tells which registers are live
    #[arg(long, value_name = "PROTOTYPE", help_heading = "Direct-call trampolines", long_help = SIG_HELP)]
    #[arg(conflicts_with = "ip")]
    pub sig: Option<String>,
    /// direct, programs, with --sig: what else is live at the function's entry, such as static-chain. Profile bare always preserves that;
    /// record, with --events entry or --form shadow: `all`, to keep every register at the entry and at the return
    #[arg(long, value_name = "WHAT", help_heading = "Direct-call trampolines", value_delimiter = ',')]
    pub live: Vec<String>,
    /// With --sig: the object with the functions that the trampoline calls; with those around programs too, if it calls any. If none uses
    /// a vector register, none is saved
    #[arg(long, value_name = "FILE", help_heading = "Direct-call trampolines")]
    pub handler: Option<PathBuf>,
    /// direct, sled: the C function to call; around: the entry handler
    #[arg(long, value_name = "SYMBOL", help_heading = "Direct-call trampolines")]
    pub call: Option<String>,
    /// direct, around, programs, record, sled: the trampoline's symbol [default: that of the first function it calls or records, and _tramp]
    #[arg(long, value_name = "SYMBOL", help_heading = "Direct-call trampolines")]
    pub name: Option<String>,
    /// direct: pass the traced function's ip before its arguments
    #[arg(long, help_heading = "Direct-call trampolines")]
    pub ip: bool,
    /// direct: the site jumps here, and the trampoline jumps to --function, if the profile has such sites
    #[arg(long, help_heading = "Direct-call trampolines")]
    pub jump: bool,
    /// around: what the handlers get. `frame`: arguments at entry, results at exit; `fregs`: ftrace_caller's arguments at entry, fregs at
    /// exit; `shadow`: the same, for functions with stack arguments: the entry handler stores parent_ip, the exit handler returns it.
    /// record --events both: `frame`, with --sig; `shadow`, for any function: parent_ip is on a shadow stack of the thread
    #[arg(long, value_name = "FORM", value_parser = Form::named, help_heading = "Paired trampolines")]
    pub form: Option<Form>,
    /// around, programs, record, direct --jump: the traced function, and the offset at which it continues behind its site [default: that of compilers]
    #[arg(long, value_name = "SYMBOL[+N]", help_heading = "Paired trampolines")]
    pub function: Option<String>,
    /// With --function: the function begins with a landing pad (arm64: BTI c), and its site is behind that
    #[arg(long, help_heading = "Paired trampolines")]
    pub landing_pad: bool,
    /// With --function: the return address comes signed (arm64: the site is behind PACIASP). The trampoline goes on at SYMBOL+N, a copy of the
    /// function that begins with the instruction that signs [default: +0]
    #[arg(long, help_heading = "Paired trampolines")]
    pub signed: bool,
    /// around: the exit handler
    #[arg(long, value_name = "SYMBOL", help_heading = "Paired trampolines")]
    pub exit: Option<String>,
    /// record: what the trampoline writes to the thread's buffer. `count`: adds 1 to a word at each entry; `entry`: a record at
    /// each entry; `both`: also one at each return, with --sig or --form shadow
    #[arg(long, value_name = "EVENTS", value_parser = Events::named, help_heading = "Records")]
    pub events: Option<Events>,
    /// record: where the time comes from. `none`: it is 0, or with --pair, at a return, the cursor; `tsc`: the CPU's clock (RDTSC, CNTVCT_EL0, rdtime); `stamp8`: the same,
    /// in one record of each 128 bytes; `word`: the variable that the profile names
    #[arg(long, value_name = "CLOCK", value_parser = Clock::named, help_heading = "Records")]
    pub clock: Option<Clock>,
    /// record: the function's number in its records, up to 8388607 [default: 0]
    #[arg(long, value_name = "N", help_heading = "Records")]
    pub id: Option<u32>,
    /// record: the first result register in the record of a return
    #[arg(long, help_heading = "Records")]
    pub result: bool,
    /// record: record exceptions and forced unwinds that leave the function too. The program needs libgcc's unwinder, or one like it
    #[arg(long, help_heading = "Records")]
    pub unwind: bool,
    /// record --events both: take one slot at the entry for both records. The return's lies behind the entry's
    #[arg(long, help_heading = "Records")]
    pub pair: bool,
    /// record: what is called where the buffer has no room, out of line. It may make some, and has to keep every register but the
    /// link register, as `gen sled` does. Without it, what finds no room is dropped
    #[arg(long, value_name = "SYMBOL", help_heading = "Records")]
    pub refill: Option<String>,
    /// record: the thread's words are in this thread-local variable, at TLS_CURSOR and so on in it, however far that is from the thread
    /// pointer. Linkers fill in where, and programs that copy templates
    #[arg(long, value_name = "SYMBOL", help_heading = "Records")]
    pub tls: Option<String>,
    /// programs: call these before the function, in this order. The cookie has 64 bits, or is up to 0x7fffffff where programs are
    /// called directly
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fentry: Vec<String>,
    /// programs: call these next. The first that does not return 0 gives the result, and the function is skipped
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fmod_ret: Vec<String>,
    /// programs: call these after the function
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fexit: Vec<String>,
    /// programs: call these before and after the function, with one word of data between the two calls, if the profile has sessions
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fsession: Vec<String>,
    /// programs, under the profiles of Linux: call each program directly, as program(context, cookie's address). This form is tramptool's
    /// own, and the one of profile bare. Without it, Linux's functions are called around each program, and around all
    #[arg(long, help_heading = "Programs")]
    pub own_form: bool,
    /// programs, under the profiles of Linux: the functions around each program. The first gets (prog, run context); if it returns 0, the
    /// program is not called. The second gets (prog, what the first returned, run context). prog is the symbol of the program and _prog
    /// [default: __bpf_prog_enter,__bpf_prog_exit]
    #[arg(long, value_name = "ENTER,EXIT", help_heading = "Programs", value_delimiter = ',')]
    pub around: Vec<String>,
    /// programs, with CALL_ORIG, under the profiles of Linux: the functions around all programs and the function. Both get the symbol of the
    /// trampoline and _image [default: __bpf_tramp_enter,__bpf_tramp_exit]
    #[arg(long, value_name = "ENTER,EXIT", help_heading = "Programs", value_delimiter = ',')]
    pub around_all: Vec<String>,
    /// programs: the kernel's BPF_TRAMP_F_* without that prefix [default: RESTORE_REGS, or CALL_ORIG with --fmod-ret,
    /// --fexit or --fsession; with SKIP_FRAME where sites do not jump]
    #[arg(long, value_name = "FLAG", help_heading = "Programs", value_delimiter = ',', long_help = FLAGS_HELP)]
    pub flags: Vec<String>,
}

const FLAGS_HELP: &str = "\
programs: the kernel's BPF_TRAMP_F_* without that prefix. CALL_ORIG: the site jumps to the trampoline, which calls the \
function; SKIP_FRAME: the site calls, and the trampoline drops that return address; IP_ARG: the context has the \
function's ip; RESTORE_REGS: the function continues behind its site; TAIL_CALL_CTX: the function is a BPF program, and \
the trampoline passes its tail call counter on, if the profile says how. [default: RESTORE_REGS, or CALL_ORIG with \
--fmod-ret, --fexit or --fsession, and SKIP_FRAME beside it where the profile's sites do not jump]";

impl DirectArgs {
    /// The same, for whoever generates it.
    pub fn asked(&self) -> Asked {
        self.handler.iter().for_each(|file| input::note(file));
        let DirectArgs {
            args,
            sig,
            live,
            handler,
            call,
            name,
            ip,
            jump,
            form,
            function,
            landing_pad,
            signed,
            exit,
            ..
        } = self;
        let DirectArgs { events, clock, id, result, unwind, pair, refill, tls, .. } = self;
        let DirectArgs { fentry, fmod_ret, fexit, fsession, own_form, around, around_all, flags, .. } = self;
        Asked {
            args: *args,
            sig: sig.clone(),
            live: live.clone(),
            handler: handler.clone(),
            call: call.clone(),
            name: name.clone(),
            ip: *ip,
            jump: *jump,
            form: *form,
            function: function.clone(),
            landing_pad: *landing_pad,
            signed: *signed,
            exit: exit.clone(),
            events: *events,
            clock: *clock,
            id: *id,
            result: *result,
            unwind: *unwind,
            pair: *pair,
            refill: refill.clone(),
            tls: tls.clone(),
            fentry: fentry.clone(),
            fmod_ret: fmod_ret.clone(),
            fexit: fexit.clone(),
            fsession: fsession.clone(),
            own_form: *own_form,
            around: around.clone(),
            around_all: around_all.clone(),
            flags: flags.clone(),
        }
    }
}
