//! Counts how often a function of this program is called, and how long it takes, while the program runs.
#![allow(unsafe_code, reason = "whoever attaches promises that the function is what they take it for")]

use std::sync::atomic::{AtomicU64, Ordering};

use tramptool_live::{Live, Policy};

static CALLS: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// The function: nothing in it knows that it is watched.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn parse_header(text: *const u8, length: usize) -> usize {
    // SAFETY: callers give text of this length.
    let text = unsafe { std::slice::from_raw_parts(text, length) };
    text.iter().take_while(|byte| **byte != b':').count()
}

fn main() -> Result<(), tramptool_live::Error> {
    let parse = |line: &str| parse_header(line.as_ptr(), line.len());
    let live = Live::new(Policy::default())?;
    let f = live.function("parse_header")?;
    println!("{} is in {}: {}, {}", f.name(), f.object().display(), f.class().name(), f.reason());

    let count = |call: &mut tramptool_live::Entry| {
        CALLS.fetch_add(1, Ordering::Relaxed);
        LONGEST.fetch_max(call.argument(1), Ordering::Relaxed);
    };
    // SAFETY: both handlers change nothing.
    let hook = unsafe { live.around(&f, count, |_| ()) }?;
    parse("Host: before");
    live.batch(|batch| batch.enable(&hook))?;
    let colons = [parse("Host: example.org"), parse("Accept: text/html")];
    hook.disable()?;
    parse("Connection: close, as nobody counts any more");
    println!(
        "{colons:?}: {} calls, the longest of {} bytes",
        CALLS.load(Ordering::Relaxed),
        LONGEST.load(Ordering::Relaxed)
    );
    Ok(())
}
