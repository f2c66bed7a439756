//! Hardening of trampolines against misuse and speculation: before them, at their entry, at their returns.
//!
//! An architecture resolves it once, from its options, which a kernel's configuration may have chosen. Planning, lowering and
//! contracts read it from [`Target`](crate::profile::target::Target). `tramptool show` prints [`Harden::parts`].

use crate::words::abi::{Abi, Reg};

/// All hardening of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harden {
    /// The manual's name of the landing pad at the start of trampolines that indirect branches may reach.
    pub landing: Option<&'static str>,
    /// How trampolines return.
    pub returns: ReturnStyle,
    /// Bytes before each function, as many as its alignment or none.
    pub padding: &'static [u8],
    /// The kCFI type before functions that are called through pointers, if callers check it.
    pub typed: Option<TypeWord>,
    /// How trampolines guard a return address that they store.
    pub guard: Option<ReturnGuard>,
}

/// How code guards the return address that it stores in its frame, so that nobody who overwrites it there goes unnoticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnGuard {
    /// It signs the address before it stores it, and authenticates it after it has loaded it: Arm ARM D8.10.
    Signed,
    /// It pushes the address onto a shadow stack too, and compares it after it has loaded it: RISC-V Zicfiss.
    Pushed,
    /// It stores the address to the thread's shadow call stack too, and returns to what it finds there: Clang's ShadowCallStack.
    Scs,
}

/// The register with the shadow call stack, if this is how return addresses are guarded.
pub fn scs(guard: Option<ReturnGuard>, abi: &Abi) -> Option<Reg> {
    abi.scs.filter(|_| guard == Some(ReturnGuard::Scs))
}

impl ReturnGuard {
    /// All.
    pub const ALL: [ReturnGuard; 3] = [ReturnGuard::Signed, ReturnGuard::Pushed, ReturnGuard::Scs];

    /// Its name in contracts.
    pub fn name(self) -> &'static str {
        match self {
            ReturnGuard::Signed => "signed",
            ReturnGuard::Pushed => "pushed",
            ReturnGuard::Scs => "scs",
        }
    }
}

/// The kCFI type of a function: a word before its first instruction, which callers through a pointer compare with the pointer's
/// type. The compiler defines its value, as that of the symbol [`TypeWord::SYMBOL`] plus the function's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeWord {
    /// Bytes between the alignment and the word.
    pub before: &'static [u8],
    /// Bytes between the word and the function.
    pub after: &'static [u8],
    /// The relocation of the word.
    pub r_type: u32,
    /// A local function symbol covers the word: [`TypeWord::LABEL`] plus the function's name.
    pub labelled: bool,
}

impl TypeWord {
    /// Bytes of the word.
    pub const BYTES: usize = 4;
    /// The prefix of the symbol whose value is a function's type; the function's name follows.
    pub const SYMBOL: &str = "__kcfi_typeid_";

    /// The prefix of the local function symbol that covers only the type of another function.
    pub const LABEL: &str = "__cfi_";

    /// A type word without other bytes or symbol.
    pub const fn alone(r_type: u32) -> TypeWord {
        TypeWord { before: &[], after: &[], r_type, labelled: false }
    }

    /// Bytes from the type word to the function's first instruction.
    pub fn distance(&self) -> u32 {
        (self.after.len() + TypeWord::BYTES) as u32
    }
}

/// How a trampoline returns, if it returns by the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnStyle {
    /// By the return instruction.
    Plain,
    /// By the return instruction, with a trap behind it to stop speculation.
    Trapped,
    /// By a jump to the function of this name, which returns.
    Thunk(&'static str),
}

impl ReturnStyle {
    /// The name in contracts; none where the return instruction is all.
    pub fn name(self) -> Option<&'static str> {
        match self {
            ReturnStyle::Plain => None,
            ReturnStyle::Trapped => Some("trap"),
            ReturnStyle::Thunk(_) => Some("thunk"),
        }
    }
}

impl Harden {
    /// No hardening.
    pub const NONE: Harden =
        Harden { landing: None, returns: ReturnStyle::Plain, padding: &[], typed: None, guard: None };

    /// The parts of the hardening, as texts for people.
    pub fn parts(&self) -> Vec<(&'static str, String)> {
        let returns = match self.returns {
            ReturnStyle::Plain => "plain".to_owned(),
            ReturnStyle::Trapped => "a trap behind each".to_owned(),
            ReturnStyle::Thunk(name) => format!("by a jump to {name}"),
        };
        let padding = match self.padding.len() {
            0 => "none".to_owned(),
            bytes => format!("{bytes} bytes before each function"),
        };
        let entry = self.landing.unwrap_or("no landing pad").to_owned();
        let typed = self.typed.map(|word| ("type", format!("{} bytes before the entry", word.distance())));
        let guard = self.guard.map(|guard| {
            let how = match guard {
                ReturnGuard::Signed => "the return address is signed in the frame",
                ReturnGuard::Pushed => "the return address is on the shadow stack too",
                ReturnGuard::Scs => "the return address is taken from the shadow call stack",
            };
            ("guard", how.to_owned())
        });
        [("entry", entry), ("return", returns), ("padding", padding)].into_iter().chain(typed).chain(guard).collect()
    }
}
