//! Work in the background on all leaves of a layer or of a group: the end of a layer, the merging of a layer into its
//! only child, the end of a group.
//!
//! A job begins with a record in the log and is kept in every checkpoint from then on, so that it goes on after a
//! crash. It sweeps over the leaves, a few at a time: first those that only memory has, then those of the saved map.
//! What a sweep does to a leaf can be done again without harm. When the sweep has ended, the job waits until a
//! checkpoint has saved all of it *and* replay begins behind it: no record from before the job is ever replayed after
//! its end.

use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, Failure, MapError};
use crate::groups::Groups;
use crate::leaf::LeafKey;
use crate::ops::Op;
use crate::report::Report;
use crate::segments::{GC_SEGMENTS, ZERO_SEGMENTS};
use crate::store::Store;
use azekura_base::{ChunkIndex, LayerId, PgId, Sequence};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Leaves that one step of a sweep looks at.
const LEAVES_PER_STEP: usize = 64;
/// A list of leaves that the saved map refuses to give is asked for again after this time.
const LISTING_PAUSE: Duration = Duration::from_secs(1);
/// A job whose end waits for the open segment to be full has it ended early after this time.
const ROLL_AGE: Duration = Duration::from_secs(30);

/// What a job is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// All that a layer holds is given up.
    DropLayer(LayerId),
    /// What a layer holds goes to its only child, or is given up if the child has its own.
    MergeLayer {
        /// The layer that ends.
        layer: LayerId,
        /// Its only child.
        into: LayerId,
    },
    /// All that a group holds on this device is given up.
    ForgetGroup(PgId),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not begun in this life of the store.
    Waiting,
    /// Leaves are being looked at.
    Sweeping {
        /// Where to ask the saved map next; `None` once it has no more.
        from: Option<(LayerId, ChunkIndex)>,
        /// Leaves of the step that are not done yet.
        left: usize,
    },
    /// All leaves have been looked at.
    Swept {
        /// The log generation then: all that was changed is saved once replay begins behind it.
        generation: u64,
        /// Nothing was in the log of that generation yet: it is enough that replay begins with it, once no leaf is left
        /// that was changed in it. A device that rests after it was opened gets no further.
        fresh: bool,
        since: Duration,
    },
    /// The layer's end is over and told; but there is a write to it that may still be committed, and has to be passed
    /// over then.
    Gone {
        /// The log generation that replay has to be past.
        generation: u64,
    },
}

/// A job and its state.
#[derive(Debug)]
struct Running {
    stage: Stage,
    /// The segment of its record, held until a checkpoint has the job.
    held: Option<u32>,
    /// The saved map did not list the leaves of the next step: it is asked again then.
    list_at: Option<Duration>,
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<Job, Running>,
}

