//! Files that compilers have made: which functions have a site, and what debug information says of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use session::debug_info::DebugInfo;
use session::object::Object;
use session::prototypes;

const SOURCE: &str = "
struct two { int a, b; };
__attribute__((noinline)) int twice(int n) { return 2 * n; }
__attribute__((noinline)) long many(struct two s, const char *p, double x, long n) { return s.a + *p + (long)x + n; }
int main(int words, char **word) { return many((struct two){1, 2}, word[0], 1.5, twice(words)) == 0; }
";

/// Compile it as `name`.
fn compile(dir: &Path, source: &str, name: &str, compiler: &str, options: &[&str]) {
    fs::write(dir.join("source.c"), source).unwrap();
    let run = Command::new(compiler).args(options).args(["-o", name, "source.c"]).current_dir(dir).output().unwrap();
    assert!(run.status.success(), "{compiler} {options:?}: {}", String::from_utf8_lossy(&run.stderr));
}

/// Functions with a site, and how many have one that cannot be written to.
fn functions(path: &Path, arch: &str) -> (Vec<String>, usize) {
    let object = Object::read(path, false, arch::backend(arch).unwrap()).unwrap();
    let mut names: Vec<String> = object.functions.iter().map(|f| f.name.clone()).collect();
    names.sort();
    (names, object.refused.len())
}

/// The call of a profiler is a site if it comes first, with a list or without, however the profiler is reached. If it comes behind a
/// prologue, the function is one to be recorded too. XRay's sleds are sites.
#[test]
fn sites_of_compilers() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let all = (["main", "many", "twice"].map(str::to_owned).to_vec(), 0);
    for (options, wanted) in [
        (&["-O2", "-pg", "-mfentry"][..], &all),
        (&["-O0", "-pg", "-mfentry", "-fcf-protection=full"], &all),
        (&["-O2", "-pg", "-mfentry", "-no-pie", "-fno-pie"], &all),
        (&["-O2", "-pg", "-mfentry", "-fno-plt", "-Wl,-z,now"], &all),
        (&["-O2", "-pg", "-mfentry", "-fPIC", "-shared"], &all),
        (&["-O2", "-pg", "-mfentry", "-mrecord-mcount", "-no-pie", "-fno-pie"], &all),
        (&["-O2", "-pg", "-mfentry", "-mrecord-mcount", "-w"], &all),
        (&["-O2", "-fpatchable-function-entry=5"], &all),
        (&["-O2", "-pg"], &all),
        (&["-O0", "-pg", "-no-pie", "-fno-pie"], &all),
        (&["-O2"], &(Vec::new(), 0)),
    ] {
        compile(dir, SOURCE, "program", "x86_64-linux-gnu-gcc", options);
        assert_eq!(functions(&dir.join("program"), "x86_64"), *wanted, "{options:?}");
    }
    for (arch, prefix) in [("arm64", "aarch64"), ("riscv64", "riscv64")] {
        for options in [&["-O2", "-pg"][..], &["-O0", "-pg", "-no-pie", "-fno-pie"]] {
            compile(dir, SOURCE, "program", &format!("{prefix}-linux-gnu-gcc"), options);
            assert_eq!(functions(&dir.join("program"), arch), all, "{arch} {options:?}");
        }
    }
    compile(dir, SOURCE, "program", "clang-14", &["-O2", "-fpatchable-function-entry=5"]);
    assert_eq!(functions(&dir.join("program"), "x86_64"), all);
    let sleds = ["-O2", "-fxray-instrument", "-fxray-instruction-threshold=1", "-c"];
    for (arch, prefix, target) in [("x86_64", "x86_64", "x86_64-linux-gnu"), ("arm64", "aarch64", "aarch64-linux-gnu")]
    {
        let target = format!("--target={target}");
        compile(dir, SOURCE, "sleds.o", "clang-14", &[&sleds[..], &[&target]].concat());
        let status = Command::new(format!("{prefix}-linux-gnu-gcc"))
            .args(["sleds.o", "-o", "program"])
            .current_dir(dir)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{arch}");
        assert_eq!(functions(&dir.join("program"), arch), all, "{arch}");
    }
}

