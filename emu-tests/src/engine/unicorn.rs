//! Unicorn as an [`Engine`].

use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::rc::Rc;

use codegen::arch::bare::{Entered, Guard};
use codegen::arch::patch::Write;
use codegen::backend::Backend;
use codegen::words::error::{Error, Result};
use unicorn_engine::{
    Arch, Context, ControlType, HookType, MemType, Mode, Prot, UcHookId, Unicorn, uc_error, uc_reg_read_batch2,
    uc_reg_write_batch2,
};

use super::interface::{
    Access, Accesses, EVERYWHERE, Ended, Engine, Holds, Hook, Late, OnAccess, OnGuard, OnInstruction, OnMissing, Saved,
    Trap, Why,
};
use super::memory::Memory;
use super::registers::{Besides, CONTROL, GENERAL, Registers, Snapshot, VECTORS};

/// The version of the engine that runs, as major and minor number.
pub fn engine_version() -> (u32, u32) {
    let (mut major, mut minor) = (0, 0);
    #[allow(unsafe_code, reason = "the binding has no safe way to ask which engine was linked")]
    // SAFETY: the function writes one number through each pointer, and both live until it returns.
    unsafe {
        unicorn_engine::uc_version(&raw mut major, &raw mut minor);
    }
    (major, minor)
}

/// What is said where Unicorn aborts, behind its own words.
const ABORTED: &[u8] = b"tramptool: the emulator gave up, for the reason above: it cannot run this code\n";

/// From now on, where Unicorn aborts the process, it ends with this code: it takes some encodings for impossible that hostile code has
/// (`g_assert_not_reached` in QEMU's translators).
///
/// # Errors
/// The system has no room for another handler.
pub fn end_where_it_aborts(code: i32) -> Result<()> {
    let end = move || {
        // Nobody is left to be told that stderr is closed.
        let _ = rustix::io::write(std::io::stderr(), ABORTED);
        signal_hook::low_level::exit(code);
    };
    #[allow(unsafe_code, reason = "a handler of signals may do few things")]
    // SAFETY: `end` makes two system calls, write and _exit, and takes no lock: POSIX allows both in a handler.
    let registered = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGABRT, end) };
    registered.map(drop).map_err(|e| Error::new(format!("emulator: a handler of SIGABRT: {e}")))
}

/// An engine for an architecture, with this memory.
///
/// # Errors
/// Unicorn does not have the architecture, or not the memory.
pub(super) fn open<D: 'static>(
    backend: &dyn Backend,
    memory: &Rc<Memory>,
    data: D,
) -> Result<Unicorn<'static, Held<D>>> {
    let machine = backend.machine();
    let arch = Arch::try_from(machine.arch as usize).map_err(failed("architecture"))?;
    let mode = Mode::try_from(machine.mode).map_err(failed("mode"))?;
    let held = Held { data, written: None, again: None };
    let mut uc = Unicorn::new_with_data(arch, mode, held).map_err(failed("open"))?;
    translate_into(&uc, TRANSLATED).map_err(failed("translation buffer"))?;
    uc.ctl_set_cpu_model(machine.cpu_model).map_err(failed("CPU model"))?;
    for &(id, value) in machine.init {
        uc.reg_write(id, value).map_err(failed("control register"))?;
    }
    lend(&mut uc, memory).map_err(failed("map"))?;
    Ok(uc)
}

/// What an engine holds.
pub(super) struct Held<D> {
    data: D,
    /// The last write that a hook was told of.
    written: Option<u64>,
    again: Option<Again>,
}

/// An instruction that is executed again, because it lacked memory.
///
/// A hook on missing memory may map some, and Unicorn 2.1 would then go on with an entry of its TLB that it has freed: mapping empties
/// the TLB, and once in 100 ms makes it smaller (`store_helper` and `tlb_mmu_resize_locked` in its cputlb.c). So the run ends there, and
/// goes on at the same instruction. Hooks hear of it once.
struct Again {
    pc: u64,
    /// The CPU as the instruction found it. A store ends the run a little later.
    before: Context,
    /// The run has not ended yet: what is executed meanwhile does not count.
    is_due: bool,
    /// What hooks have heard of already.
    instruction: bool,
    block: bool,
    write: Option<u64>,
}

impl<D> Held<D> {
    /// Has a hook on this instruction heard of it?
    fn knows(&mut self, pc: u64, of: fn(&mut Again) -> &mut bool) -> bool {
        let Some(again) = &mut self.again else { return false };
        if again.is_due || again.pc == pc && std::mem::take(of(again)) {
            return true;
        }
        if again.pc != pc {
            self.again = None;
        }
        false
    }

