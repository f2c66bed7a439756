//! The checker for plans: the order of steps on each way, before there are instructions.

use super::{Fault, Property, most_ways};
use crate::ask::kind::Gives;
use crate::contract::Contract;
use crate::contract::demand::Called;
use crate::plan::Plan;
use crate::words::recorder::{Event, Events, Recorder};
use crate::words::step::{Callee, ExitPath, Local, Mark, RecordStep, Step};

/// How far a way is.
#[derive(Clone, Default)]
struct State {
    /// The frame is there.
    allocated: bool,
    /// The flags are pushed.
    flags: bool,
    /// The function's state is in the frame.
    saved: bool,
    /// It is back in registers: nothing was called since.
    restored: bool,
    /// Arguments that are set up for the next call: a bit each.
    arguments: u16,
    /// SP is aligned for a call.
    aligned: bool,
    /// Calls that were made, or passed over.
    calls: usize,
    /// The event whose record is written.
    slot: Option<Event>,
    /// Records that were written, or passed over.
    recorded: usize,
    /// Entries that were counted.
    counted: usize,
    /// An exception has left the function.
    thrown: bool,
    /// The shadow stack has no room.
    untraced: bool,
    /// The return address is on it.
    pushed: bool,
    /// A program was not called, because the function before it said so.
    refused: bool,
}

/// The faults in the order of a plan's steps; empty if it is right.
pub fn plan(plan: &Plan, contract: &Contract) -> Vec<Fault> {
    let mut faults = Vec::new();
    let calls = contract.calls();
    let mut ways = vec![(0, State::default())];
    let (mut followed, most) = (0, most_ways(contract));
    while let Some((from, mut state)) = ways.pop() {
        followed += 1;
        if followed > most {
            faults.push(fault(from, Property::Control, "ways go round in a circle, and part there"));
            break;
        }
        let mut at = from;
        loop {
            let Some(&step) = plan.steps.get(at) else {
                faults.push(fault(at, Property::Control, "a way runs on behind the last step"));
                break;
            };
            if let Some(way) = branches_to(step) {
                match plan.steps.iter().position(|s| *s == Step::Path(way)) {
                    Some(to) => {
                        let mut there = state.clone();
                        if way == ExitPath::Skipped {
                            let body = calls.iter().position(|c| *c == Called::Body);
                            (there.calls, there.restored) = (body.map_or(calls.len(), |b| b + 1), true);
                        }
                        there.untraced = step == Step::BranchIfNoRoomToReturn;
                        ways.push((to, there));
                    }
                    None => faults.push(fault(at, Property::Control, "a branch to a place that is nowhere")),
                }
            }
            if let Step::BranchIfRefused(n) = step {
                match plan.steps.iter().position(|s| *s == Step::Refused(n)) {
                    // One on each way: with all combinations, ways would be without number.
                    Some(_) if state.refused => {}
                    Some(to) => ways.push((to, State { calls: state.calls + 1, refused: true, ..state.clone() })),
                    None => faults.push(fault(at, Property::Control, "a branch to a place that is nowhere")),
                }
            }
            if let Some((to, follows)) = goes_aside(step) {
                match plan.steps.iter().position(|s| *s == to) {
                    Some(to) if follows => ways.push((to, state.clone())),
                    Some(_) => {}
                    None => faults.push(fault(at, Property::Control, "a branch to a place that is nowhere")),
                }
            }
            if at != from && matches!(step, Step::Path(ExitPath::Direct | ExitPath::DirectJump | ExitPath::EarlyDirect))
            {
                faults.push(fault(at, Property::Control, "a way runs on into another"));
                break;
            }
            if let Err((property, what)) = follow(step, &mut state, &calls, contract) {
                faults.push(fault(at, property, what));
            }
            let recording_ends =
                matches!(step, Step::Record(RecordStep::Resume | RecordStep::ToRoom(_) | RecordStep::NoSlot));
            if recording_ends || matches!(step, Step::Leave(_) | Step::PassOver) {
                break;
            }
            if step == Step::Mark(Mark::Called) {
                match plan.steps.iter().position(|s| *s == Step::Mark(Mark::Pad)) {
                    Some(to) => ways.push((to, State { thrown: true, ..state.clone() })),
                    None => faults.push(fault(at, Property::Control, "an exception goes to a place that is nowhere")),
                }
            }
            at += 1;
        }
    }
    faults.sort_by_key(|f| (f.line, f.property));
    faults.dedup();
    faults
}

