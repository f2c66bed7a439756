//! The places at which a contract's clause does not hold.

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a place, or a list of places")]
pub(crate) enum Places {
    One(String),
    Each(Vec<String>),
}

impl Places {
    pub(crate) fn each(&self) -> &[String] {
        match self {
            Places::One(place) => std::slice::from_ref(place),
            Places::Each(places) => places,
        }
    }
}
