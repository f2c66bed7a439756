//! Generated trampolines for the judge: the object, the contracts, and the labels of a report.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::asked::SLED;
use super::settings::{self, PROFILE};
use codegen::arch::facts::NumberOf;
use codegen::ask::kind::{Calls, Gives};
use codegen::ask::spec::{
    Around, Attach, Body, Bracket, Clock, Direct, Events, Form, Kind, Program, Programs, Recorder, Spec, TailCall,
};
use codegen::backend::{Artifact, Backend};
use codegen::contract::Contract;
use codegen::out::assembly::Assembly;
use codegen::out::{obj, text::LineKind};
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::abi::{Reg, RegSet};
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;
use codegen::words::step::{ExitPath, KernelLabel};
use emu_tests::{
    AFTER_RECORDER, BY_THE_PROFILE, CALLBACK, Chosen, DIRECT_HANDLER, Deviation, EXIT_HANDLER, Head, PAIRED_HANDLERS,
    RECORDER_ARGS, Source, Suite, direct_names, paired_names, recorder_names,
};

/// The function that the direct-call trampolines of a suite call.
const CALLEE: &str = "direct_func";

/// The thread-local variable of the recording trampolines of a suite that have one.
const TLS: &str = "thread_words";

/// The traced function and exit handler of a suite's paired trampolines. Each run chooses the function behind the symbol.
const BODY: Body = Body { function: "traced_function", resume: 8, exit: EXIT_HANDLER, signed: false };

/// A prototype with one argument.
const ONE: &str = "void kfree_skb(struct sk_buff *skb)";
/// A prototype with several arguments on the stack.
const WORDS: &str = "u64 words(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i)";

/// The direct-call trampolines of a suite with prototypes: a result in memory, vector registers, and both with stack
/// arguments.
const SIGNATURES: &[(&str, &str)] = &[
    ("direct_kfree_skb", ONE),
    ("direct_words", WORDS),
    ("direct_memory", "struct result { 40, 8 } memory(u64 a, u64 b, u64 c)"),
    ("direct_vectors", "void vectors(double x, signed char a, float y, unsigned short b, struct { double d; } z)"),
    (
        "direct_all",
        "double all(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j, double x, double y)",
    ),
];

/// The direct-call trampoline to which sites jump.
const JUMP_STACK: (&str, &str) = ("direct_jump_words", WORDS);

/// The direct-call trampoline that also has a static chain.
const CHAINED: (&str, &str) = ("direct_chained", "u64 chained(u64 a, u64 b)");
const CHAIN: &str = "static-chain";

