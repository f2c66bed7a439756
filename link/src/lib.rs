//! From relocatable objects to an image at fixed addresses, with its function entries patched; and what else takes
//! reading ELF files: the traceable sites that they list, objects around bare code, faults in objects.
//!
//! It knows no instruction set: what a relocation, a site or a call slot looks like in bytes, it asks
//! [`codegen::patch::Patch`].

mod linker;
pub mod object_mutants;
pub mod raw;
pub mod sites;

pub use linker::{
    Access, Image, Input, Options, Reference, STUBS, Section, Segment, SiteEntry, Symbol, SymbolKind, examine, link,
    machine, relocatable,
};
