//! What a difference is about, and how that is named.

use std::fmt;

use codegen::backend::Backend;
use codegen::words::term::{Plus, Root, Term};

use super::case::Case;
use super::value::{Offset, Value};

/// What a difference is about. As text it is the difference's id: `leave.rax`, `call1.frame+0x78`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Spot {
    /// What may land on the first instruction.
    LandingPad,
    /// Whether unwinders take the start for a place that is returned to.
    ReturnedTo,
    /// How long the code is.
    Bytes,
    /// Whether there is a way that calls nothing: all but in this case.
    WayPast(Case),
    /// Instructions that use memory below SP.
    Below,
    /// Instructions that use memory by an SP that the hardware refuses.
    Crooked,
    /// Instructions that are executed by mistake.
    Astray,
    /// Instructions that may change vector state that the engine does not have.
    Wide,
    /// Instructions that move the CPU's shadow stack, which the engine does not have.
    Shadow,
    /// Instructions executed.
    Instructions,
    /// Bytes of stack.
    Stack,
    /// Where it goes.
    To,
    /// By which branch.
    By,
    /// SP there.
    Sp,
    /// A trap behind the last branch.
    Trap,
    /// A general register.
    Register(&'static str),
    /// The flags.
    Flags,
    /// Flags that a called function stores.
    FlagsFollow,
    /// A vector register, a control word, or a flag that C wants clear.
    Kept(&'static str),
    /// The lower half of a vector register whose upper one is lost.
    LowerHalf(&'static str),
    /// The upper half of a vector register whose lower one is kept.
    UpperHalf(&'static str),
    /// A word of the caller.
    CallerWord(Offset),
    /// Another word of memory.
    Memory(Value),
    /// Returns that do not go behind their call.
    Mispaired,
    /// Where returns go that pair with calls from before.
    Beyond,
    /// Calls without a return.
    Unreturned,
    /// What is called, if that is another number of functions.
    Calls,
    /// Something of a call.
    Call(CallOf, CallSpot),
    /// Whether there is an unwind table.
    UnwindTable,
    /// What an unwinder finds.
    Unwind,
}

/// The number of a call, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallOf {
    /// The number.
    pub number: usize,
    /// It is the only one.
    pub alone: bool,
}

/// What of a call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallSpot {
    /// What is called.
    Callee,
    /// By which branch.
    By,
    /// To what SP is aligned, whatever it was.
    Aligned,
    /// To what it is aligned if the caller aligns it as C does.
    UsuallyAligned,
    /// A general argument register.
    Argument(&'static str),
    /// A word at SP.
    StackArgument(Offset),
    /// A vector argument register.
    Vector(&'static str),
    /// A flag that C wants clear.
    Flag(&'static str),
    /// What frame pointers lead to.
    Chain,
    /// How long the words are up to the caller's.
    FrameBytes,
    /// A word of the frame, that is elsewhere now.
    Moved(Offset),
    /// A word of the frame.
    Word(Offset),
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::LandingPad => f.write_str("entry.landing-pad"),
            Spot::ReturnedTo => f.write_str("entry.returned-to"),
            Spot::Bytes => f.write_str("cost.bytes"),
            Spot::WayPast(_) => f.write_str("way-past"),
            Spot::Below => f.write_str("memory.below-sp"),
            Spot::Crooked => f.write_str("memory.refused-sp"),
            Spot::Astray => f.write_str("returns.astray"),
            Spot::Wide => f.write_str("leave.wide-vectors"),
            Spot::Shadow => f.write_str("returns.shadow-stack"),
            Spot::Instructions => f.write_str("cost.instructions"),
            Spot::Stack => f.write_str("cost.stack"),
            Spot::To => f.write_str("leave.to"),
            Spot::By => f.write_str("leave.by"),
            Spot::Sp => f.write_str("leave.sp"),
            Spot::Trap => f.write_str("leave.trap"),
            Spot::Register(name) | Spot::Kept(name) => write!(f, "leave.{name}"),
            Spot::LowerHalf(name) => write!(f, "leave.{name}.lower"),
            Spot::UpperHalf(name) => write!(f, "leave.{name}.upper"),
            Spot::Flags => f.write_str("leave.flags"),
            Spot::FlagsFollow => f.write_str("leave.flags-stored"),
            Spot::CallerWord(at) => write!(f, "leave.[sp{}]", Plus(at.0)),
            Spot::Memory(at) => write!(f, "leave.{at:#}"),
            Spot::Mispaired => f.write_str("returns.elsewhere"),
            Spot::Beyond => f.write_str("returns.beyond"),
            Spot::Unreturned => f.write_str("returns.missing"),
            Spot::Calls => f.write_str("calls"),
            Spot::Call(call, spot) => write!(f, "call{}.{spot}", call.number),
            Spot::UnwindTable => f.write_str("unwind.table"),
            Spot::Unwind => f.write_str("unwind"),
        }
    }
}

impl fmt::Display for CallSpot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallSpot::Callee => f.write_str("callee"),
            CallSpot::By => f.write_str("by"),
            CallSpot::Aligned => f.write_str("sp-align"),
            CallSpot::UsuallyAligned => f.write_str("usual-sp-align"),
            CallSpot::Argument(name) | CallSpot::Vector(name) | CallSpot::Flag(name) => f.write_str(name),
            CallSpot::StackArgument(at) => write!(f, "[sp{}]", Plus(at.0)),
            CallSpot::Chain => f.write_str("frame-pointers"),
            CallSpot::FrameBytes => f.write_str("frame-bytes"),
            CallSpot::Moved(at) | CallSpot::Word(at) => write!(f, "frame{}", Plus(at.0)),
        }
    }
}