/// The way to which a step branches.
fn branches_to(step: Step) -> Option<ExitPath> {
    Some(match step {
        Step::BranchIfEarlyDirect => ExitPath::EarlyDirect,
        Step::BranchIfDirect => ExitPath::Direct,
        Step::BranchIfJump => ExitPath::DirectJump,
        Step::BranchIfResult => ExitPath::Skipped,
        Step::BranchIfNoRoomToReturn => ExitPath::Function,
        _ => return None,
    })
}

/// The step to which a record goes aside, and whether that way is to be followed.
fn goes_aside(step: Step) -> Option<(Step, bool)> {
    let recorded = |to: RecordStep, follows: bool| Some((Step::Record(to), follows));
    match step {
        Step::Record(step) => match step {
            // Without room nothing is stored: that way has been followed when the record is complete.
            RecordStep::BranchIfFull(event, Local::Recorded(_)) => recorded(RecordStep::Recorded(event), false),
            RecordStep::BranchIfFull(_, Local::NoSlot) => recorded(RecordStep::NoSlot, true),
            RecordStep::BranchIfFull(event, _) => recorded(RecordStep::Refill(event), true),
            RecordStep::NoSlot => recorded(RecordStep::Recorded(Event::Entry), true),
            RecordStep::ToRoom(event) => recorded(RecordStep::Room(event), true),
            _ => None,
        },
        Step::FindReturn => Some((Step::PassOver, true)),
        _ => None,
    }
}

fn fault(line: usize, property: Property, what: &str) -> Fault {
    Fault { line, property, broken: None, what: what.to_owned() }
}

/// The arguments that a call takes: a bit each, as many as are set up one by one.
fn arguments(called: Called, contract: &Contract) -> u16 {
    let first = |n: usize| (1_u16 << n) - 1;
    let behind_ip = contract.kind.direct().filter(|direct| direct.ip);
    let bracketed = |n: usize| n < contract.stated.around_programs.len();
    match (called, contract.kind.traits().gives) {
        (Called::Callback | Called::Named, Gives::Frame) => first(contract.convention.callback.arguments.len()),
        (Called::Exit | Called::ExitHandler, Gives::Frame) => first(1),
        (Called::Exit, _) => first(contract.facts.abi.rets.len()),
        (Called::Program(n), _) => first(if bracketed(n) { 1 } else { 2 }),
        (Called::Before(n), _) => first(if bracketed(n) { 2 } else { 1 }),
        (Called::After(n), _) => first(if bracketed(n) { 3 } else { 1 }),
        // They are where they were, if there is no ip before them.
        (Called::Named, _) => behind_ip.map_or(0, |direct| first(usize::from(direct.args) + 1)),
        (Called::Body | Called::Callback | Called::ExitHandler | Called::Kernel | Called::Context, _) => 0,
    }
}

