//! What is done to trampolines against misuse and speculation: before them, at their entry, at their returns.
//!
//! An architecture resolves it once, from its options, which a kernel's configuration may have chosen. Planning, lowering and
//! contracts read it from [`Target`](crate::profile::target::Target), and [`Harden::parts`] is what `tramptool show` prints.

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harden {
    /// The landing pad with which a trampoline begins that something may branch to indirectly, as the manual calls it.
    pub landing: Option<&'static str>,
    /// How trampolines return.
    pub returns: ReturnStyle,
    /// Bytes before each function, as many as its alignment or none.
    pub padding: &'static [u8],
    /// The type before functions that are called through pointers, where callers look for one.
    pub typed: Option<TypeWord>,
}

/// The type of a function, as kCFI has it: a word before its first instruction, which who calls it through a pointer compares with
/// the type of the pointer. Its value is the compiler's: that of [`TypeWord::SYMBOL`] and the function's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeWord {
    /// Bytes between the alignment and the word.
    pub before: &'static [u8],
    /// Bytes between the word and the function.
    pub after: &'static [u8],
    /// The relocation of the word.
    pub r_type: u32,
    /// A local function is all of it: its name begins with [`TypeWord::LABEL`], and the function's own name follows.
    pub labelled: bool,
}

impl TypeWord {
    /// Bytes of the word.
    pub const BYTES: usize = 4;
    /// What the symbol begins with whose value is a function's type; the function's name follows.
    pub const SYMBOL: &str = "__kcfi_typeid_";

    /// What the name of a local function begins with that only holds the type of another.
    pub const LABEL: &str = "__cfi_";

    /// The word and nothing else.
    pub const fn alone(r_type: u32) -> TypeWord {
        TypeWord { before: &[], after: &[], r_type, labelled: false }
    }

    /// Bytes from the type word to the function's first instruction.
    pub fn distance(&self) -> u32 {
        (self.after.len() + TypeWord::BYTES) as u32
    }
}

/// How a trampoline returns, where it returns by the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnStyle {
    /// By the return instruction.
    Plain,
    /// By the return instruction, with a trap behind it, where speculation goes on.
    Trapped,
    /// By a jump to the function of this name, which returns.
    Thunk(&'static str),
}

impl Harden {
    /// Nothing is done.
    pub const NONE: Harden = Harden { landing: None, returns: ReturnStyle::Plain, padding: &[], typed: None };

    /// What each part is, for people.
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
        [("entry", entry), ("return", returns), ("padding", padding)].into_iter().chain(typed).collect()
    }
}
