//! A contract in sentences, for the comment above a trampoline.

use crate::arch::harden::ReturnGuard;
use crate::ask::frame::{Content, Stores};
use crate::ask::kind::Syscall;
use crate::ask::live::Live;
use crate::ask::spec::{Around, Attach, Bracket, Clock, Direct, Event, Events, Form, Kind, Programs, Recorder};
use crate::contract::demand::{Called, Demand, Holds, Moment, Spot};
use crate::contract::stated::Bracketed;
use crate::contract::{Contract, Traced};
use crate::profile::lsda::PERSONALITY;
use crate::words::abi::{Reg, RegSet};
use crate::words::step::ExitPath;
use crate::words::term::{Root, Term};

/// The subject of a sentence of a contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// How control comes to the trampoline. States no demand.
    Arrival,
    /// The contents and place of a record. States no demand: the symbolic checker and the judge follow the cursor.
    Record,
    /// Notes for users on the function or its unwinding. States no demand.
    Note,
    /// The callee and its arguments.
    Call,
    /// The call of the traced function: where its arguments and its stack are.
    Body,
    /// The contents of the frame when a handler is called.
    Slots,
    /// The effects of a handler's stores to the frame.
    Stores,
    /// The way out, and the address that it leads to.
    Way(ExitPath),
    /// General registers that are preserved.
    Registers,
    /// The flags.
    Flags,
    /// Vector registers that are preserved.
    Vectors,
    /// SP at the calls.
    Alignment,
}

impl About {
    /// Does a sentence with this subject state the demand?
    fn states(self, demand: &Demand, contract: &Contract) -> bool {
        let Demand { moment, spot, holds } = demand;
        let body = matches!(moment, Moment::Call(n) if contract.calls().get(*n) == Some(&Called::Body));
        let handler = matches!(moment, Moment::Call(_)) && !body;
        let aligned = matches!(holds, Holds::Multiple(_));
        match self {
            About::Arrival | About::Record | About::Note => false,
            About::Call => {
                let given = matches!(spot, Spot::Reg(_) | Spot::Vector(_) | Spot::Pointee(_) | Spot::StackArgument(_));
                handler && (given || *spot == Spot::RunContext)
            }
            About::Body => body && !aligned && matches!(spot, Spot::Sp | Spot::StackArgument(_)),
            About::Slots => handler && matches!(spot, Spot::Slot(_)),
            About::Stores => match holds {
                Holds::Is(term) if !handler => contract.stored().contains(term),
                _ => false,
            },
            About::Way(way) => {
                let named = matches!(spot, Spot::Next | Spot::ReturnAddress | Spot::Pc | Spot::ParentIp);
                let link = contract.facts.abi.link.is_some_and(|link| *spot == Spot::Reg(link));
                *moment == Moment::Leave(way) && (named || link || *spot == Spot::Sp)
            }
            About::Registers => !handler && matches!(spot, Spot::Reg(_)),
            About::Flags => !handler && *spot == Spot::Flags,
            About::Vectors => !handler && matches!(spot, Spot::Vector(_)),
            About::Alignment => aligned,
        }
    }
}

/// A sentence of a contract.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sentence {
    /// The text.
    pub text: String,
    /// The subjects of the sentence.
    pub about: &'static [About],
    /// The demands of [`Contract::demands`] that the sentence states.
    pub states: Vec<Demand>,
}