fn follow(
    step: Step,
    state: &mut State,
    calls: &[Called],
    contract: &Contract,
) -> Result<(), (Property, &'static str)> {
    let wrong = |wrong: bool, property, what| if wrong { Err((property, what)) } else { Ok(()) };
    match step {
        Step::Alloc | Step::AllocWithReturn => {
            wrong(state.allocated, Property::Stack, "the frame is allocated twice")?;
            state.allocated = true;
        }
        Step::PushFlags => state.flags = true,
        Step::PopFlags => {
            wrong(!state.flags, Property::Flags, "flags are popped that were not pushed")?;
            wrong(state.allocated, Property::Flags, "flags are popped from inside the frame")?;
            state.flags = false;
        }
        Step::Save
        | Step::SaveResults
        | Step::SaveDecision
        | Step::SaveCounted
        | Step::Link(_)
        | Step::MarkRegs
        | Step::Cookie(_)
        | Step::KeepStart
        | Step::Meta(_)
        | Step::ClearResult => {
            stored(step, state, contract)?;
        }
        Step::Arg(n, _) => {
            wrong(!state.saved, Property::Registers, "an argument overwrites what is not saved")?;
            (state.arguments, state.restored) = (state.arguments | 1 << n, false);
        }
        Step::Realign | Step::SaveState => state.aligned = true,
        Step::Unalign => state.aligned = false,
        Step::Call(callee) => call(callee, state, calls, contract)?,
        Step::Restore | Step::RestoreState | Step::RestoreResults | Step::RestoreCounted => {
            let saved = state.saved || step != Step::Restore;
            wrong(!saved, Property::Slots, "state is restored that was never saved")?;
            wrong(!state.allocated, Property::Slots, "state or results are restored from a frame that is gone")?;
            state.restored = true;
        }
        Step::LoadDirect | Step::LoadDecision | Step::RestoreOwn => {
            wrong(!state.allocated, Property::Slots, "a load from a frame that is gone")?;
        }
        Step::Free(_) | Step::FreeWithReturn => {
            wrong(!state.allocated, Property::Stack, "a frame is released that is not there")?;
            state.allocated = false;
        }
        Step::Record(step) => record(step, state, contract)?,
        Step::Leave(way) => leave(way, state, calls, contract)?,
        Step::PushReturn | Step::FindReturn | Step::PassOver | Step::PopReturn => keep(step, state)?,
        Step::Block(..)
        | Step::LandingPad
        | Step::Authenticate
        | Step::GuardReturn
        | Step::CheckReturn
        | Step::Mark(_)
        | Step::ExceptionPad
        | Step::AllocReturn
        | Step::LoadOp
        | Step::BranchIfEarlyDirect
        | Step::LoadBody
        | Step::KernelLabel(_)
        | Step::StackArgs
        | Step::TakeResult
        | Step::RestoreSite(_)
        | Step::BranchIfResult
        | Step::BranchIfRefused(_)
        | Step::Refused(_)
        | Step::Gap
        | Step::Detach
        | Step::BranchIfDirect
        | Step::BranchIfJump
        | Step::BranchIfNoRoomToReturn
        | Step::Path(_) => {}
    }
    Ok(())
}

/// Something is stored to the frame.
fn stored(step: Step, state: &mut State, contract: &Contract) -> Result<(), (Property, &'static str)> {
    if !state.allocated {
        return Err((Property::Memory, "something is stored before there is a frame"));
    }
    if step == Step::Save {
        let of_function = contract.kind.recorder().is_some_and(|recorder| recorder.keeps_all);
        if state.calls > 0 && !of_function {
            return Err((Property::Registers, "state is saved after a call"));
        }
        (state.saved, state.restored) = (true, true);
    }
    Ok(())
}

/// An exception is handed back.
fn resume(state: &State, contract: &Contract) -> Result<(), (Property, &'static str)> {
    if !state.thrown || !state.allocated {
        return Err((Property::Way, "an exception is handed back that nobody threw"));
    }
    match contract.kind.recorder().is_some_and(|recorder| recorder.unwound().len() == state.recorded) {
        true => Ok(()),
        false => Err((Property::Record, "an exception is handed back without a record")),
    }
}

/// The shadow stack: the return address is there while the function runs.
fn keep(step: Step, state: &mut State) -> Result<(), (Property, &'static str)> {
    let wrong = |wrong: bool, what| if wrong { Err((Property::Record, what)) } else { Ok(()) };
    match step {
        Step::PushReturn => {
            wrong(state.pushed || state.calls > 0, "the return address is kept twice, or too late")?;
            state.pushed = true;
        }
        Step::PopReturn => {
            wrong(!state.pushed || state.calls == 0, "a return address is taken back that nobody kept, or too early")?;
            state.pushed = false;
        }
        _ => wrong(!state.pushed || state.calls == 0, "a return address is looked for that nobody kept, or too early")?,
    }
    Ok(())
}

