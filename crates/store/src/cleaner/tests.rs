//! Moves that wait while the segment that they come from is written anew, and answers that come late.

use super::*;
use crate::effect::Effect;
use crate::log::format::Contents;
use crate::map::LeafKey;
use crate::segments::Segments;
use azekura_base::{BLOCK_SIZE, BlockIndex, Checksums, ChunkIndex, PgId};
use common::{Rig, bytes_of, epoch, filled, sequence, tiny};

#[path = "../../tests/common/mod.rs"]
mod common;
mod moved;

const PG: PgId = PgId(1);
const LAYER: LayerId = LayerId(10);
/// Of which a block is moved.
const CHUNK: u32 = 0;
const BLOCK: BlockIndex = BlockIndex(5);

fn key() -> LeafKey {
    LeafKey { layer: LAYER, chunk: ChunkIndex(CHUNK), pg: PG }
}

fn address(rig: &mut Rig) -> u32 {
    address_of(rig, BLOCK)
}

fn address_of(rig: &mut Rig, block: BlockIndex) -> u32 {
    rig.settle_map();
    let (_, _, map, _) = rig.store.parts().0.parts();
    map.leaf_in_memory(key()).expect("the leaf is in memory").entries[usize::from(block.0)].address
}

fn write_block(rig: &mut Rig, value: u64) {
    rig.write(PG.0, LAYER.0, CHUNK, BLOCK.0, filled(value, 1), 1);
}

/// Ends the open segment, and opens others, until `segment` is the open one.
fn roll_to(rig: &mut Rig, segment: u32) {
    for _ in 0..2 * tiny().segments {
        assert!(seal_segment(rig), "a segment is free");
        rig.settle();
        if cx(rig).log().head().is_some_and(|(link, _)| link.segment == segment) {
            return;
        }
    }
    panic!("segment {segment} is never opened");
}

fn has_read(rig: &mut Rig, read: &VictimRead, bytes: &Bytes) {
    let (cx, _, _, cleaner) = rig.store.parts().0.parts();
    cleaner.mover.reads_blocks_of(read);
    cleaner.mover.add(cx, read, bytes);
}

fn seal_segment(rig: &mut Rig) -> bool {
    let (engine, log) = rig.store.parts();
    let (cx, _, _, cleaner) = engine.parts();
    log.seal_segment(cx, cleaner, false)
}

fn best_victim(rig: &mut Rig) -> Option<u32> {
    let (cx, groups, _, cleaner) = rig.store.parts().0.parts();
    cleaner.best_victim(cx, groups)
}

fn cx(rig: &mut Rig) -> &mut StoreCx {
    rig.store.parts().0.parts().0
}

fn cleaner(rig: &mut Rig) -> &mut Cleaner {
    rig.store.parts().0.parts().3
}

/// A device with a block in segment 0, which is sealed, and the cleaner has read the block and waits to move it.
/// Gives the block's address.
fn with_a_move_that_waits() -> (Rig, u32) {
    let mut rig = Rig::format(&tiny());
    rig.store.start_epoch(1, PG, epoch(1), sequence(0));
    rig.settle();
    seal_segment(&mut rig);
    rig.settle();
    write_block(&mut rig, 1);
    seal_segment(&mut rig);
    rig.settle();
    let from = queue_move(&mut rig, BLOCK);
    rig.settle();
    assert_eq!(cleaner(&mut rig).mover.queued_blocks(), 1, "there is no credit to move it");
    (rig, from)
}

/// The cleaner has read a block, and waits to move it. Gives the block's address.
fn queue_move(rig: &mut Rig, block: BlockIndex) -> u32 {
    let from = address_of(rig, block);
    let segment = cx(rig).segments().segment_of(from);
    let bytes = rig.disk.read(Segments::offset(from), BLOCK_SIZE);
    let checksums: Checksums = azekura_base::block_checksums(&bytes).collect();
    let runs = vec![(key(), block, from, checksums, None)];
    has_read(rig, &VictimRead { victim: VictimId::default(), segment, address: from, runs }, &bytes);
    from
}

