//! Errors in definitions: the kernel's names and columns, with messages of our own.

use core::fmt;

use super::machine::words;
use crate::errno::Errno;

macro_rules! problems {
    ($($variant:ident $name:literal $text:literal,)*) => {
        /// What is wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has its text")]
        pub enum Problem {
            $($variant,)*
        }

        impl Problem {
            /// The kernel's name of the problem.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// A message that says how to fix the problem.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

problems! {
    ArgNameTooLong "ARG_NAME_TOO_LONG" "the argument's name is longer than 32 characters",
    ArgTooLong "ARG_TOO_LONG" "the argument is longer than 255 characters",
    ArrayNoClose "ARRAY_NO_CLOSE" "`]` is missing",
    ArrayTooBig "ARRAY_TOO_BIG" "an array has up to 64 elements",
    BadAddrSuffix "BAD_ADDR_SUFFIX" "the only suffix of a place is `%return`",
    BadArgName "BAD_ARG_NAME" "an argument's name has letters, digits and `_`",
    BadArgNum "BAD_ARG_NUM" "arguments are `$arg1`, `$arg2`, ...",
    BadArrayNum "BAD_ARRAY_NUM" "an array's length is a number from 1",
    BadArraySuffix "BAD_ARRAY_SUFFIX" "nothing can follow `]`, and only memory has arrays",
    BadBitfield "BAD_BITFIELD" "a bit-field is `bWIDTH@OFFSET/SIZE`, in bits",
    BadDerefOffs "BAD_DEREF_OFFS" "before `(` stands a number with its sign",
    BadEventName "BAD_EVENT_NAME" "an event's name has letters, digits and `_`",
    BadFetchArg "BAD_FETCH_ARG" "an argument begins with `$`, `%`, `@`, `+`, `-` or `\\`",
    BadGroupName "BAD_GROUP_NAME" "a group's name has letters, digits, `_` and `-`",
    BadImm "BAD_IMM" "behind `\\` stands a number or a string in quotes",
    BadInsnBndry "BAD_INSN_BNDRY" "no instruction begins there",
    BadMaxact "BAD_MAXACT" "how many returns may be pending is a number from 1, and only `r` has it",
    BadMaxactType "BAD_MAXACT_TYPE" "how many returns may be pending is for `r` only",
    BadMemAddr "BAD_MEM_ADDR" "behind `@` stands an address or a symbol with its offset",
    BadProbeAddr "BAD_PROBE_ADDR" "no such place: a function, with its offset, or an address",
    BadRegName "BAD_REG_NAME" "no such register",
    BadRetprobe "BAD_RETPROBE" "a return probe is on a function, without offset",
    BadStackNum "BAD_STACK_NUM" "stack entries are `$stack0`, `$stack1`, ...",
    BadString "BAD_STRING" "strings are in memory: `@SYM` or `+OFFSET(...)`",
    BadType "BAD_TYPE" "types are u8 to u64, s8 to s64, x8 to x64, char, symbol, string and bit-fields",
    BadVar "BAD_VAR" "variables are `$argN`, `$retval`, `$stack`, `$stackN` and `$comm`; registers are for `p` and `r`",
    CommCantDeref "COMM_CANT_DEREF" "`$comm` is no address",
    DerefNeedBrace "DEREF_NEED_BRACE" "behind the offset stands what it is added to, in `(` and `)`",
    DerefOpenBrace "DEREF_OPEN_BRACE" "`)` is missing",
    DiffArgType "DIFF_ARG_TYPE" "the event has this argument with another name or type",
    DiffProbeType "DIFF_PROBE_TYPE" "the event has probes of another kind",
    EventTooLong "EVENT_TOO_LONG" "an event's name has up to 63 characters",
    FailRegProbe "FAIL_REG_PROBE" "a probe cannot be put there",
    FileOnKprobe "FILE_ON_KPROBE" "offsets in a file are for programs",
    GroupTooLong "GROUP_TOO_LONG" "a group's name has up to 63 characters",
    ImmstrNoClose "IMMSTR_NO_CLOSE" "`\"` is missing",
    MaxactTooBig "MAXACT_TOO_BIG" "up to 4096 returns may be pending",
    NoArgBody "NO_ARG_BODY" "nothing is behind `=`",
    NoArgName "NO_ARG_NAME" "nothing is before `=`",
    NoEventName "NO_EVENT_NAME" "nothing is behind `:`",
    NoFentryArgs "NOFENTRY_ARGS" "arguments are known where a function begins",
    NoGroupName "NO_GROUP_NAME" "nothing is before the event's name",
    NonUniqSymbol "NON_UNIQ_SYMBOL" "several functions have this name",
    NosupBtfarg "NOSUP_BTFARG" "variables by name need type information, which is not read",
    NoType "NO_EVENT_TYPE" "a definition begins with `p`, `r`, `f` or `-`",
    RetvalOnProbe "RETVAL_ON_PROBE" "a result is known at returns",
    SameProbe "SAME_PROBE" "this probe is defined",
    TooManyArgs "TOO_MANY_ARGS" "a probe has up to 128 arguments",
    TooManyDefinitions "TOO_MANY_PROBES" "the table of definitions is full",
    TooManyEargs "TOO_MANY_EARGS" "an exit probe keeps up to 15 arguments of the entry",
    TooManyNested "TOO_MANY_NESTED" "up to 8 levels of `+OFFSET(...)`",
    UnknownEvent "ENOENT" "no such event",
    UsedArgName "USED_ARG_NAME" "another argument has this name, or the event itself",
}

/// A refused definition: the problem, and its column when single blanks join the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong.
    pub problem: Problem,
    /// The column of the problem, from 0.
    pub column: usize,
}

impl Refused {
    /// The error that Linux returns for the problem.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self.problem {
            Problem::TooManyArgs | Problem::TooManyEargs => Errno::TooBig,
            Problem::SameProbe | Problem::DiffProbeType | Problem::DiffArgType => Errno::Exist,
            Problem::UnknownEvent => Errno::Noent,
            Problem::TooManyDefinitions => Errno::Nomem,
            _ => Errno::Inval,
        }
    }

    /// As the kernel's `error_log` shows it: the message, the definition and a caret.
    pub fn show<'r>(&'r self, definition: &'r str) -> impl fmt::Display + use<'r> {
        Shown(self, definition)
    }
}

struct Shown<'r>(&'r Refused, &'r str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self(Refused { problem, column }, definition) = self;
        writeln!(f, "error: {}: {}", problem.name(), problem.text())?;
        f.write_str("  Command:")?;
        for word in words(definition) {
            write!(f, " {word}")?;
        }
        write!(f, "\n           {:column$}^", "")
    }
}
