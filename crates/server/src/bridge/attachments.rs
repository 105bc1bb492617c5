//! Attachments and snapshots: between the data plane and the control plane.

use crate::bridge::layer_questions;
use crate::bridge::reservations::ReservationKeeper;
use crate::driver::commands::{Command, Fence, Freeze, Trim};
use crate::driver::messages::Handles;
use crate::vhost_sockets::VhostSockets;
use azekura_base::{
    Generation, IoStatus, KeyId, KeyUse, LayerId, NodeId, PgId, RekeyProgress, RekeyWish, Shard, VolumeId,
};
use azekura_control::attachments::{FENCE_WAIT, FREEZE_WAIT, Had, Later, Wanting};
use azekura_control::layers::{CompareLayers, Differences, MeasureLayer, Measured, NotTold};
use azekura_control::{Attacher, DataPlane, Reserver};
use azekura_frontend::{Attachment, Errand, Holders, Refusal, VolumeUse};
use azekura_meta::MetaClient;
use azekura_meta::time::unix_seconds;
use azekura_node::{Attachments, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// How long a client waits for the node to know the configuration in which the client has its volume.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// Whether a process has ended is known within this time, or not known: a dial to a machine that is there is answered
/// sooner.
const FOUND_OUT_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// How long a volume that was attached for a host's writes is kept for the host to come again: NVMe hosts do after
/// 10 s, unless they are told otherwise (`reconnect-delay`).
const LINGERS: Duration = Duration::from_secs(15);
/// Pause before a volume is given back again that could not be.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The control plane's way to the data plane. What any shard can do, the first one does.
pub struct Plane {
    /// The data plane.
    pub shards: Handles,
    /// The incarnation of this process.
    pub incarnation: u64,
    /// Sockets that are made while it runs.
    pub sockets: Arc<VhostSockets>,
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
        self.shards.first().send(Command::Fence(Fence { volume, attachments, groups, patience: FENCE_WAIT, answer }));
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
        self.shards.first().send(Command::Freeze(Freeze {
            volume,
            head,
            revision,
            groups,
            patience: FREEZE_WAIT,
            answer,
        }));
        Box::pin(async move { answered.await.unwrap_or(Err(all)) })
    }

    fn expose(&self, volume: String, socket: Option<String>) -> Later<'_, Result<(), String>> {
        Box::pin(self.sockets.expose(volume, socket))
    }

    fn unexpose(&self, volume: String, socket: Option<String>) -> Later<'_, Result<(), String>> {
        Box::pin(self.sockets.unexpose(volume, socket))
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    fn trim(&self, volume: String, attachment: Generation, offset: u64, len: u64) -> Later<'_, Result<(), IoStatus>> {
        let (answer, answered) = oneshot::channel();
        self.shards.first().send(Command::Trim(Trim { volume, attachment, offset, len, answer }));
        Box::pin(async move { answered.await.unwrap_or(Err(IoStatus::Gone)) })
    }

    fn compare_layers(&self, asked: CompareLayers) -> Later<'_, Result<Differences, NotTold>> {
        Box::pin(layer_questions::compare(&self.shards, asked))
    }

    fn measure_layer(&self, asked: MeasureLayer) -> Later<'_, Result<Measured, NotTold>> {
        Box::pin(layer_questions::measure(&self.shards, asked))
    }

    fn key_use(&self, keys: Vec<KeyId>) -> Later<'_, Option<Vec<Vec<KeyUse>>>> {
        let asked = move |node: &Node| keys.iter().map(|key| node.gateway().key_use(*key)).collect();
        Box::pin(async move { self.shards.inspect(move |look| asked(look.node)).await })
    }

    fn rekey(&self, wishes: BTreeMap<VolumeId, RekeyWish>, revision: i64) {
        self.shards.first().send(Command::Rekey(wishes, revision.unsigned_abs()));
    }

    fn rekeying(&self) -> Later<'_, BTreeMap<VolumeId, RekeyProgress>> {
        Box::pin(async {
            let seen = self.shards.inspect(|look| look.node.rekeying().collect::<Vec<_>>()).await;
            seen.unwrap_or_default().into_iter().flatten().collect()
        })
    }

    fn ended(&self, processes: Vec<(NodeId, u64)>) -> Later<'_, BTreeSet<(NodeId, u64)>> {
        Box::pin(async move {
            // The first dials them, unless it is connected; what any shard knows counts.
            self.shards.first().send(Command::AskAbout(processes.clone()));
            let until = Instant::now() + FOUND_OUT_WITHIN;
            loop {
                let (ended, settled) = self.ended_and_settled(&processes).await;
                if settled || Instant::now() >= until {
                    return ended;
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
        })
    }
}

