//! What `record` is asked for.

use codegen::error::{Error, Result};
use codegen::place::{Place, Placement};
use codegen::proto::Prototype;
use codegen::spec::{Clock, Events, Form, Recorder};
use codegen::target::Target;

use super::asked::{Asked, RECORD};

/// The events, where the time comes from, and the number of the function. Nothing that is asked for is left out: what
/// cannot be had is refused.
pub(crate) fn what_is_recorded(args: &Asked, target: &Target) -> Result<Recorder> {
    let names = |all: &[&str]| all.join(", ");
    let events = args.events.ok_or_else(|| {
        let valid = names(&Events::ALL.map(Events::name));
        Error::new(format!("{RECORD}: --events is missing; valid: --events with one of {valid}"))
    })?;
    let clock = match (args.clock, events) {
        (Some(_), Events::Count) => {
            return Err(Error::new(format!(
                "{RECORD}: --clock is given, but a counter has no time; valid: without it"
            )));
        }
        (None, Events::Count) => Clock::None,
        (clock, _) => clock.ok_or_else(|| {
            let valid = names(&Clock::ALL.map(Clock::name));
            Error::new(format!("{RECORD}: --clock is missing; valid: --clock with one of {valid}"))
        })?,
    };
    if args.id.is_some() && events == Events::Count {
        return Err(Error::new(format!("{RECORD}: --id is given, but a counter has none; valid: without it")));
    }
    let id = args.id.unwrap_or(0);
    if id > Recorder::LAST_ID {
        return Err(Error::new(format!("{RECORD}: --id {id}; valid: 0 to {}", Recorder::LAST_ID)));
    }
    if let Some(form) = args.form.filter(|form| *form != Form::Frame) {
        return Err(Error::new(format!("{RECORD}: --form {} does not exist; valid: --form frame", form.name())));
    }
    if args.args.is_some() {
        return Err(Error::new(format!("{RECORD}: --args: arguments are not recorded yet; valid: without it")));
    }
    match &args.sig {
        None if events == Events::Both => {
            return Err(Error::new(format!(
                "{RECORD}: --sig is missing, which tells that no argument is on the stack; valid: --sig with the function's \
                 prototype, or --events entry"
            )));
        }
        Some(sig) => in_registers(sig, events, target).map_err(|e| e.at("--sig"))?,
        None => {}
    }
    Ok(Recorder { events, clock, id })
}

/// Refuse arguments on the stack where a frame displaces them.
fn in_registers(sig: &str, events: Events, target: &Target) -> Result<()> {
    let proto = Prototype::parse(sig)?;
    let Placement { args, .. } = super::backend(target.facts.name)?.place(target, &proto)?;
    let on_stack = args.iter().position(|pieces| pieces.iter().any(|piece| matches!(piece.place, Place::Stack(_))));
    match on_stack.filter(|_| events == Events::Both) {
        Some(n) => Err(proto.refuse(
            Some(n),
            "an argument on the stack, which the frame displaces; valid: arguments in registers, or --events entry",
        )),
        None => Ok(()),
    }
}
