//! Trampolines that call programs: the programs, and the values that they get.

use std::borrow::Cow;

use codegen::ask::spec::{Attach, Bracket, FLAGS, Program, Programs};
use codegen::profile::target::Target;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;

use super::asked::Asked;
use super::handler::Proof;
use super::settings::parse_u64;

/// Flags of the kernel that have no meaning here, and why.
const FLAGS_REFUSED: [(&str, &str); 4] = [
    ("RET_FENTRY_RET", "is for struct_ops, whose trampolines have no traced function"),
    ("INDIRECT", "is for struct_ops, whose trampolines have no traced function"),
    ("ORIG_STACK", "is for functions that a livepatch redirects"),
    ("SHARE_IPMODIFY", "is for functions that a livepatch redirects"),
];

/// The functions of Linux around each program, and around all (kernel kernel/bpf/trampoline.c).
const AROUND_EACH: [&str; 2] = ["__bpf_prog_enter", "__bpf_prog_exit"];
const AROUND_ALL: [&str; 2] = ["__bpf_tramp_enter", "__bpf_tramp_exit"];

/// Are functions called around each program?
///
/// # Errors
/// Such functions are named, but another form is asked for, or the profile has no such form.
fn bracketed(args: &Asked, target: &Target) -> Result<bool> {
    let of_profile = target.convention.programs.written.own != RegSet::EMPTY;
    let named = [("--around", &args.around), ("--around-all", &args.around_all)];
    match named.into_iter().find(|(_, functions)| !functions.is_empty()) {
        Some((option, _)) if args.own_form => Err(Error::new(format!(
            "programs: {option} names functions around programs, and --own-form calls programs directly; valid: one of the two"
        ))),
        Some((option, _)) if !of_profile => Err(not_there(option, "own", target)),
        _ => Ok(of_profile && !args.own_form),
    }
}

/// The functions around each of these programs, then those around all.
pub(crate) fn brackets(args: &Asked, programs: &[Program], name: &str, target: &Target) -> Result<Vec<Bracket>> {
    if !bracketed(args, target)? {
        return Ok(Vec::new());
    }
    let two = |option: &str, given: &[String], usual: [&str; 2]| match given {
        [] => Ok(usual.map(str::to_owned)),
        [enter, exit] => Ok([enter.clone(), exit.clone()]),
        _ => {
            let (n, [enter, exit]) = (given.len(), usual);
            Err(Error::new(format!("programs: {option} has {n} functions; valid: two, as in {option} {enter},{exit}")))
        }
    };
    let [enter, exit] = two("--around", &args.around, AROUND_EACH)?.map(Cow::Owned);
    let [first, last] = two("--around-all", &args.around_all, AROUND_ALL)?.map(Cow::Owned);
    let around = |enter: &Cow<'static, str>, exit: &Cow<'static, str>, argument: String| Bracket {
        enter: enter.clone(),
        exit: exit.clone(),
        argument: Some(Cow::Owned(argument)),
        always: false,
    };
    let each = programs.iter().map(|program| around(&enter, &exit, format!("{}_prog", program.symbol)));
    Ok(each.chain([around(&first, &last, format!("{name}_image"))]).collect())
}

/// The programs of the command line, those before the function first.
pub(crate) fn programs(args: &Asked, target: &Target) -> Result<Vec<Program>> {
    // What every architecture can store in two instructions, or what the run context has room for.
    let most = if bracketed(args, target)? { u64::MAX } else { i32::MAX as u64 };
    let lists = [
        (Attach::Fentry, &args.fentry),
        (Attach::Fsession, &args.fsession),
        (Attach::FmodRet, &args.fmod_ret),
        (Attach::Fexit, &args.fexit),
    ];
    let mut all = Vec::new();
    for (attach, text) in lists.into_iter().flat_map(|(attach, list)| list.iter().map(move |text| (attach, text))) {
        let (symbol, cookie) = text.split_once(':').unwrap_or((text, "0"));
        let cookie = parse_u64(cookie).ok().filter(|n| *n <= most).ok_or_else(|| {
            let option = attach.option();
            Error::new(format!("programs: {option} {text}: '{cookie}' is no cookie; valid: 0 to {most:#x}"))
        })?;
        all.push(Program { attach, symbol: Cow::Owned(symbol.to_owned()), cookie: cookie.cast_signed() });
    }
    Ok(all)
}

