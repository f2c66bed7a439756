//! Files that are cut off or have wrong bits: a recording or an error, and never a panic.

use std::io::{Cursor, sink};

use proptest::prelude::*;
use trace::export::{self, Version};
use trace::file::Reader;
use trace::filter::{Filter, Wanted};
use trace::recording::Recording;
use trace::tree::Tree;
use trace::view::{self, Key, Report};

use crate::exports::Memory;
use crate::made::{Op, bytes, file, follow};

fn some() -> Vec<u8> {
    let ops = [Op::Call(0), Op::Call(1), Op::Call(2), Op::Return, Op::Call(2), Op::Throw, Op::Jump(1), Op::Return];
    let script: Vec<(Op, u64)> = ops.iter().cycle().take(40).map(|op| (*op, 7)).collect();
    let records = follow(&script, false).records;
    let (first, second) = records.split_at(11);
    file(&[vec![bytes(first), bytes(second)], vec![bytes(second)]])
}

/// Read everything in every way.
fn read(file: &[u8]) -> codegen::words::error::Result<Option<u64>> {
    let recording = Recording::open(Cursor::new(file))?;
    let filter = Filter::new(&Wanted::default(), &recording)?;
    let report = Report::new(&recording, &filter, true, Key::Own)?;
    report.text(&mut sink())?;
    view::replay(&recording, &filter, &mut sink())?;
    let tree = Tree::of(&recording, &filter)?;
    view::graph(&recording, &tree, &mut sink())?;
    export::html(&recording, &tree, &report, &mut sink())?;
    export::folded(&recording, &tree, &mut sink())?;
    export::chrome(&recording, &filter, &mut sink())?;
    export::perfetto(&recording, &filter, &mut sink())?;
    export::firefox(&recording, &filter, &mut sink())?;
    export::uftrace(&recording, &filter, &mut Memory::default())?;
    export::ctf(&recording, &filter, Version::One, &mut Memory::default())?;
    export::ctf(&recording, &filter, Version::Two, &mut Memory::default())?;
    Ok(recording.cut)
}

/// Where its blocks end, from the lengths in them; first the header.
fn ends(file: &[u8]) -> Vec<usize> {
    let mut ends = vec![16];
    while let Some(head) = file.get(*ends.last().unwrap()..).filter(|rest| !rest.is_empty()) {
        let bytes = u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
        ends.push(ends.last().unwrap() + 8 + bytes.next_multiple_of(8));
    }
    ends
}

/// The most memory that this process has had, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    most.trim().trim_end_matches(" kB").parse().unwrap()
}

/// So much more is too much for some kilobytes of input, whatever other tests take meanwhile.
const TOO_MUCH: u64 = 256 << 10;

/// What blocks say of their size takes no memory before it is there.
#[test]
fn claims_take_no_memory() {
    /// A kind of blocks, and where it says how many bytes there are.
    const PACKED: ([u8; 4], usize) = ([11, 0, 0, 0], 20);
    // It has packed records.
    let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/trace/calls");
    let (whole, before) = (std::fs::read(seed).unwrap(), memory());
    assert!(read(&whole).is_ok());
    let mut claims = 0;
    for start in ends(&whole).into_iter().filter(|at| whole.get(*at..at + 4) == Some(&PACKED.0)) {
        let mut file = whole.clone();
        file[start + PACKED.1..][..4].copy_from_slice(&(64_u32 << 20).to_le_bytes());
        let _ = read(&file);
        // And where there is less than the block says.
        file[start + PACKED.1..][..4].copy_from_slice(&((64_u32 << 20) + 1).to_le_bytes());
        let e = read(&file).unwrap_err().to_string();
        assert!(e.contains("unpacked 67108865"), "{e}");
        claims += 1;
    }
    assert!(claims > 0);
    assert!(memory() - before < TOO_MUCH, "{} KiB", memory() - before);
}

#[test]
fn a_file_is_valid_up_to_its_last_whole_block() {
    let file = some();
    assert_eq!(read(&file).unwrap(), None);
    let ends = ends(&file);
    assert!(ends.len() > 10 && *ends.last().unwrap() == file.len(), "{ends:?}");
    for length in 0..file.len() {
        let last = ends.iter().rev().find(|end| **end <= length);
        match (read(&file[..length]), last) {
            // Without a session it is nothing.
            (Err(_), None | Some(16)) => {}
            (Ok(cut), Some(last)) => assert_eq!(cut, (*last < length).then_some(*last as u64), "{length}"),
            (result, last) => panic!("{length}: {result:?}, {last:?}"),
        }
    }
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let why = |bytes: &[u8]| Reader::new(Cursor::new(bytes.to_vec())).err().map(|e| e.to_string()).unwrap_or_default();
    let mut file = some();
    assert_eq!(why(&file), "");
    assert!(why(b"short").contains("shorter than a header"));
    assert!(why(&[0; 100]).contains("its first bytes are others"));
    file[8] = 1;
    assert!(why(&file).contains("unknown version of a trace '1'; valid: version 2"), "{}", why(&file));
    // A block that would be larger than any.
    let mut file = some();
    file[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    let e = read(&file).unwrap_err().to_string();
    assert!(e.contains("byte 16: a block of 4294967295 bytes"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wrong_bits_are_no_panic(flips in proptest::collection::vec((0_usize..1 << 20, 0_u8..8), 1..6)) {
        let mut file = some();
        for (at, bit) in flips {
            let at = at % file.len();
            file[at] ^= 1 << bit;
        }
        // Either is fine.
        let _ = read(&file);
    }

    #[test]
    fn files_that_are_cut_off_with_wrong_bits_are_no_panic(
        length in 0_usize..1 << 20,
        flips in proptest::collection::vec((0_usize..1 << 20, 0_u8..8), 0..4),
    ) {
        let mut file = some();
        file.truncate(length % file.len());
        for (at, bit) in flips {
            let at = at % file.len().max(1);
            file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
        }
        let before = memory();
        let _ = read(&file);
        prop_assert!(memory() - before < TOO_MUCH);
    }

    /// Whole blocks in any order, as often as one likes, and in between parts of them.
    #[test]
    fn spliced_files_are_no_panic(pieces in proptest::collection::vec((any::<bool>(), 0_usize..1 << 20, 0_usize..200), 1..30)) {
        let (whole, before) = (some(), memory());
        let ends = ends(&whole);
        let mut file = whole[..ends[1]].to_vec();
        for (is_block, from, length) in pieces {
            let block = from % (ends.len() - 1);
            let part = match is_block {
                true => ends[block]..ends[block + 1],
                false => from % whole.len()..(from % whole.len() + length).min(whole.len()),
            };
            file.extend_from_slice(&whole[part]);
        }
        let _ = read(&file);
        prop_assert!(memory() - before < TOO_MUCH);
    }

    #[test]
    fn wrong_words_in_records_are_no_panic(words in proptest::collection::vec(any::<u64>(), 0..40)) {
        // Many of them are functions that there are, at times of any year.
        let records = words.iter().flat_map(|word| [*word, ((word % 4) << 8) | ((word >> 9) % 5)]);
        let records: Vec<u8> = records.flat_map(u64::to_le_bytes).collect();
        let result = read(&file(&[vec![records.clone()], vec![records]]));
        prop_assert!(result.is_ok(), "{:?}", result);
    }
}
