//! A table that is read at any moment, in signal handlers too, and that nothing leaves again.

use std::sync::OnceLock;

/// Slots of the first part. Each part has twice as many as the one before.
const FIRST: usize = 1 << 10;
const PARTS: usize = 32;

type Slot<T> = OnceLock<(u64, &'static T)>;

/// Values by their address.
pub struct Table<T: 'static> {
    parts: [OnceLock<Box<[Slot<T>]>>; PARTS],
}

impl<T> Table<T> {
    /// An empty one.
    pub const fn new() -> Table<T> {
        Table { parts: [const { OnceLock::new() }; PARTS] }
    }

    /// The slots in which a key may be, nearest first: an eighth of a part, so that looking for one that is absent ends soon.
    fn slots(part: &[Slot<T>], key: u64) -> impl Iterator<Item = &Slot<T>> {
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let mask = part.len() - 1;
        (0..part.len() / 8).filter_map(move |n| part.get((first + n) & mask))
    }

    /// The value that was put to this address last.
    pub fn get(&self, key: u64) -> Option<&'static T> {
        let parts = self.parts.iter().map_while(OnceLock::get);
        let found = parts.filter_map(|part| {
            let filled = Self::slots(part, key).map_while(OnceLock::get);
            filled.filter(|(at, _)| *at == key).last().map(|(_, value)| *value)
        });
        found.last()
    }

    /// Put a value there. The caller holds a lock against others who do.
    pub fn put(&self, key: u64, value: &'static T) {
        for (n, part) in self.parts.iter().enumerate() {
            let part = part.get_or_init(|| (0..FIRST << n).map(|_| OnceLock::new()).collect());
            if Self::slots(part, key).any(|slot| slot.set((key, value)).is_ok()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_again() {
        let table = Table::new();
        let keys = || (0..5000_u64).map(|n| 0x40_0000 + 16 * n);
        assert!(table.get(0x40_0000).is_none());
        for key in keys() {
            table.put(key, Box::leak(Box::new(key)));
        }
        assert!(keys().all(|key| table.get(key) == Some(&key)));
        assert!(table.get(0x40_0001).is_none());
        table.put(0x40_0000, &1);
        assert_eq!(table.get(0x40_0000), Some(&1), "the last one");
    }
}
