//! What is known of each address of an image.

use std::ops::Range;

use codegen::arch::machine::Branch;

/// Addresses behind an instruction that are looked at.
const NEAR: usize = 128;

/// Where an address belongs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Region {
    /// C, or nothing that is known.
    #[default]
    Elsewhere,
    /// A traced function.
    Function,
    /// A trampoline, by its number in the suite.
    Trampoline(u8),
    /// Code behind a jump of one or more trampolines: it belongs to the one that is at work.
    Shared,
}

impl Region {
    /// The number of the trampoline, if it is one.
    pub fn trampoline(self) -> Option<usize> {
        match self {
            Region::Trampoline(index) => Some(index.into()),
            Region::Elsewhere | Region::Function | Region::Shared => None,
        }
    }
}

/// What an address is, besides.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Mark(u16);

impl Mark {
    pub const NONE: Mark = Mark(0);
    /// The first byte of a site that is enabled.
    pub const SITE: Mark = Mark(1);
    pub const CALLBACK: Mark = Mark(2);
    pub const EXIT_HANDLER: Mark = Mark(4);
    pub const DIRECT_FUNC: Mark = Mark(8);
    /// A trampoline begins.
    pub const ENTRY: Mark = Mark(16);
    pub const PROGRAM: Mark = Mark(32);
    /// A function that is called before or after others.
    pub const AROUND: Mark = Mark(64);
    /// An instruction by which a stub calls the kernel.
    pub const SYSTEM_CALL: Mark = Mark(128);
    /// The first of the copies of displaced instructions.
    pub const COPIES: Mark = Mark(256);
    /// Where C begins that trampolines call.
    pub const CALLED: Mark = Mark(Mark::CALLBACK.0 | Mark::EXIT_HANDLER.0 | Mark::DIRECT_FUNC.0);

    /// Is one of `marks` here?
    pub const fn has(self, marks: Mark) -> bool {
        self.0 & marks.0 != 0
    }

    /// Those that are `marks` too.
    pub const fn only(self, marks: Mark) -> Mark {
        Mark(self.0 & marks.0)
    }

    /// Put `marks` here, or take them away.
    pub fn set(&mut self, marks: Mark, on: bool) {
        self.0 = if on { self.0 | marks.0 } else { self.0 & !marks.0 };
    }
}

/// An address of the image.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cell {
    pub region: Region,
    pub marks: Mark,
    /// An instruction was executed here.
    pub visited: bool,
    /// An instruction of a trampoline that accesses memory by SP, where the hardware asks for its alignment.
    pub by_sp: bool,
    /// A branch of a trampoline, with its size in bytes.
    pub branch: Option<(Branch, u8)>,
}

impl Cell {
    /// It is no branch, no place of note, and does not access memory by SP where that is looked at.
    #[inline]
    pub fn plain(&self) -> bool {
        self.branch.is_none() & (self.marks == Mark::NONE) & !self.by_sp
    }
}

/// What is known of the addresses of one image, or of two.
#[derive(Clone, Default, Debug)]
pub(crate) struct Cells {
    /// The first address of each image, and where its cells begin.
    spans: [(u64, usize); 2],
    cells: Vec<Cell>,
}

impl Cells {
    /// Room for the addresses of one more image: from `base` on, so many of them.
    pub fn add(&mut self, base: u64, size: usize) {
        let from = self.cells.len();
        if from == 0 {
            self.spans[0] = (base, 0);
        }
        self.spans[1] = (base, from);
        self.cells.resize(from + size, Cell::default());
    }

    fn index(&self, at: u64) -> usize {
        let [(first, _), (second, from)] = self.spans;
        let index = at.wrapping_sub(first) as usize;
        // Without a second image, what is not in the first is nowhere.
        if from == 0 || index < from { index } else { (at.wrapping_sub(second) as usize).saturating_add(from) }
    }

    pub fn get(&self, at: u64) -> Option<&Cell> {
        self.cells.get(self.index(at))
    }

    #[inline]
    pub fn get_mut(&mut self, at: u64) -> Option<&mut Cell> {
        let index = self.index(at);
        self.cells.get_mut(index)
    }

    /// The region of an address.
    pub fn region(&self, at: u64) -> Region {
        self.get(at).map_or(Region::Elsewhere, |cell| cell.region)
    }

    /// The next addresses, on both sides and in this region, at which nothing can happen; and a branch behind them, if that can wait
    /// for what follows it: then it is the last of them.
    pub fn plain_around(&self, at: u64, region: Region) -> (Range<u64>, Option<u64>) {
        let (index, [_, (_, second)]) = (self.index(at), self.spans);
        let (start, end) = if index < second { (0, second) } else { (second, self.cells.len()) };
        let alike = |cell: &&Cell| cell.plain() && cell.region == region;
        let many = |cells: &mut dyn Iterator<Item = &Cell>| cells.take(NEAR).take_while(alike).count();
        let (before, from) = self.cells.get(start..end).unwrap_or_default().split_at(index.clamp(start, end) - start);
        // What is here is no longer to come, but may come again.
        let here = from.first().filter(alike).map(|_| many(&mut before.iter().rev()) as u64);
        let behind = from.get(1..).unwrap_or_default();
        let after = many(&mut behind.iter());
        let waits = |cell: &&Cell| cell.region == region && cell.marks == Mark::NONE && !cell.by_sp;
        let last = behind.get(after).filter(waits).filter(|cell| cell.branch.is_some());
        let end = at.saturating_add(1).saturating_add(after as u64);
        let first = here.map_or(at.saturating_add(1), |before| at.saturating_sub(before));
        (first..end.saturating_add(last.is_some().into()), last.map(|_| end))
    }

