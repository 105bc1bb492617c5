//! Groups and stores, for people.

use crate::cluster::{Cluster, Scene};
use azekura_base::DeviceId;
use azekura_replica::GroupConfig;

impl<S: Scene> Cluster<S> {
    /// What the configuration says of groups, what their copies say, and the stores below them.
    pub(crate) fn describe_groups(&self) -> String {
        let groups = self.nodes().flat_map(|node| node.groups()).map(|group| {
            format!(
                "{:?} on {:?}: {:?} {:?} committed {:?} prepared {:?}",
                group.pg, group.device, group.state, group.epoch, group.committed, group.prepared
            )
        });
        let configs = self.configuration.view().groups.iter().map(|(pg, config)| {
            let GroupConfig { version, primary, in_sync, members, leaving, .. } = config;
            format!(
                "{pg:?} version {version}: {primary:?} reigns, in sync {in_sync:?} of {members:?}, leaving {leaving:?}"
            )
        });
        configs.chain(groups).chain(self.describe_stores()).collect::<Vec<_>>().join("; ")
    }

    fn describe_stores(&self) -> Vec<String> {
        let describe = |id: &DeviceId| {
            let store = self.store_of(*id)?;
            let (space, statistics) = (store.space(), store.statistics());
            let stuck = statistics.records_waiting > 0 && statistics.batches_in_flight == 0;
            let why = if stuck { store.describe() } else { String::new() };
            Some(format!(
                "{id:?}: {} of {} segments free, {} KiB live of {}, full {}, {} records waiting, {} batches in flight {why}",
                space.free_segments,
                space.segments,
                space.live >> 10,
                space.capacity >> 10,
                space.full,
                statistics.records_waiting,
                statistics.batches_in_flight
            ))
        };
        self.devices.keys().filter_map(describe).collect()
    }
}
