//! P12: at every instruction, what the unwind table says against what the CPU holds; and the walk of frame records that
//! an unwinder makes from a callback.

use codegen::arch::harden::ReturnGuard;
use codegen::ask::frame::Content;
use codegen::ask::kind::Kind;
use codegen::contract::Contract;
use codegen::contract::stated::Next;
use codegen::words::abi::{Reg, RegSet};
use codegen::words::step::Value;

use super::{At, Here, Trace};
use crate::engine::registers::Snapshot;
use crate::engine::unwind::Rule;
use crate::report::Clause;
use crate::report::place::Place;
use crate::run::block::is_other_stack;

impl Trace {
    /// Before each instruction of the trampoline that is at work.
    pub(super) fn check_unwind(&mut self, here: &Here) {
        let Some(table) = self.table.clone() else { return };
        let Some(row) = table.row(here.pc) else { return };
        let abi = here.registers.abi;
        let now = here.registers.general(here.uc);
        let cfa = row.cfa(&now.gpr);
        let value = |rule: Rule| rule.value(cfa, &now.gpr, |at| here.word(at));
        let return_value = |rule: Rule| row.return_address(here.registers.machine, value(rule));
        // The parent is the next frame: nothing returns to the site.
        let leaves = |next: Next| matches!(next, Next::Result | Next::Copies(_));
        let to_parent = self.calls_body() || self.jumped_to() || self.contract().is_some_and(|c| leaves(c.stated.next));
        let (exiting, entering) = (self.state.exiting(), self.state.activations.last());
        if self.contract().is_some_and(|c| c.stated.contexts.is_some())
            && entering.is_some_and(|a| is_other_stack(a.sp) != is_other_stack(here.sp()))
        {
            // Half of one context and half of another is nobody's frame.
            return;
        }
        let (expect, sp, parent): (&Snapshot, _, _) = match (exiting, entering) {
            (Some(e), _) => (&e.expect, e.sp, e.parent),
            // Where the site did not call, its function's return address lies between SP and CFA.
            (None, Some(a)) => {
                let pushed = if to_parent { abi.return_bytes() } else { 0 };
                (&a.expect, a.sp.wrapping_add(pushed), a.parent)
            }
            (None, None) => return,
        };
        let at_site = exiting.is_none() && !to_parent;
        let scs = self.contract().and_then(|contract| contract.scs());
        // What a boundary lets go of, nobody looks for.
        let open = self.contract().filter(|c| c.kind.is_boundary()).map_or(RegSet::EMPTY, |c| c.clobbered);
        let saved = row.tells.minus(open).iter().chain(scs).filter(|&r| Some(r) != abi.link);
        let columns: Vec<(Reg, u64, u64)> = saved.map(|r| (r, expect[r], value(row.rule(r)))).collect();
        let mut returns = Vec::new();
        if let (true, Some(rule)) = (to_parent, row.returns) {
            returns.push((Place::UnwindReturn, parent, parent, return_value(rule)));
        } else if let (None, Some(a)) = (exiting, entering) {
            if let Some(rule) = row.returns {
                returns.push((Place::UnwindReturn, a.resume, a.pc, return_value(rule)));
            }
            if let Some(link) = abi.link.filter(|_| !row.in_link) {
                returns.push((Place::UnwindLink, a.returns_to, a.parent, value(row.rule(link))));
            }
        }
        let p12 = self.at(Clause::P12, here.pc);
        self.check(p12, Place::Cfa, sp, cfa);
        if let Some(known) = row.known_column {
            self.check(p12, Place::ReturnColumn, true, known);
            // What is not where a call of the function would have put it was put there by its site, before any call.
            if at_site && row.returns.is_some() && abi.link.is_some() && !row.in_link {
                self.check(p12, Place::LookedUp, true, row.signal);
            }
            if here.pc == self.places.exit {
                // Unwinders take it for a call's, and look up the call.
                let before = table.row(here.pc.wrapping_sub(1)).is_some_and(|row| row.returns.is_none());
                self.check(p12, Place::BeforeReturn, true, before);
            }
        }
        for (reg, want, found) in columns {
            self.check(p12, Place::Column { name: abi.name(reg) }, want, found);
        }
        // What a callback changed is changed in its slot, and not in a record beside it.
        for (place, changed, first, found) in returns {
            self.check(p12, place, if found == first { first } else { changed }, found);
        }
    }

    /// At the first instruction of a stub that stands in for the callback: a C function, as unwinders see it.
    pub(super) fn check_unwind_of_stub(&mut self, here: &Here, index: usize) {
        let Some(table) = self.table.clone() else { return };
        let Some(row) = table.row(here.pc) else { return };
        let (abi, sp, now) = (here.registers.abi, here.sp(), here.registers.general(here.uc));
        let cfa = row.cfa(&now.gpr);
        let p12 = At { trampoline: index, ..self.at(Clause::P12, here.pc) };
        self.check(p12, Place::Cfa, sp.wrapping_add(abi.return_bytes()), cfa);
        if let Some(known) = row.known_column {
            self.check(p12, Place::ReturnColumn, true, known);
        }
        if let Some(rule) = row.returns {
            let found = rule.value(cfa, &now.gpr, |at| here.word(at));
            self.check(p12, Place::UnwindReturn, here.parent(sp), found);
        }
    }

    /// In a callback: the records that lie between it and the traced function's caller.
    pub(super) fn check_records(&mut self, here: &Here, contract: &Contract) {
        let (at, resume, parent) = match (self.state.exiting(), self.state.activations.last()) {
            (Some(e), _) => (&e.expect, e.resume, e.parent),
            // What a callback changed on the way here counts for the records that are made after it.
            (None, Some(a)) => (&a.expect, a.resume, a.returns_to),
            (None, None) => return,
        };
        let p12 = self.at(Clause::P12, here.pc);
        let (abi, before) = (here.registers.abi, at[here.registers.abi.fp]);
        let mut fp = here.get(abi.fp);
        let rethook = contract.kind == Kind::Rethook;
        if contract.marks_regs && (contract.kind.calls_back() || rethook) {
            let fregs = contract.position(Value::Fregs).filter(|_| !rethook);
            let fregs = fregs.map_or_else(|| here.arg(0), |n| here.arg(n));
            self.check(p12, Place::MarkedRegs, fregs | 1, fp);
            return;
        }
        if contract.frame.records.is_empty() {
            return;
        }
        for (n, record) in contract.frame.records.iter().rev().enumerate() {
            let before = fp;
            let place = fp.wrapping_add_signed(here.registers.machine.record);
            let want = if record.ret == Content::Pc { resume } else { parent };
            let stored;
            [fp, stored] = here.two_words(place);
            let found = recorded_return(here, contract, stored);
            self.check(p12, Place::FrameRecord { n }, want, found);
            // Where there is no record, there is no order.
            if found == want && n + 1 < contract.frame.records.len() {
                self.check(p12, Place::RecordRises { n: n + 1 }, true, fp > before);
            }
        }
        self.check(p12, Place::BehindRecords, before, fp);
    }
}

/// The return address that unwinders make of the one in a frame record.
pub(super) fn recorded_return(here: &Here, contract: &Contract, stored: u64) -> u64 {
    match contract.guard {
        Some(ReturnGuard::Signed) => (here.registers.machine.stripped)(stored),
        Some(ReturnGuard::Pushed | ReturnGuard::Scs) | None => stored,
    }
}
