//! Moves into segments of their own, at moments that a history seldom meets.

use super::*;
use crate::cleaner::headers::Headers;
use crate::log::format::{Batch, BatchHeader};
use crate::segments::Segment;
use azekura_store::{Done, Initialisation, Inspector, IoId, MapDamage};

/// A write that is on its way.
type Held = (IoId, u64, Vec<u8>);

/// What is to be written, and stays on its way until it [`lands`].
fn held(rig: &mut Rig) -> Held {
    rig.store.pump();
    rig.take_effects();
    assert_eq!(rig.disk.waiting.len(), 1, "there is one write to be done");
    rig.disk.waiting.remove(0)
}

fn lands(rig: &mut Rig, (io, offset, bytes): Held) {
    rig.disk.write(offset, &bytes);
    rig.store.done(io, Done::Written(Ok(())));
    rig.store.pump();
    rig.take_effects();
}

/// The move that waits is on its way. Gives the write, and the segment to which it goes.
fn with_a_move_on_its_way(rig: &mut Rig) -> (Held, u32) {
    cleaner(rig).pace.grant(100.0);
    let held = held(rig);
    let segment = segment_at(rig, (held.1 / BLOCK_SIZE as u64) as u32);
    assert!(segment_of(rig, segment).apart);
    (held, segment)
}

/// A batch of clients' records is on its way.
fn with_a_batch_on_its_way(rig: &mut Rig) -> Held {
    let write = rig.next_write(2, LAYER.0, CHUNK + 7, 0, filled(9, 1), 1);
    rig.store.append(1, write);
    held(rig)
}

fn segment_at(rig: &mut Rig, address: u32) -> u32 {
    cx(rig).segments().segment_of(address)
}

fn segment_of(rig: &mut Rig, segment: u32) -> Segment {
    *cx(rig).segments().get(segment)
}

/// The segment of moved blocks that is open is full.
fn close(rig: &mut Rig) {
    let (cx, _, _, cleaner) = rig.store.parts().0.parts();
    cleaner.apart.close(cx);
}

/// The log goes on in the next segment.
fn next_segment(rig: &mut Rig) {
    assert!(seal_segment(rig));
    rig.settle();
}

/// The segment that the block is moved out of is given to somebody else.
#[test]
fn a_move_on_its_way_out_of_a_segment_that_becomes_free_is_dropped() {
    let (mut rig, from) = with_a_move_that_waits();
    let (moves, _) = with_a_move_on_its_way(&mut rig);
    write_block(&mut rig, 2);
    rig.checkpoint();
    let segment = segment_at(&mut rig, from);
    assert_eq!(segment_of(&mut rig, segment).state, State::Free);
    roll_to(&mut rig, segment);
    write_block(&mut rig, 3);
    assert_eq!(address(&mut rig), from, "the same place as at first");
    lands(&mut rig, moves);
    rig.settle();
    let read = rig.read(PG.0, LAYER.0, CHUNK, BLOCK.0, 1);
    assert_eq!(read.as_deref(), Ok(&bytes_of(&filled(3, 1), 1)[..]));
    assert_eq!(address(&mut rig), from);
    rig.check_accounts();
}

/// The same when the blocks are durable where they were moved to, and the log has not said so yet.
#[test]
fn a_record_of_a_move_out_of_a_segment_that_becomes_free_is_dropped() {
    let (mut rig, from) = with_a_move_that_waits();
    let (moves, to) = with_a_move_on_its_way(&mut rig);
    write_block(&mut rig, 2);
    let batch = with_a_batch_on_its_way(&mut rig);
    lands(&mut rig, moves);
    assert_eq!((cleaner(&mut rig).placed().len(), segment_of(&mut rig, to).pins), (1, 1));
    rig.checkpoint();
    let segment = segment_at(&mut rig, from);
    assert_eq!(segment_of(&mut rig, segment).state, State::Free);
    assert_eq!((cleaner(&mut rig).placed().len(), segment_of(&mut rig, to).pins), (0, 0));
    lands(&mut rig, batch);
    rig.settle();
    rig.check_accounts();
}

/// Records that say where blocks were moved to.
fn records_of_moves(rig: &Rig) -> usize {
    let device = Inspector::open(&rig.disk).expect("it is formatted");
    let segments = device.segments().map(|info| info.expect("it can be read"));
    let batches = segments.flat_map(|info| info.batches);
    batches.flat_map(|batch| batch.records).filter(|record| record.kind == "moved").count()
}

