//! What of the world is looked at for that.

use crate::kernel::network::ConnId;
use crate::kernel::process::Life;
use crate::report::Invariant;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId, RequestId, SessionId};
use azekura_node::Node;
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
            Message::SyncOk(ok) => self.scene.minimum.holds(ok.pg, ok.device, ok.prepared),
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

    fn acknowledged(&mut self, life: Life, pg: PgId, name: (SessionId, RequestId)) {
        // One that no primary has sent to another copy came there as a repair.
        let Some(place) = self.scene.order.place_of(pg, name) else { return };
        let said = self.scene.minimum.held.iter().filter(|((group, _), upto)| *group == pg && **upto >= place);
        let mut devices: BTreeSet<DeviceId> = said.map(|((_, device), _)| *device).collect();
        // A primary says nothing of its own copy, nor what a copy holds that was primary when the write was committed.
        // What the configuration says of these does not matter: it may have left them behind a moment ago.
        let here = self.nodes().flat_map(Node::groups).filter(|group| group.pg == pg && group.committed >= place);
        devices.extend(here.map(|group| group.device));
        // Another copy on the primary's own shard, as there may be while a copy moves, says nothing over the network.
        // Of a group that a restore has just closed, the configuration does not say who was in sync.
        let Some(config) = self.configuration.view().groups.get(&pg) else { return };
        let is_here = |device: DeviceId| self.node_of(device) == life.node && self.shard_of(device) == life.shard;
        devices.extend(config.in_sync.iter().filter(|device| is_here(**device)));
        if devices.len() < self.plan.copies_min as usize {
            let what = format!("{life:?} acknowledges {name:?} at {place:?} of {pg:?}, which is on {devices:?} only");
            self.violate(Invariant::Acknowledged, what);
        }
    }
}
