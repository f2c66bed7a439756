//! Claims about a function of which no contract says anything: what C relies on, and what was seen.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// The place of a dependence that no register alone shows.
pub(super) const TOGETHER: &str = "several registers together";

/// The kinds of claims, with what they are about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, JsonSchema)]
pub enum Kind {
    /// A callee-saved register or SP is lost.
    C1,
    /// SP is not aligned at a call.
    C2,
    /// It depends on a register that a callee may change.
    C3,
    /// The unwind table is wrong at a call.
    C4,
    /// The unwind table is wrong at another instruction.
    C5,
    /// It calls C where the unwind table has no row.
    C6,
    /// It reads what lay below SP.
    C7,
    /// Marks of protection that others have.
    C8,
    /// A control word or flag is changed.
    C9,
    /// The caller's frame is overwritten.
    C10,
    /// A protection of branches or returns stops it.
    C11,
    /// It saves registers before a call, and does not restore one of them.
    C12,
    /// It changes a register that the functions beside it keep.
    C13,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// A program goes wrong.
    Error,
    /// Exceptions, backtraces, profilers or protection go wrong.
    Warning,
    /// Hardly anybody sees it.
    Note,
}

/// A claim: two values, an instruction, and the run that shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Claim {
    /// Its kind.
    pub kind: Kind,
    /// How bad it is.
    pub tier: Tier,
    /// The register, or the part of the frame.
    pub place: String,
    /// Bytes from the function's start to the instruction; `None` where it is about all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The instruction.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instruction: String,
    /// What C relies on.
    pub want: String,
    /// What was seen.
    pub got: String,
    /// What it calls there, if that matters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub callee: String,
    /// At how many instructions it is so.
    pub instructions: usize,
    /// In how many of the runs that returned.
    pub runs: usize,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The way of that run: bytes from the function's start to where its straight pieces of code begin, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<u64>,
    /// The instructions around that one, which has an arrow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// All of its instructions are where the function ends.
    #[serde(skip)]
    #[schemars(skip)]
    pub(super) at_end: bool,
}

/// How many claims of a kind were true when their code was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Confidence {
    #[serde(rename = "true")]
    /// Those that were true.
    pub true_ones: u32,
    /// Those whose code was read.
    pub read: u32,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Kind::C1,
        Kind::C2,
        Kind::C3,
        Kind::C4,
        Kind::C5,
        Kind::C6,
        Kind::C7,
        Kind::C8,
        Kind::C9,
        Kind::C10,
        Kind::C11,
        Kind::C12,
        Kind::C13,
    ];

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Kind::C1 => "a callee-saved register or SP is lost",
            Kind::C2 => "SP is not aligned at a call",
            Kind::C3 => "the function depends on a register that its callee may change",
            Kind::C4 => "the unwind table is wrong at a call",
            Kind::C5 => "the unwind table is wrong at an instruction that does not call",
            Kind::C6 => "a call has no row in the unwind table",
            Kind::C7 => "the function reads what lay below SP",
            Kind::C8 => "an object's mark of protection is missing or false",
            Kind::C9 => "a control word or flag is changed",
            Kind::C10 => "the function writes into its caller's frame",
            Kind::C11 => "a protection of branches or returns stops the function",
            Kind::C12 => "of the registers that the function saves before a call, one is not restored",
            Kind::C13 => "the function changes a register that its siblings keep",
        }
    }

    /// Of those in Debian's packages, how many were true when their code was read, and how many were read (`results/audit.md`); nothing
    /// where none was found.
    pub fn confidence(self) -> Option<Confidence> {
        let (true_ones, read) = match self {
            Kind::C1 => (3, 5),
            Kind::C2 => (5, 5),
            Kind::C3 => (3, 3),
            Kind::C4 => (8, 8),
            Kind::C5 => (129, 129),
            Kind::C6 => (24, 25),
            Kind::C7 => (1, 1),
            Kind::C8 => (145, 145),
            Kind::C13 => (8, 8),
            Kind::C9 | Kind::C10 | Kind::C11 | Kind::C12 => return None,
        };
        Some(Confidence { true_ones, read })
    }

    /// Who relies on it.
    pub fn relies(self) -> &'static str {
        match self {
            Kind::C1 => "every caller",
            Kind::C2 => "a callee that stores vector registers on the stack",
            Kind::C3 => "every program, once another compiler compiles the callee",
            Kind::C4 | Kind::C6 => "exceptions, pthread_exit and backtraces that pass the call",
            Kind::C5 => "sampling profilers, debuggers and signal handlers that unwind",
            Kind::C7 => "every program, once a signal arrives there",
            Kind::C8 => "the protection of the whole program that it is linked into",
            Kind::C9 => "every caller",
            Kind::C10 => "every caller that has a variable there",
            Kind::C11 => "every program that runs with that protection",
            Kind::C12 | Kind::C13 => "callers that know of a convention of its own, if it has one",
        }
    }

    /// What would mend it.
    pub fn mend(self) -> &'static str {
        match self {
            Kind::C1 => "save it at the entry and restore it on this path, or use a scratch register in its place",
            Kind::C2 => "move SP by another multiple, so that it is aligned at the call",
            Kind::C3 => "keep what is needed behind the call in a callee-saved register or on the stack",
            Kind::C4 | Kind::C5 => {
                "write the directive (.cfi_*) that says what the instruction before it does to the frame"
            }
            Kind::C6 => "put .cfi_startproc and .cfi_endproc around the function, and describe its frame",
            Kind::C7 => "read it before SP moves, or move SP later",
            Kind::C8 => {
                "put the landing pads in, check the returns, and end the source with the note that the compiler writes"
            }
            Kind::C9 => "save it and restore it, or clear the flag before the return",
            Kind::C10 => "make room for it in the function's own frame",
            Kind::C12 => "restore it, or do not save it",
            Kind::C13 => "save and restore it, as they do",
            Kind::C11 => {
                "return to where the call came from, put a landing pad where an indirect branch goes, or move the shadow stack too"
            }
        }
    }
}

