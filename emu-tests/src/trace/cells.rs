//! What is known of each address of an image.

use codegen::machine::Branch;

/// Where an address belongs.
pub(crate) const ELSEWHERE: u8 = 0;
pub(crate) const FUNCTION: u8 = 1;
pub(crate) const TRAMPOLINE: u8 = 2;

/// What an address is, besides.
pub(crate) const SITE: u8 = 1;
pub(crate) const CALLBACK: u8 = 2;
pub(crate) const EXIT_HANDLER: u8 = 4;
pub(crate) const DIRECT_FUNC: u8 = 8;
pub(crate) const ENTRY: u8 = 16;
pub(crate) const PROGRAM: u8 = 32;

/// An address of the image.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cell {
    pub region: u8,
    pub marks: u8,
    /// An instruction was executed here.
    pub visited: bool,
    /// A branch of a trampoline, with its size in bytes.
    pub branch: Option<(Branch, u8)>,
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

    /// The cells of `size` addresses in one image.
    pub fn range_mut(&mut self, at: u64, size: u64) -> Option<&mut [Cell]> {
        let index = self.index(at);
        self.cells.get_mut(index..index.saturating_add(size as usize))
    }
}
