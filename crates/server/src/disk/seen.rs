//! What a node remembers of the configuration, so that an older one is not believed
//! (docs/decisions/0019-restored-configuration.md).
//!
//! Two files in the data folder: `seen.json` is small and written before the node acts on a revision.
//! `configuration.json` is a copy of everything, which follows within seconds; it tells single changes apart, and a
//! configuration that was restored from an older backup is completed from it.

use crate::disk::files::write_json;
use anyhow::{Context, Result, ensure};
use azekura_meta::MetaClient;
use azekura_meta::time::now_rfc3339;
use azekura_model::history::{Changes, Copied, FORMAT, Seen, check};
use azekura_model::{DoubtRecord, MetaError, Model};
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const SEEN: &str = "seen.json";
const COPY: &str = "configuration.json";
/// Least time between two writes of the copy.
const COPY_INTERVAL: Duration = Duration::from_secs(2);
/// The copy of a large configuration is written so seldom that it takes one part in so many of the time.
const COPY_SHARE: u32 = 20;

/// What the node knows of the configuration.
pub struct Memory {
    folder: PathBuf,
    /// Identity of the data folder.
    uuid: String,
    name: String,
    seen: Option<Seen>,
    /// The last model that was believed.
    believed: Option<Arc<Model>>,
    copies: watch::Sender<Option<Arc<Model>>>,
    is_reported: bool,
    /// Which start of the node this process is, once it is registered.
    incarnation: Option<u64>,
}

/// Reads the copy of the configuration in a data folder; `None`: there is none.
///
/// # Errors
/// When there is one that can't be read.
pub fn read_copy(folder: &Path) -> Result<Option<Copied>> {
    let copy: Option<Copied> = read(&folder.join(COPY))?;
    if let Some(copy) = &copy {
        check_version(&folder.join(COPY), copy.version)?;
    }
    Ok(copy)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let value = serde_json::from_slice(&bytes);
            Ok(Some(value.with_context(|| format!("{} is damaged; move the file away", path.display()))?))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("can't read {}", path.display())),
    }
}

fn check_version(path: &Path, version: u32) -> Result<()> {
    ensure!(version == FORMAT, "{} has version {version}, this program knows {FORMAT}", path.display());
    Ok(())
}

