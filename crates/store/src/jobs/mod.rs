//! Work in the background on all leaves of a layer or of a group: the end of a layer, the merging of a layer into its
//! only child, the end of a group.
//!
//! A job begins with a record in the log and is kept in every checkpoint from then on, so that it goes on after a
//! crash. It sweeps over the leaves, a few at a time: first those that only memory has, then those of the saved map.
//! What a sweep does to a leaf can be done again without harm. When the sweep has ended, the job waits until a
//! checkpoint has saved all of it *and* replay begins behind it: no record from before the job is ever replayed after
//! its end.

mod job;

pub use job::Job;

use crate::cx::{Io, StoreCx};
use crate::effect::{Effect, Failure, MapError};
use crate::groups::Groups;
use crate::map::LeafKey;
use crate::map::Repairs;
use crate::report::Report;
use crate::segments::{CLEANER_SEGMENTS, Link, ZERO_SEGMENTS};
use azekura_base::{ChunkIndex, LayerId, Sequence};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Leaves that one step of a sweep looks at.
const LEAVES_PER_STEP: usize = 64;
/// A list of leaves that the saved map refuses to give is asked for again after this time.
const LISTING_PAUSE: Duration = Duration::from_secs(1);
/// A job whose end waits for the open segment to be full has it ended early after this time.
const ROLL_AGE: Duration = Duration::from_secs(30);

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
struct JobState {
    stage: Stage,
    /// The segment of its record, held until a checkpoint has the job.
    held: Option<u32>,
    /// The saved map did not list the leaves of the next step: the map is asked again then.
    list_at: Option<Duration>,
}

/// Committed writes of a forgotten group may still wait to be passed over: until then no checkpoint ends the job.
fn may_end(job: Job, groups: &Groups) -> bool {
    match job {
        Job::ForgetGroup(pg) => groups.get(pg).is_none_or(|group| group.is_settled()),
        Job::DropLayer(_) | Job::MergeLayer { .. } => true,
    }
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: BTreeMap<Job, JobState>,
    /// Layers that are given up: late writes to them are passed over.
    dropped: BTreeSet<LayerId>,
}

