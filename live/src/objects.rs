//! The objects of this process, and their functions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codegen::arch::patch::Patch;
use session::function::{Function as Traced, Refused};
use session::maps::{EXEC, Mapping};
use session::object::Object;

use crate::error::{Error, Result};
use crate::function::{Class, Entry, Function, Room};
use crate::machine::MACHINE;
use crate::memory::{self, Loads, Text, Writer};
use crate::threads;

/// Objects that were read. One that is unloaded and loaded again is the same file.
#[derive(Default)]
pub struct Objects {
    known: HashMap<PathBuf, Option<Arc<Known>>>,
    /// What was mapped when it was last looked at.
    mapped: Option<Mapped>,
}

/// An object that was read.
struct Known {
    object: Object,
    /// For each of its functions, the highest end of those up to it.
    ends: Vec<u64>,
}

/// The mappings of this process.
struct Mapped {
    /// What the loader had done by then.
    loads: Option<Loads>,
    all: Vec<Mapping>,
    /// The first ones of objects.
    firsts: Vec<Mapping>,
    /// Those with code.
    code: Vec<Text>,
}

/// How functions are found.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// Those of this machine.
    pub backend: &'a dyn Patch,
    /// Those too for which there is room for a breakpoint alone.
    pub traps: bool,
    /// The reader of memory.
    pub writer: &'a Writer,
}

/// An object, and where it is loaded.
struct Loaded {
    known: Arc<Known>,
    path: Arc<Path>,
    base: u64,
}

impl Objects {
    /// The functions of this name in the first object that has one. `OBJECT:NAME` is one of a file whose name begins so.
    ///
    /// # Errors
    /// There is none, or nothing can be attached to it.
    pub fn named(&mut self, name: &str, how: Found) -> Result<Vec<Function>> {
        let (wanted, name) = name.split_once(':').map_or((None, name), |(object, name)| (Some(object), name));
        let mut near = Vec::new();
        for mapping in loaded() {
            let file = Path::new(&mapping.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
            if wanted.is_some_and(|wanted| !file.starts_with(wanted)) {
                continue;
            }
            let Some(loaded) = self.read(&mapping, how.backend) else { continue };
            let found: Vec<Function> = loaded.functions(0, &|f| f.name == name).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            let refused: Vec<&Refused> =
                loaded.object().refused.iter().filter(|refused| refused.name == name).collect();
            if !refused.is_empty() {
                return refused.into_iter().map(|refused| loaded.refused(refused, how)).collect();
            }
            near.extend(loaded.object().functions.iter().map(|f| f.name.clone()).filter(|n| alike(n, name)));
        }
        near.sort_by_key(|n| (n.len().abs_diff(name.len()), n.clone()));
        near.dedup();
        near.truncate(NEAR);
        Err(Error::NotFound { name: name.to_owned(), near })
    }

    /// The function that is at this address.
    ///
    /// # Errors
    /// As [`Objects::named`].
    pub fn at(&mut self, address: u64, how: Found) -> Result<Function> {
        let none = || Error::NotFound { name: format!("at {address:#x}"), near: Vec::new() };
        let find = |mapped: &Mapped| {
            let there = mapped.all.iter().find(|m| m.range.contains(&address))?;
            mapped.firsts.iter().find(|m| m.path == there.path).cloned()
        };
        let mapping = self.mapped(&find).ok_or_else(none)?;
        let loaded = self.read(&mapping, how.backend).ok_or_else(none)?;
        let inside = |at: u64, size: u64| {
            let start = loaded.base.wrapping_add(at);
            start == address || (start..start.saturating_add(size)).contains(&address)
        };
        // No function before ends behind the address.
        let before = loaded.known.ends.partition_point(|end| *end <= address.wrapping_sub(loaded.base));
        if let Some(function) = loaded.functions(before, &|f| inside(f.address, f.size)).next() {
            return Ok(function);
        }
        let refused = |refused: &&Refused| refused.code.is_some_and(|(at, size)| inside(at, size));
        loaded.refused(loaded.object().refused.iter().find(refused).ok_or_else(none)?, how)
    }

    /// The pages with the entry of a function, and how they are protected. They are looked up again once the loader has loaded or
    /// unloaded something.
    ///
    /// # Errors
    /// They are not there any more.
    pub fn text(&mut self, function: &Function) -> Result<Text> {
        let at = function.entry.at;
        let find = |mapped: &Mapped| mapped.code.iter().find(|text| text.range.contains(&at)).cloned();
        let gone = || Error::NotFound { name: format!("{}, which is unloaded", function.name), near: Vec::new() };
        let text = self.mapped(&find).ok_or_else(gone)?;
        // What a file promises, its loader lets the processor look for.
        let known = self.known.get(&*function.object).and_then(Option::as_ref);
        let guard = if known.is_some_and(|known| known.object.guarded) { (MACHINE.guard)() } else { 0 };
        Ok(Text { protection: text.protection | guard, ..text })
    }

    /// What is found in the mappings. They are read again if the loader has done something since, or nothing is found.
    fn mapped<T>(&mut self, find: &dyn Fn(&Mapped) -> Option<T>) -> Option<T> {
        let loads = memory::loads();
        let known = self.mapped.as_ref().filter(|mapped| mapped.loads.is_some() && mapped.loads == loads);
        known.and_then(find).or_else(|| find(self.mapped.insert(Mapped::new(loads))))
    }

    /// The object that is loaded there.
    fn read(&mut self, first: &Mapping, backend: &dyn Patch) -> Option<Loaded> {
        let path: Arc<Path> = Path::new(&first.path).into();
        let read = || Object::read(&path, true, backend).ok().map(|object| Arc::new(Known::new(object)));
        let known = self.known.entry(path.to_path_buf()).or_insert_with(read).clone()?;
        let base = first.range.start.wrapping_sub(known.object.lowest);
        Some(Loaded { known, path, base })
    }
}

impl Known {
    fn new(object: Object) -> Known {
        // One of which the size is not known has its first byte.
        let end = |f: &Traced| f.address.saturating_add(f.size.max(1));
        let highest = |so_far: &mut u64, f: &Traced| {
            *so_far = end(f).max(*so_far);
            Some(*so_far)
        };
        let ends = object.functions.iter().scan(0, highest).collect();
        Known { object, ends }
    }
}

/// The first mapping of each object that is loaded now, the program's before all others.
fn loaded() -> Vec<Mapping> {
    firsts(&threads::mappings())
}

/// The first of these mappings for each object.
fn firsts(all: &[Mapping]) -> Vec<Mapping> {
    let mut firsts: Vec<Mapping> = Vec::new();
    for mapping in all.iter().filter(|m| m.path.starts_with('/') && m.offset == 0) {
        if !firsts.iter().any(|first| first.path == mapping.path) {
            firsts.push(mapping.clone());
        }
    }
    let program = std::env::current_exe().unwrap_or_default();
    firsts.sort_by_key(|first| Path::new(&first.path) != program);
    firsts
}

/// The files of the objects that are loaded now; of the program, nothing.
pub fn paths() -> impl Iterator<Item = String> {
    let program = std::env::current_exe().unwrap_or_default();
    let name = move |first: Mapping| if Path::new(&first.path) == program { String::new() } else { first.path };
    loaded().into_iter().map(name)
}

/// The number of similar names that an error lists.
const NEAR: usize = 5;

/// Whether names look alike: one is part of the other, or they have more than half of their pairs of letters in common.
fn alike(a: &str, b: &str) -> bool {
    let pairs = |text: &str| text.as_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (first, second) = (pairs(a), pairs(b));
    let common = first.iter().filter(|pair| second.contains(pair)).count();
    !a.is_empty() && (a.contains(b) || b.contains(a) || 2 * common > first.len().max(second.len()))
}

impl Loaded {
    fn object(&self) -> &Object {
        &self.known.object
    }

