//! The examples of the repository, built and run as their users would.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A C program that traces its own function, natively or under qemu's user mode.
#[test]
fn the_c_example_traces_itself() {
    let build = tempfile::tempdir().unwrap();
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        let mut make = Command::new("make");
        make.args(["--silent", "-C"]).arg(root().join("examples/c")).arg(format!("ARCH={arch}"));
        make.arg(format!("BUILD={}", build.path().display()));
        make.arg(format!("TRAMPTOOL={}", env!("CARGO_BIN_EXE_tramptool")));
        let run = make.arg("run").output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{arch}: {out}{err}");
        let told = "21 before, 300 traced; 1 call, its argument was 7\n25 traced; 2 calls\n";
        assert_eq!(out, told, "{arch}");
    }
}

/// What others would have to declare otherwise: each compiler takes the header, and the handlers of a prototype are checked.
#[test]
fn headers_compile_and_hold_c_to_the_prototypes() {
    let dir = tempfile::tempdir().unwrap();
    let header = dir.path().join("t.h");
    let compile = |source: &str| {
        let file = dir.path().join("t.c");
        std::fs::write(&file, format!("#include \"t.h\"\n{source}\n")).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).arg(&file).output().unwrap()
    };
    // The header; none of what the profile does not have.
    let emit = |args: &[&str]| {
        let mut gen_h = Command::new(env!("CARGO_BIN_EXE_tramptool"));
        let run = gen_h.arg("gen").args(args).arg("-o").arg(&header).output().unwrap();
        let message = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() || message.contains("valid: "), "{args:?}: {message}");
        run.status.success().then(|| std::fs::read_to_string(&header).unwrap())
    };
    let mut compiled = 0;
    let body = "--function f --call on_entry --exit on_exit";
    for backend in tool::BACKENDS {
        let arch = backend.facts().name;
        for profile in profiles::names().into_iter().filter(|p| tool::profile(p).unwrap().convention(arch).is_ok()) {
            let mut all: Vec<Vec<&str>> = vec![vec!["--all"]];
            all.push(vec!["direct", "--args", "2", "--ip", "--call", "g"]);
            all.push(vec!["direct", "--sig", "void kfree_skb(struct sk_buff *skb)", "--call", "g"]);
            all.push(vec!["programs", "--sig", "int f(long a)", "--fentry", "g"]);
            for form in ["frame", "fregs", "shadow"] {
                let mut around = vec!["around", "--form", form];
                around.extend(body.split(' '));
                around.extend(if form == "frame" { &["--args", "2"][..] } else { &[] });
                all.push(around);
            }
            for mut args in all {
                args.extend(["--arch", arch, "--profile", profile]);
                let Some(text) = emit(&args) else { continue };
                compiled += 1;
                let checked = compile("");
                assert!(checked.status.success(), "{args:?}: {}\n{text}", String::from_utf8_lossy(&checked.stderr));
            }
        }
    }
    assert!(compiled > 30, "{compiled}");
    emit(&["direct", "--sig", "long f(int a, char *b)", "--call", "g", "--arch", "arm64"]);
    assert!(compile("void g(int a, char *b) { (void)a; (void)b; }").status.success());
    assert!(!compile("void g(long a, char *b) { (void)a; (void)b; }").status.success());
}

/// The unikernel's own build script makes its trampolines; it patches itself in the emulator.
#[test]
fn the_unikernel_builds() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("unikernel");
    let example = root().join("examples/unikernel");
    // The versions of this workspace, which are here already.
    std::fs::copy(root().join("Cargo.lock"), example.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    let status = cargo.args(["build", "--offline", "--quiet", "--target-dir"]).arg(&dir).current_dir(example);
    let status = status.env("CARGO_PROFILE_DEV_DEBUG", "0").status().unwrap();
    assert!(status.success());
    unikernel::runs(&std::fs::read(dir.join("debug/unikernel")).unwrap());
}

mod unikernel {
    use emu_tests::{Holds, engine};
    use object::{Object, ObjectSegment, ObjectSymbol};

    const PAGE: u64 = 0x1000;
    const STACK: u64 = 0x10_0000;

    /// Loads the kernel as a boot loader does, runs it until it halts, and reads what it left.
    pub fn runs(elf: &[u8]) {
        let file = object::File::parse(elf).unwrap();
        let symbol = |name: &str| {
            let found = file.symbols().find(|s| s.name() == Ok(name));
            found.unwrap_or_else(|| panic!("no symbol {name}")).address()
        };
        let backend = arch::backend("x86_64").unwrap();
        let mut cpu = engine(backend, ()).unwrap();
        // What of the file is in one page is mapped once.
        let pages = file.segments().flat_map(|s| {
            let end = (s.address() + s.size()).next_multiple_of(PAGE);
            (s.address() / PAGE * PAGE..end).step_by(PAGE as usize).collect::<Vec<_>>()
        });
        let pages: std::collections::BTreeSet<u64> = pages.collect();
        for page in pages {
            cpu.map(page, PAGE, Holds::Code).unwrap();
        }
        for segment in file.segments() {
            assert!(cpu.store(segment.address(), segment.data().unwrap()));
        }
        cpu.map(STACK, 4 * PAGE, Holds::Data).unwrap();
        let abi = &backend.facts().abi;
        cpu.write(abi.regs[usize::from(abi.sp.0)].emu, STACK + 4 * PAGE).unwrap();
        cpu.run_at_most(file.entry(), symbol("stopped"), 10_000).unwrap();
        assert_eq!(cpu.pc(), symbol("stopped"), "it has not come to its end");
        let word = |at: u64| {
            let mut bytes = [0; 8];
            assert!(cpu.load(at, &mut bytes));
            u64::from_le_bytes(bytes)
        };
        assert_eq!((word(symbol("CALLS")), word(symbol("SUM"))), (1, 7));
        assert_eq!([0, 8].map(|n| word(symbol("RESULTS") + n)), [21, 300]);
    }
}
