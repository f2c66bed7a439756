//! What is done to trampolines against misuse and speculation: before them, at their entry, at their returns.
//!
//! An architecture resolves it once, from its options, which a kernel's configuration may have chosen. Planning, lowering and
//! contracts read it from [`Target`](crate::target::Target), and [`Harden::parts`] is what `tramptool show` prints.

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Harden {
    /// The landing pad with which a trampoline begins that something may branch to indirectly, as the manual calls it.
    pub landing: Option<&'static str>,
    /// How trampolines return.
    pub returns: ReturnStyle,
    /// Bytes before each function, as many as its alignment or none.
    pub padding: &'static [u8],
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
    pub const NONE: Harden = Harden { landing: None, returns: ReturnStyle::Plain, padding: &[] };

    /// What each part is, for people.
    pub fn parts(&self) -> [(&'static str, String); 3] {
        let returns = match self.returns {
            ReturnStyle::Plain => "plain".to_owned(),
            ReturnStyle::Trapped => "a trap behind each".to_owned(),
            ReturnStyle::Thunk(name) => format!("by a jump to {name}"),
        };
        let padding = match self.padding.len() {
            0 => "none".to_owned(),
            bytes => format!("{bytes} bytes before each function"),
        };
        [("entry", self.landing.unwrap_or("no landing pad").to_owned()), ("return", returns), ("padding", padding)]
    }
}