    /// The functions that are wanted, without so many that are before all others.
    fn functions(&self, before: usize, wanted: &dyn Fn(&Traced) -> bool) -> impl Iterator<Item = Function> {
        self.object().functions.iter().skip(before).filter(|f| wanted(f)).map(|f| {
            let (start, at) = (self.base.wrapping_add(f.address), self.base.wrapping_add(f.site));
            let (class, reason, room) = match f.entries.first() {
                Some(entry) => (entry.class, "its first instructions can be moved", Room::Moved(f.entries.clone())),
                None if f.bytes.len() == MACHINE.word => {
                    (Class::Word, "its compiler has left room for an instruction", Room::Left)
                }
                None => (Class::Short, "its compiler has left room for a jump", Room::Left),
            };
            Function {
                name: f.name.clone(),
                object: self.path.clone(),
                range: start..start + f.size,
                class,
                reason,
                entry: Entry { at, bytes: f.bytes.clone(), room },
                prototype: None,
            }
        })
    }

    /// A function in which there is no room for a branch, if a breakpoint may do.
    ///
    /// # Errors
    /// A breakpoint may not do, or nothing may be written there.
    fn refused(&self, refused: &Refused, how: Found) -> Result<Function> {
        let (at, size) = refused.code.unwrap_or_default();
        let (start, class) = (self.base.wrapping_add(at), refused.class.unwrap_or(Class::Refused));
        let code = if size == 0 { Vec::new() } else { how.writer.read(start, size as usize) };
        let first = (1..=code.len()).filter_map(|n| code.get(..n)).find(|c| how.backend.moved(c, start, start).is_ok());
        // Each turn of a loop would be a call.
        let loops = || how.backend.leads(&code, start).iter().any(|lead| lead.to == start && !lead.call);
        let first = first.filter(|first| class == Class::TrapOnly && first.len() >= MACHINE.trap.len() && !loops());
        let Some(first) = first.filter(|_| how.traps) else {
            let class = if first.is_some() { class } else { Class::Refused };
            let bytes = code.into_iter().take(SHOWN).collect();
            return Err(Error::Refused {
                function: refused.name.clone(),
                class,
                reason: refused.why.to_owned(),
                bytes,
            });
        };
        Ok(Function {
            name: refused.name.clone(),
            object: self.path.clone(),
            range: start..start + size,
            class,
            reason: refused.why,
            entry: Entry { at: start, bytes: first.to_vec(), room: Room::Trap },
            prototype: None,
        })
    }
}

/// The number of bytes of a refused function's entry that an error shows.
const SHOWN: usize = 8;

impl Mapped {
    fn new(loads: Option<Loads>) -> Mapped {
        let all = threads::mappings();
        let text = |m: &Mapping| Text { range: m.range.clone(), protection: m.protection.into() };
        let code = all.iter().filter(|m| m.protection & EXEC != 0).map(text).collect();
        Mapped { loads, firsts: firsts(&all), code, all }
    }
}

/// Whether indirect branches may enter these pages only at landing pads.
pub fn is_guarded(text: &Text) -> bool {
    text.protection & (MACHINE.guard)() != 0
}
