// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask audit-mutants`: puts faults into clean functions of Debian's packages, as `audit-mutants.toml` lists them, and counts
//! those that `tramptool audit` claims. `results/audit-mutants.md` has the numbers, and each fault that was not noticed.
//!
//! A function is clean if it was judged, all of its code was executed, and nothing is claimed of it.

mod counts;
mod marks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

use counts::{Count, Counts};

use crate::corpus::{Corpus, fetched};
use crate::failure::Failure;
use crate::tools::{below, call, name, read, root, tramptool, write};
use crate::unwind_edit::{depth, other_rows};
use crate::verb::Outcome;

/// So many instructions behind a call count as behind it.
const BEHIND: usize = 3;
/// So many objects of an archive are looked at.
const MEMBERS: usize = 200;
/// The fault that is no instruction.
const ROWS: &str = "a row of the unwind table has 8 bytes more";

/// The list.
#[derive(Deserialize)]
struct List {
    packages: BTreeSet<String>,
    functions: usize,
    /// The most of one package.
    of_one: usize,
    cross: BTreeMap<String, String>,
    /// What saves a scratch register.
    saves: BTreeMap<String, String>,
    fault: Vec<Fault>,
}

/// A fault, as instructions that take the place of others.
#[derive(Deserialize)]
struct Fault {
    name: String,
    /// One of these is to be claimed.
    claims: Vec<String>,
    #[serde(default)]
    behind_call: bool,
    /// Only in functions that call.
    #[serde(default)]
    calls: bool,
    /// All instructions with the same number change, and there are several.
    #[serde(default)]
    all: bool,
    /// The last instruction that fits changes, not the first.
    #[serde(default)]
    last: bool,
    /// Only in functions that save so many scratch registers.
    #[serde(default)]
    saves: usize,
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
struct Edit {
    arch: String,
    find: String,
    put: String,
    /// What it needs, if nothing behind the call may have that.
    scratch: Option<String>,
}

/// A function of an object.
struct Clean {
    symbol: String,
    object: Vec<u8>,
    /// Where its code is in the file.
    at: usize,
    lines: Vec<Line>,
    /// Bytes from SP to the caller's frame, where the frame is largest.
    depth: Option<u64>,
}

/// An instruction, as objdump has it.
struct Line {
    offset: usize,
    size: usize,
    text: String,
    /// It calls a function that is not in the object.
    calls: bool,
    relocated: bool,
}

/// Do it.
pub fn run(args: &[String]) -> Result<Outcome, Failure> {
    let list = root().join("lab/xtask/audit-mutants.toml");
    let list: List = toml::from_str(&read(&list)?).map_err(|e| Failure::at(&list, e, "mend it"))?;
    let mut counts = Counts { functions: list.functions, of_one: list.of_one, all: BTreeMap::new() };
    for (arch, suite) in Corpus::read()?.suites.iter().filter(|(arch, _)| args.is_empty() || args.contains(arch)) {
        for (package, file) in fetched(&list.packages, arch, suite)? {
            eprintln!("{arch} {package}");
            let made = tempfile::tempdir().map_err(|e| Failure::at(Path::new("."), e, "make room"))?;
            call(Command::new("dpkg-deb").arg("-x").arg(&file).arg(made.path().join("files")))?;
            for archive in below(&made.path().join("files"))?.iter().filter(|file| name(file).ends_with(".a")) {
                let members = made.path().join(name(archive));
                fs::create_dir_all(&members).map_err(|e| Failure::at(&members, e, "make room"))?;
                // Some have no objects, and some have two of one name: the last one will do.
                if call(Command::new("ar").arg("x").arg(archive).current_dir(&members)).is_err() {
                    continue;
                }
                let mut members = below(&members)?;
                members.sort();
                marks::put(arch, &package, (archive, &members), &mut counts)?;
                for member in members.into_iter().take(MEMBERS) {
                    in_object(&list, arch, (&package, name(archive)), &member, &mut counts)?;
                }
            }
        }
    }
    let text = page(&list, &counts);
    if args.is_empty() {
        write(&root().join("results/audit-mutants.md"), text.as_bytes())?;
    } else {
        print!("{text}");
    }
    Ok(Outcome::Good)
}

/// Put faults into the clean functions of an object.
fn in_object(
    list: &List,
    arch: &str,
    (package, archive): (&str, &str),
    member: &Path,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let full = |counts: &Counts, fault: &str| counts.is_full((fault, arch), package);
    let wanted = |counts: &_| {
        // Few functions save scratch registers: such are not looked for.
        let mut edits = list.fault.iter().filter(|f| f.saves == 0 && f.edits.iter().any(|edit| edit.arch == arch));
        edits.any(|f| !full(counts, &f.name)) || !full(counts, ROWS)
    };
    if !wanted(counts) {
        return Ok(());
    }
    for clean in clean(list, arch, member)? {
        let mut mutants: Vec<(&str, Vec<&str>, Vec<u8>)> = Vec::new();
        for fault in list.fault.iter().filter(|fault| !full(counts, &fault.name)) {
            let claims = fault.claims.iter().map(String::as_str).collect();
            mutants.extend(fault.put_into(&clean, list, arch)?.map(|object| (fault.name.as_str(), claims, object)));
        }
        if !full(counts, ROWS) {
            mutants.extend(other_rows(&clean.object, &clean.symbol).map(|object| (ROWS, vec!["C4", "C5"], object)));
        }
        for (fault, claims, object) in mutants {
            write(member, &object)?;
            let claimed: Vec<String> = findings(member, &clean.symbol)?.into_iter().collect();
            let is_named = claimed.iter().any(|claim| claims.contains(&claim.as_str()));
            let place = format!("{archive} {} {}", name(member), clean.symbol);
            counts.add((fault, arch), package, &place, &claimed, is_named);
            write(member, &clean.object)?;
        }
    }
    Ok(())
}

/// The kinds of what is claimed of a function.
fn findings(object: &Path, symbol: &str) -> Result<BTreeSet<String>, Failure> {
    let said = tramptool().arg("audit").arg(object).args(["--function", symbol, "--format", "json"]).output();
    let said = said.map_err(|e| Failure::at(object, e, "build the tool"))?;
    let report = serde_json::from_slice::<Value>(&said.stdout);
    let report =
        report.map_err(|_| Failure::at(object, String::from_utf8_lossy(&said.stderr), "see what the tool says"))?;
    let kinds = report["findings"].as_array().into_iter().flatten().filter_map(|f| f["kind"].as_str());
    Ok(kinds.map(str::to_owned).collect())
}

/// The clean functions of an object.
fn clean(list: &List, arch: &str, member: &Path) -> Result<Vec<Clean>, Failure> {
    let said = tramptool().arg("audit").arg(member).args(["--function", "*", "--format", "json"]).output();
    let said = said.map_err(|e| Failure::at(member, e, "build the tool"))?;
    let Ok(report) = serde_json::from_slice::<Value>(&said.stdout) else { return Ok(Vec::new()) };
    let units = report["units"].as_array().into_iter().flatten();
    let functions = units.flat_map(|unit| unit["functions"].as_array().into_iter().flatten());
    let is_clean = |f: &&Value| {
        f["not_judged"].is_null() && f["claims"].as_array().is_some_and(Vec::is_empty) && f["executed"] == f["bytes"]
    };
    let names: Vec<&str> = functions.filter(is_clean).filter_map(|f| f["symbol"].as_str()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let object = fs::read(member).map_err(|e| Failure::at(member, e, "see that it is there"))?;
    let cross = list.cross.get(arch).map_or("", String::as_str);
    let objdump = call(Command::new(format!("{cross}objdump")).args(["-dr", "-w"]).arg(member))?.out;
    let all = names.into_iter().filter_map(|symbol| {
        let file = object::File::parse(&*object).ok()?;
        let found = file.symbols().find(|s| s.name() == Ok(symbol) && s.section_index().is_some())?;
        let section = file.section_by_index(found.section_index()?).ok()?;
        let at = section.file_range()?.0 + found.address() - section.address();
        let undefined = file.symbols().filter(|symbol| symbol.is_undefined());
        let elsewhere: BTreeSet<&str> = undefined.filter_map(|symbol| symbol.name().ok()).collect();
        let lines = lines(&objdump, section.name().ok()?, (found.address(), found.size()), &elsewhere);
        let depth = depth(&object, symbol);
        Some(Clean { symbol: symbol.to_owned(), object: object.clone(), at: at as usize, lines, depth })
    });
    Ok(all.collect())
}

/// The instructions of a function, of what objdump says of an object.
fn lines(objdump: &str, section: &str, (start, size): (u64, u64), elsewhere: &BTreeSet<&str>) -> Vec<Line> {
    let mut all: Vec<Line> = Vec::new();
    // A call may be two instructions, the first of which has the relocation.
    let mut to_elsewhere = false;
    let header = format!("Disassembly of section {section}:");
    let inside = objdump.lines().skip_while(|line| *line != header).skip(1);
    for line in inside.take_while(|line| !line.starts_with("Disassembly of section ")) {
        let mut fields = line.split('\t');
        let at = fields.next().and_then(|at| u64::from_str_radix(at.trim().trim_end_matches(':'), 16).ok());
        let Some(offset) = at.and_then(|at| at.checked_sub(start)).filter(|offset| *offset < size) else { continue };
        let bytes = fields.next().unwrap_or_default().split_whitespace().map(str::len).sum::<usize>() / 2;
        let rest: Vec<&str> = fields.collect();
        let is_relocation_of = |field: &&str| field.contains("R_");
        let code = rest.iter().take_while(|field| !is_relocation_of(field)).copied().collect::<Vec<_>>().join(" ");
        let text = code.split(['#', '<']).next().filter(|_| !code.contains("[sp") && !code.contains(", #"));
        let text = text.unwrap_or(&code).split(" //").next().unwrap_or_default().trim().to_owned();
        let mnemonic = text.split_whitespace().next().unwrap_or_default();
        let place = rest.iter().position(is_relocation_of);
        let name =
            place.and_then(|n| rest.get(n + 1)).map_or("", |name| name.split(['-', '+', ' ']).next().unwrap_or(""));
        to_elsewhere = elsewhere.contains(name) || to_elsewhere && place.is_none();
        let calls = ["call", "bl", "jal", "jalr"].contains(&mnemonic) && std::mem::take(&mut to_elsewhere);
        all.push(Line { offset: offset as usize, size: bytes, calls, relocated: place.is_some(), text });
    }
    all
}

impl Clean {
    /// Does it use words of the stack above its own frame?
    fn has_arguments(&self) -> bool {
        let depth = self.depth.and_then(|depth| i64::try_from(depth).ok()).unwrap_or(0);
        let places = Regex::new(r"(?<a>-?(0x)?[0-9a-f]+)\(%?(?<of>rsp|rbp|sp|s0)\)|\[(?<by>sp|x29), #(?<b>-?[0-9]+)");
        let Ok(places) = places else { return true };
        let above = |found: Captures| {
            let number = found.name("a").or(found.name("b")).and_then(|n| parsed(n.as_str())).unwrap_or(0);
            let by_sp = found.name("of").or(found.name("by")).is_some_and(|reg| reg.as_str().ends_with("sp"));
            number >= if by_sp { depth } else { depth.min(16) }
        };
        self.lines.iter().any(|line| places.captures_iter(&line.text).any(above))
    }
}

impl Fault {
    /// The object with the fault in a function; none if it has no place there.
    fn put_into(&self, clean: &Clean, list: &List, arch: &str) -> Result<Option<Vec<u8>>, Failure> {
        let saves = list.saves.get(arch).map(|pattern| Regex::new(pattern)).transpose();
        let saves = saves.map_err(|e| Failure::new("saves", e.to_string(), "mend it"))?;
        let saved = saves.map_or(0, |saves| clean.lines.iter().filter(|line| saves.is_match(&line.text)).count());
        if self.calls && !clean.lines.iter().any(|line| line.calls) || saved < self.saves {
            return Ok(None);
        }
        let mut object = clean.object.clone();
        let (mut number, mut changed) = (None, 0);
        for edit in self.edits.iter().filter(|edit| edit.arch == arch) {
            let pattern = Regex::new(&edit.find).map_err(|e| Failure::new(&edit.find, e.to_string(), "mend it"))?;
            let mut lines: Vec<(usize, &Line)> = clean.lines.iter().enumerate().collect();
            lines.retain(|(_, line)| !line.relocated);
            if self.last {
                lines.reverse();
            }
            for (n, line) in lines {
                let Some(found) = pattern.captures(&line.text) else { continue };
                let before = &clean.lines[n.saturating_sub(BEHIND)..n];
                let call = before.iter().rposition(|line| line.calls);
                let touches = |line: &Line| edit.scratch.as_ref().is_some_and(|scratch| line.text.contains(scratch));
                let behind = call.is_some_and(|call| !before[call + 1..].iter().any(touches));
                let this = found.name("n").and_then(|n| parsed(n.as_str())).map(i64::abs);
                if self.behind_call && !behind || changed > 0 && (!self.all || this != number) {
                    continue;
                }
                let Some(text) = filled(&edit.put, &found, clean.depth.filter(|_| !clean.has_arguments())) else {
                    continue;
                };
                let Some(bytes) = assembled(list, arch, &text)?.filter(|bytes| bytes.len() == line.size) else {
                    continue;
                };
                let at = clean.at + line.offset;
                if let Some(place) = object.get_mut(at..at + line.size) {
                    place.copy_from_slice(&bytes);
                    (changed, number) = (changed + 1, this);
                }
            }
            if changed > 0 && !self.all {
                break;
            }
        }
        Ok(Some(object).filter(|object| changed > usize::from(self.all) && *object != clean.object))
    }
}

fn parsed(number: &str) -> Option<i64> {
    match number.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => number.parse().ok(),
    }
}

/// The instruction that is put there.
fn filled(put: &str, found: &Captures, depth: Option<u64>) -> Option<String> {
    // A number of an assembler may begin with `$`, too: those come last.
    let mut text = put.to_owned();
    for n in (1..found.len()).rev() {
        text = text.replace(&format!("${n}"), found.get(n).map_or("", |group| group.as_str()));
    }
    if let Some(n) = found.name("n").and_then(|n| parsed(n.as_str())) {
        text = text.replace("{n+8}", &(n + 8 * n.signum()).to_string());
    }
    if text.contains("{above}") {
        text = text.replace("{above}", &(depth? + 8).to_string());
    }
    Some(text)
}

/// The bytes of an instruction; none where it has none.
fn assembled(list: &List, arch: &str, text: &str) -> Result<Option<Vec<u8>>, Failure> {
    let made = tempfile::tempdir().map_err(|e| Failure::at(Path::new("."), e, "make room"))?;
    let (source, object) = (made.path().join("one.s"), made.path().join("one.o"));
    write(&source, format!("\t{text}\n").as_bytes())?;
    let assembler = format!("{}as", list.cross.get(arch).map_or("", String::as_str));
    let mut run = Command::new(assembler);
    if run.arg("-o").arg(&object).arg(&source).output().is_ok_and(|run| !run.status.success()) {
        return Ok(None);
    }
    let bytes = fs::read(&object).map_err(|e| Failure::at(&object, e, "install binutils"))?;
    let file = object::File::parse(&*bytes).map_err(|e| Failure::at(&object, e, "see what as says"))?;
    let code = file.sections().find(|section| section.kind() == SectionKind::Text);
    Ok(code.and_then(|section| section.data().ok().map(<[u8]>::to_vec)))
}

/// The page.
fn page(list: &List, counts: &Counts) -> String {
    let counts = &counts.all;
    let sum = |of: fn(&Count) -> usize| counts.values().map(of).sum::<usize>();
    let mut out = String::from("# Faults in clean functions of packages\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "`cargo xtask audit-mutants` wrote this page: {} of {} faults were noticed, {} of them as what they are. They were put one at a time into\n\
         functions of Debian's packages that were executed whole and of which nothing is claimed: {}.\n",
        sum(|count| count.noticed),
        sum(|count| count.put),
        sum(|count| count.named),
        list.packages.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    let _ = writeln!(out, "| fault | architecture | put | noticed | as what it is |\n|---|---|--:|--:|--:|");
    for ((fault, arch), Count { put, noticed, named, .. }) in counts {
        let _ = writeln!(out, "| {fault} | {arch} | {put} | {noticed} | {named} |");
    }
    let _ = writeln!(
        out,
        "\n## Not claimed as what it is\n\n| fault | architecture | where, and what was claimed |\n|---|---|---|"
    );
    for ((fault, arch), Count { missed, .. }) in counts {
        for place in missed {
            let _ = writeln!(out, "| {fault} | {arch} | {place} |");
        }
    }
    out
}