impl Claim {
    /// A claim of one run, about all of the function.
    pub(super) fn of(kind: Kind, tier: Tier, place: &str, (want, got): (String, String), number: u64) -> Claim {
        Claim {
            kind,
            tier,
            place: place.to_owned(),
            offset: None,
            instruction: String::new(),
            want,
            got,
            callee: String::new(),
            instructions: 1,
            runs: 0,
            seed: Some(number),
            path: Vec::new(),
            context: Vec::new(),
            at_end: false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { place, want, got, callee, .. } = self;
        match self.kind {
            Kind::C1 => write!(f, "The caller had {want} in {place}, and finds {got}"),
            Kind::C2 => write!(f, "SP is {got} bytes off a multiple of {want} at the call of {callee}"),
            Kind::C3 if !self.instruction.is_empty() => {
                write!(
                    f,
                    "It needs {place} behind the call of {callee}, which may leave {got} there in place of {want}"
                )
            }
            Kind::C3 if place == TOGETHER => {
                write!(
                    f,
                    "With callees that change all registers that they may: {got}; with callees that keep them: {want}"
                )
            }
            Kind::C3 => {
                write!(f, "It needs {place} behind a call: with {want} there, and with {got}, it does not do the same")
            }
            Kind::C4 | Kind::C5 => write!(f, "The unwind table has {got} for {place}, which is {want}"),
            Kind::C6 => write!(f, "It calls {callee}, and no row of the unwind table covers the call"),
            Kind::C7 => {
                write!(f, "It reads {got}, which lay {want} bytes below SP, where a signal handler may have written")
            }
            Kind::C8 if self.offset.is_some() && got.starts_with('+') => {
                write!(f, "It branches to {got}, where {want} is missing that the object's note promises")
            }
            Kind::C8 if self.offset.is_some() => {
                write!(
                    f,
                    "It returns to where no call came from, though the object's note says that a shadow stack lets it pass"
                )
            }
            Kind::C8 if !callee.is_empty() => {
                write!(
                    f,
                    "{callee} begins without a landing pad, though its address is taken and the object's note promises one"
                )
            }
            Kind::C8 => write!(f, "Its {place} has {got}, where the compiler's objects have {want}"),
            Kind::C9 => write!(f, "{place} is {got} at the return; it was {want} at the entry"),
            Kind::C11 => write!(f, "{got}: the CPU stops it. {want}"),
            Kind::C12 => write!(
                f,
                "It saves {place} here, as others before its first call; most of those it restores, and of {place} the caller had {want} and \
                 finds {got}"
            ),
            Kind::C13 if callee.is_empty() => write!(f, "It changes {got}, otherwise than {want}"),
            Kind::C13 => {
                write!(f, "It changes {place} from {want} to {got}, which {callee} beside it save and restore")
            }
            Kind::C10 => {
                write!(
                    f,
                    "It writes {got}, {want} bytes above its own frame, where it has read nothing: no argument is there"
                )
            }
        }
    }
}
