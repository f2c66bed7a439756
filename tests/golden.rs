//! Trampolines told whole, for people to read: emu-tests/golden has a file of each on each architecture. In it are the
//! command, the text that it prints, beside each line what GNU as made of that line, and what each option changes in the text.
//!
//! Bytes, relocations and unwind tables in it are none of ours; tests/gas.rs compares ours with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use codegen::ask::spec::Spec;
use codegen::backend::Backend;
use codegen::profile::target::Target;
use common::{Bench, blessed};
use gimli::{BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, RegisterRule, UnwindContext, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol};
use similar::{ChangeTag, TextDiff};
use tool::suite;

mod common;

const GOLDEN: &str = "emu-tests/golden";

/// Those that are for one function of which there is a file; of those with a name there is one of each.
const TOLD: [&str; 8] = [
    "direct_3",
    "direct_jump_1",
    "direct_kfree_skb",
    "around_frame_1",
    "around_fregs",
    "around_shadow",
    "programs_fexit",
    "programs_fmod_ret_stack",
];

/// Those of them that only profile bare has.
const TOLD_OF_BARE: [&str; 2] = ["record_both_tsc", "record_both_unwind"];

/// The width of offset, bytes and CFA. The text follows as it is: its tabs stand where they do in a file of its own.
const GUTTER: usize = 40;
/// Bytes in one line.
const IN_A_LINE: usize = 8;
/// Lines of text before and after a change.
const AROUND: usize = 2;

/// What the command prints, or why it refuses.
fn printed(command: &str) -> Result<String, String> {
    let command = command.replacen("tramptool", env!("CARGO_BIN_EXE_tramptool"), 1);
    let out = Command::new("sh").args(["-c", &command]).output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap());
    if out.status.success() { Ok(stdout) } else { Err(stderr) }
}

/// What GNU as made of a text with one function.
struct Assembled {
    /// Where the code of a line begins, by the line's number from 0.
    offsets: BTreeMap<usize, usize>,
    code: Vec<u8>,
    relocations: Vec<(usize, String)>,
    /// The rules that hold from an address, by what they are for; the CFA's first.
    unwinding: Vec<(usize, Vec<(String, String)>)>,
    /// Where the function begins. What is before it is in its unwind table.
    function: usize,
}

/// Where this is, from the function's start.
fn from_start(at: usize, function: usize) -> String {
    if at < function { format!("-{:x}", function - at) } else { format!("{:x}", at - function) }
}

impl Assembled {
    fn new(text: &str, spec: &Spec, target: &Target) -> Assembled {
        let b = Bench::new();
        let assembler = target.facts.assembler;
        std::fs::write(b.path("t.S"), text).unwrap();
        b.tool(assembler, &["--fatal-warnings", "t.S", "-o", "t.o"]);
        // Not in the same run: with a listing, GNU as 2.40 for riscv64 writes wrong relocations into .eh_frame.
        let listing = b.tool(assembler, &["-aln", "t.S", "-o", "listed.o"]);
        // Number, offset and bytes; another line without offset where the bytes do not fit.
        let begins = |line: &str| {
            let (number, offset) = (line.get(..4)?.trim().parse::<usize>().ok()?, line.get(5..9)?);
            Some((number - 1, usize::from_str_radix(offset, 16).ok()?))
        };
        let mut offsets = BTreeMap::new();
        // Other sections are behind the code.
        let lines = text.lines().position(|line| line.trim_start().starts_with(".section")).unwrap_or(usize::MAX);
        for (number, offset) in listing.lines().filter_map(begins).filter(|(number, _)| *number < lines) {
            offsets.entry(number).or_insert(offset);
        }
        // Lengths in the unwind tables of riscv64 are relocated.
        let linker = assembler.replace("-as", "-ld");
        // What must be the program's own cannot be left out.
        let own: Vec<String> = spec.own_symbols().map(|name| format!("--defsym={name}=0")).collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let others = ["--unresolved-symbols=ignore-all", "--no-relax", "-e", "0", "t.o", "-o", "t"];
        b.tool(&linker, &[&own[..], &others].concat());
        let object = std::fs::read(b.path("t.o")).unwrap();
        let object = object::File::parse(&*object).unwrap();
        let function = object.symbols().find(|s| s.name() == Ok(spec.name)).unwrap();
        // What follows is there for the alignment of the section.
        let start = function.address() as usize;
        let end = start + function.size() as usize;
        offsets.retain(|_, offset| *offset < end);
        let code = object.section_by_name(".text").unwrap().data().unwrap();
        Assembled {
            offsets,
            code: code[..end].to_vec(),
            relocations: relocations(&b.tool("readelf", &["--wide", "--relocs", "t.o"])),
            unwinding: unwinding(&std::fs::read(b.path("t")).unwrap(), spec, target, start),
            function: start,
        }
    }

