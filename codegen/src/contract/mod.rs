//! Contracts: the promises of a trampoline, derived from the spec and the conventions, never from the plan or the listing.
//!
//! The emulator judges by it, the text above each function states it (`sentences`), the manifest carries it
//! (`manifest`).

pub mod demand;
mod manifest;
pub(crate) mod pairing;
pub mod sentences;
pub mod stated;

use serde::Serialize;

use self::pairing::{Pairing, has_direct};
use self::stated::{Bracketed, Stated};
use crate::arch::facts::{Facts, NumberOf, ThreadWord};
use crate::arch::harden::{ReturnGuard, ReturnStyle, scs};
use crate::arch::site::Site;
use crate::ask::frame::{Content, FrameLayout, Stores};
use crate::ask::kind::{Calls, Entered, Keeps, Kind, KindTraits};
use crate::ask::spec::{Bracket, Program, Programs, Spec};
use crate::profile::Convention;
use crate::profile::target::Target;
use crate::words::abi::{Loc, Reg, RegSet};
use crate::words::error::{Error, Result};
use crate::words::step::Value;
use crate::words::term::Root;

/// The bits of an address that may mean that a buffer is full: the size of the buffer is 2 to the power of the bit.
const FULL_BITS: std::ops::RangeInclusive<i32> = 12..=40;

/// The traced function that a trampoline calls or enters by name.
#[derive(Clone, Debug, Serialize)]
pub struct Traced {
    /// The function.
    pub function: String,
    /// Bytes from its start to behind its site.
    pub resume: i32,
    /// The handler that is called when the function has returned; empty if none.
    pub exit: String,
    /// The return address arrives signed with the stack pointer at the site, and the function gets the unsigned one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
}

/// The promise of one trampoline.
#[derive(Clone, Debug)]
pub struct Contract {
    /// The architecture.
    pub facts: &'static Facts,
    /// The profile's choices for the architecture.
    pub convention: &'static Convention,
    /// The trampoline's symbol.
    pub name: String,
    /// The kind of trampoline.
    pub kind: Kind,
    /// The symbol of the callee; empty if none.
    pub callee: String,
    /// The traced function, if the trampoline names it.
    pub traced: Option<Traced>,
    /// The programs that the trampoline calls, in the order in which they were given.
    pub programs: Vec<Program>,
    /// The frame, by field.
    pub frame: FrameLayout,
    /// General registers that are preserved when the traced function goes on.
    pub kept: RegSet,
    /// General registers that are clobbered when the traced function goes on.
    pub clobbered: RegSet,
    /// A bit mask of vector registers that are preserved whatever a handler does, besides those that the prototype makes live.
    /// After a call of the traced function, only those of them that may carry a result.
    pub vectors_kept: u32,
    /// A bit mask of vector registers that are clobbered.
    pub vectors_lost: u32,
    /// A bit mask of control words that are clobbered.
    pub control_lost: u8,
    /// The flags are preserved.
    pub flags_kept: bool,
    /// A callback may choose a direct trampoline.
    pub direct: bool,
    /// Bit 0 of the direct trampoline's address means that the site would jump to it.
    pub direct_jumps: bool,
    /// Registers that are clobbered on the way to a direct trampoline, though they are preserved otherwise.
    pub direct_lost: RegSet,
    /// The `ftrace_ops` may name a direct trampoline.
    pub early_direct: bool,
    /// Bytes to which SP is aligned at the call.
    pub stack_align: u32,
    /// The alignment holds whatever the alignment at the site was.
    pub realigned: bool,
    /// Indirect branches must reach landing pads.
    pub landing_pad: bool,
    /// The trampoline begins with a landing pad.
    pub entry_pad: bool,
    /// The distance in bytes of the type word before the entry, which callers through a pointer check; `None` if there is none.
    pub type_before: Option<u32>,
    /// How the trampoline returns, if it returns by the stack; `None` if nothing is promised.
    pub returns: Option<ReturnStyle>,
    /// How the trampoline guards the return address that it stores, if that is promised.
    pub guard: Option<ReturnGuard>,
    /// The number of returns on the way out without a call on the return-address stack.
    pub unpaired: u32,
    /// The number of returns that the return-address stack mispredicts, because the traced function's return was redirected, or
    /// because nothing returns to the site's call.
    pub mispredicted: u32,
    /// The number of mispredicted returns on the way to a direct trampoline: one, if that way is a return.
    pub direct_mispredicted: u32,
    /// In the callback the frame pointer is the frame's address with bit 0 set.
    pub marks_regs: bool,
    /// For recording: the thread-local variable with the thread's words; empty if these count from the thread pointer.
    pub tls: String,
    /// For recording: the offsets of cursor, limit and counter, from the thread pointer or in the thread-local variable.
    pub thread_words: [i32; 3],
    /// For recording with a shadow stack: the offsets of the words with the address of its next entry, and with its end, from the
    /// thread pointer or in the thread-local variable.
    pub shadow_words: [i32; 2],
    /// For recording with a refill routine: the bit of a record's address that is set if the buffer has no room.
    pub full_bit: i32,
    /// Statements that contracts in files have, and those of functions around programs.
    pub stated: Stated,
}

