//! Checkpoints: which leaves are saved when, and what becomes free by it.

use crate::checkpoint::position::oldest_unsettled;
use crate::checkpoint::{CheckpointBatch, GroupRow, PendingRow, Position, Root};
use crate::cleaner::{free_target, freed_at_once};
use crate::cx::Io;
use crate::effect::{Completion, Effect, Failure, MapError};
use crate::jobs::Job;
use crate::leaf::LeafKey;
use crate::leaf_cache::{Content, LEAF_BYTES};
use crate::report::Report;
use crate::segments::{GC_SEGMENTS, ZERO_SEGMENTS};
use crate::store::Store;
use azekura_base::{LayerId, PgId};
use bytes::Bytes;
use std::time::Duration;

/// Changes that nobody needs saved for space or memory are saved after this time, so that a restart is short.
const IDLE_AGE: Duration = Duration::from_secs(30);
/// A checkpoint for replay's sake waits for at least this share of the replay bound of new log.
const SPACING: u64 = 8;
/// Appending waits for a checkpoint while a restart would have to replay so many times what is intended, of which it
/// would be at least so many segments.
const REPLAY_TIMES_MAX: u64 = 2;
const REPLAY_SEGMENTS_MIN: u64 = 4;
/// A checkpoint for which there was no room is tried again after this time, then after twice as long, and so on up to
/// the most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);
/// A saved map that refuses a checkpoint for so long, but not for want of room, has failed.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A checkpoint that is being saved.
#[derive(Debug)]
pub(crate) struct Saving {
    position: u64,
    slots: Vec<LeafKey>,
    /// Work in the background that the checkpoint has.
    jobs: Vec<Job>,
    /// Work that is over with it.
    over: Vec<Job>,
    /// What is saved: it may have to be tried again.
    batch: Box<CheckpointBatch>,
    /// When it is tried again, and how long that was put off.
    retry: Option<(Duration, Duration)>,
    /// The last try failed for want of room.
    full: bool,
    /// Since when the saved map has refused it, otherwise than for want of room.
    refused: Option<Duration>,
}

