//! Moves into segments of their own, which are not in the chain of the log.
//!
//! What is moved has mostly been left alone for long, and what clients write will mostly be overwritten soon: in one
//! segment, the moved blocks would be moved again (decision 0036). So they are written to a segment that nobody walks
//! at replay. Once they are durable, a record in the log says where they are:
//!
//! ```text
//!   read ─► batch in the open segment ─► durable ─► record in the log ─► durable ─► applied to the map
//!           └────────────────────── the blocks pin their segment ──────────────────────┘
//! ```
//!
//! Batches are taken for durable in order, so the headers of all batches that a record is about can be walked. A
//! segment that is full is sealed at once; its generation rises with each of its records that is applied, so that it is
//! not free before replay begins behind them.

use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, IoId};
use crate::log::format::{BatchHeader, BatchKind, Kind, header_blocks};
use crate::log::{Item, Move, Queued};
use crate::segments::{CLEANER_SEGMENTS, Segments, ZERO_SEGMENTS};
use azekura_base::BLOCK_SIZE;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Free segments that are left alone: those that clients may not have, and one for clients.
const LEAVES: u32 = CLEANER_SEGMENTS + ZERO_SEGMENTS + 1;
/// Free segments that clients may take while moves wait that nobody needs.
const SPARE: u32 = 2;
/// No more is written while so many records, or this many times what a batch takes, wait for the log.
const PLACED_BATCHES_MAX: usize = 4;

/// The segment that is being written.
#[derive(Debug)]
struct Open {
    segment: u32,
    generation: u64,
    /// The next block to write.
    block: u32,
    /// The sequence and the checksum of the last batch.
    sequence: u64,
    previous: u32,
}

/// A batch on its way to the device.
#[derive(Debug)]
struct InFlight {
    io: IoId,
    segment: u32,
    done: bool,
    moves: Vec<(Move, u32)>,
    /// Blocks of moves that were dropped meanwhile: they pin their segment as long as the write may still land.
    dropped: u32,
}

/// Which moves a batch takes.
#[derive(Debug, Default)]
pub(super) struct ApartPlan {
    moves: usize,
    payload: u32,
    entries_bytes: usize,
}

impl ApartPlan {
    /// It takes a move of so many blocks.
    pub fn take(&mut self, blocks: u16) {
        self.moves += 1;
        self.payload += u32::from(blocks);
        self.entries_bytes += entry_bytes(u32::from(blocks));
    }

