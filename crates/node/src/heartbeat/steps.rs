//! Heartbeats are sent and answered.

use crate::node::Node;
use azekura_base::{DeviceId, Endpoint};
use azekura_replica::{Client, HEARTBEAT_INTERVAL, LEASE};
use azekura_wire::{CopyBeat, GroupBeat, HEARTBEAT_GROUPS_MAX, Heartbeat, HeartbeatOk, Message};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

impl Node {
    /// Something has changed that the next heartbeat should tell at once.
    pub(crate) fn beats_soon(&mut self) {
        self.mesh.beats.next = self.now;
    }

    /// Sends heartbeats if they are due.
    pub(crate) fn beat(&mut self) {
        if self.now < self.mesh.beats.next {
            return;
        }
        self.mesh.beats.next = self.now + HEARTBEAT_INTERVAL;
        // Also to peers that follow no group of this one, if they share one or were asked something: their answers show
        // that the connection stands. For each peer: groups whose copies there may answer readers, and others.
        let expected = self.expected_to_answer();
        let (ask, others): (Vec<Endpoint>, Vec<Endpoint>) =
            self.mesh.links.up_peers().partition(|peer| expected.contains(peer));
        others.into_iter().for_each(|peer| self.mesh.links.need_not_answer(peer, self.now));
        let mut by_peer: BTreeMap<Endpoint, [Vec<GroupBeat>; 2]> =
            ask.into_iter().map(|peer| (peer, Default::default())).collect();
        for group in self.copies.groups.values_mut() {
            let followers: Vec<(DeviceId, bool)> = group.followers(self.now).collect();
            for (device, reads) in followers {
                if let Some(peer) = self.directory.view.devices.get(&device) {
                    let (epoch, commit, low_watermark) = (group.epoch(), group.committed(), group.low_watermark());
                    let beat = GroupBeat { pg: group.id(), device, epoch, commit, low_watermark };
                    by_peer.entry(*peer).or_default()[usize::from(!reads)].push(beat);
                    if let Some((_, arrived)) = self.mesh.beats.stamps.get(peer).filter(|_| reads) {
                        group.heartbeat_sent(device, *arrived);
                    }
                }
            }
        }
        let stamp_us = self.now.as_micros() as u64;
        for (peer, [readers, others]) in by_peer {
            let echo_us = self.mesh.beats.stamps.get(&peer).and_then(|(stamp, _)| NonZeroU64::new(*stamp));
            let lonely = readers.is_empty() && others.is_empty();
            let readers = readers.chunks(HEARTBEAT_GROUPS_MAX).map(|groups| (echo_us, groups));
            // Without an echo, there is no lease.
            let others = others.chunks(HEARTBEAT_GROUPS_MAX).map(|groups| (None, groups));
            let nobody = lonely.then_some((None, &[][..]));
            for (echo_us, groups) in readers.chain(others).chain(nobody) {
                let heartbeat = Heartbeat { stamp_us, echo_us, groups: groups.to_vec() };
                self.send_to(peer, Message::Heartbeat(heartbeat));
            }
        }
    }

    /// A primary's shard is alive.
    pub(crate) fn heartbeat(&mut self, from: Client, heartbeat: &Heartbeat) {
        // The echo is a time of this shard's clock that its answer carried, so the lease can't outlast what the primary
        // waits for. An echo from the future is not ours.
        let echoed = heartbeat.echo_us.map(|echo| Duration::from_micros(echo.get()));
        let counts = echoed.filter(|echoed| self.mesh.beats.counts(*echoed, self.now));
        let lease_until = counts.map_or(Duration::ZERO, |echoed| echoed + LEASE);
        let now = self.now;
        let mut copies = Vec::with_capacity(heartbeat.groups.len());
        for beat in &heartbeat.groups {
            let key = (beat.pg, beat.device);
            let Some(group) = self.copies.groups.get_mut(&key) else { continue };
            if group.heartbeat(beat.epoch, beat.commit, beat.low_watermark, lease_until, now) {
                let full = self.devices.get(&beat.device).is_some_and(|device| device.full);
                copies.push(CopyBeat { pg: beat.pg, device: beat.device, full });
            }
            self.copies.awake.push_back(key);
        }
        let stamp_us = self.now.as_micros() as u64;
        let revision = self.directory.revision;
        let ok = HeartbeatOk { echo_us: heartbeat.stamp_us, stamp_us, revision, copies };
        self.answer(from, Message::HeartbeatOk(ok));
    }

    /// A secondary's shard has promised.
    pub(crate) fn heartbeat_ok(&mut self, peer: Endpoint, ok: &HeartbeatOk) {
        self.directory.layers.peer_knows(peer, ok.revision);
        let mut soon = self.mesh.beats.stamps.insert(peer, (ok.stamp_us, self.now)).is_none();
        let sent = Duration::from_micros(ok.echo_us);
        if !self.mesh.beats.counts(sent, self.now) {
            return; // Not a stamp of ours, or one from before the clock stood still.
        }
        for copy in &ok.copies {
            if self.directory.view.devices.get(&copy.device) != Some(&peer) {
                continue;
            }
            for (_, group) in self.copies.groups.range_mut((copy.pg, DeviceId(0))..=(copy.pg, DeviceId(u32::MAX))) {
                soon |= group.heartbeat_ok(copy.device, sent, copy.full, self.now);
            }
        }
        if soon {
            // The secondaries' leases count from a stamp that they have not been told yet, or could not be given
            // before.
            self.beats_soon();
        }
    }
}
