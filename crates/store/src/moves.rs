//! The moves of garbage collection between the read of a block and its new place in the log.
//!
//! A block that is to be moved is recognised by its address, when its move is durable and again at replay. So an
//! address must not be given to another block while a move from it waits: once nothing in a segment is needed, the
//! moves out of it are in vain, and are dropped before it becomes free. At replay it is the leaf that knows: it has
//! seen all moves that were in the log before the write that now has the address (`Store::apply_write`).

use crate::collect::{CollectRead, Collector};
use crate::log::{Item, Move, Queued};
use crate::reads::first_bad;
use crate::segments::State;
use crate::cx::Io;
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, BlockIndex, BlockRange, LayerId};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// A segment with something that can't be moved is left alone for this time.
pub(crate) const ALONE_PAUSE: Duration = Duration::from_secs(600);

impl Store {
    /// Queues what was read, if it is what was written.
    pub(crate) fn queue_moves(&mut self, read: &CollectRead, bytes: &Bytes) {
        // All of it may have been overwritten since it was asked for.
        let needed = self.cx.segments().get(read.segment).state == State::Sealed;
        for (key, first, address, checksums, prepared) in &read.runs {
            let from = (address - read.address) as usize * BLOCK_SIZE;
            let bytes = bytes.slice(from..from + checksums.len() * BLOCK_SIZE);
            if !needed {
                self.collector.blocks_in_flight -= checksums.len() as u32;
                continue;
            }
            if let Some((info, write)) = *prepared {
                if first_bad(&bytes, checksums).is_some() {
                    self.leave_alone(read.segment, checksums.len() as u32);
                    continue;
                }
                let item = Item::WriteAgain { info, id: write, bytes };
                let id = self.cx.new_id();
                self.log.gc_queue.push_back(Queued { token: None, id, item });
                continue;
            }
            let moved = Move {
                pg: key.pg,
                range: BlockRange { layer: key.layer, chunk: key.chunk, first: *first, count: checksums.len() as u16 },
                old: *address,
                bytes,
                checksums: checksums.clone(),
            };
            self.queue_good(read.segment, moved);
        }
    }

    /// Queues a move without the blocks that are not what was written: those must stay recognisable as bad, and wait to
    /// be overwritten.
    fn queue_good(&mut self, segment: u32, moved: Move) {
        let mut rest = Some(moved);
        while let Some(mut good) = rest.take() {
            if let Some(bad) = first_bad(&good.bytes, &good.checksums) {
                let from_bad = split_off(&mut good, bad as u16);
                rest = from_bad.and_then(|mut from_bad| split_off(&mut from_bad, 1));
                self.leave_alone(segment, 1);
            }
            if good.range.count > 0 {
                let id = self.cx.new_id();
                self.log.gc_queue.push_back(Queued { token: None, id, item: Item::Relocate(good) });
            }
        }
    }

    /// Blocks of `segment`, so many, can't be moved: another try is worth while when they may have been mended.
    fn leave_alone(&mut self, segment: u32, blocks: u32) {
        self.cx.counters().checksum_errors += 1;
        self.collector.blocks_in_flight -= blocks;
        self.cx.segments_mut().get_mut(segment).alone_until = self.cx.now() + ALONE_PAUSE;
    }

    /// Nothing is moved under the name of `layer` any more: all it had was given up, or is another's. A record that
    /// names a layer must not come after its end, because a replay would not know any more who inherits from it.
    pub(crate) fn forget_moves(&mut self, layer: LayerId) {
        drop_moves(&mut self.log.gc_queue, &mut self.collector, |moved| moved.range.layer == layer);
        let mut dropped = 0;
        let reading = self.collector.victim_segment();
        for io in self.cx.under_way_mut() {
            if let Io::Collect(read) = io {
                // Those of a victim that was put off are not counted any more.
                let counts = reading == Some(read.segment);
                read.runs.retain(|(key, _, _, checksums, prepared)| {
                    let stays = key.layer != layer || prepared.is_some();
                    dropped += if stays || !counts { 0 } else { checksums.len() as u32 };
                    stays
                });
            }
        }
        self.collector.blocks_in_flight -= dropped;
        self.collector.forget_layer(layer);
    }

    /// The segments `freeing` hold nothing any more that is needed, and will be written anew.
    pub(crate) fn forget_moves_from(&mut self, freeing: &[u32]) {
        let segments = self.cx.segments();
        drop_moves(&mut self.log.gc_queue, &mut self.collector, |moved| {
            freeing.contains(&segments.segment_of(moved.old))
        });
    }

    /// Cuts a move that waits in two, of which the first has `blocks` blocks.
    pub(crate) fn cut_move(&mut self, index: usize, blocks: u16) {
        let Some(Item::Relocate(moved)) = self.log.gc_queue.get_mut(index).map(|queued| &mut queued.item) else {
            return;
        };
        if let Some(rest) = split_off(moved, blocks) {
            let id = self.cx.new_id();
            self.log.gc_queue.insert(index + 1, Queued { token: None, id, item: Item::Relocate(rest) });
        }
    }

    /// A move that no batch has taken is out of `segment`.
    pub(crate) fn move_waits_from(&self, segment: u32) -> bool {
        self.log.gc_queue.iter().any(
            |queued| matches!(&queued.item, Item::Relocate(moved) if self.cx.segments().segment_of(moved.old) == segment),
        )
    }
}

/// Leaves the first `blocks` blocks in the move, and gives the others, if there are any.
fn split_off(moved: &mut Move, blocks: u16) -> Option<Move> {
    let BlockRange { first, count, .. } = moved.range;
    let rest = Move {
        range: BlockRange { first: BlockIndex(first.0 + blocks), count: count - blocks, ..moved.range },
        old: moved.old + u32::from(blocks),
        bytes: moved.bytes.split_off(usize::from(blocks) * BLOCK_SIZE),
        checksums: moved.checksums[usize::from(blocks)..].into(),
        ..*moved
    };
    moved.range.count = blocks;
    moved.checksums = moved.checksums[..usize::from(blocks)].into();
    (rest.range.count > 0).then_some(rest)
}

/// Drops moves that no batch has taken.
fn drop_moves(queue: &mut VecDeque<Queued>, collector: &mut Collector, gone: impl Fn(&Move) -> bool) {
    let mut dropped = 0;
    queue.retain(|queued| match &queued.item {
        Item::Relocate(moved) if gone(moved) => {
            dropped += u32::from(moved.range.count);
            false
        }
        _ => true,
    });
    collector.blocks_in_flight -= dropped;
}
