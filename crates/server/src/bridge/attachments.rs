//! Attachments and snapshots: between the data plane and the control plane.

use crate::bridge::layer_questions;
use crate::driver::dataplane::{Command, Handle};
use azekura_base::{Generation, IoStatus, LayerId, NodeId, PgId, VolumeId};
use azekura_control::attachments::{FENCE_WAIT, FREEZE_WAIT, Later};
use azekura_control::layers::{CompareLayers, Differences, MeasureLayer, Measured, NotTold};
use azekura_control::{Attacher, DataPlane};
use azekura_meta::MetaClient;
use azekura_node::Attachments;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, oneshot, watch};

/// How long a client waits for the node to know the configuration in which the client has its volume.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// Pause before a volume is given back again that could not be.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The control plane's way to the data plane.
pub struct Plane {
    /// The data plane.
    pub handle: Handle,
    /// The incarnation of this process.
    pub incarnation: u64,
}

impl DataPlane for Plane {
    fn fence(
        &self,
        volume: VolumeId,
        generation: Generation,
        standing: Vec<Generation>,
        groups: Vec<PgId>,
    ) -> Later<'_, Result<(), Vec<PgId>>> {
        let (answer, answered) = oneshot::channel();
        let all = groups.clone();
        let attachments = Attachments { generation, standing };
        self.handle.send(Command::Fence(Fence { volume, attachments, groups, patience: FENCE_WAIT, answer }));
        Box::pin(async move { answered.await.unwrap_or(Err(all)) })
    }

    fn freeze(
        &self,
        volume: VolumeId,
        head: LayerId,
        revision: u64,
        groups: Vec<PgId>,
    ) -> Later<'_, Result<(), Vec<PgId>>> {
        let (answer, answered) = oneshot::channel();
        let all = groups.clone();
        self.handle.send(Command::Freeze(Freeze { volume, head, revision, groups, patience: FREEZE_WAIT, answer }));
        Box::pin(async move { answered.await.unwrap_or(Err(all)) })
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn trim(&self, volume: String, attachment: Generation, offset: u64, len: u64) -> Later<'_, Result<(), IoStatus>> {
        let (answer, answered) = oneshot::channel();
        self.handle.send(Command::Trim(Trim { volume, attachment, offset, len, answer }));
        Box::pin(async move { answered.await.unwrap_or(Err(IoStatus::Gone)) })
    }

    fn compare_layers(&self, asked: CompareLayers) -> Later<'_, Result<Differences, NotTold>> {
        Box::pin(layer_questions::compare(&self.handle, asked))
    }

    fn measure_layer(&self, asked: MeasureLayer) -> Later<'_, Result<Measured, NotTold>> {
        Box::pin(layer_questions::measure(&self.handle, asked))
    }

    fn ended(&self, processes: Vec<(NodeId, u64)>) -> Later<'_, BTreeSet<(NodeId, u64)>> {
        Box::pin(async move {
            let seen = self.handle.inspect(move |look| {
                let ended = |(node, incarnation): &(NodeId, u64)| look.node.has_ended(*node, *incarnation);
                processes.into_iter().filter(ended).collect()
            });
            seen.await.unwrap_or_default()
        })
    }
}

/// What [`azekura_node::Node::fence`] is asked.
pub struct Fence {
    /// The volume.
    pub volume: VolumeId,
    /// Its attachments.
    pub attachments: Attachments,
    /// Groups that have to confirm.
    pub groups: Vec<PgId>,
    /// How long they may take.
    pub patience: Duration,
    /// Gets the outcome.
    pub answer: oneshot::Sender<Result<(), Vec<PgId>>>,
}

/// What [`azekura_node::Node::freeze`] is asked.
pub struct Freeze {
    /// The volume.
    pub volume: VolumeId,
    /// Its head layer.
    pub head: LayerId,
    /// The revision of the configuration in which the cut began.
    pub revision: u64,
    /// Groups that have to confirm.
    pub groups: Vec<PgId>,
    /// How long they may take.
    pub patience: Duration,
    /// Gets the outcome.
    pub answer: oneshot::Sender<Result<(), Vec<PgId>>>,
}

