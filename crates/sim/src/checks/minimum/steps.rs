//! What of the world is looked at for that.

use crate::kernel::network::ConnId;
use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId, RequestId, Sequence, SessionId};
use azekura_node::{GroupReport, Node};
use azekura_replica::GroupState;
use azekura_wire::Message;
use std::collections::BTreeSet;

impl World {
    /// A process sends a message. An acknowledgement to another node's gateway must be of a write that enough copies
    /// hold.
    pub(crate) fn check_minimum(&mut self, life: Life, conn: ConnId, message: &Message) {
        if self.plan.copies_min < 2 {
            return;
        }
        match message {
            Message::PrepareOk(ok) => self.scene.minimum.holds(ok.pg, ok.device, ok.sequence),
            Message::NewEpochOk(ok) => self.scene.minimum.holds(ok.pg, ok.device, ok.prepared),
            Message::LearnOk(ok) => self.scene.minimum.holds(ok.pg, ok.device, ok.base),
            Message::Write(write) => {
                self.scene.minimum.asked.insert((conn, write.pg, write.request), write.session);
            }
            Message::WriteDone(done) => {
                let Some(session) = self.scene.minimum.asked.remove(&(conn, done.pg, done.request)) else { return };
                if done.result.is_ok() {
                    self.acknowledged(life, done.pg, (session, done.request));
                }
            }
            _ => {}
        }
    }

    /// A process is about to end: its copies hold what they have committed.
    pub(crate) fn note_committed(&mut self, node: NodeId) {
        let Some(machine) = self.machines.get(&node) else { return };
        for group in machine.loops().flat_map(|at| at.node.groups()) {
            self.scene.minimum.holds(group.pg, group.device, group.committed);
        }
    }

    /// A process has done something: what its primaries have acknowledged must be held by enough copies, whoever asked.
    pub(crate) fn check_acknowledged(&mut self, life: Life) {
        if self.plan.copies_min < 2 {
            return;
        }
        let at = self.machines.get(&life.node).and_then(|machine| machine.at(life.shard));
        let groups = at.into_iter().flat_map(|at| at.node.groups());
        let said: Vec<_> = groups.map(|group| ((group.pg, group.device), group.acknowledged)).collect();
        for (copy, upto) in said {
            if self.scene.minimum.looks_at(copy, life, upto) {
                self.held_by_enough(life, copy.0, upto, "everything");
            }
        }
    }

    fn acknowledged(&mut self, life: Life, pg: PgId, name: (SessionId, RequestId)) {
        // Of one that no primary has sent to another copy the place is not known here.
        let Some(place) = self.scene.order.place_of(pg, name) else { return };
        self.held_by_enough(life, pg, place, &format!("{name:?}"));
    }

    fn held_by_enough(&mut self, life: Life, pg: PgId, place: Sequence, what: &str) {
        let said = self.scene.minimum.held.iter().filter(|((group, _), upto)| *group == pg && **upto >= place);
        let mut devices: BTreeSet<DeviceId> = said.map(|((_, device), _)| *device).collect();
        // Of a group that a restore has just closed, the configuration does not say who was in sync.
        let Some(config) = self.configuration.view().groups.get(&pg) else { return };
        // Other classes may demand fewer than the first.
        let demanded = config.copies_min as usize;
        let copies: Vec<GroupReport> = self.nodes().flat_map(Node::groups).filter(|copy| copy.pg == pg).collect();
        // What the configuration says of the copies does not matter: it may have left them behind a moment ago.
        devices.extend(hold_in_silence(
            &copies,
            |device| self.node_of(device) == life.node && self.shard_of(device) == life.shard,
            place,
        ));
        if devices.len() < demanded {
            let what = format!("{life:?} acknowledges {what} up to {place:?} of {pg:?}, which is on {devices:?} only");
            self.violate(Invariant::Acknowledged, what);
        }
    }
}

/// Copies that hold everything up to `place` and have said nothing of it over the network: a primary's own, one that
/// was primary when the write was committed, and others on the primary's own shard, as there may be while a copy moves.
/// Of these last, the logs count, in the primary's epoch: a log of another one may have another write there. While the
/// primary opens, what it has been told by those that have not entered its epoch yet counts as well.
fn hold_in_silence(
    copies: &[GroupReport],
    is_beside: impl Fn(DeviceId) -> bool,
    place: Sequence,
) -> BTreeSet<DeviceId> {
    let beside = || copies.iter().filter(|copy| is_beside(copy.device));
    let epoch = beside().map(|copy| copy.epoch).max();
    let opens = beside().any(|copy| copy.primary && copy.state == GroupState::Opening);
    let durable = beside().filter(|copy| (Some(copy.epoch) == epoch || opens) && copy.durable >= place);
    let committed = copies.iter().filter(|copy| copy.committed >= place);
    durable.chain(committed).map(|copy| copy.device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::Epoch;

    fn copy(device: u32, epoch: u64, committed: u64, durable: u64) -> GroupReport {
        GroupReport {
            pg: PgId(1),
            device: DeviceId(device),
            primary: false,
            epoch: Epoch(epoch),
            committed: Sequence(committed),
            prepared: Sequence(durable),
            sessions: 0,
            durable: Sequence(durable),
            acknowledged: Sequence::ZERO,
            state: GroupState::Following,
            serving: false,
            resyncs: Vec::new(),
            scrub: None,
        }
    }

    #[test]
    fn who_holds_a_write_without_a_word() {
        // The first two are on the primary's own shard.
        let held = |copies: &[GroupReport]| {
            let devices = hold_in_silence(copies, |device| device.0 < 3, Sequence(7));
            devices.iter().map(|device| device.0).collect::<Vec<_>>()
        };
        let primary = copy(1, 3, 7, 7);
        assert_eq!(held(&[primary.clone(), copy(2, 3, 6, 7)]), [1, 2], "whether or not it is still in sync");
        assert_eq!(held(&[primary.clone(), copy(2, 3, 6, 6)]), [1], "its disk does not have it yet");
        assert_eq!(held(&[primary.clone(), copy(2, 2, 6, 9)]), [1], "it may have other writes there");
        assert_eq!(held(&[primary.clone(), copy(5, 3, 6, 7)]), [1], "one elsewhere has to say so");
        assert_eq!(held(&[primary.clone(), copy(5, 2, 7, 7)]), [1, 5], "one that has committed it has it");
        let opens = GroupReport { primary: true, state: GroupState::Opening, ..primary };
        assert_eq!(held(&[opens, copy(2, 2, 6, 9)]), [1, 2], "it has told the primary, which gathers");
    }
}
