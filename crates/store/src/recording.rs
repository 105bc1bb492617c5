//! Records on their way: clients' writes and what repairs bring are queued for the log, writes are prepared and
//! committed.

use crate::groups::Pending;
use crate::log::Item;
use crate::ops::Op;
use crate::record::{Copy, Mark, Record};
use crate::store::Store;
use azekura_base::{BLOCK_SIZE, BlockIndex, BlockRange, Body, PgId, Prepared, Sequence, Write};

impl Store {
    /// Gives `record` to the log. [`crate::Completion::Durable`] with `token` follows when it is on stable storage. A
    /// write must be the next of its group: `sequence` one more than the last, `epoch` the group's. After a failure the
    /// record is ignored. Data is page-aligned in memory, and the caller has verified its checksums.
    ///
    /// # Panics
    /// When the record does not fit the group's state or the chunk: the caller has to have checked.
    pub fn append(&mut self, token: u64, record: impl Into<Record>) {
        assert!(!self.cx.is_recovering(), "nothing can be appended before recovery has ended");
        if !self.cx.is_running() {
            return;
        }
        let id = self.cx.new_id();
        let item = match record.into() {
            Record::Write(write) => self.prepare(id, write),
            Record::Copy(copy) => {
                self.check_range(&copy.range, &copy.body);
                self.prepare_copy(id, copy)
            }
            Record::Mark(Mark { pg, sequence, layer, chunk }) => {
                let range = BlockRange { layer, chunk, first: BlockIndex(0), count: 0 };
                self.prepare_copy(id, Copy { pg, sequence, range, body: Body::Zero })
            }
        };
        self.log.push(id, Some(token), item);
    }

    fn prepare(&mut self, id: u64, write: Write) -> Item {
        self.check_range(&write.header.range, &write.body);
        let header = write.header;
        let group = self.groups.get_mut(header.pg);
        assert_eq!(header.sequence, group.prepared_end.next(), "writes of group {} out of order", header.pg);
        assert!(!group.forgetting, "a write of group {}, which is being forgotten", header.pg);
        assert_eq!(header.epoch, group.epoch, "a write of group {} in an epoch that was not started", header.pg);
        assert!(header.commit < header.sequence, "a write can't be committed before it is sent");
        let (checksums, bytes) = match &write.body {
            Body::Data { bytes, checksums } => (Some(checksums.clone()), Some(bytes.clone())),
            Body::Zero => (None, None),
            Body::Lost { .. } => panic!("a write of group {} of what is lost", header.pg),
        };
        group.prepared_end = header.sequence;
        group.pending.push_back(Pending {
            info: Prepared { header, zero: bytes.is_none(), durable: false },
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
        let chunk = (copy.pg, copy.range.chunk);
        self.copies.add(id, copy.clone(), None);
        self.submit(chunk, Op::Copy { id });
        Item::Copy(copy)
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
        assert!(upto <= group.prepared_end, "commit of {upto} beyond {} in group {pg}", group.prepared_end);
        if upto > group.committed && self.cx.is_running() {
            self.commit_upto(pg, upto);
        }
    }

    pub(crate) fn commit_upto(&mut self, pg: PgId, upto: Sequence) {
        self.cleaner.may_retry();
        let stamp = self.cx.log().stamp();
        let recovering = !self.cx.is_running();
        let group = self.groups.get_mut(pg);
        let mut sequence = group.committed;
        group.committed = group.committed.max(upto);
        // The next write is the next sequence, except where a jump of the commit point left a gap.
        while sequence < upto {
            let group = self.groups.get_mut(pg);
            let next = group.first_after(sequence).map(|pending| pending.info.header);
            let Some(write) = next.filter(|write| write.sequence <= upto) else { return };
            let chunk = write.range.chunk;
            sequence = write.sequence;
            if recovering {
                group.replayed_requests.committed(write.session, write.request);
            }
            self.submit((pg, chunk), Op::Apply { pg, sequence, stamp });
        }
    }
}