#[test]
fn a_move_that_waits_does_not_take_what_is_written_in_its_place() {
    let (mut rig, from) = with_a_move_that_waits();
    write_block(&mut rig, 2);
    assert_ne!(address(&mut rig), from);
    rig.checkpoint();
    let segment = cx(&mut rig).segments().segment_of(from);
    assert_eq!(cx(&mut rig).segments().get(segment).state, State::Free);
    roll_to(&mut rig, segment);
    write_block(&mut rig, 3);
    assert_eq!(address(&mut rig), from, "the same place as at first");
    cleaner(&mut rig).pace.grant(100.0);
    rig.settle();
    assert_eq!(rig.read(PG.0, LAYER.0, CHUNK, BLOCK.0, 1).map(drop), Ok(()));
    assert_eq!(cleaner(&mut rig).mover.blocks(), 0);
    rig.check_accounts();
}

/// As before, but the move has been made, in vain; and the write that comes in its place was committed before the move
/// was in the log.
#[test]
fn a_move_does_not_take_at_replay_what_was_written_later_in_its_place() {
    let (mut rig, from) = with_a_move_that_waits();
    write_block(&mut rig, 2);
    let write = rig.next_write(PG.0, LAYER.0, CHUNK, BLOCK.0, filled(3, 1), 1);
    let last = write.header.sequence;
    rig.store.append(1, write);
    rig.store.commit(PG, last);
    // The write waits for space, say.
    let waiting = rig.store.parts().1.swap_queue(VecDeque::new());
    cleaner(&mut rig).pace.grant(100.0);
    rig.settle();
    assert_eq!(cleaner(&mut rig).mover.queued_blocks(), 0, "it was moved");
    // Replay is to begin not after the move.
    let moved_in = cx(&mut rig).log().head().map(|(link, _)| link).expect("a segment is open");
    cx(&mut rig).segments_mut().hold(moved_in.segment);
    rig.checkpoint();
    let segment = cx(&mut rig).segments().segment_of(from);
    roll_to(&mut rig, segment);
    rig.store.parts().1.swap_queue(waiting);
    rig.settle();
    assert_eq!(address(&mut rig), from, "the same place as at first");
    rig.checkpoint();
    assert_eq!(cx(&mut rig).segments().chain()[0].generation, moved_in.generation);
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open(&tiny(), disk, map).expect("it opens");
    rig.store.commit(PG, last);
    let read = rig.read(PG.0, LAYER.0, CHUNK, BLOCK.0, 1);
    assert_eq!(read.as_deref(), Ok(&bytes_of(&filled(3, 1), 1)[..]));
    rig.check_accounts();
}

/// One bad block keeps neither its neighbours in the segment nor the segment out of cleaning for ever.
#[test]
fn what_is_whole_beside_a_bad_block_is_moved_and_the_rest_is_tried_again() {
    let mut rig = Rig::format(&tiny());
    rig.write(PG.0, LAYER.0, CHUNK, BLOCK.0, filled(1, 6), 6);
    let from = address(&mut rig);
    let segment = cx(&mut rig).segments().segment_of(from);
    seal_segment(&mut rig);
    rig.settle();
    assert_eq!(best_victim(&mut rig), Some(segment));
    let checksums: Checksums =
        azekura_base::block_checksums(&rig.disk.read(Segments::offset(from), 6 * BLOCK_SIZE)).collect();
    for bad in [2, 3] {
        rig.disk.image[Segments::offset(from + bad) as usize + 99] ^= 1;
    }
    let bytes = rig.disk.read(Segments::offset(from), 6 * BLOCK_SIZE);
    let read = VictimRead {
        victim: VictimId::default(),
        segment,
        address: from,
        runs: vec![(key(), BLOCK, from, checksums, None)],
    };
    has_read(&mut rig, &read, &bytes);
    assert_eq!(cleaner(&mut rig).mover.blocks(), 4);
    cleaner(&mut rig).pace.grant(100.0);
    rig.settle();
    assert_eq!(cx(&mut rig).segments().get(segment).live, 2, "the others are in a new place");
    assert_eq!(rig.read(PG.0, LAYER.0, CHUNK, BLOCK.0, 2).as_deref(), Ok(&bytes_of(&filled(1, 2), 2)[..]));
    assert!(rig.read(PG.0, LAYER.0, CHUNK, BLOCK.0 + 2, 1).is_err());
    assert_eq!(best_victim(&mut rig), None);
    rig.store.tick(ALONE_PAUSE);
    assert_eq!(best_victim(&mut rig), Some(segment), "it may have been mended");
    rig.check_accounts();
}

