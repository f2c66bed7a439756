//! The symbolic checker: a listing is followed on every way through it, with values that say where they are from, and held
//! against its contract. It is to the emulator what regalloc2's checker is to running programs: it takes microseconds, and
//! never calls the planner or an architecture's lowering.
//!
//! What it sees: at each call, that what a handler is given and shown is what it should be, that SP is aligned, that frame
//! records lead to the caller; on each way out, that every value is back where the contract wants it and SP where it was;
//! on the way, that no slot is read before it is written, and that nothing is stored outside the frame. What it takes for
//! granted: that the bytes do what the effects say (`tests/rows.rs` of each architecture), and that the unwind table is
//! right. Return prediction and what indirect branches may reach are for the emulator.

mod area;
mod calls;
mod demands;
mod out;
pub mod plan;
mod records;
mod run;
mod shadow;
mod unwound;
mod value;

use std::fmt;

use crate::arch::facts::NumberOf;
use crate::arch::machine::Machine;
use crate::arch::site::Site;
use crate::ask::kind::{Entered, Gives, Kind};
use crate::contract::Contract;
use crate::contract::demand::{Called, Demand};
use crate::effect::effects::Effects;
use crate::listing::isa::Instruction;
use crate::listing::{Line, Listing, SymRef};
use crate::profile::target::Target;
use crate::words::abi::{Abi, Loc};
use crate::words::error::Result;
use crate::words::step::{ExitPath, Local, Sym};
use crate::words::term::{self, Term};
use value::{Root, State, Value};

macro_rules! properties {
    ($($variant:ident $name:literal $about:literal;)*) => {
        /// A property of trampolines that the checker verifies.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Property { $(#[doc = $about] $variant),* }

        impl Property {
            /// All of them.
            pub const ALL: &'static [Property] = &[$(Property::$variant),*];

            /// The name in reports.
            pub fn name(self) -> &'static str {
                match self { $(Property::$variant => $name),* }
            }
        }
    };
}

properties! {
    Registers "registers" "What must survive survives.";
    Flags "flags" "The flags survive, where that is promised.";
    Stack "sp" "SP is known, and back where it was on each way out.";
    Slots "slots" "No slot is read before it is written.";
    Memory "memory" "Nothing is stored outside the frame.";
    Arguments "arguments" "What is called gets what it should get.";
    Frame "frame" "A handler finds in the frame what it is told.";
    Records "records" "Frame records lead to the caller.";
    Calls "calls" "What should be called is called, in its order.";
    Alignment "alignment" "SP is aligned at calls.";
    Way "way" "Each way out leads where it should, with the return address where it belongs.";
    Control "control" "Branches ask what they should, and every way ends.";
    Pad "pad" "The entry is a landing pad.";
    Guard "guard" "A stored return address is signed, or on the shadow stack too.";
    Returns "returns" "Returns are made as was asked for.";
    Record "record" "What is to be recorded is, in a slot of its own.";
}

/// Ways through a listing or a plan, at most: a circle with a branch in it has no end of them. A trampoline has some dozens, or where
/// each program may be the one that is not called, and the one that decides, no more than the third power of the number of calls: each
/// goes on in parts.
fn most_ways(contract: &Contract) -> usize {
    const WAYS: usize = 1024;
    let calls = contract.calls().len();
    WAYS.max(2 * calls.pow(3))
}

/// Something wrong, at a line of the listing or, of a plan, a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The line.
    pub line: usize,
    /// The violated property.
    pub property: Property,
    /// The demand that does not hold, where it is one of the contract's list.
    pub broken: Option<Box<Broken>>,
    /// The sentence about it, for people.
    pub what: String,
}

/// A demand that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The demand.
    pub demand: Demand,
    /// The actual value; `None` if no term of the contract's language expresses it.
    pub found: Option<Term>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.property.name(), self.what)
    }
}

/// The parts of a line that the checker needs.
#[derive(Clone, Copy, Debug)]
enum Code {
    Insn(Effects),
    Label(Local),
    Nothing,
}

