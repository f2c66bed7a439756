//! Records in few bytes: some 4 in place of 16. A block of them is packed by itself.
//!
//! Each record begins with a u32, whose bits 0 and 1 say what follows. All numbers are little-endian.
//!
//! | bits 0, 1 | record | bits 2 to 31 | behind it |
//! |--:|---|---|---|
//! | 0 | an entry without words | 13 bits: the function's number; 17 bits: the time | nothing |
//! | 1 | a return without words, of the function that was entered last and has not returned | the time | nothing |
//! | 2 | an entry without words | the function's number | the time, a u32 |
//! | 3 | any, also 16 bytes of 0 | 0 | the record |
//!
//! A time is the distance from the one before in the block, and 1 added: 0 is none. A return that is of another function ends those
//! that were entered after it.

use codegen::words::error::{Error, Result};

/// The forms of a record.
const ENTRY: u64 = 0;
const RETURN: u64 = 1;
const LONG: u64 = 2;
const ANY: u64 = 3;
/// The number of bits that give the form.
const FORM: u32 = 2;
/// The number of bits of a short entry that give the function.
const ID: u32 = 13;
/// For each form and for a short entry: the limits below which a function's number and a time must be.
const MOST: u64 = 1 << (32 - FORM);
const MOST_ID: u64 = 1 << ID;
const MOST_TIME: u64 = 1 << (32 - FORM - ID);
/// Kinds of records (docs/trampolines.md, "Records").
const ENTERED: u64 = 1;
const RETURNED: u64 = 2;

/// The state that packing and unpacking share.
#[derive(Default)]
struct Memory {
    /// The functions that have not returned, so many, and behind them some that have.
    open: Vec<u64>,
    depth: usize,
    time: u64,
}

impl Memory {
    /// A record has come, which may be of any kind.
    fn comes(&mut self, time: u64, what: u64) {
        self.time = if time == 0 { self.time } else { time };
        match what & 15 {
            ENTERED => {
                // Room for those that come in their short form.
                if self.depth >= self.open.len() {
                    self.open.resize(self.depth + 64, 0);
                }
                self.open.get_mut(self.depth).into_iter().for_each(|place| *place = what >> 8);
                self.depth += 1;
            }
            RETURNED => {
                let open = self.open.get(..self.depth).unwrap_or_default();
                self.depth = open.iter().rposition(|id| *id == what >> 8).unwrap_or(self.depth);
            }
            _ => {}
        }
    }

    /// The function that was entered last and has not returned.
    fn last(&self) -> Option<u64> {
        self.depth.checked_sub(1).and_then(|at| self.open.get(at).copied())
    }
}

/// The destination of packed records: room for all, of which so many bytes are used.
struct To<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl To<'_> {
    /// A number, of which the first `bytes` bytes count.
    #[inline(always)]
    fn put(&mut self, number: u64, bytes: usize) {
        if let Some(room) = self.bytes.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut()) {
            *room = number.to_le_bytes();
        }
        self.used += bytes;
    }
}

/// An entry or a return in its short form, as a number and how many bytes of it count; nearly all records have one. Which of the
/// two comes next is not to be foreseen, so nothing here branches on it.
#[inline(always)]
fn short(memory: &mut Memory, time: u64, what: u64) -> Option<(u64, usize)> {
    let (kind, id, timed) = (what & 0xff, what >> 8, time != 0);
    let returns = kind >> 1 != 0;
    let top = memory.depth.wrapping_sub(usize::from(returns));
    let place = memory.open.get_mut(top)?;
    let distance = if timed { time.wrapping_sub(memory.time) } else { 0 };
    let known = !returns | (*place == id);
    if !(known & (kind.wrapping_sub(ENTERED) < RETURNED) & (id < MOST) & (distance < MOST - 1)) {
        return None;
    }
    *place = id;
    memory.depth = top + usize::from(!returns);
    memory.time = memory.time.wrapping_add(distance);
    let stamp = distance + u64::from(timed);
    let (entry, long) = (id << FORM | stamp << (FORM + ID) | ENTRY, id << FORM | stamp << 32 | LONG);
    let fits = (id < MOST_ID) & (stamp < MOST_TIME);
    let entry = if fits { entry } else { long };
    Some((if returns { stamp << FORM | RETURN } else { entry }, if fits | returns { 4 } else { 8 }))
}

