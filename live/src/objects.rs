//! The objects of this process, and their functions.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codegen::arch::patch::{Branch, Patch};
use codegen::words::input;
use session::maps::{EXEC, Mapping};
use session::object::Object;

use crate::error::{Error, Result};
use crate::function::{Class, Entry, Function, Moved};
use crate::machine::MACHINE;
use crate::memory::Text;
use crate::threads;

/// Objects that were read. One that is unloaded and loaded again is the same file.
#[derive(Default)]
pub struct Objects {
    known: HashMap<PathBuf, Option<Arc<Object>>>,
}

/// An object where it is loaded.
struct Loaded {
    object: Arc<Object>,
    path: Arc<Path>,
    base: u64,
}

impl Objects {
    /// The functions of this name. `OBJECT:NAME` is one of a file of this name.
    ///
    /// # Errors
    /// There is none, or nothing can be attached to it.
    pub fn named(&mut self, name: &str, backend: &dyn Patch) -> Result<Vec<Function>> {
        let (wanted, name) = name.split_once(':').map_or((None, name), |(object, name)| (Some(object), name));
        let mut near = Vec::new();
        for loaded in self.loaded(backend) {
            let file = loaded.path.file_name().unwrap_or_default().to_string_lossy();
            if wanted.is_some_and(|wanted| !file.starts_with(wanted)) {
                continue;
            }
            if let Some(refused) = loaded.object.refused.iter().find(|refused| refused.name == name) {
                let (function, reason) = (name.to_owned(), refused.why.to_owned());
                return Err(Error::Refused { function, class: Class::Refused, reason, bytes: Vec::new() });
            }
            let found: Vec<Function> = loaded.functions(backend).filter(|f| f.name == name).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            near.extend(loaded.object.functions.iter().map(|f| f.name.clone()).filter(|n| alike(n, name)));
        }
        near.truncate(NEAR);
        Err(Error::NotFound { name: name.to_owned(), near })
    }

    /// The function that is at this address.
    ///
    /// # Errors
    /// As [`Objects::named`].
    pub fn at(&mut self, address: u64, backend: &dyn Patch) -> Result<Function> {
        let all = self.loaded(backend);
        let mut found = all.iter().flat_map(|loaded| loaded.functions(backend));
        let function = found.find(|f| f.range.start == address || f.range.contains(&address));
        function.ok_or_else(|| Error::NotFound { name: format!("{address:#x}"), near: Vec::new() })
    }

    /// What is loaded now, the program first.
    fn loaded(&mut self, backend: &dyn Patch) -> Vec<Loaded> {
        let mut firsts: Vec<Mapping> = Vec::new();
        for mapping in threads::mappings().into_iter().filter(|m| m.path.starts_with('/') && m.offset == 0) {
            if !firsts.iter().any(|first| first.path == mapping.path) {
                firsts.push(mapping);
            }
        }
        let program = std::env::current_exe().unwrap_or_default();
        firsts.sort_by_key(|first| Path::new(&first.path) != program);
        let load = |first: Mapping| {
            let path: Arc<Path> = Path::new(&first.path).into();
            let read = || Object::read(&path, backend).ok().map(Arc::new);
            let object = self.known.entry(path.to_path_buf()).or_insert_with(read).clone()?;
            let base = first.range.start.wrapping_sub(object.lowest);
            Some(Loaded { object, path, base })
        };
        firsts.into_iter().filter_map(load).collect()
    }
}

/// How many names are told that look like the one that there is not.
const NEAR: usize = 5;

/// Whether names look alike: one is part of the other, or they have most pairs of letters in common.
fn alike(a: &str, b: &str) -> bool {
    let pairs = |text: &str| text.as_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (first, second) = (pairs(a), pairs(b));
    let common = first.iter().filter(|pair| second.contains(pair)).count();
    !a.is_empty() && (a.contains(b) || b.contains(a) || 3 * common > 2 * first.len().max(second.len()))
}

impl Loaded {
    fn functions(&self, backend: &dyn Patch) -> impl Iterator<Item = Function> {
        // As long wherever it leads.
        let jump = backend.branch(Branch::SiteJump, 0, 0).map_or(0, |jump| jump.len());
        self.object.functions.iter().map(move |f| {
            let (start, at) = (self.base.wrapping_add(f.address), self.base.wrapping_add(f.site));
            let class = if jump == MACHINE.word { Class::Word } else { Class::Short };
            let entry = Entry { at, bytes: f.bytes.clone(), moved: Moved::Nothing };
            Function {
                name: f.name.clone(),
                object: self.path.clone(),
                range: start..start + f.size,
                class,
                reason: "the compiler has left room at its entry".to_owned(),
                entry,
                prototype: None,
            }
        })
    }
}

/// The pages with this code, and how they are protected.
///
/// # Errors
/// They are not there any more.
pub fn text(function: &str, code: &Range<u64>) -> Result<Text> {
    let found = threads::mappings().into_iter().find(|m| m.range.contains(&code.start) && m.protection & EXEC != 0);
    let gone = || Error::NotFound { name: format!("{function}, which is unloaded"), near: Vec::new() };
    let mapping = found.ok_or_else(gone)?;
    let guarded = MACHINE.guarded.filter(|(flag, _)| is_guarded(mapping.range.start, flag));
    let protection = i32::from(mapping.protection) | guarded.map_or(0, |(_, bit)| bit);
    Ok(Text { range: mapping.range, protection })
}

/// Whether `smaps` has this flag for the mapping at this address.
fn is_guarded(at: u64, flag: &str) -> bool {
    let text = input::text(Path::new("/proc/self/smaps")).unwrap_or_default();
    let begins = format!("{at:x}-");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&begins));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|word| word == flag))
}
