//! What a contract in a file states of the site, of what the callee gets, and of how it is found.

use std::collections::BTreeMap;

use codegen::arch::facts::Facts;
use codegen::arch::machine::Machine;
use codegen::ask::kind::{Body, Calls, Entered, Keeps, Kind};
use codegen::contract::stated::{
    Argument, Bracketed, Displaced, Given, Gives, Held, Next, ProgramResult, Stated, Sum, Uncalled, Variable, Word,
};
use codegen::profile::Convention;
use codegen::words::abi::{Abi, RegSet};
use codegen::words::error::{Error, Result};
use codegen::words::program::Bracket;
use codegen::words::term::{Root, Term};
use toml::Spanned;

use crate::contract::boundary::{Known, given};
use crate::contract::file::{
    ArgumentIn, BracketIn, DisplacedIn, GoesToIn, HandlersIn, ProgramIn, ProgramResultIn, Reader, SiteIn, ThroughIn,
    TrampolineIn, UncalledIn, VariableIn, WordIn,
};
use crate::judge::cases::ABOVE;
use crate::run::raw::address_of;

/// Bytes of displaced instructions: four of the longest ones.
const MOST_DISPLACED: usize = 60;

/// Bytes that count of each word of a context.
fn word_bytes(t: &TrampolineIn) -> Vec<u8> {
    let words = t.words.iter().flat_map(Spanned::get_ref).map(Spanned::get_ref);
    let bytes = |word: &WordIn| if let WordIn::Part { bytes, .. } = word { *bytes } else { 8 };
    words.map(bytes).collect()
}

impl BracketIn {
    fn bracket(&self) -> Bracket {
        let BracketIn { enter, exit, argument, always } = self;
        let symbol = |name: &String| name.clone().into();
        Bracket { enter: symbol(enter), exit: symbol(exit), argument: argument.as_ref().map(symbol), always: *always }
    }
}

