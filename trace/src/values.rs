//! Arguments and results of calls.

use std::fmt;

use crate::calls::Call;
use crate::file::{Kind, Number, Parameter};
use crate::recording::Recording;

/// A value of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number with a sign.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// An address, or a word of which nothing is known.
    Pointer(u64),
    /// A truth value.
    Boolean(bool),
}

impl Value {
    /// What a number in a word is.
    fn of(word: u64, number: Option<Number>) -> Value {
        let Some(Number { bytes, kind }) = number else { return Value::Pointer(word) };
        let above = 64 - 8 * u32::from(bytes.clamp(1, 8));
        let low = word << above >> above;
        match kind {
            Kind::Signed => Value::Signed((word << above).cast_signed() >> above),
            Kind::Unsigned => Value::Unsigned(low),
            Kind::Pointer => Value::Pointer(low),
            Kind::Boolean => Value::Boolean(low & 0xff != 0),
        }
    }

    /// Append it, little-endian, in as many bytes as its number takes, and zeros up to a multiple of `align`.
    fn append(self, number: Number, align: usize, bytes: &mut Vec<u8>) {
        let word = match self {
            Value::Signed(value) => value.cast_unsigned(),
            Value::Unsigned(value) | Value::Pointer(value) => value,
            Value::Boolean(value) => value.into(),
        };
        bytes.extend(word.to_le_bytes().into_iter().take(width(number)));
        bytes.resize(bytes.len().next_multiple_of(align), 0);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Signed(value) => write!(f, "{value}"),
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Pointer(value) => write!(f, "{value:#x}"),
            Value::Boolean(value) => write!(f, "{value}"),
        }
    }
}

/// An argument of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// The parameter's name, if it is known.
    pub name: Option<String>,
    /// The argument's value, if it is recorded.
    pub value: Option<Value>,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        match self.value {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "?"),
        }
    }
}

/// The arguments of a call, in their order. Where nothing is known of the function's parameters, they are the words that are recorded.
pub fn arguments<R>(recording: &Recording<R>, call: &Call) -> Vec<Argument> {
    let parameters = recording.function(call.function).map_or(&[][..], |traced| &traced.function.parameters);
    if parameters.is_empty() {
        let word = |word: &u64| Argument { name: None, value: Some(Value::of(*word, None)) };
        return call.words.iter().map(word).collect();
    }
    let argument = |parameter: &Parameter| {
        let word = parameter.word.and_then(|(n, number)| Some((*call.words.get(usize::from(n))?, number)));
        let name = Some(parameter.name.clone()).filter(|name| !name.is_empty());
        Argument { name, value: word.map(|(word, number)| Value::of(word, Some(number))) }
    };
    parameters.iter().map(argument).collect()
}

/// The result of a call, if it is recorded.
pub fn result<R>(recording: &Recording<R>, call: &Call) -> Option<Value> {
    let number = recording.function(call.function).and_then(|traced| traced.function.result);
    call.result.map(|word| Value::of(word, number))
}

/// How many bytes a number takes where only 1, 2, 4 and 8 will do.
pub fn width(number: Number) -> usize {
    usize::from(number.bytes.clamp(1, 8)).next_power_of_two()
}

/// The arguments of a call that are recorded, one after the other, each at a multiple of `align`. None if there are none, or if some
/// are recorded of other calls of the function alone.
pub fn argument_bytes<R>(recording: &Recording<R>, call: &Call, align: usize) -> Option<Vec<u8>> {
    let parameters = &recording.function(call.function)?.function.parameters;
    let mut bytes = Vec::new();
    for (parameter, argument) in parameters.iter().zip(arguments(recording, call)) {
        if let Some((_, number)) = parameter.word {
            argument.value?.append(number, align, &mut bytes);
        }
    }
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

/// The result of a call likewise.
pub fn result_bytes<R>(recording: &Recording<R>, call: &Call, align: usize) -> Option<Vec<u8>> {
    let number = recording.function(call.function)?.function.result?;
    let mut bytes = Vec::new();
    result(recording, call)?.append(number, align, &mut bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_a_number_is_left_out() {
        let shown = |bytes, kind| Value::of(0xffff_fe01_8000_00fe, Some(Number { bytes, kind })).to_string();
        assert_eq!([1, 4, 8].map(|n| shown(n, Kind::Signed)), ["-2", "-2147483394", "-2192580804354"]);
        assert_eq!([1, 4].map(|n| shown(n, Kind::Unsigned)), ["254", "2147483902"]);
        assert_eq!((&*shown(1, Kind::Boolean), &*shown(2, Kind::Pointer)), ("true", "0xfe"));
        // A file may say anything.
        assert_eq!([shown(0, Kind::Unsigned), shown(255, Kind::Pointer)], ["254", "0xfffffe01800000fe"]);
        assert_eq!(Value::of(7, None).to_string(), "0x7");
    }
}
