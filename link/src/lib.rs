//! From relocatable objects to an image at fixed addresses, with its function entries patched; and other work on ELF files:
//! listing traceable sites, making objects from bare code, injecting faults into objects, reading archives.
//!
//! It knows no instruction set: [`codegen::arch::patch::Patch`] encodes relocations, sites and call slots.

mod alternatives;
pub mod archive;
mod elf;
mod hash;
mod image;
mod image_file;
mod linker;
mod marks;
pub mod object_mutants;
mod options;
pub mod origin;
mod patching;
pub mod raw;
mod shared;
pub mod sites;

pub use alternatives::{ALTERNATIVES, with_alternatives};
pub use elf::{Input, backend_of};
pub use image::{Access, Image, PAGE, Section, Segment, SiteEntry, Symbol, SymbolKind};
pub use linker::{STUBS, examine, glance, link};
pub use marks::{Mark, Step, code_in, mark};
pub use options::Options;
pub use shared::{Runnable, Shared, is_executable, relocatable, runnable};
