//! The trampolines that are copied into a process.

use codegen::words::error::Result;
use tramptool::{Clock, Events, Filling, Form, Spec, Target, Template, generate};

/// What is recorded of each function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct What {
    /// Entries alone, or returns too.
    pub returns: bool,
    /// Where the time comes from.
    pub clock: Clock,
}

/// How one function is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Its entry and its return, which is on a stack of the thread's own meanwhile.
    Shadow,
    /// Its entry alone.
    Entry,
}

impl How {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            How::Shadow => "shadow",
            How::Entry => "entry",
        }
    }
}

/// Templates for a process.
pub struct Forms {
    target: Target,
    /// Where the words of a thread are from its thread pointer on.
    words: i64,
    shadow: Template,
    entry: Template,
    sled: Template,
}

/// How far behind what a template calls its function the function goes on behind its site.
const BEHIND: u64 = 16;

impl Forms {
    /// Those for an architecture, where the words of a thread are at this offset from its thread pointer. `all` registers are kept for
    /// functions whose callers know which of them they leave alone: who compiles a site does not let them.
    ///
    /// # Errors
    /// None that the arguments cause.
    pub fn new(arch: &str, clock: Clock, words: i64, all: bool) -> Result<Forms> {
        let target = Target::with_profile(arch, profiles::USER)?;
        let spec = |events: Events| {
            let spec = Spec::record(&format!("function+{BEHIND}"), events).clock(clock).refill("refill").tls("words");
            if all { spec.live_all() } else { spec }
        };
        let shadow = generate(&target, &[spec(Events::Both).form(Form::Shadow)])?.template()?;
        let entry = generate(&target, &[spec(Events::Entry)])?.template()?;
        let sled = generate(&target, &[Spec::sled("callee")])?.template()?;
        Ok(Forms { target, words, shadow, entry, sled })
    }

    fn template(&self, how: How) -> &Template {
        match how {
            How::Shadow => &self.shadow,
            How::Entry => &self.entry,
        }
    }

    /// Where a copy begins that is not before `address`, and where it ends.
    pub fn place(&self, how: How, address: u64) -> (u64, u64) {
        placed(self.template(how), address)
    }

    /// Append the copy for function number `id`, which goes on behind its site at `goes_on`, to the code at `base`, and say where its
    /// first instruction is. `sled` is where trampolines go where there is no room.
    ///
    /// # Errors
    /// Something is out of reach.
    pub fn copy(&self, how: How, base: u64, (id, goes_on): (u32, u64), sled: u64, code: &mut Vec<u8>) -> Result<u64> {
        let filling =
            Filling { id, function: goes_on.wrapping_sub(BEHIND), refill: sled, tls: self.words, ..Filling::default() };
        append(self.template(how), &self.target, base, &filling, code)
    }

    /// The same with the routine that trampolines call where there is no room. It calls the C function at `callee`.
    ///
    /// # Errors
    /// Something is out of reach.
    pub fn sled(&self, base: u64, callee: u64, code: &mut Vec<u8>) -> Result<u64> {
        append(&self.sled, &self.target, base, &Filling { callee, ..Filling::default() }, code)
    }
}

fn placed(template: &Template, address: u64) -> (u64, u64) {
    let at = address.next_multiple_of(template.align.into());
    (at, at + template.bytes.len() as u64)
}

fn append(template: &Template, target: &Target, base: u64, filling: &Filling, code: &mut Vec<u8>) -> Result<u64> {
    let (address, end) = placed(template, base + code.len() as u64);
    code.resize((end - base) as usize, 0);
    let from = (address - base) as usize;
    template.copy_to(target, address, filling, code.get_mut(from..).unwrap_or_default())?;
    Ok(address + u64::from(template.entry))
}
