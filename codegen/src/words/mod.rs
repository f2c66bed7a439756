//! The basic types: registers, terms, steps, programs, records, prototypes, errors, and small collections.

pub mod abi;
pub mod error;
pub mod field;
pub mod input;
pub mod intern;
pub mod program;
pub mod proto;
pub mod recorder;
pub mod reloc;
pub mod shell;
pub mod shown;
pub mod step;
pub mod term;
