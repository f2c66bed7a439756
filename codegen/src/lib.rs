//! From a spec to code: the part of tramptool that knows no instruction set.
//!
//! In running order: a [`spec::Spec`] (what is asked for) and a [`target::Target`] (an architecture with its options)
//! become a [`plan::Plan`] (what happens to which slot), which an [`isa::Isa`] lowers to a [`listing::Listing`] of its
//! own instructions. From the listing come text ([`text`]), bytes and relocations ([`assembly`]), unwind tables ([`cfi`])
//! and cost ([`cost`]); [`obj`] writes an object. The [`contract`] comes from the spec alone, and [`verify`] holds the
//! listing against it.
//!
//! The modules from below: each uses only those of its own line and of the lines before, and no two use each other.
//!
//! 1. Words: [`error`], [`intern`], [`abi`], [`machine`], [`repeated`], [`reloc`], [`field`], [`program`], [`proto`], [`recorder`], [`step`],
//!    [`shell`].
//! 2. What is asked for: [`live`], [`kind`], [`spec`], [`option`], [`frame`], [`place`].
//! 3. What trampolines and instructions do: [`action`], [`effects`], [`touched`], [`faults`].
//! 4. An architecture, and the profile of a tracer: [`facts`], [`patch`], [`site`], [`profile`], [`harden`], [`target`], [`lsda`].
//! 5. Steps and promise: [`plan`], [`contract`].
//! 6. Instructions: [`listing`], [`names`], [`code`], `pieces`, [`cfi`], [`eh_frame`], [`objtool`].
//! 7. An instruction set at work: [`isa`], `generate`.
//! 8. What a listing becomes: `shape`, [`assembly`], [`obj`], [`template`], [`text`], [`cost`], [`diff`].
//! 9. How it can be wrong: [`verify`], [`pattern`], [`mutate`].
//! 10. All of it behind one trait: [`backend`].

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
pub mod eh_frame;
pub mod error;
pub mod facts;
pub mod faults;
pub mod field;
pub mod frame;
mod generate;
pub mod harden;
pub mod intern;
pub mod isa;
pub mod kind;
pub mod listing;
pub mod live;
pub mod lsda;
pub mod machine;
pub mod mutate;
pub mod names;
pub mod obj;
pub mod objtool;
pub mod option;
pub mod patch;
pub mod pattern;
mod pieces;
pub mod place;
pub mod plan;
pub mod profile;
pub mod program;
pub mod proto;
pub mod recorder;
pub mod reloc;
pub mod repeated;
mod shape;
pub mod shell;
pub mod site;
pub mod spec;
pub mod step;
pub mod target;
pub mod template;
pub mod text;
pub mod touched;
pub mod verify;
