//! The emulated CPU: registers by the architecture's tables, memory by the image's segments.

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::{Index, IndexMut, Range};
use std::rc::Rc;

use codegen::arch::machine::Machine;
use codegen::arch::patch::Write;
use codegen::backend::Backend;
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::error::{Error, Result};
use link::{Image, PAGE};
use unicorn_engine::{Arch, HookType, Mode, Prot, Unicorn, uc_error, uc_reg_read_batch2, uc_reg_write_batch};

/// Top of the stack area; the functions under test start a little below. Like every address of data here it has bits set in both
/// halves, the highest of the lower one too: half of it, with zeros or signs above, leads elsewhere.
pub(crate) const STACK_TOP: u64 = 0x6d_c9a4_0000;
pub(crate) const STACK_SIZE: u64 = 0x1_0000;
/// Where the function under test returns to, on a page of its own.
pub(crate) const EXIT: u64 = 0x6b_b852_0000;

/// Addresses with one bit each, which no register has in the runs that use them ([`crate::run::case::Case::sparse`]): a direct
/// trampoline is reached by the one, a function that others are redirected to by the other. A test of some of the bits, or of
/// another register too, takes them for nothing; and nothing but a branch that goes there arrives.
pub(crate) const SPARSE_DIRECT: u64 = 1 << 41;
pub(crate) const SPARSE_LIVEPATCH: u64 = 1 << 42;
/// What stands for a direct trampoline that sites jump to is here, and nowhere else: it goes straight on in the function.
pub(crate) const SPARSE_JUMP: u64 = 1 << 43;
/// What is called in a callback's place returns here, where no trampoline calls it.
pub(crate) const SPARSE_BACK: u64 = 1 << 44;

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

/// What a [`Snapshot`] has room for: general registers, control words, vector registers, bytes of one.
pub(crate) const GENERAL: usize = 32;
const CONTROL: usize = 2;
const VECTORS: usize = 32;
pub(crate) const VECTOR: usize = 16;

/// All general registers that a snapshot has room for.
const ALL: RegSet = {
    let (mut all, mut n) = ([Reg(0); GENERAL], 0);
    while n < GENERAL {
        all[n] = Reg(n as u8);
        n += 1;
    }
    RegSet::of(&all)
};

/// The registers at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Snapshot {
    pub gpr: [u64; GENERAL],
    pub flags: u64,
    pub control: [u64; CONTROL],
    pub vectors: [[u8; VECTOR]; VECTORS],
}

impl Snapshot {
    /// The general registers that hold the same in both.
    pub fn same(&self, other: &Snapshot) -> RegSet {
        let mut same = ALL;
        let fours = self.gpr.as_chunks::<4>().0.iter().zip(other.gpr.as_chunks::<4>().0);
        // Nearly all are the same: four at once.
        for (n, (ours, theirs)) in (0..).step_by(4).zip(fours).filter(|(_, (ours, theirs))| ours != theirs) {
            for (n, _) in (n..).zip(ours.iter().zip(theirs)).filter(|(_, (a, b))| a != b) {
                same = same.minus(RegSet::of(&[Reg(n)]));
            }
        }
        same
    }
}

impl Index<Reg> for Snapshot {
    type Output = u64;

    fn index(&self, reg: Reg) -> &u64 {
        &self.gpr[usize::from(reg.0)]
    }
}

impl IndexMut<Reg> for Snapshot {
    fn index_mut(&mut self, reg: Reg) -> &mut u64 {
        &mut self.gpr[usize::from(reg.0)]
    }
}

/// Registers of 64 bits that are to be set, by the engine's numbers, with their values: general ones and the flags.
struct Words {
    ids: [i32; GENERAL + 1],
    values: [u64; GENERAL + 1],
    count: usize,
}

impl Words {
    const NONE: Words = Words { ids: [0; GENERAL + 1], values: [0; GENERAL + 1], count: 0 };

    fn push(&mut self, id: i32, value: u64) {
        if let (Some(to), Some(slot)) = (self.ids.get_mut(self.count), self.values.get_mut(self.count)) {
            (*to, *slot) = (id, value);
            self.count += 1;
        }
    }