/// The faults of a listing; empty if it is right.
///
/// # Errors
/// The contract promises what needs a number that the profile does not have.
pub fn listing(
    listing: &Listing<impl Instruction>,
    contract: &Contract,
    target: &Target,
    machine: &Machine,
) -> Result<Vec<Fault>> {
    let code: Vec<Code> = listing
        .lines
        .iter()
        .map(|line| match *line {
            Line::Insn(insn, _) => Code::Insn(insn.effects()),
            Line::Local(local) => Code::Label(local),
            _ => Code::Nothing,
        })
        .collect();
    let mut faults = Vec::new();
    for &entry_sp in machine.entry_sp {
        let mut checker = Checker::new(&code, &listing.symbols, contract, target, machine, entry_sp)?;
        checker.run();
        for fault in checker.faults {
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    Ok(faults)
}

/// Offsets in what `op` points to.
#[derive(Clone, Copy)]
struct OpFields {
    func: i32,
    direct_call: i32,
}

/// Follows one listing.
struct Checker<'c> {
    code: &'c [Code],
    symbols: &'c [SymRef<'c>],
    contract: &'c Contract,
    machine: &'c Machine,
    abi: &'static Abi,
    site: &'c Site,
    /// The state at the start.
    start: State,
    /// SP at the start, modulo 16.
    entry_sp: i32,
    /// SP at the site, relative to that at the start.
    site_sp: i32,
    /// The start of the caller's stack, to which nothing may be stored.
    top: i32,
    calls: Vec<Called>,
    demands: Vec<Demand>,
    /// The address at which the traced function goes on.
    pc: Value,
    op: Value,
    /// From pc, down to a multiple of 8, to the literal with `op`. Where functions begin with their sites and not with landing
    /// pads, pc is one as it is.
    literal: Option<i64>,
    /// The offsets in `op`, if the trampoline reads it itself and may leave at once.
    early: Option<OpFields>,
    /// The offsets of the thread's words, for a trampoline that records.
    thread: Option<value::Places>,
    faults: Vec<Fault>,
}