impl Reader<'_> {
    /// What it states besides.
    ///
    /// # Errors
    /// It names what does not exist, or says of one kind what only another can have.
    pub(crate) fn stated(
        &self,
        t: &TrampolineIn,
        kind: Kind,
        (facts, machine): (&Facts, &Machine),
        convention: &Convention,
    ) -> Result<Stated> {
        let (through, arguments) = (self.through(t, kind)?, self.arguments(t, kind, &facts.abi)?);
        let displaced = self.displaced(t, kind)?;
        let next = match &t.displaced {
            Some(displaced) => Next::Copies(displaced.get_ref().copies),
            None => self.next(t, kind)?,
        };
        let base = Stated {
            displaced,
            arguments,
            may_be_null: t.may_be_null,
            general_handlers: t.handlers.as_ref().is_some_and(|h| *h.get_ref() == HandlersIn::General),
            calls: t.slots().len().max(1) as u64,
            next,
            gives: self.gives(&t.gives, kind, Known::at_end(kind, 0), (facts, machine))?,
            uncalled: t.uncalled.as_ref().map(|u| self.uncalled(u.get_ref(), kind, (facts, machine))).transpose()?,
            memory: self.memory(t)?,
            around_programs: self.around_programs(t)?,
            around_function: self.around_function(t, kind)?,
            own: self.own(t, kind, facts)?,
            body_align: self.function_align(t)?,
            body_by_return: t.function_by_return,
            word_bytes: word_bytes(t),
            program_result: self.program_result(t, &facts.abi)?,
            ip_is_start: self.ip_is_start(t, kind)?,
            ..Stated::default()
        };
        self.may_give(t, kind)?;
        let base = self.boundary(t, kind, (facts, machine), base)?;
        // A sled stands anywhere.
        let anywhere = kind.is_in_the_middle().then_some(0);
        let Some(site) = &t.site else { return Ok(Stated { through, clear_flags: anywhere, ..base }) };
        let here = site.span().start;
        let SiteIn { sp, clear_flags, pushed, holds, thread, red_zone } = site.get_ref();
        if matches!(kind.traits().entered, Entered::AsCallback | Entered::ByReturn) {
            return Err(self.at(here, format!("site is for kinds that a site goes to, not for {}", kind.traits().word)));
        }
        if kind.is_boundary() && (!clear_flags.is_empty() || pushed.is_some() || thread.is_some()) {
            return Err(self.at(here, "clear-flags, pushed and thread are for sleds: C is called as the psABI says"));
        }
        if !kind.is_called() && (!clear_flags.is_empty() || pushed.is_some() || !holds.is_empty() || thread.is_some()) {
            let message = "clear-flags, pushed, holds and thread are for kinds that no site goes to: the profile says them of its sites";
            return Err(self.at(here, message));
        }
        let pushes = if kind.is_called() || kind.jumped_to() { 0 } else { convention.site.pushed };
        let can: Vec<u64> = machine.entry_sp.iter().map(|sp| sp.wrapping_sub(pushes as u64) % 16).collect();
        if let Some(wanted) = sp.iter().find(|sp| !can.contains(sp.get_ref())) {
            let can: Vec<String> = can.iter().map(u64::to_string).collect();
            let message = format!("sp = {}; valid: {}", wanted.get_ref(), can.join(", "));
            return Err(self.at(wanted.span().start, message));
        }
        let mut clear = 0;
        for flag in clear_flags {
            let found = machine.clear_flags.iter().find(|(name, _)| name == flag.get_ref()).ok_or_else(|| {
                let names = machine.clear_flags.iter().map(|(name, _)| *name);
                self.at(flag.span().start, Error::unknown("flag", flag.get_ref(), names))
            })?;
            clear |= found.1;
        }
        Ok(Stated {
            through,
            sp: if sp.is_empty() { base.sp.clone() } else { sp.iter().map(|sp| *sp.get_ref()).collect() },
            clear_flags: anywhere.map(|_| clear),
            pushed: self.pushed(pushed.as_ref(), next)?,
            holds: self.holds(holds, kind, &facts.abi)?,
            thread: self.thread(thread.as_ref(), machine, &facts.abi)?,
            red_zone: red_zone.as_ref().map_or(Ok(base.red_zone), |n| self.red_zone(Some(n)))?,
            ..base
        })
    }

    /// The functions around each program.
    fn around_programs(&self, t: &TrampolineIn) -> Result<Vec<Bracketed>> {
        let Some(programs) = &t.programs else { return Ok(Vec::new()) };
        let with = programs.get_ref().iter().filter(|program| program.around.is_some()).count();
        if ![0, programs.get_ref().len()].contains(&with) {
            let message = format!("{with} of {} programs have `around`; valid: all, or none", programs.get_ref().len());
            return Err(self.at(programs.span().start, message));
        }
        let cookie = |p: &ProgramIn| p.cookie.as_ref().map(|cookie| *cookie.get_ref());
        let bracketed = |p: &ProgramIn| Some(Bracketed { around: p.around.as_ref()?.bracket(), cookie: cookie(p) });
        Ok(programs.get_ref().iter().filter_map(bracketed).collect())
    }

    /// The functions around all programs and the traced function.
    fn around_function(&self, t: &TrampolineIn, kind: Kind) -> Result<Option<Bracket>> {
        let mut called = t.programs.iter().flat_map(|programs| programs.get_ref());
        match &t.around {
            Some(around) if called.any(|program| program.around.is_none()) => {
                Err(self.at(around.span().start, "around all is for programs that have `around` too"))
            }
            Some(around) if !kind.calls_body() => {
                Err(self
                    .at(around.span().start, "around is for trampolines that call the function: CALL_ORIG in flags"))
            }
            around => Ok(around.as_ref().map(|around| around.get_ref().bracket())),
        }
    }

    fn function_align(&self, t: &TrampolineIn) -> Result<Option<u32>> {
        let Some(align) = &t.function_align else { return Ok(None) };
        match *align.get_ref() {
            n if n.is_power_of_two() && n <= 64 => Ok(Some(n)),
            n => Err(self.at(align.span().start, format!("function-align = {n}; valid: a power of 2 to 64"))),
        }
    }

    /// The type of the result of a program in place of a function.
    fn program_result(&self, t: &TrampolineIn, abi: &Abi) -> Result<Option<ProgramResult>> {
        let Some(given) = &t.program_result else { return Ok(None) };
        let ProgramResultIn { bytes, signed, register } = given.get_ref();
        if ![1, 2, 4, 8].contains(bytes) {
            return Err(self.at(given.span().start, format!("bytes = {bytes}; valid: 1, 2, 4, 8")));
        }
        let find = |name: &Spanned<String>| {
            let known = abi.regs.iter().map(|r| r.name);
            let unknown = || self.at(name.span().start, Error::unknown("register", name.get_ref(), known));
            abi.find(name.get_ref()).ok_or_else(unknown)
        };
        let whole = register.as_ref().map(find).transpose()?;
        Ok(Some(ProgramResult { whole, bytes: *bytes, signed: *signed }))
    }

    /// The ip is the function's address.
    fn ip_is_start(&self, t: &TrampolineIn, kind: Kind) -> Result<bool> {
        match t.ip_is_start && !(kind.programs().is_some_and(|p| p.ip_arg) && t.function.is_some()) {
            true => {
                let message = "ip-is-start is for kind programs, with IP_ARG in flags, and with function";
                Err(self.at(t.stack_align.span().start, message))
            }
            false => Ok(t.ip_is_start),
        }
    }

    /// Its own registers while the traced function runs.
    fn own(&self, t: &TrampolineIn, kind: Kind, facts: &Facts) -> Result<RegSet> {
        let own = self.registers(&t.holds_own, facts)?;
        let Some(first) = t.holds_own.first() else { return Ok(own) };
        if !kind.calls_body() {
            let message = "holds-own is for trampolines that call the function: CALL_ORIG in flags";
            return Err(self.at(first.span().start, message));
        }
        if let Some(other) = own.minus(facts.abi.callee_saved).iter().next() {
            let message = format!("{} is no callee-saved register; valid: one that is", facts.abi.name(other));
            return Err(self.at(first.span().start, message));
        }
        Ok(own)
    }

    /// The variables by which it finds what it calls.
    fn through(&self, t: &TrampolineIn, kind: Kind) -> Result<Vec<Variable>> {
        let Some(through) = &t.calls_through else {
            return match t.may_be_null {
                true => Err(self.at(t.stack_align.span().start, "may-be-null is for what calls-through names")),
                false => Ok(Vec::new()),
            };
        };
        let here = through.span().start;
        let one = matches!(kind.traits().calls, Calls::Callback | Calls::Named | Calls::ExitHandler);
        if !one {
            return Err(self.at(here, format!("calls-through is not for kind {}", kind.traits().word)));
        }
        match through.get_ref() {
            ThroughIn::One(name) => Ok(vec![Variable { name: name.clone(), callee: t.calls.clone() }]),
            ThroughIn::Each(all) if kind.traits().calls != Calls::Named || !t.calls.is_empty() || all.len() != 2 => {
                let message = "two variables, each with what it calls, are for kinds direct and sled, without calls";
                Err(self.at(here, message))
            }
            ThroughIn::Each(all) => {
                let variable = |v: &VariableIn| Variable { name: v.variable.clone(), callee: v.calls.clone() };
                Ok(all.iter().map(variable).collect())
            }
        }
    }

    /// Refuse values in the end of kinds that have none of their own.
    fn may_give(&self, t: &TrampolineIn, kind: Kind) -> Result<()> {
        let gives = t.gives.values().next().map(|gives| gives.span().start);
        match (gives, t.uncalled.as_ref().map(|uncalled| uncalled.span().start)) {
            (Some(at), _) | (_, Some(at)) if !kind.is_called() => {
                Err(self.at(at, "gives and uncalled are for kinds that no site goes to"))
            }
            (_, Some(at)) if kind != Kind::Sled => Err(self.at(at, "uncalled is for kind sled only")),
            (Some(at), _) if kind == Kind::Switch => {
                Err(self.at(at, "gives: what a switch returns is up to the other context; see passes"))
            }
            _ => Ok(()),
        }
    }

    /// What the callee is given.
    fn arguments(&self, t: &TrampolineIn, kind: Kind, abi: &Abi) -> Result<Option<Vec<Argument>>> {
        let Some(arguments) = &t.arguments else { return Ok(None) };
        let (here, all) = (arguments.span().start, arguments.get_ref());
        let row = kind.traits();
        if row.body != Body::NotCalled || !matches!(row.calls, Calls::Callback | Calls::Named | Calls::ExitHandler) {
            return Err(self.at(here, format!("arguments is for kinds that call one function, not for {}", row.word)));
        }
        let most = abi.args.len();
        if all.len() > most {
            return Err(self.at(here, format!("{} arguments; valid: 0 to {most}", all.len())));
        }
        let (returned, known) = (kind.returned_to(), Known { symbols: kind == Kind::Displaced, ..Known::default() });
        let mut found = Vec::new();
        for given in all {
            let wrong = |message: String| self.at(given.span().start, message);
            let Argument { value, bits } = self.argument(given, (kind, known), abi)?;
            let text = given.get_ref().text();
            let frames = value.terms.iter().filter(|(_, root)| *root == Root::Frame).count();
            if frames > 0 && (value.alone().is_none() || t.frame.is_none()) {
                return Err(wrong("frame stands alone, and is for trampolines with a frame".to_owned()));
            }
            let of_site = [Root::Pc, Root::Ip, Root::Op];
            if returned && value.terms.iter().any(|(_, root)| of_site.contains(root)) {
                return Err(wrong(format!("'{text}' is of a site, from which kind {} is not reached", row.word)));
            }
            found.push(Argument { value, bits });
        }
        let has_frame = found.iter().any(|a| a.value.alone() == Some(&Root::Frame));
        match &t.frame {
            Some(name) if !has_frame => {
                let message = format!("none of the arguments is frame, the address of {}", name.get_ref());
                Err(self.at(here, message))
            }
            _ => Ok(Some(found)),
        }
    }

    /// A value, and how much of it counts.
    fn argument(&self, given: &Spanned<ArgumentIn>, when: (Kind, Known), abi: &Abi) -> Result<Argument> {
        let bits = if let ArgumentIn::Part { bits, .. } = given.get_ref() { *bits } else { 64 };
        if !(1..=64).contains(&bits) {
            return Err(self.at(given.span().start, format!("bits = {bits}; valid: 1 to 64")));
        }
        Ok(Argument { value: self.sum(given.get_ref().text(), given.span().start, when, abi)?, bits })
    }

    /// A value that runs determine. They know no symbols.
    pub(super) fn sum(&self, text: &str, at: usize, (kind, known): (Kind, Known), abi: &Abi) -> Result<Sum> {
        let value = Sum::parse(text, abi).map_err(|e| self.at(at, e))?;
        if !known.symbols && value.terms.iter().any(|(_, root)| matches!(root, Root::Symbol(_))) {
            return Err(
                self.at(at, format!("'{text}': a symbol is valid in holds, and in arguments of kind displaced"))
            );
        }
        if let Some((_, root)) = value.terms.iter().find(|(_, root)| !known.has(root, kind)) {
            let root = format!("{:#}", Term::from(root.clone()).show(abi));
            return Err(self.at(at, format!("'{text}': kind {} has no {root} here", kind.traits().word)));
        }
        Ok(value)
    }

    /// Where it goes on.
    fn next(&self, t: &TrampolineIn, kind: Kind) -> Result<Next> {
        match (&t.goes_to, &t.resume) {
            (Some(goes_to), _) if kind != Kind::Sled => {
                Err(self.at(goes_to.span().start, "goes-to is for kind sled only"))
            }
            (Some(goes_to), resume) if *goes_to.get_ref() == GoesToIn::Result => match resume {
                Some(resume) => Err(self.at(resume.span().start, "resume is for what goes on at its site")),
                None => Ok(Next::Result),
            },
            (_, Some(resume)) if kind.is_in_the_middle() => Ok(Next::Behind((*resume.get_ref()).into())),
            _ => Ok(Next::Behind(0)),
        }
    }

    /// The instructions that it has copies of. The copies are in the dump.
    fn displaced(&self, t: &TrampolineIn, kind: Kind) -> Result<Option<Displaced>> {
        if kind != Kind::Displaced {
            return Ok(None);
        }
        let given = self.wanted(t, "displaced", "displaced, the instructions", t.displaced.as_ref())?;
        let DisplacedIn { at, instructions, breakpoint, .. } = given.get_ref();
        let wrong = |message: String| self.at(given.span().start, message);
        if let Some(goes_to) = &t.goes_to {
            return Err(self.at(goes_to.span().start, "goes-to is not for kind displaced: it goes on at its copies"));
        }
        let at = address_of(at).ok_or_else(|| wrong(format!("at = {at:?}; valid: an address as \"0x...\"")))?;
        let bytes = |key: &str, text: &str, least: usize| {
            let byte = |n: usize| text.get(n..n + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
            let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
            bytes.filter(|bytes| (least..=MOST_DISPLACED).contains(&bytes.len())).ok_or_else(|| {
                let valid = format!("{least} to {MOST_DISPLACED} bytes, two hexadecimal digits each");
                wrong(format!("{key} = {text:?}; valid: {valid}"))
            })
        };
        let instructions = bytes("instructions", instructions, 1)?;
        let breakpoint = bytes("breakpoint", breakpoint, 0)?;
        Ok(Some(Displaced { at, instructions, copies: Vec::new(), copied_to: 0, breakpoint }))
    }

    /// Bytes that the site has pushed.
    fn pushed(&self, pushed: Option<&Spanned<u64>>, next: Next) -> Result<u64> {
        let Some(pushed) = pushed else { return Ok(0) };
        let (n, at) = (*pushed.get_ref(), pushed.span().start);
        match next {
            Next::Behind(_) | Next::Copies(_) => {
                Err(self.at(at, "pushed is for what goes to its result: behind a call SP is as before it"))
            }
            Next::Result if n % 8 != 0 || n > ABOVE - 16 => {
                Err(self.at(at, format!("pushed = {n}; valid: a multiple of 8 to {}", ABOVE - 16)))
            }
            Next::Result => Ok(n),
        }
    }

    /// What registers, and words of boundaries, hold in the end.
    pub(super) fn gives(
        &self,
        gives: &BTreeMap<String, Spanned<ArgumentIn>>,
        kind: Kind,
        known: Known,
        (facts, machine): (&Facts, &Machine),
    ) -> Result<Vec<Gives>> {
        let abi = &facts.abi;
        let give = |(name, value): (&String, &Spanned<ArgumentIn>)| {
            let wrong = |e: Error| self.at(value.span().start, e);
            let unknown = || Error::unknown("register", name, abi.regs.iter().map(|r| r.name));
            let other = || kind.is_boundary().then(|| given(name, abi, machine)).flatten();
            let place = abi.find(name).map(Given::Reg).or_else(other).ok_or_else(|| wrong(unknown()))?;
            let value = self.argument(value, (kind, known), abi)?;
            let told = value.value.terms.iter().any(|(_, root)| root.told().is_some());
            if told {
                Err(wrong(Error::new("no site has told it ip, op or frame")))
            } else {
                Ok(Gives { place, value })
            }
        };
        gives.iter().map(give).collect()
    }

    /// When it calls nothing.
    fn uncalled(&self, uncalled: &UncalledIn, kind: Kind, of: (&Facts, &Machine)) -> Result<Uncalled> {
        Ok(Uncalled {
            holds: self.holds(&uncalled.holds, kind, &of.0.abi)?,
            gives: self.gives(&uncalled.gives, kind, Known::default(), of)?,
        })
    }

    /// What it finds in memory.
    fn memory(&self, t: &TrampolineIn) -> Result<Vec<Word>> {
        let word = |(place, value): (&String, &Spanned<u64>)| {
            let (symbol, offset) = place.split_once('+').unwrap_or((place, "0"));
            let digits = offset.strip_prefix("0x").map_or((offset, 10), |digits| (digits, 16));
            let offset = u64::from_str_radix(digits.0, digits.1).ok().filter(|_| !symbol.is_empty());
            let wrong = || self.at(value.span().start, format!("'{place}'; valid: a symbol, or symbol+offset"));
            Ok(Word { symbol: symbol.to_owned(), offset: offset.ok_or_else(wrong)?, value: *value.get_ref() })
        };
        t.memory.iter().map(word).collect()
    }

    /// Where a thread finds its memory.
    fn thread(&self, thread: Option<&Spanned<String>>, machine: &Machine, abi: &Abi) -> Result<Option<Sum>> {
        let Some(thread) = thread else { return Ok(None) };
        if machine.threads.is_empty() {
            return Err(self.at(thread.span().start, "a thread finds its memory by a general register: see holds"));
        }
        self.held("[sp]", thread, abi).map(|(_, sum)| Some(sum))
    }

    /// Bytes below SP that signals leave alone.
    fn red_zone(&self, red_zone: Option<&Spanned<u64>>) -> Result<u64> {
        const MOST: u64 = 512;
        match red_zone {
            Some(n) if *n.get_ref() > MOST => {
                Err(self.at(n.span().start, format!("red-zone = {}; valid: 0 to {MOST}", n.get_ref())))
            }
            n => Ok(n.map_or(0, |n| *n.get_ref())),
        }
    }

    /// What registers and words hold at the site, or at the call.
    pub(super) fn holds(
        &self,
        holds: &BTreeMap<String, Spanned<String>>,
        kind: Kind,
        abi: &Abi,
    ) -> Result<Vec<(Held, Sum)>> {
        let held = |(held, value): (&String, &Spanned<String>)| {
            if kind.is_boundary() { self.held_by(held, value, abi) } else { self.held(held, value, abi) }
        };
        holds.iter().map(held).collect()
    }

    /// What something holds at the site.
    pub(super) fn held(&self, held: &str, value: &Spanned<String>, abi: &Abi) -> Result<(Held, Sum)> {
        let wrong = |message: String| self.at(value.span().start, message);
        let place = match Term::parse(held, abi).ok().filter(|term| term.add == 0).map(|term| term.root) {
            Some(Root::Reg(reg)) if reg != abi.sp && Some(reg) != abi.link => Held::Reg(reg),
            Some(Root::Content(at))
                if at.root == Root::Reg(abi.sp) && at.add % 8 == 0 && (0..ABOVE as i64).contains(&at.add) =>
            {
                Held::Word(at.add as u64)
            }
            _ => {
                let most = ABOVE - 8;
                return Err(wrong(format!("'{held}'; valid: a register, or a word of the stack, [sp] to [sp+{most}]")));
            }
        };
        let sum = Sum::parse(value.get_ref(), abi).map_err(|e| self.at(value.span().start, e))?;
        let valid = match sum.terms[..] {
            [] => true,
            [(1, Root::Reg(reg))] if reg == abi.sp => (0..ABOVE as i64).contains(&sum.number),
            [(1, Root::Reg(_))] => sum.number == 0,
            _ => false,
        };
        let most = ABOVE - 1;
        match valid {
            true => Ok((place, sum)),
            false => Err(wrong(format!("'{}'; valid: a number, sp to sp+{most}, or a register", value.get_ref()))),
        }
    }

    /// The vector registers that any handler must leave to it, by their numbers as bits.
    pub(crate) fn carriers(&self, t: &TrampolineIn, kind: Kind, abi: &Abi) -> u32 {
        if kind.is_boundary() {
            return abi.vector_callee_saved.iter().fold(0, |bits, i| bits | 1 << i);
        }
        let any = t.handlers.as_ref().is_some_and(|h| *h.get_ref() == HandlersIn::Any);
        let returned = kind.traits().keeps == Keeps::Results || kind.returned_to();
        let carriers = if returned { abi.vector_rets } else { abi.vector_args };
        if any { carriers.iter().fold(0, |bits, i| bits | 1 << i) } else { 0 }
    }
}
