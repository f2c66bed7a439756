//! How sites are written, judged by itself: at many distances between a site, the entry trampoline and what the site is to go
//! to, does each sequence of instructions that can stand in memory lead where it should?
//!
//! What is near the entry trampoline is written as the profile says, whatever that leads to.

use std::ops::Range;

use codegen::arch::patch::{Poke, SiteState, Write};
use codegen::arch::site::{OpLiteral, Site, Spot};
use codegen::backend::Backend;
use codegen::profile::Convention;
use codegen::words::abi::Loc;
use codegen::words::error::Result;
use link::PAGE;
use serde::Serialize;

use crate::engine::cpu::{STACK_TOP, word};
use crate::engine::disasm::decode;
use crate::engine::interface::{Cpu, Holds};
use crate::engine::load::load;
use crate::engine::registers::Registers;

/// The address that the tracer records for the site: of a function at a multiple of 8, whatever lies before that.
const IP: u64 = 0x40_0000_100c;
/// What stands for an `ftrace_ops`.
const OP: u64 = 0x1234_5678;
/// And for the one that does nothing.
const NOP_OP: u64 = 0x1234_0000;
/// Distances from the site to the entry trampoline: around these, besides the site's reach.
const AROUND: [i64; 4] = [0x3000, 0x10_0000, 0x400_0000, 0x3000_0000];
/// By so much more or less: around the halves and wholes of what an immediate of 12 bits can add.
const OFF_BY: [i64; 13] = [-0x1004, -0x1000, -0x804, -0x800, -0x7fc, -16, 0, 16, 0x7f0, 0x7fc, 0x800, 0x804, 0x1000];
/// Instructions that a site has, at most.
const MOST: usize = 4;
/// Of what goes astray, as many are kept.
const SHOWN: usize = 8;

/// A sequence that leads elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Astray {
    /// From the site's ip to the entry trampoline.
    pub entry: i64,
    /// From the entry trampoline to what the site is to go to.
    pub target: i64,
    /// What was being done, and how far it had come.
    pub when: String,
    /// The bytes of the site, where the sequence begins.
    pub bytes: Vec<u8>,
    /// Where it may lead.
    pub expected: Vec<u64>,
    /// Where it leads.
    pub found: u64,
}

/// What came out.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Sites {
    /// How many places of site, entry trampoline and target were tried.
    pub places: u64,
    /// Of them, those that are out of the site's reach.
    pub refused: u64,
    /// How many sequences were run.
    pub sequences: u64,
    /// How many of them lead elsewhere.
    pub failed: u64,
    /// The first of these.
    pub astray: Vec<Astray>,
}

/// What a site is in, and where it then may lead.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    /// What it is to go to; none while tracing is off.
    target: Option<u64>,
}

struct Judge<'j> {
    backend: &'j dyn Backend,
    site: &'j Site,
    /// Where `op` stands, if it does.
    literal: Option<OpLiteral>,
    registers: Registers,
    uc: Box<Cpu<'static, ()>>,
    entry: u64,
    window: Range<u64>,
}

/// Judge the sites of a profile: with `op`, those of functions with room for an `ftrace_ops` before them, as a kernel with CALL_OPS
/// compiles them, and without, those of others.
///
/// # Errors
/// An engine that does not start, or a site that cannot be written though what it goes to is near.
pub fn judge_sites(backend: &dyn Backend, convention: &'static Convention, op: bool) -> Result<Sites> {
    let (site, facts) = (&convention.site, backend.facts());
    let registers = Registers::of(backend.machine(), &facts.abi)?;
    let mut uc = load(backend, std::iter::empty(), ())?;
    uc.map(IP & !(PAGE - 1), PAGE, Holds::Code)?;
    let window = IP..IP.wrapping_add_signed(site.ip_offset.into());
    let literal = site.protocol.literal.filter(|_| op);
    let mut judge = Judge { backend, site, literal, registers, uc, entry: 0, window };
    let mut all = Sites::default();
    let reach = site.reach & !0xfff;
    for around in AROUND.into_iter().filter(|d| *d < reach / 2).chain([reach]) {
        for by in OFF_BY {
            for distance in [around + by, -around + by] {
                judge.entry = IP.wrapping_add_signed(distance);
                for target in targets(site) {
                    all.places += 1;
                    let far = |d: i64| d.abs() + 0x2000 >= reach;
                    match judge.place(target, &mut all) {
                        Err(_) if far(distance) || far(distance + target) => all.refused += 1,
                        other => other?,
                    }
                }
            }
        }
    }
    Ok(all)
}

