//! Operations on the map, and those that wait.

use crate::cleaner::Probe;
use crate::groups::Place;
use crate::hash::FixedMap;
use crate::jobs::Job;
use crate::log::Move;
use crate::map::{LeafKey, Repairs};
use azekura_base::{BlockRange, ChunkIndex, LayerId, PgId, Sequence};
use std::collections::VecDeque;

/// A chunk of a group, in whatever layer: its operations keep their order.
pub(crate) type ChunkKey = (PgId, ChunkIndex);

#[derive(Debug)]
pub(crate) enum Op {
    /// A committed write. `stamp`: all relocations up to this log position came before.
    Apply {
        pg: PgId,
        sequence: Sequence,
        stamp: u64,
    },
    Repair {
        id: u64,
    },
    Relocate {
        moved: Move,
        place: Place,
        position: u64,
    },
    Read {
        token: u64,
        pg: PgId,
        range: BlockRange,
        /// For a client: what lies scattered is put together.
        gathers: bool,
    },
    Status {
        token: u64,
        pg: PgId,
        layer: LayerId,
        chunk: ChunkIndex,
    },
    /// The cleaner asks what is live of a run of blocks.
    Probe(Probe),
    Digest {
        token: u64,
        key: LeafKey,
    },
    Measure {
        token: u64,
        key: LeafKey,
    },
    Difference {
        token: u64,
        pg: PgId,
        chunk: ChunkIndex,
    },
    /// The writes that wait for the chunk's leaf come into it.
    Settle,
    /// A job comes to the leaf.
    Job {
        key: LeafKey,
        job: Job,
    },
}

impl Op {
    /// The operation changes leaves, and must not be lost.
    pub fn is_change(&self) -> bool {
        matches!(self, Op::Apply { .. } | Op::Repair { .. } | Op::Relocate { .. } | Op::Settle | Op::Job { .. })
    }
}

/// Operations that wait, by chunk.
#[derive(Debug, Default)]
pub(crate) struct OpQueue {
    waiting: FixedMap<ChunkKey, VecDeque<Op>>,
    /// Chunks whose first operation waits for its record to be durable.
    blocked: Vec<ChunkKey>,
}

impl OpQueue {
    /// No operation waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Chunks with operations that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// An operation waits for the chunk of this leaf.
    pub fn waits_for(&self, key: &LeafKey) -> bool {
        self.waiting.contains_key(&(key.pg, key.chunk))
    }

    /// Chunks with operations that wait, in no order that means anything.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkKey> + '_ {
        self.waiting.keys().copied()
    }

    /// The operations that wait for a chunk, if there are any.
    pub fn of(&mut self, chunk: ChunkKey) -> Option<&mut VecDeque<Op>> {
        // Most of the time nothing waits at all.
        if self.waiting.is_empty() { None } else { self.waiting.get_mut(&chunk) }
    }

    /// How many operations wait that change the chunk.
    pub fn changes_of(&self, chunk: ChunkKey) -> usize {
        self.waiting.get(&chunk).map_or(0, |ops| ops.iter().filter(|op| op.is_change()).count())
    }

    /// These operations wait for the chunk from here on.
    pub fn wait(&mut self, chunk: ChunkKey, ops: VecDeque<Op>) {
        self.waiting.insert(chunk, ops);
    }

    /// Takes all that waits for a chunk.
    pub fn take(&mut self, chunk: ChunkKey) -> VecDeque<Op> {
        self.waiting.remove(&chunk).unwrap_or_default()
    }

    /// The first operation of the chunk waits for its record.
    pub fn is_blocked(&mut self, chunk: ChunkKey) {
        self.blocked.push(chunk);
    }

    pub fn take_blocked(&mut self) -> Vec<ChunkKey> {
        std::mem::take(&mut self.blocked)
    }

    /// Where an operation of log position `position` goes that may pass what waits for a record that is not durable
    /// yet: such a record may itself wait for the space that cleaning is to win. Repairs and relocations of a chunk are
    /// applied in log order, so that a leaf can say with one number which of them it has seen. `place` gives where a
    /// write is.
    pub fn index_ahead(
        &self,
        chunk: ChunkKey,
        (position, durable): (u64, u64),
        repairs: &Repairs,
        place: impl Fn(PgId, Sequence) -> Option<Place>,
    ) -> Option<usize> {
        let queue = self.waiting.get(&chunk)?;
        let waits = |op: &Op| match op {
            Op::Repair { id } => repairs.position(*id).is_none_or(|repair| repair > position),
            Op::Apply { pg, sequence, .. } => place(*pg, *sequence).is_none_or(|place| place.log > durable),
            _ => false,
        };
        // A repair that comes earlier in the log has to be done before, with all that the repair waits for: those
        // operations are earlier in the log as well. So has a relocation: at replay, one may stand behind such a
        // repair, and the repair behind a write of the same batch, which waits until the batch is done.
        let before = |op: &Op| match op {
            Op::Repair { id } => repairs.position(*id).is_some_and(|repair| repair < position),
            Op::Relocate { position: earlier, .. } => *earlier < position,
            _ => false,
        };
        let first = queue.iter().position(waits).unwrap_or(queue.len());
        Some(first.max(queue.iter().rposition(before).map_or(0, |index| index + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::log_position;
    use crate::record::Repair;
    use azekura_base::{BlockIndex, Body, Checksum};

    const PG: PgId = PgId(1);
    const CHUNK: ChunkIndex = ChunkIndex(4);

    fn range() -> BlockRange {
        BlockRange { layer: LayerId(3), chunk: CHUNK, first: BlockIndex(0), count: 1 }
    }

    fn place(log: u64) -> Place {
        Place { log, payload: Some(700), segment: 8, generation: 31 }
    }

    fn relocation(position: u64) -> Op {
        let moved =
            Move { pg: PG, range: range(), old: 600, bytes: bytes::Bytes::new(), checksums: [Checksum(0)][..].into() };
        Op::Relocate { moved, place: place(position >> 16), position }
    }

    /// A batch that is replayed holds a write, a repair that says that the write is committed, and moves. All of it
    /// waits for the end of the batch.
    #[test]
    fn relocations_stay_in_the_order_of_the_log_behind_a_repair_that_waits() {
        const BATCH: u64 = 9;
        let (chunk, at) = ((PG, CHUNK), |entry| log_position(BATCH, entry));
        let mut repairs = Repairs::default();
        let repair = Repair { pg: PG, sequence: Sequence(5), range: range(), body: Body::Zero };
        repairs.add(1, repair, Some((place(BATCH), at(1))));
        let mut ops = OpQueue::default();
        let apply = Op::Apply { pg: PG, sequence: Sequence(5), stamp: at(0) };
        ops.wait(chunk, VecDeque::from([apply, Op::Repair { id: 1 }]));
        for entry in 2..5 {
            let index = ops.index_ahead(chunk, (at(entry), BATCH - 1), &repairs, |_, _| Some(place(BATCH)));
            ops.of(chunk).expect("two wait").insert(index.expect("two wait"), relocation(at(entry)));
        }
        let position = |op: &Op| match op {
            Op::Relocate { position, .. } => Some(*position),
            _ => None,
        };
        let positions: Vec<u64> = ops.take(chunk).iter().skip(2).filter_map(position).collect();
        assert_eq!(positions, [at(2), at(3), at(4)]);
    }
}
