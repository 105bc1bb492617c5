//! The stores of this node's devices: what is under way in them, and what comes of it.

use crate::errors::Errors;
use crate::hanging::Hanging;
use crate::pending::PendingOp;
use crate::reads::Reads;
use azekura_base::{LayerId, PgId, Slab};
use azekura_store::Store;
use std::collections::BTreeSet;
use std::time::Duration;

mod steps;

/// A device and its store.
pub(crate) struct Device {
    pub(crate) store: Store,
    pub(crate) open: bool,
    /// The store takes no more data.
    pub(crate) full: bool,
    pub(crate) pending: Slab<PendingOp>,
    /// Layers whose dropping has been started.
    dropping: BTreeSet<LayerId>,
    /// Layers whose merging has been started.
    pub(crate) merging: BTreeSet<LayerId>,
    /// Groups whose copy is being given up, or is, and the configuration does not know it yet.
    forgetting: BTreeSet<PgId>,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) errors: Errors,
    pub(crate) reads: Reads,
    /// When it next names what it knows nothing of.
    pub(crate) unknown_at: Duration,
    pub(crate) hanging: Hanging,
    /// When the condition of the device is looked at next.
    pub(crate) look_at: Duration,
}

/// Checkpoints of a device's map, and the notes of groups that go into them.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// One is being saved.
    under_way: bool,
    /// Notes that groups want kept: those for the next checkpoint, and those in the present one.
    wanted: Vec<(PgId, u64)>,
    saving: Vec<(PgId, u64)>,
}

impl Checkpoints {
    /// A group wants its note kept.
    pub(crate) fn wants_note(&mut self, pg: PgId, name: u64) {
        self.wanted.push((pg, name));
    }

    /// Begins a checkpoint, if that is due, or wanted for a note. False while another is under way.
    pub(crate) fn begin(&mut self, due: impl FnOnce() -> bool) -> bool {
        let begins = (!self.wanted.is_empty() || due()) && !self.under_way;
        if begins {
            self.under_way = true;
            self.saving = std::mem::take(&mut self.wanted);
        }
        begins
    }

    /// The checkpoint is saved. Gives the notes that are in it.
    fn saved(&mut self) -> Vec<(PgId, u64)> {
        self.under_way = false;
        std::mem::take(&mut self.saving)
    }
}

impl Device {
    /// What a token of the store's means.
    pub(crate) fn take_pending(&mut self, token: u64) -> Option<PendingOp> {
        self.pending.remove(token)
    }
}
