//! The directory that uftrace reads, in the form that its versions 0.13 to 0.19 have in common.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

use codegen::words::error::Result;
use codegen::words::shown::printable;

use crate::calls::Step;
use crate::file::{Function, Kind, Loaded, Number, Parameter, Status};
use crate::filter::{Filter, Shown};
use crate::recording::{Recording, Run, Thread, Unit};
use crate::steps::Steps;
use crate::text::written;
use crate::values::{argument_bytes, result_bytes, width};

use super::Files;

/// Levels that a record can tell.
const DEEPEST: usize = 1024;
/// The bits of a record's second word beside type, depth and address.
const MAGIC: u64 = 5 << 3;
/// Types of records.
const ENTRY: u64 = 0;
const EXIT: u64 = 1;
const LOST: u64 = 2;
/// Values follow.
const MORE: u64 = 1 << 2;

/// Write the directory's files. Returns how many calls lay too deep for the format; uftrace says that they are lost.
///
/// # Errors
/// The file cannot be read, or a file cannot be written.
pub fn uftrace<R: Read + Seek>(recording: &Recording<R>, filter: &Filter, files: &mut dyn Files) -> Result<u64> {
    let specs = Specs::new(recording);
    write(files, "info", &info(recording, &specs))?;
    write(files, "task.txt", tasks(recording).as_bytes())?;
    write(files, "default.opts", b"")?;
    for (i, run) in recording.runs.iter().enumerate() {
        write(files, &format!("sid-{}.map", session(i)), map(recording, i, run).as_bytes())?;
    }
    for (name, text) in symbols(recording) {
        write(files, &name, text.as_bytes())?;
    }
    let mut deeper = 0;
    for (tid, threads) in by_tid(recording) {
        let mut out = opened(files, &format!("{tid}.dat"))?;
        for thread in threads {
            deeper += records(recording, thread, filter, &specs, &mut out)?;
        }
        written(out.flush())?;
    }
    Ok(deeper)
}

fn opened(files: &mut dyn Files, name: &str) -> Result<Box<dyn Write>> {
    let mut opened = None;
    written(files.create(name).map(|file| opened = Some(file)))?;
    Ok(opened.unwrap_or_else(|| Box::new(std::io::sink())))
}

fn write(files: &mut dyn Files, name: &str, bytes: &[u8]) -> Result<()> {
    let mut file = opened(files, name)?;
    written(file.write_all(bytes).and_then(|()| file.flush()))
}

/// Threads of the same number share a file: another one after an exec, or a number that was used again.
fn by_tid<R>(recording: &Recording<R>) -> BTreeMap<u32, Vec<&Thread>> {
    let mut threads: BTreeMap<u32, Vec<&Thread>> = BTreeMap::new();
    for thread in &recording.threads {
        threads.entry(thread.task.tid).or_default().push(thread);
    }
    threads
}

/// A session's name, by the index of the run.
fn session(run: usize) -> String {
    format!("{:016x}", run + 1)
}

/// A text without line breaks.
fn line(text: &str) -> String {
    printable(text).replace('"', "'")
}

/// How uftrace reads the values that lie behind records: of a function's arguments and of its result, by the function's number.
struct Specs(BTreeMap<u32, [String; 2]>);

impl Specs {
    fn new<R>(recording: &Recording<R>) -> Specs {
        let format = |number: Number| {
            let letter = match number.kind {
                Kind::Signed => 'i',
                Kind::Unsigned | Kind::Boolean => 'u',
                Kind::Pointer => 'x',
            };
            format!("/{letter}{}", 8 * width(number))
        };
        let argument = |(n, parameter): (usize, &Parameter)| Some(format!("arg{n}{}", format(parameter.word?.1)));
        let spec = |function: &Function| {
            let arguments: Vec<String> = (1..).zip(&function.parameters).filter_map(argument).collect();
            let result = function.result.map_or(String::new(), |number| format!("retval{}", format(number)));
            [arguments.join(","), result]
        };
        let mut all: BTreeMap<u32, [String; 2]> =
            recording.functions().map(|(number, traced)| (number, spec(&traced.function))).collect();
        all.retain(|_, spec| spec.iter().any(|part| !part.is_empty()));
        // uftrace finds them by name. Those that it does not tell apart must have the same, and a name must not end within itself.
        let mut named: BTreeMap<String, Option<[String; 2]>> = BTreeMap::new();
        for (number, spec) in &all {
            let seen = named.entry(key(recording.name(*number))).or_insert_with(|| Some(spec.clone()));
            *seen = seen.take().filter(|seen| seen == spec);
        }
        all.retain(|number, _| {
            let name = recording.name(*number);
            !name.contains(['@', ';']) && named.get(&key(name)).is_some_and(Option::is_some)
        });
        Specs(all)
    }

