//! Licences, on what cargo itself says: the libraries stay permissive, only what links Unicorn is GPL.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use serde_json::Value;

const LIBRARIES: [&str; 5] = ["codegen", "arch-x86_64", "arch-arm64", "arch-riscv", "templates"];
const GPL: [&str; 3] = ["tramptool", "emu-tests", "bench"];

fn metadata() -> Value {
    let run = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
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

#[test]
fn each_crate_has_its_licence() {
    let metadata = metadata();
    for package in packages(&metadata).values().filter(|p| p["source"].is_null()) {
        let (name, licence) = (package["name"].as_str().unwrap(), package["license"].as_str().unwrap_or(""));
        let wanted = if GPL.contains(&name) { "GPL-2.0-only" } else { "MIT OR Apache-2.0" };
        assert_eq!(licence, wanted, "{name}");
    }
}

#[test]
fn no_library_links_the_emulator() {
    let metadata = metadata();
    let packages = packages(&metadata);
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
    for library in LIBRARIES {
        let (id, _) = packages.iter().find(|(_, p)| p["name"] == library).unwrap();
        let (mut todo, mut seen) = (vec![*id], HashSet::new());
        while let Some(id) = todo.pop() {
            if seen.insert(id) {
                let name = packages[id]["name"].as_str().unwrap();
                assert!(!name.starts_with("unicorn-engine"), "{library} links {name}");
                todo.extend(&nodes[id]);
            }
        }
        assert!(seen.len() > 1);
    }
}

#[test]
fn every_dependency_is_under_an_accepted_licence() {
    let deny = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deny.toml")).unwrap();
    let allow = deny.split("allow = [").nth(1).unwrap().split(']').next().unwrap();
    let allowed: HashSet<&str> = allow.split('"').skip(1).step_by(2).collect();
    let metadata = metadata();
    for package in packages(&metadata).values() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("").replace(['(', ')'], "").replace('/', " OR ");
        let choice = |alternative: &str| alternative.split(" AND ").all(|l| allowed.contains(l.trim()));
        assert!(licence.split(" OR ").any(choice), "{name}: {licence} is not in deny.toml");
    }
}

#[test]
fn versions_are_pinned() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let external: Vec<&str> = section.lines().filter(|l| l.contains('=') && !l.contains("path =")).collect();
    assert!(!external.is_empty());
    for line in external {
        assert!(line.contains("\"="), "not pinned: {line}");
    }
}
