//! The symbolic checker on real listings with one instruction changed, and the planner's order with one step changed.

use codegen::ask::spec::{Around, Body, Form, Kind, Regs, Spec};
use codegen::backend;
use codegen::contract::Contract;
use codegen::contract::demand::Spot;
use codegen::effect::effects::{Flow, Moves, Slots, SpEffect};
use codegen::listing::Line;
use codegen::listing::isa::Instruction;
use codegen::mutate::Mutable;
use codegen::plan::Plan;
use codegen::profile::target::Target;
use codegen::verify::{Broken, Fault, Property, plan};
use codegen::words::abi::Reg;
use codegen::words::recorder::{Clock, Events, Recorder};
use codegen::words::step::{ExitPath, Local, Step};
use codegen::words::term::{Root, Term};

/// A trampoline with its lines changed: what is found. Without a change nothing is.
fn changed<I: Mutable>(spec: &Spec, change: impl Fn(&mut Vec<Line<I::Insn>>)) -> Vec<Fault> {
    let target = target::<I>();
    assert_eq!(backend::verify::<I>(spec, &target, |_| Ok(())).unwrap(), []);
    backend::verify::<I>(spec, &target, |listing| {
        change(&mut listing.lines);
        Ok(())
    })
    .unwrap()
}

fn named(kind: Kind) -> Spec<'static> {
    Spec::of("trampoline", kind)
}

/// Under the profile that holds where none is named.
fn target<I: Mutable>() -> Target {
    let convention = profiles::convention("linux-6.12", I::FACTS).unwrap();
    I::target(convention, convention.defaults()).unwrap()
}

/// The number of the first line from `from` on that is an instruction for which `wanted` holds.
fn find<I: Mutable>(lines: &[Line<I::Insn>], from: usize, wanted: impl Fn(I::Insn) -> bool) -> usize {
    let fits = |line: &Line<I::Insn>| matches!(*line, Line::Insn(insn, _) if wanted(insn));
    from + lines[from..].iter().position(fits).unwrap()
}

fn call<I: Mutable>(lines: &[Line<I::Insn>]) -> usize {
    find::<I>(lines, 0, |insn| insn.effects().flow == Flow::Call)
}

fn argument<I: Mutable>(n: usize) -> Reg {
    I::FACTS.abi.args[n]
}

/// Is the first register that it loads, or stores, this one?
fn moves<I: Mutable>(insn: I::Insn, reg: Reg, load: bool) -> bool {
    match insn.effects().moves {
        Moves::Load(Slots { first, .. }) => load && first == reg,
        Moves::Store(Slots { first, .. }) => !load && first == reg,
        _ => false,
    }
}

/// A fault in this property.
#[track_caller]
fn finds(faults: &[Fault], property: Property) {
    assert!(faults.iter().any(|f| f.property == property), "no {property:?}: {faults:#?}");
}

/// A demand that is broken at one of these spots, by this value.
#[track_caller]
fn breaks(faults: &[Fault], spot: impl Fn(Spot) -> bool, value: Option<Root>) {
    let is_it = |broken: &Broken| spot(broken.demand.spot) && broken.found == value.clone().map(Term::from);
    let found = faults.iter().filter_map(|fault| fault.broken.as_deref()).any(is_it);
    assert!(found, "no {value:?}: {faults:#?}");
}

/// A dropped restore: the register has what the callback left in it.
pub fn dropped_restore<I: Mutable>() {
    let faults = changed::<I>(&named(Kind::Entry(Regs::Args)), |lines| {
        let at = find::<I>(lines, call::<I>(lines), |insn| moves::<I>(insn, argument::<I>(2), true));
        lines.remove(at);
    });
    // No term says what a call happens to leave in a register.
    breaks(&faults, |spot| spot == Spot::Reg(argument::<I>(2)), None);
}

/// A save that is missing: a slot is loaded that nothing was stored to, and a callback does not find the register.
pub fn unwritten_slot<I: Mutable>() {
    let drop = |lines: &mut Vec<Line<I::Insn>>| {
        lines.remove(find::<I>(lines, 0, |insn| moves::<I>(insn, argument::<I>(2), false)));
    };
    let around = Kind::Around(Around { form: Form::Frame, args: 3, general_handlers: false });
    let body = Body { function: "traced", resume: 8, exit: "exit", signed: false };
    let spec = Spec { name: "around", callee: "callee", body, ..named(around) };
    finds(&changed::<I>(&spec, drop), Property::Slots);
    // What a callback may store to is written once it returns.
    let faults = changed::<I>(&named(Kind::Entry(Regs::Args)), drop);
    breaks(&faults, |spot| matches!(spot, Spot::Slot(_)), Some(Root::Older));
}

/// A frame that is released twice.
pub fn unbalanced_sp<I: Mutable>() {
    let faults = changed::<I>(&named(Kind::Entry(Regs::Args)), |lines| {
        let up = |insn: I::Insn| matches!(insn.effects().sp, SpEffect::Move(by) if by > 0);
        let at = find::<I>(lines, call::<I>(lines), up);
        lines.insert(at, lines[at]);
    });
    assert!(faults.iter().any(|f| f.property == Property::Stack && f.broken.is_some()), "{faults:#?}");
}

