//! From arguments to specs. All commands that generate read trampolines here.

use std::collections::BTreeMap;

use codegen::arch::site::Site;
use codegen::ask::frame::FrameLayout;
use codegen::ask::spec::{Body, Bracket, Direct, Form, Kind, Program, Spec};
use codegen::profile::Convention;
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;
use wildmatch::WildMatch;

use super::asked::{AROUND, Asked, FOR_ONE, PROGRAMS, RECORD, SLED, wanted};
use super::handler::{Proof, all_general};
use super::missing;
use super::paired::{of_form, paired};
use super::programs::{brackets, programs, what_is_shown};
use super::recorder::what_is_recorded;
use super::settings::parse_u64;

/// A request for one trampoline.
pub struct Request {
    name: String,
    kind: Kind,
    callee: String,
    tls: String,
    function: String,
    resume: i32,
    exit: String,
    signed: bool,
    programs: Vec<Program>,
    brackets: Vec<Bracket>,
    export: String,
    proof: Option<Proof>,
}

impl Request {
    /// The reason why vector registers are saved although an object of the handlers was given; `None` if they need not be.
    pub fn unproven(&self) -> Option<String> {
        let result = if let Kind::Programs(programs) = self.kind { programs.result.vectors } else { 0 };
        let live = self.kind.live().is_some_and(|live| live.vectors + result > 0);
        match &self.proof {
            Some(Proof::Fails(why)) if live => Some(format!("{}: vector registers are saved: {why}", self.name)),
            _ => None,
        }
    }

    /// The spec for the generator.
    pub fn spec(&self) -> Spec<'_> {
        let Request { function, resume, exit, signed, .. } = self;
        let body = Body { function, resume: *resume, exit, signed: *signed };
        Spec {
            name: &self.name,
            kind: self.kind,
            callee: &self.callee,
            tls: &self.tls,
            body,
            programs: &self.programs,
            brackets: &self.brackets,
            export: &self.export,
        }
    }
}

