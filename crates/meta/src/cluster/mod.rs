//! The cluster's configuration as operations: each is one transaction on the configuration server, tried again when
//! somebody else was faster, and recognised as done when only its answer was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use azekura_model::{
    Bounds, EtcdError, Found, Gathered, Halt, Key, MetaError, Model, Outcome, PREFIX, Records, Step, check_bounds,
};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::{EtcdClient, REQUEST_TIMEOUT, Servers};

mod alive;
mod attachments;
mod audit;
mod authorities;
mod classes;
mod cuts;
mod data_keys;
mod devices;
mod follow;
mod grants;
mod groups;
mod idempotency;
mod identity;
mod layers;
mod members;
mod projects;
mod removal;
mod reservations;
mod restored;
mod settings;
mod shut_out;
mod snapshots;
mod targets;
#[cfg(test)]
mod testing;
mod volumes;

pub use alive::LeaseHold;
pub use attachments::ChangedAttachments;
pub use audit::{AuditPage, Audited, Deed};
pub use classes::{ClassChange, ClassSpec, DEFAULT_OVERCOMMIT_RATIO};
pub use cuts::Snapped;
pub use groups::{CasOutcome, GROUPS_PER_CLASS_MAX};
pub use idempotency::Claimed;
pub use members::{DeviceSpec, NodeSpec};
pub use settings::{MOVES_AT_ONCE_MAX, SettingsChange};

/// How long [`MetaClient::connect`] waits for a server.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long the first attempt at a change is waited for, and how much longer each that follows one whose outcome is not
/// known. Changes with etcd's leader are lost without a word when that dies, and volumes wait for such changes.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long an operation is tried.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest pause before an operation is tried again because somebody else was faster.
const CONFLICT_PAUSE_MS_MAX: u64 = 30;

/// A client of the cluster's configuration. Cheap to clone; the last clone ends its background work.
///
/// # How it is driven
///
/// On a tokio runtime. [`MetaClient::connect`] reads everything once and starts a task that follows the changes;
/// [`MetaClient::model`] is what is known now, [`MetaClient::watch_model`] tells of each change. All other operations
/// are futures: each runs one transition of `azekura-model` until it is done or refused, or its time is over.
///
/// # States
///
/// ```text
///   the model:     following ──► lost ──► read again ──► following
///                  (the model stays the last one known; `watch_link` says since when and why)
///
///   an operation:  decide on the model ──► done, or refused
///                                      ├─► read keys, or wait for a revision ──► decide again
///                                      └─► one transaction ──► done
///                                                          ├─► somebody was faster: pause ──► decide again
///                                                          └─► its answer is lost ──► decide again, as one
///                                                              that may find its own work
/// ```
///
/// A refusal on a model that does not have this client's own last change yet is none: it waits for that, and decides
/// again.
///
/// # What it costs
///
/// The whole configuration in memory, as records and as keys and values. A change copies the pointers of its map of
/// records and of the map of all keys. An operation is one round trip to the server for its transaction, and one for
/// what it has to read beside the model; to look at the model asks nothing of the server. Nothing here is on the path
/// of I/O.
#[derive(Clone, Debug)]
pub struct MetaClient {
    inner: Arc<Inner>,
    /// On whose behalf it changes something, if it is somebody's.
    deed: Option<Deed>,
    /// What it shows and changes: for it, there is nothing outside.
    bounds: Arc<Bounds>,
}

#[derive(Debug)]
struct Inner {
    etcd: EtcdClient,
    model: watch::Receiver<Arc<Model>>,
    link: watch::Receiver<Option<LinkLoss>>,
    follow: JoinHandle<()>,
    /// Creations of one process go one after the other: they would only make each other's transactions fail.
    creating: Mutex<()>,
    /// The last revision that a change of this client made; the model may be behind it.
    written: AtomicI64,
    /// Changes that were somebody's.
    audited: AtomicU64,
    /// Requests that came with a key.
    claims: AtomicU64,
    /// There were too many of them.
    claims_full: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.follow.abort();
    }
}

/// The configuration server's changes do not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLoss {
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Instant,
}

/// How an attempt at an operation ended.
enum Attempt<T> {
    /// It is done.
    Done(T),
    /// Somebody else was faster: look again.
    Conflict,
}

/// One attempt.
#[derive(Clone, Copy)]
struct Try {
    /// When the operation gives up.
    deadline: Instant,
    /// An earlier attempt may have been executed.
    uncertain: bool,
    /// How long this one is waited for, before it is looked what became of it.
    wait: Duration,
}

