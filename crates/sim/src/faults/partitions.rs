//! Links are cut, one way or both: what is sent waits, as the systems at both ends send it again and again, until the
//! cut ends or they give the connection up.

use crate::events::Event;
use crate::network::Side;
use crate::world::World;
use azekura_base::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Directions in which nothing gets through, and until when.
#[derive(Default)]
pub(crate) struct Cuts {
    until: BTreeMap<(NodeId, NodeId), Duration>,
}

impl Cuts {
    /// Until when nothing gets from a node to another; `None` when the way is open.
    pub(crate) fn until(&self, from: NodeId, to: NodeId, now: Duration) -> Option<Duration> {
        self.until.get(&(from, to)).copied().filter(|until| now < *until)
    }

    /// True when one direction or both are cut.
    pub(crate) fn between(&self, a: NodeId, b: NodeId, now: Duration) -> bool {
        self.until(a, b, now).is_some() || self.until(b, a, now).is_some()
    }
}

impl World {
    /// Two nodes, or a node and everybody, or two halves of the cluster, can't reach each other; or only one way.
    pub(super) fn cut_some_links(&mut self) -> &'static str {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let random = &mut self.faults.random;
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

    pub(super) fn cut(&mut self, from: NodeId, to: NodeId, until: Duration) {
        self.trace.step(self.now, u64::from(from.0) << 32 | u64::from(to.0), || {
            format!("nothing gets from {from:?} to {to:?} until {:.3}", until.as_secs_f64())
        });
        let before = self.network.cuts.until.entry((from, to)).or_default();
        *before = until.max(*before);
        for conn in self.network.between(from, to) {
            if self.faults.random.chance(50) {
                let patience = self.faults.random.spread_millis(500, 10_000);
                self.queue.push(self.now + patience, Event::TimeOut(conn));
            }
        }
    }

    /// All links are whole again.
    pub(crate) fn heal_links(&mut self) {
        for (a, b) in std::mem::take(&mut self.network.cuts.until).into_keys() {
            for conn in self.network.between(a, b) {
                for side in [Side::Dialler, Side::Acceptor] {
                    self.queue.push(self.now, Event::Arrive(conn, side));
                }
            }
        }
    }
}

/// Short enough to go unnoticed, or longer than leases and than anybody's patience.
fn cut_time(random: &mut crate::random::Random) -> Duration {
    if random.chance(30) { random.spread_millis(20, 700) } else { random.spread_millis(700, 20_000) }
}
