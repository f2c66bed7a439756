//! Pages: everything that the report has is on them, and they need nothing else. `./x page` opens them in a browser.
#![cfg(feature = "judge")]

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::{Bench, CHECK_BROKEN, broken};
use serde_json::Value;

/// Elements without an end.
const VOID: [&str; 6] = ["meta", "link", "br", "img", "hr", "input"];

/// Every tag closes what was opened last, ids are there once, and what is referred to is there.
fn well_formed(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"), "{}", &page[..60]);
    let mut open: Vec<String> = Vec::new();
    let (mut ids, mut targets) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = page.split_once('>').unwrap().1;
    while let Some((_, behind)) = rest.split_once('<') {
        let (tag, behind) = behind.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "before {}", &rest[..rest.len().min(80)]);
            continue;
        }
        let name = tag.split([' ', '\n']).next().unwrap().to_owned();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        for attribute in tag.split('"').collect::<Vec<_>>().chunks(2) {
            let [key, value] = attribute else { continue };
            match key.trim().rsplit(' ').next().unwrap() {
                "id=" => assert!(ids.insert(*value), "{value} is there twice"),
                "href=" if value.starts_with('#') => {
                    targets.insert(&value[1..]);
                }
                "aria-labelledby=" => {
                    targets.insert(value);
                }
                _ => {}
            }
        }
        if ["style", "script"].contains(&name.as_str()) {
            rest = rest.split_once(&format!("</{name}>")).expect("it ends").1;
        } else if !VOID.contains(&name.as_str()) && !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    let lost: Vec<_> = targets.difference(&ids).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Nothing on it makes a browser ask for anything.
fn self_contained(page: &str) {
    for word in ["http:", "https:", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "<iframe", "<object", "<img"]
    {
        assert!(!page.contains(word), "{word}");
    }
    for (_, behind) in page.match_indices("href=\"").map(|(at, _)| page.split_at(at + 6)) {
        let href = behind.split('"').next().unwrap();
        assert!(href.starts_with('#') || href == "data:,", "{href}");
    }
}

fn escaped(text: &str) -> String {
    let mut all = String::new();
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' | '\'' => all += &format!("&#{};", c as u32),
            _ => all.push(c),
        }
    }
    all
}

/// Each row has a cell in a matrix and a line with its reason, each failure its words, each view its instructions.
fn has_all_of(page: &str, report: &Value) {
    let text = |value: &Value| escaped(value.as_str().unwrap());
    let parts: Vec<&str> = page.split("<details class=\"trampoline\"").collect();
    for row in report["results"].as_array().unwrap() {
        let (name, arch) = (text(&row["trampoline"]), text(&row["arch"]));
        let of = format!("<span class=\"name mono\">{name}</span> <span class=\"quiet\">{arch}</span>");
        let part = parts.iter().find(|part| part.contains(&of)).unwrap_or_else(|| panic!("{row}"));
        let (clause, id) = (text(&row["clause"]), part.split('"').nth(1).unwrap());
        let line = part.split_once(&format!("<tr id=\"{id}-{clause}\""));
        let line = line.unwrap_or_else(|| panic!("no line: {row}")).1.split("</tr>").next().unwrap();
        assert!(line.contains(&text(&row["reason"])), "{line}\n{row}");
        let word = match row["verdict"].as_str().unwrap() {
            "pass" => "holds",
            "fail" => "fails",
            "deviates" => "deviates",
            _ => "not checked",
        };
        assert!(line.contains(word), "{line}\n{row}");
        assert!(parts[0].contains(&format!("href=\"#{id}-{clause}\"")), "no cell: {row}");
        for failure in row["failures"].as_array().into_iter().flatten() {
            for key in ["place", "expected", "found", "at", "last_writer"] {
                assert!(page.contains(&text(&failure[key])), "{key}: {failure}");
            }
        }
    }
    for view in report["views"].as_array().into_iter().flatten() {
        for line in view["listing"].as_array().unwrap() {
            assert!(page.contains(&format!("<td>{}</td>", text(&line["text"]))), "{line}");
        }
    }
}

/// A page and the JSON of the same run.
fn both(b: &Bench, code: i32, args: &[&str]) -> (String, Value) {
    let page = b.ends(code, &[args, &["--format", "html"]].concat());
    let json = b.ends(code, &[args, &["--format", "json", "--views"]].concat());
    (page, serde_json::from_str(&json).unwrap())
}

