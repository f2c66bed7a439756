//! The trampolines that are copied into a process.

use std::collections::BTreeMap;

use codegen::words::error::Result;
use codegen::words::recorder::Recorder;
use tramptool::{Clock, Events, Filling, Spec, Target, Template, generate};

use crate::signature::Signature;

/// The records of each function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct What {
    /// Entries alone, or returns too.
    pub returns: bool,
    /// The source of times.
    pub clock: Clock,
    /// Arguments, as far as a prototype is known.
    pub args: bool,
    /// Results, as far as one is.
    pub result: bool,
}

/// The way in which one function is recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum How {
    /// Entry and return. Meanwhile the return address is on a shadow stack of the thread.
    Shadow,
    /// The entry alone.
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

/// The records that the trampoline of one function writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Form {
    /// The recorded events.
    pub how: How,
    /// The number of recorded argument registers at the entry.
    pub args: u8,
    /// The result at the return.
    pub result: bool,
}

impl Form {
    /// That for a function of which this is known.
    pub fn of(how: How, what: What, signature: Option<&Signature>) -> Form {
        let args = signature.filter(|_| what.args).map_or(0, Signature::words);
        let known = signature.is_some_and(|signature| signature.result.is_ok());
        Form { how, args, result: what.result && how == How::Shadow && known }
    }
}

/// Templates for a process.
pub struct Forms {
    target: Target,
    /// Where the words of a thread are from its thread pointer on.
    words: i64,
    /// The templates of records without words.
    shadow: Template,
    entry: Template,
    /// The templates of records with words.
    others: BTreeMap<Form, Template>,
    sled: Template,
}

/// Behind the first of a thread's words, in bytes: one that is a cursor without room, always.
const NO_ROOM: i64 = 40;

/// How far behind what a template calls its function the function goes on behind its site.
const BEHIND: u64 = 16;

impl Forms {
    /// Those for an architecture, where the words of a thread are at this offset from its thread pointer. `all` registers are kept for
    /// functions whose callers know which of them they leave alone: who compiles a site does not let them.
    ///
    /// # Errors
    /// None that the arguments cause.
    pub fn new(arch: &str, what: What, words: i64, all: bool) -> Result<Forms> {
        let target = Target::with_profile(arch, profiles::USER)?;
        let template = |form: Form| {
            let record = |events| Spec::record(&format!("function+{BEHIND}"), events).args(form.args);
            let spec = match form.how {
                How::Shadow => record(Events::Both).form(tramptool::Form::Shadow),
                How::Entry => record(Events::Entry),
            };
            let spec = if form.result { spec.result() } else { spec };
            let spec = spec.clock(what.clock).refill("refill").tls("words");
            generate(&target, &[if all { spec.live_all() } else { spec }])?.template()
        };
        let most = if what.args { Recorder::MOST_ARGS } else { 0 };
        let hows = [(How::Shadow, what.result), (How::Entry, false)];
        let forms = hows.into_iter().flat_map(|(how, result)| {
            (0..=most).flat_map(move |args| (0..=u8::from(result)).map(move |n| Form { how, args, result: n == 1 }))
        });
        let worded = forms.filter(|form| form.args > 0 || form.result);
        let others = worded.map(|form| Ok((form, template(form)?))).collect::<Result<_>>()?;
        let plain = |how| template(Form { how, args: 0, result: false });
        let (shadow, entry) = (plain(How::Shadow)?, plain(How::Entry)?);
        let sled = generate(&target, &[Spec::sled("callee")])?.template()?;
        Ok(Forms { target, words, shadow, entry, others, sled })
    }

    fn template(&self, form: Form) -> &Template {
        self.others.get(&form).unwrap_or(match form.how {
            How::Shadow => &self.shadow,
            How::Entry => &self.entry,
        })
    }

    /// Where a copy begins that is not before `address`, and where it ends.
    pub fn place(&self, form: Form, address: u64) -> (u64, u64) {
        placed(self.template(form), address)
    }

    /// Append the copy for function number `id`, which goes on behind its site at `goes_on`, to the code at `base`, and say where its
    /// first instruction is. `sled` is where trampolines go where there is no room.
    ///
    /// # Errors
    /// Something is out of reach.
    pub fn copy(&self, form: Form, base: u64, (id, goes_on): (u32, u64), sled: u64, code: &mut Vec<u8>) -> Result<u64> {
        let filling =
            Filling { id, function: goes_on.wrapping_sub(BEHIND), refill: sled, tls: self.words, ..Filling::default() };
        append(self.template(form), &self.target, base, &filling, code)
    }

    /// The same with code that calls a routine by its sled, and goes on.
    ///
    /// # Errors
    /// Something is out of reach.
    pub fn calls(&self, base: u64, goes_on: u64, sled: u64, code: &mut Vec<u8>) -> Result<u64> {
        let function = goes_on.wrapping_sub(BEHIND);
        let filling = Filling { function, refill: sled, tls: self.words + NO_ROOM, ..Filling::default() };
        append(&self.entry, &self.target, base, &filling, code)
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
