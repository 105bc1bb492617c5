//! Checkpoints that have no room, and what is read back of a saved map.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use azekura_store::{
    Completion, Done, Effect, Entry, Leaf, LeafKey, MapError, Report, Root, SavedMap, SegmentRow, Store,
};
use proptest::prelude::*;
use std::time::Duration;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// A leaf image gives its leaf back; any flipped bit or cut is noticed.
    #[test]
    fn leaf_images(
        entries in prop::collection::btree_map(0usize..1024, (1u32.., any::<u32>(), any::<u16>(), 0u16..2), 0..40),
        modified in any::<u64>(), log_upto in any::<u64>(), flip in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(),
    ) {
        let key = LeafKey { layer: LayerId(77), chunk: ChunkIndex(5), pg: PgId(9) };
        let repaired_upto = log_upto / 3;
        let mut leaf = Leaf { modified: Sequence(modified), log_upto, repaired_upto, ..Leaf::default() };
        for (block, (address, checksum, length, flags)) in entries {
            leaf.entries.set(block, Entry { address, checksum, length, flags });
        }
        let image = leaf.encode(&key);
        prop_assert_eq!(Leaf::decode(&image), Ok((key, leaf)));
        let mut bad = image.clone();
        let bit = flip.index(image.len() * 8);
        bad[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Leaf::decode(&bad).is_err());
        prop_assert!(Leaf::decode(&image[..cut.index(image.len())]).is_err());
    }

    /// No bytes make a decoder panic.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = Leaf::decode(&bytes);
        let _ = Root::decode(&bytes);
        let _ = SegmentRow::decode(&bytes);
    }

    /// A flipped bit in a root is noticed.
    #[test]
    fn roots(flip in any::<prop::sample::Index>()) {
        let mut rig = Rig::format(&tiny());
        for value in 0..3 {
            let write = rig.next_write(4, 10, 0, 0, filled(value, 2), 2);
            rig.store.append(1, write);
        }
        rig.store.set_note(2, PgId(4), bytes::Bytes::from_static(b"a note"));
        rig.checkpoint();
        let root = rig.map.root().unwrap().unwrap().root;
        let image = root.encode();
        prop_assert_eq!(Root::decode(&image), Ok(root));
        let mut bad = image.clone();
        let bit = flip.index(image.len() * 8);
        bad[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Root::decode(&bad).is_err());
    }
}

/// A checkpoint for which there was no room is tried again until there is; meanwhile the store goes on.
#[test]
fn a_checkpoint_without_room_is_tried_again() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 2), 2);
    rig.settle();
    rig.store.begin_checkpoint(|_| None);
    let mut tries = 0;
    for second in 1..=20 {
        rig.store.tick(Duration::from_secs(second));
        rig.take_effects();
        while let Some(effect) = rig.map_waiting.pop() {
            let Effect::Checkpoint { io, .. } = effect else { panic!("{effect:?} was not asked for") };
            rig.store.done(io, Done::Checkpointed(Err(MapError::Full("no space left".into()))));
            tries += 1;
        }
        rig.take_effects();
        assert!(!rig.store.checkpoint_due(), "one checkpoint at a time");
    }
    assert!((4..8).contains(&tries), "{tries} tries in 20 seconds");
    let failures = rig.reports.iter().filter(|report| matches!(report, Report::NotSaved { .. })).count();
    assert_eq!(failures, tries);
    assert_eq!(rig.read(1, 10, 0, 0, 2).unwrap(), bytes_of(&filled(1, 2), 2));
    rig.write(1, 10, 0, 1, filled(2, 1), 1);
    rig.store.tick(Duration::from_secs(40));
    rig.settle();
    assert!(rig.done.iter().any(|done| matches!(done, Completion::Checkpointed)));
    rig.checkpoint();
    rig.check_accounts();
    let (disk, map) = rig.crash(|_, _| true);
    let mut rig = Rig::open(&tiny(), disk, map).unwrap();
    assert_eq!(rig.read(1, 10, 0, 0, 2).unwrap(), [bytes_of(&filled(1, 1), 1), bytes_of(&filled(2, 1), 1)].concat());
}

/// So is the one that opening ends with: the store opens when there is room.
#[test]
fn opening_waits_for_room() {
    let mut rig = Rig::format(&tiny());
    rig.write(1, 10, 0, 0, filled(1, 2), 2);
    rig.checkpoint();
    let (disk, map) = rig.crash(|_, _| true);
    let root = map.root().unwrap().unwrap();
    let mut rig = Rig::around(Store::open(tiny(), IDENTITY, root), disk, map);
    let mut tries = 0;
    for second in 1..=20 {
        rig.store.tick(Duration::from_secs(second));
        rig.take_effects();
        while !rig.reads_waiting.is_empty() || !rig.map_waiting.is_empty() {
            if rig.reads_waiting.is_empty() {
                match rig.map_waiting.remove(0) {
                    Effect::Checkpoint { io, .. } => {
                        rig.store.done(io, Done::Checkpointed(Err(MapError::Full("no space left".into()))));
                        tries += 1;
                    }
                    other => {
                        rig.map_waiting.insert(0, other);
                        rig.finish_map(0);
                    }
                }
            } else {
                rig.finish_read(0);
            }
            rig.take_effects();
        }
    }
    assert!((3..8).contains(&tries), "{tries} tries in 20 seconds");
    assert!(rig.done.is_empty(), "{:?}", rig.done);
    rig.store.tick(Duration::from_secs(40));
    rig.settle();
    assert!(matches!(rig.done[..], [Completion::Recovered(Ok(()))]), "{:?}", rig.done);
    assert!(rig.read(1, 10, 0, 0, 2).unwrap() == bytes_of(&filled(1, 2), 2));
}
