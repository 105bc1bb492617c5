//! When a shard dials another one again: later with each try that fails, and not all shards at once.

use crate::{Identity, RECONNECT_INTERVAL, RECONNECT_MAX};
use azekura_base::{Endpoint, mix64};
use std::collections::BTreeMap;
use std::time::Duration;

/// Tries that have failed, of each peer, and this shard's own source of numbers: who it is, and which start of its
/// node.
#[derive(Debug)]
pub(crate) struct Redials {
    seed: u64,
    failed: BTreeMap<Endpoint, u32>,
}

impl Redials {
    pub(crate) fn new(identity: Identity) -> Redials {
        let Identity { cluster, endpoint, incarnation } = identity;
        let seed = [(cluster >> 64) as u64, cluster as u64, number_of(endpoint), incarnation];
        Redials { seed: seed.into_iter().fold(0, |seed, part| mix(seed ^ part)), failed: BTreeMap::new() }
    }

    /// A connection is gone, or could not be made. Gives how long to wait before the next try: twice as long as before,
    /// up to [`RECONNECT_MAX`], and of that between a half and all, so that those who have lost a peer together do not
    /// come back together.
    pub(crate) fn pause(&mut self, peer: Endpoint) -> Duration {
        let failed = self.failed.entry(peer).or_default();
        let longest = RECONNECT_INTERVAL.saturating_mul(1 << (*failed).min(16)).min(RECONNECT_MAX);
        let drawn = mix(self.seed ^ mix(number_of(peer) ^ mix(u64::from(*failed))));
        *failed = failed.saturating_add(1);
        let half = longest / 2;
        half + half.mul_f64((drawn % 1024) as f64 / 1023.0)
    }

    /// The peer is there, or nobody needs it any more.
    pub(crate) fn forget(&mut self, peer: Endpoint) {
        self.failed.remove(&peer);
    }
}

fn number_of(endpoint: Endpoint) -> u64 {
    u64::from(endpoint.node.0) << 8 | u64::from(endpoint.shard.0)
}

/// A step of SplitMix64, whose zero is not zero.
fn mix(value: u64) -> u64 {
    mix64(value.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::NodeId;

    fn redials(node: u32, incarnation: u64) -> Redials {
        Redials::new(Identity { cluster: 7, endpoint: Endpoint::first(NodeId(node)), incarnation })
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_begin_anew_when_the_peer_was_there() {
        let (mut redials, peer) = (redials(1, 1), Endpoint::first(NodeId(2)));
        let mut longest = RECONNECT_INTERVAL;
        for _ in 0..100 {
            let pause = redials.pause(peer);
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
            longest = (longest * 2).min(RECONNECT_MAX);
        }
        assert_eq!(longest, RECONNECT_MAX);
        redials.forget(peer);
        assert!(redials.pause(peer) <= RECONNECT_INTERVAL);
    }

    #[test]
    fn shards_that_lose_a_peer_together_come_back_apart_and_each_run_of_them_alike() {
        let peer = Endpoint::first(NodeId(0));
        let pauses = |incarnation| (1..=100).map(|node| redials(node, incarnation).pause(peer)).collect::<Vec<_>>();
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
        let spread = |part: u32| pauses(1).iter().filter(|pause| **pause < RECONNECT_INTERVAL * part / 8).count();
        let by_quarters = [spread(5), spread(6), spread(7), spread(8)];
        assert!(by_quarters.windows(2).all(|two| two[1] >= two[0] + 10) && by_quarters[0] >= 10, "{by_quarters:?}");
    }
}