/// The recording trampolines of a suite. Their function numbers have bits in each part that an instruction encodes.
const RECORDERS: &[(&str, Recorder)] = &[
    ("record_count", Recorder::new(Events::Count, Clock::None, 0)),
    ("record_entry", Recorder::new(Events::Entry, Clock::None, 0x4_0001)),
    ("record_entry_word", Recorder::new(Events::Entry, Clock::Word, Recorder::LAST_ID)),
    ("record_entry_args", Recorder { tls: true, args: 3, ..Recorder::new(Events::Entry, Clock::Tsc, 0x4_0002) }),
    ("record_both", Recorder::new(Events::Both, Clock::None, 0x1234)),
    ("record_both_word", Recorder::new(Events::Both, Clock::Word, 0x4_0007)),
    ("record_both_tsc", Recorder::new(Events::Both, Clock::Tsc, 0x4_0008)),
    ("record_both_stamp8", Recorder { args: 1, ..Recorder::new(Events::Both, Clock::Stamp8, 0x4_0009) }),
    ("record_both_unwind", Recorder { unwind: true, ..Recorder::new(Events::Both, Clock::None, 0x4_000b) }),
    (
        "record_both_unwind_tsc",
        Recorder {
            tls: true,
            unwind: true,
            result: true,
            args: 2,
            ..Recorder::new(Events::Both, Clock::Tsc, 0x4_000c)
        },
    ),
    ("record_entry_refill", Recorder { refill: true, ..Recorder::new(Events::Entry, Clock::None, 0x4_000d) }),
    (
        "record_both_refill",
        Recorder { refill: true, args: 2, result: true, ..Recorder::new(Events::Both, Clock::Tsc, 0x4_000e) },
    ),
    (
        "record_both_unwind_refill",
        Recorder { refill: true, unwind: true, ..Recorder::new(Events::Both, Clock::Word, 0x4_000f) },
    ),
    ("record_pair", Recorder { pair: true, ..Recorder::new(Events::Both, Clock::None, 0x4_0012) }),
    (
        "record_pair_tsc",
        Recorder { tls: true, pair: true, args: 2, result: true, ..Recorder::new(Events::Both, Clock::Tsc, 0x4_0013) },
    ),
    ("record_shadow", Recorder { shadow: true, ..Recorder::new(Events::Both, Clock::None, 0x4_0010) }),
    (
        "record_shadow_refill",
        Recorder {
            tls: true,
            shadow: true,
            refill: true,
            args: 2,
            result: true,
            ..Recorder::new(Events::Both, Clock::Tsc, 0x4_0011)
        },
    ),
    ("record_entry_all", Recorder { keeps_all: true, ..Recorder::new(Events::Entry, Clock::None, 0x4_0014) }),
    (
        "record_entry_all_refill",
        Recorder { keeps_all: true, refill: true, args: 3, ..Recorder::new(Events::Entry, Clock::Tsc, 0x4_0015) },
    ),
    (
        "record_shadow_all",
        Recorder { tls: true, keeps_all: true, shadow: true, ..Recorder::new(Events::Both, Clock::None, 0x4_0016) },
    ),
    (
        "record_both_stamp8_all",
        Recorder { keeps_all: true, shadow: true, args: 1, ..Recorder::new(Events::Both, Clock::Stamp8, 0x4_0017) },
    ),
    (
        "record_shadow_all_refill",
        Recorder {
            keeps_all: true,
            shadow: true,
            refill: true,
            args: 2,
            result: true,
            ..Recorder::new(Events::Both, Clock::Tsc, 0x4_0018)
        },
    ),
    ("record_both_args", Recorder { args: 6, result: true, ..Recorder::new(Events::Both, Clock::None, 0x4_000a) }),
];

/// The prototype of the recorded function, for trampolines that must know that it has no stack arguments.
const RECORDED: &str = "u64 traced_function(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)";