fn record(step: RecordStep, state: &mut State, contract: &Contract) -> Result<(), (Property, &'static str)> {
    let wrong = |wrong: bool, what| if wrong { Err((Property::Record, what)) } else { Ok(()) };
    match step {
        RecordStep::Count => state.counted += 1,
        RecordStep::Slot(event) | RecordStep::SlotAgain(event) => {
            wrong(state.slot.is_some(), "a slot is taken inside of a record")?;
            let due = |r: Recorder| if state.thrown { r.unwound() } else { r.recorded() };
            let due = contract.kind.recorder().and_then(|r| due(r).get(state.recorded).copied());
            wrong(due != Some(event), "a slot is taken for another event than the next")?;
            state.slot = Some(event);
        }
        RecordStep::BranchIfFull(event, _) | RecordStep::Room(event) | RecordStep::ToRoom(event) => {
            wrong(state.slot != Some(event), "a record without a slot")?;
        }
        RecordStep::Time(event) | RecordStep::Timed(event) | RecordStep::Words(event) | RecordStep::What(event) => {
            wrong(state.slot != Some(event), "a record without a slot")?;
        }
        RecordStep::Refill(event) => {
            wrong(state.slot != Some(event), "room is made for another event than the one without")?;
            // What was taken is no slot: another one is.
            state.slot = None;
        }
        RecordStep::NoSlot => wrong(state.slot != Some(Event::Entry), "no slot where none was asked for")?,
        RecordStep::KeepSlot => {
            wrong(state.slot.is_some() || state.recorded != 1, "the slot is kept too early or too late")?
        }
        RecordStep::Recorded(event) => {
            wrong(state.slot != Some(event), "the end of a record that was not begun")?;
            (state.slot, state.recorded) = (None, state.recorded + 1);
        }
        RecordStep::Resume => resume(state, contract)?,
    }
    Ok(())
}

fn call(
    callee: Callee,
    state: &mut State,
    calls: &[Called],
    contract: &Contract,
) -> Result<(), (Property, &'static str)> {
    let Some(&called) = calls.get(state.calls) else {
        return Err((Property::Calls, "nothing more is to be called here"));
    };
    let fits = match callee {
        Callee::Patchable | Callee::OpFunc | Callee::Variable => called == Called::Callback,
        Callee::ExitHandler => called == Called::ExitHandler,
        Callee::Named => called == Called::Named,
        Callee::Body => called == Called::Body,
        Callee::Exit => called == Called::Exit,
        Callee::Program(n) => called == Called::Program(n.into()),
        Callee::Before(n) => called == Called::Before(n.into()),
        Callee::After(n) => called == Called::After(n.into()),
    };
    state.calls += 1;
    if !fits {
        return Err((Property::Calls, "something else is to be called here"));
    }
    let wanted = arguments(called, contract);
    if state.arguments & wanted != wanted {
        return Err((Property::Arguments, "an argument of the call is not set up"));
    }
    if called == Called::Body && state.saved && !state.restored {
        return Err((Property::Registers, "the function is called with its state still in the frame"));
    }
    if contract.realigned && called != Called::Body && !state.aligned {
        return Err((Property::Alignment, "a call on a stack that is not aligned"));
    }
    (state.arguments, state.restored) = (0, false);
    Ok(())
}

fn leave(way: ExitPath, state: &State, calls: &[Called], contract: &Contract) -> Result<(), (Property, &'static str)> {
    let wrong = |wrong: bool, property, what| if wrong { Err((property, what)) } else { Ok(()) };
    let early = way == ExitPath::EarlyDirect;
    wrong(state.allocated, Property::Stack, "a way out with the frame still there")?;
    if state.untraced {
        return wrong(way != ExitPath::Function || state.calls > 0, Property::Way, "a way out without the function");
    }
    wrong(state.pushed, Property::Way, "a way out with the return address still on the shadow stack")?;
    if let Some(recorder) = contract.kind.recorder() {
        let counted = usize::from(recorder.events == Events::Count);
        let all = state.recorded == recorder.recorded().len() && state.counted == counted;
        wrong(!all, Property::Record, "a way out without all records")?;
    }
    let to_direct = matches!(way, ExitPath::Direct | ExitPath::DirectJump | ExitPath::EarlyDirect);
    wrong(to_direct && !contract.leaves_by(way), Property::Way, "a way out that is not promised")?;
    wrong(state.calls != if early { 0 } else { calls.len() }, Property::Calls, "not everything was called")?;
    let results = matches!(calls.last(), Some(Called::Body));
    wrong(state.saved && !early && !state.restored && !results, Property::Registers, "a way out without restores")
}