    pub fn payload(&self) -> u32 {
        self.payload
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Apart {
    open: Option<Open>,
    in_flight: VecDeque<InFlight>,
    /// Moves whose blocks are durable where they are now: records that wait for the log.
    placed: VecDeque<Queued>,
    /// Where in its segment each batch begins, for segments that were written in this life of the store.
    batches: BTreeMap<u32, Vec<u32>>,
}

impl Apart {
    /// Records that wait for the log.
    pub fn placed(&self) -> &VecDeque<Queued> {
        &self.placed
    }

    pub fn pop_placed(&mut self) -> Option<Queued> {
        self.placed.pop_front()
    }

    /// Nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.placed.is_empty()
    }

    /// A segment is open, or may be.
    pub fn is_usable(&self, cx: &StoreCx) -> bool {
        self.open.is_some() || cx.segments().free() > LEAVES
    }

    /// So many blocks will find room in segments of their own, whatever clients write meanwhile.
    pub fn has_room_for(&self, cx: &StoreCx, blocks: u32) -> bool {
        cx.segments().free() > LEAVES + SPARE + blocks.div_ceil(cx.options().segment_blocks)
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Another batch may be sent.
    pub fn may_send(&self, cx: &StoreCx) -> bool {
        cx.is_running()
            && self.in_flight.len() < cx.options().batches_in_flight_max as usize
            && self.placed.len() < cx.options().batch_records_max as usize * PLACED_BATCHES_MAX
    }

    /// Where the batches of `segment` begin, if that is known.
    pub fn batches_of(&self, segment: u32) -> Option<&Vec<u32>> {
        self.batches.get(&segment)
    }

    /// The open segment, or a new one, if there is one.
    pub fn open(&mut self, cx: &mut StoreCx) -> Option<u32> {
        if let Some(open) = &self.open {
            return Some(open.segment);
        }
        let (head, _) = cx.log().open_segment();
        let may_open = cx.segments().free() > LEAVES;
        let segment = cx.segments().last_free(head.segment).filter(|_| may_open)?;
        cx.segments_mut().open_apart(segment, head.generation);
        self.batches.insert(segment, Vec::new());
        self.open = Some(Open { segment, generation: head.generation, block: 0, sequence: 0, previous: 0 });
        Some(segment)
    }

    /// Ends the open segment.
    pub fn close(&mut self, cx: &mut StoreCx) {
        if let Some(open) = self.open.take() {
            cx.segments_mut().seal(open.segment);
        }
    }

    /// How many blocks of a move the batch has room for.
    pub fn room(&self, cx: &StoreCx, plan: &ApartPlan, count: u16) -> u16 {
        let (Some(open), options) = (&self.open, cx.options()) else { return 0 };
        if plan.moves >= options.batch_records_max as usize {
            return 0;
        }
        let bytes = |blocks: u32| plan.entries_bytes + entry_bytes(blocks);
        let fits =
            |blocks: u32| open.block + header_blocks(bytes(blocks)) + plan.payload + blocks <= options.segment_blocks;
        let batch = options.batch_blocks_max.saturating_sub(plan.payload);
        if plan.moves > 0 && u32::from(count) > batch {
            return 0;
        }
        (1..=u32::from(count)).take_while(|blocks| fits(*blocks)).last().unwrap_or(0) as u16
    }

    /// Writes these moves, which were planned, as a batch.
    pub fn write(&mut self, cx: &mut StoreCx, moves: Vec<Move>) {
        let open = self.open.as_mut().expect("a batch is planned for an open segment");
        let mut entries = Vec::new();
        let mut pieces = vec![Bytes::new()];
        for moved in &moves {
            moved.head(Kind::Relocated).write_to(&mut entries);
            moved.checksums.iter().for_each(|sum| entries.extend_from_slice(&sum.0.to_le_bytes()));
            pieces.push(moved.bytes.clone());
        }
        let blocks = moves.iter().map(|moved| u32::from(moved.range.count)).sum();
        open.sequence += 1;
        let mut header = BatchHeader {
            previous: open.previous,
            incarnation: cx.log().incarnation(),
            sequence: open.sequence,
            generation: open.generation,
            segment: open.segment,
            block: open.block,
            entries: moves.len() as u32,
            payload_blocks: blocks,
            ..BatchHeader::new(BatchKind::Moves, cx.identity())
        };
        pieces[0] = header.encode(&entries);
        self.batches.entry(open.segment).or_default().push(open.block);
        let mut address = cx.segments().address(open.segment, open.block + header.header_blocks);
        let placed = moves.into_iter().map(|moved| {
            let at = address;
            address += u32::from(moved.range.count);
            // The bytes are in the batch now.
            (Move { bytes: Bytes::new(), ..moved }, at)
        });
        let moves = placed.collect();
        let offset = Segments::offset(cx.segments().address(open.segment, open.block));
        (open.block, open.previous) = (open.block + header.blocks(), header.crc);
        cx.segments_mut().pin(header.segment, blocks);
        let io = cx.new_io(Io::Moves);
        self.in_flight.push_back(InFlight { io, segment: header.segment, done: false, moves, dropped: 0 });
        cx.counters().moved_blocks += u64::from(blocks);
        cx.counters().moved_apart_blocks += u64::from(blocks);
        cx.counters().batches += 1;
        cx.counters().log_bytes += u64::from(header.blocks()) * BLOCK_SIZE as u64;
        let durable = cx.options().flush;
        cx.ask(Effect::Write { io, offset, pieces, durable });
    }

    /// A batch has been written.
    pub fn on_written(&mut self, cx: &mut StoreCx, io: IoId) {
        if let Some(batch) = self.in_flight.iter_mut().find(|batch| batch.io == io) {
            batch.done = true;
        }
        while self.in_flight.front().is_some_and(|batch| batch.done) {
            let Some(batch) = self.in_flight.pop_front() else { return };
            cx.segments_mut().unpin(batch.segment, batch.dropped);
            for (moved, address) in batch.moves {
                let id = cx.new_id();
                self.placed.push_back(Queued { token: None, id, item: Item::Moved { moved, address } });
            }
        }
    }

    /// Drops moves of which the log says nothing yet. Their blocks stay where they were.
    pub fn drop_moves(&mut self, cx: &mut StoreCx, gone: impl Fn(&Segments, &Move) -> bool) {
        for batch in &mut self.in_flight {
            batch.moves.retain(|(moved, _)| {
                let gone = gone(cx.segments(), moved);
                if gone {
                    batch.dropped += u32::from(moved.range.count);
                    left(cx, moved);
                }
                !gone
            });
        }
        self.placed.retain(|queued| match &queued.item {
            Item::Moved { moved, address } if gone(cx.segments(), moved) => {
                let segment = cx.segments().segment_of(*address);
                cx.segments_mut().unpin(segment, u32::from(moved.range.count));
                left(cx, moved);
                false
            }
            _ => true,
        });
    }

    /// A move of which the log says nothing yet is out of `segment`.
    pub fn waits_from(&self, segments: &Segments, segment: u32) -> bool {
        let out_of = |moved: &Move| segments.segment_of(moved.old) == segment;
        self.in_flight.iter().flat_map(|batch| &batch.moves).any(|(moved, _)| out_of(moved))
            || self.placed.iter().any(|queued| matches!(&queued.item, Item::Moved { moved, .. } if out_of(moved)))
    }

    /// These segments hold nothing any more.
    pub fn forget_segments(&mut self, freeing: &[u32]) {
        freeing.iter().for_each(|segment| {
            self.batches.remove(segment);
        });
    }
}

/// Bytes of the entry of so many blocks.
fn entry_bytes(blocks: u32) -> usize {
    Kind::Relocated.head_bytes() + blocks as usize * 4
}

/// The blocks of a move stay where they are, or are there already.
pub(super) fn left(cx: &mut StoreCx, moved: &Move) {
    let segment = cx.segments().segment_of(moved.old);
    cx.segments_mut().left(segment, u32::from(moved.range.count));
}
