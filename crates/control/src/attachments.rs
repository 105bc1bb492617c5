//! Attaching volumes to nodes and detaching them: the record first, then the fence, then the answer
//! (docs/decisions/0009-attachments.md).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use azekura_base::{
    Generation, HostName, IoStatus, KeyId, KeyUse, LayerId, NodeId, PgId, RekeyProgress, RekeyWish, VolumeId,
};
use azekura_meta::MetaClient;
use azekura_meta::cluster::ChangedAttachments;
use azekura_meta::time::now_rfc3339;
use azekura_model::transitions::attachments::AttachRequest;
use azekura_model::{
    AttachmentRecord, AttachmentsRecord, Ending, EtcdError, InTheWay, Kind, MetaError, Model, VOLUME_ATTACHMENTS_MAX,
};
use tokio::time::Instant;

use crate::layers::{CompareLayers, Differences, MeasureLayer, Measured, NotTold};

/// How long a client waits for a volume that somebody else has: longer than a dead node's sign of life
/// ([`azekura_model::transitions::alive::LIFE_TTL_SECONDS`]) stays.
pub const CLIENT_WAIT: Duration = Duration::from_secs(8);
/// How long all groups of a volume may take to confirm a fence.
pub const FENCE_WAIT: Duration = Duration::from_secs(10);
/// How long all groups of a volume may take to freeze its head: all its writes wait meanwhile.
pub const FREEZE_WAIT: Duration = Duration::from_secs(2);
/// How long clients that are just leaving a volume may take before it counts as in use.
pub const LEAVING_WAIT: Duration = Duration::from_millis(1_500);
/// A client that waits looks this often whether the process in its way has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(CLIENT_WAIT.as_secs() as i64 > azekura_model::transitions::alive::LIFE_TTL_SECONDS + 1);

/// A future of the data plane's.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the data plane does for attachments and snapshots.
pub trait DataPlane: Send + Sync + 'static {
    /// Makes sure that no write of a volume's attachments up to `generation`, other than `standing`, is applied any
    /// more in any of `groups`; else the groups that have not confirmed it in time.
    fn fence(
        &self,
        volume: VolumeId,
        generation: Generation,
        standing: Vec<Generation>,
        groups: Vec<PgId>,
    ) -> Later<'_, Result<(), Vec<PgId>>>;

    /// Waits until none of `groups`, which are all of the volume's class, gives a write to its layer `head` a place any
    /// more, and none that has one is uncommitted: the configuration has said so since `revision`, and still says so.
    /// Else the groups that have not confirmed it within [`FREEZE_WAIT`].
    fn freeze(
        &self,
        volume: VolumeId,
        head: LayerId,
        revision: u64,
        groups: Vec<PgId>,
    ) -> Later<'_, Result<(), Vec<PgId>>>;

    /// The incarnation of this process, which it attaches volumes under.
    fn incarnation(&self) -> u64;

    /// Takes away what a volume holds from `offset` on, `len` bytes, under an attachment of this process; else why not.
    fn trim(&self, volume: String, attachment: Generation, offset: u64, len: u64) -> Later<'_, Result<(), IoStatus>>;

    /// A part of what two layers show differently in a group that this node has the primary of.
    fn compare_layers(&self, asked: CompareLayers) -> Later<'_, Result<Differences, NotTold>>;

    /// A part of what the end of a layer would give back on a device of this node.
    fn measure_layer(&self, asked: MeasureLayer) -> Later<'_, Result<Measured, NotTold>>;

    /// What each shard's gateway has of these data keys, and does with them, in their order; `None`: it doesn't answer.
    fn key_use(&self, keys: Vec<KeyId>) -> Later<'_, Option<Vec<Vec<KeyUse>>>>;

    /// Has all blocks of these volumes, and of no others, get the key that is written with: the configuration of this
    /// revision says so.
    fn rekey(&self, wishes: BTreeMap<VolumeId, RekeyWish>, revision: i64);

    /// How far those volumes are.
    fn rekeying(&self) -> Later<'_, BTreeMap<VolumeId, RekeyProgress>>;

    /// Serves a volume at a unix socket of this machine by vhost-user, also after this process's end, until it is
    /// asked not to. `socket`: its place in the folder for these; `None`: as the volume is called. Else why not, as a
    /// sentence's end.
    fn expose(&self, volume: String, socket: Option<String>) -> Later<'_, Result<(), String>>;

    /// No longer at this socket; `None`: at none that was asked for. Who is connected stays. Else why not.
    fn unexpose(&self, volume: String, socket: Option<String>) -> Later<'_, Result<(), String>>;

    /// Those of these processes (node and incarnation) that have certainly ended.
    fn ended(&self, processes: Vec<(NodeId, u64)>) -> Later<'_, BTreeSet<(NodeId, u64)>>;
}