/// Give one of `requests` another name for modules, as `SYMBOL=TRAMPOLINE` says.
///
/// # Errors
/// `text` is no pair of symbols, or names a trampoline that is not in `requests`.
pub fn export(text: &str, requests: &mut [Request], target: &Target) -> Result<()> {
    let Some((symbol, name)) = text.split_once('=') else {
        return Err(Error::new(format!("--export '{text}' is no pair; valid: --export SYMBOL=TRAMPOLINE")));
    };
    check_symbol("export", symbol, &FrameLayout::empty(), target)?;
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

/// All trampolines that need no parameter, except the one of kretprobes, which a kernel has in another file, beside its C code.
pub fn all(target: &Target) -> Vec<Request> {
    let together = target.convention.specs().filter(|spec| spec.kind != Kind::Rethook);
    together.map(|spec| named(spec.name, spec.kind)).collect()
}

fn named(name: &str, kind: Kind) -> Request {
    let none = String::new;
    let name = name.to_owned();
    let programs = Vec::new();
    let export = none();
    Request {
        name,
        kind,
        callee: none(),
        tls: none(),
        function: none(),
        resume: 0,
        exit: none(),
        signed: false,
        programs,
        brackets: Vec::new(),
        export,
        proof: None,
    }
}

/// The trampoline called `what`; `args` are for those that are made for one function.
///
/// # Errors
/// No trampoline has this name, or it does not support `args`.
pub fn trampoline(what: &str, args: &Asked, target: &Target) -> Result<Request> {
    if !FOR_ONE.contains(&what) {
        let valid = target.convention.trampolines.iter().map(|t| t.symbol).chain(FOR_ONE.iter().copied());
        let kind = target.convention.kind(what);
        return kind.map(|kind| named(what, kind)).ok_or_else(|| Error::unknown("trampoline", what, valid));
    }
    missing::refuse(what, args, target)?;
    let programs = if what == PROGRAMS { programs(args, target)? } else { Vec::new() };
    let callee = match what {
        PROGRAMS => String::new(),
        RECORD => args.refill.clone().unwrap_or_default(),
        _ => args.call.clone().unwrap_or_default(),
    };
    let called = programs.first().map_or(callee.as_str(), |p| &p.symbol);
    let called = match &args.function {
        Some(function) if what == RECORD => function.split_once('+').map_or(function.as_str(), |(symbol, _)| symbol),
        _ => called,
    };
    let name = args.name.clone().unwrap_or_else(|| format!("{called}_tramp"));
    if args.args.is_some() && args.sig.is_some() && what != RECORD {
        return Err(Error::new(format!(
            "{what}: --args is given with --sig, which tells the same; valid: one of the two"
        )));
    }
    if args.handler.is_some() && args.sig.is_none() {
        return Err(Error::new(format!("{what}: --handler is given without a prototype; valid: with --sig")));
    }
    let mut brackets = if what == PROGRAMS { brackets(args, &programs, &name, target)? } else { Vec::new() };
    let (mut function, mut resume) = (String::new(), 0);
    let exit = if what == AROUND { args.exit.clone().unwrap_or_default() } else { String::new() };
    let handlers: Vec<&str> = match what {
        AROUND => vec![&callee, &exit],
        PROGRAMS => programs.iter().map(|p| &*p.symbol).chain(functions(&brackets)).collect(),
        RECORD => Vec::new(),
        _ => vec![&callee],
    };
    let form = (what == AROUND).then(|| of_form(args.form.unwrap_or(Form::Frame)));
    let proof = all_general(args.handler.as_deref(), &handlers, form, target)?;
    let kind = match what {
        AROUND => Kind::Around(paired(args, proof.as_ref(), target)?),
        PROGRAMS => Kind::Programs(what_is_shown(args, &programs, proof.as_ref(), target)?),
        RECORD => Kind::Record(what_is_recorded(args, target)?),
        SLED => Kind::Sled,
        _ => Kind::Direct(what_is_passed(args, proof.as_ref(), target)?),
    };
    if kind.jumped_to() && !kind.direct().is_some_and(|direct| direct.jumped) {
        jumps(what, target)?;
    }
    if !kind.calls_body() {
        brackets.truncate(programs.len());
    }
    let frame = target.frame(kind)?;
    refuse_misplaced(what, args, kind, target)?;
    if kind.names_function() {
        (function, resume) = traced(what, args, kind, target)?;
        check_symbol("function", &function, &frame, target)?;
    } else {
        refuse_of_function(what, args)?;
    }
    let attached = programs.iter().map(|p| (p.attach.option().trim_start_matches('-'), &*p.symbol));
    let attached = attached.chain(functions(&brackets).map(|symbol| ("around", symbol)));
    let [call, exits, refill, tls] = [&args.call, &args.exit, &args.refill, &args.tls].map(Option::as_deref);
    let named = [("call", call), ("name", Some(&*name)), ("exit", exits), ("refill", refill), ("tls", tls)];
    let named = named.into_iter().filter_map(|(option, symbol)| Some((option, symbol?)));
    for (option, symbol) in named.chain(attached.clone()) {
        check_symbol(option, symbol, &frame, target)?;
    }
    if attached.map(|(_, symbol)| symbol).chain([&*callee, &function, &exit]).any(|called| called == name) {
        return Err(Error::new(format!(
            "{what}: --name {name} is what it calls; valid: any other name, such as {name}_tramp"
        )));
    }
    refuse_two_roles(what, (&name, &function), &programs, &brackets)?;
    let own = [&*callee, &exit].into_iter().chain(functions(&brackets));
    refuse_itself(what, programs.iter().map(|p| &*p.symbol).chain(own), args)?;
    let (signed, tls, export) = (args.signed, args.tls.clone().unwrap_or_default(), String::new());
    Ok(Request { name, kind, callee, tls, function, resume, exit, signed, programs, brackets, export, proof })
}

/// The traced function, and bytes from its start to behind its site.
fn traced(what: &str, args: &Asked, kind: Kind, target: &Target) -> Result<(String, i32)> {
    let mut function = wanted(what, "function", args.function.as_ref(), "SYMBOL, the traced function")?;
    let mut resume = behind_usual_site(what, args, target)?;
    if let Some((symbol, offset)) = function.split_once('+') {
        resume =
            behind_site(offset, args.signed, target).map_err(|e| e.at(format!("{what}: --function {function}")))?;
        function = symbol.to_owned();
    }
    let most = Site::MOST_IP_OFFSET;
    let tells_start = kind.programs().is_some_and(|programs| programs.ip_arg && programs.bracketed());
    if tells_start && args.signed {
        return Err(Error::new(format!(
            "{what}: IP_ARG tells the function's address, and with --signed a copy of its beginning is gone to; valid: without \
             --signed, without IP_ARG, or --own-form"
        )));
    }
    if resume > most && tells_start {
        return Err(Error::new(format!(
            "{what}: IP_ARG is for a site that ends up to {most} bytes behind the function's start, and this one ends at +{resume}; \
             valid: --function {function}+{most}, or without IP_ARG"
        )));
    }
    Ok((function, resume))
}

/// The functions that are called around others.
fn functions(brackets: &[Bracket]) -> impl Iterator<Item = &str> + Clone {
    brackets.iter().flat_map(|bracket| [&*bracket.enter, &*bracket.exit])
}

/// Refuse one symbol for several things, where functions are called around programs. What these are given has names that are made of the
/// programs' and the trampoline's.
fn refuse_two_roles(
    what: &str,
    (name, function): (&str, &str),
    programs: &[Program],
    brackets: &[Bracket],
) -> Result<()> {
    let (each, all) = brackets.split_at(programs.len().min(brackets.len()));
    let roles = |brackets: &'_ [Bracket], [before, after, given]: [&'static str; 3]| -> Vec<(&'static str, String)> {
        let of = |b: &Bracket| {
            let given = b.argument.as_ref().map(|argument| (given, argument.to_string()));
            [(before, b.enter.to_string()), (after, b.exit.to_string())].into_iter().chain(given)
        };
        brackets.iter().flat_map(of).collect()
    };
    let mut known = BTreeMap::new();
    let own =
        [("the trampoline", name), ("the traced function", function)].map(|(role, symbol)| (role, symbol.to_owned()));
    let all = own
        .into_iter()
        .chain(programs.iter().map(|program| ("a program", program.symbol.to_string())))
        .chain(roles(
            each,
            ["called before a program", "called after a program", "what the functions around a program get"],
        ))
        .chain(roles(all, ["called first", "called last", "what the functions around all get"]));
    for (role, symbol) in all.filter(|(_, symbol)| !brackets.is_empty() && !symbol.is_empty()) {
        if let Some(other) = known.insert(symbol.clone(), role).filter(|other| *other != role) {
            let message = format!("{what}: {symbol} is {other}, and {role}; valid: a name of its own for each");
            return Err(Error::new(message));
        }
    }
    Ok(())
}

