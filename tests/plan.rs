//! The order of the steps: what must come before what, whatever the architecture and its options.

use codegen::ask::frame::{Content, Stores};
use codegen::ask::spec::{Form, Kind, Regs, Spec};
use codegen::plan::Plan;
use codegen::profile::target::Target;
use codegen::words::step::{Callee, ExitPath, Step};
use tool::suite::{specs, trampolines};

use common::expected::{DirectTest, expected};

mod common;

/// The steps that do something, but for those that set arguments up, align SP around a call, or chain frame records: they are
/// where the instructions allow it.
fn steps(plan: &Plan) -> Vec<Step> {
    let beside = |s: &Step| {
        matches!(
            s,
            Step::Block(..) | Step::KernelLabel(_) | Step::Arg(..) | Step::Cookie(_) | Step::Realign | Step::Unalign
        ) || matches!(s, Step::Link(_) | Step::LandingPad | Step::StackArgs | Step::Gap | Step::Detach)
    };
    plan.steps.iter().copied().filter(|s| !beside(s)).collect()
}

fn plans(mut look: impl FnMut(&Target, Kind, &Plan, &str)) {
    for backend in tool::BACKENDS {
        for target in common::targets(*backend) {
            let all = trampolines(&target).unwrap();
            for spec in specs(&all) {
                let mut plan = Plan::default();
                plan.make(&spec, &target).unwrap();
                let what = format!("{} {} [{}]", target.facts.name, spec.name, target.describe());
                look(&target, spec.kind, &plan, &what);
            }
        }
    }
}

#[test]
fn what_is_done_once_stands_in_its_place() {
    use Step::{
        Alloc, AllocWithReturn, FreeWithReturn, LoadBody, Restore, RestoreResults, Save, SaveResults, TakeResult,
    };
    let call = |callee| Step::Call(callee);
    let (function, parent) = (ExitPath::Function, ExitPath::Parent);
    let (site, free, leave) = (Step::RestoreSite, Step::Free, Step::Leave);
    plans(|_, kind, plan, what| {
        let expected = match kind {
            Kind::Stub | Kind::StubGraph => vec![leave(ExitPath::Caller)],
            Kind::StubDirect => vec![leave(function)],
            Kind::Return => {
                vec![Alloc, Save, call(Callee::ExitHandler), TakeResult, Restore, free(parent), leave(parent)]
            }
            Kind::Direct(_) => {
                vec![Alloc, Save, call(Callee::Named), Restore, site(function), free(function), leave(function)]
            }
            Kind::Around(around) if around.form == Form::Shadow => vec![
                // Nothing of it is on the stack while the function runs.
                Alloc,
                Save,
                call(Callee::Named),
                Restore,
                FreeWithReturn,
                call(Callee::Body),
                AllocWithReturn,
                SaveResults,
                call(Callee::Exit),
                TakeResult,
                RestoreResults,
                free(parent),
                leave(parent),
            ],
            Kind::Around(_) => vec![
                Alloc,
                Save,
                LoadBody,
                call(Callee::Named),
                Restore,
                call(Callee::Body),
                SaveResults,
                call(Callee::Exit),
                RestoreResults,
                site(parent),
                free(parent),
                leave(ExitPath::Caller),
            ],
            _ => return,
        };
        assert_eq!(steps(plan), expected, "{what}");
    });
}

