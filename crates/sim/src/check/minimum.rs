//! Invariant 1 where a class demands copies: what is acknowledged is durable on as many, as far as the network shows
//! it.

use crate::Invariant;
use crate::events::Life;
use crate::network::ConnId;
use crate::world::World;
use azekura_base::{DeviceId, PgId, RequestId, Sequence, SessionId};
use azekura_wire::Message;
use std::collections::{BTreeMap, BTreeSet};

/// What copies have said that they hold, and who has asked for what.
#[derive(Default)]
pub(crate) struct Minimum {
    /// The last place up to which a copy has called everything durable.
    held: BTreeMap<(PgId, DeviceId), Sequence>,
    /// Writes that gateways have sent and not had answered.
    asked: BTreeMap<(ConnId, PgId, RequestId), SessionId>,
}

impl Minimum {
    fn holds(&mut self, pg: PgId, device: DeviceId, upto: Sequence) {
        let held = self.held.entry((pg, device)).or_default();
        *held = upto.max(*held);
    }
}

impl World {
    /// A process sends a message. An acknowledgement to another node's gateway must be of a write that enough copies
    /// hold.
    pub(crate) fn check_minimum(&mut self, life: Life, conn: ConnId, message: &Message) {
        if self.plan.copies_min < 2 {
            return;
        }
        match message {
            Message::PrepareOk(ok) => self.minimum.holds(ok.pg, ok.device, ok.sequence),
            Message::SyncOk(ok) => self.minimum.holds(ok.pg, ok.device, ok.prepared),
            Message::LearnOk(ok) => self.minimum.holds(ok.pg, ok.device, ok.base),
            Message::Write(write) => {
                self.minimum.asked.insert((conn, write.pg, write.request), write.session);
            }
            Message::WriteDone(done) => {
                let Some(session) = self.minimum.asked.remove(&(conn, done.pg, done.request)) else { return };
                if done.result.is_ok() {
                    self.acknowledged(life, done.pg, (session, done.request));
                }
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, life: Life, pg: PgId, name: (SessionId, RequestId)) {
        // One that no primary has sent to another copy came there as a repair.
        let Some(place) = self.order.place_of(pg, name) else { return };
        let said = self.minimum.held.iter().filter(|((group, _), upto)| *group == pg && **upto >= place);
        let mut devices: BTreeSet<DeviceId> = said.map(|((_, device), _)| *device).collect();
        // Copies on the primary's own node say nothing over the network. While a copy moves there may be two. What the
        // configuration says of them does not matter: it may have left this primary behind a moment ago.
        let Some(node) = self.machines.get(&life.node).and_then(|machine| machine.node.as_ref()) else { return };
        let here = node.groups().filter(|group| group.pg == pg && group.committed >= place);
        devices.extend(here.map(|group| group.device));
        if devices.len() < self.plan.copies_min as usize {
            let what = format!("{life:?} acknowledges {name:?} at {place:?} of {pg:?}, which is on {devices:?} only");
            self.violate(Invariant::Acknowledged, what);
        }
    }
}
