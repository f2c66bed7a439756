//! The destination of records.

use std::io;
use std::process::ExitStatus;

use crate::forms::How;
use crate::maps::Mapping;
use crate::objects::Numbered;
use crate::pool::Owner;
use crate::protocol::Moment;

/// A process that has begun, or that a fork has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// The process's number.
    pub pid: u32,
    /// The parent's number.
    pub parent: u32,
    /// Its program; empty for the child of a fork, which has its parent's.
    pub exe: String,
    /// When.
    pub at: Moment,
}

/// Takes what is recorded, in the order in which it becomes known.
pub trait Sink: Send {
    /// A process has begun.
    ///
    /// # Errors
    /// It cannot be written.
    fn process(&mut self, begun: &Begun) -> io::Result<()>;

    /// An object has numbers from now on, and its functions are recorded like this.
    ///
    /// # Errors
    /// It cannot be written.
    fn object(&mut self, object: &Numbered, how: How) -> io::Result<()>;

    /// A process has loaded an object, at this base: these lines of its maps.
    ///
    /// # Errors
    /// It cannot be written.
    fn loaded(&mut self, pid: u32, object: &Numbered, base: u64, maps: &[Mapping]) -> io::Result<()>;

    /// What a thread has recorded, in the order of its serials, and when the buffer was taken. Serial 0 once more is another
    /// thread with the same number.
    ///
    /// # Errors
    /// It cannot be written.
    fn records(&mut self, owner: Owner, taken: Moment, words: &[u64]) -> io::Result<()>;

    /// Whoever looks now is to see all that came.
    ///
    /// # Errors
    /// It cannot be written.
    fn flush(&mut self) -> io::Result<()>;

    /// The program has ended, if it is known how, and so many records found no room. The clocks are this machine's, if the program's are too.
    ///
    /// # Errors
    /// It cannot be written.
    fn end(&mut self, pid: u32, status: Option<ExitStatus>, lost: u64, now: Option<Moment>) -> io::Result<()>;
}
