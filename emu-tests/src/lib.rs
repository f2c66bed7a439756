//! Runs linked trampolines in Unicorn, against functions that a real compiler produced and patched as the kernel
//! patches them, with a callback that overwrites all it may.
//!
//! This crate judges: it sees an object and a [`codegen::contract::Contract`], links, loads and runs. It never calls
//! the generator. Nothing here asks which architecture it runs: that is data in [`codegen::machine::Machine`].

mod call_sites;
mod case;
mod cases;
mod check;
mod compare;
mod composed;
mod contract_file;
mod contract_places;
mod contract_read;
mod contract_stated;
mod contract_text;
mod copy;
mod cpu;
mod disasm;
mod draft;
mod edge;
mod explain;
mod filter;
mod fixture;
mod flow;
mod foreign;
mod hooks;
mod inside;
mod kept;
mod lent;
mod linked;
mod lost;
mod marks;
mod measure;
mod observe;
mod place;
mod probe;
mod protocol;
mod raw;
mod replay;
mod report;
mod retire;
mod rig;
mod rng;
mod signals;
mod site;
mod situation;
mod size;
mod spent;
mod suite;
mod tally;
mod thread;
mod thrown;
mod trace;
mod unwind;
mod variables;
mod verdict;
mod view;

pub use case::{Distance, Handler};
pub use check::{Progress, check, situations};
pub use composed::{
    AFTER_RECORDER, Composed, DIRECT_HANDLER, FUNCTIONS_UNDER_TRACE, Functions, PAIRED_HANDLERS, RECORDER_ARGS,
    direct_names, paired_names, recorder_names,
};
pub use contract_file::contract_schema;
pub use contract_text::{Head, contract_text};
pub use cpu::engine_version;
pub use disasm::disassemble;
pub use draft::{Draft, draft};
pub use filter::Filter;
pub use fixture::{CALLBACK, EXIT_HANDLER, Fixture, Function, functions};
pub use foreign::{Foreign, contract_profile, suites as foreign_suites};
pub use inside::views;
pub use measure::{ScenarioCost, measure};
pub use observe::{
    Call, Difference, Leave, Line as ObservedLine, Observed, Severity, Store, Unwound, Way, differences, observable,
    observe, roles_of,
};
pub use place::places;
pub use probe::{Form as ProbeForm, probe};
pub use protocol::{Astray, Sites, judge_sites};
pub use raw::{Dump, dumped};
pub use replay::{Chosen, Replay, Source};
pub use report::{Clause, Failure, Of, Promise, RegisterFate, Report, Row, Summary, Survival, Undecided, Verdict};
pub use situation::Situation;
pub use spent::{Spent, spent};
pub use suite::{BY_THE_PROFILE, Deviation, Poker, Suite};
pub use unwind::described;
pub use view::{Line, Path, Track, View, Word};
