//! Buffers that are exchanged when they are full: no record is lost or written where it should not be, and no register is lost to
//! the C function that makes room, whatever signals come.

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::{Arch, for_each};

const SOURCE: &str = include_str!("refilled.c");
const SITE: &str = include_str!("site.h");
/// Bytes of a buffer, as a power of two: the program has the same number.
const FULL: &str = "RECORD_FULL=12";

/// Whether the return is recorded too, and with the result.
const FUNCTIONS: [(&str, &[&str]); 4] = [
    ("add", &["--events", "both", "--result", "--sig", "long add(long a, long b)"]),
    ("scale", &["--events", "both", "--sig", "double scale(double x, double by)"]),
    ("pair", &["--events", "entry"]),
    ("quad", &["--events", "entry"]),
];

fn generate(b: &Bench, arch: &Arch, offsets: &[(&str, String)]) {
    let sets = offsets.iter().map(|(word, at)| format!("{word}={at}")).chain([FULL.to_owned()]);
    let abi = arch.with.set.iter().filter(|s| s.starts_with("abi=")).cloned();
    let sets: Vec<String> = sets.chain(abi).flat_map(|s| ["--set".to_owned(), s]).collect();
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let how = |stem| ["--profile", "bare", "--arch", arch.name, "--emit", "obj", "--stem", stem];
    for (id, (name, what)) in FUNCTIONS.into_iter().enumerate() {
        let (id, function) = (id.to_string(), format!("{name}+{}", arch.with.site));
        let record = ["gen", "record", "--clock", "none", "--refill", "new_buffer_tramp", "--id", &id];
        b.ok(&[&record[..], what, &["--function", &function], &how(name), &sets].concat());
    }
    b.ok(&[&["gen", "sled", "--call", "new_buffer"], &how("new_buffer")[..], &sets].concat());
}

fn run(arch: &Arch, b: &Bench, args: &[&str]) -> (String, String) {
    let mut command = std::process::Command::new("timeout");
    command.arg("100").args(&arch.with.runner).arg(b.path("program")).args(args).current_dir(b.path(""));
    let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
    assert!(out.status.success(), "{} {args:?}: {out:?}", arch.name);
    (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn a_full_buffer_is_exchanged_for_another_and_nothing_is_lost() {
    for_each(|arch| {
        let b = Bench::new();
        std::fs::write(b.path("refilled.c"), SOURCE).unwrap();
        std::fs::write(b.path("site.h"), SITE).unwrap();
        let compiler = arch.tool("gcc");
        let objects: Vec<String> = FUNCTIONS.iter().map(|(name, _)| format!("{name}.o")).collect();
        let objects: Vec<&str> = objects.iter().map(String::as_str).chain(["new_buffer.o"]).collect();
        let options = ["-O2", "-static", "-fasynchronous-unwind-tables", "refilled.c", "-o", "program"];
        let link = || b.tool(&compiler, &[&words(&arch.with.flags)[..], &options, &objects].concat());
        generate(&b, arch, &[]);
        link();
        let (offsets, _) = run(arch, &b, &["offsets"]);
        let offsets: Vec<String> = offsets.split_whitespace().map(str::to_owned).collect();
        let names = ["RECORD_CURSOR", "RECORD_COUNT"];
        generate(&b, arch, &names.into_iter().zip(offsets).collect::<Vec<_>>());
        link();
        let times = if arch.with.runner.is_empty() { "300000" } else { "30000" };
        let [(plain, _), (traced, told)] = ["untraced", "traced"].map(|how| run(arch, &b, &[times, how]));
        assert_eq!(traced, plain, "{}: traced (left) and not", arch.name);
        let mut lines = told.lines();
        let first: Vec<i64> =
            lines.next().unwrap().split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<_>>();
        let [strange, blocks, signals] = first[..] else { panic!("{}: {told}", arch.name) };
        assert!(strange == 0 && blocks > 100 && signals > 20, "{}: {told}", arch.name);
        for ((name, what), line) in FUNCTIONS.iter().zip(lines) {
            let n: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            let [entered, returned, entries, exits] = n[..] else { panic!("{}: {told}", arch.name) };
            let both = what.contains(&"both");
            assert_eq!((entries, exits), (entered, if both { returned } else { 0 }), "{} {name}: {told}", arch.name);
            assert!(entered > 0 || *name == "quad", "{} {name}: {told}", arch.name);
        }
    });
}
