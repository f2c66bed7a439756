//! From arguments to a target and to specs. All commands read architectures, options and trampolines here.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::Args;
use codegen::error::{Error, Result};
use codegen::frame::FrameLayout;
use codegen::isa::Backend;
use codegen::link::Input;
use codegen::option::{Choices, OptionInfo};
use codegen::place::{Piece, Place, Returned};
use codegen::proto::Prototype;
use codegen::spec::{Around, Attach, Body, Direct, FLAGS, Form, Kind, NAMED, Program, Programs, Spec};
use codegen::target::{PROFILES, Target};
use wildmatch::WildMatch;

use crate::handler::general_registers_only;
use crate::kernel::{Configured, KernelArgs};

/// For which architecture and kernel, with which options.
#[derive(Args)]
pub struct TargetArgs {
    /// Architecture: x86_64, arm64 or riscv64, also by its other names
    #[arg(long, value_name = "ARCH", required_unless_present_any = ["kernel_build", "config"])]
    arch: Option<String>,
    /// Kernel whose conventions hold
    #[arg(long, value_name = "PROFILE", default_value = PROFILES[0])]
    profile: String,
    /// Choose an option's value, or give a number of the profile another one (see `tramptool list`)
    #[arg(long, value_name = "OPTION=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    kernel: KernelArgs,
}

impl TargetArgs {
    /// The kernel's build tree that was given.
    pub fn tree(&self) -> Option<&Path> {
        self.kernel.tree()
    }

    /// The architecture with its options resolved, and what a kernel's configuration decided.
    ///
    /// # Errors
    /// An unknown architecture, profile, option or value; a kernel for which nothing can be generated.
    pub fn resolve(&self) -> Result<(&'static dyn Backend, Target, Option<Configured>)> {
        check_profile(&self.profile)?;
        let given = self.set.iter().map(|s| setting(s)).collect::<Result<Vec<_>>>()?;
        let Some(kernel) = self.kernel.read()? else {
            let backend = crate::backend(self.arch.as_deref().unwrap_or_default())?;
            return Ok((backend, target(backend, &given)?, None));
        };
        let decided = kernel.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let settings: Vec<_> = decided.chain(given).collect();
        let target = Target { objtool: kernel.objtool, unwind_tables: false, ..target(kernel.backend, &settings)? };
        Ok((kernel.backend, target, Some(kernel)))
    }
}

const SIG_HELP: &str = "\
The traced function's prototype; what is live is kept, and passed on to a function of the same prototype, or shown to \
programs; the entry handler of `around` gets the argument registers up to the last live one. \
Up to 12 arguments of up to 16 bytes: C's own types, pointers, enums, the kernel's typedefs, and structs by value, as \
`struct pair { long a; double b; } p` or by size and alignment alone, `struct pair { 16, 8 } p`";