/// A replay would not know who inherits the blocks of a layer that is named behind its end.
#[test]
fn no_record_says_that_blocks_of_a_layer_were_moved_that_has_ended() {
    let (mut rig, _) = with_a_move_that_waits();
    let (moves, to) = with_a_move_on_its_way(&mut rig);
    rig.store.drop_layer(7, LAYER);
    rig.settle();
    lands(&mut rig, moves);
    rig.settle();
    assert_eq!((records_of_moves(&rig), segment_of(&mut rig, to).pins), (0, 0));
    rig.check_accounts();
}

/// The same when the blocks are durable where they were moved to, and the log has not said so yet.
#[test]
fn a_record_of_a_layers_move_that_waits_is_dropped_when_the_layer_ends() {
    let (mut rig, _) = with_a_move_that_waits();
    let (moves, to) = with_a_move_on_its_way(&mut rig);
    rig.store.drop_layer(7, LAYER);
    let end = held(&mut rig);
    let batch = with_a_batch_on_its_way(&mut rig);
    lands(&mut rig, moves);
    lands(&mut rig, end);
    assert_eq!(cleaner(&mut rig).placed().len(), 1, "the saved map is asked for leaves of the layer");
    rig.settle();
    lands(&mut rig, batch);
    rig.settle();
    assert_eq!((records_of_moves(&rig), segment_of(&mut rig, to).pins), (0, 0));
    rig.check_accounts();
}

/// The write may land at any time: whoever has the segment then would lose blocks.
#[test]
fn a_move_that_is_dropped_keeps_its_segment_until_its_write_has_landed() {
    let (mut rig, from) = with_a_move_that_waits();
    let (moves, to) = with_a_move_on_its_way(&mut rig);
    close(&mut rig);
    write_block(&mut rig, 2);
    rig.checkpoint();
    let segment = segment_at(&mut rig, from);
    let (cx_, _, _, cleaner_) = rig.store.parts().0.parts();
    assert!(!cleaner_.has_move_from(cx_, segment), "it is dropped");
    next_segment(&mut rig);
    rig.checkpoint();
    assert_ne!(segment_of(&mut rig, to).state, State::Free);
    lands(&mut rig, moves);
    rig.checkpoint();
    assert_eq!(segment_of(&mut rig, to).state, State::Free);
    rig.check_accounts();
}

/// A segment of moved blocks has the generation in which the log went on, and comes before the log's own.
#[test]
fn the_end_of_the_log_is_looked_for_beside_segments_of_moved_blocks() {
    let (mut rig, _) = with_a_move_that_waits();
    rig.checkpoint();
    rig.write(PG.0, LAYER.0, CHUNK + 1, 0, filled(4, 1), 1);
    let damaged = cx(&mut rig).log().open_segment().0.segment;
    assert!(seal_segment(&mut rig));
    let summary = held(&mut rig);
    let (moves, to) = with_a_move_on_its_way(&mut rig);
    let head = cx(&mut rig).log().open_segment().0;
    assert_eq!(segment_of(&mut rig, to).generation, head.generation);
    assert!(to < head.segment, "it is looked at first");
    // The summary is not known to be durable to the checkpoint, which knows of both segments.
    rig.store.begin_checkpoint(|_| None);
    rig.take_effects();
    rig.finish_map(0);
    lands(&mut rig, summary);
    lands(&mut rig, moves);
    rig.settle();
    write_block(&mut rig, 5);
    let (mut disk, map) = rig.crash(|_, _| false);
    let footer = (crate::options::SUPERBLOCK_AREA_BLOCKS + (damaged + 1) * tiny().segment_blocks) as usize * BLOCK_SIZE;
    disk.image[footer - 1] ^= 1;
    let error = Rig::open(&tiny(), disk, map).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains(&format!("the log went on in segment {}", head.segment)), "{error}");
}

/// A header that is on its way can't be read yet: the segment would be left alone for long.
#[test]
fn a_segment_to_which_blocks_are_being_moved_is_no_victim() {
    let mut rig = with_blocks_to_move(Rig::format(&tiny()));
    queue_move(&mut rig, BLOCK);
    cleaner(&mut rig).pace.grant(100.0);
    rig.settle();
    queue_move(&mut rig, OTHER);
    let (moves, to) = with_a_move_on_its_way(&mut rig);
    close(&mut rig);
    assert_eq!((segment_of(&mut rig, to).live, segment_of(&mut rig, to).pins), (1, 1));
    assert_ne!(best_victim(&mut rig), Some(to));
    lands(&mut rig, moves);
    rig.settle();
    assert_eq!(best_victim(&mut rig), Some(to));
}