    /// The cells of `size` addresses in one image.
    pub fn range_mut(&mut self, at: u64, size: u64) -> Option<&mut [Cell]> {
        let index = self.index(at);
        self.cells.get_mut(index..index.saturating_add(size as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images, of which the second lies below the first.
    fn two() -> Cells {
        let mut cells = Cells::default();
        cells.add(0x8000, 0x10);
        cells.add(0x4000, 0x20);
        cells
    }

    #[test]
    fn what_is_in_no_image_has_no_cell() {
        let mut cells = two();
        for (at, inside) in [
            (0x8000, true),
            (0x800f, true),
            (0x8010, false),
            (0x7fff, false),
            (0x4000, true),
            (0x401f, true),
            (0x4020, false),
            (0x3fff, false),
            (0, false),
            (u64::MAX, false),
        ] {
            assert_eq!(cells.get(at).is_some(), inside, "{at:#x}");
            assert_eq!(cells.get_mut(at).is_some(), inside, "{at:#x}");
        }
        assert!(Cells::default().get(0).is_none());
    }

    #[test]
    fn images_do_not_share_cells() {
        let mut cells = two();
        for (base, region) in [(0x8000, Region::Function), (0x4000, Region::Trampoline(7))] {
            cells.range_mut(base + 4, 2).unwrap().iter_mut().for_each(|c| c.region = region);
        }
        let regions = |base: u64| (3..7).map(|i| cells.region(base + i)).collect::<Vec<_>>();
        let inside = |r| vec![Region::Elsewhere, r, r, Region::Elsewhere];
        assert_eq!(regions(0x8000), inside(Region::Function));
        assert_eq!(regions(0x4000), inside(Region::Trampoline(7)));
        assert_eq!(cells.region(0x4004).trampoline(), Some(7));
        assert_eq!(cells.region(0x8004).trampoline(), None);
    }

    #[test]
    fn a_range_that_leaves_the_image_is_refused() {
        let mut cells = two();
        assert!(cells.range_mut(0x4000, 0x20).is_some());
        assert!(cells.range_mut(0x4000, 0x21).is_none());
        assert!(cells.range_mut(0x4000, u64::MAX).is_none());
        assert!(cells.range_mut(0x3fff, 1).is_none());
    }

    #[test]
    fn what_is_plain_ends_with_its_image_its_region_and_at_a_place_of_note() {
        let mut cells = two();
        let around = |cells: &Cells, at| cells.plain_around(at, Region::Elsewhere);
        assert_eq!(around(&cells, 0x8008), (0x8000..0x8010, None));
        assert_eq!(around(&cells, 0x4004), (0x4000..0x4020, None));
        assert!(around(&cells, 0x7000).0.is_empty() && around(&cells, u64::MAX).0.is_empty());
        cells.get_mut(0x400a).unwrap().marks.set(Mark::SITE, true);
        cells.get_mut(0x8003).unwrap().region = Region::Function;
        assert_eq!(around(&cells, 0x4004), (0x4000..0x400a, None));
        assert_eq!(around(&cells, 0x400c), (0x400b..0x4020, None));
        assert_eq!(around(&cells, 0x8001), (0x8000..0x8003, None));
    }

    #[test]
    fn a_branch_is_the_last_of_what_is_plain_unless_something_is_asked_of_it() {
        let mut cells = two();
        cells.get_mut(0x4008).unwrap().branch = Some((Branch::default(), 2));
        let around = |cells: &Cells| cells.plain_around(0x4004, Region::Elsewhere);
        assert_eq!(around(&cells), (0x4000..0x4009, Some(0x4008)));
        for change in [
            (|cell| cell.by_sp = true) as fn(&mut Cell),
            |cell| cell.marks.set(Mark::SITE, true),
            |cell| cell.region = Region::Function,
        ] {
            let mut asked = cells.clone();
            change(asked.get_mut(0x4008).unwrap());
            assert_eq!(around(&asked), (0x4000..0x4008, None));
        }
    }

    #[test]
    fn marks_come_and_go_one_by_one() {
        let mut marks = Mark::default();
        marks.set(Mark::ENTRY, true);
        marks.set(Mark::SITE, true);
        marks.set(Mark::CALLBACK, true);
        assert!(marks.has(Mark::SITE) && marks.has(Mark::ENTRY) && !marks.has(Mark::PROGRAM));
        assert_eq!(marks.only(Mark::CALLED), Mark::CALLBACK);
        marks.set(Mark::SITE, false);
        assert!(!marks.has(Mark::SITE) && marks.has(Mark::ENTRY));
        for mark in [Mark::ENTRY, Mark::CALLBACK] {
            marks.set(mark, false);
        }
        assert_eq!(marks, Mark::NONE);
    }
}
