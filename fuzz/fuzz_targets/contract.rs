//! Arbitrary text as a contract.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fuzz::contract(text));
