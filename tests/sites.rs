//! The sites of a file, with GNU's readers as witnesses.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use common::expected::{RefusedSites, SiteKind, expected, words};
use common::{Bench, arches, tools_of};

mod common;

/// Some functions, one of them weak.
const SOURCE: &str = "int one(int a) { return a + 1; }\nint two(int a) { return one(a) * 2; }\n\
                      __attribute__((weak)) int lost(int a) { return two(a) - 3; }\n\
                      static __attribute__((noinline)) int hidden(int a) { return a * a * a; }\n\
                      int three(int a) { return hidden(a) + lost(a); }\n\
                      int (*shown)(int) = hidden;\n";
/// The function that takes the place of the weak one, and what makes a program of both.
const OTHER: &str = "int lost(int a) { return a; }\nvoid __fentry__(void) {}\nvoid _start(void) {}\n";

fn sites(b: &Bench, file: &str) -> Value {
    serde_json::from_str(&b.ok(&["sites", file, "--format", "json"])).unwrap()
}

fn total(json: &Value, name: &str) -> u64 {
    json["totals"][name].as_u64().unwrap()
}

fn compile(b: &Bench, prefix: &str, options: &[&str]) {
    let gcc = format!("{prefix}gcc");
    let run = Command::new(&gcc).args(options).current_dir(b.path("")).output();
    let run = run.unwrap_or_else(|e| panic!("{gcc}: {e}: install the compiler"));
    assert!(run.status.success(), "{options:?}: {}", String::from_utf8_lossy(&run.stderr));
}

/// Name and address of the functions, as nm has them.
fn functions(b: &Bench, prefix: &str, file: &str) -> BTreeMap<String, u64> {
    let out = b.tool(&format!("{prefix}nm"), &[file]);
    let line = |line: &str| match *line.split_whitespace().collect::<Vec<_>>() {
        [address, "t" | "T" | "W", name] if !name.starts_with(['.', '$']) => {
            Some((name.to_owned(), u64::from_str_radix(address, 16).unwrap()))
        }
        _ => None,
    };
    out.lines().filter_map(line).collect()
}

#[test]
fn objects_programs_and_libraries_list_their_functions() {
    for (arch, prefix) in arches() {
        let b = Bench::new();
        fs::write(b.path("a.c"), SOURCE).unwrap();
        fs::write(b.path("b.c"), OTHER).unwrap();
        compile(&b, prefix, &["-O2", "-c", "b.c", "-o", "b.o"]);
        for SiteKind { options, list, at, form } in expected(tool::backend(arch).unwrap()).sites.kind {
            let options = words(&options);
            compile(&b, prefix, &[&options[..], &["-O2", "-c", "a.c", "-o", "a.o"]].concat());
            let link = ["-nostdlib", "-static", "-no-pie", "a.o", "b.o", "-o", "program"];
            compile(&b, prefix, &link);
            let pic = options.iter().map(|o| if *o == "-fno-pie" { "-mno-red-zone" } else { o }).collect::<Vec<_>>();
            let shared = if list == "__mcount_loc" {
                vec!["-nostdlib", "-static-pie", "a.o", "b.o", "-o", "library", "-z", "notext"]
            } else {
                compile(&b, prefix, &[&pic[..], &["-O2", "-fPIC", "-c", "a.c", "-o", "pic.o"]].concat());
                vec!["-nostdlib", "-shared", "pic.o", "-o", "library"]
            };
            compile(&b, prefix, &shared);
            for file in ["a.o", "program", "library"] {
                let what = format!("{arch} {options:?} {file}");
                let json = sites(&b, file);
                assert_eq!(json["arch"], arch, "{what}");
                let named = functions(&b, prefix, file);
                // In a program the strong function has the name; the weak one's site is there, and nobody's.
                let lost = file == "program" || shared.contains(&"b.o") && file == "library";
                let mut found = BTreeMap::new();
                for site in json["sites"].as_array().unwrap() {
                    assert_eq!(
                        (&site["list"], &site["form"]),
                        (&list.as_str().into(), &form.as_str().into()),
                        "{what}"
                    );
                    if site["refused"].is_null() {
                        assert_eq!(site["offset"], at, "{what}");
                        let start = site["address"].as_u64().unwrap() - at;
                        found.insert(site["function"].as_str().unwrap().to_owned(), start);
                    }
                }
                let wanted = ["hidden", "lost", "one", "three", "two"].into_iter().filter(|f| !(lost && *f == "lost"));
                let wanted: BTreeMap<String, u64> = wanted.map(|f| (f.to_owned(), named[f])).collect();
                assert_eq!(found, wanted, "{what}");
                assert_eq!((total(&json, "entries"), total(&json, "live")), (5, 5), "{what}");
                assert_eq!(total(&json, "patchable"), wanted.len() as u64, "{what}");
                assert_eq!(json["totals"]["refused"].as_object().unwrap().len(), usize::from(lost), "{what}");
            }
        }
    }
}

