//! Rows of results, for reading or as JSON.

use serde::Serialize;

/// One measured thing and what it is compared with.
#[derive(Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The measured value, in the unit that `name` states.
    pub value: f64,
    /// What it is compared with.
    pub to: String,
    /// The value of `to`, in the same unit.
    pub reference: f64,
    /// Reference over value: how many times better.
    pub ratio: f64,
    /// Between which the middle half of the rounds has the ratio, where rounds are compared one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub middle: Option<[f64; 2]>,
    /// What the ratio must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demanded: Option<Demand>,
}

/// What a ratio must be.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demand {
    /// This, or more.
    AtLeast(f64),
    /// This, or less.
    #[cfg_attr(not(feature = "check"), allow(dead_code, reason = "only the checker's ratios must be low"))]
    AtMost(f64),
}

impl Row {
    /// A row.
    pub fn new(name: impl Into<String>, value: f64, to: impl Into<String>, reference: f64) -> Row {
        let ratio = reference / value;
        Row { name: name.into(), value, to: to.into(), reference, ratio, middle: None, demanded: None }
    }

    /// The same, with what is demanded of it.
    pub fn demanded(self, demand: Demand) -> Row {
        Row { demanded: Some(demand), ..self }
    }

    /// The same, with the ratio as rounds had it: a quarter, a half and three quarters of them are below.
    pub fn rounds(self, [low, ratio, high]: [f64; 3]) -> Row {
        Row { ratio, middle: Some([low, high]), ..self }
    }

    fn told(&self) -> String {
        let middle = self.middle.map_or(String::new(), |[low, high]| format!(", middle half {low:.2} to {high:.2}"));
        let (word, limit, met) = match self.demanded {
            None => return middle,
            Some(Demand::AtLeast(limit)) => ("at least", limit, self.ratio >= limit),
            Some(Demand::AtMost(limit)) => ("at most", limit, self.ratio <= limit),
        };
        format!("{middle}; demanded {word} {limit:.2}: {}", if met { "met" } else { "missed" })
    }
}

/// Print rows.
pub fn print(rows: &[Row], json: bool) -> Result<(), String> {
    if json {
        let text = serde_json::to_string_pretty(rows).map_err(|e| e.to_string())?;
        println!("{text}");
        return Ok(());
    }
    for r in rows {
        let Row { name, value, to, reference, ratio, .. } = r;
        println!("{name:<46} {value:>12.3}   {to:<34} {reference:>12.3}   ratio {ratio:>8.2}{}", r.told());
    }
    Ok(())
}
