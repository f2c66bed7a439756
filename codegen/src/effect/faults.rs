//! The vocabulary of mutants: operators, their operands, and the faulty forms of an instruction.
//!
//! An operator is an edit that has made a real trampoline wrong before.

use std::fmt;

use crate::words::abi::{Abi, Reg};

macro_rules! operators {
    ($($variant:ident $name:literal $about:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Operator { $(#[doc = $about] $variant),* }

        impl Operator {
            /// All operators, in the order of reports.
            pub const ALL: &[Operator] = &[$(Operator::$variant),*];

            /// The name in reports and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Operator::$variant => $name),* }
            }

            /// The operator's effect on a trampoline.
            pub fn about(self) -> &'static str {
                match self { $(Operator::$variant => $about),* }
            }
        }
    };
}

operators! {
    DropSave "DROP_SAVE" "a register is not saved";
    DropRestore "DROP_RESTORE" "a register is not restored";
    RestoreOnePathOnly "RESTORE_ONE_PATH_ONLY" "a register is restored on the other way out only";
    SkipSave "SKIP_SAVE" "a register is neither saved nor restored";
    SwapSave "SWAP_SAVE" "two registers are saved to each other's slots";
    SwapRestore "SWAP_RESTORE" "two registers are restored from each other's slots";
    NarrowSave "NARROW_SAVE" "half of a register is saved";
    NarrowResult "NARROW_RESULT" "an address is computed, copied or loaded in 32 bits";
    StoreAfterCall "STORE_AFTER_CALL" "a register is saved after the callback";
    ScratchIs "SCRATCH_IS" "a live register is used as scratch";
    SlotOffset "SLOT_OFFSET" "one access to a slot is 8 bytes off";
    FrameSize "FRAME_SIZE" "the frame has the wrong size";
    DropAlloc "DROP_ALLOC" "the frame is not allocated";
    TeardownMissing "TEARDOWN_MISSING" "the frame is not released";
    TeardownMismatch "TEARDOWN_MISMATCH" "what is released is not what was allocated";
    DropAlign "DROP_ALIGN" "the stack is not aligned";
    FrameRecordOmit "FRAME_RECORD_OMIT" "a frame record is not stored or not linked";
    DropArg "DROP_ARG" "an argument of the callback is not set up";
    ArgPtrOffset "ARG_PTR_OFFSET" "the pointer to the frame is 8 bytes off";
    RegsSpOff "REGS_SP_OFF" "the stack pointer in the frame is 8 bytes off";
    WrongConst "WRONG_CONST" "a constant is off by one";
    IpOffset "IP_OFFSET" "ip is not the address of the site";
    AddrForValue "ADDR_FOR_VALUE" "op is the address of the variable that holds it";
    StalePcrel "STALE_PCREL" "a PC-relative operand refers to another symbol";
    DropLrFix "DROP_LR_FIX" "the link register is not what the next function returns to";
    WrongLink "WRONG_LINK" "the way out goes through the other link register";
    JalrRa "JALR_RA" "the way out links";
    CallAsJmp "CALL_AS_JMP" "a call does not link";
    BrForRet "BR_FOR_RET" "a return is an indirect jump";
    PushRet "PUSH_RET" "a way out is a return to an address that was pushed for it";
    PushCall "PUSH_CALL" "a call is a jump, for which the return address is set by hand";
    RetForThunk "RET_FOR_THUNK" "a return is the instruction itself, where the kernel has code in its place";
    JumpReg "JUMP_REG" "a way out jumps by another register, for which landing pads are of another kind";
    InvertCond "INVERT_COND" "a condition is inverted";
    SignedCond "SIGNED_COND" "addresses are compared as numbers with a sign, where a new thread has the largest one";
    DropCond "DROP_COND" "a branch is never taken";
    DropCall "DROP_CALL" "the callback is not called";
    DropJump "DROP_JUMP" "a jump is not taken";
    DropLeave "DROP_LEAVE" "a way out runs on into what follows";
    DropPushf "DROP_PUSHF" "the flags are not pushed";
    ControlWord "CONTROL_WORD" "a control word of floating-point arithmetic is changed";
    PlatformReg "PLATFORM_REG" "a register of the platform is changed, which may hold a shadow stack";
    WideUpper "WIDE_UPPER" "a vector register loses what only wide instructions have";
    WideMask "WIDE_MASK" "a register with the mask of vector elements is changed";
    VectorLength "VECTOR_LENGTH" "the length of vectors is changed";
    VectorMode "VECTOR_MODE" "a mode of vector arithmetic is changed";
    ShadowPointer "SHADOW_POINTER" "the pointer of the CPU's shadow stack is moved";
    Direction "DIRECTION" "the direction flag is set where C code begins";
    AddForLea "ADD_FOR_LEA" "SP is moved by an instruction that changes the flags";
    DropPad "DROP_PAD" "a landing pad is missing";
    PadShifted "PAD_SHIFTED" "a NOP comes before the landing pad";
    PadKind "PAD_KIND" "a landing pad is of the wrong kind";
    CfiOffby "CFI_OFFBY" "the unwind table is 8 bytes off from here until SP moves";
    CfiColumn "CFI_COLUMN" "the unwind table has the return address in a column that unwinders lack";
    CfiSignal "CFI_SIGNAL" "the unwind table does not say that the traced function has called nothing yet";
    CfiStart "CFI_START" "the unwind table begins where functions return to, and not one instruction earlier";
    TypeMissing "TYPE_MISSING" "there is no type before a function that is called through pointers";
    TypeOther "TYPE_OTHER" "the type before a function is that of another";
    TypePlace "TYPE_PLACE" "the type before a function is not where callers look for it";
    CfiSlot "CFI_SLOT" "the unwind table has a saved register 8 bytes off, where an exception passes";
    NoPersonality "NO_PERSONALITY" "the unwind table names nobody who knows of the landing pad for exceptions";
    SiteShort "SITE_SHORT" "the table of call sites ends one byte before the call does";
    PadOff "PAD_OFF" "the table of call sites has the landing pad elsewhere, or none";
    PadAgain "PAD_AGAIN" "the table of call sites has a landing pad for what hands the exception back";
    PadLate "PAD_LATE" "an instruction comes before the landing pad";
    GuardMissing "GUARD_MISSING" "the return address is not guarded, though it is checked";
    CheckMissing "CHECK_MISSING" "the guarded return address is not checked";
    Unguarded "UNGUARDED" "the return address is neither guarded nor checked";
    GuardLate "GUARD_LATE" "the return address is guarded when it has been stored";
    CheckEarly "CHECK_EARLY" "the return address is checked before it is loaded";
    CheckSp "CHECK_SP" "the return address is checked with another SP than it was signed with";
    GuardOther "GUARD_OTHER" "the return address is guarded with another key, or another register is";
    CheckOther "CHECK_OTHER" "the return address is checked with another key, or another register is";
    ScsEntry "SCS_ENTRY" "the return address is stored to, or loaded from, another entry of the shadow call stack";
    ScsPointer "SCS_POINTER" "the pointer of the shadow call stack does not move with an entry";
    GuardUntold "GUARD_UNTOLD" "the unwind table has the return address signed where it is not, and the other way round";
    MarkMissing "MARK_MISSING" "the object's note lacks a mark of protection that is true";
    MarkFalse "MARK_FALSE" "the object's note has a mark of protection that is not true";
    RecordOrder "RECORD_ORDER" "two frame records have each other's place";
    Torn "TORN" "a word that signals may change too is changed in more than one step";
    DropInt3 "DROP_INT3" "what stops speculation is missing";
    Drop "DROP" "any other instruction is missing";
    Duplicate "DUPLICATE" "an instruction with an effect on SP, or a call, is there twice";
    Swap "SWAP" "two neighbours with effects on SP are in the wrong order";
}

impl Operator {
    /// Does it change what registers and memory hold, and nothing else? Not so a branch, a promise of protection, a table, the order of
    /// stores that others see; nor any instruction that is missing, which may have been a barrier; nor half of a value, which may
    /// be the same in some runs.
    pub fn concerns_values(self) -> bool {
        use Operator::*;
        let saves = [DropSave, DropRestore, RestoreOnePathOnly, SkipSave, SwapSave, SwapRestore, SlotOffset, ScratchIs];
        let others = [DropArg, ArgPtrOffset, RegsSpOff, WrongConst, IpOffset, AddrForValue];
        saves.contains(&self) || others.contains(&self)
    }
}

/// The operand of a mutation operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// Nothing.
    None,
    /// A register.
    Reg(Reg),
    /// Two registers.
    Regs(Reg, Reg),
    /// A difference.
    By(i32),
}

