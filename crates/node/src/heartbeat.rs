//! Heartbeats: one message to each node, for all groups that this node is primary of and the other has copies of.

use crate::effect::ConnKey;
use crate::node::Node;
use azekura_base::{DeviceId, NodeId};
use azekura_replica::{HEARTBEAT_INTERVAL, LEASE};
use azekura_wire::{CopyBeat, GroupBeat, HEARTBEAT_GROUPS_MAX, Heartbeat, HeartbeatOk, Message};
use std::collections::BTreeMap;
use std::time::Duration;

/// When heartbeats are due, and what peers said of their clocks.
#[derive(Debug)]
pub(crate) struct Beats {
    next: Duration,
    /// The stamp of each node's last answer, by its clock, and when that arrived, by this node's.
    stamps: BTreeMap<NodeId, (u64, Duration)>,
}

impl Beats {
    pub(crate) fn new(now: Duration) -> Beats {
        Beats { next: now, stamps: BTreeMap::new() }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// A new connection: what was known of the node's clock may be from before its restart.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.stamps.remove(&node);
    }
}

impl Node {
    /// Something has changed that the next heartbeat should tell at once.
    pub(crate) fn beats_soon(&mut self) {
        self.beats.next = self.now;
    }

    /// Sends heartbeats if they are due.
    pub(crate) fn beat(&mut self) {
        if self.now < self.beats.next {
            return;
        }
        self.beats.next = self.now + HEARTBEAT_INTERVAL;
        // Also to nodes that follow no group of this one: their answers show that the connection stands.
        let mut by_node: BTreeMap<NodeId, Vec<GroupBeat>> =
            self.links.up_nodes().map(|node| (node, Vec::new())).collect();
        for group in self.groups.values_mut() {
            let followers: Vec<DeviceId> = group.followers().collect();
            for device in followers {
                if let Some(node) = self.view.devices.get(&device) {
                    let beat = GroupBeat { pg: group.id(), device, epoch: group.epoch(), commit: group.committed() };
                    by_node.entry(*node).or_default().push(beat);
                    if let Some((_, arrived)) = self.beats.stamps.get(node) {
                        group.heartbeat_sent(device, *arrived);
                    }
                }
            }
        }
        let stamp_us = self.now.as_micros() as u64;
        for (node, beats) in by_node {
            let echo_us = self.beats.stamps.get(&node).map_or(0, |(stamp, _)| *stamp);
            let mut parts = beats.chunks(HEARTBEAT_GROUPS_MAX);
            let first = parts.next().unwrap_or(&[]);
            for groups in std::iter::once(first).chain(parts) {
                let heartbeat = Heartbeat { stamp_us, echo_us, groups: groups.to_vec() };
                self.send_to_node(node, Message::Heartbeat(heartbeat));
            }
        }
    }

    /// A primary's node is alive.
    pub(crate) fn heartbeat(&mut self, conn: ConnKey, heartbeat: &Heartbeat) {
        // The echo is a time of this node's clock that its answer carried, so the lease can't outlast what the primary
        // waits for. An echo from the future is not ours.
        let echoed = Duration::from_micros(heartbeat.echo_us);
        let lease_until = if heartbeat.echo_us == 0 || echoed > self.now { Duration::ZERO } else { echoed + LEASE };
        let now = self.now;
        let mut copies = Vec::with_capacity(heartbeat.groups.len());
        for beat in &heartbeat.groups {
            let key = (beat.pg, beat.device);
            let Some(group) = self.groups.get_mut(&key) else { continue };
            if group.heartbeat(beat.epoch, beat.commit, lease_until, now) {
                let full = self.devices.get(&beat.device).is_some_and(|device| device.full);
                copies.push(CopyBeat { pg: beat.pg, device: beat.device, full });
            }
            self.awake.push_back(key);
        }
        let stamp_us = self.now.as_micros() as u64;
        let ok = HeartbeatOk { echo_us: heartbeat.stamp_us, stamp_us, copies };
        self.answer(conn, Message::HeartbeatOk(ok));
    }

    /// A secondary's node has promised.
    pub(crate) fn heartbeat_ok(&mut self, node: NodeId, ok: &HeartbeatOk) {
        let first = self.beats.stamps.insert(node, (ok.stamp_us, self.now)).is_none();
        let sent = Duration::from_micros(ok.echo_us);
        if sent > self.now {
            return; // Not a stamp of ours.
        }
        for copy in &ok.copies {
            if self.view.devices.get(&copy.device) != Some(&node) {
                continue;
            }
            for (_, group) in self.groups.range_mut((copy.pg, DeviceId(0))..=(copy.pg, DeviceId(u32::MAX))) {
                group.heartbeat_ok(copy.device, sent, copy.full, self.now);
            }
        }
        if first {
            // The secondary's lease counts from a stamp that it has not been told yet.
            self.beats_soon();
        }
    }
}
