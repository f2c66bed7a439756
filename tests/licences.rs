//! Licences, on what cargo itself says: our code is permissive but for the crates that are made to link Unicorn, which is
//! under the GPL. The feature `judge` links it too.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use serde_json::Value;

/// The packages that are there to link Unicorn.
const GPL: [&str; 3] = ["tramptool-emu-tests", "tramptool-bench", "tramptool-images"];
/// Those that link it with the feature `judge` only.
const JUDGE: [&str; 4] = ["tramptool", "tramptool-cli", "tramptool-session", "tramptool-live"];
const LIBRARY_LICENCE: &str = "MIT OR Apache-2.0";

fn metadata(features: &[&str]) -> Value {
    let run = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

fn packages(metadata: &Value) -> HashMap<&str, &Value> {
    let list = metadata["packages"].as_array().unwrap();
    list.iter().map(|p| (p["id"].as_str().unwrap(), p)).collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

fn licence(package: &Value) -> &str {
    package["license"].as_str().unwrap_or("")
}

fn ours<'m>(packages: &HashMap<&'m str, &'m Value>) -> Vec<&'m Value> {
    packages.values().copied().filter(|p| p["source"].is_null()).collect()
}

fn toml(file: &str) -> toml::Table {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap().parse().unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Does `accepted` fulfil an SPDX expression? AND binds tighter than OR; old crates write `/` for OR.
fn fulfils(expression: &str, accepted: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let result = alternatives(&mut rest, accepted);
    result && rest.is_empty()
}

fn alternatives(words: &mut &[&str], accepted: &dyn Fn(&str) -> bool) -> bool {
    let mut result = conjunction(words, accepted);
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        result |= conjunction(words, accepted);
    }
    result
}

fn conjunction(words: &mut &[&str], accepted: &dyn Fn(&str) -> bool) -> bool {
    let mut result = term(words, accepted);
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        result &= term(words, accepted);
    }
    result
}

fn term(words: &mut &[&str], accepted: &dyn Fn(&str) -> bool) -> bool {
    let Some((&word, rest)) = words.split_first() else { return false };
    *words = rest;
    if word == "(" {
        let result = alternatives(words, accepted);
        let closed = words.first() == Some(&")");
        *words = &words[usize::from(closed)..];
        return result && closed;
    }
    if let ["WITH", exception, rest @ ..] = *words {
        *words = rest;
        return accepted(&format!("{word} WITH {exception}"));
    }
    accepted(word)
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let accepted = |l: &str| ["A", "B", "C WITH e"].contains(&l);
    for good in ["A", "X OR A", "A/X", "A AND B", "(X OR A) AND B", "X AND Y OR A", "C WITH e", "(A)"] {
        assert!(fulfils(good, &accepted), "{good}");
    }
    for bad in ["", "X", "A AND X", "(A OR B) AND X", "A AND X OR Y", "C", "A WITH e", "(A", "A)", "A B"] {
        assert!(!fulfils(bad, &accepted), "{bad}");
    }
}

#[test]
fn each_crate_has_its_licence() {
    let metadata = metadata(&[]);
    let ours = ours(&packages(&metadata));
    for gpl in GPL {
        assert!(ours.iter().any(|p| name(p) == gpl), "there is no package {gpl}");
    }
    for package in ours {
        let wanted = if GPL.contains(&name(package)) { "GPL-2.0-only" } else { LIBRARY_LICENCE };
        assert_eq!(licence(package), wanted, "{}", name(package));
    }
    // A workspace of its own, which links the emulator too.
    assert_eq!(toml("fuzz/Cargo.toml")["package"]["license"].as_str(), Some("GPL-2.0-only"));
}

#[test]
fn the_texts_of_the_licences_are_here() {
    for (file, part) in [
        ("LICENSE-MIT", "Permission is hereby granted, free of charge"),
        ("LICENSE-APACHE", "Version 2.0, January 2004"),
        ("LICENSE-GPL-2.0", "Version 2, June 1991"),
    ] {
        let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(text.contains(part), "{file}");
    }
}

/// What each of our packages links, itself among it.
fn linked<'m>(metadata: &'m Value) -> Vec<(&'m Value, Vec<&'m Value>)> {
    let packages = packages(metadata);
    let nodes: HashMap<&str, Vec<&str>> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| {
            // A library's tests may use what they like: only ordinary and build dependencies are linked.
            let normal = |d: &&Value| d["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"] != "dev");
            let deps = n["deps"].as_array().unwrap().iter().filter(normal);
            (n["id"].as_str().unwrap(), deps.map(|d| d["pkg"].as_str().unwrap()).collect())
        })
        .collect();
    let reached = |from: &'m Value| {
        let (mut todo, mut seen) = (vec![from["id"].as_str().unwrap()], HashSet::new());
        while let Some(id) = todo.pop() {
            if seen.insert(id) {
                todo.extend(&nodes[id]);
            }
        }
        (from, seen.into_iter().map(|id| packages[id]).collect())
    };
    ours(&packages).into_iter().map(reached).collect()
}

fn links_unicorn(reached: &[&Value]) -> bool {
    reached.iter().any(|p| name(p).starts_with("unicorn-engine"))
}

#[test]
fn no_library_links_the_emulator() {
    let metadata = metadata(&["--no-default-features"]);
    for (package, reached) in linked(&metadata) {
        if name(package) == "tramptool-emu-tests" {
            assert!(links_unicorn(&reached), "the emulator is not where it was");
        }
        if GPL.contains(&name(package)) {
            continue;
        }
        let mut dependencies = package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"] != "dev");
        assert!(reached.len() > 1 || dependencies.next().is_none(), "{}: nothing was followed", name(package));
        for dependency in reached {
            let free = fulfils(licence(dependency), &|l| !l.contains("GPL-"));
            assert!(free, "{} links {}, {}", name(package), name(dependency), licence(dependency));
            // Nor the other half of the judge, which is as slow to build.
            assert!(!name(dependency).starts_with("capstone"), "{} links {}", name(package), name(dependency));
        }
    }
}