impl Plane {
    /// Of these processes, those that have ended; and whether of each it is known that it has, or that it is there.
    async fn ended_and_settled(&self, processes: &[(NodeId, u64)]) -> (BTreeSet<(NodeId, u64)>, bool) {
        let asked = processes.to_vec();
        let seen = self.shards.inspect(move |look| {
            let of = |knows: fn(&Node, NodeId, u64) -> bool| -> BTreeSet<(NodeId, u64)> {
                let knows = |(node, incarnation): &&(NodeId, u64)| knows(look.node, *node, *incarnation);
                asked.iter().filter(knows).copied().collect()
            };
            (of(Node::has_ended), of(Node::is_reached))
        });
        let (ended, reached): (Vec<_>, Vec<_>) = seen.await.unwrap_or_default().into_iter().unzip();
        // One that has met a later process knows it for all.
        let ended: BTreeSet<(NodeId, u64)> = ended.into_iter().flatten().collect();
        let reached: BTreeSet<(NodeId, u64)> = reached.into_iter().flatten().collect();
        let settled = processes.iter().all(|process| ended.contains(process) || reached.contains(process));
        (ended, settled)
    }
}

/// Attaches volumes for the clients of all shards and gives them back, one thing a volume at a time: [`Holders`] says
/// when.
#[derive(Clone)]
pub struct Keeper {
    attacher: Attacher,
    client: MetaClient,
    shards: Handles,
    /// Up to which revision the data plane has been told of the configuration.
    configured: watch::Receiver<u64>,
    node: NodeId,
    incarnation: u64,
    holders: Arc<Mutex<Holders>>,
    /// What clients ask of reservations.
    pub reservations: Arc<ReservationKeeper>,
}

impl Keeper {
    /// A keeper for this process, in a runtime. `configured` follows the revision of the configuration that all shards
    /// have been told last.
    pub fn new(
        attacher: Attacher,
        client: MetaClient,
        shards: Handles,
        configured: watch::Receiver<u64>,
        node: NodeId,
        incarnation: u64,
    ) -> Keeper {
        let reserver = Reserver::new(client.clone(), attacher.clone());
        let reservations = ReservationKeeper::new(reserver, client.clone(), shards.clone(), configured.clone());
        // Ends when the keeper is dropped.
        tokio::spawn(reservations.confirm_what_is_heeded((node, incarnation)));
        let (holders, reservations) = (Arc::default(), Arc::new(reservations));
        Keeper { attacher, client, shards, configured, node, incarnation, holders, reservations }
    }

    /// Clients of a shard want a volume.
    pub fn wanted(&self, shard: Shard, volume: &VolumeUse) {
        self.tell_holders(|holders| holders.wanted(shard, volume));
    }

    /// Clients have writes for a volume that the process has to read.
    pub fn wanted_to_write(&self, volume: &VolumeUse) {
        self.tell_holders(|holders| holders.wanted_to_write(volume));
    }

    /// No client of a shard uses an attachment any more.
    pub fn idle(&self, shard: Shard, volume: &VolumeUse, attachment: Generation) {
        self.tell_holders(|holders| holders.idle(shard, volume, attachment));
    }

    /// A shard has found that an attachment has ended.
    pub fn ended(&self, shard: Shard, volume: &VolumeUse, attachment: Generation) {
        self.tell_holders(|holders| holders.ended(shard, volume, attachment));
    }

