//! One slot for both records of a call: each call that returns has both, one that does not has the first alone, and where a call
//! ended among the others is known without a clock, whatever signals come.

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::{Arch, for_each};

const SOURCE: &str = include_str!("paired.c");
const SITE: &str = include_str!("site.h");
/// In the order of their numbers.
const FUNCTIONS: [(&str, &str); 4] = [
    ("leaf", "long leaf(long a, long b)"),
    ("sum", "long sum(long levels)"),
    ("jump", "long jump(void *to, long levels)"),
    ("whole", "long whole(long n)"),
];
/// What others jump past, and calls of each at the end, when there is no room.
const LEFT: usize = 2;
const UNTRACED: [u64; 4] = [4, 3, 2, 1];

fn generate(b: &Bench, arch: &Arch, offsets: &[(&str, &str)]) {
    let sets = offsets.iter().map(|(word, at)| format!("{word}={at}"));
    let abi = arch.with.set.iter().filter(|s| s.starts_with("abi=")).cloned();
    let sets: Vec<String> = sets.chain(abi).flat_map(|s| ["--set".to_owned(), s]).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    for (id, (name, sig)) in FUNCTIONS.into_iter().enumerate() {
        let (id, function) = (id.to_string(), format!("{name}+{}", arch.with.site));
        let record = ["gen", "record", "--events", "both", "--pair", "--sig", sig, "--clock", "none", "--id", &id];
        let how = ["--profile", "bare", "--arch", arch.name, "--emit", "obj", "--stem", name, "--function", &function];
        b.ok(&[&record[..], &how, &sets].concat());
    }
}

fn run(arch: &Arch, b: &Bench, args: &[&str]) -> (String, String) {
    let mut command = std::process::Command::new("timeout");
    command.arg("100").args(&arch.with.runner).arg(b.path("program")).args(args).current_dir(b.path(""));
    let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
    assert!(out.status.success(), "{} {args:?}: {out:?}", arch.name);
    (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn both_records_of_a_call_are_in_one_slot() {
    for_each(|arch| {
        let b = Bench::new();
        std::fs::write(b.path("paired.c"), SOURCE).unwrap();
        std::fs::write(b.path("site.h"), SITE).unwrap();
        let compiler = arch.tool("gcc");
        let objects: Vec<String> = FUNCTIONS.iter().map(|(name, _)| format!("{name}.o")).collect();
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        let options = ["-O2", "-static", "paired.c", "-o", "program"];
        let link = || b.tool(&compiler, &[&words(&arch.with.flags)[..], &options, &objects].concat());
        generate(&b, arch, &[]);
        link();
        let (offsets, _) = run(arch, &b, &["offsets"]);
        let names = ["RECORD_CURSOR", "RECORD_LIMIT"];
        generate(&b, arch, &names.into_iter().zip(offsets.split_whitespace()).collect::<Vec<_>>());
        link();
        let (times, pause) = if arch.with.runner.is_empty() { ("300000", "100") } else { ("300000", "5000") };
        let [(plain, _), (traced, told)] = ["untraced", "traced"].map(|how| run(arch, &b, &[times, how, pause]));
        assert_eq!(traced, plain, "{}: traced (left) and not", arch.name);
        let mut lines = told.lines();
        let first = lines.next().unwrap().split([' ', ',']).filter_map(|word| word.parse().ok());
        let [strange, signals] = first.collect::<Vec<i64>>()[..] else { panic!("{}: {told}", arch.name) };
        assert!(strange == 0 && signals > 20, "{}: {told}", arch.name);
        for (n, line) in lines.enumerate() {
            let counts: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            let [entered, returned, entries, exits] = counts[..] else { panic!("{}: {told}", arch.name) };
            let traced = entered - UNTRACED[n];
            let name = FUNCTIONS[n].0;
            assert_eq!((entries, exits), (traced, if n == LEFT { 0 } else { traced }), "{} {name}: {told}", arch.name);
            assert_eq!(returned, if n == LEFT { 0 } else { entered }, "{} {name}: {told}", arch.name);
        }
    });
}
