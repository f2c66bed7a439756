//! QEMU and Bochs as an [`Engine`]: a process of its own, with a bare machine that enforces what today's CPUs do.
//!
//! `program.rs` starts the process, `child.rs` ends it, `pinned.rs` says on which CPU it runs, `machine.rs` has it and the guest's memory,
//! `shared.rs` what both processes share, `plugin.c` the side of QEMU, `preload.c` that of Bochs, `stepped.rs` that of QEMU's stub for
//! GDB, with which `remote.rs` speaks and before which `wall.c` is loaded; `register.rs` says where registers are, and `hooks.rs` who is
//! asked.

mod child;
mod hooks;
mod machine;
mod pinned;
mod program;
mod register;
mod remote;
mod shared;
mod stepped;

use std::cell::Cell;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use codegen::arch::bare::{Cause, Decoded, Entered, Exception, Guard, Page, Returns, Wide};
use codegen::arch::patch::Write;
use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use rustc_hash::FxHashMap;

use super::interface::{
    Access, Accesses, Cpu, EVERYWHERE, Ended, Engine, Holds, Hook, Late, OnAccess, OnGuard, OnInstruction, OnMissing,
    Saved, Trap, Why,
};
use super::registers::{Besides, Registers, Snapshot};
use super::rng::Rng;
use hooks::{AccessHook, Hooks, kept};
pub(crate) use machine::Machine;
pub(crate) use program::{Mode, version};
use register::{Place, place, places};
use shared::{Message, PASSES, RANGES, Said, Told, word};

/// An engine.
pub(super) struct Outside<D> {
    machine: Rc<Machine>,
    places: FxHashMap<i32, Place>,
    /// The first general register of results, by which setters take their value.
    given: Place,
    data: D,
    pc: u64,
    /// What the hook that runs has asked for.
    wanted: Told,
    hooks: Hooks<D>,
    /// The CPU is no longer where hooks are called for.
    is_late: bool,
    /// An instruction that is met again, since a hook let it go on: it has been looked at.
    again: Option<u64>,
    /// The instruction that hooks looked at last.
    seen: u64,
    /// The CPU goes on there by way of where it waits, which has a landing pad: whatever branch it came by, it expects none then.
    detour: Option<u64>,
    /// Where a return takes its address from: a register, or else the stack.
    link: Option<Place>,
    sp: Place,
    /// The pointer of the shadow stack, where there is one.
    pointer: Option<Place>,
    general: Vec<Place>,
}

/// The shadow stack: its pages, and the entry of the function that runs, with room on both sides.
const SHADOW_STACK: u64 = 0x67_91d5_0000;
const SHADOW_SIZE: u64 = 0x2000;
const SHADOW_TOP: u64 = SHADOW_STACK + SHADOW_SIZE / 2;

/// What is kept of a CPU: its registers, by the engine's numbers; the pointer of the shadow stack, and all of that.
struct Kept {
    registers: Vec<(i32, Vec<u8>)>,
    shadow: Option<(u64, Vec<u8>)>,
}

/// How a run ended.
fn ended(ran: Result<Option<Trap>>) -> Ended {
    match ran {
        Ok(None) => Ok(()),
        Ok(Some(trap)) => Err(trap),
        Err(e) => Err(Trap { why: Why::Other, said: e.to_string() }),
    }
}

/// An engine on a machine.
///
/// # Errors
/// The program names registers differently.
pub(super) fn open<D: 'static>(backend: &dyn Backend, machine: &Rc<Machine>, data: D) -> Result<Outside<D>> {
    let places = places(backend, machine)?;
    let abi = &backend.facts().abi;
    let first = abi.rets.first().and_then(|reg| places.get(&abi.regs[usize::from(reg.0)].emu)).copied();
    let link = abi.link.and_then(|reg| places.get(&abi.regs[usize::from(reg.0)].emu)).copied();
    let sp = places.get(&abi.regs[usize::from(abi.sp.0)].emu).copied();
    let general = abi.regs.iter().filter_map(|reg| places.get(&reg.emu).copied()).collect();
    let pointer = match machine.mode {
        Mode::Enforced => {
            machine.map(SHADOW_STACK, SHADOW_SIZE, Page::ShadowStack)?;
            Some(place(machine, machine.bare.shadow_stack, 8)?)
        }
        Mode::Free | Mode::Stepped => None,
    };
    // None is missed later, where nobody would be told.
    machine.bare.wide.iter().try_for_each(|wide| place(machine, wide.name, wide.bytes).map(drop))?;
    Ok(Outside {
        machine: Rc::clone(machine),
        places,
        given: first.ok_or_else(|| Error::new("emulator: no register for results"))?,
        data,
        pc: 0,
        wanted: Told::GoOn,
        hooks: Hooks::default(),
        is_late: false,
        again: None,
        seen: 0,
        detour: None,
        link,
        sp: sp.ok_or_else(|| Error::new("emulator: no register for the stack"))?,
        pointer,
        general,
    })
}

