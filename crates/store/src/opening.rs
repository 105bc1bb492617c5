//! Opening: what the scan of the log has found is replayed, the leaves that it needs are waited for, and a new
//! incarnation is saved.

use crate::effect::{DeviceError, OpenError};
use crate::format::{Entries, Summary, SummaryBuilder};
use crate::recovery::{Found, Recovery, Tail};
use crate::segments::Link;
use crate::store::Store;
use azekura_base::{PgId, Sequence};
use bytes::Bytes;

impl Store {
    fn recovery(&mut self) -> Option<&mut Recovery> {
        self.recovery.as_deref_mut().filter(|_| self.cx.is_recovering())
    }

    pub(crate) fn start_recovery(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.start(&mut self.cx);
        }
    }

    /// A read that recovery asked for has ended.
    pub(crate) fn recovery_read(&mut self, result: Result<Bytes, DeviceError>) {
        let Some(recovery) = self.recovery.as_deref_mut().filter(|_| self.cx.is_recovering()) else { return };
        let found = recovery.on_read(&mut self.cx, result);
        self.recovery_found(found);
    }

    fn recovery_found(&mut self, found: Result<Found, OpenError>) {
        let replayed = match found {
            Ok(Found::Nothing) => return,
            Ok(Found::Segment(link, summary)) => self.replay_segment(link, &summary),
            Ok(Found::Tail(first, tail)) => self.replay_tail(first, &tail),
            Err(error) => Err(error),
        };
        match replayed {
            Ok(()) => self.replay_goes_on(),
            Err(error) => self.cx.fail_open(error),
        }
    }

    /// Goes on with the next segment once the leaves of the last are settled and memory allows.
    pub(crate) fn replay_goes_on(&mut self) {
        let idle = self.ops.is_empty() && !self.checkpointer.is_saving();
        let leaves_max = self.cx.options().checkpoint_leaves_max;
        let full = self.cache.dirty_bytes() > self.cx.options().leaf_cache_bytes_max / 2;
        let Some(recovery) = self.recovery.as_deref_mut().filter(|_| self.cx.is_recovering()) else { return };
        if !idle || !recovery.waits_for_leaves() {
            return;
        }
        if recovery.has_ended() {
            return match recovery.flush(&mut self.cx) {
                Ok(true) => {}
                Ok(false) => self.save_incarnation(),
                Err(error) => self.cx.fail_open(error),
            };
        }
        if full {
            return self.start_checkpoint(leaves_max, |_| None);
        }
        let found = recovery.go_on(&mut self.cx);
        self.recovery_found(Ok(found));
    }

    /// What was read is on stable storage: what is handed out from here on can't be lost.
    pub(crate) fn recovery_flushed(&mut self, result: Result<(), DeviceError>) {
        match result {
            Ok(()) => self.save_incarnation(),
            Err(error) => self.cx.fail_open(OpenError::Device(error)),
        }
    }

    fn save_incarnation(&mut self) {
        if let Some(recovery) = &mut self.recovery {
            recovery.begin_incarnation(&mut self.cx);
        }
        self.start_checkpoint(0, |_| None);
    }

    /// A checkpoint has been saved.
    pub(crate) fn recovery_checkpointed(&mut self) {
        match self.recovery() {
            Some(recovery) if recovery.waits_for_checkpoint() => {
                self.recovery = None;
                self.cx.start_running();
                self.run_jobs();
            }
            Some(_) => self.replay_goes_on(),
            None => {}
        }
    }

    /// Replays a segment from its summary.
    fn replay_segment(&mut self, link: Link, summary: &Summary) -> Result<(), OpenError> {
        self.cx.segments_mut().reopen(link);
        for (sequence, (frame, entries)) in (link.first_sequence..).zip(summary.frames()) {
            self.replay_batch(link, sequence, frame.block + frame.header_blocks, entries)?;
        }
        self.cx.log_mut().set_durable(summary.header.sequence);
        self.run_blocked();
        self.cx.segments_mut().seal(link.segment);
        Ok(())
    }

    /// Replays the last batches, and takes up the log where they end.
    fn replay_tail(&mut self, first: Link, tail: &[Tail]) -> Result<(), OpenError> {
        let (mut link, mut block, mut entered) = (first, 0, false);
        let mut summary = SummaryBuilder::default();
        for batch in tail {
            if !entered {
                self.cx.segments_mut().reopen(link);
                entered = true;
            }
            let header = &batch.header;
            let payload = header.block + header.header_blocks;
            if let Some(next) = batch.next {
                self.cx.log_mut().set_durable(header.sequence);
                self.cx.segments_mut().seal(link.segment);
                (link, block, entered) = (next, 0, false);
                summary = SummaryBuilder::default();
            } else {
                block = header.block + header.blocks();
                summary.push(header, &batch.entries);
                self.replay_batch(link, header.sequence, payload, &batch.entries)?;
            }
        }
        if !entered {
            self.cx.segments_mut().reopen(link);
        }
        let last = tail.last().map(|batch| batch.header);
        self.log.take_up(&mut self.cx, link, block, summary, last.as_ref());
        self.run_blocked();
        self.commit_saved();
        Ok(())
    }

    /// What the checkpoint knew to be committed is so, also where the log does not say it.
    fn commit_saved(&mut self) {
        let groups: Vec<PgId> = self.groups.iter().map(|(pg, _)| pg).collect();
        for pg in groups {
            let group = self.groups.get_mut(pg);
            let saved = std::mem::take(&mut group.committed_saved);
            if saved >= group.prepared_end {
                group.prepared_end = group.prepared_end.max(saved);
                let end = group.pending.back().map_or(Sequence::ZERO, |p| p.info.header.sequence);
                self.commit_replayed(pg, end);
                let group = self.groups.get_mut(pg);
                group.committed = group.committed.max(saved);
            } else {
                self.commit_replayed(pg, saved);
            }
            let group = self.groups.get_mut(pg);
            group.durable_end = group.prepared_end;
            group.epoch_durable = group.epoch;
            group.incomplete_durable = group.incomplete;
        }
    }

    /// Replays the entries of one batch, whose payload starts at block `payload` of the segment.
    fn replay_batch(&mut self, link: Link, sequence: u64, payload: u32, entries: &[u8]) -> Result<(), OpenError> {
        self.cx.log_mut().set_durable(sequence - 1);
        let mut address = self.cx.segments().address(link.segment, payload);
        for (index, entry) in Entries::new(entries).enumerate() {
            self.replay_entry(link, sequence, index, address, &entry)?;
            address += entry.payload_blocks();
        }
        self.cx.log_mut().set_durable(sequence);
        self.run_blocked();
        Ok(())
    }
}
