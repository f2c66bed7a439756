//! The contract of a trampoline of BPF: who is called with what follows from its calls, what is passed from the prototype.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use codegen::ask::live::Word;
use codegen::backend::Backend;
use codegen::profile::Profile;
use codegen::words::abi::RegSet;
use codegen::words::error::{Error, Result};
use codegen::words::proto::Prototype;
use codegen::words::step::KernelLabel;
use emu_tests::{WrittenCalls, WrittenProgram};
use tramptool::internal::settings;

use super::types::Function;

/// Bytes of a function in which its site ends.
pub const SITE: u64 = 64;

/// What was read.
pub struct Written {
    /// The kernel's name of it.
    pub name: String,
    /// The architecture.
    pub backend: &'static dyn Backend,
    /// The profile.
    pub profile: &'static Profile,
    /// The traced function.
    pub function: Function,
    /// Where that begins.
    pub traced: u64,
    /// What the trampoline calls.
    pub calls: WrittenCalls,
}

impl Written {
    /// The addresses of what it calls.
    pub fn called(&self) -> Vec<u64> {
        let programs = self.calls.before.iter().chain(&self.calls.after);
        let around = self.calls.around.into_iter().flatten();
        programs.flat_map(|p| [p.enter, p.program, p.exit]).chain(around).chain([self.traced]).collect()
    }

    /// The contract's text.
    ///
    /// # Errors
    /// A prototype that BPF does not trace.
    pub fn contract(&self, names: &BTreeMap<u64, String>) -> Result<String> {
        let session = self.calls.before.iter().find(|program| self.is_session(program));
        if let Some(session) = session.filter(|_| self.calls.numbers.iter().any(|n| self.names_a_word(*n))) {
            let message =
                "a session with a word of its own, which its code does not tell from those of others, is called at";
            return Err(Error::new(format!("{message} {:#x}", session.program)));
        }
        let facts = self.backend.facts();
        let convention = self.profile.convention(facts.name)?;
        let target = settings::target(self.backend, convention, &[])?;
        let proto = Prototype::parse(&self.function.signature)?;
        let shown = target.place(&proto)?.programs(&proto, &facts.abi, RegSet::EMPTY, true)?;
        let name = |at: u64| names.get(&at).cloned().unwrap_or_else(|| format!("{at:#x}"));
        let regs =
            |set: RegSet| set.iter().map(|reg| format!("{:?}", facts.abi.name(reg))).collect::<Vec<_>>().join(", ");
        let (called, ip) = (self.calls.returns_to.is_some(), self.calls.numbers.contains(&self.traced));
        let mut flags = if called { vec!["CALL_ORIG"] } else { vec!["RESTORE_REGS"] };
        // What arrives by a call on machines with a link register, or by one whose return address goes.
        if called && (facts.abi.link.is_some() || self.calls.drops) {
            flags.push("SKIP_FRAME");
        }
        flags.extend(ip.then_some("IP_ARG"));
        let mut out = format!("arch = {:?}\nprofile = {:?}\n", facts.name, convention.argument);
        let _ = writeln!(out, "about = \"of {}, in a kernel's memory\"\n", self.function.signature);
        let _ = writeln!(out, "[[trampoline]]\nsymbol = {:?}\nkind = \"programs\"\ngeneral-handlers = true", self.name);
        let words: Vec<String> = self.words(&shown.words, facts);
        let _ = writeln!(out, "words = [{}]\nflags = {flags:?}", words.join(", "));
        let _ = writeln!(out, "live = {{ registers = [{}], stack = {} }}", regs(shown.live.regs), shown.live.stack);
        let _ = writeln!(out, "stack-align = {}", target.stack_align);
        out.push_str(if session.is_some() { "wordless-sessions = true\n" } else { "" });
        let _ = writeln!(out, "programs = [\n    {},\n]", self.programs(&name).join(",\n    "));
        if called || ip {
            // Where it is gone to by its return address, that is not asked for.
            let resume = self.calls.function.map_or(0, |to| to.wrapping_sub(self.traced));
            let _ = writeln!(out, "function = {:?}\nresume = {resume}", name(self.traced));
            out.push_str(if ip { "ip-is-start = true\n" } else { "" });
        }
        if let Some([enter, exit]) = self.calls.around.filter(|_| called) {
            let _ = writeln!(out, "around = {{ enter = {:?}, exit = {:?} }}", name(enter), name(exit));
            let written = &convention.programs.written;
            let _ = writeln!(out, "holds-own = [{}]", regs(written.own));
            let align = written.body_align.map(|align| format!("function-align = {align}\n"));
            out.push_str(&align.unwrap_or_default());
            out.push_str(if written.body_by_return { "function-by-return = true\n" } else { "" });
            if self.function.returns {
                let _ = writeln!(out, "result = {{ registers = [{}] }}", regs(shown.result.regs));
            }
        }
        let labels =
            self.labels(convention.has_label(KernelLabel::Skip(0)), convention.has_label(KernelLabel::AfterCall));
        if !labels.is_empty() {
            let _ = writeln!(out, "labels = {{ {} }}", labels.join(", "));
        }
        Ok(out)
    }

