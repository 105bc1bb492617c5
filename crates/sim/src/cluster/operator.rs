//! The control plane, as far as it decides which devices are to have copies (docs/decisions/0008), and whoever stands
//! beside the machines.
//!
//! What the leader does next is what `azekura_plans` says of the records ([`crate::cluster::notes`]): what nodes note
//! of their devices, which nodes give a sign of life, which devices are drained. A device that is gone comes back as
//! another one with a new number, as a data folder does that was emptied: nothing opens under the number of a device
//! that it is not.

mod steps;

use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::plan::Plan;
use azekura_base::{DeviceId, NodeId};
use azekura_plans::Leader;
use azekura_store::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Nodes have told everything about errors of a device by this time after the last one.
const TRUST_AGAIN: Duration = Duration::from_secs(2);

/// See the module's description.
pub(crate) struct Operator {
    /// It works in this run.
    pub(crate) on: bool,
    pub(in crate::cluster) random: Random,
    /// What new devices look like.
    options: Options,
    /// Who leads.
    pub(in crate::cluster) leadership: Option<Leadership>,
    /// Devices that are gone for good. Of those that are named false, their node has not found out yet.
    pub(crate) lost: BTreeMap<DeviceId, bool>,
    /// Devices that their nodes do without.
    pub(crate) stopped: BTreeSet<DeviceId>,
    /// The nodes of all devices that there have been.
    nodes: BTreeMap<DeviceId, NodeId>,
    /// When each node has given its last sign of life.
    pub(crate) renewed: BTreeMap<NodeId, Duration>,
    /// Nodes that find a new device when they start.
    due: BTreeMap<NodeId, u32>,
    /// Nodes whose machines are gone for good, and whose records are not.
    dismissed: BTreeSet<NodeId>,
    /// No copy is given another home, since all are being looked at.
    stays: bool,
}

/// A process's time as the leader of the control plane.
#[derive(Debug)]
pub(crate) struct Leadership {
    pub(in crate::cluster) life: Life,
    /// When it last reached the configuration store.
    pub(in crate::cluster) renewed: Duration,
    /// What it has seen.
    pub(in crate::cluster) leader: Leader,
}

impl Operator {
    pub(crate) fn new(plan: &Plan, options: Options, nodes: BTreeMap<DeviceId, NodeId>, random: Random) -> Operator {
        Operator {
            on: plan.devices_fail,
            leadership: None,
            random,
            options,
            lost: BTreeMap::new(),
            stopped: BTreeSet::new(),
            nodes,
            renewed: BTreeMap::new(),
            due: BTreeMap::new(),
            dismissed: BTreeSet::new(),
            stays: false,
        }
    }

    /// The device is gone, or its node does without it: it confirms nothing.
    pub(crate) fn is_out(&self, device: DeviceId) -> bool {
        self.lost.contains_key(&device) || self.stopped.contains(&device)
    }

    /// Some node is still to be taken out of the cluster.
    pub(crate) fn has_dismissed(&self) -> bool {
        !self.dismissed.is_empty()
    }

    /// A node is to find another device at its next start.
    pub(crate) fn order_device(&mut self, node: NodeId) {
        *self.due.entry(node).or_default() += 1;
    }
}