    /// The text with all that belongs to a line to the left of it.
    fn beside(&self, text: &str) -> String {
        let mut out = format!("{:>4}  {:25}{:9}text\n", "at", "bytes", "CFA");
        for (number, line) in text.lines().enumerate() {
            let Some(&start) = self.offsets.get(&number) else {
                let line = format!("{:GUTTER$}{line}", "");
                writeln!(out, "{}", line.trim_end()).unwrap();
                continue;
            };
            let end = self.offsets.values().copied().filter(|&o| o > start).min().unwrap_or(self.code.len());
            let row = self.unwinding.iter().rfind(|(from, _)| *from <= start);
            let cfa = row.map_or("", |(_, rules)| &rules[0].1);
            for (i, bytes) in self.code[start..end].chunks(IN_A_LINE).enumerate() {
                let bytes: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
                let bytes = bytes.join(" ");
                match i {
                    0 => writeln!(out, "{:>4}  {bytes:25}{cfa:9}{line}", from_start(start, self.function)).unwrap(),
                    _ => writeln!(out, "{:6}{bytes}", "").unwrap(),
                }
            }
            for (at, what) in self.relocations.iter().filter(|(at, _)| (start..end).contains(at)) {
                writeln!(out, "{:>4}  {what}", from_start(*at, self.function)).unwrap();
            }
        }
        out
    }

    /// What changes in the unwind table, row by row.
    fn rules(&self) -> String {
        let mut out = String::new();
        let mut before: &[(String, String)] = &[];
        for (from, rules) in &self.unwinding {
            let new = rules.iter().filter(|rule| !before.contains(rule));
            let mut changes: Vec<String> = new.map(|(what, rule)| format!("{what} {rule}")).collect();
            let gone = before.iter().filter(|(what, _)| !rules.iter().any(|(w, _)| w == what));
            changes.extend(gone.map(|(what, _)| format!("{what} kept")));
            writeln!(out, "{:>4}  {}", from_start(*from, self.function), changes.join(", ")).unwrap();
            before = rules;
        }
        out
    }
}

/// Those of the code, as readelf tells them: where, and what.
fn relocations(readelf: &str) -> Vec<(usize, String)> {
    let code = readelf.split("Relocation section ").find(|section| section.starts_with("'.rela.text'"));
    let rows = code.unwrap_or_default().lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.get(2).is_some_and(|name| name.starts_with("R_")));
    rows.map(|row| {
        let to = row[4..].join(" ");
        (usize::from_str_radix(row[0], 16).unwrap(), format!("{}  {}", row[2], to.trim_end_matches(" + 0")))
    })
    .collect()
}

/// The unwind table of a function in a linked file, by offsets in the section of its code.
fn unwinding(file: &[u8], spec: &Spec, target: &Target, start: usize) -> Vec<(usize, Vec<(String, String)>)> {
    let file = object::File::parse(file).unwrap();
    let function = file.symbols().find(|s| s.name() == Ok(spec.name)).unwrap();
    let section = file.section_by_name(".eh_frame").unwrap();
    let frames = EhFrame::new(section.data().unwrap(), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let fde = frames.fde_for_address(&bases, function.address(), EhFrame::<EndianSlice<_>>::cie_from_offset).unwrap();
    let returns = fde.cie().return_address_register();
    let name = |n: gimli::Register| {
        let reg = target.facts.abi.regs.iter().find(|r| r.dwarf == n.0);
        reg.map_or_else(|| format!("column {}", n.0), |r| r.name.to_owned())
    };
    let column = |n: gimli::Register| if n == returns { format!("return address ({})", name(n)) } else { name(n) };
    let mut context = UnwindContext::new();
    let mut table = fde.rows(&frames, &bases, &mut context).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = table.next_row().unwrap() {
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { panic!("{:?}", row.cfa()) };
        let mut rules: Vec<_> = row.registers().collect();
        rules.sort_by_key(|(n, _)| n.0);
        let rules = rules.into_iter().map(|(n, rule)| {
            let rule = match rule {
                RegisterRule::Undefined => "lost".to_owned(),
                RegisterRule::SameValue => "kept".to_owned(),
                RegisterRule::Offset(offset) => format!("at CFA{offset:+}"),
                RegisterRule::Register(r) => format!("in {}", name(*r)),
                other => panic!("{other:?}"),
            };
            (column(*n), rule)
        });
        let cfa = [("CFA".to_owned(), format!("{}{offset:+}", name(*register)))];
        let from = (row.start_address() + start as u64 - function.address()) as usize;
        rows.push((from, cfa.into_iter().chain(rules).collect()));
    }
    rows
}

/// What is different, with the lines around it; numbers of lines would change with every change above.
fn difference(was: &str, is: &str) -> String {
    let diff = TextDiff::from_lines(was, is);
    let mut out = String::new();
    for hunk in diff.grouped_ops(AROUND) {
        if !out.is_empty() {
            out.push_str("...\n");
        }
        for change in hunk.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            writeln!(out, "{}", format!("{sign}{}", change.value().trim_end_matches('\n')).trim_end()).unwrap();
        }
    }
    out
}

