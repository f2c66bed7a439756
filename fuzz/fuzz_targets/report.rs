//! Arbitrary text as a report, and as the files that say what is accepted in one.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fuzz::report(text));