/// What a trampoline for one function is asked to do.
#[derive(Args, Default)]
pub struct DirectArgs {
    /// direct, around: argument registers that are kept and passed on
    #[arg(long, value_name = "N", help_heading = "Direct-call trampolines")]
    pub args: Option<u8>,
    /// The traced function's prototype; what is live is kept and passed on, or shown to programs
    #[arg(long, value_name = "PROTOTYPE", help_heading = "Direct-call trampolines", long_help = SIG_HELP)]
    #[arg(conflicts_with_all = ["args", "ip"])]
    pub sig: Option<String>,
    /// With --sig: the object with the called functions; without vector registers in it, none is saved
    #[arg(long, value_name = "FILE", help_heading = "Direct-call trampolines")]
    pub handler: Option<PathBuf>,
    /// direct: the C function that is called; around: the entry handler
    #[arg(long, value_name = "SYMBOL", help_heading = "Direct-call trampolines")]
    pub call: Option<String>,
    /// direct, around, programs: the symbol that is defined [default: that of what it calls first, and _tramp]
    #[arg(long, value_name = "SYMBOL", help_heading = "Direct-call trampolines")]
    pub name: Option<String>,
    /// direct: pass the traced function's ip before its arguments
    #[arg(long, help_heading = "Direct-call trampolines")]
    pub ip: bool,
    /// around: what the handlers get; `frame`: arguments, then results; `fregs`: what ftrace_caller gives, then fregs;
    /// `shadow`: the same, and stack arguments stay in place: the first keeps parent_ip, the second returns it
    #[arg(long, value_name = "FORM", value_parser = form, help_heading = "Paired trampolines")]
    pub form: Option<Form>,
    /// around, programs: the traced function, and bytes from its start to behind its site [default: as compilers lay it out]
    #[arg(long, value_name = "SYMBOL[+N]", help_heading = "Paired trampolines")]
    pub function: Option<String>,
    /// around: the exit handler
    #[arg(long, value_name = "SYMBOL", help_heading = "Paired trampolines")]
    pub exit: Option<String>,
    /// programs: called before the function, in this order; with a cookie behind the colon, up to 0x7fffffff
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fentry: Vec<String>,
    /// programs: called then; the first that does not return 0 decides the result, and the function is not called
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fmod_ret: Vec<String>,
    /// programs: called after the function
    #[arg(long, value_name = "SYMBOL[:COOKIE]", help_heading = "Programs", value_delimiter = ',')]
    pub fexit: Vec<String>,
    /// programs: BPF_TRAMP_F_* of the kernel without that prefix [default: RESTORE_REGS, or CALL_ORIG with --fmod-ret
    /// or --fexit]
    #[arg(long, value_name = "FLAG", help_heading = "Programs", value_delimiter = ',', long_help = FLAGS_HELP)]
    pub flags: Vec<String>,
}

const FLAGS_HELP: &str = "\
programs: BPF_TRAMP_F_* of the kernel without that prefix; CALL_ORIG: the function is called from the trampoline, to which \
the site jumps; SKIP_FRAME: the site calls, and what it pushed is dropped; IP_ARG: the function's ip is in the context; \
RESTORE_REGS: the function goes on behind its site. [default: RESTORE_REGS, or CALL_ORIG with --fmod-ret or --fexit]";

/// Flags of the kernel that have no meaning here, and why.
const FLAGS_REFUSED: [(&str, &str); 5] = [
    ("RET_FENTRY_RET", "is for struct_ops, whose trampolines have no traced function"),
    ("INDIRECT", "is for struct_ops, whose trampolines have no traced function"),
    ("ORIG_STACK", "is for functions that a livepatch redirects"),
    ("SHARE_IPMODIFY", "is for functions that a livepatch redirects"),
    ("TAIL_CALL_CTX", "is for BPF programs as the traced function"),
];

fn form(name: &str) -> std::result::Result<Form, String> {
    let found = Form::ALL.into_iter().find(|f| f.name() == name);
    found.ok_or_else(|| format!("valid: {}", Form::ALL.map(Form::name).join(", ")))
}

impl DirectArgs {
    /// Refuse what only `direct` and `around` have a use for if it is not for those of `names`.
    ///
    /// # Errors
    /// It is not.
    pub fn refuse_without(&self, names: &[String]) -> Result<()> {
        const CALLING: &[&str] = &[DIRECT, AROUND];
        let given: [(&str, bool, &[&str]); 13] = [
            ("--args", self.args.is_some(), CALLING),
            ("--call", self.call.is_some(), CALLING),
            ("--name", self.name.is_some(), FOR_ONE),
            ("--sig", self.sig.is_some(), FOR_ONE),
            ("--handler", self.handler.is_some(), FOR_ONE),
            ("--ip", self.ip, &[DIRECT]),
            ("--form", self.form.is_some(), &[AROUND]),
            ("--function", self.function.is_some(), &[AROUND, PROGRAMS]),
            ("--exit", self.exit.is_some(), &[AROUND]),
            ("--fentry", !self.fentry.is_empty(), &[PROGRAMS]),
            ("--fmod-ret", !self.fmod_ret.is_empty(), &[PROGRAMS]),
            ("--fexit", !self.fexit.is_empty(), &[PROGRAMS]),
            ("--flags", !self.flags.is_empty(), &[PROGRAMS]),
        ];
        match given.iter().find(|(_, given, of)| *given && !names.iter().any(|n| of.contains(&n.as_str()))) {
            Some((option, _, of)) => {
                let valid = of.join("` or `");
                Err(Error::new(format!(
                    "{option} is given, but no trampoline that has a use for it; valid: with `{valid}`"
                )))
            }
            None => Ok(()),
        }
    }
}

