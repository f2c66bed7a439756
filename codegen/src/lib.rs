//! From a spec to code: the part of tramptool that knows no instruction set.
//!
//! In running order: a [`spec::Spec`] (what is asked for) and a [`target::Target`] (an architecture with its options)
//! become a [`plan::Plan`] (what happens to which slot), which an [`isa::Isa`] lowers to a [`listing::Listing`] of its
//! own instructions. From the listing come text ([`text`]), bytes and relocations ([`code`]), unwind tables ([`cfi`])
//! and cost ([`cost`]); [`obj`] writes an object. The [`contract`] comes from the spec alone.

pub mod abi;
pub mod action;
pub mod assembly;
pub mod backend;
pub mod cfi;
pub mod code;
pub mod contract;
pub mod cost;
pub mod diff;
pub mod effects;
pub mod error;
pub mod facts;
pub mod faults;
pub mod field;
pub mod form;
pub mod frame;
mod generate;
pub mod intern;
pub mod isa;
pub mod listing;
pub mod live;
pub mod machine;
pub mod mutate;
pub mod names;
pub mod obj;
pub mod objtool;
pub mod option;
pub mod patch;
pub mod place;
pub mod plan;
pub mod profile;
pub mod proto;
pub mod reloc;
pub mod site;
pub mod spec;
pub mod step;
pub mod target;
pub mod text;
pub mod touched;
