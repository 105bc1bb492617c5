//! The control plane, as far as it decides which devices are to have copies (docs/decisions/0008): new homes for what
//! is lost or stays out of service, away from devices that are drained, and a share for new devices.
//!
//! It knows what the records say ([`crate::cluster::notes`]): what nodes note of their devices, which nodes give a sign
//! of life, which devices are drained. Of groups it changes members only; the rest is up to the groups' primaries. A
//! device that is gone comes back as another one with a new number, as a data folder does that was emptied: nothing
//! opens under the number of a device that it is not.

mod steps;

use crate::kernel::random::Random;
use crate::plan::Plan;
use azekura_base::{DeviceId, NodeId};
use azekura_store::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Groups that move at once for another reason than that a copy is lost.
const MOVES_AT_ONCE: usize = 2;
/// Nodes have told everything about errors of a device by this time after the last one.
const TRUST_AGAIN: Duration = Duration::from_secs(2);

/// See the module's description.
pub(crate) struct Operator {
    /// It works in this run.
    pub(crate) on: bool,
    random: Random,
    /// What new devices look like.
    options: Options,
    /// How long a node may be absent, or a device out of service, until its copies get new homes.
    patience: Duration,
    /// Devices that are gone for good. Of those that are named false, their node has not found out yet.
    pub(crate) lost: BTreeMap<DeviceId, bool>,
    /// Devices that their nodes do without.
    pub(crate) stopped: BTreeSet<DeviceId>,
    /// The nodes of all devices that there have been.
    nodes: BTreeMap<DeviceId, NodeId>,
    /// Nodes that give no sign of life, and since when.
    pub(crate) absent: BTreeMap<NodeId, Duration>,
    /// Devices that are out of service, and since when, as the records say.
    pub(crate) out: BTreeMap<DeviceId, Duration>,
    /// When each node has given its last sign of life.
    pub(crate) renewed: BTreeMap<NodeId, Duration>,
    /// Nodes that find a new device when they start.
    due: BTreeMap<NodeId, u32>,
}

impl Operator {
    pub(crate) fn new(
        plan: &Plan,
        options: Options,
        nodes: BTreeMap<DeviceId, NodeId>,
        mut random: Random,
    ) -> Operator {
        Operator {
            on: plan.devices_fail,
            patience: random.spread_millis(500, 8000),
            random,
            options,
            lost: BTreeMap::new(),
            stopped: BTreeSet::new(),
            nodes,
            absent: BTreeMap::new(),
            out: BTreeMap::new(),
            renewed: BTreeMap::new(),
            due: BTreeMap::new(),
        }
    }

    /// The device is gone, or its node does without it: it confirms nothing.
    pub(crate) fn is_out(&self, device: DeviceId) -> bool {
        self.lost.contains_key(&device) || self.stopped.contains(&device)
    }

    /// A node is to find another device at its next start.
    pub(crate) fn order_device(&mut self, node: NodeId) {
        *self.due.entry(node).or_default() += 1;
    }

    /// Nobody waits for anything much longer: the run is to end.
    pub(crate) fn hurry(&mut self) {
        self.patience = self.patience.min(Duration::from_secs(2));
    }
}
