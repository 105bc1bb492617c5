//! Which leaves are saved when, and what becomes free by it.
//!
//! ```text
//!   at rest ─► begin ─► under way ─► saved ─► at rest
//!                         │    ▲
//!                         ▼    │ some time later
//!                     refused, or no room
//! ```

use crate::checkpoint::pace;
use crate::checkpoint::position::oldest_unsettled;
use crate::checkpoint::rows::{GroupRow, PendingRow, Position, Root};
use crate::checkpoint::saved_map::CheckpointBatch;
use crate::cleaner::Cleaner;
use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, Failure, MapError};
use crate::groups::{Groups, Written};
use crate::jobs::{Job, Jobs};
use crate::map::{LeafKey, Map, Repairs, Wanted};
use crate::report::Report;
use crate::segments::{CLEANER_SEGMENTS, ZERO_SEGMENTS};
use azekura_base::PgId;
use bytes::Bytes;
use std::time::Duration;

/// Changes that nobody needs saved for space or memory are saved after this time, so that a restart is short.
const IDLE_AGE: Duration = Duration::from_secs(30);
/// A checkpoint for replay's sake waits for at least this share of the replay bound of new log.
const SPACING: u64 = 4;
/// A device rests that has written less than this share of the replay bound in that time: then writes that wait for
/// their leaves are settled, so that a restart is short.
const RESTS: u64 = 64;
/// A checkpoint for which there was no room is tried again after this time, then after twice as long, and so on up to
/// the most.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(8);
/// A saved map that refuses a checkpoint for so long, but not for want of room, has failed.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// What a checkpoint saves from.
pub(crate) struct Sources<'a> {
    pub cx: &'a mut StoreCx,
    pub map: &'a mut Map,
    pub groups: &'a mut Groups,
    pub jobs: &'a Jobs,
    pub repairs: &'a Repairs,
    pub cleaner: &'a mut Cleaner,
}

/// A checkpoint that is being saved.
#[derive(Debug)]
struct Saving {
    checkpoint: Checkpoint,
    /// What is saved: the batch may have to be tried again.
    batch: Box<CheckpointBatch>,
    /// When the checkpoint is tried again, and how long the try was put off.
    retry: Option<(Duration, Duration)>,
    /// The last try failed for want of room.
    full: bool,
    /// Since when the saved map has refused it, otherwise than for want of room.
    refused: Option<Duration>,
}

/// What a checkpoint has.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The log generation with which replay begins.
    pub position: u64,
    /// Leaves that are saved, or removed.
    pub leaves: Vec<LeafKey>,
    /// Work in the background that the checkpoint has.
    pub jobs: Vec<Job>,
    /// Work that is over with it.
    pub over: Vec<Job>,
}

/// Saves checkpoints, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Checkpointer {
    saving: Option<Saving>,
    /// When the last one began, and how much had been written to the log by then.
    last: Duration,
    last_log_bytes: u64,
}