impl Jobs {
    pub fn restored(jobs: &[Job]) -> Jobs {
        let waiting = |job: &Job| (*job, Running { stage: Stage::Waiting, held: None, list_at: None });
        Jobs { jobs: jobs.iter().map(waiting).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.keys().copied()
    }

    /// The layer is being merged into its child.
    pub fn is_merging(&self, layer: LayerId) -> bool {
        let from = Job::MergeLayer { layer, into: LayerId(0) };
        self.jobs
            .range(from..)
            .next()
            .is_some_and(|(job, _)| matches!(job, Job::MergeLayer { layer: l, .. } if *l == layer))
    }

    /// The layer that is being merged into `layer`, whose own end has to wait for that.
    pub fn merged_into(&self, layer: LayerId) -> Option<LayerId> {
        self.jobs.keys().find_map(|job| match *job {
            Job::MergeLayer { layer: merged, into } if into == layer => Some(merged),
            _ => None,
        })
    }

    /// Another layer is being merged into `layer`.
    fn is_heir(&self, layer: LayerId) -> bool {
        self.merged_into(layer).is_some()
    }

    /// A record of log `generation` was passed over because its layer ends: a replay must not meet it after that.
    pub fn passed_over(&mut self, layer: LayerId, generation: u64) {
        match self.jobs.get_mut(&Job::DropLayer(layer)).map(|running| &mut running.stage) {
            Some(Stage::Swept { generation: swept, fresh, .. }) if generation >= *swept => {
                (*swept, *fresh) = (generation, false);
            }
            Some(Stage::Gone { generation: last }) => *last = generation.max(*last),
            _ => {}
        }
    }

    /// Jobs that are over when a checkpoint at `position` is saved, after which the oldest unsaved change is of
    /// generation `dirty`.
    pub fn over(&self, position: u64, dirty: Option<u64>, groups: &Groups) -> Vec<Job> {
        let over = |(job, running): &(&Job, &Running)| {
            let swept = match running.stage {
                Stage::Swept { generation, fresh: true, .. } => {
                    generation <= position && dirty.is_none_or(|dirty| dirty > generation)
                }
                Stage::Swept { generation, fresh: false, .. } | Stage::Gone { generation } => generation < position,
                _ => false,
            };
            // Committed writes of a forgotten group may still wait to be passed over.
            let emptied = |pg: PgId| groups.get(pg).is_none_or(|group| group.pending.is_empty());
            swept && !matches!(**job, Job::ForgetGroup(pg) if !emptied(pg))
        };
        self.jobs.iter().filter(over).map(|(job, _)| *job).collect()
    }

    /// The job is over, but has to be kept: there is a write to the layer that may still be committed.
    pub fn lingers(&self, job: Job, groups: &Groups) -> bool {
        matches!(job, Job::DropLayer(layer) if groups.waits_to_write(layer) || groups.may_come_back(layer))
    }

    /// Replay can't get past the record of a job, because no checkpoint has that job yet.
    pub fn hold_replay(&self) -> bool {
        self.jobs.values().any(|running| running.held.is_some())
    }

    /// A job is to end soon, and replay can't get past the record of this or another one, because no checkpoint has
    /// that yet. A device that rests would save none.
    pub fn wants_to_be_saved(&self, now: Duration) -> bool {
        let due = |(job, running): (&Job, &Running)| match running.stage {
            Stage::Swept { since, .. } => is_urgent(*job, since, now),
            _ => false,
        };
        self.hold_replay() && self.jobs.iter().any(due)
    }

    /// The open segment has to be ended early, so that a job can end.
    pub fn wait_for_roll(&self, cx: &StoreCx) -> bool {
        let Some((head, _)) = cx.log().head().filter(|(_, block)| *block > 0) else { return false };
        let waits = |(job, running): (&Job, &Running)| match running.stage {
            Stage::Swept { generation, since, fresh: false } => {
                generation >= head.generation && is_urgent(*job, since, cx.now())
            }
            _ => false,
        };
        cx.segments().free() > GC_SEGMENTS + ZERO_SEGMENTS && self.jobs.iter().any(waits)
    }

    /// The youngest log generation that a checkpoint has to get behind for the sake of a job, of those before `limit`.
    pub fn wants_position(&self, limit: u64) -> Option<u64> {
        let swept = |running: &Running| match running.stage {
            Stage::Swept { generation, fresh, .. } => {
                let limit = if fresh { limit.saturating_add(1) } else { limit };
                Some(generation).filter(|generation| *generation < limit)
            }
            _ => None,
        };
        self.jobs.values().filter_map(swept).max()
    }
}

impl Store {
    /// The record that begins `job`, in `segment`, is durable or replayed.
    pub(crate) fn begin_job(&mut self, job: Job, segment: u32) {
        self.cleaner.owners_change();
        let over = match job {
            Job::DropLayer(layer) => {
                self.dropped.insert(layer);
                false
            }
            // It was merged, and what is left of it is being removed.
            Job::MergeLayer { layer, .. } => self.dropped.contains(&layer),
            Job::ForgetGroup(pg) => {
                self.empty_group(pg);
                false
            }
        };
        if over || self.jobs.jobs.contains_key(&job) {
            self.cx.segments_mut().release(segment);
            return;
        }
        self.jobs.jobs.insert(job, Running { stage: Stage::Waiting, held: Some(segment), list_at: None });
        self.run_jobs();
    }

