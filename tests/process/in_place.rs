//! Functions with arguments on the stack, and with any number of them, whose return address is on a shadow stack: each return is
//! recorded, those that others jump past leave no harm, whatever signals come.

use crate::machine::for_each;
use crate::program::{Program, compare};

/// In the order of their numbers.
const FUNCTIONS: [&str; 7] = ["many", "text", "mixed", "climb", "deep", "last", "whole"];
/// What others jump past.
const LEFT: usize = 3;
/// What is ten times deeper than the shadow stack, which then has room for so many.
const DEEP: usize = 4;
const ROOM: i64 = 63;

#[test]
fn functions_with_any_arguments_return_from_a_shadow_stack() {
    for_each(|arch| {
        let program = Program {
            source: include_str!("in_place.c"),
            options: &[],
            objects: FUNCTIONS.to_vec(),
            words: &["RECORD_CURSOR", "RECORD_LIMIT", "RECORD_SHADOW", "RECORD_SHADOW_LIMIT"],
        };
        let b = program.build(arch, |b, sets| {
            for (id, name) in FUNCTIONS.into_iter().enumerate() {
                let (id, function) = (id.to_string(), format!("{name}+{}", arch.with.site));
                let record = ["gen", "record", "--events", "both", "--form", "shadow", "--clock", "none", "--id", &id];
                let how = ["--profile", "bare", "--arch", arch.name, "--function", &function];
                b.ok(&[&record[..], &how, &["--emit", "obj", "--stem", name], sets].concat());
            }
        });
        let (times, pause) = if arch.with.runner.is_empty() { ("100000", "100") } else { ("50000", "5000") };
        let (numbers, told) = compare(arch, &b, &[times, pause]);
        let [strange, signals, left] = numbers[0][..] else { panic!("{}: {told}", arch.name) };
        assert!(strange == 0 && signals > 20, "{}: {told}", arch.name);
        assert_eq!(left, 0, "{}: entries are left: {told}", arch.name);
        assert_eq!(numbers.len(), 1 + FUNCTIONS.len(), "{}: {told}", arch.name);
        for (n, counts) in numbers[1..].iter().enumerate() {
            let [entered, returned, entries, exits] = counts[..] else { panic!("{}: {told}", arch.name) };
            let name = FUNCTIONS[n];
            assert!(entered > 0, "{} {name}: {told}", arch.name);
            assert_eq!(returned, if n == LEFT { 0 } else { entered }, "{} {name}: {told}", arch.name);
            let recorded = if n == DEEP { (10 * ROOM, 10 * ROOM) } else { (entered, returned) };
            assert_eq!((entries, exits), recorded, "{} {name}: {told}", arch.name);
        }
    });
}