/// The program trampolines of a suite: name, prototype, flags, and programs.
const PROGRAMS: &[(&str, &str, Programs, &[Program])] = &[
    ("programs_fentry", ONE, RESTORE_REGS, &[program(Attach::Fentry, "direct_func", 0)]),
    (
        "programs_fentry_stack",
        WORDS,
        Programs { ip_arg: true, ..RESTORE_REGS },
        &[program(Attach::Fentry, "direct_func", 0x7fff_ffff), program(Attach::Fentry, "callback2", 0x7ff)],
    ),
    (
        "programs_fexit",
        "u64 three(u64 a, u64 b, u64 c)",
        CALL_ORIG,
        &[
            program(Attach::Fexit, "callback2", 0x800),
            program(Attach::Fentry, "direct_func", 6),
            program(Attach::Fexit, "direct_func", 5),
        ],
    ),
    (
        "programs_fexit_stack",
        WORDS,
        CALL_ORIG,
        &[program(Attach::Fentry, "callback2", 1), program(Attach::Fexit, "direct_func", 0)],
    ),
    (
        "programs_fexit_vectors",
        "double two(double x, u64 a, u64 b)",
        Programs { ip_arg: true, ..CALL_ORIG },
        &[program(Attach::Fentry, "direct_func", 0x22), program(Attach::Fexit, "callback2", 0x10000)],
    ),
    (
        "programs_fmod_ret",
        "u64 one(u64 a)",
        CALL_ORIG,
        &[program(Attach::FmodRet, "direct_func", 0x11), program(Attach::FmodRet, "callback2", 2)],
    ),
    (
        "programs_fmod_ret_stack",
        WORDS,
        Programs { skip_frame: true, ip_arg: true, ..CALL_ORIG },
        &[
            program(Attach::Fexit, "callback2", 0x12345),
            program(Attach::Fentry, "direct_func", 0x1000),
            program(Attach::FmodRet, "callback2", 0x7_0000),
        ],
    ),
    (
        "programs_skip_frame",
        "void two(u64 a, u64 b)",
        Programs { skip_frame: true, ..CALL_ORIG },
        &[program(Attach::Fexit, "direct_func", 4)],
    ),
    (
        "programs_fsession",
        "u64 three(u64 a, u64 b, u64 c)",
        CALL_ORIG,
        &[
            program(Attach::Fentry, "direct_func", 6),
            program(Attach::Fsession, "callback2", 0x800),
            program(Attach::Fsession, "direct_func", 5),
            program(Attach::Fexit, "callback2", 7),
        ],
    ),
    (
        "programs_fsession_stack",
        WORDS,
        Programs { ip_arg: true, ..CALL_ORIG },
        &[program(Attach::FmodRet, "callback2", 1), program(Attach::Fsession, "direct_func", 0x7000)],
    ),
    ("programs_fsession_void", ONE, CALL_ORIG, &[program(Attach::Fsession, "callback2", 0)]),
    (
        "programs_tail_call",
        "u64 one(u64 a)",
        COUNTED,
        &[
            program(Attach::FmodRet, "direct_func", 0x11),
            program(Attach::Fentry, "callback2", 2),
            program(Attach::FmodRet, "callback2", 3),
        ],
    ),
    (
        "programs_tail_call_after",
        "u64 one(u64 a)",
        COUNTED,
        &[program(Attach::FmodRet, "direct_func", 4), program(Attach::Fexit, "callback2", 5)],
    ),
    (
        "programs_tail_call_on",
        ONE,
        Programs { call_orig: false, ..COUNTED },
        &[program(Attach::Fentry, "direct_func", 9)],
    ),
    (
        "programs_around_fentry",
        "u64 two(u64 a, struct pair { u64 b; u64 c; } d)",
        Programs { ip_arg: true, ..RESTORE_REGS },
        &[
            program(Attach::Fentry, "direct_func", 0x1234_5678_9abc_def0),
            program(Attach::Fentry, "callback2", -0x7ff_ffff_ffff),
        ],
    ),
    (
        "programs_around_fexit_stack",
        WORDS,
        Programs { ip_arg: true, ..CALL_ORIG },
        &[program(Attach::Fexit, "callback2", 0x800), program(Attach::Fentry, "direct_func", 0)],
    ),
    (
        "programs_around_fmod_ret",
        "u64 one(u64 a)",
        Programs { skip_frame: true, ..CALL_ORIG },
        &[
            program(Attach::FmodRet, "direct_func", -1),
            program(Attach::FmodRet, "callback2", 2),
            program(Attach::Fentry, "callback2", 3),
        ],
    ),
    (
        "programs_around_fsession",
        "u64 three(u64 a, u64 b, u64 c)",
        Programs { ip_arg: true, ..CALL_ORIG },
        &[
            program(Attach::Fsession, "direct_func", 0x8000_0000),
            program(Attach::FmodRet, "callback2", 0x1000_0000_0000),
            program(Attach::Fsession, "direct_func", 0x7_0000),
        ],
    ),
    ("programs_around_vectors", "double two(double x, u64 a)", CALL_ORIG, &[program(Attach::Fexit, "direct_func", 7)]),
    (
        "programs_around_tail_call",
        "u64 one(u64 a)",
        COUNTED,
        &[program(Attach::FmodRet, "direct_func", 4), program(Attach::Fentry, "callback2", 5)],
    ),
];

/// The trampolines of [`PROGRAMS`] that have functions around each program, as Linux calls them.
const BRACKETED: &[(&str, &[Bracket])] = &[
    ("programs_around_fentry", &[FIRST, SECOND]),
    ("programs_around_fexit_stack", &[SECOND, FIRST, all("programs_around_fexit_stack_image")]),
    ("programs_around_fmod_ret", &[FIRST, SECOND, SECOND, all("programs_around_fmod_ret_image")]),
    ("programs_around_fsession", &[FIRST, SECOND, FIRST, all("programs_around_fsession_image")]),
    ("programs_around_vectors", &[FIRST, all("programs_around_vectors_image")]),
    ("programs_around_tail_call", &[FIRST, SECOND, all("programs_around_tail_call_image")]),
];

/// Those around `direct_func` and `callback2`.
const FIRST: Bracket = each("direct_func_prog");
const SECOND: Bracket = each("callback2_prog");

const fn each(argument: &'static str) -> Bracket {
    bracket("prog_enter", "prog_exit", argument)
}

const fn all(argument: &'static str) -> Bracket {
    bracket("tramp_enter", "tramp_exit", argument)
}

const fn bracket(enter: &'static str, exit: &'static str, argument: &'static str) -> Bracket {
    let argument = Some(Cow::Borrowed(argument));
    Bracket { enter: Cow::Borrowed(enter), exit: Cow::Borrowed(exit), argument, always: false }
}