impl Memory {
    /// What the folder of the node with this identity says.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn open(folder: &Path, uuid: &str) -> Result<Memory> {
        let seen: Option<Seen> = read(&folder.join(SEEN))?;
        if let Some(seen) = &seen {
            check_version(&folder.join(SEEN), seen.version)?;
        }
        Ok(Memory {
            folder: folder.to_owned(),
            uuid: uuid.to_owned(),
            name: String::new(),
            seen,
            believed: None,
            copies: watch::Sender::new(None),
            is_reported: false,
            incarnation: None,
        })
    }

    /// This process is registered, as this start of its node.
    pub fn registered(&mut self, incarnation: u64) {
        self.incarnation = Some(incarnation);
    }

    /// Whether the configuration may be believed at the start of the node called `name`.
    ///
    /// # Errors
    /// Says why not, and what to do. All nodes are told of what this one has found.
    pub async fn check_at_start(&mut self, client: &MetaClient, name: &str) -> Result<(), MetaError> {
        self.name = name.to_owned();
        let model = client.model();
        let outcome = match &self.seen {
            None => unknown_but_sound(&model),
            Some(seen) => {
                let copy = read_copy(&self.folder).unwrap_or_else(|error| {
                    tracing::warn!("{error:#}; the node does without the copy");
                    None
                });
                // A copy of another life says nothing of this one.
                let copy = copy.filter(|copy| copy.life == seen.life && copy.revision <= seen.revision);
                // One that the configuration does not know at all was removed, if nothing else speaks against it:
                // `join` says so.
                let is_known = model.nodes.values().any(|node| node.uuid == self.uuid);
                let seen = Seen { incarnation: if is_known { seen.incarnation } else { 0 }, ..seen.clone() };
                check(&seen, copy.as_ref().map(Copied::changes).as_ref(), &model, &self.uuid)
            }
        };
        self.spread_doubt(client, outcome).await
    }

    /// The next model of the running node: whether it may be believed. What was seen is noted before this returns.
    ///
    /// # Errors
    /// As [`Memory::check_at_start`].
    pub async fn follow(&mut self, client: &MetaClient, model: &Arc<Model>) -> Result<(), MetaError> {
        let own = model.nodes.values().find(|node| node.uuid == self.uuid);
        if let Some((node, out)) = own.and_then(|node| Some((node.name.clone(), node.shut_out.clone()?))) {
            return Err(MetaError::ShutOut { node, by: out.by, since: out.since });
        }
        // Of two processes with one identity the later one is the node. Whatever this one did from now on would be
        // taken for that one's doing.
        if let Some(node) = own.filter(|node| self.incarnation.is_some_and(|started| node.incarnation > started)) {
            return Err(MetaError::Replaced { node: node.name.clone(), address: node.data_address });
        }
        let outcome = match &self.seen {
            Some(seen) => {
                // Between two readings the server itself tells each change.
                let before = self.believed.as_ref().filter(|before| before.readings != model.readings);
                let outcome = check(seen, before.map(|before| Changes::of(before)).as_ref(), model, &self.uuid);
                let life = model.cluster.as_ref().map(|cluster| &cluster.life);
                let goes_on = self.believed.is_none() || life == Some(&seen.life);
                outcome.and(if goes_on { Ok(()) } else { Err(MetaError::NewLife) })
            }
            None => unknown_but_sound(model),
        };
        self.spread_doubt(client, outcome).await?;
        self.believed = Some(Arc::clone(model));
        self.note(model).await;
        self.copies.send_replace(Some(Arc::clone(model)));
        Ok(())
    }

    async fn note(&mut self, model: &Model) {
        let Some(cluster) = &model.cluster else { return };
        let registered = model.nodes.values().find(|node| node.uuid == self.uuid);
        let seen = Seen {
            version: FORMAT,
            cluster: cluster.id.clone(),
            life: cluster.life.clone(),
            revision: model.revision,
            incarnation: registered.map_or(0, |node| node.incarnation),
        };
        if self.seen.as_ref() == Some(&seen) {
            return;
        }
        self.seen = Some(seen.clone());
        let path = self.folder.join(SEEN);
        let written = tokio::task::spawn_blocking(move || write_json(&path, &seen)).await;
        match written {
            Ok(Err(error)) if !self.is_reported => {
                self.is_reported = true;
                tracing::warn!("{error:#}; the node goes on, but might not notice a configuration that goes back");
            }
            Ok(Ok(())) => self.is_reported = false,
            _ => {}
        }
    }

    /// Lets all nodes know what this one has found.
    async fn spread_doubt(&self, client: &MetaClient, outcome: Result<(), MetaError>) -> Result<(), MetaError> {
        if let (Err(MetaError::WentBack { reason }), Some(seen)) = (&outcome, &self.seen) {
            let doubt = DoubtRecord {
                node: self.name.clone(),
                reason: reason.clone(),
                life: seen.life.clone(),
                revision: seen.revision,
                since: now_rfc3339(),
            };
            let same = client.model().doubts.contains_key(&self.uuid);
            if !same && let Err(error) = client.doubt(&self.uuid, &doubt).await {
                tracing::warn!("can't tell other nodes that the configuration went back: {error}");
            }
        }
        outcome
    }

    /// Keeps the copy up to date, until it is aborted.
    pub fn keep_copy(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut models = self.copies.subscribe();
        let folder = self.folder.clone();
        async move {
            while models.changed().await.is_ok() {
                let model = models.borrow_and_update().clone();
                let began = Instant::now();
                write_copy(&folder, model).await;
                tokio::time::sleep(COPY_INTERVAL.max(began.elapsed() * COPY_SHARE)).await;
            }
        }
    }

    /// Follows what is believed.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Model>>> {
        self.copies.subscribe()
    }
}

/// Writes the copy a last time.
pub async fn write_last(folder: &Path, believed: &watch::Receiver<Option<Arc<Model>>>) {
    let model = believed.borrow().clone();
    write_copy(folder, model).await;
}

/// What is asked of a configuration of which this node has seen nothing.
fn unknown_but_sound(model: &Model) -> Result<(), MetaError> {
    if model.cluster.as_ref().and_then(|cluster| cluster.restored.as_ref()).is_some_and(|restored| restored.under_way) {
        return Err(MetaError::RestoreUnderWay);
    }
    match model.doubts.values().next() {
        Some(doubt) => Err(MetaError::Doubted { node: doubt.node.clone(), reason: doubt.reason.clone() }),
        None => Ok(()),
    }
}

async fn write_copy(folder: &Path, model: Option<Arc<Model>>) {
    let path = folder.join(COPY);
    let write = move || match model.and_then(|model| Copied::of(&model)) {
        Some(copy) => write_json(&path, &copy),
        None => Ok(()),
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
        tracing::warn!("{error:#}; the node goes on without a fresh copy of the configuration");
    }
}