impl Operand {
    /// The operand's text in a report.
    pub fn text(self, abi: &Abi) -> String {
        match self {
            Operand::None => String::new(),
            Operand::Reg(reg) => abi.name(reg).to_owned(),
            Operand::Regs(a, b) => format!("{},{}", abi.name(a), abi.name(b)),
            Operand::By(by) => format!("{by:+}"),
        }
    }
}

/// A fault in the unwind table of a mutant, or in the type before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misstated {
    /// CFA is off by this many bytes from here on, until SP moves again.
    Cfa(i32),
    /// The return address is in this column. This fault and the next two concern the whole table, before the first instruction.
    Column(u16),
    /// Unwinders look up the address before the return address, as if the traced function had called.
    Called,
    /// The table begins at the trampoline, without the bytes in front of it.
    Late,
    /// The type before the function is wrong.
    Type(Mistyped),
    /// The table's offset of a saved register is off by this many bytes.
    Slot(i32),
    /// The table has no personality function for the landing pad.
    NoPersonality,
    /// In the table of call sites, the call ends one byte early.
    Short,
    /// The address of the landing pad is off by this many bytes.
    Pad(i32),
    /// The call has no landing pad.
    NoPad,
    /// The call that hands an exception back has a landing pad.
    PadAgain,
    /// From here on, a signed return address is said not to be, and the other way round.
    Signed,
    /// The note of the object lacks these bits.
    Unmarked(u32),
    /// The note of the object has these bits.
    Marked(u32),
}