impl Checkpointer {
    /// A checkpoint is being saved.
    pub fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// There was no room for a checkpoint: the checkpoint is tried again.
    pub fn waits_for_room(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.retry.is_some() && saving.full)
    }

    /// A checkpoint would be useful now.
    pub fn is_due(&self, cx: &StoreCx, map: &Map, groups: &Groups, jobs: &Jobs) -> bool {
        if !cx.is_running() || self.saving.is_some() {
            return false;
        }
        if map.dirty_bytes() * 2 > cx.options().leaf_cache_bytes_max {
            return true;
        }
        if pace::wants_space(cx, groups) {
            return true;
        }
        // Nothing written since can become free before replay gets past the job's record.
        if is_short(cx) && jobs.hold_replay() {
            return true;
        }
        if pace::replay_waits(cx, groups, jobs) {
            return true;
        }
        if jobs.wants_position(oldest_unsettled(cx, groups), groups).is_some() || jobs.wants_to_be_saved(cx.now()) {
            return true;
        }
        let since = cx.statistics().log_bytes - self.last_log_bytes;
        let bound = pace::replay_bound(cx);
        if pace::replay_bytes(cx) > bound / 2 && since > bound / SPACING && pace::position_can_move(cx, groups) {
            return true;
        }
        map.dirty_count() > 0 && self.is_old(cx)
    }

    /// Hardly anything has been written for some time.
    fn rests(&self, cx: &StoreCx) -> bool {
        let since = cx.statistics().log_bytes - self.last_log_bytes;
        cx.is_running() && self.is_old(cx) && since <= pace::replay_bound(cx) / RESTS
    }

    /// Hardly any segment is free.
    pub fn is_short(&self, cx: &StoreCx) -> bool {
        is_short(cx)
    }

    fn is_old(&self, cx: &StoreCx) -> bool {
        cx.now().saturating_sub(self.last) >= IDLE_AGE
    }

    /// Saves the longest-changed leaves. `note` may give a group's new note.
    ///
    /// # Panics
    /// When one is being saved.
    pub fn begin(&mut self, from: Sources<'_>, leaves_max: usize, mut note: impl FnMut(PgId) -> Option<Bytes>) {
        assert!(self.saving.is_none(), "one checkpoint at a time");
        let Sources { cx, map, groups, jobs, repairs, cleaner } = from;
        for (pg, group) in groups.iter_mut() {
            if let Some(note) = note(pg) {
                group.take_note(note);
            }
        }
        let replay_from = cx.segments().chain().front().copied().or_else(|| cx.log().replaying());
        let replay_from = replay_from.map_or(0, |link| link.generation);
        let due_before = self.due_before(cx, groups, jobs, replay_from);
        // The next checkpoint saves what is asked for now. One that only makes room in memory asks for nothing: memory
        // would be full the sooner, and what waits would have gathered less.
        let full = map.dirty_bytes() * 2 > cx.options().leaf_cache_bytes_max;
        let replays_much = pace::replay_bytes(cx) > pace::replay_bound(cx) / 2;
        let asks = !full || replays_much || pace::wants_space(cx, groups) || is_short(cx) || !jobs.is_empty();
        map.settle_before(match asks {
            _ if self.rests(cx) => u64::MAX,
            true => due_before,
            false => 0,
        });
        let before = if full || self.is_old(cx) { u64::MAX } else { due_before };
        let mut batch = CheckpointBatch {
            root: root(cx, groups, jobs),
            segments: Vec::new(),
            leaves: Vec::new(),
            removed: Vec::new(),
            layers: Vec::new(),
            merged_owners_gone: Vec::new(),
            merged_owners: Vec::new(),
        };
        let bytes_max = cx.options().checkpoint_bytes_max;
        let wanted = Wanted { limit: leaves_max, bytes_max, replay_from, before };
        let leaves = map.take_leaves(cx, wanted, &mut batch);
        let oldest = oldest_unsettled(cx, groups);
        let position = map.oldest_dirty().map_or(oldest, |dirty| dirty.min(oldest));
        batch.root.position = position_of(cx, position);
        map.replay_begins_at(position);
        save_pending(cx, groups, position, &mut batch.root.groups);
        for row in &mut batch.root.groups {
            row.pending.extend(map.waiting_rows(row.pg, position));
            row.pending.sort_by_key(|pending| pending.info.header.sequence);
        }
        batch.segments = cx.segments_mut().begin_checkpoint(position);
        batch.merged_owners_gone = cx.segments().freeing().to_vec();
        cleaner.forget_segments(cx, &batch.merged_owners_gone);
        map.take_rows(&mut batch);
        let over = jobs.over(position, map.oldest_dirty(), groups);
        for job in &over {
            match job {
                Job::ForgetGroup(gone) => batch.root.groups.retain(|group| group.pg != *gone),
                Job::MergeLayer { layer, .. } => batch.root.jobs.push(Job::DropLayer(*layer)),
                Job::DropLayer(_) => {}
            }
        }
        batch.root.jobs.retain(|job| !over.contains(job) || jobs.lingers(*job, groups, repairs));
        self.last = cx.now();
        self.last_log_bytes = cx.statistics().log_bytes;
        let checkpoint = Checkpoint { position, leaves, jobs: jobs.iter().collect(), over };
        let batch = Box::new(batch);
        self.saving = Some(Saving { checkpoint, batch: batch.clone(), retry: None, full: false, refused: None });
        let io = cx.new_io(Io::Checkpoint);
        cx.ask(Effect::Checkpoint { io, batch });
    }

    /// Leaves are to be saved that were changed in log generations before this.
    fn due_before(&self, cx: &StoreCx, groups: &Groups, jobs: &Jobs, replay_from: u64) -> u64 {
        if is_short(cx) {
            return u64::MAX;
        }
        // Leaves changed only in the younger half of the replayed log will change again before they must be saved.
        // If it is about space, the position has to get past a segment that can be freed.
        let half = replay_from + (cx.segments().chain().len() as u64 / 2).max(1);
        let oldest = oldest_unsettled(cx, groups);
        let freeable = cx.segments().reclaimable(oldest);
        let job = jobs.wants_position(oldest, groups);
        half.max(freeable.map_or(0, |generation| generation + 1)).max(job.map_or(0, |generation| generation + 1))
    }

    /// Tries a checkpoint again that could not be saved, if it is time.
    pub fn retry(&mut self, cx: &mut StoreCx) {
        let now = cx.now();
        let due = |saving: &&mut Saving| saving.retry.is_some_and(|(at, _)| at <= now);
        let Some(batch) = self.saving.as_mut().filter(due).map(|saving| {
            saving.retry = saving.retry.map(|(_, delay)| (Duration::MAX, delay));
            saving.batch.clone()
        }) else {
            return;
        };
        let io = cx.new_io(Io::Checkpoint);
        cx.ask(Effect::Checkpoint { io, batch });
    }

    /// The saved map has, or has not, done the transaction. Gives the checkpoint that is saved.
    pub fn on_saved(&mut self, cx: &mut StoreCx, result: Result<(), MapError>) -> Option<Checkpoint> {
        let mut saving = self.saving.take()?;
        match result {
            Ok(()) => return Some(saving.checkpoint),
            Err(MapError::Refused(what))
                if saving.refused.is_some_and(|since| cx.now().saturating_sub(since) >= REFUSED_FOR) =>
            {
                cx.fail(Failure::Map(MapError::refused_for_long(&what)));
            }
            Err(error @ (MapError::Full(_) | MapError::Refused(_))) if !cx.has_failed() => {
                saving.full = matches!(error, MapError::Full(_));
                saving.refused = saving.refused.or(Some(cx.now())).filter(|_| !saving.full);
                let delay = saving.retry.map_or(RETRY_MIN, |(_, delay)| (delay * 2).min(RETRY_MAX));
                saving.retry = Some((cx.now() + delay, delay));
                self.saving = Some(saving);
                cx.report(Report::NotSaved { error });
            }
            Err(error) => cx.fail(Failure::Map(error)),
        }
        None
    }
}

