//! A recording in the formats of other tools.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC, or whatever [`Recording::unit`](crate::recording::Recording::unit) is, in their
//! place. A call that was left, or was running at the end, ends where [`Call::end`](crate::calls::Call::end) is.

mod chrome;
mod ctf;
mod firefox;
mod folded;
mod html;
mod perfetto;
mod uftrace;

use std::io::Write;

pub use chrome::chrome;
pub use ctf::{Version, ctf};
pub use firefox::firefox;
pub use folded::folded;
pub use html::html;
pub use perfetto::perfetto;
pub use uftrace::uftrace;

/// The destination of a format with several files.
pub trait Files {
    /// A new file of this name, which has no slash.
    ///
    /// # Errors
    /// The file cannot be created.
    fn create(&mut self, name: &str) -> std::io::Result<Box<dyn Write>>;
}
