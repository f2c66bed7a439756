//! One thing that is different, and whom it concerns.

use schemars::JsonSchema;
use serde::Serialize;

use super::case::Case;
use super::observed::{By, End, Link, Unwound};
use super::spot::Spot;
use super::value::{Offset, Value};

/// Whom a difference concerns; the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The code that is traced, and its callers.
    BreaksTracedCode,
    /// Functions that are called.
    BreaksHandlers,
    /// Unwinders, profilers, debuggers.
    BreaksTools,
    /// Nobody: it takes longer, or more room.
    CostOnly,
    /// Nobody but who reads frames by number.
    LayoutOnly,
}

impl Severity {
    /// All, the worst first.
    pub const ALL: [Severity; 5] = [
        Severity::BreaksTracedCode,
        Severity::BreaksHandlers,
        Severity::BreaksTools,
        Severity::CostOnly,
        Severity::LayoutOnly,
    ];

    /// As reports have it.
    pub fn words(self) -> &'static str {
        match self {
            Severity::BreaksTracedCode => "breaks traced code",
            Severity::BreaksHandlers => "breaks handlers",
            Severity::BreaksTools => "breaks tools",
            Severity::CostOnly => "cost only",
            Severity::LayoutOnly => "layout only",
        }
    }

    /// Whom it concerns, where it is for the better.
    pub fn concerns(self) -> &'static str {
        match self {
            Severity::BreaksTracedCode => "better for traced code",
            Severity::BreaksHandlers => "better for handlers",
            Severity::BreaksTools => "better for tools",
            Severity::CostOnly => "costs less",
            Severity::LayoutOnly => "layout only",
        }
    }

    /// Is it a difference of behaviour?
    pub fn is_behaviour(self) -> bool {
        !matches!(self, Severity::CostOnly | Severity::LayoutOnly)
    }
}

/// One thing that is different.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What it is about: several things, where all are different alike.
    pub spots: Vec<Spot>,
    /// Whom it concerns.
    pub severity: Severity,
    /// The right one does it better: what it keeps or promises is more.
    pub better: bool,
    /// The cases in which it shows; none if it is no matter of a run.
    pub when: Vec<Case>,
    /// What the left one does at the first spot.
    pub was: Found,
    /// What the right one does there.
    pub is: Found,
    /// The offset of the left one's instruction, where there is one.
    pub left: Option<u64>,
    /// The offset of the right one's instruction.
    pub right: Option<u64>,
}

/// A spot of a difference, by its id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct At {
    /// The id, which stays the same from one run of the tool to the next: `leave.rax`, `call1.frame+0x78`.
    pub id: String,
    /// What the left one does there, in the terms of contracts; null where nothing of its own is there.
    pub was: Found,
    /// What the right one does there.
    pub is: Found,
}

/// What was found at a spot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Found {
    /// Nothing of its own: it is as it was at the entry, or not there.
    Nothing,
    /// It is so, or not.
    Is(bool),
    /// So many.
    Number(u64),
    /// A value.
    Value(Value),
    /// Several, in order.
    Values(Vec<Value>),
    /// Words of a list, such as what a landing pad lets land.
    Names(Vec<&'static str>),
    /// A branch.
    By(By),
    /// What frame pointers lead to.
    Chain(Vec<Link>),
    /// How a way ends.
    End(End),
    /// What an unwinder finds, from one offset to another.
    Unwound(Unwound),
    /// Words of a frame, the first of them at this offset.
    At(Offset, Vec<Value>),
}

impl Found {
    /// The same where the lowest bit of what was stored is set: that is for what tests it.
    pub(super) fn without_the_bit(&self) -> Found {
        let plain = |value: &Value| value.without_the_bit().into_owned();
        match self {
            Found::Value(value) => Found::Value(plain(value)),
            Found::Values(all) => Found::Values(all.iter().map(plain).collect()),
            other => other.clone(),
        }
    }