/// Attaches and detaches volumes. Cheap to clone.
#[derive(Clone)]
pub struct Attacher {
    meta: MetaClient,
    data_plane: Arc<dyn DataPlane>,
}

/// A node's name, or its number when it has none.
pub(crate) fn node_name(model: &Model, node: NodeId) -> String {
    model.nodes.get(&node).map_or_else(|| node.to_string(), |record| record.name.clone())
}

/// The node of this name, or number.
pub(crate) fn node_of(model: &Model, name: &str) -> Result<NodeId, MetaError> {
    let found = model.nodes.values().find(|node| node.name == name || node.id.to_string() == name);
    found.map(|node| node.id).ok_or_else(|| MetaError::NotFound { kind: Kind::Node, name: name.to_owned() })
}

/// Who wants a volume: a process, for the clients of a host, or for those of whom no host is known.
#[derive(Clone, Debug)]
pub struct Wanting {
    /// The process's node.
    pub node: NodeId,
    /// The process.
    pub incarnation: u64,
    /// The host.
    pub host: Option<HostName>,
    /// It is to write through this process, and through no other one any more.
    pub to_write: bool,
}

/// What a process has of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Had {
    /// The volume that has the name.
    pub volume: VolumeId,
    /// The attachment's name.
    pub attachment: Generation,
    /// It is to write, too.
    pub writes: bool,
}

impl Wanting {
    /// A process, for clients of whom no host is known.
    #[must_use]
    pub fn of_process(node: NodeId, incarnation: u64) -> Wanting {
        Wanting { node, incarnation, host: None, to_write: false }
    }

    /// What the process has by a record; `None`: nothing, or not enough.
    fn had(&self, record: &AttachmentsRecord) -> Option<Had> {
        let mine = record.of(self.node, self.host.as_ref());
        let mine = mine.filter(|mine| mine.incarnation == Some(self.incarnation))?;
        let had = Had { volume: record.volume, attachment: mine.generation, writes: !mine.reads_only };
        (had.writes || !self.to_write).then_some(had)
    }

    /// The same, as far as `model` knows.
    fn held(&self, model: &Model, volume: &str) -> Option<Had> {
        let id = model.volumes.get(volume)?.id;
        self.had(model.attachments.get(&id).filter(|record| !record.fence_due)?)
    }
}

/// Attachments that keep a volume.
#[derive(Clone, Copy, Debug)]
enum Counted {
    /// All, also what was only asked for by name.
    All,
    /// Those of clients, of this node or of any. What was only asked for by name has no process, and nobody to cut off.
    Clients(Option<NodeId>),
}

impl Counted {
    fn counts(self, entry: &AttachmentRecord) -> bool {
        match self {
            Counted::All => true,
            Counted::Clients(node) => entry.incarnation.is_some() && node.is_none_or(|node| node == entry.node),
        }
    }
}

impl Attacher {
    /// Attaches through this node's data plane.
    pub fn new(meta: MetaClient, data_plane: Arc<dyn DataPlane>) -> Attacher {
        Attacher { meta, data_plane }
    }

    /// The same on somebody's behalf.
    pub(crate) fn acting(&self, meta: &MetaClient) -> Attacher {
        Attacher { meta: meta.clone(), ..self.clone() }
    }

    /// The data plane.
    pub(crate) fn data_plane(&self) -> &Arc<dyn DataPlane> {
        &self.data_plane
    }

    /// Attaches a volume to a node until it is detached. `shared`: beside others or alone; `None`: what the volume was
    /// made for.
    pub async fn attach_by_name(
        &self,
        volume: &str,
        node: &str,
        shared: Option<bool>,
        force: bool,
    ) -> Result<ChangedAttachments, MetaError> {
        let model = self.meta.model();
        let node = node_of(&model, node)?;
        if !model.alive.contains_key(&node) {
            return Err(MetaError::NodeAbsent { node: node_name(&model, node) });
        }
        self.attach(volume, &AttachRequest { shared, force, ..AttachRequest::of_node(node, None) }).await
    }

