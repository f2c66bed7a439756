//! What commands share: arguments, files, messages, exit codes.

pub mod args;
pub mod compressed;
#[cfg(feature = "judge")]
pub mod engine;
pub mod exit;
#[cfg(feature = "judge")]
pub mod files;
#[cfg(feature = "judge")]
pub mod foreign;
pub mod input;
pub mod output;
#[cfg(feature = "judge")]
pub mod package;
pub mod refused;
#[cfg(feature = "judge")]
pub mod running;
#[cfg(feature = "judge")]
pub mod sandbox;
#[cfg(feature = "judge")]
pub mod threads;
pub mod ui;
pub mod values;
#[cfg(feature = "judge")]
pub mod writer;
