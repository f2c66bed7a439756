//! Arbitrary bytes as an object.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::link(bytes));