impl<'c> Checker<'c> {
    fn new(
        code: &'c [Code],
        symbols: &'c [SymRef<'c>],
        contract: &'c Contract,
        target: &'c Target,
        machine: &'c Machine,
        entry_sp: u64,
    ) -> Result<Checker<'c>> {
        let (abi, site) = (&contract.facts.abi, &contract.convention.site);
        let symbol = |name: &str, add: i32| {
            let found = symbols.iter().position(|s| s.name == name && s.add == add);
            found.map(|i| Sym(i as u8))
        };
        let site_sp = if contract.kind.traits().entered == Entered::BySiteCall { site.pushed } else { 0 };
        let of_return = if contract.kind.is_shadow() { abi.return_bytes() as i32 } else { 0 };
        let nothing = Value::lost(value::Why::Computed);
        let body = contract.traced.as_ref().and_then(|t| symbol(&t.function, t.resume));
        let op = contract.convention.callback.op.and_then(|name| symbol(name, 0));
        let mut checker = Checker {
            code,
            symbols,
            contract,
            machine,
            abi,
            site,
            start: State::new(abi),
            entry_sp: entry_sp as i32,
            site_sp,
            top: site_sp + of_return,
            calls: contract.calls(),
            demands: contract.demands(),
            pc: match contract.kind {
                kind if kind.jumped_to() => body.map_or(nothing, |s| Value::of(Root::Symbol(s))),
                // Where its own call returns to.
                kind if kind.is_in_the_middle() => Value::of(Root::Parent),
                _ => Value::of(Root::Pc),
            },
            op: op.map_or(nothing, |s| Value::of(Root::Content(s))),
            literal: None,
            early: None,
            thread: None,
            faults: Vec::new(),
        };
        if let Some(recorder) = contract.kind.recorder() {
            let [cursor, limit, count] = contract.thread_words;
            let shadow = recorder.shadow.then_some(contract.shadow_words);
            checker.thread = Some(value::Places {
                recorder,
                cursor,
                limit,
                count,
                shadow,
                clock: contract.convention.clock.and_then(|name| symbol(name, 0)),
            });
        }
        if contract.leaves_by(ExitPath::EarlyDirect) {
            checker.op = Value::of(Root::Literal);
            checker.literal = site.literal();
            checker.early = Some(OpFields {
                func: target.number(NumberOf::OpFunc)?,
                direct_call: target.number(NumberOf::OpDirectCall)?,
            });
        }
        checker.arrive(contract.kind);
        Ok(checker)
    }

    /// Put the way back where whoever came here put it.
    fn arrive(&mut self, kind: Kind) {
        let parent = Value::of(Root::Parent);
        if kind.traits().entered == Entered::BySiteCall {
            self.put(self.site.pc, self.pc);
        }
        if kind.attaches() && self.site.pushed == 0 {
            // Sites without a stack have it in a register also if they jump.
            self.put(self.site.parent_ip, parent);
        } else if kind.attaches() {
            self.start.memory.store(self.site_sp, parent);
        }
        if kind.is_callback() || kind.jumped_to() || kind.is_in_the_middle() {
            match self.abi.link {
                Some(link) if self.contract.traced.as_ref().is_some_and(|traced| traced.signed) => {
                    self.start.set(link, Value::of(Root::Signed));
                }
                Some(link) => self.start.set(link, parent),
                None => self.start.memory.store(0, parent),
            }
        }
    }

    fn put(&mut self, loc: Loc, value: Value) {
        match loc {
            Loc::Reg(reg) => self.start.set(reg, value),
            Loc::Stack(offset) => self.start.memory.store(offset, value),
        }
    }

    fn fault(&mut self, line: usize, property: Property, what: impl Into<String>) {
        self.faults.push(Fault { line, property, broken: None, what: what.into() });
    }

    /// A value must be this one.
    fn same(&mut self, line: usize, property: Property, what: &str, wanted: Value, found: Value) {
        if !found.is(wanted) {
            let (wanted, found) = (self.tell(wanted), self.tell(found));
            self.fault(line, property, format!("{what} is {found}, not {wanted}"));
        }
    }

    /// The value as a term of the contract's language; `None` where that has none for it.
    fn term(&self, value: Value) -> Option<Term> {
        use term::Root as Of;
        let sp = Term::from(Of::Reg(self.abi.sp)).plus(-i64::from(self.site_sp));
        let symbol = |sym: Sym| {
            self.symbols.get(usize::from(sym.0)).map(|s| Term::from(Of::Symbol(s.name.into())).plus(s.add.into()))
        };
        let root = match value.root {
            _ if value == self.op => return Some(Of::Op.into()),
            Root::Number => Of::Number,
            Root::Register(reg) => Of::Reg(reg),
            Root::Vector(n, _) => Of::Vector(n),
            Root::Flags => Of::Flags,
            Root::Stack => return Some(sp.plus(value.add)),
            Root::Word(at) => return Some(sp.plus(at.into()).content().plus(value.add)),
            Root::Pc => Of::Pc,
            Root::Parent => Of::ParentIp,
            Root::Symbol(sym) => return Some(symbol(sym)?.plus(value.add)),
            Root::Content(sym) => return Some(symbol(sym)?.content().plus(value.add)),
            Root::Left(_, call) => Of::Stored(u16::from(call) + 1),
            Root::Returned(call) => Of::Left(u16::from(call) + 1, *self.abi.rets.first()?),
            Root::Body(reg) => Of::Body(reg),
            Root::BodyVector(n, _) => Of::BodyVector(n),
            Root::Lost(value::Why::Unwritten) => Of::Older,
            _ => return None,
        };
        Some(Term::from(root).plus(value.add))
    }

    /// The value in words: as a term where it is one.
    fn tell(&self, value: Value) -> String {
        if let Some(term) = self.term(value) {
            return term.show(self.abi).to_string();
        }
        let symbol = |sym: Sym| self.symbols.get(usize::from(sym.0)).map_or("a symbol".to_owned(), |s| s.to_string());
        let text = match value.root {
            Root::Lost(value::Why::Clobbered) => "what a call left there".to_owned(),
            Root::Signed => "parent_ip, signed".to_owned(),
            Root::Rounded => "pc down to a multiple of 8".to_owned(),
            Root::Literal => "op".to_owned(),
            Root::OpField(at) => format!("the word at op{at:+}"),
            Root::High(sym, _) => format!("the high part of {}", symbol(sym)),
            Root::Next(line) => format!("the address behind line {line}"),
            Root::LowBit(at, call) => format!("the lowest bit of what call {call} left at sp{at:+}"),
            Root::Thread => "the thread pointer".to_owned(),
            Root::TlsHigh(sym, _) => format!("the high part of where the thread has {}", symbol(sym)),
            Root::Tls(sym) => format!("where the thread has {}", symbol(sym)),
            Root::ThreadWord(at) => format!("the word of the thread at {at:+}"),
            Root::Slot(n) => format!("slot {n}"),
            Root::Top => "the top of the shadow stack".to_owned(),
            Root::KeptSp(at) => format!("sp in the entry {at:+} bytes from the top of the shadow stack"),
            Root::Full(n) => format!("whether there is no room for slot {n}"),
            Root::InBlock(n, add) => format!("where in a block slot {n} {add:+} lies"),
            Root::Clock(_, None) => "the clock".to_owned(),
            Root::Clock(_, Some(half)) => format!("the {} half of the clock", format!("{half:?}").to_lowercase()),
            Root::Exception => "the exception".to_owned(),
            _ => return "unknown".to_owned(),
        };
        format!("{text}{}", term::Plus(value.add))
    }

    /// The function calls with a frame that they may read and store to.
    fn shows(&self) -> bool {
        self.contract.kind.traits().gives != Gives::Arguments
    }
}