/// One trampoline that was asked for.
pub struct Request {
    name: String,
    kind: Kind,
    callee: String,
    function: String,
    resume: i32,
    exit: String,
    programs: Vec<Program>,
    export: String,
}

impl Request {
    /// As the generator wants it.
    pub fn spec(&self) -> Spec<'_> {
        let body = Body { function: &self.function, resume: self.resume, exit: &self.exit };
        Spec {
            name: &self.name,
            kind: self.kind,
            callee: &self.callee,
            body,
            programs: &self.programs,
            export: &self.export,
        }
    }
}

/// Give one of `requests` another name for modules, as `SYMBOL=TRAMPOLINE` says.
///
/// # Errors
/// No pair of symbols, or a trampoline that is not among them.
pub fn export(text: &str, requests: &mut [Request], target: &Target) -> Result<()> {
    let Some((symbol, name)) = text.split_once('=') else {
        return Err(Error::new(format!("--export '{text}' is no pair; valid: --export SYMBOL=TRAMPOLINE")));
    };
    check_symbol("export", symbol, &target.no_frame, target)?;
    let valid: Vec<String> = requests.iter().map(|r| r.name.clone()).collect();
    let Some(request) = requests.iter_mut().find(|r| r.name == name) else {
        return Err(Error::unknown("trampoline in --export", name, valid.iter().map(String::as_str)));
    };
    if !request.export.is_empty() {
        let first = &request.export;
        return Err(Error::new(format!(
            "--export '{text}': {name} is {first} already; valid: one for each trampoline"
        )));
    }
    request.export = symbol.to_owned();
    Ok(())
}

/// All trampolines that need no parameter.
pub fn all() -> Vec<Request> {
    NAMED.iter().map(|&kind| named(kind)).collect()
}

fn named(kind: Kind) -> Request {
    let none = String::new;
    let name = kind.symbol().to_owned();
    let programs = Vec::new();
    Request { name, kind, callee: none(), function: none(), resume: 0, exit: none(), programs, export: none() }
}