    /// The call that left in this register what the register holds, and whether it is a result: that is no other thing for
    /// each register.
    pub(super) fn left_in(&self, name: &str) -> Option<(u16, bool)> {
        let Found::Value(value) = self else { return None };
        let (call, reg) = value.left_by()?;
        (reg == name).then_some((call, value.is_relied_on()))
    }

    /// The same at another spot, where this is what is at the first.
    fn at(&self, first: &Spot, spot: &Spot) -> Found {
        match (self, first, spot) {
            (Found::Value(value), Spot::Register(first), Spot::Register(name)) if self.left_in(first).is_some() => {
                Found::Value(value.left_in(name).unwrap_or_else(|| value.clone()))
            }
            _ => self.clone(),
        }
    }
}

impl Difference {
    /// What names it from one run of the tool to the next: the spots, such as `leave.rax`, `call1.frame+0x78`.
    pub fn ids(&self) -> Vec<String> {
        self.spots.iter().map(Spot::to_string).collect()
    }

    /// Each spot, with what is there.
    pub fn at(&self) -> Vec<At> {
        let Some(first) = self.spots.first() else { return Vec::new() };
        let at = |spot: &Spot| At { id: spot.to_string(), was: self.was.at(first, spot), is: self.is.at(first, spot) };
        self.spots.iter().map(at).collect()
    }

    /// Leave out all spots but those that are wanted.
    pub fn retain(&mut self, mut wanted: impl FnMut(&At) -> bool) {
        let all = self.at();
        let mut kept = std::mem::take(&mut self.spots).into_iter().zip(all).filter(|(_, at)| wanted(at)).peekable();
        if let Some((_, first)) = kept.peek() {
            (self.was, self.is) = (first.was.clone(), first.is.clone());
        }
        self.spots = kept.map(|(spot, _)| spot).collect();
    }
}

/// A difference as programs see it.
#[derive(Serialize, JsonSchema)]
#[serde(rename = "Difference")]
struct Told<'d> {
    /// What it is about: several things, where all are different alike.
    at: Vec<At>,
    /// Whom it concerns.
    severity: Severity,
    /// The right one does it better: what it keeps or promises is more.
    better: bool,
    /// The cases in which it shows; none if it is no matter of a run.
    when: &'d [Case],
    /// The offset of the left one's instruction, where there is one.
    left: Option<u64>,
    /// The offset of the right one's instruction.
    right: Option<u64>,
}

impl Serialize for Difference {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Difference { severity, better, left, right, .. } = *self;
        Told { at: self.at(), severity, better, when: &self.when, left, right }.serialize(to)
    }
}

impl JsonSchema for Difference {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Told::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Told::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use codegen::words::term::Term;

    use super::*;

    #[test]
    fn each_register_has_what_is_in_itself() {
        let abi = &arch::BACKENDS[0].facts().abi;
        let [one, other] = [abi.args[0], abi.args[1]].map(|reg| abi.name(reg));
        let value = |text: &str| Found::Value(Value::new(Term::parse(text, abi).unwrap(), abi));
        let left = |name: &str| value(&format!("call1.{name}"));
        let mut all = Difference {
            spots: vec![Spot::Register(one), Spot::Register(other)],
            severity: Severity::BreaksTracedCode,
            better: false,
            when: Vec::new(),
            was: Found::Nothing,
            is: left(one),
            left: None,
            right: None,
        };
        let told: Vec<Found> = all.at().into_iter().map(|at| at.is).collect();
        assert_eq!(told, [left(one), left(other)]);
        all.retain(|at| at.id != format!("leave.{one}"));
        assert_eq!((all.ids(), &all.is), (vec![format!("leave.{other}")], &left(other)));
        // What is no register's own is the same everywhere.
        let same =
            Difference { spots: vec![Spot::Register(one), Spot::Register(other)], is: value("call1.stored"), ..all };
        assert!(same.at().iter().all(|at| at.is == value("call1.stored")));
    }
}
