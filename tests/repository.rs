//! Tests of the repository itself.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use codegen::ask::spec::{Direct, Spec};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `dir` whose names end so, but those that git and cargo make.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let made = |name: &str| name == "target" || name.starts_with('.');
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let entry = entry.unwrap();
        let path = entry.path();
        if path.is_dir() {
            if !made(&entry.file_name().to_string_lossy()) {
                all.extend(files(&path, ending));
            }
        } else if path.to_string_lossy().ends_with(ending) {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// Every mnemonic that the generators print, as the listings show them.
fn mnemonics() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for backend in tool::BACKENDS {
        for target in common::targets(*backend) {
            let direct = Spec::direct("t", Direct { args: 1, ip: true, ..Direct::default() }, "f");
            for spec in target.convention.specs().chain([direct]) {
                for line in backend.text(&spec, &target).unwrap().lines {
                    if line.kind == codegen::out::text::LineKind::Insn {
                        all.insert(line.text.split_whitespace().next().unwrap().to_owned());
                    }
                }
            }
        }
    }
    all
}

#[test]
fn no_mnemonic_in_a_template() {
    let mnemonics = mnemonics();
    assert!(mnemonics.contains("stp") && mnemonics.contains("endbr64") && mnemonics.contains("auipc"));
    // Pages are prose: and, or, call.
    let is_page = |path: &Path| ["html", "css", "js"].iter().any(|e| path.extension().is_some_and(|is| is == *e));
    for template in files(&root().join("templates/templates"), "").into_iter().filter(|path| !is_page(path)) {
        // One is make's, one is in the name of a function of the kernel.
        let text = fs::read_to_string(&template).unwrap().replace("$(call ", "$(").replace("ftrace_jmp_set(", "(");
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            assert!(!mnemonics.contains(word), "{}: {word} is an instruction", template.display());
        }
    }
}

#[test]
fn every_backend_has_the_same_files() {
    let names = |arch: &str| -> BTreeSet<String> {
        let all = files(&root().join(arch).join("src"), ".rs");
        all.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    let first = names("arch-x86_64");
    assert!(first.contains("lower.rs") && first.contains("insn.rs"));
    for arch in ["arch-arm64", "arch-riscv"] {
        assert_eq!(names(arch), first, "{arch}");
    }
}

/// Whose unit tests are not compiled has none.
#[test]
fn no_unit_test_is_left_out() {
    let mut without = 0;
    for manifest in files(&root(), "Cargo.toml") {
        let folder = manifest.parent().unwrap().join("src");
        if !fs::read_to_string(&manifest).unwrap().lines().any(|line| line == "test = false") || !folder.is_dir() {
            continue;
        }
        without += 1;
        for source in files(&folder, ".rs") {
            assert!(!fs::read_to_string(&source).unwrap().contains("#[test]"), "{}", source.display());
        }
    }
    assert!(without >= 6, "{without}");
}

#[test]
fn every_backend_is_in_every_matrix() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for backend in tool::BACKENDS {
        let name = backend.facts().name;
        assert!(root().join("emu-tests/fixtures").join(name).is_dir(), "{name} has no fixtures");
        assert!(readme.contains(name), "{name} is not in README.md");
    }
}

/// The fuzz crate is a workspace of its own and would compile the emulator again, so no other check builds its targets:
/// each must be no more than a call of what tests/robust.rs compiles and runs.
#[test]
fn every_fuzz_target_is_run_without_a_fuzzer_too() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (manifest, readme) = (read("fuzz/Cargo.toml"), read("fuzz/README.md"));
    let (library, robust) = (read("fuzz/src/lib.rs"), read("tests/robust.rs"));
    let targets = files(&root().join("fuzz/fuzz_targets"), ".rs");
    assert_eq!(targets.len(), manifest.matches("[[bin]]").count());
    for target in targets {
        let name = target.file_stem().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&target).unwrap();
        let calls = |text: &str, what: String| assert!(text.contains(&what), "{name}: no {what}");
        calls(&text, format!("fuzz::{name}("));
        assert!(text.lines().count() <= 6, "{name}: the work belongs into fuzz/src/lib.rs");
        calls(&manifest, format!("path = \"fuzz_targets/{name}.rs\""));
        calls(&readme, format!("| `{name}`"));
        calls(&readme, format!("fuzz run {name} "));
        calls(&library, format!("pub fn {name}("));
        calls(&robust, format!("targets::{name}"));
    }
}