/// Without the comments at the head, which name all options: licence, what it is, how it is assembled.
fn below_the_head(text: &str) -> &str {
    text.splitn(4, '\n').nth(3).unwrap()
}

/// With all defaults under this profile.
fn target_under(profile: &str, backend: &'static dyn Backend) -> Option<Target> {
    let convention = tool::profile(profile).unwrap().convention(backend.facts().name).ok()?;
    Some(backend.target(convention, convention.defaults()).unwrap())
}

/// Those of other kernels.
fn older() -> impl Iterator<Item = &'static str> {
    let others = profiles::names().into_iter().filter(|name| *name != profiles::DEFAULT);
    others.filter(|name| !tool::profile(name).unwrap().kernels.is_empty())
}

/// What a trampoline of this name looks like under the other kernels' profiles.
fn elsewhere(backend: &'static dyn Backend, name: &str, text: &str) -> String {
    let mut out = String::new();
    for profile in older() {
        let Some(target) = target_under(profile, backend) else { continue };
        let trampolines = suite::trampolines(&target).unwrap();
        let Some(other) = suite::specs(&trampolines).into_iter().find(|spec| spec.name == name) else { continue };
        let other = printed(&suite::command(backend, &other, &target)).unwrap();
        let other = difference(below_the_head(text), below_the_head(&other));
        let other = if other.is_empty() { "The same text.\n" } else { &other };
        write!(out, "\n--profile {profile}\n\n{other}").unwrap();
    }
    out
}

fn story(backend: &'static dyn Backend, spec: &Spec, default: &Target) -> String {
    let facts = backend.facts();
    let command = suite::command(backend, spec, default);
    let text = printed(&command).unwrap();
    let assembled = Assembled::new(&text, spec, default);
    let mut out = format!("{} on {}\n\n$ {command}\n\n", spec.name, facts.name);
    out += "The text, and to the left what GNU as makes of it: offset, bytes, where its unwind table has the CFA.\n\n";
    out += &assembled.beside(&text);
    out += "\nWhat the unwind table says from each offset on. All that it does not name is kept.\n\n";
    out += &assembled.rules();
    let mut same = Vec::new();
    for (rule, option) in default.convention.offered() {
        for v in (0..option.values.len()).filter(|v| *v != rule.default) {
            let set = format!("--set {}={}", option.name, option.values[v]);
            let other = backend.target(default.convention, default.choices.with(rule.index, v)).unwrap();
            let other = suite::command(backend, spec, &other);
            match printed(&other) {
                Ok(other) if below_the_head(&other) == below_the_head(&text) => same.push(set),
                Ok(other) => {
                    write!(out, "\n{set}\n\n{}", difference(below_the_head(&text), below_the_head(&other))).unwrap();
                }
                Err(refused) => write!(out, "\n{set}\n\n{refused}").unwrap(),
            }
        }
    }
    if !same.is_empty() {
        writeln!(out, "\nThe same text: {}", same.join(", ")).unwrap();
    }
    if default.convention.argument == profiles::DEFAULT {
        out += &elsewhere(backend, spec.name, &text);
    }
    out
}

/// Those that have a file, with the target for which it is: what only an older kernel's profile has is told under that.
fn told(backend: &'static dyn Backend) -> Vec<(String, Target)> {
    let mut all: Vec<(String, Target)> = Vec::new();
    for profile in [profiles::DEFAULT].into_iter().chain(older()) {
        let Some(target) = target_under(profile, backend) else { continue };
        for (name, kind) in suite::trampolines(&target).unwrap() {
            let wanted = !kind.for_one_function() || TOLD.contains(&&*name);
            if wanted && all.iter().all(|(known, _)| *known != name) {
                all.push((name, target.clone()));
            }
        }
    }
    let bare = target_under("bare", backend).unwrap();
    all.extend(TOLD_OF_BARE.iter().map(|name| ((*name).to_owned(), bare.clone())));
    all
}

#[test]
fn the_stories_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        let _ = std::fs::remove_dir_all(root.join(GOLDEN));
    }
    for backend in tool::BACKENDS {
        let dir = format!("{GOLDEN}/{}", backend.facts().name);
        let told = told(*backend);
        for (name, target) in &told {
            let trampolines = suite::trampolines(target).unwrap();
            let spec = suite::specs(&trampolines).into_iter().find(|spec| spec.name == name).unwrap();
            blessed(&format!("{dir}/{name}.txt"), &story(*backend, &spec, target));
        }
        let known: BTreeSet<String> = told.iter().map(|(name, _)| format!("{name}.txt")).collect();
        let there = std::fs::read_dir(root.join(dir)).unwrap();
        let there: BTreeSet<String> = there.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(there, known, "{GOLDEN}: run `cargo xtask bless golden`");
    }
}