/// A sentence before its demands are looked up.
type Said = (&'static [About], String);

const SITE_JUMPS: &str = "The site jumps here. The caller's return address is still in its place.";

/// The sentence for a trampoline that preserves caller-saved registers.
const ALL_KEPT: &str = "Keeps what C functions may overwrite: the caller of a local function may know what that leaves alone, and have values there.";

/// The sentence on the return address while it is in the frame.
fn guard_sentence(guard: ReturnGuard) -> Said {
    let how = match guard {
        ReturnGuard::Signed => {
            "It signs the return address before it stores it, and authenticates it before it returns."
        }
        ReturnGuard::Pushed => {
            "It pushes the return address onto the CPU's shadow stack too, and compares it before it returns."
        }
        ReturnGuard::Scs => {
            "It stores the return address to the thread's shadow call stack too, and returns to what it finds there."
        }
    };
    (&[About::Note], how.to_owned())
}

/// The sentence on one slot for both records of a call.
fn pair_sentence(clock: Clock) -> &'static str {
    match clock {
        Clock::None => {
            "The record of the return lies behind that of the entry, in one slot that is taken at the entry. Its time is the cursor as it is then: calls whose slots lie before that began earlier."
        }
        _ => "The record of the return lies behind that of the entry, in one slot that is taken at the entry.",
    }
}

/// The sentences on the shadow stack: its contents, and the behaviour without room or without an entry.
fn shadow_sentences(words: &str) -> [Said; 4] {
    let way =
        format!("If that is not below the word at {words}_SHADOW_LIMIT, the function runs as if it were not traced.");
    let lies = format!(
        "While the function runs, parent_ip is on the thread's shadow stack, and behind it sp as it is when the function has returned: 16 bytes where the word at {words}_SHADOW says."
    );
    let others = "At the return, entries above the one with its sp are of functions that did not return. Below all others lies one whose sp is 0: a trampoline that comes to that one stops.";
    [
        (&[About::Record], lies),
        (&[About::Way(ExitPath::Function)], way),
        (&[About::Record], others.to_owned()),
        (&[About::Body], "The function finds its stack arguments in place. Unwinding stops here.".to_owned()),
    ]
}

/// The subjects of a sentence on a callee that returns the address at which to go on.
const CALL_AND_PARENT: &[About] = &[About::Call, About::Way(ExitPath::Parent), About::Vectors];

/// The subjects of a sentence on a callee and the registers that it may clobber.
const CALL_AND_VECTORS: &[About] = &[About::Call, About::Vectors];

impl Contract {
    /// The contract in sentences, for a comment above the function.
    pub fn sentences(&self) -> Vec<String> {
        self.said().into_iter().map(|(_, text)| text).collect()
    }

    /// The sentences of the contract, each with the demands that it states.
    pub fn stating(&self) -> Vec<Sentence> {
        let demands = self.demands();
        let of = |(about, text): Said| {
            let states = demands.iter().filter(|demand| about.iter().any(|about| about.states(demand, self)));
            Sentence { states: states.cloned().collect(), text, about }
        };
        self.said().into_iter().map(of).collect()
    }

