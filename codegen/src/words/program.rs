//! Programs: C functions that are called before, instead of or after a traced function.

use std::borrow::Cow;

/// The point at which a program is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Attach {
    /// Before the function.
    Fentry,
    /// Before the function. If the program does not return 0, the function is skipped, and the value becomes its result.
    FmodRet,
    /// After the function.
    Fexit,
    /// Before the function and after it, with a word of its own in the context that lasts from the first call to the second.
    Fsession,
}

impl Attach {
    /// The points before the function.
    pub const BEFORE: &[Attach] = &[Attach::Fentry, Attach::Fsession, Attach::FmodRet];
    /// The points after the function.
    pub const AFTER: &[Attach] = &[Attach::Fsession, Attach::Fexit];

    /// The command-line option that names a program for this point.
    pub fn option(self) -> &'static str {
        match self {
            Attach::Fentry => "--fentry",
            Attach::FmodRet => "--fmod-ret",
            Attach::Fexit => "--fexit",
            Attach::Fsession => "--fsession",
        }
    }

    /// How a program there is called directly.
    pub fn called_with(self) -> &'static str {
        match self {
            Attach::Fentry => "fentry(context, cookie)",
            Attach::FmodRet => "fmod_ret(context, cookie)",
            Attach::Fexit => "fexit(context, cookie)",
            Attach::Fsession => "fsession(context, cookie)",
        }
    }
}

/// The numbers of the programs that are called at these points, in the order of the calls: as they are listed, but those that may
/// skip the function come last before it (kernel arch/x86/net/bpf_jit_comp.c, `__arch_prepare_bpf_trampoline`).
pub fn called<'p>(programs: &'p [Program], at: &'p [Attach]) -> impl Iterator<Item = usize> + use<'p> {
    let of = move |decides: bool| {
        let all = programs.iter().enumerate();
        let here = move |p: &Program| at.contains(&p.attach) && (p.attach == Attach::FmodRet) == decides;
        all.filter(move |(_, p)| here(p)).map(|(n, _)| n)
    };
    of(false).chain(of(true))
}

impl std::fmt::Display for Program {
    /// Writes the program as on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.attach.option(), self.symbol)?;
        if self.cookie == 0 { Ok(()) } else { write!(f, ":{:#x}", self.cookie) }
    }
}

/// A C function that is called with a context: `u64 program(u64 *context, u64 *cookie)`, or with functions around it
/// `u64 program(u64 *context)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The point at which the program is called.
    pub attach: Attach,
    /// The program's symbol.
    pub symbol: Cow<'static, str>,
    /// The value at `cookie` while the program runs.
    pub cookie: i64,
}

/// Two functions that Linux calls around another: `__bpf_prog_enter` and `__bpf_prog_exit` around a program, `__bpf_tramp_enter` and
/// `__bpf_tramp_exit` around all programs and the traced function (kernel kernel/bpf/trampoline.c).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bracket {
    /// The function called before.
    pub enter: Cow<'static, str>,
    /// The function called after.
    pub exit: Cow<'static, str>,
    /// The symbol whose address both get as their first argument; `None` if any address will do, so long as both get the same.
    pub argument: Option<Cow<'static, str>>,
    /// The first never says that the program is not to be called.
    pub always: bool,
}

impl Bracket {
    /// Bytes of `struct bpf_tramp_run_ctx`, which the functions around a program are given (kernel include/linux/bpf.h). The first
    /// word is the cookie.
    pub const RUN_CONTEXT: i32 = 16;
    /// Where in it they keep the context of their caller.
    pub const SAVED: i32 = 8;
}

impl Program {
    /// The most programs for one function: the kernel's `BPF_MAX_TRAMP_LINKS` (include/linux/bpf.h). A session counts as two.
    pub const MOST: usize = 38;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_as_they_are_listed_and_those_that_decide_last() {
        let of = |attach| Program { attach, symbol: Cow::Borrowed("p"), cookie: 0 };
        let list = [Attach::Fexit, Attach::Fsession, Attach::FmodRet, Attach::Fentry, Attach::Fsession].map(of);
        assert_eq!(called(&list, Attach::BEFORE).collect::<Vec<_>>(), [1, 3, 4, 2]);
        assert_eq!(called(&list, Attach::AFTER).collect::<Vec<_>>(), [0, 1, 4]);
    }
}