/// The general registers of a trampoline of this kind by the rules of C and ftrace: (preserved, clobbered) when the traced
/// function goes on. SP and the registers with return addresses are in neither: the site's convention decides their
/// values.
pub fn promised(kind: Kind, facts: &Facts, site: &Site, guard: Option<ReturnGuard>) -> (RegSet, RegSet) {
    let abi = &facts.abi;
    let all = abi.callee_saved.union(abi.caller_saved).union(abi.platform);
    let own = RegSet::from_iter(scs(guard, abi));
    let (c_rules, live) = (site.c_keeps(abi).union(own), site.live.minus(own));
    let KindTraits { keeps, entered, .. } = *kind.traits();
    let kept = match keeps {
        Keeps::AnyArguments => c_rules.union(RegSet::of(abi.args)).union(abi.hidden).union(live),
        Keeps::ItsArguments => c_rules.union(kind.passed(abi, live).regs),
        Keeps::Results => c_rules.union(RegSet::of(abi.exit_rets)),
        Keeps::Nothing => c_rules,
        Keeps::AllButLost => all.minus(site.lost),
        Keeps::AllButScratch => all.minus(site.scratch),
        Keeps::AllButLinkage => all.minus(abi.linkage),
        Keeps::All => all,
    };
    let way: Vec<Reg> = match (entered, keeps) {
        (Entered::AsCallback | Entered::InItsPlace, _) => Vec::new(),
        (Entered::Called, _) => abi.link.into_iter().collect(),
        // Only the link register is free: everything else may be live, and a kprobe's handler may read it.
        (_, Keeps::All | Keeps::AllButLinkage) => abi.link.into_iter().collect(),
        _ => [site.pc, site.parent_ip].into_iter().filter_map(Loc::reg).collect(),
    };
    let mut open = RegSet::of(&way).union(RegSet::of(&[abi.sp]));
    if kind.calls_body() && !kind.is_shadow() {
        // The frame pointer points to the frame while the function runs, and is the parent's again afterwards.
        open = open.union(RegSet::of(&[abi.fp]));
    }
    let kept = kept.minus(open);
    (kept, all.minus(kept).minus(open))
}

/// The registers of the traced function in a frame whose slots take effect when handlers store to them.
fn given_back(frame: &FrameLayout) -> RegSet {
    let given = frame.fields.iter().filter(|f| f.stores == Stores::TakeEffect);
    let regs = given.filter_map(|f| if let Content::Reg(reg) = f.content { Some(reg) } else { None });
    RegSet::of(&regs.collect::<Vec<_>>())
}

/// A bit mask of the vector registers that a trampoline of this kind saves without a prototype.
fn vectors_kept(kind: Kind, target: &Target) -> u32 {
    if kind.is_in_the_middle() { (target.layouts.vectors)(target.choices) } else { target.carriers(kind).bits() }
}

/// The traced function, if the trampoline names it.
fn traced(spec: &Spec) -> Option<Traced> {
    let exits = spec.kind.traits().calls == Calls::Handlers;
    spec.kind.names_function().then(|| Traced {
        function: spec.body.function.to_owned(),
        resume: spec.body.resume,
        exit: if exits { spec.body.exit.to_owned() } else { String::new() },
        signed: spec.body.signed,
    })
}

/// The statements that those of a trampoline share with those of a kernel: the functions around programs.
fn stated(spec: &Spec) -> Stated {
    let Some(programs) = spec.kind.programs().filter(Programs::bracketed) else { return Stated::default() };
    let bracketed =
        |(around, program): (&Bracket, &Program)| Bracketed { around: around.clone(), cookie: Some(program.cookie) };
    Stated {
        around_programs: spec.brackets.iter().zip(spec.programs).map(bracketed).collect(),
        around_function: spec.brackets.get(spec.programs.len()).filter(|_| programs.call_orig).cloned(),
        own: if programs.call_orig { programs.own } else { RegSet::EMPTY },
        ip_is_start: programs.ip_arg,
        ..Stated::default()
    }
}

