//! Who may have the last free segments.

use crate::log::format::header_blocks;
use crate::log::queue::{Item, Queued};
use crate::log::writer::{LogWriter, Sealing};
use crate::segments::{CLEANER_SEGMENTS, ZERO_SEGMENTS};
use azekura_base::{Body, PgId, Write};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Free segments that a TRIM leaves alone with the data that stands before it in its group: one for cleaning, and one
/// for further TRIMs.
const TRIM_LEAVES: u32 = 2;

impl LogWriter {
    /// Records at the front of the queue that may open a segment, or be written to one out of the reserve. The last
    /// free segments are left to cleaning, and some before them to records that take no space. But what waits
    /// before the record of an epoch goes first if there is room for it: until that is durable, the writes that the
    /// epoch drops keep their segments, and nothing that was written since can become free.
    pub(super) fn clients_may_write(&self, s: &Sealing<'_>) -> usize {
        let free = s.cx.segments().free();
        if free > CLEANER_SEGMENTS + ZERO_SEGMENTS {
            return usize::MAX;
        }
        let takes_space = self.queue().front().is_none_or(|queued| queued.item.payload_blocks() > 0);
        let left = if takes_space { CLEANER_SEGMENTS + ZERO_SEGMENTS } else { CLEANER_SEGMENTS };
        let may_take_last = free > 0 && self.waits_for_an_epoch(s);
        let may_take = free > 1 && (self.epoch_has_room(s) || s.cleaner.waits_for_clients(s.cx, s.groups, s.is_saving));
        if free > left || may_take_last || may_take { usize::MAX } else { self.trim_may_write(s) }
    }

    pub(super) fn clients_are_stalled(&self, s: &Sealing<'_>) -> bool {
        self.clients_may_write(s) == 0
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

    /// The same, where cleaning can win nothing with its reserve as things are: the first TRIM that waits gives some
    /// back, so it takes of the reserve what there is room for, with the data before it (0016).
    fn trim_may_write(&self, s: &Sealing<'_>) -> usize {
        let free = s.cx.segments().free();
        let Some(data) = self.queue().iter().position(is_trim) else { return 0 };
        let fits = || {
            let ahead = self.queue().iter().take(data + 1);
            free > TRIM_LEAVES && ahead.map(log_blocks).sum::<u64>() <= self.trim_room(s)
        };
        let may = if data == 0 { free > 1 } else { fits() };
        if may && s.cleaner.can_win_nothing(s.cx, s.groups, s.is_saving) { data + 1 } else { 0 }
    }

    /// Blocks that a TRIM may use with the data before it.
    fn trim_room(&self, s: &Sealing<'_>) -> u64 {
        // The end of a segment may be too small for the next record.
        let usable = s.cx.segments().full_enough().saturating_sub(s.cx.options().record_blocks_max());
        let head = s.cx.log().head().map_or(0, |(_, block)| usable.saturating_sub(block));
        u64::from(head) + u64::from(s.cx.segments().free().saturating_sub(TRIM_LEAVES)) * u64::from(usable)
    }

    /// Nothing is to be won, and data waits for space: what takes none goes first, since it may give some back, else
    /// the first TRIM that there is room for, with the data before it in its group. Each group's records keep their
    /// order, and those that begin work in the background stay where they are.
    pub(super) fn let_pass(&mut self, s: &Sealing<'_>) {
        let waits = |log: &LogWriter| log.queue().front().is_some_and(|queued| queued.item.payload_blocks() > 0);
        if !waits(self) || !self.clients_are_stalled(s) || !s.cleaner.can_win_nothing(s.cx, s.groups, s.is_saving) {
            return;
        }
        self.let_zeros_pass();
        if waits(self) {
            self.let_a_trim_pass(self.trim_room(s));
        }
    }

    fn let_a_trim_pass(&mut self, room: u64) {
        let mut ahead: BTreeMap<PgId, u64> = BTreeMap::new();
        // What is behind the beginning of a job stays there.
        let mut in_order = self.queue().iter().map_while(|queued| Some((queued.item.group()?, queued)));
        let trim = in_order.find(|(pg, queued)| {
            let blocks = ahead.entry(*pg).or_default();
            *blocks += log_blocks(queued);
            is_trim(queued) && *blocks <= room
        });
        let Some((pg, trim)) = trim.map(|(pg, queued)| (pg, queued.id)) else { return };
        let mut passed = false;
        let goes_first = |queued: &Queued| {
            let first = !passed && queued.item.group() == Some(pg);
            passed |= queued.id == trim;
            first
        };
        let (first, rest): (VecDeque<_>, VecDeque<_>) = self.take_queue().into_iter().partition(goes_first);
        self.put_queue(first, rest);
    }

    fn let_zeros_pass(&mut self) {
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

/// A record that may give space back when it is committed.
fn is_trim(queued: &Queued) -> bool {
    matches!(&queued.item, Item::Write(Write { body: Body::Zero, .. }))
}

/// Blocks that a record takes in the log if it has a batch of its own.
fn log_blocks(queued: &Queued) -> u64 {
    u64::from(queued.item.payload_blocks() + header_blocks(queued.item.entry_bytes()))
}