    fn words(&self, words: &[Option<Word>], facts: &codegen::arch::facts::Facts) -> Vec<String> {
        let sizes = self.function.sizes.iter().flat_map(|size| (0..*size).step_by(8).map(move |at| (size - at).min(8)));
        let word = |(word, bytes): (&Word, u32)| match word {
            Word::Reg(reg) => format!("{:?}", facts.abi.name(*reg)),
            Word::Stack(n) if bytes < 8 => format!("{{ at = \"stack+{}\", bytes = {bytes} }}", 8 * n),
            Word::Stack(n) => format!("\"stack+{}\"", 8 * n),
        };
        words.iter().flatten().zip(sizes).map(word).collect()
    }

    /// Is a program called before the function and after it?
    fn is_session(&self, program: &WrittenProgram) -> bool {
        self.calls.after.iter().any(|other| other.program == program.program)
    }

    /// May this be what stands before a context when a session with a word is called: the number of words, and an index behind it
    /// (kernel include/linux/bpf.h, BPF_TRAMP_COOKIE_INDEX_SHIFT)?
    fn names_a_word(&self, number: u64) -> bool {
        let words = self.function.sizes.iter().map(|size| u64::from(size.div_ceil(8))).sum::<u64>();
        let number = number & !(1 << 63);
        number & 0xff == words && (1..=0xff).contains(&(number >> 8))
    }

    /// Programs before the function, those that decide, those after it.
    fn programs(&self, name: &dyn Fn(u64) -> String) -> Vec<String> {
        let WrittenCalls { before, after, .. } = &self.calls;
        let one = |attach: &str, p: &WrittenProgram| {
            let (enter, exit) = (name(p.enter), name(p.exit));
            format!(
                "{{ attach = {attach:?}, calls = {:?}, around = {{ enter = {enter:?}, exit = {exit:?} }} }}",
                name(p.program)
            )
        };
        let attached = |p: &WrittenProgram| if p.decides { "fmod-ret" } else { "fentry" };
        let before = before.iter().map(|p| one(attached(p), p));
        before.chain(after.iter().map(|p| one("fexit", p))).collect()
    }

    fn labels(&self, skips: bool, retires: bool) -> Vec<String> {
        let WrittenCalls { before, after, gap, epilogue, .. } = &self.calls;
        let mut labels = Vec::new();
        for (n, program) in before.iter().chain(after).enumerate().filter(|_| skips) {
            if let Some((at, to)) = program.skip {
                labels.push(format!("skip_{n} = \"{at:#x}\", skipped_{n} = \"{to:#x}\""));
            }
        }
        if let (true, Some(after_call), Some(epilogue)) = (retires, gap, epilogue) {
            labels.push(format!("after_call = \"{after_call:#x}\", epilogue = \"{epilogue:#x}\""));
        }
        labels
    }
}