/// A fault in the type before a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistyped {
    /// The type is missing.
    Missing,
    /// The type has another value.
    Other,
    /// Other bytes are between the type and the function.
    Place,
}

impl fmt::Display for Misstated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misstated::Cfa(by) => write!(f, "unwind table: CFA {by:+}"),
            Misstated::Column(column) => write!(f, "unwind table: return column {column}"),
            Misstated::Called => f.write_str("unwind table: no signal frame"),
            Misstated::Late => f.write_str("unwind table: begins here"),
            Misstated::Type(Mistyped::Missing) => f.write_str("type: none"),
            Misstated::Type(Mistyped::Other) => f.write_str("type: of another function"),
            Misstated::Type(Mistyped::Place) => f.write_str("type: further away"),
            Misstated::Slot(by) => write!(f, "unwind table: a saved register {by:+}"),
            Misstated::NoPersonality => f.write_str("unwind table: no personality"),
            Misstated::Short => f.write_str("call sites: the call ends one byte early"),
            Misstated::Pad(by) => write!(f, "call sites: landing pad {by:+}"),
            Misstated::NoPad => f.write_str("call sites: no landing pad"),
            Misstated::PadAgain => f.write_str("call sites: a landing pad where the exception is handed back"),
            Misstated::Signed => f.write_str("unwind table: signed where it is not"),
            Misstated::Unmarked(bits) => write!(f, "note: without {bits:#x}"),
            Misstated::Marked(bits) => write!(f, "note: with {bits:#x}"),
        }
    }
}

/// An instruction of a mutant.
#[derive(Clone, Copy, Debug)]
pub enum Either<I, F> {
    /// One that trampolines have.
    Sound(I),
    /// One that only mutants have.
    Faulty(F),
}

impl<I, F> From<I> for Either<I, F> {
    fn from(insn: I) -> Either<I, F> {
        Either::Sound(insn)
    }
}

/// A faulty form of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Fault<I> {
    /// The operator.
    pub operator: Operator,
    /// The register or number that the operator takes.
    pub operand: Operand,
    /// The replacement of the instruction; `None` if it is removed.
    pub insn: Option<I>,
}

/// The collector of an instruction's faulty forms.
pub struct Faults<'o, I>(pub(crate) &'o mut dyn FnMut(Fault<I>));

impl<I> Faults<'_, I> {
    /// Add the fault that the instruction is missing, under a name of its own.
    pub fn drop(&mut self, operator: Operator) {
        (self.0)(Fault { operator, operand: Operand::None, insn: None });
    }

    /// Add the fault that `insn` replaces the instruction.
    pub fn put(&mut self, operator: Operator, operand: Operand, insn: impl Into<I>) {
        (self.0)(Fault { operator, operand, insn: Some(insn.into()) });
    }

    /// Add the faults that `form` of the difference, positive and negative, replaces the instruction.
    pub fn off_by<J: Into<I>>(&mut self, operator: Operator, by: i32, form: impl Fn(i32) -> J) {
        for by in [by, -by] {
            self.put(operator, Operand::By(by), form(by));
        }
    }
}

impl<I, F> Faults<'_, Either<I, F>> {
    /// Add the fault that `insn`, which no trampoline has, replaces the instruction.
    pub fn put_faulty(&mut self, operator: Operator, operand: Operand, insn: F) {
        (self.0)(Fault { operator, operand, insn: Some(Either::Faulty(insn)) });
    }
}
