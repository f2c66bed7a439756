//! From relocatable objects to an image at fixed addresses, with its function entries patched; and what else takes
//! reading ELF files: the traceable sites that they list, objects around bare code, faults in objects.
//!
//! It knows no instruction set: what a relocation, a site or a call slot looks like in bytes, it asks
//! [`codegen::arch::patch::Patch`].

mod alternatives;
mod elf;
mod hash;
mod image;
mod image_file;
mod linker;
pub mod object_mutants;
mod options;
mod patching;
pub mod raw;
mod shared;
pub mod sites;

pub use alternatives::{ALTERNATIVES, with_alternatives};
pub use elf::{Input, backend_of};
pub use image::{Access, Image, Mark, PAGE, Section, Segment, SiteEntry, Symbol, SymbolKind, code_in, mark};
pub use linker::{STUBS, examine, link};
pub use options::Options;
pub use shared::relocatable;