    /// Has a hook on this access heard of it?
    fn knows_access(&mut self, access: &Access) -> bool {
        if access.is_write {
            self.written = Some(access.at);
        }
        let Some(again) = &mut self.again else { return false };
        again.is_due || access.is_write && again.write.take_if(|known| *known == access.at).is_some()
    }
}

/// Bytes of the buffer for translated code. Unicorn's default is 1 GiB, and a process that may not reserve that is ended by the
/// engine. A buffer that is full is emptied.
const TRANSLATED: u32 = 4 << 20;

/// Set the size of an engine's translation buffer, in bytes, before its first memory is mapped.
fn translate_into<D>(uc: &Unicorn<'static, D>, bytes: u32) -> std::result::Result<(), uc_error> {
    let set = ControlType(ControlType::TCG_BUFFER_SIZE.0 | ControlType::IO_WRITE.0);
    #[allow(unsafe_code, reason = "the binding has no safe way to say how large the buffer is")]
    // SAFETY: the handle is that of an open engine, and UC_CTL_TCG_BUFFER_SIZE takes one uint32_t (uc_ctl in Unicorn's uc.c).
    unsafe { unicorn_engine::uc_ctl(uc.get_handle(), set, bytes) }.into()
}

/// Give memory to an engine, which keeps it.
fn lend<D: 'static>(uc: &mut Unicorn<'static, D>, memory: &Rc<Memory>) -> std::result::Result<(), uc_error> {
    for (from, is_stack, bytes) in memory.pieces() {
        if is_stack {
            let kept = Rc::clone(memory);
            // What a hook has lives as long as the engine. This one is for an address that is mapped, so that it is never called.
            uc.add_mem_hook(HookType::MEM_FETCH_UNMAPPED, from, from, move |_, _, _, _, _| {
                let _kept = &kept;
                false
            })?;
        }
        // Executable from the start: the engine misses code that becomes executable later.
        let executable = if is_stack { Prot::NONE } else { Prot::EXEC };
        let memory = bytes.as_ptr().cast_mut().cast();
        #[allow(unsafe_code, reason = "the binding lends an engine memory by its address alone")]
        // SAFETY: the memory has the size that is mapped, and begins where a page may. It may change behind references
        // to it, as it is made of cells, and the engine and whoever has them share one thread. The hook on the stack, which
        // comes first, keeps it until the engine is closed: the binding drops hooks later, and nobody has the number by which
        // to remove this one.
        unsafe {
            uc.mem_map_ptr(from, bytes.len() as u64, Prot::READ | Prot::WRITE | executable, memory)?;
        }
    }
    Ok(())
}

/// What Unicorn refused.
fn failed(what: &str) -> impl Fn(uc_error) -> Error {
    move |error| Error::new(format!("emulator: {what}: {error:?}"))
}

/// Unicorn's form of a range of addresses.
fn bounds(at: &RangeInclusive<u64>) -> (u64, u64) {
    if *at == EVERYWHERE { (1, 0) } else { (*at.start(), *at.end()) }
}

fn trap(error: uc_error) -> Trap {
    let why = match error {
        uc_error::EXCEPTION | uc_error::INSN_INVALID => Why::Breakpoint,
        uc_error::READ_UNMAPPED | uc_error::WRITE_UNMAPPED => Why::NoMemory,
        uc_error::FETCH_UNMAPPED => Why::NoCode,
        uc_error::FETCH_PROT => Why::NotCode,
        _ => Why::Other,
    };
    Trap { why, said: format!("{error:?}") }
}

/// Read general registers, and some besides: at most `MOST`.
fn read<D, const MOST: usize>(uc: &Unicorn<'_, D>, of: Registers, besides: Besides, all: &mut Snapshot) {
    let (mut ids, mut places, mut sizes) = ([0; MOST], [std::ptr::null_mut::<c_void>(); MOST], [8; MOST]);
    let mut slots = ids.iter_mut().zip(&mut places).zip(&mut sizes);
    let mut count = 0;
    // The registers come first in each pair: what ends first takes no slot.
    for ((reg, value), ((id, place), _)) in of.abi.regs.iter().zip(&mut all.gpr).zip(slots.by_ref()) {
        (*id, *place) = (reg.emu, std::ptr::from_mut(value).cast());
        count += 1;
    }
    let flags = of.machine.flags.filter(|_| besides >= Besides::Flags).map(|(reg, _)| (reg, &mut all.flags));
    let control = of.machine.control.iter().filter(|_| besides >= Besides::Control).map(|word| word.reg);
    for ((reg, value), ((id, place), _)) in flags.into_iter().chain(control.zip(&mut all.control)).zip(slots.by_ref()) {
        (*id, *place) = (reg.id, std::ptr::from_mut(value).cast());
        count += 1;
    }
    let vectors = if besides >= Besides::All { of.machine.vectors } else { &[] };
    for ((reg, value), ((id, place), size)) in vectors.iter().zip(&mut all.vectors).zip(slots) {
        (*id, *place, *size) = (reg.id, value.as_mut_ptr().cast(), of.abi.vector_bytes);
        count += 1;
    }
    #[allow(unsafe_code, reason = "the binding's own batch read returns garbage for registers narrower than 64 bits")]
    // SAFETY: the first `count` entries of the three arrays are a register, a place inside `all`, which outlives the
    // call, and the size of that place; the engine writes at most that many bytes to it.
    let read = unsafe { uc_reg_read_batch2(uc.get_handle(), ids.as_ptr(), places.as_ptr(), sizes.as_mut_ptr(), count) };
    debug_assert_eq!(read, uc_error::OK);
}

