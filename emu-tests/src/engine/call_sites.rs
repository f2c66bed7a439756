//! Where an exception goes that comes out of a call: what an image's unwind table and its tables of call sites say.
//!
//! gimli reads `.eh_frame`. The tables of call sites (`.gcc_except_table`) are read here, by the C++ ABI for Itanium,
//! "Exception Handling", 7.4: gimli leaves them out. Nothing here knows how they were made.

use gimli::{BaseAddresses, EhFrame, LittleEndian, Pointer, UnwindSection};
use link::Image;

use crate::engine::unwind::contents;

/// What becomes of an exception.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goes {
    /// Nobody can tell: there is no table, or it says something else than it may.
    Unknown,
    /// The table does not name the call: the personality of C++ ends the program.
    Unnamed,
    /// To the caller.
    On,
    /// To the landing pad here.
    To(u64),
}

/// Whom the unwinder asks about the frame of a function with this address in it, and what he says.
pub(crate) fn goes(image: &Image, pc: u64) -> (Option<u64>, Goes) {
    let (at, bytes) = contents(image, ".eh_frame");
    let bases = BaseAddresses::default().set_eh_frame(at);
    let eh_frame = EhFrame::new(bytes, LittleEndian);
    let Ok(fde) = eh_frame.fde_for_address(&bases, pc, EhFrame::cie_from_offset) else { return (None, Goes::Unknown) };
    let address = |pointer: Pointer| match pointer {
        Pointer::Direct(at) => Some(at),
        Pointer::Indirect(at) => word(image, at),
    };
    let personality = fde.cie().personality().and_then(address);
    let table = fde.lsda().and_then(address);
    let goes = table.and_then(|at| named(image, at, fde.initial_address(), pc)).unwrap_or(Goes::Unknown);
    (personality, goes)
}

fn word(image: &Image, at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(image.bytes(at, 8)?.try_into().ok()?))
}

/// DW_EH_PE_omit.
const OMIT: u8 = 0xff;

/// What the table at `at`, of the function that begins at `start`, says of the call with `pc` in it.
fn named(image: &Image, at: u64, start: u64, pc: u64) -> Option<Goes> {
    let mut table = Table { image, at };
    let pads = match table.byte()? {
        OMIT => start,
        // Of other forms nobody makes use.
        _ => return None,
    };
    if table.byte()? != OMIT {
        table.uleb()?;
    }
    let encoding = table.byte()?;
    let end = table.uleb()?;
    let end = table.at.checked_add(end)?;
    let mut before = 0;
    while table.at < end {
        let (from, size, pad) = (table.number(encoding)?, table.number(encoding)?, table.number(encoding)?);
        table.uleb()?;
        // Unwinders stop at the first that begins behind what they look for.
        if from < before {
            return None;
        }
        before = from;
        let at = pc.wrapping_sub(start);
        if at >= from && at < from.checked_add(size)? {
            return Some(if pad == 0 { Goes::On } else { Goes::To(pads.wrapping_add(pad)) });
        }
    }
    (table.at == end).then_some(Goes::Unnamed)
}

/// Bytes of a table, from its beginning.
struct Table<'i> {
    image: &'i Image,
    at: u64,
}

impl Table<'_> {
    fn bytes(&mut self, size: usize) -> Option<u64> {
        let mut word = [0; 8];
        word.get_mut(..size)?.copy_from_slice(self.image.bytes(self.at, size)?);
        self.at += size as u64;
        Some(u64::from_le_bytes(word))
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte as u8)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number as an encoding of DWARF says: unsigned.
    fn number(&mut self, encoding: u8) -> Option<u64> {
        match encoding {
            0x00 | 0x04 => self.bytes(8),
            0x01 => self.uleb(),
            0x02 => self.bytes(2),
            0x03 => self.bytes(4),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use link::{Access, Image, Segment};

    use super::*;

    const TABLE: u64 = 0x5000;
    const START: u64 = 0x1000;

    fn says(bytes: &[u8], pc: u64) -> Option<Goes> {
        let (bytes, mem_size) = (bytes.to_vec(), bytes.len() as u64);
        let segments = vec![Segment { address: TABLE, bytes, mem_size, access: Access::Read }];
        let (sections, symbols, sites) = (Vec::new(), Vec::new(), Vec::new());
        named(
            &Image { machine: 0, e_flags: 0, segments, sections, symbols, sites, references: Vec::new() },
            TABLE,
            START,
            pc,
        )
    }

    /// g++ 12 -O2 for x86-64, of `struct A { ~A(); }; void g(); void f() { A a; g(); }`: the call of `g` at 5 has a landing pad at
    /// 0x1a; that of `~A` in it, which is in a part of its own, has none.
    #[test]
    fn tables_of_gcc_are_read() {
        let (hot, cold) = ([0xff, 0xff, 1, 4, 5, 5, 0x1a, 0], [0xff, 0xff, 1, 4, 0x0d, 5, 0, 0]);
        let at = |table: &[u8], offset: u64| says(table, START + offset);
        assert_eq!(at(&hot, 4), Some(Goes::Unnamed));
        assert_eq!([at(&hot, 5), at(&hot, 9)], [Some(Goes::To(START + 0x1a)); 2]);
        assert_eq!(at(&hot, 10), Some(Goes::Unnamed));
        assert_eq!([at(&cold, 0x0d), at(&cold, 0x11)], [Some(Goes::On); 2]);
        assert_eq!(at(&cold, 0x12), Some(Goes::Unnamed));
    }

    #[test]
    fn what_is_no_table_says_nothing() {
        assert_eq!(says(&[], START), None);
        assert_eq!(says(&[0xff, 0xff, 0x01, 8, 4, 5], START + 40), None, "cut off");
        assert_eq!(says(&[0xff, 0xff, 0x01, 3, 4, 5, 14, 0], START + 40), None, "an entry across the end");
        assert_eq!(says(&[0xff, 0xff, 0x01, 8, 21, 5, 0, 0, 4, 5, 14, 0], START + 4), None, "not sorted");
        assert_eq!(says(&[0xff, 0xff, 0x50, 8, 4, 5, 14, 0], START + 4), None, "an unknown encoding");
        assert_eq!(says(&[0x00, 0xff, 0x01, 0], START), None, "a base of its own");
        assert_eq!(says(&[0xff, 0xff, 0x01, 0], START), Some(Goes::Unnamed), "no call");
    }
}
