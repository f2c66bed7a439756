//! Others can depend on the library: a crate builds from what crates.io would have of ours, beside later patch releases of what
//! ours use. Nothing is fetched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages whose exact release decides which bytes a trampoline has; Cargo.toml pins them.
const PINNED: [&str; 2] = ["dynasm", "dynasmrt"];

const MANIFEST: &str = r#"
[package]
name = "dependent"
version = "0.1.0"
edition = "2024"

[dependencies]
tramptool = "0.1"
"#;

/// Releases that the dependent asks for itself.
const WANTED: [&str; 3] = ["object", "serde", "toml"];

/// All packages come from a directory, in place of crates.io.
const CONFIG: &str = r#"
[source.crates-io]
replace-with = "vendor"
[source.vendor]
directory = "vendor"
[profile.dev]
debug = false
"#;

/// What a dependent does: it generates an object and reads it with a release of `object` that it chose itself.
const MAIN: &str = r#"
use object::{Object, ObjectSymbol};
use tramptool::{Spec, Target, generate};

fn main() {
    let target = Target::with_profile("x86_64", "bare").unwrap();
    let made = generate(&target, &[Spec::direct("on_free").sig("void free(void *p)")]).unwrap();
    let object = made.object().unwrap();
    let file = object::File::parse(&object[..]).unwrap();
    let names = file.symbols().filter(|s| s.is_definition()).map(|s| s.name().unwrap().to_owned());
    println!("{}", names.collect::<Vec<_>>().join(" "));
}
"#;

/// Run a command that must succeed; return what it prints.
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(dir).env_remove("RUSTFLAGS").env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo
}

/// The name, the version and the manifest of each package that the library needs without the emulator, for any system.
fn needed(root: &Path) -> Vec<(String, String, PathBuf)> {
    let metadata = run(cargo(root).args([
        "metadata",
        "--offline",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]));
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let tree = ["tree", "--offline", "--package", "tramptool", "--edges", "normal,build", "--prefix", "none"];
    let tree = run(cargo(root).args(tree).args(["--format", "{p}"]));
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (text(&p["name"]), text(&p["version"]), PathBuf::from(text(&p["manifest_path"]))));
    packages
        .filter(|(name, version, _)| {
            tree.lines().any(|line| {
                let mut words = line.split(' ');
                words.next() == Some(name) && words.next().and_then(|v| v.strip_prefix('v')) == Some(version)
            })
        })
        .collect()
}

/// The next patch release: 1.0.229 becomes 1.0.230.
fn next(version: &str) -> String {
    let (version, _) = version.split_once('+').unwrap_or((version, ""));
    let (minor, patch) = version.rsplit_once('.').unwrap();
    format!("{minor}.{}", patch.parse::<u32>().unwrap() + 1)
}

/// Make a package in a directory one that cargo takes as it is.
fn checksum(package: &Path) {
    fs::write(package.join(".cargo-checksum.json"), r#"{"files":{}}"#).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(path, to).unwrap();
        }
    }
}

#[test]
fn a_dependent_builds_from_the_archives_beside_later_releases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let vendor = dir.path().join("vendor");
    fs::create_dir(&vendor).unwrap();
    let needed = needed(root);
    let (ours, others): (Vec<_>, Vec<_>) = needed.iter().partition(|(_, _, manifest)| manifest.starts_with(root));
    assert!(ours.len() >= 9 && others.len() >= 30, "{needed:?}");

    let mut package = cargo(root);
    package.args([
        "package",
        "--workspace",
        "--exclude",
        "xtask",
        "--exclude",
        "tramptool-bench",
        "--exclude",
        "tramptool-images",
    ]);
    package.args(["--offline", "--no-verify", "--allow-dirty", "--exclude-lockfile", "--target-dir"]);
    run(package.arg(dir.path().join("packed")));
    for (name, version, _) in &ours {
        let archive = dir.path().join(format!("packed/package/{name}-{version}.crate"));
        run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&vendor));
        checksum(&vendor.join(format!("{name}-{version}")));
    }

    let mut manifest = MANIFEST.to_owned();
    for (name, version, source) in &others {
        let to = vendor.join(format!("{name}-{version}"));
        copy(source.parent().unwrap(), &to);
        checksum(&to);
        if PINNED.contains(&name.as_str()) {
            continue;
        }
        let next = next(version);
        let (file, was) = (to.join("Cargo.toml"), format!("\nversion = \"{version}\"\n"));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(&was), "{text}");
        // Packages that come together, as serde and serde_derive, ask for each other's exact release.
        let text =
            text.replacen(&was, &format!("\nversion = \"{next}\"\n"), 1).replace("version = \"=", "version = \"");
        fs::write(file, text).unwrap();
        if WANTED.contains(&name.as_str()) {
            manifest += &format!("{name} = {{ version = \"={next}\", default-features = false }}\n");
        }
    }
    for (file, text) in [("Cargo.toml", manifest.as_str()), ("src/main.rs", MAIN), (".cargo/config.toml", CONFIG)] {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let target = dir.path().join("target");
    let printed = run(cargo(dir.path()).args(["run", "--quiet", "--offline", "--target-dir"]).arg(target));
    assert_eq!(printed, "on_free_tramp\n");
}