    /// Attaches a volume to a process for its clients, and waits for it if somebody else has it.
    pub async fn attach_for_clients(&self, volume: &str, wanting: &Wanting) -> Result<Had, MetaError> {
        let Wanting { node, incarnation, to_write, .. } = *wanting;
        let host = wanting.host.clone();
        let wish = AttachRequest { host, to_write, ..AttachRequest::of_node(node, Some(incarnation)) };
        let until = Instant::now() + CLIENT_WAIT;
        loop {
            let mut models = self.meta.watch_model();
            models.mark_unchanged();
            let refusal = match self.attach(volume, &wish).await {
                Ok(changed) => match wanting.had(&changed.attachments) {
                    Some(had) => return Ok(had),
                    // Ended while it was being fenced.
                    None => MetaError::NotAttached { volume: volume.to_owned(), node: None },
                },
                Err(refusal @ MetaError::Attached { .. }) => refusal,
                Err(MetaError::Etcd(
                    EtcdError::Unreachable { reason, .. }
                    | EtcdError::Uncertain { reason, .. }
                    | EtcdError::Denied { reason, .. },
                )) => {
                    // What this process has, it still has, or the groups' primaries know that it has not: they refuse
                    // what was fenced.
                    return wanting.held(&self.meta.model(), volume).ok_or_else(|| MetaError::NotNow {
                        what: format!("attaching volume '{volume}' to node {}", node_name(&self.meta.model(), node)),
                        reason,
                    });
                }
                Err(error) => return Err(error),
            };
            if Instant::now() + LOOK_PAUSE >= until {
                return Err(refusal);
            }
            // It is given back, or the sign of life of whoever has it ends; or the data plane notices that he is gone.
            let _news = tokio::time::timeout(LOOK_PAUSE, models.changed()).await;
        }
    }

