//! A function that signs its return address, hooked behind that, whose caller has values in registers that C functions may overwrite.

use crate::common::Bench;
use crate::machine::for_each;
use crate::program::{Program, compare};

/// The copy of its beginning.
const COPY: &str = "f_copy";

#[test]
fn a_function_that_signs_its_return_address_is_recorded_behind_that() {
    for_each(|arch| {
        let record =
            ["gen", "record", "--events", "both", "--form", "shadow", "--live", "all", "--clock", "none", "--signed"];
        let how = ["--function", COPY, "--name", "f_tramp", "--profile", "bare", "--arch", arch.name];
        let gen_ = [&record[..], &how].concat();
        // Where return addresses are never signed.
        if Bench::new().run(&gen_).status.code() == Some(2) {
            return;
        }
        let program = Program {
            source: include_str!("signed.c"),
            options: &[],
            objects: vec!["f"],
            words: &["RECORD_CURSOR", "RECORD_LIMIT", "RECORD_SHADOW", "RECORD_SHADOW_LIMIT"],
        };
        let b = program.build(arch, |b, sets| {
            b.ok(&[&gen_[..], &["--emit", "obj", "--stem", "f"], sets].concat());
        });
        let (numbers, told) = compare(arch, &b, &["1000"]);
        // That the processor signs, what else is in the buffer, entries, returns.
        assert_eq!(numbers, [[1, 0, 1000, 1000]], "{told}");
    });
}
