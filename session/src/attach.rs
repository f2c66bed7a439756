//! The orders to a process so that its functions are recorded.

use std::ops::Range;

use codegen::arch::entry::Entry;
use codegen::arch::patch::{Branch, Patch};
use codegen::words::error::{Error, Result};

use crate::forms::{Form, Forms, How};
use crate::function::Function;
use crate::maps::{self, Mapping};
use crate::protocol::{GUARDED, Order};

/// Memory is mapped in pieces of so many bytes, which are whole pages under every configuration of Linux.
const PAGE: u64 = 1 << 16;

/// The farthest that trampolines lie from their functions, in bytes: what an architecture's branches do not reach is tried and refused.
const FAR: u64 = 1 << 31;

/// Functions of a loaded object that are to be recorded.
pub struct Loaded<'a> {
    /// The difference between an address in the process and in the file.
    pub base: u64,
    /// Where it lies.
    pub range: Range<u64>,
    /// Indirect branches enter it at landing pads alone, where the processor looks.
    pub guarded: bool,
    /// The functions to record.
    pub functions: Vec<Chosen<'a>>,
}

/// A function that is to be recorded.
pub struct Chosen<'a> {
    /// The function's number.
    pub id: u32,
    /// The facts about the function.
    pub function: &'a Function,
    /// The records of the function.
    pub form: Form,
    /// The recording ends with it.
    pub last: bool,
}

/// Routines in a process.
#[derive(Clone, Copy)]
pub struct Routines {
    /// The routine that gives a thread its buffer.
    pub refill: u64,
    /// The routine that ends the recording.
    pub last: u64,
}

/// The most room that orders take in a process, in bytes.
const ORDERS: u64 = 32 << 20;

/// Orders for a process, and the code that they map.
#[derive(Default)]
pub struct Orders {
    /// What the process maps before it obeys, in bytes: the kernel chooses the places.
    mapped: u64,
    list: Vec<Order>,
    /// Regions of code: where each is to be, and its bytes.
    regions: Vec<(u64, Vec<u8>)>,
}

/// The region for an object, and what is written to its sites.
struct Region {
    code: Vec<u8>,
    writes: Vec<Order>,
}

/// The most that the instructions take which a branch overwrites, at another place, in bytes.
const MOVED: u64 = 160;

/// Bytes of the code that authenticates a return address, and goes on to a trampoline.
const AUTHENTICATED: u64 = 8;

impl Orders {
    /// None yet, for a process that maps so many bytes for records.
    pub fn new(records: u64) -> Orders {
        Orders { mapped: records + ORDERS, ..Orders::default() }
    }

    /// Record these functions, and say how many are. What is mapped for it is added to `maps`.
    ///
    /// # Errors
    /// There is no room for trampolines within the reach of a branch.
    pub fn add(
        &mut self,
        loaded: &Loaded,
        forms: &Forms,
        routines: Routines,
        maps: &mut Vec<Mapping>,
        backend: &dyn Patch,
    ) -> Result<usize> {
        if loaded.functions.is_empty() {
            return Ok(0);
        }
        // The size is the same wherever it lies.
        let most = Region::bytes(loaded, forms).next_multiple_of(PAGE);
        let reaches = |at: u64| {
            let ends = [loaded.range.start, loaded.range.end].into_iter().flat_map(|a| [(a, at), (a, at + most)]);
            ends.into_iter().all(|(a, b)| backend.branch(Branch::SiteJump, a & !3, b & !3).is_ok())
        };
        let at = maps::gap(maps, &loaded.range, most, (FAR, self.mapped), PAGE, &reaches);
        let at = at.ok_or_else(|| Error::new("no room for trampolines within the reach of a branch"))?;
        let region = Region::new(loaded, forms, routines, (at, most), backend)?;
        let recorded = region.writes.len();
        maps.push(Mapping { range: at..at + most, protection: maps::EXEC, offset: 0, path: String::new() });
        self.regions.push((at, region.code));
        self.write(region.writes, maps, loaded.guarded);
        Ok(recorded)
    }

    /// Write code of one object, which is `guarded` or not, where these maps have it. Its pages have their protection again afterwards.
    pub fn write(&mut self, writes: Vec<Order>, maps: &[Mapping], guarded: bool) {
        let written = writes.iter().filter_map(|order| match order {
            Order::Write { address, .. } => Some(*address),
            _ => None,
        });
        let written: Vec<u64> = written.collect();
        let code: Vec<&Mapping> = maps
            .iter()
            .filter(|m| m.protection & maps::EXEC != 0 && written.iter().any(|at| m.range.contains(at)))
            .collect();
        let protect = |write: bool| {
            code.iter().flat_map(move |m| {
                let protection = u64::from(m.protection | if write { 2 } else { 0 });
                let protection = protection | if guarded { GUARDED } else { 0 };
                // Lengths of an order have 32 bits.
                let pieces = (m.range.start..m.range.end).step_by(1 << 30);
                pieces.map(move |address| {
                    let len = (m.range.end - address).min(1 << 30) as u32;
                    Order::Protect { address, len, protection }
                })
            })
        };
        self.list.extend(protect(true).chain(writes).chain(protect(false)));
    }

