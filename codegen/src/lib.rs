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
//! 1. `words`: what all others speak of.
//! 2. `ask`: what is asked for.
//! 3. `effect`: what instructions do.
//! 4. `arch`: what an architecture is.
//! 5. `profile`: what a tracer decides, and an architecture under it.
//! 6. `contract`: what a trampoline promises.
//! 7. `plan`: what it does, step by step.
//! 8. `listing`: its instructions.
//! 9. `out`: what a listing becomes.
//! 10. `verify`: whether it holds its promise.
//! 11. `mutate`: how it can be wrong.
//! 12. `backend`: all of it behind one trait.

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