/// Who uses the library has a command line of his own, or none.
#[test]
fn the_library_leaves_arguments_to_the_binary() {
    let src = root().join("src");
    let of_library =
        files(&src, "rs").into_iter().filter(|f| !f.starts_with(src.join("cmd")) && *f != src.join("main.rs"));
    let all: Vec<PathBuf> = of_library.collect();
    assert!(all.len() > 10);
    for file in all {
        assert!(!std::fs::read_to_string(&file).unwrap().contains("clap"), "{}", file.display());
    }
}

#[test]
fn unsafe_code_is_named_in_the_design() {
    let dirs = [
        "codegen",
        "link",
        "arch-x86_64",
        "arch-arm64",
        "arch-riscv",
        "templates",
        "emu-tests",
        "src",
        "lab",
        "fuzz/src",
        "tramptool",
        "examples",
    ];
    let design = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    for file in dirs.iter().flat_map(|d| files(&root().join(d), ".rs")) {
        let text = fs::read_to_string(&file).unwrap();
        let inside = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if text.contains("unsafe {") {
            assert!(design.contains(&inside), "{inside} has unsafe code that DESIGN.md does not name");
        }
    }
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(char::is_whitespace))
}

/// The names that `a/{b,c}` stands for.
fn alternatives(name: &str) -> Vec<String> {
    let Some((before, (inside, after))) = name.split_once('{').and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
    else {
        return vec![name.to_owned()];
    };
    inside.split(',').map(|one| format!("{before}{one}{after}")).collect()
}

/// Is there something of this name? A short one may leave out the folders above it.
fn is_there(all: &[PathBuf], name: &str) -> bool {
    let fits = |wanted: &str, name: &str| match wanted.split_once('*') {
        Some((before, after)) => name.starts_with(before) && name.ends_with(after),
        None => name == wanted,
    };
    let wanted: Vec<&str> = name.trim_end_matches('/').split('/').collect();
    all.iter().any(|path| {
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        parts.windows(wanted.len()).any(|parts| wanted.iter().zip(parts).all(|(wanted, part)| fits(wanted, part)))
    })
}

/// Files and folders of ours that the pages name, and that are not there.
#[test]
fn the_pages_name_files_that_exist() {
    let all: Vec<PathBuf> =
        files(&root(), "").into_iter().map(|f| f.strip_prefix(root()).unwrap().to_path_buf()).collect();
    let above: BTreeSet<_> = all.iter().filter_map(|f| Some(f.iter().next()?.to_string_lossy().into_owned())).collect();
    // Linux has folders of these names too.
    let ours = |name: &str| above.contains(name) && !["arch", "tests"].contains(&name);
    let is_path = |name: &str| {
        name.ends_with(".rs") || name.split_once('/').is_some_and(|(first, rest)| ours(first) && !rest.is_empty())
    };
    let pages = ["DESIGN.md", "CONTRIBUTING.md", "README.md"].map(|page| root().join(page)).into_iter();
    let mut named = 0;
    for page in pages.chain(files(&root().join("docs"), ".md")) {
        let text = fs::read_to_string(&page).unwrap();
        for name in quoted(&text).filter(|name| is_path(name)).flat_map(alternatives) {
            assert!(is_there(&all, &name), "{}: there is no {name}", page.display());
            named += 1;
        }
    }
    assert!(named > 100, "{named}");
}

/// The map for those who are new here has whole paths, to open.
#[test]
fn the_map_leads_to_files() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 10, "{rows:?}");
    for row in rows {
        let (_, place) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap_or_else(|| panic!("{row}"));
        assert_ne!(quoted(place).count(), 0, "{row}");
        for path in quoted(place) {
            assert!(root().join(path).is_file(), "CONTRIBUTING.md: there is no {path}");
        }
    }
}

/// The folders in DESIGN.md's picture of the whole.
fn drawn() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("DESIGN.md")).unwrap();
    let picture = text.split("<!-- picture -->\n```text\n").nth(1).unwrap().split("```").next().unwrap();
    let folders = picture.split([' ', ',', ';', '\n']).filter_map(|word| word.strip_suffix('/'));
    folders.map(str::to_owned).collect()
}

