//! Records in few bytes: some 3 in place of 16. A block of them is packed by itself.
//!
//! Each record is a number of 7 bits a byte, lowest first, whose bit 7 says that another follows: bits 0 and 1 say what the rest is,
//! bit 2 that the time is 0. Then comes the time, unless it is 0: its distance from the one before in the block, as such a number:
//! doubled, with bit 0 for less than none, and 1 added. Then come the record's words, as they are.
//!
//! | bits 0, 1 | record | rest |
//! |--:|---|---|
//! | 0 | an entry without words | the function's number |
//! | 1 | a return without words, of the function that was entered last and has not returned | 0 |
//! | 2 | any | `what` |
//! | 3 | a slot without a record, 16 bytes of 0 | 0 |
//!
//! A return that is of another function ends those that were entered after it.

use codegen::words::error::{Error, Result};

/// The forms of a record.
const ENTRY: u64 = 0;
const RETURN: u64 = 1;
const ANY: u64 = 2;
const NONE: u64 = 3;
/// What is added to a distance, so that none is 0.
const DISTANCE: u64 = 1;
/// The bit for a time of 0, and how many bits are below the rest.
const NO_TIME: u64 = 4;
const BELOW: u32 = 3;
/// Kinds of records (docs/trampolines.md, "Records").
const ENTERED: u64 = 1;
const RETURNED: u64 = 2;

/// What both sides remember.
#[derive(Default)]
struct Memory {
    /// The functions that have not returned.
    open: Vec<u64>,
    time: u64,
}

impl Memory {
    /// A record has come, which may be of any kind.
    fn comes(&mut self, what: u64) {
        match what & 15 {
            ENTERED => self.open.push(what >> 8),
            RETURNED => {
                if let Some(depth) = self.open.iter().rposition(|id| *id == what >> 8) {
                    self.open.truncate(depth);
                }
            }
            _ => {}
        }
    }
}

/// Bytes of the longest number, and below what one is of at most four.
const LONGEST: usize = 10;
const SHORT: u64 = 1 << 28;

/// A number below [`SHORT`], and how many bytes it has. Without a branch: which length comes next is not to be foreseen.
#[inline(always)]
fn short(number: u64) -> (u64, u32) {
    let spread = number & 0x7f | (number & 0x3f80) << 1 | (number & 0x1f_c000) << 2 | (number & 0xfe0_0000) << 3;
    let length = (number | 1).ilog2() / 7 + 1;
    (spread | 0x80_8080 & ((1 << (8 * (length - 1))) - 1), length)
}

/// Where packed records go: room for all, of which so many bytes are used.
struct To<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl To<'_> {
    /// Two numbers, of which the second is none if it is 0.
    #[inline(always)]
    fn put(&mut self, head: u64, time: u64) {
        if head < SHORT && time < SHORT {
            let ((head, first), (time, second)) = (short(head), short(time));
            let second_or_none = if time == 0 { 0 } else { second };
            self.write(&(head | time << (8 * first)).to_le_bytes());
            self.used -= 8 - (first + second_or_none) as usize;
        } else {
            self.long(head);
            if time != 0 {
                self.long(time);
            }
        }
    }

    #[cold]
    fn long(&mut self, mut number: u64) {
        while number > 0x7f {
            self.write(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.write(&[number as u8]);
    }

    #[inline(always)]
    fn write<const N: usize>(&mut self, bytes: &[u8; N]) {
        if let Some(room) = self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut()) {
            *room = *bytes;
        }
        self.used += N;
    }
}

/// Records as they are in memory, packed into `room`, in place of what is there. None if one of them has no place in this form.
pub fn pack<'r>(words: &[u64], room: &'r mut Vec<u8>) -> Option<&'r [u8]> {
    // A record has two numbers in place of two words.
    room.resize(words.len() / 2 * 2 * LONGEST + 8, 0);
    let mut to = To { bytes: room, used: 0 };
    let mut memory = Memory::default();
    let mut rest = words;
    while let [time, what, more @ ..] = rest {
        let (count, id) = ((what >> 4 & 15) as usize, what >> 8);
        let (own, behind) = more.split_at_checked(count)?;
        if what.leading_zeros() < BELOW || (*what == 0 && *time != 0) {
            return None;
        }
        rest = behind;
        let no_time = if *time == 0 { NO_TIME } else { 0 };
        let form = match what & 0xff {
            0 if *what == 0 => NONE,
            ENTERED => {
                memory.open.push(id);
                id << BELOW | ENTRY
            }
            RETURNED if memory.open.last() == Some(&id) => {
                memory.open.pop();
                RETURN
            }
            _ => {
                memory.comes(*what);
                what << BELOW | ANY
            }
        };
        // A distance of 0 is a number too, and no time is none.
        let distance = time.wrapping_sub(memory.time).cast_signed();
        let distance =
            if *time == 0 { 0 } else { (distance << 1 ^ distance >> 63).cast_unsigned().wrapping_add(DISTANCE) };
        memory.time = if *time == 0 { memory.time } else { *time };
        if (*time == 0) != (distance == 0) {
            return None;
        }
        to.put(form | no_time, distance);
        own.iter().for_each(|word| to.write(&word.to_le_bytes()));
    }
    let used = to.used;
    room.get(..used).filter(|_| rest.is_empty())
}

