//! The meaning of a contract in a file: the [`Contract`] that the judge holds trampolines to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use codegen::arch::facts::{Facts, NumberOf, ThreadWord};
use codegen::arch::harden::{ReturnGuard, ReturnStyle, TypeWord};
use codegen::arch::machine::{EmuReg, Machine};
use codegen::ask::frame::{self, Content, Field, FrameLayout, Record};
use codegen::ask::kind::{Around, Direct, FLAGS, Form, Kind, Programs, Regs, Syscall};
use codegen::ask::live::{Live, MOST_WORDS, Word};
use codegen::contract::stated::{Given, Next, Stated};
use codegen::contract::{Contract, Traced, promised};
use codegen::profile::Convention;
use codegen::words::abi::{Abi, Reg, RegSet};
use codegen::words::error::{Error, Result};
use codegen::words::intern::intern;
use codegen::words::program::{Attach, Program};
use codegen::words::recorder::{Clock, Events, Recorder};
use toml::Spanned;

use crate::contract::file::{
    DeviationIn, FrameIn, KindIn, LiveIn, ProgramIn, Promise, Reader, RecordIn, SlotIn, Stores, TrampolineIn, WordIn,
};
use crate::report::Clause;

/// Bytes of the largest frame. The checker reads all of it whenever a callback is called.
const LARGEST: i32 = 4096;

impl TrampolineIn {
    /// The calls that are patched.
    pub(crate) fn slots(&self) -> &[String] {
        match &self.slot {
            None => &[],
            Some(SlotIn::One(slot)) => std::slice::from_ref(slot),
            Some(SlotIn::Each(slots)) => slots,
        }
    }
}

impl RecordIn {
    fn content(self) -> Content {
        match self {
            RecordIn::Pc => Content::Pc,
            RecordIn::ParentIp => Content::ParentIp,
        }
    }
}

/// The vector registers and the control words among these names, by their numbers as bits.
fn besides(names: &[Spanned<String>], machine: &Machine) -> (u32, u8) {
    let named = |name: &&str| names.iter().any(|n| n.get_ref() == name);
    let bits = |all: &mut dyn Iterator<Item = &'static str>| {
        all.enumerate().filter(|(_, name)| named(name)).fold(0_u32, |bits, (i, _)| bits | 1 << i)
    };
    let control = bits(&mut machine.control.iter().map(|word| word.reg.name));
    (bits(&mut machine.vectors.iter().map(|reg| reg.name)), control as u8)
}

/// The names that are neither.
fn general(names: &[Spanned<String>], machine: &Machine) -> Vec<Spanned<String>> {
    let other = |name: &&Spanned<String>| besides(std::slice::from_ref(*name), machine) == (0, 0);
    names.iter().filter(other).cloned().collect()
}