    fn said(&self) -> Vec<Said> {
        let arrives: Said = (&[About::Arrival], self.convention.site.arrives.to_owned());
        let returned: Said = (&[About::Arrival], self.convention.exit.arrives.to_owned());
        let mut text: Vec<Said> = match self.kind {
            Kind::Stub | Kind::StubGraph => {
                let typed = self.type_before.map(|bytes| -> Said {
                    (
                        &[About::Note],
                        format!(
                            "Who calls it through a pointer finds its type, a word of 4 bytes, {bytes} bytes before it."
                        ),
                    )
                });
                let what = "A C function that does nothing: what a call slot calls until a callback is attached.";
                let does: Said = (&[About::Way(ExitPath::Caller), About::Registers, About::Vectors], what.to_owned());
                return [does].into_iter().chain(typed).collect();
            }
            Kind::StubDirect => {
                let does = "Returns to the traced function at once. Preserves every live register.";
                let about = &[About::Way(ExitPath::Function), About::Registers, About::Flags, About::Vectors];
                return vec![arrives, (about, does.to_owned())];
            }
            Kind::Entry(_) => self.entry_sentences(),
            Kind::Return => vec![
                returned,
                (CALL_AND_PARENT, format!("Calls {}(fregs), which returns the address to continue at.", self.callee)),
                (&[About::Stores], "Reloads the result registers from fregs: a handler can change them.".to_owned()),
            ],
            Kind::Rethook => vec![
                returned,
                (CALL_AND_PARENT, format!("Calls {}(regs), which returns the address to continue at.", self.callee)),
                (&[About::Stores], "Reloads every register from regs: a handler can change them.".to_owned()),
            ],
            Kind::Around(around) => self.around_sentences(around),
            Kind::Programs(programs) => self.program_sentences(&programs),
            Kind::Record(recorder) => self.record_sentences(recorder),
            Kind::Direct(direct) => self.direct_sentences(direct),
            Kind::Sled => vec![
                (&[About::Arrival], "Called in the middle of a function: every register is live.".to_owned()),
                (&[About::Call], format!("Calls {}.", self.callee)),
            ],
            Kind::Displaced => vec![
                (&[About::Arrival], "Gone to in the middle of a function: every register is live.".to_owned()),
                (&[About::Call, About::Slots], format!("Calls {}.", self.callee)),
            ],
            Kind::Closure => vec![
                (&[About::Arrival], "C calls it by a pointer, with any arguments.".to_owned()),
                (&[About::Call, About::Slots], format!("Calls {}, which finds them in the frame.", self.callee)),
            ],
            Kind::Callback => vec![
                (&[About::Arrival], "C calls it, or code with a convention of its own.".to_owned()),
                (&[About::Call], format!("Calls {}.", self.callee)),
            ],
            Kind::Syscall(Syscall { number, .. }) => vec![
                (&[About::Arrival], "C calls it as a function.".to_owned()),
                (&[About::Call], format!("Makes the system call {number}.")),
                (
                    &[About::Way(ExitPath::Caller)],
                    match &self.stated.errno {
                        Some(errno) => {
                            format!("Returns the kernel's result, or stores its error to {errno} and returns -1.")
                        }
                        None => "Returns what the kernel returns.".to_owned(),
                    },
                ),
            ],
            Kind::Switch => vec![
                (&[About::Arrival], "C calls it as a function.".to_owned()),
                (&[About::Call], "Another context goes on as it was left, until it switches back.".to_owned()),
            ],
        };
        text.extend(self.guard.map(guard_sentence));
        text.extend(self.vectors());
        text.extend(if self.kind.calls_body() { self.state_around_function() } else { self.state_behind_site() });
        text
    }

    fn entry_sentences(&self) -> Vec<Said> {
        let mut text: Vec<Said> = vec![
            (&[About::Arrival], self.convention.site.arrives.to_owned()),
            (CALL_AND_VECTORS, format!("Calls {}, which {}.", self.convention.callback.prototype, self.handlers())),
        ];
        let written = || self.frame.fields.iter().filter(|f| f.stores == Stores::TakeEffect);
        let member = |content| written().find(|f| f.content == content).map(|f| f.member);
        let members: Vec<&str> =
            [Content::Pc, Content::ParentIp, Content::Flags].into_iter().filter_map(member).collect();
        let registers = written().filter_map(|f| match f.content {
            Content::Reg(reg) => Some(reg),
            _ => None,
        });
        text.push((
            &[About::Stores],
            format!(
                "func can change {} and the slots of {}: the trampoline reloads them.",
                members.join(", "),
                self.ranges(RegSet::of(&registers.collect::<Vec<_>>()))
            ),
        ));
        if let Some(cell) = self.frame.fields.iter().find(|f| f.content == Content::Direct) {
            text.push(if self.direct {
                let lost = self.reg_names(self.direct_lost).join(" ");
                let lost = if lost.is_empty() { lost } else { format!(", except for {lost}") };
                let what = format!(
                    "If func stores an address to {}, goes to that direct trampoline as if the site had called it{lost}.",
                    cell.member
                );
                (&[About::Way(ExitPath::Direct)], what)
            } else {
                (&[About::Note], format!("A store to {} has no effect.", cell.member))
            });
        }
        if self.direct_jumps {
            text.push((
                &[About::Way(ExitPath::DirectJump)],
                "If bit 0 of the address is set, goes there as if the site had jumped: with parent_ip, without pc."
                    .to_owned(),
            ));
        }
        if self.early_direct {
            text.push((
                &[About::Way(ExitPath::EarlyDirect)],
                "If op->direct_call is set, goes there first, with all registers as at the site.".to_owned(),
            ));
        }
        text
    }