/// Another block of the chunk, in another header than [`BLOCK`] once both were moved.
const OTHER: BlockIndex = BlockIndex(20);

/// Two blocks in a segment of the log that is sealed.
fn with_blocks_to_move(mut rig: Rig) -> Rig {
    rig.store.start_epoch(1, PG, epoch(rig.store.group(PG).epoch.0 + 1), rig.store.group(PG).committed);
    rig.settle();
    next_segment(&mut rig);
    write_block(&mut rig, 1);
    rig.write(PG.0, LAYER.0, CHUNK, OTHER.0, filled(2, 1), 1);
    next_segment(&mut rig);
    rig
}

/// The same, and both were moved to a segment which is full. Gives the segment, and where in it the headers are.
fn with_moved_blocks(rig: Rig) -> (Rig, u32, [u32; 2]) {
    let mut rig = with_blocks_to_move(rig);
    for block in [BLOCK, OTHER] {
        queue_move(&mut rig, block);
        cleaner(&mut rig).pace.grant(100.0);
        rig.settle();
    }
    let at = [BLOCK, OTHER].map(|block| address_of(&mut rig, block));
    let segment = segment_at(&mut rig, at[0]);
    let headers = at.map(|address| address - 1 - cx(&mut rig).segments().address(segment, 0));
    assert!(segment_of(&mut rig, segment).apart && headers == [0, 2], "{segment} {headers:?}");
    close(&mut rig);
    (rig, segment, headers)
}

/// A device with a block that no leaf reaches any more, because the leaf is damaged: a segment counts it as live.
fn with_a_ghost() -> Rig {
    let (layer, chunk) = (LayerId(LAYER.0 + 1), CHUNK + 1);
    let mut rig = Rig::format(&tiny());
    rig.write(PG.0, layer.0, chunk, 0, filled(9, 1), 1);
    rig.checkpoint();
    let (disk, mut map) = rig.crash(|_, _| true);
    assert!(map.damage(layer, ChunkIndex(chunk), MapDamage::Leaf));
    let mut rig = Rig::open(&tiny(), disk, map).expect("it opens");
    assert!(rig.read(PG.0, layer.0, chunk, 0, 1).is_err());
    rig
}

/// A block behind a damaged header looks like one that no leaf has. It must not be taken for one.
#[test]
fn a_block_behind_a_damaged_header_stays_live() {
    for is_restarted in [false, true] {
        let (mut rig, segment, headers) = with_moved_blocks(with_a_ghost());
        // What the whole header tells of is not live.
        write_block(&mut rig, 3);
        rig.checkpoint();
        let header = Segments::offset(cx(&mut rig).segments().address(segment, headers[1])) as usize;
        rig.disk.image[header + 200] ^= 1;
        if is_restarted {
            let (disk, map) = rig.crash(|_, _| false);
            rig = Rig::open(&tiny(), disk, map).expect("it opens");
        }
        assert_eq!((segment_of(&mut rig, segment).live, cx(&mut rig).segments().ghosts()), (1, 1));
        let generation = segment_of(&mut rig, segment).generation;
        let (cx_, _, _, cleaner_) = rig.store.parts().0.parts();
        cleaner_.begin(segment, generation, true);
        cleaner_.read_headers(cx_);
        rig.settle();
        assert!(cleaner(&mut rig).victim.is_none(), "all that can be read of it has been");
        assert_eq!(segment_of(&mut rig, segment).live, 1, "restarted: {is_restarted}");
        let read = rig.read(PG.0, LAYER.0, CHUNK, OTHER.0, 1);
        assert_eq!(read.as_deref(), Ok(&bytes_of(&filled(2, 1), 1)[..]));
        rig.check_accounts();
    }
}