/// Whatever stands in debug information gives prototypes or none, and no panic.
#[test]
fn damaged_debug_information_gives_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    for options in [&["-O2", "-g"][..], &["-O2", "-gdwarf-4", "-freorder-blocks-and-partition"]] {
        compile(dir, SOURCE, "program", "x86_64-linux-gnu-gcc", options);
        let bytes = fs::read(dir.join("program")).unwrap();
        let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*bytes).unwrap();
        let section = |name: &str| {
            use object::{Object as _, ObjectSection as _};
            file.section_by_name(name).and_then(|s| s.data().ok()).unwrap_or_default()
        };
        let wanted: BTreeSet<u64> = {
            use object::{Object as _, ObjectSymbol as _};
            file.symbols().filter(|s| matches!(s.name(), Ok("main" | "many" | "twice"))).map(|s| s.address()).collect()
        };
        let whole = DebugInfo::new(section).unwrap().functions(&wanted);
        assert!(whole.len() == 3 && whole.values().all(Result::is_ok), "{whole:?}");
        let mut random = 1_u64;
        for name in [".debug_info", ".debug_abbrev"] {
            for _ in 0..2000 {
                let mut damaged = section(name).to_vec();
                for _ in 0..3 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let at = (random >> 33) as usize % damaged.len();
                    damaged[at] = (random >> 20) as u8;
                }
                let found = DebugInfo::new(|other| if other == name { &damaged } else { section(other) });
                let known = found.map_or(0, |found| found.functions(&wanted).len());
                assert!(known <= wanted.len());
            }
        }
    }
}

/// A result that may be in a vector register is not taken for one in memory, whose address is the first argument.
#[test]
fn results_in_vector_registers() {
    const SOURCE: &str = "
typedef double numbers __attribute__((vector_size(32)));
struct vector { numbers all; };
struct array { double all[4]; };
struct vector vector(int n) { return (struct vector){{n}}; }
struct array array(int n) { return (struct array){{n}}; }
int main(void) { return array(vector(1).all[1]).all[1]; }
";
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let site = "-fpatchable-function-entry=5";
    compile(dir, SOURCE, "program", "x86_64-linux-gnu-gcc", &["-O0", "-g", "-mavx", site]);
    let backend = arch::backend("x86_64").unwrap();
    let mut object = Object::read(&dir.join("program"), false, backend).unwrap();
    prototypes::read(&mut object, backend).unwrap();
    let word = |name: &str| {
        let function = object.functions.iter().find(|f| f.name == name).unwrap();
        let parameters = function.signature.as_ref().unwrap().parameters.as_ref().unwrap();
        parameters[0].word.map(|(word, _)| word)
    };
    assert_eq!(word("array"), Ok(1));
    assert_eq!(word("vector"), Err("its result may be in memory, whose address would come first"));
}

/// A site of 5 bytes and a body of 3 are as long as what some sites have before them: the next function does not get them. Neither does it
/// if ENDBR64 comes before the site.
#[test]
fn functions_of_8_bytes_have_a_site_of_their_own() {
    let source = "int zero(void) { return 0; }\nint same(int n) { return n; }\nint main(void) { return 1; }\n";
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    for pads in ["-fcf-protection=none", "-fcf-protection=full"] {
        let options = ["-O2", "-fno-toplevel-reorder", "-falign-functions=1", "-fpatchable-function-entry=5", pads];
        compile(dir, source, "program", "x86_64-linux-gnu-gcc", &options);
        let names = ["main", "same", "zero"].map(str::to_owned);
        assert_eq!(functions(&dir.join("program"), "x86_64"), (names.to_vec(), 0), "{pads}");
    }
}

/// Without debug information, and with some that is not read, nothing is known, and each function says why.
#[test]
fn what_is_not_known_has_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let site = "-fpatchable-function-entry=5";
    let backend = arch::backend("x86_64").unwrap();
    for (options, why) in [
        (&["-O2", site][..], "no debug information: compile with -g"),
        (
            &["-O2", site, "-g", "-gz=zlib"],
            "its debug information is compressed: link with -Wl,--compress-debug-sections=none",
        ),
        (
            &["-O2", site, "-g", "-gsplit-dwarf"],
            "its debug information is in another file: compile without -gsplit-dwarf",
        ),
    ] {
        compile(dir, SOURCE, "program", "x86_64-linux-gnu-gcc", options);
        let mut object = Object::read(&dir.join("program"), false, backend).unwrap();
        prototypes::read(&mut object, backend).unwrap();
        assert_eq!(object.functions.len(), 3);
        for function in &object.functions {
            let signature = function.signature.as_ref().unwrap();
            assert_eq!((signature.result, signature.words()), (Err(why), 0), "{options:?}");
        }
    }
}