    /// Set them.
    fn write<D>(&self, uc: &mut Cpu<'_, D>) {
        let places = self.values.each_ref().map(std::ptr::from_ref);
        #[allow(unsafe_code, reason = "the binding's own batch write allocates twice, and a run has several")]
        // SAFETY: the first `count` entries of the two arrays are a register and the place of its value, which the engine
        // reads; `count` is at most their length, and both live until the call returns. A register of the tables exists, and
        // has no more than 64 bits: the engine's tables are compared with ours in a test.
        let written = unsafe {
            uc_reg_write_batch(uc.get_handle(), self.ids.as_ptr(), places.as_ptr().cast(), self.count as i32)
        };
        debug_assert_eq!(written, uc_error::OK);
    }
}

/// What is read of a CPU besides general registers: each has what the one before it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Besides {
    Nothing,
    Flags,
    Control,
    All,
}

/// What reading and writing registers needs.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub machine: &'static Machine,
    pub abi: &'static Abi,
}

/// The engine, with what its hooks work on.
pub(crate) type Cpu<'a, D> = Unicorn<'a, D>;

fn engine(what: &str, error: uc_error) -> Error {
    Error::new(format!("emulator: {what}: {error:?}"))
}

impl Registers {
    /// Those of an architecture.
    ///
    /// # Errors
    /// It has more, or larger ones, than a snapshot has room for.
    pub fn of(machine: &'static Machine, abi: &'static Abi) -> Result<Registers> {
        for (what, n, most) in [
            ("general registers", abi.regs.len(), GENERAL),
            ("control words", machine.control.len(), CONTROL),
            ("vector registers", machine.vectors.len(), VECTORS),
            ("bytes of a vector register", abi.vector_bytes, VECTOR),
        ] {
            if n > most {
                return Err(Error::new(format!("emulator: {n} {what}; valid: at most {most}")));
            }
        }
        Ok(Registers { machine, abi })
    }

    fn id(&self, reg: Reg) -> i32 {
        self.abi.regs.get(reg.0 as usize).map_or(0, |r| r.emu)
    }

    pub fn get<D>(&self, uc: &Cpu<'_, D>, reg: Reg) -> u64 {
        uc.reg_read(self.id(reg)).unwrap_or(0)
    }

    pub fn set<D>(&self, uc: &mut Cpu<'_, D>, reg: Reg, value: u64) {
        if !self.machine.reserved.contains(reg) {
            // A register of the table exists: the engine's table is compared with ours in a test.
            let _ = uc.reg_write(self.id(reg), value);
        }
    }

    /// Set several registers, in one call.
    pub fn set_all<D>(&self, uc: &mut Cpu<'_, D>, all: impl Iterator<Item = (Reg, u64)>) {
        let mut words = Words::NONE;
        for (reg, value) in all.filter(|(reg, _)| !self.machine.reserved.contains(*reg)) {
            words.push(self.id(reg), value);
        }
        words.write(uc);
    }

    pub fn sp<D>(&self, uc: &Cpu<'_, D>) -> u64 {
        self.get(uc, self.abi.sp)
    }

    pub fn set_vector<D>(&self, uc: &mut Cpu<'_, D>, i: usize, value: &[u8; VECTOR]) {
        let id = self.machine.vectors[i].id;
        let _ = if self.abi.vector_bytes == 8 {
            let mut low = [0; 8];
            low.copy_from_slice(&value[..8]);
            uc.reg_write(id, u64::from_le_bytes(low))
        } else {
            uc.reg_write_long(id, value)
        };
    }

    /// Set the bits that arithmetic sets; leave the others.
    pub fn set_flags<D>(&self, uc: &mut Cpu<'_, D>, value: u64) {
        if let Some((reg, mask)) = self.machine.flags {
            let old = uc.reg_read(reg.id).unwrap_or(0);
            let _ = uc.reg_write(reg.id, old & !mask | value & mask);
        }
    }

    /// All registers, in one call: a run takes several snapshots.
    pub fn snapshot<D>(&self, uc: &Cpu<'_, D>) -> Snapshot {
        let mut all = Snapshot::default();
        self.read::<D, { GENERAL + 1 + CONTROL + VECTORS }>(uc, &mut all, Besides::All);
        all
    }

