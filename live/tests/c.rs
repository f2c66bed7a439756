//! The header and its functions, in a program of C.

use std::process::Command;

#[test]
fn a_program_of_c_attaches_to_its_functions() {
    let root = env!("CARGO_MANIFEST_DIR");
    let directory = tempfile::tempdir().unwrap();
    let args = ["rustc", "--locked", "-p", "tramptool-live", "--lib", "--features", "c", "--crate-type", "staticlib"];
    // With features of its own, all that it needs is compiled again: soon, then.
    let built = Command::new(env!("CARGO"))
        .args(args)
        .args(["--profile", "quick"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&built.stdout);
    let library = text.split('"').find(|word| word.ends_with("libtramptool_live.a"));
    let library = library.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&built.stderr)));
    let program = directory.path().join("program");
    for standard in ["-std=c99", "-std=gnu17"] {
        let header = format!("{root}/include/tramptool_live.h");
        let alone = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", standard, &header];
        assert!(Command::new("gcc").args(alone).status().unwrap().success(), "{standard}");
    }
    let header = format!("{root}/include/tramptool_live.h");
    let alone = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-std=c++11", "-x", "c++", &header];
    assert!(Command::new("g++").args(alone).status().unwrap().success(), "C++");
    let include = format!("-I{root}/include");
    let source = format!("{root}/tests/program.c");
    let gcc = ["-O2", "-Wall", "-Werror", &include, &source, library, "-pthread", "-ldl", "-lm", "-o"];
    assert!(Command::new("gcc").args(gcc).arg(&program).status().unwrap().success());
    let run = Command::new(&program).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