/// A victim that asks the map about one block, and its question.
fn asks_about(rig: &mut Rig, segment: u32, generation: u64, from: u32) -> (VictimId, Probe) {
    let (cx, groups, _, cleaner) = rig.store.parts().0.parts();
    let jobs = Jobs::default();
    let id = cleaner.begin(segment, generation, true);
    let victim = cleaner.victim.as_mut().expect("it has just begun");
    victim.stage = Stage::Probing;
    let candidate = Candidate { key: key(), first: BLOCK, count: 1, address: from, sequence: sequence(0) };
    victim.ask_about(VecDeque::from([candidate]));
    let probe = cleaner.next_probe(cx, groups, &jobs).expect("there is something to ask");
    assert!(cleaner.next_probe(cx, groups, &jobs).is_none(), "one question was all");
    (id, probe)
}

/// A victim is put off while the map is asked about it, and its segment is chosen again.
#[test]
fn what_an_earlier_victim_has_asked_is_not_counted_for_a_later_one() {
    let (mut rig, from) = with_a_move_that_waits();
    let _ = cleaner(&mut rig).mover.pop_apart(1);
    let segment = cx(&mut rig).segments().segment_of(from);
    let generation = cx(&mut rig).segments().get(segment).generation;
    let (_, late) = asks_about(&mut rig, segment, generation, from);
    let (cx, _, _, cleaner) = rig.store.parts().0.parts();
    cleaner.put_off(cx);
    let (_, probe) = asks_about(&mut rig, segment, generation, from);
    let (cx, groups, map, cleaner) = rig.store.parts().0.parts();
    cleaner.probed(&late, None);
    assert!(cleaner.next_probe(cx, groups, &Jobs::default()).is_none());
    let stage = |cleaner: &Cleaner| cleaner.victim.as_ref().map(|victim| (victim.probes, victim.reads));
    assert_eq!(stage(cleaner), Some((1, 0)), "its own question has no answer yet");
    cleaner.probe_failed(cx, &late);
    assert_eq!(stage(cleaner), Some((1, 0)), "an error of a question that was not its own");
    cleaner.probed(&probe, map.leaf_in_memory(key()));
    assert!(cleaner.next_probe(cx, groups, &Jobs::default()).is_none());
    assert_eq!(stage(cleaner), Some((0, 1)), "it reads the block that is live");
}

/// What was written into a sealed segment, as its summary says.
fn contents_of(rig: &mut Rig, segment: u32) -> Contents {
    let blocks = tiny().segment_blocks;
    let end = cx(rig).segments().address(segment, blocks - 1);
    let footer = footer_blocks(&rig.disk.read(Segments::offset(end), BLOCK_SIZE), blocks).expect("it is sealed");
    let at = cx(rig).segments().address(segment, blocks - footer);
    let summary = rig.disk.read(Segments::offset(at), footer as usize * BLOCK_SIZE);
    Summary::decode(&summary, cx(rig).identity()).expect("it was written").contents()
}

/// The saved map says that no blocks of the victim have a merged owner. True: the map is asked what is live.
fn no_merged_owners_listed(rig: &mut Rig, victim: VictimId) -> bool {
    let (cx, _, map, cleaner) = rig.store.parts().0.parts();
    cleaner.merged_owners_listed(cx, map.merged_owners(), &Jobs::default(), victim, Ok(Vec::new()))
}

/// The same for what the saved map says of merged owners: it may have been saved since.
#[test]
fn merged_owners_that_were_listed_for_an_earlier_victim_are_not_a_later_ones() {
    let (mut rig, from) = with_a_move_that_waits();
    let segment = cx(&mut rig).segments().segment_of(from);
    let generation = cx(&mut rig).segments().get(segment).generation;
    let (first, _) = asks_about(&mut rig, segment, generation, from);
    let (second, _) = asks_about(&mut rig, segment, generation, from);
    let contents = contents_of(&mut rig, segment);
    cleaner(&mut rig).victim.as_mut().expect("it has begun").stage = Stage::MergedOwners(contents);
    assert!(!no_merged_owners_listed(&mut rig, first));
    assert!(no_merged_owners_listed(&mut rig, second));
}

