//! Differences in words, for people.

use std::fmt;

use super::difference::{Difference, Found};
use super::observed::{Caller, End, Unwound};
use super::spot::{CallOf, CallSpot, Spot};
use super::value::Value;

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { spots, was, is, .. } = self;
        let Some(first) = spots.first() else { return Ok(()) };
        let (said_is, said_was) = (Said { found: is, of: self }, Said { found: was, of: self });
        match first {
            Spot::LandingPad => write!(f, "begins with {}; it was {}", landing_pad(is), landing_pad(was)),
            Spot::ReturnedTo => {
                let fate = if is.is() { "ends there now" } else { "goes on with what lies before it" };
                write!(f, "an unwinder that takes its start for a return address {fate}")
            }
            Spot::Bytes => write!(f, "{said_is} bytes of code; it was {said_was}"),
            Spot::Instructions => write!(f, "{said_is} instructions executed; it was {said_was}"),
            Spot::Stack => write!(f, "{said_is} bytes of stack; it was {said_was}"),
            Spot::WayPast(case) => {
                let goes = |end: &Found| format!("unless {case}, it {}, and calls nothing", goes(end));
                match was {
                    Found::Nothing => write!(f, "{}: a way that was not there", goes(is))?,
                    was => write!(f, "a way is gone: {}", goes(was))?,
                }
                f.write_str(". All else is compared without it")
            }
            Spot::Below | Spot::Crooked | Spot::Astray | Spot::Shadow | Spot::Wide => some(f, is, first),
            Spot::To => match (was, is) {
                (Found::End(_), Found::Value(to)) => write!(f, "comes back now, to {to}"),
                (_, Found::End(End::Never { never })) => write!(f, "does not come back: {never}"),
                _ => write!(f, "goes to {said_is}; it went to {said_was}"),
            },
            Spot::By => write!(f, "leaves by {said_is}; it was {said_was}"),
            Spot::Sp => write!(f, "leaves SP at {said_is}; it was {said_was}"),
            Spot::Trap if is.is() => f.write_str("a trap follows the last branch now"),
            Spot::Trap => f.write_str("no trap follows the last branch now"),
            Spot::Register(_) => {
                let it = self.it("");
                match (was, is) {
                    (Found::Nothing, _) => write!(f, "{it} is lost now: it holds {said_is}"),
                    (_, Found::Nothing) => write!(f, "{it} is as it was at the entry now; it held {said_was}"),
                    _ => write!(f, "{it} holds {said_is}; it held {said_was}"),
                }
            }
            Spot::Flags => write!(f, "flags are {} now", kept(is)),
            Spot::FlagsFollow => {
                write!(f, "flags are what the call stored, {}", if is.is() { "now" } else { "not any more" })
            }
            Spot::Kept(_) => write!(f, "{} {} now", self.names(), kept(is)),
            Spot::LowerHalf(_) => write!(f, "the lower half of {} {} now", self.names(), kept(is)),
            Spot::UpperHalf(_) => write!(f, "the upper half of {} {} now", self.names(), kept(is)),
            Spot::CallerWord(_) => {
                let (it, absent) = (self.it("the caller's word "), "as it was");
                write!(f, "{it} is {}; it was {}", said_is.or(absent), said_was.or(absent))
            }
            Spot::Memory(at) => {
                let absent = "left alone";
                write!(f, "memory: {at} is {}; it was {}", said_is.or(absent), said_was.or(absent))
            }
            Spot::Mispaired => write!(f, "returns elsewhere than behind their call: {said_is}; it was {said_was}"),
            Spot::Beyond => {
                let list = |all| listed(all, ", then ", "nowhere");
                let before = "returns for calls from before the entry";
                write!(f, "{before} go to {}; they went to {}", list(is), list(was))
            }
            Spot::Unreturned => write!(f, "calls without a return: {said_is}; it was {said_was}"),
            Spot::Calls => {
                let list = |all| listed(all, ", ", "nothing");
                write!(f, "calls {}; it called {}", list(is), list(was))
            }
            Spot::Call(call, spot) => self.call(f, *call, spot),
            Spot::UnwindTable if is.is() => f.write_str("there is an unwind table now"),
            Spot::UnwindTable => f.write_str("there is no unwind table now"),
            Spot::Unwind => match (was, is) {
                (_, Found::Unwound(u)) => write!(f, "an interrupt at {} is unwound {}", range(u), found(u)),
                (Found::Unwound(u), _) => {
                    write!(f, "no interrupt is unwound {} any more; at {} it was", found(u), range(u))
                }
                _ => f.write_str("what an interrupt is unwound to changes elsewhere"),
            },
        }
    }
}