    /// All but the vector registers.
    pub fn general<D>(&self, uc: &Cpu<'_, D>) -> Snapshot {
        let mut all = Snapshot::default();
        self.read::<D, { GENERAL + 1 + CONTROL }>(uc, &mut all, Besides::Control);
        all
    }

    /// The general registers and the flags, where vector registers and control words are those of `known`.
    pub fn general_beside<D>(&self, uc: &Cpu<'_, D>, known: &Snapshot) -> Snapshot {
        let mut all = known.clone();
        self.read::<D, { GENERAL + 1 }>(uc, &mut all, Besides::Flags);
        all
    }

    /// The general registers alone.
    pub fn only_general<D>(&self, uc: &Cpu<'_, D>, all: &mut Snapshot) {
        self.read::<D, GENERAL>(uc, all, Besides::Nothing);
    }

    /// Read general registers, and some besides: at most `MOST`.
    fn read<D, const MOST: usize>(&self, uc: &Cpu<'_, D>, all: &mut Snapshot, besides: Besides) {
        let (mut ids, mut places, mut sizes) = ([0; MOST], [std::ptr::null_mut::<c_void>(); MOST], [8; MOST]);
        let mut slots = ids.iter_mut().zip(&mut places).zip(&mut sizes);
        let mut count = 0;
        // The registers come first in each pair: what ends first takes no slot.
        for ((reg, value), ((id, place), _)) in self.abi.regs.iter().zip(&mut all.gpr).zip(slots.by_ref()) {
            (*id, *place) = (reg.emu, std::ptr::from_mut(value).cast());
            count += 1;
        }
        let flags = self.machine.flags.filter(|_| besides >= Besides::Flags).map(|(reg, _)| (reg, &mut all.flags));
        let control = self.machine.control.iter().filter(|_| besides >= Besides::Control).map(|word| word.reg);
        for ((reg, value), ((id, place), _)) in
            flags.into_iter().chain(control.zip(&mut all.control)).zip(slots.by_ref())
        {
            (*id, *place) = (reg.id, std::ptr::from_mut(value).cast());
            count += 1;
        }
        let vectors = if besides >= Besides::All { self.machine.vectors } else { &[] };
        for ((reg, value), ((id, place), size)) in vectors.iter().zip(&mut all.vectors).zip(slots) {
            (*id, *place, *size) = (reg.id, value.as_mut_ptr().cast(), self.abi.vector_bytes);
            count += 1;
        }
        #[allow(
            unsafe_code,
            reason = "the binding's own batch read returns garbage for registers narrower than 64 bits"
        )]
        // SAFETY: the first `count` entries of the three arrays are a register, a place inside `all`, which outlives the
        // call, and the size of that place; the engine writes at most that many bytes to it.
        let read =
            unsafe { uc_reg_read_batch2(uc.get_handle(), ids.as_ptr(), places.as_ptr(), sizes.as_mut_ptr(), count) };
        debug_assert_eq!(read, uc_error::OK);
    }

    /// Give every control word the value that it has in runs.
    ///
    /// # Errors
    /// The engine does not take one: what became of it would not show.
    pub fn set_control<D>(&self, uc: &mut Cpu<'_, D>) -> Result<()> {
        for word in self.machine.control {
            uc.reg_write(word.reg.id, word.value).map_err(|e| engine(word.reg.name, e))?;
        }
        let found = self.general(uc).control;
        match self.machine.control.iter().zip(found).find(|(word, found)| word.value != *found) {
            Some((word, found)) => {
                Err(Error::new(format!("emulator: {} is {found:#x} when set to {:#x}", word.reg.name, word.value)))
            }
            None => Ok(()),
        }
    }

    /// Set general registers and flags; the others are part of the engine's fresh state.
    pub fn load<D>(&self, uc: &mut Cpu<'_, D>, all: &Snapshot) {
        let old = self.machine.flags.and_then(|(reg, _)| uc.reg_read(reg.id).ok());
        self.load_over(uc, all, old.unwrap_or(0));
    }

    /// The same, in one call. What no case sets of the flags is as in `flags`. Returns what the flags are.
    pub fn load_over<D>(&self, uc: &mut Cpu<'_, D>, all: &Snapshot, flags: u64) -> u64 {
        let mut words = Words::NONE;
        for (n, (info, &value)) in (0..).zip(self.abi.regs.iter().zip(&all.gpr)) {
            if !self.machine.reserved.contains(Reg(n)) {
                words.push(info.emu, value);
            }
        }
        let mut set = 0;
        if let Some((reg, mask)) = self.machine.flags {
            let mask = mask | self.machine.clear_flags();
            set = flags & !mask | all.flags & mask;
            words.push(reg.id, set);
        }
        words.write(uc);
        set
    }

    /// Are the flags set that are clear where C code begins?
    pub fn unclear_flags<D>(&self, uc: &Cpu<'_, D>) -> u64 {
        let flags = self.machine.flags.and_then(|(reg, _)| uc.reg_read(reg.id).ok());
        flags.unwrap_or(0) & self.machine.clear_flags()
    }
}

