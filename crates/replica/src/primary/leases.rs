//! What lets a primary, and its secondaries, answer readers.

use crate::context::GroupCx;
use crate::lease::{LEASE, is_sluggish, readers_until};
use crate::primary::Primary;
use crate::primary::peer::{Peer, Standing};
use azekura_base::{AckRule, DeviceId};
use std::collections::BTreeSet;
use std::time::Duration;

impl Primary {
    /// The secondary on `device` has promised, in answer to a heartbeat that was sent at `sent`, to follow nobody
    /// else. True when that lets this copy answer readers.
    pub(crate) fn on_heartbeat_ok(
        &mut self,
        cx: &mut GroupCx,
        device: DeviceId,
        sent: Duration,
        full: bool,
        now: Duration,
    ) -> bool {
        let before = self.may_serve(cx, now);
        // What was sent in another reign, of this copy or of another one of this node, was a question of that epoch.
        if sent >= self.began
            && let Some(peer) = self.peers.get_mut(&device)
        {
            // 0004: counted from the sending, so that the lease ends before the promise does.
            peer.leases.lease_until = peer.leases.lease_until.max(sent + LEASE);
            peer.signs.heard = peer.signs.heard.max(now);
            peer.full = full;
        }
        !before && self.may_serve(cx, now)
    }

    /// Invariant 3, 0010 (point 3): nobody else commits while those copies follow this primary of which a new one would
    /// have to hear some.
    pub(crate) fn may_serve(&self, cx: &GroupCx, now: Duration) -> bool {
        if cx.config.ack == AckRule::All {
            return self.has_all_leases(now);
        }
        let bound = |device: DeviceId| {
            device == cx.me || self.peers.get(&device).is_some_and(|peer| now < peer.leases.lease_until)
        };
        let enough = |in_sync: &BTreeSet<DeviceId>| cx.config.could_acknowledge(in_sync, bound);
        self.is_open()
            && enough(&cx.config.in_sync)
            && self.proposals_in_doubt.iter().all(|(_, in_sync)| enough(in_sync))
    }

    /// A heartbeat to `device` is on its way, with the secondary's own stamp that arrived here at `stamp_arrived`: the
    /// secondary's lease to answer readers counts from that moment.
    pub(crate) fn on_heartbeat_sent(&mut self, device: DeviceId, stamp_arrived: Duration) {
        if let Some(peer) = self.peers.get_mut(&device).filter(|peer| !peer.leaving) {
            // 0007: the copy is not left behind before this time.
            peer.leases.reads_until = peer.leases.reads_until.max(readers_until(stamp_arrived));
        }
    }

    /// The secondaries that a heartbeat must reach, if this copy is primary, and whether they may answer readers by
    /// themselves: only those that commits wait for and the configuration names (0010, reads), and only while this copy
    /// may, since another primary could reign beside this one otherwise. Nor may those that are left out by a
    /// configuration which perhaps stands unheard: a primary that has read it waits for no reader of theirs.
    pub(crate) fn followers<'a>(
        &'a self,
        cx: &'a GroupCx,
        now: Duration,
    ) -> impl Iterator<Item = (DeviceId, bool)> + 'a {
        let serving = self.may_serve(cx, now);
        let follow = self.peers.iter().filter(|(_, peer)| peer.follows && peer.counts());
        follow.map(move |(device, peer)| {
            let stays = matches!(peer.standing, Standing::InSync)
                && !peer.leaving
                && cx.config.members.contains(device)
                && self.proposals_in_doubt.iter().all(|(_, in_sync)| in_sync.contains(device))
                && peer.diverged_at.is_none()
                && !is_sluggish(peer.signs.moved, now)
                && !peer.stream.pace.is_slow(now);
            (*device, serving && stays && cx.config.has_readers())
        })
    }

    /// Invariant 3, 0013 (point 1): while every copy that could take over has promised to follow nobody else, no other
    /// primary commits.
    fn has_all_leases(&self, now: Duration) -> bool {
        let could_reign = |peer: &&Peer| matches!(peer.standing, Standing::InSync) || peer.named.is_some();
        self.is_open() && self.peers.values().filter(could_reign).all(|peer| now < peer.leases.lease_until)
    }
}
