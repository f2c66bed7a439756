//! Attaches to functions of the running process: handlers around them, or other functions in their place, while all threads run.

mod buffers;
#[cfg(feature = "c")]
mod c;
mod calls;
mod code;
mod error;
mod function;
mod live;
mod machine;
mod memory;
mod objects;
mod patch;
mod record;
pub mod retour;
mod signals;
mod table;
mod threads;
mod unwind;

pub use buffers::{Event, Record};
pub use calls::{Entry, Exit};
pub use error::{Error, Result};
pub use function::{Class, Function};
pub use live::{Batch, Hook, Live, Policy};
#[doc(hidden)]
pub use patch::LeftOut;
pub use patch::Notes;
pub use record::Recorder;

#[cfg(doctest)]
#[doc = include_str!("../../docs/live.md")]
struct Book;
