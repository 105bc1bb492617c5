//! The simulated configuration store: compare-and-swap of groups' configurations, and news to all nodes.

use crate::events::{Event, Life};
use crate::random::Random;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_node::ClusterView;
use azekura_replica::GroupConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The store. It never fails; it takes its time.
pub(crate) struct Configuration {
    view: Arc<ClusterView>,
    /// When the latest news reaches each process: news does not overtake news.
    told_at: BTreeMap<Life, Duration>,
    random: Random,
}

impl Configuration {
    pub(crate) fn new(view: ClusterView, random: Random) -> Configuration {
        Configuration { view: Arc::new(view), told_at: BTreeMap::new(), random }
    }

    pub(crate) fn view(&self) -> &ClusterView {
        &self.view
    }

    fn delay(&mut self) -> Duration {
        if self.random.chance(90) { self.random.micros(200, 3000) } else { self.random.spread_millis(3, 300) }
    }
}

impl World {
    /// A process asks for the configuration, or there is news for it.
    pub(crate) fn inform(&mut self, life: Life) {
        let at = self.now + self.configuration.delay();
        let told_at = self.configuration.told_at.entry(life).or_default();
        *told_at = at.max(*told_at);
        self.queue.push(*told_at, Event::Configure(life, self.configuration.view.clone()));
    }

    /// A process proposes a group's configuration.
    pub(crate) fn propose(&mut self, from: Life, pg: PgId, device: DeviceId, config: GroupConfig) {
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Propose { from, pg, device, config });
    }

    /// The proposal has come: it stands if nobody was faster.
    pub(crate) fn proposed(&mut self, from: Life, pg: PgId, device: DeviceId, config: GroupConfig) {
        let version = config.version;
        let view = Arc::make_mut(&mut self.configuration.view);
        let accepted = match view.groups.get_mut(&pg) {
            Some(current) if current.version + 1 == version => {
                *current = config;
                true
            }
            _ => false,
        };
        self.trace.step(self.now, version, || format!("{from:?} proposes version {version} of {pg:?}: {accepted}"));
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Proposed { to: from, pg, device, version, accepted });
        if accepted {
            let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
            let lives: Vec<Life> = nodes.into_iter().filter_map(|node| self.life_of(node)).collect();
            lives.into_iter().for_each(|life| self.inform(life));
        }
    }
}
