//! The unwind table of the copies of templates.

use codegen::words::error::Result;

use crate::target::Target;
use crate::template::{Filled, Template};

/// The unwind table of an arena of copies, which grows with it. It is what `__register_frame` of libgcc takes, and what
/// `__unw_add_dynamic_eh_frame_section` of LLVM does. Both may read it once and for all: after an entry was added, take it from the
/// unwinder (`__deregister_frame`) and give it again, while no exception is on its way through a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnwindTable {
    address: u64,
    bytes: Vec<u8>,
}

/// What ends a table: an entry of no length.
const END: [u8; 4] = [0; 4];

impl UnwindTable {
    /// One without entries, which will lie at this address: at a multiple of 8, and within 2 GiB of the copies.
    pub fn new(address: u64) -> UnwindTable {
        UnwindTable { address, bytes: END.to_vec() }
    }

    /// Add the entry of the copy that lies at `copy`.
    ///
    /// # Errors
    /// The copy is out of reach. The table is as it was then.
    pub fn add(&mut self, target: &Target, template: &Template, copy: u64) -> Result<()> {
        let before = self.bytes.len() - END.len();
        let mut entry = template.unwind.bytes.clone();
        // Its fields depend on nothing but where it is, and where the copy is.
        let s = |symbol| if symbol == Filled::Copy { copy } else { 0 };
        template.fill(target, &template.unwind.fixups, self.address + before as u64, s, &mut entry)?;
        self.bytes.truncate(before);
        self.bytes.extend(entry);
        self.bytes.extend(END);
        Ok(())
    }

    /// The bytes that belong to its address.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
