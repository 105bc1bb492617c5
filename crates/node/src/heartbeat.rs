//! Heartbeats: one message to each peer, for all groups that this shard is primary of and the other has copies of.

use crate::node::Node;
use azekura_base::{DeviceId, Endpoint};
use azekura_replica::{Client, HEARTBEAT_INTERVAL, LEASE};
use azekura_wire::{CopyBeat, GroupBeat, HEARTBEAT_GROUPS_MAX, Heartbeat, HeartbeatOk, Message};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

/// When heartbeats are due, and what peers said of their clocks.
#[derive(Debug)]
pub(crate) struct Beats {
    next: Duration,
    /// The stamp of each peer's last answer, by its clock, and when that arrived, by this shard's.
    stamps: BTreeMap<Endpoint, (u64, Duration)>,
    /// What this shard's clock showed up to here was perhaps long ago.
    void: Option<Duration>,
}

impl Beats {
    pub(crate) fn new(now: Duration) -> Beats {
        Beats { next: now, stamps: BTreeMap::new(), void: None }
    }

    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Nothing can be counted from this shard's stamps up to now any more.
    pub(crate) fn void_stamps(&mut self, now: Duration) {
        self.void = Some(now);
    }

    /// Leases may be counted from this shard's own `stamp`, which somebody has echoed.
    fn counts(&self, stamp: Duration, now: Duration) -> bool {
        stamp <= now && self.void.is_none_or(|void| stamp > void)
    }

    /// A new connection: what was known of the peer's clock may be from before its restart.
    pub(crate) fn forget(&mut self, peer: Endpoint) {
        self.stamps.remove(&peer);
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
        // Also to peers that follow no group of this one: their answers show that the connection stands.
        // For each peer: groups whose copies there may answer readers, and others.
        let mut by_peer: BTreeMap<Endpoint, [Vec<GroupBeat>; 2]> =
            self.links.up_peers().map(|peer| (peer, Default::default())).collect();
        for group in self.groups.values_mut() {
            let followers: Vec<(DeviceId, bool)> = group.followers(self.now).collect();
            for (device, reads) in followers {
                if let Some(peer) = self.view.devices.get(&device) {
                    let (epoch, commit, low_watermark) = (group.epoch(), group.committed(), group.low_watermark());
                    let beat = GroupBeat { pg: group.id(), device, epoch, commit, low_watermark };
                    by_peer.entry(*peer).or_default()[usize::from(!reads)].push(beat);
                    if let Some((_, arrived)) = self.beats.stamps.get(peer).filter(|_| reads) {
                        group.heartbeat_sent(device, *arrived);
                    }
                }
            }
        }
        let stamp_us = self.now.as_micros() as u64;
        for (peer, [readers, others]) in by_peer {
            let echo_us = self.beats.stamps.get(&peer).and_then(|(stamp, _)| NonZeroU64::new(*stamp));
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
        let counts = echoed.filter(|echoed| self.beats.counts(*echoed, self.now));
        let lease_until = counts.map_or(Duration::ZERO, |echoed| echoed + LEASE);
        let now = self.now;
        let mut copies = Vec::with_capacity(heartbeat.groups.len());
        for beat in &heartbeat.groups {
            let key = (beat.pg, beat.device);
            let Some(group) = self.groups.get_mut(&key) else { continue };
            if group.heartbeat(beat.epoch, beat.commit, beat.low_watermark, lease_until, now) {
                let full = self.devices.get(&beat.device).is_some_and(|device| device.full);
                copies.push(CopyBeat { pg: beat.pg, device: beat.device, full });
            }
            self.awake.push_back(key);
        }
        let stamp_us = self.now.as_micros() as u64;
        let revision = self.revision;
        let ok = HeartbeatOk { echo_us: heartbeat.stamp_us, stamp_us, revision, copies };
        self.answer(from, Message::HeartbeatOk(ok));
    }

    /// A secondary's shard has promised.
    pub(crate) fn heartbeat_ok(&mut self, peer: Endpoint, ok: &HeartbeatOk) {
        self.layers.peer_knows(peer, ok.revision);
        let mut soon = self.beats.stamps.insert(peer, (ok.stamp_us, self.now)).is_none();
        let sent = Duration::from_micros(ok.echo_us);
        if !self.beats.counts(sent, self.now) {
            return; // Not a stamp of ours, or one from before the clock stood still.
        }
        for copy in &ok.copies {
            if self.view.devices.get(&copy.device) != Some(&peer) {
                continue;
            }
            for (_, group) in self.groups.range_mut((copy.pg, DeviceId(0))..=(copy.pg, DeviceId(u32::MAX))) {
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
