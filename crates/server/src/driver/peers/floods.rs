//! What strangers may cost: handshakes, and lines in the log.

use azekura_base::{Endpoint, Repeats};
use azekura_node::ClusterView;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Handshakes that a shard begins in a second with addresses that are no node's.
pub const STRANGE_HANDSHAKES_MAX: u32 = 100;

/// Whom a line in the log is about. Of each there is one a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A shard of another node.
    Peer(Endpoint),
    /// Who has connected from there, and is not known.
    Address(Option<IpAddr>),
    /// All who shake hands too often.
    Flood,
}

/// What a shard remembers against floods.
#[derive(Default)]
pub struct Floods {
    nodes: BTreeSet<IpAddr>,
    /// Handshakes that strangers may begin now, and up to when that was counted.
    allowed: f64,
    counted: Option<Duration>,
    lines: Repeats<About>,
}

impl Floods {
    /// Where nodes are, from now on.
    pub fn follow(&mut self, view: &ClusterView) {
        self.nodes = view.nodes.values().map(|node| node.address.ip()).collect();
    }

    /// Whether a handshake with this address is begun.
    pub fn admits(&mut self, from: Option<IpAddr>, now: Duration) -> bool {
        if from.is_some_and(|from| self.nodes.contains(&from)) {
            return true;
        }
        let most = f64::from(STRANGE_HANDSHAKES_MAX);
        let passed = self.counted.map_or(1.0, |before| now.saturating_sub(before).as_secs_f64());
        self.counted = Some(now);
        self.allowed = (self.allowed + passed * most).min(most);
        let admits = self.allowed >= 1.0;
        self.allowed -= if admits { 1.0 } else { 0.0 };
        admits
    }

    /// A line for the log, if there was none about the same in the last minute.
    pub fn line(&mut self, about: About, what: &str, now: Duration) -> Option<String> {
        self.lines.note(&about, now).map(|more| format!("{what}{more}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use azekura_base::NodeId;
    use azekura_node::{Location, NodeView};
    use std::num::NonZeroU8;

    #[test]
    fn strangers_shake_hands_so_often_and_nodes_as_often_as_they_like() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let node = NodeView {
            address: (address(1), 7101).into(),
            shards: NonZeroU8::MIN,
            keys: Vec::new(),
            location: Location::default(),
        };
        let mut floods = Floods::default();
        floods.follow(&ClusterView { nodes: [(NodeId(1), node)].into(), ..ClusterView::default() });
        let admitted = |floods: &mut Floods, from: u8, ms: u64, count: u32| {
            let now = Duration::from_millis(5000 + ms);
            (0..count).filter(|_| floods.admits(Some(address(from)), now)).count() as u32
        };
        assert_eq!(admitted(&mut floods, 2, 0, 1000), STRANGE_HANDSHAKES_MAX);
        assert_eq!(admitted(&mut floods, 3, 0, 1000), 0, "whichever address");
        assert_eq!(admitted(&mut floods, 1, 0, 1000), 1000);
        assert_eq!(admitted(&mut floods, 2, 500, 1000), STRANGE_HANDSHAKES_MAX / 2);
        assert_eq!(admitted(&mut floods, 2, 60_000, 1000), STRANGE_HANDSHAKES_MAX);
    }

    #[test]
    fn one_line_a_minute_tells_of_an_address() {
        let mut floods = Floods::default();
        let [one, two] = [1, 2].map(|last| About::Address(Some(IpAddr::from([10, 0, 0, last]))));
        let mut line = |about, seconds| floods.line(about, "no", Duration::from_secs(seconds));
        assert_eq!([line(one, 0), line(one, 59), line(two, 59)], [Some("no".to_owned()), None, Some("no".to_owned())]);
        assert_eq!(line(one, 61).unwrap(), "no (1 times more in the last minute)");
    }
}
