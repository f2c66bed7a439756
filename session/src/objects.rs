//! The objects of a session: which functions have which number, and where processes have loaded them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};

use crate::attach::{Chosen, Loaded, Orders, Routines};
use crate::forms::{Form, Forms, How, What};
use crate::function::Function;
use crate::maps::{self, Mapping};
use crate::object::Object;
use crate::protocol::{Hello, Kind};
use crate::prototypes;

/// Chooses what is recorded.
pub trait Choice: Sync {
    /// Is anything of this object, which is the program itself or a library?
    fn object(&self, path: &Path, program: bool) -> bool;
    /// Is this function of it? Its name is empty if none is known.
    fn function(&self, object: &Path, name: &str, size: u64) -> bool;
    /// Does the recording end with the first call of this function of it?
    fn last(&self, _object: &Path, _name: &str) -> bool {
        false
    }
    /// Is anything of what is loaded later, by `dlopen`?
    fn later(&self) -> bool {
        false
    }
    /// Are functions recorded too for which no compiler has left room?
    fn any(&self) -> bool {
        false
    }
}

/// An object, with the numbers of its functions.
pub struct Numbered {
    /// The number of the object.
    pub id: u32,
    /// The number of its first function; the others follow.
    pub first: u32,
    /// The object's content.
    pub object: Object,
}

/// An object where a process has loaded it.
pub struct Place {
    /// The object.
    pub numbered: Arc<Numbered>,
    /// The difference between an address in the process and in the file.
    pub base: u64,
    /// The object's lines of the process's maps.
    pub maps: Vec<Mapping>,
    /// Whether this process is the first to load it.
    pub new: bool,
    /// The number of its functions that are recorded.
    pub recorded: usize,
    /// Whether the recording ends with one of its functions.
    pub last: bool,
    /// The way in which they are recorded.
    pub how: How,
    /// Why entries alone are recorded: what an object of the process has or does.
    pub why: Option<&'static str>,
}

/// What a process has to do.
#[derive(Default)]
pub struct Attached {
    /// The orders.
    pub orders: Orders,
    /// Where its recorded objects are that were not there before.
    pub places: Vec<Place>,
    /// Why objects are not recorded.
    pub complaints: Vec<Error>,
}

/// All objects of a session.
#[derive(Default)]
pub struct Objects {
    /// Bytes that each process maps for records.
    records: u64,
    known: HashMap<PathBuf, Arc<Numbered>>,
    /// Objects that were read, and get a number next.
    read: HashMap<PathBuf, Object>,
    /// Of each process, the objects that are recorded, and what is added to their addresses.
    attached: HashMap<u32, Vec<(PathBuf, u64)>>,
    next: u32,
    /// Of files, why entries alone are recorded in processes that load them, if there is a reason.
    entries_alone: HashMap<PathBuf, Option<&'static str>>,
    /// Templates by the offset of a thread's words.
    forms: HashMap<i64, Arc<Forms>>,
}

/// With what the names of files begin that are in memory alone: code that somebody has made, and trampolines.
const IN_MEMORY: &str = "/memfd:";

/// The unwinder that asks `session/preload/preload.c` for the frames of trampolines, and objects whose tables are for it without a word
/// of that: glibc loads it for `pthread_exit`.
const ASKS: [&str; 5] = ["libc.so", "libgcc_s.so", "ld-linux", "libpthread.so", "libm.so"];

impl Objects {
    /// None yet, of processes that each map so many bytes for records.
    pub fn new(records: u64) -> Objects {
        Objects { records, ..Objects::default() }
    }

    /// The object of this file, read if it is not known.
    fn object(&mut self, path: &Path, any: bool, what: What, backend: &dyn Patch) -> Result<(Arc<Numbered>, bool)> {
        if let Some(known) = self.known.get(path) {
            return Ok((known.clone(), false));
        }
        let read = self.read.remove(path).map_or_else(|| Object::read(path, any, backend), Ok);
        let mut object = read?;
        if what.args || what.result {
            prototypes::read(&mut object, backend)?;
        }
        let (id, first) = (self.known.len() as u32 + 1, self.next);
        let next = u32::try_from(object.functions.len()).ok().and_then(|n| first.checked_add(n));
        self.next = next.filter(|n| *n <= tramptool::Filling::IDS).ok_or_else(|| {
            Error::new(format!("{}: more functions than a record has numbers for; valid: fewer, by -f", path.display()))
        })?;
        let numbered = Arc::new(Numbered { id, first, object });
        self.known.insert(path.to_owned(), numbered.clone());
        Ok((numbered, true))
    }

    /// A process has forked: the child has what its parent has.
    pub fn forked(&mut self, hello: &Hello) {
        let all = self.attached.get(&hello.parent).cloned().unwrap_or_default();
        self.attached.insert(hello.pid, all);
    }