const RESTORE_REGS: Programs = Programs::RESTORE_REGS;
const CALL_ORIG: Programs = Programs::CALL_ORIG;
/// The flags of programs whose tail calls are counted; the register is that of the profile.
const COUNTED: Programs =
    Programs { tail_call: Some(TailCall { reg: Reg(0), returned: false }), ..Programs::CALL_ORIG };

const fn program(attach: Attach, symbol: &'static str, cookie: i64) -> Program {
    Program { attach, symbol: Cow::Borrowed(symbol), cookie }
}

/// Every trampoline of `target`: the named ones, direct-call trampolines for each number of arguments, with and without
/// ip, and for some prototypes, and paired ones of each form. Trampolines that the profile does not support are left out.
///
/// # Errors
/// A prototype that the psABI cannot place.
pub fn trampolines(target: &Target) -> Result<Vec<(String, Kind)>> {
    let backend = super::backend(target.facts.name)?;
    let all = candidates(target)?;
    let there = |spec: Spec| match backend.assemble(&[spec], target) {
        // A trampoline that the profile names must exist.
        Err(e) => !matches!(e.kind(), Error::Absent { .. }) || target.convention.kind(spec.name).is_some(),
        Ok(_) => true,
    };
    let there: Vec<bool> = specs(&all).into_iter().map(there).collect();
    Ok(all.into_iter().zip(there).filter_map(|(trampoline, there)| there.then_some(trampoline)).collect())
}

/// The candidates from which [`trampolines`] chooses.
fn candidates(target: &Target) -> Result<Vec<(String, Kind)>> {
    let most = target.facts.abi.args.len() as u8;
    let room = |&Direct { args, ip, .. }: &Direct| args + u8::from(ip) <= most;
    let direct =
        (0..=most).flat_map(|args| [false, true].map(|ip| Direct { args, ip, ..Direct::default() })).filter(room);
    let direct = direct.map(|d| (format!("direct_{}{}", d.args, if d.ip { "_ip" } else { "" }), Kind::Direct(d)));
    let named = target.convention.specs().map(|spec| (spec.name.to_owned(), spec.kind));
    let mut all: Vec<(String, Kind)> = named.chain(direct).collect();
    let lean = [0, 1, most].map(|args| Around { form: Form::Frame, args, general_handlers: false });
    let full = [Form::Fregs, Form::Shadow].map(|form| Around { form, args: most, general_handlers: false });
    // Trampolines to which sites jump need sites that jump.
    let jumps = !target.convention.site.protocol.jump.is_empty();
    for around in lean.into_iter().chain(full).filter(|_| jumps) {
        let args = if around.form == Form::Frame { format!("_{}", around.args) } else { String::new() };
        all.push((format!("around_{}{args}", around.form.name()), Kind::Around(around)));
    }
    if jumps && target.convention.thread.is_some() {
        all.extend(RECORDERS.iter().map(|(name, recorder)| ((*name).to_owned(), Kind::Record(*recorder))));
        all.push((SLED.to_owned(), Kind::Sled));
    }
    for (name, signature) in SIGNATURES {
        let proto = Prototype::parse(signature)?;
        let direct = target.place(&proto)?.direct(&target.facts.abi, target.convention.site.live, false);
        all.push(((*name).to_owned(), Kind::Direct(direct)));
    }
    if target.convention.site.direct_jumps {
        let stack = Prototype::parse(JUMP_STACK.1)?;
        let stack = target.place(&stack)?.direct(&target.facts.abi, target.convention.site.live, false);
        for (name, direct) in [
            ("direct_jump_0_ip", Direct { ip: true, ..Direct::default() }),
            ("direct_jump_1", Direct { args: 1, ..Direct::default() }),
            (JUMP_STACK.0, stack),
        ] {
            all.push((name.to_owned(), Kind::Direct(Direct { jumped: true, ..direct })));
        }
    }
    // Registers that the psABI passes besides arguments.
    let mut chained =
        target.place(&Prototype::parse(CHAINED.1)?)?.direct(&target.facts.abi, target.convention.site.live, false);
    let chain = target.facts.abi.live.iter().find(|(what, _)| *what == CHAIN);
    if let (Some(live), Some((_, regs))) = (&mut chained.live, chain) {
        live.regs = live.regs.union(*regs);
        all.push((CHAINED.0.to_owned(), Kind::Direct(chained)));
    }
    for (name, signature, flags, attached) in PROGRAMS {
        let proto = Prototype::parse(signature)?;
        let Programs { call_orig, ip_arg, .. } = *flags;
        let skip_frame = flags.skip_frame || (call_orig && !jumps);
        let abi = &target.facts.abi;
        let mut live = target.live_where_guarded(target.convention.site.live);
        let offered = &target.convention.programs;
        let sessions = attached.iter().any(|p| p.attach == Attach::Fsession);
        let bracketed = !brackets(name).is_empty();
        let tail_call = offered.tail_call.filter(|_| flags.tail_call.is_some());
        let absent = sessions && !offered.sessions || flags.tail_call.is_some() && tail_call.is_none();
        if absent || bracketed && offered.written.own == RegSet::EMPTY {
            continue;
        }
        if let Some(counted) = tail_call {
            live = live.union(RegSet::of(&[counted.reg]));
        }
        let programs = target.place(&proto)?.programs(&proto, abi, live, false)?;
        let own = if bracketed { offered.written.own } else { RegSet::EMPTY };
        let programs = Programs { call_orig, skip_frame, ip_arg, tail_call, own, ..programs.attached(attached) };
        all.push(((*name).to_owned(), Kind::Programs(programs)));
    }
    Ok(all)
}