    /// The lines that say it.
    fn lines<R>(&self, recording: &Recording<R>) -> String {
        let line = |part: usize| {
            let named = self.0.iter().filter(|(_, spec)| !spec[part].is_empty());
            let spec = |(number, spec): (&u32, &[String; 2])| {
                let name = recording.function(*number).map_or("", |traced| &traced.function.name);
                format!("{}@{}", line(name), spec[part])
            };
            named.map(spec).collect::<Vec<_>>().join(";")
        };
        format!("argspec:lines=2\nargspec:{}\nretspec:{}\npattern_type:simple\n", line(0), line(1))
    }
}

/// A function's name as uftrace shows it, or less of it: without its parameters, and without those of templates.
fn key(name: &str) -> String {
    let name = name.replace("(anonymous namespace)", "");
    let mut depth = 0_usize;
    let outside = |c: &char| {
        depth = if *c == '<' { depth + 1 } else { depth };
        let outside = depth == 0;
        depth = if *c == '>' { depth.saturating_sub(1) } else { depth };
        outside
    };
    name.chars().take_while(|c| *c != '(').filter(outside).collect()
}

fn info<R>(recording: &Recording<R>, specs: &Specs) -> Vec<u8> {
    /// Sessions of tasks, and symbols relative to their object.
    const FEATURES: u64 = 0x22;
    /// Which lines follow: the program, its exit status, the command, the tasks.
    const LINES: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 7;
    /// The same where records have values: arguments and results; how to read them, and how names are compared.
    const VALUES: (u64, u64) = (1 << 3 | 1 << 4, 1 << 10 | 1 << 12);
    let (features, lines) = if specs.0.is_empty() { (0, 0) } else { VALUES };
    let mut info = b"Ftrace!\0".to_vec();
    info.extend(4_u32.to_le_bytes());
    info.extend(40_u16.to_le_bytes());
    // Little-endian, 64 bits.
    info.extend([1, 2]);
    info.extend((FEATURES | features).to_le_bytes());
    info.extend((LINES | lines).to_le_bytes());
    info.extend((DEEPEST as u16).to_le_bytes());
    info.extend([0; 6]);
    let first = recording.runs.first();
    let status = match first.and_then(|run| run.end.as_ref()).map(|end| end.status) {
        Some(Status::Exited(code)) => (code & 255) << 8,
        Some(Status::Signalled(signal)) => signal & 127,
        _ => 0,
    };
    let tids: Vec<String> = by_tid(recording).keys().map(u32::to_string).collect();
    let exe = first.map_or(String::new(), |run| line(&run.process.exe));
    let command = line(&recording.session.command.join(" "));
    let (count, tids) = (tids.len(), tids.join(","));
    let tasks = format!("taskinfo:lines=2\ntaskinfo:nr_tid={count}\ntaskinfo:tids={tids}\n");
    let specs = if specs.0.is_empty() { String::new() } else { specs.lines(recording) };
    info.extend(format!("exename:{exe}\nexit_status:{status}\ncmdline:{command}\n{tasks}{specs}").bytes());
    info
}

fn tasks<R>(recording: &Recording<R>) -> String {
    let time = |time: u64| match recording.unit() {
        Unit::Nanoseconds => format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000),
        Unit::Ticks | Unit::Order => "0.000000000".to_owned(),
    };
    let mut lines = String::new();
    for (i, run) in recording.runs.iter().enumerate() {
        let (pid, started) = (run.process.pid, time(run.process.started));
        if let Some(parent) = run.process.parent {
            lines += &format!("FORK timestamp={started} pid={pid} ppid={parent}\n");
        }
        let (sid, exe) = (session(i), line(&run.process.exe));
        lines += &format!("SESS timestamp={started} pid={pid} sid={sid} exename=\"{exe}\"\n");
        let threads = recording.threads.iter().filter(|thread| thread.run == i);
        for task in threads.map(|thread| &thread.task) {
            let started = time(task.started.max(run.process.started));
            lines += &format!("TASK timestamp={started} tid={} pid={pid}\n", task.tid);
        }
    }
    lines
}

/// Where a process has an object: a child has what its parent had, if nothing else is known.
fn loaded<R>(recording: &Recording<R>, run: usize, object: u32) -> Option<&Loaded> {
    let mut run = recording.runs.get(run)?;
    // Each is the child of another.
    for _ in 0..recording.runs.len() {
        if let Some(loaded) = run.loaded.iter().find(|loaded| loaded.object == object) {
            return Some(loaded);
        }
        run = recording.runs.iter().rev().find(|other| Some(other.process.pid) == run.process.parent)?;
    }
    None
}

/// The first address of an object: uftrace counts from there.
fn start(loaded: &Loaded) -> u64 {
    loaded.ranges.iter().map(|range| range.start).min().unwrap_or(loaded.base)
}

