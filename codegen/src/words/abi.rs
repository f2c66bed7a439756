//! Registers, register sets, and the conventions by which code is entered and left.

use std::fmt;

/// A general register: an index into [`Abi::regs`] of its architecture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg(pub u8);

/// A set of general registers of one architecture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegSet(u64);

impl FromIterator<Reg> for RegSet {
    fn from_iter<I: IntoIterator<Item = Reg>>(regs: I) -> RegSet {
        let mut all = RegSet::EMPTY;
        regs.into_iter().for_each(|reg| all.insert(reg));
        all
    }
}

impl RegSet {
    /// The empty set.
    pub const EMPTY: RegSet = RegSet(0);

    /// The set of the registers listed.
    pub const fn of(regs: &[Reg]) -> RegSet {
        let (mut bits, mut i) = (0, 0);
        while i < regs.len() {
            bits |= 1 << regs[i].0;
            i += 1;
        }
        RegSet(bits)
    }

    /// Is `reg` in the set?
    pub const fn contains(self, reg: Reg) -> bool {
        self.0 >> reg.0 & 1 == 1
    }

    /// Add `reg`.
    pub fn insert(&mut self, reg: Reg) {
        self.0 |= 1 << reg.0;
    }

    /// The registers of either set.
    pub const fn union(self, other: RegSet) -> RegSet {
        RegSet(self.0 | other.0)
    }

    /// The registers of this set that are not in `other`.
    pub const fn minus(self, other: RegSet) -> RegSet {
        RegSet(self.0 & !other.0)
    }

    /// The registers that both sets have.
    pub const fn intersection(self, other: RegSet) -> RegSet {
        RegSet(self.0 & other.0)
    }

    /// The number of registers in the set.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The registers, lowest index first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| Reg(left.trailing_zeros() as u8));
            left &= left.wrapping_sub(1);
            next
        })
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|r| r.0)).finish()
    }
}

/// One row of an architecture's register table.
#[derive(Debug)]
pub struct RegInfo {
    /// The name in the architecture's manual, without an assembler's prefix.
    pub name: &'static str,
    /// The register's number in the DWARF mapping of the psABI.
    pub dwarf: u16,
    /// The register's number in Unicorn's C header of this architecture.
    pub emu: i32,
}

/// The location of a value when a trampoline's first instruction executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loc {
    /// In a register.
    Reg(Reg),
    /// In memory, this many bytes above SP.
    Stack(i32),
}

impl Loc {
    /// The register; `None` for a location in memory.
    pub fn reg(self) -> Option<Reg> {
        match self {
            Loc::Reg(reg) => Some(reg),
            Loc::Stack(_) => None,
        }
    }
}

/// The registers of a system call of Linux (syscall(2)). Its result is in the first result register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyscallRegs {
    /// The register with its number.
    pub number: Reg,
    /// The registers with its arguments, in order.
    pub args: &'static [Reg],
}

/// The psABI of an architecture as kernel C uses it.
#[derive(Debug)]
pub struct Abi {
    /// The register table; a [`Reg`] is an index into it.
    pub regs: &'static [RegInfo],
    /// Integer argument registers, in order.
    pub args: &'static [Reg],
    /// Integer result registers, in order.
    pub rets: &'static [Reg],
    /// The registers of a system call.
    pub syscall: SyscallRegs,
    /// Registers that may carry an integer result to the exit handler: its `fregs` has them, and its stores to them take effect.
    pub exit_rets: &'static [Reg],
    /// The register that holds the address of a result returned in memory.
    pub sret: Reg,
    /// Registers that a call may use besides those for arguments: result address, number of vector arguments.
    pub hidden: RegSet,
    /// Registers besides argument registers that are live at the entry of some functions, by the reason.
    pub live: &'static [(&'static str, RegSet)],
    /// Callee-saved registers: a C function preserves them.
    pub callee_saved: RegSet,
    /// Caller-saved registers: a C function may clobber them.
    pub caller_saved: RegSet,
    /// Caller-saved registers that code on the way to a function, such as PLT entries, may clobber.
    pub linkage: RegSet,
    /// Registers of the platform, which generated code never touches (gp, tp, x18).
    pub platform: RegSet,
    /// The register with the address behind the last entry of the thread's shadow call stack, in code that has one: Clang's
    /// ShadowCallStack.
    pub scs: Option<Reg>,
    /// The register that is always zero, if there is one. If it shares its number with SP, the number means this register in
    /// moves to the stack, from the stack, and between registers.
    pub zero: Option<Reg>,
    /// The stack pointer.
    pub sp: Reg,
    /// The frame pointer.
    pub fp: Reg,
    /// The link register; `None` where a call pushes its return address.
    pub link: Option<Reg>,
    /// Number of vector or floating-point registers.
    pub vectors: u8,
    /// Bytes of a vector or floating-point register.
    pub vector_bytes: usize,
    /// The DWARF column of the first vector or floating-point register; the others follow in the machine's order.
    pub vector_column: u16,
    /// Vector registers that carry arguments, in order: indices into the machine's table.
    pub vector_args: &'static [u8],
    /// Vector registers that carry results, in order.
    pub vector_rets: &'static [u8],
    /// Callee-saved vector registers (arm64: their low 64 bits).
    pub vector_callee_saved: &'static [u8],
    /// Vector registers that a function keeps whole which the vector function ABI has names for (arm64: AAPCS64's variant for vectors).
    pub vector_function_saved: &'static [u8],
    /// Bytes to which the psABI aligns SP at a call.
    pub sp_align: u32,
    /// An integer narrower than a register is widened to it: to 32 bits by its own sign, then by bit 31. Otherwise the bits above it
    /// are undefined.
    pub widens: bool,
    /// The DWARF columns, besides those of general registers, in which unwinders can keep a return address.
    pub return_columns: &'static [u16],
}

impl Abi {
    /// The register's name.
    #[inline]
    pub fn name(&self, reg: Reg) -> &'static str {
        self.regs.get(reg.0 as usize).map_or("?", |r| r.name)
    }

    /// The register called `name`.
    pub fn find(&self, name: &str) -> Option<Reg> {
        self.regs.iter().position(|r| r.name == name).map(|i| Reg(i as u8))
    }

    /// The register of the result address, if it is no argument register: direct-call trampolines preserve it for every function.
    pub fn hidden_for_direct(&self) -> RegSet {
        RegSet::of(&[self.sret]).minus(RegSet::of(self.args))
    }

    /// Bytes of the return address that a call pushes; 0 if there is a link register.
    pub fn return_bytes(&self) -> u64 {
        if self.link.is_none() { 8 } else { 0 }
    }

    /// The names of the registers of `set`, joined by blanks.
    pub fn names(&self, set: RegSet) -> String {
        set.iter().map(|r| self.name(r)).collect::<Vec<_>>().join(" ")
    }
}
