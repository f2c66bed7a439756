//! Arbitrary text as a kernel's configuration and numbers.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fuzz::config(text));
