//! Work in the background: the cleaner's questions to the map, and the ends of layers and groups.

use crate::checkpoint::Checkpoint;
use crate::cleaner::Probe;
use crate::cx::VictimId;
use crate::effect::{DeviceError, IoId, MapError};
use crate::engine::Engine;
use crate::engine::op::Op;
use crate::jobs::Job;
use crate::log::Move;
use crate::map::{Entry, LeafKey, MergedOwner, Step};
use crate::read::Scattered;
use azekura_base::{BlockRange, Extent};
use bytes::Bytes;
use std::collections::BTreeSet;

impl Engine {
    /// Goes on with cleaning, if cleaning is needed.
    pub fn clean(&mut self) {
        self.cleaner.go_on(&mut self.cx, &self.groups, &self.jobs);
        self.probe_more();
    }

    /// A read of the cleaner's has ended.
    pub fn cleaner_has_read(&mut self, io: IoId, result: Result<Bytes, DeviceError>) {
        self.cleaner.on_read(&mut self.cx, &self.jobs, io, result);
    }

    /// Blocks that a client has read lie scattered: they are moved to where they are neighbours, if there is room and
    /// nothing else to do. Of what has been read only that is moved which is still there, and which the leaf owns that
    /// led there. True: something is.
    pub(super) fn gather(&mut self, scattered: Scattered) -> bool {
        let blocks = scattered.blocks();
        if !self.jobs.is_empty() || !self.cleaner.may_gather(&self.cx, &self.groups, blocks) {
            return false;
        }
        let key = scattered.key;
        let Some(leaf) = self.map.leaf_in_memory(key) else { return false };
        let mut moves = Vec::new();
        for (first, old, generation, extent) in scattered.runs() {
            let Extent::Data { bytes, checksums } = extent else { continue };
            let range = BlockRange { layer: key.layer, chunk: key.chunk, first, count: checksums.len() as u16 };
            let is_there =
                |(entry, address): (&Entry, u32)| entry.is_own() && !entry.is_lost() && entry.address == address;
            let are_there = leaf.entries.of(range.indexes()).zip(old..).all(is_there);
            let (bytes, checksums) = (bytes.clone(), checksums.clone());
            if are_there && self.cleaner.may_move_from(&self.cx, &self.groups, old, generation) {
                moves.push(Move { pg: key.pg, range, old, bytes, checksums });
            }
        }
        self.cleaner.gather(&mut self.cx, moves)
    }

    /// Moved blocks are durable in a segment of their own.
    pub fn moves_written(&mut self, io: IoId) {
        self.cleaner.moves_written(&mut self.cx, io);
    }

    /// The saved map has listed the merged owners of a segment that is being emptied.
    pub fn merged_owners_listed(&mut self, victim: VictimId, result: Result<Vec<MergedOwner>, MapError>) {
        if self.cleaner.merged_owners_listed(&mut self.cx, self.map.merged_owners(), &self.jobs, victim, result) {
            self.probe_more();
        }
    }

    fn probe_more(&mut self) {
        while let Some(probe) = self.cleaner.next_probe(&mut self.cx, &mut self.groups, &self.jobs) {
            let position = self.cx.log().durable_position();
            self.submit_ahead((probe.key.pg, probe.key.chunk), position, Op::Probe(probe));
        }
    }

    /// The cleaner wants to know what is live.
    pub(super) fn step_probe(&mut self, probe: &Probe) -> Step {
        let (map, mut s) = self.with_map();
        let slot = match map.leaf_here(&mut s, probe.key) {
            Ok(slot) => slot,
            Err(step) => return step,
        };
        self.cleaner.probed(probe, slot.and_then(|slot| self.map.leaf(slot)));
        Step::Done
    }

    /// The record that begins `job`, in `segment`, is durable or replayed.
    pub fn begin_job(&mut self, job: Job, segment: u32) {
        self.cleaner.owners_change();
        if let Job::ForgetGroup(pg) = job {
            self.groups.empty(self.cx.segments_mut(), pg);
        }
        if self.jobs.add(job, segment) {
            self.run_jobs();
        } else {
            self.cx.segments_mut().release(segment);
        }
    }

    /// Begins what can be begun.
    pub fn run_jobs(&mut self) {
        if self.jobs.is_empty() || !self.cx.is_running() {
            return;
        }
        for job in self.jobs.waiting() {
            let blocked = match job {
                // What is applied to the layer after the sweep would not come to the child.
                Job::MergeLayer { layer, .. } => {
                    self.jobs.merged_into(layer).is_some()
                        || self.groups.waits_to_write(layer)
                        || self.groups.may_come_back(layer)
                        || self.repairs.wait_for(layer)
                }
                Job::DropLayer(layer) => self.jobs.merged_into(layer).is_some(),
                Job::ForgetGroup(_) => false,
            };
            if !blocked {
                if let Job::ForgetGroup(pg) = job {
                    self.groups.empty(self.cx.segments_mut(), pg);
                }
                let keys = match job {
                    Job::DropLayer(layer) | Job::MergeLayer { layer, .. } => self.map.present(|key| key.layer == layer),
                    Job::ForgetGroup(pg) => self.map.present(|key| key.pg == pg),
                };
                self.jobs.start_sweep(job);
                self.sweep(job, keys.into_iter().collect());
            }
        }
    }

    /// Takes a step of the sweep over these leaves.
    fn sweep(&mut self, job: Job, keys: BTreeSet<LeafKey>) {
        if !self.jobs.start_step(job, keys.len()) {
            return;
        }
        for key in keys {
            self.submit((key.pg, key.chunk), Op::Job { key, job });
        }
        self.leaf_swept(job);
    }

    /// Does to one leaf what a job is about.
    pub(super) fn step_job(&mut self, key: LeafKey, job: Job) -> Step {
        let (map, mut s) = self.with_map();
        let step = match job {
            Job::DropLayer(_) | Job::ForgetGroup(_) => map.drop_leaf(&mut s, key),
            Job::MergeLayer { into, .. } => map.merge_leaf(&mut s, key, into),
        };
        if step == Step::Done {
            self.leaf_swept(job);
        }
        step
    }

    /// The job has done what it does to one leaf.
    fn leaf_swept(&mut self, job: Job) {
        let over = self.jobs.leaf_swept(&mut self.cx, job);
        if let (true, Job::DropLayer(layer) | Job::MergeLayer { layer, .. }) = (over, job) {
            self.cleaner.forget_layer(&mut self.cx, layer);
        }
    }

    /// Asks again for lists that the saved map has refused.
    pub fn retry_listings(&mut self) {
        for job in self.jobs.listings_due(self.cx.now()) {
            self.leaf_swept(job);
        }
    }

    /// The saved map has listed some leaves for a job.
    pub fn job_listed(&mut self, job: Job, result: Result<Vec<LeafKey>, MapError>) {
        if let Some(keys) = self.jobs.listed(&mut self.cx, job, result) {
            self.sweep(job, keys.into_iter().collect());
        }
    }

    /// A checkpoint is saved.
    pub fn checkpointed(&mut self, saved: &Checkpoint) {
        self.cleaner.checkpointed(self.map.merged_owners());
        self.map.saved(&saved.leaves);
        let freed = self.cx.segments_mut().end_checkpoint(saved.position);
        self.cx.counters().cleaned_segments += freed.len() as u64;
        self.cx.counters().checkpoints += 1;
        self.evict();
        self.jobs.saved(&mut self.cx, &mut self.groups, &self.repairs, &saved.jobs, &saved.over);
        self.run_jobs();
    }
}