/// From the entry trampoline to what sites go to: itself, and both sides of what is near it.
fn targets(site: &Site) -> Vec<i64> {
    let Some(near) = site.protocol.near else { return vec![0] };
    let last = (near & !3) as i64;
    vec![0, 4, -4, 0x400, -0x400, last, -last, last + 4, -last - 4, 0x1000, -0x1000, 0x10_0000]
}

impl Judge<'_> {
    fn spot(&self, toward: u64) -> Spot {
        Spot { ip: IP, has_op: self.literal.is_some(), toward: Some(toward), nop_op: Some(NOP_OP) }
    }

    /// Where the profile has the site go: what is near the entry trampoline itself, all else by way of that.
    fn goes_to(&self, target: u64) -> u64 {
        match self.site.protocol.near {
            Some(near) if self.entry.abs_diff(target) > near => self.entry,
            _ => target,
        }
    }

    /// The writes that put the site into a state. The second half of a branch is as for a site that was laid out towards its
    /// target: nobody looks at the first one.
    fn pokes(&self, state: State) -> Result<Vec<Poke>> {
        let Some(target) = state.target.map(|target| self.goes_to(target)) else {
            return self.site.poke(self.backend, self.spot(self.entry), SiteState::Disabled);
        };
        let on = SiteState::Enabled { target, op: Some(OP), jump: false };
        self.site.poke(self.backend, self.spot(target), on)
    }

    fn place(&mut self, target: i64, all: &mut Sites) -> Result<()> {
        let off = State { name: "off", target: None };
        let on = State { name: "on", target: Some(self.entry.wrapping_add_signed(target)) };
        let entry = State { name: "on for the entry trampoline", target: Some(self.entry) };
        for [from, to] in [[off, on], [on, off], [entry, on], [on, entry]] {
            self.switch(from, to, target, all)?;
        }
        Ok(())
    }

    /// From one state to another: every sequence on the way, for a CPU that comes to the site and for one that is in it.
    fn switch(&mut self, from: State, to: State, target: i64, all: &mut Sites) -> Result<()> {
        let on = SiteState::Enabled { target: self.entry, op: Some(OP), jump: false };
        let mut before = self.site.initial(self.backend, self.spot(self.entry), on)?;
        before.extend(self.pokes(from)?.into_iter().map(|poke| poke.write));
        let steps = self.pokes(to)?;
        let literal = self.literal.map(|literal| literal.address(IP));
        // As the function was compiled.
        before.splice(0..0, literal.map(|at| Write { at, bytes: vec![0; 8] }));
        let inside = before.iter().filter(|w| Some(w.at) != literal).map(|w| w.at).min();
        self.window.start = inside.unwrap_or(IP).min(IP);
        for seen in 0..=steps.len() {
            self.stand(&before, &steps, seen)?;
            if trapping(&steps, seen) {
                continue;
            }
            let all_starts = self.boundaries()?;
            let starts = if self.site.between.is_some() { &all_starts[..all_starts.len().min(1)] } else { &all_starts };
            for done in seen..=steps.len() {
                for &start in starts {
                    let mut may: Vec<u64> = Vec::new();
                    may.extend((seen < steps.len()).then(|| self.leads_to(from)));
                    may.extend((done > 0).then(|| self.leads_to(to)));
                    self.stand(&before, &steps, seen)?;
                    let Some(came) = self.come(start) else { continue };
                    self.stand(&before, &steps, done)?;
                    if trapping(&steps, done) {
                        continue;
                    }
                    let found = self.follow(came);
                    all.sequences += 1;
                    // Whoever comes to the entry trampoline reads there which `ftrace_ops` is meant.
                    let op = literal.map(|at| word(&*self.uc, at)).filter(|_| found != self.window.end);
                    let unnamed = op.is_some_and(|op| ![OP, NOP_OP].contains(&op));
                    if may.contains(&found) && self.linked(found) && !unnamed {
                        continue;
                    }
                    all.failed += 1;
                    if all.astray.len() < SHOWN {
                        let at = start - self.window.start;
                        let named = if unnamed { ", and no `ftrace_ops` named before the function" } else { "" };
                        let when = format!(
                            "from {} to {}, {done} of {} writes done, a CPU at +{at} since {seen}{named}",
                            from.name,
                            to.name,
                            steps.len()
                        );
                        let bytes = self.bytes();
                        let entry = self.entry.wrapping_sub(IP).cast_signed();
                        all.astray.push(Astray { entry, target, when, bytes, expected: may, found });
                    }
                }
            }
        }
        Ok(())
    }

    fn leads_to(&self, state: State) -> u64 {
        state.target.map_or(self.window.end, |target| self.goes_to(target))
    }

    /// Memory after so many of the steps.
    fn stand(&mut self, before: &[Write], steps: &[Poke], done: usize) -> Result<()> {
        let steps: Vec<Write> = steps.iter().take(done).map(|poke| poke.write.clone()).collect();
        self.uc.write_code(before)?;
        self.uc.write_code(&steps)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; (self.window.end - self.window.start) as usize];
        self.uc.load(self.window.start, &mut bytes);
        bytes
    }

    fn boundaries(&self) -> Result<Vec<u64>> {
        let code = decode(self.registers.machine, &self.bytes(), self.window.start)?;
        Ok(code.iter().map(|insn| insn.at).collect())
    }

    /// A CPU from the start of the site to one of its instructions; `None` if it goes elsewhere.
    fn come(&mut self, to: u64) -> Option<u64> {
        let sp = self.registers.abi.sp;
        self.registers.set(&mut *self.uc, sp, STACK_TOP - 256);
        let mut pc = self.window.start;
        for _ in 0..MOST {
            if pc == to {
                return Some(pc);
            }
            pc = self.step(pc).filter(|pc| self.window.contains(pc))?;
        }
        None
    }

    /// On from an instruction of the site, until it is left.
    fn follow(&mut self, mut pc: u64) -> u64 {
        for _ in 0..MOST {
            match self.step(pc) {
                Some(next) => pc = next,
                None => break,
            }
            if !self.window.contains(&pc) {
                break;
            }
        }
        pc
    }

    /// One instruction.
    fn step(&mut self, pc: u64) -> Option<u64> {
        let _ = self.uc.run_at_most(pc, 0, 1);
        Some(self.uc.pc()).filter(|next| *next != pc)
    }

    /// Where a trampoline was called, it finds the way back.
    fn linked(&self, pc: u64) -> bool {
        let back = match self.site.pc {
            Loc::Reg(reg) => self.registers.get(&*self.uc, reg),
            Loc::Stack(offset) => {
                let sp = self.registers.get(&*self.uc, self.registers.abi.sp);
                word(&*self.uc, sp.wrapping_add(offset as u64))
            }
        };
        pc == self.window.end || back == self.window.end
    }
}

/// After so many steps, is there a breakpoint at the site? Its handler does what the last step will.
fn trapping(steps: &[Poke], done: usize) -> bool {
    done.checked_sub(1).and_then(|last| steps.get(last)).is_some_and(|step| step.traps)
}
