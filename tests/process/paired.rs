//! One slot for both records of a call: each call that returns has both, one that does not has the first alone, and where a call
//! ended among the others is known without a clock, whatever signals come.

use crate::machine::for_each;
use crate::program::{Program, compare};

/// In the order of their numbers.
const FUNCTIONS: [(&str, &str); 4] = [
    ("leaf", "long leaf(long a, long b)"),
    ("sum", "long sum(long levels)"),
    ("jump", "long jump(void *to, long levels)"),
    ("whole", "long whole(long n)"),
];
/// What others jump past, and calls of each at the end, when there is no room.
const LEFT: usize = 2;
const UNTRACED: [i64; 4] = [4, 3, 2, 1];

#[test]
fn both_records_of_a_call_are_in_one_slot() {
    for_each(|arch| {
        let program = Program {
            source: include_str!("paired.c"),
            options: &[],
            objects: FUNCTIONS.map(|(name, _)| name).to_vec(),
            words: &["RECORD_CURSOR", "RECORD_LIMIT"],
        };
        let b = program.build(arch, |b, sets| {
            for (id, (name, sig)) in FUNCTIONS.into_iter().enumerate() {
                let (id, function) = (id.to_string(), format!("{name}+{}", arch.with.site));
                let record = ["gen", "record", "--events", "both", "--pair", "--sig", sig, "--clock", "none"];
                let how = ["--id", &id, "--profile", "bare", "--arch", arch.name, "--function", &function];
                b.ok(&[&record[..], &how, &["--emit", "obj", "--stem", name], sets].concat());
            }
        });
        let (times, pause) = if arch.with.runner.is_empty() { ("300000", "100") } else { ("300000", "5000") };
        let (numbers, told) = compare(arch, &b, &[times, pause]);
        let [strange, signals] = numbers[0][..] else { panic!("{}: {told}", arch.name) };
        assert!(strange == 0 && signals > 20, "{}: {told}", arch.name);
        assert_eq!(numbers.len(), 1 + FUNCTIONS.len(), "{}: {told}", arch.name);
        for (n, counts) in numbers[1..].iter().enumerate() {
            let [entered, returned, entries, exits] = counts[..] else { panic!("{}: {told}", arch.name) };
            let traced = entered - UNTRACED[n];
            let name = FUNCTIONS[n].0;
            assert_eq!((entries, exits), (traced, if n == LEFT { 0 } else { traced }), "{} {name}: {told}", arch.name);
            assert_eq!(returned, if n == LEFT { 0 } else { entered }, "{} {name}: {told}", arch.name);
        }
    });
}