/// The trampoline called `what`; `args` are for those that are made for one function.
///
/// # Errors
/// There is none of that name, or it cannot be what was asked for.
pub fn trampoline(what: &str, args: &DirectArgs, target: &Target) -> Result<Request> {
    if !FOR_ONE.contains(&what) {
        let valid = NAMED.iter().map(|k| k.symbol()).chain(FOR_ONE.iter().copied());
        return Kind::named(what).map(named).ok_or_else(|| Error::unknown("trampoline", what, valid));
    }
    let programs = if what == PROGRAMS { programs(args)? } else { Vec::new() };
    let callee = match programs.first() {
        Some(_) => String::new(),
        None => wanted(what, "call", args.call.as_ref(), "SYMBOL, the C function to call")?,
    };
    let called = programs.first().map_or(callee.as_str(), |p| &p.symbol);
    let name = args.name.clone().unwrap_or_else(|| format!("{called}_tramp"));
    if args.handler.is_some() && args.sig.is_none() {
        return Err(Error::new(format!("{what}: --handler is given without a prototype; valid: with --sig")));
    }
    let (mut function, mut resume, mut exit) = (String::new(), 0, String::new());
    let kind = match what {
        AROUND => {
            exit = wanted(what, "exit", args.exit.as_ref(), "SYMBOL, the exit handler")?;
            Kind::Around(paired(args, &[&callee, &exit], target)?)
        }
        PROGRAMS => Kind::Programs(what_is_shown(args, &programs, target)?),
        _ => Kind::Direct(what_is_passed(args, &callee, target)?),
    };
    let frame = target.frame(kind)?;
    if kind.calls_body() {
        function = wanted(what, "function", args.function.as_ref(), "SYMBOL, the traced function")?;
        resume = target.resume;
        if let Some((symbol, offset)) = function.split_once('+') {
            resume = behind_site(offset, target).map_err(|e| e.at(format!("{what}: --function {function}")))?;
            function = symbol.to_owned();
        }
        check_symbol("function", &function, &frame, target)?;
    } else if args.function.is_some() {
        let or = if what == PROGRAMS { ", or with --flags CALL_ORIG" } else { "" };
        return Err(Error::new(format!(
            "{what}: --function is given, but nothing calls it; valid: without --function{or}"
        )));
    }
    let attached = programs.iter().map(|p| (p.attach.option().trim_start_matches('-'), &*p.symbol));
    let named = [("call", args.call.as_deref()), ("name", Some(&*name)), ("exit", args.exit.as_deref())];
    let named = named.into_iter().filter_map(|(option, symbol)| Some((option, symbol?)));
    for (option, symbol) in named.chain(attached.clone()) {
        check_symbol(option, symbol, &frame, target)?;
    }
    if attached.map(|(_, symbol)| symbol).chain([&*callee, &function, &exit]).any(|called| called == name) {
        return Err(Error::new(format!(
            "{what}: --name {name} is what it calls; valid: any other name, such as {name}_tramp"
        )));
    }
    Ok(Request { name, kind, callee, function, resume, exit, programs, export: String::new() })
}

/// Bytes from a function's start to behind its site.
fn behind_site(text: &str, target: &Target) -> Result<i32> {
    let least = target.facts.site.ip_offset;
    // What fills gaps is an instruction of the smallest size.
    let step = target.facts.fill.0.len() as i32;
    let number = parse_u64(text).ok().and_then(|n| i32::try_from(n).ok());
    number.filter(|n| *n >= least && n % step == 0).ok_or_else(|| {
        let multiple = if step == 1 { "a number".to_owned() } else { format!("a multiple of {step}") };
        Error::new(format!("'{text}' is no offset behind the site; valid: {multiple} from {least} to {:#x}", i32::MAX))
    })
}

/// The programs of the command line, those before the function first.
fn programs(args: &DirectArgs) -> Result<Vec<Program>> {
    let lists = [(Attach::Fentry, &args.fentry), (Attach::FmodRet, &args.fmod_ret), (Attach::Fexit, &args.fexit)];
    let mut all = Vec::new();
    for (attach, text) in lists.into_iter().flat_map(|(attach, list)| list.iter().map(move |text| (attach, text))) {
        let (symbol, cookie) = text.split_once(':').unwrap_or((text, "0"));
        let cookie = parse_u64(cookie).ok().and_then(|n| i32::try_from(n).ok()).ok_or_else(|| {
            let option = attach.option();
            Error::new(format!("programs: {option} {text}: '{cookie}' is no cookie; valid: 0 to {:#x}", i32::MAX))
        })?;
        all.push(Program { attach, symbol: Cow::Owned(symbol.to_owned()), cookie });
    }
    if all.is_empty() {
        return Err(Error::new("programs: there is none; valid: --fentry, --fmod-ret or --fexit with SYMBOL[:COOKIE]"));
    }
    // As the kernel's BPF_MAX_TRAMP_LINKS (include/linux/bpf.h).
    const MOST: usize = 38;
    if all.len() > MOST {
        return Err(Error::new(format!("programs: there are {}; valid: up to {MOST}, as for BPF", all.len())));
    }
    Ok(all)
}