#[test]
fn a_page_has_what_the_report_has() {
    let b = Bench::new();
    broken(&b);
    for (code, args) in [
        (1, &CHECK_BROKEN[..]),
        (
            0,
            &[
                "check",
                "ftrace_caller",
                "return_to_handler",
                "--arch",
                "riscv64",
                "--set",
                "rvc=on",
                "--function",
                "args2",
            ],
        ),
        (0, &["check", "ftrace_stub", "--arch", "arm64"]),
    ] {
        let (page, report) = both(&b, code, args);
        well_formed(&page);
        self_contained(&page);
        has_all_of(&page, &report);
    }
}

/// The register that is lost is marked from the instruction on that lost it, and no other is.
#[test]
fn a_lost_register_is_seen_along_the_path() {
    let b = Bench::new();
    broken(&b);
    let (page, report) = both(&b, 1, &CHECK_BROKEN);
    let view = &report["views"][0];
    let path = &view["paths"][0];
    let lost: Vec<&Value> = path["registers"].as_array().unwrap().iter().filter(|r| r["lost"] == true).collect();
    assert_eq!(lost.len(), 1, "{path}");
    assert_eq!((&lost[0]["register"], &lost[0]["promised"]), (&"x1".into(), &true.into()));
    // The instruction that calls the handler, which overwrites x1; its copy stays in the frame, and nobody loads it.
    let steps = path["steps"].as_array().unwrap();
    let call = path["calls"][0].as_u64().unwrap() as usize;
    assert_eq!(view["listing"][steps[call].as_u64().unwrap() as usize]["text"], "bl      my_handler");
    let states = lost[0]["states"].as_str().unwrap();
    assert_eq!(states.find('c'), Some(call), "{states}");
    let word = |name: &str| path["frame"].as_array().unwrap().iter().find(|w| w["holds"] == name).unwrap();
    assert!(word("x1")["loaded"].is_null() && word("x1")["writer"].is_u64(), "{path}");
    let (number, register) = (&word("x0")["loaded"][0][0], &word("x0")["loaded"][0][1]);
    assert_eq!(register, "x0");
    assert!(view["listing"][number.as_u64().unwrap() as usize]["text"].as_str().unwrap().starts_with("ldr     x0"));
    assert!(page.contains("✗ promised, and lost") && page.contains("P1 last writer of x1"), "{page}");
    assert_eq!(page.matches("✗ promised, and lost").count(), path_count(&report), "{page}");
}

/// Runs of the first view in which something fails.
fn path_count(report: &Value) -> usize {
    let paths = report["views"][0]["paths"].as_array().unwrap().iter();
    paths.filter(|p| p["failures"].as_array().is_some_and(|f| !f.is_empty())).count()
}

/// Where nothing fails, each promised register has its value at the end of each path to the function.
#[test]
fn promised_registers_end_as_they_began_where_nothing_fails() {
    let b = Bench::new();
    let args = ["check", "ftrace_caller", "--function", "args2"];
    for arch in tool::BACKENDS.iter().map(|b| b.facts().name).filter(|arch| *arch != "x86_64") {
        let (page, report) = both(&b, 0, &[&args[..], &["--arch", arch]].concat());
        assert!(!page.contains("lost</span>"), "{page}");
        let plain = report["views"][0]["paths"].as_array().unwrap().iter().find(|p| p["situation"] == "plain").unwrap();
        for register in plain["registers"].as_array().unwrap().iter().filter(|r| r["promised"] == true) {
            let last = register["states"].as_str().unwrap().chars().next_back().unwrap();
            assert!(['l', 's', 'r'].contains(&last), "{arch} {register}");
        }
        let saved: Vec<&str> = plain["frame"].as_array().unwrap().iter().filter_map(|w| w["holds"].as_str()).collect();
        for argument in &tool::backend(arch).unwrap().facts().abi.args[..2] {
            let name = tool::backend(arch).unwrap().facts().abi.name(*argument);
            assert!(saved.contains(&name), "{arch}: no {name} in {saved:?}");
        }
    }
}

