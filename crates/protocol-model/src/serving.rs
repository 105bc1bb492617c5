//! An open reign: writes, heartbeats, promises.

use crate::quorum::AckRule;
use crate::run::Run;
use crate::state::{COPIES, Standing, State, only};

impl Run<'_> {
    /// `Primary::order`: a client's write gets its place.
    pub(crate) fn order(&mut self, primary: usize) -> Option<()> {
        let open = self.s.nodes[primary].reign.as_ref()?.is_open();
        if !open || self.s.witness.ordered == self.model.bounds.writes {
            return None;
        }
        self.s.witness.ordered += 1;
        self.s.nodes[primary].log.push(self.s.witness.ordered);
        self.settle(primary);
        Some(())
    }

    /// `Primary::send_prepares` on the primary, `Secondary::on_prepare` on the copy: the next write that the copy
    /// lacks, durable at once.
    pub(crate) fn prepare(&mut self, primary: usize, copy: usize) -> Option<()> {
        let from = self.s.nodes[primary];
        let reign = from.reign?;
        let node = &mut self.s.nodes[copy];
        let follows = node.reign.is_none() && node.connected && node.following == reign.epoch;
        if !follows || !reign.peers[copy].follows || node.log.len >= from.log.len {
            return None;
        }
        node.log.push(from.log.writes[node.log.len as usize]);
        node.committed = node.committed.max(from.committed.min(node.log.len));
        Some(())
    }

    /// `Secondary::send_prepare_ok` on the copy, `Primary::on_prepare_ok` on the primary.
    pub(crate) fn acknowledge(&mut self, primary: usize, copy: usize) -> Option<()> {
        let node = self.s.nodes[copy];
        let reign = self.s.nodes[primary].reign.as_mut()?;
        let follows = node.reign.is_none() && node.connected && node.following == reign.epoch;
        let peer = &mut reign.peers[copy];
        if !follows || !peer.follows || node.log.len <= peer.acked {
            return None;
        }
        peer.acked = node.log.len;
        self.settle(primary);
        Some(())
    }

    /// `Primary::followers` on the primary, `Secondary::on_heartbeat` on the copy, which hears what is committed.
    pub(crate) fn heartbeat(&mut self, primary: usize, copy: usize) -> Option<()> {
        if !self.is_heard(primary, copy) {
            return None;
        }
        let committed = self.s.nodes[primary].committed;
        let node = &mut self.s.nodes[copy];
        node.committed = node.committed.max(committed.min(node.log.len));
        Some(())
    }

    /// A heartbeat of the primary gets a promise from this copy.
    fn is_heard(&self, primary: usize, copy: usize) -> bool {
        let node = &self.s.nodes[copy];
        let Some(reign) = &self.s.nodes[primary].reign else { return false };
        let peer = &reign.peers[copy];
        let follows = node.reign.is_none() && node.connected && node.following == reign.epoch;
        follows && peer.follows && peer.counts() && node.recorded == reign.epoch
    }

    /// `Primary::on_heartbeat_ok`, `Primary::raise_low_watermark`: after every step, everybody who would promise
    /// something has promised it, and knows the low watermark. Whatever needs a promise to run out lets the promise run
    /// out first ([`Run::expire`]), so that each lease is held for as long as it can be.
    pub(crate) fn renew(&mut self) {
        for primary in 0..COPIES {
            let Some(reign) = &self.s.nodes[primary].reign else { continue };
            if reign.is_open() && self.model.ack != AckRule::All {
                let node = &self.s.nodes[primary];
                let everywhere = reign.counting().map(|peer| peer.acked).min().unwrap_or(node.log.len);
                self.s.nodes[primary].low_watermark = node.low_watermark.max(everywhere.min(node.committed));
            }
            let low_watermark = self.s.nodes[primary].low_watermark;
            for copy in 0..COPIES {
                if self.is_heard(primary, copy) {
                    let node = &mut self.s.nodes[copy];
                    node.bound = true;
                    node.leased_to |= only(primary);
                    node.low_watermark = node.low_watermark.max(low_watermark);
                    if let Some(claim) = &mut node.claim {
                        claim.unbound = false;
                    }
                }
            }
        }
    }

    /// What this copy has promised runs out, and before that every lease that rests on it (`lease.rs`).
    pub(crate) fn expire(&mut self, copy: usize) {
        let node = &mut self.s.nodes[copy];
        (node.bound, node.leased_to) = (false, 0);
        if let Some(before) = node.reign.as_mut().and_then(|reign| reign.predecessor.as_mut()) {
            before.awaited = false;
        }
    }

    /// A new primary's own promise runs out.
    pub(crate) fn wait_out(&mut self, primary: usize) -> Option<()> {
        if !self.s.nodes[primary].reign.as_ref()?.awaits_predecessor() {
            return None;
        }
        self.expire(primary);
        self.settle(primary);
        Some(())
    }
}

/// `Primary::may_serve`.
pub(crate) fn may_serve(ack: AckRule, state: &State, copy: usize) -> bool {
    let node = &state.nodes[copy];
    let Some(reign) = node.reign.as_ref().filter(|reign| reign.is_open()) else { return false };
    let leased = |other: usize| (state.nodes[other].leased_to | state.nodes[other].outdated_leases) & only(copy) != 0;
    if ack == AckRule::All {
        let could_reign = |other: &usize| reign.peers[*other].standing == Standing::InSync || reign.peers[*other].named;
        return (0..COPIES).filter(could_reign).all(leased);
    }
    let known = |other: &usize| *other == copy || reign.peers[*other].standing != Standing::None && leased(*other);
    let bound = (0..COPIES).filter(known).fold(0, |set, other| set | only(other));
    let enough = |in_sync| ack.could_acknowledge(in_sync, bound);
    enough(node.config.in_sync) && (0..8).filter(|set| reign.proposals_in_doubt & 1 << set != 0).all(enough)
}
