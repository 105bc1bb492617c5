//! The moves of live blocks between their read and their new place in the log.
//!
//! A block that is to be moved is recognised by its address, when its move is durable and again at replay. So an
//! address must not be given to another block while a move from it waits: once nothing in a segment is needed, the
//! moves out of that segment are in vain, and are dropped before the segment becomes free. At replay the leaf knows: it
//! has seen all moves that were in the log before the write that now has the address (`map/apply.rs`).

use crate::cleaner::apart::left;
use crate::cleaner::victim::{LiveRunOf, VictimRead};
use crate::cx::{Io, StoreCx, VictimId};
use crate::effect::{Effect, IoId};
use crate::log::{Item, Move, Queued};
use crate::read::first_bad;
use crate::segments::{Segments, State};
use azekura_base::{BLOCK_SIZE, BlockIndex, BlockRange, LayerId};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A segment with something that can't be moved is left alone for this time (0015).
pub(super) const ALONE_PAUSE: Duration = Duration::from_secs(600);

/// Blocks that are read, and moves that wait for a batch.
#[derive(Debug, Default)]
pub(super) struct Mover {
    /// Moves that go into the log, oldest first.
    queue: VecDeque<Queued>,
    /// Moves that go into a segment of their own.
    apart: VecDeque<Move>,
    /// Reads in flight.
    reads: BTreeMap<IoId, VictimRead>,
    /// Blocks being read or queued.
    blocks: u32,
}

impl Mover {
    pub fn queue(&self) -> &VecDeque<Queued> {
        &self.queue
    }

    /// Blocks being read or queued.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Blocks that wait for a batch.
    pub fn queued_blocks(&self) -> u32 {
        self.queue.iter().map(|queued| queued.item.payload_blocks()).sum::<u32>() + self.apart_blocks()
    }

    /// Those of them that go into a segment of their own.
    pub fn apart_blocks(&self) -> u32 {
        self.apart.iter().map(|moved| u32::from(moved.range.count)).sum()
    }

    /// Moves that go into a segment of their own.
    pub fn apart(&self) -> &VecDeque<Move> {
        &self.apart
    }

    /// Takes the first of them, of which only so many blocks.
    pub fn pop_apart(&mut self, blocks: u16) -> Option<Move> {
        let rest = split_off(self.apart.front_mut()?, blocks);
        let moved = self.apart.pop_front()?;
        rest.into_iter().for_each(|rest| self.apart.push_front(rest));
        self.blocks -= u32::from(moved.range.count);
        Some(moved)
    }

    /// Moves go into segments of their own, or into the log as well. Writes that are not committed stay in the
    /// log: most of them will be overwritten soon, as what clients write.
    pub fn go_apart(&mut self, cx: &mut StoreCx, apart: bool) {
        if !apart {
            for moved in self.apart.drain(..) {
                let id = cx.new_id();
                self.queue.push_back(Queued { token: None, id, item: Item::Relocate(moved) });
            }
        } else if self.queue.iter().any(|queued| matches!(queued.item, Item::Relocate(_))) {
            for queued in std::mem::take(&mut self.queue) {
                match queued.item {
                    Item::Relocate(moved) => self.apart.push_back(moved),
                    item => self.queue.push_back(Queued { item, ..queued }),
                }
            }
        }
    }

    /// Takes the first move into a batch.
    pub fn pop(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        self.blocks -= queued.item.payload_blocks();
        Some(queued)
    }

    /// What is being read is of a victim that was put off: the read does not count any more.
    pub fn put_off(&mut self) {
        self.blocks = self.queued_blocks();
    }

    /// Reads something of a segment that is being emptied.
    pub fn read(&mut self, cx: &mut StoreCx, read: VictimRead, blocks: u32) {
        cx.segments_mut().read_begins(read.segment);
        let offset = Segments::offset(read.address);
        let io = cx.new_io(Io::Clean);
        self.blocks += blocks_of(&read.runs);
        self.reads.insert(io, read);
        cx.ask(Effect::Read { io, offset, len: blocks as usize * BLOCK_SIZE });
    }

    /// As if it had asked for this.
    #[cfg(test)]
    pub fn reads_blocks_of(&mut self, read: &VictimRead) {
        self.blocks += blocks_of(&read.runs);
    }

    /// A read has ended.
    pub fn take_read(&mut self, cx: &mut StoreCx, io: IoId) -> VictimRead {
        let read = self.reads.remove(&io).expect("a read ends once");
        cx.segments_mut().read_ends(read.segment);
        read
    }

    /// The device did not give these blocks.
    pub fn not_read(&mut self, read: &VictimRead) {
        self.blocks -= blocks_of(&read.runs);
    }

    /// Queues what was read, if it is what was written.
    pub fn add(&mut self, cx: &mut StoreCx, read: &VictimRead, bytes: &Bytes) {
        // All of it may have been overwritten since it was asked for.
        let needed = cx.segments().get(read.segment).state == State::Sealed;
        for (key, first, address, checksums, prepared) in &read.runs {
            let from = (address - read.address) as usize * BLOCK_SIZE;
            let bytes = bytes.slice(from..from + checksums.len() * BLOCK_SIZE);
            if !needed {
                self.blocks -= checksums.len() as u32;
                continue;
            }
            if let Some((info, write)) = *prepared {
                if first_bad(&bytes, checksums).is_some() {
                    self.leave_alone(cx, read.segment, checksums.len() as u32);
                    continue;
                }
                let item = Item::WriteAgain { info, id: write, bytes, checksums: checksums.clone() };
                let id = cx.new_id();
                self.queue.push_back(Queued { token: None, id, item });
                continue;
            }
            let moved = Move {
                pg: key.pg,
                range: BlockRange { layer: key.layer, chunk: key.chunk, first: *first, count: checksums.len() as u16 },
                old: *address,
                bytes,
                checksums: checksums.clone(),
            };
            self.add_good(cx, read.segment, moved);
        }
    }