    /// Takes news, and does what follows. Each shard is told things in their order: under the lock.
    fn tell_holders(&self, news: impl FnOnce(&mut Holders)) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        news(&mut holders);
        while let Some(errand) = holders.next_errand() {
            match errand {
                Errand::Attach(volume, to_write) => drop(tokio::spawn(self.clone().attach(volume, to_write))),
                Errand::GiveBack(volume, attachment) => {
                    tokio::spawn(self.clone().give_back(volume, attachment));
                }
                Errand::Tell(shard, volume, outcome) => self.shards.send(shard, Command::Attached(volume, outcome)),
                Errand::Linger(volume) => drop(tokio::spawn(self.clone().linger(volume))),
                Errand::TellLeft(shard, volume) => self.shards.send(shard, Command::GivenBack(volume)),
            }
        }
    }

    /// Waits until the data plane knows the configuration in which a volume is attached: before, it may know an older
    /// head of the volume, and read what was there before a revert.
    async fn until_known(&self, volume: VolumeId, attachment: Generation) -> Result<(), String> {
        let (mut models, mut configured) = (self.client.watch_model(), self.configured.clone());
        let known = async {
            let stands = |model: &Arc<azekura_model::Model>| {
                model.attachments.get(&volume).is_some_and(|attachments| attachments.record.generation >= attachment)
            };
            let revision = models.wait_for(stands).await.ok()?.revision;
            let revision = u64::try_from(revision).ok()?;
            configured.wait_for(|upto| *upto >= revision).await.ok().map(drop)
        };
        match tokio::time::timeout(KNOWN_WITHIN, known).await {
            Ok(Some(())) => Ok(()),
            _ => Err(format!("this node has not read the configuration for {KNOWN_WITHIN:?}; try again when it has")),
        }
    }

    async fn attach(self, volume: VolumeUse, to_write: bool) {
        let to_write = to_write && !self.has_just_turned(&volume);
        let outcome = self.try_to_attach(&volume, to_write).await;
        if to_write && outcome.is_ok() {
            tracing::info!(volume = volume.volume, "volume {volume} is written through this node from now on");
        }
        self.tell_holders(|holders| holders.attached(&volume, outcome));
    }

    async fn linger(self, volume: VolumeUse) {
        tokio::time::sleep(LINGERS).await;
        self.tell_holders(|holders| holders.has_lingered(&volume));
    }

    /// The host of a volume has just turned to another node, which keeps its writes for now.
    fn has_just_turned(&self, volume: &VolumeUse) -> bool {
        let model = self.client.model();
        let record = model.volumes.get(&volume.volume).and_then(|found| model.attachments.get(&found.id));
        let is_alive = |node| model.alive.contains_key(&node);
        record
            .zip(volume.host.as_ref())
            .is_some_and(|(record, host)| record.record.has_just_turned(host, self.node, unix_seconds(), is_alive))
    }

    async fn try_to_attach(&self, volume: &VolumeUse, to_write: bool) -> Result<Attachment, Refusal> {
        let Keeper { node, incarnation, .. } = *self;
        let wanting = Wanting { node, incarnation, host: volume.host.clone(), to_write };
        let attached = self.attacher.attach_for_clients(&volume.volume, &wanting).await;
        let had = attached.map_err(|error| {
            tracing::info!(volume = volume.volume, "a client can't have volume {volume}: {error}");
            let why = error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"));
            Refusal { why, attached: None }
        })?;
        let Had { volume: id, attachment, writes } = had;
        let has = Attachment { volume: id, generation: attachment, writes };
        let known = self.until_known(id, attachment).await;
        known.map(|()| has).map_err(|why| Refusal { why, attached: Some(has) })
    }

    async fn give_back(self, volume: VolumeUse, attachment: Generation) {
        while let Err(error) = self.attacher.give_back(&volume.volume, self.node, attachment).await {
            tracing::warn!(volume = volume.volume, "can't give volume {volume} back: {error}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        self.tell_holders(|holders| holders.given_back(&volume));
    }
}