impl Reader<'_> {
    /// The promises of a trampoline.
    ///
    /// # Errors
    /// It names what does not exist, or says what cannot be.
    pub(crate) fn contract(
        &self,
        t: &TrampolineIn,
        frames: &BTreeMap<String, FrameIn>,
        (facts, machine): (&'static Facts, &Machine),
        convention: &'static Convention,
    ) -> Result<Contract> {
        let (kind, stack_align) = (self.kind(t, facts, convention)?, self.stack_align(t)?);
        self.in_place(t, kind)?;
        let frame = match kind.programs() {
            Some(programs) => {
                FrameLayout { fields: context(&programs, &facts.abi), ..self.layout(t, frames, (facts, machine))? }
            }
            None => self.layout(t, frames, (facts, machine))?,
        };
        self.alone(t, &frame)?;
        let (vectors_kept, _) = besides(&t.keeps, machine);
        let vectors_kept = vectors_kept | self.carriers(t, kind, &facts.abi);
        let open_vectors = if kind.is_boundary() { !vectors_kept } else { 0 };
        let carries = self.registers(&general(&t.keeps, machine), facts)?.intersection(facts.abi.platform);
        let stated = Stated { carries, ..self.stated(t, kind, (facts, machine), convention)? };
        let own: Vec<Reg> =
            stated.gives.iter().filter_map(|g| if let Given::Reg(reg) = g.place { Some(reg) } else { None }).collect();
        let (kept, clobbered) = self.survivors(t, kind, (facts, machine), convention)?;
        let kept = kept.minus(RegSet::of(&own));
        let elsewhere = matches!(stated.next, Next::Behind(bytes) if bytes != 0);
        let (vectors_lost, control_lost) = besides(&t.loses, machine);
        let vectors_lost = vectors_lost | open_vectors | stated.gives.iter().fold(0, |bits, g| bits | g.place.vector());
        let landing_pad = t.landing_pad.is_on(self.config);
        let number = |of| convention.numbers.iter().find(|n| n.of == of).map_or(0, |n| n.value);
        let word = |of: ThreadWord| number(of.number(t.tls.is_some()));
        let direct = frame.fields.iter().any(|f| f.content == Content::Direct && f.stores == frame::Stores::TakeEffect);
        Ok(Contract {
            facts,
            convention,
            name: t.symbol.clone(),
            kind,
            callee: t.calls.clone(),
            frame,
            kept,
            clobbered,
            vectors_kept: vectors_kept & !vectors_lost,
            vectors_lost,
            control_lost,
            flags_kept: t.keeps_flags || kind == Kind::Displaced,
            direct,
            direct_jumps: direct && t.direct_jumps,
            traced: self.traced(t, kind)?,
            direct_lost: self.registers(&t.direct_loses, facts)?,
            early_direct: t.early_direct,
            stack_align,
            realigned: false,
            landing_pad,
            entry_pad: landing_pad && !t.no_entry_pad && !kind.returned_to(),
            type_before: self.type_before(t, kind)?,
            guard: self.guard(t, facts)?,
            returns: self.returns(t, (facts, machine))?,
            // A call of the site that nothing returns to.
            // Or one behind which something else stands than what is returned to.
            mispredicted: u32::from(kind.calls_body() && !kind.jumped_to()) + u32::from(elsewhere),
            stated,
            programs: programs(t),
            unpaired: t.unpaired,
            direct_mispredicted: t.direct_mispredicted,
            marks_regs: t.marks_regs,
            tls: t.tls.as_ref().map_or("", |variable| variable.get_ref()).to_owned(),
            thread_words: [ThreadWord::Cursor, ThreadWord::Limit, ThreadWord::Count].map(word),
            shadow_words: [ThreadWord::Shadow, ThreadWord::ShadowLimit].map(word),
            full_bit: number(NumberOf::RecordFull),
        })
    }

    /// The place of the type that callers compare, if they do.
    fn type_before(&self, t: &TrampolineIn, kind: Kind) -> Result<Option<u32>> {
        let Some(before) = &t.type_before else { return Ok(None) };
        if kind.returned_to() {
            return Err(self.at(before.span().start, "type-before: only returns come here, and no call"));
        }
        if *before.get_ref() < TypeWord::BYTES as u32 {
            return Err(self.at(before.span().start, "type-before: the word has 4 bytes; valid: 4, or more"));
        }
        Ok(Some(*before.get_ref()))
    }

    /// How the return address is guarded in the frame, if it is.
    fn guard(&self, t: &TrampolineIn, facts: &Facts) -> Result<Option<ReturnGuard>> {
        let Some(given) = &t.guard else { return Ok(None) };
        let here: Vec<ReturnGuard> =
            ReturnGuard::ALL.into_iter().filter(|guard| facts.guards.contains(guard)).collect();
        match here.iter().find(|guard| guard.name() == given.get_ref()) {
            Some(guard) => Ok(Some(*guard)),
            None if here.is_empty() => Err(self.at(given.span().start, format!("guard is not for {}", facts.name))),
            None => {
                let valid: Vec<&str> = here.into_iter().map(ReturnGuard::name).collect();
                let what = format!("guard: unknown value; {} has {}", facts.name, valid.join(", "));
                Err(self.at(given.span().start, what))
            }
        }
    }

    /// How it returns, if that is said.
    fn returns(&self, t: &TrampolineIn, (facts, machine): (&Facts, &Machine)) -> Result<Option<ReturnStyle>> {
        let Some(given) = &t.returns else { return Ok(None) };
        let here = [ReturnStyle::Trapped, ReturnStyle::Thunk(machine.return_thunk)];
        if machine.return_thunk.is_empty() {
            return Err(self.at(given.span().start, format!("returns is not for {}", facts.name)));
        }
        let style = here.into_iter().find(|style| style.name() == Some(given.get_ref()));
        style.map(Some).ok_or_else(|| self.at(given.span().start, "returns: unknown value; valid: trap, thunk"))
    }

    /// Refuse keys of another kind: nothing would check them.
    fn in_place(&self, t: &TrampolineIn, kind: Kind) -> Result<()> {
        fn start<T>(of: Option<&Spanned<T>>) -> Option<usize> {
            of.map(|spanned| spanned.span().start)
        }
        let here = t.stack_align.span().start;
        let boundary =
            |key: &'static str, given: bool, kinds: &'static [&'static str]| (key, given.then_some(here), kinds);
        let given: [(&str, Option<usize>, &[&str]); 47] = [
            boundary("results", !t.results.is_empty(), &["closure", "callback"]),
            boundary("passes", !t.passes.is_empty(), &["closure", "callback", "switch"]),
            boundary("callee-keeps", t.callee_keeps.is_some(), &["callback"]),
            ("displaced", start(t.displaced.as_ref()), &["displaced"]),
            ("number", start(t.number.as_ref()), &["syscall"]),
            ("errno", start(t.errno.as_ref()), &["syscall"]),
            ("from", start(t.from.as_ref()), &["switch"]),
            ("from-register", start(t.from_register.as_ref()), &["switch"]),
            ("to", start(t.to.as_ref()), &["switch"]),
            boundary("switches-control", t.switches_control, &["switch"]),
            ("fresh", start(t.fresh.as_ref()), &["switch"]),
            ("args", start(t.args.as_ref()), &["direct", "around", "record", "syscall"]),
            ("ip", t.ip.then_some(here), &["direct"]),
            ("jump", t.jump.then_some(here), &["direct"]),
            ("live", start(t.live.as_ref()), &["direct", "programs"]),
            ("general-handlers", t.general_handlers.then_some(here), &["direct", "programs"]),
            ("form", start(t.form.as_ref()), &["around", "record"]),
            ("words", start(t.words.as_ref()), &["programs"]),
            ("result", start(t.result.as_ref()), &["programs"]),
            ("programs", start(t.programs.as_ref()), &["programs"]),
            ("flags", start(t.flags.as_ref()), &["programs"]),
            ("around", start(t.around.as_ref()), &["programs"]),
            ("function-align", start(t.function_align.as_ref()), &["programs"]),
            ("function-by-return", t.function_by_return.then_some(here), &["programs"]),
            ("wordless-sessions", t.wordless_sessions.then_some(here), &["programs"]),
            ("holds-own", start(t.holds_own.first()), &["programs"]),
            ("program-result", start(t.program_result.as_ref()), &["programs"]),
            ("labels", (!t.labels.is_empty()).then_some(here), &["programs"]),
            ("exit", start(t.exit.as_ref()), &["around"]),
            ("direct-jumps", t.direct_jumps.then_some(here), &["entry", "regs"]),
            ("direct-loses", start(t.direct_loses.first()), &["entry", "regs"]),
            ("slot", (!t.slots().is_empty()).then_some(here), &["entry", "regs"]),
            ("early-direct", t.early_direct.then_some(here), &["entry", "regs"]),
            ("direct-mispredicted", (t.direct_mispredicted > 0).then_some(here), &["entry", "regs"]),
            ("marks-regs", t.marks_regs.then_some(here), &["entry", "regs", "rethook"]),
            (
                "frame",
                start(t.frame.as_ref()),
                &["entry", "regs", "return", "rethook", "around", "closure", "displaced"],
            ),
            ("resume", start(t.resume.as_ref()), &["direct", "around", "programs", "record", "sled"]),
            ("signed", t.signed.then_some(here), &["direct", "around", "programs", "record"]),
            (
                "guard",
                start(t.guard.as_ref()),
                &["around", "programs", "record", "sled", "closure", "callback", "switch"],
            ),
            ("events", start(t.events.as_ref()), &["record"]),
            ("clock", start(t.clock.as_ref()), &["record"]),
            ("id", start(t.id.as_ref()), &["record"]),
            ("with-result", t.with_result.then_some(here), &["record"]),
            ("unwind", t.unwind.then_some(here), &["record"]),
            ("pair", t.pair.then_some(here), &["record"]),
            ("every-register", t.every_register.then_some(here), &["record"]),
            ("tls", start(t.tls.as_ref()), &["record"]),
        ];
        let mut wrong = given.iter().filter(|(.., kinds)| !kinds.contains(&kind.traits().word));
        match wrong.find_map(|(key, at, kinds)| Some((key, (*at)?, kinds))) {
            Some((key, at, kinds)) => Err(self.at(at, format!("{key} is for kind {} only", kinds.join(", ")))),
            None => Ok(()),
        }
    }

    /// Refuse a trampoline without a callee, and a frame with two members at one offset.
    fn alone(&self, t: &TrampolineIn, frame: &FrameLayout) -> Result<()> {
        let here = t.stack_align.span().start;
        // By a slot that is patched, through a variable or `op`, or by its name.
        let called = !t.slots().is_empty() || t.calls_through.is_some() || t.early_direct || !t.calls.is_empty();
        if matches!(t.kind, KindIn::Entry | KindIn::Regs) && !called {
            let message = format!("{} is of kind entry or regs: give slot, the call that is patched", t.symbol);
            return Err(self.at(here, message));
        }
        let content = |f: &Field| !matches!(f.content, Content::Result(_));
        let fields: Vec<&Field> = frame.fields.iter().filter(|f| content(f) && !f.member.is_empty()).collect();
        match fields.windows(2).find(|pair| pair[0].offset == pair[1].offset) {
            Some(pair) => {
                let at = t.frame.as_ref().map_or(here, |name| name.span().start);
                let [first, second, offset] = [pair[0].member, pair[1].member, &pair[0].offset.to_string()];
                Err(self.at(at, format!("its frame has {first} and {second} both at offset {offset}")))
            }
            None => Ok(()),
        }
    }

    /// How it is entered and left, and with how many arguments.
    fn kind(&self, t: &TrampolineIn, facts: &Facts, convention: &Convention) -> Result<Kind> {
        Ok(match t.kind {
            KindIn::Entry => Kind::Entry(Regs::Args),
            KindIn::Regs => Kind::Entry(Regs::All),
            KindIn::Direct => {
                let live = t.live.as_ref().map(|live| self.live(live, t, facts)).transpose()?;
                Kind::Direct(Direct { args: self.args(t, "direct", facts)?, ip: t.ip, live, jumped: t.jump })
            }
            KindIn::Around => {
                let form = self.wanted(t, "around", "form", t.form.as_ref())?.get_ref().form();
                let args = match (form, &t.args) {
                    (Form::Frame, _) => self.args(t, "around", facts)?,
                    (_, None) => facts.abi.args.len() as u8,
                    (_, Some(n)) => {
                        return Err(self.at(n.span().start, "args is for form frame only: the others keep all"));
                    }
                };
                Kind::Around(Around { form, args, general_handlers: false })
            }
            KindIn::Programs => Kind::Programs(self.programs(t, facts, convention)?),
            KindIn::Record => Kind::Record(self.recorder(t, convention)?),
            KindIn::Sled => Kind::Sled,
            KindIn::Displaced => Kind::Displaced,
            KindIn::Return => Kind::Return,
            KindIn::Rethook => Kind::Rethook,
            KindIn::Stub => Kind::Stub,
            KindIn::StubGraph => Kind::StubGraph,
            KindIn::StubDirect => Kind::StubDirect,
            KindIn::Closure => Kind::Closure,
            KindIn::Callback => Kind::Callback,
            KindIn::Syscall => {
                let most = facts.abi.syscall.args.len();
                let number = *self.wanted(t, "syscall", "number", t.number.as_ref())?.get_ref();
                let args = self.wanted(t, "syscall", &format!("args, 0 to {most}"), t.args.as_ref())?;
                if usize::from(*args.get_ref()) > most {
                    return Err(self.at(args.span().start, format!("args = {}; valid: 0 to {most}", args.get_ref())));
                }
                Kind::Syscall(Syscall { number, args: *args.get_ref() })
            }
            KindIn::Switch => Kind::Switch,
        })
    }

    /// The recorder.
    fn recorder(&self, t: &TrampolineIn, convention: &Convention) -> Result<Recorder> {
        let events = self.wanted(t, "record", "events", t.events.as_ref())?;
        let at = |e: Error, place: usize| self.at(place, e);
        let named = Events::named(events.get_ref()).map_err(|e| at(e, events.span().start))?;
        let clock = t.clock.as_ref().map(|c| Clock::named(c.get_ref()).map_err(|e| at(e, c.span().start)));
        let (clock, id) = (clock.transpose()?.unwrap_or(Clock::None), t.id.as_ref().map_or(0, |id| *id.get_ref()));
        let place = events.span().start;
        let profile = convention.profile;
        if convention.thread.is_none() {
            return Err(self.at(place, format!("profile {profile} names no thread pointer; valid: one with `thread`")));
        }
        if clock == Clock::Word && convention.clock.is_none() {
            return Err(
                self.at(place, format!("profile {profile} names no variable with the time; valid: one with `clock`"))
            );
        }
        if id > Recorder::LAST_ID {
            return Err(self.at(place, format!("id = {id}; valid: 0 to {}", Recorder::LAST_ID)));
        }
        let args = t.args.as_ref().map_or(0, |n| *n.get_ref());
        if args > Recorder::MOST_ARGS {
            return Err(self.at(place, format!("args = {args}; valid: 0 to {}", Recorder::MOST_ARGS)));
        }
        if clock.of_cpu() && convention.facts.clock.0.is_empty() {
            let arch = convention.facts.name;
            return Err(self.at(place, format!("{arch} has no clock that code may read; valid: `none` or `word`")));
        }
        if t.unwind && named != Events::Both {
            return Err(self.at(place, "unwind without a frame that an exception passes; valid: events = \"both\""));
        }
        let refill = !t.calls.is_empty();
        if refill && named == Events::Count {
            return Err(self.at(place, "calls, but a counter has no buffer; valid: events = \"entry\" or \"both\""));
        }
        let shadow = match t.form.as_ref().map(|form| (form.get_ref().form(), form.span().start)) {
            None | Some((Form::Frame, _)) => false,
            Some((Form::Shadow, at)) => {
                let known = |of: NumberOf| convention.numbers.iter().any(|n| n.of == of);
                let missing = [NumberOf::RecordShadow, NumberOf::RecordShadowLimit].into_iter().find(|of| !known(*of));
                if let Some(missing) = missing {
                    let message = format!("profile {profile} has no number `{}`; valid: one with it", missing.key());
                    return Err(self.at(at, message));
                }
                true
            }
            Some((Form::Fregs, at)) => {
                return Err(self.at(at, "form fregs has no frame to show; valid: `frame` or `shadow`"));
            }
        };
        let (result, unwind, pair, keeps_all, tls) =
            (t.with_result, t.unwind, t.pair, t.every_register, t.tls.is_some());
        let recorder =
            Recorder { events: named, clock, id, args, result, unwind, refill, shadow, pair, keeps_all, tls };
        recorder.fits_form().map_err(|e| self.at(place, e))?;
        Ok(recorder)
    }

    /// The value of a key that trampolines of this kind must have.
    pub(super) fn wanted<'t, T>(&self, t: &TrampolineIn, word: &str, key: &str, given: Option<&'t T>) -> Result<&'t T> {
        given.ok_or_else(|| {
            let at = t.stack_align.span().start;
            self.at(at, format!("{} is of kind {word}: give {key}", t.symbol))
        })
    }

    /// A number of argument registers.
    fn args(&self, t: &TrampolineIn, word: &str, facts: &Facts) -> Result<u8> {
        let most = facts.abi.args.len() as u8 - u8::from(t.ip);
        let n = self.wanted(t, word, &format!("args, 0 to {most}"), t.args.as_ref())?;
        match *n.get_ref() <= most {
            true => Ok(*n.get_ref()),
            false => Err(self.at(n.span().start, format!("args = {}; valid: 0 to {most}", n.get_ref()))),
        }
    }

    /// The live registers at the function's entry, or of its result.
    fn live(&self, live: &Spanned<LiveIn>, t: &TrampolineIn, facts: &Facts) -> Result<Live> {
        let LiveIn { registers, vectors, stack } = live.get_ref();
        let most = facts.abi.vector_args.len().max(facts.abi.vector_rets.len());
        for (key, n, most) in [("vectors", *vectors, most), ("stack", *stack, MOST_WORDS)] {
            if usize::from(n) > most {
                return Err(self.at(live.span().start, format!("{key} = {n}; valid: 0 to {most}")));
            }
        }
        let regs = self.registers(registers, facts)?;
        Ok(Live { regs, vectors: *vectors, stack: *stack, general_callee: t.general_handlers })
    }

    /// The flags and arguments of a trampoline that calls programs.
    fn programs(&self, t: &TrampolineIn, facts: &Facts, convention: &Convention) -> Result<Programs> {
        let named = self.wanted(t, "programs", "flags, a list", t.flags.as_ref())?.get_ref();
        for flag in named {
            if !FLAGS.contains(&flag.get_ref().as_str()) {
                return Err(self.at(flag.span().start, Error::unknown("flag", flag.get_ref(), FLAGS)));
            }
        }
        let [call_orig, skip_frame, ip_arg, _, counted, indirect, _, orig_stack] =
            FLAGS.map(|flag| named.iter().any(|n| n.get_ref() == flag));
        let given = t.programs.iter().flat_map(Spanned::get_ref).filter(|program| program.around.is_none());
        let mut cookies = given.filter_map(|program| program.cookie.as_ref());
        if let Some(wide) = cookies.find(|cookie| i32::try_from(*cookie.get_ref()).is_err()) {
            let message = format!("cookie = {}; valid: {} to {}", wide.get_ref(), i32::MIN, i32::MAX);
            return Err(self.at(wide.span().start, message));
        }
        let (offered, attached) = (&convention.programs, programs(t));
        let sessions = attached.iter().any(|p| p.attach == Attach::Fsession);
        let sessions = sessions || t.wordless_sessions;
        let missing = if sessions && !offered.sessions { "sessions" } else { "tail-call" };
        if (sessions && !offered.sessions) || (counted && offered.tail_call.is_none()) {
            let (at, profile) = (t.stack_align.span().start, convention.profile);
            let valid = format!("valid: one with `{missing}` in [arch.{}.programs]", facts.name);
            return Err(self.at(at, format!("{}: not in profile {profile}; {valid}", t.symbol)));
        }
        self.flags_fit(t, FLAGS.map(|flag| named.iter().any(|n| n.get_ref() == flag)))?;
        let words = self.wanted(t, "programs", "words, a list", t.words.as_ref())?;
        if words.get_ref().len() > MOST_WORDS {
            let n = words.get_ref().len();
            return Err(self.at(words.span().start, format!("{n} words; valid: 0 to {MOST_WORDS}")));
        }
        let mut all = [None; MOST_WORDS];
        for (place, word) in all.iter_mut().zip(words.get_ref()) {
            *place = Some(self.word(word, facts)?);
        }
        let result = t.result.as_ref().map(|result| self.live(result, t, facts)).transpose()?;
        Ok(Programs {
            live: self.live(self.wanted(t, "programs", "live", t.live.as_ref())?, t, facts)?,
            words: all,
            result: result.unwrap_or_default(),
            call_orig,
            skip_frame,
            ip_arg,
            orig_stack,
            indirect,
            tail_call: offered.tail_call.filter(|_| counted),
            wordless_sessions: t.wordless_sessions,
            ..Programs::default().attached(&attached)
        })
    }

    /// Refuse flags that do not go together.
    fn flags_fit(&self, t: &TrampolineIn, flags: [bool; FLAGS.len()]) -> Result<()> {
        let [call_orig, skip_frame, ip_arg, restore, counted, indirect, returned, orig_stack] = flags;
        let refused = |valid: &str| {
            let message = format!("flags of {}; valid{valid}", t.symbol);
            Err(self.at(t.stack_align.span().start, message))
        };
        if [call_orig, restore, indirect].iter().filter(|flag| **flag).count() != 1 {
            return refused(": one of CALL_ORIG, RESTORE_REGS and INDIRECT");
        }
        let one = matches!(&programs(t)[..], [one] if one.attach == Attach::Fentry);
        if indirect && (skip_frame || ip_arg || counted || !one) {
            return refused(" with INDIRECT: RET_FENTRY_RET; it has one program, attached as fentry");
        }
        if orig_stack && !(call_orig && skip_frame) {
            return refused(" with ORIG_STACK: CALL_ORIG and SKIP_FRAME");
        }
        if t.program_result.is_some() != returned || returned && !(indirect && t.result.is_some()) {
            return refused(": RET_FENTRY_RET with INDIRECT, `result` and `program-result`");
        }
        Ok(())
    }

    /// The place of an argument's word when the function is entered.
    fn word(&self, word: &Spanned<WordIn>, facts: &Facts) -> Result<Word> {
        let (text, bytes) = match word.get_ref() {
            WordIn::Whole(at) => (at, 8),
            WordIn::Part { at, bytes } => (at, *bytes),
        };
        let on_stack = text.starts_with("stack+");
        if !(1..=8).contains(&bytes) || bytes < 8 && !on_stack {
            let message = format!("bytes = {bytes} of {text}; valid: 1 to 8, of a word on the stack");
            return Err(self.at(word.span().start, message));
        }
        let offset = text.strip_prefix("stack+").and_then(|offset| offset.parse::<usize>().ok());
        let on_stack = offset.filter(|at| at % 8 == 0 && at / 8 < MOST_WORDS).map(|at| Word::Stack((at / 8) as u8));
        on_stack.or_else(|| facts.abi.find(text).map(Word::Reg)).ok_or_else(|| {
            let known = ["stack+0", "stack+8", "..."].into_iter().chain(facts.abi.regs.iter().map(|r| r.name));
            self.at(word.span().start, Error::unknown("word", text, known))
        })
    }

    /// The traced function, if it is called or jumped to.
    fn traced(&self, t: &TrampolineIn, kind: Kind) -> Result<Option<Traced>> {
        if !kind.names_body() && !t.ip_is_start {
            let resume = t.resume.as_ref().filter(|_| kind.direct().is_some()).map(|resume| resume.span().start);
            let given = t.function.as_ref().map(|function| ("function", function.span().start));
            return match given.or(resume.map(|at| ("resume", at))) {
                Some((key, at)) => Err(self.at(at, format!("{key} is for trampolines that call it, or jump there"))),
                None => Ok(None),
            };
        }
        let word = kind.traits().word;
        let function = self.wanted(t, word, "function", t.function.as_ref())?;
        let resume = self.wanted(t, word, "resume", t.resume.as_ref())?;
        let exit = match kind.around() {
            Some(_) => self.wanted(t, word, "exit", t.exit.as_ref())?.get_ref().clone(),
            None => String::new(),
        };
        Ok(Some(Traced { function: function.get_ref().clone(), resume: *resume.get_ref(), exit, signed: t.signed }))
    }

    fn stack_align(&self, t: &TrampolineIn) -> Result<u32> {
        let align = *t.stack_align.get_ref();
        if !align.is_power_of_two() || align > 64 {
            let message = format!("stack-align = {align}; valid: a power of 2 to 64");
            return Err(self.at(t.stack_align.span().start, message));
        }
        Ok(align)
    }

    /// The layout of the structure that the callback gets, and the frame records.
    fn layout(
        &self,
        t: &TrampolineIn,
        frames: &BTreeMap<String, FrameIn>,
        (facts, machine): (&Facts, &Machine),
    ) -> Result<FrameLayout> {
        let vectors = if t.kind == KindIn::Closure { machine.vectors } else { &[] };
        let mut frame = match &t.frame {
            None => FrameLayout::empty(),
            Some(name) => match frames.get(name.get_ref()) {
                Some(frame) => self.frame(frame, facts, vectors)?,
                None => {
                    let known = frames.keys().map(String::as_str);
                    return Err(self.at(name.span().start, Error::unknown("frame", name.get_ref(), known)));
                }
            },
        };
        if let (KindIn::Closure, true, Some(name)) = (t.kind, frame.has_effect(), &t.frame) {
            let message = format!("{}: leave stores and result out of a closure's frame; see results", name.get_ref());
            return Err(self.at(name.span().start, message));
        }
        // A layout lists records in the order in which they are linked: the last one is found first.
        frame.records = t.records.iter().rev().map(|r| Record { symbol: "", offset: 0, ret: r.content() }).collect();
        Ok(frame)
    }

    /// The registers that survive, and those that need not.
    fn survivors(
        &self,
        t: &TrampolineIn,
        kind: Kind,
        (facts, machine): (&Facts, &Machine),
        convention: &Convention,
    ) -> Result<(RegSet, RegSet)> {
        let (abi_kept, abi_clobbered) = promised(kind, facts, &convention.site, self.guard(t, facts)?);
        let both = abi_kept.union(abi_clobbered);
        let base = match t.promises {
            Promise::Transparent => both,
            Promise::Abi => abi_kept,
        };
        self.both(t)?;
        let [keeps, loses] = [&t.keeps, &t.loses].map(|names| self.registers(&general(names, machine), facts));
        let kept = base.union(keeps?).minus(loses?);
        Ok((kept, both.minus(kept)))
    }

    /// Nothing is kept and lost.
    fn both(&self, t: &TrampolineIn) -> Result<()> {
        let twice = t.loses.iter().find(|lost| t.keeps.iter().any(|kept| kept.get_ref() == lost.get_ref()));
        match twice {
            Some(name) => Err(self.at(name.span().start, format!("{} is among keeps and loses", name.get_ref()))),
            None => Ok(()),
        }
    }

    /// The clauses of the deviations, in order.
    pub(crate) fn clauses(&self, t: &TrampolineIn) -> Result<Vec<Clause>> {
        let clause = |d: &DeviationIn| {
            Clause::ALL.into_iter().find(|c| c.name() == d.clause.get_ref()).ok_or_else(|| {
                let names = Clause::ALL.iter().map(|c| c.name());
                self.at(d.clause.span().start, Error::unknown("clause", d.clause.get_ref(), names))
            })
        };
        t.deviation.iter().map(clause).collect()
    }

    pub(crate) fn registers(&self, names: &[Spanned<String>], facts: &Facts) -> Result<RegSet> {
        let mut set = RegSet::EMPTY;
        for name in names {
            let live = facts.abi.live.iter().find(|(who, _)| who == name.get_ref()).map(|(_, regs)| *regs);
            let named = live.or_else(|| facts.abi.find(name.get_ref()).map(|reg| RegSet::of(&[reg])));
            set = set.union(named.ok_or_else(|| {
                let known = facts.abi.regs.iter().map(|r| r.name).chain(facts.abi.live.iter().map(|(who, _)| *who));
                self.at(name.span().start, Error::unknown("register", name.get_ref(), known))
            })?);
        }
        Ok(set)
    }

    fn frame(&self, frame: &FrameIn, facts: &Facts, vectors: &[EmuReg]) -> Result<FrameLayout> {
        let size = *frame.size.get_ref();
        if !(0..=LARGEST).contains(&size) {
            return Err(self.at(frame.size.span().start, format!("size = {size}; valid: 0 to {LARGEST}")));
        }
        let mut fields = Vec::new();
        for f in &frame.field {
            let offset = *f.offset.get_ref();
            if offset < 0 || offset % 8 != 0 || offset > size - 8 {
                let valid = format!("a multiple of 8 from 0 to {}", size - 8);
                return Err(self.at(f.offset.span().start, format!("offset = {offset}; valid: {valid}")));
            }
            let vector = vectors.iter().position(|vector| vector.name == f.holds.get_ref());
            let content = vector.map_or_else(|| self.content(&f.holds, facts), |n| Ok(Content::Vector(n as u8)))?;
            let stores = match f.stores {
                Stores::TakeEffect => frame::Stores::TakeEffect,
                Stores::AreIgnored => frame::Stores::Ignored,
            };
            let member = intern(&f.member);
            let field = Field { symbol: member, member, offset, content, stores, in_record: false };
            fields.push(field);
            if let Some(result) = &f.result {
                let result = facts.abi.find(result.get_ref()).ok_or_else(|| {
                    let known = facts.abi.regs.iter().map(|r| r.name);
                    self.at(result.span().start, Error::unknown("register", result.get_ref(), known))
                })?;
                let stores = frame::Stores::TakeEffect;
                fields.push(Field { content: Content::Result(result), stores, ..field });
            }
        }
        fields.sort_by_key(|f| f.offset);
        let c_struct = intern(&frame.r#struct);
        Ok(FrameLayout { c_struct, c_size: size, size, fields, ..FrameLayout::empty() })
    }

    fn content(&self, holds: &Spanned<String>, facts: &Facts) -> Result<Content> {
        Content::parse(holds.get_ref(), &facts.abi).map_err(|e| self.at(holds.span().start, e))
    }
}

