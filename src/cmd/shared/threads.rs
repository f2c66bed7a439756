//! The threads that share the work.

use codegen::words::error::{Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Make the threads, before there is work. Where none can be made, the thread that asks does all of it, as long as it keeps what is
/// returned.
///
/// # Errors
/// Not even that is possible.
pub fn made() -> Result<Option<ThreadPool>> {
    if ThreadPoolBuilder::new().build_global().is_ok() {
        return Ok(None);
    }
    let alone = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    alone.map(Some).map_err(|e| Error::new(format!("no thread for the work: {e}; valid: a higher limit of processes")))
}
