//! Arbitrary text as the arguments of `gen`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fuzz::spec(text));
