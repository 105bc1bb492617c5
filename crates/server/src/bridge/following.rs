//! The configuration, as the data plane and the devices' folders are told of it.

use crate::bridge::admission::admission;
use crate::bridge::deleted::{self, Deleted};
use crate::bridge::holdings::Parents;
use crate::bridge::portals::portals;
use crate::bridge::reservations::ReservationViews;
use crate::bridge::targets::targets;
use crate::bridge::wrapping_keys;
use crate::disk::device::DeviceDir;
use crate::disk::initialise;
use crate::disk::layers_file::Note;
use crate::disk::seen::Memory;
use crate::driver::commands::{Command, ReadyDevice};
use crate::driver::messages::Handles;
use azekura_base::{DeviceId, LayerId, NodeId, Shard};
use azekura_control::{DataKeys, KEYS_RETRY, OpenedSecrets};
use azekura_frontend::{Admission, Portals, Targets};
use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_model::{MetaError, Model};
use azekura_node::{ClusterView, Views};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The clock is looked at so often where a client's grant has an end.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// What still works, and would not after the node's next start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles {
    /// Devices whose files were deleted.
    pub(crate) deleted: watch::Sender<Deleted>,
    /// Wrapping keys that the node lacks.
    pub(crate) keks: watch::Sender<Vec<String>>,
}

/// Passes every change of the configuration on to the data plane, and that of layers to the devices' folders before;
/// takes devices in that are open later than the node. What was seen is noted first.
pub(crate) struct Following {
    client: MetaClient,
    shards: Handles,
    memory: Memory,
    views: Views,
    reservations: ReservationViews,
    /// Up to which revision the data plane has been told.
    configured: watch::Sender<u64>,
    /// What the data plane was told last: all its shards have it together.
    last: Option<Arc<ClusterView>>,
    /// The tree of layers as the folders of the data plane's devices had it when they were opened.
    known: Parents,
    /// The same, told when the data plane has the devices.
    known_sender: watch::Sender<Parents>,
    notes: Vec<Note>,
    /// Devices whose files were deleted, and wrapping keys that the node lacks.
    troubles: Troubles,
    keys: DataKeys,
    /// The secrets of hosts.
    secrets: watch::Receiver<Arc<OpenedSecrets>>,
    /// What the data plane was told that clients may, and when that changes by itself, in seconds since 1970.
    admission: Option<Arc<Admission>>,
    admission_until: Option<u64>,
    /// Where hosts come to volumes, as the data plane was told.
    portals: Arc<Portals>,
    /// Targets of several logical units, likewise.
    targets: Arc<Targets>,
    here: NodeId,
    stop_initialising: Arc<AtomicBool>,
}

impl Following {
    /// Follows for a data plane that has no devices yet.
    pub(crate) fn new(
        (client, here): (&MetaClient, NodeId),
        shards: Handles,
        memory: Memory,
        (keys, secrets): (DataKeys, watch::Receiver<Arc<OpenedSecrets>>),
        stop_initialising: &Arc<AtomicBool>,
    ) -> Following {
        let troubles = Troubles::default();
        tokio::spawn(wrapping_keys::look(client.clone(), keys.clone(), troubles.keks.clone()));
        Following {
            client: client.clone(),
            shards,
            memory,
            views: Views::default(),
            reservations: ReservationViews::default(),
            configured: watch::Sender::new(0),
            last: None,
            known: Parents::new(),
            known_sender: watch::Sender::new(Parents::new()),
            notes: Vec::new(),
            troubles,
            keys,
            secrets,
            admission: None,
            admission_until: None,
            portals: Arc::new(Portals::of(here)),
            targets: Arc::default(),
            here,
            stop_initialising: Arc::clone(stop_initialising),
        }
    }

    /// Up to which revision of the configuration the data plane has been told.
    pub(crate) fn configured(&self) -> watch::Receiver<u64> {
        self.configured.subscribe()
    }

    /// What people are told of that still works, and would not after the node's next start.
    pub(crate) fn troubles(&self) -> Troubles {
        self.troubles.clone()
    }

    /// The tree of layers as the devices' folders have it, renewed when a device has been taken in.
    pub(crate) fn known(&self) -> watch::Receiver<Parents> {
        self.known_sender.subscribe()
    }

    /// A shard has this device.
    pub(crate) fn begin_with(&mut self, shard: Shard, id: DeviceId, folder: &Path, parents: &[(LayerId, LayerId)]) {
        self.known.extend(parents.iter().copied());
        self.attend(shard, id, folder);
    }

    /// From now on a device's folder is told of layers and watched, and the rest of its log is initialised.
    fn attend(&mut self, shard: Shard, id: DeviceId, folder: &Path) {
        self.notes.push(Note::new(id, folder.to_owned()));
        tokio::spawn(deleted::look(id, folder.into(), self.troubles.deleted.clone()));
        self.known_sender.send_replace(self.known.clone());
        let Some(handle) = self.shards.of(shard).cloned() else { return };
        match DeviceDir::open(folder) {
            Ok(dir) => initialise::start(dir, id, handle, Arc::clone(&self.stop_initialising)),
            Err(error) => {
                tracing::error!(device = %id, "device {id}: the log is not initialised further: {error:#}");
                handle.send(Command::NotInitialised(id, format!("its folder can't be read: {error:#}")));
            }
        }
    }

