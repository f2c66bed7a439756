//! The function entries of an image: finding them in the compiler's list, and patching them as the kernel does.

use codegen::arch::patch::{Patch, SiteState};
use codegen::arch::site::Site;
use codegen::words::error::{Error, Result};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::elf::{MCOUNT_LOC, PATCHABLE};
use crate::hash::hash;
use crate::image::{Image, SiteEntry, Symbol};
use crate::options::Options;

/// Fill in `sites` from the compiler's list.
pub(crate) fn find_sites(image: &mut Image, backend: &dyn Patch, how: Option<&Site>) -> Result<()> {
    let has = |name| image.sections.iter().any(|s| s.name == name);
    let list = if has(MCOUNT_LOC) { MCOUNT_LOC } else { PATCHABLE };
    let functions = image.functions();
    let starts = |at: u64| functions.binary_search_by_key(&at, |f| f.address).is_ok();
    let word = |at| Some(u32::from_le_bytes(image.bytes(at, 4)?.try_into().ok()?));
    let mut pairs = Vec::new();
    for section in image.sections.iter().filter(|s| s.name == list) {
        let bytes = usize::try_from(section.size)
            .ok()
            .and_then(|size| image.bytes(section.address, size))
            .ok_or_else(|| Error::new(format!("section {list} has no contents")))?;
        let (entries, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            return Err(Error::new(format!("section {list} has {} bytes; valid: a multiple of 8", bytes.len())));
        }
        for entry in entries.iter().map(|e| u64::from_le_bytes(*e)) {
            // Only a function's start has room for an address before it. Elsewhere, do not read the words before the
            // entry: alignment NOPs of a loop would look like an op pointer.
            let before = starts(entry.wrapping_add(8));
            let meant = backend.site_ip(entry, &|at| if before { word(at) } else { None });
            let ip = meant.wrapping_add(how.map_or(0, |how| how.recorded));
            if entry != 0 {
                pairs.push((entry, ip));
            }
        }
    }
    image.set_sites(&pairs);
    Ok(())
}

/// Put sites and call slots into the requested state.
pub(crate) fn patch(image: &mut Image, backend: &dyn Patch, options: &Options) -> Result<()> {
    match options.site {
        Some(how) => patch_sites(image, backend, how, options)?,
        None if options.patch.is_empty() && options.jump.is_empty() => {}
        None => return Err(Error::new("sites cannot be switched on without a profile; valid: with --profile")),
    }
    let needed = |image: &Image, name: &str, what: &str| {
        let symbol = image.symbol(name).map(|s| s.address);
        symbol.ok_or_else(|| missing(name, what))
    };
    for (slot, callee) in &options.calls {
        let at = needed(image, slot, "to patch")?;
        let target = needed(image, callee, &format!("for {slot} to call"))?;
        let patched = backend.patch_call(at, target);
        patched.and_then(|write| image.write(&write)).map_err(|e| e.at(format_args!("call of {callee} at {slot}")))?;
    }
    Ok(())
}

/// Is a trampoline attached to a site, which may itself contain the address where the function goes on?
pub(crate) fn goes_on(options: &Options) -> bool {
    options.site.is_some() && !(options.patch.is_empty() && options.jump.is_empty())
}

/// Refuse trampolines that return into the traced function elsewhere than behind its site.
pub(crate) fn ways_on(image: &Image, backend: &dyn Patch, options: &Options) -> Result<()> {
    let Some(how) = options.site.filter(|_| goes_on(options)) else { return Ok(()) };
    for (function, trampoline) in options.patch.iter().chain(&options.jump) {
        let Some(code) = image.symbol(trampoline).map(|s| s.address..s.address + s.size) else { continue };
        let from = |site: &&SiteEntry| site.function == *function;
        for site in image.sites.iter().filter(from) {
            let behind = site.ip.wrapping_add_signed(how.ip_offset.into());
            let size =
                image.symbols.iter().find(|s| s.address == site.start && s.name == *function).map_or(0, |s| s.size);
            let inside = site.start + 1..behind.max(site.start + size);
            let own = image.references.iter().filter(|reference| code.contains(&reference.place));
            let mut there = own.map(|reference| backend.refers_to(reference)).filter(|to| inside.contains(to));
            if let Some(wrong) = there.find(|to| *to != behind) {
                let [wrong, behind] = [wrong, behind].map(|at| at - site.start);
                return Err(Error::new(format!(
                    "{trampoline} goes on at {function}+{wrong}, and the site there ends at +{behind}; valid: a trampoline for \
                     --function {function}+{behind}"
                )));
            }
        }
    }
    Ok(())
}

