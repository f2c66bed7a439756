//! Functions with arguments on the stack, and with any number of them, whose return address is on a shadow stack: each return is
//! recorded, those that others jump past leave no harm, whatever signals come.

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::{Arch, for_each};

const SOURCE: &str = include_str!("in_place.c");
const SITE: &str = include_str!("site.h");
/// In the order of their numbers.
const FUNCTIONS: [&str; 7] = ["many", "text", "mixed", "climb", "deep", "last", "whole"];
/// What others jump past.
const LEFT: usize = 3;
/// What is ten times deeper than the shadow stack, which then has room for so many.
const DEEP: usize = 4;
const ROOM: u64 = 63;

fn generate(b: &Bench, arch: &Arch, offsets: &[(&str, &str)]) {
    let sets = offsets.iter().map(|(word, at)| format!("{word}={at}"));
    let abi = arch.with.set.iter().filter(|s| s.starts_with("abi=")).cloned();
    let sets: Vec<String> = sets.chain(abi).flat_map(|s| ["--set".to_owned(), s]).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    for (id, name) in FUNCTIONS.into_iter().enumerate() {
        let (id, function) = (id.to_string(), format!("{name}+{}", arch.with.site));
        let record = ["gen", "record", "--events", "both", "--form", "shadow", "--clock", "none", "--id", &id];
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
fn functions_with_any_arguments_return_from_a_shadow_stack() {
    for_each(|arch| {
        let b = Bench::new();
        std::fs::write(b.path("in_place.c"), SOURCE).unwrap();
        std::fs::write(b.path("site.h"), SITE).unwrap();
        let compiler = arch.tool("gcc");
        let objects: Vec<String> = FUNCTIONS.iter().map(|name| format!("{name}.o")).collect();
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        let options = ["-O2", "-static", "in_place.c", "-o", "program"];
        let link = || b.tool(&compiler, &[&words(&arch.with.flags)[..], &options, &objects].concat());
        generate(&b, arch, &[]);
        link();
        let (offsets, _) = run(arch, &b, &["offsets"]);
        let names = ["RECORD_CURSOR", "RECORD_LIMIT", "RECORD_SHADOW", "RECORD_SHADOW_LIMIT"];
        generate(&b, arch, &names.into_iter().zip(offsets.split_whitespace()).collect::<Vec<_>>());
        link();
        let (times, pause) = if arch.with.runner.is_empty() { ("100000", "100") } else { ("50000", "5000") };
        let [(plain, _), (traced, told)] = ["untraced", "traced"].map(|how| run(arch, &b, &[times, how, pause]));
        assert_eq!(traced, plain, "{}: traced (left) and not", arch.name);
        let mut lines = told.lines();
        let first = lines.next().unwrap().split([' ', ',']).filter_map(|word| word.parse().ok());
        let [strange, signals, left] = first.collect::<Vec<i64>>()[..] else { panic!("{}: {told}", arch.name) };
        assert!(strange == 0 && signals > 20, "{}: {told}", arch.name);
        assert_eq!(left, 0, "{}: entries are left: {told}", arch.name);
        for (n, line) in lines.enumerate() {
            let counts: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            let [entered, returned, entries, exits] = counts[..] else { panic!("{}: {told}", arch.name) };
            let name = FUNCTIONS[n];
            assert!(entered > 0, "{} {name}: {told}", arch.name);
            assert_eq!(returned, if n == LEFT { 0 } else { entered }, "{} {name}: {told}", arch.name);
            let recorded = if n == DEEP { (10 * ROOM, 10 * ROOM) } else { (entered, returned) };
            assert_eq!((entries, exits), recorded, "{} {name}: {told}", arch.name);
        }
    });
}
