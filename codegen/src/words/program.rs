//! Programs: C functions that are called before, instead of or after a traced function.

use std::borrow::Cow;

/// When a program is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attach {
    /// Before the function.
    Fentry,
    /// Before the function, and instead of it if the program returns anything but 0: that becomes the result.
    FmodRet,
    /// After the function.
    Fexit,
    /// Before the function and after it, with a word of its own in the context that lasts from one to the other.
    Fsession,
}

impl Attach {
    /// Those that are called before the function, in their order.
    pub const BEFORE: &[Attach] = &[Attach::Fentry, Attach::Fsession, Attach::FmodRet];
    /// Those that are called after it.
    pub const AFTER: &[Attach] = &[Attach::Fsession, Attach::Fexit];

    /// The option of the command line that names such a program.
    pub fn option(self) -> &'static str {
        match self {
            Attach::Fentry => "--fentry",
            Attach::FmodRet => "--fmod-ret",
            Attach::Fexit => "--fexit",
            Attach::Fsession => "--fsession",
        }
    }
}

/// The programs that are called at these points, by number, in the order of the calls.
pub fn called<'p>(programs: &'p [Program], at: &'p [Attach]) -> impl Iterator<Item = usize> + use<'p> {
    let of = move |attach: &'p Attach| {
        let all = programs.iter().enumerate();
        all.filter(move |(_, p)| p.attach == *attach).map(|(n, _)| n)
    };
    at.iter().flat_map(of)
}

impl std::fmt::Display for Program {
    /// As on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.attach.option(), self.symbol)?;
        if self.cookie == 0 { Ok(()) } else { write!(f, ":{:#x}", self.cookie) }
    }
}

/// A C function that is called with a context: `u64 program(u64 *context, u64 *cookie)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// When.
    pub attach: Attach,
    /// The symbol.
    pub symbol: Cow<'static, str>,
    /// What is at `cookie` while it runs: 31 bits, which every architecture can store in two instructions.
    pub cookie: i32,
}

impl Program {
    /// The most for one function, as the kernel's `BPF_MAX_TRAMP_LINKS` (include/linux/bpf.h), where a session counts as two.
    pub const MOST: usize = 38;
}
