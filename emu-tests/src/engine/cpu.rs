//! The emulated CPU: registers by the architecture's tables, memory by the image's segments.

use codegen::words::abi::Reg;
use codegen::words::error::{Error, Result};

use super::interface::Cpu;
use super::registers::{Besides, GENERAL, Registers, Snapshot, VECTOR};

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
/// A context that a switch goes to goes on here.
pub(crate) const SPARSE_OTHER: u64 = 1 << 45;

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
        uc.write_all(&self.ids[..self.count], &self.values[..self.count]);
    }
}

impl Registers {
    fn id(&self, reg: Reg) -> i32 {
        self.abi.regs.get(reg.0 as usize).map_or(0, |r| r.emu)
    }

    pub fn get<D>(&self, uc: &Cpu<'_, D>, reg: Reg) -> u64 {
        uc.read(self.id(reg)).unwrap_or(0)
    }

    pub fn set<D>(&self, uc: &mut Cpu<'_, D>, reg: Reg, value: u64) {
        if !self.machine.reserved.contains(reg) {
            // A register of the table exists: the engine's table is compared with ours in a test.
            let _ = uc.write(self.id(reg), value);
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
        // A register of the table exists, as above.
        let _ = uc.write_bytes(self.machine.vectors[i].id, &value[..self.abi.vector_bytes]);
    }

    /// Set the bits that arithmetic sets; leave the others.
    pub fn set_flags<D>(&self, uc: &mut Cpu<'_, D>, value: u64) {
        if let Some((reg, mask)) = self.machine.flags {
            let old = uc.read(reg.id).unwrap_or(0);
            let _ = uc.write(reg.id, old & !mask | value & mask);
        }
    }

    /// All registers, in one call: a run takes several snapshots.
    pub fn snapshot<D>(&self, uc: &Cpu<'_, D>) -> Snapshot {
        let mut all = Snapshot::default();
        uc.snapshot(*self, Besides::All, &mut all);
        all
    }

    /// All but the vector registers.
    pub fn general<D>(&self, uc: &Cpu<'_, D>) -> Snapshot {
        let mut all = Snapshot::default();
        uc.snapshot(*self, Besides::Control, &mut all);
        all
    }

    /// The general registers and the flags, where vector registers and control words are those of `known`.
    pub fn general_beside<D>(&self, uc: &Cpu<'_, D>, known: &Snapshot) -> Snapshot {
        let mut all = known.clone();
        uc.snapshot(*self, Besides::Flags, &mut all);
        all
    }

    /// The general registers alone.
    pub fn only_general<D>(&self, uc: &Cpu<'_, D>, all: &mut Snapshot) {
        uc.snapshot(*self, Besides::Nothing, all);
    }

    /// Give every control word the value that it has in runs.
    ///
    /// # Errors
    /// The engine does not take one: what became of it would not show.
    pub fn set_control<D>(&self, uc: &mut Cpu<'_, D>) -> Result<()> {
        for word in self.machine.control {
            uc.write(word.reg.id, word.value).map_err(|e| e.at(word.reg.name))?;
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
        let old = self.machine.flags.and_then(|(reg, _)| uc.read(reg.id).ok());
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
        let flags = self.machine.flags.and_then(|(reg, _)| uc.read(reg.id).ok());
        flags.unwrap_or(0) & self.machine.clear_flags()
    }
}

/// Memory reads that fail are zero: the caller compares with what it expects there.
pub(crate) fn word<D>(uc: &Cpu<'_, D>, at: u64) -> u64 {
    let mut bytes = [0; 8];
    if uc.load(at, &mut bytes) { u64::from_le_bytes(bytes) } else { 0 }
}

/// The words from `at` on; zero where there is no memory, as with [`word`].
pub(crate) fn words<D>(uc: &Cpu<'_, D>, at: u64, bytes: usize) -> Vec<u64> {
    let mut all = vec![0; bytes];
    uc.load(at, &mut all);
    all.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect()
}

pub(crate) fn put_word<D>(uc: &mut Cpu<'_, D>, at: u64, value: u64) -> bool {
    uc.store(at, &value.to_le_bytes())
}