/// A trim that no client has asked for.
pub struct Trim {
    /// The volume.
    pub volume: String,
    /// An attachment of this process.
    pub attachment: Generation,
    /// From here on.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Gets the outcome.
    pub answer: oneshot::Sender<Result<(), IoStatus>>,
}

/// Attaches volumes for this node's clients and gives them back, one thing a volume at a time.
#[derive(Clone)]
pub struct Keeper {
    attacher: Attacher,
    client: MetaClient,
    handle: Handle,
    /// Up to which revision the data plane has been told of the configuration.
    told: watch::Receiver<u64>,
    node: NodeId,
    incarnation: u64,
    busy: Arc<std::sync::Mutex<BTreeMap<String, Arc<Mutex<()>>>>>,
}

impl Keeper {
    /// A keeper for this process. `told` follows the revision of the configuration that the data plane has been told
    /// last.
    pub fn new(
        attacher: Attacher,
        client: MetaClient,
        handle: Handle,
        told: watch::Receiver<u64>,
        node: NodeId,
        incarnation: u64,
    ) -> Keeper {
        Keeper { attacher, client, handle, told, node, incarnation, busy: Arc::default() }
    }

    /// Waits until the data plane knows the configuration in which a volume is attached: before, it may know an older
    /// head of the volume, and read what was there before a revert.
    async fn until_known(&self, volume: VolumeId, attachment: Generation) -> Result<(), String> {
        let (mut models, mut told) = (self.client.watch_model(), self.told.clone());
        let known = async {
            let stands = |model: &Arc<azekura_model::Model>| {
                model.attachments.get(&volume).is_some_and(|attachments| attachments.record.generation >= attachment)
            };
            let revision = models.wait_for(stands).await.ok().and_then(|model| u64::try_from(model.revision).ok());
            let revision = revision.unwrap_or(u64::MAX);
            told.wait_for(|told| *told >= revision).await.is_ok()
        };
        match tokio::time::timeout(KNOWN_WITHIN, known).await {
            Ok(true) => Ok(()),
            _ => Err(format!("this node has not read the configuration for {KNOWN_WITHIN:?}; try again when it has")),
        }
    }

    /// Its lock; volumes that nobody works on are forgotten.
    fn lock(&self, volume: &str) -> Arc<Mutex<()>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.retain(|name, lock| name == volume || Arc::strong_count(lock) > 1);
        Arc::clone(busy.entry(volume.to_owned()).or_default())
    }

    /// Attaches a volume.
    pub async fn attach(self, volume: String) {
        let lock = self.lock(&volume);
        let _alone = lock.lock().await;
        let outcome = self.attacher.attach_for_clients(&volume, self.node, self.incarnation).await;
        let outcome = outcome.map_err(|error| {
            tracing::info!("a client can't have volume {volume}: {error}");
            error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"))
        });
        let outcome = match outcome {
            Ok((id, attachment)) => match self.until_known(id, attachment).await {
                Ok(()) => Ok((id, attachment)),
                Err(why) => {
                    // Nobody here uses it: others must not find it taken.
                    if let Err(error) = self.attacher.give_back(&volume, self.node, attachment).await {
                        tracing::warn!("can't give volume {volume} back: {error}");
                    }
                    Err(why)
                }
            },
            refused => refused,
        };
        self.handle.send(Command::Attached(volume, outcome));
    }

    /// Gives a volume back.
    pub async fn give_back(self, volume: String, attachment: Generation) {
        let lock = self.lock(&volume);
        let _alone = lock.lock().await;
        while let Err(error) = self.attacher.give_back(&volume, self.node, attachment).await {
            tracing::warn!("can't give volume {volume} back: {error}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        self.handle.send(Command::GivenBack(volume));
    }
}
