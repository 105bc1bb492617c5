//! How keys are changed, taken away and lied about, and whom nodes may talk with.

use super::Change;
use crate::cue::Cue;
use crate::kernel::process::Life;
use crate::plan::Mode;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{Endpoint, NodeId, PeerKey};
use azekura_model::transitions::keys::{add_key, remove_key, replace_keys, take_keys};
use std::collections::BTreeSet;
use std::time::Duration;

/// Pause between two looks whether a change can go on.
const STEP: Duration = Duration::from_millis(100);

impl World {
    /// A node whose key nobody is busy with.
    fn pick_for_keys(&mut self) -> Option<NodeId> {
        let keys = &mut self.scene.faults.keys;
        let nodes: Vec<NodeId> = self.machines.keys().copied().filter(|node| keys.is_at_rest(*node)).collect();
        (!nodes.is_empty()).then(|| *keys.random.pick(&nodes))
    }

    /// The change of a node's key begins.
    pub(in crate::faults) fn change_a_key(&mut self) -> &'static str {
        let Some(node) = self.pick_for_keys() else { return "nothing" };
        let keys = &mut self.scene.faults.keys;
        keys.made += 1;
        let next = PeerKey::unproved(&format!("{node} has key {}", keys.made));
        let added = self.configuration.run(|records| add_key(records, node, next));
        let Some((_, revision)) = self.must(added) else { return "nothing" };
        self.scene.faults.keys.changes.insert(node, Change::Added(next, revision));
        self.inform_all();
        self.cue_at(self.now + STEP, Cue::Key(node));
        "key added"
    }

    /// It goes on, where it can.
    pub(crate) fn key_turn(&mut self, node: NodeId) {
        let Some(change) = self.scene.faults.keys.changes.get(&node).copied().filter(|_| self.works()) else { return };
        match change {
            Change::Added(next, revision) => {
                if self.lives().into_iter().all(|life| self.configuration.known_by(life) >= revision) {
                    let last = self.key_in_folder(node);
                    self.put_key(node, next);
                    self.scene.faults.keys.changes.insert(node, Change::Put(last));
                    self.restart_as_planned(node);
                }
            }
            Change::Put(last) => {
                let uses = |life: Life| self.key_of_process(life) == Some(self.key_in_folder(node));
                if self.process_on(node).is_some_and(uses) {
                    let removed = self.configuration.run(|records| remove_key(records, node, last));
                    self.must(removed);
                    self.inform_all();
                    self.scene.faults.keys.changes.remove(&node);
                    return self.count("key changed");
                }
            }
        }
        self.cue_at(self.now + STEP, Cue::Key(node));
    }

    /// A node is shut out for a while.
    pub(in crate::faults) fn take_a_key(&mut self) -> &'static str {
        if self.scene.faults.keys.changes_only {
            return "nothing";
        }
        let Some(node) = self.pick_for_keys() else { return "nothing" };
        self.scene.faults.keys.is_wrong = true;
        let taken = self.configuration.run(|records| take_keys(records, node));
        self.must(taken);
        self.inform_all();
        self.scene.faults.keys.taken.insert(node);
        let time = self.scene.faults.keys.random.spread_millis(100, 15_000);
        self.cue_at(self.now + time, Cue::KeyIsBack(node));
        "key taken away"
    }

    /// It is let in again.
    pub(crate) fn give_key_back(&mut self, node: NodeId) {
        if self.scene.faults.keys.taken.remove(&node) {
            let key = self.key_in_folder(node);
            let replaced = self.configuration.run(|records| replace_keys(records, node, key));
            self.must(replaced);
            self.inform_all();
        }
    }

    /// Somebody says that he is a node that he is not: he greets, or answers in the place of one that has crashed.
    pub(in crate::faults) fn lie_about_a_number(&mut self) -> &'static str {
        if self.scene.faults.keys.changes_only {
            return "nothing";
        }
        self.scene.faults.keys.is_wrong = true;
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.scene.faults.keys.random;
        let (says, is, target) = (*random.pick(&nodes), *random.pick(&nodes), *random.pick(&nodes));
        let key = if is == says { PeerKey::unproved("nobody's") } else { self.key_in_folder(is) };
        if self.scene.faults.keys.random.chance(50) {
            let time = self.scene.faults.keys.random.spread_millis(500, 5000);
            self.answer_as(says, key, self.now + time);
            self.crash_for(says, time);
            return "impostor answers";
        }
        let Some(target) = self.process_on(target).filter(|target| target.node != says) else { return "nothing" };
        self.greet_as(target, Endpoint::first(says), key);
        "impostor greets"
    }

    /// Everybody has a key that others know.
    pub(in crate::faults) fn end_keys(&mut self) {
        self.unmask();
        let keys = &mut self.scene.faults.keys;
        let nodes: BTreeSet<NodeId> = std::mem::take(&mut keys.taken);
        let nodes: Vec<NodeId> = nodes.into_iter().chain(std::mem::take(&mut keys.changes).into_keys()).collect();
        for node in nodes {
            let running = self.process_on(node).and_then(|life| self.key_of_process(life));
            for key in running.into_iter().chain([self.key_in_folder(node)]) {
                let added = self.configuration.run(|records| add_key(records, node, key));
                self.must(added);
            }
        }
        self.inform_all();
    }

    /// A process that knows the latest records talks with none that has not a key of the node that it says it is.
    pub(crate) fn check_keys(&mut self, life: Life) {
        let view = self.configuration.view();
        if self.plan.mode != Mode::Keys || self.configuration.known_by(life) != view.revision {
            return;
        }
        let Some(node) = self.node_at(life.endpoint()).filter(|_| self.is_alive(life)) else { return };
        let lists = |peer: NodeId, key: Option<PeerKey>| key.is_some_and(|key| view.lists_key(peer, key));
        let wrong = node.partners().find(|(conn, peer)| !lists(peer.node, self.true_key(*conn)));
        if let Some((conn, peer)) = wrong {
            self.violate(Invariant::Keys, format!("{life:?} talks on {conn:?} with who is not {peer:?}"));
        }
    }
}