    /// How many there are, and the file that has them first and the code behind them: its parts, by their offsets.
    pub fn file(mut self) -> (u32, Vec<(u64, Vec<u8>)>) {
        let count = self.list.len() + self.regions.len();
        let mut offset = ((count * Order::BYTES) as u64).next_multiple_of(PAGE);
        let mut all = Vec::new();
        for (address, code) in &self.regions {
            all.push(Order::Map { address: *address, len: code.len() as u32, offset });
            offset = (offset + code.len() as u64).next_multiple_of(PAGE);
        }
        all.append(&mut self.list);
        let mut orders = Vec::with_capacity(count * Order::BYTES);
        all.iter().for_each(|order| order.append_to(&mut orders));
        let mut parts = vec![(0, orders)];
        for (_, code) in self.regions {
            let end = parts.last().map_or(0, |(at, part)| at + part.len() as u64);
            parts.push((end.next_multiple_of(PAGE), code));
        }
        (count as u32, parts)
    }
}

impl Region {
    /// The greatest possible size of the code, in bytes.
    fn bytes(loaded: &Loaded, forms: &Forms) -> u64 {
        let first = PAGE;
        loaded.functions.iter().fold(first, |at, chosen| {
            let moved = if chosen.function.entries.is_empty() { 0 } else { MOVED };
            let entry = Form { how: How::Entry, args: 0, result: false };
            let calls = if chosen.last { forms.place(entry, at + moved).1 } else { at + moved };
            let signed = chosen.function.entries.iter().any(|entry| entry.signed.is_some());
            forms.place(chosen.form, calls).1 + if signed { AUTHENTICATED } else { 0 }
        })
    }

    /// The region at `at`, which takes at most so many bytes.
    fn new(
        loaded: &Loaded,
        forms: &Forms,
        routines: Routines,
        (at, most): (u64, u64),
        backend: &dyn Patch,
    ) -> Result<Region> {
        let mut code = Vec::with_capacity(most as usize);
        let mut sled = |routine: u64| {
            // Far branches are at a multiple of 8.
            code.resize(code.len().next_multiple_of(8), 0);
            let far = at + code.len() as u64;
            code.extend(backend.branch(Branch::Far, far, routine)?);
            forms.sled(at, far, &mut code)
        };
        let (refill, last) = (sled(routines.refill)?, sled(routines.last)?);
        let mut region = Region { code, writes: Vec::with_capacity(loaded.functions.len()) };
        for Chosen { id, function, form, last: ends } in &loaded.functions {
            let site = loaded.base.wrapping_add(function.site);
            let copy = |goes_on: u64, code: &mut Vec<u8>| {
                let goes_on = if *ends { forms.calls(at, goes_on, last, code)? } else { goes_on };
                forms.copy(*form, at, (*id, goes_on), refill, code)
            };
            if function.entries.is_empty() {
                let entry = copy(site + function.bytes.len() as u64, &mut region.code)?;
                region.write(function, site, &backend.branch(Branch::SiteJump, site, entry)?)?;
            }
            // The first branch that reaches it. If none does, the function stays as it is.
            for entry in &function.entries {
                let before = region.code.len();
                let jump = region.moved(function, entry, (at, site), backend).and_then(|goes_on| {
                    let to = copy(goes_on, &mut region.code)?;
                    let to = region.authenticated(entry, (at, to), backend)?;
                    backend.branch(entry.branch, site, to)
                });
                match jump {
                    Ok(jump) => {
                        region.write(function, site, &jump)?;
                        break;
                    }
                    Err(_) => region.code.truncate(before),
                }
            }
        }
        Ok(region)
    }

    /// Where the branch of an entry goes to for the trampoline at `to`. If the return address is signed there, that is code that is
    /// appended to the code at `base`.
    fn authenticated(&mut self, entry: &Entry, (base, to): (u64, u64), backend: &dyn Patch) -> Result<u64> {
        let Some(signing) = entry.signed else { return Ok(to) };
        let at = base + self.code.len() as u64;
        let code = backend.authenticated(signing, entry.branch, at, to)?;
        if code.len() as u64 > AUTHENTICATED {
            return Err(Error::new("what authenticates a return address takes too much room"));
        }
        self.code.extend(code);
        Ok(at)
    }

    /// Append the instructions that a branch overwrites to the code at `base`, and say where they are.
    fn moved(
        &mut self,
        function: &Function,
        entry: &Entry,
        (base, site): (u64, u64),
        backend: &dyn Patch,
    ) -> Result<u64> {
        const ALIGN: usize = 16;
        self.code.resize(self.code.len().next_multiple_of(ALIGN), 0);
        let at = base + self.code.len() as u64;
        let code = backend.resumed(entry, function.bytes.get(..entry.covers).unwrap_or_default(), site, at)?;
        if code.len() > MOVED as usize - ALIGN {
            return Err(Error::new(format!("{}: its first instructions take too much room", function.name)));
        }
        self.code.extend(code);
        Ok(at)
    }

    fn write(&mut self, function: &Function, site: u64, branch: &[u8]) -> Result<()> {
        let order = written(site, &function.bytes, branch).ok_or_else(|| {
            let has = function.bytes.len();
            Error::new(format!("{}: a site of {has} bytes is too short", function.name))
        })?;
        self.writes.push(order);
        Ok(())
    }
}

/// The order to write `new` over the beginning of `old`. `None` if it is longer, or longer than an order has room for.
pub fn written(address: u64, old: &[u8], new: &[u8]) -> Option<Order> {
    let (mut before, mut after, len) = ([0; 8], [0; 8], new.len());
    before.get_mut(..len)?.copy_from_slice(old.get(..len)?);
    after.get_mut(..len)?.copy_from_slice(new);
    Some(Order::Write { address, before, after, len: len as u32 })
}