/// The functions around the programs of a trampoline of [`trampolines`], and around all.
fn brackets(name: &str) -> &'static [Bracket] {
    BRACKETED.iter().find(|(n, _)| *n == name).map_or(&[], |(_, brackets)| brackets)
}

/// The prototype and the programs of a trampoline of [`trampolines`] that calls programs.
fn attached(name: &str) -> Option<(&'static str, &'static [Program])> {
    PROGRAMS.iter().find(|(n, ..)| *n == name).map(|&(_, signature, _, programs)| (signature, programs))
}

/// The prototype of a direct-call trampoline of [`trampolines`] that has one.
fn signature(name: &str) -> Option<&'static str> {
    let all = SIGNATURES.iter().chain([&JUMP_STACK, &CHAINED]);
    all.copied().find(|(known, _)| *known == name).map(|(_, signature)| signature)
}

/// The trampolines of [`trampolines`] to judge under the options of `target`, which is one of all combinations except of
/// `fixed` options. Leaves out trampolines whose code some option with another value than its default does not change.
/// Those to which an entry trampoline may go stay beside it, and entry trampolines stay beside callbacks.
///
/// # Errors
/// As [`trampolines`].
pub fn trampolines_affected_by(target: &Target, fixed: impl Fn(&str) -> bool) -> Result<Vec<(String, Kind)>> {
    let most = target.facts.abi.args.len();
    let chosen: Vec<_> =
        target.convention.offered().filter(|(rule, _)| target.choices.get(rule.index) != rule.default).collect();
    let changes_code_of = |kind: Kind| chosen.iter().all(|(_, o)| target.convention.changes(o, kind) || fixed(o.name));
    let all = trampolines(target)?;
    let callbacks = all.iter().any(|(_, kind)| kind.is_callback() && changes_code_of(*kind));
    let entries = callbacks || all.iter().any(|(_, kind)| kind.calls_back() && changes_code_of(*kind));
    let any_function = |kind: Kind| kind.direct().is_none_or(|d| usize::from(d.args) == most && d.live.is_none());
    let led_to = |kind: Kind| kind.traits().chosen || kind.is_callback() || kind.returned_to();
    // Trampolines without an instruction that an option changes are there only for the entry trampolines.
    let does = |kind: Kind| kind.traits().calls != Calls::Nothing || kind.recorder().is_some();
    let changed = |kind: Kind| (kind.attaches() || kind.is_in_the_middle()) && does(kind) && changes_code_of(kind);
    let goes_there = |kind: Kind| callbacks && kind.calls_back();
    let wanted = |kind: Kind| changed(kind) || goes_there(kind) || (entries && led_to(kind) && any_function(kind));
    Ok(all.iter().filter(|(_, kind)| wanted(*kind)).cloned().collect())
}

/// The specs of [`trampolines`].
pub fn specs(trampolines: &[(String, Kind)]) -> Vec<Spec<'_>> {
    let programs = |name| attached(name).map_or(&[][..], |(_, programs)| programs);
    trampolines.iter().map(|(name, kind)| spec(name, *kind, programs(name))).collect()
}