#[test]
fn landing_pads_come_first_where_branches_must_reach_one() {
    let mut seen = [0, 0];
    plans(|target, kind, plan, what| {
        let unpadded = target.convention.no_landing_pad.contains(&kind);
        let wanted = target.harden.landing.is_some() && !kind.returned_to() && !unpadded;
        let first = plan.steps.iter().find(|s| !matches!(s, Step::Block(..)));
        assert_eq!(first == Some(&Step::LandingPad), wanted, "{what}");
        assert_eq!(plan.steps.contains(&Step::LandingPad), wanted, "{what}");
        seen[usize::from(wanted)] += 1;
    });
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

/// Saved before anything is called, restored behind it; and on each way out: what the site left, registers, stack, the jump.
#[test]
fn entry_trampolines_leave_whole_on_every_way() {
    let mut directs = 0;
    plans(|target, kind, plan, what| {
        if !kind.calls_back() {
            return;
        }
        let steps = steps(plan);
        let all = |wanted: Step| steps.iter().enumerate().filter(move |(_, s)| **s == wanted).map(|(i, _)| i);
        let at = |wanted: Step| all(wanted).next().unwrap_or_else(|| panic!("{what}: no {wanted:?}"));
        let call = steps.iter().position(|s| matches!(s, Step::Call(_))).unwrap();
        assert!(at(Step::Alloc) < at(Step::Save) && at(Step::Save) < call, "{what}");
        assert!(all(Step::Restore).all(|restore| restore > call), "{what}");
        // To the function.
        let (free, leave) = (at(Step::Free(ExitPath::Function)), at(Step::Leave(ExitPath::Function)));
        assert!(call < at(Step::Restore) && at(Step::Restore) < free && free < leave, "{what}");
        assert!(at(Step::RestoreSite(ExitPath::Function)) < free, "{what}");
        // To a direct trampoline: asked behind the call, before the function is left for.
        let frame = target.frame(kind).unwrap();
        let direct = frame.find(Content::Direct).is_some_and(|i| frame.fields[i].stores == Stores::TakeEffect);
        assert_eq!(all(Step::BranchIfDirect).count(), usize::from(direct), "{what}");
        if direct {
            directs += 1;
            let (branch, path) = (at(Step::BranchIfDirect), at(Step::Path(ExitPath::Direct)));
            let load = at(Step::LoadDirect);
            assert!(call < load && load < free && load < branch, "{what}");
            assert!(branch < leave && leave < path, "{what}");
            assert!(path < at(Step::Leave(ExitPath::Direct)), "{what}");
            // What is not restored before the ways part is restored on each.
            let restored_before = at(Step::Restore) < branch;
            let jumps = target.convention.site.direct_jumps;
            let ways = if jumps { 3 } else { 2 };
            assert_eq!(all(Step::Restore).count(), if restored_before { 1 } else { ways }, "{what}");
            // Which of the two is asked when it is known that there is one.
            assert_eq!(all(Step::BranchIfJump).count(), usize::from(jumps), "{what}");
            assert!(all(Step::BranchIfJump).all(|ask| ask == path + 1), "{what}");
            assert_eq!(all(Step::Leave(ExitPath::DirectJump)).count(), usize::from(jumps), "{what}");
            let freed_before = free < branch;
            assert_eq!(all(Step::Free(ExitPath::Direct)).count(), usize::from(!freed_before), "{what}");
        }
        // Past everything, if `op` has one: nothing was touched.
        assert_eq!(all(Step::BranchIfEarlyDirect).count(), all(Step::Leave(ExitPath::EarlyDirect)).count(), "{what}");
        assert!(all(Step::BranchIfEarlyDirect).all(|branch| branch < at(Step::Alloc)), "{what}");
    });
    assert!(directs > 0);
}

/// A register that is restored must be asked before; one that is not, before the ways out differ; and if they do not, last.
#[test]
fn the_direct_call_cell_is_tested_where_its_register_is_free() {
    let function = ExitPath::Function;
    let (site, load, branch) = (Step::RestoreSite(function), Step::LoadDirect, Step::BranchIfDirect);
    let (restore, free) = (Step::Restore, Step::Free(function));
    let known = [("site", site), ("load", load), ("branch", branch), ("restore", restore), ("free", free)];
    let cases =
        tool::BACKENDS.iter().flat_map(|&backend| expected(backend).direct_test.into_iter().map(move |c| (backend, c)));
    for (backend, DirectTest { regs, register, order }) in cases {
        let (arch, reg) = (backend.facts().name, &*register);
        let step = |name: &String| known.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{arch}: {name}")).1;
        let order: Vec<Step> = order.iter().map(step).collect();
        let regs = if regs == "all" { Regs::All } else { Regs::Args };
        let target = tool::default_target(backend).unwrap();
        let target = Target { direct_test: target.facts.abi.find(reg).unwrap(), ..target };
        let mut plan = Plan::default();
        plan.make(&Spec::of("f", Kind::Entry(regs)), &target).unwrap();
        let end = plan.steps.iter().position(|s| *s == Step::Leave(function)).unwrap();
        let wanted = |s: &Step| known.iter().any(|(_, step)| step == s);
        let found: Vec<Step> = plan.steps[..end].iter().copied().filter(wanted).collect();
        assert_eq!(found, order, "{arch} {reg}");
    }
}

/// Programs before the function, the function, programs after it; the gap for retiring code is behind the function.
#[test]
fn programs_are_called_in_the_order_of_their_kinds() {
    let mut seen = 0;
    plans(|_, kind, plan, what| {
        let Some(programs) = kind.programs() else { return };
        let at = |wanted: Step| plan.steps.iter().position(|s| *s == wanted);
        let saved = at(Step::Save).unwrap();
        let calls = plan.steps.iter().enumerate().filter(|(_, s)| matches!(s, Step::Call(_)));
        let calls: Vec<usize> = calls.map(|(i, _)| i).collect();
        assert!(calls.iter().all(|call| *call > saved), "{what}");
        assert_eq!(at(Step::Call(Callee::Body)).is_some(), programs.call_orig, "{what}");
        let results = plan.steps.iter().rposition(|s| *s == Step::SaveResults);
        if let (Some(body), Some(results)) = (at(Step::Call(Callee::Body)), results) {
            assert!(body < results && at(Step::Gap).is_none_or(|gap| results < gap), "{what}");
            assert!(at(Step::RestoreResults).unwrap() > *calls.last().unwrap(), "{what}");
        }
        let leave = if programs.call_orig { ExitPath::Caller } else { ExitPath::Function };
        assert_eq!(plan.steps.last(), Some(&Step::Leave(leave)), "{what}");
        seen += 1;
    });
    assert!(seen > 0);
}