/// The programs.
fn programs(t: &TrampolineIn) -> Vec<Program> {
    let programs = t.programs.iter().flat_map(Spanned::get_ref);
    let program = |p: &ProgramIn| Program {
        attach: p.attach.attach(),
        symbol: Cow::Owned(p.calls.clone()),
        cookie: p.cookie.as_ref().map_or(0, |cookie| *cookie.get_ref()),
    };
    programs.map(program).collect()
}

/// What programs find around their context, as the kernel has it (arch/x86/net/bpf_jit_comp.c, arch_prepare_bpf_trampoline): words of
/// sessions, the function's ip, how many words there are, these words, and the result. They may change what came in registers, the
/// result and sessions.
fn context(programs: &Programs, abi: &Abi) -> Vec<Field> {
    let sessions = (0..programs.sessions).map(Content::Session);
    let ip = programs.ip_arg.then_some(Content::Ip);
    let words = programs.words.iter().flatten().map(|word| match *word {
        Word::Reg(reg) => Content::Reg(reg),
        Word::Stack(n) => Content::StackWord(n),
    });
    let results = abi
        .rets
        .iter()
        .filter(|_| programs.call_orig)
        .filter(|reg| programs.result.regs.contains(**reg))
        .map(|reg| Content::Result(*reg));
    let count = Content::Const(programs.meta_at_first() as i32);
    let contents = sessions.chain(ip).chain([count]).chain(words).chain(results);
    let stores = |content| match content {
        Content::Ip | Content::Const(_) | Content::StackWord(_) => frame::Stores::Ignored,
        _ => frame::Stores::TakeEffect,
    };
    (0..).step_by(8).zip(contents).map(|(at, content)| frame::field("", "", at, content, stores(content))).collect()
}
