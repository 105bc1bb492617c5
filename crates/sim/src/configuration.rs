//! The simulated configuration store: compare-and-swap of groups' configurations, and news to all nodes.
//!
//! A process's client asks again until it has an answer, as the real one does: an answer may be lost although the
//! change was made.

use crate::Mode;
use crate::events::{Event, Life};
use crate::plan::Lie;
use crate::random::Random;
use crate::snapshots::tree::Tree;
use crate::world::World;
use azekura_base::{DeviceId, NodeId, PgId, VolumeId};
use azekura_node::{Attachments, ClusterView};
use azekura_replica::GroupConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Pause before a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The store. It takes its time, and nodes may lose it for a while.
pub(crate) struct Configuration {
    /// Its revision counts changes.
    view: Arc<ClusterView>,
    /// The records of layers.
    tree: Tree,
    /// The latest news that each process has had: news that it overtook is void.
    told: BTreeMap<Life, u64>,
    /// Until when nodes do not reach the store.
    away: BTreeMap<NodeId, Duration>,
    /// It answers at once, and loses nothing.
    pub(crate) is_quick: bool,
    /// A node that hears of everything late.
    far: Option<NodeId>,
    random: Random,
    /// The groups as they were when somebody made a backup.
    backup: Option<BTreeMap<PgId, GroupConfig>>,
    /// Groups that wait for all devices after a restore.
    closed: BTreeMap<PgId, GroupConfig>,
    /// Processes that ran when the configuration was last restored.
    former: BTreeSet<Life>,
}

/// Versions and epochs of groups jump to the time, in milliseconds, times this when the configuration was restored.
const NUMBERS_PER_MILLISECOND: u64 = 1 << 20;

impl Configuration {
    pub(crate) fn new(view: ClusterView, far: Option<NodeId>, random: Random) -> Configuration {
        let tree = Tree::of(&view);
        let (told, away) = (BTreeMap::new(), BTreeMap::new());
        Configuration {
            view: Arc::new(view),
            tree,
            told,
            away,
            is_quick: false,
            far,
            random,
            backup: None,
            closed: BTreeMap::new(),
            former: BTreeSet::new(),
        }
    }

    pub(crate) fn has_backup(&self) -> bool {
        self.backup.is_some()
    }

    /// Somebody makes a backup; not of groups that are closed, of which nothing is known.
    pub(crate) fn back_up(&mut self) {
        if self.closed.is_empty() {
            self.backup = Some(self.view.groups.clone());
        }
    }

    /// The groups are as the backup has them.
    pub(crate) fn go_back(&mut self) {
        if let Some(groups) = self.backup.clone() {
            let view = Arc::make_mut(&mut self.view);
            view.revision += 1;
            view.groups = groups;
        }
    }

    /// The same, and somebody says so: the groups are closed, and `running` processes are not told any more.
    pub(crate) fn close_as_of_backup(&mut self, running: BTreeSet<Life>, now: Duration) {
        self.go_back();
        let view = Arc::make_mut(&mut self.view);
        self.closed = std::mem::take(&mut view.groups);
        for config in self.closed.values_mut() {
            let beyond = now.as_millis() as u64 * NUMBERS_PER_MILLISECOND;
            (config.version, config.epoch.0) = (beyond, beyond);
        }
        self.former = running;
    }