/// What is left of an earlier use of the segment, or of a life that a crash has ended, is not part of it.
#[test]
fn a_walk_of_headers_ends_where_the_next_one_does_not_follow() {
    let (mut rig, segment, headers) = with_moved_blocks(Rig::format(&tiny()));
    let [first, second] = headers.map(|block| {
        let offset = Segments::offset(cx(&mut rig).segments().address(segment, block));
        rig.disk.read(offset, BLOCK_SIZE)
    });
    let (identity, options) = (*cx(&mut rig).identity(), tiny());
    let found = |second: &Bytes| {
        let mut walk = Headers::new(None);
        while let Some((block, _)) = walk.next(&options) {
            let bytes = [(headers[0], &first), (headers[1], second)].into_iter().find(|(at, _)| *at == block);
            let nothing = Bytes::from(vec![0; BLOCK_SIZE]);
            walk.read(&identity, &options, (segment, block), bytes.map_or(&nothing, |(_, bytes)| bytes));
        }
        walk.take().flatten().map_or(0, |contents| contents.len())
    };
    assert_eq!(found(&second), 2);
    let changes: [fn(&mut BatchHeader); 4] = [
        |header| header.previous ^= 1,
        |header| header.incarnation -= 1,
        |header| header.generation -= 1,
        |header| header.sequence += 1,
    ];
    for change in changes {
        let Batch { mut header, entries, .. } = Batch::decode(&second, &identity).expect("it was written");
        change(&mut header);
        assert_eq!(found(&header.encode(entries)), 1, "{header:?}");
    }
}

/// The last segments are for clients, and for moves into the log: so the device holds what it promises.
#[test]
fn six_free_segments_are_left_to_the_log() {
    for (free, apart) in [(6, 0), (7, 1)] {
        let (mut rig, _) = with_a_move_that_waits();
        let used = tiny().segments - cx(&mut rig).segments().free();
        rig.store.segments_ready(used + free, Initialisation::Halted);
        assert_eq!(cx(&mut rig).segments().free(), free);
        cleaner(&mut rig).pace.grant(100.0);
        let moves = held(&mut rig);
        lands(&mut rig, moves);
        let statistics = rig.store.statistics();
        assert_eq!((statistics.moved_blocks, statistics.moved_apart_blocks), (1, apart), "{free} are free");
    }
}

/// A replay reads the record as long as it begins no later: the blocks must not be somebody else's then.
#[test]
fn a_segment_of_moved_blocks_is_not_free_while_a_replay_reads_their_record() {
    for is_restarted in [false, true] {
        let (mut rig, _) = with_a_move_that_waits();
        let (moves, to) = with_a_move_on_its_way(&mut rig);
        close(&mut rig);
        rig.checkpoint();
        // The log goes on, so the record comes later than the segment was opened.
        next_segment(&mut rig);
        next_segment(&mut rig);
        lands(&mut rig, moves);
        rig.settle();
        if is_restarted {
            let (disk, map) = rig.crash(|_, _| false);
            rig = Rig::open(&tiny(), disk, map).expect("it opens");
        }
        let record = cx(&mut rig).log().open_segment().0;
        assert_eq!((records_of_moves(&rig), segment_of(&mut rig, to).live), (1, 1));
        write_block(&mut rig, 2);
        cx(&mut rig).segments_mut().hold(record.segment);
        let go_on = |rig: &mut Rig| {
            next_segment(rig);
            rig.checkpoint();
            rig.checkpoint();
        };
        go_on(&mut rig);
        assert_eq!(cx(&mut rig).segments().chain()[0], record, "replay begins with the record");
        assert_eq!(segment_of(&mut rig, to).state, State::Sealed, "restarted: {is_restarted}");
        cx(&mut rig).segments_mut().release(record.segment);
        go_on(&mut rig);
        assert_eq!(segment_of(&mut rig, to).state, State::Free);
        rig.check_accounts();
    }
}

/// A crash takes the log's last segment back, and the segment that was opened for moved blocks is opened once more, in
/// a generation before its first.
#[test]
fn a_segment_of_moved_blocks_may_be_opened_again_in_an_earlier_generation() {
    let (mut rig, _) = with_a_move_that_waits();
    rig.checkpoint();
    assert!(seal_segment(&mut rig));
    let _summary = held(&mut rig);
    let (_, first) = with_a_move_on_its_way(&mut rig);
    rig.store.begin_checkpoint(|_| None);
    rig.take_effects();
    rig.finish_map(0);
    let generation = segment_of(&mut rig, first).generation;
    for is_moved in [false, true] {
        let (disk, map) = rig.crash(|_, _| false);
        rig = Rig::open(&tiny(), disk, map).expect("it opens");
        let read = rig.read(PG.0, LAYER.0, CHUNK, BLOCK.0, 1);
        assert_eq!(read.as_deref(), Ok(&bytes_of(&filled(1, 1), 1)[..]));
        rig.check_accounts();
        if !is_moved {
            queue_move(&mut rig, BLOCK);
            let (moves, again) = with_a_move_on_its_way(&mut rig);
            assert!(again == first && segment_of(&mut rig, again).generation < generation);
            lands(&mut rig, moves);
            rig.settle();
            assert_eq!(records_of_moves(&rig), 1);
        }
    }
}
