//! What instructions do to values, besides what [`crate::effect::effects`] says of SP, of moved registers and of control: what
//! whoever follows values needs. Together the two say which registers an instruction reads and writes.

use crate::words::abi::Reg;
use crate::words::step::{Disp, Local, Sym};

/// The low part of an address: what it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A symbol.
    Symbol(Sym),
    /// What the instruction behind this label has the high part of.
    Anchor(Local),
}

/// A word of memory that an instruction reads and writes in one step, or compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// So many bytes from the thread pointer, or into the thread's own copy of a variable.
    Thread(Disp),
    /// Where a register points to.
    At(Reg),
}

/// What is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// A register.
    Reg(Reg),
    /// A number.
    Number(i32),
    /// The word at SP, which the instruction pops.
    Popped,
}

/// The CPU's state besides general registers, in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateArea {
    /// The registers that say which components: the lower half of a word, and the upper one.
    pub mask: [Reg; 2],
    /// Those that C functions may overwrite.
    pub components: i32,
    /// Bytes above SP.
    pub bytes: i32,
    /// Of these, what has to be 0 before, word by word.
    pub reserved: (i32, i32),
}

/// What an instruction does to values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing besides its other effects.
    None,
    /// Of the register that it stores, only the lower half.
    StoreHalf,
    /// Nothing: an indirect call may come here.
    LandingPad,
    /// `reg` = what it was before it was signed for this SP.
    Authenticate {
        /// The register.
        reg: Reg,
    },
    /// `dst` = `src` + `add`.
    Add {
        /// What is written.
        dst: Reg,
        /// What is added to.
        src: Reg,
        /// What is added.
        add: i32,
    },
    /// `dst` = `src` down to a multiple of `to`.
    RoundDown {
        /// What is written.
        dst: Reg,
        /// What is rounded.
        src: Reg,
        /// A power of two.
        to: u8,
    },
    /// `dst` = a number.
    Set {
        /// What is written.
        dst: Reg,
        /// The number.
        number: i32,
    },
    /// `dst` = a number of 64 bits.
    SetWide {
        /// What is written.
        dst: Reg,
        /// The number.
        number: i64,
    },
    /// Bits 48 to 63 of `dst`; the others stay.
    SetTop {
        /// What is written.
        dst: Reg,
        /// The bits.
        bits: u16,
    },
    /// `dst` is shifted left by so many bits.
    ShiftLeft {
        /// What is written.
        dst: Reg,
        /// How far: 0 to 63.
        by: u8,
    },
    /// Bits 16 to 31 of `dst`; the others stay.
    SetHigh {
        /// What is written.
        dst: Reg,
        /// The bits.
        bits: u16,
    },
    /// `dst` = its low 32 bits + `add`, as a number of 32 bits with a sign.
    AddWord {
        /// What is written.
        dst: Reg,
        /// What is added.
        add: i32,
    },
    /// `dst` = the address of a symbol.
    Address {
        /// What is written.
        dst: Reg,
        /// The symbol.
        sym: Sym,
    },
    /// `dst` = the high part of a symbol's address.
    High {
        /// What is written.
        dst: Reg,
        /// The symbol.
        sym: Sym,
    },
    /// `dst` = `base` + the low part of an address.
    Low {
        /// What is written.
        dst: Reg,
        /// What has the high part.
        base: Reg,
        /// Of which address.
        of: Part,
    },
    /// `dst` = the word at a symbol.
    LoadSymbol {
        /// What is written.
        dst: Reg,
        /// The symbol.
        sym: Sym,
    },
    /// `dst` = the word at `base` + the low part of an address.
    LoadLow {
        /// What is written.
        dst: Reg,
        /// What has the high part.
        base: Reg,
        /// Of which address.
        of: Part,
    },
    /// `dst` = the word at `base` + `at`.
    LoadAt {
        /// What is written.
        dst: Reg,
        /// Where the address is computed from.
        base: Reg,
        /// Bytes from there.
        at: i32,
    },
    /// Push the word at `base` + `at`.
    PushAt {
        /// Where the address is computed from.
        base: Reg,
        /// Bytes from there.
        at: i32,
    },
    /// Store a number, as a word, so many bytes above SP.
    StoreNumber {
        /// The number.
        number: i32,
        /// Bytes above SP.
        at: i32,
    },
    /// Store vector registers so many bytes above SP, one behind the other.
    StoreVectors {
        /// The first one.
        first: u8,
        /// The one behind it.
        second: Option<u8>,
        /// Bytes above SP.
        at: i32,
    },
    /// Load vector registers from so many bytes above SP.
    LoadVectors {
        /// The first one.
        first: u8,
        /// The one behind it.
        second: Option<u8>,
        /// Bytes above SP.
        at: i32,
    },
    /// Store to SP and above all that the CPU has for these components of its state, and how to load it again.
    StoreState(StateArea),
    /// Load the components of the CPU's state that were stored there.
    LoadState(StateArea),
    /// `dst` = a register that may be the thread pointer.
    ThreadPointer {
        /// What is written.
        dst: Reg,
        /// Which: one of the facts' `threads`.
        of: &'static str,
    },
    /// `dst` = `src` + the high part of a thread-local variable's offset from the thread pointer.
    OffsetHigh {
        /// What is written.
        dst: Reg,
        /// What is added to: the thread pointer, or 0.
        src: Reg,
        /// The variable.
        sym: Sym,
    },
    /// `dst` = `src` + the low part of that.
    OffsetLow {
        /// What is written.
        dst: Reg,
        /// What has the thread pointer and the high part.
        src: Reg,
        /// The variable.
        sym: Sym,
    },
    /// `dst` = a word of the thread.
    LoadThread {
        /// What is written.
        dst: Reg,
        /// Bytes from the thread pointer, or into a variable.
        at: Disp,
    },
    /// Store to a word of the thread.
    StoreThread {
        /// What is stored.
        src: Reg,
        /// Bytes from the thread pointer, or into a variable.
        at: Disp,
    },
    /// `dst` = the sum of two registers.
    AddRegs {
        /// What is written.
        dst: Reg,
        /// What is added to.
        src: Reg,
        /// What is added.
        add: Reg,
    },
    /// Add to a word of memory, and have in `dst` what it was: no signal comes between.
    AtomicAdd {
        /// What is written.
        dst: Reg,
        /// What is added.
        add: Reg,
        /// The word.
        cell: Cell,
    },
    /// Add a number to a word of memory: no signal comes between.
    AddToMemory {
        /// The word.
        cell: Cell,
        /// What is added.
        add: i32,
    },
    /// Store a word at `base` + `at`, which is no place on the stack.
    StoreAt {
        /// Where the address is computed from.
        base: Reg,
        /// Bytes from there.
        at: i32,
        /// What is stored.
        stored: Stored,
    },
    /// Push the word at a symbol.
    PushSymbol {
        /// The symbol.
        sym: Sym,
    },
    /// The flags compare a register with a word of memory.
    CompareCell {
        /// The register.
        reg: Reg,
        /// The word.
        cell: Cell,
    },
    /// The CPU's clock: into `low`, or its low half there and its high half into `high`.
    ReadClock {
        /// What is written.
        low: Reg,
        /// The same.
        high: Option<Reg>,
    },
    /// `dst` = so many of the lowest bits of `src`.
    LowBits {
        /// What is written.
        dst: Reg,
        /// What they are of.
        src: Reg,
        /// How many.
        bits: u8,
    },
    /// Store the lower half of a register at `base` + `at`, which is no place on the stack.
    StoreHalfAt {
        /// Where the address is computed from.
        base: Reg,
        /// Bytes from there.
        at: i32,
        /// What is stored.
        src: Reg,
    },
    /// The flags compare a register with the word at `base` + `at`.
    CompareAt {
        /// The register.
        reg: Reg,
        /// Where the address is computed from.
        base: Reg,
        /// Bytes from there.
        at: i32,
    },
    /// The flags say whether the word at `base` + `at` is zero.
    TestAt {
        /// Where the address is computed from.
        base: Reg,
        /// Bytes from there.
        at: i32,
    },
    /// The flags compare a register with a number.
    CompareNumber {
        /// The register.
        reg: Reg,
        /// The number.
        number: i32,
    },
    /// The flags compare two registers.
    Compare {
        /// The first.
        reg: Reg,
        /// The second.
        with: Reg,
    },
    /// Branch if the flags say that the first is not below the second, as numbers without a sign.
    BranchIfNotBelow,
    /// Branch if `reg` is not below `with`, as numbers without a sign.
    BranchIfRegNotBelow {
        /// The first.
        reg: Reg,
        /// The second.
        with: Reg,
    },
    /// Branch if the flags say that the first is not below the second, as numbers with a sign.
    BranchIfSigned,
    /// Branch if `reg` is not below `with`, as numbers with a sign.
    BranchIfRegSigned {
        /// The first.
        reg: Reg,
        /// The second.
        with: Reg,
    },
    /// Branch if two registers differ.
    BranchIfRegsDiffer {
        /// The first.
        reg: Reg,
        /// The second.
        with: Reg,
    },
    /// Leave for a symbol.
    LeaveFor {
        /// The symbol.
        sym: Sym,
        /// The register that the address passes through.
        through: Option<Reg>,
    },
    /// Push the flags.
    PushFlags,
    /// Pop the flags.
    PopFlags,
    /// Pop a word to where SP is then.
    PopOver,
    /// The flags say whether a register is zero.
    Test {
        /// The register.
        reg: Reg,
    },
    /// The flags say whether a bit of a register is zero.
    TestBit {
        /// The register.
        reg: Reg,
        /// The number of the bit.
        bit: i32,
    },
    /// Branch if a bit of a register is set.
    BranchIfBit {
        /// The register.
        reg: Reg,
        /// The number of the bit.
        bit: i32,
    },
    /// `dst` = `src`, shifted left until a bit of it is the sign.
    BitToSign {
        /// What is written.
        dst: Reg,
        /// What is shifted.
        src: Reg,
        /// The number of the bit.
        bit: i32,
    },
    /// Branch if a register is negative.
    BranchIfNegative {
        /// The register.
        reg: Reg,
    },
    /// The flags say whether the lowest bit of a register is zero.
    TestLowBit {
        /// The register.
        reg: Reg,
    },
    /// Branch if a register is zero, or if it is not.
    BranchIf {
        /// The register.
        reg: Reg,
        /// If it is zero.
        zero: bool,
    },
    /// Branch if the flags say that what was tested is zero, or that it is not; of two that were compared, what their difference
    /// is.
    BranchIfFlags {
        /// If it is zero.
        zero: bool,
    },
    /// Push the address of the next instruction.
    PushNext,
    /// `dst` = the address of the next instruction.
    LinkNext {
        /// What is written.
        dst: Reg,
    },
    /// Call a symbol.
    CallSymbol {
        /// The symbol.
        sym: Sym,
    },
    /// Call what a register has the address of.
    CallRegister {
        /// The register.
        reg: Reg,
    },
    /// Leave for the address in a register.
    LeaveBy {
        /// The register.
        reg: Reg,
        /// The address of the next instruction comes into the link register.
        links: bool,
    },
    /// Leave for the address that lies at SP, which is popped; by way of a function that does so, if one is named.
    Return {
        /// That function.
        thunk: Option<Sym>,
    },
}
