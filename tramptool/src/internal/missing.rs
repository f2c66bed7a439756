//! Options that a trampoline for one function needs: one error names all missing ones.

use codegen::ask::spec::{Clock, Events, Form};
use codegen::profile::target::Target;
use codegen::words::error::{Error, Result};

use super::asked::{AROUND, Asked, DIRECT, PROGRAMS, RECORD, SLED};

/// A missing option, and its valid values.
type Missing = (&'static str, String);

/// Refuse a request without the options that its trampoline needs; the message names all of them.
///
/// # Errors
/// One or more options are missing.
pub(crate) fn refuse(what: &str, args: &Asked, target: &Target) -> Result<()> {
    let all = match what {
        DIRECT => of_direct(args, target),
        AROUND => of_around(args, target),
        PROGRAMS => of_programs(args),
        RECORD => of_record(args),
        SLED => symbol("--call", args.call.as_ref(), "the C function to call").into_iter().collect(),
        _ => Vec::new(),
    };
    let (names, valid): (Vec<&str>, Vec<&str>) = all.iter().map(|(name, valid)| (*name, valid.as_str())).unzip();
    let names = match names.split_last() {
        None => return Ok(()),
        Some((only, [])) => format!("{only} is missing"),
        Some((last, others)) => format!("{} and {last} are missing", others.join(", ")),
    };
    Err(Error::new(format!("{what}: {names}; valid: {}", valid.join("; "))))
}

fn symbol(option: &'static str, given: Option<&String>, what: &str) -> Option<Missing> {
    given.is_none_or(String::is_empty).then(|| (option, format!("{option} SYMBOL, {what}")))
}

fn prototype(args: &Asked) -> Option<Missing> {
    let given = args.sig.as_ref().is_some_and(|sig| !sig.is_empty());
    (!given).then(|| ("--sig", "--sig PROTOTYPE, that of the traced function".to_owned()))
}

fn function(args: &Asked) -> Option<Missing> {
    symbol("--function", args.function.as_ref(), "the traced function")
}

/// `--args` if it is missing and there is no prototype, or `--sig`, without which an object of handlers proves nothing.
fn count(args: &Asked, besides: usize, target: &Target) -> Option<Missing> {
    let most = target.facts.abi.args.len() - besides;
    let valid = format!("--args 0 to --args {most} on {}, or --sig with a prototype", target.facts.name);
    let missing = match args.handler {
        Some(_) => ("--sig", "--sig with a prototype".to_owned()),
        None => ("--args", valid),
    };
    (args.args.is_none() && args.sig.is_none()).then_some(missing)
}

fn of_direct(args: &Asked, target: &Target) -> Vec<Missing> {
    let call = symbol("--call", args.call.as_ref(), "the C function to call");
    // With --live, a prototype is needed, and another message asks for it.
    let count = count(args, usize::from(args.ip), target).filter(|_| args.live.is_empty());
    let function = function(args).filter(|_| args.jump);
    [call, count, function].into_iter().flatten().collect()
}

fn of_around(args: &Asked, target: &Target) -> Vec<Missing> {
    let call = symbol("--call", args.call.as_ref(), "the entry handler");
    let exit = symbol("--exit", args.exit.as_ref(), "the exit handler");
    // The other forms preserve all argument registers, so they need no number.
    let framed = args.form.unwrap_or(Form::Frame) == Form::Frame;
    let count = count(args, 0, target).filter(|_| framed);
    [call, exit, function(args), count].into_iter().flatten().collect()
}

fn of_programs(args: &Asked) -> Vec<Missing> {
    let after = [&args.fmod_ret, &args.fexit, &args.fsession].into_iter().any(|programs| !programs.is_empty());
    let none = !after && args.fentry.is_empty();
    let valid = "--fentry, --fmod-ret, --fexit or --fsession with SYMBOL[:COOKIE]".to_owned();
    let calls = after || args.flags.iter().any(|flag| flag == "CALL_ORIG");
    let function = function(args).filter(|_| calls);
    [none.then_some(("a program", valid)), prototype(args), function].into_iter().flatten().collect()
}

fn of_record(args: &Asked) -> Vec<Missing> {
    let one_of = |option, all: &[&str]| (option, format!("{option} with one of {}", all.join(", ")));
    let events = one_of("--events", &Events::ALL.map(Events::name));
    // Counters need no clock.
    let clock = one_of("--clock", &Clock::ALL.map(Clock::name));
    let sig = "--sig with the function's prototype, which tells that no argument is on the stack, --form shadow, or --events entry";
    let framed = args.form != Some(Form::Shadow);
    [
        args.events.is_none().then_some(events),
        (args.clock.is_none() && args.events != Some(Events::Count)).then_some(clock),
        (args.sig.is_none() && args.events == Some(Events::Both) && framed).then(|| ("--sig", sig.to_owned())),
        function(args),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let backend = arch::backend("arm64").unwrap();
        let convention = profiles::default_convention(backend.facts()).unwrap();
        backend.target(convention, convention.defaults()).unwrap()
    }

    fn told(what: &str, args: &Asked) -> String {
        refuse(what, args, &target()).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        let none = Asked::default();
        for (what, names) in [
            (DIRECT, "direct: --call and --args are missing; valid: --call SYMBOL, "),
            (AROUND, "around: --call, --exit, --function and --args are missing; valid: --call SYMBOL, "),
            (RECORD, "record: --events, --clock and --function are missing; valid: --events with one of count, "),
            (SLED, "sled: --call is missing; valid: --call SYMBOL, "),
            (PROGRAMS, "programs: a program and --sig are missing; valid: --fentry, "),
        ] {
            assert!(told(what, &none).starts_with(names), "{}", told(what, &none));
        }
    }

    #[test]
    fn what_is_given_is_not_missing() {
        let some = |s: &str| Some(s.to_owned());
        let around = Asked { call: some("a"), exit: some("b"), args: Some(2), ..Asked::default() };
        assert_eq!(
            told(AROUND, &around),
            "around: --function is missing; valid: --function SYMBOL, the traced function"
        );
        let fregs = Asked { form: Some(Form::Fregs), function: some("f"), args: None, ..around };
        assert_eq!(told(AROUND, &fregs), "");
        let direct = Asked { call: some("a"), sig: some("int f(int a)"), ..Asked::default() };
        assert_eq!(told(DIRECT, &direct), "");
        let handled = Asked { sig: None, handler: Some("h.o".into()), ..direct.clone() };
        assert_eq!(told(DIRECT, &handled), "direct: --sig is missing; valid: --sig with a prototype");
        assert!(told(DIRECT, &Asked { jump: true, ..direct }).starts_with("direct: --function is missing"));
        let fexit = Asked { fexit: vec!["p".into()], sig: some("int f(int a)"), ..Asked::default() };
        assert!(told(PROGRAMS, &fexit).starts_with("programs: --function is missing"));
        let both = Asked { events: Some(Events::Both), ..Asked::default() };
        assert!(told(RECORD, &both).starts_with("record: --clock, --sig and --function are missing; valid: --clock "));
        let count = Asked { events: Some(Events::Count), ..both };
        assert_eq!(
            told(RECORD, &count),
            "record: --function is missing; valid: --function SYMBOL, the traced function"
        );
    }
}
