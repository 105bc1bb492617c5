//! Who may have the last free segments.

use crate::log::queue::{Item, Queued};
use crate::log::writer::{LogWriter, Sealing};
use crate::segments::{GC_SEGMENTS, ZERO_SEGMENTS};
use azekura_base::PgId;
use std::collections::{BTreeSet, VecDeque};

impl LogWriter {
    /// The last free segments are left to cleaning, and some before them to records that take no space. But what waits
    /// before the record of an epoch goes first if there is room for it: until that is durable, the writes that the
    /// epoch drops keep their segments, and nothing that was written since can become free.
    pub(super) fn clients_are_stalled(&self, s: &Sealing<'_>) -> bool {
        let free = s.cx.segments().free();
        if free > GC_SEGMENTS + ZERO_SEGMENTS {
            return false;
        }
        let takes_space = self.queue().front().is_none_or(|queued| queued.item.payload_blocks() > 0);
        let left = if takes_space { GC_SEGMENTS + ZERO_SEGMENTS } else { GC_SEGMENTS };
        let may_take_last = free > 0 && self.waits_for_an_epoch(s);
        let may_take = free > 1 && (self.epoch_has_room(s) || s.cleaner.waits_for_clients(s.cx, s.groups, s.is_saving));
        free <= left && !may_take_last && !may_take
    }

    /// Nothing can be won before the record of an epoch is durable that waits behind clients' records: a checkpoint's
    /// position does not pass the place where the epoch began.
    pub(super) fn waits_for_an_epoch(&self, s: &Sealing<'_>) -> bool {
        s.groups.epoch_waits() && s.cleaner.can_win_nothing(s.cx, s.groups, s.is_saving)
    }

    /// All free segments but one have room for what waits up to the first record of an epoch.
    fn epoch_has_room(&self, s: &Sealing<'_>) -> bool {
        if !s.groups.epoch_waits() {
            return false;
        }
        let options = s.cx.options();
        let segment = options.segment_blocks;
        // A batch has a header, and the end of a segment may be too small for the next record.
        let usable = segment - options.batch_blocks_max.min(segment / 2) - 2;
        let room = s.cx.segments().free().saturating_sub(1) * usable;
        let ahead = self.queue().iter().take_while(|queued| !matches!(queued.item, Item::Epoch { .. }));
        ahead.map(|queued| queued.item.payload_blocks() + 1).sum::<u32>() <= room
    }

    /// Nothing is to be won, and data waits for space: what takes none goes first, since it may give some back. Each
    /// group's records keep their order, and those that begin work in the background stay where they are.
    pub(super) fn let_pass(&mut self, s: &Sealing<'_>) {
        let waits = self.queue().front().is_some_and(|queued| queued.item.payload_blocks() > 0);
        if !waits || !self.clients_are_stalled(s) || !s.cleaner.can_win_nothing(s.cx, s.groups, s.is_saving) {
            return;
        }
        let mut behind: BTreeSet<PgId> = BTreeSet::new();
        let takes_none = |queued: &Queued| match queued.item.group() {
            Some(pg) if queued.item.payload_blocks() > 0 => {
                behind.insert(pg);
                false
            }
            Some(pg) => !behind.contains(&pg),
            None => false,
        };
        let (first, rest): (VecDeque<_>, VecDeque<_>) = self.take_queue().into_iter().partition(takes_none);
        self.put_queue(first, rest);
    }

    pub(super) fn clients_wait_for_space(&self, s: &Sealing<'_>) -> bool {
        !self.queue().is_empty() && self.clients_are_stalled(s)
    }

    pub(super) fn moves_may_be_written(&self, s: &Sealing<'_>) -> bool {
        s.cleaner.credit() > 0.0 || self.clients_wait_for_space(s)
    }
}
