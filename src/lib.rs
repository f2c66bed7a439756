//! What the program `tramptool` does, apart from its command line. Its tests use it too; the library for others is the
//! crate `tramptool`.

#[cfg(feature = "judge")]
pub mod accepted;
#[cfg(feature = "judge")]
pub mod aligned;
#[cfg(feature = "judge")]
pub mod contracts;
#[cfg(feature = "judge")]
pub mod explain;
pub mod kernel;
#[cfg(feature = "judge")]
pub mod minimise;
#[cfg(feature = "judge")]
pub mod mutate;
pub mod printed;
#[cfg(feature = "judge")]
pub mod report;
#[cfg(feature = "judge")]
pub mod review;
#[cfg(feature = "judge")]
pub mod running;
#[cfg(feature = "judge")]
pub mod spending;

#[cfg(feature = "judge")]
pub use tramptool::internal::suite;
pub use tramptool::internal::{
    BACKENDS, asked, backend, backend_of, convention, default_target, handler, profile, request, settings,
};

/// What the README and the book say of the library compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/library.md")]
pub struct Pages;
