//! Leaves come from the saved map, or don't, and operations wait for them.
//!
//! A leaf that the database refuses to read for the moment is asked for again: readers get an error at once, changes
//! wait.

use crate::cx::Io;
use crate::effect::{Effect, Failure, MapError};
use crate::engine::Engine;
use crate::engine::op::Op;
use crate::map::{DamagedLeaf, LeafKey, SavedLeaf, UnknownBlocks};
use std::collections::VecDeque;

impl Engine {
    /// Asks for the leaves that are wanted.
    pub fn ask_for_leaves(&mut self) {
        while let Some(keys) = self.map.take_loads_wanted() {
            self.load_leaves(keys);
        }
    }

    fn load_leaves(&mut self, keys: Vec<LeafKey>) {
        let io = self.cx.new_io(Io::Leaves(keys.clone()));
        let addresses = self.cx.segments().addresses();
        self.cx.ask(Effect::LoadLeaves { io, keys, addresses });
    }

    /// Leaves came from the saved map.
    pub fn leaves_loaded(&mut self, keys: &[LeafKey], result: Result<Vec<SavedLeaf>, MapError>) {
        let counted = result.and_then(|leaves| match leaves.len() == keys.len() {
            true => Ok(leaves),
            false => Err(MapError::Failed(format!("{} leaves were asked for, {} came", keys.len(), leaves.len()))),
        });
        match counted {
            Ok(leaves) => {
                for (key, leaf) in keys.iter().zip(leaves) {
                    match leaf {
                        SavedLeaf::Refused(damaged) => self.leaf_refused(*key, *damaged, true),
                        leaf => self.map.leaf_loaded(*key, leaf),
                    }
                }
            }
            Err(error @ MapError::Failed(_)) => {
                for key in keys {
                    self.map.load_failed(*key);
                    let ops = self.ops.take((key.pg, key.chunk));
                    ops.into_iter().for_each(|op| self.fail_op(op, &error));
                }
                return self.cx.fail(Failure::Map(error));
            }
            // A leaf that is refused must not take the others with it.
            Err(_) if keys.len() > 1 => {
                keys.iter().for_each(|key| self.load_leaves(vec![*key]));
                return;
            }
            Err(error) => {
                let damaged = DamagedLeaf { what: error.to_string(), stamps: None, own: None };
                keys.iter().for_each(|key| self.leaf_refused(*key, damaged.clone(), false));
            }
        }
        for key in keys {
            let chunk = (key.pg, key.chunk);
            let waited = self.ops.changes_of(chunk);
            self.run_ops(chunk);
            // Not for a leaf that only the cleaner has asked for: it would forget with each of these what it has looked
            // at in vain, and never find that there is nothing to be won.
            if self.ops.changes_of(chunk) < waited {
                self.cleaner.may_retry();
            }
        }
        self.evict();
    }

    /// Lets leaves go that memory has no room for, but not those that operations wait for.
    pub(super) fn evict(&mut self) {
        let ops = &self.ops;
        self.map.evict(|key| ops.waits_for(key));
    }

    /// The saved map does not give a leaf now. Readers are told, what changes the chunk waits. `alone`: it gives
    /// others.
    fn leaf_refused(&mut self, key: LeafKey, damaged: DamagedLeaf, alone: bool) {
        let chunk = (key.pg, key.chunk);
        let error = MapError::Refused(damaged.what.clone());
        let (waits, fails): (VecDeque<Op>, VecDeque<Op>) = self.ops.take(chunk).into_iter().partition(Op::is_change);
        fails.into_iter().for_each(|op| self.fail_op(op, &error));
        if !waits.is_empty() {
            self.map.waiting_refused(chunk);
            self.ops.wait(chunk, waits);
            self.map.leaf_refused(key, self.cx.now(), damaged, alone);
        } else if alone {
            self.map.idle_leaf_refused(key, self.cx.now(), damaged);
        } else {
            self.map.leaf_not_needed(key);
        }
    }

    /// Asks again for leaves that were refused.
    pub fn retry_leaves(&mut self) {
        for key in self.map.refused_leaves_due(self.cx.now()) {
            self.load_leaves(vec![key]);
        }
    }

    /// See [`crate::Store::unknown_blocks`].
    pub fn unknown_blocks(&mut self) -> Vec<UnknownBlocks> {
        let (map, mut s) = self.with_map();
        map.unknown_blocks(&mut s)
    }

    /// The counts of the saved map and its leaves must fit; both come from a disk.
    pub fn check_counts(&mut self) {
        let segment = self.cx.segments_mut().take_mismatch().map(|segment| format!("segment {segment}"));
        let layer = self.map.take_mismatch().map(|layer| format!("layer {layer}"));
        if let Some(of) = segment.or(layer) {
            let what = format!(
                "{of} owns fewer blocks by the saved map than its leaves give up: the device has lost writes that it called \
                 done; let it be replaced by another (azekura store check names what differs)"
            );
            self.cx.fail(Failure::Map(MapError::Failed(what)));
        }
    }
}