/// Refuse options about the traced function, if the trampoline neither calls it nor jumps to it.
fn refuse_of_function(what: &str, args: &Asked) -> Result<()> {
    let given = [("function", args.function.is_some()), ("landing-pad", args.landing_pad), ("signed", args.signed)];
    let Some((option, _)) = given.iter().find(|(_, given)| *given) else { return Ok(()) };
    let or = if what == PROGRAMS { ", or with --flags CALL_ORIG or IP_ARG" } else { ", or with --jump" };
    Err(Error::new(format!(
        "{what}: --{option} is given, but nothing calls it or jumps there; valid: without --{option}{or}"
    )))
}

/// Refuse a signed return address if another address is in its place, and a function's symbol as the thread-local variable.
fn refuse_misplaced(what: &str, args: &Asked, kind: Kind, target: &Target) -> Result<()> {
    let (arch, profile) = (target.facts.name, target.convention.profile);
    if args.signed && kind.names_body() && !kind.jumped_to() {
        return Err(Error::new(format!(
            "{what}: --signed is given, but sites of {arch} in profile {profile} call it, and the return address of that call would be \
             authenticated; valid: without --signed, without the flag SKIP_FRAME, or a profile whose sites jump"
        )));
    }
    let Some(variable) = args.tls.as_deref() else { return Ok(()) };
    let symbol = |text: &str| text.split_once('+').map_or(text, |(symbol, _)| symbol).to_owned();
    let functions =
        args.function.as_deref().map(symbol).into_iter().chain(args.refill.clone()).chain(args.name.clone());
    match functions.into_iter().any(|function| function == variable) {
        true => Err(Error::new(format!("{what}: --tls {variable} is a function too; valid: a thread-local variable"))),
        false => Ok(()),
    }
}

/// Refuse the traced function as its own handler: calls would recurse without end.
fn refuse_itself<'a>(what: &str, mut called: impl Iterator<Item = &'a str>, args: &Asked) -> Result<()> {
    let of_sig = args.sig.as_deref().map(Prototype::parse).transpose().map_err(|e| e.at("--sig"))?;
    let of_symbol = args.function.as_deref().map(|text| text.split_once('+').map_or(text, |(symbol, _)| symbol));
    let traced: Vec<&str> = of_sig.iter().map(|proto| proto.name.as_str()).chain(of_symbol).collect();
    match called.find(|called| !called.is_empty() && traced.contains(called)) {
        None => Ok(()),
        Some(itself) => Err(Error::new(format!(
            "{what}: {itself} is the traced function, and is what is called for it: each call would lead to the next; \
             valid: another function"
        ))),
    }
}