/// What the programs of a function are shown, and what else is done.
fn what_is_shown(args: &DirectArgs, attached: &[Program], target: &Target) -> Result<Programs> {
    let valid = "PROTOTYPE, that of the traced function";
    let sig = wanted(PROGRAMS, "sig", args.sig.as_ref(), valid)?;
    let backend = crate::backend(target.facts.name)?;
    let proto = Prototype::parse(&sig).map_err(|e| e.at("--sig"))?;
    let names: Vec<&str> = attached.iter().map(|p| &*p.symbol).collect();
    let general = general_callees(args, &names, target)?;
    let placement = backend.place(target, &proto);
    let shown = placement.and_then(|p| p.programs(&proto, target.facts, backend.machine(), general));
    let mut programs = shown.map_err(|e| e.at("--sig"))?;
    let late = attached.iter().any(|p| p.attach != Attach::Fentry);
    let mut restores = false;
    programs.call_orig = late;
    for flag in &args.flags {
        match flag.as_str() {
            "CALL_ORIG" => programs.call_orig = true,
            "SKIP_FRAME" => programs.skip_frame = true,
            "IP_ARG" => programs.ip_arg = true,
            "RESTORE_REGS" => restores = true,
            _ => {
                return Err(match FLAGS_REFUSED.iter().find(|(name, _)| name == flag) {
                    Some((name, why)) => {
                        Error::new(format!("programs: --flags {name} {why}; valid: {}", FLAGS.join(", ")))
                    }
                    None => Error::unknown("flag of programs", flag, FLAGS.iter().copied()),
                });
            }
        }
    }
    if restores && programs.call_orig {
        return Err(Error::new(
            "programs: RESTORE_REGS is for a function that goes on behind its site, CALL_ORIG for one that is called; \
             valid: one of them, and CALL_ORIG with --fmod-ret or --fexit",
        ));
    }
    if programs.skip_frame && !programs.call_orig {
        return Err(Error::new("programs: SKIP_FRAME without CALL_ORIG would leave the function out; valid: both"));
    }
    let one_word = programs.result.regs.iter().count() == 1 && programs.result.vectors == 0;
    if attached.iter().any(|p| p.attach == Attach::FmodRet) && !one_word {
        return Err(proto
            .refuse(None, "--fmod-ret decides a result in one general register; valid: an integer or a pointer")
            .at("--sig"));
    }
    Ok(programs)
}

/// The value of an option that a trampoline cannot do without.
fn wanted(what: &str, option: &str, value: Option<&String>, valid: &str) -> Result<String> {
    let given = value.filter(|v| !v.is_empty()).cloned();
    given.ok_or_else(|| Error::new(format!("{what}: --{option} is missing; valid: --{option} {valid}")))
}

/// The form of a paired trampoline, and for how many arguments.
fn paired(args: &DirectArgs, handlers: &[&str], target: &Target) -> Result<Around> {
    let form = args.form.unwrap_or(Form::Frame);
    let most = target.facts.abi.args.len() as u8;
    let live = args.sig.as_ref().map(|sig| live_args(sig, args, handlers, target)).transpose()?;
    match (form, args.args.or(live)) {
        (Form::Frame, Some(args)) => Ok(Around { form, args }),
        (Form::Frame, None) => Err(Error::new(format!(
            "around: --args is missing; valid: --args 0 to --args {most} on {}, or --sig with a prototype",
            target.facts.name
        ))),
        _ if args.args.is_some() => Err(Error::new(format!(
            "around: --args is not for --form {}, which keeps all; valid: without --args",
            form.name()
        ))),
        _ => Ok(Around { form, args: most }),
    }
}