fn map<R>(recording: &Recording<R>, index: usize, run: &Run) -> String {
    /// Bytes of an object whose ranges are unknown.
    const SIZE: u64 = 1 << 20;
    let mut lines: Vec<(u64, String)> = Vec::new();
    for object in &recording.objects {
        let Some(loaded) = loaded(recording, index, object.id) else { continue };
        let id =
            if object.build_id.is_empty() { String::new() } else { format!(" build-id:{}", line(&object.build_id)) };
        let path = line(&object.path) + &id;
        let mut add = |start: u64, end: u64, offset: u64, flags: &str| {
            lines.push((start, format!("{start:012x}-{end:012x} {flags} {offset:08x} 00:00 0 {path}\n")));
        };
        loaded.ranges.iter().for_each(|range| add(range.start, range.end, range.offset, &line(&range.flags)));
        if loaded.ranges.is_empty() {
            let functions =
                recording.functions().filter(|(_, traced)| recording.objects[traced.object].id == object.id);
            let ends = functions.map(|(_, traced)| traced.function.offset.saturating_add(traced.function.size));
            let size = ends.max().unwrap_or(0).max(SIZE).checked_next_multiple_of(0x1000).unwrap_or(SIZE);
            add(loaded.base, loaded.base.saturating_add(size), 0, "r-xp");
        }
    }
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    let exe = line(&run.process.exe);
    // uftrace takes the first object for the program: it must be there, and the stack must be too.
    let missing = if text.contains(&*exe) {
        String::new()
    } else {
        format!("000000001000-000000002000 r-xp 00000000 00:00 0 {exe}\n")
    };
    format!("{missing}{text}7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n")
}

/// The symbol files, by name.
fn symbols<R>(recording: &Recording<R>) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for (index, object) in recording.objects.iter().enumerate() {
        let shift = (0..recording.runs.len()).find_map(|run| loaded(recording, run, object.id));
        let shift = shift.map_or(0, |loaded| loaded.base.wrapping_sub(start(loaded)));
        let mut all: BTreeMap<u64, &str> = BTreeMap::new();
        let mut end = 0;
        for (_, traced) in recording.functions().filter(|(_, traced)| traced.object == index) {
            let at = traced.function.offset.wrapping_add(shift);
            end = end.max(at.saturating_add(traced.function.size.max(1)));
            all.insert(at, &traced.function.name);
        }
        let mut text = format!("# symbols: {}\n# path name: {}\n", all.len(), line(&object.path));
        if !object.build_id.is_empty() {
            text += &format!("# build-id: {}\n", line(&object.build_id));
        }
        let symbols = all.into_iter().map(|(at, name)| format!("{at:016x} T {}\n", line(name)));
        text.extend(symbols);
        text += &format!("{end:016x} ? __func_end\n");
        let base = line(object.path.rsplit('/').next().unwrap_or("")).replace('/', "_");
        let plain = format!("{base}.sym");
        // Objects of the same name are told apart by their build IDs, or by the letters of their paths.
        let sum: u32 = object.path.bytes().map(u32::from).fold(0, u32::wrapping_add);
        let id = object.build_id.get(..4).map_or_else(|| format!("{:04x}", sum & 0xffff), str::to_owned);
        let name = if files.contains_key(&plain) { format!("{base}-{}.sym", id.replace('/', "_")) } else { plain };
        files.insert(name, text);
    }
    files
}

fn records<R: Read + Seek>(
    recording: &Recording<R>,
    thread: &Thread,
    filter: &Filter,
    specs: &Specs,
    out: &mut dyn Write,
) -> Result<u64> {
    let mut record = |time: u64, kind: u64, depth: usize, address: u64, values: Option<Vec<u8>>| {
        let more = if values.is_some() { MORE } else { 0 };
        let what = kind | more | MAGIC | (depth as u64) << 6 | address << 16;
        let mut bytes = [time.to_le_bytes(), what.to_le_bytes()].concat();
        bytes.extend(values.unwrap_or_default());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        written(out.write_all(&bytes))
    };
    let addresses: BTreeMap<u32, u64> = recording
        .functions()
        .map(|(number, traced)| {
            let loaded = loaded(recording, thread.run, recording.objects[traced.object].id);
            (number, loaded.map_or(0, |loaded| loaded.base).wrapping_add(traced.function.offset))
        })
        .collect();
    let mut steps = Steps::new(recording, thread, filter);
    // uftrace shows what is lost within a call only. Where the trampolines lost records, nobody knows.
    let mut lost = thread.lost.values().fold(0_u64, |sum, records| sum.saturating_add(*records));
    let mut deeper = 0;
    while let Some(Shown { step, .. }) = steps.next_step()? {
        let call = step.call();
        if call.depth >= DEEPEST {
            deeper += u64::from(matches!(step, Step::Begin(_)));
            lost = lost.saturating_add(1);
            continue;
        }
        if lost > 0 && (call.depth > 0 || matches!(step, Step::End(_))) {
            record(step.time(), LOST, 0, std::mem::take(&mut lost), None)?;
        }
        const ALIGN: usize = 4;
        let (kind, values) = match &step {
            Step::Begin(call) => (ENTRY, argument_bytes(recording, call, ALIGN)),
            Step::End(call) => (EXIT, result_bytes(recording, call, ALIGN)),
        };
        let values = values.filter(|_| specs.0.contains_key(&call.function));
        record(step.time(), kind, call.depth, addresses.get(&call.function).copied().unwrap_or(0), values)?;
    }
    Ok(deeper)
}