    /// How a site comes to it that jumps.
    fn site_jumps(&self) -> String {
        match &self.traced {
            Some(Traced { function, signed: true, .. }) => format!(
                "The site jumps here. The caller's return address is still in its place, signed for sp: {function} signs it once more."
            ),
            _ => SITE_JUMPS.to_owned(),
        }
    }

    /// Where the function goes on.
    fn goes_on(&self) -> &'static str {
        if self.traced.as_ref().is_some_and(|traced| traced.signed) { "from its start" } else { "behind its site" }
    }

    fn around_sentences(&self, around: Around) -> Vec<Said> {
        let (function, exit) = self.traced.as_ref().map_or(("", ""), |t| (&t.function, &t.exit));
        let (entry_gets, exit_gets) = match around.form {
            Form::Fregs | Form::Shadow => {
                let arguments = self.convention.callback.prototype.trim_start_matches(|c| c != '(');
                (arguments.to_owned(), "(fregs)")
            }
            Form::Frame => {
                let args = match around.args {
                    0 => " without arguments".to_owned(),
                    n => format!(" with the {}", first(n)),
                };
                (args, " with the result registers")
            }
        };
        let handlers = match around.form {
            Form::Shadow => {
                format!("The entry handler stores parent_ip, the exit handler returns it. Both {}.", self.handlers())
            }
            _ => format!("The handlers {}. Their results are ignored.", self.handlers()),
        };
        let stores = match around.form {
            Form::Fregs | Form::Shadow => {
                "They can change argument and result registers in fregs: the trampoline reloads them."
            }
            Form::Frame => "Every return has a matching call: the return-address stack stays balanced.",
        };
        let stack = match around.form {
            Form::Shadow => {
                "The function finds its stack arguments in place. Unwinding stops here: only the handlers know the caller."
            }
            _ => "The function must not have stack arguments: its caller's stack is one frame higher than it expects.",
        };
        vec![
            (&[About::Arrival], self.site_jumps()),
            (
                &[About::Call, About::Way(ExitPath::Parent)],
                format!(
                    "Calls {}{entry_gets}, then {function} {}, then {exit}{exit_gets}.",
                    self.callee,
                    self.goes_on()
                ),
            ),
            (&[About::Vectors], handlers),
            (
                if around.form == Form::Frame { &[About::Way(ExitPath::Parent)] } else { &[About::Stores] },
                stores.to_owned(),
            ),
            (if around.form == Form::Shadow { &[About::Body] } else { &[About::Note] }, stack.to_owned()),
        ]
    }

    /// Where the thread's words are, up to the names of the offsets.
    fn place_of_words(&self) -> String {
        match self.tls.as_str() {
            "" => format!("{} + RECORD", self.convention.thread.unwrap_or_default()),
            variable => format!("{variable} + TLS"),
        }
    }

    fn record_sentences(&self, recorder: Recorder) -> Vec<Said> {
        let function = self.traced.as_ref().map_or("", |t| &t.function);
        let words = &self.place_of_words();
        let place = self.goes_on();
        let does = match recorder.events {
            Events::Count => {
                format!("Adds 1 to the word at {words}_COUNT in one instruction, then goes to {function} {place}.")
            }
            Events::Entry => format!("Records the entry, then goes to {function} {place}."),
            Events::Both => format!("Records the entry, calls {function} {place}, records the return."),
        };
        let way: &[About] = match recorder.events {
            Events::Both => &[About::Way(ExitPath::Parent)],
            _ => &[About::Way(ExitPath::Function)],
        };
        let mut said: Vec<Said> = vec![(&[About::Arrival], self.site_jumps()), (way, does)];
        let mut text = Vec::new();
        if recorder.events != Events::Count {
            let time = match recorder.clock {
                Clock::None => "0".to_owned(),
                Clock::Tsc => format!("the CPU's clock ({})", self.facts.clock.0),
                Clock::Stamp8 => format!("the CPU's clock ({}) or 0", self.facts.clock.0),
                Clock::Word => self.convention.clock.unwrap_or_default().to_owned(),
            };
            let whats = whats(recorder);
            text.push(format!(
                "A record is 16 bytes: the time, which is {time}, then {}, stored last.",
                whats.join(" or ")
            ));
            if recorder.clock == Clock::Stamp8 {
                text.push(format!(
                    "It has the time if a multiple of {} bytes lies in it, and 0 otherwise.",
                    Recorder::BLOCK
                ));
            }
            if recorder.args > 0 {
                text.push(format!("Behind those of an entry lie the function's {}.", first(recorder.args)));
            }
            if recorder.result {
                text.push("Behind those of a return lies the first result register.".to_owned());
            }
            if recorder.pair {
                text.push(pair_sentence(recorder.clock).to_owned());
            }
            text.push(format!(
                "It lies where the word at {words}_CURSOR says. One instruction takes it, so a signal handler may record too."
            ));
            text.push(match recorder.refill {
                false => format!(
                    "If that is not below the word at {words}_LIMIT, nothing is stored: the cursor counts on, and tells how much."
                ),
                true => format!(
                    "If bit RECORD_FULL of that is set, {} is called, which may make room and keeps every register but that of its return address. Then another slot is taken. If the bit is set again, nothing is stored.",
                    self.callee
                ),
            });
        }
        if recorder.unwind {
            text.push(format!(
                "An exception or a forced unwind that leaves {function} is recorded, and goes on: unwinders find the landing pad by {PERSONALITY}."
            ));
        }
        text.extend((!self.tls.is_empty()).then(|| format!("{} is a thread-local variable.", self.tls)));
        said.extend(text.into_iter().map(|text| -> Said { (&[About::Record], text) }));
        said.push((&[About::Vectors], "Touches no vector register.".to_owned()));
        said.extend(recorder.keeps_all.then(|| -> Said { (&[About::Registers], ALL_KEPT.to_owned()) }));
        if recorder.shadow {
            said.extend(shadow_sentences(words));
        } else if recorder.events == Events::Both {
            let what =
                "The function must not have stack arguments: its caller's stack is one frame higher than it expects.";
            said.push((&[About::Note], what.to_owned()));
        }
        said
    }

    fn direct_sentences(&self, direct: Direct) -> Vec<Said> {
        let args = match (direct.live, direct.ip, direct.args) {
            (Some(_), ..) => "as the traced function was called".to_owned(),
            (None, false, 0) => "without arguments".to_owned(),
            (None, false, n) => format!("with the traced function's {}", first(n)),
            (None, true, 0) => "with the traced function's ip".to_owned(),
            (None, true, n) => format!("with the traced function's ip, then its {}", first(n)),
        };
        let mut text: Vec<Said> = vec![
            (&[About::Arrival], if direct.jumped { SITE_JUMPS } else { self.convention.site.arrives }.to_owned()),
            (&[About::Call], format!("Calls {} {args}.", self.callee)),
            match direct.live {
                Some(Live { stack: n @ 1.., .. }) => {
                    let (words, are) = (count(n.into(), "word"), if n == 1 { "is" } else { "are" });
                    (&[About::Call], format!("Its {words} of stack arguments {are} a copy. Its result is ignored."))
                }
                Some(_) => (&[About::Note], "Its result is ignored.".to_owned()),
                None => (&[About::Vectors], format!("It {}. Its result is ignored.", self.handlers())),
            },
        ];
        if let (true, Some(traced)) = (direct.jumped, &self.traced) {
            let what = format!("Then jumps to {} behind its site, which returns to its caller.", traced.function);
            text.push((&[About::Way(ExitPath::Function)], what));
        }
        if let Some(live @ Live { vectors: 1.., .. }) = direct.live {
            let what = match live.saved_vectors() {
                0 => "It must use general registers only: vector arguments are not saved.".to_owned(),
                n => format!("Preserves {}.", count(n.into(), "vector argument register")),
            };
            text.push((&[About::Call, About::Vectors], what));
        }
        text
    }

    fn program_sentences(&self, programs: &Programs) -> Vec<Said> {
        let called = |attach| {
            let names = self.programs.iter().filter(|p| p.attach == attach).map(|p| &*p.symbol);
            names.collect::<Vec<_>>().join(", ")
        };
        let function = self.traced.as_ref().map_or("", |t| &t.function);
        let [before, around, instead, after] =
            [Attach::Fentry, Attach::Fsession, Attach::FmodRet, Attach::Fexit].map(called);
        let arrival = match (programs.call_orig, programs.skip_frame) {
            (true, false) => SITE_JUMPS,
            (true, true) => {
                "The site calls. The trampoline drops that return address, so its own return is mispredicted once."
            }
            (false, _) => self.convention.site.arrives,
        };
        let mut text: Vec<Said> = vec![(&[About::Arrival], arrival.to_owned())];
        if !before.is_empty() {
            text.push((&[About::Call], format!("Calls {before}.")));
        }
        if !around.is_empty() {
            text.push((&[About::Call], format!("Calls {around}.")));
        }
        if !instead.is_empty() {
            text.push((
                &[About::Call, About::Way(ExitPath::Skipped)],
                format!(
                    "Calls {instead}. The first that does not return 0 gives the result, and {function} is skipped."
                ),
            ));
        }
        if programs.call_orig {
            text.push((&[About::Way(ExitPath::Parent)], format!("Calls {function} behind its site.")));
        }
        if !around.is_empty() {
            text.push((&[About::Call], format!("Calls {around}.")));
        }
        if !after.is_empty() {
            text.push((&[About::Call], format!("Calls {after}.")));
        }
        let words = count(programs.words.iter().flatten().count(), "word");
        text.extend(self.brackets());
        let (gets, address) = match self.stated.around_programs.is_empty() {
            true => ("Each gets (context, cookie)", ", before that is ip"),
            false => ("Each program gets (context)", ", before that is the function's address"),
        };
        let ip = if programs.ip_arg { address } else { "" };
        let (behind, and) = match programs.result.regs == RegSet::EMPTY || !programs.call_orig {
            true => ("", ""),
            false => (", then the result", " and the result"),
        };
        text.push((
            &[About::Call, About::Slots],
            format!("{gets}. The context is {words} of arguments{behind}. Before it is their number{ip}."),
        ));
        text.push((
            &[About::Stores],
            format!("They can change the words of register arguments{and}: the trampoline reloads them."),
        ));
        if !around.is_empty() {
            text.push((&[About::Slots], format!(
                "For {around}, bits 8 to 15 of that number give the place of its own word, in words before the context. That \
                 word is 0 at first. Bit 63 is set after the function."
            )));
        }
        if let Some(counted) = programs.tail_call {
            let name = self.facts.abi.name(counted.reg);
            let back = if counted.returned { " and back to its caller" } else { "" };
            text.push((
                &[About::Registers],
                format!("Passes the tail call counter, in {name}, to the function{back}."),
            ));
        }
        if programs.call_orig && programs.live.stack > 0 {
            let words = count(programs.live.stack.into(), "word");
            text.push((&[About::Body], format!("The function gets a copy of its {words} of stack arguments.")));
        }
        text.extend(program_vectors(programs));
        text
    }

    /// The sentences for functions around each program, and around all.
    fn brackets(&self) -> Vec<Said> {
        let each = self.stated.around_programs.first().map(|Bracketed { around, .. }| {
            format!(
                "Calls {}(prog, run context) before each program, and {}(prog, start, run context) after it: start is what the \
                 first returned. If that is 0, the program is not called. The run context begins with the cookie.",
                around.enter, around.exit
            )
        });
        let all = self.stated.around_function.as_ref().map(|Bracket { enter, exit, argument, .. }| {
            let image = argument.as_deref().unwrap_or("an address");
            format!("Calls {enter}({image}) before all this, and {exit}({image}) after it.")
        });
        each.into_iter().chain(all).map(|text| -> Said { (&[About::Call], text) }).collect()
    }

    /// The sentences for a trampoline that calls the traced function: registers preserved at its entry, and at its return.
    fn state_around_function(&self) -> Vec<Said> {
        let used = self.stated.own.union(RegSet::of(&[self.facts.abi.fp]));
        let result = self.kind.programs().map(|programs| programs.result);
        let registers = self.ranges(self.demanded(Root::Body));
        let results = match (result.is_some_and(|result| result.vectors > 0), registers.is_empty()) {
            (false, _) => registers,
            (true, true) => "vector registers".to_owned(),
            (true, false) => registers + ", vector registers",
        };
        vec![
            (
                &[About::Registers, About::Vectors],
                format!(
                    "Preserved at the function's entry: {}, and the callee-saved registers{}. At its return: {}, and the callee-saved registers.",
                    or_none(&self.ranges(self.kept_beyond_c())),
                    if self.kind.is_shadow() { String::new() } else { format!(" except {}", self.ranges(used)) },
                    or_none(&results)
                ),
            ),
            (
                &[About::Alignment],
                format!("Frame: {} bytes; sp is {}-byte aligned at the calls.", self.frame.size, self.stack_align),
            ),
        ]
    }

    /// What has its value again behind the site, or when the parent goes on.
    fn state_behind_site(&self) -> Vec<Said> {
        let facts = self.facts;
        let flags = match (facts.flags.is_empty(), self.flags_kept) {
            (true, _) => String::new(),
            (false, true) => format!(" {} preserved.", facts.flags),
            (false, false) => format!(" {} not preserved.", facts.flags),
        };
        let site = if self.realigned { "whatever the site had" } else { "if the site's was" };
        // Of a kretprobe's they are pushed inside of it.
        let above = self.kind != Kind::Rethook && self.frame.find(Content::Flags).is_some();
        let size = self.frame.size + if above { 8 } else { 0 };
        vec![
            (
                &[About::Registers],
                format!(
                    "Preserved: {}, and the callee-saved registers ({}).",
                    or_none(&self.ranges(self.kept_beyond_c())),
                    self.ranges(facts.abi.callee_saved)
                ),
            ),
            (&[About::Flags], format!("Clobbered: {}.{flags}", or_none(&self.ranges(self.clobbered)))),
            (
                &[About::Alignment],
                format!("Frame: {size} bytes; sp is {}-byte aligned at the call, {site}.", self.stack_align),
            ),
        ]
    }

    /// What the functions that it calls may use, and what they find, in sentences for who writes them.
    pub fn for_handlers(&self) -> Vec<String> {
        let registers = match self.general_only() {
            true => "They must use general registers only: no vector register is saved around them.",
            false => "They may use every register that C functions may.",
        };
        let (align, wanted) = (self.stack_align, self.facts.abi.sp_align);
        let aligned = (align < wanted)
            .then(|| format!("They find the stack aligned to {align} bytes, where C for user space wants {wanted}."));
        [registers.to_owned()].into_iter().chain(aligned).collect()
    }

    /// What handlers do with registers.
    fn handlers(&self) -> &'static str {
        if self.vectors_kept == 0 { "must use general registers only" } else { "may use vector registers too" }
    }

    /// A sentence on the vector registers that are saved without a prototype.
    fn vectors(&self) -> Option<Said> {
        let of = match (self.kind.returned_to(), self.kind.calls_body()) {
            _ if self.vectors_kept == 0 || self.kind.is_called() => return None,
            (true, _) => "results, whatever the handler uses",
            (_, true) => "arguments, and at the return those that carry results",
            _ => "arguments",
        };
        Some((&[About::Vectors], format!("Preserves the vector registers that carry {of}.")))
    }

    /// The demanded values that a handler's store to its frame changes.
    fn stored(&self) -> Vec<Term> {
        let root = |content| match content {
            Content::Pc => Some(Root::Pc),
            Content::ParentIp => Some(Root::ParentIp),
            Content::Flags => Some(Root::Flags),
            Content::Reg(reg) => Some(Root::Reg(reg)),
            Content::Result(reg) => Some(Root::Body(reg)),
            _ => None,
        };
        let fields = self.frame.fields.iter().filter(|field| field.stores == Stores::TakeEffect);
        fields.filter_map(|field| root(field.content).map(Term::from)).collect()
    }

    fn kept_beyond_c(&self) -> RegSet {
        self.demanded(Root::Reg).minus(self.c_keeps())
    }

    /// The general registers that are demanded with their own value of this kind, where the traced function goes on or is
    /// called, or on the way out of one that calls it.
    fn demanded(&self, root: fn(Reg) -> Root) -> RegSet {
        let regs = self.demands().into_iter().filter_map(|demand| {
            let Demand { moment, spot: Spot::Reg(reg), holds: Holds::Is(term) } = demand else { return None };
            let there = match moment {
                Moment::Call(n) => self.calls().get(n) == Some(&Called::Body),
                Moment::Leave(way) => {
                    way == self.kind.traits().leaves && (!self.kind.calls_body() || root(reg) == Root::Body(reg))
                }
            };
            (there && term == root(reg).into()).then_some(reg)
        });
        RegSet::of(&regs.collect::<Vec<_>>())
    }

    fn ranges(&self, set: RegSet) -> String {
        ranges(&self.reg_names(set))
    }
}

