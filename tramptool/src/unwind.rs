//! The unwind table of the copies of templates.

use codegen::words::error::Result;

use crate::target::Target;
use crate::template::{Filled, Template};

/// The unwind table of an arena of copies, which grows with the arena, for `__register_frame` of libgcc or
/// `__unw_add_dynamic_eh_frame_section` of LLVM. Both may read the table only once. After adding an entry, deregister the table
/// (`__deregister_frame`) and register it again, while no exception passes through a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnwindTable {
    address: u64,
    bytes: Vec<u8>,
}

/// The end of a table: an entry of length 0.
const END: [u8; 4] = [0; 4];

impl UnwindTable {
    /// A table without entries, which will lie at `address`: a multiple of 8, within 2 GiB of the copies.
    pub fn new(address: u64) -> UnwindTable {
        UnwindTable { address, bytes: END.to_vec() }
    }

    /// Add the unwind entry of the copy at address `copy`.
    ///
    /// # Errors
    /// The copy is out of reach. The table is then unchanged.
    pub fn add(&mut self, target: &Target, template: &Template, copy: u64) -> Result<()> {
        let before = self.bytes.len() - END.len();
        let mut entry = template.unwind.bytes.clone();
        // The entry's fields depend only on its own address and on that of the copy.
        let s = |symbol| if symbol == Filled::Copy { copy } else { 0 };
        template.fill(target, &template.unwind.fixups, self.address + before as u64, s, &mut entry)?;
        self.bytes.truncate(before);
        self.bytes.extend(entry);
        self.bytes.extend(END);
        Ok(())
    }

    /// The bytes of the table, valid at its address only.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