    /// Ends when the configuration can't be believed any more.
    pub(crate) async fn run(mut self, mut late: mpsc::UnboundedReceiver<ReadyDevice>) -> MetaError {
        let mut models = self.client.watch_model();
        loop {
            let model = models.borrow_and_update().clone();
            if let Err(error) = self.pass_on(&model).await {
                return error;
            }
            let until_an_end = self.time_of_admission();
            tokio::select! {
                changed = models.changed() => if changed.is_err() {
                    return MetaError::Interrupted { reason: "the configuration is not followed any more".to_owned() };
                },
                // Somebody who was asked for keys has answered.
                () = self.keys.arrived() => {}
                // Whoever has them may be there by now.
                () = tokio::time::sleep(KEYS_RETRY), if self.keys.any_missing() => {}
                // Of other hosts this node knows the secrets now.
                Ok(()) = self.secrets.changed() => {}
                // Some client's grant ends.
                () = tokio::time::sleep(until_an_end), if self.admission_until.is_some() => {}
                Some(device) = late.recv() => {
                    // The data plane is to know of the layers on the device before it opens the store.
                    self.known.extend(device.parents.iter().copied());
                    if let Err(error) = self.pass_on(&model).await {
                        return error;
                    }
                    self.take_in(device);
                }
            }
        }
    }

    /// Until what clients may changes by itself. Clocks are set: it is looked at again in a minute.
    fn time_of_admission(&self) -> Duration {
        let until = self.admission_until.unwrap_or(u64::MAX);
        Duration::from_secs(until.saturating_sub(unix_seconds())).min(CLOCK_INTERVAL)
    }

    /// Tells the data plane what clients may, where that has changed.
    fn admit(&mut self, model: &Model) {
        let secrets = self.secrets.borrow_and_update().clone();
        let (admission, until) = admission(model, &secrets, unix_seconds());
        self.admission_until = until;
        if self.admission.as_deref() != Some(&admission) {
            let admission = Arc::new(admission);
            self.shards.all().for_each(|shard| shard.send(Command::Admit(Arc::clone(&admission))));
            self.admission = Some(admission);
        }
    }

    /// Tells the data plane where hosts come to volumes, where that has changed.
    fn show_portals(&mut self, model: &Model) {
        let portals = portals(model, self.here);
        if *self.portals != portals {
            self.portals = Arc::new(portals);
            self.shards.all().for_each(|shard| shard.send(Command::Portals(Arc::clone(&self.portals))));
        }
    }

    /// Tells the data plane which volumes are units of targets, where that has changed.
    fn show_targets(&mut self, model: &Model) {
        let targets = targets(model);
        if *self.targets != targets {
            self.targets = Arc::new(targets);
            self.shards.all().for_each(|shard| shard.send(Command::Targets(Arc::clone(&self.targets))));
        }
    }

    async fn pass_on(&mut self, model: &Arc<Model>) -> Result<(), MetaError> {
        self.memory.follow(&self.client, model).await?;
        // Before the volumes are known that it is about.
        self.admit(model);
        self.show_portals(model);
        self.show_targets(model);
        // No volume is known before it is known whether its key is there.
        self.keys.give_back(model, self.here);
        if let Some(keys) = self.keys.follow(model).await {
            self.shards.all().for_each(|shard| shard.send(Command::Keys(Arc::clone(&keys))));
            self.keys.passed_on(&keys);
        }
        // Whoever gets a volume knows before whom he bars.
        if let Some(news) = self.reservations.news(model) {
            self.shards.all().for_each(|shard| shard.send(Command::Reservations(Arc::clone(&news))));
        }
        let mut view = self.views.of(model);
        if model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some()) {
            // What a device holds of layers that the restored configuration does not know lies on others all the same.
            let unknown = self.known.iter().filter(|(layer, _)| !model.layers.contains_key(layer));
            view.parents.extend(unknown.map(|(layer, parent)| (*layer, *parent)));
        }
        let revision = view.revision;
        for note in &mut self.notes {
            note.keep(&view.parents).await;
        }
        // All but the revision.
        view.revision = self.last.as_ref().map_or(0, |last| last.revision);
        if self.last.as_deref() == Some(&view) {
            self.shards.all().for_each(|shard| shard.send(Command::Known(revision)));
        } else {
            let view = Arc::new(ClusterView { revision, ..view });
            self.shards.all().for_each(|shard| shard.send(Command::Configure(Arc::clone(&view))));
            self.last = Some(view);
        }
        self.configured.send_replace(revision);
        Ok(())
    }

    fn take_in(&mut self, device: ReadyDevice) {
        let (shard, id, folder) = (device.shard, device.id, device.dir.path().to_owned());
        self.shards.send(shard, Command::AddDevice(Box::new(device)));
        self.attend(shard, id, &folder);
    }
}