    /// Drops what a group that is being forgotten has not committed.
    pub(crate) fn empty_group(&mut self, pg: PgId) {
        let group = self.groups.get_mut(pg);
        (group.forgetting, group.forgotten) = (true, true);
        let committed = group.committed;
        let kept = group.pending.partition_point(|p| p.info.header.sequence <= committed);
        let dropped = group.pending.split_off(kept);
        group.prepared_end = committed;
        group.durable_end = group.durable_end.min(committed);
        dropped.iter().for_each(|pending| pending.unpin(self.cx.segments_mut()));
    }

    /// Begins what can be begun, and ends the open segment for a job that waits for it.
    pub(crate) fn run_jobs(&mut self) {
        if self.jobs.is_empty() || !self.cx.is_running() {
            return;
        }
        let waiting = |(job, running): (&Job, &Running)| (running.stage == Stage::Waiting).then_some(*job);
        let begin: Vec<Job> = self.jobs.jobs.iter().filter_map(waiting).collect();
        for job in begin {
            let blocked = match job {
                // What is applied to the layer after the sweep would not come to the child.
                Job::MergeLayer { layer, .. } => {
                    self.jobs.is_heir(layer)
                        || self.groups.waits_to_write(layer)
                        || self.groups.may_come_back(layer)
                        || self.copies.wait_for(layer)
                }
                Job::DropLayer(layer) => self.jobs.is_heir(layer),
                Job::ForgetGroup(_) => false,
            };
            if !blocked {
                if let Job::ForgetGroup(pg) = job {
                    self.empty_group(pg);
                }
                let keys = match job {
                    Job::DropLayer(layer) | Job::MergeLayer { layer, .. } => {
                        self.cache.present(|key| key.layer == layer)
                    }
                    Job::ForgetGroup(pg) => self.cache.present(|key| key.pg == pg),
                };
                self.set_stage(job, Stage::Sweeping { from: Some((LayerId(0), ChunkIndex(0))), left: 0 });
                self.sweep(job, keys);
            }
        }
    }

    fn set_stage(&mut self, job: Job, stage: Stage) {
        if let Some(running) = self.jobs.jobs.get_mut(&job) {
            running.stage = stage;
        }
    }

    /// Takes a step of the sweep over these leaves.
    fn sweep(&mut self, job: Job, keys: impl IntoIterator<Item = LeafKey>) {
        let keys: BTreeSet<LeafKey> = keys.into_iter().collect();
        let Some(Running { stage: Stage::Sweeping { left, .. }, .. }) = self.jobs.jobs.get_mut(&job) else { return };
        // One more than there are: the step must not end while it is being started.
        *left = keys.len() + 1;
        for key in keys {
            self.submit((key.pg, key.chunk), Op::Job { key, job });
        }
        self.leaf_swept(job);
    }

    /// The job has done what it does to one leaf.
    pub(crate) fn leaf_swept(&mut self, job: Job) {
        let Some(Running { stage: Stage::Sweeping { from, left }, .. }) = self.jobs.jobs.get_mut(&job) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let from = *from;
        match (from, job) {
            (Some((_, chunk)), Job::DropLayer(layer) | Job::MergeLayer { layer, .. }) => {
                let io = self.cx.new_io(Io::Job(job));
                self.cx.ask(Effect::ScanLayer { io, layer, from: chunk, limit: LEAVES_PER_STEP });
            }
            (Some(from), Job::ForgetGroup(pg)) => {
                let io = self.cx.new_io(Io::Job(job));
                let after = Sequence::ZERO;
                self.cx.ask(Effect::ScanModified { io, pg, after, from, limit: LEAVES_PER_STEP });
            }
            (None, _) => {
                if let Job::DropLayer(layer) | Job::MergeLayer { layer, .. } = job {
                    self.cleaner.forget_layer(layer);
                }
                let (generation, block) = self.cx.log().head().map_or((0, 0), |(link, block)| (link.generation, block));
                self.set_stage(job, Stage::Swept { generation, fresh: block == 0, since: self.cx.now() });
            }
        }
    }