impl<D: 'static> Engine<D> for Unicorn<'_, Held<D>> {
    fn data(&self) -> &D {
        &self.get_data().data
    }

    fn data_mut(&mut self) -> &mut D {
        &mut self.get_data_mut().data
    }

    fn read(&self, register: i32) -> Result<u64> {
        self.reg_read(register).map_err(failed("read a register"))
    }

    fn write(&mut self, register: i32, value: u64) -> Result<()> {
        self.reg_write(register, value).map_err(failed("set a register"))
    }

    fn read_bytes(&self, register: i32, to: &mut [u8]) -> Result<()> {
        let found = match to.len() {
            ..=8 => self.reg_read(register).map(|word| word.to_le_bytes().to_vec()),
            _ => self.reg_read_long(register).map(<[u8]>::into_vec),
        };
        let found = found.map_err(failed("read a register"))?;
        to.iter_mut().zip(found).for_each(|(to, from)| *to = from);
        Ok(())
    }

    fn write_bytes(&mut self, register: i32, value: &[u8]) -> Result<()> {
        let mut word = [0; 8];
        let written = match word.get_mut(..value.len()) {
            Some(low) => {
                low.copy_from_slice(value);
                self.reg_write(register, u64::from_le_bytes(word))
            }
            None => self.reg_write_long(register, value),
        };
        written.map_err(failed("set a register"))
    }

    fn snapshot(&self, registers: Registers, besides: Besides, to: &mut Snapshot) {
        match besides {
            Besides::Nothing => read::<Held<D>, GENERAL>(self, registers, besides, to),
            Besides::Flags => read::<Held<D>, { GENERAL + 1 }>(self, registers, besides, to),
            Besides::Control => read::<Held<D>, { GENERAL + 1 + CONTROL }>(self, registers, besides, to),
            Besides::All => read::<Held<D>, { GENERAL + 1 + CONTROL + VECTORS }>(self, registers, besides, to),
        }
    }

    fn wide(&self) -> Result<Vec<(&'static str, Vec<u8>)>> {
        Ok(Vec::new())
    }