/// Memory reads that fail are zero: the caller compares with what it expects there.
pub(crate) fn word<D>(uc: &Cpu<'_, D>, at: u64) -> u64 {
    let mut bytes = [0; 8];
    match uc.mem_read(at, &mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

/// The words from `at` on; zero where there is no memory, as with [`word`].
pub(crate) fn words<D>(uc: &Cpu<'_, D>, at: u64, bytes: usize) -> Vec<u64> {
    let mut all = vec![0; bytes];
    let _ = uc.mem_read(at, &mut all);
    all.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect()
}

pub(crate) fn put_word<D>(uc: &mut Cpu<'_, D>, at: u64, value: u64) -> bool {
    uc.mem_write(at, &value.to_le_bytes()).is_ok()
}

/// These ranges, with those in one that follow each other without a gap: the engine lays out its memory anew for each.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Memory of an engine, from an address on. Checks read and write it without asking the engine, whose way to it is long.
struct Mapping {
    from: u64,
    size: usize,
    /// The first page begins so many bytes into the cells.
    pad: usize,
    cells: Box<[Cell<u8>]>,
}

impl Mapping {
    /// Whole pages of zeros.
    fn of(range: &Range<u64>) -> Mapping {
        let size = (range.end - range.start) as usize;
        let cells: Box<[Cell<u8>]> = vec![Cell::new(0); size + PAGE as usize].into();
        let pad = cells.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
        Mapping { from: range.start, size, pad, cells }
    }

    fn pages(&self) -> &[Cell<u8>] {
        self.cells.get(self.pad..self.pad + self.size).unwrap_or_default()
    }
}

/// The memory of the stack and of images.
pub(crate) struct Memory(Vec<Mapping>);

impl Memory {
    /// For these images, and a stack.
    pub fn of<'i>(images: impl Iterator<Item = &'i Image>) -> Rc<Memory> {
        let segments = images.flat_map(|image| &image.segments);
        let pages = segments.map(|s| s.address & !(PAGE - 1)..(s.address + s.mem_size).next_multiple_of(PAGE));
        // The stack is asked for most.
        let all = std::iter::once(STACK_TOP - STACK_SIZE..STACK_TOP).chain(joined(pages.collect()));
        Rc::new(Memory(all.map(|range| Mapping::of(&range)).collect()))
    }

    fn cells(&self, at: u64, size: usize) -> Option<&[Cell<u8>]> {
        let inside = |m: &&Mapping| at.wrapping_sub(m.from) < m.size as u64;
        let mapping = self.0.iter().find(inside)?;
        let from = (at - mapping.from) as usize;
        mapping.pages().get(from..from.checked_add(size)?)
    }

    /// Read what is at an address; false if that is not in this memory.
    pub fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let cells = self.cells(at, to.len());
        cells.map(|cells| to.iter_mut().zip(cells).for_each(|(byte, cell)| *byte = cell.get())).is_some()
    }

    /// Write data to an address; false if that is not in this memory. Code is written with [`write_code`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let cells = self.cells(at, bytes.len());
        cells.map(|cells| cells.iter().zip(bytes).for_each(|(cell, byte)| cell.set(*byte))).is_some()
    }

    /// Give it to an engine, which keeps it.
    fn map<D: 'static>(self: Rc<Memory>, uc: &mut Cpu<'static, D>) -> std::result::Result<(), uc_error> {
        const STACK: u64 = STACK_TOP - STACK_SIZE;
        let kept = Rc::clone(&self);
        // What a hook has lives as long as the engine. This one is for an address that is mapped, so that it is never called.
        uc.add_mem_hook(HookType::MEM_FETCH_UNMAPPED, STACK, STACK, move |_, _, _, _, _| {
            let _kept = &kept;
            false
        })?;
        for mapping in &self.0 {
            // Executable from the start: the engine misses code that becomes executable later.
            let executable = if mapping.from == STACK { Prot::NONE } else { Prot::EXEC };
            let memory = mapping.pages().as_ptr().cast_mut().cast();
            #[allow(unsafe_code, reason = "the binding lends an engine memory by its address alone")]
            // SAFETY: the memory has the size that is mapped, and begins where a page may. It may change behind references
            // to it, as it is made of cells, and the engine and whoever has them share one thread. The hook keeps it until
            // the engine is closed: the binding drops hooks later, and nobody has the number by which to remove this one.
            unsafe {
                let prot = Prot::READ | Prot::WRITE | executable;
                uc.mem_map_ptr(mapping.from, mapping.size as u64, prot, memory)?;
            }
        }
        Ok(())
    }
}

