//! 10,000 trampolines of different functions into one object, through the library, as users do it, against GNU as
//! assembling the same text.

use std::borrow::Cow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use arch::{BACKENDS, backend};
use codegen::ask::spec::{Attach, Body, Kind, Program, Programs, Spec};
use codegen::backend::Backend;
use codegen::out::obj;
use codegen::words::proto::Prototype;
use link::{Input, Options, link};
use object::elf;
use object::write::{Object, Relocation, StandardSection, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, FileFlags, RelocationEncoding, RelocationFlags, RelocationKind,
    SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use tramptool::Trampolines;

use crate::kernel::{KERNEL, default_target};
use crate::table::{Demand, Row, print};
use crate::took::{cpu_so_far, quartiles, took};

const COUNT: usize = 10_000;
const ROUNDS: usize = 7;
/// How many signatures, and what the time for them is compared with.
const MANY: usize = 50_000;
const FEW: usize = MANY / 10;

/// Prototypes that differ, one a line.
fn prototypes() -> String {
    numbers(COUNT).map(|n| prototype(n) + "\n").collect()
}

/// Generate as a user of the library does: a trampoline for each prototype, which calls a function of its own.
fn distinct(arch: &str, prototypes: &str) -> Result<Trampolines, String> {
    let target = tramptool::Target::with_profile(arch, &format!("linux-{KERNEL}")).map_err(|e| e.to_string())?;
    let spec = |(n, sig): (usize, &str)| tramptool::Spec::direct(&format!("on_f{n}")).sig(sig);
    let specs: Vec<_> = prototypes.lines().enumerate().map(spec).collect();
    tramptool::generate(&target, &specs).map_err(|e| e.to_string())
}

fn peak_kib(pid: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Generate for the prototypes in a file, write the object to another, and print the peak memory of this process in KiB.
pub fn one(arch: &str, prototypes: &str, out: &str) -> Result<(), String> {
    let read = std::fs::read_to_string(prototypes).map_err(|e| format!("{prototypes}: {e}"))?;
    let object = distinct(arch, &read)?.object().map_err(|e| e.to_string())?;
    std::fs::write(out, object).map_err(|e| format!("{out}: {e}"))?;
    println!("{}", peak_kib("self").ok_or("no /proc/self/status")?);
    Ok(())
}

/// Run a command and watch its memory; returns the peak in KiB.
fn watched(command: &mut Command) -> Result<f64, String> {
    let mut child = command.stdout(Stdio::null()).spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (pid, mut peak) = (child.id().to_string(), 0.0_f64);
    loop {
        peak = peak.max(peak_kib(&pid).unwrap_or(0.0));
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return if status.success() { Ok(peak) } else { Err(format!("{command:?}: {status}")) };
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// A directory in memory where there is one, for both sides: no disk is measured here.
fn scratch() -> Result<tempfile::TempDir, String> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).map_err(|e| e.to_string())
}

/// Whom the trampoline of a function calls, by the last digit of its number: programs, or with none, one function of
/// the same signature. Each list is as frequent in [`FEW`] as in [`MANY`].
const LISTS: [&[Attach]; 10] = [
    &[],
    &[Attach::Fentry],
    &[],
    &[Attach::Fentry, Attach::Fexit],
    &[],
    &[Attach::FmodRet, Attach::Fexit],
    &[],
    &[Attach::Fentry, Attach::Fentry],
    &[],
    &[Attach::Fentry, Attach::FmodRet, Attach::Fexit, Attach::Fexit],
];

/// The programs of a function, none of which any other function has with the same cookie.
fn programs(n: usize) -> Vec<Program> {
    let program = |(i, &attach): (usize, &Attach)| {
        let symbol = Cow::Borrowed(attach.option().trim_start_matches('-'));
        Program { attach, symbol, cookie: (n + i * MANY) as i64 }
    };
    LISTS[n % LISTS.len()].iter().enumerate().map(program).collect()
}

/// A signature for each number: they differ in their arguments. Of half of them some are on the stack.
fn prototype(n: usize) -> String {
    const TYPES: [&str; 6] = ["int", "u64", "struct s *", "__int128", "unsigned char", "struct p { long a; int b; }"];
    let (mut digits, mut args) = (n, Vec::new());
    // Bijective numeration, so that no two numbers have the same digits.
    while digits > 0 {
        digits -= 1;
        args.push(format!("{} a{}", TYPES[digits % TYPES.len()], args.len()));
        digits /= TYPES.len();
    }
    if n % 10 >= 5 {
        args.extend((0..5).map(|i| format!("long b{i}")));
    }
    format!("u64 f{n}({})", if args.is_empty() { "void".to_owned() } else { args.join(", ") })
}

/// Functions of 16 bytes, each with a site where trampolines by default go on behind it.
fn functions(backend: &dyn Backend, names: &[&str]) -> Result<Vec<u8>, String> {
    const BYTES: u64 = 16;
    let target = &default_target(backend)?;
    let behind_first = backend.site_ip(0, &|_| None) as i64 + i64::from(target.convention.site.ip_offset);
    let addend = i64::from(target.resume) - behind_first;
    let facts = target.facts;
    let architecture = ARCHITECTURES.iter().find(|(machine, _)| *machine == facts.machine).ok_or("unknown machine")?.1;
    let mut object = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    object.flags = FileFlags::Elf { os_abi: elf::OsAbi(0), abi_version: 0, e_flags: elf::FileFlags(target.e_flags) };
    let text = object.section_id(StandardSection::Text);
    object.append_section_data(text, &vec![0; names.len() * BYTES as usize], BYTES);
    let list = object.add_section(Vec::new(), b"__patchable_function_entries".to_vec(), SectionKind::Data);
    object.append_section_data(list, &vec![0; 8 * names.len()], 8);
    for (i, name) in (0..).zip(names) {
        let (name, scope, flags) = (name.as_bytes().to_vec(), SymbolScope::Dynamic, SymbolFlags::None);
        let (value, kind, section) = (BYTES * i, SymbolKind::Text, SymbolSection::Section(text));
        let symbol = object.add_symbol(Symbol { name, value, size: BYTES, kind, scope, weak: false, section, flags });
        let flags = RelocationFlags::Generic {
            kind: RelocationKind::Absolute,
            encoding: RelocationEncoding::Generic,
            size: 64,
        };
        let entry = Relocation { offset: 8 * i, symbol, addend, flags };
        object.add_relocation(list, entry).map_err(|e| e.to_string())?;
    }
    object.write().map_err(|e| e.to_string())
}

/// What the object crate calls each machine.
const ARCHITECTURES: [(u16, Architecture); 3] =
    [(62, Architecture::X86_64), (183, Architecture::Aarch64), (243, Architecture::Riscv64)];

/// A function to trace: its prototype, and the programs attached to it.
type Traced = (String, Vec<Program>);

/// From signatures and lists to a linked image in which each function's site goes to a trampoline of its own.
fn tailored(backend: &dyn Backend, traced: &[Traced], functions: &[u8]) -> Result<usize, String> {
    let target = default_target(backend)?;
    let live = target.convention.site.live;
    let planned = |(text, programs): &Traced| {
        let proto = Prototype::parse(text)?;
        let placement = target.place(&proto)?;
        let kind = if programs.is_empty() {
            Kind::Direct(placement.direct(&target.facts.abi, live, false))
        } else {
            let call_orig = programs.iter().any(|p| p.attach != Attach::Fentry);
            Kind::Programs(Programs { call_orig, ..placement.programs(&proto, &target.facts.abi, live, false)? })
        };
        let name = format!("{}_tramp", proto.name);
        Ok(((proto.name, name), kind))
    };
    let all = traced.iter().map(planned).collect::<Result<Vec<_>, codegen::words::error::Error>>();
    let (names, kinds): (Vec<(String, String)>, Vec<Kind>) = all.map_err(|e| e.to_string())?.into_iter().unzip();
    let functions_of = names.iter().zip(&kinds).zip(traced);
    let specs: Vec<Spec> = functions_of
        .map(|(((function, name), &kind), (_, programs))| {
            let body = Body { function, resume: target.resume, ..Body::default() };
            Spec { name, callee: "handler", body, programs, ..Spec::of(name, kind) }
        })
        .collect();
    let assembly = backend.assemble(&specs, &target).map_err(|e| e.to_string())?;
    let bytes = obj::write(&assembly, &target).map_err(|e| e.to_string())?;
    drop(assembly);
    drop(specs);
    let (jump, patch): (Vec<_>, Vec<_>) = names.into_iter().zip(kinds).partition(|(_, kind)| kind.jumped_to());
    let [jump, patch] = [jump, patch].map(|all| all.into_iter().map(|(names, _)| names).collect());
    let inputs = [Input { name: "tailored.o", bytes: &bytes }, Input { name: "functions.o", bytes: functions }];
    let site = Some(&target.convention.site);
    let options = Options { stub: Some(backend.machine().ret), site, patch, jump, ..Options::default() };
    let image = link(backend, &inputs, &options).map_err(|e| e.to_string())?;
    Ok(image.sites.len())
}

/// So many functions, and an object with them. Fewer than [`MANY`] are spread over them: as many have as many
/// arguments.
fn traced(backend: &dyn Backend, count: usize) -> Result<(Vec<Traced>, Vec<u8>), String> {
    let names: Vec<String> = numbers(count).map(|n| format!("f{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let traced = numbers(count).map(|n| (prototype(n), programs(n))).collect();
    Ok((traced, functions(backend, &names)?))
}

fn numbers(count: usize) -> impl Iterator<Item = usize> {
    let step = (MANY / count.max(1)).max(1);
    (0..count).map(move |i| i * step + i % step)
}

/// As [`one`], for so many signatures. Besides the peak it prints the CPU time, in ms, from the signatures to the image: they
/// are made before, and that is not counted.
pub fn tailored_one(arch: &str, count: &str) -> Result<(), String> {
    let backend = backend(arch).map_err(|e| e.to_string())?;
    let (traced, functions) = traced(backend, count.parse().map_err(|_| "no number")?)?;
    let before = cpu_so_far()?;
    tailored(backend, &traced, &functions)?;
    let cpu = cpu_so_far()? - before;
    println!("{} {cpu}", peak_kib("self").ok_or("no /proc/self/status")?);
    Ok(())
}

/// What a process of this program prints: one figure, or several.
fn figures_of(args: &[&str]) -> Result<Vec<f64>, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let child = Command::new(exe).args(args).output().map_err(|e| e.to_string())?;
    let printed = String::from_utf8_lossy(&child.stdout);
    let figures = printed.split_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>();
    figures.ok().filter(|f| !f.is_empty()).ok_or_else(|| format!("no figures: bench {}", args.join(" ")))
}

fn tailored_rows(backend: &dyn Backend, rows: &mut Vec<Row>) -> Result<(), String> {
    let arch = backend.facts().name;
    let (many, few) = (MANY.to_string(), FEW.to_string());
    let one = |count: &str| match figures_of(&["tailored-one", arch, count])?[..] {
        [peak, cpu] => Ok((peak, cpu)),
        _ => Err("no CPU time".to_owned()),
    };
    let turns = in_turns(|| Ok(one(&many)?.1), || Ok(10.0 * one(&few)?.1))?;
    let name = format!("{arch} {MANY} signatures and lists, ms of CPU ({:.0} k/s)", MANY as f64 / turns.ours);
    let row = Row::new(name, turns.ours, format!("10 times those for {FEW}, ms of CPU"), turns.theirs);
    // No more than 1.1 times as long.
    rows.push(row.rounds(turns.ratios).demanded(Demand::AtLeast(0.91)));
    let name = format!("{arch} {MANY} signatures and lists, peak MiB");
    let [many, few] = [one(&many)?.0 / 1024.0, 10.0 * one(&few)?.0 / 1024.0];
    rows.push(Row::new(name, many, format!("10 times that of {FEW}, MiB"), few));
    Ok(())
}

/// What two that take turns took: the medians, and the second over the first as rounds had it, in quartiles.
struct Turns {
    ours: f64,
    theirs: f64,
    ratios: [f64; 3],
}

/// Measure both in turns: other work on the machine slows both.
fn in_turns(
    mut ours: impl FnMut() -> Result<f64, String>,
    mut theirs: impl FnMut() -> Result<f64, String>,
) -> Result<Turns, String> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        left.push(ours()?);
        right.push(theirs()?);
    }
    let ratios = quartiles(left.iter().zip(&right).map(|(ours, theirs)| theirs / ours).collect());
    let [[_, ours, _], [_, theirs, _]] = [left, right].map(quartiles);
    Ok(Turns { ours, theirs, ratios })
}

/// Both write an object of the same trampolines, in turns, each in a process of its own: ours from prototypes, GNU as from the
/// text that the library makes of them.
fn against_gas(backend: &dyn Backend, rows: &mut Vec<Row>) -> Result<(), String> {
    let (dir, facts) = (scratch()?, backend.facts());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (read, source, out) = (path("prototypes"), path("t.S"), path("t.o"));
    let prototypes = prototypes();
    let text = distinct(facts.name, &prototypes)?.text().map_err(|e| e.to_string())?;
    std::fs::write(&read, &prototypes).and_then(|()| std::fs::write(&source, text)).map_err(|e| e.to_string())?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let [ours, gas] = [vec!["generate-one", facts.name, &read, &out], vec![&source, "-o", &out]];
    let gas_peak = watched(Command::new(facts.assembler).args(&gas))?;
    // Neither has to free what the other wrote.
    let cpu = |program: &Path, args: &[&str]| {
        std::fs::remove_file(&out).map_err(|e| e.to_string())?;
        Ok(took(program, &args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>(), 1)?.cpu)
    };
    let turns = in_turns(|| cpu(&own, &ours), || cpu(Path::new(facts.assembler), &gas))?;
    let arch = facts.name;
    let name = format!("{arch} {COUNT} functions, ms of CPU");
    let row = Row::new(name, turns.ours, "GNU as on the same text, ms of CPU", turns.theirs);
    rows.push(row.rounds(turns.ratios).demanded(Demand::AtLeast(50.0)));
    let (peak, name) = (figures_of(&ours)?[0], format!("{arch} {COUNT} functions, peak MiB"));
    rows.push(Row::new(name, peak / 1024.0, "GNU as, peak MiB", gas_peak / 1024.0));
    Ok(())
}

/// Measure and print.
pub fn run(json: bool) -> Result<(), String> {
    let mut rows = Vec::new();
    for backend in BACKENDS {
        against_gas(*backend, &mut rows)?;
        tailored_rows(*backend, &mut rows)?;
    }
    print(&rows, json)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// No two signatures are the same but for the name, no two lists, and fewer are the same mixture.
    #[test]
    fn functions_differ() {
        let arguments = |n| prototype(n).split_once('(').map(|(_, arguments)| arguments.to_owned());
        let signatures: BTreeSet<_> = numbers(MANY).map(arguments).collect();
        assert_eq!(signatures.len(), MANY);
        let mut lists = BTreeSet::new();
        for (n, list) in numbers(MANY).map(|n| (n, programs(n))).filter(|(_, list)| !list.is_empty()) {
            assert!(lists.insert(list.iter().map(Program::to_string).collect::<String>()), "{n}");
        }
        assert_eq!(lists.len(), MANY / 2);
        let mixture = |count| {
            let mut shares = [0; LISTS.len()];
            numbers(count).for_each(|n| shares[n % LISTS.len()] += MANY / count);
            shares
        };
        assert_eq!(mixture(FEW), mixture(MANY));
    }

    #[test]
    fn every_site_goes_to_a_trampoline_of_its_own() {
        for &backend in BACKENDS {
            let (traced, functions) = traced(backend, 40).unwrap();
            assert_eq!(tailored(backend, &traced, &functions), Ok(40), "{}", backend.facts().name);
        }
    }
}