    /// What a process has to do. An object that cannot be read, or has no room for trampolines, is not recorded.
    ///
    /// # Errors
    /// There are no templates for it.
    pub fn attach(
        &mut self,
        hello: &Hello,
        text: &str,
        what: What,
        choice: &dyn Choice,
        backend: &dyn Patch,
    ) -> Result<Attached> {
        let (exe, maps) = text.split_once('\n').unwrap_or_default();
        let mut maps = maps::parse(maps);
        // The library that records would record itself.
        let own = maps.iter().find(|m| m.range.contains(&hello.refill)).map(|m| m.path.clone());
        let file =
            |m: &&Mapping| m.path.starts_with('/') && !m.path.starts_with(IN_MEMORY) && Some(&m.path) != own.as_ref();
        let code = maps.iter().filter(|m| m.protection & maps::EXEC != 0).filter(file);
        let mut paths: Vec<PathBuf> = code.map(|m| PathBuf::from(&m.path)).collect();
        paths.dedup();
        let forms = self.forms(what, hello.words, choice.any(), backend)?;
        let chosen = |path: &Path| choice.object(path, same(path, Path::new(exe)));
        let why = self.entries_alone(&paths, &chosen, choice.any(), backend);
        let how = if what.returns && why.is_none() { How::Shadow } else { How::Entry };
        // Nobody executes what has just been loaded.
        let alone = hello.kind == Kind::Loaded || alone(hello.pid, Path::new(exe));
        let routines = Routines { refill: hello.refill, last: hello.last };
        let (mut all, mut there) = (Attached { orders: Orders::new(self.records), ..Attached::default() }, Vec::new());
        let before = self.attached.remove(&hello.pid).filter(|_| hello.kind == Kind::Loaded).unwrap_or_default();
        for path in paths.iter().filter(|path| chosen(path)) {
            let (numbered, new) = match self.object(path, choice.any(), what, backend) {
                Ok(read) => read,
                Err(why) => {
                    all.complaints.push(why);
                    continue;
                }
            };
            let Some((base, range)) = placed(&maps, path, numbered.object.lowest) else { continue };
            there.push((path.clone(), base));
            if before.contains(&(path.clone(), base)) {
                continue;
            }
            // Where no compiler has left room, somebody could be in the middle of what is overwritten.
            let safe = |f: &Function| f.entries.is_empty() || alone;
            let wanted = |(_, f): &(u32, &Function)| safe(f) && choice.function(path, &f.name, f.size);
            let functions: Vec<Chosen> = (numbered.first..)
                .zip(&numbered.object.functions)
                .filter(wanted)
                .map(|(id, function)| {
                    let form = Form::of(how, what, function.signature.as_ref());
                    Chosen { id, function, form, last: choice.last(path, &function.name) }
                })
                .collect();
            let last = functions.iter().any(|chosen| chosen.last);
            let lines = maps.iter().filter(|m| Path::new(&m.path) == path).cloned().collect();
            let loaded = Loaded { base, range, guarded: numbered.object.guarded, functions };
            let recorded = all.orders.add(&loaded, &forms, routines, &mut maps, backend).unwrap_or_else(|why| {
                all.complaints.push(Error::new(format!("{} is not recorded: {why}", path.display())));
                0
            });
            all.places.push(Place { numbered, base, maps: lines, new, recorded, last, how, why });
        }
        self.attached.insert(hello.pid, there);
        Ok(all)
    }

    /// Why return addresses of this process must stay where they are, if there is a reason: what one of its objects has or does.
    /// Those that are `chosen` are read whole, as they are recorded next.
    fn entries_alone(
        &mut self,
        paths: &[PathBuf],
        chosen: &dyn Fn(&Path) -> bool,
        any: bool,
        backend: &dyn Patch,
    ) -> Option<&'static str> {
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut loud = paths.iter().filter(|path| !ASKS.iter().any(|asks| name(path).starts_with(asks)));
        loud.find_map(|path| {
            if let Some(known) = self.entries_alone.get(path) {
                return *known;
            }
            let why = match self.known.get(path) {
                Some(numbered) => numbered.object.entries_alone,
                None if chosen(path) => Object::read(path, any, backend).ok().and_then(|object| {
                    let why = object.entries_alone;
                    self.read.insert(path.clone(), object);
                    why
                }),
                None => Object::read_entries_alone(path, backend).ok().flatten(),
            };
            self.entries_alone.insert(path.clone(), why);
            why
        })
    }

    fn forms(&mut self, what: What, words: i64, any: bool, backend: &dyn Patch) -> Result<Arc<Forms>> {
        if let Some(known) = self.forms.get(&words) {
            return Ok(known.clone());
        }
        let forms = Arc::new(Forms::new(backend.facts().name, what, words, any)?);
        self.forms.insert(words, forms.clone());
        Ok(forms)
    }
}

/// Has the process one thread? Those of an emulator, which is another program than it seems to be, are none of it.
fn alone(pid: u32, exe: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let itself = fs::read_link(process.join("exe")).is_ok_and(|real| real == exe);
    !itself || fs::read_dir(process.join("task")).is_ok_and(|threads| threads.count() == 1)
}

/// The identity of a file, under any of its names.
fn same(a: &Path, b: &Path) -> bool {
    a == b || fs::canonicalize(a).ok().zip(fs::canonicalize(b).ok()).is_some_and(|(a, b)| a == b)
}

/// Where an object is: what is added to its addresses, and the addresses that it has.
fn placed(maps: &[Mapping], path: &Path, lowest: u64) -> Option<(u64, std::ops::Range<u64>)> {
    let mine = || maps.iter().filter(|m| Path::new(&m.path) == path);
    let first = mine().filter(|m| m.offset == 0).map(|m| m.range.start).min()?;
    let end = mine().map(|m| m.range.end).max()?;
    Some((first.wrapping_sub(lowest), first..end))
}