#[test]
fn a_whole_run_is_one_page_or_a_directory_of_them() {
    let b = Bench::new();
    let stub = ["check", "ftrace_stub", "--arch", "x86_64", "--function", "args1", "--format", "json"];
    b.ok(&[&stub[..], &["--views", "-o", "check.json"]].concat());
    b.ok(&["mutate", "ftrace_stub", "--arch", "arm64", "--format", "json", "-o", "mutants.json"]);
    b.ok(&["cost", "ftrace_caller", "--arch", "arm64", "--format", "json", "-o", "cost.json"]);
    let reports = ["report", "html", "check.json", "mutants.json", "cost.json", "-o"];
    b.ok(&[&reports[..], &["run"]].concat());
    let names = ["1-check.html", "2-mutants.html", "3-cost.html", "index.html"];
    let mut written: Vec<String> =
        fs::read_dir(b.path("run")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    written.sort();
    assert_eq!(written, names);
    let index = fs::read_to_string(b.path("run/index.html")).unwrap();
    for name in names {
        let page = fs::read_to_string(b.path(&format!("run/{name}"))).unwrap();
        well_formed(&page);
        assert!(index.contains(&format!("href=\"{name}\"")), "{index}");
    }
    b.ok(&[&reports[..], &["run.html"]].concat());
    let page = fs::read_to_string(b.path("run.html")).unwrap();
    well_formed(&page);
    self_contained(&page);
    has_all_of(&page, &serde_json::from_str(&fs::read_to_string(b.path("check.json")).unwrap()).unwrap());
    fs::write(b.path("list.json"), "[1]").unwrap();
    b.refuses(&["report", "html", "list.json", "-o", "list.html"], &["list.json", "tramptool cost --format json"]);
    b.refuses(&["report", "html", "list.json", "-o", "list"], &["list.json"]);
    let cost = fs::read_to_string(b.path("cost.json")).unwrap();
    fs::write(b.path("cost.json"), cost.replace("\"executed\": ", "\"executed\": 9000000000")).unwrap();
    b.refuses(
        &["report", "html", "cost.json", "-o", "cost.html"],
        &["cost.json", "u32", "tramptool cost --format json"],
    );
}

/// A page says whatever a symbol says, and does nothing of it.
#[test]
fn names_of_others_are_text() {
    let b = Bench::new();
    b.ok(&["gen", "direct", "--args", "1", "--call", "f", "--arch", "x86_64", "--stem", "a", "--emit", "obj,contract"]);
    fs::rename(b.path("a.toml"), b.path("a<script>&.toml")).unwrap();
    let page = b.ok(&["check", "--object", "a.o", "--contract", "a<script>&.toml", "--format", "html"]);
    well_formed(&page);
    assert!(page.contains("a&#60;script&#62;&#38;.toml"), "{page}");
}

/// Each instruction of both sides is on the page, what moved has an arrow, and what differs is said.
#[test]
fn a_comparison_is_a_page_with_both_sides() {
    for (arch, _) in common::arches() {
        let b = Bench::new();
        for name in ["first", "other", "lost"] {
            let source = format!("{}/tests/observe/{arch}/{name}.s", env!("CARGO_MANIFEST_DIR"));
            b.tool(&format!("{}as", common::tools_of(arch)), &[&source, "-o", &format!("{name}.o")]);
        }
        for (code, other) in [(0, "other.o"), (1, "lost.o")] {
            let page = b.ends(code, &["diff", "first.o", other, "--format", "html"]);
            well_formed(&page);
            self_contained(&page);
            let json: Value =
                serde_json::from_str(&b.ends(code, &["diff", "first.o", other, "--format", "json"])).unwrap();
            let code = &json["pairs"][0]["code"];
            for side in ["left", "right"] {
                for insn in code[side].as_array().unwrap() {
                    assert!(page.contains(&format!("<td class=\"{side}\">{}</td>", text_of(&insn["text"]))), "{insn}");
                }
            }
            let marked = |mark| code["rows"].as_array().unwrap().iter().filter(|row| row["mark"] == mark).count();
            // One arrow for two rows; and two for three, where two stores do what one of a pair does.
            let arrows = marked("moved") / 2 + marked("together") / 3 * 2;
            assert_eq!(page.matches("<path ").count(), arrows, "{page}");
            for difference in json["pairs"][0]["differences"].as_array().unwrap() {
                let ids: Vec<&str> =
                    difference["at"].as_array().unwrap().iter().map(|at| at["id"].as_str().unwrap()).collect();
                assert!(page.contains(&format!("<li data-id=\"{}\"", escaped(&ids.join(" ")))), "{difference}");
            }
        }
    }
}

fn text_of(value: &Value) -> String {
    escaped(value.as_str().unwrap())
}
