//! The engine: everything that an operation on the map can touch, and the order of operations.
//!
//! An operation is done at once when the leaves that it needs are in memory. Otherwise it waits, and everything that
//! comes later for the same chunk waits behind it, so that a chunk sees its operations in the order in which they were
//! asked for.
//!
//! ```text
//!             submit
//!               │ nothing waits for the chunk
//!               ▼
//!   ┌───────► step ───────► done
//!   │           │
//!   │           ├─► loading: until its leaves have come, or can't come
//!   │           └─► blocked: until its record is durable
//!   └──────────────┘
//! ```
//!
//! The parts don't know each other's owner: each is handed the context, and the few others that its methods name. Where
//! one part has work for another, that part gives the work back, and the engine passes the work on. The price is that
//! this folder has a line for each such passing on; the gain, that these lines are all there is of it. A step never
//! submits another operation.
//!
//! - `operations.rs`: submitting, stepping, waiting.
//! - `commit.rs`: records are prepared and committed, epochs begin.
//! - `durable.rs`: what the records of a batch do once they are durable.
//! - `background.rs`: the cleaner's questions, and the ends of layers and groups.
//! - `leaves.rs`: leaves come from the saved map, or don't.
//! - `questions.rs`: reads, digests, measurements and comparisons.

mod background;
mod commit;
mod durable;
mod leaves;
mod op;
mod operations;
mod questions;

pub(crate) use op::Op;

use crate::checkpoint::{CheckpointRoot, Sources};
use crate::cleaner::Cleaner;
use crate::cx::StoreCx;
use crate::groups::Groups;
use crate::jobs::Jobs;
use crate::log::Sealing;
use crate::map::{Map, MapCx, Repairs};
use crate::query::Queries;
use crate::read::Reads;
use op::OpQueue;

/// The engine. See the module's description.
#[derive(Debug)]
pub(crate) struct Engine {
    cx: StoreCx,
    groups: Groups,
    jobs: Jobs,
    map: Map,
    repairs: Repairs,
    ops: OpQueue,
    cleaner: Cleaner,
    reads: Reads,
    queries: Queries,
}

impl Engine {
    /// As the checkpoint has it.
    pub fn new(cx: StoreCx, checkpoint: &CheckpointRoot) -> Engine {
        Engine {
            groups: Groups::default(),
            jobs: Jobs::restored(&checkpoint.root.jobs),
            map: Map::new(cx.options(), checkpoint),
            repairs: Repairs::default(),
            ops: OpQueue::default(),
            cleaner: Cleaner::default(),
            reads: Reads::new(cx.options()),
            queries: Queries::default(),
            cx,
        }
    }

    pub fn cx(&self) -> &StoreCx {
        &self.cx
    }

    pub fn cx_mut(&mut self) -> &mut StoreCx {
        &mut self.cx
    }

    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    pub fn groups_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }

    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    pub fn map(&self) -> &Map {
        &self.map
    }

    pub fn map_mut(&mut self) -> &mut Map {
        &mut self.map
    }

    pub fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// Chunks with operations that wait.
    pub fn chunks_waiting(&self) -> usize {
        self.ops.len()
    }

    /// What sealing looks at and changes beside the log.
    pub fn sealing(&mut self, is_saving: bool) -> Sealing<'_> {
        Sealing {
            cx: &mut self.cx,
            groups: &mut self.groups,
            repairs: &mut self.repairs,
            cleaner: &mut self.cleaner,
            jobs: &self.jobs,
            map: &self.map,
            is_saving,
        }
    }

    /// What a checkpoint saves from.
    pub fn sources(&mut self) -> Sources<'_> {
        Sources {
            cx: &mut self.cx,
            map: &mut self.map,
            groups: &mut self.groups,
            jobs: &self.jobs,
            repairs: &self.repairs,
            cleaner: &mut self.cleaner,
        }
    }

    /// The map, and what it is handed.
    fn with_map(&mut self) -> (&mut Map, MapCx<'_>) {
        (
            &mut self.map,
            MapCx { cx: &mut self.cx, groups: &mut self.groups, jobs: &mut self.jobs, repairs: &mut self.repairs },
        )
    }

    /// For tests of what can't be seen from outside.
    #[cfg(test)]
    pub fn parts(&mut self) -> (&mut StoreCx, &mut Groups, &mut Map, &mut Cleaner) {
        (&mut self.cx, &mut self.groups, &mut self.map, &mut self.cleaner)
    }
}