    /// Queues a move of blocks that are here and are what was written.
    pub fn add_read(&mut self, cx: &mut StoreCx, moved: Move) {
        let (blocks, segment) = (u32::from(moved.range.count), cx.segments().segment_of(moved.old));
        let id = cx.new_id();
        self.blocks += blocks;
        cx.segments_mut().leave(segment, blocks);
        self.queue.push_back(Queued { token: None, id, item: Item::Relocate(moved) });
    }

    /// Queues a move without the blocks that are not what was written: those must stay recognisable as bad, and wait to
    /// be overwritten.
    fn add_good(&mut self, cx: &mut StoreCx, segment: u32, moved: Move) {
        let mut rest = Some(moved);
        while let Some(mut good) = rest.take() {
            if let Some(bad) = first_bad(&good.bytes, &good.checksums) {
                let from_bad = split_off(&mut good, bad as u16);
                rest = from_bad.and_then(|mut from_bad| split_off(&mut from_bad, 1));
                self.leave_alone(cx, segment, 1);
            }
            if good.range.count > 0 {
                let id = cx.new_id();
                cx.segments_mut().leave(segment, u32::from(good.range.count));
                self.queue.push_back(Queued { token: None, id, item: Item::Relocate(good) });
            }
        }
    }

    /// Blocks of `segment`, so many, can't be moved: another try is worth while when they may have been mended.
    fn leave_alone(&mut self, cx: &mut StoreCx, segment: u32, blocks: u32) {
        cx.counters().checksum_errors += 1;
        self.blocks -= blocks;
        let until = cx.now() + ALONE_PAUSE;
        cx.segments_mut().leave_alone(segment, until);
    }

    /// Drops what was read or waits of `layer`. Reads of other victims than `victim` are not counted any more.
    pub fn forget_layer(&mut self, cx: &mut StoreCx, layer: LayerId, victim: Option<VictimId>) {
        self.drop_moves(cx, |_, moved| moved.range.layer == layer);
        let mut dropped = 0;
        for read in self.reads.values_mut() {
            let counts = victim == Some(read.victim);
            read.runs.retain(|(key, _, _, checksums, prepared)| {
                let stays = key.layer != layer || prepared.is_some();
                dropped += if stays || !counts { 0 } else { checksums.len() as u32 };
                stays
            });
        }
        self.blocks -= dropped;
    }

    /// The segments `freeing` hold nothing any more that is needed, and will be written anew.
    pub fn forget_from(&mut self, cx: &mut StoreCx, freeing: &[u32]) {
        self.drop_moves(cx, |segments, moved| freeing.contains(&segments.segment_of(moved.old)));
    }

    /// Drops moves that no batch has taken.
    fn drop_moves(&mut self, cx: &mut StoreCx, gone: impl Fn(&Segments, &Move) -> bool) {
        let mut dropped = 0;
        let mut stays = |moved: &Move| {
            let gone = gone(cx.segments(), moved);
            if gone {
                dropped += u32::from(moved.range.count);
                left(cx, moved);
            }
            !gone
        };
        self.queue.retain(|queued| match &queued.item {
            Item::Relocate(moved) => stays(moved),
            _ => true,
        });
        self.apart.retain(stays);
        self.blocks -= dropped;
    }

    /// Cuts a move that waits in two, of which the first has `blocks` blocks.
    pub fn cut(&mut self, cx: &mut StoreCx, index: usize, blocks: u16) {
        let Some(Item::Relocate(moved)) = self.queue.get_mut(index).map(|queued| &mut queued.item) else {
            return;
        };
        if let Some(rest) = split_off(moved, blocks) {
            let id = cx.new_id();
            self.queue.insert(index + 1, Queued { token: None, id, item: Item::Relocate(rest) });
        }
    }

    /// A move that no batch has taken is out of `segment`.
    pub fn waits_from(&self, segments: &Segments, segment: u32) -> bool {
        let out_of = |moved: &Move| segments.segment_of(moved.old) == segment;
        self.apart.iter().any(out_of)
            || self.queue.iter().any(|queued| matches!(&queued.item, Item::Relocate(moved) if out_of(moved)))
    }
}

fn blocks_of(runs: &[LiveRunOf]) -> u32 {
    runs.iter().map(|(.., checksums, _)| checksums.len() as u32).sum()
}

/// Leaves the first `blocks` blocks in the move, and gives the others, if there are any.
fn split_off(moved: &mut Move, blocks: u16) -> Option<Move> {
    let BlockRange { first, count, .. } = moved.range;
    let rest = Move {
        checksums: moved.checksums.split_off(usize::from(blocks)),
        range: BlockRange { first: BlockIndex(first.0 + blocks), count: count - blocks, ..moved.range },
        old: moved.old + u32::from(blocks),
        bytes: moved.bytes.split_off(usize::from(blocks) * BLOCK_SIZE),
        ..*moved
    };
    moved.range.count = blocks;
    (rest.range.count > 0).then_some(rest)
}