impl MetaClient {
    /// Connects to the configuration servers and reads the whole model; waits [`CONNECT_WAIT`] for a server to answer.
    pub async fn connect(servers: impl Into<Servers>) -> Result<MetaClient, MetaError> {
        MetaClient::connect_within(servers, CONNECT_WAIT).await
    }

    /// [`MetaClient::connect`] with another patience.
    pub async fn connect_within(servers: impl Into<Servers>, wait: Duration) -> Result<MetaClient, MetaError> {
        let etcd = EtcdClient::new(servers)?;
        let (kvs, revision) = etcd.range_prefix(PREFIX, wait).await?;
        let first = Arc::new(Model::from_keys(&kvs, revision));
        let (model_sender, model) = watch::channel(first);
        let (link_sender, link) = watch::channel(None);
        let follow = tokio::spawn(follow::follow(etcd.clone(), model_sender, link_sender));
        let (written, audited, claims) = (AtomicI64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (creating, claims_full) = (Mutex::new(()), AtomicBool::new(false));
        let inner = Inner { etcd, model, link, follow, creating, written, audited, claims, claims_full };
        Ok(MetaClient { inner: Arc::new(inner), deed: None, bounds: Arc::new(Bounds::All) })
    }

    /// This client for somebody who has to do with these volumes alone: what is outside it neither shows nor changes,
    /// as if it were not there. But [`MetaClient::watch_model`] shows all.
    #[must_use]
    pub fn within(&self, bounds: &Bounds) -> MetaClient {
        MetaClient { bounds: Arc::new(bounds.clone()), ..self.clone() }
    }

    /// What it shows and changes.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// An error as it is told to whoever this client is for: others' volumes do not show in it.
    #[must_use]
    pub fn told(&self, error: MetaError) -> MetaError {
        match error {
            MetaError::Overcommit { .. } if *self.bounds != Bounds::All => MetaError::Full,
            error => error,
        }
    }

    /// Follows the model: always the newest one, also through restarts of the server. Within no bounds: for those who
    /// want to know when something changes.
    #[must_use]
    pub fn watch_model(&self) -> watch::Receiver<Arc<Model>> {
        self.inner.model.clone()
    }

    /// The model as it is now.
    #[must_use]
    pub fn model(&self) -> Arc<Model> {
        self.whole_model().within(&self.bounds)
    }

    /// The model as it is now, within no bounds: what transitions go by.
    fn whole_model(&self) -> Arc<Model> {
        Arc::clone(&self.inner.model.borrow())
    }

    /// `None` while the server's changes arrive, else why they don't. The model stays the last one known.
    #[must_use]
    pub fn watch_link(&self) -> watch::Receiver<Option<LinkLoss>> {
        self.inner.link.clone()
    }

    /// The configuration servers, separated by commas.
    #[must_use]
    pub fn endpoints(&self) -> String {
        self.inner.etcd.endpoints()
    }

    /// Waits until the model holds every change up to `revision`. Only for revisions of the cluster's own keys.
    pub async fn model_at(&self, revision: i64) -> Result<Arc<Model>, MetaError> {
        Ok(self.whole_model_at(revision).await?.within(&self.bounds))
    }

    /// The same, within no bounds.
    async fn whole_model_at(&self, revision: i64) -> Result<Arc<Model>, MetaError> {
        let mut model = self.inner.model.clone();
        let reached = tokio::time::timeout(OPERATION_TIMEOUT, model.wait_for(|model| model.revision >= revision)).await;
        match reached {
            Ok(Ok(model)) => Ok(Arc::clone(&model)),
            _ => {
                let loss = self.inner.link.borrow().clone();
                let reason = loss.map_or_else(|| "its changes do not arrive".to_owned(), |loss| loss.reason);
                Err(EtcdError::Unreachable { endpoints: self.endpoints(), reason }.into())
            }
        }
    }

    /// Repeats `attempt` until it is done, refused, or out of time. An attempt that may or may not have been executed
    /// is repeated, too: attempts recognise their own work.
    async fn settle<T, F: Future<Output = Result<Attempt<T>, MetaError>> + Send>(
        &self,
        what: &str,
        mut attempt: impl FnMut(Try) -> F + Send,
    ) -> Result<T, MetaError> {
        let deadline = Instant::now() + OPERATION_TIMEOUT;
        let (mut uncertain, mut wait) = (false, FIRST_WAIT);
        loop {
            let lost = match attempt(Try { deadline, uncertain, wait }).await {
                Ok(Attempt::Done(value)) => return Ok(value),
                Ok(Attempt::Conflict) => {
                    MetaError::Contended { what: what.to_owned(), seconds: OPERATION_TIMEOUT.as_secs() }
                }
                Err(error @ MetaError::Etcd(EtcdError::Uncertain { .. })) => {
                    uncertain = true;
                    wait = (wait + FIRST_WAIT).min(REQUEST_TIMEOUT);
                    error
                }
                Err(error) => return Err(error),
            };
            let pause = Duration::from_millis(1 + getrandom::u32().map_or(0, u64::from) % CONFLICT_PAUSE_MS_MAX);
            if Instant::now() + pause >= deadline {
                return Err(lost);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads keys as of one revision.
    async fn get_all<const N: usize>(&self, keys: [&Key<'_>; N], deadline: Instant) -> Result<[Found; N], MetaError> {
        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
        names.iter().try_for_each(|name| check_bounds(&self.bounds, name))?;
        let (values, _) = self.inner.etcd.get_all(&names, deadline).await?;
        let mut values = values.into_iter();
        Ok(std::array::from_fn(|index| Found { key: names[index].clone(), kv: values.next().flatten() }))
    }

    /// Runs a transition until it is done, refused, or out of time: reads what it asks for, sends the change that it
    /// comes to. Also gives the revision since which what was wanted is so, or a later one.
    async fn run<T: Send>(
        &self,
        what: &str,
        transition: impl Fn(&Records<'_>) -> Outcome<T> + Sync,
    ) -> Result<(T, i64), MetaError> {
        let transition = &transition;
        self.settle(what, |attempt| self.try_transition(attempt, transition)).await
    }

    /// Runs a transition; the first attempt takes what `model` says for what there is, without reading it. Gives what
    /// the transition comes to, and a revision from which on it is so.
    ///
    /// # Errors
    /// When it is refused, or the configuration can't be reached.
    pub async fn run_known<T: Send>(
        &self,
        what: &str,
        model: &Model,
        transition: impl Fn(&Records<'_>) -> Outcome<T> + Sync,
    ) -> Result<(T, i64), MetaError> {
        let first = match transition(&Records::known(model).within(&self.bounds)) {
            Ok(step) => self.take(step, FIRST_WAIT).await.ok(),
            Err(_) => None,
        };
        match first {
            Some(Attempt::Done(done)) => Ok(done),
            // Something has changed since, or an answer was lost: the transition recognises its own work.
            _ => self.run(what, transition).await,
        }
    }

    /// One attempt at a transition.
    async fn try_transition<T>(
        &self,
        Try { deadline, uncertain, wait }: Try,
        transition: impl Fn(&Records<'_>) -> Outcome<T>,
    ) -> Result<Attempt<(T, i64)>, MetaError> {
        let (mut model, mut read) = (self.whole_model(), Gathered::new());
        loop {
            match transition(&Records::gathered(&model, &read, uncertain).within(&self.bounds)) {
                Ok(step) => return self.take(step, wait).await,
                // The refusal may be for what this client has changed just now, and the model does not know it yet.
                Err(Halt::Refused(error)) => match self.inner.written.load(Ordering::Relaxed) {
                    written if model.revision < written => model = self.whole_model_at(written).await?,
                    _ => return Err(self.told(error)),
                },
                Err(Halt::Wait(revision)) => model = self.whole_model_at(revision).await?,
                Err(Halt::Read(keys)) => {
                    let (values, _) = self.inner.etcd.get_all(&keys, deadline).await?;
                    read.extend(keys.into_iter().zip(values));
                }
            }
        }
    }

    /// Does what an attempt has come to.
    async fn take<T>(&self, step: Step<T>, wait: Duration) -> Result<Attempt<(T, i64)>, MetaError> {
        match step {
            Step::Done(value, revision) => Ok(Attempt::Done((value, revision))),
            Step::Again => Ok(Attempt::Conflict),
            Step::Run(txn, value) => {
                let answer = self.change(txn, wait).await?;
                let revision = answer.header.map_or(0, |header| header.revision);
                if answer.succeeded {
                    self.inner.written.fetch_max(revision, Ordering::Relaxed);
                }
                Ok(if answer.succeeded { Attempt::Done((value, revision)) } else { Attempt::Conflict })
            }
        }
    }
}

/// 128 random bits as 32 hexadecimal digits.
#[must_use]
pub fn random_uuid() -> String {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // No random source: the clock is unique enough for an identity.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        bytes = now.to_be_bytes();
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}