/// How many argument registers there are up to the last that is live, of a function that `around` can call.
fn live_args(sig: &str, args: &DirectArgs, handlers: &[&str], target: &Target) -> Result<u8> {
    let backend = crate::backend(target.facts.name)?;
    let proto = Prototype::parse(sig).map_err(|e| e.at("--sig"))?;
    let placement = backend.place(target, &proto).map_err(|e| e.at("--sig"))?;
    let general = general_callees(args, handlers, target)?;
    let why_not = |piece: &Piece| match piece.place {
        Place::Stack(_) if args.form != Some(Form::Shadow) => Some(
            "an argument on the stack, which the frame displaces; valid: --form shadow, which leaves it in place, or \
             `programs`, which copies it",
        ),
        Place::Vector(_) if !general => Some(
            "a value in a vector register, which the handlers may overwrite; valid: `programs`, which keeps it, or \
             --handler with an object of both handlers that touches no vector register",
        ),
        Place::Stack(_) | Place::Vector(_) | Place::Reg(_) => None,
    };
    let result = match &placement.returned {
        Returned::Registers(pieces) => pieces.as_slice(),
        Returned::Nothing | Returned::Memory => &[],
    };
    let values = placement.args.iter().enumerate().map(|(n, pieces)| (Some(n), pieces.as_slice()));
    for (arg, pieces) in values.chain([(None, result)]) {
        if let Some(why) = pieces.iter().find_map(why_not) {
            return Err(proto.refuse(arg, why).at("--sig"));
        }
    }
    Ok(placement.direct(target.facts, backend.machine(), general).args)
}

/// So many arguments, or those of a prototype.
fn what_is_passed(direct: &DirectArgs, callee: &str, target: &Target) -> Result<Direct> {
    let facts = target.facts;
    let Some(sig) = &direct.sig else {
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
    let general = general_callees(direct, &[callee], target)?;
    Ok(placement.direct(facts, backend.machine(), general))
}

/// Is it proven of all these functions that they leave vector registers alone?
fn general_callees(args: &DirectArgs, callees: &[&str], target: &Target) -> Result<bool> {
    let Some(path) = &args.handler else { return Ok(false) };
    let backend = crate::backend(target.facts.name)?;
    let name = path.display().to_string();
    let bytes =
        std::fs::read(path).map_err(|e| Error::new(format!("cannot read {name}: {e}; valid: an object file")))?;
    let input = Input { name: &name, bytes: &bytes };
    for callee in callees {
        if !general_registers_only(backend, target, &input, callee)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What direct-call trampolines are called on the command line.
pub const DIRECT: &str = "direct";

/// What paired trampolines are called on the command line.
pub const AROUND: &str = "around";

/// What trampolines are called on the command line that call programs.
pub const PROGRAMS: &str = "programs";

/// The trampolines that are made for one function.
const FOR_ONE: &[&str] = &[DIRECT, AROUND, PROGRAMS];

/// Names that C can have, so that no assembler takes them for something else.
fn check_symbol(option: &str, symbol: &str, frame: &FrameLayout, target: &Target) -> Result<()> {
    let mut chars = symbol.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')) {
        return Err(Error::new(format!(
            "--{option} '{symbol}' is no symbol; valid: a letter or _, then letters, digits, _ . $"
        )));
    }
    // The listing gives these names to numbers.
    let frames = [frame].into_iter().chain(target.struct_frames()).chain(&target.direct_frames);
    let mut reserved = target.numbers.iter().map(|n| n.symbol).chain(frames.flat_map(|f| {
        let slots = f.fields.iter().map(|f| f.symbol).chain(f.records.iter().map(|r| r.symbol));
        slots.chain([f.size_symbol])
    }));
    if reserved.any(|r| r == symbol) {
        return Err(Error::new(format!(
            "--{option} {symbol} is the name of a frame offset in the text for {}; valid: any other",
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
        let matches = |n: &str| {
            WildMatch::new(name).matches(n) || (FOR_ONE.contains(&name.as_str()) && n.starts_with(&format!("{name}_")))
        };
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
