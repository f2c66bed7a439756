//! Requests for `record`.

use codegen::ask::place::{Place, Returned};
use codegen::ask::spec::{Clock, Events, Form, Recorder};
use codegen::profile::lsda;
use codegen::profile::target::Target;
use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;

use super::asked::{Asked, LIVE_ALL, RECORD};

/// The parameters of a trampoline that records, from its options. Options that the target does not support are refused,
/// never ignored.
pub(crate) fn what_is_recorded(args: &Asked, target: &Target) -> Result<Recorder> {
    // `missing` has reported absent options before.
    let events = args.events.unwrap_or(Events::Entry);
    let clock = match (args.clock, events) {
        (Some(_), Events::Count) => {
            return Err(Error::new(format!(
                "{RECORD}: --clock is given, but a counter has no time; valid: without it"
            )));
        }
        (clock, _) => clock.unwrap_or(Clock::None),
    };
    if args.id.is_some() && events == Events::Count {
        return Err(Error::new(format!("{RECORD}: --id is given, but a counter has none; valid: without it")));
    }
    let id = args.id.unwrap_or(0);
    if id > Recorder::LAST_ID {
        return Err(Error::new(format!("{RECORD}: --id {id}; valid: 0 to {}", Recorder::LAST_ID)));
    }
    let shadow = match args.form {
        None | Some(Form::Frame) => false,
        Some(Form::Shadow) => true,
        Some(form) => {
            let form = form.name();
            return Err(Error::new(format!("{RECORD}: --form {form} does not exist; valid: --form frame or shadow")));
        }
    };
    let recorded = args.args.unwrap_or(0);
    if recorded > Recorder::MOST_ARGS {
        return Err(Error::new(format!("{RECORD}: --args {recorded}; valid: 0 to {}", Recorder::MOST_ARGS)));
    }
    if recorded > 0 && events == Events::Count {
        return Err(Error::new(format!("{RECORD}: --args is given, but a counter has no records; valid: without it")));
    }
    if args.result && events != Events::Both {
        return Err(Error::new(format!(
            "{RECORD}: --result is given, but no return is recorded; valid: --events both"
        )));
    }
    if let Some(sig) = &args.sig {
        let place = if shadow { "--sig, which --form shadow does not need" } else { "--sig" };
        let framed = events == Events::Both && !shadow;
        fits(sig, (framed, recorded, args.result), target).map_err(|e| e.at(place))?;
    }
    let refill = args.refill.is_some();
    if refill && events == Events::Count {
        return Err(Error::new(format!("{RECORD}: --refill is given, but a counter has no buffer; valid: without it")));
    }
    let (result, unwind, pair) = (args.result, args.unwind, args.pair);
    if let Some(what) = args.live.iter().find(|what| *what != LIVE_ALL) {
        return Err(Error::unknown("--live of record", what, [LIVE_ALL]));
    }
    let keeps_all = !args.live.is_empty();
    let tls = args.tls.is_some();
    let recorder = Recorder { events, clock, id, args: recorded, result, unwind, refill, shadow, pair, keeps_all, tls };
    if args.unwind {
        lsda::possible(recorder)?;
        if !target.unwind_tables {
            return Err(Error::new(format!(
                "{RECORD}: --unwind is given, but a kernel's objects have no unwind tables; valid: without it"
            )));
        }
    }
    Ok(recorder)
}

/// Refuse stack arguments if a frame displaces them, and words of a record for which the prototype has no registers.
fn fits(sig: &str, (framed, args, result): (bool, u8, bool), target: &Target) -> Result<()> {
    let proto = Prototype::parse(sig)?;
    let placement = target.place(&proto)?;
    let on_stack =
        placement.args.iter().position(|pieces| pieces.iter().any(|piece| matches!(piece.place, Place::Stack(_))));
    if let Some(n) = on_stack.filter(|_| framed) {
        return Err(proto.refuse(
            Some(n),
            "an argument on the stack, which the frame displaces; valid: arguments in registers, --form shadow, or --events entry",
        ));
    }
    let general = |place: &Place| if let Place::Reg(reg) = place { Some(*reg) } else { None };
    let used: Vec<Reg> = placement.args.iter().flatten().filter_map(|piece| general(&piece.place)).collect();
    let abi = &target.facts.abi;
    if let Some(n) = abi.args.iter().take(args.into()).position(|reg| !used.contains(reg)) {
        let what = format!("{n} general argument registers; valid: --args 0 to {n}");
        return Err(proto.refuse(placement.args.len().checked_sub(1), &what));
    }
    let returned = match &placement.returned {
        Returned::Registers(pieces) => pieces.iter().any(|piece| general(&piece.place) == abi.rets.first().copied()),
        Returned::Nothing | Returned::Memory => false,
    };
    if result && !returned {
        return Err(proto.refuse(None, "no result in a general register; valid: without --result"));
    }
    Ok(())
}
