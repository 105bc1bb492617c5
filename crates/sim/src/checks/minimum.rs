//! Invariant 1 where a class demands copies: what is acknowledged is durable on as many. The network shows what
//! gateways of other nodes are told; how far a primary has acknowledged anything, also to its own node's gateway and
//! without having sent it to any copy, the primary says itself.

mod steps;

use crate::kernel::network::ConnId;
use crate::kernel::process::Life;
use azekura_base::{DeviceId, PgId, RequestId, Sequence, SessionId};
use std::collections::BTreeMap;

/// What copies have said that they hold, and who has asked for what.
#[derive(Default)]
pub(crate) struct Minimum {
    /// The last place up to which a copy has called everything durable.
    held: BTreeMap<(PgId, DeviceId), Sequence>,
    /// Writes that gateways have sent and not had answered.
    asked: BTreeMap<(ConnId, PgId, RequestId), SessionId>,
    /// How far each copy's process has acknowledged writes, of those that have been looked at.
    looked_at: BTreeMap<(PgId, DeviceId), (Life, Sequence)>,
}

impl Minimum {
    fn holds(&mut self, pg: PgId, device: DeviceId, upto: Sequence) {
        let held = self.held.entry((pg, device)).or_default();
        *held = upto.max(*held);
    }

    /// A copy has acknowledged everything up to here. True when that is news.
    fn looks_at(&mut self, (pg, device): (PgId, DeviceId), life: Life, upto: Sequence) -> bool {
        let before = self.looked_at.insert((pg, device), (life, upto));
        upto > before.filter(|(other, _)| *other == life).map_or(Sequence::ZERO, |(_, upto)| upto)
    }
}