/// How sites are written.
#[derive(Clone, Copy)]
struct How<'h> {
    site: &'h Site,
    /// The entry trampoline.
    toward: Option<u64>,
    /// The `ftrace_ops` that does nothing.
    nop_op: Option<u64>,
}

/// Disable all sites, as the kernel does at boot, then enable the requested ones.
fn patch_sites(image: &mut Image, backend: &dyn Patch, site: &Site, options: &Options) -> Result<()> {
    let address = |name: Option<&str>| name.and_then(|name| image.symbol(name)).map(|s| s.address);
    let how = How { site, toward: address(site.entry), nop_op: address(site.nop_op()) };
    // Take the sites instead of copying their names: no other code reads them until they are put back.
    let sites = std::mem::take(&mut image.sites);
    for site in &sites {
        // The kernel never writes to an unaligned word: half of it would belong to a neighbour.
        let nop_op = how.nop_op.filter(|_| site.entry.is_multiple_of(8));
        put(image, backend, How { nop_op, ..how }, site, SiteState::Disabled)?;
    }
    if !options.patch.is_empty() || !options.jump.is_empty() {
        let symbols = std::mem::take(&mut image.symbols);
        let patches = options.patch.iter().map(|p| (p, false)).chain(options.jump.iter().map(|p| (p, true)));
        enable(image, backend, how, &symbols, &sites, options.ops.as_deref(), patches)?;
        image.symbols = symbols;
    }
    image.sites = sites;
    Ok(())
}

/// Enable sites, by a call or a jump to their trampolines. There may be as many as functions, so names are looked up in
/// tables.
fn enable<'o>(
    image: &mut Image,
    backend: &dyn Patch,
    how: How,
    symbols: &[Symbol],
    sites: &[SiteEntry],
    ops: Option<&str>,
    wanted: impl Iterator<Item = (&'o (String, String), bool)>,
) -> Result<()> {
    // The first symbol of each name, and for each symbol the next one with the same name.
    const NONE: u32 = u32::MAX;
    let mut first: HashTable<u32> = HashTable::with_capacity(symbols.len());
    let mut next = vec![NONE; symbols.len()];
    let is = |i: &u32, name: &str| symbols.get(*i as usize).is_some_and(|s| s.name == name);
    let hash_of = |i: &u32| symbols.get(*i as usize).map_or(0, |s| hash(&s.name));
    for ((i, s), next) in (0..symbols.len() as u32).zip(symbols).zip(&mut next).rev() {
        match first.entry(hash(&s.name), |i| is(i, &s.name), hash_of) {
            Entry::Occupied(mut known) => *next = std::mem::replace(known.get_mut(), i),
            Entry::Vacant(free) => drop(free.insert(i)),
        }
    }
    let follow = |&i: &u32| next.get(i as usize).copied().filter(|i| *i != NONE);
    let known = |name: &str| first.find(hash(name), |i| is(i, name)).copied();
    let all = |name: &str| std::iter::successors(known(name), follow).filter_map(|i| symbols.get(i as usize));
    let mut by_start: Vec<&SiteEntry> = sites.iter().collect();
    by_start.sort_by_key(|s| s.start);
    let starting = |start: u64| {
        let from = by_start.partition_point(|s| s.start < start);
        by_start.iter().skip(from).take_while(move |s| s.start == start)
    };
    let address = |name: &str| all(name).min_by_key(|s| s.local).map(|s| s.address);
    let op = |name| address(name).ok_or_else(|| missing(name, "for functions to carry as their ftrace_ops"));
    let op = ops.map(op).transpose()?;
    for ((function, trampoline), jump) in wanted {
        let target = address(trampoline).ok_or_else(|| missing(trampoline, &format!("for {function} to go to")))?;
        let mut found = false;
        for site in all(function).flat_map(|s| starting(s.address)) {
            put(image, backend, how, site, SiteState::Enabled { target, op, jump })?;
            found = true;
        }
        if !found {
            let mut valid: Vec<&str> = sites.iter().map(|s| s.function.as_str()).collect();
            valid.retain(|f| !f.is_empty());
            if valid.is_empty() {
                valid.push("none, for no input lists patchable entries");
            }
            return Err(Error::unknown("patchable function", function, valid));
        }
    }
    Ok(())
}

fn missing(name: &str, what: &str) -> Error {
    Error::new(format!("no symbol '{name}' {what}; link the object that defines it"))
}

/// Put one site into a state.
fn put(image: &mut Image, backend: &dyn Patch, how: How, site: &SiteEntry, state: SiteState) -> Result<()> {
    let writes = how.site.patch(backend, site.spot(how.toward, how.nop_op), state);
    writes
        .and_then(|writes| writes.iter().try_for_each(|write| image.write(write)))
        .map_err(|e| e.at(format_args!("site {:#x} of {}", site.ip, site.function)))
}