/// The root, but for where replay begins and the writes that it would not find.
fn root(cx: &StoreCx, groups: &Groups, jobs: &Jobs) -> Root {
    Root {
        identity: *cx.identity(),
        incarnation: cx.log().incarnation(),
        durable: cx.log().durable().max(cx.log().durable_before()),
        position: Position { generation: 0, segment: 0, sequence: 0, previous: 0 },
        groups: groups.iter().map(|(pg, group)| group.row(pg)).collect(),
        jobs: jobs.iter().collect(),
    }
}

/// Hardly any segment is free.
fn is_short(cx: &StoreCx) -> bool {
    cx.segments().free() <= CLEANER_SEGMENTS + ZERO_SEGMENTS
}

/// Where the log's generation `generation` begins.
fn position_of(cx: &StoreCx, generation: u64) -> Position {
    let link = cx.segments().link(generation).or_else(|| cx.log().replaying());
    let link = link.filter(|link| link.generation == generation).expect("the replay position is in the chain");
    Position {
        generation: link.generation,
        segment: link.segment,
        sequence: link.first_sequence,
        previous: link.first_previous,
    }
}

/// Adds the durable writes that are not applied, or not for good dropped, and that replay from generation
/// `position` would not find.
fn save_pending(cx: &StoreCx, groups: &Groups, position: u64, rows: &mut [GroupRow]) {
    let durable = cx.log().durable();
    for row in rows {
        let kept = groups.get(row.pg).into_iter().flat_map(|group| group.pending());
        for pending in kept.chain(groups.dropped(row.pg)).filter(|p| !p.applied) {
            let is_kept = |written: &Written| written.place.log <= durable && written.origin < position;
            let Some(Written { place, origin }) = pending.written.filter(is_kept) else { continue };
            row.pending.push(PendingRow {
                info: PendingRow::kept(&pending.info),
                log: place.log,
                generation: origin,
                address: place.payload,
                checksums: pending.checksums.clone(),
            });
        }
    }
}
