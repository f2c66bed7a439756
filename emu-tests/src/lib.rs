//! Runs linked trampolines in Unicorn, against functions that a real compiler produced and patched as the kernel
//! patches them, with a callback that overwrites all it may.
//!
//! This crate judges: it sees an object and a [`codegen::contract::Contract`], links, loads and runs. It never calls
//! the generator. Nothing here asks which architecture it runs: that is data in [`codegen::arch::machine::Machine`].
//!
//! Each folder is a layer: its files use those of their own folder and of the folders before it, and no two files use
//! each other.
//!
//! 1. `engine`: the emulated machine.
//! 2. `report`: verdicts, and the places that they are about.
//! 3. `run`: which runs there are.
//! 4. `marks`: what objects promise of their protection, held against their code.
//! 5. `judge`: runs, held against contracts.
//! 6. `contract`: contracts in files.
//! 7. `observe`: what a trampoline does, learnt without a contract.
//! 8. `compose`: users of the runtime in all combinations.
//! 9. `probe`: probes by their definitions.
//! 10. `audit`: functions of others, without a contract.

mod audit;
mod compose;
mod contract;
mod engine;
mod judge;
mod marks;
mod observe;
mod probe;
mod report;
mod run;

pub use audit::{
    Asked, Audited, Boundary, Claim, Confidence, Judged, Kind as ClaimKind, Marked, Only, Tier, audit, siblings,
};
pub use compose::{
    AFTER_RECORDER, Composed, DIRECT_HANDLER, FUNCTIONS_UNDER_TRACE, Functions, PAIRED_HANDLERS, RECORDER_ARGS,
    direct_names, paired_names, recorder_names,
};
pub use contract::config::{Condition, Configuration};
pub use contract::draft::{Draft, draft};
pub use contract::file::contract_schema;
pub use contract::foreign::{Foreign, contract_profile, suites as foreign_suites};
pub use contract::text::{Head, contract_text};
pub use contract::written::{
    Callee, CopiedCalls, WrittenCalls, WrittenProgram, copied_calls, first_size, first_target, written_calls,
};
pub use engine::disasm::disassemble;
pub use engine::emulator::Emulator;
pub use engine::interface::{Access, Accesses, Cpu, EVERYWHERE, Ended, Engine, Holds, Trap, Why};
pub use engine::load::engine;
pub use engine::unicorn::{end_where_it_aborts, engine_version};
pub use engine::unwind::described;
pub use judge::check::{Progress, check, left, situations};
pub use judge::cost::{Spent, spent};
pub use judge::fixture::{CALLBACK, EXIT_HANDLER, Fixture, Function, functions};
pub use judge::measure::{ScenarioCost, measure};
pub use judge::protocol::{Astray, Sites, judge_sites};
pub use judge::suite::{BY_THE_PROFILE, Deviation, Missing, Poker, Suite};
pub use judge::views::views;
pub use marks::{Mark, MarkVerdict, MarkedObject, MarkedUnit, MarksReport, Reason as MarkReason, marks};
pub use observe::{
    At, Call, Case, Difference, End, Found, Leave, Line as ObservedLine, Observed, Offset, Severity, Spot, Store,
    Unwound, Value, Vectors, Way, differences, is_id, observable, observe, roles_of,
};
pub use probe::{Form as ProbeForm, probe};
pub use report::place::places;
pub use report::reason::Reason;
pub use report::view::{Line, Path, Track, View, Word};
pub use report::{Clause, Failure, Of, Promise, RegisterFate, Report, Row, Summary, Survival, Undecided, Verdict};
pub use run::case::{Distance, Handler};
pub use run::filter::Filter;
pub use run::raw::{Dump, dumped};
pub use run::replay::{Chosen, Replay, Source};
pub use run::situation::Situation;
