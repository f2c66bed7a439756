//! Which cases there are: functions, situations, handlers and stacks.

use std::sync::Arc;

use codegen::abi::{Abi, Reg};
use codegen::contract::Contract;
use codegen::frame::{Back, Content};
use codegen::live::Live;
use codegen::spec::{Form, Kind};

use crate::case::{Case, Handler, Initial, Situation};
use crate::cpu::{EXIT, STACK_TOP, Snapshot};
use crate::filter::Filter;
use crate::fixture::{Function, LIVEPATCH};
use crate::rig::Rig;
use crate::rng::Rng;

/// Bytes above SP that hold stack arguments and canaries.
const ABOVE: u64 = 256;

/// Are the trampolines there that this situation needs?
pub(crate) fn can(rig: &Rig, situation: Situation) -> bool {
    let has =
        |wanted: fn(Kind, Option<Kind>) -> bool| rig.suite.contracts.iter().any(|c| wanted(c.kind, situation.stub));
    let sent = situation.direct || situation.early;
    (!sent || rig.direct_target().is_some())
        && (!situation.parent || rig.exit(situation).is_some())
        && (situation.stub.is_none() || has(|kind, stub| Some(kind) == stub))
}

/// What the exit handler makes of the results: of each register that the contract lets it change.
pub(crate) fn new_results(rig: &Rig, attach: usize, situation: Situation, rng: &mut Rng) -> Vec<(Reg, u64)> {
    let around = Some(attach).filter(|i| rig.suite.contracts[*i].kind.calls_body());
    let contract = around.or_else(|| rig.exit(situation)).filter(|_| situation.results || situation.skips());
    let contract = contract.map(|i| &rig.suite.contracts[i]);
    let written = contract.into_iter().flat_map(|c| &c.frame.fields).filter(|f| f.back == Back::Written);
    let register = |f: &codegen::frame::Field| match f.content {
        Content::Reg(r) if around.is_none() => Some((r, rng.canary())),
        Content::Result(r) => Some((r, rng.canary())),
        _ => None,
    };
    written.filter_map(register).collect()
}

/// The cases with this trampoline at the site.
pub(crate) fn cases(rig: &Rig, attach: usize, filter: &Filter) -> Vec<Arc<Case>> {
    let mut contract = rig.suite.contracts[attach].clone();
    if rig.copied() {
        // Who has a copy to itself has no use for other handlers, so it has no way to a direct trampoline.
        contract.direct = false;
    }
    let contract = &contract;
    let abi = rig.registers.abi;
    let (mut cases, mut first) = (Vec::new(), None);
    for (i, f) in rig.functions.iter().enumerate() {
        if filter.function.as_ref().is_some_and(|name| *name != f.name) || f.name.ends_with(LIVEPATCH) {
            continue;
        }
        // A direct-call trampoline is for functions with as many argument registers as it keeps.
        let in_registers = f.args + usize::from(f.sret && abi.args.contains(&abi.sret));
        // A sled is in the middle of any.
        if contract.sled && first.is_some() {
            break;
        }
        if let Kind::Direct(d) = contract.kind
            && !contract.sled
            && (d.args as usize != in_registers.min(abi.args.len())
                || d.live.is_some_and(|live| !takes(f, live, in_registers, abi)))
        {
            continue;
        }
        if let Kind::Programs(programs) = contract.kind
            && (f.sret
                || programs.words.iter().flatten().count() != f.args
                || !takes(f, programs.live, in_registers, abi))
        {
            continue;
        }
        // Arguments on the stack are out of reach where a frame stays below them.
        if let Kind::Around(around) = contract.kind
            && in_registers
                > match around.form {
                    Form::Frame => around.args.into(),
                    Form::Fregs => abi.args.len(),
                    Form::Shadow => usize::MAX,
                }
        {
            continue;
        }
        let first = *first.get_or_insert(i);
        for situation in Situation::all(contract).into_iter().filter(|s| can(rig, *s)) {
            let name = situation.name();
            if filter.situation.as_ref().is_some_and(|s| *s != name) || (situation.ip && f.livepatch.is_none()) {
                continue;
            }
            if !filter.concerns(&rig.suite.contracts, contract, situation) {
                continue;
            }
            // What handlers overwrite and how the stack is aligned has nothing to do with distance.
            let (handlers, stacks) = match rig.away {
                None => (&[Handler::General, Handler::Any][..], usize::MAX),
                Some(_) => (&[Handler::General][..], 1),
            };
            for &handler in handlers {
                for &sp in rig.registers.machine.entry_sp.iter().take(stacks) {
                    // A stack that is misaligned for the psABI is for code that says it can live with it.
                    let case_seed = Rng::new(rig.seed, (i as u64) << 8 | sp).next();
                    let mut rng = Rng::new(case_seed, 3);
                    cases.push(Arc::new(Case {
                        attach,
                        function: i,
                        situation,
                        closely: i == first && handler == Handler::General && !situation.args && rig.away.is_none(),
                        handler,
                        seed: case_seed,
                        sret: f.sret,
                        new_registers: std::array::from_fn(|_| rng.canary()),
                        new_results: new_results(rig, attach, situation, &mut rng),
                        initial: initial(rig, contract, case_seed, f.sret, sp),
                    }));
                }
            }
        }
    }
    cases
}

pub(crate) fn initial(rig: &Rig, contract: &Contract, seed: u64, sret: bool, sp_low: u64) -> Initial {
    let abi = rig.registers.abi;
    let mut rng = Rng::new(seed, 1);
    let mut all = Snapshot { flags: if seed & 1 == 0 { 0 } else { u64::MAX }, ..rig.clean.clone() };
    for reg in abi.callee_saved.union(abi.caller_saved).union(abi.platform).iter() {
        all.gpr[reg.0 as usize] = rng.canary();
    }
    if !contract.sled {
        all.flags &= !rig.registers.machine.clear_flags;
    }
    let sp = STACK_TOP - 2 * ABOVE - 16 + sp_low;
    all.gpr[abi.sp.0 as usize] = sp;
    let mut above: Vec<u8> = (0..ABOVE / 8).flat_map(|_| rng.canary().to_le_bytes()).collect();
    match abi.link {
        Some(link) => all.gpr[link.0 as usize] = EXIT,
        None => above[..8].copy_from_slice(&EXIT.to_le_bytes()),
    }
    if sret {
        all.gpr[abi.sret.0 as usize] = rig.scratch;
    }
    Initial { registers: all, sp, above }
}

/// Is this what is live at the entry of `f`? Vector registers are not looked at: `f` leaves them alone.
fn takes(f: &Function, live: Live, in_registers: usize, abi: &Abi) -> bool {
    usize::from(live.stack) == in_registers.saturating_sub(abi.args.len())
        && abi.hidden_for_direct().iter().all(|hidden| live.regs.contains(hidden) == f.sret)
}
