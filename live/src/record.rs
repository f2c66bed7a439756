//! Recorders: the calls of functions, as buffers of threads have them.

use crate::buffers::{Buffers, Event, Record};
use crate::calls::Entry;
use crate::error::Result;
use crate::function::Function;
use crate::live::{Hook, Live};
use crate::patch::Notes;

/// Records the calls of functions. When it is dropped, so are its hooks, and what was not taken is lost.
pub struct Recorder {
    live: Live,
    hooks: Vec<Hook>,
    buffers: &'static Buffers,
}

impl Live {
    /// Record the calls of functions, in memory of the threads that make them: room for so many records each, of 16 bytes. What finds
    /// no room is dropped and counted. Nothing is recorded before it is enabled.
    ///
    /// # Safety
    /// As [`Live::around`], of each function.
    #[allow(unsafe_code, reason = "the caller promises what nothing here can see")]
    pub unsafe fn record(&self, functions: &[Function], room: usize) -> Result<Recorder> {
        let buffers = Buffers::new(room);
        let attached = |(function, n): (&Function, u32)| {
            let entry = move |_: &mut Entry| buffers.put(n, Event::Entry);
            // SAFETY: the caller's promise is the same.
            unsafe { self.around(function, entry, move |_| buffers.put(n, Event::Return)) }
        };
        let hooks = functions.iter().zip(0..).map(attached).collect::<Result<_>>()?;
        Ok(Recorder { live: *self, hooks, buffers })
    }
}

impl Recorder {
    /// The hook of each function, for [`Live::batch`].
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Enable all of them.
    ///
    /// # Errors
    /// As [`Live::batch`].
    pub fn enable(&self) -> Result<Notes> {
        self.live.batch(|batch| self.hooks.iter().for_each(|hook| batch.enable(hook)))
    }

    /// Disable all of them. Calls that have begun are recorded at their return.
    ///
    /// # Errors
    /// As [`Live::batch`].
    pub fn disable(&self) -> Result<Notes> {
        self.live.batch(|batch| self.hooks.iter().for_each(|hook| batch.disable(hook)))
    }

    /// Take the records that there are, at most so many. Those of a thread are in their order. Not for signal handlers.
    pub fn take(&self, most: usize) -> Vec<Record> {
        self.live.alone(|| self.buffers.take(most))
    }

    /// The number of records for which there was no room. Calls by handlers are in [`Live::missed`].
    pub fn dropped(&self) -> u64 {
        self.buffers.dropped()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // All at once. What cannot be taken away is left, and harms nobody.
        let _ = self.disable();
    }
}