/// Make an engine with the images and a stack in it.
pub(crate) fn load<'i, D: 'static>(
    backend: &dyn Backend,
    images: impl Iterator<Item = &'i Image>,
    data: D,
) -> Result<Cpu<'static, D>> {
    let images: Vec<&Image> = images.collect();
    load_on(backend, images.iter().copied(), Memory::of(images.iter().copied()), data)
}

/// The same, in the memory that was made for them.
pub(crate) fn load_on<'i, D: 'static>(
    backend: &dyn Backend,
    images: impl Iterator<Item = &'i Image>,
    memory: Rc<Memory>,
    data: D,
) -> Result<Cpu<'static, D>> {
    let machine = backend.machine();
    let arch = Arch::try_from(machine.arch as usize).map_err(|e| engine("architecture", e))?;
    let mode = Mode::try_from(machine.mode).map_err(|e| engine("mode", e))?;
    let mut uc = Unicorn::new_with_data(arch, mode, data).map_err(|e| engine("open", e))?;
    uc.ctl_set_cpu_model(machine.cpu_model).map_err(|e| engine("CPU model", e))?;
    for &(id, value) in machine.init {
        uc.reg_write(id, value).map_err(|e| engine("control register", e))?;
    }
    memory.map(&mut uc).map_err(|e| engine("map", e))?;
    for segment in images.flat_map(|image| &image.segments) {
        uc.mem_write(segment.address, &segment.bytes).map_err(|e| engine("load segment", e))?;
    }
    uc.mem_map(EXIT, PAGE, Prot::ALL).map_err(|e| engine("map exit page", e))?;
    Ok(uc)
}

/// Let there be code at the addresses with one bit: no more than the hook on every instruction ever reaches it.
pub(crate) fn map_sparse<D>(uc: &mut Cpu<'_, D>, ret: &[u8]) -> Result<()> {
    let failed = |e| engine("addresses with one bit", e);
    for at in [SPARSE_DIRECT, SPARSE_LIVEPATCH] {
        uc.mem_map(at, PAGE, Prot::ALL).map_err(failed)?;
        uc.mem_write(at, ret).map_err(failed)?;
    }
    // No instruction is ever executed there, so none that would count as a return may stand there.
    [SPARSE_JUMP, SPARSE_BACK].into_iter().try_for_each(|at| uc.mem_map(at, PAGE, Prot::ALL).map_err(failed))
}

/// Write code and drop what the engine translated there: it does not notice by itself.
pub(crate) fn write_code<D>(uc: &mut Cpu<'_, D>, writes: &[Write]) -> Result<()> {
    for write in writes {
        uc.mem_write(write.at, &write.bytes).map_err(|e| engine("patch", e))?;
        let end = write.at + write.bytes.len() as u64;
        uc.ctl_remove_cache(write.at, end).map_err(|e| engine("patch", e))?;
    }
    Ok(())
}