/// The list of every fixture, entry by entry, as objdump has it.
#[test]
fn the_entries_are_those_of_objdump() {
    let b = Bench::new();
    let mut compared = 0;
    for (arch, prefix) in arches() {
        let ahead = expected(tool::backend(arch).unwrap()).sites.ahead;
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("emu-tests/fixtures").join(arch);
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let file = path.to_str().unwrap();
            if file.contains("callbacks") {
                b.refuses(&["sites", file], &["no list of sites", "vmlinux"]);
                continue;
            }
            let json = sites(&b, file);
            let list = json["sites"][0]["list"].as_str().unwrap();
            let relocations = b.tool(&format!("{prefix}objdump"), &["-r", "-j", list, file]);
            let named = functions(&b, prefix, file);
            let labels = b.tool(&format!("{prefix}readelf"), &["-sW", file]);
            let value = |target: &str| {
                let (symbol, addend) = target.split_once("+0x").unwrap_or((target, "0"));
                let line = labels.lines().find(|l| l.ends_with(&format!(" {symbol}"))).unwrap();
                let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
                hex(line.split_whitespace().nth(1).unwrap()) + hex(addend)
            };
            let mut theirs: Vec<u64> = relocations
                .lines()
                .filter_map(|l| l.split_whitespace().nth(2).filter(|_| l.contains("R_")))
                .map(value)
                .collect();
            theirs.sort();
            let ours: Vec<u64> =
                json["sites"].as_array().unwrap().iter().map(|s| s["address"].as_u64().unwrap()).collect();
            let add = ahead.iter().find(|(name, _)| file.contains(name.as_str())).map_or(0, |(_, add)| *add);
            assert_eq!(ours, theirs.iter().map(|at| at + add).collect::<Vec<_>>(), "{file}");
            assert!(
                json["sites"].as_array().unwrap().iter().all(|s| named.contains_key(s["function"].as_str().unwrap()))
            );
            compared += ours.len();
        }
    }
    assert!(compared > 300, "{compared} compared");
}

#[test]
fn what_cannot_be_patched_says_why() {
    let b = Bench::new();
    fs::write(b.path("a.c"), SOURCE).unwrap();
    let refused = |prefix: &str, options: &[&str], count: u64, why: &str| {
        compile(&b, prefix, &[options, &["-O2", "-c", "a.c", "-o", "a.o"]].concat());
        let json = sites(&b, "a.o");
        let reasons = json["totals"]["refused"].as_object().unwrap();
        let found = reasons.iter().find(|(reason, _)| reason.contains(why));
        assert_eq!(found.map(|(_, n)| n.as_u64().unwrap()), Some(count), "{options:?}: {json}");
        let human = b.ok(&["sites", "a.o"]);
        assert_eq!(human.matches(&format!("not patchable: {}", found.unwrap().0)).count() as u64, count + 1);
    };
    let odd_ones = |prefix, file| functions(&b, prefix, file).values().filter(|start| *start % 8 == 4).count() as u64;
    for (arch, prefix) in arches() {
        for RefusedSites { options, why, odd, linked } in expected(tool::backend(arch).unwrap()).sites.refused {
            let options = words(&options);
            compile(&b, prefix, &[&options[..], &["-O2", "-c", "a.c", "-o", "a.o"]].concat());
            let in_the_middle = odd_ones(prefix, "a.o");
            let count = odd.map_or(5, |odd| if odd { in_the_middle } else { 5 - in_the_middle });
            assert!(count > 0);
            refused(prefix, &options, count, &why);
            let Some(why) = linked else { continue };
            let ld = ["--unresolved-symbols=ignore-all", "-e", "one", "a.o", "-o", "program"];
            b.tool(&format!("{prefix}ld"), &ld);
            let (odd, json) = (odd_ones(prefix, "program"), sites(&b, "program"));
            let reasons = json["totals"]["refused"].as_object().unwrap().iter();
            let found: u64 = reasons.filter(|(r, _)| r.contains(&why)).map(|(_, n)| n.as_u64().unwrap()).sum();
            assert!(odd > 0 && found == odd, "{odd}: {json}");
        }
    }
    // What a kernel's build leaves of a weak function that it dropped.
    fs::write(b.path("z.s"), ".section __mcount_loc, \"a\"\n.quad 0, f\n.text\nf: .byte 0xe8\n.long 0\n").unwrap();
    b.tool("x86_64-linux-gnu-as", &["z.s", "-o", "z.o"]);
    let json = sites(&b, "z.o");
    assert_eq!((total(&json, "entries"), total(&json, "live"), total(&json, "patchable")), (2, 1, 1), "{json}");
    fs::write(b.path("z.s"), ".section __mcount_loc, \"a\"\n.long 0\n").unwrap();
    b.tool("x86_64-linux-gnu-as", &["z.s", "-o", "z.o"]);
    b.refuses(&["sites", "z.o"], &["z.o: __mcount_loc has 4 bytes; valid: a multiple of 8"]);
}

