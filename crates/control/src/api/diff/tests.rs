#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

const CHUNK: u64 = CHUNK_SIZE as u64;
const BLOCK: u64 = BLOCK_SIZE as u64;

/// Runs of blocks: the first, how many, whether they hold data.
type Runs<'a> = &'a [(u16, u16, bool)];

fn said(chunks: &[(u32, Runs<'_>)], next: Option<u32>) -> Differences {
    let runs = |runs: Runs<'_>| runs.iter().map(|(a, b, c)| DifferingBlocks(*a, *b, *c)).collect();
    Differences { chunks: chunks.iter().map(|(chunk, blocks)| (*chunk, runs(blocks))).collect(), next }
}

fn merged(answers: Vec<Differences>) -> Result<Round, String> {
    let answers = answers.into_iter().zip(1..).map(|(answer, pg)| (PgId(pg), answer)).collect();
    merge(ChunkIndex(10), ChunkIndex(20), answers)
}

#[test]
fn what_groups_say_counts_as_far_as_all_have_come() {
    let one = said(&[(10, &[(0, 4, true)]), (14, &[(1, 1, false)]), (16, &[(0, 1, true)])], None);
    let other = said(&[(11, &[(1023, 1, true)]), (13, &[(2, 2, true)])], Some(15));
    let round = merged(vec![one, other]).unwrap();
    assert_eq!(round.end, ChunkIndex(15));
    assert_eq!(round.chunks.keys().map(|chunk| chunk.0).collect::<Vec<_>>(), [10, 11, 13, 14]);
    assert_eq!(merged(vec![]).unwrap(), Round { chunks: BTreeMap::new(), end: ChunkIndex(20) });
}

#[test]
fn answers_without_sense_are_refused() {
    for bad in [
        said(&[], Some(10)),
        said(&[], Some(21)),
        said(&[(9, &[(0, 1, true)])], None),
        said(&[(20, &[(0, 1, true)])], None),
        said(&[(12, &[(0, 0, true)])], None),
        said(&[(12, &[(1023, 2, true)])], None),
        said(&[(12, &[(5, 2, true), (6, 1, false)])], None),
        said(&[(12, &[(5, 2, true)]), (12, &[(8, 1, false)])], None),
    ] {
        assert!(merged(vec![bad.clone()]).is_err(), "{bad:?}");
    }
    let same = said(&[(12, &[(5, 2, true)])], None);
    assert!(merged(vec![same.clone(), same]).unwrap_err().contains("another's"));
}

#[test]
fn ranges_grow_together_and_end_with_the_volume() {
    let mut ranges = Ranges { size_bytes: 2 * CHUNK + 3 * BLOCK, ranges: Vec::new() };
    let runs =
        |runs: Runs<'_>| -> Vec<DifferingBlocks> { runs.iter().map(|(a, b, c)| DifferingBlocks(*a, *b, *c)).collect() };
    ranges.add(ChunkIndex(0), &runs(&[(0, 1, true), (1, 1, false), (1000, 24, true)]));
    ranges.add(ChunkIndex(1), &runs(&[(0, 1024, true)]));
    ranges.add(ChunkIndex(2), &runs(&[(0, 2, true), (2, 8, false), (100, 1, true)]));
    let range = |offset_bytes, length_bytes, kind| DiffRange { offset_bytes, length_bytes, kind };
    assert_eq!(
        ranges.ranges,
        [
            range(0, BLOCK, DiffKind::Data),
            range(BLOCK, BLOCK, DiffKind::Zero),
            range(1000 * BLOCK, 24 * BLOCK + CHUNK + 2 * BLOCK, DiffKind::Data),
            range(2 * CHUNK + 2 * BLOCK, BLOCK, DiffKind::Zero),
        ]
    );
}

proptest! {
    /// Whatever another node answers: it is refused, or what comes of it is in order and inside of what was asked for.
    #[test]
    fn any_answer_is_refused_or_makes_sense(
        chunks in prop::collection::vec(
            (8_u32..22, prop::collection::vec((0_u16..1030, 0_u16..8, any::<bool>()), 0..4)), 0..6),
        next in prop::option::of(8_u32..22),
    ) {
        let chunks = chunks.into_iter().map(|(chunk, runs)| {
            (chunk, runs.into_iter().map(|(a, b, c)| DifferingBlocks(a, b, c)).collect())
        });
        if let Ok(round) = merged(vec![Differences { chunks: chunks.collect(), next }]) {
            prop_assert!(round.end > ChunkIndex(10) && round.end <= ChunkIndex(20));
            prop_assert!(round.chunks.keys().all(|chunk| (ChunkIndex(10)..round.end).contains(chunk)));
            let mut ranges = Ranges { size_bytes: 19 * CHUNK + 5 * BLOCK, ranges: Vec::new() };
            round.chunks.iter().for_each(|(chunk, runs)| ranges.add(*chunk, runs));
            let mut upto = 0;
            for range in ranges.ranges {
                prop_assert!(range.offset_bytes >= upto && range.length_bytes > 0);
                upto = range.offset_bytes + range.length_bytes;
            }
            prop_assert!(upto <= 19 * CHUNK + 5 * BLOCK);
        }
    }

    /// Nodes' answers are read from any bytes without harm, and what is written is read.
    #[test]
    fn answers_of_nodes_are_decoded(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        runs in prop::collection::vec((any::<u16>(), any::<u16>(), any::<bool>()), 0..9),
        next in any::<Option<u32>>(),
        failed in any::<String>(),
    ) {
        let _ = serde_json::from_slice::<Vec<GroupDifferences>>(&bytes);
        let runs: Vec<DifferingBlocks> = runs.into_iter().map(|(a, b, c)| DifferingBlocks(a, b, c)).collect();
        for told in [Ok(Differences { chunks: vec![(7, runs)], next }), Err(NotTold::Later), Err(NotTold::Failed(failed))] {
            let text = serde_json::to_string(&vec![GroupDifferences { pg: PgId(3), told: told.clone() }]).unwrap();
            let read: Vec<GroupDifferences> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!((read[0].pg, &read[0].told), (PgId(3), &told));
        }
    }
}
