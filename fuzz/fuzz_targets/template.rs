//! Arbitrary addresses in copies of templates.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::template(bytes));