impl Store {
    /// A checkpoint would be useful now.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        if !self.cx.is_running() || self.saving.is_some() {
            return false;
        }
        if self.cache.dirty_bytes() * 2 > self.cx.options().leaf_cache_bytes_max {
            return true;
        }
        if self.wants_space() {
            return true;
        }
        // Nothing written since can become free before replay gets past the job's record.
        if self.cx.segments().free() <= GC_SEGMENTS + ZERO_SEGMENTS && self.jobs.hold_replay() {
            return true;
        }
        if self.replay_waits() {
            return true;
        }
        if self.jobs.wants_position(oldest_unsettled(&self.cx, &self.groups)).is_some()
            || self.jobs.wants_to_be_saved(self.cx.now())
        {
            return true;
        }
        let since = self.cx.statistics().log_bytes - self.last_checkpoint_log_bytes;
        let bound = self.replay_bound();
        if self.replay_bytes() > bound / 2 && since > bound / SPACING && self.position_can_move() {
            return true;
        }
        self.cache.dirty_count() > 0 && self.cx.now().saturating_sub(self.last_checkpoint) >= IDLE_AGE
    }

    /// Bytes of log that a restart may have to replay: the configured bound, or a quarter of a small device.
    fn replay_bound(&self) -> u64 {
        let quarter = u64::from(self.cx.options().segments / 4) * self.cx.options().segment_bytes();
        self.cx.options().replay_bytes_max.min(quarter)
    }

    /// A restart would have to replay far more than is intended, and a checkpoint can change that: to append must wait.
    pub(crate) fn replay_waits(&self) -> bool {
        let least = REPLAY_SEGMENTS_MIN * self.cx.options().segment_bytes();
        self.replay_bytes() > self.replay_bound().max(least) * REPLAY_TIMES_MAX
            && (self.position_can_move() || self.jobs.hold_replay())
    }

    pub(crate) fn replay_bytes(&self) -> u64 {
        self.cx.segments().chain().len() as u64 * self.cx.options().segment_bytes()
    }

    /// A checkpoint would free segments, and they are needed: several at a time, unless it is urgent.
    fn wants_space(&self) -> bool {
        let free = self.cx.segments().free();
        free < free_target(&self.cx)
            && (self.cx.segments().empty(None) >= freed_at_once(&self.cx).max(2) || free <= GC_SEGMENTS + ZERO_SEGMENTS)
            && self.cx.segments().reclaimable(oldest_unsettled(&self.cx, &self.groups)).is_some()
    }

    fn position_can_move(&self) -> bool {
        self.cx
            .segments()
            .chain()
            .front()
            .is_some_and(|link| link.generation < oldest_unsettled(&self.cx, &self.groups))
    }

    /// Saves the longest-changed leaves. `note` may give a group's new note.
    pub(crate) fn start_checkpoint(&mut self, leaves_max: usize, mut note: impl FnMut(PgId) -> Option<Bytes>) {
        assert!(self.saving.is_none(), "one checkpoint at a time");
        for (pg, group) in self.groups.iter_mut() {
            if let Some(note) = note(pg) {
                group.take_note(note);
            }
        }
        let floor = self.cx.segments().chain().front().copied().or_else(|| self.cx.log().replaying());
        let floor = floor.map_or(0, |link| link.generation);
        let before = if self.cache.dirty_bytes() * 2 > self.cx.options().leaf_cache_bytes_max
            || self.cx.segments().free() <= GC_SEGMENTS + ZERO_SEGMENTS
            || self.cx.now().saturating_sub(self.last_checkpoint) >= IDLE_AGE
        {
            u64::MAX
        } else {
            // Leaves changed only in the younger half of the replayed log will change again before they must be saved.
            // If it is about space, the position has to get past a segment that can be freed.
            let half = floor + (self.cx.segments().chain().len() as u64 / 2).max(1);
            let freeable = self.cx.segments().reclaimable(oldest_unsettled(&self.cx, &self.groups));
            let job = self.jobs.wants_position(oldest_unsettled(&self.cx, &self.groups));
            half.max(freeable.map_or(0, |generation| generation + 1)).max(job.map_or(0, |generation| generation + 1))
        };
        let mut batch = CheckpointBatch {
            root: self.root(),
            segments: Vec::new(),
            leaves: Vec::new(),
            removed: Vec::new(),
            layers: Vec::new(),
            heirs_gone: Vec::new(),
            heirs: Vec::new(),
        };
        let mut slots = Vec::new();
        let (segments, damage) = (self.cx.segments(), &mut self.damage);
        let mut deltas = Vec::new();
        let mut owned: Vec<(LayerId, i64)> = Vec::new();
        let emptied = |segment: u32| segments.get(segment).live == 0;
        self.cache.take_dirty(leaves_max, floor, before, emptied, |slot| {
            slots.push(slot.key);
            deltas.extend_from_slice(&slot.delta);
            let gained: i64 = slot.delta.iter().map(|(_, blocks)| i64::from(*blocks)).sum();
            owned.push((slot.key.layer, gained - i64::from(slot.ghosts)));
            match &slot.content {
                Content::Present(leaf) => {
                    damage.saved(&slot.key, Some(leaf));
                    batch.leaves.push((slot.key, leaf.clone()));
                }
                _ => {
                    damage.saved(&slot.key, None);
                    batch.removed.push(slot.key);
                }
            }
        });
        for (segment, blocks) in deltas {
            self.cx.segments_mut().add_saved(segment, blocks);
        }
        for (layer, blocks) in owned {
            self.layers.add_saved(layer, blocks);
        }
        let oldest = oldest_unsettled(&self.cx, &self.groups);
        let position = self.cache.oldest_dirty().map_or(oldest, |dirty| dirty.min(oldest));
        let link = self.cx.segments().link(position).or_else(|| self.cx.log().replaying());
        let link = link.filter(|link| link.generation == position).expect("the replay position is in the chain");
        batch.root.position = Position {
            generation: link.generation,
            segment: link.segment,
            sequence: link.first_sequence,
            previous: link.first_previous,
        };
        self.save_pending(position, &mut batch.root.groups);
        batch.segments = self.cx.segments_mut().begin_checkpoint(position);
        batch.layers = self.layers.take_changed();
        batch.heirs_gone = self.cx.segments().freeing().to_vec();
        self.cleaner.forget_segments(&self.cx, &batch.heirs_gone);
        batch.heirs = self.heirs.take(&batch.heirs_gone);
        let over = self.jobs_over(position);
        for job in &over {
            match job {
                Job::ForgetGroup(gone) => batch.root.groups.retain(|group| group.pg != *gone),
                Job::MergeLayer { layer, .. } => batch.root.jobs.push(Job::DropLayer(*layer)),
                Job::DropLayer(_) => {}
            }
        }
        batch.root.jobs.retain(|job| !over.contains(job) || self.job_lingers(*job));
        let jobs = self.jobs.iter().collect();
        self.cx.counters().checkpoint_leaves += batch.leaves.len() as u64;
        self.cx.counters().checkpoint_bytes += (batch.leaves.len() * LEAF_BYTES) as u64;
        self.last_checkpoint = self.cx.now();
        self.last_checkpoint_log_bytes = self.cx.statistics().log_bytes;
        let batch = Box::new(batch);
        self.saving =
            Some(Saving { position, slots, jobs, over, batch: batch.clone(), retry: None, full: false, refused: None });
        let io = self.cx.new_io(Io::Checkpoint);
        self.cx.ask(Effect::Checkpoint { io, batch });
    }

    /// There was no room for a checkpoint: it is tried again, at [`Store::tick`].
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.retry.is_some() && saving.full)
    }

    /// Tries a checkpoint again that could not be saved, if it is time.
    pub(crate) fn retry_checkpoint(&mut self) {
        let now = self.cx.now();
        let due = |saving: &&mut Saving| saving.retry.is_some_and(|(at, _)| at <= now);
        let Some(batch) = self.saving.as_mut().filter(due).map(|saving| {
            saving.retry = saving.retry.map(|(_, delay)| (Duration::MAX, delay));
            saving.batch.clone()
        }) else {
            return;
        };
        let io = self.cx.new_io(Io::Checkpoint);
        self.cx.ask(Effect::Checkpoint { io, batch });
    }

    /// Adds the durable writes that are not applied, or not for good dropped, and that replay from generation
    /// `position` would not find.
    fn save_pending(&self, position: u64, rows: &mut [GroupRow]) {
        let durable = self.cx.log().durable();
        for row in rows {
            let dropped = self.groups.dropped(row.pg);
            let kept = self.groups.get(row.pg).into_iter().flat_map(|group| &group.pending);
            for pending in kept.chain(dropped).filter(|p| !p.applied) {
                let Some(place) = pending.place.filter(|p| p.log <= durable && pending.origin < position) else {
                    continue;
                };
                row.pending.push(PendingRow {
                    info: PendingRow::kept(&pending.info),
                    log: place.log,
                    generation: pending.origin,
                    address: place.address,
                    checksums: pending.checksums.clone(),
                });
            }
            row.pending.sort_by_key(|pending| pending.info.header.sequence);
        }
    }

    fn root(&self) -> Root {
        let groups = self.groups.iter().map(|(pg, group)| GroupRow {
            pg,
            epoch: group.epoch_durable,
            committed: group.committed_durable().max(group.committed_saved),
            complete: group.incomplete_durable,
            note_version: group.note_version,
            note: group.note.clone(),
            pending: Vec::new(),
            requests: group.replayed_requests.clone(),
        });
        Root {
            identity: *self.cx.identity(),
            incarnation: self.cx.log().incarnation(),
            durable: self.cx.log().durable().max(self.durable_saved),
            position: Position { generation: 0, segment: 0, sequence: 0, previous: 0 },
            groups: groups.collect(),
            jobs: self.jobs.iter().collect(),
        }
    }

    /// The saved map has, or has not, done the transaction.
    pub(crate) fn checkpoint_saved(&mut self, result: Result<(), MapError>) {
        let Some(mut saving) = self.saving.take() else { return };
        match result {
            Ok(()) => {}
            Err(MapError::Refused(what))
                if saving.refused.is_some_and(|since| self.cx.now().saturating_sub(since) >= REFUSED_FOR) =>
            {
                return self.cx.fail(Failure::Map(MapError::Failed(what)));
            }
            Err(error @ (MapError::Full(_) | MapError::Refused(_)))
                if self.cx.is_running() || self.cx.is_recovering() =>
            {
                saving.full = matches!(error, MapError::Full(_));
                saving.refused = saving.refused.or(Some(self.cx.now())).filter(|_| !saving.full);
                let delay = saving.retry.map_or(RETRY_MIN, |(_, delay)| (delay * 2).min(RETRY_MAX));
                saving.retry = Some((self.cx.now() + delay, delay));
                self.saving = Some(saving);
                self.cx.report(Report::NotSaved { error });
                return;
            }
            Err(error) => return self.cx.fail(Failure::Map(error)),
        }
        self.cache.saved(&saving.slots);
        self.heirs.saved();
        let freed = self.cx.segments_mut().end_checkpoint(saving.position);
        self.cx.counters().gc_segments += freed.len() as u64;
        self.cx.counters().checkpoints += 1;
        let ops = &self.ops;
        self.cache.evict(|key| ops.contains_key(&(key.pg, key.chunk)));
        self.jobs_saved(&saving.jobs, &saving.over);
        if self.cx.is_running() {
            self.cx.complete(Completion::Checkpointed);
        }
        self.recovery_checkpointed();
    }
}