/// The second and the third argument in each other's register.
pub fn exchanged_arguments<I: Mutable>() {
    let faults = changed::<I>(&named(Kind::Entry(Regs::All)), |lines| {
        let (a, b) = (argument::<I>(1), argument::<I>(2));
        let call = call::<I>(lines);
        let last_save = lines[..call]
            .iter()
            .rposition(|line| matches!(*line, Line::Insn(insn, _) if matches!(insn.effects().moves, Moves::Store(_))));
        for line in &mut lines[last_save.unwrap()..call] {
            if let Line::Insn(insn, _) = line {
                *insn = I::with_registers(*insn, &mut |reg| {
                    if reg == a {
                        b
                    } else if reg == b {
                        a
                    } else {
                        reg
                    }
                });
            }
        }
    });
    breaks(&faults, |spot| spot == Spot::Reg(argument::<I>(1)), Some(Root::Op));
    breaks(&faults, |spot| spot == Spot::Reg(argument::<I>(2)), Some(Root::ParentIp));
}

/// The way out runs on, nothing is called, and an instruction is on no way.
pub fn ways<I: Mutable>() {
    let faults = changed::<I>(&named(Kind::Return), |lines| {
        lines.truncate(find::<I>(lines, 0, |insn| insn.effects().flow == Flow::Leave));
    });
    finds(&faults, Property::Control);
    let faults = changed::<I>(&named(Kind::Return), |lines| {
        lines.retain(|line| !matches!(*line, Line::Insn(insn, _) if insn.effects().flow == Flow::Call));
    });
    finds(&faults, Property::Calls);
    // An instruction behind the way out, to which nothing leads.
    let faults = changed::<I>(&named(Kind::Return), |lines| {
        let first = find::<I>(lines, 0, |insn| insn.effects().flow == Flow::Next);
        lines.push(lines[first]);
    });
    finds(&faults, Property::Control);
}

/// The line of the first jump, in where a trampoline makes room for records, and its label.
fn jump<I: Mutable>(lines: &[Line<I::Insn>]) -> (usize, Local) {
    let jumps = |(at, line): (usize, &Line<I::Insn>)| match *line {
        Line::Insn(insn, _) => match insn.effects().flow {
            Flow::Jump(to) => Some((at, to)),
            _ => None,
        },
        _ => None,
    };
    lines.iter().enumerate().find_map(jumps).expect("where room is made, it goes back")
}

/// What is found where `change` changes the lines of a trampoline that makes room for records.
fn refilled<I: Mutable>(change: impl Fn(&mut Vec<Line<I::Insn>>)) -> Vec<Fault> {
    let convention = profiles::convention("bare", I::FACTS).unwrap();
    let target = I::target(convention, convention.defaults()).unwrap();
    let recorder = Recorder { refill: true, ..Recorder::new(Events::Both, Clock::None, 1) };
    let body = Body { function: "traced", resume: 8, exit: "", signed: false };
    let spec = Spec { callee: "refill", body, ..named(Kind::Record(recorder)) };
    let faults = backend::verify::<I>(&spec, &target, |listing| {
        change(&mut listing.lines);
        Ok(())
    });
    faults.unwrap()
}

/// A jump to a label that is nowhere.
pub fn label_that_is_nowhere<I: Mutable>() {
    let faults = refilled::<I>(|lines| {
        let (_, to) = jump::<I>(lines);
        lines.retain(|line| !matches!(line, Line::Local(local) if *local == to));
    });
    finds(&faults, Property::Control);
}

/// A jump to itself, which every other instruction is before.
pub fn circle<I: Mutable>() {
    let faults = refilled::<I>(|lines| {
        let (at, to) = jump::<I>(lines);
        lines.insert(at, Line::Local(to));
        let before = lines.iter().position(|line| matches!(line, Line::Local(local) if *local == to));
        lines.remove(before.unwrap());
    });
    finds(&faults, Property::Control);
    assert_eq!(faults.len(), 1, "{faults:#?}");
}

/// Every plan is in order, and one with a step that is missing or in another place is not.
pub fn order_of_plans<I: Mutable>() {
    let target = target::<I>();
    for offer in &target.convention.trampolines {
        assert_eq!(faults(&target, &named(offer.kind), |_| {}), [], "{}", offer.symbol);
    }
    let entry = named(Kind::Entry(Regs::Args));
    let drop = |wanted: Step, property| {
        let found = faults(&target, &entry, |steps| {
            let at = steps.iter().position(|s| *s == wanted).unwrap();
            steps.remove(at);
        });
        assert!(found.iter().any(|f| f.property == property), "{wanted:?}: {found:?}");
    };
    drop(Step::Save, Property::Registers);
    drop(Step::Restore, Property::Registers);
    drop(Step::Alloc, Property::Memory);
    drop(Step::Free(ExitPath::Function), Property::Stack);
    drop(Step::Arg(1, codegen::words::step::Value::ParentIp), Property::Arguments);
    drop(Step::Leave(ExitPath::Function), Property::Control);
    let late = faults(&target, &entry, |steps| {
        let save = steps.iter().position(|s| *s == Step::Save).unwrap();
        let call = steps.iter().position(|s| matches!(s, Step::Call(_))).unwrap();
        let step = steps.remove(save);
        steps.insert(call, step);
    });
    finds(&late, Property::Registers);
}

fn faults(target: &Target, spec: &Spec, change: impl Fn(&mut Vec<Step>)) -> Vec<Fault> {
    let mut made = Plan::default();
    made.make(spec, target).unwrap();
    change(&mut made.steps);
    plan::plan(&made, &Contract::of(spec, target).unwrap())
}
