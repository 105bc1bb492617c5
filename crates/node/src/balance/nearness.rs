//! Which copy is near to those who write to it (docs/decisions/0056-class-homes.md).

use crate::view::ClusterView;
use azekura_base::{DeviceId, Endpoint};
use std::collections::BTreeMap;

/// Share of a group's writes, in percent, that must come from one place.
const SHARE_MIN: u32 = 80;

/// What two shards may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Near {
    /// They are one.
    Shard,
    /// They are in one rack.
    Rack,
    /// They are in one site.
    Site,
}

/// What a shard has in common with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Domain<'a> {
    Shard(Endpoint),
    Rack { site: &'a str, rack: &'a str },
    Site(&'a str),
}

impl Near {
    /// What a shard has in common with those that are so near to it; `None`: it is not known where its node stands.
    fn domain(self, view: &ClusterView, at: Endpoint) -> Option<Domain<'_>> {
        if self == Near::Shard {
            return Some(Domain::Shard(at));
        }
        let location = &view.nodes.get(&at.node)?.location;
        let (site, rack) = (&*location.site, &*location.rack);
        match self {
            Near::Rack => (!rack.is_empty()).then_some(Domain::Rack { site, rack }),
            _ => (!site.is_empty()).then_some(Domain::Site(site)),
        }
    }
}

/// Of the copies of a group that is led at `own`, one that is nearer to where most writes come from: at the same shard,
/// or else in the same rack, or else in the same site. `total`: all writes, also those of shards that are not known.
pub(super) fn nearer(
    view: &ClusterView,
    own: Endpoint,
    copies: &[(DeviceId, Endpoint)],
    writers: &[(Endpoint, u32)],
    total: u32,
) -> Option<DeviceId> {
    let busiest = writers.iter().max_by_key(|(_, writes)| *writes).map(|(at, _)| at.node);
    for near in [Near::Shard, Near::Rack, Near::Site] {
        let mut writes = BTreeMap::<Domain<'_>, u32>::new();
        for (at, count) in writers {
            near.domain(view, *at).into_iter().for_each(|domain| *writes.entry(domain).or_default() += count);
        }
        let most = writes.into_iter().max_by_key(|(_, writes)| *writes);
        let Some((domain, _)) = most.filter(|(_, writes)| writes * 100 >= total * SHARE_MIN) else { continue };
        let is_there = |at: Endpoint| near.domain(view, at) == Some(domain);
        if is_there(own) {
            return None;
        }
        let there = copies.iter().filter(|(_, at)| is_there(*at));
        if let Some((to, _)) = there.min_by_key(|(_, at)| Some(at.node) != busiest) {
            return Some(*to);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Location, NodeView};
    use azekura_base::{NodeId, Shard};
    use std::num::NonZeroU8;

    /// Nodes 1 to 4 are in two racks of one site, node 5 is in another site, and of node 6 nothing is known.
    fn view() -> ClusterView {
        let stands = [("a", "1"), ("a", "1"), ("a", "2"), ("a", "2"), ("b", "1"), ("", "")];
        let node = |(id, (site, rack)): (u32, (&str, &str))| {
            let location = Location { site: site.into(), rack: rack.into() };
            let address = "127.0.0.1:1".parse().unwrap();
            (NodeId(id), NodeView { address, shards: NonZeroU8::MIN, keys: Vec::new(), location })
        };
        ClusterView { nodes: (1..).zip(stands).map(node).collect(), ..ClusterView::default() }
    }

    fn at(node: u32) -> Endpoint {
        Endpoint { node: NodeId(node), shard: Shard(0) }
    }

    /// To which node a group goes that is led at `own`, with copies and writers at these nodes.
    fn goes(own: u32, copies: &[u32], writers: &[(u32, u32)]) -> Option<u32> {
        let copies: Vec<_> = copies.iter().map(|node| (DeviceId(*node), at(*node))).collect();
        let total = writers.iter().map(|(_, writes)| writes).sum();
        let writers: Vec<_> = writers.iter().map(|(node, writes)| (at(*node), *writes)).collect();
        nearer(&view(), at(own), &copies, &writers, total).map(|device| device.0)
    }

    #[test]
    fn to_the_writer_itself_before_all() {
        assert_eq!(goes(5, &[5, 1, 2], &[(1, 10)]), Some(1));
        assert_eq!(goes(2, &[5, 1, 2], &[(1, 10)]), Some(1), "from the next machine in its rack");
        assert_eq!(goes(1, &[5, 1, 2], &[(1, 10)]), None);
        assert_eq!(goes(5, &[5, 6], &[(6, 10)]), Some(6));
    }

    #[test]
    fn else_into_its_rack_or_its_site() {
        assert_eq!(goes(5, &[5, 3, 2], &[(1, 10)]), Some(2), "in the same rack");
        assert_eq!(goes(3, &[5, 3, 2], &[(1, 10)]), Some(2), "it is only in the same site");
        assert_eq!(goes(2, &[2, 3, 5], &[(1, 10)]), None, "it is in the rack already");
        assert_eq!(goes(5, &[5, 3], &[(1, 10)]), Some(3), "in the same site");
        assert_eq!(goes(3, &[5, 3, 4], &[(1, 10)]), None, "it is in the site already");
        assert_eq!(goes(5, &[5, 6], &[(1, 10)]), None, "nothing is near");
        assert_eq!(goes(5, &[5, 1], &[(6, 10)]), None, "nobody knows where the writer is");
    }

    #[test]
    fn where_most_writes_come_from() {
        assert_eq!(goes(5, &[5, 1, 2], &[(1, 5), (2, 5)]), Some(2), "together they are most, in one rack");
        assert_eq!(goes(5, &[5, 1, 4], &[(1, 5), (3, 5)]), Some(1), "together they are most, in one site");
        assert_eq!(goes(5, &[5, 1], &[(1, 7), (5, 3)]), None);
        assert_eq!(goes(5, &[5, 1], &[(1, 8), (5, 2)]), Some(1));
    }
}
