//! Values of options that have names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use codegen::words::error::Error;

/// The parser of an option whose values have names: each with what help says of it, and what it stands for.
pub fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(all.map(|(name, help, _)| PossibleValue::new(name).help(help)));
    names.try_map(move |given| {
        let found = all.iter().find(|(name, ..)| *name == given);
        found.map(|(.., value)| *value).ok_or_else(|| Error::unknown("value", &given, all.map(|(name, ..)| name)))
    })
}
