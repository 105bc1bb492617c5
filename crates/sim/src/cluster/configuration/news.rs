//! How processes hear of the configuration, and how they change it.

use super::{AllReservations, Configuration, DataKeyring, RETRY_PAUSE};
use crate::cluster::events::Event;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::plan::{Lie, Mode};
use azekura_base::{DeviceId, NodeId, PgId};
use azekura_node::ClusterView;
use azekura_replica::GroupConfig;
use std::sync::Arc;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
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
            self.cuts.unrevert(Arc::make_mut(&mut view));
        }
        let reservations = Arc::clone(&self.configuration.reservations);
        let keys = Arc::clone(&self.configuration.keys);
        self.queue.push(at, Event::Configure(life, view, reservations, keys));
    }

    /// News has come.
    pub(crate) fn configure(
        &mut self,
        life: Life,
        view: &ClusterView,
        reservations: &AllReservations,
        keys: &Arc<DataKeyring>,
    ) {
        let unheard = self.plan.lie == Some(Lie::UnheardDeletions);
        let known = self.configuration.known.entry(life).or_default();
        if view.revision >= *known {
            *known = view.revision;
            if self.reservers.on {
                self.front(life, |frontend, context| frontend.reservations_known(reservations.clone(), context));
            }
            if !keys.is_empty() {
                self.tell(life, |node| node.set_keys(Arc::clone(keys)));
            }
            self.tell(life, |node| node.configure(view.clone()));
            self.front(life, |frontend, context| match unheard {
                true => frontend.known(context),
                false => frontend.volumes_changed(context),
            });
            S::heard(self, life);
            self.hear_of_attachments(life);
            self.confirm_heeding(life);
        }
    }

    /// There is news for every process.
    pub(crate) fn inform_all(&mut self) {
        self.lives().into_iter().for_each(|life| self.inform(life));
    }

    /// A process proposes a group's configuration.
    pub(crate) fn propose(&mut self, from: Life, pg: PgId, device: DeviceId, config: GroupConfig) {
        let at = self.now + self.configuration.delay();
        self.queue.push(at, Event::Propose { from, pg, device, config });
    }

    /// The proposal has come, for the first time or again.
    pub(crate) fn proposed(&mut self, from: Life, pg: PgId, device: DeviceId, config: GroupConfig) {
        if !self.is_alive(from) {
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
        let (accepted, stands) = self.configuration.propose(pg, &config);
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
        let (stands, before) = self.configuration.propose(pg, &config);
        let accepted = stands && !before;
        self.trace
            .step(self.now, config.version, || format!("version {} of {pg:?} comes late: {accepted}", config.version));
        if accepted {
            self.inform_all();
        }
    }

    /// The configurations of a group that are on their way to the store.
    pub(crate) fn proposals(&self, group: PgId) -> impl Iterator<Item = &GroupConfig> {
        self.queue.iter().filter_map(move |event| match event {
            Event::Propose { pg, config, .. } | Event::LatePropose { pg, config } if *pg == group => Some(config),
            _ => None,
        })
    }
}