impl Contract {
    /// The contract of `spec`.
    ///
    /// # Errors
    /// More arguments than the architecture has registers.
    pub fn of(spec: &Spec, target: &Target) -> Result<Contract> {
        let frame = target.frame(spec.kind)?.into_owned();
        let (kept, clobbered) = promised(spec.kind, target.facts, &target.convention.site, target.guards(spec.kind));
        let KindTraits { calls, keeps, .. } = *spec.kind.traits();
        // Registers that the frame restores may be live too, whatever the rules of C.
        let given = given_back(&frame).minus(kept);
        let given = if keeps == Keeps::AnyArguments { given.minus(given.minus(clobbered)) } else { RegSet::EMPTY };
        let (kept, clobbered) = (kept.union(given), clobbered.minus(given));
        let callee = match calls {
            Calls::Callback => target.convention.callback.symbol.to_owned(),
            Calls::ExitHandler => target.convention.return_handler(spec.kind).to_owned(),
            Calls::Named | Calls::Handlers => spec.callee.to_owned(),
            Calls::Nothing if spec.kind.recorder().is_some_and(|recorder| recorder.refill) => spec.callee.to_owned(),
            Calls::Nothing | Calls::Programs | Calls::Kernel | Calls::Context => String::new(),
        };
        let tls = spec.kind.recorder().is_some_and(|recorder| recorder.tls);
        let word = |of: ThreadWord| target.number(of.number(tls));
        let thread_words = match spec.kind.recorder() {
            Some(_) => [word(ThreadWord::Cursor)?, word(ThreadWord::Limit)?, word(ThreadWord::Count)?],
            None => [0; 3],
        };
        let shadow_words = match spec.kind.recorder() {
            Some(recorder) if recorder.shadow => [word(ThreadWord::Shadow)?, word(ThreadWord::ShadowLimit)?],
            _ => [0; 2],
        };
        let refills = spec.kind.recorder().is_some_and(|recorder| recorder.refill);
        let full_bit = if refills { target.number(NumberOf::RecordFull)? } else { 0 };
        if refills && !FULL_BITS.contains(&full_bit) {
            let (from, to) = (FULL_BITS.start(), FULL_BITS.end());
            return Err(Error::new(format!(
                "RECORD_FULL={full_bit}: valid: {from} to {to}, the number of a bit of an address"
            )));
        }
        let every_register = keeps == Keeps::AllButLost;
        let rethook = spec.kind == Kind::Rethook;
        let direct = has_direct(&frame);
        let Pairing { unpaired, mispredicted, direct_mispredicted } = Pairing::of(spec.kind, &frame, target);
        let contract = Contract {
            facts: target.facts,
            convention: target.convention,
            name: spec.name.to_owned(),
            kind: spec.kind,
            callee,
            traced: traced(spec),
            programs: spec.programs.to_vec(),
            frame,
            kept,
            clobbered,
            direct_lost: target.direct_jump.map_or(RegSet::EMPTY, |reg| RegSet::of(&[reg])),
            vectors_kept: vectors_kept(spec.kind, target),
            vectors_lost: 0,
            control_lost: 0,
            flags_kept: target.pushes_flags && (rethook || target.restores_flags && every_register),
            direct,
            direct_jumps: direct && target.convention.site.direct_jumps,
            early_direct: target.op_from_site && spec.kind.calls_back() && !every_register,
            stack_align: target.stack_align,
            realigned: target.realign.is_some(),
            landing_pad: target.harden.landing.is_some(),
            entry_pad: target.landing(spec.kind).is_some(),
            type_before: target.typed(spec.kind).map(|word| word.distance()),
            returns: Some(target.harden.returns),
            guard: target.guards(spec.kind),
            unpaired,
            mispredicted,
            direct_mispredicted,
            marks_regs: target.marks_regs && (every_register || rethook),
            tls: if tls { spec.tls.to_owned() } else { String::new() },
            thread_words,
            shadow_words,
            full_bit,
            stated: stated(spec),
        };
        contract.places().map(|()| contract)
    }

    /// Does each return go where its call came from, so that a shadow stack lets it pass?
    pub fn is_paired(&self) -> bool {
        let Contract { unpaired, mispredicted, direct_mispredicted, .. } = *self;
        Pairing { unpaired, mispredicted, direct_mispredicted }.is_paired()
    }

    /// Refuse words of the thread that overlap, or that are not at a multiple of 8.
    ///
    /// # Errors
    /// Words overlap, or are misplaced.
    pub fn places(&self) -> Result<()> {
        let Some(recorder) = self.kind.recorder() else { return Ok(()) };
        let shadow = self.shadow_words.into_iter().filter(|_| recorder.shadow);
        let at: Vec<i32> = self.thread_words.into_iter().chain(shadow).collect();
        let from = if self.tls.is_empty() { "from the thread pointer" } else { "into the thread's variable" };
        let valid = "valid: cursor, limit, counter and those of the shadow stack each at a multiple of 8 of its own";
        if let Some(odd) = at.iter().find(|at| **at % 8 != 0) {
            return Err(Error::new(format!("a word {odd} bytes {from}; {valid}")));
        }
        if let Some(before) = at.iter().find(|at| **at < 0 && !self.tls.is_empty()) {
            return Err(Error::new(format!("a word {before} bytes {from}, which begins behind it; {valid}")));
        }
        if let Some((_, twice)) = at.iter().enumerate().find(|(n, word)| at[..*n].contains(word)) {
            let what = format!("two words of the thread {twice} bytes {from}");
            return Err(Error::new(format!("{what}; {valid}")));
        }
        Ok(())
    }

    /// The index of the callback's argument that is `value`.
    pub fn position(&self, value: Value) -> Option<usize> {
        match &self.stated.arguments {
            Some(arguments) => arguments.iter().position(|a| a.value.alone().and_then(Root::told) == Some(value)),
            None => self.convention.callback.position(value),
        }
    }

    fn reg_names(&self, set: RegSet) -> Vec<&'static str> {
        set.iter().filter_map(|r| self.facts.abi.regs.get(r.0 as usize)).map(|r| r.name).collect()
    }
}
