//! Arbitrary bytes as an image with an unwind table.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz::cfi(bytes);
});
