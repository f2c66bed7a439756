//! Memory that an engine works on, and that checks read and write without the engine, whose way to it is long.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use codegen::arch::bare::Page;
use codegen::words::error::Result;
use link::{Image, PAGE};

use super::cpu::{STACK_SIZE, STACK_TOP};
use super::process::Machine;

/// These ranges, with those in one that follow each other without a gap: the engine lays out its memory anew for each.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// The pages of these images, and those of a stack, which is asked for most.
fn ranges<'i>(images: impl Iterator<Item = &'i Image>) -> Vec<Range<u64>> {
    let segments = images.flat_map(|image| &image.segments);
    let pages = segments.map(|s| s.address & !(PAGE - 1)..(s.address + s.mem_size).next_multiple_of(PAGE));
    std::iter::once(STACK_TOP - STACK_SIZE..STACK_TOP).chain(joined(pages.collect())).collect()
}

/// Memory of an engine, from an address on. Checks read and write it without asking the engine, whose way to it is long.
struct Mapping {
    from: u64,
    size: usize,
    cells: Cells,
}

/// Where the bytes are.
enum Cells {
    /// Here, from so many bytes on.
    Here(usize, Box<[Cell<u8>]>),
    /// In the memory of a machine, from its beginning on.
    There(Rc<Machine>, u64),
}

impl Mapping {
    /// Whole pages of zeros.
    fn of(range: &Range<u64>) -> Mapping {
        let size = (range.end - range.start) as usize;
        let cells: Box<[Cell<u8>]> = vec![Cell::new(0); size + PAGE as usize].into();
        let pad = cells.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
        Mapping { from: range.start, size, cells: Cells::Here(pad, cells) }
    }

    /// The same, in a machine.
    fn there(range: &Range<u64>, machine: &Rc<Machine>) -> Result<Mapping> {
        let size = range.end - range.start;
        let page = if range.start == STACK_TOP - STACK_SIZE { Page::Data } else { Page::Code };
        let from = machine.map(range.start, size, page)?;
        Ok(Mapping { from: range.start, size: size as usize, cells: Cells::There(Rc::clone(machine), from) })
    }

    fn pages(&self) -> &[Cell<u8>] {
        match &self.cells {
            Cells::Here(pad, cells) => cells.get(*pad..pad + self.size).unwrap_or_default(),
            Cells::There(machine, from) => machine.cells(*from, self.size),
        }
    }
}

/// The memory of the stack and of images.
pub(crate) struct Memory {
    mappings: Vec<Mapping>,
    /// The machine that has it.
    machine: Option<Rc<Machine>>,
}

impl Memory {
    /// For these images, and a stack.
    pub fn of<'i>(images: impl Iterator<Item = &'i Image>) -> Rc<Memory> {
        Rc::new(Memory { mappings: ranges(images).iter().map(Mapping::of).collect(), machine: None })
    }

    /// The same, in a machine.
    ///
    /// # Errors
    /// It has not so much, or another memory there.
    pub fn there<'i>(images: impl Iterator<Item = &'i Image>, machine: Rc<Machine>) -> Result<Rc<Memory>> {
        let mappings = ranges(images).iter().map(|range| Mapping::there(range, &machine)).collect::<Result<_>>()?;
        Ok(Rc::new(Memory { mappings, machine: Some(machine) }))
    }

    /// No memory.
    pub fn none() -> Rc<Memory> {
        Rc::new(Memory { mappings: Vec::new(), machine: None })
    }

    /// The machine that has it, if one has.
    pub(super) fn machine(&self) -> Option<&Rc<Machine>> {
        self.machine.as_ref()
    }

    fn cells(&self, at: u64, size: usize) -> Option<&[Cell<u8>]> {
        let inside = |m: &&Mapping| at.wrapping_sub(m.from) < m.size as u64;
        let mapping = self.mappings.iter().find(inside)?;
        let from = (at - mapping.from) as usize;
        mapping.pages().get(from..from.checked_add(size)?)
    }

    /// Read what is at an address; false if that is not in this memory.
    pub fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let cells = self.cells(at, to.len());
        cells.map(|cells| to.iter_mut().zip(cells).for_each(|(byte, cell)| *byte = cell.get())).is_some()
    }

    /// Write data to an address; false if that is not in this memory. Code is written with [`super::interface::Engine::write_code`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let cells = self.cells(at, bytes.len());
        cells.map(|cells| cells.iter().zip(bytes).for_each(|(cell, byte)| cell.set(*byte))).is_some()
    }

    /// Each piece of it: its address, whether it is the stack, and its bytes.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, bool, &[Cell<u8>])> {
        self.mappings.iter().map(|m| (m.from, m.from == STACK_TOP - STACK_SIZE, m.pages()))
    }
}
