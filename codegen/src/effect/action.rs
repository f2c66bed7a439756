//! Effects of instructions on values, for code that follows values. [`crate::effect::effects`] has the effects on SP, moved
//! registers and control. Together the two determine which registers an instruction reads and writes.

use crate::words::abi::Reg;
use crate::words::step::{Disp, Local, Sym};

/// The target of an address whose low part an instruction adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A symbol.
    Symbol(Sym),
    /// The address whose high part is in the instruction behind this label.
    Anchor(Local),
}

/// A word of memory that an instruction reads and writes in one step, or compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// The word at this offset from the thread pointer, or in the thread's own copy of a variable.
    Thread(Disp),
    /// The word to which a register points.
    At(Reg),
}

/// The value that is stored.
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
    /// The registers with the mask of components: its lower half, and its upper half.
    pub mask: [Reg; 2],
    /// The components that C functions may clobber.
    pub components: i32,
    /// Bytes above SP.
    pub bytes: i32,
    /// The bytes of the area that must be 0 before, stored word by word.
    pub reserved: (i32, i32),
}

/// The effect of an instruction on values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing besides its other effects.
    None,
    /// Stores only the lower half of the register.
    StoreHalf,
    /// Nothing: an indirect call may come here.
    LandingPad,
    /// A control word changes, or a flag that is clear wherever C code begins.
    Control,
    /// `reg` = what it was before it was signed for this SP.
    Authenticate {
        /// The register.
        reg: Reg,
    },
    /// `reg` is signed for this SP.
    Sign {
        /// The register.
        reg: Reg,
    },
    /// `reg` is pushed onto the shadow stack too.
    PushGuard {
        /// The register.
        reg: Reg,
    },
    /// The topmost word of the shadow stack is popped. The CPU stops unless it is in `reg`.
    PopGuard {
        /// The register.
        reg: Reg,
    },
    /// `reg` is stored to the shadow call stack, whose pointer moves up.
    PushScs {
        /// The register.
        reg: Reg,
        /// Bytes by which this instruction moves the pointer; 0 where one before it has moved it.
        by: i32,
    },
    /// `reg` = the last entry of the shadow call stack, whose pointer moves down.
    PopScs {
        /// The register.
        reg: Reg,
        /// Bytes by which this instruction moves the pointer; 0 where one behind it moves it.
        by: i32,
    },
    /// `dst` = `src` + `add`.
    Add {
        /// The register that is written.
        dst: Reg,
        /// The register to which is added.
        src: Reg,
        /// The number that is added.
        add: i32,
    },
    /// `dst` = `src` down to a multiple of `to`.
    RoundDown {
        /// The register that is written.
        dst: Reg,
        /// The register that is rounded.
        src: Reg,
        /// A power of two.
        to: u8,
    },
    /// `dst` = a number.
    Set {
        /// The register that is written.
        dst: Reg,
        /// The number.
        number: i32,
    },
    /// `dst` = a number of 64 bits.
    SetWide {
        /// The register that is written.
        dst: Reg,
        /// The number.
        number: i64,
    },
    /// 16 bits of `dst`; the others stay.
    SetBits {
        /// The register that is written.
        dst: Reg,
        /// The bits.
        bits: u16,
        /// The lowest of them: 0 to 48.
        from: u8,
    },
    /// `dst` is shifted left by so many bits.
    ShiftLeft {
        /// The register that is written.
        dst: Reg,
        /// How far: 0 to 63.
        by: u8,
    },
    /// `dst` = its low 32 bits + `add`, as a number of 32 bits with a sign.
    AddWord {
        /// The register that is written.
        dst: Reg,
        /// The number that is added.
        add: i32,
    },
    /// `dst` = the address of a symbol.
    Address {
        /// The register that is written.
        dst: Reg,
        /// The symbol.
        sym: Sym,
    },
    /// `dst` = the high part of a symbol's address.
    High {
        /// The register that is written.
        dst: Reg,
        /// The symbol.
        sym: Sym,
    },
    /// `dst` = `base` + the low part of an address.
    Low {
        /// The register that is written.
        dst: Reg,
        /// The register with the high part.
        base: Reg,
        /// The target of the address.
        of: Part,
    },
    /// `dst` = the word at a symbol.
    LoadSymbol {
        /// The register that is written.
        dst: Reg,
        /// The symbol.
        sym: Sym,
    },
    /// `dst` = the word at `base` + the low part of an address.
    LoadLow {
        /// The register that is written.
        dst: Reg,
        /// The register with the high part.
        base: Reg,
        /// The target of the address.
        of: Part,
    },
    /// `dst` = the word at `base` + `at`.
    LoadAt {
        /// The register that is written.
        dst: Reg,
        /// The base register of the address.
        base: Reg,
        /// Bytes from there.
        at: i32,
    },
    /// Push the word at `base` + `at`.
    PushAt {
        /// The base register of the address.
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
        /// The register that is written.
        dst: Reg,
        /// Which: one of the facts' `threads`.
        of: &'static str,
    },
    /// `dst` = `src` + the high part of a thread-local variable's offset from the thread pointer.
    OffsetHigh {
        /// The register that is written.
        dst: Reg,
        /// The register to which is added: the thread pointer, or 0.
        src: Reg,
        /// The variable.
        sym: Sym,
    },
    /// `dst` = `src` + the low part of that.
    OffsetLow {
        /// The register that is written.
        dst: Reg,
        /// The register with the thread pointer plus the high part.
        src: Reg,
        /// The variable.
        sym: Sym,
    },
    /// `dst` = a word of the thread.
    LoadThread {
        /// The register that is written.
        dst: Reg,
        /// Bytes from the thread pointer, or into a variable.
        at: Disp,
    },
    /// Store to a word of the thread.
    StoreThread {
        /// The register that is stored.
        src: Reg,
        /// Bytes from the thread pointer, or into a variable.
        at: Disp,
    },
    /// `dst` = the sum of two registers.
    AddRegs {
        /// The register that is written.
        dst: Reg,
        /// The register to which is added.
        src: Reg,
        /// The register that is added.
        add: Reg,
    },
    /// Add to a word of memory, and have in `dst` what it was: no signal comes between.
    AtomicAdd {
        /// The register that is written.
        dst: Reg,
        /// The register that is added.
        add: Reg,
        /// The word.
        cell: Cell,
    },
    /// Add a number to a word of memory: no signal comes between.
    AddToMemory {
        /// The word.
        cell: Cell,
        /// The number that is added.
        add: i32,
    },
    /// Store a word at `base` + `at`, which is no place on the stack.
    StoreAt {
        /// The base register of the address.
        base: Reg,
        /// Bytes from there.
        at: i32,
        /// The value that is stored.
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
        /// The register for the clock, or for its lower half.
        low: Reg,
        /// The register for the upper half, if there is one.
        high: Option<Reg>,
    },
    /// `dst` = so many of the lowest bits of `src`.
    LowBits {
        /// The register that is written.
        dst: Reg,
        /// What they are of.
        src: Reg,
        /// How many.
        bits: u8,
    },
    /// Store the lower half of a register at `base` + `at`, which is no place on the stack.
    StoreHalfAt {
        /// The base register of the address.
        base: Reg,
        /// Bytes from there.
        at: i32,
        /// The register that is stored.
        src: Reg,
    },
    /// The flags compare a register with the word at `base` + `at`.
    CompareAt {
        /// The register.
        reg: Reg,
        /// The base register of the address.
        base: Reg,
        /// Bytes from there.
        at: i32,
    },
    /// The flags say whether the word at `base` + `at` is zero.
    TestAt {
        /// The base register of the address.
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
        /// The register that is written.
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
        /// The register that is written.
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
    },
    /// Leave for the address that lies at SP, which is popped; by way of a function that does so, if one is named.
    Return {
        /// That function.
        thunk: Option<Sym>,
    },
}
