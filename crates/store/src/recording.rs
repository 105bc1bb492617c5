//! Records on their way: clients' writes and what repairs bring are queued for the log, writes are prepared and
//! committed.

use crate::groups::Pending;
use crate::log::{Item, Queued};
use crate::ops::{CopyState, Op};
use crate::record::{Body, Copy, Mark, PreparedInfo, Record, Write};
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, BlockIndex, CHUNK_BLOCKS, PgId, Sequence};

impl Store {
    /// Gives `record` to the log. [`crate::Completion::Durable`] with `token` follows when it is on stable storage. A
    /// write must be the next of its group: `sequence` one more than the last, `epoch` the group's. After a failure the
    /// record is ignored.
    ///
    /// # Panics
    /// When the record does not fit the group's state or the chunk: the caller has to have checked.
    pub fn append(&mut self, token: u64, record: impl Into<Record>) {
        assert!(!self.is_recovering(), "nothing can be appended before recovery has ended");
        if !self.is_running() {
            return;
        }
        let id = self.new_id();
        let item = match record.into() {
            Record::Write(write) => self.prepare(id, write),
            Record::Copy(copy) => {
                self.check_range(copy.first, copy.count, &copy.body);
                self.prepare_copy(id, copy)
            }
            Record::Mark(Mark { pg, sequence, layer, chunk }) => {
                let (first, count, body) = (BlockIndex(0), 0, Body::Zero);
                self.prepare_copy(id, Copy { pg, sequence, layer, chunk, first, count, body })
            }
        };
        self.log.queue_blocks += u64::from(item.payload_blocks());
        self.log.queue.push_back(Queued { token: Some(token), id, item });
    }

    fn prepare(&mut self, id: u64, write: Write) -> Item {
        self.check_range(write.first, write.count, &write.body);
        let group = self.groups.get_mut(write.pg);
        assert_eq!(write.sequence, group.prepared_end.next(), "writes of group {} out of order", write.pg);
        assert!(!group.forgetting, "a write of group {}, which is being forgotten", write.pg);
        assert_eq!(write.epoch, group.epoch, "a write of group {} in an epoch that was not started", write.pg);
        assert!(write.commit < write.sequence, "a write can't be committed before it is sent");
        let (checksums, bytes) = match &write.body {
            Body::Data { bytes, checksums } => (Some(checksums.clone()), Some(bytes.clone())),
            Body::Zero => (None, None),
            Body::Lost { .. } => panic!("a write of group {} of what is lost", write.pg),
        };
        group.prepared_end = write.sequence;
        group.pending.push_back(Pending {
            info: PreparedInfo {
                epoch: write.epoch,
                sequence: write.sequence,
                session: write.session,
                request: write.request,
                layer: write.layer,
                chunk: write.chunk,
                first: write.first,
                count: write.count,
                zero: bytes.is_none(),
                durable: false,
            },
            id,
            checksums,
            place: None,
            origin: 0,
            bytes,
            applied: false,
        });
        Item::Write(write)
    }

    fn prepare_copy(&mut self, id: u64, copy: Copy) -> Item {
        let group = self.groups.get_mut(copy.pg);
        assert!(!group.forgetting, "a copy for group {}, which is being forgotten", copy.pg);
        let committed = group.committed;
        assert!(committed >= copy.sequence, "a copy at {} is ahead of {committed}", copy.sequence);
        group.copies_waiting.push_back(committed);
        let chunk = (copy.pg, copy.chunk);
        self.copies.insert(id, CopyState { copy: copy.clone(), place: None });
        self.submit(chunk, Op::Copy { id });
        Item::Copy(copy)
    }

    fn check_range(&self, first: BlockIndex, count: u16, body: &Body) {
        assert!(count > 0 && usize::from(first.0) + usize::from(count) <= CHUNK_BLOCKS, "not inside a chunk");
        if let Body::Data { bytes, checksums } = body {
            assert_eq!(bytes.len(), usize::from(count) * BLOCK_SIZE, "the payload is not `count` blocks");
            assert_eq!(checksums.len(), usize::from(count), "not one checksum a block");
        }
        if let Body::Lost { checksums } = body {
            assert_eq!(checksums.len(), usize::from(count), "not one checksum a block");
        }
        if *body != Body::Zero {
            assert!(u32::from(count) <= self.options.record_blocks_max(), "a record over the limit");
        }
    }

    /// Makes the prepared writes of `pg` up to `upto` visible to every later read, in order.
    ///
    /// # Panics
    /// When `upto` is beyond what is prepared.
    pub fn commit(&mut self, pg: PgId, upto: Sequence) {
        let group = self.groups.get_mut(pg);
        assert!(upto <= group.prepared_end, "commit of {upto} beyond {} in group {pg}", group.prepared_end);
        if upto > group.committed && self.is_running() {
            self.commit_upto(pg, upto);
        }
    }

    pub(crate) fn commit_upto(&mut self, pg: PgId, upto: Sequence) {
        self.collector_may_retry();
        let stamp = self.stamp();
        let recovering = !self.is_running();
        let group = self.groups.get_mut(pg);
        let mut sequence = group.committed;
        group.committed = group.committed.max(upto);
        // The next write is the next sequence, except where a jump of the commit point left a gap.
        while sequence < upto {
            let group = self.groups.get_mut(pg);
            let next = group.first_after(sequence).map(|pending| pending.info);
            let Some(info) = next.filter(|info| info.sequence <= upto) else { return };
            let chunk = info.chunk;
            sequence = info.sequence;
            if recovering {
                group.replayed_requests.committed(info.session, info.request);
            }
            self.submit((pg, chunk), Op::Apply { pg, sequence, stamp });
        }
    }
}