    /// Gives an attachment back of which nothing is under way.
    pub async fn give_back(&self, volume: &str, node: NodeId, attachment: Generation) -> Result<(), MetaError> {
        match self.meta.give_back(volume, node, attachment).await {
            Ok(_) | Err(MetaError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends the attachments of these names by force, and fences them. Their nodes' clients may come again.
    pub(crate) async fn put_out(&self, volume: &str, names: &BTreeSet<Generation>) -> Result<(), MetaError> {
        let changed = self.meta.put_out(volume, names).await?;
        self.fence(changed).await.map(drop)
    }

    /// Ends those of these attachments whose processes have certainly ended, and fences what has ended.
    pub(crate) async fn put_out_gone(&self, volume: &str, silent: &BTreeSet<Generation>) -> Result<(), MetaError> {
        let gone = if silent.is_empty() { BTreeSet::new() } else { self.gone(volume).await? };
        let known = self.meta.attachments_of(volume).await?.attachments;
        let is_gone = |entry: &&AttachmentRecord| {
            let process = entry.incarnation.map(|incarnation| (entry.node, incarnation));
            silent.contains(&entry.generation) && process.is_some_and(|process| gone.contains(&process))
        };
        let names: BTreeSet<Generation> =
            known.attachments.iter().filter(is_gone).map(|entry| entry.generation).collect();
        if names.is_empty() && !known.fence_due {
            return Ok(());
        }
        self.put_out(volume, &names).await
    }

    /// Ends a volume's attachment to a node, or all of them, when no clients use it there.
    ///
    /// # Errors
    /// [`MetaError::InUse`] when clients use it, and what [`Attacher::detach`] refuses.
    pub async fn detach_unused(&self, volume: &str, node: Option<&str>) -> Result<ChangedAttachments, MetaError> {
        let wanted = node.map(|name| node_of(&self.meta.model(), name)).transpose()?;
        let ending = self.found_gone(volume, Counted::Clients(wanted)).await?;
        let in_use = || MetaError::InUse { volume: volume.to_owned(), what: "detached" };
        self.end(volume, node, &ending.ok_or_else(in_use)?).await
    }

    /// Ends a volume's attachment to a node, or all of them, and cuts off their clients.
    pub async fn detach(&self, volume: &str, node: Option<&str>) -> Result<ChangedAttachments, MetaError> {
        self.end(volume, node, &Ending::All).await
    }

    async fn end(&self, volume: &str, node: Option<&str>, ending: &Ending) -> Result<ChangedAttachments, MetaError> {
        let wanted = node.map(|name| node_of(&self.meta.model(), name)).transpose()?;
        let known = self.meta.attachments_of(volume).await?;
        if known.attachments.detach(wanted).is_none() && !known.attachments.fence_due {
            return Err(MetaError::NotAttached { volume: volume.to_owned(), node: node.map(ToOwned::to_owned) });
        }
        let changed = self.meta.detach(volume, wanted, ending).await?;
        self.fence(changed).await
    }

    /// The attachments of a volume that has no users: those of processes that have ended. `None`: it has users, or may
    /// get them any moment. Clients that are just leaving get [`LEAVING_WAIT`] for that.
    pub async fn gone_alone(&self, volume: &str) -> Result<Option<Ending>, MetaError> {
        self.found_gone(volume, Counted::All).await
    }

    /// The attachments that count, if all of them are of processes that have ended. Those that are there by name stand
    /// at once, others after [`LEAVING_WAIT`].
    async fn found_gone(&self, volume: &str, counted: Counted) -> Result<Option<Ending>, MetaError> {
        let until = Instant::now() + LEAVING_WAIT;
        loop {
            let mut models = self.meta.watch_model();
            models.mark_unchanged();
            let known = self.meta.attachments_of(volume).await?.attachments;
            let gone = self.gone(volume).await?;
            let is_gone = |entry: &AttachmentRecord| {
                entry.incarnation.is_some_and(|incarnation| gone.contains(&(entry.node, incarnation)))
            };
            let counted_now = || known.attachments.iter().filter(|entry| counted.counts(entry));
            if matches!(counted, Counted::All) && known.attachments.iter().any(|entry| entry.pinned) {
                return Ok(None);
            }
            if counted_now().all(is_gone) {
                return Ok(Some(Ending::Gone(counted_now().map(|entry| entry.generation).collect())));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            let _news = tokio::time::timeout(LOOK_PAUSE, models.changed()).await;
        }
    }

    /// Ends the attachments of a volume whose users have all ended without giving it back.
    pub async fn forget_gone(&self, volume: &str, gone: &Ending) -> Result<(), MetaError> {
        let known = self.meta.attachments_of(volume).await?;
        if known.attachments.attachments.is_empty() && !known.attachments.fence_due {
            return Ok(());
        }
        match self.end(volume, None, gone).await {
            Ok(_) | Err(MetaError::NotAttached { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn attach(&self, volume: &str, wish: &AttachRequest) -> Result<ChangedAttachments, MetaError> {
        let gone = self.gone(volume).await?;
        let refusal = |what| self.refusal(volume, wish.node, &what);
        let now = now_rfc3339();
        let changed = self.meta.attach(volume, wish, &gone, &now, refusal).await?;
        self.fence(changed).await
    }

    /// Of the processes that have the volume, those that have certainly ended: they give no sign of life, or the data
    /// plane has met their successor, or knows that nobody is there.
    pub(crate) async fn gone(&self, volume: &str) -> Result<BTreeSet<(NodeId, u64)>, MetaError> {
        let known = self.meta.attachments_of(volume).await?;
        // As new as the attachments: whoever has attached since was alive.
        let model = self.meta.model_at(known.revision).await?;
        let entries = known.attachments.attachments.iter();
        let processes: Vec<(NodeId, u64)> =
            entries.filter_map(|entry| entry.incarnation.map(|incarnation| (entry.node, incarnation))).collect();
        let absent = processes.iter().filter(|(node, _)| !model.alive.contains_key(node)).copied();
        let mut gone: BTreeSet<(NodeId, u64)> = absent.collect();
        if !processes.is_empty() {
            gone.extend(self.data_plane.ended(processes).await);
        }
        Ok(gone)
    }

    /// Answers when nothing of the attachments that have ended can be applied any more.
    async fn fence(&self, mut changed: ChangedAttachments) -> Result<ChangedAttachments, MetaError> {
        while changed.attachments.fence_due {
            let ChangedAttachments { volume, attachments, revision } = &changed;
            let model = self.meta.model_at(*revision).await?;
            let groups = model.classes.get(&volume.class).map(|class| class.groups.clone()).unwrap_or_default();
            let AttachmentsRecord { generation, .. } = *attachments;
            let fenced = self.data_plane.fence(volume.id, generation, attachments.standing(), groups).await;
            if let Err(groups) = fenced {
                return Err(MetaError::NotFenced { volume: volume.name.clone(), groups });
            }
            let name = volume.name.clone();
            changed = self.meta.confirm_fenced(&name, generation).await?;
        }
        Ok(changed)
    }

    fn refusal(&self, volume: &str, wanted: NodeId, what: &InTheWay) -> MetaError {
        let model = self.meta.model();
        match what {
            InTheWay::TooMany => {
                MetaError::TooManyAttachments { volume: volume.to_owned(), count: VOLUME_ATTACHMENTS_MAX }
            }
            InTheWay::Holder(holder) => {
                let AttachmentRecord { node, pinned, since, .. } = &**holder;
                let why = if *pinned { "until it is detached" } else { "for its clients" };
                MetaError::Attached {
                    volume: volume.to_owned(),
                    node: node_name(&model, *node),
                    how: format!("{why}, since {since}"),
                    wanted: node_name(&model, wanted),
                }
            }
        }
    }
}
