//! The state of the CPU at one moment, against that at another.

use codegen::abi::RegSet;
use codegen::live::Live;

use super::Trace;
use crate::case::Handler;
use crate::cpu::{Registers, Snapshot, Uc, words};
use crate::report::Clause;

impl Trace {
    /// Registers now, against those at the site with the callback's changes.
    pub(super) fn compare_registers(&mut self, uc: &mut Uc, pc: u64, registers: Registers) {
        let now = registers.snapshot(uc);
        let Some(a) = self.activations.last() else { return };
        let (expect, kept, flags_kept) = (a.expect.clone(), a.kept, a.flags_kept);
        let args = RegSet::of(registers.abi.args).union(registers.abi.hidden);
        let c_keeps = registers.abi.callee_saved.union(registers.abi.platform);
        let t = self.trampoline();
        for reg in registers.abi.callee_saved.union(registers.abi.caller_saved).union(registers.abi.platform).iter() {
            let (want, have) = (expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            if let Some(fates) = self.fates.get_mut(t) {
                let fate = &mut fates[reg.0 as usize];
                if want == have { fate.0 += 1 } else { fate.1 += 1 }
            }
            if kept.contains(reg) {
                let clause = match (args.contains(reg), c_keeps.contains(reg)) {
                    (true, _) => Clause::P1,
                    (false, true) => Clause::P5,
                    (false, false) => Clause::P4,
                };
                self.checks[t][clause as usize] += 1;
                if want != have {
                    self.fail(clause, registers.abi.name(reg), Some(reg), (want, have), pc);
                }
            }
        }
        let live = self.contracts.get(t).and_then(|c| c.kind.live());
        self.compare_state(&expect, &now, flags_kept, Clause::P2, registers.abi.vector_args, live, pc, registers);
    }

    #[allow(clippy::too_many_arguments, reason = "two states and what to compare of them")]
    pub(super) fn compare_state(
        &mut self,
        expect: &Snapshot,
        now: &Snapshot,
        flags_kept: bool,
        clause: Clause,
        carriers: &[u8],
        live: Option<Live>,
        pc: u64,
        registers: Registers,
    ) {
        if let Some((reg, mask)) = registers.machine.flags.filter(|_| flags_kept) {
            let mask = mask | registers.machine.clear_flags;
            self.check(Clause::P6, reg.name, expect.flags & mask, now.flags & mask, pc);
        }
        for (i, reg) in registers.machine.control.iter().enumerate() {
            self.check(Clause::P6, reg.name, expect.control[i], now.control[i], pc);
        }
        // Where the prototype is known, so is what must survive any handler, and what nobody waits for.
        let most = carriers.len();
        let (saved, live) = live.map_or((0, most), |l| (l.saved_vectors().into(), l.vectors.into()));
        let (saved, open) = carriers.split_at(most.min(saved));
        let every: Vec<u8> = (0..registers.machine.vectors.len() as u8).collect();
        for &i in if self.case.handler == Handler::General { &every } else { saved } {
            self.check_vector(clause, i.into(), expect, now, pc, registers);
        }
        let mut lost = open.iter().take(live.saturating_sub(saved.len())).map(|&i| usize::from(i));
        if self.case.handler == Handler::Any && lost.any(|i| expect.vectors[i] != now.vectors[i]) {
            let t = self.trampoline();
            if let Some(n) = self.vectors_lost.get_mut(t) {
                *n += 1;
            }
        }
    }

    pub(super) fn check_vector(
        &mut self,
        clause: Clause,
        i: usize,
        expect: &Snapshot,
        now: &Snapshot,
        pc: u64,
        registers: Registers,
    ) {
        let (want, have) = (expect.vectors[i], now.vectors[i]);
        let low = |v: &[u8; 16]| u64::from_le_bytes(v[..8].try_into().unwrap_or_default());
        let found = if want == have { low(&want) } else { low(&have) ^ u64::from(low(&want) == low(&have)) };
        self.check(clause, registers.machine.vectors[i].name, low(&want), found, pc);
    }

    /// A callee of the traced function's own prototype finds all that the function finds.
    pub(super) fn check_passed(
        &mut self,
        uc: &Uc,
        registers: Registers,
        live: Live,
        expect: &Snapshot,
        site_sp: u64,
        pc: u64,
    ) {
        let now = registers.snapshot(uc);
        for reg in live.regs.minus(RegSet::of(registers.abi.args)).iter() {
            let (want, have) = (expect.gpr[reg.0 as usize], now.gpr[reg.0 as usize]);
            self.check(Clause::P10, registers.abi.name(reg), want, have, pc);
        }
        for &i in registers.abi.vector_args.iter().take(live.vectors.into()) {
            self.check_vector(Clause::P10, i.into(), expect, &now, pc, registers);
        }
        let return_address = if registers.abi.link.is_none() { 8 } else { 0 };
        let stack = |sp: u64| words(uc, sp.wrapping_add(return_address), 8 * usize::from(live.stack));
        for (want, have) in stack(site_sp).into_iter().zip(stack(registers.sp(uc))) {
            self.check(Clause::P10, "argument on the stack", want, have, pc);
        }
    }
}
