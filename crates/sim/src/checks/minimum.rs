//! Invariant 1 where a class demands copies: what is acknowledged is durable on as many, as far as the network shows
//! it.

mod steps;

use crate::kernel::network::ConnId;
use azekura_base::{DeviceId, PgId, RequestId, Sequence, SessionId};
use std::collections::BTreeMap;

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