/// As distributions have modules: `xz` as the kernel's scripts/Makefile.modinst calls it, and others.
#[test]
fn compressed_files_are_read() {
    let b = Bench::new();
    fs::write(b.path("a.c"), SOURCE).unwrap();
    compile(&b, tools_of("arm64"), &["-fpatchable-function-entry=2", "-O2", "-g", "-c", "a.c", "-o", "a.ko"]);
    let plain = sites(&b, "a.ko");
    let commands = [
        ("xz", "--check=crc32 --lzma2=dict=1MiB"),
        ("xz", "-9 --check=sha256 --arm --lzma2"),
        ("xz", "--check=none"),
        ("gzip", "-n"),
        ("zstd", "-q --ultra -22"),
        ("zstd", "-q --no-check"),
    ];
    for (tool, options) in commands {
        let run = |input: &str, output: &str| {
            let out = Command::new(tool).args(options.split(' ')).args(["-c", input]).current_dir(b.path(".")).output();
            let out = out.unwrap_or_else(|e| panic!("{tool}: {e}: install {tool}"));
            assert!(out.status.success(), "{tool} {options}: {}", String::from_utf8_lossy(&out.stderr));
            fs::write(b.path(output), &out.stdout).unwrap();
            out.stdout
        };
        // The name says nothing.
        let whole = run("a.ko", "module");
        assert_eq!(sites(&b, "module"), plain, "{tool} {options}");
        // What was compressed in two pieces.
        let (head, tail) = fs::read(b.path("a.ko")).map(|all| (all[..999].to_vec(), all[999..].to_vec())).unwrap();
        fs::write(b.path("head"), head).unwrap();
        fs::write(b.path("tail"), tail).unwrap();
        let pieces = [run("head", "module"), run("tail", "module")].concat();
        fs::write(b.path("module"), pieces).unwrap();
        assert_eq!(sites(&b, "module"), plain, "{tool} {options}");
        let checked = !options.contains("--no-check") && !options.contains("=none");
        for at in (0..whole.len()).step_by(whole.len() / 40) {
            fs::write(b.path("cut"), &whole[..at]).unwrap();
            b.refuses(&["sites", "cut"], &["cut"]);
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(b.path("damaged"), damaged).unwrap();
            let out = b.run(&["sites", "damaged", "--format", "json"]);
            let json: Option<Value> = serde_json::from_slice(&out.stdout).ok();
            let harmless = json.as_ref() == Some(&plain);
            assert!(matches!(out.status.code(), Some(0 | 2)), "{tool} {options} {at}: {out:?}");
            assert!(!checked || harmless || out.status.code() == Some(2), "{tool} {options} {at}: {json:?}");
        }
    }
    // Too much in too little.
    let zeros = fs::File::create(b.path("zeros")).unwrap();
    zeros.set_len((1 << 29) + 1).unwrap();
    b.tool("zstd", &["-q", "zeros", "-o", "zeros.zst"]);
    assert!(fs::metadata(b.path("zeros.zst")).unwrap().len() < 1 << 20);
    b.refuses(&["sites", "zeros.zst"], &["zeros.zst: zstd: more than 536870912 bytes; valid: "]);
}