    /// Asks again for lists that the saved map has refused.
    pub(crate) fn retry_listings(&mut self) {
        let now = self.cx.now();
        let due = |(job, running): (&Job, &mut Running)| {
            running.list_at.take_if(|at| *at <= now)?;
            let Stage::Sweeping { left, .. } = &mut running.stage else { return None };
            *left = 1;
            Some(*job)
        };
        let due: Vec<Job> = self.jobs.jobs.iter_mut().filter_map(due).collect();
        due.into_iter().for_each(|job| self.leaf_swept(job));
    }

    /// The saved map has listed some leaves for a job.
    pub(crate) fn job_listed(&mut self, job: Job, result: Result<Vec<LeafKey>, MapError>) {
        let keys = match result {
            Ok(keys) => keys,
            Err(error @ MapError::Failed(_)) => return self.cx.fail(Failure::Map(error)),
            // It can't be read now: the list is asked for again.
            Err(_) => {
                if let Some(running) = self.jobs.jobs.get_mut(&job) {
                    running.list_at = Some(self.cx.now() + LISTING_PAUSE);
                }
                return;
            }
        };
        let last = keys.last().filter(|_| keys.len() >= LEAVES_PER_STEP);
        let next = last.and_then(|key| following(key.layer, key.chunk));
        if let Some(Running { stage: Stage::Sweeping { from, .. }, .. }) = self.jobs.jobs.get_mut(&job) {
            // A layer's leaves are asked for by chunk: there is nothing behind the last chunk.
            *from = match job {
                Job::ForgetGroup(_) => next,
                _ => next.filter(|(layer, _)| last.is_some_and(|key| key.layer == *layer)),
            };
        }
        self.sweep(job, keys);
    }

    /// A checkpoint has been saved that has `listed` jobs, and for which `over` are over.
    pub(crate) fn jobs_saved(&mut self, listed: &[Job], over: &[Job]) {
        for job in listed {
            let held = self.jobs.jobs.get_mut(job).and_then(|running| running.held.take());
            held.into_iter().for_each(|segment| self.cx.segments_mut().release(segment));
        }
        for job in over {
            let Some(running) = self.jobs.jobs.remove(job) else { continue };
            running.held.into_iter().for_each(|segment| self.cx.segments_mut().release(segment));
            match *job {
                Job::DropLayer(layer) => {
                    let told = matches!(running.stage, Stage::Gone { .. });
                    if !told {
                        self.cx.report(Report::LayerGone { layer });
                    }
                    if self.jobs.lingers(*job, &self.groups) {
                        let generation = self.cx.log().generation();
                        self.jobs
                            .jobs
                            .insert(*job, Running { stage: Stage::Gone { generation }, held: None, list_at: None });
                    } else {
                        self.dropped.remove(&layer);
                    }
                }
                Job::ForgetGroup(pg) => {
                    self.groups.remove(pg);
                    self.cx.report(Report::Forgotten { pg });
                }
                // Its leaves are empty now: what is left is to remove them.
                Job::MergeLayer { layer, .. } => {
                    self.dropped.insert(layer);
                    self.jobs
                        .jobs
                        .insert(Job::DropLayer(layer), Running { stage: Stage::Waiting, held: None, list_at: None });
                }
            }
        }
        self.run_jobs();
    }
}

/// The end of a job that was swept at `since` is not to wait for what clients write: the end of a group at once, since
/// somebody waits for it.
fn is_urgent(job: Job, since: Duration, now: Duration) -> bool {
    matches!(job, Job::ForgetGroup(_)) || now.saturating_sub(since) >= ROLL_AGE
}

/// The place that follows a leaf in the order of layers and chunks.
pub(crate) fn following(layer: LayerId, chunk: ChunkIndex) -> Option<(LayerId, ChunkIndex)> {
    match chunk.0.checked_add(1) {
        Some(next) => Some((layer, ChunkIndex(next))),
        None => layer.0.checked_add(1).map(|next| (LayerId(next), ChunkIndex(0))),
    }
}
