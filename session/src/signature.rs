//! The words of a function's arguments and result that are recorded, and how to read them.

use codegen::ask::place::{Piece, Place, Placement, Returned};
use codegen::profile::target::Target;
use codegen::words::abi::Reg;
use codegen::words::proto::{Prototype, Type};
use codegen::words::recorder::Recorder;

use crate::debug_info::{Declared, Number, Value};

/// Why a value is not recorded, for people.
type Why = &'static str;

const STACK: Why = "on the stack, or in several registers";
const BEHIND: Why = "behind the last register that a record has room for";
const UNKNOWN: Why = "behind something that is passed in an unknown way";
const PLACES: Why = "of a type whose place is not known";
const RESULT: Why = "its result may be in memory, whose address would come first";
const NOTHING: Why = "it returns nothing";

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The parameter's name; empty if it has none.
    pub name: String,
    /// The word of an entry's record that has it, or the reason why none does.
    pub word: Result<(u8, Number), Why>,
}

/// The recorded arguments and result of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The parameters, or why nothing is known of them.
    pub parameters: Result<Vec<Parameter>, Why>,
    /// The result, or why it is not recorded.
    pub result: Result<Number, Why>,
}

impl Signature {
    /// A function of which no argument and no result is recorded.
    pub const fn none(why: Why) -> Signature {
        Signature { parameters: Err(why), result: Err(why) }
    }

    /// That of a function that is called as the target's psABI says.
    pub fn new(declared: &Declared, target: &Target) -> Signature {
        let Declared { parameters, result } = declared;
        let known: Vec<&Value> = parameters.iter().map_while(|(_, value)| value.as_ref().ok()).collect();
        let passed = match result {
            None => Ok(None),
            Some(value) => value.as_ref().map(|value| Some(value.passed.clone())).map_err(|_| RESULT),
        };
        // Where the result is in memory, an argument says where.
        let placed = passed.map(|result| Signature::place(result, &known, target));
        let regs = target.facts.abi.args;
        let parameter = |(n, (name, value)): (usize, &(String, Result<Value, Why>))| {
            let pieces = placed.as_ref().map_err(|why| *why).and_then(|place| place.as_ref().ok_or(PLACES));
            let pieces = pieces.and_then(|p| p.args.get(n).ok_or(UNKNOWN));
            let word = value.as_ref().map_err(|why| *why).and_then(|value| {
                let number = value.number?;
                Ok((Signature::word(pieces?, regs)?, number))
            });
            Parameter { name: name.clone(), word }
        };
        let returned = |number: Number| match &placed {
            Ok(Some(Placement { returned: Returned::Registers(pieces), .. })) => {
                Signature::alone(pieces, target.facts.abi.rets).filter(|n| *n == 0).map(|_| number).ok_or(STACK)
            }
            _ => Err(PLACES),
        };
        let result = match result {
            None => Err(NOTHING),
            Some(value) => value.as_ref().map_err(|why| *why).and_then(|v| v.number).and_then(returned),
        };
        Signature { parameters: Ok(parameters.iter().enumerate().map(parameter).collect()), result }
    }

    /// Where as many of the first arguments are as the psABI's rules here place: what comes later does not move them.
    fn place(result: Option<Type>, known: &[&Value], target: &Target) -> Option<Placement> {
        (0..=known.len()).rev().find_map(|count| {
            let args = known.iter().take(count).map(|value| value.passed.clone()).collect();
            target.place(&Prototype::of("function", result.clone(), args)).ok()
        })
    }

    /// The word of a record that has an argument.
    fn word(pieces: &[Piece], regs: &[Reg]) -> Result<u8, Why> {
        let word = Signature::alone(pieces, regs).ok_or(STACK)?;
        u8::try_from(word).ok().filter(|n| *n < Recorder::MOST_ARGS).ok_or(BEHIND)
    }

    /// The number of the register that has all of a value.
    fn alone(pieces: &[Piece], regs: &[Reg]) -> Option<usize> {
        match pieces {
            [Piece { place: Place::Reg(reg), offset: 0, .. }] => regs.iter().position(|other| other == reg),
            _ => None,
        }
    }

    /// The number of argument registers in a record of the entry.
    pub fn words(&self) -> u8 {
        let all = self.parameters.iter().flatten().filter_map(|parameter| parameter.word.ok());
        all.map(|(word, _)| word + 1).max().unwrap_or_default()
    }
}
