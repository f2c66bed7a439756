//! Trampolines that record, in a program that leaves its functions in every way that C and C++ know: what is recorded is what the
//! program itself counted, and what it prints is the same as without them.

use std::process::{Command, Output};

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::{Arch, for_each};

const SOURCE: &str = include_str!("recorded.cc");
const SITE: &str = include_str!("site.h");
const FUNCTIONS: [&str; 3] = ["outer", "middle", "inner"];

/// The objects of the three, for a thread whose words are so many bytes from the thread pointer.
fn generate(b: &Bench, arch: &Arch, offsets: Option<&[String]>) {
    let sets: Vec<String> = ["RECORD_CURSOR", "RECORD_LIMIT", "RECORD_COUNT"]
        .into_iter()
        .zip(offsets.unwrap_or_default())
        .flat_map(|(word, at)| ["--set".to_owned(), format!("{word}={at}")])
        .collect();
    let abi = arch.with.set.iter().filter(|s| s.starts_with("abi="));
    let sets: Vec<String> = sets.into_iter().chain(abi.flat_map(|s| ["--set".to_owned(), s.clone()])).collect();
    for (n, name) in FUNCTIONS.into_iter().enumerate() {
        let (id, function) = ((n + 1).to_string(), format!("{name}+{}", arch.with.site));
        let sig = format!("long {name}(long a)");
        let what = ["record", "--events", "both", "--clock", "none", "--unwind", "--id", &id, "--sig", &sig];
        let how = ["--function", &function, "--profile", "bare", "--arch", arch.name, "--emit", "obj", "--stem", name];
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        b.ok(&[&["gen"], &what[..], &how, &sets].concat());
    }
}

/// The program, with trampolines that know where its words are.
fn build(arch: &Arch, compiler: &[String], more: &[&str]) -> Bench {
    let b = Bench::new();
    std::fs::write(b.path("recorded.cc"), SOURCE).unwrap();
    std::fs::write(b.path("site.h"), SITE).unwrap();
    let link = || {
        let (tool, flags) = compiler.split_first().unwrap();
        let options = ["-O2", "-pthread", "-fasynchronous-unwind-tables", "recorded.cc", "-o", "program"];
        b.tool(tool, &[&words(flags)[..], &options, &["outer.o", "middle.o", "inner.o"], more].concat());
    };
    generate(&b, arch, None);
    link();
    let out = run(arch, &b, &["offsets"]);
    let offsets: Vec<String> = String::from_utf8(out.stdout).unwrap().split_whitespace().map(str::to_owned).collect();
    assert_eq!(offsets.len(), 3, "{}", arch.name);
    generate(&b, arch, Some(&offsets));
    link();
    b
}

fn run(arch: &Arch, b: &Bench, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("100").args(&arch.with.runner).arg(b.path("program")).args(args).current_dir(b.path(""));
    let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
    assert!(out.status.success(), "{} {args:?}: {out:?}", arch.name);
    out
}

/// What the program counted of one function, and what its records say.
#[derive(Debug)]
struct Counted {
    entered: u64,
    returned: u64,
    entries: u64,
    exits: u64,
    unwinds: u64,
}

/// What a run says.
#[derive(Debug)]
struct Said {
    lost: u64,
    functions: Vec<Counted>,
}

/// Do this so often, with and without trampolines.
fn traced(arch: &Arch, b: &Bench, what: &str, times: u64) -> Said {
    let times = times.to_string();
    let [without, with] = ["untraced", "traced"].map(|how| run(arch, b, &[what, &times, how]));
    let [printed, traced] = [&without, &with].map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    assert_eq!(traced, printed, "{} {what}: traced (left) and not", arch.name);
    let told = String::from_utf8(with.stderr).unwrap();
    let mut lines = told.lines().filter(|line| !line.starts_with("signals"));
    let first = lines.next().and_then(|line| line.strip_prefix("lost ")?.strip_suffix(", strange 0"));
    let lost = first.unwrap_or_else(|| panic!("{} {what}: {told}", arch.name)).parse().unwrap();
    let counted = |line: &str| {
        let n: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        Counted { entered: n[0], returned: n[1], entries: n[2], exits: n[3], unwinds: n[4] }
    };
    let functions: Vec<Counted> = lines.map(counted).collect();
    assert_eq!(functions.len(), 3, "{} {what}: {told}", arch.name);
    for f in &functions {
        assert_eq!((f.entries, f.exits), (f.entered, f.returned), "{} {what}: {told}", arch.name);
        assert!(f.entries > 0, "{} {what}: {told}", arch.name);
    }
    Said { lost, functions }
}

/// Every entry has its return or its exception.
fn paired(arch: &Arch, what: &str, said: &Said) {
    for f in &said.functions {
        assert_eq!(f.entries, f.exits + f.unwinds, "{} {what}: {said:?}", arch.name);
    }
    assert_eq!(said.lost, 0, "{} {what}: {said:?}", arch.name);
}

/// As many as asked for natively; under qemu, whose processes are slower, fewer.
fn of(arch: &Arch, native: u64, emulated: u64) -> u64 {
    if arch.with.runner.is_empty() { native } else { emulated }
}

fn every_way_out(arch: &Arch, compiler: &[String], more: &[&str]) {
    let b = build(arch, compiler, more);
    let n = of(arch, 100_000, 20_000);
    let said = traced(arch, &b, "exceptions", n);
    paired(arch, "exceptions", &said);
    // Of three in turn, one leaves all functions, one all but the first, one the first two.
    let [outer, middle, inner] = [0, 1, 2].map(|f| said.functions[f].unwinds);
    assert!(middle == n && outer >= n / 2 && inner >= n / 2, "{}: {said:?}", arch.name);
    for (what, native, emulated) in [("pthread_cancel", 500, 50), ("signals", 20_000, 3_000), ("fork", 100, 20)] {
        paired(arch, what, &traced(arch, &b, what, of(arch, native, emulated)));
    }
    let said = traced(arch, &b, "pthread_cancel", 20);
    assert!(said.functions.iter().all(|f| f.unwinds == 20), "{}: {said:?}", arch.name);
    let said = traced(arch, &b, "swapcontext", of(arch, 20_000, 2_000));
    assert!(said.functions.iter().all(|f| f.entries == f.exits && f.unwinds == 0), "{}: {said:?}", arch.name);
    // Nothing unwinds: what longjmp leaves has an entry and no end.
    let said = traced(arch, &b, "longjmp", 1_000);
    let left: u64 = said.functions.iter().map(|f| f.entries - f.exits).sum();
    assert_eq!((left, said.lost), (600, 600), "{}: {said:?}", arch.name);
    assert!(said.functions.iter().all(|f| f.unwinds == 0), "{}: {said:?}", arch.name);
}

#[test]
fn every_way_out_of_what_gcc_built_is_recorded() {
    for_each(|arch| every_way_out(arch, &arch.compilers()[0], &["-static"]));
}

#[test]
fn every_way_out_of_what_clang_built_is_recorded() {
    for_each(|arch| every_way_out(arch, &arch.compilers()[1], &["-static"]));
}
