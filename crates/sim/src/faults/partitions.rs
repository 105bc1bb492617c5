//! Links are cut, one way or both: what is sent waits, as the systems at both ends send it again and again, until the
//! cut ends or they give the connection up.

use crate::kernel::random::Random;
use crate::world::World;
use azekura_base::NodeId;
use std::time::Duration;

impl World {
    /// Two nodes, or a node and everybody, or two halves of the cluster, can't reach each other; or only one way.
    pub(super) fn cut_some_links(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.random;
        let until = self.now + cut_time(random);
        let one_way = random.chance(40);
        let (kind, side): (_, Vec<NodeId>) = match random.below(3) {
            0 => ("cut link", vec![*random.pick(&nodes)]),
            1 => ("isolated node", vec![*random.pick(&nodes)]),
            _ => ("split cluster", nodes.iter().copied().filter(|_| random.chance(50)).collect()),
        };
        let mut others: Vec<NodeId> = nodes.iter().copied().filter(|node| !side.contains(node)).collect();
        if kind == "cut link" {
            others = vec![*random.pick(&others)];
        }
        // Sometimes those who are cut off have lost the configuration store, too.
        let without_store = kind != "cut link" && random.chance(50);
        let backwards = random.chance(50);
        for a in &side {
            for b in &others {
                if !(one_way && backwards) {
                    self.cut(*a, *b, until);
                }
                if !one_way || backwards {
                    self.cut(*b, *a, until);
                }
            }
        }
        if without_store {
            side.iter().for_each(|node| self.configuration.lose(*node, until));
        }
        match (kind, one_way) {
            (kind, false) => kind,
            ("cut link", true) => "link cut one way",
            ("isolated node", true) => "node isolated one way",
            (_, true) => "cluster split one way",
        }
    }
}

/// Short enough to go unnoticed, or longer than leases and than anybody's patience.
fn cut_time(random: &mut Random) -> Duration {
    if random.chance(30) { random.spread_millis(20, 700) } else { random.spread_millis(700, 20_000) }
}
