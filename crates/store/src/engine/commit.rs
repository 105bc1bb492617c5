//! Records are prepared for the log, writes are committed, epochs begin.

use crate::checkpoint::NAMELESS;
use crate::engine::Engine;
use crate::engine::op::Op;
use crate::groups::Pending;
use crate::log::Item;
use crate::record::{Mark, Record, Repair};
use azekura_base::{BLOCK_SIZE, BlockIndex, BlockRange, Body, Epoch, PgId, Sequence, Write};
use std::collections::BTreeSet;

/// The beginning of an epoch: its record, and the appends that it drops before they are in any batch.
pub(crate) struct Begun {
    pub id: u64,
    pub item: Item,
    pub never_written: BTreeSet<u64>,
}

impl Engine {
    /// What goes into the log for a record that is appended, and its name.
    ///
    /// # Panics
    /// When the record does not fit the group's state or the chunk.
    pub fn prepare(&mut self, record: Record) -> (u64, Item) {
        let id = self.cx.new_id();
        let item = match record {
            Record::Write(write) => self.prepare_write(id, write),
            Record::Repair(repair) => {
                self.check_range(&repair.range, &repair.body);
                self.prepare_repair(id, repair)
            }
            Record::Mark(Mark { pg, sequence, layer, chunk }) => {
                let range = BlockRange { layer, chunk, first: BlockIndex(0), count: 0 };
                self.prepare_repair(id, Repair { pg, sequence, range, body: Body::Zero })
            }
        };
        (id, item)
    }

    fn prepare_write(&mut self, id: u64, write: Write) -> Item {
        self.check_range(&write.header.range, &write.body);
        self.groups.get_mut(write.header.pg).prepare(id, &write);
        Item::Write(write)
    }

    fn prepare_repair(&mut self, id: u64, repair: Repair) -> Item {
        self.groups.get_mut(repair.pg).prepare_repair(&repair);
        let chunk = (repair.pg, repair.range.chunk);
        self.repairs.add(id, repair.clone(), None);
        self.submit(chunk, Op::Repair { id });
        Item::Repair(repair)
    }

    fn check_range(&self, range: &BlockRange, body: &Body) {
        assert!(range.is_valid(), "not inside a chunk");
        let count = usize::from(range.count);
        if let Body::Data { bytes, checksums } = body {
            assert_eq!(bytes.len(), count * BLOCK_SIZE, "the payload is not `count` blocks");
            assert_eq!(checksums.len(), count, "not one checksum a block");
        }
        if let Body::Lost { checksums } = body {
            assert_eq!(checksums.len(), count, "not one checksum a block");
        }
        if *body != Body::Zero {
            assert!(u32::from(range.count) <= self.cx.options().record_blocks_max(), "a record over the limit");
        }
    }

    /// Makes the prepared writes of `pg` up to `upto` visible to every later read, in order.
    ///
    /// # Panics
    /// When `upto` is beyond what is prepared.
    pub fn commit(&mut self, pg: PgId, upto: Sequence) {
        let group = self.groups.get_mut(pg);
        assert!(upto <= group.prepared_end(), "commit of {upto} beyond {} in group {pg}", group.prepared_end());
        if upto > group.committed() && self.cx.is_running() {
            self.commit_upto(pg, upto);
        }
    }

    pub fn commit_upto(&mut self, pg: PgId, upto: Sequence) {
        self.cleaner.may_retry();
        let stamp = self.cx.log().stamp();
        let recovering = !self.cx.is_running();
        let mut sequence = self.groups.get_mut(pg).advance(upto);
        // The next write is the next sequence, except where a jump of the commit point left a gap.
        while sequence < upto {
            let group = self.groups.get_mut(pg);
            let next = group.first_after(sequence).map(|pending| pending.info.header);
            let Some(write) = next.filter(|write| write.sequence <= upto) else { return };
            let chunk = write.range.chunk;
            sequence = write.sequence;
            if recovering && write.session != NAMELESS {
                group.name_request(write.session, write.request);
            }
            self.submit((pg, chunk), Op::Apply { pg, sequence, stamp });
        }
    }

    /// Begins an epoch. With `jump`, `committed` is beyond what is prepared.
    ///
    /// # Panics
    /// When `epoch` or `committed` would go back.
    pub fn begin_epoch(&mut self, pg: PgId, epoch: Epoch, committed: Sequence, jump: bool) -> Begun {
        let (committed_before, incomplete) = self.groups.get_mut(pg).check_epoch(pg, epoch, committed, jump);
        let dropped = self.enter_epoch(pg, epoch, committed, jump).into_iter();
        let (dropped, waiting): (Vec<_>, Vec<_>) = dropped.partition(|pending| pending.written.is_some());
        let never_written = waiting.iter().map(|pending| pending.id).collect();
        let id = self.cx.new_id();
        self.groups.epoch_begins(id, pg, self.cx.log().generation(), dropped);
        let item = Item::Epoch { pg, epoch, committed_before, committed, jump, incomplete };
        Begun { id, item, never_written }
    }

    /// With `jump`, `committed` is beyond what is prepared. Gives the writes that are dropped; they still pin their
    /// segments.
    pub fn enter_epoch(&mut self, pg: PgId, epoch: Epoch, committed: Sequence, jump: bool) -> Vec<Pending> {
        let keep = self.groups.get_mut(pg).enter_epoch(epoch, committed, jump);
        self.commit_upto(pg, keep);
        self.groups.get_mut(pg).drop_after(keep, committed)
    }
}