#[test]
fn the_picture_has_every_room_and_no_other() {
    let drawn = drawn();
    for folder in &drawn {
        assert!(root().join(folder).is_dir(), "DESIGN.md draws {folder}/, which is not there");
    }
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    assert!(members.len() > 10);
    for member in members.iter().map(|member| member.as_str().unwrap()) {
        let has = |folder: &String| *folder == member || folder.starts_with(&format!("{member}/"));
        assert!(drawn.iter().any(has), "DESIGN.md draws no {member}/");
    }
}

/// What lies at the root beside the rooms: what a reader or a tool looks for there. What a command writes into the working directory
/// does not stay.
#[test]
fn nothing_else_lies_at_the_root() {
    const TEXTS: [&str; 5] = ["README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-GPL-2.0", "LICENSE-MIT"];
    const OF_TOOLS: [&str; 13] = [
        ".cargo",
        ".ci",
        ".git",
        ".github",
        ".gitignore",
        "Cargo.lock",
        "Cargo.toml",
        "book.toml",
        "deny.toml",
        "docs",
        "rustfmt.toml",
        "supply-chain",
        "x",
    ];
    const BESIDE: [&str; 4] = ["examples", "fuzz", "results", "tests"];
    let rooms = drawn().into_iter().map(|folder| folder.split('/').next().unwrap().to_owned());
    let known = [&TEXTS[..], &LICENCES, &OF_TOOLS, &BESIDE].concat().into_iter().map(str::to_owned).chain(rooms);
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    let ignored = ignored.lines().map(|line| line.trim_matches('/').to_owned());
    let known: BTreeSet<String> = known.chain(ignored).collect();
    let there = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stray: Vec<String> = there.filter(|name| !known.contains(name)).collect();
    assert_eq!(stray, [""; 0], "they are no part of the repository");
}