/// Their lookup does not wait for a checkpoint that is being saved, and what that saves leaves memory when it is.
#[test]
fn merged_owners_are_listed_again_when_a_checkpoint_was_saved_meanwhile() {
    let (mut rig, from) = with_a_move_that_waits();
    let segment = cx(&mut rig).segments().segment_of(from);
    let generation = cx(&mut rig).segments().get(segment).generation;
    let (victim, _) = asks_about(&mut rig, segment, generation, from);
    let contents = contents_of(&mut rig, segment);
    {
        let (cx, _, _, cleaner) = rig.store.parts().0.parts();
        cleaner.look_up_owners(cx, contents);
    }
    rig.take_effects();
    let asked = |rig: &Rig| rig.map_waiting.iter().filter(|effect| effect.is_lookup()).count();
    assert_eq!(asked(&rig), 1);
    let (_, _, map, _) = rig.store.parts().0.parts();
    map.note_owner(&MergedOwner { segment, layer: LayerId(LAYER.0 + 1), owner: LAYER });
    rig.store.begin_checkpoint(|_| None);
    rig.take_effects();
    let checkpoint = rig.map_waiting.iter().position(|effect| matches!(effect, Effect::Checkpoint { .. }));
    rig.finish_map(checkpoint.expect("it was asked for"));
    assert!(!no_merged_owners_listed(&mut rig, victim));
    rig.take_effects();
    assert_eq!(asked(&rig), 2, "they are asked for once more");
    assert!(no_merged_owners_listed(&mut rig, victim));
}

/// A write is committed while its blocks are on their way to another place, where a replay finds them. A leaf on top,
/// which has the first place, is not saved without the leaf that owns the blocks; even where that leaf alone would give
/// a segment back.
#[test]
fn a_leaf_that_inherits_a_write_is_not_saved_before_the_leaf_that_owns_the_blocks() {
    let mut rig = Rig::format(&tiny());
    // Replay begins early, and can't begin later: a write of another group is not committed.
    let other = rig.next_write(2, LAYER.0, 1, 0, filled(9, 1), 1);
    rig.store.append(1, other);
    for value in 0..4 {
        rig.write(3, LAYER.0, 2, 0, filled(value, 1), 1);
        assert!(seal_segment(&mut rig));
    }
    rig.store.start_epoch(1, PG, epoch(1), sequence(0));
    rig.write(PG.0, LAYER.0, CHUNK, BLOCK.0 + 2, filled(8, 1), 1);
    let write = rig.next_write(PG.0, LAYER.0, CHUNK, BLOCK.0, filled(1, 1), 1);
    let last = write.header.sequence;
    rig.store.append(1, write);
    rig.settle();
    assert!(seal_segment(&mut rig));
    rig.settle();
    let (_, groups, ..) = rig.store.parts().0.parts();
    let pending = groups.get_mut(PG).find(last).expect("nobody has committed it").clone();
    let from = pending.written.and_then(|written| written.place.payload).expect("it has blocks");
    let checksums = pending.checksums.expect("it has blocks");
    let bytes = rig.disk.read(Segments::offset(from), BLOCK_SIZE);
    let segment = cx(&mut rig).segments().segment_of(from);
    let runs = vec![(key(), BLOCK, from, checksums, Some((pending.info, pending.id)))];
    has_read(&mut rig, &VictimRead { victim: VictimId::default(), segment, address: from, runs }, &bytes);
    cleaner(&mut rig).pace.grant(100.0);
    rig.store.pump();
    rig.take_effects();
    assert_eq!((cleaner(&mut rig).queue().len(), rig.disk.waiting.len()), (0, 1), "it is being moved");
    rig.store.commit(PG, last);
    assert_eq!(address(&mut rig), from);
    rig.settle();
    let top = LeafKey { layer: LayerId(11), ..key() };
    rig.store.set_parent(top.layer, LAYER);
    rig.write(PG.0, top.layer.0, CHUNK, BLOCK.0 + 1, filled(2, 1), 1);
    rig.settle_map();
    assert!(seal_segment(&mut rig));
    rig.write(PG.0, top.layer.0, CHUNK, BLOCK.0 + 1, filled(3, 1), 1);
    rig.settle_map();
    let (cx, _, map, _) = rig.store.parts().0.parts();
    let emptied = |segment: u32| cx.segments().get(segment).live == 0;
    assert!(map.unsaved().any(|slot| slot.key == top && slot.delta.iter().any(|(s, n)| *n < 0 && emptied(*s))));
    rig.store.begin_checkpoint(|_| None);
    rig.take_effects();
    rig.finish_map(0);
    assert!(rig.map.leaves().any(|(key, _)| key == top), "it gives a segment back");
    let (disk, map) = rig.crash(|_, _| false);
    let mut rig = Rig::open_with(&tiny(), disk, map, |store| store.set_parent(top.layer, LAYER)).expect("it opens");
    rig.settle();
    rig.check_accounts();
    assert_eq!(rig.read(PG.0, top.layer.0, CHUNK, BLOCK.0, 1).as_deref(), Ok(&bytes_of(&filled(1, 1), 1)[..]));
}