    fn set_wide(&mut self, _: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn write_all(&mut self, registers: &[i32], values: &[u64]) {
        let (mut places, mut sizes) = ([std::ptr::null::<u64>(); GENERAL + 1], [8; GENERAL + 1]);
        let count = places.iter_mut().zip(values).map(|(place, value)| *place = value).count().min(registers.len());
        debug_assert_eq!(count, values.len());
        #[allow(unsafe_code, reason = "the binding's own batch write allocates twice, and a run has several")]
        // SAFETY: the first `count` entries of the three arrays are a register, the place of its value and the size of that
        // place, of which the engine reads no more; all live until the call returns.
        let written = unsafe {
            let (places, sizes) = (places.as_ptr().cast(), sizes.as_mut_ptr());
            uc_reg_write_batch2(self.get_handle(), registers.as_ptr(), places, sizes, count as i32)
        };
        debug_assert_eq!(written, uc_error::OK);
    }

    fn pc(&self) -> u64 {
        self.pc_read().unwrap_or(0)
    }

    fn go(&mut self, pc: u64) {
        let _ = self.set_pc(pc);
    }

    fn save(&self) -> Result<Saved> {
        let saved = self.context_init().map_err(failed("save the CPU"))?;
        Ok(Saved(Box::new(saved)))
    }

    fn restore(&mut self, saved: &Saved) {
        let restored = saved.0.downcast_ref::<Context>().map(|saved| self.context_restore(saved));
        debug_assert_eq!(restored, Some(Ok(())));
    }

    fn map(&mut self, at: u64, bytes: u64, holds: Holds) -> Result<()> {
        let executable = if holds == Holds::Code { Prot::EXEC } else { Prot::NONE };
        self.mem_map(at, bytes, Prot::READ | Prot::WRITE | executable).map_err(failed("map"))
    }

    fn load(&self, at: u64, to: &mut [u8]) -> bool {
        self.mem_read(at, to).is_ok()
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.mem_write(at, bytes).is_ok()
    }

    fn write_code(&mut self, writes: &[Write]) -> Result<()> {
        for write in writes {
            self.mem_write(write.at, &write.bytes).map_err(failed("patch"))?;
            // It does not notice by itself.
            let end = write.at + write.bytes.len() as u64;
            self.ctl_remove_cache(write.at, end).map_err(failed("patch"))?;
        }
        Ok(())
    }

    fn run_at_most(&mut self, from: u64, until: u64, instructions: usize) -> Ended {
        self.get_data_mut().again = None;
        let mut from = from;
        loop {
            let ended = self.emu_start(from, until, 0, instructions).map_err(trap);
            let Some(mut again) = self.get_data_mut().again.take_if(|again| again.is_due) else { return ended };
            self.context_restore(&again.before).map_err(trap)?;
            (from, again.is_due) = (again.pc, false);
            self.get_data_mut().again = Some(again);
        }
    }

    fn stop(&mut self) {
        let _ = self.emu_stop();
    }

    fn tell_late(&mut self, _: Late) {
        // A call costs little here.
    }

    fn on_instructions(&mut self, at: RangeInclusive<u64>, mut hook: OnInstruction<D>) -> Result<()> {
        let (begin, end) = bounds(&at);
        let added = self.add_code_hook(begin, end, move |uc, pc, size| {
            if !uc.get_data_mut().knows(pc, |again| &mut again.instruction) {
                hook(uc, pc, size as usize);
            }
        });
        added.map(drop).map_err(failed("hook"))
    }

    fn on_blocks(&mut self, mut hook: OnInstruction<D>) -> Result<()> {
        let added = self.add_block_hook(1, 0, move |uc, pc, size| {
            if !uc.get_data_mut().knows(pc, |again| &mut again.block) {
                hook(uc, pc, size as usize);
            }
        });
        added.map(drop).map_err(failed("hook"))
    }

    fn on_accesses(&mut self, which: Accesses, at: RangeInclusive<u64>, mut hook: OnAccess<D>) -> Result<Hook> {
        let kind = match which {
            Accesses::Reads => HookType::MEM_READ,
            Accesses::Writes => HookType::MEM_WRITE,
            Accesses::All => HookType::MEM_READ | HookType::MEM_WRITE,
        };
        let (begin, end) = bounds(&at);
        let added = self.add_mem_hook(kind, begin, end, move |uc, kind, at, bytes, _| {
            let access = Access { at, bytes, is_write: kind == MemType::WRITE };
            if !uc.get_data_mut().knows_access(&access) {
                hook(uc, access);
            }
            true
        });
        added.map(|id| Hook(Box::new(id))).map_err(failed("hook"))
    }

    fn on_missing_data(&mut self, mut hook: OnMissing<D>) -> Result<()> {
        let kind = HookType::MEM_READ_UNMAPPED | HookType::MEM_WRITE_UNMAPPED;
        let added = self.add_mem_hook(kind, 1, 0, move |uc, kind, at, _, _| {
            let due = uc.get_data().again.as_ref().is_some_and(|again| again.is_due);
            if !due && let (true, Ok(before)) = (hook(uc, at), uc.context_init()) {
                let pc = uc.pc_read().unwrap_or(0);
                let held = uc.get_data_mut();
                let write = held.written.filter(|_| kind == MemType::WRITE_UNMAPPED);
                held.again = Some(Again { pc, before, is_due: true, instruction: true, block: true, write });
            }
            false
        });
        added.map(drop).map_err(failed("hook"))
    }

    fn on_missing_code(&mut self, mut hook: OnMissing<D>) -> Result<()> {
        let added = self.add_mem_hook(HookType::MEM_FETCH_UNMAPPED, 1, 0, move |uc, _, at, _, _| hook(uc, at));
        added.map(drop).map_err(failed("hook"))
    }

    fn can_tell_late(&self) -> bool {
        false
    }

    fn has_all_instructions(&self) -> bool {
        false
    }

    fn pushed(&self) -> Option<u64> {
        None
    }

    fn enforces(&self) -> &'static [Guard] {
        &[]
    }

    fn entered(&self) -> &'static [Entered] {
        &[]
    }

    fn is_stopped_at(&mut self, _: u64, _: Entered) -> Result<bool> {
        Err(Error::new("emulator: Unicorn enforces no protection"))
    }

    fn on_guard(&mut self, _: OnGuard<D>) -> Result<()> {
        Err(Error::new("emulator: Unicorn enforces no protection"))
    }

    fn unhook(&mut self, hook: Hook) -> Result<()> {
        let id = hook.0.downcast_ref::<UcHookId>();
        id.map_or(Ok(()), |id| self.remove_hook(*id)).map_err(failed("hook"))
    }

    fn translate_anew(&mut self) -> Result<()> {
        self.ctl_flush_tb().map_err(failed("translate anew"))
    }
}