/// On a system that has this and nothing else, `./x` says what is missing, and how to get it.
#[test]
fn a_bare_system_is_told_what_it_lacks() {
    const SHELL: [&str; 4] = ["bash", "dirname", "sed", "grep"];
    let told = |programs: &[(&str, &str)], words: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        for name in SHELL {
            let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|at| at.join(name))
                .find(|at| at.exists());
            std::os::unix::fs::symlink(real.unwrap(), dir.path().join(name)).unwrap();
        }
        for (name, does) in [("id", "echo 1000"), ("dpkg-query", "exit 1")].iter().chain(programs) {
            let at = dir.path().join(name);
            fs::write(&at, format!("#!{}\n{does}\n", dir.path().join("bash").display())).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut x = Command::new(dir.path().join("bash"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("x");
        let out = x.arg(script).args(words).env("PATH", dir.path()).output().unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{words:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let (cargo, apt, sudo) = (("cargo", "exit 9"), ("apt-get", "exit 9"), ("sudo", "exit 9"));
    assert!(told(&[], &["demo"]).starts_with("x: cargo is missing; install Rust 1."));
    assert!(told(&[cargo], &["demo"]).starts_with("x: this system has no apt-get; install what Debian calls: gcc "));
    let root = told(&[cargo, apt], &["demo"]);
    assert!(root.contains("install them as root, with:\n    apt-get update && apt-get install -y "), "{root}");
    let user = told(&[cargo, apt, sudo], &["install"]);
    assert!(user.contains("with:\n    sudo apt-get update && sudo apt-get install -y "), "{user}");
    assert!(["gcc", "g++", "cmake", "ca-certificates"].iter().all(|package| user.contains(package)), "{user}");
    let failed = told(&[cargo, apt, ("id", "echo 0")], &["demo"]);
    assert!(failed.contains("x: apt-get failed, for the reason above; x needs these packages: gcc "), "{failed}");
    assert!(told(&[], &["demo", "--nota"]).contains("'--nota' of demo; valid: --note"));
}

/// `./x test` with programs that only note what they are called with.
fn fake_test(words: &[&str]) -> (std::process::Output, String) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("calls");
    let notes = format!("echo \"offline=${{CARGO_NET_OFFLINE:-}} $*\" >>{}", log.display());
    let result = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s'";
    let cargo = format!("{notes}\n[ \"$1\" != test ] || {result}");
    let empty = "exit 0";
    for (name, does) in [
        ("cargo", cargo.as_str()),
        ("dpkg-query", "echo install ok installed"),
        ("apt-get", "exit 9"),
        ("qemu-system-x86_64", empty),
        ("qemu-system-aarch64", empty),
    ] {
        let at = dir.path().join(name);
        fs::write(&at, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut x = Command::new(root().join("x"));
    let out = x.arg("test").args(words).env("PATH", path).env_remove("CARGO_NET_OFFLINE").output().unwrap();
    (out, fs::read_to_string(&log).unwrap())
}

#[test]
fn tests_need_no_network_unless_kernels_are_asked_for() {
    let (out, calls) = fake_test(&[]);
    assert!(out.status.success(), "{out:?}");
    let mut calls = calls.lines();
    // The only calls that may fetch ask first whether they must.
    for manifest in ["Cargo.toml", "lab/bench/live/Cargo.toml"] {
        let call = format!("offline= fetch --locked --offline --manifest-path {manifest}");
        assert_eq!(calls.next(), Some(call.as_str()));
    }
    for call in calls {
        assert!(call.starts_with("offline=true ") && !call.contains("--fetch"), "{call}");
    }
    let (_, calls) = fake_test(&["--kernels"]);
    assert!(calls.contains(" xtask modules --fetch "), "{calls}");
}

#[test]
fn the_time_of_tests_has_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    let budget = |lines: &[(&str, f64)]| {
        let log = dir.path().join("log");
        let lines = lines.iter().map(|(name, seconds)| {
            format!("     Running tests/{name}.rs (target/debug/deps/{name}-00112233aabbccdd)\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in {seconds}s\n")
        });
        fs::write(&log, lines.collect::<String>()).unwrap();
        let out = Command::new(root().join("x")).arg("budget").arg(&log).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    };
    let text = fs::read_to_string(root().join("tests/budget.txt")).unwrap();
    let rows = text.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != "#");
    let limits: std::collections::BTreeMap<&str, f64> = rows.map(|(name, n)| (name, n.parse().unwrap())).collect();
    let (book, others) = (limits["book"], limits["others"]);
    let (good, out) = budget(&[("book", book - 1.0), ("api", others - 1.0)]);
    assert!(good && out.starts_with("x: the test programs took "), "{out}");
    let (good, out) = budget(&[("book", book * 2.0)]);
    assert!(good && out.starts_with("x: book took ") && !out.contains("too long"), "{out}");
    let (good, out) = budget(&[("api", others * 3.0 + 1.0)]);
    assert!(!good && out.starts_with("x: api took ") && out.contains("too long"), "{out}");
    // A row for a program that is gone is of no use.
    let packages = files(&root(), "Cargo.toml").into_iter().filter_map(|file| {
        let text = fs::read_to_string(file).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(name.trim_matches('"').replace('-', "_"))
    });
    let programs: BTreeSet<String> = files(&root(), ".rs")
        .iter()
        .filter_map(|file| {
            let file = file.strip_prefix(root()).unwrap();
            let name = if file.ends_with("main.rs") { file.parent()?.file_name()? } else { file.file_stem()? };
            file.iter().any(|part| part == "tests").then(|| name.to_string_lossy().into_owned())
        })
        .chain(packages)
        .collect();
    let gone: Vec<_> = limits.keys().filter(|n| !["all", "others"].contains(n) && !programs.contains(**n)).collect();
    assert_eq!(gone, [&""; 0]);
}

/// A tag can be moved to other code; a commit cannot.
#[test]
fn actions_of_others_are_named_by_commits() {
    let mut seen = 0;
    for path in files(&root().join(".github"), ".yml") {
        let text = std::fs::read_to_string(&path).unwrap();
        for used in text.lines().filter_map(|line| line.trim_start().trim_start_matches("- ").strip_prefix("uses: ")) {
            let (commit, tag) = used.split_once('@').and_then(|(_, at)| at.split_once(" # ")).unwrap_or((used, ""));
            let whole = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(whole && tag.starts_with('v'), "{}: {used}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0);
}