/// The spec of a trampoline that calls the functions of a suite.
pub fn spec<'a>(name: &'a str, kind: Kind, programs: &'a [Program]) -> Spec<'a> {
    let body = match kind.recorder() {
        Some(_) => Body { exit: "", ..BODY },
        None => BODY,
    };
    let callee = match (kind.traits().calls, kind.traits().gives) {
        (Calls::Programs, _) => "",
        _ if kind.recorder().is_some_and(|recorder| !recorder.refill) => "",
        (Calls::Handlers, Gives::Frame) => CALLBACK,
        _ => CALLEE,
    };
    let tls = if kind.recorder().is_some_and(|recorder| recorder.tls) { TLS } else { "" };
    Spec { name, kind, callee, tls, body, programs, brackets: brackets(name), export: "" }
}

/// The functions of the suite around so many programs, and around all, if a trampoline of this kind calls such functions.
pub fn stand_in_brackets(kind: Kind, programs: usize) -> Vec<Bracket> {
    let Some(Programs { call_orig, .. }) = kind.programs().filter(Programs::bracketed) else { return Vec::new() };
    let each = [FIRST, SECOND].into_iter().cycle().take(programs);
    each.chain(call_orig.then(|| all("image"))).collect()
}

/// The programs with other symbols: two functions of the suite in turn.
pub fn stand_ins(programs: &[Program]) -> Vec<Program> {
    let symbols = [CALLEE, "callback2"].into_iter().cycle();
    let stand_in = |(p, symbol): (&Program, &'static str)| Program { symbol: Cow::Borrowed(symbol), ..p.clone() };
    programs.iter().zip(symbols).map(stand_in).collect()
}

/// The settings that choose `target`, as `name=value`: every option, and the numbers and offsets that differ from the profile.
pub fn settings(backend: &dyn Backend, target: &Target) -> Vec<String> {
    let options = target.convention.chosen(target.choices).map(|(name, value)| format!("{name}={value}"));
    let profile = backend.target(target.convention, target.choices).ok();
    let usual = |symbol: &str| profile.as_ref().and_then(|p| p.value(symbol));
    let changed = target.symbols().into_iter().filter(|s| target.value(s) != usual(s));
    options.chain(changed.filter_map(|s| Some(format!("{s}={}", target.value(s)?)))).collect()
}

/// ` --profile NAME`, or nothing for the default profile.
pub fn profile_argument(convention: &Convention) -> String {
    match convention.argument {
        profiles::DEFAULT => String::new(),
        argument => format!(" --profile {argument}"),
    }
}

/// The settings that choose a target, in a line: the profile, unless it is the default, options and numbers.
pub fn options(convention: &Convention, settings: &[String]) -> String {
    let profile = (convention.argument != profiles::DEFAULT).then(|| format!("{PROFILE}={}", convention.argument));
    profile.iter().chain(settings).map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// The command that writes the text of a trampoline of [`specs`].
pub fn command(backend: &dyn Backend, spec: &Spec, target: &Target) -> String {
    let what = match spec.kind {
        Kind::Direct(Direct { args, ip, jumped, .. }) => {
            let Body { function, resume, .. } = spec.body;
            let jump = if jumped { format!(" --jump --function {function}+{resume}") } else { String::new() };
            let ip = if ip { " --ip" } else { "" };
            let passed = match signature(spec.name) {
                Some(signature) if spec.name == CHAINED.0 => format!("--sig '{signature}' --live {CHAIN}"),
                Some(signature) => format!("--sig '{signature}'"),
                None => format!("--args {args}{ip}"),
            };
            format!("direct {passed}{jump} --call {} --name {}", spec.callee, spec.name)
        }
        Kind::Around(Around { form, args, .. }) => {
            let args = if form == Form::Frame { format!(" --args {args}") } else { String::new() };
            let Body { function, resume, exit, .. } = spec.body;
            let what = format!("around --form {}{args} --function {function}+{resume}", form.name());
            format!("{what} --call {} --exit {exit} --name {}", spec.callee, spec.name)
        }
        Kind::Programs(programs) => {
            let (signature, attached) = attached(spec.name).unwrap_or_default();
            let options = attached.iter().map(|p| format!(" {p}")).collect::<String>();
            let Body { function, resume, .. } = spec.body;
            let names = spec.kind.names_function();
            let function = if names { format!(" --function {function}+{resume}") } else { String::new() };
            let own = spec.brackets.is_empty() && target.convention.programs.written.own != RegSet::EMPTY;
            let two = |option: &str, around: &Bracket| format!(" {option} {},{}", around.enter, around.exit);
            let each = spec.brackets.first().map(|around| two("--around", around));
            let all = spec.brackets.get(attached.len()).map(|around| two("--around-all", around));
            let own = own.then(|| " --own-form".to_owned());
            let options: String = [options].into_iter().chain(own).chain(each).chain(all).collect();
            let flags = programs.flags().join(",");
            format!("programs --sig '{signature}'{options}{function} --flags {flags} --name {}", spec.name)
        }
        Kind::Record(Recorder { events, clock, id, args, result, unwind, refill, shadow, pair, keeps_all, tls }) => {
            let form = if shadow { " --form shadow" } else { "" };
            let sig = if events == Events::Both && !shadow { format!(" --sig '{RECORDED}'") } else { String::new() };
            let Body { function, resume, .. } = spec.body;
            let args = if args > 0 { format!(" --args {args}") } else { String::new() };
            let result = if result { " --result" } else { "" };
            let unwind = if unwind { " --unwind" } else { "" };
            let pair = if pair { " --pair" } else { "" };
            let live = if keeps_all { " --live all" } else { "" };
            let tls = if tls { format!(" --tls {TLS}") } else { String::new() };
            let refill = if refill { format!(" --refill {}", spec.callee) } else { String::new() };
            let numbered = format!(" --clock {} --id {id}{args}{result}{unwind}{pair}{live}{refill}", clock.name());
            let numbered = if events == Events::Count { String::new() } else { numbered };
            format!(
                "record --events {}{form}{numbered}{tls}{sig} --function {function}+{resume} --name {}",
                events.name(),
                spec.name
            )
        }
        Kind::Sled => format!("{SLED} --call {} --name {}", spec.callee, spec.name),
        _ => spec.name.to_owned(),
    };
    let set: String = settings(backend, target).iter().map(|s| format!(" --set {s}")).collect();
    format!("tramptool gen {what} --arch {}{}{set}", target.facts.name, profile_argument(target.convention))
}

/// The label of the call that is patched, if the trampoline has one.
fn slot(spec: &Spec, assembly: &Assembly, target: &Target) -> Option<String> {
    let name = target.convention.label(KernelLabel::Call, spec.name, spec.kind).concat();
    assembly.globals.iter().any(|s| assembly.name(s) == name).then_some(name)
}

/// The offsets in the `ftrace_ops` that trampolines read themselves; `None` if none does.
fn op_offsets<'c>(target: &Target, contracts: impl IntoIterator<Item = &'c Contract>) -> Result<Option<(u64, u64)>> {
    let offset = |of| target.number(of).map(|value| i64::from(value).cast_unsigned());
    let looks = contracts.into_iter().any(|c| c.leaves_by(ExitPath::EarlyDirect));
    looks.then(|| Ok((offset(NumberOf::OpFunc)?, offset(NumberOf::OpDirectCall)?))).transpose()
}

/// The contracts of an object with these trampolines, as a file that `check --object` takes.
///
/// # Errors
/// A trampoline that generation refuses.
pub fn contract_file(backend: &dyn Backend, specs: &[Spec], assembly: &Assembly, target: &Target) -> Result<String> {
    let contract = |spec| Ok((Contract::of(spec, target)?, slot(spec, assembly, target)));
    let contracts = specs.iter().map(contract).collect::<Result<Vec<_>>>()?;
    let about = format!("generated trampolines: {}", target.describe());
    let head = Head {
        about: &about,
        convention: target.convention,
        machine: backend.machine(),
        op_offsets: op_offsets(target, contracts.iter().map(|(c, _)| c))?,
    };
    emu_tests::contract_text(&head, &contracts)
}

/// Generate everything for `target` and describe it for [`emu_tests::check`].
///
/// # Errors
/// A trampoline that generation refuses.
pub fn suite(backend: &'static dyn Backend, target: &Target) -> Result<Suite> {
    suite_of(backend, target, &trampolines(target)?)
}

/// Generate these trampolines for `target` and describe them for [`emu_tests::check`].
///
/// # Errors
/// A trampoline that generation refuses.
pub fn suite_of(backend: &'static dyn Backend, target: &Target, trampolines: &[(String, Kind)]) -> Result<Suite> {
    suite_of_specs(backend, target, &specs(trampolines))
}

/// The trampolines linked with the runtime on a machine: all named ones, direct ones, some that record, and, if sites jump,
/// paired ones for functions that go on `resume` bytes behind their symbols.
///
/// # Errors
/// A trampoline that generation refuses.
pub fn suite_of_composed(backend: &'static dyn Backend, target: &Target, resume: i32) -> Result<Suite> {
    let direct = Kind::Direct(Direct { args: target.facts.abi.args.len() as u8, ..Direct::default() });
    let names: Vec<String> = direct_names().collect();
    let jumps = !target.convention.site.protocol.jump.is_empty();
    let around = Kind::Around(Around { form: Form::Fregs, args: 0, general_handlers: false });
    let ([callee, exit], paired) = (PAIRED_HANDLERS, paired_names().filter(|_| jumps).collect::<Vec<_>>());
    let mut all: Vec<Spec<'_>> = Vec::new();
    target.convention.specs().for_each(|spec| all.push(spec));
    all.extend(names.iter().map(|name| Spec { callee: DIRECT_HANDLER, ..Spec::of(name, direct) }));
    all.extend(paired.iter().map(|(name, function)| Spec {
        callee,
        body: Body { function, resume, exit, signed: false },
        ..Spec::of(name, around)
    }));
    let mut suite = suite_of_specs(backend, target, &all)?;
    let recorders = recorders_of_composed(backend)?;
    suite.objects.extend(recorders.objects);
    suite.contracts.extend(recorders.contracts);
    Ok(suite)
}

/// Kernels have no buffer of a thread, so they are of a profile that has one. What they leave alone is what direct
/// trampolines find the function by: where they go on is such a trampoline, so sites of kernels may call them.
fn recorders_of_composed(backend: &'static dyn Backend) -> Result<Suite> {
    let each = profiles::names().into_iter().filter_map(|name| super::profile(name).ok());
    let mut each = each.filter_map(|profile| profile.convention(backend.facts().name).ok());
    let convention = each.find(|c| c.thread.is_some() && !c.site.protocol.jump.is_empty());
    let convention = convention.ok_or_else(|| Error::new("no recorders; valid: a profile with `thread`"))?;
    // The ABI with which the functions are compiled.
    let choices = settings::choices(backend, convention, &[("abi", "lp64")])?;
    let target = backend.target(convention, choices)?;
    let names: Vec<(String, u32)> = recorder_names().collect();
    let (function, resume) = AFTER_RECORDER;
    let each = names.iter().map(|(name, id)| Spec {
        body: Body { function, resume, exit: "", signed: false },
        ..Spec::of(
            name,
            Kind::Record(Recorder { args: RECORDER_ARGS, ..Recorder::new(Events::Entry, Clock::None, *id) }),
        )
    });
    suite_of_specs(backend, &target, &each.collect::<Vec<_>>())
}

/// Generate the trampolines of these specs for `target` and describe them for [`emu_tests::check`].
///
/// # Errors
/// A trampoline that generation refuses.
pub fn suite_of_specs(backend: &'static dyn Backend, target: &Target, specs: &[Spec]) -> Result<Suite> {
    let Artifact { assembly, listings } = backend.generate(specs, target)?;
    let object = obj::write(&assembly, target)?;
    let slots = specs.iter().filter_map(|spec| slot(spec, &assembly, target)).collect();
    let (mut contracts, mut notes) = (Vec::with_capacity(listings.len()), BTreeMap::new());
    for listing in listings {
        for line in listing.lines.iter().filter(|line| line.kind == LineKind::Insn && !line.note.is_empty()) {
            notes.insert((listing.name.clone(), line.offset as u64), line.note.to_owned());
        }
        contracts.push(listing.contract);
    }
    let settings = settings(backend, target);
    Ok(Suite {
        backend,
        convention: target.convention,
        objects: vec![("trampolines".to_owned(), object)],
        op_offsets: op_offsets(target, &contracts)?,
        deviations: Deviation::of_sites(target.convention, contracts.iter()).collect(),
        contracts,
        missing: Vec::new(),
        slots,
        stubs: false,
        alternatives: Vec::new(),
        options: options(target.convention, &settings),
        chosen: Chosen {
            profile: target.convention.argument,
            source: Source::Generated { arch: target.facts.name, settings },
        },
        notes,
        written: BTreeMap::new(),
        engine: emu_tests::Emulator::default(),
        poke: BY_THE_PROFILE,
    })
}
