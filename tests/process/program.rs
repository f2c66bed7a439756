//! Programs in C whose functions have sites for trampolines that record. Each says where the words of its thread are, runs untraced and
//! traced, and tells on stderr what its buffer has.

use crate::common::Bench;
use crate::common::expected::words;
use crate::machine::Arch;

const SITE: &str = include_str!("site.h");

/// One of them.
pub struct Program {
    pub source: &'static str,
    /// What else gcc is told.
    pub options: &'static [&'static str],
    /// The stems of the objects with its trampolines.
    pub objects: Vec<&'static str>,
    /// What the words are called that it says the places of, in their order.
    pub words: &'static [&'static str],
}

impl Program {
    /// Compile and link it. `generate` is called with numbers for `--set`, once before the places of the words are known and once
    /// with them.
    pub fn build(&self, arch: &Arch, generate: impl Fn(&Bench, &[&str])) -> Bench {
        let b = Bench::new();
        std::fs::write(b.path("program.c"), self.source).unwrap();
        std::fs::write(b.path("site.h"), SITE).unwrap();
        let objects: Vec<String> = self.objects.iter().map(|stem| format!("{stem}.o")).collect();
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        let options = [self.options, &["-O2", "-static", "program.c", "-o", "program"]].concat();
        let link = |offsets: &[&str]| {
            let sets = self.words.iter().zip(offsets).map(|(word, at)| format!("{word}={at}"));
            let abi = arch.with.set.iter().filter(|s| s.starts_with("abi=")).cloned();
            let sets: Vec<String> = sets.chain(abi).flat_map(|s| ["--set".to_owned(), s]).collect();
            generate(&b, &sets.iter().map(String::as_str).collect::<Vec<_>>());
            b.tool(&arch.tool("gcc"), &[&words(&arch.with.flags)[..], &options, &objects].concat());
        };
        link(&[]);
        let (offsets, _) = run(arch, &b, &["offsets"]);
        link(&offsets.split_whitespace().collect::<Vec<_>>());
        b
    }
}

/// Run it untraced and traced: its output must be the same. Returns the numbers in each line that it tells of the traced run, and
/// these lines.
pub fn compare(arch: &Arch, b: &Bench, args: &[&str]) -> (Vec<Vec<i64>>, String) {
    let [(plain, _), (traced, told)] =
        ["untraced", "traced"].map(|how| run(arch, b, &[&args[..1], &[how], &args[1..]].concat()));
    assert_eq!(traced, plain, "{}: traced (left) and not", arch.name);
    let numbers = |line: &str| line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    (told.lines().map(numbers).collect(), told)
}

fn run(arch: &Arch, b: &Bench, args: &[&str]) -> (String, String) {
    let mut command = std::process::Command::new("timeout");
    command.arg("100").args(&arch.with.runner).arg(b.path("program")).args(args).current_dir(b.path(""));
    let out = command.output().unwrap_or_else(|e| panic!("{e}: install coreutils and qemu-user"));
    assert!(out.status.success(), "{} {args:?}: {out:?}", arch.name);
    (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}