impl Jobs {
    pub fn restored(jobs: &[Job]) -> Jobs {
        let waiting = |job: &Job| (*job, JobState { stage: Stage::Waiting, held: None, list_at: None });
        let layer = |job: &Job| match job {
            Job::DropLayer(layer) => Some(*layer),
            Job::MergeLayer { .. } | Job::ForgetGroup(_) => None,
        };
        Jobs { jobs: jobs.iter().map(waiting).collect(), dropped: jobs.iter().filter_map(layer).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Job> + '_ {
        self.jobs.keys().copied()
    }

    /// The layer is being given up, or is not quite gone yet.
    pub fn is_dropped(&self, layer: LayerId) -> bool {
        self.dropped.contains(&layer)
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
        let over = |(job, running): &(&Job, &JobState)| {
            let swept = match running.stage {
                Stage::Swept { generation, fresh: true, .. } => {
                    generation <= position && dirty.is_none_or(|dirty| dirty > generation)
                }
                Stage::Swept { generation, fresh: false, .. } | Stage::Gone { generation } => generation < position,
                _ => false,
            };
            swept && may_end(**job, groups)
        };
        self.jobs.iter().filter(over).map(|(job, _)| *job).collect()
    }

    /// The job is over, but has to be kept: there is a write to the layer that may still be committed, or a repair that
    /// waits. Who forgets the job would apply those, and nobody would remove the leaf.
    pub fn lingers(&self, job: Job, groups: &Groups, repairs: &Repairs) -> bool {
        let Job::DropLayer(layer) = job else { return false };
        groups.waits_to_write(layer) || groups.may_come_back(layer) || repairs.wait_for(layer)
    }

    /// Replay can't get past the record of a job, because no checkpoint has that job yet.
    pub fn hold_replay(&self) -> bool {
        self.jobs.values().any(|running| running.held.is_some())
    }

    /// A job is to end soon, and replay can't get past the record of this or another one, because no checkpoint has
    /// that yet. A device that rests would save none.
    pub fn wants_to_be_saved(&self, now: Duration) -> bool {
        let due = |(job, running): (&Job, &JobState)| match running.stage {
            Stage::Swept { since, .. } => is_urgent(*job, since, now),
            _ => false,
        };
        self.hold_replay() && self.jobs.iter().any(due)
    }

    /// The open segment has to be ended early, so that a job can end.
    pub fn wait_for_roll(&self, cx: &StoreCx) -> bool {
        let Some((head, _)) = cx.log().head().filter(|(_, block)| *block > 0) else { return false };
        let waits = |(job, running): (&Job, &JobState)| match running.stage {
            Stage::Swept { generation, since, fresh: false } => {
                generation >= head.generation && is_urgent(*job, since, cx.now())
            }
            _ => false,
        };
        cx.segments().free() > CLEANER_SEGMENTS + ZERO_SEGMENTS && self.jobs.iter().any(waits)
    }

    /// The youngest log generation that a checkpoint has to get behind for the sake of a job, of those before `limit`.
    pub fn wants_position(&self, limit: u64, groups: &Groups) -> Option<u64> {
        let swept = |(job, running): (&Job, &JobState)| match running.stage {
            Stage::Swept { generation, fresh, .. } if may_end(*job, groups) => {
                let limit = if fresh { limit.saturating_add(1) } else { limit };
                Some(generation).filter(|generation| *generation < limit)
            }
            _ => None,
        };
        self.jobs.iter().filter_map(swept).max()
    }

    /// A job whose record, in `segment`, is durable or replayed. False: the job is there already, or over.
    pub fn add(&mut self, job: Job, segment: u32) -> bool {
        let over = match job {
            Job::DropLayer(layer) => {
                self.dropped.insert(layer);
                false
            }
            // The layer was merged, and what is left of the layer is being removed.
            Job::MergeLayer { layer, .. } => self.dropped.contains(&layer),
            Job::ForgetGroup(_) => false,
        };
        if over || self.jobs.contains_key(&job) {
            return false;
        }
        self.jobs.insert(job, JobState { stage: Stage::Waiting, held: Some(segment), list_at: None });
        true
    }

    /// Jobs that have not begun in this life of the store.
    pub fn waiting(&self) -> Vec<Job> {
        let waiting = |(job, running): (&Job, &JobState)| (running.stage == Stage::Waiting).then_some(*job);
        self.jobs.iter().filter_map(waiting).collect()
    }

    fn set_stage(&mut self, job: Job, stage: Stage) {
        if let Some(running) = self.jobs.get_mut(&job) {
            running.stage = stage;
        }
    }

    /// The job begins to look at leaves.
    pub fn start_sweep(&mut self, job: Job) {
        self.set_stage(job, Stage::Sweeping { from: Some((LayerId(0), ChunkIndex(0))), left: 0 });
    }

    /// A step of a sweep over so many leaves begins; [`Jobs::leaf_swept`] is to be called once more than there are,
    /// since the step must not end while it is being started. False: the job is not sweeping.
    pub fn start_step(&mut self, job: Job, leaves: usize) -> bool {
        let Some(JobState { stage: Stage::Sweeping { left, .. }, .. }) = self.jobs.get_mut(&job) else { return false };
        *left = leaves + 1;
        true
    }

    /// The job has done what it does to one leaf. True: all leaves have been looked at.
    pub fn leaf_swept(&mut self, cx: &mut StoreCx, job: Job) -> bool {
        let Some(JobState { stage: Stage::Sweeping { from, left }, .. }) = self.jobs.get_mut(&job) else {
            return false;
        };
        *left -= 1;
        if *left > 0 {
            return false;
        }
        match (*from, job) {
            (Some((_, chunk)), Job::DropLayer(layer) | Job::MergeLayer { layer, .. }) => {
                let io = cx.new_io(Io::Job(job));
                cx.ask(Effect::ScanLayer { io, layer, from: chunk, limit: LEAVES_PER_STEP });
                false
            }
            (Some(from), Job::ForgetGroup(pg)) => {
                let io = cx.new_io(Io::Job(job));
                let after = Sequence::ZERO;
                cx.ask(Effect::ScanModified { io, pg, after, from, limit: LEAVES_PER_STEP });
                false
            }
            (None, _) => {
                let (Link { generation, .. }, block) = cx.log().open_segment();
                self.set_stage(job, Stage::Swept { generation, fresh: block == 0, since: cx.now() });
                true
            }
        }
    }

    /// Jobs whose lists the saved map has refused, and is to be asked for again: [`Jobs::leaf_swept`] does.
    pub fn listings_due(&mut self, now: Duration) -> Vec<Job> {
        let due = |(job, running): (&Job, &mut JobState)| {
            running.list_at.take_if(|at| *at <= now)?;
            let Stage::Sweeping { left, .. } = &mut running.stage else { return None };
            *left = 1;
            Some(*job)
        };
        self.jobs.iter_mut().filter_map(due).collect()
    }

    /// The saved map has, or has not, listed some leaves for a job. Gives those of the next step.
    pub fn listed(
        &mut self,
        cx: &mut StoreCx,
        job: Job,
        result: Result<Vec<LeafKey>, MapError>,
    ) -> Option<Vec<LeafKey>> {
        let keys = match result {
            Ok(keys) => keys,
            Err(error @ MapError::Failed(_)) => {
                cx.fail(Failure::Map(error));
                return None;
            }
            // The map can't be read now: the list is asked for again.
            Err(_) => {
                if let Some(running) = self.jobs.get_mut(&job) {
                    running.list_at = Some(cx.now() + LISTING_PAUSE);
                }
                return None;
            }
        };
        let last = keys.last().filter(|_| keys.len() >= LEAVES_PER_STEP);
        let next = last.and_then(|key| key.following());
        if let Some(JobState { stage: Stage::Sweeping { from, .. }, .. }) = self.jobs.get_mut(&job) {
            // A layer's leaves are asked for by chunk: there is nothing behind the last chunk.
            *from = match job {
                Job::ForgetGroup(_) => next,
                _ => next.filter(|(layer, _)| last.is_some_and(|key| key.layer == *layer)),
            };
        }
        Some(keys)
    }

    /// A checkpoint has been saved that has `listed` jobs, and for which `over` are over.
    pub fn saved(&mut self, cx: &mut StoreCx, groups: &mut Groups, repairs: &Repairs, listed: &[Job], over: &[Job]) {
        for job in listed {
            let held = self.jobs.get_mut(job).and_then(|running| running.held.take());
            held.into_iter().for_each(|segment| cx.segments_mut().release(segment));
        }
        for job in over {
            let Some(running) = self.jobs.remove(job) else { continue };
            running.held.into_iter().for_each(|segment| cx.segments_mut().release(segment));
            match *job {
                Job::DropLayer(layer) => {
                    let reported = matches!(running.stage, Stage::Gone { .. });
                    if !reported {
                        cx.report(Report::LayerGone { layer });
                    }
                    if self.lingers(*job, groups, repairs) {
                        let generation = cx.log().generation();
                        self.jobs
                            .insert(*job, JobState { stage: Stage::Gone { generation }, held: None, list_at: None });
                    } else {
                        self.dropped.remove(&layer);
                    }
                }
                Job::ForgetGroup(pg) => {
                    groups.remove(pg);
                    cx.report(Report::Forgotten { pg });
                }
                // The layer's leaves are empty now: what is left is to remove them.
                Job::MergeLayer { layer, .. } => {
                    self.dropped.insert(layer);
                    self.jobs
                        .insert(Job::DropLayer(layer), JobState { stage: Stage::Waiting, held: None, list_at: None });
                }
            }
        }
    }
}

/// The end of a job that was swept at `since` is not to wait for what clients write: the end of a group at once, since
/// somebody waits for it.
fn is_urgent(job: Job, since: Duration, now: Duration) -> bool {
    matches!(job, Job::ForgetGroup(_)) || now.saturating_sub(since) >= ROLL_AGE
}