/// Names are as long as a compiler makes them; only the sites' own are shown.
#[test]
fn names_of_any_length_are_no_hindrance() {
    let b = Bench::new();
    let (long, longer) = ("f".repeat(900), "g".repeat(5000));
    let text = format!("int {long}(int a) {{ return a; }}\nint {longer}(int a) {{ return a + 1; }}\n");
    fs::write(b.path("long.c"), text).unwrap();
    for (arch, prefix) in arches() {
        let kinds = expected(tool::backend(arch).unwrap()).sites.kind;
        compile(&b, prefix, &[&words(&kinds[0].options)[..], &["-O2", "-c", "long.c", "-o", "long.o"]].concat());
        let json = sites(&b, "long.o");
        assert_eq!((total(&json, "entries"), total(&json, "patchable")), (2, 2), "{json}");
        let names = json["sites"].as_array().unwrap().iter().map(|s| s["function"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), [&long, &longer[..4096]], "{arch}");
    }
}

/// A kernel has its list in another section: between two symbols, or, stripped, where nothing names it.
#[test]
fn a_kernels_list_is_found_with_and_without_symbols() {
    let b = Bench::new();
    let functions: String = (0..150).map(|i| format!("int f{i}(int a) {{ return a + {i}; }}\n")).collect();
    fs::write(b.path("a.c"), functions + "void __fentry__(void) {}\nvoid _start(void) {}\n").unwrap();
    let script = "SECTIONS { . = 0xffffffff81000000; .text : { *(.text .text.*) } .data : { *(.data) QUAD(1) . = ALIGN(8); \
                  __start_mcount_loc = .; KEEP(*(__mcount_loc)) __stop_mcount_loc = .; QUAD(2) } }\n";
    fs::write(b.path("k.ld"), script).unwrap();
    let options = ["-O2", "-pg", "-mfentry", "-mrecord-mcount", "-fno-pie", "-fcf-protection=none", "-mcmodel=kernel"];
    let link = ["-nostdlib", "-static", "-no-pie", "-T", "k.ld", "a.c", "-o", "vmlinux"];
    compile(&b, "x86_64-linux-gnu-", &[&options[..], &link].concat());
    let with = sites(&b, "vmlinux");
    b.tool("x86_64-linux-gnu-strip", &["vmlinux", "-o", "stripped"]);
    let without = sites(&b, "stripped");
    let addresses = |json: &Value| -> Vec<u64> {
        json["sites"].as_array().unwrap().iter().map(|s| s["address"].as_u64().unwrap()).collect()
    };
    assert_eq!(addresses(&with).len(), 152);
    assert_eq!(addresses(&with), addresses(&without));
    assert_eq!(with["sites"][3]["function"], "f3");
    assert_eq!((total(&with, "patchable"), total(&without, "patchable")), (152, 152));
    assert_eq!(without["sites"][3]["function"], "");
}

#[test]
#[ignore = "needs clang-14; `./x test` runs it where that is installed"]
fn sleds_of_clang() {
    let b = Bench::new();
    fs::write(b.path("a.c"), SOURCE).unwrap();
    for (target, prefix) in [("x86_64-linux-gnu", "x86_64-linux-gnu-"), ("aarch64-linux-gnu", "aarch64-linux-gnu-")] {
        let options = ["-O2", "-fxray-instrument", "-fxray-instruction-threshold=1", "-c", "a.c", "-o", "a.o"];
        let run = Command::new("clang-14").args(["-target", target]).args(options).current_dir(b.path("")).output();
        assert!(run.unwrap().status.success());
        compile(&b, prefix, &["-nostdlib", "-shared", "a.o", "-o", "a.so"]);
        let named = functions(&b, prefix, "a.o");
        let headers = b.tool(&format!("{prefix}readelf"), &["-SW", "a.o"]);
        // One section for each function: [Nr] Name Type Address Off Size ES Flg Lk Inf Al.
        let lines = headers.lines().filter(|l| l.contains(" xray_instr_map "));
        let sizes = lines.map(|l| u64::from_str_radix(l.split_whitespace().rev().nth(5).unwrap(), 16).unwrap());
        let entries = sizes.sum::<u64>() / 32;
        for file in ["a.o", "a.so"] {
            let json = sites(&b, file);
            let of = |kind: &str| json["sites"].as_array().unwrap().iter().filter(|s| s["kind"] == kind).count();
            assert_eq!(
                (total(&json, "entries"), total(&json, "patchable")),
                (entries, entries),
                "{target} {file} {json}"
            );
            assert_eq!(of("entry"), named.len(), "{target} {file}");
            assert_eq!(of("entry") + of("exit") + of("tail call"), entries as usize, "{target} {file}");
        }
    }
}