struct From<'a>(&'a [u8]);

impl From<'_> {
    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else { break };
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Error::damaged("a packed number has no end"))
    }

    fn word(&mut self) -> Result<u64> {
        let Some((word, rest)) = self.0.split_first_chunk() else {
            return Err(Error::damaged("a packed record has too few words"));
        };
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }
}

/// Append the records that were packed into `bytes` to `to`, which may have so many bytes more.
///
/// # Errors
/// These bytes are no packed records, or are more of them.
pub fn unpack(bytes: &[u8], most: usize, to: &mut Vec<u8>) -> Result<()> {
    let (mut memory, mut from, most) = (Memory::default(), From(bytes), to.len() + most);
    while !from.0.is_empty() {
        let head = from.number()?;
        let rest = head >> BELOW;
        let what = match head & 3 {
            ENTRY => rest << 8 | ENTERED,
            RETURN => match memory.open.last() {
                Some(id) => id << 8 | RETURNED,
                None => return Err(Error::damaged("a packed return is of no function")),
            },
            ANY => rest,
            _ => 0,
        };
        memory.comes(what);
        let mut time = 0;
        if head & NO_TIME == 0 {
            let distance = from.number()?.wrapping_sub(DISTANCE);
            let distance = (distance >> 1).cast_signed() ^ -((distance & 1).cast_signed());
            memory.time = memory.time.wrapping_add_signed(distance);
            time = memory.time;
        }
        let count = (what >> 4 & 15) as usize;
        if to.len() + 16 + 8 * count > most {
            return Err(Error::damaged("more packed records than their block says"));
        }
        to.extend(time.to_le_bytes());
        to.extend(what.to_le_bytes());
        for _ in 0..count {
            to.extend(from.word()?.to_le_bytes());
        }
    }
    if to.len() != most {
        return Err(Error::damaged("fewer packed records than their block says"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Vec<u64>> {
        let what = (0_u64..40, 0_u64..3, 0_u64..5).prop_map(|(id, words, kind)| id << 8 | words << 4 | kind);
        let time = prop_oneof![Just(0), 1_u64..1000, any::<u64>()];
        (time, what).prop_map(|(time, what)| match what {
            0 => vec![0, 0],
            _ => [time, what].into_iter().chain((0..what >> 4 & 15).map(|n| n * 77)).collect(),
        })
    }

    proptest! {
        #[test]
        fn what_is_unpacked_is_what_was_packed(records in prop::collection::vec(record(), 0..200)) {
            let words = records.concat();
            let (mut room, mut bytes) = (Vec::new(), Vec::new());
            let packed = pack(&words, &mut room).unwrap();
            unpack(packed, 8 * words.len(), &mut bytes).unwrap();
            prop_assert_eq!(bytes, words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
            prop_assert!(words.is_empty() || unpack(packed, 8 * words.len() - 8, &mut Vec::new()).is_err());
            prop_assert!(unpack(packed, 8 * words.len() + 8, &mut Vec::new()).is_err());
        }

        #[test]
        fn any_bytes_are_records_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut to = Vec::new();
            let _ = unpack(&bytes, 1024, &mut to);
            prop_assert!(to.len() <= 1024);
        }
    }

    #[test]
    fn what_has_no_place_is_refused() {
        for words in [&[1][..], &[1, 0], &[1, 0x11], &[1, 1 << 61]] {
            assert_eq!(pack(words, &mut Vec::new()), None, "{words:?}");
        }
    }

    /// An entry and its return, of one function of fewer than 2048, less than 64 ticks apart: five bytes.
    #[test]
    fn a_call_takes_five_bytes() {
        let words = [1, 0x7ff01, 50, 0x7ff02];
        assert_eq!(pack(&words, &mut Vec::new()).map(<[u8]>::len), Some(2 + 1 + 1 + 1));
    }
}