impl<D: 'static> Outside<D> {
    /// The registers with vector state besides those of the tables: their numbers, and bytes now.
    fn wide_places(&self) -> Result<Vec<(&'static Wide, u32, usize)>> {
        let (machine, bare) = (&self.machine, self.machine.bare);
        let parts = match bare.lengths {
            Some((register, most)) => (self.get(place(machine, register, 8)?)? as usize + 1, most),
            None => (1, 1),
        };
        let place = |wide: &'static Wide| {
            let number = place(machine, wide.name, wide.bytes)?.number;
            Ok((wide, number, wide.bytes * parts.0.min(parts.1) / parts.1))
        };
        bare.wide.iter().map(place).collect()
    }

    fn place(&self, register: i32) -> Result<Place> {
        let place = self.places.get(&register).copied();
        place.ok_or_else(|| Error::new(format!("emulator: the engine has no register {register}")))
    }

    fn get(&self, place: Place) -> Result<u64> {
        let found = word(self.machine.read(std::iter::once((place.number, place.bytes.min(8))))?);
        Ok(place.mask.map_or(found, |mask| found & mask))
    }

    /// Set a register to a word. What a setter is needed for is set while the CPU waits.
    fn put(&self, place: Place, value: u64) -> Result<()> {
        let bytes = place.bytes.min(8);
        let Some(setter) = place.setter else {
            let value = &value.to_le_bytes()[..bytes];
            return match place.mask {
                Some(mask) => self.machine.write_bits(place.number, value, &mask.to_le_bytes()[..bytes]),
                None => self.machine.write(std::iter::once((place.number, value))),
            };
        };
        if self.get(place)? == value { Ok(()) } else { self.set_by(setter, value) }
    }

    /// Set a register by code that does.
    fn set_by(&self, setter: u64, value: u64) -> Result<()> {
        let kept = self.get(self.given)?;
        self.put(self.given, value)?;
        self.machine.message()?.from.set(self.machine.around() + setter);
        self.machine.go(Told::Go)?;
        if self.machine.wait()? != Said::Parked {
            return Err(Error::new("emulator: the guest does not wait after a register is set"));
        }
        self.put(self.given, kept)
    }

    /// Set registers to words. Those that code has to set are looked at all at once: seldom has one another value.
    fn put_all(&self, all: &[(Place, u64)]) -> Result<()> {
        let (by_code, others): (Vec<_>, Vec<_>) = all.iter().partition(|(place, _)| place.setter.is_some());
        if !by_code.is_empty() {
            let found = self.machine.read(by_code.iter().map(|(place, _)| (place.number, 8)))?;
            let found: Vec<u64> = found.chunks(8).map(word).collect();
            for ((place, value), found) in by_code.into_iter().zip(found) {
                if let Some(setter) = place.setter.filter(|_| value != found) {
                    self.set_by(setter, value)?;
                }
            }
        }
        others.into_iter().try_for_each(|(place, value)| self.put(place, value))
    }

    /// Call hooks for instructions of which they may be told late.
    fn at_passed(&mut self, message: &Message) {
        let passed = message.passed.take() as usize;
        self.is_late = true;
        for pc in message.passes.iter().take(passed).map(Cell::get) {
            self.at_instruction(pc, 0, 0);
        }
        self.is_late = false;
    }

    /// Call hooks before an instruction; returns what they want.
    fn at_instruction(&mut self, pc: u64, bytes: usize, block: usize) -> Told {
        (self.pc, self.wanted) = (pc, Told::GoOn);
        if self.again.take() == Some(pc) {
            return Told::GoOn;
        }
        self.seen = pc;
        let blocks: Vec<_> = if block > 0 { self.hooks.blocks.clone() } else { Vec::new() };
        for hook in blocks {
            (hook.borrow_mut())(self as &mut Cpu<'_, D>, pc, block);
        }
        let mut next = 0;
        while let Some((range, hook)) = self.hooks.instructions.get(next).filter(|_| self.wanted == Told::GoOn) {
            if range.contains(&pc) {
                let hook = Rc::clone(hook);
                (hook.borrow_mut())(self as &mut Cpu<'_, D>, pc, bytes);
            }
            next += 1;
        }
        self.wanted
    }

    /// The same, where the engine tells no more than the address: hooks on accesses are called with what the instruction will do.
    fn before_instruction(&mut self, pc: u64) -> Result<Told> {
        let bytes = match self.decoded(pc) {
            Err(e) if !self.hooks.accesses.is_empty() => return Err(e),
            decoded => decoded.unwrap_or_default().bytes,
        };
        let wanted = self.at_instruction(pc, bytes, 0);
        if wanted != Told::GoOn || self.hooks.accesses.is_empty() {
            return Ok(wanted);
        }
        for (at, bytes, is_write) in self.decoded(pc)?.accesses {
            if self.at_access(pc, Access { at, bytes, is_write }) != Told::GoOn {
                break;
            }
        }
        Ok(self.wanted)
    }

    /// What the instruction at an address does.
    fn decoded(&self, pc: u64) -> Result<Decoded> {
        // No instruction is longer.
        let mut code = [0; 15];
        let here = (1..=code.len()).rev().find(|bytes| Engine::<D>::load(self, pc, &mut code[..*bytes]));
        (self.machine.bare.decode)(&code[..here.unwrap_or(0)], pc, &|name| self.machine.word(name).unwrap_or(0))
    }

    /// Call hooks after an access: words of 8 bytes, as the other engine has them.
    fn at_access(&mut self, pc: u64, access: Access) -> Told {
        (self.pc, self.wanted) = (pc, Told::GoOn);
        for from in (0..access.bytes).step_by(8) {
            let (at, bytes) = (access.at.wrapping_add(from as u64), (access.bytes - from).min(8));
            self.each_access(Access { at, bytes, ..access });
        }
        self.wanted
    }

    fn each_access(&mut self, access: Access) {
        let mut next = 0;
        while let Some(hook) = self.hooks.accesses.get(next) {
            if hook.is_for(access) {
                let hook = Rc::clone(&hook.hook);
                (hook.borrow_mut())(self as &mut Cpu<'_, D>, access);
            }
            next += 1;
        }
    }

    /// A protection stopped the CPU: a hook may let it go on.
    fn at_guard(&mut self, guard: Guard, exception: &Exception) -> Result<bool> {
        self.wanted = Told::GoOn;
        let mut goes_on = false;
        for hook in self.hooks.guards.clone() {
            goes_on |= (hook.borrow_mut())(self as &mut Cpu<'_, D>, guard, exception.pc);
        }
        if !goes_on {
            return Ok(false);
        }
        if guard == Guard::ShadowStack {
            // The entry becomes the address that the return goes to.
            let to = match exception.returns_to {
                Some(Returns::Register(reg)) => self.general.get(usize::from(reg.0)).copied(),
                Some(Returns::Stack) => None,
                None => return Ok(false),
            };
            let (at, to) = (self.machine.word(self.machine.bare.shadow_stack)?, self.returns_to(to)?);
            if !Engine::<D>::store(self, at, &to.to_le_bytes()) {
                return Ok(false);
            }
        }
        // An exception may come before hooks look at its instruction.
        self.again = Some(exception.pc).filter(|pc| self.seen == *pc);
        self.detour = Some(exception.pc);
        Ok(true)
    }

    /// An exception: either a hook mends its reason, and says how the CPU goes on; or it ends the run.
    fn at_exception(&mut self) -> Result<std::result::Result<Told, Trap>> {
        let bare = self.machine.bare;
        let registers = bare.syndrome.iter().map(|name| self.machine.word(name)).collect::<Result<Vec<_>>>()?;
        let exception = (bare.cause)(&registers);
        let Exception { why, pc, at, .. } = exception;
        self.pc = pc;
        if let Cause::Guard(guard) = why
            && self.at_guard(guard, &exception)?
        {
            self.resume()?;
            return Ok(Ok(Told::Stop));
        }
        let hooks = match why {
            Cause::Access => &self.hooks.missing_data,
            Cause::Fetch => &self.hooks.missing_code,
            _ => return Ok(Err(Trap { why: self.reason(why, pc), said: format!("{why:?}") })),
        };
        let hooks = hooks.clone();
        self.wanted = Told::GoOn;
        for hook in hooks {
            if (hook.borrow_mut())(self as &mut Cpu<'_, D>, at) && self.wanted == Told::GoOn {
                self.again = Some(pc).filter(|pc| self.seen == *pc);
                return Ok(Ok(Told::GoOn));
            }
        }
        Ok(Err(Trap { why: self.reason(why, pc), said: format!("{why:?}") }))
    }

    fn reason(&self, why: Cause, pc: u64) -> Why {
        match why {
            Cause::Breakpoint => Why::Breakpoint,
            Cause::Access => Why::NoMemory,
            Cause::Fetch if self.machine.has(pc) => Why::NotCode,
            Cause::Fetch => Why::NoCode,
            Cause::Guard(guard) => Why::Guard(guard),
            Cause::Other(_) => Why::Other,
        }
    }

    /// Run until the CPU waits again.
    fn run_until_it_waits(&mut self, from: u64, until: u64, instructions: u64) -> Result<Option<Trap>> {
        (self.again, self.seen, self.detour) = (None, 0, None);
        let machine = Rc::clone(&self.machine);
        let message = machine.message()?;
        self.hooks.tell(message);
        message.from.set(from);
        message.until.set(until);
        message.budget.set(instructions);
        machine.go(Told::Run)?;
        let mut trapped = None;
        loop {
            let what = machine.wait()?;
            self.at_passed(message);
            // No instruction and no access has more.
            let (pc, bytes) = (message.pc.get(), message.bytes.get().min(256) as usize);
            let wanted = match what {
                Said::Parked => match self.detour.take() {
                    Some(pc) => {
                        self.pc = pc;
                        Told::Back
                    }
                    None => return Ok(trapped),
                },
                Said::Instruction if machine.tells_no_access() => match self.before_instruction(pc) {
                    Ok(wanted) => wanted,
                    // The CPU waits before the next run, as after an exception.
                    Err(e) => {
                        trapped = Some(Trap { why: Why::Other, said: format!("{e}; --engine qemu hears of it") });
                        Told::Stop
                    }
                },
                Said::Instruction => self.at_instruction(pc, bytes, message.first_of_block.get() as usize),
                Said::Access => {
                    let (at, is_write) = (message.at.get(), message.is_write.get() != 0);
                    self.at_access(pc, Access { at, bytes, is_write })
                }
                Said::Trapped => match self.at_exception()? {
                    Ok(wanted) => wanted,
                    Err(trap) => {
                        trapped = Some(trap);
                        self.resume()?;
                        Told::Stop
                    }
                },
                Said::Ended => {
                    // After an access, the hook has said where.
                    self.pc = pc;
                    Told::GoOn
                }
            };
            message.from.set(self.pc);
            machine.go(wanted)?;
        }
    }

    /// Does the shadow stack have the return address of each call, and not only what code pushes?
    fn has_all_calls(&self) -> bool {
        self.machine.bare.enforces.contains(&Guard::ShadowStack)
    }

    /// The address that a return goes to: of this register, or else on the stack.
    fn returns_to(&self, link: Option<Place>) -> Result<u64> {
        match link {
            Some(link) => self.get(link),
            None => {
                let mut top = [0; 8];
                Engine::<D>::load(self, self.get(self.sp)?, &mut top);
                Ok(u64::from_le_bytes(top))
            }
        }
    }

    /// A run begins as a call does: the shadow stack has where it returns to, or what its caller has pushed.
    fn call(&mut self) -> Result<()> {
        let Some(pointer) = self.pointer else { return Ok(()) };
        let returns_to = self.returns_to(self.link)?;
        // What the last run left above it is no entry of this one.
        let last = if self.has_all_calls() { returns_to } else { !returns_to };
        let fresh: Vec<u8> = last.to_le_bytes().into_iter().chain([0; 0x200]).collect();
        if !Engine::<D>::store(self, SHADOW_TOP, &fresh) {
            return Err(Error::new("emulator: the guest has no shadow stack"));
        }
        self.put(pointer, SHADOW_TOP)
    }

    /// The state before an exception is that of the CPU again.
    fn resume(&self) -> Result<()> {
        let Some((to, from, mask)) = self.machine.bare.resumes else { return Ok(()) };
        let value = self.machine.word(from)? & mask;
        let number =
            self.machine.number(to).ok_or_else(|| Error::new(format!("emulator: the engine has no register {to}")))?;
        self.machine.write(std::iter::once((number, &value.to_le_bytes()[..4])))
    }
}

impl<D: 'static> Engine<D> for Outside<D> {
    fn data(&self) -> &D {
        &self.data
    }

    fn data_mut(&mut self) -> &mut D {
        &mut self.data
    }

    fn read(&self, register: i32) -> Result<u64> {
        self.get(self.place(register)?)
    }

    fn write(&mut self, register: i32, value: u64) -> Result<()> {
        self.put(self.place(register)?, value)
    }

    fn read_bytes(&self, register: i32, to: &mut [u8]) -> Result<()> {
        let place = self.place(register)?;
        let found = self.machine.read(std::iter::once((place.number, to.len())))?;
        to.iter_mut().zip(found).for_each(|(to, byte)| *to = byte.get());
        Ok(())
    }

    fn write_bytes(&mut self, register: i32, value: &[u8]) -> Result<()> {
        let place = self.place(register)?;
        self.machine.write(std::iter::once((place.number, value)))
    }

    fn snapshot(&self, registers: Registers, besides: Besides, to: &mut Snapshot) {
        let Registers { machine, abi } = registers;
        let flags = machine.flags.filter(|_| besides >= Besides::Flags).map(|(reg, _)| reg.id);
        let control = machine.control.iter().filter(|_| besides >= Besides::Control).map(|word| word.reg.id);
        let vectors = machine.vectors.iter().filter(|_| besides >= Besides::All).map(|reg| reg.id);
        let all = abi.regs.iter().map(|reg| reg.emu).chain(flags).chain(control).chain(vectors);
        let places: Vec<Place> = all.filter_map(|id| self.places.get(&id).copied()).collect();
        let Ok(found) = self.machine.read(places.iter().map(|place| (place.number, place.bytes))) else { return };
        let mut bytes = found;
        let mut next = |size: usize| {
            let (first, rest) = bytes.split_at_checked(size).unwrap_or_default();
            bytes = rest;
            first
        };
        to.gpr.iter_mut().zip(abi.regs).for_each(|(to, _)| *to = word(next(8)));
        if flags.is_some() {
            let mask = places.get(abi.regs.len()).and_then(|place| place.mask).unwrap_or(u64::MAX);
            to.flags = word(next(8)) & mask;
        }
        if besides >= Besides::Control {
            to.control.iter_mut().zip(machine.control).for_each(|(to, _)| *to = word(next(8)));
        }
        if besides >= Besides::All {
            for (to, _) in to.vectors.iter_mut().zip(machine.vectors) {
                to.iter_mut().zip(next(abi.vector_bytes)).for_each(|(to, byte)| *to = byte.get());
            }
        }
    }

    fn wide(&self) -> Result<Vec<(&'static str, Vec<u8>)>> {
        let places = self.wide_places()?;
        let found = self.machine.read(places.iter().map(|(_, number, bytes)| (*number, *bytes)))?;
        let mut found = found.iter().map(Cell::get);
        let value = |(wide, _, bytes): (&Wide, u32, usize)| {
            let all: Vec<u8> = found.by_ref().take(bytes).collect();
            (wide.name, all.into_iter().skip(wide.known).collect())
        };
        Ok(places.into_iter().map(value).collect())
    }

    fn set_wide(&mut self, seed: Option<u64>) -> Result<()> {
        self.machine.want_wide(seed.is_some())?;
        let Some(seed) = seed else { return Ok(()) };
        let mut rng = Rng::new(seed, 0x300);
        if let Some((register, most)) = self.machine.bare.lengths {
            self.put(place(&self.machine, register, 8)?, 1 + rng.next() % (most as u64 - 1))?;
        }
        for (wide, number, bytes) in self.wide_places()?.into_iter().filter(|(wide, ..)| wide.set != 0) {
            let place = place(&self.machine, wide.name, bytes)?;
            if place.setter.is_some() {
                self.put(place, rng.canary() & wide.set)?;
                continue;
            }
            let value: Vec<u8> = (0..bytes).step_by(8).flat_map(|_| rng.canary().to_le_bytes()).take(bytes).collect();
            let mask: Vec<u8> = (0..bytes).map(|at| if at < wide.known { 0 } else { 0xff }).collect();
            self.machine.write_bits(number, &value, &mask)?;
        }
        Ok(())
    }

    fn write_all(&mut self, registers: &[i32], values: &[u64]) {
        let known =
            registers.iter().zip(values).filter_map(|(id, value)| Some((self.places.get(id).copied()?, *value)));
        // Whoever asks next learns that the process is gone.
        let _ = self.put_all(&known.collect::<Vec<_>>());
    }

    fn pc(&self) -> u64 {
        self.pc
    }

    fn go(&mut self, pc: u64) {
        self.pc = pc;
        if self.wanted == Told::GoOn {
            self.wanted = Told::Go;
        }
    }

    fn save(&self) -> Result<Saved> {
        let found = self.machine.read(self.places.values().map(|place| (place.number, place.bytes)))?;
        let mut found = found.iter().map(Cell::get);
        let kept = |(id, place): (&i32, &Place)| (*id, found.by_ref().take(place.bytes).collect());
        let all: Vec<(i32, Vec<u8>)> = self.places.iter().map(kept).collect();
        let shadow = match self.pointer {
            Some(pointer) => {
                let mut entries = vec![0; SHADOW_SIZE as usize];
                Engine::<D>::load(self, SHADOW_STACK, &mut entries);
                Some((self.get(pointer)?, entries))
            }
            None => None,
        };
        Ok(Saved(Box::new(Kept { registers: all, shadow })))
    }

    fn restore(&mut self, saved: &Saved) {
        let Some(Kept { registers, shadow }) = saved.0.downcast_ref() else { return };
        if let (Some(pointer), Some((value, entries))) = (self.pointer, shadow) {
            Engine::<D>::store(self, SHADOW_STACK, entries);
            let _ = self.put(pointer, *value);
        }
        let (mut words, mut others) = (Vec::new(), Vec::new());
        for (id, bytes) in registers {
            let Some(place) = self.places.get(id).copied() else { continue };
            match bytes.as_slice().try_into() {
                Ok(word) => words.push((place, u64::from_le_bytes(word))),
                Err(_) => others.push((place.number, bytes.as_slice())),
            }
        }
        // Whoever asks next learns that the process is gone.
        let _ = self.put_all(&words);
        let _ = self.machine.write(others.into_iter());
    }

    fn map(&mut self, at: u64, bytes: u64, holds: Holds) -> Result<()> {
        let page = if holds == Holds::Code { Page::Code } else { Page::Data };
        self.machine.map(at, bytes, page).map(drop)
    }

    fn load(&self, at: u64, to: &mut [u8]) -> bool {
        self.machine.each(at, to.len(), |from, cells| {
            to.iter_mut().skip(from).zip(cells).for_each(|(to, cell)| *to = cell.get());
        })
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.machine.each(at, bytes.len(), |from, cells| {
            cells.iter().zip(bytes.iter().skip(from)).for_each(|(cell, byte)| cell.set(*byte));
        })
    }

    fn write_code(&mut self, writes: &[Write]) -> Result<()> {
        writes.iter().try_for_each(|write| self.machine.write_code(write.at, &write.bytes))
    }

    fn run_at_most(&mut self, from: u64, until: u64, instructions: usize) -> Ended {
        let most = if instructions == 0 { u64::MAX } else { instructions as u64 };
        ended(self.call().and_then(|()| self.run_until_it_waits(from, until, most)))
    }

    fn go_on(&mut self, from: u64, until: u64) -> Ended {
        ended(self.run_until_it_waits(from, until, u64::MAX))
    }

    fn stop(&mut self) {
        self.wanted = Told::Stop;
    }

    fn tell_late(&mut self, late: Late) {
        let by_instruction = self.machine.tells_no_access() && !self.hooks.accesses.is_empty();
        let Ok(message) = self.machine.message() else { return };
        if by_instruction || !self.hooks.blocks.is_empty() {
            return;
        }
        let (everywhere, others): (Vec<_>, Vec<_>) =
            self.hooks.instructions.iter().partition(|(range, _)| *range == EVERYWHERE);
        if everywhere.len() > 1 {
            return;
        }
        let Range { mut start, mut end } = late.at;
        for (range, _) in others {
            if *range.start() > self.pc {
                end = end.min(*range.start());
            } else {
                start = start.max(range.end().saturating_add(1));
            }
        }
        if start < end {
            message.late_first.set(start);
            message.late_end.set(end);
            // No instruction is at 0.
            message.late_last.set(late.last.unwrap_or(0));
            message.most_late.set(late.most.min(PASSES as u64) as u32);
        }
    }

    fn on_instructions(&mut self, at: RangeInclusive<u64>, hook: OnInstruction<D>) -> Result<()> {
        self.hooks.instructions.push((at, kept(hook)));
        Ok(())
    }

    fn on_blocks(&mut self, hook: OnInstruction<D>) -> Result<()> {
        if self.machine.tells_no_access() {
            return Err(Error::new("emulator: the engine does not say where straight pieces of code begin"));
        }
        self.hooks.blocks.push(kept(hook));
        Ok(())
    }

    fn on_accesses(&mut self, which: Accesses, at: RangeInclusive<u64>, hook: OnAccess<D>) -> Result<Hook> {
        if self.hooks.accesses.len() == RANGES {
            return Err(Error::new("emulator: the engine has no room for another hook"));
        }
        let number = self.hooks.accesses.last().map_or(0, |last| last.number + 1);
        self.hooks.accesses.push(AccessHook { number, which, at, hook: kept(hook) });
        Ok(Hook(Box::new(number)))
    }

    fn on_missing_data(&mut self, hook: OnMissing<D>) -> Result<()> {
        self.hooks.missing_data.push(kept(hook));
        Ok(())
    }

    fn on_missing_code(&mut self, hook: OnMissing<D>) -> Result<()> {
        self.hooks.missing_code.push(kept(hook));
        Ok(())
    }

    fn can_tell_late(&self) -> bool {
        !self.is_late
    }

    fn has_all_instructions(&self) -> bool {
        true
    }

    fn pushed(&self) -> Option<u64> {
        let pointer = self.pointer.filter(|_| !self.has_all_calls())?;
        self.get(pointer).ok().map(|at| SHADOW_TOP.wrapping_sub(at))
    }

    fn enforces(&self) -> &'static [Guard] {
        if self.machine.mode == Mode::Enforced { self.machine.bare.enforces } else { &[] }
    }

    fn entered(&self) -> &'static [Entered] {
        if self.enforces().contains(&Guard::LandingPad) { self.machine.bare.entered } else { &[] }
    }

    fn is_stopped_at(&mut self, entry: u64, way: Entered) -> Result<bool> {
        let place = self.general.get(usize::from(way.reg.0)).copied();
        self.put(place.ok_or_else(|| Error::new("emulator: no register for an indirect branch"))?, entry)?;
        // Where a call pushes, there must be a shadow stack.
        self.call()?;
        let hooks = std::mem::take(&mut self.hooks);
        let ended = self.run_until_it_waits(self.machine.around() + way.at, entry.wrapping_sub(1), 1);
        self.hooks = hooks;
        Ok(ended?.is_some_and(|trap| trap.why == Why::Guard(Guard::LandingPad)))
    }

    fn on_guard(&mut self, hook: OnGuard<D>) -> Result<()> {
        self.hooks.guards.push(kept(hook));
        Ok(())
    }

    fn unhook(&mut self, hook: Hook) -> Result<()> {
        if let Some(number) = hook.0.downcast_ref::<usize>() {
            self.hooks.accesses.retain(|hook| hook.number != *number);
        }
        Ok(())
    }

    fn translate_anew(&mut self) -> Result<()> {
        // Hooks are looked for whenever an instruction runs.
        Ok(())
    }
}
