//! Recordings of calls that the tests themselves make up, as this crate and as other programs read them.

mod calls;
mod damaged;
mod exports;
mod foreign;
mod made;
mod processes;
mod shown;