    /// All groups, also those that are closed.
    pub(crate) fn group_ids(&self) -> Vec<PgId> {
        self.view.groups.keys().chain(self.closed.keys()).copied().collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Whether a process has run since before the configuration was last restored.
    pub(crate) fn is_former(&self, life: Life) -> bool {
        self.former.contains(&life)
    }

    pub(crate) fn take_closed(&mut self) -> BTreeMap<PgId, GroupConfig> {
        std::mem::take(&mut self.closed)
    }

    pub(crate) fn view(&self) -> &ClusterView {
        &self.view
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Up to which revision a process knows the configuration.
    pub(crate) fn known_by(&self, life: Life) -> u64 {
        self.told.get(&life).copied().unwrap_or(0)
    }

    /// A node does not reach the store until then.
    pub(crate) fn lose(&mut self, node: NodeId, until: Duration) {
        let before = self.away.entry(node).or_default();
        *before = until.max(*before);
    }

    /// Everybody reaches the store again.
    pub(crate) fn come_back(&mut self) {
        self.away.clear();
    }

    /// An operator changes a group.
    pub(crate) fn replace(&mut self, pg: PgId, config: GroupConfig) {
        let view = Arc::make_mut(&mut self.view);
        view.revision += 1;
        view.groups.insert(pg, config);
        self.tree.show(view);
    }

    /// Attachments of a volume change.
    pub(crate) fn set_attachments(&mut self, volume: VolumeId, attachments: Attachments) {
        let view = Arc::make_mut(&mut self.view);
        view.revision += 1;
        view.attachments.insert(volume, attachments);
    }

    /// The control plane changes something; gives the revision.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut ClusterView, &mut Tree)) -> u64 {
        let view = Arc::make_mut(&mut self.view);
        view.revision += 1;
        change(view, &mut self.tree);
        self.tree.show(view);
        view.revision
    }

    pub(crate) fn away(&self, node: NodeId, now: Duration) -> Option<Duration> {
        self.away.get(&node).copied().filter(|until| now < *until)
    }

    pub(crate) fn delay(&mut self) -> Duration {
        if self.is_quick || self.random.chance(90) {
            self.random.micros(200, 3000)
        } else {
            self.random.spread_millis(3, 300)
        }
    }

    /// Makes the change if nobody was faster. True when it is made.
    fn swap(&mut self, pg: PgId, config: &GroupConfig) -> bool {
        let view = Arc::make_mut(&mut self.view);
        match view.groups.get_mut(&pg) {
            Some(current) if current.version + 1 == config.version => {
                *current = config.clone();
                view.revision += 1;
                self.tree.show(view);
                true
            }
            _ => false,
        }
    }
}

impl World {
    /// A process asks for the configuration, or there is news for it.
    pub(crate) fn inform(&mut self, life: Life) {
        if self.configuration.is_former(life) {
            return; // It does not believe what it hears, and is about to end.
        }
        let away = self.configuration.away(life.node, self.now).unwrap_or_default();
        let Configuration { far, random, .. } = &mut self.configuration;
        let late = if *far == Some(life.node) { random.spread_millis(20, 500) } else { Duration::ZERO };
        let at = self.now.max(away) + self.configuration.delay() + late;
        let mut view = self.configuration.view.clone();
        if self.plan.lie == Some(Lie::HeadAfterRevert) && life.node == NodeId(1) {
            self.snapshots.cuts.unrevert(Arc::make_mut(&mut view));
        }
        self.queue.push(at, Event::Configure(life, view));
    }

    /// News has come.
    pub(crate) fn configure(&mut self, life: Life, view: &ClusterView) {
        let told = self.configuration.told.entry(life).or_default();
        if view.revision >= *told {
            *told = view.revision;
            self.tell(life, |node| node.configure(view.clone()));
        }
    }

    /// There is news for every process.
    pub(crate) fn inform_all(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let lives: Vec<Life> = nodes.into_iter().filter_map(|node| self.life_of(node)).collect();
        lives.into_iter().for_each(|life| self.inform(life));
    }

    /// A process proposes a group's configuration.
    pub(crate) fn propose(&mut self, from: Life, pg: PgId, device: DeviceId, config: GroupConfig) {
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Propose { from, pg, device, config });
    }

    /// The proposal has come, for the first time or again.
    pub(crate) fn proposed(&mut self, from: Life, pg: PgId, device: DeviceId, config: GroupConfig) {
        if self.life_of(from.node) != Some(from) {
            return; // What a process that is gone had sent comes by itself.
        }
        let version = config.version;
        let away = self.configuration.away(from.node, self.now).is_some();
        let troubled =
            !matches!(self.plan.faults, Mode::Calm | Mode::Flips) && self.working && !self.configuration.is_quick;
        let random = &mut self.configuration.random;
        let lost = away || (troubled && random.chance(5));
        if lost {
            if random.chance(if away { 20 } else { 50 }) {
                // The store gets it, now or late; the answer is lost.
                let at = self.now + random.spread_millis(1, 2000);
                self.queue.push(at, Event::LatePropose { pg, config: config.clone() });
            }
            self.queue.push(self.now + RETRY_PAUSE, Event::Propose { from, pg, device, config });
            return;
        }
        let stands = self.configuration.view.groups.get(&pg) == Some(&config);
        let accepted = stands || self.configuration.swap(pg, &config);
        self.trace.step(self.now, version, || {
            let GroupConfig { epoch, primary, in_sync, .. } = &config;
            format!(
                "{from:?} proposes version {version} of {pg:?}, {epoch:?} of {primary:?} with {in_sync:?}: {accepted}"
            )
        });
        let at = self.now + self.configuration.delay();
        let revision = accepted.then_some(self.configuration.view.revision);
        self.queue.push(at, Event::Proposed { to: from, pg, device, version, accepted: revision });
        if accepted && !stands {
            self.inform_all();
        }
    }

    /// The store gets a proposal whose sender does not learn of it.
    pub(crate) fn execute(&mut self, pg: PgId, config: GroupConfig) {
        let accepted = self.configuration.swap(pg, &config);
        self.trace
            .step(self.now, config.version, || format!("version {} of {pg:?} comes late: {accepted}", config.version));
        if accepted {
            self.inform_all();
        }
    }
}
