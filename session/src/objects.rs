//! The objects of a session: which functions have which number, and where processes have loaded them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codegen::arch::patch::Patch;
use codegen::words::error::{Error, Result};

use crate::attach::{Loaded, Orders};
use crate::forms::{Forms, How, What};
use crate::maps::{self, Mapping};
use crate::object::{Function, Object};
use crate::protocol::Hello;

/// Chooses what is recorded.
pub trait Choice: Sync {
    /// Is anything of this object, which is the program itself or a library?
    fn object(&self, path: &Path, program: bool) -> bool;
    /// Is this function of it? Its name is empty if none is known.
    fn function(&self, object: &Path, name: &str, size: u64) -> bool;
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
    /// What is in it.
    pub object: Object,
}

/// An object where a process has loaded it.
pub struct Place {
    /// The object.
    pub numbered: Arc<Numbered>,
    /// What is added to an address in the file.
    pub base: u64,
    /// Its lines of the process's maps.
    pub maps: Vec<Mapping>,
    /// Whether this process is the first to load it.
    pub new: bool,
    /// How many functions of it are recorded.
    pub recorded: usize,
    /// How they are.
    pub how: How,
}

/// All objects of a session.
#[derive(Default)]
pub struct Objects {
    known: HashMap<PathBuf, Arc<Numbered>>,
    next: u32,
}

/// Objects that have tables for unwinding and do not throw: what they are for is `pthread_exit`, which others have to call.
const QUIET: [&str; 6] = ["libc.so", "libgcc_s.so", "ld-linux", "libpthread.so", "libm.so", "libtramptool_trace.so"];

impl Objects {
    /// The object of this file, read if it is not known.
    fn object(&mut self, path: &Path, any: bool, backend: &dyn Patch) -> Result<(Arc<Numbered>, bool)> {
        if let Some(known) = self.known.get(path) {
            return Ok((known.clone(), false));
        }
        let object = Object::read(path, any, backend)?;
        let (id, first) = (self.known.len() as u32 + 1, self.next);
        let next = u32::try_from(object.functions.len()).ok().and_then(|n| first.checked_add(n));
        self.next = next.filter(|n| *n <= tramptool::Filling::IDS).ok_or_else(|| {
            Error::new(format!("{}: more functions than a record has numbers for; valid: fewer, by -F", path.display()))
        })?;
        let numbered = Arc::new(Numbered { id, first, object });
        self.known.insert(path.to_owned(), numbered.clone());
        Ok((numbered, true))
    }

    /// What a process has to do, and where its recorded objects are.
    ///
    /// # Errors
    /// An object cannot be read, or there is no room for trampolines.
    pub fn attach(
        &mut self,
        hello: &Hello,
        text: &str,
        what: What,
        choice: &dyn Choice,
        backend: &dyn Patch,
    ) -> Result<(Orders, Vec<Place>)> {
        let (exe, maps) = text.split_once('\n').unwrap_or_default();
        let mut maps = maps::parse(maps);
        let mut paths: Vec<PathBuf> = maps
            .iter()
            .filter(|m| m.protection & maps::EXEC != 0 && m.path.starts_with('/'))
            .map(|m| PathBuf::from(&m.path))
            .collect();
        paths.dedup();
        let forms = Forms::new(backend.facts().name, what.clock, hello.words)?;
        let how = match what.returns && !self.unwinds(&paths, backend) {
            true => How::Shadow,
            false => How::Entry,
        };
        let (mut orders, mut places) = (Orders::default(), Vec::new());
        for path in paths.iter().filter(|path| choice.object(path, same(path, Path::new(exe)))) {
            let (numbered, new) = self.object(path, choice.any(), backend)?;
            let Some((base, range)) = placed(&maps, path, numbered.object.lowest) else { continue };
            let chosen = |(_, f): &(u32, &Function)| choice.function(path, &f.name, f.size);
            let all = (numbered.first..).zip(&numbered.object.functions);
            let functions: Vec<_> = all.filter(chosen).map(|(id, f)| (id, f, how)).collect();
            let lines = maps.iter().filter(|m| Path::new(&m.path) == path).cloned().collect();
            let loaded = Loaded { base, range, functions };
            let recorded = orders.add(&loaded, &forms, hello.refill, &mut maps, backend)?;
            places.push(Place { numbered, base, maps: lines, new, recorded, how });
        }
        Ok((orders, places))
    }

    /// May an exception pass functions of this process?
    fn unwinds(&self, paths: &[PathBuf], backend: &dyn Patch) -> bool {
        let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let loud = paths.iter().filter(|path| !QUIET.iter().any(|quiet| name(path).starts_with(quiet)));
        loud.into_iter().any(|path| match self.known.get(path) {
            Some(known) => known.object.unwinds,
            None => Object::read(path, false, backend).is_ok_and(|object| object.unwinds),
        })
    }
}

/// The same file, under whichever name.
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
