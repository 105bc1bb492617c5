//! Operations are submitted, done in steps, and wait.

use crate::effect::{Completion, Failure, MapError, ReadError};
use crate::engine::Engine;
use crate::engine::op::{ChunkKey, Op};
use crate::map::{LeafKey, MapCx, Step};
use crate::report::Report;
use std::collections::VecDeque;

impl Engine {
    /// Does `op`, now or in its turn.
    pub fn submit(&mut self, chunk: ChunkKey, op: Op) {
        if let Some(queue) = self.ops.of(chunk) {
            queue.push_back(op);
            return;
        }
        match self.step(chunk, &op) {
            Step::Done => {}
            step => {
                if step == Step::Blocked {
                    self.ops.is_blocked(chunk);
                }
                self.ops.wait(chunk, VecDeque::from([op]));
            }
        }
    }

    /// Does `op`, of log position `position`, before everything that waits for a record which is not durable yet.
    pub(super) fn submit_ahead(&mut self, chunk: ChunkKey, position: u64, op: Op) {
        let (groups, durable) = (&self.groups, self.cx.log().durable());
        let place = |pg, sequence| groups.get(pg).and_then(|group| group.place(sequence));
        let Some(index) = self.ops.index_ahead(chunk, (position, durable), &self.repairs, place) else {
            return self.submit(chunk, op);
        };
        if let Some(queue) = self.ops.of(chunk) {
            queue.insert(index, op);
        }
        if index == 0 {
            self.run_ops(chunk);
        }
    }

    /// Goes on with what waits for `chunk`.
    pub(super) fn run_ops(&mut self, chunk: ChunkKey) {
        while let Some(queue) = self.ops.of(chunk) {
            let Some(op) = queue.pop_front() else {
                self.ops.take(chunk);
                return;
            };
            let step = self.step(chunk, &op);
            if step != Step::Done {
                if step == Step::Blocked {
                    self.ops.is_blocked(chunk);
                }
                if let Some(queue) = self.ops.of(chunk) {
                    queue.push_front(op);
                }
                return;
            }
        }
    }

    /// More of the log is durable: goes on with what waited for that.
    pub fn run_blocked(&mut self) {
        for chunk in self.ops.take_blocked() {
            self.run_ops(chunk);
        }
    }

    /// Asks for the leaves of writes that have waited long enough, or take too much memory.
    pub fn settle(&mut self) {
        while let Some(chunk) = self.map.next_to_settle() {
            self.submit(chunk, Op::Settle);
        }
        if self.map.is_over_memory() {
            self.evict();
        }
    }

    /// No operation waits.
    pub fn has_settled(&self) -> bool {
        self.ops.is_empty()
    }

    fn step(&mut self, chunk: ChunkKey, op: &Op) -> Step {
        let s =
            &mut MapCx { cx: &mut self.cx, groups: &mut self.groups, jobs: &mut self.jobs, repairs: &mut self.repairs };
        if let Op::Apply { pg, sequence, stamp } = op
            && self.map.defer_write(s, *pg, *sequence, *stamp)
        {
            return Step::Done;
        }
        // What comes later for the chunk comes behind those that wait.
        let settled = self.map.settle(s, chunk);
        if settled != Step::Done {
            return settled;
        }
        match op {
            Op::Settle => Step::Done,
            Op::Apply { pg, sequence, stamp } => self.map.apply_write(s, *pg, *sequence, *stamp),
            Op::Repair { id } => self.map.apply_repair(s, *id),
            Op::Relocate { moved, place, position } => self.map.apply_relocation(s, moved, *place, *position),
            Op::Read { token, pg, range, gathers } => self.step_read(*token, *pg, *range, *gathers),
            Op::Status { token, pg, layer, chunk } => {
                self.step_status(*token, LeafKey { layer: *layer, chunk: *chunk, pg: *pg })
            }
            Op::Probe(probe) => self.step_probe(probe),
            Op::Digest { token, key } => self.step_digest(*token, *key),
            Op::Measure { token, key } => self.step_measure(*token, *key),
            Op::Difference { token, pg, chunk } => self.step_difference(*token, *pg, *chunk),
            Op::Job { key, job } => self.step_job(*key, *job),
        }
    }

    /// An operation needs a leaf that can't be had: a question can't be answered.
    pub(super) fn fail_op(&mut self, op: Op, error: &MapError) {
        let result = || ReadError::Map(error.clone());
        match op {
            Op::Read { token, .. } => self.cx.complete(Completion::Read { token, result: Err(result()) }),
            Op::Status { token, .. } => self.cx.complete(Completion::Status { token, result: Err(result()) }),
            Op::Digest { token, .. } => self.cx.report(Report::Digest { token, result: Err(result()) }),
            Op::Measure { token, .. } => self.queries.measure_failed(&mut self.cx, token, error.clone()),
            Op::Difference { token, .. } => self.queries.difference_failed(&mut self.cx, token, error.clone()),
            Op::Probe(probe) => self.cleaner.probe_failed(&self.cx, &probe),
            Op::Apply { .. } | Op::Repair { .. } | Op::Relocate { .. } | Op::Settle | Op::Job { .. } => {
                self.cx.fail(Failure::Map(error.clone()));
            }
        }
    }
}