/// Can this be the id of a difference, or the beginning of several ids, such as `leave`, `cost` or `call1`?
pub fn is_id(text: &str, backend: &dyn Backend) -> bool {
    let (abi, machine) = (&backend.facts().abi, backend.machine());
    let register = |name: &str| {
        let names = machine.vectors.iter().map(|v| v.name).chain(machine.control.iter().map(|c| c.reg.name));
        abi.find(name).is_some() || names.chain(machine.clear_flags.iter().map(|(flag, _)| *flag)).any(|n| n == name)
    };
    let word =
        |text: &str| Term::parse(text, abi).is_ok_and(|term| matches!(term.root, Root::Content(_) | Root::Frame));
    let call = |text: &str| CallSpot::WORDS.iter().any(|spot| spot.to_string() == text);
    let half = |text: &str| text.strip_suffix(".lower").or(text.strip_suffix(".upper")).is_some_and(register);
    match text.split_once('.') {
        Some(("leave", what)) if register(what) || half(what) || word(what) => true,
        Some((head, what)) if is_call(head) => call(what) || register(what) || word(what),
        None if is_call(text) => true,
        _ => Spot::WORDS
            .iter()
            .map(Spot::to_string)
            .any(|id| id == text || id.split_once('.').is_some_and(|(head, _)| head == text)),
    }
}

/// `call1`, `call2` and so on.
fn is_call(text: &str) -> bool {
    text.strip_prefix("call").is_some_and(|n| n.parse::<u16>().is_ok_and(|n| n > 0))
}

impl Spot {
    /// Those whose ids are always the same.
    const WORDS: [Spot; 23] = [
        Spot::LandingPad,
        Spot::ReturnedTo,
        Spot::Bytes,
        Spot::WayPast(Case::PLAIN),
        Spot::Below,
        Spot::Crooked,
        Spot::Astray,
        Spot::Wide,
        Spot::Shadow,
        Spot::Instructions,
        Spot::Stack,
        Spot::To,
        Spot::By,
        Spot::Sp,
        Spot::Trap,
        Spot::Flags,
        Spot::FlagsFollow,
        Spot::Mispaired,
        Spot::Beyond,
        Spot::Unreturned,
        Spot::Calls,
        Spot::UnwindTable,
        Spot::Unwind,
    ];
}

impl CallSpot {
    /// Those whose ids are always the same.
    const WORDS: [CallSpot; 6] = [
        CallSpot::Callee,
        CallSpot::By,
        CallSpot::Aligned,
        CallSpot::UsuallyAligned,
        CallSpot::Chain,
        CallSpot::FrameBytes,
    ];
}

/// "the call", or its number.
impl fmt::Display for CallOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.alone { f.write_str("the call") } else { write!(f, "call {}", self.number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_known_and_others_are_not() {
        let backend = *arch::BACKENDS.iter().find(|b| b.facts().name == "x86_64").unwrap();
        let leave = |name| Spot::Register(name).to_string();
        for id in [leave("rax"), Spot::CallerWord(Offset(8)).to_string(), Spot::Calls.to_string()] {
            assert!(is_id(&id, backend), "{id}");
        }
        let halves = [Spot::UpperHalf("xmm0").to_string(), Spot::LowerHalf("xmm0").to_string()];
        for id in ["leave", "cost", "call2", "call1.rdi", "call1.frame-0x8", "call1.[sp+0x8]", "leave.xmm0", "unwind"]
            .into_iter()
            .chain(halves.iter().map(String::as_str))
        {
            assert!(is_id(id, backend), "{id}");
        }
        for id in ["", "leav", "leave.", "leave.rxa", "call", "call0", "call1.framed", "cost.rax", "rax"] {
            assert!(!is_id(id, backend), "{id}");
        }
    }
}
