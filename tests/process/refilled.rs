//! Buffers that are exchanged when they are full: no record is lost or written where it should not be, and no register is lost to
//! the C function that makes room, whatever signals come.

use crate::machine::for_each;
use crate::program::{Program, compare};

/// Bytes of a buffer, as a power of two: the program has the same number.
const FULL: &str = "RECORD_FULL=12";

/// Whether the return is recorded too, and with the result.
const FUNCTIONS: [(&str, &[&str]); 4] = [
    ("add", &["--events", "both", "--result", "--sig", "long add(long a, long b)"]),
    ("scale", &["--events", "both", "--sig", "double scale(double x, double by)"]),
    ("pair", &["--events", "entry"]),
    ("quad", &["--events", "entry"]),
];

#[test]
fn a_full_buffer_is_exchanged_for_another_and_nothing_is_lost() {
    for_each(|arch| {
        let program = Program {
            source: include_str!("refilled.c"),
            options: &["-fasynchronous-unwind-tables"],
            objects: FUNCTIONS.iter().map(|(name, _)| *name).chain(["new_buffer"]).collect(),
            words: &["RECORD_CURSOR", "RECORD_COUNT"],
        };
        let b = program.build(arch, |b, sets| {
            let how = |stem| ["--profile", "bare", "--arch", arch.name, "--emit", "obj", "--stem", stem, "--set", FULL];
            for (id, (name, what)) in FUNCTIONS.into_iter().enumerate() {
                let (id, function) = (id.to_string(), format!("{name}+{}", arch.with.site));
                let record = ["gen", "record", "--clock", "none", "--refill", "new_buffer_tramp", "--id", &id];
                b.ok(&[&record[..], what, &["--function", &function], &how(name), sets].concat());
            }
            b.ok(&[&["gen", "sled", "--call", "new_buffer"], &how("new_buffer")[..], sets].concat());
        });
        let times = if arch.with.runner.is_empty() { "300000" } else { "30000" };
        let (numbers, told) = compare(arch, &b, &[times]);
        let [strange, blocks, signals] = numbers[0][..] else { panic!("{}: {told}", arch.name) };
        assert!(strange == 0 && blocks > 100 && signals > 20, "{}: {told}", arch.name);
        assert_eq!(numbers.len(), 1 + FUNCTIONS.len(), "{}: {told}", arch.name);
        for ((name, what), counts) in FUNCTIONS.iter().zip(&numbers[1..]) {
            let [entered, returned, entries, exits] = counts[..] else { panic!("{}: {told}", arch.name) };
            let both = what.contains(&"both");
            assert_eq!((entries, exits), (entered, if both { returned } else { 0 }), "{} {name}: {told}", arch.name);
            assert!(entered > 0 || *name == "quad", "{} {name}: {told}", arch.name);
        }
    });
}