#[test]
fn what_is_under_the_gpl_links_the_emulator() {
    let metadata = metadata(&["--all-features"]);
    let linked = linked(&metadata);
    for gpl in GPL.iter().chain(&JUDGE) {
        let (_, reached) = linked.iter().find(|(p, _)| name(p) == *gpl).unwrap_or_else(|| panic!("no package {gpl}"));
        assert!(links_unicorn(reached), "{gpl} need not be named here");
    }
    let others = linked.iter().filter(|(p, _)| !GPL.iter().chain(&JUDGE).any(|n| *n == name(p)));
    for (package, reached) in others {
        assert!(!links_unicorn(reached), "{} links the emulator", name(package));
    }
}

#[test]
fn every_dependency_is_under_an_accepted_licence() {
    let deny = toml("deny.toml");
    let strings = |list: &toml::Value| -> HashSet<String> {
        list.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    let allowed = strings(&deny["licenses"]["allow"]);
    let exceptions: HashMap<&str, HashSet<String>> = deny["licenses"]["exceptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["name"].as_str().unwrap(), strings(&e["allow"])))
        .collect();
    let metadata = metadata(&[]);
    let packages = packages(&metadata);
    for package in packages.values() {
        let accepted = |licence: &str| {
            allowed.contains(licence) || exceptions.get(name(package)).is_some_and(|e| e.contains(licence))
        };
        assert!(fulfils(licence(package), &accepted), "{}: {} is not in deny.toml", name(package), licence(package));
    }
    for exception in exceptions.keys() {
        assert!(packages.values().any(|p| name(p) == *exception), "deny.toml excepts {exception}, which is not used");
    }
}

/// What must be one release: the engine that judges, and what decides which bytes a trampoline has.
const PINNED: [&str; 3] = ["dynasm", "dynasmrt", "unicorn-engine"];

/// A dependent may need a later patch release of what our libraries use. The least that they take is the one that is tested.
#[test]
fn libraries_take_later_releases_than_the_tested_ones() {
    let (manifest, lock) = (toml("Cargo.toml"), toml("Cargo.lock"));
    let locked = |name: &str, version: &str| {
        lock["package"].as_array().unwrap().iter().any(|p| {
            let is = p["version"].as_str().unwrap();
            p["name"].as_str() == Some(name) && is.split('+').next() == Some(version)
        })
    };
    let dependencies = manifest["workspace"]["dependencies"].as_table().unwrap();
    let mut external = 0;
    for (name, value) in dependencies.iter().filter(|(_, v)| v.get("path").is_none()) {
        let version = value.as_str().or_else(|| value.get("version")?.as_str()).unwrap_or("");
        assert_eq!(version.starts_with('='), PINNED.contains(&name.as_str()), "{name} {version}");
        assert!(locked(name, version.trim_start_matches('=')), "Cargo.lock has no {name} {version}: it is not tested");
        external += 1;
    }
    assert!(external > 20, "{external}");
    // A member that names a version of its own would get past the workspace's table.
    let metadata = metadata(&[]);
    for package in ours(&packages(&metadata)) {
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(|d| !d["source"].is_null()) {
            let (name, version) = (self::name(dependency), dependency["req"].as_str().unwrap());
            let is = &dependencies.get(name).unwrap_or_else(|| panic!("{name} is not in the workspace's table"));
            let is = is.as_str().or_else(|| is.get("version")?.as_str()).unwrap();
            assert_eq!(version.trim_start_matches('^'), is, "{name}");
        }
    }
}

/// Each version that is locked has audits of others in supply-chain/, or stands there as one that nobody is known to have read.
/// `./x vet` asks more; it takes cargo-vet, and so a network.
#[test]
fn a_new_version_is_a_decision() {
    let [config, imports] = ["supply-chain/config.toml", "supply-chain/imports.lock"].map(toml);
    let excepted = |name: &str, version: &str| {
        let list = config["exemptions"].get(name).and_then(toml::Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| one["version"].as_str() == Some(version)))
    };
    let audited: Vec<_> =
        imports["audits"].as_table().unwrap().values().map(|from| from["audits"].as_table().unwrap()).collect();
    let lock = toml("Cargo.lock");
    let locked = lock["package"].as_array().unwrap().iter().filter(|package| package.get("source").is_some());
    let unread = locked.map(|p| [&p["name"], &p["version"]].map(|of| of.as_str().unwrap()));
    let unread: Vec<_> = unread
        .filter(|[name, version]| !excepted(name, version) && !audited.iter().any(|a| a.contains_key(*name)))
        .collect();
    assert!(
        unread.is_empty(),
        "read these, then say so by `cargo vet certify` or `cargo vet add-exemption`: {unread:?}"
    );
}

/// Nobody depends on the workspaces beside ours.
#[test]
fn other_workspaces_pin_what_they_use() {
    for file in ["fuzz/Cargo.toml", "lab/bench/native/retour/Cargo.toml", "lab/xtask/peers/retour/Cargo.toml"] {
        let manifest = toml(file);
        let dependencies = manifest["dependencies"].as_table().unwrap();
        let external = dependencies.iter().filter(|(_, v)| v.get("path").is_none());
        let versions = external.map(|(_, v)| v.as_str().or_else(|| v.get("version")?.as_str()).unwrap_or(""));
        let versions: Vec<&str> = versions.collect();
        assert!(!versions.is_empty() && versions.iter().all(|v| v.starts_with('=')), "{file}: {versions:?}");
    }
}
