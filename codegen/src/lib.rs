//! From a spec to code: the part of tramptool that knows no instruction set.
//!
//! In running order: a [`Spec`](ask::spec::Spec) (what is asked for) and a [`Target`](profile::target::Target) (an
//! architecture with its options) become a [`Plan`](plan::Plan) (what happens to which slot), which an
//! [`Isa`](listing::isa::Isa) lowers to a [`Listing`](listing::Listing) of its own instructions. From the listing come
//! text ([`out::text`]), bytes and relocations ([`out::assembly`]), unwind tables ([`out::cfi`]) and cost ([`out::cost`]);
//! [`out::obj`] writes an object. The [`contract`] comes from the spec alone, and [`verify`] holds the listing against it.
//!
//! Each folder is a layer: its files use those of their own folder and of the folders before it, and no two files use
//! each other.
//!
//! 1. `words`: types that all other layers use.
//! 2. `ask`: the request: kinds of trampoline, frames, options.
//! 3. `effect`: effects of instructions.
//! 4. `arch`: facts about architectures, as data.
//! 5. `profile`: choices of a tracer, and the architecture resolved under them.
//! 6. `contract`: promises of a trampoline.
//! 7. `plan`: steps of a trampoline, without instructions.
//! 8. `listing`: instructions of a trampoline.
//! 9. `out`: text, objects, unwind tables and costs made from a listing.
//! 10. `verify`: the symbolic checker, listing against contract.
//! 11. `mutate`: faults to inject into a listing.
//! 12. `backend`: all layers behind one trait.

pub mod arch;
pub mod ask;
pub mod backend;
pub mod contract;
pub mod effect;
pub mod listing;
pub mod mutate;
pub mod out;
pub mod plan;
pub mod profile;
pub mod verify;
pub mod words;
