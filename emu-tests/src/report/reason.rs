//! Why a clause was not checked, or does not hold everywhere: ids, which stay when the sentences get better words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One row a reason: its id in reports, and its sentence.
macro_rules! reasons {
    ($($reason:ident $id:literal, $about:literal;)*) => {
        /// Why a clause was not checked, or deviates.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
        #[allow(missing_docs, reason = "each variant's meaning is in `about`")]
        pub enum Reason {
            $(#[serde(rename = $id)] $reason,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: [Reason; [$($id),*].len()] = [$(Reason::$reason),*];

            /// The name in reports.
            pub fn id(self) -> &'static str {
                match self {
                    $(Reason::$reason => $id,)*
                }
            }

            /// The sentence. A row's own one may say more, such as which way was not taken.
            pub fn about(self) -> &'static str {
                match self {
                    $(Reason::$reason => $about,)*
                }
            }
        }
    };
}

reasons! {
    AsCallback "as-callback", "runs as the callback of the entry trampolines, and is judged with them";
    NoSite "no-site", "no site goes to it";
    AfterFunction "after-function", "runs after the function: no arguments are live";
    BeforeFunction "before-function", "runs before the function: no results yet";
    ScratchGoes "scratch-goes", "its contract lets scratch registers go";
    Undescribed "undescribed", "neither .eh_frame nor ORC describes it, and its contract has no frame records";
    Incomparable "incomparable", "what its unwind table says cannot be compared, and its contract has no frame records";
    NoTable "no-unwind-table", "the object has no unwind table, of which its contract speaks";
    NoPads "no-pads", "its contract asks for no landing pads and no type";
    NoUnpairedReturn "no-unpaired-return", "no unpaired return, so no speculation target to check";
    CallsNothing "calls-nothing", "calls nothing";
    NoExceptions "no-exceptions", "it has no landing pad for exceptions";
    RecordsNothing "records-nothing", "it records nothing";
    NotInterrupted "not-interrupted", "no run that holds was interrupted";
    NotEnforced "not-enforced", "the engine enforces nothing of it; see --enforce";
    NoMarks "no-marks", "no object has a note of protection, or it was not decided; see check --marks";
    NotGuarded "not-guarded", "its contract does not say that it guards its return address";
    GuardOpen "guard-open", "nobody knows, without a run, whether its return address is guarded";
    DecidesNothing "decides-nothing", "its callee decides nothing";
    EngineLacks "engine-lacks", "its instructions may change vector state that the engine lacks";
    WideUsed "wide-used", "handlers may use vectors, or no run was at their full width";
    WayNotTaken "way-not-taken", "not decided on a way out";
    NotInCases "not-in-cases", "nothing of this kind in the cases run";
    NotLookedAt "not-looked-at", "its instructions were not looked at";
    CutOff "cut-off", "runs were left out: too many did not come back";
    LeftOut "left-out", "runs were left out, because a trampoline that leads here fails";
    FirstFailure "first-failure", "ended with the first failure";
    OtherImage "other-image", "counted where the trampolines are in the same image";
    NoCase "no-case", "none of the cases that were run comes here";
    NotAllCases "not-all-cases", "not all cases were run";
    VectorsLost "vectors-lost", "vector registers hold if handlers use general registers only";
    VectorResultsLost "vector-results-lost", "vector results hold if handlers use general registers only";
    NotDefined "not-defined", "none of the objects defines it";
    CannotBeJudged "cannot-be-judged", "cannot be judged";
    Stated "stated", "it deviates at places that the contract names";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_reasons_have_the_same_id_or_sentence() {
        for (i, one) in Reason::ALL.iter().enumerate() {
            for other in &Reason::ALL[i + 1..] {
                assert!(one.id() != other.id() && one.about() != other.about(), "{} {}", one.id(), other.id());
            }
        }
    }
}