/// The parameters of a trampoline that calls programs: the values that these get, and its flags.
pub(crate) fn what_is_shown(
    args: &Asked,
    attached: &[Program],
    proof: Option<&Proof>,
    target: &Target,
) -> Result<Programs> {
    let sig = args.sig.as_deref().unwrap_or_default();
    let proto = Prototype::parse(sig).map_err(|e| e.at("--sig"))?;
    let placement = target.place(&proto);
    let live = target.live_where_guarded(args.live_besides(target)?);
    let shown = placement.and_then(|p| p.programs(&proto, &target.facts.abi, live, Proof::holds(proof)));
    let mut programs = shown.map_err(|e| e.at("--sig"))?;
    let late = attached.iter().any(|p| p.attach != Attach::Fentry);
    let offered = &target.convention.programs;
    programs = programs.attached(attached);
    if programs.sessions > 0 && !offered.sessions {
        return Err(not_there("--fsession", "sessions = true", target));
    }
    let mut restores = false;
    programs.call_orig = late;
    if bracketed(args, target)? {
        programs.own = offered.written.own;
    }
    for flag in &args.flags {
        match flag.as_str() {
            "CALL_ORIG" => programs.call_orig = true,
            "SKIP_FRAME" => programs.skip_frame = true,
            "IP_ARG" => programs.ip_arg = true,
            "RESTORE_REGS" => restores = true,
            "TAIL_CALL_CTX" => counted(&mut programs, target)?,
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
    // The default of BPF where sites only call.
    let by_default = late && !args.flags.iter().any(|flag| flag == "CALL_ORIG");
    programs.skip_frame |= by_default && target.convention.site.protocol.jump.is_empty();
    if restores && programs.call_orig {
        return Err(Error::new(
            "programs: RESTORE_REGS is for a function that goes on behind its site, CALL_ORIG for one that is called; \
             valid: one of them, and CALL_ORIG with --fmod-ret, --fexit or --fsession",
        ));
    }
    if programs.skip_frame && !programs.call_orig {
        return Err(Error::new(
            "programs: SKIP_FRAME without CALL_ORIG would leave the function out; valid: both, with --function",
        ));
    }
    if !args.around_all.is_empty() && !programs.call_orig {
        return Err(Error::new(
            "programs: --around-all is for a function that is called, and this one goes on behind its site; valid: with CALL_ORIG, \
             or without --around-all",
        ));
    }
    let one_word = programs.result.regs.iter().count() == 1 && programs.result.vectors == 0;
    if attached.iter().any(|p| p.attach == Attach::FmodRet) && !one_word {
        return Err(proto
            .refuse(None, "--fmod-ret decides a result in one general register; valid: an integer or a pointer")
            .at("--sig"));
    }
    Ok(programs)
}

/// Apply `TAIL_CALL_CTX`: the register that counts tail calls is live at the function's entry.
fn counted(programs: &mut Programs, target: &Target) -> Result<()> {
    let Some(tail_call) = target.convention.programs.tail_call else {
        let what = "--flags TAIL_CALL_CTX, for BPF programs as the traced function,";
        return Err(not_there(what, "tail-call", target));
    };
    let (abi, reg) = (&target.facts.abi, tail_call.reg);
    if programs.live.regs.contains(reg) || programs.result.regs.contains(reg) && tail_call.returned {
        let name = abi.name(reg);
        return Err(Error::new(format!(
            "programs: --flags TAIL_CALL_CTX is for BPF programs, whose tail calls are counted in {name}, and the function has \
             an argument there; valid: with --sig 'int f(void *context)'"
        )));
    }
    programs.live.regs = programs.live.regs.union(RegSet::of(&[reg]));
    programs.tail_call = Some(tail_call);
    Ok(())
}

/// The error for an option that only later kernels support.
fn not_there(option: &str, key: &str, target: &Target) -> Error {
    let (arch, profile) = (target.facts.name, target.convention.profile);
    Error::new(format!(
        "programs: {option} is not in profile {profile} on {arch}; valid: without it, or a profile with `{key}` in \
         [arch.{arch}.programs]; flags: {}",
        FLAGS.join(", ")
    ))
}
