//! The threads that share the work.

use std::num::NonZero;
use std::thread::available_parallelism;

use codegen::words::error::{Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// As many as `RAYON_NUM_THREADS` says, if it says so.
pub fn stated() -> Option<usize> {
    std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0)
}

/// As many as there are CPUs for them, or as are stated.
pub fn wanted() -> usize {
    stated().unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get))
}

/// Make the threads, before there is work. Where none can be made, the thread that asks does all of it, as long as it keeps what is
/// returned.
///
/// # Errors
/// Not even that is possible.
pub fn made(wanted: usize) -> Result<Option<ThreadPool>> {
    if ThreadPoolBuilder::new().num_threads(wanted).build_global().is_ok() {
        return Ok(None);
    }
    let alone = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    alone.map(Some).map_err(|e| Error::new(format!("no thread for the work: {e}; valid: a higher limit of processes")))
}