impl Difference {
    fn call(&self, f: &mut fmt::Formatter<'_>, which: CallOf, spot: &CallSpot) -> fmt::Result {
        let (is, was) = (Said { found: &self.is, of: self }, Said { found: &self.was, of: self });
        match spot {
            CallSpot::Callee => write!(f, "{which} is of {is}; it was of {was}"),
            CallSpot::By => write!(f, "{which} is {is}; it was {was}"),
            CallSpot::Aligned => {
                write!(f, "at {which} SP is a multiple of {is}, whatever it was at the site; it was one of {was}")
            }
            CallSpot::UsuallyAligned => {
                write!(
                    f,
                    "at {which} SP is a multiple of {is}, where the caller aligns it as C does; it was one of {was}"
                )
            }
            CallSpot::Argument(name) => {
                let before = "what it held before";
                write!(f, "{which} gets {} in {name}; it got {}", is.or(before), was.or(before))
            }
            CallSpot::StackArgument(at) => {
                let nothing = "nothing of the caller's";
                write!(f, "{which} gets {} at [sp+{at}]; it got {}", is.or(nothing), was.or(nothing))
            }
            CallSpot::Vector(_) => {
                let fate = if self.is.is() { "no longer an argument lost" } else { "an argument lost" };
                write!(f, "at {which} {} {fate}", self.names())
            }
            CallSpot::Flag(_) => {
                let fate = if self.is.is() { "no longer set, which C wants clear" } else { "set, which C wants clear" };
                write!(f, "at {which} {} {fate}", self.names())
            }
            CallSpot::Chain => write!(f, "frame pointers at {which} lead to {is}; they led to {was}"),
            CallSpot::FrameBytes => {
                write!(f, "the words of {which} up to the caller's are {is} bytes; they were {was}")
            }
            CallSpot::Moved(l) => match &self.is {
                Found::At(r, words) if words.len() > 1 => {
                    let (words, l, r) = (joined(words, " "), l.of("frame"), r.of("frame"));
                    write!(f, "{words} are from {r} on at {which}; they were from {l} on")
                }
                Found::At(r, words) => {
                    write!(f, "{} is at {} at {which}; it was at {}", joined(words, " "), r.of("frame"), l.of("frame"))
                }
                _ => Ok(()),
            },
            CallSpot::Word(at) => {
                let not = "not the frame's";
                write!(f, "{} at {which} is {}; it was {}", at.of("frame"), is.or(not), was.or(not))
            }
        }
    }

    /// The name of what it is about, or of each.
    fn it(&self, what: &str) -> String {
        match (self.spots.len(), what) {
            (1, _) => format!("{what}{}", self.names()),
            (_, "") => format!("each of {}", self.names()),
            _ => format!("each of {}", what.replace("word ", "words ") + &self.names()),
        }
    }

    fn names(&self) -> String {
        let name = |spot: &Spot| match spot {
            Spot::Register(name)
            | Spot::Kept(name)
            | Spot::LowerHalf(name)
            | Spot::UpperHalf(name)
            | Spot::Call(_, CallSpot::Vector(name) | CallSpot::Flag(name)) => (*name).to_owned(),
            Spot::CallerWord(at) => format!("[stack+{at}]"),
            other => other.to_string(),
        };
        self.spots.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

/// What was found, in a sentence about something.
#[derive(Clone, Copy)]
struct Said<'d> {
    found: &'d Found,
    of: &'d Difference,
}

impl Said<'_> {
    fn or(self, absent: &str) -> String {
        if *self.found == Found::Nothing { absent.to_owned() } else { self.to_string() }
    }
}

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.found {
            Found::Number(n) => write!(f, "{n}"),
            // Each holds another value then: what the call left in itself.
            Found::Value(value) if self.of.spots.len() > 1 => match value.left_by() {
                Some((call, _)) => {
                    let left = if value.is_relied_on() { "returned" } else { "left" };
                    write!(f, "what call {call} {left} in it")
                }
                None => write!(f, "{value}"),
            },
            Found::Value(value) => write!(f, "{value}"),
            Found::By(by) => write!(f, "{by}"),
            Found::Chain(links) => f.write_str(&links.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            // They are no operands of the sentences above.
            Found::Nothing
            | Found::Is(_)
            | Found::Values(_)
            | Found::Names(_)
            | Found::End(_)
            | Found::Unwound(_)
            | Found::At(..) => Ok(()),
        }
    }
}

impl Found {
    fn is(&self) -> bool {
        *self == Found::Is(true)
    }
}

fn kept(is: &Found) -> &'static str {
    if is.is() { "kept" } else { "lost" }
}

/// Whether it has instructions that no trampoline should have.
fn some(f: &mut fmt::Formatter<'_>, is: &Found, spot: &Spot) -> fmt::Result {
    let what = match spot {
        Spot::Below => "use memory below SP, which an interrupt may overwrite",
        Spot::Crooked => "use memory by an SP that the hardware refuses",
        Spot::Astray => "are executed by mistake behind a call that does not return there",
        Spot::Shadow => "move the CPU's shadow stack, which the emulator does not have",
        _ => "may change vector state that the emulator does not have",
    };
    write!(f, "{} {what}", if is.is() { "instructions" } else { "no instructions" })
}

fn landing_pad(found: &Found) -> String {
    match found {
        Found::Names(all) if !all.is_empty() => format!("a landing pad for {}", all.join(" and ")),
        _ => "no landing pad".to_owned(),
    }
}

fn goes(end: &Found) -> String {
    match end {
        Found::End(End::Goes { to, by }) => format!("goes to {to} by {by}"),
        Found::End(End::Never { never }) => format!("does not come back ({never})"),
        _ => String::new(),
    }
}

fn joined(all: &[Value], between: &str) -> String {
    all.iter().map(Value::to_string).collect::<Vec<_>>().join(between)
}

fn listed(all: &Found, between: &str, none: &str) -> String {
    match all {
        Found::Values(all) if !all.is_empty() => joined(all, between),
        _ => none.to_owned(),
    }
}

fn range(u: &Unwound) -> String {
    if u.from == u.to { format!("+{:#x}", u.from) } else { format!("+{:#x} .. +{:#x}", u.from, u.to) }
}

fn found(u: &Unwound) -> String {
    let lost = if u.lost.is_empty() { String::new() } else { format!(", with another {}", u.lost.join(" ")) };
    let (returns, cfa) = match &u.caller {
        Caller::Nothing {} => return "by no entry of the table".to_owned(),
        Caller::Undefined { cfa } => ("undefined".to_owned(), cfa),
        Caller::Found { cfa, returns } => (returns.to_string(), cfa),
    };
    let column = if u.known_column { "" } else { ", which is in a column that unwinders lack" };
    let call = if u.looked_up { ", itself" } else { ", behind a call" };
    format!("to {returns}{call}{column}, with CFA at {cfa}{lost}")
}