/// Refuse a trampoline to which sites jump if the profile's sites do not. The message names the profiles that have such sites.
fn jumps(what: &str, target: &Target) -> Result<()> {
    let jumps = |convention: &Convention| !convention.site.protocol.jump.is_empty();
    if jumps(target.convention) {
        return Ok(());
    }
    let (arch, profile) = (target.facts.name, target.convention.profile);
    let mut valid: Vec<String> = (what == PROGRAMS).then(|| "the flag SKIP_FRAME".to_owned()).into_iter().collect();
    for name in profiles::names() {
        if super::profile(name)?.convention(arch).is_ok_and(jumps) {
            valid.push(format!("--profile {name}"));
        }
    }
    Err(Error::new(format!(
        "{what}: sites of {arch} in profile {profile} do not jump, and nothing comes to it otherwise; valid: {}",
        valid.join(", ")
    )))
}

/// Bytes from a function's start to behind its site, if the site is where compilers put it.
fn behind_usual_site(what: &str, args: &Asked, target: &Target) -> Result<i32> {
    if !args.landing_pad {
        // A copy of the function's beginning has no site.
        return Ok(if args.signed { 0 } else { target.resume });
    }
    let says_where = args.function.as_deref().is_some_and(|function| function.contains('+'));
    let refused = match target.pad {
        0 => "is given, but options say whether functions have landing pads, if any have",
        _ if args.signed => "is given, but --signed says that the function is a copy without one",
        _ if says_where => "is given, but --function says where the site ends",
        _ => return Ok(target.resume + target.pad),
    };
    Err(Error::new(format!("{what}: --landing-pad {refused}; valid: without it")))
}

/// Bytes from a function's start to behind its site.
fn behind_site(text: &str, signed: bool, target: &Target) -> Result<i32> {
    let least = if signed { 0 } else { target.convention.site.ip_offset };
    // The instruction that fills gaps has the smallest size.
    let step = target.facts.fill.0.len() as i32;
    let number = parse_u64(text).ok().and_then(|n| i32::try_from(n).ok());
    number.filter(|n| *n >= least && n % step == 0).ok_or_else(|| {
        let multiple = if step == 1 { "a number".to_owned() } else { format!("a multiple of {step}") };
        Error::new(format!("'{text}' is no offset behind the site; valid: {multiple} from {least} to {:#x}", i32::MAX))
    })
}

/// The values passed on: a number of arguments, or those of a prototype.
fn what_is_passed(direct: &Asked, proof: Option<&Proof>, target: &Target) -> Result<Direct> {
    let facts = target.facts;
    let Some(sig) = &direct.sig else {
        if !direct.live.is_empty() {
            return Err(Error::new("direct: --live is given without a prototype; valid: with --sig"));
        }
        // `missing` has checked that it is given.
        let args = direct.args.unwrap_or(0);
        return Ok(Direct { args, ip: direct.ip, live: None, jumped: direct.jump });
    };
    let placement = Prototype::parse(sig).and_then(|p| target.place(&p)).map_err(|e| e.at("--sig"))?;
    let passed = placement.direct(&facts.abi, direct.live_besides(target)?, Proof::holds(proof));
    Ok(Direct { jumped: direct.jump, ..passed })
}

/// Refuse symbols that are no C identifiers, because assemblers might read them as something else.
fn check_symbol(option: &str, symbol: &str, frame: &FrameLayout, target: &Target) -> Result<()> {
    let mut chars = symbol.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !first || !chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')) {
        return Err(Error::new(format!(
            "--{option} '{symbol}' is no symbol; valid: a letter or _, then letters, digits, _ . $"
        )));
    }
    // In the listing, these are names of numbers.
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

/// The names of `known` that match `wanted`. Globs are resolved, and `direct` means all direct-call trampolines.
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
            let plain = known.clone().filter(|n| !FOR_ONE.iter().any(|of| n.starts_with(&format!("{of}_"))));
            let mut seen = std::collections::HashSet::new();
            let valid = plain.filter(|n| seen.insert(*n)).chain(["direct", "direct_0", "direct_0_ip", "...", "globs"]);
            return Err(Error::unknown("trampoline", name, valid));
        }
        names.extend(found);
    }
    names.sort();
    names.dedup();
    Ok(names)
}
