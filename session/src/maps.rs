//! A process's memory, as `/proc/PID/maps` has it.

use std::ops::Range;

/// A line of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The addresses of the mapping.
    pub range: Range<u64>,
    /// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`, as the bits 1, 2 and 4.
    pub protection: u8,
    /// The offset in the file at which the mapping begins.
    pub offset: u64,
    /// The file, or a name in brackets, or nothing.
    pub path: String,
}

/// The bit of [`Mapping::protection`] for code.
pub const EXEC: u8 = 4;

/// The lines of a text; those that are none are left out.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let flags = words.next()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(words.next()?)?;
    let path = words.nth(2).unwrap_or_default().trim_start();
    let bit = |(n, letter): (usize, char)| if flags.contains(letter) { 1 << n } else { 0 };
    Some(Mapping {
        range: hex(start)?..hex(end)?,
        protection: "rwx".chars().enumerate().map(bit).sum(),
        offset,
        path: path.to_owned(),
    })
}

/// A place of `bytes` that no mapping has, within `reach` of all of `around`, at a multiple of `page`. The nearest one below is taken
/// if there is one: above a program its heap grows. Where the kernel puts mappings, `clear` bytes above the place stay free for the next
/// ones, if they can. `also` must hold for it too.
pub fn gap(
    maps: &[Mapping],
    around: &Range<u64>,
    bytes: u64,
    (reach, clear): (u64, u64),
    page: u64,
    also: &dyn Fn(u64) -> bool,
) -> Option<u64> {
    const LOWEST: u64 = 1 << 20;
    const HIGHEST: u64 = 1 << 47;
    let (lowest, highest) =
        (around.end.saturating_sub(reach).max(LOWEST), around.start.saturating_add(reach).min(HIGHEST));
    let ends = || maps.iter().map(|m| m.range.end).chain([LOWEST]);
    let starts = || maps.iter().map(|m| m.range.start).chain([HIGHEST]);
    let free = |start: u64, end: u64| maps.iter().all(|m| end <= m.range.start || m.range.end <= start);
    let filled = filled(maps);
    let find = |clear: u64| {
        let above = |at: u64| if at >= filled { clear } else { 0 };
        // Right behind one mapping, or right before another.
        let behind = ends().map(|end| end.next_multiple_of(page));
        let before = [0, clear].into_iter().flat_map(|clear| {
            starts().filter_map(move |start| Some(start.checked_sub(bytes.checked_add(clear)?)? / page * page))
        });
        let fits = |at: &u64| {
            let end = at.checked_add(bytes).filter(|end| *at >= lowest && *end <= highest);
            end.is_some_and(|end| free(*at, end.saturating_add(above(*at)))) && also(*at)
        };
        behind.chain(before).filter(fits).min_by_key(|at| (*at > around.start, at.abs_diff(around.start)))
    };
    find(clear).or_else(|| find(0))
}

/// From where on the kernel puts mappings, from above: the largest hole between those that there are, and the holes above it.
fn filled(maps: &[Mapping]) -> u64 {
    // What is above all is the kernel's.
    let mut mapped: Vec<&Range<u64>> = maps.iter().map(|m| &m.range).filter(|range| range.start >> 47 == 0).collect();
    mapped.sort_by_key(|range| range.start);
    let holes = mapped.windows(2).map(|pair| (pair[1].start.saturating_sub(pair[0].end), pair[0].end));
    holes.max().map_or(u64::MAX, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: u64 = 96 << 20;
    const TEXT: &str = "\
555555554000-555555555000 r--p 00000000 08:01 42                         /bin/a name
555555555000-555555556000 r-xp 00001000 08:01 42                         /bin/a name
555555557000-555555558000 rw-p 00000000 00:00 0                          [heap]
7ffff7fff000-7ffff8000000 rw-p 00000000 00:00 0 
";

    #[test]
    fn lines_are_read() {
        let maps = parse(TEXT);
        assert_eq!(maps.len(), 4);
        let code = &maps[1];
        assert_eq!((code.range.clone(), code.protection, code.offset), (0x5555_5555_5000..0x5555_5555_6000, 5, 0x1000));
        assert_eq!((&*code.path, &*maps[3].path), ("/bin/a name", ""));
        assert_eq!(parse("nonsense\n1-2\n"), []);
    }

    #[test]
    fn the_nearest_gap_is_found() {
        let maps = parse(TEXT);
        let code = maps[1].range.clone();
        assert_eq!(gap(&maps, &code, 0x1000, (1 << 20, CLEAR), 4096, &|_| true), Some(0x5555_5555_3000));
        assert_eq!(gap(&maps[1..], &code, 0x1000, (1 << 20, CLEAR), 4096, &|_| true), Some(0x5555_5555_4000));
        let low = parse("100000-102000 r-xp 00000000 00:00 0 /a\n103000-104000 rw-p 00000000 00:00 0\n");
        assert_eq!(gap(&low, &low[0].range, 0x1000, (0x4000, CLEAR), 4096, &|_| true), Some(0x10_2000));
        assert_eq!(gap(&low, &low[0].range, 0x2000, (0x4000, CLEAR), 4096, &|_| true), None);
        // Below the lowest library, the kernel puts what is mapped next.
        let library = maps[3].range.clone();
        assert_eq!(
            gap(&maps, &library, 0x1000, (1 << 31, CLEAR), 4096, &|_| true),
            Some(library.start - 0x1000 - CLEAR)
        );
    }
}