/// Records as they are in memory, packed into `room`, in place of what is there. None if they end within one.
pub fn pack<'r>(words: &[u64], room: &'r mut Vec<u8>) -> Option<&'r [u8]> {
    // Two words are a record of any form, and a number may be put where only half of it counts.
    room.resize(words.len() * 10 + 8, 0);
    let mut to = To { bytes: room, used: 0 };
    let mut memory = Memory::default();
    let mut rest = words;
    while let [time, what, more @ ..] = rest {
        rest = more;
        if let Some((number, bytes)) = short(&mut memory, *time, *what) {
            to.put(number, bytes);
            continue;
        }
        let (own, behind) = more.split_at_checked((what >> 4 & 15) as usize)?;
        rest = behind;
        memory.comes(*time, *what);
        to.put(ANY, 4);
        [time, what].into_iter().chain(own).for_each(|word| to.put(*word, 8));
    }
    let used = to.used;
    room.get(..used).filter(|_| rest.is_empty())
}

struct From<'a>(&'a [u8]);

impl From<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((bytes, rest)) = self.0.split_first_chunk() else {
            return Err(Error::damaged("a packed record has no end"));
        };
        self.0 = rest;
        Ok(*bytes)
    }

    fn half(&mut self) -> Result<u64> {
        Ok(u32::from_le_bytes(self.bytes()?).into())
    }

    fn word(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }
}

/// Append the records that were packed into `bytes` to `to`, which may have so many bytes more.
///
/// # Errors
/// These bytes are no packed records, or are more of them.
pub fn unpack(bytes: &[u8], most: usize, to: &mut Vec<u8>) -> Result<()> {
    let (mut memory, mut from, most) = (Memory::default(), From(bytes), to.len() + most);
    while !from.0.is_empty() {
        let head = from.half()?;
        let rest = head >> FORM;
        let (stamp, what) = match head & 3 {
            ENTRY => (rest >> ID, (rest & (MOST_ID - 1)) << 8 | ENTERED),
            RETURN => match memory.last() {
                Some(id) => (rest, id << 8 | RETURNED),
                None => return Err(Error::damaged("a packed return is of no function")),
            },
            LONG => (from.half()?, rest << 8 | ENTERED),
            _ => (0, 0),
        };
        let (time, what) = match head & 3 {
            ANY => (from.word()?, from.word()?),
            _ if stamp == 0 => (0, what),
            _ => (memory.time.wrapping_add(stamp - 1), what),
        };
        memory.comes(time, what);
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
        let id = prop_oneof![3 => 0_u64..40, 1 => 8000_u64..9000, 1 => 0_u64..1 << 56];
        let what = (id, 0_u64..3, 0_u64..5).prop_map(|(id, words, kind)| id << 8 | words << 4 | kind);
        let time = prop_oneof![Just(0), 1_u64..1000, 1_u64..1 << 20, 1_u64..1 << 32, any::<u64>()];
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
    fn what_ends_within_a_record_is_refused() {
        for words in [&[1][..], &[1, 0x11], &[1, 0x101, 2]] {
            assert_eq!(pack(words, &mut Vec::new()), None, "{words:?}");
        }
    }

    /// The forms of records, by the bytes that they take.
    #[test]
    fn a_call_takes_eight_bytes() {
        let bytes = |words: &[u64]| pack(words, &mut Vec::new()).map(<[u8]>::len);
        let first = [1, 0x101];
        assert_eq!(bytes(&first), Some(20));
        let with = |more: &[u64]| bytes(&[&first, more].concat()).map(|all| all - 20);
        assert_eq!(with(&[2, 8191 << 8 | 1, 131_071, 8191 << 8 | 2]), Some(4 + 4));
        assert_eq!(with(&[2, 8192 << 8 | 1]), Some(8), "a function of a large number");
        assert_eq!(with(&[131_072, 0x201]), Some(8), "a long time");
        assert_eq!(with(&[(1 << 30) - 1, 0x102]), Some(4), "a long time");
        assert_eq!(with(&[1 << 30, 0x102]), Some(20), "a longer one");
        assert_eq!(with(&[0, 0x201, 0, 0x202]), Some(4 + 4), "no times");
        assert_eq!(with(&[2, 0x202]), Some(20), "another function's return");
    }
}