/// The sentence on vector registers for programs, if arguments or the result are in some.
fn program_vectors(programs: &Programs) -> Option<Said> {
    let result = if programs.call_orig { programs.result.vectors } else { 0 };
    let of = match (programs.live.vectors > 0, result > 0) {
        (false, false) => return None,
        (true, true) => "arguments and result",
        (true, false) => "arguments",
        (false, true) => "the result",
    };
    let what = match programs.live.saved_vectors() + programs.result.saved_vectors() {
        0 => format!("They must use general registers only: vector registers of {of} are not saved."),
        _ => format!("Preserves vector registers of {of}."),
    };
    Some((&[About::Vectors], what))
}

/// The last words of records, and what they say.
fn whats(recorder: Recorder) -> Vec<String> {
    recorder
        .possible()
        .map(|event| {
            let name = match event {
                Event::Entry => "entry",
                Event::Exit => "return",
                Event::Unwound => "exception",
            };
            format!("{:#x} ({name})", recorder.what(event))
        })
        .collect()
}

/// So many of them.
fn count(n: usize, of: &str) -> String {
    format!("{n} {of}{}", if n == 1 { "" } else { "s" })
}

/// The first so many argument registers.
fn first(n: u8) -> String {
    if n == 1 { "first argument register".to_owned() } else { format!("first {n} argument registers") }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

/// `x0 x1 x2 x8` as `x0-x2 x8`.
fn ranges(names: &[&str]) -> String {
    let split = |n: &str| {
        let at = n.find(|c: char| c.is_ascii_digit())?;
        Some((n[..at].to_owned(), n[at..].parse::<u32>().ok()?))
    };
    let mut out: Vec<String> = Vec::new();
    let mut run: Option<(String, u32, u32)> = None;
    let flush = |run: &mut Option<(String, u32, u32)>, out: &mut Vec<String>| {
        if let Some((p, a, b)) = run.take() {
            match b - a {
                0 => out.push(format!("{p}{a}")),
                1 => out.extend([format!("{p}{a}"), format!("{p}{b}")]),
                _ => out.push(format!("{p}{a}-{p}{b}")),
            }
        }
    };
    for name in names {
        match (split(name), &mut run) {
            (Some((p, n)), Some((q, _, b))) if p == *q && n == *b + 1 => *b = n,
            (Some((p, n)), _) => {
                flush(&mut run, &mut out);
                run = Some((p, n, n));
            }
            (None, _) => {
                flush(&mut run, &mut out);
                out.push((*name).to_owned());
            }
        }
    }
    flush(&mut run, &mut out);
    out.join(" ")
}
